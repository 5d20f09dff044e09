//! Damage of every kind: the verdict must be "the right answer, or an error that names the place",
//! never a wrong or silently missing one, and never a panic.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::checksum::{bind, crc, hash_key, mask, place};
use crate::base::cursor::Cursor;
use crate::base::error::{Error, ErrorKind};
use crate::base::ids::{TableUid, uid};
use crate::base::key::{Kind, SEQ_MAX};
use crate::base::prng::Prng;
use crate::base::table_meta::TableMeta;
use crate::cache::Purpose;
use crate::options::Compression;
use crate::storage::Storage;
use crate::table::TableMemory;
use crate::table::block::{BlockBuilder, Layout};
use crate::table::format::{FOOTER_BYTES, Footer, KIND_DATA, KIND_INDEX};
use crate::table::testing::*;
use crate::table::{ReadAhead, Table, TableOptions, read_meta};

/// Entries of a table with a handful of small blocks, one of which continues another.
fn small_entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for n in 0..30u64 {
        let key = format!("key{:03}", n / 3).into_bytes();
        let (seq, kind) = (100 - n, if n % 7 == 3 { Kind::Delete } else { Kind::Put });
        let value = if kind == Kind::Put { vec![b'a' + n as u8; 40] } else { Vec::new() };
        entries.push((key, seq, kind, value));
    }
    for n in 0..20u64 {
        entries.push((
            b"many".to_vec(),
            50 - n,
            Kind::Put,
            format!("version {n:040}").into_bytes(),
        ));
    }
    entries
}

fn options_with(compression: Compression) -> TableOptions {
    TableOptions { compression, ..options(512) }
}

/// A damaged table must give an error with the right kind, file and, for data blocks, key range.
fn assert_names_the_place(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    let damage = error.damage().expect("a corruption has a place");
    assert!(damage.file.starts_with("memory/"), "{error}");
    assert!(damage.key_range.is_some(), "{error}");
}

/// Reads everything through gets and scans in both directions. Returns whether any read failed;
/// panics if one gives neither the right answer nor an error.
fn read_all(table: &Arc<Table>, entries: &[Entry], check_errors: bool) -> bool {
    let mut failed = false;
    let mut seen = |error: Error| {
        failed = true;
        if check_errors {
            assert_names_the_place(&error);
        }
    };
    for (key, seq, kind, value) in entries {
        match table.get(key, hash_key(key, SEED), *seq, Purpose::Foreground) {
            Ok(Some(hit)) => {
                assert_eq!((hit.seq, hit.kind, &*hit.value), (*seq, *kind, &value[..]));
            }
            Ok(None) => panic!("{key:?} at {seq} is silently missing"),
            Err(error) => seen(error),
        }
    }
    for forward in [true, false] {
        let mut cursor = table.cursor(scan_options(false, ReadAhead::Scan));
        if forward {
            cursor.seek_to_first()
        } else {
            cursor.seek_to_last()
        };
        let mut count = 0;
        while cursor.valid() {
            let at = if forward { count } else { entries.len() - 1 - count };
            let (key, seq, kind, value) = &entries[at];
            assert_eq!((cursor.key(), cursor.seq()), (&key[..], *seq));
            assert_eq!((cursor.kind(), cursor.value()), (*kind, &value[..]));
            count += 1;
            if forward {
                cursor.next()
            } else {
                cursor.prev()
            };
        }
        match cursor.status() {
            Ok(()) => assert_eq!(count, entries.len(), "a scan ended early without an error"),
            Err(error) => seen(error),
        }
    }
    failed
}

/// Goal: every bit of a table file is covered. Method: flip each bit of a small table; verification
/// must fail, reads must be right or fail, and at least one of them must fail.
#[test]
fn every_flipped_bit_is_an_error() {
    for compression in [Compression::None, Compression::Lz4] {
        if compression.available().is_err() {
            continue;
        }
        let entries = small_entries();
        let storage = Arc::new(MemoryTables::default());
        let meta = write_table(&storage, uid(1), options_with(compression), &entries);
        assert!(meta.blocks >= 4, "{} blocks", meta.blocks);
        let good = storage.bytes_of(uid(1));
        assert!(!read_all(&open_table(&storage, meta.clone(), None), &entries, true));
        let footer = Footer::decode(&good, "good", good.len() as u64).unwrap();
        let filter_start = footer.data_bytes + footer.index_bytes;
        let filter = filter_start..filter_start + footer.filter_bytes;
        assert!(!filter.is_empty());
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            storage.put_bytes(uid(1), bytes);
            let table = open_table(&storage, meta.clone(), None);
            let error = table.verify().expect_err("verification must notice every flip");
            assert_eq!(error.kind(), ErrorKind::Corruption, "bit {bit}: {error}");
            assert!(read_all(&table, &entries, true), "bit {bit} was not noticed by any read");
            let from_file = read_meta(&*storage.open_table(uid(1)).unwrap(), uid(1));
            let in_tail = bit / 8 >= good.len() - meta.tail_bytes as usize;
            // `read_meta` does not need the filter, so that a repair does not.
            let in_filter = filter.contains(&(bit as u64 / 8));
            assert_eq!(from_file.is_err(), in_tail && !in_filter, "bit {bit}");
        }
    }
}

/// Opening detects a file that was cut or extended, with and without its description.
#[test]
fn every_truncation_is_an_error() {
    let entries = small_entries();
    let storage = Arc::new(MemoryTables::default());
    let meta = write_table(&storage, uid(1), options(512), &entries);
    let good = storage.bytes_of(uid(1));
    for len in (0..good.len()).chain([good.len() + 1, good.len() + 4096]) {
        let mut bytes = good.clone();
        bytes.resize(len, 0);
        storage.put_bytes(uid(1), bytes);
        let error = open_table(&storage, meta.clone(), None).verify().unwrap_err();
        assert_names_the_place_or_file(&error);
        let error = read_meta(&*storage.open_table(uid(1)).unwrap(), uid(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{len}: {error}");
    }
}

fn assert_names_the_place_or_file(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.damage().is_some_and(|damage| damage.file == "memory/1"), "{error}");
}

/// Complete and correctly checksummed bytes in the wrong place are detected: another table under
/// this name, an older file of the same uid, a block swapped with its neighbour, a store with
/// another hash seed (docs/hazards.md, bug 38).
#[test]
fn misplaced_bytes_are_errors() {
    let storage = Arc::new(MemoryTables::default());
    let entries = small_entries();
    let meta = write_table(&storage, uid(1), options(512), &entries);
    let good = storage.bytes_of(uid(1));

    let other = write_table(&storage, uid(2), options(512), &entries);
    assert_eq!(other.bytes, meta.bytes, "the tables differ in nothing but their names");
    storage.put_bytes(uid(1), storage.bytes_of(uid(2)));
    assert_names_the_place(&open_table(&storage, meta.clone(), None).verify().unwrap_err());

    let mut older = entries.clone();
    older[0].3 = Vec::new();
    older[0].3.resize(entries[0].3.len(), b'x');
    write_table(&storage, uid(1), options(512), &older);
    let error = open_table(&storage, meta.clone(), None).verify().unwrap_err();
    assert!(error.to_string().contains("another table"), "{error}");

    let mut swapped = good.clone();
    let table = open_table(&storage, meta.clone(), None);
    storage.put_bytes(uid(1), good.clone());
    let opened = table.pin().unwrap();
    let (a, b) = (opened.index.extent(0), opened.index.extent(1));
    let range = |e: crate::table::index::Extent| e.offset as usize..e.offset as usize + e.bytes;
    let both = [&good[range(b)], &good[range(a)]].concat();
    swapped[..both.len()].copy_from_slice(&both);
    storage.put_bytes(uid(1), swapped);
    assert!(read_all(&open_table(&storage, meta.clone(), None), &entries, true));

    storage.put_bytes(uid(1), good);
    let shared = Arc::clone(&storage) as Arc<dyn Storage>;
    let table = Table::new(shared, meta, SEED + 1, TableMemory::default());
    assert_names_the_place(&table.may_contain(1).unwrap_err());
}

/// Recomputes all checksums of a table whose bytes were changed, as a hostile writer would.
fn reseal(bytes: &mut [u8], blocks: &[(usize, usize)], uid: TableUid) {
    for (ordinal, &(start, end)) in blocks.iter().enumerate() {
        let sum = bind(crc(&bytes[start..end - 4]), place(uid, ordinal as u32, KIND_DATA));
        bytes[end - 4..end].copy_from_slice(&sum.to_le_bytes());
    }
    let footer = bytes.len() - FOOTER_BYTES;
    let length = |bytes: &[u8], at: usize| {
        let field = &bytes[footer + at..footer + at + 8];
        usize::try_from(u64::from_le_bytes(field.try_into().unwrap())).unwrap_or(usize::MAX)
    };
    let mut start = length(bytes, 16);
    for section in 0..3 {
        let end = start.saturating_add(length(bytes, 24 + 8 * section));
        let Some(content) = bytes.get(start..end) else { break };
        let sum = bind(crc(content), place(uid, 0, KIND_INDEX + section as u8));
        let at = footer + 56 + 4 * section;
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        start = end;
    }
    let sum = mask(crc(&bytes[footer..footer + 76]));
    bytes[footer + 76..footer + 80].copy_from_slice(&sum.to_le_bytes());
}

/// Goal: hostile bytes under right checksums never panic and never allocate more than the table's
/// size (PROMISES.md, P13). Method: set random bytes, and every length field, to extreme values,
/// recompute all checksums, then open, verify, get and scan; answers do not matter.
#[test]
fn hostile_tables_with_right_checksums_do_not_panic() {
    let mut root = Prng::new(77);
    for round in 0..1000 {
        let seed = root.next_u64();
        let mut prng = Prng::new(seed);
        let compression = [Compression::None, Compression::Lz4][round % 2];
        if compression.available().is_err() {
            continue;
        }
        let storage = Arc::new(MemoryTables::default());
        let entries = small_entries();
        let meta = write_table(&storage, uid(1), options_with(compression), &entries);
        let table = open_table(&storage, meta.clone(), None);
        let index = &table.pin().unwrap().index;
        let blocks: Vec<_> = (0..index.blocks())
            .map(|b| {
                (
                    index.extent(b).offset as usize,
                    index.extent(b).offset as usize + index.extent(b).bytes,
                )
            })
            .collect();
        let mut bytes = storage.bytes_of(uid(1));
        let tail_start = bytes.len() - meta.tail_bytes as usize;
        for _ in 0..=prng.below(4) {
            let at = match prng.below(3) {
                0 => blocks[prng.below(blocks.len() as u64) as usize].0 + prng.below(40) as usize,
                1 => tail_start + prng.below(meta.tail_bytes) as usize,
                _ => prng.below(bytes.len() as u64) as usize,
            };
            bytes[at] = [0, 1, 0x7f, 0x80, 0xff, prng.next_u64() as u8][prng.below(6) as usize];
        }
        reseal(&mut bytes, &blocks, uid(1));
        storage.put_bytes(uid(1), bytes);
        // A hostile description agrees with the hostile file where that is readable.
        let meta = read_meta(&*storage.open_table(uid(1)).unwrap(), uid(1)).unwrap_or(meta);
        exercise(&open_table(&storage, meta, None), &entries);
    }
}

/// Goal: no block yields a sequence number above the largest. Story: a base above it was accepted
/// if the numbers added to it were all 0; in a release build its top bits were lost. Found by
/// fuzzing.
#[test]
fn sequence_bases_above_the_largest_are_damage() {
    let mut builder = BlockBuilder::default();
    builder.add(b"key", 7, Kind::Put, b"value");
    let mut block = Vec::new();
    builder.finish(&mut block, &mut Vec::new());
    assert!(Layout::parse(&block).is_ok_and(|layout| layout.validate(&block).is_ok()));
    for base in [SEQ_MAX + 1, u64::MAX] {
        block[8..16].copy_from_slice(&base.to_le_bytes());
        assert!(Layout::parse(&block).is_ok_and(|layout| layout.validate(&block).is_err()));
    }
    block[8..16].copy_from_slice(&SEQ_MAX.to_le_bytes());
    assert!(Layout::parse(&block).is_ok_and(|layout| layout.validate(&block).is_ok()));
}

/// Reads everything; the results do not matter.
fn exercise(table: &Arc<Table>, entries: &[Entry]) {
    let _ = table.verify();
    for (key, seq, ..) in entries.iter().step_by(3) {
        let _ = table.get(key, hash_key(key, SEED), *seq, Purpose::Foreground);
        let _ = table.approximate_offset(key);
    }
    let mut cursor = table.cursor(scan_options(true, ReadAhead::Scan));
    let mut steps = 0;
    cursor.seek_to_first();
    while cursor.valid() && steps < 5000 {
        let _ = (cursor.key(), cursor.value());
        cursor.next();
        steps += 1;
    }
    cursor.seek_for_prev(b"many", 3);
    while cursor.valid() && steps < 10_000 {
        let _ = (cursor.key(), cursor.value());
        cursor.prev();
        steps += 1;
    }
    cursor.seek(b"key005", SEQ_MAX);
}

/// A feature of a newer version is refused by name, not taken for damage.
#[test]
fn newer_tables_are_refused_by_name() {
    let entries = small_entries();
    let storage = Arc::new(MemoryTables::default());
    let meta = write_table(&storage, uid(1), options(512), &entries);
    let good = storage.bytes_of(uid(1));
    let footer = good.len() - FOOTER_BYTES;
    let first_block = |bytes: &[u8]| {
        let table = open_table(&storage, meta.clone(), None);
        storage.put_bytes(uid(1), bytes.to_vec());
        let end = table.pin().unwrap().index.extent(0).bytes;
        vec![(0, end)]
    };
    let blocks = first_block(&good);
    // Format version, a feature bit, a compression code, a reserved byte and a kind in a block.
    for (at, value, name) in [
        (footer + 74, 2, "table format 2"),
        (footer + 68, 1, "table features 0x1"),
        (blocks[0].1 - 5, 9, "compressed in a way"),
        (21, 1, "layout"),
        (20, 3, "kind"),
    ] {
        let mut bytes = good.clone();
        bytes[at] = value;
        reseal(&mut bytes, &blocks, uid(1));
        let sum = u32::from_le_bytes(bytes[footer + 76..footer + 80].try_into().unwrap());
        storage.put_bytes(uid(1), bytes);
        let meta = TableMeta { tail_checksum: sum, ..meta.clone() };
        let error = open_table(&storage, meta, None).verify().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// A read error at any point of a scan ends it with that error; the cursor works again after the
/// next seek (docs/hazards.md, bugs 14 and 39).
#[test]
fn read_errors_end_a_scan_and_are_not_forgotten() {
    let entries = small_entries();
    let storage = Arc::new(MemoryTables::default());
    let meta = write_table(&storage, uid(1), options(512), &entries);
    let ways = [ReadAhead::Scan, ReadAhead::Windows { window_bytes: 2048 }];
    for (forward, readahead) in [true, false].into_iter().flat_map(|f| ways.map(|way| (f, way))) {
        let mut failures = 0;
        for nth in 1.. {
            let table = open_table(&storage, meta.clone(), None);
            storage.reads.store(0, Ordering::Relaxed);
            storage.failing_read.store(nth, Ordering::Relaxed);
            let mut cursor = table.cursor(scan_options(false, readahead));
            if forward {
                cursor.seek_to_first()
            } else {
                cursor.seek_to_last()
            };
            let mut count = 0;
            while cursor.valid() {
                count += 1;
                if forward {
                    cursor.next()
                } else {
                    cursor.prev()
                };
            }
            if storage.reads.load(Ordering::Relaxed) < nth {
                assert_eq!(count, entries.len());
                break;
            }
            failures += 1;
            assert!(count < entries.len());
            assert_eq!(cursor.status().unwrap_err().kind(), ErrorKind::Io);
            assert_eq!(cursor.status().unwrap_err().kind(), ErrorKind::Io, "status keeps it");
            cursor.seek_to_first();
            assert!(cursor.valid() && cursor.status().is_ok());
            assert_eq!(cursor.key(), entries[0].0);
        }
        assert!(failures >= 3, "{failures} reads failed");
        storage.failing_read.store(0, Ordering::Relaxed);
    }
}
