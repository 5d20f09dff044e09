//! What lies where in a tree, and what lies over what: key bounds, neighbouring tables, levels.
//!
//! Pure functions of a shape that every policy reads the tree through. Not here: what jobs may
//! write meanwhile (`conflicts`), which tables a job should take (`moves`, and each policy).
//!
//! Invariants: (1) bounds are compared by user key, and both ends count: what shares a user key is
//! taken together (H40); (2) runs are listed in the order of reading, newest first.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::{Bound, Range};

use crate::base::ids::{DataEpoch, Level, TableUid};
use crate::base::key;
use crate::base::table_meta::TableMeta;
use crate::compaction::task::RunSlice;
use crate::version::shape::{PartKind, RunId, RunKind, RunShape, Shape};

/// An interval of user keys, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyBounds<'a> {
    pub(super) smallest: &'a [u8],
    pub(super) largest: &'a [u8],
}

impl<'a> KeyBounds<'a> {
    /// The interval of a table.
    pub(super) fn of(table: &'a TableMeta) -> Self {
        Self { smallest: &table.smallest, largest: &table.largest }
    }

    /// The smallest interval around both.
    pub(super) fn union(self, other: Self) -> Self {
        let smallest = match key::compare(self.smallest, other.smallest) {
            Ordering::Greater => other.smallest,
            _ => self.smallest,
        };
        let largest = match key::compare(self.largest, other.largest) {
            Ordering::Less => other.largest,
            _ => self.largest,
        };
        Self { smallest, largest }
    }
}

/// Neighbouring tables of one run, as indices.
pub(super) type Span = Range<usize>;

/// A run and where it is.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) level: Level,
    pub(super) part: PartKind,
    pub(super) run: &'a RunShape,
}

impl<'a> Placed<'a> {
    /// Its id.
    pub(super) fn id(&self) -> RunId {
        RunId { level: self.level, part: self.part, epoch: self.run.epoch }
    }

    /// Bytes of its tables.
    pub(super) fn bytes(&self) -> u64 {
        self.run.tables.totals().bytes
    }

    /// Whether it is a sentinel run.
    pub(super) fn is_sentinel(&self) -> bool {
        self.run.kind == RunKind::Sentinel
    }

    /// The table at an index.
    pub(super) fn table(&self, index: usize) -> Option<&'a TableMeta> {
        self.run.tables.get(index).map(|(table, ())| &**table)
    }

    /// All tables, in key order.
    pub(super) fn tables(&self) -> impl Iterator<Item = &'a TableMeta> + use<'a> {
        self.whole().tables()
    }

    /// All tables.
    pub(super) fn whole(self) -> Chosen<'a> {
        self.chosen(0..self.run.tables.len())
    }

    /// The tables of a span.
    pub(super) fn chosen(self, span: Span) -> Chosen<'a> {
        Chosen { place: self, span }
    }

    /// The tables that have keys between two bounds, as far as their own bounds tell.
    pub(super) fn in_range(self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Chosen<'a> {
        self.chosen(self.run.tables.overlapping(lower, upper))
    }

    /// The tables that have keys in the interval, as far as their own bounds tell.
    pub(super) fn over(self, bounds: KeyBounds<'_>) -> Chosen<'a> {
        self.in_range(Bound::Included(bounds.smallest), Bound::Included(bounds.largest))
    }

    /// Whether none of its tables is among `busy`.
    pub(super) fn is_idle(&self, busy: &BTreeSet<TableUid>) -> bool {
        busy.is_empty() || self.tables().all(|table| !busy.contains(&table.uid))
    }
}

/// Neighbouring tables of one run, chosen as inputs, and where the run is.
#[derive(Clone)]
pub(super) struct Chosen<'a> {
    pub(super) place: Placed<'a>,
    pub(super) span: Span,
}

impl<'a> Chosen<'a> {
    /// The interval of all tables; `None` if there are none.
    pub(super) fn bounds(&self) -> Option<KeyBounds<'a>> {
        let first = self.place.table(self.span.start).filter(|_| !self.span.is_empty())?;
        let last = self.place.table(self.span.end - 1)?;
        Some(KeyBounds { smallest: &first.smallest, largest: &last.largest })
    }

    /// The tables, in key order.
    pub(super) fn tables(&self) -> impl Iterator<Item = &'a TableMeta> + use<'a> {
        self.place.run.tables.range(self.span.clone()).map(|(table, ())| &**table)
    }

    /// Bytes of the tables.
    pub(super) fn bytes(&self) -> u64 {
        self.tables().map(|table| table.visible_bytes()).sum()
    }

    /// The tables as an input of a task.
    pub(super) fn slice(&self) -> RunSlice {
        let uids = self.tables().map(|table| table.uid).collect();
        RunSlice { run: self.place.id(), uids }
    }
}

/// The data epoch of the newest input of a task.
pub(super) fn newest_epoch(inputs: &[RunSlice]) -> DataEpoch {
    inputs.iter().map(|slice| slice.run.epoch).max().unwrap_or_default()
}

/// The interval around all chosen tables.
pub(super) fn bounds_over<'a>(chosen: &[Chosen<'a>]) -> Option<KeyBounds<'a>> {
    chosen.iter().filter_map(Chosen::bounds).reduce(KeyBounds::union)
}

/// Bytes of all chosen tables.
pub(super) fn bytes_of(chosen: &[Chosen<'_>]) -> u64 {
    chosen.iter().map(Chosen::bytes).sum()
}

/// The runs of a level with their places, newest first.
pub(super) fn placed(shape: &Shape, level: Level) -> impl Iterator<Item = Placed<'_>> {
    shape.levels[level].runs().map(move |(part, run)| Placed { level, part, run })
}

/// The runs of the filling part of a level, newest first.
pub(super) fn filling_runs(shape: &Shape, level: Level) -> &[RunShape] {
    &shape.levels[level].filling.runs
}

/// The newest run of the filling part of a level: the one that most levels have.
pub(super) fn newest_filling(shape: &Shape, level: Level) -> Option<Placed<'_>> {
    let run = filling_runs(shape, level).first()?;
    Some(Placed { level, part: PartKind::Filling, run })
}

/// The run that a slice is of.
pub(super) fn run_of<'a>(shape: &'a Shape, slice: &RunSlice) -> Option<Placed<'a>> {
    placed(shape, slice.run.level).find(|place| place.id() == slice.run)
}

/// The runs of a level without sentinels, newest first: those that count.
pub(super) fn placed_data(shape: &Shape, level: Level) -> impl Iterator<Item = Placed<'_>> {
    placed(shape, level).filter(|place| !place.is_sentinel())
}

/// All tables of a level, newest run first.
pub(super) fn whole_runs(shape: &Shape, level: Level) -> Vec<Chosen<'_>> {
    placed(shape, level).map(Placed::whole).collect()
}

/// The tables of every run of `level` that overlap `bounds`, and those that overlap these, until
/// there are no more: newest run first.
pub(super) fn stack_over<'a>(
    shape: &'a Shape,
    level: Level,
    bounds: KeyBounds<'a>,
) -> Vec<Chosen<'a>> {
    stack(shape, level, bounds, |_| true)
}

/// The same of what has to leave `level` together: not of sentinel runs that are newer than every
/// other run among them, which nothing passes.
pub(super) fn leaving_stack_over<'a>(
    shape: &'a Shape,
    level: Level,
    bounds: KeyBounds<'a>,
) -> Vec<Chosen<'a>> {
    stack(shape, level, bounds, |newest| !newest.place.is_sentinel())
}

/// The stack over `bounds`, from the first run on that `begins` says yes to.
fn stack<'a>(
    shape: &'a Shape,
    level: Level,
    mut bounds: KeyBounds<'a>,
    begins: impl Fn(&Chosen<'a>) -> bool,
) -> Vec<Chosen<'a>> {
    loop {
        let chosen: Vec<Chosen<'a>> = placed(shape, level)
            .map(|place| place.over(bounds))
            .filter(|chosen| !chosen.span.is_empty())
            .skip_while(|chosen| !begins(chosen))
            .collect();
        let wider = chosen.iter().filter_map(Chosen::bounds).fold(bounds, KeyBounds::union);
        if wider == bounds {
            return chosen;
        }
        bounds = wider;
    }
}

/// Bytes in `bounds` that are older than the filling part of `level`: of the first part that has
/// any.
pub(super) fn bytes_below(shape: &Shape, level: Level, bounds: KeyBounds<'_>) -> u64 {
    let levels = shape.levels.iter().skip(level.get());
    let parts = levels.flat_map(|(at, parts)| parts.parts().map(move |(kind, _)| (at, kind)));
    let older = parts.filter(|&(at, kind)| at > level || kind == PartKind::Draining);
    let bytes = older.map(|(at, kind)| {
        let runs = placed(shape, at).filter(|place| place.part == kind);
        runs.map(|place| place.over(bounds).bytes()).sum::<u64>()
    });
    bytes.into_iter().find(|&bytes| bytes > 0).unwrap_or(0)
}

/// Bytes of all tables of a level, as far as they count: without those of sentinels.
pub(super) fn level_bytes(shape: &Shape, level: Level) -> u64 {
    let sentinels = if level == Level::ZERO { shape.sentinel_bytes() } else { 0 };
    shape.levels[level].bytes() - sentinels
}

/// Entries of all tables of a level.
pub(super) fn level_entries(shape: &Shape, level: Level) -> u64 {
    shape.levels[level].totals().entries
}

/// Bytes of the filling part of a level.
pub(super) fn filling_bytes(shape: &Shape, level: Level) -> u64 {
    shape.levels[level].filling.totals().bytes
}

/// Bytes of the draining part of a level, and those that it began with: no less.
pub(super) fn draining_bytes(shape: &Shape, level: Level) -> Option<(u64, u64)> {
    let part = shape.levels[level].draining.as_ref()?;
    let left = part.totals().bytes;
    Some((left, part.rotated_bytes.max(left)))
}

/// Whether a level has tables.
pub(super) fn in_use(shape: &Shape, level: Level) -> bool {
    !shape.levels[level].is_empty()
}
