//! The one door to I/O: directories and files, real, simulated or wrapped.
//!
//! Names and directory syncs are part of the interface, so that they are inside the fault model
//! too: a created, renamed or removed name is durable only after [`Dir::sync`], written bytes only
//! after [`File::sync`]. Nothing here knows what the bytes mean.
//!
//! Errors: every error names the path and the operation. A full disk or quota is
//! `ErrorKind::NoSpace`, a missing name `ErrorKind::NotFound`, an existing one (on `create`)
//! `ErrorKind::Conflict`, a held lock `ErrorKind::Locked`.

use std::sync::Arc;

use crate::base::error::{Error, Result};

#[cfg(feature = "sim")]
pub mod faulty;
pub mod real;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "sim")]
pub mod site;
#[cfg(feature = "sim")]
pub mod spindle;

/// What the bytes of a file are for: said by the storage that asks for it, since only that knows.
/// Devices that count requests or make them fail go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
#[cfg_attr(
    not(feature = "sim"),
    expect(
        dead_code,
        reason = "only devices of the simulation have requests to the directory itself"
    )
)]
pub enum FileClass {
    /// A segment of the write-ahead log.
    Wal = 0,
    /// A log of version edits.
    Versions,
    /// A table.
    Table,
    /// The root, or a root being written.
    Root,
    /// The lock file.
    Lock,
    /// The directory itself.
    Directory,
    /// Anything else, such as what a repair has kept.
    Other,
}

#[cfg(feature = "sim")]
impl FileClass {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Wal,
        Self::Versions,
        Self::Table,
        Self::Root,
        Self::Lock,
        Self::Directory,
        Self::Other,
    ];
}

/// A flat directory: names without separators.
pub trait Dir: Send + Sync {
    /// Creates `name` for reading and writing. Exclusive: an existing name is a `Conflict`.
    fn create(&self, name: &str, class: FileClass) -> Result<Arc<dyn File>>;
    /// Opens an existing file. What is no regular file (a pipe, a directory) is `Corruption`.
    fn open(&self, name: &str, class: FileClass, mode: Mode) -> Result<Arc<dyn File>>;
    /// Gives `from` the name `to` and the class `class`, replacing a file of that name.
    fn rename(&self, from: &str, to: &str, class: FileClass) -> Result<()>;
    /// Removes `name`. Open files stay readable.
    fn unlink(&self, name: &str, class: FileClass) -> Result<()>;
    /// All names, sorted. Subdirectories are listed with a trailing `/`.
    fn list(&self) -> Result<Vec<String>>;
    /// Makes creations, renames and removals durable.
    fn sync(&self) -> Result<()>;
    /// Takes the exclusive lock file `name`, creating it if need be: held until the value is
    /// dropped, or the process and its forks end. A second taker, in this process or another, also
    /// through another path to the same directory, gets `Locked`. What is no regular file is
    /// `Corruption`.
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>>;
    /// Bytes that new files may take; `None` if nobody knows. Others may take them first.
    fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Files that may still be created; `None` if nobody knows, or there is no limit but the space.
    /// Others may create them first.
    fn free_files(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Files that this process may have open at once, as far as the device knows.
    fn open_files_max(&self) -> Option<usize> {
        None
    }
    /// The path for messages.
    fn path(&self) -> String;
}

/// A held lock; released on drop.
pub trait Lock: Send + Sync {}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For reading only.
    Read,
    /// For reading and writing.
    ReadWrite,
}

/// What the reader of a range is going to do; a hint that may be ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Single blocks will be read in no order: do not read ahead.
    Random,
    /// The range will be read from start to end.
    Sequential,
    /// The range will be read soon.
    WillNeed,
}

/// A file, a block device or a simulated one. Shared between threads.
#[cfg_attr(
    feature = "sim",
    expect(
        clippy::len_without_is_empty,
        reason = "the length is asked of the device and may fail; nobody asks just whether it is 0"
    )
)]
pub trait File: Send + Sync {
    /// Reads at `offset` until `buf` is full or the file ends; the number of bytes read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all of `buf` at `offset`. On an error any part of it may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;
    /// Writes the parts one after the other, starting at `offset`, in as few requests as possible.
    fn write_parts_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let mut at = offset;
        for part in parts {
            self.write_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }
    /// Makes written bytes and the length durable (`fdatasync`).
    fn sync(&self) -> Result<()>;
    /// Starts writing a range back without waiting and without any promise; smooths a later `sync`.
    fn write_back(&self, offset: u64, bytes: u64) -> Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }
    /// The length in bytes.
    fn len(&self) -> Result<u64>;
    /// The first offset from `offset` on that may hold anything but zeros; the length, or more, if
    /// there is none. What lies before it is a hole, which reads as zeros.
    fn next_data(&self, offset: u64) -> Result<u64> {
        Ok(offset)
    }
    /// Reserves space for `[0, bytes)` and extends the file to it, so that later writes inside need
    /// no space and no metadata. The new bytes read as zeros.
    fn allocate(&self, bytes: u64) -> Result<()>;
    /// As [`allocate`](Self::allocate), but later writes inside may still need metadata: quick, and
    /// the first sync of what is written costs more.
    fn reserve(&self, bytes: u64) -> Result<()> {
        self.allocate(bytes)
    }
    /// Cuts or extends the file to `bytes`.
    fn set_len(&self, bytes: u64) -> Result<()>;
    /// Hints at the access pattern of a range (`bytes` 0: to the end).
    fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        let _ = (offset, bytes, advice);
    }
    /// The path for messages.
    fn path(&self) -> String;
}

impl dyn File {
    /// Reads exactly `buf.len()` bytes at `offset`; a file that ends before is `Corruption`.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let wanted = buf.len();
        let got = self.read_at(buf, offset)?;
        if got == wanted {
            return Ok(());
        }
        Err(Error::corruption(
            self.path(),
            offset,
            format_args!("the file ends too early ({got} of {wanted} bytes)"),
        ))
    }
}
