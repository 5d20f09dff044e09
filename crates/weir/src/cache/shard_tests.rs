//! The own cache by its rules: what stays, what leaves, and what is counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::directory::{PAGE_BYTES, PAGE_LINKS};
use super::{BLOCK_OVERHEAD_BYTES, BlockCache, Purpose, weight};
use crate::base::buf::Buf;
use crate::base::heat::Heat;
use crate::base::ids::uid;
use crate::base::prng::Prng;

const FOREGROUND: Purpose = Purpose::Foreground;

/// Bytes of a block of most tests, and of what 16 neighbours take.
const BYTES: usize = 1000;
const PAGE_OF_BLOCKS: u64 = 16 * (BYTES as u64 + 24 + BLOCK_OVERHEAD_BYTES) + 2 * PAGE_BYTES;

/// Nothing in the spares of this thread decides how much memory a block takes.
fn block(mark: u64) -> Buf {
    let mut content = vec![0; BYTES];
    content[..8].copy_from_slice(&mark.to_le_bytes());
    Buf::from(&content[..])
}

fn new(capacity: u64) -> Arc<BlockCache> {
    Arc::new(BlockCache::new(capacity))
}

/// Goal: what is in the cache is found with its content, bytes are the sum of weights and pages and
/// never above the capacity, tables count their blocks, and nothing that fits leaves. Method:
/// random calls, against a map of what was inserted.
#[test]
fn against_a_map() {
    let seed = 0x5_1a2d;
    println!("seed {seed:#x}");
    let mut prng = Prng::new(seed);
    for capacity in [0, 900, 20_000, 200_000, 9 << 20] {
        let cache = new(capacity);
        let mut inserted: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        let mut evicted = false;
        for step in 0..20_000 {
            let (table, ordinal) = (prng.below(4), prng.below(300) as u32 * 7);
            let blocks = cache.table(uid(table));
            match prng.below(10) {
                0 => {
                    cache.erase(uid(table), ordinal);
                    inserted.remove(&(table, ordinal));
                }
                1 if prng.below(50) == 0 => {
                    cache.erase_table(uid(table), 2100);
                    inserted.retain(|(of, _), _| *of != table);
                }
                1..4 => {
                    let held = blocks.contains(ordinal);
                    blocks.insert(ordinal, block(step));
                    let entry = inserted.entry((table, ordinal)).or_insert(step);
                    *entry = if held { *entry } else { step };
                }
                _ => {
                    let found = blocks.get(ordinal, FOREGROUND);
                    let known = inserted.get(&(table, ordinal));
                    assert!(found.is_none() || known.is_some(), "a block that was erased");
                    if let (Some(found), Some(mark)) = (&found, known) {
                        assert_eq!(found.bytes()[..8], mark.to_le_bytes());
                    }
                    evicted |= found.is_none() && known.is_some();
                }
            }
            assert!(cache.bytes() <= capacity, "{} of {capacity} bytes", cache.bytes());
            if step % 500 == 0 {
                check_sums(&cache, &inserted);
            }
        }
        assert_eq!(evicted, capacity < 1_500_000, "{capacity}");
        (0..4).for_each(|table| cache.erase_table(uid(table), 2100));
        assert_eq!(cache.bytes(), 0);
    }
}

fn check_sums(cache: &Arc<BlockCache>, inserted: &BTreeMap<(u64, u32), u64>) {
    let (mut bytes, mut pages) = (0, std::collections::BTreeSet::new());
    let mut counts = [0; 4];
    for (table, ordinal) in inserted.keys() {
        if let Some(found) = cache.table(uid(*table)).get(*ordinal, Purpose::Background) {
            bytes += weight(found.memory_bytes());
            pages.insert((*table, ordinal / PAGE_LINKS as u32));
            counts[*table as usize] += 1;
        }
    }
    assert_eq!(cache.bytes(), bytes + pages.len() as u64 * PAGE_BYTES);
    for (table, count) in counts.into_iter().enumerate() {
        assert_eq!(cache.table(uid(table as u64)).count(), Some(count), "table {table}");
    }
}

/// Goal: a scan displaces nothing that was used twice, however long it is.
#[test]
fn a_scan_passes_through() {
    let cache = new(10 * PAGE_OF_BLOCKS);
    let (hot, scanned) = (cache.table(uid(1)), cache.table(uid(2)));
    for ordinal in 0..100 {
        hot.insert(ordinal, block(0));
        assert!(hot.get(ordinal, FOREGROUND).is_some());
    }
    for ordinal in 0..10_000 {
        scanned.insert(ordinal, block(0));
        assert!(hot.get(ordinal % 100, FOREGROUND).is_some(), "after {ordinal} blocks");
    }
}

/// Goal: the lock is not held while every block of a shard loses its uses, and the least used of
/// those that were looked at leaves. Method: a full cache of blocks that were read often, but for
/// two that were read less: one near, one too far to be looked at.
#[test]
fn one_eviction_looks_at_few_blocks() {
    let cache = new(64 * PAGE_OF_BLOCKS);
    let (hot, other) = (cache.table(uid(1)), cache.table(uid(2)));
    for ordinal in 0..1024 {
        hot.insert(ordinal, block(0));
        assert!(hot.get(ordinal, FOREGROUND).is_some());
    }
    // All go from the small queue into the main one.
    cache.set_capacity(cache.bytes());
    (0..100).for_each(|ordinal| other.insert(ordinal, block(0)));
    cache.erase_table(uid(2), 100);
    let held: Vec<u32> = (0..1024).filter(|&ordinal| hot.contains(ordinal)).collect();
    let (near, far) = (held[40], held[700]);
    for &ordinal in &held {
        let reads = if [near, far].contains(&ordinal) { 3 } else { 8 };
        (0..reads).for_each(|_| assert!(hot.get(ordinal, FOREGROUND).is_some()));
    }
    cache.set_capacity(cache.bytes() + PAGE_BYTES);
    other.insert(0, block(0));
    let gone: Vec<u32> = held.into_iter().filter(|&ordinal| !hot.contains(ordinal)).collect();
    assert_eq!(gone, [near]);
}

/// Goal: a block that comes back soon is no newcomer; one that comes back late is.
#[test]
fn what_comes_back_soon_stays() {
    for (others, stays) in [(20, true), (400, false)] {
        let cache = new(10 * PAGE_OF_BLOCKS);
        let (table, scanned) = (cache.table(uid(1)), cache.table(uid(2)));
        (0..200).for_each(|ordinal| scanned.insert(ordinal, block(0)));
        table.insert(0, block(0));
        let mut next = 200;
        while table.contains(0) {
            scanned.insert(next, block(0));
            next += 1;
        }
        for ordinal in next..next + others {
            scanned.insert(ordinal, block(0));
        }
        table.insert(0, block(0));
        for ordinal in 1000..1200 {
            scanned.insert(ordinal, block(0));
        }
        assert_eq!(table.contains(0), stays, "after {others} others");
    }
}

/// Goal: the block that is used stays in the main queue, the one that is not leaves it.
#[test]
fn unused_blocks_of_the_main_queue_leave() {
    let cache = new(4 * PAGE_OF_BLOCKS);
    let table = cache.table(uid(1));
    let hand_over = |uid_number: u64, ordinal: u32| {
        cache.hand_over(uid(uid_number), ordinal, Buf::handed_over(&[1; BYTES], Heat::COLD, 0));
    };
    (0..60).for_each(|ordinal| hand_over(1, ordinal));
    for ordinal in 0..30 {
        assert!(table.get(ordinal, FOREGROUND).is_some());
    }
    (0..32).for_each(|ordinal| hand_over(2, ordinal));
    let kept = |from: u32| (from..from + 30).filter(|ordinal| table.contains(*ordinal)).count();
    assert!(kept(0) == 30 && kept(30) <= 4, "{} used, {} unused", kept(0), kept(30));
}

/// Goal: a block that does not fit is refused and displaces nothing; a block may be inserted twice,
/// in two places, and again after it left.
#[test]
fn blocks_that_do_not_fit_and_blocks_that_are_somewhere_already() {
    let cache = new(4 * PAGE_OF_BLOCKS);
    let table = cache.table(uid(1));
    (0..30).for_each(|ordinal| table.insert(ordinal, block(u64::from(ordinal))));
    let before = cache.bytes();
    table.insert(900, Buf::unfilled(4 * PAGE_OF_BLOCKS as usize));
    assert!(!table.contains(900) && cache.bytes() == before);
    let twice = table.get(7, FOREGROUND).unwrap();
    table.insert(7, twice.clone());
    assert_eq!(cache.bytes(), before);
    table.insert(31, twice.clone());
    let copy = table.get(31, FOREGROUND).unwrap();
    assert_ne!(copy.bytes().as_ptr(), twice.bytes().as_ptr());
    assert_eq!(copy.bytes(), twice.bytes());
    cache.erase(uid(1), 7);
    table.insert(7, twice.clone());
    assert_eq!(table.get(7, FOREGROUND).unwrap().bytes().as_ptr(), twice.bytes().as_ptr());
}

/// Goal: blocks outlive the cache and each other; what is freed is used again, by another cache
/// too.
#[test]
fn caches_come_and_go() {
    let mut held = Vec::new();
    for number in 0..20 {
        let cache = new(4 * PAGE_OF_BLOCKS);
        let table = cache.table(uid(1));
        for ordinal in 0..200 {
            table.insert(ordinal, block(number * 1000 + u64::from(ordinal)));
            if ordinal % 50 == 0 {
                held.push((number * 1000 + u64::from(ordinal), table.get(ordinal, FOREGROUND)));
            }
        }
    }
    for (mark, found) in held {
        assert_eq!(found.unwrap().bytes()[..8], mark.to_le_bytes());
    }
}
