//! A crash at the end of a run, and how long it takes to open the store after it.
//!
//! A process that is killed leaves what it had written to files, synced or not. So the crash is a
//! copy of the store's files as they are at one instant, and what is opened is the copy, on an idle
//! disk of the same kind. Not here: power cuts, which lose what was not synced (`weir-sim`).

use weir::Db;
use weir::sim::{MemDir, Simulation, TimedDir, TimedOptions};

use crate::settings::Settings;
use crate::store;

/// What opening a store after a crash took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opened {
    /// Virtual seconds.
    pub(crate) seconds: f64,
    /// Bytes of the log that were there.
    pub(crate) log_bytes: u64,
}

/// The files of a store at the instant of a crash.
pub(crate) struct Crashed {
    files: MemDir,
    log_bytes: u64,
}

impl Crashed {
    /// What is in `files`, those of the store `db`, now.
    pub(crate) fn of(db: &Db, files: &MemDir) -> Self {
        Self { files: files.copy(), log_bytes: db.metrics().log_bytes_live }
    }

    /// Opens the store on a disk with `options`.
    ///
    /// # Errors
    /// The engine's, as text.
    pub(crate) fn open(
        self,
        simulation: &Simulation,
        options: TimedOptions,
        settings: &Settings,
        seed: u64,
    ) -> Result<Opened, String> {
        let dir = TimedDir::new(self.files.dir(), weir::sim::class_of, options);
        let dir = dir.map_err(|e| e.to_string())?;
        let start = simulation.now_nanos();
        let db = store::open(dir.dir(), settings, seed)?;
        let seconds = (simulation.now_nanos() - start) as f64 / 1e9;
        db.close().map_err(|e| format!("closing the store after a crash: {e}"))?;
        Ok(Opened { seconds, log_bytes: self.log_bytes })
    }
}
