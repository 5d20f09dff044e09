//! Pins of the log: positions from which on it is kept for keyspaces that are being created.
//!
//! Not here: when the log is pinned and released (`log_start`).

use crate::base::sched::Mutex;
use crate::log::LogPosition;

/// Log positions kept for keyspaces that are in no root yet.
#[derive(Default)]
pub(crate) struct LogPins {
    starts: Mutex<Vec<LogPosition>>,
}

impl LogPins {
    /// Whether there is a pin.
    pub(super) fn are_held(&self) -> bool {
        !self.starts.lock().is_empty()
    }

    /// Pins the log from the position that `start` returns, which is called under the lock.
    pub(super) fn pin(&self, start: impl FnOnce() -> LogPosition) -> LogPin<'_> {
        let mut starts = self.starts.lock();
        let start = start();
        starts.push(start);
        LogPin { pins: self, start }
    }

    /// The earliest of all pins and of the position that `start` returns. It is called under the
    /// lock, so that it sees what was installed under pins that have been dropped.
    pub(super) fn earliest_with(
        &self,
        start: impl FnOnce() -> Option<LogPosition>,
    ) -> Option<LogPosition> {
        let starts = self.starts.lock();
        let start = start();
        let pinned = starts.iter().copied();
        pinned.chain(start).min_by_key(|start| (start.lsn, start.segment))
    }
}

/// A pin of the log; dropping it releases the log.
pub(super) struct LogPin<'a> {
    pins: &'a LogPins,
    start: LogPosition,
}

impl LogPin<'_> {
    /// Keeps the pin until the store is closed.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for LogPin<'_> {
    fn drop(&mut self) {
        let mut starts = self.pins.starts.lock();
        // Equal pins are interchangeable.
        let at = starts.iter().position(|start| *start == self.start);
        assert!(at.is_some(), "{:?} is unpinned, but not pinned", self.start);
        if let Some(at) = at {
            starts.swap_remove(at);
        }
    }
}
