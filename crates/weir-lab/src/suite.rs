//! All runs of some experiments: which are distinct, which results and loaded stores there are
//! already, and the others, side by side.
//!
//! Not here: one run (`simulate`), and what runs say about an experiment (`outcome`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_bench::Stopwatch;

use crate::experiment::{Experiment, Run};
use crate::image::{self, Images};
use crate::outcome::{Size, outcome};
use crate::record::Record;
use crate::result::Result as Outcome;
use crate::settings::Settings;
use crate::{engine, files, operations, simulate};

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// By how much data, caches, files and durations are divided.
    pub scale: u32,
    /// By how much entries, blocks and what holds them are made smaller, at the same number of
    /// them; the disk charges as many times their bytes.
    pub shrink: u32,
    /// Measured phases end after so many seconds of the paper's time, if they are longer.
    pub first: Option<u32>,
    /// Decides everything.
    pub seed: u64,
    /// Where images, results and the stores of runs lie; made if need be.
    pub cache: PathBuf,
    /// Whether runs of the same options, scale, seed and program are taken from there: many figures
    /// show the same run.
    pub reuse: bool,
    /// Whether images stay for later commands. Otherwise each is removed when the last of these
    /// runs that starts from it has ended, and the disk holds a few at a time.
    pub keep_images: bool,
    /// Runs side by side, at least 1.
    pub jobs: usize,
}

/// By how much entries can be made smaller.
pub const SHRINK_MAX: u32 = 16;

/// By how much entries are made smaller if nothing is said: as much as there are constants for, and
/// not at all where tables would become too small for what they do not share.
#[must_use]
pub fn default_shrink(scale: u32) -> u32 {
    if scale < 32 { SHRINK_MAX } else { 1 }
}

/// What an experiment is doing now.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The run, with an experiment that it belongs to.
    pub run: String,
    /// Runs that are done.
    pub done: usize,
    /// All runs.
    pub runs: usize,
    /// What this run does.
    pub stage: Stage,
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    /// Its store is loaded, or taken from an image.
    Loading,
    /// This part of its virtual time has passed.
    Running(f64),
    /// It is done.
    Done,
}

/// Called with each event, from several threads.
pub type Listener = Arc<dyn Fn(Progress) + Send + Sync>;

/// That each run of `experiments` can be run as `options` say, as far as that is known before.
///
/// # Errors
/// The first one that cannot, and why.
pub fn check(experiments: &[Experiment], options: &RunOptions) -> Result<(), String> {
    for experiment in experiments {
        for run in &experiment.runs {
            Task::new(experiment, run, options)?;
        }
    }
    Ok(())
}

/// Runs `experiments`; `progress` is called from several threads. Runs that several of them show
/// are done once. What comes of each, in their order.
pub fn run(
    experiments: &[Experiment],
    options: &RunOptions,
    progress: &Listener,
) -> Vec<Result<Outcome, String>> {
    files::remove_left(&options.cache);
    let mut distinct: BTreeMap<String, usize> = BTreeMap::new();
    let mut tasks: Vec<Task> = Vec::new();
    let mut place = |experiment: &Experiment, run: &Run| -> Result<usize, String> {
        let task = Task::new(experiment, run, options)?;
        Ok(*distinct.entry(task.key.clone()).or_insert_with(|| {
            tasks.push(task);
            tasks.len() - 1
        }))
    };
    let places: Vec<Result<Vec<usize>, String>> =
        experiments.iter().map(|e| e.runs.iter().map(|run| place(e, run)).collect()).collect();
    let records = run_all(&tasks, options, progress);
    let record = |place: usize| match records.get(&place) {
        Some(Ok(record)) => Ok(record.clone()),
        Some(Err(error)) => Err(error.clone()),
        None => Err("a run is missing: it panicked".to_owned()),
    };
    let outcome_of = |(experiment, places): (&Experiment, Result<Vec<usize>, String>)| {
        let records: Result<Vec<Record>, String> = places?.into_iter().map(record).collect();
        let size = Size { scale: options.scale, shrink: options.shrink, first: options.first };
        outcome(experiment, size, options.seed, &records?)
    };
    experiments.iter().zip(places).map(outcome_of).collect()
}

/// One run of one experiment, or of several.
struct Task {
    /// For people: experiment and run.
    name: String,
    /// Scaled.
    settings: Settings,
    /// Of its record in the cache.
    key: String,
}

impl Task {
    fn new(experiment: &Experiment, run: &Run, options: &RunOptions) -> Result<Self, String> {
        let named = |e: String| format!("{}: run {:?}: {e}", experiment.name, run.name);
        Self::unnamed(experiment, run, options).map_err(named)
    }

    fn unnamed(experiment: &Experiment, run: &Run, options: &RunOptions) -> Result<Self, String> {
        let shrink = experiment.shrink(options.shrink);
        let settings = run.settings.clone();
        let settings = match options.first {
            Some(seconds) => settings.first(seconds),
            None => settings,
        };
        let scale = experiment.scale(options.scale);
        let settings = settings.scaled(scale).shrunk(shrink);
        check_scaled(&run.settings, &settings, scale)?;
        let operations = match settings.replay.file.as_str() {
            "" => String::new(),
            file => operations::text_of(Path::new(file))?,
        };
        let (stated, seed) = (format!("{settings:?}"), options.seed.to_string());
        let key = files::key(&["run", &stated, &seed, &operations])?;
        Ok(Self { name: format!("{}: {}", experiment.name, run.name), settings, key })
    }
}

/// That `scaled` can be run, which is `full` at the scale `scale`.
fn check_scaled(full: &Settings, scaled: &Settings, scale: u32) -> Result<(), String> {
    for (name, full, left) in [
        ("load.keys", full.load.keys, scaled.load.keys),
        ("replay.writes", full.replay.writes, scaled.replay.writes),
    ] {
        if full > 0 && left == 0 {
            return Err(format!(
                "at scale {scale} nothing is left of {name}, which is {full}: choose a smaller \
                 --scale, 1 to {full}"
            ));
        }
    }
    let at_scale = |error| format!("at scale {scale}: {error}");
    scaled.check().and_then(|()| engine::check(scaled)).map_err(at_scale)
}

/// How many runs that have not ended start from each image, by what its bytes depend on.
struct Awaited(Mutex<BTreeMap<String, usize>>);

impl Awaited {
    fn new(tasks: &[Task]) -> Self {
        let mut counts = BTreeMap::new();
        for task in tasks {
            for &stage in image::stages(&task.settings) {
                // One that cannot be stated is an error of its run.
                if let Ok(stated) = image::stated(stage, &task.settings) {
                    *counts.entry(stated).or_insert(0) += 1;
                }
            }
        }
        Self(Mutex::new(counts))
    }

    /// `task` has ended: removes the images that no other one starts from.
    fn ended(&self, task: &Task, place: &Place<'_>) -> Result<(), String> {
        let images = Images { cache: &place.options.cache, again: false };
        for &stage in image::stages(&task.settings) {
            let stated = image::stated(stage, &task.settings)?;
            let left = {
                let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let count = counts.entry(stated).or_insert(1);
                *count -= 1;
                *count
            };
            if left == 0 {
                let (seed, processor) = (place.options.seed, place.processor);
                image::discard(images, stage, &task.settings, seed, processor)?;
            }
        }
        Ok(())
    }
}

/// All runs, `jobs` side by side; their records by number.
fn run_all(
    tasks: &[Task],
    options: &RunOptions,
    progress: &Listener,
) -> BTreeMap<usize, Result<Record, String>> {
    let (next, done) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let results: Mutex<BTreeMap<usize, Result<Record, String>>> = Mutex::new(BTreeMap::new());
    let runs = tasks.len();
    let awaited = Awaited::new(tasks);
    let worker = |processor: usize| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(number) else { return };
            let report = {
                let (progress, done, run) =
                    (Arc::clone(progress), Arc::clone(&done), task.name.clone());
                move |stage: Stage| {
                    let done = done.load(Ordering::Relaxed);
                    progress(Progress { run: run.clone(), done, runs, stage });
                }
            };
            let place = Place { options, processor };
            let mut result = one(task, &place, report.clone());
            if !options.keep_images {
                let ended = awaited.ended(task, &place);
                result = result.and_then(|record| ended.map(|()| record));
            }
            done.fetch_add(1, Ordering::Relaxed);
            report(Stage::Done);
            let named = result.map_err(|e| format!("{}: {e}", task.name));
            results.lock().unwrap_or_else(PoisonError::into_inner).insert(number, named);
        }
    };
    std::thread::scope(|scope| {
        let worker = &worker;
        for processor in 1..options.jobs.max(1) {
            scope.spawn(move || worker(processor));
        }
        worker(0);
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Where a run happens.
struct Place<'a> {
    options: &'a RunOptions,
    processor: usize,
}

/// One run, from its image on.
fn one(
    task: &Task,
    place: &Place<'_>,
    report: impl Fn(Stage) + Send + 'static,
) -> Result<Record, String> {
    let (options, processor, settings) = (place.options, place.processor, &task.settings);
    let cached = options.cache.join("runs").join(format!("{}.json", task.key));
    if options.reuse
        && let Some(text) = files::read_text(&cached)
        && let Ok(record) = serde_json::from_str(&text)
    {
        return Ok(record);
    }
    let clock = Stopwatch::start();
    report(Stage::Loading);
    let images = Images { cache: &options.cache, again: !options.reuse };
    let full = |error: String| on_a_full_disk(error, &options.cache, settings);
    let image = (settings.load.keys > 0)
        .then(|| image::of(images, settings, options.seed, processor).map_err(full))
        .transpose()?;
    let progress = move |part| report(Stage::Running(part));
    let seed = options.seed;
    let run = simulate::run(image.as_deref(), settings, seed, processor, progress);
    // An image that can be opened may be damaged where a run comes to later.
    let mut record = run.map_err(|error| {
        let checked = image.as_deref().map_or(Ok(()), |image| image::check(image, true));
        checked.err().unwrap_or(error)
    })?;
    record.real_seconds = clock.seconds();
    let text = serde_json::to_string(&record).map_err(|e| e.to_string())?;
    files::write_text(&cached, &text).map_err(full)?;
    Ok(record)
}

/// `error`, and if the disk of `cache` is full, what to do about it.
fn on_a_full_disk(error: String, cache: &Path, settings: &Settings) -> String {
    // ENOSPC and EDQUOT, as the standard library and the engine write them.
    if !["(os error 28)", "(os error 122)"].iter().any(|code| error.contains(code)) {
        return error;
    }
    let loaded = settings.loaded_bytes() / u64::from(settings.disk.charge);
    // A tree that has aged has half as much again as one that was loaded, the largest ones.
    let bytes = if settings.load.updates > 0 { loaded * 5 / 2 } else { loaded };
    format!(
        "{error}; {} is a cache and may be removed, what is needed of it is made again; the images \
         of this run take about {} MB there",
        cache.display(),
        bytes.div_ceil(1_000_000)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: images that nobody starts from any more are removed if asked, and no others. Method:
    /// two runs of one image, one of another; the folder after each has ended.
    #[test]
    fn images_are_removed_after_their_last_run() {
        let cache = tempfile::tempdir().expect("a directory");
        let folder = cache.path().join("images");
        let options = RunOptions {
            scale: 4096,
            shrink: 1,
            first: None,
            seed: 1,
            cache: cache.path().to_owned(),
            reuse: true,
            keep_images: false,
            jobs: 1,
        };
        let task = |keys: u64| {
            let experiment = crate::catalog::named("lsbm-fig11b").expect("built in");
            let mut settings = experiment.runs[0].settings.clone().scaled(options.scale);
            settings.load.keys = keys;
            settings.store.table_bytes = 256 << 10;
            Task { name: keys.to_string(), settings, key: String::new() }
        };
        let tasks = [task(5_000), task(5_000), task(6_000)];
        let (awaited, place) = (Awaited::new(&tasks), Place { options: &options, processor: 0 });
        let images = Images { cache: cache.path(), again: false };
        for task in &tasks {
            image::of(images, &task.settings, 1, 0).expect("made");
        }
        let each = tasks.iter().map(|task| image::stages(&task.settings).len()).collect::<Vec<_>>();
        let count = || files::list(&folder).expect("listed").len() - 1;
        let mut counts = vec![count()];
        for task in &tasks {
            awaited.ended(task, &place).expect("removed");
            counts.push(count());
        }
        assert_eq!(counts, [2 * each[0], 2 * each[0], each[0], 0]);
    }

    /// Goal: who has no space left learns what may go and how much is needed, and nobody else.
    #[test]
    fn a_full_disk_is_explained() {
        let experiment = crate::catalog::named("lsbm-fig11b").expect("built in");
        let settings = experiment.runs[0].settings.clone().scaled(64);
        let cache = Path::new("out/cache");
        let other = "writing x: denied (os error 13)";
        assert_eq!(on_a_full_disk(other.into(), cache, &settings), other);
        let full = "writing x: No space left on device (os error 28)";
        let text = on_a_full_disk(full.into(), cache, &settings);
        assert!(text.contains("out/cache is a cache and may be removed"), "{text}");
        assert!(text.ends_with("about 839 MB there"), "{text}");
    }
}
