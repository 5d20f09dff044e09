//! Tasks: all that a policy can ask the executor to do (merge, move, rotate, build a sentinel).
//!
//! A task names whole tables by uid. It stays valid while no other job takes one of its tables as
//! an input or conflicts with it (`JobFootprint::conflicts_with`); the executor checks that the
//! tables still exist.
//! Not here: trims of buffer lists, which take no inputs (`compaction::buffer`).

use std::fmt;

use crate::base::ids::{Level, TableUid};
use crate::base::interval::Interval;
use crate::version::shape::{PartKind, RunId};

/// Why a task was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The number of runs of level 0 reached its trigger.
    RunCount,
    /// A level holds more bytes than its target, or sentinel runs more than they may.
    LevelBytes,
    /// A level above the base level holds tables: of an earlier policy, or the tree shrank.
    Drain,
    /// A table of the last level is mostly deletes (tombstones) with nothing below to hide.
    Deletes,
    /// The user requested it (`compact_range`).
    Manual,
    /// Many reads open several runs in its range.
    Reads,
}

impl Reason {
    /// The name in messages and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RunCount => "run-count",
            Self::LevelBytes => "level-bytes",
            Self::Drain => "drain",
            Self::Deletes => "deletes",
            Self::Manual => "manual",
            Self::Reads => "reads",
        }
    }
}

/// Some tables of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunSlice {
    /// The run.
    pub(crate) run: RunId,
    /// The tables, in key order.
    pub(crate) uids: Vec<TableUid>,
}

/// Where the next pick in a level starts, round robin: a field of the version, set by the task's
/// edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CursorMove {
    /// The level that was picked from.
    pub(crate) level: Level,
    /// The largest key of the tables picked there.
    pub(crate) key: Vec<u8>,
}

/// Merge tables into one level, dropping entries that no reader can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MergeTask {
    /// The inputs, newest run first, tables of the output level included.
    pub(crate) inputs: Vec<RunSlice>,
    /// The run of the outputs, existing or new; no input is below it.
    pub(crate) output: RunId,
    /// The cursor to set when the merge is installed.
    pub(crate) cursor: Option<CursorMove>,
    /// Why.
    pub(crate) reason: Reason,
}

/// A trivial move: give tables another part or level without rewriting them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MoveTask {
    /// The tables and their run.
    pub(crate) input: RunSlice,
    /// Their new run, existing or created by the move.
    pub(crate) output: RunId,
    /// The cursor to set when the move is installed.
    pub(crate) cursor: Option<CursorMove>,
    /// Why.
    pub(crate) reason: Reason,
}

/// Make the filling part of a level its draining part. Requires: the level has no draining part and
/// is not the output level of a running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RotateTask {
    /// All tables of the filling part, newest run first: reserved against other jobs.
    pub(crate) inputs: Vec<RunSlice>,
    /// The level.
    pub(crate) level: Level,
    /// Why.
    pub(crate) reason: Reason,
}

/// Build a sentinel: merge what all runs older than it hold of an interval, to the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentinelTask {
    /// The tables that overlap the interval, of every run that is older than the output; the
    /// output is a sentinel run of level 0, and above its inputs.
    pub(crate) merge: MergeTask,
    /// What it will claim.
    pub(crate) interval: Interval,
}

/// One task of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Merge tables into one level.
    Merge(MergeTask),
    /// Move tables to another part or level.
    Move(MoveTask),
    /// Make the filling part of a level its draining part.
    Rotate(RotateTask),
    /// Build a sentinel.
    Sentinel(SentinelTask),
}

impl Task {
    /// The input tables, run by run.
    pub(crate) fn inputs(&self) -> &[RunSlice] {
        match self {
            Self::Merge(merge) | Self::Sentinel(SentinelTask { merge, .. }) => &merge.inputs,
            Self::Move(moved) => std::slice::from_ref(&moved.input),
            Self::Rotate(rotate) => &rotate.inputs,
        }
    }

    /// The uids of the input tables.
    pub(crate) fn input_uids(&self) -> impl Iterator<Item = TableUid> + '_ {
        self.inputs().iter().flat_map(|slice| slice.uids.iter().copied())
    }

    /// The run of the outputs, existing or new; a rotation has none.
    pub(crate) fn output(&self) -> Option<RunId> {
        match self {
            Self::Merge(merge) | Self::Sentinel(SentinelTask { merge, .. }) => Some(merge.output),
            Self::Move(moved) => Some(moved.output),
            Self::Rotate(_) => None,
        }
    }

    /// The level and part of the outputs.
    fn target(&self) -> (Level, PartKind) {
        match self {
            Self::Merge(MergeTask { output, .. })
            | Self::Sentinel(SentinelTask { merge: MergeTask { output, .. }, .. })
            | Self::Move(MoveTask { output, .. }) => (output.level, output.part),
            Self::Rotate(rotate) => (rotate.level, PartKind::Draining),
        }
    }

    /// The cursor that the task's edit sets.
    #[cfg(test)]
    pub(crate) fn cursor(&self) -> Option<&CursorMove> {
        match self {
            Self::Merge(merge) => merge.cursor.as_ref(),
            Self::Move(moved) => moved.cursor.as_ref(),
            Self::Rotate(_) | Self::Sentinel(_) => None,
        }
    }

    /// Why it was picked.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Merge(merge) | Self::Sentinel(SentinelTask { merge, .. }) => merge.reason,
            Self::Move(moved) => moved.reason,
            Self::Rotate(rotate) => rotate.reason,
        }
    }
}

impl fmt::Display for Task {
    /// One line, as in text cases and `inspect`: `merge L0/9:{31,32} L6/4:{7} -> L6 (run-count)`.
    /// A prime marks the draining part: `L5'`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Merge(_) => "merge",
            Self::Move(_) => "move",
            Self::Rotate(_) => "rotate",
            Self::Sentinel(_) => "sentinel",
        })?;
        for slice in self.inputs() {
            write!(f, " {}/{}:{{", PartName(slice.run.level, slice.run.part), slice.run.epoch)?;
            for (i, uid) in slice.uids.iter().enumerate() {
                write!(f, "{}{uid}", if i == 0 { "" } else { "," })?;
            }
            f.write_str("}")?;
        }
        let (level, part) = self.target();
        write!(f, " -> {} ({})", PartName(level, part), self.reason().name())
    }
}

/// Displays a part of a level: `L5` is the filling part, `L5'` the draining one.
pub(crate) struct PartName(pub(crate) Level, pub(crate) PartKind);

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}{}", self.0, if self.1 == PartKind::Draining { "'" } else { "" })
    }
}
