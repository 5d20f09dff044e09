//! `weir repair`: make a damaged store openable again.

use crate::failure::{Failure, Result};
use crate::inspect::explain_missing;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;

/// Options of `weir repair`.
#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    /// Directory of the store
    dir: PathBuf,
}

/// Runs `weir repair`. Losses are a difference: the exit code tells them from a whole store.
pub(crate) fn run(args: &RepairArgs, out: &mut dyn Write) -> Result<()> {
    let report = weir::Db::repair(&args.dir).map_err(|e| explain_missing(&args.dir, e))?;
    writeln!(out, "{report}")?;
    if report.lost_data() {
        return Err(Failure::difference(format_args!(
            "data was lost from {}; the report above names it",
            args.dir.display()
        )));
    }
    Ok(())
}
