//! What readers leave for the next one: merges that wait for a cursor.
//!
//! To make a cursor costs as much as a short scan reads: an object for each source, references to
//! what all threads share, and their release. A cursor that ends leaves its merge, with the
//! super-version that it holds, in the slot of its thread's stripe; the next cursor takes it if the
//! super-version is still the newest one.
//!
//! Not here: what is left (`read::cursor`).
//!
//! Invariant: what waits holds the newest super-version, and no index of a table that was closed,
//! but for moments: who publishes another one, or closes a table or the store,
//! [clears](IdleSlots::clear) the slots *afterwards*, and who leaves something looks *afterwards*
//! whether they were cleared since it was made. Both take the slot's lock: the second of the two
//! sees what the first has done. So nothing old is held because nobody reads.
//!
//! Bound: [`STRIPES`] merges of one keyspace, each of at most 64 sources of some 400 bytes. They
//! are not in the memory budget: what they hold of memtables and indexes is, as that of all
//! cursors.
//!
//! Source: RocksDB keeps the super-version that a thread used last for its next read
//! (`ThreadLocalPtr`, `SuperVersion::kSVInUse`); we keep the merge over it too.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::sched::{self, Mutex};
use crate::base::stripe::{STRIPES, stripe};

/// Something that waits.
pub(crate) type Idle = Box<dyn Any + Send + Sync>;

#[derive(Default)]
#[repr(align(64))]
struct Slot(Mutex<Option<Idle>>);

/// A slot for each stripe of threads.
#[derive(Default)]
pub(crate) struct IdleSlots {
    slots: [Slot; STRIPES],
    /// How often they were cleared.
    cleared: AtomicU64,
}

impl IdleSlots {
    /// How often all was released so far. What was made before the last time is not to be left.
    #[inline]
    pub(crate) fn times_cleared(&self) -> u64 {
        sched::switch_point();
        self.cleared.load(Ordering::SeqCst)
    }

    /// Takes what waits for this thread.
    #[inline]
    pub(crate) fn take(&self) -> Option<Idle> {
        self.slots[stripe()].0.lock().take()
    }

    /// Leaves something for this thread; returns what waited there.
    #[inline]
    #[must_use = "what it holds is released when it is dropped"]
    pub(crate) fn leave(&self, idle: Idle) -> Option<Idle> {
        self.slots[stripe()].0.lock().replace(idle)
    }

    /// Releases all that waits.
    pub(crate) fn clear(&self) {
        self.cleared.fetch_add(1, Ordering::SeqCst);
        for slot in &self.slots {
            // Not under the lock: this may free a version.
            let idle = slot.0.lock().take();
            drop(idle);
        }
    }
}
