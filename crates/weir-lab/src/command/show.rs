//! `weir-lab show`: what an experiment states, its bases included.

use std::io::Write;

use weir_lab::document::Set;

use super::{Failure, Result, experiment};

/// Arguments of `weir-lab show`.
#[derive(clap::Args, Debug)]
pub(crate) struct ShowArgs {
    /// Name of an experiment, `weir-lab list` has them, or a TOML file like theirs
    name: String,
    /// Only the settings, as they hold for this run
    #[arg(long)]
    run: Option<String>,
    /// Give every run this option, as `run` does
    #[arg(long, value_name = "OPTION=VALUE")]
    set: Vec<Set>,
}

/// Runs the command.
pub(crate) fn run(args: &ShowArgs, out: &mut dyn Write) -> Result<()> {
    let experiment = experiment(&args.name, &args.set)?;
    let text = match &args.run {
        None => experiment.to_toml()?,
        Some(name) => {
            let found = experiment.runs.iter().find(|run| run.name == *name);
            let run = found.ok_or_else(|| {
                let names: Vec<String> =
                    experiment.runs.iter().map(|run| format!("{:?}", run.name)).collect();
                let names = names.join(", ");
                Failure::new(format_args!(
                    "{} has no run {name:?}; it has {names}",
                    experiment.name
                ))
            })?;
            run.to_toml()?
        }
    };
    out.write_all(text.as_bytes())?;
    Ok(())
}
