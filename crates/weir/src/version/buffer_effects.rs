//! What an edit does to buffer lists: one pure function, against the root that the edit meets.
//!
//! *Buffered merge* (LSbM Alg. 1, dLSM §IV-B): tables of one level that are merged into the filling
//! run of a deeper one, or moved there, are appended to the list of that run, the oldest run's
//! first. A table that overlaps nothing in the newest buffered run joins it, another begins a new
//! one: a round of a draining part, which gives in key order, becomes one buffered run.
//!
//! *Rule of passing* (H54): whatever else leaves a run or passes it punches a hole over its hull
//! into every list at or between its old and its new place, in the same edit; what comes into a run
//! is appended to its list or covered by a hole. Without it a list answers with what was
//! overwritten below or deleted. Too large a hole is safe.
//!
//! With hand-off a sentinel that sinks is not appended: a hole lies over its tables' hull instead.
//!
//! *Freeze is drop* (LSbM §4.1, H8): a list of which merges shadow too large a share is dropped,
//! and nothing is appended until the share falls or the run is another one.
//!
//! *The cap*: at most `level_ratio` buffered runs with tables, which is a round of the level above;
//! the oldest becomes holes (H3). It binds where nothing rotates: `leveled` and the last level.
//!
//! Not here: how a list changes (`buffer_list`), when a table is trimmed (`compaction::buffer`).
//! `check` verifies what is decided here without knowing how.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::buffer_list::{BufferList, BufferedRun, ListCounts};
use super::edit::{AddedTable, KeyspaceEdit, ListChange};
use super::keyspaces::KeyspaceVersion;
use super::root::Places;
use super::run::Run;
use super::shape::{PartKind, RunId, RunKind};
use crate::base::ids::{Level, TableUid};
use crate::base::interval::Interval;
use crate::base::key::compare;
use crate::base::table_meta::TableMeta;
use crate::options::{CompactionBuffer, Options, WarmUp};

/// A list of which merges shadow more than this share of the entries appended is dropped. LSbM's
/// level 2, which it keeps, has 0.21 at its end.
const SHADOWED_MAX: f64 = 0.3;
/// It is judged once this part of its run's entries has been appended.
const EVIDENCE_DIVISOR: u64 = 8;

/// The least range that holds all of the tables.
struct Hull<'a>(Option<(&'a [u8], &'a [u8])>);

impl<'a> Hull<'a> {
    fn of(tables: impl Iterator<Item = &'a TableMeta>) -> Self {
        Self(tables.map(|meta| (&meta.smallest[..], &meta.largest[..])).reduce(|a, b| {
            let smallest = if compare(b.0, a.0).is_lt() { b.0 } else { a.0 };
            let largest = if compare(b.1, a.1).is_gt() { b.1 } else { a.1 };
            (smallest, largest)
        }))
    }
}

/// The keys of an interval that a run or its list may have, both ends included.
pub(super) fn list_range(run: &Run, interval: &Interval) -> (Vec<u8>, Vec<u8>) {
    let smallest = interval.from.to_vec();
    if let Some(largest) = last_of(interval) {
        return (smallest, largest);
    }
    let listed = run.list.iter().flat_map(|list| list.tables());
    let all = run.tables.iter().chain(listed).map(|(meta, _)| &meta.largest);
    let largest = all.max().filter(|largest| **largest > smallest);
    let largest = largest.cloned().unwrap_or_else(|| smallest.clone());
    (smallest, largest)
}

/// The last key of an interval with an end, where there is one; else one key too many, which a hole
/// may have.
fn last_of(interval: &Interval) -> Option<Vec<u8>> {
    let mut largest = interval.to.as_ref()?.to_vec();
    if largest.last() == Some(&0) {
        largest.pop();
    }
    Some(largest)
}

/// A table that leaves a run.
pub(super) struct Leaving {
    pub(super) from: RunId,
    pub(super) meta: Arc<TableMeta>,
}

/// An edit of a keyspace, in terms of runs.
struct Passage<'a> {
    old: &'a KeyspaceVersion,
    options: &'a Options,
    edit: &'a KeyspaceEdit,
    leaving: Vec<Leaving>,
    /// The runs that tables come into.
    into: BTreeSet<RunId>,
}

/// The changes of buffer lists that belong to `edit`.
pub(super) fn effects(
    old: &KeyspaceVersion,
    edit: &KeyspaceEdit,
    places: &Places,
) -> Vec<ListChange> {
    let options = edit.options.as_ref().unwrap_or(&old.options);
    if !lists_matter(old, options) {
        return Vec::new();
    }
    let leaving = edit.removed.iter().filter_map(|removed| {
        let place = places.get(removed.uid)?;
        let from = RunId { level: place.level, part: removed.part, epoch: place.epoch };
        Some(Leaving { from, meta: Arc::clone(&place.meta) })
    });
    let mut leaving: Vec<Leaving> = leaving.collect();
    // What stays in its place with another view passes nothing: the claim of the edit does.
    let from: BTreeMap<TableUid, RunId> = leaving.iter().map(|l| (l.meta.uid, l.from)).collect();
    let stays = |added: &&AddedTable| from.get(&added.meta.uid) == Some(&added.run);
    let in_place: BTreeSet<TableUid> =
        edit.added.iter().filter(stays).map(|added| added.meta.uid).collect();
    leaving.retain(|leaving| !in_place.contains(&leaving.meta.uid));
    let moved = edit.added.iter().filter(|added| !in_place.contains(&added.meta.uid));
    let into = moved.map(|added| added.run).collect();
    Passage { old, options, edit, leaving, into }.changes()
}

/// The changes of buffer lists that a merge of these tables into `output` would bring, if its edit
/// met this version and as large a part of its entries hid others as of those before.
pub(super) fn foresee(
    old: &KeyspaceVersion,
    leaving: Vec<Leaving>,
    output: RunId,
) -> Vec<ListChange> {
    if !lists_matter(old, &old.options) {
        return Vec::new();
    }
    let entries = leaving.iter().filter(|leaving| leaving.from != output);
    let entries: u64 = entries.map(|leaving| leaving.meta.entries).sum();
    let list = old.version.run(output).and_then(|run| run.list.as_deref());
    let ListCounts { appended, shadowed, .. } = list.map(BufferList::counts).unwrap_or_default();
    let mut edit = KeyspaceEdit::default();
    // They are from the disk.
    let hidden = u128::from(entries) * u128::from(shadowed) / u128::from(appended.max(1));
    edit.requests.shadowed = u64::try_from(hidden).map_or(entries, |hidden| hidden.min(entries));
    let into = BTreeSet::from([output]);
    Passage { old, options: &old.options, edit: &edit, leaving, into }.changes()
}

/// Whether there is a list, or may be one.
pub(super) fn lists_matter(old: &KeyspaceVersion, options: &Options) -> bool {
    Level::all().any(|level| options.compaction_buffer.is_on(level))
        || old.version.runs_newest_first().any(|run| run.list.is_some())
}

impl Passage<'_> {
    fn changes(&self) -> Vec<ListChange> {
        let mut changes = Vec::new();
        let target = self.buffered_target();
        for (id, run, list) in self.old.version.lists() {
            if !self.options.compaction_buffer.is_on(id.level) || self.edit.requests.drop {
                // With a run that ends its list ends.
                if !self.ends(id, run) {
                    changes.push(ListChange::Drop { run: id });
                }
                continue;
            }
            let asked = &self.edit.requests.trim;
            if !asked.is_empty() {
                let trim = list.tables().map(|(meta, _)| meta.uid);
                let trim = trim.filter(|uid| asked.contains(uid));
                changes.extend(trim.map(|uid| ListChange::Trim { run: id, uid }));
            }
            if self.edit.options.is_some() {
                self.cap(id, Some(list), &[], &mut changes);
            }
            if Some(id) != target && !self.ends(id, run) {
                changes.extend(self.hole(id, run, list));
            }
            if !list.runs().is_empty() && !self.ends(id, run) {
                changes.extend(self.taken(id, run));
            }
        }
        if let Some(target) = target.filter(|_| !self.edit.requests.drop) {
            self.append(target, &mut changes);
        }
        changes
    }

    /// The holes in the list of `id` where a sentinel takes an interval out of its run (H10).
    fn taken(&self, id: RunId, run: &Run) -> impl Iterator<Item = ListChange> {
        let taken = self.edit.requests.taken.iter().filter(move |(by, _)| *by < id);
        taken.map(move |(_, interval)| {
            let (smallest, largest) = list_range(run, interval);
            ListChange::Hole { run: id, smallest, largest }
        })
    }

    /// Whether the edit leaves nothing of a run.
    fn ends(&self, id: RunId, run: &Run) -> bool {
        let leaving = self.leaving.iter().filter(|leaving| leaving.from == id).count();
        leaving == run.tables.len() && !self.into.contains(&id)
    }

    /// The run into which the edit is a buffered merge.
    fn buffered_target(&self) -> Option<RunId> {
        let mut into = self.into.iter();
        let (Some(&target), None) = (into.next(), into.next()) else { return None };
        let sources = || self.leaving.iter().filter(|leaving| leaving.from != target);
        let level = sources().next()?.from.level;
        let may = target.part == PartKind::Filling
            && self.options.compaction_buffer.is_on(target.level)
            && level < target.level
            && sources().all(|leaving| leaving.from.level == level);
        may.then_some(target)
    }

    /// The hole in the list of `id` for what leaves its run or passes it.
    fn hole(&self, id: RunId, run: &Run, list: &BufferList) -> Option<ListChange> {
        let newest = list.runs().first()?;
        let leaving = self.leaving.iter().filter(|leaving| self.is_passed(id, leaving.from));
        let leaving: Vec<&TableMeta> = leaving.map(|leaving| &*leaving.meta).collect();
        // What comes from nowhere: of a repair, or a flush.
        let coming = self.edit.added.iter();
        let coming = coming.filter(|added| added.run == id && self.into.contains(&id));
        let coming = coming.filter(|_| self.leaving.is_empty()).map(|added| &*added.meta);
        let (smallest, largest) = Hull::of(leaving.into_iter().chain(coming)).0?;
        // A run that gives in key order would leave a hole for each job: nothing of the run lies
        // between this one and the one before.
        let left: BTreeSet<TableUid> = self.leaving.iter().map(|l| l.meta.uid).collect();
        let before = newest.holes.iter().take_while(|(_, to)| compare(to, smallest).is_lt()).last();
        let at = run.tables.lower_bound(smallest);
        let below = run.tables.range(0..at).rev().find(|(meta, _)| !left.contains(&meta.uid));
        let smallest = match (before, below) {
            (_, None) => &[][..],
            (Some((from, to)), Some((meta, _))) if compare(&meta.largest, to).is_le() => from,
            _ => smallest,
        };
        let (smallest, largest) = (smallest.to_vec(), largest.to_vec());
        Some(ListChange::Hole { run: id, smallest, largest })
    }

    /// Whether what leaves `from` leaves the run `id` or passes it.
    fn is_passed(&self, id: RunId, from: RunId) -> bool {
        if self.into.is_empty() {
            // Nothing came of the merge: it went to the oldest of its runs, for all one knows.
            let oldest = self.leaving.iter().map(|leaving| leaving.from).max();
            return id >= from && Some(id) <= oldest;
        }
        self.into.iter().any(|&into| from.min(into) <= id && id <= from.max(into))
    }

    /// Whether what comes from a run is no matter of lists: a sentinel's blocks are handed over to
    /// where it sinks. What lists have of its range is under a hole since it was built (H10), and
    /// so it stays: with a copy in a list, of which scans can make no use above a hole, there would
    /// be two in the cache, or the one that scans need would be the cold one.
    fn is_handed_over(&self, from: RunId) -> bool {
        let run = self.old.version.run(from);
        self.options.warm_up == WarmUp::HandOff
            && run.is_some_and(|run| run.kind == RunKind::Sentinel)
    }

    /// Appends the sources of a buffered merge.
    fn append(&self, target: RunId, changes: &mut Vec<ListChange>) {
        let run = self.old.version.run(target);
        let list = run.and_then(|run| run.list.as_deref());
        let mut by_age: BTreeMap<RunId, Vec<&Arc<TableMeta>>> = BTreeMap::new();
        for leaving in self.leaving.iter().filter(|leaving| leaving.from != target) {
            by_age.entry(leaving.from).or_default().push(&leaving.meta);
        }
        let comes = |(from, _): &(&RunId, _)| !self.is_handed_over(**from);
        let entries = by_age.iter().filter(comes).flat_map(|(_, metas)| metas);
        let entries = entries.map(|meta| meta.entries).fold(0, u64::saturating_add);
        let had = run.map_or(0, |run| run.tables.totals().entries);
        // What a part holds that began to fill without a list was received in this round.
        let rotates = CompactionBuffer::Cascade.suits(self.options.compaction);
        let round = rotates && target.level < Level::LAST;
        let begun = ListCounts { appended: if round { had } else { 0 }, ..ListCounts::default() };
        let before = list.map_or(begun, BufferList::counts);
        let counts = counted(before, entries, self.edit.requests.shadowed, had);
        if counts.quiet {
            if list.is_some_and(|list| !list.runs().is_empty()) {
                changes.push(ListChange::Drop { run: target });
            }
            changes.push(ListChange::Count { run: target, counts });
            return;
        }
        let held = list.filter(|list| !list.runs().is_empty());
        if let (None, Some(run)) = (held, run) {
            // The foot: what the run holds already was never in the list.
            if let Some((smallest, largest)) = Hull::of(run.tables.iter().map(|(m, _)| &**m)).0 {
                let (smallest, largest) = (smallest.to_vec(), largest.to_vec());
                changes.push(ListChange::Hole { run: target, smallest, largest });
            }
        }
        // The buffered run that is joined, if it was there before, and what has joined it.
        let mut joins = held.and_then(|list| list.runs().first());
        joins = joins.filter(|run| !run.tables.is_empty());
        let mut joined = KeyRanges::default();
        // The tables that join it, and those of each buffered run that begins.
        let mut appended: Vec<Vec<TableUid>> = vec![Vec::new()];
        // A hole of the newest buffered run lies over some of its tables.
        let mut is_closed = false;
        let may_have_holes =
            held.is_some() || by_age.keys().any(|&from| !self.is_handed_over(from));
        // A smaller id is newer.
        for (from, metas) in by_age.into_iter().rev() {
            if self.is_handed_over(from) {
                // Each by itself: what lies between two hot ranges stays in the list.
                for meta in metas.iter().filter(|_| may_have_holes) {
                    let (smallest, largest) = (meta.smallest.clone(), meta.largest.clone());
                    changes.push(ListChange::Hole { run: target, smallest, largest });
                    is_closed = true;
                }
                continue;
            }
            for meta in metas {
                let fits = |run: &Arc<BufferedRun>| {
                    let (smallest, largest) = (&meta.smallest[..], &meta.largest[..]);
                    let range = (Bound::Included(smallest), Bound::Included(largest));
                    run.tables.overlapping(range.0, range.1).is_empty()
                        && !run.holes.overlap(smallest, largest)
                };
                let begins_run = is_closed
                    || match joins {
                        Some(run) => !fits(run),
                        None => appended.len() == 1,
                    }
                    || joined.overlap(meta);
                if begins_run {
                    (joins, joined) = (None, KeyRanges::default());
                    appended.push(Vec::new());
                }
                is_closed = !meta.masks.is_empty();
                joined.add(meta);
                let uid = meta.uid;
                appended.last_mut().into_iter().for_each(|run| run.push(uid));
                changes.push(ListChange::Append { run: target, uid, begins_run, meta: None });
                // What its masks hide is in the file still (H10). Nothing more joins its run.
                for mask in &meta.masks {
                    let smallest = mask.interval.from.to_vec();
                    let largest = last_of(&mask.interval).unwrap_or_else(|| meta.largest.clone());
                    changes.push(ListChange::Hole { run: target, smallest, largest });
                }
            }
        }
        changes.push(ListChange::Count { run: target, counts });
        self.cap(target, held, &appended, changes);
    }

    /// Makes holes of the oldest of too many buffered runs. Of the tables `appended` the first join
    /// the newest of the list, the others are those of a new one each.
    fn cap(
        &self,
        id: RunId,
        list: Option<&BufferList>,
        appended: &[Vec<TableUid>],
        changes: &mut Vec<ListChange>,
    ) {
        let most = self.options.compaction.level_sizes().level_ratio as usize;
        let (joined, begun) = appended.split_first().map_or((&[][..], &[][..]), |(j, b)| (j, b));
        let had = list.into_iter().flat_map(|list| list.runs().iter().rev());
        let had = had.filter(|run| !run.tables.is_empty());
        let too_many = (had.clone().count() + begun.len()).saturating_sub(most);
        if too_many == 0 {
            return;
        }
        let uids = |run: &Arc<BufferedRun>| run.tables.iter().map(|(meta, _)| meta.uid).collect();
        let mut oldest_first: Vec<Vec<TableUid>> = had.map(uids).collect();
        oldest_first.last_mut().into_iter().for_each(|newest| newest.extend(joined));
        oldest_first.extend_from_slice(begun);
        let trimmed = oldest_first.into_iter().take(too_many).flatten();
        changes.extend(trimmed.map(|uid| ListChange::Trim { run: id, uid }));
    }
}

/// Ranges of tables without a common key.
#[derive(Default)]
struct KeyRanges<'a>(BTreeMap<&'a [u8], &'a [u8]>);

impl<'a> KeyRanges<'a> {
    fn add(&mut self, meta: &'a TableMeta) {
        self.0.insert(&meta.smallest, &meta.largest);
    }

    /// Whether a key of a table is in one. Requires: `compare` orders keys as bytes.
    fn overlap(&self, meta: &TableMeta) -> bool {
        let before = self.0.range(..=&meta.largest[..]).next_back();
        before.is_some_and(|(_, largest)| compare(largest, &meta.smallest).is_ge())
    }
}

/// The counters after a merge that appends `entries` to a run of `had`, of which it found
/// `shadowed` to be hidden.
fn counted(before: ListCounts, entries: u64, shadowed: u64, had: u64) -> ListCounts {
    let ListCounts { appended, shadowed: shadowed_before, quiet } = before;
    // They are from the disk.
    let mut appended = appended.saturating_add(entries);
    let mut shadowed = shadowed_before.saturating_add(shadowed);
    let holds = had.saturating_add(entries).saturating_sub(shadowed);
    let share = shadowed as f64 / appended.max(1) as f64;
    let judged = appended >= holds / EVIDENCE_DIVISOR;
    // What the run was replaced with since counts for more than what it was before.
    if appended > holds.saturating_mul(2) {
        (appended, shadowed) = ((appended / 2).max(1), shadowed / 2);
    }
    let quiet = if quiet { share > SHADOWED_MAX / 2.0 } else { judged && share > SHADOWED_MAX };
    ListCounts { appended, shadowed, quiet }
}
