//! `two_phase`: a level receives into one part and gives from the other, when it has too much.
//!
//! Source: dLSM §IV-A. The insertion part of a level grows from nothing to the level's size while
//! the deletion part shrinks from that to nothing, in key order; then they change roles. So a block
//! from above meets half a level on average instead of a whole one. Which level works next is
//! LevelDB's decision, by score: sizes float, and writers wait for level 0 only. The last level is
//! one run. We differ: levels are numbered from the bottom (`targets`), and level 0 drains its
//! oldest flushed run (`parts`). The paper compares with levels that are evenly full, (r + 1) bytes
//! per byte moved; a leveled tree with a round-robin cursor takes from where a level has filled
//! longest, twice as dense as its average, and writes about as little (`part_policies`).
//!
//! Not here: tables and runs (`parts`), pacing between levels (`gear`).
//!
//! Invariants: those of `parts`.

use std::ops::Bound;

use crate::compaction::policy::parts::{self, Picker, draining_bytes};
use crate::compaction::policy::targets::{BOTTOM, Targets, level_bytes};
use crate::compaction::policy::{Plan, Policy, Pressure, RangePick, leveled, rewrite_deletes};
use crate::compaction::task::{Cause, MergeTask, Task};
use crate::version::shape::Shape;

/// The two-phase policy.
pub(crate) struct TwoPhase;

impl Policy for TwoPhase {
    /// The rules: rotations, which cost nothing; the form of the last level; then what drains, the
    /// highest score first.
    fn pick(&self, shape: &Shape) -> Vec<Task> {
        let mut picker = Picker::new(shape);
        let candidates = candidates(shape, &picker.targets);
        for work in candidates.iter().filter(|work| work.level > 0) {
            if draining_bytes(shape, work.level).is_none() {
                picker.rotate(work.level, work.cause);
            }
        }
        picker.unstack_bottom();
        for work in &candidates {
            picker.drain(work.level, work.excess, work.cause);
        }
        if picker.tasks.is_empty() && shape.busy.is_empty() {
            picker.tasks.extend(rewrite_deletes(shape).map(Task::Merge));
        }
        picker.tasks
    }

    fn pick_range(&self, shape: &Shape, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> RangePick {
        parts::pick_range(shape, lower, upper)
    }

    fn plan(&self, shape: &Shape, merge: &MergeTask) -> Plan {
        leveled::plan(shape, merge)
    }

    /// Level 0 is drained table by table.
    fn flush_table_bytes(&self, shape: &Shape) -> u64 {
        shape.options.table_bytes
    }

    fn level_0_merge_bytes(&self, shape: &Shape) -> u64 {
        parts::level_0_merge_bytes(shape)
    }

    fn filter_bits(&self, shape: &Shape, level: usize, entries: u64) -> f32 {
        parts::filter_bits(shape, level, entries)
    }

    fn pressure(&self, shape: &Shape) -> Pressure {
        parts::pressure(shape, |targets, level| {
            level_bytes(shape, level).saturating_sub(targets.bytes[level])
        })
    }

    fn check(&self, shape: &Shape) -> Vec<String> {
        let mut violations = parts::check(shape);
        let targets = parts::targets_of(shape);
        let left = candidates(shape, &targets);
        violations.extend(left.iter().map(|work| {
            format!(
                "level {} has {} bytes too many ({})",
                work.level,
                work.excess,
                work.cause.name()
            )
        }));
        violations
    }
}

/// A level that has work.
struct Work {
    level: usize,
    score: f64,
    excess: u64,
    cause: Cause,
}

/// The levels that have work, most urgent first.
fn candidates(shape: &Shape, targets: &Targets) -> Vec<Work> {
    let mut found: Vec<Work> = (0..BOTTOM).filter_map(|l| candidate(shape, targets, l)).collect();
    // Stable: of equal scores the upper level goes first.
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found
}

/// Rule: level 0 works from `l0_trigger` runs on, every other level when both parts together hold
/// more than its target; all of it has to go above the base level, and where another policy left
/// several runs in a part.
fn candidate(shape: &Shape, targets: &Targets, level: usize) -> Option<Work> {
    if level == 0 {
        let score = shape.l0_flushed_runs() as f64 / shape.options.l0_trigger.max(1) as f64;
        let (excess, cause) = (parts::drain_bytes_max(shape), Cause::RunCount);
        return (score >= 1.0).then_some(Work { level, score, excess, cause });
    }
    let bytes = level_bytes(shape, level);
    let target = targets.bytes[level];
    if bytes > 0 && (target == 0 || parts::has_several(shape, level)) {
        return Some(Work { level, score: 1.0, excess: bytes, cause: Cause::Drain });
    }
    let excess = bytes.saturating_sub(target);
    let score = bytes as f64 / target as f64;
    (excess > 0).then_some(Work { level, score, excess, cause: Cause::LevelBytes })
}
