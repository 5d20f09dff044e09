//! `tiered`: every level collects runs; a full level becomes one run of the next.
//!
//! Source: Merfeld and Karatsiolis, §3 (the disk tree as a list of levels of runs); Monkey (Dayan
//! et al., SIGMOD 2017), §2 "tiering". An entry is written once per level. We differ:
//! * A level is full with its T-th run (`runs_per_level`), so a tree at rest has T - 1 a level.
//! * A new level is opened below the last one as long as there are levels; the very last is merged
//!   in place.
//! * What lies below a full level comes along if it is smaller than the batch. With unique keys
//!   that never happens. When the same keys are written again and again, the last levels stop
//!   growing, and a run for every one of them would be that many copies of the data.
//! * A tree with a gap (left by another policy) is closed: see [`runs::append_level`].
//!
//! Not here: the rules of merges of whole runs (`runs`), the filters' bits (`filter::monkey`).
//!
//! Invariants: those of `runs`, and (1) one job at a time takes from a level, while jobs of other
//! levels run beside it and bring new runs to it.

use crate::base::ids::Level;
use crate::compaction::policy::geometry::{Placed, level_bytes, placed, placed_data};
use crate::compaction::policy::runs::{self, Picker, RunsPolicy};
use crate::compaction::task::Reason;
use crate::version::shape::Shape;

/// The tiered policy.
pub(crate) struct Tiered;

impl RunsPolicy for Tiered {
    fn pick_runs(&self, shape: &Shape, picker: &mut Picker<'_>) {
        for level in runs::full_levels(shape) {
            pick_level(shape, level, picker);
        }
    }

    fn check_form(&self, shape: &Shape) -> Vec<String> {
        runs::check_counts(shape, Level::all())
    }
}

/// Rule: all runs of a full level become one run of the next, or with all that lies below one run
/// of the deepest level, if that is less than the level has.
fn pick_level(shape: &Shape, level: Level, picker: &mut Picker<'_>) {
    let deeper: Vec<Placed<'_>> = level.deeper().flat_map(|deeper| placed(shape, deeper)).collect();
    let deeper_bytes: u64 = deeper.iter().map(Placed::bytes).sum();
    let is_small = !runs::is_as_large(deeper_bytes, level_bytes(shape, level));
    if let Some(last) = deeper.last()
        && is_small
        && picker.merge(&runs::runs_from(shape, level), last.level, Reason::RunCount)
    {
        return;
    }
    let all: Vec<Placed<'_>> = placed_data(shape, level).collect();
    let output_level =
        if level == Level::LAST { Level::LAST } else { runs::append_level(shape, level) };
    picker.merge(&all, output_level, Reason::RunCount);
}
