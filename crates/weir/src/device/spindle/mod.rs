//! A timed directory: requests cost virtual time, as on a disk with seeks and queues.
//!
//! The content is in an inner directory; [`DiskModel`] charges time on the virtual clock of the
//! simulation that the calling actor belongs to. Who reads waits until the request has been served,
//! and compactions compete with readers. Writes do not wait; they are combined with those that they
//! follow on, as an operating system does, and occupy the spindles; a sync waits for them, and with
//! the disk's write cache on for everybody else's too (`flush`). Outside a simulation nothing is
//! charged.
//!
//! An optional page cache, as of an operating system, precedes the spindles: all reads and writes
//! fill it. Files take the lowest stripes that are free, and give them back.
//!
//! A store that is a part of a real one lies on as small a part of the disk. So that its seeks are
//! as long, a byte of distance stands for [`TimedOptions::scale`] bytes; and a request of a stream
//! that is less than a cluster pays a part of the positioning, because a real store would have had
//! as many fewer, larger ones.
//!
//! Or a store is made small by its entries and blocks, not by their number: each byte of a file
//! stands for [`TimedOptions::charge`] bytes, of which all lengths, places and counters here are.
//!
//! Not here: faults and power cuts (`device::sim`, `device::faulty`). Nothing is made durable: the
//! inner directory is not synced, and space is not allocated in it.
//!
//! Invariants: (1) the same requests at the same virtual times cost the same; (2) no lock is held
//! while an actor waits; (3) a byte range's stripe is assigned once, when the file first reaches
//! it, and no two files have one; (4) who waits for a request looks again when a spindle may have
//! decided on it, so that no decision needs a thread of its own.
//!
//! Simplifications, with the direction of their error: what was read ahead costs its transfer when
//! it is used and not if it is not (too fast for short scans); half a rotation is waited for before
//! each read, whatever waits (too slow for deep queues); all tracks are equally fast; space that is
//! allocated costs no write, zeros neither (too fast); read-ahead and clusters are as long at every
//! scale; index blocks of a file system are in memory. Those of the write cache, of the capacity
//! and of file systems stand in `flush`, `space` and `file_system`.
//!
//! Source: the rig of the reproduction plan; the disks of LSbM section 6.1 and LDS section 4.1.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sched::{self, Mutex};
use crate::device::{Advice, Dir, File, FileClass, Lock, Mode};

mod file_system;
mod flush;
mod model;
mod pages;
mod space;

pub use file_system::FileSystem;
use file_system::{Change, Metadata};
pub use model::DiskModel;
use model::{Access, Piece, Served, Spindles};
use pages::{PAGE_BYTES, PageCache};
use space::Space;

/// Processor time by which an actor may be ahead of the clock before it waits: less than any
/// positioning of a hard disk, more than a hundred cached reads.
const AHEAD_MAX_NANOS: u64 = 2_000_000;

thread_local! {
    /// Processor time of the calling actor since it last waited: its lead over the clock.
    static AHEAD: Cell<u64> = const { Cell::new(0) };
    /// Whether the calling actor reads for a user.
    static READER: Cell<bool> = const { Cell::new(false) };
    /// Each of the calling actor's last reads, newest first.
    static LAST: Cell<[LastRead; SEGMENTS]> = const { Cell::new([NO_READ; SEGMENTS]) };
}

/// Reads of one reader that may be continued, since a scan merges several tables: an operating
/// system keeps one for each open file.
const SEGMENTS: usize = 16;

/// Bytes that the operating system reads ahead of a reader that continues: Linux' default.
const READ_AHEAD_BYTES: u64 = 128 << 10;

/// Where a read ended, and how far the file was read ahead.
#[derive(Clone, Copy)]
struct LastRead {
    file: u64,
    end: u64,
    ahead_end: u64,
}

const NO_READ: LastRead = LastRead { file: u64::MAX, end: 0, ahead_end: 0 };

/// Whether all of a read has been read ahead; remembers where it ends. A read that continues one of
/// the calling actor's last reads beyond what was read ahead begins to read ahead anew.
fn was_read_ahead(file: u64, offset: u64, end: u64) -> bool {
    let mut last = LAST.get();
    let found = last.iter().position(|read| (read.file, read.end) == (file, offset));
    let place = found.unwrap_or(SEGMENTS - 1);
    let before = found.and(last.get(place)).copied().unwrap_or(NO_READ);
    let ahead_end = match found {
        Some(_) if end <= before.ahead_end => before.ahead_end,
        Some(_) => end + READ_AHEAD_BYTES,
        None => end,
    };
    last.copy_within(..place, 1);
    last[0] = LastRead { file, end, ahead_end };
    LAST.set(last);
    found.is_some() && end <= before.ahead_end
}

/// Declares that the calling actor reads for a user: its reads are counted as such and wait in the
/// queues of the spindles. All other actors are background streams.
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
    /// The store is a part of a real one that is so many times as large. At least 1.
    pub scale: u64,
    /// Each byte of a file stands for so many bytes of a real store's, whose entries and blocks are
    /// so many times as large. At least 1.
    pub charge: u64,
    /// Bytes of the page cache; 0: none.
    pub page_cache_bytes: u64,
    /// Whether index and filter of every table are in memory from the start: a read that reaches
    /// the end of its table costs nothing.
    pub indexes_resident: bool,
    /// Whether the disk's volatile write cache is on; see `flush`.
    pub write_cache: bool,
    /// Bytes that fit on it; 0: as many as are written. See `space`.
    pub capacity_bytes: u64,
    /// What writes metadata below the store.
    pub file_system: FileSystem,
}

impl TimedOptions {
    /// A whole disk with its write cache, without a page cache; indexes are read like everything
    /// else.
    #[must_use]
    pub fn new(model: DiskModel) -> Self {
        Self {
            model,
            scale: 1,
            charge: 1,
            page_cache_bytes: 0,
            indexes_resident: false,
            write_cache: true,
            capacity_bytes: 0,
            file_system: FileSystem::None,
        }
    }
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
    /// Requests that took written data to the disk, and their bytes in whole pages.
    pub data_writes: u64,
    /// See `data_writes`.
    pub data_page_bytes: u64,
    /// Requests of the file system's metadata, and their bytes.
    pub metadata_writes: u64,
    /// See `metadata_writes`.
    pub metadata_bytes: u64,
    /// Commands that empty the disk's write cache.
    pub flushes: u64,
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
    space: Space,
    metadata: Metadata,
    counters: TimedCounters,
    /// Stripes below this number are a file's or free.
    stripes_given: u64,
    stripes_free: BTreeSet<u64>,
    /// Requests that wait, or that nobody has asked about since they were served.
    requests: BTreeMap<u64, Request>,
    requests_made: u64,
    /// Writes that are on their way to the medium, and when they are there.
    reaching_medium: BTreeMap<u64, u64>,
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
    /// Written bytes that no request has taken to the disk yet, from here to there.
    unwritten: (u64, u64),
    /// Requests of writes that are not served yet.
    writes: usize,
    /// Virtual time when the last of the others was served.
    written_nanos: u64,
}

/// What a read waits for.
enum Wait {
    Until(u64),
    Request(u64),
}

/// Whether something has its time.
enum Poll {
    Done(u64),
    /// Not yet; it may have it then.
    AskAt(u64),
}

/// A request, until all of its pieces have their time.
struct Request {
    pieces_left: usize,
    done_nanos: u64,
    /// The file whose write it is, or `METADATA`: nobody asks about a write.
    written: Option<u64>,
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
        let metadata = options.metadata();
        let front = metadata.front_bytes().div_ceil(options.model.stripe_bytes.max(1));
        let mut state = State {
            spindles: Spindles::new(options.model.clone(), options.scale),
            pages: PageCache::new(options.page_cache_bytes),
            space: Space::default(),
            metadata,
            counters: TimedCounters::default(),
            stripes_given: front,
            stripes_free: BTreeSet::new(),
            requests: BTreeMap::new(),
            requests_made: 0,
            reaching_medium: BTreeMap::new(),
            names: BTreeMap::new(),
            locks: BTreeSet::new(),
            files: BTreeMap::new(),
            files_made: 0,
        };
        for name in inner.list()?.into_iter().filter(|name| !name.ends_with('/')) {
            let class = class_of(&name);
            let bytes = inner.open(&name, class, Mode::Read)?.len()?;
            let id = state.add(&name, class);
            state.set_len(id, bytes * options.charge);
        }
        // What was there before is on the disk.
        state.metadata = options.metadata();
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
            unwritten: (0, 0),
            writes: 0,
            written_nanos: 0,
        };
        self.files.insert(id, node);
        self.names.insert(name.to_owned(), id);
        self.metadata.change(id, Change::Created);
        id
    }

    /// Sets a file's length; assigns stripes for all of it, and takes back what it no longer needs.
    fn set_len(&mut self, id: u64, bytes: u64) {
        let stripe_bytes = self.spindles.model().stripe_bytes.max(1);
        let Some(node) = self.files.get_mut(&id) else { return };
        let wanted = bytes.div_ceil(stripe_bytes) as usize;
        while node.stripes.len() < wanted {
            node.stripes.push(self.stripes_free.pop_first().unwrap_or_else(|| {
                self.stripes_given += 1;
                self.stripes_given - 1
            }));
        }
        for stripe in node.stripes.drain(wanted..) {
            assert!(self.stripes_free.insert(stripe), "stripe {stripe} of file {id} is free");
        }
        if node.class == FileClass::Table {
            let (all, old) = (self.counters.table_bytes, node.bytes);
            assert!(old <= all, "a table of {old} bytes, all have {all}");
            self.counters.table_bytes = self.counters.table_bytes + bytes - node.bytes;
        }
        self.space.resize(node.bytes, bytes);
        if bytes != node.bytes && (node.named || node.handles > 0) {
            let place = node.stripes.last().map_or(0, |stripe| stripe * stripe_bytes);
            let same_pages = bytes.div_ceil(PAGE_BYTES) == node.bytes.div_ceil(PAGE_BYTES);
            let change = if same_pages { Change::Length } else { Change::Blocks(place) };
            self.metadata.change(id, change);
        }
        if bytes < node.bytes {
            self.pages.forget(id, bytes);
            node.unwritten = (node.unwritten.0.min(bytes), node.unwritten.1.min(bytes));
        }
        node.bytes = bytes;
    }

    fn unname(&mut self, name: &str) {
        if let Some(id) = self.names.remove(name) {
            if let Some(node) = self.files.get_mut(&id) {
                node.named = false;
            }
            self.pages.forget(id, 0);
            self.metadata.change(id, Change::Removed);
            self.drop_unused(id);
        }
    }

    fn drop_unused(&mut self, id: u64) {
        if self.files.get(&id).is_some_and(|node| !node.named && node.handles == 0) {
            self.set_len(id, 0);
            self.files.remove(&id);
        }
    }

    /// The parts of a request on the spindles.
    fn pieces(&self, id: u64, offset: u64, bytes: u64) -> Vec<Piece> {
        let Some(node) = self.files.get(&id) else { return Vec::new() };
        let pieces: Vec<_> = self.spindles.pieces(&node.stripes, offset, bytes).collect();
        let charged: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        assert_eq!(charged, bytes, "bytes of the pieces at offset {offset} of file {id}");
        pieces
    }

    /// Queues a request of a file; its number.
    fn request(&mut self, id: u64, (offset, end): (u64, u64), access: Access) -> u64 {
        let pieces = self.pieces(id, offset, end - offset);
        let written = (access == Access::StreamWrite).then_some(id);
        if written.is_some() {
            self.counters.data_writes += 1;
            let pages = end.div_ceil(PAGE_BYTES) - offset / PAGE_BYTES;
            self.counters.data_page_bytes += pages * PAGE_BYTES;
        }
        self.request_pieces(pieces, access, written)
    }

    /// Queues a request; its number. `written`: see [`Request`].
    fn request_pieces(&mut self, pieces: Vec<Piece>, access: Access, written: Option<u64>) -> u64 {
        let (now, number) = (now_nanos(), self.requests_made);
        self.requests_made += 1;
        if let Some(node) = written.and_then(|id| self.files.get_mut(&id)) {
            node.writes += 1;
        }
        let request = Request { pieces_left: pieces.len(), done_nanos: now, written };
        self.requests.insert(number, request);
        // Before it, so that it is not chosen at a time when it had not arrived.
        self.advance(now);
        for piece in pieces {
            self.spindles.queue(now, number, piece, access);
        }
        self.advance(now);
        number
    }

    /// Makes the spindles' decisions up to `now`.
    fn advance(&mut self, now: u64) {
        for Served { request: number, done_nanos } in self.spindles.advance(now) {
            let Some(request) = self.requests.get_mut(&number) else { continue };
            assert!(request.pieces_left > 0, "request {number} is served twice");
            request.pieces_left -= 1;
            request.done_nanos = request.done_nanos.max(done_nanos);
            let (left, done_nanos) = (request.pieces_left, request.done_nanos);
            let Some(id) = request.written.filter(|_| left == 0) else { continue };
            self.requests.remove(&number);
            self.note_written(now, number, done_nanos);
            if let Some(node) = self.files.get_mut(&id) {
                node.writes -= 1;
                node.written_nanos = node.written_nanos.max(done_nanos);
            }
        }
    }

    /// When request `number` is served, or else when to ask again.
    fn served(&mut self, number: u64) -> Poll {
        let request = self.requests.get(&number);
        if let Some(done) = request.filter(|r| r.pieces_left == 0).map(|r| r.done_nanos) {
            self.requests.remove(&number);
            return Poll::Done(done);
        }
        let next = self.spindles.next_decision(|waiting| waiting == number);
        next.map_or(Poll::Done(0), Poll::AskAt)
    }

    /// When all writes of a file are served, or else when to ask again.
    fn written(&mut self, id: u64) -> Poll {
        let Some(node) = self.files.get(&id) else { return Poll::Done(0) };
        if node.writes == 0 {
            return Poll::Done(node.written_nanos);
        }
        let requests = &self.requests;
        let is_its = |n: u64| requests.get(&n).is_some_and(|r| r.written == Some(id));
        self.spindles.next_decision(is_its).map_or(Poll::Done(0), Poll::AskAt)
    }

    /// Charges a read; the request to wait for, `None` if it costs nothing.
    fn read(&mut self, options: &TimedOptions, id: u64, range: (u64, u64)) -> Option<Wait> {
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
        if !user {
            self.counters.background_read_bytes += end - offset;
            return Some(Wait::Request(self.request(id, (offset, end), Access::StreamRead)));
        }
        self.counters.user_reads += 1;
        self.counters.user_read_bytes += end - offset;
        if was_read_ahead(id, offset, end) {
            let now = now_nanos();
            let pieces = self.pieces(id, offset, end - offset);
            let there = |done: u64, piece| done.max(self.spindles.read_ahead(now, piece));
            return Some(Wait::Until(pieces.into_iter().fold(now, there)));
        }
        Some(Wait::Request(self.request(id, (offset, end), Access::User)))
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
        self.metadata.change(id, Change::Data);
        self.counters.written_bytes += bytes;
        if sched::virtual_nanos().is_none() {
            return;
        }
        let touches = |(start, stop): (u64, u64)| start <= end && offset <= stop;
        if self.files.get(&id).is_some_and(|node| !touches(node.unwritten)) {
            self.write_back(id, 0);
        }
        if let Some(node) = self.files.get_mut(&id) {
            let (start, stop) = node.unwritten;
            let is_empty = start == stop;
            node.unwritten =
                if is_empty { (offset, end) } else { (start.min(offset), stop.max(end)) };
        }
        self.write_back(id, options.model.cluster_bytes);
    }

    /// Takes a file's unwritten bytes to the disk in requests of a cluster, but for less than
    /// `keep_below` bytes at their end, which may be continued; 0: all of them.
    fn write_back(&mut self, id: u64, keep_below: u64) {
        let cluster = self.spindles.model().cluster_bytes.max(1);
        while let Some(node) = self.files.get(&id) {
            let (start, end) = node.unwritten;
            if start == end || end - start < keep_below {
                return;
            }
            let stop = end.min(start + cluster);
            self.request(id, (start, stop), Access::StreamWrite);
            if let Some(node) = self.files.get_mut(&id) {
                node.unwritten = (stop, end);
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
            state.metadata.change(id, Change::Renamed);
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
        if sched::virtual_nanos().is_some() {
            let steps = self.shared.state.lock().metadata.sync_dir(now_nanos());
            self.shared.follow(steps);
        }
        Ok(())
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        let TimedOptions { capacity_bytes, charge, .. } = self.shared.options;
        let free = self.shared.state.lock().free_bytes(capacity_bytes);
        Ok(free.map(|bytes| bytes / charge))
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
        let (options, bytes) = (&self.shared.options, bytes as u64);
        let mut state = self.shared.state.lock();
        state.write(options, self.id, offset * options.charge, bytes * options.charge);
    }
}

impl Drop for TimedFile {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if sched::virtual_nanos().is_some() {
            state.write_back(self.id, 0);
        }
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
            let charge = self.shared.options.charge;
            let range = (offset * charge, (offset + buf.len() as u64) * charge);
            let mut state = self.shared.state.lock();
            match state.read(&self.shared.options, self.id, range) {
                Some(Wait::Request(number)) => {
                    self.shared.wait(state, |state| state.served(number));
                }
                Some(Wait::Until(done)) => {
                    drop(state);
                    wait_until(done);
                }
                None => {}
            }
        }
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.shared.room_for(self.id, offset + buf.len() as u64)?;
        self.inner.write_at(buf, offset)?;
        self.charge_write(offset, buf.len());
        Ok(())
    }

    fn write_parts_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.shared.room_for(self.id, offset + bytes as u64)?;
        self.inner.write_parts_at(parts, offset)?;
        self.charge_write(offset, bytes);
        Ok(())
    }

    /// Waits until the file's writes have reached the medium; see `flush`.
    fn sync(&self) -> Result<()> {
        if sched::virtual_nanos().is_some() {
            let mut state = self.shared.state.lock();
            state.write_back(self.id, 0);
            let steps = state.metadata.sync(now_nanos(), self.id);
            if !self.shared.options.write_cache {
                self.shared.wait(state, |state| state.written(self.id));
            } else {
                drop(state);
            }
            self.shared.follow(steps);
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
        self.shared.room_for(self.id, bytes)?;
        self.inner.set_len(bytes)?;
        self.shared.state.lock().set_len(self.id, bytes * self.shared.options.charge);
        Ok(())
    }

    fn advise(&self, _offset: u64, _bytes: u64, _advice: Advice) {}

    fn path(&self) -> String {
        self.inner.path()
    }
}

#[cfg(test)]
mod tests;
