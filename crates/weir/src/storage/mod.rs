// FORMAT: docs/format/log.md sha=a735f702c580
//! LSM objects (tables, logs, one root) as bytes on a device.
//!
//! Not here: version edits, key order. The form is a directory (`files`), or a raw device or one
//! pre-allocated file (`slots`, LDS). Both pass the tests in `contract`.
//!
//! Invariants: (1) a table uid or log number is never used twice; creation is exclusive; (2) a
//! table whose writer `finish`ed is durable under its name; (3) `write_root_record` is atomic:
//! after a crash the root is the old one or the new one; (4) objects are removed through `remove_*`
//! only; (5) an error states whether it leaves the device's content unknown
//! (`Error::leaves_unknown`). A failed read, open, creation or listing does not, nor does a failed
//! write of a table or a failed allocation of a log, because no version refers to them yet. A
//! failed sync does (H43), and so does a failed write of a log or of the root.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::ids::{SegmentNumber, TableUid};
use crate::base::place::Place;
pub use crate::device::Advice;

#[cfg(test)]
mod contract;
pub mod files;
pub(crate) mod io;
pub(crate) mod open;
pub mod slots;

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Create the store if it does not exist; otherwise its absence is `NotFound`.
    pub create: bool,
    /// Write nothing but the lock.
    pub read_only: bool,
}

impl OpenOptions {
    /// Advice of the error for a store that does not exist and may not be created.
    fn absent_advice(self) -> &'static str {
        if self.read_only {
            "an opening for reading only makes none; correct the path"
        } else {
            "allow its creation (`create_if_missing`) or correct the path"
        }
    }
}

/// The kinds of logs. Their numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LogKind {
    /// The write-ahead log.
    Wal = 1,
    /// The log of version edits.
    Versions = 2,
}

/// What synced groups of a log are padded to where a form says nothing else: the largest physical
/// sector of common disks, and a page of the page cache, which a sync writes as a whole.
pub const LOG_UNIT_BYTES: u64 = 4096;

/// Most bytes of a root record: with what a form keeps beside it, it fits a page of 4 KiB.
pub const ROOT_RECORD_BYTES_MAX: usize = 3 << 10;

/// A part of a store that storage names, creates and removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The root.
    Root,
    /// A table by uid.
    Table(TableUid),
    /// A log by kind and number.
    Log(LogKind, SegmentNumber),
}

/// How far an object's number may be ahead of the store's recorded counter: failed openings use up
/// numbers without recording them. An object further ahead is another store's, and the counter must
/// not continue from its number.
const NUMBERS_AHEAD_MAX: u64 = 1 << 32;

/// Refuses an object whose number a store with the recorded counter `known` cannot have assigned.
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
            "its number is beyond the store's counter, which is at {known}: it belongs to another \
             store; move it away"
        ),
    ))
}

/// A table that a version names.
#[derive(Clone, Copy, Debug)]
pub struct LiveTable<'a> {
    /// Its number.
    pub uid: TableUid,
    /// Where it is, as its writer said.
    pub place: &'a Place,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Tables that are known by what lies beside their bytes.
#[derive(Clone, Debug, Default)]
pub struct WrittenTables {
    /// Those of which all parts are there: uid, place and length in bytes; ascending.
    pub tables: Vec<(TableUid, Place, u64)>,
    /// How many lack a part: it was overwritten or damaged, or they were never finished.
    pub fragments: u64,
    /// All uids that were found, ascending: also those of fragments, and of what a repair wrote
    /// that was cut off, which is among neither.
    pub uids: Vec<TableUid>,
    /// Those of them that a repair wrote that was cut off, ascending: all that it was made of is
    /// there.
    pub unfinished: Vec<TableUid>,
    /// The greatest uid that no repair gave out.
    pub newest: Option<TableUid>,
}

/// What a storage has left for new objects. Others may take it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// Bytes for tables, and for the logs too if these have no areas; `None` if unknown or
    /// unlimited.
    pub table_bytes: Option<u64>,
    /// Bytes of the areas that logs have for themselves; `None` if they share the tables'.
    pub areas: Option<FreeAreas>,
    /// Number of tables and logs that can still be created (free inodes); `None` if unknown or
    /// unlimited.
    pub files: Option<u64>,
    /// The unit in which tables take space, at least 1: one of fewer bytes takes all of it.
    pub table_unit: u64,
}

/// What is left of the areas of logs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeAreas {
    /// Of that of the write-ahead log.
    pub log: u64,
    /// Of that of the version log: what the next base and its edits may take.
    pub versions: u64,
}

/// Sizes that a form gives to the write-ahead log, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBytes {
    /// Of each segment.
    pub segment: u64,
    /// Of all of them.
    pub area: u64,
}

impl FreeSpace {
    /// Of a storage that does not know, or has no limit.
    pub const UNLIMITED: Self = Self { table_bytes: None, areas: None, files: None, table_unit: 1 };
}

/// The objects of one store.
pub trait Storage: Send + Sync {
    /// Tells which tables the recovered versions name, all of them, before the first table of this
    /// opening is opened or created: a form without names knows by nothing else where they are and
    /// what is free. A repair may tell it again.
    ///
    /// # Errors
    /// `Corruption` if two of them share a place, or one has none that there is.
    fn adopt(&self, tables: &mut dyn Iterator<Item = LiveTable<'_>>) -> Result<()>;
    /// Creates table `uid`, exclusively. `bytes_hint` is the expected size for allocation, 0 if
    /// unknown.
    fn create_table(&self, uid: TableUid, bytes_hint: u64) -> Result<Box<dyn TableWriter>>;
    /// Makes tables durable, bytes and names: one barrier for all.
    ///
    /// # Errors
    /// The device's; which of them are durable is unknown then.
    fn sync_tables(&self, tables: Vec<Box<dyn WrittenTable>>) -> Result<()> {
        tables.into_iter().try_for_each(|table| table.sync())?;
        self.sync_names()
    }
    /// Opens a finished table.
    fn open_table(&self, uid: TableUid) -> Result<Arc<dyn TableSource>>;
    /// Frees a table's bytes. Called by the reclaimer and by recovery only (H14, H30).
    fn remove_table(&self, uid: TableUid) -> Result<()>;
    /// The uids of all tables that are known, finished or not, ascending: in a form with names all
    /// that are there, elsewhere those that were adopted and those created since.
    fn list_tables(&self) -> Result<Vec<TableUid>>;

    /// Creates a log with room for at least `bytes` bytes, all of them allocated and written
    /// before, so that a sync of them changes nothing else. 0: it grows as it is written or, in a
    /// form that has areas for its logs, has the capacity of one. Exclusive.
    ///
    /// The log need not have a name that survives a crash before something in it is synced. A form
    /// without names finds it then by its first group (docs/format/log.md), so that one which was
    /// removed may be found again: nobody may use a number twice.
    fn create_log(
        &self,
        kind: LogKind,
        number: SegmentNumber,
        bytes: u64,
    ) -> Result<Arc<dyn LogRegion>>;
    /// As [`create_log`](Self::create_log), without writing the zeros: faster, for logs that are
    /// rarely synced.
    fn reserve_log(
        &self,
        kind: LogKind,
        number: SegmentNumber,
        bytes: u64,
    ) -> Result<Arc<dyn LogRegion>> {
        self.create_log(kind, number, bytes)
    }
    /// Renumbers an obsolete log for reuse, with its stale bytes and their allocation. After a
    /// crash it may have the old number, until something in it was synced.
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
    /// The sizes of segments of the write-ahead log and of all of them, where they are fixed.
    fn log_bytes(&self) -> Option<LogBytes> {
        None
    }
    /// All logs of a kind, ascending.
    fn list_logs(&self, kind: LogKind) -> Result<Vec<SegmentNumber>>;

    /// The root, if one was ever written.
    fn read_root_record(&self) -> Result<Option<Vec<u8>>>;
    /// Replaces the root, atomically and durably. `log` is the version log that it names: a form
    /// with two areas for them gives out the other one until the next replacement.
    ///
    /// Requires: the root has at most [`ROOT_RECORD_BYTES_MAX`].
    fn write_root_record(&self, root: &[u8], log: SegmentNumber) -> Result<()>;
    /// Removes the root, durably: what was being built here is no store.
    fn remove_root_record(&self) -> Result<()>;

    /// Makes removals durable.
    fn sync_names(&self) -> Result<()>;
    /// Frees the space of removed tables and logs on a device that keeps it until the removal is
    /// durable. Retries removals that failed.
    fn finish_removals(&self) -> Result<()> {
        Ok(())
    }
    /// What is left for new tables and logs. What cannot be found out counts as unknown.
    fn free_space(&self) -> FreeSpace {
        FreeSpace::UNLIMITED
    }
    /// What is in the slots and areas, in a form that has them.
    fn slot_space(&self) -> Option<slots::SlotSpace> {
        None
    }
    /// The store's memory budget, of which buffers that the form has of its own, and that nothing
    /// accounts, stay a small part.
    fn keep_beside(&self, budget_bytes: u64) {
        let _ = budget_bytes;
    }
    /// Whether what is written to tables and read of them stays in memory below this, as there is
    /// room: the page cache. Blocks that are not there are read from the device.
    fn is_cached_below(&self) -> bool {
        true
    }
    /// Number of tables that may be open at once (half of the file descriptors); `None` if unknown.
    fn open_tables_max(&self) -> Option<usize> {
        None
    }
    /// Releases the store's lock. No write succeeds afterwards. Open tables and logs of a
    /// directory stay readable; those in slots do not (`Closed`): another store may write there.
    fn unlock(&self) {}
    /// Where the store is, for messages.
    fn path(&self) -> String;
    /// Where an object is, or would be, for messages; log 0 stands for any log of its kind.
    fn name_of(&self, object: Object) -> String;
}

/// The bytes of one log, written and read at any offset. A region has a fixed capacity or, for logs
/// of unknown length, grows as it is written.
pub trait LogRegion: Send + Sync {
    /// Reads at `offset` until `buf` is full or the region ends; the number of bytes read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes the parts one after the other, starting at `offset`, in as few requests as possible.
    /// On an error any part of them may have been written.
    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()>;
    /// The same for whole pages of 4 KiB that the caller will sync at once: where they would only
    /// pass through a cache, they may go past it, which takes the time of the device.
    fn write_pages_at(&self, pages: &[u8], offset: u64) -> Result<()> {
        self.write_at(&[pages], offset)
    }
    /// Makes written bytes durable, and with them the region's size.
    fn sync(&self) -> Result<()>;
    /// Its size in bytes, where reads end; of one that grows, the bytes written so far.
    fn capacity(&self) -> Result<u64>;
    /// Whether it grows as it is written.
    fn grows(&self) -> bool;
    /// What a group is padded to that will be synced, in bytes: what the device writes whole or not
    /// at all is a part of it, so that a later write puts nothing at risk that was acknowledged
    /// (H37). The log's replay has to know it.
    fn unit(&self) -> u64 {
        LOG_UNIT_BYTES
    }
    /// Whether bytes that nobody has written may be those of an earlier log; otherwise they are
    /// zeros.
    fn is_stale(&self) -> bool;
    /// Truncates a region that grows to `end` bytes; durable after the next `sync`. `Unsupported`
    /// for a region of fixed capacity.
    fn cut(&self, end: u64) -> Result<()>;
    /// The first offset at or after `offset` whose byte may be other than zero (holes are skipped);
    /// at least the capacity if there is none.
    fn next_data(&self, offset: u64) -> Result<u64> {
        Ok(offset)
    }
    /// Hint that the whole region will be read sequentially.
    fn will_be_read(&self) {}
    /// Its path, for messages.
    fn name(&self) -> String;
}

/// What a repair needs beyond [`Storage`]: objects that cannot be read, or are about to be
/// replaced, are kept under `lost` names, which only the store's destruction removes.
pub trait RepairStorage: Storage {
    /// Bytes that a file lacks at its end: it was cut off.
    fn cut_off_bytes(&self) -> u64 {
        0
    }
    /// Gives a file that was cut off its length again, with zeros, before anything is written into
    /// it.
    fn lengthen(&self) -> Result<()> {
        Ok(())
    }
    /// Cuts off again what [`lengthen`](Self::lengthen) has added. Requires: nothing of use lies
    /// there.
    fn shorten(&self) -> Result<()> {
        Ok(())
    }
    /// The uids of all tables that lie on the device, adopted or not, ascending. Where nothing but
    /// a version tells which of them live, obsolete ones are among them.
    fn find_tables(&self) -> Result<Vec<TableUid>>;
    /// Whether the tables that are found are all that there were, so that a tree can be made of
    /// them without a version.
    fn finds_all_tables(&self) -> bool {
        true
    }
    /// The tables that were once written to their end and of which no part says that it is another
    /// one's now, live or not, in a form where nothing but a version tells which of them live
    /// (H72). None in a form whose names tell. Costs a read of a page for every slot; they are not
    /// adopted.
    fn written_tables(&self) -> Result<WrittenTables> {
        Ok(WrittenTables::default())
    }
    /// A tree is about to be written anew by what lies on the device. `told`: the version log that
    /// tells something of the tree, where it may be another one than that of the root record. In a
    /// form that has two places for version logs the new one goes over the other one, of which a
    /// copy is kept, so that a repair that is cut off leaves this one to the next. Until the root
    /// record is written, what is written is the repair's own, and no table for
    /// [`written_tables`](Self::written_tables).
    fn begin_rebuild(&self, told: Option<SegmentNumber>) {
        let _ = told;
    }
    /// Where the root record is lost, with all that told where it was: the newest version log, if
    /// no other one can have been in use. `None` in a form in which the root record is an object
    /// like others.
    fn unnamed_log(&self) -> Option<SegmentNumber> {
        None
    }
    /// Where that is lost, what tells so: there is no such object that could be missing. `None` in
    /// a form in which there is.
    fn lost_root(&self) -> Option<Error> {
        None
    }
    /// Makes what is there twice so again, if one of the two is damaged; whether it was.
    ///
    /// # Errors
    /// The device's.
    fn restore_copies(&self) -> Result<bool> {
        Ok(false)
    }
    /// Renames an object that cannot be read, durably. Its new name; `None` if it does not exist.
    fn set_aside(&self, object: Object) -> Result<Option<String>>;
    /// Keeps a durable copy of an object that is about to be replaced and must stay in place until
    /// then. The name of the copy; `None` if there is no such object. An identical copy that an
    /// interrupted repair left is reused. What is not a regular file, or too large to be the
    /// object, is renamed as by [`set_aside`](Self::set_aside).
    fn copy_aside(&self, object: Object) -> Result<Option<String>>;
    /// The name that [`set_aside`](Self::set_aside) would use for `object` now.
    fn free_lost_name(&self, object: Object) -> Result<String>;
    /// The objects that earlier repairs have kept, with their `lost` names, sorted by name.
    fn list_lost(&self) -> Result<Vec<(String, Object)>>;
}

/// A table being written: append only.
pub trait TableWriter: Send {
    /// Appends bytes. May buffer; after an error the writer must be abandoned.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Bytes appended so far.
    fn len(&self) -> u64;
    /// Writes what is buffered. The table is durable after [`Storage::sync_tables`].
    fn end(self: Box<Self>) -> Result<Box<dyn WrittenTable>>;
    /// Removes the unfinished table.
    fn abandon(self: Box<Self>);
}

/// A table of which all bytes are written, and may be lost with the power.
pub trait WrittenTable: Send {
    /// Where it is, for its description.
    fn place(&self) -> Place;
    /// Makes its bytes durable, not its name.
    fn sync(self: Box<Self>) -> Result<()>;
}

/// The bytes of a finished table.
pub trait TableSource: Send + Sync {
    /// Reads exactly `buf.len()` bytes at `offset`; a table that ends before is `Corruption`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Hints at how `bytes` bytes at `offset` will be accessed; 0 bytes: all from `offset` on.
    fn advise(&self, offset: u64, bytes: u64, advice: Advice);
    /// Length in bytes.
    fn len(&self) -> u64;
    /// Where it is, as its writer said.
    fn place(&self) -> Place;
    /// The file, for messages.
    fn path(&self) -> String;
}
