//! The table reader: opens a table on first use and then holds its index and filter in memory.
//!
//! Not here: blocks (`fetch`), point lookups (`lookup`), cursors (`cursor`), full verification
//! (`verify`), the closing of tables (`table_cache`).
//!
//! Invariants: (1) no byte of a table is used before its checksum, bound to the table's
//! `check_uid`, was verified; (2) the file's length and the footer's checksum are those of the
//! description, so that opening detects another file under this name; (3) no answer is given after
//! an error: a damaged block is an error for every key that it may hold; (4) a hit holds the block
//! that it points into (H32); (5) the slot's file is borrowed for one read at a time. Locks: the
//! slot's lock is held while the tail is read; a lookup in an open table locks nothing if
//! its block is cached.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use crate::base::coding::to_usize;
use crate::base::error::{Error, Result};
use crate::base::ids::TableUid;
use crate::base::key::{KeyRange, SEQ_MAX, compare};
use crate::base::memory::{Accountant, Category, Charge};
use crate::base::pages::PageVec;
use crate::base::table_meta::TableMeta;
use crate::cache::{BlockCache, TableBlocks};
use crate::filter;
use crate::storage::{Advice, Storage, TableSource};
use crate::table::format::{
    Footer, KIND_FILTER, KIND_INDEX, KIND_PROPERTIES, check_section, hash_check,
};
use crate::table::index::Index;
use crate::table::table_cache::{LockedSlot, OpenFile, Permit, Slot, TableCache};

/// The bits of no residency: not a number.
const UNKNOWN: u32 = u32::MAX;

/// One table, shared by all versions and cursors that use it.
pub(crate) struct Table {
    meta: Arc<TableMeta>,
    storage: Arc<dyn Storage>,
    /// Its blocks in the cache.
    blocks: Option<TableBlocks>,
    /// `None`: unknown, so the filter is neither used nor checked.
    hash_seed: Option<u64>,
    accountant: Option<Arc<Accountant>>,
    /// Bounds the number of open tables; without it this one stays open.
    tables: Option<Arc<TableCache>>,
    slot: Slot,
    /// A reader found it damaged.
    distrusted: AtomicBool,
    /// The part of its blocks that was cached, as bits of an `f32`; [`UNKNOWN`] at first.
    residency: AtomicU32,
    this: Weak<Self>,
}

/// Index and filter, which the first use of a table reads.
pub(super) struct Opened {
    /// The file, for messages.
    path: Box<str>,
    pub(super) index: Index,
    filter: AlignedBytes,
    _charge: Option<Charge>,
}

impl Opened {
    /// Whether the table may hold the key with this hash.
    #[inline]
    pub(super) fn may_contain(&self, key_hash: u64) -> bool {
        filter::may_contain(self.filter.get(), key_hash)
    }

    /// The file, for messages.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

/// Bytes aligned to a cache line, so that a block of the filter lies in one line.
struct AlignedBytes {
    bytes: PageVec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    const LINE_BYTES: usize = 64;

    fn copy_of(content: &[u8]) -> Self {
        if content.is_empty() {
            return Self { bytes: PageVec::new(), start: 0, len: 0 };
        }
        let mut bytes = PageVec::filled(content.len() + Self::LINE_BYTES - 1, 0);
        let start = bytes.as_ptr().align_offset(Self::LINE_BYTES).min(Self::LINE_BYTES - 1);
        let aligned = bytes.get_mut(start..start + content.len());
        aligned.into_iter().for_each(|aligned| aligned.copy_from_slice(content));
        Self { bytes, start, len: content.len() }
    }

    #[inline]
    fn get(&self) -> &[u8] {
        self.bytes.get(self.start..self.start + self.len).unwrap_or(&[])
    }
}

/// The block with this number among these.
fn nth_block(ranges: &[Range<u32>], mut number: u64) -> Option<u32> {
    for range in ranges {
        let blocks = u64::from(range.end - range.start);
        if number < blocks {
            return u32::try_from(u64::from(range.start) + number).ok();
        }
        number -= blocks;
    }
    None
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("uid", &self.meta.uid).finish_non_exhaustive()
    }
}

/// What the tables of a store share of its memory; by default nothing.
#[derive(Clone, Default)]
pub(crate) struct TableMemory {
    /// The cache that blocks are read through.
    pub(crate) cache: Option<Arc<BlockCache>>,
    /// What indexes and filters are charged to.
    pub(crate) accountant: Option<Arc<Accountant>>,
    /// Bounds the number of open tables.
    pub(crate) tables: Option<Arc<TableCache>>,
}

impl Table {
    /// A table of `storage` with this description. Reads nothing yet. `hash_seed` is the seed that
    /// the table was written with.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        meta: impl Into<Arc<TableMeta>>,
        hash_seed: u64,
        TableMemory { cache, accountant, tables }: TableMemory,
    ) -> Arc<Self> {
        let meta = meta.into();
        Arc::new_cyclic(|this| Self {
            blocks: cache.map(|cache| cache.table(meta.uid)),
            meta,
            storage,
            hash_seed: Some(hash_seed),
            accountant,
            tables,
            slot: Slot::empty(),
            distrusted: AtomicBool::new(false),
            residency: AtomicU32::new(UNKNOWN),
            this: Weak::clone(this),
        })
    }

    /// A table whose hash seed is not known, for `repair`: for verification and scans, not for
    /// lookups.
    pub(crate) fn without_seed(storage: Arc<dyn Storage>, meta: Arc<TableMeta>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            meta,
            storage,
            blocks: None,
            hash_seed: None,
            accountant: None,
            tables: None,
            slot: Slot::empty(),
            distrusted: AtomicBool::new(false),
            residency: AtomicU32::new(UNKNOWN),
            this: Weak::clone(this),
        })
    }

    /// The table's description.
    #[inline]
    pub(crate) fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The table's description, shared.
    pub(crate) fn shared_meta(&self) -> &Arc<TableMeta> {
        &self.meta
    }

    /// Notes that the table is damaged, so that it is trimmed if it is a copy
    /// (`version::buffer_list`).
    pub(crate) fn distrust(&self) {
        self.distrusted.store(true, Ordering::Relaxed);
    }

    /// Whether a reader found it damaged.
    pub(crate) fn is_distrusted(&self) -> bool {
        self.distrusted.load(Ordering::Relaxed)
    }

    /// The part of its blocks over these key ranges, ascending, that is cached; 0 without a cache
    /// or a block. Blocks that nobody has asked for do not count. Of the whole table the cache
    /// knows it where there are none of these; else it looks at every block if there are at most
    /// `sample`, at so many of more. Without the index in memory, which none reads for this, those
    /// of the whole table stand for them.
    pub(crate) fn residency(&self, parts: &[KeyRange], sample: u32) -> f32 {
        let Some(held) = self.blocks() else { return 0.0 };
        let ranges = self.blocks_over(parts);
        let blocks: u64 = ranges.iter().map(|range| u64::from(range.end - range.start)).sum();
        let sample = blocks.min(u64::from(sample));
        // In steps of the same length, the first half a step from the start.
        let is_cached = |i: &u64| {
            let block = nth_block(&ranges, (2 * i + 1) * blocks / (2 * sample));
            block.is_some_and(|block| held.contains_asked(block))
        };
        let is_whole = blocks == u64::from(self.meta.blocks);
        // Those that nobody asked for are counted, too, where there may be such.
        let counted = held.count().filter(|_| is_whole && self.is_cached_below());
        let (cached, of) = match counted {
            Some(cached) => (cached, blocks),
            None => ((0..sample).filter(is_cached).count() as u64, sample),
        };
        let residency = cached as f32 / of.max(1) as f32;
        self.residency.store(residency.to_bits(), Ordering::Relaxed);
        residency
    }

    /// The blocks that may hold keys of these ranges, ascending; all, if the table is closed.
    fn blocks_over(&self, parts: &[KeyRange]) -> Vec<Range<u32>> {
        let Some(opened) = self.slot.pin().filter(|_| !parts.is_empty()) else {
            return parts.first().map(|_| 0..self.meta.blocks).into_iter().collect();
        };
        let block = |found: Option<usize>| {
            found.and_then(|block| u32::try_from(block).ok()).unwrap_or(self.meta.blocks)
        };
        let mut ranges: Vec<Range<u32>> = Vec::with_capacity(parts.len());
        for (smallest, largest) in parts {
            let done = ranges.last().map_or(0, |range| range.end);
            let start = block(opened.index.find(smallest, SEQ_MAX)).max(done);
            let end = block(opened.index.find(largest, 0)).saturating_add(1).min(self.meta.blocks);
            if start < end {
                ranges.push(start..end);
            }
        }
        ranges
    }

    /// What [`residency`](Self::residency) said last; `None` if it was not asked for.
    pub(crate) fn known_residency(&self) -> Option<f32> {
        let known = self.residency.load(Ordering::Relaxed);
        (known != UNKNOWN).then(|| f32::from_bits(known))
    }

    /// Number of data blocks.
    #[cfg(test)]
    pub(crate) fn block_count(&self) -> u32 {
        self.meta.blocks
    }

    /// Its blocks in the cache, if it has one. Searched in `fetch` only.
    #[inline]
    pub(super) fn blocks(&self) -> Option<&TableBlocks> {
        self.blocks.as_ref()
    }

    /// Whether the page cache has what was read of tables, or written to them.
    pub(super) fn is_cached_below(&self) -> bool {
        self.storage.is_cached_below()
    }

    /// The accountant of the memory of this table and its cursors.
    pub(super) fn accountant(&self) -> Option<&Arc<Accountant>> {
        self.accountant.as_ref()
    }

    pub(super) fn hash_seed(&self) -> Option<u64> {
        self.hash_seed
    }

    /// The table's file, index and filter, as far as they are open.
    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Index and filter, shared; reads them if the table is closed.
    pub(super) fn pin(&self) -> Result<Arc<Opened>> {
        match self.slot.pin() {
            Some(opened) => {
                self.slot.note_use();
                Ok(opened)
            }
            None => self.open(),
        }
    }

    /// Opens the file if it is closed, and reads index and filter if they are not in memory. Locks:
    /// the slot. The next caller retries a failed open.
    #[cold]
    pub(super) fn open(&self) -> Result<Arc<Opened>> {
        self.opening(|slot, permit| {
            if let Some(opened) = slot.get() {
                return Ok((opened, false));
            }
            let (file, is_new) = match slot.file() {
                Some(file) => (file, false),
                None => (self.open_file(permit)?, true),
            };
            let opened = Arc::new(self.load(file.source())?);
            if is_new {
                slot.put_file(&file);
            }
            slot.put(&opened);
            Ok((opened, is_new))
        })
    }

    /// Opens the file if it is closed. Locks: the slot.
    #[cold]
    fn reopen_file(&self) -> Result<Arc<OpenFile>> {
        self.opening(|slot, permit| {
            if let Some(file) = slot.file() {
                return Ok((file, false));
            }
            let file = self.open_file(permit)?;
            slot.put_file(&file);
            Ok((file, true))
        })
    }

    /// Runs `open` with the slot locked; it returns its result and whether it put a file into the
    /// slot.
    fn opening<T>(
        &self,
        mut open: impl FnMut(&LockedSlot<'_>, Option<Permit>) -> Result<(T, bool)>,
    ) -> Result<T> {
        let Some(tables) = &self.tables else {
            return open(&self.slot.lock(), None).map(|(opened, _)| opened);
        };
        let (opened, is_new) = tables.opening(|permit| open(&self.slot.lock(), Some(permit)))?;
        if is_new {
            tables.opened(Weak::clone(&self.this));
        }
        Ok(opened)
    }

    /// The file, opened apart from the slot, for a reader of the whole file.
    pub(super) fn open_apart(&self) -> Result<Arc<OpenFile>> {
        match &self.tables {
            Some(tables) => tables.opening(|permit| self.open_file(Some(permit))),
            None => self.open_file(None),
        }
    }

    /// As [`open_apart`](Self::open_apart), for salvage: a file longer than the table still holds
    /// all of it.
    pub(super) fn open_remains(&self) -> Result<Arc<OpenFile>> {
        let source = self.storage.open_table(self.meta.uid)?;
        if source.len() < self.meta.bytes {
            return Err(self.wrong_length(&*source));
        }
        Ok(Arc::new(OpenFile::new(source, None)))
    }

    fn open_file(&self, permit: Option<Permit>) -> Result<Arc<OpenFile>> {
        let source = self.storage.open_table(self.meta.uid)?;
        if source.len() != self.meta.bytes {
            return Err(self.wrong_length(&*source));
        }
        // Scans do their own readahead; point reads must not trigger the system's.
        source.advise(0, 0, Advice::Random);
        Ok(Arc::new(OpenFile::new(source, permit)))
    }

    #[cold]
    fn wrong_length(&self, source: &dyn TableSource) -> Error {
        let (found, expected) = (source.len(), self.meta.bytes);
        let what = format_args!("a table of {expected} bytes that is {found} bytes long");
        self.with_bounds(Error::corruption(source.path(), found.min(expected), what))
    }

    /// Reads from the file, which is reopened if it was closed.
    pub(super) fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.slot.note_use();
        if let Some(file) = &*self.slot.file() {
            return file.source().read_exact_at(buf, offset);
        }
        self.reopen_file()?.source().read_exact_at(buf, offset)
    }

    /// Hints at the access pattern of a range of the file, if it is open.
    pub(super) fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        if let Some(file) = &*self.slot.file() {
            file.source().advise(offset, bytes, advice);
        }
    }

    /// Names the whole table's bounds in a corruption that has no narrower ones.
    pub(super) fn with_bounds(&self, error: Error) -> Error {
        error.with_key_range(&self.meta.smallest, &self.meta.largest)
    }

    /// Reads and checks the tail with one read.
    pub(super) fn load(&self, source: &dyn TableSource) -> Result<Opened> {
        self.load_tail(source, true).map_err(|e| self.with_bounds(e))
    }

    /// As [`load`](Self::load), but only the index must be sound: a damaged filter is omitted,
    /// damaged properties are not compared.
    pub(super) fn load_index(&self, source: &dyn TableSource) -> Result<Opened> {
        self.load_tail(source, false).map_err(|e| self.with_bounds(e))
    }

    fn load_tail(&self, source: &dyn TableSource, whole: bool) -> Result<Opened> {
        let (meta, path) = (&self.meta, source.path());
        let tail_start = meta.bytes.checked_sub(meta.tail_bytes);
        let tail_start = tail_start.ok_or_else(|| {
            Error::corruption(&path, 0, "a table whose tail is longer than its file")
        })?;
        let mut tail = PageVec::filled(to_usize(meta.tail_bytes), 0);
        source.read_exact_at(&mut tail, tail_start)?;
        let sections = Sections::split(&tail, meta.bytes, &path)?;
        let footer = &sections.footer;
        let properties = match sections.properties {
            Err(error) if whole => return Err(error),
            properties => properties.ok(),
        };
        let foreign = footer.check_uid != meta.check_uid
            || footer.checksum != meta.tail_checksum
            || footer.tail_bytes() != Some(meta.tail_bytes)
            || self.hash_seed.is_some_and(|seed| footer.hash_check != hash_check(seed))
            || properties.is_some_and(|properties| !properties.same_content(meta));
        if foreign {
            return Err(Error::corruption(
                path,
                tail_start,
                format_args!("another table (uid {}) than table {}", footer.check_uid, meta.uid),
            ));
        }
        let index = decode_index(sections.index, meta.blocks, footer.data_bytes, &path)?;
        let filter = match sections.filter {
            Err(error) if whole => return Err(error),
            filter => AlignedBytes::copy_of(filter.unwrap_or_default()),
        };
        let held = index.memory_bytes() + filter.bytes.memory_bytes();
        let charge =
            self.accountant.as_ref().map(|a| a.charge(Category::TableMetadata, held as u64));
        Ok(Opened { path: path.into(), index, filter, _charge: charge })
    }

    /// Whether the table may hold the key with this hash (`checksum::hash_key` under the store's
    /// seed).
    ///
    /// # Errors
    /// If the table cannot be opened.
    #[cfg(test)]
    #[inline]
    pub(crate) fn may_contain(&self, key_hash: u64) -> Result<bool> {
        Ok(self.pin()?.may_contain(key_hash))
    }

    /// Bytes of the file before the block that may hold `key`: an estimate, at most one block low.
    ///
    /// # Errors
    /// If the table cannot be opened.
    pub(crate) fn approximate_offset(&self, key: &[u8]) -> Result<u64> {
        if compare(key, &self.meta.smallest).is_le() {
            return Ok(0);
        }
        if compare(key, &self.meta.largest).is_gt() {
            return Ok(self.meta.bytes);
        }
        let opened = self.pin()?;
        let block = opened.index.find(key, SEQ_MAX);
        Ok(block.map_or(0, |block| opened.index.extent(block).offset))
    }
}

/// The parts of a tail, their checksums verified; filter and properties may be damaged.
pub(super) struct Sections<'a> {
    pub(super) footer: Footer,
    index: &'a [u8],
    filter: Result<&'a [u8]>,
    properties: Result<TableMeta>,
}

impl<'a> Sections<'a> {
    /// Splits the last bytes of a file of `file_bytes` bytes; they contain at least its tail.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for what a newer version wrote.
    pub(super) fn split(end: &'a [u8], file_bytes: u64, path: &str) -> Result<Self> {
        let footer = Footer::decode(end, path, file_bytes)?;
        let cut = || Error::corruption(path, file_bytes, "a table's tail is cut off");
        let tail_bytes = footer.tail_bytes().and_then(|bytes| usize::try_from(bytes).ok());
        let start = tail_bytes.and_then(|bytes| end.len().checked_sub(bytes)).ok_or_else(cut)?;
        let mut rest = end.get(start..).ok_or_else(cut)?;
        let mut offset = footer.data_bytes;
        let mut section =
            |bytes: u64, checksum: u32, kind: u8| -> Result<Result<(&'a [u8], u64)>> {
                let split = usize::try_from(bytes).ok().and_then(|at| rest.split_at_checked(at));
                let (content, tail) = split.ok_or_else(cut)?;
                let start = offset;
                rest = tail;
                offset += bytes;
                let sound = check_section(content, checksum, (footer.check_uid, kind), path, start);
                Ok(sound.map(|()| (content, start)))
            };
        let (index, _) = section(footer.index_bytes, footer.index_checksum, KIND_INDEX)??;
        let filter = section(footer.filter_bytes, footer.filter_checksum, KIND_FILTER)?;
        let properties =
            section(footer.properties_bytes, footer.properties_checksum, KIND_PROPERTIES)?;
        let properties =
            properties.and_then(|(content, start)| TableMeta::decode_content(content, path, start));
        Ok(Self { footer, index, filter: filter.map(|(content, _)| content), properties })
    }

    /// The description of the table with this tail, under the name `uid`. The filter is not
    /// checked.
    fn into_meta(self, uid: TableUid) -> Result<TableMeta> {
        Ok(TableMeta {
            uid,
            check_uid: self.footer.check_uid,
            bytes: self.footer.file_bytes,
            tail_bytes: self.footer.tail_bytes().unwrap_or(0),
            tail_checksum: self.footer.checksum,
            ..self.properties?
        })
    }
}

/// The index, checked.
fn decode_index(bytes: &[u8], blocks: u32, data_bytes: u64, path: &str) -> Result<Index> {
    Index::decode(bytes.into(), blocks, data_bytes)
        .map_err(|what| Error::corruption(path, data_bytes, format_args!("a table's index {what}")))
}

/// Rebuilds a table's description from the file alone, for `repair`. The filter and the data blocks
/// are not checked: follow with [`Table::verify`], or with [`Table::read_remains`], which does not
/// need the filter.
///
/// # Errors
/// `Corruption` if the rest of the tail is damaged; `Unsupported` if a newer version wrote it.
pub(crate) fn read_meta(source: &dyn TableSource, uid: TableUid) -> Result<TableMeta> {
    /// Large enough for most tails; a longer one is read with a second read.
    const FIRST_READ_BYTES: u64 = 256 << 10;
    let path = source.path();
    let read_end = |bytes: u64| -> Result<Vec<u8>> {
        let mut end = vec![0; to_usize(bytes)];
        source.read_exact_at(&mut end, source.len() - bytes)?;
        Ok(end)
    };
    let mut end = read_end(source.len().min(FIRST_READ_BYTES))?;
    let footer = Footer::decode(&end, &path, source.len())?;
    let tail_bytes = footer.tail_bytes().unwrap_or(u64::MAX).min(source.len());
    if tail_bytes > end.len() as u64 {
        end = read_end(tail_bytes)?;
    }
    let sections = Sections::split(&end, source.len(), &path)?;
    Ok(TableMeta { place: source.place(), ..sections.into_meta(uid)? })
}
