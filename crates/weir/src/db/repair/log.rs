//! Case 2 of a repair, the write-ahead log: what can be read of it becomes tables of level 0, and a
//! fresh log starts.
//!
//! The log is read from the earliest group that any keyspace needs up to the first damage. A
//! keyspace whose tables cover more than that has its own start behind the damage: from there the
//! log is read once more, for the keyspaces that begin there or later, and so on behind the next
//! damage. What a keyspace gets is so always what follows its tables without a hole. A batch over
//! several keyspaces may be kept for some of them only; the others' part is counted as lost.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::sync::Arc;

use super::wal::{LogEnd, Memtables, Segments, read_log};
use super::{LostLog, Output, Repair, log_source};
use crate::base::error::{Error, Result};
use crate::base::ids::{Level, Lsn, SegmentNumber};
use crate::base::key::Seq;
use crate::log::{GroupView, LogPosition, groups_behind, is_blank};
use crate::storage::{LogKind, Object, check_ahead};
use crate::version::edit::{Flushed, VersionEdit};
use crate::version::keyspaces::KeyspaceVersion;
use crate::version::root::Root;
use crate::version::set::VersionSet;
use crate::version::shape::RunId;
use crate::write::batch::Records;

/// One reading of the log, from `start` to its end or the next damage.
struct Pass {
    start: LogPosition,
    /// LSN of the first group of keyspaces that take part: those that begin there or later.
    from: Lsn,
}

impl Pass {
    fn takes(&self, keyspace: &KeyspaceVersion) -> bool {
        keyspace.log_start.lsn >= self.from
    }
}

/// What a pass has read, and how much of it belongs to no keyspace.
#[derive(Default)]
struct Counts {
    groups: u64,
    entries: u64,
    lost_groups: u64,
    lost_entries: u64,
    last_seq: Seq,
}

impl Repair {
    /// Reads the write-ahead log into tables, as the module's header says, and starts a fresh one.
    /// `fault` is what is wrong with it, if nothing more exact is found.
    pub(super) fn salvage_log(
        &mut self,
        set: &Arc<VersionSet>,
        segments: &Segments,
        fault: &Error,
    ) -> Result<()> {
        let root = set.current();
        for number in segments.foreign(root.lineage) {
            self.set_aside(Object::Log(LogKind::Wal, number))?;
        }
        let first = Pass { start: log_source(&root).start, from: Lsn::ZERO };
        let (end, counts) = self.read_pass(set, &first)?;
        let mut last_seq = counts.last_seq;
        self.report.groups_sound = counts.groups;
        let numbers = self.storage.list_logs(LogKind::Wal)?;
        let numbers: Vec<_> = numbers.into_iter().filter(|&n| n >= end.next.segment).collect();
        let mut behind =
            groups_behind(&*self.storage, LogKind::Wal, root.lineage, end.next, &numbers)?;
        let mut reached = end.next.lsn;
        while let Some(pass) = next_pass(&set.current(), reached) {
            let (end, counts) = self.read_pass(set, &pass)?;
            reached = end.next.lsn;
            last_seq = last_seq.max(counts.last_seq);
            let sound = counts.groups - counts.lost_groups;
            self.report.groups_sound += sound;
            behind.groups = behind.groups.saturating_sub(sound);
            let kept = counts.entries - counts.lost_entries;
            behind.entries = behind.entries.saturating_sub(kept);
        }
        let why = end.damage.unwrap_or_else(|| fault.clone());
        let (groups, entries) = (behind.groups, behind.entries);
        self.report.lost_log.push(LostLog { why, groups, entries });
        for number in numbers {
            if !is_blank(&*self.storage, LogKind::Wal, number)? {
                self.set_aside(Object::Log(LogKind::Wal, number))?;
            }
        }
        let root = set.current();
        // The flushes of later passes have raised the durable LSN to their ends.
        let last_lsn = end.next.lsn.previous().max(root.wal_durable_lsn).max(behind.last_lsn);
        let mut edit = VersionEdit::default();
        let fresh = Flushed {
            log_start: self.fresh_log(root.opening, end.next.segment, last_lsn)?,
            flushed_seq: root.last_seq.max(last_seq),
            durable_lsn: last_lsn,
        };
        for state in root.keyspaces.iter() {
            edit.keyspace(state.id).flushed = Some(fresh);
        }
        set.apply(edit)?;
        Ok(())
    }

    /// Reads the log for the keyspaces of `pass` and writes what they lack into tables.
    fn read_pass(&self, set: &Arc<VersionSet>, pass: &Pass) -> Result<(LogEnd, Counts)> {
        let root = set.current();
        let limit = self.options.memory_budget / 4;
        let mut memtables = Memtables::default();
        let mut counts = Counts::default();
        let mut source = log_source(&root);
        source.start = pass.start;
        let end = read_log(&*self.storage, source, &mut |group, first, records| {
            take_group(&root, pass, (group, first, records), &mut memtables, &mut counts);
            if memtables.bytes() >= limit {
                self.flush(set, pass, &mut memtables, group.next, counts.last_seq)?;
            }
            Ok(())
        })?;
        counts.last_seq = counts.last_seq.max(end.last_seq);
        self.flush(set, pass, &mut memtables, end.next, counts.last_seq)?;
        counts.groups = end.groups;
        Ok((end, counts))
    }

    /// Where a log starts that goes on from nothing: behind every number and LSN that was ever
    /// used, so that no group of the old log can be taken for one of it. The next opening writes
    /// it.
    pub(super) fn fresh_log(
        &self,
        opening: u32,
        segment: SegmentNumber,
        last_lsn: Lsn,
    ) -> Result<LogPosition> {
        let existing = self.target().list_logs(LogKind::Wal)?;
        let mut last = existing.last().map_or(segment, |&last| last.max(segment));
        let lost = if self.elsewhere.is_none() { self.aside.list_lost()? } else { Vec::new() };
        for (_, object) in lost {
            // Not one that was set aside because the store has not reached it.
            if let Object::Log(LogKind::Wal, number) = object
                && check_ahead(&*self.storage, object, last.get()).is_ok()
            {
                last = last.max(number);
            }
        }
        let segment = last.next().max(SegmentNumber::first_of(opening));
        let lsn = last_lsn.next();
        Ok(LogPosition { segment, offset: 0, lsn, opening, prev_crc: 0 })
    }

    /// Writes memtables out as runs of level 0, in one edit: the keyspaces of `pass` need the log
    /// from `next` on.
    fn flush(
        &self,
        set: &Arc<VersionSet>,
        pass: &Pass,
        memtables: &mut Memtables,
        next: LogPosition,
        last_seq: Seq,
    ) -> Result<()> {
        let root = set.current();
        let mut edit = VersionEdit::default();
        for (id, memtable) in memtables.take() {
            let Some(state) = root.keyspaces.get(id) else { continue };
            let uids = Arc::clone(set);
            let output = Output {
                keyspace: id,
                options: &state.options,
                run: RunId::filling(Level::ZERO, set.new_epoch()),
                hash_seed: root.hash_seed,
                new_uid: Arc::new(move || uids.new_uid()),
            };
            edit.keyspace(id).added =
                self.write(output, memtable.entries(), Box::new(memtable.cursor()))?;
        }
        for state in root.keyspaces.iter() {
            // One that was flushed behind the damage needs nothing of what was read.
            if pass.takes(state) && state.log_start.lsn <= next.lsn {
                edit.keyspace(state.id).flushed = Some(Flushed {
                    log_start: next,
                    flushed_seq: last_seq.max(state.flushed_seq),
                    durable_lsn: next.lsn.previous(),
                });
            }
        }
        set.apply(edit)?;
        Ok(())
    }
}

/// The next pass, for keyspaces that begin behind the group that a pass has stopped before.
fn next_pass(root: &Root, reached: Lsn) -> Option<Pass> {
    let starts = root.keyspaces.iter().map(|keyspace| keyspace.log_start);
    let behind = starts.filter(|start| start.lsn > reached);
    let start = behind.min_by_key(|start| (start.lsn, start.segment))?;
    Some(Pass { start, from: start.lsn })
}

/// Inserts what the keyspaces of a pass lack of a group.
fn take_group(
    root: &Root,
    pass: &Pass,
    (group, first, records): (&GroupView<'_>, Seq, Records<'_>),
    memtables: &mut Memtables,
    counts: &mut Counts,
) {
    let mut lost = 0;
    for (seq, record) in (first..).zip(records) {
        counts.last_seq = counts.last_seq.max(seq);
        let Some(keyspace) = root.keyspaces.get(record.keyspace) else { continue };
        match pass.takes(keyspace) {
            true if seq > keyspace.flushed_seq => memtables.insert(&record, seq),
            true => {}
            false => lost += 1,
        }
    }
    counts.entries += group.count;
    counts.lost_entries += lost;
    counts.lost_groups += u64::from(lost > 0);
}
