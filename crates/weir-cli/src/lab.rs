//! `weir lab`: hands over to the program `weir-lab`, with all arguments as they are.
//!
//! The laboratory needs the engine's feature `sim`. Cargo builds the engine once for all programs
//! that are built together, so that in one program with the laboratory every other command would
//! run on an engine that asks at every lock and wait whether it is simulated.

use crate::failure::{Failure, Result};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const PROGRAM: &str = "weir-lab";

/// Arguments of `weir lab`, all passed on to the program `weir-lab`.
#[derive(clap::Args, Debug)]
pub(crate) struct LabArgs {
    /// Arguments of weir-lab: `list`, `run NAME`, `report`, `check`, `--help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `weir-lab`: beside this program if it is there, else from the PATH. Signals and the exit
/// code are its own from then on. Returns only if it cannot be started.
pub(crate) fn run(args: &LabArgs) -> Result<()> {
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join(PROGRAM)));
    let places = beside.filter(|path| path.is_file()).into_iter().chain([PathBuf::from(PROGRAM)]);
    for program in places {
        let mut command = Command::new(&program);
        // It names itself in what it tells people to type.
        command.arg0("weir lab");
        let help: &[OsString] = &[OsString::from("--help")];
        command.args(if args.arguments.is_empty() { help } else { &args.arguments });
        let error = command.exec();
        if error.kind() != ErrorKind::NotFound {
            return Err(Failure::new(format_args!("cannot start {}: {error}", program.display())));
        }
    }
    Err(Failure::new(
        "the laboratory is a program of its own, weir-lab, which is neither beside weir nor in the \
         PATH; install it from the sources with `cargo install --locked --path crates/weir-lab`, \
         or run it there with `cargo run --release -p weir-db-lab -- list`",
    ))
}
