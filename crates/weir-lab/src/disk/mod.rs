//! The simulated disks, measured: what each model does when it is asked through files, beside what
//! its sources say (`sources`).
//!
//! Actors read and write files of a [`TimedDir`] in a simulation, as the engine does; the content
//! is nobody's. One measurement is one simulation with a disk of its own, at scale 1.
//!
//! Not here: the model itself (`weir::sim::DiskModel`) and how results are printed.
//!
//! Invariant: the same model, measurement and seed give the same number.

mod sources;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir::sim::{
    Dir, DiskModel, File, FileClass, Prng, SimDisk, SimOptions, Simulation, TimedDir, TimedOptions,
    Timing, this_actor_reads,
};

use crate::result::Number;
use crate::store;

/// Readers that wait at a time.
pub const DEPTHS: [u64; 5] = [1, 4, 8, 16, 32];

/// Divisors of the disk: random reads span such a part of it.
pub const PARTS: [u64; 4] = [100, 20, 4, 1];

/// Sizes of a synced append.
pub const APPENDS: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];

/// Random reads of one measurement: their mean is within about 1 % of that of more.
const READS: u64 = 2_000;

/// Bytes of a random read.
const READ_BYTES: u64 = 4 << 10;

/// Requests of a stream.
const STREAM_REQUEST_BYTES: u64 = 1 << 20;

/// Bytes of a stream: LDS's version log, so that one measurement is that of section 4.4 too.
const STREAM_BYTES: u64 = 64 << 20;

/// Appends of one measurement.
const APPENDS_COUNT: u64 = 100;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Random reads of 4 KiB a second, by so many readers, over `1 / part` of the disk.
    Reads {
        /// Number of readers, each of which asks again when it has its answer.
        depth: u64,
        /// See [`PARTS`].
        part: u64,
    },
    /// MB/s that so many readers get together, each in order and in requests of 1 MiB.
    StreamReads {
        /// Number of readers, each of which has a file of its own.
        readers: u64,
    },
    /// Seconds that one of them takes for 64 MiB.
    Scan,
    /// MB/s of one stream of writes with a sync at its end.
    StreamWrites,
    /// Milliseconds of an append of so many bytes and its sync, one after the other.
    Append {
        /// See [`APPENDS`].
        bytes: u64,
        /// Whether the disk's write cache is on.
        write_cache: bool,
    },
}

/// One number of one model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// What it is.
    pub what: What,
    /// See [`What`].
    pub value: f64,
}

impl What {
    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Reads { depth, part: 1 } => format!("random reads, depth {depth}"),
            Self::Reads { depth, part } => format!("random reads, depth {depth}, 1/{part}"),
            Self::StreamReads { readers: 1 } => "sequential reads".into(),
            Self::StreamReads { readers } => format!("sequential reads, {readers} readers"),
            Self::Scan => "64 MiB read in order".into(),
            Self::StreamWrites => "sequential writes".into(),
            Self::Append { bytes, write_cache: true } => {
                format!("synced append, {} KiB", bytes >> 10)
            }
            Self::Append { bytes, write_cache: false } => {
                format!("synced append, {} KiB, no write cache", bytes >> 10)
            }
        }
    }

    /// Its unit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Reads { .. } => "1/s",
            Self::StreamReads { .. } | Self::StreamWrites => "MB/s",
            Self::Scan => "s",
            Self::Append { .. } => "ms",
        }
    }

    /// All that is measured of `model`: parts of a disk that does not seek are alike.
    #[must_use]
    pub fn all(model: &DiskModel) -> Vec<Self> {
        let parts = if model.seek_mean_nanos > 0 { PARTS.as_slice() } else { &[1] };
        let reads = |&part| DEPTHS.map(|depth| Self::Reads { depth, part });
        let mut all: Vec<Self> = parts.iter().flat_map(reads).collect();
        all.extend([1, 4].map(|readers| Self::StreamReads { readers }));
        all.extend([Self::Scan, Self::StreamWrites]);
        for write_cache in [true, false] {
            all.extend(APPENDS.map(|bytes| Self::Append { bytes, write_cache }));
        }
        all
    }
}

/// Measures everything of `model`.
///
/// # Errors
/// The simulation's, as text.
pub fn measure(model: &DiskModel, seed: u64) -> Result<Vec<Measured>, String> {
    let one = |what| measure_one(model, what, seed).map(|value| Measured { what, value });
    What::all(model).into_iter().map(one).collect()
}

/// What sources say of `model`, beside what was `measured`.
///
/// # Errors
/// A source speaks of what was not measured.
pub fn beside_sources(model: &DiskModel, measured: &[Measured]) -> Result<Vec<Number>, String> {
    sources::of(model.name)
        .into_iter()
        .map(|source| {
            let found = measured.iter().find(|m| m.what == source.what);
            let missing = || format!("{}: {} is not measured", model.name, source.what.name());
            Ok(source.number(model.name, found.ok_or_else(missing)?.value))
        })
        .collect()
}

/// One number of `model`; see [`What`].
fn measure_one(model: &DiskModel, what: What, seed: u64) -> Result<f64, String> {
    let model = model.clone();
    store::simulate(seed, 0, move |simulation| {
        let write_cache = !matches!(what, What::Append { write_cache: false, .. });
        let options = TimedOptions { write_cache, ..TimedOptions::new(model) };
        let bench = Bench::new(simulation, options)?;
        match what {
            What::Reads { depth, part } => bench.random_reads(depth, part, seed),
            What::StreamReads { readers } => bench.stream_reads(readers),
            What::Scan => bench.scan(),
            What::StreamWrites => bench.stream_writes(),
            What::Append { bytes, .. } => bench.appends(bytes),
        }
    })
}

/// A new disk in a simulation.
struct Bench<'a> {
    simulation: &'a Simulation,
    dir: TimedDir,
    bytes: u64,
}

impl<'a> Bench<'a> {
    fn new(simulation: &'a Simulation, options: TimedOptions) -> Result<Self, String> {
        let bytes = options.model.capacity_bytes * options.model.spindles as u64;
        let timing = Timing {
            call_nanos: 0,
            read_nanos: 0,
            write_nanos: 0,
            sync_nanos: 0,
            page_nanos: 0,
            waits: false,
        };
        let content = SimDisk::new(SimOptions { timing, ..SimOptions::default() });
        let dir = TimedDir::new(content.dir(), weir::sim::class_of, options);
        Ok(Self { simulation, dir: dir.map_err(|e| e.to_string())?, bytes })
    }

    /// A file of `bytes`, on the next free places of the disk.
    fn file(&self, name: &str, bytes: u64) -> Result<Arc<dyn File>, String> {
        let file = self.dir.create(name, FileClass::Other).map_err(|e| e.to_string())?;
        file.set_len(bytes).map_err(|e| e.to_string())?;
        Ok(file)
    }

    /// Runs `actors` side by side; the virtual seconds until all are done.
    fn side_by_side<F>(&self, actors: impl IntoIterator<Item = F>) -> Result<f64, String>
    where
        F: FnOnce() -> weir::Result<()> + Send + 'static,
    {
        let start = self.simulation.now_nanos();
        let failed = Arc::new(AtomicBool::new(false));
        let mut handles = Vec::new();
        for body in actors {
            let failed = Arc::clone(&failed);
            let actor = move || {
                if body().is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
            };
            handles.push(self.simulation.spawn("actor", actor).map_err(|e| e.to_string())?);
        }
        for handle in handles {
            handle.join();
        }
        if failed.load(Ordering::Relaxed) {
            return Err("a request to the simulated disk failed".to_owned());
        }
        Ok((self.simulation.now_nanos() - start) as f64 / 1e9)
    }

    fn random_reads(&self, depth: u64, part: u64, seed: u64) -> Result<f64, String> {
        let pages = self.bytes / part / READ_BYTES;
        let file = self.file("data", pages * READ_BYTES)?;
        let each = READS / depth;
        let reader = |number| {
            let (file, mut prng) = (Arc::clone(&file), Prng::new(seed ^ (number << 32)));
            move || {
                this_actor_reads();
                let mut buf = [0; READ_BYTES as usize];
                for _ in 0..each {
                    let offset = prng.below(pages) * READ_BYTES;
                    file.read_at(&mut buf, offset)?;
                }
                Ok(())
            }
        };
        let seconds = self.side_by_side((0..depth).map(reader))?;
        Ok((each * depth) as f64 / seconds)
    }

    fn stream_reads(&self, readers: u64) -> Result<f64, String> {
        let mut bodies = Vec::new();
        for number in 0..readers {
            let file = self.file(&format!("data{number}"), STREAM_BYTES)?;
            bodies.push(move || read_in_order(&file));
        }
        let seconds = self.side_by_side(bodies)?;
        Ok((readers * STREAM_BYTES) as f64 / 1e6 / seconds)
    }

    fn scan(&self) -> Result<f64, String> {
        let file = self.file("data", STREAM_BYTES)?;
        self.side_by_side([move || read_in_order(&file)])
    }

    fn stream_writes(&self) -> Result<f64, String> {
        let file = self.file("data", 0)?;
        let writer = move || {
            let data = vec![0; STREAM_REQUEST_BYTES as usize];
            for offset in (0..STREAM_BYTES).step_by(data.len()) {
                file.write_at(&data, offset)?;
            }
            file.sync()
        };
        Ok(STREAM_BYTES as f64 / 1e6 / self.side_by_side([writer])?)
    }

    fn appends(&self, bytes: u64) -> Result<f64, String> {
        let file = self.file("log", 0)?;
        let writer = move || {
            let data = vec![0; bytes as usize];
            for number in 0..APPENDS_COUNT {
                file.write_at(&data, number * bytes)?;
                file.sync()?;
            }
            Ok(())
        };
        Ok(self.side_by_side([writer])? * 1e3 / APPENDS_COUNT as f64)
    }
}

/// Reads all of a stream's file.
fn read_in_order(file: &Arc<dyn File>) -> weir::Result<()> {
    this_actor_reads();
    let mut buf = vec![0; STREAM_REQUEST_BYTES as usize];
    for offset in (0..STREAM_BYTES).step_by(buf.len()) {
        file.read_at(&mut buf, offset)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every number is measured, once, and is the same when it is measured again; sources
    /// speak of models that there are.
    #[test]
    fn measurements() {
        let model = DiskModel::SATA_SSD;
        let measured = measure(&model, 1).expect("measured");
        assert_eq!(measured, measure(&model, 1).expect("measured"));
        for model in DiskModel::ALL {
            let all = What::all(&model);
            let twice = |what| all.iter().filter(|&other| other == what).count() > 1;
            assert!(!all.iter().any(twice), "{all:?}");
            let sources = sources::of(model.name);
            assert!(!sources.is_empty(), "{} has no source", model.name);
            assert!(sources.iter().all(|source| all.contains(&source.what)), "{}", model.name);
        }
        assert!(beside_sources(&model, &measured[..1]).is_err());
    }

    /// Goal: what is measured is the model's. Method: a solid-state disk, by hand: one reader waits
    /// for its latency, command and transfer.
    #[test]
    fn by_hand() {
        let model = DiskModel::SATA_SSD;
        let nanos = 90_000.0 + 5_000.0 + 4096.0 * 1e9 / 90e6;
        let found = measure_one(&model, What::Reads { depth: 1, part: 1 }, 1).expect("measured");
        assert!((found * nanos / 1e9 - 1.0).abs() < 1e-3, "{found}");
    }
}
