//! The root: all keyspaces' versions together, and the application of an edit to it.
//!
//! Pure: no I/O, no locks. Not here: the order of edits and their durability (`set`), the rules of
//! the tree (`check`).
//!
//! Invariants: (1) a root never changes; (2) a table is in one run of one keyspace, in one buffer
//! list, or in one of both, with one reader (H13); (3) `next_*` and `last_seq` never decrease, so
//! uids, data epochs and keyspace ids are never reused.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::buffer_list::{BufferList, ListInEdit, ListStep, Moved};
use super::claims;
use super::edit::{AddedTable, Claim, KeyspaceEdit, ListChange, Rotation, VersionEdit};
use super::keyspaces::{KeyspaceVersion, Keyspaces};
use super::run::{LevelRuns, Part, Run, Version};
use super::shape::{PartKind, RunId, RunKind};
use super::tables::{Overlap, TableList};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{DataEpoch, KeyspaceId, Level, Lineage, Lsn, PerLevel, TableUid};
use crate::base::key::{Printable, Seq};
use crate::base::limits::KEYSPACES_MAX;
use crate::base::table_meta::{Mask, TableMeta};
use crate::log::LogPosition;
use crate::table::Table;

/// All keyspaces' versions together.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// The keyspaces by id.
    pub(crate) keyspaces: Keyspaces,
    /// Uids below are used or reserved.
    pub(crate) next_uid: TableUid,
    /// Data epochs below are used or reserved.
    pub(crate) next_epoch: DataEpoch,
    /// Keyspace ids below are used.
    pub(crate) next_keyspace: KeyspaceId,
    /// Sequence numbers up to here are used.
    pub(crate) last_seq: Seq,
    /// The write-ahead log was durable up to this LSN.
    pub(crate) wal_durable_lsn: Lsn,
    /// Identity of the store.
    pub(crate) lineage: Lineage,
    /// Seed of the key hash in filters.
    pub(crate) hash_seed: u64,
    /// Number of this opening of the store, which is in every log group that it writes.
    pub(crate) opening: u32,
}

impl Root {
    /// The root of a store without keyspaces.
    pub(crate) fn empty(lineage: Lineage, hash_seed: u64) -> Self {
        Self {
            keyspaces: Keyspaces::default(),
            next_uid: TableUid::FIRST,
            next_epoch: DataEpoch::new(1),
            next_keyspace: KeyspaceId::DEFAULT,
            last_seq: 0,
            wal_durable_lsn: Lsn::ZERO,
            lineage,
            hash_seed,
            opening: 0,
        }
    }

    /// The keyspace called `name`.
    pub(crate) fn keyspace_named(&self, name: &str) -> Option<&Arc<KeyspaceVersion>> {
        self.keyspaces.iter().find(|keyspace| &*keyspace.name == name)
    }

    /// Where replay of the write-ahead log starts: the earliest group that some keyspace needs;
    /// `None` if there is no keyspace. Segments before its segment are obsolete.
    pub(crate) fn replay_start(&self) -> Option<LogPosition> {
        self.keyspaces.log_start()
    }

    /// Bytes of a base of the version log, lists' holes but for their keys. An estimate from above.
    pub(crate) fn base_bytes(&self) -> u64 {
        /// Of a keyspace with its options and the groups of its levels, without keys and name.
        const KEYSPACE_BYTES: u64 = 1 << 10;
        const HOLE_BYTES: u64 = 256;
        let bytes = |keyspace: &Arc<KeyspaceVersion>| {
            let version = &keyspace.version;
            let levels = version.levels().iter();
            let cursors = levels.filter_map(|(_, level)| level.cursor.as_ref());
            let keys: usize = cursors.map(|key| key.len()).sum();
            let holes = version.list_counts().1 as u64 * HOLE_BYTES;
            let own = KEYSPACE_BYTES + (keyspace.name.len() + keys) as u64;
            own + holes + version.description_bytes()
        };
        self.keyspaces.iter().map(bytes).sum()
    }

    /// The place of every table.
    pub(super) fn places(&self) -> Places {
        let mut places = Places::default();
        for state in self.keyspaces.iter() {
            let keyspace = state.id;
            for (level, runs) in state.version.levels().iter() {
                for (_, run) in runs.runs() {
                    for (meta, table) in run.tables.iter() {
                        let (meta, table) = (Arc::clone(meta), Arc::clone(table));
                        let place = Place { keyspace, level, epoch: run.epoch, meta, table };
                        let other = places.tables.insert(place.meta.uid, place);
                        assert!(other.is_none(), "two tables have one uid: {other:?}");
                    }
                }
            }
            for table in state.version.listed_tables() {
                let listed = Listed { keyspace, table: Arc::clone(table) };
                let other = places.listed.insert(table.meta().uid, listed);
                assert!(other.is_none(), "a table is in two lists: {other:?}");
            }
        }
        places
    }

    /// The tables of all keyspaces' trees, without those that are in buffer lists alone.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.keyspaces.iter().flat_map(|keyspace| keyspace.version.tables())
    }

    /// The tables that are in buffer lists alone.
    pub(crate) fn listed_only(&self) -> BTreeSet<TableUid> {
        let uids = |tables: &mut dyn Iterator<Item = &Arc<Table>>| -> BTreeSet<TableUid> {
            tables.map(|table| table.meta().uid).collect()
        };
        let listed = self.keyspaces.iter().flat_map(|keyspace| keyspace.version.listed_tables());
        &uids(&mut { listed }) - &uids(&mut self.tables())
    }

    /// The same without buffer lists.
    pub(super) fn without_lists(&self) -> Self {
        let mut root = self.clone();
        for keyspace in self.keyspaces.iter().filter(|k| k.version.lists().next().is_some()) {
            let version = Arc::new(keyspace.version.without_lists());
            root.keyspaces.insert(Arc::new(KeyspaceVersion { version, ..(**keyspace).clone() }));
        }
        root
    }

    /// All tables of all keyspaces, once each, whatever they are for.
    pub(crate) fn all_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.keyspaces.iter().flat_map(|keyspace| keyspace.version.all_tables())
    }
}

/// The place of a table, without the part of its level, which a rotation changes for all tables at
/// once; an edit that removes a table names the part.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) keyspace: KeyspaceId,
    pub(super) level: Level,
    pub(super) epoch: DataEpoch,
    pub(super) meta: Arc<TableMeta>,
    pub(super) table: Arc<Table>,
}

/// A table of a buffer list.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) keyspace: KeyspaceId,
    pub(super) table: Arc<Table>,
}

/// The place of every table of the newest root, so that an edit names tables by uid alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Those of trees.
    pub(super) tables: BTreeMap<TableUid, Place>,
    /// Those of buffer lists; some are in a tree too.
    pub(super) listed: BTreeMap<TableUid, Listed>,
}

impl Places {
    /// The place of a table in its tree.
    pub(super) fn get(&self, uid: TableUid) -> Option<&Place> {
        self.tables.get(&uid)
    }

    /// Whether a root names the table.
    pub(super) fn contains(&self, uid: TableUid) -> bool {
        self.tables.contains_key(&uid) || self.listed.contains_key(&uid)
    }

    /// Number of tables, in trees or lists.
    pub(super) fn len(&self) -> usize {
        let in_both = self.listed.keys().filter(|uid| self.tables.contains_key(uid)).count();
        self.tables.len() + self.listed.len() - in_both
    }
}

/// The place of an added table.
#[derive(Debug)]
pub(super) struct AddedPlace {
    pub(super) part: PartKind,
    pub(super) place: Place,
}

/// The changes of places by an edit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) added: Vec<AddedPlace>,
    /// Places that became free: the table moved into no other one of a tree.
    pub(super) removed: Vec<Place>,
    /// Tables that left their list.
    pub(super) unlisted: BTreeMap<TableUid, Arc<Table>>,
    /// Tables that came into a list, of those that left another one too.
    pub(super) listed: BTreeMap<TableUid, Listed>,
}

impl Changes {
    fn unlist<'a>(&mut self, tables: impl Iterator<Item = &'a Arc<Table>>) {
        self.unlisted.extend(tables.map(|table| (table.meta().uid, Arc::clone(table))));
    }

    /// Updates `places` to the root after the changes. Returns the tables that this root no longer
    /// names.
    pub(super) fn install(&self, places: &mut Places) -> Vec<Arc<Table>> {
        let mut gone: BTreeMap<TableUid, &Arc<Table>> =
            self.unlisted.iter().map(|(&uid, table)| (uid, table)).collect();
        for Place { meta, table, .. } in &self.removed {
            let had = places.tables.remove(&meta.uid);
            assert!(had.is_some(), "removed table {} had no place", meta.uid);
            gone.insert(meta.uid, table);
        }
        for AddedPlace { place, .. } in &self.added {
            let moved = places.tables.insert(place.meta.uid, place.clone());
            assert!(
                moved.as_ref().is_none_or(|from| Arc::ptr_eq(&from.table, &place.table)),
                "two tables have one uid: {moved:?} and {place:?}"
            );
        }
        for uid in self.unlisted.keys() {
            assert!(places.listed.remove(uid).is_some(), "table {uid} left no list");
        }
        for (&uid, listed) in &self.listed {
            let other = places.listed.insert(uid, listed.clone());
            assert!(other.is_none(), "a table is in two lists: {other:?}");
        }
        gone.retain(|&uid, _| !places.contains(uid));
        gone.into_values().cloned().collect()
    }
}

/// An edit that cannot be applied: a caller's mistake, or in replay a damaged log.
pub(super) fn refused(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!("a version edit was refused and nothing was changed: {what}"),
    )
}

impl Root {
    /// The root after `edit`, and what changed. `open` makes a reader for a new table.
    ///
    /// # Errors
    /// `Closed` if a keyspace does not exist or was dropped; `Conflict` for every other edit that
    /// does not fit this root. Nothing is changed in either case.
    pub(super) fn apply(
        &self,
        edit: &VersionEdit,
        places: &Places,
        open: &dyn Fn(&Arc<TableMeta>) -> Arc<Table>,
    ) -> Result<(Self, Changes)> {
        let mut next = self.clone();
        let mut changes = Changes::default();
        raise(&mut next.next_uid, edit.next_uid);
        raise(&mut next.next_epoch, edit.next_epoch);
        raise(&mut next.next_keyspace, edit.next_keyspace);
        raise(&mut next.last_seq, edit.last_seq);
        raise(&mut next.wal_durable_lsn, edit.wal_durable_lsn);
        raise(&mut next.opening, edit.opening);
        next.hash_seed = edit.hash_seed.unwrap_or(next.hash_seed);
        for (&id, keyspace_edit) in &edit.keyspaces {
            if keyspace_edit.create.is_some() {
                next.create_keyspace(id, keyspace_edit)?;
            }
            let Some(keyspace) = next.keyspaces.get(id).cloned() else {
                return Err(Error::new(
                    ErrorKind::Closed,
                    format!("keyspace {id} does not exist; it was dropped or never created"),
                ));
            };
            if keyspace_edit.drop {
                next.drop_keyspace(&keyspace, keyspace_edit, places, &mut changes)?;
                continue;
            }
            let changed = change_keyspace(&keyspace, keyspace_edit, places, open, &mut changes)?;
            next.keyspaces.insert(Arc::new(changed));
        }
        next.raise_to_content(edit, &changes);
        Ok((next, changes))
    }

    /// Raises the counters to those of the tables and flushes of `edit`.
    fn raise_to_content(&mut self, edit: &VersionEdit, changes: &Changes) {
        for AddedPlace { place, .. } in &changes.added {
            raise(&mut self.next_uid, Some(place.meta.uid.next()));
            raise(&mut self.next_epoch, Some(place.epoch.next()));
            raise(&mut self.last_seq, Some(place.meta.seq_max));
        }
        for flushed in edit.keyspaces.values().filter_map(|k| k.flushed) {
            raise(&mut self.last_seq, Some(flushed.flushed_seq));
            raise(&mut self.wal_durable_lsn, Some(flushed.durable_lsn));
        }
    }

    fn create_keyspace(&mut self, id: KeyspaceId, edit: &KeyspaceEdit) -> Result<()> {
        const ORIGIN: LogPosition = LogPosition::ORIGIN;
        let name = edit.create.as_deref().unwrap_or_default();
        if self.keyspace_named(name).is_some() {
            return Err(refused(format_args!("there is already a keyspace {name:?}")));
        }
        if self.keyspaces.contains(id) {
            return Err(refused(format_args!("keyspace id {id} is in use")));
        }
        if self.keyspaces.len() >= KEYSPACES_MAX {
            return Err(Error::invalid(format!(
                "a store has at most {KEYSPACES_MAX} keyspaces; drop one before creating {name:?}"
            )));
        }
        let Some(options) = edit.options.clone() else {
            return Err(refused(format_args!("keyspace {name:?} is created without options")));
        };
        self.next_keyspace = self.next_keyspace.max(id.next());
        // It has no entry older than its creation, so its log start may be the latest of all
        // keyspaces'.
        let latest = || {
            let starts = self.keyspaces.iter().map(|keyspace| keyspace.log_start);
            starts.max_by_key(|start| (start.lsn, start.segment))
        };
        let keyspace = KeyspaceVersion {
            id,
            name: name.into(),
            options,
            version: Arc::default(),
            log_start: edit.flushed.map(|f| f.log_start).or_else(latest).unwrap_or(ORIGIN),
            flushed_seq: 0,
        };
        self.keyspaces.insert(Arc::new(keyspace));
        Ok(())
    }

    fn drop_keyspace(
        &mut self,
        keyspace: &KeyspaceVersion,
        edit: &KeyspaceEdit,
        places: &Places,
        changes: &mut Changes,
    ) -> Result<()> {
        if *edit != (KeyspaceEdit { drop: true, ..KeyspaceEdit::default() }) {
            return Err(refused(format_args!(
                "keyspace {:?} is dropped and changed in one edit",
                keyspace.name
            )));
        }
        for table in keyspace.version.tables() {
            let uid = table.meta().uid;
            let place = places.get(uid);
            assert!(place.is_some(), "table {uid} of a dropped keyspace has no place");
            changes.removed.extend(place.cloned());
        }
        changes.unlist(keyspace.version.listed_tables());
        self.keyspaces.remove(keyspace.id);
        Ok(())
    }
}

fn raise<T: Ord + Copy>(value: &mut T, to: Option<T>) {
    *value = to.map_or(*value, |to| to.max(*value));
}

/// The changes of one run.
#[derive(Default)]
struct RunChange {
    removed: Vec<Arc<TableMeta>>,
    added: Vec<(Arc<TableMeta>, Arc<Table>)>,
}

fn change_keyspace(
    keyspace: &KeyspaceVersion,
    edit: &KeyspaceEdit,
    places: &Places,
    open: &dyn Fn(&Arc<TableMeta>) -> Arc<Table>,
    changes: &mut Changes,
) -> Result<KeyspaceVersion> {
    let mut changed = keyspace.clone();
    if let Some(options) = &edit.options {
        changed.options = Arc::clone(options);
    }
    if let Some(flushed) = &edit.flushed {
        if flushed.log_start.lsn < keyspace.log_start.lsn
            || flushed.flushed_seq < keyspace.flushed_seq
        {
            return Err(refused(format_args!(
                "the flush of keyspace {:?} goes back from LSN {} to {} or from sequence {} to {}",
                keyspace.name,
                keyspace.log_start.lsn,
                flushed.log_start.lsn,
                keyspace.flushed_seq,
                flushed.flushed_seq
            )));
        }
        changed.log_start = flushed.log_start;
        changed.flushed_seq = flushed.flushed_seq;
    }
    let runs = run_changes(keyspace.id, edit, places, open, changes)?;
    let same_tables = runs.is_empty() && edit.rotated.is_empty();
    let same_tables = same_tables && edit.claims.is_empty();
    if same_tables && edit.cursors.is_empty() && edit.lists.is_empty() {
        return Ok(changed);
    }
    let mut levels = keyspace.version.levels().clone();
    for (&level, rotation) in &edit.rotated {
        rotate(&mut levels[level], level, *rotation)?;
    }
    for (run, change) in runs {
        let kind = claims::kind_of_new(run, edit);
        if let Some(list) = change_run(&mut levels[run.level], run, kind, change)? {
            changes.unlist(list.tables().map(|(_, table)| table));
        }
    }
    change_claims(&mut levels, &keyspace.version, edit, places)?;
    let lists = ListEdit { keyspace: keyspace.id, places, open };
    lists.apply(&mut levels, &edit.lists, changes)?;
    for level in levels.values_mut() {
        level.draining = level.draining.take().filter(|part| !part.runs.is_empty());
    }
    for (&level, key) in &edit.cursors {
        levels[level].cursor = key.as_deref().map(Arc::from);
    }
    changed.version = Arc::new(Version::new(levels));
    assert_eq!(
        changed.version.table_count() + edit.removed.len(),
        keyspace.version.table_count() + edit.added.len(),
        "tables of keyspace {} were lost or kept by an edit",
        keyspace.id
    );
    Ok(changed)
}

/// Makes the filling part of a level its draining part.
fn rotate(level: &mut LevelRuns, index: Level, rotation: Rotation) -> Result<()> {
    if level.draining.is_some() || level.filling.runs.is_empty() {
        return Err(refused(format_args!(
            "level {index} cannot be rotated: its filling part has {} runs, its draining part {}; \
             it needs some and none",
            level.filling.runs.len(),
            level.draining.as_ref().map_or(0, |part| part.runs.len())
        )));
    }
    let mut part = std::mem::take(&mut level.filling);
    (part.rotated_bytes, part.rotated_entries) = (rotation.bytes, rotation.entries);
    level.draining = Some(part);
    Ok(())
}

/// Groups the removals and additions of `edit` by run.
fn run_changes(
    keyspace: KeyspaceId,
    edit: &KeyspaceEdit,
    places: &Places,
    open: &dyn Fn(&Arc<TableMeta>) -> Arc<Table>,
    changes: &mut Changes,
) -> Result<BTreeMap<RunId, RunChange>> {
    let mut runs: BTreeMap<RunId, RunChange> = BTreeMap::new();
    let mut removed_at: BTreeMap<TableUid, &Place> = BTreeMap::new();
    for removed in &edit.removed {
        let place = places
            .get(removed.uid)
            .filter(|place| (place.keyspace, place.level) == (keyspace, removed.level));
        let Some(place) = place else {
            return Err(refused(format_args!(
                "table {} is not in level {} of keyspace {keyspace}",
                removed.uid, removed.level
            )));
        };
        if removed_at.insert(removed.uid, place).is_some() {
            return Err(refused(format_args!("table {} is removed twice", removed.uid)));
        }
        let run = RunId { level: place.level, part: removed.part, epoch: place.epoch };
        let run = runs.entry(run).or_default();
        run.removed.push(Arc::clone(&place.meta));
    }
    // Those of keyspaces before this one too: their places are not installed yet.
    let mut added_uids: BTreeSet<TableUid> =
        changes.added.iter().map(|added| added.place.meta.uid).collect();
    for AddedTable { run, meta } in &edit.added {
        if !added_uids.insert(meta.uid) {
            return Err(refused(format_args!("table {} is added twice", meta.uid)));
        }
        // A table that moves keeps its reader, with the index and filter that are loaded. Its view
        // may be another one, but never shows more.
        let moved = removed_at.remove(&meta.uid);
        let (meta, table) = match moved {
            Some(place) if place.meta == *meta => {
                (Arc::clone(&place.meta), Arc::clone(&place.table))
            }
            Some(place) if place.meta.is_same_file(meta) && shows_no_more(&place.meta, meta) => {
                (Arc::clone(meta), Arc::clone(&place.table))
            }
            None if !places.contains(meta.uid) && !changes.listed.contains_key(&meta.uid) => {
                (Arc::clone(meta), open(meta))
            }
            _ => return Err(refused(format_args!("the uid of table {} is in use", meta.uid))),
        };
        let RunId { level, part, epoch } = *run;
        let run = runs.entry(*run).or_default();
        run.added.push((Arc::clone(&meta), Arc::clone(&table)));
        let place = Place { keyspace, level, epoch, meta, table };
        changes.added.push(AddedPlace { part, place });
    }
    changes.removed.extend(removed_at.into_values().cloned());
    Ok(runs)
}

/// Whether all that masks hide in the view `from` is hidden in the view `to` too.
fn shows_no_more(from: &TableMeta, to: &TableMeta) -> bool {
    from.masks.iter().all(|mask| {
        let hides = |wider: &Mask| {
            wider.interval.includes(&mask.interval) && wider.hidden.entries >= mask.hidden.entries
        };
        to.masks.iter().any(hides)
    })
}

/// The part of a level that a change belongs to.
fn part_mut(level: &mut LevelRuns, index: Level, part: PartKind) -> Result<&mut Part> {
    match part {
        PartKind::Filling => Ok(&mut level.filling),
        PartKind::Draining => level
            .draining
            .as_mut()
            .ok_or_else(|| refused(format_args!("level {index} has no draining part"))),
    }
}

/// Clips the claims that the edit passes, and adds its own.
fn change_claims(
    levels: &mut PerLevel<LevelRuns>,
    old: &Version,
    edit: &KeyspaceEdit,
    places: &Places,
) -> Result<()> {
    let runs = &mut levels[Level::ZERO].filling.runs;
    for (id, gone) in claims::clipped(old, edit, places) {
        // One that is empty now is gone.
        let Some(run) = runs.iter_mut().find(|run| run.epoch == id.epoch) else { continue };
        let mut left = run.claims.as_deref().cloned().unwrap_or_default();
        gone.iter().for_each(|interval| left.subtract(interval));
        *run = Arc::new(run.with_claims(Some(Arc::new(left))));
    }
    for Claim { run: id, interval } in &edit.claims {
        let run = runs.iter_mut().find(|run| *id == RunId::filling(Level::ZERO, run.epoch));
        let Some(run) = run else {
            return Err(refused(format_args!("a claim of {id:?}, which is no run of level 0")));
        };
        let mut all = run.claims.as_deref().cloned().unwrap_or_default();
        interval.iter().for_each(|interval| all.add(interval.clone()));
        let claiming = Run { kind: RunKind::Sentinel, ..run.with_claims(Some(Arc::new(all))) };
        *run = Arc::new(claiming);
    }
    Ok(())
}

fn change_run(
    level: &mut LevelRuns,
    RunId { level: level_index, part, epoch }: RunId,
    kind: RunKind,
    mut change: RunChange,
) -> Result<Option<Arc<BufferList>>> {
    let part = part_mut(level, level_index, part)?;
    // Newest first: epochs descend.
    let at = part.runs.partition_point(|run| run.epoch > epoch);
    let existing = part.runs.get(at).filter(|run| run.epoch == epoch).cloned();
    let tables = existing.as_ref().map_or_else(TableList::default, |run| run.tables.clone());
    let mut removed: Vec<usize> = change
        .removed
        .iter()
        .map(|meta| {
            let index = tables.lower_bound(&meta.smallest);
            let found = tables.get(index).is_some_and(|(there, _)| there.uid == meta.uid);
            found.then_some(index).ok_or_else(|| {
                refused(format_args!("table {} is not in the run of epoch {epoch}", meta.uid))
            })
        })
        .collect::<Result<_>>()?;
    removed.sort_unstable();
    change.added.sort_by(|(a, _), (b, _)| a.smallest.cmp(&b.smallest));
    let tables = tables.edit(&removed, change.added).map_err(|Overlap(a, b)| {
        refused(format_args!(
            "tables {} (to key {}) and {} (from key {}) overlap in the run of epoch {epoch} in \
             level {level_index}",
            a.uid,
            Printable(&a.largest),
            b.uid,
            Printable(&b.smallest)
        ))
    })?;
    match (existing, tables.is_empty()) {
        (Some(run), true) => {
            part.runs.remove(at);
            return Ok(run.list.clone());
        }
        (Some(existing), false) => {
            if let Some(run) = part.runs.get_mut(at) {
                let Run { kind, list, claims, .. } = (*existing).clone();
                *run = Arc::new(Run::new(epoch, kind, tables).with_list(list).with_claims(claims));
            }
        }
        (None, true) => {}
        (None, false) => part.runs.insert(at, Arc::new(Run::new(epoch, kind, tables))),
    }
    Ok(None)
}

/// The changes of the buffer lists of one keyspace.
struct ListEdit<'a> {
    keyspace: KeyspaceId,
    places: &'a Places,
    open: &'a dyn Fn(&Arc<TableMeta>) -> Arc<Table>,
}

impl ListEdit<'_> {
    fn apply(
        &self,
        levels: &mut PerLevel<LevelRuns>,
        list_changes: &[ListChange],
        changes: &mut Changes,
    ) -> Result<()> {
        let mut by_run: BTreeMap<RunId, Vec<&ListChange>> = BTreeMap::new();
        list_changes.iter().for_each(|c| by_run.entry(c.run()).or_default().push(c));
        for (id, list_changes) in by_run {
            let part = part_mut(&mut levels[id.level], id.level, id.part)?;
            let run = part.runs.iter_mut().find(|run| run.epoch == id.epoch);
            let Some(run) = run else {
                return Err(refused(format_args!("a buffer list of {id:?}, which is no run")));
            };
            let mut list = ListInEdit::of(run.list.as_deref());
            for change in list_changes {
                let what = |what| refused(format_args!("in the buffer list of {id:?}, {what}"));
                list.step(self.step(change, &changes.added)?).map_err(what)?;
            }
            let (list, moved) = list.finish().map_err(|Overlap(a, b)| {
                let (a, b) = (a.uid, b.uid);
                refused(format_args!("tables {a} and {b} overlap in a buffer list of {id:?}"))
            })?;
            self.note(moved, changes)?;
            *run = Arc::new(run.with_list(list.map(Arc::new)));
        }
        // Only now is it known what has left the other lists.
        let stays =
            |uid| self.places.listed.contains_key(uid) && !changes.unlisted.contains_key(uid);
        match changes.listed.keys().find(|uid| stays(uid)) {
            Some(uid) => Err(refused(format_args!("table {uid} is in another list"))),
            None => Ok(()),
        }
    }

    /// A change, with the tables that it names; `added` are those of the same edit.
    fn step(&self, change: &ListChange, added: &[AddedPlace]) -> Result<ListStep> {
        Ok(match change {
            ListChange::Append { run: _, uid, begins_run, meta } => {
                let there = self.places.get(*uid).map(|place| (place.keyspace, &place.table));
                let listed = self.places.listed.get(uid);
                let there = there.or(listed.map(|listed| (listed.keyspace, &listed.table)));
                let table = match (there, meta) {
                    (Some((keyspace, table)), meta)
                        if keyspace == self.keyspace
                            && meta.as_ref().is_none_or(|meta| **meta == *table.meta()) =>
                    {
                        Arc::clone(table)
                    }
                    // One that the edit adds to the tree would get a second reader.
                    (None, Some(meta))
                        if meta.uid == *uid
                            && added.iter().all(|added| added.place.meta.uid != *uid) =>
                    {
                        (self.open)(meta)
                    }
                    _ => return Err(refused(format_args!("no table {uid} to append to a list"))),
                };
                let meta = Arc::clone(table.shared_meta());
                ListStep::Append { meta, table, begins_run: *begins_run }
            }
            ListChange::Hole { run: _, smallest, largest } => {
                ListStep::Hole { smallest: smallest.clone(), largest: largest.clone() }
            }
            ListChange::Trim { run: _, uid } => {
                let listed = self.places.listed.get(uid);
                ListStep::Trim(*uid, listed.map(|listed| Arc::clone(listed.table.shared_meta())))
            }
            ListChange::Count { run: _, counts } => ListStep::Count(*counts),
            ListChange::Drop { run: _ } => ListStep::Drop,
        })
    }

    /// Notes which tables came into a list and which left it.
    fn note(&self, moved: Moved, changes: &mut Changes) -> Result<()> {
        let Moved { came, left } = moved;
        changes.unlisted.extend(left);
        for (uid, table) in came {
            let listed = Listed { keyspace: self.keyspace, table };
            if changes.listed.insert(uid, listed).is_some() {
                return Err(refused(format_args!("table {uid} comes into two lists")));
            }
        }
        Ok(())
    }
}
