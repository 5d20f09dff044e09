//! A directory that counts what goes through it, by kind of request and class of file.
//!
//! For metrics ("bytes written to logs, to tables, ..."), in every build: a request costs two
//! relaxed additions more. Failed requests are counted too; bytes are those asked for.

use std::sync::Arc;

use crate::base::error::Result;
use crate::device::site::{FileClass, OpKind, SiteCounters};
use crate::device::{Advice, Dir, File, Lock, Mode, ReadRequest};

/// Counts the requests to another directory.
pub struct CountingDir {
    inner: Arc<dyn Dir>,
    counters: Arc<SiteCounters>,
}

impl CountingDir {
    /// Wraps `inner`. Keep the counters' handle from [`counters`](Self::counters) to read them.
    #[must_use]
    pub fn new(inner: Arc<dyn Dir>) -> Self {
        Self { inner, counters: Arc::new(SiteCounters::default()) }
    }

    /// The counters of this directory and of all files opened through it.
    #[must_use]
    pub fn counters(&self) -> Arc<SiteCounters> {
        Arc::clone(&self.counters)
    }

    fn file(&self, name: &str, inner: Arc<dyn File>) -> Arc<dyn File> {
        let counters = Arc::clone(&self.counters);
        Arc::new(CountingFile { inner, class: FileClass::of(name), counters })
    }
}

impl Dir for CountingDir {
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.counters.count(OpKind::Create, FileClass::of(name), 0);
        Ok(self.file(name, self.inner.create(name)?))
    }
    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        self.counters.count(OpKind::Open, FileClass::of(name), 0);
        Ok(self.file(name, self.inner.open(name, mode)?))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.counters.count(OpKind::Rename, FileClass::of(to), 0);
        self.inner.rename(from, to)
    }
    fn unlink(&self, name: &str) -> Result<()> {
        self.counters.count(OpKind::Unlink, FileClass::of(name), 0);
        self.inner.unlink(name)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.counters.count(OpKind::List, FileClass::Directory, 0);
        self.inner.list()
    }
    fn sync(&self) -> Result<()> {
        self.counters.count(OpKind::SyncDir, FileClass::Directory, 0);
        self.inner.sync()
    }
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        self.counters.count(OpKind::Lock, FileClass::of(name), 0);
        self.inner.lock(name)
    }
    fn free_bytes(&self) -> Result<Option<u64>> {
        self.counters.count(OpKind::FreeBytes, FileClass::Directory, 0);
        self.inner.free_bytes()
    }
    fn path(&self) -> String {
        self.inner.path()
    }
}

struct CountingFile {
    inner: Arc<dyn File>,
    class: FileClass,
    counters: Arc<SiteCounters>,
}

impl CountingFile {
    fn count(&self, op: OpKind, bytes: usize) {
        self.counters.count(op, self.class, bytes);
    }
}

impl File for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.count(OpKind::Read, buf.len());
        self.inner.read_at(buf, offset)
    }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests.iter() {
            self.count(OpKind::Read, request.buf.len());
        }
        self.inner.read_batch(requests);
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.count(OpKind::Write, buf.len());
        self.inner.write_at(buf, offset)
    }
    fn write_parts_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.count(OpKind::Write, parts.iter().map(|part| part.len()).sum());
        self.inner.write_parts_at(parts, offset)
    }
    fn sync(&self) -> Result<()> {
        self.count(OpKind::Sync, 0);
        self.inner.sync()
    }
    fn write_back(&self, offset: u64, bytes: u64) -> Result<()> {
        self.count(OpKind::WriteBack, 0);
        self.inner.write_back(offset, bytes)
    }
    fn len(&self) -> Result<u64> {
        self.count(OpKind::Len, 0);
        self.inner.len()
    }
    fn allocate(&self, bytes: u64) -> Result<()> {
        self.count(OpKind::Allocate, bytes as usize);
        self.inner.allocate(bytes)
    }
    fn set_len(&self, bytes: u64) -> Result<()> {
        self.count(OpKind::SetLen, 0);
        self.inner.set_len(bytes)
    }
    fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        self.count(OpKind::Discard, 0);
        self.inner.discard(offset, bytes)
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
    use crate::device::real::RealDir;
    use crate::device::site::Site;

    /// Goal: every request is passed on and counted once, with its bytes.
    #[test]
    fn counts_what_passes() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = CountingDir::new(RealDir::open(temp.path(), false).expect("opened"));
        let counters = dir.counters();
        let log = dir.create("wal-000001.log").expect("created");
        log.write_parts_at(&[b"ab", b"cde"], 0).expect("written");
        log.write_at(b"f", 5).expect("written");
        log.sync().expect("synced");
        dir.sync().expect("synced");
        let (mut a, mut b) = ([0; 2], [0; 10]);
        let request = |offset, buf| ReadRequest { offset, buf, result: Ok(0) };
        let mut batch = [request(1, &mut a[..]), request(0, &mut b[..])];
        log.read_batch(&mut batch);
        assert_eq!(batch.map(|request| request.result.expect("read")), [2, 6]);
        assert_eq!((&a, &b[..6]), (b"bc", &b"abcdef"[..]));
        assert_eq!(
            dir.open("wal-000002.log", Mode::Read).err().map(|e| e.to_string().is_empty()),
            Some(false)
        );
        let counted: Vec<(Site, u64, u64)> =
            counters.sites().iter().map(|c| (c.site, c.calls, c.bytes)).collect();
        let wal = |op| Site { op, class: FileClass::Wal };
        let expected = [
            (wal(OpKind::Create), 1, 0),
            (wal(OpKind::Open), 1, 0),
            (wal(OpKind::Read), 2, 12),
            (wal(OpKind::Write), 2, 6),
            (wal(OpKind::Sync), 1, 0),
            (Site { op: OpKind::SyncDir, class: FileClass::Directory }, 1, 0),
        ];
        assert_eq!(counted, expected);
    }
}
