//! Tables in memory, for tests: a storage that holds table bytes in a map and counts reads, and
//! helpers that build a table from entries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{KeyspaceId, SegmentNumber, TableUid};
use crate::base::key::{Kind, Seq};
use crate::base::place::{Extent, Place};
use crate::base::prng::Prng;
use crate::base::sched::{Mutex, delay};
use crate::base::table_meta::TableMeta;
use crate::cache::{BlockCache, Purpose};
use crate::device::Advice;
use crate::options::Compression;
use crate::storage::{
    LiveTable, LogKind, LogRegion, Object, Storage, TableSource, TableWriter, WrittenTable,
};
use crate::table::TableMemory;
use crate::table::{CursorOptions, ReadAhead, Table, TableBuilder, TableOptions};

/// One entry as the tests write it.
pub(crate) type Entry = (Vec<u8>, Seq, Kind, Vec<u8>);

/// The seed of all key hashes in these tests.
pub(crate) const SEED: u64 = 0x5eed;

/// Reads that are under way.
#[derive(Default)]
pub(crate) struct UnderWay {
    /// How long each takes.
    pub(crate) nanos: AtomicU64,
    /// Reads that began while another one of the same place was under way.
    pub(crate) rivals: AtomicU64,
    places: Mutex<BTreeSet<(TableUid, u64)>>,
}

impl UnderWay {
    fn read<T>(&self, place: (TableUid, u64), read: impl FnOnce() -> T) -> T {
        let is_first = self.places.lock().insert(place);
        self.rivals.fetch_add(u64::from(!is_first), Ordering::Relaxed);
        let nanos = self.nanos.load(Ordering::Relaxed);
        if nanos > 0 {
            delay(Duration::from_nanos(nanos));
        }
        let read = read();
        if is_first {
            self.places.lock().remove(&place);
        }
        read
    }
}

/// Tables of a store in memory.
pub(crate) struct MemoryTables {
    tables: Arc<Mutex<BTreeMap<TableUid, Arc<Vec<u8>>>>>,
    /// Reads since the beginning.
    pub(crate) reads: Arc<AtomicU64>,
    /// Bytes of these reads.
    pub(crate) bytes_read: Arc<AtomicU64>,
    /// The read with this number fails; 0: none does.
    pub(crate) failing_read: Arc<AtomicU64>,
    /// Reads that are under way.
    pub(crate) under_way: Arc<UnderWay>,
    /// Files that may be open at once.
    pub(crate) descriptors: AtomicU64,
    /// Most files that were open at once.
    pub(crate) files_open_max: AtomicU64,
    files_open: Arc<AtomicU64>,
    /// Whether tables have places, as in a form without names.
    in_slots: bool,
}

impl Default for MemoryTables {
    fn default() -> Self {
        Self {
            tables: Arc::default(),
            reads: Arc::default(),
            bytes_read: Arc::default(),
            failing_read: Arc::default(),
            under_way: Arc::default(),
            descriptors: AtomicU64::new(u64::MAX),
            files_open_max: AtomicU64::new(0),
            files_open: Arc::default(),
            in_slots: false,
        }
    }
}

impl MemoryTables {
    /// Whose tables have places.
    pub(crate) fn in_slots() -> Self {
        Self { in_slots: true, ..Self::default() }
    }

    pub(crate) fn bytes_of(&self, uid: TableUid) -> Vec<u8> {
        self.tables.lock().get(&uid).map(|bytes| bytes.to_vec()).unwrap_or_default()
    }

    fn place_of(&self, uid: TableUid) -> Place {
        let extent = Extent { space: 0, slot: uid.get(), slots: 1 };
        Place::new(if self.in_slots { vec![extent] } else { Vec::new() })
    }

    pub(crate) fn put_bytes(&self, uid: TableUid, bytes: Vec<u8>) {
        self.tables.lock().insert(uid, Arc::new(bytes));
    }
}

struct MemoryWriter {
    uid: TableUid,
    place: Place,
    bytes: Vec<u8>,
    tables: Arc<Mutex<BTreeMap<TableUid, Arc<Vec<u8>>>>>,
}

impl TableWriter for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn end(self: Box<Self>) -> Result<Box<dyn WrittenTable>> {
        self.tables.lock().insert(self.uid, Arc::new(self.bytes));
        Ok(Box::new(InMemory(self.place)))
    }
    fn abandon(self: Box<Self>) {}
}

/// There is nothing to sync.
struct InMemory(Place);

impl WrittenTable for InMemory {
    fn place(&self) -> Place {
        self.0.clone()
    }
    fn sync(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct MemorySource {
    uid: TableUid,
    place: Place,
    bytes: Arc<Vec<u8>>,
    reads: Arc<AtomicU64>,
    bytes_read: Arc<AtomicU64>,
    failing_read: Arc<AtomicU64>,
    under_way: Arc<UnderWay>,
    files_open: Arc<AtomicU64>,
}

impl MemorySource {
    fn copy_to(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let start = offset as usize;
        let Some(bytes) = self.bytes.get(start..start + buf.len()) else {
            return Err(Error::corruption(self.path(), offset, "a table that ends too early"));
        };
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

impl Drop for MemorySource {
    fn drop(&mut self) {
        self.files_open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TableSource for MemorySource {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        self.bytes_read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.under_way.read((self.uid, offset), || {
            if number == self.failing_read.load(Ordering::Relaxed) {
                let what = format!("read {number} fails as it was told to");
                return Err(Error::new(ErrorKind::Io, what));
            }
            self.copy_to(buf, offset)
        })
    }
    fn advise(&self, _: u64, _: u64, _: Advice) {}
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn place(&self) -> Place {
        self.place.clone()
    }
    fn path(&self) -> String {
        format!("memory/{}", self.uid)
    }
}

fn no_logs<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "tables in memory have no logs and no root"))
}

impl Storage for MemoryTables {
    fn adopt(&self, _: &mut dyn Iterator<Item = LiveTable<'_>>) -> Result<()> {
        Ok(())
    }
    fn create_table(&self, uid: TableUid, _: u64) -> Result<Box<dyn TableWriter>> {
        let tables = Arc::clone(&self.tables);
        let place = self.place_of(uid);
        Ok(Box::new(MemoryWriter { uid, place, bytes: Vec::new(), tables }))
    }
    fn open_table(&self, uid: TableUid) -> Result<Arc<dyn TableSource>> {
        let bytes = self.tables.lock().get(&uid).cloned();
        let bytes = bytes.ok_or_else(|| Error::new(ErrorKind::NotFound, "no such table"))?;
        let files_open = Arc::clone(&self.files_open);
        let now_open = files_open.fetch_add(1, Ordering::Relaxed) + 1;
        if now_open > self.descriptors.load(Ordering::Relaxed) {
            files_open.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::io("opening a table", std::io::Error::from_raw_os_error(24)));
        }
        self.files_open_max.fetch_max(now_open, Ordering::Relaxed);
        let source = MemorySource {
            uid,
            place: self.place_of(uid),
            bytes,
            reads: Arc::clone(&self.reads),
            bytes_read: Arc::clone(&self.bytes_read),
            failing_read: Arc::clone(&self.failing_read),
            under_way: Arc::clone(&self.under_way),
            files_open,
        };
        Ok(Arc::new(source))
    }
    fn is_cached_below(&self) -> bool {
        !self.in_slots
    }
    fn remove_table(&self, uid: TableUid) -> Result<()> {
        self.tables.lock().remove(&uid);
        Ok(())
    }
    fn list_tables(&self) -> Result<Vec<TableUid>> {
        Ok(self.tables.lock().keys().copied().collect())
    }
    fn create_log(&self, _: LogKind, _: SegmentNumber, _: u64) -> Result<Arc<dyn LogRegion>> {
        no_logs()
    }
    fn recycle_log(
        &self,
        _: LogKind,
        _: SegmentNumber,
        _: SegmentNumber,
    ) -> Result<Arc<dyn LogRegion>> {
        no_logs()
    }
    fn open_log(&self, _: LogKind, _: SegmentNumber) -> Result<Arc<dyn LogRegion>> {
        no_logs()
    }
    fn remove_log(&self, _: LogKind, _: SegmentNumber) -> Result<()> {
        no_logs()
    }
    fn list_logs(&self, _: LogKind) -> Result<Vec<SegmentNumber>> {
        no_logs()
    }
    fn read_root_record(&self) -> Result<Option<Vec<u8>>> {
        no_logs()
    }
    fn write_root_record(&self, _: &[u8], _: SegmentNumber) -> Result<()> {
        no_logs()
    }
    fn remove_root_record(&self) -> Result<()> {
        no_logs()
    }
    fn sync_names(&self) -> Result<()> {
        Ok(())
    }
    fn path(&self) -> String {
        "memory".to_owned()
    }
    fn name_of(&self, object: Object) -> String {
        format!("memory/{object:?}")
    }
}

pub(crate) fn options(block_bytes: u32) -> TableOptions {
    let compression = Compression::None;
    TableOptions {
        block_bytes,
        bloom_bits: 10.0,
        compression,
        hash_seed: SEED,
        keyspace: KeyspaceId::new(3),
    }
}

/// Writes `entries`, which are in order, as table `uid`.
pub(crate) fn write_table(
    storage: &MemoryTables,
    uid: TableUid,
    options: TableOptions,
    entries: &[Entry],
) -> TableMeta {
    let writer = storage.create_table(uid, 0).unwrap();
    let mut builder = TableBuilder::new(writer, uid, options);
    for (key, seq, kind, value) in entries {
        builder.add(key, *seq, *kind, value).unwrap();
    }
    let estimate = builder.estimated_bytes();
    let (meta, _) = builder.finish().unwrap();
    assert!(meta.bytes <= estimate, "{} bytes were estimated as {estimate}", meta.bytes);
    meta
}

/// Opens a table of `storage`.
pub(crate) fn open_table(
    storage: &Arc<MemoryTables>,
    meta: TableMeta,
    cache: Option<Arc<BlockCache>>,
) -> Arc<Table> {
    let memory = TableMemory { cache, ..TableMemory::default() };
    Table::new(Arc::clone(storage) as Arc<dyn Storage>, meta, SEED, memory)
}

/// An open table of `entries` and its cache, which has nothing of it; `change` was done to the
/// bytes. The counts of reads begin behind its opening.
pub(crate) fn cold_table(
    storage: MemoryTables,
    (block_bytes, capacity_bytes): (u32, u64),
    entries: &[Entry],
    change: impl FnOnce(&mut Vec<u8>),
) -> (Arc<MemoryTables>, Arc<BlockCache>, Arc<Table>) {
    let storage = Arc::new(storage);
    let uid = crate::base::ids::uid(1);
    let meta = write_table(&storage, uid, options(block_bytes), entries);
    let mut bytes = storage.bytes_of(uid);
    change(&mut bytes);
    storage.put_bytes(uid, bytes);
    let cache = Arc::new(BlockCache::new(capacity_bytes));
    let table = open_table(&storage, meta, Some(Arc::clone(&cache)));
    table.open().unwrap();
    storage.reads.store(0, Ordering::Relaxed);
    storage.bytes_read.store(0, Ordering::Relaxed);
    (storage, cache, table)
}

pub(crate) fn scan_options(fill_cache: bool, readahead: ReadAhead) -> CursorOptions {
    CursorOptions { purpose: Purpose::Foreground, fill_cache, readahead }
}

/// Random entries in order: few distinct keys of many shapes, so that versions, shared prefixes,
/// zero bytes and empty keys all occur.
pub(crate) fn random_entries(prng: &mut Prng, count: usize, value_max: u64) -> Vec<Entry> {
    let mut entries = BTreeMap::new();
    let shape = prng.below(4);
    let versions = 1 + prng.below(30);
    let distinct = 1 + prng.below(count as u64);
    for _ in 0..count {
        let key = random_key(prng, shape, distinct);
        let seq =
            if prng.chance(1, 50) { prng.next_u64() >> 8 } else { 1 + prng.below(versions * 9) };
        let kind = if prng.chance(1, 5) { Kind::Delete } else { Kind::Put };
        let value_len = if kind == Kind::Delete { 0 } else { prng.below(value_max + 1) };
        let fill = prng.next_u64() as u8;
        let value = (0..value_len).map(|i| fill.wrapping_add((i / 7) as u8)).collect();
        entries.insert((key, u64::MAX - seq), (seq, kind, value));
    }
    let list = entries.into_iter();
    list.map(|((key, _), (seq, kind, value))| (key, seq, kind, value)).collect()
}

pub(crate) fn random_key(prng: &mut Prng, shape: u64, distinct: u64) -> Vec<u8> {
    let n = prng.below(distinct);
    match shape {
        0 => format!("user{n:012}").into_bytes(),
        1 => {
            let len = prng.below(12) as usize;
            (0..len).map(|_| [0, 1, 0xff][prng.below(3) as usize]).collect()
        }
        2 => {
            [&b"a long prefix that all keys share/"[..], &n.to_be_bytes()[prng.below(8) as usize..]]
                .concat()
        }
        _ => {
            let len = if prng.chance(1, 40) { 3000 } else { prng.below(40) };
            (0..len).map(|_| prng.below(256) as u8).collect()
        }
    }
}
