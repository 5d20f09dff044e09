//! What an edit costs, counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::db::Db;
use crate::options::{LeveledOptions, Options};
use crate::state::tree::SuperVersion;

const KEYSPACES: usize = 100;

/// Goal: an edit costs what it changes, however many keyspaces there are.
/// Method: in a store of a hundred keyspaces, flush, compact and change the options of one; count
/// the trees that deciders are shown, and compare the super-versions of the others by address.
#[test]
fn an_edit_costs_what_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder(dir.path().join("db")).background_threads(1).open().unwrap();
    let options = Options::default().compaction(LeveledOptions::default().l0_trigger(2));
    let name = |i: usize| format!("keyspace {i}");
    let keyspaces: Vec<_> =
        (0..KEYSPACES).map(|i| db.keyspace_with(&name(i), options.clone()).unwrap()).collect();
    for keyspace in &keyspaces {
        keyspace.put(b"k", b"v").unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let engine = &db.handle.engine;
    // Until the background thread has found nothing more to do in any of them.
    while !engine.jobs.state.lock().to_look_at.is_empty() {
        std::thread::yield_now();
    }
    let (one, others) = keyspaces.split_first().unwrap();
    let pins = || -> Vec<Arc<SuperVersion>> { others.iter().map(|k| k.tree.pin()).collect() };
    let check = |what: &str, edits: usize, change: &dyn Fn()| {
        let before = pins();
        let shown = engine.jobs.shapes.load(Ordering::Relaxed);
        change();
        db.wait_idle().unwrap();
        let shown = engine.jobs.shapes.load(Ordering::Relaxed) - shown;
        let same = before.iter().zip(pins()).all(|(a, b)| Arc::ptr_eq(a, &b));
        assert!(same, "{what} replaced the super-version of a keyspace that it did not touch");
        assert!(shown > 0 && shown <= 10 * edits, "{what} showed deciders {shown} trees");
    };
    check("a flush", 1, &|| {
        one.put(b"k", b"w").unwrap();
        one.flush().unwrap();
    });
    check("flushes and compactions", 6, &|| {
        for _ in 0..3 {
            one.put(b"k", b"w").unwrap();
            one.flush().unwrap();
        }
        one.compact_range(..).unwrap();
    });
    check("a change of options", 1, &|| {
        let other = options.clone().compaction(LeveledOptions::default().level_ratio(5));
        one.set_options(other).unwrap();
    });
    let sizes = one.tree.peek().options.compaction.level_sizes();
    assert_eq!(sizes.level_ratio, 5, "readers see the new options");
    db.close().unwrap();
}

/// Goal: a change of options lets writers that wait look again at once: it may be what lets them
/// go on. The story: they waited for the next job to end.
#[test]
fn a_change_of_options_is_told_to_who_waits() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    let engine = &db.handle.engine;
    // Nothing else is told meanwhile.
    engine.jobs.state.lock().rest_until = Some(u64::MAX);
    let seen = engine.shared.progress_generation();
    let other = Options::default().compaction(LeveledOptions::default().l0_trigger(100));
    db.default_keyspace().set_options(other).unwrap();
    assert_ne!(engine.shared.progress_generation(), seen);
    engine.note_job(Ok(()));
    db.close().unwrap();
}
