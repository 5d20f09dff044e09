//! Tables against an oracle, on every kind of damage, and by the number of their reads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::checksum::hash_key;
use crate::base::cursor::Cursor;
use crate::base::error::ErrorKind;
use crate::base::key::{Kind, SEQ_MAX, Seq, compare_entries};
use crate::base::memory::{Accountant, Category};
use crate::base::prng::Prng;
use crate::base::table_meta::TableMeta;
use crate::cache::{BlockCache, Purpose};
use crate::options::Compression;
use crate::storage::Storage;
use crate::table::testing::*;
use crate::table::{Table, TableBuilder, TableCursor, TableOptions, read_meta};

/// Root seed of the random tests; a failure prints the derived one.
const ROOT_SEED: u64 = 20_261_120;

fn get(table: &Table, key: &[u8], snapshot: Seq) -> crate::Result<Option<(Seq, Kind, Vec<u8>)>> {
    let hit = table.get(key, hash_key(key, SEED), snapshot, Purpose::Foreground)?;
    Ok(hit.map(|hit| (hit.seq, hit.kind, hit.value.to_vec())))
}

/// The oracle's answer to a get.
fn expected_get(entries: &[Entry], key: &[u8], snapshot: Seq) -> Option<(Seq, Kind, Vec<u8>)> {
    let at = entries.partition_point(|e| compare_entries((&e.0, e.1), (key, snapshot)).is_lt());
    let (found, seq, kind, value) = entries.get(at)?;
    (found == key).then(|| (*seq, *kind, value.clone()))
}

fn current(cursor: &TableCursor) -> Option<Entry> {
    cursor.status().unwrap();
    cursor.valid().then(|| {
        assert_eq!(&*cursor.shared_value(), cursor.value());
        (cursor.key().to_vec(), cursor.seq(), cursor.kind(), cursor.value().to_vec())
    })
}

/// Walks a cursor at random and compares every position with the oracle's.
fn walk(cursor: &mut TableCursor, entries: &[Entry], prng: &mut Prng, steps: usize, seed: u64) {
    let mut at: Option<usize> = None;
    for step in 0..steps {
        let (key, seq) = random_target(prng, entries);
        let before = |e: &Entry| compare_entries((&e.0, e.1), (&key, seq));
        match prng.below(10) {
            0 => {
                cursor.seek(&key, seq);
                at = Some(entries.partition_point(|e| before(e).is_lt()));
            }
            1 => {
                cursor.seek_for_prev(&key, seq);
                at = entries.partition_point(|e| before(e).is_le()).checked_sub(1);
            }
            2 if prng.chance(1, 4) => {
                cursor.seek_to_first();
                at = Some(0);
            }
            3 if prng.chance(1, 4) => {
                cursor.seek_to_last();
                at = entries.len().checked_sub(1);
            }
            n if cursor.valid() => {
                // Runs of steps in one direction, so that readahead is exercised.
                for _ in 0..=prng.below(40) {
                    if n % 2 == 0 {
                        cursor.next();
                        at = at.map(|i| i + 1);
                    } else {
                        cursor.prev();
                        at = at.and_then(|i| i.checked_sub(1));
                    }
                    if !cursor.valid() {
                        break;
                    }
                }
            }
            _ => continue,
        }
        let expected = at.and_then(|i| entries.get(i)).cloned();
        assert_eq!(current(cursor), expected, "seed {seed}, step {step}, at {at:?}");
        at = at.filter(|&i| i < entries.len());
    }
}

fn random_target(prng: &mut Prng, entries: &[Entry]) -> (Vec<u8>, Seq) {
    let (mut key, mut seq) = match prng.below(20) {
        0 => (Vec::new(), SEQ_MAX),
        1 => (vec![0xff; 20], 0),
        _ => {
            let entry = &entries[prng.below(entries.len() as u64) as usize];
            (entry.0.clone(), entry.1)
        }
    };
    match prng.below(8) {
        0 => key.push(0),
        1 => drop(key.pop()),
        2 => key.last_mut().map_or((), |b| *b = b.wrapping_add(1)),
        3 => seq = (seq + 1).min(SEQ_MAX),
        4 => seq = seq.saturating_sub(1),
        5 => seq = [0, SEQ_MAX][prng.below(2) as usize],
        _ => {}
    }
    (key, seq)
}

fn random_options(prng: &mut Prng) -> TableOptions {
    let mut compressions = vec![Compression::None];
    compressions
        .extend([Compression::Lz4, Compression::Zstd].iter().filter(|c| c.available().is_ok()));
    TableOptions {
        block_bytes: [512, 1024, 4096, 16 << 10, 64 << 10][prng.below(5) as usize],
        bloom_bits: [0.0, 3.0, 10.0][prng.below(3) as usize],
        compression: compressions[prng.below(compressions.len() as u64) as usize],
        hash_seed: SEED,
    }
}

/// Goal: a table answers every get at every snapshot, and stands at every position, as a sorted
/// list does. Method: random keys of several shapes with many versions, all options, cache on, off
/// and tiny, random walks of cursors with and without readahead.
#[test]
fn tables_agree_with_a_sorted_list() {
    let mut root = Prng::new(ROOT_SEED);
    for round in 0..60 {
        let seed = root.next_u64();
        let mut prng = Prng::new(seed);
        let count = [1, 5, 200, 2000][round % 4];
        let value_max = [0, 10, 300, 3000][prng.below(4) as usize];
        let entries = random_entries(&mut prng, count, value_max);
        let storage = Arc::new(MemoryTables::default());
        let meta = write_table(&storage, 1, random_options(&mut prng), &entries);
        let cache = match prng.below(3) {
            0 => None,
            1 => Some(Arc::new(BlockCache::new(8 << 10))),
            _ => Some(Arc::new(BlockCache::new(64 << 20))),
        };
        let table = open_table(&storage, meta.clone(), cache);
        let stats = table.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(stats.entries, entries.len() as u64);
        for _ in 0..500 {
            let (key, snapshot) = random_target(&mut prng, &entries);
            let expected = expected_get(&entries, &key, snapshot);
            assert_eq!(get(&table, &key, snapshot).unwrap(), expected, "seed {seed}");
        }
        for (key, seq, ..) in entries.iter().take(500) {
            let expected = expected_get(&entries, key, *seq);
            assert_eq!(get(&table, key, *seq).unwrap(), expected, "seed {seed}");
        }
        for (fill, readahead) in [(true, true), (false, true), (false, false)] {
            let mut cursor = table.cursor(scan_options(fill, readahead));
            assert!(!cursor.valid() && cursor.status().is_ok());
            walk(&mut cursor, &entries, &mut prng, 120, seed);
        }
        let source = storage.open_table(1).unwrap();
        assert_eq!(read_meta(&*source, 1).unwrap(), meta, "seed {seed}");
    }
}
