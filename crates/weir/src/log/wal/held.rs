//! Deferred groups: how many wait in memory, for how long, and what becomes of the log if they
//! cannot be written (invariant 8 of the log).
//!
//! Who appends, logged or not, writes them out when they are many or have waited for long enough,
//! and who stalls does at once. If nobody appends a background thread does, between two commit
//! groups: it is woken when the first one is held and looks again when that is due, so that a
//! writer of deferred groups alone wakes it ten times a second at most. A poisoned store writes
//! them, too, unless its log has failed.
//!
//! Source: LDS, section 5.1 (durability of the application's level).

use std::sync::atomic::Ordering;

use super::{Active, Wal};
use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sched;

/// Bytes of deferred groups that wait in memory: 64 KiB. A call of the operating system for so many
/// costs nothing any more beside the copy.
pub(super) const HELD_BYTES_MAX: usize = 64 << 10;

/// How long they wait: 100 ms, what is lost when a process is killed. Ten calls a second are not
/// noticed.
const HELD_NANOS_MAX: u64 = 100_000_000;

/// How long a background thread waits that found them due and the queue busy.
const HELD_RETRY_NANOS: u64 = 10_000_000;

impl Wal {
    /// After anything that may have held groups or written them: `result`, or the failure that is
    /// final.
    ///
    /// Requires: `active` is held.
    pub(super) fn end_holding<T>(&self, active: &Active, result: Result<T>) -> Result<T> {
        self.note_held(active);
        match active.has_lost_groups() {
            true => self.fail_held(result),
            false => result,
        }
    }

    /// Notes since when groups are held, if any are; a background thread looks at them from then
    /// on.
    ///
    /// Requires: `active` is held.
    fn note_held(&self, active: &Active) {
        let since = self.held_since.load(Ordering::Relaxed);
        if (active.held_bytes() == 0) == (since == 0) {
            return;
        }
        let now = if since == 0 { clock::now_nanos().max(1) } else { 0 };
        self.held_since.store(now, Ordering::SeqCst);
        if now > 0 && !self.held_watched.swap(true, Ordering::SeqCst) {
            (self.request_segment)();
        }
    }

    /// Deferred groups could not be written, and `appended` is why: nothing becomes durable any
    /// more (invariant 8).
    fn fail_held<T>(&self, appended: Result<T>) -> Result<T> {
        let why = |error: Error| {
            let what = format!(
                "writes that were acknowledged with Durability::Deferred could not be written to \
                 the log ({error}); reopen the store: it has what was logged before them"
            );
            let error = Error::with_source(ErrorKind::Poisoned, what, error);
            self.sync.lock().failed.get_or_insert_with(|| error.clone());
            self.synced.notify_all();
            error
        };
        appended.map_err(why)
    }

    /// Whether deferred groups have waited for as long as they may.
    pub(crate) fn is_held_due(&self) -> bool {
        let since = self.held_since.load(Ordering::Relaxed);
        since > 0 && clock::now_nanos() >= since + HELD_NANOS_MAX
    }

    /// When a background thread that looked at `looked_at` looks at deferred groups again; `None`
    /// if there are none: it is woken for the next ones.
    pub(crate) fn held_look_at(&self, looked_at: u64) -> Option<u64> {
        if self.held_since.load(Ordering::SeqCst) == 0 {
            self.held_watched.store(false, Ordering::SeqCst);
        }
        sched::switch_point();
        // Again: who held a group meanwhile may have seen it watched.
        let since = self.held_since.load(Ordering::SeqCst);
        (since > 0).then(|| (since + HELD_NANOS_MAX).max(looked_at + HELD_RETRY_NANOS))
    }

    /// Writes the groups that are held.
    ///
    /// Requires: the caller leads the commit queue.
    ///
    /// # Errors
    /// `Poisoned`, and final, as after a failed sync.
    pub(crate) fn write_out(&self) -> Result<()> {
        let mut active = self.active.lock();
        let written = active.write_out();
        self.end_holding(&active, written)
    }
}
