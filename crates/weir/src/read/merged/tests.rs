//! Merges that wait for the next cursor: what they hold, when they are of use, and that nothing old
//! waits.

use std::sync::Weak;

use super::*;
use crate::db::Db;
use crate::table::Gates;
use crate::{LeveledOptions, Options};

fn key(n: u64) -> Vec<u8> {
    format!("{n:04}").into_bytes()
}

/// A store whose level 0 keeps its runs.
fn store(dir: &tempfile::TempDir) -> Db {
    let options = Options::default().compaction(LeveledOptions::default().l0_trigger(100));
    Db::builder(dir.path().join("db")).default_options(options).open().unwrap()
}

fn put_and_flush(db: &Db, keys: impl Iterator<Item = u64>) {
    keys.for_each(|n| db.put(key(n), b"v").unwrap());
    db.flush().unwrap();
}

/// Whether a merge waits for this thread.
fn waits(db: &Db) -> bool {
    let idle = &db.default_keyspace().tree.idle;
    idle.take().map(|waiting| idle.leave(waiting)).is_some()
}

fn keys_of(db: &Db, range: impl crate::KeyRange) -> Vec<Vec<u8>> {
    let mut cursor = db.default_keyspace().cursor_range(range);
    cursor.seek_to_first();
    let mut keys = Vec::new();
    while cursor.valid() {
        keys.push(cursor.key().to_vec());
        cursor.next();
    }
    cursor.status().unwrap();
    keys
}

fn keys(from: u64, to: u64) -> Vec<Vec<u8>> {
    (from..to).map(key).collect()
}

/// Goal: the next cursor goes on with the merge of the last one, and sees what was written
/// meanwhile: into a memtable that has a source, and into one that was empty and has none.
#[test]
fn the_next_cursor_sees_what_was_written_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    put_and_flush(&db, 0..4);
    assert!(!waits(&db));
    assert_eq!(keys_of(&db, ..), keys(0, 4));
    assert!(waits(&db));
    for n in 4..8 {
        db.put(key(n), b"v").unwrap();
        assert_eq!(keys_of(&db, ..), keys(0, n + 1), "the first finds the memtable empty");
        assert!(waits(&db));
    }
}

/// Goal: the next cursor has its own bounds and snapshot, not those of the last one.
#[test]
fn the_next_cursor_has_its_own_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    put_and_flush(&db, 0..50);
    put_and_flush(&db, 50..100);
    assert_eq!(keys_of(&db, ..), keys(0, 100));
    assert_eq!(keys_of(&db, key(40)..key(60)), keys(40, 60));
    assert!(waits(&db), "both runs have keys there");
    let snapshot = db.snapshot();
    db.put(key(55), b"w").unwrap();
    db.delete(key(56)).unwrap();
    assert_eq!(keys_of(&db, key(55)..key(58)), [key(55), key(57)]);
    let mut before = snapshot.cursor(db.default_keyspace());
    before.seek(key(56));
    assert_eq!(before.entry(), Some((&key(56)[..], &b"v"[..])));
    assert_eq!(keys_of(&db, ..).len(), 99);
}

/// Goal: a reader of few runs and one of all take turns with one merge: what lies outside of the
/// one's bounds rests, and is there for the other, in both directions.
#[test]
fn a_merge_that_waits_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    put_and_flush(&db, 0..50);
    put_and_flush(&db, 50..100);
    let merge = |db: &Db| {
        let idle = &db.default_keyspace().tree.idle;
        let waiting = idle.take().unwrap().downcast::<Merged>().unwrap();
        let at: *const Merged = &*waiting;
        drop(idle.leave(waiting));
        at
    };
    assert_eq!(keys_of(&db, key(60)..key(62)), keys(60, 62));
    let first = merge(&db);
    assert_eq!(keys_of(&db, ..), keys(0, 100));
    assert_eq!(keys_of(&db, key(10)..key(12)), keys(10, 12));
    let mut cursor = db.default_keyspace().cursor_range(key(48)..key(50));
    cursor.seek_to_last();
    assert_eq!(cursor.key(), key(49));
    drop(cursor);
    let mut cursor = db.default_keyspace().cursor_range(..key(70));
    cursor.seek_to_last();
    assert_eq!(cursor.key(), key(69));
    cursor.seek(key(49));
    cursor.next();
    assert_eq!(cursor.key(), key(50));
    drop(cursor);
    assert_eq!(merge(&db), first, "the same merge served all of them");
}

/// Goal: with more runs than a merge that waits may have, those that a reader does not need are
/// left out, and the merge is not left for another.
#[test]
fn a_merge_of_many_runs_does_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    for n in 0..=WAITING_SOURCES_MAX as u64 {
        put_and_flush(&db, n..n + 1);
    }
    let all = WAITING_SOURCES_MAX as u64 + 1;
    assert_eq!(keys_of(&db, key(20)..key(22)), keys(20, 22));
    assert!(!waits(&db));
    assert_eq!(keys_of(&db, ..), keys(0, all));
    assert!(!waits(&db));
    let bounds = (Bound::Included(key(20)), Bound::Excluded(key(22)));
    let over = Over::of(&db.default_keyspace().tree.pin(), (&bounds.0, &bounds.1), true);
    assert_eq!((over.sources.len(), over.is_whole), (2, false));
}

/// Goal: what waits holds no index of a table that was closed, whether it waited then or not.
#[test]
fn nothing_closed_waits() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    put_and_flush(&db, 0..4);
    let tree = Arc::clone(&db.default_keyspace().tree);
    assert_eq!(keys_of(&db, ..), keys(0, 4));
    assert!(waits(&db));
    tree.keep(Vec::new());
    assert!(!waits(&db));
    let mut cursor = db.default_keyspace().cursor();
    cursor.seek(key(1));
    tree.keep(Vec::new());
    drop(cursor);
    assert!(!waits(&db), "its index may be a closed table's");
    assert_eq!(keys_of(&db, ..), keys(0, 4));
    assert!(waits(&db));
}

/// Goal: who finds that what waited is of no use asks for what it held to be freed; a merge keeps
/// no long bound of its last reader.
#[test]
fn what_waits_is_small() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    put_and_flush(&db, 0..4);
    let upper = vec![b'z'; 60_000];
    assert_eq!(keys_of(&db, key(1)..upper), keys(1, 4));
    let idle = db.default_keyspace().tree.idle.take().unwrap();
    let merged = idle.downcast::<Merged>().unwrap();
    assert_eq!(merged.view.bounds(), (&Bound::Unbounded, &Bound::Unbounded));
}

/// Goal: nobody who does not read keeps an old state: not by what waited when a newer one was
/// published, nor by a cursor that ends afterwards.
#[test]
fn nothing_old_waits() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    let newest = || -> Weak<SuperVersion> { Arc::downgrade(&db.default_keyspace().tree.pin()) };
    put_and_flush(&db, 0..4);
    let first = newest();
    assert_eq!(keys_of(&db, ..), keys(0, 4));
    assert!(waits(&db) && first.upgrade().is_some());
    put_and_flush(&db, 4..6);
    assert!(!waits(&db) && first.upgrade().is_none(), "a flush releases it");
    let second = newest();
    let mut cursor = db.default_keyspace().cursor();
    cursor.seek(key(1));
    put_and_flush(&db, 6..8);
    assert_eq!(cursor.key(), key(1));
    drop(cursor);
    assert!(!waits(&db) && second.upgrade().is_none(), "it is not left behind");
    assert_eq!(keys_of(&db, ..), keys(0, 8));
    assert!(waits(&db));
    let mut cursor = db.default_keyspace().cursor();
    cursor.seek(key(1));
    let tree = Arc::clone(&db.default_keyspace().tree);
    db.close().unwrap();
    assert!(tree.idle.take().is_none());
    drop(cursor);
    assert!(tree.idle.take().is_none(), "nobody reads a store that is closed");
}

/// Goal: a super-version that is gone is never taken for the newest one, whichever came to lie
/// where it lay: two runs of a simulation would differ by what the allocator does.
#[test]
fn what_is_gone_is_not_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    let tree = &db.default_keyspace().tree;
    let mut gone = Vec::new();
    for _ in 0..100 {
        let newest = tree.pin().number();
        assert!(tree.is_newest(newest));
        assert!(!gone.iter().any(|&number| tree.is_newest(number)));
        gone.push(newest);
        tree.update(Clone::clone);
        assert!(!tree.is_newest(newest));
    }
}

/// Goal: what waits holds no block: they can leave the cache.
#[test]
fn what_waits_holds_no_block() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    put_and_flush(&db, 0..100);
    assert_eq!(keys_of(&db, ..), keys(0, 100));
    let idle = db.default_keyspace().tree.idle.take().unwrap();
    let merged = idle.downcast::<Merged>().unwrap();
    for source in merged.view.inner().sources() {
        assert!(!source.valid());
        if let Source::Table(cursor) = source {
            assert!(cursor.cursor.holds_no_block());
        }
    }
}
