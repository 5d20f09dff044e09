//! Which part of the log is still needed, and what is done so that it does not grow.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::db::engine::Engine;
use crate::state::tree::Tree;
use crate::version::edit::{Flushed, KeyspaceId};

impl Engine {
    /// Whether the log before the memtables of `tree` is needed for nothing once they are tables,
    /// durable or not: no other keyspace has entries there, and replay starts at the position that
    /// the flush records. A log that nobody asks to sync then never reaches the device.
    ///
    /// A keyspace that is created later has a later log start, made durable with all before it.
    pub(super) fn is_log_of(&self, tree: &Tree) -> bool {
        // In this order: a creation puts its tree in place before it clears the flag.
        let creating = self.creating.load(Ordering::SeqCst);
        !creating && self.trees.lock().keys().all(|&id| id == tree.id)
    }

    /// Log starts of the keyspaces but `besides` that have moved on to a later segment since they
    /// were recorded: those of keyspaces that nothing was written to (`write::queue` moves them at
    /// every freeze). Without them a keyspace that is never flushed would pin the log.
    pub(super) fn other_log_starts(&self, besides: &Tree) -> Vec<(KeyspaceId, Flushed)> {
        let mut starts = Vec::new();
        for tree in self.all_trees().iter().filter(|t| t.id != besides.id) {
            let log_start = tree.oldest_log_start();
            // After the look at the memtables: what was flushed before it is in this root.
            let root = self.set.current();
            let Some(state) = root.keyspaces.get(&tree.id) else { continue };
            if state.log_start.segment < log_start.segment {
                let flushed = Flushed { log_start, flushed_seq: state.flushed_seq, durable_lsn: 0 };
                starts.push((tree.id, flushed));
            }
        }
        starts
    }

    /// Lets go of log segments that no keyspace needs.
    pub(crate) fn release_log(&self) {
        let Some(writer) = &self.writer else { return };
        let start = self.set.current().wal_start();
        // Looked at after the root: a creation that begins later starts behind `start`.
        if self.creating.load(Ordering::SeqCst) {
            return;
        }
        if let Some(start) = start {
            writer.wal.release_before(start.segment);
        }
    }

    /// Freezes the keyspaces that pin the tail of a log that has grown beyond half its area (H38).
    pub(super) fn shorten_log(&self) {
        let Some(writer) = &self.writer else { return };
        if writer.wal.live_bytes() <= self.options.log_area_bytes / 2 {
            return;
        }
        let root = self.set.current();
        let Some(oldest) = root.wal_start() else { return };
        let pinning = root.keyspaces.values().filter(|k| k.log_start.segment == oldest.segment);
        let ids: BTreeSet<KeyspaceId> = pinning.map(|k| k.id).collect();
        for tree in self.all_trees().into_iter().filter(|t| ids.contains(&t.id)) {
            writer.committer.request_freeze(&tree);
        }
    }
}
