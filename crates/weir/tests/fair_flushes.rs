//! Flushes of several keyspaces with one background thread: nobody waits for a queue that never
//! empties, and the log keeps to its area meanwhile.
#![cfg(feature = "sim")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir::sim::{
    Effect, Fault, FaultyDir, FileClass, OpKind, SimDisk, SimOptions, Simulation, Times,
};
use weir::{Db, Durability, LeveledOptions, Options};

const AREA: u64 = 1 << 20;
const BUFFER: u64 = 32 << 10;
const IMMUTABLES_MAX: usize = 4;

fn options() -> Options {
    Options::default()
        .write_buffer_bytes(BUFFER)
        .immutables_max(IMMUTABLES_MAX)
        .compaction(LeveledOptions::default().l0_trigger(1000))
}

/// A store whose tables take 5 ms of virtual time to sync, so that the log is always faster.
fn open() -> Db {
    let faulty = FaultyDir::over_disk(&SimDisk::new(SimOptions::default()));
    let faults = faulty.faults();
    let db = Db::builder("sim")
        .default_options(options())
        .memory_budget(64 << 20)
        .log_segment_bytes(64 << 10)
        .log_area_bytes(AREA)
        .background_threads(1)
        .seed(1)
        .device(Arc::new(faulty))
        .open()
        .unwrap();
    faults.arm(Fault {
        op: Some(OpKind::Sync),
        class: Some(FileClass::Table),
        after: 0,
        times: Times::Forever,
        effect: Effect::Stall(5),
    });
    db
}

/// What a writer of `default` does until it is told to stop, but at most `bytes_max`.
fn write(db: &Db, stop: &AtomicBool, bytes_max: u64) -> u64 {
    let mut bytes = 0;
    while bytes < bytes_max && !stop.load(Ordering::SeqCst) {
        db.put((bytes % 977).to_be_bytes(), [7; 1000]).unwrap();
        bytes += 1000;
    }
    bytes
}

/// Goal: the flush of one keyspace waits for what was frozen before it, not for all that another
/// keyspace goes on to freeze; keyspaces used to be asked in the order of their numbers.
#[test]
fn a_queue_that_never_empties_starves_nobody() {
    for seed in 0..5 {
        println!("seed {seed}");
        Simulation::run(seed, move |sim| {
            let db = open();
            let other = db.keyspace_with("other", options()).unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let (writing, stopped) = (db.clone(), Arc::clone(&stop));
            let writer = sim.spawn("writer", move || {
                let bytes = write(&writing, &stopped, 200 * BUFFER);
                assert!(bytes < 200 * BUFFER, "it was never told to stop");
            });
            sim.delay(Duration::from_millis(50));
            for round in 0..3 {
                other.put(b"key", [round]).unwrap();
                let before = db.metrics().flushes;
                other.flush().unwrap();
                let meanwhile = db.metrics().flushes - before;
                let due = IMMUTABLES_MAX as u64 + 2;
                assert!(meanwhile <= due, "seed {seed}, round {round}: {meanwhile} flushes");
            }
            stop.store(true, Ordering::SeqCst);
            assert!(writer.unwrap().join());
            db.close().unwrap();
        });
    }
}

/// Goal: a keyspace that was written to once does not keep the log for ever while another one
/// always has a memtable to flush. Method: 4 MiB into one keyspace behind one entry of the other,
/// with an area of 1 MiB; the live log is looked at all the time.
#[test]
fn the_log_keeps_to_its_area_while_flushes_are_due() {
    for seed in 0..3 {
        println!("seed {seed}");
        Simulation::run(seed, move |sim| {
            let db = open();
            let other = db.keyspace_with("other", options()).unwrap();
            other.put(b"key", b"value").unwrap();
            let done = Arc::new(AtomicBool::new(false));
            let (writing, ended) = (db.clone(), Arc::clone(&done));
            let writer = sim.spawn("writer", move || {
                write(&writing, &AtomicBool::new(false), 4 * AREA);
                ended.store(true, Ordering::SeqCst);
            });
            let mut live = 0;
            while !done.load(Ordering::SeqCst) {
                live = live.max(db.metrics().log_bytes_live);
                sim.delay(Duration::from_millis(1));
            }
            assert!(live <= AREA, "seed {seed}: {live} bytes of log");
            assert_eq!(other.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
            assert!(writer.unwrap().join());
            db.close().unwrap();
        });
    }
}

/// Goal: synced puts that take a page of log each do not keep a long log for a small memtable: it
/// is flushed. Method: a log of 40 MiB for 1 MiB of pairs, far from half of its area; then the same
/// without syncs, which is left alone.
#[test]
fn a_long_log_of_small_groups_is_given_up_for_a_table() {
    for (durability, flushes) in [(Durability::Sync, true), (Durability::Buffered, false)] {
        Simulation::run(1, move |sim| {
            let db = Db::builder("sim")
                .memory_budget(256 << 20)
                .background_threads(1)
                .seed(1)
                .device(Arc::new(FaultyDir::over_disk(&SimDisk::new(SimOptions::default()))))
                .open()
                .unwrap();
            let mut live = 0;
            for i in 0..10_000_u32 {
                db.put_with(i.to_be_bytes(), [0; 100], durability).unwrap();
                if i.is_multiple_of(100) {
                    sim.delay(Duration::from_millis(1));
                    live = live.max(db.metrics().log_bytes_live);
                }
            }
            assert!(live < 24 << 20, "{durability:?}: {live} bytes of log");
            assert_eq!(db.metrics().flushes > 0, flushes, "{durability:?}");
            db.close().unwrap();
        });
    }
}
