//! The shape of one keyspace's tree, which policies see: metadata only, cheap to take, immutable.
//!
//! Not here: bytes, open tables, caches. A shape is pure data, so policies are tested on shapes
//! made by hand and can be dry-run on the shape of a store.
//!
//! Invariants: (1) the runs of a part are newest first by data epoch, and those of the filling part
//! are newer than those of the draining part; (2) a draining part has at least one run; (3) `busy`
//! holds the inputs of running jobs and all `damaged` tables: a pick that includes one is void;
//! (4) `jobs` holds each running job: a pick that conflicts with one
//! ([`JobFootprint::conflicts_with`]) is void too; (5) only the filling part of level 0 has
//! sentinel runs.
//!
//! Masks are in the descriptions of tables. Buffer lists are not here: what becomes of them is no
//! policy's (`version::buffer_effects`).

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::ids::{DataEpoch, Level, PerLevel, TableUid};
use crate::base::interval::Intervals;
use crate::base::key::{self, Seq};
use crate::options::Options;

pub(crate) use super::tables::{TableList, Totals};

/// One keyspace's tree and the state that picks depend on.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The levels.
    pub(crate) levels: PerLevel<LevelShape>,
    /// Tables that no pick may include: inputs of running jobs, and all that are `damaged`.
    pub(crate) busy: BTreeSet<TableUid>,
    /// Tables in quarantine, because they could not be read: busy too, until they are released.
    pub(crate) damaged: BTreeSet<TableUid>,
    /// The running jobs.
    pub(crate) jobs: Vec<JobFootprint>,
    /// Sequence numbers of the live snapshots, ascending.
    pub(crate) snapshots: Vec<Seq>,
    /// Bytes that sentinel runs may have together. `u64::MAX`: no limit; 0: all of them have to go.
    pub(crate) sentinel_bytes_max: u64,
    /// Bytes of the block cache. `u64::MAX`: it does not matter.
    pub(crate) cache_bytes: u64,
    /// A table takes a multiple of so many bytes of the device; 1: no more than it has.
    pub(crate) table_unit: u64,
    /// The keyspace's options.
    pub(crate) options: Arc<Options>,
}

/// A part of a level. In the order of reading: the filling part is newer than the draining one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PartKind {
    /// Data from above is merged into this part (C_i in LSbM, C_i^ins in dLSM). Policies without
    /// parts use no other.
    #[default]
    Filling,
    /// The filling part of before the last rotation of the level; it is merged into the next level,
    /// in key order, until it is empty (C'_i, C_i^del).
    Draining,
}

/// One level.
#[derive(Clone, Debug, Default)]
pub(crate) struct LevelShape {
    /// Receives the data merged into the level.
    pub(crate) filling: PartShape,
    /// Is merged into the next level; never without a run.
    pub(crate) draining: Option<PartShape>,
    /// The largest key of the last pick in this level, for round-robin picking.
    pub(crate) cursor: Option<Vec<u8>>,
}

/// One part of a level.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartShape {
    /// The runs, newest first.
    pub(crate) runs: Vec<RunShape>,
    /// Bytes of the part when it began to drain; 0 in a filling part.
    pub(crate) rotated_bytes: u64,
}

/// What a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// Data that a flush or a compaction brought: what policies count and weigh.
    #[default]
    Data,
    /// A copy of ranges that are read often, in level 0: the only one, since the entries that it
    /// was made of are hidden. As old as its epoch says: older than the flushes after it, newer
    /// than all that was on disk. It counts for nothing, but nothing newer may pass it (H23).
    Sentinel,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct RunShape {
    /// Data epoch.
    pub(crate) epoch: DataEpoch,
    /// What it is.
    pub(crate) kind: RunKind,
    /// The tables, in key order.
    pub(crate) tables: TableList<()>,
    /// What it claims, of a sentinel.
    pub(crate) claims: Option<Arc<Intervals>>,
}

/// Bytes of a block cache that merges may empty: where it holds the tree twice they do not, however
/// large they are, and there is no bound.
pub(crate) fn endangered_cache_bytes(cache_bytes: u64, tree_bytes: u64) -> u64 {
    if tree_bytes.saturating_mul(2) > cache_bytes { cache_bytes } else { u64::MAX }
}

impl Shape {
    /// Target bytes of a table where single tables are merged on.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.options.table_bytes_beside(self.endangered_cache_bytes())
    }

    /// [`endangered_cache_bytes`] of this tree.
    pub(crate) fn endangered_cache_bytes(&self) -> u64 {
        endangered_cache_bytes(self.cache_bytes, self.levels.values().map(LevelShape::bytes).sum())
    }

    /// Runs in level 0 that flushes made and that wait to be merged into the tree. Every rule that
    /// takes the length of level 0 for load counts with this.
    pub(crate) fn l0_flushed_runs(&self) -> usize {
        let runs = self.levels[Level::ZERO].runs();
        runs.filter(|(_, run)| run.kind == RunKind::Data).count()
    }

    /// Bytes of the sentinel runs.
    pub(crate) fn sentinel_bytes(&self) -> u64 {
        let runs = self.levels[Level::ZERO].runs().map(|(_, run)| run);
        let sentinels = runs.filter(|run| run.kind == RunKind::Sentinel);
        sentinels.map(|run| run.tables.totals().bytes).sum()
    }

    /// A shape without tables.
    #[cfg(test)]
    pub(crate) fn empty(options: Arc<Options>) -> Self {
        Self {
            levels: PerLevel::default(),
            busy: BTreeSet::new(),
            damaged: BTreeSet::new(),
            jobs: Vec::new(),
            snapshots: Vec::new(),
            sentinel_bytes_max: u64::MAX,
            cache_bytes: u64::MAX,
            table_unit: 1,
            options,
        }
    }
}

/// Identifies a run of a tree. Ordered as runs are read: a smaller id is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunId {
    /// The level.
    pub(crate) level: Level,
    /// The part of the level.
    pub(crate) part: PartKind,
    /// Its data epoch, unique in the part.
    pub(crate) epoch: DataEpoch,
}

impl RunId {
    /// Older than every run.
    pub(crate) const OLDEST: Self =
        Self { level: Level::LAST, part: PartKind::Draining, epoch: DataEpoch::new(0) };

    /// The run of the filling part of `level` with this data epoch.
    pub(crate) fn filling(level: Level, epoch: DataEpoch) -> Self {
        Self { level, part: PartKind::Filling, epoch }
    }
}

impl Ord for RunId {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |id: &Self| (id.level, id.part, Reverse(id.epoch));
        order(self).cmp(&order(other))
    }
}

impl PartialOrd for RunId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Footprint of a running job: the run and the key range that its outputs may occupy, and the runs
/// that its data passes on the way. Wider than its inputs: an output may span the gaps between
/// them, so no other job may write there meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobFootprint {
    /// The smallest user key of its inputs.
    pub(crate) smallest: Vec<u8>,
    /// The largest user key of its inputs.
    pub(crate) largest: Vec<u8>,
    /// Its newest run, of the inputs or the outputs.
    pub(crate) newest: RunId,
    /// Its oldest run.
    pub(crate) oldest: RunId,
    /// The run of its outputs.
    pub(crate) output: RunId,
    /// Another run, in which the last of them may stay.
    pub(crate) keeps: Option<RunId>,
}

impl JobFootprint {
    /// Whether two jobs must not run concurrently, in any order of their ends: their key ranges
    /// overlap, and either both write into one run, or one writes into a run between the other's
    /// runs, whose data would then overtake it (rule 4 of `version::check`).
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        self.assert_order();
        other.assert_order();
        let writes_between = |writer: &Self, passer: &Self| {
            writer.outputs().any(|output| output > passer.newest && output < passer.oldest)
        };
        let meet = self.outputs().any(|output| other.outputs().any(|other| other == output))
            || writes_between(self, other)
            || writes_between(other, self);
        meet && key::compare(&self.smallest, &other.largest).is_le()
            && key::compare(&other.smallest, &self.largest).is_le()
    }

    /// The runs that it may write into.
    fn outputs(&self) -> impl Iterator<Item = RunId> {
        [Some(self.output), self.keeps].into_iter().flatten()
    }

    fn assert_order(&self) {
        let Self { smallest, largest, newest, oldest, .. } = self;
        assert!(smallest <= largest, "a footprint of keys from {smallest:?} to {largest:?}");
        for output in self.outputs() {
            assert!(
                *newest <= output && output <= *oldest,
                "a footprint of outputs in {output:?}, outside {newest:?} to {oldest:?}"
            );
        }
    }
}

impl PartShape {
    /// Sums over all runs.
    pub(crate) fn totals(&self) -> Totals {
        self.runs.iter().fold(Totals::default(), |sum, run| sum.plus(*run.tables.totals()))
    }
}

impl LevelShape {
    /// The parts, newest data first.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (PartKind, &PartShape)> {
        let draining = self.draining.iter().map(|part| (PartKind::Draining, part));
        std::iter::once((PartKind::Filling, &self.filling)).chain(draining)
    }

    /// All runs of both parts, newest data first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (PartKind, &RunShape)> {
        self.parts().flat_map(|(kind, part)| part.runs.iter().map(move |run| (kind, run)))
    }

    /// Sums over all runs.
    pub(crate) fn totals(&self) -> Totals {
        self.parts().fold(Totals::default(), |sum, (_, part)| sum.plus(part.totals()))
    }

    /// Bytes of all tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.totals().bytes
    }

    /// Whether there is no table.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs().all(|(_, run)| run.tables.is_empty())
    }
}
