//! The program's commands, one module each, and what they share: how they end, tables and verdicts.

pub(crate) mod amplification;
pub(crate) mod cache_race;
pub(crate) mod check;
pub(crate) mod disk;
pub(crate) mod errors;
mod folder;
pub(crate) mod list;
mod progress;
pub(crate) mod report;
pub(crate) mod requests;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod table;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use weir_lab::catalog;
use weir_lab::document::Set;
use weir_lab::experiment::Experiment;
use weir_lab::report::bounds;
use weir_lab::result::{Number, Result as Outcome, Verdict};

use progress::progress;

/// Exit code of a command that failed.
const ERROR: u8 = 1;

/// Exit code of a wrong command line, as the argument parser has it.
const USAGE: u8 = 2;

/// Exit code of a check that found a number outside its bounds, or an error that no number shows.
const OUTSIDE: u8 = 3;

/// The last section of `--help`.
pub(crate) const EXIT_CODES: &str = "Exit codes:
    0  done
    1  an error; one sentence on stderr says what happened and what to do
    2  the command line was wrong
    3  a check found a number outside its bounds, or an invented error was not noticed
  130  interrupted, as shells report it; runs that were done are in the cache";

/// The result of a command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command ends.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The process's exit code.
    pub(crate) code: u8,
    /// The sentence; empty if there is nothing to say.
    pub(crate) message: String,
}

impl Failure {
    /// An error that reads `message`.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self { code: ERROR, message: message.to_string() }
    }

    /// A command line that names what there is not.
    fn usage(message: impl fmt::Display) -> Self {
        Self { code: USAGE, message: message.to_string() }
    }

    /// Numbers that are outside their bounds, or miss an error.
    fn outside(message: String) -> Self {
        Self { code: OUTSIDE, message }
    }
}

impl From<String> for Failure {
    /// The laboratory's own errors are sentences.
    fn from(sentence: String) -> Self {
        Self::new(sentence)
    }
}

impl From<io::Error> for Failure {
    /// An error of stdout. Who reads our output may have seen enough: that is no error.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { code: 0, message: String::new() };
        }
        Self::new(format_args!("cannot write the output: {error}"))
    }
}

/// What this program was called: `weir lab`, which hands over to it, says so.
fn called() -> &'static str {
    match std::env::args_os().next() {
        Some(name) if name == "weir lab" => "weir lab",
        _ => "weir-lab",
    }
}

/// The experiment called `name`, one that is built in or one in a file, with `sets` for every run.
///
/// # Errors
/// There is none, or what is wrong with it or with what is set; a file that has the name of one
/// that is built in and says something else.
pub(crate) fn experiment(name: &str, sets: &[Set]) -> Result<Experiment> {
    let path = Path::new(name);
    if path.extension().is_none_or(|ending| ending != "toml") {
        return catalog::named_with(name, sets).map_err(Failure::usage);
    }
    let own = catalog::in_file(path, sets)?;
    // Results are told apart by the names of experiments.
    if catalog::names().contains(&own.name.as_str())
        && catalog::named_with(&own.name, sets)?.to_toml()? != own.to_toml()?
    {
        return Err(Failure::new(format_args!(
            "{name}: {} is the name of an experiment that is built in, which says something else \
             and whose results these would replace: give the file another name",
            own.name
        )));
    }
    Ok(own)
}

/// The error for numbers of `results` that are outside their bounds, if there are any.
///
/// # Errors
/// That one.
pub(crate) fn refuse_failures(results: &[Outcome]) -> Result<()> {
    refuse_numbers(numbers_of(results))
}

/// The same for numbers and the names of what they belong to.
///
/// # Errors
/// That one.
fn refuse_numbers<'a>(numbers: impl Iterator<Item = (&'a str, &'a Number)>) -> Result<()> {
    let failures: Vec<String> = numbers
        .filter(|(_, number)| number.verdict() == Verdict::Fails)
        .map(|(of, number)| format!("{of}: {:?}", number.name))
        .collect();
    match failures.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::outside(format!("one number is outside its bounds: {one}"))),
        many => {
            let (count, many) = (many.len(), many.join(", "));
            Err(Failure::outside(format!("{count} numbers are outside their bounds: {many}")))
        }
    }
}

/// Every number of `results`, with the name of its experiment.
fn numbers_of(results: &[Outcome]) -> impl Iterator<Item = (&str, &Number)> {
    results
        .iter()
        .flat_map(|result| result.numbers.iter().map(|number| (result.experiment.as_str(), number)))
}

/// Prints every number of `results`, the paper's beside ours.
pub(crate) fn print_numbers(out: &mut dyn Write, results: &[Outcome]) -> io::Result<()> {
    let mut rows = Vec::new();
    for result in results {
        for number in &result.numbers {
            rows.push(row(result, number));
        }
    }
    table(out, &["experiment", "number", "paper", "weir", "accepted", "verdict"], &rows)?;
    print_reasons(out, numbers_of(results))
}

/// Prints why numbers differ, of those that do.
fn print_reasons<'a>(
    out: &mut dyn Write,
    numbers: impl Iterator<Item = (&'a str, &'a Number)>,
) -> io::Result<()> {
    for (of, number) in numbers {
        if let (Verdict::Differs, Some(differs)) = (number.verdict(), &number.differs) {
            writeln!(out, "{of}: {:?} differs: {}", number.name, differs.because)?;
        }
    }
    Ok(())
}

fn row(result: &Outcome, number: &Number) -> Vec<String> {
    vec![
        result.experiment.clone(),
        weir_lab::show::with_unit(&number.name, &number.unit),
        number.paper.map_or("-".to_owned(), weir_lab::show::number),
        weir_lab::show::number(number.ours),
        bounds(number),
        verdict(number.verdict(), number.guard).to_owned(),
    ]
}

/// The word for a verdict, of a guard or of what the paper says.
fn verdict(verdict: Verdict, guard: bool) -> &'static str {
    match verdict {
        Verdict::Holds if guard => "guard",
        Verdict::Holds => "holds",
        Verdict::Differs => "DIFFERS",
        Verdict::Fails => "OUTSIDE",
        Verdict::Open => "open",
    }
}

/// Prints rows under a header, columns aligned to the left.
fn table(out: &mut dyn Write, header: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let header: Vec<String> = header.iter().map(|&cell| cell.to_owned()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        let line: Vec<String> = cells.collect();
        writeln!(out, "{}", line.join("  ").trim_end())?;
    }
    Ok(())
}
