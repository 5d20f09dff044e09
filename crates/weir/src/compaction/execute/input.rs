//! The tables that a job reads.

use std::sync::Arc;

use crate::base::cursor::Cursor;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::key::{self, Kind, Seq};
use crate::cache::Purpose;
use crate::compaction::task::Slice;
use crate::table::{CursorOptions, Table, TableCursor};
use crate::version::run::Version;

/// Compactions look into the cache but do not fill it, and read ahead.
const CURSOR_OPTIONS: CursorOptions =
    CursorOptions { purpose: Purpose::Background, fill_cache: false, readahead: true };

/// The open tables of a slice, in key order.
///
/// # Errors
/// `Conflict` if a table is not where the slice says.
pub(super) fn tables_of(version: &Version, slice: &Slice) -> Result<Vec<Arc<Table>>> {
    let run = version
        .levels
        .get(slice.level)
        .and_then(|level| level.runs.iter().find(|run| run.epoch == slice.epoch));
    let tables: Vec<Arc<Table>> = run
        .into_iter()
        .flat_map(|run| run.tables.iter().map(|(_, table)| table))
        .filter(|table| slice.uids.contains(&table.meta().uid))
        .cloned()
        .collect();
    if tables.len() == slice.uids.len() {
        return Ok(tables);
    }
    Err(Error::new(
        ErrorKind::Conflict,
        format!(
            "a compaction was picked for tables {:?} of level {}, run {}, which has only {} of them; \
             nothing was changed",
            slice.uids,
            slice.level,
            slice.epoch,
            tables.len()
        ),
    ))
}

/// Tables with disjoint ranges in key order, one after the other. Only the current one is open.
pub(super) struct InputCursor {
    tables: Vec<Arc<Table>>,
    at: usize,
    cursor: Option<TableCursor>,
}

impl InputCursor {
    pub(super) fn new(tables: Vec<Arc<Table>>) -> Self {
        Self { tables, at: 0, cursor: None }
    }

    /// Opens table `at` and positions in it; at the end of it, goes on in `direction`.
    fn enter(&mut self, at: Option<usize>, position: impl FnOnce(&mut TableCursor)) {
        self.cursor = at.and_then(|at| self.tables.get(at)).map(|t| t.cursor(CURSOR_OPTIONS));
        self.at = at.unwrap_or(0);
        if let Some(cursor) = &mut self.cursor {
            position(cursor);
        }
    }

    /// Whether the current table was read to its end without an error.
    fn is_at_end(&self) -> bool {
        self.cursor.as_ref().is_some_and(|cursor| !cursor.valid() && cursor.status().is_ok())
    }

    fn skip_ended_forward(&mut self) {
        while self.is_at_end() {
            let next = self.at + 1;
            self.enter((next < self.tables.len()).then_some(next), Cursor::seek_to_first);
        }
    }

    fn skip_ended_backward(&mut self) {
        while self.is_at_end() {
            self.enter(self.at.checked_sub(1), Cursor::seek_to_last);
        }
    }

    fn current(&self) -> &TableCursor {
        self.cursor.as_ref().expect("a valid cursor stands in a table")
    }
}

impl Cursor for InputCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(Cursor::valid)
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.current().key()
    }
    #[inline]
    fn seq(&self) -> Seq {
        self.current().seq()
    }
    #[inline]
    fn kind(&self) -> Kind {
        self.current().kind()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.current().value()
    }
    fn seek(&mut self, key: &[u8], seq: Seq) {
        let at = self.tables.partition_point(|t| key::compare(&t.meta().largest, key).is_lt());
        self.enter((at < self.tables.len()).then_some(at), |cursor| cursor.seek(key, seq));
        self.skip_ended_forward();
    }
    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        let after = self.tables.partition_point(|t| key::compare(&t.meta().smallest, key).is_le());
        self.enter(after.checked_sub(1), |cursor| cursor.seek_for_prev(key, seq));
        self.skip_ended_backward();
    }
    fn seek_to_first(&mut self) {
        self.enter((!self.tables.is_empty()).then_some(0), Cursor::seek_to_first);
        self.skip_ended_forward();
    }
    fn seek_to_last(&mut self) {
        self.enter(self.tables.len().checked_sub(1), Cursor::seek_to_last);
        self.skip_ended_backward();
    }
    #[inline]
    fn next(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.next();
            if !cursor.valid() {
                self.skip_ended_forward();
            }
        }
    }
    fn prev(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.prev();
            if !cursor.valid() {
                self.skip_ended_backward();
            }
        }
    }
    fn status(&self) -> Result<()> {
        self.cursor.as_ref().map_or(Ok(()), Cursor::status)
    }
}

/// All of a run, as a reader would see it.
#[cfg(test)]
pub(super) fn cursor_over(run: Arc<crate::version::run::Run>) -> InputCursor {
    InputCursor::new(run.tables.iter().map(|(_, table)| Arc::clone(table)).collect())
}
