//! Incremental warm-up (`WarmUp::Incremental`): what a merge replaces in the cache.

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

/// Misses of users while the keys from `from` to `to` are read.
fn misses(db: &Db, from: u32, to: u32) -> u64 {
    let before = db.metrics().cache_foreground.misses;
    for i in from..to {
        let found = db.get(key(i)).expect("get");
        assert_eq!(found.as_deref(), Some(&value(i, 1)[..]), "key {i}");
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
    assert_eq!(cold.metrics().blocks_warmed, 0);
    assert!(misses(&cold, 0, KEYS / 10) >= blocks_of_a_tenth);

    let warm = merged(&dir.path().join("warm"), WarmUp::Incremental, 16 << 20);
    let warmed = warm.metrics().blocks_warmed;
    assert!((blocks_of_a_tenth..2 * blocks_of_a_tenth).contains(&warmed), "{warmed} warmed");
    assert!(misses(&warm, 0, KEYS / 10) <= 1, "the hot tenth must be cached");
    assert!(misses(&warm, KEYS / 5, KEYS) >= 4 * blocks_of_a_tenth, "the rest must not be");

    let small = merged(&dir.path().join("small"), WarmUp::Incremental, 64 << 10);
    let metrics = small.metrics();
    assert!(metrics.cache_bytes <= metrics.cache_capacity, "{metrics:?}");
    assert_eq!(metrics.cache_capacity, 64 << 10);
    misses(&small, 0, KEYS);
}

/// Goal: no answer comes from a stale block. Method: random writes, deletes and reads with flushes
/// and merges all the time, and a cache that holds a part of the blocks, against a sorted map.
#[test]
fn answers_agree_with_the_model() {
    let tiny = tiny().warm_up(WarmUp::Incremental);
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
    assert!(metrics.compactions > 50 && metrics.blocks_warmed > 1000, "{metrics:?}");
    assert!(metrics.cache_bytes <= metrics.cache_capacity, "{metrics:?}");
}

/// Goal: the blocks of a merge that fails do not stay in the cache. Method: the disk is full for
/// tables once a merge has begun to write; the cache then holds as much as before.
#[cfg(feature = "sim")]
#[test]
fn a_merge_that_fails_leaves_no_blocks() {
    use weir::sim::{Effect, ErrorCode, Fault, FaultyDir, FileClass, OpKind, Times};
    use weir::sim::{SimDisk, SimOptions};

    let faulty = FaultyDir::over_disk(&SimDisk::new(SimOptions::default()));
    let faults = faulty.faults();
    let builder = Db::builder("sim").device(std::sync::Arc::new(faulty)).seed(1);
    let builder = builder.memory_budget(64 << 20).block_cache_bytes(16 << 20);
    let db = builder.default_options(options(WarmUp::Incremental)).open().expect("open");
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
