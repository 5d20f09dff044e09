//! Keys as numbers: how much of the way from one key to another a third one is, and which key lies
//! at a part of the way.
//!
//! Behind the prefix that both ends share, the next 8 bytes are a big-endian number; or the next 16
//! decimal digits, if all that follows in both ends is decimal digits: numbers written as text use
//! ten of 256 values of a byte, so that as bytes nearly all of them would lie close together.
//!
//! An estimate: right if keys are spread evenly between the ends. Not here: what is estimated with
//! it (`heat::buckets`, `compaction::sentinel`).
//!
//! Invariants: (1) `part_below` never falls with the key, is 0 at the lower end and 1 at the upper;
//! (2) `key_at` never falls with the part and stays within both ends.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use super::key::{compare, prefix};
use super::limits::KEY_BYTES_MAX;

/// Digits that are looked at: all numbers of so many fit into 64 bits.
const DIGITS_MAX: usize = 16;

/// The way between two keys.
pub(crate) struct KeyScale<'a> {
    low: &'a [u8],
    high: &'a [u8],
    /// Bytes that both share.
    common: usize,
    /// Decimal digits that are looked at; `None`: bytes.
    digits: Option<usize>,
    /// Both ends as numbers.
    first: u64,
    last: u64,
}

impl<'a> KeyScale<'a> {
    /// The way from `low` to `high`. Requires: `low <= high`.
    pub(crate) fn new(low: &'a [u8], high: &'a [u8]) -> Self {
        debug_assert!(compare(low, high).is_le(), "a way from {low:?} back to {high:?}");
        let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
        let (low_rest, high_rest) = (rest_of(low, common), rest_of(high, common));
        let is_text = low_rest.iter().chain(high_rest).all(u8::is_ascii_digit);
        let digits = low_rest.len().max(high_rest.len()).min(DIGITS_MAX);
        let digits = Some(digits).filter(|&digits| is_text && digits > 0);
        let (first, last) = (number(low_rest, digits), number(high_rest, digits));
        Self { low, high, common, digits, first, last }
    }

    /// The part of the keys from end to end that are below `key`.
    pub(crate) fn part_below(&self, key: &[u8]) -> f64 {
        if compare(key, self.low).is_le() {
            return 0.0;
        }
        if compare(key, self.high).is_ge() {
            return 1.0;
        }
        // Between both ends, so that it begins as they do.
        let at = number(rest_of(key, self.common), self.digits);
        match self.last.saturating_sub(self.first) {
            0 => 0.5,
            whole => at.saturating_sub(self.first) as f64 / whole as f64,
        }
    }

    /// The part of the keys from end to end that an interval has.
    pub(crate) fn part_inside(&self, from: &[u8], to: Option<&[u8]>) -> f64 {
        let end = to.map_or(1.0, |to| self.part_below(to));
        (end - self.part_below(from)).max(0.0)
    }

    /// The key at a part of the way, 0 to 1.
    pub(crate) fn key_at(&self, part: f64) -> Vec<u8> {
        let whole = self.last.saturating_sub(self.first) as f64;
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
        let at = self.first.saturating_add((whole * part) as u64);
        // As floats, a part of the whole may round to less of it.
        if part >= 1.0 || at >= self.last {
            return if part > 0.0 { self.high.to_vec() } else { self.low.to_vec() };
        }
        if at <= self.first {
            return self.low.to_vec();
        }
        let mut key = self.low.get(..self.common).unwrap_or(self.low).to_vec();
        match self.digits {
            Some(digits) => key.extend_from_slice(format!("{at:0digits$}").as_bytes()),
            None => {
                let bytes = at.to_be_bytes();
                let len = bytes.len() - at.trailing_zeros() as usize / 8;
                key.extend_from_slice(bytes.get(..len).unwrap_or(&bytes));
            }
        }
        // A bound need not be a key, but must not be longer than one.
        key.truncate(KEY_BYTES_MAX);
        key
    }
}

/// What of a key is behind `common` bytes.
fn rest_of(key: &[u8], common: usize) -> &[u8] {
    key.get(common..).unwrap_or(&[])
}

/// The number at the start of `rest`: of so many decimal digits, or of 8 bytes.
fn number(rest: &[u8], digits: Option<usize>) -> u64 {
    let Some(digits) = digits else { return prefix(rest) };
    let mut beyond = None;
    (0..digits).fold(0, |number, at| {
        let digit = beyond.unwrap_or_else(|| match rest.get(at) {
            Some(byte) if byte.is_ascii_digit() => u64::from(byte - b'0'),
            // What is above all digits is behind all that begin alike, what is below them before.
            Some(byte) if *byte > b'9' => *beyond.insert(9),
            _ => *beyond.insert(0),
        });
        number * 10 + digit
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::prng::Prng;

    /// Goal: numbers as bytes and as text are measured as numbers.
    #[test]
    fn a_part_of_the_way() {
        let part = |low: &[u8], high: &[u8], key: &[u8]| KeyScale::new(low, high).part_below(key);
        assert!((part(b"user1000", b"user2000", b"user1250") - 0.25).abs() < 1e-9);
        assert!((part(b"user1000", b"user2000", b"user12505/x") - 0.25).abs() < 1e-3);
        let bytes = |n: u64| [b"k".as_slice(), &n.to_be_bytes()].concat();
        assert!((part(&bytes(100), &bytes(300), &bytes(150)) - 0.25).abs() < 1e-9);
        assert!((part(b"", &[0xff; 8], &[0x80]) - 0.5).abs() < 1e-3);
        assert_eq!(part(b"a", b"a", b"a"), 0.0);
        assert_eq!(part(b"a", b"b", b"b"), 1.0);
        assert_eq!(part(b"a", b"a\0\0", b"a\0"), 0.5);
        let scale = KeyScale::new(b"user1000", b"user2000");
        assert_eq!(scale.key_at(0.25), b"user1250");
        assert_eq!(KeyScale::new(&bytes(256), &bytes(768)).key_at(0.5), b"k\0\0\0\0\0\0\x02");
    }

    /// Goal: no key is made that is longer than keys may be.
    #[test]
    fn keys_are_no_longer_than_keys() {
        let low = vec![b'k'; KEY_BYTES_MAX - 1];
        let high = [&low[..], &[0xff]].concat();
        assert!(KeyScale::new(&low, &high).key_at(0.37).len() <= KEY_BYTES_MAX);
    }

    /// Goal: invariants (1) and (2). Method: keys of few different bytes, the ends of the order
    /// among them.
    #[test]
    fn never_falls_and_stays_within() {
        let mut rng = Prng::new(7);
        let alphabets: [&[u8]; 3] = [&[0, 1, 0xfe, 0xff], b"0123456789", b"/09:a"];
        for round in 0..3000 {
            let alphabet = alphabets[round % 3];
            let mut keys: Vec<Vec<u8>> = (0..6)
                .map(|_| {
                    let len = rng.below(20);
                    (0..len).map(|_| alphabet[rng.below(alphabet.len() as u64) as usize]).collect()
                })
                .collect();
            keys.sort();
            let (low, high) = (&keys[0], &keys[5]);
            let scale = KeyScale::new(low, high);
            let parts: Vec<f64> = keys.iter().map(|key| scale.part_below(key)).collect();
            assert!(parts.is_sorted() && parts[0] == 0.0, "{keys:?} {parts:?}");
            assert!(low == high || parts[5] == 1.0, "{keys:?} {parts:?}");
            let at: Vec<Vec<u8>> = (0..=8).map(|i| scale.key_at(f64::from(i) / 8.0)).collect();
            assert!(at.is_sorted() && at[0] == *low && at[8] == *high, "{keys:?} {at:?}");
        }
    }
}
