//! `lazy_leveled`: tiered above, one run in the last level.
//!
//! Source: Dostoevsky (Dayan and Idreos, SIGMOD 2018), §3 "lazy leveling": nearly all data is in
//! the last level, so keeping only that one merged gives point reads and space of a leveled tree,
//! and the levels above cost one write each. We differ: the last level is always the bottom of the
//! tree, and how many levels lie above it follows from its size: a full level goes there if it has
//! about a T-th of its bytes (T is `runs_per_level`), and otherwise becomes a run of the next
//! level. About, as wherever sizes are compared (`runs`): runs that overwrite each other are a
//! little smaller than what was flushed, and a level more would collect as much as the last one
//! has. So the last level is rewritten once per 3/4 of a T-th of itself, or less often.
//!
//! Not here: the rules of merges of whole runs (`runs`).
//!
//! Invariants: those of `runs`, and (1) one job at a time takes from a level; (2) what goes to the
//! last level takes everything between along.

use crate::base::ids::Level;
use crate::compaction::policy::filters::TreeForm;
use crate::compaction::policy::geometry::{Placed, filling_runs, level_bytes, placed, placed_data};
use crate::compaction::policy::runs::{self, Picker, RunsPolicy};
use crate::compaction::task::Reason;
use crate::version::shape::Shape;

/// The lazy-leveled policy.
pub(crate) struct LazyLeveled;

impl RunsPolicy for LazyLeveled {
    /// The rules, most urgent first.
    fn pick_runs(&self, shape: &Shape, picker: &mut Picker<'_>) {
        for level in runs::full_levels(shape).into_iter().filter(|&level| level < Level::LAST) {
            pick_level(shape, level, picker);
        }
        pick_last(shape, picker);
    }

    /// At rest a level above the last has none to `t` - 1 runs: half of them on average.
    fn form(&self, t: f64) -> TreeForm {
        TreeForm { ratio: t, above: (t - 1.0) / 2.0, last: 1.0 }
    }

    fn check_form(&self, shape: &Shape) -> Vec<String> {
        let mut violations =
            runs::check_counts(shape, Level::all().filter(|&level| level < Level::LAST));
        let count = filling_runs(shape, Level::LAST).len();
        if count > 1 {
            violations.push(format!("the last level has {count} runs; lazy_leveled keeps one"));
        }
        violations
    }
}

/// Rule: a full level is merged into the run of the last level if it has about a T-th of its bytes,
/// with all that lies between; otherwise it becomes one run of the next level.
fn pick_level(shape: &Shape, level: Level, picker: &mut Picker<'_>) {
    let next = runs::append_level(shape, level);
    let full = level_bytes(shape, level).saturating_mul(runs::runs_max(shape) as u64);
    if next == Level::LAST || runs::is_as_large(full, level_bytes(shape, Level::LAST)) {
        picker.merge(&runs::runs_from(shape, level), Level::LAST, Reason::RunCount);
        return;
    }
    let all: Vec<Placed<'_>> = placed_data(shape, level).collect();
    picker.merge(&all, next, Reason::RunCount);
}

/// Rule: runs that another policy left in the last level become one.
fn pick_last(shape: &Shape, picker: &mut Picker<'_>) {
    let last: Vec<Placed<'_>> = placed(shape, Level::LAST).collect();
    if last.len() > 1 {
        picker.merge(&last, Level::LAST, Reason::Drain);
    }
}
