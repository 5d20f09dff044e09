//! Invented errors: what must not go unnoticed, one of each class, and whether it does.
//!
//! A verdict that no error changes says nothing. Each entry names an experiment, what is wrong in
//! it, and the numbers that must show it; the experiment is run as it is and with the error, both
//! with those runs only that these numbers need. An error is noticed if `required` has nothing
//! against a number as it is, and has something against it with the error.
//!
//! Bounds that were moved are errors too: those of each number are moved in turn, and nothing is
//! run for that.

use crate::catalog;
use crate::document::Set;
use crate::experiment::{Experiment, Wanted};
use crate::report::bounds;
use crate::required;
use crate::result::{Number, Result as Outcome};
use crate::show;
use crate::suite::{self, Listener, RunOptions};

/// An error, and where it must be seen.
#[derive(Clone, Copy, Debug)]
pub struct Invented {
    /// Its class.
    pub name: &'static str,
    /// The experiment that it is put into: the cheapest that notices it.
    pub experiment: &'static str,
    /// The option that is wrong, as `--set` takes it.
    pub set: &'static str,
    /// The numbers that must show it.
    pub numbers: &'static [&'static str],
    /// Why they must.
    pub why: &'static str,
}

/// All of them but for bounds that were moved.
pub const INVENTED: [Invented; 6] = [
    Invented {
        name: "empty start",
        experiment: "lsbm-fig11a",
        set: "load.updates=0",
        numbers: &["write amplification", "mean hit ratio"],
        why: "levels that are empty at first merge less and hold fewer hot blocks",
    },
    Invented {
        name: "wrong cache",
        experiment: "lsbm-fig11a",
        set: "store.block_cache_bytes=3_221_225_472",
        numbers: &["mean hit ratio"],
        why: "half of the cache does not hold the hot range of all levels",
    },
    Invented {
        name: "fast disk",
        experiment: "lsbm-fig13",
        set: "disk.speed=2.0",
        numbers: &["queries per second"],
        why: "a quarter of the reads waits for the disk, all day long",
    },
    Invented {
        name: "wrong popularity",
        experiment: "dlsm-fig10",
        set: "readers.main.recent_keys=20_971_520",
        numbers: &["hit ratio"],
        why: "the latest of all keys are many more than the cache holds",
    },
    Invented {
        name: "policy swapped",
        experiment: "lsbm-fig11a",
        set: "store.policy=leveled",
        numbers: &["write amplification", "period of the hit ratio"],
        why: "a leveled tree merges a table at a time, into all that it overlaps",
    },
    Invented {
        name: "filters missing",
        experiment: "merfeld-fig2",
        set: "store.bloom_bits=1",
        numbers: &["blocks per read, 4 runs, 20000 entries"],
        why: "with one bit a key, two runs of three are looked into in vain",
    },
];

/// What became of an error in one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The class of the error, and what was set.
    pub error: String,
    /// The experiment.
    pub experiment: String,
    /// The number.
    pub number: String,
    /// What is accepted of it.
    pub bounds: String,
    /// Its value as the experiment is.
    pub real: String,
    /// Its value, or bounds, with the error.
    pub wrong: String,
    /// Whether the error was noticed.
    pub noticed: bool,
}

/// What becomes of all of them.
///
/// # Errors
/// What could not be run.
pub fn run(options: &RunOptions, progress: &Listener) -> Result<Vec<Row>, String> {
    let mut experiments = Vec::new();
    for invented in INVENTED {
        let set: Set = invented.set.parse()?;
        for sets in [&[][..], &[set]] {
            let mut experiment = catalog::named_with(invented.experiment, sets)?;
            experiment.keep(invented.numbers);
            experiments.push(experiment);
        }
    }
    let outcomes = suite::run(&experiments, options, progress);
    let outcomes: Vec<Outcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
    let mut rows = Vec::new();
    for (invented, pair) in INVENTED.iter().zip(outcomes.chunks(2)) {
        let [real, wrong] = pair else { return Err("a result is missing".into()) };
        for name in invented.numbers {
            let missing = || format!("{}: there is no number {name:?}", invented.experiment);
            let real = real.number(name).ok_or_else(missing)?;
            rows.push(row(invented, real, wrong.number(name).ok_or_else(missing)?));
        }
    }
    rows.extend(moved_bounds()?);
    Ok(rows)
}

fn row(invented: &Invented, real: &Number, wrong: &Number) -> Row {
    let unexpected = |number| required::unexpected(invented.experiment, number).is_some();
    Row {
        error: format!("{}: {}", invented.name, invented.set),
        experiment: invented.experiment.to_owned(),
        number: show::with_unit(&real.name, &real.unit),
        bounds: bounds(real),
        real: show::number(real.ours),
        wrong: show::number(wrong.ours),
        noticed: !unexpected(real) && unexpected(wrong),
    }
}

/// The bounds of each number, a tenth wider, one after the other.
fn moved_bounds() -> Result<Vec<Row>, String> {
    let moves: [fn(&mut Wanted); 2] = [
        |wanted| wanted.low = wanted.low.map(|low| low - 0.1 * low.abs()),
        |wanted| wanted.high = wanted.high.map(|high| high + 0.1 * high.abs()),
    ];
    let mut rows = Vec::new();
    for experiment in catalog::all()? {
        let sound = required::moved(&experiment).is_none();
        for (place, number) in experiment.numbers.iter().enumerate() {
            for widen in moves {
                let mut wrong = experiment.clone();
                wrong.numbers.get_mut(place).into_iter().for_each(widen);
                let is = |experiment: &Experiment| {
                    experiment.numbers.get(place).map(|number| (number.low, number.high))
                };
                // A bound that is not stated, or 0, cannot be moved so.
                let (Some(was), Some(is)) = (is(&experiment), is(&wrong)) else { continue };
                if was == is {
                    continue;
                }
                rows.push(Row {
                    error: "bound moved".into(),
                    experiment: experiment.name.clone(),
                    number: number.name.clone(),
                    bounds: stated(was),
                    real: "-".into(),
                    wrong: stated(is),
                    noticed: sound && required::moved(&wrong).is_some(),
                });
            }
        }
    }
    Ok(rows)
}

fn stated((low, high): (Option<f64>, Option<f64>)) -> String {
    let bound = |bound: Option<f64>| bound.map_or("..".to_owned(), show::number);
    format!("{} to {}", bound(low), bound(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each entry can be run, changes its experiment, and names numbers whose verdict can
    /// change. What becomes of it takes minutes: `.ci/run lab`.
    #[test]
    fn entries_are_sound() {
        for invented in INVENTED {
            let set: Set = invented.set.parse().expect(invented.set);
            let real = catalog::named(invented.experiment).expect(invented.experiment);
            let wrong = catalog::named_with(invented.experiment, &[set]).expect(invented.set);
            assert_ne!(format!("{:?}", real.runs), format!("{:?}", wrong.runs), "{invented:?}");
            let mut kept = real.clone();
            kept.keep(invented.numbers);
            assert_eq!(kept.numbers.len(), invented.numbers.len(), "{invented:?}");
            assert!(!kept.runs.is_empty() && kept.runs.len() <= real.runs.len());
            assert!(kept.numbers.iter().all(|n| n.low.is_some() || n.high.is_some()));
            assert!(!invented.why.is_empty());
        }
    }

    /// Goal: no bound can be moved. Method: as the command does it.
    #[test]
    fn moved_bounds_are_noticed() {
        let rows = moved_bounds().expect("sound files");
        assert!(rows.len() > 60 && rows.iter().all(|row| row.noticed), "{rows:?}");
    }

    /// Goal: an error is noticed only if its number was as expected without it.
    #[test]
    fn what_complains_anyway_notices_nothing() {
        let number = |ours: f64| Number {
            name: "write amplification".into(),
            unit: String::new(),
            statistic: String::new(),
            span: None,
            over_span: None,
            ours,
            paper: None,
            low: Some(1.0),
            high: Some(2.0),
            differs: None,
            guard: false,
            note: String::new(),
        };
        for (real, wrong, noticed) in
            [(1.5, 3.0, true), (1.5, 1.6, false), (3.0, 4.0, false), (3.0, 1.5, false)]
        {
            let row = row(&INVENTED[0], &number(real), &number(wrong));
            assert_eq!(row.noticed, noticed, "{row:?}");
        }
    }
}
