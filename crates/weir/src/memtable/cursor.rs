//! The way through a memtable, in both directions.
//!
//! Not here: which entries a reader may see (`merge::Visible`).
//!
//! Invariants: (1) `node` is null or a node of `memtable`'s list, which `memtable` keeps alive;
//! (2) `back` holds nodes before `node`, in list order, the nearest one last, and is empty after any
//! move but `prev`. The list has no backward links: `prev` gathers about 16 predecessors with one
//! search and then takes them one by one.

use std::ptr;
use std::sync::Arc;

use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::key::{Kind, Seq};
use crate::memtable::entry::{Entry, EntryRef};
use crate::memtable::{Memtable, unpack_own};

/// A cursor over a memtable. It never fails.
pub(crate) struct MemtableCursor {
    memtable: Arc<Memtable>,
    node: *const Entry,
    back: Vec<*const Entry>,
}

// SAFETY: the pointers are to nodes of `memtable`'s list, which is Sync and kept alive by the Arc;
// the cursor has no other state that is tied to a thread.
unsafe impl Send for MemtableCursor {}
// SAFETY: `&MemtableCursor` allows reading published entries only.
unsafe impl Sync for MemtableCursor {}

impl MemtableCursor {
    pub(super) fn new(memtable: Arc<Memtable>) -> Self {
        Self { memtable, node: ptr::null(), back: Vec::new() }
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        assert!(!self.node.is_null(), "the cursor does not stand on an entry");
        // SAFETY: `node` is a node of the memtable's list (invariant 1, not null).
        unsafe { self.memtable.list.entry(self.node) }
    }

    fn move_to(&mut self, node: *const Entry) {
        self.node = node;
        self.back.clear();
    }
}

impl Cursor for MemtableCursor {
    #[inline]
    fn valid(&self) -> bool {
        !self.node.is_null()
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
        assert!(!self.node.is_null(), "next needs a valid cursor");
        // SAFETY: `node` is a node of the memtable's list (invariant 1, not null).
        let next = unsafe { self.memtable.list.next(self.node) };
        self.move_to(next);
    }

    fn prev(&mut self) {
        assert!(!self.node.is_null(), "prev needs a valid cursor");
        if self.back.is_empty() {
            // SAFETY: `node` is a node of the memtable's list (invariant 1, not null).
            unsafe { self.memtable.list.gather_before(self.node, &mut self.back) };
        }
        self.node = self.back.pop().unwrap_or(ptr::null());
    }

    fn status(&self) -> Result<()> {
        Ok(())
    }
}
