//! The queue of log syncs without a waiting thread: requests, and the thread that serves them.
//!
//! Data with its rules; what the thread does is in `syncs`.

use crate::base::error::Result;
use crate::base::ids::Lsn;
use crate::base::sched::{Condvar, Mutex, Thread};
use crate::state::calls::{Owed, is_in_callback};

/// Called when a log sync that no thread waits for has ended.
pub(crate) type SyncCallback = Box<dyn FnOnce(Result<()>) + Send>;

/// The log is to be durable up to `lsn`.
pub(super) struct Request {
    pub(super) lsn: Lsn,
    pub(super) callback: Option<(Owed, SyncCallback)>,
}

/// What is to be synced, and by whom. Locks: `state` is a leaf but for the start of the thread.
#[derive(Default)]
pub(crate) struct SyncQueue {
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
pub(super) struct Round {
    pub(super) requests: Vec<Request>,
    /// How the log was closed, if it was: nothing is synced after that.
    pub(super) ended: Option<Result<()>>,
}

impl SyncQueue {
    /// Enters a request, for the thread that `start` makes if there is none. What the caller has
    /// to answer itself: the request, if the log has ended; all of them, if there is no thread.
    pub(super) fn enter(
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
    pub(super) fn next(&self) -> Option<Round> {
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

    pub(super) fn synced(&self) {
        self.state.lock().syncing = false;
        self.changed.notify_all();
    }

    /// Whether the log has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended.is_some()
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
    pub(super) fn end(&self, result: Result<()>) -> Vec<Request> {
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
