//! Back-pressure: the delay and the stalls of writers, set by the state of their trees.
//!
//! Not here: the rule for the delay (`compaction::pacing`), sleeping and stalling (`write::queue`).
//!
//! Invariant: the delay and the stall of a tree are those of its newest version: `pressing` is held
//! from reading the root to setting them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::compaction;
use crate::compaction::pacing::{self, Memory};
use crate::db::engine::Engine;
use crate::db::job_table::Reserved;
use crate::db::retries::Work;
use crate::state::tree::{DELAY_UNITS_PER_NANO, Tree};

impl Engine {
    /// Sets the delay and the stall of the writers of all keyspaces.
    pub(crate) fn update_pressure(&self) {
        self.all_trees().iter().for_each(|tree| self.set_pressure(tree));
    }

    /// Sets the delay and the stall of a keyspace's writers after one of its jobs has ended, and
    /// those of stalled keyspaces, for which the job may have freed space.
    pub(super) fn update_pressure_of(&self, tree: &Arc<Tree>) {
        self.set_pressure(tree);
        if self.jobs.stalled.load(Ordering::Acquire) == 0 {
            return;
        }
        let is_stalled = |t: &&Arc<Tree>| t.stalled.load(Ordering::Acquire) && t.id != tree.id;
        for other in self.all_trees().iter().filter(is_stalled) {
            self.set_pressure(other);
        }
    }

    /// Locks: `pressing` of the tree.
    fn set_pressure(&self, tree: &Arc<Tree>) {
        // Before the root is read: otherwise the pressure of an older root could be set after that
        // of the newest one, and writers would stall for a compaction that has ended.
        let _pressing = tree.pressing.lock();
        let root = &*self.set.current();
        let Some(shape) = self.shape_of(root, tree.id, Reserved::default()) else { return };
        let policy = compaction::policy_of(shape.options.compaction);
        let pressure = policy.pressure(&shape);
        let current = tree.peek();
        let memory = Memory {
            immutables: current.immutables.len(),
            immutables_max: current.options.immutables_max,
            active_fill: current.active.memtable.bytes() as f64
                / current.options.write_buffer_bytes as f64,
        };
        let nanos = pacing::delay_nanos_per_byte(&pressure, &memory);
        // In 1/1024 ns, so that the gentlest delays are not lost.
        assert!(nanos.is_finite() && nanos >= 0.0, "a delay of {nanos} ns per byte");
        let fixed = (nanos * DELAY_UNITS_PER_NANO as f64) as u64;
        tree.delay_per_byte.store(fixed, Ordering::Relaxed);
        let full = pacing::tightest(&pressure, &Memory::default()) >= pacing::SPRING_FULL;
        // Before writers are stalled; those already stalled check it again after this job.
        let flush = self.jobs.state.lock().retries.lasting(Work::Flush(tree.id));
        tree.set_stall_blocked_by(match flush {
            None if full => self.compaction_blocked_by(root, tree),
            flush => flush,
        });
        self.set_stalled(tree, full);
    }

    /// Ends the stall of a dropped keyspace's writers, which then fail with `Closed`.
    ///
    /// Requires: the current root does not contain it.
    pub(super) fn release_writers(&self, dropped: &Tree) {
        let _pressing = dropped.pressing.lock();
        self.set_stalled(dropped, false);
    }

    /// Starts or ends the stall of a keyspace's writers.
    ///
    /// Requires: its `pressing` is held.
    fn set_stalled(&self, tree: &Tree, stalled: bool) {
        match (tree.stalled.swap(stalled, Ordering::AcqRel), stalled) {
            (false, true) => {
                self.jobs.stalled.fetch_add(1, Ordering::AcqRel);
            }
            (true, false) => {
                let before = self.jobs.stalled.fetch_sub(1, Ordering::AcqRel);
                assert!(before > 0, "the stall of {:?} ends uncounted", tree.name);
            }
            _ => {}
        }
    }
}
