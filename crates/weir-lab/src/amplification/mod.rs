//! What each policy really writes, reads and stores, beside what the formulas say of its shape.
//!
//! A case is a policy, a ratio and a number of write buffers. `measure` counts on a real store,
//! `expect` says what the formulas lead one to expect and, where a store is off, what else was
//! counted that explains it. Not here: time, which does not matter to any of these numbers.

mod case;
mod expect;
mod measure;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use weir::Db;

pub use case::{Case, TOLERANCE, cases};
pub use expect::{Part, Quantity, Row, Verdict, rows};
pub use measure::{Level, Measured, Phase, Spread, measure};

use crate::files::{self, WorkDir};
use crate::result::{Axis, Differs, Kind, Number, Result as Outcome, Series};

/// Measures `cases`, one after the other, on stores in `cache`; `done` is called after every flush.
///
/// # Errors
/// What went wrong, as a text for people.
pub fn run(
    cases: &[Case],
    entries: u64,
    seed: u64,
    cache: &Path,
    done: &dyn Fn(&Case),
) -> Result<Vec<(Case, Measured)>, String> {
    files::remove_left(cache);
    let one = |case: &Case| {
        let dir = WorkDir::new(cache)?;
        Ok((*case, measure(Db::builder(dir.path()), case, entries, seed, &|| done(case))?))
    };
    cases.iter().map(one).collect()
}

/// The numbers in the form that all results have: the formulas take the place of a paper.
#[must_use]
pub fn outcome(
    measured: &[(Case, Measured)],
    entries: u64,
    seed: u64,
    command: &str,
    real_seconds: f64,
) -> Outcome {
    let rows: Vec<Row> = measured.iter().flat_map(|(case, found)| rows(case, found)).collect();
    let axis = |label: &str| Axis { label: label.to_owned(), unit: String::new() };
    let settings = [
        ("entries of a write buffer", entries.to_string()),
        ("bytes of a key", measure::KEY_BYTES.to_string()),
        ("bytes of a value", measure::VALUE_BYTES.to_string()),
        ("tables of a write buffer", measure::TABLES_PER_BUFFER.to_string()),
        ("filters", "none".to_owned()),
        ("compression", "none".to_owned()),
        ("store.l0_trigger", "1".to_owned()),
        ("store.background_threads", "1".to_owned()),
    ];
    Outcome {
        experiment: "amplification".into(),
        paper: "Formulas".into(),
        figure: "Writes, runs and space".into(),
        title: "Every policy on real stores beside the formulas of its shape".into(),
        scale: 1,
        seed,
        command: command.to_owned(),
        settings: settings.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
        shrink: None,
        first: None,
        short: false,
        set: BTreeMap::new(),
        kind: Kind::Bars,
        x: axis("policy, ratio T, write buffers N/M; filled or overwritten"),
        y: axis("merged"),
        series: bars(&rows, |row| row.measured),
        paper_lines: bars(&rows, |row| row.formula.1),
        numbers: rows.iter().map(number).collect(),
        virtual_seconds: 0.0,
        real_seconds,
        notes: measured.iter().flat_map(|(case, found)| notes(case, found)).collect(),
    }
}

/// The bars of the quantities that every case has, one group per part of a case.
fn bars(rows: &[Row], value: impl Fn(&Row) -> f64) -> Vec<Series> {
    let mut groups: Vec<String> = Vec::new();
    // Names that fit beside an axis.
    let named = [
        (Quantity::Writes, "merged"),
        (Quantity::Seek, "seen by a seek"),
        (Quantity::Space, "per living entry"),
    ];
    let mut series = named.map(|(what, name)| Series {
        name: name.to_owned(),
        unit: what.unit().to_owned(),
        points: Vec::new(),
        labels: Vec::new(),
    });
    for row in rows {
        let Case { policy, t, buffers, .. } = row.case;
        let part = if row.part == Part::Fill { "fill" } else { "over" };
        let group = format!("{policy} {t}, {buffers} {part}");
        let place = groups.iter().position(|known| *known == group).unwrap_or(groups.len());
        if place == groups.len() {
            groups.push(group.clone());
        }
        let at = named.iter().position(|(what, _)| *what == row.what);
        let Some(bars) = at.and_then(|at| series.get_mut(at)) else { continue };
        bars.points.push([place as f64, value(row)]);
        bars.labels.push(group);
    }
    series.into()
}

/// A row as a number of a result: its bounds are around the formula, and around what the counts
/// give where they explain why it is not met.
fn number(row: &Row) -> Number {
    let around = |(low, high): (f64, f64)| (low * (1.0 - TOLERANCE), high * (1.0 + TOLERANCE));
    let (low, high) = row.formula;
    let bounds = around(row.formula);
    let differs = row.counted.as_ref().map(|(counted, why)| {
        let (low, high) = around(*counted);
        Differs { low, high, because: why.clone() }
    });
    let percent = TOLERANCE * 100.0;
    Number {
        name: row.name(),
        unit: row.what.unit().to_owned(),
        statistic: String::new(),
        span: None,
        over_span: None,
        ours: row.measured,
        paper: Some(row.measured.clamp(low, high)),
        low: Some(bounds.0),
        high: Some(bounds.1),
        differs: differs.filter(|_| row.verdict() == Verdict::Explained),
        guard: false,
        note: format!("the formula and {percent:.0} % around it"),
    }
}

/// What was counted of each level: enough to follow every explanation.
fn notes(case: &Case, measured: &Measured) -> Vec<String> {
    let parts =
        [(Part::Fill, Some(&measured.fill)), (Part::Overwrite, measured.overwrite.as_ref())];
    let parts = parts.into_iter().filter_map(|(part, phase)| Some((part, phase?)));
    let note = |(part, phase): (Part, &Phase)| {
        let levels = phase.levels.iter().enumerate().filter(|(_, level)| level.runs.max > 0.0);
        let levels: Vec<String> = levels
            .map(|(i, level)| {
                format!(
                    "L{i} {:.2} runs (at most {}), {:.1} write buffers ({:.1} at the end), {:.2} \
                     as dense where it is fullest, {:.2} written per byte",
                    level.runs.mean(),
                    level.runs.max,
                    level.buffers.mean(),
                    level.end,
                    level.peak.mean(),
                    level.written
                )
            })
            .collect();
        format!(
            "{}, {}: {:.2} merged per byte, {:.2} read; runs seen by a get of an absent key \
             {:.2}, of a present one {:.2}, by a seek {:.2}; per living one {:.3} entries, {:.3} \
             bytes; {}",
            case.name(),
            part.name(),
            phase.writes,
            phase.merge_reads,
            phase.absent_get.mean(),
            phase.present_get.mean(),
            phase.seek.mean(),
            phase.space.mean(),
            phase.bytes_per_live_byte,
            levels.join("; ")
        )
    };
    parts.map(note).collect()
}
