//! Buffer lists: what a run's compaction buffer holds beside it on disk.
//!
//! A list keeps the tables that were merged into a run, as they were before the merges, so that
//! their cached blocks stay valid while the run itself is rewritten. It says less than its run or
//! the same, never more.
//!
//! ```text
//! run          |----a----|--b--|------c------|      the base: one sorted run
//! list  newest |  t5  |      |  t6 |                a buffered run: tables and holes
//!              | t1 |~~~~~~~~~~| t2 |  t3 |         ~ a hole: from here down ask the base
//!       oldest |~~~~~~~~~~~~~~~~~~~~~~~~~~~|        the foot: a hole over what it never held
//! ```
//!
//! A walk goes through the buffered runs, newest first, and in each looks at the holes, then at the
//! tables. At the first hole over the key it ends, and the base answers; a walk that ends without
//! one has the whole answer of the run, also that it holds nothing. So a hole hides everything that
//! is older in its list. It stands for a trimmed table (H1), for what was never in the list (H3),
//! and for all that left the run or passed it without being appended (H10, H54).
//!
//! Not here: what an edit does to lists (`buffer_effects`), reading (`read::buffered`), trimming
//! (`compaction::buffer`).
//!
//! Source: LSbM §4 (Alg. 1, 2), dLSM §IV-B; the differences are in docs/papers.md.
//!
//! Invariants: (1) for every key under no hole, the list holds all entries that its run holds, in
//! buffered runs whose newer ones have the newer entries; (2) only the oldest buffered run may have
//! no tables: it is the foot; (3) a table of a buffered run is not wholly under a hole of this or a
//! newer one; (4) holes of one buffered run are ascending and do not overlap.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;

use super::tables::{Overlap, TableList};
use crate::base::ids::TableUid;
use crate::base::key::{KeyRange, compare};
use crate::base::table_meta::TableMeta;
use crate::table::Table;

/// Ranges for which the base must be asked: ascending, none overlaps another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holes(Vec<KeyRange>);

impl Holes {
    /// The first hole that ends at or above `key`.
    fn at_or_after(&self, key: &[u8]) -> usize {
        self.0.partition_point(|(_, largest)| compare(largest, key).is_lt())
    }

    /// Whether a hole covers `key`.
    #[inline]
    pub(crate) fn cover(&self, key: &[u8]) -> bool {
        !self.0.is_empty() && self.overlap(key, key)
    }

    /// Whether a hole has a key of the range.
    pub(crate) fn overlap(&self, smallest: &[u8], largest: &[u8]) -> bool {
        let hole = self.0.get(self.at_or_after(smallest));
        hole.is_some_and(|(from, _)| compare(from, largest).is_le())
    }

    /// Whether one hole covers the whole range.
    pub(crate) fn contain(&self, smallest: &[u8], largest: &[u8]) -> bool {
        let hole = self.0.get(self.at_or_after(smallest));
        hole.is_some_and(|(from, to)| {
            compare(from, smallest).is_le() && compare(largest, to).is_le()
        })
    }

    /// The holes that share a key with a range.
    fn overlapped(&self, (smallest, largest): &KeyRange) -> Range<usize> {
        let first = self.at_or_after(smallest);
        let rest = self.0.get(first..).unwrap_or(&[]);
        first..first + rest.partition_point(|(from, _)| compare(from, largest).is_le())
    }

    /// The range with all holes that share a key with it.
    fn spread(&self, range: KeyRange) -> KeyRange {
        let (mut smallest, mut largest) = range.clone();
        let overlapped = self.0.get(self.overlapped(&range)).unwrap_or(&[]);
        if let (Some((from, _)), Some((_, to))) = (overlapped.first(), overlapped.last()) {
            smallest = smallest.min(Arc::clone(from));
            largest = largest.max(Arc::clone(to));
        }
        (smallest, largest)
    }

    /// Adds a range; holes that it overlaps become one with it.
    pub(super) fn add(&mut self, range: KeyRange) {
        let overlapped = self.overlapped(&range);
        let range = self.spread(range);
        self.0.splice(overlapped, [range]);
    }

    /// The holes of both. Linear.
    fn union(&self, other: &Self) -> Self {
        let (mut ours, mut theirs) = (self.iter().peekable(), other.iter().peekable());
        let mut all: Vec<KeyRange> = Vec::with_capacity(self.0.len() + other.0.len());
        loop {
            let next = match (ours.peek(), theirs.peek()) {
                (Some((a, _)), Some((b, _))) if compare(b, a).is_lt() => theirs.next(),
                (Some(_), _) => ours.next(),
                (None, _) => theirs.next(),
            };
            let Some((from, to)) = next else { return Self(all) };
            match all.last_mut().filter(|(_, last)| compare(from, last).is_le()) {
                Some((_, last)) if compare(last, to).is_lt() => *last = Arc::clone(to),
                Some(_) => {}
                None => all.push((Arc::clone(from), Arc::clone(to))),
            }
        }
    }

    /// The ranges, ascending.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, KeyRange> {
        self.0.iter()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Tables that were appended to a list one after another in key order, and its holes there.
#[derive(Clone, Debug, Default)]
pub(crate) struct BufferedRun {
    /// The tables.
    pub(crate) tables: TableList<Arc<Table>>,
    /// Where the list does not answer from this buffered run down.
    pub(crate) holes: Holes,
}

/// How much of what was appended to a list hides something in its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListCounts {
    /// Entries appended.
    pub(crate) appended: u64,
    /// Entries of the run that they shadowed.
    pub(crate) shadowed: u64,
    /// Too many: nothing is appended for now.
    pub(crate) quiet: bool,
}

/// The buffer list of one run. Immutable.
#[derive(Clone, Debug, Default)]
pub(crate) struct BufferList {
    /// Those that an edit does not touch are shared with the list before it.
    runs: Vec<Arc<BufferedRun>>,
    counts: ListCounts,
}

impl BufferList {
    /// The buffered runs, newest first.
    #[inline]
    pub(crate) fn runs(&self) -> &[Arc<BufferedRun>] {
        &self.runs
    }

    /// Its counters.
    pub(crate) fn counts(&self) -> ListCounts {
        self.counts
    }

    /// All tables, of the newest buffered run first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&Arc<TableMeta>, &Arc<Table>)> {
        self.runs.iter().flat_map(|run| run.tables.iter())
    }

    /// Whether the list answers for every key of the range.
    pub(crate) fn is_complete(&self, smallest: &[u8], largest: &[u8]) -> bool {
        !self.runs.is_empty() && self.runs.iter().all(|run| !run.holes.overlap(smallest, largest))
    }

    /// The parts of a range for which a walk comes to the buffered run of this age, ascending. They
    /// end where holes begin, the ends of both included.
    pub(crate) fn served(&self, age: usize, smallest: &[u8], largest: &[u8]) -> Vec<KeyRange> {
        let mut hidden = Holes::default();
        for run in self.runs.iter().take(age + 1) {
            let holes = run.holes.iter().skip(run.holes.at_or_after(smallest));
            let overlapping = holes.take_while(|(from, _)| compare(from, largest).is_le());
            overlapping.for_each(|range| hidden.add(range.clone()));
        }
        let mut parts = Vec::with_capacity(hidden.0.len() + 1);
        let mut from: Arc<[u8]> = Arc::from(smallest);
        for (hole_from, hole_to) in hidden.iter() {
            if compare(&from, hole_from).is_lt() {
                parts.push((from, Arc::clone(hole_from)));
            }
            from = Arc::clone(hole_to);
        }
        if hidden.is_empty() || compare(&from, largest).is_lt() {
            parts.push((from, Arc::from(largest)));
        }
        parts
    }

    /// Whether its tables may stand for all that its run holds of the range.
    pub(crate) fn may_stand_for(&self, smallest: &[u8], largest: &[u8]) -> bool {
        let range = (Bound::Included(smallest), Bound::Included(largest));
        self.is_complete(smallest, largest)
            && self.runs.iter().any(|run| !run.tables.overlapping(range.0, range.1).is_empty())
    }

    /// Whether the list answers for no key of the range, so far as one hole of its newest buffered
    /// run says so.
    pub(crate) fn is_hidden(&self, smallest: &[u8], largest: &[u8]) -> bool {
        self.runs.first().is_none_or(|run| run.holes.contain(smallest, largest))
    }
}

/// A change of a list.
#[derive(Clone, Debug)]
pub(super) enum ListStep {
    /// A table of the newest buffered run, or the first of a new one.
    Append { meta: Arc<TableMeta>, table: Arc<Table>, begins_run: bool },
    /// A hole in the newest buffered run.
    Hole { smallest: Vec<u8>, largest: Vec<u8> },
    /// The table leaves; a hole takes its place. With its description, if it was in a list before.
    Trim(TableUid, Option<Arc<TableMeta>>),
    /// New counters.
    Count(ListCounts),
    /// Everything leaves.
    Drop,
}

/// Tables by uid.
pub(super) type TablesByUid = BTreeMap<TableUid, Arc<Table>>;

/// A list in the course of an edit. Costs what the edit changes, and a pointer per buffered run.
#[derive(Debug, Default)]
pub(super) struct ListInEdit {
    /// Newest first.
    runs: Vec<RunInEdit>,
    counts: ListCounts,
    moved: Moved,
}

/// The tables that an edit brought into a list and took out of it.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) came: TablesByUid,
    pub(super) left: TablesByUid,
}

impl Moved {
    fn come(&mut self, table: &Arc<Table>) {
        let uid = table.meta().uid;
        if self.left.remove(&uid).is_none() {
            self.came.insert(uid, Arc::clone(table));
        }
    }

    fn leave(&mut self, table: &Arc<Table>) {
        let uid = table.meta().uid;
        if self.came.remove(&uid).is_none() {
            self.left.insert(uid, Arc::clone(table));
        }
    }
}

#[derive(Debug, Default)]
struct RunInEdit {
    /// As it was.
    run: Arc<BufferedRun>,
    /// Indices of its tables that left.
    removed: BTreeSet<usize>,
    added: Vec<(Arc<TableMeta>, Arc<Table>)>,
    /// Its holes, if there are others than there were.
    holes: Option<Holes>,
    /// What the edit made holes of.
    fresh: Vec<KeyRange>,
}

impl RunInEdit {
    fn holes(&self) -> &Holes {
        self.holes.as_ref().unwrap_or(&self.run.holes)
    }

    fn is_empty(&self) -> bool {
        self.run.tables.len() == self.removed.len() && self.added.is_empty()
    }

    fn add_hole(&mut self, smallest: &[u8], largest: &[u8]) {
        let range: KeyRange = (Arc::from(smallest), Arc::from(largest));
        self.holes.get_or_insert_with(|| self.run.holes.clone()).add(range.clone());
        self.fresh.push(range);
    }

    /// Index of a table that was there and did not leave.
    fn position(&self, meta: &TableMeta) -> Option<usize> {
        let at = self.run.tables.lower_bound(&meta.smallest);
        let (there, _) = self.run.tables.get(at)?;
        (there.uid == meta.uid && !self.removed.contains(&at)).then_some(at)
    }

    /// Takes a table out; `None` if it is not here.
    fn remove(&mut self, meta: &TableMeta) -> Option<Arc<Table>> {
        if let Some(at) = self.position(meta) {
            self.removed.insert(at);
            return self.run.tables.get(at).map(|(_, table)| Arc::clone(table));
        }
        let at = self.added.iter().position(|(added, _)| added.uid == meta.uid)?;
        Some(self.added.remove(at).1)
    }

    /// Takes out the tables wholly within a range.
    fn remove_within(&mut self, (smallest, largest): &KeyRange, moved: &mut Moved) {
        let is_within = |meta: &TableMeta| {
            compare(smallest, &meta.smallest).is_le() && compare(&meta.largest, largest).is_le()
        };
        let tables = &self.run.tables;
        let overlapping = tables.overlapping(Bound::Included(smallest), Bound::Included(largest));
        for (at, (meta, table)) in overlapping.clone().zip(tables.range(overlapping)) {
            if is_within(meta) && self.removed.insert(at) {
                moved.leave(table);
            }
        }
        self.added.retain(|(meta, table)| {
            let goes = is_within(meta);
            if goes {
                moved.leave(table);
            }
            !goes
        });
    }

    /// The run after the edit.
    fn finish(self) -> Result<Arc<BufferedRun>, Overlap> {
        let Self { run, removed, mut added, holes, fresh: _ } = self;
        if removed.is_empty() && added.is_empty() && holes.is_none() {
            return Ok(run);
        }
        added.sort_by(|(a, _), (b, _)| compare(&a.smallest, &b.smallest));
        let removed: Vec<usize> = removed.into_iter().collect();
        let tables = match removed.is_empty() && added.is_empty() {
            true => run.tables.clone(),
            false => run.tables.edit(&removed, added)?,
        };
        Ok(Arc::new(BufferedRun { tables, holes: holes.unwrap_or_else(|| run.holes.clone()) }))
    }
}

impl ListInEdit {
    /// The list before the edit.
    pub(super) fn of(list: Option<&BufferList>) -> Self {
        let Some(list) = list else { return Self::default() };
        let in_edit =
            |run: &Arc<BufferedRun>| RunInEdit { run: Arc::clone(run), ..RunInEdit::default() };
        let runs = list.runs.iter().map(in_edit).collect();
        Self { runs, counts: list.counts, moved: Moved::default() }
    }

    /// Makes one change.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn step(&mut self, step: ListStep) -> Result<(), String> {
        match step {
            ListStep::Append { meta, table, begins_run } => {
                if self.moved.came.contains_key(&meta.uid)
                    || self.runs.iter().any(|run| run.position(&meta).is_some())
                {
                    return Err(format!("table {} is there already", meta.uid));
                }
                if begins_run {
                    self.runs.insert(0, RunInEdit::default());
                }
                let Some(newest) = self.runs.first_mut() else {
                    return Err(format!("table {} joins a list without runs", meta.uid));
                };
                if newest.holes().overlap(&meta.smallest, &meta.largest) {
                    return Err(format!("table {} is appended over a hole", meta.uid));
                }
                self.moved.come(&table);
                newest.added.push((meta, table));
            }
            ListStep::Hole { smallest, largest } => {
                if compare(&smallest, &largest).is_gt() {
                    return Err("a hole that ends before it begins".into());
                }
                if self.runs.is_empty() {
                    self.runs.push(RunInEdit::default());
                }
                self.runs.iter_mut().take(1).for_each(|run| run.add_hole(&smallest, &largest));
            }
            ListStep::Trim(uid, meta) => {
                let came = self.moved.came.get(&uid).map(|table| Arc::clone(table.shared_meta()));
                let meta = came.or(meta);
                let found = meta.and_then(|meta| {
                    let mut runs = self.runs.iter_mut();
                    runs.find_map(|run| run.remove(&meta).map(|table| (run, table)))
                });
                let (run, table) =
                    found.ok_or_else(|| format!("table {uid} is not in its list"))?;
                run.add_hole(&table.meta().smallest, &table.meta().largest);
                self.moved.leave(&table);
            }
            ListStep::Count(counts) => self.counts = counts,
            ListStep::Drop => {
                for RunInEdit { run, removed, added, .. } in std::mem::take(&mut self.runs) {
                    let had = run.tables.iter().enumerate();
                    let had = had.filter(|(at, _)| !removed.contains(at));
                    had.for_each(|(_, (_, table))| self.moved.leave(table));
                    added.iter().for_each(|(_, table)| self.moved.leave(table));
                }
                self.counts = ListCounts::default();
            }
        }
        Ok(())
    }

    /// The list after the edit, `None` if nothing is left to say, and what moved. Brings it into
    /// its form: buffered runs without tables give their holes to the next older one, whose walk
    /// they would end just as well, and tables that a hole hides leave.
    ///
    /// # Errors
    /// Two tables of a buffered run that share a key.
    pub(super) fn finish(mut self) -> Result<(Option<BufferList>, Moved), Overlap> {
        self.remove_hidden();
        let mut passed_on = Holes::default();
        let mut runs = Vec::with_capacity(self.runs.len());
        for mut run in self.runs {
            if !passed_on.is_empty() {
                run.holes = Some(run.holes().union(&passed_on));
            }
            passed_on = Holes::default();
            if run.is_empty() {
                passed_on = run.holes().clone();
                continue;
            }
            runs.push(run.finish()?);
        }
        if !passed_on.is_empty() {
            let foot = BufferedRun { tables: TableList::default(), holes: passed_on };
            runs.push(Arc::new(foot));
        }
        // A list of a foot alone answers for nothing that its run does not answer for.
        let only_foot = runs.iter().all(|run| run.tables.is_empty());
        if only_foot && self.counts == ListCounts::default() {
            return Ok((None, self.moved));
        }
        Ok((Some(BufferList { runs, counts: self.counts }), self.moved))
    }

    /// Takes out the tables that became hidden. A hole together with those that it overlaps, in its
    /// own and in newer buffered runs, hides from its run down; before the edit none was hidden.
    fn remove_hidden(&mut self) {
        let mut fresh = Holes::default();
        for at in 0..self.runs.len() {
            let (newer, rest) = self.runs.split_at_mut(at);
            let Some(run) = rest.first_mut() else { continue };
            run.fresh.drain(..).for_each(|range| fresh.add(range));
            for range in fresh.iter() {
                let mut range = range.clone();
                loop {
                    let wider = newer.iter().fold(range.clone(), |r, run| run.holes().spread(r));
                    let wider = run.holes().spread(wider);
                    if wider == range {
                        break;
                    }
                    range = wider;
                }
                run.remove_within(&range, &mut self.moved);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is served of a range is what is under no hole of this or a newer buffered run.
    #[test]
    fn holes_of_newer_runs_cut_what_is_served() {
        let run = |ranges: &[(&str, &str)]| {
            let mut run = BufferedRun::default();
            let range = |&(from, to): &(&str, &str)| (from.as_bytes().into(), to.as_bytes().into());
            ranges.iter().for_each(|pair| run.holes.add(range(pair)));
            run
        };
        let runs = [run(&[("d", "f"), ("x", "z")]), run(&[("a", "b"), ("e", "g"), ("k", "k")])];
        let runs = runs.map(Arc::new).into();
        let list = BufferList { runs, counts: ListCounts::default() };
        let served = |age, from: &str, to: &str| -> Vec<String> {
            let parts = list.served(age, from.as_bytes(), to.as_bytes());
            let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
            parts.iter().map(|(from, to)| text(from) + &text(to)).collect()
        };
        assert_eq!(served(0, "a", "m"), ["ad", "fm"]);
        assert_eq!(served(1, "a", "m"), ["bd", "gk", "km"]);
        assert_eq!(served(1, "h", "j"), ["hj"]);
        assert_eq!(served(1, "h", "h"), ["hh"]);
        assert_eq!(served(0, "d", "f"), [] as [&str; 0]);
        assert_eq!(served(1, "e", "g"), [] as [&str; 0]);
        assert_eq!(served(0, "e", "y"), ["fx"]);
    }
}
