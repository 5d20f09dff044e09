//! What does a batch of lookups save? Reads the same random keys one by one and in batches, from a
//! warm and from a cold block cache, and prints the time per key.
//!
//! `cargo run --release -p weir-db-bench --example multi_get -- [keys in the store] [rounds] [DIR]`
//! (1,000,000 keys of 16 + 100 bytes and 9 rounds by default; batches of 1,000 keys). Prints the
//! median and the extremes of the rounds. *Cold* means an empty block cache: the operating system
//! still has the files in memory.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the real clock")]

use std::time::Instant;

use weir::{Db, Error, Options};

const BATCH: usize = 1000;
const BATCHES: usize = 50;

fn mix(i: u64) -> u64 {
    let z = (i.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (i >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ (z >> 31)
}

fn key(i: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[8..].copy_from_slice(&i.to_be_bytes());
    key
}

/// How the keys of a batch lie in the store.
#[derive(Clone, Copy, Debug)]
enum Spread {
    /// Anywhere.
    Random,
    /// Anywhere in a hundredth of the keys.
    Near,
}

fn batch(spread: Spread, number: u64, keys: u64) -> Vec<[u8; 16]> {
    let draw = |i: u64| mix(number << 20 | i);
    let place = |i: u64| match spread {
        Spread::Random => draw(i) % keys,
        Spread::Near => (mix(number) % keys + draw(i) % (keys / 100)) % keys,
    };
    (0..BATCH as u64).map(|i| key(place(i))).collect()
}

/// Nanoseconds per key of all batches of one round, in one of both ways.
fn round(db: &Db, spread: Spread, first: u64, keys: u64, batched: bool) -> Result<f64, Error> {
    let batches: Vec<_> = (0..BATCHES as u64).map(|i| batch(spread, first + i, keys)).collect();
    let started = Instant::now();
    let mut found = 0;
    for batch in &batches {
        if batched {
            found += db.multi_get(batch)?.iter().flatten().count();
        } else {
            for key in batch {
                found += usize::from(db.get(key)?.is_some());
            }
        }
    }
    assert_eq!(found, BATCH * BATCHES, "every key is there");
    Ok(started.elapsed().as_nanos() as f64 / (BATCH * BATCHES) as f64)
}

fn open(path: &std::path::Path) -> Result<Db, Error> {
    let builder = Db::builder(path).memory_budget(1 << 30).block_cache_bytes(512 << 20);
    builder.default_options(Options::default()).open()
}

fn measure(path: &std::path::Path, keys: u64, rounds: u64) -> Result<(), Error> {
    let db = open(path)?;
    for i in 0..keys {
        db.put(key(i), [b'v'; 100])?;
    }
    db.compact_range(..)?;
    db.close()?;
    println!("ns per key           single: median (min, max)    batch: median (min, max)");
    for spread in [Spread::Random, Spread::Near] {
        for cold in [false, true] {
            let mut nanos = [Vec::new(), Vec::new()];
            for number in 0..rounds {
                for (way, nanos) in nanos.iter_mut().enumerate() {
                    let first = 1000 * number;
                    let db = open(path)?;
                    if cold {
                        // Indexes and filters are read first: they are not what is compared.
                        for i in 0..64 {
                            db.get(key(i * keys / 64))?;
                        }
                    } else {
                        db.iter().try_for_each(|entry| entry.map(drop))?;
                    }
                    nanos.push(round(&db, spread, first, keys, way == 1)?);
                }
            }
            print!("{:<7} {:<5}", format!("{spread:?}"), if cold { "cold" } else { "warm" });
            for list in &mut nanos {
                list.sort_by(f64::total_cmp);
                let (low, high) = (list[0], list[list.len() - 1]);
                print!("     {:>9.0} ({low:.0}, {high:.0})", list[list.len() / 2]);
            }
            println!();
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (keys, rounds) = (number(1_000_000), number(9));
    let dir = args.next().map_or_else(std::env::temp_dir, std::path::PathBuf::from);
    let path = dir.join(format!("weir-multi-get-{}", std::process::id()));
    let result = measure(&path, keys, rounds.max(1));
    Db::destroy(&path)?;
    result
}
