//! Keyspaces begin and end in the order of the commits around them, on a simulated disk.
#![cfg(feature = "sim")]

mod small_logs;

use weir::sim::{CrashPolicy, SimDisk, SimOptions, Simulation};
use weir::{Durability, ErrorKind, Keyspace, LeveledOptions, Options, Result, Snapshot};

use small_logs::{builder, options};

fn trigger(runs: usize) -> LeveledOptions {
    LeveledOptions::default().l0_trigger(runs)
}

/// Goal: a drop that survives a power cut keeps every commit that was acknowledged before it began
/// (P2, P4). Data was moved from one keyspace to another one and the first was dropped: the drop
/// was durable at once, the copy was not, and both were lost.
/// Method: as in the story, with the power cut at every request from the copy to the next write;
/// once with all that was not synced lost, once with all of it kept.
#[test]
fn a_drop_is_not_durable_before_the_writes_before_it() {
    let disk = SimDisk::new(SimOptions { record: true, ..SimOptions::default() });
    let db = builder().device(disk.dir()).open().unwrap();
    let old = db.keyspace_with("old", options()).unwrap();
    for i in 0..40_u32 {
        old.put_with(i.to_be_bytes(), [1; 100], Durability::Sync).unwrap();
    }
    let begin = disk.trace_len();
    for i in 0..40_u32 {
        let value = old.get(i.to_be_bytes()).unwrap().unwrap();
        db.put(i.to_be_bytes(), value).unwrap();
    }
    drop(old);
    db.drop_keyspace("old").unwrap();
    let dropped = disk.trace_len();
    db.put(b"later", b"1").unwrap();
    let end = disk.trace_len();
    drop(db);
    let mut replayer = disk.replayer();
    for boundary in begin..=end {
        replayer.go_to(boundary);
        for policy in [CrashPolicy::Nothing, CrashPolicy::All] {
            let image = replayer.image(policy, 1);
            let db = builder().device(image.dir()).open().unwrap();
            let at = format!("power cut at request {boundary} of {begin} to {end}");
            let survived = db.keyspaces().iter().any(|name| name == "old");
            assert!(!survived || boundary < dropped, "{at}: the keyspace came back");
            let holder = if survived { "old" } else { "default" };
            let holder = db.open_keyspace(holder).unwrap();
            for i in 0..40_u32 {
                let found = holder.get(i.to_be_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&[1; 100][..]), "{at}: key {i}");
            }
        }
    }
}

/// Whether a key that is there is found, in each of the ways to ask for it.
fn lookups(keyspace: &Keyspace, snapshot: &Snapshot) -> Vec<Result<bool>> {
    let all = |found: Vec<Option<_>>| found.iter().all(Option::is_some);
    let keys = [&b"k"[..], &b"k"[..]];
    vec![
        keyspace.get(b"k").map(|v| v.is_some()),
        keyspace.get_into(b"k", &mut Vec::new()),
        keyspace.multi_get(&keys).map(all),
        snapshot.get(keyspace, b"k").map(|v| v.is_some()),
        snapshot.multi_get(keyspace, &keys).map(all),
        keyspace.iter().next().transpose().map(|kv| kv.is_some()),
    ]
}

/// Goal: a read beside a drop finds a key that was never deleted, or says that the keyspace was
/// dropped (P5, P6). Point lookups looked at the mark of the drop before they took the memtables
/// and tables, which the drop takes away after it set the mark, and said "not there".
/// Method: two readers beside a drop, with the key in a memtable or in a table.
#[test]
fn a_read_beside_a_drop_never_finds_nothing() {
    let mut refused = 0;
    for seed in 0..60 {
        let counted = Simulation::run(seed, move |sim| {
            sim.set_switch_every(1 + seed % 4);
            let disk = SimDisk::new(SimOptions::default());
            let db = builder().device(disk.dir()).open().unwrap();
            let keyspace = db.create_keyspace("x", options()).unwrap();
            keyspace.put(b"k", b"v").unwrap();
            if seed % 2 == 0 {
                keyspace.flush().unwrap();
            }
            let refused = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
            let readers = [0, 1].map(|number| {
                let (keyspace, snapshot) = (keyspace.clone(), db.snapshot());
                let refused = std::sync::Arc::clone(&refused);
                let name = format!("reader {number}");
                sim.spawn(&name, move || {
                    for answer in (0..8).flat_map(|_| lookups(&keyspace, &snapshot)) {
                        match answer {
                            Ok(found) => assert!(found, "seed {seed}: the key is not found"),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                                refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            }
                        }
                    }
                })
            });
            db.drop_keyspace("x").unwrap();
            for reader in readers {
                reader.unwrap().join();
            }
            refused.load(std::sync::atomic::Ordering::Relaxed)
        });
        refused += counted;
    }
    assert!(refused > 0, "no drop came before the last read");
}

/// Goal: of threads that create one keyspace at once, one succeeds; those that open or create it
/// all get it, with options that one of them asked for. Both creators got it.
#[test]
fn one_of_two_creators_succeeds() {
    let with = |immutables_max: usize| options().immutables_max(immutables_max);
    for seed in 0..30 {
        Simulation::run(seed, move |sim| {
            sim.set_switch_every(1 + seed % 4);
            let disk = SimDisk::new(SimOptions::default());
            let db = builder().device(disk.dir()).open().unwrap();
            let actors = [5, 6].map(|number| {
                let db = db.clone();
                sim.spawn(&format!("actor {number}"), move || {
                    let created = db.create_keyspace("new", with(number));
                    let kind = created.as_ref().err().map(weir::Error::kind);
                    assert!(kind.is_none_or(|k| k == ErrorKind::Conflict), "{created:?}");
                    let options = db.keyspace_with("shared", with(number)).unwrap().options();
                    assert!([5, 6].contains(&options.immutables_max), "{options:?}");
                    let lost = u64::from(created.is_err());
                    db.put(number.to_be_bytes(), lost.to_be_bytes()).unwrap();
                })
            });
            for actor in actors {
                actor.unwrap().join();
            }
            let lost = [5_usize, 6].map(|n| db.get(n.to_be_bytes()).unwrap().unwrap()[7]);
            assert_eq!(lost.iter().sum::<u8>(), 1, "seed {seed}: {lost:?}");
        });
    }
}

/// Goal: no way of opening a keyspace or a store changes options that are stored: a keyspace that
/// somebody has tuned was reset by who opened it with default ones.
#[test]
fn opening_changes_no_options() {
    let disk = SimDisk::new(SimOptions::default());
    let open = || builder().device(disk.dir()).open().unwrap();
    let tuned = options().compaction(trigger(9)).block_bytes(8 << 10);
    let db = open();
    assert_eq!(db.default_keyspace().options(), options(), "the store is new");
    assert_eq!(db.keyspace("plain").unwrap().options(), Options::default());
    db.keyspace_with("given", tuned.clone()).unwrap();
    let set = db.keyspace("set").unwrap();
    set.set_options(tuned.clone()).unwrap();
    assert_eq!(set.options(), tuned);
    db.default_keyspace().set_options(tuned.clone()).unwrap();
    db.close().unwrap();
    let other = Options::default().compaction(trigger(3));
    for round in 0..2 {
        let db = open();
        for name in ["default", "given", "set"] {
            for opened in [
                db.keyspace(name),
                db.keyspace_with(name, other.clone()),
                db.keyspace_with(name, Options::default()),
                db.open_keyspace(name),
            ] {
                assert_eq!(opened.unwrap().options(), tuned, "{name}, round {round}");
            }
            let again = db.create_keyspace(name, other.clone());
            assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict, "{name}");
        }
        assert_eq!(db.keyspace("plain").unwrap().options(), Options::default());
        db.close().unwrap();
    }
}

/// Goal: options that cannot be set are refused with their reason, and nothing is changed; setting
/// what is stored costs nothing. Method: wrong options, a dropped keyspace, a store that is open
/// for reading only, one that is closed.
#[test]
fn options_that_cannot_be_set_are_refused() {
    let disk = SimDisk::new(SimOptions::default());
    let db = builder().device(disk.dir()).open().unwrap();
    let keyspace = db.keyspace_with("k", options()).unwrap();
    let bad = options().block_bytes(1);
    for refused in [
        keyspace.set_options(bad.clone()),
        db.keyspace_with("k", bad.clone()).map(drop),
        db.keyspace_with("new", bad.clone()).map(drop),
        db.create_keyspace("new", bad).map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("block_bytes is 1"), "{error}");
    }
    assert_eq!((db.keyspaces().len(), keyspace.options()), (2, options()));
    let before = db.metrics().bytes_written.versions;
    keyspace.set_options(options()).unwrap();
    assert_eq!(db.metrics().bytes_written.versions, before, "nothing was changed");
    let gone = db.keyspace("gone").unwrap();
    db.drop_keyspace("gone").unwrap();
    assert_eq!(gone.set_options(options()).unwrap_err().kind(), ErrorKind::Closed);
    db.clone().close().unwrap();
    assert_eq!(keyspace.set_options(options()).unwrap_err().kind(), ErrorKind::Closed);
    drop((db, keyspace, gone));

    let db = builder().device(disk.dir()).read_only(true).open().unwrap();
    let keyspace = db.keyspace_with("k", Options::default()).unwrap();
    assert_eq!(keyspace.options(), options());
    for other in [options(), Options::default()] {
        let error = keyspace.set_options(other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly);
        assert!(error.to_string().contains("options of keyspace \"k\""), "{error}");
    }
    assert_eq!(db.keyspace("new").unwrap_err().kind(), ErrorKind::ReadOnly);
    db.close().unwrap();
}

/// Goal: new options hold from when the documentation of `set_options` says on. Method: a smaller
/// memtable is frozen by the next write; larger blocks are in the next table only; a smaller
/// trigger merges what there is.
#[test]
fn new_options_hold_when_it_is_said() {
    let disk = SimDisk::new(SimOptions::default());
    let large = options().write_buffer_bytes(1 << 20).compaction(trigger(100));
    let db = builder().default_options(large.clone()).device(disk.dir()).open().unwrap();
    let keyspace = db.default_keyspace();
    let fill = || (0..100_u32).for_each(|n| db.put(n.to_be_bytes(), [7; 100]).unwrap());
    let tables = || {
        let levels = db.describe().keyspaces.remove(0).levels;
        levels.into_iter().flat_map(|l| l.runs).flat_map(|r| r.tables).collect::<Vec<_>>()
    };
    fill();
    assert_eq!(db.metrics().flushes, 0);
    keyspace.set_options(large.clone().write_buffer_bytes(4 << 10)).unwrap();
    db.put(b"one", b"more").unwrap();
    db.wait_idle().unwrap();
    assert_eq!((db.metrics().flushes, tables().len()), (1, 1));
    let small_blocks = tables()[0].blocks;
    keyspace.set_options(large.clone().block_bytes(64 << 10)).unwrap();
    assert_eq!(tables()[0].blocks, small_blocks, "a table that is there keeps its form");
    fill();
    db.flush().unwrap();
    assert!(tables()[0].blocks < small_blocks, "{} blocks", tables()[0].blocks);
    assert_eq!(db.metrics().compactions, 0);
    keyspace.set_options(large.compaction(trigger(2))).unwrap();
    db.wait_idle().unwrap();
    assert_eq!((db.metrics().compactions, tables().len()), (1, 1));
    db.close().unwrap();
}

/// Goal: who opens or creates a keyspace beside a drop of it gets it: the one that is going, or a
/// new one.
#[test]
fn opening_beside_a_drop_succeeds() {
    for seed in 0..60 {
        Simulation::run(seed, move |sim| {
            sim.set_switch_every(1 + seed % 4);
            let disk = SimDisk::new(SimOptions::default());
            let db = builder().device(disk.dir()).open().unwrap();
            drop(db.create_keyspace("x", options()).unwrap());
            let other = db.clone();
            let opener = sim.spawn("opener", move || {
                let wanted = options().immutables_max(7);
                let opened = other.keyspace_with("x", wanted).map(drop);
                assert!(opened.is_ok(), "seed {seed}: {opened:?}");
            });
            db.drop_keyspace("x").unwrap();
            opener.unwrap().join();
        });
    }
}
