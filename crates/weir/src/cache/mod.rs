//! The block cache: uncompressed data blocks, known by their table and number.
//!
//! Each table has a *directory* ([`directory`]), an array by block number, which the opened table
//! keeps: a hit follows it to the block's *frame* (`base::frame`), counts itself there and looks
//! whether the block is still the one. It takes no lock, allocates nothing and hashes nothing. What
//! comes in and what leaves is decided in *shards* ([`shard`]), under their locks. Readers that
//! miss a block at once share one read of it ([`flights`]).
//!
//! The cache counts *periods*, by which the marks of read entries fade (`base::heat`): one ends
//! when as many bytes have come in as [`PERIOD_TURNOVERS`] caches hold.
//!
//! Not here: the read of a missed block (`table`), rows (`row`), which blocks a merge hands over
//! (`compaction`). Invariants: (1) the key is a uid that is never reused, not an address on a
//! device, so that a block of a removed table is never taken for another one (H17, H29;
//! docs/hazards.md, bug 38); (2) only blocks that were verified or just written are inserted; (3)
//! the weight of all blocks and pages stays within the capacity, at all times.
//!
//! The same calls give the same hits in every run. Callers see [`BlockCache`] and [`TableBlocks`]
//! only.

use crate::base::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::base::buf::Buf;
use crate::base::frame::FRAME_BYTES;
use crate::base::ids::TableUid;
use crate::base::memory::{Accountant, Category};
use crate::base::slabs;

mod blocks;
mod counters;
mod directory;
mod flights;
mod ghosts;
#[cfg(feature = "sim")]
mod lru;
mod queue;
#[cfg(feature = "sim")]
mod raced;
mod registry;
pub(crate) mod row;
mod shard;
#[cfg(test)]
mod shard_tests;
mod shards;
#[cfg(feature = "sim")]
mod trace;

use blocks::Blocks;
pub use blocks::Eviction;
use counters::LookupCounters;
pub(crate) use counters::Purpose;
use directory::Directory;
use flights::Flights;
pub(crate) use flights::Missed;
#[cfg(feature = "sim")]
pub use raced::{RacedCache, RacedTable};
use registry::Registry;
use shard::Arrival;
use shards::ACCOUNT_EVERY;
#[cfg(feature = "sim")]
use trace::Trace;
#[cfg(feature = "sim")]
pub use trace::{CacheCall, CacheObserver, CacheOp};

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
    /// Misses that read nothing: another reader did ([`flights`]).
    pub(crate) reads_shared: u64,
}

/// Memory of a cached block besides its bytes and its part of a page of the directory: frame, entry
/// in the queues, ghosts, and the header of the allocator.
const BLOCK_OVERHEAD_BYTES: u64 =
    (FRAME_BYTES + queue::ENTRY_BYTES + ghosts::GHOST_BYTES + 16) as u64;

/// What a block of `memory_bytes` takes of the capacity.
fn weight(memory_bytes: usize) -> u64 {
    memory_bytes as u64 + BLOCK_OVERHEAD_BYTES
}

/// Turnovers of the cache in one period of the marks' time.
const PERIOD_TURNOVERS: u64 = 2;

/// The number of the period. Every hit reads it: on a line that inserts do not write.
#[derive(Default)]
#[repr(align(64))]
struct Period(AtomicU64);

/// Caches blocks up to a number of bytes. Shared between all tables of a store.
pub(crate) struct BlockCache {
    blocks: Blocks,
    tables: Arc<Registry>,
    lookups: LookupCounters,
    flights: Flights,
    inserts: AtomicU64,
    /// Bytes that came in so far, and how many of them end the period.
    inserted_bytes: AtomicU64,
    period_ends_at: AtomicU64,
    period: Period,
    lookups_before: AtomicU64,
    accountant: Option<Arc<Accountant>>,
    #[cfg(feature = "sim")]
    trace: Trace,
}

impl BlockCache {
    /// A cache for `capacity_bytes` of blocks, overhead included. 0 holds nothing.
    #[cfg(test)]
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        Self::build(capacity_bytes, Eviction::S3Fifo, None)
    }

    /// A cache for `capacity_bytes` of blocks, overhead included. 0 holds nothing. Reports its size
    /// to `accountant` as `Category::BlockCache`, and what lies unused between blocks as
    /// `Category::Retained`.
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
            tables: Arc::default(),
            lookups: LookupCounters::default(),
            flights: Flights::new(),
            inserts: AtomicU64::new(0),
            inserted_bytes: AtomicU64::new(0),
            period_ends_at: AtomicU64::new(capacity_bytes.saturating_mul(PERIOD_TURNOVERS)),
            period: Period::default(),
            lookups_before: AtomicU64::new(0),
            accountant,
            #[cfg(feature = "sim")]
            trace: Trace::default(),
        }
    }

    /// The cache, whose calls are told to `observer`.
    #[cfg(feature = "sim")]
    pub(crate) fn observed_by(mut self, observer: Option<CacheObserver>) -> Self {
        self.trace = Trace::new(observer);
        self
    }

    /// The blocks of a table.
    pub(crate) fn table(self: &Arc<Self>, uid: TableUid) -> TableBlocks {
        TableBlocks { cache: Arc::clone(self), directory: self.directory(uid) }
    }

    fn directory(&self, uid: TableUid) -> Arc<Directory> {
        self.tables.directory(uid, self.accountant.as_ref())
    }

    /// Offers a block; false if it is not kept, or was there already.
    fn put(&self, directory: &Arc<Directory>, ordinal: u32, buf: Buf, is_used: bool) -> bool {
        debug_assert!(!buf.bytes().is_empty(), "block {ordinal} of {} is empty", directory.uid);
        #[cfg(feature = "sim")]
        {
            let op = if is_used { CacheOp::HandOver } else { CacheOp::Insert };
            self.trace.note(op, directory.uid, ordinal, buf.memory_bytes());
        }
        let bytes = weight(buf.memory_bytes());
        let arrival = if is_used { Arrival::Used } else { Arrival::New };
        if !self.blocks.insert(directory, ordinal, buf, arrival) {
            // It displaces nothing, so that no time passes.
            return false;
        }
        let inserted_bytes = self.inserted_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if inserted_bytes >= self.period_ends_at.load(Ordering::Relaxed) {
            self.end_period(inserted_bytes);
        }
        self.note_insert();
        true
    }

    /// Counts a block that came in.
    fn note_insert(&self) {
        let inserts = self.inserts.fetch_add(1, Ordering::Relaxed) + 1;
        if inserts.is_multiple_of(ACCOUNT_EVERY) {
            self.account();
        }
    }

    /// Offers a block that was just written, whose table is not open yet; else as
    /// [`TableBlocks::insert`]. False if the cache does not take it.
    pub(crate) fn insert(&self, uid: TableUid, ordinal: u32, buf: Buf) -> bool {
        self.put(&self.directory(uid), ordinal, buf, false)
    }

    /// As [`insert`](Self::insert), for a block that takes the place of others in a merge: nobody
    /// can read it before its table is published, so it counts as read once already. A newcomer to
    /// a full cache would share a small part of it with all others of the job.
    pub(crate) fn hand_over(&self, uid: TableUid, ordinal: u32, buf: Buf) -> bool {
        self.put(&self.directory(uid), ordinal, buf, true)
    }

    /// Inserts a copy of a block that was just written, which nobody has asked for, where the cache
    /// has room. False if it has none.
    pub(crate) fn insert_into_room(&self, uid: TableUid, ordinal: u32, content: &[u8]) -> bool {
        // Most blocks of a large job find a full cache: they are not copied.
        self.has_room(uid, ordinal, content.len())
            && self.put_unasked(uid, ordinal, content, Arrival::IntoRoom)
    }

    /// Inserts a copy of a block that was just written, which nobody has asked for, where blocks go
    /// on that were used: where all of a store fits, the oldest blocks are those whose tables are
    /// merged next.
    pub(crate) fn insert_unasked(&self, uid: TableUid, ordinal: u32, content: &[u8]) -> bool {
        self.put_unasked(uid, ordinal, content, Arrival::Used)
    }

    fn put_unasked(&self, uid: TableUid, ordinal: u32, content: &[u8], arrival: Arrival) -> bool {
        self.put_buf_unasked(&self.directory(uid), ordinal, Buf::unasked(content), arrival)
    }

    /// Inserts a block that nobody has asked for. No time passes by it. What it displaces is up to
    /// `arrival`: nothing where it goes into room, or else the oldest blocks, also of users.
    fn put_buf_unasked(
        &self,
        directory: &Arc<Directory>,
        ordinal: u32,
        buf: Buf,
        arrival: Arrival,
    ) -> bool {
        #[cfg(feature = "sim")]
        let bytes = buf.memory_bytes();
        let is_kept = self.blocks.insert(directory, ordinal, buf, arrival);
        if is_kept {
            #[cfg(feature = "sim")]
            self.trace.note(CacheOp::Insert, directory.uid, ordinal, bytes);
            self.note_insert();
        }
        is_kept
    }

    /// Whether at least the capacity divided by `divisor` is free, and something.
    pub(crate) fn is_free_for(&self, divisor: u64) -> bool {
        let (bytes, capacity) = (self.bytes(), self.capacity());
        bytes.saturating_add(capacity / divisor) <= capacity && capacity > 0
    }

    /// The period of the cache, which marks of read entries belong to.
    #[inline]
    pub(crate) fn period(&self) -> u64 {
        self.period.0.load(Ordering::Relaxed)
    }

    /// Whether the cache has room for a block without displacing another, where this one belongs:
    /// what other shards have left does not help it. As of now.
    pub(crate) fn has_room(&self, uid: TableUid, ordinal: u32, memory_bytes: usize) -> bool {
        self.blocks.has_room(uid, ordinal, memory_bytes)
    }

    /// Erases one block of a table that was not published, if it is cached. It does not count as
    /// left unread: nobody could read it.
    pub(crate) fn erase(&self, uid: TableUid, ordinal: u32) {
        #[cfg(feature = "sim")]
        self.trace.note(CacheOp::Erase, uid, ordinal, 0);
        self.blocks.erase(&self.directory(uid), ordinal);
    }

    /// Erases all cached blocks of a table that has `blocks` blocks. O(blocks / 8).
    pub(crate) fn erase_table(&self, uid: TableUid, blocks: u32) {
        #[cfg(feature = "sim")]
        self.trace.note(CacheOp::EraseTable, uid, blocks, 0);
        self.blocks.erase_table(&self.directory(uid), blocks);
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

    /// Lookups of users so far, found or not; as [`counters`](Self::counters).
    pub(crate) fn lookups_of_users(&self) -> u64 {
        let of_users = |counts: [u64; 2]| counts[Purpose::Foreground as usize];
        of_users(self.lookups.hits()) + of_users(self.lookups.misses())
    }

    /// Lookups of users when this was last called; 0 before that. Each job begins with it: who
    /// reads at all has read since the job before.
    pub(crate) fn begin_job(&self) -> u64 {
        // Of two jobs that begin at once both may get the same: nothing depends on that.
        let before = self.lookups_before.load(Ordering::Relaxed);
        self.lookups_before.store(self.lookups_of_users(), Ordering::Relaxed);
        before
    }

    /// The counters, summed over all threads. No snapshot: they are read one after the other.
    pub(crate) fn counters(&self) -> CacheCounters {
        CacheCounters {
            hits: self.lookups.hits(),
            misses: self.lookups.misses(),
            inserts: self.inserts.load(Ordering::Relaxed),
            unread: self.blocks.unread(),
            reads_shared: self.flights.shared(),
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
        let Some(accountant) = &self.accountant else { return };
        let bytes = self.bytes();
        accountant.set(Category::BlockCache, bytes);
        accountant.set(Category::Retained, retained(bytes));
    }
}

/// What lies unused between the blocks of a cache that holds `bytes`: its part of what the process
/// has in slabs.
fn retained(bytes: u64) -> u64 {
    // What other simulations of the process hold must not matter.
    #[cfg(feature = "sim")]
    if crate::base::sched::sim::is_actor() {
        return bytes / 16;
    }
    let slabs::Use { mapped, slots } = slabs::use_now();
    let part = bytes as f64 / (slots as f64).max(bytes as f64).max(1.0);
    (mapped.saturating_sub(slots) as f64 * part) as u64
}

/// The blocks of one table in its cache.
pub(crate) struct TableBlocks {
    cache: Arc<BlockCache>,
    directory: Arc<Directory>,
}

impl TableBlocks {
    /// The cache.
    pub(crate) fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// The block, if it is cached. Counts a hit or a miss and, for the foreground, makes the block
    /// hotter. A hit takes no lock and allocates nothing.
    #[inline]
    pub(crate) fn get(&self, ordinal: u32, purpose: Purpose) -> Option<Buf> {
        let (blocks, directory) = (&self.cache.blocks, &*self.directory);
        let found = match purpose {
            Purpose::Foreground => blocks.get(directory, ordinal),
            Purpose::Background => blocks.peek(directory, ordinal),
        };
        self.cache.lookups.count(purpose, found.is_some());
        #[cfg(feature = "sim")]
        self.note_lookup(purpose, ordinal, found.as_ref());
        found
    }

    /// Requests the memory that names the block's page, for a lookup soon.
    #[inline]
    pub(crate) fn request_place(&self, ordinal: u32) {
        self.directory.request_page(ordinal);
    }

    /// Requests the block's frame, through its page, for a lookup soon.
    #[inline]
    pub(crate) fn request(&self, ordinal: u32) {
        self.directory.request_frame(ordinal);
    }

    /// As [`get`](Self::get) for the foreground, but a miss is not counted: the caller calls `get`
    /// later.
    #[inline]
    pub(crate) fn probe(&self, ordinal: u32) -> Option<Buf> {
        let found = self.cache.blocks.get(&self.directory, ordinal)?;
        self.cache.lookups.count(Purpose::Foreground, true);
        #[cfg(feature = "sim")]
        self.note_lookup(Purpose::Foreground, ordinal, Some(&found));
        Some(found)
    }

    /// Whether the block is cached. Neither counts nor makes the block hotter.
    pub(crate) fn contains(&self, ordinal: u32) -> bool {
        self.cache.blocks.contains(&self.directory, ordinal)
    }

    /// Blocks that are cached, counted as they come and leave. `None` under a rule of experiments.
    pub(crate) fn count(&self) -> Option<u64> {
        self.cache.blocks.count(&self.directory)
    }

    /// Offers a verified block. The cache may evict others for it, or refuse it if it is larger
    /// than a shard. A block that is cached already stays instead.
    pub(crate) fn insert(&self, ordinal: u32, buf: Buf) {
        self.cache.put(&self.directory, ordinal, buf, false);
    }

    /// Whether a block of so many bytes would displace no other. As of now.
    pub(crate) fn has_room(&self, ordinal: u32, memory_bytes: usize) -> bool {
        self.cache.has_room(self.directory.uid, ordinal, memory_bytes)
    }

    /// As [`BlockCache::insert_into_room`], for a verified block.
    pub(crate) fn insert_into_room(&self, ordinal: u32, buf: Buf) {
        let (directory, buf) = (&self.directory, buf.into_unasked());
        self.cache.put_buf_unasked(directory, ordinal, buf, Arrival::IntoRoom);
    }

    /// Whether a block is cached that somebody has read, or that was handed over for what others
    /// have read of it. As [`contains`](Self::contains).
    pub(crate) fn contains_asked(&self, ordinal: u32) -> bool {
        self.cache.blocks.peek(&self.directory, ordinal).is_some_and(|buf| !buf.is_unasked())
    }

    #[cfg(feature = "sim")]
    fn note_lookup(&self, purpose: Purpose, ordinal: u32, found: Option<&Buf>) {
        let op = match purpose {
            Purpose::Foreground => CacheOp::Get,
            Purpose::Background => CacheOp::Peek,
        };
        let bytes = found.map_or(0, Buf::memory_bytes);
        self.cache.trace.note(op, self.directory.uid, ordinal, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::heat::Heat;
    use crate::base::ids::uid;

    /// As callers of tables ask, by uid.
    impl BlockCache {
        fn get(self: &Arc<Self>, uid: TableUid, ordinal: u32, purpose: Purpose) -> Option<Buf> {
            self.table(uid).get(ordinal, purpose)
        }

        fn contains(self: &Arc<Self>, uid: TableUid, ordinal: u32) -> bool {
            self.table(uid).contains(ordinal)
        }
    }

    fn new(capacity_bytes: u64) -> Arc<BlockCache> {
        Arc::new(BlockCache::new(capacity_bytes))
    }

    fn block(bytes: usize) -> Buf {
        Buf::unfilled(bytes)
    }

    #[test]
    fn hits_and_misses_are_counted_by_purpose() {
        let cache = new(1 << 20);
        assert!(cache.get(uid(1), 0, Purpose::Foreground).is_none());
        cache.insert(uid(1), 0, block(100));
        assert!(cache.get(uid(1), 0, Purpose::Foreground).is_some());
        assert!(cache.get(uid(1), 0, Purpose::Background).is_some());
        assert!(cache.get(uid(2), 0, Purpose::Background).is_none(), "the uid is part of the key");
        let expected =
            CacheCounters { hits: [1, 1], misses: [1, 1], inserts: 1, ..CacheCounters::default() };
        assert_eq!(cache.counters(), expected);
        assert!(cache.contains(uid(1), 0) && !cache.contains(uid(1), 1));
    }

    /// Goal: what nobody asked for displaces nothing, leaves first, and is a newcomer like any
    /// other when it comes back: it was not wanted twice.
    #[test]
    fn what_nobody_asked_for_goes_into_room() {
        let cache = new(64 << 10);
        let (asked, unasked) = (cache.table(uid(1)), cache.table(uid(2)));
        (0..30).for_each(|ordinal| asked.insert(ordinal, block(1000)));
        let content = [7; 1000];
        let came = (0..100).filter(|&n| cache.insert_into_room(uid(2), n, &content)).count();
        assert!((15..40).contains(&came), "{came} came into what was left");
        assert!((0..30).all(|ordinal| asked.contains(ordinal)), "none left for them");
        assert!(!unasked.contains_asked(0) && unasked.contains(0) && asked.contains_asked(0));
        assert!(!cache.is_free_for(8) && cache.bytes() <= 64 << 10);
        // They are read once each, as by a scan, when others have driven them out: what is read
        // again and again stays.
        let hot = cache.table(uid(3));
        for _ in 0..3 {
            for ordinal in 0..30 {
                if hot.get(ordinal, Purpose::Foreground).is_none() {
                    hot.insert(ordinal, block(1000));
                }
            }
        }
        for ordinal in 0..100 {
            if unasked.get(ordinal, Purpose::Foreground).is_none() {
                unasked.insert(ordinal, block(1000));
            }
        }
        let left = (0..30).filter(|&ordinal| hot.contains(ordinal)).count();
        assert!(left >= 28, "{left} of 30 hot blocks stayed");
    }

    /// The cache stays within its capacity, also after the capacity shrinks, and reports to the
    /// accountant; erasing a table does not affect others.
    #[test]
    fn capacity_holds_and_erasing_is_per_table() {
        let accountant = Accountant::new(1 << 30);
        let eviction = Eviction::default();
        let cache = BlockCache::with_accountant(64 << 10, eviction, Arc::clone(&accountant));
        let cache = Arc::new(cache);
        for ordinal in 0..1000 {
            cache.insert(uid(u64::from(ordinal) % 2), ordinal, block(1000));
            assert!(cache.bytes() <= 64 << 10);
        }
        assert!(cache.bytes() > 32 << 10, "the cache must not evict what fits");
        cache.erase_table(uid(0), 1000);
        assert!((0..1000).all(|ordinal| !cache.contains(uid(0), ordinal)));
        assert!((0..1000).any(|ordinal| cache.contains(uid(1), ordinal)));
        assert_eq!(accountant.used(Category::BlockCache), cache.bytes());
        cache.set_capacity(8 << 10);
        assert!(cache.bytes() <= 8 << 10);
        assert!(cache.capacity() <= 8 << 10);
        assert_eq!(accountant.used(Category::BlockCache), cache.bytes());
    }

    /// Goal: a period ends after its turnovers of the cache, hits end none, and blocks that were
    /// handed over and leave before anybody has read them are counted.
    #[test]
    fn periods_end_and_unread_blocks_are_counted() {
        let cache = new(64 << 10);
        let turnovers = |n: u64| n * (64 << 10) / (1024 + BLOCK_OVERHEAD_BYTES);
        let period = turnovers(PERIOD_TURNOVERS);
        for ordinal in 0..period as u32 - 1 {
            cache.insert(uid(1), ordinal, block(1024));
            cache.get(uid(1), ordinal, Purpose::Foreground);
        }
        assert_eq!(cache.period(), 0);
        assert!((0..3).all(|ordinal| cache.insert(uid(2), ordinal, block(1024))));
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
        let cache = new(256 << 10);
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
        let cache = Arc::new(BlockCache::with_accountant(300, Eviction::Lru, accountant));
        assert!((0..3).all(|ordinal| cache.insert(uid(1), ordinal, block(100))));
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
        let cache = new(0);
        cache.insert(uid(1), 0, block(10));
        assert!(cache.get(uid(1), 0, Purpose::Foreground).is_none());
        assert_eq!(cache.bytes(), 0);
    }

    /// A handle keeps its block after the cache has dropped it.
    #[test]
    fn blocks_in_use_outlive_the_cache() {
        let cache = new(1 << 20);
        cache.insert(uid(1), 0, Buf::from(&b"abc"[..]));
        let held = cache.get(uid(1), 0, Purpose::Foreground).unwrap();
        cache.erase_table(uid(1), 1);
        drop(cache);
        assert_eq!(held.bytes(), b"abc");
    }
}
