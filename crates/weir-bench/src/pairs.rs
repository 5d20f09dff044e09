//! Pairs that fill a device (LDS §4.5, Fig. 18): new keys in random order, values that do not
//! compress.

use crate::{KeyFormat, KeySpace, Permutation, Prng, Values};

/// The stream of the values.
const STREAM: u64 = 1 << 41;

/// Pairs of new keys of 16 bytes in random order, and values of one size.
#[derive(Debug)]
pub struct Pairs {
    num: u64,
    space: KeySpace,
    order: Permutation,
    values: Values,
    key: Vec<u8>,
    taken: u64,
}

impl Pairs {
    /// Bytes of a key.
    pub const KEY_BYTES: usize = 16;

    /// More of them than a store on a device of so many bytes can take; the same each time.
    #[must_use]
    pub fn for_device(device_bytes: u64, value_bytes: usize) -> Self {
        let num = device_bytes / (Self::KEY_BYTES + value_bytes) as u64;
        Self {
            num,
            space: KeySpace::new(num, Self::KEY_BYTES, KeyFormat::Decimal),
            order: Permutation::new(num, 1),
            values: Values::new(value_bytes, 1.0, Prng::new(1, STREAM)),
            key: Vec::new(),
            taken: 0,
        }
    }

    /// The next one; `None` behind the last.
    pub fn next_pair(&mut self) -> Option<(&[u8], &[u8])> {
        if self.taken == self.num {
            return None;
        }
        self.space.existing(self.order.at(self.taken), &mut self.key);
        self.taken += 1;
        Some((&self.key, self.values.next_value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Goal: pairs are new ones, as many as a device has bytes for, and the same each time.
    #[test]
    fn pairs_are_new() {
        let mut keys = BTreeSet::new();
        let (mut pairs, mut again) =
            (Pairs::for_device(11_600, 100), Pairs::for_device(11_600, 100));
        while let Some((key, value)) = pairs.next_pair() {
            assert_eq!((key.len(), value.len()), (16, 100));
            assert_eq!(again.next_pair(), Some((key, value)));
            assert!(keys.insert(key.to_vec()));
        }
        assert_eq!(keys.len(), 100);
    }
}
