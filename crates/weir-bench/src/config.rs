//! How large a workload is and what its keys and values look like.

use crate::engine::EngineError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How a key number becomes bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyFormat {
    /// Eight bytes big-endian, then `0` characters (RocksDB's `db_bench`).
    #[default]
    Binary,
    /// Decimal digits, padded on the left with `0` (LevelDB's `db_bench`): keys share long
    /// prefixes.
    Decimal,
}

impl fmt::Display for KeyFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binary => "binary",
            Self::Decimal => "decimal",
        })
    }
}

impl FromStr for KeyFormat {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, EngineError> {
        match text {
            "binary" => Ok(Self::Binary),
            "decimal" => Ok(Self::Decimal),
            _ => Err(EngineError::new(format!("{text:?} is no key format: binary or decimal"))),
        }
    }
}

/// More operations than any number of seconds has.
pub(crate) const OPS_UNLIMITED: u64 = 1 << 40;

/// Most bytes of keys and values in a batch, 1 GiB: every engine takes that, and every client
/// thread holds one.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// The size of a workload. The defaults are those of the small comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Keys in the loaded store.
    pub num: u64,
    /// Operations of a workload that does not load, over all threads; 0: as many as `seconds` have,
    /// or else as many as `num`.
    pub ops: u64,
    /// Client threads. `readwhilewriting` and `rangehot` have one writer besides.
    pub threads: usize,
    /// Bytes of a key, 8 to 1,024 (decimal: 16 to 1,024).
    pub key_bytes: usize,
    /// How a key number becomes bytes.
    pub key_format: KeyFormat,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Size of a compressed value over its own size, 0 to 1; 1 cannot be compressed.
    pub compressibility: f64,
    /// Entries of one write of `fillseq`, `fillrandom` and `overwrite`; 1: single puts.
    pub batch: usize,
    /// Entries that `seekrandom` reads from each position.
    pub scan_entries: u64,
    /// Stop a workload that does not load after so many seconds, if `ops` are not done before.
    pub seconds: Option<f64>,
    /// Seconds of the same workload with other keys before what is measured, so that caches are
    /// filled and merges run; 0 for none. Not of workloads that load.
    pub warm_seconds: f64,
    /// Writes per second of the writer beside the readers (`readwhilewriting`, `rangehot`); 0: as
    /// fast as the engine takes them, so that a faster writer leaves its readers less of the disk.
    pub write_rate: u64,
    /// Keep what happened in each second (`Measurement::windows`): some 50 KiB of memory for each.
    pub windows: bool,
    /// Fixes keys, values and the order of operations.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            num: 1_000_000,
            ops: 0,
            threads: 1,
            key_bytes: 16,
            key_format: KeyFormat::Binary,
            value_bytes: 100,
            compressibility: 0.5,
            batch: 1,
            scan_entries: 10,
            seconds: None,
            warm_seconds: 0.0,
            write_rate: 0,
            windows: false,
            seed: 42,
        }
    }
}

impl Config {
    /// Checks every field against its range.
    ///
    /// # Errors
    /// A sentence that names the field as the programs' options do, its value and its range.
    pub fn validate(&self) -> Result<(), EngineError> {
        let key_bytes_min = match self.key_format {
            KeyFormat::Binary => 8,
            KeyFormat::Decimal => 16,
        };
        let wrong = |name: &str, value: &dyn fmt::Display, range: &str| {
            Err(EngineError::new(format!("--{name} is {value}; choose {range}")))
        };
        if !(1..=1 << 36).contains(&self.num) {
            return wrong("num", &self.num, "1 to 2^36");
        }
        if !(1..=256).contains(&self.threads) {
            return wrong("threads", &self.threads, "1 to 256");
        }
        if !(key_bytes_min..=1024).contains(&self.key_bytes) {
            return wrong("key-size", &self.key_bytes, &format!("{key_bytes_min} to 1024"));
        }
        if self.value_bytes > 1 << 24 {
            return wrong("value-size", &self.value_bytes, "0 to 16777216");
        }
        if !(0.0..=1.0).contains(&self.compressibility) {
            return wrong("compressibility", &self.compressibility, "0 to 1");
        }
        if !(1..=100_000).contains(&self.batch) {
            return wrong("batch", &self.batch, "1 to 100000");
        }
        let entry_bytes = self.key_bytes + self.value_bytes;
        let batch_max = BATCH_BYTES_MAX / entry_bytes;
        if self.batch > batch_max {
            let range = format!("1 to {batch_max} for entries of {entry_bytes} bytes");
            return wrong("batch", &self.batch, &range);
        }
        if let Some(seconds) = self.seconds
            && (!seconds.is_finite() || seconds <= 0.0)
        {
            return wrong("seconds", &seconds, "a number above 0");
        }
        if !self.warm_seconds.is_finite() || self.warm_seconds < 0.0 {
            return wrong("warm-seconds", &self.warm_seconds, "0 or more");
        }
        Ok(())
    }

    /// Operations of a workload that does not load.
    #[must_use]
    pub fn operations(&self) -> u64 {
        match (self.ops, self.seconds) {
            (0, None) => self.num,
            (0, Some(_)) => OPS_UNLIMITED,
            (ops, _) => ops,
        }
    }
}
