//! The commands that a policy gives and the executor obeys. There are no others.
//!
//! A task names whole tables by uid. It is valid for the shape that it was picked from for as long
//! as none of its tables is an input of another job; the executor checks that they still exist.
//! Reserved for later policies, coded when used: rotate (filling to draining), trim a buffer list,
//! build a sentinel.

use std::fmt;

/// Why a task was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Level 0 has as many runs as its trigger allows.
    RunCount,
    /// A level holds more bytes than its target.
    LevelBytes,
    /// A level above the base level holds tables: left by another policy, or the tree shrank.
    Drain,
    /// A table of the last level is mostly deletes that hide nothing any more.
    Deletes,
    /// A user asked for it.
    Manual,
}

impl Cause {
    /// The name that people see.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RunCount => "run-count",
            Self::LevelBytes => "level-bytes",
            Self::Drain => "drain",
            Self::Deletes => "deletes",
            Self::Manual => "manual",
        }
    }
}

/// Some tables of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The level of the run.
    pub(crate) level: usize,
    /// The data epoch of the run.
    pub(crate) epoch: u64,
    /// The tables, in key order.
    pub(crate) uids: Vec<u64>,
}

/// Where the next pick in a level starts: a field of the version, set by the task's edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CursorMove {
    /// The level that was picked from.
    pub(crate) level: usize,
    /// The largest key that was picked there.
    pub(crate) key: Vec<u8>,
}

/// Merge tables into one level, dropping what no reader can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    /// The inputs, newest run first. Tables of the output level are inputs too.
    pub(crate) inputs: Vec<Slice>,
    /// The level of the outputs; no input lies deeper.
    pub(crate) output_level: usize,
    /// The data epoch of the run of that level that the outputs join or found.
    pub(crate) output_epoch: u64,
    /// The cursor to set when the merge is installed.
    pub(crate) cursor: Option<CursorMove>,
    /// Why.
    pub(crate) cause: Cause,
}

/// Give tables another level without touching their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// The tables and where they are.
    pub(crate) input: Slice,
    /// Where they go.
    pub(crate) output_level: usize,
    /// The data epoch of the run of that level that they join or found.
    pub(crate) output_epoch: u64,
    /// The cursor to set when the move is installed.
    pub(crate) cursor: Option<CursorMove>,
    /// Why.
    pub(crate) cause: Cause,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Merge tables into one level.
    Merge(Merge),
    /// Move tables down one or more levels.
    Move(Move),
}

impl Task {
    /// The tables that the task takes away, run by run.
    pub(crate) fn inputs(&self) -> &[Slice] {
        match self {
            Self::Merge(merge) => &merge.inputs,
            Self::Move(moved) => std::slice::from_ref(&moved.input),
        }
    }

    /// The uids of the tables that the task takes away.
    pub(crate) fn input_uids(&self) -> impl Iterator<Item = u64> + '_ {
        self.inputs().iter().flat_map(|slice| slice.uids.iter().copied())
    }

    /// The level that the outputs go to.
    pub(crate) fn output_level(&self) -> usize {
        match self {
            Self::Merge(merge) => merge.output_level,
            Self::Move(moved) => moved.output_level,
        }
    }

    /// Why it was picked.
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Merge(merge) => merge.cause,
            Self::Move(moved) => moved.cause,
        }
    }
}

impl fmt::Display for Task {
    /// One line, as the text cases and `inspect` show it:
    /// `merge L0/9:{31,32} L6/4:{7} -> L6 (run-count)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Merge(_)) { "merge" } else { "move" })?;
        for slice in self.inputs() {
            write!(f, " L{}/{}:{{", slice.level, slice.epoch)?;
            for (i, uid) in slice.uids.iter().enumerate() {
                write!(f, "{}{uid}", if i == 0 { "" } else { "," })?;
            }
            f.write_str("}")?;
        }
        write!(f, " -> L{} ({})", self.output_level(), self.cause().name())
    }
}
