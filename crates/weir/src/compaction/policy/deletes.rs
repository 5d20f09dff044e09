//! Deletes that hide nothing: when a table is rewritten to be rid of them.
//!
//! Not here: which deletes a merge drops (`merge::Retain` and `execute`), whether a table that is
//! full of them may be moved (`moves`).

use crate::base::ids::{Level, TableUid};
use crate::base::table_meta::TableMeta;
use crate::compaction::policy::geometry::{KeyBounds, Placed, placed};
use crate::compaction::policy::sentinels;
use crate::compaction::task::{MergeTask, Reason, RunSlice};
use crate::version::shape::{PartKind, Shape};

/// A table of the oldest run is rewritten for its deletes if at least one entry in this many is a
/// delete, and no snapshot needs them.
const REWRITE_DELETES_DIVISOR: u64 = 4;

/// Whether every delete of a table of the oldest run may be dropped: all entries are at or below
/// the oldest snapshot.
pub(super) fn deletes_hide_nothing(shape: &Shape, table: &TableMeta) -> bool {
    let visible_to_all = shape.snapshots.first().is_none_or(|&oldest| table.seq_max <= oldest);
    table.visible().deletes > 0 && visible_to_all
}

/// Whether masks hide so much of a table that its space is wanted back (H27).
fn is_largely_hidden(table: &TableMeta) -> bool {
    table.hidden().entries > table.entries / REWRITE_DELETES_DIVISOR
}

/// Rule: when there is nothing else to do, a table of the oldest run that is largely deletes (left
/// there because a snapshot needed them), or of which masks hide much, is rewritten without them,
/// in its place.
pub(super) fn rewrite_deletes(shape: &Shape, oldest: Placed<'_>) -> Option<MergeTask> {
    let table = oldest.tables().find(|table| {
        let is_full_of_deletes = deletes_hide_nothing(shape, table)
            && table.visible().deletes >= table.visible().entries / REWRITE_DELETES_DIVISOR;
        (is_full_of_deletes || is_largely_hidden(table))
            && sentinels::along(shape, &oldest.over(KeyBounds::of(table))).is_empty()
    })?;
    Some(rewrite(oldest, vec![table.uid], Reason::Deletes))
}

/// The same for levels of one run: the oldest run is that of the last level, if there is one.
pub(super) fn rewrite_deletes_of_last_level(shape: &Shape) -> Option<MergeTask> {
    let oldest = placed(shape, Level::LAST).last()?;
    (oldest.part == PartKind::Filling).then_some(())?;
    rewrite_deletes(shape, oldest)
}

/// A merge of tables of one run into themselves.
pub(super) fn rewrite(place: Placed<'_>, uids: Vec<TableUid>, reason: Reason) -> MergeTask {
    let run = place.id();
    MergeTask { inputs: vec![RunSlice { run, uids }], output: run, cursor: None, reason }
}
