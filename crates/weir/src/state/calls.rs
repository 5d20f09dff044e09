//! Pending callbacks of commits: how they run, and the wait until all have returned.
//!
//! Invariants: (1) a callback runs without a lock of the engine and without the lead, and a panic
//! in it is caught; (2) it is *owed* (pending) from its registration until it has returned, in
//! every outcome of its batch and of the sync that it waits for; (3) code in a callback, of any
//! store, does not wait for other callbacks: two that close a store, or each other's, would
//! deadlock.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::error::IgnoreError;
use crate::base::sched::{self, Condvar, Mutex};

/// The pending callbacks of a store. Locks: `state` is a leaf.
#[derive(Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of the next one registered.
    next: u64,
    /// Numbers of those that have not returned.
    owed: BTreeSet<u64>,
}

/// A pending callback.
pub(crate) struct Owed {
    calls: Arc<Calls>,
    number: u64,
}

thread_local! {
    /// Nesting of callbacks on this thread. It has no destructor, so it can be read in those of
    /// others.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread runs a callback.
pub(crate) fn is_in_callback() -> bool {
    DEPTH.get() > 0
}

impl Calls {
    /// Registers a callback.
    pub(crate) fn owe(self: &Arc<Self>) -> Owed {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.owed.insert(number);
        Owed { calls: Arc::clone(self), number }
    }

    /// Waits until all callbacks registered before have returned; inside a callback it returns at
    /// once.
    ///
    /// Requires: the caller does not lead and holds no lock.
    pub(crate) fn wait_until_called(&self) {
        if is_in_callback() {
            return;
        }
        let mut state = self.state.lock();
        let end = state.next;
        while state.owed.first().is_some_and(|number| *number < end) {
            self.changed.wait(&mut state);
        }
    }
}

impl Owed {
    /// Runs the callback.
    ///
    /// Requires: as for [`Calls::wait_until_called`].
    pub(crate) fn call(self, callback: impl FnOnce()) {
        let called = || {
            callback();
            Ok(())
        };
        DEPTH.set(DEPTH.get() + 1);
        let called = sched::catch_panic("a callback", called);
        DEPTH.set(DEPTH.get() - 1);
        called.ignore_error("the panic was reported; the store goes on without the user's code");
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        let was_owed = self.calls.state.lock().owed.remove(&self.number);
        debug_assert!(was_owed, "callback {} was not registered", self.number);
        self.calls.changed.notify_all();
    }
}
