//! `weir-lab check`: the results in a folder against their bounds.

use std::io::Write;
use std::path::PathBuf;

use weir_lab::result::Result as Outcome;

use super::{Failure, Result, called, folder, print_numbers, refuse_failures};

/// Arguments of `weir-lab check`.
#[derive(clap::Args, Debug)]
pub(crate) struct CheckArgs {
    /// Folder of the results
    #[arg(long, default_value = folder::DEFAULT)]
    results: PathBuf,
    /// Only results at this scale
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    scale: Option<u32>,
}

/// Runs the command.
pub(crate) fn run(args: &CheckArgs, out: &mut dyn Write) -> Result<()> {
    let (mut results, mut others) = folder::read_results(&args.results)?;
    let all = results.len();
    results.retain(Outcome::is_whole);
    others += all - results.len();
    if let Some(scale) = args.scale {
        results.retain(|result| result.scale == scale);
        if results.is_empty() {
            return Err(Failure::new(format_args!(
                "{} has no result at scale {scale}; make one with `{} run NAME --scale {scale}`",
                args.results.display(),
                called()
            )));
        }
    }
    print_numbers(out, &results)?;
    folder::print_left_out(out, others)?;
    refuse_failures(&results)
}
