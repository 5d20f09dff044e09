//! Logs and a root record in memory, for the tests of `log` and `version`: unsynced writes may be
//! lost or torn at every 512 bytes, and the n-th call may fail or be the last before a crash.
//!
//! Names are durable at once, as the contract of `Storage` says of creation and recycling.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{SegmentNumber, TableUid};
use crate::base::prng::Prng;
use crate::storage::{LiveTable, LogKind, LogRegion, Object, Storage, TableSource, TableWriter};

/// The unit that survives a crash whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// The effect of a failing call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing happened.
    Nothing,
    /// A write stopped halfway; other calls did nothing.
    Half,
    /// All of it happened, although the caller got an error.
    All,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// The call that fails, counted from 0 over all calls that change something.
    pub(crate) at: u64,
    /// How many calls fail from then on.
    pub(crate) times: u64,
    pub(crate) kind: ErrorKind,
    pub(crate) effect: Effect,
}

#[derive(Clone, Default)]
struct FileState {
    current: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Whether its capacity is fixed, and whether it holds what an earlier log left.
    fixed: bool,
    stale: bool,
}

#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Len(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => {
                let start = *offset as usize;
                let end = start + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(data);
            }
            Self::Len(len) => bytes.resize(*len as usize, 0),
        }
    }
}

#[derive(Default)]
struct State {
    logs: BTreeMap<(LogKind, SegmentNumber), FileState>,
    tables: BTreeSet<TableUid>,
    /// Those that the last recovery named.
    adopted: BTreeSet<TableUid>,
    root: Option<Vec<u8>>,
    calls: u64,
    /// The call at which the machine stops.
    crash_at: Option<u64>,
    crashed: bool,
    fault: Option<Fault>,
    fail_reads: bool,
    /// The capacity of version logs; `None`: they grow.
    version_log_bytes: Option<u64>,
    /// What removed version logs of fixed capacity have left, for those after them.
    retired: Vec<Vec<u8>>,
    /// Whether stale logs say that they are not.
    conceal_stale: bool,
    /// Whether an interrupted replacement of the root happened; drawn by the crash.
    root_interrupted: Option<Vec<u8>>,
}

/// The store.
#[derive(Clone, Default)]
pub(crate) struct MemStorage {
    state: Arc<Mutex<State>>,
}

fn stopped() -> Error {
    Error::new(ErrorKind::Io, "the simulated machine has stopped")
}

impl State {
    /// Counts a call that changes something: what of it happens and how it ends.
    fn call(&mut self) -> (Effect, Result<()>) {
        if self.crashed {
            return (Effect::Nothing, Err(stopped()));
        }
        let number = self.calls;
        self.calls += 1;
        if self.crash_at == Some(number) {
            self.crashed = true;
            return (Effect::All, Err(stopped()));
        }
        match self.fault {
            Some(fault) if (fault.at..fault.at.saturating_add(fault.times)).contains(&number) => {
                (fault.effect, Err(Error::new(fault.kind, "a fault of the test")))
            }
            _ => (Effect::All, Ok(())),
        }
    }
}

impl MemStorage {
    pub(crate) fn calls(&self) -> u64 {
        self.state.lock().calls
    }
    /// The machine stops at call `number`, counted as [`MemStorage::calls`] does.
    pub(crate) fn crash_at(&self, number: u64) {
        self.state.lock().crash_at = Some(number);
    }
    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        self.state.lock().fault = fault;
    }
    pub(crate) fn fail_reads(&self, fail: bool) {
        self.state.lock().fail_reads = fail;
    }
    /// Gives version logs a fixed capacity from now on, and what older ones have left.
    pub(crate) fn fix_version_logs(&self, bytes: u64) {
        self.state.lock().version_log_bytes = Some(bytes);
    }
    /// Gives the next version log of fixed capacity these bytes.
    pub(crate) fn retire(&self, bytes: Vec<u8>) {
        self.state.lock().retired.push(bytes);
    }
    /// Whether the logs that were recycled say that behind what is written they hold zeros.
    pub(crate) fn conceal_stale(&self, conceal: bool) {
        self.state.lock().conceal_stale = conceal;
    }
    pub(crate) fn has_crashed(&self) -> bool {
        self.state.lock().crashed
    }
    /// The power comes back: each unsynced sector survived `keep` times in 4.
    pub(crate) fn restart(&self, prng: &mut Prng, keep: u64) {
        let mut state = self.state.lock();
        for file in state.logs.values_mut() {
            let mut bytes = std::mem::take(&mut file.durable);
            for change in file.pending.drain(..) {
                match change {
                    Change::Write(offset, data) => {
                        let mut at = 0;
                        while at < data.len() {
                            let here = offset + at as u64;
                            let left = (SECTOR_BYTES - here % SECTOR_BYTES) as usize;
                            let end = data.len().min(at + left);
                            if prng.chance(keep, 4) {
                                Change::Write(here, data[at..end].to_vec()).apply(&mut bytes);
                            }
                            at = end;
                        }
                    }
                    Change::Len(_) if prng.chance(keep, 4) => change.apply(&mut bytes),
                    Change::Len(_) => {}
                }
            }
            file.current = bytes.clone();
            file.durable = bytes;
        }
        if let Some(root) = state.root_interrupted.take()
            && prng.chance(1, 2)
        {
            state.root = Some(root);
        }
        state.crashed = false;
        state.crash_at = None;
        state.fault = None;
        state.calls = 0;
    }
    pub(crate) fn bytes(&self, kind: LogKind, number: SegmentNumber) -> Vec<u8> {
        self.state.lock().logs[&(kind, number)].current.clone()
    }
    /// Replaces a log's bytes, durably.
    pub(crate) fn set_bytes(&self, kind: LogKind, number: SegmentNumber, bytes: Vec<u8>) {
        let file = FileState { current: bytes.clone(), durable: bytes, ..FileState::default() };
        self.state.lock().logs.insert((kind, number), file);
    }
    pub(crate) fn set_root(&self, root: Option<Vec<u8>>) {
        self.state.lock().root = root;
    }
    /// The tables that the last recovery named.
    pub(crate) fn adopted(&self) -> BTreeSet<TableUid> {
        self.state.lock().adopted.clone()
    }
    pub(crate) fn add_table(&self, uid: TableUid) {
        self.state.lock().tables.insert(uid);
    }
    /// A store of its own with the same content.
    pub(crate) fn fork(&self) -> Self {
        let state = self.state.lock();
        let copy = State {
            logs: state.logs.clone(),
            tables: state.tables.clone(),
            root: state.root.clone(),
            version_log_bytes: state.version_log_bytes,
            retired: state.retired.clone(),
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(copy)) }
    }
    fn file(&self, kind: LogKind, number: SegmentNumber) -> Arc<dyn LogRegion> {
        Arc::new(MemFile { storage: self.clone(), kind, number })
    }
}

struct MemFile {
    storage: MemStorage,
    kind: LogKind,
    number: SegmentNumber,
}

impl MemFile {
    fn change(&self, change: Change) -> Result<()> {
        let mut state = self.storage.state.lock();
        let (effect, result) = state.call();
        let change = match (effect, change) {
            (Effect::Nothing, _) | (Effect::Half, Change::Len(_)) => return result,
            (Effect::Half, Change::Write(offset, mut data)) => {
                data.truncate(data.len() / 2);
                Change::Write(offset, data)
            }
            (Effect::All, change) => change,
        };
        if let Some(file) = state.logs.get_mut(&(self.kind, self.number)) {
            change.apply(&mut file.current);
            file.pending.push(change);
        }
        result
    }
}

impl LogRegion for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let state = self.storage.state.lock();
        if state.fail_reads {
            return Err(Error::new(ErrorKind::Io, "a read fault of the test"));
        }
        let file = &state.logs[&(self.kind, self.number)].current;
        let rest = file.get(offset as usize..).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.change(Change::Write(offset, parts.concat()))
    }
    fn sync(&self) -> Result<()> {
        let mut state = self.storage.state.lock();
        let (effect, result) = state.call();
        // A crash during a sync leaves the bytes unsynced: they may survive all the same.
        let done = effect == Effect::All && !state.crashed;
        if let Some(file) = state.logs.get_mut(&(self.kind, self.number))
            && done
        {
            file.durable = file.current.clone();
            file.pending.clear();
        }
        result
    }
    fn capacity(&self) -> Result<u64> {
        Ok(self.storage.state.lock().logs[&(self.kind, self.number)].current.len() as u64)
    }
    fn grows(&self) -> bool {
        !self.storage.state.lock().logs[&(self.kind, self.number)].fixed
    }
    fn is_stale(&self) -> bool {
        let state = self.storage.state.lock();
        state.logs[&(self.kind, self.number)].stale && !state.conceal_stale
    }
    fn cut(&self, end: u64) -> Result<()> {
        if !self.grows() {
            return Err(Error::new(ErrorKind::Unsupported, "a log of fixed capacity"));
        }
        self.change(Change::Len(end))
    }
    fn name(&self) -> String {
        format!("{:?}-{}", self.kind, self.number)
    }
}

impl Storage for MemStorage {
    fn adopt(&self, tables: &mut dyn Iterator<Item = LiveTable<'_>>) -> Result<()> {
        self.state.lock().adopted = tables.map(|table| table.uid).collect();
        Ok(())
    }
    fn create_table(&self, _: TableUid, _: u64) -> Result<Box<dyn TableWriter>> {
        Err(Error::new(ErrorKind::Unsupported, "the test storage has no tables"))
    }
    fn open_table(&self, uid: TableUid) -> Result<Arc<dyn TableSource>> {
        Err(Error::new(ErrorKind::NotFound, format!("table {uid}")))
    }
    fn remove_table(&self, uid: TableUid) -> Result<()> {
        self.state.lock().tables.remove(&uid);
        Ok(())
    }
    fn list_tables(&self) -> Result<Vec<TableUid>> {
        Ok(self.state.lock().tables.iter().copied().collect())
    }
    fn create_log(
        &self,
        kind: LogKind,
        number: SegmentNumber,
        bytes: u64,
    ) -> Result<Arc<dyn LogRegion>> {
        let mut state = self.state.lock();
        if state.logs.contains_key(&(kind, number)) {
            return Err(Error::new(ErrorKind::Conflict, format!("{kind:?} {number} exists")));
        }
        let (effect, result) = state.call();
        if effect == Effect::All {
            let area = state.version_log_bytes.filter(|_| kind == LogKind::Versions && bytes == 0);
            let size = area.unwrap_or(bytes) as usize;
            let mut content = area.and_then(|_| state.retired.pop()).unwrap_or_default();
            content.resize(size, 0);
            let file = FileState {
                current: content.clone(),
                durable: content,
                fixed: size > 0,
                stale: area.is_some(),
                ..FileState::default()
            };
            state.logs.insert((kind, number), file);
        }
        result?;
        Ok(self.file(kind, number))
    }
    fn recycle_log(
        &self,
        kind: LogKind,
        old: SegmentNumber,
        new: SegmentNumber,
    ) -> Result<Arc<dyn LogRegion>> {
        let mut state = self.state.lock();
        let (effect, result) = state.call();
        if effect == Effect::All {
            let mut file = state.logs.remove(&(kind, old)).expect("recycled logs exist");
            (file.fixed, file.stale) = (true, true);
            assert!(state.logs.insert((kind, new), file).is_none(), "log {new} exists");
        }
        result?;
        Ok(self.file(kind, new))
    }
    fn open_log(&self, kind: LogKind, number: SegmentNumber) -> Result<Arc<dyn LogRegion>> {
        if !self.state.lock().logs.contains_key(&(kind, number)) {
            return Err(Error::new(ErrorKind::NotFound, format!("{kind:?} {number}")));
        }
        Ok(self.file(kind, number))
    }
    fn remove_log(&self, kind: LogKind, number: SegmentNumber) -> Result<()> {
        let mut state = self.state.lock();
        let (effect, result) = state.call();
        if effect == Effect::All {
            let removed = state.logs.remove(&(kind, number));
            if state.version_log_bytes.is_some() && kind == LogKind::Versions {
                state.retired.extend(removed.map(|file| file.current));
            }
        }
        result
    }
    fn list_logs(&self, kind: LogKind) -> Result<Vec<SegmentNumber>> {
        let state = self.state.lock();
        Ok(state.logs.keys().filter(|(k, _)| *k == kind).map(|(_, n)| *n).collect())
    }
    fn read_root_record(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.state.lock().root.clone())
    }
    fn write_root_record(&self, root: &[u8], _: SegmentNumber) -> Result<()> {
        let mut state = self.state.lock();
        let (effect, result) = state.call();
        if state.crashed {
            if effect == Effect::All {
                state.root_interrupted = Some(root.to_vec());
            }
        } else if effect == Effect::All {
            state.root = Some(root.to_vec());
        }
        result
    }

    fn remove_root_record(&self) -> Result<()> {
        self.state.lock().root = None;
        Ok(())
    }
    fn sync_names(&self) -> Result<()> {
        self.state.lock().call().1
    }
    fn path(&self) -> String {
        "memory".to_owned()
    }
    fn name_of(&self, object: Object) -> String {
        format!("memory/{object:?}")
    }
}
