//! A tree as Merfeld and Karatsiolis built it, through the public interface: a memory run limited
//! by entries, up to T runs a level, 5 Bloom bits, deletes as tombstones through every level.
//!
//! Each test of a `bug_` carries the story of a bug that their program has (or admits to have had),
//! and does with a store what that bug would make wrong, against a `BTreeMap`.

use std::collections::BTreeMap;
use std::path::Path;

use weir::{CompactionPolicy, Db, DebugDbOptions, DebugOptions, Options, RunsOptions};

/// Their settings, with a memory run of `entries` and `runs` runs a level.
fn options(entries: u64, runs: usize) -> Options {
    Options::default()
        .compaction(CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(runs)))
        .debug(DebugOptions::default().write_buffer_entries(entries))
        .bloom_bits([5.0])
        .block_bytes(512)
}

fn open(path: &Path, options: Options) -> Db {
    Db::builder(path)
        .default_options(options)
        .memory_budget(8 << 20)
        .log_segment_bytes(64 << 10)
        .debug(DebugDbOptions::default().verify_outputs(true))
        .open()
        .expect("open")
}

/// A store and the map that it must be like.
struct Pair {
    db: Db,
    map: BTreeMap<u32, u32>,
    _dir: tempfile::TempDir,
}

impl Pair {
    fn new(options: Options) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let db = open(&dir.path().join("db"), options);
        Self { db, map: BTreeMap::new(), _dir: dir }
    }

    fn put(&mut self, key: u32, value: u32) {
        self.db.put(key.to_be_bytes(), value.to_be_bytes()).expect("put");
        self.map.insert(key, value);
    }

    fn delete(&mut self, key: u32) {
        self.db.delete(key.to_be_bytes()).expect("delete");
        self.map.remove(&key);
    }

    fn get(&self, key: u32) -> Option<u32> {
        let value = self.db.get(key.to_be_bytes()).expect("get");
        value.map(|v| u32::from_be_bytes(v[..].try_into().expect("four bytes")))
    }

    fn range(&self, lower: u32, upper: u32) -> Vec<(u32, u32)> {
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        let pairs = self.db.range(lower.to_be_bytes()..=upper.to_be_bytes());
        pairs.map(|pair| pair.map(|(k, v)| (number(&k), number(&v))).expect("pair")).collect()
    }

    /// Everything at rest on disk, in tables.
    fn settle(&self) {
        self.db.flush().expect("flush");
        self.db.wait_idle().expect("idle");
    }

    fn same(&self, keys: impl IntoIterator<Item = u32>) {
        for key in keys {
            assert_eq!(self.get(key), self.map.get(&key).copied(), "key {key}");
        }
        let all: Vec<(u32, u32)> = self.map.iter().map(|(&k, &v)| (k, v)).collect();
        assert_eq!(self.range(0, u32::MAX), all);
    }

    /// Runs on disk in level 1 and below.
    fn deep_runs(&self) -> u64 {
        let metrics = self.db.metrics();
        metrics.keyspaces.iter().flat_map(|k| &k.levels).skip(1).map(|level| level.runs).sum()
    }
}

/// A number that looks drawn by chance, the same in every run.
fn scatter(i: u32) -> u32 {
    i.wrapping_mul(0x9e37_79b1) >> 8
}

/// Goal: their workload in small: inserts, 10 % updates, 10 % deletes, then gets of which half are
/// absent and ranges, for several sizes of memory run and level. Method: against the map; the tree
/// must have levels.
#[test]
fn the_workload_of_the_report_at_a_hundredth() {
    for (entries, runs) in [(100, 2), (100, 4), (200, 10)] {
        let mut pair = Pair::new(options(entries, runs));
        for i in 0..10_000u32 {
            match i % 10 {
                7 if i > 100 => pair.put(scatter(i / 2), i),
                8 => pair.delete(scatter(i / 3)),
                _ => pair.put(scatter(i), i),
            }
        }
        pair.settle();
        assert!(pair.deep_runs() > 0);
        pair.same((0..2500).map(scatter));
        pair.same((1_000_000..1_000_500).map(scatter));
        for i in 0..50 {
            let lower = scatter(i * 31);
            let expected: Vec<_> =
                pair.map.range(lower..=lower + 10_000).map(|(&k, &v)| (k, v)).collect();
            assert_eq!(pair.range(lower, lower + 10_000), expected);
        }
    }
}

/// Bug 1: merges of lower levels took the fences of the *current* memory run, so keys of the merged
/// run were outside its own fences and not found. Here: the memory run that is current while lower
/// levels merge lies elsewhere in the key space.
#[test]
fn bug_1_fences_of_another_run() {
    let mut pair = Pair::new(options(50, 2));
    for round in 0..16u32 {
        let base = if round % 2 == 0 { 0 } else { 1_000_000_000 };
        (0..50).for_each(|i| pair.put(base + round * 100 + i, round));
    }
    pair.settle();
    let keys: Vec<u32> = pair.map.keys().copied().collect();
    pair.same(keys);
}

/// Bug 2: the search in a disk run returned its entry without the deleted bit: deletes came back to
/// life once they were on disk. Here: the delete lies in every level in turn, alone in its run and
/// above the value.
#[test]
fn bug_2_deletes_vanish_on_disk() {
    let mut pair = Pair::new(options(10, 2));
    (0..200).for_each(|i| pair.put(i, i));
    pair.settle();
    (0..200).step_by(3).for_each(|i| pair.delete(i));
    for round in 0..12 {
        pair.settle();
        pair.same(0..200);
        (0..10).for_each(|i| pair.put(1000 + round * 10 + i, round));
    }
    pair.db.compact_range(..).expect("compact");
    pair.same(0..200);
}

/// Bug 3: the search of the memory run began one past its end. Here: what was just written, and its
/// neighbour that was not, while memory runs of eight entries fill up and go.
#[test]
fn bug_3_one_past_the_memory_run() {
    let mut pair = Pair::new(options(8, 2));
    assert_eq!(pair.get(7), None);
    for i in 0..40u32 {
        pair.put(i, i + 1);
        assert_eq!(pair.get(i), Some(i + 1), "just written");
        assert_eq!(pair.get(i + 1), None, "not written");
    }
}

/// Bug 4: the bits of a Bloom filter were not set to zero (the arguments of `memset` were swapped).
/// Here: a filter that excludes nothing shows as a read of a block for every absent key.
#[test]
fn bug_4_filters_that_are_not_empty_at_first() {
    let mut pair = Pair::new((options(2000, 4)).bloom_bits(vec![10.0]));
    (0..8000).for_each(|i| pair.put(scatter(i) * 2, i));
    pair.settle();
    pair.same((0..100).map(|i| scatter(i) * 2));
    let lookups = |pair: &Pair| {
        let metrics = pair.db.metrics();
        metrics.cache_foreground.hits + metrics.cache_foreground.misses
    };
    let before = lookups(&pair);
    (0..1000).for_each(|i| assert_eq!(pair.get(scatter(i) * 2 + 1), None));
    let blocks = lookups(&pair) - before;
    assert!(blocks < 200, "{blocks} blocks were read for 1,000 absent keys");
}

/// Bug 5: a yes-or-no answer was used as a three-way comparison, so a range query read the wrong
/// page. Here: ranges that begin and end inside, at and between the pages.
#[test]
fn bug_5_ranges_that_read_another_page() {
    let mut pair = Pair::new(options(300, 3));
    (0..3000).for_each(|i| pair.put(i * 10, i));
    pair.settle();
    for lower in (0..30_000).step_by(373) {
        for width in [0, 1, 9, 10, 11, 500, 5000] {
            let expected: Vec<_> =
                pair.map.range(lower..=lower + width).map(|(&k, &v)| (k, v)).collect();
            assert_eq!(pair.range(lower, lower + width), expected, "from {lower}, width {width}");
        }
    }
}

/// Bug 6: entries per page were rounded down, and what did not fit the last full page was out of
/// reach. Here: runs of every length around a page.
#[test]
fn bug_6_entries_behind_the_last_page() {
    for entries in 1..60u32 {
        let mut pair = Pair::new(options(100, 4));
        (0..entries).for_each(|i| pair.put(i, entries));
        pair.settle();
        pair.same(0..entries + 2);
    }
}

/// Bug 7: direct reads into memory that was not aligned. Weir reads through the page cache or
/// aligns. Here: values of every length, so that blocks begin and end anywhere in a page.
#[test]
fn bug_7_reads_at_any_offset() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let db = open(&path, options(64, 2));
    let value = |i: u32| vec![i as u8; (i as usize * 7) % 1500];
    (0..600u32).for_each(|i| db.put(i.to_be_bytes(), value(i)).expect("put"));
    db.flush().expect("flush");
    db.close().expect("close");
    let db = open(&path, options(64, 2));
    for i in 0..600u32 {
        let found = db.get(i.to_be_bytes()).expect("get").expect("there");
        assert_eq!(found[..], value(i)[..], "value {i}");
    }
}

/// Bug 8: a merge deleted its inputs before its outputs were durable, and there was no log. Here:
/// the store is left without a word in the middle of everything, again and again; what was
/// acknowledged is there. (Power cuts at every change are the campaigns' part.)
#[test]
fn bug_8_inputs_deleted_before_outputs_are_durable() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let mut map = BTreeMap::new();
    for round in 0..8u32 {
        let db = open(&path, options(20, 2));
        for i in 0..300u32 {
            let key = scatter(round * 1000 + i % 200);
            db.put(key.to_be_bytes(), i.to_be_bytes()).expect("put");
            map.insert(key, i);
        }
        drop(db);
    }
    let db = open(&path, options(20, 2));
    let found: Vec<_> = db.iter().map(|pair| pair.expect("pair").0.to_vec()).collect();
    assert_eq!(found.len(), map.len());
    for (key, value) in &map {
        let found = db.get(key.to_be_bytes()).expect("get").expect("there");
        assert_eq!(found[..], value.to_be_bytes());
    }
    assert!(db.verify().expect("verify").damages.is_empty());
}

/// Bug 9: which of two entries of a key survived a merge hung on whether the sort was stable. Here:
/// the same keys in all runs of all levels, with deletes among them.
#[test]
fn bug_9_the_newest_entry_survives_a_merge() {
    let mut pair = Pair::new(options(30, 3));
    for round in 0..60u32 {
        for key in 0..30 {
            if (key + round) % 11 == 0 {
                pair.delete(key);
            } else {
                pair.put(key, round * 100 + key);
            }
        }
        if round % 7 == 0 {
            pair.settle();
            pair.same(0..31);
        }
    }
    pair.settle();
    pair.same(0..31);
}

/// Goal: deletes leave in the end. Method: everything is deleted, and written over until the last
/// level was merged; then the tables hold no entry any more.
#[test]
fn deletes_leave_with_the_last_level() {
    for compaction in CompactionPolicy::ALL {
        let mut pair = Pair::new(options(50, 2).compaction(compaction));
        (0..1000).for_each(|i| pair.put(i, i));
        (0..1000).for_each(|i| pair.delete(i));
        pair.settle();
        pair.same(0..1000);
        pair.db.compact_range(..).expect("compact");
        pair.same(0..1000);
        let entries: u64 = pair.db.verify().expect("verify").entries;
        assert_eq!(entries, 0, "{compaction} keeps {entries} entries");
    }
}
