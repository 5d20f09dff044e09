//! What asynchronous commits may cost others: bounded memory, bounded work for a leader.
#![cfg(feature = "sim")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weir::sim::{
    Effect, Fault, FaultyDir, FileClass, OpKind, SimDisk, SimOptions, Simulation, Times,
};
use weir::{Commit, Db, Durability, LeveledOptions, Options, WriteBatch};

/// A store whose every log write takes `stall_millis` of virtual time.
fn open(write_buffer_bytes: u64, stall_millis: u64) -> Db {
    let faulty = FaultyDir::over_disk(&SimDisk::new(SimOptions::default()));
    let faults = faulty.faults();
    let options = Options::default()
        .write_buffer_bytes(write_buffer_bytes)
        .compaction(LeveledOptions::default().l0_trigger(1000));
    let db = Db::builder("sim")
        .default_options(options)
        .memory_budget(64 << 20)
        .log_area_bytes(64 << 20)
        .background_threads(1)
        .seed(1)
        .device(Arc::new(faulty))
        .open()
        .unwrap();
    faults.arm(Fault {
        op: Some(OpKind::Write),
        class: Some(FileClass::Wal),
        after: 0,
        times: Times::Forever,
        effect: Effect::Stall(stall_millis),
    });
    db
}

fn commit(db: &Db, key: &[u8], n: u32, bytes: usize) -> Commit {
    let mut value = vec![0; bytes];
    value[..4].copy_from_slice(&n.to_be_bytes());
    let mut batch = WriteBatch::new();
    batch.put(db.default_keyspace(), key, value);
    db.commit(batch, Durability::Buffered)
}

fn last_value(db: &Db, key: &[u8]) -> u32 {
    let value = db.get(key).unwrap().expect("the key was written");
    u32::from_be_bytes(value[..4].try_into().unwrap())
}

/// Goal: while a leader is held up by the device, `commit` does not pile up batches without end.
/// Method: a device on which every log write takes long; after each commit, the bytes of those that
/// are not done are at most what waits (one write buffer) and what the leader has taken (the same).
#[test]
fn commits_behind_a_slow_leader_are_bounded() {
    const BUFFER: u64 = 64 << 10;
    for seed in 0..10 {
        println!("seed {seed}");
        Simulation::run(seed, move |sim| {
            sim.set_switch_every(4);
            let db = open(BUFFER, 10);
            let leading = db.clone();
            let leader = sim.spawn("leader", move || {
                (0..20_u32).for_each(|n| leading.put(b"leader", n.to_be_bytes()).unwrap());
            });
            let mut commits: Vec<Commit> = Vec::new();
            let mut worst = 0;
            for n in 0..600 {
                commits.push(commit(&db, b"key", n, 1000));
                commits.retain(|commit| !commit.is_done());
                worst = worst.max(commits.len() as u64 * 1000);
            }
            assert!(worst <= 2 * BUFFER, "seed {seed}: {worst} bytes waited");
            for commit in commits {
                commit.wait().unwrap();
            }
            assert!(leader.unwrap().join());
            assert_eq!(last_value(&db, b"key"), 599, "seed {seed}");
            db.close().unwrap();
        });
    }
}

/// Goal: a thread that leads hands over after a bounded amount of others' work, and so does one
/// that waits for the lead; batches of one thread keep their order all the same.
/// Method: three actors commit so fast that the line is never empty; each, and a fourth that writes
/// and flushes, counts what the others committed before it was let go.
#[test]
fn a_leader_hands_over() {
    const COMMITS: u32 = 6000;
    for seed in 0..4 {
        println!("seed {seed}");
        Simulation::run(seed, move |sim| {
            sim.set_switch_every(8);
            let db = open(4 << 20, 1);
            let (committed, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
            let committers: Vec<_> = (0..3_u8)
                .map(|actor| {
                    let (db, own_sim) = (db.clone(), sim.clone());
                    let (committed, stop) = (Arc::clone(&committed), Arc::clone(&stop));
                    let body = move || {
                        let mut last = 0;
                        for n in 1..=COMMITS {
                            if stop.load(Ordering::SeqCst) {
                                break;
                            }
                            let before = committed.load(Ordering::SeqCst);
                            commit(&db, &[actor], n, 1000).on_done(|done| done.unwrap());
                            let meanwhile = committed.load(Ordering::SeqCst) - before;
                            assert!(meanwhile <= 3 << 20, "seed {seed}: led for {meanwhile} bytes");
                            committed.fetch_add(1000, Ordering::SeqCst);
                            own_sim.delay(Duration::from_micros(100));
                            last = n;
                        }
                        commit(&db, &[actor], last + 1, 1000).wait().unwrap();
                        assert_eq!(last_value(&db, &[actor]), last + 1, "actor {actor}");
                    };
                    sim.spawn("committer", body)
                })
                .collect();
            sim.delay(Duration::from_millis(5));
            for round in 0..2 {
                let before = committed.load(Ordering::SeqCst);
                if round == 0 {
                    db.put(b"mine", b"value").unwrap();
                } else {
                    db.flush().unwrap();
                }
                let meanwhile = committed.load(Ordering::SeqCst) - before;
                assert!(meanwhile <= 3 << 20, "seed {seed}, round {round}: {meanwhile} bytes");
            }
            stop.store(true, Ordering::SeqCst);
            for committer in committers {
                assert!(committer.unwrap().join(), "seed {seed}");
            }
            db.close().unwrap();
        });
    }
}

/// Goal: batches of one thread take effect in the order in which it brought them, whatever their
/// durability; the later write of a key is the one that stays.
/// Method: while another actor holds the lead on a slow device, one actor commits batches to one
/// key that do and do not go to the log, in turns, and waits for the last.
#[test]
fn unlogged_commits_keep_their_place() {
    for seed in 0..10 {
        println!("seed {seed}");
        Simulation::run(seed, move |sim| {
            sim.set_switch_every(4);
            let db = open(1 << 20, 10);
            let leading = db.clone();
            let leader = sim.spawn("leader", move || {
                (0..20_u32).for_each(|n| leading.put(b"leader", n.to_be_bytes()).unwrap());
            });
            for n in 0..200_u32 {
                let durability = if n % 2 == 0 { Durability::None } else { Durability::Buffered };
                let mut batch = WriteBatch::new();
                batch.put(db.default_keyspace(), b"key", n.to_be_bytes());
                let last = db.commit(batch, durability);
                if [1, 8].contains(&(n % 10)) {
                    last.wait().unwrap();
                    assert_eq!(last_value(&db, b"key"), n, "seed {seed}");
                }
            }
            assert!(leader.unwrap().join());
            db.close().unwrap();
        });
    }
}
