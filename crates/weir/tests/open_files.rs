//! Few descriptors: a store of many tables or keyspaces works where the process may have 64 files
//! open.
//!
//! Method: the limit is a process's, so that each test runs again as a process of its own with a
//! lower limit. `WEIR_TABLES` is the number of tables and `WEIR_KEYSPACES` that of keyspaces;
//! 10,000 and 4,095 are the long form.
#![expect(clippy::disallowed_methods, reason = "it starts a process with a limit of its own")]

use std::process::Command;

use weir::{Db, Keyspace, LeveledOptions, Options};

/// Set in the process that has the low limit.
const CHILD: &str = "WEIR_OPEN_FILES_CHILD";

/// The number that an environment variable gives.
fn wanted(name: &str, otherwise: u32) -> u32 {
    std::env::var(name).map_or(otherwise, |n| n.parse().expect("a number"))
}

/// Runs the test of this name again under `ulimit -n 64`; true in that process.
fn limited(test: &str) -> bool {
    // The hard limit too: the engine raises the soft one where it may.
    under("ulimit -n 64", test)
}

/// Runs the test of this name again under what `limit` sets; true in that process.
fn under(limit: &str, test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let script = format!("{limit} && exec '{}' --exact {test} --nocapture", program.display());
    let status = Command::new("sh").arg("-c").arg(script).env(CHILD, "1").status().unwrap();
    assert!(status.success(), "{test} under {limit}: {status}");
    false
}

fn options() -> Options {
    Options::default()
        .write_buffer_bytes(64 << 10)
        .table_bytes(1 << 10)
        .block_bytes(512)
        .compaction(LeveledOptions::default().base_level_bytes(64 << 10))
}

fn open(path: &std::path::Path) -> Db {
    let builder = Db::builder(path).memory_budget(16 << 20).block_cache_bytes(64 << 10);
    builder
        .log_segment_bytes(1 << 20)
        .log_area_bytes(8 << 20)
        .default_options(options())
        .open()
        .unwrap()
}

fn value(n: u32, round: u32) -> Vec<u8> {
    let mut value = n.wrapping_mul(0x9e37_79b9).to_be_bytes().repeat(50);
    value.push(round as u8);
    value
}

/// Reads everything in three ways and compares it with what was written: `round` of each number.
fn check(space: &Keyspace, count: u32, step: usize, round: &dyn Fn(u32) -> u32) {
    // A step that visits all numbers out of order.
    let order = (0..count).map(|n| (u64::from(n) * 7919 % u64::from(count)) as u32);
    for n in order.step_by(step) {
        let found = space.get(n.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&value(n, round(n))[..]), "get of {n}");
    }
    let mut next = 0_u32;
    for pair in space.iter() {
        let (key, found) = pair.unwrap();
        assert_eq!(*key, next.to_be_bytes(), "the key after {next} others");
        assert_eq!(*found, value(next, round(next))[..], "scan at {next}");
        next += 1;
    }
    assert_eq!(next, count, "entries in a scan");
    let keys: Vec<[u8; 4]> = (0..count).step_by(3 * step).map(u32::to_be_bytes).collect();
    for (key, found) in keys.iter().zip(space.multi_get(&keys).unwrap()) {
        let n = u32::from_be_bytes(*key);
        assert_eq!(found.as_deref(), Some(&value(n, round(n))[..]), "multi_get of {n}");
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Goal: a store of many more tables than descriptors is filled, overwritten, compacted, reopened
/// and read, by several threads at once, without an error or a wrong byte.
#[test]
fn more_tables_than_descriptors() {
    if !limited("more_tables_than_descriptors") {
        return;
    }
    // Five entries fill a table.
    let (tables, dir) = (wanted("WEIR_TABLES", 300), tempfile::tempdir().unwrap());
    let (count, step) = (tables * 6, 1 + tables as usize / 1000);
    let db = open(dir.path());
    (0..count).for_each(|n| db.put(n.to_be_bytes(), value(n, 0)).unwrap());
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    let made: u32 = db.property("weir.num-tables").unwrap().parse().unwrap();
    assert!(made >= tables, "{made} tables");
    check(db.default_keyspace(), count, step, &|_| 0);
    assert!(db.metrics().tables_open <= 64, "{} tables are open", db.metrics().tables_open);
    assert!(descriptors() < 60, "{} descriptors", descriptors());
    let held = db.metrics().memory.table_metadata;
    assert!(held < 40 * 4096, "{held} bytes of indexes and filters");

    (0..count).step_by(2).for_each(|n| db.put(n.to_be_bytes(), value(n, 1)).unwrap());
    let beside = db.create_keyspace("beside", options()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| check(db.default_keyspace(), count, 2 * step, &|n| 1 - n % 2));
        }
        for first in 0..2 {
            let (beside, mine) = (&beside, (first..count / 4).step_by(2));
            scope.spawn(|| mine.for_each(|n| beside.put(n.to_be_bytes(), value(n, 2)).unwrap()));
        }
        db.compact_range(..).unwrap();
    });
    check(&beside, count / 4, step, &|_| 2);
    db.close().unwrap();
    let db = open(dir.path());
    check(db.default_keyspace(), count, step, &|n| 1 - n % 2);
    check(&db.keyspace_with("beside", options()).unwrap(), count / 4, step, &|_| 2);
    assert_eq!(db.property("weir.background-error").unwrap(), "");
    db.close().unwrap();
}

/// Goal: many more iterators than descriptors go through as many tables, side by side.
#[test]
fn more_iterators_than_descriptors() {
    if !limited("more_iterators_than_descriptors") {
        return;
    }
    let (count, iterators, dir) = (1500_u32, 150, tempfile::tempdir().unwrap());
    let db = open(dir.path());
    (0..count).for_each(|n| db.put(n.to_be_bytes(), value(n, 0)).unwrap());
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    let made: u32 = db.property("weir.num-tables").unwrap().parse().unwrap();
    assert!(made >= iterators, "{made} tables");
    let starts = (0..iterators).map(|i| i * (count / iterators));
    let mut standing: Vec<_> = starts.map(|n| (n, db.range(n.to_be_bytes()..))).collect();
    for _ in 0..count / iterators {
        for (n, entries) in &mut standing {
            let (key, found) = entries.next().unwrap().unwrap();
            assert_eq!((&*key, &*found), (&n.to_be_bytes()[..], &value(*n, 0)[..]));
            *n += 1;
        }
        assert!(descriptors() < 60, "{} descriptors", descriptors());
    }
    drop(standing);
    db.close().unwrap();
}

/// Goal: `open_files_max` bounds the open tables at every moment, but for those that somebody reads
/// or opens just then.
#[test]
fn open_files_max_bounds_descriptors() {
    const OPEN_MAX: usize = 8;
    const READERS: usize = 4;
    let (count, dir) = (1000_u32, tempfile::tempdir().unwrap());
    let builder = Db::builder(dir.path()).default_options(options()).open_files_max(OPEN_MAX);
    let db = builder.block_cache_bytes(64 << 10).memory_budget(16 << 20).open().unwrap();
    (0..count).for_each(|n| db.put(n.to_be_bytes(), value(n, 0)).unwrap());
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    let tables_open_max = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                for n in (0..count).map(|n| n * 397 % count) {
                    let found = db.get(n.to_be_bytes()).unwrap();
                    assert_eq!(found.as_deref(), Some(&value(n, 0)[..]), "get of {n}");
                    let open = db.metrics().tables_open as usize;
                    tables_open_max.fetch_max(open, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    let most = tables_open_max.into_inner();
    // One for each reader, and one for each background thread.
    assert!(most <= OPEN_MAX + READERS + 2, "{most} tables were open");
    assert!(most >= OPEN_MAX, "only {most} tables were ever open");
    db.close().unwrap();
}

/// Goal: where nothing else is said, a store raises the soft limit of its process to the hard one,
/// and has as many tables open as half of that allows.
#[test]
fn the_soft_limit_is_raised() {
    if !under("ulimit -S -n 64 && ulimit -H -n 512", "the_soft_limit_is_raised") {
        return;
    }
    let soft = || {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        line.split_whitespace().nth(3).unwrap().to_owned()
    };
    assert_eq!(soft(), "64");
    let (count, dir) = (1000_u32, tempfile::tempdir().unwrap());
    let db = open(dir.path());
    assert_eq!(soft(), "512", "the soft limit of a process that has opened a store");
    (0..count).for_each(|n| db.put(n.to_be_bytes(), value(n, 0)).unwrap());
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    check(db.default_keyspace(), count, 1, &|_| 0);
    let made: u64 = db.property("weir.num-tables").unwrap().parse().unwrap();
    assert!((100..256).contains(&made), "{made} tables");
    assert_eq!(db.metrics().tables_open, made, "all tables are open");
    assert!(descriptors() as u64 > made, "{} descriptors", descriptors());
    db.close().unwrap();
}

/// Goal: a store of many more keyspaces than descriptors, with a table in each, works too.
#[test]
fn more_keyspaces_than_descriptors() {
    if !limited("more_keyspaces_than_descriptors") {
        return;
    }
    let (count, dir) = (wanted("WEIR_KEYSPACES", 75), tempfile::tempdir().unwrap());
    let db = open(dir.path());
    let spaces: Vec<Keyspace> =
        (0..count).map(|n| db.create_keyspace(&format!("k{n}"), options()).unwrap()).collect();
    for (n, space) in spaces.iter().enumerate() {
        space.put(b"key", value(n as u32, 0)).unwrap();
    }
    spaces.iter().for_each(|space| space.flush().unwrap());
    for _ in 0..2 {
        for (n, space) in spaces.iter().enumerate() {
            let found = space.get(b"key").unwrap();
            assert_eq!(found.as_deref(), Some(&value(n as u32, 0)[..]), "keyspace {n}");
            assert_eq!(space.iter().count(), 1, "keyspace {n}");
        }
    }
    assert!(descriptors() < 60, "{} descriptors", descriptors());
    db.drop_keyspace("k7").unwrap();
    assert_eq!(db.property("weir.background-error").unwrap(), "");
    db.close().unwrap();
}
