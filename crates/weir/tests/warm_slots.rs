//! What merges leave in the cache where nothing below it caches: tables in slots.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir::{Db, FormatOptions, LeveledOptions, Options, WarmUp, format};

const KEYS: u32 = 20_000;
const MIB: u64 = 1 << 20;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

fn value(i: u32, round: u32) -> Vec<u8> {
    format!("{round:04}{i:092}").into_bytes()
}

/// A store of two runs over the same keys, in slots or in files, of which nothing is cached.
fn two_runs(path: &Path, in_slots: bool, warm_up: WarmUp, cache_bytes: u64) -> Db {
    if in_slots {
        let mut options = FormatOptions::new();
        options.size = Some(256 * MIB);
        format(path, &options).expect("format");
    }
    // No merge but those that are asked for.
    let leveled = LeveledOptions::default().l0_trigger(64);
    let options = Options::default().warm_up(warm_up).table_bytes(64 << 10).compaction(leveled);
    let builder = Db::builder(path).memory_budget(64 * MIB).block_cache_bytes(cache_bytes);
    let db = builder.default_options(options).open().expect("open");
    for round in 0..2 {
        (0..KEYS).for_each(|i| db.put(key(i), value(i, round)).expect("put"));
        db.flush().expect("flush");
    }
    db
}

/// Ends the reader, also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls `during` while another thread reads the first key again and again.
fn while_read(db: &Db, during: impl FnOnce()) {
    let (ended, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ends = Ends(&ended);
        let reader = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                assert!(db.get(key(0)).expect("get").is_some());
                reads.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        while reads.load(Ordering::Relaxed) < 10 && !reader.is_finished() {
            std::thread::yield_now();
        }
        during();
    });
}

/// Misses of users while keys are read.
fn misses(db: &Db, keys: std::ops::Range<u32>) -> u64 {
    let before = db.metrics().cache_foreground.misses;
    for i in keys {
        let found = db.get(key(i)).expect("get");
        assert_eq!(found.as_deref(), Some(&value(i, 1)[..]), "key {i}");
    }
    db.metrics().cache_foreground.misses - before
}

/// Goal: what a merge writes is in the cache where there is room for it, if users read the store;
/// not where they do not, where the page cache has it, or without hand-off; and it does not count
/// as read. Method: blocks of which few were ever read, and a merge; the blocks are about 500.
#[test]
fn merges_fill_the_room_that_is_left() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (name, in_slots, warm_up, is_read) in [
        ("read", true, WarmUp::HandOff, true),
        ("not read", true, WarmUp::HandOff, false),
        ("in files", false, WarmUp::HandOff, true),
        ("off", true, WarmUp::None, true),
    ] {
        let db = two_runs(&dir.path().join(name), in_slots, warm_up, 16 * MIB);
        let merge = || db.compact_range(..).expect("compact_range");
        let unasked = || db.metrics().blocks_unasked;
        if name == "read" {
            // On a busy machine a merge may end before the reader has its turn.
            let filled = (0..20).any(|_| {
                (1..KEYS).for_each(|i| db.put(key(i), value(i, 1)).expect("put"));
                db.flush().expect("flush");
                let before = unasked();
                while_read(&db, merge);
                unasked() - before > 300
            });
            let metrics = db.metrics();
            assert!(filled && metrics.cache_bytes > 300 * 4096, "{metrics:?}");
            // Nobody has read it: a flush over it is no flush over what users read.
            (KEYS / 2..KEYS).for_each(|i| db.put(key(i), value(i, 1)).expect("put"));
            db.flush().expect("flush");
            assert_eq!(db.metrics().blocks_handed_over, metrics.blocks_handed_over);
            merge();
            misses(&db, 0..KEYS);
            let metrics = db.metrics();
            (KEYS / 2..KEYS).for_each(|i| db.put(key(i), value(i, 1)).expect("put"));
            db.flush().expect("flush");
            let handed_over = db.metrics().blocks_handed_over - metrics.blocks_handed_over;
            assert!(handed_over > 200, "{handed_over} blocks over what users have read");
        } else {
            if is_read {
                while_read(&db, merge)
            } else {
                merge()
            }
            // What the reader misses brings some neighbours.
            let metrics = db.metrics();
            assert!(metrics.cache_bytes < MIB / 4 && unasked() == 0, "{name}: {metrics:?}");
        }
        misses(&db, 0..KEYS);
        db.close().expect("close");
    }
}

/// Goal: a store that fits in the cache is read from the device once, in few requests, after an
/// opening; and block by block where it does not fit. Method: all keys once, in an order that
/// jumps.
#[test]
fn a_cold_cache_is_filled_around_what_is_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("store");
    let db = two_runs(&path, true, WarmUp::HandOff, 16 * MIB);
    db.compact_range(..).expect("compact_range");
    let blocks = u64::from(KEYS) * 104 / 4096;
    db.close().expect("close");
    for (cache_bytes, fits) in [(16 * MIB, true), (128 << 10, false)] {
        let builder = Db::builder(&path).memory_budget(64 * MIB).block_cache_bytes(cache_bytes);
        let db = builder.open().expect("open");
        for n in 0..KEYS {
            let i = n * 7919 % KEYS;
            assert_eq!(db.get(key(i)).expect("get").as_deref(), Some(&value(i, 1)[..]), "key {i}");
        }
        let users = db.metrics().io.users;
        if fits {
            assert!(users.reads < blocks / 3, "{} requests for {blocks} blocks", users.reads);
            assert!(users.bytes_read < blocks * 5000, "{users:?}");
        } else {
            assert!(users.bytes_read < users.reads * 5000, "{users:?}");
        }
        db.close().expect("close");
    }
}

/// Misses of what is read again and again in a cache for a third of the blocks, in all, beside
/// runs of the other half that are written and merged.
fn hot_misses(path: &Path, in_slots: bool) -> u64 {
    let db = two_runs(path, in_slots, WarmUp::HandOff, 700 << 10);
    db.compact_range(..).expect("compact_range");
    let hot = 0..KEYS / 4;
    for _ in 0..4 {
        misses(&db, hot.clone());
    }
    let mut missed = 0;
    for _ in 0..8 {
        while_read(&db, || {
            (KEYS / 2..KEYS).for_each(|i| db.put(key(i), value(i, 1)).expect("put"));
            db.flush().expect("flush");
            db.compact_range(..).expect("compact_range");
        });
        let metrics = db.metrics();
        assert!(metrics.cache_bytes <= metrics.cache_capacity, "{metrics:?}");
        missed += misses(&db, hot.clone());
    }
    missed
}

/// Goal: what is read again and again is missed no more often where others fill the room. Method:
/// the same work in slots and in files, where nothing else is left in the cache; what was missed
/// differs by a tenth of the blocks of the hot quarter for each merge. (That nothing leaves for
/// such blocks at all is tested in `cache`.)
#[test]
fn nothing_leaves_for_what_nobody_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let in_slots = hot_misses(&dir.path().join("slots"), true);
    let in_files = hot_misses(&dir.path().join("files"), false);
    assert!(in_slots < in_files + 8 * 13, "{in_slots} in slots, {in_files} in files");
}
