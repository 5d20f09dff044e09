//! Fork detection: whether this is the process that opened a store, or a fork of it.
//!
//! A fork copies all memory and shares all descriptors, but has one thread: the store in it has no
//! background threads, and would write into a log that its parent still writes.
//!
//! Invariants: (1) a mark is current in the process that drew it, and never in a fork of it; (2)
//! the check costs a load and a comparison: the kernel zeroes a page marked with `MADV_WIPEONFORK`
//! (Linux 4.14) in every fork. Without such a page, process ids are compared.
//!
//! Source: BoringSSL and libgcrypt detect forks with such a page.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process that something belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessMark {
    page: Option<&'static AtomicU64>,
    /// Content of the page in that process.
    generation: u64,
    id: u32,
}

/// Generations drawn so far, in this process and its ancestors.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// A word that is 0 in a new fork; `None` where the system has no such memory.
fn page() -> Option<&'static AtomicU64> {
    static PAGE: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    *PAGE.get_or_init(map_page)
}

#[cfg(all(target_os = "linux", not(miri)))]
fn map_page() -> Option<&'static AtomicU64> {
    use crate::base::pages::PAGE_BYTES;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, prot, flags) }.ok()?;
    // SAFETY: the mapping made just above; nothing else refers to it.
    unsafe { madvise(base, PAGE_BYTES, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the mapping is a page of zeros, aligned to a page, and is never given back.
    Some(unsafe { AtomicU64::from_ptr(base.cast()) })
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn map_page() -> Option<&'static AtomicU64> {
    None
}

impl ProcessMark {
    /// The mark of this process.
    pub(crate) fn current() -> Self {
        let page = page();
        let mut generation = 0;
        if let Some(page) = page {
            // The first mark in this process or fork draws a generation that no other has.
            let fresh = GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
            let old = page.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire);
            generation = old.err().unwrap_or(fresh);
        }
        Self { page, generation, id: std::process::id() }
    }

    /// Whether this is the process that drew the mark.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        match self.page {
            Some(page) => page.load(Ordering::Relaxed) == self.generation,
            None => std::process::id() == self.id,
        }
    }
}

impl Default for ProcessMark {
    fn default() -> Self {
        Self::current()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_current_where_it_was_drawn() {
        let (one, two) = (ProcessMark::current(), ProcessMark::current());
        assert!(one.is_current() && two.is_current());
        let elsewhere = ProcessMark { page: one.page, generation: one.generation + 1, id: 0 };
        assert!(!elsewhere.is_current());
    }
}
