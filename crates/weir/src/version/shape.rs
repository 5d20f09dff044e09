//! What deciders see of one keyspace's tree: metadata only, cheap to take, never changing.
//!
//! Not here: bytes, open tables, caches. A shape is pure, so policies are tested on shapes made by
//! hand and can be dry-run on the shape of a store.
//!
//! Invariants: (1) `levels` has `LEVELS` entries, level 0 first; (2) the runs of a part are newest
//! first by data epoch, and those of the filling part are newer than those of the draining part;
//! (3) a draining part has at least one run; (4) `busy` holds the inputs of running jobs and
//! everything that is `damaged`: a pick that touches one is void; (5) `jobs` holds a job for each
//! of the former: a pick that conflicts with one ([`JobFootprint::conflicts_with`]) is void
//! too.
//!
//! Buffer lists, claims and masks (ARCHITECTURE §3) will be fields of `RunShape`.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::ids::DataEpoch;
use crate::base::key::{self, Seq};
#[cfg(test)]
use crate::base::limits::LEVELS;
use crate::options::Options;

pub(crate) use super::tables::{TableList, Totals};

/// One keyspace's tree and what matters for deciding about it.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The levels, level 0 first.
    pub(crate) levels: Vec<LevelShape>,
    /// Tables that are inputs of running jobs.
    pub(crate) busy: BTreeSet<u64>,
    /// Tables that cannot be read: busy too, but for as long as the store is open.
    pub(crate) damaged: BTreeSet<u64>,
    /// The running jobs.
    pub(crate) jobs: Vec<JobFootprint>,
    /// Sequence numbers of the live snapshots, ascending.
    pub(crate) snapshots: Vec<Seq>,
    /// The keyspace's options.
    pub(crate) options: Arc<Options>,
}

/// Which part of a level. In the order of reading: what fills a level is newer than what leaves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PartKind {
    /// What comes from above is merged into this part (C_i in LSbM, C_i^ins in dLSM). Policies
    /// without parts use no other.
    #[default]
    Filling,
    /// What was the filling part until the level was rotated; it is merged into the next level, in
    /// key order, until nothing is left of it (C'_i, C_i^del).
    Draining,
}

/// One level.
#[derive(Clone, Debug, Default)]
pub(crate) struct LevelShape {
    /// What the level receives.
    pub(crate) filling: PartShape,
    /// What it gives away; never without a run.
    pub(crate) draining: Option<PartShape>,
    /// The largest key of the last pick in this level, for round-robin picking.
    pub(crate) cursor: Option<Vec<u8>>,
}

/// One part of a level.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartShape {
    /// The runs, newest first.
    pub(crate) runs: Vec<RunShape>,
    /// Bytes that the part had when it began to drain; 0 in a filling part.
    pub(crate) rotated_bytes: u64,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct RunShape {
    /// Data epoch.
    pub(crate) epoch: DataEpoch,
    /// The tables, in key order.
    pub(crate) tables: TableList<()>,
}

impl Shape {
    /// A shape without tables.
    #[cfg(test)]
    pub(crate) fn empty(options: Arc<Options>) -> Self {
        Self {
            levels: vec![LevelShape::default(); LEVELS],
            busy: BTreeSet::new(),
            damaged: BTreeSet::new(),
            jobs: Vec::new(),
            snapshots: Vec::new(),
            options,
        }
    }
}

/// Which run of a tree. Ordered as runs are read: a smaller id is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunId {
    /// The level.
    pub(crate) level: usize,
    /// The part of the level.
    pub(crate) part: PartKind,
    /// Its data epoch, which no other run of the part has.
    pub(crate) epoch: DataEpoch,
}

impl RunId {
    /// The run of the filling part of `level` with this data epoch.
    pub(crate) fn filling(level: usize, epoch: DataEpoch) -> Self {
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
/// them, and nothing may be put there meanwhile.
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
}

impl JobFootprint {
    /// Whether two jobs may not run side by side, whichever ends first: they would write over the
    /// same keys of one run, or one would write there between the runs of the other, which then
    /// passes it (rule 4 of `version::check`).
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        let writes_between = |writer: &Self, passer: &Self| {
            writer.output > passer.newest && writer.output < passer.oldest
        };
        let meet = self.output == other.output
            || writes_between(self, other)
            || writes_between(other, self);
        meet && key::compare(&self.smallest, &other.largest).is_le()
            && key::compare(&other.smallest, &self.largest).is_le()
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
