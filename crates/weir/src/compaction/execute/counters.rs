//! What jobs cost, per job and per cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::table_meta::TableMeta;
use crate::compaction::task::{CAUSES, Cause};
use crate::merge::RetainCounts;

/// What a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// Memtables become level-0 tables.
    Flush,
    /// Tables become other tables.
    Merge(Cause),
}

/// Number of kinds.
const KINDS: usize = 1 + CAUSES;

impl JobKind {
    /// All kinds, in the order of their index.
    pub(crate) const ALL: [Self; KINDS] = [
        Self::Flush,
        Self::Merge(Cause::RunCount),
        Self::Merge(Cause::LevelBytes),
        Self::Merge(Cause::Drain),
        Self::Merge(Cause::Deletes),
        Self::Merge(Cause::Manual),
    ];

    fn index(self) -> usize {
        match self {
            Self::Flush => 0,
            Self::Merge(cause) => 1 + cause as usize,
        }
    }

    /// The name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Merge(cause) => cause.name(),
        }
    }
}

/// What one job did, or the sum over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobStats {
    /// Jobs that ended with an edit.
    pub(crate) jobs: u64,
    /// Bytes of the input tables; 0 for a flush.
    pub(crate) bytes_read: u64,
    /// Bytes of the output tables.
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
    /// Nanoseconds spent in steps.
    pub(crate) nanos: u64,
}

impl JobStats {
    /// Adds what a job knows at its end.
    pub(super) fn finish(&mut self, counts: &RetainCounts, outputs: &[Arc<TableMeta>]) {
        self.jobs = 1;
        self.bytes_written = outputs.iter().map(|table| table.bytes).sum();
        self.tables_written = outputs.len() as u64;
        self.entries_read = counts.read.entries;
        self.entries_written = counts.read.entries - counts.dropped().entries;
        self.entries_shadowed = counts.shadowed.entries;
        self.deletes_dropped = counts.deletes_dropped.entries;
    }

    fn values(&self) -> [u64; 10] {
        [
            self.jobs,
            self.bytes_read,
            self.bytes_written,
            self.tables_read,
            self.tables_written,
            self.entries_read,
            self.entries_written,
            self.entries_shadowed,
            self.deletes_dropped,
            self.nanos,
        ]
    }

    fn from_values(values: [u64; 10]) -> Self {
        let [
            jobs,
            bytes_read,
            bytes_written,
            tables_read,
            tables_written,
            entries_read,
            entries_written,
            entries_shadowed,
            deletes_dropped,
            nanos,
        ] = values;
        Self {
            jobs,
            bytes_read,
            bytes_written,
            tables_read,
            tables_written,
            entries_read,
            entries_written,
            entries_shadowed,
            deletes_dropped,
            nanos,
        }
    }
}

/// Sums over all jobs of a store, per kind. Each number is exact; numbers read together may be of
/// different moments.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    kinds: [[AtomicU64; 10]; KINDS],
    moves: AtomicU64,
    moved_bytes: AtomicU64,
}

impl Counters {
    /// Adds a job.
    pub(crate) fn record(&self, kind: JobKind, stats: &JobStats) {
        for (counter, value) in self.kinds[kind.index()].iter().zip(stats.values()) {
            counter.fetch_add(value, Ordering::Relaxed);
        }
    }

    /// Adds a move of `bytes`.
    pub(crate) fn record_move(&self, bytes: u64) {
        self.moves.fetch_add(1, Ordering::Relaxed);
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The sums of one kind.
    pub(crate) fn of(&self, kind: JobKind) -> JobStats {
        let counters = &self.kinds[kind.index()];
        JobStats::from_values(std::array::from_fn(|i| counters[i].load(Ordering::Relaxed)))
    }

    /// Moves and the bytes that they did not have to rewrite.
    pub(crate) fn moves(&self) -> (u64, u64) {
        (self.moves.load(Ordering::Relaxed), self.moved_bytes.load(Ordering::Relaxed))
    }

    /// Bytes written by merges of all causes.
    pub(crate) fn merged_bytes(&self) -> u64 {
        JobKind::ALL[1..].iter().map(|&kind| self.of(kind).bytes_written).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_row() {
        let counters = Counters::default();
        for (i, kind) in JobKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), i);
            let stats = JobStats::from_values(std::array::from_fn(|j| (100 * i + j) as u64));
            counters.record(kind, &stats);
            counters.record(kind, &stats);
            assert_eq!(counters.of(kind).values(), stats.values().map(|v| 2 * v));
        }
        assert_eq!(counters.merged_bytes(), (1..6).map(|i| 2 * (100 * i + 2)).sum::<u64>());
    }
}
