//! Atomics for lock-free protocols: the standard library's, and in builds that explore schedules
//! (feature `schedules`) the same with a switch point before each operation.
//!
//! All state that threads share without a lock uses these: links and index pages of a memtable, the
//! visible sequence number, the marks of a tree, row-cache generations, the open parts of a table,
//! the blocks of a cache. `schedules` then runs the real code in simulation and can switch threads
//! between any two operations. It explores interleavings, not the weaker orders that a processor
//! may show: ThreadSanitizer (`.ci/long tsan`) checks that Acquire and Release stand where they
//! must, except for memory that the last holder of an `Arc` frees: those reports are suppressed,
//! and the standard library is trusted.
//!
//! A lock held across these operations must be known to the simulation, or an actor that waits for
//! it keeps the baton: [`LeafMutex`] is such a lock there, and parking_lot's in ordinary builds.

pub(crate) use std::sync::atomic::Ordering;

#[cfg(not(feature = "schedules"))]
pub(crate) use parking_lot::Mutex as LeafMutex;
#[cfg(not(feature = "schedules"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64};

#[cfg(feature = "schedules")]
pub(crate) use crate::base::sched::Mutex as LeafMutex;
#[cfg(feature = "schedules")]
pub(crate) use explored::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64};

#[cfg(feature = "schedules")]
mod explored {
    //! Atomics with switch points: the same size, and those of the operations that are used.

    use std::sync::atomic::{self, Ordering};

    use crate::base::sched::switch_point;

    macro_rules! atomic {
        ($name:ident $(<$t:ident>)?, $inner:ty, $value:ty) => {
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub(crate) struct $name $(<$t>)? {
                inner: $inner,
            }

            impl $(<$t>)? $name $(<$t>)? {
                pub(crate) const fn new(value: $value) -> Self {
                    Self { inner: <$inner>::new(value) }
                }

                pub(crate) fn load(&self, order: Ordering) -> $value {
                    switch_point();
                    self.inner.load(order)
                }

                // Not `expect`: the macro makes it for types that are stored to as well.
                #[allow(dead_code, reason = "not every type is stored to")]
                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    switch_point();
                    self.inner.store(value, order);
                }
            }
        };
    }

    atomic!(AtomicBool, atomic::AtomicBool, bool);
    atomic!(AtomicU16, atomic::AtomicU16, u16);
    atomic!(AtomicU32, atomic::AtomicU32, u32);
    atomic!(AtomicU64, atomic::AtomicU64, u64);
    atomic!(AtomicPtr<T>, atomic::AtomicPtr<T>, *mut T);

    impl AtomicBool {
        pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
            switch_point();
            self.inner.swap(value, order)
        }
    }

    impl AtomicU32 {
        pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            switch_point();
            self.inner.fetch_add(value, order)
        }

        pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
            switch_point();
            self.inner.fetch_sub(value, order)
        }

        pub(crate) fn compare_exchange(
            &self,
            current: u32,
            new: u32,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u32, u32> {
            switch_point();
            self.inner.compare_exchange(current, new, success, failure)
        }
    }

    impl AtomicU64 {
        pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            switch_point();
            self.inner.fetch_add(value, order)
        }

        pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
            switch_point();
            self.inner.fetch_sub(value, order)
        }
    }

    impl<T> AtomicPtr<T> {
        pub(crate) fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
            switch_point();
            self.inner.swap(value, order)
        }
    }
}
