//! Fuzzing of blocks, indexes and whole tables; see `crate::fuzz`.
//!
//! A table's checksums are recomputed before it is opened, so that a mutated byte reaches the code
//! behind them: the footer's lengths are cut to the file's, then every checksum is computed. If
//! `verify` finds nothing wrong, all ways of reading must agree.

use std::sync::Arc;

use crate::base::checksum::{bind, crc, hash_key, place};
use crate::base::cursor::Cursor;
use crate::base::ids::{KeyspaceId, TableUid};
use crate::base::key::{Kind, SEQ_MAX, Seq};
use crate::base::pages::PageVec;
use crate::cache::Purpose;
use crate::device::sim::{SimDisk, SimOptions};
use crate::options::Compression;
use crate::storage::Storage;
use crate::storage::files::Files;
use crate::table::TableMemory;
use crate::table::block::Layout;
use crate::table::format::{
    FOOTER_BYTES, Footer, KIND_DATA, KIND_FILTER, KIND_INDEX, KIND_PROPERTIES, hash_check,
    section_checksum,
};
use crate::table::index::Index;
use crate::table::{CursorOptions, ReadAhead, Table, TableBuilder, TableOptions, read_meta};

/// The number of the table.
const UID: TableUid = TableUid::new(7);
/// The seed of its filter.
const SEED: u64 = 0x5eed;
/// Bytes behind the content of a stored block: its checksum.
const CHECKSUM_BYTES: usize = 4;

/// A data block: header, every row, searches for every key.
pub fn block(data: &[u8]) {
    let Ok(layout) = Layout::parse(data) else { return };
    if layout.validate(data).is_err() {
        // Searches of blocks that were not validated are safe too (invariant 2 of `block`).
        let _ = layout.search(data, data.get(..9).unwrap_or_default(), 5);
        return;
    }
    assert!(layout.len(data) <= data.len());
    let _ = layout.stored_hash(data);
    let mut key = layout.common(data).to_vec();
    let hash = layout.compute_hash(data, &mut Vec::new());
    let _ = hash;
    for i in 0..layout.count() {
        let row = layout.row(data, i);
        let key_len = layout.write_key(data, i, &row, &mut key);
        let found = layout.search(data, &key[..key_len], row.seq);
        assert!(found.index <= layout.count());
        assert!(data.get(row.value_range()).is_some());
    }
}

/// An index with the number of blocks and bytes in its first bytes.
pub fn index(data: &[u8]) {
    let Some((head, bytes)) = data.split_first_chunk::<4>() else { return };
    let count = bytes.first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b));
    let data_bytes = u64::from(u32::from_le_bytes(*head));
    let Ok(index) = Index::decode(PageVec::from(bytes), count, data_bytes) else { return };
    let mut end = 0;
    for b in 0..index.blocks() {
        let extent = index.extent(b);
        assert!(extent.offset == end && extent.bytes > 0, "{extent:?}");
        end += extent.bytes as u64;
        let (key, seq) = index.separator_key(b);
        assert_eq!(index.find(&key, seq), Some(b), "a search leads to the block of its separator");
        let _ = index.continues(b, &key);
    }
    assert_eq!(end, data_bytes);
}

/// A table file of a hundred entries: a seed of the corpus.
#[must_use]
pub fn sample_table(lz4: bool) -> Vec<u8> {
    let disk = SimDisk::new(SimOptions::default());
    disk.write_all("000001.tbl", b"");
    let compression = if lz4 { Compression::Lz4 } else { Compression::None };
    let write = || -> crate::Result<()> {
        let storage = Files::open_damaged(disk.dir())?;
        let options = TableOptions {
            block_bytes: 512,
            bloom_bits: 10.0,
            compression,
            hash_seed: SEED,
            keyspace: KeyspaceId::new(3),
        };
        let mut builder = TableBuilder::new(storage.create_table(UID, 0)?, UID, options);
        for n in 0..30u64 {
            let kind = if n % 7 == 3 { Kind::Delete } else { Kind::Put };
            let value = if kind == Kind::Put { &[b'v'; 30][..] } else { &[] };
            builder.add(format!("key{:03}", n / 3).as_bytes(), 100 - n, kind, value)?;
        }
        for n in 0..20u64 {
            builder.add(b"many", 50 - n, Kind::Put, format!("version {n:030}").as_bytes())?;
        }
        builder.finish()?;
        Ok(())
    };
    write().map_or_else(|_| Vec::new(), |()| disk.read_all("000007.tbl").unwrap_or_default())
}

/// Recomputes every checksum of a table file; `None` if it is too short for a footer.
fn sealed(data: &[u8]) -> Option<Vec<u8>> {
    let mut file = data.to_vec();
    let body_bytes = file.len().checked_sub(FOOTER_BYTES)?;
    let stated = |at: usize| {
        let field = data.get(body_bytes + at..).and_then(|bytes| bytes.first_chunk::<8>());
        field.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let mut left = body_bytes as u64;
    let mut take = |bytes: u64| {
        let taken = bytes.min(left);
        left -= taken;
        taken
    };
    // Offsets of the lengths: docs/format/table.md, "Footer".
    let (properties_bytes, filter_bytes, index_bytes) =
        (take(stated(40)), take(stated(32)), take(stated(24)));
    let data_bytes = left;
    let index_start = data_bytes as usize;
    let filter_start = index_start + index_bytes as usize;
    let properties_start = filter_start + filter_bytes as usize;
    // The blocks with the ends that the index gives, right or wrong.
    let blocks = file.get(index_start..)?.first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b));
    let bytes = PageVec::from(file.get(index_start..filter_start)?);
    if let Ok(index) = Index::decode(bytes, blocks, data_bytes) {
        for b in 0..index.blocks() {
            let extent = index.extent(b);
            let start = extent.offset as usize;
            let Some(content_bytes) = extent.bytes.checked_sub(CHECKSUM_BYTES) else { continue };
            let (content, checksum) = file[start..start + extent.bytes].split_at_mut(content_bytes);
            let right = bind(crc(content), place(UID, b as u32, KIND_DATA));
            checksum.copy_from_slice(&right.to_le_bytes());
        }
    }
    let section = |start: usize, bytes: u64, kind: u8| {
        section_checksum(&file[start..start + bytes as usize], UID, kind)
    };
    let mut footer = Footer {
        check_uid: UID,
        file_bytes: file.len() as u64,
        data_bytes,
        index_bytes,
        filter_bytes,
        properties_bytes,
        hash_check: hash_check(SEED),
        index_checksum: section(index_start, index_bytes, KIND_INDEX),
        filter_checksum: section(filter_start, filter_bytes, KIND_FILTER),
        properties_checksum: section(properties_start, properties_bytes, KIND_PROPERTIES),
        checksum: 0,
    };
    file.truncate(body_bytes);
    footer.encode(&mut file);
    Some(file)
}

/// A whole table file, its checksums recomputed.
///
/// # Panics
/// If `verify` finds nothing wrong and two ways of reading differ.
pub fn table(data: &[u8]) {
    let Some(file) = sealed(data) else { return };
    let disk = SimDisk::new(SimOptions::default());
    disk.write_all("000007.tbl", &file);
    let Ok(storage) = Files::open_damaged(disk.dir()) else { return };
    let Ok(source) = storage.open_table(UID) else { return };
    let Ok(meta) = read_meta(&*source, UID) else { return };
    let table = Table::new(Arc::new(storage), meta, SEED, TableMemory::default());
    let sound = table.verify().is_ok();
    let readahead = match data.first() {
        Some(byte) if byte % 2 == 1 => ReadAhead::Windows { window_bytes: 1 << 10 },
        _ => ReadAhead::Scan,
    };
    let options = CursorOptions { purpose: Purpose::Foreground, fill_cache: false, readahead };
    let mut cursor = table.cursor(options);
    let mut forward: Vec<(Vec<u8>, Seq, Kind, Vec<u8>)> = Vec::new();
    let entry = |cursor: &dyn Cursor| {
        (cursor.key().to_vec(), cursor.seq(), cursor.kind(), cursor.value().to_vec())
    };
    // Columns of width 0 take no bytes, but the file bounds the entries through their prefix
    // column.
    let most = file.len();
    cursor.seek_to_first();
    while cursor.valid() && forward.len() <= most {
        forward.push(entry(&cursor));
        cursor.next();
    }
    let whole = cursor.status().is_ok();
    let mut backward = Vec::new();
    cursor.seek_to_last();
    while cursor.valid() && backward.len() <= most {
        backward.push(entry(&cursor));
        cursor.prev();
    }
    backward.reverse();
    for (key, seq, kind, value) in &forward {
        let found = table.get(key, hash_key(key, SEED), *seq, Purpose::Foreground);
        cursor.seek(key, *seq);
        if sound {
            let hit = found.ok().flatten();
            let same = hit.is_some_and(|hit| {
                (hit.seq, hit.kind, &hit.value[..]) == (*seq, *kind, value.as_slice())
            });
            assert!(same, "get of {key:?} at {seq} differs from the scan");
            assert!(cursor.valid() && cursor.seq() == *seq && cursor.key() == key);
        }
    }
    assert!(!sound || (whole && forward == backward), "forwards and backwards differ");
    let absent = data.get(..data.len().min(12)).unwrap_or_default();
    let _ = table.get(absent, hash_key(absent, SEED), SEQ_MAX, Purpose::Foreground);
    cursor.seek(absent, SEQ_MAX);
    cursor.seek_for_prev(absent, 0);
    let _ = table.approximate_offset(absent);
}
