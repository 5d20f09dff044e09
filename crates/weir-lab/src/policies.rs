//! Compaction policies, with the options of each.
//!
//! `[settings.policies.gear]` has the options that `gear` looks at and no others, and so for each
//! policy: an option of another one is refused by its name. A run needs the tables of its own
//! policy and of the one that merges its load.

use serde::Deserialize;

/// A compaction policy of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// LevelDB's.
    Leveled,
    /// Every level collects runs.
    Tiered,
    /// Tiered above, one run in the last level.
    LazyLeveled,
    /// Neighbours in age of similar size are merged.
    SizeTiered,
    /// The SM-tree that LSbM is compared with.
    SteppedMerge,
    /// bLSM's.
    Gear,
    /// dLSM's.
    TwoPhase,
}

impl Policy {
    /// As files write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Leveled => "leveled",
            Self::Tiered => "tiered",
            Self::LazyLeveled => "lazy_leveled",
            Self::SizeTiered => "size_tiered",
            Self::SteppedMerge => "stepped_merge",
            Self::Gear => "gear",
            Self::TwoPhase => "two_phase",
        }
    }

    /// Whether its levels below level 0 are one run, or two parts of one, and have a size.
    #[must_use]
    pub fn has_level_sizes(self) -> bool {
        matches!(self, Self::Leveled | Self::Gear | Self::TwoPhase)
    }
}

/// Options of a policy whose levels below level 0 are one run, or two parts of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelOptions {
    /// Size ratio of levels.
    pub level_ratio: u32,
    /// Bytes of level 1: the paper's S1. Scaled.
    pub base_level_bytes: u64,
    /// Bytes for which levels are sized; 0: what the last one holds. Scaled.
    pub expected_bytes: u64,
    /// Runs in level 0 that start a merge.
    pub l0_trigger: usize,
}

/// Options of a policy whose levels collect runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunsOptions {
    /// Runs that make a level full.
    pub runs_per_level: usize,
}

/// A policy with its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// See [`Policy::Leveled`].
    Leveled(LevelOptions),
    /// See [`Policy::Tiered`].
    Tiered(RunsOptions),
    /// See [`Policy::LazyLeveled`].
    LazyLeveled(RunsOptions),
    /// See [`Policy::SizeTiered`].
    SizeTiered(RunsOptions),
    /// See [`Policy::SteppedMerge`].
    SteppedMerge(RunsOptions),
    /// See [`Policy::Gear`].
    Gear(LevelOptions),
    /// See [`Policy::TwoPhase`].
    TwoPhase(LevelOptions),
}

/// The options of policies, those of each in a table of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policies {
    leveled: Option<LevelOptions>,
    tiered: Option<RunsOptions>,
    lazy_leveled: Option<RunsOptions>,
    size_tiered: Option<RunsOptions>,
    stepped_merge: Option<RunsOptions>,
    gear: Option<LevelOptions>,
    two_phase: Option<LevelOptions>,
}

impl Policies {
    /// `policy` with its options.
    ///
    /// # Errors
    /// There is no table of its name.
    pub fn tree(&self, policy: Policy) -> Result<Tree, String> {
        let tree = match policy {
            Policy::Leveled => self.leveled.map(Tree::Leveled),
            Policy::Tiered => self.tiered.map(Tree::Tiered),
            Policy::LazyLeveled => self.lazy_leveled.map(Tree::LazyLeveled),
            Policy::SizeTiered => self.size_tiered.map(Tree::SizeTiered),
            Policy::SteppedMerge => self.stepped_merge.map(Tree::SteppedMerge),
            Policy::Gear => self.gear.map(Tree::Gear),
            Policy::TwoPhase => self.two_phase.map(Tree::TwoPhase),
        };
        tree.ok_or_else(|| format!("there is no [settings.policies.{}]", policy.name()))
    }

    /// The options of `trees` alone.
    pub(crate) fn of(trees: &[Tree]) -> Self {
        let mut all = Self::default();
        for &tree in trees {
            match tree {
                Tree::Leveled(options) => all.leveled = Some(options),
                Tree::Tiered(options) => all.tiered = Some(options),
                Tree::LazyLeveled(options) => all.lazy_leveled = Some(options),
                Tree::SizeTiered(options) => all.size_tiered = Some(options),
                Tree::SteppedMerge(options) => all.stepped_merge = Some(options),
                Tree::Gear(options) => all.gear = Some(options),
                Tree::TwoPhase(options) => all.two_phase = Some(options),
            }
        }
        all
    }

    /// Has every level but the last emptied: the smallest one has `bytes`, which none has, and
    /// level 0 gives what it gets.
    pub(crate) fn empty_inner_levels(&mut self, bytes: u64) {
        for levels in [&mut self.leveled, &mut self.gear, &mut self.two_phase].into_iter().flatten()
        {
            levels.base_level_bytes = bytes;
            levels.l0_trigger = 1;
        }
    }

    /// Divides what is scaled by `scale`.
    pub(crate) fn scale(&mut self, scale: u32) {
        for levels in [&mut self.leveled, &mut self.gear, &mut self.two_phase].into_iter().flatten()
        {
            levels.base_level_bytes = (levels.base_level_bytes / u64::from(scale)).max(1 << 10);
            levels.expected_bytes /= u64::from(scale);
        }
    }
}
