//! From an experiment to its result.
//!
//! Runs do not know of each other; they may run side by side. What is shown in
//! times is multiplied by the scale, so that it can be held against the paper.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_bench::Stopwatch;

use crate::experiment::{Experiment, Run, Wanted};
use crate::files::{self, WorkDir};
use crate::measure;
use crate::result::{Axis, Kind, Number, Result as Outcome, Series};
use crate::run::{self, Record};
use crate::settings::{Durability, Settings, Store, WarmUp};
use crate::store;

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// By how much data, caches, files and durations are divided.
    pub scale: u32,
    /// Decides everything.
    pub seed: u64,
    /// Where images, results and the stores of runs lie; made if need be.
    pub cache: PathBuf,
    /// Whether runs of the same options, scale, seed and program are taken from there: many figures
    /// show the same run.
    pub reuse: bool,
    /// Runs side by side, at least 1.
    pub jobs: usize,
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

/// Who is told of it, from several threads.
pub type Listener = Arc<dyn Fn(Progress) + Send + Sync>;

/// Runs `experiments`; `progress` is called from several threads. Runs that several of them show
/// are done once. What comes of each, in their order.
pub fn run(
    experiments: &[Experiment],
    options: &RunOptions,
    progress: &Listener,
) -> Vec<Result<Outcome, String>> {
    let mut distinct: BTreeMap<String, usize> = BTreeMap::new();
    let mut tasks: Vec<Task> = Vec::new();
    let mut place = |experiment: &Experiment, run: &Run| -> Result<usize, String> {
        let named = |e: String| format!("{}: run {:?}: {e}", experiment.name, run.name);
        let task = Task::new(experiment, run, options).map_err(named)?;
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
        outcome(experiment, options, &records?)
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
        let settings = run.settings.clone().scaled(options.scale);
        let operations = match settings.replay.file.as_str() {
            "" => String::new(),
            file => files::read_text(Path::new(file))
                .ok_or_else(|| format!("replay.file: cannot read {file:?}"))?,
        };
        let (stated, seed) = (format!("{settings:?}"), options.seed.to_string());
        let key = files::key(&["run", &stated, &seed, &operations])?;
        Ok(Self { name: format!("{}: {}", experiment.name, run.name), settings, key })
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
    let loading = Mutex::new(());
    let runs = tasks.len();
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
            let place = Place { options, loading: &loading, processor };
            let result = one(task, &place, report.clone());
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
    /// One image is loaded at a time: two runs often need the same.
    loading: &'a Mutex<()>,
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
    let work = WorkDir::new(&options.cache)?;
    if settings.load.keys > 0 {
        let image = {
            let _one = place.loading.lock().map_err(|_| "a load panicked")?;
            image(&options.cache, settings, options.seed, processor)?
        };
        work.fill_from(&image)?;
    }
    let progress = move |part| report(Stage::Running(part));
    let mut record = run::run(work.path(), settings, options.seed, processor, progress)?;
    record.real_seconds = clock.seconds();
    let text = serde_json::to_string(&record).map_err(|e| e.to_string())?;
    files::write_text(&cached, &text)?;
    Ok(record)
}

/// The image of a loaded store: from the cache, or loaded now.
fn image(
    cache: &Path,
    settings: &Settings,
    seed: u64,
    processor: usize,
) -> Result<PathBuf, String> {
    // What the tables depend on. The cache's size and the like do not change a byte.
    let tree = settings.policies.tree(settings.load.policy)?;
    let text = format!("{:?} {tree:?} {:?}", settings.load, image_options(settings));
    let key = files::key(&["image", &text, &seed.to_string()])?;
    let path = cache.join("images").join(key);
    if path.is_dir() {
        return Ok(path);
    }
    let work = WorkDir::new(cache)?;
    store::load(work.path(), settings, seed, processor)?;
    work.keep_as(&path)?;
    Ok(path)
}

/// The store's options with those left out that an image does not depend on: it is loaded by the
/// policy that `load` names.
fn image_options(settings: &Settings) -> Store {
    let mut store = settings.store.clone();
    store.block_cache_bytes = 0;
    store.row_cache_bytes = 0;
    store.warm_up = WarmUp::None;
    store.durability = Durability::None;
    store.policy = settings.load.policy;
    store
}

/// What `records`, one for each run, say about `experiment`.
pub(crate) fn outcome(
    experiment: &Experiment,
    options: &RunOptions,
    records: &[Record],
) -> Result<Outcome, String> {
    let scale = f64::from(options.scale);
    let numbers =
        experiment.numbers.iter().map(|wanted| number(experiment, wanted, records, scale));
    let mut notes = experiment.notes.clone();
    notes.push(format!(
        "data, caches, files and durations are 1/{} of the paper's; times are shown as the paper's",
        options.scale
    ));
    for (run, record) in experiment.runs.iter().zip(records) {
        let level = |(i, [runs, tables, bytes]): (usize, &[u64; 3])| {
            let megabytes = *bytes as f64 / 1e6;
            (*runs > 0)
                .then(|| format!("level {i}: {runs} runs, {tables} tables, {megabytes:.1} MB"))
        };
        let levels: Vec<String> = record.levels.iter().enumerate().filter_map(level).collect();
        notes.push(format!("{} at its end: {}", run.name, levels.join("; ")));
    }
    let axis = |axis: &Axis| Axis { label: axis.label.clone(), unit: axis.unit.clone() };
    let lines = experiment.paper_lines.iter().map(|line| Series {
        name: line.name.clone(),
        unit: line.unit.clone(),
        points: line.points.clone(),
        labels: line.labels.clone(),
    });
    Ok(Outcome {
        experiment: experiment.name.clone(),
        paper: experiment.paper.clone(),
        figure: experiment.figure.clone(),
        title: experiment.title.clone(),
        scale: options.scale,
        seed: options.seed,
        command: format!(
            "weir lab run {} --scale {} --seed {}",
            experiment.source, options.scale, options.seed
        ),
        settings: settings(experiment, options.scale),
        kind: experiment.plot.kind,
        x: axis(&experiment.plot.x),
        y: axis(&experiment.plot.y),
        series: series(experiment, records, scale)?,
        paper_lines: lines.collect(),
        numbers: numbers.collect::<Result<_, _>>()?,
        virtual_seconds: records.iter().map(|r| r.virtual_seconds).sum(),
        real_seconds: records.iter().map(|r| r.real_seconds).sum(),
        notes,
    })
}

/// Every option, and where a run differs, that run's; scaled.
fn settings(experiment: &Experiment, scale: u32) -> BTreeMap<String, String> {
    let mut all = experiment.options.clone();
    all.insert("scale".into(), scale.to_string());
    for run in &experiment.runs {
        for (option, value) in &run.set {
            all.insert(format!("{}: {option}", run.name), value.clone());
        }
    }
    all
}

/// The number `measure` of a run; times as the paper's.
fn value(record: &Record, measure: &str, scale: f64) -> Result<f64, String> {
    let value = measure::number(record, measure)?;
    Ok(match measure {
        _ if measure::is_time(measure) => value * scale,
        _ if measure.starts_with("level_update_rate") => value / scale,
        _ => value,
    })
}

fn series(experiment: &Experiment, records: &[Record], scale: f64) -> Result<Vec<Series>, String> {
    let plot = &experiment.plot;
    let runs = || experiment.runs.iter().zip(records);
    match plot.kind {
        Kind::Time => over_time(experiment, records, scale),
        Kind::Bars => plot
            .measures
            .iter()
            .map(|measure| {
                let values: Result<Vec<f64>, String> =
                    runs().map(|(_, record)| value(record, measure, scale)).collect();
                let points = values?.into_iter().enumerate().map(|(i, v)| [i as f64, v]).collect();
                Ok(Series {
                    name: measure.clone(),
                    unit: measure::unit(measure).to_owned(),
                    points,
                    labels: experiment.runs.iter().map(|run| run.name.clone()).collect(),
                })
            })
            .collect(),
        Kind::Lines => over_parameter(experiment, records, scale),
        Kind::Scatter => {
            let [x, y] = plot.measures.as_slice() else {
                return Err("a scatter plot needs two measures".into());
            };
            runs()
                .map(|(run, record)| {
                    let point = [value(record, x, scale)?, value(record, y, scale)?];
                    Ok(Series {
                        name: run.name.clone(),
                        unit: measure::unit(y).to_owned(),
                        points: vec![point],
                        labels: vec![run.name.clone()],
                    })
                })
                .collect()
        }
    }
}

/// One line per run and measure. Of several, one that is 0 all the time is left out: it is about a
/// cache that the run does not have.
fn over_time(
    experiment: &Experiment,
    records: &[Record],
    scale: f64,
) -> Result<Vec<Series>, String> {
    let mut all = Vec::new();
    for (run, record) in experiment.runs.iter().zip(records) {
        for measure in &experiment.plot.measures {
            let points = measure::series(record, measure)
                .ok_or_else(|| format!("there is no measure {measure:?} over time"))?;
            let several = experiment.plot.measures.len() > 1;
            if several && points.iter().all(|point| point[1] == 0.0) {
                continue;
            }
            let name = if several { format!("{}: {measure}", run.name) } else { run.name.clone() };
            all.push(Series {
                name,
                unit: measure::unit(measure).to_owned(),
                points: points.into_iter().map(|[x, y]| [x * scale, y]).collect(),
                labels: Vec::new(),
            });
        }
    }
    Ok(all)
}

/// One line per series that the runs name, in their order.
fn over_parameter(
    experiment: &Experiment,
    records: &[Record],
    scale: f64,
) -> Result<Vec<Series>, String> {
    let mut all: Vec<Series> = Vec::new();
    for measure in &experiment.plot.measures {
        let first = all.len();
        for (run, record) in experiment.runs.iter().zip(records) {
            if let Some(base) = measure.strip_suffix("_by_level") {
                let levels = 1..=measure::levels(record);
                let point = |level: usize| -> Result<[f64; 2], String> {
                    Ok([level as f64, value(record, &format!("{base}_{level}"), scale)?])
                };
                all.push(Series {
                    name: format!("{}: {base}", run.name),
                    unit: measure::unit(base).to_owned(),
                    points: levels.map(point).collect::<Result<_, String>>()?,
                    labels: Vec::new(),
                });
                continue;
            }
            let Some(point) = &run.point else { continue };
            let value = [point.x, value(record, measure, scale)?];
            let several = experiment.plot.measures.len() > 1;
            let name =
                if several { format!("{}: {measure}", point.series) } else { point.series.clone() };
            match all.iter_mut().skip(first).find(|line| line.name == name) {
                Some(line) => line.points.push(value),
                None => all.push(Series {
                    name,
                    unit: measure::unit(measure).to_owned(),
                    points: vec![value],
                    labels: Vec::new(),
                }),
            }
        }
    }
    Ok(all)
}

fn number(
    experiment: &Experiment,
    wanted: &Wanted,
    records: &[Record],
    scale: f64,
) -> Result<Number, String> {
    let of = |name: &str| -> Result<f64, String> {
        let place = experiment.runs.iter().position(|run| run.name == name);
        let record = place.and_then(|i| records.get(i)).ok_or("a run is missing")?;
        value(record, &wanted.measure, scale)
    };
    let mut ours = of(&wanted.run)?;
    let mut unit = measure::unit(&wanted.measure).to_owned();
    if let Some(over) = &wanted.over {
        let under = of(over)?;
        ours = if under == 0.0 { 0.0 } else { ours / under };
        unit.clear();
    }
    if let Some(less) = &wanted.less {
        ours -= of(less)?;
    }
    if let Some(value) = wanted.over_value {
        ours /= value;
        unit.clear();
    }
    Ok(Number {
        name: wanted.name.clone(),
        unit,
        ours,
        paper: wanted.paper,
        low: wanted.low,
        high: wanted.high,
        differs: wanted.differs.clone(),
        note: wanted.note.clone(),
    })
}
