//! Every workload on an engine that is a map: what is written, what is found, and that it is the
//! same every time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weir_bench::{
    Batch, Config, Counters, Engine, EngineKind, KeyFormat, Progress, Result, Session, Settings,
    Workload,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the test can see of a store after it was closed.
#[derive(Default)]
struct Seen {
    map: Mutex<Map>,
    syncs: AtomicU64,
    idle_waits: AtomicU64,
    batches: AtomicU64,
    /// A hash over every operation and its key, in order; meaningful with one thread only.
    trace: AtomicU64,
}

impl Seen {
    fn note(&self, operation: u64, key: &[u8]) {
        let mut hash = self.trace.load(Ordering::Relaxed) ^ operation;
        for &byte in key {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.trace.store(hash, Ordering::Relaxed);
    }

    fn map(&self) -> std::sync::MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct MapEngine(Arc<Seen>);

impl Engine for MapEngine {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.note(1, key);
        self.0.map().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.syncs.fetch_add(1, Ordering::Relaxed);
        self.put(key, value)
    }

    fn put_batch(&self, batch: &Batch) -> Result<()> {
        self.0.batches.fetch_add(1, Ordering::Relaxed);
        batch.iter().try_for_each(|(key, value)| self.put(key, value))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.0.note(2, key);
        self.0.map().remove(key);
        Ok(())
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0.note(3, key);
        Ok(self.0.map().get(key).map(|value| visit(value)).is_some())
    }

    fn scan(&self, start: &[u8], count: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.0.note(4, start);
        let map = self.0.map();
        let entries = map.range(start.to_vec()..).take(count as usize);
        Ok(entries.inspect(|(key, value)| visit(key, value)).count() as u64)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn wait_idle(&self) -> Result<()> {
        self.0.idle_waits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct MapKind(Arc<Seen>);

impl EngineKind for MapKind {
    fn name(&self) -> &'static str {
        "map"
    }

    fn open(&self, _dir: &Path, _settings: &Settings) -> Result<Box<dyn Engine>> {
        Ok(Box::new(MapEngine(Arc::clone(&self.0))))
    }

    fn destroy(&self, _dir: &Path) -> Result<()> {
        self.0.map().clear();
        Ok(())
    }
}

fn config() -> Config {
    Config { num: 2000, value_bytes: 20, ..Config::default() }
}

/// Runs `workload` on an empty store.
fn run(workload: Workload, config: &Config) -> (Arc<Seen>, weir_bench::Measurement) {
    let kind = MapKind::default();
    let mut session =
        Session::new(&kind, Path::new("/nowhere"), Settings::default(), config.clone(), false)
            .expect("the configuration is valid");
    let measured = session.run(workload, &Progress::default()).expect("a map does not fail");
    session.close().expect("a map closes");
    (kind.0, measured)
}

/// Goal: every workload does what its name says, with one thread and with three. Method: counts of
/// operations, answers and keys afterwards.
#[test]
fn every_workload_does_its_operations() {
    for threads in [1, 3] {
        for workload in Workload::ALL {
            let config = Config { threads, ..config() };
            let (seen, m) = run(workload, &config);
            let name = format!("{workload} with {threads} threads: {m:?}");
            let keys = seen.map().len() as u64;
            let ops = match workload {
                Workload::FillSync => 20,
                Workload::ReadSeq => 2000 * threads as u64,
                _ => 2000,
            };
            assert_eq!(m.ops, ops, "{name}");
            assert!(m.seconds > 0.0 && m.seconds_drained >= m.seconds, "{name}");
            match workload {
                Workload::FillSync => assert!(keys <= 20, "{name}"),
                // Several clients may take the same entries.
                Workload::Queue if threads > 1 => assert!(keys >= 2000, "{name}"),
                Workload::YcsbD | Workload::YcsbE => assert!(keys > 2000, "{name}"),
                _ => assert_eq!(keys, 2000, "{name}"),
            }
            match workload {
                Workload::ReadMissing => assert_eq!((m.found, m.missing), (0, 2000), "{name}"),
                Workload::ReadSeq => assert_eq!(m.scanned, ops, "{name}"),
                Workload::SeekRandom => assert!(m.scanned > 19_000, "{name}"),
                Workload::YcsbD if threads > 1 => {}
                _ => assert_eq!(m.missing, 0, "{name}"),
            }
            assert_eq!(seen.syncs.load(Ordering::Relaxed) > 0, workload == Workload::FillSync);
            assert_eq!(m.user_bytes > 0, workload.writes(), "{name}");
            assert_eq!(m.latency.contains_key("background_write"), m.background_ops > 0);
            let latencies: u64 = m.latency.values().map(|l| l.count).sum();
            assert!(latencies > 0, "{name}");
        }
    }
}

/// Goal: the seed fixes every operation and value. Method: a hash over the operations of one client
/// and the map afterwards, twice with one seed and once with another.
#[test]
fn the_seed_fixes_everything() {
    for workload in Workload::ALL {
        if workload.has_background_writer() {
            continue;
        }
        let other = Config { seed: 43, ..config() };
        let (a, b, c) =
            (run(workload, &config()).0, run(workload, &config()).0, run(workload, &other).0);
        assert_eq!(a.trace.load(Ordering::Relaxed), b.trace.load(Ordering::Relaxed), "{workload}");
        assert_eq!(*a.map(), *b.map(), "{workload}");
        assert_ne!(*a.map(), *c.map(), "{workload}");
    }
}

/// Goal: batches write the same keys as single puts. Method: both into a map, with a batch size
/// that does not divide the number of keys.
#[test]
fn batches_write_every_key() {
    for threads in [1, 3] {
        let config = Config { batch: 7, threads, ..config() };
        let (seen, m) = run(Workload::FillRandom, &config);
        assert_eq!(seen.map().len(), 2000);
        assert_eq!(m.ops, 2000);
        assert!(seen.batches.load(Ordering::Relaxed) >= 2000 / 7);
    }
}

/// Goal: a session loads once, starts over for a fill, and drains after writes only. Method: the
/// number of waits after each workload.
#[test]
fn a_session_loads_once() {
    let kind = MapKind::default();
    let mut session =
        Session::new(&kind, Path::new("/nowhere"), Settings::default(), config(), false)
            .expect("the configuration is valid");
    let mut run = |workload| {
        session.run(workload, &Progress::default()).expect("a map does not fail");
        kind.0.idle_waits.load(Ordering::Relaxed)
    };
    assert_eq!(run(Workload::ReadRandom), 1, "loading drains");
    assert_eq!(run(Workload::ReadHot), 1, "reading has nothing to drain");
    assert_eq!(run(Workload::Overwrite), 2);
    assert_eq!(run(Workload::FillSync), 3);
    assert_eq!(run(Workload::YcsbC), 4, "fillsync emptied it: loaded again");
}

/// Goal: a run ends early when it is told to. Method: stop before the start, and a time limit on
/// more operations than fit.
#[test]
fn a_run_can_be_stopped() {
    let kind = MapKind::default();
    let config = Config { ops: u64::MAX >> 8, seconds: Some(0.05), ..config() };
    let mut session =
        Session::new(&kind, Path::new("/nowhere"), Settings::default(), config, false)
            .expect("the configuration is valid");
    let progress = Progress::default();
    let m = session.run(Workload::ReadRandom, &progress).expect("a map does not fail");
    assert!(m.ops > 0 && m.seconds < 30.0);
    progress.stop();
    let m = session.run(Workload::Overwrite, &progress).expect("a map does not fail");
    assert_eq!(m.ops, 0);
}

/// Goal: what runs before the measured time is not measured, and reads other keys. Method: the
/// measured operations of a run with and without it, and the hash of all operations.
#[test]
fn warming_is_not_measured() {
    let warmed = Config { warm_seconds: 0.02, ..config() };
    let ((plain, a), (seen, b)) =
        (run(Workload::ReadRandom, &config()), run(Workload::ReadRandom, &warmed));
    assert_eq!((a.ops, a.found), (b.ops, b.found));
    assert_ne!(plain.trace.load(Ordering::Relaxed), seen.trace.load(Ordering::Relaxed));
    assert_eq!(run(Workload::FillRandom, &warmed).1.ops, config().num);
}

/// Goal: the writer beside the readers keeps to its rate. Method: a rate that a map exceeds by far;
/// the number of writes is bounded by the time that passed, however slow the machine is.
#[test]
fn a_background_writer_keeps_to_its_rate() {
    let kind = MapKind::default();
    let config = Config { ops: u64::MAX >> 8, seconds: Some(0.1), write_rate: 2_000, ..config() };
    let mut session =
        Session::new(&kind, Path::new("/nowhere"), Settings::default(), config, false)
            .expect("the configuration is valid");
    let progress = Progress::default();
    let m = session.run(Workload::ReadWhileWriting, &progress).expect("a map does not fail");
    // A write may come a millisecond early; the writer may see the end 10 milliseconds late.
    let most = (m.seconds + 0.1) * 2_000.0 + 1.0;
    assert!(m.background_ops > 0 && (m.background_ops as f64) <= most, "{m:?}");
}

/// Goal: a configuration outside its ranges is refused with the field's name. Method: one of each.
#[test]
fn wrong_configurations_are_refused() {
    let base = Config::default();
    let wrong = [
        ("num", Config { num: 0, ..base.clone() }),
        ("threads", Config { threads: 0, ..base.clone() }),
        ("key-size", Config { key_bytes: 7, ..base.clone() }),
        ("key-size", Config { key_bytes: 15, key_format: KeyFormat::Decimal, ..base.clone() }),
        ("value-size", Config { value_bytes: usize::MAX, ..base.clone() }),
        ("compressibility", Config { compressibility: f64::NAN, ..base.clone() }),
        ("batch", Config { batch: 0, ..base.clone() }),
        ("batch", Config { batch: 1000, value_bytes: 2 << 20, ..base.clone() }),
        ("seconds", Config { seconds: Some(-1.0), ..base.clone() }),
        ("warm-seconds", Config { warm_seconds: f64::INFINITY, ..base.clone() }),
    ];
    for (name, config) in wrong {
        let error = config.validate().expect_err(name).to_string();
        assert!(error.contains(name), "{error}");
    }
    base.validate().expect("the defaults are valid");
    assert!("fillrandom".parse::<Workload>().is_ok());
    assert!("fill".parse::<Workload>().expect_err("no such name").to_string().contains("ycsb-a"));
}
