//! What one experiment gives: one JSON file, the only thing that plots and reports are made of.
//!
//! Not here: how it is measured (`suite`) and how it is shown.
//!
//! Invariants: (1) every number is finite, so that the JSON form is complete; (2) everything but
//! `real_seconds` and `command` depends only on the experiment, the scale, the seed and the code.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The outcome of one experiment at one scale from one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Result {
    /// The experiment's file name without its ending.
    pub experiment: String,
    /// Short name of the paper, as in docs/papers.md.
    pub paper: String,
    /// The figure, table or section there.
    pub figure: String,
    /// One line for people.
    pub title: String,
    /// By how much data, caches, files and durations are divided.
    pub scale: u32,
    /// By how much entries and blocks were asked to be smaller, if not by as much as is usual at
    /// the scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrink: Option<u32>,
    /// Where measured phases ended, in seconds of the paper's time, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    /// Whether runs were left out for being long, and the numbers that need them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short: bool,
    /// Decides everything.
    pub seed: u64,
    /// What was typed to get it.
    pub command: String,
    /// Every option at scale 1 by its name, such as `store.policy`, and `bLSM: store.policy` where
    /// the run called bLSM has its own.
    pub settings: BTreeMap<String, String>,
    /// The options that `--set` gave every run, by their full names. A result that has any is of
    /// another experiment than its name says: it proves nothing about that one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
    /// How it wants to be drawn.
    pub kind: Kind,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// What was measured.
    pub series: Vec<Series>,
    /// What the paper shows, where it gives a curve or a value.
    pub paper_lines: Vec<Series>,
    /// What is derived, beside the paper's values.
    pub numbers: Vec<Number>,
    /// Virtual time of all runs together.
    pub virtual_seconds: f64,
    /// Real time that it took; differs from time to time.
    pub real_seconds: f64,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// How a result wants to be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Values over virtual seconds, one line per series.
    Time,
    /// One bar per label; the points' x is the label's place.
    Bars,
    /// Values over a parameter, one line per series.
    Lines,
    /// Dots.
    Scatter,
}

/// One axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// What it shows.
    pub label: String,
    /// In which unit; empty for a plain number.
    pub unit: String,
}

/// One line, set of bars or cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Unit of its y values; empty for a plain number.
    pub unit: String,
    /// x and y.
    pub points: Vec<[f64; 2]>,
    /// Names of the points, for bars: as many as points, or none.
    pub labels: Vec<String>,
}

/// One derived number, and what the paper leads one to expect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Number {
    /// What it is.
    pub name: String,
    /// Its unit; empty for a plain number.
    pub unit: String,
    /// How it is made of windows: `mean of windows`; empty if it is not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub statistic: String,
    /// As measured here.
    pub ours: f64,
    /// The part of the run that it is about, from and to on the horizontal axis; the whole run if
    /// there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<[f64; 2]>,
    /// The part whose value it is divided by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_span: Option<[f64; 2]>,
    /// The paper's.
    pub paper: Option<f64>,
    /// The least that is accepted.
    pub low: Option<f64>,
    /// The most that is accepted.
    pub high: Option<f64>,
    /// What is expected here instead, where the paper's bounds are known not to be met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<Differs>,
    /// Whether it checks that the experiment is what it says, and reproduces nothing.
    #[serde(default)]
    pub guard: bool,
    /// Where the bounds come from, or why they are missing.
    pub note: String,
}

/// What a number is here, outside the paper's bounds, for a reason that was tested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differs {
    /// The least that the reason leads one to expect.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// The reason, and which number or experiment tests it.
    pub because: String,
}

/// Whether a number is as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Inside its bounds.
    Holds,
    /// Outside, but where [`Differs`] says: the paper's claim is not met, and it is known why.
    Differs,
    /// Outside of both.
    Fails,
    /// There are no bounds.
    Open,
}

impl Number {
    /// Whether `ours` is inside `low..=high`, where a missing bound is none, or else where it is
    /// known to differ.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.low.is_none() && self.high.is_none() {
            return Verdict::Open;
        }
        let above = self.low.is_none_or(|low| self.ours >= low);
        let below = self.high.is_none_or(|high| self.ours <= high);
        let known = |differs: &Differs| (differs.low..=differs.high).contains(&self.ours);
        match &self.differs {
            _ if above && below => Verdict::Holds,
            Some(differs) if known(differs) => Verdict::Differs,
            _ => Verdict::Fails,
        }
    }
}

impl Result {
    /// The JSON form, with a line end at its end.
    ///
    /// # Errors
    /// The encoder's, as text.
    pub fn to_json(&self) -> std::result::Result<String, String> {
        let mut text = serde_json::to_string_pretty(self).map_err(|e| e.to_string())?;
        text.push('\n');
        Ok(text)
    }

    /// Reads the JSON form.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn from_json(text: &str) -> std::result::Result<Self, String> {
        serde_json::from_str(text).map_err(|e| format!("this is no result of an experiment: {e}"))
    }

    /// Whether its runs are as the experiment's file has them, at the scale's usual size of
    /// entries: others are shown, and count nowhere. A short result has fewer of them.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.shrink.is_none() && self.first.is_none() && self.set.is_empty()
    }

    /// `1/64`, or `1/8, entries 1/4, first 5000 s`.
    #[must_use]
    pub fn shown_scale(&self) -> String {
        let mut text = format!("1/{}", self.scale);
        if let Some(shrink) = self.shrink {
            text += &format!(", entries 1/{shrink}");
        }
        if let Some(seconds) = self.first {
            text += &format!(", first {seconds} s");
        }
        if self.short {
            text += ", short";
        }
        text
    }

    /// `store.eviction = s3_fifo`, one after the other; empty if nothing was set.
    #[must_use]
    pub fn shown_set(&self) -> String {
        let each = |(option, value): (&String, &String)| format!("{option} = {value}");
        self.set.iter().map(each).collect::<Vec<_>>().join(", ")
    }

    /// The number called `name`.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<&Number> {
        self.numbers.iter().find(|n| n.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(ours: f64, low: Option<f64>, high: Option<f64>) -> Number {
        let (name, unit) = ("n".to_owned(), String::new());
        Number {
            name,
            unit,
            statistic: String::new(),
            span: None,
            over_span: None,
            ours,
            paper: None,
            low,
            high,
            differs: None,
            guard: false,
            note: String::new(),
        }
    }

    /// Goal: a known reason never makes a number hold, and excuses no other value.
    #[test]
    fn known_differences() {
        let differing = |ours: f64| {
            let differs = Differs { low: 3.0, high: 4.0, because: "a reason".into() };
            Number { differs: Some(differs), ..number(ours, Some(1.0), Some(2.0)) }
        };
        for (ours, verdict) in [
            (1.5, Verdict::Holds),
            (2.5, Verdict::Fails),
            (3.0, Verdict::Differs),
            (4.0, Verdict::Differs),
            (4.1, Verdict::Fails),
            (f64::NAN, Verdict::Fails),
        ] {
            assert_eq!(differing(ours).verdict(), verdict, "{ours}");
        }
        // Results from before there were reasons can be read, and one without is written as then.
        let text = serde_json::to_string(&number(1.0, None, None)).expect("encodes");
        assert!(!text.contains("differs"));
        let number = differing(3.5);
        let text = serde_json::to_string(&number).expect("encodes");
        assert_eq!(serde_json::from_str::<Number>(&text).expect("decodes"), number);
    }

    /// Goal: bounds are inclusive, and a missing bound does not bound.
    #[test]
    fn verdicts() {
        assert_eq!(number(1.0, None, None).verdict(), Verdict::Open);
        assert_eq!(number(1.0, Some(1.0), Some(1.0)).verdict(), Verdict::Holds);
        assert_eq!(number(0.9, Some(1.0), None).verdict(), Verdict::Fails);
        assert_eq!(number(1.1, None, Some(1.0)).verdict(), Verdict::Fails);
        assert_eq!(number(9.0, Some(1.0), None).verdict(), Verdict::Holds);
    }

    /// Goal: JSON keeps everything. Method: there and back, awkward floats included.
    #[test]
    fn json_round_trip() {
        let axis = |label: &str| Axis { label: label.into(), unit: "s".into() };
        let series = Series {
            name: "ours".into(),
            unit: String::new(),
            points: vec![[0.1 + 0.2, 1e-300], [f64::MAX, -0.0]],
            labels: vec!["a".into(), "b".into()],
        };
        let result = Result {
            experiment: "x".into(),
            paper: "LSbM".into(),
            figure: "11a".into(),
            title: "t".into(),
            scale: 64,
            shrink: Some(4),
            first: Some(5000),
            short: true,
            seed: u64::MAX,
            command: "weir lab run x".into(),
            settings: BTreeMap::from([("store.policy".into(), "leveled".into())]),
            set: BTreeMap::from([("store.policy".into(), "leveled".into())]),
            kind: Kind::Bars,
            x: axis("x"),
            y: axis("y"),
            series: vec![series.clone()],
            paper_lines: vec![series],
            numbers: vec![number(0.1, None, Some(2.0))],
            virtual_seconds: 1.5,
            real_seconds: 0.0,
            notes: vec!["n".into()],
        };
        let text = result.to_json().expect("encodes");
        assert_eq!(Result::from_json(&text).expect("decodes"), result);
        assert!(text.contains("\"kind\": \"bars\""));
        assert!(Result::from_json("{}").is_err());
    }
}
