//! Files that nobody needs: their removal, also if the device does not let go of one at once, and
//! the space that it keeps until the removal is durable.
//!
//! Invariants: (1) a file whose removal was decided and failed is tried again with every removal
//! that succeeds, when space is asked for, and when the store is closed; (2) a name is not removed
//! any more once it is given to a new file, nor once the lock of the store was given up. Requires:
//! a name is given only when no removal of it is under way (its file is there until then).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sched::{Condvar, Mutex};
use crate::device::Dir;
use crate::storage::files::names::class_of;

/// What was removed from a directory, and what is still to be. Locks: `state`, over requests to the
/// device that remove what is left.
#[derive(Default)]
pub(crate) struct Removals {
    /// Something was removed whose space the device may not have given back yet.
    unsettled: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Names that the device did not let go of.
    left: BTreeSet<String>,
    /// Removals that are under way.
    running: usize,
    /// The store may be somebody else's soon, or is.
    ended: bool,
}

/// A removal under way.
struct Running<'a>(&'a Removals);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
        self.0.changed.notify_all();
    }
}

impl Removals {
    /// Removes `name`. If the device does not let go of it, it is tried again with another removal.
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
                self.note();
                self.try_again(dir);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => {
                self.state.lock().left.insert(name.to_owned());
            }
        }
        drop(running);
        removed
    }

    /// Tries again to remove what is left.
    fn try_again(&self, dir: &dyn Dir) {
        let mut state = self.state.lock();
        if !state.ended {
            state.left.retain(|name| self.stays(dir, name));
        }
    }

    /// Tries to remove a name that is left; whether it stays.
    fn stays(&self, dir: &dyn Dir, name: &str) -> bool {
        match dir.unlink(name, class_of(name)) {
            Ok(()) => {
                self.note();
                false
            }
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    }

    /// Tries a last time, after those that are under way. When it returns, nothing is removed here
    /// any more.
    pub(crate) fn end(&self, dir: &dyn Dir) {
        let left = {
            let mut state = self.state.lock();
            state.ended = true;
            while state.running > 0 {
                self.changed.wait(&mut state);
            }
            std::mem::take(&mut state.left)
        };
        for name in left {
            self.stays(dir, &name);
        }
    }

    /// Lets a new file have `name`. Called before it is made.
    pub(crate) fn give_name(&self, name: &str) {
        self.state.lock().left.remove(name);
    }

    /// Makes what was removed so far durable, if anything was, after trying again what was not.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn settle(&self, dir: &dyn Dir) -> Result<()> {
        self.try_again(dir);
        if !self.unsettled.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        dir.sync().inspect_err(|_| self.note())
    }

    fn note(&self) {
        self.unsettled.store(true, Ordering::Release);
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
            files.write_root(b"root").expect("a root");
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
        scene.files.settle_removals().expect("nothing was removed");
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
