//! Options: what a user may set, with unit, range, default and effect.
//!
//! `DbOptions` holds for a whole store and is never stored on disk; `Options` holds for one
//! keyspace, is stored with it, and is changed by `Keyspace::set_options` only. Defaults and ranges
//! are stated once, as constants (`defaults`).

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::place::TRAILER_BYTES;

/// Methods that set one field each and return the options, to be chained.
macro_rules! setters {
    ($($field:ident: $value:ty,)*) => {$(
        #[doc = concat!("Sets [`", stringify!($field), "`](field@Self::", stringify!($field), ").")]
        #[must_use]
        pub fn $field(mut self, $field: $value) -> Self {
            self.$field = $field.into();
            self
        }
    )*};
}

/// The names that people write for the variants of an option, and back.
macro_rules! names {
    ($option:ident, $what:literal: $($variant:ident $name:literal),+) => {
        impl $option {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name that people write.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl fmt::Display for $option {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $option {
            type Err = Error;

            /// The variant with a [`name`](Self::name).
            fn from_str(name: &str) -> Result<Self> {
                Self::ALL.into_iter().find(|option| option.name() == name).ok_or_else(|| {
                    let names = Self::ALL.map(Self::name).join(", ");
                    let what = $what;
                    Error::invalid(format!("there is no {what} {name:?}; choose one of {names}"))
                })
            }
        }
    };
}

pub(crate) mod buffer;
pub(crate) mod compaction;
pub mod defaults;
pub(crate) mod odd_chunk;
pub(crate) mod sentinels;

pub use buffer::{CompactionBuffer, TrimOptions};
pub use compaction::{CompactionPolicy, LeveledOptions, PartsOptions, RunsOptions};
use defaults::*;
pub use odd_chunk::OddChunk;
pub use sentinels::{BucketRanges, CostModel, HotRanges, SentinelOptions, Sentinels};

/// How much a write must survive before it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Durability {
    /// Memtable only: lost at a process crash unless flushed before, also if a later write is kept.
    /// A batch over several keyspaces is refused: each of them is flushed by itself, so that a
    /// crash could leave half of a batch that is not in the log.
    None,
    /// In a buffer of the log in this process (LDS, section 5.1): lost if the process is killed or
    /// ends without closing the store, but never kept without every logged write before it. It goes
    /// to the operating system with the next write that asks for more, at 64 KiB, after about 100
    /// ms (later if all background threads are inside one flush), and when writers stall, a
    /// memtable is frozen, or the store is synced or closed. Saves a call of the operating system
    /// per commit group, some hundred nanoseconds to a microsecond. If that later write to the log
    /// fails, what was acknowledged is missing from it, and the store is poisoned.
    Deferred,
    /// In the log, in the operating system's hands: survives a process kill, not a power loss.
    #[default]
    Buffered,
    /// In the log, on stable storage: survives power loss.
    Sync,
}

names! { Durability, "durability":
    None "none", Deferred "deferred", Buffered "buffered", Sync "sync"
}

/// Compression of data blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Blocks are stored as they are.
    #[default]
    None,
    /// LZ4 block format; needs the cargo feature `lz4` (on by default).
    Lz4,
    /// Zstandard at level 3; needs the cargo feature `zstd`, which links a C library.
    Zstd,
}

names! { Compression, "compression": None "none", Lz4 "lz4", Zstd "zstd" }

/// How filter bits are divided over the runs of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filters {
    /// Each level has what `bloom_bits` says.
    #[default]
    Uniform,
    /// About as many bits in all as if every entry had `bloom_bits` of level 0 (within a fifth),
    /// but small runs get more per key and large ones fewer, so that fewer lookups read a block for
    /// nothing (Monkey, SIGMOD 2017, section 4.1). `bloom_bits` of other levels are not looked at.
    /// Ascending keys cost a rewrite per level, where tables would otherwise only be moved: they
    /// get smaller filters on their way down.
    Monkey,
}

names! { Filters, "division of filter bits": Uniform "uniform", Monkey "monkey" }

/// What becomes of cached blocks when a compaction replaces their tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WarmUp {
    /// They are lost; readers fill the cache again.
    None,
    /// Every block that a compaction writes goes into the cache if its key range overlaps that of a
    /// cached block that it replaces (LSbM §6.3.1 compares with it). Costs no reads, but cold
    /// blocks beside hot ones go in too and drive others out.
    Incremental,
    /// Blocks that a compaction writes go into the cache if users have lately read one of their
    /// entries, in the place of the cached blocks that the entries come from; an entry that hides
    /// a read one counts as read. Costs no reads, and no more of the cache than the replaced blocks
    /// had; where nothing is cached, nothing. Blocks of a flush go in if their range is cached for
    /// the most part. In a file or on a block device ([`format`](crate::format)), whose tables the
    /// page cache does not see, what a flush or a compaction writes while users read goes in, read
    /// or not, if a 16th of the cache is free or the whole store fits in three quarters of it. A
    /// block in the cache takes 32 bytes more for it, whatever this is.
    #[default]
    HandOff,
}

names! {
    WarmUp, "warm-up": None "none", Incremental "incremental", HandOff "hand_off"
}

/// Options of a whole store.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DbOptions {
    /// Create the store if there is none. Default: true.
    /// RocksDB: `create_if_missing`.
    pub create_if_missing: bool,
    /// Refuse to open a store that exists. Default: false.
    /// RocksDB: `error_if_exists`.
    pub error_if_exists: bool,
    /// Open for reading only: no recovery is written, no background work runs. Default: false.
    pub read_only: bool,
    /// Memory for memtables, caches, indexes, filters, jobs and pinned blocks together, in bytes. A
    /// process keeps up to 8 MiB of freed buffers beside it.
    /// Range: [`MEMORY_BUDGET_RANGE`]. Default: [`DEFAULT_MEMORY_BUDGET`].
    pub memory_budget: u64,
    /// Bytes of the block cache inside the budget, from 0 to what the row cache leaves; `None`:
    /// what the other users leave, at least a quarter of the budget. Default: `None`.
    /// RocksDB: `LRUCacheOptions::capacity`.
    pub block_cache_bytes: Option<u64>,
    /// Bytes of the row cache, which is taken off the budget first; at most half of it. It answers
    /// point lookups of keys that were read before without searching tables, also after compactions
    /// have rewritten them; scans, snapshots and `multi_get` do not use it. Pays if the keys that
    /// are read again and again lie far apart, so that blocks would cache mostly their neighbours.
    /// Default: 0, which is off.
    /// RocksDB: `row_cache`.
    pub row_cache_bytes: u64,
    /// Threads for flushes and compactions. Range: [`BACKGROUND_THREADS_RANGE`]. Default:
    /// [`DEFAULT_BACKGROUND_THREADS`].
    /// RocksDB: `max_background_jobs`.
    pub background_threads: usize,
    /// Most bytes of one write-ahead log segment. Whatever is set, a segment has at most a quarter
    /// of `log_area_bytes`, so that there are several to let go of one by one: more is accepted,
    /// and has no effect. The first ones of an opening are smaller, from 128 KiB on, and where
    /// writers sync, a segment takes at most 4 MiB unless one group of theirs needs more. Range:
    /// [`LOG_SEGMENT_BYTES_RANGE`]. Default: [`DEFAULT_LOG_SEGMENT_BYTES`].
    pub log_segment_bytes: u64,
    /// Bytes that all live log segments may take; a keyspace that pins the oldest segment while the
    /// log has more than half of it is flushed, and earlier if the log is long for the little that
    /// it holds. A batch that is larger is written all the same, and what waits for flushes that
    /// are slower than writers stays in the log. A quarter of it bounds a log segment, whatever
    /// `log_segment_bytes` says, and a value. Range: [`LOG_AREA_BYTES_RANGE`]. Default:
    /// [`DEFAULT_LOG_AREA_BYTES`]; in a store in a file or on a device at most the area that it was
    /// formatted with, which writers do not leave: they wait for flushes, and a batch that does not
    /// fit is refused.
    /// RocksDB: `max_total_wal_size`.
    pub log_area_bytes: u64,
    /// Tables that are open at once, besides those that are being read at the moment: each takes a
    /// descriptor, and its index and filter in memory. One that is closed is opened again by a read
    /// of its end. `None`: half of the descriptors that the process may have; the soft limit
    /// (`ulimit -n`) is raised to the hard one. Range: [`OPEN_FILES_MAX_RANGE`]. Default: `None`.
    /// RocksDB: `max_open_files`.
    pub open_files_max: Option<usize>,
    /// Whether slots that become free are given back to what is below, by a hole in the file or,
    /// on a block device, zeros that the device may keep by forgetting; for stores in a file or on
    /// a block device ([`format`](crate::format)) only. Each removed table costs a request. In a
    /// file, others can take the space then, and the next use of the slots may find none. A
    /// device that cannot is asked once. Default: false.
    pub discard: bool,
    /// What tests and experiments set. Default: as no test needs it.
    pub debug: DebugDbOptions,
}

/// Options of a whole store for tests and experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DebugDbOptions {
    /// Re-read every table after it was written and compare it with what was meant. Costs one read
    /// of all written bytes. Default: false.
    /// RocksDB: `paranoid_file_checks`.
    pub verify_outputs: bool,
    /// Bytes of the version log after which a new base is written. Range:
    /// [`VERSION_LOG_BYTES_RANGE`]. Default: [`DEFAULT_VERSION_LOG_BYTES`].
    /// RocksDB: `max_manifest_file_size`.
    pub version_log_bytes: u64,
    /// Most bytes of one read of a merge. Smaller: more requests. `None`: a share of the memory
    /// budget, 256 KiB to 1 MiB. Range: [`MERGE_READ_BYTES_RANGE`]. Default: `None`.
    /// RocksDB: `compaction_readahead_size`.
    pub merge_read_bytes: Option<u64>,
    /// Whether flushes hand blocks over to the cache where compactions do
    /// ([`WarmUp::HandOff`]): those over cached blocks. Default: true.
    pub hand_over_flushes: bool,
    /// Deleted or overwritten entries in a row after which a scan remembers their range, so that
    /// later ones leap over it. Range: [`GAP_ENTRIES_RANGE`]. Default:
    /// [`DEFAULT_GAP_ENTRIES`].
    pub gap_entries: usize,
    /// Bytes of outputs after which a merge is installed and goes on, in stretches, although all of
    /// it fits into free space; not where there are buffer lists. `None`: merges are cut where they
    /// do not fit only. Range: any. Default: `None`.
    pub stretch_bytes: Option<u64>,
}

impl Default for DebugDbOptions {
    fn default() -> Self {
        Self {
            verify_outputs: false,
            version_log_bytes: DEFAULT_VERSION_LOG_BYTES,
            merge_read_bytes: None,
            hand_over_flushes: true,
            gap_entries: DEFAULT_GAP_ENTRIES,
            stretch_bytes: None,
        }
    }
}

impl DebugDbOptions {
    setters! {
        verify_outputs: bool,
        version_log_bytes: u64,
        merge_read_bytes: impl Into<Option<u64>>,
        hand_over_flushes: bool,
        gap_entries: usize,
        stretch_bytes: impl Into<Option<u64>>,
    }
}

impl Default for DbOptions {
    fn default() -> Self {
        Self {
            create_if_missing: true,
            error_if_exists: false,
            read_only: false,
            memory_budget: DEFAULT_MEMORY_BUDGET,
            block_cache_bytes: None,
            row_cache_bytes: 0,
            background_threads: DEFAULT_BACKGROUND_THREADS,
            log_segment_bytes: DEFAULT_LOG_SEGMENT_BYTES,
            log_area_bytes: DEFAULT_LOG_AREA_BYTES,
            discard: false,
            open_files_max: None,
            debug: DebugDbOptions::default(),
        }
    }
}

impl DbOptions {
    setters! {
        create_if_missing: bool,
        error_if_exists: bool,
        read_only: bool,
        memory_budget: u64,
        block_cache_bytes: impl Into<Option<u64>>,
        row_cache_bytes: u64,
        background_threads: usize,
        log_segment_bytes: u64,
        log_area_bytes: u64,
        open_files_max: impl Into<Option<usize>>,
        discard: bool,
        debug: DebugDbOptions,
    }
}

/// `duration` as it can be stored: less by a fraction of a microsecond. The ends of the ranges are
/// whole, so it stays within.
fn in_whole_micros(duration: Duration) -> Duration {
    duration.saturating_sub(Duration::from_nanos(u64::from(duration.subsec_nanos() % 1000)))
}

/// Options of one keyspace.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of one memtable before it is flushed, at most a quarter of the memory budget whatever
    /// is set. Larger: fewer, larger level-0 tables, more memory. Range:
    /// [`WRITE_BUFFER_BYTES_RANGE`]. Default: [`DEFAULT_WRITE_BUFFER_BYTES`].
    /// RocksDB: `write_buffer_size`.
    pub write_buffer_bytes: u64,
    /// Memtables that may wait for their flush before writers wait. When they do, writers of other
    /// keyspaces wait behind them: all share one log. Range: [`IMMUTABLES_MAX_RANGE`]. Default:
    /// [`DEFAULT_IMMUTABLES_MAX`].
    /// RocksDB: `max_write_buffer_number` - 1, which counts the active one too.
    pub immutables_max: usize,
    /// The shape of the tree, with the options of the policy that keeps it. Default: leveled.
    /// RocksDB: `compaction_style`.
    pub compaction: CompactionPolicy,
    /// Bytes of a data block before compression. Larger: smaller indexes, more bytes read per miss.
    /// Range: [`BLOCK_BYTES_RANGE`]. Default: [`DEFAULT_BLOCK_BYTES`].
    /// RocksDB: `block_size`.
    pub block_bytes: u32,
    /// Target bytes of a table below level 0. Larger: fewer files and syncs, more to merge at a
    /// time. With [`WarmUp::HandOff`] and a policy that merges single tables on it is at most a
    /// 32nd of the block cache (of a third of the memory budget, if no size of the cache is set),
    /// which counts as 2 MiB if it is less: a cache survives merges of which it holds inputs and
    /// outputs. A tree that the cache holds twice has no such bound. Range: [`TABLE_BYTES_RANGE`].
    /// Default: [`DEFAULT_TABLE_BYTES`]. RocksDB: `target_file_size_base`.
    pub table_bytes: u64,
    /// Bits per key of the Bloom filter, one entry per level, the last repeats. An empty list is no
    /// filter. Range: [`BLOOM_BITS_RANGE`]. Default: [`DEFAULT_BLOOM_BITS`] on every level.
    /// RocksDB: `NewBloomFilterPolicy`.
    pub bloom_bits: Vec<f32>,
    /// How filter bits are divided over the runs of the tree. Default: [`Filters::Uniform`], as
    /// `bloom_bits` says.
    pub filters: Filters,
    /// Compression, one entry per level, the last repeats; an empty list is none. Default: none.
    /// RocksDB: `compression_per_level`.
    pub compression: Vec<Compression>,
    /// What of a compaction's output goes into the block cache. Default: [`WarmUp::HandOff`].
    /// RocksDB: `prepopulate_block_cache`, which puts whole tables in.
    pub warm_up: WarmUp,
    /// Whether runs keep the tables that were merged into them for the blocks that are cached.
    /// Default: [`CompactionBuffer::Off`].
    pub compaction_buffer: CompactionBuffer,
    /// Whether reads and writes are counted by range, and ranges that are read much from several
    /// runs are moved so that they lie in fewer. Default: [`Sentinels::Off`].
    pub sentinels: Sentinels,
    /// After so long without a write to the keyspace, its levels are merged down until all of it is
    /// in the last one, so that scans read one run (dLSM §VI); `None`: only what compaction asks
    /// for is merged. Stops when writes come, after the compactions that run; nothing waits for it,
    /// neither [`Db::wait_idle`](crate::Db::wait_idle) nor writers. Costs a rewrite of what is
    /// above the last level, and of what it overlaps there, once for each rest in which there is
    /// any. For policies whose levels have sizes. Whole microseconds are kept. Range:
    /// [`IDLE_COMPACTION_RANGE`]. Default: `None`.
    pub idle_compaction: Option<Duration>,
    /// What tests and experiments set. Default: as no test needs it.
    pub debug: DebugOptions,
}

/// Options of one keyspace for tests and experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DebugOptions {
    /// Entries in one memtable before it is flushed; `None`: no limit by count. Range:
    /// [`WRITE_BUFFER_ENTRIES_RANGE`]. Default: `None`.
    pub write_buffer_entries: Option<u64>,
    /// How merges cut their outputs where a slot is as large as a table, in a store in a file or on
    /// a block device that was formatted with slots of [`table_bytes`](field@Options::table_bytes)
    /// (LDS §3.4). It costs up to a tenth of the space, against slots of a sixteenth of a table and
    /// less. Of merges only: a flush may take a second slot, and so may what a repair builds again.
    /// What is kept back of a full device is for such slots and entries of up to 200 KiB; with
    /// others merges may find no space. A merge that leaves an odd chunk above adds nothing to
    /// buffer lists. Default: [`OddChunk::Off`].
    pub odd_chunk: OddChunk,
}

impl DebugOptions {
    setters! {
        write_buffer_entries: impl Into<Option<u64>>,
        odd_chunk: OddChunk,
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            write_buffer_bytes: DEFAULT_WRITE_BUFFER_BYTES,
            immutables_max: DEFAULT_IMMUTABLES_MAX,
            compaction: CompactionPolicy::default(),
            block_bytes: DEFAULT_BLOCK_BYTES,
            table_bytes: DEFAULT_TABLE_BYTES,
            bloom_bits: vec![DEFAULT_BLOOM_BITS],
            filters: Filters::Uniform,
            compression: vec![Compression::None],
            warm_up: WarmUp::default(),
            compaction_buffer: CompactionBuffer::Off,
            sentinels: Sentinels::Off,
            idle_compaction: None,
            debug: DebugOptions::default(),
        }
    }
}

/// Entry `level` of a list whose last element repeats.
fn per_level<T: Copy>(list: &[T], level: usize, empty: T) -> T {
    list.get(level).or(list.last()).copied().unwrap_or(empty)
}

impl Options {
    setters! {
        write_buffer_bytes: u64,
        immutables_max: usize,
        compaction: impl Into<CompactionPolicy>,
        block_bytes: u32,
        table_bytes: u64,
        bloom_bits: impl Into<Vec<f32>>,
        filters: Filters,
        compression: impl Into<Vec<Compression>>,
        warm_up: WarmUp,
        compaction_buffer: impl Into<CompactionBuffer>,
        sentinels: impl Into<Sentinels>,
        idle_compaction: impl Into<Option<Duration>>,
        debug: DebugOptions,
    }

    /// Target bytes of a table where single tables are merged on, beside a cache of `cache_bytes`.
    ///
    /// A job is a table and what it meets in the next level, some four to ten, and until it ends
    /// the cache holds the warm blocks of its inputs and of its outputs. Held to 1,000 read
    /// requests a second with a hot range of half the cache, jobs of twice the cache lost half of
    /// what was cached each time, and jobs of a sixth of it nothing: 2.9 times the reads
    /// (docs/benchmarks.md).
    pub(crate) fn table_bytes_beside(&self, cache_bytes: u64) -> u64 {
        if let Some(room) = self.slot_room() {
            // A smaller table would take the same slot.
            return room;
        }
        let of_cache = self.share_of_cache(cache_bytes, CACHE_TABLES);
        self.table_bytes.clamp(1, of_cache.max(CACHE_TABLE_BYTES_MIN))
    }

    /// Bytes of the largest table that a slot of `table_bytes` has room for, beside its trailer;
    /// `None` where tables are not made to fit slots. Slots have 64 KiB and more: what is smaller
    /// is for tests.
    pub(crate) fn slot_room(&self) -> Option<u64> {
        let trailer = TRAILER_BYTES.min(self.table_bytes / 2);
        (self.debug.odd_chunk != OddChunk::Off).then(|| (self.table_bytes - trailer).max(1))
    }

    /// A part of the block cache, where merges hand cached blocks over; otherwise no bound.
    pub(crate) fn share_of_cache(&self, cache_bytes: u64, divisor: u64) -> u64 {
        let is_bound = self.warm_up == WarmUp::HandOff && cache_bytes > 0;
        if is_bound { cache_bytes / divisor } else { u64::MAX }
    }

    /// Bits per key that `filters` divides over the runs; `None`: each level has its own.
    pub(crate) fn divided_bits(&self) -> Option<f32> {
        (self.filters == Filters::Monkey).then(|| self.bloom_bits_at(0))
    }

    /// Filter bits per key on `level`.
    #[must_use]
    pub fn bloom_bits_at(&self, level: usize) -> f32 {
        per_level(&self.bloom_bits, level, 0.0)
    }

    /// Compression on `level`.
    #[must_use]
    pub fn compression_at(&self, level: usize) -> Compression {
        per_level(&self.compression, level, Compression::None)
    }

    /// Checks every option against its range.
    ///
    /// # Errors
    /// `InvalidArgument` with the option's name, its value and its range; `Unsupported` for a
    /// compression that was not built in.
    pub fn validate(&self) -> Result<()> {
        self.check_ranges()?;
        self.compression.iter().try_for_each(|c| c.available())
    }

    /// The options as they are stored, if each is in its range.
    ///
    /// # Errors
    /// As [`Options::validate`].
    pub(crate) fn taken_in(mut self) -> Result<Self> {
        self.validate()?;
        if let CompactionBuffer::Trimmed(trim) = &mut self.compaction_buffer {
            trim.interval = in_whole_micros(trim.interval);
        }
        if let Sentinels::On(sentinels) = &mut self.sentinels {
            sentinels.window = in_whole_micros(sentinels.window);
        }
        self.idle_compaction = self.idle_compaction.map(in_whole_micros);
        Ok(self)
    }

    /// Checks every option against its range; whether this build has what it names is not asked.
    ///
    /// # Errors
    /// `InvalidArgument` with the option's name, its value and its range.
    pub(crate) fn check_ranges(&self) -> Result<()> {
        in_range("write_buffer_bytes", self.write_buffer_bytes, &WRITE_BUFFER_BYTES_RANGE)?;
        if let Some(entries) = self.debug.write_buffer_entries {
            in_range("write_buffer_entries", entries, &WRITE_BUFFER_ENTRIES_RANGE)?;
        }
        in_range("immutables_max", self.immutables_max, &IMMUTABLES_MAX_RANGE)?;
        in_range("block_bytes", self.block_bytes, &BLOCK_BYTES_RANGE)?;
        in_range("table_bytes", self.table_bytes, &TABLE_BYTES_RANGE)?;
        self.compaction.validate()?;
        self.compaction_buffer.validate(self.compaction)?;
        self.sentinels.validate(self.compaction)?;
        self.debug.odd_chunk.validate(self.compaction)?;
        if let Some(rest) = self.idle_compaction {
            if self.compaction.sizes_if_any().is_none() {
                return Err(Error::invalid(format!(
                    "idle_compaction is set, which needs levels with sizes, and {} has none; \
                     choose leveled, gear or two_phase, or leave it unset",
                    self.compaction
                )));
            }
            let (low, high) = (IDLE_COMPACTION_RANGE.start(), IDLE_COMPACTION_RANGE.end());
            if !IDLE_COMPACTION_RANGE.contains(&rest) {
                return Err(Error::invalid(format!(
                    "idle_compaction is {rest:?}; choose {low:?} to {high:?}"
                )));
            }
        }
        in_range("number of bloom_bits", self.bloom_bits.len(), &PER_LEVEL_ENTRIES_RANGE)?;
        in_range("number of compressions", self.compression.len(), &PER_LEVEL_ENTRIES_RANGE)?;
        self.bloom_bits.iter().try_for_each(|&bits| in_range("bloom_bits", bits, &BLOOM_BITS_RANGE))
    }
}

impl Compression {
    /// Whether this build can read and write it.
    ///
    /// # Errors
    /// `Unsupported` with the cargo feature that is missing.
    pub(crate) fn available(self) -> Result<()> {
        let feature = match self {
            Self::Lz4 if !cfg!(feature = "lz4") => "lz4",
            Self::Zstd if !cfg!(feature = "zstd") => "zstd",
            _ => return Ok(()),
        };
        Err(Error::new(
            crate::base::error::ErrorKind::Unsupported,
            format!(
                "this build has no {feature} compression; build it with the cargo feature \
                 `{feature}`"
            ),
        ))
    }
}

impl DbOptions {
    /// Checks every option against its range.
    ///
    /// # Errors
    /// `InvalidArgument` with the option's name, its value and its range.
    pub fn validate(&self) -> Result<()> {
        in_range("memory_budget", self.memory_budget, &MEMORY_BUDGET_RANGE)?;
        in_range("background_threads", self.background_threads, &BACKGROUND_THREADS_RANGE)?;
        in_range("log_segment_bytes", self.log_segment_bytes, &LOG_SEGMENT_BYTES_RANGE)?;
        in_range("log_area_bytes", self.log_area_bytes, &LOG_AREA_BYTES_RANGE)?;
        in_range("version_log_bytes", self.debug.version_log_bytes, &VERSION_LOG_BYTES_RANGE)?;
        if let Some(bytes) = self.debug.merge_read_bytes {
            in_range("merge_read_bytes", bytes, &MERGE_READ_BYTES_RANGE)?;
        }
        in_range("gap_entries", self.debug.gap_entries, &GAP_ENTRIES_RANGE)?;
        in_range("row_cache_bytes", self.row_cache_bytes, &(0..=self.memory_budget / 2))?;
        if let Some(cache) = self.block_cache_bytes {
            in_range("block_cache_bytes", cache, &(0..=self.common_budget())).map_err(|error| {
                let what = error.message();
                Error::invalid(format!("{what}, which is what memory_budget leaves for it"))
            })?;
        }
        if let Some(files) = self.open_files_max {
            in_range("open_files_max", files, &OPEN_FILES_MAX_RANGE)?;
        }
        if self.read_only && self.error_if_exists {
            return Err(Error::invalid("read_only and error_if_exists exclude each other"));
        }
        Ok(())
    }
}

impl DbOptions {
    /// What memtables, block cache, tables and jobs share: the budget without the row cache.
    pub(crate) fn common_budget(&self) -> u64 {
        self.memory_budget.saturating_sub(self.row_cache_bytes)
    }
}

/// An `InvalidArgument` if `value` is outside `range`.
fn in_range<T: PartialOrd + fmt::Display>(
    name: &str,
    value: T,
    range: &RangeInclusive<T>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (min, max) = (range.start(), range.end());
    Err(Error::invalid(format!("{name} is {value}; choose a value from {min} to {max}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: merges stay small beside a cache that they hand blocks over to, and only there.
    #[test]
    fn tables_are_small_beside_a_small_cache() {
        let bytes = |options: &Options, cache: u64| options.table_bytes_beside(cache << 20) >> 20;
        let hand_off = Options::default();
        assert_eq!([0, 16, 64, 256, 4096].map(|cache| bytes(&hand_off, cache)), [32, 2, 2, 8, 32]);
        let small = Options::default().table_bytes(1 << 20);
        assert_eq!([0, 16, 4096].map(|cache| bytes(&small, cache)), [1, 1, 1]);
        let none = Options::default().warm_up(WarmUp::None);
        assert_eq!([0, 16, 4096].map(|cache| bytes(&none, cache)), [32, 32, 32]);
    }
}
