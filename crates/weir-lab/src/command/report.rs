//! `weir-lab report`: one HTML page of all results in a folder.

use std::io::Write;
use std::path::PathBuf;

use weir_lab::report;

use super::{Result, folder};

/// Arguments of `weir-lab report`.
#[derive(clap::Args, Debug)]
pub(crate) struct ReportArgs {
    /// Folder of the results
    #[arg(long, default_value = folder::DEFAULT)]
    results: PathBuf,
    /// The page. Default: report.html in the folder of the results
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<()> {
    let (results, others) = folder::read_results(&args.results)?;
    let page = report::html(&results)?;
    let path = args.out.clone().unwrap_or_else(|| args.results.join("report.html"));
    folder::write(&path, page.as_bytes())?;
    writeln!(out, "{}", path.display())?;
    folder::print_left_out(out, others)
}
