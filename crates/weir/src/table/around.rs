//! Reads around a missed block: its neighbours come with it while the cache has much room.
//!
//! The cache of a store that was just opened is empty. Where the page cache is below it, that is
//! often full; where nothing is (tables in slots), each block would cost a request of its own until
//! the last one is there, although a request for seven takes hardly longer than one for one. So a
//! user's read of a single block brings those that begin in the same [`AROUND_BYTES`], and what is
//! not cached of them goes where the cache has room, as newcomers. They take nobody's place: beside
//! a cache of which less than an eighth is free what is wanted is read, and nothing else.
//!
//! Not here: scans and merges, which know what comes next (`ahead`); what merges leave in the cache
//! (`compaction::execute::handoff`).
//!
//! Invariants: (1) what is wrong with a neighbour is told to who reads it, and to nobody else: it
//! stays out of the cache, and where it makes the request fail the block is read alone; (2) who
//! waits for the block waits for no neighbour to be decoded; (3) neighbours count as blocks that
//! nobody has asked for (`base::heat`); (4) windows begin at multiples of their size: those of
//! neighbours are mostly the same, so that readers one after the other read little twice.
//!
//! Source: Weir's own; page caches do it for files that are mapped (`fault_around_bytes`).

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::ops::Range;

use crate::base::buf::Buf;
use crate::base::coding::to_usize;
use crate::base::memory::{Category, Charge};
use crate::base::pages::PageVec;
use crate::table::fetch::ordinal_of;
use crate::table::index::Extent;
use crate::table::reader::{Opened, Table};

/// The blocks that begin in so many bytes are read at once: seven of 4 KiB, about 32 KiB with the
/// last one's end. From a device that takes 70 us for one it takes 90.
const AROUND_BYTES: u64 = 28 << 10;
/// Most bytes of one read: the last block may be large.
const READ_BYTES_MAX: u64 = 2 * AROUND_BYTES;
/// Most blocks of one read to either side, where they are tiny.
const SIDE_BLOCKS_MAX: usize = 16;
/// So many decoded bytes of neighbours are enough, where they compress well.
const DECODED_BYTES_MAX: usize = 56 << 10;
/// An eighth of the cache must be free.
const FREE_DIVISOR: u64 = 8;

/// What was read around a block.
pub(super) struct Around {
    window: Range<usize>,
    /// Offset of `bytes` in the table.
    offset: u64,
    bytes: PageVec<u8>,
    _charge: Option<Charge>,
}

impl Around {
    /// The stored bytes of a block of the window.
    pub(super) fn stored(&self, opened: &Opened, block: usize) -> Option<&[u8]> {
        let Extent { offset, bytes } = opened.index.extent(block);
        let from = to_usize(offset.checked_sub(self.offset)?);
        self.bytes.get(from..from.checked_add(bytes)?)
    }
}

impl Table {
    /// Reads `block` and its neighbours. `None` if it is to be read alone.
    pub(super) fn read_around(&self, opened: &Opened, block: usize) -> Option<Around> {
        let blocks = self.blocks()?;
        if self.is_cached_below() || !blocks.cache().is_free_for(FREE_DIVISOR) {
            return None;
        }
        let window = self.window_around(opened, block);
        let offset = opened.index.extent(window.start).offset;
        let last = opened.index.extent(window.end.checked_sub(1)?);
        let bytes = last.offset + last.bytes as u64 - offset;
        if window.len() == 1 || bytes > READ_BYTES_MAX {
            return None;
        }
        let charge = self.accountant().map(|a| a.charge(Category::Pinned, bytes));
        let mut around = PageVec::filled(to_usize(bytes), 0);
        self.read_exact_at(&mut around, offset).ok()?;
        Some(Around { window, offset, bytes: around, _charge: charge })
    }

    /// Verifies the neighbours of `block` that are not cached, and puts them where there is room.
    pub(super) fn keep_around(&self, opened: &Opened, block: usize, around: &Around) {
        let Some(blocks) = self.blocks() else { return };
        let mut decoded = 0;
        for neighbour in around.window.clone().filter(|&b| b != block && !self.is_cached(b)) {
            let Some(stored) = around.stored(opened, neighbour) else { return };
            if decoded >= DECODED_BYTES_MAX || !blocks.has_room(ordinal_of(neighbour), stored.len())
            {
                return;
            }
            let extent = opened.index.extent(neighbour);
            if let Ok(read) = self.verified(opened, (neighbour, extent), Buf::from(stored)) {
                decoded += read.buf.memory_bytes();
                blocks.insert_into_room(ordinal_of(neighbour), read.buf);
            }
        }
    }

    /// The blocks in the window of `block`, from the first to the last that is not cached.
    fn window_around(&self, opened: &Opened, block: usize) -> Range<usize> {
        let of = |b: usize| opened.index.extent(b);
        let from = of(block).offset / AROUND_BYTES * AROUND_BYTES;
        let lowest = block.saturating_sub(SIDE_BLOCKS_MAX);
        let highest = (block + 1 + SIDE_BLOCKS_MAX).min(opened.index.blocks());
        let (mut start, mut end) = (block, block + 1);
        for b in (lowest..block).rev().take_while(|&b| of(b).offset >= from) {
            if !self.is_cached(b) {
                start = b;
            }
        }
        let is_within = |Extent { offset, bytes }| {
            offset < from + AROUND_BYTES && offset + bytes as u64 <= from + READ_BYTES_MAX
        };
        for b in (block + 1..highest).take_while(|&b| is_within(of(b))) {
            if !self.is_cached(b) {
                end = b + 1;
            }
        }
        start..end
    }
}
