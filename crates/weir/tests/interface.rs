//! The public interface as a whole: what one handle can, the others can; nothing but a cursor that
//! is not valid makes a reader panic; what may go to other threads.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::iter::FusedIterator;
use std::ops::Bound;

use weir::{
    BatchIter, Commit, Compression, Cursor, Db, Durability, ErrorKind, Iter, KeyRange, Keys,
    Keyspace, LeveledOptions, Options, Result, Snapshot, Value, WriteBatch,
};

type Pair = (Vec<u8>, Vec<u8>);

fn trigger(runs: usize) -> LeveledOptions {
    LeveledOptions::default().l0_trigger(runs)
}

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
    let options = Options::default().compaction(trigger(100)).block_bytes(512);
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
    let options = Options::default().compression(vec![Compression::None]);
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

/// What a caller may get wrong: it answers the kind of the error, or `None` for an answer.
type Mistake = (&'static str, fn(&Case) -> Option<ErrorKind>, Option<ErrorKind>);

/// A store with two entries, and handles that are not good for it.
struct Case {
    db: Db,
    snapshot: Snapshot,
    /// Of another store.
    other: Keyspace,
    /// Dropped.
    gone: Keyspace,
    /// Of a store that was closed.
    closed: Db,
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// The error of an iterator, which ends with it.
fn of_iter<T>(mut iter: impl Iterator<Item = Result<T>>) -> Option<ErrorKind> {
    let first = iter.next().and_then(kind);
    assert!(first.is_none() || iter.next().is_none(), "an iterator goes on after an error");
    first
}

/// The error of a cursor after every way to move it.
fn of_cursor(mut cursor: Cursor) -> Option<ErrorKind> {
    let moves: [fn(&mut Cursor); 6] = [
        |c| c.next(),
        |c| c.seek_to_first(),
        |c| c.prev(),
        |c| c.seek("a"),
        |c| c.seek_for_prev("z"),
        |c| c.seek_to_last(),
    ];
    for step in moves {
        step(&mut cursor);
        assert_eq!(cursor.entry().is_some(), cursor.valid());
    }
    kind(cursor.status())
}

fn foreign_batch(case: &Case) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(&case.other, "a", "1");
    batch
}

const EMPTY: (Bound<&str>, Bound<&str>) = (Bound::Excluded("a"), Bound::Excluded("a"));
const REVERSED: (Bound<&str>, Bound<&str>) = (Bound::Included("z"), Bound::Included("a"));

const INVALID: Option<ErrorKind> = Some(ErrorKind::InvalidArgument);
const NOT_FOUND: Option<ErrorKind> = Some(ErrorKind::NotFound);
const CLOSED: Option<ErrorKind> = Some(ErrorKind::Closed);

#[rustfmt::skip]
const MISTAKES: [Mistake; 61] = [
    // Ranges without a key are empty.
    ("an empty range", |c| of_iter(c.db.range(EMPTY)), None),
    ("a reversed range", |c| of_iter(c.db.range(REVERSED)), None),
    ("a reversed range from the back", |c| of_iter(c.db.range(REVERSED).rev()), None),
    ("a reversed range of a snapshot", |c| {
        of_iter(c.snapshot.range(c.db.default_keyspace(), REVERSED))
    }, None),
    ("a cursor in a reversed range", |c| of_cursor(c.db.cursor_range(REVERSED)), None),
    ("the size of a reversed range", |c| kind(c.db.approximate_size(REVERSED)), None),
    ("the count of a reversed range", |c| kind(c.db.approximate_count(REVERSED)), None),
    ("the count of an empty range", |c| kind(c.db.approximate_count(EMPTY)), None),
    ("compacting an empty range", |c| kind(c.db.compact_range(EMPTY)), None),
    ("compacting a reversed range", |c| kind(c.db.compact_range(REVERSED)), None),
    ("no keys", |c| kind(c.db.multi_get::<&[u8]>(&[])), None),
    // Names and limits.
    ("no name", |c| kind(c.db.keyspace("")), INVALID),
    ("a name with a line break", |c| kind(c.db.keyspace("a\nb")), INVALID),
    ("a long name", |c| kind(c.db.open_keyspace(&"x".repeat(256))), INVALID),
    ("a name that is not there", |c| kind(c.db.open_keyspace("new")), NOT_FOUND),
    ("dropping what is not there", |c| kind(c.db.drop_keyspace("new")), NOT_FOUND),
    ("dropping the default keyspace", |c| kind(c.db.drop_keyspace("default")), INVALID),
    ("a key that is too long", |c| kind(c.db.put(vec![0; 1 << 16], "")), INVALID),
    ("asking for such a key", |c| kind(c.db.get(vec![0; 1 << 16])), None),
    ("options out of their range", |c| {
        let options = Options::default().block_bytes(0);
        kind(c.db.default_keyspace().set_options(options))
    }, INVALID),
    ("a path that is a file", |c| kind(Db::open(format!("{}/ROOT", c.db.path()))), INVALID),
    ("no path", |_| kind(Db::open("")), INVALID),
    ("a path with a zero byte", |_| kind(Db::open("\0")), INVALID),
    ("repairing what is not there", |_| kind(Db::repair("/nowhere")), NOT_FOUND),
    ("destroying what is not there", |_| kind(Db::destroy("/nowhere")), None),
    // A keyspace of another store.
    ("get", |c| kind(c.snapshot.get(&c.other, "a")), INVALID),
    ("get_into", |c| kind(c.snapshot.get_into(&c.other, "a", &mut Vec::new())), INVALID),
    ("contains_key", |c| kind(c.snapshot.contains_key(&c.other, "a")), INVALID),
    ("multi_get", |c| kind(c.snapshot.multi_get(&c.other, &["a"])), INVALID),
    ("first", |c| kind(c.snapshot.first(&c.other)), INVALID),
    ("last", |c| kind(c.snapshot.last(&c.other)), INVALID),
    ("is_empty", |c| kind(c.snapshot.is_empty(&c.other)), INVALID),
    ("keys", |c| of_iter(c.snapshot.keys(&c.other)), INVALID),
    ("iter", |c| of_iter(c.snapshot.iter(&c.other)), INVALID),
    ("iter from the back", |c| of_iter(c.snapshot.iter(&c.other).rev()), INVALID),
    ("range", |c| of_iter(c.snapshot.range(&c.other, "a"..)), INVALID),
    ("prefix", |c| of_iter(c.snapshot.prefix(&c.other, "a")), INVALID),
    ("cursor", |c| of_cursor(c.snapshot.cursor(&c.other)), INVALID),
    ("cursor_range", |c| of_cursor(c.snapshot.cursor_range(&c.other, "a"..)), INVALID),
    ("approximate_size", |c| kind(c.snapshot.approximate_size(&c.other, ..)), INVALID),
    ("approximate_count", |c| kind(c.snapshot.approximate_count(&c.other, ..)), INVALID),
    ("write", |c| kind(c.db.write(foreign_batch(c), Durability::Buffered)), INVALID),
    ("commit", |c| kind(c.db.commit(foreign_batch(c), Durability::Buffered).wait()), INVALID),
    ("a batch for two stores", |c| {
        let mut batch = foreign_batch(c);
        batch.delete(c.db.default_keyspace(), "a");
        kind(c.db.write(batch, Durability::Buffered))
    }, INVALID),
    // A keyspace that was dropped.
    ("put into what is gone", |c| kind(c.gone.put("a", "1")), CLOSED),
    ("get of what is gone", |c| kind(c.gone.get("a")), CLOSED),
    ("contains_key of what is gone", |c| kind(c.gone.contains_key("a")), CLOSED),
    ("iter of what is gone", |c| of_iter(c.gone.iter()), CLOSED),
    ("cursor of what is gone", |c| of_cursor(c.gone.cursor()), CLOSED),
    ("snapshot of what is gone", |c| kind(c.snapshot.first(&c.gone)), CLOSED),
    ("flush of what is gone", |c| kind(c.gone.flush()), CLOSED),
    ("compact_range of what is gone", |c| kind(c.gone.compact_range(..)), CLOSED),
    ("approximate_count of what is gone", |c| kind(c.gone.approximate_count(..)), CLOSED),
    // A store that was closed.
    ("get of a closed store", |c| kind(c.closed.get("a")), CLOSED),
    ("iter of a closed store", |c| of_iter(c.closed.iter()), CLOSED),
    ("cursor of a closed store", |c| of_cursor(c.closed.cursor()), CLOSED),
    ("a snapshot of a closed store", |c| {
        kind(c.closed.snapshot().first(c.closed.default_keyspace()))
    }, CLOSED),
    ("an empty batch", |c| kind(c.closed.write(WriteBatch::new(), Durability::Sync)), CLOSED),
    ("approximate_count of a closed store", |c| kind(c.closed.approximate_count(..)), CLOSED),
    ("a batch of bytes", |c| kind(WriteBatch::from_bytes(&c.closed, b"")), CLOSED),
    ("a keyspace of a closed store", |c| kind(c.closed.keyspace("new")), CLOSED),
];

/// Goal: a mistake of the caller's is an error in every function, and a panic in none; an empty
/// range is no mistake. Snapshots panicked where their `get` gave an error. Method: the table
/// above, with what is asked of in memory and in tables.
#[test]
fn mistakes_are_errors() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let open = |name: &str| Db::open(dir.path().join(name)).expect("opened");
    let (db, other, closed) = (open("db"), open("other"), open("closed"));
    db.put("a", "1").expect("put");
    db.put("b", "2").expect("put");
    let gone = db.keyspace("gone").expect("created");
    db.drop_keyspace("gone").expect("dropped");
    closed.put("a", "1").expect("put");
    closed.clone().close().expect("closed");
    let (snapshot, other) = (db.snapshot(), other.default_keyspace().clone());
    let case = Case { db, snapshot, other, gone, closed };
    for place in ["in memory", "in tables"] {
        for (mistake, run, expected) in MISTAKES {
            assert_eq!(run(&case), expected, "{mistake}, {place}");
        }
        case.db.flush().expect("flushed");
    }
    // What looks at a store that was closed still answers.
    let Case { closed, gone, .. } = &case;
    let _ =
        (closed.metrics(), closed.describe(), closed.keyspaces(), closed.property("weir.stats"));
    assert_eq!((closed.path().is_empty(), gone.name()), (false, "gone"));
    assert_eq!(gone.options(), Options::default());
    assert_eq!(kind(closed.verify()), CLOSED);
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

/// Goal: a store that is open for reading only refuses every change with `ReadOnly`, and answers
/// everything else.
#[test]
fn a_store_for_reading_refuses_changes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path().join("db")).expect("opened");
    db.put("a", "1").expect("put");
    db.keyspace("k").expect("created");
    db.close().expect("closed");
    let builder = Db::builder(dir.path().join("db")).read_only(true);
    let db = builder.default_options(Options::default().compaction(trigger(9)));
    let db = db.open().expect("opened");
    let mut batch = WriteBatch::new();
    batch.put(db.default_keyspace(), "a", "2");
    let refused: [(&str, Result<()>); 12] = [
        ("put", db.put("a", "2")),
        ("delete", db.delete("a")),
        ("write", db.write(&mut batch, Durability::Sync)),
        ("write of nothing", db.write(WriteBatch::new(), Durability::Sync)),
        ("commit", db.commit(batch, Durability::None).wait()),
        ("sync", db.sync()),
        ("flush", db.flush()),
        ("flush of a keyspace", db.default_keyspace().flush()),
        ("compact_range", db.compact_range(..)),
        ("create_keyspace", db.create_keyspace("new", Options::default()).map(drop)),
        ("drop_keyspace", db.drop_keyspace("k")),
        ("set_options", db.default_keyspace().set_options(Options::default())),
    ];
    for (what, result) in refused {
        assert_eq!(kind(result), Some(ErrorKind::ReadOnly), "{what}");
    }
    assert_eq!(db.default_keyspace().options(), Options::default());
    check(&db, &[(b"a".to_vec(), b"1".to_vec())].into(), "read only");
    assert_eq!(db.keyspace("k").expect("opened").name(), "k");
    db.wait_idle().expect("nothing to wait for");
    assert!(db.verify().is_ok());
    db.close().expect("closed");
}
