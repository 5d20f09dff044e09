//! Removal of obsolete files: retries of removals that failed, and the sync that frees the space.
//!
//! Invariants: (1) a failed removal is retried with every removal that succeeds, when the store
//! runs out of space, and when it is closed; (2) a name is no longer removed once a new file has
//! it, nor once the store's lock is released. Requires: a name is reused only while no removal of
//! it is running.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sched::{Condvar, Mutex};
use crate::device::Dir;
use crate::storage::files::names::class_of;

/// The removals of a directory. Locks: `state`, held during the device requests that retry failed
/// removals.
#[derive(Default)]
pub(crate) struct Removals {
    /// Whether a removal is not durable yet, so that the device may still hold its space.
    unsynced: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Names whose removal failed.
    left: BTreeSet<String>,
    /// Number of running removals.
    running: usize,
    /// The store's lock is about to be released, or is.
    ended: bool,
}

/// A running removal.
struct Running<'a>(&'a Removals);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        assert!(state.running > 0, "a removal ends that did not begin");
        state.running -= 1;
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Removals {
    /// Removes `name`. A removal that fails is retried later.
    ///
    /// # Errors
    /// The device's; `NotFound`; `Closed` after [`end`](Self::end).
    pub(crate) fn remove(&self, dir: &dyn Dir, name: &str) -> Result<()> {
        {
            let mut state = self.state.lock();
            if state.ended {
                let why = format!("the store {} was closed", dir.path());
                return Err(Error::new(ErrorKind::Closed, why));
            }
            state.running += 1;
        }
        let running = Running(self);
        let removed = dir.unlink(name, class_of(name));
        match &removed {
            Ok(()) => {
                self.note_removed();
                self.retry(dir);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => {
                self.state.lock().left.insert(name.to_owned());
            }
        }
        drop(running);
        removed
    }

    /// Retries the removals that failed.
    fn retry(&self, dir: &dyn Dir) {
        let mut state = self.state.lock();
        if !state.ended {
            state.left.retain(|name| self.stays(dir, name));
        }
    }

    /// Retries one removal; whether the file is still there.
    fn stays(&self, dir: &dyn Dir, name: &str) -> bool {
        match dir.unlink(name, class_of(name)) {
            Ok(()) => {
                self.note_removed();
                false
            }
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    }

    /// Waits for running removals and retries those that failed, a last time. Nothing is removed
    /// after it returns.
    pub(crate) fn end(&self, dir: &dyn Dir) {
        let left = {
            let mut state = self.state.lock();
            state.ended = true;
            while state.running > 0 {
                self.changed.wait(&mut state);
            }
            assert_eq!(state.running, 0, "no removal begins after the end");
            std::mem::take(&mut state.left)
        };
        for name in left {
            self.stays(dir, &name);
        }
    }

    /// Cancels the retry of a removal of `name`, which a new file is about to get.
    pub(crate) fn give_name(&self, name: &str) {
        self.state.lock().left.remove(name);
    }

    /// Retries the removals that failed, then makes the removals so far durable with one sync, if
    /// there were any.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn settle(&self, dir: &dyn Dir) -> Result<()> {
        self.retry(dir);
        if !self.unsynced.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        dir.sync().inspect_err(|_| self.note_removed())
    }

    fn note_removed(&self) {
        self.unsynced.store(true, Ordering::Release);
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::*;
    use crate::base::ids::{segment, segments, uid};
    use crate::device::FileClass;
    use crate::device::faulty::{Effect, ErrorCode, Fault, Faults, FaultyDir, Times};
    use crate::device::sim::{SimDisk, SimOptions};
    use crate::device::site::OpKind;
    use crate::storage::OpenOptions;
    use crate::storage::files::Files;
    use crate::storage::{LogKind, Storage};

    const OPTIONS: OpenOptions = OpenOptions { create: true, read_only: false };

    /// A store with the logs 1 to 3; the removal of log 1 has failed, and fails `times`.
    struct Scene {
        disk: SimDisk,
        faults: Faults,
        files: Files,
    }

    impl Scene {
        fn new(times: Times) -> Self {
            let disk = SimDisk::new(SimOptions::default());
            let faulty = FaultyDir::over_disk(&disk);
            let faults = faulty.faults();
            let files = Files::open(Arc::new(faulty), OPTIONS).expect("a new store");
            for number in segments([1, 2, 3]) {
                files.create_log(LogKind::Wal, number, 0).expect("a log");
            }
            files.write_root_record(b"root", segment(1)).expect("a root");
            let scene = Self { disk, faults, files };
            scene.arm(FileClass::Wal, times, Effect::Fail(ErrorCode::Eio));
            scene.files.remove_log(LogKind::Wal, segment(1)).expect_err("the device fails");
            scene
        }

        /// Has removals of a class of files fail.
        fn arm(&self, class: FileClass, times: Times, effect: Effect) {
            let (op, class) = (Some(OpKind::Unlink), Some(class));
            self.faults.arm(Fault { op, class, after: 0, times, effect });
        }

        /// The numbers of the logs that are there.
        fn logs(&self) -> Vec<u64> {
            let names = self.disk.dir().list().expect("a list");
            let number =
                |name: &String| name.strip_prefix("wal-")?.strip_suffix(".log")?.parse().ok();
            names.iter().filter_map(number).collect()
        }

        fn is_locked(&self) -> bool {
            Files::open(self.disk.dir(), OPTIONS).is_err_and(|e| e.kind() == ErrorKind::Locked)
        }
    }

    /// Goal: what the device did not let go of goes with the next removal, or at the end.
    #[test]
    fn what_is_left_goes_later() {
        let scene = Scene::new(Times::Once);
        assert_eq!(scene.logs(), [1, 2, 3]);
        scene.files.remove_log(LogKind::Wal, segment(3)).expect("a sound device");
        assert_eq!(scene.logs(), [2]);
        let scene = Scene::new(Times::Once);
        scene.files.unlock();
        assert_eq!(scene.logs(), [2, 3]);
    }

    /// Goal: one file that never goes keeps no other.
    #[test]
    fn what_never_goes_keeps_no_other() {
        let scene = Scene::new(Times::Once);
        drop(scene.files.create_table(uid(1), 0).expect("a table"));
        scene.arm(FileClass::Table, Times::Forever, Effect::Fail(ErrorCode::Eio));
        scene.files.remove_table(uid(1)).expect_err("the device fails");
        scene.files.unlock();
        assert_eq!(scene.logs(), [2, 3]);
        assert_eq!(scene.files.list_tables().expect("a list"), [uid(1)]);
    }

    /// Goal: once the store may be somebody else's, nothing is removed that was left.
    #[test]
    fn nothing_is_removed_after_the_end() {
        let scene = Scene::new(Times::Next(2));
        scene.files.unlock();
        assert!(!scene.is_locked());
        scene.files.finish_removals().expect("nothing was removed");
        let dir = scene.disk.dir();
        let late = scene.files.removals.remove(&*dir, "wal-000002.log");
        assert_eq!(late.expect_err("it may be another store's").kind(), ErrorKind::Closed);
        assert_eq!(scene.logs(), [1, 2, 3]);
    }

    /// Goal: the lock is given up though the device panics.
    #[test]
    fn a_panic_at_the_end_leaves_no_lock() {
        let scene = Scene::new(Times::Once);
        scene.arm(FileClass::Wal, Times::Once, Effect::Panic);
        assert!(scene.is_locked());
        let ended = catch_unwind(AssertUnwindSafe(|| scene.files.unlock()));
        assert!(ended.is_err() && !scene.is_locked());
    }

    /// Goal: a new file is not taken for what is left under its name.
    #[test]
    fn a_name_that_is_given_again_is_kept() {
        for recycles in [false, true] {
            let scene = Scene::new(Times::Once);
            scene
                .disk
                .dir()
                .unlink("wal-000001.log", FileClass::Wal)
                .expect("the device has done it late");
            let new = match recycles {
                true => scene.files.recycle_log(LogKind::Wal, segment(2), segment(1)),
                false => scene.files.create_log(LogKind::Wal, segment(1), 0),
            };
            new.expect("the name is free");
            scene.files.remove_log(LogKind::Wal, segment(3)).expect("a sound device");
            assert!(scene.logs().contains(&1));
        }
    }
}
