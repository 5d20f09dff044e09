//! Callbacks of commits: where they run, and who waits until they were called.
//!
//! Invariants: (1) a callback runs without a lock of the engine and without the lead, and a panic
//! in it ends there; (2) it is owed from the moment in which it is entered until it has returned,
//! whatever becomes of its batch and whoever makes the sync that it waits for; (3) who is in a
//! callback, of whatever store, waits for no other one: two that close a store, or each other's,
//! would wait for each other.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::error::IgnoreError;
use crate::base::sched::{self, Condvar, Mutex};

/// The callbacks of a store that were not called yet. Locks: `state` is a leaf.
#[derive(Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the next one that is entered.
    next: u64,
    /// The numbers of those that have not returned.
    owed: BTreeSet<u64>,
}

/// One callback that has to be called.
pub(crate) struct Owed {
    calls: Arc<Calls>,
    number: u64,
}

thread_local! {
    /// Callbacks that this thread is in. Without a destructor: it can be asked in those of others.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is in a callback.
pub(crate) fn is_in_callback() -> bool {
    DEPTH.get() > 0
}

impl Calls {
    /// Enters a callback.
    pub(crate) fn owe(self: &Arc<Self>) -> Owed {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.owed.insert(number);
        Owed { calls: Arc::clone(self), number }
    }

    /// Waits until all callbacks that were entered before have returned; not in a callback.
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
        self.calls.state.lock().owed.remove(&self.number);
        self.calls.changed.notify_all();
    }
}
