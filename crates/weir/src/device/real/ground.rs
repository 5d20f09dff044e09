//! A file or a block device that a whole store is in, opened by its own path and locked.
//!
//! Not here: what is in it (`storage::slots`).
//!
//! Invariants: (1) nobody else has it: a file is locked (`flock`), a device is opened exclusively,
//! so that it is not mounted and no other node of it is open; within the process both are told by
//! their numbers, not by their path; (2) a file that a loop device shows is refused: it would be
//! two doors to the same bytes.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, FileType, OFlags};
use rustix::io::Errno;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::process::ProcessMark;
use crate::device::direct::Direct;
use crate::device::real::{
    FILE_RIGHTS, Identity, RealDir, RealFile, RealLock, failed, flock, hold, retry,
};
use crate::device::{File, Lock, Mode};

/// A store's file or device.
pub(crate) struct Ground {
    /// Through the page cache.
    pub(crate) file: Arc<dyn File>,
    /// Past the page cache, if the file system lets it.
    pub(crate) direct: Arc<dyn File>,
    /// The file system does not let it: these requests go through the page cache, too.
    pub(crate) is_cached: bool,
    pub(crate) lock: Box<dyn Lock>,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathKind {
    Nothing,
    File,
    BlockDevice,
    /// A directory, or what can hold no store.
    Other,
}

/// What is at `path`; symbolic links are followed.
pub(crate) fn kind_of(path: &Path) -> PathKind {
    match fs::stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::RegularFile) => PathKind::File,
        Ok(FileType::BlockDevice) => PathKind::BlockDevice,
        Ok(_) => PathKind::Other,
        Err(_) => PathKind::Nothing,
    }
}

/// Whether two paths lead to the same file, device or directory.
pub(crate) fn are_same(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino));
    place(a).is_some_and(|a| place(b) == Some(a))
}

/// Opens and locks a file or a block device. `create`: a new file, which must not exist.
///
/// # Errors
/// `Locked` if it is open elsewhere, mounted, or behind a loop device; `NotFound`; `Conflict` for a
/// file that exists; `InvalidArgument` for anything else than a file or a block device; `Io`. A
/// file that was created is removed then.
pub(crate) fn open(path: &Path, mode: Mode, create: bool) -> Result<Ground> {
    let access = match mode {
        Mode::Read => OFlags::RDONLY,
        Mode::ReadWrite => OFlags::RDWR,
    };
    let kind = kind_of(path);
    if kind == PathKind::Other {
        let what = format!("{} is neither a file nor a block device", path.display());
        return Err(Error::invalid(what));
    }
    refuse_behind_loop(path)?;
    // Exclusive for a device: the kernel refuses one that is mounted, or open exclusively.
    let exclusive = match (kind, create) {
        (PathKind::BlockDevice, _) => OFlags::EXCL,
        (_, true) => OFlags::CREATE | OFlags::EXCL,
        (_, false) => OFlags::empty(),
    };
    let rights = fs::Mode::from_raw_mode(FILE_RIGHTS);
    let flags = access | exclusive | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = retry(|| fs::open(path, flags, rights)).map_err(|errno| match errno {
        Errno::BUSY => busy(path, "is mounted, or in use by another program"),
        _ => failed(format_args!("opening {}", path.display()), errno),
    })?;
    let opened = open_beside(path, kind, access, fd);
    if create && opened.is_err() {
        remove(path);
    }
    opened
}

/// Locks what `fd` is, and opens it once more for each kind of requests.
fn open_beside(path: &Path, kind: PathKind, access: OFlags, fd: OwnedFd) -> Result<Ground> {
    let stat = retry(|| fs::fstat(&fd))
        .map_err(|e| failed(format_args!("looking at {}", path.display()), e))?;
    let identity: Identity = match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => (stat.st_rdev, u64::MAX),
        _ => (stat.st_dev, stat.st_ino),
    };
    let process = ProcessMark::current();
    let mut held = hold(identity, process, path, path)?;
    // A device is held by its first descriptor alone, which the lock closes: handles that outlive
    // the store keep theirs. The exclusive opening is this process's: its own need no flag.
    let own = match kind {
        PathKind::BlockDevice => {
            retry(|| fs::open(path, access | OFlags::CLOEXEC, fs::Mode::empty()))
        }
        _ => retry(|| rustix::io::fcntl_dupfd_cloexec(&fd, 0)),
    };
    let own = own.map_err(|e| failed(format_args!("opening {}", path.display()), e))?;
    let own_stat = retry(|| fs::fstat(&own))
        .map_err(|e| failed(format_args!("looking at {}", path.display()), e))?;
    if (own_stat.st_ino, own_stat.st_rdev) != (stat.st_ino, stat.st_rdev) {
        return Err(busy(path, "was replaced while it was opened"));
    }
    flock(&fd, &mut held, path, path)?;
    let lock = RealLock { descriptors: vec![fd], _held: vec![held], process };
    let file: Arc<dyn File> = Arc::new(RealFile { fd: own, path: path.to_owned(), apart: false });
    let flags = access | OFlags::CLOEXEC | OFlags::DIRECT;
    let (direct, is_cached) = match retry(|| fs::open(path, flags, fs::Mode::empty())) {
        Ok(fd) => {
            let apart = kind != PathKind::BlockDevice;
            (Direct::over(Arc::new(RealFile { fd, path: path.to_owned(), apart })), false)
        }
        // Some file systems cannot (tmpfs before Linux 6.6).
        Err(Errno::INVAL | Errno::OPNOTSUPP) => (Arc::clone(&file), true),
        Err(e) => return Err(failed(format_args!("opening {}", path.display()), e)),
    };
    Ok(Ground { file, direct, is_cached, lock: Box::new(lock) })
}

/// Asks a file system that copies on write to write this new and empty file in place. Best effort.
pub(crate) fn write_in_place(path: &Path) {
    if let Ok(fd) = fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, fs::Mode::empty()) {
        super::write_in_place(&fd);
    }
}

/// Removes a file that was just created. Best effort.
pub(crate) fn remove(path: &Path) {
    let _ = fs::unlink(path);
}

fn busy(path: &Path, why: &str) -> Error {
    let what = format!("{} {why}; close it there first", path.display());
    Error::new(ErrorKind::Locked, what)
}

/// Refuses a file that is shown as a block device, by whatever name.
fn refuse_behind_loop(path: &Path) -> Result<()> {
    let node_of = |path: &Path| fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let Some(own) = node_of(path) else { return Ok(()) };
    // Without it there are no block devices.
    let Ok(devices) = RealDir::open("/sys/block", false).and_then(|dir| dir.list()) else {
        return Ok(());
    };
    for device in devices {
        let name = device.trim_end_matches('/');
        let backing = format!("/sys/block/{name}/loop/backing_file");
        let Ok(backing) = std::fs::read_to_string(backing) else { continue };
        if node_of(Path::new(backing.trim_end())) == Some(own) {
            return Err(busy(path, &format!("is shown as /dev/{name}")));
        }
    }
    Ok(())
}
