//! Readahead: the stored blocks that one request of a cursor reads, and their buffer.
//!
//! A *scan* may end at any step, and many of its blocks are cached: its window doubles with each
//! read, and ends before the first cached block. A *merge* reads every block up to the table's end:
//! its window is as large as its memory allows from the first block on, and cached blocks do not
//! end it, because each piece between two of them would need a request of its own. On a device with
//! a limited number of requests a second, those that a merge saves are left for readers. Cached
//! blocks are still taken from the cache: they are verified and decoded.
//!
//! Not here: blocks that are in neither (`fetch`).
//!
//! Invariant: `bytes` are those of the file at `offset`, or empty: a failed read leaves nothing
//! that could be taken for blocks.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::sync::Arc;

use crate::base::coding::to_usize;
use crate::base::error::Result;
use crate::base::memory::{Accountant, Category, Charge};
use crate::base::pages::PageVec;
use crate::storage::Advice;
use crate::table::index::Extent;
use crate::table::reader::{Opened, Table};

/// Most bytes of one read of a scan.
const SCAN_BYTES_MAX: u64 = 256 << 10;
/// Blocks of a scan's first read, which its second missed block causes.
const SCAN_BLOCKS_FIRST: usize = 2;
/// Most bytes of one read of a merge: at 1 MiB a request's fixed cost is small beside its transfer,
/// on disks too.
const MERGE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of one read of a merge under the smallest budget.
const MERGE_BYTES_MIN: u64 = SCAN_BYTES_MAX;
/// The windows of one merge together take the memory budget divided by this, but each at least
/// [`MERGE_BYTES_MIN`]: 16 MiB of the default budget, a window of 1 MiB for each of 16 runs.
const MERGE_BUDGET_SHARE: u64 = 32;

/// How a cursor reads ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAhead {
    /// For a user's scan, which may end soon.
    Scan,
    /// For a merge, which reads to the end. Backwards it is a scan.
    Windows {
        /// Bytes of one read, unless a single block is larger.
        window_bytes: u64,
    },
}

impl ReadAhead {
    /// For each of the `sources` cursors of one merge.
    pub(crate) fn for_merge(sources: usize, accountant: Option<&Arc<Accountant>>) -> Self {
        let budget = accountant.map_or(u64::MAX, |accountant| accountant.budget_bytes());
        let share = budget / MERGE_BUDGET_SHARE / sources.max(1) as u64;
        Self::Windows { window_bytes: share.clamp(MERGE_BYTES_MIN, MERGE_BYTES_MAX) }
    }
}

/// Direction of a scan.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// Stored blocks that were read before they are needed.
#[derive(Default)]
pub(super) struct Ahead {
    bytes: PageVec<u8>,
    /// Offset of `bytes` in the file.
    offset: u64,
    /// Blocks of the last read of a scan; 0 right after a seek.
    window_blocks: usize,
    charge: Option<Charge>,
}

impl Ahead {
    /// The stored bytes of a block, if they were read.
    pub(super) fn get(&self, extent: Extent) -> Option<&[u8]> {
        let start = usize::try_from(extent.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(extent.bytes)?)
    }

    /// The next scan begins with a small window again.
    pub(super) fn restart(&mut self) {
        self.window_blocks = 0;
    }

    /// Reads `block` and, in the direction of the scan, the blocks after it that are not cached, up
    /// to the window, which doubles each time.
    pub(super) fn scan(
        &mut self,
        table: &Table,
        opened: &Opened,
        block: usize,
        direction: Direction,
    ) -> Result<()> {
        let blocks = (self.window_blocks * 2).max(SCAN_BLOCKS_FIRST);
        let extent = opened.index.extent(block);
        let (mut start, mut end) = (extent.offset, end_of(extent));
        let mut taken = 1;
        for step in 1..blocks {
            let next = match direction {
                Direction::Forward => Some(block + step).filter(|&b| b < opened.index.blocks()),
                Direction::Backward => block.checked_sub(step),
            };
            let Some(next) = next.filter(|&b| !table.is_cached(b)) else { break };
            let extent = opened.index.extent(next);
            let next_start = start.min(extent.offset);
            let next_end = end.max(end_of(extent));
            if next_end - next_start > SCAN_BYTES_MAX {
                break;
            }
            (start, end, taken) = (next_start, next_end, taken + 1);
        }
        debug_assert!(
            taken == 1 || end - start <= SCAN_BYTES_MAX,
            "a scan reads {taken} blocks from {start} to {end}"
        );
        self.window_blocks = taken.max(SCAN_BLOCKS_FIRST);
        self.read(table, start, end, Category::Pinned)?;
        if direction == Direction::Forward && end - start > SCAN_BYTES_MAX / 2 {
            // A long scan: the device works while this window is consumed.
            table.advise(end, SCAN_BYTES_MAX, Advice::WillNeed);
        }
        Ok(())
    }

    /// Reads from `block` to the last uncached block within `window_bytes`. Requires: `block` is
    /// not cached.
    pub(super) fn merge(
        &mut self,
        table: &Table,
        opened: &Opened,
        block: usize,
        window_bytes: u64,
    ) -> Result<()> {
        let start = opened.index.extent(block).offset;
        let (end, next) = window_of(table, opened, block, window_bytes);
        debug_assert!(
            end - start <= window_bytes.max(opened.index.extent(block).bytes as u64),
            "a merge reads from {start} to {end} in a window of {window_bytes}"
        );
        self.read(table, start, end, Category::Jobs)?;
        // The device works while this window is consumed.
        if let Some(next) = next {
            let start = opened.index.extent(next).offset;
            let (end, _) = window_of(table, opened, next, window_bytes);
            table.advise(start, end - start, Advice::WillNeed);
        }
        Ok(())
    }

    /// Replaces the buffer's content by the file's bytes from `start` to `end`.
    fn read(&mut self, table: &Table, start: u64, end: u64, category: Category) -> Result<()> {
        debug_assert!(start < end, "a read from {start} to {end}");
        // Not cleared before: only bytes beyond the last window are filled with zeros.
        self.bytes.resize(to_usize(end - start), 0);
        self.offset = start;
        self.keep_account(table.accountant(), category);
        table.read_exact_at(&mut self.bytes, start).inspect_err(|_| {
            self.bytes.clear();
            self.window_blocks = 0;
        })
    }

    /// Charges the buffer, which lives as long as the cursor.
    fn keep_account(&mut self, accountant: Option<&Arc<Accountant>>, category: Category) {
        let bytes = self.bytes.memory_bytes() as u64;
        match &mut self.charge {
            Some(charge) if charge.bytes() != bytes => charge.resize(bytes),
            Some(_) => {}
            None => self.charge = accountant.map(|a| a.charge(category, bytes)),
        }
    }
}

/// End of a merge's window that begins with `block`: behind the last uncached block within
/// `window_bytes`. And the first block of the next window: the next uncached one, searched for
/// within one more window.
fn window_of(
    table: &Table,
    opened: &Opened,
    block: usize,
    window_bytes: u64,
) -> (u64, Option<usize>) {
    let extent = opened.index.extent(block);
    let mut end = end_of(extent);
    for next in block + 1..opened.index.blocks() {
        let next_end = end_of(opened.index.extent(next));
        let is_within = next_end - extent.offset <= window_bytes;
        if next_end - extent.offset > 2 * window_bytes {
            break;
        }
        if table.is_cached(next) {
            continue;
        }
        if !is_within {
            return (end, Some(next));
        }
        end = next_end;
    }
    (end, None)
}

fn end_of(extent: Extent) -> u64 {
    extent.offset + extent.bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the windows of one merge stay within their share of the budget, unless they are at
    /// their minimum.
    #[test]
    fn windows_keep_to_the_budget() {
        let window = |budget_bytes: u64, sources: usize| {
            let accountant = Accountant::new(budget_bytes);
            match ReadAhead::for_merge(sources, Some(&accountant)) {
                ReadAhead::Windows { window_bytes } => window_bytes,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(window(512 << 20, 1), 1 << 20);
        assert_eq!(window(512 << 20, 16), 1 << 20);
        assert_eq!(window(512 << 20, 32), 512 << 10);
        assert_eq!(window(64 << 20, 8), 256 << 10);
        assert_eq!(window(64 << 10, 100), 256 << 10);
    }
}
