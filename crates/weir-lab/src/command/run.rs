//! `weir-lab run`: experiments, one after the other, and what came out of each.

use std::io::Write;
use std::path::PathBuf;

use weir_lab::catalog;
use weir_lab::document::Set;
use weir_lab::experiment::Experiment;
use weir_lab::suite::{self, RunOptions};

use super::{
    Failure, Result, called, experiment, folder, print_numbers, progress, refuse_failures,
};

/// Arguments of `weir-lab run`.
#[derive(clap::Args, Debug)]
pub(crate) struct RunArgs {
    /// Names of experiments, `weir-lab list` has them, or TOML files like theirs
    #[arg(required_unless_present = "all")]
    names: Vec<String>,
    /// Every experiment
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Leave out runs that are long, and the numbers that need them: what CI runs
    #[arg(long)]
    short: bool,
    /// By how much data, caches, files and durations are divided
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    scale: u32,
    /// By how much entries and blocks are made smaller, at the same number of them; a disk charges
    /// so many times their bytes. 16 below scale 32, otherwise 1: tables become too small there
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16))]
    shrink: Option<u32>,
    /// End each measured phase after so many seconds of the paper's time, if it is longer: enough
    /// of it where a course repeats itself. Numbers about later seconds are left out
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    first: Option<u32>,
    /// Decides keys, values and the order of everything
    #[arg(long, default_value_t = folder::SEED)]
    seed: u64,
    /// Several seeds, a result for each: 1,2,3, or 3 for the first three
    #[arg(long, conflicts_with = "seed", value_parser = parse_seeds)]
    seeds: Option<Seeds>,
    /// Folder for the results and, in `cache`, for loaded stores and earlier results
    #[arg(long, default_value = folder::DEFAULT)]
    out: PathBuf,
    /// Measure again, even if there is a result of the same experiment, scale, seed and program
    #[arg(long)]
    fresh: bool,
    /// Remove each loaded store when the last of these runs that starts from it has ended: for
    /// disks without the ten gigabytes that all of them take at scale 64
    #[arg(long)]
    discard_images: bool,
    /// Runs side by side
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// Give every run this option, by its full name: store.eviction=s3_fifo. The result is not
    /// the experiment's, has a file name of its own, and is neither checked nor reported
    #[arg(long, value_name = "OPTION=VALUE")]
    set: Vec<Set>,
    /// End with exit code 3 if a number is outside its bounds
    #[arg(long, conflicts_with = "set")]
    check: bool,
}

/// Seeds, each once, in the order in which they were named.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seeds(Vec<u64>);

/// More than that was hardly meant.
const SEEDS_MAX: u64 = 100;

fn parse_seeds(text: &str) -> std::result::Result<Seeds, String> {
    let number =
        |part: &str| part.trim().parse::<u64>().map_err(|e| format!("{part:?} is no seed: {e}"));
    if !text.contains(',') {
        return match number(text)? {
            count @ 1..=SEEDS_MAX => Ok(Seeds((1..=count).collect())),
            _ => Err(format!("name 1 to {SEEDS_MAX} seeds; --seed takes one by its number")),
        };
    }
    let seeds: Vec<u64> = text.split(',').map(number).collect::<std::result::Result<_, _>>()?;
    match seeds.iter().enumerate().find(|(i, seed)| seeds[..*i].contains(seed)) {
        Some((_, twice)) => Err(format!("seed {twice} is named twice")),
        None => Ok(Seeds(seeds)),
    }
}

/// Runs the command.
pub(crate) fn run(args: &RunArgs, out: &mut dyn Write) -> Result<()> {
    // All names are known to be good before the first experiment takes its minutes.
    let experiments = if args.short { shortened(args)? } else { experiments(args)? };
    let seeds = args.seeds.clone().unwrap_or(Seeds(vec![args.seed]));
    let shrink = args.shrink.unwrap_or_else(|| suite::default_shrink(args.scale));
    let options = |seed| RunOptions {
        scale: args.scale,
        shrink,
        first: args.first,
        seed,
        cache: args.out.join("cache"),
        reuse: !args.fresh,
        keep_images: !args.discard_images,
        jobs: usize::from(args.jobs),
    };
    suite::check(&experiments, &options(folder::SEED))?;
    folder::prepare(&args.out)?;
    let (mut results, mut failure) = (Vec::new(), None);
    for seed in seeds.0 {
        let options = options(seed);
        // Results are kept even if other experiments fail.
        for outcome in progress(|listener| suite::run(&experiments, &options, listener)) {
            match outcome {
                Ok(result) => {
                    folder::write_result(&args.out, &result)?;
                    results.push(result);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
    }
    print_numbers(out, &results)?;
    if let Some(error) = failure {
        return Err(error.into());
    }
    let folder = args.out.display();
    writeln!(
        out,
        "JSON, SVG and PNG files are in {folder}; `{} report --results {folder}` makes a page of \
         them.",
        called()
    )?;
    if args.check { refuse_failures(&results) } else { Ok(()) }
}

/// The short forms of the experiments, where there is one.
fn shortened(args: &RunArgs) -> Result<Vec<Experiment>> {
    let all = experiments(args)?;
    let (names, short): (Vec<String>, Vec<Option<Experiment>>) =
        all.into_iter().map(|one| (one.name.clone(), one.shortened())).unzip();
    match names.iter().zip(&short).find(|(_, short)| short.is_none()) {
        Some((name, _)) if !args.all => {
            Err(Failure::usage(format_args!("all runs of {name} are long: leave --short out")))
        }
        _ => Ok(short.into_iter().flatten().collect()),
    }
}

fn experiments(args: &RunArgs) -> Result<Vec<Experiment>> {
    if args.all {
        return catalog::names().into_iter().map(|name| experiment(name, &args.set)).collect();
    }
    let mut names: Vec<&str> = Vec::new();
    for name in &args.names {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let all: Vec<Experiment> =
        names.into_iter().map(|name| experiment(name, &args.set)).collect::<Result<_>>()?;
    for (place, one) in all.iter().enumerate() {
        if let Some(other) = all[..place].iter().find(|other| other.name == one.name) {
            return Err(Failure::new(format_args!(
                "{} and {} are both called {}, and one's results would replace the other's: give \
                 one of them another name, or another --out",
                other.source, one.source, one.name
            )));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a count and a list of seeds are told apart, and what is neither is refused.
    #[test]
    fn seeds_are_counted_or_named() {
        for (text, seeds) in [("3", &[1, 2, 3][..]), ("1,2", &[1, 2]), ("7, 5", &[7, 5])] {
            assert_eq!(parse_seeds(text), Ok(Seeds(seeds.to_vec())), "{text}");
        }
        for (text, error) in [
            ("0", "1 to 100"),
            ("1,1", "twice"),
            ("1,", "no seed"),
            ("x", "no seed"),
            ("", "no seed"),
        ] {
            assert!(parse_seeds(text).is_err_and(|e| e.contains(error)), "{text}");
        }
    }
}
