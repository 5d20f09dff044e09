//! Files that nobody needs: their removal, also if the device does not let go of one at once, and
//! the space that it keeps until the removal is durable.
//!
//! Invariants: (1) a file whose removal was decided and failed is removed with the next one that
//! succeeds, when the space is asked for, or when the store is closed, at the latest by the
//! recovery of the next opening; (2) a name is not removed any more once it is given to a new file.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::error::{ErrorKind, Result};
use crate::base::sched::Mutex;
use crate::device::Dir;

/// What was removed from a directory, and what is still to be. Locks: `left`, over requests to the
/// device.
#[derive(Default)]
pub(crate) struct Removals {
    /// Something was removed whose space the device may not have given back yet.
    unsettled: AtomicBool,
    /// Names that the device did not let go of.
    left: Mutex<BTreeSet<String>>,
    /// Whether there are some; a hint.
    any_left: AtomicBool,
}

impl Removals {
    /// Removes `name`. If the device does not let go of it, it is tried again with another removal.
    ///
    /// # Errors
    /// The device's; `NotFound`.
    pub(crate) fn remove(&self, dir: &dyn Dir, name: &str) -> Result<()> {
        match dir.unlink(name) {
            Ok(()) => {
                self.note();
                self.try_again(dir);
                Ok(())
            }
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    self.left.lock().insert(name.to_owned());
                    self.any_left.store(true, Ordering::Release);
                }
                Err(error)
            }
        }
    }

    /// Tries again to remove what is left, up to the first that fails.
    pub(crate) fn try_again(&self, dir: &dyn Dir) {
        if !self.any_left.load(Ordering::Acquire) {
            return;
        }
        let mut left = self.left.lock();
        while let Some(name) = left.first() {
            match dir.unlink(name) {
                Ok(()) => self.note(),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => return,
            }
            left.pop_first();
        }
        self.any_left.store(false, Ordering::Release);
    }

    /// Lets a new file have `name`. Called before it is made.
    pub(crate) fn give_name(&self, name: &str) {
        if self.any_left.load(Ordering::Acquire) {
            self.left.lock().remove(name);
        }
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
    use std::sync::Arc;

    use super::*;
    use crate::device::faulty::{Effect, ErrorCode, Fault, FaultyDir, Times};
    use crate::device::sim::{SimDisk, SimOptions};
    use crate::device::site::OpKind;
    use crate::storage::files::{Files, FilesOptions};
    use crate::storage::{LogKind, Storage};

    /// A store with the logs 1 to 3; removing 1 fails.
    fn store(times: Times) -> (SimDisk, FaultyDir, Files) {
        let disk = SimDisk::new(SimOptions::default());
        let faulty = FaultyDir::over_disk(&disk);
        let files = FaultyDir::over_disk(&disk);
        let faults = files.faults();
        let options = FilesOptions { create: true, read_only: false };
        let files = Files::open(Arc::new(files), options).expect("a new store");
        for number in 1..=3 {
            files.create_log(LogKind::Wal, number, 0).expect("a log");
        }
        let (op, effect) = (Some(OpKind::Unlink), Effect::Fail(ErrorCode::Eio));
        faults.arm(Fault { op, class: None, after: 0, times, effect });
        files.remove_log(LogKind::Wal, 1).expect_err("the device fails");
        (disk, faulty, files)
    }

    fn logs(dir: &FaultyDir) -> Vec<String> {
        let names = dir.list().expect("a list");
        names.into_iter().filter(|name| name.starts_with("wal-")).collect()
    }

    /// Goal: what the device did not let go of goes with the next removal, or at the end.
    #[test]
    fn what_is_left_goes_later() {
        let (_disk, dir, files) = store(Times::Once);
        assert_eq!(logs(&dir).len(), 3);
        files.remove_log(LogKind::Wal, 3).expect("a sound device");
        assert_eq!(logs(&dir), ["wal-000002.log"]);
        let (_disk, dir, files) = store(Times::Once);
        files.unlock();
        assert_eq!(logs(&dir), ["wal-000002.log", "wal-000003.log"]);
        // One that never lets go keeps nobody.
        let (_disk, dir, files) = store(Times::Forever);
        files.settle_removals().expect("nothing was removed");
        files.unlock();
        assert_eq!(logs(&dir).len(), 3);
    }

    /// Goal: a new file is not taken for what is left under its name.
    #[test]
    fn a_name_that_is_given_again_is_kept() {
        let (_disk, dir, files) = store(Times::Once);
        dir.unlink("wal-000001.log").expect("the device has done it late");
        files.recycle_log(LogKind::Wal, 2, 1).expect("the name is free");
        files.remove_log(LogKind::Wal, 3).expect("a sound device");
        assert_eq!(logs(&dir), ["wal-000001.log"]);
        let (_disk, dir, files) = store(Times::Once);
        dir.unlink("wal-000001.log").expect("the device has done it late");
        files.create_log(LogKind::Wal, 1, 0).expect("the name is free");
        files.unlock();
        assert_eq!(logs(&dir).len(), 3);
    }
}
