//! Whether this is the process in which something was made, or a fork of it.
//!
//! A fork has copies of all memory and shares all descriptors, but has one thread: a store in it
//! has no background threads, and writes into a log that its parent goes on writing.
//!
//! Invariants: (1) a mark is current in the process that drew it, and never in a fork of it; (2)
//! the answer costs a load and a comparison: the kernel wipes a page in every fork that is asked to
//! be wiped (`MADV_WIPEONFORK`, Linux 4.14). Where it does not, the process id is asked for.
//!
//! Source: the page that BoringSSL and libgcrypt detect forks with.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process that something belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessMark {
    page: Option<&'static AtomicU64>,
    /// What the page holds in that process.
    generation: u64,
    id: u32,
}

/// Generations that were given out, in this process and those that it is a fork of.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// A word that is 0 in a new fork; `None` if there is no such memory.
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
    // SAFETY: the mapping made just above, which nobody else knows.
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
            // The first mark in this process, or in this fork: a generation that no other has.
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
