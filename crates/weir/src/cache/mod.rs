//! The block cache: uncompressed data blocks, keyed by (table uid, block ordinal).
//!
//! Not here: the read of a missed block (`table`), rows (`row`), hand-off. Invariants: (1) the key
//! is a uid that is never reused, not an address on a device, so that a block of a removed table is
//! never taken for another one (H17, H29; docs/hazards.md, bug 38); (2) only blocks that were
//! verified or just written are inserted; (3) the weight of all blocks stays within the capacity,
//! up to one block per shard.
//!
//! A hit takes one shard's lock for reading, prefetches the block's head and clones one handle. The
//! same calls give the same hits in every run. Callers see [`BlockCache`] only, so that the cache
//! behind it (`blocks`) can be replaced.

use crate::base::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::base::buf::Buf;
use crate::base::ids::TableUid;
use crate::base::memory::{Accountant, Category};
use crate::base::prefetch::prefetch_lines;

mod blocks;
mod counters;
#[cfg(feature = "sim")]
mod lru;
pub(crate) mod row;
mod shards;

use blocks::Blocks;
pub use blocks::Eviction;
use counters::LookupCounters;
pub(crate) use counters::Purpose;
use shards::{ACCOUNT_EVERY, LINK_BYTES};

/// Counters of the cache since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheCounters {
    /// Blocks found, indexed by [`Purpose`].
    pub(crate) hits: [u64; 2],
    /// Blocks not found, indexed by [`Purpose`].
    pub(crate) misses: [u64; 2],
    /// Blocks inserted.
    pub(crate) inserts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BlockKey {
    uid: TableUid,
    ordinal: u32,
}

/// Memory of a cached block besides its bytes: the slot (key, handle, links), its share of the hash
/// table and of the ghosts, and the reference-counted handle with its allocation. 48 + 21 * 1.5 +
/// 48, rounded up.
const BLOCK_OVERHEAD_BYTES: u64 = 128;

const _: () = assert!(size_of::<BlockKey>() + size_of::<Cached>() + LINK_BYTES <= 48);

/// Cache lines at the beginning of a block that every hit prefetches: header and columns of a block
/// of 4 KiB with about 35 entries (docs/format/block.md). A search reads them first, one after the
/// other; in longer columns it touches few lines.
const HEAD_LINES: usize = 9;

/// A block in the cache. A hit clones it: the clone prefetches the block's head before it waits for
/// the reference count, which lies elsewhere.
struct Cached {
    buf: Buf,
    /// Address of the block's bytes.
    start: usize,
}

impl From<Buf> for Cached {
    fn from(buf: Buf) -> Self {
        Self { start: buf.bytes().as_ptr().addr(), buf }
    }
}

impl Clone for Cached {
    #[inline]
    fn clone(&self) -> Self {
        debug_assert_eq!(self.start, self.buf.bytes().as_ptr().addr(), "a cached block moved");
        prefetch_lines(std::ptr::without_provenance(self.start), HEAD_LINES);
        Self { buf: self.buf.clone(), start: self.start }
    }
}

/// Fraction of the cache's high-water mark lost to allocator fragmentation: 1/16 (measured: 11 to
/// 14 MiB of 117 with glibc).
const FRAGMENTATION_SHARE: u64 = 16;

/// Caches blocks up to a number of bytes. Shared between all tables of a store.
pub(crate) struct BlockCache {
    blocks: Blocks,
    lookups: LookupCounters,
    inserts: AtomicU64,
    /// High-water mark of `bytes`.
    bytes_peak: AtomicU64,
    accountant: Option<Arc<Accountant>>,
}

impl BlockCache {
    /// A cache for `capacity_bytes` of blocks, overhead included. 0 holds nothing.
    #[cfg(test)]
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        Self::build(capacity_bytes, Eviction::ClockPro, None)
    }

    /// A cache for `capacity_bytes` of blocks, overhead included. 0 holds nothing. Reports its size
    /// to `accountant` as `Category::BlockCache`, and memory that the allocator keeps after
    /// evictions as `Category::Retained`.
    pub(crate) fn with_accountant(
        capacity_bytes: u64,
        eviction: Eviction,
        accountant: Arc<Accountant>,
    ) -> Self {
        Self::build(capacity_bytes, eviction, Some(accountant))
    }

    fn build(capacity_bytes: u64, eviction: Eviction, accountant: Option<Arc<Accountant>>) -> Self {
        Self {
            blocks: Blocks::new(capacity_bytes, eviction),
            lookups: LookupCounters::default(),
            inserts: AtomicU64::new(0),
            bytes_peak: AtomicU64::new(0),
            accountant,
        }
    }

    /// The block, if it is cached. Counts a hit or a miss and, for the foreground, makes the block
    /// hotter.
    #[inline]
    pub(crate) fn get(&self, uid: TableUid, ordinal: u32, purpose: Purpose) -> Option<Buf> {
        let key = BlockKey { uid, ordinal };
        let found = match purpose {
            Purpose::Foreground => self.blocks.get(&key),
            Purpose::Background => self.blocks.peek(&key),
        };
        self.lookups.count(purpose, found.is_some());
        found
    }

    /// As [`get`](Self::get) for the foreground, but a miss is not counted: the caller calls `get`
    /// later.
    #[inline]
    pub(crate) fn probe(&self, uid: TableUid, ordinal: u32) -> Option<Buf> {
        let found = self.blocks.get(&BlockKey { uid, ordinal })?;
        self.lookups.count(Purpose::Foreground, true);
        Some(found)
    }

    /// Whether the block is cached. Neither counts nor makes the block hotter.
    pub(crate) fn contains(&self, uid: TableUid, ordinal: u32) -> bool {
        self.blocks.contains(&BlockKey { uid, ordinal })
    }

    /// Offers a verified block. The cache may evict others for it, or refuse it if it is larger
    /// than a shard.
    pub(crate) fn insert(&self, uid: TableUid, ordinal: u32, buf: Buf) {
        debug_assert!(!buf.bytes().is_empty(), "block {ordinal} of table {uid} is empty");
        self.blocks.insert(BlockKey { uid, ordinal }, buf);
        let inserts = self.inserts.fetch_add(1, Ordering::Relaxed) + 1;
        if inserts.is_multiple_of(ACCOUNT_EVERY) {
            self.account();
        }
    }

    /// Erases one block, if it is cached.
    pub(crate) fn erase(&self, uid: TableUid, ordinal: u32) {
        self.blocks.remove(&BlockKey { uid, ordinal });
    }

    /// Erases all cached blocks of a table that has `blocks` blocks. O(blocks).
    pub(crate) fn erase_table(&self, uid: TableUid, blocks: u32) {
        for ordinal in 0..blocks {
            let key = BlockKey { uid, ordinal };
            // A read lock rules out most ordinals before the write lock is taken.
            if self.blocks.contains(&key) {
                self.blocks.remove(&key);
            }
        }
        self.account();
    }

    /// Bytes held now, overhead included.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.bytes()
    }

    /// Bytes that may be held.
    pub(crate) fn capacity(&self) -> u64 {
        self.blocks.capacity()
    }

    /// Changes the capacity; evicts what exceeds it. The number of shards stays.
    pub(crate) fn set_capacity(&self, capacity_bytes: u64) {
        self.blocks.set_capacity(capacity_bytes);
        self.account();
    }

    /// The counters, summed over all threads. No snapshot: they are read one after the other.
    pub(crate) fn counters(&self) -> CacheCounters {
        CacheCounters {
            hits: self.lookups.hits(),
            misses: self.lookups.misses(),
            inserts: self.inserts.load(Ordering::Relaxed),
        }
    }

    fn account(&self) {
        if let Some(accountant) = &self.accountant {
            let bytes = self.bytes();
            let peak = self.bytes_peak.fetch_max(bytes, Ordering::Relaxed).max(bytes);
            accountant.set(Category::BlockCache, bytes);
            accountant.set(Category::Retained, peak - bytes + peak / FRAGMENTATION_SHARE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::uid;

    fn block(bytes: usize) -> Buf {
        Buf::unfilled(bytes)
    }

    #[test]
    fn hits_and_misses_are_counted_by_purpose() {
        let cache = BlockCache::new(1 << 20);
        assert!(cache.get(uid(1), 0, Purpose::Foreground).is_none());
        cache.insert(uid(1), 0, block(100));
        assert!(cache.get(uid(1), 0, Purpose::Foreground).is_some());
        assert!(cache.get(uid(1), 0, Purpose::Background).is_some());
        assert!(cache.get(uid(2), 0, Purpose::Background).is_none(), "the uid is part of the key");
        let expected = CacheCounters { hits: [1, 1], misses: [1, 1], inserts: 1 };
        assert_eq!(cache.counters(), expected);
        assert!(cache.contains(uid(1), 0) && !cache.contains(uid(1), 1));
    }

    /// The cache stays within its capacity, also after the capacity shrinks, and reports to the
    /// accountant; erasing a table does not affect others.
    #[test]
    fn capacity_holds_and_erasing_is_per_table() {
        let accountant = Accountant::new(1 << 30);
        let eviction = Eviction::default();
        let cache = BlockCache::with_accountant(64 << 10, eviction, Arc::clone(&accountant));
        for ordinal in 0..1000 {
            cache.insert(uid(u64::from(ordinal) % 2), ordinal, block(1000));
            assert!(cache.bytes() <= 64 << 10);
        }
        assert!(cache.bytes() > 32 << 10, "the cache must not evict what fits");
        cache.erase_table(uid(0), 1000);
        assert!((0..1000).all(|ordinal| !cache.contains(uid(0), ordinal)));
        assert!((0..1000).any(|ordinal| cache.contains(uid(1), ordinal)));
        assert_eq!(accountant.used(Category::BlockCache), cache.bytes());
        let held = accountant.used_total();
        assert!(held > cache.bytes(), "erasing gives nothing back to the system");
        cache.set_capacity(8 << 10);
        assert_eq!(accountant.used_total(), held);
        assert!(cache.bytes() <= 8 << 10);
        assert!(cache.capacity() <= 8 << 10);
        assert_eq!(accountant.used(Category::BlockCache), cache.bytes());
    }

    /// Goal: with the papers' rule a block weighs its bytes, and the one that was used last stays.
    #[cfg(feature = "sim")]
    #[test]
    fn the_least_recently_used_block_leaves() {
        let accountant = Accountant::new(1 << 30);
        let cache = BlockCache::with_accountant(300, Eviction::Lru, accountant);
        (0..3).for_each(|ordinal| cache.insert(uid(1), ordinal, block(100)));
        assert_eq!((cache.bytes(), cache.capacity()), (300, 300));
        assert!(cache.get(uid(1), 0, Purpose::Foreground).is_some());
        assert!(cache.get(uid(1), 1, Purpose::Background).is_some(), "no use of it");
        cache.insert(uid(2), 0, block(100));
        assert!(cache.contains(uid(1), 0) && !cache.contains(uid(1), 1));
        cache.erase_table(uid(1), 3);
        assert_eq!(cache.bytes(), 100);
        cache.set_capacity(50);
        assert_eq!((cache.bytes(), cache.capacity()), (0, 50));
    }

    #[test]
    fn a_cache_of_nothing_holds_nothing() {
        let cache = BlockCache::new(0);
        cache.insert(uid(1), 0, block(10));
        assert!(cache.get(uid(1), 0, Purpose::Foreground).is_none());
        assert_eq!(cache.bytes(), 0);
    }

    /// A handle keeps its block after the cache has dropped it.
    #[test]
    fn blocks_in_use_outlive_the_cache() {
        let cache = BlockCache::new(1 << 20);
        cache.insert(uid(1), 0, Buf::from(&b"abc"[..]));
        let held = cache.get(uid(1), 0, Purpose::Foreground).unwrap();
        cache.erase_table(uid(1), 1);
        drop(cache);
        assert_eq!(held.bytes(), b"abc");
    }
}
