//! Keys: from an index to bytes, and an order without repetition.
//!
//! The index space leaves room between neighbours, so that keys that do not exist and keys that are
//! inserted later lie between the loaded ones and not behind them.

use serde::{Deserialize, Serialize};

use crate::config::KeyFormat;
use crate::prng::mix;

/// Room between two loaded keys, in bits: 65,535 numbers.
const GAP_BITS: u32 = 16;

/// Parts of the loaded keys that are spread differently.
const SPREAD_PARTS: u64 = 8;

/// How the loaded keys are spread over the key space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySpread {
    /// All neighbours are as far apart.
    #[default]
    Even,
    /// In each eighth of the keys neighbours are twice as far apart as in the one before: half of
    /// the key space has an eighth of the keys.
    Doubling,
}

/// Turns indices into keys.
#[derive(Clone, Copy, Debug)]
pub struct KeySpace {
    num: u64,
    bytes: usize,
    format: KeyFormat,
    spread: KeySpread,
}

impl KeySpace {
    /// Keys of `bytes` bytes; `num` of them are loaded.
    #[must_use]
    pub fn new(num: u64, bytes: usize, format: KeyFormat) -> Self {
        assert!(num > 0 && num < 1 << (64 - GAP_BITS), "key numbers do not fit 64 bits: {num}");
        assert!(bytes >= 8, "a key number needs 8 bytes, not {bytes}");
        Self { num, bytes, format, spread: KeySpread::Even }
    }

    /// The same keys, spread in another way; their order stays. A doubling one needs as many more
    /// bits as there are parts.
    #[must_use]
    pub fn spread(self, spread: KeySpread) -> Self {
        let bits = 64 - GAP_BITS - SPREAD_PARTS as u32;
        let fits = spread == KeySpread::Even || self.num < 1 << bits;
        assert!(fits, "key numbers that are spread do not fit 64 bits: {}", self.num);
        Self { spread, ..self }
    }

    /// Writes the key of `index` to `out`. Indices below `num` are in key order; those at or above
    /// it are inserted later and scattered over the whole range.
    pub fn existing(&self, index: u64, out: &mut Vec<u8>) {
        if index < self.num {
            return self.write(index << GAP_BITS, out);
        }
        let neighbour = self.neighbour(index);
        // 0 is the loaded key and 1 the missing one.
        let place = 2 + (index - self.num) % ((1 << GAP_BITS) - 2);
        self.write((neighbour << GAP_BITS) | place, out);
    }

    /// Writes a key to `out` that lies behind all of a smaller index. Requires: no key of an index
    /// above the loaded ones was written by [`KeySpace::existing`].
    pub fn behind(&self, index: u64, out: &mut Vec<u8>) {
        self.write(index << GAP_BITS, out);
    }

    /// Number of keys that are loaded.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> u64 {
        self.num
    }

    /// The index of the loaded key that the key of `index` is, or lies behind.
    #[must_use]
    pub fn neighbour(&self, index: u64) -> u64 {
        if index < self.num { index } else { mix(index) % self.num }
    }

    /// Writes a key to `out` that is never put and lies behind the loaded key of `index`.
    pub fn missing(&self, index: u64, out: &mut Vec<u8>) {
        debug_assert!(index < self.num);
        self.write((index << GAP_BITS) | 1, out);
    }

    /// Where a number lies.
    fn place(&self, number: u64) -> u64 {
        match self.spread {
            KeySpread::Even => number,
            KeySpread::Doubling => {
                let part = (self.num << GAP_BITS).div_ceil(SPREAD_PARTS);
                let before = (number / part).min(SPREAD_PARTS - 1);
                // Parts of 1, 2, 4, .. times `part` lie below it.
                part * ((1 << before) - 1) + ((number - before * part) << before)
            }
        }
    }

    fn write(&self, number: u64, out: &mut Vec<u8>) {
        let number = self.place(number);
        out.clear();
        match self.format {
            KeyFormat::Binary => {
                out.extend_from_slice(&number.to_be_bytes());
                out.resize(self.bytes, b'0');
            }
            KeyFormat::Decimal => {
                out.resize(self.bytes, b'0');
                let mut rest = number;
                for digit in out.iter_mut().rev() {
                    if rest == 0 {
                        break;
                    }
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
            }
        }
    }
}

/// A random order of 0..n in which nothing repeats, without a table: a Feistel network over the
/// next power of four, walked until it lands inside (Black and Rogaway, CT-RSA 2002, "cycle
/// walking").
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// An order of the numbers below `n` that `seed` fixes.
    #[must_use]
    pub fn new(n: u64, seed: u64) -> Self {
        assert!(n > 0 && n < 1 << 62, "no permutation of {n} numbers");
        let bits = 64 - (n - 1).leading_zeros();
        Self { n, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// The number at `place`, which must be below `n`.
    #[must_use]
    pub fn at(&self, place: u64) -> u64 {
        debug_assert!(place < self.n);
        let mut x = place;
        loop {
            x = self.round_trip(x);
            if x < self.n {
                return x;
            }
        }
    }

    fn round_trip(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for round in 0..4 {
            let f = mix(right ^ self.seed.rotate_left(round * 16)) & mask;
            (left, right) = (right, left ^ f);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Goal: keys that are spread in another way keep their order, the missing and inserted ones
    /// between them too, and half of the key space has an eighth of them.
    #[test]
    fn spread_keys_keep_their_order() {
        let key = |space: &KeySpace, index: u64| {
            let (mut there, mut missing) = (Vec::new(), Vec::new());
            space.existing(index, &mut there);
            space.missing(index, &mut missing);
            assert!(there < missing);
            (there, missing)
        };
        for num in [1, 7, 8, 1000] {
            let space = KeySpace::new(num, 20, KeyFormat::Decimal).spread(KeySpread::Doubling);
            let keys: Vec<_> = (0..num).map(|index| key(&space, index)).collect();
            assert!(keys.windows(2).all(|pair| pair[0].1 < pair[1].0));
            let number = |key: &[u8]| str::from_utf8(key).unwrap().parse::<u64>().unwrap();
            let last = number(&keys[keys.len() - 1].0);
            let upper = keys.iter().filter(|key| number(&key.0) > last / 2).count() as u64;
            assert!(num < 1000 || upper.abs_diff(num / 8) < 5, "{upper} of {num}");
        }
    }

    /// Goal: a permutation hits every number once, at awkward sizes too. Method: collect them all.
    #[test]
    fn permutation_is_one() {
        for n in [1, 2, 3, 4, 5, 15, 16, 17, 1000, 4097] {
            let order = Permutation::new(n, 7);
            let seen: BTreeSet<u64> = (0..n).map(|i| order.at(i)).collect();
            assert_eq!(seen.len() as u64, n);
            assert_eq!(seen.last().copied(), Some(n - 1));
        }
        let order = Permutation::new(1000, 7);
        let other = Permutation::new(1000, 8);
        assert!((0..1000).filter(|&i| order.at(i) == i).count() < 20, "it moves things");
        assert!((0..1000).filter(|&i| order.at(i) == other.at(i)).count() < 20, "seeds differ");
    }

    /// Goal: keys are in index order, of the right size, and loaded, missing and inserted ones
    /// never collide. Method: both formats, all three kinds in one set.
    #[test]
    fn keys_are_ordered_and_apart() {
        for format in [KeyFormat::Binary, KeyFormat::Decimal] {
            let space = KeySpace::new(500, 16, format);
            let mut key = Vec::new();
            let mut loaded = Vec::new();
            let mut all = BTreeSet::new();
            for i in 0..500 {
                space.existing(i, &mut key);
                assert_eq!(key.len(), 16);
                loaded.push(key.clone());
                all.insert(key.clone());
                space.missing(i, &mut key);
                all.insert(key.clone());
                space.existing(500 + i, &mut key);
                all.insert(key.clone());
            }
            assert!(loaded.is_sorted());
            assert_eq!(all.len(), 1500);
        }
    }
}
