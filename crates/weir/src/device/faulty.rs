//! Fault injection: a directory whose requests fail on demand, the n-th of a kind, once, several
//! times or always.
//!
//! Wraps any directory; the effect "a failed sync drops dirty data" needs a simulated disk below.
//! Requests and injected failures are counted by site, so that a campaign can report which pairs of
//! site and error it has covered.
//!
//! Not here: damage at rest and power cuts (`device::sim`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::sched::{self, Mutex};
use crate::device::sim::SimDisk;
use crate::device::site::{OpKind, Site, SiteCounters};
use crate::device::{Advice, Dir, File, FileClass, Lock, Mode};

/// An error of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorCode {
    /// The medium failed.
    Eio,
    /// The file system is full.
    Enospc,
    /// The quota is used up.
    Edquot,
    /// The process has too many open files.
    Emfile,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [Self; 4] = [Self::Eio, Self::Enospc, Self::Edquot, Self::Emfile];

    fn error(self, what: &str, path: &str) -> Error {
        // The numbers of Linux.
        let errno = match self {
            Self::Eio => 5,
            Self::Enospc => 28,
            Self::Edquot => 122,
            Self::Emfile => 24,
        };
        let os = std::io::Error::from_raw_os_error(errno);
        Error::io(format_args!("{what} {path} (injected)"), os)
    }
}

/// The effect of a fault on a request that it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It fails without being executed.
    Fail(ErrorCode),
    /// It is executed, then fails: a write is in the cache, a sync is durable, a name is changed.
    FailButDone(ErrorCode),
    /// A write writes this many eighths of its bytes and fails; other requests fail.
    ShortWrite(ErrorCode, u8),
    /// A sync of a file fails with `EIO` and its dirty data is dropped: later syncs succeed without
    /// it (fsync-gate). True: reads do not return it either. Other requests fail.
    LoseDirty(bool),
    /// It succeeds after this many more (virtual) milliseconds.
    Stall(u64),
    /// A read returns, or a write writes, this bit (modulo its length) inverted, and reports
    /// success. Other requests succeed.
    FlipBit(u64),
    /// A write or a sync is not executed and reports success: a lost write, a lying disk. Other
    /// requests succeed.
    PretendDone,
    /// The calling thread panics, as if the device's code had a bug; the request is not executed.
    Panic,
}

/// How often a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// One request.
    Once,
    /// This many requests in a row.
    Next(u64),
    /// All requests until [`Faults::heal`].
    Forever,
}

/// Which requests fail, and how.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The kind of request; `None`: any.
    pub op: Option<OpKind>,
    /// The class of the file; `None`: any.
    pub class: Option<FileClass>,
    /// Number of matching requests before the first one that it hits.
    pub after: u64,
    /// How often it hits.
    pub times: Times,
    /// Its effect.
    pub effect: Effect,
}

struct Armed {
    fault: Fault,
    seen: u64,
}

/// The faults of a [`FaultyDir`] and its counters. Clones share them.
#[derive(Clone, Default)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    armed: Mutex<Vec<Armed>>,
    /// Number of armed faults: without any, a request takes no lock.
    armed_count: AtomicUsize,
    counters: SiteCounters,
    calls: AtomicU64,
    injected: Mutex<BTreeMap<(Site, Effect), u64>>,
    panicked: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

impl Faults {
    /// Adds a fault. If several hit a request, the one armed first determines the effect.
    pub fn arm(&self, fault: Fault) {
        let mut armed = self.shared.armed.lock();
        armed.push(Armed { fault, seen: 0 });
        self.shared.armed_count.store(armed.len(), Ordering::Relaxed);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        let mut armed = self.shared.armed.lock();
        armed.clear();
        self.shared.armed_count.store(0, Ordering::Relaxed);
    }

    /// Requests by site, hit or not.
    #[must_use]
    pub fn counters(&self) -> &SiteCounters {
        &self.shared.counters
    }

    /// Number of requests so far, as `after` of a fault that matches any request counts them.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Number of hits by site and effect.
    #[must_use]
    pub fn injected(&self) -> Vec<(Site, Effect, u64)> {
        let injected = self.shared.injected.lock();
        injected.iter().map(|((site, effect), n)| (*site, *effect, *n)).collect()
    }

    /// Number of hits by any fault.
    #[must_use]
    pub fn injected_total(&self) -> u64 {
        self.shared.injected.lock().values().sum()
    }

    /// Names of the threads that [`Effect::Panic`] has hit, in order.
    #[must_use]
    pub fn panicked(&self) -> Vec<String> {
        self.shared.panicked.lock().clone()
    }

    /// Counts a request; the effect of the fault that hits it, if any.
    fn request(&self, op: OpKind, class: FileClass, bytes: usize) -> Option<Effect> {
        self.shared.counters.count(op, class, bytes);
        self.shared.calls.fetch_add(1, Ordering::Relaxed);
        if self.shared.armed_count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut hit = None;
        for Armed { fault, seen } in self.shared.armed.lock().iter_mut() {
            if fault.op.is_some_and(|o| o != op) || fault.class.is_some_and(|c| c != class) {
                continue;
            }
            let nth = *seen;
            *seen += 1;
            let hits = match fault.times {
                Times::Once => 1,
                Times::Next(n) => n,
                Times::Forever => u64::MAX,
            };
            if hit.is_none() && nth >= fault.after && nth - fault.after < hits {
                hit = Some(fault.effect);
            }
        }
        if let Some(effect) = hit {
            let key = (Site { op, class }, effect);
            *self.shared.injected.lock().entry(key).or_insert(0) += 1;
            if effect == Effect::Panic {
                self.shared.panicked.lock().push(this_thread());
            }
        }
        hit
    }

    /// A request for which all effects have their general meaning: `call` forwards it.
    fn pass<T>(
        &self,
        op: OpKind,
        class: FileClass,
        path: impl FnOnce() -> String,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match self.request(op, class, 0) {
            None => call(),
            Some(effect) => suffer(effect, op, path, call),
        }
    }
}

fn this_thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

/// Executes a request under an effect in its general meaning.
fn suffer<T>(
    effect: Effect,
    op: OpKind,
    path: impl FnOnce() -> String,
    call: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let what = format!("{op:?} of");
    match effect {
        Effect::Panic => sched::sim::panic_as_planned(format!("{what} {} (injected)", path())),
        Effect::Fail(code) | Effect::ShortWrite(code, _) => Err(code.error(&what, &path())),
        Effect::LoseDirty(_) => Err(ErrorCode::Eio.error(&what, &path())),
        Effect::FailButDone(code) => {
            call()?;
            Err(code.error(&what, &path()))
        }
        Effect::Stall(millis) => {
            sched::delay(Duration::from_millis(millis));
            call()
        }
        Effect::FlipBit(_) | Effect::PretendDone => call(),
    }
}

/// A directory whose requests fail on demand.
pub struct FaultyDir {
    inner: Arc<dyn Dir>,
    disk: Option<SimDisk>,
    faults: Faults,
}

impl std::fmt::Debug for FaultyDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyDir").field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl FaultyDir {
    /// Wraps any directory.
    #[must_use]
    pub fn new(inner: Arc<dyn Dir>) -> Self {
        Self { inner, disk: None, faults: Faults::default() }
    }

    /// Wraps a simulated disk, whose failed syncs can drop dirty data.
    #[must_use]
    pub fn over_disk(disk: &SimDisk) -> Self {
        Self { inner: disk.dir(), disk: Some(disk.clone()), faults: Faults::default() }
    }

    /// The handle to arm and heal faults.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    fn file(&self, name: &str, class: FileClass, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FaultyFile {
            inner,
            disk: self.disk.clone(),
            name: name.to_owned(),
            class,
            faults: self.faults.clone(),
        })
    }

    fn full(&self, name: &str) -> String {
        format!("{}/{name}", self.inner.path())
    }
}

impl Dir for FaultyDir {
    fn create(&self, name: &str, class: FileClass) -> Result<Arc<dyn File>> {
        let path = || self.full(name);
        let inner =
            self.faults.pass(OpKind::Create, class, path, || self.inner.create(name, class))?;
        Ok(self.file(name, class, inner))
    }
    fn open(&self, name: &str, class: FileClass, mode: Mode) -> Result<Arc<dyn File>> {
        let path = || self.full(name);
        let inner =
            self.faults.pass(OpKind::Open, class, path, || self.inner.open(name, class, mode))?;
        Ok(self.file(name, class, inner))
    }
    fn rename(&self, from: &str, to: &str, class: FileClass) -> Result<()> {
        let path = || self.full(to);
        self.faults.pass(OpKind::Rename, class, path, || self.inner.rename(from, to, class))
    }
    fn unlink(&self, name: &str, class: FileClass) -> Result<()> {
        let path = || self.full(name);
        self.faults.pass(OpKind::Unlink, class, path, || self.inner.unlink(name, class))
    }
    fn list(&self) -> Result<Vec<String>> {
        let path = || self.inner.path();
        self.faults.pass(OpKind::List, FileClass::Directory, path, || self.inner.list())
    }
    fn sync(&self) -> Result<()> {
        let path = || self.inner.path();
        self.faults.pass(OpKind::SyncDir, FileClass::Directory, path, || self.inner.sync())
    }
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        let path = || self.full(name);
        self.faults.pass(OpKind::Lock, FileClass::Lock, path, || self.inner.lock(name))
    }
    fn free_bytes(&self) -> Result<Option<u64>> {
        self.inner.free_bytes()
    }
    fn free_files(&self) -> Result<Option<u64>> {
        self.inner.free_files()
    }
    fn path(&self) -> String {
        self.inner.path()
    }
}

struct FaultyFile {
    inner: Arc<dyn File>,
    disk: Option<SimDisk>,
    name: String,
    class: FileClass,
    faults: Faults,
}

impl FaultyFile {
    fn pass<T>(&self, op: OpKind, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.faults.pass(op, self.class, || self.inner.path(), call)
    }

    fn write(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let call = || self.inner.write_parts_at(parts, offset);
        match self.faults.request(OpKind::Write, self.class, bytes) {
            None => call(),
            Some(Effect::PretendDone) => Ok(()),
            Some(Effect::FlipBit(bit)) => {
                let mut all = parts.concat();
                flip(&mut all, bit);
                self.inner.write_at(&all, offset)
            }
            Some(effect) => {
                if let Effect::ShortWrite(_, eighths) = effect {
                    let kept = bytes * usize::from(eighths.min(8)) / 8;
                    let all = parts.concat();
                    self.inner.write_at(&all[..kept], offset)?;
                }
                suffer(effect, OpKind::Write, || self.inner.path(), call)
            }
        }
    }
}

fn flip(bytes: &mut [u8], bit: u64) {
    if !bytes.is_empty() {
        let bit = bit % (bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

impl File for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        match self.faults.request(OpKind::Read, self.class, buf.len()) {
            None => self.inner.read_at(buf, offset),
            Some(Effect::FlipBit(bit)) => {
                let got = self.inner.read_at(buf, offset)?;
                flip(&mut buf[..got], bit);
                Ok(got)
            }
            Some(effect) => suffer(
                effect,
                OpKind::Read,
                || self.inner.path(),
                || self.inner.read_at(buf, offset),
            ),
        }
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(&[buf], offset)
    }
    fn write_parts_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.write(parts, offset)
    }
    fn sync(&self) -> Result<()> {
        match self.faults.request(OpKind::Sync, self.class, 0) {
            None => self.inner.sync(),
            Some(Effect::PretendDone) => Ok(()),
            Some(effect) => {
                if let (Effect::LoseDirty(revert), Some(disk)) = (effect, &self.disk) {
                    disk.lose_dirty(&self.name, revert);
                }
                suffer(effect, OpKind::Sync, || self.inner.path(), || self.inner.sync())
            }
        }
    }
    fn write_back(&self, offset: u64, bytes: u64) -> Result<()> {
        self.pass(OpKind::WriteBack, || self.inner.write_back(offset, bytes))
    }
    fn len(&self) -> Result<u64> {
        self.pass(OpKind::Len, || self.inner.len())
    }
    fn allocate(&self, bytes: u64) -> Result<()> {
        self.pass(OpKind::Allocate, || self.inner.allocate(bytes))
    }
    fn set_len(&self, bytes: u64) -> Result<()> {
        self.pass(OpKind::SetLen, || self.inner.set_len(bytes))
    }
    fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        self.pass(OpKind::Discard, || self.inner.discard(offset, bytes))
    }
    fn classed(&self, class: FileClass) -> Option<Arc<dyn File>> {
        Some(Arc::new(Self {
            inner: self.inner.classed(class).unwrap_or_else(|| Arc::clone(&self.inner)),
            disk: self.disk.clone(),
            name: self.name.clone(),
            class,
            faults: self.faults.clone(),
        }))
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
    use crate::base::error::ErrorKind;
    use crate::device::sim::crash::CrashPolicy;

    fn fault(op: OpKind, after: u64, times: Times, effect: Effect) -> Fault {
        Fault { op: Some(op), class: Some(FileClass::Wal), after, times, effect }
    }

    fn wal() -> (SimDisk, FaultyDir, Faults, Arc<dyn File>) {
        let disk = SimDisk::default();
        let dir = FaultyDir::over_disk(&disk);
        let log = dir.create("wal-000001.log", FileClass::Wal).expect("created");
        dir.sync().expect("synced");
        let faults = dir.faults();
        (disk, dir, faults, log)
    }

    /// Goal: a fault hits exactly the requests that it matches, from the n-th on, `times` often,
    /// and none after `heal`.
    #[test]
    fn hits_what_it_names() {
        let (_disk, dir, faults, log) = wal();
        faults.arm(fault(OpKind::Write, 2, Times::Next(2), Effect::Fail(ErrorCode::Enospc)));
        let kinds: Vec<Option<ErrorKind>> =
            (0..6).map(|_| log.write_at(b"x", 0).err().map(|e| e.kind())).collect();
        let full = Some(ErrorKind::NoSpace);
        assert_eq!(kinds, [None, None, full, full, None, None]);
        log.sync().expect("another kind");
        dir.create("000001.tbl", FileClass::Table)
            .expect("created")
            .write_at(b"x", 0)
            .expect("another class");

        faults.arm(Fault {
            op: None,
            class: None,
            after: 1,
            times: Times::Forever,
            effect: Effect::Fail(ErrorCode::Eio),
        });
        dir.list().expect("the first passes");
        assert_eq!(dir.list().err().map(|e| e.kind()), Some(ErrorKind::Io));
        let text = log.sync().expect_err("fails").to_string();
        assert!(text.contains("wal-000001.log") && text.contains("injected"), "{text}");
        faults.heal();
        log.sync().expect("healed");
        assert_eq!(faults.injected_total(), 4);
        assert_eq!(faults.injected().len(), 3);
        assert_eq!(faults.counters().get(OpKind::Write, FileClass::Wal).calls, 6);
        assert_eq!(faults.calls(), 15);
    }

    /// Goal: file and disk are in the documented state after each effect.
    #[test]
    fn effects() {
        let (disk, dir, faults, log) = wal();
        let once = |op, effect| faults.arm(fault(op, 0, Times::Once, effect));
        once(OpKind::Write, Effect::ShortWrite(ErrorCode::Eio, 4));
        log.write_parts_at(&[b"abcd", b"efgh"], 0).expect_err("short");
        assert_eq!(disk.read_all("wal-000001.log").expect("there"), b"abcd");
        once(OpKind::Write, Effect::FailButDone(ErrorCode::Eio));
        log.write_at(b"efgh", 4).expect_err("done all the same");
        assert_eq!(log.len().expect("length"), 8);
        once(OpKind::Sync, Effect::FailButDone(ErrorCode::Eio));
        log.sync().expect_err("durable all the same");
        let durable =
            |disk: &SimDisk| disk.crash(CrashPolicy::Nothing, 0).read_all("wal-000001.log");
        assert_eq!(durable(&disk).expect("there"), b"abcdefgh");
        log.write_at(b"ijkl", 8).expect("written");
        once(OpKind::Sync, Effect::LoseDirty(false));
        log.sync().expect_err("the gate");
        log.sync().expect("the lie");
        assert_eq!(durable(&disk).expect("there"), b"abcdefgh");
        once(OpKind::Rename, Effect::FailButDone(ErrorCode::Eio));
        dir.rename("wal-000001.log", "wal-000002.log", FileClass::Wal)
            .expect_err("done all the same");
        assert_eq!(dir.list().expect("list"), ["wal-000002.log"]);
        once(OpKind::Create, Effect::Fail(ErrorCode::Emfile));
        assert_eq!(
            dir.create("wal-000003.log", FileClass::Wal).err().map(|e| e.kind()),
            Some(ErrorKind::Io)
        );
        once(OpKind::Sync, Effect::Stall(1));
        log.sync().expect("late, but done");
        once(OpKind::Write, Effect::PretendDone);
        log.write_at(b"lost", 0).expect("it says so");
        once(OpKind::Sync, Effect::PretendDone);
        log.sync().expect("it says so");
        once(OpKind::Write, Effect::FlipBit(16 + 1));
        log.write_at(b"ab", 0).expect("it says so");
        once(OpKind::Read, Effect::FlipBit(0));
        let mut read = [0; 4];
        log.read_exact_at(&mut read, 0).expect("it says so");
        assert_eq!(&read, b"bbcd", "bit 1 flipped when written, bit 0 when read");
    }
}
