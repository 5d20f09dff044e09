//! What a run is doing, as other threads may see and stop it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// What a run is doing now, for a progress line; may be read by other threads.
#[derive(Debug, Default)]
pub struct Progress {
    /// Operations done in this phase; behind by up to 256 per client.
    pub done: AtomicU64,
    /// Operations planned in this phase.
    pub total: AtomicU64,
    phase: AtomicU8,
    stop: AtomicBool,
}

/// What a run does, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Opening or nothing yet.
    Idle = 0,
    /// Filling the store that the workload needs; not measured.
    Loading = 1,
    /// The workload itself.
    Running = 2,
    /// Waiting until flushes and compactions are done.
    Draining = 3,
    /// The workload before it is measured.
    Warming = 4,
}

impl Progress {
    /// What the run does now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            1 => Phase::Loading,
            2 => Phase::Running,
            3 => Phase::Draining,
            4 => Phase::Warming,
            _ => Phase::Idle,
        }
    }

    /// Makes every client stop before its next operation; the run ends as if it were complete.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether [`Progress::stop`] was called.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self, phase: Phase, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}
