//! Which part of the log is still needed, and what is done so that it does not grow.
//!
//! Invariants: (1) the live log begins at the earliest log start that the root names or that a pin
//! covers; both are looked at under the lock of the pins; (2) whoever draws a position that a root
//! is going to name as a *new* keyspace's log start pins the log first, and keeps the pin until
//! that root is installed and the keyspace's tree is in place.
//!
//! A keyspace that exists needs no pin: its log start in the root holds until the next one is
//! there.

use std::sync::Arc;

use crate::base::ids::{KeyspaceId, Lsn, SegmentNumber};
use crate::base::memory::Category;
use crate::db::engine::{Engine, Writer};
use crate::db::log_pins::LogPin;
use crate::log::LogPosition;
use crate::state::tree::Tree;
use crate::version::edit::Flushed;
use crate::version::root::Root;

/// Bytes of log that are never too many.
const SHORT_LOG_BYTES: u64 = 16 << 20;

/// How many times the bytes of the memtables a log may take before it counts as mostly padding: a
/// pair of 16 + 100 bytes that is synced alone takes 4 KiB of log and less than 200 bytes of a
/// memtable.
const PADDED_LOG_RATIO: u64 = 8;

/// How many times the bytes of the tables a log that is mostly padding may take: small flushes make
/// small tables, each of which costs a merge with its neighbours in a large tree.
const PADDED_LOG_TABLES: u64 = 2;

impl Engine {
    /// Whether no other keyspace has entries in the WAL, so that a flush of `tree` need not sync it
    /// first (H52): replay starts at the position that the flush records. A WAL that nobody asks to
    /// sync then never reaches the device.
    ///
    /// A keyspace that is created later has a later log start, made durable with all before it.
    pub(super) fn is_sole_wal_user(&self, tree: &Tree) -> bool {
        // In this order: a creation puts its tree in place before it drops its pin.
        let creating = self.log_pins.are_held();
        !creating && self.trees.lock().keys().all(|&id| id == tree.id)
    }

    /// Keeps every group of the log that a position drawn from now on is before or at.
    pub(super) fn pin_log(&self) -> LogPin<'_> {
        let start = || self.set.current().wal_start().unwrap_or(LogPosition::ORIGIN);
        self.log_pins.pin(start)
    }

    /// Where the live log begins: all before is needed by nobody, now and later.
    fn live_log_start(&self) -> Option<LogPosition> {
        // The lock first: who has dropped its pin by now is in this root.
        self.log_pins.earliest_with(|| self.set.current().wal_start())
    }

    /// Log starts of the keyspaces but `besides` that have moved on to a later segment since they
    /// were recorded: those of keyspaces that nothing was written to (`write::queue` moves them at
    /// every freeze). Without them a keyspace that is never flushed would pin the log.
    ///
    /// They matter when the flush of `besides` frees the first segment of the log; so all are
    /// looked at only then, once for every segment and not at every flush.
    pub(super) fn other_log_starts(&self, besides: &Tree) -> Vec<(KeyspaceId, Flushed)> {
        let before = self.set.current();
        let Some(first) = before.wal_start() else { return Vec::new() };
        // Those that are flushed beside this one do not keep the segment for long.
        let ending = self.jobs.state.lock().flushing.clone();
        let mut moved = Vec::new();
        let mut is_kept = false;
        for keyspace in before.keyspaces.starting_in(first.segment) {
            let Some(tree) = self.trees.lock().get(&keyspace.id).cloned() else { continue };
            if tree.oldest_log_start().segment > first.segment {
                moved.push(tree);
            } else if tree.id != besides.id && !ending.contains(&tree.id) {
                is_kept = true;
                break;
            }
        }
        let trees = if is_kept { moved } else { self.all_trees() };
        let others = trees.iter().filter(|tree| tree.id != besides.id);
        let now: Vec<_> = others.map(|tree| (tree.id, tree.oldest_log_start())).collect();
        // After the look at the memtables: what was flushed before it is in this root.
        let root = self.set.current();
        let mut starts = Vec::new();
        for (id, log_start) in now {
            let Some(state) = root.keyspaces.get(id) else { continue };
            if state.log_start.segment < log_start.segment {
                let flushed_seq = state.flushed_seq;
                let flushed = Flushed { log_start, flushed_seq, durable_lsn: Lsn::ZERO };
                starts.push((id, flushed));
            }
        }
        starts
    }

    /// Lets go of log segments that no keyspace needs.
    pub(crate) fn release_log(&self) {
        let Some(writer) = &self.writer else { return };
        if let Some(start) = self.live_log_start() {
            writer.wal.release_before(start.segment);
        }
    }

    /// Whether the log from `start` on is long, and its memtables, flushed, would be small: groups
    /// that are synced one by one take a page each. Then a small table is cheaper than more log,
    /// whose segments are written with zeros before they can be recycled.
    fn log_is_padding(&self, root: &Root, writer: &Writer, start: LogPosition) -> bool {
        let bytes = writer.wal.bytes_behind(start);
        let memtables = self.shared.accountant.used(Category::Memtables);
        if bytes <= SHORT_LOG_BYTES || bytes / PADDED_LOG_RATIO <= memtables {
            return false;
        }
        let levels = root.keyspaces.iter().flat_map(|keyspace| keyspace.version.levels());
        let runs = levels.flat_map(|level| level.runs());
        let tables: u64 = runs.map(|(_, run)| run.tables.totals().bytes).sum();
        bytes / PADDED_LOG_TABLES > tables
    }

    /// Freezes the keyspaces that pin the tail of a log that has grown beyond half its area (H38),
    /// or that is long for what it holds, but for those whose frozen memtables pin it: these are
    /// flushed next.
    pub(super) fn shorten_log(&self) {
        let Some(writer) = &self.writer else { return };
        let root = self.set.current();
        let Some(oldest) = root.wal_start() else { return };
        let is_long = writer.wal.live_bytes() > self.options.log_area_bytes / 2;
        if !is_long && !self.log_is_padding(&root, writer, oldest) {
            return;
        }
        // Those that keep the log now: what the root names may be what keyspaces without entries
        // needed once, and goes with the flush of these.
        let mut keeping: Vec<(Arc<Tree>, SegmentNumber)> = Vec::new();
        for tree in self.all_trees() {
            if let Some(needs) = tree.needs_log_from() {
                keeping.push((tree, needs.segment));
            }
        }
        let first = keeping.iter().map(|(_, segment)| *segment).min();
        for (tree, _) in keeping.iter().filter(|(_, segment)| Some(*segment) == first) {
            if tree.peek().immutables.is_empty() {
                writer.committer.request_freeze(tree);
            }
        }
    }
}
