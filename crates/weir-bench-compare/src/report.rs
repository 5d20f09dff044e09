//! The results as tables for people and as one JSON file for programs.

use crate::args::Args;
use crate::engines::{OWN, versions};
use crate::machine;
use crate::summary::{Cell, Sample, Spread, acknowledged, drained};
use crate::task::{Answer, Row, Sizes};
use serde::Serialize;
use std::fmt::Write as _;
use weir_bench::Window;

/// The JSON file.
#[derive(Serialize)]
struct Document<'a> {
    machine: String,
    command: String,
    versions: Vec<(&'static str, String)>,
    sizes: &'a Sizes,
    ratios: Vec<Ratio>,
    samples: &'a [Sample],
}

/// Weir over a peer, or over the best of them, in operations per second.
#[derive(Serialize)]
struct Ratio {
    row: Row,
    workload: String,
    peer: String,
    acknowledged: Option<Spread>,
    drained: Option<Spread>,
}

const BEST: &str = "best";

/// Writes everything measured so far to the file that `args` name, if they name one.
pub fn write_json(args: &Args, samples: &[Sample]) -> Result<(), String> {
    let Some(path) = &args.json else { return Ok(()) };
    let document = Document {
        machine: machine::describe(),
        command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        versions: versions(),
        sizes: &args.sizes,
        ratios: ratios(args, samples),
        samples,
    };
    let text = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
    #[expect(clippy::disallowed_methods, reason = "a report is no store")]
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn ratios(args: &Args, samples: &[Sample]) -> Vec<Ratio> {
    let peers = peers(args);
    let mut ratios = Vec::new();
    for &row in &args.rows {
        for workload in &args.workloads {
            let cell = Cell::of(samples, row, workload.name());
            let mut add = |peer: &str, acknowledged, drained| {
                let workload = workload.name().to_owned();
                ratios.push(Ratio { row, workload, peer: peer.to_owned(), acknowledged, drained });
            };
            for peer in &peers {
                add(peer, cell.ratio(peer, acknowledged), cell.ratio(peer, drained));
            }
            let best = cell.ratio_to_best(&peers, acknowledged);
            add(BEST, best, cell.ratio_to_best(&peers, drained));
        }
    }
    ratios
}

fn peers(args: &Args) -> Vec<&str> {
    args.engines.iter().map(String::as_str).filter(|name| *name != OWN).collect()
}

/// All tables as Markdown.
pub fn tables(args: &Args, samples: &[Sample]) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = write_tables(&mut text, args, samples);
    text
}

fn write_tables(out: &mut String, args: &Args, samples: &[Sample]) -> std::fmt::Result {
    let s = &args.sizes;
    writeln!(out, "\nMachine: {}.", machine::describe())?;
    let versions: Vec<String> = versions().iter().map(|(n, v)| format!("{n} {v}")).collect();
    writeln!(out, "Engines: {}.", versions.join(", "))?;
    writeln!(
        out,
        "{} keys of {} + {} bytes, {} client threads, {} rounds, seed {}.",
        s.num, s.key_bytes, s.value_bytes, s.threads, args.rounds, s.seed
    )?;
    for &row in &args.rows {
        for workload in &args.workloads {
            write_cell(out, args, &Cell::of(samples, row, workload.name()))?;
        }
        write_ratios(out, args, samples, row)?;
    }
    Ok(())
}

/// One workload: a line per engine. The median of all rounds, throughput with its range.
fn write_cell(out: &mut String, args: &Args, cell: &Cell<'_>) -> std::fmt::Result {
    writeln!(out, "\n### {} settings, {}\n", cell.row, cell.workload)?;
    writeln!(
        out,
        "| engine | ops/s | min..max | drained ops/s | p99 us | p99.9 us | \
         device B / user B | device read MiB | peak anon MiB | cgroup MiB | files MiB |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for engine in &args.engines {
        let Some(rate) = cell.spread(engine, acknowledged) else {
            writeln!(out, "| {engine} | failed | | | | | | | | | |")?;
            continue;
        };
        let median = |metric: fn(&Answer) -> Option<f64>| cell.spread(engine, metric);
        writeln!(
            out,
            "| {engine} | {:.0} | {:.0}..{:.0} | {} | {} | {} | {} | {} | {} | {} | {} |",
            rate.median,
            rate.min,
            rate.max,
            number(median(drained), 0),
            latencies(cell, engine, |latency| latency.p99_us),
            latencies(cell, engine, |latency| latency.p999_us),
            number(median(|a| a.measurement.process_write_ratio), 2),
            number(median(|a| mib(a.device_read_bytes)), 0),
            number(median(|a| mib(a.peak_anonymous_bytes)), 0),
            number(mib(cell.cgroup_peak(engine)).and_then(|mib| Spread::of([mib])), 0),
            number(median(|a| mib(Some(a.measurement.directory_bytes))), 0),
        )?;
    }
    write_windows(out, args, cell)
}

/// What the seconds of a workload say, if they were kept.
fn write_windows(out: &mut String, args: &Args, cell: &Cell<'_>) -> std::fmt::Result {
    let kept = |engine: &str| cell.answers(engine).any(|(_, a)| !a.measurement.windows.is_empty());
    if !args.engines.iter().any(|engine| kept(engine)) {
        return Ok(());
    }
    writeln!(
        out,
        "\n| engine | hit ratio | of the least {LOWEST_SECONDS} s | \
         least {LOWEST_SECONDS} s over mean | \
         its worst round | worst second's p99 us | p99.9 us | read requests/s | read MiB/s |"
    )?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for engine in args.engines.iter().filter(|engine| kept(engine)) {
        let spread = |metric: fn(&Answer) -> Option<f64>| cell.spread(engine, metric);
        let least = spread(least_over_mean);
        writeln!(
            out,
            "| {engine} | {} | {} | {} | {} | {} | {} | {} | {} |",
            number(spread(|a| a.measurement.hit_ratio), 3),
            number(spread(least_hit_ratio), 3),
            number(least, 2),
            number(least.and_then(|least| Spread::of([least.min])), 2),
            number(spread(|a| worst(a, |window| window.p99_us)), 0),
            number(spread(|a| worst(a, |window| window.p999_us)), 0),
            number(spread(|a| Some(a.device_reads? as f64 / seconds(a))), 0),
            number(spread(|a| Some(mib(a.device_read_bytes)? / seconds(a))), 1),
        )?;
    }
    Ok(())
}

/// The seconds in which the child's requests were counted.
fn seconds(answer: &Answer) -> f64 {
    answer.measurement.warm_seconds + answer.measurement.seconds
}

/// Seconds over which a low is a low.
const LOWEST_SECONDS: usize = 10;

/// The reads of the least [`LOWEST_SECONDS`] in a row over the mean.
fn least_over_mean(answer: &Answer) -> Option<f64> {
    let windows = &answer.measurement.windows;
    let mean = windows.iter().map(|w| w.reads).sum::<u64>() as f64 / windows.len() as f64;
    let least =
        windows.windows(LOWEST_SECONDS).map(|w| w.iter().map(|w| w.reads).sum::<u64>()).min();
    Some(least? as f64 / LOWEST_SECONDS as f64 / mean)
}

/// The least mean hit ratio of [`LOWEST_SECONDS`] in a row.
fn least_hit_ratio(answer: &Answer) -> Option<f64> {
    let windows = &answer.measurement.windows;
    let ratios: Vec<f64> = windows.iter().filter_map(|window| window.hit_ratio).collect();
    let means = ratios.windows(LOWEST_SECONDS).map(|w| w.iter().sum::<f64>() / w.len() as f64);
    means.min_by(f64::total_cmp)
}

/// The largest of the seconds' numbers.
fn worst(answer: &Answer, number: fn(&Window) -> f64) -> Option<f64> {
    answer.measurement.windows.iter().map(number).max_by(f64::total_cmp)
}

fn mib(bytes: Option<u64>) -> Option<f64> {
    Some(bytes? as f64 / f64::from(1 << 20))
}

/// A median with `digits` decimals, or a dash.
fn number(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.median))
}

/// The median of a percentile, for each kind of operation that the workload has.
fn latencies(
    cell: &Cell<'_>,
    engine: &str,
    percentile: impl Fn(&weir_bench::Latency) -> f64,
) -> String {
    let mut parts = Vec::new();
    for kind in ["read", "scan", "write", "background_write"] {
        let median =
            cell.spread(engine, |answer| answer.measurement.latency.get(kind).map(&percentile));
        if let Some(median) = median {
            let name = kind.split('_').next().unwrap_or(kind);
            parts.push(format!("{name} {:.1}", median.median));
        }
    }
    parts.join(", ")
}

/// The table that decides: Weir over each peer and over the best, median and worst round.
fn write_ratios(out: &mut String, args: &Args, samples: &[Sample], row: Row) -> std::fmt::Result {
    let peers = peers(args);
    if peers.is_empty() || !args.engines.iter().any(|engine| engine == OWN) {
        return Ok(());
    }
    writeln!(out, "\n### {row} settings: Weir over its peers\n")?;
    writeln!(out, "Operations per second, median of the rounds' ratios (worst round).\n")?;
    let names: Vec<String> = peers.iter().map(|p| format!("{p} | {p}, drained")).collect();
    writeln!(out, "| workload | {} | best | best, drained |", names.join(" | "))?;
    writeln!(out, "|---|{}--:|--:|", "--:|--:|".repeat(peers.len()))?;
    let ratios = ratios(args, samples);
    for workload in &args.workloads {
        let of_workload = ratios.iter().filter(|r| r.row == row && r.workload == workload.name());
        let cells: Vec<String> = of_workload
            .flat_map(|ratio| [ratio.acknowledged, ratio.drained])
            .map(|spread| match spread {
                Some(spread) => format!("{:.2} ({:.2})", spread.median, spread.min),
                None => "-".to_owned(),
            })
            .collect();
        writeln!(out, "| {workload} | {} |", cells.join(" | "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::sample;

    /// Goal: a table has a line per engine, shows a failure as one, and ends in ratios.
    #[test]
    fn tables_show_failures_and_ratios() {
        let words = ["--engines", "weir,leveldb", "--workloads", "readrandom", "--rows", "equal"];
        let args = Args::parse(words.into_iter().map(str::to_owned));
        let args = args.expect("the words are valid").expect("no help was asked for");
        let ok = [sample("weir", 0, 300.0), sample("leveldb", 0, 200.0)];
        let text = tables(&args, &ok);
        assert!(text.contains("| weir | 300 | 300..300 | 300 |"), "{text}");
        assert!(text.contains("| readrandom | 1.50 (1.50) | 1.50 (1.50) |"), "{text}");
        let failed = Sample { answer: None, ..sample("leveldb", 0, 0.0) };
        let text = tables(&args, &[sample("weir", 0, 300.0), failed]);
        assert!(text.contains("| leveldb | failed |"), "{text}");
        assert!(text.contains("| readrandom | - | - | - | - |"), "{text}");
    }
}
