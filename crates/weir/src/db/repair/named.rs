//! Which version log counts where nothing but a version tells which tables live.
//!
//! Not here: what is left of that log (`version::salvage`), and where both superblocks are lost,
//! what the heads of version logs tell (`storage::slots`).
//!
//! Invariant: a log that another one came after is not used, as far as the write-ahead log or a
//! table shows that one did.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use super::Repair;
use super::wal::Segments;
use crate::base::error::{Error, Result};
use crate::base::ids::SegmentNumber;
use crate::log::peek;
use crate::storage::{LogKind, Object};
use crate::version::salvage::Salvage;

impl Repair {
    /// The version log that counts where nothing but a version tells which tables live: the one
    /// that the root record names. Where that is lost, with all that told where it was, the log
    /// that has the greatest number, or the one before it of the same opening: both began with the
    /// same root, and that one may have gone on. The report says so, and a root record is made
    /// for it first of all: from then on the store is damaged in no other way than others are.
    pub(super) fn named_log(&mut self, salvage: &Salvage) -> Result<SegmentNumber> {
        let newest = self.aside.unnamed_log();
        let (Some(newest), Some(record)) = (newest, salvage.record.filter(|_| salvage.whole))
        else {
            return Ok(salvage.named);
        };
        let peeked = peek(&*self.storage, LogKind::Versions, newest)?;
        let same = peeked.is_some_and(|peeked| peeked.opening == record.opening);
        if salvage.log != newest && !same {
            return Ok(newest);
        }
        if let Some(fault) = self.is_followed(salvage)? {
            self.report.structure.push(fault);
            return Ok(salvage.named);
        }
        self.report.unnamed = true;
        if self.elsewhere.is_none() {
            self.storage.write_root_record(&record.encode(), salvage.log)?;
        }
        Ok(salvage.log)
    }

    /// What tells of a version log that came after the one that was found, and left nothing else:
    /// an opening writes its own before the first segment of its write-ahead log, and no table has
    /// a uid above the mark that the version log has recorded.
    fn is_followed(&self, salvage: &Salvage) -> Result<Option<Error>> {
        let root = &salvage.root;
        let segments = Segments::read(&*self.storage)?;
        let newest = self.aside.written_tables()?.newest;
        let what = if segments.last_opening(root.lineage) > root.opening {
            "the write-ahead log is of a later opening of the store"
        } else if newest.is_some_and(|uid| uid >= root.next_uid) {
            "there are tables that came after it"
        } else {
            return Ok(None);
        };
        let file = self.storage.name_of(Object::Log(LogKind::Versions, salvage.log));
        let what = format_args!("both superblocks are lost, and it is not the newest one: {what}");
        Ok(Some(Error::corruption(file, 0, what)))
    }
}
