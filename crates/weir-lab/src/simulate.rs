//! One run in virtual time: a store on a timed disk, readers and writers (`workload`) in phases, or
//! a list of operations (`operations`), and samples of what is counted.
//!
//! Every part is an actor of one simulation. Nothing here depends on real time but the progress
//! that is shown.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weir::defaults::LEVELS;
use weir::sim::{ActorHandle, MemDir, Simulation, TimedDir, TimedOptions};
use weir::{Db, IoMetrics};

use crate::choice::Choice;
use crate::clients::{ReadChoice, Reads, Writes};
use crate::crash::{Crashed, Opened};
use crate::operations::{self, Replay};
use crate::phases::{self, Pace, Phase};
use crate::record::{LevelSample, Measured, Record, Sample, Work};
use crate::sentinels::Rule;
use crate::settings::Settings;
use crate::workload::{Common, Done, Group, Keys, Reading, Writing};
use crate::{count, files, store, workload};

/// What all actors of a run share.
struct Shared {
    common: Common,
    readers: Vec<Reading>,
    writers: Vec<Writing>,
}

/// What a run has to show at its end.
struct Shown {
    samples: Vec<Sample>,
    phases: Vec<Measured>,
    clients: BTreeMap<String, Vec<Work>>,
    levels: Vec<[u64; 3]>,
    opened: Opened,
}

/// What the phases of a run gave.
#[derive(Default)]
struct Gathered {
    samples: Vec<Sample>,
    phases: Vec<Measured>,
    clients: BTreeMap<String, Vec<Work>>,
}

/// The disk of a run.
struct Disk {
    dir: TimedDir,
    options: TimedOptions,
    /// Where its files are.
    files: MemDir,
}

impl Shown {
    /// Of a list of operations.
    fn of_list(samples: Vec<Sample>, levels: Vec<[u64; 3]>) -> Self {
        let (phases, clients, opened) = Default::default();
        Self { samples, phases, clients, levels, opened }
    }
}

/// Runs `settings`, which are scaled, on a store in memory that begins as the one in `image`, if
/// any. `progress` is told how much of the virtual time has passed, 0 to 1.
///
/// All of it happens on one processor.
///
/// # Errors
/// What went wrong, as a text for people.
pub fn run(
    image: Option<&Path>,
    settings: &Settings,
    seed: u64,
    processor: usize,
    progress: impl Fn(f64) + Send + 'static,
) -> Result<Record, String> {
    let options = store::timed_options(&settings.disk);
    let files = match image {
        Some(image) => files::above(image)?,
        None => MemDir::new("the store of a run"),
    };
    let (spindles, settings) = (options.model.spindles as u64, settings.clone());
    store::simulate(seed, processor, move |simulation| {
        let dir = TimedDir::new(files.dir(), weir::sim::class_of, options.clone());
        let disk = Disk { dir: dir.map_err(|e| e.to_string())?, options, files };
        let db = store::open(disk.dir.dir(), &settings, seed)?;
        let (loaded_bytes, loaded_keys) = (settings.loaded_bytes(), settings.load.keys);
        let block_bytes = u64::from(settings.store.block_bytes) * u64::from(settings.disk.charge);
        let shown = act(simulation, &disk, db, settings, seed, progress)?;
        let Shown { samples, phases, clients, levels, opened } = shown;
        let virtual_seconds = simulation.now_nanos() as f64 / 1e9 - 1.0;
        Ok(Record {
            samples,
            phases,
            clients,
            loaded_bytes,
            loaded_keys,
            block_bytes,
            open_seconds: opened.seconds,
            open_log_bytes: opened.log_bytes,
            spindles,
            virtual_seconds,
            real_seconds: 0.0,
            levels,
        })
    })
}

/// Starts the actors and takes the samples.
fn act(
    simulation: &Simulation,
    disk: &Disk,
    db: Db,
    settings: Settings,
    seed: u64,
    progress: impl Fn(f64),
) -> Result<Shown, String> {
    if settings.counted.is_some() {
        return count_blocks(simulation, &disk.dir, db, &settings, seed);
    }
    if !settings.replay.file.is_empty() {
        return follow(simulation, &disk.dir, db, &settings);
    }
    if settings.replay.writes > 0 {
        return replay(simulation, &disk.dir, db, settings, seed);
    }
    let shared = Arc::new(Shared::new(simulation, db, settings, seed));
    let actors = shared.start(simulation)?;
    let Gathered { samples, phases, clients } = shared.go_through_phases(&disk.dir, progress)?;
    let (db, settings) = (shared.common.db.clone(), shared.common.settings.clone());
    let crash = || Crashed::of(&db, &disk.files);
    let crashed = settings.crash_at_end.then(crash);
    let paused = db.background_is_paused().then(|| levels(&db));
    // Writers may wait for a merge that was paused.
    db.pause_background(false);
    for actor in actors {
        actor.join();
    }
    if let Some(error) = shared.common.failure.get() {
        return Err(error.clone());
    }
    drop(shared);
    let at_end = finish(db)?;
    let open = |c: Crashed| c.open(simulation, disk.options.clone(), &settings, seed);
    let opened = crashed.map(open).transpose()?.unwrap_or_default();
    Ok(Shown { samples, phases, clients, levels: paused.unwrap_or(at_end), opened })
}

/// The runs, tables and bytes of each level.
fn levels(db: &Db) -> Vec<[u64; 3]> {
    let keyspaces = db.metrics().keyspaces;
    let levels = keyspaces.iter().flat_map(|k| &k.levels).map(|l| [l.runs, l.tables, l.bytes]);
    levels.collect()
}

/// Closes the store; its levels.
fn finish(db: Db) -> Result<Vec<[u64; 3]>, String> {
    let levels = levels(&db);
    db.close().map_err(|e| format!("closing the store: {e}"))?;
    Ok(levels)
}

/// A replay: a sample before, between the writes and the reads, and after.
fn replay(
    simulation: &Simulation,
    dir: &TimedDir,
    db: Db,
    settings: Settings,
    seed: u64,
) -> Result<Shown, String> {
    let start = simulation.now_nanos();
    let seconds = |since: u64| (simulation.now_nanos() - since) as f64 / 1e9;
    let durability = store::durability(&settings);
    let mut list = Replay::new(&settings, &db, durability, seed);
    let mut samples = vec![sample(&db, dir, &settings, 0.0)];
    list.write()?;
    db.flush().map_err(|e| e.to_string())?;
    db.wait_idle().map_err(|e| e.to_string())?;
    let write_seconds = seconds(start);
    let writes = settings.replay.writes;
    samples.push(Sample { writes, write_seconds, ..sample(&db, dir, &settings, write_seconds) });
    let reads_start = simulation.now_nanos();
    let reads = list.read()?;
    let read_seconds = seconds(reads_start);
    let last = sample(&db, dir, &settings, seconds(start));
    samples.push(Sample { writes, reads, write_seconds, read_seconds, ..last });
    Ok(Shown::of_list(samples, finish(db)?))
}

/// What is counted: a sample before and after.
fn count_blocks(
    simulation: &Simulation,
    dir: &TimedDir,
    db: Db,
    settings: &Settings,
    seed: u64,
) -> Result<Shown, String> {
    let first = sample(&db, dir, settings, 0.0);
    let totals = count::run(simulation, &db, settings, seed)?;
    let last = Sample {
        reads: totals.scans,
        writes: totals.writes,
        tables: totals.tables,
        runs: totals.runs,
        blocks: totals.blocks,
        sentinels_unpaid: totals.unpaid,
        ..sample(&db, dir, settings, 1.0)
    };
    Ok(Shown::of_list(vec![first, last], finish(db)?))
}

/// A file's operations: a sample before and after. The writes end when nothing is left to merge.
fn follow(
    simulation: &Simulation,
    dir: &TimedDir,
    db: Db,
    settings: &Settings,
) -> Result<Shown, String> {
    let text = operations::text_of(Path::new(&settings.replay.file))?;
    let start = simulation.now_nanos();
    let first = sample(&db, dir, settings, 0.0);
    let followed = operations::follow(settings, &db, &text)?;
    let written = weir::sim::now_nanos();
    db.flush().map_err(|e| e.to_string())?;
    db.wait_idle().map_err(|e| e.to_string())?;
    let quiet = weir::sim::now_nanos();
    let last = Sample {
        writes: followed.writes,
        reads: followed.reads,
        read_nanos: followed.read_nanos,
        write_seconds: (followed.write_nanos + quiet - written) as f64 / 1e9,
        read_seconds: followed.read_nanos as f64 / 1e9,
        ..sample(&db, dir, settings, (quiet - start) as f64 / 1e9)
    };
    Ok(Shown::of_list(vec![first, last], finish(db)?))
}

impl Shared {
    fn new(simulation: &Simulation, db: Db, settings: Settings, seed: u64) -> Self {
        let (keys, before) = (settings.load.keys.max(1), settings.warm_up_writes());
        let from_front = settings.readers.values().any(|r| r.choice == ReadChoice::Front);
        let reading = |(name, reads): (&String, &Reads)| {
            let at_work = |phase: &Phase| phase.readers.contains(name);
            let spans = phases::spans(&settings.phases, at_work);
            let choice = Choice::new(reads, keys, seed, before);
            Reading { group: Group::new(name, reads.clone(), seed, spans), choice }
        };
        let writing = |(name, writes): (&String, &Writes)| {
            let at_work = |phase: &Phase| phase.writers.contains(name);
            let spans = phases::spans(&settings.phases, at_work);
            Group::new(name, writes.clone(), seed, spans)
        };
        Self {
            readers: settings.readers.iter().map(reading).collect(),
            writers: settings.writers.iter().map(writing).collect(),
            common: Common {
                keys: Keys::new(&settings, seed),
                rule: Rule::of(&settings.store, from_front),
                seed,
                db,
                simulation: simulation.clone(),
                start_nanos: simulation.now_nanos(),
                settings,
                failure: OnceLock::new(),
            },
        }
    }

    /// Starts an actor for each client.
    fn start(self: &Arc<Self>, simulation: &Simulation) -> Result<Vec<ActorHandle>, String> {
        let mut actors = Vec::new();
        let mut start = |name: &str, body: Box<dyn FnOnce() + Send>| {
            simulation.spawn(name, body).map(|a| actors.push(a)).map_err(|e| e.to_string())
        };
        for (place, reading) in self.readers.iter().enumerate() {
            for number in 0..reading.group.clients.threads {
                let shared = Arc::clone(self);
                let body = move || {
                    let done = workload::read(&shared.common, &shared.readers[place], number);
                    done.unwrap_or_else(|e| shared.common.fail(e));
                };
                start("reader", Box::new(body))?;
            }
        }
        for (place, group) in self.writers.iter().enumerate() {
            for number in 0..group.clients.threads {
                let shared = Arc::clone(self);
                let body = move || {
                    let done = workload::write(&shared.common, &shared.writers[place], number);
                    done.unwrap_or_else(|e| shared.common.fail(e));
                };
                start("writer", Box::new(body))?;
            }
        }
        if self.common.rule.is_some() {
            let shared = Arc::clone(self);
            let body = move || {
                let done = workload::build_sentinels(&shared.common);
                done.unwrap_or_else(|e| shared.common.fail(e));
            };
            start("sentinels", Box::new(body))?;
        }
        Ok(actors)
    }

    /// Waits for the end of each phase; what the measured ones gave.
    fn go_through_phases(
        &self,
        dir: &TimedDir,
        progress: impl Fn(f64),
    ) -> Result<Gathered, String> {
        let (settings, simulation) = (&self.common.settings, &self.common.simulation);
        let until = |at: u64| {
            simulation.delay(Duration::from_nanos(at.saturating_sub(simulation.now_nanos())))
        };
        let all: f64 = settings.phases.iter().map(|phase| phase.seconds).sum();
        let mut gathered = Gathered::default();
        let (mut start, mut pace, mut passed, mut before) =
            (self.common.start_nanos, Pace::Normal, 0.0, 0.0);
        for phase in &settings.phases {
            let end = start + phases::nanos(phase.seconds);
            if phase.compaction != pace {
                until(start);
                pace = phase.compaction;
                store::set_pace(&self.common.db, settings, pace)?;
            }
            let windows = if phase.measured { settings.windows(phase) } else { 1 };
            let samples = gathered.samples.len();
            // The last sample of a phase is the first one of the next.
            let first = samples.saturating_sub(1);
            let from = u64::from(!phase.measured || samples > 0);
            for window in from..=windows {
                until(start + (end - start) / windows * window);
                if self.common.failure.get().is_some() {
                    return Ok(gathered);
                }
                let seconds = phase.seconds * window as f64 / windows as f64;
                if phase.measured {
                    self.gather(&mut gathered, dir, before + seconds);
                }
                progress((passed + seconds) / all);
            }
            if phase.measured {
                let (name, last) = (phase.name.clone(), gathered.samples.len() - 1);
                gathered.phases.push(Measured { name, first, last });
                before += phase.seconds;
            }
            passed += phase.seconds;
            start = end;
        }
        Ok(gathered)
    }

    /// Takes a sample at the end of a window.
    fn gather(&self, gathered: &mut Gathered, dir: &TimedDir, seconds: f64) {
        gathered.samples.push(self.sample(dir, seconds));
        let names = |groups: &str, name: &String| format!("{groups}.{name}");
        let settings = &self.common.settings;
        let readers = settings.readers.keys().map(|name| names("readers", name));
        let writers = settings.writers.keys().map(|name| names("writers", name));
        let done = self.readers.iter().map(|reading| &reading.group.done);
        let done = done.chain(self.writers.iter().map(|group| &group.done));
        for (name, done) in readers.chain(writers).zip(done) {
            let windows = gathered.clients.entry(name).or_default();
            let work = done.take_window();
            // What was done before the first sample is no part of a window.
            windows.push(if windows.is_empty() { Work::default() } else { work });
        }
    }

    fn sample(&self, dir: &TimedDir, seconds: f64) -> Sample {
        let sum = |count: fn(&Done) -> &AtomicU64| {
            let done = self.readers.iter().map(|reading| &reading.group.done);
            done.map(|done| count(done).load(Ordering::Relaxed)).sum()
        };
        let writes = self.writers.iter().map(|g| g.done.operations.load(Ordering::Relaxed));
        Sample {
            reads: sum(|done| &done.operations),
            read_nanos: sum(|done| &done.nanos),
            tables: sum(|done| &done.tables),
            reads_without_tables: sum(|done| &done.without_tables),
            runs: sum(|done| &done.runs),
            blocks: sum(|done| &done.blocks),
            writes: writes.sum(),
            ..sample(&self.common.db, dir, &self.common.settings, seconds)
        }
    }
}

/// What the engine and the disk count, in bytes of entries of full size.
fn sample(db: &Db, dir: &TimedDir, settings: &Settings, seconds: f64) -> Sample {
    let (metrics, charge) = (db.metrics(), u64::from(settings.disk.charge));
    let mut levels = [LevelSample::default(); LEVELS];
    let (mut copies, mut listed) = ([0.0; 3], 0.0);
    for keyspace in &metrics.keyspaces {
        for (sum, level) in levels.iter_mut().zip(&keyspace.levels) {
            sum.bytes += charge * level.bytes;
            sum.runs += level.runs;
            sum.entries += level.entries;
            sum.compacted += charge * level.compacted_bytes;
            sum.shadowed += level.entries_shadowed;
            let (tables, cached) = (level.buffered_tables as f64, level.buffered_copies);
            listed += tables;
            for (sum, part) in copies.iter_mut().zip([cached.list, cached.run, cached.both]) {
                *sum += tables * part;
            }
        }
    }
    let io = metrics.io;
    let bytes = |io: IoMetrics| [charge * io.bytes_read, charge * io.bytes_written];
    let all = bytes(io.total());
    let mut io = [io.users, io.flush, io.compaction, io.log, io.versions].map(bytes).to_vec();
    let sentinels = bytes(metrics.io.sentinels);
    let known = io
        .iter()
        .chain([&sentinels])
        .fold([0; 2], |sum, part| [sum[0] + part[0], sum[1] + part[1]]);
    io.push([all[0] - known[0], all[1] - known[1]]);
    io.push(sentinels);
    Sample {
        levels,
        io: std::array::from_fn(|cause| io[cause]),
        sentinels: metrics.sentinels_built,
        merged_down: metrics.hot_ranges_merged_down,
        row_hits: metrics.row_cache.hits,
        list_hits: metrics.gets_of_lists,
        copies: copies.map(|sum| if listed > 0.0 { sum / listed } else { 0.0 }),
        seconds,
        hits: metrics.cache_foreground.hits,
        misses: metrics.cache_foreground.misses,
        cache_bytes: charge * metrics.cache_bytes,
        cache_capacity: charge * metrics.cache_capacity,
        user_bytes: charge * metrics.user_bytes_written,
        flushed_bytes: charge * metrics.bytes_written.flush,
        merged_bytes: charge * metrics.bytes_written.compaction,
        merge_read_bytes: charge * metrics.compaction_bytes_read,
        stalled_seconds: metrics.write_delay_seconds + metrics.write_stall_seconds,
        disk: dir.counters().into(),
        ..Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Loop, ReadKind, WriteKind};
    use crate::image;
    use crate::settings::Preset;

    fn images(cache: &tempfile::TempDir) -> image::Images<'_> {
        image::Images { cache: cache.path(), again: false }
    }

    /// A bLSM-tree that has aged, with two groups of readers, two of writers, and three phases.
    fn settings() -> Settings {
        let experiment = crate::catalog::named("lsbm-fig11a").expect("built in");
        let mut settings = experiment.runs[0].settings.clone().scaled(4096);
        settings.load.updates = settings.load.keys;
        settings.store.table_bytes = 64 << 10;
        // Merges keep up with the writers of so small a store.
        settings.disk.preset = Preset::Virtio;
        let main = settings.readers["main"].clone();
        let scans = Reads {
            threads: 2,
            pace: Loop::Open,
            per_second: 50.0,
            kind: ReadKind::Scan,
            scan_bytes: 10_000,
            ..main
        };
        settings.readers.insert("scans".into(), scans);
        let bulk = Writes { threads: 2, per_second: 500.0, ..settings.writers["main"].clone() };
        settings.writers.insert("bulk".into(), bulk);
        let phase = |name: &str, readers: &[&str], writers: &[&str], compaction: Pace| Phase {
            name: name.into(),
            seconds: 1.0,
            readers: readers.iter().map(|&name| name.into()).collect(),
            writers: writers.iter().map(|&name| name.into()).collect(),
            compaction,
            measured: name != "warm-up",
        };
        settings.phases = vec![
            phase("warm-up", &["main"], &[], Pace::Normal),
            phase("writes", &["main", "scans"], &["main", "bulk"], Pace::Normal),
            phase("frozen", &["scans"], &[], Pace::Paused),
            phase("merged", &["main"], &[], Pace::Aggressive),
        ];
        settings.time.window_seconds = 0.1;
        settings.crash_at_end = true;
        settings
    }

    /// Goal: phases do what they say: groups work in theirs at their rates, nothing is merged in a
    /// pause, and aggressive compaction empties all levels but the last; and all of it depends on
    /// the seed alone. Method: a short run of each, twice.
    #[test]
    fn phases_do_what_they_say() {
        let settings = settings();
        settings.check().expect("sound");
        let cache = tempfile::tempdir().expect("a directory");
        let image = image::of(images(&cache), &settings, 1, 0).expect("made");
        let record = || run(Some(&image), &settings, 1, 0, |_| ()).expect("it runs");
        let first = record();
        assert_eq!(record(), first);
        let of = |phase: &str, measure: &str| {
            let phase = first.of_phase(phase).expect(phase);
            crate::measure::number(&phase, measure).expect(measure)
        };
        assert_eq!(first.samples.len(), 31);
        let rate = of("writes", "writes_per_second_mean");
        assert!((rate - 1500.0).abs() < 30.0, "{rate}");
        assert!(of("writes", "qps_mean") > 100.0);
        assert!(of("writes", "merged_mb_per_second_overall") > 0.0);
        for idle in ["frozen", "merged"] {
            assert!(of(idle, "writes") < 1.0, "{idle}");
        }
        let scans = of("frozen", "qps_mean");
        // And the gets of the phase before that eight readers, ahead of the clock, noted in it.
        assert!((47.0..150.0).contains(&scans), "{scans}");
        assert!(of("frozen", "merged_mb_per_second_overall") < 1e-9);
        assert!(of("merged", "merged_mb_per_second_overall") > 0.0);
        assert!(of("frozen", "tables_per_read_overall") > 2.0, "a scan looks into several runs");
        assert!(of("merged", "tables_per_lookup") < 1.2, "a get into one");
        assert!(of("writes", "written_blocks_flush") > 0.0);
        assert!(of("merged", "obsolete_share_high") > of("merged", "obsolete_share_low"));
        let scans = first.of_clients("readers.scans").expect("a group");
        let scans = crate::measure::number(&scans, "latency_p50_ms_overall").expect("a measure");
        assert!((0.158..10.0).contains(&scans), "{scans} ms: its processor time at least");
        assert!(first.open_seconds > 0.0 && first.open_log_bytes > 0, "a log is replayed");
        let (used, last) = (first.levels.iter().filter(|[runs, ..]| *runs > 0), LEVELS - 1);
        assert_eq!((used.count(), first.levels[last][0]), (1, 1), "{:?}", first.levels);
    }

    /// Goal: readers of an open loop that cannot keep up do not go on behind the end of their phase
    /// with what was due in it. Method: far more scans than a disk can do, and a phase without.
    #[test]
    fn what_is_late_at_the_end_is_not_done() {
        let mut settings = settings();
        let scans = settings.readers.get_mut("scans").expect("a group");
        scans.per_second = 1e6;
        settings.phases.retain(|phase| ["warm-up", "writes", "merged"].contains(&&*phase.name));
        settings.phases[2].readers.clear();
        settings.crash_at_end = false;
        let cache = tempfile::tempdir().expect("a directory");
        let image = image::of(images(&cache), &settings, 1, 0).expect("made");
        let record = run(Some(&image), &settings, 1, 0, |_| ()).expect("it runs");
        let of = |phase: &str| {
            let phase = record.of_phase(phase).expect(phase);
            let scans = phase.of_clients("readers.scans").expect("a group");
            crate::measure::number(&scans, "latency_max_ms_overall").expect("a measure")
        };
        // What had begun ends in it, for each of two clients at most.
        let done: u64 = record.clients["readers.scans"].iter().skip(11).map(|w| w.operations).sum();
        assert!(done <= 2, "{done} scans after the end of their phase");
        assert!(of("writes") > 100.0, "they are late");
    }

    /// Goal: a disk that gets full ends a run with a sentence. Method: one that holds the
    /// image and half as much, and inserts.
    #[test]
    fn a_full_disk_ends_a_run() {
        let mut settings = settings();
        let cache = tempfile::tempdir().expect("a directory");
        let image = image::of(images(&cache), &settings, 1, 0).expect("made");
        let bytes = files::bytes_in(&image).expect("sizes");
        settings.disk.capacity_bytes = bytes + bytes / 2;
        let bulk = settings.writers.get_mut("bulk").expect("a group");
        (bulk.kind, bulk.per_second) = (WriteKind::Insert, 20_000.0);
        settings.phases[1].seconds = 5.0;
        let done = run(Some(&image), &settings, 1, 0, |_| ()).map(|_| ());
        let error = done.expect_err("it is full");
        assert!(error.contains("a write failed: ") && error.contains("space"), "{error}");
    }
}
