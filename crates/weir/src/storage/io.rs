//! I/O statistics by cause.
//!
//! A decorator around the directory counts reads, writes and syncs, with their bytes. The cause of
//! a request is that of the file's class for the logs and the root, and for tables that of the
//! calling thread ([`on_behalf_of`]; users if it has none), or of the one in whose place it is
//! made. All requests of an opening count as `Open`, those to logs included.
//!
//! Not counted: hints (`advise`, `write_back`), operations on names (create, rename, unlink, sync
//! of the directory), failed requests. The counts are those of system calls: the page cache answers
//! some reads, and the kernel merges requests.
//!
//! Thread-safe; one counter update per request.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::error::Result;
use crate::device::{Advice, Dir, File, FileClass, Lock, Mode};

/// The activity that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Cause {
    /// Gets and scans: blocks, indexes and filters.
    Users = 0,
    /// Tables written by flushes.
    Flush,
    /// Tables read and written by compactions.
    Compaction,
    /// The write-ahead log, its zeros included.
    Log,
    /// The version log and the root.
    Versions,
    /// Opening the store: recovery, and tables written on the way.
    Open,
    /// Verification that a user asked for.
    Verify,
    /// Tables read and written to build sentinels.
    Sentinels,
}

const CAUSES: usize = 8;

/// Requests to the device that have one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoMetrics {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs of files.
    pub syncs: u64,
}

impl IoMetrics {
    fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            bytes_read: self.bytes_read + other.bytes_read,
            writes: self.writes + other.writes,
            bytes_written: self.bytes_written + other.bytes_written,
            syncs: self.syncs + other.syncs,
        }
    }
}

/// Requests of a store to its device since it was opened, by cause: system calls, so that reads
/// which the page cache answers count too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoByCause {
    /// Gets and scans: block cache misses, and indexes and filters of tables that are opened.
    pub users: IoMetrics,
    /// Flushes: the tables that they write.
    pub flush: IoMetrics,
    /// Compactions: the tables that they read and write.
    pub compaction: IoMetrics,
    /// The write-ahead log, with the zeros that preallocate it.
    pub log: IoMetrics,
    /// The version log and the root record.
    pub versions: IoMetrics,
    /// Opening the store: recovery, with all of its reads and writes.
    pub open: IoMetrics,
    /// [`Db::verify`](crate::Db::verify).
    pub verify: IoMetrics,
    /// Sentinels: the tables that are read and written to move hot ranges up.
    pub sentinels: IoMetrics,
}

impl IoByCause {
    /// All causes with their names, as metrics print them.
    #[must_use]
    pub fn named(&self) -> [(&'static str, IoMetrics); CAUSES] {
        [
            ("users", self.users),
            ("flush", self.flush),
            ("compaction", self.compaction),
            ("log", self.log),
            ("versions", self.versions),
            ("open", self.open),
            ("verify", self.verify),
            ("sentinels", self.sentinels),
        ]
    }

    /// All causes together.
    #[must_use]
    pub fn total(&self) -> IoMetrics {
        self.named().into_iter().fold(IoMetrics::default(), |sum, (_, io)| sum.plus(io))
    }
}

thread_local! {
    static CAUSE: Cell<Cause> = const { Cell::new(Cause::Users) };
}

/// Sets the cause of the calling thread's requests until the value is dropped, which restores the
/// earlier one.
#[must_use]
pub(crate) fn on_behalf_of(cause: Cause) -> OnBehalf {
    OnBehalf { earlier: CAUSE.replace(cause) }
}

/// The cause of the calling thread's requests, for a thread that makes some in its place.
pub(crate) fn current_cause() -> Cause {
    CAUSE.get()
}

/// See [`on_behalf_of`].
pub(crate) struct OnBehalf {
    earlier: Cause,
}

impl Drop for OnBehalf {
    fn drop(&mut self) {
        CAUSE.set(self.earlier);
    }
}

/// The cause of a request by the calling thread to a file that has `class_cause`.
fn cause_of(class_cause: Option<Cause>) -> Cause {
    match (CAUSE.get(), class_cause) {
        (Cause::Open, _) => Cause::Open,
        (_, Some(cause)) => cause,
        (cause, None) => cause,
    }
}

/// The cause of all requests to files of a class; `None`: the thread's.
fn class_cause(class: FileClass) -> Option<Cause> {
    match class {
        FileClass::Wal => Some(Cause::Log),
        FileClass::Versions | FileClass::Root => Some(Cause::Versions),
        _ => None,
    }
}

#[derive(Default)]
struct Counts {
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    syncs: AtomicU64,
}

/// Counters by cause. Relaxed: each is exact, but they are not read at one instant.
#[derive(Default)]
pub(crate) struct IoCounters {
    counts: [Counts; CAUSES],
}

impl IoCounters {
    fn at(&self, class_cause: Option<Cause>) -> &Counts {
        &self.counts[cause_of(class_cause) as usize]
    }

    fn read(&self, class_cause: Option<Cause>, bytes: usize) {
        let counts = self.at(class_cause);
        counts.reads.fetch_add(1, Ordering::Relaxed);
        counts.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn written(&self, class_cause: Option<Cause>, bytes: u64) {
        let counts = self.at(class_cause);
        counts.writes.fetch_add(1, Ordering::Relaxed);
        counts.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    fn synced(&self, class_cause: Option<Cause>) {
        self.at(class_cause).syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters, summed by cause.
    pub(crate) fn by_cause(&self) -> IoByCause {
        let io = |cause: Cause| {
            let counts = &self.counts[cause as usize];
            IoMetrics {
                reads: counts.reads.load(Ordering::Relaxed),
                bytes_read: counts.bytes_read.load(Ordering::Relaxed),
                writes: counts.writes.load(Ordering::Relaxed),
                bytes_written: counts.bytes_written.load(Ordering::Relaxed),
                syncs: counts.syncs.load(Ordering::Relaxed),
            }
        };
        IoByCause {
            users: io(Cause::Users),
            flush: io(Cause::Flush),
            compaction: io(Cause::Compaction),
            log: io(Cause::Log),
            versions: io(Cause::Versions),
            open: io(Cause::Open),
            verify: io(Cause::Verify),
            sentinels: io(Cause::Sentinels),
        }
    }
}

/// A directory whose requests are counted.
pub(crate) struct CountedDir {
    inner: Arc<dyn Dir>,
    counters: Arc<IoCounters>,
}

impl CountedDir {
    /// A view of `inner` whose requests `counters` counts.
    pub(crate) fn over(inner: Arc<dyn Dir>, counters: Arc<IoCounters>) -> Arc<dyn Dir> {
        Arc::new(Self { inner, counters })
    }

    fn counted(&self, class: FileClass, inner: Arc<dyn File>) -> Arc<dyn File> {
        let counters = Arc::clone(&self.counters);
        Arc::new(CountedFile { inner, counters, cause: class_cause(class) })
    }
}

impl Dir for CountedDir {
    fn create(&self, name: &str, class: FileClass) -> Result<Arc<dyn File>> {
        self.inner.create(name, class).map(|file| self.counted(class, file))
    }
    fn open(&self, name: &str, class: FileClass, mode: Mode) -> Result<Arc<dyn File>> {
        self.inner.open(name, class, mode).map(|file| self.counted(class, file))
    }
    fn rename(&self, from: &str, to: &str, class: FileClass) -> Result<()> {
        self.inner.rename(from, to, class)
    }
    fn unlink(&self, name: &str, class: FileClass) -> Result<()> {
        self.inner.unlink(name, class)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        self.inner.lock(name)
    }
    fn free_bytes(&self) -> Result<Option<u64>> {
        self.inner.free_bytes()
    }
    fn free_files(&self) -> Result<Option<u64>> {
        self.inner.free_files()
    }
    fn open_files_max(&self) -> Option<usize> {
        self.inner.open_files_max()
    }
    fn path(&self) -> String {
        self.inner.path()
    }
}

/// A view of `inner` whose requests `counters` counts, by the class that its parts are given.
pub(crate) fn counted_file(inner: Arc<dyn File>, counters: &Arc<IoCounters>) -> Arc<dyn File> {
    Arc::new(CountedFile { inner, counters: Arc::clone(counters), cause: None })
}

/// A file whose requests are counted; those that fail are not.
struct CountedFile {
    inner: Arc<dyn File>,
    counters: Arc<IoCounters>,
    /// That of its class.
    cause: Option<Cause>,
}

impl File for CountedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let got = self.inner.read_at(buf, offset)?;
        self.counters.read(self.cause, got);
        Ok(got)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)?;
        self.counters.written(self.cause, buf.len() as u64);
        Ok(())
    }
    fn write_parts_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.inner.write_parts_at(parts, offset)?;
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.counters.written(self.cause, bytes);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync().inspect(|()| self.counters.synced(self.cause))
    }
    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_durable(buf, offset)?;
        self.counters.written(self.cause, buf.len() as u64);
        self.counters.synced(self.cause);
        Ok(())
    }
    fn write_back(&self, offset: u64, bytes: u64) -> Result<()> {
        self.inner.write_back(offset, bytes)
    }
    fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        self.inner.discard(offset, bytes)
    }
    fn classed(&self, class: FileClass) -> Option<Arc<dyn File>> {
        let inner = self.inner.classed(class).unwrap_or_else(|| Arc::clone(&self.inner));
        let (counters, cause) = (Arc::clone(&self.counters), class_cause(class));
        Some(Arc::new(Self { inner, counters, cause }))
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn next_data(&self, offset: u64) -> Result<u64> {
        self.inner.next_data(offset)
    }
    fn allocate(&self, bytes: u64) -> Result<()> {
        // Only new files are allocated, so that all of it is zeros to be written.
        self.inner.allocate(bytes)?;
        self.counters.written(self.cause, bytes);
        Ok(())
    }
    fn reserve(&self, bytes: u64) -> Result<()> {
        self.inner.reserve(bytes)
    }
    fn set_len(&self, bytes: u64) -> Result<()> {
        self.inner.set_len(bytes)
    }
    fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        self.inner.advise(offset, bytes, advice);
    }
    fn path(&self) -> String {
        self.inner.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a nested cause ends with its scope; the logs are told by their class, except for what
    /// an opening does.
    #[test]
    fn causes_nest() {
        let (table, log) = (class_cause(FileClass::Table), class_cause(FileClass::Wal));
        let causes = || (cause_of(table), cause_of(log));
        assert_eq!(causes(), (Cause::Users, Cause::Log));
        assert_eq!(cause_of(class_cause(FileClass::Root)), Cause::Versions);
        {
            let _compaction = on_behalf_of(Cause::Compaction);
            assert_eq!(causes(), (Cause::Compaction, Cause::Log));
            {
                let _flush = on_behalf_of(Cause::Flush);
                assert_eq!(causes(), (Cause::Flush, Cause::Log));
            }
            assert_eq!(causes(), (Cause::Compaction, Cause::Log));
        }
        let _open = on_behalf_of(Cause::Open);
        assert_eq!(causes(), (Cause::Open, Cause::Open));
        assert_eq!(cause_of(class_cause(FileClass::Versions)), Cause::Open);
    }
}
