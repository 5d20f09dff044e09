//! The set: recovery finds the applied edits, through base rewrites, faults and crashes.

use std::sync::Arc;

use super::{HASH_SEED, LINEAGE, context, dump, meta, random_edit};
use crate::base::error::ErrorKind;
use crate::base::ids::{KeyspaceId, Lineage, level, segment, uid};
use crate::base::prng::Prng;
use crate::log::test_storage::{Effect, Fault, MemStorage};
use crate::options::Options;
use crate::storage::{LogKind, Storage};
use crate::version::edit::VersionEdit;
use crate::version::set::VersionSet;

/// A new store in memory.
pub(super) fn fresh(version_log_bytes: u64) -> (VersionSet, MemStorage) {
    let storage = MemStorage::default();
    let context = context(Arc::new(storage.clone()), version_log_bytes);
    let set = VersionSet::create(context, LINEAGE, HASH_SEED, &VersionEdit::default()).unwrap();
    (set, storage)
}

/// A new store in memory whose version logs have a fixed capacity and stale bytes.
fn fresh_in_areas(area_bytes: u64) -> (VersionSet, MemStorage) {
    let storage = MemStorage::default();
    storage.fix_version_logs(area_bytes);
    let context = context(Arc::new(storage.clone()), 16 << 20);
    let set = VersionSet::create(context, LINEAGE, HASH_SEED, &VersionEdit::default()).unwrap();
    (set, storage)
}

fn recover(storage: &MemStorage, version_log_bytes: u64) -> VersionSet {
    VersionSet::recover(context(Arc::new(storage.clone()), version_log_bytes)).unwrap()
}

/// Goal: replaying the log gives the same root, for every size of its base. Method: random edits
/// with log sizes that rewrite the base often or never; recover copies sometimes, also twice.
#[test]
fn recovery_gives_the_root_that_was_applied() {
    for (seed, version_log_bytes) in [(1, 4 << 10), (2, 64 << 10), (3, 16 << 20)] {
        let mut prng = Prng::new(seed);
        let (mut set, mut storage) = fresh(version_log_bytes);
        let mut epoch = 1;
        for step in 0..300 {
            let before = set.current();
            let edit = random_edit(&set, &mut prng);
            let installed = set.apply(edit).unwrap();
            assert!(Arc::ptr_eq(&installed.root, &set.current()));
            let live = set.live_tables();
            assert!(installed.removed.iter().all(|t| !live.contains(&t.meta().uid)));
            assert_eq!(live.len(), set.current().all_tables().count(), "seed {seed}, step {step}");
            // The older root is as it was.
            drop(dump(&before));
            if prng.chance(1, 10) {
                let copy = storage.fork();
                let recovered = recover(&copy, version_log_bytes);
                assert_eq!(dump(&recovered.current()), dump(&set.current()), "{seed} {step}");
                assert_eq!(copy.adopted(), live, "{seed} {step}: what storage was told");
                assert!(recovered.current().next_uid >= set.current().next_uid);
                assert!(recovered.current().next_epoch >= set.current().next_epoch);
                assert_eq!(copy.list_logs(LogKind::Versions).unwrap().len(), 1);
                if prng.chance(1, 2) {
                    epoch += 1;
                    (set, storage) = (recovered, copy);
                    assert_eq!(set.current().opening, epoch);
                }
            }
        }
        assert!(storage.list_logs(LogKind::Versions).unwrap().len() == 1);
    }
}

/// Goal: a version log of fixed capacity is left for a new base when it is full, whatever its area
/// held before; a failed write in it, which cannot be taken back, poisons the set. Method: random
/// edits in areas of 64 KiB, with a recovered copy beside; then a write that fails halfway.
#[test]
fn version_logs_of_fixed_capacity() {
    let mut prng = Prng::new(9);
    let (set, storage) = fresh_in_areas(64 << 10);
    let mut logs = std::collections::BTreeSet::new();
    for step in 0..200 {
        set.apply(random_edit(&set, &mut prng)).unwrap();
        logs.extend(set.version_log());
        if prng.chance(1, 10) {
            let recovered = recover(&storage.fork(), 16 << 20);
            assert_eq!(dump(&recovered.current()), dump(&set.current()), "step {step}");
        }
    }
    assert!(logs.len() > 10, "200 pages of edits in areas of 16: {logs:?}");
    let (at, kind) = (storage.calls(), ErrorKind::NoSpace);
    storage.set_fault(Some(Fault { at, times: 1, kind, effect: Effect::Half }));
    let before = dump(&set.current());
    let failed = set.apply(VersionEdit::default()).unwrap_err();
    assert!(failed.maybe_persisted && failed.error.kind() == ErrorKind::Poisoned, "{failed:?}");
    assert_eq!(dump(&recover(&storage.fork(), 16 << 20).current()), before);
}

/// Goal: what an interrupted attempt to begin a log has left is no part of the next attempt, though
/// both have one number and one opening (H71). Method: the edits behind the first attempt's base,
/// which is the second one's to the byte, lie in the area that the second one is written to.
#[test]
fn an_earlier_attempt_is_no_part_of_a_log() {
    let mut prng = Prng::new(12);
    let (set, storage) = fresh_in_areas(256 << 10);
    for _ in 0..10 {
        set.apply(random_edit(&set, &mut prng)).unwrap();
    }
    let before = storage.fork();
    let first = recover(&storage, 16 << 20);
    for _ in 0..10 {
        first.apply(random_edit(&first, &mut prng)).unwrap();
    }
    let number = first.version_log().unwrap();
    before.retire(storage.bytes(LogKind::Versions, number));
    let second = recover(&before, 16 << 20);
    assert_eq!(second.version_log(), Some(number), "the same number");
    assert_ne!(dump(&second.current()), dump(&first.current()));
    let again = recover(&before, 16 << 20);
    assert_eq!(dump(&again.current()), dump(&second.current()));
}

/// Goal: a tree that is too large for its area refuses edits and stays as it is. Method: keyspaces
/// until one does not fit.
#[test]
fn a_full_version_log_refuses_edits() {
    let (set, storage) = fresh_in_areas(16 << 10);
    let create = |number: u64| {
        let mut edit = VersionEdit::default();
        let changes = edit.keyspace(KeyspaceId::try_from(number).unwrap());
        changes.create = Some(format!("{number:0>200}"));
        changes.options = Some(Arc::new(Options::default()));
        edit
    };
    let refused = (0..1000).find_map(|number| {
        let before = dump(&set.current());
        Some((before, set.apply(create(number)).err()?))
    });
    let (before, failed) = refused.expect("16 KiB do not hold a thousand keyspaces");
    assert!(!failed.maybe_persisted && failed.error.kind() == ErrorKind::NoSpace, "{failed:?}");
    assert!(set.poison().is_none() && dump(&set.current()) == before);
    assert_eq!(dump(&recover(&storage.fork(), 16 << 20).current()), before);
}

/// Goal: crash anywhere, lose nothing that was acknowledged and gain at most the edit in flight;
/// crash again anywhere in the recovery, the same (bugs 30, 33, 34). Method: stop at every
/// call.
#[test]
fn crashes_at_every_call_and_again_in_recovery() {
    for (keep, areas) in [(0, false), (2, false), (4, false), (0, true), (2, true)] {
        for crash_at in 0.. {
            let mut prng = Prng::new(77);
            let (set, storage) = if areas { fresh_in_areas(32 << 10) } else { fresh(4 << 10) };
            storage.crash_at(storage.calls() + crash_at);
            let mut acknowledged = dump(&set.current());
            let mut in_flight = acknowledged.clone();
            for _ in 0..25 {
                let edit = random_edit(&set, &mut prng);
                in_flight = dump_after(&storage, &set, &edit);
                if let Err(failed) = set.apply(edit) {
                    assert!(failed.maybe_persisted || storage.has_crashed());
                    break;
                }
                acknowledged = dump(&set.current());
            }
            if !storage.has_crashed() {
                break;
            }
            storage.restart(&mut prng, keep);
            let expected = dump(&recover(&storage.fork(), 4 << 10).current());
            assert!(
                expected == acknowledged || expected == in_flight,
                "keep {keep}, call {crash_at}:\n{expected}\nis neither\n{acknowledged}\nnor\n\
                 {in_flight}"
            );
            for again in 0.. {
                let copy = storage.fork();
                copy.crash_at(again);
                let context = context(Arc::new(copy.clone()), 4 << 10);
                drop(VersionSet::recover(context));
                if !copy.has_crashed() {
                    break;
                }
                copy.restart(&mut prng, keep);
                let set = recover(&copy, 4 << 10);
                assert_eq!(dump(&set.current()), expected, "{keep} {crash_at} {again}");
                set.apply(random_edit(&set, &mut prng)).unwrap();
            }
        }
    }
}

/// What the root would be after `edit`, found by applying it to a copy of the store.
fn dump_after(storage: &MemStorage, set: &VersionSet, edit: &VersionEdit) -> String {
    let copy = recover(&storage.fork(), 1 << 30);
    assert_eq!(dump(&copy.current()), dump(&set.current()));
    dump(&copy.apply(edit.clone()).unwrap().root)
}

/// Goal: after any failing call the log is consistent, and `maybe_persisted` is correct (bugs 31,
/// 32, 35). Method: fail every call in turn, in three ways and with two errors; retry what may be
/// retried; compare with the recovered root at once and in the end.
#[test]
fn faults_at_every_call() {
    for effect in [Effect::Nothing, Effect::Half, Effect::All] {
        for kind in [ErrorKind::NoSpace, ErrorKind::Io] {
            for times in [1, 2, 3] {
                for at in 0..60 {
                    one_fault(Fault { at, times, kind, effect });
                }
            }
        }
    }
}

fn one_fault(fault: Fault) {
    let mut prng = Prng::new(5);
    let (set, storage) = fresh(8 << 10);
    storage.set_fault(Some(Fault { at: storage.calls() + fault.at, ..fault }));
    for step in 0..12 {
        let edit = random_edit(&set, &mut prng);
        let before = dump(&set.current());
        let mut tries = 0;
        while let Err(failed) = set.apply(edit.clone()) {
            let found = dump(&recover(&storage.fork(), 1 << 20).current());
            assert_eq!(dump(&set.current()), before, "{fault:?}: nothing is installed");
            if failed.maybe_persisted {
                assert_eq!(failed.error.kind(), ErrorKind::Poisoned);
                assert!(set.poison().is_some());
                let kind = set.apply(edit.clone()).unwrap_err().error.kind();
                assert_eq!(kind, ErrorKind::Poisoned, "{fault:?}");
                return;
            }
            if failed.error.kind() == ErrorKind::Poisoned {
                // The rewrite after the last good edit failed.
                assert_eq!(found, before, "{fault:?}, step {step}");
                return;
            }
            assert_eq!(failed.error.kind(), fault.kind);
            assert_eq!(found, before, "{fault:?}, step {step}: said not to be there");
            tries += 1;
            assert!(tries <= fault.times, "{fault:?}: cannot be retried");
        }
        let found = dump(&recover(&storage.fork(), 1 << 20).current());
        assert_eq!(found, dump(&set.current()), "{fault:?}, step {step}");
    }
}

/// A failed append that cannot be rolled back either refuses all edits until the next opening.
#[test]
fn a_disk_that_stays_broken_poisons_the_set() {
    let (set, storage) = fresh(4 << 10);
    let mut prng = Prng::new(9);
    set.apply(random_edit(&set, &mut prng)).unwrap();
    let kind = ErrorKind::NoSpace;
    storage.set_fault(Some(Fault { at: 0, times: u64::MAX, kind, effect: Effect::Half }));
    let failed = set.apply(random_edit(&set, &mut prng)).unwrap_err();
    assert!(failed.maybe_persisted);
    storage.set_fault(None);
    let failed = set.apply(random_edit(&set, &mut prng)).unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Poisoned);
    let again = recover(&storage, 4 << 10);
    again.apply(random_edit(&again, &mut prng)).unwrap();
}

#[test]
fn a_lost_root_is_not_an_empty_store() {
    let storage = MemStorage::default();
    let create = |storage: &MemStorage| {
        let context = context(Arc::new(storage.clone()), 1 << 20);
        VersionSet::create(context, Lineage::new(1), 2, &VersionEdit::default()).map(drop)
    };
    storage.create_log(LogKind::Wal, segment(1), 0).unwrap();
    assert_eq!(create(&storage).unwrap_err().kind(), ErrorKind::Corruption);
    storage.remove_log(LogKind::Wal, segment(1)).unwrap();
    storage.add_table(uid(7));
    assert_eq!(create(&storage).unwrap_err().kind(), ErrorKind::Corruption);
    storage.remove_table(uid(7)).unwrap();
    // Files of a crashed creation do not prevent the next one.
    storage.create_log(LogKind::Versions, segment(1), 0).unwrap();
    create(&storage).unwrap();
    assert_eq!(storage.list_logs(LogKind::Versions).unwrap(), [segment(2)]);
    assert_eq!(create(&storage).unwrap_err().kind(), ErrorKind::Conflict);
    storage.set_root(None);
    let recovered = VersionSet::recover(context(Arc::new(storage), 1 << 20)).map(drop);
    assert_eq!(recovered.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Goal: a uid is never given out twice, though nothing durable shows that it was (H70). Method:
/// openings that draw uids, few or more than a mark allows, with edits in between or without, and
/// that end with the power; storage lists no table.
#[test]
fn uids_are_never_given_out_twice() {
    let (mut set, storage) = fresh(64 << 10);
    let mut prng = Prng::new(3);
    let mut drawn = std::collections::BTreeSet::new();
    for opening in 0..40 {
        for _ in 0..1 + prng.below(2) {
            let many = if opening % 8 == 0 { 5000 } else { 0 };
            for _ in 0..many + prng.below(100) {
                assert!(drawn.insert(set.new_uid().unwrap()), "in opening {opening}");
            }
            if prng.chance(1, 2) {
                set.apply(random_edit(&set, &mut prng)).unwrap();
            }
        }
        drop(set);
        storage.restart(&mut prng, 2);
        set = recover(&storage, 64 << 10);
    }
    assert!(drawn.len() > 10_000, "only {} uids were drawn", drawn.len());
}

#[test]
fn numbers_are_never_used_twice() {
    let (set, storage) = fresh(1 << 20);
    let mut prng = Prng::new(4);
    for _ in 0..20 {
        set.apply(random_edit(&set, &mut prng)).unwrap();
    }
    let id = set.current().keyspaces.iter().next().unwrap().id;
    let mut edit = VersionEdit::default();
    edit.keyspace(id).drop = true;
    let installed = set.apply(edit).unwrap();
    assert!(!installed.root.keyspaces.contains(id));
    let (drawn, epoch, keyspace) =
        (set.new_uid().unwrap(), set.new_epoch(), set.new_keyspace_id().unwrap());
    // The next edit states the reserved uids; an orphan's uid is not reused either.
    set.apply(random_edit(&set, &mut prng)).unwrap();
    let orphan = uid(drawn.get() + 50);
    storage.add_table(orphan);
    let again = recover(&storage, 1 << 20);
    assert!(again.new_uid().unwrap() > orphan);
    assert!(again.new_epoch() > epoch);
    assert!(again.new_keyspace_id().unwrap() > keyspace);
    // A flush that ends after its keyspace was dropped.
    let mut edit = VersionEdit::default();
    edit.keyspace(id).add_table(
        level(0),
        again.new_epoch(),
        meta(again.new_uid().unwrap().get(), "a", "b", (1, 1)),
    );
    let failed = again.apply(edit).unwrap_err();
    assert_eq!((failed.error.kind(), failed.maybe_persisted), (ErrorKind::Closed, false));
}

#[test]
fn read_only_reads_and_refuses() {
    let (set, storage) = fresh(1 << 20);
    let mut prng = Prng::new(4);
    for _ in 0..20 {
        set.apply(random_edit(&set, &mut prng)).unwrap();
    }
    let calls = storage.calls();
    let read_only =
        VersionSet::open_read_only(context(Arc::new(storage.clone()), 1 << 20)).unwrap();
    assert_eq!(dump(&read_only.current()), dump(&set.current()));
    assert_eq!(read_only.version_log(), None);
    let failed = read_only.apply(VersionEdit::default()).unwrap_err();
    assert_eq!((failed.error.kind(), storage.calls()), (ErrorKind::ReadOnly, calls));
}

/// Goal: no damage of the version log or the root record is ever silent. Method: flip every bit;
/// the verdict is an error or the same root, never another one. Nothing behind the last edit proves
/// that it was durable, so a flip in it may lose it.
#[test]
fn flips_in_the_version_log_are_noticed() {
    let (set, storage) = fresh(1 << 20);
    let mut previous = String::new();
    let mut edit = VersionEdit::default();
    let part = edit.keyspace(KeyspaceId::new(0));
    part.create = Some("a".into());
    part.options = Some(Arc::new(Options::default()));
    set.apply(edit).unwrap();
    for i in 1..4 {
        previous = dump(&set.current());
        let mut edit = VersionEdit::default();
        let uid = set.new_uid().unwrap().get();
        edit.keyspace(KeyspaceId::new(0)).add_table(
            level(0),
            set.new_epoch(),
            meta(uid, "a", "b", (i, i)),
        );
        set.apply(edit).unwrap();
    }
    let last = dump(&set.current());
    let number = set.version_log().unwrap();
    let bytes = storage.bytes(LogKind::Versions, number);
    let (mut errors, mut shorter) = (0, 0);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if bytes[bit / 8] == 0 && bit % 64 != 0 {
            continue; // Padding, mostly: a sample of it is enough.
        }
        storage.set_bytes(LogKind::Versions, number, flipped);
        let context = context(Arc::new(storage.clone()), 1 << 20);
        match VersionSet::open_read_only(context) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "bit {bit}: {error}");
                errors += 1;
            }
            Ok(set) => {
                let found = dump(&set.current());
                assert!(found == last || found == previous, "bit {bit}");
                shorter += usize::from(found == previous);
            }
        }
    }
    assert!(errors > 1000 && shorter > 100, "{errors} {shorter}");
}
