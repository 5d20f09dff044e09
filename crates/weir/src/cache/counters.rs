//! Counters of lookups: each thread counts in a group of its own, a reader adds the groups up.

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

/// Independent groups of counters, so that threads on two cores do not share a line.
const STRIPES: usize = 8;

/// Hits and misses, indexed by [`Purpose`].
#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    hits: [AtomicU64; 2],
    misses: [AtomicU64; 2],
}

thread_local! {
    /// Its address identifies the thread; its content is not used.
    static THREAD_MARK: Cell<u8> = const { Cell::new(0) };
}

/// The calling thread's group of counters: the storage of threads lies pages apart, so that the
/// address of a thread-local spreads them well enough.
#[inline]
fn stripe_index() -> usize {
    let address = THREAD_MARK.with(|mark| std::ptr::from_ref(mark).addr());
    (address >> 12 ^ address >> 21) % STRIPES
}

/// Hits and misses of a cache since it was created.
#[derive(Default)]
pub(super) struct LookupCounters {
    stripes: [Stripe; STRIPES],
}

impl LookupCounters {
    /// Counts one lookup.
    #[inline]
    pub(super) fn count(&self, purpose: Purpose, is_hit: bool) {
        let stripe = &self.stripes[stripe_index()];
        let counters = if is_hit { &stripe.hits } else { &stripe.misses };
        counters[purpose as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Lookups that found something, indexed by [`Purpose`]. The sum is no snapshot: the groups are
    /// read one after the other.
    pub(super) fn hits(&self) -> [u64; 2] {
        self.sum(|stripe| &stripe.hits)
    }

    /// Lookups that found nothing, as [`hits`](Self::hits).
    pub(super) fn misses(&self) -> [u64; 2] {
        self.sum(|stripe| &stripe.misses)
    }

    fn sum(&self, counters: fn(&Stripe) -> &[AtomicU64; 2]) -> [u64; 2] {
        let of = |purpose: usize| {
            self.stripes
                .iter()
                .map(|stripe| counters(stripe)[purpose].load(Ordering::Relaxed))
                .sum()
        };
        [of(Purpose::Foreground as usize), of(Purpose::Background as usize)]
    }
}
