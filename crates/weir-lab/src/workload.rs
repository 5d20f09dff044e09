//! Readers and writers. A reader does gets, scans, or one of YCSB's mixes in a closed loop: it
//! asks again when it has its answer and has spent its processor time. The writer wakes a hundred
//! times a virtual second and writes what is due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir::sim::Simulation;
use weir::{Db, Durability};
use weir_bench::{KeySpace, Prng, Values, Zipfian};

use crate::choice::{Choice, written_key};
use crate::settings::{ReadKind, Settings, WriteChoice};
use crate::store;

/// The stream of the first reader; the others follow.
const READER_STREAM: u64 = 1;

/// The stream of the values that the first reader writes.
const READER_VALUE_STREAM: u64 = 1 << 43;

/// The stream of the values that the writer writes.
const WRITER_VALUE_STREAM: u64 = 1 << 42;

/// Virtual nanoseconds between two wake-ups of the writer.
const WRITER_TICK_NANOS: u64 = 10_000_000;

/// Most entries of a scan of YCSB's workload E.
const YCSB_SCAN_ENTRIES: u64 = 100;

/// What readers and the writer know of their run.
pub struct View<'a> {
    /// The run's options, scaled.
    pub settings: &'a Settings,
    /// Decides everything.
    pub seed: u64,
    /// The store.
    pub db: &'a Db,
    /// Its keys.
    pub keys: KeySpace,
    /// Which of them.
    pub choice: &'a Choice,
    /// When to stop.
    pub end_nanos: u64,
    /// Operations done by all readers.
    pub reads: &'a AtomicU64,
    /// Virtual time that they took.
    pub read_nanos: &'a AtomicU64,
    /// Updates done by the writer.
    pub writes: &'a AtomicU64,
    /// Keys that exist.
    pub inserted: &'a AtomicU64,
}

/// One operation.
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

struct Reader<'a> {
    view: &'a View<'a>,
    prng: Prng,
    values: Values,
    /// For workload D: the newest key is the most popular.
    ranks: Option<Zipfian>,
    durability: Durability,
    key: Vec<u8>,
}

/// Reads until the run ends.
///
/// # Panics
/// If the engine fails or a key that exists is not found: the run is then worth nothing.
pub fn read(view: &View<'_>, number: usize) {
    weir::sim::this_actor_reads();
    let settings = view.settings;
    let number = number as u64;
    let mix = mix(settings.reads.kind);
    let durability = store::durability(settings);
    let latest = settings.reads.kind == ReadKind::YcsbD;
    let mut reader = Reader {
        view,
        prng: Prng::new(view.seed, READER_STREAM + number),
        values: Values::new(
            settings.load.value_bytes,
            1.0,
            Prng::new(view.seed, READER_VALUE_STREAM + number),
        ),
        ranks: latest.then(|| Zipfian::with_theta(settings.load.keys, settings.reads.zipf_theta)),
        durability,
        key: Vec::new(),
    };
    let mut now = weir::sim::now_nanos();
    while now < view.end_nanos {
        let mut draw = reader.prng.below(100);
        let step = mix.iter().find(|(part, _)| {
            let taken = draw < *part;
            draw = draw.wrapping_sub(*part);
            taken
        });
        reader.step(step.map_or(Step::Get, |(_, step)| *step));
        weir::sim::work(settings.reads.cpu_nanos);
        let done = weir::sim::now_nanos();
        view.reads.fetch_add(1, Ordering::Relaxed);
        view.read_nanos.fetch_add(done - now, Ordering::Relaxed);
        now = done;
    }
}

impl Reader<'_> {
    /// The index of an existing key.
    fn choose(&mut self) -> u64 {
        match &self.ranks {
            Some(ranks) => {
                let newest = self.view.inserted.load(Ordering::Relaxed) - 1;
                newest - ranks.next(&mut self.prng).min(newest)
            }
            None => self.view.choice.next(&mut self.prng),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Get => self.get(),
            Step::Scan => self.scan(),
            Step::Update => {
                let index = self.choose();
                self.put(index);
            }
            Step::Insert => {
                let index = self.view.inserted.load(Ordering::Relaxed);
                self.put(index);
                // Two readers that insert the same key do no harm: it exists then.
                self.view.inserted.fetch_max(index + 1, Ordering::Relaxed);
            }
            Step::Modify => {
                self.get();
                let key = std::mem::take(&mut self.key);
                let put = self.view.db.put_with(&key, self.values.next_value(), self.durability);
                put.unwrap_or_else(|e| panic!("a write failed: {e}"));
                self.key = key;
            }
        }
    }

    fn get(&mut self) {
        let index = self.choose();
        self.view.keys.existing(index, &mut self.key);
        let found = self.view.db.get(&self.key).unwrap_or_else(|e| panic!("a get failed: {e}"));
        assert!(found.is_some(), "key {index} is not there");
    }

    fn put(&mut self, index: u64) {
        self.view.keys.existing(index, &mut self.key);
        let put = self.view.db.put_with(&self.key, self.values.next_value(), self.durability);
        put.unwrap_or_else(|e| panic!("a write failed: {e}"));
    }

    /// Reads as many entries as lie in the wanted bytes, from the chosen key on.
    fn scan(&mut self) {
        let settings = self.view.settings;
        let entry = (settings.load.key_bytes + settings.load.value_bytes).max(1) as u64;
        let wanted = match settings.reads.scan_bytes {
            0 => 1 + self.prng.below(YCSB_SCAN_ENTRIES),
            bytes => bytes / entry,
        };
        let index = self.choose();
        self.view.keys.existing(index, &mut self.key);
        let mut cursor = self.view.db.cursor();
        let mut passed = 0;
        cursor.seek(&self.key);
        while cursor.valid() && passed < wanted {
            passed += 1;
            weir::sim::work(settings.reads.entry_cpu_nanos);
            cursor.next();
        }
        cursor.status().unwrap_or_else(|e| panic!("a scan failed: {e}"));
        assert!(passed > 0, "nothing from key {index} on");
    }
}

/// Writes what is due from `from` on until the run ends.
///
/// # Panics
/// If the engine fails: the run is then worth nothing.
pub fn write(view: &View<'_>, simulation: &Simulation, from: u64) {
    let settings = &view.settings;
    let durability = store::durability(settings);
    let stream = Prng::new(view.seed, WRITER_VALUE_STREAM);
    let mut values = Values::new(settings.load.value_bytes, 1.0, stream);
    let (mut key, mut done) = (Vec::new(), 0u64);
    simulation.delay(Duration::from_nanos(from.saturating_sub(simulation.now_nanos())));
    loop {
        let now = simulation.now_nanos();
        if now >= view.end_nanos {
            return;
        }
        let due = ((now - from) as f64 / 1e9 * settings.writes.per_second) as u64;
        while done < due {
            let index = match settings.writes.choice {
                WriteChoice::Uniform => {
                    written_key(view.seed, done as i64, settings.load.keys.max(1))
                }
            };
            view.keys.existing(index, &mut key);
            let put = view.db.put_with(&key, values.next_value(), durability);
            put.unwrap_or_else(|e| panic!("a write failed: {e}"));
            weir::sim::work(settings.writes.cpu_nanos);
            done += 1;
            view.writes.fetch_add(1, Ordering::Relaxed);
        }
        simulation.delay(Duration::from_nanos(WRITER_TICK_NANOS));
    }
}
