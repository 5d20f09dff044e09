//! `weir-lab errors`: whether invented errors are noticed.

use std::io::Write;
use std::path::PathBuf;

use weir_lab::invented::{self, Row};
use weir_lab::suite::{RunOptions, default_shrink};

use super::{Failure, Result, folder, progress, table};

/// Arguments of `weir-lab errors`.
#[derive(clap::Args, Debug)]
pub(crate) struct ErrorsArgs {
    /// By how much data, caches, files and durations are divided
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    scale: u32,
    /// Folder that has, in `cache`, loaded stores and earlier results
    #[arg(long, default_value = folder::DEFAULT)]
    out: PathBuf,
    /// Runs side by side
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
}

/// Runs the command.
pub(crate) fn run(args: &ErrorsArgs, out: &mut dyn Write) -> Result<()> {
    let options = RunOptions {
        scale: args.scale,
        shrink: default_shrink(args.scale),
        first: None,
        seed: folder::SEED,
        cache: args.out.join("cache"),
        reuse: true,
        keep_images: true,
        jobs: usize::from(args.jobs),
    };
    folder::prepare(&args.out)?;
    let rows = progress(|listener| invented::run(&options, listener))?;
    let noticed = |row: &Row| if row.noticed { "yes" } else { "NO" }.to_owned();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let Row { error, experiment, number, bounds, real, wrong, .. } = row.clone();
            vec![error, experiment, number, bounds, real, wrong, noticed(row)]
        })
        .collect();
    let header =
        ["error", "experiment", "number", "accepted", "as it is", "with the error", "noticed"];
    table(out, &header, &cells)?;
    let missed: Vec<String> = rows
        .iter()
        .filter(|row| !row.noticed)
        .map(|row| format!("{} in {}: {:?}", row.error, row.experiment, row.number))
        .collect();
    if missed.is_empty() {
        writeln!(out, "all of {} numbers notice their error", rows.len())?;
        return Ok(());
    }
    let (count, missed) = (missed.len(), missed.join(", "));
    Err(Failure::outside(format!("{count} of {} numbers miss their error: {missed}", rows.len())))
}
