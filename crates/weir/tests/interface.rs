//! The public interface as a whole: what one handle can, the others can; what may go to other
//! threads.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::iter::FusedIterator;

use weir::{
    BatchIter, Commit, Compression, Cursor, Db, Durability, Iter, KeyRange, Keys, Keyspace,
    Options, Result, Snapshot, Value, WriteBatch,
};

type Pair = (Vec<u8>, Vec<u8>);

/// Goal: handles and readers may be sent to other threads and shared by them; iterators stay at
/// their end; everything can be shown.
#[test]
fn handles_may_go_anywhere() {
    fn shared<T: Send + Sync + Debug>() {}
    fn fused<T: FusedIterator + Debug>() {}
    shared::<Db>();
    shared::<Keyspace>();
    shared::<Snapshot>();
    shared::<Value>();
    shared::<Cursor>();
    shared::<Iter>();
    shared::<Keys>();
    shared::<WriteBatch>();
    shared::<BatchIter<'_>>();
    shared::<Commit>();
    shared::<weir::Builder>();
    shared::<weir::Error>();
    shared::<weir::DbOptions>();
    shared::<Options>();
    shared::<weir::Metrics>();
    shared::<weir::Description>();
    shared::<weir::VerifyReport>();
    shared::<weir::RepairReport>();
    fused::<Iter>();
    fused::<Keys>();
    fused::<BatchIter<'_>>();
    fn owning<T: 'static>() {}
    owning::<Iter>();
    owning::<Cursor>();

    let dir = tempfile::tempdir().expect("a temporary directory");
    let builder = Db::builder(dir.path().join("db"));
    assert!(format!("{builder:?}").contains("memory_budget"));
    let db = builder.open().expect("opened");
    db.put("key", "value").expect("put");
    let mut batch = WriteBatch::new();
    batch.put(db.default_keyspace(), "a", "b");
    let mut cursor = db.cursor();
    cursor.seek_to_first();
    for (shown, part) in [
        (format!("{db:?}"), "path"),
        (format!("{:?}", db.default_keyspace()), "default"),
        (format!("{:?}", db.snapshot()), "sequence: 1"),
        (format!("{cursor:?}"), "\"key\""),
        (format!("{:?}", db.iter()), "ended: false"),
        (format!("{:?}", db.keys()), "ended: false"),
        (format!("{batch:?}"), "len: 1"),
        (format!("{:?}", batch.iter()), "Put"),
        (format!("{:?}", db.commit(batch.clone(), Durability::Buffered)), "Buffered"),
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    let value = db.get("key").expect("read").expect("there");
    assert_eq!(Vec::from(value), b"value");
    let mut keys = db.keys();
    assert_eq!(keys.by_ref().count(), 2);
    assert!(keys.next().is_none() && keys.next_back().is_none());
}

/// What can be read, in the same words for a store, a keyspace and a snapshot.
trait Reader {
    fn get(&self, key: &[u8]) -> Result<Option<Value>>;
    fn get_into(&self, key: &[u8], buf: &mut Vec<u8>) -> Result<bool>;
    fn contains_key(&self, key: &[u8]) -> Result<bool>;
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>>;
    fn first(&self) -> Result<Option<(Value, Value)>>;
    fn last(&self) -> Result<Option<(Value, Value)>>;
    fn is_empty(&self) -> Result<bool>;
    fn keys(&self) -> Keys;
    fn iter(&self) -> Iter;
    fn range(&self, range: impl KeyRange) -> Iter;
    fn prefix(&self, prefix: &[u8]) -> Iter;
    fn cursor(&self) -> Cursor;
    fn cursor_range(&self, range: impl KeyRange) -> Cursor;
    fn approximate_size(&self, range: impl KeyRange) -> Result<u64>;
    fn approximate_count(&self, range: impl KeyRange) -> Result<u64>;
}

macro_rules! reader {
    ($ty:ty, |$self:ident| $reader:expr $(, $keyspace:expr)?) => {
        impl Reader for $ty {
            fn get(&$self, key: &[u8]) -> Result<Option<Value>> {
                $reader.get($($keyspace,)? key)
            }
            fn get_into(&$self, key: &[u8], buf: &mut Vec<u8>) -> Result<bool> {
                $reader.get_into($($keyspace,)? key, buf)
            }
            fn contains_key(&$self, key: &[u8]) -> Result<bool> {
                $reader.contains_key($($keyspace,)? key)
            }
            fn multi_get(&$self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
                $reader.multi_get($($keyspace,)? keys)
            }
            fn first(&$self) -> Result<Option<(Value, Value)>> {
                $reader.first($($keyspace)?)
            }
            fn last(&$self) -> Result<Option<(Value, Value)>> {
                $reader.last($($keyspace)?)
            }
            fn is_empty(&$self) -> Result<bool> {
                $reader.is_empty($($keyspace)?)
            }
            fn keys(&$self) -> Keys {
                $reader.keys($($keyspace)?)
            }
            fn iter(&$self) -> Iter {
                $reader.iter($($keyspace)?)
            }
            fn range(&$self, range: impl KeyRange) -> Iter {
                $reader.range($($keyspace,)? range)
            }
            fn prefix(&$self, prefix: &[u8]) -> Iter {
                $reader.prefix($($keyspace,)? prefix)
            }
            fn cursor(&$self) -> Cursor {
                $reader.cursor($($keyspace)?)
            }
            fn cursor_range(&$self, range: impl KeyRange) -> Cursor {
                $reader.cursor_range($($keyspace,)? range)
            }
            fn approximate_size(&$self, range: impl KeyRange) -> Result<u64> {
                $reader.approximate_size($($keyspace,)? range)
            }
            fn approximate_count(&$self, range: impl KeyRange) -> Result<u64> {
                $reader.approximate_count($($keyspace,)? range)
            }
        }
    };
}

reader!(Db, |self| self);
reader!(Keyspace, |self| self);
reader!((Snapshot, Keyspace), |self| self.0, &self.1);

fn owned(pair: (Value, Value)) -> Pair {
    (pair.0.into(), pair.1.into())
}

fn collected(iter: Iter) -> Vec<Pair> {
    iter.map(|pair| owned(pair.expect("read"))).collect()
}

/// That a reader shows the pairs, whichever way they are asked for.
fn check(reader: &impl Reader, expected: &BTreeMap<Vec<u8>, Vec<u8>>, what: &str) {
    let pairs: Vec<Pair> = expected.clone().into_iter().collect();
    assert_eq!(collected(reader.iter()), pairs, "{what}");
    let keys: Vec<Vec<u8>> = reader.keys().map(|key| key.expect("read").into()).collect();
    assert!(keys.iter().eq(expected.keys()), "{what}");
    let back: Vec<Vec<u8>> = reader.keys().rev().map(|key| key.expect("read").into()).collect();
    assert!(back.iter().eq(expected.keys().rev()), "{what}");
    // From both ends, the first two from the front.
    let mut keys = reader.iter().keys();
    let front = keys.by_ref().take(2).count();
    assert_eq!(front + keys.rev().count(), pairs.len(), "{what}");
    assert_eq!(reader.first().expect("read").map(owned), pairs.first().cloned(), "{what}");
    assert_eq!(reader.last().expect("read").map(owned), pairs.last().cloned(), "{what}");
    assert_eq!(reader.is_empty().expect("read"), pairs.is_empty(), "{what}");
    for n in 0..120_u32 {
        let key = n.to_be_bytes();
        let value = expected.get(&key[..]);
        assert_eq!(reader.get(&key).expect("read").as_deref(), value.map(|v| &v[..]), "{what}");
        assert_eq!(reader.contains_key(&key).expect("read"), value.is_some(), "{what}: {n}");
        let mut buf = Vec::new();
        assert_eq!(reader.get_into(&key, &mut buf).expect("read"), value.is_some(), "{what}: {n}");
        let both = reader.multi_get(&[&key, &key]).expect("read");
        assert!(both.iter().all(|v| v.is_some() == value.is_some()), "{what}: {n}");
        let range = expected.range(key.to_vec()..(n + 7).to_be_bytes().to_vec());
        let range: Vec<Pair> = range.map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(collected(reader.range(key..(n + 7).to_be_bytes())), range, "{what}");
        let mut cursor = reader.cursor_range(key..(n + 7).to_be_bytes());
        cursor.seek_to_last();
        assert_eq!(cursor.entry().map(|(k, _)| k.to_vec()), range.last().map(|p| p.0.clone()));
    }
    let prefixed = pairs.iter().filter(|(key, _)| key.starts_with(&[0, 0, 0])).count();
    assert_eq!(reader.prefix(&[0, 0, 0]).count(), prefixed, "{what}");
    let mut cursor = reader.cursor();
    cursor.seek([0, 0, 0, 50]);
    let from = expected.range(vec![0, 0, 0, 50]..).next();
    assert_eq!(cursor.entry(), from.map(|(k, v)| (&k[..], &v[..])), "{what}");
    let count = reader.approximate_count(..).expect("estimated");
    assert!(count >= pairs.len() as u64, "{what}: {count}");
    assert!(reader.approximate_size(..).is_ok(), "{what}");
}

/// Goal: a store, a keyspace and a snapshot give the same answers to the same questions, and the
/// right ones. Method: a model; tables, memtables, deletes and overwritten keys; a row cache.
#[test]
fn every_handle_answers_alike() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let builder = Db::builder(dir.path().join("db")).row_cache_bytes(1 << 20);
    let options = Options { l0_trigger: 100, block_bytes: 512, ..Options::default() };
    let db = builder.default_options(options).open().expect("opened");
    let keyspace = db.default_keyspace().clone();
    let mut model = BTreeMap::new();
    let mut seen = vec![(db.snapshot(), model.clone())];
    for round in 0..5_u32 {
        for n in (round..100).step_by(round as usize + 1) {
            let key = n.to_be_bytes();
            if n % 7 == round {
                db.delete(key).expect("deleted");
                model.remove(&key[..]);
            } else {
                let value = vec![round as u8; 1 + (n as usize * 31) % 300];
                db.put(key, &value).expect("put");
                model.insert(key.to_vec(), value);
            }
        }
        if round != 4 {
            db.flush().expect("flushed");
        }
        check(&db, &model, "the store");
        check(&keyspace, &model, "the keyspace");
        seen.push((db.snapshot(), model.clone()));
    }
    for (number, (snapshot, model)) in seen.into_iter().enumerate() {
        check(&(snapshot, keyspace.clone()), &model, &format!("snapshot {number}"));
    }
    db.compact_range(..).expect("compacted");
    check(&db, &model, "merged");
    for n in 0..100_u32 {
        db.delete(n.to_be_bytes()).expect("deleted");
    }
    check(&db, &BTreeMap::new(), "emptied");
    db.close().expect("closed");
}

/// Goal: `contains_key` copies no value: it counts no bytes, and keeps nothing in the row cache.
#[test]
fn containing_a_key_copies_no_value() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let builder = Db::builder(dir.path().join("db")).row_cache_bytes(1 << 20);
    let db = builder.open().expect("opened");
    db.put("a", vec![1; 10_000]).expect("put");
    db.flush().expect("flushed");
    db.put("b", "in memory").expect("put");
    for (key, there) in [("a", true), ("b", true), ("c", false), ("a", true)] {
        assert_eq!(db.contains_key(key).expect("read"), there, "{key}");
    }
    let metrics = db.metrics();
    assert_eq!((metrics.gets, metrics.gets_found, metrics.bytes_found), (4, 3, 0));
    assert_eq!(metrics.row_cache.bytes, 0, "{:?}", metrics.row_cache);
    // What the row cache holds is an answer.
    db.get("a").expect("read");
    let before = db.metrics().row_cache.hits;
    assert!(db.contains_key("a").expect("read"));
    assert_eq!(db.metrics().row_cache.hits, before + 1);
}

/// Goal: estimates are on their side and not far off. Method: ranges of a store whose entries are
/// alike, in tables and in a memtable, with each key once and overwritten.
#[test]
fn estimates_are_near() {
    const KEYS: u32 = 20_000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options { compression: vec![Compression::None], ..Options::default() };
    let builder = Db::builder(dir.path().join("db")).default_options(options);
    let db = builder.open().expect("opened");
    let fill = || (0..KEYS).for_each(|n| db.put(n.to_be_bytes(), [7; 50]).expect("put"));
    let count = |from: u32, to: u32| {
        db.approximate_count(from.to_be_bytes()..to.to_be_bytes()).expect("estimated")
    };
    fill();
    assert_eq!(db.approximate_count(..).expect("estimated"), u64::from(KEYS));
    assert_eq!(count(100, 600), 500, "few entries of a memtable are counted");
    assert_eq!(count(100, 5000), u64::from(KEYS), "of many, all are");
    db.flush().expect("flushed");
    assert_eq!(db.approximate_count(..).expect("estimated"), u64::from(KEYS));
    for (from, to) in [(0, KEYS), (0, 10), (100, 5000), (19_990, KEYS), (19_000, 40_000)] {
        let (exact, estimate) = (u64::from(to.min(KEYS) - from), count(from, to));
        assert!((exact..exact + 300).contains(&estimate), "{from}..{to}: {estimate}");
    }
    for (from, to) in [(KEYS, KEYS + 1), (10, 10), (600, 100)] {
        assert_eq!(count(from, to), 0, "{from}..{to}");
    }
    fill();
    db.flush().expect("flushed");
    assert_eq!(db.approximate_count(..).expect("estimated"), 2 * u64::from(KEYS));
    db.compact_range(..).expect("compacted");
    assert_eq!(db.approximate_count(..).expect("estimated"), u64::from(KEYS));
}

/// Goal: `key` and `value` of a cursor that is not valid panic, as their documentation says, and
/// `entry` does not.
#[test]
fn an_invalid_cursor_has_no_entry() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path().join("db")).expect("opened");
    let cursor = db.cursor();
    assert!(!cursor.valid() && cursor.entry().is_none());
    for read in [Cursor::key as fn(&Cursor) -> &[u8], Cursor::value] {
        let read = std::panic::AssertUnwindSafe(|| read(&cursor).len());
        assert!(std::panic::catch_unwind(read).is_err());
    }
}
