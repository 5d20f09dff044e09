//! Scans that watch, prove and leap over ranges without an entry, beside puts into them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{actor, explore, open_small_store};
use crate::device::sim::{SimDisk, SimOptions};
use crate::{DbOptions, DebugDbOptions, Options};

const KEYS: u64 = 8;
const PUTS: u64 = 12;

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Goal: a scan that begins after a put was acknowledged sees the entry, though scans meanwhile
/// remember that there was none. Method: a writer puts a key before the only other one and deletes
/// it again; readers look for the first and the last key. The turn tells which key is there: odd
/// while it is.
#[test]
fn a_put_ends_a_gap() {
    explore(|mut prng| {
        let disk = SimDisk::new(SimOptions::default());
        let debug = DebugDbOptions::default().gap_entries(1);
        let options = DbOptions::default().debug(debug);
        let db = open_small_store(&disk, prng.next_u64(), options, Options::default());
        db.put(key(KEYS), b"last").expect("put");
        let (turn, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let keys: Vec<u64> = (0..PUTS).map(|_| prng.below(KEYS)).collect();
        let mut readers = Vec::new();
        for _ in 0..2 {
            let (db, turn, over) = (db.clone(), Arc::clone(&turn), Arc::clone(&over));
            let keys = keys.clone();
            readers.push(actor("reader", move || {
                while !over.load(Ordering::SeqCst) {
                    let before = turn.load(Ordering::SeqCst);
                    let (first, _) = db.first().expect("read").expect("one is always there");
                    if before % 2 == 1 && turn.load(Ordering::SeqCst) == before {
                        let there = keys[(before / 2) as usize];
                        assert_eq!(*first, key(there), "turn {before}");
                    }
                    crate::base::sched::switch_point();
                }
            }));
        }
        for &n in &keys {
            db.put(key(n), b"v").expect("put");
            turn.fetch_add(1, Ordering::SeqCst);
            (0..8).for_each(|_| crate::base::sched::switch_point());
            turn.fetch_add(1, Ordering::SeqCst);
            db.delete(key(n)).expect("delete");
            (0..8).for_each(|_| crate::base::sched::switch_point());
        }
        over.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|reader| assert!(reader.join(), "a reader failed"));
    });
}
