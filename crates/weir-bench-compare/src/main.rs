//! `weir-bench-compare`: the same workloads on Weir and its peers, interleaved in one run.
//!
//! The parent decides what runs when (`plan`), every measurement is made by a child process of its
//! own (`child`), so that memory and device bytes belong to one engine and one workload. `summary`
//! turns samples into medians and ratios, `report` prints them. `full` fills file systems and
//! `synced` times synced inserts on them, in this process. docs/benchmarks.md says what is equal
//! between the engines and what cannot be.

mod args;
mod child;
mod engines;
mod forms;
mod full;
mod machine;
mod parent;
mod plan;
mod plot;
mod report;
mod summary;
mod synced;
mod task;

use std::process::ExitCode;

/// Hidden first argument of a child process; the second is its task.
const CHILD: &str = "__child";

/// First argument of the command that fills file systems.
const FULL: &str = "full";

/// First argument of the command that measures synced inserts on file systems.
const SYNCED: &str = "synced";

/// Exit code of a wrong command line.
const WRONG_COMMAND_LINE: u8 = 2;

fn refuse(message: &str) -> ExitCode {
    eprintln!("weir-bench-compare: {message}");
    ExitCode::from(WRONG_COMMAND_LINE)
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let result = match words.next() {
        Some(word) if word == CHILD => {
            child::run(&words.next().unwrap_or_default()).map_err(|error| error.to_string())
        }
        Some(word) if word == FULL => match full::Args::parse(words) {
            Ok(None) => {
                println!("{}", full::USAGE);
                Ok(())
            }
            Ok(Some(args)) => full::run(&args),
            Err(message) => return refuse(&message),
        },
        Some(word) if word == SYNCED => match synced::Args::parse(words) {
            Ok(None) => {
                println!("{}", synced::USAGE);
                Ok(())
            }
            Ok(Some(args)) => synced::run(&args),
            Err(message) => return refuse(&message),
        },
        first => match args::Args::parse(first.into_iter().chain(words)) {
            Ok(None) => {
                println!("{}", args::USAGE);
                Ok(())
            }
            Ok(Some(args)) => parent::run(&args),
            Err(message) => return refuse(&message),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("weir-bench-compare: {message}");
            ExitCode::FAILURE
        }
    }
}
