//! Values: bytes of a given size and compressibility, without work per value.

use crate::prng::Prng;

/// Bytes of the pool that values are cut from; a value larger than this repeats it.
const POOL_BYTES: usize = 1 << 20;

/// Bytes of one piece of the pool: random bytes, then their repetition.
const PIECE_BYTES: usize = 100;

/// Cuts values out of a pool, as LevelDB's `db_bench` does: a copy-free slice at a moving offset.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Vec<u8>,
    value_bytes: usize,
    offset: usize,
}

impl Values {
    /// Values of `value_bytes` bytes that compress to about `compressibility` of their size.
    #[must_use]
    pub fn new(value_bytes: usize, compressibility: f64, mut prng: Prng) -> Self {
        let random = ((PIECE_BYTES as f64 * compressibility) as usize).clamp(1, PIECE_BYTES);
        let bytes = POOL_BYTES.max(value_bytes) + PIECE_BYTES;
        let mut pool = Vec::with_capacity(bytes + PIECE_BYTES);
        while pool.len() < bytes {
            let start = pool.len();
            for _ in 0..random {
                pool.push(b' ' + prng.below(95) as u8);
            }
            for i in random..PIECE_BYTES {
                let byte = pool[start + i % random];
                pool.push(byte);
            }
        }
        let offset = prng.below(POOL_BYTES as u64) as usize;
        Self { pool, value_bytes, offset }
    }

    /// The next value.
    pub fn next_value(&mut self) -> &[u8] {
        if self.offset + self.value_bytes > self.pool.len() {
            self.offset = 0;
        }
        let start = self.offset;
        // One byte more than the value: neighbours differ even for values of one byte.
        self.offset += self.value_bytes + 1;
        &self.pool[start..start + self.value_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every size works and the stream is fixed by the seed. Method: sizes around the pool's.
    #[test]
    fn sizes_and_determinism() {
        for bytes in [0, 1, 100, 1000, POOL_BYTES - 1, POOL_BYTES, 3 * POOL_BYTES] {
            let mut a = Values::new(bytes, 0.5, Prng::new(3, 0));
            let mut b = Values::new(bytes, 0.5, Prng::new(3, 0));
            for _ in 0..20 {
                let value = a.next_value().to_vec();
                assert_eq!(value.len(), bytes);
                assert_eq!(value, b.next_value());
            }
        }
        assert_ne!(
            Values::new(100, 0.5, Prng::new(3, 0)).next_value(),
            Values::new(100, 0.5, Prng::new(4, 0)).next_value()
        );
    }
}
