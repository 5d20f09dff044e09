//! Full stores of every kind against a model: what users do to get out loses nothing, and is
//! refused with `NoSpace` or not at all.

#![cfg(feature = "sim")]

use std::collections::BTreeMap;
use std::sync::Arc;

use weir::sim::{Prng, SimDisk, SimOptions};
use weir::{CompactionBuffer, Db, Error, ErrorKind, Keyspace, Options, Sentinels, Snapshot};

mod small_stores;

use small_stores::{KIB, MIB, STORE, Shape, policy};

/// What keys have: a byte, so many times.
type Model = BTreeMap<u64, (u8, usize)>;

/// A kind of store.
#[derive(Debug)]
struct Case {
    shape: Shape,
    has_lists: bool,
    has_sentinels: bool,
    in_slots: bool,
}

impl Case {
    fn random(prng: &mut Prng, which: u64) -> Self {
        let key_bytes = [16, 60, 400][prng.below(3) as usize];
        let (table_kib, buffer_kib) = (64 << prng.below(4), 64 << prng.below(3));
        let policy = policy(prng, which);
        let (has_lists, has_sentinels) = (prng.chance(1, 3), prng.chance(1, 3));
        let in_slots = prng.chance(3, 4);
        let mib = 20 + prng.below(24);
        let keys = [2000, 8000, 1_000_000][prng.below(3) as usize];
        let value_bytes = [200, 2000, 6000][prng.below(3) as usize];
        let shape = Shape { policy, mib, table_kib, buffer_kib, key_bytes, value_bytes, keys };
        Self { shape, has_lists, has_sentinels, in_slots }
    }

    fn options(&self) -> Options {
        let options = self.shape.options();
        let lists = CompactionBuffer::trimmed();
        let options = match self.has_lists && lists.suits(self.shape.policy) {
            true => options.compaction_buffer(lists),
            false => options,
        };
        if self.has_sentinels { options.sentinels(Sentinels::on()) } else { options }
    }

    fn format(&self, disk: &SimDisk) {
        match self.in_slots {
            true => self.shape.format(disk),
            false => disk.set_capacity(Some(self.shape.mib * MIB)),
        }
    }
}

/// A store of one or two keyspaces, and what they and its snapshots must have.
struct Store {
    seed: u64,
    case: Case,
    disk: SimDisk,
    prng: Prng,
    db: Db,
    keyspaces: Vec<Keyspace>,
    models: Vec<Model>,
    snapshots: Vec<(Snapshot, Vec<Model>)>,
    refused: u64,
}

fn open(case: &Case, disk: &SimDisk) -> (Db, Vec<Keyspace>) {
    let builder = Db::builder("simulated").default_options(case.options()).memory_budget(8 * MIB);
    let builder = builder.background_threads(1).seed(1).device(Arc::new(disk.clone()));
    let builder = match case.in_slots {
        true => builder.device_file(STORE),
        false => builder.log_segment_bytes(64 * KIB).log_area_bytes(2 * MIB),
    };
    let db = builder.open().expect("it opens");
    let other = db.keyspace("other").or_else(|_| db.keyspace_with("other", case.options()));
    // There may be no room for another.
    let keyspaces = [db.default_keyspace().clone()].into_iter().chain(other.ok()).collect();
    (db, keyspaces)
}

fn value((byte, bytes): (u8, usize)) -> Vec<u8> {
    vec![byte; bytes]
}

fn no_space(error: &Error) -> bool {
    error.kind() == ErrorKind::NoSpace
}

impl Store {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ 0xabcd_0000);
        let (case, disk) = (Case::random(&mut prng, seed), SimDisk::new(SimOptions::default()));
        println!("seed {seed}: {case:?}");
        case.format(&disk);
        let (db, keyspaces) = open(&case, &disk);
        let models = vec![Model::new(); 2];
        Self { seed, case, disk, prng, db, keyspaces, models, snapshots: Vec::new(), refused: 0 }
    }

    /// Closes the store and opens it again.
    fn reopen(&mut self) {
        self.snapshots.clear();
        self.keyspaces.clear();
        // Whoever has a handle still.
        self.db.clone().close().unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        (self.db, self.keyspaces) = open(&self.case, &self.disk);
    }

    /// Every entry, of the newest state and of snapshots.
    fn check(&self, what: &str) {
        let assert_has = |found: Vec<(Vec<u8>, Vec<u8>)>, model: &Model, of: &str| {
            let expected =
                model.iter().map(|(&number, &v)| (self.case.shape.key(number), value(v)));
            let expected: Vec<(Vec<u8>, Vec<u8>)> = expected.collect();
            let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
            let counts = (found.len(), expected.len());
            assert!(found == expected, "seed {}, {what}: {of}, {counts:?} {differs:?}", self.seed);
        };
        for (keyspace, model) in self.keyspaces.iter().zip(&self.models) {
            let found = keyspace.iter().map(|entry| entry.expect("it is read"));
            assert_has(found.map(|(k, v)| (k.to_vec(), v.to_vec())).collect(), model, "now");
            for (snapshot, models) in &self.snapshots {
                let at = self.keyspaces.iter().position(|k| k.name() == keyspace.name()).unwrap();
                let found = snapshot.iter(keyspace).map(|entry| entry.expect("it is read"));
                let found = found.map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
                assert_has(found, &models[at], "a snapshot");
            }
        }
    }

    /// Writes until something is refused, with snapshots and sentinels in between.
    fn fill(&mut self) {
        for count in 1..60_000 {
            let at = self.prng.below(self.keyspaces.len() as u64) as usize;
            let number = self.prng.below(self.case.shape.keys);
            let new = (
                self.prng.below(256) as u8,
                1 + self.prng.below(self.case.shape.value_bytes) as usize,
            );
            let (keyspace, key) = (&self.keyspaces[at], self.case.shape.key(number));
            let deletes = self.prng.chance(1, 6);
            let done = if deletes { keyspace.delete(&key) } else { keyspace.put(&key, value(new)) };
            let model = &mut self.models[at];
            match done {
                Ok(()) if deletes => model.remove(&number),
                Ok(()) => model.insert(number, new),
                Err(error) => {
                    assert!(no_space(&error), "seed {}: {error}", self.seed);
                    // It may be there.
                    match keyspace.get(&key).expect("it is read") {
                        Some(found) => model.insert(number, (found[0], found.len())),
                        None => model.remove(&number),
                    };
                    self.refused += 1;
                    return;
                }
            };
            if count % 3000 == 0 && self.snapshots.len() < 2 && self.prng.chance(1, 3) {
                self.snapshots.push((self.db.snapshot(), self.models.clone()));
            }
            if self.case.has_sentinels && count % 1000 == 0 {
                let from = self.prng.below(self.case.shape.keys);
                let range =
                    self.case.shape.key(from)..self.case.shape.key(from + self.case.shape.keys / 5);
                let built = self.keyspaces[at].build_sentinel(range);
                assert!(built.is_ok() || built.as_ref().is_err_and(no_space), "{built:?}");
            }
        }
    }

    /// Gives the store another policy.
    fn change_policy(&mut self, which: u64) {
        self.case.shape.policy = policy(&mut self.prng, which);
        println!("seed {}: now {}", self.seed, self.case.shape.policy);
        self.reopen();
        for keyspace in &self.keyspaces {
            let set = keyspace.set_options(self.case.options());
            assert!(set.is_ok() || set.as_ref().is_err_and(no_space), "{set:?}");
        }
    }

    /// Compacts all or a part of a keyspace, and deletes some of it.
    fn compact_and_delete(&mut self) {
        let at = self.prng.below(self.keyspaces.len() as u64) as usize;
        let keyspace = &self.keyspaces[at];
        let from = self.prng.below(self.case.shape.keys);
        let to = from + 1 + self.prng.below(self.case.shape.keys / 2);
        let compacted = match self.prng.chance(1, 2) {
            true => keyspace.compact_range(..),
            false => keyspace.compact_range(self.case.shape.key(from)..self.case.shape.key(to)),
        };
        assert!(
            compacted.is_ok() || compacted.as_ref().is_err_and(no_space),
            "seed {}: {compacted:?}\n{}",
            self.seed,
            self.db.property("weir.levels").expect("it has levels")
        );
        self.check("compacted");
        let (prng, model) = (&mut self.prng, &mut self.models[at]);
        let some: Vec<u64> = model.keys().copied().filter(|_| prng.chance(1, 8)).collect();
        for number in some {
            match self.keyspaces[at].delete(self.case.shape.key(number)) {
                Ok(()) => model.remove(&number),
                Err(error) => {
                    assert!(no_space(&error), "seed {}: {error}", self.seed);
                    return;
                }
            };
        }
    }
}

/// Fills a store, gets out, and fills it again.
fn run(seed: u64) {
    let mut store = Store::new(seed);
    for round in 0..3 {
        store.fill();
        let _ = store.db.wait_idle();
        store.check("full");
        if store.prng.chance(1, 2) {
            store.change_policy(seed / 7 + round);
        }
        for step in 0..5 {
            store.compact_and_delete();
            if step == 2 {
                store.snapshots.clear();
            }
        }
        store.reopen();
        store.check("opened again");
        let _ = store.db.wait_idle();
        let damages = store.db.verify().expect("it is read").damages;
        assert!(damages.is_empty(), "seed {seed}, {}: {damages:?}", store.case.shape.policy);
    }
    println!("seed {seed}: {} times full", store.refused);
    store.keyspaces.clear();
    store.db.close().expect("it is closed");
}

/// Goal: on a full store of any policy, in slots or not, with sentinels, lists, snapshots and other
/// options than those that it was filled with, compactions and deletes lose nothing, are refused
/// for space only, and leave a tree in form. Method: random stores against a model; the first ones
/// met levels of several runs, into the newest of which a compaction of the oldest ones wrote. And
/// as many others as `WEIR_FULL_STORES` says.
#[test]
fn full_stores_have_what_their_models_have() {
    let count = std::env::var("WEIR_FULL_STORES").map_or(0, |count| count.parse().unwrap());
    for seed in [18, 115].into_iter().chain(0..count) {
        run(seed);
    }
}
