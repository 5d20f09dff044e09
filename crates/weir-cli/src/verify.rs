//! `weir verify`: is a store whole.

use crate::failure::{Failure, Result, advice};
use crate::inspect::{logs, open_read_only};
use crate::show::{Bytes, Count};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;

/// Options of `weir verify`.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// Directory of the store
    dir: PathBuf,
}

/// Runs `weir verify`.
pub(crate) fn run(args: &VerifyArgs, out: &mut dyn Write) -> Result<()> {
    let db = open_read_only(&args.dir)?;
    let report = db.verify();
    db.close()?;
    let report = report.map_err(unknown)?;
    writeln!(
        out,
        "found {} table{} sound: {} blocks, {} entries",
        Count(report.tables),
        if report.tables == 1 { "" } else { "s" },
        Count(report.blocks),
        Count(report.entries)
    )?;
    // An opening reads them whole and refuses a store in which one is damaged.
    let logs = logs(&args.dir)?;
    let bytes = logs.iter().map(|(_, bytes)| bytes).sum();
    writeln!(out, "read {} log files of {} when opening", logs.len(), Bytes(bytes))?;
    for damage in &report.damages {
        writeln!(out, "damage: {damage:#}")?;
    }
    for error in &report.unread {
        writeln!(out, "not read: {error}{}", advice(error))?;
    }
    let Some(first) = report.damages.first() else {
        writeln!(out, "no damage")?;
        return Ok(());
    };
    let dir = args.dir.display();
    let count = report.damages.len();
    Err(Failure::difference(format_args!(
        "{count} damaged structure{} in {dir}, the first: {first:#}; restore a backup, or salvage \
         what can be read with `weir repair {dir}`",
        if count == 1 { "" } else { "s" }
    )))
}

/// A table that cannot be read may be sound: that is no damage, and nothing to repair yet.
fn unknown(error: weir::Error) -> Failure {
    let Failure { code, message } = error.into();
    let message = format!("{message}; no damage was found, but not everything could be read");
    Failure { code, message }
}
