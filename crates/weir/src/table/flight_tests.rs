//! Users who want the same block at once: one reads it, and each gets the block or an error of its
//! own. The protocol's interleavings are explored in `schedules::flights`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::checksum::hash_key;
use crate::base::cursor::Cursor;
use crate::base::error::{ErrorKind, Result};
use crate::base::key::{Kind, SEQ_MAX};
use crate::base::sched::spawn;
use crate::cache::{BlockCache, Purpose};
use crate::table::testing::*;
use crate::table::{CursorOptions, ReadAhead, Table};

/// Readers at once, and how long a read takes: much longer than the start of a thread.
const READERS: u64 = 8;
const READ_NANOS: u64 = 20_000_000;

const VALUE: [u8; 100] = [b'v'; 100];

struct Store {
    storage: Arc<MemoryTables>,
    cache: Arc<BlockCache>,
    table: Arc<Table>,
}

fn key(n: u64) -> Vec<u8> {
    format!("key {n:03}").into_bytes()
}

/// A user's get of key 0, or a seek to it.
fn read(table: &Arc<Table>, seeks: bool, purpose: Purpose) -> Result<()> {
    if !seeks {
        let hit = table.get(&key(0), hash_key(&key(0), SEED), SEQ_MAX, purpose)?;
        assert_eq!(&*hit.expect("the key is there").value, VALUE);
        return Ok(());
    }
    let options = CursorOptions { purpose, fill_cache: true, readahead: ReadAhead::Scan };
    let mut cursor = table.cursor(options);
    cursor.seek(&key(0), SEQ_MAX);
    cursor.status()?;
    assert_eq!((cursor.key(), cursor.value()), (&key(0)[..], &VALUE[..]));
    Ok(())
}

impl Store {
    /// An open table of several blocks, none of which is cached. `change` is done to its bytes.
    fn new(capacity_bytes: u64, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let entries: Vec<Entry> =
            (0..40).map(|n| (key(n), n + 1, Kind::Put, VALUE.to_vec())).collect();
        let sizes = (512, capacity_bytes);
        let (storage, cache, table) = cold_table(MemoryTables::default(), sizes, &entries, change);
        storage.under_way.nanos.store(READ_NANOS, Ordering::Relaxed);
        Self { storage, cache, table }
    }

    /// What all readers get who come at once; every second one seeks.
    fn read_at_once(&self, purpose: Purpose) -> Vec<Result<()>> {
        let results = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let start = |reader: u64| {
            let (table, results) = (Arc::clone(&self.table), Arc::clone(&results));
            let body = move || {
                let result = read(&table, reader % 2 == 1, purpose);
                results.lock().push(result);
            };
            spawn("reader", body).unwrap()
        };
        let readers: Vec<_> = (0..READERS).map(start).collect();
        readers.into_iter().for_each(|reader| assert!(reader.join()));
        let mut results = results.lock();
        std::mem::take(&mut *results)
    }

    fn reads(&self) -> u64 {
        self.storage.reads.load(Ordering::Relaxed)
    }

    fn rivals(&self) -> u64 {
        self.storage.under_way.rivals.load(Ordering::Relaxed)
    }
}

/// Goal: however many users miss a block at once, the device is asked for it once, and the others
/// are counted.
#[test]
fn readers_at_once_read_a_block_once() {
    let store = Store::new(1 << 20, |_| {});
    assert!(store.read_at_once(Purpose::Foreground).iter().all(Result::is_ok));
    assert_eq!((store.reads(), store.rivals()), (1, 0));
    let counters = store.cache.counters();
    assert_eq!(counters.hits[0] + counters.reads_shared, READERS - 1, "{counters:?}");
    assert_eq!(counters.misses[0], 1 + counters.reads_shared, "{counters:?}");
    assert_eq!(counters.inserts, 1, "who shares a read does not offer the block again");
}

/// Goal: who waits gets the block also where the cache keeps none.
#[test]
fn a_refused_block_is_shared() {
    let store = Store::new(0, |_| {});
    assert!(store.read_at_once(Purpose::Foreground).iter().all(Result::is_ok));
    assert_eq!(store.rivals(), 0, "a block was read by two at once");
    assert_eq!(store.reads() + store.cache.counters().reads_shared, READERS);
}

/// Goal: background reads neither wait nor are waited for.
#[test]
fn background_reads_stay_apart() {
    let store = Store::new(0, |_| {});
    assert!(store.read_at_once(Purpose::Background).iter().all(Result::is_ok));
    assert_eq!((store.reads(), store.cache.counters().reads_shared), (READERS, 0));
}

/// Goal: a read that fails once fails for one reader; those who waited read for themselves.
#[test]
fn a_failed_read_is_one_readers_error() {
    let store = Store::new(1 << 20, |_| {});
    store.storage.failing_read.store(1, Ordering::Relaxed);
    let results = store.read_at_once(Purpose::Foreground);
    let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(matches!(&errors[..], [one] if one.kind() == ErrorKind::Io), "{errors:?}");
}

/// Goal: nobody gets a damaged block, whoever has read it; each error names the place.
#[test]
fn a_damaged_block_is_everybodys_error() {
    let store = Store::new(1 << 20, |bytes| bytes[100] ^= 1);
    let results = store.read_at_once(Purpose::Foreground);
    assert_eq!((results.len() as u64, store.reads()), (READERS, READERS));
    for result in results {
        let error = result.expect_err("the block is damaged");
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.damage().is_some_and(|damage| damage.key_range.is_some()), "{error}");
    }
    let counters = store.cache.counters();
    assert_eq!((counters.reads_shared, counters.inserts), (0, 0));
}
