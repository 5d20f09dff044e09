//! How many filter bits a run gets, by the option `filters`.
//!
//! Not here: the division itself (`filter::monkey`).

use crate::base::ids::Level;
use crate::base::limits::LEVELS;
use crate::compaction::policy::geometry::level_entries;
use crate::filter::monkey::{Allocation, Runs};
use crate::version::shape::{LevelShape, Shape};

/// Most filter bits per key: as the option `bloom_bits`.
const FILTER_BITS_MAX: f64 = 32.0;

/// Filter bits per key that a moved table may have beyond those of its new level: less than one
/// level's difference at a ratio of 4 (2.9), or every move would become a rewrite.
const SPARE_BITS_MAX: f32 = 2.5;

/// What a policy makes of a tree: from the largest run down to the smallest, each level `ratio`
/// times smaller than the next, `last` runs of the largest size and `above` of every other.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeForm {
    pub(super) ratio: f64,
    pub(super) above: f64,
    pub(super) last: f64,
}

/// Rule: the filter bits of a run with `entries` entries on `level`. Under Monkey the tree is taken
/// for what the policy makes of it.
pub(super) fn filter_bits(shape: &Shape, level: Level, entries: u64, form: TreeForm) -> f32 {
    let options = &shape.options;
    let Some(average) = options.divided_bits() else { return options.bloom_bits_at(level.get()) };
    let runs_there = shape.levels.values().flat_map(LevelShape::runs);
    let sizes = runs_there.map(|(_, run)| run.tables.totals().entries).chain([entries]);
    let (smallest, largest) =
        sizes.fold((entries, entries), |(min, max), size| (size.min(min), size.max(max)));
    let mut model = Vec::new();
    let mut size = largest as f64;
    while model.is_empty() || (size * 2.0 > smallest as f64 && model.len() < 2 * LEVELS) {
        let count = if model.is_empty() { form.last } else { form.above };
        model.push(Runs { entries: size, count });
        size /= form.ratio;
    }
    Allocation::of(&model, f64::from(average)).bits(entries as f64).min(FILTER_BITS_MAX) as f32
}

/// Rule: where single tables are merged, what is written becomes part of a run that the level's
/// entries make. Levels have `runs` runs each on average.
pub(super) fn filter_bits_of_levels(shape: &Shape, level: Level, entries: u64, runs: f64) -> f32 {
    let run = if level == Level::ZERO { 0 } else { level_entries(shape, level) };
    let ratio = f64::from(shape.options.compaction.level_sizes().level_ratio.max(2));
    filter_bits(shape, level, entries.max(run), TreeForm { ratio, above: runs, last: runs })
}

/// Rule: with Monkey's division, what has far more bits per key than its new level gives is
/// rewritten rather than moved. A load of ascending keys is nothing but moves: all of it would keep
/// the bits of the small run that it once was, half as many again as were to be divided.
pub(super) fn keeps_too_many_bits(shape: &Shape, from: f32, to: f32) -> bool {
    shape.options.divided_bits().is_some() && from > to + SPARE_BITS_MAX
}
