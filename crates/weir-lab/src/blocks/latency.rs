//! How long a synced insert takes on a real device: a store on slots, in files, and a bare probe
//! that writes as many bytes and flushes (LDS Fig. 5b and 13).
//!
//! Images are written in full first: an extent that the file below was only promised is first made
//! one of its own, with its journal. Everything takes turns, round by round, on a loop device of
//! its own that passes the page cache of the file below.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use weir::{Db, Durability, FormatOptions, Options};
use weir_bench::Stopwatch;

use super::device::{Loop, Mounted};
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

/// A device with a store on it, or none; in this order, so that it is taken down in this one.
struct Bench {
    form: Option<Form>,
    db: Option<Db>,
    mounted: Option<Mounted>,
    device: Loop,
}

impl Bench {
    fn new(form: Option<Form>, plan: &Plan, dir: &Path) -> Result<Self, String> {
        let failed = |error: weir::Error| error.to_string();
        let device = Loop::written(dir, plan.device_bytes)?;
        let mut this = Self { form, db: None, mounted: None, device };
        let at = match form {
            None => return Ok(this),
            Some(Form::Slots) => {
                let at = this.device.path().to_owned();
                weir::format(&at, &FormatOptions::new()).map_err(failed)?;
                at
            }
            Some(form) => {
                let mounted = Mounted::new(&this.device, form.name(), dir)?;
                this.mounted.insert(mounted).path().join("store")
            }
        };
        // Nothing is flushed: what compactions do to latencies is another question.
        let options = Options::default().write_buffer_bytes(256 << 20);
        this.db = Some(Db::builder(at).default_options(options).open().map_err(failed)?);
        Ok(this)
    }

    fn place(&self) -> &'static str {
        self.form.map_or("raw", Form::name)
    }

    /// The latency of each of `inserts` inserts, in microseconds.
    fn insert(&self, bytes: usize, inserts: usize, round: usize) -> Result<Vec<f64>, String> {
        let mut took = Vec::with_capacity(inserts);
        let value = vec![7; bytes];
        let Some(db) = &self.db else {
            let file = self.open_raw()?;
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
            return Ok(took);
        };
        for insert in 0..inserts {
            let key = format!("{bytes:06}{round:04}{insert:06}");
            let watch = Stopwatch::start();
            let put = db.put_with(key.as_bytes(), &value, Durability::Sync);
            put.map_err(|error| error.to_string())?;
            took.push(watch.nanos() as f64 / 1000.0);
        }
        Ok(took)
    }

    fn open_raw(&self) -> Result<File, String> {
        let path = self.device.path();
        #[expect(clippy::disallowed_methods, reason = "a probe of a device without a store")]
        let file = File::options().read(true).write(true).custom_flags(O_DIRECT).open(path);
        file.map_err(|error| format!("opening {}: {error}", path.display()))
    }
}

/// Measures; images lie in `dir`.
///
/// # Errors
/// What is missing or failed.
pub fn measure(plan: &Plan, dir: &Path) -> Result<Vec<Latencies>, String> {
    let forms = std::iter::once(None).chain(plan.forms.iter().copied().map(Some));
    let benches: Vec<Bench> =
        forms.map(|form| Bench::new(form, plan, dir)).collect::<Result<_, _>>()?;
    let mut all = Vec::new();
    for &value_bytes in &plan.sizes {
        for db in benches.iter().filter_map(|bench| bench.db.as_ref()) {
            db.flush().and_then(|()| db.wait_idle()).map_err(|error| error.to_string())?;
        }
        let padded = (value_bytes + 64).next_multiple_of(PAGE);
        let inserts = plan.inserts.min(ROUND_BYTES_MAX / padded).max(1);
        let mut taken: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); benches.len()];
        for round in 0..plan.rounds {
            for turn in 0..benches.len() {
                // Who begins changes with the round.
                let at = (turn + round) % benches.len();
                let mut took = benches[at].insert(value_bytes, inserts, round)?;
                took.sort_by(f64::total_cmp);
                taken[at].0.push(took[took.len() / 2]);
                taken[at].1.append(&mut took);
            }
        }
        for (bench, (medians, mut every)) in benches.iter().zip(taken) {
            every.sort_by(f64::total_cmp);
            let p999 = every[every.len() * 999 / 1000];
            all.push(Latencies { place: bench.place(), value_bytes, medians, p999 });
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
    ];
    let title = "Latency of synced inserts, medians".to_owned();
    let mut result = outcome_of("lds-fig13", "13", title, &settings, Drawn::Lines);
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
        let name = format!("{place}, {bytes} B");
        result.numbers.push(number(name, "us", latencies.median(), [None; 2], ""));
        let name = format!("{place}, {bytes} B, 99.9th percentile");
        result.numbers.push(number(name, "us", latencies.p999, [None; 2], ""));
        let slots = |other: &&Latencies| other.place == "slots" && other.value_bytes == bytes;
        let Some(slots) = all.iter().find(slots).filter(|slots| slots.place != place) else {
            continue;
        };
        let (high, note) = match place {
            "raw" => (Some(1.1), "within a tenth of what the device gives"),
            _ => (Some(1.0 / 0.95), "no slower than in files, by more than a twentieth"),
        };
        let ours = slots.median() / latencies.median();
        let name = format!("slots over {place}, {bytes} B");
        result.numbers.push(number(name, "", ours, [None, high], note));
    }
    result
}
