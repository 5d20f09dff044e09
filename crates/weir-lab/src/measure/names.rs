//! Which measures there are: what an experiment names is known before anything is measured.
//!
//! The functions beside this one take a name apart when a run has its values; the same names are
//! told from others here without a run. A test keeps the two in step.

use weir::defaults::LEVELS;

use super::{PER_WINDOW, WHOLE};
use crate::record::CAUSES;

/// What is behind a measure per window in the name of a number.
const STATISTICS: [&str; 9] =
    ["mean", "deviation", "low", "high", "spread", "amplitude", "period", "strength", "overall"];

/// Measures per window of a level, by its number.
const OF_LEVEL: [&str; 3] = ["level_bytes", "level_runs", "level_entries"];

/// Numbers of a level, by its number.
const NUMBERS_OF_LEVEL: [&str; 6] = [
    "level_start_bytes",
    "level_end_bytes",
    "level_shadowed",
    "level_write_rate",
    "level_update_rate",
    "level_update_ratio",
];

/// Numbers that no sample has.
const OF_RUN: [&str; 4] =
    ["open_seconds", "open_log_bytes", "level_write_rate_inner", super::blocks::IN_ALL];

/// What the number of a level stands behind, if it is one that a tree may have.
fn of_level(name: &str) -> Option<&str> {
    let (base, level) = name.rsplit_once('_')?;
    let level: usize = level.parse().ok()?;
    (1..LEVELS).contains(&level).then_some(base)
}

fn is_series(name: &str) -> bool {
    PER_WINDOW.iter().any(|measure| measure.name == name)
        || of_level(name).is_some_and(|base| OF_LEVEL.contains(&base))
}

fn is_number(name: &str) -> bool {
    let blocks = ["read_blocks_", "written_blocks_"];
    let cause = blocks.iter().find_map(|start| name.strip_prefix(start));
    let whole = WHOLE.iter().any(|(known, ..)| *known == name);
    if whole || OF_RUN.contains(&name) || cause.is_some_and(|cause| CAUSES.contains(&cause)) {
        return true;
    }
    if of_level(name).is_some_and(|base| NUMBERS_OF_LEVEL.contains(&base)) {
        return true;
    }
    match name.rsplit_once('_') {
        // Of a level it would be the size at the end, which has a name of its own.
        Some((base, "overall")) => PER_WINDOW.iter().any(|measure| measure.name == base),
        Some((base, statistic)) => is_series(base) && STATISTICS.contains(&statistic),
        None => false,
    }
}

fn is_by_level(name: &str) -> bool {
    name.strip_suffix("_by_level").is_some_and(|base| NUMBERS_OF_LEVEL.contains(&base))
}

/// That `name` is a measure per window.
///
/// # Errors
/// There is none of that name; the nearest one and all that there are.
pub fn check_series(name: &str) -> Result<(), String> {
    if is_series(name) {
        return Ok(());
    }
    let there = PER_WINDOW.iter().map(|measure| measure.name.to_owned());
    Err(unknown(name, "measure per window", there.chain(numbered(&OF_LEVEL)).collect()))
}

/// That `name` is a number of a run.
///
/// # Errors
/// There is none of that name; the nearest one and all that there are.
pub fn check_number(name: &str) -> Result<(), String> {
    if is_number(name) {
        return Ok(());
    }
    if is_series(name) {
        let statistics = STATISTICS.map(|statistic| format!("{name}_{statistic}")).join(", ");
        return Err(format!(
            "the measure {name:?} is one per window, and this is a number: one of {statistics}"
        ));
    }
    let stated = ["read_blocks_CAUSE", "written_blocks_CAUSE"];
    let whole = WHOLE.iter().map(|(name, ..)| *name).chain(OF_RUN).chain(stated);
    let all = whole.map(str::to_owned).chain(numbered(&NUMBERS_OF_LEVEL));
    let series = PER_WINDOW.iter().map(|measure| format!("{}_STATISTIC", measure.name));
    let of_level = OF_LEVEL.iter().map(|name| format!("{name}_N_STATISTIC"));
    let mut text = unknown(name, "measure", all.chain(series).chain(of_level).collect());
    text += &format!("; STATISTIC is one of {}", STATISTICS.join(", "));
    text += &format!("; CAUSE is one of {}", CAUSES.join(", "));
    Err(text)
}

/// That `name` is what a plot over a parameter shows: a number, or one of each level.
///
/// # Errors
/// There is none of that name; the nearest one and all that there are.
pub fn check_parameter(name: &str) -> Result<(), String> {
    if is_by_level(name) {
        return Ok(());
    }
    let by_level = NUMBERS_OF_LEVEL.map(|name| format!("{name}_by_level")).join(", ");
    check_number(name).map_err(|error| format!("{error}; over levels: {by_level}"))
}

fn numbered(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("{name}_N")).collect()
}

fn unknown(name: &str, what: &str, all: Vec<String>) -> String {
    let nearest = all.iter().map(|known| (distance(name, known), known)).min();
    let near = match nearest {
        Some((steps, known)) if steps <= 3 => format!(" (is {known} meant?)"),
        _ => String::new(),
    };
    let last = LEVELS - 1;
    format!(
        "there is no {what} {name:?}{near}; there are {}, where N is a level, 1 to {last}",
        all.join(", ")
    )
}

/// How many letters must be put in, left out or changed to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for (to, (&aslant, &above)) in b.iter().zip(row.iter().zip(row.iter().skip(1))) {
            let left = next.last().copied().unwrap_or(0);
            next.push((aslant + usize::from(from != *to)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{number, series};
    use crate::record::{Record, Sample};

    /// Goal: what is accepted of a file can be had of a run, and nothing else. Method: every name,
    /// and some that are none, of a run whose levels are all in use.
    #[test]
    fn names_are_those_of_runs() {
        let mut sample = Sample::default();
        sample.levels.iter_mut().for_each(|level| level.bytes = 1);
        let later = Sample { seconds: 1.0, ..sample };
        let record = Record { samples: vec![sample, later], ..Record::default() };
        let mut names: Vec<String> = PER_WINDOW.iter().map(|m| m.name.to_owned()).collect();
        let last = LEVELS - 1;
        let bases = OF_LEVEL.iter().chain(&NUMBERS_OF_LEVEL);
        names.extend(bases.flat_map(|base| {
            ["0", "1", "x", &last.to_string(), &LEVELS.to_string()].map(|n| format!("{base}_{n}"))
        }));
        names.extend(["x", "hit_ratio_", "level_bytes", "level_write_rate"].map(String::from));
        let statistics = STATISTICS.iter().chain(&["median", ""]);
        let pairs: Vec<String> = statistics
            .flat_map(|statistic| names.iter().map(move |name| format!("{name}_{statistic}")))
            .collect();
        names.extend(pairs);
        names.extend(WHOLE.iter().map(|(name, ..)| (*name).to_owned()));
        names.extend(OF_RUN.map(String::from));
        for cause in CAUSES.iter().chain(&["nobody"]) {
            names.extend(["read", "written"].map(|side| format!("{side}_blocks_{cause}")));
        }
        for name in &names {
            assert_eq!(check_series(name).is_ok(), series(&record, name).is_some(), "{name}");
            // The ratio of the last level has no next one, which a run does not know before.
            if *name == format!("level_update_ratio_{last}") {
                continue;
            }
            assert_eq!(check_number(name).is_ok(), number(&record, name).is_ok(), "{name}");
        }
        check_parameter("level_write_rate_by_level").expect("one of each level");
        assert!(check_parameter("qps_by_level").is_err());
    }

    /// Goal: who misspells a name learns the right one.
    #[test]
    fn the_nearest_is_named() {
        for (error, part) in [
            (check_series("hit_rato"), "\"hit_rato\" (is hit_ratio meant?); there are hit_ratio, "),
            (check_number("write_amplificaton"), "(is write_amplification meant?)"),
            (check_number("hit_ratio"), "one of hit_ratio_mean, hit_ratio_deviation"),
            (check_number("nonsense_mean"), "qps_STATISTIC"),
            (check_parameter("nonsense"), "level_write_rate_by_level"),
        ] {
            assert!(error.as_ref().is_err_and(|e| e.contains(part)), "{part} in {error:?}");
        }
        assert_eq!((distance("abc", "abc"), distance("abc", "adc"), distance("", "ab")), (0, 1, 2));
        assert_eq!((distance("abc", "bc"), distance("kitten", "sitting")), (1, 3));
    }
}
