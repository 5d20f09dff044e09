//! The write-ahead log's segments: prepared before they are needed, given back when nothing needs
//! them.
//!
//! Not here: where the live log begins (`log_start`), the files (`log::wal`), what a segment may
//! take of the device (`space`).

use crate::base::clock;
use crate::base::error::{ErrorKind, Result};
use crate::db::engine::{Engine, Writer};
use crate::db::retries::Work;
use crate::log::SegmentRequest;

impl Engine {
    /// The log segment that is to be prepared, and can be as far as anybody knows. While the
    /// preparation rests after a failure, who waits for the segment is told why.
    pub(super) fn segment_to_prepare(&self, writer: &Writer) -> Option<SegmentRequest> {
        let wanted = writer.wal.requested_segment()?;
        let resting =
            self.jobs.state.lock().retries.rests(Work::Segment, clock::now_nanos()).cloned();
        match resting {
            Some(error) => {
                writer.wal.refuse_segment(wanted, &error);
                None
            }
            None => self.has_room_for_segment(writer, wanted).then_some(wanted),
        }
    }

    /// Prepares a log segment; false if somebody else did or it needs something else by now, which
    /// ends no rest.
    pub(super) fn prepare_segment(&self, writer: &Writer, wanted: SegmentRequest) -> Result<bool> {
        let prepared = writer.wal.prepare(wanted);
        self.note_prepared(writer, prepared)
    }

    /// Notes how the preparation of a log segment ended, and passes that on. A failure counts only
    /// while the segment is missing: one that somebody else has prepared since, or prepares, has
    /// not to be tried again, and nobody rests or is refused for it.
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
        // Under the lock of the retries: who prepares it after this look says later that it is
        // done.
        let is_missing = || writer.wal.missing_segment().is_some();
        let prepared = self.noting_failures(Work::Segment, prepared, &is_missing);
        if unknown || is_missing() { prepared } else { Ok(false) }
    }

    /// Whether the device has room for the log segment and what comes with it. If not, the appender
    /// waiting for the segment gets the error; flushes and compactions continue.
    fn has_room_for_segment(&self, writer: &Writer, wanted: SegmentRequest) -> bool {
        let mut refused = self.check_space_for_segment().err();
        if refused.is_some() {
            // What a merge has just removed counts, too.
            if !self.delete_spares() {
                self.settle_removals();
            }
            refused = self.check_space_for_segment().err();
        }
        let mut state = self.jobs.state.lock();
        let Some(error) = refused else {
            state.segment_refused = None;
            return true;
        };
        // Under the lock: who prepares it meanwhile says after this that nothing is refused.
        if writer.wal.refuse_segment(wanted, &error) {
            state.segment_refused = Some(error);
        }
        false
    }

    /// Gives log segments back that are kept to be recycled, before work is refused for want of
    /// space; whether there were some.
    pub(super) fn delete_spares(&self) -> bool {
        let given = self.writer.as_ref().is_some_and(|writer| writer.wal.delete_spares());
        if given {
            self.settle_removals();
        }
        given
    }

    /// Has the device free what was removed.
    pub(super) fn settle_removals(&self) {
        let settled = self.storage().and_then(|storage| storage.settle_removals());
        if let Err(error) = settled
            // Flushes go on: they give log segments back.
            && error.kind() != ErrorKind::NoSpace
        {
            self.note_job(Err(error));
        }
    }
}
