//! Counters of lookups: each thread counts in a group of its own, a reader adds the groups up.
//!
//! Invariant: a group below [`OWN_GROUPS`] is written by one thread at a time.

use std::cell::Cell;

use crate::base::atomic::{AtomicU64, Ordering};

/// On whose behalf a block is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Purpose {
    /// A user's read.
    Foreground = 0,
    /// A flush, a compaction or a verification.
    Background = 1,
}

/// Groups of counters that one thread at a time has for itself: it counts with a load and a store
/// instead of an atomic addition, which costs as much as the rest of a hit. One more is for all
/// other threads.
const OWN_GROUPS: usize = 31;

/// Hits and misses, indexed by [`Purpose`]. Two lines, as processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Group {
    hits: [AtomicU64; 2],
    misses: [AtomicU64; 2],
}

/// The group of a thread that has not asked for one yet.
const UNKNOWN: usize = usize::MAX;

thread_local! {
    /// The calling thread's group, the same in all caches.
    static GROUP: Cell<usize> = const { Cell::new(UNKNOWN) };
    static MEMBERSHIP: Membership = Membership::begin();
}

/// Which groups threads have. Not a lock of `sched`: it must not be a switch point.
static TAKEN: parking_lot::Mutex<[bool; OWN_GROUPS]> = parking_lot::Mutex::new([false; OWN_GROUPS]);

/// A thread's group, given back when the thread ends: the next one sees its counts, by the lock.
struct Membership(usize);

impl Membership {
    fn begin() -> Self {
        let mut taken = TAKEN.lock();
        let group = taken.iter().position(|taken| !taken).unwrap_or(OWN_GROUPS);
        if let Some(taken) = taken.get_mut(group) {
            *taken = true;
        }
        Self(group)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        GROUP.set(OWN_GROUPS);
        if let Some(taken) = TAKEN.lock().get_mut(self.0) {
            *taken = false;
        }
    }
}

#[inline]
fn group() -> usize {
    match GROUP.get() {
        UNKNOWN => join(),
        group => group,
    }
}

#[cold]
fn join() -> usize {
    // In the destructor of another thread-local the membership may have ended already.
    let group = MEMBERSHIP.try_with(|membership| membership.0).unwrap_or(OWN_GROUPS);
    GROUP.set(group);
    group
}

/// Hits and misses of a cache since it was created.
#[derive(Default)]
pub(super) struct LookupCounters {
    groups: [Group; OWN_GROUPS + 1],
}

impl LookupCounters {
    /// Counts one lookup.
    #[inline]
    pub(super) fn count(&self, purpose: Purpose, is_hit: bool) {
        let number = group();
        let group = &self.groups[number.min(OWN_GROUPS)];
        let counters = if is_hit { &group.hits } else { &group.misses };
        let counter = &counters[purpose as usize];
        if number < OWN_GROUPS {
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        } else {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lookups that found something, indexed by [`Purpose`]. The sum is no snapshot: the groups are
    /// read one after the other.
    pub(super) fn hits(&self) -> [u64; 2] {
        self.sum(|group| &group.hits)
    }

    /// Lookups that found nothing, as [`hits`](Self::hits).
    pub(super) fn misses(&self) -> [u64; 2] {
        self.sum(|group| &group.misses)
    }

    fn sum(&self, counters: fn(&Group) -> &[AtomicU64; 2]) -> [u64; 2] {
        let of = |purpose: usize| {
            self.groups.iter().map(|group| counters(group)[purpose].load(Ordering::Relaxed)).sum()
        };
        [of(Purpose::Foreground as usize), of(Purpose::Background as usize)]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Goal: nothing is lost, however many threads count and end. Method: more threads at once than
    /// there are groups, in several rounds, so that groups go from thread to thread.
    #[test]
    fn every_lookup_counts() {
        let counters = Arc::new(LookupCounters::default());
        let (threads, rounds, each) = (OWN_GROUPS as u64 + 9, 3, 1000);
        for _ in 0..rounds {
            let one = |_| {
                let counters = Arc::clone(&counters);
                let body = move || {
                    (0..each).for_each(|i| counters.count(Purpose::Foreground, i % 4 == 0));
                };
                crate::base::sched::spawn("counter", body).unwrap()
            };
            let all: Vec<_> = (0..threads).map(one).collect();
            all.into_iter().for_each(|thread| assert!(thread.join()));
        }
        let total = threads * rounds * each;
        assert_eq!((counters.hits(), counters.misses()), ([total / 4, 0], [total * 3 / 4, 0]));
    }
}
