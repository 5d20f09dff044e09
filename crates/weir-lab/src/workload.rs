//! Readers and writers: what the clients of a group do, one after the other, while it is at work.
//!
//! In a closed loop a client begins an operation when the one before is done and its processor time
//! spent. In an open loop operations are due at a rate, evenly, and the next free client of the
//! group begins the next one that is due. What is due to writers comes in bunches, a hundred times
//! a virtual second: a wait for each write would take most of the real time. The latency of an
//! operation of an open loop begins when it is due (to a writer: when its bunch came), so that it
//! has the time that it waited for a free client. What is due and not begun when a group stops is
//! never done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use weir::sim::Simulation;
use weir::{Db, Durability};
use weir_bench::{KeyFormat, KeySpace, Permutation, Prng, Values, Zipfian};

use crate::choice::{Choice, written_key};
use crate::clients::{Loop, ReadChoice, ReadKind, Reads, WriteChoice, WriteKind, Writes, seed_of};
use crate::phases::{Span, nanos};
use crate::record::Work;
use crate::sentinels::Rule;
use crate::settings::Settings;
use crate::store;

/// The stream of the first reader of a group; the others follow.
const READER_STREAM: u64 = 1;

/// The stream of the values that the first reader of a group writes.
const READER_VALUE_STREAM: u64 = 1 << 43;

/// The stream of the values that the first writer of a group writes; the others follow.
const WRITER_VALUE_STREAM: u64 = 1 << 42;

/// The stream of the popular keys that writers draw.
const WRITER_RANK_STREAM: u64 = 1 << 47;

/// Virtual nanoseconds between two wake-ups of the writers of an open loop.
const WRITER_TICK_NANOS: u64 = 10_000_000;

/// Virtual nanoseconds after which a writer that finds nothing to delete looks again.
const EMPTY_NANOS: u64 = 10_000_000;

/// Virtual nanoseconds between two looks at what has become hot.
const SENTINEL_TICK_NANOS: u64 = 10_000_000;

/// Most entries of a scan of YCSB's workload E.
const YCSB_SCAN_ENTRIES: u64 = 100;

/// A latency of more is counted as this one: an hour.
const LATENCY_MAX_NANOS: u64 = 3_600_000_000_000;

/// Digits of a latency that are kept.
const LATENCY_DIGITS: u8 = 2;

/// Keys that may be inserted into a store, in order or in a random order.
const INSERTS_MAX: u64 = 1 << 32;

/// What all clients of a run share.
pub struct Common {
    /// The run's options, scaled.
    pub settings: Settings,
    /// Decides everything.
    pub seed: u64,
    /// The store.
    pub db: Db,
    /// The clock.
    pub simulation: Simulation,
    /// Virtual time at which the run began.
    pub start_nanos: u64,
    /// The keys that exist.
    pub keys: Keys,
    /// What moves hot ranges up, if the laboratory does.
    pub rule: Option<Rule>,
    /// What failed first; everyone stops then.
    pub failure: OnceLock<String>,
}

/// What the clients of a group count.
#[derive(Debug, Default)]
pub struct Done {
    /// Operations done.
    pub operations: AtomicU64,
    /// Virtual time that they took.
    pub nanos: AtomicU64,
    /// Tables that they looked into, and those of them that looked into none.
    pub tables: AtomicU64,
    /// See `tables`.
    pub without_tables: AtomicU64,
    /// Tables that scans entered as they began: runs.
    pub runs: AtomicU64,
    /// Blocks that they entered.
    pub blocks: AtomicU64,
    /// What they did since this was taken last. No actor waits while it is locked.
    window: Mutex<Window>,
    /// Operations begun, which number them.
    begun: AtomicU64,
    /// Operations begun in each of the group's spans.
    begun_in: Vec<AtomicU64>,
}

impl Done {
    /// Begins the next operation; its number.
    fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts an operation that was due at `due` and is done now.
    fn note(&self, due: u64, done: u64) {
        let nanos = done.saturating_sub(due);
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.operations += 1;
        window.nanos += nanos;
        window.latencies.saturating_record(nanos.max(1));
    }

    /// Counts the tables that a read looked into.
    fn note_tables(&self, tables: u64) {
        self.tables.fetch_add(tables, Ordering::Relaxed);
        self.without_tables.fetch_add(u64::from(tables == 0), Ordering::Relaxed);
    }

    /// What was done since this was called last.
    pub fn take_window(&self) -> Work {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let Window { operations, nanos, latencies } = std::mem::take(&mut *window);
        let buckets = latencies.iter_recorded();
        let latencies = buckets.map(|b| (b.value_iterated_to(), b.count_at_value())).collect();
        Work { operations, nanos, latencies }
    }
}

/// What a group did in a window.
#[derive(Debug)]
struct Window {
    operations: u64,
    nanos: u64,
    latencies: Histogram<u64>,
}

impl Default for Window {
    fn default() -> Self {
        let latencies = Histogram::new_with_max(LATENCY_MAX_NANOS, LATENCY_DIGITS);
        let latencies = latencies.expect("bounds and digits are within hdrhistogram's range");
        Self { operations: 0, nanos: 0, latencies }
    }
}

/// A group of readers or writers at work.
pub struct Group<C> {
    /// Its options.
    pub clients: C,
    /// The seed that it draws from.
    pub seed: u64,
    /// When it is at work, in nanoseconds since the run began.
    pub spans: Vec<Span>,
    /// What it has done.
    pub done: Done,
}

impl<C> Group<C> {
    /// The group `name` of a run with the seed `seed`.
    pub fn new(name: &str, clients: C, seed: u64, spans: Vec<Span>) -> Self {
        let begun_in = spans.iter().map(|_| AtomicU64::new(0)).collect();
        let done = Done { begun_in, ..Done::default() };
        Self { clients, seed: seed_of(name, seed), spans, done }
    }
}

/// The keys of a store while some are inserted and deleted: by number, those that were loaded first
/// and then those that were inserted.
pub struct Keys {
    /// The loaded ones; inserted ones lie between them.
    space: KeySpace,
    /// Those of writers that insert: behind the loaded ones, or into an empty store.
    behind: KeySpace,
    inserts: Inserts,
    /// The number of the first key that is not deleted, of the first that is not there yet, and of
    /// the first that no writer has begun to insert.
    first: AtomicU64,
    end: AtomicU64,
    next: AtomicU64,
    /// Whether a key below `end` may be missing.
    may_miss: bool,
}

/// Where inserted keys lie.
enum Inserts {
    Between,
    InOrder,
    /// In an empty store.
    Scattered(Permutation),
}

impl Keys {
    /// The keys of a run at its beginning.
    #[must_use]
    pub fn new(settings: &Settings, seed: u64) -> Self {
        let (loaded, bytes) = (settings.load.keys, settings.load.key_bytes);
        let groups = settings.writers.values();
        let inserting = groups.clone().find(|writes| writes.kind == WriteKind::Insert);
        let inserts = match inserting.map(|writes| writes.choice) {
            Some(WriteChoice::Sequential) => Inserts::InOrder,
            Some(_) if loaded == 0 => Inserts::Scattered(Permutation::new(INSERTS_MAX, seed)),
            _ => Inserts::Between,
        };
        Self {
            space: store::keys(settings),
            behind: KeySpace::new(loaded + INSERTS_MAX, bytes, KeyFormat::Decimal),
            inserts,
            first: AtomicU64::new(0),
            end: AtomicU64::new(loaded),
            next: AtomicU64::new(loaded),
            may_miss: groups.clone().any(|writes| writes.kind != WriteKind::Update),
        }
    }

    /// Writes the key number `number` to `out`.
    fn at(&self, number: u64, out: &mut Vec<u8>) {
        match &self.inserts {
            Inserts::InOrder => self.behind.existing(number, out),
            Inserts::Scattered(order) => self.behind.existing(order.at(number), out),
            Inserts::Between => self.space.existing(number, out),
        }
    }

    /// The key of this number, if inserted keys do not lie anywhere among the others; `None` behind
    /// all loaded keys where inserted ones lie between these.
    fn bound(&self, number: u64) -> Option<Vec<u8>> {
        let there = match self.inserts {
            Inserts::InOrder => true,
            Inserts::Scattered(_) => false,
            Inserts::Between => number < self.space.len(),
        };
        let mut key = Vec::new();
        self.at(number, &mut key);
        there.then_some(key)
    }

    /// The number of the loaded key that the key number `number` is, or lies behind.
    fn neighbour(&self, number: u64) -> u64 {
        match &self.inserts {
            Inserts::InOrder | Inserts::Scattered(_) => number,
            Inserts::Between => self.space.neighbour(number),
        }
    }

    /// The numbers of the keys that are there.
    fn there(&self) -> std::ops::Range<u64> {
        self.first.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)
    }

    /// The number of the key that is deleted; `None` if there is none.
    fn delete(&self) -> Option<u64> {
        let (first, end) = (self.first.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        (first < end).then(|| self.first.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes that the key number `number` was inserted.
    fn inserted(&self, number: u64) {
        self.end.fetch_max(number + 1, Ordering::Relaxed);
    }
}

/// One operation of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Get,
    Scan,
    Update,
    Insert,
    /// Read, modify, write.
    Modify,
}

/// The parts of what `kind` does, in per cent.
fn mix(kind: ReadKind) -> &'static [(u64, Step)] {
    match kind {
        ReadKind::Get | ReadKind::YcsbC => &[(100, Step::Get)],
        ReadKind::Scan => &[(100, Step::Scan)],
        ReadKind::YcsbA => &[(50, Step::Get), (50, Step::Update)],
        ReadKind::YcsbB => &[(95, Step::Get), (5, Step::Update)],
        ReadKind::YcsbD => &[(95, Step::Get), (5, Step::Insert)],
        ReadKind::YcsbE => &[(95, Step::Scan), (5, Step::Insert)],
        ReadKind::YcsbF => &[(50, Step::Get), (50, Step::Modify)],
    }
}

/// A group of readers with what they choose.
pub struct Reading {
    /// The group.
    pub group: Group<Reads>,
    /// Their keys.
    pub choice: Choice,
}

struct Reader<'a> {
    common: &'a Common,
    reads: &'a Reads,
    choice: &'a Choice,
    prng: Prng,
    values: Values,
    /// For workload D: the newest key is the most popular.
    ranks: Option<Zipfian>,
    durability: Durability,
    key: Vec<u8>,
    /// Tables that its last scan entered as it began.
    runs: u64,
}

/// Reads as reader number `number` of its group, until the run ends.
///
/// # Errors
/// The engine's, as text: the run is then worth nothing, and so it is
///
/// # Panics
/// if a key that exists is not found.
pub fn read(common: &Common, reading: &Reading, number: usize) -> Result<(), String> {
    weir::sim::this_actor_reads();
    let (settings, number) = (&common.settings, number as u64);
    let (group, reads) = (&reading.group, &reading.group.clients);
    let mix = mix(reads.kind);
    let latest = reads.kind == ReadKind::YcsbD;
    let values = Prng::new(group.seed, READER_VALUE_STREAM + number);
    let mut reader = Reader {
        common,
        reads,
        choice: &reading.choice,
        prng: Prng::new(group.seed, READER_STREAM + number),
        values: Values::new(settings.load.value_bytes, 1.0, values),
        ranks: latest.then(|| Zipfian::with_theta(settings.load.keys, reads.zipf_theta)),
        durability: store::durability(settings),
        key: Vec::new(),
        runs: 0,
    };
    for (span, begun) in group.spans.iter().zip(&group.done.begun_in) {
        common.wait_until(span.from);
        let end = common.start_nanos + span.to;
        let mut now = weir::sim::now_nanos();
        loop {
            if reads.pace == Loop::Open {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                let due = span.from + (number as f64 / reads.per_second * 1e9) as u64;
                if due >= span.to {
                    break;
                }
                common.wait_until(due);
                now = common.start_nanos + due;
            }
            // A group that is late does not go on behind its end with what was due before.
            if weir::sim::now_nanos() >= end || common.has_failed() {
                break;
            }
            let mut draw = reader.prng.below(100);
            let step = mix.iter().find(|(part, _)| {
                let taken = draw < *part;
                draw = draw.wrapping_sub(*part);
                taken
            });
            let (tables, blocks) = (weir::sim::tables_touched(), weir::sim::blocks_entered());
            reader.runs = 0;
            reader.step(step.map_or(Step::Get, |(_, step)| *step))?;
            group.done.note_tables(weir::sim::tables_touched() - tables);
            group.done.runs.fetch_add(reader.runs, Ordering::Relaxed);
            let entered = weir::sim::blocks_entered() - blocks;
            group.done.blocks.fetch_add(entered, Ordering::Relaxed);
            weir::sim::work(reads.cpu_nanos);
            let done = weir::sim::now_nanos();
            group.done.note(now, done);
            now = done;
        }
    }
    Ok(())
}

fn write_failed(error: weir::Error) -> String {
    format!("a write failed: {error}")
}

impl Common {
    /// Notes why a client has ended before its time.
    pub fn fail(&self, error: String) {
        // Others fail for the same reason.
        let _ = self.failure.set(error);
    }

    /// Whether a client has.
    fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Virtual nanoseconds since the run began.
    fn since_start(&self) -> u64 {
        weir::sim::now_nanos().saturating_sub(self.start_nanos)
    }

    /// Suspends the calling client until so many virtual nanoseconds after the run began.
    fn wait_until(&self, since_start: u64) {
        let left = since_start.saturating_sub(self.since_start());
        if left > 0 {
            self.simulation.delay(Duration::from_nanos(left));
        }
    }
}

impl Reader<'_> {
    /// The index of an existing key, for an operation that passes so many entries.
    fn choose(&mut self, entries: u64) -> u64 {
        match &self.ranks {
            Some(ranks) => {
                let newest = self.common.keys.end.load(Ordering::Relaxed) - 1;
                newest - ranks.next(&mut self.prng).min(newest)
            }
            None => {
                let (since, there) = (self.common.since_start(), self.common.keys.there());
                self.choice.next(&mut self.prng, since, entries, there)
            }
        }
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Get => self.get(),
            Step::Scan => self.scan(),
            Step::Update => {
                let index = self.choose(1);
                self.put(index)
            }
            Step::Insert => {
                // Two readers that insert the same key do no harm: it exists then.
                let index = self.common.keys.end.load(Ordering::Relaxed);
                self.put(index)?;
                self.common.keys.inserted(index);
                Ok(())
            }
            Step::Modify => {
                self.get()?;
                let key = std::mem::take(&mut self.key);
                let put = self.common.db.put_with(&key, self.values.next_value(), self.durability);
                self.key = key;
                put.map_err(write_failed)
            }
        }
    }

    fn get(&mut self) -> Result<(), String> {
        let index = self.choose(1);
        self.common.keys.at(index, &mut self.key);
        let found = self.common.db.get(&self.key).map_err(|e| format!("a get failed: {e}"))?;
        assert!(found.is_some() || self.common.keys.may_miss, "key {index} is not there");
        Ok(())
    }

    fn put(&mut self, index: u64) -> Result<(), String> {
        self.common.keys.at(index, &mut self.key);
        let put = self.common.db.put_with(&self.key, self.values.next_value(), self.durability);
        put.map_err(write_failed)
    }

    /// Reads as many entries as lie in the wanted bytes, from the chosen key on.
    fn scan(&mut self) -> Result<(), String> {
        let load = &self.common.settings.load;
        let entry = (load.key_bytes + load.value_bytes).max(1) as u64;
        let wanted = match self.reads.scan_bytes {
            0 => 1 + self.prng.below(YCSB_SCAN_ENTRIES),
            bytes => bytes / entry,
        };
        let index = self.choose(wanted);
        self.common.keys.at(index, &mut self.key);
        let mut cursor = self.common.db.cursor();
        let mut passed = 0;
        let tables = weir::sim::tables_touched();
        match self.reads.choice {
            ReadChoice::Front => cursor.seek_to_first(),
            _ => cursor.seek(&self.key),
        }
        self.runs = weir::sim::tables_touched() - tables;
        while cursor.valid() && passed < wanted {
            passed += 1;
            weir::sim::work(self.reads.entry_cpu_nanos);
            cursor.next();
        }
        cursor.status().map_err(|e| format!("a scan failed: {e}"))?;
        assert!(passed > 0 || self.common.keys.may_miss, "nothing from key {index} on");
        if let Some(rule) = &self.common.rule {
            rule.scanned(index, index + wanted);
        }
        Ok(())
    }
}

/// Builds the sentinels that the laboratory's rule asks for, until all phases are over.
///
/// # Errors
/// The engine's, as text.
pub fn build_sentinels(common: &Common) -> Result<(), String> {
    let Some(rule) = &common.rule else { return Ok(()) };
    let end: f64 = common.settings.phases.iter().map(|phase| phase.seconds).sum();
    while common.since_start() < nanos(end) && !common.has_failed() {
        rule.build(&common.db, |number| common.keys.bound(number))?;
        common.simulation.delay(Duration::from_nanos(SENTINEL_TICK_NANOS));
    }
    Ok(())
}

/// A group of writers.
pub type Writing = Group<Writes>;

struct Writer<'a> {
    common: &'a Common,
    group: &'a Writing,
    values: Values,
    ranks: Option<(Zipfian, Permutation)>,
    durability: Durability,
    key: Vec<u8>,
}

/// Writes as writer number `number` of its group, until the run ends.
///
/// # Errors
/// The engine's, as text: the run is then worth nothing.
pub fn write(common: &Common, group: &Writing, number: usize) -> Result<(), String> {
    let (settings, writes) = (&common.settings, &group.clients);
    let keys = settings.load.keys.max(1);
    let ranks = || {
        let ranks = Zipfian::with_theta(keys, writes.zipf_theta);
        (ranks, Permutation::new(keys, common.seed))
    };
    let stream = Prng::new(group.seed, WRITER_VALUE_STREAM + number as u64);
    let mut writer = Writer {
        common,
        group,
        values: Values::new(settings.load.value_bytes, 1.0, stream),
        ranks: (writes.choice == WriteChoice::Zipfian).then(ranks),
        durability: store::durability(settings),
        key: Vec::new(),
    };
    for (span, begun) in group.spans.iter().zip(&group.done.begun_in) {
        let left = span.from.saturating_sub(common.since_start());
        common.simulation.delay(Duration::from_nanos(left));
        match writes.pace {
            Loop::Open => writer.write_open(*span, begun)?,
            Loop::Closed => {
                while common.since_start() < span.to && !common.has_failed() {
                    let now = weir::sim::now_nanos();
                    let number = group.done.begin();
                    if !writer.write_one(number, now)? {
                        common.simulation.delay(Duration::from_nanos(EMPTY_NANOS));
                    }
                }
            }
        }
    }
    Ok(())
}

impl Writer<'_> {
    /// Writes what is due in a span; `begun` counts what has been begun of it.
    fn write_open(&mut self, span: Span, begun: &AtomicU64) -> Result<(), String> {
        let common = self.common;
        loop {
            // Without the processor time by which this actor is ahead: ticks are the clock's.
            let since = common.simulation.now_nanos() - common.start_nanos;
            if since >= span.to || common.has_failed() {
                return Ok(());
            }
            let (now, seconds) = (weir::sim::now_nanos(), (since - span.from) as f64 / 1e9);
            let due = (seconds * self.group.clients.per_second) as u64;
            while begun.load(Ordering::Relaxed) < due && common.since_start() < span.to {
                begun.fetch_add(1, Ordering::Relaxed);
                let number = self.group.done.begin();
                self.write_one(number, now)?;
            }
            common.simulation.delay(Duration::from_nanos(WRITER_TICK_NANOS));
        }
    }

    /// Does the write number `number` of the group, which was due at `due`; false if there is
    /// nothing to delete.
    fn write_one(&mut self, number: u64, due: u64) -> Result<bool, String> {
        let (common, writes) = (self.common, &self.group.clients);
        let keys = common.settings.load.keys.max(1);
        let index = match (writes.kind, writes.choice) {
            (WriteKind::Insert, _) => Some(common.keys.next.fetch_add(1, Ordering::Relaxed)),
            (WriteKind::Delete, _) => common.keys.delete(),
            (WriteKind::Update, WriteChoice::Sequential) => Some(number % keys),
            (WriteKind::Update, _) => Some(match &self.ranks {
                Some((ranks, order)) => {
                    let mut prng = Prng::new(self.group.seed, WRITER_RANK_STREAM + number);
                    order.at(ranks.next(&mut prng))
                }
                None => written_key(self.group.seed, number as i64, keys),
            }),
        };
        let Some(index) = index else { return Ok(false) };
        common.keys.at(index, &mut self.key);
        let done = match writes.kind {
            WriteKind::Delete => common.db.delete_with(&self.key, self.durability),
            _ => common.db.put_with(&self.key, self.values.next_value(), self.durability),
        };
        done.map_err(write_failed)?;
        if let Some(rule) = &common.rule {
            rule.written(common.keys.neighbour(index));
        }
        if writes.kind == WriteKind::Insert {
            common.keys.inserted(index);
        }
        weir::sim::work(writes.cpu_nanos);
        self.group.done.note(due, weir::sim::now_nanos());
        Ok(true)
    }
}
