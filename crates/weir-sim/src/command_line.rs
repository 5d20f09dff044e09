//! The command line of `weir-sim`: one structure of options for each campaign.
//!
//! A wrong one ends with exit code 2, before anything runs. Numbers may be written with
//! underscores, as in `1_000_000`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, value_parser};
use weir::CompactionPolicy;

/// Weir simulated from a seed, compared with an oracle
#[derive(Parser, Clone, Debug)]
#[command(name = "weir-sim", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Simulations at once
    #[arg(long, global = true, value_name = "N", default_value = "2", value_parser = count)]
    pub(crate) jobs: u64,
    /// Stores are in one file, in slots, instead of in a directory
    #[arg(long, global = true)]
    pub(crate) slots: bool,
    /// Devices of `m`, `determinism` and `replay` have so many MiB, 24 and more, and get full
    #[arg(long, global = true, value_name = "MIB",
        value_parser = value_parser!(u64).range(24..4096))]
    pub(crate) device_mib: Option<u64>,
}

const EXIT_CODES: &str = "Exit codes:
  0  nothing was found
  1  a violation, or an error; the last line says which
  2  the command line was wrong";

#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Command {
    /// Random operations over every kind and option
    M(MetamorphicArgs),
    /// Power lost at every device call; each image is also opened read-only and repaired
    C(CrashArgs),
    /// Every device call fails, once and for ever
    E(ErrorsArgs),
    /// Every bit inverted; sectors, files, names damaged; some of it repaired, too
    B(DamageArgs),
    /// M and C for every policy and division of filter bits, and reopenings that change the policy
    Policies(PoliciesArgs),
    /// A growing tree of gear: full rounds, byte for byte
    Rounds(RoundsArgs),
    /// The same seed twice
    Determinism(DeterminismArgs),
    /// Real kill -9 of a writing process
    Kill(KillArgs),
    /// What `kill` starts
    #[command(hide = true)]
    KillChild(KillChildArgs),
    /// Power cuts through the real block layer: a FUSE disk below a loop device; needs root
    Powercut(PowercutArgs),
    /// Real threads, smallest memtables
    Soak(SoakArgs),
    /// Historical bugs put back: what catches them
    Museum(MuseumArgs),
    /// Write the stores that must open for ever, if missing
    Fixtures(FixturesArgs),
    /// A failure that `m` has printed
    Replay(ReplayArgs),
    /// The short forms of all, as in CI: about four minutes on two cores
    Short(ShortArgs),
}

fn forms() -> clap::builder::PossibleValuesParser {
    weir_sim::powercut::Form::ALL.map(|form| form.name).into()
}

/// A number, in digits that underscores may divide.
fn number(word: &str) -> Result<u64, String> {
    word.replace('_', "").parse().map_err(|_| "not a number".to_owned())
}

/// A number that is not zero.
fn count(word: &str) -> Result<u64, String> {
    number(word).and_then(|n| if n > 0 { Ok(n) } else { Err("must be at least 1".to_owned()) })
}

/// Where chance comes from.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Seed {
    /// Decides everything
    #[arg(long, default_value = "1", value_parser = number)]
    pub(crate) seed: u64,
}

/// What a campaign does with a failure that it cuts down.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reduction {
    /// Writes failures to files in DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) failures: Option<PathBuf>,
    /// Attempts to cut a failure down
    #[arg(long, value_name = "N", default_value = "1500", value_parser = number)]
    pub(crate) tries: u64,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct MetamorphicArgs {
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Operations in all
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = count)]
    pub(crate) ops: u64,
    #[command(flatten)]
    pub(crate) reduction: Reduction,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CrashArgs {
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Images to look at, at least
    #[arg(long, value_name = "N", default_value = "100000", value_parser = count)]
    pub(crate) images: u64,
    /// Steps of a recorded run
    #[arg(long, value_name = "N", default_value = "100", value_parser = count)]
    pub(crate) steps: u64,
    /// One image in N loses power again at every change of its recovery
    #[arg(long, value_name = "N", default_value = "100", value_parser = count)]
    pub(crate) deep_every: u64,
    /// One image in N is repaired, too
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    pub(crate) repair_every: u64,
    /// One device call in N loses power
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    pub(crate) stride: u64,
    /// Begins at the run's N-th device call
    #[arg(long, value_name = "N", default_value = "0", value_parser = number)]
    pub(crate) from: u64,
    /// Says how far it is
    #[arg(long)]
    pub(crate) progress: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ErrorsArgs {
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Only the first N calls of each site fail
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) calls_max: Option<u64>,
    /// Only scenarios whose name contains this
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DamageArgs {
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Inverts N bits instead of all
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) sample: Option<u64>,
    /// Inverts bits only
    #[arg(long)]
    pub(crate) no_blocks: bool,
    /// One inverted bit in N is repaired, too
    #[arg(long, value_name = "N", default_value = "200", value_parser = count)]
    pub(crate) repair_every: u64,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PoliciesArgs {
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Operations of M for each policy and division
    #[arg(long, value_name = "N", default_value = "100000", value_parser = count)]
    pub(crate) ops: u64,
    /// Images of C for each policy and division
    #[arg(long, value_name = "N", default_value = "5000", value_parser = number)]
    pub(crate) images: u64,
    /// Reopenings with another policy
    #[arg(long, value_name = "N", default_value = "1000", value_parser = number)]
    pub(crate) switches: u64,
    /// Steps of a recorded run
    #[arg(long, value_name = "N", default_value = "100", value_parser = count)]
    pub(crate) steps: u64,
    /// One device call in N loses power
    #[arg(long, value_name = "N", default_value = "11", value_parser = count)]
    pub(crate) stride: u64,
    /// One image in N loses power again at every change of its recovery
    #[arg(long, value_name = "N", default_value = "400", value_parser = count)]
    pub(crate) deep_every: u64,
    /// One image in N is repaired, too
    #[arg(long, value_name = "N", default_value = "4", value_parser = count)]
    pub(crate) repair_every: u64,
    /// Only this policy
    #[arg(long, value_name = "NAME", value_parser = policy)]
    pub(crate) policy: Option<CompactionPolicy>,
    #[command(flatten)]
    pub(crate) reduction: Reduction,
}

fn policy(word: &str) -> Result<CompactionPolicy, String> {
    word.parse().map_err(|error| format!("{error}"))
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RoundsArgs {
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Operations
    #[arg(long, value_name = "N", default_value = "20000", value_parser = count)]
    pub(crate) ops: u64,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DeterminismArgs {
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Episodes, each run twice
    #[arg(long, value_name = "N", default_value = "200", value_parser = count)]
    pub(crate) episodes: u64,
}

/// Where a campaign makes a directory of its own.
#[derive(Args, Clone, Debug)]
pub(crate) struct Place {
    /// Makes its directory in DIR instead of the system's for temporary files
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct KillArgs {
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Lives of the process
    #[arg(long, value_name = "N", default_value = "300", value_parser = count)]
    pub(crate) kills: u64,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PowercutArgs {
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Where the store lies: on slots, or in files on a file system
    #[arg(long, default_value = "slots", value_parser = forms())]
    pub(crate) form: String,
    /// Images of each history
    #[arg(long, value_name = "N", default_value = "200", value_parser = count)]
    pub(crate) images: u64,
    /// Histories, each of a new store
    #[arg(long, value_name = "N", default_value = "10", value_parser = count)]
    pub(crate) histories: u64,
    /// Commits of a history
    #[arg(long, value_name = "N", default_value = "3000", value_parser = count)]
    pub(crate) commits: u64,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct KillChildArgs {
    pub(crate) dir: PathBuf,
    pub(crate) seed: u64,
    /// The first commit number of each writer
    pub(crate) next: Vec<u64>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct SoakArgs {
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Keys to write
    #[arg(long, value_name = "N", default_value = "250000", value_parser = count)]
    pub(crate) keys: u64,
    /// Threads that write
    #[arg(long, value_name = "N", default_value = "4", value_parser = count)]
    pub(crate) writers: u64,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct MuseumArgs {
    /// Only patches whose name contains this
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// Seconds that one bug may take
    #[arg(long, value_name = "N", default_value = "300", value_parser = count)]
    pub(crate) seconds: u64,
    /// The root of the repository
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,
    /// Where the copy of the tree goes, instead of the system's directory for temporary files
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// Runs nothing: each patch applies, compiles, and names campaigns that there are
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct FixturesArgs {
    /// Where they go
    #[arg(long)]
    pub(crate) dir: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayArgs {
    /// The file that `m` has written. Without --slots and --device-mib stores are where it says
    pub(crate) file: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ShortArgs {
    #[command(flatten)]
    pub(crate) seed: Seed,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Why `words` are no command of this program, if they are none.
///
/// # Errors
/// What the program would say of them.
pub(crate) fn check(words: &str) -> Result<(), String> {
    let all = std::iter::once("weir-sim").chain(words.split_whitespace());
    CommandLine::try_parse_from(all).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn wrong_lines_are_told() {
        for right in ["m --ops 1_000", "c --images 5 --jobs 1", "museum --check", "short"] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for wrong in ["", "x", "m --ops", "m --ops many", "m --images 5", "c --stride 0", "replay"]
        {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    /// The short forms are made of words, which this file alone can read.
    #[test]
    fn the_short_forms_are_commands() {
        for words in crate::SHORT {
            assert_eq!(check(words), Ok(()), "{words}");
        }
    }
}
