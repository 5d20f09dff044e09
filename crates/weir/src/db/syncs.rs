//! Log syncs that are made without a thread that waits for them, and the callbacks that are told.
//!
//! One thread makes them, started by the first request. It waits for the device and runs code of
//! the user's; that is why it is none of the background threads, which writers wait for.
//!
//! Invariants: (1) every request is answered once, with what became of its group: `Ok` if the log
//! is durable up to it; (2) a callback is called without any lock of the engine, and a panic in it
//! ends there: it may write, wait, close the store or drop its last handle; (3) what is asked for
//! before the log has ended is answered after its end at the latest, and nothing is synced here
//! once [`Syncs::stop`] has returned.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::sched::{self, Condvar, Mutex, Thread};
use crate::db::engine::Engine;
use crate::state::calls::{Owed, is_in_callback};
use crate::state::health::closed_error;

/// Called when a log sync that nobody waits for has ended.
pub(crate) type SyncCallback = Box<dyn FnOnce(Result<()>) + Send>;

/// The log is to be durable up to `lsn`.
struct Request {
    lsn: u64,
    callback: Option<(Owed, SyncCallback)>,
}

/// What is to be synced, and by whom. Locks: `state` is a leaf but for the start of the thread.
#[derive(Default)]
pub(crate) struct Syncs {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    thread: Option<Thread>,
    /// A sync is being made.
    syncing: bool,
    stopping: bool,
    /// How the log ended.
    ended: Option<Result<()>>,
}

/// Requests to be answered together.
struct Round {
    requests: Vec<Request>,
    /// How the log has ended, if it has: nothing is synced any more.
    ended: Option<Result<()>>,
}

impl Syncs {
    /// Enters a request, for the thread that `start` makes if there is none. What the caller has
    /// to answer itself: the request, if the log has ended; all of them, if there is no thread.
    fn enter(
        &self,
        request: Request,
        start: impl FnOnce() -> std::io::Result<Thread>,
    ) -> Option<Round> {
        let mut state = self.state.lock();
        if let Some(ended) = &state.ended {
            return Some(Round { requests: vec![request], ended: Some(ended.clone()) });
        }
        state.requests.push(request);
        if state.thread.is_none() {
            match start() {
                Ok(thread) => state.thread = Some(thread),
                Err(_) if state.stopping => return None,
                Err(_) => {
                    state.syncing = true;
                    let requests = std::mem::take(&mut state.requests);
                    return Some(Round { requests, ended: None });
                }
            }
        }
        drop(state);
        self.changed.notify_all();
        None
    }

    /// The next requests, for the thread; `None` when there will be no more.
    fn next(&self) -> Option<Round> {
        let mut state = self.state.lock();
        loop {
            if state.ended.is_some() {
                let requests = std::mem::take(&mut state.requests);
                let ended = state.ended.clone();
                return (!requests.is_empty()).then_some(Round { requests, ended });
            }
            if !state.requests.is_empty() && !state.stopping {
                state.syncing = true;
                let requests = std::mem::take(&mut state.requests);
                return Some(Round { requests, ended: None });
            }
            self.changed.wait(&mut state);
        }
    }

    fn synced(&self) {
        self.state.lock().syncing = false;
        self.changed.notify_all();
    }

    /// Lets no new sync begin, and waits for the one that is being made.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        while state.syncing {
            self.changed.wait(&mut state);
        }
    }

    /// The log has ended, with this result: all requests are answered now. Those that the caller
    /// has to answer, because there is no thread.
    fn end(&self, result: Result<()>) -> Vec<Request> {
        let mut state = self.state.lock();
        state.ended = Some(result);
        let left = match state.thread {
            Some(_) => Vec::new(),
            None => std::mem::take(&mut state.requests),
        };
        drop(state);
        self.changed.notify_all();
        left
    }

    /// Waits for the end of the thread, once the log has ended; not in a callback: it may run on
    /// that thread, or be waited for there.
    pub(super) fn join(&self) {
        if is_in_callback() {
            return;
        }
        let thread = self.state.lock().thread.take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

impl Engine {
    /// Has the log synced up to `lsn` and `callback` called with the result: now if that is known.
    ///
    /// Requires: the caller holds no lock; `lsn` is settled.
    pub(crate) fn sync_later(self: &Arc<Self>, lsn: u64, callback: Option<(Owed, SyncCallback)>) {
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
    pub(crate) fn sync_is_settled(&self, lsn: u64) -> bool {
        let Some(writer) = &self.writer else { return true };
        writer.wal.durable_lsn() >= lsn
            || writer.wal.is_failed()
            || writer.syncs.state.lock().ended.is_some()
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
            let last = round.requests.iter().map(|request| request.lsn).max().unwrap_or(0);
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
    /// Requires: the caller holds no lock; somebody has ended the syncs, or will.
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
