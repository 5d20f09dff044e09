//! Tests of tables against an oracle, and of the number of their reads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::checksum::hash_key;
use crate::base::cursor::{Approach, Cursor};
use crate::base::error::ErrorKind;
use crate::base::ids::{KeyspaceId, uid};
use crate::base::key::{Kind, SEQ_MAX, Seq, compare_entries};
use crate::base::memory::{Accountant, Category};
use crate::base::prng::Prng;
use crate::cache::{BlockCache, Purpose};
use crate::device::real::RealDir;
use crate::options::Compression;
use crate::storage::OpenOptions;
use crate::storage::Storage;
use crate::storage::files::Files;
use crate::table::TableMemory;
use crate::table::testing::*;
use crate::table::{ReadAhead, Table, TableBuilder, TableCursor, TableOptions, read_meta};

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
    cursor
        .valid()
        .then(|| (cursor.key().to_vec(), cursor.seq(), cursor.kind(), cursor.value().to_vec()))
}

/// Walks a cursor at random and compares every position with the oracle's.
fn walk(cursor: &mut TableCursor, entries: &[Entry], prng: &mut Prng, steps: usize, seed: u64) {
    let mut at: Option<usize> = None;
    for step in 0..steps {
        let (key, seq) = random_target(prng, entries);
        let before = |e: &Entry| compare_entries((&e.0, e.1), (&key, seq));
        // Usually to the seek's target. Any move that follows must be unaffected.
        if prng.chance(1, 5) {
            let elsewhere = prng.chance(1, 3).then(|| random_target(prng, entries));
            let (key, seq) = elsewhere.as_ref().map_or((&key, seq), |(key, seq)| (key, *seq));
            Approach::STEPS.iter().for_each(|&step| cursor.approach(key, seq, step));
            assert_eq!(current(cursor), None, "seed {seed}, step {step}: approached");
            at = None;
        }
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
        keyspace: KeyspaceId::new(prng.below(9) as u32),
    }
}

/// Goal: every get at every snapshot, and every position of a cursor, agrees with a sorted list.
/// Method: random keys of several shapes with many versions, all options, cache on, off and tiny,
/// random walks of cursors with and without readahead.
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
        let meta = write_table(&storage, uid(1), random_options(&mut prng), &entries);
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
        let merge = ReadAhead::Windows { window_bytes: 1 + prng.below(8192) };
        let scan = ReadAhead::Scan;
        for (fill, readahead) in [(false, merge), (true, scan), (false, scan), (false, merge)] {
            let mut cursor = table.cursor(scan_options(fill, readahead));
            assert!(!cursor.valid() && cursor.status().is_ok());
            walk(&mut cursor, &entries, &mut prng, 120, seed);
        }
        let source = storage.open_table(uid(1)).unwrap();
        assert_eq!(read_meta(&*source, uid(1)).unwrap(), meta, "seed {seed}");
    }
}

/// Entries far larger than a block get blocks of their own, and empty keys and values are entries
/// like others.
#[test]
fn extreme_entries_are_entries() {
    for compression in [Compression::None, Compression::Lz4] {
        if compression.available().is_err() {
            continue;
        }
        let mut prng = Prng::new(5);
        let noise: Vec<u8> = (0..3_000_000).map(|_| prng.next_u64() as u8).collect();
        let entries: Vec<Entry> = vec![
            (Vec::new(), SEQ_MAX, Kind::Put, Vec::new()),
            (Vec::new(), 0, Kind::Delete, Vec::new()),
            (b"\0".to_vec(), 7, Kind::Put, vec![1; 70_000]),
            (b"a".to_vec(), 9, Kind::Put, b"small".to_vec()),
            (b"a".to_vec(), 8, Kind::Put, noise),
            (b"a".to_vec(), 7, Kind::Put, b"small".to_vec()),
            (vec![b'k'; 65_535], 1, Kind::Put, Vec::new()),
            (vec![b'l'; 65_535], 1, Kind::Put, vec![2; 5]),
        ];
        let storage = Arc::new(MemoryTables::default());
        let options = TableOptions { compression, ..options(512) };
        let meta = write_table(&storage, uid(1), options, &entries);
        assert_eq!(meta.blocks, 7);
        let table = open_table(&storage, meta, Some(Arc::new(BlockCache::new(1 << 20))));
        table.verify().unwrap();
        for (key, seq, kind, value) in &entries {
            let expected = Some((*seq, *kind, value.clone()));
            assert_eq!(get(&table, key, *seq).unwrap(), expected);
        }
        let mut cursor = table.cursor(scan_options(true, ReadAhead::Scan));
        cursor.seek_to_first();
        for entry in &entries {
            assert_eq!(current(&cursor).as_ref(), Some(entry));
            cursor.next();
        }
        assert_eq!(current(&cursor), None);
    }
}

/// Compression that saves less than an eighth is not used; what it saves is saved.
#[test]
fn compression_must_pay() {
    let mut prng = Prng::new(6);
    for (noisy, compression) in [(true, Compression::Lz4), (false, Compression::Lz4)] {
        if compression.available().is_err() {
            return;
        }
        let entries: Vec<Entry> = (0..500u64)
            .map(|n| {
                let value = (0..100).map(|_| if noisy { prng.next_u64() as u8 } else { 7 });
                (format!("{n:08}").into_bytes(), n + 1, Kind::Put, value.collect())
            })
            .collect();
        let storage = MemoryTables::default();
        let plain = write_table(&storage, uid(1), options(4096), &entries).bytes;
        let packed = TableOptions { compression, ..options(4096) };
        let packed = write_table(&storage, uid(2), packed, &entries).bytes;
        if noisy {
            assert_eq!(packed, plain);
        } else {
            assert!(packed * 3 < plain, "{packed} of {plain}");
        }
    }
}

/// Nothing is read before it is needed: opening costs one read of the tail, a cached get none, a
/// get that the filter excludes none, and a scan reads ahead in ever larger pieces.
#[test]
fn reads_are_lazy_and_grow() {
    let entries: Vec<Entry> = (0..20_000u64)
        .map(|n| (format!("{n:016}").into_bytes(), n + 1, Kind::Put, vec![3; 100]))
        .collect();
    let storage = Arc::new(MemoryTables::default());
    let meta = write_table(&storage, uid(1), options(4096), &entries);
    assert!(meta.blocks > 500);
    let cache = Arc::new(BlockCache::new(64 << 20));
    let accountant = Accountant::new(1 << 30);
    let shared = Arc::clone(&storage) as Arc<dyn Storage>;
    let memory = TableMemory {
        cache: Some(Arc::clone(&cache)),
        accountant: Some(accountant.clone()),
        tables: None,
    };
    let table = Table::new(shared, meta.clone(), SEED, memory);
    let reads = || storage.reads.swap(0, Ordering::Relaxed);
    let mut idle = table.cursor(scan_options(true, ReadAhead::Scan));
    assert_eq!((reads(), accountant.used(Category::TableMetadata)), (0, 0));
    assert!(get(&table, b"0000000000000077x", SEQ_MAX).unwrap().is_none());
    assert_eq!(reads(), 1, "the tail, and no block: the filter excludes the key");
    assert!(accountant.used(Category::TableMetadata) > meta.entries);
    assert!(get(&table, b"0000000000000077", 5).unwrap().is_none());
    assert!(get(&table, b"0000000000000077", 500).unwrap().is_some());
    assert_eq!(reads(), 1);
    assert!(get(&table, b"0000000000000078", 500).unwrap().is_some());
    assert_eq!(reads(), 0);
    assert_eq!((cache.counters().hits, cache.counters().misses), ([2, 0], [1, 0]));

    idle.seek_to_first();
    while idle.valid() {
        idle.next();
    }
    idle.status().unwrap();
    let scan_reads = reads();
    assert!(scan_reads < 30, "{scan_reads} reads for {} blocks", meta.blocks);
    idle.seek_to_last();
    while idle.valid() {
        idle.prev();
    }
    assert_eq!(reads(), 0, "the scan has filled the cache");

    let mut background = table.cursor(scan_options(false, ReadAhead::Scan));
    cache.erase_table(uid(1), meta.blocks);
    background.seek_to_last();
    while background.valid() {
        background.prev();
    }
    assert!(reads() < 30);
    assert_eq!(cache.bytes(), 0, "a cursor that must not fill the cache did");
    drop((idle, background, table));
    assert_eq!(accountant.used(Category::TableMetadata), 0);
}

/// Goal: a merge reads in windows: a cached block inside of one does not split it into two
/// requests, cached blocks at its end are not read, a fully cached table is not read at all; a
/// user's scan of the same blocks still stops at cached ones. Method: every third block is cached,
/// then all but two.
#[test]
fn cached_blocks_do_not_end_a_window() {
    let entries: Vec<Entry> = (0..20_000u64)
        .map(|n| (format!("{n:016}").into_bytes(), n + 1, Kind::Put, vec![3; 100]))
        .collect();
    let storage = Arc::new(MemoryTables::default());
    let meta = write_table(&storage, uid(1), options(4096), &entries);
    let cache = Arc::new(BlockCache::new(64 << 20));
    let accountant = Accountant::new(1 << 30);
    let shared = Arc::clone(&storage) as Arc<dyn Storage>;
    let memory = TableMemory {
        cache: Some(Arc::clone(&cache)),
        accountant: Some(accountant.clone()),
        tables: None,
    };
    let table = Table::new(shared, meta.clone(), SEED, memory);
    let fill = || {
        let mut cursor = table.cursor(scan_options(true, ReadAhead::Scan));
        cursor.seek_to_first();
        while cursor.valid() {
            cursor.next();
        }
    };
    let reads_of = |readahead: ReadAhead| {
        storage.reads.store(0, Ordering::Relaxed);
        storage.bytes_read.store(0, Ordering::Relaxed);
        let mut cursor = table.cursor(scan_options(false, readahead));
        cursor.seek_to_first();
        let mut held = 0;
        for entry in &entries {
            assert_eq!(current(&cursor).as_ref(), Some(entry));
            held = held.max(accountant.used(Category::Jobs));
            cursor.next();
        }
        assert_eq!(current(&cursor), None);
        let (reads, bytes) = (&storage.reads, &storage.bytes_read);
        (reads.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed), held)
    };
    let merge = ReadAhead::Windows { window_bytes: 1 << 20 };
    fill();
    assert_eq!(reads_of(merge), (0, 0, 0), "all is cached");
    (0..meta.blocks).filter(|b| b % 3 > 0).for_each(|b| cache.erase(uid(1), b));
    let data_bytes = meta.bytes - meta.tail_bytes;
    let (reads, bytes, held) = reads_of(merge);
    assert_eq!(reads, data_bytes.div_ceil(1 << 20), "of windows");
    assert!(bytes <= data_bytes);
    assert!((1 << 20..=(1 << 20) + 8192).contains(&held), "{held} bytes are counted as the job's");
    assert_eq!(accountant.used(Category::Jobs), 0);
    assert!(reads_of(ReadAhead::Scan).0 > u64::from(meta.blocks / 4), "a scan stops at them");

    fill();
    [7, 9].into_iter().for_each(|b| cache.erase(uid(1), b));
    let (reads, bytes, _) = reads_of(merge);
    assert_eq!(reads, 1);
    assert!((8192..4 * 4096).contains(&bytes), "{bytes} bytes, of three blocks");
}

/// Goal: the hint before a seek reads no block, its block serves the seek, and hits and misses are
/// counted as without it.
#[test]
fn an_approach_counts_nothing_twice() {
    let entries: Vec<Entry> = (0..1000u64)
        .map(|n| (format!("{n:016}").into_bytes(), n + 1, Kind::Put, vec![3; 100]))
        .collect();
    let storage = Arc::new(MemoryTables::default());
    let meta = write_table(&storage, uid(1), options(4096), &entries);
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = open_table(&storage, meta, Some(Arc::clone(&cache)));
    let counts = || (cache.counters().hits[0], cache.counters().misses[0]);
    let mut cursor = table.cursor(scan_options(true, ReadAhead::Scan));
    let key = b"0000000000000500";
    Approach::STEPS.iter().for_each(|&step| cursor.approach(key, SEQ_MAX, step));
    assert_eq!((storage.reads.load(Ordering::Relaxed), counts()), (1, (0, 0)), "only the tail");
    cursor.seek(key, SEQ_MAX);
    assert_eq!(counts(), (0, 1));
    for (hits, key) in [(0, b"0000000000000100"), (1, b"0000000000000500")] {
        Approach::STEPS.iter().for_each(|&step| cursor.approach(key, SEQ_MAX, step));
        cursor.seek(key, SEQ_MAX);
        assert_eq!(cursor.key(), key);
        Approach::STEPS.iter().for_each(|&step| cursor.approach(key, SEQ_MAX, step));
        cursor.seek(key, SEQ_MAX);
        assert_eq!(cursor.key(), key);
        // The first key's block had to be read; the current block is not searched in the cache.
        assert_eq!(counts(), (hits, 2));
    }
}

/// Offsets grow with keys and are right within a block or two.
#[test]
fn offsets_are_estimated_within_a_block() {
    let entries: Vec<Entry> = (0..5000u64)
        .map(|n| (format!("{n:016}").into_bytes(), n + 1, Kind::Put, vec![3; 100]))
        .collect();
    let storage = Arc::new(MemoryTables::default());
    let meta = write_table(&storage, uid(1), options(4096), &entries);
    let table = open_table(&storage, meta.clone(), None);
    let offset = |key: &[u8]| table.approximate_offset(key).unwrap();
    assert_eq!(offset(b""), 0);
    assert_eq!(offset(b"1"), meta.bytes);
    let middle = offset(b"0000000000002500");
    let data = meta.bytes - meta.tail_bytes;
    assert!(middle.abs_diff(data / 2) < 8192, "{middle} of {data}");
}

/// Many versions of one key over many blocks: every snapshot finds its own.
#[test]
fn one_key_may_fill_many_blocks() {
    let mut entries: Vec<Entry> = vec![(b"a".to_vec(), 3, Kind::Put, b"x".to_vec())];
    for seq in (1..=3000u64).rev() {
        let kind = if seq % 3 == 0 { Kind::Delete } else { Kind::Put };
        let value = if kind == Kind::Put { seq.to_le_bytes().to_vec() } else { Vec::new() };
        entries.push((b"key".to_vec(), seq * 2, kind, value));
    }
    entries.push((b"key0".to_vec(), 1, Kind::Put, Vec::new()));
    let storage = Arc::new(MemoryTables::default());
    let meta = write_table(&storage, uid(1), options(512), &entries);
    assert!(meta.blocks > 50);
    let table = open_table(&storage, meta, None);
    table.verify().unwrap();
    for snapshot in (0..6010).chain([SEQ_MAX]) {
        let expected = expected_get(&entries, b"key", snapshot);
        assert_eq!(get(&table, b"key", snapshot).unwrap(), expected, "{snapshot}");
    }
}

/// Entries out of order are refused: a merge may get them from hostile tables.
#[test]
fn entries_out_of_order_are_damage() {
    for (key, seq) in [(b"b", 5), (b"b", 6), (b"a", 1)] {
        let writer = MemoryTables::default().create_table(uid(1), 0).unwrap();
        let mut builder = TableBuilder::new(writer, uid(1), options(512));
        builder.add(b"b", 5, Kind::Put, b"v").unwrap();
        let error = builder.add(key, seq, Kind::Put, b"v").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("comes after \"b\" at 5"), "{error}");
        builder.abandon();
    }
}

/// A table without entries is refused, an oversized key too, and the writer abandons the file.
#[test]
fn what_cannot_be_a_table_is_refused() {
    let storage = MemoryTables::default();
    let writer = storage.create_table(uid(1), 0).unwrap();
    let error = TableBuilder::new(writer, uid(1), options(512)).finish().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let mut builder =
        TableBuilder::new(storage.create_table(uid(2), 0).unwrap(), uid(2), options(512));
    let error = builder.add(&[1; 65_536], 1, Kind::Put, b"").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    builder.abandon();
    assert!(storage.list_tables().unwrap().is_empty());
}

/// Goal: where a table is, is in its description, as its writer said or, for a repair, its source;
/// its bytes do not tell. Method: a storage whose tables have places.
#[test]
fn descriptions_tell_the_place() {
    let storage = MemoryTables::in_slots();
    let entries = [(b"a".to_vec(), 1, Kind::Put, b"v".to_vec())];
    let placed = write_table(&storage, uid(7), options(512), &entries);
    assert_eq!(placed.place.extents().first().map(|extent| extent.slot), Some(7));
    assert_eq!(read_meta(&*storage.open_table(uid(7)).unwrap(), uid(7)).unwrap(), placed);
    let plain = MemoryTables::default();
    let named = write_table(&plain, uid(7), options(512), &entries);
    assert!(named.place.extents().is_empty());
    assert_eq!(storage.bytes_of(uid(7)), plain.bytes_of(uid(7)));
}

/// The same on a real directory: written, made durable, found again by its name, verified, scanned
/// both ways; an abandoned table leaves nothing.
#[test]
fn tables_live_in_a_directory() {
    let temp = tempfile::tempdir().unwrap();
    let dir = RealDir::open(temp.path(), false).unwrap();
    let files = Files::open(dir, OpenOptions { create: true, read_only: false }).unwrap();
    let files: Arc<dyn Storage> = Arc::new(files);
    let mut prng = Prng::new(9);
    let entries = random_entries(&mut prng, 20_000, 200);
    let mut builder =
        TableBuilder::new(files.create_table(uid(5), 0).unwrap(), uid(5), options(4096));
    for (key, seq, kind, value) in &entries {
        builder.add(key, *seq, *kind, value).unwrap();
    }
    assert_eq!(builder.entries(), entries.len() as u64);
    assert_eq!(builder.last_key(), entries.last().unwrap().0);
    let (meta, _) = builder.finish().unwrap();
    let mut abandoned =
        TableBuilder::new(files.create_table(uid(6), 0).unwrap(), uid(6), options(4096));
    abandoned.add(b"k", 1, Kind::Put, b"v").unwrap();
    abandoned.abandon();
    assert_eq!(files.list_tables().unwrap(), [uid(5)]);
    assert_eq!(read_meta(&*files.open_table(uid(5)).unwrap(), uid(5)).unwrap(), meta);

    let cache = Some(Arc::new(BlockCache::new(1 << 20)));
    let table = Table::new(files, meta, SEED, TableMemory { cache, ..TableMemory::default() });
    table.verify().unwrap();
    let mut cursor = table.cursor(scan_options(true, ReadAhead::Scan));
    walk(&mut cursor, &entries, &mut prng, 300, 9);
    cursor.seek_to_first();
    for entry in &entries {
        assert_eq!(current(&cursor).as_ref(), Some(entry));
        cursor.next();
    }
    cursor.seek_to_last();
    for entry in entries.iter().rev() {
        assert_eq!(current(&cursor).as_ref(), Some(entry));
        cursor.prev();
    }
}
