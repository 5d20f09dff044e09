//! Runs of open tables, levels of runs, and the version of one keyspace's tree.
//!
//! Immutable: an edit makes a new version that shares what did not change. Readers know nothing of
//! policies; all they need is the order of the runs.
//!
//! Invariants: (1) order is derived, never stored: level, then data epoch descending; (2) a level's
//! runs have distinct data epochs and are newest first; (3) a run has at least one table; (4) for
//! every user key, all its entries in an earlier run of that order are newer than all in a later
//! one (H22, H23, H40; `check` keeps it through every edit).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::run_cursor::RunCursor;
use super::shape::{LevelShape, RunShape, Shape};
use super::tables::TableList;
#[cfg(test)]
use super::tables::Totals;
use crate::base::key::Seq;
use crate::base::limits::LEVELS;
use crate::options::Options;
use crate::table::{CursorOptions, Table};

/// Tables with disjoint ranges, in key order.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// When the content was fixed: at memtable freeze for a flush; a merge keeps its newest
    /// input's.
    pub(crate) epoch: u64,
    /// The tables.
    pub(crate) tables: TableList<Arc<Table>>,
}

impl Run {
    /// The one table that may hold `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Arc<Table>> {
        self.tables.find(key).map(|(_, table)| table)
    }

    /// Tables that may hold a key between the bounds, in key order.
    pub(crate) fn overlapping(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = &Arc<Table>> {
        self.tables.range(self.tables.overlapping(lower, upper)).map(|(_, table)| table)
    }

    /// A cursor over all tables, one after the other.
    pub(crate) fn cursor(self: &Arc<Self>, options: CursorOptions) -> RunCursor {
        RunCursor::new(Arc::clone(self), options)
    }

    /// Smallest sequence number.
    pub(crate) fn seq_min(&self) -> Seq {
        self.tables.totals().seq_min
    }

    /// Largest sequence number.
    pub(crate) fn seq_max(&self) -> Seq {
        self.tables.totals().seq_max
    }
}

/// One level.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    /// The runs, newest first.
    pub(crate) runs: Vec<Arc<Run>>,
    /// The largest key of the last pick in this level, for round-robin picking.
    pub(crate) cursor: Option<Arc<[u8]>>,
}

impl Level {
    /// Sums over all runs.
    #[cfg(test)]
    pub(crate) fn totals(&self) -> Totals {
        self.runs.iter().fold(Totals::default(), |sum, run| sum.plus(*run.tables.totals()))
    }
}

/// The tree of one keyspace at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// [`LEVELS`] levels, level 0 first.
    pub(crate) levels: Vec<Level>,
}

impl Default for Version {
    fn default() -> Self {
        Self { levels: vec![Level::default(); LEVELS] }
    }
}

impl Version {
    /// All runs, newest data first: the order of reading.
    #[inline]
    pub(crate) fn runs_newest_first(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.levels.iter().flat_map(|level| level.runs.iter())
    }

    /// Sums over all levels.
    #[cfg(test)]
    pub(crate) fn totals(&self) -> Totals {
        self.levels.iter().fold(Totals::default(), |sum, level| sum.plus(level.totals()))
    }

    /// All tables: newest run first, in key order within a run.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.runs_newest_first().flat_map(|run| run.tables.iter().map(|(_, table)| table))
    }

    /// What deciders see of this version. Costs one small allocation per chunk of tables.
    pub(crate) fn shape(
        &self,
        options: Arc<Options>,
        busy: BTreeSet<u64>,
        snapshots: Vec<Seq>,
    ) -> Shape {
        let level_shape = |level: &Level| LevelShape {
            runs: level
                .runs
                .iter()
                .map(|run| RunShape { epoch: run.epoch, tables: run.tables.metas() })
                .collect(),
            cursor: level.cursor.as_ref().map(|key| key.to_vec()),
        };
        Shape { levels: self.levels.iter().map(level_shape).collect(), busy, snapshots, options }
    }
}
