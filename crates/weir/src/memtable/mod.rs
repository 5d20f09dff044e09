//! Memtable: the newest entries of one keyspace, sorted, in memory.
//!
//! Not here: which entries a reader may see (`merge::Visible`), when a memtable is frozen and
//! flushed (`state`, `db`), the log that makes it durable.
//!
//! Threads: any number may insert and any number may read at the same time. Inserts copy their
//! bytes in parallel and are linked one at a time, under a lock that is held for a fraction of a
//! microsecond (once, while the filter is made, for about a millisecond) and never across a switch
//! point of the simulation. Readers take no lock. A reader
//! sees every entry whose insert happened before its search, and may or may not see one that is
//! being inserted; the visible sequence number hides those (H46).
//!
//! Invariants: (1) two entries never share key and sequence number (the caller's promise); (2) an
//! entry is copied once and never moved or changed: what a cursor or a get returns is valid as long
//! as the memtable; (3) the order of inserts alone fixes the shape, which has no randomness.
//!
//! ```text
//! mod     the interface                cursor  iteration, in both directions
//! list    sorted entries               index   a B+-tree of hints into the list
//! entry   an entry in memory           arena   memory, freed all at once
//! filter  keys that it may hold
//! pool    memory of flushed memtables, for the next ones
//! ```

mod arena;
mod cursor;
mod entry;
mod filter;
mod index;
mod list;
mod pool;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::base::key::{Kind, Seq, unpack};
use crate::memtable::entry::EntryRef;
use crate::memtable::list::List;

pub(crate) use crate::memtable::cursor::MemtableCursor;
pub(crate) use crate::memtable::pool::ChunkPool;

/// An entry found by [`Memtable::get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    /// Empty for a delete.
    pub(crate) value: &'a [u8],
}

/// The newest entries of one keyspace, sorted.
pub(crate) struct Memtable {
    list: List,
}

impl Memtable {
    /// An empty memtable that is expected to be frozen at about `arena_bytes_hint` bytes. It starts
    /// with a few KiB for any hint, and may grow beyond it.
    pub(crate) fn new(arena_bytes_hint: usize) -> Self {
        Self { list: List::new(arena_bytes_hint, None) }
    }

    /// As [`Memtable::new`], with memory that is taken from `pool` and returned to it.
    pub(crate) fn in_pool(arena_bytes_hint: usize, pool: &Arc<ChunkPool>) -> Self {
        Self { list: List::new(arena_bytes_hint, Some(pool)) }
    }

    /// Adds an entry: about 40 ns in ascending order, 0.5 us at a random place among 0.5 M. Any
    /// thread may call it at any time. Requires: `seq` was not used with this key before; key
    /// and value are within `base::limits`.
    pub(crate) fn insert(&self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        self.list.insert(key, seq, kind, value);
    }

    /// The newest entry of `key` whose sequence number is at most `snapshot`, a delete included.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], snapshot: Seq) -> Option<Found<'_>> {
        let entry = self.list.get(key, snapshot)?;
        let (seq, kind) = unpack_own(entry);
        Some(Found { seq, kind, value: entry.value })
    }

    /// A cursor that keeps the memtable alive. It may or may not see entries inserted while it
    /// moves.
    pub(crate) fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor::new(Arc::clone(self))
    }

    /// Bytes of entries and index. Upper bound while no insert runs: the unused ends of full chunks
    /// count as used; inserts that have begun may be missing.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.list.used_bytes()
    }

    /// Bytes taken from the system's allocator, which are charged to the accountant. At least
    /// [`Memtable::bytes`].
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.list.reserved_bytes()
    }

    /// Entries whose insert has begun.
    pub(crate) fn entries(&self) -> u64 {
        self.list.count()
    }

    /// Whether no insert has begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.count() == 0
    }

    /// Smallest and largest sequence number whose insert has begun; `None` for an empty memtable.
    pub(crate) fn seq_range(&self) -> Option<(Seq, Seq)> {
        self.list.seq_range()
    }
}

/// Sequence number and kind of an entry that `insert` packed.
#[inline]
fn unpack_own(entry: EntryRef<'_>) -> (Seq, Kind) {
    unpack(entry.packed).expect("packed by insert from a Kind")
}
