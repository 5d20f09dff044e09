//! Reads in flight: of the readers that miss a block at once, one reads it and the others wait.
//!
//! The first one *leads*: it enters its read here, reads the block, offers it to the cache and
//! *lands*. Whoever misses the block meanwhile waits and shares it, also if the cache did not keep
//! it. A leader looks into the cache once more: the one before may have landed just now. The table
//! of reads is fixed, so that a miss allocates nothing; a reader that finds it full reads alone.
//!
//! Not here: the read and its verification, and whose reads take part (`table::fetch`). Invariants:
//! (1) of the reads of a block that are entered, at most one is under way or has brought it; (2) a
//! slot is free again only when its read is over and the last waiter has left, so that a waiter
//! gets the block that it asked for, or nothing; (3) every entered read ends: one that fails or
//! panics without a block, by its guard, and its waiters then read for themselves, so that an error
//! is each one's own; (4) a read ends with a verified block only.
//!
//! A wait has an end: some times as long as reads took lately. A reader whose leader lost the
//! processor, where reads are answered by the page cache, would else wait for longer than it reads.
//!
//! Nobody waits in a circle: a leader waits for no read until its own is over, and a waiter holds
//! no lock, no file and no permit for one, only memory. Locks: a group's is a leaf.
//!
//! Source: request coalescing, as `golang.org/x/sync/singleflight` has it. We differ: nothing is
//! allocated, and errors are not shared.

use std::time::Duration;

use super::TableBlocks;
use crate::base::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::buf::Buf;
use crate::base::clock;
use crate::base::ids::TableUid;
use crate::base::sched::{Condvar, Mutex, MutexGuard, can_wait_awake, wait_awake};

/// Groups of slots, each with a lock of its own: enough that two threads rarely contend for one.
const GROUPS: usize = 8;
/// Reads that a group can hold: all threads of a usual program, even if they meet in one group.
const READS: usize = 16;
/// A wait lasts as long as so many reads.
const WAIT_READS: u64 = 4;
/// And as long as a sleep and wake-up, at least; at most a tenth of a second.
const WAIT_NANOS: std::ops::RangeInclusive<u64> = 50_000..=100_000_000;
/// The mean time of reads follows each by this part of the difference.
const MEAN_DIVISOR: u64 = 8;

/// How a read has ended.
#[derive(Default)]
enum Outcome {
    /// It has not.
    #[default]
    Pending,
    /// With the block.
    Block(Buf),
    /// With an error or a panic.
    Nothing,
}

#[derive(Default)]
struct Slot {
    uid: TableUid,
    ordinal: u32,
    waiters: u32,
    outcome: Outcome,
}

/// The reads of a group, under its lock.
#[derive(Default)]
struct Slots {
    /// A bit for each slot in use.
    taken: u16,
    slots: [Slot; READS],
}

const _: () = assert!(READS == u16::BITS as usize);

impl Slots {
    /// The read of a block, unless it has failed.
    fn find(&self, uid: TableUid, ordinal: u32) -> Option<usize> {
        let mut left = self.taken;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let slot = &self.slots[at];
            let is_it = slot.uid == uid && slot.ordinal == ordinal;
            if is_it && !matches!(slot.outcome, Outcome::Nothing) {
                return Some(at);
            }
        }
        None
    }

    fn take(&mut self, uid: TableUid, ordinal: u32) -> Option<usize> {
        let at = self.taken.trailing_ones() as usize;
        let slot = self.slots.get_mut(at)?;
        debug_assert!(slot.waiters == 0, "{} wait in a free slot", slot.waiters);
        (slot.uid, slot.ordinal) = (uid, ordinal);
        self.taken |= 1 << at;
        Some(at)
    }

    fn free(&mut self, at: usize) -> Outcome {
        self.taken &= !(1 << at);
        std::mem::take(&mut self.slots[at].outcome)
    }

    fn is_pending(&self, at: usize) -> bool {
        matches!(self.slots[at].outcome, Outcome::Pending)
    }

    /// The block of a read that is over, for a waiter, who leaves; nothing if it is not over.
    fn leave(&mut self, at: usize) -> Option<Buf> {
        let slot = &mut self.slots[at];
        slot.waiters -= 1;
        if slot.waiters == 0 && !matches!(slot.outcome, Outcome::Pending) {
            return match self.free(at) {
                Outcome::Block(buf) => Some(buf),
                Outcome::Pending | Outcome::Nothing => None,
            };
        }
        match &slot.outcome {
            Outcome::Block(buf) => Some(buf.clone()),
            Outcome::Pending | Outcome::Nothing => None,
        }
    }
}

/// What waiters of a slot watch without the lock.
#[derive(Default)]
struct End {
    is_over: AtomicBool,
    over: Condvar,
}

#[derive(Default)]
struct Group {
    slots: Mutex<Slots>,
    ends: [End; READS],
}

impl Group {
    /// Waits for the end of a read, for `nanos` at most, and takes its block. Awake first, if
    /// `awake`.
    #[cold]
    fn wait<'a>(
        &'a self,
        slots: MutexGuard<'a, Slots>,
        at: usize,
        (awake, nanos): (bool, u64),
    ) -> Option<Buf> {
        let mut slots = slots;
        let end = &self.ends[at];
        slots.slots[at].waiters += 1;
        if awake && slots.is_pending(at) {
            drop(slots);
            // A read that the page cache answers is shorter than sleep and wake-up.
            wait_awake(|| end.is_over.load(Ordering::Acquire));
            slots = self.slots.lock();
        }
        let until = clock::now_nanos().saturating_add(nanos);
        while slots.is_pending(at) {
            let left = until.saturating_sub(clock::now_nanos());
            if left == 0 {
                break;
            }
            end.over.wait_for(&mut slots, Duration::from_nanos(left));
        }
        slots.leave(at)
    }
}

/// The reads in flight of a cache.
pub(super) struct Flights {
    groups: [Group; GROUPS],
    awake: bool,
    shared: AtomicU64,
    /// How long reads take.
    mean_nanos: AtomicU64,
}

impl Flights {
    pub(super) fn new() -> Self {
        Self {
            groups: Default::default(),
            awake: can_wait_awake(),
            shared: AtomicU64::new(0),
            // Until some are known, the longest.
            mean_nanos: AtomicU64::new(*WAIT_NANOS.end() / WAIT_READS),
        }
    }

    /// Misses that read nothing.
    pub(super) fn shared(&self) -> u64 {
        self.shared.load(Ordering::Relaxed)
    }

    fn join(&self, uid: TableUid, ordinal: u32) -> Missed<'_> {
        let first = uid.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let group = &self.groups[(first as usize).wrapping_add(ordinal as usize) % GROUPS];
        let mut slots = group.slots.lock();
        if let Some(at) = slots.find(uid, ordinal) {
            let nanos = self.mean_nanos.load(Ordering::Relaxed).saturating_mul(WAIT_READS);
            let nanos = nanos.clamp(*WAIT_NANOS.start(), *WAIT_NANOS.end());
            let waited = group.wait(slots, at, (self.awake, nanos));
            return waited.map_or(Missed::Alone, Missed::Shared);
        }
        let Some(at) = slots.take(uid, ordinal) else { return Missed::Alone };
        group.ends[at].is_over.store(false, Ordering::Relaxed);
        let began = clock::now_nanos();
        Missed::Leads(ReadInFlight { flights: self, group, at, began, is_over: false })
    }
}

/// How a reader comes to a block that it missed.
pub(crate) enum Missed<'a> {
    /// It has it: another one has read and verified it.
    Shared(Buf),
    /// It reads it, also for those who wait.
    Leads(ReadInFlight<'a>),
    /// It reads it for itself: the read that it waited for has failed, or too many are in flight.
    Alone,
}

/// A read that others may wait for. Dropped, it has failed.
pub(crate) struct ReadInFlight<'a> {
    flights: &'a Flights,
    group: &'a Group,
    at: usize,
    /// When it was entered.
    began: u64,
    is_over: bool,
}

impl ReadInFlight<'_> {
    /// Gives the verified block to those who wait. Requires: it was offered to the cache before, if
    /// it is to be; else the next reader reads it again.
    pub(crate) fn land(mut self, buf: &Buf) {
        let mean = &self.flights.mean_nanos;
        let took = clock::now_nanos().saturating_sub(self.began);
        let before = mean.load(Ordering::Relaxed);
        // One that is lost beside another does no harm.
        mean.store(before - before / MEAN_DIVISOR + took / MEAN_DIVISOR, Ordering::Relaxed);
        self.end(Some(buf));
    }

    /// The same for a block that needed no read.
    fn give(mut self, buf: &Buf) {
        self.end(Some(buf));
    }

    fn end(&mut self, buf: Option<&Buf>) {
        self.is_over = true;
        let end = &self.group.ends[self.at];
        let mut slots = self.group.slots.lock();
        if slots.slots[self.at].waiters == 0 {
            slots.free(self.at);
            return;
        }
        let outcome = buf.map_or(Outcome::Nothing, |buf| Outcome::Block(buf.clone()));
        slots.slots[self.at].outcome = outcome;
        end.is_over.store(true, Ordering::Release);
        drop(slots);
        end.over.notify_all();
    }
}

impl Drop for ReadInFlight<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(None);
        }
    }
}

impl TableBlocks {
    /// For a reader that has missed a block: waits for the read of it that is in flight, or enters
    /// its own. Requires: the caller holds nothing that a read needs, and leads no other.
    pub(crate) fn join_read(&self, ordinal: u32) -> Missed<'_> {
        let flights = &self.cache.flights;
        let missed = match flights.join(self.directory.uid, ordinal) {
            Missed::Leads(read) => match self.cache.blocks.peek(&self.directory, ordinal) {
                Some(buf) => {
                    // No read that says how long they take.
                    read.give(&buf);
                    Missed::Shared(buf)
                }
                None => Missed::Leads(read),
            },
            missed => missed,
        };
        if matches!(missed, Missed::Shared(_)) {
            flights.shared.fetch_add(1, Ordering::Relaxed);
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::ids::uid;
    use crate::base::sched::spawn;
    use crate::cache::{BlockCache, Purpose};

    fn block(byte: u8) -> Buf {
        Buf::from(&[byte; 100][..])
    }

    fn leads(missed: Missed<'_>) -> ReadInFlight<'_> {
        match missed {
            Missed::Leads(read) => read,
            Missed::Shared(_) => panic!("a block without a read"),
            Missed::Alone => panic!("room for a read"),
        }
    }

    /// Waits until so many wait for the only read in flight.
    fn until_waiting(cache: &BlockCache, count: u32) {
        let waiting = || -> u32 {
            let groups = cache.flights.groups.iter();
            groups
                .map(|group| group.slots.lock().slots.iter().map(|s| s.waiters).sum::<u32>())
                .sum()
        };
        while waiting() != count {
            std::thread::yield_now();
        }
    }

    fn in_use(cache: &BlockCache) -> u32 {
        cache.flights.groups.iter().map(|group| group.slots.lock().taken.count_ones()).sum()
    }

    /// Goal: who waits gets the block or nothing, as the read ends, and the slot is free then.
    /// Method: a read that lands in a cache which keeps nothing, one that fails, one that panics.
    #[test]
    fn a_read_ends_for_all_who_wait() {
        let cache = Arc::new(BlockCache::new(0));
        for how in 0..3 {
            let table = cache.table(uid(1));
            let read = leads(table.join_read(7));
            let wait = |_| {
                let cache = Arc::clone(&cache);
                let body = move || match cache.table(uid(1)).join_read(7) {
                    Missed::Shared(buf) => assert!(how == 0 && buf.bytes() == block(9).bytes()),
                    Missed::Alone => assert!(how > 0, "the block was not given"),
                    Missed::Leads(_) => panic!("two reads of a block"),
                };
                spawn("waiter", body).unwrap()
            };
            let waiters: Vec<_> = (0..4).map(wait).collect();
            until_waiting(&cache, 4);
            match how {
                0 => {
                    table.insert(7, block(9));
                    read.land(&block(9));
                }
                1 => drop(read),
                _ => {
                    let body = std::panic::AssertUnwindSafe(move || {
                        let _read = read;
                        std::panic::resume_unwind(Box::new("a read that panics"));
                    });
                    assert!(std::panic::catch_unwind(body).is_err());
                }
            }
            waiters.into_iter().for_each(|waiter| assert!(waiter.join()));
            assert_eq!(in_use(&cache), 0);
        }
        assert_eq!(cache.counters().reads_shared, 4);
    }

    /// Goal: reads of other blocks are not waited for, and neither is a full table. Method: more
    /// reads than a group holds, all in one group.
    #[test]
    fn a_full_table_is_read_beside() {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let (table, other) = (cache.table(uid(1)), cache.table(uid(2)));
        let number = |i: usize| (i * GROUPS) as u32;
        let mut reads: Vec<_> = (0..READS).map(|i| leads(table.join_read(number(i)))).collect();
        assert!(matches!(table.join_read(number(READS)), Missed::Alone));
        reads.pop();
        reads.push(leads(table.join_read(number(READS))));
        reads.push(leads(other.join_read(1)));
        reads.clear();
        assert_eq!((in_use(&cache), cache.counters().reads_shared), (0, 0));
    }

    /// Goal: who leads behind a read that has just landed takes its block from the cache; a hit is
    /// not counted twice.
    #[test]
    fn a_leader_looks_into_the_cache() {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let table = cache.table(uid(1));
        assert!(table.get(3, Purpose::Foreground).is_none());
        table.insert(3, block(5));
        let Missed::Shared(buf) = table.join_read(3) else { panic!("a cached block is read") };
        assert_eq!(buf.bytes(), block(5).bytes());
        let counters = cache.counters();
        assert_eq!((counters.hits, counters.misses, counters.reads_shared), ([0, 0], [1, 0], 1));
        assert_eq!(in_use(&cache), 0);
    }
}
