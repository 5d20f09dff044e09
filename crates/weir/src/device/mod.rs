//! The engine's environment for I/O (Env in LevelDB): directories and files, real, simulated or
//! wrapped.
//!
//! Names and directory syncs are part of the interface, and so of the fault model: a created,
//! renamed or removed name is durable only after [`Dir::sync`], written bytes only after
//! [`File::sync`]. Not here: the meaning of the bytes.
//!
//! Errors: every error names the path and the operation. A full disk or quota is
//! `ErrorKind::NoSpace`, a missing name `ErrorKind::NotFound`, an existing one (on `create`)
//! `ErrorKind::Conflict`, a held lock `ErrorKind::Locked`.

use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};

pub(crate) mod direct;
#[cfg(feature = "sim")]
pub mod faulty;
#[cfg(feature = "sim")]
pub mod memory;
pub mod part;
pub mod real;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "sim")]
pub mod site;
#[cfg(feature = "sim")]
pub mod spindle;

/// The use of a file, stated by `storage` with each request. Devices that count requests or make
/// them fail select by it.
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
    /// The root record, or the temporary file of its replacement.
    Root,
    /// The lock file.
    Lock,
    /// The directory itself.
    Directory,
    /// Any other file, such as those kept by a repair.
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
    /// Opens an existing file. A name of a pipe, a directory or the like is `Corruption`.
    fn open(&self, name: &str, class: FileClass, mode: Mode) -> Result<Arc<dyn File>>;
    /// Gives `from` the name `to` and the class `class`, replacing a file of that name.
    fn rename(&self, from: &str, to: &str, class: FileClass) -> Result<()>;
    /// Removes `name`. Open files stay readable.
    fn unlink(&self, name: &str, class: FileClass) -> Result<()>;
    /// All names, sorted. Subdirectories are listed with a trailing `/`.
    fn list(&self) -> Result<Vec<String>>;
    /// Makes creations, renames and removals durable.
    fn sync(&self) -> Result<()>;
    /// Takes the exclusive lock file `name`, creating it if missing: held until the value is
    /// dropped, or the process and its forks end. A second attempt, in this process or another,
    /// also through another path to the same directory, fails with `Locked`. A name of no regular
    /// file is `Corruption`.
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>>;
    /// Bytes available to new files, `None` if unknown; other processes may take them first.
    fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Files (inodes) that can still be created, `None` if unknown or limited only by space; other
    /// processes may create them first.
    fn free_files(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Limit of the files that this process can have open at once, `None` if unknown.
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

/// The expected access to a range; a hint that may be ignored.
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
    /// Writes all of `buf` at `offset` and makes it durable, and the length if it grows; bytes that
    /// were written before need not become durable with it. As an error of [`sync`](Self::sync),
    /// one of this leaves the content unknown.
    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)?;
        self.sync()
    }
    /// Tells the device that nobody needs a range, which lies within the length. What it holds is
    /// undefined then, and may be another thing at each read and after a power cut, until it is
    /// written (H77). `Unsupported` where nothing would be gained.
    fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        let what = format!("discarding {bytes} bytes at offset {offset} of {}", self.path());
        Err(Error::new(ErrorKind::Unsupported, what))
    }
    /// The same file, whose requests are of another class; `None` if none of its requests is
    /// counted or made to fail by class.
    fn classed(&self, class: FileClass) -> Option<Arc<dyn File>> {
        let _ = class;
        None
    }
    /// Starts write-back of a range without waiting; no durability, but a later `sync` is shorter.
    fn write_back(&self, offset: u64, bytes: u64) -> Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }
    /// The length in bytes.
    fn len(&self) -> Result<u64>;
    /// The first offset from `offset` on outside a hole; the length, or more, if there is none. The
    /// bytes before it read as zeros.
    fn next_data(&self, offset: u64) -> Result<u64> {
        Ok(offset)
    }
    /// Reserves space for `[0, bytes)` and extends the file to it, so that later writes inside need
    /// no space and no metadata. The new bytes read as zeros.
    fn allocate(&self, bytes: u64) -> Result<()>;
    /// As [`allocate`](Self::allocate), but later writes inside may still need metadata: it is
    /// fast, and the first sync of each written range costs more.
    fn reserve(&self, bytes: u64) -> Result<()> {
        self.allocate(bytes)
    }
    /// Truncates or extends the file to `bytes`.
    fn set_len(&self, bytes: u64) -> Result<()>;
    /// Hints at the access pattern of a range (`bytes` 0: to the end).
    fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        let _ = (offset, bytes, advice);
    }
    /// The path for messages.
    fn path(&self) -> String;
}

/// The largest length of a file: that of `off_t`.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// That `[offset, offset + bytes)` of the file `path` can exist. Offsets of writes and lengths are
/// the engine's own; those of reads may be from disk and are not asserted.
fn assert_range(path: impl std::fmt::Display, offset: u64, bytes: u64) {
    assert!(
        offset.checked_add(bytes).is_some_and(|end| end <= FILE_BYTES_MAX),
        "{bytes} bytes at offset {offset} of {path}, above the limit {FILE_BYTES_MAX}"
    );
}

/// That `name` stays inside its directory.
fn assert_name(name: &str) {
    let inside = !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
    assert!(inside, "{name:?} is not a file name");
}

impl dyn File {
    /// Reads exactly `buf.len()` bytes at `offset`; a file that ends before is `Corruption`.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let wanted = buf.len();
        let got = self.read_at(buf, offset)?;
        if got == wanted {
            return Ok(());
        }
        assert!(got < wanted, "{got} bytes read into {wanted} from {}", self.path());
        Err(Error::corruption(
            self.path(),
            offset,
            format_args!("the file ends too early ({got} of {wanted} bytes)"),
        ))
    }
}
