//! What the hooks of gets, scans and writes count, in real stores whose trees were given heat.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::db::Db;
use crate::heat::RangeHeat;
use crate::heat::buckets::TableSpan;
use crate::heat::shape::{BucketHeat, HeatShape};
use crate::options::sentinels::BucketRanges;
use crate::{
    CompactionBuffer, CompactionPolicy, Durability, LeveledOptions, Options, PartsOptions, WarmUp,
    WriteBatch,
};

const KEYS: u64 = 1000;

fn key(n: u64) -> Vec<u8> {
    format!("{n:04}").into_bytes()
}

/// A store with three runs in level 0: of all keys, of every third and of the first half.
fn store(dir: &tempfile::TempDir) -> Db {
    let options = Options::default().compaction(LeveledOptions::default().l0_trigger(100));
    let db = Db::builder(dir.path()).default_options(options).open().unwrap();
    for (step, end) in [(1, KEYS), (3, KEYS), (1, KEYS / 2)] {
        let mut batch = WriteBatch::new();
        for n in (0..end).step_by(step) {
            batch.put(db.default_keyspace(), key(n), [7; 10]);
        }
        db.write(&mut batch, Durability::Buffered).unwrap();
        db.flush().unwrap();
    }
    db
}

/// Counts from now on, in 10 buckets of 100 keys.
fn heat_of(db: &Db) -> Arc<RangeHeat> {
    let (smallest, largest) = (key(0), key(KEYS));
    let table = TableSpan { smallest: &smallest, largest: &largest, entries: KEYS };
    let window = Duration::from_secs(1_000_000);
    let heat = Arc::new(RangeHeat::new(BucketRanges::Equal(10), &[table], window, (None, 0)));
    let tree = &db.default_keyspace().tree;
    tree.update(|current| current.clone().with_heat(Some(Arc::clone(&heat))));
    heat
}

/// That `counted` is `expected` but for what samples deviate.
fn assert_about(what: &str, counted: u64, expected: u64) {
    let (low, high) = (expected - expected / 4, expected + expected / 4);
    assert!((low..=high).contains(&counted), "{what}: {counted}, not about {expected}");
}

fn buckets(heat: &RangeHeat) -> Vec<BucketHeat> {
    let HeatShape { buckets, .. } = heat.shape(0);
    buckets
}

/// Goal: a get counts the tables that filters let it through to: one, also where it lies in the
/// oldest of three runs, and none where a memtable answers.
#[test]
fn gets_count_what_they_look_into() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    let heat = heat_of(&db);
    for round in 0..10_000 {
        // Of the newest run, and of the oldest alone: filters let about none through above.
        db.get(key(250)).unwrap();
        db.contains_key(key(550 + round % 2)).unwrap();
    }
    // Keys that the newest memtable has open nothing.
    db.put(key(750), [8; 10]).unwrap();
    (0..10_000).for_each(|_| drop(db.get(key(750)).unwrap()));
    let counted = buckets(&heat);
    assert_about("gets", counted[2].gets, 10_000);
    assert_about("gets", counted[5].gets, 10_000);
    assert_about("gets", counted[7].gets, 10_000);
    let beyond: Vec<u64> = counted.iter().map(|bucket| bucket.opened_beyond).collect();
    assert!(beyond.iter().all(|&n| n < 500), "{beyond:?}");
    let keys: Vec<_> = (0..100).map(|n| key(300 + n)).collect();
    (0..100).for_each(|_| drop(db.multi_get(&keys).unwrap()));
    assert_about("gets of batches", buckets(&heat)[3].gets, 10_000);
    assert_eq!(buckets(&heat)[4].gets + buckets(&heat)[9].gets, 0);
}

/// Goal: a scan counts in the buckets between its ends, in both directions, with its entries and
/// the runs that it opened; also one that is dropped, that ends at a bound, or that finds nothing.
#[test]
fn scans_count_where_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    let heat = heat_of(&db);
    for _ in 0..3000 {
        // Twenty entries around the border of two buckets, which lie in three runs.
        let mut cursor = db.cursor();
        cursor.seek(key(190));
        (0..20).for_each(|_| cursor.next());
        // Backwards in the upper half, which lies in two.
        cursor.seek_for_prev(key(809));
        (0..10).for_each(|_| cursor.prev());
        // To the end of a bound.
        assert_eq!(db.range(key(600)..key(610)).count(), 10);
    }
    let counted = buckets(&heat);
    let scans: Vec<u64> = counted.iter().map(|bucket| bucket.scans).collect();
    for bucket in [1, 2, 6] {
        assert_about("scans", scans[bucket], 3000);
    }
    assert_about("scans backwards", scans[7] + scans[8], 2 * 3000);
    assert_eq!(scans[0] + scans[3] + scans[4] + scans[5] + scans[9], 0, "{scans:?}");
    assert_about("entries", counted[1].scanned + counted[2].scanned, 20 * 3000);
    assert_about("entries", counted[6].scanned, 10 * 3000);
    assert_about("runs", counted[1].opened_beyond + counted[2].opened_beyond, 2 * 3000);
    assert_about("runs", counted[6].opened_beyond, 3000);
    let heat = heat_of(&db);
    let empty = (Bound::Included(key(KEYS + 1)), Bound::Unbounded::<Vec<u8>>);
    (0..3000).for_each(|_| assert_eq!(db.range(empty.clone()).count(), 0));
    let counted = buckets(&heat);
    assert_about("scans of nothing", counted[9].scans, 3000);
    assert_eq!((counted[9].scanned, counted[9].opened_beyond), (0, 0));
    let heat = heat_of(&db);
    let mut cursor = db.cursor();
    // Before the first key nothing is opened.
    (0..3000).for_each(|_| cursor.seek_for_prev(b""));
    drop(cursor);
    let counted = buckets(&heat);
    assert_about("scans of nothing", counted[0].scans, 3000);
    assert_eq!((counted[0].opened_beyond, counted[1].scans), (0, 0));
    // Backwards to the first key.
    for _ in 0..3000 {
        let mut cursor = db.cursor();
        cursor.seek_for_prev(key(5));
        (0..6).for_each(|_| cursor.prev());
        assert!(!cursor.valid());
    }
    let counted = buckets(&heat);
    assert_about("scans to the first key", counted[0].scans, 6000);
    assert_eq!(counted[1].scans, 0);
}

/// Goal: where nothing is handed over to what is built, a scan does not count the runs that their
/// buffer lists serve: their blocks are cached there, and those of a sentinel would not be. Method:
/// the same store with lists, with hand-off and without.
#[test]
fn what_lists_serve_is_no_gain_without_hand_off() {
    let opened_beyond = |warm_up: WarmUp| {
        let dir = tempfile::tempdir().unwrap();
        let levels = PartsOptions::default().base_level_bytes(64 << 10).l0_trigger(1);
        let options = Options::default()
            .write_buffer_bytes(32 << 10)
            .table_bytes(16 << 10)
            .compaction(CompactionPolicy::Gear(levels.expected_bytes(8 << 20)))
            .warm_up(warm_up)
            .compaction_buffer(CompactionBuffer::Cascade);
        let builder = Db::builder(dir.path()).default_options(options);
        let db = builder.background_threads(1).open().unwrap();
        for n in 0..6000 {
            db.put(key(n * 7919 % KEYS), [7; 100]).unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let version = Arc::clone(&db.default_keyspace().tree.pin().version);
        let runs = version.runs_newest_first();
        let bare = runs.filter(|run| run.list.as_ref().is_none_or(|list| list.runs().is_empty()));
        assert!(bare.count() < 2 && version.runs_newest_first().len() > 2);
        let heat = heat_of(&db);
        for _ in 0..3000 {
            assert_eq!(db.range(key(600)..key(610)).count(), 10);
        }
        assert_about("scans", buckets(&heat)[6].scans, 3000);
        buckets(&heat)[6].opened_beyond
    };
    let (counted, without) = (opened_beyond(WarmUp::HandOff), opened_beyond(WarmUp::None));
    assert!(counted > 3000 && without == 0, "{counted} with hand-off, {without} without");
}

/// Goal: puts and deletes count with their bytes, one by one and in batches of several keyspaces.
#[test]
fn writes_count_with_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let db = store(&dir);
    let other = db.keyspace("other").unwrap();
    let heat = heat_of(&db);
    for n in 0..4000 {
        db.put(key(100 + n % 100), [1; 46]).unwrap();
        let mut batch = WriteBatch::new();
        batch.delete(db.default_keyspace(), key(500 + n % 100));
        batch.put(&other, key(900), b"");
        db.write(&mut batch, Durability::Buffered).unwrap();
    }
    let counted = buckets(&heat);
    assert_about("puts", counted[1].writes, 4000);
    assert_eq!(counted[1].written_bytes, counted[1].writes * 50);
    assert_about("deletes", counted[5].writes, 4000);
    assert_eq!(counted[5].written_bytes, counted[5].writes * 4);
    assert_eq!(counted[9], BucketHeat { from: key(900), ..BucketHeat::default() });
}
