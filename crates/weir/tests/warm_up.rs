//! What a merge replaces in the cache: hand-off (`WarmUp::HandOff`) by entries that were read, and
//! incremental warm-up (`WarmUp::Incremental`) by ranges that are cached.

mod tiny;

use std::collections::BTreeMap;

use weir::{Db, Options, WarmUp};

use tiny::tiny;

const KEYS: u32 = 20_000;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

fn value(i: u32, round: u32) -> Vec<u8> {
    format!("{round:04}{:092}", i).into_bytes()
}

fn options(warm_up: WarmUp) -> Options {
    Options::default().warm_up(warm_up).table_bytes(64 << 10)
}

/// A store with two runs over the same keys, whose first tenth is in the cache; returns it merged.
fn merged(path: &std::path::Path, warm_up: WarmUp, cache_bytes: u64) -> Db {
    let builder = Db::builder(path).memory_budget(64 << 20).block_cache_bytes(cache_bytes);
    let db = builder.default_options(options(warm_up)).open().expect("open");
    for round in 0..2 {
        (0..KEYS).for_each(|i| db.put(key(i), value(i, round)).expect("put"));
        db.flush().expect("flush");
    }
    for i in 0..KEYS / 10 {
        assert!(db.get(key(i)).expect("get").is_some());
    }
    db.compact_range(..).expect("compact_range");
    db
}

/// Misses of users while the keys from `from` to `to` are read, of the second round.
fn misses(db: &Db, from: u32, to: u32) -> u64 {
    misses_of_round(db, from..to, 1)
}

fn misses_of_round(db: &Db, keys: std::ops::Range<u32>, round: u32) -> u64 {
    let before = db.metrics().cache_foreground.misses;
    for i in keys {
        let found = db.get(key(i)).expect("get");
        assert_eq!(found.as_deref(), Some(&value(i, round)[..]), "key {i}");
    }
    db.metrics().cache_foreground.misses - before
}

/// Goal: after a merge, blocks of ranges that were cached hit; those of other ranges do not;
/// without the option none does. No block is read for it, and the cache stays within its capacity.
#[test]
fn hot_ranges_stay_in_the_cache() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let blocks_of_a_tenth = u64::from(KEYS / 10 * 100 / 4096);
    let cold = merged(&dir.path().join("cold"), WarmUp::None, 16 << 20);
    assert_eq!(cold.metrics().blocks_handed_over, 0);
    assert!(misses(&cold, 0, KEYS / 10) >= blocks_of_a_tenth);

    let warm = merged(&dir.path().join("warm"), WarmUp::Incremental, 16 << 20);
    let warmed = warm.metrics().blocks_handed_over;
    assert!((blocks_of_a_tenth..2 * blocks_of_a_tenth).contains(&warmed), "{warmed} warmed");
    assert!(misses(&warm, 0, KEYS / 10) <= 1, "the hot tenth must be cached");
    assert!(misses(&warm, KEYS / 5, KEYS) >= 4 * blocks_of_a_tenth, "the rest must not be");

    let small = merged(&dir.path().join("small"), WarmUp::Incremental, 64 << 10);
    let metrics = small.metrics();
    assert!(metrics.cache_bytes <= metrics.cache_capacity, "{metrics:?}");
    assert_eq!(metrics.cache_capacity, 64 << 10);
    misses(&small, 0, KEYS);
}

/// A store of two runs over the same keys, with hand-off; `read` is called after the first and
/// after the second.
fn handing_over(path: &std::path::Path, cache_bytes: u64, read: impl Fn(&Db, u32)) -> Db {
    let builder = Db::builder(path).memory_budget(64 << 20).block_cache_bytes(cache_bytes);
    let db = builder.default_options(options(WarmUp::HandOff)).open().expect("open");
    for round in 0..2 {
        (0..KEYS).for_each(|i| db.put(key(i), value(i, round)).expect("put"));
        db.flush().expect("flush");
        read(&db, round);
    }
    db
}

/// One key of every fourth block or so of the first half of the keys.
fn scattered() -> impl Iterator<Item = u32> {
    (0..KEYS / 2).step_by(160)
}

fn is_found(db: &Db, i: u32) {
    assert!(db.get(key(i)).expect("get").is_some(), "key {i}");
}

/// Goal: a merge hands over the blocks of the entries that were read and no others, although the
/// older run's blocks beside them were read too; what it hands over follows through the next merge;
/// none counts as unread that was read.
#[test]
fn read_entries_stay_in_the_cache() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = handing_over(dir.path(), 16 << 20, |db, round| {
        if round == 1 {
            scattered().for_each(|i| is_found(db, i));
        }
    });
    let count = scattered().count() as u64;
    for merges in 1..=2 {
        db.compact_range(..).expect("compact_range");
        let metrics = db.metrics();
        assert_eq!(metrics.blocks_handed_over, merges * count, "after merge {merges}");
        if merges == 1 {
            // A run on top, for the next merge.
            (0..KEYS).step_by(1000).for_each(|i| db.put(key(i), value(i, 1)).expect("put"));
            db.flush().expect("flush");
        }
    }
    // The first merge's blocks were replaced before anybody had read them, the second's were not.
    assert_eq!(db.metrics().blocks_handed_over_unread, count);
    assert_eq!(scattered().map(|i| misses(&db, i, i + 1)).sum::<u64>(), 0);
    assert!(misses(&db, KEYS / 2, KEYS) > 200, "nobody had read the other half");
    db.compact_range(key(0)..key(1)).expect("compact_range");
    assert_eq!(db.metrics().blocks_handed_over_unread, count);
}

/// Goal: an entry that overwrites one that was read takes its place in the cache, though nobody has
/// read it; a flush hands over what lies in a range that is read; a scan marks what it passes;
/// a deleted entry leaves nothing.
#[test]
fn successors_inherit() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("get");
    let builder = Db::builder(&path).memory_budget(64 << 20).block_cache_bytes(16 << 20);
    let db = builder.default_options(options(WarmUp::HandOff)).open().expect("open");
    (0..KEYS).for_each(|i| db.put(key(i), value(i, 0)).expect("put"));
    db.flush().expect("flush");
    scattered().for_each(|i| is_found(&db, i));
    // A flushed block covers many below, of which a quarter is cached: it is not handed over.
    (0..KEYS).step_by(40).for_each(|i| db.put(key(i), value(i, 1)).expect("put"));
    db.flush().expect("flush");
    assert_eq!(db.metrics().blocks_handed_over, 0);
    db.compact_range(..).expect("compact_range");
    assert_eq!(db.metrics().blocks_handed_over, scattered().count() as u64);
    assert_eq!(scattered().map(|i| misses(&db, i, i + 1)).sum::<u64>(), 0);

    let scan = |db: &Db, from: u32, rows: u32| {
        let mut rows_seen = 0;
        for row in db.range(key(from)..key(from + rows)) {
            row.expect("a row");
            rows_seen += 1;
        }
        assert_eq!(rows_seen, rows);
    };
    let db = handing_over(&dir.path().join("scan"), 16 << 20, |db, round| {
        if round == 0 {
            scan(db, 3000, 2000);
        }
    });
    for i in 4000..5000 {
        db.delete(key(i)).expect("delete");
    }
    // The flush has found the blocks below cached.
    let flushed = db.metrics().blocks_handed_over;
    assert!((2000 * 104 / 4096..2100 * 104 / 4096 + 3).contains(&flushed), "{flushed}");
    db.compact_range(..).expect("compact_range");
    let blocks = 1000 * 104 / 4096;
    let handed = db.metrics().blocks_handed_over - flushed;
    assert!((blocks..blocks + 10).contains(&handed), "{handed} of about {blocks}");
    assert_eq!(misses(&db, 3000, 4000), 0);
}

/// Goal: a merge hands over no more than it takes from the cache if that is full. Method: each
/// cached block of the upper run has entries of ten blocks below.
#[test]
fn the_cache_is_lent_not_given() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let cache_bytes = 320 << 10;
    let builder = Db::builder(dir.path()).memory_budget(64 << 20).block_cache_bytes(cache_bytes);
    let db = builder.default_options(options(WarmUp::HandOff)).open().expect("open");
    (0..KEYS).for_each(|i| db.put(key(i), value(i, 0)).expect("put"));
    db.flush().expect("flush");
    db.compact_range(..).expect("compact_range");
    (0..KEYS / 2).step_by(10).for_each(|i| db.put(key(i), value(i, 1)).expect("put"));
    db.flush().expect("flush");
    for _ in 0..4 {
        // The upper run's blocks, about 25, and beside them a part of the other half.
        (0..KEYS / 2).step_by(10).for_each(|i| is_found(&db, i));
        (KEYS / 2..KEYS / 2 + 1600).for_each(|i| is_found(&db, i));
    }
    let filled = db.metrics().cache_bytes;
    assert!(filled > cache_bytes * 9 / 10, "{filled} bytes cached");
    db.compact_range(..key(KEYS / 2 - 1)).expect("compact_range");
    let metrics = db.metrics();
    let handed = metrics.blocks_handed_over;
    let (taken, free) = (1000 * 104 / 4096 + 1, (metrics.cache_capacity - filled) / 4096);
    // What leaves for a block may have more memory than it (memory is used again): what is left
    // each time is free, too, and no other block leaves for it.
    let most = taken + free + taken / 2;
    assert!((taken..=most).contains(&handed), "{handed} for {taken}, {free} free");
    assert!(metrics.cache_bytes <= metrics.cache_capacity, "{metrics:?}");
    let other = misses_of_round(&db, KEYS / 2..KEYS / 2 + 1600, 0);
    assert!(other < 20, "{other} blocks beside were driven out");
}

/// Goal: no answer comes from a stale block, with either way of warming up. Method: random writes,
/// deletes and reads with flushes and merges all the time, and a cache that holds a part of the
/// blocks, against a sorted map.
#[test]
fn answers_agree_with_the_model() {
    agree_with_the_model(WarmUp::Incremental);
    agree_with_the_model(WarmUp::HandOff);
}

fn agree_with_the_model(warm_up: WarmUp) {
    let tiny = tiny().warm_up(warm_up);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let builder = Db::builder(dir.path().join("db")).memory_budget(8 << 20);
    let db = builder.block_cache_bytes(32 << 10).default_options(tiny).open().expect("open");
    let mut model: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut state = 5u64;
    for i in 0..60_000u32 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let (which, what) = ((state >> 33) as u32 % 1_000, (state >> 20) % 10);
        match what {
            0..3 => {
                db.put(key(which), i.to_le_bytes()).expect("put");
                model.insert(which, i.to_le_bytes().to_vec());
            }
            3 => {
                db.delete(key(which)).expect("delete");
                model.remove(&which);
            }
            _ => {
                let found = db.get(key(which)).expect("get");
                assert_eq!(found.as_deref(), model.get(&which).map(Vec::as_slice), "read {i}");
            }
        }
    }
    let metrics = db.metrics();
    assert!(metrics.compactions > 50 && metrics.blocks_handed_over > 1000, "{metrics:?}");
    assert!(metrics.cache_bytes <= metrics.cache_capacity, "{metrics:?}");
}

/// Goal: the blocks of a merge that fails do not stay in the cache. Method: the disk is full for
/// tables once a merge has begun to write; the cache then holds as much as before.
#[cfg(feature = "sim")]
#[test]
fn a_merge_that_fails_leaves_no_blocks() {
    leaves_no_blocks(WarmUp::Incremental);
    leaves_no_blocks(WarmUp::HandOff);
}

#[cfg(feature = "sim")]
fn leaves_no_blocks(warm_up: WarmUp) {
    use weir::sim::{Effect, ErrorCode, Fault, FaultyDir, FileClass, OpKind, Times};
    use weir::sim::{SimDisk, SimOptions};

    let faulty = FaultyDir::over_disk(&SimDisk::new(SimOptions::default()));
    let faults = faulty.faults();
    let builder = Db::builder("sim").device(std::sync::Arc::new(faulty)).seed(1);
    let builder = builder.memory_budget(64 << 20).block_cache_bytes(16 << 20);
    let db = builder.default_options(options(warm_up)).open().expect("open");
    for round in 0..2 {
        (0..KEYS).for_each(|i| db.put(key(i), value(i, round)).expect("put"));
        db.flush().expect("flush");
    }
    (0..KEYS).for_each(|i| assert!(db.get(key(i)).expect("get").is_some()));
    let before = db.metrics().cache_bytes;
    faults.arm(Fault {
        op: Some(OpKind::Create),
        class: Some(FileClass::Table),
        after: 5,
        times: Times::Forever,
        effect: Effect::Fail(ErrorCode::Enospc),
    });
    db.compact_range(..).expect_err("no space for the sixth table");
    assert_eq!(db.metrics().cache_bytes, before, "blocks of tables that were given up");
    misses(&db, 0, KEYS);
}

/// Goal: merges that hand blocks over are kept small beside the cache, by the size of tables;
/// others are not, and neither is a cache of nothing. Method: the largest table of what is left of
/// 12 MB.
#[test]
fn merges_are_small_beside_a_cache_that_survives_them() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let largest_mib = |name: &str, warm_up, cache_bytes: u64| {
        let builder = Db::builder(dir.path().join(name)).memory_budget(64 << 20);
        let options = Options::default().warm_up(warm_up);
        let db =
            builder.block_cache_bytes(cache_bytes).default_options(options).open().expect("open");
        for i in 0..12_000_u32 {
            db.put(key(i.wrapping_mul(7919) % 12_000), [i as u8; 1000]).expect("put");
        }
        db.compact_range(..).expect("compact_range");
        let levels = db.describe().keyspaces.remove(0).levels;
        let tables = levels.iter().flat_map(|level| &level.runs).flat_map(|run| &run.tables);
        tables.map(|table| table.bytes).max().expect("tables") >> 20
    };
    assert!(largest_mib("hand-off", WarmUp::HandOff, 16 << 20) < 3);
    assert!(largest_mib("none", WarmUp::None, 16 << 20) > 8);
    assert!(largest_mib("no cache", WarmUp::HandOff, 0) > 8);
}

/// Goal: as in `the_cache_is_lent_not_given`, with four shards, each of which has a little room
/// left, so that the cache as a whole has always room for a block.
#[test]
fn no_shard_gives_what_another_has() {
    const ROWS: u32 = 40_000;
    let wide = |i: u32, round: u8| [vec![round; 996], i.to_be_bytes().to_vec()].concat();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let builder = Db::builder(dir.path()).memory_budget(256 << 20).block_cache_bytes(16 << 20);
    let db = builder.default_options(options(WarmUp::HandOff)).open().expect("open");
    (0..ROWS).for_each(|i| db.put(key(i), wide(i, 0)).expect("put"));
    db.compact_range(..).expect("compact_range");
    // About 500 blocks, whose entries lie in 2,000 blocks below.
    let upper = || (0..ROWS / 2).step_by(10);
    upper().for_each(|i| db.put(key(i), wide(i, 1)).expect("put"));
    db.flush().expect("flush");
    for _ in 0..3 {
        upper().for_each(|i| is_found(&db, i));
        (ROWS / 2..ROWS).for_each(|i| is_found(&db, i));
    }
    upper().for_each(|i| is_found(&db, i));
    let before = db.metrics();
    let free = (before.cache_capacity - before.cache_bytes) / 4096;
    db.compact_range(..key(ROWS / 2 - 1)).expect("compact_range");
    let handed = db.metrics().blocks_handed_over - before.blocks_handed_over;
    let most = 520 + free + 520 / 4;
    assert!((400..most).contains(&handed), "{handed} blocks, {free} free");
}

/// Goal: a backward scan marks all that it passes, the first entry of each block too. Method:
/// blocks of one entry each.
#[test]
fn backward_scans_mark_first_entries() {
    const ROWS: u32 = 200;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let builder = Db::builder(dir.path()).memory_budget(64 << 20).block_cache_bytes(16 << 20);
    let db = builder.default_options(options(WarmUp::HandOff)).open().expect("open");
    (0..ROWS).for_each(|i| db.put(key(i), [7; 6000]).expect("put"));
    db.compact_range(..).expect("compact_range");
    assert_eq!(db.range(..).rev().count(), ROWS as usize);
    // A run on top, for the merge.
    (0..ROWS).step_by(ROWS as usize - 1).for_each(|i| db.put(key(i), [8; 9]).expect("put"));
    db.flush().expect("flush");
    let flushed = db.metrics().blocks_handed_over;
    db.compact_range(..).expect("compact_range");
    let handed = db.metrics().blocks_handed_over - flushed;
    assert!((190..=u64::from(ROWS)).contains(&handed), "{handed} of {ROWS}");
}

/// Goal: blocks of a dropped keyspace leave the cache at once, though a cursor holds its tables.
#[test]
fn dropped_keyspaces_leave_the_cache() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let builder = Db::builder(dir.path()).memory_budget(64 << 20).block_cache_bytes(16 << 20);
    let db = builder.open().expect("open");
    let dropped = db.create_keyspace("dropped", Options::default()).expect("create_keyspace");
    (0..KEYS).for_each(|i| dropped.put(key(i), value(i, 0)).expect("put"));
    dropped.flush().expect("flush");
    (0..KEYS).for_each(|i| assert!(dropped.get(key(i)).expect("get").is_some()));
    let cursor = dropped.range(..);
    assert!(db.metrics().cache_bytes > u64::from(KEYS) * 100);
    db.drop_keyspace("dropped").expect("drop_keyspace");
    assert_eq!(db.metrics().cache_bytes, 0);
    drop(cursor);
}
