//! What came out of one workload, as numbers that a program can read.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::engine::Requests;
use crate::windows::Window;

/// The longest latency that is distinguished: one hour.
const LATENCY_MAX_NANOS: u64 = 3_600_000_000_000;

/// An empty histogram of nanoseconds with three significant digits. Its range is fixed: longer than
/// an hour counts as an hour with `saturating_record`.
///
/// # Panics
/// Never: bounds and digits are constants within hdrhistogram's range.
#[must_use]
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX_NANOS, 3)
        .expect("bounds and digits are within hdrhistogram's range")
}

/// Latencies of one kind of operation, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Operations measured.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Half of the operations took at most this long.
    pub p50_us: f64,
    /// 99 of 100 did.
    pub p99_us: f64,
    /// 999 of 1,000 did.
    pub p999_us: f64,
    /// The slowest one.
    pub max_us: f64,
}

impl Latency {
    /// The summary of a histogram of nanoseconds; `None` if it is empty.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        if histogram.is_empty() {
            return None;
        }
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        Some(Self {
            count: histogram.len(),
            mean_us: histogram.mean() / 1000.0,
            p50_us: micros(histogram.value_at_quantile(0.5)),
            p99_us: micros(histogram.value_at_quantile(0.99)),
            p999_us: micros(histogram.value_at_quantile(0.999)),
            max_us: micros(histogram.max()),
        })
    }
}

/// The result of one workload on one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The workload's name.
    pub workload: String,
    /// The engine's name.
    pub engine: String,
    /// Whether the engine ran with its own defaults instead of the common settings.
    pub engine_defaults: bool,
    /// Keys in the loaded store.
    pub num: u64,
    /// Bytes of a key.
    pub key_bytes: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Client threads, without the background writer.
    pub threads: u64,
    /// What fixed keys, values and order.
    pub seed: u64,
    /// Operations that the clients did. In `readseq` an operation is an entry.
    pub ops: u64,
    /// Operations that the background writer did meanwhile.
    pub background_ops: u64,
    /// Seconds of the same workload before, which only the process's bytes count.
    #[serde(default)]
    pub warm_seconds: f64,
    /// Seconds from the first operation to the last acknowledgement.
    pub seconds: f64,
    /// `ops` over `seconds`.
    pub ops_per_second: f64,
    /// Background writes over `seconds`.
    pub background_ops_per_second: f64,
    /// Seconds from the first operation until flushes and compactions were done too; equal to
    /// `seconds` for workloads that do not write.
    pub seconds_drained: f64,
    /// `ops` over `seconds_drained`.
    pub ops_per_second_drained: f64,
    /// Reads that found their key.
    pub found: u64,
    /// Reads that did not.
    pub missing: u64,
    /// Entries that scans returned.
    pub scanned: u64,
    /// Latencies by kind: `read`, `write`, `scan`, `background_write`; in `readseq`, `scan` is the
    /// time of 1,024 entries.
    pub latency: BTreeMap<String, Latency>,
    /// Bytes of keys and values that were written, the background writer's too.
    pub user_bytes: u64,
    /// Bytes that the engine says it wrote until it was drained.
    pub engine_bytes: Option<u64>,
    /// The same, by cause.
    pub engine_bytes_by_cause: BTreeMap<String, u64>,
    /// Requests to the engine's files until it was drained, by cause; only causes that had some.
    #[serde(default)]
    pub io_by_cause: BTreeMap<String, Requests>,
    /// Bytes that the process sent to storage until the engine was drained.
    pub process_bytes: Option<u64>,
    /// Engine bytes per user byte.
    pub engine_write_ratio: Option<f64>,
    /// Process bytes per user byte.
    pub process_write_ratio: Option<f64>,
    /// Part of the users' block reads that the engine's cache answered.
    pub hit_ratio: Option<f64>,
    /// What else the engine did for reads until it was drained, by name; only what it did.
    #[serde(default)]
    pub of_reads: BTreeMap<String, u64>,
    /// Bytes of the store's files at the end.
    pub directory_bytes: u64,
    /// Anonymous memory of the process at the end, in bytes.
    pub anonymous_bytes: Option<u64>,
    /// Each whole second of the workload, if the configuration asks for them.
    #[serde(default)]
    pub windows: Vec<Window>,
}

/// `part` over `whole`, if there is a whole.
pub(crate) fn ratio(part: Option<u64>, whole: u64) -> Option<f64> {
    let part = part?;
    (whole > 0).then(|| part as f64 / whole as f64)
}
