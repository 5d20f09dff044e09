//! The race of block caches: what caches were asked for ([`trace`], [`mixes`]), asked of several.
//!
//! In a replay a lookup that finds nothing is followed by the insertion of the block, as in the
//! store, if its size is known by then; otherwise by the insertion that the trace has. Lookups of
//! merges insert nothing and count nothing. The first tenth of a trace fills the caches: its
//! lookups do not count.
//!
//! The contenders are the product's cache and the LRU of the papers, both the engine's own code,
//! and CLOCK-Pro as `quick_cache` has it, which was the engine's first block cache: with the same
//! number of shards, and the memory of a block as its weight. It is here only.

use std::collections::BTreeMap;
use std::sync::Arc;

use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};
use weir::sim::{CacheCall, CacheOp, Eviction, FixedState, RacedCache, RacedTable};
use weir_bench::Stopwatch;

pub mod mixes;
pub mod trace;

/// Who races.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// The product's cache.
    Product,
    /// The first one.
    ClockPro,
    /// LevelDB's, as the papers have it.
    Lru,
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Product, Self::ClockPro, Self::Lru];

    /// Its name in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Product => "product",
            Self::ClockPro => "CLOCK-Pro",
            Self::Lru => "LRU",
        }
    }
}

/// What came out of one replay.
#[derive(Clone, Copy, Debug)]
pub struct Lap {
    /// Lookups of users that found their block, of all that count.
    pub hit_ratio: f64,
    /// Of one call of the trace, on this machine: mean.
    pub nanos: f64,
}

/// A cache of numbered tables.
trait Raced {
    fn get(&self, table: usize, ordinal: u32) -> bool;
    fn contains(&self, table: usize, ordinal: u32) -> bool;
    fn insert(&self, table: usize, ordinal: u32, bytes: usize);
    fn hand_over(&self, table: usize, ordinal: u32, bytes: usize);
    fn erase(&self, table: usize, ordinal: u32);
    fn erase_all(&self, table: usize, blocks: u32);
}

/// The engine's.
struct Engine {
    tables: Vec<RacedTable>,
    _cache: RacedCache,
}

impl Engine {
    fn new(capacity_bytes: u64, eviction: Eviction, uids: &[u64]) -> Self {
        let cache = RacedCache::new(capacity_bytes, eviction);
        let tables = uids.iter().map(|uid| cache.table(*uid)).collect();
        Self { tables, _cache: cache }
    }
}

impl Raced for Engine {
    fn get(&self, table: usize, ordinal: u32) -> bool {
        self.tables[table].get(ordinal)
    }
    fn contains(&self, table: usize, ordinal: u32) -> bool {
        self.tables[table].contains(ordinal)
    }
    fn insert(&self, table: usize, ordinal: u32, bytes: usize) {
        self.tables[table].insert(ordinal, bytes);
    }
    fn hand_over(&self, table: usize, ordinal: u32, bytes: usize) {
        self.tables[table].hand_over(ordinal, bytes);
    }
    fn erase(&self, table: usize, ordinal: u32) {
        self.tables[table].erase(ordinal);
    }
    fn erase_all(&self, table: usize, blocks: u32) {
        self.tables[table].erase_all(blocks);
    }
}

/// Memory of a block of the first cache besides its bytes.
const CLOCK_PRO_OVERHEAD_BYTES: u64 = 160;

#[derive(Clone)]
struct ByBytes;

impl Weighter<(u64, u32), Arc<Vec<u8>>> for ByBytes {
    fn weight(&self, _: &(u64, u32), block: &Arc<Vec<u8>>) -> u64 {
        block.capacity() as u64 + CLOCK_PRO_OVERHEAD_BYTES
    }
}

type Blocks = Cache<(u64, u32), Arc<Vec<u8>>, ByBytes, FixedState>;

/// The first cache.
struct ClockPro {
    blocks: Blocks,
    uids: Vec<u64>,
}

impl ClockPro {
    fn new(capacity_bytes: u64, uids: &[u64]) -> Self {
        let shards = 1usize << (capacity_bytes >> 20).clamp(1, 16).ilog2();
        let items = usize::try_from(capacity_bytes / 4096).unwrap_or(usize::MAX);
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(items.clamp(32, 1 << 22))
            .weight_capacity(capacity_bytes)
            .build();
        let options = options.expect("all required options of the cache are set just above");
        let blocks = Cache::with_options(
            options,
            ByBytes,
            FixedState,
            quick_cache::sync::DefaultLifecycle::default(),
        );
        Self { blocks, uids: uids.to_vec() }
    }
}

impl Raced for ClockPro {
    fn get(&self, table: usize, ordinal: u32) -> bool {
        std::hint::black_box(self.blocks.get(&(self.uids[table], ordinal))).is_some()
    }
    fn contains(&self, table: usize, ordinal: u32) -> bool {
        self.blocks.contains_key(&(self.uids[table], ordinal))
    }
    fn insert(&self, table: usize, ordinal: u32, bytes: usize) {
        self.blocks.insert((self.uids[table], ordinal), Arc::new(vec![0; bytes]));
    }
    fn hand_over(&self, table: usize, ordinal: u32, bytes: usize) {
        self.insert(table, ordinal, bytes);
        self.get(table, ordinal);
    }
    fn erase(&self, table: usize, ordinal: u32) {
        self.blocks.remove(&(self.uids[table], ordinal));
    }
    fn erase_all(&self, table: usize, blocks: u32) {
        for ordinal in 0..blocks {
            if self.contains(table, ordinal) {
                self.erase(table, ordinal);
            }
        }
    }
}

/// A trace whose tables are numbered from 0.
pub struct Course {
    calls: Vec<(CacheCall, usize)>,
    uids: Vec<u64>,
}

impl Course {
    /// Of a trace.
    #[must_use]
    pub fn new(calls: &[CacheCall]) -> Self {
        let mut numbers = BTreeMap::new();
        let mut uids = Vec::new();
        let number = |call: &CacheCall| {
            let number = *numbers.entry(call.uid).or_insert_with(|| {
                uids.push(call.uid);
                uids.len() - 1
            });
            (*call, number)
        };
        Self { calls: calls.iter().map(number).collect(), uids }
    }

    /// Lookups of users.
    #[must_use]
    pub fn lookups(&self) -> usize {
        self.calls.iter().filter(|(call, _)| call.op == CacheOp::Get).count()
    }

    /// Replays the trace in a new cache.
    #[must_use]
    pub fn lap(&self, contender: Contender, capacity_bytes: u64) -> Lap {
        match contender {
            Contender::Product => {
                self.replay(&Engine::new(capacity_bytes, Eviction::S3Fifo, &self.uids))
            }
            Contender::Lru => self.replay(&Engine::new(capacity_bytes, Eviction::Lru, &self.uids)),
            Contender::ClockPro => self.replay(&ClockPro::new(capacity_bytes, &self.uids)),
        }
    }

    fn replay(&self, cache: &impl Raced) -> Lap {
        let mut sizes: Vec<BTreeMap<u32, usize>> = vec![BTreeMap::new(); self.uids.len()];
        let (mut hits, mut lookups) = (0u64, 0u64);
        let clock = Stopwatch::start();
        for (place, (call, table)) in self.calls.iter().enumerate() {
            let (table, ordinal, bytes) = (*table, call.ordinal, call.bytes as usize);
            if bytes > 0 && call.op != CacheOp::Get {
                sizes[table].insert(ordinal, bytes);
            }
            match call.op {
                CacheOp::Get => {
                    let is_hit = cache.get(table, ordinal);
                    if place >= self.calls.len() / 10 {
                        lookups += 1;
                        hits += u64::from(is_hit);
                    }
                    let known = || sizes[table].get(&ordinal).copied();
                    if !is_hit && let Some(bytes) = Some(bytes).filter(|b| *b > 0).or_else(known) {
                        cache.insert(table, ordinal, bytes);
                    }
                }
                CacheOp::Peek => {}
                CacheOp::Insert if cache.contains(table, ordinal) => {}
                CacheOp::Insert => cache.insert(table, ordinal, bytes),
                CacheOp::HandOver => cache.hand_over(table, ordinal, bytes),
                CacheOp::Erase => cache.erase(table, ordinal),
                CacheOp::EraseTable => {
                    cache.erase_all(table, ordinal);
                    sizes[table].clear();
                }
            }
        }
        let nanos = clock.elapsed().as_nanos() as f64 / self.calls.len().max(1) as f64;
        Lap { hit_ratio: hits as f64 / lookups.max(1) as f64, nanos }
    }
}
