//! One run in virtual time: a store on a timed disk, readers and a writer (`workload`) or a list of
//! operations (`operations`), and samples of what is counted.
//!
//! Every part is an actor of one simulation. Nothing here depends on real time but the progress
//! that is shown.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir::Db;
use weir::defaults::LEVELS;
use weir::sim::{MemDir, RealDir, Simulation, TimedDir};
use weir_bench::KeySpace;

use crate::choice::Choice;
use crate::operations::{self, Replay};
use crate::record::{Record, Sample};
use crate::settings::Settings;
use crate::{store, workload};

/// What all actors of a run share.
struct Shared {
    settings: Settings,
    seed: u64,
    db: Db,
    keys: KeySpace,
    choice: Choice,
    /// Readers and the writer stop here.
    end_nanos: u64,
    reads: AtomicU64,
    read_nanos: AtomicU64,
    writes: AtomicU64,
    /// Keys that exist, inserted ones included.
    inserted: AtomicU64,
}

/// Runs `settings`, which are scaled, on a store that begins as the one in `image`, if any, and lies
/// in memory. `progress` is told how much of the virtual time has passed, 0 to 1.
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
    let inner = match image {
        Some(image) => above(image).map_err(|e| e.to_string())?,
        None => MemDir::new("the store of a run"),
    };
    let (spindles, settings) = (options.model.spindles as u64, settings.clone());
    store::simulate(seed, processor, move |simulation| {
        let dir = TimedDir::new(inner.dir(), weir::sim::class_of, options);
        let dir = dir.map_err(|e| e.to_string())?;
        let db = store::open(dir.dir(), &settings, seed)?;
        let loaded_bytes = settings.loaded_bytes();
        let (samples, levels) = act(simulation, &dir, db, settings, seed, progress)?;
        let virtual_seconds = simulation.now_nanos() as f64 / 1e9 - 1.0;
        Ok(Record { samples, loaded_bytes, spindles, virtual_seconds, real_seconds: 0.0, levels })
    })
}

/// A directory in memory that begins as the image does.
fn above(image: &Path) -> weir::Result<MemDir> {
    let image = RealDir::open(image, false)?;
    MemDir::above(image.as_ref(), weir::sim::class_of)
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Starts the actors and takes the samples.
fn act(
    simulation: &Simulation,
    dir: &TimedDir,
    db: Db,
    settings: Settings,
    seed: u64,
    progress: impl Fn(f64),
) -> Result<(Vec<Sample>, Vec<[u64; 3]>), String> {
    if !settings.replay.file.is_empty() {
        return follow(simulation, dir, db, &settings);
    }
    if settings.replay.writes > 0 {
        return replay(simulation, dir, db, settings, seed);
    }
    let time = settings.time.clone();
    let start = simulation.now_nanos() + nanos(time.warm_up_seconds);
    let end_nanos = start + nanos(time.seconds);
    let shared = Arc::new(Shared {
        keys: store::keys(&settings),
        choice: Choice::new(
            &settings.reads,
            settings.load.keys.max(1),
            seed,
            settings.warm_up_writes(),
        ),
        db,
        end_nanos,
        reads: AtomicU64::new(0),
        read_nanos: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        inserted: AtomicU64::new(settings.load.keys),
        seed,
        settings,
    });
    let mut actors = Vec::new();
    let mut start_actor = |name: &str, body: Box<dyn FnOnce() + Send>| {
        simulation.spawn(name, body).map(|a| actors.push(a)).map_err(|e| e.to_string())
    };
    for number in 0..shared.settings.reads.threads {
        let shared = Arc::clone(&shared);
        start_actor("reader", Box::new(move || workload::read(&shared.view(), number)))?;
    }
    if shared.settings.writes.per_second > 0.0 {
        let (shared, simulation) = (Arc::clone(&shared), simulation.clone());
        let from = if time.warm_up_writes { simulation.now_nanos() } else { start };
        start_actor(
            "writer",
            Box::new(move || workload::write(&shared.view(), &simulation, from)),
        )?;
    }
    let mut samples = Vec::new();
    let windows = (time.seconds / time.window_seconds).round().max(1.0) as u64;
    for window in 0..=windows {
        let at = start + (end_nanos - start) / windows * window;
        simulation.delay(Duration::from_nanos(at.saturating_sub(simulation.now_nanos())));
        samples.push(shared.sample(dir, time.window_seconds * window as f64));
        progress(window as f64 / windows as f64);
    }
    for actor in actors {
        actor.join();
    }
    let db = shared.db.clone();
    drop(shared);
    Ok((samples, finish(db)?))
}

/// Closes the store; its levels.
fn finish(db: Db) -> Result<Vec<[u64; 3]>, String> {
    let keyspaces = db.metrics().keyspaces;
    let levels = keyspaces.iter().flat_map(|k| &k.levels).map(|l| [l.runs, l.tables, l.bytes]);
    let levels = levels.collect();
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
) -> Result<(Vec<Sample>, Vec<[u64; 3]>), String> {
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
    Ok((samples, finish(db)?))
}

/// A file's operations: a sample before and after. The writes end when nothing is left to merge.
fn follow(
    simulation: &Simulation,
    dir: &TimedDir,
    db: Db,
    settings: &Settings,
) -> Result<(Vec<Sample>, Vec<[u64; 3]>), String> {
    let file = &settings.replay.file;
    let text = crate::files::read_text(Path::new(file))
        .ok_or_else(|| format!("replay.file: cannot read {file:?}"))?;
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
    Ok((vec![first, last], finish(db)?))
}

impl Shared {
    fn view(&self) -> workload::View<'_> {
        workload::View {
            settings: &self.settings,
            seed: self.seed,
            db: &self.db,
            keys: self.keys,
            choice: &self.choice,
            end_nanos: self.end_nanos,
            reads: &self.reads,
            read_nanos: &self.read_nanos,
            writes: &self.writes,
            inserted: &self.inserted,
        }
    }

    fn sample(&self, dir: &TimedDir, seconds: f64) -> Sample {
        Sample {
            reads: self.reads.load(Ordering::Relaxed),
            read_nanos: self.read_nanos.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            ..sample(&self.db, dir, &self.settings, seconds)
        }
    }
}

/// What the engine and the disk count, in bytes of entries of full size.
fn sample(db: &Db, dir: &TimedDir, settings: &Settings, seconds: f64) -> Sample {
    let (metrics, charge) = (db.metrics(), u64::from(settings.disk.charge));
    let mut levels = [[0; 2]; LEVELS];
    for keyspace in &metrics.keyspaces {
        for (sum, level) in levels.iter_mut().zip(&keyspace.levels) {
            *sum = [sum[0] + charge * level.bytes, sum[1] + charge * level.compacted_bytes];
        }
    }
    Sample {
        levels,
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
