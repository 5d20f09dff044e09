//! What the policies whose levels have two parts share: `gear` and `two_phase`.
//!
//! Each level from the base level to the last but one receives into its filling part and gives from
//! its draining part, each one run; when the filling part is full and the draining part empty, the
//! level is rotated. The last level has one run, which fills for ever. Level 0 is the same without
//! a rotation: its draining part is its oldest flushed run, the younger ones wait. Not here: when a
//! level drains (one file per policy), how large it should be (`targets`).
//!
//! Source: LSbM §4.1 (bLSM generalised to every level), dLSM §IV-A.
//!
//! Invariants: (1) a draining run gives its tables in key order, from the smallest on: the key up
//! to which it has drained is the one before its first table, and is stored nowhere; (2) one job at
//! a time takes from a part, so that jobs cannot end out of that order; (3) of several runs in a
//! part (left by another policy) the oldest drains first, and what comes from above joins the
//! newest, so nothing passes anything (H23); (4) a level is rotated only while no job brings tables
//! to it, and no job begins to while it is being rotated; (5) no two jobs conflict
//! ([`JobFootprint::conflicts_with`]). A damaged table holds up its part when its turn comes; it
//! hinders no rotation, which reads nothing.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::base::table_meta::TableMeta;
use crate::compaction::policy::leveled::{
    Chosen, OVERLAP_TABLES, bounds_over, conflicts_with_running,
};
use crate::compaction::policy::targets::{BOTTOM, Targets, in_use, level_bytes, level_entries};
use crate::compaction::policy::{
    KeyBounds, Pressure, RangePick, Span, all, any_busy, keeps_too_many_bits, overlapping,
    running_job, runs, table_at, tables_in, undrain_level, whole,
};
use crate::compaction::task::{Cause, MergeTask, MoveTask, RotateTask, RunSlice, Task};
use crate::version::shape::{JobFootprint, PartKind, RunId, RunShape, Shape};

/// Most tables that one job takes from a draining run: what they overlap below is only half covered
/// at the two ends, which is paid for once per job.
const DRAIN_TABLES: u64 = 4;

/// Most tables taken when more of them come free, because what they overlap is an input already.
const WIDEN_TABLES: u64 = 2 * DRAIN_TABLES;

/// An output below `table_bytes` divided by this takes a small neighbour along: many small flushes
/// must not become many small tables.
const SMALL_TABLE_DIVISOR: u64 = 4;

/// A table is rewritten rather than moved to where its deletes hide nothing, if at least one entry
/// in this many is a delete.
const MOVE_DELETES_DIVISOR: u64 = 8;

/// Bytes of the smallest base level worth having: a write buffer, which is what level 0 gives at a
/// time, or a leveled tree's smallest base level (which is fed by `l0_trigger` runs at a time)
/// divided by these.
fn unit_bytes(shape: &Shape) -> u64 {
    let options = &shape.options;
    let share = options.base_level_bytes / options.l0_trigger.max(1) as u64;
    options.write_buffer_bytes.max(share).max(1)
}

/// The targets of a tree with parts.
pub(super) fn targets_of(shape: &Shape) -> Targets {
    Targets::of(shape, unit_bytes(shape))
}

/// Bytes of the filling part of a level.
pub(super) fn filling_bytes(shape: &Shape, level: usize) -> u64 {
    shape.levels.get(level).map_or(0, |level| level.filling.totals().bytes)
}

/// Bytes of the draining part of a level, and those that it began with: no less.
pub(super) fn draining_bytes(shape: &Shape, level: usize) -> Option<(u64, u64)> {
    let part = shape.levels.get(level)?.draining.as_ref()?;
    let left = part.totals().bytes;
    Some((left, part.rotated_bytes.max(left)))
}

/// Whether another policy left several runs in a part of a level below 0.
pub(super) fn has_several(shape: &Shape, level: usize) -> bool {
    let parts = shape.levels.get(level).into_iter().flat_map(|level| level.parts());
    parts.into_iter().any(|(_, part)| part.runs.len() > 1)
}

/// Bytes of level 0, and of the part that it drains into: what is flushed next may overlap all of
/// it.
pub(super) fn level_0_merge_bytes(shape: &Shape) -> u64 {
    level_bytes(shape, 0) + filling_bytes(shape, targets_of(shape).next_level(shape, 0))
}

/// Most bytes that one job takes.
pub(super) fn drain_bytes_max(shape: &Shape) -> u64 {
    DRAIN_TABLES.saturating_mul(shape.options.table_bytes).max(1)
}

/// The state of one `pick`.
pub(super) struct Picker<'a> {
    pub(super) shape: &'a Shape,
    pub(super) targets: Targets,
    /// Tables that no job may read.
    busy: BTreeSet<u64>,
    /// Tables that a job has, also one of this pick: those that are damaged wait for nobody.
    taken: BTreeSet<u64>,
    /// The running jobs and those of this pick.
    jobs: Vec<JobFootprint>,
    pub(super) tasks: Vec<Task>,
}

impl<'a> Picker<'a> {
    pub(super) fn new(shape: &'a Shape) -> Self {
        let targets = targets_of(shape);
        let taken = shape.busy.difference(&shape.damaged).copied().collect();
        let (busy, jobs) = (shape.busy.clone(), shape.jobs.clone());
        Self { shape, targets, busy, taken, jobs, tasks: Vec::new() }
    }

    /// The level that `level` drains into.
    pub(super) fn next_level(&self, level: usize) -> usize {
        self.targets.next_level(self.shape, level)
    }

    fn accept(&mut self, task: Task) {
        self.busy.extend(task.input_uids());
        self.taken.extend(task.input_uids());
        self.jobs.extend(running_job(self.shape, &task));
        self.tasks.push(task);
    }

    fn is_busy(&self, run: &RunShape, span: &Span) -> bool {
        !self.busy.is_empty() && tables_in(run, span).any(|table| self.busy.contains(&table.uid))
    }

    /// Whether a job has a table of this part.
    fn part_is_taken(&self, level: usize, part: PartKind) -> bool {
        let level = self.shape.levels.get(level).filter(|_| !self.taken.is_empty());
        let runs = level.into_iter().flat_map(|level| level.runs());
        let mut tables =
            runs.filter(|(of, _)| *of == part).flat_map(|(_, run)| tables_in(run, &all(run)));
        tables.any(|table| self.taken.contains(&table.uid))
    }

    /// Whether a job may be bringing tables to `level`: they come from the nearest level above that
    /// has any.
    fn is_being_fed(&self, level: usize) -> bool {
        let above = (0..level).rev().find(|&above| in_use(self.shape, above));
        let kinds = [PartKind::Filling, PartKind::Draining];
        above.is_some_and(|above| kinds.iter().any(|&part| self.part_is_taken(above, part)))
    }

    /// Rule: a level is rotated when its draining part is empty and nothing is on its way to it.
    /// Not the last level, which has nowhere to drain to, nor level 0.
    pub(super) fn rotate(&mut self, level: usize, cause: Cause) -> bool {
        let Some(parts) = self.shape.levels.get(level) else { return false };
        let may = (1..BOTTOM).contains(&level)
            && parts.draining.is_none()
            && !parts.filling.runs.is_empty()
            && !self.part_is_taken(level, PartKind::Filling)
            && !self.is_being_fed(level);
        if may {
            let part = parts.filling.runs.iter();
            let inputs = part.map(|run| whole(level, PartKind::Filling, run)).collect();
            self.accept(Task::Rotate(RotateTask { inputs, level, cause }));
        }
        may
    }

    /// Rule: the first tables of the oldest run of the draining part (in level 0, of all) are
    /// merged into the next level's filling part: about `bytes`, but no more than a job may take.
    pub(super) fn drain(&mut self, level: usize, bytes: u64, cause: Cause) -> bool {
        let part = if level == 0 { PartKind::Filling } else { PartKind::Draining };
        let next = self.next_level(level);
        let parts = self.shape.levels.get(level);
        let run = parts.and_then(|parts| parts.runs().filter(|(of, _)| *of == part).last());
        let Some((part, run)) = run else { return false };
        let rotating = next < BOTTOM && self.part_is_taken(next, PartKind::Filling);
        let span = self.first_tables(run, bytes);
        if rotating || self.part_is_taken(level, part) {
            return false;
        }
        let source = Chosen { level, part, run, span };
        self.merge_into(source, next, runs(self.shape, next).first(), cause)
    }

    /// Rule: the last level gets its one run back. A draining part there, or in level 0, fills
    /// again; of several runs the last but one gives its first tables to the last.
    pub(super) fn unstack_bottom(&mut self) -> bool {
        for level in [0, BOTTOM] {
            let parts = self.shape.levels.get(level);
            let task = parts.and_then(|parts| undrain_level(level, parts));
            if let Some(task) = task {
                // Whatever runs may be bringing tables to this level.
                if !any_busy(self.shape) && self.tasks.is_empty() {
                    self.accept(task);
                }
                return true;
            }
        }
        let [.., newer, older] = runs(self.shape, BOTTOM) else { return false };
        if self.is_busy(newer, &all(newer)) || self.is_busy(older, &all(older)) {
            return true;
        }
        let span = self.first_tables(newer, drain_bytes_max(self.shape));
        let source = Chosen { level: BOTTOM, part: PartKind::Filling, run: newer, span };
        self.merge_into(source, BOTTOM, Some(older), Cause::Drain);
        true
    }

    /// The first tables of a run: about `bytes`, at least one, up to one that is busy.
    fn first_tables(&self, run: &RunShape, bytes: u64) -> Span {
        let limit = bytes.clamp(1, drain_bytes_max(self.shape));
        let (mut end, mut taken) = (0, 0);
        while let Some(table) = table_at(run, end).filter(|_| taken < limit) {
            if self.busy.contains(&table.uid) {
                break;
            }
            taken += table.bytes;
            end += 1;
        }
        0..end
    }

    /// Merges (or moves) `source` into the run `into` of the filling part of `level`, or founds it.
    fn merge_into(
        &mut self,
        mut source: Chosen<'a>,
        level: usize,
        into: Option<&'a RunShape>,
        cause: Cause,
    ) -> bool {
        let Some(bounds) = source.bounds() else { return false };
        let mut target = into.map(|run| {
            let span = overlapping(run, bounds);
            Chosen { level, part: PartKind::Filling, run, span }
        });
        if let Some(target) = &mut target {
            self.widen(&mut source, target);
            self.take_small_neighbour(&source, target);
            if self.is_busy(target.run, &target.span) {
                return false;
            }
        }
        let output = RunId::filling(level, into.map_or(source.run.epoch, |run| run.epoch));
        let target = target.filter(|target| !target.span.is_empty());
        let may_move = target.is_none() && self.may_move(&source, level);
        let input = source.slice();
        let chosen: Vec<Chosen<'_>> = std::iter::once(source).chain(target).collect();
        let inputs = chosen.iter().map(Chosen::slice).collect();
        let merge = MergeTask { inputs, output, cursor: None, cause };
        if conflicts_with_running(&self.jobs, &chosen, &merge) {
            return false;
        }
        self.accept(if may_move {
            Task::Move(MoveTask { input, output, cursor: None, cause })
        } else {
            Task::Merge(merge)
        });
        true
    }

    /// Rule: tables that follow come along if they add no table of the target (LevelDB,
    /// SetupOtherInputs), as long as the job stays bounded.
    fn widen(&self, source: &mut Chosen<'a>, target: &Chosen<'a>) {
        let Some(lower) = target.bounds() else { return };
        let limit = WIDEN_TABLES.saturating_mul(self.shape.options.table_bytes);
        let mut bytes = source.bytes();
        while let Some(table) = table_at(source.run, source.span.end) {
            bytes += table.bytes;
            let damaged = self.busy.contains(&table.uid);
            if table.largest.as_slice() > lower.largest || bytes > limit || damaged {
                break;
            }
            source.span.end += 1;
        }
    }

    /// Rule: what would become a small table takes the table before it along, or the one after it,
    /// if that is small too.
    fn take_small_neighbour(&self, source: &Chosen<'a>, target: &mut Chosen<'a>) {
        let small = self.shape.options.table_bytes / SMALL_TABLE_DIVISOR;
        if source.bytes() + target.bytes() >= small {
            return;
        }
        let is_small =
            |index: usize| table_at(target.run, index).is_some_and(|table| table.bytes < small);
        if target.span.start > 0 && is_small(target.span.start - 1) {
            target.span.start -= 1;
        } else if is_small(target.span.end) {
            target.span.end += 1;
        }
    }

    /// Rule: tables that overlap nothing in the target are moved, not rewritten, unless they are to
    /// be compressed differently or to have far smaller filters, overlap too much below it, or
    /// would lose deletes there.
    fn may_move(&self, source: &Chosen<'_>, level: usize) -> bool {
        let options = &self.shape.options;
        if options.compression_at(source.level) != options.compression_at(level) {
            return false;
        }
        let entries = source.tables().map(|table| table.entries).sum();
        let bits = |level| filter_bits(self.shape, level, entries);
        if keeps_too_many_bits(self.shape, bits(source.level), bits(level)) {
            return false;
        }
        let overlap_max = OVERLAP_TABLES.saturating_mul(options.table_bytes);
        tables_in(source.run, &source.span).all(|table| {
            let below = self.bytes_below(level, KeyBounds::of(table));
            let deletes_end_here =
                table.deletes > 0 && table.deletes >= table.entries / MOVE_DELETES_DIVISOR;
            below <= overlap_max && (below > 0 || !deletes_end_here)
        })
    }

    /// Bytes in `bounds` that are older than the filling part of `level`: of the first part that
    /// has any.
    fn bytes_below(&self, level: usize, bounds: KeyBounds<'_>) -> u64 {
        let levels = self.shape.levels.iter().enumerate().skip(level);
        let parts = levels.flat_map(|(at, parts)| parts.parts().map(move |part| (at, part)));
        let older = parts.filter(|(at, (part, _))| *at > level || *part == PartKind::Draining);
        let bytes = older.map(|(_, (_, part))| {
            let tables = part.runs.iter().flat_map(|run| tables_in(run, &overlapping(run, bounds)));
            tables.map(|table| table.bytes).sum::<u64>()
        });
        bytes.into_iter().find(|&bytes| bytes > 0).unwrap_or(0)
    }
}

/// Rule: a range that a user asks for is merged out of all levels and parts at once into the last
/// level; there it is rewritten only for deletes that can go, or to be one run.
pub(super) fn pick_range(shape: &Shape, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> RangePick {
    let mut bounds: Option<KeyBounds<'_>> = None;
    let mut chosen: Vec<Chosen<'_>> = Vec::new();
    for (level, parts) in shape.levels.iter().enumerate() {
        let tables = parts.runs().flat_map(|(_, run)| {
            tables_in(run, &run.tables.overlapping(lower, upper)).collect::<Vec<_>>()
        });
        let tables: Vec<&TableMeta> = tables.collect();
        let around = |useful: &dyn Fn(&TableMeta) -> bool| {
            let seeds =
                tables.iter().filter(|table| useful(table)).map(|table| KeyBounds::of(table));
            let seed = seeds.chain(bounds).reduce(KeyBounds::union);
            seed.map_or_else(Vec::new, |seed| stack_over(shape, level, seed))
        };
        let mut stack = around(&|_| true);
        if level == BOTTOM && bounds.is_none() && stack.len() == 1 {
            stack = around(&|table| deletes_hide_nothing(shape, table));
        }
        chosen.extend(stack);
        bounds = bounds_over(&chosen);
    }
    if chosen.is_empty() {
        return RangePick::Done;
    }
    let inputs: Vec<RunSlice> = chosen.iter().map(Chosen::slice).collect();
    let newest = inputs.iter().map(|slice| slice.run.epoch).max().unwrap_or_default();
    let epoch = runs(shape, BOTTOM).first().map_or(newest, |run| run.epoch);
    let output = RunId::filling(BOTTOM, epoch);
    let merge = MergeTask { inputs, output, cursor: None, cause: Cause::Manual };
    if chosen.iter().flat_map(Chosen::tables).any(|table| shape.busy.contains(&table.uid))
        || conflicts_with_running(&shape.jobs, &chosen, &merge)
    {
        return RangePick::Wait;
    }
    RangePick::Task(Task::Merge(merge))
}

/// Whether every delete of a table of the last level may be dropped: all entries are at or below
/// the oldest snapshot.
pub(super) fn deletes_hide_nothing(shape: &Shape, table: &TableMeta) -> bool {
    let visible_to_all = shape.snapshots.first().is_none_or(|&oldest| table.seq_max <= oldest);
    table.deletes > 0 && visible_to_all
}

/// The tables of every run of `level` that overlap `bounds`, and those that overlap these, until
/// there are no more: newest run first.
fn stack_over<'a>(shape: &'a Shape, level: usize, bounds: KeyBounds<'a>) -> Vec<Chosen<'a>> {
    let mut bounds = bounds;
    loop {
        let parts = shape.levels.get(level).into_iter().flat_map(|level| level.runs());
        let chosen: Vec<Chosen<'a>> = parts
            .map(|(part, run)| Chosen { level, part, run, span: overlapping(run, bounds) })
            .filter(|chosen| !chosen.span.is_empty())
            .collect();
        let wider = chosen.iter().filter_map(Chosen::bounds).fold(bounds, KeyBounds::union);
        if wider == bounds {
            return chosen;
        }
        bounds = wider;
    }
}

/// Runs of a level on average: a filling part that grows from nothing, and a draining part that
/// shrinks to nothing.
const RUNS_PER_LEVEL: f64 = 1.5;

/// Rule: what is written becomes part of a run that the level's entries make.
pub(super) fn filter_bits(shape: &Shape, level: usize, entries: u64) -> f32 {
    let run = if level == 0 { 0 } else { level_entries(shape, level) };
    let ratio = f64::from(shape.options.level_ratio.max(2));
    super::filter_bits(shape, level, entries.max(run), ratio, RUNS_PER_LEVEL, RUNS_PER_LEVEL)
}

// ------------------------------------------------------------------------------------------- costs

/// Bytes that compactions write for a byte that leaves `level`, until it is in the last level. A
/// filling part grows from nothing to `S` while it takes in parts of size `P` from above, so a byte
/// that comes meets (S/P - 1)/2 others on average: (S/P + 1)/2 are written; (r + 1)/2 where each
/// level is `r` times the one above (LSbM §2.2). The last level has all of its `N` bytes all the
/// time: N/P + 1.
pub(super) fn bytes_written_below(shape: &Shape, targets: &Targets, level: usize) -> f64 {
    let mut cost = 0.0;
    let mut above = match targets.bytes[level] {
        // Level 0, or a level that should be empty.
        0 => shape.options.write_buffer_bytes.max(1) as f64,
        target => target as f64,
    };
    for below in targets.base.max(level + 1)..BOTTOM {
        let size = targets.bytes[below].max(1) as f64;
        cost += f64::midpoint(size / above, 1.0).max(1.0);
        above = size;
    }
    cost + level_bytes(shape, BOTTOM) as f64 / above + 1.0
}

/// The load of a tree with parts. `behind` says how many bytes of its draining part a level ought
/// to have given already.
pub(super) fn pressure(shape: &Shape, behind: impl Fn(&Targets, usize) -> u64) -> Pressure {
    let targets = targets_of(shape);
    let per_flushed_byte = bytes_written_below(shape, &targets, 0);
    let l0_trigger = shape.options.l0_trigger.max(1);
    let batch = shape.options.write_buffer_bytes.saturating_mul(l0_trigger as u64);
    let late = (1..BOTTOM)
        .map(|level| behind(&targets, level) as f64 * bytes_written_below(shape, &targets, level));
    let debt = level_bytes(shape, 0) as f64 * per_flushed_byte + late.sum::<f64>();
    Pressure {
        l0_runs: shape.l0_flushed_runs(),
        l0_trigger,
        debt_bytes: debt as u64,
        debt_unit_bytes: (batch as f64 * per_flushed_byte) as u64,
    }
}

// ------------------------------------------------------------------------------------------- form

/// What a tree with parts promises at rest: at most one run in a part below level 0, no draining
/// part in level 0 and the last, nothing above the base level.
pub(super) fn check(shape: &Shape) -> Vec<String> {
    let mut violations = Vec::new();
    let base = targets_of(shape).base;
    for (level, parts) in shape.levels.iter().enumerate() {
        let edge = level == 0 || level >= BOTTOM;
        if edge && parts.draining.is_some() {
            violations.push(format!("level {level} has a draining part"));
        }
        for (kind, part) in parts.parts().filter(|_| level > 0) {
            if part.runs.len() > 1 {
                let count = part.runs.len();
                violations.push(format!("level {level} has {count} {kind:?} runs, not one"));
            }
        }
        if (1..base).contains(&level) && !parts.is_empty() {
            violations.push(format!("level {level} has tables above the base level {base}"));
        }
    }
    violations
}
