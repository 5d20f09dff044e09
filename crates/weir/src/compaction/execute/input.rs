//! The input tables of a job and the cursors over them.

use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::cache::Purpose;
use crate::compaction::task::{PartName, RunSlice};
use crate::table::{CursorOptions, ReadAhead, Table};
use crate::version::run::Version;
use crate::version::run_cursor::RunCursor;
use crate::version::tables::TableList;

/// The open tables of a slice, in key order.
///
/// # Errors
/// `Conflict` if a table is not in the slice's run.
pub(super) fn tables_of(version: &Version, slice: &RunSlice) -> Result<Vec<Arc<Table>>> {
    debug_assert!(!slice.uids.is_empty(), "a slice of {:?} without tables", slice.run);
    let run = version.levels()[slice.run.level]
        .part(slice.run.part)
        .and_then(|part| part.runs.iter().find(|run| run.epoch == slice.run.epoch));
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
            "a compaction was picked for tables {:?} of {}, run {}, which has only {} of them; \
             nothing was changed",
            slice.uids,
            PartName(slice.run.level, slice.run.part),
            slice.run.epoch,
            tables.len()
        ),
    ))
}

/// A cursor over `tables` of one run, in key order. Compactions use cached blocks but insert none
/// into the cache.
///
/// # Errors
/// `Corruption` if they overlap, which `version::check` excludes.
pub(super) fn cursor_over(
    slice: &RunSlice,
    tables: &[Arc<Table>],
    readahead: ReadAhead,
) -> Result<RunCursor> {
    let tables = tables.iter().map(|table| (Arc::new(table.meta().clone()), Arc::clone(table)));
    let tables = TableList::new(tables.collect()).map_err(|overlap| {
        Error::corruption(
            format!("{}, run {}", PartName(slice.run.level, slice.run.part), slice.run.epoch),
            0,
            format_args!("tables {} and {} overlap", overlap.0.uid, overlap.1.uid),
        )
    })?;
    let options = CursorOptions { purpose: Purpose::Background, fill_cache: false, readahead };
    Ok(RunCursor::over(tables, options))
}
