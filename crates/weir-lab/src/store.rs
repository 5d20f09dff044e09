//! The engine's stores that runs work on: how options are set, how a store is loaded, and how it
//! ages.
//!
//! Both run in a simulation too, on a disk that costs nothing, so that an image is the same bytes
//! each time: its tables and with them every later result depend on the order of flushes and
//! merges. Which images there are and where they lie is `image`'s.

use std::sync::Arc;
use std::time::Duration;

use weir::sim::{
    Dir, DiskModel, Eviction, FileSystem, Settings as SimSettings, Simulation, TimedDir,
    TimedOptions,
};
use weir::{
    CompactionBuffer, CompactionPolicy, Compression, Db, DbOptions, DebugDbOptions, DebugOptions,
    Durability, Filters, LeveledOptions, Options, PartsOptions, RunsOptions, TrimOptions, WarmUp,
};
use weir_bench::{KeyFormat, KeySpace, Permutation, Prng, Values};

use crate::choice::written_key;
use crate::phases::Pace;
use crate::policies::{self, Tree};
use crate::race;
use crate::sentinels::{self, Sentinels};
use crate::settings::{self, Load, Order, Preset, Settings};

/// The stream of the values that are loaded.
const LOAD_STREAM: u64 = 1 << 41;

/// The stream of the values that updates of the load write.
const UPDATE_STREAM: u64 = 1 << 45;

/// Bytes of one read of a merge in a store with as much memory as ours have: the engine's own.
const MERGE_READ_BYTES: u64 = 1 << 20;

/// Switch points between two switches that are not waits: never. A run has enough waits, and a
/// switch costs ten thousand cached reads' worth of nothing.
const NEVER: u64 = 1 << 60;

/// Real seconds without a switch point after which a run counts as stuck.
const STUCK_SECONDS: u64 = 120;

/// Runs `body` as the first actor of a simulation whose actors all stay on one processor.
///
/// # Errors
/// What went wrong, as a text for people.
pub fn simulate<T: Send + 'static>(
    seed: u64,
    processor: usize,
    body: impl FnOnce(&Simulation) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let settings = SimSettings {
        processor: Some(processor),
        switch_every: NEVER,
        virtual_limit: std::time::Duration::from_secs(100_000_000),
        stuck_after: std::time::Duration::from_secs(STUCK_SECONDS),
        ..SimSettings::new(seed)
    };
    Simulation::run_with(settings, body)?
}

/// A disk that costs nothing, for loading and counting.
fn free_model() -> DiskModel {
    DiskModel {
        name: "free",
        spindles: 1,
        stripe_bytes: 1 << 30,
        capacity_bytes: 1,
        seek_min_nanos: 0,
        seek_mean_nanos: 0,
        rotation_nanos: 0,
        read_latency_nanos: 0,
        write_latency_nanos: 0,
        request_nanos: 0,
        bytes_per_second: u64::MAX,
        cluster_bytes: 1 << 30,
        flush_nanos: 0,
    }
}

/// The model of the disk called `preset`.
#[must_use]
pub fn disk_model(preset: Preset) -> DiskModel {
    match preset {
        Preset::Hdd15kX2 => DiskModel::HDD_15K_X2,
        Preset::Hdd7200 => DiskModel::HDD_7200,
        Preset::SataSsd => DiskModel::SATA_SSD,
        Preset::Virtio => DiskModel::VIRTIO,
        Preset::Free => free_model(),
    }
}

/// The disk of a run.
#[must_use]
pub fn timed_options(disk: &settings::Disk) -> TimedOptions {
    TimedOptions {
        model: disk_model(disk.preset).at_speed(disk.speed),
        scale: u64::from(disk.scale),
        charge: u64::from(disk.charge),
        page_cache_bytes: disk.page_cache_bytes,
        indexes_resident: disk.indexes_resident,
        write_cache: disk.write_cache,
        capacity_bytes: disk.capacity_bytes,
        file_system: match disk.file_system {
            settings::FileSystem::None => FileSystem::None,
            settings::FileSystem::Ext4 => FileSystem::Ext4,
            settings::FileSystem::Xfs => FileSystem::Xfs,
            settings::FileSystem::F2fs => FileSystem::F2fs,
            settings::FileSystem::Btrfs => FileSystem::Btrfs,
        },
    }
}

/// The keys of a run.
#[must_use]
pub fn keys(settings: &Settings) -> KeySpace {
    let Load { keys, key_bytes, spread, .. } = &settings.load;
    KeySpace::new((*keys).max(1), *key_bytes, KeyFormat::Decimal).spread(*spread)
}

/// How durable writes are.
#[must_use]
pub fn durability(settings: &Settings) -> Durability {
    match settings.store.durability {
        settings::Durability::None => Durability::None,
        settings::Durability::Buffered => Durability::Buffered,
        settings::Durability::Sync => Durability::Sync,
    }
}

/// The engine's options for `settings`: the only place that knows both.
fn engine_options(settings: &Settings) -> Result<Options, String> {
    let store = &settings.store;
    let leveled = |of: policies::LevelOptions| {
        LeveledOptions::default()
            .level_ratio(of.level_ratio)
            .base_level_bytes(of.base_level_bytes)
            .expected_bytes(of.expected_bytes)
            .l0_trigger(of.l0_trigger)
    };
    let parts = |of: policies::LevelOptions| {
        PartsOptions::default()
            .level_ratio(of.level_ratio)
            .base_level_bytes(of.base_level_bytes)
            .expected_bytes(of.expected_bytes)
            .l0_trigger(of.l0_trigger)
    };
    let runs = |of: policies::RunsOptions| RunsOptions::default().runs_per_level(of.runs_per_level);
    let compaction = match settings.policies.tree(store.policy)? {
        Tree::Leveled(options) => CompactionPolicy::Leveled(leveled(options)),
        Tree::Gear(options) => CompactionPolicy::Gear(parts(options)),
        Tree::TwoPhase(options) => CompactionPolicy::TwoPhase(parts(options)),
        Tree::Tiered(options) => CompactionPolicy::Tiered(runs(options)),
        Tree::LazyLeveled(options) => CompactionPolicy::LazyLeveled(runs(options)),
        Tree::SizeTiered(options) => CompactionPolicy::SizeTiered(runs(options)),
        Tree::SteppedMerge(options) => CompactionPolicy::SteppedMerge(runs(options)),
    };
    let filters = match store.filters {
        settings::Filters::Uniform => Filters::Uniform,
        settings::Filters::Monkey => Filters::Monkey,
    };
    let compression = match store.compression {
        settings::Compression::None => Compression::None,
    };
    let warm_up = match store.warm_up {
        settings::WarmUp::None => WarmUp::None,
        settings::WarmUp::Incremental => WarmUp::Incremental,
        settings::WarmUp::HandOff | settings::WarmUp::HandOffOfMerges => WarmUp::HandOff,
    };
    let buffer = match store.compaction_buffer {
        settings::CompactionBuffer::Off => CompactionBuffer::Off,
        settings::CompactionBuffer::Cascade => CompactionBuffer::Cascade,
        settings::CompactionBuffer::Trimmed => TrimOptions::default()
            .threshold(store.trim_threshold)
            .interval(Duration::from_secs_f64(store.trim_interval_seconds))
            .into(),
    };
    let entries = Some(store.write_buffer_entries).filter(|&entries| entries > 0);
    Ok(Options::default()
        .write_buffer_bytes(store.write_buffer_bytes)
        .debug(DebugOptions::default().write_buffer_entries(entries))
        .immutables_max(store.immutables_max)
        .compaction(compaction)
        .block_bytes(store.block_bytes)
        .table_bytes(store.table_bytes)
        .bloom_bits([store.bloom_bits])
        .filters(filters)
        .compression([compression])
        .warm_up(warm_up)
        .compaction_buffer(buffer)
        .sentinels(sentinels::option(store, settings.load.keys)))
}

/// Opens the store in `dir`.
///
/// # Errors
/// The engine's, as text.
pub fn open(dir: Arc<dyn Dir>, settings: &Settings, seed: u64) -> Result<Db, String> {
    let options = engine_options(settings)?;
    let store = &settings.store;
    // Enough that nothing but the cache's own size bounds the cache.
    let memtables = store.write_buffer_bytes * (store.immutables_max as u64 + 4);
    let store_options = DbOptions::default()
        .memory_budget(
            store.block_cache_bytes
                + 2 * store.row_cache_bytes
                + memtables
                + settings.loaded_bytes()
                + (1 << 30),
        )
        .block_cache_bytes(Some(store.block_cache_bytes))
        .row_cache_bytes(store.row_cache_bytes)
        .background_threads(store.background_threads)
        .log_segment_bytes(store.write_buffer_bytes.clamp(64 << 10, 64 << 20));
    // Reads of merges are as many as with entries of full size.
    let merge_read = match settings.disk.charge {
        1 => None,
        charge => Some(MERGE_READ_BYTES / u64::from(charge)),
    };
    let debug = DebugDbOptions::default()
        .merge_read_bytes(merge_read)
        .hand_over_flushes(store.warm_up != settings::WarmUp::HandOffOfMerges);
    let store_options = store_options.debug(debug);
    let eviction = match store.eviction {
        settings::Eviction::Lru => Eviction::Lru,
        settings::Eviction::S3Fifo => Eviction::S3Fifo,
    };
    let builder = Db::builder("lab").device(dir).seed(seed).options(store_options);
    let mut builder = builder.eviction(eviction);
    if store.block_cache_bytes > 0
        && let Some(observer) = race::trace::next_observer(settings)?
    {
        builder = builder.cache_observer(observer);
    }
    let db = builder.default_options(options.clone()).open();
    let db = db.map_err(|e| format!("opening the store: {e}"))?;
    // A store that was loaded has the options of its loading.
    db.default_keyspace().set_options(options).map_err(|e| format!("setting options: {e}"))?;
    Ok(db)
}

/// A size that no level has: with it for the smallest level, all but the last are to be empty.
const NO_LEVEL_BYTES: u64 = 1 << 60;

/// Has the open store compact at `pace` from now on.
///
/// # Errors
/// The engine's, as text.
pub fn set_pace(db: &Db, settings: &Settings, pace: Pace) -> Result<(), String> {
    db.pause_background(pace == Pace::Paused);
    let options = match pace {
        Pace::Paused => return Ok(()),
        Pace::Normal => engine_options(settings)?,
        Pace::Aggressive => {
            let mut settings = settings.clone();
            settings.policies.empty_inner_levels(NO_LEVEL_BYTES);
            engine_options(&settings)?
        }
    };
    db.default_keyspace().set_options(options).map_err(|e| format!("setting options: {e}"))
}

/// Loads a store into the empty directory `files`: as one sorted run, or as its policy leaves it.
///
/// # Errors
/// The engine's, as text.
pub fn load(
    files: Arc<dyn Dir>,
    settings: &Settings,
    seed: u64,
    processor: usize,
) -> Result<(), String> {
    let mut settings = settings.clone();
    settings.store.policy = settings.load.policy;
    settings.store.compaction_buffer = settings::CompactionBuffer::Off;
    if settings.load.order == Order::Sequential {
        // Flushed tables are moved down as they are: they must have the size of merged ones.
        let overhead = settings.store.table_bytes / 16;
        settings.store.write_buffer_bytes = settings.store.table_bytes.max(16 << 10) + overhead;
        settings.store.write_buffer_entries = 0;
    }
    on_free_disk(files, settings, seed, processor, move |db, settings| {
        let space = keys(settings);
        let mut values = Values::new(settings.load.value_bytes, 1.0, Prng::new(seed, LOAD_STREAM));
        let order = Permutation::new(settings.load.keys.max(1), seed);
        let mut key = Vec::new();
        for place in 0..settings.load.keys {
            let index = match settings.load.order {
                Order::Sequential => place,
                Order::Random => order.at(place),
            };
            space.existing(index, &mut key);
            db.put_with(&key, values.next_value(), Durability::None).map_err(|e| e.to_string())?;
        }
        if settings.load.merged {
            db.compact_range(..).map_err(|e| e.to_string())?;
        } else {
            db.flush().map_err(|e| e.to_string())?;
        }
        Ok(())
    })
}

/// Ages the loaded store in `files`: does the updates of `load.updates` by the run's own policy.
/// Numbers below 0 are their numbers, the last one's is -1.
///
/// # Errors
/// The engine's, as text.
pub fn age(
    files: Arc<dyn Dir>,
    settings: &Settings,
    seed: u64,
    processor: usize,
) -> Result<(), String> {
    on_free_disk(files, settings.clone(), seed, processor, move |db, settings| {
        let space = keys(settings);
        let stream = Prng::new(seed, UPDATE_STREAM);
        let mut values = Values::new(settings.load.value_bytes, 1.0, stream);
        let updates = i64::try_from(settings.load.updates).map_err(|e| e.to_string())?;
        let mut key = Vec::new();
        for number in -updates..0 {
            space.existing(written_key(seed, number, settings.load.keys.max(1)), &mut key);
            db.put_with(&key, values.next_value(), Durability::None).map_err(|e| e.to_string())?;
        }
        db.flush().map_err(|e| e.to_string())
    })
}

/// Opens the store in `files` on a disk that costs nothing, does `body` with it, waits until
/// nothing is left to merge and closes it.
fn on_free_disk(
    files: Arc<dyn Dir>,
    mut settings: Settings,
    seed: u64,
    processor: usize,
    body: impl FnOnce(&Db, &Settings) -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    settings.store.row_cache_bytes = 0;
    settings.store.sentinels = Sentinels::Off;
    settings.store.warm_up = settings::WarmUp::None;
    // Nobody reads, so that nothing is cached: lists keep all that updates leave of them, and are
    // trimmed once the run has filled its cache.
    settings.store.trim_threshold = 0.0;
    simulate(seed, processor, move |_| {
        let options = TimedOptions { indexes_resident: true, ..TimedOptions::new(free_model()) };
        let dir = TimedDir::new(files, weir::sim::class_of, options).map_err(|e| e.to_string())?;
        let db = open(dir.dir(), &settings, seed)?;
        body(&db, &settings)?;
        db.wait_idle().map_err(|e| e.to_string())?;
        db.close().map_err(|e| e.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what an experiment says reaches the engine. Method: names that are not the first of
    /// their kind, options that no other policy has.
    #[test]
    fn options_are_taken() {
        let experiment = crate::catalog::named("lsbm-fig16").expect("built in");
        let settings_of = |run: &str| {
            let run = experiment.runs.iter().find(|r| r.name == run).expect(run);
            run.settings.clone()
        };
        let mut settings = settings_of("stepped-merge");
        settings.store.filters = settings::Filters::Monkey;
        settings.store.warm_up = settings::WarmUp::Incremental;
        settings.store.durability = settings::Durability::Sync;
        let options = engine_options(&settings).expect("complete");
        let runs = RunsOptions::default().runs_per_level(10);
        assert_eq!(options.compaction, CompactionPolicy::SteppedMerge(runs));
        assert_eq!((options.filters, options.warm_up), (Filters::Monkey, WarmUp::Incremental));
        assert_eq!(durability(&settings), Durability::Sync);
        let options = engine_options(&settings_of("LevelDB").scaled(2)).expect("complete");
        let levels = LeveledOptions::default()
            .level_ratio(10)
            .base_level_bytes(512 << 20)
            .expected_bytes(50 << 30)
            .l0_trigger(4);
        assert_eq!(options.compaction, CompactionPolicy::Leveled(levels));
        settings.store.policy = crate::policies::Policy::LazyLeveled;
        let error = engine_options(&settings).expect_err("no such table");
        assert!(error.contains("[settings.policies.lazy_leveled]"), "{error}");
    }
}
