//! Protocols between threads, explored: the real code in simulation, with a switch point before
//! every atomic operation (`base::atomic`) and at every lock, under many seeds.
//!
//! `cargo test -p weir-db --features schedules --lib schedules`; `WEIR_SCHEDULES` is the number of
//! seeds per test. A failure names its seed.
//!
//! What is explored: list and index of the memtable; the visible sequence number; tickets and the
//! hand-over of the lead; super-versions and what the reclaimer frees under readers; generations of
//! the row cache; what stops writers and lets them go on; lookups beside a drop; tables that are
//! closed under lookups; blocks that leave a cache under a hit (`cache`); readers that share a read
//! (`flights`); scans that leap beside puts (`gaps`); merges that wait for a cursor beside
//! publications (`idle`); snapshots that go from thread to thread (`snapshots`). Facts about order
//! are kept in plain atomics beside the store: what was acknowledged before a read began must be
//! seen by it, and what had not
//! begun must not.

mod cache;
mod flights;
mod gaps;
mod idle;
mod snapshots;

use crate::base::ids::level;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::base::cursor::Cursor;
use crate::base::key::{Kind, SEQ_MAX};
use crate::base::prng::Prng;
use crate::base::sched::sim::{Settings, Simulation};
use crate::base::sched::{Thread, spawn};
use crate::device::sim::{SimDisk, SimOptions};
use crate::memtable::Memtable;
use crate::{
    CompactionPolicy, Db, DbOptions, DebugOptions, Durability, Keyspace, LeveledOptions, Options,
    WriteBatch,
};

/// Seeds per test unless `WEIR_SCHEDULES` says otherwise: enough for each bug of the museum that
/// names one of these tests.
const SEEDS: u64 = 100;

/// Runs in level 0, more than nine: where writers are stopped if one makes a merge due.
const RUNS: u64 = 12;

/// Who weighs level 0 at once. The bug of `stopped_writers_go_on` shows in one seed of a hundred
/// with two of them, in one of ten with six.
const WEIGHERS: usize = 6;

/// Runs `body` under many seeds, with switches from rare to at every operation.
fn explore(body: impl Fn(Prng) + Send + Sync + 'static) {
    let seeds = std::env::var("WEIR_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    let body = Arc::new(body);
    for seed in 0..seeds {
        // In two of three seeds somebody is put off for long, again and again: in turns or in time.
        let often = 20 + seed % 5 * 40;
        let (hold_one_in, pause_one_in) = [(0, 0), (often, 0), (0, often * 4)][seed as usize % 3];
        let switch_every = 1 + seed % 7;
        let settings = Settings { switch_every, hold_one_in, pause_one_in, ..Settings::new(seed) };
        let body = Arc::clone(&body);
        let outcome = Simulation::run_with(settings, move |_| body(Prng::new(seed)));
        outcome.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// Starts an actor; a panic in it ends the simulation.
fn actor(name: &str, body: impl FnOnce() + Send + 'static) -> Thread {
    spawn(name, body).expect("an actor can be started")
}

fn shuffled(prng: &mut Prng, count: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..count).collect();
    for i in (1..all.len()).rev() {
        all.swap(i, prng.below(i as u64 + 1) as usize);
    }
    all
}

fn key_of(n: u64) -> Vec<u8> {
    // A long common part, so that pages skip bytes and make their heads anew.
    format!("a common beginning {n:05}").into_bytes()
}

/// Keys and their number in the list before the exploration begins: one page is nearly full.
const BEFORE: u64 = 28;
const WRITERS: u64 = 2;
const PER_WRITER: u64 = 24;

/// Goal: a reader of a memtable sees every entry whose insert was over when its search began, in
/// order, whatever the state of the index. Method: two writers split pages while two readers get,
/// seek and scan in both directions.
#[test]
fn list_and_index() {
    explore(|mut prng| {
        let memtable = Arc::new(Memtable::new(4096));
        let total = BEFORE + WRITERS * PER_WRITER;
        let order = shuffled(&mut prng, total);
        for (seq, &n) in order.iter().take(BEFORE as usize).enumerate() {
            memtable.insert(&key_of(n), seq as u64 + 1, Kind::Put, &n.to_le_bytes());
        }
        // How many of its keys each writer has inserted.
        let done: Arc<[AtomicUsize; WRITERS as usize]> = Arc::default();
        let order = Arc::new(order);
        let mut actors = Vec::new();
        let part = |order: &[u64], writer: u64| -> Vec<u64> {
            let start = (BEFORE + writer * PER_WRITER) as usize;
            order[start..start + PER_WRITER as usize].to_vec()
        };
        for writer in 0..WRITERS {
            let (memtable, done) = (Arc::clone(&memtable), Arc::clone(&done));
            let mine = part(&order, writer);
            actors.push(actor("writer", move || {
                for (i, n) in mine.into_iter().enumerate() {
                    let seq = BEFORE + writer * PER_WRITER + i as u64 + 1;
                    memtable.insert(&key_of(n), seq, Kind::Put, &n.to_le_bytes());
                    done[writer as usize].fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
        for reader in 0..2u64 {
            let (memtable, done) = (Arc::clone(&memtable), Arc::clone(&done));
            let parts: Vec<Vec<u64>> = (0..WRITERS).map(|writer| part(&order, writer)).collect();
            let before = order[..BEFORE as usize].to_vec();
            let mut prng = Prng::new(prng.next_u64() ^ reader);
            actors.push(actor("reader", move || {
                // As long as anybody writes, and once more.
                let mut over = false;
                while !std::mem::replace(
                    &mut over,
                    done.iter().all(|done| done.load(Ordering::SeqCst) == PER_WRITER as usize),
                ) {
                    let written = parts
                        .iter()
                        .zip(&*done)
                        .flat_map(|(part, done)| &part[..done.load(Ordering::SeqCst)]);
                    let known: Vec<u64> = before.iter().chain(written).copied().collect();
                    let n = known[prng.below(known.len() as u64) as usize];
                    read_memtable(&memtable, n, &known, prng.below(4));
                }
            }));
        }
        actors.into_iter().for_each(|actor| assert!(actor.join()));
        let mut cursor = memtable.cursor();
        cursor.seek_to_first();
        for n in 0..total {
            assert!(cursor.valid() && cursor.key() == key_of(n), "{n} is in its place");
            cursor.next();
        }
        assert!(!cursor.valid());
    });
}

/// One read of one kind: `n` is there, and so is all that is `known`.
fn read_memtable(memtable: &Arc<Memtable>, n: u64, known: &[u64], how: u64) {
    let key = key_of(n);
    let mut cursor = memtable.cursor();
    match how {
        0 => assert!(memtable.get(&key, SEQ_MAX).is_some_and(|f| f.value == n.to_le_bytes())),
        1 => {
            cursor.seek(&key, SEQ_MAX);
            assert!(cursor.valid() && cursor.key() == key, "seek to {n}");
            // Backwards from there: strictly smaller, and nothing that was known is left out.
            let mut smaller = known.iter().filter(|&&other| other < n).count();
            let mut last = key;
            cursor.prev();
            while cursor.valid() {
                assert!(cursor.key() < last.as_slice(), "backwards is in order");
                last = cursor.key().to_vec();
                smaller -= usize::from(known.iter().any(|&k| key_of(k) == last));
                cursor.prev();
            }
            assert_eq!(smaller, 0, "backwards from {n} leaves known keys out");
        }
        2 => {
            cursor.seek_for_prev(&key, 0);
            assert!(cursor.valid() && cursor.key() == key, "seek backwards to {n}");
        }
        _ => {
            let mut met = 0;
            let mut last = Vec::new();
            cursor.seek_to_first();
            while cursor.valid() {
                assert!(cursor.key() > last.as_slice(), "a scan is in order");
                last = cursor.key().to_vec();
                met += usize::from(known.iter().any(|&k| key_of(k) == last));
                cursor.next();
            }
            assert_eq!(met, known.len(), "a scan leaves known keys out");
        }
    }
}

/// Keys of the stores below, each with two counters: the version whose write has begun, and the one
/// that is acknowledged.
const KEYS: usize = 6;

#[derive(Default)]
struct Facts {
    begun: [AtomicU64; KEYS],
    acknowledged: [AtomicU64; KEYS],
    /// Who still writes, flushes or compacts.
    writers: AtomicUsize,
}

impl Facts {
    /// Calls `read` for key `k`, which must give a version between what was acknowledged before and
    /// what has begun after.
    fn check(&self, k: usize, what: &str, read: impl FnOnce(&[u8]) -> u64) -> u64 {
        let least = self.acknowledged[k].load(Ordering::SeqCst);
        let found = read(&store_key(k));
        let most = self.begun[k].load(Ordering::SeqCst);
        assert!(
            (least..=most).contains(&found),
            "{what} of key {k}: version {found}, acknowledged {least}, begun {most}"
        );
        found
    }
}

fn store_key(k: usize) -> Vec<u8> {
    format!("key {k}").into_bytes()
}

fn long_value(version: u64, bytes: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(bytes, 0);
    value
}

fn version(value: Option<crate::Value>) -> u64 {
    value.and_then(|v| v.first_chunk::<8>().map(|b| u64::from_le_bytes(*b))).unwrap_or(0)
}

/// A store whose memtables hold a handful of entries, so that freezing, flushing, merging and
/// reclaiming go on all the time.
fn small_store(seed: u64, row_cache_bytes: u64) -> Db {
    let disk = SimDisk::new(SimOptions::default());
    let options = Options::default()
        .debug(DebugOptions::default().write_buffer_entries(5))
        .compaction(LeveledOptions::default().l0_trigger(2));
    open_small_store(&disk, seed, DbOptions { row_cache_bytes, ..DbOptions::default() }, options)
}

fn open_small_store(disk: &SimDisk, seed: u64, store: DbOptions, keyspace: Options) -> Db {
    let store = DbOptions {
        memory_budget: 1 << 20,
        background_threads: 2,
        log_segment_bytes: 8 << 10,
        ..store
    };
    let mut keyspace = keyspace.block_bytes(512).table_bytes(1 << 10);
    if let CompactionPolicy::Leveled(leveled) = &mut keyspace.compaction {
        leveled.base_level_bytes = 1 << 10;
    }
    let builder = Db::builder("schedules").device(disk.dir()).seed(seed);
    builder.options(store).default_options(keyspace).open().expect("a new store opens")
}

/// Writes version after version of the keys `mine`, alone and in batches, in every way.
fn write_versions(db: &Db, facts: &Facts, mine: &[usize], prng: &mut Prng, count: u64) {
    write_long_versions(db, facts, mine, prng, count, 8);
}

/// The same in values of `bytes` bytes.
fn write_long_versions(
    db: &Db,
    facts: &Facts,
    mine: &[usize],
    prng: &mut Prng,
    count: u64,
    bytes: usize,
) {
    for _ in 0..count {
        let together = prng.chance(1, 2);
        let chosen: Vec<usize> = match prng.below(mine.len() as u64) {
            one if !together => vec![mine[one as usize]],
            _ => mine.to_vec(),
        };
        let mut batch = WriteBatch::new();
        for &k in &chosen {
            let next = facts.begun[k].fetch_add(1, Ordering::SeqCst) + 1;
            batch.put(db.default_keyspace(), store_key(k), long_value(next, bytes));
        }
        let durability = [Durability::Sync, Durability::Buffered][prng.below(2) as usize];
        let written = if prng.chance(1, 3) {
            db.commit(batch, durability).wait()
        } else {
            db.write(batch, durability)
        };
        written.expect("a sound store takes writes");
        for &k in &chosen {
            facts.acknowledged[k].store(facts.begun[k].load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }
}

/// Reads in every way, for as long as anybody writes.
fn read_versions(db: &Db, facts: &Facts, prng: &mut Prng) {
    let default: &Keyspace = db.default_keyspace();
    while facts.writers.load(Ordering::SeqCst) > 0 {
        let k = prng.below(KEYS as u64) as usize;
        match prng.below(8) {
            0..6 => {
                let get = |key: &[u8]| version(db.get(key).expect("a get answers"));
                let first = facts.check(k, "get", get);
                let second = facts.check(k, "get", get);
                assert!(first <= second, "key {k} went back from {first} to {second}");
            }
            6 => {
                let snapshot = db.snapshot();
                let read =
                    |key: &[u8]| version(snapshot.get(default, key).expect("a snapshot answers"));
                let then = read(&store_key(k));
                let scanned = |key: &[u8]| {
                    let pairs = snapshot.range(default, key.to_vec()..);
                    let first = pairs.into_iter().next();
                    let pair = first.map(|pair| pair.expect("a scan goes on"));
                    version(pair.filter(|(found, _)| found[..] == *key).map(|(_, value)| value))
                };
                let key = store_key(k);
                assert_eq!((read(&key), scanned(&key)), (then, then), "a snapshot does not move");
            }
            _ => {
                facts.check(k, "scan", |key| {
                    let pairs = db.iter().map(|pair| pair.expect("a scan goes on"));
                    let mut found = pairs.filter(|(found, _)| found[..] == *key);
                    version(found.next().map(|(_, value)| value))
                });
            }
        }
    }
}

/// Two writers, two readers and someone who flushes and compacts, on one store.
fn explore_store(row_cache_bytes: u64) {
    explore(move |mut prng| {
        let db = small_store(prng.next_u64(), row_cache_bytes);
        let facts: Arc<Facts> = Arc::default();
        facts.writers.store(3, Ordering::SeqCst);
        let mut actors = Vec::new();
        for mine in [[0usize, 1, 2], [3, 4, 5]] {
            let (db, facts) = (db.clone(), Arc::clone(&facts));
            let mut prng = Prng::new(prng.next_u64());
            actors.push(actor("writer", move || {
                write_versions(&db, &facts, &mine, &mut prng, 14);
                facts.writers.fetch_sub(1, Ordering::SeqCst);
            }));
        }
        for _ in 0..2 {
            let (db, facts) = (db.clone(), Arc::clone(&facts));
            let mut prng = Prng::new(prng.next_u64());
            actors.push(actor("reader", move || read_versions(&db, &facts, &mut prng)));
        }
        let (other, written) = (db.clone(), Arc::clone(&facts));
        actors.push(actor("compactor", move || {
            for _ in 0..3 {
                other.flush().expect("a flush");
                other.compact_range(..).expect("a compaction");
            }
            written.writers.fetch_sub(1, Ordering::SeqCst);
        }));
        actors.into_iter().for_each(|actor| assert!(actor.join()));
        for k in 0..KEYS {
            let last = facts.begun[k].load(Ordering::SeqCst);
            facts.check(k, "the last get", |key| version(db.get(key).expect("a get answers")));
            assert_eq!(facts.acknowledged[k].load(Ordering::SeqCst), last);
        }
        assert!(db.verify().expect("verify reads").damages.is_empty());
        db.close().expect("a sound store closes");
    });
}

/// Goal: no read misses what was acknowledged before it began, none sees what has not begun, a
/// snapshot does not move, every writer is answered. Method: memtables of five entries, so that
/// super-versions change with every few writes.
#[test]
fn super_versions_and_tickets() {
    explore_store(0);
}

/// Goal: the same with rows cached: a flush and a lookup that began before it meet in every order.
#[test]
fn row_generations() {
    explore_store(64 << 10);
}

/// Rounds of the test below, and what each writer does in one.
const ROUNDS: u64 = 12;
const TURNS: u64 = 2;

/// Goal: every writer is answered, exactly once and in the order of its own writes, however the
/// lead goes from hand to hand. Method: four writers of single records, callbacks and waits mixed,
/// while others ask for the lead alone (`sync`, `flush`). All of them end before the next round
/// begins: whoever leads later would also serve one that was forgotten, and hide it.
#[test]
fn the_lead_is_handed_over() {
    explore(|mut prng| {
        let db = small_store(prng.next_u64(), 0);
        let answered: Arc<AtomicU64> = Arc::default();
        for round in 0..ROUNDS {
            let mut actors = Vec::new();
            for writer in 0..4u64 {
                let (db, answered) = (db.clone(), Arc::clone(&answered));
                let mut prng = Prng::new(prng.next_u64());
                actors.push(actor("writer", move || {
                    (0..TURNS).for_each(|turn| {
                        write_once(&db, writer, round * TURNS + turn, &answered, prng.below(4));
                    });
                }));
            }
            // Not always: they serve who was forgotten, too.
            if prng.chance(1, 3) {
                for flushes in [false, true] {
                    let db = db.clone();
                    actors.push(actor("lead", move || {
                        if flushes { db.flush() } else { db.sync() }.expect("the lead alone");
                    }));
                }
            }
            actors.into_iter().for_each(|actor| assert!(actor.join()));
        }
        db.close().expect("a sound store closes");
        let all = 4 * ROUNDS * TURNS;
        assert_eq!(answered.load(Ordering::SeqCst), all, "every write is answered once");
    });
}

/// Writes `turn` for a writer, in one of several ways.
fn write_once(db: &Db, writer: u64, turn: u64, answered: &Arc<AtomicU64>, how: u64) {
    let mut batch = WriteBatch::new();
    let key = format!("writer {writer}");
    batch.put(db.default_keyspace(), &key, turn.to_le_bytes());
    if how == 0 {
        let answered = Arc::clone(answered);
        db.commit(batch, Durability::Buffered).on_done(move |outcome| {
            outcome.expect("a sound store takes writes");
            answered.fetch_add(1, Ordering::SeqCst);
        });
        return;
    }
    let durability = [Durability::Sync, Durability::Buffered][how as usize % 2];
    db.write(batch, durability).expect("a sound store takes writes");
    answered.fetch_add(1, Ordering::SeqCst);
    let found = version(db.get(&key).expect("a get answers"));
    assert_eq!(found, turn, "writer {writer} reads its own write");
}

/// Property: writers that a deep level 0 has stopped go on once it is not deep any more. Method: a
/// store is opened whose level 0 is as deep as stops writers, and is merged while others weigh it
/// again and again. Whoever sets what an old root called for stops the last writer for ever: a
/// deadlock, which the simulation sees.
#[test]
fn stopped_writers_go_on() {
    explore(|mut prng| {
        let disk = SimDisk::new(SimOptions::default());
        let fill = Options::default()
            .debug(DebugOptions::default().write_buffer_entries(1))
            .compaction(LeveledOptions::default().l0_trigger(1000));
        let db = open_small_store(&disk, 0, DbOptions::default(), fill.clone());
        for turn in 0..RUNS {
            db.put(key_of(prng.below(20)), turn.to_le_bytes()).expect("a sound store takes writes");
        }
        db.close().expect("a sound store closes");
        let db = open_small_store(&disk, 0, DbOptions::default(), fill);
        let merge = LeveledOptions::default().base_level_bytes(1 << 10).l0_trigger(1);
        let options = db.default_keyspace().options().compaction(merge);
        db.default_keyspace().set_options(options).expect("a sound store takes options");
        let weighers = [(); WEIGHERS].map(|()| {
            let (engine, other) = (Arc::clone(&db.handle.engine), Arc::clone(&db.handle.engine));
            let is_deep = move || {
                let root = engine.set.current();
                root.keyspaces.iter().any(|k| k.version.levels()[level(0)].runs().count() > 1)
            };
            actor("weigher", move || {
                while is_deep() {
                    other.update_pressure()
                }
            })
        });
        weighers.into_iter().for_each(|weigher| assert!(weigher.join()));
        db.wait_idle().expect("merges go on");
        db.put("last", "value").expect("a sound store takes writes");
        db.close().expect("a sound store closes");
    });
}

/// Property: a point lookup beside the drop of its keyspace gives the value or says that the
/// keyspace was dropped; never that there is none. Method: readers in every way while it is
/// dropped, with its keys in memtables and in tables.
#[test]
fn reads_beside_a_drop() {
    explore(|mut prng| {
        let db = small_store(prng.next_u64(), 0);
        for round in 1..5u64 {
            let name = format!("dropped {round}");
            let space = db.create_keyspace(&name, Options::default()).expect("a creation");
            for n in 0..4 {
                space.put(key_of(n), round.to_le_bytes()).expect("a put");
            }
            if round % 2 == 0 {
                space.flush().expect("a flush");
            }
            let readers = [(); 2].map(|()| {
                let (space, n) = (space.clone(), prng.below(4));
                actor("reader", move || {
                    let told = |found: crate::Result<Option<crate::Value>>| match found {
                        Ok(found) => assert_eq!(version(found), round, "it is there"),
                        Err(error) => assert_eq!(error.kind(), crate::ErrorKind::Closed),
                    };
                    for _ in 0..6 {
                        told(space.get(key_of(n)));
                        let many = space.multi_get(&[key_of(n)]);
                        told(many.map(|found| found.into_iter().next().flatten()));
                    }
                })
            });
            db.drop_keyspace(&name).expect("a drop");
            readers.into_iter().for_each(|reader| assert!(reader.join()));
        }
        db.close().expect("a sound store closes");
    });
}

/// Keys of the test below that nobody writes to, each alone in a table, and the files that may be
/// open.
const STILL: u64 = 6;
const OPEN_MAX: usize = 4;

/// Goal: what a lookup looks at of a table stays until the lookup is over, though the table is
/// closed meanwhile, and whoever opens a table finds it as it was. Method: every value fills a
/// table and no block is cached, so that each read opens a table and closes others, while flushes
/// and merges put new ones in their place.
#[test]
fn lookups_beside_closings() {
    explore(|mut prng| {
        let disk = SimDisk::new(SimOptions::default());
        let store = DbOptions {
            open_files_max: Some(OPEN_MAX),
            block_cache_bytes: Some(0),
            ..DbOptions::default()
        };
        let options = Options::default()
            .debug(DebugOptions::default().write_buffer_entries(5))
            .compaction(LeveledOptions::default().l0_trigger(2));
        let db = open_small_store(&disk, prng.next_u64(), store, options);
        for n in 0..STILL {
            db.put(key_of(n), long_value(n, 1100)).expect("a put");
        }
        db.flush().expect("a flush");
        db.compact_range(..).expect("a compaction");
        let tables: u64 = db.metrics().keyspaces[0].levels.iter().map(|level| level.tables).sum();
        assert!(tables > OPEN_MAX as u64, "only {tables} tables");
        let facts: Arc<Facts> = Arc::default();
        facts.writers.store(2, Ordering::SeqCst);
        let mut actors = Vec::new();
        let (other, written, mut own) =
            (db.clone(), Arc::clone(&facts), Prng::new(prng.next_u64()));
        actors.push(actor("writer", move || {
            write_long_versions(&other, &written, &[0, 1, 2, 3, 4, 5], &mut own, 8, 1100);
            written.writers.fetch_sub(1, Ordering::SeqCst);
        }));
        let (other, written) = (db.clone(), Arc::clone(&facts));
        actors.push(actor("compactor", move || {
            other.flush().expect("a flush");
            other.compact_range(..).expect("a compaction");
            written.writers.fetch_sub(1, Ordering::SeqCst);
        }));
        let (other, written, mut own) =
            (db.clone(), Arc::clone(&facts), Prng::new(prng.next_u64()));
        actors.push(actor("reader", move || read_versions(&other, &written, &mut own)));
        for _ in 0..4 {
            let (db, facts) = (db.clone(), Arc::clone(&facts));
            let mut prng = Prng::new(prng.next_u64());
            actors.push(actor("reader of what is still", move || {
                while facts.writers.load(Ordering::SeqCst) > 0 {
                    for _ in 0..4 {
                        let n = prng.below(STILL);
                        let found = db.get(key_of(n)).expect("a get answers");
                        assert_eq!(found.as_deref(), Some(&long_value(n, 1100)[..]), "get of {n}");
                    }
                    let n = prng.below(STILL);
                    let keys = [n, prng.below(STILL)].map(key_of);
                    let found = db.multi_get(&keys).expect("a multi_get answers");
                    assert!(found.iter().all(|found| found.is_some()), "multi_get from {n} on");
                }
            }));
        }
        actors.into_iter().for_each(|actor| assert!(actor.join()));
        db.wait_idle().expect("merges go on");
        let open = db.metrics().tables_open as usize;
        assert!(open <= OPEN_MAX, "{open} files are open, and nobody reads");
        db.close().expect("a sound store closes");
    });
}
