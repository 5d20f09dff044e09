//! A cursor over a memtable, in both directions.
//!
//! Not here: which entries a reader may see (`merge::Visible`).
//!
//! Invariants: (1) `at` is null or an entry of `memtable`'s list, which `memtable` keeps alive;
//! (2) `back` holds entries before `at`, in list order, the nearest one last, and is empty after
//! any move but `prev`. The list has no backward links: `prev` gathers half a page of predecessors
//! with one search and then takes them one by one. Entries lie in the order of their inserts, so a
//! walk in key order misses the CPU's cache at each step: a long one prefetches the entries of a
//! whole page of the index at a time.

use std::ptr;
use std::sync::Arc;

use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::key::{Kind, Seq};
use crate::memtable::entry::{Entry, EntryRef};
use crate::memtable::{Memtable, unpack_own};

/// Steps in a row after which a walk is long: a short scan does not pay for entries it does not
/// read.
const SHORT_WALK_STEPS: usize = 6;

/// A cursor over a memtable. It never fails.
pub(crate) struct MemtableCursor {
    memtable: Arc<Memtable>,
    at: *const Entry,
    back: Vec<*const Entry>,
    /// Steps forward until the next prefetch of entries.
    steps_left: usize,
}

// SAFETY: the pointers are to entries of `memtable`'s list, which is Sync and kept alive by the
// Arc; the cursor has no state that is tied to a thread.
unsafe impl Send for MemtableCursor {}
// SAFETY: `&MemtableCursor` allows reading published entries only.
unsafe impl Sync for MemtableCursor {}

impl MemtableCursor {
    pub(super) fn new(memtable: Arc<Memtable>) -> Self {
        Self { memtable, at: ptr::null(), back: Vec::new(), steps_left: SHORT_WALK_STEPS }
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        assert!(!self.at.is_null(), "the cursor does not stand on an entry");
        // SAFETY: `at` is an entry of the memtable's list (invariant 1, not null).
        unsafe { self.memtable.list.entry(self.at) }
    }

    fn move_to(&mut self, entry: *const Entry) {
        self.at = entry;
        self.back.clear();
        self.steps_left = SHORT_WALK_STEPS;
    }
}

impl Cursor for MemtableCursor {
    #[inline]
    fn valid(&self) -> bool {
        !self.at.is_null()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.entry().key
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.entry().packed >> 8
    }

    #[inline]
    fn kind(&self) -> Kind {
        unpack_own(self.entry()).1
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.entry().value
    }

    fn rest(&mut self) {
        self.move_to(ptr::null());
    }

    fn seek(&mut self, key: &[u8], seq: Seq) {
        self.move_to(self.memtable.list.seek(key, seq));
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        self.move_to(self.memtable.list.seek_for_prev(key, seq));
    }

    fn seek_to_first(&mut self) {
        self.move_to(self.memtable.list.first());
    }

    fn seek_to_last(&mut self) {
        self.move_to(self.memtable.list.last());
    }

    #[inline]
    fn next(&mut self) {
        assert!(!self.at.is_null(), "next needs a valid cursor");
        // SAFETY: `at` is an entry of the memtable's list (invariant 1, not null).
        self.at = unsafe { self.memtable.list.next(self.at) };
        self.back.clear();
        if self.steps_left > 0 {
            self.steps_left -= 1;
        } else if !self.at.is_null() {
            // SAFETY: as above.
            self.steps_left = unsafe { self.memtable.list.prefetch_from(self.at) }.max(1) - 1;
        }
    }

    fn prev(&mut self) {
        assert!(!self.at.is_null(), "prev needs a valid cursor");
        if self.back.is_empty() {
            // SAFETY: `at` is an entry of the memtable's list (invariant 1, not null).
            unsafe { self.memtable.list.gather_before(self.at, &mut self.back) };
        }
        self.at = self.back.pop().unwrap_or(ptr::null());
    }

    fn status(&self) -> Result<()> {
        Ok(())
    }
}
