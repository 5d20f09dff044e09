//! Which version log counts where nothing but a version tells which tables live.
//!
//! Not here: what is left of that log (`version::salvage`), and where both superblocks are lost,
//! what the heads of version logs tell (`storage::slots`).
//!
//! Invariants: (1) a log that another one came after is not used, as far as the write-ahead log or
//! a table shows that one did; (2) nor is it taken without a word if tables of flushes show that
//! it, or the write-ahead log, went on: those that have a uid of this opening, are not named, and
//! have entries above what their keyspace has flushed. What was obsolete has none of these.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::BTreeSet;

use super::wal::Segments;
use super::{Repair, damage, sound_meta};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{SegmentNumber, TableUid};
use crate::base::table_meta::TableMeta;
use crate::log::peek;
use crate::storage::{LiveTable, LogKind, Object};
use crate::version::salvage::{Salvage, is_sound, went_on};
use crate::version::set::{UIDS_AHEAD, adopt};

impl Repair {
    /// Refuses a store that is made before it is opened, and was not opened yet.
    ///
    /// # Errors
    /// `NotFound`; the device's.
    pub(super) fn check_opened(&self) -> Result<()> {
        let is_new = !self.aside.finds_all_tables()
            && self.aside.lost_root().is_none()
            && self.storage.read_root_record()?.is_none()
            && self.storage.list_logs(LogKind::Versions)?.is_empty()
            && self.storage.list_logs(LogKind::Wal)?.is_empty();
        if is_new {
            let what = format!(
                "the store in {} was formatted and never opened: there is nothing to repair",
                self.storage.path()
            );
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        Ok(())
    }

    /// The version log that counts where nothing but a version tells which tables live: the one
    /// that the root record names. Where that is lost, with all that told where it was, the log
    /// that has the greatest number, or if that has nothing but a whole base the one before it of
    /// the same opening: both began with the same root, and that one may have gone on. Or where it
    /// is older than the version log, the newer log that went on. The report says so, and a root
    /// record is made for it before anything else is changed ([`name_log`](Self::name_log)): from
    /// then on the store is damaged in no other way than others are.
    pub(super) fn named_log(&mut self, salvage: &Salvage) -> Result<SegmentNumber> {
        let newest = match self.aside.lost_root() {
            Some(_) => self.aside.unnamed_log(),
            None => self.outlived(salvage)?,
        };
        let (Some(newest), Some(record)) = (newest, salvage.record.filter(|_| salvage.whole))
        else {
            return Ok(salvage.named);
        };
        if salvage.log != newest {
            let peeked = peek(&*self.storage, LogKind::Versions, newest)?;
            let same = peeked.is_some_and(|peeked| peeked.opening == record.opening);
            // One that is damaged may have been in use.
            if !same || !is_sound(&self.context(), newest, record.lineage)? {
                return Ok(newest);
            }
        }
        if let Some(fault) = self.is_followed(salvage)? {
            self.report.structure.push(fault);
            return Ok(salvage.named);
        }
        self.report.unnamed = true;
        self.unnamed = Some((record.encode(), salvage.log));
        Ok(salvage.log)
    }

    /// The log that went on after the one which the root record names. A repair that was cut off
    /// leaves one that did not.
    fn outlived(&self, salvage: &Salvage) -> Result<Option<SegmentNumber>> {
        let Some(lineage) = salvage.lineage.filter(|_| !self.aside.finds_all_tables()) else {
            return Ok(None);
        };
        let is_newer = salvage.log > salvage.named;
        let went_on = is_newer && went_on(&self.context(), salvage.named, lineage)?.is_some();
        Ok(went_on.then_some(salvage.log))
    }

    /// The tables that no version names and flushes of this opening wrote, newer than what their
    /// keyspaces have flushed. None where the ends of slots cannot be read.
    pub(super) fn newer_tables(&mut self, salvage: &Salvage) -> Result<Vec<TableMeta>> {
        let root = &salvage.root;
        let written = match self.aside.written_tables() {
            Err(error) if error.kind() == ErrorKind::Io => return Ok(Vec::new()),
            written => written?,
        };
        // A repair that was cut off has given out some that nothing else tells of (H70).
        self.written = written.uids;
        let named: BTreeSet<TableUid> = root.all_tables().map(|table| table.meta().uid).collect();
        let first = TableUid::new(root.next_uid.get().saturating_sub(UIDS_AHEAD));
        let mut newer = Vec::new();
        for (uid, place, bytes) in written.tables {
            if uid < first || named.contains(&uid) {
                continue;
            }
            let place = &place;
            self.storage.adopt(&mut std::iter::once(LiveTable { uid, place, bytes }))?;
            let meta = match sound_meta(&*self.storage, uid) {
                Ok(meta) => meta,
                Err(error) if error.kind() == ErrorKind::Io => continue,
                Err(error) => {
                    damage(error)?;
                    continue;
                }
            };
            let is_newer = match root.keyspaces.get(meta.keyspace) {
                Some(keyspace) => meta.seq_max > keyspace.flushed_seq,
                None => meta.keyspace >= root.next_keyspace,
            };
            newer.extend(Some(meta).filter(|_| is_newer));
        }
        adopt(&*self.storage, root)?;
        Ok(newer)
    }

    /// Makes a root record for the version log that counts, where superblocks were lost. Not before
    /// everything that may refuse the repair: the next one finds no loss any more.
    pub(super) fn name_log(&mut self) -> Result<()> {
        match self.unnamed.take() {
            Some((record, log)) => self.storage.write_root_record(&record, log),
            None => Ok(()),
        }
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
        let what = format_args!(
            "both superblocks are lost, or older than it, and it is not the newest one: {what}"
        );
        Ok(Some(Error::corruption(file, 0, what)))
    }
}
