//! Callbacks of commits: where they run, and who waits until they were called.
//!
//! Invariants: (1) a callback runs without a lock of the engine and without the lead, and a panic
//! in it ends there; (2) it is owed from the moment in which it is entered until it has returned,
//! whatever becomes of its batch; (3) who is in a callback of a store waits for no other one of the
//! same store: two that close it at once would wait for each other.

use std::cell::Cell;
use std::sync::Arc;

use crate::base::error::IgnoreError;
use crate::base::sched::{self, Condvar, Mutex};

/// The callbacks of a store that were not called yet. Locks: `state` is a leaf.
#[derive(Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
    none_owed: Condvar,
}

#[derive(Default)]
struct State {
    owed: usize,
    /// The threads that are in a callback, as often as they are.
    inside: Vec<ThreadMark>,
}

/// One callback that has to be called.
pub(crate) struct Owed {
    calls: Arc<Calls>,
    inside: Option<ThreadMark>,
}

/// What tells threads apart, also in a destructor of another thread-local.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ThreadMark(usize);

impl ThreadMark {
    fn own() -> Self {
        thread_local! {
            static PLACE: Cell<u8> = const { Cell::new(0) };
        }
        Self(PLACE.with(|place| std::ptr::from_ref(place).addr()))
    }
}

impl Calls {
    /// Enters a callback.
    pub(crate) fn owe(self: &Arc<Self>) -> Owed {
        self.state.lock().owed += 1;
        Owed { calls: Arc::clone(self), inside: None }
    }

    /// Waits until all callbacks that were entered have returned; not in one of them.
    ///
    /// Requires: the caller does not lead and holds no lock.
    pub(crate) fn wait_until_called(&self) {
        let own = ThreadMark::own();
        let mut state = self.state.lock();
        while state.owed > 0 && !state.inside.contains(&own) {
            self.none_owed.wait(&mut state);
        }
    }
}

impl Owed {
    /// Runs the callback.
    ///
    /// Requires: as for [`Calls::wait_until_called`].
    pub(crate) fn call(mut self, callback: impl FnOnce()) {
        let own = ThreadMark::own();
        self.calls.state.lock().inside.push(own);
        self.inside = Some(own);
        let called = || {
            callback();
            Ok(())
        };
        sched::catch_panic("a callback", called)
            .ignore_error("the panic was reported; the store goes on without the user's code");
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        let mut state = self.calls.state.lock();
        state.owed -= 1;
        if let Some(own) = self.inside
            && let Some(at) = state.inside.iter().position(|mark| *mark == own)
        {
            state.inside.swap_remove(at);
        }
        let none_owed = state.owed == 0;
        drop(state);
        if none_owed {
            self.calls.none_owed.notify_all();
        }
    }
}
