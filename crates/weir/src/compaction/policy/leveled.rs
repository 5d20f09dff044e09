//! `leveled`: runs in level 0, then one run a level, each level larger than the one above.
//!
//! Source: LevelDB (`db/version_set.cc`: Finalize, PickCompaction, SetupOtherInputs). We differ:
//! * The bottom level is always the last one, and targets are derived from it upwards, as RocksDB's
//!   dynamic level bytes do: level 0 is merged straight into the *base level*, and levels above it
//!   stay empty. A level whose target would not be larger than one batch of level 0 costs a rewrite
//!   and saves nothing, so the base level's target lies between one unit (the larger of
//!   `base_level_bytes` and a level-0 batch) and `level_ratio` units: a store up to ten units has
//!   one level below level 0.
//! * A pick takes up to [`PICK_TABLES`] neighbouring tables: the tables below that are only half
//!   covered at the two ends are paid for once per pick, not once per table.
//! * Within a level the round-robin cursor decides, as in LevelDB, not the smallest overlap. It
//!   visits every key range in turn, so deletes and old versions leave every range in bounded time,
//!   and what lies behind the cursor has had the longest time to grow dense. With it the dry run in
//!   `simulation` merges 12.0 bytes per flushed byte (ratio 10, 1,200 write buffers of random
//!   keys); with picks from the table of least overlap on, it merged 15.6.
//!
//! Not here: the tombstone rule (`merge::Retain` and `execute`), the delay of writers (`pacing`).
//!
//! Invariants: (1) what leaves level 0 takes along every level-0 table, older or newer, that
//! overlaps it, so that only age-contiguous data moves (H23); (2) at most one job of `pick` takes
//! from level 0; (3) the tables taken from a deeper level are neighbours, and all tables that they
//! overlap below are taken too, so the outputs overlap nothing else there; (4) a table is never
//! taken without another that shares a user key with it in its run (H40); (5) no two jobs conflict:
//! what one writes may span the gaps between its inputs, and nothing may be brought there
//! meanwhile, nor past it ([`JobFootprint::conflicts_with`]).

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::base::ids::DataEpoch;
use crate::base::key;
use crate::base::limits::LEVELS;
use crate::base::table_meta::TableMeta;
use crate::compaction::policy::targets::{BOTTOM, Targets, in_use, level_bytes, level_entries};
use crate::compaction::policy::{
    Below, KeyBounds, Plan, Policy, Pressure, RangePick, Span, all, bounds_of, filter_bits, job_of,
    keeps_too_many_bits, merge_parts_back, overlapping, run_of, running_job, runs, table_at,
    tables_in,
};
use crate::compaction::task::{Cause, CursorMove, MergeTask, MoveTask, RunSlice, Task};
use crate::version::shape::{JobFootprint, PartKind, RunId, RunShape, Shape};

/// Most tables taken from a level (below 0) by one pick.
const PICK_TABLES: u64 = 4;

/// Most tables taken from a level when more of them come free, because what they overlap below is
/// an input already: bounds the size of one job.
const WIDEN_TABLES: u64 = 2 * PICK_TABLES;

/// A table may overlap this many times `table_bytes` in the level below its own: what its own
/// compaction will have to read (LevelDB's grandparent limit).
pub(super) const OVERLAP_TABLES: u64 = 10;

/// A level-0 table below `table_bytes` divided by this is merged with its neighbours, not moved:
/// many small flushes must not become many small tables.
const SMALL_TABLE_DIVISOR: u64 = 4;

/// A table is rewritten rather than moved to where its deletes hide nothing, if at least one entry
/// in this many is a delete.
const MOVE_DELETES_DIVISOR: u64 = 8;

/// A table of the bottom level is rewritten for its deletes if at least one entry in this many is a
/// delete, and no snapshot needs them.
const REWRITE_DELETES_DIVISOR: u64 = 4;

/// Most tasks of one pick.
const TASKS_MAX: usize = 8;

/// The leveled policy.
pub(crate) struct Leveled;

impl Policy for Leveled {
    /// The rules, most urgent first; each is one function.
    fn pick(&self, shape: &Shape) -> Vec<Task> {
        if let Some(tasks) = merge_parts_back(shape) {
            return tasks;
        }
        let mut picker = Picker::new(shape);
        for candidate in Candidate::all(&picker.targets, shape) {
            if picker.tasks.len() >= TASKS_MAX {
                break;
            }
            match candidate.rule {
                Rule::Stack(cause) => picker.pick_stack(candidate.level, cause),
                Rule::Bytes(cause) => picker.pick_bytes(candidate.level, candidate.excess, cause),
            }
        }
        if picker.tasks.is_empty() && picker.busy.is_empty() {
            picker.pick_deletes();
        }
        picker.tasks
    }

    fn pick_range(&self, shape: &Shape, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> RangePick {
        pick_range(shape, lower, upper)
    }

    fn plan(&self, shape: &Shape, merge: &MergeTask) -> Plan {
        plan(shape, merge)
    }

    /// With the level that it is merged into: what is flushed next may overlap all of it.
    fn level_0_merge_bytes(&self, shape: &Shape) -> u64 {
        level_bytes(shape, 0) + level_bytes(shape, targets_of(shape).next_level(shape, 0))
    }

    fn filter_bits(&self, shape: &Shape, level: usize, entries: u64) -> f32 {
        // What a merge writes becomes part of the run of its level.
        let run = if level == 0 { 0 } else { level_entries(shape, level) };
        let ratio = f64::from(shape.options.level_ratio.max(2));
        filter_bits(shape, level, entries.max(run), ratio, 1.0, 1.0)
    }

    fn pressure(&self, shape: &Shape) -> Pressure {
        let unit = unit_bytes(shape);
        Pressure {
            l0_runs: shape.l0_flushed_runs(),
            l0_trigger: shape.options.l0_trigger.max(1),
            debt_bytes: debt_bytes(shape),
            debt_unit_bytes: unit.saturating_mul(u64::from(shape.options.level_ratio) + 1),
        }
    }

    fn check(&self, shape: &Shape) -> Vec<String> {
        check(shape)
    }
}

// ------------------------------------------------------------------------------ targets and scores

/// Bytes of the smallest base level worth having: one batch of level 0, or the user's number if
/// that is larger.
fn unit_bytes(shape: &Shape) -> u64 {
    let options = &shape.options;
    let batch = options.write_buffer_bytes.saturating_mul(options.l0_trigger as u64);
    options.base_level_bytes.max(batch).max(1)
}

/// Which function picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Runs that may overlap each other.
    Stack(Cause),
    /// One run that holds too many bytes.
    Bytes(Cause),
}

/// A level that has work.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    level: usize,
    score: f64,
    excess: u64,
    rule: Rule,
}

/// The targets of a leveled tree.
fn targets_of(shape: &Shape) -> Targets {
    Targets::of(shape, unit_bytes(shape))
}

impl Candidate {
    /// The levels that have work, most urgent first: level 0 and the levels above the base by their
    /// runs, the others by bytes above target. Bytes of busy tables count as gone.
    fn all(targets: &Targets, shape: &Shape) -> Vec<Self> {
        let mut found: Vec<Self> =
            (0..BOTTOM).filter_map(|level| Self::of(targets, shape, level)).collect();
        if runs(shape, BOTTOM).len() > 1 {
            let rule = Rule::Stack(Cause::Drain);
            found.push(Candidate { level: BOTTOM, score: 1.0, excess: 0, rule });
        }
        // Stable: of equal scores the upper level goes first.
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found
    }

    fn of(targets: &Targets, shape: &Shape, level: usize) -> Option<Self> {
        if level == 0 {
            let score = shape.l0_flushed_runs() as f64 / shape.options.l0_trigger.max(1) as f64;
            let rule = Rule::Stack(Cause::RunCount);
            return (score >= 1.0).then_some(Candidate { level, score, excess: 0, rule });
        }
        if runs(shape, level).len() > 1 {
            let rule = Rule::Stack(Cause::Drain);
            return Some(Candidate { level, score: 1.0, excess: 0, rule });
        }
        let bytes: u64 = idle_bytes(shape, level);
        if bytes == 0 {
            return None;
        }
        let target = targets.bytes[level];
        if target == 0 {
            let rule = Rule::Bytes(Cause::Drain);
            return Some(Candidate { level, score: 1.0, excess: bytes, rule });
        }
        let score = bytes as f64 / target as f64;
        let excess = bytes.saturating_sub(target);
        let rule = Rule::Bytes(Cause::LevelBytes);
        (score > 1.0).then_some(Candidate { level, score, excess, rule })
    }
}

/// Bytes of the tables of a level that no job has taken.
fn idle_bytes(shape: &Shape, level: usize) -> u64 {
    if shape.busy.is_empty() {
        return level_bytes(shape, level);
    }
    let busy: u64 = runs(shape, level)
        .iter()
        .flat_map(|run| tables_in(run, &all(run)))
        .filter(|table| shape.busy.contains(&table.uid))
        .map(|table| table.bytes)
        .sum();
    level_bytes(shape, level) - busy
}

/// Upper estimate of the bytes that compactions write until no level is above its target: each byte
/// too many in a level is written once with what it overlaps below, and goes on to the next level.
fn debt_bytes(shape: &Shape) -> u64 {
    let targets = targets_of(shape);
    let mut debt = 0u64;
    let mut incoming = 0u64;
    if shape.l0_flushed_runs() >= shape.options.l0_trigger.max(1) {
        incoming = level_bytes(shape, 0);
        debt = incoming.saturating_add(level_bytes(shape, targets.next_level(shape, 0)));
    }
    for level in 1..BOTTOM {
        let bytes = level_bytes(shape, level)
            + if level == targets.next_level(shape, 0) { incoming } else { 0 };
        let excess = bytes.saturating_sub(targets.bytes[level]);
        if excess == 0 {
            continue;
        }
        let below = level_bytes(shape, targets.next_level(shape, level));
        let fanout = (below as f64 / bytes as f64).min(1e6);
        debt = debt.saturating_add((excess as f64 * (1.0 + fanout)) as u64);
    }
    debt
}

// ------------------------------------------------------------------------------------------ picks

/// The state of one `pick`.
struct Picker<'a> {
    shape: &'a Shape,
    targets: Targets,
    busy: BTreeSet<u64>,
    /// The running jobs and those of this pick.
    jobs: Vec<JobFootprint>,
    /// Levels that a level of overlapping runs waits for: nothing is taken from them.
    held: Vec<usize>,
    tasks: Vec<Task>,
}

/// Neighbouring tables of one run, chosen as inputs, and where the run is.
#[derive(Clone)]
pub(super) struct Chosen<'a> {
    pub(super) level: usize,
    pub(super) part: PartKind,
    pub(super) run: &'a RunShape,
    pub(super) span: Span,
}

impl<'a> Chosen<'a> {
    pub(super) fn bounds(&self) -> Option<KeyBounds<'a>> {
        bounds_of(self.run, &self.span)
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &'a TableMeta> + '_ {
        tables_in(self.run, &self.span)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.tables().map(|table| table.bytes).sum()
    }

    pub(super) fn slice(&self) -> RunSlice {
        let uids = self.tables().map(|table| table.uid).collect();
        RunSlice { run: self.run_id(), uids }
    }

    pub(super) fn run_id(&self) -> RunId {
        RunId { level: self.level, part: self.part, epoch: self.run.epoch }
    }
}

/// Whether a merge of these tables would conflict with a running job.
pub(super) fn conflicts_with_running(
    jobs: &[JobFootprint],
    chosen: &[Chosen<'_>],
    merge: &MergeTask,
) -> bool {
    let Some(bounds) = bounds_over(chosen).filter(|_| !jobs.is_empty()) else { return false };
    let job = job_of(bounds, chosen.iter().map(Chosen::run_id), merge.output);
    jobs.iter().any(|other| other.conflicts_with(&job))
}

/// The tables of every run of `level` that overlap `bounds`, and those that overlap these, until
/// there are no more: newest run first.
fn stack_over<'a>(shape: &'a Shape, level: usize, bounds: KeyBounds<'a>) -> Vec<Chosen<'a>> {
    let mut bounds = bounds;
    loop {
        let chosen: Vec<Chosen<'a>> = runs(shape, level)
            .iter()
            .map(|run| Chosen {
                level,
                part: PartKind::Filling,
                run,
                span: overlapping(run, bounds),
            })
            .filter(|chosen| !chosen.span.is_empty())
            .collect();
        let wider = chosen.iter().filter_map(Chosen::bounds).fold(bounds, KeyBounds::union);
        if wider == bounds {
            return chosen;
        }
        bounds = wider;
    }
}

/// All tables of a level.
fn whole_runs(shape: &Shape, level: usize) -> Vec<Chosen<'_>> {
    runs(shape, level)
        .iter()
        .map(|run| Chosen { level, part: PartKind::Filling, run, span: all(run) })
        .collect()
}

/// The interval around all chosen tables.
pub(super) fn bounds_over<'a>(chosen: &[Chosen<'a>]) -> Option<KeyBounds<'a>> {
    chosen.iter().filter_map(Chosen::bounds).reduce(KeyBounds::union)
}

/// The merge of all chosen tables into one level.
fn merge_of(
    shape: &Shape,
    chosen: &[Chosen<'_>],
    output_level: usize,
    cursor: Option<CursorMove>,
    cause: Cause,
) -> MergeTask {
    let inputs: Vec<RunSlice> = chosen.iter().map(Chosen::slice).collect();
    let output = RunId::filling(output_level, output_epoch(shape, output_level, &inputs));
    MergeTask { inputs, output, cursor, cause }
}

impl<'a> Picker<'a> {
    fn new(shape: &'a Shape) -> Self {
        let (busy, jobs) = (shape.busy.clone(), shape.jobs.clone());
        Self { shape, targets: targets_of(shape), busy, jobs, held: Vec::new(), tasks: Vec::new() }
    }

    fn is_busy(&self, chosen: &[Chosen<'_>]) -> bool {
        chosen.iter().flat_map(|c| c.tables()).any(|table| self.busy.contains(&table.uid))
    }

    fn accept(&mut self, task: Task) {
        self.busy.extend(task.input_uids());
        self.jobs.extend(running_job(self.shape, &task));
        self.tasks.push(task);
    }

    /// Rule: a level of overlapping runs (level 0, or runs left by another policy) gives its oldest
    /// run and everything that overlaps it to the next level; one job at a time. If it has to wait
    /// for a table there, no new job may take from that level, or it would wait for ever.
    fn pick_stack(&mut self, level: usize, cause: Cause) {
        let shape = self.shape;
        if !shape.damaged.is_empty() {
            return self.pick_stack_around_damage(level, cause);
        }
        let all_runs = whole_runs(shape, level);
        if self.is_busy(&all_runs) {
            return;
        }
        let Some(seed) = all_runs.iter().rev().find_map(Chosen::bounds) else { return };
        let mut chosen = stack_over(shape, level, seed);
        let small = chosen.iter().map(Chosen::bytes).sum::<u64>() < self.small_bytes();
        if small || level == BOTTOM {
            // Small flushes that do not overlap: one table for all of them. The bottom level: its
            // runs become one.
            chosen = all_runs;
        }
        let output_level = self.stack_output(level);
        match self.finish(chosen, output_level, cause, None) {
            Some(task) => self.accept(task),
            None => self.held.push(output_level),
        }
    }

    /// Rule: while tables are damaged, the oldest run whose stack needs none of them goes; nobody
    /// waits for them. What overlaps them stays where it is.
    fn pick_stack_around_damage(&mut self, level: usize, cause: Cause) {
        let shape = self.shape;
        let all_runs = whole_runs(shape, level);
        let mut tables = all_runs.iter().flat_map(|c| c.tables()).map(|table| table.uid);
        let taken = |uid: u64| self.busy.contains(&uid) && !shape.damaged.contains(&uid);
        if level == BOTTOM || tables.any(taken) {
            return;
        }
        let output_level = self.stack_output(level);
        for seed in all_runs.iter().rev().filter_map(Chosen::bounds) {
            let chosen = stack_over(shape, level, seed);
            if !self.is_busy(&chosen)
                && let Some(task) = self.finish(chosen, output_level, cause, None)
            {
                return self.accept(task);
            }
        }
    }

    /// The level that a level of overlapping runs is merged into.
    fn stack_output(&self, level: usize) -> usize {
        if level == BOTTOM { BOTTOM } else { self.targets.next_level(self.shape, level) }
    }

    /// Rule: a level above its target gives tables from its cursor on, in key order and around,
    /// until it has given the excess. A pick that meets a busy table is skipped for the next one.
    fn pick_bytes(&mut self, level: usize, excess: u64, cause: Cause) {
        let Some(run) = runs(self.shape, level).first() else { return };
        if self.held.contains(&level) {
            return;
        }
        let count = all(run).end;
        let start = self.after_cursor(level, run);
        let (mut left, mut visited) = (excess, 0);
        while visited < count && left > 0 && self.tasks.len() < TASKS_MAX {
            let first = (start + visited) % count;
            let span = self.neighbours(run, first, count - visited, left);
            let taken = span.len();
            match self.pick_span(level, run, span, cause) {
                Some((task, bytes)) => {
                    self.accept(task);
                    left = left.saturating_sub(bytes);
                    visited += taken;
                }
                None => visited += 1,
            }
        }
    }

    /// Rule: the round-robin cursor. The first table that begins after it; the first of all if
    /// none.
    fn after_cursor(&self, level: usize, run: &RunShape) -> usize {
        let Some(cursor) = self.shape.levels.get(level).and_then(|l| l.cursor.as_deref()) else {
            return 0;
        };
        let after = tables_in(run, &all(run))
            .position(|table| key::compare(&table.smallest, cursor).is_gt());
        after.unwrap_or(0)
    }

    /// Rule: how many neighbours one pick takes, from `first`: up to the excess, up to
    /// [`PICK_TABLES`], never a busy one, never around the end.
    fn neighbours(&self, run: &RunShape, first: usize, count: usize, excess: u64) -> Span {
        let limit = excess.min(PICK_TABLES.saturating_mul(self.shape.options.table_bytes));
        let (mut end, mut bytes) = (first, 0);
        while let Some(table) = table_at(run, end) {
            if end - first >= count || bytes >= limit || self.busy.contains(&table.uid) {
                break;
            }
            bytes += table.bytes;
            end += 1;
        }
        first..end
    }

    /// One pick from a level of one run: the tables of `span`, made whole by user keys, widened as
    /// far as that is free. The task and the bytes that leave the level.
    fn pick_span(
        &self,
        level: usize,
        run: &'a RunShape,
        span: Span,
        cause: Cause,
    ) -> Option<(Task, u64)> {
        let shape = self.shape;
        let output_level = self.targets.next_level(shape, level);
        let chosen = self.widen(output_level, stack_over(shape, level, bounds_of(run, &span)?))?;
        if self.is_busy(&chosen) {
            return None;
        }
        let bytes = chosen.iter().map(Chosen::bytes).sum();
        let cursor = CursorMove { level, key: bounds_over(&chosen)?.largest.to_vec() };
        let task = self.finish(chosen, output_level, cause, Some(cursor))?;
        Some((task, bytes))
    }

    /// Rule: more tables of the upper level come along if they add no table of the lower level, are
    /// not busy, and the job stays bounded (LevelDB, SetupOtherInputs).
    fn widen(&self, output_level: usize, chosen: Vec<Chosen<'a>>) -> Option<Vec<Chosen<'a>>> {
        let shape = self.shape;
        let level = chosen.first()?.level;
        let bounds = bounds_over(&chosen)?;
        let lower = stack_over(shape, output_level, bounds);
        let Some(lower_bounds) = bounds_over(&lower) else { return Some(chosen) };
        let wide = stack_over(shape, level, bounds.union(lower_bounds));
        let wide_lower = stack_over(shape, output_level, bounds_over(&wide)?);
        let count = |lower: &[Chosen<'_>]| lower.iter().map(|c| c.span.len()).sum::<usize>();
        let limit = WIDEN_TABLES.saturating_mul(shape.options.table_bytes);
        let free = count(&wide_lower) == count(&lower)
            && wide.iter().map(Chosen::bytes).sum::<u64>() <= limit
            && !self.is_busy(&wide);
        Some(if free { wide } else { chosen })
    }

    /// Adds the overlapping tables of the output level and decides between a merge and a move.
    /// `None` if one of them is busy, or another job is in the way.
    fn finish(
        &self,
        mut chosen: Vec<Chosen<'a>>,
        output_level: usize,
        cause: Cause,
        cursor: Option<CursorMove>,
    ) -> Option<Task> {
        let source_level = chosen.first()?.level;
        let mut may_move = false;
        if output_level != source_level {
            let lower = stack_over(self.shape, output_level, bounds_over(&chosen)?);
            if self.is_busy(&lower) {
                return None;
            }
            may_move = lower.is_empty() && self.may_move(&chosen, output_level);
            chosen.extend(lower);
        }
        let merge = merge_of(self.shape, &chosen, output_level, cursor, cause);
        if conflicts_with_running(&self.jobs, &chosen, &merge) {
            return None;
        }
        if !may_move {
            return Some(Task::Merge(merge));
        }
        let MergeTask { output, cursor, cause, .. } = merge;
        let input = chosen.first()?.slice();
        Some(Task::Move(MoveTask { input, output, cursor, cause }))
    }

    /// Tables smaller than this are merged out of level 0, not moved.
    fn small_bytes(&self) -> u64 {
        self.shape.options.table_bytes / SMALL_TABLE_DIVISOR
    }

    /// Rule: tables that overlap nothing in the output level are moved, not rewritten, unless they
    /// are of several runs, small ones of level 0, hard to compact further, full of deletes that a
    /// rewrite would drop, or to be compressed differently or to have far smaller filters.
    fn may_move(&self, chosen: &[Chosen<'_>], output_level: usize) -> bool {
        let [only] = chosen else { return false };
        let options = &self.shape.options;
        if options.compression_at(only.level) != options.compression_at(output_level) {
            return false;
        }
        let entries = only.tables().map(|table| table.entries).sum();
        let bits = |level| Leveled.filter_bits(self.shape, level, entries);
        if keeps_too_many_bits(self.shape, bits(only.level), bits(output_level)) {
            return false;
        }
        let overlap_max = OVERLAP_TABLES.saturating_mul(options.table_bytes);
        only.tables().all(|table| {
            let small = only.level == 0 && table.bytes < self.small_bytes();
            let below = overlapping_bytes(self.shape, output_level + 1, KeyBounds::of(table));
            let deletes_end_here =
                table.deletes > 0 && table.deletes >= table.entries / MOVE_DELETES_DIVISOR;
            !small && below <= overlap_max && (below > 0 || !deletes_end_here)
        })
    }

    /// Rule: when there is nothing else to do, tables of the bottom level that are largely deletes
    /// (left there because a snapshot needed them) are rewritten without them.
    fn pick_deletes(&mut self) {
        let useless = |table: &TableMeta| {
            deletes_hide_nothing(self.shape, table)
                && table.deletes >= table.entries / REWRITE_DELETES_DIVISOR
        };
        let Some(run) = runs(self.shape, BOTTOM).first() else { return };
        let Some(table) = tables_in(run, &all(run)).find(|table| useless(table)) else { return };
        let chosen = stack_over(self.shape, BOTTOM, KeyBounds::of(table));
        let merge = merge_of(self.shape, &chosen, BOTTOM, None, Cause::Deletes);
        self.accept(Task::Merge(merge));
    }
}

/// Whether every delete of a table of the bottom level may be dropped: all entries are at or below
/// the oldest snapshot.
fn deletes_hide_nothing(shape: &Shape, table: &TableMeta) -> bool {
    let visible_to_all = shape.snapshots.first().is_none_or(|&oldest| table.seq_max <= oldest);
    table.deletes > 0 && visible_to_all
}

/// Bytes of the tables from `level` down to the first level that overlaps `bounds`.
fn overlapping_bytes(shape: &Shape, level: usize, bounds: KeyBounds<'_>) -> u64 {
    (level..LEVELS)
        .map(|level| {
            let tables = runs(shape, level)
                .iter()
                .flat_map(|run| tables_in(run, &overlapping(run, bounds)).map(|table| table.bytes));
            tables.sum::<u64>()
        })
        .find(|&bytes| bytes > 0)
        .unwrap_or(0)
}

// ------------------------------------------------------------------------------ ranges and plans

/// Rule: a range asked for by a user is merged out of all levels at once into the bottom level;
/// there it is rewritten only for deletes that can go, or to be one run.
fn pick_range(shape: &Shape, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> RangePick {
    if let Some(tasks) = merge_parts_back(shape) {
        return tasks.into_iter().next().map_or(RangePick::Wait, RangePick::Task);
    }
    let mut bounds: Option<KeyBounds<'_>> = None;
    let mut chosen: Vec<Chosen<'_>> = Vec::new();
    for level in 0..LEVELS {
        let tables: Vec<&TableMeta> = runs(shape, level)
            .iter()
            .flat_map(|run| tables_in(run, &run.tables.overlapping(lower, upper)))
            .collect();
        let around = |useful: &dyn Fn(&TableMeta) -> bool| {
            let seeds = tables.iter().filter(|table| useful(table));
            let seeds = seeds.map(|table| KeyBounds::of(table)).chain(bounds);
            seeds
                .reduce(KeyBounds::union)
                .map_or_else(Vec::new, |seed| stack_over(shape, level, seed))
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
    let merge = merge_of(shape, &chosen, BOTTOM, None, Cause::Manual);
    if chosen.iter().flat_map(Chosen::tables).any(|table| shape.busy.contains(&table.uid))
        || conflicts_with_running(&shape.jobs, &chosen, &merge)
    {
        return RangePick::Wait;
    }
    RangePick::Task(Task::Merge(merge))
}

/// Rule: outputs join the one run of their level; where there is none, they found it with the epoch
/// of their newest input.
fn output_epoch(shape: &Shape, output_level: usize, inputs: &[RunSlice]) -> DataEpoch {
    let newest = inputs.iter().map(|slice| slice.run.epoch).max().unwrap_or_default();
    runs(shape, output_level).first().map_or(newest, |run| run.epoch)
}

/// Rule: outputs are cut near `table_bytes`, all of about the same size, and aligned with what lies
/// below them.
pub(super) fn plan(shape: &Shape, merge: &MergeTask) -> Plan {
    let mut input_bytes = 0u64;
    let mut bounds: Option<KeyBounds<'_>> = None;
    for slice in &merge.inputs {
        let run = run_of(shape, slice);
        let tables = run.into_iter().flat_map(|run| tables_in(run, &all(run)));
        for table in tables.filter(|table| slice.uids.contains(&table.uid)) {
            input_bytes += table.bytes;
            bounds = Some(
                bounds.map_or(KeyBounds::of(table), |bounds| bounds.union(KeyBounds::of(table))),
            );
        }
    }
    let table_bytes = shape.options.table_bytes.max(1);
    let outputs = input_bytes.div_ceil(table_bytes).max(1);
    let below = (merge.output.level + 1..LEVELS).find(|&level| in_use(shape, level));
    let below = match (below, bounds) {
        // Several runs there become one before they are merged with: the largest tells most.
        (Some(level), Some(bounds)) => runs(shape, level)
            .iter()
            .max_by_key(|run| run.tables.totals().bytes)
            .into_iter()
            .flat_map(|run| tables_in(run, &overlapping(run, bounds)).map(Below::of))
            .collect(),
        _ => Vec::new(),
    };
    Plan {
        table_bytes: input_bytes.div_ceil(outputs).clamp(table_bytes / 2 + 1, table_bytes),
        below_bytes_max: OVERLAP_TABLES.saturating_mul(table_bytes),
        below,
    }
}

/// What leveled promises about the form: one run in every level but 0.
fn check(shape: &Shape) -> Vec<String> {
    let mut violations = Vec::new();
    for level in 1..shape.levels.len() {
        let count = runs(shape, level).len();
        if count > 1 {
            violations.push(format!("level {level} has {count} runs; leveled keeps one"));
        }
    }
    if shape.levels.len() > LEVELS {
        violations.push(format!("the tree has {} levels of {LEVELS}", shape.levels.len()));
    }
    violations
}

/// The targets in one line, for the text cases.
#[cfg(test)]
pub(super) fn describe_targets(shape: &Shape) -> String {
    targets_of(shape).describe()
}
