//! Few descriptors: files of tables are closed under slow readers too, and an opening without a
//! descriptor waits for one.
//!
//! The gates in these tests are those of a keyspace in which a lookup never ends: they keep
//! everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::checksum::hash_key;
use crate::base::cursor::Cursor;
use crate::base::ids::uid;
use crate::base::key::{Kind, SEQ_MAX};
use crate::base::sched::Mutex;
use crate::cache::Purpose;
use crate::storage::Storage;
use crate::table::TableMemory;
use crate::table::testing::*;
use crate::table::{Closed, Gates, ReadAhead, Table, TableCache};

/// Entries of a table, in several blocks.
const ENTRIES: u64 = 20;

#[derive(Default)]
struct EndlessLookup(Mutex<Vec<Closed>>);

impl Gates for EndlessLookup {
    fn keep(&self, closed: Vec<Closed>) {
        self.0.lock().extend(closed);
    }
}

struct World {
    storage: Arc<MemoryTables>,
    open: Arc<TableCache>,
    lookup: Arc<EndlessLookup>,
    tables: Vec<Arc<Table>>,
}

fn key(table: u64, entry: u64) -> Vec<u8> {
    (table * ENTRIES + entry).to_be_bytes().to_vec()
}

fn world(tables: u64, open_max: usize) -> World {
    let storage = Arc::new(MemoryTables::default());
    let open = TableCache::new(open_max);
    let lookup = Arc::new(EndlessLookup::default());
    let gates = Arc::clone(&lookup);
    open.set_gates(Box::new(move |_| Some(Arc::clone(&gates) as Arc<dyn Gates>)));
    let make = |n: u64| {
        let entry = |e: u64| (key(n, e), 1 + e, Kind::Put, key(n, e).repeat(20));
        let entries: Vec<Entry> = (0..ENTRIES).map(entry).collect();
        let meta = write_table(&storage, uid(1 + n), options(512), &entries);
        let storage = Arc::clone(&storage) as Arc<dyn Storage>;
        let memory = TableMemory { tables: Some(Arc::clone(&open)), ..TableMemory::default() };
        Table::new(storage, meta, SEED, memory)
    };
    let tables = (0..tables).map(make).collect();
    World { storage, open, lookup, tables }
}

impl World {
    /// Looks up an entry of a table, which reads a block of its file.
    fn get(&self, table: u64, entry: u64) -> crate::Result<()> {
        let key = key(table, entry);
        let hash = hash_key(&key, SEED);
        let hit = self.tables[table as usize].get(&key, hash, SEQ_MAX, Purpose::Foreground)?;
        assert_eq!(&*hit.unwrap().value, key.repeat(20), "table {table}, entry {entry}");
        Ok(())
    }

    fn files_open_max(&self) -> u64 {
        self.storage.files_open_max.load(Ordering::Relaxed)
    }
}

/// Goal: no more files are open than may be, while a lookup that began first is still running.
#[test]
fn a_slow_lookup_keeps_no_file() {
    let world = world(40, 4);
    for n in 0..120 {
        world.get(n % 40, n / 40).unwrap();
        assert!(world.open.open() <= 4, "{} tables are open after {n}", world.open.open());
    }
    assert_eq!(world.files_open_max(), 4);
    let kept = world.lookup.0.lock().len();
    assert!(kept >= 100, "{kept} indexes and filters were kept for the lookup");
}

/// Goal: the same with a cursor standing in each table.
#[test]
fn cursors_keep_no_files() {
    let world = world(40, 4);
    let scan = scan_options(false, ReadAhead::Scan);
    let mut cursors: Vec<_> = world.tables.iter().map(|table| table.cursor(scan)).collect();
    cursors.iter_mut().for_each(Cursor::seek_to_first);
    for entry in 0..ENTRIES {
        for (n, cursor) in cursors.iter_mut().enumerate() {
            cursor.status().unwrap();
            assert_eq!(cursor.key(), key(n as u64, entry));
            cursor.next();
        }
    }
    for (n, cursor) in cursors.iter_mut().enumerate() {
        assert!(!cursor.valid(), "table {n} ends");
        cursor.seek_to_last();
        assert_eq!(cursor.key(), key(n as u64, ENTRIES - 1));
    }
    assert_eq!(world.files_open_max(), 4);
}

/// Goal: where the process has few descriptors, openings close the files of others and wait for
/// their reads, under any `open_files_max`.
#[test]
fn openings_wait_for_descriptors() {
    let world = world(40, usize::MAX);
    world.storage.descriptors.store(3, Ordering::Relaxed);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let (world, done) = (&world, &done);
            scope.spawn(move || {
                for n in 0..200 {
                    world.get((thread * 7 + n * 11) % 40, n % ENTRIES).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 1200);
    assert!(world.files_open_max() <= 3);
}

/// Goal: the wait for a descriptor that is never released ends in an error, and nothing is lost by
/// it.
#[test]
fn the_wait_for_descriptors_ends() {
    let world = world(2, usize::MAX);
    world.storage.descriptors.store(0, Ordering::Relaxed);
    let error = world.get(0, 5).unwrap_err();
    assert!(error.is_too_many_open_files(), "{error}");
    assert_eq!(world.open.open(), 0);
    world.storage.descriptors.store(1, Ordering::Relaxed);
    world.get(0, 5).unwrap();
    world.get(1, 5).unwrap();
}
