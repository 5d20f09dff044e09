//! One store of one policy, filled and overwritten, and everything about it that is counted.
//!
//! The store lies in a real directory and has real threads. One background thread, and the writer
//! waits for rest after every flush: what is done in which order depends on nothing but the seed.
//! Every number is taken at rest. Not here: what is expected (`expect`).
//!
//! What a read sees is counted by the engine: without filters, every run that may have the key
//! costs a look into the block cache, and nothing else does.

use weir::{
    Builder, CompactionPolicy, Compression, Db, DbOptions, Durability, LevelMetrics,
    LeveledOptions, Metrics, Options, RunsOptions,
};
use weir_bench::{KeyFormat, KeySpace, Permutation, Prng, Values};

use super::case::Case;

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;

/// Bytes of a value.
pub(super) const VALUE_BYTES: usize = 100;

/// Tables per write buffer: small ones, so that few are only half covered by a merge.
pub(super) const TABLES_PER_BUFFER: u64 = 8;

/// A write buffer may hold this many times the bytes of its keys and values before the engine
/// freezes it on its own: more than its index and its links need.
const ROOM: u64 = 2;

/// Reads of each kind at every rest.
const READS: u64 = 32;

/// Parts of the key range whose density is compared.
const BINS: usize = 16;

/// Flushes between two looks at the density: every table is described for one.
const DENSITY_EVERY: u64 = 7;

/// The streams of the generators.
const VALUE_STREAM: u64 = 1;
const READ_STREAM: u64 = 2;
const OVERWRITE_STREAM: u64 = 3;

/// Mean and maximum of what is seen at every rest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    sum: f64,
    count: u64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
        self.max = self.max.max(value);
    }

    /// The mean; 0 of nothing.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}

/// One level over a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Level {
    /// Its runs at rest.
    pub runs: Spread,
    /// Its bytes at rest, in write buffers.
    pub buffers: Spread,
    /// Bytes that merges wrote into it per byte that flushes wrote.
    pub written: f64,
    /// The same at the last rest.
    pub end: f64,
    /// Its bytes over those of one write buffer, at rests where it is the first in use below level
    /// 0 and flushes go there.
    pub over_flush: Spread,
    /// Its bytes over those of the level above, at the other rests where it is in use.
    pub over_level: Spread,
    /// The same, where a write buffer has just come to the level above.
    pub over_fed_level: Spread,
    /// Its fullest sixteenth of the key range over its average one, at rests where it has at least
    /// as many tables.
    pub peak: Spread,
}

/// What was counted over one phase of a store: its fill, or its overwriting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    /// Write buffers flushed.
    pub flushes: u64,
    /// Bytes that merges wrote per byte that flushes wrote.
    pub writes: f64,
    /// Bytes that merges read per byte that flushes wrote.
    pub merge_reads: f64,
    /// Tables that were moved and not rewritten.
    pub moves: u64,
    /// Runs that a get of an absent key looked into.
    pub absent_get: Spread,
    /// Runs that a get of a key looked into until it found it.
    pub present_get: Spread,
    /// Runs that a seek looked into.
    pub seek: Spread,
    /// Runs of the tree.
    pub runs: Spread,
    /// Entries in tables per entry that is alive.
    pub space: Spread,
    /// Runs of the levels in use when that was greatest, from the top.
    pub fullest: Vec<u64>,
    /// Bytes of the tables per byte of living keys and values, at the end.
    pub bytes_per_live_byte: f64,
    /// The levels, from 0 on.
    pub levels: Vec<Level>,
}

/// A store that is being measured.
struct Bench {
    db: Db,
    keys: KeySpace,
    /// In which order the keys come in the fill.
    order: Permutation,
    values: Values,
    reads: Prng,
    /// Entries of a write buffer.
    entries: u64,
    /// Keys of the whole fill.
    all: u64,
    /// Keys that are in the store.
    live: u64,
}

fn text(error: weir::Error) -> String {
    error.to_string()
}

fn options(case: &Case, entries: u64) -> Options {
    let buffer_bytes = entries * (KEY_BYTES + VALUE_BYTES) as u64;
    // Levels begin at one write buffer, as in the formulas.
    let sizes = LeveledOptions::default().level_ratio(case.t).base_level_bytes(1 << 10);
    let runs = CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(case.t as usize));
    Options::default()
        .write_buffer_bytes(ROOM * buffer_bytes)
        .compaction(case.policy.with_options_of(sizes.l0_trigger(1).into()).with_options_of(runs))
        .table_bytes((buffer_bytes / TABLES_PER_BUFFER).max(1 << 10))
        .bloom_bits([0.0])
        .compression([Compression::None])
}

impl Bench {
    fn open(builder: Builder, case: &Case, entries: u64, seed: u64) -> Result<Self, String> {
        let store = DbOptions::default().background_threads(1);
        let builder = builder.seed(seed).options(store).default_options(options(case, entries));
        let db = builder.open().map_err(text)?;
        let all = case.buffers * entries;
        Ok(Self {
            db,
            keys: KeySpace::new(all, KEY_BYTES, KeyFormat::Binary),
            order: Permutation::new(all, seed),
            values: Values::new(VALUE_BYTES, 1.0, Prng::new(seed, VALUE_STREAM)),
            reads: Prng::new(seed, READ_STREAM),
            entries,
            all,
            live: 0,
        })
    }

    /// Puts the next write buffer of new keys.
    fn fill(&mut self) -> Result<(), String> {
        let mut key = Vec::new();
        for place in self.live..self.live + self.entries {
            self.keys.existing(self.order.at(place), &mut key);
            let value = self.values.next_value();
            self.db.put_with(&key, value, Durability::None).map_err(text)?;
        }
        self.live += self.entries;
        Ok(())
    }

    /// Puts a write buffer of any keys that are there.
    fn overwrite(&mut self, prng: &mut Prng) -> Result<(), String> {
        let mut key = Vec::new();
        for _ in 0..self.entries {
            self.keys.existing(prng.below(self.live), &mut key);
            let value = self.values.next_value();
            self.db.put_with(&key, value, Durability::None).map_err(text)?;
        }
        Ok(())
    }

    /// Runs that each of some gets or seeks looked into, on average.
    fn looks(
        &mut self,
        absent: bool,
        read: impl Fn(&Db, &[u8]) -> Result<(), String>,
    ) -> Result<f64, String> {
        let before = self.lookups();
        let mut key = Vec::new();
        for _ in 0..READS {
            let number = self.order.at(self.reads.below(self.live));
            if absent {
                self.keys.missing(number, &mut key);
            } else {
                self.keys.existing(number, &mut key);
            }
            read(&self.db, &key)?;
        }
        Ok((self.lookups() - before) as f64 / READS as f64)
    }

    fn lookups(&self) -> u64 {
        let cache = self.db.metrics().cache_foreground;
        cache.hits + cache.misses
    }

    /// A rest: what is there, and what reads see of it.
    fn look(&mut self, phase: &mut Phase) -> Result<(), String> {
        let get = |expected: bool| {
            move |db: &Db, key: &[u8]| match db.get(key).map_err(text)? {
                found if found.is_some() == expected => Ok(()),
                _ => Err(format!("a key that is there is not, or the reverse: {key:02x?}")),
            }
        };
        let seek = |db: &Db, key: &[u8]| {
            let mut cursor = db.cursor();
            cursor.seek(key);
            cursor.status().map_err(text)
        };
        phase.absent_get.add(self.looks(true, get(false))?);
        phase.present_get.add(self.looks(false, get(true))?);
        phase.seek.add(self.looks(true, seek)?);
        let metrics = self.db.metrics();
        let levels = levels(&metrics);
        let buffer_bytes = metrics.bytes_written.flush as f64 / metrics.flushes.max(1) as f64;
        let mut above: Option<f64> = None;
        for (i, (level, now)) in phase.levels.iter_mut().zip(levels).enumerate() {
            let buffers = now.bytes as f64 / buffer_bytes;
            level.runs.add(now.runs as f64);
            level.buffers.add(buffers);
            level.end = buffers;
            if i == 0 || now.runs == 0 {
                continue;
            }
            match above.replace(buffers) {
                None => level.over_flush.add(buffers),
                Some(above) => {
                    level.over_level.add(buffers / above);
                    level.over_fed_level.add(buffers / (above + 1.0));
                }
            }
        }
        let sum = |what: fn(&LevelMetrics) -> u64| levels.iter().map(what).sum::<u64>() as f64;
        phase.runs.add(sum(|level| level.runs));
        let space = sum(|level| level.entries) / self.live as f64;
        if space > phase.space.max {
            phase.fullest = levels.iter().map(|l| l.runs).filter(|&runs| runs > 0).collect();
        }
        phase.space.add(space);
        let live_bytes = self.live as f64 * (KEY_BYTES + VALUE_BYTES) as f64;
        phase.bytes_per_live_byte = sum(|level| level.bytes) / live_bytes;
        Ok(())
    }

    /// How much fuller the fullest part of each level is than the average one. Keys are uniform, so
    /// a table's bytes lie evenly between its first and its last key.
    fn look_at_density(&self, phase: &mut Phase) {
        let mut key = Vec::new();
        self.keys.existing(self.all - 1, &mut key);
        let whole = number(&key).max(1) as f64;
        let description = self.db.describe();
        let Some(keyspace) = description.keyspaces.first() else { return };
        for (level, now) in phase.levels.iter_mut().zip(&keyspace.levels) {
            let tables = || now.runs.iter().flat_map(|run| &run.tables);
            if tables().count() < BINS {
                continue;
            }
            let mut bins = [0.0f64; BINS];
            for table in tables() {
                let place = |key: &[u8]| number(key) as f64 / whole * BINS as f64;
                let (from, to) = (place(&table.smallest), place(&table.largest));
                let density = table.bytes as f64 / (to - from).max(1e-9);
                for (bin, sum) in bins.iter_mut().enumerate() {
                    let (start, end) = (bin as f64, bin as f64 + 1.0);
                    *sum += density * (to.min(end) - from.max(start)).max(0.0);
                }
            }
            let most = bins.iter().copied().fold(0.0, f64::max);
            level.peak.add(most / (bins.iter().sum::<f64>() / BINS as f64));
        }
    }

    /// Flushes `flushes` write buffers that `put` fills, waits for rest after each, and looks. What
    /// it did is counted; `done` is called after each.
    fn phase(
        &mut self,
        flushes: u64,
        mut put: impl FnMut(&mut Self) -> Result<(), String>,
        done: &dyn Fn(),
    ) -> Result<Phase, String> {
        let before = self.db.metrics();
        let mut phase = Phase { flushes, ..Phase::default() };
        phase.levels.resize(levels(&before).len(), Level::default());
        for flush in 0..flushes {
            put(self)?;
            self.db.flush().map_err(text)?;
            self.db.wait_idle().map_err(text)?;
            self.look(&mut phase)?;
            if flush % DENSITY_EVERY == 0 {
                self.look_at_density(&mut phase);
            }
            done();
        }
        let after = self.db.metrics();
        if after.flushes - before.flushes != flushes {
            return Err("a write buffer was flushed before it was full".into());
        }
        let flushed = (after.bytes_written.flush - before.bytes_written.flush) as f64;
        let merged = after.bytes_written.compaction - before.bytes_written.compaction;
        let read = after.compaction_bytes_read - before.compaction_bytes_read;
        phase.writes = merged as f64 / flushed;
        phase.merge_reads = read as f64 / flushed;
        phase.moves = after.trivial_moves - before.trivial_moves;
        for (i, level) in phase.levels.iter_mut().enumerate() {
            let written = |m: &Metrics| levels(m).get(i).map_or(0, |l| l.compacted_bytes);
            level.written = (written(&after) - written(&before)) as f64 / flushed;
        }
        Ok(phase)
    }
}

/// The levels of the only keyspace.
fn levels(metrics: &Metrics) -> &[LevelMetrics] {
    metrics.keyspaces.first().map_or(&[], |keyspace| &keyspace.levels)
}

/// The number that a key begins with.
fn number(key: &[u8]) -> u64 {
    key.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The phases of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// New keys in random order, from an empty store on.
    pub fill: Phase,
    /// The same keys again, any of them at any time, once each level has what it will have; `None`
    /// if the case has no such part.
    pub overwrite: Option<Phase>,
}

/// Measures `case` on a new store that `builder` opens, with write buffers of `entries` entries;
/// `done` is called after each flush.
///
/// # Errors
/// The engine's, as text; a read whose answer is wrong.
pub fn measure(
    builder: Builder,
    case: &Case,
    entries: u64,
    seed: u64,
    done: &dyn Fn(),
) -> Result<Measured, String> {
    let mut bench = Bench::open(builder, case, entries, seed)?;
    let fill = bench.phase(case.buffers, Bench::fill, done)?;
    let mut overwrite = None;
    if case.overwrites > 0 {
        let mut prng = Prng::new(seed, OVERWRITE_STREAM);
        // The form that the fill left is forgotten first.
        bench.phase(case.buffers, |bench| bench.overwrite(&mut prng), done)?;
        let steady = bench.phase(case.overwrites, |bench| bench.overwrite(&mut prng), done)?;
        overwrite = Some(steady);
    }
    bench.db.close().map_err(text)?;
    Ok(Measured { fill, overwrite })
}
