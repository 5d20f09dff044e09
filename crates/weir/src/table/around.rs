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
//! stays out of the cache, and where it makes the request fail the block is read alone; (2) nothing
//! is read beside it that is cached at the ends of its window; (3) windows begin at multiples of
//! their size: those of neighbours are the same, so that what one brings no other one brings again.
//!
//! Source: Weir's own; page caches do it for files that are mapped (`fault_around_bytes`).

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::ops::Range;

use crate::base::buf::Buf;
use crate::base::coding::to_usize;
use crate::cache::TableBlocks;
use crate::table::fetch::ordinal_of;
use crate::table::index::Extent;
use crate::table::reader::{Opened, Table};

/// The blocks that begin in so many bytes are read at once: seven of 4 KiB, about 32 KiB with the
/// last one's end. From a device that takes 70 us for one it takes 90.
const AROUND_BYTES: u64 = 28 << 10;
/// Most bytes of one read: the last block may be large.
const READ_BYTES_MAX: u64 = 2 * AROUND_BYTES;
/// Most blocks of one read, where they are tiny.
const AROUND_BLOCKS_MAX: usize = 64;

/// An eighth of the cache must be free.
const FREE_DIVISOR: u64 = 8;

impl Table {
    /// The stored bytes of `block`, with which its neighbours were read, verified and left in the
    /// cache. `None` if it is to be read alone.
    pub(super) fn read_around(&self, opened: &Opened, block: usize) -> Option<Buf> {
        let blocks = self.blocks()?;
        if self.is_cached_below() || !blocks.cache().is_free_for(FREE_DIVISOR) {
            return None;
        }
        let window = self.window_around(opened, block);
        let of = |b: usize| opened.index.extent(b);
        let start = of(window.start).offset;
        let last = of(window.end.checked_sub(1)?);
        let bytes = to_usize(last.offset + last.bytes as u64 - start);
        if window.len() == 1 || bytes as u64 > READ_BYTES_MAX {
            return None;
        }
        let all = Buf::written(bytes, |bytes| self.read_exact_at(bytes, start)).ok()?;
        let part = |Extent { offset, bytes }| {
            let from = to_usize(offset - start);
            all.bytes().get(from..from + bytes)
        };
        for neighbour in window.filter(|&b| b != block && !self.is_cached(b)) {
            let extent = of(neighbour);
            if let Some(stored) = part(extent) {
                self.leave_neighbour(opened, blocks, (neighbour, extent), stored);
            }
        }
        part(of(block)).map(Buf::from)
    }

    fn leave_neighbour(
        &self,
        opened: &Opened,
        blocks: &TableBlocks,
        (block, extent): (usize, Extent),
        stored: &[u8],
    ) {
        if let Ok(read) = self.verified(opened, (block, extent), Buf::from(stored)) {
            blocks.leave(ordinal_of(block), read.buf);
        }
    }

    /// The blocks in the window of `block`, from the first to the last that is not cached.
    fn window_around(&self, opened: &Opened, block: usize) -> Range<usize> {
        let of = |b: usize| opened.index.extent(b);
        let from = of(block).offset / AROUND_BYTES * AROUND_BYTES;
        let lowest = block.saturating_sub(AROUND_BLOCKS_MAX / 2);
        let highest = (block + AROUND_BLOCKS_MAX / 2).min(opened.index.blocks());
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
