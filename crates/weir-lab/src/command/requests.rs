//! `weir-lab requests`: what a store asks of a real block device, on slots and in files.

use std::io::Write;
use std::path::PathBuf;

use weir::CompactionPolicy;
use weir_lab::blocks::latency::{self, Beside};
use weir_lab::blocks::{self, Form, Traced, Work, full};
use weir_lab::result::Result as Outcome;

use super::{Failure, Result, folder, print_numbers, refuse_failures};

/// Arguments of `weir-lab requests`.
#[derive(clap::Args, Debug)]
pub(crate) struct RequestsArgs {
    /// Where stores lie
    #[arg(long, value_delimiter = ',', default_value = "slots,ext4,xfs,btrfs")]
    #[arg(value_parser = forms())]
    forms: Vec<String>,
    /// Values of 1,000 bytes that are loaded in key order, without a log
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..))]
    inserts: u64,
    /// Values of 100 bytes that are inserted, each durable before the next
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    synced: u64,
    /// Measure how long synced inserts take instead, of values of so many bytes
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    latency: Vec<usize>,
    /// What goes on beside synced inserts: nothing; the store flushes and compacts 16 MB/s that
    /// another thread writes; or somebody else on the same disk syncs files of 64 KiB
    #[arg(long, default_value = Beside::Nothing.name(), value_parser = besides())]
    #[arg(requires = "latency")]
    beside: String,
    /// Fill stores of these policies with pairs of 116 bytes instead, until their devices are full
    #[arg(long, value_name = "POLICY", value_delimiter = ',', conflicts_with = "latency")]
    #[arg(value_parser = policies())]
    full: Vec<String>,
    /// With --full, also on slots as large as tables, with each way of cutting these that the
    /// policy has (the odd chunk), and on slots of a quarter, a 16th and a 64th of a table
    #[arg(long, requires = "full")]
    slot_sizes: bool,
    /// MiB of each device with --full
    #[arg(long, value_name = "MIB", default_value_t = DEVICE_BYTES >> 20, requires = "full")]
    #[arg(value_parser = clap::value_parser!(u64).range(64..1 << 20))]
    device_mib: u64,
    /// MiB of the write-ahead log's area on slots with --full; unset: the default, a sixteenth
    #[arg(long, value_name = "MIB", requires = "full")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    log_mib: Option<u64>,
    /// Rounds of latencies, of --synced inserts each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Folder for the results and, meanwhile, for images of 2 GiB
    #[arg(long, default_value = folder::DEFAULT)]
    out: PathBuf,
    /// End with exit code 3 if a number is outside its bounds
    #[arg(long)]
    check: bool,
}

fn forms() -> clap::builder::PossibleValuesParser {
    Form::ALL.map(Form::name).into()
}

fn besides() -> clap::builder::PossibleValuesParser {
    Beside::ALL.map(Beside::name).into()
}

fn policies() -> clap::builder::PossibleValuesParser {
    CompactionPolicy::ALL.map(CompactionPolicy::name).into()
}

const DEVICE_BYTES: u64 = 2 << 30;

/// Runs the command.
pub(crate) fn run(args: &RequestsArgs, out: &mut dyn Write) -> Result<()> {
    folder::prepare(&args.out)?;
    let device_bytes = DEVICE_BYTES;
    if !args.latency.is_empty() {
        return latencies(args, out);
    }
    if !args.full.is_empty() {
        return fill(args, out);
    }
    let load = Work { device_bytes, inserts: args.inserts, value_bytes: 1000, synced: false };
    let inserts = Work { device_bytes, inserts: args.synced, value_bytes: 100, synced: true };
    let loads = trace_all(args, load)?;
    let synced = trace_all(args, inserts)?;
    let mut results: Vec<Outcome> = Vec::new();
    results.extend(loads.iter().map(|traced| blocks::pattern(traced, load)));
    results.push(blocks::shares(&loads, load));
    results.push(blocks::synced(&synced, inserts));
    for result in &results {
        folder::write_result(&args.out, result)?;
    }
    // The patterns' numbers are those of the shares.
    let told = results.get(loads.len()..).unwrap_or_default();
    print_numbers(out, told)?;
    if args.check { refuse_failures(&results) } else { Ok(()) }
}

/// Fig. 13.
fn latencies(args: &RequestsArgs, out: &mut dyn Write) -> Result<()> {
    let beside = Beside::ALL.into_iter().find(|beside| beside.name() == args.beside);
    let plan = latency::Plan {
        forms: wanted(args).collect(),
        sizes: args.latency.clone(),
        inserts: usize::try_from(args.synced).unwrap_or(usize::MAX),
        rounds: args.rounds as usize,
        device_bytes: DEVICE_BYTES,
        beside: beside.unwrap_or_default(),
    };
    let measured = latency::measure(&plan, &args.out).map_err(Failure::new)?;
    tell(args, latency::outcome(&measured, &plan), out)
}

/// Fig. 18.
fn fill(args: &RequestsArgs, out: &mut dyn Write) -> Result<()> {
    let wanted_too = |policy: &CompactionPolicy| args.full.iter().any(|f| f == policy.name());
    let plan = full::Plan {
        forms: wanted(args).collect(),
        by_slots: args.slot_sizes,
        policies: CompactionPolicy::ALL.into_iter().filter(wanted_too).collect(),
        value_bytes: 100,
        device_bytes: args.device_mib << 20,
        log_bytes: args.log_mib.map(|mib| mib << 20),
    };
    // It takes long, and what is known is known.
    let mut told = |taken: &full::Taken| {
        let full::Taken { place, policy, pairs, seconds, .. } = taken;
        let line = writeln!(out, "{policy} on {}: {pairs} pairs, {seconds:.0} s", place.name());
        line.and_then(|()| out.flush()).map_err(|error| error.to_string())
    };
    let taken = full::fill(&plan, &args.out, &mut told).map_err(Failure::new)?;
    tell(args, full::outcome(&taken, &plan), out)
}

fn tell(args: &RequestsArgs, result: Outcome, out: &mut dyn Write) -> Result<()> {
    folder::write_result(&args.out, &result)?;
    let results = [result];
    print_numbers(out, &results)?;
    if args.check { refuse_failures(&results) } else { Ok(()) }
}

fn wanted(args: &RequestsArgs) -> impl Iterator<Item = Form> {
    Form::ALL.into_iter().filter(|form| args.forms.iter().any(|f| f == form.name()))
}

fn trace_all(args: &RequestsArgs, work: Work) -> Result<Vec<Traced>> {
    let traced = wanted(args).map(|form| {
        let name = form.name();
        blocks::trace(form, work, &args.out)
            .map_err(|error| Failure::new(format_args!("requests on {name}: {error}")))
    });
    traced.collect()
}
