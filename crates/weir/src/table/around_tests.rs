//! Blocks that come beside a missed one: how many, when, and whose error theirs is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::checksum::hash_key;
use crate::base::error::{ErrorKind, Result};
use crate::base::key::{Kind, SEQ_MAX};
use crate::base::prng::Prng;
use crate::cache::{BlockCache, Purpose};
use crate::table::Table;
use crate::table::testing::*;

/// Entries, three to a block of 4 KiB; a window has seven blocks and a part of the next.
const ENTRIES: u64 = 300;

fn key(n: u64) -> Vec<u8> {
    format!("key {n:03}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    format!("{n:04}").repeat(300).into_bytes()
}

struct Store {
    storage: Arc<MemoryTables>,
    cache: Arc<BlockCache>,
    table: Arc<Table>,
}

impl Store {
    /// An open table of which nothing is cached.
    fn new(storage: MemoryTables, capacity_bytes: u64) -> Self {
        Self::changed(storage, capacity_bytes, |_| {})
    }

    /// As [`new`](Self::new), with a change of its bytes.
    fn changed(
        storage: MemoryTables,
        capacity_bytes: u64,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        let entries: Vec<Entry> =
            (0..ENTRIES).map(|n| (key(n), n + 1, Kind::Put, value(n))).collect();
        let sizes = (4096, capacity_bytes);
        let (storage, cache, table) = cold_table(storage, sizes, &entries, change);
        Self { storage, cache, table }
    }

    fn get(&self, n: u64, purpose: Purpose) -> Result<()> {
        let hit = self.table.get(&key(n), hash_key(&key(n), SEED), SEQ_MAX, purpose)?;
        assert_eq!(&*hit.expect("the key is there").value, value(n), "key {n}");
        Ok(())
    }

    fn reads(&self) -> u64 {
        self.storage.reads.load(Ordering::Relaxed)
    }

    fn bytes_read(&self) -> u64 {
        self.storage.bytes_read.load(Ordering::Relaxed)
    }

    fn blocks(&self) -> u64 {
        u64::from(self.table.meta().blocks)
    }
}

/// Goal: where nothing below the cache has a block, a user's miss brings its neighbours, so that
/// all of a table is there after one read for each window, and no byte is read twice; a merge's
/// does not, nor does one in files. Method: all keys in random order.
#[test]
fn neighbours_come_with_a_miss() {
    for (in_slots, purpose) in
        [(true, Purpose::Foreground), (false, Purpose::Foreground), (true, Purpose::Background)]
    {
        let storage = if in_slots { MemoryTables::in_slots() } else { MemoryTables::default() };
        let store = Store::new(storage, 16 << 20);
        let mut prng = Prng::new(7);
        let mut keys: Vec<u64> = (0..ENTRIES).collect();
        for last in (1..keys.len()).rev() {
            keys.swap(last, prng.below(last as u64 + 1) as usize);
        }
        for n in keys {
            store.get(n, purpose).unwrap();
        }
        let (reads, blocks) = (store.reads(), store.blocks());
        if in_slots && purpose == Purpose::Foreground {
            assert!(reads <= blocks / 6, "{reads} reads for {blocks} blocks");
        } else {
            assert!(reads >= blocks, "{reads} reads for {blocks} blocks");
        }
        if purpose == Purpose::Foreground {
            assert!(store.bytes_read() <= store.table.meta().bytes, "{}", store.bytes_read());
        }
    }
}

/// Goal: what nobody asked for takes nobody's place, and is not read where it would have none.
/// Method: a cache for a quarter of the table.
#[test]
fn a_full_cache_gets_what_is_wanted() {
    let store = Store::new(MemoryTables::in_slots(), 128 << 10);
    for n in 0..ENTRIES {
        store.get(n, Purpose::Foreground).unwrap();
        assert!(store.cache.bytes() <= 128 << 10);
    }
    // It is full now, and what was read last is in it.
    let (reads, bytes) = (store.reads(), store.bytes_read());
    let mut prng = Prng::new(3);
    for _ in 0..500 {
        store.get(prng.below(ENTRIES), Purpose::Foreground).unwrap();
    }
    let (reads, bytes) = (store.reads() - reads, store.bytes_read() - bytes);
    assert!(reads > 250, "{reads} reads of a table that is four times the cache");
    assert!(bytes < reads * 5000, "{bytes} bytes in {reads} reads of a block each");
}

/// Goal: a damaged neighbour is the error of who reads it, each time, and of nobody else.
#[test]
fn damage_beside_is_no_error() {
    let store = Store::changed(MemoryTables::in_slots(), 16 << 20, |bytes| {
        let at = bytes.windows(8).position(|part| part == b"00040004");
        bytes[at.expect("the value of key 4")] ^= 1;
    });
    store.get(0, Purpose::Foreground).unwrap();
    store.get(9, Purpose::Foreground).unwrap();
    for _ in 0..2 {
        let error = store.get(4, Purpose::Foreground).expect_err("its block is damaged");
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
    store.get(0, Purpose::Foreground).unwrap();
}

/// Goal: a request that fails for what is beside the block is made again for it alone, and one that
/// fails then is its reader's error.
#[test]
fn a_failed_read_around_is_made_again() {
    let store = Store::new(MemoryTables::in_slots(), 16 << 20);
    store.storage.failing_read.store(1, Ordering::Relaxed);
    store.get(0, Purpose::Foreground).unwrap();
    assert_eq!(store.reads(), 2);
    assert!(store.cache.bytes() < 2 * 4096, "nothing came beside it");
    let store = Store::new(MemoryTables::in_slots(), 0);
    store.storage.failing_read.store(1, Ordering::Relaxed);
    let error = store.get(0, Purpose::Foreground).expect_err("its own read fails");
    assert_eq!((error.kind(), store.reads()), (ErrorKind::Io, 1));
}

/// Goal: neighbours do not count as what users have read.
#[test]
fn neighbours_are_not_asked_for() {
    let store = Store::new(MemoryTables::in_slots(), 16 << 20);
    for n in (0..ENTRIES).step_by(20) {
        store.get(n, Purpose::Foreground).unwrap();
    }
    assert!(store.cache.bytes() > store.table.meta().bytes * 8 / 10, "nearly all is cached");
    let meta = store.table.meta();
    let whole = (Arc::from(&*meta.smallest), Arc::from(&*meta.largest));
    let residency = store.table.residency(&[whole], 1000);
    assert!((0.1..0.3).contains(&residency), "{residency} of it was read");
    let (asked, cached) = store.table.sample_cached(&key(0), &key(299), 50);
    assert!(asked == 50 && cached < 15, "{cached} of {asked}");
}
