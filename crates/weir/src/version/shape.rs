//! What deciders see of one keyspace's tree: metadata only, cheap to take, never changing.
//!
//! Not here: bytes, open tables, caches. A shape is pure, so policies are tested on shapes made by
//! hand and can be dry-run on the shape of a store.
//!
//! Invariants: (1) `levels` has `LEVELS` entries, level 0 first; (2) the runs of a level are
//! newest first by data epoch; (3) `busy` holds the inputs of running jobs: a pick that touches one
//! is void.
//!
//! The filling and draining parts of a level, buffer lists, claims and masks (ARCHITECTURE §3) will
//! be fields of `LevelShape` and `RunShape`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::key::Seq;
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
    /// Sequence numbers of the live snapshots, ascending.
    pub(crate) snapshots: Vec<Seq>,
    /// The keyspace's options.
    pub(crate) options: Arc<Options>,
}

/// One level.
#[derive(Clone, Debug, Default)]
pub(crate) struct LevelShape {
    /// The runs, newest first.
    pub(crate) runs: Vec<RunShape>,
    /// The largest key of the last pick in this level, for round-robin picking.
    pub(crate) cursor: Option<Vec<u8>>,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct RunShape {
    /// Data epoch.
    pub(crate) epoch: u64,
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
            snapshots: Vec::new(),
            options,
        }
    }
}

impl LevelShape {
    /// Sums over all runs.
    pub(crate) fn totals(&self) -> Totals {
        self.runs.iter().fold(Totals::default(), |sum, run| sum.plus(*run.tables.totals()))
    }

    /// Bytes of all tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.totals().bytes
    }

    /// Whether there is no table.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.iter().all(|run| run.tables.is_empty())
    }
}
