//! `weir bench`: benchmark workloads on this machine.

use crate::failure::{Failure, Result, os_advice, parse};
use crate::interrupt::Interrupt;
use crate::show::{Bytes, Count, Micros, parse_size, progress_style, table};
use crate::tree::{TreeArgs, flag, say, say_set};
use clap::Args;
use indicatif::ProgressBar;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use weir::{Durability, Options};
use weir_bench::{
    Config, EngineError, KeyFormat, Latency, Measurement, Phase, Progress, Session, Settings,
    WeirKind, Workload,
};

/// What `weir bench --help` says of the workloads.
pub(crate) const WORKLOADS: &str = "Workloads:
  fillseq fillrandom      every key once, into an empty store
  fillsync                random keys, each durable before the next; a hundredth of --num
  overwrite               random keys of a loaded store
  readrandom readmissing  random keys that exist; that do not
  readhot readseq         random keys out of 1 %; one scan over everything
  seekrandom              scans of --scan entries from random positions
  readwhilewriting        random reads while one more thread writes
  rangehot                98 % of the reads in 15 % of the keys, while one more thread writes
  scanhot                 scans in 1 % of the keys, while one more thread writes
  ycsb-a .. ycsb-f        YCSB's core workloads, scrambled Zipfian
  queue                   the first entries scanned and deleted, as many put behind the last
  window                  an entry put behind the last, the oldest deleted, the newest scanned;
                          after both keys are missing, and what comes next loads again
  all                     all of these

They run in the order given, on one store. The fills start from an empty store; the others load it
first if none of them did, outside the measurement.";

/// Options of `weir bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What to run, in this order
    #[arg(required = true, value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Keys in the loaded store (k, m, g: times 1,024 each, as of sizes)
    #[arg(long, default_value_t = 1_000_000, value_parser = parse_count)]
    num: u64,
    /// Operations of each workload that does not load (k, m, g). Default: as many as --seconds
    /// have, or else as many as --num
    #[arg(long, value_parser = parse_count)]
    reads: Option<u64>,
    /// Run each workload that does not load for so many seconds; with --reads: until these are
    /// done, but no longer than that
    #[arg(long)]
    seconds: Option<f64>,
    /// Run each workload that does not load for so many seconds before it is measured
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    warm_seconds: f64,
    /// Writes per second beside the readers of readwhilewriting and rangehot; 0: unlimited
    #[arg(long, default_value_t = 0)]
    write_rate: u64,
    /// Bytes of a value (k, m)
    #[arg(long, default_value = "100", value_parser = parse_size)]
    value_size: u64,
    /// Bytes of a key
    #[arg(long, default_value_t = 16)]
    key_size: usize,
    /// Keys as 8 bytes big-endian (binary) or digits (decimal)
    #[arg(long, default_value = "binary", value_name = "FORMAT")]
    keys: KeyFormat,
    /// Client threads
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Entries of one write in fillseq, fillrandom and overwrite
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Entries that each scan of seekrandom reads
    #[arg(long, default_value_t = 10)]
    scan: u64,
    /// Size of a compressed value over its own size, 0 to 1
    #[arg(long, default_value_t = 0.5)]
    compressibility: f64,
    /// Bytes of the block cache (k, m, g)
    #[arg(long, default_value = "256m", value_parser = parse_size)]
    cache: u64,
    /// Bytes of the write buffer (k, m, g). Default: 64m, or what a store that is used again has
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    write_buffer: Option<u64>,
    /// Bits per key of the Bloom filters. Default: 10, or what a store that is used again has
    #[arg(long, value_name = "BITS")]
    bloom_bits: Option<u32>,
    #[command(flatten)]
    tree: TreeArgs,
    /// Full write buffers that may wait for their flush. Default: 1, or what a store that is used
    /// again has
    #[arg(long, value_name = "BUFFERS")]
    immutables: Option<usize>,
    /// What a write must survive before the next: none (it is in memory only), deferred (the last
    /// 100 ms are lost with a killed process), buffered (a killed process) or sync (a power cut)
    #[arg(long, value_name = "NAME", default_value = "buffered")]
    #[arg(value_parser = parse::<Durability>)]
    durability: Durability,
    /// Threads for flushes and compactions
    #[arg(long, default_value_t = 2)]
    background_threads: usize,
    /// Leave the store's own settings at their defaults
    #[arg(long, conflicts_with_all = [
        "cache", "write_buffer", "bloom_bits", "background_threads", "compaction", "level_ratio",
        "base_level_bytes", "expected_bytes", "l0_trigger", "runs_per_level", "filters", "warm_up",
        "compaction_buffer", "trim_threshold", "trim_interval", "sentinels", "theta", "cost_model",
        "buckets", "heat_window", "hot_ranges", "sentinel_bytes", "idle_compaction",
        "table_bytes", "write_buffer_entries", "odd_chunk",
        "immutables",
    ])]
    defaults: bool,
    /// Directory of the store, kept; must be missing or empty unless --reuse is given. Default: a
    /// temporary one in the current directory, removed
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Use the store in --dir, if there is one, as one that an earlier run with the same --num
    /// loaded; fills remove it. It keeps the options that it has, but for those given here, which
    /// are set in it. Stores that no benchmark made are refused
    #[arg(long, requires = "dir")]
    reuse: bool,
    /// The store is in one file of so many bytes, which is formatted, instead of in a directory
    #[arg(long, value_name = "BYTES", value_parser = parse_size, conflicts_with = "dir")]
    slots: Option<u64>,
    /// Fixes keys, values and the order of operations
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Print a JSON array of results instead of a table; notes go to stderr
    #[arg(long)]
    json: bool,
}

/// A number of things, written as sizes are.
fn parse_count(text: &str) -> std::result::Result<u64, String> {
    parse_size(text).map_err(|_| {
        format!("{text:?} is no number; write digits, or a number with k, m or g: 64m")
    })
}

/// No formatting takes less.
const SLOTS_BYTES_MIN: u64 = 8 << 20;

/// Runs `weir bench`.
pub(crate) fn run(args: &BenchArgs, interrupt: &Interrupt, out: &mut dyn Write) -> Result<()> {
    let workloads = workloads(&args.workloads)?;
    let config = config(args)?;
    if let Some(bytes) = args.slots.filter(|&bytes| bytes < SLOTS_BYTES_MIN) {
        return Err(Failure::usage(format_args!(
            "--slots: {bytes} bytes are too few for a store; it needs 8m at least"
        )));
    }
    // A store that is used again may have any policy.
    let new = new_options();
    let fitting = if args.reuse { new.compaction(args.tree.fitting_policy()) } else { new };
    let (settings, kind) = with_options(args, &fitting)?;
    kind.validate(&settings).map_err(|e| Failure::options(&e))?;
    let temporary;
    let mut loaded = false;
    let mut base = None;
    let dir = match &args.dir {
        Some(dir) => {
            let there = stored(dir, args.reuse)?;
            loaded = there.is_some();
            // What begins with a fill begins with a new store.
            let used = !workloads.first().is_some_and(|workload| workload.starts_empty());
            base = there.filter(|_| used && !args.defaults);
            dir.clone()
        }
        None => {
            temporary =
                tempfile::Builder::new().prefix("weir-bench-").tempdir_in(".").map_err(|e| {
                    Failure::new(format_args!("cannot make a directory here ({e}); use --dir"))
                })?;
            temporary.path().join("store")
        }
    };
    let (settings, kind) = with_options(args, &base.clone().unwrap_or_else(new_options))?;
    kind.validate(&settings).map_err(|e| Failure::options(&e))?;
    if base.is_some_and(|stored| kind.tree != stored) {
        say_set(&given(args), args.json, out)?;
    }
    let mut session = Session::new(&kind, &dir, settings, config, loaded)?;
    let mut results = Vec::new();
    let progress = Progress::default();
    for workload in workloads {
        let result = watched(&progress, workload, interrupt, || session.run(workload, &progress))?;
        if progress.stopped() {
            break;
        }
        if !args.json && results.is_empty() {
            writeln!(out, "{}", header(&result))?;
        }
        results.push(result);
    }
    session.close()?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &results)?;
        writeln!(out)?;
    } else if !results.is_empty() {
        print_results(&results, out)?;
        print_requests(&results, out)?;
        print_of_reads(&results, out)?;
    }
    for result in results.iter().filter(|result| missed(result)) {
        say(&missing(result), args.json, out)?;
    }
    if progress.stopped() { Err(Interrupt::failure()) } else { Ok(()) }
}

fn workloads(names: &[String]) -> Result<Vec<Workload>> {
    let unknown = |e: EngineError| Failure::usage(format_args!("{e}, or all"));
    let mut workloads = Vec::new();
    for name in names {
        if name == "all" {
            workloads.extend(Workload::ALL);
        } else {
            workloads.push(name.parse().map_err(unknown)?);
        }
    }
    Ok(workloads)
}

/// The options of the store in `dir` if there is one, which then is a benchmark's and may be used:
/// a benchmark removes stores, and must not remove another one.
fn stored(dir: &Path, reuse: bool) -> Result<Option<Options>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "whether a list is empty does not depend on order"
    )]
    let empty = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(Failure::new(format_args!(
                "{} is a file or a device, and --dir names a directory; `--slots BYTES`, without \
                 --dir, measures a store in a file that it makes",
                dir.display()
            )));
        }
        Ok(mut list) => list.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => {
            return Err(Failure::new(format_args!(
                "cannot list {}: {error}{}",
                dir.display(),
                os_advice(&error)
            )));
        }
    };
    if empty {
        return Ok(None);
    }
    let shown = dir.display();
    if !reuse {
        return Err(Failure::new(format_args!(
            "{shown} is not empty; name a new directory, or say --reuse if a benchmark made it"
        )));
    }
    match WeirKind::made(dir) {
        Ok(Some(options)) => Ok(Some(options)),
        Ok(None) => Err(Failure::new(format_args!(
            "{shown} holds a store that `weir bench` did not make; name another directory \
             with --dir"
        ))),
        Err(error) => {
            let Failure { code, message } = Failure::engine(&error);
            let message =
                format!("nobody can say whether `weir bench` made what is in {shown}: {message}");
            Err(Failure { code, message })
        }
    }
}

/// Options of a store that a benchmark makes, but for what the command line says.
fn new_options() -> Options {
    let Settings { write_buffer_bytes, block_bytes, bloom_bits, .. } = Settings::default();
    let bloom_bits = vec![bloom_bits as f32];
    Options::default()
        .write_buffer_bytes(write_buffer_bytes)
        .block_bytes(block_bytes)
        .bloom_bits(bloom_bits)
        .immutables_max(1)
}

/// What to measure with: options `base`, but for what the command line says.
///
/// # Errors
/// An option that the policy does not have.
fn with_options(args: &BenchArgs, base: &Options) -> Result<(Settings, WeirKind)> {
    let mut tree = base.clone();
    if let Some(bytes) = args.write_buffer {
        tree.write_buffer_bytes = bytes;
    }
    if let Some(bits) = args.bloom_bits {
        tree.bloom_bits = vec![bits as f32];
    }
    if let Some(buffers) = args.immutables {
        tree.immutables_max = buffers;
    }
    args.tree.apply(&mut tree)?;
    let settings = Settings {
        engine_defaults: args.defaults,
        write_buffer_bytes: tree.write_buffer_bytes,
        cache_bytes: args.cache,
        block_bytes: tree.block_bytes,
        bloom_bits: tree.bloom_bits_at(0) as u32,
        background_threads: args.background_threads,
        ..Settings::default()
    };
    let immutables_max = Some(tree.immutables_max);
    let (durability, slots) = (args.durability, args.slots);
    Ok((settings, WeirKind { variant: None, tree, immutables_max, durability, slots }))
}

/// What the command line says about the options of the store, as it is typed.
fn given(args: &BenchArgs) -> Vec<String> {
    let own = [
        flag("--write-buffer", args.write_buffer),
        flag("--bloom-bits", args.bloom_bits),
        flag("--immutables", args.immutables),
    ];
    own.into_iter().flatten().chain(args.tree.given()).collect()
}

fn config(args: &BenchArgs) -> Result<Config> {
    let config = Config {
        num: args.num,
        ops: args.reads.unwrap_or(0),
        threads: args.threads,
        key_bytes: args.key_size,
        key_format: args.keys,
        value_bytes: usize::try_from(args.value_size).unwrap_or(usize::MAX),
        compressibility: args.compressibility,
        batch: args.batch,
        scan_entries: args.scan,
        seconds: args.seconds,
        warm_seconds: args.warm_seconds,
        write_rate: args.write_rate,
        windows: false,
        seed: args.seed,
    };
    config.validate().map_err(Failure::usage)?;
    Ok(config)
}

/// Runs `work` while another thread shows its progress and passes Ctrl-C on.
fn watched<T, E>(
    progress: &Progress,
    workload: Workload,
    interrupt: &Interrupt,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let (done, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let bar = ProgressBar::new(0);
            bar.set_style(progress_style("{msg:<28} {wide_bar} {human_pos} {rate}"));
            let mut phase = Phase::Idle;
            // The sender is dropped when the work is over.
            while ended.recv_timeout(Duration::from_millis(100))
                == Err(mpsc::RecvTimeoutError::Timeout)
            {
                if interrupt.requested() {
                    progress.stop();
                }
                if progress.phase() != phase {
                    phase = progress.phase();
                    bar.reset();
                    bar.set_message(format!("{workload} {}", doing(phase)));
                }
                bar.set_length(progress.total.load(std::sync::atomic::Ordering::Relaxed));
                bar.set_position(progress.done.load(std::sync::atomic::Ordering::Relaxed));
            }
            bar.finish_and_clear();
        });
        let result = work();
        drop(done);
        result
    })
}

/// Whether reads found no key where a loaded store has one.
fn missed(result: &Measurement) -> bool {
    let workload: Result<Workload, _> = result.workload.parse();
    result.missing > 0 && workload.is_ok_and(Workload::reads_loaded_keys)
}

fn missing(result: &Measurement) -> String {
    format!(
        "{} missed {} of {} keys that a store which was filled as said here has: give --num, \
         --key-size and --keys as they were when it was filled",
        result.workload,
        Count(result.missing),
        Count(result.found + result.missing)
    )
}

fn doing(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "",
        Phase::Loading => "(loading)",
        Phase::Running => "",
        Phase::Draining => "(compacting)",
        Phase::Warming => "(warming)",
    }
}

fn header(result: &Measurement) -> String {
    format!(
        "{} keys of {} + {} bytes, {} client thread{}, seed {}",
        Count(result.num),
        result.key_bytes,
        result.value_bytes,
        result.threads,
        if result.threads == 1 { "" } else { "s" },
        result.seed
    )
}

fn print_results(results: &[Measurement], out: &mut dyn Write) -> Result<()> {
    const HEADER: [&str; 11] = [
        "workload",
        "ops",
        "ops/s",
        "drained",
        "p50",
        "p99",
        "p99.9",
        "max",
        "hits",
        "written/user",
        "disk",
    ];
    let mut rows = Vec::new();
    for result in results {
        let mut total = vec![
            result.workload.clone(),
            Count(result.ops).to_string(),
            Count(result.ops_per_second as u64).to_string(),
            Count(result.ops_per_second_drained as u64).to_string(),
        ];
        let latencies: Vec<_> = result.latency.iter().collect();
        match latencies.as_slice() {
            [(_, one)] => total.extend(quantiles(one)),
            _ => total.extend([const { String::new() }; 4]),
        }
        let number = |value: Option<f64>, scale: f64, unit: &str| {
            value.map_or("-".to_owned(), |value| format!("{:.1}{unit}", value * scale))
        };
        total.push(number(result.hit_ratio, 100.0, " %"));
        total.push(number(result.engine_write_ratio, 1.0, ""));
        total.push(Bytes(result.directory_bytes).to_string());
        rows.push(total);
        if latencies.len() < 2 {
            continue;
        }
        for (kind, latency) in latencies {
            let rate = latency.count as f64 / result.seconds.max(1e-9);
            let mut row = vec![
                format!("  {}", kind.replace('_', " ")),
                Count(latency.count).to_string(),
                Count(rate as u64).to_string(),
                String::new(),
            ];
            row.extend(quantiles(latency));
            rows.push(row);
        }
    }
    table(out, &HEADER, &rows)?;
    Ok(())
}

/// What each workload asked of the device, by cause, if any asked something.
fn print_requests(results: &[Measurement], out: &mut dyn Write) -> Result<()> {
    let mut rows = Vec::new();
    for result in results {
        for (cause, io) in &result.io_by_cause {
            rows.push(vec![
                result.workload.clone(),
                cause.clone(),
                Count(io.reads).to_string(),
                Bytes(io.bytes_read).to_string(),
                Count(io.writes).to_string(),
                Bytes(io.bytes_written).to_string(),
                Count(io.syncs).to_string(),
            ]);
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    table(out, &["workload", "cause", "reads", "read", "writes", "written", "syncs"], &rows)?;
    Ok(())
}

/// What hand-off, the compaction buffer and sentinels did in each workload, if they did something.
fn print_of_reads(results: &[Measurement], out: &mut dyn Write) -> Result<()> {
    let row = |result: &Measurement, (name, n): (&String, &u64)| {
        vec![result.workload.clone(), name.clone(), Count(*n).to_string()]
    };
    let rows = results.iter().flat_map(|r| r.of_reads.iter().map(move |named| row(r, named)));
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    table(out, &["workload", "for reads", "count"], &rows)?;
    Ok(())
}

fn quantiles(latency: &Latency) -> [String; 4] {
    [latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us]
        .map(|micros| Micros(micros).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: numbers are written as sizes are, and what is none says what is wrong.
    #[test]
    fn numbers_have_suffixes() {
        for (text, number) in [("7", 7), ("10k", 10 << 10), ("2m", 2 << 20)] {
            assert_eq!(parse_count(text), Ok(number));
        }
        for wrong in ["10x", "", "-1", "99999999999999g"] {
            let error = parse_count(wrong).expect_err(wrong);
            assert!(error.starts_with(&format!("{wrong:?} is no number; ")), "{error}");
        }
    }
}
