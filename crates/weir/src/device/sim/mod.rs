//! A simulated disk: a directory in memory with a fault model.
//!
//! Written bytes, lengths and names are durable only after the sync that covers them; a power cut
//! keeps any subset of the rest (see [`crash`]). All changes can be recorded, so that one run
//! yields crash images at every boundary ([`Replayer`]). Every request is a switch point of the
//! simulated scheduler and costs virtual time.
//!
//! Not here: errors of requests (`device::faulty`).
//!
//! Invariants: (1) the same requests in the same order give the same disk, trace and images;
//! (2) images share content with the disk that they were taken from, and never change it.
//!
//! Source: the trace and its replay follow TigerBeetle and ALICE: crash states are enumerated after
//! the run instead of killing it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sched::{self, Mutex, MutexGuard};
use crate::device::site::{OpKind, SiteCounters};
use crate::device::{Dir, File, FileClass, Lock, Mode, assert_name, assert_range};

pub(in crate::device) mod content;
pub mod crash;
mod damage;
mod model;
mod replay;

use content::Content;
use crash::CrashPolicy;
use model::{Inode, Leaves, Model, Op};
pub use replay::Replayer;
use replay::Trace;

/// The cost of requests in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Any request that does not touch the medium: names, lengths, hints.
    pub call_nanos: u64,
    /// A read, without its bytes.
    pub read_nanos: u64,
    /// A write, without its bytes: into the cache.
    pub write_nanos: u64,
    /// A sync of a file or of the directory.
    pub sync_nanos: u64,
    /// 4096 bytes read or written.
    pub page_nanos: u64,
    /// Whether the caller is descheduled for the duration, so that other actors run. Otherwise the
    /// clock is advanced under it: cheaper in real time by two thread switches a request.
    pub waits: bool,
}

impl Default for Timing {
    /// About an NVMe disk with a cache: 1 µs a call, 20 µs a read, 2 µs a write, 100 µs a sync, 1
    /// µs a page; callers do not wait.
    fn default() -> Self {
        Self {
            call_nanos: 1_000,
            read_nanos: 20_000,
            write_nanos: 2_000,
            sync_nanos: 100_000,
            page_nanos: 1_000,
            waits: false,
        }
    }
}

/// How a simulated disk behaves.
#[derive(Clone, Debug, Default)]
pub struct SimOptions {
    /// The cost of requests.
    pub timing: Timing,
    /// Limit of the bytes of all files; `None`: no limit. See [`SimDisk::set_capacity`].
    pub capacity_bytes: Option<u64>,
    /// Limit of the number of files; `None`: no limit. See [`SimDisk::set_files_max`].
    pub files_max: Option<u64>,
    /// Whether changes are recorded for a [`Replayer`].
    pub record: bool,
}

/// A simulated disk with one directory. A clone is another handle to the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    options: SimOptions,
    /// Held for one request, and never across a switch point: locking it is the switch point.
    state: Mutex<State>,
    counters: SiteCounters,
}

struct State {
    model: Model,
    trace: Option<Trace>,
    locks: BTreeSet<String>,
    capacity_bytes: Option<u64>,
    files_max: Option<u64>,
}

impl State {
    fn change(&mut self, op: Op) {
        self.model.apply(&op);
        if let Some(trace) = &mut self.trace {
            trace.ops.push(op);
        }
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new(SimOptions::default())
    }
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimDisk").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new(options: SimOptions) -> Self {
        Self::from_model(Model::default(), options)
    }

    fn from_model(model: Model, options: SimOptions) -> Self {
        let initial = || Trace { initial: model.detached(), ops: Vec::new() };
        let trace = options.record.then(initial);
        let (capacity_bytes, files_max) = (options.capacity_bytes, options.files_max);
        let state = State { model, trace, locks: BTreeSet::new(), capacity_bytes, files_max };
        let state = Mutex::new(state);
        Self { shared: Arc::new(Shared { options, state, counters: SiteCounters::default() }) }
    }

    /// The disk as a directory for the engine.
    #[must_use]
    pub fn dir(&self) -> Arc<dyn Dir> {
        Arc::new(self.clone())
    }

    /// Requests by site since the disk was created.
    #[must_use]
    pub fn counters(&self) -> &SiteCounters {
        &self.shared.counters
    }

    /// Number of recorded changes: the boundary of a power cut now.
    #[must_use]
    pub fn trace_len(&self) -> usize {
        self.shared.state.lock().trace.as_ref().map_or(0, |trace| trace.ops.len())
    }

    /// Records a mark, such as "write number `mark` was acknowledged".
    pub fn mark(&self, mark: u64) {
        self.shared.state.lock().change(Op::Mark(mark));
    }

    /// A replayer of the changes recorded so far; of none if the disk does not record.
    #[must_use]
    pub fn replayer(&self) -> Replayer {
        let trace = self.shared.state.lock().trace.clone().unwrap_or_default();
        Replayer::new(trace, self.shared.options.clone())
    }

    /// The disk after a power cut now. It does not record.
    #[must_use]
    pub fn crash(&self, policy: CrashPolicy, seed: u64) -> Self {
        let image = crash::image(&self.shared.state.lock().model, policy, seed);
        Self::from_model(image, SimOptions { record: false, ..self.shared.options.clone() })
    }

    /// An independent disk in the same state, un-synced changes included: the disk that a process
    /// finds after its predecessor was killed. It does not record.
    #[must_use]
    pub fn fork(&self) -> Self {
        let model = self.shared.state.lock().model.detached();
        Self::from_model(model, SimOptions { record: false, ..self.shared.options.clone() })
    }

    /// An independent disk with the current content, all of it durable. It does not record.
    #[must_use]
    pub fn copy(&self) -> Self {
        self.crash(CrashPolicy::All, 0)
    }

    /// An independent disk with the current content, all of it durable, that records from here on.
    #[must_use]
    pub fn recorded(&self) -> Self {
        let image = crash::image(&self.shared.state.lock().model, CrashPolicy::All, 0);
        Self::from_model(image, SimOptions { record: true, ..self.shared.options.clone() })
    }

    /// Open handles, of files with and without a name; a number that only grows is a leak.
    #[must_use]
    pub fn open_files(&self) -> usize {
        let state = self.shared.state.lock();
        state.model.inodes.values().map(|inode| Arc::strong_count(&inode.in_use) - 1).sum()
    }

    /// Bytes of all files.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.shared.state.lock().model.used_bytes()
    }

    /// Files on the disk: those with a name, those whose removal is not durable, and those without
    /// a name that are open.
    #[must_use]
    pub fn used_files(&self) -> u64 {
        self.shared.state.lock().model.inodes.len() as u64
    }

    /// A failed sync (fsync-gate): the un-synced changes of `name` are never written. `revert`:
    /// reads do not return them either.
    pub fn lose_dirty(&self, name: &str, revert: bool) {
        let mut state = self.shared.state.lock();
        if let Some(&inode) = state.model.names.get(name) {
            state.change(Op::LoseDirty { inode, revert });
        }
    }

    /// Counts a request, spends its virtual time, then locks the disk.
    fn request(&self, op: OpKind, class: FileClass, bytes: usize) -> MutexGuard<'_, State> {
        let timing = &self.shared.options.timing;
        self.shared.counters.count(op, class, bytes);
        let fixed = match op {
            OpKind::Read => timing.read_nanos,
            OpKind::Write | OpKind::Allocate => timing.write_nanos,
            OpKind::Sync | OpKind::SyncDir => timing.sync_nanos,
            _ => timing.call_nanos,
        };
        let nanos = fixed + timing.page_nanos * (bytes as u64).div_ceil(4096);
        if timing.waits && sched::virtual_nanos().is_some() {
            sched::delay(Duration::from_nanos(nanos));
        } else {
            sched::sim::spend(nanos);
        }
        self.shared.state.lock()
    }

    fn handle(
        &self,
        state: &State,
        (name, class): (&str, FileClass),
        id: u64,
        mode: Mode,
    ) -> Arc<dyn File> {
        let in_use = state.model.inodes.get(&id).map(|inode| Arc::clone(&inode.in_use));
        assert!(in_use.is_some(), "{name} is file {id}, which is gone");
        Arc::new(SimFile {
            disk: self.clone(),
            inode: id,
            class,
            name: name.to_owned(),
            mode,
            _in_use: in_use,
        })
    }

    /// Sets the capacity, which may be below the bytes in use; files are kept.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.state.lock().capacity_bytes = bytes;
    }

    /// Sets the limit of the number of files, as of a file system's inode table; it may be below
    /// the number in use, and files are kept.
    pub fn set_files_max(&self, files: Option<u64>) {
        self.shared.state.lock().files_max = files;
    }

    fn room_for_file(&self, state: &State, what: &str) -> Result<()> {
        match state.files_max {
            Some(files_max) if state.model.inodes.len() as u64 >= files_max => {
                Err(Error::io(what, std::io::ErrorKind::StorageFull.into()))
            }
            _ => Ok(()),
        }
    }

    fn room_for(&self, state: &State, more: u64, what: &str) -> Result<()> {
        match state.capacity_bytes {
            Some(capacity) if state.model.used_bytes() + more > capacity => {
                Err(Error::io(what, std::io::ErrorKind::StorageFull.into()))
            }
            _ => Ok(()),
        }
    }
}

fn missing(name: &str) -> Error {
    Error::io(format_args!("opening sim:{name}"), std::io::ErrorKind::NotFound.into())
}

impl Dir for SimDisk {
    fn create(&self, name: &str, class: FileClass) -> Result<Arc<dyn File>> {
        assert_name(name);
        let mut state = self.request(OpKind::Create, class, 0);
        if state.model.names.contains_key(name) {
            let what = format!("creating sim:{name}: the name is taken");
            return Err(Error::new(ErrorKind::Conflict, what));
        }
        self.room_for_file(&state, &format!("creating sim:{name}"))?;
        let inode = state.model.next_inode;
        state.change(Op::Create { name: name.into(), inode, class });
        Ok(self.handle(&state, (name, class), inode, Mode::ReadWrite))
    }

    fn open(&self, name: &str, class: FileClass, mode: Mode) -> Result<Arc<dyn File>> {
        let state = self.request(OpKind::Open, class, 0);
        let inode = *state.model.names.get(name).ok_or_else(|| missing(name))?;
        Ok(self.handle(&state, (name, class), inode, mode))
    }

    fn rename(&self, from: &str, to: &str, class: FileClass) -> Result<()> {
        assert_name(to);
        let mut state = self.request(OpKind::Rename, class, 0);
        if !state.model.names.contains_key(from) {
            return Err(missing(from));
        }
        state.change(Op::Rename { from: from.into(), to: to.into(), class });
        Ok(())
    }

    fn unlink(&self, name: &str, class: FileClass) -> Result<()> {
        let mut state = self.request(OpKind::Unlink, class, 0);
        if !state.model.names.contains_key(name) {
            return Err(missing(name));
        }
        state.change(Op::Unlink { name: name.into(), class });
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>> {
        let state = self.request(OpKind::List, FileClass::Directory, 0);
        Ok(state.model.names.keys().map(|name| name.to_string()).collect())
    }

    fn sync(&self) -> Result<()> {
        self.request(OpKind::SyncDir, FileClass::Directory, 0).change(Op::SyncDir);
        Ok(())
    }

    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        let mut state = self.request(OpKind::Lock, FileClass::Lock, 0);
        if state.locks.contains(name) {
            let what =
                format!("the store sim: is open already (it holds {name}); close it there first");
            return Err(Error::new(ErrorKind::Locked, what));
        }
        if !state.model.names.contains_key(name) {
            self.room_for_file(&state, &format!("creating sim:{name}"))?;
            let inode = state.model.next_inode;
            state.change(Op::Create { name: name.into(), inode, class: FileClass::Lock });
        }
        state.locks.insert(name.to_owned());
        Ok(Box::new(SimLock { disk: self.clone(), name: name.to_owned() }))
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        let state = self.shared.state.lock();
        let used = state.model.used_bytes();
        Ok(state.capacity_bytes.map(|capacity| capacity.saturating_sub(used)))
    }

    fn free_files(&self) -> Result<Option<u64>> {
        let state = self.shared.state.lock();
        let used = state.model.inodes.len() as u64;
        Ok(state.files_max.map(|files_max| files_max.saturating_sub(used)))
    }

    fn path(&self) -> String {
        "sim:".to_owned()
    }
}

struct SimLock {
    disk: SimDisk,
    name: String,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let held = self.disk.shared.state.lock().locks.remove(&self.name);
        debug_assert!(held, "{} is released, not held", self.name);
    }
}

/// An open file of a simulated disk.
struct SimFile {
    disk: SimDisk,
    inode: u64,
    class: FileClass,
    name: String,
    mode: Mode,
    _in_use: Option<Arc<()>>,
}

impl SimFile {
    fn request(&self, op: OpKind, bytes: usize) -> MutexGuard<'_, State> {
        self.disk.request(op, self.class, bytes)
    }

    fn inode<'a>(&self, state: &'a State) -> Result<&'a Inode> {
        state.model.inodes.get(&self.inode).ok_or_else(|| missing(&self.name))
    }

    fn writable(&self, what: &str) -> Result<()> {
        if self.mode == Mode::ReadWrite {
            return Ok(());
        }
        let what = format!("{what} sim:{}: the file is open for reading only", self.name);
        Err(Error::new(ErrorKind::Io, what))
    }

    fn write(&self, data: Arc<[u8]>, offset: u64) -> Result<()> {
        assert_range(&self.name, offset, data.len() as u64);
        let mut state = self.request(OpKind::Write, data.len());
        self.writable("writing")?;
        if data.is_empty() {
            return Ok(());
        }
        let len = self.inode(&state)?.current.len();
        let more = (offset + data.len() as u64).saturating_sub(len);
        if more > 0 {
            let what = format!("writing sim:{} at offset {offset}", self.name);
            self.disk.room_for(&state, more, &what)?;
        }
        state.change(Op::Write { inode: self.inode, class: self.class, offset, data });
        Ok(())
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let state = self.request(OpKind::Read, buf.len());
        let content: Arc<Content> = Arc::clone(&self.inode(&state)?.current);
        drop(state);
        Ok(content.read(offset, buf))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(buf.into(), offset)
    }

    fn write_parts_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.write(parts.concat().into(), offset)
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.request(OpKind::Sync, 0);
        self.inode(&state)?;
        state.change(Op::Sync { inode: self.inode, class: self.class });
        Ok(())
    }

    fn write_back(&self, offset: u64, bytes: u64) -> Result<()> {
        // No effect on the fault model: un-synced bytes may or may not survive anyway.
        let _ = (offset, bytes);
        drop(self.request(OpKind::WriteBack, 0));
        Ok(())
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(buf.into(), offset)?;
        let mut state = self.request(OpKind::Sync, 0);
        self.inode(&state)?;
        let (inode, class, bytes) = (self.inode, self.class, buf.len() as u64);
        state.change(Op::SyncRange { inode, class, offset, bytes });
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        let mut state = self.request(OpKind::Discard, 0);
        self.writable("discarding")?;
        let len = self.inode(&state)?.current.len();
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= len),
            "{bytes} bytes at {offset} of {} are discarded, which has {len}",
            self.name
        );
        let leaves = Leaves::drawn(state.model.at, self.inode, offset);
        let (inode, class) = (self.inode, self.class);
        state.change(Op::Discard { inode, class, offset, bytes, leaves });
        Ok(())
    }

    fn classed(&self, class: FileClass) -> Option<Arc<dyn File>> {
        Some(Arc::new(Self {
            disk: self.disk.clone(),
            inode: self.inode,
            class,
            name: self.name.clone(),
            mode: self.mode,
            _in_use: self._in_use.clone(),
        }))
    }

    fn len(&self) -> Result<u64> {
        let state = self.request(OpKind::Len, 0);
        Ok(self.inode(&state)?.current.len())
    }

    fn allocate(&self, bytes: u64) -> Result<()> {
        assert_range(&self.name, 0, bytes);
        let mut state = self.request(OpKind::Allocate, 0);
        self.writable("allocating")?;
        let len = self.inode(&state)?.current.len();
        if bytes > len {
            let what = format!("allocating {bytes} bytes for sim:{}", self.name);
            self.disk.room_for(&state, bytes - len, &what)?;
            state.change(Op::SetLen { inode: self.inode, bytes });
        }
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        assert_range(&self.name, 0, bytes);
        let mut state = self.request(OpKind::SetLen, 0);
        self.writable("cutting")?;
        let len = self.inode(&state)?.current.len();
        let what = format!("extending sim:{}", self.name);
        self.disk.room_for(&state, bytes.saturating_sub(len), &what)?;
        state.change(Op::SetLen { inode: self.inode, bytes });
        Ok(())
    }

    fn path(&self) -> String {
        format!("sim:{}", self.name)
    }
}

#[cfg(test)]
mod tests;
