//! Options of the tree that several commands take: its shape, what its filters get, and what its
//! compactions leave in the cache.
//!
//! They are stored in a store. One that is there keeps those that it has, but for what the command
//! line names: that is set, and said.

use crate::failure::{Failure, Result, parse};
use crate::show::parse_size;
use clap::Args;
use std::fmt::Display;
use std::io::Write;
use std::time::Duration;
use weir::{
    BucketRanges, CompactionBuffer, CompactionPolicy, CostModel, Filters, HotRanges, OddChunk,
    Options, Sentinels, WarmUp,
};

/// The shape of the tree.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TreeArgs {
    /// Shape of the tree: leveled, tiered, lazy_leveled, size_tiered, stepped_merge, gear or
    /// two_phase
    #[arg(long, value_name = "NAME", value_parser = parse::<CompactionPolicy>)]
    compaction: Option<CompactionPolicy>,
    /// How many times larger each level is than the one above, where levels have sizes
    #[arg(long, value_name = "RATIO")]
    level_ratio: Option<u32>,
    /// Bytes of the smallest level below level 0 (k, m, g), where levels have sizes
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    base_level_bytes: Option<u64>,
    /// Bytes for which levels are sized from the start (k, m, g), where levels have sizes
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    expected_bytes: Option<u64>,
    /// Runs in level 0 that start a compaction, where levels have sizes
    #[arg(long, value_name = "RUNS")]
    l0_trigger: Option<usize>,
    /// Runs that make a level full, where levels hold several runs
    #[arg(long, value_name = "RUNS")]
    runs_per_level: Option<usize>,
    /// How filter bits are divided over the runs: uniform or monkey
    #[arg(long, value_name = "NAME", value_parser = parse::<Filters>)]
    filters: Option<Filters>,
    /// What compactions put into the block cache: none, incremental (blocks over cached ones) or
    /// hand_off (blocks with entries that were read)
    #[arg(long, value_name = "NAME", value_parser = parse::<WarmUp>)]
    warm_up: Option<WarmUp>,
    /// Whether runs keep the tables merged into them for their cached blocks: off, cascade (gear
    /// and two_phase) or trimmed (these and leveled)
    #[arg(long, value_name = "NAME", value_parser = parse::<CompactionBuffer>)]
    compaction_buffer: Option<CompactionBuffer>,
    /// Part of a kept table's blocks that must be cached, 0 to 1, where it is trimmed
    #[arg(long, value_name = "PART")]
    trim_threshold: Option<f32>,
    /// Seconds between two looks at kept tables, where they are trimmed
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    trim_interval: Option<Duration>,
    /// Whether ranges that are read much from several runs are moved: off or on
    #[arg(long, value_name = "NAME", value_parser = parse::<Sentinels>)]
    sentinels: Option<Sentinels>,
    /// How many times more blocks reads must save than are written to move a range
    #[arg(long, value_name = "FACTOR")]
    theta: Option<f32>,
    /// How both are estimated: paper or corrected
    #[arg(long, value_name = "NAME", value_parser = parse::<CostModel>)]
    cost_model: Option<CostModel>,
    /// Ranges that are told apart: quantile:N (of the keys) or equal:N (of the key space)
    #[arg(long, value_name = "RANGES", value_parser = parse::<BucketRanges>)]
    buckets: Option<BucketRanges>,
    /// Seconds after which reads and writes count half
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    heat_window: Option<Duration>,
    /// Where hot ranges are moved: up, down or cheaper
    #[arg(long, value_name = "NAME", value_parser = parse::<HotRanges>)]
    hot_ranges: Option<HotRanges>,
    /// Most bytes that are moved up and still in level 0, such as 512m [default: twice what level 0
    /// has when its compaction is due]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    sentinel_bytes: Option<u64>,
    /// Seconds without a write after which all levels are merged down into the last one, where
    /// levels have sizes; 0: never
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    idle_compaction: Option<Duration>,
    /// Largest tables that compactions write, such as 4m
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    table_bytes: Option<u64>,
    /// Entries of one write buffer; unset: bytes alone decide
    #[arg(long, value_name = "ENTRIES")]
    write_buffer_entries: Option<u64>,
    /// How tables are cut to fit slots that are as large: off (slots are smaller), plain (the last
    /// table of a merge may be small), balanced, or upper (that stays in its level, where it may)
    #[arg(long, value_name = "NAME", value_parser = parse::<OddChunk>)]
    odd_chunk: Option<OddChunk>,
}

/// An option that some policies have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PolicyOption {
    LevelRatio(u32),
    BaseLevelBytes(u64),
    ExpectedBytes(u64),
    L0Trigger(usize),
    RunsPerLevel(usize),
}

impl PolicyOption {
    /// Its flag and the value given.
    fn typed(self) -> (&'static str, u64) {
        match self {
            Self::LevelRatio(ratio) => ("--level-ratio", ratio.into()),
            Self::BaseLevelBytes(bytes) => ("--base-level-bytes", bytes),
            Self::ExpectedBytes(bytes) => ("--expected-bytes", bytes),
            Self::L0Trigger(runs) => ("--l0-trigger", runs as u64),
            Self::RunsPerLevel(runs) => ("--runs-per-level", runs as u64),
        }
    }

    /// Sets it in `policy`, if that has it. Whether it has.
    pub(crate) fn set(self, policy: &mut CompactionPolicy) -> bool {
        use CompactionPolicy as P;
        match (policy, self) {
            (P::Leveled(o), Self::LevelRatio(ratio)) => o.level_ratio = ratio,
            (P::Leveled(o), Self::BaseLevelBytes(bytes)) => o.base_level_bytes = bytes,
            (P::Leveled(o), Self::ExpectedBytes(bytes)) => o.expected_bytes = bytes,
            (P::Leveled(o), Self::L0Trigger(runs)) => o.l0_trigger = runs,
            (P::Gear(o) | P::TwoPhase(o), Self::LevelRatio(ratio)) => o.level_ratio = ratio,
            (P::Gear(o) | P::TwoPhase(o), Self::BaseLevelBytes(bytes)) => {
                o.base_level_bytes = bytes;
            }
            (P::Gear(o) | P::TwoPhase(o), Self::ExpectedBytes(bytes)) => o.expected_bytes = bytes,
            (P::Gear(o) | P::TwoPhase(o), Self::L0Trigger(runs)) => o.l0_trigger = runs,
            (
                P::Tiered(o) | P::LazyLeveled(o) | P::SizeTiered(o) | P::SteppedMerge(o),
                Self::RunsPerLevel(runs),
            ) => o.runs_per_level = runs,
            _ => return false,
        }
        true
    }

    /// The policies that have it.
    fn policies(self) -> impl Iterator<Item = CompactionPolicy> {
        CompactionPolicy::ALL.into_iter().filter(move |policy| self.set(&mut { *policy }))
    }
}

impl TreeArgs {
    /// What was given, as it is typed.
    pub(crate) fn given(&self) -> Vec<String> {
        let compaction = flag("--compaction", self.compaction);
        let of_policy = self.policy_options().map(|option| {
            let (name, value) = option.typed();
            format!("{name} {value}")
        });
        let others = [
            flag("--filters", self.filters),
            flag("--warm-up", self.warm_up),
            flag("--compaction-buffer", self.compaction_buffer),
            flag("--trim-threshold", self.trim_threshold),
            flag("--trim-interval", self.trim_interval.map(|interval| interval.as_secs_f64())),
            flag("--sentinels", self.sentinels),
            flag("--theta", self.theta),
            flag("--cost-model", self.cost_model),
            flag("--buckets", self.buckets),
            flag("--heat-window", self.heat_window.map(|window| window.as_secs_f64())),
            flag("--hot-ranges", self.hot_ranges),
            flag("--sentinel-bytes", self.sentinel_bytes),
            flag("--idle-compaction", self.idle_compaction.map(|rest| rest.as_secs_f64())),
            flag("--table-bytes", self.table_bytes),
            flag("--write-buffer-entries", self.write_buffer_entries),
            flag("--odd-chunk", self.odd_chunk),
        ];
        compaction.into_iter().chain(of_policy).chain(others.into_iter().flatten()).collect()
    }

    /// The options given that some policies have.
    fn policy_options(&self) -> impl Iterator<Item = PolicyOption> {
        [
            self.level_ratio.map(PolicyOption::LevelRatio),
            self.base_level_bytes.map(PolicyOption::BaseLevelBytes),
            self.expected_bytes.map(PolicyOption::ExpectedBytes),
            self.l0_trigger.map(PolicyOption::L0Trigger),
            self.runs_per_level.map(PolicyOption::RunsPerLevel),
        ]
        .into_iter()
        .flatten()
    }

    /// The policy that is named; else one that has the first of the options given, to check the
    /// command line before it is known which policy a store has.
    pub(crate) fn fitting_policy(&self) -> CompactionPolicy {
        let fitting = || self.policy_options().next()?.policies().next();
        self.compaction.or_else(fitting).unwrap_or_default()
    }

    /// Gives `options` the policy that is named; what it shares with the one before stays.
    pub(crate) fn choose_policy(&self, options: &mut Options) {
        if let Some(compaction) = self.compaction {
            options.compaction = compaction.with_options_of(options.compaction);
        }
    }

    /// Sets what was given.
    ///
    /// # Errors
    /// An option that the policy does not have.
    pub(crate) fn apply(&self, options: &mut Options) -> Result<()> {
        self.choose_policy(options);
        for option in self.policy_options() {
            if !option.set(&mut options.compaction) {
                return Err(misplaced(option, options.compaction));
            }
        }
        if let Some(filters) = self.filters {
            options.filters = filters;
        }
        if let Some(warm_up) = self.warm_up {
            options.warm_up = warm_up;
        }
        if let Some(buffer) = self.compaction_buffer {
            let same = buffer.name() == options.compaction_buffer.name();
            options.compaction_buffer = if same { options.compaction_buffer } else { buffer };
        }
        if self.trim_threshold.is_some() || self.trim_interval.is_some() {
            let CompactionBuffer::Trimmed(trim) = &mut options.compaction_buffer else {
                return Err(Failure::usage(format_args!(
                    "--trim-threshold and --trim-interval are options of the compaction buffer \
                     trimmed, not of {}; choose it with --compaction-buffer",
                    options.compaction_buffer
                )));
            };
            trim.threshold = self.trim_threshold.unwrap_or(trim.threshold);
            trim.interval = self.trim_interval.unwrap_or(trim.interval);
        }
        self.apply_sentinels(options)?;
        if let Some(rest) = self.idle_compaction {
            options.idle_compaction = (!rest.is_zero()).then_some(rest);
        }
        options.table_bytes = self.table_bytes.unwrap_or(options.table_bytes);
        if self.write_buffer_entries.is_some() {
            options.debug.write_buffer_entries = self.write_buffer_entries;
        }
        options.debug.odd_chunk = self.odd_chunk.unwrap_or(options.debug.odd_chunk);
        Ok(())
    }
}

impl TreeArgs {
    /// Sets what was given of sentinels.
    fn apply_sentinels(&self, options: &mut Options) -> Result<()> {
        if let Some(sentinels) = self.sentinels {
            let same = sentinels.name() == options.sentinels.name();
            options.sentinels = if same { options.sentinels } else { sentinels };
        }
        let Self { theta, cost_model, buckets, heat_window, hot_ranges, sentinel_bytes, .. } =
            *self;
        let Sentinels::On(sentinels) = &mut options.sentinels else {
            let given = theta.is_some() || cost_model.is_some() || buckets.is_some();
            let given = given || heat_window.is_some() || hot_ranges.is_some();
            if given || sentinel_bytes.is_some() {
                return Err(Failure::usage(format_args!(
                    "--theta, --cost-model, --buckets, --heat-window, --hot-ranges and \
                     --sentinel-bytes are options of sentinels, which are off; turn them on with \
                     --sentinels on"
                )));
            }
            return Ok(());
        };
        sentinels.theta = theta.unwrap_or(sentinels.theta);
        sentinels.cost = cost_model.unwrap_or(sentinels.cost);
        sentinels.buckets = buckets.unwrap_or(sentinels.buckets);
        sentinels.window = heat_window.unwrap_or(sentinels.window);
        sentinels.ways = hot_ranges.unwrap_or(sentinels.ways);
        sentinels.bytes_max = sentinel_bytes.or(sentinels.bytes_max);
        Ok(())
    }
}

/// A number of seconds.
fn parse_seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

/// The refusal of an option that `policy` does not have.
fn misplaced(option: PolicyOption, policy: CompactionPolicy) -> Failure {
    let (flag, _) = option.typed();
    let names: Vec<_> = option.policies().map(CompactionPolicy::name).collect();
    Failure::usage(format_args!(
        "{flag} is an option of {}, not of {policy}; choose one of those with --compaction",
        names.join(", ")
    ))
}

/// An option of the command line with its value, if it was given.
pub(crate) fn flag(name: &str, value: Option<impl Display>) -> Option<String> {
    value.map(|value| format!("{name} {value}"))
}

/// Says that a store that was there was given other options.
pub(crate) fn say_set(given: &[String], json: bool, out: &mut dyn Write) -> Result<()> {
    say(&format!("set in the store, where it stays: {}", given.join(" ")), json, out)
}

/// Says `what` in a note: in the output, or on stderr if the output is for programs.
pub(crate) fn say(what: &str, json: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        eprintln!("weir: {what}");
    } else {
        writeln!(out, "note      {what}")?;
    }
    Ok(())
}
