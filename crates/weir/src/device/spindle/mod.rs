//! A timed directory: requests cost virtual time, as on a disk with seeks and queues.
//!
//! The content is in an inner directory; [`DiskModel`] charges time on the virtual clock of the
//! simulation that the calling actor belongs to. A reader waits until its request has been served,
//! after all requests queued before it: compactions compete with readers. Writes do not wait; they
//! occupy the spindles, and a sync waits for them. Outside a simulation nothing is charged.
//!
//! An optional page cache, as of an operating system, precedes the spindles: all reads and writes
//! fill it.
//!
//! Not here: faults and power cuts (`device::sim`, `device::faulty`). Nothing is made durable: the
//! inner directory is not synced, and space is not allocated in it.
//!
//! Invariants: (1) the same requests at the same virtual times cost the same; (2) no lock is held
//! while an actor waits; (3) a byte range's stripe is assigned once, when the file first reaches
//! it.
//!
//! Simplifications, with the direction of their error: readers are served first in, first out,
//! without an elevator (too slow); background streams pay one positioning per cluster of bytes, do
//! not wait for readers, and syncs of tables wait for the streams only (too fast for streams, and
//! independent of the scale); every reader has its own read-ahead segments, as open files have in
//! an operating system, though they share the head (too fast for scans over many runs); metadata
//! of the file system costs nothing (too fast); stripes are never reused (no effect at one average
//! seek).
//!
//! Source: the rig of the reproduction plan; the disks of LSbM section 6.1 and LDS section 4.1.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sched::{self, Mutex};
use crate::device::{Advice, Dir, File, FileClass, Lock, Mode};

mod model;
mod pages;

pub use model::DiskModel;
use model::{Access, Spindles};
use pages::{PAGE_BYTES, PageCache};

/// Processor time by which an actor may be ahead of the clock before it waits: less than any
/// positioning of a hard disk, more than a hundred cached reads.
const AHEAD_MAX_NANOS: u64 = 2_000_000;

thread_local! {
    /// Processor time of the calling actor since it last waited: its lead over the clock.
    static AHEAD: Cell<u64> = const { Cell::new(0) };
    /// Whether the calling actor reads for a user.
    static READER: Cell<bool> = const { Cell::new(false) };
    /// File and end offset of each of the calling actor's last reads, newest first.
    static LAST: Cell<[(u64, u64); SEGMENTS]> = const { Cell::new([(u64::MAX, 0); SEGMENTS]) };
}

/// Read-ahead segments per reader, since a scan merges several tables. Drives of the modelled
/// generation have 16 to 32 segments of cache.
const SEGMENTS: usize = 16;

/// Whether a read continues one of the calling actor's last reads; remembers where it ends.
fn continues(file: u64, offset: u64, end: u64) -> bool {
    let mut last = LAST.get();
    let found = last.iter().position(|&place| place == (file, offset));
    let slot = found.unwrap_or(SEGMENTS - 1);
    last.copy_within(..slot, 1);
    last[0] = (file, end);
    LAST.set(last);
    found.is_some()
}

/// Declares that the calling actor reads for a user: its reads are counted as such and pay a seek
/// each unless they are sequential. All other actors are background streams.
pub fn this_actor_reads() {
    READER.set(true);
}

/// Charges the calling actor for processor time. The actor waits for it at the next request, or
/// when the sum reaches a limit: a switch between actors costs more than a cached read.
#[track_caller]
pub fn work(nanos: u64) {
    let ahead = AHEAD.get() + nanos;
    if ahead < AHEAD_MAX_NANOS {
        AHEAD.set(ahead);
        return;
    }
    catch_up();
    sched::delay(Duration::from_nanos(ahead));
}

/// Virtual nanoseconds as the calling actor sees them; 0 outside a simulation.
#[must_use]
pub fn now_nanos() -> u64 {
    sched::virtual_nanos().map_or(0, |now| now + AHEAD.get())
}

fn catch_up() {
    AHEAD.set(0);
}

/// Suspends the calling actor until `when`.
#[track_caller]
fn wait_until(when: u64) {
    catch_up();
    if let Some(now) = sched::virtual_nanos()
        && when > now
    {
        sched::delay(Duration::from_nanos(when - now));
    }
}

/// Parameters of a timed directory.
#[derive(Clone, Debug)]
pub struct TimedOptions {
    /// The disk.
    pub model: DiskModel,
    /// Bytes of the page cache; 0: none.
    pub page_cache_bytes: u64,
    /// Whether index and filter of every table are in memory from the start: a read that reaches
    /// the end of its table costs nothing.
    pub indexes_resident: bool,
}

/// Counters of a timed directory since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimedCounters {
    /// Reads for users that reached the disk.
    pub user_reads: u64,
    /// Their bytes.
    pub user_read_bytes: u64,
    /// Bytes of all other reads that reached the disk.
    pub background_read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Page cache hits of reads for users.
    pub page_hits: u64,
    /// Page cache misses of reads for users.
    pub page_misses: u64,
    /// Sum of the busy time of all spindles.
    pub busy_nanos: u64,
    /// Bytes of all tables on the disk, removed ones that are still open included.
    pub table_bytes: u64,
}

/// A directory whose requests cost virtual time; see the module.
#[derive(Clone)]
pub struct TimedDir {
    inner: Arc<dyn Dir>,
    shared: Arc<Shared>,
}

struct Shared {
    options: TimedOptions,
    state: Mutex<State>,
}

struct State {
    spindles: Spindles,
    pages: PageCache,
    counters: TimedCounters,
    stripes_given: u64,
    names: BTreeMap<String, u64>,
    locks: BTreeSet<String>,
    files: BTreeMap<u64, Node>,
    files_made: u64,
}

/// A file, kept while it has a name or is open.
struct Node {
    class: FileClass,
    stripes: Vec<u64>,
    bytes: u64,
    handles: usize,
    named: bool,
    /// Virtual time when the last write reaches the medium.
    written_nanos: u64,
}

impl std::fmt::Debug for TimedDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimedDir").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl TimedDir {
    /// The directory `inner` on a disk. Its existing files get their stripes in the order of their
    /// names; `class_of` returns the class of each.
    ///
    /// # Errors
    /// Those of listing and opening them.
    pub fn new(
        inner: Arc<dyn Dir>,
        class_of: impl Fn(&str) -> FileClass,
        options: TimedOptions,
    ) -> Result<Self> {
        let mut state = State {
            spindles: Spindles::new(options.model.clone()),
            pages: PageCache::new(options.page_cache_bytes),
            counters: TimedCounters::default(),
            stripes_given: 0,
            names: BTreeMap::new(),
            locks: BTreeSet::new(),
            files: BTreeMap::new(),
            files_made: 0,
        };
        for name in inner.list()?.into_iter().filter(|name| !name.ends_with('/')) {
            let class = class_of(&name);
            let bytes = inner.open(&name, class, Mode::Read)?.len()?;
            let id = state.add(&name, class);
            state.set_len(id, bytes);
        }
        Ok(Self { inner, shared: Arc::new(Shared { options, state: Mutex::new(state) }) })
    }

    /// A handle for the engine.
    #[must_use]
    pub fn dir(&self) -> Arc<dyn Dir> {
        Arc::new(self.clone())
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> TimedCounters {
        let state = self.shared.state.lock();
        TimedCounters { busy_nanos: state.spindles.busy_nanos(), ..state.counters }
    }

    fn handle(&self, name: &str, class: FileClass, inner: Arc<dyn File>) -> Arc<dyn File> {
        let mut state = self.shared.state.lock();
        let id = match state.names.get(name) {
            Some(&id) => id,
            None => state.add(name, class),
        };
        if let Some(node) = state.files.get_mut(&id) {
            node.handles += 1;
        }
        Arc::new(TimedFile { inner, shared: Arc::clone(&self.shared), id })
    }
}

impl State {
    fn add(&mut self, name: &str, class: FileClass) -> u64 {
        let id = self.files_made;
        self.files_made += 1;
        let node = Node {
            class,
            stripes: Vec::new(),
            bytes: 0,
            handles: 0,
            named: true,
            written_nanos: 0,
        };
        self.files.insert(id, node);
        self.names.insert(name.to_owned(), id);
        id
    }

    /// Sets a file's length, and assigns stripes for all of it.
    fn set_len(&mut self, id: u64, bytes: u64) {
        let stripe_bytes = self.spindles.model().stripe_bytes.max(1);
        let Some(node) = self.files.get_mut(&id) else { return };
        while (node.stripes.len() as u64) < bytes.div_ceil(stripe_bytes) {
            node.stripes.push(self.stripes_given);
            self.stripes_given += 1;
        }
        if node.class == FileClass::Table {
            let (all, old) = (self.counters.table_bytes, node.bytes);
            assert!(old <= all, "a table of {old} bytes, all have {all}");
            self.counters.table_bytes = self.counters.table_bytes + bytes - node.bytes;
        }
        if bytes < node.bytes {
            self.pages.forget(id, bytes);
        }
        node.bytes = bytes;
    }

    fn unname(&mut self, name: &str) {
        if let Some(id) = self.names.remove(name) {
            if let Some(node) = self.files.get_mut(&id) {
                node.named = false;
            }
            self.pages.forget(id, 0);
            self.drop_unused(id);
        }
    }

    fn drop_unused(&mut self, id: u64) {
        if self.files.get(&id).is_some_and(|node| !node.named && node.handles == 0) {
            self.set_len(id, 0);
            self.files.remove(&id);
        }
    }

    /// Queues a request; the time when all of its pieces are served.
    fn queue(&mut self, now: u64, id: u64, offset: u64, bytes: u64, access: Access) -> u64 {
        let Some(node) = self.files.get(&id) else { return now };
        let pieces: Vec<_> = self.spindles.pieces(&node.stripes, offset, bytes).collect();
        let charged: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        assert_eq!(charged, bytes, "bytes of the pieces at offset {offset} of file {id}");
        pieces.into_iter().fold(now, |done, p| done.max(self.spindles.queue(now, p, access)))
    }

    /// Charges a read; the time when it is served, `None` if it costs nothing.
    fn read(&mut self, options: &TimedOptions, id: u64, range: (u64, u64)) -> Option<u64> {
        let now = now_nanos();
        let node = self.files.get(&id)?;
        let (offset, end) = (range.0, range.1.min(node.bytes));
        let is_tail = node.class == FileClass::Table && end == node.bytes;
        if offset >= end || (options.indexes_resident && is_tail) {
            return None;
        }
        let user = READER.get();
        let (first, last) = self.missing(options, id, offset, end, user)?;
        let (offset, end) = (first.max(offset), last.min(end));
        assert!(offset < end, "a read of file {id} misses bytes {offset} to {end}");
        let access = match user {
            true if continues(id, offset, end) => Access::Continued,
            true => Access::Random,
            false => Access::StreamRead,
        };
        if user {
            self.counters.user_reads += 1;
            self.counters.user_read_bytes += end - offset;
        } else {
            self.counters.background_read_bytes += end - offset;
        }
        Some(self.queue(now, id, offset, end - offset, access))
    }

    /// The range from the first to the last page missing in the page cache, in bytes.
    fn missing(
        &mut self,
        options: &TimedOptions,
        id: u64,
        offset: u64,
        end: u64,
        user: bool,
    ) -> Option<(u64, u64)> {
        if options.page_cache_bytes == 0 {
            return Some((offset, end));
        }
        let mut missing: Option<(u64, u64)> = None;
        for page in offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
            let held = self.pages.touch(id, page);
            if user {
                self.counters.page_hits += u64::from(held);
                self.counters.page_misses += u64::from(!held);
            }
            if !held {
                let (start, stop) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
                missing = Some(missing.map_or((start, stop), |(first, _)| (first, stop)));
            }
        }
        missing
    }

    /// Charges a write.
    fn write(&mut self, options: &TimedOptions, id: u64, offset: u64, bytes: u64) {
        let end = offset + bytes;
        if self.files.get(&id).is_some_and(|node| node.bytes < end) {
            self.set_len(id, end);
        }
        if options.page_cache_bytes > 0 {
            for page in offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
                self.pages.touch(id, page);
            }
        }
        self.counters.written_bytes += bytes;
        if sched::virtual_nanos().is_some() {
            let done = self.queue(now_nanos(), id, offset, bytes, Access::StreamWrite);
            if let Some(node) = self.files.get_mut(&id) {
                node.written_nanos = node.written_nanos.max(done);
            }
        }
    }
}

impl Dir for TimedDir {
    fn create(&self, name: &str, class: FileClass) -> Result<Arc<dyn File>> {
        let inner = self.inner.create(name, class)?;
        Ok(self.handle(name, class, inner))
    }

    fn open(&self, name: &str, class: FileClass, mode: Mode) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(name, class, mode)?;
        Ok(self.handle(name, class, inner))
    }

    fn rename(&self, from: &str, to: &str, class: FileClass) -> Result<()> {
        self.inner.rename(from, to, class)?;
        let mut state = self.shared.state.lock();
        state.unname(to);
        if let Some(id) = state.names.remove(from) {
            state.names.insert(to.to_owned(), id);
        }
        Ok(())
    }

    fn unlink(&self, name: &str, class: FileClass) -> Result<()> {
        self.inner.unlink(name, class)?;
        self.shared.state.lock().unname(name);
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Exclusive in this directory only: locks of the inner one are shared by the process, and an
    /// actor cannot wait for another simulation.
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        if !self.shared.state.lock().locks.insert(name.to_owned()) {
            let what = format!("{} is held already; close the store there first", self.path());
            return Err(Error::new(ErrorKind::Locked, what));
        }
        Ok(Box::new(TimedLock { shared: Arc::clone(&self.shared), name: name.to_owned() }))
    }

    fn path(&self) -> String {
        self.inner.path()
    }
}

struct TimedLock {
    shared: Arc<Shared>,
    name: String,
}

impl Lock for TimedLock {}

impl Drop for TimedLock {
    fn drop(&mut self) {
        self.shared.state.lock().locks.remove(&self.name);
    }
}

/// An open file of a timed directory.
struct TimedFile {
    inner: Arc<dyn File>,
    shared: Arc<Shared>,
    id: u64,
}

impl TimedFile {
    fn charge_write(&self, offset: u64, bytes: usize) {
        let mut state = self.shared.state.lock();
        state.write(&self.shared.options, self.id, offset, bytes as u64);
    }
}

impl Drop for TimedFile {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if let Some(node) = state.files.get_mut(&self.id) {
            debug_assert!(node.handles > 0, "file {} is closed, not open", self.id);
            node.handles -= 1;
        }
        state.drop_unused(self.id);
    }
}

impl File for TimedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if sched::virtual_nanos().is_some() {
            let range = (offset, offset + buf.len() as u64);
            let done = self.shared.state.lock().read(&self.shared.options, self.id, range);
            if let Some(done) = done {
                wait_until(done);
            }
        }
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)?;
        self.charge_write(offset, buf.len());
        Ok(())
    }

    fn write_parts_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.inner.write_parts_at(parts, offset)?;
        self.charge_write(offset, parts.iter().map(|part| part.len()).sum());
        Ok(())
    }

    /// Waits until the file's writes have reached the medium.
    fn sync(&self) -> Result<()> {
        let written = {
            let state = self.shared.state.lock();
            state.files.get(&self.id).map(|node| (node.class, node.written_nanos))
        };
        if let Some((class, written)) = written
            && sched::virtual_nanos().is_some()
        {
            let turn = match class {
                FileClass::Wal => self.shared.options.model.log_sync_nanos,
                _ => 0,
            };
            wait_until(written.max(now_nanos()) + turn);
        }
        Ok(())
    }

    fn write_back(&self, _offset: u64, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    /// Extends the file by a hole, without taking space in the inner directory.
    fn allocate(&self, bytes: u64) -> Result<()> {
        if self.inner.len()? < bytes {
            self.set_len(bytes)?;
        }
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.inner.set_len(bytes)?;
        self.shared.state.lock().set_len(self.id, bytes);
        Ok(())
    }

    fn advise(&self, _offset: u64, _bytes: u64, _advice: Advice) {}

    fn path(&self) -> String {
        self.inner.path()
    }
}

#[cfg(test)]
mod tests;
