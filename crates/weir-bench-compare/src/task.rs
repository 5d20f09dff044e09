//! What a child is told and what it answers, as JSON between two processes of one build.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use weir_bench::{Config, Measurement, Settings};

/// Which settings the engines get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Row {
    /// The same for every engine.
    Equal,
    /// Each engine's own defaults.
    Defaults,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Equal => "equal",
            Self::Defaults => "defaults",
        })
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "equal" => Ok(Self::Equal),
            "defaults" => Ok(Self::Defaults),
            _ => Err(format!("{text:?} is no row: equal or defaults")),
        }
    }
}

/// Sizes that hold for every task of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    pub num: u64,
    pub ops: u64,
    pub threads: usize,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub batch: usize,
    pub scan_entries: u64,
    pub seconds: Option<f64>,
    pub warm_seconds: f64,
    pub write_rate: u64,
    pub seed: u64,
    pub write_buffer_bytes: u64,
    pub cache_bytes: u64,
    /// Of the cgroup, if there is one.
    pub memory_bytes: Option<u64>,
    pub block_bytes: u32,
    pub bloom_bits: u32,
    pub background_threads: usize,
    pub windows: bool,
    pub counts_hits: bool,
}

impl Default for Sizes {
    fn default() -> Self {
        let (config, settings) = (Config::default(), Settings::default());
        Self {
            num: config.num,
            ops: config.ops,
            threads: config.threads,
            key_bytes: config.key_bytes,
            value_bytes: config.value_bytes,
            batch: config.batch,
            scan_entries: config.scan_entries,
            seconds: config.seconds,
            warm_seconds: config.warm_seconds,
            write_rate: config.write_rate,
            seed: config.seed,
            write_buffer_bytes: settings.write_buffer_bytes,
            cache_bytes: settings.cache_bytes,
            memory_bytes: settings.memory_bytes,
            block_bytes: settings.block_bytes,
            bloom_bits: settings.bloom_bits,
            background_threads: settings.background_threads,
            windows: config.windows,
            counts_hits: settings.counts_hits,
        }
    }
}

impl Sizes {
    /// The workload's configuration.
    pub fn config(&self) -> Config {
        Config {
            num: self.num,
            ops: self.ops,
            threads: self.threads,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            batch: self.batch,
            scan_entries: self.scan_entries,
            seconds: self.seconds,
            warm_seconds: self.warm_seconds,
            write_rate: self.write_rate,
            windows: self.windows,
            seed: self.seed,
            ..Config::default()
        }
    }

    /// The engine's settings in `row`.
    pub fn settings(&self, row: Row) -> Settings {
        Settings {
            engine_defaults: row == Row::Defaults,
            write_buffer_bytes: self.write_buffer_bytes,
            cache_bytes: self.cache_bytes,
            memory_bytes: self.memory_bytes,
            block_bytes: self.block_bytes,
            bloom_bits: self.bloom_bits,
            background_threads: self.background_threads,
            counts_hits: self.counts_hits,
        }
    }
}

/// One workload on one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub engine: String,
    pub workload: String,
    pub row: Row,
    pub sizes: Sizes,
    /// Where the store is.
    pub dir: PathBuf,
    /// Whether the store holds every key.
    pub loaded: bool,
    /// The file that the answer goes to.
    pub answer: PathBuf,
    /// The cgroups to enter before anything else.
    pub cgroups: Vec<PathBuf>,
}

/// What a child measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub measurement: Measurement,
    /// Largest anonymous memory seen, sampled every 20 ms from before the store was opened.
    pub peak_anonymous_bytes: Option<u64>,
    /// Bytes that the whole child read from the device.
    pub device_read_bytes: Option<u64>,
    /// Read requests of the child at the device, if it is held to a number of them.
    #[serde(default)]
    pub device_reads: Option<u64>,
    /// Bytes that the whole child wrote to the device, opening and closing included.
    pub device_write_bytes: Option<u64>,
}
