//! Measurements by hand, not tests: they print and assert nothing.
//!
//! `WEIR_SPEED_ENTRIES=300000 cargo test --release -p weir-db table::speed -- --nocapture
//! --test-threads 1`
//!
//! `WEIR_SPEED_ENTRIES` sets the size of the table (300,000: 35 MB, larger than most caches).
//! Without it nothing is measured.

use std::hint::black_box;
use std::sync::Arc;

use crate::base::checksum::hash_key;
use crate::base::clock::now_nanos;
use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::ids::uid;
use crate::base::key::{Kind, SEQ_MAX};
use crate::base::place::Place;
use crate::base::prng::Prng;
use crate::cache::{BlockCache, Purpose};
use crate::options::Compression;
use crate::storage::{TableWriter, WrittenTable};
use crate::table::fetch::FetchFor;
use crate::table::testing::*;
use crate::table::{ReadAhead, Table, TableBuilder, TableOptions};

/// Counts bytes and discards them.
struct Nowhere(u64);

impl TableWriter for Nowhere {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0 += black_box(bytes).len() as u64;
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0
    }
    fn end(self: Box<Self>) -> Result<Box<dyn WrittenTable>> {
        Ok(self)
    }
    fn abandon(self: Box<Self>) {}
}

impl WrittenTable for Nowhere {
    fn place(&self) -> Place {
        Place::default()
    }
    fn sync(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Whether measurements were asked for.
fn is_wanted() -> bool {
    std::env::var_os("WEIR_SPEED_ENTRIES").is_some()
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
    let meta = write_table(&storage, uid(1), options, &entries);
    println!("{} entries, {} bytes, {} blocks", meta.entries, meta.bytes, meta.blocks);
    let table = open_table(&storage, meta, Some(Arc::new(BlockCache::new(1 << 30))));
    let mut cursor = table.cursor(scan_options(true, ReadAhead::Scan));
    cursor.seek_to_first();
    while cursor.valid() {
        cursor.next();
    }
    (table, entries)
}

/// Runs `body` in many short batches of `steps` steps and prints the lower quartile of their
/// nanoseconds per step, which a busy machine disturbs least.
fn measure(what: &str, steps: u64, batches: usize, mut body: impl FnMut(usize)) {
    let mut nanos: Vec<u64> = Vec::new();
    for batch in 0..batches {
        let start = now_nanos();
        body(batch);
        nanos.push(now_nanos() - start);
    }
    nanos.sort_unstable();
    let quartile = nanos[batches / 4] as f64 / steps as f64;
    println!("{what}: {quartile:.1} ns, {:.2} M/s", 1e3 / quartile);
}

/// Steps of one batch, and batches.
const BATCH: usize = 1000;
const BATCHES: usize = 400;

#[test]
fn builder_speed() {
    if !is_wanted() {
        return;
    }
    let entries = entries();
    for compression in [Compression::None, Compression::Lz4] {
        let options = TableOptions { compression, ..options(4096) };
        let mut builder = TableBuilder::new(Box::new(Nowhere(0)), uid(1), options);
        let batches = entries.len() / BATCH;
        measure(&format!("add, {compression:?}"), BATCH as u64, batches, |batch| {
            for (key, seq, kind, value) in &entries[batch * BATCH..(batch + 1) * BATCH] {
                builder.add(key, *seq, *kind, value).unwrap();
            }
        });
        let (start, keys) = (now_nanos(), builder.entries());
        builder.finish().unwrap();
        println!("finish: {:.1} ns per entry", (now_nanos() - start) as f64 / keys as f64);
    }
}

/// Random present keys with their hashes, for each batch its own.
fn random_keys(entries: &[Entry]) -> Vec<Vec<(Vec<u8>, u64)>> {
    let mut prng = Prng::new(2);
    let mut random = || {
        let key = &entries[prng.below(entries.len() as u64) as usize].0;
        (key.clone(), hash_key(key, SEED))
    };
    (0..BATCHES).map(|_| (0..BATCH).map(|_| random()).collect()).collect()
}

#[test]
fn get_speed() {
    if !is_wanted() {
        return;
    }
    let (table, entries) = cached_table(Compression::None);
    let keys = random_keys(&entries);
    let opened = &*table.pin().unwrap();
    let run = |what: &str, body: &dyn Fn(&[u8], u64)| {
        measure(what, BATCH as u64, BATCHES, |batch| {
            keys[batch].iter().for_each(|(key, hash)| body(key, *hash));
        });
    };
    run("get, cached, present", &|key, hash| {
        let hit = table.get(key, hash, SEQ_MAX, Purpose::Foreground).unwrap();
        black_box(hit.map(|hit| hit.value.len()));
    });
    run("get, cached, the filter excludes it", &|key, hash| {
        let other = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        black_box(table.get(key, other, SEQ_MAX, Purpose::Foreground).unwrap().is_some());
    });
    run("  nothing but the loop", &|key, hash| {
        black_box((key, hash));
    });
    run("  the fence", &|key, _| {
        black_box(opened.index.find(key, SEQ_MAX));
    });
    run("  the filter", &|_, hash| {
        black_box(opened.may_contain(hash));
    });
    let whom = FetchFor { purpose: Purpose::Foreground, fill_cache: true };
    run("  fence and cache", &|key, _| {
        let block = opened.index.find(key, SEQ_MAX).unwrap();
        black_box(table.fetch(opened, block, whom).unwrap());
    });
    let one = table.fetch(opened, 0, whom).unwrap();
    run("  search in one hot block", &|_, hash| {
        let key = &entries[(hash % 30) as usize].0;
        black_box(one.layout.search(one.bytes(), key, SEQ_MAX));
    });
    let mut cursor = table.cursor(scan_options(true, ReadAhead::Scan));
    measure("seek, cached", BATCH as u64, BATCHES, |batch| {
        for (key, _) in &keys[batch] {
            cursor.seek(key, SEQ_MAX);
            black_box(cursor.value());
        }
    });
}

#[test]
fn cursor_speed() {
    if !is_wanted() {
        return;
    }
    for compression in [Compression::None, Compression::Lz4] {
        let (table, entries) = cached_table(compression);
        let batches = entries.len() / BATCH;
        for (what, fill_cache) in [("cached", true), ("uncached", false)] {
            if !fill_cache {
                table.blocks().unwrap().cache().erase_table(uid(1), table.block_count());
            }
            let mut cursor = table.cursor(scan_options(fill_cache, ReadAhead::Scan));
            cursor.seek_to_first();
            measure(&format!("next, {compression:?}, {what}"), BATCH as u64, batches, |_| {
                for _ in 0..BATCH {
                    black_box((cursor.key(), cursor.value()));
                    cursor.next();
                }
            });
            cursor.seek_to_last();
            measure(&format!("prev, {compression:?}, {what}"), BATCH as u64, batches, |_| {
                for _ in 0..BATCH {
                    black_box((cursor.key(), cursor.value()));
                    cursor.prev();
                }
            });
        }
        let start = now_nanos();
        table.verify().unwrap();
        let nanos = (now_nanos() - start) as f64 / entries.len() as f64;
        println!("verify, {compression:?}: {nanos:.1} ns per entry");
    }
}
