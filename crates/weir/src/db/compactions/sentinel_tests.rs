//! A store with sentinels against a map, under every policy.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::clock;
use crate::base::error::{Error, ErrorKind};
use crate::base::prng::Prng;
use crate::heat::moved::MovedRange;
use crate::state::health::closed_error;
use crate::{
    CompactionPolicy, Db, HotRanges, LeveledOptions, Options, PartsOptions, RunsOptions,
    SentinelOptions, Sentinels, Snapshot,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 120;

fn key_of(prng: &mut Prng) -> Vec<u8> {
    format!("{:03}", prng.below(KEYS)).into_bytes()
}

fn policies() -> Vec<CompactionPolicy> {
    let leveled = LeveledOptions::default().l0_trigger(2).base_level_bytes(2 << 10).level_ratio(2);
    let parts = PartsOptions::default().base_level_bytes(1 << 10).level_ratio(2);
    let runs = RunsOptions::default().runs_per_level(3);
    vec![
        CompactionPolicy::Leveled(leveled),
        CompactionPolicy::Gear(parts),
        CompactionPolicy::TwoPhase(parts),
        CompactionPolicy::Tiered(runs),
        CompactionPolicy::LazyLeveled(runs),
        CompactionPolicy::SizeTiered(runs),
        CompactionPolicy::SteppedMerge(runs),
    ]
}

struct Pair {
    db: Db,
    map: Map,
    snapshots: Vec<(Snapshot, Map)>,
    built: u64,
    what: String,
}

impl Pair {
    fn range(prng: &mut Prng) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (a, b) = (key_of(prng), key_of(prng));
        let (low, high) = (a.clone().min(b.clone()), a.max(b));
        let lower = match prng.below(5) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(low),
            _ => Bound::Included(low),
        };
        let upper = match prng.below(5) {
            0 => Bound::Unbounded,
            1 => Bound::Included(high),
            _ => Bound::Excluded(high),
        };
        (lower, upper)
    }

    fn check(&self, prng: &mut Prng) {
        let keyspace = self.db.default_keyspace();
        let key = key_of(prng);
        let got = self.db.get(&key).unwrap().map(|value| value.to_vec());
        assert_eq!(got.as_ref(), self.map.get(&key), "{}: get {key:?}", self.what);
        for (snapshot, map) in &self.snapshots {
            let got = snapshot.get(keyspace, &key).unwrap().map(|value| value.to_vec());
            assert_eq!(got.as_ref(), map.get(&key), "{}: get {key:?} of a snapshot", self.what);
        }
        let keys: Vec<Vec<u8>> = (0..7).map(|_| key_of(prng)).collect();
        let got = self.db.multi_get(&keys).unwrap();
        for (key, got) in keys.iter().zip(got) {
            let got = got.map(|value| value.to_vec());
            assert_eq!(got.as_ref(), self.map.get(key), "{}: multi_get {key:?}", self.what);
        }
        let (lower, upper) = Self::range(prng);
        let is_empty = match (&lower, &upper) {
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
                a >= b
            }
            _ => false,
        };
        if is_empty {
            return;
        }
        let expected: Vec<_> = self.map.range((lower.clone(), upper.clone())).collect();
        let range = (lower, upper);
        let forward: Vec<_> = self.db.range(range.clone()).map(|entry| entry.unwrap()).collect();
        let forward: Vec<_> = forward.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        let forward: Vec<_> = forward.iter().map(|(k, v)| (k, v)).collect();
        assert_eq!(forward, expected, "{}: {range:?}", self.what);
        let backward: Vec<_> = self.db.range(range.clone()).rev().map(|e| e.unwrap()).collect();
        let backward: Vec<_> = backward.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        let backward: Vec<_> = backward.iter().rev().map(|(k, v)| (k, v)).collect();
        assert_eq!(backward, expected, "{}: {range:?} backwards", self.what);
    }

    fn step(&mut self, prng: &mut Prng) {
        match prng.below(100) {
            0..45 => {
                let (key, value) = (key_of(prng), vec![b'v'; prng.below(40) as usize]);
                self.db.put(&key, &value).unwrap();
                self.map.insert(key, value);
            }
            45..60 => {
                let key = key_of(prng);
                self.db.delete(&key).unwrap();
                self.map.remove(&key);
            }
            60..75 => self.check(prng),
            75..83 => self.db.flush().unwrap(),
            83..93 => {
                let range = Self::range(prng);
                let built = self.db.default_keyspace().build_sentinel(range).unwrap();
                self.built += u64::from(built);
                self.check(prng);
            }
            93 => self.db.compact_range(Self::range(prng)).unwrap(),
            94 => self.db.wait_idle().unwrap(),
            95..97 => self.snapshots.push((self.db.snapshot(), self.map.clone())),
            _ if !self.snapshots.is_empty() => {
                let at = prng.below(self.snapshots.len() as u64) as usize;
                drop(self.snapshots.swap_remove(at));
            }
            _ => {}
        }
    }
}

/// Goal: sentinels change no answer: gets, batches, scans in both directions, of the newest state
/// and of snapshots, beside flushes, merges, range compactions and reopening, under every policy.
/// Method: random operations on a store and on a map.
#[test]
fn sentinels_change_no_answer() {
    for (number, policy) in policies().into_iter().enumerate() {
        let mut built = 0;
        for seed in 0..4 {
            let mut prng = Prng::new(seed * 100 + number as u64);
            let dir = tempfile::tempdir().unwrap();
            let sentinels = match seed % 2 {
                0 => Sentinels::Off,
                _ => SentinelOptions::default().window(Duration::from_millis(20)).into(),
            };
            let options = Options::default().compaction(policy).table_bytes(1 << 10);
            let options = options.sentinels(sentinels);
            let open = || {
                let builder = Db::builder(dir.path().join("db"));
                builder.default_options(options.clone()).open().unwrap()
            };
            let what = format!("policy {number}, seed {seed}");
            let mut pair =
                Pair { db: open(), map: Map::new(), snapshots: Vec::new(), built: 0, what };
            for round in 0..3 {
                for _ in 0..250 {
                    pair.step(&mut prng);
                }
                for _ in 0..10 {
                    pair.check(&mut prng);
                }
                if round < 2 {
                    pair.snapshots.clear();
                    pair.db.close().unwrap();
                    pair.db = open();
                }
            }
            let report = pair.db.verify().unwrap();
            assert_eq!(report.damages.len(), 0, "{}", pair.what);
            built += pair.built;
            pair.snapshots.clear();
            pair.db.close().unwrap();
        }
        assert!(built > 10, "policy {number}: {built} sentinels");
    }
}

/// A store of three runs in level 0 and one below, which counts in short windows.
fn layered(dir: &std::path::Path, sentinels: Sentinels) -> Db {
    let sizes = LeveledOptions::default().l0_trigger(8);
    let options = Options::default().compaction(sizes).sentinels(sentinels);
    let db = Db::builder(dir.join("db")).default_options(options).open().unwrap();
    if db.get(b"00000").unwrap().is_some() {
        return db;
    }
    for round in 0..4_u32 {
        for key in 0..3000_u32 {
            db.put(format!("{key:05}"), [round as u8; 200]).unwrap();
        }
        db.flush().unwrap();
        if round == 0 {
            db.compact_range(..).unwrap();
        }
    }
    db.wait_idle().unwrap();
    db
}

fn sentinel_runs(db: &Db) -> usize {
    let keyspace = &db.describe().keyspaces[0];
    keyspace.levels[0].runs.iter().filter(|run| run.sentinel).count()
}

/// Scans a tenth of the keys until `done`, or for a minute; whether it was.
fn scan_until(db: &Db, done: impl Fn(&Db) -> bool) -> bool {
    let until = clock::now_nanos() + 60_000_000_000;
    while clock::now_nanos() < until {
        for _ in 0..200 {
            assert_eq!(db.range(b"01000".as_slice()..b"01300").count(), 300);
        }
        if done(db) {
            return true;
        }
    }
    false
}

/// Goal: a range that is scanned all the time becomes a sentinel without being asked for, what was
/// decided is seen, and the range is read from one run then; with the option off at a reopening the
/// sentinel sinks.
#[test]
fn hot_ranges_move_up_and_sink_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = SentinelOptions::default().window(Duration::from_millis(200));
    let db = layered(dir.path(), options.ways(HotRanges::Up).into());
    // It is counted before it is among those that are described.
    let moved = |db: &Db| !db.describe().keyspaces[0].moved_ranges.is_empty();
    assert!(scan_until(&db, |db| db.metrics().sentinels_built > 0 && moved(db)));
    let described = &db.describe().keyspaces[0];
    let moved = described.moved_ranges.first().expect("a range was moved");
    assert!(moved.up && moved.runs >= 2 && moved.benefit_blocks > moved.cost_blocks, "{moved:?}");
    assert!(sentinel_runs(&db) > 0 && db.metrics().sentinel_bytes_written > 0);
    assert!(db.metrics().io.sentinels.bytes_written > 0);
    // What it saves is seen, too: some of the reads that end there are counted.
    let spared = |db: &Db| db.metrics().keyspaces[0].sentinel_runs_spared;
    assert!(scan_until(&db, |db| spared(db) > 0));
    let stats = db.property("weir.stats").expect("there is such a property");
    assert!(stats.contains("moved up (") && stats.contains("  up of \"default\": "), "{stats}");
    db.close().unwrap();
    let db = layered(dir.path(), Sentinels::Off);
    let off = db.default_keyspace().options().sentinels(Sentinels::Off);
    db.default_keyspace().set_options(off).unwrap();
    db.wait_idle().unwrap();
    assert_eq!(sentinel_runs(&db), 0);
    assert_eq!(db.range(..).count(), 3000);
    db.close().unwrap();
}

/// Goal: a sentinel that the version set refuses rests and is tried again, and costs nobody
/// anything. Method: one that was asked for, then those of a hot range.
#[test]
fn a_refused_sentinel_rests() {
    let dir = tempfile::tempdir().unwrap();
    let options = SentinelOptions::default().window(Duration::from_millis(200));
    let db = layered(dir.path(), options.ways(HotRanges::Up).into());
    let refusals = &db.handle.engine.set.refusals;
    refusals.left.store(1, Ordering::Relaxed);
    let built = db.default_keyspace().build_sentinel("01000".."01300");
    assert_eq!(built.err().map(|error| error.kind()), Some(ErrorKind::Conflict));
    db.put("00000", "1").expect("the store is not poisoned");
    refusals.left.store(1000, Ordering::Relaxed);
    assert!(scan_until(&db, |db| db.metrics().compactions_refused > 1));
    db.put("00000", "2").expect("the store is not poisoned");
    assert_eq!(db.property("weir.background-error").as_deref(), Some(""));
    refusals.left.store(0, Ordering::Relaxed);
    assert!(scan_until(&db, |db| db.metrics().sentinels_built > 0));
    db.close().unwrap();
}

/// Goal: a move that gave way to writers that wait has not failed, and does not rest for longer;
/// one that failed does.
#[test]
fn giving_way_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let db = layered(dir.path(), SentinelOptions::default().into());
    let engine = &db.handle.engine;
    let tree = engine.trees.lock().values().next().cloned().unwrap();
    let failures = |error: Error| {
        let (from, to) = (b"01000".to_vec(), None);
        let (benefit, cost, runs, bytes) = (1.0, 1.0, 2, 1);
        let range = MovedRange { from, to, up: true, benefit, cost, runs, bytes };
        engine.note_moving(&tree, (range, 1), Err(error));
        let looks = engine.jobs.state.lock().heat_looks.clone();
        (db.metrics().jobs_failed, looks[&tree.id].failures)
    };
    assert_eq!(failures(closed_error()), (0, 0));
    let failed = Error::new(ErrorKind::Io, "a test").leaving_nothing_unknown();
    assert_eq!(failures(failed), (1, 1));
    assert_eq!(failures(closed_error()), (1, 1));
    db.close().unwrap();
}

/// Goal: where hot ranges go down, they end in one run below level 0, and none is moved up.
#[test]
fn hot_ranges_move_down() {
    let dir = tempfile::tempdir().unwrap();
    let options = SentinelOptions::default().window(Duration::from_millis(200));
    let db = layered(dir.path(), options.ways(HotRanges::Down).into());
    assert!(scan_until(&db, |db| db.metrics().hot_ranges_merged_down > 0));
    assert_eq!((db.metrics().sentinels_built, sentinel_runs(&db)), (0, 0));
    assert!(!db.describe().keyspaces[0].moved_ranges[0].up);
    db.close().unwrap();
}
