//! Flushes: an immutable memtable is written as tables of level 0.
//!
//! Invariants: (1) one flush per keyspace at a time, oldest memtable first (ARCHITECTURE §3); among
//! keyspaces, the memtable with the earliest log start first; (2) before a flush edit is applied,
//! the log is durable up to the last sequence number of its memtable (H52), unless the keyspace is
//! the only one.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{KeyspaceId, Level};
use crate::base::key::Seq;
use crate::base::sched;
use crate::compaction;
use crate::compaction::execute::{FlushJob, FlushSpec, JobContext};
use crate::compaction::policy::Placement;
use crate::db::engine::Engine;
use crate::db::install::touched_by;
use crate::db::retries::Work;
use crate::memtable::MemtableCursor;
use crate::options::WarmUp;
use crate::state::tree::{Flushable, Tree, last_seq};
use crate::storage::io::{Cause, on_behalf_of};
use crate::table::TableOptions;
use crate::version::edit::Flushed;
use crate::version::set::VersionSet;

/// The job that writes an immutable memtable as tables.
pub(crate) fn flush_job(
    context: JobContext,
    set: &VersionSet,
    tree: &Tree,
    flushable: &Flushable,
    snapshots: Vec<Seq>,
) -> FlushJob<MemtableCursor> {
    let current = tree.peek();
    let root = set.current();
    let shape = root.keyspaces.get(tree.id).map(|s| s.shape(BTreeSet::new(), Vec::new()));
    let policy = compaction::policy_of(current.options.compaction);
    let placement =
        shape.as_ref().map_or(Placement { level: Level::ZERO }, |s| policy.place_flush(s));
    let level = placement.level;
    let entries = flushable.memtable.entries();
    let mut table = TableOptions::of_level(tree.id, &current.options, level, context.hash_seed);
    if let Some(shape) = &shape {
        table.bloom_bits = policy.filter_bits(shape, level, entries);
    }
    let spec = FlushSpec {
        keyspace: tree.id,
        placement,
        epoch: flushable.epoch(),
        entries,
        snapshots,
        table_bytes: shape
            .as_ref()
            .map_or(current.options.table_bytes, |shape| policy.flush_table_bytes(shape)),
        table,
        oldest: (current.options.warm_up == WarmUp::HandOff && context.hand_over_flushes)
            .then(|| current.version.runs_newest_first().last().map(|run| run.without_list()))
            .flatten(),
    };
    FlushJob::new(context, spec, flushable.memtable.cursor())
}

impl Engine {
    /// Flushes the memtable that [`reserve_flush`](Self::reserve_flush) picks; false if none waits.
    pub(super) fn flush_one(&self) -> Result<bool> {
        let Some((tree, flushable)) = self.reserve_flush() else { return Ok(false) };
        // Another thread may have flushed it before it was reserved.
        let current = tree.peek().immutables.last().cloned();
        let result = match current {
            Some(current) if Arc::ptr_eq(&current, &flushable) => {
                sched::catch_panic("a flush", || self.flush_memtable(&tree, &flushable))
                    .map(|()| true)
            }
            _ => Ok(true),
        };
        let result = self.noting_retries(Work::Flush(tree.id), result);
        self.jobs.state.lock().end_flush(tree.id);
        self.shared.note_frozen(tree.id);
        self.update_pressure_of(&tree);
        self.shared.announce_progress();
        // More memtables may wait, and a new table may make a compaction due.
        self.shared.wake_workers();
        // Here too: under constant load there is always another flush, and compactions run flushes
        // between their steps.
        self.shorten_log();
        result
    }

    /// Reserves, of the oldest immutable memtables of all keyspaces, the one with the earliest log
    /// start: it pins the oldest segment. No keyspace starves, because memtables that are frozen
    /// later start later. Cost: by the memtables frozen since the last call, not by the keyspaces.
    fn reserve_flush(&self) -> Option<(Arc<Tree>, Arc<Flushable>)> {
        let now = clock::now_nanos();
        let mut state = self.jobs.state.lock();
        for id in self.shared.take_frozen() {
            if let Some((_, oldest)) = self.oldest_frozen(id) {
                state.frozen.insert((oldest.log_start().lsn, oldest.epoch(), id));
            }
        }
        let mut behind = Bound::Unbounded;
        loop {
            let entry = *state.frozen.range((behind, Bound::Unbounded)).next()?;
            behind = Bound::Excluded(entry);
            let (_, epoch, id) = entry;
            let oldest = self.oldest_frozen(id).filter(|(_, flushable)| flushable.epoch() == epoch);
            let Some(claimed) = oldest else {
                // The next oldest is inserted when the flush of this one has ended.
                state.frozen.remove(&entry);
                continue;
            };
            let rests = state.retries.rests(Work::Flush(id), now).is_some();
            if !rests && state.begin_flush(id) {
                return Some(claimed);
            }
        }
    }

    fn oldest_frozen(&self, id: KeyspaceId) -> Option<(Arc<Tree>, Arc<Flushable>)> {
        let tree = self.trees.lock().get(&id).cloned()?;
        let oldest = tree.peek().immutables.last().cloned()?;
        Some((tree, oldest))
    }

    /// Writes an immutable memtable as tables and installs them.
    fn flush_memtable(&self, tree: &Arc<Tree>, flushable: &Arc<Flushable>) -> Result<()> {
        let _cause = on_behalf_of(Cause::Flush);
        let started = clock::now_nanos();
        let writer = self.writer()?;
        self.drop_lists_for_flush();
        // (a) The keyspace needs the log from its next younger memtable on.
        let log_start = {
            let current = tree.peek();
            let at = current.immutables.iter().position(|b| Arc::ptr_eq(b, flushable));
            let oldest = current.immutables.len().checked_sub(1);
            assert!(at.is_some() && at == oldest, "memtable {at:?} of {:?} is flushed", tree.name);
            match at {
                Some(0) | None => current.active.log_start(),
                Some(at) => current.immutables[at - 1].log_start(),
            }
        };
        let others = self.other_log_starts(tree);
        // (b) H52; and the log positions in the edit, chosen above, must be durable before it is.
        if !self.is_sole_wal_user(tree) {
            self.sync_position(writer.wal.settled_lsn())?;
        }
        let durable = writer.wal.durable_lsn();
        let mut job = {
            // Read after the freeze: H47.
            let snapshots = self.shared.snapshots.live();
            flush_job(self.job_context()?, &self.set, tree, flushable, snapshots)
        };
        let mut finished = self.run_job(&mut job, None, &|| false)?;
        assert_eq!(
            finished.edit.keyspace(tree.id).added.len(),
            finished.outputs.len(),
            "tables that the edit of a flush of {:?} adds, and outputs",
            tree.name
        );
        finished.edit.keyspace(tree.id).flushed =
            Some(Flushed { log_start, flushed_seq: last_seq(flushable), durable_lsn: durable });
        let flushed = Some((tree, flushable));
        let alone = finished.edit.clone();
        for (id, flushed) in others {
            assert!(id != tree.id, "two log starts of keyspace {id} in one edit");
            let flushed = Flushed { durable_lsn: durable, ..flushed };
            finished.edit.keyspace(id).flushed = Some(flushed);
        }
        let touched = touched_by(&finished.edit);
        match self.set.apply(finished.edit) {
            Ok(installed) => self.publish(installed, &touched, flushed),
            // Another keyspace was dropped or flushed meanwhile: its log start is not needed.
            Err(failed)
                if matches!(failed.error.kind(), ErrorKind::Conflict | ErrorKind::Closed) =>
            {
                self.install_outputs(alone, &finished.outputs, flushed)?;
            }
            Err(failed) => return Err(self.not_installed(failed, &finished.outputs)),
        }
        let counters = &self.shared.counters;
        counters.flushes.add(1);
        counters.flush_bytes.add(finished.stats.bytes_written);
        counters.blocks_handed_over.add(finished.stats.blocks_handed_over);
        counters.blocks_unasked.add(finished.stats.blocks_unasked);
        counters.flush_nanos.add(clock::now_nanos() - started);
        self.release_log();
        Ok(())
    }

    /// Freezes the memtables of all keyspaces together, so that background threads can flush them
    /// in parallel, and waits until they are flushed.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.shared.health.check_open()?;
        let trees = self.all_trees();
        if let Some(writer) = &self.writer {
            self.shared.health.check_writable()?;
            writer.committer.exclusively(|lead| lead.freeze_all(&trees))?;
            self.shared.wake_workers();
        }
        trees.iter().try_for_each(|tree| self.flush(tree))
    }

    /// Freezes the memtable of a keyspace and waits until it is flushed.
    pub(crate) fn flush(&self, tree: &Arc<Tree>) -> Result<()> {
        self.shared.health.check_writable()?;
        self.flush_unless(tree, |failures| self.cannot_flush_since(failures, tree.id))
    }

    /// As [`flush`](Self::flush), but fails once `blocked_by` returns an error; its argument is the
    /// number of background failures before this call.
    pub(super) fn flush_unless(
        &self,
        tree: &Arc<Tree>,
        blocked_by: impl Fn(u64) -> Option<Error>,
    ) -> Result<()> {
        let writer = self.writer()?;
        writer.committer.exclusively(|lead| lead.freeze(tree))?;
        let Some(newest) = tree.peek().immutables.first().map(|b| b.epoch()) else {
            return Ok(());
        };
        let failures = self.hurry(|work| work == Work::Flush(tree.id));
        self.shared.wait_until(|| {
            // A keyspace that has been dropped meanwhile needs no flush.
            if tree.is_dropped() {
                return Some(Ok(()));
            }
            let oldest = tree.peek().immutables.last().map(|b| b.epoch());
            if oldest.is_none_or(|oldest| oldest > newest) {
                return Some(Ok(()));
            }
            blocked_by(failures).map(Err)
        })
    }
}
