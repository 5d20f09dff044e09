//! Counters of the engine's work: relaxed atomics, striped where many threads count at once.
//!
//! Estimates: several counters are not read at one instant.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::stripe::{STRIPES, stripe};

/// A counter that many threads add to: each adds to a cache line of its own.
#[derive(Default)]
pub(crate) struct Striped {
    stripes: [Line; STRIPES],
}

#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Striped {
    /// Adds `n`.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.stripes[stripe()].0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum over all threads.
    pub(crate) fn get(&self) -> u64 {
        self.stripes.iter().map(|s| s.0.load(Ordering::Relaxed)).sum()
    }
}

/// A counter that few threads add to.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds `n` where only one thread at a time adds to this counter: cheaper than
    /// [`add`](Self::add).
    #[inline]
    pub(crate) fn add_alone(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// The sum.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All counters of a store since it was opened.
#[derive(Default)]
pub(crate) struct Counters {
    /// Entries put and deleted, and the bytes of their keys and values. The leader alone adds to
    /// these, and to batches and groups.
    pub(crate) puts: Counter,
    pub(crate) deletes: Counter,
    pub(crate) user_bytes_written: Counter,
    /// Batches committed, and commit groups that carried them.
    pub(crate) batches: Counter,
    pub(crate) groups: Counter,
    /// Point lookups, those that found a value, and the bytes of these values.
    pub(crate) gets: Striped,
    pub(crate) gets_found: Striped,
    pub(crate) bytes_found: Striped,
    /// Cursor positionings.
    pub(crate) seeks: Striped,
    /// Bytes written by background jobs, by cause, and read by them.
    pub(crate) flush_bytes: Counter,
    pub(crate) compaction_bytes: Counter,
    pub(crate) compaction_bytes_read: Counter,
    /// Background jobs whose edit was installed.
    pub(crate) flushes: Counter,
    pub(crate) compactions: Counter,
    pub(crate) trivial_moves: Counter,
    /// Compactions that were cut into stretches and came to their end, and stretches installed.
    pub(crate) compactions_in_stretches: Counter,
    pub(crate) stretches: Counter,
    /// Jobs that failed and are retried.
    pub(crate) jobs_failed: Counter,
    /// Compactions that were refused and quarantined.
    pub(crate) compactions_refused: Counter,
    /// Output blocks that compactions put into the cache.
    pub(crate) blocks_handed_over: Counter,
    /// Those that it had room for, though nobody had asked for them.
    pub(crate) blocks_unasked: Counter,
    /// Point lookups that a buffer list answered, run by run.
    pub(crate) gets_of_lists: Striped,
    /// Tables that left buffer lists because they were cold, damaged or too many, and lists that
    /// were dropped for lack of space.
    pub(crate) tables_trimmed: Counter,
    pub(crate) lists_dropped: Counter,
    /// Sentinels built, bytes of their tables, and hot ranges that were merged down instead.
    pub(crate) sentinels: Counter,
    pub(crate) sentinel_bytes: Counter,
    pub(crate) hot_merges: Counter,
    /// Entries that compactions dropped.
    pub(crate) entries_dropped: Counter,
    /// Bytes of keys and values that masks hid in tables which compactions replaced.
    pub(crate) masked_bytes_dropped: Counter,
    /// Time spent in background jobs, in nanoseconds.
    pub(crate) flush_nanos: Counter,
    pub(crate) compaction_nanos: Counter,
    /// Waits of writers: delays and stalls, with their time in nanoseconds.
    pub(crate) delays: Counter,
    pub(crate) delay_nanos: Counter,
    pub(crate) stalls: Counter,
    pub(crate) stall_nanos: Counter,
    /// Tables whose bytes were freed.
    pub(crate) tables_freed: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_sum_up() {
        let counter = Striped::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.get(), 40_000);
    }
}
