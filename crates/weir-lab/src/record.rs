//! What a run gives: samples of everything that is counted, one window apart.
//!
//! Counters only; what is derived from them is `measure`'s.

use serde::{Deserialize, Serialize};
use weir::defaults::LEVELS;
use weir::sim::TimedCounters;

/// Everything that is counted, as of one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Virtual seconds since the measured part began.
    pub seconds: f64,
    /// Operations that readers have done.
    pub reads: u64,
    /// Virtual nanoseconds that they took.
    pub read_nanos: u64,
    /// Operations that writers have done.
    pub writes: u64,
    /// Data blocks that users' reads found in the block cache, and did not find.
    pub hits: u64,
    /// See `hits`.
    pub misses: u64,
    /// Bytes in the block cache and how many it may hold.
    pub cache_bytes: u64,
    /// See `cache_bytes`.
    pub cache_capacity: u64,
    /// Bytes of keys and values that users wrote.
    pub user_bytes: u64,
    /// Bytes that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes that merges wrote.
    pub merged_bytes: u64,
    /// Bytes that merges read.
    pub merge_read_bytes: u64,
    /// Seconds that writers were delayed or stopped.
    pub stalled_seconds: f64,
    /// Virtual seconds that the writes of a replay took, waiting for the merges included.
    pub write_seconds: f64,
    /// Virtual seconds that its reads took.
    pub read_seconds: f64,
    /// Bytes in each level, and bytes that merges have written into it.
    pub levels: [[u64; 2]; LEVELS],
    /// What the disk counted.
    pub disk: Disk,
}

/// What the disk counted; see [`TimedCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Reads for users that reached the disk.
    pub user_reads: u64,
    /// Pages that users' reads found in the page cache.
    pub page_hits: u64,
    /// Pages that they did not find there.
    pub page_misses: u64,
    /// Time that all spindles were at work, together.
    pub busy_nanos: u64,
    /// Bytes of all tables, also of those that are removed but still open.
    pub table_bytes: u64,
}

impl From<TimedCounters> for Disk {
    fn from(counters: TimedCounters) -> Self {
        let TimedCounters { user_reads, page_hits, page_misses, busy_nanos, table_bytes, .. } =
            counters;
        Self { user_reads, page_hits, page_misses, busy_nanos, table_bytes }
    }
}

/// A measured phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// The place of its first sample, which is the last one of the phase before it.
    pub first: usize,
    /// The place of its last sample.
    pub last: usize,
}

/// What a run gives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Samples, one window apart; the first at the beginning of the measured part.
    pub samples: Vec<Sample>,
    /// The measured phases; none if the run was a list of operations.
    pub phases: Vec<Measured>,
    /// Bytes of all loaded entries.
    pub loaded_bytes: u64,
    /// Spindles of the disk.
    pub spindles: u64,
    /// Virtual seconds, warm-up included.
    pub virtual_seconds: f64,
    /// Real seconds; differs from time to time.
    pub real_seconds: f64,
    /// The levels at the end, from 0 on: runs, tables and bytes.
    pub levels: Vec<[u64; 3]>,
}

impl Record {
    /// The same, of a measured phase alone; `None` if there is none of that name.
    #[must_use]
    pub fn of_phase(&self, name: &str) -> Option<Self> {
        let phase = self.phases.iter().find(|phase| phase.name == name)?;
        let samples = self.samples.get(phase.first..=phase.last)?.to_vec();
        let whole = Measured { name: name.to_owned(), first: 0, last: samples.len() - 1 };
        Some(Self { samples, phases: vec![whole], ..self.clone() })
    }
}
