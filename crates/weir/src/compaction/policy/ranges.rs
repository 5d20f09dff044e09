//! A range that a user asks for, in trees whose last level is one run.

use std::ops::Bound;

use crate::base::ids::Level;
use crate::base::table_meta::TableMeta;
use crate::compaction::policy::RangePick;
use crate::compaction::policy::conflicts::Picks;
use crate::compaction::policy::deletes::deletes_hide_nothing;
use crate::compaction::policy::geometry::{Chosen, KeyBounds, bounds_over, placed, stack_over};
use crate::compaction::policy::moves::merge_of;
use crate::compaction::task::{Reason, Task};
use crate::version::shape::Shape;

/// Rule: the range is merged out of all levels and parts at once into the last level; there it is
/// rewritten only for deletes that can go, or to be one run.
pub(super) fn into_last_level(
    shape: &Shape,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> RangePick {
    let mut bounds: Option<KeyBounds<'_>> = None;
    let mut chosen: Vec<Chosen<'_>> = Vec::new();
    for level in Level::all() {
        let tables: Vec<&TableMeta> =
            placed(shape, level).flat_map(|run| run.in_range(lower, upper).tables()).collect();
        let around = |useful: &dyn Fn(&TableMeta) -> bool| {
            let seeds = tables.iter().filter(|table| useful(table));
            let seeds = seeds.map(|table| KeyBounds::of(table)).chain(bounds);
            let seed = seeds.reduce(KeyBounds::union);
            seed.map_or_else(Vec::new, |seed| stack_over(shape, level, seed))
        };
        let mut stack = around(&|_| true);
        if level == Level::LAST && bounds.is_none() && stack.len() == 1 {
            let useful =
                |table: &TableMeta| !table.masks.is_empty() || deletes_hide_nothing(shape, table);
            stack = around(&useful);
        }
        chosen.extend(stack);
        bounds = bounds_over(&chosen);
    }
    if chosen.is_empty() {
        return RangePick::Done;
    }
    let merge = merge_of(shape, &chosen, Level::LAST, Reason::Manual);
    let picks = Picks::new(shape);
    if picks.any_busy(&chosen) || picks.conflicts(&chosen, merge.output) {
        return RangePick::Wait;
    }
    RangePick::Task(Task::Merge(merge))
}
