//! An atomic reference to something that lives as long as the process, or none.
//!
//! What is shared without a lock and never freed (`frame`, `cache::directory`) is followed through
//! these: that it is never freed is what makes it safe.

use std::ptr;

use crate::base::atomic::{AtomicPtr, Ordering};

/// See the module.
#[derive(Debug)]
pub(crate) struct Pointer<T: 'static>(AtomicPtr<T>);

impl<T> Default for Pointer<T> {
    fn default() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

impl<T: Sync> Pointer<T> {
    /// What it names. Sees what was done before it was set.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or came from a `&'static T`, in `swap`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets what it names; returns what it named.
    pub(crate) fn swap(&self, new: Option<&'static T>) -> Option<&'static T> {
        let new = new.map_or(ptr::null_mut(), |new| ptr::from_ref(new).cast_mut());
        // SAFETY: as in `get`.
        unsafe { self.0.swap(new, Ordering::AcqRel).as_ref() }
    }
}
