//! Which keys a memtable may hold: a Bloom filter, so that a get of a key that is in the tables
//! does not search the memtable.
//!
//! Not here: the search (`list`), the filters of tables (`crate::filter`).
//!
//! ```text
//! words of 64 bits; a key has BITS of them in one word: one cache line a get, one an insert
//! ```
//! A filter is made when a memtable has some [entries](FILTER_ENTRIES) and gets have searched in
//! it, for as many as its bytes are expected to be; it does not grow. With more entries it says
//! "maybe" more often. Who only writes pays nothing.
//!
//! Invariant: the bits of a key are set before its entry is linked, and by one writer at a time. So
//! a reader that must see an entry, because its insert happened before, sees its bits.
//!
//! Why: beside 20,000 writes a second a quarter of the time of a cached get went into a memtable of
//! 100,000 entries that seldom had the key: 1.35 times the gets (docs/benchmarks.md).
//!
//! Source: Bloom (1970); one word a key: Putze, Sanders and Singler, "Cache-, Hash- and
//! Space-Efficient Bloom Filters" (2007).

use std::ops::RangeInclusive;

use crate::base::atomic::{AtomicU64, Ordering};
use crate::base::checksum::hash_key;
use crate::base::prefetch::prefetch;

/// Entries with which a memtable may get a filter: fewer are in the CPU's cache, more would hold
/// the writer up for milliseconds.
pub(super) const FILTER_ENTRIES: RangeInclusive<u64> = 1 << 10..=1 << 14;

/// Most entries that are expected for each that is there: a filter is about as large as its
/// memtable is then, or smaller, so that a few entries of a large write buffer do not cost
/// megabytes.
pub(super) const EXPECTED_PER_ENTRY_MAX: u64 = 64;

/// Bits set for a key.
const BITS: u32 = 4;

/// Entries expected for a word: 16 bits for each, with which one in 50 to 100 other keys passes.
const ENTRIES_PER_WORD: u64 = 4;

/// Fewest and most words, 8 KiB and 2 MiB: those are zeroed under the writer's lock.
const WORDS_MIN: u64 = 1 << 10;
const WORDS_MAX: u64 = 1 << 18;

/// Any number: who knows it can make a filter useless, but not wrong.
const SEED: u64 = 0x6d65_6d74_6162_6c65;

/// The hash of a key for all memtables.
#[inline]
pub(super) fn hash_of(key: &[u8]) -> u64 {
    hash_key(key, SEED)
}

/// The bits of a key in its word.
#[inline]
fn bits_of(hash: u64) -> u64 {
    let mut bits = 0;
    for i in 0..BITS {
        bits |= 1 << (hash >> (6 * i) & 63);
    }
    bits
}

/// The filter of a memtable.
pub(super) struct MemtableFilter {
    words: Box<[AtomicU64]>,
}

impl MemtableFilter {
    /// An empty filter for so many entries.
    pub(super) fn new(entries: u64) -> Self {
        let words = (entries / ENTRIES_PER_WORD).clamp(WORDS_MIN, WORDS_MAX) as usize;
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val::<[AtomicU64]>(&self.words) as u64
    }

    #[inline]
    fn word(&self, hash: u64) -> &AtomicU64 {
        // The upper bits; those of the key in its word are the lower ones.
        let at = ((hash >> 32) * self.words.len() as u64) >> 32;
        &self.words[at as usize]
    }

    /// Requests the word of a key.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(self.word(hash));
    }

    /// Adds a key. Requires: one writer at a time.
    #[inline]
    pub(super) fn add(&self, hash: u64) {
        let word = self.word(hash);
        let set = word.load(Ordering::Relaxed);
        let bits = bits_of(hash);
        if set & bits != bits {
            word.store(set | bits, Ordering::Relaxed);
        }
    }

    /// Whether a key may have been added.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let bits = bits_of(hash);
        self.word(hash).load(Ordering::Relaxed) & bits == bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was added passes, and of the rest few do, at the load that is expected and at
    /// four times as much; the range of sizes holds.
    #[test]
    fn few_others_pass() {
        const ENTRIES: u64 = 100_000;
        let hash = |n: u64| hash_of(&n.to_be_bytes());
        for (entries, passing_max) in [(ENTRIES, 0.03), (4 * ENTRIES, 0.5)] {
            let filter = MemtableFilter::new(ENTRIES);
            (0..entries).for_each(|n| filter.add(hash(n)));
            assert!((0..entries).all(|n| filter.may_contain(hash(n))));
            let passing = (0..ENTRIES).filter(|n| filter.may_contain(hash(n + (1 << 40)))).count();
            let part = passing as f64 / ENTRIES as f64;
            assert!(part <= passing_max, "{part} of other keys pass beside {entries} entries");
        }
        let sizes = [0, u64::MAX].map(|entries| MemtableFilter::new(entries).bytes());
        assert_eq!(sizes, [8 << 10, 2 << 20]);
    }
}
