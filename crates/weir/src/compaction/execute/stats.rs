//! Counters of one job. Not here: sums over jobs (`state::counters`).

use crate::merge::RetainCounts;

/// The counters of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobStats {
    /// Bytes of the input tables; 0 for a flush.
    pub(crate) bytes_read: u64,
    /// Bytes of the output tables; while the job runs, of the part written, or a little less.
    pub(crate) bytes_written: u64,
    /// Input tables.
    pub(crate) tables_read: u64,
    /// Output tables.
    pub(crate) tables_written: u64,
    /// Entries read.
    pub(crate) entries_read: u64,
    /// Entries written.
    pub(crate) entries_written: u64,
    /// Entries dropped because a newer entry of their key hides them.
    pub(crate) entries_shadowed: u64,
    /// Deletes (tombstones) dropped because no older entry of their key is left.
    pub(crate) deletes_dropped: u64,
    /// Bytes of keys and values that masks hid in input tables which the job replaces: space that
    /// comes back, of entries that were moved before: into a sentinel, or by a merge in stretches
    /// that ended early.
    pub(crate) masked_bytes_dropped: u64,
    /// Output blocks inserted into the cache because they replace cached ones.
    pub(crate) blocks_handed_over: u64,
    /// Output blocks inserted into the cache because it had room.
    pub(crate) blocks_unasked: u64,
    /// Nanoseconds spent in steps.
    pub(crate) nanos: u64,
}

impl JobStats {
    /// What has come since `before`, which was noted of the same job.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            bytes_read: self.bytes_read.saturating_sub(before.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(before.bytes_written),
            tables_read: self.tables_read.saturating_sub(before.tables_read),
            tables_written: self.tables_written.saturating_sub(before.tables_written),
            entries_read: self.entries_read.saturating_sub(before.entries_read),
            entries_written: self.entries_written.saturating_sub(before.entries_written),
            entries_shadowed: self.entries_shadowed.saturating_sub(before.entries_shadowed),
            deletes_dropped: self.deletes_dropped.saturating_sub(before.deletes_dropped),
            masked_bytes_dropped: self
                .masked_bytes_dropped
                .saturating_sub(before.masked_bytes_dropped),
            blocks_handed_over: self.blocks_handed_over.saturating_sub(before.blocks_handed_over),
            blocks_unasked: self.blocks_unasked.saturating_sub(before.blocks_unasked),
            nanos: self.nanos.saturating_sub(before.nanos),
        }
    }

    /// Sets the counters that are final when the job ends, with so many bytes of so many outputs.
    pub(super) fn finish(&mut self, counts: &RetainCounts, (bytes, tables): (u64, u64)) {
        (self.bytes_written, self.tables_written) = (bytes, tables);
        self.entries_read = counts.read.entries;
        self.entries_written = counts.read.entries - counts.dropped().entries;
        self.entries_shadowed = counts.shadowed.entries;
        self.deletes_dropped = counts.deletes_dropped.entries;
    }
}
