//! What a run gives: samples of everything that is counted, one window apart.
//!
//! Counters only; what is derived from them is `measure`'s.

use std::collections::BTreeMap;
use std::ops::Range;

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
    /// Tables that readers looked into: those whose filter let a get through, those that a scan
    /// entered.
    pub tables: u64,
    /// Reads that looked into none.
    pub reads_without_tables: u64,
    /// Lookups that the row cache answered.
    pub row_hits: u64,
    /// Tables that scans entered as they began: the runs that they opened.
    pub runs: u64,
    /// Blocks that scans entered, from wherever they came.
    pub blocks: u64,
    /// Sentinels built.
    pub sentinels: u64,
    /// Those by which scans saved fewer blocks than were written for them.
    pub sentinels_unpaid: u64,
    /// Hot ranges that were merged down by a level.
    pub merged_down: u64,
    /// Lookups in runs that buffer lists answered.
    pub list_hits: u64,
    /// Keys that lists answer for: the parts that are cached in their list, in their run, and in
    /// both, in this order.
    pub copies: [f64; 3],
    /// The levels, from 0 on.
    pub levels: [LevelSample; LEVELS],
    /// Bytes read and written by the engine, by cause, in the order of [`CAUSES`].
    pub io: [[u64; 2]; CAUSES.len()],
    /// What the disk counted.
    pub disk: Disk,
}

/// Who reads and writes files; what is left over is `other`.
pub const CAUSES: [&str; 7] =
    ["users", "flush", "compaction", "log", "versions", "other", "sentinels"];

/// One level, as of one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelSample {
    /// Bytes of its tables.
    pub bytes: u64,
    /// Its runs.
    pub runs: u64,
    /// Entries of its tables.
    pub entries: u64,
    /// Bytes that merges have written into it.
    pub compacted: u64,
    /// Entries that they have dropped for newer ones.
    pub shadowed: u64,
}

/// What a group of clients did in one window, the one that ends with the sample of the same place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Operations.
    pub operations: u64,
    /// Virtual nanoseconds that they took, together.
    pub nanos: u64,
    /// How long they took, in nanoseconds to two digits, and how many took so long; ascending.
    pub latencies: Vec<(u64, u64)>,
}

/// What the disk counted; see [`TimedCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Reads for users that reached the disk.
    pub user_reads: u64,
    /// Bytes that they read there, and that others did.
    pub user_read_bytes: u64,
    /// See `user_read_bytes`.
    pub background_read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
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
        Self {
            user_reads: counters.user_reads,
            user_read_bytes: counters.user_read_bytes,
            background_read_bytes: counters.background_read_bytes,
            written_bytes: counters.written_bytes,
            page_hits: counters.page_hits,
            page_misses: counters.page_misses,
            busy_nanos: counters.busy_nanos,
            table_bytes: counters.table_bytes,
        }
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
    /// What each group of clients did, `readers.NAME` and `writers.NAME`: as many windows as
    /// samples.
    pub clients: BTreeMap<String, Vec<Work>>,
    /// Bytes of all loaded entries.
    pub loaded_bytes: u64,
    /// Their number.
    pub loaded_keys: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Virtual seconds that it took to open the store after a crash at the end; 0 without one.
    pub open_seconds: f64,
    /// Bytes of the log that were there then.
    pub open_log_bytes: u64,
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
        self.cut(name, phase.first..phase.last + 1)
    }

    /// The same, of these samples alone; `None` if there are none.
    #[must_use]
    pub fn cut(&self, name: &str, part: Range<usize>) -> Option<Self> {
        let samples = self.samples.get(part.clone()).filter(|part| !part.is_empty())?.to_vec();
        let whole = Measured { name: name.to_owned(), first: 0, last: samples.len() - 1 };
        let of_part = |(name, windows): (&String, &Vec<Work>)| {
            let windows = windows.get(part.clone()).unwrap_or_default();
            (name.clone(), windows.to_vec())
        };
        let clients = self.clients.iter().map(of_part).collect();
        Some(Self { samples, phases: vec![whole], clients, ..self.clone() })
    }

    /// The same, where the group `name` was alone; `None` if there is none of that name. What the
    /// engine and the disk count is everybody's still.
    #[must_use]
    pub fn of_clients(&self, name: &str) -> Option<Self> {
        let windows = self.clients.get(name)?.clone();
        let (mut operations, mut nanos) = (0, 0);
        let mut samples = self.samples.clone();
        for (sample, window) in samples.iter_mut().zip(&windows) {
            operations += window.operations;
            nanos += window.nanos;
            (sample.reads, sample.read_nanos, sample.writes) = match name.split_once('.') {
                Some(("readers", _)) => (operations, nanos, 0),
                _ => (0, 0, operations),
            };
        }
        Some(Self {
            samples,
            clients: BTreeMap::from([(name.to_owned(), windows)]),
            ..self.clone()
        })
    }
}
