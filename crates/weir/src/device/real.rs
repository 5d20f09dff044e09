//! Directories and files of the operating system (Linux, through rustix).
//!
//! Not here: the meaning of names (`storage::files`), simulated disks (`device::sim`).
//!
//! Invariants: (1) every new file is created with `O_EXCL`, every descriptor with `O_CLOEXEC`;
//! (2) a short or interrupted read or write is continued until it is complete or fails;
//! (3) only `fdatasync`, and `fsync` of the directory, make data durable: `sync_file_range` is a
//! hint (H33); (4) allocated space is written with zeros once, because `fallocate` alone makes
//! *unwritten* extents, whose first overwrite changes metadata (H36).
//!
//! Thread-safety: all operations may be called from any thread; all I/O is positional.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::fmt;
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FallocateFlags, FileType, FlockOperation, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::process::ProcessMark;
use crate::base::sched::Mutex;
use crate::device::{Advice, Dir, File, FileClass, Lock, Mode, assert_name, assert_range};

/// Access rights of new files, before the process's umask.
const FILE_RIGHTS: u32 = 0o644;

/// Access rights of new directories, before the process's umask.
const DIR_RIGHTS: u32 = 0o755;

/// Zeros are written in pieces of this size, aligned to it: 4 KiB, a page. The page cache keeps a
/// file in folios as large as the writes that created them. ext4 walks all blocks of a folio at
/// every small write into it (log groups of 168 bytes cost 2.0 to 2.7 µs each after pieces of 1
/// MiB, 1.1 to 1.3 µs after 16 KiB), and a folio is dirty as a whole: after pieces of 16 KiB every
/// synced group of 4 KiB counted four times in the process's written bytes and towards the dirty
/// limit.
const ZERO_PIECE_BYTES: usize = 4 << 10;

/// Write-back of zeros is started after each 1 MiB of them.
const ZERO_WRITE_BACK_BYTES: u64 = 1 << 20;

// Else no piece ends where a write-back starts.
const _: () = assert!(ZERO_WRITE_BACK_BYTES.is_multiple_of(ZERO_PIECE_BYTES as u64));

static ZEROS: [u8; ZERO_PIECE_BYTES] = [0; ZERO_PIECE_BYTES];

/// Maximum number of parts of one `pwritev`: the kernel's `UIO_MAXIOV`.
const PARTS_PER_CALL_MAX: usize = 1024;

/// A directory of the operating system.
#[derive(Debug)]
pub struct RealDir {
    fd: OwnedFd,
    path: PathBuf,
}

/// A file of the operating system.
struct RealFile {
    fd: OwnedFd,
    path: PathBuf,
    /// Whether requests let go of the file while the device works, where that is possible.
    apart: bool,
}

/// Repeats a system call that a signal interrupted.
fn retry<T>(call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    rustix::io::retry_on_intr(call)
}

/// The engine's error for a failed system call.
fn failed(what: fmt::Arguments<'_>, errno: Errno) -> Error {
    match errno {
        Errno::EXIST => Error::with_source(
            ErrorKind::Conflict,
            format!("{what}: the name is taken"),
            std::io::Error::from(errno),
        ),
        // A writer handles a file-size limit (RLIMIT_FSIZE, or the file system's) as lack of space.
        Errno::FBIG => Error::with_source(
            ErrorKind::NoSpace,
            format!("{what}: the file may not grow any further"),
            std::io::Error::from(errno),
        ),
        Errno::ROFS => Error::with_source(
            ErrorKind::Io,
            format!(
                "{what}: the file system is mounted read-only; open the store with `read_only`"
            ),
            std::io::Error::from(errno),
        ),
        Errno::PERM => Error::with_source(
            ErrorKind::Io,
            format!(
                "{what}: not permitted; it may be protected from writes (`blockdev --getro` tells \
                 of a device, `lsattr` of a file): take that off, or open the store with \
                 `read_only`"
            ),
            std::io::Error::from(errno),
        ),
        Errno::ACCESS => Error::with_source(
            ErrorKind::Io,
            format!(
                "{what}: permission denied; let this process read and write the store's directory \
                 and its files, or, where it may read them only, open the store with `read_only`"
            ),
            std::io::Error::from(errno),
        ),
        Errno::MFILE | Errno::NFILE => Error::with_source(
            ErrorKind::Io,
            format!("{what}: too many open files; raise the limit (ulimit -n)"),
            std::io::Error::from(errno),
        ),
        // From removing the name, or renaming to it.
        Errno::ISDIR => Error::with_source(
            ErrorKind::Io,
            format!("{what}: that is a directory, which is not the store's; move it away"),
            std::io::Error::from(errno),
        ),
        _ => Error::io(what, errno.into()),
    }
}

/// Whether an open failed because the name is not a file's: a directory, a socket, a device.
fn is_no_file(errno: Errno) -> bool {
    matches!(errno, Errno::ISDIR | Errno::NXIO | Errno::NODEV)
}

/// The error for a directory, a pipe or the like under the name of a file.
fn misplaced(path: &Path, is_dir: bool) -> Error {
    let found = if is_dir { "a directory" } else { "a pipe or the like" };
    Error::misplaced(path.display().to_string(), found)
}

impl RealDir {
    /// Opens the directory at `path`; with `create`, first creates it and its missing parents,
    /// durably.
    ///
    /// # Errors
    /// `NotFound` without `create`, `InvalidArgument` if `path` is not a directory, `Io`.
    pub fn open(path: impl AsRef<Path>, create: bool) -> Result<Arc<dyn Dir>> {
        let path = path.as_ref();
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(Error::invalid(format!("{path:?} is no path: it has a zero byte")));
        }
        if path.as_os_str().is_empty() {
            return Err(Error::invalid("an empty path names no directory; \".\" is this one"));
        }
        if create {
            make_dirs(path)?;
        }
        let fd = open_dir(path)?;
        Ok(Arc::new(Self { fd, path: path.to_owned() }))
    }

    fn full(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry(|| fs::open(path, flags, fs::Mode::empty())).map_err(|errno| match errno {
        Errno::NOTDIR => no_dir(path),
        _ => failed(format_args!("opening the directory {}", path.display()), errno),
    })
}

/// The error for a directory that could not be made.
fn not_made(path: &Path, errno: Errno) -> Error {
    match errno {
        Errno::NOTDIR => no_dir(path),
        _ => failed(format_args!("making directory {}", path.display()), errno),
    }
}

/// The error for a path of which some part is a file.
fn no_dir(path: &Path) -> Error {
    let file = path.ancestors().find(|part| part.is_file()).unwrap_or(path).display();
    let what = if file.to_string() == path.display().to_string() {
        format!("{file} is not a directory; name a directory")
    } else {
        format!(
            "{} is no directory's path: {file} is not a directory; name another",
            path.display()
        )
    };
    Error::invalid(what)
}

/// Creates `path` and its missing parents, and makes their names durable.
fn make_dirs(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(p) if p.as_os_str().is_empty() => Path::new("."),
        Some(p) => p,
        None => return Ok(()),
    };
    match retry(|| fs::mkdir(path, fs::Mode::from_raw_mode(DIR_RIGHTS))) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(Errno::NOENT) => {
            make_dirs(parent)?;
            match retry(|| fs::mkdir(path, fs::Mode::from_raw_mode(DIR_RIGHTS))) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(not_made(path, e)),
            }
        }
        // On a read-only file system `mkdir` fails with EROFS even if the name exists.
        Err(Errno::ROFS) if path.is_dir() => return Ok(()),
        Err(e) => return Err(not_made(path, e)),
    }
    let fd = open_dir(parent)?;
    retry(|| fs::fsync(&fd))
        .map_err(|e| failed(format_args!("syncing directory {}", parent.display()), e))
}

impl Dir for RealDir {
    fn create(&self, name: &str, class: FileClass) -> Result<Arc<dyn File>> {
        assert_name(name);
        let path = self.full(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let rights = fs::Mode::from_raw_mode(FILE_RIGHTS);
        let fd = retry(|| fs::openat(&self.fd, name, flags, rights))
            .map_err(|e| failed(format_args!("creating {}", path.display()), e))?;
        if class == FileClass::Wal && copies_on_write(&fd) {
            write_in_place(&fd);
        }
        Ok(Arc::new(RealFile { fd, path, apart: false }))
    }

    fn open(&self, name: &str, _: FileClass, mode: Mode) -> Result<Arc<dyn File>> {
        let path = self.full(name);
        let access = match mode {
            Mode::Read => OFlags::RDONLY,
            Mode::ReadWrite => OFlags::RDWR,
        };
        // Without `NONBLOCK`, opening a pipe waits for its other end.
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match retry(|| fs::openat(&self.fd, name, flags, fs::Mode::empty())) {
            Err(e) if is_no_file(e) => return Err(misplaced(&path, e == Errno::ISDIR)),
            opened => opened.map_err(|e| failed(format_args!("opening {}", path.display()), e))?,
        };
        identify_file(&fd, &path)?;
        Ok(Arc::new(RealFile { fd, path, apart: false }))
    }

    fn rename(&self, from: &str, to: &str, _: FileClass) -> Result<()> {
        assert_name(to);
        retry(|| fs::renameat(&self.fd, from, &self.fd, to))
            .map_err(|e| failed(format_args!("renaming {} to {to}", self.full(from).display()), e))
    }

    fn unlink(&self, name: &str, _: FileClass) -> Result<()> {
        retry(|| fs::unlinkat(&self.fd, name, AtFlags::empty()))
            .map_err(|e| failed(format_args!("removing {}", self.full(name).display()), e))
    }

    fn list(&self) -> Result<Vec<String>> {
        let doing = |e| failed(format_args!("listing {}", self.path.display()), e);
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).map_err(doing)? {
            let entry = entry.map_err(doing)?;
            let raw = entry.file_name();
            if raw == c"." || raw == c".." {
                continue;
            }
            let mut name = raw.to_string_lossy().into_owned();
            let is_dir = match entry.file_type() {
                FileType::Directory => true,
                // Some file systems do not list the type.
                FileType::Unknown => match fs::statat(&self.fd, raw, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
                    Err(Errno::NOENT) => continue,
                    Err(e) => return Err(doing(e)),
                },
                _ => false,
            };
            if is_dir {
                name.push('/');
            }
            names.push(name);
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync(&self) -> Result<()> {
        retry(|| fs::fsync(&self.fd))
            .map_err(|e| failed(format_args!("syncing directory {}", self.path.display()), e))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        Ok(Box::new(RealLock::take(self, name)?))
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        let stat = retry(|| fs::fstatvfs(&self.fd)).map_err(|e| {
            failed(format_args!("asking for the free space of {}", self.path.display()), e)
        })?;
        // Free blocks without those reserved for root.
        Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize)))
    }

    fn free_files(&self) -> Result<Option<u64>> {
        let stat = retry(|| fs::fstatvfs(&self.fd)).map_err(|e| {
            failed(format_args!("asking for the free inodes of {}", self.path.display()), e)
        })?;
        // File systems without an inode table (btrfs) report 0 inodes in total.
        Ok((stat.f_files > 0).then_some(stat.f_favail))
    }

    /// The soft limit of the process, raised to the hard limit if permitted.
    fn open_files_max(&self) -> Option<usize> {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let (Some(soft), true) = (limit.current, limit.current != limit.maximum) else {
            return limit.current.map(|soft| soft as usize);
        };
        let raised = setrlimit(Resource::Nofile, raised).ok().and(limit.maximum);
        Some(raised.unwrap_or(soft) as usize)
    }

    fn path(&self) -> String {
        self.path.display().to_string()
    }
}

impl RealFile {
    fn read_some(&self, buf: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
        if self.apart
            && let Some(read) = uring::read_at(self.fd.as_fd(), buf, offset)
        {
            return read;
        }
        retry(|| rustix::io::pread(&self.fd, &mut *buf, offset))
    }

    fn write_some(&self, buf: &[u8], offset: u64) -> rustix::io::Result<usize> {
        if self.apart
            && let Some(written) = uring::write_at(self.fd.as_fd(), buf, offset)
        {
            return written;
        }
        retry(|| rustix::io::pwrite(&self.fd, buf, offset))
    }

    fn fault(&self, what: &str, offset: u64, errno: Errno) -> Error {
        failed(format_args!("{what} {} at offset {offset}", self.path.display()), errno)
    }
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + done as u64;
            match self.read_some(rest, at) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) => return Err(self.fault("reading", at, e)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        assert_range(self.path.display(), offset, buf.len() as u64);
        let mut done = 0;
        while let Some(rest) = buf.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + done as u64;
            match self.write_some(rest, at) {
                // A write of 0 bytes without an error means that no space is left.
                Ok(0) => return Err(self.fault("writing", at, Errno::NOSPC)),
                Ok(n) => done += n,
                Err(e) => return Err(self.fault("writing", at, e)),
            }
        }
        Ok(())
    }

    fn write_parts_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        assert_range(self.path.display(), offset, bytes);
        let mut at = offset;
        for chunk in parts.chunks(PARTS_PER_CALL_MAX) {
            let mut slices: Vec<IoSlice<'_>> = chunk.iter().map(|p| IoSlice::new(p)).collect();
            let mut rest: &mut [IoSlice<'_>] = &mut slices;
            // Empty parts at the front are skipped, so that 0 written bytes mean "no space".
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                match retry(|| rustix::io::pwritev(&self.fd, rest, at)) {
                    Ok(0) => return Err(self.fault("writing", at, Errno::NOSPC)),
                    Ok(n) => {
                        IoSlice::advance_slices(&mut rest, n);
                        at += n as u64;
                    }
                    Err(e) => return Err(self.fault("writing", at, e)),
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        retry(|| fs::fdatasync(&self.fd))
            .map_err(|e| failed(format_args!("syncing {}", self.path.display()), e))
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        assert_range(self.path.display(), offset, buf.len() as u64);
        let mut done = 0;
        while let Some(rest) = buf.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + done as u64;
            let part = [IoSlice::new(rest)];
            match retry(|| rustix::io::pwritev2(&self.fd, &part, at, ReadWriteFlags::DSYNC)) {
                Ok(0) => return Err(self.fault("writing", at, Errno::NOSPC)),
                Ok(n) => done += n,
                // Not all file systems know the flag.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.write_at(rest, at)?;
                    return self.sync();
                }
                Err(e) => return Err(self.fault("writing", at, e)),
            }
        }
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        assert_range(self.path.display(), offset, bytes);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if bytes == 0 {
            return Ok(());
        }
        retry(|| fs::fallocate(&self.fd, flags, offset, bytes)).map_err(|e| match e {
            Errno::OPNOTSUPP | Errno::NOSYS => {
                let what = format!("{} cannot discard", self.path.display());
                Error::new(ErrorKind::Unsupported, what)
            }
            e => self.fault("discarding", offset, e),
        })
    }

    fn write_back(&self, offset: u64, bytes: u64) -> Result<()> {
        start_write_back(self.fd.as_fd(), offset, bytes)
            .or_else(|e| match e {
                // Some file systems lack it; it is a hint.
                Errno::NOSYS | Errno::OPNOTSUPP | Errno::SPIPE | Errno::INVAL => Ok(()),
                e => Err(e),
            })
            .map_err(|e| self.fault("starting to write back", offset, e))
    }

    fn len(&self) -> Result<u64> {
        let doing = |e| failed(format_args!("asking for the length of {}", self.path.display()), e);
        let stat = retry(|| fs::fstat(&self.fd)).map_err(doing)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
            // Nobody else uses the offset: requests have their own.
            return fs::seek(&self.fd, fs::SeekFrom::End(0)).map_err(doing);
        }
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn next_data(&self, offset: u64) -> Result<u64> {
        let len = self.len()?;
        match retry(|| fs::seek(&self.fd, fs::SeekFrom::Data(offset))) {
            Ok(data) => Ok(data),
            // A hole up to the end.
            Err(Errno::NXIO) => Ok(len.max(offset)),
            // Some file systems do not report holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(offset),
            Err(e) => Err(self.fault("looking for data in", offset, e)),
        }
    }

    fn allocate(&self, bytes: u64) -> Result<()> {
        assert_range(self.path.display(), 0, bytes);
        let old = self.len()?;
        if old >= bytes {
            return Ok(());
        }
        match retry(|| fs::fallocate(&self.fd, FallocateFlags::empty(), 0, bytes)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(e) => return Err(self.fault("allocating space for", bytes, e)),
        }
        let mut at = old;
        while at < bytes {
            let piece_end = (at + 1).next_multiple_of(ZERO_PIECE_BYTES as u64).min(bytes);
            self.write_at(&ZEROS[..(piece_end - at) as usize], at)?;
            at = piece_end;
            if at.is_multiple_of(ZERO_WRITE_BACK_BYTES) {
                self.write_back(at - ZERO_WRITE_BACK_BYTES, ZERO_WRITE_BACK_BYTES)?;
            }
        }
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> Result<()> {
        assert_range(self.path.display(), 0, bytes);
        if bytes == 0 {
            return Ok(());
        }
        // Holes below its end are filled, too.
        match retry(|| fs::fallocate(&self.fd, FallocateFlags::empty(), 0, bytes)) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.allocate(bytes),
            Err(e) => Err(self.fault("reserving space for", bytes, e)),
        }
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        assert_range(self.path.display(), 0, bytes);
        retry(|| fs::ftruncate(&self.fd, bytes))
            .map_err(|e| self.fault("setting the length of", bytes, e))
    }

    fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        let advice = match advice {
            Advice::Random => fs::Advice::Random,
            Advice::Sequential => fs::Advice::Sequential,
            Advice::WillNeed => fs::Advice::WillNeed,
        };
        // A hint: its failure has no effect on correctness.
        let _ = fs::fadvise(&self.fd, offset, NonZeroU64::new(bytes), advice);
    }

    fn path(&self) -> String {
        self.path.display().to_string()
    }
}

unsafe extern "C" {
    /// The C library's wrapper of the system call, which rustix lacks.
    fn sync_file_range(fd: c_int, offset: i64, bytes: i64, flags: c_uint) -> c_int;
}

/// Start write-back of dirty pages that are not under write-back yet (linux/fs.h).
const SYNC_FILE_RANGE_WRITE: c_uint = 2;

/// Whether the file system copies what is overwritten, and could do without: btrfs.
fn copies_on_write(fd: &OwnedFd) -> bool {
    const BTRFS: u64 = 0x9123_683e;
    retry(|| fs::fstatfs(fd)).is_ok_and(|stat| stat.f_type as u64 == BTRFS)
}

/// Asks a file system that copies on write to write this new and empty file in place: what is in it
/// has checksums of its own, and a copy of each synced write costs metadata (a fifth of the time on
/// btrfs). Best effort.
fn write_in_place(fd: &OwnedFd) {
    if let Ok(flags) = fs::ioctl_getflags(fd) {
        let _ = fs::ioctl_setflags(fd, flags | fs::IFlags::NOCOW);
    }
}

/// Asks the kernel to start write-back of a range, without waiting (H33: no durability).
fn start_write_back(fd: BorrowedFd<'_>, offset: u64, bytes: u64) -> rustix::io::Result<()> {
    let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else {
        return Err(Errno::INVAL);
    };
    // SAFETY: the call takes no pointer, and `fd` is borrowed, so it stays open during the call.
    let result = unsafe { sync_file_range(fd.as_raw_fd(), offset, bytes, SYNC_FILE_RANGE_WRITE) };
    if result == 0 {
        return Ok(());
    }
    let os = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&os).unwrap_or(Errno::IO))
}

/// Device and inode numbers: a file's identity under any path.
type Identity = (u64, u64);

/// The identities locked by this process, and in a fork of it those that the parent had locked:
/// only the kernel knows whether the parent still holds these.
///
/// The only global state of the engine: on local file systems `flock` refuses a second descriptor
/// in one process, but where it is emulated by record locks (NFS) a process never conflicts with
/// itself.
static LOCKED: Mutex<BTreeMap<Identity, ProcessMark>> = Mutex::new(BTreeMap::new());

/// The lock on a store: the lock file, and the directory itself.
///
/// The lock file alone is not enough: after its removal a second process would create and lock a
/// new one. Nor is the directory: a copy made of hard links is another directory with the same
/// files.
struct RealLock {
    // Field order is drop order: entries are removed after the descriptors are closed.
    descriptors: Vec<OwnedFd>,
    _held: Vec<HeldLock>,
    process: ProcessMark,
}

impl Drop for RealLock {
    fn drop(&mut self) {
        // Closing does not unlock while a fork has the descriptors: the lock belongs to the open
        // file description, which both share. For the same reason a fork must not unlock.
        if self.process.is_current() {
            for fd in &self.descriptors {
                // Without a fork, closing unlocks too; so a failure is ignored.
                let _ = fs::flock(fd, FlockOperation::Unlock);
            }
        }
    }
}

impl Lock for RealLock {}

/// An entry in [`LOCKED`], removed on drop.
struct HeldLock {
    identity: Identity,
    process: ProcessMark,
    /// The parent process's entry that it replaced.
    inherited: Option<ProcessMark>,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // In a fork the mutex may be held by a thread that only the parent has.
        if !self.process.is_current() {
            return;
        }
        let mut locked = LOCKED.lock();
        let ours = match self.inherited {
            Some(process) => locked.insert(self.identity, process),
            None => locked.remove(&self.identity),
        };
        debug_assert!(
            ours.is_some_and(|holder| holder.is_current()),
            "the lock on {:?} is released, held by {ours:?}",
            self.identity
        );
    }
}

impl RealLock {
    fn take(dir: &RealDir, name: &str) -> Result<Self> {
        let process = ProcessMark::current();
        let mut lock = Self { descriptors: Vec::new(), _held: Vec::new(), process };
        let path = dir.full(name);
        // Retries if the lock file is removed between being opened and being locked.
        const ATTEMPTS: usize = 16;
        for _ in 0..ATTEMPTS {
            let Some(fd) = open_lock_file(dir, name)? else { break };
            let identity = identify_file(&fd, &path)?;
            let mut held = hold(identity, process, &dir.path, &path)?;
            flock(&fd, &mut held, &dir.path, &path)?;
            match fs::statat(&dir.fd, name, AtFlags::empty()) {
                Ok(now) if (now.st_dev, now.st_ino) == identity => {
                    lock.descriptors.push(fd);
                    lock._held.push(held);
                    break;
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(e) => return Err(failed(format_args!("looking at {}", path.display()), e)),
            }
        }
        // A separate descriptor, because `flock` belongs to the open file description.
        let fd = open_dir(&dir.path)?;
        let identity = identify(&fd, &dir.path)?;
        let mut held = hold(identity, process, &dir.path, &dir.path)?;
        let result = flock(&fd, &mut held, &dir.path, &dir.path);
        lock._held.push(held);
        match result {
            Ok(()) => lock.descriptors.push(fd),
            Err(e) if e.kind() == ErrorKind::Locked => return Err(e),
            // Some file systems do not lock directories; the lock file is enough there.
            Err(e) if lock.descriptors.is_empty() => return Err(e),
            Err(_) => {}
        }
        Ok(lock)
    }
}

/// Opens the lock file, creating it if missing. `None` on a read-only file system without one.
fn open_lock_file(dir: &RealDir, name: &str) -> Result<Option<OwnedFd>> {
    let rights = fs::Mode::from_raw_mode(FILE_RIGHTS);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let doing = |e| failed(format_args!("opening the lock {}", dir.full(name).display()), e);
    match retry(|| fs::openat(&dir.fd, name, flags, rights)) {
        Ok(fd) => Ok(Some(fd)),
        Err(e) if is_no_file(e) => Err(misplaced(&dir.full(name), e == Errno::ISDIR)),
        Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            match retry(|| fs::openat(&dir.fd, name, flags, rights)) {
                Ok(fd) => Ok(Some(fd)),
                Err(e) if is_no_file(e) => Err(misplaced(&dir.full(name), false)),
                Err(Errno::NOENT) => Ok(None),
                Err(e) => Err(doing(e)),
            }
        }
        Err(e) => Err(doing(e)),
    }
}

/// The identity of an open file.
///
/// # Errors
/// `Corruption` if it is not a regular file.
fn identify_file(fd: &OwnedFd, path: &Path) -> Result<Identity> {
    let stat = retry(|| fs::fstat(fd))
        .map_err(|e| failed(format_args!("looking at {}", path.display()), e))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((stat.st_dev, stat.st_ino)),
        found => Err(misplaced(path, found == FileType::Directory)),
    }
}

fn identify(fd: &OwnedFd, path: &Path) -> Result<Identity> {
    let stat = retry(|| fs::fstat(fd))
        .map_err(|e| failed(format_args!("looking at {}", path.display()), e))?;
    Ok((stat.st_dev, stat.st_ino))
}

fn locked(store: &Path, why: fmt::Arguments<'_>) -> Error {
    Error::new(ErrorKind::Locked, format!("the store {} {why}", store.display()))
}

fn hold(identity: Identity, process: ProcessMark, store: &Path, path: &Path) -> Result<HeldLock> {
    let mut all = LOCKED.lock();
    let inherited = all.get(&identity).copied();
    if inherited.is_some_and(|holder| holder.is_current()) {
        let path = path.display();
        let why =
            format_args!("is open in this process already (it holds {path}); close it there first");
        return Err(locked(store, why));
    }
    all.insert(identity, process);
    Ok(HeldLock { identity, process, inherited })
}

/// Takes the kernel's lock. A success drops the parent's entry: the parent has closed the store.
fn flock(fd: &OwnedFd, held: &mut HeldLock, store: &Path, path: &Path) -> Result<()> {
    match retry(|| fs::flock(fd, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => {
            held.inherited = None;
            Ok(())
        }
        Err(Errno::WOULDBLOCK) if held.inherited.is_some() => {
            let path = path.display();
            let why = format_args!(
                "is open in another process, perhaps in the one that this is a fork of: close it \
                 there first; if that one ended without closing it, its forks hold {path} until \
                 they end, this one too"
            );
            Err(locked(store, why))
        }
        Err(Errno::WOULDBLOCK) => {
            let path = path.display();
            let why = format_args!(
                "is open in another process, or in a fork that outlived it (it holds {path}, \
                 `fuser {path}` names it); close it there first, or end that fork"
            );
            Err(locked(store, why))
        }
        Err(e) => Err(failed(format_args!("locking {}", path.display()), e)),
    }
}

pub(crate) mod ground;
#[cfg(all(feature = "io_uring", target_os = "linux", not(miri)))]
mod uring;

/// Where there is none every request is a plain one.
#[cfg(not(all(feature = "io_uring", target_os = "linux", not(miri))))]
mod uring {
    use std::os::fd::BorrowedFd;

    type Transferred = Option<rustix::io::Result<usize>>;

    pub(super) fn read_at(_: BorrowedFd<'_>, _: &mut [u8], _: u64) -> Transferred {
        None
    }

    pub(super) fn write_at(_: BorrowedFd<'_>, _: &[u8], _: u64) -> Transferred {
        None
    }
}

#[cfg(test)]
mod tests;
