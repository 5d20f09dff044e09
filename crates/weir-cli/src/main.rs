//! `weir`: the program around the engine.
//!
//! Each command is a module with its options and a `run`; this file parses the command line, runs
//! one of them and turns its result into an exit code. No command keeps state outside its own
//! values; stdout carries results, stderr one sentence when something is wrong, notes where the
//! output is JSON, and progress when it is a terminal.

mod bench;
mod demo;
mod destroy;
mod df;
mod failure;
mod format;
mod inspect;
mod interrupt;
mod lab;
mod options;
mod repair;
mod replay;
mod shell;
mod show;
mod stats;
mod tree;
mod verify;
mod words;

use clap::{Parser, Subcommand};
use failure::{EXIT_CODES, Failure, Result};
use interrupt::Interrupt;
use std::io::Write;
use std::process::ExitCode;

/// An ordered key-value store in a directory or one file: look into one, repair it, measure it
#[derive(Parser, Debug)]
#[command(name = "weir", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Load a store in ./weir-demo, read and write it at once, and show what happened
    #[command(after_help = EXIT_CODES)]
    Demo(demo::DemoArgs),
    /// Type commands at a store, or pipe them in
    #[command(after_help = EXIT_CODES)]
    Shell(shell::ShellArgs),
    /// Apply a CSV file of operations, and check every answer with --verify
    #[command(after_help = EXIT_CODES)]
    Replay(replay::ReplayArgs),
    /// Write a CSV file of operations for `replay`, ranges included
    #[command(after_help = EXIT_CODES)]
    Generate(replay::generate::GenerateArgs),
    /// Show what a store consists of: keyspaces, levels, runs, tables, logs
    #[command(after_help = EXIT_CODES)]
    Inspect(inspect::InspectArgs),
    /// Show the options of a store's keyspaces, or give one other ones
    #[command(after_help = EXIT_CODES)]
    Options(options::OptionsArgs),
    /// Make a file, or a block device, a store without a file system below
    #[command(after_help = EXIT_CODES)]
    Format(format::FormatArgs),
    /// Show how much of a store's space is used, and by what
    #[command(after_help = EXIT_CODES)]
    Df(df::DfArgs),
    /// Read every table of a store, and what is still needed of its log, and name damage
    #[command(after_help = EXIT_CODES)]
    Verify(verify::VerifyArgs),
    /// Make a damaged store openable again, keeping all of it that can be read
    #[command(after_help = EXIT_CODES)]
    Repair(repair::RepairArgs),
    /// Remove a store: its files, or what makes a file or a device one
    #[command(after_help = EXIT_CODES)]
    Destroy(destroy::DestroyArgs),
    /// Run benchmark workloads on this machine
    #[command(after_help = format!("{}\n\n{EXIT_CODES}", bench::WORKLOADS))]
    Bench(bench::BenchArgs),
    /// Run the papers' experiments, plot them and report; needs the program weir-lab
    #[command(disable_help_flag = true)]
    Lab(lab::LabArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = std::io::stdout().lock();
    let result = run(&cli.command, &mut out).and_then(|()| Ok(out.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, message }) => {
            // Results that were printed before the failure come before it on a terminal.
            let flushed = out.flush();
            if !message.is_empty() {
                eprintln!("weir: {message}");
            }
            if code == 0 && flushed.is_err_and(|e| e.kind() != std::io::ErrorKind::BrokenPipe) {
                return ExitCode::from(failure::ERROR);
            }
            ExitCode::from(code)
        }
    }
}

fn run(command: &Command, out: &mut dyn Write) -> Result<()> {
    if let Command::Lab(args) = command {
        // Signals are for the other program.
        return lab::run(args);
    }
    let interrupt = Interrupt::install()?;
    match command {
        Command::Lab(args) => lab::run(args),
        Command::Demo(args) => demo::run(args, &interrupt, out),
        Command::Shell(args) => shell::run(args, &interrupt, out),
        Command::Replay(args) => replay::run(args, &interrupt, out),
        Command::Generate(args) => replay::generate::run(args, out),
        Command::Inspect(args) => inspect::run(args, out),
        Command::Options(args) => options::run(args, out),
        Command::Format(args) => format::run(args, out),
        Command::Df(args) => df::run(args, out),
        Command::Verify(args) => verify::run(args, out),
        Command::Repair(args) => repair::run(args, out),
        Command::Destroy(args) => destroy::run(args, out),
        Command::Bench(args) => bench::run(args, &interrupt, out),
    }
}
