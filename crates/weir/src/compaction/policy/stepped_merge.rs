//! `stepped_merge`: a full level is merged as a whole and appended to the next; the last level
//! piles up until it is full and is then merged in place.
//!
//! Source: the SM-tree as LSbM describes and measures it (§2.3, Fig. 7; §6.4 on its size), after
//! Jagadish et al., VLDB 1997. Each byte is written once per level, data of a level is not sorted
//! among its runs, and overwritten entries of the last level leave only when it is full. We differ:
//! * A level is full with its T-th run (`runs_per_level`; the paper's r), not by bytes: runs of one
//!   level are alike in size, and small flushes do not count as large ones.
//! * The paper's tree has k levels with fixed sizes. Here the deepest level in use is the last one.
//!   When the run that a merge in place left is as large as a whole level of what comes from above,
//!   it moves down, without being rewritten, and the level piles up anew: that is how a growing
//!   store gets its levels.
//!
//! Not here: the rules of merges of whole runs (`runs`).
//!
//! Invariants: those of `runs`, and (1) one job at a time takes from a level.

use crate::base::ids::Level;
use crate::compaction::policy::geometry::{Placed, level_bytes, placed, placed_data};
use crate::compaction::policy::runs::{self, Picker, RunsPolicy};
use crate::compaction::task::{MoveTask, Reason, Task};
use crate::version::shape::{RunId, Shape};

/// The stepped-merge policy.
pub(crate) struct SteppedMerge;

impl RunsPolicy for SteppedMerge {
    fn pick_runs(&self, shape: &Shape, picker: &mut Picker<'_>) {
        let last = runs::deepest_in_use(shape).map_or(Level::ONE, |level| level.max(Level::ONE));
        for level in runs::full_levels(shape) {
            pick_level(shape, level, last, picker);
        }
    }

    fn check_form(&self, shape: &Shape) -> Vec<String> {
        runs::check_counts(shape, Level::all())
    }
}

/// Rule: all runs of a full level become one run of the next; those of the last level become one in
/// their place.
fn pick_level(shape: &Shape, level: Level, last: Level, picker: &mut Picker<'_>) {
    let all: Vec<Placed<'_>> = placed_data(shape, level).collect();
    if level == last {
        picker.merge(&all, level, Reason::RunCount);
        return;
    }
    let output_level = runs::append_level(shape, level);
    if output_level == last && level.next() == Some(output_level) {
        make_room(shape, level, last, picker);
    }
    picker.merge(&all, output_level, Reason::RunCount);
}

/// Rule: the only run of the last level goes one level deeper when it is as large as a whole level
/// of the batch that is about to be appended.
fn make_room(shape: &Shape, level: Level, last: Level, picker: &mut Picker<'_>) {
    let mut runs_of_last = placed(shape, last);
    let (Some(only), None) = (runs_of_last.next(), runs_of_last.next()) else { return };
    let level_full = level_bytes(shape, level).saturating_mul(runs::runs_max(shape) as u64);
    let Some(deeper) = last.next() else { return };
    if !runs::is_as_large(only.bytes(), level_full) {
        return;
    }
    if picker.are_idle(&[only]) {
        picker.accept(Task::Move(MoveTask {
            input: only.whole().slice(),
            output: RunId::filling(deeper, only.run.epoch),
            cursor: None,
            reason: Reason::LevelBytes,
        }));
    }
}
