//! `weir replay`: applies a file of operations to a store and times writes and reads apart.
//!
//! With `--verify` every answer is compared with a model, an ordered map in memory; at the end the
//! whole store is, in both directions, and once more after it was closed and opened again.
//! Only the engine's own work is timed: neither reading the file nor the model.

pub(crate) mod generate;
mod model;

use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::show::{Bytes, Count, Plural, parse_size};
use crate::tree::{PolicyOption, TreeArgs, flag, say_set};
use clap::Args;
use model::Model;
use serde::Serialize;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir::{Db, Durability, ErrorKind, Options};
use weir_bench::Stopwatch;
use weir_bench::lines::{LineError, Lines, Operation, encode};

/// Pairs of a range that are taken from the store before they are compared, so that comparing is
/// not timed and a range of any length needs little memory.
const RANGE_CHUNK: usize = 1024;

/// Options of `weir replay`.
#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// CSV file of operations, one per line: i,k,v u,k,v d,k g,k r,lo,hi (both ends included; r,k
    /// is read as d,k in files without ranges). Keys and values are decimal numbers of 64 bits with
    /// sign. A dash reads stdin
    file: PathBuf,
    /// Compare every answer with a model in memory, and the whole store at the end
    #[arg(long)]
    verify: bool,
    /// Directory of the store; created if missing and kept. One that is there keeps its options but
    /// for those given here, which are set in it. Default: a temporary one, removed
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Make every write durable before the next
    #[arg(long)]
    sync: bool,
    /// Use a write buffer of 32 KiB and tables and levels to match, so that a small file makes a
    /// tree of several levels
    #[arg(long)]
    tiny: bool,
    /// Bytes of the write buffer (k, m, g)
    #[arg(long, value_name = "BYTES", value_parser = parse_size, conflicts_with = "tiny")]
    write_buffer: Option<u64>,
    /// Bits per key of the Bloom filters
    #[arg(long, value_name = "BITS")]
    bloom_bits: Option<u32>,
    #[command(flatten)]
    tree: TreeArgs,
    /// Print one JSON object instead of text; notes go to stderr
    #[arg(long)]
    json: bool,
}

/// What a replay did and how long it took.
#[derive(Debug, Default, Serialize)]
struct Summary {
    lines: u64,
    inserts_and_updates: u64,
    deletes: u64,
    gets: u64,
    found: u64,
    missing: u64,
    ranges: u64,
    range_pairs: u64,
    write_seconds: f64,
    read_seconds: f64,
    /// Whether answers were compared.
    verified: bool,
    differences: u64,
    /// Pairs in the store at the end; counted when verifying.
    pairs: Option<u64>,
}

/// Runs `weir replay`.
pub(crate) fn run(args: &ReplayArgs, interrupt: &Interrupt, out: &mut dyn Write) -> Result<()> {
    // A store that is there may have any policy.
    let policy = if args.dir.is_some() { args.tree.fitting_policy() } else { Default::default() };
    let mut asked = Options::default().compaction(policy);
    apply(args, &mut asked)?;
    asked.validate().map_err(|e| Failure::options(&e))?;
    let input = open_input(&args.file)?;
    // Declared before the replay, so that it is removed after the store was closed.
    let mut temporary = None;
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => {
            let made = tempfile::Builder::new().prefix("weir-replay-").tempdir().map_err(|e| {
                Failure::new(format_args!("cannot make a temporary directory ({e}); use --dir"))
            })?;
            temporary.insert(made).path().to_path_buf()
        }
    };
    let (db, changed) = open_store(&dir, args)?;
    if changed {
        say_set(&given(args), args.json, out)?;
    }
    let model = if args.verify { Some(Model::of_store(&db)?) } else { None };
    let durability = if args.sync { Durability::Sync } else { Durability::Buffered };
    let mut replay = Replay {
        db,
        model,
        durability,
        interrupt,
        summary: Summary { verified: args.verify, ..Summary::default() },
        write_time: Duration::ZERO,
        read_time: Duration::ZERO,
        first_difference: None,
        pairs: Vec::new(),
    };
    let ended = replay.run(input, args.json, out);
    let differences = replay.finish(&dir, args, ended.is_ok())?;
    // Where the file was wrong, what was applied before it stays and is reported all the same.
    replay.print(args.json, ended.is_ok(), out)?;
    ended?;
    match differences {
        None => Ok(()),
        Some(first) => Err(Failure::difference(format_args!(
            "answers that differ from the model: {}; the first: {first}",
            Count(replay.summary.differences)
        ))),
    }
}

fn open_input(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    #[expect(clippy::disallowed_methods, reason = "a file of the user's, not of a store")]
    let file = std::fs::File::open(path).map_err(|e| {
        Failure::new(format_args!("cannot open {}: {e}; name a replay file", path.display()))
    })?;
    if path.is_dir() {
        return Err(Failure::new(format_args!(
            "{} is a directory; name a replay file",
            path.display()
        )));
    }
    Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
}

/// Opens the store and gives it what the command line asks for; a store that was there keeps the
/// other options that it has. Whether that one was changed.
fn open_store(dir: &Path, args: &ReplayArgs) -> Result<(Db, bool)> {
    let db = match Db::builder(dir).create_if_missing(false).open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Nothing is created for a command line that is wrong.
            let mut new = Options::default();
            apply(args, &mut new)?;
            return Ok((Db::builder(dir).default_options(new).open()?, false));
        }
        opened => opened?,
    };
    let stored = db.default_keyspace().options();
    let mut wanted = stored.clone();
    apply(args, &mut wanted)?;
    let changes = wanted != stored;
    if changes {
        db.default_keyspace().set_options(wanted)?;
    }
    Ok((db, changes))
}

/// What the command line says about the options of the store, as it is typed.
fn given(args: &ReplayArgs) -> Vec<String> {
    let own = [
        args.tiny.then(|| "--tiny".to_owned()),
        flag("--write-buffer", args.write_buffer),
        flag("--bloom-bits", args.bloom_bits),
    ];
    own.into_iter().flatten().chain(args.tree.given()).collect()
}

/// Sets what the command line asks for.
///
/// # Errors
/// An option that the policy does not have.
fn apply(args: &ReplayArgs, options: &mut Options) -> Result<()> {
    if args.tiny {
        options.write_buffer_bytes = 32 << 10;
        options.table_bytes = 16 << 10;
        args.tree.choose_policy(options);
        PolicyOption::BaseLevelBytes(128 << 10).set(&mut options.compaction);
    }
    if let Some(bytes) = args.write_buffer {
        options.write_buffer_bytes = bytes;
    }
    if let Some(bits) = args.bloom_bits {
        options.bloom_bits = vec![bits as f32];
    }
    args.tree.apply(options)
}

/// A replay under way.
struct Replay<'a> {
    db: Db,
    model: Option<Model>,
    durability: Durability,
    interrupt: &'a Interrupt,
    summary: Summary,
    write_time: Duration,
    read_time: Duration,
    first_difference: Option<String>,
    /// The chunk of a range that was read and not yet compared.
    pairs: Vec<(weir::Value, weir::Value)>,
}

impl Replay<'_> {
    fn run(&mut self, input: Box<dyn BufRead>, json: bool, out: &mut dyn Write) -> Result<()> {
        let mut lines = Lines::new(input);
        let ended = loop {
            if self.interrupt.requested() {
                break Err(Interrupt::failure());
            }
            match lines.next_operation() {
                Ok(Some(operation)) => {
                    if let Err(failure) = self.apply(operation, lines.number()) {
                        break Err(failure);
                    }
                }
                Ok(None) => {
                    self.summary.lines = lines.number();
                    break Ok(());
                }
                Err(LineError::Io(error)) => {
                    break Err(Failure::new(format_args!(
                        "cannot read the file after line {}: {error}",
                        lines.number()
                    )));
                }
                Err(LineError::Bad { number, reason }) => {
                    break Err(Failure::new(format_args!(
                        "line {number}: {reason}; correct the line ({} applied before it)",
                        Plural(number - 1, "line")
                    )));
                }
            }
            self.summary.lines = lines.number();
        };
        if lines.r_is_remove() && !json {
            writeln!(
                out,
                "note      r,key lines were read as removes: the file has no r,low,high"
            )?;
        }
        ended
    }

    fn apply(&mut self, operation: Operation, line: u64) -> Result<()> {
        match operation {
            Operation::Put(key, value) => {
                let (key, value) = (encode(key), encode(value));
                let clock = Stopwatch::start();
                self.db.put_with(key, value, self.durability)?;
                self.write_time += clock.elapsed();
                self.summary.inserts_and_updates += 1;
                if let Some(model) = &mut self.model {
                    model.put(&key, &value);
                }
            }
            Operation::Delete(key) => {
                let key = encode(key);
                let clock = Stopwatch::start();
                self.db.delete_with(key, self.durability)?;
                self.write_time += clock.elapsed();
                self.summary.deletes += 1;
                if let Some(model) = &mut self.model {
                    model.delete(&key);
                }
            }
            Operation::Get(key) => self.get(key, line)?,
            Operation::Range(low, high) => self.range(low, high, line)?,
        }
        Ok(())
    }

    fn get(&mut self, number: i64, line: u64) -> Result<()> {
        let key = encode(number);
        let clock = Stopwatch::start();
        let answer = self.db.get(key)?;
        self.read_time += clock.elapsed();
        self.summary.gets += 1;
        if answer.is_some() {
            self.summary.found += 1;
        } else {
            self.summary.missing += 1;
        }
        let difference = self.model.as_ref().and_then(|m| m.compare(&key, answer.as_deref()));
        self.note(difference.map(|what| format!("line {line}, get of {number}: {what}")));
        Ok(())
    }

    fn range(&mut self, low: i64, high: i64, line: u64) -> Result<()> {
        let (from, to) = (encode(low), encode(high));
        let mut expected = self.model.as_ref().map(|model| model.range(&from, &to));
        let clock = Stopwatch::start();
        let mut pairs = self.db.range(from..=to);
        self.read_time += clock.elapsed();
        let mut difference = None;
        loop {
            self.pairs.clear();
            let clock = Stopwatch::start();
            let mut ended = false;
            while self.pairs.len() < RANGE_CHUNK {
                let Some(pair) = pairs.next() else {
                    ended = true;
                    break;
                };
                self.pairs.push(pair?);
            }
            self.read_time += clock.elapsed();
            self.summary.range_pairs += self.pairs.len() as u64;
            if let Some(expected) = &mut expected {
                difference = difference.or_else(|| expected.compare(&self.pairs, ended));
            }
            if ended {
                break;
            }
        }
        drop(expected);
        self.summary.ranges += 1;
        self.note(difference.map(|what| format!("line {line}, range {low} to {high}: {what}")));
        Ok(())
    }

    /// Counts a difference and keeps the first.
    fn note(&mut self, difference: Option<String>) {
        if let Some(difference) = difference {
            self.summary.differences += 1;
            self.first_difference.get_or_insert(difference);
        }
    }

    /// Compares the whole store if the file was applied to its end and closes it; the first
    /// difference, if there was one.
    fn finish(&mut self, dir: &Path, args: &ReplayArgs, complete: bool) -> Result<Option<String>> {
        self.summary.write_seconds = self.write_time.as_secs_f64();
        self.summary.read_seconds = self.read_time.as_secs_f64();
        if let Some(model) = self.model.take() {
            self.summary.pairs = Some(model.len());
            let difference = model.compare_store(&self.db)?;
            self.note(difference.map(|what| format!("the whole store: {what}")));
            self.db.clone().close()?;
            if complete {
                (self.db, _) = open_store(dir, args)?;
                let difference = model.compare_store(&self.db)?;
                self.note(difference.map(|what| format!("the store, opened again: {what}")));
            }
        }
        self.db.clone().close()?;
        Ok(self.first_difference.take())
    }

    fn print(&self, json: bool, complete: bool, out: &mut dyn Write) -> Result<()> {
        let s = &self.summary;
        if json {
            serde_json::to_writer(&mut *out, s)?;
            writeln!(out)?;
            return Ok(());
        }
        let writes = s.inserts_and_updates + s.deletes;
        let reads = s.gets + s.ranges;
        let rate = |n: u64, seconds: f64| {
            if seconds > 0.0 { Count((n as f64 / seconds) as u64) } else { Count(0) }
        };
        writeln!(
            out,
            "writes    {:>11} in {:>8.3} s ({} per second): {} inserts and updates, {}",
            Count(writes),
            s.write_seconds,
            rate(writes, s.write_seconds),
            Count(s.inserts_and_updates),
            Plural(s.deletes, "delete")
        )?;
        writeln!(
            out,
            "reads     {:>11} in {:>8.3} s ({} per second): {}, {}",
            Count(reads),
            s.read_seconds,
            rate(reads, s.read_seconds),
            Plural(s.gets, "get"),
            Plural(s.ranges, "range")
        )?;
        writeln!(out, "gets      {:>11} found, {} missing", Count(s.found), Count(s.missing))?;
        writeln!(out, "ranges    {:>11} pairs returned", Count(s.range_pairs))?;
        // A replay that did not come to its end finds differences, but not that there are none.
        let told = complete || s.differences > 0;
        if let Some(pairs) = s.pairs.filter(|_| told) {
            let bytes = Bytes(pairs * 16);
            let verdict = match s.differences {
                0 => "no difference".to_owned(),
                1 => "1 DIFFERENCE".to_owned(),
                n => format!("{} DIFFERENCES", Count(n)),
            };
            let pairs = Plural(pairs, "pair");
            writeln!(out, "verified  {verdict}; {pairs} in the store ({bytes})")?;
        }
        Ok(())
    }
}
