//! `weir repair`: make a damaged store openable again.

use crate::failure::{Failure, Result, UntilClosed};
use crate::inspect::explain_missing;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Options of `weir repair`.
#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    /// The store: a directory, or a file or device that `weir format` made one
    dir: PathBuf,
    /// Where the version log of a file or device is lost: build the tree again from every table
    /// that still lies in its slots. Keys that were deleted and keyspaces that were dropped can
    /// come back
    #[arg(long)]
    from_trailers: bool,
    /// Directory for copies of what is damaged in a file or on a device; it must be there. Beside a
    /// file if not given; a device has no such place
    #[arg(long, value_name = "DIR")]
    keep_in: Option<PathBuf>,
    /// With --from-trailers: write the new tree into a new store at PATH, a directory that is not
    /// there or a file that `weir format --unopened` made, and only read the damaged one. Needs as
    /// much room there as the tables take that are found
    #[arg(long, value_name = "PATH", requires = "from_trailers", conflicts_with = "keep_in")]
    into: Option<PathBuf>,
}

/// Runs `weir repair`. Losses are a difference: the exit code tells them from a whole store.
pub(crate) fn run(args: &RepairArgs, out: &mut dyn Write) -> Result<()> {
    let mut options = weir::RepairOptions::default().from_trailers(args.from_trailers);
    options.keep_in.clone_from(&args.keep_in);
    options.rebuild_into.clone_from(&args.into);
    let repaired = weir::Db::builder(&args.dir).repair_with(options);
    let report = repaired.map_err(|e| refused(&args.dir, e))?;
    writeln!(UntilClosed(out), "{report}")?;
    if args.from_trailers && !report.from_trailers {
        let out = &mut UntilClosed(&mut *out);
        writeln!(
            out,
            "trailers were not used: the version log tells which tables live; with `--into NEW` a \
             new store is built from all that lies in the slots whatever it tells"
        )?;
    }
    if report.lost_data() {
        let is_certain = report.lost_tables.iter().any(|table| !table.is_whole())
            || report.lost_log.iter().any(|log| log.groups > 0);
        if report.unfinished.is_some() {
            return Err(Failure::difference(format_args!(
                "{} is repaired in part; the report above says what is missing for the rest",
                args.dir.display()
            )));
        }
        return Err(Failure::difference(format_args!(
            "data {} lost from {}; the report above says what",
            if is_certain { "was" } else { "may be" },
            args.dir.display()
        )));
    }
    Ok(())
}

/// Why a repair ended. Where the engine's advice ends with a repair, that is left out.
fn refused(dir: &Path, error: weir::Error) -> Failure {
    let Failure { code, mut message } = explain_missing(dir, error);
    if let Some(end) = message.find(", or salvage") {
        message.truncate(end);
    }
    Failure { code, message }
}
