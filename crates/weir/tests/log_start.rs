//! Where keyspaces say that they need the log from (H38), on a simulated disk: after power cuts,
//! and when keyspaces are created while others are flushed.
#![cfg(feature = "sim")]

mod small_logs;

use std::time::Duration;

use weir::sim::{
    CrashPolicy, Effect, ErrorCode, Fault, FaultyDir, FileClass, OpKind, SimDisk, SimOptions,
    Simulation, Times, Torn,
};
use weir::{Durability, ErrorKind, LeveledOptions, Options, WriteBatch};

use small_logs::{builder, options};

/// Goal: a log start is recorded only when the log is durable up to it; otherwise a power cut puts
/// it behind the end of the log, and what is written from then on cannot be found from there.
/// Method: two keyspaces with replayed data are reopened, which flushes one after the other; power
/// is cut at every request of that. Then one keyspace is written to, the other one flushed, the
/// process killed. The write must be there.
#[test]
fn a_log_start_is_never_behind_the_end_of_the_log() {
    let disk = SimDisk::new(SimOptions { record: true, ..SimOptions::default() });
    let db = builder().device(disk.dir()).open().unwrap();
    let other = db.keyspace_with("other", options()).unwrap();
    db.put_with(b"a", b"1", Durability::Sync).unwrap();
    other.put_with(b"b", b"1", Durability::Sync).unwrap();
    drop(other);
    db.close().unwrap();
    let begin = disk.trace_len();
    let db = builder().device(disk.dir()).open().unwrap();
    db.wait_idle().unwrap();
    let end = disk.trace_len();
    drop(db);
    let mut replayer = disk.replayer();
    for boundary in begin..=end {
        replayer.go_to(boundary);
        let image = replayer.image(CrashPolicy::Nothing, 1);
        let db = builder().device(image.dir()).open().unwrap();
        db.put_with(b"a", b"2", Durability::Sync).unwrap();
        let other = db.open_keyspace("other").unwrap();
        other.put(b"b", b"2").unwrap();
        other.flush().unwrap();
        let killed = image.crash(CrashPolicy::All, 1);
        let db = match builder().device(killed.dir()).open() {
            Ok(db) => db,
            Err(error) => panic!("power cut at request {boundary}: {error}"),
        };
        let found = db.get(b"a").unwrap();
        assert_eq!(found.as_deref(), Some(&b"2"[..]), "power cut at request {boundary}");
    }
}

/// A change of options holds the version set for a second; meanwhile a keyspace is created and the
/// default keyspace is written to until its log start has moved on. Which of the two gets the
/// version set first is the seed's choice. With `broken`, that many syncs of the version log
/// succeed after the change, and the next one fails.
fn create_beside_flushes(seed: u64, switch_every: u64, broken: Option<u64>) -> SimDisk {
    let disk = SimDisk::new(SimOptions::default());
    let faulty = FaultyDir::over_disk(&disk);
    let faults = faulty.faults();
    Simulation::run(seed, move |sim| {
        sim.set_switch_every(switch_every);
        // A flush lets go of more segments than are kept to be used again.
        let options = || options().write_buffer_bytes(16 << 10);
        let builder = builder().default_options(options()).background_threads(2);
        let db = builder.device(std::sync::Arc::new(faulty)).open().unwrap();
        let fault = |after: u64, effect: Effect| Fault {
            op: Some(OpKind::Sync),
            class: Some(FileClass::Versions),
            after,
            times: Times::Once,
            effect,
        };
        faults.arm(fault(0, Effect::Stall(1000)));
        if let Some(syncs) = broken {
            faults.arm(fault(1 + syncs, Effect::Fail(ErrorCode::Eio)));
        }
        let (first, second) = (db.clone(), db.clone());
        let change = sim.spawn("change", move || {
            let options = options().compaction(LeveledOptions::default().l0_trigger(100));
            first.default_keyspace().set_options(options).unwrap();
        });
        sim.delay(Duration::from_millis(10));
        let create = sim.spawn("create", move || {
            let created = second.keyspace_with("new", options());
            assert!(broken.is_some() || created.is_ok(), "{created:?}");
        });
        for i in 0..100_u32 {
            let put = db.put(i.to_be_bytes(), [1; 200]);
            assert!(broken.is_some() || put.is_ok(), "{put:?}");
            sim.delay(Duration::from_millis(5));
        }
        change.unwrap().join();
        create.unwrap().join();
        let idle = db.wait_idle();
        assert!(broken.is_some() || idle.is_ok(), "{idle:?}");
        let described = db.describe();
        let first = described.log_segments.first().copied().unwrap();
        for keyspace in &described.keyspaces {
            // 0: from the first group of all on, which is in segment 1.
            let start = keyspace.log_start_segment;
            assert!(
                broken.is_some() || start >= first || start == 0 && first == 1,
                "seed {seed}: {} needs segment {start}, the log begins with {first}",
                keyspace.name
            );
        }
    });
    disk
}

/// Goal: the segment that a new keyspace names as its log start is not let go before the keyspace
/// is in the root, nor when it gets there while a flush lets go of the log. (The flush looked at
/// the root before, and asked whether a keyspace was being created after.)
#[test]
fn the_log_start_of_a_new_keyspace_is_kept() {
    // Without the rule one in a hundred fails.
    for seed in 0..200 {
        for switch_every in [1, 2, 4, 12] {
            create_beside_flushes(seed, switch_every, None);
        }
    }
}

/// Goal: a creation whose edit may have reached the device keeps its log: if it did, the next
/// opening begins to read there. Method: as above, with one sync of the version log after the other
/// failing, after which the process is killed and everything is found on the disk.
#[test]
fn a_creation_that_may_be_on_the_device_keeps_its_log() {
    for seed in 0..6 {
        for syncs in 0..3 {
            let disk = create_beside_flushes(seed, 1, Some(syncs));
            let killed = disk.crash(CrashPolicy::All, seed);
            let opened = builder().device(killed.dir()).open();
            let error = opened.err();
            assert!(error.is_none(), "seed {seed}, after {syncs} syncs: {error:?}");
        }
    }
}

/// Goal: a batch that was given up in the middle of its fragments is not taken for a durable one.
/// Method: the disk is full while a large batch goes to its second segment; then a keyspace is
/// created, and the process killed. The store opens.
#[test]
fn a_batch_that_was_given_up_was_never_durable() {
    let disk = SimDisk::new(SimOptions::default());
    let faulty = FaultyDir::over_disk(&disk);
    let faults = faulty.faults();
    let db = builder().device(std::sync::Arc::new(faulty)).open().unwrap();
    db.put_with(b"a", b"1", Durability::Sync).unwrap();
    db.wait_idle().unwrap();
    faults.arm(Fault {
        op: Some(OpKind::Create),
        class: Some(FileClass::Wal),
        after: 1,
        times: Times::Forever,
        effect: Effect::Fail(ErrorCode::Enospc),
    });
    let mut batch = WriteBatch::new();
    for i in 0..200_u32 {
        batch.put(db.default_keyspace(), i.to_be_bytes(), [2; 200]);
    }
    let error = db.write(batch, Durability::Buffered).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    faults.heal();
    drop(db.keyspace("new").unwrap());
    let killed = disk.crash(CrashPolicy::All, 1);
    let db = builder().device(killed.dir()).open().unwrap();
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(db.get(7_u32.to_be_bytes()).unwrap(), None);
    drop(db);
    grow_behind_a_batch_that_was_given_up(killed);
}

/// Opens the store again and again, which holds a keyspace "new" that was created behind a batch
/// without an end, and writes to both keyspaces: the new one's log start leads to what it holds.
/// (The log went on before the batch, so that the log start lay beside it: an opening said that
/// group 3 was missing, or lost the writes.)
fn grow_behind_a_batch_that_was_given_up(mut disk: SimDisk) {
    for round in 0..6_u32 {
        let db = builder().device(disk.dir()).open();
        let db = db.unwrap_or_else(|error| panic!("opening {round}: {error}"));
        let new = db.keyspace("new").unwrap();
        for earlier in 0..round {
            let value = new.get(earlier.to_be_bytes()).unwrap();
            assert_eq!(value.as_deref(), Some(&b"2"[..]), "write {earlier} at opening {round}");
        }
        db.put(b"b", b"1").unwrap();
        new.put_with(round.to_be_bytes(), b"2", Durability::Sync).unwrap();
        db.default_keyspace().flush().unwrap();
        disk = disk.crash(CrashPolicy::All, 1);
    }
}

/// Goal: a batch whose write failed is all or nothing, though a flush covers its sequence numbers.
/// Method: the write of a batch over two keyspaces is done and fails; one of the two gets a write
/// that is not logged, and is flushed; the process is killed.
#[test]
fn a_failed_batch_is_whole_or_absent_behind_what_is_not_logged() {
    for large in [false, true] {
        let disk = SimDisk::new(SimOptions::default());
        let faulty = FaultyDir::over_disk(&disk);
        let faults = faulty.faults();
        let db = builder().device(std::sync::Arc::new(faulty)).open().unwrap();
        let other = db.keyspace("other").unwrap();
        db.put_with(b"a", b"1", Durability::Sync).unwrap();
        db.wait_idle().unwrap();
        faults.arm(Fault {
            op: Some(OpKind::Write),
            class: Some(FileClass::Wal),
            after: if large { 2 } else { 1 },
            times: Times::Forever,
            effect: Effect::FailButDone(ErrorCode::Eio),
        });
        let mut batch = WriteBatch::new();
        for key in 0..if large { 200_u32 } else { 1 } {
            batch.put(db.default_keyspace(), key.to_be_bytes(), [2; 200]);
            batch.put(&other, key.to_be_bytes(), [2; 200]);
        }
        db.write(batch, Durability::Buffered).unwrap_err();
        faults.heal();
        db.put_with(b"b", b"1", Durability::None).unwrap();
        db.default_keyspace().flush().unwrap();
        let killed = disk.crash(CrashPolicy::All, 1);
        let db = builder().device(killed.dir()).open().unwrap();
        let key = 0_u32.to_be_bytes();
        let here = db.get(key).unwrap().is_some();
        let there = db.keyspace("other").unwrap().get(key).unwrap().is_some();
        assert_eq!(here, there, "a large batch: {large}");
        assert_eq!(db.get(b"b").unwrap().as_deref(), Some(&b"1"[..]));
    }
}

/// Goal: what `Db::sync` made durable is not in the page that the next group is written to (H37).
/// Method: a disk whose sectors are pages of 4 KiB; power is cut while the group after the sync is
/// being written, which leaves garbage in its page.
#[test]
fn what_was_synced_is_not_written_over() {
    let disk = SimDisk::new(SimOptions::default());
    let db = builder().device(disk.dir()).open().unwrap();
    for i in 0..20_u32 {
        db.put(i.to_be_bytes(), b"kept").unwrap();
        db.sync().unwrap();
        db.put(b"later", i.to_be_bytes()).unwrap();
        let torn = disk.crash(CrashPolicy::TornAt(Torn::Page, 0), u64::from(i));
        let found = builder().device(torn.dir()).open().unwrap();
        for j in 0..=i {
            let value = found.get(j.to_be_bytes()).unwrap();
            assert_eq!(value.as_deref(), Some(&b"kept"[..]), "key {j} after {i} syncs");
        }
    }
}

/// Goal: what a flush or a new keyspace states as durable is not in the page that the next group is
/// written to (H37, H52). Method: as above; a batch over two keyspaces, of which one is flushed, or
/// one write and a keyspace created behind it, in turn; power is cut while the next group is being
/// written. The store opens, and both keyspaces hold the same batches. (An opening said that log
/// group 1 was missing, although it was durable.)
#[test]
fn what_a_flush_relies_on_is_not_written_over() {
    for creates in [false, true] {
        let disk = SimDisk::new(SimOptions::default());
        let db = builder().device(disk.dir()).open().unwrap();
        let [a, b] = ["a", "b"].map(|name| db.keyspace(name).unwrap());
        for i in 0..20_u32 {
            let key = i.to_be_bytes();
            let mut batch = WriteBatch::new();
            batch.put(&a, key, b"1");
            batch.put(&b, key, b"1");
            db.write(batch, Durability::Buffered).unwrap();
            if creates {
                drop(db.keyspace(&format!("new {i}")).unwrap());
            } else {
                a.flush().unwrap();
            }
            b.put(b"later", key).unwrap();
            let torn = disk.crash(CrashPolicy::TornAt(Torn::Page, 0), u64::from(i));
            let found = builder().device(torn.dir()).open().unwrap();
            for name in ["a", "b"] {
                let keyspace = found.keyspace(name).unwrap();
                for j in 0..=i {
                    let value = keyspace.get(j.to_be_bytes()).unwrap();
                    let at = format!("key {j} of {name} after {i}, creates {creates}");
                    assert_eq!(value.as_deref(), Some(&b"1"[..]), "{at}");
                }
            }
        }
    }
}

/// Goal: the flush of an only keyspace, which leaves the log unsynced, loses nothing, and what is
/// written after the next opening is found from the position that it recorded. Method: power cuts
/// that keep nothing unsynced, after a flush, after a synced write behind it, and after a keyspace
/// was created behind it, over several openings.
#[test]
fn a_flush_alone_does_not_need_the_log() {
    let mut disk = SimDisk::new(SimOptions::default());
    let mut written: Vec<[u8; 4]> = Vec::new();
    for round in 0..12_u32 {
        let db = builder().device(disk.dir()).open().unwrap();
        for key in &written {
            assert!(db.get(key).unwrap().is_some(), "{key:?} in round {round}");
        }
        for i in 0..3 {
            written.push((round * 10 + i).to_be_bytes());
            db.put(written.last().unwrap(), [7; 900]).unwrap();
        }
        db.flush().unwrap();
        match round % 3 {
            0 => {}
            1 => {
                written.push((round * 10 + 5).to_be_bytes());
                db.put_with(written.last().unwrap(), b"synced", Durability::Sync).unwrap();
            }
            _ => {
                let other = db.keyspace("other").unwrap();
                other.put_with(b"k", b"v", Durability::Sync).unwrap();
                drop(other);
                db.drop_keyspace("other").unwrap();
            }
        }
        let cut = disk.crash(CrashPolicy::Nothing, u64::from(round));
        drop(db);
        disk = cut;
    }
}

/// Goal: openings that are closed again at once do not pile up log segments. A store of one pair
/// that was looked at 280 times held 1.1 GiB: every opening begins a segment, and a flush, which
/// lets go of those before, is not due where nothing was written.
/// Method: many openings, on their own, then with a write and a kill each; the log is counted, and
/// what was written is there.
#[test]
fn short_openings_do_not_pile_up_the_log() {
    let mut disk = SimDisk::new(SimOptions::default());
    let reopen = |disk: &SimDisk, opening: u32| {
        let db = builder().device(disk.dir()).open().unwrap();
        let segments = db.describe().log_segments.len();
        assert!(segments <= 5, "{segments} segments at opening {opening}");
        db
    };
    let db = builder().device(disk.dir()).open().unwrap();
    drop(db.keyspace_with("empty", options()).unwrap());
    db.put(b"first", b"1").unwrap();
    db.close().unwrap();
    for opening in 0..20 {
        reopen(&disk, opening).close().unwrap();
    }
    for opening in 0..20_u32 {
        let db = reopen(&disk, opening);
        db.put(opening.to_be_bytes(), b"2").unwrap();
        let killed = disk.crash(CrashPolicy::All, opening.into());
        drop(db);
        disk = killed;
    }
    let db = reopen(&disk, 20);
    assert_eq!(db.get(b"first").unwrap().as_deref(), Some(&b"1"[..]));
    for opening in 0..20_u32 {
        let found = db.get(opening.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&b"2"[..]), "opening {opening}");
    }
}

/// Goal: keyspaces that nothing is written to do not keep the log, whatever the one does that
/// keeps it for a while.
/// Method: one keyspace is flushed again and again, one holds an entry from the beginning, and more
/// than a chunk of a root are empty. Once the second is flushed, nothing but the last segments is
/// needed, and that stays so.
#[test]
fn idle_keyspaces_do_not_keep_the_log() {
    let disk = SimDisk::new(SimOptions::default());
    let db = builder().device(disk.dir()).open().unwrap();
    let idle = |n: u32| db.keyspace_with(&format!("idle {n}"), options()).unwrap();
    let before: Vec<_> = (0..40).map(idle).collect();
    let busy = db.keyspace_with("busy", options()).unwrap();
    let slow = db.keyspace_with("slow", options()).unwrap();
    let after: Vec<_> = (40..80).map(idle).collect();
    slow.put(b"first", b"1").unwrap();
    let segments = |rounds: u32| {
        for n in 0..rounds * 20 {
            busy.put(n.to_be_bytes(), [7; 300]).unwrap();
            if n % 20 == 19 {
                busy.flush().unwrap();
            }
        }
        db.wait_idle().unwrap();
        db.describe().log_segments.len()
    };
    let kept = segments(30);
    assert!(kept > 20, "{kept} segments: the entry keeps the log");
    slow.flush().unwrap();
    for round in 0..5 {
        let kept = segments(round);
        assert!(kept <= 5, "{kept} segments in round {round}");
    }
    drop((before, after));
}

/// Goal: the log stays within its area after the keyspace that kept its start is dropped, where
/// others have nothing in it and one fills it with small synced writes.
#[test]
fn a_drop_does_not_leave_the_log_to_grow() {
    const AREA: u64 = 1 << 20;
    let longest = Simulation::run(1, |_| {
        let disk = SimDisk::new(SimOptions::default());
        let large = Options::default().write_buffer_bytes(1 << 20);
        let builder = builder().default_options(large.clone()).memory_budget(64 << 20);
        let builder = builder.log_segment_bytes(16 << 10).log_area_bytes(AREA);
        let db = builder.device(disk.dir()).open().unwrap();
        let keeper = db.keyspace_with("keeper", large.clone()).unwrap();
        let _idle = db.keyspace_with("idle", large.clone()).unwrap();
        let busy = db.keyspace_with("busy", large).unwrap();
        keeper.put_with(b"a", b"1", Durability::Sync).unwrap();
        for i in 0..30_u32 {
            busy.put_with(i.to_be_bytes(), [1; 16], Durability::Sync).unwrap();
            if i % 5 == 4 {
                busy.flush().unwrap();
            }
        }
        drop(keeper);
        db.drop_keyspace("keeper").unwrap();
        let longest = (0..3000_u32).map(|i| {
            busy.put_with(i.to_be_bytes(), [2; 16], Durability::Sync).unwrap();
            db.metrics().log_bytes_live
        });
        longest.max()
    });
    assert!(longest <= Some(AREA), "{longest:?}");
}
