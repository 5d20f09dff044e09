//! `two_phase`: a level receives into one part and gives from the other, when it has too much.
//!
//! Source: dLSM §IV-A. The insertion part of a level grows from nothing to the level's size while
//! the deletion part shrinks from that to nothing, in key order; then they change roles. So a block
//! from above meets half a level on average instead of a whole one. Which level works next is
//! LevelDB's decision, by score: sizes float, and writers wait for level 0 only. The last level is
//! one run. We differ: levels are numbered from the bottom (`targets`), and level 0 drains its
//! oldest flushed run (`parts`). The paper compares with levels that are evenly full, (r + 1) bytes
//! per byte moved; a leveled tree with a round-robin cursor takes from where a level has filled
//! longest, twice as dense as its average, and writes about as little (`part_policies`).
//!
//! Not here: tables and runs (`parts`), pacing between levels (`gear`).
//!
//! Invariants: those of `parts`.

use crate::base::ids::Level;
use crate::compaction::policy::geometry::{draining_bytes, level_bytes};
use crate::compaction::policy::moves::take_bytes_max;
use crate::compaction::policy::parts::{self, PartsPolicy, Picker};
use crate::compaction::policy::scores::{Work, most_urgent_first};
use crate::compaction::policy::targets::Targets;
use crate::version::shape::Shape;

/// The two-phase policy.
pub(crate) struct TwoPhase;

impl PartsPolicy for TwoPhase {
    /// The rules: rotations, which cost nothing; the form of the last level; then what drains, the
    /// highest score first; sentinels beyond their cap.
    fn pick_parts(&self, picker: &mut Picker<'_>) {
        let shape = picker.shape;
        let candidates = candidates(shape, &picker.targets);
        for work in candidates.iter().filter(|work| work.level > Level::ZERO) {
            if draining_bytes(shape, work.level).is_none() {
                picker.rotate(work.level, work.reason);
            }
        }
        picker.unstack_bottom();
        for work in &candidates {
            picker.drain(work.level, work.excess, work.reason);
        }
        picker.drain_sentinels();
    }

    fn bytes_late(&self, shape: &Shape, targets: &Targets, level: Level) -> u64 {
        level_bytes(shape, level).saturating_sub(targets.bytes[level])
    }

    fn check_pace(&self, shape: &Shape, targets: &Targets) -> Vec<String> {
        let too_many = |Work { level, excess, reason, .. }: Work| {
            format!("level {level} has {excess} bytes too many ({})", reason.name())
        };
        candidates(shape, targets).into_iter().map(too_many).collect()
    }
}

/// The levels that have work, most urgent first.
fn candidates(shape: &Shape, targets: &Targets) -> Vec<Work> {
    most_urgent_first(
        Level::all()
            .filter(|&level| level < Level::LAST)
            .filter_map(|level| candidate(shape, targets, level)),
    )
}

/// Rule: level 0 works from `l0_trigger` runs on, every other level when both parts together hold
/// more than its target; all of it has to go above the base level, and where another policy left
/// several runs in a part.
fn candidate(shape: &Shape, targets: &Targets, level: Level) -> Option<Work> {
    if level == Level::ZERO {
        return Work::of_level_0(shape, take_bytes_max(shape));
    }
    let (bytes, target) = (level_bytes(shape, level), targets.bytes[level]);
    if bytes > 0 && (target == 0 || parts::has_several(shape, level)) {
        return Some(Work::drain(level, bytes));
    }
    Work::above_target(level, bytes, target)
}
