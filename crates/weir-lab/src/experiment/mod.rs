//! What an experiment states: one TOML file per figure, and the bases that it shares with others.
//!
//! `[settings]` has every option of the store, its load, the disk, those who use it and the phases
//! of a run, at scale 1; each `[[runs]]` may set some of them anew, by their full names. No option
//! has a default: a file and its bases say all that is needed, and a key that this module does not
//! know is refused by its name.
//!
//! Not here: the options themselves (`settings`), and how files are read (`document`, `parse`).

mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::measure::names;
use crate::result::{Axis, Differs, Kind};
use crate::settings::Settings;
use crate::suite::SHRINK_MAX;

/// One figure or table of a paper.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The file's name without its ending.
    pub name: String,
    /// What one types to run it: the name, or the path of its file.
    pub source: String,
    /// Short name of the paper, as in docs/papers.md.
    pub paper: String,
    /// The figure, table or section there.
    pub figure: String,
    /// One line for people.
    pub title: String,
    /// What a reader of the result must know.
    pub notes: Vec<String>,
    /// Every option as text, at scale 1, by its full name.
    pub options: BTreeMap<String, String>,
    /// The options that were set from outside as text, for every run: then it is another experiment
    /// than its name says.
    pub set: BTreeMap<String, String>,
    /// What is run, one after the other.
    pub runs: Vec<Run>,
    /// What is drawn.
    pub plot: Plot,
    /// The paper's curves, where it gives them.
    pub paper_lines: Vec<PaperLine>,
    /// What is derived.
    pub numbers: Vec<Wanted>,
    /// Whether runs were left out for being long.
    pub short: bool,
    /// All that its files state together.
    whole: toml::Table,
}

/// One run of a store.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name: of the line in a plot over time, of the bar in a bar chart.
    pub name: String,
    /// The line it belongs to in a plot over a parameter, and its place on the horizontal axis.
    pub point: Option<Point>,
    /// Whether it takes too long, for what it says, to be done at every change.
    pub long: bool,
    /// The options that differ from `[settings]` as text, at scale 1, by their full names.
    pub set: BTreeMap<String, String>,
    /// Every option of this run as its files state them.
    stated: toml::Table,
    /// Every option of this run, at scale 1.
    pub settings: Settings,
}

/// Where one run's value is drawn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The line.
    pub series: String,
    /// The parameter's value.
    pub x: f64,
}

/// What is drawn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// How.
    pub kind: Kind,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The measures that are drawn, by name: one line or set of bars each.
    pub measures: Vec<String>,
}

/// A curve of the paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperLine {
    /// Its name.
    pub name: String,
    /// Unit of its y values.
    pub unit: String,
    /// x and y, at scale 1.
    pub points: Vec<[f64; 2]>,
    /// Names of the points, for bars: those of the runs.
    pub labels: Vec<String>,
}

/// A number to derive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// What it is called in the result.
    pub name: String,
    /// Name of the measure.
    pub measure: String,
    /// The run it is taken from.
    pub run: String,
    /// The measured phase that it is about; all of them together if there is none.
    pub phase: Option<String>,
    /// The group of clients that it is about, `readers.NAME` or `writers.NAME`; all of them
    /// together if there is none.
    pub clients: Option<String>,
    /// The phase of the run that it is divided by or that is taken from it, if it is another one.
    pub over_phase: Option<String>,
    /// The run whose value it is divided by.
    pub over: Option<String>,
    /// The run whose value is taken from it.
    pub less: Option<String>,
    /// The part of the run that it is taken from, from and to, in the paper's seconds; the whole
    /// run if it is missing. The paper states courses over time in words, as here.
    pub span: Option<[f64; 2]>,
    /// The part of the same run whose value it is divided by.
    pub over_span: Option<[f64; 2]>,
    /// A formula's value that it is divided by.
    pub over_value: Option<f64>,
    /// The paper's value at scale 1.
    pub paper: Option<f64>,
    /// The least that is accepted.
    pub low: Option<f64>,
    /// The most that is accepted.
    pub high: Option<f64>,
    /// What is expected instead, if the paper's bounds are not met for a reason that was tested.
    pub differs: Option<Differs>,
    /// Whether it checks that the experiment is what it says, and reproduces nothing.
    #[serde(default)]
    pub guard: bool,
    /// Where the bounds come from, or why they are missing.
    pub note: String,
}

impl Plot {
    /// That its measures can be drawn in its kind.
    fn check(&self, runs: &[Run]) -> Result<(), String> {
        let check = match self.kind {
            Kind::Time => names::check_series,
            Kind::Bars | Kind::Scatter => names::check_number,
            Kind::Lines => names::check_parameter,
        };
        self.measures.iter().try_for_each(|measure| check(measure))?;
        let by_level = |measure: &String| measure.ends_with("_by_level");
        match self.kind {
            Kind::Scatter if self.measures.len() != 2 => {
                Err("a scatter plot shows two measures, one over the other".into())
            }
            Kind::Lines
                if !self.measures.iter().all(by_level)
                    && !runs.iter().any(|run| run.point.is_some()) =>
            {
                Err("no run has a point, so that there would be no line".into())
            }
            _ if self.measures.is_empty() => Err("there are no measures to draw".into()),
            _ => Ok(()),
        }
    }
}

impl PaperLine {
    /// Whether it is held against this run's: `RUN`, or `RUN: MEASURE`.
    fn is_of(&self, run: &Run) -> bool {
        self.name
            .strip_prefix(&run.name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    }
}

impl Wanted {
    /// Whether it is of this run, or held against it.
    fn needs(&self, run: &Run) -> bool {
        self.run == run.name || [&self.over, &self.less].contains(&&Some(run.name.clone()))
    }

    /// The last second of the paper's time that it is about, 0 if it is about the whole run.
    #[must_use]
    pub fn last_second(&self) -> f64 {
        let spans = self.span.iter().chain(&self.over_span);
        spans.map(|[_, to]| *to).fold(0.0, f64::max)
    }

    /// That its measure and its runs exist, that the bounds can be met, and that a difference has
    /// bounds to differ from and a reason.
    fn check(&self, runs: &[Run]) -> Result<(), String> {
        names::check_number(&self.measure)?;
        let named = [Some(&self.run), self.over.as_ref(), self.less.as_ref()];
        for name in named.into_iter().flatten() {
            if !runs.iter().any(|run| run.name == *name) {
                return Err(format!("there is no run {name:?}"));
            }
        }
        Self::check_phase(self.phase.as_deref(), &self.run, runs)?;
        let other = self.over_phase.as_deref().or(self.phase.as_deref());
        for name in named.into_iter().flatten().skip(1) {
            Self::check_phase(other, name, runs)?;
        }
        if let Some(clients) = &self.clients {
            let known = |run: &Run| match clients.split_once('.') {
                Some(("readers", name)) => run.settings.readers.contains_key(name),
                Some(("writers", name)) => run.settings.writers.contains_key(name),
                _ => false,
            };
            let used = |run: &&Run| named.contains(&Some(&run.name));
            if let Some(run) = runs.iter().filter(used).find(|run| !known(run)) {
                return Err(format!("the run {:?} has no clients {clients:?}", run.name));
            }
        }
        if self.over_phase.is_some() && self.over.is_none() && self.less.is_none() {
            return Err("over_phase: there is neither over nor less".into());
        }
        for [from, to] in [self.span, self.over_span].into_iter().flatten() {
            let mut named = runs.iter().filter(|run| named.contains(&Some(&run.name)));
            let beyond = named.any(|run| to > run.settings.measured_seconds());
            if !(0.0..to).contains(&from) || beyond {
                return Err(format!("the span from {from} to {to} is not in the run"));
            }
        }
        if self.over_value == Some(0.0) {
            return Err("over_value is 0".into());
        }
        let differs = self.differs.as_ref();
        for (name, value) in [
            ("over_value", self.over_value),
            ("paper", self.paper),
            ("low", self.low),
            ("high", self.high),
            ("differs.low", differs.map(|differs| differs.low)),
            ("differs.high", differs.map(|differs| differs.high)),
        ] {
            if let Some(value) = value.filter(|value| !value.is_finite()) {
                return Err(format!("{name} is {value}: choose a number, or leave it out"));
            }
        }
        if self.low.zip(self.high).is_some_and(|(low, high)| low > high) {
            return Err("low is above high".into());
        }
        let Some(differs) = &self.differs else { return Ok(()) };
        if self.low.is_none() && self.high.is_none() {
            return Err("differs: there are no bounds to differ from".into());
        }
        if differs.low > differs.high {
            return Err("differs: low is above high".into());
        }
        if differs.because.trim().is_empty() {
            return Err("differs: because is empty".into());
        }
        Ok(())
    }
}

impl Wanted {
    /// That the run `name` measures the phase, if there is one.
    fn check_phase(phase: Option<&str>, name: &str, runs: &[Run]) -> Result<(), String> {
        let (Some(phase), Some(run)) = (phase, runs.iter().find(|run| run.name == name)) else {
            return Ok(());
        };
        let mut measured = run.settings.phases.iter().filter(|phase| phase.measured);
        if measured.any(|known| known.name == phase) {
            return Ok(());
        }
        Err(format!("the run {name:?} measures no phase {phase:?}"))
    }
}

impl Run {
    /// `[settings]` as they hold for this run, as TOML.
    ///
    /// # Errors
    /// The encoder's, as text.
    pub fn to_toml(&self) -> Result<String, String> {
        let settings = toml::Value::Table(self.stated.clone());
        let table = toml::Table::from_iter([("settings".to_owned(), settings)]);
        toml::to_string(&table).map_err(|e| e.to_string())
    }
}

impl Experiment {
    /// The scale that it is run at if `scale` is asked for: 1 if all its runs are lists of
    /// operations, which a scale would make too short for the trees that they are about.
    #[must_use]
    pub fn scale(&self, scale: u32) -> u32 {
        if self.is_of_lists() { 1 } else { scale }
    }

    /// How much smaller its entries are made if `shrink` is asked for: not at all in a list of
    /// operations, whose entries are of 16 bytes, and as much as can be where blocks are counted,
    /// at scale 1, whose number does not depend on it.
    #[must_use]
    pub fn shrink(&self, shrink: u32) -> u32 {
        match self.is_of_lists() {
            true if self.runs.iter().all(|run| run.settings.counted.is_some()) => SHRINK_MAX,
            true => 1,
            false => shrink,
        }
    }

    /// Whether all its runs are lists of operations.
    fn is_of_lists(&self) -> bool {
        self.runs.iter().all(|run| run.settings.is_list())
    }

    /// Drops all numbers but `numbers`, and all runs that these do not need.
    pub fn keep(&mut self, numbers: &[&str]) {
        self.numbers.retain(|number| numbers.contains(&number.name.as_str()));
        self.runs.retain(|run| self.numbers.iter().any(|number| number.needs(run)));
    }

    /// Its short form: without the runs that are long, and without the numbers that need one of
    /// these. `None` if all of them are long.
    #[must_use]
    pub fn shortened(mut self) -> Option<Self> {
        let (long, short): (Vec<Run>, Vec<Run>) = self.runs.into_iter().partition(|run| run.long);
        self.numbers.retain(|number| !long.iter().any(|run| number.needs(run)));
        self.paper_lines.retain(|line| !long.iter().any(|run| line.is_of(run)));
        self.short |= !long.is_empty();
        self.runs = short;
        (!self.runs.is_empty()).then_some(self)
    }

    /// All that its files state together, as one TOML file that needs no base.
    ///
    /// # Errors
    /// The encoder's, as text.
    pub fn to_toml(&self) -> Result<String, String> {
        toml::to_string(&self.whole).map_err(|e| e.to_string())
    }
}
