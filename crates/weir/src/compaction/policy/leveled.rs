//! `leveled`: runs in level 0, then one run a level, each level larger than the one above.
//!
//! Source: LevelDB (`db/version_set.cc`: Finalize, PickCompaction, SetupOtherInputs). We differ:
//! * The bottom level is always the last one, and targets are derived from it upwards, as RocksDB's
//!   dynamic level bytes do: level 0 is merged straight into the *base level*, and levels above it
//!   stay empty. A level whose target would not be larger than one batch of level 0 costs a rewrite
//!   and saves nothing, so the base level's target is at least one unit (the larger of
//!   `base_level_bytes` and a level-0 batch) and at most `level_ratio` units. A store of up
//!   to six batches has one level below level 0, one of up to `level_ratio` units two, of which the
//!   upper one is as large as costs least (`targets`).
//! * A pick takes several neighbouring tables (`moves`): the tables below that are only half
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
//! overlaps it, so that only age-contiguous data moves (H23); only sentinels that are newer than
//! all of it stay; (2) at most one job of `pick` takes from level 0; (3) the tables taken from a
//! deeper level are neighbours, and all tables that they overlap below are taken too, so the
//! outputs overlap nothing else there; (4) a table is never taken without another that shares a
//! user key with it in its run (H40); (5) no two jobs conflict: what one writes may span the gaps
//! between its inputs, and nothing may be brought there meanwhile, nor past it (`conflicts`).

use std::ops::Bound;

use crate::base::ids::Level;
use crate::base::key;
use crate::compaction::policy::conflicts::Picks;
use crate::compaction::policy::deletes::rewrite_deletes_of_last_level;
use crate::compaction::policy::filters::filter_bits_of_levels;
use crate::compaction::policy::geometry::{
    Chosen, KeyBounds, Placed, bounds_over, bytes_of, filling_runs, leaving_stack_over,
    level_bytes, newest_filling, placed, stack_over, whole_runs,
};
use crate::compaction::policy::merge_back::{merge_back_first, merge_parts_back};
use crate::compaction::policy::moves::{self, merge_of, move_or_merge, small_bytes};
use crate::compaction::policy::scores::{Work, most_urgent_first};
use crate::compaction::policy::targets::Targets;
use crate::compaction::policy::{Plan, Policy, Pressure, RangePick, plan, ranges, sentinels};
use crate::compaction::task::{CursorMove, MergeTask, Reason, Task};
use crate::version::shape::Shape;

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
        for work in levels_with_work(&picker.targets, shape) {
            if picker.picks.len() >= TASKS_MAX {
                break;
            }
            if is_stack(shape, work.level) {
                picker.pick_stack(work.level, work.reason);
            } else {
                picker.pick_bytes(work);
            }
        }
        picker.pick_sentinels();
        picker.picks.finish(|| rewrite_deletes_of_last_level(shape))
    }

    fn pick_range(&self, shape: &Shape, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> RangePick {
        merge_back_first(shape).unwrap_or_else(|| ranges::into_last_level(shape, lower, upper))
    }

    /// Rule: the uppermost level with tables in a hot range gives those to the next level, at most
    /// as many as a job takes; of a level of overlapping runs, all that overlap them.
    fn pick_hot(&self, shape: &Shape, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Option<Task> {
        if merge_back_first(shape).is_some() {
            return None;
        }
        let picker = Picker::new(shape);
        let inside = |level| -> Vec<Chosen<'_>> {
            let chosen = placed(shape, level).map(|place| place.in_range(lower, upper));
            chosen.filter(|chosen| !chosen.span.is_empty()).collect()
        };
        let level = Level::all().find(|&level| !inside(level).is_empty())?;
        let mut seeds = inside(level);
        if !is_stack(shape, level) {
            for seed in &mut seeds {
                let within = seed.span.clone();
                *seed = moves::take(shape, seed.place, within, u64::MAX, picker.picks.busy());
            }
        }
        let chosen = stack_over(shape, level, bounds_over(&seeds)?);
        if level == Level::LAST || picker.picks.any_busy(&chosen) {
            return None;
        }
        picker.finish(chosen, picker.targets.next_level(shape, level), Reason::Reads, None)
    }

    fn plan(&self, shape: &Shape, merge: &MergeTask) -> Plan {
        plan::aligned(shape, merge)
    }

    /// With the level that it is merged into: what is flushed next may overlap all of it.
    fn level_0_merge_bytes(&self, shape: &Shape) -> u64 {
        shape.levels[Level::ZERO].bytes()
            + level_bytes(shape, targets_of(shape).next_level(shape, Level::ZERO))
    }

    fn filter_bits(&self, shape: &Shape, level: Level, entries: u64) -> f32 {
        filter_bits_of_levels(shape, level, entries, 1.0)
    }

    fn pressure(&self, shape: &Shape) -> Pressure {
        let (unit, sizes) = (unit_bytes(shape), shape.options.compaction.level_sizes());
        Pressure {
            l0_runs: shape.l0_flushed_runs(),
            l0_trigger: sizes.l0_trigger.max(1),
            debt_bytes: debt_bytes(shape),
            debt_unit_bytes: unit.saturating_mul(u64::from(sizes.level_ratio) + 1),
        }
    }

    /// What leveled promises about the form: one run in every level but 0.
    fn check(&self, shape: &Shape) -> Vec<String> {
        let mut violations: Vec<String> = sentinels::check(shape).into_iter().collect();
        for level in Level::ONE.to_last() {
            let count = filling_runs(shape, level).len();
            if count > 1 {
                violations.push(format!("level {level} has {count} runs; leveled keeps one"));
            }
        }
        violations
    }
}

// ------------------------------------------------------------------------------ targets and scores

/// Bytes of the smallest base level worth having: one batch of level 0, or the user's number if
/// that is larger.
fn unit_bytes(shape: &Shape) -> u64 {
    let sizes = shape.options.compaction.level_sizes();
    sizes.base_level_bytes.max(batch_bytes(shape)).max(1)
}

/// Bytes that level 0 gives at a time.
fn batch_bytes(shape: &Shape) -> u64 {
    let l0_trigger = shape.options.compaction.level_sizes().l0_trigger;
    shape.options.write_buffer_bytes.saturating_mul(l0_trigger as u64)
}

/// The targets of a leveled tree.
pub(super) fn targets_of(shape: &Shape) -> Targets {
    let unit = unit_bytes(shape);
    Targets::of(shape, unit).with_second_level(shape, unit, batch_bytes(shape))
}

/// Whether the runs of a level may overlap each other: in level 0, and where another policy left
/// several.
fn is_stack(shape: &Shape, level: Level) -> bool {
    level == Level::ZERO || filling_runs(shape, level).len() > 1
}

/// The levels that have work, most urgent first: level 0 and levels of several runs by their runs,
/// the others by bytes above target. Bytes of busy tables count as gone.
fn levels_with_work(targets: &Targets, shape: &Shape) -> Vec<Work> {
    most_urgent_first(Level::all().filter_map(|level| {
        if level == Level::ZERO {
            return Work::of_level_0(shape, 0);
        }
        if is_stack(shape, level) {
            return Some(Work::drain(level, 0));
        }
        match (idle_bytes(shape, level), targets.bytes[level]) {
            (0, _) => None,
            (bytes, 0) => Some(Work::drain(level, bytes)),
            (bytes, target) => Work::above_target(level, bytes, target),
        }
    }))
}

/// Bytes of the tables of a level that a pick may include.
fn idle_bytes(shape: &Shape, level: Level) -> u64 {
    if shape.busy.is_empty() {
        return level_bytes(shape, level);
    }
    let tables = placed(shape, level).flat_map(|place| place.tables());
    let busy: u64 = tables
        .filter(|table| shape.busy.contains(&table.uid))
        .map(|table| table.visible_bytes())
        .sum();
    level_bytes(shape, level) - busy
}

/// Upper estimate of the bytes that compactions write until no level is above its target: each byte
/// too many in a level is written once with what it overlaps below, and goes on to the next level.
fn debt_bytes(shape: &Shape) -> u64 {
    let targets = targets_of(shape);
    let mut debt = 0u64;
    let mut incoming = 0u64;
    if shape.l0_flushed_runs() >= shape.options.compaction.level_sizes().l0_trigger.max(1) {
        incoming = level_bytes(shape, Level::ZERO);
        debt = incoming.saturating_add(level_bytes(shape, targets.next_level(shape, Level::ZERO)));
    }
    for level in Level::inner() {
        let bytes = level_bytes(shape, level)
            + if level == targets.next_level(shape, Level::ZERO) { incoming } else { 0 };
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

/// Those that are of no sentinel run.
fn data_runs<'a, 'b>(runs: &'b [Chosen<'a>]) -> impl Iterator<Item = &'b Chosen<'a>> {
    runs.iter().filter(|chosen| !chosen.place.is_sentinel())
}

/// The state of one `pick`.
struct Picker<'a> {
    shape: &'a Shape,
    targets: Targets,
    picks: Picks<'a>,
    /// Levels that a level of overlapping runs waits for: nothing is taken from them.
    held: Vec<Level>,
}

impl<'a> Picker<'a> {
    fn new(shape: &'a Shape) -> Self {
        Self { shape, targets: targets_of(shape), picks: Picks::new(shape), held: Vec::new() }
    }

    /// Rule: a level of overlapping runs (level 0, or runs left by another policy) gives its oldest
    /// run but sentinels, and everything that overlaps it, to the next level; one job at a time. If
    /// it has to wait for a table there, no new job may take from that level, or it would wait for
    /// ever.
    fn pick_stack(&mut self, level: Level, reason: Reason) {
        let shape = self.shape;
        if !shape.damaged.is_empty() {
            return self.pick_stack_around_damage(level, reason);
        }
        let all_runs = whole_runs(shape, level);
        if self.picks.any_busy(&all_runs) {
            return;
        }
        let bounds = || data_runs(&all_runs).filter_map(Chosen::bounds);
        let (Some(seed), Some(whole)) = (bounds().last(), bounds().reduce(KeyBounds::union)) else {
            return;
        };
        let mut chosen = leaving_stack_over(shape, level, seed);
        if bytes_of(&chosen) < small_bytes(shape) || level == Level::LAST {
            // Small flushes that do not overlap: one table for all of them. The bottom level: its
            // runs become one.
            chosen = leaving_stack_over(shape, level, whole);
        }
        let output_level = self.stack_output(level);
        match self.finish(chosen, output_level, reason, None) {
            Some(task) => self.picks.accept(task),
            None => self.held.push(output_level),
        }
    }

    /// Rule: while tables are damaged, the oldest run whose stack needs none of them is merged; no
    /// task waits for them. What overlaps them stays where it is.
    fn pick_stack_around_damage(&mut self, level: Level, reason: Reason) {
        let shape = self.shape;
        let all_runs = whole_runs(shape, level);
        let mut tables = all_runs.iter().flat_map(Chosen::tables);
        if level == Level::LAST || tables.any(|table| self.picks.is_taken(table.uid)) {
            return;
        }
        let output_level = self.stack_output(level);
        let seeds: Vec<_> = data_runs(&all_runs).filter_map(Chosen::bounds).collect();
        for seed in seeds.into_iter().rev() {
            let chosen = leaving_stack_over(shape, level, seed);
            if !self.picks.any_busy(&chosen)
                && let Some(task) = self.finish(chosen, output_level, reason, None)
            {
                return self.picks.accept(task);
            }
        }
    }

    /// Rule: beyond their cap sentinels go too, while no job takes from level 0.
    fn pick_sentinels(&mut self) {
        let (shape, level) = (self.shape, Level::ZERO);
        if self.picks.len() >= TASKS_MAX || shape.sentinel_bytes() <= shape.sentinel_bytes_max {
            return;
        }
        if placed(shape, level).any(|run| run.tables().any(|table| self.picks.is_taken(table.uid)))
        {
            return;
        }
        let chosen = sentinels::tables_beyond_cap(shape, self.picks.busy());
        let output_level = self.stack_output(level);
        let task = chosen.and_then(|c| self.finish(c, output_level, Reason::LevelBytes, None));
        task.into_iter().for_each(|task| self.picks.accept(task));
    }

    /// The level that a level of overlapping runs is merged into.
    fn stack_output(&self, level: Level) -> Level {
        if level == Level::LAST { Level::LAST } else { self.targets.next_level(self.shape, level) }
    }

    /// Rule: a level above its target gives tables from its cursor on, in key order and around,
    /// until it has given the excess. A pick that meets a busy table is skipped for the next one.
    fn pick_bytes(&mut self, work: Work) {
        let shape = self.shape;
        let Some(place) = newest_filling(shape, work.level) else { return };
        if self.held.contains(&work.level) {
            return;
        }
        let count = place.run.tables.len();
        let start = self.after_cursor(&place);
        let (mut left, mut visited) = (work.excess, 0);
        while visited < count && left > 0 && self.picks.len() < TASKS_MAX {
            let first = (start + visited) % count;
            // Never around the end.
            let within = first..(first + count - visited).min(count);
            let chosen = moves::take(shape, place, within, left, self.picks.busy());
            let taken = chosen.span.len();
            match self.pick_span(&chosen, work.reason) {
                Some((task, bytes)) => {
                    self.picks.accept(task);
                    left = left.saturating_sub(bytes);
                    visited += taken;
                }
                None => visited += 1,
            }
        }
    }

    /// Rule: the round-robin cursor. The first table that begins after it; the first of all if
    /// none.
    fn after_cursor(&self, place: &Placed<'_>) -> usize {
        let level = &self.shape.levels[place.level];
        let Some(cursor) = level.cursor.as_deref() else { return 0 };
        let after = place.tables().position(|table| key::compare(&table.smallest, cursor).is_gt());
        after.unwrap_or(0)
    }

    /// One pick from a level of one run: the chosen tables, made whole by user keys, widened as
    /// far as that is free. The task and the bytes that leave the level.
    fn pick_span(&self, chosen: &Chosen<'a>, reason: Reason) -> Option<(Task, u64)> {
        let (shape, level) = (self.shape, chosen.place.level);
        let output_level = self.targets.next_level(shape, level);
        let chosen = self.widen(output_level, stack_over(shape, level, chosen.bounds()?))?;
        if self.picks.any_busy(&chosen) {
            return None;
        }
        let bytes = bytes_of(&chosen);
        let cursor = CursorMove { level, key: bounds_over(&chosen)?.largest.to_vec() };
        let task = self.finish(chosen, output_level, reason, Some(cursor))?;
        Some((task, bytes))
    }

    /// Rule: more tables of the upper level come along if they add no table of the lower level, are
    /// not busy, and the job stays bounded (LevelDB, SetupOtherInputs).
    fn widen(&self, output_level: Level, chosen: Vec<Chosen<'a>>) -> Option<Vec<Chosen<'a>>> {
        let shape = self.shape;
        let level = chosen.first()?.place.level;
        let bounds = bounds_over(&chosen)?;
        let lower = stack_over(shape, output_level, bounds);
        let Some(lower_bounds) = bounds_over(&lower) else { return Some(chosen) };
        let wide = stack_over(shape, level, bounds.union(lower_bounds));
        let wide_lower = stack_over(shape, output_level, bounds_over(&wide)?);
        let count = |lower: &[Chosen<'_>]| lower.iter().map(|c| c.span.len()).sum::<usize>();
        let free = count(&wide_lower) == count(&lower)
            && bytes_of(&wide) <= moves::widen_bytes_max(shape)
            && !self.picks.any_busy(&wide);
        Some(if free { wide } else { chosen })
    }

    /// Adds the overlapping tables of the output level and decides between a merge and a move.
    /// `None` if one of them is busy, or another job is in the way.
    fn finish(
        &self,
        mut chosen: Vec<Chosen<'a>>,
        output_level: Level,
        reason: Reason,
        cursor: Option<CursorMove>,
    ) -> Option<Task> {
        let shape = self.shape;
        let source_level = chosen.first()?.place.level;
        let mut may_move = false;
        if output_level != source_level {
            let lower = stack_over(shape, output_level, bounds_over(&chosen)?);
            if self.picks.any_busy(&lower) {
                return None;
            }
            may_move = lower.is_empty() && self.may_move(&chosen, output_level);
            chosen.extend(lower);
        }
        let merge = MergeTask { cursor, ..merge_of(shape, &chosen, output_level, reason) };
        if self.picks.conflicts(&chosen, merge.output) {
            return None;
        }
        Some(move_or_merge(merge, may_move))
    }

    /// Rule: beside what is never moved (`moves`), tables of several runs and small ones of level 0
    /// are not.
    fn may_move(&self, chosen: &[Chosen<'_>], output_level: Level) -> bool {
        let [only] = chosen else { return false };
        let small = small_bytes(self.shape);
        let has_small =
            only.place.level == Level::ZERO && only.tables().any(|table| table.bytes < small);
        let bits = |level, entries| Leveled.filter_bits(self.shape, level, entries);
        !has_small && moves::may_move(self.shape, only, output_level, bits)
    }
}
