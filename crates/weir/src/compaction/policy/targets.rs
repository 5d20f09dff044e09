//! How large each level should be, from the bottom up.
//!
//! The bottom level is always the last one and has what it has; each level above should have a
//! `level_ratio`-th of the one below, down to one *unit*, which the policy defines. The uppermost
//! level with a target is the *base level*: level 0 is merged straight into it, and the levels
//! above it stay empty. A tree that grows gets a new level above its base level, not below its
//! last: nothing has to be moved for it. Source: RocksDB's dynamic level bytes. We differ: the last
//! level counts as what is expected of it (the option `expected_bytes`) if that is more, and the
//! only level of a store can get a second one above it.

use crate::base::ids::{Level, PerLevel};
use crate::compaction::policy::geometry::{in_use, level_bytes};
use crate::version::shape::Shape;

/// Batches of level 0 that the only level below it may have; half of them, before a second level
/// that is in use is given up. Two levels are rewritten less from 4 on, and have one more run to
/// read.
const STEP_MAX: u64 = 6;

/// Bytes of the bottom level: those of the largest one, or what is expected if that is more.
fn bottom_bytes(shape: &Shape) -> u64 {
    let largest = Level::ONE.to_last().map(|level| level_bytes(shape, level)).max().unwrap_or(0);
    largest.max(shape.options.compaction.level_sizes().expected_bytes)
}

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
        let mut target = bottom_bytes(shape);
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

    /// Gives a store with one level a second one above it, where that level is many batches of
    /// level 0, of `batch` bytes each: every batch is merged with all of the base level. With `x`
    /// batches in the last level and `b` in one above it, a byte that comes in is rewritten `1 + x`
    /// times with one level; with two `1 + b` times, and then about half as often as the last level
    /// is larger, since the round-robin cursor takes from where the base level is fullest. That is
    /// least for `b = sqrt(x / 2)`.
    pub(super) fn with_second_level(mut self, shape: &Shape, unit: u64, batch: u64) -> Self {
        let Some(above) = self.base.previous().filter(|_| self.base == Level::LAST) else {
            return self;
        };
        let (bottom, batch) = (bottom_bytes(shape), batch.max(1));
        let product = u128::from(bottom) * u128::from(batch) / 2;
        let target = u64::try_from(product.isqrt()).unwrap_or(u64::MAX).max(unit);
        let (step_max, ratio_min) =
            if in_use(shape, above) { (STEP_MAX / 2, 1) } else { (STEP_MAX, 2) };
        if bottom / batch > step_max && bottom / ratio_min >= target {
            self.base = above;
            self.bytes[above] = target;
        }
        self
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
