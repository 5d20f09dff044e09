//! Pins of the log: what of it is kept for keyspaces that are being created.
//!
//! Not here: what the pins protect (`log_start`).

use crate::base::sched::Mutex;
use crate::log::LogPosition;

/// What of the log is kept for keyspaces that are in no root yet.
#[derive(Default)]
pub(crate) struct LogPins {
    starts: Mutex<Vec<LogPosition>>,
}

impl LogPins {
    /// Whether there is a pin.
    pub(super) fn are_held(&self) -> bool {
        !self.starts.lock().is_empty()
    }

    /// Keeps the log from what `start` gives on, which is asked under the lock.
    pub(super) fn pin(&self, start: impl FnOnce() -> LogPosition) -> LogPin<'_> {
        let mut starts = self.starts.lock();
        let start = start();
        starts.push(start);
        LogPin { pins: self, start }
    }

    /// The earliest of all pins and of what `start` gives, which is asked under the lock: who has
    /// dropped its pin by then is in what it sees.
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

/// Keeps the log as it was when it was taken, until it is dropped.
pub(super) struct LogPin<'a> {
    pins: &'a LogPins,
    start: LogPosition,
}

impl LogPin<'_> {
    /// Keeps the log until the store is opened again.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for LogPin<'_> {
    fn drop(&mut self) {
        let mut starts = self.pins.starts.lock();
        // Of two that are equal, one is as good as the other.
        if let Some(at) = starts.iter().position(|start| *start == self.start) {
            starts.swap_remove(at);
        }
    }
}
