//! `weir destroy`: removes a store.

use crate::failure::{Failure, Result};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use weir::Db;

/// Options of `weir destroy`.
#[derive(Args, Debug)]
pub(crate) struct DestroyArgs {
    /// The store: a directory, a file or a block device. The directory or file stays; of a
    /// directory only the store's own files go
    path: PathBuf,
    /// Remove it: nothing of it can be had again
    #[arg(long)]
    yes: bool,
}

/// Runs `weir destroy`.
pub(crate) fn run(args: &DestroyArgs, out: &mut dyn Write) -> Result<()> {
    let path = args.path.display();
    if !args.path.exists() {
        return Err(Failure::new(format!("there is no {path}; correct the path")));
    }
    #[expect(clippy::disallowed_methods, reason = "whether there is anything, whatever it is")]
    let is_empty = std::fs::read_dir(&args.path).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty {
        return Err(Failure::new(format!(
            "{path} is empty: there is no store in it, and nothing was changed; correct the path"
        )));
    }
    if !args.yes {
        return Err(Failure::usage(format!(
            "this removes the store {path} for good (`weir df {path}` shows what it has); repeat \
             it with --yes if that is meant"
        )));
    }
    Db::destroy(&args.path)?;
    writeln!(out, "{path} holds no store any more")?;
    Ok(())
}
