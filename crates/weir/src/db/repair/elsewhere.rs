//! The place of a new tree that is not the damaged store's own.
//!
//! It is opened when it is known that there is something to write, and must hold nothing. Until it
//! is whole its root record says so, and every opening and other repair refuses it by name. After
//! an error a directory is empty again; a file or a device stays refused until it is formatted
//! again, since trailers of what was written stay in it.
//!
//! Not here: what is written (`rebuild`).

use std::sync::Arc;

use super::Repair;
use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::ids::{Lineage, SegmentNumber};
use crate::storage::io::IoCounters;
use crate::storage::open::Location;
use crate::storage::{LogKind, OpenOptions, Storage};
use crate::version::record::RootRecord;
use crate::version::root::Root;
use crate::version::set::adopt;

/// Another place for the new tree.
pub(super) enum Elsewhere {
    /// Where it is to be.
    Place(Location),
    /// Opened, locked, and empty but for what this repair wrote.
    Open(Arc<dyn Storage>),
    /// It could not be opened.
    Failed,
}

impl Repair {
    /// Where tables and the new version log go.
    pub(super) fn target(&self) -> &Arc<dyn Storage> {
        match &self.elsewhere {
            Some(Elsewhere::Open(target)) => target,
            _ => &self.storage,
        }
    }

    /// Looks at the other place, if there is one, before much is read for it. It is asked again
    /// when it is opened.
    ///
    /// # Errors
    /// As [`open_target`](Self::open_target).
    pub(super) fn look_at_target(&self) -> Result<()> {
        let Some(Elsewhere::Place(place)) = &self.elsewhere else { return Ok(()) };
        let options = OpenOptions { create: false, read_only: true };
        let target = match place.clone().open(options, false, &Arc::new(IoCounters::default())) {
            Ok(target) => target,
            // It will be made.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unfit(error)),
        };
        let looked = check_empty(&*target);
        target.unlock();
        looked
    }

    /// Opens the other place, if there is one.
    ///
    /// # Errors
    /// `Conflict` if there is something in it; the device's.
    pub(super) fn open_target(&mut self) -> Result<()> {
        let Some(Elsewhere::Place(place)) =
            self.elsewhere.take_if(|place| matches!(place, Elsewhere::Place(_)))
        else {
            return Ok(());
        };
        self.elsewhere = Some(Elsewhere::Failed);
        let options = OpenOptions { create: true, read_only: false };
        let target = place.open(options, false, &Arc::new(IoCounters::default()));
        let target = target.map_err(unfit)?;
        check_empty(&*target).inspect_err(|_| target.unlock())?;
        let lineage = Lineage::new(self.prng.next_u64());
        adopt(&*target, &Root::empty(lineage, 0))?;
        let unfinished = RootRecord::unfinished(lineage);
        let begun = target.write_root_record(&unfinished, SegmentNumber::ZERO);
        self.elsewhere = Some(Elsewhere::Open(target));
        begun
    }

    /// Unlocks the other place; if the repair has failed, without what it wrote.
    pub(super) fn leave_target(&self, done: bool) {
        let Some(Elsewhere::Open(target)) = &self.elsewhere else { return };
        // A root that an error was told of may be there all the same, and name the tables.
        let record = target.read_root_record();
        let is_left = matches!(record, Ok(Some(record)) if RootRecord::is_unfinished(&record));
        if !done && is_left && target.slot_space().is_none() {
            let cleared = clear(&**target).and_then(|()| target.remove_root_record());
            cleared.ignore_error("it is refused by name");
        }
        target.unlock();
    }
}

/// Why a place cannot be opened, for one that is to hold a new store: advice about a damaged one
/// does not fit.
fn unfit(error: Error) -> Error {
    let what = format!(
        "the new store cannot be made there: {}; name a place where nothing is, or a file that was \
         formatted and never opened (`weir format --unopened`)",
        error.message()
    );
    // Nor is damage there any of the store that is repaired.
    let kind = match error.kind() {
        ErrorKind::Corruption => ErrorKind::Conflict,
        kind => kind,
    };
    Error::new(kind, what)
}

/// That nothing was ever written into a place.
///
/// # Errors
/// `Conflict` if there is something in it; the device's.
fn check_empty(target: &dyn Storage) -> Result<()> {
    let has_tables = !target.list_tables()?.is_empty();
    let has_logs = !target.list_logs(LogKind::Wal)?.is_empty();
    if target.read_root_record()?.is_none() && !has_tables && !has_logs {
        return Ok(());
    }
    let what = format!(
        "there is a store in {}, or a part of one; name a place where nothing is, or a file that \
         was formatted and never opened (`weir format --unopened`)",
        target.path()
    );
    Err(Error::new(ErrorKind::Conflict, what))
}

/// Removes all that a repair has written which was not finished, but for the root record.
fn clear(target: &dyn Storage) -> Result<()> {
    for uid in target.list_tables()? {
        target.remove_table(uid)?;
    }
    for kind in [LogKind::Wal, LogKind::Versions] {
        for number in target.list_logs(kind)? {
            target.remove_log(kind, number)?;
        }
    }
    target.sync_names()
}
