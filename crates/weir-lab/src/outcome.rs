//! What the records of an experiment's runs say about it: series, numbers, notes.
//!
//! What is shown in times is multiplied by the scale, so that it can be held against the paper.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::experiment::{Experiment, Wanted};
use crate::measure;
use crate::record::Record;
use crate::result::{Axis, Kind, Number, Result as Outcome, Series};
use crate::suite::default_shrink;

/// How large runs were made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) scale: u32,
    pub(crate) shrink: u32,
    /// Where measured phases end, in seconds of the paper's time.
    pub(crate) first: Option<u32>,
}

/// What `records`, one for each run, say about `experiment`.
pub(crate) fn outcome(
    experiment: &Experiment,
    size: Size,
    seed: u64,
    records: &[Record],
) -> Result<Outcome, String> {
    let (scale, shrink) = (size.scale, experiment.shrink(size.shrink));
    let run_scale = experiment.scale(scale);
    let factor = f64::from(run_scale);
    let end = size.first.map_or(f64::INFINITY, f64::from);
    let (wanted, later): (Vec<&Wanted>, Vec<&Wanted>) =
        experiment.numbers.iter().partition(|wanted| wanted.last_second() <= end);
    let numbers = wanted.into_iter().map(|wanted| number(experiment, wanted, records, factor));
    let mut notes = experiment.notes.clone();
    if !experiment.set.is_empty() {
        notes.insert(0, not_the_experiment(experiment));
    }
    notes.push(match run_scale {
        1 => "data, caches, files and durations are the paper's".to_owned(),
        scale => format!(
            "data, caches, files and durations are 1/{scale} of the paper's; times are shown as \
             the paper's"
        ),
    });
    if shrink > 1 {
        notes.push(format!(
            "entries and blocks have a {shrink}th of the paper's bytes, at the same number, and \
             the disk charges {shrink} times theirs; the sizes of levels below are not multiplied"
        ));
    }
    if let Some(seconds) = size.first {
        notes.push(format!("what is measured ends after {seconds} s of the paper's time"));
        let names: Vec<String> = later.iter().map(|w| format!("{:?}", w.name)).collect();
        if !names.is_empty() {
            notes.push(format!("left out, being about later seconds: {}", names.join(", ")));
        }
    }
    if experiment.short {
        notes.push("runs that are long are left out, and the numbers that need them".to_owned());
    }
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
        name: named(&line.name),
        unit: line.unit.clone(),
        points: line.points.clone(),
        labels: line.labels.clone(),
    });
    Ok(Outcome {
        experiment: experiment.name.clone(),
        paper: experiment.paper.clone(),
        figure: experiment.figure.clone(),
        title: experiment.title.clone(),
        scale,
        shrink: (size.shrink != default_shrink(scale)).then_some(size.shrink),
        first: size.first,
        short: experiment.short,
        seed,
        command: command(experiment, size, seed),
        settings: settings(experiment, Size { scale: run_scale, shrink, ..size }),
        set: experiment.set.clone(),
        kind: experiment.plot.kind,
        x: axis(&experiment.plot.x),
        y: axis(&experiment.plot.y),
        series: series(experiment, records, factor)?,
        paper_lines: lines.collect(),
        numbers: numbers.collect::<Result<_, _>>()?,
        virtual_seconds: records.iter().map(|r| r.virtual_seconds).sum(),
        real_seconds: records.iter().map(|r| r.real_seconds).sum(),
        notes,
    })
}

/// What makes the result again.
fn command(experiment: &Experiment, size: Size, seed: u64) -> String {
    let Size { scale, shrink, first } = size;
    let mut text = format!(
        "weir lab run {} --scale {scale} --shrink {shrink} --seed {seed}",
        experiment.source
    );
    if let Some(seconds) = first {
        text += &format!(" --first {seconds}");
    }
    if experiment.short {
        text += " --short";
    }
    for (option, value) in &experiment.set {
        text += &format!(" --set {option}={value}");
    }
    text
}

/// What a reader must know first of a result whose options were set from outside.
fn not_the_experiment(experiment: &Experiment) -> String {
    let set = experiment.set.iter().map(|(option, value)| format!("{option} is {value}"));
    let set = set.collect::<Vec<_>>().join(", ");
    format!(
        "this is not the experiment {}: by --set, {set} for every run, whatever the experiment \
         says; its numbers are held against the bounds of the experiment, and count nowhere",
        experiment.name
    )
}

/// Every option, and where a run differs, that run's; scaled.
fn settings(experiment: &Experiment, size: Size) -> BTreeMap<String, String> {
    let mut all = experiment.options.clone();
    all.insert("scale".into(), size.scale.to_string());
    all.insert("shrink".into(), size.shrink.to_string());
    if let Some(seconds) = size.first {
        all.insert("first".into(), seconds.to_string());
    }
    for (option, value) in &experiment.set {
        all.insert(format!("--set {option}"), value.clone());
    }
    for run in &experiment.runs {
        for (option, value) in &run.set {
            all.insert(format!("{}: {option}", run.name), value.clone());
        }
    }
    all
}

/// The number `measure` of a run; times and sizes as the paper's.
fn value(record: &Record, measure: &str, scale: f64) -> Result<f64, String> {
    let value = measure::number(record, measure)?;
    Ok(match measure {
        _ if measure::is_time(measure) => value * scale,
        _ if measure.starts_with("level_update_rate") => value / scale,
        _ if measure::is_size(measure) => value * scale,
        _ => value,
    })
}

/// A measure of a run, as the legend has it.
fn of_run(run: &str, measure: &str) -> String {
    format!("{run}: {}", measure::words(measure))
}

/// `name` with the words of the measure that it is, or that it ends with behind a run's name: as
/// series are called, so that a line of the paper finds the one that it belongs to.
fn named(name: &str) -> String {
    match name.rsplit_once(": ") {
        Some((run, measure)) => of_run(run, measure),
        None => measure::words(name).into_owned(),
    }
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
                    name: named(measure),
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
            let size = if measure::is_size(measure) { scale } else { 1.0 };
            let several = experiment.plot.measures.len() > 1;
            if several && points.iter().all(|point| point[1] == 0.0) {
                continue;
            }
            let name = if several { of_run(&run.name, measure) } else { run.name.clone() };
            all.push(Series {
                name,
                unit: measure::unit(measure).to_owned(),
                points: points.into_iter().map(|[x, y]| [x * scale, y * size]).collect(),
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
                    name: of_run(&run.name, base),
                    unit: measure::unit(base).to_owned(),
                    points: levels.map(point).collect::<Result<_, String>>()?,
                    labels: Vec::new(),
                });
                continue;
            }
            let Some(point) = &run.point else { continue };
            let value = [point.x, value(record, measure, scale)?];
            let several = experiment.plot.measures.len() > 1;
            let name = if several { of_run(&point.series, measure) } else { point.series.clone() };
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
    let of_span = |name: &str, phase: Option<&str>, span: Option<[f64; 2]>| {
        let place = experiment.runs.iter().position(|run| run.name == name);
        let record = place.and_then(|i| records.get(i)).ok_or("a run is missing")?;
        let mut record = Cow::Borrowed(record);
        if let Some(name) = phase {
            record = Cow::Owned(record.of_phase(name).ok_or("a phase is missing")?);
        }
        if let Some(name) = &wanted.clients {
            record = Cow::Owned(record.of_clients(name).ok_or("a group of clients is missing")?);
        }
        if let Some(span) = span {
            record = Cow::Owned(measure::within(&record, span.map(|seconds| seconds / scale)));
        }
        value(&record, &wanted.measure, scale)
    };
    let of = |name: &str, phase: Option<&str>| of_span(name, phase, wanted.span);
    let phase = wanted.phase.as_deref();
    let mut ours = of(&wanted.run, phase)?;
    let other = wanted.over_phase.as_deref().or(phase);
    let mut unit = measure::unit(&wanted.measure).to_owned();
    if let Some(over) = &wanted.over {
        let under = of(over, other)?;
        ours = if under == 0.0 { 0.0 } else { ours / under };
        unit.clear();
    }
    if let Some(span) = wanted.over_span {
        let under = of_span(&wanted.run, phase, Some(span))?;
        ours = if under == 0.0 { 0.0 } else { ours / under };
        unit.clear();
    }
    if let Some(less) = &wanted.less {
        ours -= of(less, other)?;
    }
    if let Some(value) = wanted.over_value {
        ours /= value;
        unit.clear();
    }
    Ok(Number {
        name: wanted.name.clone(),
        unit,
        statistic: measure::statistic(&wanted.measure).to_owned(),
        ours,
        span: wanted.span,
        over_span: wanted.over_span,
        paper: wanted.paper,
        low: wanted.low,
        high: wanted.high,
        differs: wanted.differs.clone(),
        guard: wanted.guard,
        note: wanted.note.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    /// Goal: a run that ends early has no number about what it did not measure, and says which.
    /// Method: the experiment with the latest span, from records in which nothing happens.
    #[test]
    fn numbers_about_later_seconds_are_left_out() {
        let experiment = catalog::named("lsbm-fig16").expect("built in");
        let mut sample = crate::record::Sample::default();
        sample.levels.iter_mut().for_each(|level| level.bytes = 1);
        let samples = vec![sample; 3];
        let record = Record { samples, ..Record::default() };
        let records = vec![record; experiment.runs.len()];
        let of = |first: Option<u32>| {
            let size = Size { scale: 64, shrink: 1, first };
            outcome(&experiment, size, 1, &records).expect("numbers")
        };
        let (whole, part) = (of(None), of(Some(5000)));
        assert_eq!(whole.numbers.len(), experiment.numbers.len());
        let later = "size of stepped-merge, last 5,000 s over the first 5,000 s";
        assert!(whole.number(later).is_some() && part.number(later).is_none());
        assert!(part.number("size, stepped-merge over bLSM").is_some());
        assert!(part.notes.iter().any(|note| note.contains(later)), "{:?}", part.notes);
        assert_eq!((part.first, part.shown_scale()), (Some(5000), "1/64, first 5000 s".into()));
        assert!(part.command.ends_with(" --first 5000"), "{}", part.command);
    }
}
