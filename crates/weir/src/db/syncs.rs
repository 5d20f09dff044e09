//! Log syncs without a waiting thread, and the callbacks that get their outcome.
//!
//! One thread makes them, started by the first request. It waits for the device and runs code of
//! the user's; that is why it is none of the background threads, which writers wait for.
//!
//! Invariants: (1) every request is answered once, with what became of its group: `Ok` if the log
//! is durable up to it; (2) a callback is called without any lock of the engine, and a panic in it
//! ends there: it may write, wait, close the store or drop its last handle; (3) what is asked for
//! before the log has ended is answered after its end at the latest, and nothing is synced here
//! once [`SyncQueue::stop`] has returned.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::ids::Lsn;
use crate::base::sched;
use crate::db::engine::Engine;
use crate::db::sync_queue::{Request, Round, SyncCallback};
use crate::state::calls::Owed;
use crate::state::health::closed_error;

impl Engine {
    /// Has the log synced up to `lsn` and `callback` called with the result: now if that is known.
    ///
    /// Requires: the caller holds no lock; `lsn` is settled.
    pub(crate) fn sync_later(self: &Arc<Self>, lsn: Lsn, callback: Option<(Owed, SyncCallback)>) {
        let request = Request { lsn, callback };
        let round = match &self.writer {
            Some(writer) if writer.wal.durable_lsn() < lsn => {
                let engine = Arc::clone(self);
                let start = || sched::spawn("weir-sync", move || engine.make_syncs());
                writer.syncs.enter(request, start)
            }
            _ => Some(Round { requests: vec![request], ended: Some(Ok(())) }),
        };
        if let Some(round) = round {
            self.answer(round);
        }
    }

    /// Whether a sync up to `lsn` would not wait: it was made, or never will be.
    pub(crate) fn sync_is_decided(&self, lsn: Lsn) -> bool {
        let Some(writer) = &self.writer else { return true };
        writer.wal.durable_lsn() >= lsn || writer.wal.is_failed() || writer.syncs.has_ended()
    }

    /// The thread's work.
    fn make_syncs(self: &Arc<Self>) {
        let Some(writer) = &self.writer else { return };
        while let Some(round) = writer.syncs.next() {
            self.answer(round);
        }
    }

    /// Makes the sync that the requests ask for, unless the log has ended, and answers them.
    fn answer(&self, round: Round) {
        let Some(writer) = &self.writer else { return };
        let result = round.ended.unwrap_or_else(|| {
            let last = round.requests.iter().map(|request| request.lsn).max().unwrap_or(Lsn::ZERO);
            let synced = sched::catch_panic("a sync of the log", || self.sync_to(last));
            writer.syncs.synced();
            synced.inspect_err(|error| self.shared.poison(error))
        });
        for Request { lsn, callback } in round.requests {
            let Some((owed, callback)) = callback else { continue };
            let durable = writer.wal.durable_lsn() >= lsn;
            let outcome = if durable { Ok(()) } else { Err(not_durable(&result)) };
            owed.call(|| callback(outcome));
        }
    }

    /// Answers all requests, now that the log has ended with `result`, and ends the thread; in a
    /// callback without waiting for it.
    ///
    /// Requires: the caller holds no lock.
    pub(super) fn end_syncs(&self, result: Result<()>) {
        let Some(writer) = &self.writer else { return };
        let requests = writer.syncs.end(result.clone());
        self.answer(Round { requests, ended: Some(result) });
        writer.syncs.join();
    }

    /// Waits until all callbacks that were entered have returned, and the threads that are left of
    /// a closed store have ended; not in a callback.
    ///
    /// Requires: the caller holds no lock; the syncs were stopped, or another thread is about to.
    pub(super) fn wait_for_callbacks(&self) {
        self.shared.calls.wait_until_called();
        if let Some(writer) = &self.writer {
            writer.syncs.join();
        }
    }
}

/// Why a group is not durable although the sync, or the log, ended with `result`.
fn not_durable(result: &Result<()>) -> Error {
    result.clone().err().unwrap_or_else(closed_error)
}
