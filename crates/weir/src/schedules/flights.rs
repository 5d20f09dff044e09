//! Readers that miss the same blocks at once, explored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::buf::Buf;
use crate::base::checksum::hash_key;
use crate::base::cursor::Cursor;
use crate::base::error::{ErrorKind, Result};
use crate::base::ids::uid;
use crate::base::key::{Kind, SEQ_MAX};
use crate::base::prng::Prng;
use crate::base::sched::sim::panic_as_planned;
use crate::base::sched::{Thread, catch_panic, delay};
use crate::cache::{BlockCache, Missed, Purpose};
use crate::table::testing::{
    Entry, MemoryTables, SEED, open_table, options, scan_options, write_table,
};
use crate::table::{HeldBlock, ReadAhead, Table};

use super::{actor, explore, key_of};

/// Keys of a table, in about a block for each three.
const KEYS: u64 = 9;
const READERS: usize = 4;
/// Reads of each reader.
const TURNS: u64 = 8;

struct Store {
    storage: Arc<MemoryTables>,
    cache: Arc<BlockCache>,
    table: Arc<Table>,
}

fn value_of(n: u64) -> [u8; 120] {
    [n as u8; 120]
}

impl Store {
    /// An open table, nothing of which is cached. A read takes as long as the seed says.
    fn new(capacity_bytes: u64, prng: &mut Prng) -> Self {
        let storage = Arc::new(MemoryTables::default());
        let entries: Vec<Entry> =
            (0..KEYS).map(|n| (key_of(n), n + 1, Kind::Put, value_of(n).to_vec())).collect();
        let meta = write_table(&storage, uid(1), options(400), &entries);
        assert!(meta.blocks > 2, "{} blocks", meta.blocks);
        let cache = Arc::new(BlockCache::new(capacity_bytes));
        let table = open_table(&storage, meta, Some(Arc::clone(&cache)));
        let store = Self { storage, cache, table };
        get(&store.table, 0).expect("a sound table");
        store.erase();
        store.storage.reads.store(0, Ordering::Relaxed);
        store.storage.under_way.nanos.store(prng.below(2) * 1000, Ordering::Relaxed);
        store
    }

    fn erase(&self) {
        self.cache.erase_table(uid(1), self.table.block_count());
    }

    /// Starts the readers, and whoever is with them; waits for all.
    fn run(&self, prng: &mut Prng, mut actors: Vec<Thread>, how_many: u64) -> u64 {
        let errors: Arc<AtomicU64> = Arc::default();
        for _ in 0..READERS {
            let (table, errors) = (Arc::clone(&self.table), Arc::clone(&errors));
            let mut prng = Prng::new(prng.next_u64());
            actors.push(actor("reader", move || {
                for _ in 0..TURNS {
                    if let Err(error) = read(&table, &mut prng, how_many) {
                        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                        errors.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }));
        }
        actors.into_iter().for_each(|actor| assert!(actor.join()));
        errors.load(Ordering::Relaxed)
    }

    fn rivals(&self) -> u64 {
        self.storage.under_way.rivals.load(Ordering::Relaxed)
    }
}

fn get(table: &Arc<Table>, n: u64) -> Result<()> {
    let key = key_of(n);
    let hit = table.get(&key, hash_key(&key, SEED), SEQ_MAX, Purpose::Foreground)?;
    assert_eq!(&*hit.expect("the key is there").value, value_of(n));
    Ok(())
}

/// One read of a key, in one of the first `how_many` ways.
fn read(table: &Arc<Table>, prng: &mut Prng, how_many: u64) -> Result<()> {
    let n = prng.below(KEYS);
    match prng.below(how_many) {
        0 => get(table, n),
        1 => {
            // Two keys, with the block of the first one held.
            let mut held = HeldBlock::default();
            for n in [n / 2, n] {
                let key = key_of(n);
                let hashed = (&key[..], hash_key(&key, SEED));
                let hit = table.get_in_batch(&mut held, hashed, SEQ_MAX, Purpose::Foreground)?;
                assert_eq!(&*hit.expect("the key is there").value, value_of(n));
            }
            Ok(())
        }
        how => {
            let mut cursor = table.cursor(scan_options(how == 2, ReadAhead::Scan));
            cursor.seek(&key_of(n), SEQ_MAX);
            cursor.status()?;
            assert_eq!((cursor.key(), cursor.value()), (&key_of(n)[..], &value_of(n)[..]));
            Ok(())
        }
    }
}

/// Goal: a block is read from the device once, however many readers want it and in whatever order
/// they come, where the cache has room for all.
#[test]
fn a_block_is_read_once() {
    explore(|mut prng| {
        let store = Store::new(1 << 20, &mut prng);
        assert_eq!(store.run(&mut prng, Vec::new(), 3), 0);
        let blocks = u64::from(store.table.block_count());
        let reads = store.storage.reads.load(Ordering::Relaxed);
        assert!(reads <= blocks, "{reads} reads of {blocks} blocks");
        let counters = store.cache.counters();
        // The one of the beginning is counted, too.
        assert_eq!(counters.misses[0] - 1, reads + counters.reads_shared, "{counters:?}");
    });
}

/// Goal: every reader gets its block or an error of its own, and no block is read by two at once,
/// unless a read has failed: then those who waited read for themselves. Method: readers of every
/// kind beside one who erases the table's blocks and one who fills the cache with others, in
/// caches from none to two blocks; in half of the seeds a read fails, once.
#[test]
fn reads_beside_erasing_and_eviction() {
    explore(|mut prng| {
        let store = Store::new(prng.below(3) * 800, &mut prng);
        if prng.chance(1, 2) {
            store.storage.failing_read.store(1 + prng.below(12), Ordering::Relaxed);
        }
        let (cache, blocks) = (Arc::clone(&store.cache), store.table.block_count());
        let eraser = actor("eraser", move || {
            (0..TURNS).for_each(|_| cache.erase_table(uid(1), blocks));
        });
        let cache = Arc::clone(&store.cache);
        let inserter = actor("inserter", move || {
            let other = cache.table(uid(2));
            (0..TURNS as u32).for_each(|n| other.insert(n, Buf::from(&[0; 400][..])));
        });
        let errors = store.run(&mut prng, vec![eraser, inserter], 4);
        assert!(errors <= 1, "{errors} errors of one failed read");
        assert!(errors == 1 || store.rivals() == 0, "{} rivals", store.rivals());
    });
}

/// Goal: nobody waits for ever for a read that ends in any way, one reads at a time, and the
/// content is that of the block. Method: readers of two blocks whose reads land, fail or panic, in
/// a cache that keeps nothing.
#[test]
fn every_read_ends() {
    explore(|mut prng| {
        let cache = Arc::new(BlockCache::new(0));
        let leaders: Arc<[AtomicU64; 2]> = Arc::default();
        let readers = [(); READERS].map(|()| {
            let (cache, leaders) = (Arc::clone(&cache), Arc::clone(&leaders));
            let mut prng = Prng::new(prng.next_u64());
            actor("reader", move || {
                let blocks = cache.table(uid(1));
                for _ in 0..TURNS {
                    let number = prng.below(2) as u32;
                    let leads = &leaders[number as usize];
                    let read = match blocks.join_read(number) {
                        Missed::Leads(read) => read,
                        Missed::Shared(buf) => {
                            assert_eq!(buf.bytes(), [number as u8; 100], "another block");
                            continue;
                        }
                        Missed::Alone => continue,
                    };
                    assert_eq!(leads.fetch_add(1, Ordering::SeqCst), 0, "two reads of {number}");
                    delay(Duration::from_nanos(prng.below(3)));
                    let how = prng.below(4);
                    let ended = catch_panic("a read", || {
                        leads.fetch_sub(1, Ordering::SeqCst);
                        match how {
                            0 => drop(read),
                            1 => {
                                let _read = read;
                                panic_as_planned("as it was told to".to_owned());
                            }
                            _ => read.land(&Buf::from(&[number as u8; 100][..])),
                        }
                        Ok(())
                    });
                    assert_eq!(ended.is_err(), how == 1);
                }
            })
        });
        readers.into_iter().for_each(|reader| assert!(reader.join()));
        let blocks = cache.table(uid(1));
        let left = [0, 1].map(|number| matches!(blocks.join_read(number), Missed::Leads(_)));
        assert_eq!(left, [true; 2], "a read that is over is still there");
    });
}
