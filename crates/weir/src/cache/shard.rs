//! A shard: some of a cache's blocks, and which of them leaves when there is no room.
//!
//! Newcomers go into a small queue. Who was used there until its end goes on into the main queue,
//! who was not leaves, and a *ghost* of it stays: if it comes back while its ghost is there, it
//! goes into the main queue at once. In the main queue a used block begins again at the front, with
//! one use less, and an unused one leaves. So blocks of a scan pass through the small queue and
//! displace nothing else.
//!
//! A hit takes no lock and moves nothing: it counts a use in the block's frame, up to [`USES_MAX`].
//! All else is under the shard's lock, a leaf, held for a few hundred instructions, and for at most
//! [`RENEWALS_MAX`] blocks that begin again, however many there are; what leaves is freed after it.
//!
//! Not here: how a hit finds a block (`directory`). Invariants: (1) an entry of the queues, a link
//! in a page and a claimed frame are the same blocks; (2) `bytes` is the sum of their weights and
//! of the shard's pages in use, and at no time more than the capacity; (3) the same calls leave the
//! same blocks: nothing depends on addresses.
//!
//! Source: Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP
//! 2023 (S3-FIFO). We differ, each by what the traces of the laboratory's race say (`weir-lab
//! cache-race`): the small queue is a tenth of theirs, one use there is enough, more uses are
//! counted, and ghosts fade sooner. A use more for a block that is handed over costs 0.9 points
//! where merges follow one another: it is in the way for a round if nobody reads it.

use std::sync::Arc;

use super::directory::{Directory, PAGE_BYTES, Page};
use super::ghosts::Ghosts;
use super::queue::{Cached, Entries, Queue};
use super::weight;
use crate::base::atomic::{AtomicU64, LeafMutex, Ordering};
use crate::base::checksum::FixedState;
use crate::base::frame::{Frame, Handle};
use crate::base::pointer::Pointer;

/// Uses that are counted: a block of the main queue survives so many rounds without another. With 3
/// instead of 7 the race's Zipfian traces lose 0.2 to 0.5 points.
pub(super) const USES_MAX: u32 = 7;

/// The part of a shard that the small queue keeps when there is no room: 1 %. With 10 % the race's
/// Zipfian traces lose 0.3 to 0.8 points, and that of scans 2.
const SMALL_DIVISOR: u64 = 100;

/// Used blocks that begin again while one to be evicted is looked for. After so many the least used
/// of them leaves: where every block was read often, which is after a long time without a miss, all
/// of them would have to lose their uses first, a million in a shard of a large cache.
const RENEWALS_MAX: usize = 128;

/// Pages made at a time, when there is none left of earlier caches.
const PAGES: usize = 32;

/// Pages of caches that are no more. Not a lock of `sched`: it must not be a switch point.
static FREE_PAGES: parking_lot::Mutex<Vec<&'static Page>> = parking_lot::Mutex::new(Vec::new());

/// What left, to be freed after the lock: mostly one block makes room for one.
#[derive(Default)]
pub(super) struct Left {
    first: Option<(Handle, Arc<Directory>)>,
    rest: Vec<(Handle, Arc<Directory>)>,
}

impl Left {
    fn push(&mut self, block: (Handle, Arc<Directory>)) {
        match self.first {
            None => self.first = Some(block),
            Some(_) => self.rest.push(block),
        }
    }
}

/// Why a block is erased.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Its table is removed. It counts as unread if it was handed over and nobody read it.
    Left,
    /// Nobody could read it: its table is not published.
    TakenBack,
}

/// How a block comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// As a newcomer.
    New,
    /// Where newcomers go on that were used.
    Used,
    /// As a newcomer, and only where no other one leaves for it.
    IntoRoom,
}

/// Blocks of one shard, under its lock.
struct Queues {
    entries: Entries,
    ghosts: Ghosts,
    /// Pages without a block.
    pages: Vec<&'static Page>,
    bytes: u64,
    capacity: u64,
    unread: u64,
}

/// See the module.
pub(super) struct Shard {
    queues: LeafMutex<Queues>,
    /// As in `queues`, for readers.
    bytes: AtomicU64,
}

fn hash((uid, ordinal): (u64, u32)) -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = FixedState.build_hasher();
    hasher.write_u64(uid);
    hasher.write_u32(ordinal);
    (hasher.finish() >> 32) as u32
}

impl Shard {
    pub(super) fn new(capacity: u64) -> Self {
        let queues = Queues {
            entries: Entries::new(),
            ghosts: Ghosts::new(),
            pages: Vec::new(),
            bytes: 0,
            capacity,
            unread: 0,
        };
        Self { queues: LeafMutex::new(queues), bytes: AtomicU64::new(0) }
    }

    /// Inserts a block that is not cached. False if it is cached already, or does not fit an empty
    /// shard or, into room, this one.
    pub(super) fn insert(
        &self,
        directory: &Arc<Directory>,
        ordinal: u32,
        handle: Handle,
        arrival: Arrival,
    ) -> bool {
        let uid = directory.uid.get();
        // A block that is linked already, here or in another cache, is copied.
        let handle = match handle.frame().claim(uid, ordinal) {
            true => handle,
            false => {
                let copy = handle.copy();
                assert!(copy.frame().claim(uid, ordinal), "a new block is somebody's already");
                copy
            }
        };
        let slot = directory.page_slot(ordinal);
        let mut left = Left::default();
        let mut queues = self.queues.lock();
        let may_evict = arrival != Arrival::IntoRoom;
        let is_kept = queues.admit(directory, (ordinal, slot), &handle, may_evict, &mut left);
        if is_kept {
            queues.link(directory, (ordinal, slot), handle, arrival);
            queues.entries.request_oldest(Queue::Small);
        } else {
            handle.frame().unclaim();
        }
        self.unlock(queues, left);
        is_kept
    }

    /// Whether a block of so many bytes, on a page of its own, would displace no other.
    pub(super) fn has_room(&self, memory_bytes: usize) -> bool {
        let queues = self.queues.lock();
        queues.bytes + weight(memory_bytes) + PAGE_BYTES <= queues.capacity
    }

    /// Erases a block, if it is cached.
    pub(super) fn erase(&self, directory: &Directory, ordinal: u32, end: End) {
        let mut left = Left::default();
        let mut queues = self.queues.lock();
        let page = directory.page(ordinal);
        if let Some(frame) = page.and_then(|page| page.link(ordinal).frame()) {
            let unread = queues.unread;
            queues.remove(frame, &mut left);
            if end == End::TakenBack {
                queues.unread = unread;
            }
        }
        self.unlock(queues, left);
    }

    /// Changes the capacity; evicts what exceeds it.
    pub(super) fn set_capacity(&self, capacity: u64) {
        let mut left = Left::default();
        let mut queues = self.queues.lock();
        queues.capacity = capacity;
        while queues.bytes > capacity && queues.evict(&mut left) {}
        self.unlock(queues, left);
    }

    /// Bytes held now.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Blocks that were handed over and left before anybody had read them.
    pub(super) fn unread(&self) -> u64 {
        self.queues.lock().unread
    }

    fn unlock(&self, queues: impl std::ops::Deref<Target = Queues>, left: Left) {
        debug_assert!(queues.bytes <= queues.capacity, "{} bytes held", queues.bytes);
        self.bytes.store(queues.bytes, Ordering::Relaxed);
        drop(queues);
        drop(left);
    }
}

impl Queues {
    /// Makes room for a block, if others may leave for it. False if it is cached already, or does
    /// not fit.
    fn admit(
        &mut self,
        directory: &Directory,
        (ordinal, slot): (u32, &Pointer<Page>),
        handle: &Handle,
        may_evict: bool,
        left: &mut Left,
    ) -> bool {
        if directory.page(ordinal).is_some_and(|page| page.link(ordinal).is_set()) {
            return false;
        }
        loop {
            // The last block of its page may leave for it.
            let page_bytes = if slot.get().is_none() { PAGE_BYTES } else { 0 };
            let needed = weight(handle.memory_bytes()) + page_bytes;
            if needed > self.capacity {
                return false;
            }
            if self.bytes + needed <= self.capacity {
                return true;
            }
            if !may_evict {
                return false;
            }
            assert!(self.evict(left), "{} bytes of no block", self.bytes);
        }
    }

    fn link(
        &mut self,
        directory: &Arc<Directory>,
        (ordinal, slot): (u32, &Pointer<Page>),
        handle: Handle,
        arrival: Arrival,
    ) {
        let bytes = weight(handle.memory_bytes());
        let frame = handle.frame();
        let returns = self.ghosts.take(hash((directory.uid.get(), ordinal)), self.entries.len());
        let is_used = arrival == Arrival::Used || returns;
        let queue = if is_used { Queue::Main } else { Queue::Small };
        let cached = Cached { frame, directory: Arc::clone(directory), ordinal };
        frame.set_entry(self.entries.add(cached, queue, bytes));
        frame.set_uses(0);
        self.bytes += bytes;
        let page = slot.get().unwrap_or_else(|| {
            let page = self.free_page();
            slot.swap(Some(page));
            self.bytes += PAGE_BYTES;
            page
        });
        page.link(ordinal).set(handle);
        directory.count_in();
    }

    fn free_page(&mut self) -> &'static Page {
        if self.pages.is_empty() {
            let mut free = FREE_PAGES.lock();
            let rest = free.len() - free.len().min(PAGES);
            self.pages.extend(free.drain(rest..));
        }
        self.pages.pop().unwrap_or_else(|| {
            let chunk: Box<[Page]> = (0..PAGES).map(|_| Page::default()).collect();
            self.pages.extend(Box::leak(chunk).iter());
            self.pages.pop().unwrap_or_else(|| Box::leak(Box::default()))
        })
    }

    /// Evicts one block; false if there is none.
    fn evict(&mut self, left: &mut Left) -> bool {
        let mut renewals_left = RENEWALS_MAX;
        // Of those in the main queue that have begun again, with the uses that are left.
        let mut least_used: Option<(u32, &'static Frame)> = None;
        loop {
            let small_bytes = self.entries.bytes(Queue::Small);
            let is_full = small_bytes > self.capacity / SMALL_DIVISOR;
            let small = self.entries.oldest(Queue::Small);
            let main = self.entries.oldest(Queue::Main);
            let (queue, (entry, frame)) = match (small, main) {
                (Some(small), _) if is_full || main.is_none() => (Queue::Small, small),
                (_, Some(main)) => (Queue::Main, main),
                (Some(small), None) => (Queue::Small, small),
                (None, None) => return false,
            };
            let (uses, bytes) = (frame.uses(), weight(frame.memory_bytes()));
            if uses > 0 && renewals_left > 0 {
                renewals_left -= 1;
                let uses_left = if queue == Queue::Main { uses - 1 } else { 0 };
                frame.set_uses(uses_left);
                self.entries.renew(entry, Queue::Main, bytes);
                if queue == Queue::Main && least_used.is_none_or(|(least, _)| uses_left < least) {
                    least_used = Some((uses_left, frame));
                }
                continue;
            }
            // The oldest one of the main queue may have fewer, if the small queue was looked at.
            let oldest = main.map(|(_, frame)| (frame.uses(), frame));
            let fewest = oldest.into_iter().chain(least_used).min_by_key(|&(uses, _)| uses);
            match (queue, fewest) {
                (_, Some((fewest, other))) if fewest < uses => self.remove(other, left),
                (Queue::Main, _) => self.remove(frame, left),
                (Queue::Small, _) => {
                    // Who comes back was wanted twice; what nobody asked for was not wanted once.
                    if !frame.heat.is_unasked()
                        && let Some(key) = self.entries.key(entry)
                    {
                        self.ghosts.add(hash(key), self.entries.len());
                    }
                    self.remove(frame, left);
                }
            }
            return true;
        }
    }

    /// Removes a cached block.
    fn remove(&mut self, frame: &'static Frame, left: &mut Left) {
        let bytes = weight(frame.memory_bytes());
        let removed = self.entries.remove(frame.entry(), bytes);
        let Some(Cached { directory, ordinal, .. }) = removed else { return };
        self.bytes -= bytes;
        self.unread += u64::from(frame.heat.is_unread());
        let slot = directory.page_slot(ordinal);
        let Some(page) = slot.get() else { return };
        let handle = page.link(ordinal).clear();
        frame.unclaim();
        directory.count_out();
        if page.is_empty() {
            slot.swap(None);
            self.pages.push(page);
            self.bytes -= PAGE_BYTES;
        }
        if let Some(handle) = handle {
            left.push((handle, directory));
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        let mut left = Left::default();
        let mut queues = self.queues.lock();
        while queues.evict(&mut left) {}
        let mut pages = std::mem::take(&mut queues.pages);
        drop(queues);
        FREE_PAGES.lock().append(&mut pages);
    }
}
