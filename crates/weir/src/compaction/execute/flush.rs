//! A flush: the entries of one or more memtables become one run of level 0.
//!
//! Generic over the cursor, so that this layer does not depend on memtables: flushes and recovery
//! pass the cursor of one memtable, repair a merging cursor over tables.
//!
//! Invariants: (1) deletes are kept: tables may hold older entries of their keys; (2) the run has
//! the data epoch drawn at the freeze of its newest memtable.

use std::sync::Arc;

use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::ids::{DataEpoch, KeyspaceId};
use crate::base::key::Seq;
use crate::compaction::execute::handoff::{HandOff, Rule};
use crate::compaction::execute::outputs::{Outputs, Taken};
use crate::compaction::execute::{
    Finished, Job, JobContext, JobStats, Progress, check_conservation, tally_of,
};
use crate::compaction::policy::{Placement, Plan};
use crate::merge::Retain;
use crate::table::TableOptions;
use crate::version::edit::VersionEdit;
use crate::version::run::Run;

/// The parameters of a flush besides its entries.
pub(crate) struct FlushSpec {
    /// The keyspace of the memtables.
    pub(crate) keyspace: KeyspaceId,
    /// The place of the run, chosen by the policy.
    pub(crate) placement: Placement,
    /// Data epoch of the run.
    pub(crate) epoch: DataEpoch,
    /// Number of entries in the memtables.
    pub(crate) entries: u64,
    /// Live snapshots, ascending, read after the memtables were frozen (H47).
    pub(crate) snapshots: Vec<Seq>,
    /// Size at which the run is cut into tables.
    pub(crate) table_bytes: u64,
    /// The table options of the run's level.
    pub(crate) table: TableOptions,
    /// The oldest run of the tree, if blocks over its cached ones are inserted into the cache.
    pub(crate) oldest: Option<Arc<Run>>,
}

/// A flush in steps.
pub(crate) struct FlushJob<C> {
    name: String,
    keyspace: KeyspaceId,
    placement: Placement,
    epoch: DataEpoch,
    entries: u64,
    retain: Retain<C, fn(&[u8]) -> bool>,
    outputs: Outputs,
    started: bool,
    stats: JobStats,
}

fn drops_no_delete(_: &[u8]) -> bool {
    false
}

impl<C: Cursor> FlushJob<C> {
    /// A flush of all entries of the cursor `entries`.
    pub(crate) fn new(context: JobContext, spec: FlushSpec, entries: C) -> Self {
        let name = format!("flush of keyspace {} in {}", spec.keyspace, context.storage.path());
        let plan = Plan::of_bytes(spec.table_bytes);
        let mut outputs = Outputs::new(context.clone(), spec.table, plan);
        if let (Some(oldest), Some(cache)) = (spec.oldest, context.cache) {
            let rule = Rule::Density(oldest);
            let contents_bytes = context.contents_bytes;
            outputs.hand_over(HandOff::new(cache, rule, contents_bytes, context.accountant));
        }
        Self {
            name,
            keyspace: spec.keyspace,
            placement: spec.placement,
            epoch: spec.epoch,
            entries: spec.entries,
            retain: Retain::new(entries, spec.snapshots, drops_no_delete as fn(&[u8]) -> bool),
            outputs,
            started: false,
            stats: JobStats::default(),
        }
    }

    fn finish(&mut self) -> Result<Progress> {
        let counts = self.retain.counts();
        let written = tally_of(self.outputs.finished().iter().map(|table| &**table));
        let mut promised = counts.read;
        promised.entries = self.entries;
        check_conservation(&self.name, Some(promised), &counts, written)?;
        let mut edit = VersionEdit::default();
        let changes = edit.keyspace(self.keyspace);
        for table in self.outputs.finished() {
            changes.add_table(self.placement.level, self.epoch, table.clone());
        }
        self.stats.finish(&counts, self.outputs.so_far());
        self.stats.blocks_handed_over = self.outputs.blocks_handed_over();
        self.stats.blocks_unasked = self.outputs.blocks_unasked();
        Ok(Progress::Done(Box::new(Finished {
            edit,
            outputs: self.outputs.take(),
            stats: self.stats,
            goes_on: false,
        })))
    }
}

impl<C: Cursor + Send> Job for FlushJob<C> {
    fn advance(&mut self) -> Result<Progress> {
        match self.outputs.take_from(&mut self.retain, &mut self.started)? {
            Taken::All => self.finish(),
            Taken::More | Taken::Stretch => Ok(Progress::Continue),
        }
    }

    fn abandon(&mut self) {
        self.outputs.abandon();
    }

    fn stats(&mut self) -> &mut JobStats {
        &mut self.stats
    }
}
