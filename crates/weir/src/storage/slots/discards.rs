//! Who discards, and when: the device is told of slots that become free by a thread, which pauses.
//!
//! A device takes milliseconds to discard what is in one request, and reads wait for it meanwhile.
//! So nobody who reads or writes discards what he happened to release: a thread does, in requests
//! of at most [`BYTES_MAX`], each followed by a pause as long as it took, up to a limit. Who needs
//! the slots now is in a hurry (`Space::discard_leaving`): then there are no pauses, and he helps.
//! Not here: the slots and requests (`table`).
//!
//! Invariants: (1) none begins once the device is given up (H73); (2) what is left at the end is
//! not discarded: it is free all the same.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::clock;
use crate::base::sched::{self, Condvar, Mutex, Thread};
use crate::storage::slots::table::Space;

/// Bytes of one request at most.
pub(super) const BYTES_MAX: u64 = 8 << 20;
/// No pause is longer, however long a request took: slots that are given back a hundred times
/// slower than a device takes them would be short.
const PAUSE_NANOS_MAX: u64 = 100_000_000;

/// The thread of a store that discards.
#[derive(Default)]
pub(super) struct Discards {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether there is something that the thread does not know of.
    woken: bool,
    /// So many wait for slots.
    hurried: usize,
    thread: Option<Thread>,
    closed: bool,
}

/// As long as it lives nobody pauses.
pub(super) struct Hurry<'a>(&'a Discards);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.state.lock().hurried -= 1;
    }
}

impl Discards {
    /// Has the thread discard what leaves `space`; whether there is one, which is started if there
    /// is none.
    pub(super) fn wake(self: &Arc<Self>, space: &Arc<Space>) -> bool {
        let mut state = self.state.lock();
        if state.thread.is_none() && !state.closed {
            let (own, space) = (Arc::clone(self), Arc::downgrade(space));
            state.thread = sched::spawn("weir-discard", move || own.run(&space)).ok();
        }
        state.woken = true;
        let has_thread = state.thread.is_some();
        drop(state);
        self.changed.notify_all();
        has_thread
    }

    /// Somebody waits for slots.
    pub(super) fn hurry(&self) -> Hurry<'_> {
        self.state.lock().hurried += 1;
        self.changed.notify_all();
        Hurry(self)
    }

    /// Returns after so many nanoseconds, and sooner if somebody is in a hurry or it ends.
    fn pause(&self, nanos: u64) {
        let end = clock::now_nanos() + nanos.min(PAUSE_NANOS_MAX);
        let mut state = self.state.lock();
        while state.hurried == 0 && !state.closed {
            let left = end.saturating_sub(clock::now_nanos());
            if left == 0 {
                return;
            }
            self.changed.wait_for(&mut state, Duration::from_nanos(left));
        }
    }

    /// Waits until there is something to discard; `false` at the end.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.woken && !state.closed {
            self.changed.wait(&mut state);
        }
        state.woken = false;
        !state.closed
    }

    /// Discards what leaves the space, with pauses, until the end.
    fn run(&self, space: &Weak<Space>) {
        while self.wait() {
            // Held only while there is something to do, so that the last user can let go of it.
            let Some(space) = space.upgrade() else { return };
            while space.discard_next(&|nanos| self.pause(nanos)) {}
        }
    }

    /// Lets the thread end.
    pub(super) fn end(&self) -> Option<Thread> {
        let thread = {
            let mut state = self.state.lock();
            state.closed = true;
            state.thread.take()
        };
        self.changed.notify_all();
        thread
    }

    /// The same; returns when it has ended.
    pub(super) fn close(&self) {
        if let Some(thread) = self.end() {
            // If it panicked, what it had is left out.
            let _ = thread.join();
        }
    }
}
