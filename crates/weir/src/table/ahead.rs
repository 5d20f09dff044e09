//! Reading ahead: which stored blocks one request of a cursor takes, and the buffer that they wait
//! in.
//!
//! A *scan* may end at any step, and many of its blocks are cached: its window doubles with each
//! read, and ends before the first cached block. A *merge* walks every block up to the table's end:
//! its window is as large as its memory allows from the first block on, and cached blocks do not
//! end it, because each piece between two of them would be a request of its own. On a device that
//! does so many requests a second, what a merge saves is what readers get. What is cached is still
//! taken from the cache: its bytes were verified, and come without decoding.
//!
//! Not here: where a block that is in neither comes from (`cursor`).
//!
//! Invariant: `bytes` are those of the file at `offset`, or empty: a read that failed leaves
//! nothing that looks like blocks.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::memory::{Accountant, Category, Charge};
use crate::base::pages::PageVec;
use crate::storage::Advice;
use crate::table::index::Extent;
use crate::table::reader::{Opened, Table};

/// Bytes that one read of a scan may ask for.
const SCAN_BYTES_MAX: u64 = 256 << 10;
/// Blocks of the first read that a scan's second missed block causes.
const SCAN_BLOCKS_FIRST: usize = 2;
/// Bytes that one read of a merge asks for where memory allows: at 1 MiB a request's own time is
/// small beside its bytes', on disks too.
const MERGE_BYTES_MAX: u64 = 1 << 20;
/// Bytes that one read of a merge may ask for, however little memory there is.
const MERGE_BYTES_MIN: u64 = SCAN_BYTES_MAX;
/// The part of the memory budget that the windows of one merge take together, from
/// [`MERGE_BYTES_MIN`] on: 16 MiB of the default budget, the window of 1 MiB for each of 16 runs.
const MERGE_BUDGET_SHARE: u64 = 32;

/// How a cursor reads ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAhead {
    /// As a user's scan, which may end soon.
    Scan,
    /// As a merge, which reads on to the end. Backwards it is a scan.
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

/// Which way a scan goes.
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
    /// Blocks that the last read of a scan asked for; 0 right after a seek.
    window_blocks: usize,
    charge: Option<Charge>,
}

impl Ahead {
    /// The stored bytes of a block, if they were read.
    pub(super) fn get(&self, extent: Extent) -> Option<&[u8]> {
        let start = usize::try_from(extent.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(extent.bytes)?)
    }

    /// The next scan begins small again.
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
        self.window_blocks = taken.max(SCAN_BLOCKS_FIRST);
        self.read(table, start, end, Category::Pinned)?;
        if direction == Direction::Forward && end - start > SCAN_BYTES_MAX / 2 {
            // A long scan: let the device work while this window is consumed.
            table.advise(end, SCAN_BYTES_MAX, Advice::WillNeed);
        }
        Ok(())
    }

    /// Reads `block` and what follows it up to the last block within `window_bytes` that is not
    /// cached. Requires: `block` is not cached.
    pub(super) fn merge(
        &mut self,
        table: &Table,
        opened: &Opened,
        block: usize,
        window_bytes: u64,
    ) -> Result<()> {
        let start = opened.index.extent(block).offset;
        let (end, next) = window_of(table, opened, block, window_bytes);
        self.read(table, start, end, Category::Jobs)?;
        // The device works while this window is consumed.
        if let Some(next) = next {
            let start = opened.index.extent(next).offset;
            let (end, _) = window_of(table, opened, next, window_bytes);
            table.advise(start, end - start, Advice::WillNeed);
        }
        Ok(())
    }

    /// Reads the bytes from `start` to `end` of the file, in place of what was there.
    fn read(&mut self, table: &Table, start: u64, end: u64, category: Category) -> Result<()> {
        // Not cleared before: only what is longer than the last window is filled with zeros.
        self.bytes.resize((end - start) as usize, 0);
        self.offset = start;
        self.keep_account(table.accountant(), category);
        table.read_exact_at(&mut self.bytes, start).inspect_err(|_| {
            self.bytes.clear();
            self.window_blocks = 0;
        })
    }

    /// Keeps the account of the buffer, which lives as long as the cursor.
    fn keep_account(&mut self, accountant: Option<&Arc<Accountant>>, category: Category) {
        let bytes = self.bytes.memory_bytes() as u64;
        match &mut self.charge {
            Some(charge) if charge.bytes() != bytes => charge.resize(bytes),
            Some(_) => {}
            None => self.charge = accountant.map(|a| a.charge(category, bytes)),
        }
    }
}

/// Where the merge's window that begins with `block` ends: behind the last block that is not
/// cached, within `window_bytes`. And the block that the next window begins with: the first one
/// behind it that is not cached, looked for as far as one more window reaches.
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

    /// Goal: the windows of one merge stay within their share of the budget, as far as they are not
    /// at their least.
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
