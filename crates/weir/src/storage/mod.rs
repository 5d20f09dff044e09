// FORMAT: docs/format/log.md sha=3d033e360fd7
//! LSM objects (tables, logs, one root) as bytes on a device.
//!
//! Storage never sees an edit or a key order. Two forms: `files` (a directory) and, later, `slots`
//! (LDS: a raw device or one pre-allocated file). Both pass the tests in `contract`.
//!
//! Invariants: (1) a table uid or log number is never used twice; creation is exclusive; (2) a
//! table whose writer `finish`ed is durable under its name; (3) `write_root` is atomic: after a
//! crash the root is the old one or the new one; (4) nothing is removed but through `remove_*`; (5)
//! an error says whether it leaves anything unknown (`Error::leaves_unknown`). A failed read,
//! opening, creation or listing does not, nor does a failed write of a table or a failed allocation
//! of a log, which nothing names before they are there. A failed sync does (H43), and so does a
//! failed write of a log or of the root.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::ids::{SegmentNumber, TableUid};
pub use crate::device::Advice;

#[cfg(test)]
mod contract;
pub mod files;
pub(crate) mod io;
pub(crate) mod open;
mod removals;

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Make a store where there is none. Otherwise its absence is `NotFound`.
    pub create: bool,
    /// Change nothing, but for what keeps others from opening it.
    pub read_only: bool,
}

/// Which log a log file belongs to. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LogKind {
    /// The write-ahead log.
    Wal = 1,
    /// The log of version edits.
    Versions = 2,
}

/// What a store consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The root.
    Root,
    /// A table by uid.
    Table(TableUid),
    /// A log by kind and number.
    Log(LogKind, SegmentNumber),
}

/// How far an object's number may be ahead of what a store records: by what openings that failed
/// have used up. An object further ahead was not written by the store, and its number must not
/// become the one that the store counts on from.
const NUMBERS_AHEAD_MAX: u64 = 1 << 32;

/// Refuses an object under a number that a store which has recorded numbers up to `known` cannot
/// have given out.
///
/// # Errors
/// `Corruption` that names the object.
pub(crate) fn check_ahead(storage: &dyn Storage, object: Object, known: u64) -> Result<()> {
    let number = match object {
        Object::Root => return Ok(()),
        Object::Table(uid) => uid.get(),
        Object::Log(_, number) => number.get(),
    };
    if number <= known.saturating_add(NUMBERS_AHEAD_MAX) {
        return Ok(());
    }
    Err(Error::corruption(
        storage.name_of(object),
        0,
        format_args!(
            "a file under a number that the store has not reached, it is at {known}: it belongs to \
             somebody else; move it away"
        ),
    ))
}

/// The objects of one store.
pub trait Storage: Send + Sync {
    /// Starts table `uid`. `bytes_hint` is the expected size, for allocation; 0 if unknown.
    fn create_table(&self, uid: TableUid, bytes_hint: u64) -> Result<Box<dyn TableWriter>>;
    /// Opens a finished table.
    fn open_table(&self, uid: TableUid) -> Result<Arc<dyn TableSource>>;
    /// Frees a table's bytes. Called by the reclaimer and by recovery only (H14, H30).
    fn remove_table(&self, uid: TableUid) -> Result<()>;
    /// All tables with a name, finished or not, ascending.
    fn list_tables(&self) -> Result<Vec<TableUid>>;

    /// Creates a log of at least `bytes` zeroed and allocated bytes (0: it grows as it is written),
    /// durable under its number before this returns. Exclusive.
    fn create_log(
        &self,
        kind: LogKind,
        number: SegmentNumber,
        bytes: u64,
    ) -> Result<Arc<dyn LogRegion>>;
    /// As [`create_log`](Self::create_log), without writing the zeros: quick, and right for a log
    /// that is not synced often.
    fn reserve_log(
        &self,
        kind: LogKind,
        number: SegmentNumber,
        bytes: u64,
    ) -> Result<Arc<dyn LogRegion>> {
        self.create_log(kind, number, bytes)
    }
    /// Gives an unused log a new number, keeping its (stale) bytes and their allocation; durable
    /// before this returns.
    fn recycle_log(
        &self,
        kind: LogKind,
        old: SegmentNumber,
        new: SegmentNumber,
    ) -> Result<Arc<dyn LogRegion>>;
    /// Opens a log for reading and writing.
    fn open_log(&self, kind: LogKind, number: SegmentNumber) -> Result<Arc<dyn LogRegion>>;
    /// Frees a log.
    fn remove_log(&self, kind: LogKind, number: SegmentNumber) -> Result<()>;
    /// All logs of a kind, ascending.
    fn list_logs(&self, kind: LogKind) -> Result<Vec<SegmentNumber>>;

    /// The root, if one was ever written.
    fn read_root(&self) -> Result<Option<Vec<u8>>>;
    /// Replaces the root, atomically and durably.
    fn write_root(&self, root: &[u8]) -> Result<()>;

    /// Makes removals durable.
    fn sync_names(&self) -> Result<()>;
    /// Has the device give back what removed tables and logs took, if it keeps that until their
    /// removal is durable.
    fn settle_removals(&self) -> Result<()> {
        Ok(())
    }
    /// Bytes that new tables and logs may take; `None` if nobody knows.
    fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Tables and logs that may still be created; `None` if nobody knows, or there is no limit.
    fn free_files(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Tables that may be open at once beside everything else; `None` if nobody knows.
    fn open_tables_max(&self) -> Option<usize> {
        None
    }
    /// Lets others open the store. Nothing is written afterwards; what is open can still be read. A
    /// storage that nothing locks has nothing to do.
    fn unlock(&self) {}
    /// Where the store is, for messages.
    fn path(&self) -> String;
    /// Where an object is, or would be, for messages; log 0 stands for any log of its kind.
    fn name_of(&self, object: Object) -> String;
}

/// The place of one log: bytes that are written and read at any offset. Regions are handed out with
/// a capacity or, for logs whose length nobody knows beforehand, as ones that grow.
pub trait LogRegion: Send + Sync {
    /// Reads at `offset` until `buf` is full or the region ends; the number of bytes read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes the parts one after the other, starting at `offset`, in as few requests as possible.
    /// On an error any part of them may have been written.
    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()>;
    /// Makes written bytes durable, and with them the region's size.
    fn sync(&self) -> Result<()>;
    /// Bytes that the region takes, where reading ends; in one that grows, those written so far.
    /// Unwritten bytes are zeros or, in a recycled region, what it held before.
    fn capacity(&self) -> Result<u64>;
    /// Gives up what was written from `end` on, in a region that grows: durable after the next
    /// `sync`, reading ends there. A region of a fixed capacity refuses it with `Unsupported`.
    fn cut(&self, end: u64) -> Result<()>;
    /// The first offset from `offset` on that may hold anything but zeros; the end of the region,
    /// or more, if there is none.
    fn next_data(&self, offset: u64) -> Result<u64> {
        Ok(offset)
    }
    /// Says that all of the region will be read, from its start to its end.
    fn will_be_read(&self) {}
    /// Where it is, for messages.
    fn name(&self) -> String;
}

/// What a repair needs beyond [`Storage`]: objects that cannot be read, or are about to be
/// replaced, are kept under other names, where nothing opens or removes them but the store's
/// destruction.
pub trait RepairStorage: Storage {
    /// Renames an object that cannot be read, durably. Its new name; `None` if it does not exist.
    fn set_aside(&self, object: Object) -> Result<Option<String>>;
    /// Keeps a durable copy of an object that is about to be replaced: what
    /// [`set_aside`](Self::set_aside) is for those that may go at once. The name of the copy;
    /// `None` if there is no such object. A copy with the same bytes, which an interrupted repair
    /// left, is not made again. What could not be the object is set aside.
    fn copy_aside(&self, object: Object) -> Result<Option<String>>;
    /// The name that `object` would get if it was set aside now.
    fn free_lost_name(&self, object: Object) -> Result<String>;
    /// What earlier repairs have kept, with the names that it has now.
    fn list_lost(&self) -> Result<Vec<(String, Object)>>;
}

/// A table being written: append only.
pub trait TableWriter: Send {
    /// Appends bytes. May buffer; on an error the table must be dropped.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Bytes appended so far.
    fn len(&self) -> u64;
    /// Makes the table's bytes and its name durable.
    fn finish(self: Box<Self>) -> Result<()>;
    /// Gives up: removes what was written.
    fn abandon(self: Box<Self>);
}

/// The bytes of a finished table.
pub trait TableSource: Send + Sync {
    /// Reads exactly `buf.len()` bytes at `offset`; a table that ends before is `Corruption`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Hints at the access pattern of a range.
    fn advise(&self, offset: u64, bytes: u64, advice: Advice);
    /// Length in bytes.
    fn len(&self) -> u64;
    /// The file, for messages.
    fn path(&self) -> String;
}
