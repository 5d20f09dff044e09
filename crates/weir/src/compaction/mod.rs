//! Keeping the tree in shape: deciding what to merge, and merging it.
//!
//! The words: a *policy* looks at a [`Shape`](crate::version::shape) and picks *tasks*; a task
//! names whole tables and a target level; the *plan* says how its outputs are cut; a *job* executes
//! one task (or one flush) in bounded steps and ends in one version edit.
//!
//! | file | what it is | pure |
//! |---|---|---|
//! | `task` | the only commands there are | yes |
//! | `policy` | the trait, a file for each policy and each subject that they share | yes |
//! | `pacing` | how much the state of the tree slows writers | yes |
//! | `execute` | flush and merge jobs, the conservation law | no |
//!
//! Not here: the visibility rule (`merge::Retain`), the table format (`table`), applying the edit
//! (`version`), threads and the order of jobs (`db`).
//!
//! Invariants: (1) a table is an input of one job at most; (2) a job removes exactly its inputs and
//! adds exactly its outputs, in one edit (H4); (3) what leaves level 0 takes every older
//! overlapping level-0 table along (H23); (4) entries read = entries written + entries dropped for
//! a reason, by count and by hash, or the job fails and leaves nothing behind.

pub(crate) mod execute;
pub(crate) mod pacing;
pub(crate) mod policy;
pub(crate) mod task;

use crate::options::CompactionPolicy;
use policy::Policy;
use policy::parts::OfParts;
use policy::runs::OfRuns;

/// The policy that an option names.
pub(crate) fn policy_of(option: CompactionPolicy) -> &'static dyn Policy {
    match option {
        CompactionPolicy::Leveled => &policy::leveled::Leveled,
        CompactionPolicy::Tiered => &OfRuns(policy::tiered::Tiered),
        CompactionPolicy::LazyLeveled => &OfRuns(policy::lazy_leveled::LazyLeveled),
        CompactionPolicy::SizeTiered => &OfRuns(policy::size_tiered::SizeTiered),
        CompactionPolicy::SteppedMerge => &OfRuns(policy::stepped_merge::SteppedMerge),
        CompactionPolicy::Gear => &OfParts(policy::gear::Gear),
        CompactionPolicy::TwoPhase => &OfParts(policy::two_phase::TwoPhase),
    }
}
