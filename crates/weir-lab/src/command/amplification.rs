//! `weir-lab amplification`: what each policy writes, reads and stores, beside the formulas.

use std::io::Write;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use weir::CompactionPolicy;
use weir_bench::Stopwatch;
use weir_lab::amplification::{self, Case, Measured, Row, Verdict};
use weir_lab::show;

use super::{Result, folder, refuse_failures, table};

/// Entries of a write buffer by default.
const ENTRIES: u64 = 1000;

/// Fewer make tables of a block or less, more make no difference.
fn entries_in_range() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(200..=1_000_000)
}

/// Arguments of `weir-lab amplification`.
#[derive(clap::Args, Debug)]
pub(crate) struct AmplificationArgs {
    /// Policies to measure; all if none is named
    policies: Vec<CompactionPolicy>,
    /// Entries of a write buffer, of 116 bytes each
    #[arg(long, default_value_t = ENTRIES, value_parser = entries_in_range())]
    entries: u64,
    /// Decides keys, values and reads
    #[arg(long, default_value_t = folder::SEED)]
    seed: u64,
    /// Folder for the result, and for the stores while they are measured
    #[arg(long)]
    out: Option<PathBuf>,
    /// End with exit code 3 if a number is neither near its formula nor explained
    #[arg(long)]
    check: bool,
}

/// Runs the command.
pub(crate) fn run(args: &AmplificationArgs, out: &mut dyn Write) -> Result<()> {
    let wanted = |policy| args.policies.is_empty() || args.policies.contains(&policy);
    let mut cases = amplification::cases();
    cases.retain(|case| wanted(case.policy));
    let bar = ProgressBar::new(cases.iter().map(Case::flushes).sum());
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} %");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let started = Stopwatch::start();
    let folder = args.out.clone().unwrap_or_else(|| folder::DEFAULT.into());
    folder::prepare(&folder)?;
    let cache = folder.join("cache");
    let measured = amplification::run(&cases, args.entries, args.seed, &cache, &|case| {
        bar.set_message(case.name());
        bar.inc(1);
    });
    bar.finish_and_clear();
    let measured = measured?;
    let seconds = started.seconds();
    let result =
        amplification::outcome(&measured, args.entries, args.seed, &command(args), seconds);
    print(out, &measured)?;
    if args.out.is_some() {
        folder::write_result(&folder, &result)?;
    }
    if args.check { refuse_failures(&[result]) } else { Ok(()) }
}

/// What makes the result again.
fn command(args: &AmplificationArgs) -> String {
    let mut words = vec!["weir lab amplification".to_owned()];
    words.extend(args.policies.iter().map(ToString::to_string));
    words.push(format!("--entries {} --seed {}", args.entries, args.seed));
    words.join(" ")
}

/// Prints every number beside its formula, then why some are not near theirs.
fn print(out: &mut dyn Write, measured: &[(Case, Measured)]) -> Result<()> {
    let rows: Vec<Row> =
        measured.iter().flat_map(|(case, found)| amplification::rows(case, found)).collect();
    let range = |(low, high): (f64, f64)| {
        if low == high { format!("{low:.2}") } else { format!("{low:.2} to {high:.2}") }
    };
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let (verdict, counted, why) = match (row.verdict(), &row.counted) {
                (Verdict::Within, _) => ("within", "-".to_owned(), ""),
                (Verdict::Explained, Some((counted, why))) => {
                    ("explained", range(*counted), why.as_str())
                }
                (_, counted) => {
                    let counted = counted.as_ref().map(|(counted, _)| range(*counted));
                    ("OUTSIDE", counted.unwrap_or("-".to_owned()), "")
                }
            };
            vec![
                row.case.name(),
                row.part.name().to_owned(),
                show::with_unit(row.what.name(), row.what.unit()),
                format!("{:.2}", row.measured),
                range(row.formula),
                format!("{:.2}", row.ratio()),
                counted,
                verdict.to_owned(),
                why.to_owned(),
            ]
        })
        .collect();
    let header =
        ["store", "part", "number", "measured", "formula", "ratio", "by counts", "verdict", "why"];
    table(out, &header, &cells)?;
    Ok(())
}
