//! `weir-lab cache-race`: records what block caches are asked for, and replays it in several.

use std::io::Write;
use std::path::PathBuf;

use weir_lab::race::{Contender, Course, Lap, mixes, trace};
use weir_lab::suite::{self, RunOptions};

use super::{Failure, Result, experiment, folder, progress, table};

/// Arguments of `weir-lab cache-race`.
#[derive(clap::Args, Debug)]
pub(crate) struct CacheRaceArgs {
    #[command(subcommand)]
    command: RaceCommand,
}

#[derive(clap::Subcommand, Debug)]
enum RaceCommand {
    /// Run experiments; every store leaves a trace of its block cache
    Record(RecordArgs),
    /// Run YCSB's workloads and others; each leaves a trace
    Mixes(MixesArgs),
    /// Replay traces in every cache; print hit ratios and times
    Replay(ReplayArgs),
}

#[derive(clap::Args, Debug)]
struct RecordArgs {
    /// Names of experiments, or TOML files like theirs; crates/weir-lab/src/race/runs.toml is made
    /// for this
    #[arg(required = true)]
    names: Vec<String>,
    /// By how much data, caches, files and durations are divided
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    scale: u32,
    /// End each measured phase after so many seconds of the paper's time
    #[arg(long, value_name = "SECONDS", default_value_t = 6000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    first: u32,
    /// Calls of a trace at most
    #[arg(long, default_value_t = 8_000_000)]
    calls: u64,
    /// Folder for the traces and, in `cache`, for loaded stores
    #[arg(long, default_value = "race")]
    out: PathBuf,
}

#[derive(clap::Args, Debug)]
struct MixesArgs {
    /// Operations of each
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Folder for the traces
    #[arg(long, default_value = "race")]
    out: PathBuf,
}

#[derive(clap::Args, Debug)]
struct ReplayArgs {
    /// Traces
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// Sizes of the caches, over that of the store's
    #[arg(long, value_delimiter = ',', default_values_t = [0.5, 1.0, 2.0])]
    sizes: Vec<f64>,
    /// Replays of each, of which the fastest counts
    #[arg(long, default_value_t = 1)]
    laps: u32,
}

/// Runs the command.
pub(crate) fn run(args: &CacheRaceArgs, out: &mut dyn Write) -> Result<()> {
    match &args.command {
        RaceCommand::Record(args) => record(args, out),
        RaceCommand::Mixes(args) => mixes(args),
        RaceCommand::Replay(args) => replay(args, out),
    }
}

fn record(args: &RecordArgs, out: &mut dyn Write) -> Result<()> {
    let experiments: Vec<_> =
        args.names.iter().map(|name| experiment(name, &[])).collect::<Result<_>>()?;
    folder::prepare(&args.out)?;
    trace::record_into(&args.out, args.calls)?;
    let options = RunOptions {
        scale: args.scale,
        shrink: suite::default_shrink(args.scale),
        first: Some(args.first),
        seed: folder::SEED,
        cache: args.out.join("cache"),
        reuse: false,
        keep_images: true,
        jobs: 1,
    };
    for outcome in progress(|listener| suite::run(&experiments, &options, listener)) {
        writeln!(out, "{}", outcome?.experiment)?;
    }
    Ok(())
}

fn mixes(args: &MixesArgs) -> Result<()> {
    folder::prepare(&args.out)?;
    for mix in mixes::Mix::ALL {
        let name = trace::file_name(&mix.name(), mixes::CACHE_BYTES);
        let observer = trace::observer(&args.out.join(name), u64::MAX)?;
        mixes::run(mix, args.operations, observer)?;
    }
    Ok(())
}

fn replay(args: &ReplayArgs, out: &mut dyn Write) -> Result<()> {
    let mut header = vec!["trace".to_owned(), "cache".to_owned(), "lookups".to_owned()];
    for contender in Contender::ALL {
        header.push(contender.name().to_owned());
        header.push("ns".to_owned());
    }
    let mut rows = Vec::new();
    for path in &args.traces {
        let course = Course::new(&trace::read(path)?);
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let capacity_bytes = trace::capacity_bytes(&name)
            .ok_or_else(|| Failure::new(format_args!("{name}: it does not name its cache")))?;
        for size in &args.sizes {
            let capacity_bytes = (capacity_bytes as f64 * size) as u64;
            let mut row = vec![name.clone(), format!("{} MiB", capacity_bytes >> 20)];
            row.push(course.lookups().to_string());
            for contender in Contender::ALL {
                let laps: Vec<Lap> =
                    (0..args.laps).map(|_| course.lap(contender, capacity_bytes)).collect();
                let ratio = laps.first().map_or(0.0, |lap| lap.hit_ratio);
                let nanos = laps.iter().map(|lap| lap.nanos).fold(f64::INFINITY, f64::min);
                row.push(format!("{ratio:.4}"));
                row.push(format!("{nanos:.0}"));
            }
            rows.push(row);
        }
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    Ok(table(out, &header, &rows)?)
}
