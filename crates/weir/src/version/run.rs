//! Runs of open tables, levels of runs, and the version of one keyspace's tree.
//!
//! Immutable: an edit makes a new version that shares all unchanged parts. Readers do not depend on
//! policies; all they need is the order of the runs.
//!
//! Invariants: (1) order is derived when a version is built: level, then filling before draining
//! part, then data epoch descending; (2) a part's runs have distinct data epochs and are newest
//! first; (3) a run has at least one table, and a draining part at least one run; (4) for every
//! user key, all its entries in an earlier run of that order are newer than all in a later one
//! (H22, H23, H40; `check` keeps it through every edit), but for what masks hide; (5) of what a run
//! claims, no older one holds anything that is not masked.
//!
//! The edit that merges a table of a draining part into the next level removes the whole table, so
//! a run holds exactly the entries that it answers for. Its buffer list may still hold older copies
//! of what has left; they are under holes, and no reader asks a list for a key that no table of the
//! run may hold (H5, H6).

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::buffer_list::BufferList;
use super::claims::Shown;
use super::shape::{LevelShape, PartKind, PartShape, RunId, RunKind, RunShape, Shape};
use super::tables::{TableList, Totals};
use crate::base::ids::{DataEpoch, Level, PerLevel, TableUid};
use crate::base::interval::Intervals;
use crate::base::key::Seq;
use crate::base::table_meta::TableMeta;
use crate::options::{Options, Sentinels};
use crate::table::Table;

/// Tables with disjoint ranges, in key order.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Its age among the runs of its part.
    pub(crate) epoch: DataEpoch,
    /// What it is.
    pub(crate) kind: RunKind,
    /// The tables.
    pub(crate) tables: TableList<Arc<Table>>,
    /// Its buffer list: older forms of its tables, which serve reads where they can.
    pub(crate) list: Option<Arc<BufferList>>,
    /// What the masks of its tables hide of it, and of its list.
    pub(crate) hidden: Option<Arc<Intervals>>,
    /// Of a sentinel: of which keys no older run holds anything.
    pub(crate) claims: Option<Arc<Intervals>>,
}

impl Run {
    /// A run of these tables without a list.
    pub(crate) fn new(epoch: DataEpoch, kind: RunKind, tables: TableList<Arc<Table>>) -> Self {
        let hidden = Some(tables.hidden()).filter(|hidden| !hidden.is_empty()).map(Arc::new);
        Self { epoch, kind, tables, list: None, hidden, claims: None }
    }

    /// The same run with other claims.
    pub(crate) fn with_claims(&self, claims: Option<Arc<Intervals>>) -> Self {
        Self { claims: claims.filter(|claims| !claims.is_empty()), ..self.clone() }
    }

    /// The same run with another list.
    pub(crate) fn with_list(&self, list: Option<Arc<BufferList>>) -> Self {
        Self { list, ..self.clone() }
    }

    /// The only table that may hold `key` for its readers.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Arc<Table>> {
        if self.hidden.as_ref().is_some_and(|hidden| hidden.contain(key)) {
            return None;
        }
        self.tables.find(key).map(|(_, table)| table)
    }

    /// Tables that may hold a key between the bounds, in key order.
    pub(crate) fn overlapping(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&Arc<TableMeta>, &Arc<Table>)> {
        self.tables.range(self.tables.overlapping(lower, upper))
    }

    /// The same run without its buffer list, for a job that lasts.
    pub(crate) fn without_list(&self) -> Arc<Self> {
        Arc::new(self.with_list(None))
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

/// One part of a level.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// The runs, newest first.
    pub(crate) runs: Vec<Arc<Run>>,
    /// Bytes of the part when it began to drain; 0 in a filling part.
    pub(crate) rotated_bytes: u64,
    /// Its entries then: bytes change with compression, entries do not.
    pub(crate) rotated_entries: u64,
}

/// One level.
#[derive(Clone, Debug, Default)]
pub(crate) struct LevelRuns {
    /// Receives the data merged into the level.
    pub(crate) filling: Part,
    /// Is merged into the next level; never without a run.
    pub(crate) draining: Option<Part>,
    /// The largest key of the last pick in this level, for round-robin picking.
    pub(crate) cursor: Option<Arc<[u8]>>,
}

impl Part {
    /// Sums over all runs.
    pub(crate) fn totals(&self) -> Totals {
        self.runs.iter().fold(Totals::default(), |sum, run| sum.plus(*run.tables.totals()))
    }
}

impl LevelRuns {
    /// The parts, newest data first.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (PartKind, &Part)> {
        let draining = self.draining.iter().map(|part| (PartKind::Draining, part));
        std::iter::once((PartKind::Filling, &self.filling)).chain(draining)
    }

    /// All runs of both parts, newest data first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (PartKind, &Arc<Run>)> {
        self.parts().flat_map(|(kind, part)| part.runs.iter().map(move |run| (kind, run)))
    }

    /// One part; `None` if there is none.
    pub(crate) fn part(&self, part: PartKind) -> Option<&Part> {
        match part {
            PartKind::Filling => Some(&self.filling),
            PartKind::Draining => self.draining.as_ref(),
        }
    }

    /// Sums over all runs.
    #[cfg(test)]
    pub(crate) fn totals(&self) -> Totals {
        self.parts().fold(Totals::default(), |sum, (_, part)| sum.plus(part.totals()))
    }
}

/// Sentinels with more than this part of the tree sink. They are built up to half of that
/// (`compaction::sentinel`): where the tree shrinks, or they are many, they need not go at once.
const SENTINEL_SHARE_MAX: u64 = 4;

/// The same, of their [most bytes](crate::options::SentinelOptions::bytes_max).
const SINKING_MULTIPLE: u64 = 2;

/// The tree of one keyspace at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    levels: PerLevel<LevelRuns>,
    /// All runs, newest data first.
    order: Vec<Arc<Run>>,
    /// What claims and masks mean for readers; `None` if there is none.
    shown: Option<Box<Shown>>,
}

impl Default for Version {
    fn default() -> Self {
        Self::new(PerLevel::default())
    }
}

impl Version {
    /// A version of these levels.
    pub(crate) fn new(levels: PerLevel<LevelRuns>) -> Self {
        let runs = levels.values().flat_map(LevelRuns::runs).map(|(_, run)| Arc::clone(run));
        let order: Vec<Arc<Run>> = runs.collect();
        let shown = Shown::of(&order);
        let version = Self { levels, order, shown };
        version.assert_order();
        version
    }

    /// Invariants 2 and 3, and that only a draining part has a size at its rotation.
    fn assert_order(&self) {
        for (index, level) in self.levels.iter() {
            let Part { rotated_bytes, rotated_entries, .. } = level.filling;
            assert_eq!((rotated_bytes, rotated_entries), (0, 0), "filling part of level {index}");
            for (kind, part) in level.parts() {
                assert!(
                    kind == PartKind::Filling || !part.runs.is_empty(),
                    "level {index} has a draining part without a run"
                );
                let epochs = || part.runs.iter().map(|run| run.epoch);
                assert!(
                    epochs().is_sorted_by(|newer, older| newer > older),
                    "runs of level {index} ({kind:?}) are not newest first: {:?}",
                    epochs().collect::<Vec<_>>()
                );
                let empty = part.runs.iter().find(|run| run.tables.is_empty());
                assert!(empty.is_none(), "level {index} has an empty run: {empty:?}");
            }
        }
    }

    /// The levels.
    pub(crate) fn levels(&self) -> &PerLevel<LevelRuns> {
        &self.levels
    }

    /// The run with this name.
    pub(crate) fn run(&self, id: RunId) -> Option<&Arc<Run>> {
        let part = self.levels[id.level].part(id.part)?;
        part.runs.iter().find(|run| run.epoch == id.epoch)
    }

    /// All runs, newest data first: the order of reading.
    #[inline]
    pub(crate) fn runs_newest_first(&self) -> std::slice::Iter<'_, Arc<Run>> {
        self.order.iter()
    }

    /// The runs that a lookup of `key` asks, newest data first: a claim over it ends the lookup.
    #[inline]
    pub(crate) fn runs_for(&self, key: &[u8]) -> std::slice::Iter<'_, Arc<Run>> {
        let asked = self.shown.as_ref().and_then(|shown| shown.runs_asked(key));
        asked.and_then(|asked| self.order.get(..asked)).unwrap_or(&self.order).iter()
    }

    /// How many older runs with tables over `key` a lookup of it is spared, if a claim ends it.
    pub(crate) fn runs_spared(&self, key: &[u8]) -> Option<usize> {
        let asked = self.shown.as_ref()?.runs_asked(key)?;
        let older = self.order.get(asked..).unwrap_or(&[]).iter();
        let is_over = |run: &&Arc<Run>| {
            !run.tables.overlapping(Bound::Included(key), Bound::Included(key)).is_empty()
        };
        Some(older.filter(is_over).count())
    }

    /// The runs with what a scan passes over in each, newest data first.
    pub(crate) fn runs_for_scans(
        &self,
    ) -> impl Iterator<Item = (&Arc<Run>, Option<&Arc<Intervals>>)> {
        self.order.iter().enumerate().map(|(number, run)| {
            (run, self.shown.as_ref().and_then(|shown| shown.passed_over(number)))
        })
    }

    /// The runs with their names, newest data first.
    pub(crate) fn runs_by_id(&self) -> impl Iterator<Item = (RunId, &Arc<Run>)> {
        self.levels.iter().flat_map(|(level, runs)| {
            runs.runs().map(move |(part, run)| (RunId { level, part, epoch: run.epoch }, run))
        })
    }

    /// The sentinel runs, newest first.
    pub(crate) fn sentinels(&self) -> impl Iterator<Item = (RunId, &Arc<Run>)> {
        let runs = self.levels[Level::ZERO].filling.runs.iter();
        runs.filter(|run| run.kind == RunKind::Sentinel)
            .map(|run| (RunId::filling(Level::ZERO, run.epoch), run))
    }

    /// Sums over all levels.
    #[cfg(test)]
    pub(crate) fn totals(&self) -> Totals {
        self.levels.values().fold(Totals::default(), |sum, level| sum.plus(level.totals()))
    }

    /// The tables of the tree: newest run first, in key order within a run. Not those that are in
    /// buffer lists alone.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.runs_newest_first().flat_map(|run| run.tables.iter().map(|(_, table)| table))
    }

    /// The tables of the buffer lists. One that is in the tree too (a moved one) is among them.
    pub(crate) fn listed_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        let lists = self.runs_newest_first().filter_map(|run| run.list.as_deref());
        lists.flat_map(|list| list.tables().map(|(_, table)| table))
    }

    /// All tables, once each, whatever they are for.
    pub(crate) fn all_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        let mut seen = BTreeSet::new();
        let listed = self.listed_tables();
        let listed = listed.filter(move |table| seen.insert(table.meta().uid));
        // A table is in one run at most.
        let in_tree: BTreeSet<TableUid> = match self.has_lists() {
            true => self.tables().map(|table| table.meta().uid).collect(),
            false => BTreeSet::new(),
        };
        self.tables().chain(listed.filter(move |table| !in_tree.contains(&table.meta().uid)))
    }

    /// The buffer lists with their runs, newest data first.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (RunId, &Arc<Run>, &BufferList)> {
        self.runs_by_id().filter_map(|(id, run)| Some((id, run, run.list.as_deref()?)))
    }

    /// The same tree without buffer lists. O(runs).
    pub(super) fn without_lists(&self) -> Self {
        let without = |part: &Part| Part {
            runs: part.runs.iter().map(|run| run.without_list()).collect(),
            ..part.clone()
        };
        Self::new(self.levels.each(|level| LevelRuns {
            filling: without(&level.filling),
            draining: level.draining.as_ref().map(without),
            cursor: level.cursor.clone(),
        }))
    }

    /// Whether a run has a buffer list with tables.
    pub(crate) fn has_lists(&self) -> bool {
        self.listed_tables().next().is_some()
    }

    /// Number of tables in lists, one that is in the tree too among them, and of holes. O(buffered
    /// runs).
    pub(crate) fn list_counts(&self) -> (usize, usize) {
        let lists = self.order.iter().filter_map(|run| run.list.as_deref());
        let runs = lists.flat_map(BufferList::runs);
        runs.fold((0, 0), |(tables, holes), run| {
            (tables + run.tables.len(), holes + run.holes.iter().len())
        })
    }

    /// Bytes of the descriptions of the tree's tables, and of those of lists, in a base of the
    /// version log. An estimate from above. O(runs and buffered runs).
    pub(crate) fn description_bytes(&self) -> u64 {
        let lists = self.order.iter().filter_map(|run| run.list.as_deref());
        let listed = lists.flat_map(BufferList::runs).map(|run| run.tables.totals());
        let in_tree = self.order.iter().map(|run| run.tables.totals());
        in_tree.chain(listed).map(|totals| totals.description_bytes).sum()
    }

    /// Number of tables of the tree. O(runs).
    pub(crate) fn table_count(&self) -> usize {
        self.order.iter().map(|run| run.tables.len()).sum()
    }

    /// The shape that policies see of this version. Costs one small allocation per chunk of tables.
    pub(crate) fn shape(
        &self,
        options: Arc<Options>,
        busy: BTreeSet<TableUid>,
        snapshots: Vec<Seq>,
    ) -> Shape {
        let run_shape = |run: &Arc<Run>| RunShape {
            epoch: run.epoch,
            kind: run.kind,
            tables: run.tables.metas(),
            claims: run.claims.clone(),
        };
        let part_shape = |part: &Part| PartShape {
            runs: part.runs.iter().map(run_shape).collect(),
            rotated_bytes: part.rotated_bytes,
        };
        let level_shape = |level: &LevelRuns| LevelShape {
            filling: part_shape(&level.filling),
            draining: level.draining.as_ref().map(part_shape),
            cursor: level.cursor.as_ref().map(|key| key.to_vec()),
        };
        let levels = self.levels.each(level_shape);
        let all = self.order.iter().map(|run| run.tables.totals().bytes).sum::<u64>();
        let sentinel_bytes_max = match options.sentinels {
            Sentinels::Off => 0,
            Sentinels::On(sentinels) => {
                let built = sentinels.bytes_max_in(&options);
                (all / SENTINEL_SHARE_MAX).min(built.saturating_mul(SINKING_MULTIPLE))
            }
        };
        Shape {
            levels,
            busy,
            damaged: BTreeSet::new(),
            jobs: Vec::new(),
            snapshots,
            sentinel_bytes_max,
            cache_bytes: u64::MAX,
            table_unit: 1,
            options,
        }
    }
}
