//! The block cache: uncompressed data blocks, keyed by (table uid, block ordinal).
//!
//! The cache counts *periods*, by which the marks of read entries fade (`base::heat`): one ends
//! when as many bytes have come in as [`PERIOD_TURNOVERS`] caches hold.
//!
//! Not here: the read of a missed block (`table`), rows (`row`), which blocks a merge hands over
//! (`compaction`). Invariants: (1) the key
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

use crate::base::buf::{Buf, HANDLE_BYTES, Room};
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
    /// Blocks that were handed over, and left the cache before anybody had read them.
    pub(crate) unread: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BlockKey {
    uid: TableUid,
    ordinal: u32,
}

/// Memory of a cached block besides its bytes: the slot (key, handle, links), its share of the hash
/// table and of the ghosts, and the reference-counted handle with its allocation. 48 + 21 * 1.5 +
/// 80, rounded up.
const BLOCK_OVERHEAD_BYTES: u64 = 160;

const _: () = assert!(size_of::<BlockKey>() + size_of::<Cached>() + LINK_BYTES <= 48);
const _: () = assert!(HANDLE_BYTES <= 64);

/// Turnovers of the cache in one period of the marks' time.
const PERIOD_TURNOVERS: u64 = 2;

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

/// The number of the period. Every hit reads it: on a line that inserts do not write.
#[derive(Default)]
#[repr(align(64))]
struct Period(AtomicU64);

/// Caches blocks up to a number of bytes. Shared between all tables of a store.
pub(crate) struct BlockCache {
    blocks: Blocks,
    lookups: LookupCounters,
    inserts: AtomicU64,
    /// Bytes that came in so far, and how many of them end the period.
    inserted_bytes: AtomicU64,
    period_ends_at: AtomicU64,
    period: Period,
    /// High-water mark of `bytes`.
    bytes_peak: AtomicU64,
    accountant: Option<Arc<Accountant>>,
    /// What the cache has held and now has not: memory for its next blocks.
    room: Room,
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
            inserted_bytes: AtomicU64::new(0),
            period_ends_at: AtomicU64::new(capacity_bytes.saturating_mul(PERIOD_TURNOVERS)),
            period: Period::default(),
            bytes_peak: AtomicU64::new(0),
            accountant,
            room: Room::default(),
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
        let bytes = buf.memory_bytes() as u64 + BLOCK_OVERHEAD_BYTES;
        self.blocks.insert(BlockKey { uid, ordinal }, buf);
        let inserted_bytes = self.inserted_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if inserted_bytes >= self.period_ends_at.load(Ordering::Relaxed) {
            self.end_period(inserted_bytes);
        }
        let inserts = self.inserts.fetch_add(1, Ordering::Relaxed) + 1;
        if inserts.is_multiple_of(ACCOUNT_EVERY) {
            self.account();
        }
    }

    /// As [`insert`](Self::insert), for a block that takes the place of others in a merge: nobody
    /// can read it before its table is published, so it counts as read once already. A newcomer to
    /// a full cache would share a small part of it with all others of the job.
    pub(crate) fn hand_over(&self, uid: TableUid, ordinal: u32, buf: Buf) {
        self.insert(uid, ordinal, buf);
        self.blocks.get(&BlockKey { uid, ordinal });
    }

    /// The period of the cache, which marks of read entries belong to.
    #[inline]
    pub(crate) fn period(&self) -> u64 {
        self.period.0.load(Ordering::Relaxed)
    }

    /// Bytes that the cache may take in without displacing a block. As of now.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.capacity().saturating_sub(self.bytes())
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
            unread: self.blocks.unread(),
        }
    }

    #[cold]
    fn end_period(&self, inserted_bytes: u64) {
        let period_bytes = self.capacity().saturating_mul(PERIOD_TURNOVERS).max(1);
        let ends_at = inserted_bytes.saturating_add(period_bytes);
        // Two threads may both be here: a period is then short, or counted once.
        self.period_ends_at.store(ends_at, Ordering::Relaxed);
        self.period.0.store(self.period() + 1, Ordering::Relaxed);
    }

    fn account(&self) {
        let bytes = self.bytes();
        let peak = self.bytes_peak.fetch_max(bytes, Ordering::Relaxed).max(bytes);
        self.room.set(peak.min(self.capacity()).saturating_sub(bytes));
        if let Some(accountant) = &self.accountant {
            accountant.set(Category::BlockCache, bytes);
            accountant.set(Category::Retained, peak - bytes + peak / FRAGMENTATION_SHARE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::heat::Heat;
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
        let expected = CacheCounters { hits: [1, 1], misses: [1, 1], inserts: 1, unread: 0 };
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

    /// Goal: a period ends after its turnovers of the cache, hits end none, and blocks that were
    /// handed over and leave before anybody has read them are counted.
    #[test]
    fn periods_end_and_unread_blocks_are_counted() {
        let cache = BlockCache::new(64 << 10);
        let turnovers = |n: u64| n * (64 << 10) / (1024 + BLOCK_OVERHEAD_BYTES);
        let period = turnovers(PERIOD_TURNOVERS);
        for ordinal in 0..period as u32 - 1 {
            cache.insert(uid(1), ordinal, block(1024));
            cache.get(uid(1), ordinal, Purpose::Foreground);
        }
        assert_eq!(cache.period(), 0);
        (0..3).for_each(|ordinal| cache.insert(uid(2), ordinal, block(1024)));
        assert_eq!(cache.period(), 1);
        let handed = |ordinal: u32| {
            let buf = Buf::handed_over(&[1; 1024], Heat::COLD, cache.period());
            cache.hand_over(uid(3), ordinal, buf);
        };
        (0..2).for_each(handed);
        let read = cache.get(uid(3), 0, Purpose::Foreground).unwrap();
        read.touch(1, cache.period());
        assert_eq!(cache.counters().unread, 0);
        cache.erase_table(uid(3), 2);
        assert_eq!(cache.counters().unread, 1);
        handed(4);
        for ordinal in 0..1000 {
            cache.insert(uid(4), ordinal, block(1024));
            cache.get(uid(4), ordinal, Purpose::Foreground);
        }
        assert!(!cache.contains(uid(3), 4));
        assert_eq!(cache.counters().unread, 2);
    }

    /// Goal: a block that is handed over to a full cache outlives as many newcomers as one that was
    /// read.
    #[test]
    fn handed_over_blocks_are_no_newcomers() {
        let cache = BlockCache::new(256 << 10);
        for ordinal in 0..400 {
            cache.insert(uid(1), ordinal, block(1024));
            cache.get(uid(1), ordinal, Purpose::Foreground);
        }
        for ordinal in 0..50 {
            let buf = Buf::handed_over(&[1; 1024], Heat::COLD, 0);
            cache.hand_over(uid(2), ordinal, buf);
            cache.insert(uid(3), ordinal, block(1024));
        }
        let kept = |of| (0..50).filter(|&ordinal| cache.contains(uid(of), ordinal)).count();
        assert_eq!(kept(2), 50);
        assert!(kept(3) < 20, "{} newcomers", kept(3));
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
