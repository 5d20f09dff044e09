//! What a job cost. Not here: sums over jobs (`state::counters`).

use std::sync::Arc;

use crate::base::table_meta::TableMeta;
use crate::merge::RetainCounts;

/// What one job did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobStats {
    /// Bytes of the input tables; 0 for a flush.
    pub(crate) bytes_read: u64,
    /// Bytes of the output tables; before the end, of what was written of them, or a little less.
    pub(crate) bytes_written: u64,
    /// Input tables.
    pub(crate) tables_read: u64,
    /// Output tables.
    pub(crate) tables_written: u64,
    /// Entries read.
    pub(crate) entries_read: u64,
    /// Entries written.
    pub(crate) entries_written: u64,
    /// Entries dropped because a newer one hides them.
    pub(crate) entries_shadowed: u64,
    /// Deletes dropped because they hide nothing.
    pub(crate) deletes_dropped: u64,
    /// Output blocks put into the cache because they replace cached ones.
    pub(crate) blocks_warmed: u64,
    /// Nanoseconds spent in steps.
    pub(crate) nanos: u64,
}

impl JobStats {
    /// Adds what a job knows at its end.
    pub(super) fn finish(&mut self, counts: &RetainCounts, outputs: &[Arc<TableMeta>]) {
        self.bytes_written = outputs.iter().map(|table| table.bytes).sum();
        self.tables_written = outputs.len() as u64;
        self.entries_read = counts.read.entries;
        self.entries_written = counts.read.entries - counts.dropped().entries;
        self.entries_shadowed = counts.shadowed.entries;
        self.deletes_dropped = counts.deletes_dropped.entries;
    }
}
