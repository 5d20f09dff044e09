//! Default values and ranges of the options: the one home of both, which `validate` reads and the
//! documentation links to.

use std::ops::RangeInclusive;
use std::time::Duration;

pub use crate::base::limits::LEVELS;

/// Default of [`DbOptions::memory_budget`](super::DbOptions::memory_budget): 512 MiB.
pub const DEFAULT_MEMORY_BUDGET: u64 = 512 << 20;
/// Range of [`DbOptions::memory_budget`](super::DbOptions::memory_budget): 64 KiB (for tests; a
/// useful store wants 16 MiB and more) to 1 PiB.
pub const MEMORY_BUDGET_RANGE: RangeInclusive<u64> = 64 << 10..=1 << 50;
/// Default of [`DbOptions::background_threads`](super::DbOptions::background_threads).
pub const DEFAULT_BACKGROUND_THREADS: usize = 2;
/// Range of [`DbOptions::background_threads`](super::DbOptions::background_threads).
pub const BACKGROUND_THREADS_RANGE: RangeInclusive<usize> = 1..=64;
/// Default of [`DbOptions::log_segment_bytes`](super::DbOptions::log_segment_bytes): 64 MiB.
pub const DEFAULT_LOG_SEGMENT_BYTES: u64 = 64 << 20;
/// Range of [`DbOptions::log_segment_bytes`](super::DbOptions::log_segment_bytes): 4 KiB to 1 GiB.
pub const LOG_SEGMENT_BYTES_RANGE: RangeInclusive<u64> = 4 << 10..=1 << 30;
/// Default of [`DbOptions::log_area_bytes`](super::DbOptions::log_area_bytes): 1 GiB.
pub const DEFAULT_LOG_AREA_BYTES: u64 = 1 << 30;
/// Range of [`DbOptions::log_area_bytes`](super::DbOptions::log_area_bytes): 16 KiB to 1 PiB.
pub const LOG_AREA_BYTES_RANGE: RangeInclusive<u64> = 16 << 10..=1 << 50;
/// Range of [`DbOptions::open_files_max`](super::DbOptions::open_files_max).
pub const OPEN_FILES_MAX_RANGE: RangeInclusive<usize> = 4..=1 << 30;
/// Default of [`DebugDbOptions::version_log_bytes`](super::DebugDbOptions::version_log_bytes): 4
/// MiB.
pub const DEFAULT_VERSION_LOG_BYTES: u64 = 4 << 20;
/// Range of [`DebugDbOptions::version_log_bytes`](super::DebugDbOptions::version_log_bytes): 4 KiB
/// to 1 TiB.
pub const VERSION_LOG_BYTES_RANGE: RangeInclusive<u64> = 4 << 10..=1 << 40;
/// Range of [`DebugDbOptions::merge_read_bytes`](super::DebugDbOptions::merge_read_bytes): 4 KiB to
/// 1 GiB.
pub const MERGE_READ_BYTES_RANGE: RangeInclusive<u64> = 4 << 10..=1 << 30;
/// Default of [`DebugDbOptions::gap_entries`](super::DebugDbOptions::gap_entries): 64. A leap is a
/// seek, which costs about as many steps.
pub const DEFAULT_GAP_ENTRIES: usize = 64;
/// Range of [`DebugDbOptions::gap_entries`](super::DebugDbOptions::gap_entries): 1 and more.
pub const GAP_ENTRIES_RANGE: RangeInclusive<usize> = 1..=usize::MAX;

/// Default of [`Options::write_buffer_bytes`](super::Options::write_buffer_bytes): 64 MiB.
pub const DEFAULT_WRITE_BUFFER_BYTES: u64 = 64 << 20;
/// Range of [`Options::write_buffer_bytes`](super::Options::write_buffer_bytes): 4 KiB to 1 GiB.
pub const WRITE_BUFFER_BYTES_RANGE: RangeInclusive<u64> = 4 << 10..=1 << 30;
/// Range of [`DebugOptions::write_buffer_entries`](super::DebugOptions::write_buffer_entries): 1
/// and more.
pub const WRITE_BUFFER_ENTRIES_RANGE: RangeInclusive<u64> = 1..=u64::MAX;
/// Default of [`Options::immutables_max`](super::Options::immutables_max).
pub const DEFAULT_IMMUTABLES_MAX: usize = 4;
/// Range of [`Options::immutables_max`](super::Options::immutables_max).
pub const IMMUTABLES_MAX_RANGE: RangeInclusive<usize> = 1..=64;
/// Default of [`Options::block_bytes`](super::Options::block_bytes): 4 KiB.
pub const DEFAULT_BLOCK_BYTES: u32 = 4096;
/// Range of [`Options::block_bytes`](super::Options::block_bytes): 512 bytes to 1 MiB.
pub const BLOCK_BYTES_RANGE: RangeInclusive<u32> = 128..=1 << 20;
/// Default of [`Options::table_bytes`](super::Options::table_bytes): 32 MiB.
pub const DEFAULT_TABLE_BYTES: u64 = 32 << 20;
/// Range of [`Options::table_bytes`](super::Options::table_bytes): 1 KiB to 16 GiB.
pub const TABLE_BYTES_RANGE: RangeInclusive<u64> = 1 << 10..=16 << 30;
/// Where cached blocks are handed over, a table has at most this part of the block cache.
pub(crate) const CACHE_TABLES: u64 = 32;
/// Neither tables nor what a job takes of a level are made smaller than this for the cache's sake:
/// 2 MiB.
pub(crate) const CACHE_TABLE_BYTES_MIN: u64 = 2 << 20;
/// Default of [`Options::bloom_bits`](super::Options::bloom_bits), for every level.
pub const DEFAULT_BLOOM_BITS: f32 = 10.0;
/// Range of each of [`Options::bloom_bits`](super::Options::bloom_bits); 0 is no filter.
pub const BLOOM_BITS_RANGE: RangeInclusive<f32> = 0.0..=32.0;
/// How many entries [`Options::bloom_bits`](super::Options::bloom_bits) and
/// [`Options::compression`](super::Options::compression) may have: one for each level.
pub const PER_LEVEL_ENTRIES_RANGE: RangeInclusive<usize> = 0..=LEVELS;

/// Default of [`LeveledOptions::level_ratio`](super::LeveledOptions::level_ratio).
pub const DEFAULT_LEVEL_RATIO: u32 = 10;
/// Range of [`LeveledOptions::level_ratio`](super::LeveledOptions::level_ratio).
pub const LEVEL_RATIO_RANGE: RangeInclusive<u32> = 2..=100;
/// Default of [`LeveledOptions::base_level_bytes`](super::LeveledOptions::base_level_bytes): 64
/// MiB.
pub const DEFAULT_BASE_LEVEL_BYTES: u64 = 64 << 20;
/// Range of [`LeveledOptions::base_level_bytes`](super::LeveledOptions::base_level_bytes): 1 KiB
/// and more.
pub const BASE_LEVEL_BYTES_RANGE: RangeInclusive<u64> = 1 << 10..=u64::MAX;
/// Default of [`LeveledOptions::l0_trigger`](super::LeveledOptions::l0_trigger).
pub const DEFAULT_L0_TRIGGER: usize = 4;
/// Range of [`LeveledOptions::l0_trigger`](super::LeveledOptions::l0_trigger).
pub const L0_TRIGGER_RANGE: RangeInclusive<usize> = 1..=1000;
/// Default of [`RunsOptions::runs_per_level`](super::RunsOptions::runs_per_level).
pub const DEFAULT_RUNS_PER_LEVEL: usize = 4;
/// Range of [`RunsOptions::runs_per_level`](super::RunsOptions::runs_per_level).
pub const RUNS_PER_LEVEL_RANGE: RangeInclusive<usize> = 2..=100;

/// Default of [`TrimOptions::threshold`](super::TrimOptions::threshold): that of LSbM §6.1.
pub const DEFAULT_TRIM_THRESHOLD: f32 = 0.8;
/// Range of [`TrimOptions::threshold`](super::TrimOptions::threshold): 0 keeps every table.
pub const TRIM_THRESHOLD_RANGE: RangeInclusive<f32> = 0.0..=1.0;
/// Default of [`TrimOptions::interval`](super::TrimOptions::interval): that of LSbM §6.1.
pub const DEFAULT_TRIM_INTERVAL: Duration = Duration::from_secs(30);
/// Range of [`TrimOptions::interval`](super::TrimOptions::interval): a millisecond to a day.
pub const TRIM_INTERVAL_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60);
/// Range of [`Options::idle_compaction`](super::Options::idle_compaction): a millisecond to a day.
pub const IDLE_COMPACTION_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60);

/// Default of [`SentinelOptions::theta`](super::SentinelOptions::theta): that of BiLSM §4.1.
pub const DEFAULT_THETA: f32 = 1.0;
/// Range of [`SentinelOptions::theta`](super::SentinelOptions::theta): 0 moves whatever is read.
pub const THETA_RANGE: RangeInclusive<f32> = 0.0..=1e6;
/// Default number of [`SentinelOptions::buckets`](super::SentinelOptions::buckets): about that of
/// BiLSM §4.1.
pub const DEFAULT_BUCKETS: u32 = 512;
/// Range of the number of [`SentinelOptions::buckets`](super::SentinelOptions::buckets).
pub const BUCKETS_RANGE: RangeInclusive<u32> = 2..=16_384;
/// Default of [`SentinelOptions::window`](super::SentinelOptions::window).
pub const DEFAULT_HEAT_WINDOW: Duration = Duration::from_secs(30);
/// Range of [`SentinelOptions::window`](super::SentinelOptions::window): a millisecond to a day.
pub const HEAT_WINDOW_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60);
