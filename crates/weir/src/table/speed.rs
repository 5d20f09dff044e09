//! Measurements by hand, not tests: they print and assert nothing.
//!
//! `cargo test --release -p weir table::speed -- --ignored --nocapture --test-threads 1`
//!
//! `WEIR_SPEED_ENTRIES` sets the size of the table (300,000: 35 MB, larger than most caches).

use std::hint::black_box;
use std::sync::Arc;

use crate::base::checksum::hash_key;
use crate::base::clock::now_nanos;
use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::key::{Kind, SEQ_MAX};
use crate::base::prng::Prng;
use crate::cache::{BlockCache, Purpose};
use crate::options::Compression;
use crate::storage::TableWriter;
use crate::table::testing::*;
use crate::table::{Table, TableBuilder, TableOptions};

/// Counts what it is given and forgets it.
struct Nowhere(u64);

impl TableWriter for Nowhere {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0 += black_box(bytes).len() as u64;
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0
    }
    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
    fn abandon(self: Box<Self>) {}
}

fn count() -> u64 {
    std::env::var("WEIR_SPEED_ENTRIES").ok().and_then(|n| n.parse().ok()).unwrap_or(300_000)
}

/// Keys of 16 bytes, values of 100 bytes, half of them compressible.
fn entries() -> Vec<Entry> {
    let mut prng = Prng::new(1);
    (0..count())
        .map(|n| {
            let mut value = vec![b'v'; 100];
            value[..50].fill_with(|| prng.next_u64() as u8);
            (format!("{:016}", n * 7).into_bytes(), 1 + prng.below(1 << 20), Kind::Put, value)
        })
        .collect()
}

fn cached_table(compression: Compression) -> (Arc<Table>, Vec<Entry>) {
    let entries = entries();
    let storage = Arc::new(MemoryTables::default());
    let options = TableOptions { compression, ..options(4096) };
    let meta = write_table(&storage, 1, options, &entries);
    println!("{} entries, {} bytes, {} blocks", meta.entries, meta.bytes, meta.blocks);
    let table = open_table(&storage, meta, Some(Arc::new(BlockCache::new(1 << 30))));
    let mut cursor = table.cursor(scan_options(true, true));
    cursor.seek_to_first();
    while cursor.valid() {
        cursor.next();
    }
    (table, entries)
}

/// Runs `body` a few times and prints the best nanoseconds for each of its `steps` steps.
fn measure(what: &str, steps: u64, mut body: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = now_nanos();
        body();
        best = best.min((now_nanos() - start) as f64 / steps as f64);
    }
    println!("{what}: {best:.1} ns, {:.2} M/s", 1e3 / best);
}

#[test]
#[ignore = "a measurement"]
fn builder_speed() {
    let entries = entries();
    for compression in [Compression::None, Compression::Lz4] {
        measure(&format!("add, {compression:?}"), entries.len() as u64, || {
            let options = TableOptions { compression, ..options(4096) };
            let mut builder = TableBuilder::new(Box::new(Nowhere(0)), 1, options);
            for (key, seq, kind, value) in &entries {
                builder.add(key, *seq, *kind, value).unwrap();
            }
            builder.finish().unwrap();
        });
    }
}

#[test]
#[ignore = "a measurement"]
fn get_speed() {
    let (table, entries) = cached_table(Compression::None);
    let mut prng = Prng::new(2);
    let keys: Vec<(Vec<u8>, u64)> = (0..200_000)
        .map(|_| {
            let key = &entries[prng.below(entries.len() as u64) as usize].0;
            (key.clone(), hash_key(key, SEED))
        })
        .collect();
    let steps = keys.len() as u64;
    measure("get, cached, present", steps, || {
        for (key, hash) in &keys {
            let hit = table.get(key, *hash, SEQ_MAX, Purpose::Foreground).unwrap();
            black_box(hit.map(|hit| hit.value.len()));
        }
    });
    measure("get, cached, the filter excludes it", steps, || {
        for (key, hash) in &keys {
            let other = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            black_box(table.get(key, other, SEQ_MAX, Purpose::Foreground).unwrap().is_some());
        }
    });
    let opened = table.opened().unwrap();
    measure("  of which the fence", steps, || {
        for (key, _) in &keys {
            black_box(opened.index.find(key, SEQ_MAX));
        }
    });
    measure("  of which the filter", steps, || {
        for (_, hash) in &keys {
            black_box(opened.may_contain(*hash));
        }
    });
    measure("  of which fence and cache", steps, || {
        for (key, _) in &keys {
            let block = opened.index.find(key, SEQ_MAX).unwrap();
            black_box(table.block(opened, block, Purpose::Foreground, true).unwrap());
        }
    });
}

#[test]
#[ignore = "a measurement"]
fn cursor_speed() {
    for compression in [Compression::None, Compression::Lz4] {
        let (table, entries) = cached_table(compression);
        let steps = entries.len() as u64;
        for (what, fill_cache, readahead) in [("cached", true, true), ("", false, true)] {
            let mut cursor = table.cursor(scan_options(fill_cache, readahead));
            if !fill_cache {
                table.cache().unwrap().erase_table(1, table.block_count());
            }
            measure(&format!("next, {compression:?} {what}"), steps, || {
                cursor.seek_to_first();
                while cursor.valid() {
                    black_box((cursor.key(), cursor.value()));
                    cursor.next();
                }
            });
            measure(&format!("prev, {compression:?} {what}"), steps, || {
                cursor.seek_to_last();
                while cursor.valid() {
                    black_box((cursor.key(), cursor.value()));
                    cursor.prev();
                }
            });
        }
        measure(&format!("verify, {compression:?}"), steps, || {
            table.verify().unwrap();
        });
    }
}

#[test]
#[ignore = "a measurement"]
fn seek_speed() {
    let (table, entries) = cached_table(Compression::None);
    let mut prng = Prng::new(2);
    let keys: Vec<_> = (0..200_000)
        .map(|_| entries[prng.below(entries.len() as u64) as usize].0.clone())
        .collect();
    let mut cursor = table.cursor(scan_options(true, true));
    measure("seek, cached", keys.len() as u64, || {
        for key in &keys {
            cursor.seek(key, SEQ_MAX);
            black_box(cursor.value());
        }
    });
}
