//! `size_tiered`: neighbours in age of similar size are merged.
//!
//! Source: LDS §4.2.5 (stages; four tables of a stage become a larger one of the next), Bigtable,
//! Cassandra's `SizeTieredCompactionStrategy` (buckets from 0.5 to 1.5 of the average). We differ:
//! * Only neighbours in age are merged (H48): reads stop at the first run that has the key, so a
//!   run must not be newer than another in one key and older in the next. A smaller run that lies
//!   between similar ones comes along.
//! * The stage is the level: the output goes one level deeper than its oldest input, as long as no
//!   older run lies above that. Sizes decide, not levels, so any tree will do. An output that
//!   stayed in level 0, because a job had taken an older run there, moves to level 1 before
//!   something else stays for its sake, and what was merged is not merged again into level 0, but
//!   with all that is older there, or later: such merges are not done in stretches, so that all
//!   they need has to be free at once.
//! * The number of runs is bounded: beyond [`runs_cap`], the cheapest neighbours are merged
//!   whatever their sizes, so that reads stay bounded when sizes never match.
//!
//! Not here: the rules of merges of whole runs (`runs`).
//!
//! Invariants: those of `runs`, and (1) beside a running merge others start on both sides of it.

use std::ops::Range;

use crate::base::ids::Level;
use crate::base::limits::LEVELS;
use crate::compaction::policy::geometry::{Placed, placed_data};
use crate::compaction::policy::runs::{self, Picker, RunsPolicy};
use crate::compaction::policy::{L0_SLACK, Pressure, sentinels};
use crate::compaction::task::Reason;
use crate::version::shape::Shape;

/// Most runs that one merge takes for their sizes (Cassandra's `max_threshold`).
const INPUTS_MAX: usize = 32;

/// A run is similar to others from this many percent of their average on, to that many.
const SIMILAR_PERCENT_MIN: u64 = 50;
const SIMILAR_PERCENT_MAX: u64 = 150;

/// The size-tiered policy.
pub(crate) struct SizeTiered;

impl RunsPolicy for SizeTiered {
    fn pick_runs(&self, shape: &Shape, picker: &mut Picker<'_>) {
        let order = runs::runs_from(shape, Level::ZERO);
        pick_similar(shape, &order, picker);
        if picker.is_empty() {
            pick_cheapest(shape, &order, picker);
        }
    }

    /// All runs count, in whatever level: writers are slowed from about [`runs_cap`] on.
    fn load(&self, shape: &Shape) -> Pressure {
        let l0_trigger = runs_cap(shape).div_ceil(L0_SLACK);
        Pressure { l0_runs: runs::count_all(shape), l0_trigger, ..Pressure::default() }
    }

    /// What the next flush makes due, of runs that are similar to it: fewer than make a merge, or
    /// that is due already. Level 0 may have larger ones, which stay there for an older one's sake.
    fn level_0_merge_bytes(&self, shape: &Shape) -> u64 {
        let large = large_bytes(shape);
        let newest = placed_data(shape, Level::ZERO).take(runs::runs_max(shape));
        newest
            .map(|run| run.bytes())
            .take_while(|&bytes| bytes <= large)
            .fold(0, u64::saturating_add)
    }

    fn check_form(&self, shape: &Shape) -> Vec<String> {
        let (count, cap) = (runs::count_all(shape), runs_cap(shape));
        let too_many = format!("the tree has {count} runs; size_tiered keeps at most {cap}");
        (count > cap).then_some(too_many).into_iter().collect()
    }
}

/// A run of more bytes was merged: no flush writes one.
fn large_bytes(shape: &Shape) -> u64 {
    shape.options.write_buffer_bytes.saturating_mul(2)
}

/// Rule: the oldest run of level 0, if it was merged, goes to level 1 without being rewritten.
/// Whether it does.
fn move_down(shape: &Shape, picker: &mut Picker<'_>) -> bool {
    let oldest = placed_data(shape, Level::ZERO).last();
    let merged = oldest.filter(|run| run.bytes() > large_bytes(shape));
    merged.is_some_and(|run| picker.move_to(run, Level::ONE, Reason::RunCount))
}

/// Most runs of a tree at rest: a full level for each level that there is.
fn runs_cap(shape: &Shape) -> usize {
    runs::runs_max(shape) * LEVELS
}

/// Rule: where runs of similar size lie side by side, at least `runs_per_level` of them, the
/// longest such stretch is merged, beginning with the newest.
fn pick_similar(shape: &Shape, order: &[Placed<'_>], picker: &mut Picker<'_>) {
    let mut start = 0;
    while start < order.len() {
        let ends =
            (start + 1..=order.len().min(start + INPUTS_MAX.max(runs::runs_max(shape)))).rev();
        let found = ends.map(|end| start..end).find(|window| {
            is_similar(order.get(window.clone()).unwrap_or_default(), runs::runs_max(shape))
                && merge_window(shape, order, window, picker)
        });
        start = found.map_or(start + 1, |window| window.end);
    }
}

/// Whether at least `count` of these runs are similar to their average and none is larger.
fn is_similar(window: &[Placed<'_>], count: usize) -> bool {
    if window.len() < count {
        return false;
    }
    // In percent of a run, times the number of runs, so that nothing is divided.
    let total: u128 = window.iter().map(|run| u128::from(run.bytes())).sum();
    let scaled = |run: &Placed<'_>| u128::from(run.bytes()) * window.len() as u128 * 100;
    let similar =
        window.iter().filter(|run| scaled(run) >= total * u128::from(SIMILAR_PERCENT_MIN));
    similar.count() >= count
        && window.iter().all(|run| scaled(run) <= total * u128::from(SIMILAR_PERCENT_MAX))
}

/// Rule: when the tree has more runs than it may and no similar ones lie side by side, the
/// neighbours with the fewest bytes are merged.
fn pick_cheapest(shape: &Shape, order: &[Placed<'_>], picker: &mut Picker<'_>) {
    let excess = runs::count_all(shape).saturating_sub(runs_cap(shape));
    if excess == 0 {
        return;
    }
    let length = (excess + 1).clamp(2, runs::runs_max(shape));
    let mut windows: Vec<(u64, Range<usize>)> = order
        .windows(length)
        .enumerate()
        .map(|(start, runs)| (runs.iter().map(Placed::bytes).sum(), start..start + length))
        .collect();
    windows.sort_by_key(|(bytes, window)| (*bytes, window.start));
    for (_, window) in windows {
        if merge_window(shape, order, &window, picker) {
            break;
        }
    }
}

/// Merges the runs of a window, if none is busy: into the level below the oldest, unless a run
/// between would be passed. Whether it did, or moved what is in the way of that.
fn merge_window(
    shape: &Shape,
    order: &[Placed<'_>],
    window: &Range<usize>,
    picker: &mut Picker<'_>,
) -> bool {
    let inputs = order.get(window.clone()).unwrap_or_default();
    let Some(oldest) = inputs.last() else { return false };
    let next_older = order.get(window.end).map_or(Level::LAST, |run| run.level);
    let output_level = oldest.level.next().map_or(next_older, |next| next.min(next_older));
    if output_level == Level::ZERO && !sentinels::any(shape) {
        if move_down(shape, picker) {
            return true;
        }
        if inputs.iter().any(|run| run.bytes() > large_bytes(shape)) {
            let rest = order.get(window.start..).unwrap_or_default();
            let of_level_0 = rest.iter().take_while(|run| run.level == Level::ZERO).count();
            let inputs = rest.get(..of_level_0).unwrap_or_default();
            return picker.merge(inputs, Level::ONE, Reason::RunCount);
        }
    }
    picker.merge(inputs, output_level, Reason::RunCount)
}
