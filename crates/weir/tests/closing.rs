//! Closing and committing: what was acknowledged is there, callbacks are told the truth, and
//! whatever they do, everybody comes to an end.
#![cfg(feature = "sim")]
#![expect(clippy::disallowed_methods, reason = "real threads, outside any simulation")]

mod hooked;
mod waits;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use weir::sim::{
    CrashPolicy, Effect, ErrorCode, Fault, FaultyDir, FileClass, OpKind, SimDisk, SimOptions,
    Simulation, Times,
};
use weir::{Commit, Db, Durability, ErrorKind, Result, WriteBatch};

use hooked::Hooked;
use waits::{LONG, builder, in_time};

fn new_disk() -> SimDisk {
    SimDisk::new(SimOptions::default())
}

fn commit(db: &Db, key: u32, durability: Durability) -> Commit {
    let mut batch = WriteBatch::new();
    batch.put(db.default_keyspace(), key.to_be_bytes(), b"v");
    db.commit(batch, durability)
}

/// Goal: what was acknowledged before `close` returned is there, with `Durability::None` too,
/// whenever it was: before, beside or between the steps of the closing.
/// Method: three actors write while a fourth closes; each acknowledged key is asked for afterwards.
#[test]
fn what_was_acknowledged_beside_close_is_there() {
    const DURABILITIES: [Durability; 3] =
        [Durability::None, Durability::Buffered, Durability::Sync];
    let late = Arc::new(AtomicU32::new(0));
    for seed in 0..60 {
        let late = Arc::clone(&late);
        Simulation::run(seed, move |sim| {
            sim.set_switch_every(3);
            let disk = new_disk();
            let db = builder(disk.dir()).open().unwrap();
            let writers: Vec<_> = (0..3_u32)
                .map(|number| {
                    let db = db.clone();
                    let acknowledged = Arc::new(AtomicU32::new(0));
                    let count = Arc::clone(&acknowledged);
                    let write = move || {
                        for i in 0_u32.. {
                            let key = [number.to_be_bytes(), i.to_be_bytes()].concat();
                            let durability = DURABILITIES[number as usize];
                            match db.put_with(key, b"v", durability) {
                                Ok(()) => count.store(i + 1, Ordering::SeqCst),
                                Err(error) => {
                                    return assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                                }
                            }
                        }
                    };
                    (sim.spawn("write", write).unwrap(), acknowledged)
                })
                .collect();
            while writers.iter().any(|(_, count)| count.load(Ordering::SeqCst) < 3) {
                weir::sim::switch_point();
            }
            let count = || -> u32 { writers.iter().map(|(_, c)| c.load(Ordering::SeqCst)).sum() };
            let before = count();
            db.close().unwrap();
            late.fetch_add(count() - before, Ordering::SeqCst);
            let acknowledged: Vec<u32> = writers
                .into_iter()
                .map(|(actor, count)| {
                    assert!(actor.join());
                    count.load(Ordering::SeqCst)
                })
                .collect();
            let db = builder(disk.dir()).open().unwrap();
            for (number, &count) in acknowledged.iter().enumerate() {
                for i in 0..count {
                    let key = [(number as u32).to_be_bytes(), i.to_be_bytes()].concat();
                    let found = db.get(key).unwrap();
                    assert!(found.is_some(), "seed {seed}: writer {number}: {i} of {count}");
                }
            }
            db.close().unwrap();
        });
    }
    let late = late.load(Ordering::SeqCst);
    assert!(late > 0, "no write was acknowledged beside a close: the test shows nothing");
}

/// Goal: a `Sync` commit is synced whether or not anybody waits for it.
/// Method: one is only asked whether it is done; another is dropped at once, and the power fails.
#[test]
fn a_sync_commit_needs_nobody_who_waits() {
    let disk = new_disk();
    let db = builder(disk.dir()).open().unwrap();
    let polled = commit(&db, 1, Durability::Sync);
    in_time("a commit that is polled", move || {
        while !polled.is_done() {
            std::thread::yield_now();
        }
    });
    drop(commit(&db, 2, Durability::Sync));
    let other = disk.clone();
    in_time("the sync of a commit that was dropped", move || {
        for seed in 0.. {
            let cut = other.crash(CrashPolicy::Nothing, seed);
            let db = builder(cut.dir()).open().unwrap();
            assert!(db.get(1_u32.to_be_bytes()).unwrap().is_some(), "it was done");
            if db.get(2_u32.to_be_bytes()).unwrap().is_some() {
                return;
            }
        }
    });
    db.close().unwrap();
}

/// Goal: callbacks that wait when the store is closed are told what the closing made of it: all is
/// durable.
#[test]
fn callbacks_at_close_are_told_the_truth() {
    let disk = new_disk();
    let db = builder(disk.dir()).open().unwrap();
    let (sender, receiver) = mpsc::channel();
    for key in 0..200 {
        let sender = sender.clone();
        commit(&db, key, Durability::Sync).on_done(move |result| sender.send(result).unwrap());
    }
    drop(sender);
    db.close().unwrap();
    // Each was called, and none of them after the closing.
    let results: Vec<Result<()>> = receiver.try_iter().collect();
    assert_eq!(results.len(), 200);
    let refused = results.iter().filter(|result| result.is_err()).count();
    assert_eq!(refused, 0, "of what is durable {refused} were called an error");
    let db = builder(disk.crash(CrashPolicy::Nothing, 1).dir()).open().unwrap();
    assert!((0..200_u32).all(|key| db.get(key.to_be_bytes()).unwrap().is_some()));
}

/// Goal: when `close` returns, every callback that was there when it was called has returned, also
/// those that another thread calls: who led calls them after it has given the lead away.
/// Method: writers whose commits wait for each other, under many schedules, and a close.
#[test]
fn close_waits_for_the_callbacks_of_other_threads() {
    for seed in 0..200 {
        Simulation::run(seed, move |sim| {
            sim.set_switch_every(2);
            let db = builder(new_disk().dir()).open().unwrap();
            let (entered, called) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let writers: Vec<_> = (0..3_u32)
                .map(|number| {
                    let (db, entered, called) = (db.clone(), entered.clone(), called.clone());
                    let write = move || {
                        for i in 0..4 {
                            let called = Arc::clone(&called);
                            commit(&db, number * 4 + i, Durability::Buffered).on_done(move |_| {
                                (0..200).for_each(|_| weir::sim::switch_point());
                                called.fetch_add(1, Ordering::SeqCst);
                            });
                            entered.fetch_add(1, Ordering::SeqCst);
                        }
                    };
                    sim.spawn("write", write).unwrap()
                })
                .collect();
            while entered.load(Ordering::SeqCst) < 6 {
                weir::sim::switch_point();
            }
            let before = entered.load(Ordering::SeqCst);
            db.close().unwrap();
            let called_then = called.load(Ordering::SeqCst);
            assert!(called_then >= before, "seed {seed}: {called_then} of {before} were called");
            writers.into_iter().for_each(|writer| assert!(writer.join()));
            assert_eq!(called.load(Ordering::SeqCst), 12, "seed {seed}");
        });
    }
}

/// Goal: a second close waits for the callbacks that the first one left.
/// Method: a callback closes the store, which waits for no callbacks there, and goes on for long.
#[test]
fn a_second_close_waits_for_callbacks_too() {
    let db = builder(new_disk().dir()).open().unwrap();
    let called = Arc::new(AtomicU32::new(0));
    let (sender, receiver) = mpsc::channel();
    for key in 0..5 {
        let (mine, called, sender) = (db.clone(), Arc::clone(&called), sender.clone());
        commit(&db, key, Durability::Sync).on_done(move |_| {
            mine.close().unwrap();
            sender.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            called.fetch_add(1, Ordering::SeqCst);
        });
    }
    receiver.recv_timeout(LONG).expect("a callback closes the store");
    in_time("the second close", move || db.close().unwrap());
    assert_eq!(called.load(Ordering::SeqCst), 5);
}

/// Goal: a store whose last handle is that of a commit is closed when its callback was entered, and
/// then all callbacks have been called. Method: the syncs that they wait for take long.
#[test]
fn the_last_commit_closes_the_store_with_all_callbacks() {
    let faulty = FaultyDir::over_disk(&new_disk());
    let faults = faulty.faults();
    let db = builder(Arc::new(faulty)).open().unwrap();
    db.put_with(b"first", b"v", Durability::Sync).unwrap();
    let (op, class) = (Some(OpKind::Sync), Some(FileClass::Wal));
    let effect = Effect::Stall(50);
    faults.arm(Fault { op, class, after: 0, times: Times::Forever, effect });
    let commits: Vec<Commit> = (0..5).map(|key| commit(&db, key, Durability::Sync)).collect();
    drop(db);
    let called = Arc::new(AtomicU32::new(0));
    for commit in commits {
        let called = Arc::clone(&called);
        commit.on_done(move |result| {
            std::thread::sleep(Duration::from_millis(20));
            result.unwrap();
            called.fetch_add(1, Ordering::SeqCst);
        });
    }
    assert_eq!(called.load(Ordering::SeqCst), 5);
}

/// Goal: who goes on to commit in a store that is being closed does not keep the closing.
/// Method: two threads with callbacks that overlap, so that there always is one.
#[test]
fn later_callbacks_keep_no_closing() {
    let db = builder(new_disk().dir()).open().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let threads = [(); 3].map(|()| {
        let (db, stop) = (db.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let slow = |_| std::thread::sleep(Duration::from_millis(3));
                commit(&db, 1, Durability::Buffered).on_done(slow);
            }
        })
    });
    std::thread::sleep(Duration::from_millis(10));
    in_time("the closing", move || db.close().unwrap());
    stop.store(true, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Goal: callbacks of two stores may close the other one.
#[test]
fn callbacks_may_close_each_others_stores() {
    let stores = [(); 2].map(|()| builder(new_disk().dir()).open().unwrap());
    let both = Arc::new(std::sync::Barrier::new(2));
    let closings = [0, 1].map(|own| {
        let (mine, other) = (stores[own].clone(), stores[1 - own].clone());
        let both = Arc::clone(&both);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            commit(&mine, 1, Durability::Buffered).on_done(move |_| {
                both.wait();
                sender.send(other.close()).unwrap();
            });
        });
        receiver
    });
    for closing in closings {
        closing.recv_timeout(LONG).expect("the closing ends").unwrap();
    }
}

/// Goal: callbacks are told if the log could not be ended.
/// Method: every sync of the log fails.
#[test]
fn callbacks_at_close_are_told_of_a_failure() {
    let disk = new_disk();
    let faulty = FaultyDir::over_disk(&disk);
    let faults = faulty.faults();
    let db = builder(Arc::new(faulty)).open().unwrap();
    faults.arm(Fault {
        op: Some(OpKind::Sync),
        class: Some(FileClass::Wal),
        after: 0,
        times: Times::Forever,
        effect: Effect::Fail(ErrorCode::Eio),
    });
    let (sender, receiver) = mpsc::channel();
    for key in 0..20 {
        let sender = sender.clone();
        commit(&db, key, Durability::Sync).on_done(move |result| sender.send(result).unwrap());
    }
    drop(sender);
    assert!(db.close().is_err());
    let results: Vec<Result<()>> = receiver.try_iter().collect();
    assert_eq!(results.len(), 20);
    assert!(results.iter().all(Result::is_err), "nothing was synced: {results:?}");
}

/// What a callback may do.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Close,
    Write,
    Panic,
}

/// Goal: a callback may close the store, write or panic, on whatever thread it is called; the store
/// is closed then, its lock given up, and what was acknowledged is there.
/// Method: commits with such callbacks, and a close at once, while another handle lives on.
#[test]
fn callbacks_may_close_write_and_panic() {
    for deed in [Deed::Close, Deed::Write, Deed::Panic] {
        for durability in [Durability::Sync, Durability::Buffered] {
            let what = format!("{deed:?}, {durability:?}");
            in_time(&what.clone(), move || {
                for round in 0..20 {
                    let disk = new_disk();
                    let db = builder(disk.dir()).open().unwrap();
                    let other = db.clone();
                    for key in 0..4_u32 {
                        let mine = db.clone();
                        commit(&db, key, durability).on_done(move |result| {
                            result.unwrap();
                            match deed {
                                Deed::Close => mine.close().unwrap(),
                                Deed::Write => write_or_closed(&mine),
                                Deed::Panic => panic!("as planned"),
                            }
                        });
                        if matches!(deed, Deed::Close) {
                            break;
                        }
                    }
                    db.close().unwrap();
                    let again = builder(disk.dir()).open();
                    let again = again.unwrap_or_else(|e| panic!("{what}, round {round}: {e}"));
                    assert!(again.get(0_u32.to_be_bytes()).unwrap().is_some());
                    drop(other);
                }
            });
        }
    }
}

/// Writes more than the memtables of a keyspace hold: that waits for background threads.
fn write_or_closed(db: &Db) {
    for i in 0..100_u32 {
        if let Err(error) = db.put([b"callback", &i.to_be_bytes()[..]].concat(), [7; 400]) {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
            return;
        }
    }
}

/// Goal: a callback may wait for what background threads do, though there is one only.
#[test]
fn a_callback_may_wait_for_background_work() {
    let db = builder(new_disk().dir()).open().unwrap();
    let (sender, receiver) = mpsc::channel();
    let mine = db.clone();
    commit(&db, 1, Durability::Sync).on_done(move |result| {
        let done = result
            .and_then(|()| (0..200_u32).try_for_each(|i| mine.put(i.to_be_bytes(), [7; 400])))
            .and_then(|()| mine.flush())
            .and_then(|()| mine.compact_range(..));
        sender.send(done).unwrap();
    });
    receiver.recv_timeout(LONG).expect("the callback ends").unwrap();
    in_time("the closing", move || db.close().unwrap());
}

/// Goal: a callback of one store may close another one.
#[test]
fn a_callback_may_close_another_store() {
    let one = builder(new_disk().dir()).open().unwrap();
    let two = builder(new_disk().dir()).open().unwrap();
    let (sender, receiver) = mpsc::channel();
    commit(&one, 1, Durability::Sync).on_done(move |_| sender.send(two.close()).unwrap());
    receiver.recv_timeout(LONG).expect("the callback ends").unwrap();
    in_time("the closing", move || one.close().unwrap());
}

/// Goal: a read that is under way while the store is closed gets its bytes or `Closed`, and no
/// error about files that are not the store's any more.
/// Method: readers that are held back where they open a table until the store is closed, and its
/// next owner has removed the table.
#[test]
fn a_read_beside_close_gets_its_bytes_or_closed() {
    type Read = fn(&Db) -> Result<bool>;
    let reads: [(&str, Read); 5] = [
        ("get", |db| db.get(b"k").map(|found| found.is_some())),
        ("get_into", |db| db.default_keyspace().get_into(b"k", &mut Vec::new())),
        ("multi_get", |db| db.default_keyspace().multi_get(&[b"k"]).map(|v| v[0].is_some())),
        ("snapshot", |db| {
            let found = db.snapshot().get(db.default_keyspace(), b"k");
            found.map(|found| found.is_some())
        }),
        ("scan", |db| {
            let all: Vec<_> = db.iter().collect::<Result<_>>()?;
            Ok(all.len() == 1)
        }),
    ];
    for (name, read) in reads {
        let disk = new_disk();
        let db = builder(disk.dir()).open().unwrap();
        db.put(b"k", b"v").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let (reached, is_there) = mpsc::channel();
        let (open, go) = mpsc::channel();
        let armed = Arc::new(AtomicBool::new(false));
        let (inner, is_armed, go) = (disk.dir(), Arc::clone(&armed), std::sync::Mutex::new(go));
        let before = move |op, name: &str| {
            if op == OpKind::Open && is_armed.load(Ordering::SeqCst) && name.ends_with(".tbl") {
                reached.send(()).unwrap();
                go.lock().unwrap().recv().unwrap();
                inner.unlink(name, weir::sim::class_of(name)).unwrap();
            }
        };
        let db = builder(Arc::new(Hooked { inner: disk.dir(), before })).open().unwrap();
        armed.store(true, Ordering::SeqCst);
        let reader = db.clone();
        let answer = std::thread::spawn(move || read(&reader));
        is_there.recv_timeout(LONG).unwrap();
        in_time("a close beside a read", move || db.close().unwrap());
        open.send(()).unwrap();
        match answer.join().unwrap() {
            Ok(found) => assert!(found, "{name}: a key that was there"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{name}: {error}"),
        }
    }
}

/// Writes when its thread ends.
struct WritesAtTheEnd(RefCell<Option<Words>>);

/// A store to write to, and who is told the outcome.
type Words = (Db, mpsc::Sender<Result<()>>);

impl Drop for WritesAtTheEnd {
    fn drop(&mut self) {
        if let Some((db, sender)) = self.0.take() {
            let written = db
                .put(b"last", b"words")
                .and_then(|()| db.put_with(b"synced", b"words", Durability::Sync));
            sender.send(written).unwrap();
        }
    }
}

thread_local! {
    static AT_THE_END: WritesAtTheEnd = const { WritesAtTheEnd(RefCell::new(None)) };
}

/// Goal: a thread-local's destructor may write, also after those that the engine has.
/// Method: the destructor is registered before the engine's, which is gone when it runs.
#[test]
fn a_destructor_of_a_thread_local_may_write() {
    let db = builder(new_disk().dir()).open().unwrap();
    let (sender, receiver) = mpsc::channel();
    let mine = db.clone();
    let thread = std::thread::spawn(move || {
        AT_THE_END.with(|end| *end.0.borrow_mut() = Some((mine.clone(), sender)));
        mine.put(b"first", b"words").unwrap();
    });
    thread.join().unwrap();
    receiver.recv_timeout(LONG).expect("it was written").unwrap();
    assert_eq!(db.get(b"last").unwrap().as_deref(), Some(&b"words"[..]));
    db.close().unwrap();
}

/// Goal: an empty batch with `Sync` makes what was written before it durable, as users of other
/// engines expect.
#[test]
fn an_empty_synced_batch_syncs_what_precedes_it() {
    type Write = fn(&Db) -> Result<()>;
    let writes: [(&str, Write); 2] = [
        ("write", |db| db.write(WriteBatch::new(), Durability::Sync)),
        ("commit", |db| db.commit(WriteBatch::new(), Durability::Sync).wait()),
    ];
    for (name, write) in writes {
        let disk = new_disk();
        let db = builder(disk.dir()).open().unwrap();
        db.put(b"k", b"v").unwrap();
        write(&db).unwrap();
        let cut = builder(disk.crash(CrashPolicy::Nothing, 1).dir()).open().unwrap();
        assert!(cut.get(b"k").unwrap().is_some(), "{name}");
        db.clone().close().unwrap();
        assert_eq!(write(&db).unwrap_err().kind(), ErrorKind::Closed, "{name}");
    }
}
