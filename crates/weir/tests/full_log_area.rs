//! A write-ahead log in slots whose area is full: who waits, for what, and until when.

#![cfg(feature = "sim")]
#![expect(clippy::disallowed_methods, reason = "real threads, outside any simulation")]

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir::sim::{
    Effect, ErrorCode, Fault, Faults, FaultyDir, FileClass, OpKind, SimDisk, SimOptions, Times,
    format_in,
};
use weir::{Db, Durability, Error, ErrorKind, FormatOptions, Options, WriteBatch};

const MIB: u64 = 1 << 20;
/// More than the log holds.
const PUTS: u64 = 3000;

/// A store with 1 MiB of log, over a disk whose requests can fail.
fn store() -> (Db, Faults) {
    let disk = SimDisk::new(SimOptions::default());
    let options = FormatOptions::new().log_bytes(MIB);
    format_in(&disk.dir(), "store.weir", 256 * MIB, &options).expect("formatted");
    let faulty = FaultyDir::over_disk(&disk);
    let faults = faulty.faults().clone();
    let builder = Db::builder("simulated").device(Arc::new(faulty)).device_file("store.weir");
    (builder.seed(1).open().expect("opens"), faults)
}

/// A thread that puts more than the log holds.
fn writer(db: &Db) -> JoinHandle<weir::Result<()>> {
    putting(db, PUTS)
}

fn putting(db: &Db, puts: u64) -> JoinHandle<weir::Result<()>> {
    let db = db.clone();
    thread::spawn(move || {
        for number in 0..puts {
            db.put(number.to_be_bytes(), [7; 1000])?;
        }
        Ok(())
    })
}

/// What a thread ends with; it must end.
fn ended<T>(thread: JoinHandle<T>, what: &str) -> T {
    let started = Instant::now();
    while !thread.is_finished() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} waits for ever");
        thread::sleep(Duration::from_millis(5));
    }
    thread.join().expect("no panic")
}

/// Waits until no place for a segment is left.
fn wait_until_full(db: &Db) {
    let started = Instant::now();
    while db.slot_space().expect("in slots").log_segments_free > 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "the area is never full");
        thread::sleep(Duration::from_millis(5));
    }
    // And the writer has come to its end.
    thread::sleep(Duration::from_millis(100));
}

/// A store in a pause of background work, whose writer waits for a part of the log.
fn waiting() -> (Db, Faults, JoinHandle<weir::Result<()>>) {
    let (db, faults) = store();
    db.pause_background(true);
    let writes = writer(&db);
    wait_until_full(&db);
    (db, faults, writes)
}

/// Whatever keeps the flush from coming that a writer waits for, the writer gets an error, and the
/// store can be closed.
#[test]
fn a_writer_does_not_wait_for_a_flush_that_cannot_come() {
    let failures = [
        (OpKind::Sync, None, ErrorCode::Eio),
        (OpKind::Write, Some(FileClass::Table), ErrorCode::Eio),
        (OpKind::Write, Some(FileClass::Table), ErrorCode::Enospc),
    ];
    for (op, class, code) in failures {
        let what = format!("{op:?} of {class:?} with {code:?}");
        let (db, faults, writes) = waiting();
        let (times, effect) = (Times::Forever, Effect::Fail(code));
        faults.arm(Fault { op: Some(op), class, after: 0, times, effect });
        db.pause_background(false);
        let error = ended(writes, &what).expect_err("no flush comes");
        let kinds = [ErrorKind::NoSpace, ErrorKind::Poisoned, ErrorKind::Io];
        assert!(kinds.contains(&error.kind()), "{what}: {error}");
        // It may fail, but ends.
        let closed = thread::spawn(move || db.close());
        let _: weir::Result<()> = ended(closed, &what);
    }
}

/// A failed sync poisons the store while the flush is under way that a writer waits for.
#[test]
fn a_writer_does_not_wait_in_a_poisoned_store() {
    let (db, faults) = store();
    let stall = Effect::Stall(500);
    let (op, class) = (Some(OpKind::Write), Some(FileClass::Table));
    faults.arm(Fault { op, class, after: 0, times: Times::Once, effect: stall });
    let (op, effect) = (Some(OpKind::Sync), Effect::Fail(ErrorCode::Eio));
    faults.arm(Fault { op, class: None, after: 0, times: Times::Forever, effect });
    let error = ended(writer(&db), "the writer").expect_err("no flush comes");
    assert!(error.kind() != ErrorKind::Closed, "{error}");
    let closed = thread::spawn(move || db.close());
    ended(closed, "closing").expect_err("what was acknowledged may not be durable");
}

/// Nor does one keep a store from being closed in a pause of background work.
#[test]
fn a_store_whose_writer_waits_can_be_closed() {
    let (db, _, writes) = waiting();
    let closing = db.clone();
    let closed = thread::spawn(move || closing.close());
    ended(closed, "closing").expect("closed");
    ended(writes, "the writer").expect_err("it is closed");
}

/// A store is closed without an error though there is no place for the mark of the log's end:
/// everything is durable. Method: each number of puts about that which fills it, in a pause of
/// background work, and one that waits for room.
#[test]
fn a_full_log_can_be_closed() {
    for puts in (925..=943).chain([PUTS]) {
        let (db, _) = store();
        db.pause_background(true);
        let writes = putting(&db, puts);
        let started = Instant::now();
        while !writes.is_finished() && started.elapsed() < Duration::from_millis(500) {
            thread::sleep(Duration::from_millis(5));
        }
        db.close().unwrap_or_else(|error| panic!("{puts} puts: {error}"));
        // Who waited for room was refused.
        let _: weir::Result<()> = ended(writes, "the writer");
    }
}

/// A keyspace that is created while a writer waits does not keep the log from becoming shorter.
#[test]
fn a_keyspace_is_created_while_a_writer_waits() {
    let (db, _, writes) = waiting();
    let creating = db.clone();
    let created =
        thread::spawn(move || creating.create_keyspace("new", Options::default()).map(drop));
    thread::sleep(Duration::from_millis(200));
    db.pause_background(false);
    ended(writes, "the writer").expect("the flush makes room");
    ended(created, "the creation").expect("created");
    db.close().expect("closed");
}

/// A batch that has no room before what several keyspaces keep is flushed waits for all of them.
#[test]
fn a_large_batch_waits_for_several_keyspaces() {
    let value = |seed: u64| -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..50 << 10).map(|_| next()).collect()
    };
    for (kib, keyspaces) in [600, 700, 800].into_iter().flat_map(|kib| [(kib, 2), (kib, 4)]) {
        let (db, _) = store();
        for keyspace in 0..keyspaces {
            let to = db.keyspace(&format!("{keyspace}")).expect("created");
            for i in 0..8u32 / keyspaces {
                to.put(i.to_be_bytes(), value(u64::from(keyspace * 100 + i))).expect("put");
            }
        }
        let mut batch = WriteBatch::new();
        for i in 0..kib / 50u64 {
            batch.put(db.default_keyspace(), i.to_be_bytes(), value(i + 7));
        }
        let written = db.write(&mut batch, Durability::Buffered);
        written.unwrap_or_else(|error: Error| panic!("{kib} KiB, {keyspaces} keyspaces: {error}"));
        db.close().expect("closed");
    }
}
