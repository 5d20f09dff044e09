//! Sentinels: hot ranges that are moved, and how they are told apart.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::defaults::*;
use crate::base::error::{Error, Result};

/// How the key space is divided into the ranges whose reads and writes are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BucketRanges {
    /// So many ranges with about as many entries each.
    Quantile(u32),
    /// So many ranges of the same length between the smallest and the largest key, by their first
    /// bytes or digits behind what all keys begin with (BiLSM §4.1). Where keys are not spread
    /// evenly, some ranges have far more of them than others.
    Equal(u32),
}

impl BucketRanges {
    /// Number of ranges.
    pub(crate) fn count(self) -> u32 {
        match self {
            Self::Quantile(count) | Self::Equal(count) => count,
        }
    }
}

/// What makes a range hot enough to be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostModel {
    /// As BiLSM §3.1 has it: a scan saves a block for each level but one, until the next flush; the
    /// cost is the blocks of the new table. Point reads, and the way back down, do not count.
    Paper,
    /// What reads really opened, point reads too, as far ahead as the range will stay where it is
    /// moved to, and no farther than a few windows; the cost includes the way back down.
    #[default]
    Corrected,
}

names! { CostModel, "cost model": Paper "paper", Corrected "corrected" }

/// Where hot ranges are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HotRanges {
    /// Up: all runs of the range become one sentinel in level 0 (BiLSM).
    Up,
    /// Down: what the uppermost level has of the range is merged into the next one, before that is
    /// due (the read-triggered compaction of RocksDB and Pebble, which BiLSM competes with). For
    /// `leveled`.
    Down,
    /// Wherever more is gained for each byte written.
    #[default]
    Cheaper,
}

names! { HotRanges, "way of hot ranges": Up "up", Down "down", Cheaper "cheaper" }

/// How hot ranges are found and moved.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SentinelOptions {
    /// A range is moved if the blocks that reads will save are more than this many times the blocks
    /// that are written for it. Larger: fewer and hotter ranges. Range: [`THETA_RANGE`]. Default:
    /// [`DEFAULT_THETA`].
    pub theta: f32,
    /// How both are estimated. Default: [`CostModel::Corrected`].
    pub cost: CostModel,
    /// The ranges of which each is hot or not. More: finer, up to 100 bytes of memory each and the
    /// bytes of a key. Range: [`BUCKETS_RANGE`]. Default: [`DEFAULT_BUCKETS`] quantiles.
    pub buckets: BucketRanges,
    /// How long reads and writes count in full; in each such time before, half as much. Shorter:
    /// ranges get hot and cold sooner, by fewer reads. Whole microseconds are kept. Range:
    /// [`HEAT_WINDOW_RANGE`]. Default: [`DEFAULT_HEAT_WINDOW`].
    pub window: Duration,
    /// Where they are moved. Default: [`HotRanges::Cheaper`].
    pub ways: HotRanges,
}

impl Default for SentinelOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl SentinelOptions {
    /// The default of each.
    pub(crate) const DEFAULT: Self = Self {
        theta: DEFAULT_THETA,
        cost: CostModel::Corrected,
        buckets: BucketRanges::Quantile(DEFAULT_BUCKETS),
        window: DEFAULT_HEAT_WINDOW,
        ways: HotRanges::Cheaper,
    };
}
