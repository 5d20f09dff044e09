//! A disk that remembers what it was told: a file of a FUSE file system below a loop device.
//!
//! The kernel's own block layer lies between it and the store, with its queues, merges and flushes.
//! What a flush finds written is durable; of what comes after it, a power cut leaves any sectors.
//!
//! Not here: what is written and what is asked of an image (`powercut`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

/// Name and number of the one file.
const NAME: &str = "disk";
const INODE: INodeNo = INodeNo(2);
const FOR_EVER: Duration = Duration::from_secs(3600);

/// What the disk was told.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// To write these bytes there.
    Write(usize, Vec<u8>),
    /// To make all of the above durable.
    Flush,
}

/// Content and history of a disk.
#[derive(Debug, Default)]
pub(super) struct History {
    content: Vec<u8>,
    events: Vec<Event>,
    recording: bool,
}

/// The disk, shared between who serves it and who looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<Mutex<History>>);

impl Disk {
    /// A disk of zeros.
    pub(super) fn new(bytes: usize) -> Self {
        let history = History { content: vec![0; bytes], ..History::default() };
        Self(Arc::new(Mutex::new(history)))
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to remember; what the disk holds now, which counts as durable.
    pub(super) fn record(&self) -> Vec<u8> {
        let mut history = self.lock();
        history.recording = true;
        history.content.clone()
    }

    /// How many events there are.
    pub(super) fn len(&self) -> usize {
        self.lock().events.len()
    }

    /// Ends the recording.
    pub(super) fn take_events(&self) -> Vec<Event> {
        let mut history = self.lock();
        history.recording = false;
        std::mem::take(&mut history.events)
    }

    fn attributes(&self) -> FileAttr {
        let size = self.lock().content.len() as u64;
        attributes(INODE, FileType::RegularFile, size)
    }
}

fn attributes(ino: INodeNo, kind: FileType, size: u64) -> FileAttr {
    FileAttr {
        ino,
        size,
        blocks: size / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o700,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str() {
            Some(NAME) => reply.entry(&FOR_EVER, &self.attributes(), Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match ino {
            INODE => reply.attr(&FOR_EVER, &self.attributes()),
            _ => reply.attr(&FOR_EVER, &attributes(INodeNo::ROOT, FileType::Directory, 0)),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let history = self.lock();
        let end = history.content.len();
        let from = usize::try_from(offset).map_or(end, |from| from.min(end));
        reply.data(&history.content[from..(from + size as usize).min(end)]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut history = self.lock();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let to = from.saturating_add(data.len());
        let Some(place) = history.content.get_mut(from..to) else {
            return reply.error(Errno::ENOSPC);
        };
        place.copy_from_slice(data);
        if history.recording {
            history.events.push(Event::Write(from, data.to_vec()));
        }
        drop(history);
        reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut history = self.lock();
        if history.recording {
            history.events.push(Event::Flush);
        }
        drop(history);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // What closes a file; a disk's flush is `fsync`.
        reply.ok();
    }
}

/// A block device over a disk. Taken down when dropped.
pub(super) struct Device {
    path: PathBuf,
    mounted: Option<BackgroundSession>,
    at: PathBuf,
}

fn run(program: &str, args: &[&OsStr]) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| format!("{program} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

impl Device {
    /// A loop device over `disk`, which is served below `dir`.
    ///
    /// # Errors
    /// What is missing: root, FUSE, loop devices.
    pub(super) fn over(disk: &Disk, dir: &Path) -> Result<Self, String> {
        let at = dir.join("disk");
        std::fs::create_dir_all(&at).map_err(|e| format!("making {}: {e}", at.display()))?;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("weir-powercut".to_owned())];
        let mounted = fuser::spawn_mount(disk.clone(), &at, &config)
            .map_err(|error| format!("mounting a FUSE file system needs root and FUSE: {error}"))?;
        let mut this = Self { path: PathBuf::new(), mounted: Some(mounted), at };
        let file = this.at.join(NAME);
        let attach = ["--find".as_ref(), "--show".as_ref(), file.as_os_str()];
        this.path = run("losetup", &attach)?.into();
        run("losetup", &["--direct-io=on".as_ref(), this.path.as_os_str()])?;
        Ok(this)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A file system on a block device, mounted. Unmounted when dropped.
pub(super) struct Mounted {
    at: PathBuf,
}

impl Mounted {
    /// Makes a file system.
    pub(super) fn make(device: &Path, file_system: &str) -> Result<(), String> {
        let quiet = if file_system == "btrfs" { "--quiet" } else { "-q" };
        run(&format!("mkfs.{file_system}"), &[quiet.as_ref(), device.as_os_str()]).map(drop)
    }

    /// Mounts a device, or an image through a loop device of the mount's own.
    pub(super) fn new(from: &Path, file_system: &str, dir: &Path) -> Result<Self, String> {
        let at = dir.join("mounted");
        std::fs::create_dir_all(&at).map_err(|e| format!("making {}: {e}", at.display()))?;
        let options = if from.is_file() { "loop" } else { "rw" };
        let (kind, options) = (["-t", file_system], ["-o", options]);
        let words = kind.iter().chain(&options).map(OsStr::new);
        let args: Vec<&OsStr> = words.chain([from.as_os_str(), at.as_os_str()]).collect();
        run("mount", &args).map(|_| Self { at })
    }

    pub(super) fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = run("umount", &[self.at.as_os_str()]) {
            eprintln!("{error}");
        }
        let _ = std::fs::remove_dir(&self.at);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty()
            && let Err(error) = run("losetup", &["--detach".as_ref(), self.path.as_os_str()])
        {
            eprintln!("{error}");
        }
        if let Some(mounted) = self.mounted.take()
            && let Err(error) = mounted.umount_and_join()
        {
            eprintln!("unmounting {}: {error}", self.at.display());
        }
        let _ = std::fs::remove_dir(&self.at);
    }
}
