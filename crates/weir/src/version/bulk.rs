//! Recovery of many edits at once: sums up plain edits of a version log, so that only what is left
//! of them at the end is put into the tree.
//!
//! A table that one merge wrote and a later one took away is never opened and copies no chunk of
//! its run. So a log of compactions costs little more than its decoding (LDS §4.4: recovery by the
//! size of the version data).
//!
//! A plain edit is a flush into a new run of level 0, or a merge that takes tables and gives
//! others, in a keyspace without buffer lists and sentinels. All others go through `root` and
//! `check` one by one, and so does what looks wrong, which gives the error and its place.
//!
//! Invariants: (1) the sum of edits, applied, is the root after all of them; (2) an edit that is
//! taken in keeps the rules of `check`, with two exceptions: that tables of a run do not overlap,
//! and that level 0 is in the order of its sequence numbers, is seen at the end of the sum only,
//! not for roots between that no reader ever gets. Overtaking is excluded more strictly than there:
//! no run at all may lie between those that give and those that take.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::check;
use super::edit::{AddedTable, Flushed, KeyspaceEdit, RemovedTable, VersionEdit};
use super::keyspaces::KeyspaceVersion;
use super::root::{Places, Root};
use super::run::Run;
use super::shape::{PartKind, RunId, RunKind};
use crate::base::ids::{DataEpoch, KeyspaceId, Level, Lsn, TableUid};
use crate::base::key::Seq;
use crate::base::table_meta::TableMeta;

/// Plain edits that are not in the root yet.
#[derive(Debug, Default)]
pub(super) struct Sum {
    keyspaces: BTreeMap<KeyspaceId, KeyspaceSum>,
    tables: Tables,
    /// The numbers that edits raise.
    raised: VersionEdit,
    edits: u64,
}

/// What plain edits gave and took, of all keyspaces.
#[derive(Debug, Default)]
struct Tables {
    /// Tables that the edits gave and nobody took.
    added: BTreeMap<TableUid, (KeyspaceId, AddedTable)>,
    /// Tables of the root that the edits took.
    removed: BTreeMap<TableUid, (KeyspaceId, RemovedTable)>,
}

/// What plain edits make of one keyspace.
#[derive(Debug, Default)]
struct KeyspaceSum {
    /// Tables of each run after the edits.
    runs: BTreeMap<RunId, usize>,
    cursors: BTreeMap<Level, Option<Vec<u8>>>,
    flushed: Option<Flushed>,
    flushed_seq: Seq,
    log_start: Lsn,
}

/// The tables of each run that an edit changes, after it.
type Counts = BTreeMap<RunId, usize>;

/// A root and what edits made of its tables since.
struct Before<'a> {
    keyspace: KeyspaceId,
    places: &'a Places,
    tables: &'a Tables,
}

impl Before<'_> {
    /// The run of a table that an edit takes, and the table.
    fn table(&self, removed: &RemovedTable) -> Option<(RunId, &TableMeta)> {
        let &RemovedTable { level, part, uid } = removed;
        if let Some((keyspace, AddedTable { run, meta })) = self.tables.added.get(&uid) {
            let there = (*keyspace, run.level, run.part) == (self.keyspace, level, part);
            return there.then_some((*run, &**meta));
        }
        let place = self.places.get(uid).filter(|_| !self.tables.removed.contains_key(&uid))?;
        let run = RunId { level, part, epoch: place.epoch };
        let there = (place.keyspace, place.level) == (self.keyspace, level);
        there.then_some((run, &*place.meta))
    }

    /// Whether a table that is in no tree may come into this one.
    fn may_come(&self, meta: &TableMeta) -> bool {
        let known = self.tables.added.contains_key(&meta.uid) || self.places.contains(meta.uid);
        !known && self.is_sound(meta)
    }

    fn is_sound(&self, meta: &TableMeta) -> bool {
        meta.masks.is_empty() && check::fault_of(meta, self.keyspace).is_none()
    }
}

impl KeyspaceSum {
    /// The keyspace before any edit; `None` if every edit of it has to be looked at.
    fn of(keyspace: &KeyspaceVersion) -> Option<Self> {
        let version = &keyspace.version;
        let plain = |run: &Run| run.kind == RunKind::Data && run.claims.is_none();
        let runs = version.runs_by_id();
        let runs = runs.map(|(id, run)| plain(run).then_some((id, run.tables.len())));
        let runs = runs.collect::<Option<_>>()?;
        version.lists().next().is_none().then(|| Self {
            runs,
            flushed_seq: keyspace.flushed_seq,
            log_start: keyspace.log_start.lsn,
            ..Self::default()
        })
    }

    /// The tables of the runs that `edit` changes, after it; `None` if the edit is not plain.
    fn after(&self, edit: &KeyspaceEdit, before: &Before<'_>) -> Option<Counts> {
        let KeyspaceEdit { create, drop, options, rotated, claims, lists, .. } = edit;
        let whole = create.is_some() || *drop || options.is_some() || !rotated.is_empty();
        if whole || !claims.is_empty() || !lists.is_empty() {
            return None;
        }
        match (&edit.flushed, edit.removed.is_empty()) {
            (Some(flushed), true) => self.after_flush(edit, flushed, before),
            (None, false) => self.after_merge(edit, before),
            (None, true) => edit.added.is_empty().then(Counts::new),
            (Some(_), false) => None,
        }
    }

    fn after_flush(
        &self,
        edit: &KeyspaceEdit,
        flushed: &Flushed,
        before: &Before<'_>,
    ) -> Option<Counts> {
        if flushed.log_start.lsn < self.log_start || flushed.flushed_seq < self.flushed_seq {
            return None;
        }
        let mut level_0 = self.runs.keys().filter(|run| run.level == Level::ZERO);
        let newest = level_0.next().map_or(DataEpoch::new(0), |run| run.epoch);
        let (mut counts, mut given) = (Counts::new(), BTreeSet::new());
        for AddedTable { run, meta } in &edit.added {
            let is_newest = *run == RunId::filling(Level::ZERO, run.epoch) && run.epoch > newest;
            let seqs = meta.seq_min > self.flushed_seq && meta.seq_max <= flushed.flushed_seq;
            if !is_newest || !seqs || !before.may_come(meta) || !given.insert(meta.uid) {
                return None;
            }
            *counts.entry(*run).or_default() += 1;
        }
        (counts.len() <= 1).then_some(counts)
    }

    fn after_merge(&self, edit: &KeyspaceEdit, before: &Before<'_>) -> Option<Counts> {
        let mut counts = Counts::new();
        let mut taken = BTreeMap::new();
        for removed in &edit.removed {
            let (run, meta) = before.table(removed)?;
            let count = counts.entry(run).or_insert_with(|| self.tables_of(run));
            *count = count.checked_sub(1)?;
            if taken.insert(removed.uid, (run, meta)).is_some() {
                return None;
            }
        }
        let newest = counts.keys().next().copied();
        let mut given = BTreeSet::new();
        for AddedTable { run, meta } in &edit.added {
            // A table that stays in its run has another view, and is looked at.
            let may_come = match taken.get(&meta.uid) {
                Some((from, was)) => from != run && **meta == **was && before.is_sound(meta),
                None => before.may_come(meta),
            };
            // Only a rotation begins a draining part, and nothing rises above where it was.
            let there = run.part == PartKind::Filling || self.runs.contains_key(run);
            if !may_come || !there || newest > Some(*run) || !given.insert(meta.uid) {
                return None;
            }
            *counts.entry(*run).or_insert_with(|| self.tables_of(*run)) += 1;
        }
        let (first, last) = (counts.keys().next()?, counts.keys().next_back()?);
        let left = |run: &RunId, tables: &usize| counts.get(run).copied().unwrap_or(*tables) > 0;
        let mut between = self.runs.range(first..last).skip(1);
        // Nothing to pass: the rule of overtaking holds whatever the keys are.
        between.all(|(run, tables)| !left(run, tables)).then_some(counts)
    }

    fn tables_of(&self, run: RunId) -> usize {
        self.runs.get(&run).copied().unwrap_or_default()
    }

    fn add(&mut self, edit: &mut KeyspaceEdit, counts: Counts) {
        for (run, tables) in counts {
            match tables {
                0 => _ = self.runs.remove(&run),
                _ => _ = self.runs.insert(run, tables),
            }
        }
        self.cursors.append(&mut edit.cursors);
        if let Some(flushed) = edit.flushed {
            let durable = self.flushed.map_or(Lsn::ZERO, |before| before.durable_lsn);
            let durable_lsn = flushed.durable_lsn.max(durable);
            (self.flushed_seq, self.log_start) = (flushed.flushed_seq, flushed.log_start.lsn);
            self.flushed = Some(Flushed { durable_lsn, ..flushed });
        }
    }
}

impl Tables {
    fn add(&mut self, keyspace: KeyspaceId, edit: KeyspaceEdit) {
        for removed in edit.removed {
            // One that came with an earlier edit of the sum is gone without a trace; if it was the
            // root's before, it moved, and is taken from there still.
            if self.added.remove(&removed.uid).is_none() {
                self.removed.insert(removed.uid, (keyspace, removed));
            }
        }
        let added = edit.added.into_iter().map(|added| (added.meta.uid, (keyspace, added)));
        self.added.extend(added);
    }
}

impl Sum {
    /// Whether there is nothing to apply.
    pub(super) fn is_empty(&self) -> bool {
        self.edits == 0
    }

    /// Takes in the next edit of a log that had led to `root` before the sum began; gives it back
    /// if it is not plain. The caller applies the sum and then the edit, and begins another sum:
    /// what this one knows of keyspaces is of the root before.
    pub(super) fn add(
        &mut self,
        edit: VersionEdit,
        root: &Root,
        places: &Places,
    ) -> Result<(), VersionEdit> {
        let mut changed = edit.keyspaces.iter();
        let counts = match (changed.next(), changed.next()) {
            (None, None) => Some(Counts::new()),
            (Some((&id, part)), None) => self.after(id, part, root, places),
            // What one keyspace loses another one might get.
            _ => None,
        };
        let Some(counts) = counts.filter(|_| edit.hash_seed.is_none()) else { return Err(edit) };
        raise(&mut self.raised, &edit);
        if let Some((id, mut part)) = edit.keyspaces.into_iter().next() {
            self.keyspaces.entry(id).or_default().add(&mut part, counts);
            self.tables.add(id, part);
        }
        self.edits += 1;
        Ok(())
    }

    fn after(
        &mut self,
        keyspace: KeyspaceId,
        edit: &KeyspaceEdit,
        root: &Root,
        places: &Places,
    ) -> Option<Counts> {
        let sum = match self.keyspaces.entry(keyspace) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(KeyspaceSum::of(root.keyspaces.get(keyspace)?)?),
        };
        sum.after(edit, &Before { keyspace, places, tables: &self.tables })
    }

    /// One edit that does what all of them did, in order of uids.
    pub(super) fn into_edit(self) -> VersionEdit {
        let Self { keyspaces, tables, raised: mut edit, .. } = self;
        for (id, sum) in keyspaces {
            if sum.flushed.is_some() || !sum.cursors.is_empty() {
                let part = edit.keyspace(id);
                (part.flushed, part.cursors) = (sum.flushed, sum.cursors);
            }
        }
        for (id, removed) in tables.removed.into_values() {
            edit.keyspace(id).removed.push(removed);
        }
        for (id, added) in tables.added.into_values() {
            edit.keyspace(id).added.push(added);
        }
        edit
    }
}

/// Raises the numbers in `raised` to those that `edit` leads to, of tables that do not stay too.
fn raise(raised: &mut VersionEdit, edit: &VersionEdit) {
    let added = || edit.keyspaces.values().flat_map(|keyspace| &keyspace.added);
    let uids = added().map(|added| added.meta.uid.next());
    let epochs = added().map(|added| added.run.epoch.next());
    let seqs = added().map(|added| added.meta.seq_max);
    raised.next_uid = edit.next_uid.into_iter().chain(uids).chain(raised.next_uid).max();
    raised.next_epoch = edit.next_epoch.into_iter().chain(epochs).chain(raised.next_epoch).max();
    raised.last_seq = edit.last_seq.into_iter().chain(seqs).chain(raised.last_seq).max();
    raised.next_keyspace = raised.next_keyspace.max(edit.next_keyspace);
    raised.wal_durable_lsn = raised.wal_durable_lsn.max(edit.wal_durable_lsn);
    raised.opening = raised.opening.max(edit.opening);
}
