//! Preparation of WAL segments off the write path, and deletion of spare ones where space is short.
//!
//! Not here: the start of the live log (`log_start`), the files (`log::wal`), the space that a
//! segment needs (`space_checks`).

use crate::base::clock;
use crate::base::error::{ErrorKind, Result};
use crate::db::compactions::Due;
use crate::db::engine::{Engine, Writer};
use crate::db::retries::Work;
use crate::db::space_checks::DeviceSpace;
use crate::log::SegmentRequest;

impl Engine {
    /// The requested log segment, if the device has room for it. While the preparation backs off
    /// after a failure, or without room, the waiting appender gets the error instead.
    pub(super) fn segment_to_prepare(&self, writer: &Writer) -> Option<SegmentRequest> {
        let wanted = writer.wal.requested_segment()?;
        let resting =
            self.jobs.state.lock().retries.rests(Work::Segment, clock::now_nanos()).cloned();
        match resting {
            Some(error) => {
                writer.wal.refuse_segment(wanted, &error);
                None
            }
            None if self.waits_for_area() => None,
            None => self.segment_that_fits(writer),
        }
    }

    /// Whether the log's own area is full, and a flush is to come that makes a part of it obsolete.
    /// Then the appender waits for that; otherwise it gets an error: where no flush can come any
    /// more, or one has found no space, or the store is being closed in a pause. Whoever waits
    /// leads, and keeps everybody else waiting.
    fn waits_for_area(&self) -> bool {
        let health = &self.shared.health;
        let closes_in_pause = self.jobs.paused() && health.check_writable().is_err();
        if health.is_poisoned()
            || closes_in_pause
            || self.jobs.state.lock().retries.flush_is_short_since(0)
            || self.free_space().has_log_for(self.arriving_log_bytes())
        {
            return false;
        }
        let now = clock::now_nanos();
        let rests = |id| self.jobs.state.lock().retries.rests(Work::Flush(id), now).is_some();
        let trees = self.all_trees();
        let mut waiting = trees.iter().filter(|tree| !tree.peek().immutables.is_empty());
        waiting.any(|tree| !rests(tree.id))
    }

    /// Prepares a log segment; false if the request is stale, which does not end a backoff.
    pub(super) fn prepare_segment(&self, writer: &Writer, wanted: SegmentRequest) -> Result<bool> {
        let prepared = writer.wal.prepare(wanted);
        self.note_prepared(writer, prepared)
    }

    /// Records how the preparation of a log segment ended, and returns that. A failure counts only
    /// while the segment is missing: if another thread has prepared it, or is preparing it, there
    /// is nothing to retry.
    pub(super) fn note_prepared(&self, writer: &Writer, prepared: Result<bool>) -> Result<bool> {
        let unknown = match &prepared {
            Ok(false) => return prepared,
            Ok(true) => {
                let mut state = self.jobs.state.lock();
                state.retries.done(Work::Segment);
                state.segment_refused = None;
                return prepared;
            }
            Err(error) => error.leaves_unknown(),
        };
        // Checked under the lock of the retries: a later preparation clears the entry after this.
        let is_missing = || writer.wal.missing_segment().is_some();
        let prepared = self.noting_failures(Work::Segment, prepared, &is_missing);
        if unknown || is_missing() { prepared } else { Ok(false) }
    }

    /// Whether work is to come that may make room: a flush, after which a memtable need not be kept
    /// room for, or a merge that runs, or is due and fits. Then the appender waits for that, as it
    /// does where levels are behind; it gets an error when nothing is left that could help, and at
    /// once where some work has failed, for want of space or otherwise, and is to be tried again.
    fn waits_for_room(&self) -> bool {
        if self.jobs.paused() || self.cannot_go_on().is_some() {
            return false;
        }
        let device = DeviceSpace::default();
        let flushes = self.all_trees().iter().any(|tree| !tree.peek().immutables.is_empty());
        let mut state = self.jobs.state.lock();
        if state.retries.any_failed() {
            return false;
        }
        if flushes || state.any_runs() {
            return true;
        }
        let (root, ids) = (self.set.current(), state.to_look_at.clone());
        let mut due = ids.into_iter().map(|id| self.due(&mut state, &root, id, &device));
        due.any(|due| matches!(due, Due::Task(_) | Due::Waits))
    }

    /// The requested log segment, as large as the device has room for it and what comes with it. If
    /// there is none for a small one, nothing left to give back and no work to come that may help,
    /// the appender waiting for the segment gets the error; flushes and compactions continue.
    fn segment_that_fits(&self, writer: &Writer) -> Option<SegmentRequest> {
        writer.wal.raise_limit();
        let (mut settled, mut looked_again) = (false, false);
        loop {
            let wanted = writer.wal.requested_segment()?;
            let Some(error) = self.check_space_for_segment().err() else {
                self.jobs.state.lock().segment_refused = None;
                return Some(wanted);
            };
            if writer.wal.lower_limit() || self.delete_spares() {
                continue;
            }
            if !settled {
                // Space of tables that were just removed may not be freed yet.
                self.finish_removals();
                settled = true;
                continue;
            }
            if self.waits_for_room() {
                return None;
            }
            if !looked_again {
                // What ended between the two may have made room.
                looked_again = true;
                continue;
            }
            // If the log's area is full of what is in active memtables, the appender has these
            // frozen when it is refused, and waits then.
            self.shorten_log();
            let mut state = self.jobs.state.lock();
            // Under the lock: a concurrent preparation clears `segment_refused` after this.
            if writer.wal.refuse_segment(wanted, &error) {
                state.segment_refused = Some(error);
                return None;
            }
            // Another worker has set another limit: nobody else refuses what is asked for now.
        }
    }

    /// Deletes spare log segments, or if there are none drops the buffer lists, before work is
    /// refused for lack of space; whether there were any. So it is asked again until nothing is
    /// left: no work is refused while there is a list (H18).
    pub(super) fn delete_spares(&self) -> bool {
        let given = self.writer.as_ref().is_some_and(|writer| writer.wal.delete_spares())
            || self.drop_lists();
        if given {
            self.finish_removals();
        }
        given
    }

    /// Waits until the device has freed the space of removed files.
    pub(super) fn finish_removals(&self) {
        let settled = self.storage().and_then(|storage| storage.finish_removals());
        if let Err(error) = settled
            // Flushes continue: they make log segments obsolete.
            && error.kind() != ErrorKind::NoSpace
        {
            self.note_job(Err(error));
        }
    }
}
