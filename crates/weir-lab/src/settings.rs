//! The options of a run: of the store, its load, the disk, those who use it and the clock.
//!
//! An option that names something is an enum, so that a name that is misspelt is refused where the
//! file is read. Nothing has a default. Not here: readers and writers (`clients`), phases
//! (`phases`), where options come from (`document`), and what is done with them.

use serde::Deserialize;
use weir::defaults::{HEAT_WINDOW_RANGE, THETA_RANGE};
use weir_bench::KeySpread;

use crate::clients::{self, Readers, Writers};
use crate::counted::Counted;
use crate::phases::{self, Pace, Phase};
use crate::policies::{Policies, Policy, Tree};
use crate::sentinels::{Ranges, Sentinels};

/// What a table has for an entry beside its key and value: columns of its block, its share of the
/// block's header, of the index and of the filter. Measured in trees that have aged: 13 to 14.5
/// bytes, at 3 entries of 1,024 bytes a block and at 3 of 52.
const TABLE_ENTRY_BYTES: u64 = 13;

/// The part of them that is in the block's content, which the cache holds.
const CONTENT_ENTRY_BYTES: u64 = 4;

/// What a memtable has for an entry beside its key and value: measured 50 to 56.
const MEMTABLE_ENTRY_BYTES: u64 = 50;

/// What the product's cache charges for a block beside its bytes.
const CACHED_BLOCK_BYTES: u64 = 128;

/// What the row cache charges for a row beside key and value.
const CACHED_ROW_BYTES: u64 = 176;

/// Clients of a run at most: each is a thread of this machine, with a stack of its own.
const CLIENTS_MAX: usize = 1000;

/// Samples of a run at most: all of them are kept, and one has about a kilobyte.
const SAMPLES_MAX: f64 = 1e6;

/// Bytes of anything at most, so that a sum of several fits 64 bits.
const BYTES_MAX: u64 = 1 << 50;

/// Keys at most: their numbers have 16 digits with the room between them.
const KEYS_MAX: u64 = 1 << 36;

/// Bytes of a value at most, as of `weir bench`: less than a quarter of the log's area, the
/// engine's own limit.
const VALUE_BYTES_MAX: u64 = 1 << 24;

/// Every option of one run, at scale 1 unless it was scaled.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The engine.
    pub store: Store,
    /// Options of the policies that `store` and `load` name.
    pub policies: Policies,
    /// What is in it at the start.
    pub load: Load,
    /// What it lies on.
    pub disk: Disk,
    /// Who reads.
    pub readers: Readers,
    /// Who writes.
    pub writers: Writers,
    /// Whether the store is abandoned at the end of the run, as by a process that is killed, and
    /// opened again.
    pub crash_at_end: bool,
    /// What happens one after the other.
    pub phases: Vec<Phase>,
    /// How it is sampled.
    pub time: Time,
    /// What is done instead.
    pub replay: Replay,
    /// What is counted instead, without clients and time; not stated by experiments that have
    /// these.
    pub counted: Option<Counted>,
}

/// Options of the engine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// The compaction policy.
    pub policy: Policy,
    /// Bytes of a memtable: the paper's S0. Scaled.
    pub write_buffer_bytes: u64,
    /// Entries of a memtable; 0: no limit. Scaled.
    pub write_buffer_entries: u64,
    /// Memtables that may wait for their flush.
    pub immutables_max: usize,
    /// Bytes of a table. Scaled.
    pub table_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bits per key of the Bloom filters.
    pub bloom_bits: f32,
    /// How they are divided over the runs of the tree.
    pub filters: Filters,
    /// Of data blocks.
    pub compression: Compression,
    /// Bytes of the block cache. Scaled.
    pub block_cache_bytes: u64,
    /// Which block leaves it when it is full.
    pub eviction: Eviction,
    /// Bytes of the row cache above the tables; 0: none. Scaled.
    pub row_cache_bytes: u64,
    /// What of a merge's output goes into the block cache.
    pub warm_up: WarmUp,
    /// Whether runs keep the tables that were merged into them.
    pub compaction_buffer: CompactionBuffer,
    /// The part of a kept table's blocks that must be cached, where it is trimmed.
    pub trim_threshold: f32,
    /// Seconds between two looks at kept tables. Scaled.
    pub trim_interval_seconds: f64,
    /// Who moves hot ranges up.
    pub sentinels: Sentinels,
    /// Keys of a bucket, a range that is hot or not.
    pub sentinel_bucket_keys: u64,
    /// Scans of a bucket after which it is moved, for `forced`.
    pub sentinel_scans: u64,
    /// How the engine divides the keys into buckets.
    pub sentinel_ranges: Ranges,
    /// By how much what is saved must exceed what is written, for the engine's own choices.
    pub sentinel_theta: f32,
    /// How long reads count in full for them. Scaled.
    pub sentinel_window_seconds: f64,
    /// Threads for flushes and merges.
    pub background_threads: usize,
    /// How much a write survives.
    pub durability: Durability,
}

/// What is in the store at the start.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The policy that merges what is loaded; the store is opened with its own policy afterwards.
    pub policy: Policy,
    /// Whether all that is loaded is brought into one sorted run, which lies in the last level
    /// then; if not, it stays as the policy leaves it.
    pub merged: bool,
    /// Number of keys. Scaled.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of key and value before they were made smaller; 0: they were not. Not set by files.
    #[serde(skip)]
    pub full_entry_bytes: u64,
    /// How far apart keys lie.
    pub spread: KeySpread,
    /// In which order the keys are written.
    pub order: Order,
    /// Updates of uniform keys after the load, by the run's own policy and writer, before its clock
    /// starts: so many that the tree has its steady shape, with levels as full as in the middle of
    /// a long life. 0: the tree is as it was loaded. Scaled.
    pub updates: u64,
}

/// What the store lies on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The model of the disk.
    pub preset: Preset,
    /// Bytes of the simulated page cache of the operating system; 0: none. Scaled.
    pub page_cache_bytes: u64,
    /// Whether indexes and filters are in memory, so that reading them costs nothing.
    pub indexes_resident: bool,
    /// Whether the disk's volatile write cache is on: a sync empties it, whoever wrote what is in
    /// it. If not, a sync waits for its own file's writes and sends no command.
    pub write_cache: bool,
    /// Bytes that fit on the disk; 0: as many as are written. Scaled.
    pub capacity_bytes: u64,
    /// What writes metadata below the store.
    pub file_system: FileSystem,
    /// By what every time of the model is divided: 2.0 is a disk twice as fast. For what-if runs;
    /// the papers' disks have 1.0.
    pub speed: f64,
    /// The store is a part of one that is so many times as large: the scale, so that it has the
    /// seeks of the paper's. Not set by files.
    #[serde(skip, default = "unscaled")]
    pub scale: u32,
    /// Each byte stands for so many: entries and blocks were made smaller. Not set by files.
    #[serde(skip, default = "unscaled")]
    pub charge: u32,
}

/// That `value`, the option `name`, is `low` to `high`.
fn in_range(name: &str, value: u64, low: u64, high: u64) -> Result<(), String> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(format!("{name} is {value}: choose a number from {low} to {high}"))
}

impl Load {
    /// That there can be so many keys and values of such sizes. `keyed`: keys are used.
    fn check(&self, keyed: bool) -> Result<(), String> {
        in_range("load.keys", self.keys, 0, KEYS_MAX)?;
        in_range("load.updates", self.updates, 0, BYTES_MAX)?;
        in_range("load.value_bytes", self.value_bytes as u64, 0, VALUE_BYTES_MAX)?;
        // The number of a key with the room beside it, in decimal.
        if keyed { in_range("load.key_bytes", self.key_bytes as u64, 16, 1024) } else { Ok(()) }
    }
}

impl Disk {
    /// That there can be such a disk.
    fn check(&self) -> Result<(), String> {
        in_range("disk.page_cache_bytes", self.page_cache_bytes, 0, BYTES_MAX)?;
        in_range("disk.capacity_bytes", self.capacity_bytes, 0, BYTES_MAX)?;
        if !(0.001..=1000.0).contains(&self.speed) {
            return Err(format!("disk.speed is {}: choose a number of 0.001 to 1000", self.speed));
        }
        Ok(())
    }
}

/// The scale of settings that were not scaled.
fn unscaled() -> u32 {
    1
}

/// A fixed list of operations instead of readers and writers: Merfeld's. One thread writes, waits
/// for the merges, then reads.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// A file of operations as `weir replay` reads them, done line by line instead of what is drawn
    /// from the options below; empty: none. Not scaled.
    pub file: String,
    /// Writes; 0: readers and writers as above. Scaled.
    pub writes: u64,
    /// The part of them that updates a key that was written before.
    pub updates: f64,
    /// The part that deletes one.
    pub deletes: f64,
    /// Point reads after the writes. Scaled.
    pub gets: u64,
    /// The part of them whose key was never written.
    pub absent: f64,
    /// Virtual processor time of a write.
    pub write_cpu_nanos: u64,
    /// Virtual processor time of a read, beside what it waits for.
    pub read_cpu_nanos: u64,
    /// As much per entry that a range read of the file passes.
    pub entry_cpu_nanos: u64,
}

impl Replay {
    /// Whether there is a list of operations.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.writes > 0 || !self.file.is_empty()
    }

    /// That its parts are parts, and that nothing of it has no effect.
    fn check(&self) -> Result<(), String> {
        let Self { file, writes, gets, .. } = self;
        if !file.is_empty() && (*writes > 0 || *gets > 0) {
            return Err(format!(
                "replay.file is {file:?}, beside replay.writes = {writes} and replay.gets = \
                 {gets}, which would have no effect: say 0 for both"
            ));
        }
        if *gets > 0 && *writes == 0 {
            return Err(format!(
                "replay.gets is {gets} and replay.writes is 0: only what a list of operations \
                 wrote is read by it"
            ));
        }
        let parts = [("updates", self.updates), ("deletes", self.deletes), ("absent", self.absent)];
        match parts.iter().find(|(_, part)| !(0.0..=1.0).contains(part)) {
            Some((name, part)) => Err(format!("replay.{name} is {part}, and a part is 0 to 1")),
            None => Ok(()),
        }
    }
}

/// How it is sampled.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Time {
    /// Virtual seconds of one sample. Scaled.
    pub window_seconds: f64,
}

/// How filter bits are divided over the runs of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filters {
    /// Every run has as many bits per key.
    Uniform,
    /// Small runs have more.
    Monkey,
}

/// Compression of data blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// All that there is here: values are random bytes.
    None,
}

/// What of a merge's output goes into the block cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarmUp {
    /// Nothing.
    None,
    /// Blocks whose inputs were cached.
    Incremental,
    /// Blocks with entries that were read, in the place of those that they come from.
    HandOff,
    /// The same, but nothing of a flush.
    HandOffOfMerges,
}

/// Whether runs keep the tables that were merged into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionBuffer {
    /// No: the papers' trees without one.
    Off,
    /// All of them (dLSM).
    Cascade,
    /// Those that are cached for the most part (LSbM).
    Trimmed,
}

/// Which block leaves a full block cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Eviction {
    /// The least recently used one; a block weighs its bytes. LevelDB's cache, the papers'.
    Lru,
    /// The product's.
    S3Fifo,
}

/// How much a write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Writes go to the memtable only.
    None,
    /// To the log, unsynced.
    Buffered,
    /// To the log, synced.
    Sync,
}

/// In which order keys are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// In key order.
    Sequential,
    /// In a random order, each once.
    Random,
}

/// A model of a disk; see `weir::sim::DiskModel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Preset {
    /// LSbM's two disks.
    #[serde(rename = "hdd-15k-x2")]
    Hdd15kX2,
    /// LDS's disk.
    #[serde(rename = "hdd-7200")]
    Hdd7200,
    /// LDS's solid-state disk.
    #[serde(rename = "sata-ssd")]
    SataSsd,
    /// A virtual disk in a data centre.
    #[serde(rename = "virtio")]
    Virtio,
    /// One that takes no time, for counting.
    #[serde(rename = "free")]
    Free,
}

/// A file system below the store; see `weir::sim::FileSystem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileSystem {
    /// Metadata costs nothing.
    None,
    /// Updates in place, with a journal.
    Ext4,
    /// Updates in place, with a log of items.
    Xfs,
    /// A log of data and one of nodes.
    F2fs,
    /// Copy on write.
    Btrfs,
}

impl Settings {
    /// The policies that a run needs: its own, and that of its load, if anything is loaded.
    #[must_use]
    pub fn policies_used(&self) -> Vec<Policy> {
        let load = (self.load.keys > 0).then_some(self.load.policy);
        [self.store.policy].into_iter().chain(load).collect()
    }

    /// The same without the options of policies that the run does not need: runs that differ in
    /// these are one run.
    ///
    /// # Errors
    /// A policy has no options.
    pub fn without_unused_policies(mut self) -> Result<Self, String> {
        let trees = self.policies_used().into_iter().map(|policy| self.policies.tree(policy));
        self.policies = Policies::of(&trees.collect::<Result<Vec<Tree>, String>>()?);
        Ok(self)
    }

    /// The same with measured phases that end after `seconds` of the paper's time, those that are
    /// longer. Not scaled yet.
    #[must_use]
    pub fn first(mut self, seconds: u32) -> Self {
        for phase in self.phases.iter_mut().filter(|phase| phase.measured) {
            phase.seconds = phase.seconds.min(f64::from(seconds));
        }
        self
    }

    /// The same at scale `scale`: data, caches, files, levels and durations are divided by it;
    /// rates, latencies, entries, blocks and percentages are not.
    #[must_use]
    pub fn scaled(mut self, scale: u32) -> Self {
        let divide = |number: u64| number / u64::from(scale);
        let store = &mut self.store;
        store.write_buffer_bytes = divide(store.write_buffer_bytes).max(4 << 10);
        store.table_bytes = divide(store.table_bytes).max(1 << 10);
        store.block_cache_bytes = divide(store.block_cache_bytes);
        store.row_cache_bytes = divide(store.row_cache_bytes);
        store.trim_interval_seconds /= f64::from(scale);
        let window = store.sentinel_window_seconds / f64::from(scale);
        store.sentinel_window_seconds = window.max(HEAT_WINDOW_RANGE.start().as_secs_f64());
        store.write_buffer_entries = match store.write_buffer_entries {
            0 => 0,
            entries => divide(entries).max(1),
        };
        self.policies.scale(scale);
        self.load.keys = divide(self.load.keys);
        self.load.updates = divide(self.load.updates);
        self.replay.writes = divide(self.replay.writes);
        self.replay.gets = divide(self.replay.gets);
        self.disk.page_cache_bytes = divide(self.disk.page_cache_bytes);
        self.disk.capacity_bytes = divide(self.disk.capacity_bytes);
        self.disk.scale *= scale;
        for reads in self.readers.values_mut() {
            reads.recent_keys = divide(reads.recent_keys);
            reads.hot_moves_seconds /= f64::from(scale);
            if reads.scan_scaled {
                reads.scan_bytes = divide(reads.scan_bytes);
            }
        }
        for phase in &mut self.phases {
            phase.seconds /= f64::from(scale);
        }
        self.time.window_seconds /= f64::from(scale);
        self
    }

    /// The same with entries and blocks of a `shrink`-th of their bytes, and with as much less
    /// of everything that holds them; the disk charges as many times their bytes. Keys, the number
    /// of entries, rates and times stay. Unlike a smaller scale it changes no figure, but for
    /// rounding: a level, a cache and a scan have as many entries and blocks as before.
    ///
    /// Parts that do not shrink are in the sizes below: see the constants.
    #[must_use]
    pub fn shrunk(mut self, shrink: u32) -> Self {
        if shrink <= 1 {
            return self;
        }
        let divide = |number: u64| number / u64::from(shrink);
        let (load, store) = (&mut self.load, &mut self.store);
        let (key, full) = (load.key_bytes as u64, (load.key_bytes + load.value_bytes) as u64);
        let value = divide(full + TABLE_ENTRY_BYTES).saturating_sub(key + TABLE_ENTRY_BYTES);
        let entry = key + value;
        load.value_bytes = value as usize;
        load.full_entry_bytes = full;
        let entries = match store.write_buffer_entries {
            0 => store.write_buffer_bytes / (full + MEMTABLE_ENTRY_BYTES),
            entries => entries,
        };
        store.write_buffer_entries = entries.max(1);
        // Entries are what fills it.
        store.write_buffer_bytes = (entries * (entry + MEMTABLE_ENTRY_BYTES) * 9 / 8).max(4 << 10);
        // A table is cut by its blocks; index and filter come after them.
        let (content, all) = (entry + CONTENT_ENTRY_BYTES, entry + TABLE_ENTRY_BYTES);
        store.table_bytes = (divide(store.table_bytes) * content / all).max(1 << 10);
        let block = u64::from(store.block_bytes);
        store.block_bytes = (block * entry / full) as u32;
        let small_content = block * (entry + CONTENT_ENTRY_BYTES) / (full + CONTENT_ENTRY_BYTES);
        store.block_cache_bytes = match store.eviction {
            Eviction::Lru => store.block_cache_bytes / block * small_content,
            Eviction::S3Fifo => {
                store.block_cache_bytes / (block + CACHED_BLOCK_BYTES)
                    * (small_content + CACHED_BLOCK_BYTES)
            }
        };
        let disk = &mut self.disk;
        disk.page_cache_bytes = disk.page_cache_bytes / full * entry * u64::from(shrink);
        store.row_cache_bytes =
            store.row_cache_bytes / (full + CACHED_ROW_BYTES) * (entry + CACHED_ROW_BYTES);
        self.policies.scale(shrink);
        for reads in self.readers.values_mut() {
            reads.scan_bytes = reads.scan_bytes / full * entry;
        }
        self.disk.charge *= shrink;
        self
    }

    /// Updates before the measured part whose keys are known by their numbers, those of the load
    /// not counted: what the writers called `main` do, if they update uniform keys at a rate.
    #[must_use]
    pub fn warm_up_writes(&self) -> u64 {
        let Some(writes) = self.writers.get(clients::MAIN) else { return 0 };
        if writes.threads == 0 || !writes.is_uniform_update() {
            return 0;
        }
        let spans = phases::spans(phases::unmeasured(&self.phases), |phase| {
            phase.writers.iter().any(|name| name == clients::MAIN)
        });
        let due = |span: &phases::Span| (span.to - span.from) as f64 / 1e9 * writes.per_second;
        spans.iter().map(|span| due(span) as u64).sum()
    }

    /// That every option is in its range, as far as it is not the engine's; that groups and phases
    /// fit together, that what is read has been written, that there can be such a disk.
    ///
    /// # Errors
    /// What does not fit together, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        self.disk.check()?;
        let is_list = self.is_list();
        self.load.check(self.load.keys > 0 || !is_list)?;
        self.check_store()?;
        self.check_clients()?;
        phases::check(&self.phases)?;
        self.check_samples()?;
        self.replay.check()?;
        self.check_counted()?;
        if self.phases.is_empty() && !is_list {
            return Err("there are no phases, and no list of operations".into());
        }
        if is_list && (self.clients() > 0 || !self.phases.is_empty()) {
            return Err("a list of operations is done instead of readers, writers and \
                        phases: say phases = [], and threads = 0 for each group"
                .into());
        }
        if self.phases.is_empty() && self.crash_at_end {
            return Err("crash_at_end: a list of operations has no crash".into());
        }
        self.check_phases()
    }

    /// Whether a list of operations is done instead of what clients do.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.replay.is_list() || self.counted.is_some()
    }

    /// That what is counted can be done.
    fn check_counted(&self) -> Result<(), String> {
        let Some(counted) = &self.counted else {
            // Clients put keys behind the loaded ones.
            return match self.load.spread {
                KeySpread::Even => Ok(()),
                KeySpread::Doubling => {
                    Err("load.spread is doubling, which is for what is counted: say even".into())
                }
            };
        };
        if self.replay.is_list() {
            return Err("there are both replay and counted: say writes = 0 and file = \"\"".into());
        }
        counted.check(self.load.keys, self.store.sentinel_bucket_keys)
    }

    /// That sizes of the store can be added up; their ranges are the engine's.
    fn check_store(&self) -> Result<(), String> {
        let store = &self.store;
        for (name, bytes) in [
            ("write_buffer_bytes", store.write_buffer_bytes),
            ("table_bytes", store.table_bytes),
            ("block_cache_bytes", store.block_cache_bytes),
            ("row_cache_bytes", store.row_cache_bytes),
        ] {
            in_range(&format!("store.{name}"), bytes, 0, BYTES_MAX)?;
        }
        in_range("store.immutables_max", store.immutables_max as u64, 0, 1000)?;
        in_range("store.sentinel_bucket_keys", store.sentinel_bucket_keys, 1, KEYS_MAX)?;
        in_range("store.sentinel_scans", store.sentinel_scans, 1, BYTES_MAX)?;
        let (theta, window) = (store.sentinel_theta, store.sentinel_window_seconds);
        if !THETA_RANGE.contains(&theta) {
            let (low, high) = (THETA_RANGE.start(), THETA_RANGE.end());
            return Err(format!(
                "store.sentinel_theta is {theta}: choose a number from {low} to {high}"
            ));
        }
        let windows =
            HEAT_WINDOW_RANGE.start().as_secs_f64()..=HEAT_WINDOW_RANGE.end().as_secs_f64();
        if !windows.contains(&window) {
            let (low, high) = (windows.start(), windows.end());
            return Err(format!(
                "store.sentinel_window_seconds is {window}: choose a number from {low} to {high}"
            ));
        }
        Ok(())
    }

    /// Clients of all groups.
    fn clients(&self) -> usize {
        let readers = self.readers.values().map(|reads| reads.threads);
        let writers = self.writers.values().map(|writes| writes.threads);
        readers.chain(writers).fold(0, usize::saturating_add)
    }

    /// That there can be as many clients, and that each group can do what it says.
    fn check_clients(&self) -> Result<(), String> {
        let written = self.load.updates.saturating_add(self.warm_up_writes());
        for (name, reads) in &self.readers {
            let named = |e: String| format!("readers.{name}: {e}");
            reads.check(self.load.keys, written).map_err(named)?;
        }
        for (name, writes) in &self.writers {
            writes.check(self.load.keys).map_err(|e| format!("writers.{name}: {e}"))?;
        }
        let clients = self.clients();
        if clients > CLIENTS_MAX {
            return Err(format!(
                "the groups of readers and writers have {clients} threads together: choose at \
                 most {CLIENTS_MAX}"
            ));
        }
        Ok(())
    }

    /// That there are samples, and not too many.
    fn check_samples(&self) -> Result<(), String> {
        let window = self.time.window_seconds;
        if !window.is_finite() || window <= 0.0 {
            return Err(format!("time.window_seconds is {window}: choose a number above 0"));
        }
        let (samples, seconds) = (self.measured_seconds() / window, self.measured_seconds());
        if samples > SAMPLES_MAX {
            return Err(format!(
                "time.window_seconds is {window}, which makes {samples:.0} samples of the \
                 {seconds} s that are measured: choose at least {}",
                seconds / SAMPLES_MAX
            ));
        }
        Ok(())
    }

    /// That phases name groups that there are, and do what the policy can.
    fn check_phases(&self) -> Result<(), String> {
        for phase in &self.phases {
            let unknown = |kind: &str, name: &str| {
                format!("the phase {:?}: there are no {kind} {name:?}", phase.name)
            };
            if let Some(name) = phase.readers.iter().find(|n| !self.readers.contains_key(*n)) {
                return Err(unknown("readers", name));
            }
            if let Some(name) = phase.writers.iter().find(|n| !self.writers.contains_key(*n)) {
                return Err(unknown("writers", name));
            }
            if phase.compaction == Pace::Aggressive && !self.store.policy.has_level_sizes() {
                let (phase, policy) = (&phase.name, self.store.policy.name());
                return Err(format!(
                    "the phase {phase:?}: {policy} has no levels of one run that could be emptied"
                ));
            }
        }
        Ok(())
    }

    /// How long is measured, in seconds.
    #[must_use]
    pub fn measured_seconds(&self) -> f64 {
        self.phases.iter().filter(|phase| phase.measured).map(|phase| phase.seconds).sum()
    }

    /// Windows of a phase.
    #[must_use]
    pub fn windows(&self, phase: &Phase) -> u64 {
        (phase.seconds / self.time.window_seconds).round().max(1.0) as u64
    }

    /// Bytes of all entries that are loaded, as they were before they were made smaller.
    #[must_use]
    pub fn loaded_bytes(&self) -> u64 {
        let entry = (self.load.key_bytes + self.load.value_bytes) as u64;
        self.load.keys * entry.max(self.load.full_entry_bytes)
    }
}
