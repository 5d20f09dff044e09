//! Blocks of a table: from the cache, from bytes that were read ahead, or from the device.
//!
//! The one file in which a table's blocks are looked for in the block cache: whatever is asked
//! before it, or told about it, has its place here.
//!
//! Not here: which block may hold a key (`index`), what is searched in it (`lookup`, `cursor`), how
//! far is read ahead (`ahead`).
//!
//! Invariants: (1) a block is verified, bound to its table and number, before anyone sees it; (2)
//! only verified blocks go into the cache; (3) a block that was handed out lives as long as who has
//! it, whatever becomes of the table (H32).

use crate::base::buf::Buf;
use crate::base::error::Result;
use crate::base::key::SEQ_MAX;
use crate::cache::Purpose;
use crate::table::block::{Layout, overhead_bytes_max};
use crate::table::format::BlockPlace;
use crate::table::index::Extent;
use crate::table::reader::{Opened, Table};

/// A verified block, and where its columns are.
#[derive(Default)]
pub(super) struct Block {
    pub(super) buf: Buf,
    pub(super) layout: Layout,
}

impl Block {
    /// A block that was verified when it went into the cache.
    #[inline]
    pub(super) fn from_cache(buf: Buf) -> Option<Self> {
        let layout = Layout::parse(buf.bytes()).ok()?;
        Some(Self { buf, layout })
    }

    /// Its bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.buf.bytes()
    }
}

/// On whose behalf a block is fetched, and whether it goes into the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchFor {
    pub(super) purpose: Purpose,
    pub(super) fill_cache: bool,
}

impl Table {
    /// Block `block`, from the cache or from the device. Requires: `block < blocks`.
    #[inline]
    pub(super) fn fetch(&self, opened: &Opened, block: usize, whom: FetchFor) -> Result<Block> {
        match self.cached(block, whom.purpose) {
            Some(cached) => Ok(cached),
            None => self.read_block(opened, block, whom.fill_cache),
        }
    }

    /// Block `block`, if it is cached. Counts a hit or a miss.
    #[inline]
    pub(super) fn cached(&self, block: usize, purpose: Purpose) -> Option<Block> {
        let buf = self.cache()?.get(self.meta().uid, block as u32, purpose)?;
        Block::from_cache(buf)
    }

    /// Block `block`, if it is cached, for a seek that will ask again: a miss is not counted.
    #[inline]
    pub(super) fn staged(&self, block: usize) -> Option<Buf> {
        self.cache()?.probe(self.meta().uid, block as u32)
    }

    /// Whether a block is cached. Counts nothing and heats nothing.
    pub(super) fn is_cached(&self, block: usize) -> bool {
        self.cache().is_some_and(|cache| cache.contains(self.meta().uid, block as u32))
    }

    /// Whether a block that may hold a key of `[first, last]` is cached. Reads nothing: a table
    /// that is not open counts as having no cached block.
    pub(crate) fn is_cached_between(&self, first: &[u8], last: &[u8]) -> bool {
        let (Some(_), Some(opened)) = (self.cache(), self.slot().pin()) else { return false };
        let start = opened.index.find(first, SEQ_MAX).unwrap_or(0);
        let Some(end) = opened.index.find(last, 0) else { return false };
        (start..=end).any(|block| self.is_cached(block))
    }

    #[cold]
    fn read_block(&self, opened: &Opened, block: usize, fill_cache: bool) -> Result<Block> {
        let extent = opened.index.extent(block);
        let mut stored = Buf::unfilled(extent.bytes);
        if let Some(bytes) = stored.get_mut() {
            self.read_exact_at(bytes, extent.offset)?;
        }
        self.take_read(opened, (block, extent), stored, fill_cache)
    }

    /// A block whose stored bytes were read, checked and decoded; it goes into the cache if
    /// `fill_cache`.
    pub(super) fn take_read(
        &self,
        opened: &Opened,
        (block, extent): (usize, Extent),
        stored: Buf,
        fill_cache: bool,
    ) -> Result<Block> {
        let read = self.verified(opened, (block, extent), stored)?;
        if fill_cache && let Some(cache) = self.cache() {
            cache.insert(self.meta().uid, block as u32, read.buf.clone());
        }
        Ok(read)
    }

    /// A block whose stored bytes were read, checked and decoded.
    pub(super) fn verified(
        &self,
        opened: &Opened,
        (block, extent): (usize, Extent),
        stored: Buf,
    ) -> Result<Block> {
        let place = BlockPlace {
            check_uid: self.meta().check_uid,
            ordinal: block as u32,
            raw_bytes_max: self.raw_block_bytes_max(),
            file: &|| opened.path().to_owned(),
            offset: extent.offset,
        };
        let (buf, layout) = place.open(stored).map_err(|error| {
            let (first, last) = self.block_bounds(opened, block);
            error.with_key_range(&first, &last)
        })?;
        Ok(Block { buf, layout })
    }

    /// No block is larger than all entries of the table in one block.
    fn raw_block_bytes_max(&self) -> u64 {
        overhead_bytes_max(self.meta().entries).saturating_add(self.meta().raw_bytes)
    }

    /// Keys between which all keys of a block lie: its separator and the next one.
    pub(super) fn block_bounds(&self, opened: &Opened, block: usize) -> (Vec<u8>, Vec<u8>) {
        let (first, _) = opened.index.separator_key(block);
        let last = if block + 1 < opened.index.blocks() {
            opened.index.separator_key(block + 1).0
        } else {
            self.meta().largest.clone()
        };
        (first, last)
    }
}
