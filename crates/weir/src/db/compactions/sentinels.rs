//! Building sentinels: when a job of one may begin, and below which memtables its data lies.
//!
//! Not here: which interval is worth one (`compaction::sentinel`), which tables it takes
//! (`policy::sentinel_task`), the merge (`compaction::execute`).

use std::sync::Arc;

use super::{Ended, Reservation};
use crate::base::error::Result;
use crate::base::ids::DataEpoch;
use crate::base::interval::Interval;
use crate::compaction::policy::sentinel_task;
use crate::db::engine::Engine;
use crate::db::job_table::JobTable;
use crate::db::space::Fit;
use crate::db::space_checks::DeviceSpace;
use crate::state::tree::Tree;
use crate::version::root::Root;

impl Engine {
    /// A root, and an epoch below those of all memtables that are not flushed in it, and of those
    /// that will be frozen: what is older in the root is data that a sentinel of that epoch may
    /// hide (H22).
    fn below_memtables(&self, tree: &Tree) -> (DataEpoch, Arc<Root>) {
        // In this order: what is frozen after the first look gets a higher epoch, what is frozen
        // before the second is among its memtables, and what is flushed before the third is known
        // to be newer by its epoch.
        let next = self.set.epoch_below_next();
        let current = tree.pin();
        let root = self.set.current();
        let oldest = current.immutables.iter().map(|flushable| flushable.epoch()).min();
        (oldest.and_then(DataEpoch::previous).unwrap_or(next), root)
    }

    /// Reserves a sentinel of `interval`; `None` if nothing is to be gained, or another job is in
    /// the way, or it does not fit the device.
    fn reserve_sentinel(
        &self,
        state: &mut JobTable,
        tree: &Arc<Tree>,
        interval: Interval,
        runs_min: usize,
    ) -> Option<Reservation> {
        let (epoch, root) = self.below_memtables(tree);
        let shape = self.shape_of(&root, tree.id, state.reserved(tree.id))?;
        let keyspace = root.keyspaces.get(tree.id)?;
        if state.quarantine.blocked_reason(keyspace).is_some() {
            return None;
        }
        let task = sentinel_task::build(&shape, interval, epoch, runs_min)?;
        let Fit::Fits(need) = self.fit(state, &DeviceSpace::default(), &shape, &task) else {
            return None;
        };
        if !state.begin(tree.id) {
            return None;
        }
        Some(Reservation::new(state, Arc::clone(tree), (shape, task, need), keyspace, false))
    }

    /// Builds a sentinel of `interval` whatever it is worth, if nothing is in the way; whether it
    /// did.
    ///
    /// # Errors
    /// Those of a compaction.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn build_sentinel(&self, tree: &Arc<Tree>, interval: Interval) -> Result<bool> {
        let reserved = self.reserve_sentinel(&mut self.jobs.state.lock(), tree, interval, 1);
        let Some(reserved) = reserved else { return Ok(false) };
        match self.run_reserved(reserved, |ended| ended) {
            Ok(Ended::Done) => Ok(true),
            Ok(Ended::Quarantined(error)) => Err(error),
            Err(error) => {
                self.note_job(Err(error.clone()));
                Err(error)
            }
        }
    }
}
