//! The rules that every edit must keep, checked before it is logged, in release builds too.
//!
//! Pure. O(tables touched x runs). Edits that `root` cannot apply at all (a removed table that is
//! absent, overlapping tables in a run, a uid in use) are refused there.
//!
//! The runs of a level with two parts are those of the filling part, then those of the draining
//! part: the rules are about this order, which is the order of reading.
//!
//! The rules: (1) a table's bounds, counts and sequence numbers make sense, and it was written for
//! the keyspace that it is in; (2) level 0 is newest first in sequence numbers too: the ranges of
//! its runs but sentinels are disjoint; (3) a flush starts the newest run of level 0 and holds no
//! sequence number that was flushed before (ARCHITECTURE §3: flushes install oldest first); (4) no
//! overtaking: between the run that data is removed from and the run that it is added to, no run
//! holds a table over the same keys (H23, H48; LevelDB #320 is the same user key on both sides);
//! (5) a rotation states the size of the part that begins to drain. A rotation alone overtakes
//! nothing, since there is no draining part before it (`root` refuses it otherwise); (6) the next
//! numbers can be recorded: what is read back is refused from `NUMBERS_END` on; (7) passing (H54):
//! what leaves a run or passes it is under a hole of every list on its way, or was appended to the
//! list of the run that it came to, above all that is older: nothing else is appended, and a list
//! that begins has holes over what its run has already; (8) a list is where the options allow one,
//! has no more buffered runs than a level is larger than the one above, and only its oldest has no
//! table; (9) a claim is of a run that its edit founds, or of a sentinel; in its interval every
//! older run is masked and every older list has a hole; masks come to tables that stay in their
//! run, and no more entries come, into a sentinel or out of a stretch of a merge, than are hidden
//! and taken away; (10) a claim ends where its sentinel, or a run above,
//! gave something to a run below (H24).

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::buffer_effects::list_range;
use super::buffer_list::{BufferList, BufferedRun};
use super::claims;
use super::edit::{AddedTable, Claim, KeyspaceEdit, ListChange, VersionEdit};
use super::keyspaces::KeyspaceVersion;
use super::root::{AddedPlace, Changes, Place, Places, Root, refused};
use super::run::{Run, Version};
use super::shape::{PartKind, RunId, RunKind};
use crate::base::error::{Error, Result};
use crate::base::ids::{KeyspaceId, Level, TableUid};
use crate::base::interval::Interval;
use crate::base::key::{Printable, SEQ_MAX, compare};
use crate::base::table_meta::TableMeta;
use crate::log::LogPosition;

/// The run of the table at `place`, in this part of its level.
fn run_at(part: PartKind, place: &Place) -> RunId {
    RunId { level: place.level, part, epoch: place.epoch }
}

/// Checks the change from `old` to `new` that `edit` made.
///
/// # Errors
/// `Conflict` with the rule that is broken and the tables that break it.
pub(super) fn check(
    old: &Root,
    new: &Root,
    edit: &VersionEdit,
    places: &Places,
    changes: &Changes,
) -> Result<()> {
    check_tables(new, changes)?;
    let flushes = edit.keyspaces.values().filter_map(|keyspace| keyspace.flushed);
    check_numbers(new, flushes.map(|flushed| flushed.log_start))?;
    for (id, keyspace_edit) in &edit.keyspaces {
        let Some(keyspace) = new.keyspaces.get(*id) else { continue };
        if let Some(old_keyspace) = old.keyspaces.get(*id) {
            check_rotations(old_keyspace, keyspace_edit)?;
        }
        if keyspace_edit.options.is_some() || !keyspace_edit.lists.is_empty() {
            check_lists(keyspace)?;
        }
        let added = changes.added.iter().filter(|added| added.place.keyspace == *id);
        let added: Vec<&AddedPlace> = added.collect();
        let in_place = in_place(keyspace_edit, places);
        let passage = Passage::new(&keyspace.version, keyspace_edit, places, &in_place);
        passage.check_appended()?;
        if let Some(old_keyspace) = old.keyspaces.get(*id) {
            passage.check_founded(&old_keyspace.version)?;
        }
        let of_claims = OfClaims { version: &keyspace.version, edit: keyspace_edit, places };
        of_claims.check(old.keyspaces.get(*id).map(|old| &*old.version), &in_place)?;
        if keyspace_edit.added.is_empty() && keyspace_edit.removed.is_empty() {
            continue;
        }
        if !keyspace_edit.rotated.is_empty() && keyspace.version.has_lists() {
            return Err(refused("a level is rotated in an edit that changes tables beside lists"));
        }
        check_level_0(keyspace)?;
        if let Some(old_keyspace) = old.keyspaces.get(*id) {
            check_flush(old_keyspace, keyspace_edit)?;
        }
        let moved = added.iter().filter(|added| !in_place.contains(&added.place.meta.uid));
        let moved: Vec<&AddedPlace> = moved.copied().collect();
        let arriving = moved.iter().map(|added| &added.place.meta);
        let arriving = arriving.map(|meta| Interval::closed(&meta.smallest, &meta.largest));
        let arriving = arriving.reduce(|a, b| a.around(&b));
        for removed in &keyspace_edit.removed {
            let Some(place) = places.get(removed.uid) else { continue };
            let from = run_at(removed.part, place);
            let keys = keys_that_move(from, &place.meta, keyspace_edit);
            // A merge in stretches, which masks what it leaves, has taken nothing along behind its
            // cut: what is there in the bounds of a table that leaves has passed nothing.
            let has_masks = !in_place.is_empty() || !place.meta.masks.is_empty();
            let arrives = |keys: Interval| match &arriving {
                Some(arriving) if has_masks => keys.common(arriving),
                _ => keys,
            };
            if let Some(keys) = keys.map(arrives).filter(|keys| !keys.is_empty()) {
                check_no_overtaking(&keyspace.version, (removed.part, place), &keys, &moved)?;
            }
            if !in_place.contains(&removed.uid) {
                passage.check_passing(from, &place.meta)?;
            }
        }
        if keyspace_edit.removed.is_empty() {
            added.iter().try_for_each(|added| check_arrival(&keyspace.version, added))?;
        }
    }
    Ok(())
}

/// Checks what the sum of plain edits (`bulk`) has not been checked for: the rest of rule 1, rules
/// 2 and 6.
///
/// # Errors
/// As [`check`].
pub(super) fn check_sum(new: &Root, sum: &VersionEdit, changes: &Changes) -> Result<()> {
    check_tables(new, changes)?;
    let flushes = sum.keyspaces.values().filter_map(|keyspace| keyspace.flushed);
    check_numbers(new, flushes.map(|flushed| flushed.log_start))?;
    let mut changed = sum.keyspaces.keys().filter_map(|id| new.keyspaces.get(*id));
    changed.try_for_each(|keyspace| check_level_0(keyspace))
}

/// Checks the rules for a root without an edit: one that was read from a base.
///
/// # Errors
/// As [`check`].
pub(super) fn check_root(root: &Root) -> Result<()> {
    root.keyspaces.iter().try_for_each(|keyspace| {
        check_level_0(keyspace)?;
        check_lists(keyspace)?;
        let tables = &mut keyspace.version.all_tables();
        tables.try_for_each(|table| check_table(root, keyspace.id, table.meta()))
    })
}

/// Rule 1, for the tables that an edit adds to trees or lists.
pub(super) fn check_tables(new: &Root, changes: &Changes) -> Result<()> {
    let mut added = changes.added.iter().map(|added| &added.place);
    added.try_for_each(|place| check_table(new, place.keyspace, &place.meta))?;
    let mut listed = changes.listed.values();
    listed.try_for_each(|listed| check_table(new, listed.keyspace, listed.table.meta()))
}

/// Rule 6, for `root` and new log starts in it.
///
/// # Errors
/// `Unsupported`.
fn check_numbers(root: &Root, mut log_starts: impl Iterator<Item = LogPosition>) -> Result<()> {
    if root.next_uid.is_used_up() || root.next_epoch.is_used_up() {
        return Err(Error::used_up("the numbers of tables or of data epochs"));
    }
    if log_starts.any(|start| start.lsn.is_used_up() || start.segment.is_used_up()) {
        return Err(Error::used_up("the numbers of log groups or of log segments"));
    }
    Ok(())
}

/// Rule 6, for a root that is about to become a base.
///
/// # Errors
/// `Unsupported`.
pub(super) fn check_base(root: &Root) -> Result<()> {
    check_numbers(root, root.keyspaces.iter().map(|keyspace| keyspace.log_start))
}

fn check_table(new: &Root, keyspace: KeyspaceId, meta: &TableMeta) -> Result<()> {
    let fault = fault_of(meta, keyspace);
    let fault = fault.or((meta.uid >= new.next_uid).then_some(UNASSIGNED));
    match fault.or((meta.seq_max > new.last_seq).then_some(IMPOSSIBLE_SEQS)) {
        Some(fault) => Err(refused(format_args!("table {} has {fault}", meta.uid))),
        None => Ok(()),
    }
}

const UNASSIGNED: &str = "a uid that was never assigned";
const IMPOSSIBLE_SEQS: &str = "impossible sequence numbers";

/// What rule 1 finds wrong with a table in any root.
pub(super) fn fault_of(meta: &TableMeta, keyspace: KeyspaceId) -> Option<&'static str> {
    if meta.keyspace != keyspace {
        Some("the entries of another keyspace")
    } else if meta.uid == TableUid::NONE {
        Some(UNASSIGNED)
    } else if meta.entries == 0 || meta.deletes > meta.entries {
        Some("counts that contradict each other")
    } else if compare(&meta.smallest, &meta.largest).is_gt() {
        Some("its smallest key above its largest")
    } else if meta.seq_min > meta.seq_max || meta.seq_max > SEQ_MAX {
        Some(IMPOSSIBLE_SEQS)
    } else {
        None
    }
}

/// Rule 2. A sentinel is a copy of some ranges of older runs, whose other ranges may be merged into
/// a newer run past it: its sequence numbers say nothing.
fn check_level_0(keyspace: &KeyspaceVersion) -> Result<()> {
    let level = &keyspace.version.levels()[Level::ZERO];
    let runs: Vec<&Run> = level.runs().map(|(_, run)| &**run).collect();
    let mut pairs = runs.iter().zip(runs.iter().skip(1));
    if let Some((newer, older)) = pairs.find(|(newer, older)| newer.epoch <= older.epoch) {
        return Err(refused(format_args!(
            "level 0 of keyspace {:?} would not be newest first: a run of epoch {} above {}",
            keyspace.name, newer.epoch, older.epoch
        )));
    }
    let mut highest: Option<&Run> = None;
    for newer in runs.iter().filter(|run| run.kind == RunKind::Data).rev() {
        let older = highest.filter(|older| newer.seq_min() <= older.seq_max());
        if highest.is_none_or(|highest| newer.seq_max() > highest.seq_max()) {
            highest = Some(newer);
        }
        if let Some(older) = older {
            return Err(refused(format_args!(
                "level 0 of keyspace {:?} would not be newest first: the run of epoch {} begins \
                 with sequence {}, the older run of epoch {} ends with {}",
                keyspace.name,
                newer.epoch,
                newer.seq_min(),
                older.epoch,
                older.seq_max()
            )));
        }
    }
    Ok(())
}

/// Rule 5.
fn check_rotations(old: &KeyspaceVersion, edit: &KeyspaceEdit) -> Result<()> {
    for (&index, rotation) in &edit.rotated {
        let holds = old.version.levels()[index].filling.totals();
        if (holds.bytes, holds.entries) != (rotation.bytes, rotation.entries) {
            return Err(refused(format_args!(
                "level {index} is rotated with {} bytes and {} entries, but holds {} and {}",
                rotation.bytes, rotation.entries, holds.bytes, holds.entries
            )));
        }
    }
    Ok(())
}

/// Rule 3.
fn check_flush(old: &KeyspaceVersion, edit: &KeyspaceEdit) -> Result<()> {
    let Some(flushed) = &edit.flushed else { return Ok(()) };
    let mut level_0 = old.version.levels()[Level::ZERO].runs();
    let newest = level_0.next().map(|(_, run)| run.epoch);
    for table in &edit.added {
        if edit.removed.iter().any(|removed| removed.uid == table.meta.uid) {
            continue;
        }
        let (seq_min, seq_max) = (table.meta.seq_min, table.meta.seq_max);
        if table.run.level == Level::ZERO && table.run.part != PartKind::Filling {
            return Err(refused("a flush goes to the draining part of level 0"));
        }
        if table.run.level == Level::ZERO && newest.is_some_and(|newest| table.run.epoch <= newest)
        {
            return Err(refused(format_args!(
                "a flush of epoch {} comes after that of epoch {newest:?}",
                table.run.epoch
            )));
        }
        if seq_min <= old.flushed_seq || seq_max > flushed.flushed_seq {
            return Err(refused(format_args!(
                "flushed table {} holds sequences {seq_min} to {seq_max}, not within {} to {}",
                table.meta.uid,
                old.flushed_seq + 1,
                flushed.flushed_seq
            )));
        }
    }
    Ok(())
}

/// The keys of a table that an edit takes away from the run `from`: what it shows of them, or of
/// one that stays there what is masked. All that is left of one that a sentinel takes is in its
/// claim.
fn keys_that_move(from: RunId, meta: &TableMeta, edit: &KeyspaceEdit) -> Option<Interval> {
    let all = claims::goes(edit, from, meta)?.common(&meta.shown());
    let mut claims = edit.claims.iter().filter_map(|claim| claim.interval.as_ref());
    Some(match (claims.next(), claims.next()) {
        (Some(claim), None) => all.common(claim),
        _ => all,
    })
}

/// Rule 4, for the keys of one table that is removed from `place`.
fn check_no_overtaking(
    version: &Version,
    (part, place): (PartKind, &Place),
    keys: &Interval,
    added: &[&AddedPlace],
) -> Result<()> {
    let from = run_at(part, place);
    let (mut first, mut last) = (from, from);
    for AddedPlace { part, place: output } in added {
        if keys.overlaps(&output.meta.smallest, &output.meta.largest) {
            first = first.min(run_at(*part, output));
            last = last.max(run_at(*part, output));
        }
    }
    for (level_index, level) in version.levels().iter() {
        for (part, run) in level.runs() {
            let id = RunId { level: level_index, part, epoch: run.epoch };
            if id <= first || id >= last || id == from {
                continue;
            }
            let (lower, upper) = keys.bounds();
            let passed = run.overlapping(lower, upper).find(|(t, _)| {
                // What masks hide is not there.
                added.iter().all(|a| a.place.meta.uid != t.uid) && shows(t, keys)
            });
            if let Some((passed, _)) = passed {
                return Err(refused(format_args!(
                    "keys {} to {} of table {} (level {}, epoch {}) would pass table {} (level \
                     {level_index}, epoch {})",
                    Printable(&place.meta.smallest),
                    Printable(&place.meta.largest),
                    place.meta.uid,
                    place.level,
                    place.epoch,
                    passed.uid,
                    run.epoch
                )));
            }
        }
    }
    Ok(())
}

/// The tables that stay where they are, with another view.
fn in_place(edit: &KeyspaceEdit, places: &Places) -> BTreeSet<TableUid> {
    let stays = edit.removed.iter().filter(|removed| {
        let run = places.get(removed.uid).map(|place| run_at(removed.part, place));
        let mut added = edit.added.iter();
        added.any(|added| added.meta.uid == removed.uid && Some(added.run) == run)
    });
    stays.map(|removed| removed.uid).collect()
}

/// What an edit does to claims and masks.
struct OfClaims<'a> {
    version: &'a Version,
    edit: &'a KeyspaceEdit,
    places: &'a Places,
}

impl OfClaims<'_> {
    fn check(&self, old: Option<&Version>, in_place: &BTreeSet<TableUid>) -> Result<()> {
        for Claim { run: id, interval } in &self.edit.claims {
            let was = old.and_then(|old| old.run(*id));
            if was.is_some_and(|run| run.kind != RunKind::Sentinel) {
                return Err(refused(format_args!(
                    "the run of epoch {} would claim what flushes gave it",
                    id.epoch
                )));
            }
            interval.iter().try_for_each(|interval| self.check_hidden(*id, interval))?;
        }
        self.check_masks(in_place)?;
        self.edit.removed.iter().try_for_each(|removed| match self.places.get(removed.uid) {
            Some(place) => self.check_clipped(run_at(removed.part, place), &place.meta),
            None => Ok(()),
        })
    }

    /// Rule 9: that what is older than the sentinel says nothing of the interval.
    fn check_hidden(&self, sentinel: RunId, interval: &Interval) -> Result<()> {
        let (lower, upper) = interval.bounds();
        for (id, run) in self.version.runs_by_id().filter(|(id, _)| *id > sentinel) {
            let mut tables = run.overlapping(lower, upper);
            if let Some((meta, _)) = tables.find(|(meta, _)| shows(meta, interval)) {
                return Err(refused(format_args!(
                    "a claim from {} on has table {} (level {}, epoch {}) below it without a mask",
                    Printable(&interval.from),
                    meta.uid,
                    id.level,
                    id.epoch
                )));
            }
            let Some(list) = &run.list else { continue };
            let (smallest, largest) = list_range(run, interval);
            if !list.is_hidden(&smallest, &largest) {
                return Err(refused(format_args!(
                    "a claim from {} on has a buffer list of level {} below it without a hole",
                    Printable(&interval.from),
                    id.level
                )));
            }
        }
        Ok(())
    }

    /// Rule 9: that masks are new in their place only, and hide what came up.
    fn check_masks(&self, in_place: &BTreeSet<TableUid>) -> Result<()> {
        let mut hidden = 0u64;
        let mut came = 0u64;
        for AddedTable { run, meta } in &self.edit.added {
            let Some(place) = self.places.get(meta.uid) else {
                if !meta.masks.is_empty() {
                    return Err(refused(format_args!("table {} comes with masks", meta.uid)));
                }
                came = came.saturating_add(meta.entries);
                continue;
            };
            if place.meta.masks != meta.masks && !in_place.contains(&meta.uid) {
                return Err(refused(format_args!(
                    "table {} is masked while it moves to level {}",
                    meta.uid, run.level
                )));
            }
            self.check_list_under(*run, place, meta)?;
            let newly = meta.hidden().minus(place.meta.hidden());
            hidden = hidden.saturating_add(newly.entries);
        }
        let leaves =
            self.edit.removed.iter().filter(|removed| {
                !self.edit.added.iter().any(|added| added.meta.uid == removed.uid)
            });
        let leaves = leaves.filter_map(|removed| self.places.get(removed.uid));
        hidden = leaves.fold(hidden, |sum, place| sum.saturating_add(place.meta.visible().entries));
        if !in_place.is_empty() && came > hidden {
            return Err(refused(format_args!(
                "{came} entries come into a run, of which only {hidden} are hidden or taken away"
            )));
        }
        Ok(())
    }

    /// Rule 9: that the list of a run has holes where a mask newly hides keys of one of its tables.
    fn check_list_under(&self, id: RunId, place: &Place, meta: &TableMeta) -> Result<()> {
        let Some(run) = self.version.run(id) else { return Ok(()) };
        let Some(list) = &run.list else { return Ok(()) };
        // A mask that meets others has become one with them: their holes may lie deeper.
        for interval in meta.newly_hidden(&place.meta).iter() {
            let (smallest, largest) = list_range(run, interval);
            if !list.is_hidden(&smallest, &largest) {
                return Err(refused(format_args!(
                    "table {} is masked from {} on without a hole in the buffer list of level {}",
                    meta.uid,
                    Printable(&smallest),
                    id.level
                )));
            }
        }
        Ok(())
    }

    /// Rule 10, for a table that leaves `from`, or of which a part does.
    fn check_clipped(&self, from: RunId, meta: &TableMeta) -> Result<()> {
        let Some(gone) = claims::goes(self.edit, from, meta) else { return Ok(()) };
        for (id, run) in self.version.sentinels() {
            let goes_below =
                self.edit.added.is_empty() || self.edit.added.iter().any(|added| added.run > id);
            let passes = from == id || (from < id && goes_below);
            let claims = run.claims.as_ref().filter(|_| passes);
            // A claim of the same edit is looked at by rule 9.
            let is_new = self.edit.claims.iter().any(|claim| claim.run == id);
            if claims.is_some_and(|claims| claims.overlap_with(&gone)) && !is_new {
                return Err(refused(format_args!(
                    "table {} passes a claim of the sentinel of epoch {} over keys {} to {}",
                    meta.uid,
                    id.epoch,
                    Printable(&meta.smallest),
                    Printable(&meta.largest)
                )));
            }
        }
        Ok(())
    }
}

/// Whether a table may show a key of `keys`.
fn shows(meta: &TableMeta, keys: &Interval) -> bool {
    let keys = keys.common(&Interval::closed(&meta.smallest, &meta.largest));
    !keys.is_empty() && !meta.masks.iter().any(|mask| mask.interval.includes(&keys))
}

/// What an edit moves, and the lists after it.
struct Passage<'a> {
    version: &'a Version,
    edit: &'a KeyspaceEdit,
    places: &'a Places,
    /// The runs that the edit takes tables out of, by table.
    from: BTreeMap<TableUid, RunId>,
    /// The runs that it adds tables to.
    into: BTreeSet<RunId>,
    /// The tables that it appends to lists.
    appended: BTreeSet<TableUid>,
}

impl<'a> Passage<'a> {
    /// Of what does not stay in its place.
    fn new(
        version: &'a Version,
        edit: &'a KeyspaceEdit,
        places: &'a Places,
        in_place: &BTreeSet<TableUid>,
    ) -> Self {
        let moved = edit.removed.iter().filter(|removed| !in_place.contains(&removed.uid));
        let from = moved.filter_map(|removed| {
            Some((removed.uid, run_at(removed.part, places.get(removed.uid)?)))
        });
        let appended = edit.lists.iter().filter_map(|change| match change {
            ListChange::Append { uid, .. } => Some(*uid),
            _ => None,
        });
        let (from, appended) = (from.collect(), appended.collect());
        let into = edit.added.iter().filter(|added| !in_place.contains(&added.meta.uid));
        let into = into.map(|added| added.run).collect();
        Self { version, edit, places, from, into, appended }
    }

    /// Whether all that the edit adds goes into the run `id`.
    fn goes_into(&self, id: RunId) -> bool {
        self.into.len() == 1 && self.into.contains(&id)
    }

    /// Rule 7, for what comes into lists.
    fn check_appended(&self) -> Result<()> {
        for change in &self.edit.lists {
            let ListChange::Append { run, uid, .. } = change else { continue };
            let is_merged = self.from.get(uid).is_some_and(|from| from < run);
            if !(is_merged && self.goes_into(*run)) {
                return Err(refused(format_args!(
                    "table {uid} comes into the buffer list of a run of level {} into which it \
                     is not merged",
                    run.level
                )));
            }
            self.check_masks_of(*run, *uid)?;
        }
        Ok(())
    }

    /// Rule 7: that a list does not answer for what masks hide of a table that comes into it.
    fn check_masks_of(&self, id: RunId, uid: TableUid) -> Result<()> {
        let place = self.places.get(uid).filter(|place| !place.meta.masks.is_empty());
        let (Some(place), Some(run)) = (place, self.version.run(id)) else { return Ok(()) };
        let Some(list) = &run.list else { return Ok(()) };
        let has_it = |run: &Arc<BufferedRun>| run.tables.iter().any(|(meta, _)| meta.uid == uid);
        // It is gone if holes cover it.
        let Some(at) = list.runs().iter().position(has_it) else { return Ok(()) };
        for mask in &place.meta.masks {
            let (smallest, largest) = list_range(run, &mask.interval);
            let mut newer = list.runs().iter().take(at + 1);
            if !newer.any(|run| run.holes.contain(&smallest, &largest)) {
                return Err(refused(format_args!(
                    "table {uid} comes into a buffer list of level {} without a hole under its \
                     mask from {} on",
                    id.level,
                    Printable(&smallest)
                )));
            }
        }
        Ok(())
    }

    /// Rule 7, for lists that begin in the edit.
    fn check_founded(&self, old: &Version) -> Result<()> {
        let begins = self.edit.lists.iter().map(ListChange::run).collect::<BTreeSet<_>>();
        for (id, _, list) in self.version.lists().filter(|(id, ..)| begins.contains(id)) {
            let rotated = self.edit.rotated.contains_key(&id.level);
            let part = match id.part {
                PartKind::Filling if rotated => continue,
                PartKind::Draining if rotated => PartKind::Filling,
                part => part,
            };
            let had = old.levels()[id.level].part(part);
            let had = had.and_then(|part| part.runs.iter().find(|run| run.epoch == id.epoch));
            let Some(had) = had else { continue };
            let goes_on = had.list.as_ref().is_some_and(|list| !list.runs().is_empty())
                && !self.edit.lists.contains(&ListChange::Drop { run: id });
            if goes_on || list.tables().next().is_none() {
                continue;
            }
            let is_hidden = |meta: &TableMeta| {
                list.runs().iter().any(|run| run.holes.contain(&meta.smallest, &meta.largest))
            };
            if let Some((meta, _)) = had.tables.iter().find(|(meta, _)| !is_hidden(meta)) {
                return Err(refused(format_args!(
                    "the buffer list of a run of level {} would begin without a hole over table \
                     {}, which the run has already",
                    id.level, meta.uid
                )));
            }
        }
        Ok(())
    }

    /// Rule 7, for one table that is removed from a run.
    fn check_passing(&self, from: RunId, meta: &TableMeta) -> Result<()> {
        let first = self.into.first().map_or(from, |&into| into.min(from));
        let last = self.into.last().map_or(from, |&into| into.max(from));
        for (id, run, list) in self.version.lists() {
            if id < first || id > last || list.is_hidden(&meta.smallest, &meta.largest) {
                continue;
            }
            let answers = match from == id {
                // A merge into the run itself, whose other inputs were appended.
                true => self.from.values().any(|&from| from != id),
                false => self.answers(list, from, meta),
            };
            if !(self.goes_into(id) && answers) {
                return Err(refused(format_args!(
                    "keys {} to {} of table {} (level {}, epoch {}) would pass the buffer list of \
                     level {} (epoch {}) without a hole",
                    Printable(&meta.smallest),
                    Printable(&meta.largest),
                    meta.uid,
                    from.level,
                    from.epoch,
                    id.level,
                    run.epoch
                )));
            }
        }
        Ok(())
    }

    /// Whether a walk through `list` meets a table that came from `from`, or a hole in its place,
    /// before anything older: until then only what came with it from newer runs.
    fn answers(&self, list: &BufferList, from: RunId, meta: &TableMeta) -> bool {
        let (smallest, largest) = (&meta.smallest[..], &meta.largest[..]);
        for run in list.runs() {
            // Of too many at once the oldest become holes.
            if run.holes.contain(smallest, largest) {
                return true;
            }
            let (lower, upper) = (Bound::Included(smallest), Bound::Included(largest));
            let mut met = run.tables.range(run.tables.overlapping(lower, upper));
            let is_newer = |uid| {
                self.appended.contains(uid) && self.from.get(uid).is_some_and(|other| *other < from)
            };
            if let Some((other, _)) = met.find(|(other, _)| !is_newer(&other.uid)) {
                return other.uid == meta.uid && self.appended.contains(&meta.uid);
            }
        }
        false
    }
}

/// Rule 7, for a table that comes from nowhere.
fn check_arrival(version: &Version, added: &AddedPlace) -> Result<()> {
    let AddedPlace { part, place } = added;
    let id = run_at(*part, place);
    let mut lists = version.lists().filter(|(of, ..)| *of == id);
    if lists.all(|(_, _, list)| list.is_hidden(&place.meta.smallest, &place.meta.largest)) {
        return Ok(());
    }
    let uid = place.meta.uid;
    Err(refused(format_args!("table {uid} comes into a run whose buffer list does not have it")))
}

/// Rule 8.
fn check_lists(keyspace: &KeyspaceVersion) -> Result<()> {
    let most = keyspace.options.compaction.level_sizes().level_ratio as usize;
    for (id, _, list) in keyspace.version.lists() {
        let fault = if !keyspace.options.compaction_buffer.is_on(id.level) {
            "which its options do not allow"
        } else if list.runs().iter().filter(|run| !run.tables.is_empty()).count() > most {
            "of more buffered runs than a level is larger than the one above"
        } else if list.runs().iter().rev().skip(1).any(|run| run.tables.is_empty()) {
            "with a buffered run without tables that is not the oldest"
        } else {
            continue;
        };
        let name = &keyspace.name;
        return Err(refused(format_args!("a run of keyspace {name:?} has a buffer list {fault}")));
    }
    Ok(())
}
