//! The run cursor against a sorted vector of entries, over real tables.

use std::sync::Arc;

use crate::base::cursor::{Approach, Cursor};
use crate::base::ids::{epoch, uid};
use crate::base::key::{SEQ_MAX, Seq, compare_entries};
use crate::base::prng::Prng;
use crate::table::testing::{
    Entry, MemoryTables, open_table, options, random_entries, scan_options, write_table,
};
use crate::table::{ReadAhead, Table};
use crate::version::run::Run;
use crate::version::tables::TableList;

/// Cuts sorted entries into tables at random user-key changes.
fn run_of(storage: &Arc<MemoryTables>, prng: &mut Prng, entries: &[Entry]) -> Arc<Run> {
    let mut tables = Vec::new();
    let mut start = 0;
    for end in 1..=entries.len() {
        let last = end == entries.len();
        if last || (entries[end].0 != entries[end - 1].0 && prng.chance(1, 6)) {
            let uid = uid(tables.len() as u64 + 1);
            let meta = write_table(storage, uid, options(512), &entries[start..end]);
            let table = open_table(storage, meta.clone(), None);
            tables.push((Arc::new(meta), table));
            start = end;
        }
    }
    let tables = TableList::<Arc<Table>>::new(tables).unwrap();
    Arc::new(Run::new(epoch(1), crate::version::shape::RunKind::Data, tables))
}

fn entry_at(cursor: &impl Cursor) -> Option<Entry> {
    cursor.status().unwrap();
    let entry = || (cursor.key().to_vec(), cursor.seq(), cursor.kind(), cursor.value().to_vec());
    cursor.valid().then(entry)
}

/// Goal: one run behaves as one sorted sequence. Method: random seeks to keys inside tables,
/// between them and outside all, then walks in both directions and turns.
#[test]
fn a_run_is_one_sorted_sequence() {
    for seed in 0..40 {
        let mut prng = Prng::new(seed);
        let count = 1 + prng.below(300) as usize;
        let entries = random_entries(&mut prng, count, 60);
        let storage = Arc::new(MemoryTables::default());
        let run = run_of(&storage, &mut prng, &entries);
        let ways = [ReadAhead::Scan, ReadAhead::Windows { window_bytes: 2048 }];
        let mut cursor = run.cursor(scan_options(false, ways[seed as usize % 2]));
        assert!(!cursor.valid() && cursor.status().is_ok());
        for _ in 0..200 {
            let (mut key, _, _, _) = entries[prng.below(entries.len() as u64) as usize].clone();
            match prng.below(4) {
                0 => key.push(0),
                1 => {
                    key.pop();
                }
                2 => key.insert(0, prng.next_u64() as u8),
                _ => {}
            }
            let seq: Seq = if prng.chance(1, 3) { SEQ_MAX } else { prng.below(400) };
            if prng.chance(1, 2) {
                Approach::STEPS.iter().for_each(|&step| cursor.approach(&key, seq, step));
                assert_eq!(entry_at(&cursor), None, "seed {seed}: approached");
            }
            let mut at: Option<usize> = match prng.below(4) {
                0 => {
                    cursor.seek(&key, seq);
                    entries.iter().position(|e| compare_entries((&e.0, e.1), (&key, seq)).is_ge())
                }
                1 => {
                    cursor.seek_for_prev(&key, seq);
                    entries.iter().rposition(|e| compare_entries((&e.0, e.1), (&key, seq)).is_le())
                }
                2 => {
                    cursor.seek_to_first();
                    Some(0)
                }
                _ => {
                    cursor.seek_to_last();
                    Some(entries.len() - 1)
                }
            };
            for _ in 0..prng.below(30) {
                assert_eq!(entry_at(&cursor).as_ref(), at.map(|at| &entries[at]), "seed {seed}");
                let Some(here) = at else { break };
                if prng.chance(2, 3) {
                    cursor.next();
                    at = (here + 1 < entries.len()).then_some(here + 1);
                } else {
                    cursor.prev();
                    at = here.checked_sub(1);
                }
            }
        }
    }
}

/// A damaged table stops the cursor; a seek elsewhere goes on.
#[test]
fn a_damaged_table_is_not_stepped_over() {
    let mut prng = Prng::new(8);
    let entries = random_entries(&mut prng, 400, 60);
    let storage = Arc::new(MemoryTables::default());
    let run = run_of(&storage, &mut prng, &entries);
    assert!(run.tables.len() > 3);
    let (broken, _) = run.tables.get(1).unwrap();
    let mut bytes = storage.bytes_of(broken.uid);
    bytes[3] ^= 1;
    storage.put_bytes(broken.uid, bytes);
    let mut cursor = run.cursor(scan_options(false, ReadAhead::Scan));
    cursor.seek_to_first();
    let mut seen = 0;
    while cursor.valid() {
        seen += 1;
        cursor.next();
    }
    assert!(cursor.status().is_err());
    let first = run.tables.get(0).unwrap().0.entries;
    assert_eq!(seen, first);
    cursor.seek_to_last();
    assert!(cursor.valid() && cursor.status().is_ok());
    while cursor.valid() {
        cursor.prev();
    }
    assert!(cursor.status().is_err());
}
