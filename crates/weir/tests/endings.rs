//! What must come to an end: closing, and waiting for threads that panicked or found no space.
#![cfg(feature = "sim")]
#![expect(clippy::disallowed_methods, reason = "real threads, outside any simulation")]

mod hooked;
mod waits;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use weir::sim::{
    Effect, ErrorCode, Fault, FaultyDir, FileClass, OpKind, SimDisk, SimOptions, Simulation, Times,
};
use weir::{Db, Durability, ErrorKind, Keyspace, Options, Result, WriteBatch};

use hooked::Hooked;
use waits::{LONG, builder, in_time};

/// Goal: a background thread that panics poisons the store; nobody waits for it for ever.
/// Method: the device panics where a table, or a log segment, is created.
#[test]
fn a_panic_in_the_background_poisons_the_store() {
    for suffix in [".tbl", ".log"] {
        let armed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let inner = SimDisk::new(SimOptions::default()).dir();
        let is_armed = Arc::clone(&armed);
        let before = move |op, name: &str| {
            let armed = is_armed.load(std::sync::atomic::Ordering::SeqCst);
            assert!(!(armed && op == OpKind::Create && name.ends_with(suffix)), "as planned");
        };
        let db = builder(Arc::new(Hooked { inner, before })).open().unwrap();
        let other = db.keyspace("other").unwrap();
        other.put(b"k", b"v").unwrap();
        armed.store(true, std::sync::atomic::Ordering::SeqCst);
        in_time("a store whose background thread panicked", move || {
            let write = || (0..200_u32).try_for_each(|i| db.put(i.to_be_bytes(), [0; 1000]));
            let error = write().and_then(|()| other.flush()).and_then(|()| db.flush());
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Poisoned, "{suffix}");
            // Nothing may be due: then it is idle. It must end either way.
            drop(db.wait_idle());
            assert!(db.drop_keyspace("other").is_err());
            assert_eq!(other.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
            drop(other);
            let error = db.close().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned);
            assert!(error.to_string().contains("as planned"), "the reason: {error}");
        });
    }
}

/// What a user calls, by name.
type Call = (&'static str, fn(&Db, &Keyspace) -> Result<()>);

const CALLS: [Call; 9] = [
    ("put", |db, _| db.put(b"key", b"value")),
    ("put, synced", |db, _| db.default_keyspace().put_with(b"key", b"value", Durability::Sync)),
    ("commit", |db, other| {
        let mut batch = WriteBatch::new();
        batch.put(other, b"key", b"value");
        db.commit(batch, Durability::Sync).wait()
    }),
    ("sync", |db, _| db.put(b"key", b"value").and_then(|()| db.sync())),
    ("flush", |db, _| db.flush()),
    ("compact_range", |db, _| db.compact_range(..)),
    ("a new keyspace", |db, _| db.create_keyspace("new", Options::default()).map(drop)),
    ("new options", |_, other| other.set_options(Options::default().table_bytes(1 << 20))),
    ("dropping a keyspace", |db, _| db.drop_keyspace("other")),
];

/// Goal: a panic of the device in any call of a user poisons the store and ends nobody else's
/// waiting; what was acknowledged as durable is there when it is opened again.
/// Method: the n-th request that a call makes panics, for every n; then everything else is called.
#[test]
fn a_panic_in_a_users_call_ends_no_waiting() {
    for (name, call) in CALLS {
        let hit = (0..).take_while(|&after| panics_in(name, call, after)).count();
        assert!(hit > 0, "{name} was never hit");
    }
}

/// Runs `call` with its request number `after` panicking; false if it makes fewer.
fn panics_in(name: &'static str, call: fn(&Db, &Keyspace) -> Result<()>, after: u64) -> bool {
    let disk = SimDisk::new(SimOptions::default());
    let faulty = FaultyDir::over_disk(&disk);
    let faults = faulty.faults();
    let db = builder(Arc::new(faulty)).open().unwrap();
    let other = db.keyspace("other").unwrap();
    other.put_with(b"kept", b"v", Durability::Sync).unwrap();
    db.put(b"kept", b"v").unwrap();
    db.sync().unwrap();
    db.wait_idle().unwrap();
    // The next log segment is being prepared: the requests are to be those of the call.
    let mut calls = 0;
    while std::mem::replace(&mut calls, faults.calls()) != calls {
        std::thread::sleep(Duration::from_millis(3));
    }
    let (op, class, times, effect) = (None, None, Times::Once, Effect::Panic);
    faults.arm(Fault { op, class, after, times, effect });
    let what = format!("{name}, request {after}");
    let hit = in_time(&what, move || {
        let result = call(&db, &other);
        faults.heal();
        let hit = faults.injected_total() > 0;
        let writable = || db.put(b"k", b"v").and_then(|()| db.sync());
        // A background thread that was hit may still be on its way to say so.
        while hit && writable().is_ok() {}
        let (written, flushed) = (writable(), db.flush());
        if hit {
            let poisoned = |r: Result<()>| r.is_err_and(|e| e.kind() == ErrorKind::Poisoned);
            assert!(poisoned(written) && poisoned(flushed), "{name}, {after}: {result:?}");
        } else {
            result.and(written).and(flushed).unwrap();
        }
        drop(db.wait_idle());
        drop(db.compact_range(..));
        drop(db.create_keyspace("another", Options::default()));
        assert_eq!(db.get(b"kept").unwrap().as_deref(), Some(&b"v"[..]));
        drop(other);
        drop(db.close());
        hit
    });
    let db = builder(disk.dir()).open().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(db.get(b"kept").unwrap().as_deref(), Some(&b"v"[..]), "{what}");
    if let Ok(other) = db.open_keyspace("other") {
        assert_eq!(other.get(b"kept").unwrap().as_deref(), Some(&b"v"[..]), "{what}");
    }
    db.close().unwrap();
    hit
}

/// Goal: a panic where a keyspace ends poisons the store and does not come out of the call, also
/// behind the edit that ends it.
/// Method: the only keyspace that keeps a long log is dropped, and a segment's removal panics.
#[test]
fn a_panic_while_a_keyspace_is_dropped_poisons_the_store() {
    let faulty = FaultyDir::over_disk(&SimDisk::new(SimOptions::default()));
    let faults = faulty.faults();
    let db = builder(Arc::new(faulty)).open().unwrap();
    let other = db.keyspace("other").unwrap();
    // Too much for the log to be worth a flush, too little for a full memtable.
    (0..100_u32).try_for_each(|i| other.put(i.to_be_bytes(), [0; 1000])).unwrap();
    (0..100_u32).try_for_each(|i| db.put(i.to_be_bytes(), [0; 1000])).unwrap();
    db.default_keyspace().flush().unwrap();
    db.wait_idle().unwrap();
    let (op, class) = (Some(OpKind::Unlink), Some(FileClass::Wal));
    faults.arm(Fault { op, class, after: 0, times: Times::Once, effect: Effect::Panic });
    let refused = db.drop_keyspace("other").unwrap_err();
    assert_eq!(faults.injected_total(), 1, "nothing of the log was removed");
    assert_eq!(refused.kind(), ErrorKind::Poisoned, "{refused}");
    let refused = db.put(b"k", b"v").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Poisoned, "{refused}");
    assert!(refused.to_string().contains("injected"), "{refused}");
    assert!(db.get(1_u32.to_be_bytes()).unwrap().is_some());
    assert!(db.close().is_err());
}

/// Goal: a panic where a compaction looks for damage in its inputs keeps no later call waiting.
/// Method: every read of a table flips a bit, and the n-th one panics, for every n.
#[test]
fn a_panic_in_the_search_for_damage_ends_no_waiting() {
    let panics_in = |after: u64| -> bool {
        let faulty = FaultyDir::over_disk(&SimDisk::new(SimOptions::default()));
        let faults = faulty.faults();
        let db = builder(Arc::new(faulty)).open().unwrap();
        for _ in 0..2 {
            (0..20_u32).try_for_each(|i| db.put(i.to_be_bytes(), [0; 100])).unwrap();
            db.flush().unwrap();
        }
        let (op, class) = (Some(OpKind::Read), Some(FileClass::Table));
        let fault = |after, times, effect| Fault { op, class, after, times, effect };
        faults.arm(fault(after, Times::Once, Effect::Panic));
        faults.arm(fault(0, Times::Forever, Effect::FlipBit(77)));
        let found = db.compact_range(..).unwrap_err();
        let hit = !faults.panicked().is_empty();
        faults.heal();
        let kind = if hit { ErrorKind::Poisoned } else { ErrorKind::Corruption };
        assert_eq!(found.kind(), kind, "{after}: {found}");
        in_time("the closing", move || assert_eq!(db.close().is_err(), hit));
        hit
    };
    let hit = (0..).take_while(|&after| panics_in(after)).count();
    assert!(hit > 2, "{hit} reads");
}

/// Goal: who waits for a flush is told when a writer's commit panics, also if no job will run.
/// Method: the only background thread is kept busy, with a log segment; then the log panics.
#[test]
fn a_panic_in_a_commit_ends_the_waiting_for_a_flush() {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let passing = Arc::clone(&gate);
    let inner = SimDisk::new(SimOptions::default()).dir();
    let before = move |op, name: &str| {
        if op == OpKind::Create && name == "wal-000002.log" {
            drop(passing.lock().unwrap());
        }
    };
    let faulty = FaultyDir::new(Arc::new(Hooked { inner, before }));
    let faults = faulty.faults();
    let db = builder(Arc::new(faulty)).open().unwrap();
    db.put(b"k", b"v").unwrap();
    let flushing = db.clone();
    let (sender, flushed) = mpsc::channel();
    std::thread::spawn(move || sender.send(flushing.flush()));
    // Frozen by the flush, which then waits; a moment too short would only make this test blind.
    while db.metrics().keyspaces.iter().all(|k| k.immutable_memtables == 0) {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    let (op, class) = (Some(OpKind::Write), Some(FileClass::Wal));
    faults.arm(Fault { op, class, after: 0, times: Times::Once, effect: Effect::Panic });
    assert_eq!(db.put(b"k", b"v").unwrap_err().kind(), ErrorKind::Poisoned);
    let flushed = flushed.recv_timeout(LONG).expect("the flush ends");
    assert_eq!(flushed.unwrap_err().kind(), ErrorKind::Poisoned);
    drop(closed);
    drop(db);
}

fn sync_commit(db: &Db, callback: impl FnOnce(Result<()>) + Send + 'static) {
    let mut batch = WriteBatch::new();
    batch.put(db.default_keyspace(), b"k", b"v");
    db.commit(batch, Durability::Sync).on_done(callback);
}

/// Goal: a callback that panics on a background thread takes nothing of the store with it.
#[test]
fn a_panic_in_a_callback_is_the_users_alone() {
    let db = builder(SimDisk::new(SimOptions::default()).dir()).open().unwrap();
    let (sender, receiver) = mpsc::channel();
    sync_commit(&db, |_| panic!("as planned"));
    sync_commit(&db, move |result| sender.send(result).unwrap());
    receiver.recv_timeout(LONG).expect("the second callback runs").unwrap();
    in_time("a flush after a panic in a callback", move || {
        db.flush().unwrap();
        db.close().unwrap();
    });
}

/// Goal: the last handle may go in a callback, on a background thread of the very store.
#[test]
fn the_last_handle_may_go_in_a_callback() {
    let disk = SimDisk::new(SimOptions::default());
    let db = builder(disk.dir()).open().unwrap();
    let (go, wait) = mpsc::channel::<()>();
    let last = db.clone();
    sync_commit(&db, move |_| {
        wait.recv().unwrap();
        drop(last);
    });
    drop(db);
    go.send(()).unwrap();
    in_time("the closing", move || {
        while let Err(error) = builder(disk.dir()).open() {
            assert_eq!(error.kind(), ErrorKind::Locked);
            std::thread::yield_now();
        }
    });
}

/// Goal: whoever closes a store second waits until it is closed: it can be opened again then, and
/// nothing of its first life writes to it any more.
/// Method: two actors close it while memtables wait for their flush and a third compacts a range.
#[test]
fn a_second_close_waits_for_the_first() {
    for seed in 0..30 {
        Simulation::run(seed, move |sim| {
            sim.set_switch_every(2);
            let disk = SimDisk::new(SimOptions::default());
            let db = builder(disk.dir()).background_threads(2).open().unwrap();
            for i in 0..60_u32 {
                db.put(i.to_be_bytes(), [1; 200]).unwrap();
            }
            let compacting = db.clone();
            let compact = sim.spawn("compact", move || drop(compacting.compact_range(..)));
            let closers: Vec<_> = (0..2)
                .map(|number| {
                    let (db, dir) = (db.clone(), disk.dir());
                    let close = move || {
                        db.close().unwrap();
                        // Whether this one is the second is the seed's choice.
                        if number == 0
                            && let Err(error) = builder(dir).error_if_exists(true).open()
                        {
                            assert_eq!(error.kind(), ErrorKind::Conflict, "seed {seed}: {error}");
                        }
                    };
                    sim.spawn("close", close).unwrap()
                })
                .collect();
            assert!(closers.into_iter().all(|c| c.join()));
            compact.unwrap().join();
            drop(db);
            let db = builder(disk.dir()).open().unwrap();
            for i in 0..60_u32 {
                assert!(db.get(i.to_be_bytes()).unwrap().is_some(), "seed {seed}: key {i}");
            }
            db.close().unwrap();
        });
    }
}

/// Goal: when space returns, compacting a range works again, also if nothing else ran meanwhile.
/// Method: the job that finds no space is the caller's own: no background thread repeats it.
#[test]
fn a_full_device_is_not_full_for_ever() {
    let disk = SimDisk::new(SimOptions::default());
    let faulty = FaultyDir::over_disk(&disk);
    let faults = faulty.faults();
    let db = builder(Arc::new(faulty)).open().unwrap();
    for round in 0..3_u8 {
        for i in 0..10_u32 {
            db.put(i.to_be_bytes(), [round; 100]).unwrap();
        }
        db.flush().unwrap();
    }
    db.wait_idle().unwrap();
    faults.arm(Fault {
        op: Some(OpKind::Create),
        class: Some(FileClass::Table),
        after: 0,
        times: Times::Forever,
        effect: Effect::Fail(ErrorCode::Enospc),
    });
    assert_eq!(db.compact_range(..).unwrap_err().kind(), ErrorKind::NoSpace);
    faults.heal();
    in_time("compacting with space", move || {
        while let Err(error) = db.compact_range(..) {
            assert_eq!(error.kind(), ErrorKind::NoSpace);
            std::thread::yield_now();
        }
        db.close().unwrap();
    });
}
