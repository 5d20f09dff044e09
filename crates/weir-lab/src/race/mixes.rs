//! Traces of YCSB's core workloads and of a scan beside reads, on a real store in memory.
//!
//! One client; the engine's own threads flush and merge, so that two traces differ slightly.

use weir::sim::{CacheObserver, MemDir};
use weir::{Db, DbOptions, Durability, Options, WarmUp};
use weir_bench::{KeyFormat, KeySpace, Latest, Permutation, Prng, ScrambledZipfian, Values};

/// What one client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// YCSB's A, B, C, D, E, F.
    Ycsb(char),
    /// Reads of scrambled Zipfian keys, and one scan over all keys after the other between them.
    Scans,
    /// Reads of uniform keys.
    Uniform,
}

impl Mix {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Ycsb('a'),
        Self::Ycsb('b'),
        Self::Ycsb('c'),
        Self::Ycsb('d'),
        Self::Ycsb('e'),
        Self::Ycsb('f'),
        Self::Scans,
        Self::Uniform,
    ];

    /// The name of its trace.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Ycsb(letter) => format!("ycsb-{letter}"),
            Self::Scans => "scans".to_owned(),
            Self::Uniform => "uniform".to_owned(),
        }
    }

    /// Operations of a hundred that write.
    fn writes(self) -> u64 {
        match self {
            Self::Ycsb('a' | 'f') => 50,
            Self::Ycsb('b' | 'd' | 'e') => 5,
            _ => 0,
        }
    }
}

/// Keys of a store.
const KEYS: u64 = 400_000;

/// The cache's part of the data, 48 MiB with its keys: a sixth.
pub const CACHE_BYTES: u64 = 8 << 20;

/// Entries of the long scan that are read between two reads of the mix `Scans`.
const SCAN_STEP: usize = 50;

/// The store, its keys, and what the client draws from.
struct Client {
    db: Db,
    keys: KeySpace,
    values: Values,
    prng: Prng,
    zipfian: ScrambledZipfian,
    latest: Latest,
    count: u64,
    key: Vec<u8>,
}

/// Runs `operations` of `mix`, whose cache is told to `observer` once the store is loaded.
///
/// # Errors
/// The engine's, as text.
pub fn run(mix: Mix, operations: u64, observer: CacheObserver) -> Result<(), String> {
    let text = |e: weir::Error| e.to_string();
    let dir = MemDir::new("the store of a mix");
    let options = Options::default()
        .write_buffer_bytes(2 << 20)
        .table_bytes(2 << 20)
        .warm_up(WarmUp::HandOff);
    let store = || DbOptions::default().memory_budget(1 << 30).block_cache_bytes(Some(CACHE_BYTES));
    let open = || Db::builder("mix").device(dir.dir()).seed(1).options(store());
    let keys = KeySpace::new(KEYS, 16, KeyFormat::Decimal);
    let mut values = Values::new(100, 1.0, Prng::new(1, 1));
    let (order, mut key) = (Permutation::new(KEYS, 1), Vec::new());
    {
        let db = open().default_options(options).open().map_err(text)?;
        for place in 0..KEYS {
            keys.existing(order.at(place), &mut key);
            db.put_with(&key, values.next_value(), Durability::None).map_err(text)?;
        }
        db.compact_range(..).map_err(text)?;
    }
    let db = open().cache_observer(observer).open().map_err(text)?;
    let (zipfian, latest) = (ScrambledZipfian::new(KEYS), Latest::new(KEYS));
    let prng = Prng::new(1, 2);
    let mut client = Client { db, keys, values, prng, zipfian, latest, count: KEYS, key };
    if mix == Mix::Scans { client.scans(operations) } else { client.mixed(mix, operations) }
}

impl Client {
    fn draw(&mut self, mix: Mix) {
        let index = match mix {
            Mix::Ycsb('d') => self.latest.next(&mut self.prng, self.count),
            Mix::Uniform => self.prng.below(KEYS),
            _ => self.zipfian.next(&mut self.prng),
        };
        self.keys.existing(index, &mut self.key);
    }

    fn mixed(&mut self, mix: Mix, operations: u64) -> Result<(), String> {
        let text = |e: weir::Error| e.to_string();
        for _ in 0..operations {
            let writes = self.prng.below(100) < mix.writes();
            if writes && matches!(mix, Mix::Ycsb('d' | 'e')) {
                self.keys.existing(self.count, &mut self.key);
                self.count += 1;
            } else {
                self.draw(mix);
            }
            if writes {
                if mix == Mix::Ycsb('f') {
                    self.db.get(&self.key).map_err(text)?;
                }
                let value = self.values.next_value();
                self.db.put_with(&self.key, value, Durability::None).map_err(text)?;
            } else if mix == Mix::Ycsb('e') {
                let entries = 1 + self.prng.below(100) as usize;
                for entry in self.db.range(self.key.clone()..).take(entries) {
                    entry.map_err(text)?;
                }
            } else {
                self.db.get(&self.key).map_err(text)?;
            }
        }
        Ok(())
    }

    fn scans(&mut self, operations: u64) -> Result<(), String> {
        let text = |e: weir::Error| e.to_string();
        let db = self.db.clone();
        let mut scan = db.iter();
        for _ in 0..operations {
            self.draw(Mix::Scans);
            self.db.get(&self.key).map_err(text)?;
            for _ in 0..SCAN_STEP {
                match scan.next() {
                    Some(entry) => drop(entry.map_err(text)?),
                    None => scan = db.iter(),
                }
            }
        }
        Ok(())
    }
}
