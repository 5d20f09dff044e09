//! Batches of lookups: the same answers as single ones, for fewer looks into the cache.

use weir::{Db, Options};

const KEYS: u32 = 10_000;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

fn store(path: &std::path::Path) -> Db {
    let db = Db::builder(path).memory_budget(64 << 20).open().expect("open");
    (0..KEYS).for_each(|i| db.put(key(i), format!("first {i:050}")).expect("put"));
    db.compact_range(..).expect("compact_range");
    (0..KEYS).step_by(3).for_each(|i| db.put(key(i), format!("second {i}")).expect("put"));
    (0..KEYS).step_by(7).for_each(|i| db.delete(key(i)).expect("delete"));
    db.flush().expect("flush");
    (0..KEYS).step_by(11).for_each(|i| db.put(key(i), format!("third {i}")).expect("put"));
    db
}

fn expected(i: u32) -> Option<String> {
    match i {
        _ if i >= KEYS => None,
        _ if i.is_multiple_of(11) => Some(format!("third {i}")),
        _ if i.is_multiple_of(7) => None,
        _ if i.is_multiple_of(3) => Some(format!("second {i}")),
        _ => Some(format!("first {i:050}")),
    }
}

/// Goal: a batch in any order, with keys twice and keys that are not there, gives what single
/// lookups give, in the order asked; at a snapshot too.
#[test]
fn a_batch_answers_as_single_lookups_do() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = store(&dir.path().join("db"));
    let keyspace = db.default_keyspace();
    for step in [1u32, 7, 4_001, 9_973] {
        let asked: Vec<u32> = (0..3_000).map(|i| i * step % (KEYS + 500)).collect();
        let keys: Vec<[u8; 4]> = asked.iter().map(|&i| key(i)).collect();
        let answers = db.multi_get(&keys).expect("multi_get");
        assert_eq!(answers.len(), keys.len());
        for (&i, answer) in asked.iter().zip(&answers) {
            assert_eq!(answer.as_deref(), expected(i).as_deref().map(str::as_bytes), "{i}");
            assert_eq!(answer.as_deref(), db.get(key(i)).expect("get").as_deref());
        }
    }
    let snapshot = db.snapshot();
    (0..KEYS).for_each(|i| db.put(key(i), b"later").expect("put"));
    db.flush().expect("flush");
    let keys: Vec<[u8; 4]> = (0..KEYS).rev().map(key).collect();
    let answers = snapshot.multi_get(keyspace, &keys).expect("multi_get");
    for (i, answer) in (0..KEYS).rev().zip(&answers) {
        assert_eq!(answer.as_deref(), expected(i).as_deref().map(str::as_bytes), "{i}");
    }
    assert!(db.multi_get::<&[u8]>(&[]).expect("multi_get").is_empty());
}

/// Goal: all versions of a key are searched, also those in the next blocks. Method: a key with so
/// many versions, kept alive by snapshots, that they fill several blocks; each is read in a batch.
#[test]
fn versions_that_go_on_in_the_next_block_are_found() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options::default().block_bytes(512);
    let builder = Db::builder(dir.path().join("db")).default_options(options);
    let db = builder.open().expect("open");
    let snapshots: Vec<_> = (0..200)
        .map(|i| {
            for key in [b"a", b"b", b"c"] {
                db.put(key, format!("{i:020}")).expect("put");
            }
            db.snapshot()
        })
        .collect();
    db.flush().expect("flush");
    for (i, snapshot) in snapshots.iter().enumerate() {
        let answers = snapshot.multi_get(db.default_keyspace(), &["c", "a", "b", "bb"]);
        let answers = answers.expect("multi_get");
        let right = format!("{i:020}");
        assert!(answers[..3].iter().all(|a| a.as_deref() == Some(right.as_bytes())), "{i}");
        assert_eq!(answers[3], None);
    }
}

/// Goal: keys in one block cost one look into the cache for each run. Method: the cache's counters.
#[test]
fn neighbours_share_their_block() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    drop(store(&path));
    let db = Db::open(&path).expect("open");
    db.compact_range(..).expect("compact_range");
    let keys: Vec<[u8; 4]> = (0..KEYS).map(|i| key(i * 4_001 % KEYS)).collect();
    let lookups = |db: &Db| {
        let cache = db.metrics().cache_foreground;
        (cache.hits + cache.misses, cache.misses)
    };
    let before = lookups(&db);
    db.multi_get(&keys).expect("multi_get");
    let after = lookups(&db);
    let levels = &db.metrics().keyspaces[0].levels;
    assert_eq!(levels.iter().map(|level| level.runs).sum::<u64>(), 1, "one run");
    let (looks, misses) = (after.0 - before.0, after.1 - before.1);
    assert!(looks * 10 < u64::from(KEYS) && misses <= looks, "{looks} looks, {misses} misses");
    let before = lookups(&db);
    keys.iter().for_each(|key| drop(db.get(key).expect("get")));
    assert_eq!(lookups(&db).1, before.1, "the batch has filled the cache");
    assert!(lookups(&db).0 - before.0 > looks * 10);
}
