//! `weir-lab`: runs the papers' experiments and shows what came out. `weir lab` calls it.
//!
//! A program of its own because it needs the engine's feature `sim`, which must not get into the
//! default build of `weir`: there every lock, wait and look at the clock would first ask whether
//! it is simulated.
//!
//! stdout carries results, stderr one sentence when something is wrong, and progress when it is a
//! terminal.

mod command;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use command::{EXIT_CODES, Failure, Result};

/// The papers' experiments on Weir: simulated disks, virtual time, one seed
#[derive(Parser, Debug)]
#[command(name = "weir-lab", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Name every experiment, with its paper and figure
    List,
    /// Print an experiment as one TOML file, what it shares with others included
    #[command(after_help = EXIT_CODES)]
    Show(command::show::ShowArgs),
    /// Run experiments; write a JSON, an SVG and a PNG file for each
    #[command(after_help = EXIT_CODES)]
    Run(command::run::RunArgs),
    /// Make one HTML page of the results in a folder
    #[command(after_help = EXIT_CODES)]
    Report(command::report::ReportArgs),
    /// Print every number of the results in a folder, its seeds beside one another
    #[command(after_help = EXIT_CODES)]
    Table(command::table::TableArgs),
    /// Check the results in a folder against their bounds
    #[command(after_help = EXIT_CODES)]
    Check(command::check::CheckArgs),
    /// Put errors into experiments and see whether their numbers notice
    #[command(after_help = EXIT_CODES)]
    Errors(command::errors::ErrorsArgs),
    /// Measure what each policy writes, reads and stores, beside the formulas
    #[command(after_help = EXIT_CODES)]
    Amplification(command::amplification::AmplificationArgs),
    /// Measure the simulated disks, beside what their sources say
    #[command(after_help = EXIT_CODES)]
    Disk(command::disk::DiskArgs),
    /// Trace what a store asks of a real block device, on slots and in files; needs root
    #[command(after_help = EXIT_CODES)]
    Requests(command::requests::RequestsArgs),
    /// Record what block caches are asked for, and race caches on it
    #[command(after_help = EXIT_CODES)]
    CacheRace(command::cache_race::CacheRaceArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = std::io::stdout().lock();
    match run(&cli.command, &mut out).and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            // Results that were printed before the failure come before it on a terminal.
            let _flushed = out.flush();
            if !message.is_empty() {
                eprintln!("weir-lab: {message}");
            }
            ExitCode::from(code)
        }
    }
}

fn run(command: &Command, out: &mut dyn Write) -> Result<()> {
    match command {
        Command::List => command::list::run(out),
        Command::Show(args) => command::show::run(args, out),
        Command::Run(args) => command::run::run(args, out),
        Command::Report(args) => command::report::run(args, out),
        Command::Table(args) => command::table::run(args, out),
        Command::Check(args) => command::check::run(args, out),
        Command::Errors(args) => command::errors::run(args, out),
        Command::Amplification(args) => command::amplification::run(args, out),
        Command::Disk(args) => command::disk::run(args, out),
        Command::Requests(args) => command::requests::run(args, out),
        Command::CacheRace(args) => command::cache_race::run(args, out),
    }
}
