//! What every policy is: pure decisions on a shape. A policy never moves data and has no fields.
//!
//! Not here: the data (`execute`), the delay of writers (`pacing` turns [`Pressure`] into one).
//!
//! Invariants: (1) the tasks of one `pick` share no table with each other nor with a busy one, and
//! conflict neither with each other nor with a running job ([`JobFootprint::conflicts_with`]);
//! (2) installing a task's result never puts an older entry of a key above a newer one (H23, H40);
//! (3) after finitely many picks on a tree that nobody writes to, `pick` returns nothing.

use std::cmp::Ordering;
use std::ops::{Bound, Range};

use crate::base::ids::DataEpoch;
use crate::base::key;
use crate::base::limits::LEVELS;
use crate::base::table_meta::TableMeta;
use crate::compaction::task::{Cause, MergeTask, MoveTask, RunSlice, Task};
use crate::filter::monkey::{Allocation, Runs};
use crate::version::shape::{JobFootprint, LevelShape, PartKind, RunId, RunShape, Shape};

/// Most filter bits per key: as the option `bloom_bits`.
const FILTER_BITS_MAX: f64 = 32.0;

/// Filter bits per key that a moved table may have beyond those of its new level: less than one
/// level's difference at a ratio of 4 (2.9), or every move would become a rewrite.
const SPARE_BITS_MAX: f32 = 2.5;

#[cfg(test)]
mod cases;
pub(crate) mod cut;
pub(crate) mod gear;
pub(crate) mod lazy_leveled;
pub(crate) mod leveled;
#[cfg(test)]
mod part_policies;
mod parts;
#[cfg(test)]
mod run_policies;
mod runs;
#[cfg(test)]
mod simulation;
pub(crate) mod size_tiered;
pub(crate) mod stepped_merge;
mod targets;
pub(crate) mod tiered;
pub(crate) mod two_phase;

/// Where a flushed run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The level. Its runs stay newest first by data epoch, which is drawn at the memtable's
    /// freeze.
    pub(crate) level: usize,
}

/// A table of the level below the outputs, as far as cutting them needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Below {
    /// Smallest user key.
    pub(crate) smallest: Vec<u8>,
    /// Largest user key.
    pub(crate) largest: Vec<u8>,
    /// Length of the table.
    pub(crate) bytes: u64,
}

/// How the outputs of a merge are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// An output is closed at the first user-key change at or after this many bytes.
    pub(crate) table_bytes: u64,
    /// An output is closed before it overlaps more bytes than this of `below`.
    pub(crate) below_bytes_max: u64,
    /// The tables that an output will be merged with next, in key order: what an output overlaps
    /// now is what compacting it will cost.
    pub(crate) below: Vec<Below>,
}

/// The next step of a compaction that a user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RangePick {
    /// Do this, then ask again.
    Task(Task),
    /// Another job has what is needed: ask again when it has ended.
    Wait,
    /// The range is in its final form.
    Done,
}

/// Runs of [`Pressure`], in multiples of its trigger, from which on writers are slowed (`pacing`):
/// a burst of a few write buffers is taken at full speed and merged at once, which also costs fewer
/// bytes per byte; a get pays a filter probe per run.
pub(crate) const L0_SLACK: usize = 4;

/// What a policy says about the tree: the part of the writers' load that memtables do not show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pressure {
    /// Runs in level 0.
    pub(crate) l0_runs: usize,
    /// Runs in level 0 that start a compaction; at least 1.
    pub(crate) l0_trigger: usize,
    /// Bytes that compactions have to write before the tree is in shape. An estimate from above.
    pub(crate) debt_bytes: u64,
    /// Bytes that one round of level-0 compaction writes when the tree is in shape. 0: debt does
    /// not slow writers.
    pub(crate) debt_unit_bytes: u64,
}

/// Decisions about the shape of a tree.
pub(crate) trait Policy: Send + Sync {
    /// What to do now, most urgent first. Empty: the tree is in shape, or what could be done has to
    /// wait for a busy table.
    fn pick(&self, shape: &Shape) -> Vec<Task>;
    /// The next step towards one run without deletes over the user keys from `lower` to `upper`.
    fn pick_range(&self, shape: &Shape, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> RangePick;
    /// How the outputs of `merge` are made.
    fn plan(&self, shape: &Shape, merge: &MergeTask) -> Plan;
    /// Where the run of a flush goes. Level 0 as it stands: a merge in flight may be older than the
    /// flush, and only level 0 orders overlapping runs by age alone.
    fn place_flush(&self, _shape: &Shape) -> Placement {
        Placement { level: 0 }
    }
    /// Bytes at which the run of a flush is cut into tables. As it stands a run is one table,
    /// unless its memtable was much larger than it should have been.
    fn flush_table_bytes(&self, shape: &Shape) -> u64 {
        shape.options.table_bytes.max(shape.options.write_buffer_bytes.saturating_mul(2))
    }
    /// Bytes that the next merge of level 0 may read, whether or not it is due yet, without what is
    /// flushed meanwhile. As it stands its runs alone.
    fn level_0_merge_bytes(&self, shape: &Shape) -> u64 {
        shape.levels.first().map_or(0, LevelShape::bytes)
    }
    /// Bits per key of the filter of a table with `entries` entries on `level`; 0: no filter.
    fn filter_bits(&self, shape: &Shape, level: usize, entries: u64) -> f32;
    /// How far the tree is from its form.
    fn pressure(&self, shape: &Shape) -> Pressure;
    /// What is wrong with the form of a tree at rest, by the promises of this policy; one sentence
    /// each. A tree that `pick` still has tasks for (another policy may have left it) need not be
    /// in form.
    fn check(&self, shape: &Shape) -> Vec<String>;
}

/// Rule: the filter bits of a run with `entries` entries on `level`, by the option `filters`. Under
/// Monkey the tree is taken for what the policy makes of it: from the largest run down to the
/// smallest, each level `ratio` times smaller than the next, `last` runs of the largest size and
/// `above` of every other.
fn filter_bits(
    shape: &Shape,
    level: usize,
    entries: u64,
    ratio: f64,
    above: f64,
    last: f64,
) -> f32 {
    let options = &shape.options;
    let Some(average) = options.divided_bits() else { return options.bloom_bits_at(level) };
    let runs_there = shape.levels.iter().flat_map(LevelShape::runs);
    let sizes = runs_there.map(|(_, run)| run.tables.totals().entries).chain([entries]);
    let (smallest, largest) =
        sizes.fold((entries, entries), |(min, max), size| (size.min(min), size.max(max)));
    let mut model = Vec::new();
    let mut size = largest as f64;
    while model.is_empty() || (size * 2.0 > smallest as f64 && model.len() < 2 * LEVELS) {
        model.push(Runs { entries: size, count: if model.is_empty() { last } else { above } });
        size /= ratio;
    }
    Allocation::of(&model, f64::from(average)).bits(entries as f64).min(FILTER_BITS_MAX) as f32
}

/// Rule: with Monkey's division, what has far more bits per key than its new level gives is
/// rewritten rather than moved. A load of ascending keys is nothing but moves: all of it would keep
/// the bits of the small run that it once was, half as many again as were to be divided.
fn keeps_too_many_bits(shape: &Shape, from: f32, to: f32) -> bool {
    shape.options.divided_bits().is_some() && from > to + SPARE_BITS_MAX
}

impl Below {
    fn of(table: &TableMeta) -> Self {
        let (smallest, largest) = (table.smallest.clone(), table.largest.clone());
        Self { smallest, largest, bytes: table.bytes }
    }
}

/// An interval of user keys, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyBounds<'a> {
    smallest: &'a [u8],
    largest: &'a [u8],
}

impl<'a> KeyBounds<'a> {
    /// The interval of a table.
    fn of(table: &'a TableMeta) -> Self {
        Self { smallest: &table.smallest, largest: &table.largest }
    }

    /// The smallest interval around both.
    fn union(self, other: Self) -> Self {
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

/// What a task of a shape is to others while it runs. A rotation is nothing to them: it moves no
/// key, and nothing may come to its level meanwhile, wherever it is.
pub(crate) fn running_job(shape: &Shape, task: &Task) -> Option<JobFootprint> {
    let output = task.output()?;
    let slice_bounds = |slice: &RunSlice| {
        let run = run_of(shape, slice)?;
        let (first, last) = (slice.uids.first()?, slice.uids.last()?);
        let mut tables = tables_in(run, &all(run)).skip_while(|table| table.uid != *first);
        let first = KeyBounds::of(tables.next()?);
        let last = tables.find(|table| table.uid == *last);
        Some(last.map_or(first, |last| first.union(KeyBounds::of(last))))
    };
    let bounds = task.inputs().iter().filter_map(slice_bounds).reduce(KeyBounds::union)?;
    Some(job_of(bounds, task.inputs().iter().map(|slice| slice.run), output))
}

/// A job with inputs in `bounds`, of these runs.
fn job_of(
    bounds: KeyBounds<'_>,
    inputs: impl Iterator<Item = RunId>,
    output: RunId,
) -> JobFootprint {
    let (newest, oldest) =
        inputs.fold((output, output), |(newest, oldest), run| (newest.min(run), oldest.max(run)));
    let (smallest, largest) = (bounds.smallest.to_vec(), bounds.largest.to_vec());
    JobFootprint { smallest, largest, newest, oldest, output }
}

/// The runs of the filling part of a level, newest first.
fn runs(shape: &Shape, level: usize) -> &[RunShape] {
    shape.levels.get(level).map_or(&[], |level| &level.filling.runs)
}

/// The run that a slice is of.
fn run_of<'a>(shape: &'a Shape, slice: &RunSlice) -> Option<&'a RunShape> {
    let RunId { level, part, epoch } = slice.run;
    let mut runs = shape.levels.get(level)?.runs();
    runs.find(|(of, run)| (*of, run.epoch) == (part, epoch)).map(|(_, run)| run)
}

/// Whether a job has taken a table of this tree.
fn any_busy(shape: &Shape) -> bool {
    let taken = |uid: u64| shape.busy.contains(&uid) && !shape.damaged.contains(&uid);
    !shape.busy.is_empty()
        && (shape.levels.iter().flat_map(LevelShape::runs))
            .any(|(_, run)| tables_in(run, &all(run)).any(|table| taken(table.uid)))
}

/// Moves draining runs back to the filling part, for a policy without parts that takes over a tree
/// of `gear` or `two_phase`. `None`: no level is draining. Otherwise nothing else may run now;
/// `Some` of nothing: blocked by running jobs.
///
/// The runs of a draining part move as they are, the newest first. The order of reading stays,
/// because everything in the filling part is newer. Where a run there has the same or an older data
/// epoch (a merge's outputs carry that of its newest input, and a run drained into two rounds of
/// the next level gives its epoch to both), the moved run gets the epoch below: within a level an
/// epoch only orders. Damaged tables move too: a move reads nothing.
pub(super) fn merge_parts_back(shape: &Shape) -> Option<Vec<Task>> {
    let draining = |level: &LevelShape| level.draining.is_some();
    if !shape.levels.iter().any(draining) {
        return None;
    }
    if any_busy(shape) {
        return Some(Vec::new());
    }
    let levels = shape.levels.iter().enumerate();
    Some(levels.filter_map(|(level, parts)| undrain_level(level, parts)).collect())
}

/// The move of the newest draining run of a level: the others must not pass it.
fn undrain_level(level: usize, parts: &LevelShape) -> Option<Task> {
    let run = parts.draining.as_ref()?.runs.first()?;
    let oldest_filling = parts.filling.runs.last().map(|run| run.epoch);
    let Some(below_filling) = oldest_filling.unwrap_or(DataEpoch::MAX).previous() else {
        return Some(Task::Merge(merge_level(level, parts)));
    };
    Some(Task::Move(MoveTask {
        input: whole(level, PartKind::Draining, run),
        output: RunId::filling(level, below_filling.min(run.epoch)),
        cursor: None,
        cause: Cause::Drain,
    }))
}

/// The same for the policies with parts: the oldest run of the tree is in the filling part of the
/// last level, if anything is there.
fn rewrite_deletes(shape: &Shape) -> Option<MergeTask> {
    shape
        .levels
        .last()
        .is_some_and(|last| last.draining.is_none() && !last.is_empty())
        .then_some(())?;
    runs::deletes_in_oldest(shape)
}

/// All tables of a run.
fn whole(level: usize, part: PartKind, run: &RunShape) -> RunSlice {
    let uids = tables_in(run, &all(run)).map(|table| table.uid).collect();
    RunSlice { run: RunId { level, part, epoch: run.epoch }, uids }
}

/// Where epochs leave no room: both parts of a level become one run.
fn merge_level(level: usize, parts: &LevelShape) -> MergeTask {
    let inputs: Vec<RunSlice> = parts.runs().map(|(part, run)| whole(level, part, run)).collect();
    let newest = inputs.iter().map(|slice| slice.run.epoch).max().unwrap_or_default();
    let output = RunId::filling(level, newest);
    MergeTask { inputs, output, cursor: None, cause: Cause::Drain }
}

/// Neighbouring tables of one run, as indices.
type Span = Range<usize>;

/// All tables of a run.
fn all(run: &RunShape) -> Span {
    0..run.tables.len()
}

/// The tables of a span, in key order.
fn tables_in<'a>(run: &'a RunShape, span: &Span) -> impl Iterator<Item = &'a TableMeta> + use<'a> {
    run.tables.range(span.clone()).map(|(table, ())| &**table)
}

/// The table at an index.
fn table_at(run: &RunShape, index: usize) -> Option<&TableMeta> {
    run.tables.get(index).map(|(table, ())| &**table)
}

/// The interval of a span; `None` if it is empty.
fn bounds_of<'a>(run: &'a RunShape, span: &Span) -> Option<KeyBounds<'a>> {
    let first = table_at(run, span.start).filter(|_| !span.is_empty())?;
    let last = table_at(run, span.end - 1)?;
    Some(KeyBounds { smallest: &first.smallest, largest: &last.largest })
}

/// The tables of a run that have keys in the interval, as far as their bounds tell.
fn overlapping(run: &RunShape, bounds: KeyBounds<'_>) -> Span {
    run.tables.overlapping(Bound::Included(bounds.smallest), Bound::Included(bounds.largest))
}
