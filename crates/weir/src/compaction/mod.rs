//! Flushes and compactions: picking what to merge, and merging it.
//!
//! Terms: a *policy* picks *tasks* from a [`Shape`](crate::version::shape); a task names whole
//! input tables and an output level; the *plan* says where its outputs are cut; a *job* executes
//! one task (or one flush) in bounded steps and ends in one version edit.
//!
//! | file | what it is | pure |
//! |---|---|---|
//! | `task` | what a policy can ask for | yes |
//! | `policy` | the trait, a file for each policy and for each subject that policies share | yes |
//! | `pacing` | the delay of writers, from the state of the tree | yes |
//! | `buffer` | which tables leave the buffer lists | yes |
//! | `sentinel` | which hot range is moved, up or down | yes |
//! | `execute` | flush and compaction jobs, the conservation law | no |
//!
//! Not here: the visibility rule (`merge::Retain`), the table format (`table`), applying the edit
//! (`version`), threads and the scheduling of jobs (`db`).
//!
//! Invariants: (1) a table is an input of one job at most; (2) a job removes exactly its inputs and
//! adds exactly its outputs, in one edit (H4); (3) a level-0 table is compacted into a lower level
//! only together with every older level-0 table that overlaps it (H23); (4) entries read = entries
//! written + entries dropped for a reason, by count and by hash, or the job fails and removes its
//! outputs.

pub(crate) mod buffer;
pub(crate) mod execute;
pub(crate) mod pacing;
pub(crate) mod policy;
pub(crate) mod sentinel;
pub(crate) mod task;

use crate::options::CompactionPolicy;
use policy::Policy;
use policy::parts::OfParts;
use policy::runs::OfRuns;

/// The policy that an option names. It finds its options in the shapes that it looks at.
pub(crate) fn policy_of(option: CompactionPolicy) -> &'static dyn Policy {
    match option {
        CompactionPolicy::Leveled(_) => &policy::leveled::Leveled,
        CompactionPolicy::Tiered(_) => &OfRuns(policy::tiered::Tiered),
        CompactionPolicy::LazyLeveled(_) => &OfRuns(policy::lazy_leveled::LazyLeveled),
        CompactionPolicy::SizeTiered(_) => &OfRuns(policy::size_tiered::SizeTiered),
        CompactionPolicy::SteppedMerge(_) => &OfRuns(policy::stepped_merge::SteppedMerge),
        CompactionPolicy::Gear(_) => &OfParts(policy::gear::Gear),
        CompactionPolicy::TwoPhase(_) => &OfParts(policy::two_phase::TwoPhase),
    }
}
