//! What every policy is: pure decisions on a shape. A policy never moves data and has no fields.
//!
//! | file | what it says |
//! |---|---|
//! | `geometry` | what lies where, and over what |
//! | `conflicts` | what running jobs hold, and what may not be picked beside them |
//! | `moves`, `deletes` | how much a job takes, what is moved, what is rewritten for its deletes |
//! | `plan`, `cut`, `odd_chunk` | where outputs end, and where the last one goes |
//! | `targets`, `scores` | how large each level should be, and which one works next |
//! | `filters` | how many filter bits a run gets |
//! | `sentinels` | what sentinel runs go along with, and when they go by themselves |
//! | `merge_back`, `ranges` | the way back from parts; a range that a user asks for |
//! | `parts` | all that `gear` and `two_phase` do alike (`OfParts`): levels of two parts |
//! | `runs` | the same (`OfRuns`) of `tiered`, `lazy_leveled`, `size_tiered`, `stepped_merge` |
//!
//! A policy imports these, and no other policy.
//!
//! Not here: the data (`execute`), the delay of writers (`pacing` turns [`Pressure`] into one).
//!
//! Invariants: (1) the tasks of one `pick` share no table with each other nor with a busy one, and
//! conflict neither with each other nor with a running job whose edit is not installed
//! (`conflicts`); (2) installing a task's result never puts an older entry of a key above a newer
//! one (H23, H40); (3) after finitely many picks on a tree without writes, `pick` returns nothing.

use std::ops::Bound;

use crate::base::ids::Level;
use crate::compaction::task::{MergeTask, Task};
use crate::version::shape::Shape;

#[cfg(test)]
pub(crate) mod cases;
mod conflicts;
pub(crate) mod cut;
mod deletes;
pub(crate) mod fewer_runs;
mod filters;
pub(crate) mod gear;
mod geometry;
pub(crate) mod lazy_leveled;
pub(crate) mod leveled;
mod merge_back;
mod moves;
mod odd_chunk;
#[cfg(test)]
mod part_policies;
pub(crate) mod parts;
mod plan;
mod ranges;
#[cfg(test)]
mod run_policies;
pub(crate) mod runs;
mod scores;
pub(crate) mod sentinel_task;
mod sentinels;
#[cfg(test)]
mod simulation;
pub(crate) mod size_tiered;
pub(crate) mod stepped_merge;
mod targets;
pub(crate) mod tiered;
pub(crate) mod two_phase;

pub(crate) use conflicts::running_job;
pub(crate) use plan::{Below, Plan};

/// Where a flushed run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The level. Its runs stay newest first by data epoch, which is drawn at the memtable's
    /// freeze.
    pub(crate) level: Level,
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
    /// Runs in level 0, without sentinels.
    pub(crate) l0_runs: usize,
    /// So many of them start a compaction; at least 1.
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
    /// A task after which reads between two keys open fewer runs, not due by itself: what lies
    /// there in the uppermost level goes to the next one. As it stands none.
    fn pick_hot(&self, _: &Shape, _lower: Bound<&[u8]>, _upper: Bound<&[u8]>) -> Option<Task> {
        None
    }
    /// How the outputs of `merge` are made.
    fn plan(&self, shape: &Shape, merge: &MergeTask) -> Plan;
    /// Where the run of a flush goes. Level 0 as it stands: a merge in flight may be older than the
    /// flush, and only level 0 orders overlapping runs by age alone.
    fn place_flush(&self, _shape: &Shape) -> Placement {
        Placement { level: Level::ZERO }
    }
    /// Bytes at which the run of a flush is cut into tables. As it stands a run is one table,
    /// unless its memtable was much larger than it should have been.
    fn flush_table_bytes(&self, shape: &Shape) -> u64 {
        shape.options.table_bytes.max(shape.options.write_buffer_bytes.saturating_mul(2))
    }
    /// Bytes that the next merge of level 0 may read, whether or not it is due yet, without what is
    /// flushed meanwhile. As it stands its runs alone, sentinels among them: they may come along.
    fn level_0_merge_bytes(&self, shape: &Shape) -> u64 {
        shape.levels[Level::ZERO].bytes()
    }
    /// Bits per key of the filter of a table with `entries` entries on `level`; 0: no filter.
    fn filter_bits(&self, shape: &Shape, level: Level, entries: u64) -> f32;
    /// How far the tree is from its form.
    fn pressure(&self, shape: &Shape) -> Pressure;
    /// What is wrong with the form of a tree at rest, by the promises of this policy; one sentence
    /// each. A tree that `pick` still has tasks for (another policy may have left it) need not be
    /// in form.
    fn check(&self, shape: &Shape) -> Vec<String>;
}
