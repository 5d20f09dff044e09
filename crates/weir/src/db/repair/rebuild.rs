//! Case 4 of a repair: a tree out of nothing but tables and what the write-ahead log still holds.
//!
//! The log becomes tables first; then all sound tables of a keyspace are merged into one run of the
//! last level. Until the root record is switched nothing is removed, and a table that an
//! interrupted repair wrote is a table like any other, or in slots none: the same entry twice is
//! the same entry.
//!
//! What was lost cannot always be distinguished from what was obsolete. A gap between two segments
//! of the log is reported, and so is a table that the best known structure names and that is not
//! there, but where the keyspace has others that may have been merged from it.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::remains::{keys_overlap, read_blocks};
use super::wal::{LogEnd, Memtables, Segments, read_log};
use super::{
    LostLog, LostTable, Output, REACHED, Reached, Repair, damage, sound_meta, sound_table,
};
use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::ids::{
    DataEpoch, KeyspaceId, Level, Lineage, Lsn, Nonce, SegmentNumber, TableUid,
};
use crate::base::key::{SEQ_MAX, Seq, compare};
use crate::base::limits::KEYSPACES_MAX;
use crate::base::table_meta::TableMeta;
use crate::cache::Purpose;
use crate::compaction::execute::NewUid;
use crate::db::engine::DEFAULT_KEYSPACE;
use crate::log::{Behind, LogPosition, LogSource, groups_behind};
use crate::merge::MergingCursor;
use crate::options::Options;
use crate::storage::{LogKind, Object};
use crate::table::{CursorOptions, KeyRanges, ReadAhead, Table};
use crate::version::edit::{Flushed, VersionEdit};
use crate::version::root::Root;
use crate::version::run_cursor::RunCursor;
use crate::version::salvage::Salvage;
use crate::version::set::VersionSet;
use crate::version::shape::RunId;
use crate::version::tables::TableList;

/// Where the merged runs go: what is in the last level is never merged again without need.
const LEVEL: Level = Level::LAST;
/// How many sequence numbers are left out where tables may have been missed: more than are given
/// out between two looks at a store.
const SEQ_GAP: Seq = 1 << 40;

/// What a rebuild has collected so far.
struct Collected {
    tables: Vec<Arc<Table>>,
    /// Those of them that this repair has written.
    loose: Vec<TableUid>,
    bad: Vec<BadFile>,
    /// Sound tables of buffer lists, which are copies.
    left_out: Vec<TableUid>,
    next_uid: Arc<AtomicU64>,
    hash_seed: u64,
    /// Greatest LSN and opening in the log.
    last_lsn: Lsn,
    last_opening: u32,
    /// Segments with damage in them or behind it.
    broken: Vec<SegmentNumber>,
}

/// A file of a table that is not sound as a whole.
struct BadFile {
    uid: TableUid,
    why: Error,
    /// Its description, if that can be read.
    meta: Option<TableMeta>,
    kept: u64,
    lost: KeyRanges,
}

impl Collected {
    /// The uids of all files of tables, sound or not.
    fn present(&self) -> impl Iterator<Item = TableUid> {
        let sound = self.tables.iter().map(|table| table.meta().uid);
        sound.chain(self.bad.iter().map(|file| file.uid))
    }

    fn new_uid(&self) -> NewUid {
        let next = Arc::clone(&self.next_uid);
        Arc::new(move || Ok(TableUid::new(next.fetch_add(1, Ordering::Relaxed))))
    }
}

impl Repair {
    /// Rebuilds the tree from tables and log.
    pub(super) fn rebuild(&mut self, salvage: Salvage) -> Result<()> {
        if self.from_trailers {
            self.take_written(&salvage)?;
        } else if !self.aside.finds_all_tables() {
            // Without their own advice.
            let faults = self.report.structure.iter().map(|fault| format!("{fault:#}"));
            let faults: Vec<String> = faults.collect();
            let what = format!(
                "the version log of {} cannot be used ({}), and nothing else says which tables are \
                 obsolete; nothing was changed: restore a copy, or build the tree again from all \
                 that lies in it, by which keys that were deleted can come back: in a new store \
                 (`weir repair --from-trailers --into PATH`), which only reads this one, or in a \
                 copy of it (`weir repair --from-trailers`)",
                self.storage.path(),
                faults.join("; ")
            );
            return Err(match self.report.structure.first() {
                Some(fault) => Error::with_source(ErrorKind::Unsupported, what, fault.clone()),
                None => Error::new(ErrorKind::Unsupported, what),
            });
        }
        let known = Segments::read(&*self.storage)?;
        let lineage = salvage.lineage.or_else(|| known.lineage());
        let last_opening = lineage.map_or(0, |lineage| known.last_opening(lineage));
        let opening = salvage.root.opening.max(last_opening);
        self.clear_unreached(Reached {
            uid: salvage.root.next_uid.max(TableUid::new(REACHED)),
            version_log: salvage.log.max(SegmentNumber::new(REACHED)),
            segment: SegmentNumber::first_of(opening).max(SegmentNumber::new(REACHED)),
        })?;
        let segments = Segments::read(&*self.storage)?;
        let mut collected = self.collect_tables(&salvage)?;
        if lineage.is_none() && collected.tables.is_empty() {
            return Err(Error::invalid(format!(
                "{} holds nothing that can be recognised as a Weir store; it was left as it is",
                self.storage.path()
            )));
        }
        self.lengthen()?;
        self.report.rebuilt = true;
        let lineage = lineage.unwrap_or_else(|| Lineage::new(self.prng.next_u64()));
        let built = self.build(&salvage, lineage, &segments, &mut collected);
        // Nothing names what was written.
        let edit = built.inspect_err(|_| self.shorten())?;
        let merged: BTreeSet<TableUid> = collected.present().collect();
        let added = edit.keyspaces.values().flat_map(|part| &part.added);
        for table in added {
            let uid = table.meta.uid;
            assert!(!merged.contains(&uid), "table {uid} is of the new tree, and would be deleted");
        }
        let lineage = match self.elsewhere {
            Some(_) => Lineage::new(self.prng.next_u64()),
            None => lineage,
        };
        let started = self.start(&salvage, lineage, &collected, edit);
        started.map_err(|error| self.no_room(error))?;
        if self.elsewhere.is_some() {
            self.report.rebuilt_into = Some(self.target().path().to_owned());
            for uid in collected.loose {
                let removed = self.target().remove_table(uid);
                removed.ignore_error("the next opening removes tables that no version names");
            }
            return Ok(());
        }
        let merged = collected.tables.iter().map(|table| table.meta().uid);
        for uid in merged.chain(collected.left_out) {
            self.storage
                .remove_table(uid)
                .ignore_error("the next opening removes tables that no version names");
        }
        self.remove_replaced()
    }

    /// Writes all that was found into tables, and keeps what is damaged; the edit that makes an
    /// empty root the new tree. No record names these tables yet.
    fn build(
        &mut self,
        salvage: &Salvage,
        lineage: Lineage,
        segments: &Segments,
        collected: &mut Collected,
    ) -> Result<VersionEdit> {
        self.open_target()?;
        // Before anything is written: if this repair is cut off, the next one says that there was
        // one.
        self.copy_structure(salvage)?;
        if self.elsewhere.is_none() {
            self.aside.begin_rebuild(salvage.whole.then_some(salvage.log));
        }
        self.note_missing(salvage, collected);
        self.set_segments_aside(segments, lineage)?;
        let written = self
            .collect_remains(&salvage.root, collected)
            .and_then(|()| self.collect_log(&salvage.root, lineage, segments, collected))
            .and_then(|()| self.merge_all(&salvage.root, collected));
        let edit = written.map_err(|error| self.no_room(error))?;

        self.tell_lost(&salvage.root, std::mem::take(&mut collected.bad))?;
        let unreadable = segments.unreadable(lineage);
        for &number in collected.broken.iter().chain(&unreadable).collect::<BTreeSet<_>>() {
            self.copy_aside(Object::Log(LogKind::Wal, number))?;
        }
        Ok(edit)
    }

    /// Keeps what is damaged of tables, and says what is lost with them.
    fn tell_lost(&mut self, root: &Root, bad: Vec<BadFile>) -> Result<()> {
        for bad in bad {
            let kept_as = self.copy_aside(Object::Table(bad.uid))?;
            let state = bad.meta.as_ref().and_then(|m| root.keyspaces.get(m.keyspace));
            self.report.lost_tables.push(LostTable {
                uid: bad.uid.get(),
                keyspace: state.map(|state| state.name.to_string()),
                entries: bad.meta.as_ref().map(|meta| meta.entries),
                entries_kept: bad.kept,
                lost_ranges: bad.lost,
                why: bad.why,
                kept_as,
            });
        }
        Ok(())
    }

    /// Says what a rebuild in slots needs, if it did not find it.
    fn no_room(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::NoSpace || self.aside.finds_all_tables() {
            return error;
        }
        // Not what this repair has written.
        let mut uids = self.storage.list_tables().unwrap_or_default();
        uids.retain(|uid| self.written.binary_search(uid).is_ok());
        let tables = uids.iter().filter_map(|&uid| self.storage.open_table(uid).ok());
        let (tables, free) = (tables.map(|table| table.len()), self.storage.free_space());
        if self.elsewhere.is_some() {
            let what = format!(
                "{} has too little room for the new store, which may take as much as the tables \
                 that were found in {}, {} bytes, and a slot more for each where it is in slots: \
                 name a larger place ({} holds no store; a file has to be \
                 formatted again, `weir format --force`)",
                self.target().path(),
                self.storage.path(),
                tables.sum::<u64>(),
                self.target().path(),
            );
            return Error::with_source(ErrorKind::NoSpace, what, error);
        }
        let copies = match self.report.kept_files.is_empty() {
            true => String::new(),
            false => {
                format!(", and copies are beside them ({})", self.report.kept_files.join(", "))
            }
        };
        let what = format!(
            "the tree is built again beside the tables that lie in the slots, obsolete ones too: \
             of {} they have {} bytes, and {} are free; all of them are as they were{copies}: name \
             a place for a new store (`--into PATH`), which takes at most as much, or restore a \
             copy",
            self.storage.path(),
            tables.sum::<u64>(),
            free.table_bytes.unwrap_or(0)
        );
        Error::with_source(ErrorKind::NoSpace, what, error)
    }

    /// Says what to do where a store has no room for what is left of a damaged table.
    pub(super) fn no_room_in_place(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::NoSpace || self.aside.finds_all_tables() {
            return error;
        }
        let what = format!(
            "{} has no room for what is left of a damaged table, which is written before its place \
             is free; all of it is there, and can be read as far as it is sound: build the tree \
             again in a new store (`weir repair --from-trailers --into PATH`), by which keys that \
             were deleted can come back, or restore a copy",
            self.storage.path(),
        );
        Error::with_source(ErrorKind::NoSpace, what, error)
    }

    /// Names the tables that the best known structure has and that are not there, unless there are
    /// tables that it does not name and that may have been merged from them, which makes it an old
    /// one.
    fn note_missing(&mut self, salvage: &Salvage, collected: &Collected) {
        let Salvage { root, listed_only, .. } = salvage;
        let present: BTreeSet<TableUid> = collected.present().collect();
        let in_tree = root.tables().map(|table| table.meta().uid);
        let named: BTreeSet<TableUid> = in_tree.chain(listed_only.iter().copied()).collect();
        let orphans = collected.tables.iter().map(|table| table.meta());
        let orphans: Vec<_> = orphans.filter(|meta| !named.contains(&meta.uid)).collect();
        for state in root.keyspaces.iter() {
            let gone = state.version.tables().map(|table| table.meta());
            // All that an unfinished one was made of is there.
            let unfinished = |meta: &TableMeta| self.unfinished.binary_search(&meta.uid).is_ok();
            let gone: Vec<&TableMeta> =
                gone.filter(|meta| !present.contains(&meta.uid) && !unfinished(meta)).collect();
            for meta in gone {
                let newer = |orphan: &&TableMeta| {
                    orphan.seq_max >= meta.seq_min && keys_overlap(orphan, meta)
                };
                if orphans.iter().any(newer) {
                    continue;
                }
                let path = self.storage.name_of(Object::Table(meta.uid));
                self.report.lost_tables.push(LostTable {
                    uid: meta.uid.get(),
                    keyspace: Some(state.name.to_string()),
                    entries: Some(meta.entries),
                    entries_kept: 0,
                    lost_ranges: vec![(meta.smallest.clone(), meta.largest.clone())],
                    why: Error::corruption(path, 0, "the table is missing"),
                    kept_as: None,
                });
            }
        }
    }

    /// Reads all tables of the directory.
    fn collect_tables(&mut self, salvage: &Salvage) -> Result<Collected> {
        let (mut tables, mut bad) = (Vec::new(), Vec::new());
        for uid in self.aside.find_tables()? {
            match sound_table(&self.storage, uid) {
                Ok(table) => tables.push(table),
                Err(error) => {
                    let (why, lost) = (damage(error)?, KeyRanges::new());
                    bad.push(BadFile { uid, why, meta: None, kept: 0, lost });
                }
            }
        }
        let next_uid = self.next_uid(salvage.root.next_uid)?;
        let uids = tables.iter().map(|table| table.meta().check_uid.next());
        let next_uid = uids.max().unwrap_or(TableUid::FIRST).max(next_uid);
        let used = tables.iter().map(|table| table.meta().uid).max();
        assert!(used.is_none_or(|uid| uid < next_uid), "table {used:?}, the next is {next_uid}");
        let known = salvage.seed_known.then_some(salvage.root.hash_seed);
        let mut left_out = Vec::new();
        let sound: BTreeSet<TableUid> = tables.iter().map(|table| table.meta().uid).collect();
        if salvage.root.tables().all(|table| sound.contains(&table.meta().uid)) {
            // What lists have was merged into these: it can only bring deletes back.
            let is_copy = |uid: TableUid| salvage.listed_only.contains(&uid);
            left_out = sound.into_iter().filter(|&uid| is_copy(uid)).collect();
            tables.retain(|table| !is_copy(table.meta().uid));
            bad.retain(|file: &BadFile| !is_copy(file.uid));
        }
        self.report.tables_sound = tables.len() as u64;
        self.report.entries_sound = tables.iter().map(|table| table.meta().entries).sum();
        Ok(Collected {
            tables,
            loose: Vec::new(),
            bad,
            left_out,
            next_uid: Arc::new(AtomicU64::new(next_uid.get())),
            hash_seed: known.unwrap_or_else(|| self.prng.next_u64()),
            last_lsn: salvage.root.wal_durable_lsn,
            last_opening: 0,
            broken: Vec::new(),
        })
    }

    /// Writes what the sound blocks of damaged tables hold into tables that belong to no level yet.
    fn collect_remains(&self, root: &Root, collected: &mut Collected) -> Result<()> {
        let mut bad = std::mem::take(&mut collected.bad);
        for file in &mut bad {
            let own = match sound_meta(&*self.storage, file.uid) {
                Ok(meta) => Some(meta),
                Err(error) => {
                    damage(error)?;
                    None
                }
            };
            // The structure, even an old one, has the description that cannot be read from the
            // file.
            let named = || root.all_tables().find(|table| table.meta().uid == file.uid);
            let Some(meta) = own.or_else(|| named().map(|table| table.meta().clone())) else {
                continue;
            };
            let table = Table::without_seed(Arc::clone(&self.storage), Arc::new(meta.clone()));
            let (memtable, lost) = read_blocks(&table, &[])?;
            (file.kept, file.lost) = (memtable.entries(), lost);
            let mut memtables = Memtables::of(meta.keyspace, memtable);
            file.meta = Some(meta);
            self.flush_loose(root, &mut memtables, collected)?;
        }
        collected.bad = bad;
        Ok(())
    }

    /// Sets aside segments that are not of this log, or not where they belong.
    fn set_segments_aside(&mut self, segments: &Segments, lineage: Lineage) -> Result<()> {
        for number in segments.foreign(lineage) {
            self.set_aside(Object::Log(LogKind::Wal, number))?;
            let file = self.storage.name_of(Object::Log(LogKind::Wal, number));
            let what = "it is not the store's, or not under its number";
            let why = Error::corruption(file, 0, what);
            self.report.lost_log.push(LostLog { why, groups: 0, entries: 0 });
        }
        Ok(())
    }

    /// Writes what can be read of the log into tables.
    ///
    /// Where the log starts is not known: every chain of segments counts. One that begins with a
    /// segment whose predecessor is gone is taken for the oldest that was still needed.
    fn collect_log(
        &mut self,
        root: &Root,
        lineage: Lineage,
        segments: &Segments,
        collected: &mut Collected,
    ) -> Result<()> {
        collected.last_opening = segments.last_opening(lineage);
        let limit = self.options.memory_budget / 4;
        let mut memtables = Memtables::default();
        let mut reached = None;
        let chains = segments.chains(lineage);
        self.report.log_missing = chains.is_empty() && segments.unreadable(lineage).is_empty();
        for chain in chains {
            let Some(peeked) = chain.first().and_then(|number| segments.readable.get(number))
            else {
                continue;
            };
            if reached.is_some_and(|lsn| peeked.start.lsn > lsn) {
                let file = self.storage.name_of(Object::Log(LogKind::Wal, peeked.start.segment));
                let what = "the log before it is not there; what it held may be in tables";
                let why = Error::corruption(file, 0, what);
                self.report.lost_log.push(LostLog { why, groups: 0, entries: 0 });
            }
            let source = LogSource {
                kind: LogKind::Wal,
                start: peeked.start,
                durable_lsn: Lsn::ZERO,
                lineage,
                nonce: Nonce::NONE,
            };
            let storage = Arc::clone(&self.storage);
            let end = read_log(&*storage, source, &mut |_, first, records| {
                for (seq, record) in (first..).zip(records) {
                    memtables.insert(&record, seq);
                }
                if memtables.bytes() >= limit {
                    self.flush_loose(root, &mut memtables, collected)?;
                }
                Ok(())
            })?;
            self.report.groups_sound += end.groups;
            // Damage is reported on its own, with what follows it.
            reached = end.damage.is_none().then_some(end.next.lsn);
            let left: Vec<_> = chain.into_iter().filter(|&n| n >= end.next.segment).collect();
            let behind = groups_behind(&*storage, LogKind::Wal, lineage, end.next, &left)?;
            self.give_up(end, &behind, left, collected);
        }
        for number in segments.unreadable(lineage) {
            let (kind, start) = (LogKind::Wal, LogPosition::ORIGIN);
            let behind = match groups_behind(&*self.storage, kind, lineage, start, &[number]) {
                Err(why) if why.kind() == ErrorKind::Io => {
                    self.report.lost_log.push(LostLog { why, groups: 0, entries: 0 });
                    continue;
                }
                read => read?,
            };
            collected.last_lsn = collected.last_lsn.max(behind.last_lsn);
            collected.last_opening = collected.last_opening.max(behind.last_opening);
            // Without an intact group it counts as the torn start of a segment.
            if behind.groups > 0 {
                let file = self.storage.name_of(Object::Log(LogKind::Wal, number));
                let why = Error::corruption(file, 0, "its start cannot be read");
                let (groups, entries) = (behind.groups, behind.entries);
                self.report.lost_log.push(LostLog { why, groups, entries });
            }
        }
        self.flush_loose(root, &mut memtables, collected)
    }

    /// Notes what follows the end of a chain. Neither damage nor anything intact: the chain just
    /// ended. Something of which nothing proves that it was durable: a torn end, which no opening
    /// would read either.
    fn give_up(
        &mut self,
        end: LogEnd,
        behind: &Behind,
        left: Vec<SegmentNumber>,
        collected: &mut Collected,
    ) {
        collected.last_lsn = collected.last_lsn.max(behind.last_lsn).max(end.next.lsn.previous());
        collected.last_opening = collected.last_opening.max(behind.last_opening);
        if behind.groups == 0 && end.damage.is_none() {
            return;
        }
        collected.broken.extend(left);
        if let Some(why) = end.damage {
            let (groups, entries) = (behind.groups, behind.entries);
            self.report.lost_log.push(LostLog { why, groups, entries });
        }
    }

    /// Writes memtables into tables that belong to no level yet.
    fn flush_loose(
        &self,
        root: &Root,
        memtables: &mut Memtables,
        collected: &mut Collected,
    ) -> Result<()> {
        for (keyspace, memtable) in memtables.take() {
            if memtable.is_empty() {
                continue;
            }
            let output = Output {
                keyspace,
                options: &options_of(root, keyspace),
                run: RunId::filling(Level::ZERO, DataEpoch::ZERO),
                hash_seed: collected.hash_seed,
                new_uid: collected.new_uid(),
            };
            let cursor = Box::new(memtable.cursor());
            for table in self.write(output, memtable.entries(), cursor)? {
                collected.loose.push(table.meta.uid);
                let table = Table::without_seed(Arc::clone(self.target()), table.meta);
                collected.tables.push(table);
            }
        }
        Ok(())
    }

    /// Merges the tables of each keyspace; the edit that makes an empty root the new tree.
    fn merge_all(&mut self, root: &Root, collected: &Collected) -> Result<VersionEdit> {
        let mut by_keyspace: BTreeMap<KeyspaceId, Vec<Arc<Table>>> = BTreeMap::new();
        by_keyspace.entry(KeyspaceId::DEFAULT).or_default();
        for state in root.keyspaces.iter() {
            by_keyspace.entry(state.id).or_default();
        }
        for table in &collected.tables {
            let tables = by_keyspace.entry(table.meta().keyspace).or_default();
            tables.push(Arc::clone(table));
        }
        if by_keyspace.len() > KEYSPACES_MAX {
            return Err(Error::invalid(format!(
                "the tables belong to {} keyspaces, a store has at most {KEYSPACES_MAX}",
                by_keyspace.len()
            )));
        }
        let mut edit = VersionEdit::default();
        for (epoch, (id, tables)) in (root.next_epoch.get()..).zip(by_keyspace) {
            let name = self.name_of(root, id);
            let options = options_of(root, id);
            let part = edit.keyspace(id);
            part.create = Some(name);
            part.options = Some(Arc::clone(&options));
            if tables.is_empty() {
                continue;
            }
            let entries = tables.iter().map(|table| table.meta().entries).sum();
            let output = Output {
                keyspace: id,
                options: &options,
                run: RunId::filling(LEVEL, DataEpoch::new(epoch)),
                hash_seed: collected.hash_seed,
                new_uid: collected.new_uid(),
            };
            part.added =
                self.write(output, entries, Box::new(MergingCursor::new(runs_of(tables)?)))?;
        }
        Ok(edit)
    }

    /// The name of a keyspace, a new one if it is lost.
    fn name_of(&mut self, root: &Root, id: KeyspaceId) -> String {
        if let Some(state) = root.keyspaces.get(id) {
            return state.name.to_string();
        }
        if id == KeyspaceId::DEFAULT {
            return DEFAULT_KEYSPACE.to_owned();
        }
        let mut name = format!("recovered-{id}");
        while root.keyspace_named(&name).is_some() {
            name.push('-');
        }
        self.report.renamed_keyspaces.push((id.get(), name.clone()));
        name
    }

    /// Makes the new tree the store's.
    fn start(
        &self,
        salvage: &Salvage,
        lineage: Lineage,
        collected: &Collected,
        mut edit: VersionEdit,
    ) -> Result<()> {
        let known = &salvage.root;
        // Elsewhere nothing was given out yet.
        let begins = self.elsewhere.is_some();
        let mut root = Root::empty(lineage, collected.hash_seed);
        let last_lsn = if begins { Lsn::ZERO } else { collected.last_lsn };
        root.opening =
            if begins { 1 } else { self.next_opening(known.opening, collected.last_opening)? };
        root.next_uid = TableUid::new(collected.next_uid.load(Ordering::Relaxed));
        root.next_epoch = known.next_epoch;
        root.next_keyspace = known.next_keyspace;
        root.wal_durable_lsn = last_lsn;
        let last_seq = collected.tables.iter().map(|table| table.meta().seq_max).max();
        root.last_seq = last_seq.unwrap_or(0).max(known.last_seq);
        if self.from_trailers && !begins {
            // What was left out may have newer ones, and be found by another repair.
            root.last_seq = (root.last_seq + SEQ_GAP).min(SEQ_MAX / 2).max(root.last_seq);
        }
        let fresh = Flushed {
            log_start: self.fresh_log(root.opening, SegmentNumber::ZERO, last_lsn)?,
            flushed_seq: root.last_seq,
            durable_lsn: last_lsn,
        };
        for part in edit.keyspaces.values_mut() {
            part.flushed = Some(fresh);
        }
        let last_log = if begins { SegmentNumber::ZERO } else { salvage.log };
        VersionSet::restart(self.context(), root, &edit, last_log).map(drop)
    }
}

fn options_of(root: &Root, keyspace: KeyspaceId) -> Arc<Options> {
    root.keyspaces.get(keyspace).map(|state| Arc::clone(&state.options)).unwrap_or_default()
}

/// Sorts tables into as few runs as their ranges allow: a merge has one cursor for each.
fn runs_of(mut tables: Vec<Arc<Table>>) -> Result<Vec<RunCursor>> {
    const CURSOR_OPTIONS: CursorOptions = CursorOptions {
        purpose: Purpose::Background,
        fill_cache: false,
        readahead: ReadAhead::Scan,
    };
    tables.sort_by(|a, b| compare(&a.meta().smallest, &b.meta().smallest));
    let mut runs: Vec<Vec<Arc<Table>>> = Vec::new();
    for table in tables {
        let fits = |run: &&mut Vec<Arc<Table>>| {
            let last = run.last().map(|last| compare(&last.meta().largest, &table.meta().smallest));
            last.is_none_or(|order| order.is_lt())
        };
        match runs.iter_mut().find(fits) {
            Some(run) => run.push(table),
            None => runs.push(vec![table]),
        }
    }
    let cursor = |run: Vec<Arc<Table>>| {
        let tables = run.into_iter().map(|table| (Arc::new(table.meta().clone()), table));
        let tables = TableList::new(tables.collect()).map_err(|overlap| {
            let (a, b) = (overlap.0.uid, overlap.1.uid);
            Error::corruption("repair", 0, format_args!("tables {a} and {b} overlap"))
        })?;
        Ok(RunCursor::over(tables, CURSOR_OPTIONS))
    };
    runs.into_iter().map(cursor).collect()
}
