//! Smaller forms of a merge out of level 0, for a device that has no room for all of it.
//!
//! A run of level 0 is one table over all keys most often, which stays until the merge has ended:
//! where a merge is done in stretches these tables are most of what it takes. They can go down one
//! after the other as well, each time with what lies below, which costs more writes and less space.
//!
//! Not here: whether there is room (`db::space_checks`).
//!
//! Invariants: (1) the newest runs stay behind, never ones in between, so that what leaves level 0
//! is age-contiguous, and all that is older than it goes along as before (H23); (2) the outputs
//! join the run that those of the whole merge would join, or found one with the epoch of their
//! newest input; (3) inputs are a part of those of the whole merge, so that nothing conflicts with
//! them that did not conflict with it.

use crate::base::ids::Level;
use crate::compaction::policy::geometry::newest_epoch;
use crate::compaction::task::{MergeTask, RunSlice, Task};
use crate::version::shape::{PartKind, RunId, Shape};

/// The same merge of half of its runs of level 0, the oldest ones, of a quarter, and so on: down to
/// one, or to two where nothing below takes part. Where levels collect runs, which are to be of
/// similar size, none that takes runs of other levels.
pub(crate) fn of_fewer_runs(shape: &Shape, task: &Task) -> Vec<Task> {
    let Task::Merge(merge) = task else { return Vec::new() };
    let above = merge.inputs.iter().take_while(|slice| slice.run.level == Level::ZERO);
    let is_filling = above.clone().all(|slice| slice.run.part == PartKind::Filling);
    let count = above.count();
    let takes_below = count < merge.inputs.len();
    let collects_runs = shape.options.compaction.sizes_if_any().is_none();
    let founds = merge.output.epoch == newest_epoch(&merge.inputs);
    let joins = shape.levels[merge.output.level]
        .runs()
        .any(|(part, run)| (part, run.epoch) == (merge.output.part, merge.output.epoch));
    let is_apt = is_filling && merge.output.level > Level::ZERO && (joins || founds);
    if !is_apt || (takes_below && collects_runs) {
        return Vec::new();
    }
    let halves = std::iter::successors(Some(count / 2), |kept| Some(kept / 2));
    let least = if takes_below { 1 } else { 2 };
    let halves = halves.take_while(|&kept| kept >= least);
    halves.map(|kept| Task::Merge(of_oldest(merge, count - kept, joins))).collect()
}

/// A merge without its first `left` inputs.
fn of_oldest(merge: &MergeTask, left: usize, joins: bool) -> MergeTask {
    let inputs: Vec<RunSlice> = merge.inputs.iter().skip(left).cloned().collect();
    let epoch = if joins { merge.output.epoch } else { newest_epoch(&inputs) };
    MergeTask { output: RunId { epoch, ..merge.output }, inputs, ..merge.clone() }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;
    use crate::compaction::policy::cases::shape_of;
    use crate::compaction::policy::leveled::Leveled;
    use crate::compaction::policy::{Policy, RangePick};
    use crate::options::CompactionPolicy;

    /// Goal: the newest runs stay, the others go where all would go. Method: merges of all that
    /// there is, one that joins a run, one that founds one, and ones without a smaller form.
    #[test]
    fn the_newest_runs_stay() {
        let forms = |tree: &str| {
            let shape = shape_of(CompactionPolicy::leveled(), tree);
            let all = Bound::Unbounded;
            let RangePick::Task(task) = Leveled.pick_range(&shape, all, all) else {
                panic!("nothing to merge in {tree}");
            };
            let forms = of_fewer_runs(&shape, &task);
            forms.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let level_0: String =
            (1..=6u64).map(|uid| format!("L0 {}: {uid}[a-z]*9000\n", 30 - uid)).collect();
        let three = "merge L0/26:{4} L0/25:{5} L0/24:{6} L6/9:{7} -> L6 (manual)";
        let one = "merge L0/24:{6} L6/9:{7} -> L6 (manual)";
        let joined = forms(&format!("{level_0} L6 9: 7[a-z]*9000"));
        assert_eq!(joined, [three, one]);
        let founded = forms(&format!("{level_0} L5 9: 7[a-z]*9000"));
        assert_eq!(founded, [three.replace("L6/", "L5/"), one.replace("L6/", "L5/")]);
        let alone = three.replace("L6/9:{7} ", "");
        assert_eq!(forms(&level_0), [alone]);
    }
}
