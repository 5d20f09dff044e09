//! Compactions that cannot be done: they are not repeated for ever, they are seen, and who waits
//! for them gets an error.
#![expect(clippy::disallowed_methods, reason = "damages a file behind the engine's back")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::{KeyspaceId, uid};
use crate::db::compactions::{DeviceSpace, Due};
use crate::db::engine::Engine;
use crate::db::quarantine::PickedFrom;
use crate::db::retries::Work;
use crate::{Db, ErrorKind, LeveledOptions, Options};

/// Level 0 is merged at two runs, and writers wait at ten.
fn open(dir: &std::path::Path) -> Db {
    let options = Options::default().compaction(LeveledOptions::default().l0_trigger(2));
    Db::builder(dir.join("db")).default_options(options).open().unwrap()
}

/// A table in level 0 over one range of keys.
fn add_run(db: &Db, round: u32) -> crate::Result<()> {
    for key in 0..20_u32 {
        db.put(key.to_be_bytes(), round.to_be_bytes())?;
    }
    db.flush()
}

/// Goal: a compaction that the version set refuses is tried once per state of the tree, not without
/// end; it shows in metrics and property; writers that it stops get its error; the user's own
/// attempt puts it right when it is not refused any more.
/// Method: edits that replace tables are refused; a thousand of them, so that a store that goes on
/// for ever does not hang the test.
#[test]
fn a_refused_compaction_is_quarantined() {
    const MANY: u64 = 1000;
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let refusals = &db.handle.engine.set.refusals;
    refusals.left.store(MANY, Ordering::Relaxed);
    add_run(&db, 0).unwrap();
    db.wait_idle().unwrap();
    for round in 1..9_u64 {
        add_run(&db, round as u32).unwrap();
        db.wait_idle().unwrap();
        let tried = MANY - refusals.left.load(Ordering::Relaxed);
        assert!(tried <= round, "{tried} attempts in {round} states");
        assert_eq!(db.metrics().compactions_refused, tried);
        assert!(db.property("weir.background-error").unwrap().contains("refused"));
    }
    let stopped = (9..30).find_map(|round| add_run(&db, round).err());
    assert_eq!(stopped.expect("writers are stalled").kind(), ErrorKind::Conflict);
    assert_eq!(db.get(7_u32.to_be_bytes()).unwrap().map(|v| v.len()), Some(4));
    assert_eq!(db.compact_range(..).unwrap_err().kind(), ErrorKind::Conflict);

    refusals.left.store(0, Ordering::Relaxed);
    db.compact_range(..).unwrap();
    add_run(&db, 99).unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.property("weir.background-error").unwrap(), "");
    db.close().unwrap();
}

/// Goal: nobody sleeps through the end of a rest: neither if it ends before its time, nor if it
/// ends between a look that met it and the wait.
#[test]
fn the_end_of_a_rest_is_not_slept_through() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let engine = &db.handle.engine;
    let now = clock::now_nanos();
    let rest_until = |until| engine.jobs.state.lock().rest_until = Some(until);
    rest_until(now + 3_600_000_000_000);
    let seen = engine.shared.work_generation();
    engine.note_job(Ok(()));
    assert_ne!(engine.shared.work_generation(), seen, "the background threads are woken");
    rest_until(now);
    assert_eq!(engine.jobs.pause(now - 1), Some(Duration::ZERO));
    assert_eq!(engine.jobs.pause(now), None);
    let error = Error::new(ErrorKind::Io, "a test").leaving_nothing_unknown();
    engine.jobs.state.lock().retries.failed(Work::Segment, error, 0);
    assert_eq!(engine.jobs.pause(1), Some(Duration::ZERO));
    db.close().unwrap();
}

/// Lets background threads of a store that has nothing to do rest for an hour.
fn rest(engine: &Engine) {
    const HOUR: u64 = 3_600_000_000_000;
    engine.jobs.state.lock().rest_until = Some(clock::now_nanos() + HOUR);
}

/// Goal: who waits for a flush is not told of a merge that found no space: the flush has what was
/// kept back for it. A store that was full refused to flush, by chance. Method: a merge has failed
/// so, and all rest for a moment.
#[test]
fn a_flush_is_not_refused_for_a_merge() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let engine = &db.handle.engine;
    for _ in 0..2 {
        db.put(b"key", b"value").unwrap();
        let soon = clock::now_nanos() + 50_000_000;
        engine.jobs.state.lock().rest_until = Some(soon);
        engine.jobs.state.lock().retries.found_no_space(Work::Compaction(KeyspaceId::DEFAULT));
        engine.shared.health.set_full(&Error::new(ErrorKind::NoSpace, "a merge"));
        db.flush().unwrap();
    }
    // A merge of this keyspace finds its own space, too.
    engine.shared.health.set_full(&Error::new(ErrorKind::NoSpace, "another merge"));
    db.compact_range(..).unwrap();
    engine.note_job(Ok(()));
    db.close().unwrap();
}

/// Goal: a shortage of space is not taken back by a look that began before it was found.
#[test]
fn a_shortage_is_not_taken_back_by_an_older_look() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let engine = &db.handle.engine;
    rest(engine);
    let (_, older) = engine.candidates();
    engine.note_space(older, Some(Error::new(ErrorKind::NoSpace, "a test")));
    engine.note_space(older, None);
    assert!(engine.jobs.short_of_space().is_some());
    let (_, newer) = engine.candidates();
    engine.note_space(newer, None);
    assert!(engine.jobs.short_of_space().is_none());
    engine.note_job(Ok(()));
    db.close().unwrap();
}

/// Goal: who picks a task does not hide that the oldest snapshot has gone: every keyspace is looked
/// at again for it.
#[test]
fn the_end_of_the_oldest_snapshot_is_seen_after_a_pick() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let engine = &db.handle.engine;
    rest(engine);
    let first = db.snapshot();
    engine.look_at_snapshots();
    db.put(b"key", b"value").unwrap();
    let second = db.snapshot();
    drop(first);
    {
        let mut state = engine.jobs.state.lock();
        state.to_look_at.clear();
        let root = engine.set.current();
        let due = engine.due(&mut state, &root, KeyspaceId::DEFAULT, &DeviceSpace::default());
        assert!(matches!(due, Due::Nothing));
    }
    engine.look_at_snapshots();
    assert!(engine.jobs.state.lock().to_look_at.contains(&KeyspaceId::DEFAULT));
    drop(second);
    engine.note_job(Ok(()));
    db.close().unwrap();
}

/// Goal: a log segment whose preparation failed while somebody else prepared it is not tried again,
/// and nobody is refused or rests for it.
#[test]
fn a_preparation_that_somebody_else_has_done_has_not_failed() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let engine = &db.handle.engine;
    db.put(b"key", b"value").unwrap();
    let writer = engine.writer.as_ref().unwrap();
    let wanted = writer.wal.missing_segment().expect("nobody has asked for one yet");
    assert!(writer.wal.prepare(wanted).unwrap());
    for kind in [ErrorKind::Io, ErrorKind::NoSpace] {
        let failed = Err(Error::new(kind, "a test").leaving_nothing_unknown());
        assert!(!engine.note_prepared(writer, failed).unwrap(), "{kind:?}");
        assert!(engine.jobs.first_retry().is_none(), "{kind:?}");
    }
    let unknown = Err(Error::new(ErrorKind::Io, "a test"));
    engine.note_prepared(writer, unknown).unwrap_err();
    db.close().unwrap();
}

type Model = std::collections::BTreeMap<Vec<u8>, Vec<u8>>;

fn put(db: &Db, model: &mut Model, range: char, key: u32, round: u32) -> crate::Result<()> {
    let key = format!("{range}{key:04}").into_bytes();
    let value = [round.to_be_bytes().as_slice(), &[range as u8; 100]].concat();
    db.put(&key, &value)?;
    model.insert(key, value);
    Ok(())
}

/// Every tenth key of a range again, as one more run.
fn overwrite(db: &Db, model: &mut Model, range: char, round: u32) -> crate::Result<()> {
    (0..40).try_for_each(|key| put(db, model, range, key * 10, round))?;
    db.flush()?;
    db.wait_idle()
}

/// Reads everything: the right value or, in range `a`, the error of the damaged keys. The number of
/// errors.
fn check(db: &Db, model: &Model) -> usize {
    let mut errors = 0;
    for (key, value) in model {
        match db.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "{key:?}"),
            Err(error) => {
                let range = error.damage().and_then(|d| d.key_range.clone()).expect("a range");
                assert!(range.0 <= *key && *key <= range.1, "{error} for {key:?}");
                assert!(key.starts_with(b"a"), "{error}");
                errors += 1;
            }
        }
    }
    errors
}

/// Goal: a damaged table stops neither writes nor other compactions, least of all those of other
/// keyspaces. It is left alone, named, and taken up again when it was mended.
/// Method: a byte of a table of the last level is inverted; a compaction meets it; then the same
/// range, another range, and another keyspace are written to until something stops. At the end the
/// byte is put back.
#[test]
fn a_damaged_table_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default()
        .compaction(LeveledOptions::default().l0_trigger(2).base_level_bytes(16 << 10))
        .table_bytes(4 << 10)
        .block_bytes(512);
    let builder = Db::builder(dir.path().join("db")).default_options(options.clone());
    let db = builder.block_cache_bytes(0).open().unwrap();
    let other = db.keyspace_with("other", options).unwrap();
    let mut model = Model::new();
    for range in ['a', 'b'] {
        (0..400).for_each(|key| put(&db, &mut model, range, key, 0).unwrap());
    }
    db.compact_range(..).unwrap();
    let keyspace = db.describe().keyspaces.remove(0);
    let tables = || keyspace.levels.iter().flat_map(|l| &l.runs).flat_map(|r| &r.tables);
    let victim = tables().filter(|t| t.largest.starts_with(b"a")).nth(3).expect("many tables");
    let path = dir.path().join(format!("db/{:06}.tbl", victim.uid));
    let flip = || {
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.len() / 3;
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    };
    flip();

    overwrite(&db, &mut model, 'a', 1).unwrap();
    overwrite(&db, &mut model, 'a', 2).unwrap();
    assert_eq!(db.metrics().tables_quarantined, 1);
    let name = format!("{:06}.tbl", victim.uid);
    assert!(db.property("weir.quarantine").unwrap().contains(&name));
    assert!(db.property("weir.background-error").unwrap().contains(&name));
    let damages = db.verify().unwrap().damages;
    assert_eq!(damages.len(), 1, "{damages:?}");
    assert!(damages[0].damage().unwrap().file.ends_with(&name));

    let before = db.metrics().compactions;
    for round in 3..20 {
        overwrite(&db, &mut model, 'b', round).unwrap();
        let runs = db.metrics().keyspaces[0].levels[0].runs;
        assert!(runs <= 4, "{runs} runs in level 0: range b is not merged");
    }
    assert!(db.metrics().compactions > before + 10);
    let errors = check(&db, &model);
    assert!((1..20).contains(&errors), "{errors} keys in a block of 512 bytes");
    assert_eq!(db.compact_range(..).unwrap_err().kind(), ErrorKind::Corruption);

    let stopped = (20..60).find_map(|round| overwrite(&db, &mut model, 'a', round).err());
    let stopped = stopped.expect("level 0 fills up");
    assert!(stopped.damage().expect("a damage").file.ends_with(&name), "{stopped}");
    check(&db, &model);
    other.put(b"k", b"v").unwrap();
    other.compact_range(..).unwrap();

    // Deletes that a snapshot kept go when nothing else is to do in their keyspace.
    (0..400_u32).for_each(|key| other.put(key.to_be_bytes(), [7; 100]).unwrap());
    other.compact_range(..).unwrap();
    let snapshot = db.snapshot();
    (0..300_u32).for_each(|key| other.delete(key.to_be_bytes()).unwrap());
    other.compact_range(..).unwrap();
    let deletes = || -> u64 {
        let keyspace = db.describe().keyspaces.remove(1);
        let runs = keyspace.levels.iter().flat_map(|level| &level.runs);
        runs.flat_map(|run| &run.tables).map(|table| table.deletes).sum()
    };
    assert_eq!(deletes(), 300);
    drop(snapshot);
    other.put(b"k", b"w").unwrap();
    other.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(deletes(), 0, "the damage of another keyspace keeps them");

    flip();
    assert!(db.verify().unwrap().damages.is_empty());
    overwrite(&db, &mut model, 'a', 99).unwrap();
    db.compact_range(..).unwrap();
    assert_eq!((check(&db, &model), db.metrics().tables_quarantined), (0, 0));
    db.close().unwrap();
}

/// Goal: corruption that lies in no input stops the store, as before: nobody knows what is wrong.
/// Method: the inputs are sound, and the task fails all the same.
#[test]
fn corruption_without_a_damaged_input_poisons() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    add_run(&db, 0).unwrap();
    db.wait_idle().unwrap();
    let engine = &db.handle.engine;
    engine.set.refusals.kind.store(1, Ordering::Relaxed);
    engine.set.refusals.left.store(1, Ordering::Relaxed);
    add_run(&db, 1).unwrap();
    assert_eq!(db.wait_idle().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(db.metrics().tables_quarantined, 0);
}

/// Goal: only damage puts a table into quarantine, not a read that the device fails once.
/// Method: the first read of a compaction is damaged on its way, all later ones fail: of its other
/// input, of the search for the damaged one, and of the tries after it, one of which is waited for.
#[cfg(feature = "sim")]
#[test]
fn a_failed_read_is_no_damage() {
    use crate::sim::{Effect, ErrorCode, Fault, FaultyDir, FileClass, OpKind, SimDisk, Times};
    let disk = SimDisk::new(crate::sim::SimOptions::default());
    let faulty = FaultyDir::over_disk(&disk);
    let faults = faulty.faults();
    let options = Options::default().compaction(LeveledOptions::default().l0_trigger(2));
    let builder = Db::builder("sim").default_options(options).block_cache_bytes(0);
    let db = builder.device(std::sync::Arc::new(faulty)).open().unwrap();
    add_run(&db, 0).unwrap();
    db.wait_idle().unwrap();
    let eio = Effect::Fail(ErrorCode::Eio);
    for (after, times, effect) in [(0, Times::Once, Effect::FlipBit(9)), (1, Times::Forever, eio)] {
        let (op, class) = (Some(OpKind::Read), Some(FileClass::Table));
        faults.arm(Fault { op, class, after, times, effect });
    }
    add_run(&db, 1).unwrap();
    let error = db.wait_idle().unwrap_err();
    assert!(error.to_string().contains("os error 5"), "{error}");
    assert_eq!(db.metrics().tables_quarantined, 0);
    faults.heal();
    db.wait_idle().unwrap();
    assert_eq!(db.metrics().tables_quarantined, 0);
}

/// Goal: nothing stays set aside for a keyspace that was dropped, neither named in metrics nor
/// keeping its tables alive.
/// Method: while the keyspace is being closed, a job of it ends that found a damaged table.
#[test]
fn a_dropped_keyspace_leaves_nothing_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let other = db.keyspace("other").unwrap();
    let (engine, id) = (&db.handle.engine, other.tree.id);
    assert!(engine.jobs.state.lock().begin(id));
    std::thread::scope(|scope| {
        let drop = scope.spawn(|| db.drop_keyspace("other"));
        while !engine.jobs.is_closed(id) {
            std::thread::yield_now();
        }
        {
            let mut state = engine.jobs.state.lock();
            state.quarantine.add_table(
                id,
                uid(7),
                crate::Error::corruption("table 7", 0, "a test"),
            );
            let keyspace = engine.set.current().keyspaces.get(id).cloned().unwrap();
            let refused = crate::Error::new(ErrorKind::Conflict, "a test");
            state.quarantine.refuse(keyspace.id, PickedFrom::of(&keyspace), refused);
            state.end(id);
        }
        engine.shared.announce_progress();
        drop.join().unwrap().unwrap();
    });
    assert!(engine.jobs.first_quarantined().is_none());
    assert_eq!(db.metrics().tables_quarantined, 0);
    db.close().unwrap();
}

/// Goal: the error of a keyspace whose writers are stalled is not the outcome of a batch for
/// another keyspace.
/// Method: writers of the default keyspace are stopped by a refused compaction; while the lead is
/// held, a batch for it and one for another keyspace enter the line, in either order.
#[test]
fn a_stopped_keyspace_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let other = db.keyspace("other").unwrap();
    let engine = &db.handle.engine;
    engine.set.refusals.left.store(1000, Ordering::Relaxed);
    let stopped = (0..30).find_map(|round| add_run(&db, round).err());
    assert_eq!(stopped.expect("writers are stalled").kind(), ErrorKind::Conflict);
    let committer = &engine.writer.as_ref().expect("not read-only").committer;
    for stopped_first in [true, false] {
        std::thread::scope(|scope| {
            let both = committer.exclusively(|_| {
                let put = |stopped: bool| {
                    let keyspace = if stopped { db.default_keyspace() } else { &other };
                    let before = committer.waiting();
                    let put = scope.spawn(move || keyspace.put(b"key", b"value"));
                    while committer.waiting() == before {
                        std::thread::yield_now();
                    }
                    put
                };
                (put(stopped_first), put(!stopped_first))
            });
            let (first, second) = both.unwrap();
            let (first, second) = (first.join().unwrap(), second.join().unwrap());
            let (stopped, sound) = if stopped_first { (first, second) } else { (second, first) };
            assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Conflict);
            sound.unwrap();
        });
    }
    engine.set.refusals.left.store(0, Ordering::Relaxed);
    db.compact_range(..).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
}
