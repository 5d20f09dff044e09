//! The start of the live log: which segments are obsolete, and which memtables are frozen so that
//! more become so.
//!
//! Invariants: (1) the live log starts at the earliest log start in the root or in a pin; both are
//! read under the lock of the pins; (2) a position that becomes a *new* keyspace's log start is
//! taken under a pin, which is kept until the root with it is installed and the keyspace's tree is
//! in `trees`.
//!
//! An existing keyspace needs no pin: its log start in the root is valid until the next one is
//! installed.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::ids::{KeyspaceId, Lsn, SegmentNumber};
use crate::base::memory::Category;
use crate::db::engine::{Engine, Writer};
use crate::db::log_pins::LogPin;
use crate::log::LogPosition;
use crate::state::tree::Tree;
use crate::storage::{LogKind, Object, Storage};
use crate::version::edit::Flushed;
use crate::version::root::Root;

/// Bytes of log below which no memtable is frozen for being mostly padding: 16 MiB.
const SHORT_LOG_BYTES: u64 = 16 << 20;

/// A log larger than this many times the memtables counts as mostly padding: an entry of 16 + 100
/// bytes that is synced alone takes 4 KiB of log and less than 200 bytes of a memtable.
const PADDED_LOG_RATIO: u64 = 8;

/// A log that is mostly padding may take this many times the bytes of all tables: small flushes
/// make small tables, each of which costs a compaction with its overlap in a large tree.
const PADDED_LOG_TABLES: u64 = 2;

/// Refuses a log that ends before a keyspace's log start: what was before that was durable when the
/// log start was recorded, and a log that goes on from an earlier group would not lead there.
///
/// # Errors
/// `Corruption` where the log ends, at `end`.
pub(super) fn check_log_starts(storage: &dyn Storage, root: &Root, end: LogPosition) -> Result<()> {
    let latest = root.keyspaces.iter().max_by_key(|keyspace| keyspace.log_start.lsn);
    let Some(keyspace) = latest.filter(|keyspace| keyspace.log_start.lsn > end.lsn) else {
        return Ok(());
    };
    Err(Error::corruption(
        storage.name_of(Object::Log(LogKind::Wal, end.segment)),
        end.offset,
        format_args!(
            "the log ends before group {}, and keyspace {:?} has flushed all before group {}",
            end.lsn, keyspace.name, keyspace.log_start.lsn
        ),
    ))
}

impl Engine {
    /// Whether no other keyspace has entries in the WAL, so that a flush of `tree` need not sync it
    /// first (H52): replay starts at the position that the flush records. Without synchronous
    /// writes the WAL then need not reach the device.
    ///
    /// A keyspace that is created later has a later log start, synced with everything before it.
    pub(super) fn is_sole_wal_user(&self, tree: &Tree) -> bool {
        // In this order: a creation inserts its tree before it drops its pin.
        let creating = self.log_pins.are_held();
        !creating && self.trees.lock().keys().all(|&id| id == tree.id)
    }

    /// Pins the log: groups at or after any position that is taken from now on stay.
    pub(super) fn pin_log(&self) -> LogPin<'_> {
        let start = || self.set.current().replay_start().unwrap_or(LogPosition::ORIGIN);
        self.log_pins.pin(start)
    }

    /// Start of the live log: no keyspace needs a group before it, now or later.
    fn live_log_start(&self) -> Option<LogPosition> {
        // The lock first: a creation that has dropped its pin is in this root.
        self.log_pins.earliest_with(|| self.set.current().replay_start())
    }

    /// Log starts of the keyspaces except `besides` that have advanced to a later segment since
    /// they were recorded: those of keyspaces without new entries (`write::queue` advances them at
    /// every freeze). Unless they are recorded, a keyspace that is never flushed would pin the log.
    ///
    /// They matter only if the flush of `besides` releases the first segment of the log; so all
    /// keyspaces are visited once per segment, not at every flush.
    pub(super) fn other_log_starts(&self, besides: &Tree) -> Vec<(KeyspaceId, Flushed)> {
        let before = self.set.current();
        let Some(first) = before.replay_start() else { return Vec::new() };
        // Keyspaces that are being flushed too release the segment soon.
        let ending = self.jobs.state.lock().flushing().clone();
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
        // After the memtables were read: flushes that ended before are in this root.
        let root = self.set.current();
        let mut starts = Vec::new();
        for (id, log_start) in now {
            let Some(state) = root.keyspaces.get(id) else { continue };
            if state.log_start.segment < log_start.segment {
                assert!(
                    state.log_start.lsn <= log_start.lsn,
                    "the log start of keyspace {id} would go back to {log_start:?}"
                );
                let flushed_seq = state.flushed_seq;
                let flushed = Flushed { log_start, flushed_seq, durable_lsn: Lsn::ZERO };
                starts.push((id, flushed));
            }
        }
        starts
    }

    /// Releases the log segments that no keyspace needs.
    pub(crate) fn release_log(&self) {
        let Some(writer) = &self.writer else { return };
        if let Some(start) = self.live_log_start() {
            writer.wal.release_before(start.segment);
        }
    }

    /// Whether the log from `start` on is long, but mostly padding: groups that are synced one by
    /// one take a 4 KiB unit each. Then flushing a small table is cheaper than extending the log,
    /// whose new segments are zeroed first.
    fn log_is_padding(&self, root: &Root, writer: &Writer, start: LogPosition) -> bool {
        let bytes = writer.wal.bytes_behind(start);
        let memtables = self.shared.accountant.used(Category::Memtables);
        if bytes <= SHORT_LOG_BYTES || bytes / PADDED_LOG_RATIO <= memtables {
            return false;
        }
        let levels = root.keyspaces.iter().flat_map(|keyspace| keyspace.version.levels().values());
        let runs = levels.flat_map(|level| level.runs());
        let tables: u64 = runs.map(|(_, run)| run.tables.totals().bytes).sum();
        bytes / PADDED_LOG_TABLES > tables
    }

    /// Requests a freeze of the keyspaces whose active memtables pin the oldest segment, if the log
    /// exceeds half of `log_area_bytes` (H38) or is mostly padding. Where an immutable memtable
    /// pins it, that is flushed anyway.
    pub(super) fn shorten_log(&self) {
        let Some(writer) = &self.writer else { return };
        let root = self.set.current();
        let Some(oldest) = root.replay_start() else { return };
        let is_long = writer.wal.live_bytes() > self.options.log_area_bytes / 2;
        if !is_long && !self.log_is_padding(&root, writer, oldest) {
            return;
        }
        // Only keyspaces with entries pin the log: log starts of the others in the root may be old,
        // and are advanced by the flushes of these.
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
