//! The compaction buffer: which runs keep the tables that were merged into them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{
    CompactionPolicy, DEFAULT_TRIM_INTERVAL, DEFAULT_TRIM_THRESHOLD, TRIM_INTERVAL_RANGE,
    TRIM_THRESHOLD_RANGE, in_range,
};
use crate::base::error::{Error, Result};
use crate::base::ids::Level;

/// Whether runs keep, beside themselves on the device, the tables that were merged into them, so
/// that cached blocks of these serve reads while compactions rewrite the runs.
///
/// Costs no writes, but space, open files, memory for indexes and filters, and a filter probe for
/// each table kept over a key that the run holds. Filters of all levels but the last, whose tables
/// will be kept beside others, have log2(`level_ratio`) / ln 2 bits per key more than
/// [`bloom_bits`](super::Options::bloom_bits) says, 4.8 at a ratio of 10 (dLSM §V-A), as far as 32.
/// Kept tables are the first to go where space is
/// short, and leave with an update that hides most of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum CompactionBuffer {
    /// No run keeps any.
    #[default]
    Off,
    /// Every run below level 0 but the last one keeps all, until it is merged down itself (dLSM
    /// §IV-B), but of at most `level_ratio` merges: of the base level, which more flushes than that
    /// may fill, the newest. For `gear` and `two_phase`. The levels above the last take up to twice
    /// their space.
    Cascade,
    /// Every run below level 0 keeps those whose blocks are cached for the most part (LSbM §4). For
    /// `gear`, `two_phase` and `leveled`. Takes about as much space as the cache has bytes, and
    /// what each run was merged with last: up to 1 / `level_ratio` of the data, which is looked at
    /// when the next merge begins, or gives way where space is short.
    Trimmed(TrimOptions),
}

/// Options of [`CompactionBuffer::Trimmed`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrimOptions {
    /// The part of a table's blocks that must be cached for the table to be kept. Larger: less
    /// space, tables are given up sooner. Range: [`TRIM_THRESHOLD_RANGE`]. Default:
    /// [`DEFAULT_TRIM_THRESHOLD`].
    pub threshold: f32,
    /// Time from one look at the tables to the next. Shorter: less space, more looks, which cost
    /// some microseconds a table, and a sync if one is given up. Whole microseconds are kept.
    /// Range: [`TRIM_INTERVAL_RANGE`]. Default: [`DEFAULT_TRIM_INTERVAL`].
    pub interval: Duration,
}

impl Default for TrimOptions {
    fn default() -> Self {
        Self { threshold: DEFAULT_TRIM_THRESHOLD, interval: DEFAULT_TRIM_INTERVAL }
    }
}

impl TrimOptions {
    setters! {
        threshold: f32,
        interval: Duration,
    }
}

impl From<TrimOptions> for CompactionBuffer {
    fn from(options: TrimOptions) -> Self {
        Self::Trimmed(options)
    }
}

impl CompactionBuffer {
    /// All of them, with default options.
    pub const ALL: [Self; 3] = [
        Self::Off,
        Self::Cascade,
        Self::Trimmed(TrimOptions {
            threshold: DEFAULT_TRIM_THRESHOLD,
            interval: DEFAULT_TRIM_INTERVAL,
        }),
    ];

    /// `Trimmed` with default options.
    #[must_use]
    pub fn trimmed() -> Self {
        Self::Trimmed(TrimOptions::default())
    }

    /// The name that people write.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Cascade => "cascade",
            Self::Trimmed(_) => "trimmed",
        }
    }

    /// Whether a tree of this policy can have it.
    #[must_use]
    pub fn suits(self, policy: CompactionPolicy) -> bool {
        match self {
            Self::Off => true,
            Self::Cascade => {
                matches!(policy, CompactionPolicy::Gear(_) | CompactionPolicy::TwoPhase(_))
            }
            Self::Trimmed(_) => {
                Self::Cascade.suits(policy) || matches!(policy, CompactionPolicy::Leveled(_))
            }
        }
    }

    /// Whether tables stay only while they are cached for the most part.
    pub(crate) fn trims(self) -> bool {
        matches!(self, Self::Trimmed(_))
    }

    /// Whether runs of `level` keep tables.
    pub(crate) fn is_on(self, level: Level) -> bool {
        match self {
            Self::Off => false,
            Self::Cascade => level > Level::ZERO && level < Level::LAST,
            Self::Trimmed(_) => level > Level::ZERO,
        }
    }

    pub(super) fn validate(self, policy: CompactionPolicy) -> Result<()> {
        if !self.suits(policy) {
            let suits = |policy: &CompactionPolicy| self.suits(*policy);
            let policies = CompactionPolicy::ALL.into_iter().filter(suits);
            let names: Vec<_> = policies.map(CompactionPolicy::name).collect();
            let needs = match self {
                Self::Cascade => "which needs levels that are filled and then emptied, in turn",
                _ => "which needs levels that are merged down table by table in key order",
            };
            return Err(Error::invalid(format!(
                "compaction_buffer is {self}, {needs}, and {policy} has none; choose one of the \
                 policies {}, or turn the buffer off",
                names.join(", ")
            )));
        }
        if let Self::Trimmed(TrimOptions { threshold, interval }) = self {
            in_range("trim threshold", threshold, &TRIM_THRESHOLD_RANGE)?;
            if !TRIM_INTERVAL_RANGE.contains(&interval) {
                return Err(Error::invalid(format!(
                    "trim interval is {interval:?}; choose one from {:?} to {:?}",
                    TRIM_INTERVAL_RANGE.start(),
                    TRIM_INTERVAL_RANGE.end()
                )));
            }
        }
        Ok(())
    }
}

impl fmt::Display for CompactionBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CompactionBuffer {
    type Err = Error;

    /// The buffer of a [`name`](CompactionBuffer::name), with default options.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|buffer| buffer.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("there is no compaction buffer {name:?}; choose one of {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    /// Goal: what cannot work is refused with what would, and what is out of range with the range.
    #[test]
    fn combinations_and_ranges_are_checked() {
        let check = |buffer: CompactionBuffer, policy| {
            Options::default().compaction(policy).compaction_buffer(buffer).validate()
        };
        for buffer in CompactionBuffer::ALL {
            assert_eq!(buffer.name().parse::<CompactionBuffer>().unwrap(), buffer);
            for policy in CompactionPolicy::ALL {
                assert_eq!(
                    check(buffer, policy).is_ok(),
                    buffer.suits(policy),
                    "{buffer} {policy}"
                );
            }
        }
        let refused = check(CompactionBuffer::Cascade, CompactionPolicy::tiered()).unwrap_err();
        assert!(refused.to_string().contains("policies gear, two_phase, or turn the buffer off"));
        let refused = |options: TrimOptions| {
            let error = check(options.into(), CompactionPolicy::gear()).unwrap_err();
            assert!(error.to_string().contains("choose"), "{error}");
        };
        refused(TrimOptions::default().threshold(1.5));
        refused(TrimOptions::default().threshold(f32::NAN));
        refused(TrimOptions::default().interval(Duration::ZERO));
        assert!("on".parse::<CompactionBuffer>().unwrap_err().to_string().contains("cascade"));
    }
}
