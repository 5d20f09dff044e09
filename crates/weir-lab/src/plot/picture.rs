//! What a plot shows, before it is drawn: panels, axes, legend, texts. Pure: a result in, a picture
//! out, and every decision about looks that does not need pixels is here.
//!
//! Invariants: (1) every series and every line of the paper is in exactly one panel and once in the
//! legend; (2) a line of the paper has the colour of the series that it is compared with, and is
//! dashed; (3) an axis says what it shows and in which unit; (4) a tree has the same colour in
//! every plot; (5) a picture says how many of its numbers are where the paper has them, since it is
//! seen without them.

use std::collections::BTreeMap;

use crate::result::{Kind, Result as Outcome, Series, Verdict};
use crate::seeds::{Counts, Group};
use crate::show;

use super::scale::{Scale, bounds};

/// A plot of at most this many points per line marks each of them.
const MARKED_POINTS_MAX: usize = 24;

/// A line over time with more points than twice as many is drawn as means of neighbours, at least
/// this many of them: what changes from one window to the next would hide every other line.
const TIME_POINTS_MIN: usize = 200;

/// Greater values, infinite ones and NaN are not drawn; axes that end beyond this overflow.
const VALUE_MAX: f64 = 1e300;

/// The trees that figures compare, under the names that the papers give them, by the place of their
/// colour.
const TREES: [&[&str]; 5] = [
    &["bLSM", "LSM"],
    &["LevelDB", "leveled"],
    &["stepped-merge", "SM"],
    &["warm-up"],
    &["key-value cache"],
];

/// Bars beyond this place are not drawn.
const GROUPS_MAX: f64 = 100.0;

/// What is drawn.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) kind: Kind,
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) x: Scale,
    pub(super) x_text: String,
    /// Names of the groups of bars.
    pub(super) groups: Vec<String>,
    /// One for each unit, above one another.
    pub(super) panels: Vec<Panel>,
    pub(super) legend: Vec<Entry>,
    /// Parts of the horizontal axis that the paper says something about.
    pub(super) spans: Vec<Span>,
}

/// A part of the horizontal axis, from and to.
#[derive(Debug, PartialEq)]
pub(super) struct Span {
    pub(super) ends: [f64; 2],
    /// Under which the legend says what is said of it.
    pub(super) letter: char,
    /// Parts that overlap lie below one another.
    pub(super) lane: i32,
}

/// Lines of one unit.
#[derive(Debug)]
pub(super) struct Panel {
    unit: String,
    pub(super) y: Scale,
    pub(super) y_text: String,
    pub(super) lines: Vec<Line>,
    /// How many of them are sets of bars side by side, if they are bars.
    pub(super) bars: usize,
}

/// One line, set of bars or cloud.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) color: Color,
    pub(super) dashed: bool,
    pub(super) marked: bool,
    /// Its place among the bars of a group; a line of the paper has that of its series, or none.
    pub(super) slot: Option<usize>,
    /// Values, not places; of bars the means over all seeds.
    pub(super) points: Vec<[f64; 2]>,
    /// Of bars: x, and the least and the greatest value of any seed, if there are several.
    pub(super) ranges: Vec<[f64; 3]>,
    pub(super) labels: Vec<String>,
}

/// One line of the legend.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) text: String,
    pub(super) color: Color,
    pub(super) dashed: bool,
}

/// A colour by its part in the plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Color {
    /// At this place among the colours of series.
    Series(usize),
    /// Of a line of the paper that belongs to no series.
    Neutral,
    /// Of parts of the horizontal axis.
    Span,
}

impl Picture {
    /// The picture of the results of several seeds: their means and ranges as bars, otherwise the
    /// first.
    pub(super) fn of(group: &Group<'_>) -> Self {
        let result = &printable(group.first());
        let mut drawn = Drawn::of(result);
        let means = if result.kind == Kind::Time { drawn.thin() } else { None };
        let groups = if result.kind == Kind::Bars { drawn.groups() } else { Vec::new() };
        let (x, x_log) = x_scale(result.kind, &drawn, &groups);
        let mut panels: Vec<Panel> = Vec::new();
        let mut legend = Vec::new();
        let colors = colors(&drawn.series);
        let one_measure = one_measure_per_panel(&drawn.series);
        let color = |i: usize| Color::Series(colors.get(i).copied().unwrap_or(i));
        for (i, series) in drawn.series.iter().enumerate() {
            let panel = panel(&mut panels, series, result);
            let marked = result.kind == Kind::Lines && series.points.len() <= MARKED_POINTS_MAX;
            let (points, ranges) = over_seeds(group, i, &series.points);
            panel.lines.push(Line {
                color: color(i),
                dashed: false,
                marked,
                slot: Some(panel.bars),
                points,
                ranges,
                labels: series.labels.clone(),
            });
            panel.bars += 1;
            let text = if series.name.is_empty() { "measured" } else { &series.name };
            let text = of_tree(text, one_measure).replace('_', " ");
            add(&mut legend, Entry { text, color: color(i), dashed: false });
        }
        for line in &drawn.paper {
            let counterpart = counterpart(&drawn.series, line);
            let color = counterpart.map_or(Color::Neutral, color);
            let panel = panel(&mut panels, line, result);
            let slot = panel.lines.iter().find(|l| l.color == color).and_then(|l| l.slot);
            let (points, labels) = (line.points.clone(), line.labels.clone());
            let (dashed, marked, ranges) = (true, false, Vec::new());
            panel.lines.push(Line { color, dashed, marked, slot, points, ranges, labels });
            let is_mean = result.kind == Kind::Time && line.points.len() == 1;
            let text = paper_name(of_tree(&line.name, one_measure), is_mean);
            add(&mut legend, Entry { text, color, dashed: true });
        }
        let spans = spans(result, &mut legend);
        if panels.is_empty() {
            let nothing = Series {
                name: String::new(),
                unit: String::new(),
                points: Vec::new(),
                labels: Vec::new(),
            };
            panel(&mut panels, &nothing, result);
        }
        for panel in &mut panels {
            panel.settle(result.kind);
        }
        let x_text = axis_text(&result.x.label, &result.x.unit, x_log);
        let mut subtitle = format!(
            "{}, {} · scale {} · {}",
            result.paper,
            figure(&result.figure),
            result.shown_scale(),
            seeds(group)
        );
        if let Some(span) = means {
            subtitle += &format!(" · means of {}", show::with_unit_behind(span, &result.x.unit));
        }
        subtitle += &match result.shown_set() {
            set if set.is_empty() => verdict(group),
            set => format!(" · not the experiment: {set}"),
        };
        let title = result.title.clone();
        Self { kind: result.kind, title, subtitle, x, x_text, groups, panels, legend, spans }
    }
}

/// `result` with texts that every backend can hold.
fn printable(result: &Outcome) -> Outcome {
    let mut result = result.clone();
    let texts = [&mut result.title, &mut result.paper, &mut result.figure];
    let axes = [&mut result.x, &mut result.y];
    let axes = axes.into_iter().flat_map(|axis| [&mut axis.label, &mut axis.unit]);
    let axes = axes.chain(result.numbers.iter_mut().map(|number| &mut number.name));
    let series = result.series.iter_mut().chain(&mut result.paper_lines);
    let series = series.flat_map(|s| [&mut s.name, &mut s.unit].into_iter().chain(&mut s.labels));
    for text in texts.into_iter().chain(axes).chain(series) {
        *text = text.chars().map(show::printable).collect();
    }
    result
}

impl Panel {
    /// The 95th over the 5th percentile of all values that are drawn; 0 if one is not positive.
    fn range(&self) -> f64 {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let mut values: Vec<f64> = points.map(|p| p[1]).collect();
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values.get(values.len() * part / 100).copied().unwrap_or_default();
        if values.first().is_some_and(|least| *least > 0.0) { at(95) / at(5) } else { 0.0 }
    }

    /// Chooses the axis when all lines are known.
    fn settle(&mut self, kind: Kind) {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let ranges = self.lines.iter().flat_map(|line| &line.ranges).flat_map(|r| [r[1], r[2]]);
        let values: Vec<f64> = points.map(|p| p[1]).chain(ranges).collect();
        let (min, max) = bounds(&values).unwrap_or((0.0, 1.0));
        let log = match kind {
            Kind::Bars => false,
            Kind::Lines | Kind::Scatter => min > 0.0 && max / min >= 1000.0,
            // Rates that far apart: on a linear axis the slowest would lie on the ground. A few
            // windows that stand out do not make it logarithmic.
            Kind::Time => !self.unit.is_empty() && self.unit != "%" && self.range() >= 20.0,
        };
        self.y = if log {
            Scale::logarithmic(&values, false)
        } else {
            // Room above the highest bar for its value, but none beyond the whole.
            let room = if kind == Kind::Bars { 1.08 } else { 1.0 };
            let whole = match self.unit.as_str() {
                "%" if max <= 100.0 => 100.0,
                "" if (0.5..=1.0).contains(&max) => 1.0,
                _ => f64::INFINITY,
            };
            let top = (max * room).min(whole);
            Scale::linear(min.min(0.0), top.max(0.0), 5, true)
        };
        if log {
            self.y_text.push_str(", logarithmic");
        }
    }
}

/// The series and lines without what cannot be drawn.
struct Drawn {
    series: Vec<Series>,
    paper: Vec<Series>,
}

impl Drawn {
    fn of(result: &Outcome) -> Self {
        let keep = |series: &Series| {
            let mut kept = series.clone();
            (kept.points, kept.labels) = (Vec::new(), Vec::new());
            for (i, point) in series.points.iter().enumerate() {
                let bar = result.kind != Kind::Bars || (-0.5..GROUPS_MAX).contains(&point[0]);
                if bar && point.iter().all(|v| v.abs() <= VALUE_MAX) {
                    kept.points.push(*point);
                    kept.labels.push(series.labels.get(i).cloned().unwrap_or_default());
                }
            }
            kept
        };
        Self {
            series: result.series.iter().map(keep).collect(),
            paper: result.paper_lines.iter().map(keep).collect(),
        }
    }

    /// Draws the mean of neighbours where there are more points than anybody can tell apart; the
    /// longest span of one mean, if there is any.
    fn thin(&mut self) -> Option<f64> {
        let mut longest: Option<f64> = None;
        for series in &mut self.series {
            let each = series.points.len() / TIME_POINTS_MIN;
            if each < 2 {
                continue;
            }
            let step = |points: &[[f64; 2]]| match points {
                [a, b, ..] => (b[0] - a[0]) * each as f64,
                _ => 0.0,
            };
            let span = step(&series.points);
            longest = Some(longest.map_or(span, |longest| longest.max(span)));
            // What is left over at the end is part of the last mean.
            let last = series.points.len() / each - 1;
            let mean = |group: usize| -> [f64; 2] {
                let end = if group == last { series.points.len() } else { (group + 1) * each };
                let points = &series.points[group * each..end];
                let sum: f64 = points.iter().map(|p| p[1]).sum();
                [points[points.len() - 1][0], sum / points.len() as f64]
            };
            series.points = (0..=last).map(mean).collect();
            series.labels.clear();
        }
        longest
    }

    fn all(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().chain(&self.paper)
    }

    /// The names of the places 0, 1, ... on the horizontal axis.
    fn groups(&self) -> Vec<String> {
        let mut groups: Vec<String> = Vec::new();
        for series in self.all() {
            for (point, label) in series.points.iter().zip(&series.labels) {
                let place = point[0].round() as usize;
                if groups.len() <= place {
                    groups.resize(place + 1, String::new());
                }
                if let Some(group) = groups.get_mut(place).filter(|group| group.is_empty()) {
                    group.clone_from(label);
                }
            }
        }
        groups
    }
}

fn x_scale(kind: Kind, drawn: &Drawn, groups: &[String]) -> (Scale, bool) {
    if kind == Kind::Bars {
        return (Scale::categories(groups.len()), false);
    }
    // A value that holds everywhere does not stretch the axis.
    let shown = drawn.all().filter(|series| kind == Kind::Scatter || series.points.len() > 1);
    let mut values: Vec<f64> = shown.flat_map(|s| s.points.iter().map(|p| p[0])).collect();
    if values.is_empty() {
        values = drawn.all().flat_map(|s| s.points.iter().map(|p| p[0])).collect();
    }
    values.sort_by(f64::total_cmp);
    values.dedup();
    let (min, max) = bounds(&values).unwrap_or((0.0, 1.0));
    let apart = values.windows(2).all(|pair| pair[1] >= pair[0] * 1.4);
    let few = values.len() <= 12 && apart;
    let wide = max / min.max(f64::MIN_POSITIVE);
    if kind != Kind::Time && min > 0.0 && ((few && wide >= 16.0) || wide >= 1000.0) {
        // A parameter's values are what one looks for; those of dots are as they come.
        return (Scale::logarithmic(&values, few && kind == Kind::Lines), true);
    }
    let room = if kind == Kind::Scatter { 1.05 } else { 1.0 };
    // Between whole numbers of something, such as levels, there is nothing to mark.
    let whole = kind == Kind::Lines && values.iter().all(|value| value.fract() == 0.0);
    let steps = if whole { (max - min.min(0.0)).clamp(1.0, 8.0) as u32 } else { 8 };
    (Scale::linear(min.min(0.0), max * room, steps, kind == Kind::Scatter), false)
}

/// The panel for the unit of `series`; made if there is none.
fn panel<'a>(panels: &'a mut Vec<Panel>, series: &Series, result: &Outcome) -> &'a mut Panel {
    let unit = &series.unit;
    let place = panels.iter().position(|panel| panel.unit == *unit).unwrap_or_else(|| {
        // The result's axis speaks for its own unit, a first series for any other: what it
        // measures, not of which run.
        let ours = *unit == result.y.unit || panels.is_empty();
        let measure = series.name.rsplit(": ").next().unwrap_or_default();
        let label = if ours { &*result.y.label } else { measure };
        panels.push(Panel {
            unit: unit.clone(),
            y: Scale::linear(0.0, 1.0, 5, true),
            y_text: axis_text(&label.replace('_', " "), unit, false),
            lines: Vec::new(),
            bars: 0,
        });
        panels.len() - 1
    });
    &mut panels[place]
}

/// The series that a line of the paper is compared with: the one whose name it bears, or the only
/// one.
fn counterpart(series: &[Series], line: &Series) -> Option<usize> {
    let (bare, unit) = (bare_name(&line.name), &line.unit);
    let fits = |s: &&(usize, &Series)| s.1.unit == *unit;
    let numbered: Vec<(usize, &Series)> = series.iter().enumerate().collect();
    let same = numbered.iter().filter(fits).find(|s| s.1.name.eq_ignore_ascii_case(bare));
    let only =
        if numbered.iter().filter(fits).count() == 1 { numbered.iter().find(fits) } else { None };
    same.or(only).map(|s| s.0)
}

/// `name` without the word "paper" in front.
fn bare_name(name: &str) -> &str {
    let head = name.get(..5).is_some_and(|head| head.eq_ignore_ascii_case("paper"));
    let rest = if head { &name[5..] } else { name };
    rest.trim_start_matches([':', ',', ' '])
}

/// How the legend calls a line of the paper; one value over time is its mean.
fn paper_name(name: &str, is_mean: bool) -> String {
    let paper = if is_mean { "paper, mean" } else { "paper" };
    match bare_name(name) {
        "" => paper.to_owned(),
        bare => format!("{paper}: {}", bare.replace('_', " ")),
    }
}

/// The parts of the run that numbers are about, each under a letter, which the legend explains.
fn spans(result: &Outcome, legend: &mut Vec<Entry>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    if result.kind != Kind::Time {
        return spans;
    }
    for (number, letter) in result.numbers.iter().filter(|n| n.span.is_some()).zip('a'..='z') {
        for ends in [number.span, number.over_span].into_iter().flatten() {
            let taken = |lane: i32| {
                let overlaps = |s: &Span| s.ends[0] < ends[1] && ends[0] < s.ends[1];
                spans.iter().any(|span| span.lane == lane && overlaps(span))
            };
            let lane = (0..).find(|lane| !taken(*lane)).unwrap_or_default();
            spans.push(Span { ends, letter, lane });
        }
        let verdict = match number.verdict() {
            Verdict::Holds => "holds",
            Verdict::Differs => "differs",
            Verdict::Fails => "outside",
            Verdict::Open => "open",
        };
        let text = format!("{letter}: {} ({verdict})", number.name);
        add(legend, Entry { text, color: Color::Span, dashed: false });
    }
    spans
}

/// Adds an entry to the legend, once.
fn add(legend: &mut Vec<Entry>, entry: Entry) {
    let same = |e: &Entry| (&e.text, e.color, e.dashed) == (&entry.text, entry.color, entry.dashed);
    if !legend.iter().any(same) {
        legend.push(entry);
    }
}

/// The tree or run in the name of a series.
fn run_of(name: &str) -> &str {
    name.split(": ").next().unwrap_or_default()
}

/// `name` without its measure, which the axis of its panel names where it is the only one there.
fn of_tree(name: &str, one_measure: bool) -> &str {
    if one_measure { run_of(name) } else { name }
}

/// Whether each series is a measure of a run, and each panel shows one measure: the legend has to
/// name the runs only.
fn one_measure_per_panel(series: &[Series]) -> bool {
    let mut of_unit: BTreeMap<&str, &str> = BTreeMap::new();
    series.iter().all(|series| match series.name.split_once(": ") {
        Some((_, measure)) => *of_unit.entry(&series.unit).or_insert(measure) == measure,
        None => false,
    })
}

/// The place of each series' colour: trees have their own, others the first that are free. A run
/// has one colour in all panels, which is its own in each of them.
fn colors(series: &[Series]) -> Vec<usize> {
    let tree = |name: &str| TREES.iter().position(|names| names.contains(&name));
    let mut places: Vec<Option<usize>> = Vec::new();
    let taken = |places: &[Option<usize>], place: usize, unit: &str| {
        let mut others = places.iter().zip(series);
        others.any(|(other, line)| *other == Some(place) && line.unit == unit)
    };
    for line in series {
        // A tree that has several lines in one panel keeps its colour for the first.
        let own = tree(run_of(&line.name)).filter(|&place| !taken(&places, place, &line.unit));
        places.push(own);
    }
    for (i, line) in series.iter().enumerate() {
        if places[i].is_some() {
            continue;
        }
        let same_run = |(other, place): (&Series, &Option<usize>)| {
            place.filter(|_| run_of(&other.name) == run_of(&line.name) && other.unit != line.unit)
        };
        let of_run = series.iter().zip(&places).find_map(same_run);
        let free = || (0..).find(|&place| !places.contains(&Some(place)));
        places[i] = of_run.filter(|&place| !taken(&places, place, &line.unit)).or_else(free);
    }
    places.into_iter().map(Option::unwrap_or_default).collect()
}

/// Which seeds are drawn.
fn seeds(group: &Group<'_>) -> String {
    let first = group.first();
    match group.results().len() {
        0 | 1 => group.seeds(),
        _ if first.kind == Kind::Bars => format!("{}: means and ranges", group.seeds()),
        _ => format!("seed {} of {}", first.seed, group.seeds()),
    }
}

/// The points of series `number` over the seeds of `group`: for bars their means, and their ranges.
fn over_seeds(
    group: &Group<'_>,
    number: usize,
    points: &[[f64; 2]],
) -> (Vec<[f64; 2]>, Vec<[f64; 3]>) {
    if group.first().kind != Kind::Bars || group.results().len() < 2 {
        return (points.to_vec(), Vec::new());
    }
    let (mut means, mut ranges) = (Vec::new(), Vec::new());
    for [x, value] in points {
        let others = group.results().iter().filter_map(|result| result.series.get(number));
        let at = |series: &Series| series.points.iter().find(|p| p[0] == *x).map(|p| p[1]);
        let mut values: Vec<f64> = others.filter_map(at).collect();
        values.retain(|value| value.abs() <= VALUE_MAX);
        let (low, high) = bounds(&values).unwrap_or((*value, *value));
        means.push([*x, values.iter().sum::<f64>() / values.len().max(1) as f64]);
        ranges.push([*x, low, high]);
    }
    (means, ranges)
}

/// What the numbers say, for the line below the title; empty if none has bounds.
fn verdict(group: &Group<'_>) -> String {
    let Counts { holds, differs, fails, .. } = Counts::of([group]);
    let bounded = holds + differs + fails;
    match bounded {
        0 => String::new(),
        1 if holds == 1 => " · its number is inside the paper's bounds".to_owned(),
        1 => " · its number is outside the paper's bounds".to_owned(),
        _ => format!(" · {holds} of {bounded} numbers inside the paper's bounds"),
    }
}

/// `Figure 11a` for `11a`; names such as `Table 1` or `§4.7` as they are.
pub fn figure(figure: &str) -> String {
    let digits = figure.starts_with(|c: char| c.is_ascii_digit());
    if digits { format!("Figure {figure}") } else { figure.to_owned() }
}

fn axis_text(label: &str, unit: &str, log: bool) -> String {
    let text = show::with_unit(label, unit);
    if log { format!("{text}, logarithmic") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::tests::samples;
    use crate::seeds::groups;

    /// The picture of one result.
    fn picture(result: &Outcome) -> Picture {
        Picture::of(&groups([result])[0])
    }

    /// Goal: what a number says of a part of the run is marked there and explained below. Method:
    /// two numbers that share a part.
    #[test]
    fn parts_of_the_run_are_marked() {
        let mut result = samples().swap_remove(0);
        result.numbers.push(crate::result::Number {
            name: "falls".into(),
            span: Some([100.0, 200.0]),
            over_span: Some([0.0, 100.0]),
            ..result.numbers[0].clone()
        });
        let again = crate::result::Number { over_span: None, ..result.numbers[1].clone() };
        result.numbers.push(crate::result::Number { name: "is low".into(), ..again });
        let picture = picture(&result);
        let wanted = [([100.0, 200.0], 'a', 0), ([0.0, 100.0], 'a', 0), ([100.0, 200.0], 'b', 1)];
        let wanted = wanted.map(|(ends, letter, lane)| Span { ends, letter, lane });
        assert_eq!(picture.spans, wanted);
        let texts: Vec<&str> = picture.legend.iter().map(|e| e.text.as_str()).collect();
        assert!(texts.ends_with(&["a: falls (holds)", "b: is low (holds)"]), "{texts:?}");
    }

    /// Goal: bars of several seeds are means with their ranges, and say so; a line is the first
    /// seed's. Method: three seeds whose first bar is 60, 70 and 80.
    #[test]
    fn bars_have_ranges() {
        let all = samples();
        let of = |result: &Outcome, seed: u64| {
            let mut result = result.clone();
            result.seed = seed;
            result.series[0].points[0][1] = 50.0 + 10.0 * seed as f64;
            result
        };
        let bars = [1, 2, 3].map(|seed| of(&all[1], seed));
        let picture = Picture::of(&groups(&bars)[0]);
        let line = &picture.panels[0].lines[0];
        assert_eq!((line.points[0], line.ranges[0]), ([0.0, 70.0], [0.0, 60.0, 80.0]));
        assert!(
            picture.subtitle.contains("seeds 1, 2, 3: means and ranges"),
            "{}",
            picture.subtitle
        );
        let lines = [1, 2].map(|seed| of(&all[0], seed));
        let picture = Picture::of(&groups(&lines)[0]);
        assert_eq!(picture.panels[0].lines[0].points[0], lines[0].series[0].points[0]);
        assert!(picture.panels[0].lines[0].ranges.is_empty());
        assert!(picture.subtitle.contains("seed 1 of seeds 1, 2"), "{}", picture.subtitle);
    }

    /// Goal: a long line is drawn as means that say so, and no point is lost. Method: 1,003 points
    /// of a ramp.
    #[test]
    fn long_lines_are_means() {
        let mut result = samples().swap_remove(0);
        let ramp = |i: u32| [f64::from(i) * 2.0, f64::from(i)];
        result.series[0].points = (0..1003).map(ramp).collect();
        let picture = picture(&result);
        let points = &picture.panels[0].lines[0].points;
        assert_eq!((points.len(), points[0], points[1]), (200, [8.0, 2.0], [18.0, 7.0]));
        assert_eq!(points[199], [2004.0, 998.5]);
        assert!(picture.subtitle.contains(" · means of 10 s"), "{}", picture.subtitle);
        // Short ones are drawn as they are.
        assert_eq!(picture.panels[0].lines[1].points, result.series[1].points);
    }

    /// Goal: a tree has its colour wherever it stands, others take what is left, and no two lines
    /// have one. Method: names in orders that figures have.
    #[test]
    fn trees_keep_their_colours() {
        let of = |names: &[&str]| {
            let line =
                |name: &&str| Series { name: (*name).into(), ..samples()[0].series[0].clone() };
            colors(&names.iter().map(line).collect::<Vec<_>>())
        };
        assert_eq!(of(&["bLSM", "stepped-merge"]), [0, 2]);
        assert_eq!(of(&["stepped-merge", "else", "bLSM", "other"]), [2, 1, 0, 3]);
        assert_eq!(of(&["bLSM: queries", "bLSM: hit ratio", "LevelDB: queries"]), [0, 2, 1]);
        let two = |names: &[&str]| {
            let line = |(i, name): (usize, &&str)| Series {
                name: (*name).into(),
                unit: ["", "1/s"][i % 2].into(),
                ..samples()[0].series[0].clone()
            };
            colors(&names.iter().enumerate().map(line).collect::<Vec<_>>())
        };
        let runs = ["LSM: hit ratio", "LSM: queries", "read only: hit ratio", "read only: queries"];
        assert_eq!(two(&runs), [0, 0, 1, 1]);
    }

    /// Goal: a legend names runs where each panel shows one measure, which its axis names, and
    /// measures where a panel shows two.
    #[test]
    fn legends_name_runs() {
        let mut result = samples().swap_remove(0);
        let line = |name: &str, unit: &str| Series {
            name: name.into(),
            unit: unit.into(),
            ..result.series[0].clone()
        };
        let series = vec![line("LSM: hit ratio", "%"), line("LSM: queries", "1/s")];
        result.paper_lines = vec![Series { points: vec![[0.0, 9.0]], ..series[1].clone() }];
        result.series = series;
        let texts = |result: &Outcome| -> Vec<String> {
            picture(result).legend.into_iter().map(|entry| entry.text).collect()
        };
        assert_eq!(texts(&result), ["LSM", "paper, mean: LSM"]);
        assert_eq!(picture(&result).panels[1].y_text, "queries (1/s)");
        result.series[1].unit = "%".into();
        assert_eq!(texts(&result)[..2], ["LSM: hit ratio", "LSM: queries"]);
    }

    /// Goal: a picture says what its numbers say. Method: numbers inside, outside and without
    /// bounds; guards do not count.
    #[test]
    fn pictures_have_verdicts() {
        let mut result = samples().swap_remove(0);
        let number = result.numbers[0].clone();
        let subtitle = |result: &Outcome| picture(result).subtitle;
        assert!(subtitle(&result).ends_with("its number is inside the paper's bounds"));
        let outside = crate::result::Number { name: "other".into(), ours: 1e9, ..number.clone() };
        let guard = crate::result::Number { guard: true, ..number };
        result.numbers.extend([outside, guard]);
        assert!(subtitle(&result).ends_with(" · 1 of 2 numbers inside the paper's bounds"));
        result.numbers.clear();
        assert!(!subtitle(&result).contains("bounds"));
    }

    /// Goal: a plain number is not drawn on the axis of seconds, levels are whole, and dots on a
    /// logarithmic axis have round ticks.
    #[test]
    fn axes_fit_what_they_show() {
        let mut all = samples();
        let mut dots = all.remove(3);
        let mut lines = all.remove(2);
        lines.series[1].unit = String::new();
        assert_eq!(picture(&lines).panels.len(), 2);
        for series in lines.series.iter_mut().chain(&mut lines.paper_lines) {
            series.points = vec![[1.0, 5.0], [2.0, 4.0], [3.0, 3.0]];
        }
        let ticks = |result| -> Vec<String> {
            picture(result).x.ticks.into_iter().map(|tick| tick.1).collect()
        };
        assert_eq!(ticks(&lines), ["0", "1", "2", "3"]);
        let series = dots.series.iter_mut().chain(&mut dots.paper_lines);
        for (series, x) in series.zip([69.56, 974.7, 1399.0, 150.0, 400.0]) {
            series.points[0][0] = x;
        }
        assert_eq!(ticks(&dots), ["10", "100", "1,000", "10,000"]);
    }
}
