//! How large each level should be, from the bottom up.
//!
//! The bottom level is always the last one and has what it has; each level above should have a
//! `level_ratio`-th of the one below, down to one *unit*, which the policy defines. The uppermost
//! level with a target is the *base level*: level 0 is merged straight into it, and the levels
//! above it stay empty. A tree that grows gets a new level above its base level, not below its
//! last: nothing has to be moved for it. Source: RocksDB's dynamic level bytes. We differ: the last
//! level counts as what is expected of it (the option `expected_bytes`) if that is more.

use crate::base::ids::{Level, PerLevel};
use crate::compaction::policy::geometry::{in_use, level_bytes};
use crate::version::shape::Shape;

/// How large each level should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Targets {
    /// The level that level 0 is merged into.
    pub(super) base: Level,
    /// Target bytes per level; 0 above the base level, `u64::MAX` for the bottom.
    pub(super) bytes: PerLevel<u64>,
}

impl Targets {
    /// Derives the targets from what is there: the bottom has what it has, each level above a
    /// `level_ratio`-th, down to one unit. A level in use stays in use until its target falls below
    /// half a unit, so that a tree at the border does not change its form back and forth.
    pub(super) fn of(shape: &Shape, unit: u64) -> Self {
        let sizes = shape.options.compaction.level_sizes();
        let ratio = u64::from(sizes.level_ratio.max(2));
        let mut bytes = PerLevel::default();
        bytes[Level::LAST] = u64::MAX;
        let mut base = Level::LAST;
        let largest =
            Level::ONE.to_last().map(|level| level_bytes(shape, level)).max().unwrap_or(0);
        let mut target = largest.max(sizes.expected_bytes);
        while let Some(above) = base.previous().filter(|&above| above >= Level::ONE) {
            target /= ratio;
            let needed = if in_use(shape, above) { unit / 2 } else { unit };
            if target < needed {
                break;
            }
            base = above;
            bytes[base] = target.max(unit);
        }
        Self { base, bytes }
    }

    /// The level that a table of `level` goes to next: never past a level with tables, which are
    /// older than its own and newer than what lies deeper; never short of the base level otherwise.
    pub(super) fn next_level(&self, shape: &Shape, level: Level) -> Level {
        level.deeper().find(|&next| next >= self.base || in_use(shape, next)).unwrap_or(Level::LAST)
    }

    /// The targets in one line, for the text cases.
    #[cfg(test)]
    pub(super) fn describe(&self) -> String {
        let levels = self.base.to_last().filter(|&level| level < Level::LAST);
        let bytes: Vec<String> =
            levels.map(|level| format!(" L{level} {}", self.bytes[level])).collect();
        format!("base L{}{}", self.base, bytes.concat())
    }
}
