//! Fetches blocks of a table: from the cache, from readahead, or from the device.
//!
//! The only file that accesses the block cache for a table's blocks: a layer before the cache, or
//! an observer of it, belongs here.
//!
//! A user's read of a single block is entered among the reads in flight (`cache`, `flights`), and
//! waits for another user's read of the same block instead of reading it too. Windows of readahead
//! neither enter nor wait: one request brings many blocks, most of them wanted by its cursor alone;
//! who waited for it would wait for all of them, and a window that left out what is in flight would
//! be two requests. Background reads do not either: they read windows, mostly of what no user has
//! read.
//!
//! Not here: the block that may hold a key (`index`), the search in it (`lookup`, `cursor`), the
//! size of readahead (`ahead`), what is read beside a missed block (`around`).
//!
//! Invariants: (1) a block is verified, bound to its table and number, before it is used; (2) only
//! verified blocks go into the cache; (3) a fetched block lives as long as its last handle, even
//! after the table is deleted (H32).

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::buf::Buf;
use crate::base::error::Result;
use crate::base::heat::Heat;
use crate::base::key::SEQ_MAX;
use crate::cache::{Missed, Purpose};
use crate::table::block::{Layout, overhead_bytes_max};
use crate::table::format::BlockPlace;
use crate::table::index::Extent;
use crate::table::reader::{Opened, Table};

/// The ordinal of a block, which the cache and the checksums know it by.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a table's description counts them in 32 bits")]
pub(super) fn ordinal_of(block: usize) -> u32 {
    block as u32
}

/// A verified block, and the offsets of its columns.
#[derive(Default)]
pub(super) struct Block {
    pub(super) buf: Buf,
    pub(super) layout: Layout,
}

impl Block {
    /// A block that was verified before it was cached.
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

/// The purpose of a fetch, and whether the block is inserted into the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchFor {
    pub(super) purpose: Purpose,
    pub(super) fill_cache: bool,
}

impl Table {
    /// Block `block`, from the cache or from the device. Requires: `block < blocks`.
    #[inline]
    pub(super) fn fetch(&self, opened: &Opened, block: usize, how: FetchFor) -> Result<Block> {
        debug_assert!(block < opened.index.blocks(), "block {block} of {}", self.meta().blocks);
        match self.cached(block, how.purpose) {
            Some(cached) => Ok(cached),
            None => self.fetch_missed(opened, block, how),
        }
    }

    /// Block `block`, if it is cached. Counts a hit or a miss.
    #[inline]
    pub(super) fn cached(&self, block: usize, purpose: Purpose) -> Option<Block> {
        let buf = self.blocks()?.get(ordinal_of(block), purpose)?;
        Block::from_cache(buf)
    }

    /// Marks entries of a cached block as read: [`heat::mark`](crate::base::heat::mark).
    #[inline]
    pub(super) fn touch(&self, buf: &Buf, marks: u64) {
        if let Some(blocks) = self.blocks() {
            buf.touch(marks, blocks.cache().period());
        }
    }

    /// The marks of the entries of a cached block.
    pub(super) fn heat(&self, buf: &Buf) -> Heat {
        self.blocks().map_or(Heat::COLD, |blocks| buf.heat(blocks.cache().period()))
    }

    /// Requests the memory that names `block` in the cache.
    #[inline]
    pub(super) fn request_place(&self, block: usize) {
        if let Some(blocks) = self.blocks() {
            blocks.request_place(ordinal_of(block));
        }
    }

    /// Requests what the memory of [`request_place`](Self::request_place) names.
    #[inline]
    pub(super) fn request(&self, block: usize) {
        if let Some(blocks) = self.blocks() {
            blocks.request(ordinal_of(block));
        }
    }

    /// Block `block`, if it is cached, for the hint before a seek: a miss is not counted.
    #[inline]
    pub(super) fn staged(&self, block: usize) -> Option<Buf> {
        self.blocks()?.probe(ordinal_of(block))
    }

    /// Whether a block is cached. Neither counts nor makes it hotter.
    pub(super) fn is_cached(&self, block: usize) -> bool {
        self.blocks().is_some_and(|blocks| blocks.contains(ordinal_of(block)))
    }

    /// As [`is_cached`](Self::is_cached), but for blocks that nobody has asked for.
    fn is_cached_asked(&self, block: usize) -> bool {
        self.blocks().is_some_and(|blocks| blocks.contains_asked(ordinal_of(block)))
    }

    /// Whether a block that may hold a key of `[first, last]` is cached. Reads nothing: false for a
    /// table that is not open.
    pub(crate) fn is_cached_between(&self, first: &[u8], last: &[u8]) -> bool {
        let (Some(_), Some(opened)) = (self.blocks(), self.slot().pin()) else { return false };
        let start = opened.index.find(first, SEQ_MAX).unwrap_or(0);
        let Some(end) = opened.index.find(last, 0) else { return false };
        (start..=end).any(|block| self.is_cached(block))
    }

    /// Of `samples` blocks at equal distances among those that may hold a key of `[first, last]`:
    /// how many were looked for, and how many of them are cached that users have read. Reads
    /// nothing: none for a table that is not open.
    pub(crate) fn sample_cached(
        &self,
        first: &[u8],
        last: &[u8],
        samples: usize,
    ) -> (usize, usize) {
        let (Some(_), Some(opened)) = (self.blocks(), self.slot().pin()) else { return (0, 0) };
        let start = opened.index.find(first, SEQ_MAX).unwrap_or(0);
        let Some(end) = opened.index.find(last, 0) else { return (0, 0) };
        let blocks = (end + 1).saturating_sub(start);
        let samples = samples.min(blocks);
        let cached = (0..samples).filter(|i| self.is_cached_asked(start + i * blocks / samples));
        (samples, cached.count())
    }

    /// Whether the block that may hold `key` is cached. Reads nothing: not in a table that is not
    /// open.
    pub(crate) fn is_key_cached(&self, key: &[u8]) -> bool {
        let opened = self.slot().pin();
        let block = opened.and_then(|opened| opened.index.find(key, SEQ_MAX));
        block.is_some_and(|block| self.is_cached(block))
    }

    /// Of at most `samples` blocks at equal distances: a key between each and the next one, and
    /// whether the block is cached. Reads nothing: none of a table that is not open.
    pub(crate) fn sample_keys(&self, samples: usize) -> Vec<(Vec<u8>, bool)> {
        let (Some(_), Some(opened)) = (self.blocks(), self.slot().pin()) else { return Vec::new() };
        let blocks = opened.index.blocks();
        let samples = samples.min(blocks);
        let sample = |i: usize| {
            let block = i * blocks / samples;
            (opened.index.separator_key(block).0, self.is_cached(block))
        };
        (0..samples).map(sample).collect()
    }

    /// Block `block`, which is not cached. Users that want it at once share one read of it.
    #[cold]
    pub(super) fn fetch_missed(
        &self,
        opened: &Opened,
        block: usize,
        how: FetchFor,
    ) -> Result<Block> {
        let FetchFor { purpose, fill_cache } = how;
        let blocks = self.blocks().filter(|_| purpose == Purpose::Foreground);
        let Some(blocks) = blocks else { return self.read_block(opened, block, fill_cache) };
        match blocks.join_read(ordinal_of(block)) {
            Missed::Leads(flight) => {
                let around = fill_cache.then(|| self.read_around(opened, block)).flatten();
                let stored = around.as_ref().and_then(|around| around.stored(opened, block));
                let read = match stored {
                    Some(stored) => {
                        let extent = opened.index.extent(block);
                        self.take_read(opened, (block, extent), Buf::from(stored), fill_cache)
                    }
                    None => self.read_block(opened, block, fill_cache),
                }?;
                flight.land(&read.buf);
                if let Some(around) = around {
                    self.keep_around(opened, block, &around);
                }
                Ok(read)
            }
            Missed::Shared(buf) => match Block::from_cache(buf) {
                Some(shared) => {
                    // Its reader may have been one that leaves the cache alone.
                    if fill_cache && !self.is_cached(block) {
                        blocks.insert(ordinal_of(block), shared.buf.clone());
                    }
                    Ok(shared)
                }
                None => self.read_block(opened, block, fill_cache),
            },
            Missed::Alone => self.read_block(opened, block, fill_cache),
        }
    }

    fn read_block(&self, opened: &Opened, block: usize, fill_cache: bool) -> Result<Block> {
        let extent = opened.index.extent(block);
        let read = |bytes: &mut [u8]| self.read_exact_at(bytes, extent.offset);
        let stored = Buf::written(extent.bytes, read)?;
        self.take_read(opened, (block, extent), stored, fill_cache)
    }

    /// Checks and decodes the stored bytes of a block; inserts it into the cache if `fill_cache`.
    pub(super) fn take_read(
        &self,
        opened: &Opened,
        (block, extent): (usize, Extent),
        stored: Buf,
        fill_cache: bool,
    ) -> Result<Block> {
        let read = self.verified(opened, (block, extent), stored)?;
        if fill_cache && let Some(blocks) = self.blocks() {
            blocks.insert(ordinal_of(block), read.buf.clone());
        }
        Ok(read)
    }

    /// Checks and decodes the stored bytes of a block.
    pub(super) fn verified(
        &self,
        opened: &Opened,
        (block, extent): (usize, Extent),
        stored: Buf,
    ) -> Result<Block> {
        let place = BlockPlace {
            check_uid: self.meta().check_uid,
            ordinal: ordinal_of(block),
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

    /// Upper bound of an uncompressed block: all entries of the table in one.
    fn raw_block_bytes_max(&self) -> u64 {
        overhead_bytes_max(self.meta().entries).saturating_add(self.meta().raw_bytes)
    }

    /// Bounds of the keys of a block: its separator and the next one.
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
