//! Errors that pass: a background job whose read, opening, creation or table write failed is tried
//! again until it succeeds; only what leaves the device unknown makes the store refuse writes.
#![cfg(feature = "sim")]

use std::sync::Arc;
use std::time::Duration;

use weir::sim::{
    Effect, ErrorCode, Fault, Faults, FaultyDir, FileClass, OpKind, SimDisk, Simulation, Times,
};
use weir::{Db, DbOptions, DebugDbOptions, Durability, ErrorKind, LeveledOptions, Options};

fn open(disk: &SimDisk) -> (Db, Faults) {
    open_with(disk, true)
}

fn open_with(disk: &SimDisk, verify_outputs: bool) -> (Db, Faults) {
    let options = Options::default()
        .write_buffer_bytes(16 << 10)
        .table_bytes(16 << 10)
        .compaction(LeveledOptions::default().base_level_bytes(32 << 10).l0_trigger(2));
    let dir = FaultyDir::over_disk(disk);
    let faults = dir.faults();
    let db = DbOptions::default()
        .background_threads(1)
        .debug(DebugDbOptions::default().verify_outputs(verify_outputs));
    let db = Db::builder("sim")
        .options(db)
        .default_options(options)
        .memory_budget(1 << 20)
        .log_segment_bytes(16 << 10)
        .log_area_bytes(256 << 10)
        .block_cache_bytes(0)
        .seed(1)
        .device(Arc::new(dir))
        .open()
        .unwrap();
    (db, faults)
}

fn fault(op: OpKind, class: FileClass, times: Times, effect: Effect) -> Fault {
    Fault { op: Some(op), class: Some(class), after: 0, times, effect }
}

/// Values of 500 bytes under the keys `from..to`, until one is refused.
fn fill(db: &Db, from: u32, to: u32) -> weir::Result<()> {
    (from..to).try_for_each(|i| db.put(i.to_be_bytes(), [i as u8; 500]))
}

fn background_error(db: &Db) -> String {
    db.property("weir.background-error").unwrap()
}

/// What a job does that fails here, and leaves nothing unknown.
const PASSING: [(OpKind, ErrorCode); 5] = [
    (OpKind::Read, ErrorCode::Eio),
    (OpKind::Open, ErrorCode::Emfile),
    (OpKind::Create, ErrorCode::Emfile),
    (OpKind::Write, ErrorCode::Eio),
    (OpKind::Len, ErrorCode::Eio),
];

/// Goal: an error that passes delays a flush or a compaction and does nothing else: who asked for
/// the job is told, writes go on, the job succeeds by itself, and no file is left behind.
#[test]
fn what_passes_is_tried_again() {
    for (op, code) in PASSING {
        for (compaction, seed) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
            Simulation::run(seed, move |sim| {
                let what = format!("{op:?} {code:?}, compaction {compaction}, seed {seed}");
                let disk = SimDisk::default();
                let (db, faults) = open(&disk);
                fill(&db, 0, 100).unwrap();
                db.flush().unwrap();
                db.wait_idle().unwrap();
                // The tables were not read yet by this opening: a merge has to open them.
                db.close().unwrap();
                drop(faults);
                let (db, faults) = open(&disk);
                fill(&db, 50, 60).unwrap();
                faults.arm(fault(op, FileClass::Table, Times::Once, Effect::Fail(code)));
                let called = if compaction { db.compact_range(..) } else { db.flush() };
                // A flush that cannot read its output again fails; so does a merge. A worker may
                // have been faster: then the call is the second attempt.
                assert_eq!(db.metrics().jobs_failed, 1, "{what}");
                if let Err(error) = called {
                    assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}");
                }
                db.put_with(b"during", b"it", Durability::Sync).expect(&what);
                sim.delay(Duration::from_secs(1));
                db.wait_idle().expect(&what);
                assert_eq!(background_error(&db), "", "{what}");
                assert_eq!(db.metrics().jobs_waiting, 0, "{what}");
                fill(&db, 100, 200).expect(&what);
                db.compact_range(..).expect(&what);
                for i in 0..200_u32 {
                    assert_eq!(&*db.get(i.to_be_bytes()).unwrap().expect(&what), [i as u8; 500]);
                }
                let live = db.property("weir.num-tables").unwrap().parse::<usize>().unwrap();
                db.close().expect(&what);
                let names = weir::sim::Dir::list(&disk).unwrap();
                let tables = names.iter().filter(|n| n.ends_with(".tbl")).count();
                assert_eq!(tables, live, "{what}: {names:?}");
            });
        }
    }
}

/// Goal: what a job that failed has written goes, also when the device does not let go of it at
/// once; not only at the next opening. Method: as above, and the first removal fails.
#[test]
fn outputs_that_stay_are_removed_later() {
    let failing = PASSING.map(|(op, code)| (op, Effect::Fail(code)));
    let made = (OpKind::Create, Effect::FailButDone(ErrorCode::Eio));
    for (op, effect) in failing.into_iter().chain([made]) {
        Simulation::run(1, move |sim| {
            let disk = SimDisk::default();
            let (db, faults) = open(&disk);
            fill(&db, 0, 100).unwrap();
            for fails in [fault(op, FileClass::Table, Times::Once, effect), {
                let fails = Effect::Fail(ErrorCode::Eio);
                fault(OpKind::Unlink, FileClass::Table, Times::Once, fails)
            }] {
                faults.arm(fails);
            }
            // A worker may have been faster.
            db.flush().ok();
            sim.delay(Duration::from_secs(1));
            db.flush().unwrap();
            db.compact_range(..).unwrap();
            db.wait_idle().unwrap();
            assert_eq!(db.metrics().jobs_failed, 1, "{op:?}");
            let live = db.property("weir.num-tables").unwrap().parse::<usize>().unwrap();
            let names = weir::sim::Dir::list(&disk).unwrap();
            let tables = names.iter().filter(|n| n.ends_with(".tbl")).count();
            assert_eq!(tables, live, "{op:?}: {names:?}");
            db.close().unwrap();
        });
    }
}

/// Goal: while an error lasts, it is shown, the pauses between two attempts grow, reads and writes
/// go on as far as there is room, then writers get the error; everything heals by itself.
#[test]
fn what_lasts_is_shown_and_heals() {
    for op in [OpKind::Create, OpKind::Write] {
        Simulation::run(2, move |sim| {
            let disk = SimDisk::default();
            let (db, faults) = open(&disk);
            fill(&db, 0, 60).unwrap();
            db.wait_idle().unwrap();
            let fail = Effect::Fail(ErrorCode::Emfile);
            faults.arm(fault(op, FileClass::Table, Times::Forever, fail));
            fill(&db, 60, 90).expect("there is room in memory");
            sim.delay(Duration::from_secs(20));
            let shown = background_error(&db);
            assert!(shown.contains("os error 24"), "{shown}");
            let failed = db.metrics().jobs_failed;
            assert!((8..20).contains(&failed), "{failed} attempts in 20 s");
            assert_eq!(db.metrics().jobs_waiting, 1);
            let error = fill(&db, 90, 4000).expect_err("memory is bounded");
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert_eq!(&*db.get(7_u32.to_be_bytes()).unwrap().unwrap(), [7; 500]);
            assert_eq!(db.flush().expect_err("still").kind(), ErrorKind::Io);
            faults.heal();
            // A caller ends the pause, which has just begun and lasts three seconds.
            let healed = sim.now_nanos();
            db.flush().expect("healed");
            assert!(sim.now_nanos() - healed < 1_000_000_000, "the flush waited for its turn");
            assert_eq!(background_error(&db), "");
            fill(&db, 90, 300).expect("healed");
            db.close().unwrap();
        });
    }
}

/// Goal: a compaction that cannot read a table holds up neither flushes nor other keyspaces, and
/// writers who wait for it get its error.
#[test]
fn work_rests_by_itself() {
    Simulation::run(3, |sim| {
        let disk = SimDisk::default();
        let (db, faults) = open(&disk);
        let other = db.keyspace("other").unwrap();
        fill(&db, 0, 40).unwrap();
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let fail = Effect::Fail(ErrorCode::Eio);
        faults.arm(fault(OpKind::Read, FileClass::Table, Times::Forever, fail));
        faults.arm(fault(OpKind::Open, FileClass::Table, Times::Forever, fail));
        // Outputs are read again: only what needs no reading goes on.
        other.put(b"k", b"v").unwrap();
        let error = fill(&db, 40, 9000).expect_err("level 0 is bounded");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        other.put(b"k", b"w").expect("another keyspace");
        faults.heal();
        sim.delay(Duration::from_secs(10));
        fill(&db, 40, 200).expect("healed");
        db.wait_idle().unwrap();
        assert_eq!(background_error(&db), "");
        db.close().unwrap();
    });
}

/// Goal: writers who wait for a compaction that cannot read its input get its error, though flushes
/// succeed. Method: as above, and nobody reads what a flush has written.
#[test]
fn writers_learn_why_a_compaction_does_not_go_on() {
    Simulation::run(6, |sim| {
        let disk = SimDisk::default();
        let (db, faults) = open_with(&disk, false);
        fill(&db, 0, 100).unwrap();
        db.flush().unwrap();
        db.wait_idle().unwrap();
        db.close().unwrap();
        drop(faults);
        let (db, faults) = open_with(&disk, false);
        let fail = Effect::Fail(ErrorCode::Eio);
        faults.arm(fault(OpKind::Read, FileClass::Table, Times::Forever, fail));
        let error = fill(&db, 0, 9000).expect_err("level 0 is bounded");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(db.metrics().flushes > 10, "flushes go on");
        faults.heal();
        sim.delay(Duration::from_secs(10));
        fill(&db, 0, 200).expect("healed");
        db.close().unwrap();
    });
}

/// Goal: a log segment that cannot be created is no poison either.
#[test]
fn the_next_log_segment() {
    Simulation::run(4, |sim| {
        let disk = SimDisk::default();
        let (db, faults) = open(&disk);
        fill(&db, 0, 10).unwrap();
        let fail = Effect::Fail(ErrorCode::Emfile);
        faults.arm(fault(OpKind::Create, FileClass::Wal, Times::Next(3), fail));
        let refused = (0..200_u32).filter(|&i| fill(&db, i, i + 1).is_err()).count();
        assert!(refused < 200, "all writes are refused");
        sim.delay(Duration::from_secs(2));
        // How often a segment was asked for by now depends on the schedule.
        while faults.injected_total() < 3 {
            fill(&db, 0, 200).expect_err("the fault is still there");
            sim.delay(Duration::from_secs(2));
        }
        fill(&db, 0, 200).expect("healed");
        assert_eq!(background_error(&db), "");
        db.close().unwrap();
    });
}

/// Goal: a failed sync of a table is not tried again: nobody knows what it dropped (H43).
#[test]
fn a_failed_sync_is_no_passing_error() {
    Simulation::run(5, |sim| {
        let disk = SimDisk::default();
        let (db, faults) = open(&disk);
        fill(&db, 0, 10).unwrap();
        faults.arm(fault(OpKind::Sync, FileClass::Table, Times::Once, Effect::LoseDirty(false)));
        db.flush().expect_err("the sync fails");
        sim.delay(Duration::from_secs(1));
        let error = db.put(b"k", b"v").expect_err("poisoned");
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    });
}
