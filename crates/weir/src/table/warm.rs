//! The entries of tables that users have read lately, in key order: those that are marked in cached
//! blocks. What is not cached is stepped over: nothing is read for it.
//!
//! For a merge whose inputs have copies in buffer lists: users read those, and mark them.
//!
//! Not here: marks (`base::heat`), whose copies these are (`version::list_heat`).
//!
//! Invariants: (1) forward only; a block's marks are those at the time when it is entered; (2) the
//! tables are not kept alive: one that is gone is passed; a block is while it is looked at.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::sync::{Arc, Weak};

use crate::base::heat::{Heat, Warmth};
use crate::base::key::{SEQ_MAX, compare};
use crate::cache::Purpose;
use crate::table::fetch::Block;
use crate::table::reader::Table;

/// A position among the marked entries of some tables that share no key.
pub(crate) struct WarmEntries {
    /// Those that are to come.
    tables: std::vec::IntoIter<Weak<Table>>,
    /// Keys above this one are of no interest.
    largest: Arc<[u8]>,
    /// The one at hand, and its next block.
    table: Weak<Table>,
    block: usize,
    current: Block,
    heat: Heat,
    /// The next row of the current block.
    row: usize,
    /// Key of the current entry in the first `key_len` bytes, and how lately it was read.
    key: Vec<u8>,
    key_len: usize,
    warmth: Warmth,
    cached_bytes: u64,
}

impl WarmEntries {
    /// The marked entries of `tables`, which are in key order, up to `largest`. On none before the
    /// first [`seek`](Self::seek).
    pub(crate) fn new(tables: Vec<Weak<Table>>, largest: Arc<[u8]>) -> Self {
        Self {
            tables: tables.into_iter(),
            largest,
            table: Weak::new(),
            block: 0,
            current: Block::default(),
            heat: Heat::COLD,
            row: 0,
            key: Vec::new(),
            key_len: 0,
            warmth: Warmth::Cold,
            cached_bytes: 0,
        }
    }

    /// Key of the current entry and how lately it was read; `None` at the end.
    #[inline]
    pub(crate) fn current(&self) -> Option<(&[u8], Warmth)> {
        (self.warmth != Warmth::Cold)
            .then(|| (self.key.get(..self.key_len).unwrap_or(&[]), self.warmth))
    }

    /// Bytes of the cached blocks entered so far.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cached_bytes
    }

    /// Moves on to the first marked entry at or after `key`. Requires: keys do not descend.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        if self.current().is_some_and(|(at, _)| compare(at, key).is_ge()) {
            return;
        }
        loop {
            while self.next_row() {
                let found = self.key.get(..self.key_len).unwrap_or(&[]);
                if compare(found, key).is_ge() {
                    return;
                }
            }
            if !self.next_block(key) && !self.next_table() {
                return;
            }
        }
    }

    /// Moves on to the next marked row of the current block; false if there is none.
    fn next_row(&mut self) -> bool {
        let count = self.current.layout.count();
        while self.row < count {
            let at = self.row;
            self.row += 1;
            self.warmth = self.heat.of(at, count);
            if self.warmth != Warmth::Cold {
                let block = self.current.bytes();
                let row = self.current.layout.row(block, at);
                self.key_len = self.current.layout.write_key(block, at, &row, &mut self.key);
                return true;
            }
        }
        self.warmth = Warmth::Cold;
        false
    }

    /// Enters the next cached block of the table that may hold `key` or later ones; false if there
    /// is none.
    fn next_block(&mut self, key: &[u8]) -> bool {
        self.current = Block::default();
        let Some(table) = self.table.upgrade() else { return false };
        // A closed table has no index to say which keys a block holds.
        let Some(opened) = table.slot().pin() else { return false };
        let Some(last) = opened.index.find(&self.largest, 0) else { return false };
        let first = opened.index.find(key, SEQ_MAX).unwrap_or(0).max(self.block);
        for block in first..=last {
            // Neither counted nor made hotter.
            if !table.is_cached(block) {
                continue;
            }
            let Some(cached) = table.cached(block, Purpose::Background) else { continue };
            self.block = block + 1;
            self.cached_bytes += cached.buf.memory_bytes() as u64;
            self.heat = table.heat(&cached.buf);
            if self.heat == Heat::COLD {
                continue;
            }
            self.row = 0;
            let common = cached.layout.common(cached.bytes());
            self.key.clear();
            self.key.extend_from_slice(common);
            self.current = cached;
            return true;
        }
        false
    }

    fn next_table(&mut self) -> bool {
        let next = self.tables.next();
        self.block = 0;
        next.map(|table| self.table = table).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::checksum::hash_key;
    use crate::base::ids::uid;
    use crate::base::key::Kind;
    use crate::base::prng::Prng;
    use crate::cache::BlockCache;
    use crate::table::testing::{Entry, MemoryTables, SEED, open_table, options, write_table};

    fn key(number: u64) -> Vec<u8> {
        format!("user{number:06}").into_bytes()
    }

    /// Goal: the marked entries of cached blocks come in order, as far as the bound, and others do
    /// not; no lookup is counted as a miss. Method: random reads of some tables, some blocks of
    /// which are erased then, against a sorted set.
    #[test]
    fn marked_entries_come_in_order() {
        for seed in 0..30 {
            let mut prng = Prng::new(seed);
            let cache = Arc::new(BlockCache::new(4 << 20));
            let storage = Arc::new(MemoryTables::default());
            let (mut tables, mut warm) = (Vec::new(), BTreeSet::new());
            for number in 0..4_u64 {
                let entry = |i| (key(number * 1000 + i), 7, Kind::Put, vec![1; 20]);
                let entries: Vec<Entry> = (0..1000).map(entry).collect();
                let meta = write_table(&storage, uid(number + 1), options(512), &entries);
                let table = open_table(&storage, meta, Some(Arc::clone(&cache)));
                let reads = [0, 3, 300][prng.below(3) as usize];
                let read: Vec<Vec<u8>> =
                    (0..reads).map(|_| key(number * 1000 + prng.below(1000))).collect();
                for key in &read {
                    let hash = hash_key(key, SEED);
                    table.get(key, hash, u64::MAX >> 8, Purpose::Foreground).unwrap().unwrap();
                }
                for block in 0..table.meta().blocks {
                    if prng.chance(1, 4) {
                        cache.erase(uid(number + 1), block);
                    }
                }
                let opened = table.pin().unwrap();
                let is_cached = |key: &Vec<u8>| {
                    opened.index.find(key, SEQ_MAX).is_some_and(|block| table.is_cached(block))
                };
                warm.extend(read.into_iter().filter(is_cached));
                tables.push(table);
            }
            let gone = prng.below(8);
            if gone < 4 {
                // The version that had it is gone.
                tables.remove(gone as usize);
                warm.retain(|warm| !warm.starts_with(&key(gone * 1000)[..7]));
            }
            let largest = key(prng.below(5000));
            let misses = cache.counters().misses;
            let weak = tables.iter().map(Arc::downgrade).collect();
            let mut entries = WarmEntries::new(weak, Arc::from(&*largest));
            let mut at = 0;
            while at < 4000 {
                entries.seek(&key(at));
                let expected = warm.range(key(at)..).next();
                let found = entries.current().map(|(key, _)| key.to_vec());
                // Blocks that hold the bound have larger keys too.
                if expected.is_some_and(|expected| *expected <= largest) {
                    assert_eq!(found.as_ref(), expected, "seed {seed} from {at} to {largest:?}");
                } else {
                    assert!(found.is_none_or(|found| Some(&found) == expected));
                }
                at += 1 + prng.below(200) * prng.below(2);
            }
            assert_eq!(cache.counters().misses, misses);
        }
    }
}
