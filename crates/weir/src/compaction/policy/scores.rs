//! Which level works next, where levels have sizes: LevelDB's decision, by score.

use crate::base::ids::Level;
use crate::compaction::task::Reason;
use crate::version::shape::Shape;

/// A level that has work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    pub(super) level: Level,
    /// How urgent it is: 1 and more.
    pub(super) score: f64,
    /// Bytes that have to go.
    pub(super) excess: u64,
    pub(super) reason: Reason,
}

impl Work {
    /// Rule: level 0 works from `l0_trigger` runs on, and is as urgent as it has multiples of it.
    pub(super) fn of_level_0(shape: &Shape, excess: u64) -> Option<Self> {
        let trigger = shape.options.compaction.level_sizes().l0_trigger.max(1);
        let score = shape.l0_flushed_runs() as f64 / trigger as f64;
        let work = Self { level: Level::ZERO, score, excess, reason: Reason::RunCount };
        (score >= 1.0).then_some(work)
    }

    /// Rule: a level that should be empty, or is out of form, gives all it has.
    pub(super) fn drain(level: Level, bytes: u64) -> Self {
        Self { level, score: 1.0, excess: bytes, reason: Reason::Drain }
    }

    /// Rule: a level with more bytes than its target gives the excess.
    pub(super) fn above_target(level: Level, bytes: u64, target: u64) -> Option<Self> {
        let excess = bytes.saturating_sub(target);
        let score = bytes as f64 / target as f64;
        let work = Self { level, score, excess, reason: Reason::LevelBytes };
        (excess > 0).then_some(work)
    }
}

/// Most urgent first; of equal scores the upper level goes first, as it was found.
pub(super) fn most_urgent_first(found: impl Iterator<Item = Work>) -> Vec<Work> {
    let mut found: Vec<Work> = found.collect();
    // Stable.
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found
}
