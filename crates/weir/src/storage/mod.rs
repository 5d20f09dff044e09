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

use crate::base::error::Result;
pub use crate::device::Advice;
use crate::device::File;

#[cfg(test)]
mod contract;
pub mod files;
pub(crate) mod io;
mod removals;

/// Which log a log file belongs to. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LogKind {
    /// The write-ahead log.
    Wal = 1,
    /// The log of version edits.
    Versions = 2,
}

impl LogKind {
    /// Where log `number` of the store at `path` is, for messages.
    pub(crate) fn path_of(self, path: &str, number: u64) -> String {
        match number {
            0 => format!("{path}/{}*.log", files::log_prefix(self)),
            _ => format!("{path}/{}", files::log_name(self, number)),
        }
    }
}

/// The objects of one store.
pub trait Storage: Send + Sync {
    /// Starts table `uid`. `bytes_hint` is the expected size, for allocation; 0 if unknown.
    fn create_table(&self, uid: u64, bytes_hint: u64) -> Result<Box<dyn TableWriter>>;
    /// Opens a finished table.
    fn open_table(&self, uid: u64) -> Result<Arc<dyn TableSource>>;
    /// Frees a table's bytes. Called by the reclaimer and by recovery only (H14, H30).
    fn remove_table(&self, uid: u64) -> Result<()>;
    /// All tables with a name, finished or not, ascending.
    fn list_tables(&self) -> Result<Vec<u64>>;

    /// Creates a log of `bytes` zeroed and allocated bytes (0: grows as it is written), durable
    /// under its name before this returns. Exclusive.
    fn create_log(&self, kind: LogKind, number: u64, bytes: u64) -> Result<Arc<dyn File>>;
    /// As [`create_log`](Self::create_log), without writing the zeros: quick, and right for a log
    /// that is not synced often.
    fn reserve_log(&self, kind: LogKind, number: u64, bytes: u64) -> Result<Arc<dyn File>> {
        self.create_log(kind, number, bytes)
    }
    /// Gives an unused log a new number, keeping its (stale) bytes and their allocation; durable
    /// before this returns.
    fn recycle_log(&self, kind: LogKind, old: u64, new: u64) -> Result<Arc<dyn File>>;
    /// Opens a log for reading and writing.
    fn open_log(&self, kind: LogKind, number: u64) -> Result<Arc<dyn File>>;
    /// Frees a log.
    fn remove_log(&self, kind: LogKind, number: u64) -> Result<()>;
    /// All logs of a kind, ascending.
    fn list_logs(&self, kind: LogKind) -> Result<Vec<u64>>;

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
