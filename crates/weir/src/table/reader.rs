//! A table that can be read: opened on first use, then index and filter in memory, blocks through
//! the cache.
//!
//! Not here: stepping (`cursor`), full verification (`verify`).
//!
//! Invariants: (1) nothing of a table is believed before its checksum, bound to the table's
//! `check_uid`, was verified; (2) the file's length and the footer's checksum are those of the
//! description, so that another file under this name is noticed at open; (3) no answer is given
//! after an error: a damaged block is an error for every key that it may hold; (4) a hit holds the
//! block that it points into (H32); (5) nobody keeps the slot's file but for one read. Locks: that
//! of the slot is held while the tail is read; nothing is locked by a lookup in an open table but
//! one shard of the cache. When tables are closed again: `open_tables`.

use std::sync::{Arc, Weak};

use crate::base::buf::Buf;
use crate::base::error::{Error, Result};
use crate::base::key::{SEQ_MAX, Seq, compare};
use crate::base::memory::{Accountant, Category, Charge};
use crate::base::pages::PageVec;
use crate::base::table_meta::TableMeta;
use crate::base::value::Value;
use crate::cache::{BlockCache, Purpose};
use crate::filter;
use crate::storage::{Advice, Storage, TableSource};
use crate::table::block::{Layout, overhead_bytes_max};
use crate::table::cursor::TableCursor;
use crate::table::format::{
    BlockPlace, Footer, KIND_FILTER, KIND_INDEX, KIND_PROPERTIES, check_section, hash_check,
};
use crate::table::index::{Extent, Index};
use crate::table::open_tables::{Gate, LockedSlot, OpenFile, OpenTables, Place, Slot};
use crate::table::{CursorOptions, TableHit};

/// One table, shared by all versions and cursors that use it.
pub(crate) struct Table {
    meta: Arc<TableMeta>,
    storage: Arc<dyn Storage>,
    cache: Option<Arc<BlockCache>>,
    /// `None`: unknown, so the filter is not asked and not checked.
    hash_seed: Option<u64>,
    accountant: Option<Arc<Accountant>>,
    /// Bounds how many tables are open; without it this one stays open.
    tables: Option<Arc<OpenTables>>,
    slot: Slot,
    this: Weak<Self>,
}

/// What the first use of a table reads.
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

/// Bytes that begin at a cache line, so that a block of the filter lies in one.
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
        bytes[start..start + content.len()].copy_from_slice(content);
        Self { bytes, start, len: content.len() }
    }

    #[inline]
    fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("uid", &self.meta.uid).finish_non_exhaustive()
    }
}

impl Table {
    /// A table of `storage` with this description. Reads nothing yet. `hash_seed` is the one that
    /// the table was written with; index and filter are charged to `accountant`.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        meta: impl Into<Arc<TableMeta>>,
        cache: Option<Arc<BlockCache>>,
        hash_seed: u64,
        accountant: Option<Arc<Accountant>>,
        tables: Option<Arc<OpenTables>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            meta: meta.into(),
            storage,
            cache,
            hash_seed: Some(hash_seed),
            accountant,
            tables,
            slot: Slot::empty(),
            this: Weak::clone(this),
        })
    }

    /// A table whose hash seed is not known, for `repair`: to be verified and walked, not to be
    /// asked for single keys.
    pub(crate) fn without_seed(storage: Arc<dyn Storage>, meta: Arc<TableMeta>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            meta,
            storage,
            cache: None,
            hash_seed: None,
            accountant: None,
            tables: None,
            slot: Slot::empty(),
            this: Weak::clone(this),
        })
    }

    /// The table's description.
    #[inline]
    pub(crate) fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Number of data blocks.
    #[cfg(test)]
    pub(crate) fn block_count(&self) -> u32 {
        self.meta.blocks
    }

    /// The block cache, if the table has one.
    pub(super) fn cache(&self) -> Option<&BlockCache> {
        self.cache.as_deref()
    }

    /// Who counts the memory of this table and its cursors.
    pub(super) fn accountant(&self) -> Option<&Arc<Accountant>> {
        self.accountant.as_ref()
    }

    pub(super) fn hash_seed(&self) -> Option<u64> {
        self.hash_seed
    }

    /// Where the table keeps what it has open.
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

    /// Opens the file if it is closed, and reads index and filter if they are not in memory.
    /// Locks: the slot. A failed open is tried again by the next caller.
    #[cold]
    fn open(&self) -> Result<Arc<Opened>> {
        self.opening(|slot, place| {
            if let Some(opened) = slot.get() {
                return Ok((opened, false));
            }
            let (file, is_new) = match slot.file() {
                Some(file) => (file, false),
                None => (self.open_file(place)?, true),
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
        self.opening(|slot, place| {
            if let Some(file) = slot.file() {
                return Ok((file, false));
            }
            let file = self.open_file(place)?;
            slot.put_file(&file);
            Ok((file, true))
        })
    }

    /// What `open` gives with the slot locked, and whether it put a file into it.
    fn opening<T>(
        &self,
        mut open: impl FnMut(&LockedSlot<'_>, Option<Place>) -> Result<(T, bool)>,
    ) -> Result<T> {
        let Some(tables) = &self.tables else {
            return open(&self.slot.lock(), None).map(|(opened, _)| opened);
        };
        let (opened, is_new) = tables.opening(|place| open(&self.slot.lock(), Some(place)))?;
        if is_new {
            tables.opened(Weak::clone(&self.this));
        }
        Ok(opened)
    }

    /// The file, opened beside the slot, for who reads all of it.
    pub(super) fn open_apart(&self) -> Result<Arc<OpenFile>> {
        match &self.tables {
            Some(tables) => tables.opening(|place| self.open_file(Some(place))),
            None => self.open_file(None),
        }
    }

    /// As [`open_apart`](Self::open_apart), for who takes what is left: a file that goes on behind
    /// the table has all of it.
    pub(super) fn open_remains(&self) -> Result<Arc<OpenFile>> {
        let source = self.storage.open_table(self.meta.uid)?;
        if source.len() < self.meta.bytes {
            return Err(self.wrong_length(&*source));
        }
        Ok(Arc::new(OpenFile::new(source, None)))
    }

    fn open_file(&self, place: Option<Place>) -> Result<Arc<OpenFile>> {
        let source = self.storage.open_table(self.meta.uid)?;
        if source.len() != self.meta.bytes {
            return Err(self.wrong_length(&*source));
        }
        // Scans read ahead by themselves; point reads must not make the system do it.
        source.advise(0, 0, Advice::Random);
        Ok(Arc::new(OpenFile::new(source, place)))
    }

    #[cold]
    fn wrong_length(&self, source: &dyn TableSource) -> Error {
        let (found, expected) = (source.len(), self.meta.bytes);
        let what = format_args!("a table of {expected} bytes that is {found} bytes long");
        self.with_bounds(Error::corruption(source.path(), found.min(expected), what))
    }

    /// Reads from the file, which is opened again if it was closed.
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

    /// As [`load`](Self::load), without what is not needed to find the blocks: a damaged filter is
    /// left out, damaged properties are not compared.
    pub(super) fn load_index(&self, source: &dyn TableSource) -> Result<Opened> {
        self.load_tail(source, false).map_err(|e| self.with_bounds(e))
    }

    fn load_tail(&self, source: &dyn TableSource, whole: bool) -> Result<Opened> {
        let (meta, path) = (&self.meta, source.path());
        let tail_start = meta.bytes.checked_sub(meta.tail_bytes);
        let tail_start = tail_start.ok_or_else(|| {
            Error::corruption(&path, 0, "a table whose tail is longer than its file")
        })?;
        let mut tail = PageVec::filled(meta.tail_bytes as usize, 0);
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

    /// As [`get_at`](Self::get_at), for who has no gate.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn get(
        &self,
        key: &[u8],
        key_hash: u64,
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Option<TableHit>> {
        if snapshot < self.meta.seq_min {
            return Ok(None);
        }
        let pinned = self.pin()?;
        self.get_in(&pinned, (key, key_hash), snapshot, purpose)
    }

    /// The newest entry of `key` with a sequence number of at most `snapshot`, a delete included.
    ///
    /// # Errors
    /// `Corruption` if the block that must hold it is damaged, `Io` if it cannot be read.
    #[inline]
    pub(crate) fn get_at(
        &self,
        gate: Gate<'_>,
        (key, key_hash): (&[u8], u64),
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Option<TableHit>> {
        if snapshot < self.meta.seq_min {
            return Ok(None);
        }
        match self.slot.get(gate) {
            Some(opened) => {
                self.slot.note_use();
                let found = self.get_in(opened, (key, key_hash), snapshot, purpose);
                self.slot.end_look(opened);
                found
            }
            None => self.get_in_closed((key, key_hash), snapshot, purpose),
        }
    }

    #[cold]
    fn get_in_closed(
        &self,
        (key, key_hash): (&[u8], u64),
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Option<TableHit>> {
        // Shared: it may be closed again before the gate could be asked.
        self.get_in(&*self.open()?, (key, key_hash), snapshot, purpose)
    }

    #[inline(always)]
    fn get_in(
        &self,
        opened: &Opened,
        (key, key_hash): (&[u8], u64),
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Option<TableHit>> {
        if !opened.may_contain(key_hash) {
            return Ok(None);
        }
        let Some(block) = opened.index.find(key, snapshot) else { return Ok(None) };
        match self.get_in_block(opened, block, key, snapshot, purpose)? {
            Lookup::Hit(hit) => Ok(Some(hit)),
            Lookup::Absent => Ok(None),
            Lookup::PastEnd => self.get_in_next_block(opened, block, key, snapshot, purpose),
        }
    }

    #[inline(always)]
    fn get_in_block(
        &self,
        opened: &Opened,
        block: usize,
        key: &[u8],
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Lookup> {
        let (buf, layout) = self.block(opened, block, purpose, true)?;
        let found = layout.search(buf.bytes(), key, snapshot);
        if found.index >= layout.count() {
            return Ok(Lookup::PastEnd);
        }
        if !found.same_key {
            return Ok(Lookup::Absent);
        }
        let row = layout.row(buf.bytes(), found.index);
        let len = row.value_end - row.value_start;
        let value = Value::shared(buf, row.value_start, len);
        Ok(Lookup::Hit(TableHit { seq: row.seq, kind: row.kind, value }))
    }

    /// The versions of `key` that precede `(key, snapshot)` ended with block `block`; older ones
    /// follow only if the next block is continued with the key, and then its first one is the
    /// answer.
    #[cold]
    fn get_in_next_block(
        &self,
        opened: &Opened,
        block: usize,
        key: &[u8],
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Option<TableHit>> {
        if !opened.index.continues(block + 1, key) {
            return Ok(None);
        }
        match self.get_in_block(opened, block + 1, key, snapshot, purpose)? {
            Lookup::Hit(hit) => Ok(Some(hit)),
            Lookup::Absent | Lookup::PastEnd => Ok(None),
        }
    }

    /// Whether a block that may hold a key of `[first, last]` is cached. Reads nothing: a table
    /// that is not open counts as having no cached block.
    pub(crate) fn is_cached_between(&self, first: &[u8], last: &[u8]) -> bool {
        let (Some(cache), Some(opened)) = (&self.cache, self.slot.pin()) else { return false };
        let start = opened.index.find(first, SEQ_MAX).unwrap_or(0);
        let Some(end) = opened.index.find(last, 0) else { return false };
        (start..=end).any(|block| cache.contains(self.meta.uid, block as u32))
    }

    /// Block `block`, from the cache or from the device. Requires: `block < blocks`.
    #[inline]
    pub(super) fn block(
        &self,
        opened: &Opened,
        block: usize,
        purpose: Purpose,
        fill_cache: bool,
    ) -> Result<(Buf, Layout)> {
        let ordinal = block as u32;
        if let Some(cache) = &self.cache
            && let Some(buf) = cache.get(self.meta.uid, ordinal, purpose)
            && let Ok(layout) = Layout::parse(buf.bytes())
        {
            return Ok((buf, layout));
        }
        self.read_block(opened, block, fill_cache)
    }

    #[cold]
    fn read_block(&self, opened: &Opened, block: usize, fill_cache: bool) -> Result<(Buf, Layout)> {
        let extent = opened.index.extent(block);
        let mut stored = Buf::unfilled(extent.bytes);
        if let Some(bytes) = stored.get_mut() {
            self.read_exact_at(bytes, extent.offset)?;
        }
        let (buf, layout) = self.open_block(opened, block, extent, stored)?;
        if fill_cache && let Some(cache) = &self.cache {
            cache.insert(self.meta.uid, block as u32, buf.clone());
        }
        Ok((buf, layout))
    }

    /// Checks and decodes a block whose stored bytes were read.
    pub(super) fn open_block(
        &self,
        opened: &Opened,
        block: usize,
        extent: Extent,
        stored: Buf,
    ) -> Result<(Buf, Layout)> {
        let place = BlockPlace {
            check_uid: self.meta.check_uid,
            ordinal: block as u32,
            raw_bytes_max: self.raw_block_bytes_max(),
            file: &|| opened.path().to_owned(),
            offset: extent.offset,
        };
        place.open(stored).map_err(|error| {
            let (first, last) = self.block_bounds(opened, block);
            error.with_key_range(&first, &last)
        })
    }

    /// No block is larger than all entries of the table in one block.
    fn raw_block_bytes_max(&self) -> u64 {
        overhead_bytes_max(self.meta.entries).saturating_add(self.meta.raw_bytes)
    }

    /// Keys between which all keys of a block lie: its separator and the next one.
    pub(super) fn block_bounds(&self, opened: &Opened, block: usize) -> (Vec<u8>, Vec<u8>) {
        let (first, _) = opened.index.separator_key(block);
        let last = if block + 1 < opened.index.blocks() {
            opened.index.separator_key(block + 1).0
        } else {
            self.meta.largest.clone()
        };
        (first, last)
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

    /// A cursor over all entries, not positioned yet. Reads nothing before its first movement.
    pub(crate) fn cursor(self: &Arc<Self>, options: CursorOptions) -> TableCursor {
        TableCursor::new(Arc::clone(self), options)
    }
}

/// How a lookup in one block ended.
enum Lookup {
    Hit(TableHit),
    /// The block holds an entry after the one that was searched for, so no block holds it.
    Absent,
    /// Every entry of the block is before it.
    PastEnd,
}

/// The parts of a tail, their checksums verified; what the blocks are found without may be damaged.
pub(super) struct Sections<'a> {
    pub(super) footer: Footer,
    index: &'a [u8],
    filter: Result<&'a [u8]>,
    properties: Result<TableMeta>,
}

impl<'a> Sections<'a> {
    /// Splits the last bytes of a file of `file_bytes` bytes, which hold at least its tail.
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

    /// The description of the table whose tail this is, under the name `uid`. The filter is not
    /// looked at.
    fn into_meta(self, uid: u64) -> Result<TableMeta> {
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

/// Rebuilds a table's description from the file alone, for `repair`. The filter and the content of
/// the data blocks are not looked at: follow with [`Table::verify`], or with
/// [`Table::read_remains`], which does without the filter.
///
/// # Errors
/// `Corruption` if the rest of the tail is damaged; `Unsupported` if a newer version wrote it.
pub(crate) fn read_meta(source: &dyn TableSource, uid: u64) -> Result<TableMeta> {
    /// Large enough for most tails; a longer one is read with a second read.
    const FIRST_READ_BYTES: u64 = 256 << 10;
    let path = source.path();
    let read_end = |bytes: u64| -> Result<Vec<u8>> {
        let mut end = vec![0; bytes as usize];
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
    sections.into_meta(uid)
}
