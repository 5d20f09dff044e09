//! Back-pressure: the delay and the stalls of writers, set by the state of their trees.
//!
//! Not here: what calls for how much delay (`compaction::pacing`), who sleeps it off
//! (`write::queue`).
//!
//! Invariant: what is set for a tree is what its newest root calls for: `pressing` is held from the
//! reading of the root to the setting.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::compaction;
use crate::compaction::pacing::{self, Memory};
use crate::db::engine::Engine;
use crate::db::job_table::Reserved;
use crate::db::retries::Work;
use crate::state::tree::{DELAY_UNITS_PER_NANO, Tree};

impl Engine {
    /// Sets the delay of writers by the state of all trees.
    pub(crate) fn update_pressure(&self) {
        self.all_trees().iter().for_each(|tree| self.set_pressure(tree));
    }

    /// Sets the delay of a keyspace's writers after a job of it has ended. Where writers of other
    /// keyspaces are stalled, that may have made room for them.
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
        // Before the root is read: else what an older one calls for would be set after what the
        // newest one does, and writers would wait for room that has been made.
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
        let fixed = (nanos * DELAY_UNITS_PER_NANO as f64) as u64;
        tree.delay_per_byte.store(fixed, Ordering::Relaxed);
        let full = pacing::tightest(&pressure, &Memory::default()) >= pacing::SPRING_FULL;
        // Before writers are stalled: who waits already looks again after this job.
        let flush = self.jobs.state.lock().retries.lasting(Work::Flush(tree.id));
        tree.set_stall_blocked_by(match flush {
            None if full => self.compaction_blocked_by(root, tree),
            flush => flush,
        });
        self.set_stalled(tree, full);
    }

    /// Lets the writers of a keyspace go on that was dropped: they find that out.
    ///
    /// Requires: no root names it any more.
    pub(super) fn release_writers(&self, dropped: &Tree) {
        let _pressing = dropped.pressing.lock();
        self.set_stalled(dropped, false);
    }

    /// Stops a keyspace's writers, or lets them go on.
    ///
    /// Requires: its `pressing` is held.
    fn set_stalled(&self, tree: &Tree, stalled: bool) {
        match (tree.stalled.swap(stalled, Ordering::AcqRel), stalled) {
            (false, true) => self.jobs.stalled.fetch_add(1, Ordering::AcqRel),
            (true, false) => self.jobs.stalled.fetch_sub(1, Ordering::AcqRel),
            _ => 0,
        };
    }
}
