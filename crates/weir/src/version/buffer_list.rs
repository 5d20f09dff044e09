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

use std::sync::Arc;

use super::tables::{Overlap, TableList};
use crate::base::ids::TableUid;
use crate::base::key::compare;
use crate::base::table_meta::TableMeta;
use crate::table::Table;

/// A closed range of user keys.
pub(crate) type KeyRange = (Arc<[u8]>, Arc<[u8]>);

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

    /// Adds a range; holes that it overlaps become one with it.
    fn add(&mut self, smallest: &[u8], largest: &[u8]) {
        let first = self.at_or_after(smallest);
        let overlapped = self.0.get(first..).unwrap_or(&[]);
        let count = overlapped.partition_point(|(from, _)| compare(from, largest).is_le());
        let mut hole: KeyRange = (Arc::from(smallest), Arc::from(largest));
        if let Some((from, _)) = overlapped.first().filter(|_| count > 0) {
            hole.0 = hole.0.min(Arc::clone(from));
        }
        if let Some((_, to)) = count.checked_sub(1).and_then(|last| overlapped.get(last)) {
            hole.1 = hole.1.max(Arc::clone(to));
        }
        self.0.splice(first..first + count, [hole]);
    }

    fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|(smallest, largest)| self.add(smallest, largest));
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
    runs: Vec<BufferedRun>,
    counts: ListCounts,
}

impl BufferList {
    /// The buffered runs, newest first.
    #[inline]
    pub(crate) fn runs(&self) -> &[BufferedRun] {
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
    /// The table leaves; a hole takes its place.
    Trim(TableUid),
    /// New counters.
    Count(ListCounts),
    /// Everything leaves.
    Drop,
}

/// A list in the course of an edit.
#[derive(Debug, Default)]
pub(super) struct ListInEdit {
    /// Newest first.
    runs: Vec<RunInEdit>,
    counts: ListCounts,
}

#[derive(Debug, Default)]
struct RunInEdit {
    tables: Vec<(Arc<TableMeta>, Arc<Table>)>,
    holes: Holes,
}

impl ListInEdit {
    /// The list before the edit.
    pub(super) fn of(list: Option<&BufferList>) -> Self {
        let Some(list) = list else { return Self::default() };
        let in_edit = |run: &BufferedRun| RunInEdit {
            tables: run.tables.iter().map(|(m, t)| (Arc::clone(m), Arc::clone(t))).collect(),
            holes: run.holes.clone(),
        };
        Self { runs: list.runs.iter().map(in_edit).collect(), counts: list.counts }
    }

    /// Makes one change.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn step(&mut self, step: ListStep) -> Result<(), String> {
        match step {
            ListStep::Append { meta, table, begins_run } => {
                if begins_run {
                    self.runs.insert(0, RunInEdit::default());
                }
                let Some(newest) = self.runs.first_mut() else {
                    return Err(format!("table {} joins a list without runs", meta.uid));
                };
                if newest.holes.overlap(&meta.smallest, &meta.largest) {
                    return Err(format!("table {} is appended over a hole", meta.uid));
                }
                newest.tables.push((meta, table));
            }
            ListStep::Hole { smallest, largest } => {
                if compare(&smallest, &largest).is_gt() {
                    return Err("a hole that ends before it begins".into());
                }
                if self.runs.is_empty() {
                    self.runs.push(RunInEdit::default());
                }
                self.runs.iter_mut().take(1).for_each(|run| run.holes.add(&smallest, &largest));
            }
            ListStep::Trim(uid) => {
                let found = self.runs.iter_mut().find_map(|run| {
                    let at = run.tables.iter().position(|(meta, _)| meta.uid == uid)?;
                    Some((run, at))
                });
                let (run, at) = found.ok_or_else(|| format!("table {uid} is not in its list"))?;
                let (meta, _) = run.tables.remove(at);
                run.holes.add(&meta.smallest, &meta.largest);
            }
            ListStep::Count(counts) => self.counts = counts,
            ListStep::Drop => *self = Self::default(),
        }
        Ok(())
    }

    /// The list after the edit; `None` if nothing is left to say. Brings it into its form:
    /// buffered runs without tables give their holes to the next older one, whose walk they would
    /// end just as well, and tables that a hole hides leave.
    ///
    /// # Errors
    /// Two tables of a buffered run that share a key.
    pub(super) fn finish(self) -> Result<Option<BufferList>, Overlap> {
        let mut hidden = Holes::default();
        let mut passed_on = Holes::default();
        let mut runs = Vec::with_capacity(self.runs.len());
        for RunInEdit { mut tables, mut holes } in self.runs {
            holes.add_all(&passed_on);
            hidden.add_all(&holes);
            tables.retain(|(meta, _)| !hidden.contain(&meta.smallest, &meta.largest));
            passed_on = Holes::default();
            if tables.is_empty() {
                passed_on = holes;
                continue;
            }
            tables.sort_by(|(a, _), (b, _)| compare(&a.smallest, &b.smallest));
            runs.push(BufferedRun { tables: TableList::new(tables)?, holes });
        }
        if !passed_on.is_empty() {
            runs.push(BufferedRun { tables: TableList::default(), holes: passed_on });
        }
        // A list of a foot alone answers for nothing that its run does not answer for.
        let only_foot = runs.iter().all(|run| run.tables.is_empty());
        if only_foot && self.counts == ListCounts::default() {
            return Ok(None);
        }
        Ok(Some(BufferList { runs, counts: self.counts }))
    }
}
