//! How long a synced insert takes on a real device: a store on slots, in files, and a bare probe
//! that writes as many bytes and flushes (LDS Fig. 5b and 13).
//!
//! Everything takes turns, round by round, on a loop device of its own that passes the page cache
//! of the file below; if asked for, while the store flushes and compacts what another thread writes
//! to it without a log, or while somebody else on the same disk syncs files of its own.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir::{Db, Durability, Options};
use weir_bench::{Prng, Stopwatch};

use super::stand::{Plot, Stand};
use super::{Form, axis, number, outcome_of};
use crate::result::{Kind as Drawn, Result as Outcome, Series};

/// Largest unit that a device or a page cache writes here.
const PAGE: usize = 4096;

/// Bytes of log of a round at most: 8 MiB, so that five rounds fit the log of a store on slots.
pub const ROUND_BYTES_MAX: usize = 8 << 20;

/// `O_DIRECT` of Linux on this architecture's family.
#[cfg(not(any(target_arch = "arm", target_arch = "aarch64", target_arch = "powerpc64")))]
const O_DIRECT: i32 = 0o40_000;
/// `O_DIRECT` of Linux on this architecture's family.
#[cfg(any(target_arch = "arm", target_arch = "aarch64", target_arch = "powerpc64"))]
const O_DIRECT: i32 = 0o200_000;

/// Keys that are written over and over while compactions are measured.
const KEYS_BESIDE: u64 = 200_000;

/// Values of 1,000 bytes that are written in a second beside: two write buffers of 8 MiB fill.
const PUTS_BESIDE: u64 = 16_000;

/// Those of them that are written before the writer looks at the clock.
const PUTS_AT_ONCE: u64 = 64;

/// Bytes of a file of the neighbour's, which it syncs as a whole.
const FILE_BYTES: usize = 64 << 10;

/// Files that the neighbour has; then it begins anew with the first.
const FILES: usize = 64;

/// What a neighbour waits between two files.
const BETWEEN_FILES: Duration = Duration::from_millis(2);

/// Bytes of the disk that the neighbour of a store without a file system has.
const REST_BYTES: u64 = 256 << 20;

/// What goes on beside the inserts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beside {
    /// Nothing: not even a flush.
    #[default]
    Nothing,
    /// The store flushes and compacts 16 MB/s that another thread writes without a log.
    Compactions,
    /// Somebody else writes and syncs files of 64 KiB on the same file system, or, where the store
    /// has none, on an ext4 of its own on the same disk.
    Neighbour,
}

impl Beside {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Compactions, Self::Neighbour];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Compactions => "compactions",
            Self::Neighbour => "neighbour",
        }
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where stores lie.
    pub forms: Vec<Form>,
    /// Bytes of a value.
    pub sizes: Vec<usize>,
    /// Inserts of each form and size in a round, but no more than [`ROUND_BYTES_MAX`] of log.
    pub inserts: usize,
    /// Rounds.
    pub rounds: usize,
    /// Bytes of each device.
    pub device_bytes: u64,
    /// What goes on meanwhile.
    pub beside: Beside,
}

/// Latencies of one place and one size of values, in microseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// `raw`, or the name of a form.
    pub place: &'static str,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// The median of each round.
    pub medians: Vec<f64>,
    /// The 99th percentile of all rounds.
    pub p99: f64,
    /// The 99.9th percentile of all rounds.
    pub p999: f64,
}

impl Latencies {
    /// The median of the rounds' medians.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut medians = self.medians.clone();
        medians.sort_by(f64::total_cmp);
        medians.get(medians.len() / 2).copied().unwrap_or_default()
    }
}

/// The latency of each of `inserts` inserts into a store, in microseconds.
fn insert(db: &Db, bytes: usize, inserts: usize, round: usize) -> Result<Vec<f64>, String> {
    let mut took = Vec::with_capacity(inserts);
    let value = vec![7; bytes];
    for insert in 0..inserts {
        let key = format!("{bytes:06}{round:04}{insert:06}");
        let watch = Stopwatch::start();
        let put = db.put_with(key.as_bytes(), &value, Durability::Sync);
        put.map_err(|error| error.to_string())?;
        took.push(watch.nanos() as f64 / 1000.0);
    }
    Ok(took)
}

/// The same of a bare device.
fn probe(device: &Path, bytes: usize, inserts: usize) -> Result<Vec<f64>, String> {
    #[expect(clippy::disallowed_methods, reason = "a probe of a device without a store")]
    let file = File::options().read(true).write(true).custom_flags(O_DIRECT).open(device);
    let file = file.map_err(|error| format!("opening {}: {error}", device.display()))?;
    let mut took = Vec::with_capacity(inserts);
    // A group's header and the key, as the store writes them, to whole pages.
    let padded = (bytes + 64).next_multiple_of(PAGE);
    let room = vec![7; padded + PAGE];
    let from = room.as_ptr().align_offset(PAGE);
    let page = room.get(from..from + padded).ok_or("no aligned buffer")?;
    for insert in 0..inserts {
        let watch = Stopwatch::start();
        let written = file.write_all_at(page, (insert * padded) as u64);
        written.and_then(|()| file.sync_data()).map_err(|e| format!("probing: {e}"))?;
        took.push(watch.nanos() as f64 / 1000.0);
    }
    Ok(took)
}

fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a real disk's time, in no simulation")]
    std::thread::sleep(time);
}

/// Writes over and over to the store, so that it flushes and compacts, until `done`.
fn write_beside(db: &Db, seed: u64, done: &AtomicBool) -> Result<(), String> {
    let mut prng = Prng::new(seed, 1);
    let mut value = vec![0; 1000];
    let watch = Stopwatch::start();
    let mut puts = 0;
    while !done.load(Ordering::Relaxed) {
        for _ in 0..PUTS_AT_ONCE {
            let number = prng.below(KEYS_BESIDE);
            value.iter_mut().for_each(|byte| *byte = prng.below(256) as u8);
            let key = format!("beside{number:010}");
            let put = db.put_with(key.as_bytes(), &value, Durability::None);
            put.map_err(|error| error.to_string())?;
        }
        puts += PUTS_AT_ONCE;
        let due = Duration::from_nanos(puts * 1_000_000_000 / PUTS_BESIDE);
        pause(due.saturating_sub(Duration::from_nanos(watch.nanos())));
    }
    Ok(())
}

/// Writes and syncs files in `dir` until `done`.
fn sync_beside(dir: &Path, done: &AtomicBool) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("a neighbour in {}: {error}", dir.display());
    std::fs::create_dir_all(dir).map_err(failed)?;
    let bytes = vec![7; FILE_BYTES];
    for number in (0..FILES).cycle() {
        if done.load(Ordering::Relaxed) {
            break;
        }
        #[expect(clippy::disallowed_methods, reason = "somebody else's files, not a store's")]
        let file = File::create(dir.join(number.to_string()));
        file.and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
            .map_err(failed)?;
        pause(BETWEEN_FILES);
    }
    Ok(())
}

/// Tells what goes on beside that it is over, also where something panics: the scope waits for it.
struct EndsOnDrop<'a>(&'a AtomicBool);

impl Drop for EndsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One turn of one place.
fn turn(
    stand: &Stand,
    beside: Beside,
    (bytes, inserts): (usize, usize),
    round: usize,
) -> Result<Vec<f64>, String> {
    let done = AtomicBool::new(false);
    let took = std::thread::scope(|scope| {
        let other = scope.spawn(|| match (beside, stand.db(), stand.beside()) {
            (Beside::Compactions, Some(db), _) => write_beside(db, round as u64, &done),
            (Beside::Neighbour, _, Some(dir)) => sync_beside(&dir, &done),
            _ => Ok(()),
        });
        let ends = EndsOnDrop(&done);
        let took = match stand.db() {
            Some(db) => insert(db, bytes, inserts, round),
            None => probe(stand.device(), bytes, inserts),
        };
        drop(ends);
        let ended = other.join().map_err(|_| "what goes on beside panicked".to_owned())?;
        ended.and(took)
    })?;
    if let Some(db) = stand.db().filter(|_| beside == Beside::Compactions) {
        // Its jobs are not beside those that have their turn next.
        db.wait_idle().map_err(|error| error.to_string())?;
    }
    Ok(took)
}

/// Measures; images lie in `dir`.
///
/// # Errors
/// What is missing or failed.
pub fn measure(plan: &Plan, dir: &Path) -> Result<Vec<Latencies>, String> {
    let options = match plan.beside {
        Beside::Compactions => Options::default().write_buffer_bytes(8 << 20).table_bytes(4 << 20),
        // Nothing is flushed.
        _ => Options::default().write_buffer_bytes(256 << 20),
    };
    let bytes = plan.device_bytes;
    let rest_bytes = if plan.beside == Beside::Neighbour { REST_BYTES } else { 0 };
    let forms = std::iter::once(None).chain(plan.forms.iter().copied().map(Some));
    let plots =
        forms.map(|form| Plot { form, bytes, slot_bytes: None, log_bytes: None, rest_bytes });
    let stands: Vec<Stand> =
        plots.map(|plot| Stand::new(&plot, &options, dir)).collect::<Result<_, _>>()?;
    let mut all = Vec::new();
    for &value_bytes in &plan.sizes {
        for db in stands.iter().filter_map(Stand::db) {
            db.flush().and_then(|()| db.wait_idle()).map_err(|error| error.to_string())?;
        }
        let padded = (value_bytes + 64).next_multiple_of(PAGE);
        let inserts = plan.inserts.min(ROUND_BYTES_MAX / padded).max(1);
        let mut taken: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); stands.len()];
        for round in 0..plan.rounds {
            for turns in 0..stands.len() {
                // Who begins changes with the round.
                let at = (turns + round) % stands.len();
                let mut took = turn(&stands[at], plan.beside, (value_bytes, inserts), round)?;
                took.sort_by(f64::total_cmp);
                taken[at].0.push(took[took.len() / 2]);
                taken[at].1.append(&mut took);
            }
        }
        for (stand, (medians, mut every)) in stands.iter().zip(taken) {
            every.sort_by(f64::total_cmp);
            let of =
                |share: f64| every[((every.len() as f64 * share) as usize).min(every.len() - 1)];
            let (p99, p999) = (of(0.99), of(0.999));
            all.push(Latencies { place: stand.place(), value_bytes, medians, p99, p999 });
        }
    }
    Ok(all)
}

/// Fig. 13: medians by the size of the value, and slots over the others.
#[must_use]
pub fn outcome(all: &[Latencies], plan: &Plan) -> Outcome {
    let settings = [
        ("inserts", plan.inserts.to_string()),
        ("rounds", plan.rounds.to_string()),
        ("device_bytes", plan.device_bytes.to_string()),
        ("beside", plan.beside.name().to_owned()),
    ];
    let (name, title) = match plan.beside {
        Beside::Nothing => {
            ("lds-fig13".to_owned(), "Latency of synced inserts, medians".to_owned())
        }
        beside => {
            let beside = beside.name();
            (
                format!("lds-fig13-{beside}"),
                format!("Latency of synced inserts beside {beside}, medians"),
            )
        }
    };
    let mut result = outcome_of(&name, "13", title, &settings, Drawn::Lines);
    (result.x, result.y) = (axis("bytes of a value", "B"), axis("latency", "us"));
    for latencies in all {
        let point = [latencies.value_bytes as f64, latencies.median()];
        match result.series.iter_mut().find(|series| series.name == latencies.place) {
            Some(series) => series.points.push(point),
            None => result.series.push(Series {
                name: latencies.place.into(),
                unit: "us".into(),
                points: vec![point],
                labels: Vec::new(),
            }),
        }
    }
    for latencies in all {
        let (place, bytes) = (latencies.place, latencies.value_bytes);
        let name = |what: &str| format!("{place}, {bytes} B{what}");
        let least = latencies.medians.iter().copied().fold(f64::INFINITY, f64::min);
        let most = latencies.medians.iter().copied().fold(0.0, f64::max);
        for (what, us) in [
            ("", latencies.median()),
            (", least round", least),
            (", most", most),
            (", 99th percentile", latencies.p99),
            (", 99.9th percentile", latencies.p999),
        ] {
            result.numbers.push(number(name(what), "us", us, [None; 2], ""));
        }
        let slots = |other: &&Latencies| other.place == "slots" && other.value_bytes == bytes;
        if let Some(slots) = all.iter().find(slots).filter(|slots| slots.place != place) {
            result.numbers.extend(compared(slots, latencies, plan.beside));
        }
    }
    result
}

/// Slots over another place.
fn compared(slots: &Latencies, other: &Latencies, beside: Beside) -> [crate::result::Number; 2] {
    let (place, bytes) = (other.place, other.value_bytes);
    let (high, note) = match place {
        // It has nothing to compact.
        "raw" if beside == Beside::Compactions => (None, ""),
        "raw" => (Some(1.1), "within a tenth of what the device gives"),
        _ => (Some(1.0 / 0.95), "no slower than in files, by more than a twentieth"),
    };
    let name = format!("slots over {place}, {bytes} B");
    let median = number(name, "", slots.median() / other.median(), [None, high], note);
    let (high, note) = match place {
        "ext4" if beside != Beside::Nothing => (Some(1.0), "lower than on ext4"),
        _ => (None, ""),
    };
    let name = format!("slots over {place}, {bytes} B, 99.9th percentile");
    [median, number(name, "", slots.p999 / other.p999, [None, high], note)]
}
