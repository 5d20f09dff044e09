//! A cursor over a run: concatenates cursors over the ranges of its tables.
//!
//! Lazy: a range is read when the cursor enters it, and only one has a cursor at a time. Not here:
//! the visibility of entries (`merge`), what stands for a table where the run has a buffer list
//! (`read::buffered`).
//!
//! Invariants: (1) the order of entries is that of the tables, because they share no user key; (2)
//! an error in a table makes the cursor invalid and stays in `status` until the next seek: the
//! cursor never steps over a damaged table.

use std::sync::Arc;

use super::run::Run;
use super::tables::TableList;
use crate::base::cursor::{Approach, Cursor};
use crate::base::error::Result;
use crate::base::heat::Warmth;
use crate::base::key::{Kind, Seq, compare};
use crate::table::{CurrentBlock, CursorOptions, Table, TableCursor, touch};

/// What a run is read through.
pub(crate) trait Ranges {
    /// Over the range of one table.
    type Cursor: Cursor;
    /// The tables, whose bounds are those of the ranges.
    fn tables(&self) -> &TableList<Arc<Table>>;
    /// A cursor over the range of one of them.
    fn cursor(&self, table: &Arc<Table>) -> Self::Cursor;
    /// Counts that a cursor which was at rest is used again.
    fn note_use(&self) {}
}

/// The tables themselves.
pub(crate) struct OwnTables {
    tables: TableList<Arc<Table>>,
    options: CursorOptions,
}

impl Ranges for OwnTables {
    type Cursor = TableCursor;

    fn tables(&self) -> &TableList<Arc<Table>> {
        &self.tables
    }

    fn cursor(&self, table: &Arc<Table>) -> TableCursor {
        touch();
        table.cursor(self.options)
    }

    fn note_use(&self) {
        touch();
    }
}

/// A position in a sequence of ranges.
pub(crate) struct RangesCursor<R: Ranges> {
    ranges: R,
    /// Index of the table of `inner`.
    index: usize,
    inner: Option<R::Cursor>,
    /// Whether `inner` is at rest.
    rests: bool,
    /// Bytes of cached blocks that cursors before `inner` have entered.
    cached_bytes: u64,
}

/// A position in a run's own tables.
pub(crate) type RunCursor = RangesCursor<OwnTables>;

impl Run {
    /// A cursor over all tables, one after the other.
    pub(crate) fn cursor(&self, options: CursorOptions) -> RunCursor {
        RunCursor::over(self.tables.clone(), options)
    }
}

impl RunCursor {
    /// A cursor over these tables, one after the other.
    pub(crate) fn over(tables: TableList<Arc<Table>>, options: CursorOptions) -> Self {
        Self::new(OwnTables { tables, options })
    }

    /// Lets go of the tables before the current one: they are not sought again. One that was read
    /// to its end, with none behind it, goes too.
    pub(crate) fn let_go(&mut self) {
        if self.inner.is_none() && self.ranges.tables.len() != self.index {
            return;
        }
        let behind: Vec<usize> = (0..self.index).collect();
        // It only becomes shorter: nothing can overlap that did not.
        let Ok(tables) = self.ranges.tables.edit(&behind, Vec::new()) else { return };
        (self.ranges.tables, self.index) = (tables, 0);
    }

    /// The block of the current entry.
    pub(crate) fn block(&self) -> Option<CurrentBlock<'_>> {
        self.inner.as_ref().and_then(TableCursor::block)
    }
}

impl<R: Ranges> RangesCursor<R> {
    /// A cursor over these ranges, one after the other.
    pub(crate) fn new(ranges: R) -> Self {
        Self { ranges, index: 0, inner: None, rests: false, cached_bytes: 0 }
    }

    /// Makes `inner` a cursor of the table at `index`; `None` if there is no such table.
    fn enter(&mut self, index: usize) -> Option<&mut R::Cursor> {
        if self.inner.is_none() || self.index != index {
            self.cached_bytes = self.cached_bytes();
            let table = self.ranges.tables().get(index);
            self.inner = table.map(|(_, table)| self.ranges.cursor(table));
            self.index = index;
        } else if self.rests {
            self.ranges.note_use();
        }
        self.rests = false;
        self.inner.as_mut()
    }

    /// Whether the cursor is past the end of the current table, without an error.
    fn is_exhausted(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| !inner.valid() && inner.status().is_ok())
    }

    fn skip_forward(&mut self) {
        while self.is_exhausted() {
            if let Some(inner) = self.enter(self.index + 1) {
                inner.seek_to_first();
            }
        }
    }

    fn skip_backward(&mut self) {
        while self.is_exhausted() {
            let Some(index) = self.index.checked_sub(1) else {
                self.inner = None;
                return;
            };
            if let Some(inner) = self.enter(index) {
                inner.seek_to_last();
            }
        }
    }
}

impl<R: Ranges> Cursor for RangesCursor<R> {
    #[inline]
    fn valid(&self) -> bool {
        self.inner.as_ref().is_some_and(Cursor::valid)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.inner.as_ref().map_or(&[], Cursor::key)
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.inner.as_ref().map_or(0, Cursor::seq)
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.inner.as_ref().map_or(Kind::Put, Cursor::kind)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.inner.as_ref().map_or(&[], Cursor::value)
    }

    #[inline]
    fn warmth(&self) -> Warmth {
        self.inner.as_ref().map_or(Warmth::Cold, Cursor::warmth)
    }

    fn cached_bytes(&self) -> u64 {
        self.cached_bytes + self.inner.as_ref().map_or(0, Cursor::cached_bytes)
    }

    fn approach(&mut self, key: &[u8], seq: Seq, step: Approach) {
        let inner = match step {
            Approach::Find => {
                let index = self.ranges.tables().lower_bound(key);
                self.enter(index)
            }
            Approach::Follow | Approach::Take => self.inner.as_mut(),
        };
        if let Some(inner) = inner {
            inner.approach(key, seq, step);
        }
    }

    fn rest(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.rest();
        }
        self.rests = true;
    }

    fn seek(&mut self, key: &[u8], seq: Seq) {
        let index = self.ranges.tables().lower_bound(key);
        if let Some(inner) = self.enter(index) {
            inner.seek(key, seq);
        }
        self.skip_forward();
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        let index = self.ranges.tables().lower_bound(key);
        let starts_before =
            self.ranges.tables().get(index).is_some_and(|(m, _)| compare(&m.smallest, key).is_le());
        if starts_before {
            if let Some(inner) = self.enter(index) {
                inner.seek_for_prev(key, seq);
            }
        } else if let Some(before) = index.checked_sub(1) {
            if let Some(inner) = self.enter(before) {
                inner.seek_to_last();
            }
        } else {
            self.inner = None;
        }
        self.skip_backward();
    }

    fn seek_to_first(&mut self) {
        if let Some(inner) = self.enter(0) {
            inner.seek_to_first();
        }
        self.skip_forward();
    }

    fn seek_to_last(&mut self) {
        let Some(last) = self.ranges.tables().len().checked_sub(1) else { return };
        if let Some(inner) = self.enter(last) {
            inner.seek_to_last();
        }
        self.skip_backward();
    }

    #[inline]
    fn next(&mut self) {
        debug_assert!(self.valid(), "next on a cursor that is not valid");
        if let Some(inner) = &mut self.inner {
            inner.next();
            if !inner.valid() {
                self.skip_forward();
            }
        }
    }

    #[inline]
    fn prev(&mut self) {
        debug_assert!(self.valid(), "prev on a cursor that is not valid");
        if let Some(inner) = &mut self.inner {
            inner.prev();
            if !inner.valid() {
                self.skip_backward();
            }
        }
    }

    fn status(&self) -> Result<()> {
        self.inner.as_ref().map_or(Ok(()), Cursor::status)
    }
}
