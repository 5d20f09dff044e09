//! The row cache: it changes no answer (H53).

mod tiny;

use std::collections::BTreeMap;

use weir::{Db, Keyspace, Snapshot};

use tiny::tiny;

/// A fixed sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// One way of reading one key, chosen by a number.
fn read(keyspace: &Keyspace, key: &[u8], way: u64) -> Option<Vec<u8>> {
    match way {
        0 => {
            let mut buf = vec![1];
            keyspace.get_into(key, &mut buf).expect("get_into").then_some(buf)
        }
        1 => keyspace.multi_get(&[key]).expect("multi_get").remove(0).map(|v| v.to_vec()),
        _ => keyspace.get(key).expect("get").map(|v| v.to_vec()),
    }
}

fn check_snapshot(snapshot: &(Snapshot, Model), keyspace: &Keyspace, key: &[u8]) {
    let expected = snapshot.1.get(key).map(Vec::as_slice);
    assert_eq!(snapshot.0.get(keyspace, key).expect("get").as_deref(), expected);
    let several = snapshot.0.multi_get(keyspace, &[key]).expect("multi_get");
    assert_eq!(several[0].as_deref(), expected);
}

/// Goal: with a row cache every answer is what it is without one. Method: random operations on few
/// keys, with flushes, merges, snapshots, keyspaces that are dropped and created again, and a row
/// cache that holds a part of the keys, against a sorted map.
#[test]
fn answers_agree_with_the_model() {
    const KEYS: u64 = 400;
    for seed in 1..=2 {
        println!("seed {seed}");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let builder = Db::builder(dir.path().join("db")).memory_budget(1 << 20);
        let db = builder.row_cache_bytes(32 << 10).default_options(tiny()).open().expect("open");
        let mut numbers = Numbers(seed);
        let mut side = db.keyspace_with("side", tiny()).expect("keyspace");
        let mut models = [Model::new(), Model::new()];
        let mut snapshot = (db.snapshot(), models[0].clone());
        for i in 0..40_000u64 {
            let which = usize::from(numbers.below(4) == 0);
            let keyspace = if which == 0 { db.default_keyspace().clone() } else { side.clone() };
            let model = &mut models[which];
            let key = format!("key {:04}", numbers.below(KEYS)).into_bytes();
            match numbers.below(100) {
                0..15 => {
                    let value = vec![b'a' + (i % 26) as u8; numbers.below(60) as usize];
                    keyspace.put(&key, &value).expect("put");
                    model.insert(key, value);
                }
                15..20 => {
                    keyspace.delete(&key).expect("delete");
                    model.remove(&key);
                }
                20..99 => {
                    let got = read(&keyspace, &key, numbers.below(4));
                    assert_eq!(got.as_ref(), model.get(&key), "operation {i}, {key:?}");
                    if which == 0 {
                        check_snapshot(&snapshot, &keyspace, &key);
                    }
                }
                _ => match numbers.below(40) {
                    0 => keyspace.compact_range(..).expect("compact_range"),
                    1 => {
                        db.drop_keyspace("side").expect("drop");
                        side = db.keyspace_with("side", tiny()).expect("keyspace");
                        models[1].clear();
                    }
                    2..20 => keyspace.flush().expect("flush"),
                    _ => snapshot = (db.snapshot(), models[0].clone()),
                },
            }
        }
        let metrics = db.metrics();
        let rows = metrics.row_cache;
        assert!(metrics.flushes > 50 && metrics.compactions > 20, "{metrics:?}");
        assert!(rows.hits > 1000 && rows.misses > 1000, "{rows:?}");
        assert!(rows.bytes > 0 && rows.bytes <= rows.capacity, "{rows:?}");
        assert_eq!(metrics.memory.row_cache.div_ceil(16 << 10), rows.bytes.div_ceil(16 << 10));
    }
}

/// Goal: a store without a row cache has none, and one that is too large is refused with a reason.
#[test]
fn off_is_off_and_too_much_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let db = Db::open(&path).expect("open");
    db.put(b"a", b"1").expect("put");
    db.flush().expect("flush");
    assert!(db.get(b"a").expect("get").is_some());
    assert_eq!(db.metrics().row_cache, weir::RowCacheMetrics::default());
    db.close().expect("close");
    let error = Db::builder(&path).memory_budget(1 << 20).row_cache_bytes((1 << 19) + 1).open();
    let error = error.expect_err("more than half of the budget");
    assert!(error.to_string().contains("row_cache_bytes"), "{error}");
}

#[cfg(feature = "sim")]
mod simulated {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use weir::Db;
    use weir::sim::{
        Effect, Fault, FaultyDir, FileClass, OpKind, SimDisk, SimOptions, Simulation, Times,
    };

    /// Goal: nobody reads a value older than one that was acknowledged before the read began,
    /// whatever happens between a flush's steps (H53): the rows of the flushed keys must be gone
    /// before readers see a super-version without the memtable, and what was looked up before must
    /// not be inserted after. Method: one actor overwrites two keys and flushes, two read them all
    /// the time, as slowly as a write and a flush take; every lock and every request is a place to
    /// switch. The values are counters.
    #[test]
    fn reads_never_go_back_in_time() {
        const ROUNDS: u64 = 12;
        let (mut hits, mut refused) = (0, 0);
        for seed in 0..40 {
            let rows = Simulation::run(seed, move |sim| {
                sim.set_switch_every(1 + seed % 3);
                let faulty = FaultyDir::over_disk(&SimDisk::new(SimOptions::default()));
                faulty.faults().arm(Fault {
                    op: Some(OpKind::Read),
                    class: Some(FileClass::Table),
                    after: 0,
                    times: Times::Forever,
                    effect: Effect::Stall(2),
                });
                let db = Db::builder("sim")
                    .default_options(super::tiny())
                    .memory_budget(1 << 20)
                    .row_cache_bytes(64 << 10)
                    .block_cache_bytes(0)
                    .background_threads(1)
                    .seed(seed)
                    .device(Arc::new(faulty))
                    .open()
                    .expect("open");
                let acknowledged = Arc::new(AtomicU64::new(0));
                let readers: Vec<_> = (0..2)
                    .map(|_| {
                        let (db, acknowledged) = (db.clone(), Arc::clone(&acknowledged));
                        let clock = sim.clone();
                        let read = move || {
                            while acknowledged.load(Ordering::SeqCst) < ROUNDS {
                                read_both(&db, &acknowledged);
                                // Time passes only while nobody runs.
                                clock.delay(Duration::from_micros(100));
                            }
                        };
                        sim.spawn("reader", read).expect("an actor")
                    })
                    .collect();
                for round in 1..=ROUNDS {
                    db.put(b"a", round.to_le_bytes()).expect("put");
                    db.put(b"b", round.to_le_bytes()).expect("put");
                    acknowledged.store(round, Ordering::SeqCst);
                    sim.delay(Duration::from_millis(round % 3));
                    db.flush().expect("flush");
                    sim.delay(Duration::from_millis((1 + 3 * (seed % 2)) * (round % 4)));
                }
                readers.into_iter().for_each(|reader| assert!(reader.join()));
                let rows = db.metrics().row_cache;
                db.close().expect("close");
                rows
            });
            hits += rows.hits;
            refused += rows.refused;
        }
        println!("{hits} hits, {refused} refused");
        assert!(hits > 1000 && refused > 20, "{hits} hits, {refused} refused: this tests nothing");
    }

    fn read_both(db: &Db, acknowledged: &AtomicU64) {
        for key in [b"a", b"b"] {
            let before = acknowledged.load(Ordering::SeqCst);
            let value = db.get(key).expect("get").map_or(0, |value| {
                u64::from_le_bytes(value.as_bytes().try_into().expect("eight bytes"))
            });
            assert!(value >= before, "{before} was acknowledged, {value} was read");
        }
    }
}
