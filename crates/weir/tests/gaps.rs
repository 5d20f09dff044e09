//! Scans leap over ranges whose entries are all deleted, and nobody sees a difference.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use weir::{Db, DebugDbOptions, Options};

const SMALL: u64 = 64 << 10;

fn open(dir: &tempfile::TempDir, gap_entries: usize) -> Db {
    let debug = DebugDbOptions::default().gap_entries(gap_entries);
    let keyspace = Options::default().write_buffer_bytes(SMALL);
    let builder = Db::builder(dir.path().join("db")).debug(debug).default_options(keyspace);
    builder.open().expect("the store opens")
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

fn leaps(db: &Db) -> u64 {
    db.metrics().keyspaces.iter().map(|keyspace| keyspace.scan_leaps).sum()
}

/// Goal: a queue stays as fast as it is long: its scans leap over what was taken from it, from the
/// front and from the back, and see what is there. Method: entries are taken from one end and put
/// at the other, many more than a memtable holds; steps are bounded by leaps.
#[test]
fn a_queue_leaps_over_what_was_taken() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(&dir, 16);
    let (mut first, mut last) = (10_000, 10_100);
    (first..last).for_each(|n| db.put(key(n), [7; 20]).expect("put"));
    for round in 0..4_000 {
        let taken = if round % 2_000 < 1_000 {
            let (taken, _) = db.first().expect("read").expect("the queue is not empty");
            assert_eq!(*taken, key(first));
            db.put(key(last), [7; 20]).expect("put");
            (first, last) = (first + 1, last + 1);
            taken
        } else {
            let (taken, _) = db.last().expect("read").expect("the queue is not empty");
            last -= 1;
            assert_eq!(*taken, key(last));
            first -= 1;
            db.put(key(first), [7; 20]).expect("put");
            taken
        };
        db.delete(&*taken).expect("delete");
    }
    assert!(leaps(&db) > 3_000, "{} leaps", leaps(&db));
}

/// Goal: a put into a range that scans leap over is seen by the next one, and not by snapshots
/// taken before it. Method: random puts, deletes of ranges and scans in both directions, from
/// random keys and within bounds, of the store and of snapshots, beside a model of each.
#[test]
fn gaps_change_no_answer() {
    let mut total = 0;
    for seed in 0..12u64 {
        let dir = tempfile::tempdir().expect("a directory");
        let db = open(&dir, 1 + (seed % 3) as usize * 4);
        let mut random = seed * 7919 + 1;
        let mut below = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut snapshots = Vec::new();
        for step in 0..3_000u64 {
            match below(12) {
                0..=2 => {
                    let key = key(below(300));
                    db.put(&key, step.to_le_bytes()).expect("put");
                    model.insert(key, step);
                }
                3 | 4 => {
                    let from = below(300);
                    for n in from..from + below(40) {
                        db.delete(key(n)).expect("delete");
                        model.remove(&key(n));
                    }
                }
                5 if snapshots.len() < 4 => snapshots.push((db.snapshot(), model.clone())),
                5 => drop(snapshots.remove(below(4) as usize)),
                6 if below(30) == 0 => db.flush().expect("flush"),
                _ => {
                    let (from, to) = (key(below(300)), key(below(300)));
                    let old = (!snapshots.is_empty() && below(3) == 0)
                        .then(|| &snapshots[below(snapshots.len() as u64) as usize]);
                    let (mut cursor, seen) = match (old, below(3) == 0 && from < to) {
                        (Some((snapshot, seen)), _) => {
                            (snapshot.cursor(db.default_keyspace()), seen.clone())
                        }
                        (None, false) => (db.cursor(), model.clone()),
                        (None, true) => {
                            let within = model.range(from.clone()..to.clone());
                            let seen = within.map(|(k, v)| (k.clone(), *v)).collect();
                            (db.cursor_range(from.clone()..to), seen)
                        }
                    };
                    let shown = |cursor: &weir::Cursor| {
                        let entry = cursor.entry();
                        entry.map(|(k, v)| (k.to_vec(), u64::from_le_bytes(v.try_into().unwrap())))
                    };
                    let forward = below(2) == 0;
                    let expected: Vec<_> = match forward {
                        true => seen.range(from.clone()..).map(|(k, v)| (k.clone(), *v)).collect(),
                        false => seen
                            .range(..=from.clone())
                            .rev()
                            .map(|(k, v)| (k.clone(), *v))
                            .collect(),
                    };
                    if forward {
                        cursor.seek(&from)
                    } else {
                        cursor.seek_for_prev(&from)
                    }
                    for entry in expected.iter().map(Some).chain([None]).take(8) {
                        assert_eq!(shown(&cursor).as_ref(), entry, "seed {seed}, step {step}");
                        if entry.is_some() {
                            if forward { cursor.next() } else { cursor.prev() }
                        }
                    }
                    cursor.status().expect("no error");
                }
            }
        }
        total += leaps(&db);
    }
    assert!(total > 1_000, "{total} leaps");
}

/// Goal: what is put into a gap is seen by every scan that begins afterwards, whatever scans watch
/// and prove meanwhile. Method: threads that scan, beside one that deletes all keys but one, and
/// puts another one: at no moment does a scan find none.
#[test]
fn a_put_is_seen_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(&dir, 4);
    let over = AtomicBool::new(false);
    db.put(key(0), b"v").expect("put");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    assert!(db.first().expect("read").is_some(), "one is always there");
                    assert!(db.last().expect("read").is_some(), "one is always there");
                }
            });
        }
        for n in 1..20_000u64 {
            db.put(key(n), b"v").expect("put");
            db.delete(key(n - 1)).expect("delete");
            if n % 1_000 == 0 {
                // Into the gap, and out of it again.
                db.put(key(n / 2), b"v").expect("put");
                let (found, _) = db.first().expect("read").expect("it was put");
                assert_eq!(*found, key(n / 2));
                db.delete(key(n / 2)).expect("delete");
            }
        }
        over.store(true, Ordering::Release);
    });
    assert!(leaps(&db) > 1_000, "{} leaps", leaps(&db));
}

/// Goal: a scan within bounds says nothing of what lies behind them, where it lacks tables. Method:
/// a table behind the bounds whose keys lie between the last key within them and the next one of a
/// table that reaches over it; in both directions.
#[test]
fn bounds_hide_what_is_behind_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(&dir, 4);
    for n in [0, 300, 600] {
        db.put(key(n), b"v").expect("put");
    }
    (250..350).for_each(|n| db.put(key(n), b"v").expect("put"));
    db.flush().expect("flush");
    for inner in [100..110, 400..410] {
        inner.for_each(|n| db.put(key(n), b"v").expect("put"));
        db.flush().expect("flush");
    }
    (250..350).for_each(|n| db.delete(key(n)).expect("delete"));
    for _ in 0..3 {
        let mut cursor = db.cursor_range(key(200)..key(380));
        cursor.seek_to_first();
        assert!(!cursor.valid());
        cursor.seek_to_last();
        assert!(!cursor.valid());
    }
    assert_eq!(db.keys().count(), 22);
    assert_eq!(db.keys().rev().count(), 22);
    assert!(leaps(&db) > 0);
}
