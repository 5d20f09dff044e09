//! Sentinels: hot ranges that are moved, and how they are told apart.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::defaults::*;
use super::{CompactionPolicy, Options, in_range};
use crate::base::error::{Error, Result};

/// Whether hot ranges are moved, so that reads of them open fewer runs (BiLSM).
///
/// Costs what is written to move them, as far as reads are expected to save more; some nanoseconds
/// a get, seek and write to count them by range; and memory: [`SentinelOptions::buckets`].
///
/// Beside a compaction buffer (`Options::compaction_buffer`) few are moved unless blocks are handed
/// over (`WarmUp::HandOff`, the default): what its lists serve is cached there, and what would be
/// built in its place is not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Sentinels {
    /// Nothing is counted or moved.
    #[default]
    Off,
    /// Hot ranges are moved.
    On(SentinelOptions),
}

impl From<SentinelOptions> for Sentinels {
    fn from(options: SentinelOptions) -> Self {
        Self::On(options)
    }
}

impl Sentinels {
    /// All of them, with default options.
    pub const ALL: [Self; 2] = [Self::Off, Self::On(SentinelOptions::DEFAULT)];

    /// `On` with default options.
    #[must_use]
    pub const fn on() -> Self {
        Self::On(SentinelOptions::DEFAULT)
    }

    /// The name that people write: `off` or `on`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On(_) => "on",
        }
    }

    pub(super) fn validate(self, policy: CompactionPolicy) -> Result<()> {
        let Self::On(options) = self else { return Ok(()) };
        in_range("theta", options.theta, &THETA_RANGE)?;
        in_range("number of buckets", options.buckets.count(), &BUCKETS_RANGE)?;
        if !HEAT_WINDOW_RANGE.contains(&options.window) {
            return Err(Error::invalid(format!(
                "the window of sentinels is {:?}; choose one from {:?} to {:?}",
                options.window,
                HEAT_WINDOW_RANGE.start(),
                HEAT_WINDOW_RANGE.end()
            )));
        }
        if options.ways == HotRanges::Down && !matches!(policy, CompactionPolicy::Leveled(_)) {
            return Err(Error::invalid(format!(
                "hot ranges are to go down, which needs levels of one run, and {policy} has \
                 others; choose the policy leveled, or the way up or cheaper"
            )));
        }
        Ok(())
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Sentinels {
    type Err = Error;

    /// The variant with a [`name`](Sentinels::name), with default options.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|sentinels| sentinels.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("sentinels cannot be {name:?}; choose one of {names}"))
        })
    }
}

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

impl fmt::Display for BucketRanges {
    /// As people write them: `quantile:512`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantile(count) => write!(f, "quantile:{count}"),
            Self::Equal(count) => write!(f, "equal:{count}"),
        }
    }
}

impl FromStr for BucketRanges {
    type Err = Error;

    /// `quantile:N` or `equal:N`.
    fn from_str(text: &str) -> Result<Self> {
        let (kind, count) = text.split_once(':').unwrap_or((text, ""));
        match (kind, count.parse()) {
            ("quantile", Ok(count)) => Ok(Self::Quantile(count)),
            ("equal", Ok(count)) => Ok(Self::Equal(count)),
            _ => Err(Error::invalid(format!(
                "{text:?} names no buckets; write quantile:N or equal:N, such as {}",
                Self::Quantile(DEFAULT_BUCKETS)
            ))),
        }
    }
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
    /// Most bytes that are moved up and still in level 0, together. A compaction of level 0 takes
    /// along what it meets of them, in the worst case all, and writers may have to wait for it.
    /// What is there already sinks beyond twice as many. In any case no more than an eighth of the
    /// tree is moved up. `None`: twice what level 0 has when its compaction is due, which is
    /// `write_buffer_bytes` times `l0_trigger` or `runs_per_level`. Default: `None`.
    pub bytes_max: Option<u64>,
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
        bytes_max: None,
    };

    setters! {
        theta: f32,
        cost: CostModel,
        buckets: BucketRanges,
        window: Duration,
        ways: HotRanges,
        bytes_max: Option<u64>,
    }

    /// [`bytes_max`](field@Self::bytes_max) in a tree with these options.
    pub(crate) fn bytes_max_in(&self, options: &Options) -> u64 {
        self.bytes_max.unwrap_or_else(|| BATCHES.saturating_mul(batch_bytes(options)))
    }
}

/// Sentinels may have so many times what level 0 has when its compaction is due: that takes them
/// along, and its size should stay of its own order.
const BATCHES: u64 = 2;

/// Bytes that level 0 has when its compaction is due.
fn batch_bytes(options: &Options) -> u64 {
    options.write_buffer_bytes.saturating_mul(options.compaction.batch_runs() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is out of range is refused with the range, what cannot work with what would, and
    /// names are read as they are written.
    #[test]
    fn ranges_and_combinations_are_checked() {
        let check = |sentinels: SentinelOptions, policy| {
            Options::default().compaction(policy).sentinels(sentinels).validate()
        };
        let refused = |sentinels: SentinelOptions, word: &str| {
            let error = check(sentinels, CompactionPolicy::leveled()).unwrap_err().to_string();
            assert!(error.contains("choose") && error.contains(word), "{error}");
        };
        let default = SentinelOptions::default;
        for policy in CompactionPolicy::ALL {
            check(default(), policy).unwrap();
            let down = check(default().ways(HotRanges::Down), policy);
            assert_eq!(down.is_ok(), policy.name() == "leveled", "{policy}");
        }
        refused(default().theta(-1.0), "theta");
        refused(default().theta(f32::NAN), "theta");
        refused(default().buckets(BucketRanges::Quantile(1)), "number of buckets");
        refused(default().buckets(BucketRanges::Equal(1 << 20)), "number of buckets");
        refused(default().window(Duration::ZERO), "window of sentinels");
        for sentinels in Sentinels::ALL {
            assert_eq!(sentinels.name().parse::<Sentinels>().unwrap(), sentinels);
        }
        for buckets in [BucketRanges::Quantile(7), BucketRanges::Equal(500)] {
            assert_eq!(buckets.to_string().parse::<BucketRanges>().unwrap(), buckets);
        }
        for text in ["quantile", "equal:x", "5", "quantile:-1"] {
            assert!(text.parse::<BucketRanges>().unwrap_err().to_string().contains("quantile:512"));
        }
        assert!("yes".parse::<Sentinels>().unwrap_err().to_string().contains("off, on"));
    }
}
