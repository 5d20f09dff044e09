//! What the formulas say of a case, beside what was measured, and what else was counted where the
//! two are apart.
//!
//! Pure arithmetic. The formulas are upper bounds or averages over shapes that a real tree has only
//! at some moments; where a store is off by more than [`TOLERANCE`], the same formula is taken
//! again with what was counted on that store in place of what it assumes. If that is right, the
//! difference is explained; if not, the row fails.

use weir::CompactionPolicy;

use super::case::{Case, TOLERANCE};
use super::measure::{Level, Measured, Phase};
use crate::formulas::{self, Shape};

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Unique keys, from an empty store on.
    Fill,
    /// The same keys again.
    Overwrite,
}

impl Part {
    /// As people read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fill => "filled",
            Self::Overwrite => "overwritten",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes that merges write per byte that flushes write.
    Writes,
    /// Runs that a get of an absent key looks into, at most.
    Get,
    /// The same on average, in trees whose levels have two parts.
    GetAverage,
    /// Runs that a seek looks into, at most.
    Seek,
    /// Entries in tables per entry that is alive, at most.
    Space,
}

impl Quantity {
    /// As people read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Writes => "merged per flushed byte",
            Self::Get => "seen by a get, at most",
            Self::GetAverage => "seen by a get, on average",
            Self::Seek => "seen by a seek, at most",
            Self::Space => "per living entry, at most",
        }
    }

    /// Its unit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Writes => "bytes",
            Self::Get | Self::GetAverage | Self::Seek => "runs",
            Self::Space => "entries",
        }
    }
}

/// One number of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Of which case.
    pub case: Case,
    /// Of which part.
    pub part: Part,
    /// What it is.
    pub what: Quantity,
    /// As measured.
    pub measured: f64,
    /// What the formula gives: from, to.
    pub formula: (f64, f64),
    /// The same with what was counted on the store, from, to; and why it differs.
    pub counted: Option<((f64, f64), String)>,
}

/// Whether a number is as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Near the formula.
    Within,
    /// Not near it, but near what the counts lead one to expect.
    Explained,
    /// Neither.
    Outside,
}

/// `value` over the nearer end of a range; 1 inside.
fn ratio(value: f64, (low, high): (f64, f64)) -> f64 {
    value / value.clamp(low, high.max(low))
}

fn is_near(value: f64, range: (f64, f64)) -> bool {
    (ratio(value, range) - 1.0).abs() <= TOLERANCE
}

impl Row {
    /// Measured over the formula: over its nearer end where it is a range, 1 inside.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        ratio(self.measured, self.formula)
    }

    /// Whether the number is as expected.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match &self.counted {
            _ if is_near(self.measured, self.formula) => Verdict::Within,
            Some((counted, _)) if is_near(self.measured, *counted) => Verdict::Explained,
            _ => Verdict::Outside,
        }
    }

    /// What it is of which part of which case.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}, {}: {}", self.case.name(), self.part.name(), self.what.name())
    }
}

fn shape(policy: CompactionPolicy) -> Shape {
    match policy {
        CompactionPolicy::Leveled(_) => Shape::Leveled,
        CompactionPolicy::LazyLeveled(_) => Shape::LazyLeveled,
        // (T + 1)/2 for both; dLSM counts 1 + T/2.
        CompactionPolicy::Gear(_) | CompactionPolicy::TwoPhase(_) => Shape::Gear,
        _ => Shape::Tiered,
    }
}

/// Whether levels have a filling and a draining part.
fn has_parts(policy: CompactionPolicy) -> bool {
    matches!(policy, CompactionPolicy::Gear(_) | CompactionPolicy::TwoPhase(_))
}

/// All numbers of a case.
#[must_use]
pub fn rows(case: &Case, measured: &Measured) -> Vec<Row> {
    let parts =
        [(Part::Fill, Some(&measured.fill)), (Part::Overwrite, measured.overwrite.as_ref())];
    let parts = parts.into_iter().filter_map(|(part, phase)| Some((part, phase?)));
    parts.flat_map(|(part, phase)| rows_of(case, part, phase)).collect()
}

fn rows_of(case: &Case, part: Part, phase: &Phase) -> Vec<Row> {
    let row = |what, measured, formula, counted| {
        let case = *case;
        Row { case, part, what, measured, formula, counted }
    };
    let (n, t) = (case.buffers as f64, f64::from(case.t));
    let cost = formulas::cost(shape(case.policy), n, t);
    let runs = (cost.runs, cost.runs);
    let mut rows = vec![
        row(Quantity::Writes, phase.writes, writes(case), merges(case, part, phase)),
        row(Quantity::Seek, phase.seek.max, runs, most_runs(phase)),
    ];
    if !has_parts(case.policy) {
        let get = phase.absent_get.max;
        rows.insert(1, row(Quantity::Get, get, runs, most_runs(phase)));
    } else if part == Part::Overwrite {
        // A part that fills and one that drains have few keys in common: the formula's average.
        let average = 1.5 * (formulas::levels(n, t) - 1.0) + 1.0;
        let get = phase.absent_get.mean();
        rows.insert(1, row(Quantity::GetAverage, get, (average, average), None));
    }
    if part == Part::Overwrite {
        let space = (cost.space, cost.space);
        rows.push(row(Quantity::Space, phase.space.max, space, copies(case, phase)));
    }
    rows
}

/// What merges write per flushed byte: one number, or a range.
fn writes(case: &Case) -> (f64, f64) {
    let (n, t) = (case.buffers as f64, f64::from(case.t));
    let l = formulas::levels(n, t);
    let most = formulas::cost(shape(case.policy), n, t).write_amplification;
    match case.policy {
        // An inner level: 0.6 T as others have observed, to T + 1.
        CompactionPolicy::Leveled(_) => (most - (l - 1.0) * (0.4 * t + 1.0), most),
        // The last level: (T + 1)/2 while it grows, to T.
        CompactionPolicy::LazyLeveled(_) => (most - t + f64::midpoint(t, 1.0), most),
        _ => (most, most),
    }
}

/// The same by the sizes and the levels that the tree really had.
fn merges(case: &Case, part: Part, phase: &Phase) -> Option<((f64, f64), String)> {
    let (n, t) = (case.buffers, u64::from(case.t));
    match case.policy {
        CompactionPolicy::Leveled(_)
        | CompactionPolicy::Gear(_)
        | CompactionPolicy::TwoPhase(_) => {
            let met = merges_between_levels(case, part, phase);
            let why = "the levels' sizes and densities as counted at every rest";
            Some(((met, met), why.into()))
        }
        CompactionPolicy::LazyLeveled(_) => {
            let last = phase.levels.len() - 1;
            let upper = phase.levels.iter().take(last).filter(|level| level.written > 0.0).count();
            let why = format!("merges wrote into {upper} levels above the last");
            // In a fill the last level grows; else each merge into it takes along what fills the
            // levels above.
            let into_last = match part {
                Part::Fill => (f64::midpoint(t as f64, 1.0), t as f64),
                Part::Overwrite => {
                    let batch = (t as f64).powi(upper as i32 + 1);
                    (n as f64 / batch, n as f64 / batch)
                }
            };
            Some(((upper as f64 + into_last.0, upper as f64 + into_last.1), why))
        }
        _ if part == Part::Fill => {
            let powers = std::iter::successors(Some(t), |power| power.checked_mul(t));
            let batches = powers.take_while(|&power| power <= n).map(|power| n / power * power);
            let once = batches.sum::<u64>() as f64 / n as f64;
            let why = "whole batches of T, T^2, .. write buffers up to N/M, which is no power of T";
            Some(((once, once), why.into()))
        }
        _ => None,
    }
}

/// What comes to each level, times what it meets there, by the sizes that the levels had at every
/// rest; summed over the levels.
fn merges_between_levels(case: &Case, part: Part, phase: &Phase) -> f64 {
    let in_use = |level: &&Level| level.over_flush.count() + level.over_level.count() > 0;
    let levels: Vec<&Level> = phase.levels.iter().filter(in_use).collect();
    let leveled = matches!(case.policy, CompactionPolicy::Leveled(_));
    let (mut sum, mut kept_above, mut peak) = (0.0, 0.0, 1.0);
    for (i, level) in levels.iter().enumerate() {
        let last = i + 1 == levels.len();
        let met = |ratio: f64| match (leveled, last) {
            (true, _) | (_, true) => ratio,
            // A part that fills holds half of the parts but one of the level on average.
            (false, false) => (ratio - 1.0).max(0.0) / 2.0,
        };
        // A level gives from where it is fullest; a flush and a part that drains lie evenly.
        let over_level =
            if leveled { level.over_fed_level.mean() / peak } else { level.over_level.mean() };
        // In the last level what comes replaces what is there.
        let itself = if last && part == Part::Overwrite { 0.0 } else { 1.0 };
        let flushes = level.over_flush.count() as f64;
        let fed = level.over_level.count() as f64;
        let met =
            flushes * (itself + met(level.over_flush.mean())) + fed * (itself + met(over_level));
        // What a fill left in the levels above has not come here.
        let came = if part == Part::Fill { 1.0 - kept_above / (flushes + fed) } else { 1.0 };
        sum += came * met / phase.flushes as f64;
        kept_above += level.end;
        peak = level.peak.mean().max(1.0);
    }
    sum
}

/// The runs that the tree had, as its own description counts them.
fn most_runs(phase: &Phase) -> Option<((f64, f64), String)> {
    let levels = phase.levels.iter().map(|level| level.runs.max).filter(|&most| most > 0.0);
    let levels: Vec<String> = levels.map(|most| most.to_string()).collect();
    let most = phase.runs.max;
    let why = format!("at rest the levels had {} runs at most, {most} together", levels.join(", "));
    Some(((most, most), why))
}

/// Copies in a tree of whole runs when it was fullest: a run of b write buffers of random keys has
/// 1 - e^(-b / N) of all keys, the oldest run has all.
fn copies(case: &Case, phase: &Phase) -> Option<((f64, f64), String)> {
    if matches!(shape(case.policy), Shape::Leveled | Shape::Gear) {
        return None;
    }
    let (n, t) = (case.buffers as f64, f64::from(case.t));
    let mut sum = 1.0;
    for (i, &runs) in phase.fullest.iter().enumerate() {
        let last = i + 1 == phase.fullest.len();
        let touched = 1.0 - (-t.powi(i as i32) / n).exp();
        sum += (runs as f64 - if last { 1.0 } else { 0.0 }) * touched;
    }
    let levels: Vec<String> = phase.fullest.iter().map(ToString::to_string).collect();
    let levels = levels.join(", ");
    let why = format!("{levels} runs a level when it was fullest; only the oldest has all keys");
    Some(((sum, sum), why))
}
