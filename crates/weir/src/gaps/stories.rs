//! Scans that leap, beside everything else that a store does.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::base::prng::Prng;
use crate::{Cursor, Db, DebugDbOptions, DebugOptions, Durability, Keyspace, Options, WriteBatch};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(dir: &tempfile::TempDir, gap_entries: usize, entries: u64) -> Db {
    let debug = DebugDbOptions::default().gap_entries(gap_entries);
    let options = Options::default()
        .write_buffer_bytes(64 << 10)
        .debug(DebugOptions::default().write_buffer_entries(entries));
    Db::builder(dir.path().join("db")).debug(debug).default_options(options).open().expect("open")
}

fn any_key(prng: &mut Prng) -> Vec<u8> {
    let alphabet = [0u8, 1, b'a', 0xff];
    (0..prng.below(4)).map(|_| alphabet[prng.below(4) as usize]).collect()
}

fn any_bound(prng: &mut Prng) -> Bound<Vec<u8>> {
    match prng.below(4) {
        0 | 1 => Bound::Unbounded,
        2 => Bound::Included(any_key(prng)),
        _ => Bound::Excluded(any_key(prng)),
    }
}

fn is_within(key: &[u8], lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    let above = match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= &bound[..],
        Bound::Excluded(bound) => key > &bound[..],
    };
    above
        && match upper {
            Bound::Unbounded => true,
            Bound::Included(bound) => key <= &bound[..],
            Bound::Excluded(bound) => key < &bound[..],
        }
}

struct Open {
    cursor: Cursor,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    at: Option<usize>,
    told: String,
}

impl Open {
    fn go(&mut self, prng: &mut Prng, seed: u64) {
        let count = self.rows.len();
        let what = prng.below(6);
        let key = any_key(prng);
        match what {
            0 => {
                self.cursor.seek_to_first();
                self.at = (count > 0).then_some(0);
            }
            1 => {
                self.cursor.seek_to_last();
                self.at = count.checked_sub(1);
            }
            2 | 4 => {
                self.cursor.seek(&key);
                self.at = Some(self.rows.partition_point(|r| r.0 < key)).filter(|&n| n < count);
            }
            _ => {
                self.cursor.seek_for_prev(&key);
                self.at = self.rows.partition_point(|r| r.0 <= key).checked_sub(1);
            }
        }
        self.check(seed, what, &key);
        let turns = prng.below(2) == 0;
        let mut forward = prng.below(2) == 0;
        for _ in 0..prng.below(30) {
            let Some(at) = self.at else { return };
            forward ^= turns && prng.below(4) == 0;
            if forward {
                self.cursor.next();
                self.at = Some(at + 1).filter(|&n| n < count);
            } else {
                self.cursor.prev();
                self.at = at.checked_sub(1);
            }
            self.check(seed, 10 + u64::from(forward), &key);
        }
    }

    fn check(&self, seed: u64, what: u64, key: &[u8]) {
        self.cursor.status().expect("no error");
        let shown = self.cursor.entry().map(|(k, v)| (k.to_vec(), v.to_vec()));
        let expected = self.at.map(|at| self.rows[at].clone());
        assert_eq!(shown, expected, "seed {seed}, {what} {key:?}: {}", self.told);
    }
}

fn write(prng: &mut Prng, db: &Db, spaces: &[Keyspace], models: &mut [Model], step: u64) {
    let mut batch = WriteBatch::new();
    let durability = match prng.below(3) {
        0 => Durability::None,
        _ => Durability::Buffered,
    };
    let only = prng.below(2) as usize;
    let deletes = prng.below(3) != 0;
    for n in 0..1 + prng.below(30) {
        let at = if durability == Durability::None { only } else { prng.below(2) as usize };
        let (key, value) = (any_key(prng), format!("{step}.{n}").into_bytes());
        if deletes || prng.below(3) == 0 {
            batch.delete(&spaces[at], &key);
            models[at].remove(&key);
        } else {
            batch.put(&spaces[at], &key, &value);
            models[at].insert(key, value);
        }
    }
    db.write(batch, durability).expect("write");
}

/// Goal: leaps change no answer, whatever else is done. Method: two keyspaces, batches over both
/// and unlogged ones, flushes, merges, sentinels; cursors that live on, within bounds that may
/// cross, of snapshots too, over short keys with first and last bytes, beside a model of each.
#[test]
fn nothing_is_missed_whatever_is_done() {
    let mut leapt = 0;
    for seed in 0..24u64 {
        let mut prng = Prng::new(seed);
        let dir = tempfile::tempdir().expect("a directory");
        let db = open(&dir, 1 + (seed % 3) as usize, 8 << (seed % 4 * 2));
        let second = db.create_keyspace("b", db.default_keyspace().options()).expect("create");
        let spaces = [db.default_keyspace().clone(), second];
        let mut models = [Model::new(), Model::new()];
        let mut snapshots = Vec::new();
        let mut open: Vec<Open> = Vec::new();
        for step in 0..1500u64 {
            match prng.below(40) {
                0..=9 => write(&mut prng, &db, &spaces, &mut models, step),
                10 if snapshots.len() < 3 => snapshots.push((db.snapshot(), models.clone())),
                10 => drop(snapshots.remove(prng.below(3) as usize)),
                11 if prng.below(4) == 0 => spaces[prng.below(2) as usize].flush().expect("flush"),
                12 if prng.below(16) == 0 => db.compact_range(..).expect("compact"),
                13 if prng.below(6) == 0 => {
                    let (from, to) = (any_key(&mut prng), any_key(&mut prng));
                    if from < to {
                        let at = prng.below(2) as usize;
                        spaces[at].build_sentinel(from..to).expect("a sentinel");
                    }
                }
                14..=17 => {
                    let at = prng.below(2) as usize;
                    let (lower, upper) = (any_bound(&mut prng), any_bound(&mut prng));
                    let old = (prng.below(3) == 0 && !snapshots.is_empty())
                        .then(|| &snapshots[prng.below(snapshots.len() as u64) as usize]);
                    let bounds = (lower.clone(), upper.clone());
                    let (cursor, seen) = match old {
                        Some((snapshot, seen)) => {
                            (snapshot.cursor_range(&spaces[at], bounds), &seen[at])
                        }
                        None => (spaces[at].cursor_range(bounds), &models[at]),
                    };
                    let rows = seen.iter().filter(|(k, _)| is_within(k, &lower, &upper));
                    let rows = rows.map(|(k, v)| (k.clone(), v.clone())).collect();
                    let told = format!("space {at} within {lower:?} {upper:?}, step {step}");
                    open.push(Open { cursor, rows, at: None, told });
                    if open.len() > 5 {
                        drop(open.swap_remove(prng.below(5) as usize));
                    }
                }
                _ if open.is_empty() => {}
                _ => {
                    let n = prng.below(open.len() as u64) as usize;
                    open[n].go(&mut prng, seed);
                }
            }
        }
        leapt += db.metrics().keyspaces.iter().map(|k| k.scan_leaps).sum::<u64>();
    }
    assert!(leapt > 1000, "{leapt} leaps");
}

/// Goal: a writer sees its own put at once, in both directions and from wherever it looks. Method:
/// four of them, in groups, beside a reader that has ranges watched and proven.
#[test]
fn writers_see_their_own_puts() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(&dir, 2, 200);
    let second = db.create_keyspace("b", db.default_keyspace().options()).expect("create");
    let spaces = [db.default_keyspace().clone(), second];
    let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let key = |writer: u64, n: u64| (n * 4 + writer).to_be_bytes();
    std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for writer in 0..4u64 {
            let (db, spaces, count) = (&db, &spaces, &count);
            writers.push(scope.spawn(move || {
                let mut prng = Prng::new(writer);
                for step in 0..4_000u64 {
                    let (n, at) = (prng.below(200), prng.below(2) as usize);
                    let own = key(writer, n);
                    let mut batch = WriteBatch::new();
                    batch.put(&spaces[at], own, step.to_le_bytes());
                    let durability =
                        [Durability::None, Durability::Buffered][prng.below(2) as usize];
                    if durability == Durability::Buffered {
                        batch.put(&spaces[1 - at], own, step.to_le_bytes());
                    }
                    db.write(batch, durability).expect("put");
                    let from = key(0, n - prng.below(n + 1));
                    let to = key(3, n + prng.below(40));
                    let mut cursor = spaces[at].cursor_range(from..=to);
                    let forward = prng.below(2) == 0;
                    if forward {
                        cursor.seek_to_first()
                    } else {
                        cursor.seek_to_last()
                    }
                    while cursor.entry().is_some_and(|(k, _)| k != own) {
                        if forward { cursor.next() } else { cursor.prev() }
                    }
                    let shown = cursor.entry().map(|(_, v)| v.to_vec());
                    assert_eq!(shown, Some(step.to_le_bytes().to_vec()), "{writer}, step {step}");
                    let mut batch = WriteBatch::new();
                    batch.delete(&spaces[0], own);
                    batch.delete(&spaces[1], own);
                    db.write(batch, Durability::Buffered).expect("delete");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        let (db, over) = (&db, &over);
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let _ = (db.first().expect("read"), db.last().expect("read"));
            }
        });
        let failed = writers.into_iter().filter_map(|w| w.join().err()).count();
        over.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "of 4 writers");
    });
    let leaps: u64 = db.metrics().keyspaces.iter().map(|k| k.scan_leaps).sum();
    assert!(leaps > 0);
}

/// Goal: a reader to whom entries are hidden because they are too new has their range watched by
/// nobody: it would displace what is watched for a reason, and could not be proven.
#[test]
fn what_is_too_new_is_not_watched() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(&dir, 64, 1 << 20);
    for n in 0..20u64 {
        db.put((n * 1000).to_be_bytes(), b"old").expect("put");
    }
    let snapshot = db.snapshot();
    for n in 0..20_000u64 {
        if n % 1000 != 0 {
            db.put(n.to_be_bytes(), b"new").expect("put");
        }
    }
    assert_eq!(snapshot.keys(db.default_keyspace()).count(), 20);
    let tree = &db.default_keyspace().tree;
    assert!(!tree.gaps.are_any(), "ranges full of entries are watched");
}

/// Goal: a run of hidden entries that is met by steps is noted until it is proven, and then leapt
/// over, not noted again by every scan.
#[test]
fn a_run_met_by_steps_is_leapt_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(&dir, 16, 1 << 20);
    // Ten deletes over ten puts: 20 entries, more than 16 and fewer than 32.
    for n in 0..12u8 {
        db.put([n], b"v").expect("put");
    }
    for n in 1..11u8 {
        db.delete([n]).expect("delete");
    }
    for _ in 0..20 {
        assert_eq!(db.keys().count(), 2);
    }
    let leaps: u64 = db.metrics().keyspaces.iter().map(|k| k.scan_leaps).sum();
    assert!(leaps > 0, "20 scans of the same run, no leap");
}
