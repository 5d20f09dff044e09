//! Openings number what they write apart from all earlier ones, and succeed without space.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock;
use crate::base::error::ErrorKind;
use crate::base::sched;
use crate::db::Db;
use crate::device::FileClass;
use crate::device::faulty::{Effect, ErrorCode, Fault, FaultyDir, Times};
use crate::device::sim::SimDisk;
use crate::device::sim::crash::CrashPolicy;
use crate::device::site::OpKind;
use crate::options::Options;
use crate::sim::{Simulation, format_in};
use crate::storage::slots::FormatOptions;

/// Goal: a segment has a number that no segment of an earlier opening had, also if nothing of that
/// one can be seen (H71). Method: openings that begin a segment and lose the power, and whose
/// segment is gone then, as in a form of storage without names.
#[test]
fn segments_are_numbered_by_openings() {
    let mut disk = SimDisk::default();
    let mut used = BTreeSet::new();
    for opening in 1..6u64 {
        let db = Db::builder("store").device(disk.dir()).seed(7).open().expect("opens");
        db.put("key", "value").expect("written");
        let names = disk.dir().list().expect("a list");
        let segments: Vec<_> = names.into_iter().filter(|name| name.starts_with("wal-")).collect();
        assert!(!segments.is_empty(), "opening {opening} has written to no log");
        disk = disk.crash(CrashPolicy::Nothing, opening);
        drop(db);
        for name in segments {
            disk.dir().unlink(&name, FileClass::Wal).expect("created durably");
            assert!(used.insert(name.clone()), "opening {opening} has used {name} again");
        }
    }
}

/// Goal: a store whose log has piled up opens also where no table can be written, shows all that it
/// held, and writes the tables when there is space. The opening, which flushes then, failed with
/// `NoSpace`, so that nobody could drop a keyspace to get space. Method: one that crashes with many
/// segments; two without space, with memtables so small that several are full while the log is
/// replayed; one with space.
#[test]
fn a_store_without_space_opens() {
    let mut disk = SimDisk::default();
    let full = |disk: &SimDisk| {
        let faulty = FaultyDir::over_disk(disk);
        let faults = faulty.faults();
        let (op, class) = (Some(OpKind::Write), Some(FileClass::Table));
        let effect = Effect::Fail(ErrorCode::Enospc);
        faults.arm(Fault { op, class, after: 0, times: Times::Forever, effect });
        let builder = Db::builder("store").device(Arc::new(faulty)).seed(7);
        (builder.log_segment_bytes(8 << 10).open().expect("opens"), faults)
    };
    let (db, _) = full(&disk);
    for n in 0..500u32 {
        db.put(n.to_be_bytes(), [n as u8; 100]).expect("the log has room");
    }
    let small = Options::default().write_buffer_bytes(8 << 10);
    db.default_keyspace().set_options(small).expect("set");
    db.sync().expect("synced");
    disk = disk.crash(CrashPolicy::All, 1);
    drop(db);
    let held = |db: &Db| db.iter().filter(|pair| pair.is_ok()).count();
    for opening in 0..2 {
        let (db, faults) = full(&disk);
        assert_eq!(held(&db), 500, "opening {opening}");
        assert!(faults.injected_total() > 0, "the opening has written no table");
        assert_eq!(db.flush().expect_err("no space").kind(), ErrorKind::NoSpace);
        disk = disk.crash(CrashPolicy::All, 9);
        drop(db);
    }
    let (db, faults) = full(&disk);
    faults.heal();
    db.flush().expect("there is space");
    assert_eq!(held(&db), 500);
    db.close().expect("closed");
    let db = Db::builder("store").device(disk.dir()).seed(7).open().expect("opens");
    assert_eq!(held(&db), 500);
}

/// Goal: an opening that fails leaves nothing behind that goes on: a discard would destroy what the
/// next opening writes there (H73). Method: a store in slots whose log has piled up; the opening
/// flushes, and a write of a table fails; discards from then on, in several schedules.
#[test]
fn an_opening_that_fails_discards_nothing_more() {
    for seed in 0..40 {
        Simulation::run(seed, move |_| {
            let disk = SimDisk::default();
            let options = FormatOptions { slot_bytes: Some(64 << 10), ..FormatOptions::new() };
            format_in(&disk.dir(), "slots", 64 << 20, &options).expect("formatted");
            let open = |disk: &SimDisk, fault: ErrorCode, after| {
                let faulty = FaultyDir::over_disk(disk);
                let (faults, class) = (faulty.faults(), Some(FileClass::Table));
                let (op, effect) = (Some(OpKind::Write), Effect::Fail(fault));
                faults.arm(Fault { op, class, after, times: Times::Forever, effect });
                let (op, effect) = (Some(OpKind::Discard), Effect::Stall(1000));
                faults.arm(Fault { op, class, after: 0, times: Times::Forever, effect });
                let builder =
                    Db::builder("sim").device(Arc::new(faulty)).device_file("slots").seed(7);
                (builder.discard(true).memory_budget(8 << 20).open(), faults)
            };
            let (db, _) = open(&disk, ErrorCode::Enospc, 0);
            let db = db.expect("opens");
            for n in 0..2000u32 {
                db.put(n.to_be_bytes(), [n as u8; 500]).expect("the log has room");
            }
            let small = Options::default().write_buffer_bytes(64 << 10);
            db.default_keyspace().set_options(small).expect("set");
            db.sync().expect("synced");
            let disk = disk.crash(CrashPolicy::Nothing, 1);
            drop(db);
            let begin = clock::now_nanos();
            let (opened, faults) = open(&disk, ErrorCode::Eio, 3);
            opened.map(drop).expect_err("a table cannot be written");
            let discards = || faults.counters().get(OpKind::Discard, FileClass::Table).calls;
            let before = discards();
            let waited = clock::now_nanos() - begin > 900_000_000;
            assert!(before == 0 || waited, "seed {seed}: a discard goes on");
            sched::delay(Duration::from_secs(10));
            assert_eq!(discards(), before, "a discard after the opening has failed");
        });
    }
}
