//! Stripes: a small number for each thread, for state of which a thread uses mostly its own part.
//!
//! Threads get theirs in turn, so two have the same only when more than [`STRIPES`] were started.
//! In simulation it is the actor's number: what is found in a stripe must not depend on what the
//! process did before.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of stripes: more than the threads that usually read at once on small machines, few enough
/// to visit all of them quickly.
pub(crate) const STRIPES: usize = 16;

#[cfg(all(test, feature = "schedules"))]
thread_local! {
    static FORCED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Gives this thread the same stripe as others that do so.
#[cfg(all(test, feature = "schedules"))]
pub(crate) fn share_stripe() {
    FORCED.set(Some(0));
}

/// The stripe of this thread, below [`STRIPES`].
#[inline]
pub(crate) fn stripe() -> usize {
    #[cfg(all(test, feature = "schedules"))]
    if let Some(stripe) = FORCED.get() {
        return stripe;
    }
    #[cfg(feature = "sim")]
    if let Some(id) = super::sched::sim::actor_id() {
        return id % STRIPES;
    }
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        mine.get()
    })
}
