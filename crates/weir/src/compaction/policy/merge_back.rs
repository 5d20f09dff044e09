//! The way back from parts: what a policy without them does with a tree of `gear` or `two_phase`.
//!
//! The runs of a draining part move to the filling part as they are, the newest first. The order of
//! reading stays, because everything in the filling part is newer. Where a run there has the same
//! or an older data epoch (a merge's outputs carry that of its newest input, and a run drained into
//! two rounds of the next level gives its epoch to both), the moved run gets the epoch below:
//! within a level an epoch only orders. Damaged tables move too: a move reads nothing. Sentinel
//! runs are in the filling part of level 0, newer than all that moves there, and stay as they are.

use crate::base::ids::{DataEpoch, Level};
use crate::compaction::policy::RangePick;
use crate::compaction::policy::conflicts::any_taken;
use crate::compaction::policy::geometry::{filling_runs, newest_epoch, placed};
use crate::compaction::task::{MergeTask, MoveTask, Reason, Task};
use crate::version::shape::{PartKind, RunId, Shape};

/// Moves draining runs back to the filling part. `None`: no level is draining. Otherwise nothing
/// else may run now; `Some` of nothing: blocked by running jobs.
pub(super) fn merge_parts_back(shape: &Shape) -> Option<Vec<Task>> {
    if shape.levels.values().all(|level| level.draining.is_none()) {
        return None;
    }
    if any_taken(shape) {
        return Some(Vec::new());
    }
    Some(Level::all().filter_map(|level| move_back_newest(shape, level)).collect())
}

/// The same as the next step of a range that a user asked for.
pub(super) fn merge_back_first(shape: &Shape) -> Option<RangePick> {
    let tasks = merge_parts_back(shape)?;
    Some(tasks.into_iter().next().map_or(RangePick::Wait, RangePick::Task))
}

/// The move of the newest draining run of a level: the others must not pass it.
pub(super) fn move_back_newest(shape: &Shape, level: Level) -> Option<Task> {
    let draining = placed(shape, level).find(|place| place.part == PartKind::Draining)?;
    let oldest_filling = filling_runs(shape, level).last().map(|run| run.epoch);
    let Some(below_filling) = oldest_filling.unwrap_or(DataEpoch::MAX).previous() else {
        return Some(Task::Merge(merge_level(shape, level)));
    };
    Some(Task::Move(MoveTask {
        input: draining.whole().slice(),
        output: RunId::filling(level, below_filling.min(draining.run.epoch)),
        cursor: None,
        reason: Reason::Drain,
    }))
}

/// Where epochs leave no room: both parts of a level become one run.
fn merge_level(shape: &Shape, level: Level) -> MergeTask {
    let inputs: Vec<_> = placed(shape, level).map(|place| place.whole().slice()).collect();
    let output = RunId::filling(level, newest_epoch(&inputs));
    MergeTask { inputs, output, cursor: None, reason: Reason::Drain }
}
