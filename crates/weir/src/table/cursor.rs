//! A cursor over one table: lazy blocks, both directions.
//!
//! A user's cursor marks the entries that it has passed as read, a merge's says how lately users
//! have read the current one (`base::heat`).
//!
//! Not here: the size of readahead (`ahead`), merging, visibility (`merge`). Nothing is read before
//! the first movement, and a step inside a block touches that block only.
//!
//! Invariants: (1) `valid` implies that the current block was verified and `row < count`; (2) after
//! an error the cursor stays invalid, with the error in `status`, until the next seek
//! (docs/hazards.md, bugs 14 and 39); (3) the cursor owns its table and its block: it outlives the
//! version it was made from (H32); (4) a staged block is used under its own number only, even if
//! `approach` named another position than the seek.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::sync::Arc;

use crate::base::buf::Buf;
use crate::base::cursor::{Approach, Cursor};
use crate::base::error::{Error, Result};
use crate::base::heat::{Heat, Warmth, marks};
use crate::base::ids::TableUid;
use crate::base::key::{Kind, Seq};
use crate::base::prefetch::{LINE_BYTES, prefetch, prefetch_lines};
use crate::base::table_meta::TableMeta;
use crate::cache::Purpose;
use crate::table::ahead::{Ahead, Direction};
use crate::table::block::Layout;
use crate::table::fetch::{Block, FetchFor, ordinal_of};
use crate::table::index::Extent;
use crate::table::reader::{Opened, Table};
use crate::table::{CursorOptions, ReadAhead, touch_block};

/// Room for the suffix of keys of usual size, so that the buffer grows once.
const KEY_ROOM_BYTES: usize = 32;

/// Largest key buffer that a cursor at rest keeps, in bytes.
const KEY_BYTES_KEPT_MAX: usize = 4 << 10;

/// Distance of a scan's prefetch from the current row: some rows of usual size.
const ROWS_AHEAD_BYTES: usize = 4 * LINE_BYTES;

/// A position in a table. See `base::cursor` for the contract.
pub(crate) struct TableCursor {
    table: Arc<Table>,
    /// The table's index and filter, from the first movement on.
    opened: Option<Arc<Opened>>,
    options: CursorOptions,
    /// The current block; empty before the first movement.
    current: Block,
    /// Its number.
    block: usize,
    row: usize,
    /// A user's cursor: the row at which it entered the block.
    entered: usize,
    /// A merge's: the marks of the current block.
    heat: Heat,
    /// A merge's: bytes of the cached blocks that it has entered.
    cached_bytes: u64,
    /// The block that the next seek is expected to enter, while it is approached.
    approached: Option<usize>,
    /// The same, taken from the cache.
    staged: Option<(usize, Buf)>,
    valid: bool,
    error: Option<Error>,
    /// Key of the current entry in the first `key_len` bytes.
    key: Vec<u8>,
    key_len: usize,
    seq: Seq,
    kind: Kind,
    value_start: usize,
    value_end: usize,
    /// Only cursors that read ahead have it: most are short scans of cached blocks.
    ahead: Option<Box<Ahead>>,
}

/// A block that a cursor stands in.
pub(crate) struct CurrentBlock<'a> {
    /// Its table.
    pub(crate) uid: TableUid,
    /// Its number there.
    pub(crate) ordinal: u32,
    /// The row of the current entry.
    pub(crate) row: usize,
    /// Number of rows.
    pub(crate) rows: usize,
    /// Its bytes, verified, as they are cached.
    pub(crate) content: &'a [u8],
    table: &'a Table,
}

impl CurrentBlock<'_> {
    /// Whether it is cached now.
    pub(crate) fn is_cached(&self) -> bool {
        self.table.is_cached(self.ordinal as usize)
    }
}

impl Table {
    /// A cursor over all entries, not positioned yet. Reads nothing before its first movement.
    pub(crate) fn cursor(self: &Arc<Self>, options: CursorOptions) -> TableCursor {
        TableCursor::new(Arc::clone(self), options)
    }
}

impl TableCursor {
    fn new(table: Arc<Table>, options: CursorOptions) -> Self {
        Self {
            table,
            opened: None,
            options,
            current: Block::default(),
            block: 0,
            row: 0,
            entered: 0,
            heat: Heat::COLD,
            cached_bytes: 0,
            approached: None,
            staged: None,
            valid: false,
            error: None,
            key: Vec::new(),
            key_len: 0,
            seq: 0,
            kind: Kind::Put,
            value_start: 0,
            value_end: 0,
            ahead: None,
        }
    }

    /// Lets go of the table's index and filter. Requires: it is at rest.
    pub(crate) fn forget_index(&mut self) {
        self.opened = None;
    }

    /// Whether it holds no block of its table.
    #[cfg(test)]
    pub(crate) fn holds_no_block(&self) -> bool {
        self.current.bytes().is_empty() && self.staged.is_none() && self.ahead.is_none()
    }

    /// The description of its table.
    pub(crate) fn meta(&self) -> &TableMeta {
        self.table.meta()
    }

    /// The block of the current entry.
    pub(crate) fn block(&self) -> Option<CurrentBlock<'_>> {
        self.valid.then(|| CurrentBlock {
            uid: self.table.meta().uid,
            ordinal: ordinal_of(self.block),
            row: self.row,
            rows: self.current.layout.count(),
            content: self.current.bytes(),
            table: &self.table,
        })
    }

    /// Makes the cursor invalid; with an error, `status` gives it.
    fn stop(&mut self, result: Result<()>) {
        self.valid = false;
        self.error = result.err();
    }

    /// The table's index and filter, to be put back.
    fn pinned(&mut self) -> Result<Arc<Opened>> {
        self.opened.take().map_or_else(|| self.table.pin(), Ok)
    }

    /// Marks the entries of the current block that a user's cursor has left behind; most cursors of
    /// a scan over many runs stand where they entered.
    #[inline]
    fn mark_passed(&self) {
        if self.valid && self.row != self.entered {
            self.mark_between();
        }
    }

    #[cold]
    fn mark_between(&self) {
        // While a movement unwinds there is no block.
        let count = self.current.layout.count();
        let Some(last_row) = count.checked_sub(1) else { return };
        let (first, last) = match self.row.checked_sub(1) {
            Some(before) if before >= self.entered => (self.entered, before.min(last_row)),
            _ => (self.row + 1, self.entered),
        };
        self.mark_rows(first, last);
    }

    /// Marks rows of the current block as read by a user.
    #[cold]
    fn mark_rows(&self, first: usize, last: usize) {
        let CursorOptions { purpose, fill_cache, .. } = self.options;
        let count = self.current.layout.count();
        if purpose == Purpose::Foreground && fill_cache && first <= last && last < count {
            self.table.touch(&self.current.buf, marks(first, last, count));
        }
    }

    /// Runs a movement that ends with the cursor on an entry (true) or beyond the last (false).
    fn run(&mut self, movement: impl FnOnce(&mut Self, &Opened) -> Result<bool>) {
        self.mark_passed();
        let moved = self.pinned().and_then(|opened| {
            let moved = movement(self, &opened);
            self.opened = Some(opened);
            moved
        });
        match moved {
            Ok(true) => {
                self.error = None;
                self.valid = true;
                self.entered = self.row;
                self.load_row();
                let rows = self.current.bytes().as_ptr().wrapping_add(self.value_end);
                prefetch_lines(rows, ROWS_AHEAD_BYTES / LINE_BYTES);
            }
            Ok(false) => self.stop(Ok(())),
            Err(error) => self.stop(Err(error)),
        }
    }

    /// Reads the current row's columns and builds its key. Requires: `row < count`.
    #[inline(always)]
    fn load_row(&mut self) {
        debug_assert!(self.row < self.current.layout.count(), "row {} of its block", self.row);
        let block = self.current.bytes();
        let row = self.current.layout.row(block, self.row);
        self.key_len = self.current.layout.write_key(block, self.row, &row, &mut self.key);
        self.seq = row.seq;
        self.kind = row.kind;
        self.value_start = row.value_start;
        self.value_end = row.value_end;
        // The start of each row is read, for the rest of its key.
        prefetch(block.as_ptr().wrapping_add(row.value_end + ROWS_AHEAD_BYTES));
    }

    /// Makes `block` the current block; the caller sets the row.
    fn enter(&mut self, opened: &Opened, block: usize, scan: Option<Direction>) -> Result<()> {
        if self.block == block && self.current.layout.count() > 0 {
            return Ok(());
        }
        // Until the fetch succeeds the cursor has no block: an error must not leave the old one
        // under the new number.
        self.current.layout = Layout::default();
        touch_block();
        let entered = match self.take_staged(block) {
            Some(staged) => staged,
            None => self.fetch(opened, block, scan)?,
        };
        (self.current, self.block) = (entered, block);
        debug_assert!(self.current.layout.count() > 0, "block {block} is empty");
        let common = self.current.layout.common(self.current.bytes());
        if self.key.len() < common.len() + KEY_ROOM_BYTES {
            self.key.resize(common.len() + KEY_ROOM_BYTES, 0);
        }
        if let Some(front) = self.key.get_mut(..common.len()) {
            front.copy_from_slice(common);
        }
        Ok(())
    }

    /// The first step of an approach: the block that a seek enters, if a user's cursor stands in
    /// another one. Requests the place where the cache names it.
    fn find_approached(&mut self, key: &[u8], seq: Seq) -> Option<usize> {
        self.mark_passed();
        self.stop(Ok(()));
        // An error here occurs again in the seek.
        let pinned = self.pinned().ok()?;
        let opened = &*self.opened.insert(pinned);
        if self.table.blocks().is_none() || self.options.purpose != Purpose::Foreground {
            return None;
        }
        let block = opened.index.find(key, seq).unwrap_or(0);
        let here = self.block == block && self.current.layout.count() > 0;
        if here {
            return None;
        }
        self.table.request_place(block);
        Some(block)
    }

    /// The block that [`Cursor::approach`] took from the cache, if it is `block`.
    #[inline]
    fn take_staged(&mut self, block: usize) -> Option<Block> {
        let (_, buf) = self.staged.take().filter(|(staged, _)| *staged == block)?;
        Block::from_cache(buf)
    }

    /// Fetches a block from readahead, from the cache, or from the device.
    fn fetch(&mut self, opened: &Opened, block: usize, scan: Option<Direction>) -> Result<Block> {
        let CursorOptions { purpose, fill_cache, readahead } = self.options;
        self.heat = Heat::COLD;
        let direction = match (readahead, scan) {
            (ReadAhead::Scan, scan) => scan,
            // A merge reads on from the block of its first seek.
            (ReadAhead::Windows { .. }, scan) => scan.or(Some(Direction::Forward)),
        };
        let Some(direction) = direction else {
            if let Some(ahead) = &mut self.ahead {
                ahead.restart();
            }
            return match self.cached(block) {
                Some(cached) => Ok(cached),
                None => self.table.fetch_missed(opened, block, FetchFor { purpose, fill_cache }),
            };
        };
        let extent = opened.index.extent(block);
        let is_scan = readahead == ReadAhead::Scan;
        // A scan's window held no cached block; a merge's may, so the cache goes first.
        if is_scan && self.is_ahead(extent) {
            return self.take_ahead(opened, block, extent);
        }
        if let Some(cached) = self.cached(block) {
            return Ok(cached);
        }
        if is_scan || !self.is_ahead(extent) {
            let ahead = self.ahead.get_or_insert_default();
            match (readahead, direction) {
                (ReadAhead::Windows { window_bytes }, Direction::Forward) => {
                    ahead.merge(&self.table, opened, block, window_bytes)?;
                }
                _ => ahead.scan(&self.table, opened, block, direction)?,
            }
        }
        self.take_ahead(opened, block, extent)
    }

    /// The block from the cache. A merge takes its heat, and notes its bytes.
    #[inline]
    fn cached(&mut self, block: usize) -> Option<Block> {
        let cached = self.table.cached(block, self.options.purpose)?;
        if self.options.purpose == Purpose::Background {
            self.heat = self.table.heat(&cached.buf);
            self.cached_bytes += cached.buf.memory_bytes() as u64;
        }
        Some(cached)
    }

    /// Whether a block was read ahead.
    fn is_ahead(&self, extent: Extent) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.get(extent).is_some())
    }

    /// Decodes a block from the readahead buffer.
    fn take_ahead(&mut self, opened: &Opened, block: usize, extent: Extent) -> Result<Block> {
        let stored = self.ahead.as_ref().and_then(|ahead| ahead.get(extent)).unwrap_or(&[]);
        let stored = self.current.buf.refill(stored);
        self.table.take_read(opened, (block, extent), stored, self.options.fill_cache)
    }

    /// Moves to row 0 of `block`, or beyond the end if there is no such block.
    fn enter_first(&mut self, opened: &Opened, block: usize, scan: bool) -> Result<bool> {
        if block >= opened.index.blocks() {
            return Ok(false);
        }
        self.enter(opened, block, scan.then_some(Direction::Forward))?;
        self.row = 0;
        Ok(true)
    }

    /// Moves to the last row of block `end - 1`, or before the start if `end` is 0.
    fn enter_last(&mut self, opened: &Opened, end: usize, scan: bool) -> Result<bool> {
        let Some(block) = end.checked_sub(1) else { return Ok(false) };
        self.enter(opened, block, scan.then_some(Direction::Backward))?;
        self.row = self.current.layout.count() - 1;
        Ok(true)
    }

    #[cold]
    fn next_block(&mut self) {
        self.run(|cursor, opened| cursor.enter_first(opened, cursor.block + 1, true));
    }

    #[cold]
    fn prev_block(&mut self) {
        self.run(|cursor, opened| cursor.enter_last(opened, cursor.block, true));
    }
}

impl Drop for TableCursor {
    fn drop(&mut self) {
        self.mark_passed();
    }
}

impl Cursor for TableCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    fn key(&self) -> &[u8] {
        debug_assert!(self.valid, "a cursor that is not valid has no key");
        self.key.get(..self.key_len).unwrap_or(&[])
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.seq
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.kind
    }

    #[inline]
    fn value(&self) -> &[u8] {
        debug_assert!(self.valid, "a cursor that is not valid has no value");
        self.current.bytes().get(self.value_start..self.value_end).unwrap_or(&[])
    }

    #[inline]
    fn warmth(&self) -> Warmth {
        debug_assert!(self.valid, "a cursor that is not valid has no entry");
        self.heat.of(self.row, self.current.layout.count())
    }

    fn cached_bytes(&self) -> u64 {
        self.cached_bytes
    }

    fn approach(&mut self, key: &[u8], seq: Seq, step: Approach) {
        match (step, self.approached) {
            (Approach::Find, _) => self.approached = self.find_approached(key, seq),
            (Approach::Follow, Some(block)) => self.table.request(block),
            (Approach::Take, Some(block)) => {
                self.approached = None;
                self.staged = self.table.staged(block).map(|buf| (block, buf));
            }
            (_, None) => {}
        }
    }

    fn rest(&mut self) {
        self.mark_passed();
        self.stop(Ok(()));
        self.current = Block::default();
        (self.approached, self.staged, self.ahead) = (None, None, None);
        if self.key.capacity() > KEY_BYTES_KEPT_MAX {
            self.key = Vec::new();
        }
    }

    fn seek(&mut self, key: &[u8], seq: Seq) {
        self.run(|cursor, opened| {
            let Some(block) = opened.index.find(key, seq) else {
                return cursor.enter_first(opened, 0, false);
            };
            cursor.enter(opened, block, None)?;
            cursor.row = cursor.current.layout.search(cursor.current.bytes(), key, seq).index;
            if cursor.row < cursor.current.layout.count() {
                return Ok(true);
            }
            cursor.enter_first(opened, block + 1, false)
        });
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        self.run(|cursor, opened| {
            let Some(block) = opened.index.find(key, seq) else { return Ok(false) };
            cursor.enter(opened, block, None)?;
            let found = cursor.current.layout.search(cursor.current.bytes(), key, seq);
            cursor.row = found.index;
            // The entry itself is accepted, a later one is not.
            let exact = found.same_key
                && cursor.current.layout.row(cursor.current.bytes(), found.index).seq == seq;
            if exact {
                return Ok(true);
            }
            if let Some(before) = found.index.checked_sub(1) {
                cursor.row = before;
                return Ok(true);
            }
            cursor.enter_last(opened, block, false)
        });
    }

    fn seek_to_first(&mut self) {
        self.run(|cursor, opened| cursor.enter_first(opened, 0, false));
    }

    fn seek_to_last(&mut self) {
        self.run(|cursor, opened| cursor.enter_last(opened, opened.index.blocks(), false));
    }

    #[inline]
    fn next(&mut self) {
        debug_assert!(self.valid, "next on a cursor that is not valid");
        self.row += 1;
        if self.row < self.current.layout.count() {
            self.load_row();
        } else {
            self.next_block();
        }
    }

    #[inline]
    fn prev(&mut self) {
        debug_assert!(self.valid, "prev on a cursor that is not valid");
        match self.row.checked_sub(1) {
            Some(row) => {
                self.row = row;
                self.load_row();
            }
            None => {
                // Row 0 is left behind too, which `mark_passed` cannot see.
                self.mark_rows(0, self.entered);
                self.prev_block();
            }
        }
    }

    fn status(&self) -> Result<()> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}
