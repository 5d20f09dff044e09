//! Goal: every kind of plot has its title, axes, legend and, dashed, what the paper gives; any
//! result can be drawn. Method: sample results and one of every experiment, their SVGs parsed.

use std::collections::BTreeMap;

use super::*;
use crate::experiment::{Experiment, Run};
use crate::outcome::{Size, outcome};
use crate::phases::Phase;
use crate::record::{LevelSample, Measured, Record, Sample, Work};
use crate::result::{Axis, Kind, Number, Series};

fn series(name: &str, unit: &str, points: &[[f64; 2]], labels: &[&str]) -> Series {
    let labels = labels.iter().map(|&l| l.to_owned()).collect();
    Series { name: name.into(), unit: unit.into(), points: points.to_vec(), labels }
}

fn axis(label: &str, unit: &str) -> Axis {
    Axis { label: label.into(), unit: unit.into() }
}

fn number(name: &str, unit: &str, ours: f64, paper: f64, low: f64, high: f64) -> Number {
    Number {
        name: name.into(),
        unit: unit.into(),
        statistic: String::new(),
        span: None,
        over_span: None,
        ours,
        paper: Some(paper),
        differs: None,
        guard: false,
        low: Some(low),
        high: Some(high),
        note: "the paper's text gives the value, the bounds are half of it and twice".into(),
    }
}

fn empty(kind: Kind, title: &str) -> Outcome {
    Outcome {
        experiment: format!("sample-{kind:?}").to_lowercase(),
        paper: "LSbM".into(),
        figure: "11a".into(),
        title: title.into(),
        scale: 64,
        shrink: None,
        first: None,
        short: false,
        seed: 1,
        command: "weir lab run sample".into(),
        settings: BTreeMap::from([("store.policy".into(), "\"leveled\"".into())]),
        set: BTreeMap::new(),
        kind,
        x: axis("virtual time", "s"),
        y: axis("hit ratio", "%"),
        series: Vec::new(),
        paper_lines: Vec::new(),
        numbers: vec![number("mean hit ratio", "%", 84.2, 86.0, 75.0, 100.0)],
        virtual_seconds: 312.5,
        real_seconds: 8.25,
        notes: vec!["sampled every 1.6 s".into()],
    }
}

/// One result of every kind, made up, as awkward as real ones get.
pub(crate) fn samples() -> Vec<Outcome> {
    let wave = |depth: f64, period: f64| -> Vec<[f64; 2]> {
        let at = |i: u32| f64::from(i) * 1.6;
        (0..196)
            .map(|i| [at(i), 90.0 - depth * (at(i) % period) / period * at(i) / 312.0])
            .collect()
    };
    let mut time = empty(Kind::Time, "Hit ratio over time under RangeHot reads & uniform updates");
    time.series = vec![
        series("bLSM", "%", &wave(70.0, 31.0), &[]),
        series("LevelDB", "%", &wave(55.0, 62.0), &[]),
        series("LSbM", "%", &wave(3.0, 100.0), &[]),
    ];
    time.paper_lines = vec![series("LSbM", "%", &[[0.0, 86.0]], &[])];
    let mut bars = empty(Kind::Bars, "Average hit ratio and throughput of four trees");
    let names = ["LevelDB", "bLSM", "stepped-merge", "bLSM with a key-value cache", "LSbM"];
    let values = |v: [f64; 5]| -> Vec<[f64; 2]> { (0..5).map(|i| [i as f64, v[i]]).collect() };
    bars.x = axis("", "");
    bars.series = vec![
        series("hit ratio", "%", &values([71.0, 72.4, 66.0, 40.5, 86.3]), &names),
        series("throughput", "op/s", &values([989.0, 1066.0, 228.0, 68.0, 1134.0]), &names),
    ];
    bars.paper_lines = vec![series("throughput", "op/s", &[[1.0, 1100.0], [4.0, 1134.0]], &[])];
    let mut lines = empty(Kind::Lines, "Run time over the size of a chunk");
    let sizes = [4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
    let curve = |a: f64, b: f64| sizes.map(|x| [x, a + b / x]).to_vec();
    (lines.x, lines.y) = (axis("chunk", "MB"), axis("run time", "s"));
    lines.series = vec![
        series("LDS", "s", &curve(80.0, 300.0), &[]),
        series("ext4 <journal>", "s", &curve(100.0, 900.0), &[]),
    ];
    lines.paper_lines = vec![
        series("LDS", "s", &curve(82.0, 280.0), &[]),
        series("paper: the bandwidth's limit", "s", &[[4.0, 70.0]], &[]),
    ];
    let mut scatter = empty(Kind::Scatter, "Which tree is good at what");
    (scatter.x, scatter.y) = (axis("throughput of range reads", "op/s"), axis("hit ratio", "%"));
    let dots =
        [("bLSM", 1066.0, 72.0), ("SM", 228.0, 66.0), ("KV", 68.0, 70.0), ("LSbM", 1100.0, 72.5)];
    for (name, x, y) in dots {
        scatter.series.push(series(name, "%", &[[x, y]], &[name]));
    }
    scatter.paper_lines = vec![series("LSbM", "%", &[[1134.0, 86.0]], &["LSbM, paper"])];
    vec![time, bars, lines, scatter]
}

fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).expect("well-formed");
    let texts = document
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")));
    texts.map(|node| node.text().unwrap_or_default().trim().to_owned()).collect()
}

/// Pieces of line, at least `count` of them in a row, of the same colour: dashes.
fn dashed_colors(svg: &str, count: usize) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).expect("well-formed");
    let mut dashes: BTreeMap<String, usize> = BTreeMap::new();
    for line in document.descendants().filter(|node| node.tag_name().name() == "polyline") {
        let points = line.attribute("points").unwrap_or_default().split_whitespace().count();
        if points <= 3 && line.attribute("stroke-width") == Some("2") {
            *dashes.entry(line.attribute("stroke").unwrap_or_default().to_owned()).or_default() +=
                1;
        }
    }
    dashes.into_iter().filter(|(_, n)| *n >= count).map(|(color, _)| color).collect()
}

/// What the legend calls a line of the paper: the only value over time is a mean.
fn paper_entry(result: &Outcome, line: &Series) -> String {
    let is_mean = result.kind == Kind::Time && line.points.len() == 1;
    let name = line.name.trim_start_matches("paper: ").replace('_', " ");
    format!("{}: {name}", if is_mean { "paper, mean" } else { "paper" })
}

/// Goal: what a reader needs is there. Method: the texts of each kind's SVG, and its dashes.
#[test]
fn plots_name_everything() {
    for result in samples() {
        let svg = svg(&result).expect("drawn");
        let texts = texts(&svg);
        let has = |text: &str| assert!(texts.iter().any(|t| t.contains(text)), "{text}: {texts:?}");
        has(&result.title);
        has("LSbM, Figure 11a · scale 1/64 · seed 1");
        has(&show::with_unit(&result.x.label, &result.x.unit));
        has(&show::with_unit(&result.y.label, &result.y.unit));
        for series in &result.series {
            assert!(texts.contains(&series.name), "{} in {texts:?}", series.name);
        }
        for line in &result.paper_lines {
            has(&paper_entry(&result, line));
        }
        for label in result.series.iter().flat_map(|s| &s.labels) {
            // Long names are broken into lines.
            has(label.split_whitespace().next().expect("a word"));
        }
        if result.kind != Kind::Scatter {
            assert!(!dashed_colors(&svg, 4).is_empty(), "{:?} without dashes", result.kind);
        }
        assert_eq!(svg, super::svg(&result).expect("drawn"), "the same bytes");
    }
}

/// A result of `experiment` from made-up counters: what is drawn, not how high.
fn made_up(experiment: &Experiment) -> Outcome {
    let record = |(run, of): (u64, &Run)| {
        let sample = |i: u64| {
            let mut sample = Sample {
                seconds: i as f64,
                reads: 100 * i * run,
                read_nanos: 1_000_000 * i,
                writes: 100 * i,
                hits: 70 * i * run,
                misses: 30 * i,
                cache_bytes: i,
                cache_capacity: 10,
                flushed_bytes: 1000 * i,
                merged_bytes: 9000 * i,
                merge_read_bytes: 9000 * i,
                write_seconds: i as f64,
                ..Sample::default()
            };
            let (bytes, compacted) = (1000 * run, 900 * i * run);
            let level = LevelSample { bytes, compacted, ..LevelSample::default() };
            sample.levels[4..].fill(level);
            sample.disk.table_bytes = 1100 + i;
            (sample.disk.page_hits, sample.disk.page_misses) = (5 * i, 5 * i);
            sample
        };
        let samples = (0..10).map(sample).collect();
        let measured = of.settings.phases.iter().filter(|phase| phase.measured);
        let all = |phase: &Phase| Measured { name: phase.name.clone(), first: 0, last: 9 };
        let names = of.settings.readers.keys().map(|name| format!("readers.{name}"));
        Record {
            samples,
            phases: measured.map(all).collect(),
            clients: names.map(|name| (name, vec![Work::default(); 10])).collect(),
            loaded_bytes: 1000,
            spindles: 2,
            ..Record::default()
        }
    };
    let records: Vec<Record> = (1..).zip(&experiment.runs).map(record).collect();
    outcome(experiment, Size { scale: 64, shrink: 1, first: None }, 1, &records)
        .unwrap_or_else(|e| panic!("{e}"))
}

/// Goal: every experiment's plot has a title, axes with units, a legend, and dashed what the paper
/// gives; and where the paper gives the value of something that is drawn, there is such a line.
#[test]
fn plots_of_all_experiments_name_everything() {
    for experiment in crate::catalog::all().expect("sound files") {
        let (name, result) = (&experiment.name, made_up(&experiment));
        let svg = svg(&result).expect("drawn");
        let texts = texts(&svg);
        let has = |text: &str| {
            assert!(texts.iter().any(|t| t.contains(text)), "{name}: {text}: {texts:?}");
        };
        has(&experiment.title);
        assert!(!result.x.label.is_empty() && !result.y.label.is_empty(), "{name}: axes");
        has(&show::with_unit(&result.x.label, &result.x.unit));
        has(&show::with_unit(&result.y.label, &result.y.unit));
        for series in &result.series {
            // The measure is in the legend or at the axis, which the result's own may describe.
            let of_axis = series.unit == result.y.unit;
            series.name.split(": ").take(if of_axis { 1 } else { 2 }).for_each(&has);
            assert!(!series.name.contains('_'), "{name}: {} has a measure's name", series.name);
            // Every unit that is drawn is written at an axis.
            has(&series.unit);
            assert!(!series.points.is_empty(), "{name}: {} is empty", series.name);
        }
        for line in &result.paper_lines {
            let entry = paper_entry(&result, line);
            has(entry
                .rsplit_once(": ")
                .filter(|(run, _)| run.contains(": "))
                .map_or(&*entry, |e| e.0));
            let drawn = result.series.iter().any(|series| series.unit == line.unit);
            assert!(drawn, "{name}: nothing is drawn in the unit of {}", line.name);
            for label in &line.labels {
                assert!(experiment.runs.iter().any(|run| run.name == *label), "{name}: {label}");
            }
        }
        if !result.paper_lines.is_empty() {
            assert!(!dashed_colors(&svg, 4).is_empty(), "{name} without dashes");
        }
        for wanted in &experiment.numbers {
            let measure = wanted.measure.strip_suffix("_mean").unwrap_or(&wanted.measure);
            let drawn = |m: &String| *m == wanted.measure || *m == measure;
            let absolute = wanted.over.is_none() && wanted.less.is_none();
            if wanted.paper.is_some() && absolute && experiment.plot.measures.iter().any(drawn) {
                let unit = crate::measure::unit(&wanted.measure);
                let there = result.paper_lines.iter().any(|line| line.unit == unit);
                assert!(there, "{name}: no line for {}", wanted.name);
            }
        }
    }
}

/// Goal: a line of the paper is recognised: the colour of its series, dashed; a line that belongs
/// to none is grey. Method: which colours are dashed in a plot of two lines.
#[test]
fn paper_lines_have_the_colour_of_their_series() {
    let svg = svg(&samples()[2]).expect("drawn");
    assert_eq!(dashed_colors(&svg, 10), ["#0072B2", "#444444"]);
}

/// Goal: nothing that a result can hold breaks a plot. Method: empty, constant, huge, tiny,
/// negative, infinite values, markup and control characters, many and long names.
#[test]
fn awkward_results_are_drawn() {
    let mut results = Vec::new();
    for kind in [Kind::Time, Kind::Bars, Kind::Lines, Kind::Scatter] {
        results.push(empty(kind, ""));
        for points in [
            vec![],
            vec![[0.0, 0.0]],
            vec![[1.0, 5.0], [1.0, 5.0]],
            vec![[1e-9, 1e-12], [1e12, 1e15], [3.0, f64::MAX]],
            vec![[-4.0, -2.0], [-1.0, 7.0]],
            vec![[f64::NAN, 1.0], [1.0, f64::INFINITY], [2.0, 3.0]],
        ] {
            let mut result = empty(kind, "</svg><script>alert(1)</script> \u{1}\u{0} & \"quoted\"");
            let many: Vec<_> = (0..12)
                .map(|i| series(&format!("a series with number {i}"), "%", &points, &[]))
                .collect();
            result.series = many;
            result.series.push(series(&"long ".repeat(60), "other", &points, &["<b>", "]]>"]));
            result.paper_lines =
                vec![series("", "", &points, &[]), series("paper", "third", &points, &[])];
            results.push(result);
        }
    }
    for result in results {
        let svg = svg(&result).expect("drawn");
        roxmltree::Document::parse(&svg).expect("well-formed");
        assert!(!svg.contains("<script"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        if result.series.first().is_some_and(|s| s.points.len() == 3) {
            png(&result).expect("drawn");
        }
    }
}

/// Goal: every kind has a PNG of the SVG's proportions. Method: the size in its header.
#[test]
fn pngs_are_written() {
    for result in samples() {
        let bytes = png(&result).expect("drawn");
        let info = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
        let (width, height) = info.info().size();
        let size = format!("width=\"{}\" height=\"{}\"", width / 2, height / 2);
        assert!(svg(&result).expect("drawn").contains(&size), "{size}");
    }
}

/// Goal: a dark page has a colour for each that it would hide. Method: the colours of the samples'
/// SVGs, against the rules.
#[test]
fn dark_pages_change_the_colours() {
    let style = dark_style();
    for result in samples() {
        let svg = svg(&result).expect("drawn");
        let document = roxmltree::Document::parse(&svg).expect("well-formed");
        for text in document.descendants().filter(|node| node.tag_name().name() == "text") {
            let fill = text.attribute("fill").expect("a colour");
            assert!(style.contains(&format!("[fill=\"{fill}\"]")), "{fill}");
        }
    }
}
