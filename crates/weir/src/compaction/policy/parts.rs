//! What the policies whose levels have two parts share: `gear` and `two_phase`.
//!
//! Each level from the base level to the last but one receives into its filling part and gives from
//! its draining part, each one run; when the filling part is full and the draining part empty, the
//! level is rotated. The last level has one run, which fills for ever. Level 0 is the same without
//! a rotation: its draining part is its oldest flushed run, the younger ones wait; older sentinels
//! come along (`sentinels`). Not here: when a level drains (one file per policy), how large it
//! should be (`targets`).
//!
//! Source: LSbM §4.1 (bLSM generalised to every level), dLSM §IV-A.
//!
//! Invariants: (1) a draining run gives its tables in key order, from the smallest on: the key up
//! to which it has drained is the one before its first table, and is stored nowhere; (2) one job at
//! a time takes from a part, so that jobs cannot end out of that order; (3) of several runs in a
//! part (left by another policy) the oldest drains first, and what comes from above joins the
//! newest, so nothing passes anything (H23); (4) a level is rotated only while no job brings tables
//! to it, and no job begins to while it is being rotated; (5) no two jobs conflict (`conflicts`).
//! A damaged table holds up its part when its turn comes; it hinders no rotation, which reads
//! nothing.

use std::ops::Bound;

use crate::base::ids::Level;
use crate::compaction::policy::conflicts::{Picks, any_taken};
use crate::compaction::policy::deletes::rewrite_deletes_of_last_level;
use crate::compaction::policy::filters::filter_bits_of_levels;
use crate::compaction::policy::geometry::{
    Chosen, Placed, bounds_over, bytes_of, filling_bytes, in_use, level_bytes, newest_filling,
    placed, placed_data,
};
use crate::compaction::policy::merge_back::move_back_newest;
use crate::compaction::policy::moves::{self, move_or_merge, small_bytes, take_bytes_max};
use crate::compaction::policy::targets::Targets;
use crate::compaction::policy::{Plan, Policy, Pressure, RangePick, plan, ranges, sentinels};
use crate::compaction::task::{MergeTask, Reason, RotateTask, Task};
use crate::version::shape::{PartKind, RunId, Shape};

/// What is a policy's own, of those whose levels have two parts.
pub(super) trait PartsPolicy: Send + Sync {
    /// Adds what is due, most urgent first.
    fn pick_parts(&self, picker: &mut Picker<'_>);

    /// Bytes that a level below 0 ought to have given to the next one already.
    fn bytes_late(&self, shape: &Shape, targets: &Targets, level: Level) -> u64;

    /// What is wrong with a tree at rest that has the form of all such trees; one sentence each.
    fn check_pace(&self, shape: &Shape, targets: &Targets) -> Vec<String>;
}

/// A policy whose levels have two parts, with all that such policies do alike.
pub(crate) struct OfParts<P>(pub(crate) P);

impl<P: PartsPolicy> Policy for OfParts<P> {
    fn pick(&self, shape: &Shape) -> Vec<Task> {
        let (targets, picks) = (targets_of(shape), Picks::new(shape));
        let mut picker = Picker { shape, targets, picks };
        self.0.pick_parts(&mut picker);
        picker.picks.finish(|| rewrite_deletes_of_last_level(shape))
    }

    fn pick_range(&self, shape: &Shape, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> RangePick {
        ranges::into_last_level(shape, lower, upper)
    }

    fn plan(&self, shape: &Shape, merge: &MergeTask) -> Plan {
        plan::aligned(shape, merge)
    }

    /// Level 0 is drained table by table.
    fn flush_table_bytes(&self, shape: &Shape) -> u64 {
        shape.options.table_bytes
    }

    /// With the part that it drains into: what is flushed next may overlap all of it.
    fn level_0_merge_bytes(&self, shape: &Shape) -> u64 {
        shape.levels[Level::ZERO].bytes()
            + filling_bytes(shape, targets_of(shape).next_level(shape, Level::ZERO))
    }

    fn filter_bits(&self, shape: &Shape, level: Level, entries: u64) -> f32 {
        filter_bits(shape, level, entries)
    }

    fn pressure(&self, shape: &Shape) -> Pressure {
        pressure(shape, |targets, level| self.0.bytes_late(shape, targets, level))
    }

    fn check(&self, shape: &Shape) -> Vec<String> {
        let mut violations = check(shape);
        violations.extend(self.0.check_pace(shape, &targets_of(shape)));
        violations
    }
}

/// Bytes of the smallest base level worth having: a write buffer, which is what level 0 gives at a
/// time, or a leveled tree's smallest base level (which is fed by `l0_trigger` runs at a time)
/// divided by these.
fn unit_bytes(shape: &Shape) -> u64 {
    let sizes = shape.options.compaction.level_sizes();
    let share = sizes.base_level_bytes / sizes.l0_trigger.max(1) as u64;
    shape.options.write_buffer_bytes.max(share).max(1)
}

/// The targets of a tree with parts.
pub(super) fn targets_of(shape: &Shape) -> Targets {
    Targets::of(shape, unit_bytes(shape))
}

/// Whether another policy left several runs in a part of a level below 0.
pub(super) fn has_several(shape: &Shape, level: Level) -> bool {
    let parts = shape.levels[level].parts();
    parts.into_iter().any(|(_, part)| part.runs.len() > 1)
}

/// The state of one `pick`.
pub(super) struct Picker<'a> {
    pub(super) shape: &'a Shape,
    pub(super) targets: Targets,
    picks: Picks<'a>,
}

impl<'a> Picker<'a> {
    /// The level that `level` drains into.
    pub(super) fn next_level(&self, level: Level) -> Level {
        self.targets.next_level(self.shape, level)
    }

    /// Whether a job has a table of this part.
    fn part_is_taken(&self, level: Level, part: PartKind) -> bool {
        let runs = placed(self.shape, level).filter(|place| place.part == part);
        !self.picks.busy().is_empty()
            && runs.flat_map(|place| place.tables()).any(|table| self.picks.is_taken(table.uid))
    }

    /// Whether a job may be bringing tables to `level`: they come from the nearest level above that
    /// has any.
    fn is_being_fed(&self, level: Level) -> bool {
        let above = Level::all().rev().find(|&above| above < level && in_use(self.shape, above));
        let kinds = [PartKind::Filling, PartKind::Draining];
        above.is_some_and(|above| kinds.iter().any(|&part| self.part_is_taken(above, part)))
    }

    /// Rule: a level is rotated when its draining part is empty and nothing is on its way to it.
    /// Not the last level, which has nowhere to drain to, nor level 0.
    pub(super) fn rotate(&mut self, level: Level, reason: Reason) -> bool {
        let parts = &self.shape.levels[level];
        let may = level > Level::ZERO
            && level < Level::LAST
            && parts.draining.is_none()
            && !parts.filling.runs.is_empty()
            && !self.part_is_taken(level, PartKind::Filling)
            && !self.is_being_fed(level);
        if may {
            let inputs = placed(self.shape, level).map(|place| place.whole().slice()).collect();
            self.picks.accept(Task::Rotate(RotateTask { inputs, level, reason }));
        }
        may
    }

    /// Whether nothing stands in the way of a job from this part: one job at a time takes from it,
    /// and none brings tables to a level that is being rotated.
    fn may_take(&self, level: Level, part: PartKind, next: Level) -> bool {
        let rotating = next < Level::LAST && self.part_is_taken(next, PartKind::Filling);
        !rotating && !self.part_is_taken(level, part)
    }

    /// Rule: the first tables of the oldest run of the draining part (in level 0, of all but
    /// sentinels) are merged into the next level's filling part: about `bytes`, but no more than a
    /// job may take.
    pub(super) fn drain(&mut self, level: Level, bytes: u64, reason: Reason) -> bool {
        let part = if level == Level::ZERO { PartKind::Filling } else { PartKind::Draining };
        let next = self.next_level(level);
        let oldest = placed_data(self.shape, level).filter(|place| place.part == part).last();
        let Some(oldest) = oldest.filter(|_| self.may_take(level, part, next)) else {
            return false;
        };
        let source = sentinels::with_older(self.shape, self.first_tables(oldest, bytes));
        self.merge_into(source, next, newest_filling(self.shape, next), reason)
    }

    /// Rule: beyond their cap sentinels go too, as if the oldest of them were what level 0 drains.
    pub(super) fn drain_sentinels(&mut self) -> bool {
        let (shape, level) = (self.shape, Level::ZERO);
        let next = self.next_level(level);
        if shape.sentinel_bytes() <= shape.sentinel_bytes_max
            || !self.may_take(level, PartKind::Filling, next)
        {
            return false;
        }
        let source = sentinels::tables_beyond_cap(shape, self.picks.busy());
        let into = newest_filling(shape, next);
        source.is_some_and(|source| self.merge_into(source, next, into, Reason::LevelBytes))
    }

    /// Rule: the last level gets its one run back. A draining part there, or in level 0, fills
    /// again; of several runs the last but one gives its first tables to the last.
    pub(super) fn unstack_bottom(&mut self) -> bool {
        for level in [Level::ZERO, Level::LAST] {
            if let Some(task) = move_back_newest(self.shape, level) {
                // Whatever runs may be bringing tables to this level.
                if !any_taken(self.shape) && self.picks.is_empty() {
                    self.picks.accept(task);
                }
                return true;
            }
        }
        let runs: Vec<Placed<'_>> = placed(self.shape, Level::LAST).collect();
        let [.., newer, older] = runs[..] else { return false };
        if !newer.is_idle(self.picks.busy()) || !older.is_idle(self.picks.busy()) {
            return true;
        }
        let source = self.first_tables(newer, take_bytes_max(self.shape));
        self.merge_into(vec![source], Level::LAST, Some(older), Reason::Drain);
        true
    }

    /// The first tables of a run: about `bytes`.
    fn first_tables(&self, place: Placed<'a>, bytes: u64) -> Chosen<'a> {
        let within = 0..place.run.tables.len();
        moves::take(self.shape, place, within, bytes, self.picks.busy())
    }

    /// Merges (or moves) `source`, newest first, into the run `into` of the filling part of
    /// `level`, or founds it.
    fn merge_into(
        &mut self,
        mut source: Vec<Chosen<'a>>,
        level: Level,
        into: Option<Placed<'a>>,
        reason: Reason,
    ) -> bool {
        let Some(bounds) = bounds_over(&source) else { return false };
        let Some(newest) = source.first().map(|newest| newest.place.run.epoch) else {
            return false;
        };
        let mut target = into.map(|place| place.over(bounds));
        if let Some(target) = &mut target {
            if let [only] = &mut source[..] {
                self.widen(only, target);
            }
            self.take_small_neighbour(bytes_of(&source), target);
        }
        let output = into.map_or(RunId::filling(level, newest), |place| place.id());
        let target = target.filter(|target| !target.span.is_empty());
        let may_move = target.is_none() && self.may_move(&source, level);
        let chosen: Vec<Chosen<'_>> = source.into_iter().chain(target).collect();
        if self.picks.any_busy(&chosen) || self.picks.conflicts(&chosen, output) {
            return false;
        }
        let inputs = chosen.iter().map(Chosen::slice).collect();
        let merge = MergeTask { inputs, output, cursor: None, reason };
        self.picks.accept(move_or_merge(merge, may_move));
        true
    }

    /// Rule: tables that follow come along if they add no table of the target (LevelDB,
    /// SetupOtherInputs) nor of a sentinel, as long as the job stays bounded.
    fn widen(&self, source: &mut Chosen<'a>, target: &Chosen<'a>) {
        let Some(lower) = target.bounds() else { return };
        let limit = moves::widen_bytes_max(self.shape);
        let mut bytes = source.bytes();
        while let Some(table) = source.place.table(source.span.end) {
            bytes += table.visible_bytes();
            let damaged = self.picks.busy().contains(&table.uid);
            if table.largest.as_slice() > lower.largest || bytes > limit || damaged {
                break;
            }
            let wider = source.place.chosen(source.span.start..source.span.end + 1);
            if !sentinels::along(self.shape, &wider).is_empty() {
                break;
            }
            source.span.end += 1;
        }
    }

    /// Rule: what would become a small table takes the table before it along, or the one after it,
    /// if that is small too.
    fn take_small_neighbour(&self, source_bytes: u64, target: &mut Chosen<'a>) {
        let small = small_bytes(self.shape);
        if source_bytes + target.bytes() >= small {
            return;
        }
        let is_small =
            |index: usize| target.place.table(index).is_some_and(|table| table.bytes < small);
        if target.span.start > 0 && is_small(target.span.start - 1) {
            target.span.start -= 1;
        } else if is_small(target.span.end) {
            target.span.end += 1;
        }
    }

    /// Whether tables that overlap nothing in the target are moved, not rewritten: those of one
    /// run.
    fn may_move(&self, source: &[Chosen<'_>], level: Level) -> bool {
        let bits = |level, entries| filter_bits(self.shape, level, entries);
        matches!(source, [only] if moves::may_move(self.shape, only, level, bits))
    }
}

/// Runs of a level on average: a filling part that grows from nothing, and a draining part that
/// shrinks to nothing.
const RUNS_PER_LEVEL: f64 = 1.5;

/// Filter bits of what a merge writes.
fn filter_bits(shape: &Shape, level: Level, entries: u64) -> f32 {
    filter_bits_of_levels(shape, level, entries, RUNS_PER_LEVEL)
}

// ------------------------------------------------------------------------------------------- costs

/// Bytes that compactions write for a byte that leaves `level`, until it is in the last level. A
/// filling part grows from nothing to `S` while it takes in parts of size `P` from above, so a byte
/// that comes meets (S/P - 1)/2 others on average: (S/P + 1)/2 are written; (r + 1)/2 where each
/// level is `r` times the one above (LSbM §2.2). The last level has all of its `N` bytes all the
/// time: N/P + 1.
pub(super) fn bytes_written_below(shape: &Shape, targets: &Targets, level: Level) -> f64 {
    let mut cost = 0.0;
    let mut above = match targets.bytes[level] {
        // Level 0, or a level that should be empty.
        0 => shape.options.write_buffer_bytes.max(1) as f64,
        target => target as f64,
    };
    for below in level.deeper().filter(|&below| below >= targets.base && below < Level::LAST) {
        let size = targets.bytes[below].max(1) as f64;
        cost += f64::midpoint(size / above, 1.0).max(1.0);
        above = size;
    }
    cost + level_bytes(shape, Level::LAST) as f64 / above + 1.0
}

/// The load of a tree with parts. `bytes_late` says how many bytes a level ought to have given
/// already.
fn pressure(shape: &Shape, bytes_late: impl Fn(&Targets, Level) -> u64) -> Pressure {
    let targets = targets_of(shape);
    let per_flushed_byte = bytes_written_below(shape, &targets, Level::ZERO);
    let l0_trigger = shape.options.compaction.level_sizes().l0_trigger.max(1);
    let batch = shape.options.write_buffer_bytes.saturating_mul(l0_trigger as u64);
    let late = Level::inner().map(|level| {
        bytes_late(&targets, level) as f64 * bytes_written_below(shape, &targets, level)
    });
    let debt = level_bytes(shape, Level::ZERO) as f64 * per_flushed_byte + late.sum::<f64>();
    Pressure {
        l0_runs: shape.l0_flushed_runs(),
        l0_trigger,
        debt_bytes: debt as u64,
        debt_unit_bytes: (batch as f64 * per_flushed_byte) as u64,
    }
}

// ------------------------------------------------------------------------------------------- form

/// What a tree with parts promises at rest: at most one run in a part below level 0, no draining
/// part in level 0 and the last, nothing above the base level, sentinels within their cap.
fn check(shape: &Shape) -> Vec<String> {
    let mut violations: Vec<String> = sentinels::check(shape).into_iter().collect();
    let base = targets_of(shape).base;
    for (level, parts) in shape.levels.iter() {
        let edge = level == Level::ZERO || level == Level::LAST;
        if edge && parts.draining.is_some() {
            violations.push(format!("level {level} has a draining part"));
        }
        for (kind, part) in parts.parts().filter(|_| level > Level::ZERO) {
            if part.runs.len() > 1 {
                let count = part.runs.len();
                violations.push(format!("level {level} has {count} {kind:?} runs, not one"));
            }
        }
        if level > Level::ZERO && level < base && !parts.is_empty() {
            violations.push(format!("level {level} has tables above the base level {base}"));
        }
    }
    violations
}
