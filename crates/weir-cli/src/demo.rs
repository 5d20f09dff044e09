//! `weir demo`: an embedded store at work, in less than half a minute.
//!
//! Loads people under the keys `user:0000000000` and on, then reads, scans and updates them at once
//! from several threads, and ends with what that cost. The memory is small against the data, so
//! that flushes, compactions and the cache have something to do. The store stays, for `weir shell`.

use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::show::{Bytes, Count, Micros, percent, progress_style, table};
use crate::stats;
use clap::{Args, value_parser};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use weir::{Db, LeveledOptions, Options};
use weir_bench::{
    Latency, Permutation, Prng, ScrambledZipfian, Stopwatch, directory_bytes, latency_histogram,
};

/// The key that says that a store is the demo's; it sorts before the people.
const MARK: &[u8] = b"demo";

/// Loading stops after so many seconds, however many keys are left: a slow machine shows the demo
/// with fewer keys instead of later.
const LOAD_SECONDS_MAX: f64 = 12.0;

/// Memory of the store: less than the data, so that the cache has to choose.
const MEMORY_BYTES: u64 = 48 << 20;

/// Bytes of a log segment: small, because segments are allocated before they are used and the
/// demo's size on disk should show the data.
const LOG_SEGMENT_BYTES: u64 = 8 << 20;

/// Entries that a scan of the demo reads.
const SCAN_ENTRIES: usize = 20;

/// Options of `weir demo`.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Directory of the store; created if missing
    #[arg(long, default_value = "weir-demo")]
    dir: PathBuf,
    /// How long to read and write at once
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// People to load
    #[arg(long, default_value_t = 500_000, value_parser = value_parser!(u64).range(1..=1 << 32))]
    keys: u64,
}

/// Runs `weir demo`.
pub(crate) fn run(args: &DemoArgs, interrupt: &Interrupt, out: &mut dyn Write) -> Result<()> {
    let db = open(args)?;
    writeln!(
        out,
        "An embedded store in {}, {} of memory.",
        args.dir.display(),
        Bytes(MEMORY_BYTES)
    )?;
    out.flush()?;
    let ended = show(&db, args, interrupt, out);
    let of_slots = db.slot_space().map(|space| space.slot_bytes * space.owned);
    db.close()?;
    ended?;
    match of_slots {
        Some(bytes) => writeln!(out, "size on disk  {} of slots that have tables", Bytes(bytes))?,
        None => {
            let bytes = directory_bytes(&args.dir);
            writeln!(out, "size on disk  {}, log segments included", Bytes(bytes))?;
        }
    }
    if interrupt.requested() {
        return Err(Interrupt::failure());
    }
    let (weir, dir) = (as_called(), args.dir.display());
    writeln!(out, "\nThe store stays. Look into it:")?;
    writeln!(out, "  {weir} shell {dir}      then, for example: get {}", key(0))?;
    writeln!(out, "  {weir} inspect {dir}")?;
    Ok(())
}

/// How this program was invoked: run from the sources, there is no `weir` in the PATH.
fn as_called() -> String {
    let called = std::env::args_os().next();
    called.map_or_else(|| "weir".to_owned(), |called| called.to_string_lossy().into_owned())
}

fn show(db: &Db, args: &DemoArgs, interrupt: &Interrupt, out: &mut dyn Write) -> Result<()> {
    let (loaded, seconds) = load(db, args.keys, interrupt)?;
    writeln!(
        out,
        "loaded {} people in {seconds:.1} s: {} puts per second",
        Count(loaded),
        Count((loaded as f64 / seconds.max(1e-9)) as u64)
    )?;
    out.flush()?;
    if loaded == 0 || interrupt.requested() {
        return Ok(());
    }
    let loaded_with = db.metrics();
    let before = stats::hits(&loaded_with);
    let load = Load {
        db,
        people: loaded,
        stop: AtomicBool::new(false),
        done: Default::default(),
        interrupt,
    };
    let clock = Stopwatch::start();
    let latencies = load.run(Duration::from_secs(args.seconds))?;
    let seconds = clock.seconds();
    writeln!(out, "then read and written at once for {seconds:.1} s:\n")?;
    let mut rows = Vec::new();
    for (name, histogram) in NAMES.iter().zip(&latencies) {
        let Some(l) = Latency::of(histogram) else { continue };
        let mut row = vec![
            (*name).to_owned(),
            Count(l.count).to_string(),
            Count((l.count as f64 / seconds.max(1e-9)) as u64).to_string(),
        ];
        row.extend([l.p50_us, l.p99_us, l.p999_us, l.max_us].map(|us| Micros(us).to_string()));
        rows.push(row);
    }
    table(out, &["", "operations", "per second", "p50", "p99", "p99.9", "max"], &rows)?;
    let metrics = db.metrics();
    let after = stats::hits(&metrics);
    let (hits, misses) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    writeln!(out, "\nblock cache   hit ratio {}", percent(hits, hits + misses))?;
    let delayed = metrics.write_delay_seconds - loaded_with.write_delay_seconds;
    let stopped = metrics.write_stall_seconds - loaded_with.write_stall_seconds;
    writeln!(out, "background    {}", stats::held_back(delayed, stopped))?;
    writeln!(out)?;
    stats::print_written(&metrics, out)?;
    writeln!(out)?;
    stats::print_levels(&metrics, out)?;
    writeln!(out)?;
    Ok(())
}

/// Opens the demo's store, or makes it; refuses a store that the demo has not made.
fn open(args: &DemoArgs) -> Result<Db> {
    let options = Options::default()
        .write_buffer_bytes(8 << 20)
        .immutables_max(2)
        .table_bytes(4 << 20)
        .compaction(LeveledOptions::default().base_level_bytes(16 << 20));
    #[expect(
        clippy::disallowed_methods,
        reason = "whether a list is empty does not depend on order"
    )]
    let fresh = std::fs::read_dir(&args.dir).map_or(true, |mut list| list.next().is_none());
    if !fresh {
        // Looked at before it is opened for writing: a stranger's store is left as it is.
        let db = Db::builder(&args.dir).create_if_missing(false).read_only(true).open()?;
        let marked = db.get(MARK)?.is_some();
        db.close()?;
        if !marked {
            return Err(Failure::new(format_args!(
                "{} holds a store that the demo did not make; name another directory with --dir",
                args.dir.display()
            )));
        }
    }
    let db = Db::builder(&args.dir)
        .memory_budget(MEMORY_BYTES)
        .log_segment_bytes(LOG_SEGMENT_BYTES)
        .default_options(options)
        .open()?;
    db.put(MARK, b"made by weir demo")?;
    Ok(db)
}

/// The key of person `number`.
fn key(number: u64) -> String {
    format!("user:{number:010}")
}

/// What is stored about person `number` after `visits`.
fn value(number: u64, visits: u64, buffer: &mut String) {
    use std::fmt::Write as _;
    const NAMES: [&str; 8] =
        ["Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances", "Edgar", "Radia"];
    const CITIES: [&str; 8] =
        ["London", "Arlington", "Rotterdam", "Oslo", "Stanford", "New York", "San Jose", "Boston"];
    buffer.clear();
    let name = NAMES[(number % 8) as usize];
    let city = CITIES[(number / 8 % 8) as usize];
    // Writing to a string cannot fail.
    let _written = write!(
        buffer,
        r#"{{"name":"{name} {number}","city":"{city}","visits":{visits},"token":"{:032x}"}}"#,
        u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(visits)
    );
}

/// Loads people in random order; how many there are then, and the seconds it took.
fn load(db: &Db, people: u64, interrupt: &Interrupt) -> Result<(u64, f64)> {
    let bar = ProgressBar::new(people);
    bar.set_style(progress_style("loading  {wide_bar} {human_pos} people, {rate}"));
    let order = Permutation::new(people, 7);
    let clock = Stopwatch::start();
    let mut buffer = String::new();
    let mut loaded = 0;
    for place in 0..people {
        if place % 1024 == 0 {
            bar.set_position(place);
            if interrupt.requested() || clock.seconds() > LOAD_SECONDS_MAX {
                break;
            }
        }
        let number = order.at(place);
        value(number, 0, &mut buffer);
        db.put(key(number), &buffer)?;
        loaded += 1;
    }
    bar.finish_and_clear();
    Ok((loaded, clock.seconds()))
}

/// What the threads of the second part do, in the order of [`Load::done`].
const NAMES: [&str; 3] = ["gets", "scans of 20", "puts"];
const GET: usize = 0;
const SCAN: usize = 1;
const PUT: usize = 2;

type Latencies = [Histogram<u64>; 3];

fn latencies() -> Latencies {
    std::array::from_fn(|_| latency_histogram())
}

/// Reading and writing at once.
struct Load<'a> {
    db: &'a Db,
    people: u64,
    stop: AtomicBool,
    done: [AtomicU64; 3],
    interrupt: &'a Interrupt,
}

impl Load<'_> {
    /// Reads from two threads and writes from one for `duration`.
    fn run(&self, duration: Duration) -> Result<Latencies> {
        std::thread::scope(|scope| {
            let threads = [
                scope.spawn(|| self.until_stopped(|| self.read(1))),
                scope.spawn(|| self.until_stopped(|| self.read(2))),
                scope.spawn(|| self.until_stopped(|| self.write(3))),
            ];
            self.watch(duration);
            self.stop.store(true, Ordering::Relaxed);
            let mut all = latencies();
            for thread in threads {
                let result = thread.join();
                let part = result.map_err(|_| Failure::new("a thread of the demo panicked"))??;
                for (sum, histogram) in all.iter_mut().zip(&part) {
                    sum.add(histogram).map_err(Failure::new)?;
                }
            }
            Ok(all)
        })
    }

    /// Runs a thread's work; if it fails, the others stop too.
    fn until_stopped(&self, work: impl FnOnce() -> Result<Latencies>) -> Result<Latencies> {
        work().inspect_err(|_| self.stop.store(true, Ordering::Relaxed))
    }

    /// The live line.
    fn watch(&self, duration: Duration) {
        let bar = ProgressBar::new(duration.as_secs().max(1) * 10);
        bar.set_style(progress_style("{spinner} {msg} {wide_bar} {elapsed}"));
        let clock = Stopwatch::start();
        let mut last = (0.0, [0; 3], stats::hits(&self.db.metrics()));
        while clock.elapsed() < duration
            && !self.interrupt.requested()
            && !self.stop.load(Ordering::Relaxed)
        {
            std::thread::park_timeout(Duration::from_millis(200).min(duration));
            let now = clock.seconds();
            let done = [GET, SCAN, PUT].map(|i| self.done[i].load(Ordering::Relaxed));
            let hits = stats::hits(&self.db.metrics());
            let rate = |i: usize| Count(((done[i] - last.1[i]) as f64 / (now - last.0)) as u64);
            let hit = hits.0.saturating_sub(last.2.0);
            let miss = hits.1.saturating_sub(last.2.1);
            bar.set_message(format!(
                "gets {}/s  scans {}/s  puts {}/s  hits {}",
                rate(GET),
                rate(SCAN),
                rate(PUT),
                percent(hit, hit + miss)
            ));
            bar.set_position((now * 10.0) as u64);
            last = (now, done, hits);
        }
        bar.finish_and_clear();
    }

    /// Reads people, popular ones more often; one read in twenty is a short scan.
    fn read(&self, thread: u64) -> Result<Latencies> {
        let mut latencies = latencies();
        let mut prng = Prng::new(7, thread);
        let popular = ScrambledZipfian::new(self.people);
        while !self.stop.load(Ordering::Relaxed) {
            let key = key(popular.next(&mut prng));
            let kind = if prng.below(20) == 0 { SCAN } else { GET };
            let clock = Stopwatch::start();
            if kind == SCAN {
                for pair in self.db.range(key.as_bytes()..).take(SCAN_ENTRIES) {
                    std::hint::black_box(pair?);
                }
            } else {
                std::hint::black_box(self.db.get(&key)?);
            }
            latencies[kind].saturating_record(clock.nanos());
            self.done[kind].fetch_add(1, Ordering::Relaxed);
        }
        Ok(latencies)
    }

    /// Updates people, popular ones more often.
    fn write(&self, thread: u64) -> Result<Latencies> {
        let mut latencies = latencies();
        let mut prng = Prng::new(7, thread);
        let popular = ScrambledZipfian::new(self.people);
        let mut buffer = String::new();
        let mut visits = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let number = popular.next(&mut prng);
            visits += 1;
            value(number, visits, &mut buffer);
            let key = key(number);
            let clock = Stopwatch::start();
            self.db.put(&key, &buffer)?;
            latencies[PUT].saturating_record(clock.nanos());
            self.done[PUT].fetch_add(1, Ordering::Relaxed);
        }
        Ok(latencies)
    }
}
