//! The compaction policies, each with the options that it has and no others.

use std::fmt;
use std::str::FromStr;

use super::defaults::*;
use super::in_range;
use crate::base::error::{Error, Result};

/// The shape that compaction keeps a tree in, with its options.
///
/// ```
/// use weir::{CompactionPolicy, LeveledOptions, Options, RunsOptions};
///
/// let options = Options::default().compaction(LeveledOptions::default().level_ratio(8));
/// # options.validate()?;
/// let tiered = CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(6));
/// # assert_eq!(tiered.name(), "tiered");
/// assert_eq!("gear".parse::<CompactionPolicy>()?, CompactionPolicy::gear());
/// # Ok::<(), weir::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompactionPolicy {
    /// Level 0 holds flushed runs, every other level one run, each level `level_ratio` times larger
    /// than the one above (LevelDB).
    Leveled(LeveledOptions),
    /// Every level collects `runs_per_level` runs, which are merged into one run of the next level.
    /// Each entry is written once per level; reads look at more runs (Merfeld and Karatsiolis,
    /// Monkey).
    Tiered(RunsOptions),
    /// Tiered above, one run in the last level: writes nearly as `Tiered`, space and long scans
    /// nearly as `Leveled` (Dostoevsky).
    LazyLeveled(RunsOptions),
    /// Neighbours in age of similar size are merged, `runs_per_level` or more at a time (Bigtable,
    /// Cassandra).
    SizeTiered(RunsOptions),
    /// Like `Tiered`, but the last level piles up until it is full and is then merged in place (the
    /// stepped-merge tree that LSbM is compared with).
    SteppedMerge(RunsOptions),
    /// Every level but the last has a part that fills and one that drains, at the same pace byte
    /// for byte: about half the rewriting of evenly full levels, half a run more to read per level,
    /// and writers who never wait for a deep level (bLSM, as LSbM uses it).
    Gear(PartsOptions),
    /// The same parts; the level with most too much works next, so sizes float (dLSM).
    TwoPhase(PartsOptions),
}

/// Options of [`CompactionPolicy::Leveled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeveledOptions {
    /// How many times larger each level is than the one above. Larger: fewer levels to read, more
    /// rewriting in each. Range: [`LEVEL_RATIO_RANGE`]. Default: [`DEFAULT_LEVEL_RATIO`].
    /// RocksDB: `max_bytes_for_level_multiplier`.
    pub level_ratio: u32,
    /// Smallest target of the level that level 0 is merged into, in bytes. A batch of level 0
    /// (`l0_trigger` write buffers) counts if it is larger. A store of up to six batches, or of
    /// less than twice this, has one level below level 0. Larger: fewer levels to read, longer
    /// single compactions. Range: [`BASE_LEVEL_BYTES_RANGE`]. Default:
    /// [`DEFAULT_BASE_LEVEL_BYTES`].
    /// RocksDB: `max_bytes_for_level_base`.
    pub base_level_bytes: u64,
    /// Bytes that the keyspace is expected to reach, any number: levels are sized as if it already
    /// held this many bytes; 0 sizes them by what it holds. Larger: fewer rewrites while the store
    /// grows, more overwritten data in the levels above the last. Default: 0.
    pub expected_bytes: u64,
    /// Runs in level 0 that start a compaction. Writers are slowed from four times as many on and
    /// wait at nine times as many. Larger: fewer rewrites, more runs to read. Range:
    /// [`L0_TRIGGER_RANGE`]. Default: [`DEFAULT_L0_TRIGGER`].
    /// RocksDB: `level0_file_num_compaction_trigger`.
    pub l0_trigger: usize,
}

/// Options of [`CompactionPolicy::Gear`] and [`CompactionPolicy::TwoPhase`], whose levels have a
/// part that fills and one that drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartsOptions {
    /// How many times larger each level is than the one above. Larger: fewer levels to read, more
    /// rewriting in each. Range: [`LEVEL_RATIO_RANGE`]. Default: [`DEFAULT_LEVEL_RATIO`].
    /// RocksDB: `max_bytes_for_level_multiplier`.
    pub level_ratio: u32,
    /// `l0_trigger` times the smallest target of the level that level 0 is merged into, in bytes:
    /// levels are fed by one write buffer at a time, where those of `leveled` are fed by
    /// `l0_trigger` of them. One write buffer is the target if that is larger. Larger: fewer levels
    /// to read and fewer rewrites, longer single compactions. Range: [`BASE_LEVEL_BYTES_RANGE`].
    /// Default: [`DEFAULT_BASE_LEVEL_BYTES`].
    /// RocksDB: `max_bytes_for_level_base`.
    pub base_level_bytes: u64,
    /// Bytes that the keyspace is expected to reach, any number: levels are sized as if it already
    /// held this many bytes; 0 sizes them by what it holds. Larger: fewer rewrites while the store
    /// grows, more overwritten data in the levels above the last. Default: 0.
    pub expected_bytes: u64,
    /// Runs in level 0: writers are slowed from four times as many on and wait at nine times as
    /// many. `two_phase` starts a compaction of level 0 with so many, `gear` drains it from the
    /// first on. Range: [`L0_TRIGGER_RANGE`]. Default: [`DEFAULT_L0_TRIGGER`].
    /// RocksDB: `level0_file_num_compaction_trigger`.
    pub l0_trigger: usize,
}

/// Options of the policies whose levels collect runs: [`CompactionPolicy::Tiered`],
/// [`LazyLeveled`](CompactionPolicy::LazyLeveled), [`SizeTiered`](CompactionPolicy::SizeTiered) and
/// [`SteppedMerge`](CompactionPolicy::SteppedMerge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunsOptions {
    /// Runs that make a level full. Writers are slowed when a level has four times as many and wait
    /// at nine times as many (`size_tiered`: slowed when the tree has more than a full level for
    /// each level there is). Larger: fewer rewrites, more runs to read and more space for
    /// overwritten data. Range: [`RUNS_PER_LEVEL_RANGE`]. Default: [`DEFAULT_RUNS_PER_LEVEL`].
    /// RocksDB: `level0_file_num_compaction_trigger` of universal compaction.
    pub runs_per_level: usize,
}

/// A size that no level has.
const NO_LEVEL_BYTES: u64 = 1 << 60;

/// What the policies whose levels have sizes say about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LevelSizes {
    pub(crate) level_ratio: u32,
    pub(crate) base_level_bytes: u64,
    pub(crate) expected_bytes: u64,
    pub(crate) l0_trigger: usize,
}

impl LevelSizes {
    /// The default of each.
    pub(crate) const DEFAULT: Self = Self {
        level_ratio: DEFAULT_LEVEL_RATIO,
        base_level_bytes: DEFAULT_BASE_LEVEL_BYTES,
        expected_bytes: 0,
        l0_trigger: DEFAULT_L0_TRIGGER,
    };

    fn validate(&self) -> Result<()> {
        in_range("level_ratio", self.level_ratio, &LEVEL_RATIO_RANGE)?;
        in_range("base_level_bytes", self.base_level_bytes, &BASE_LEVEL_BYTES_RANGE)?;
        in_range("l0_trigger", self.l0_trigger, &L0_TRIGGER_RANGE)
    }
}

/// Both kinds of options that say how large levels are.
macro_rules! options_of_sizes {
    ($($options:ident)*) => {$(
        impl $options {
            const fn of(sizes: LevelSizes) -> Self {
                Self {
                    level_ratio: sizes.level_ratio,
                    base_level_bytes: sizes.base_level_bytes,
                    expected_bytes: sizes.expected_bytes,
                    l0_trigger: sizes.l0_trigger,
                }
            }

            const fn sizes(&self) -> LevelSizes {
                LevelSizes {
                    level_ratio: self.level_ratio,
                    base_level_bytes: self.base_level_bytes,
                    expected_bytes: self.expected_bytes,
                    l0_trigger: self.l0_trigger,
                }
            }

            setters! {
                level_ratio: u32,
                base_level_bytes: u64,
                expected_bytes: u64,
                l0_trigger: usize,
            }
        }

        impl Default for $options {
            fn default() -> Self {
                Self::of(LevelSizes::DEFAULT)
            }
        }
    )*};
}

options_of_sizes! { LeveledOptions PartsOptions }

impl RunsOptions {
    /// The default of each.
    pub(crate) const DEFAULT: Self = Self { runs_per_level: DEFAULT_RUNS_PER_LEVEL };

    setters! {
        runs_per_level: usize,
    }
}

impl Default for RunsOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl CompactionPolicy {
    /// All of them, with default options; the default policy first.
    pub const ALL: [Self; 7] = [
        Self::leveled(),
        Self::tiered(),
        Self::lazy_leveled(),
        Self::size_tiered(),
        Self::stepped_merge(),
        Self::gear(),
        Self::two_phase(),
    ];

    /// [`Leveled`](Self::Leveled) with default options.
    #[must_use]
    pub const fn leveled() -> Self {
        Self::Leveled(LeveledOptions::of(LevelSizes::DEFAULT))
    }

    /// [`Tiered`](Self::Tiered) with default options.
    #[must_use]
    pub const fn tiered() -> Self {
        Self::Tiered(RunsOptions::DEFAULT)
    }

    /// [`LazyLeveled`](Self::LazyLeveled) with default options.
    #[must_use]
    pub const fn lazy_leveled() -> Self {
        Self::LazyLeveled(RunsOptions::DEFAULT)
    }

    /// [`SizeTiered`](Self::SizeTiered) with default options.
    #[must_use]
    pub const fn size_tiered() -> Self {
        Self::SizeTiered(RunsOptions::DEFAULT)
    }

    /// [`SteppedMerge`](Self::SteppedMerge) with default options.
    #[must_use]
    pub const fn stepped_merge() -> Self {
        Self::SteppedMerge(RunsOptions::DEFAULT)
    }

    /// [`Gear`](Self::Gear) with default options.
    #[must_use]
    pub const fn gear() -> Self {
        Self::Gear(PartsOptions::of(LevelSizes::DEFAULT))
    }

    /// [`TwoPhase`](Self::TwoPhase) with default options.
    #[must_use]
    pub const fn two_phase() -> Self {
        Self::TwoPhase(PartsOptions::of(LevelSizes::DEFAULT))
    }

    /// The name that people write: `leveled`, `tiered`, ...
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Leveled(_) => "leveled",
            Self::Tiered(_) => "tiered",
            Self::LazyLeveled(_) => "lazy_leveled",
            Self::SizeTiered(_) => "size_tiered",
            Self::SteppedMerge(_) => "stepped_merge",
            Self::Gear(_) => "gear",
            Self::TwoPhase(_) => "two_phase",
        }
    }

    /// This policy with the options of `other` that it has too, for a keyspace that changes its
    /// policy. `base_level_bytes` of the policies with parts means `l0_trigger` times what it means
    /// to the others ([`PartsOptions::base_level_bytes`]); the number is kept as it is.
    #[must_use]
    pub fn with_options_of(self, other: Self) -> Self {
        self.assembled(
            other.sizes_if_any().unwrap_or(self.level_sizes()),
            other.runs_if_any().unwrap_or(self.runs()),
        )
    }

    /// [`level_ratio`](LeveledOptions::level_ratio), if the policy has it.
    #[must_use]
    pub fn level_ratio(&self) -> Option<u32> {
        self.sizes_if_any().map(|sizes| sizes.level_ratio)
    }

    /// [`base_level_bytes`](LeveledOptions::base_level_bytes), if the policy has it.
    #[must_use]
    pub fn base_level_bytes(&self) -> Option<u64> {
        self.sizes_if_any().map(|sizes| sizes.base_level_bytes)
    }

    /// [`expected_bytes`](LeveledOptions::expected_bytes), if the policy has it.
    #[must_use]
    pub fn expected_bytes(&self) -> Option<u64> {
        self.sizes_if_any().map(|sizes| sizes.expected_bytes)
    }

    /// [`l0_trigger`](LeveledOptions::l0_trigger), if the policy has it.
    #[must_use]
    pub fn l0_trigger(&self) -> Option<usize> {
        self.sizes_if_any().map(|sizes| sizes.l0_trigger)
    }

    /// [`runs_per_level`](RunsOptions::runs_per_level), if the policy has it.
    #[must_use]
    pub fn runs_per_level(&self) -> Option<usize> {
        self.runs_if_any().map(|runs| runs.runs_per_level)
    }

    /// Flushed runs after which the compaction of level 0 is due.
    pub(crate) fn batch_runs(&self) -> usize {
        self.l0_trigger().or(self.runs_per_level()).unwrap_or(1).max(1)
    }

    /// This policy with those of these options that it has.
    pub(crate) fn assembled(self, sizes: LevelSizes, runs: RunsOptions) -> Self {
        match self {
            Self::Leveled(_) => Self::Leveled(LeveledOptions::of(sizes)),
            Self::Tiered(_) => Self::Tiered(runs),
            Self::LazyLeveled(_) => Self::LazyLeveled(runs),
            Self::SizeTiered(_) => Self::SizeTiered(runs),
            Self::SteppedMerge(_) => Self::SteppedMerge(runs),
            Self::Gear(_) => Self::Gear(PartsOptions::of(sizes)),
            Self::TwoPhase(_) => Self::TwoPhase(PartsOptions::of(sizes)),
        }
    }

    /// The same with sizes by which everything belongs into the last level.
    pub(crate) fn with_one_level(self) -> Self {
        let Some(sizes) = self.sizes_if_any() else { return self };
        let sizes = LevelSizes {
            base_level_bytes: NO_LEVEL_BYTES,
            expected_bytes: 0,
            l0_trigger: 1,
            ..sizes
        };
        self.assembled(sizes, RunsOptions::DEFAULT)
    }

    /// The sizes of levels; `None` if its levels collect runs.
    pub(crate) fn sizes_if_any(&self) -> Option<LevelSizes> {
        match self {
            Self::Leveled(options) => Some(options.sizes()),
            Self::Gear(options) | Self::TwoPhase(options) => Some(options.sizes()),
            _ => None,
        }
    }

    /// The options about runs; `None` if its levels have sizes.
    pub(crate) fn runs_if_any(&self) -> Option<RunsOptions> {
        match *self {
            Self::Tiered(options)
            | Self::LazyLeveled(options)
            | Self::SizeTiered(options)
            | Self::SteppedMerge(options) => Some(options),
            _ => None,
        }
    }

    /// The sizes of levels. Requires: the policy has them; else they are the defaults.
    pub(crate) fn level_sizes(&self) -> LevelSizes {
        self.sizes_if_any().unwrap_or(LevelSizes::DEFAULT)
    }

    /// The options about runs. Requires: the policy has them; else they are the defaults.
    pub(crate) fn runs(&self) -> RunsOptions {
        self.runs_if_any().unwrap_or_default()
    }

    /// Checks every option against its range.
    pub(super) fn validate(&self) -> Result<()> {
        if let Some(sizes) = self.sizes_if_any() {
            sizes.validate()?;
        }
        if let Some(runs) = self.runs_if_any() {
            in_range("runs_per_level", runs.runs_per_level, &RUNS_PER_LEVEL_RANGE)?;
        }
        Ok(())
    }
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        Self::leveled()
    }
}

impl From<LeveledOptions> for CompactionPolicy {
    fn from(options: LeveledOptions) -> Self {
        Self::Leveled(options)
    }
}

impl fmt::Display for CompactionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CompactionPolicy {
    type Err = Error;

    /// The policy of a [`name`](CompactionPolicy::name), with default options.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("there is no compaction policy {name:?}; choose one of {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    /// Goal: a change of the policy keeps what both have, and nothing else.
    #[test]
    fn a_change_of_the_policy_keeps_what_both_have() {
        let leveled = CompactionPolicy::from(LeveledOptions::default().level_ratio(7));
        let gear = CompactionPolicy::Gear(PartsOptions::default().level_ratio(7));
        let tiered = CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(6));
        let lazy = CompactionPolicy::LazyLeveled(RunsOptions::default().runs_per_level(6));
        assert_eq!(CompactionPolicy::gear().with_options_of(leveled), gear);
        assert_eq!(CompactionPolicy::lazy_leveled().with_options_of(tiered), lazy);
        assert_eq!(CompactionPolicy::tiered().with_options_of(leveled), CompactionPolicy::tiered());
        assert_eq!(leveled.with_options_of(tiered), leveled);
        for policy in CompactionPolicy::ALL {
            assert_eq!(policy.name().parse::<CompactionPolicy>().unwrap(), policy);
            assert_eq!(policy.with_options_of(policy), policy);
        }
    }

    /// Goal: every policy's options are checked against the ranges that the documentation names.
    #[test]
    fn options_of_policies_have_ranges() {
        let refused = |policy: CompactionPolicy| {
            let error = Options::default().compaction(policy).validate().unwrap_err().to_string();
            error.split(' ').nth(2).unwrap_or_default().to_owned()
        };
        for policy in CompactionPolicy::ALL {
            Options::default().compaction(policy).validate().unwrap();
        }
        let ratio = LeveledOptions::default().level_ratio(*LEVEL_RATIO_RANGE.end() + 1);
        assert_eq!(refused(CompactionPolicy::Leveled(ratio)), "level_ratio");
        let trigger = PartsOptions::default().l0_trigger(*L0_TRIGGER_RANGE.start() - 1);
        assert_eq!(refused(CompactionPolicy::TwoPhase(trigger)), "l0_trigger");
        let base = PartsOptions::default().base_level_bytes(*BASE_LEVEL_BYTES_RANGE.start() - 1);
        assert_eq!(refused(CompactionPolicy::Gear(base)), "base_level_bytes");
        let runs = RunsOptions::default().runs_per_level(*RUNS_PER_LEVEL_RANGE.start() - 1);
        assert_eq!(refused(CompactionPolicy::SizeTiered(runs)), "runs_per_level");
    }
}
