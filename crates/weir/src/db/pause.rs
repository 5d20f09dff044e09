//! A pause of background work, for experiments: the tree stays as it is, in the middle of a merge
//! too, while reads and writes go on.
//!
//! Not a part of the product: writers that fill all memtables wait for the end of the pause.
//!
//! Invariant: log segments are prepared in a pause too, so that only full memtables stop a writer.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::clock;
use crate::db::Db;
use crate::db::engine::Engine;

/// Whether background work pauses.
#[derive(Default)]
pub(crate) struct Pause(AtomicBool);

impl Pause {
    /// Whether it pauses now.
    pub(super) fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Db {
    /// Pauses background work or lets it go on: no flush and no compaction begins in a pause, and
    /// those that run wait at their next step. For experiments. Close no store in a pause whose
    /// writes are in no log: it would wait for a flush.
    pub fn pause_background(&self, pause: bool) {
        let engine = &self.handle.engine;
        engine.jobs.pause_of_work.0.store(pause, Ordering::Release);
        engine.shared.wake_workers();
    }

    /// Whether background work pauses.
    #[must_use]
    pub fn background_is_paused(&self) -> bool {
        self.handle.engine.jobs.pause_of_work.is_on()
    }
}

impl Engine {
    /// Waits for the end of a pause, or until a job should give up.
    pub(super) fn wait_while_paused(&self, give_up: &dyn Fn() -> bool) {
        while self.jobs.pause_of_work.is_on() {
            let seen = self.shared.work_generation();
            if give_up() || !self.jobs.pause_of_work.is_on() {
                return;
            }
            self.run_urgent();
            self.shared.wait_for_work(seen, self.pause_of_deferred(clock::now_nanos()));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Db, LeveledOptions, Options};

    /// Goal: a tree does not change in a pause, and goes on changing behind it. Method: fewer write
    /// buffers than may wait, in a pause; reads beside it. (The laboratory pauses in the middle of
    /// a merge.)
    #[test]
    fn a_pause_freezes_the_tree() {
        let dir = tempfile::tempdir().unwrap();
        let leveled = LeveledOptions::default().base_level_bytes(256 << 10).l0_trigger(1);
        let options = Options::default().write_buffer_bytes(64 << 10).compaction(leveled);
        let options = options.immutables_max(16).table_bytes(64 << 10);
        let db = Db::builder(dir.path().join("db")).default_options(options).open().unwrap();
        let write = |rounds: u32| {
            for i in 0..rounds * 400 {
                db.put((i % 1000).to_be_bytes(), [7; 200]).unwrap();
            }
        };
        write(10);
        db.wait_idle().unwrap();
        db.pause_background(true);
        assert!(db.background_is_paused());
        let before = db.metrics();
        write(2);
        let after = db.metrics();
        assert_eq!(after.flushes, before.flushes);
        assert_eq!(after.compactions, before.compactions);
        assert!(after.keyspaces[0].immutable_memtables >= 2, "{:?}", after.keyspaces[0]);
        assert!(db.get(999_u32.to_be_bytes()).unwrap().is_some());
        db.pause_background(false);
        db.wait_idle().unwrap();
        assert_eq!(db.metrics().keyspaces[0].immutable_memtables, 0);
        db.close().unwrap();
    }
}
