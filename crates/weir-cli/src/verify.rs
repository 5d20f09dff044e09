//! `weir verify`: is a store whole.

use crate::failure::{Failure, Result, UntilClosed, sentence};
use crate::inspect::{logs, open_read_only};
use crate::show::{Bytes, Entries, Plural};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;

/// Options of `weir verify`.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The store: a directory, or a file or device that `weir format` made one
    dir: PathBuf,
}

/// Runs `weir verify`.
pub(crate) fn run(args: &VerifyArgs, out: &mut dyn Write) -> Result<()> {
    let out = &mut UntilClosed(out);
    let db = open_read_only(&args.dir)?;
    let report = db.verify();
    let space = db.slot_space();
    let cut_off = space.as_ref().map_or(0, |space| space.cut_off_bytes);
    let lacks_superblock = space.is_some_and(|space| space.superblocks < 2);
    db.close()?;
    let report = report.map_err(unknown)?;
    writeln!(
        out,
        "found {} sound: {}, {}",
        Plural(report.tables, "table"),
        Plural(report.blocks, "block"),
        Entries(report.entries)
    )?;
    // An opening refuses a store in which one of them is damaged where it is still needed.
    let logs = logs(&args.dir)?;
    let bytes = logs.iter().map(|(_, bytes)| bytes).sum();
    let files = match args.dir.is_dir() {
        true => format!("{}, {} in all", Plural(logs.len() as u64, "log file"), Bytes(bytes)),
        false => "its log".to_owned(),
    };
    writeln!(out, "opening it read what is still needed of {files}")?;
    for damage in &report.damages {
        writeln!(out, "damage: {damage:#}")?;
    }
    for error in &report.unread {
        writeln!(out, "not read: {}", sentence(error))?;
    }
    let dir = args.dir.display();
    if lacks_superblock {
        writeln!(
            out,
            "one of the two superblocks is damaged: it costs nothing while the other one is there; \
             an opening that writes makes it whole, and so does `weir repair {dir}`"
        )?;
    }
    if cut_off > 0 {
        writeln!(out, "cut off: the file lacks {} at its end", Bytes(cut_off))?;
    }
    let Some(first) = report.damages.first() else {
        if cut_off > 0 {
            return Err(Failure::difference(format_args!(
                "{dir} was cut off; all its entries can be read, and `weir repair {dir}` makes a \
                 file as long again"
            )));
        }
        writeln!(out, "{}", if lacks_superblock { "no other damage" } else { "no damage" })?;
        return Ok(());
    };
    Err(Failure::difference(format_args!(
        "{} in {dir}, the first: {first:#}; restore a backup, or salvage what can be read with \
         `weir repair {dir}`",
        Plural(report.damages.len() as u64, "damaged structure")
    )))
}

/// A table that cannot be read may be sound: that is no damage, and nothing to repair yet.
fn unknown(error: weir::Error) -> Failure {
    let Failure { code, message } = error.into();
    let message = format!("{message}; no damage was found, but not everything could be read");
    Failure { code, message }
}
