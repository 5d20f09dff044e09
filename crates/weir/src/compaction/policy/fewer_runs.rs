//! Smaller forms of a merge, for a device that has no room for all of it.
//!
//! A run of level 0 is one table over all keys most often, which stays until the merge has ended:
//! where a merge is done in stretches these tables are most of what it takes. They can go down one
//! after the other as well, each time with what lies below, which costs more writes and less space.
//! Of each run that takes part a table waits for the end of a stretch; of what a user asks for the
//! oldest runs can be merged first, in whatever levels they are.
//!
//! Not here: whether there is room (`db::space_checks`).
//!
//! Invariants: (1) the newest runs stay behind, never ones in between, so that what is merged is
//! age-contiguous, and all that is older than it goes along as before (H23); (2) the outputs join
//! the run that those of the whole merge would join, or found one that is newer than all that stay
//! in their level and are older (`runs`); (3) inputs are a part of those of the whole merge, so
//! that nothing conflicts with them that did not conflict with it.

use crate::base::ids::Level;
use crate::compaction::policy::runs::epoch_in;
use crate::compaction::task::{MergeTask, Reason, Task};
use crate::version::shape::{PartKind, RunId, Shape};

/// The same merge of half of its runs of level 0, the oldest ones, of a quarter, and so on: down to
/// one, or to two where nothing below takes part. Where levels collect runs, which are to be of
/// similar size, none that takes runs of other levels. Of what a user asks for, whatever the
/// policy, of all its runs the oldest half, too, and so on, down to two. Those that take most come
/// first.
pub(crate) fn of_fewer_runs(shape: &Shape, task: &Task) -> Vec<Task> {
    let Task::Merge(merge) = task else { return Vec::new() };
    let all = merge.inputs.len();
    let collects_runs = shape.options.compaction.sizes_if_any().is_none();
    let is_manual = merge.reason == Reason::Manual;
    let above = merge.inputs.iter().take_while(|slice| slice.run.level == Level::ZERO);
    let is_filling = above.clone().all(|slice| slice.run.part == PartKind::Filling);
    let count = above.count();
    let takes_below = count < all;
    let is_apt = is_filling && merge.output.level > Level::ZERO;
    let mut kept = Vec::new();
    if is_apt && !(collects_runs && (takes_below || is_manual)) {
        let of_level_0 = halves(count, if takes_below { 1 } else { 2 });
        kept.extend(of_level_0.into_iter().map(|kept| all - count + kept));
    }
    if is_manual {
        kept.extend(halves(all, 2));
    }
    kept.sort_unstable_by(|a, b| b.cmp(a));
    kept.dedup();
    let joins = shape.levels[merge.output.level]
        .runs()
        .any(|(part, run)| (part, run.epoch) == (merge.output.part, merge.output.epoch));
    let joins = joins && !(collects_runs && is_manual);
    kept.into_iter().map(|kept| of_oldest(shape, merge, all - kept, joins)).collect()
}

/// Half of `count`, a quarter, and so on, and `least`.
fn halves(count: usize, least: usize) -> Vec<usize> {
    let halves = std::iter::successors(Some(count / 2), |kept| Some(kept / 2));
    let mut halves: Vec<usize> = halves.take_while(|&kept| kept >= least).collect();
    if count > least && halves.last() != Some(&least) {
        halves.push(least);
    }
    halves
}

/// A merge without its first `left` inputs; if it `joins` a run, it does so still, but for one that
/// stays because it is one of these.
fn of_oldest(shape: &Shape, merge: &MergeTask, left: usize, joins: bool) -> Task {
    let (stay, inputs) = merge.inputs.split_at(left);
    let (inputs, output) = (inputs.to_vec(), merge.output);
    let joins = joins && stay.iter().all(|slice| slice.run != output);
    let epoch = if joins { output.epoch } else { epoch_in(shape, output.level, &inputs) };
    Task::Merge(MergeTask { output: RunId { epoch, ..output }, inputs, ..merge.clone() })
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;
    use crate::base::ids::DataEpoch;
    use crate::compaction::policy::cases::shape_of;
    use crate::compaction::policy::gear::Gear;
    use crate::compaction::policy::leveled::Leveled;
    use crate::compaction::policy::parts::OfParts;
    use crate::compaction::policy::runs::OfRuns;
    use crate::compaction::policy::tiered::Tiered;
    use crate::compaction::policy::{Policy, RangePick};
    use crate::options::CompactionPolicy;

    /// The smaller forms of a merge of all that a tree has, and the epochs of their outputs.
    fn forms(
        (options, policy): (CompactionPolicy, &dyn Policy),
        tree: &str,
        change: impl Fn(&mut MergeTask),
    ) -> Vec<(String, u64)> {
        let shape = shape_of(options, tree);
        let all = Bound::Unbounded;
        let RangePick::Task(mut task) = policy.pick_range(&shape, all, all) else {
            panic!("nothing to merge in {tree}");
        };
        if let Task::Merge(merge) = &mut task {
            change(merge);
        }
        let forms = of_fewer_runs(&shape, &task).into_iter().map(|form| match &form {
            Task::Merge(merge) => (form.to_string(), merge.output.epoch.get()),
            _ => panic!("{form} is no merge"),
        });
        forms.collect()
    }

    /// Goal: where levels collect runs, the oldest ones are merged in their place, in the level of
    /// the oldest, newer than none that stays and is newer; for a user only. Method: a merge of
    /// runs of three levels; the same as one that is due, and one of level 0 alone that is due,
    /// into a level whose run has a larger epoch, as another policy leaves it.
    #[test]
    fn the_oldest_of_all_runs_are_merged() {
        let tiered = (CompactionPolicy::tiered(), &OfRuns(Tiered) as &dyn Policy);
        let tree = "L0 30: 1[a-z]*9\n L0 29: 2[a-z]*9\n L1 28: 3[a-z]*9\n L1 27: 4[a-z]*9\n \
                    L2 26: 5[a-z]*9\n L2 25: 6[a-z]*9\n L2 24: 7[a-z]*9\n L2 23: 8[a-z]*9";
        let four = "merge L2/26:{5} L2/25:{6} L2/24:{7} L2/23:{8} -> L2 (manual)";
        let two = "merge L2/24:{7} L2/23:{8} -> L2 (manual)";
        assert_eq!(forms(tiered, tree, |_| ()), [(four.into(), 26), (two.into(), 24)]);
        let due = |merge: &mut MergeTask| merge.reason = Reason::RunCount;
        assert_eq!(forms(tiered, tree, due), []);
        let tree = "L0 30: 1[a-z]*9\n L0 29: 2[a-z]*9\n L0 28: 3[a-z]*9\n L0 27: 4[a-z]*9\n \
                    L1 29: 5[a-z]*9";
        let into_level_1 = |merge: &mut MergeTask| {
            due(merge);
            merge.inputs.truncate(4);
            merge.output.epoch = DataEpoch::new(30);
        };
        let two = "merge L0/28:{3} L0/27:{4} -> L1 (run-count)";
        assert_eq!(forms(tiered, tree, into_level_1), [(two.into(), 30)]);
    }

    /// Goal: the newest runs stay, the others go where all would go. Method: merges of all that
    /// there is, one that joins a run, one that founds one, and ones without a smaller form.
    #[test]
    fn the_newest_runs_stay() {
        let forms = |tree: &str| {
            let forms = forms((CompactionPolicy::leveled(), &Leveled), tree, |_| ()).into_iter();
            forms.map(|(form, _)| form).collect::<Vec<_>>()
        };
        let level_0: String =
            (1..=6u64).map(|uid| format!("L0 {}: {uid}[a-z]*9000\n", 30 - uid)).collect();
        let three = "merge L0/26:{4} L0/25:{5} L0/24:{6} L6/9:{7} -> L6 (manual)";
        let one = "merge L0/24:{6} L6/9:{7} -> L6 (manual)";
        let joined = forms(&format!("{level_0} L6 9: 7[a-z]*9000"));
        let two = "merge L0/25:{5} L0/24:{6} L6/9:{7} -> L6 (manual)";
        assert_eq!(joined, [three, two, one]);
        let founded = forms(&format!("{level_0} L5 9: 7[a-z]*9000"));
        assert_eq!(founded, [three, two, one].map(|form| form.replace("L6/", "L5/")));
        let (three, two) =
            (three.replace("L6/9:{7} ", ""), "merge L0/25:{5} L0/24:{6} -> L6 (manual)");
        assert_eq!(forms(&level_0), [three, two.to_owned()]);
    }

    /// Goal: of what a user asks for fewer runs of levels are merged, too, whatever the policy,
    /// down to the two oldest. Method: a run in each of five levels.
    #[test]
    fn levels_go_down_one_after_the_other() {
        let tree: String = (2..=6u64)
            .map(|level| format!("L{level} {}: {level}[a-z]*9000\n", 30 - level))
            .collect();
        let forms = forms((CompactionPolicy::leveled(), &Leveled), &tree, |_| ());
        let forms: Vec<String> = forms.into_iter().map(|(form, _)| form).collect();
        assert_eq!(forms, ["merge L5/25:{5} L6/24:{6} -> L6 (manual)"]);
    }

    /// Goal: nothing goes into a run that stays, which may lie over the outputs. Method: a level
    /// with several runs, as merges in stretches leave it that end early.
    #[test]
    fn what_stays_is_not_joined() {
        let tree = "L0 40: 9[a-z]*9000\n L6 30: 1[a-z]*9000\n L6 29: 2[a-z]*9000\n \
                    L6 28: 3[a-z]*9000";
        let leveled = (CompactionPolicy::leveled(), &Leveled as &dyn Policy);
        for of_policy in [leveled, (CompactionPolicy::gear(), &OfParts(Gear))] {
            let of_two = "merge L6/29:{2} L6/28:{3} -> L6 (manual)";
            assert_eq!(forms(of_policy, tree, |_| ()), [(of_two.to_owned(), 29)]);
        }
    }
}
