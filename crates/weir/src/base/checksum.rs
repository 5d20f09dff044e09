// FORMAT: docs/format/table.md sha=afecfa0769b6
// FORMAT: docs/format/directory.md sha=ffaefc8b305b
//! Checksums and hashes: CRC-32C for stored bytes, seeded XXH3 for keys, entry hashes for the
//! conservation law.
//!
//! A stored CRC is *masked*: rotated and offset, so that a CRC of bytes which contain CRCs stays
//! meaningful, and so that a region of zeros never carries a valid checksum.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use xxhash_rust::xxh3;

use crate::base::ids::TableUid;
use crate::base::key::{Kind, Seq};

/// Added to a rotated CRC before it is stored: 2^32 divided by the golden ratio, rounded to odd.
const MASK_DELTA: u32 = 0x9e37_79b9;

/// CRC-32C of `bytes`.
#[inline]
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of the bytes whose CRC-32C is `crc`, followed by `bytes`.
#[inline]
pub(crate) fn crc_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// The form in which a CRC is stored.
#[inline]
pub(crate) fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// Binds a content CRC to the place of its block by arithmetic alone: a block that is copied whole
/// is re-bound without reading it. `place` is made by [`place`].
#[inline]
pub(crate) fn bind(content_crc: u32, place: u32) -> u32 {
    mask(content_crc ^ place)
}

/// The number that stands for "block `ordinal` of kind `kind` in the table with this `check_uid`".
#[inline]
pub(crate) fn place(check_uid: TableUid, ordinal: u32, kind: u8) -> u32 {
    let mut bytes = [0u8; 13];
    bytes[..8].copy_from_slice(&check_uid.get().to_le_bytes());
    bytes[8..12].copy_from_slice(&ordinal.to_le_bytes());
    bytes[12] = kind;
    crc(&bytes)
}

/// Hash of a user key, the same in filters and caches of one store.
#[inline]
pub(crate) fn hash_key(key: &[u8], seed: u64) -> u64 {
    xxh3::xxh3_64_with_seed(key, seed)
}

/// Hash of a whole entry. The wrapping sum of these over a compaction's inputs equals the sum over
/// its outputs plus the sum over dropped entries (ARCHITECTURE §3).
#[inline]
pub(crate) fn hash_entry(key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> u64 {
    let packed = crate::base::key::pack(seq, kind);
    let key_hash = xxh3::xxh3_64_with_seed(key, packed);
    xxh3::xxh3_64_with_seed(value, key_hash ^ (value.len() as u64).rotate_left(32))
}

/// A deterministic hasher for in-memory hash tables: no random seed, so that iteration and
/// collisions are the same in every run of a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedState;

/// XXH3-style mixing of the few integers that the engine's hash tables use as keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher(u64);

impl std::hash::BuildHasher for FixedState {
    type Hasher = FixedHasher;
    fn build_hasher(&self) -> FixedHasher {
        FixedHasher(0x243f_6a88_85a3_08d3)
    }
}

impl std::hash::Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        let mut x = self.0;
        x ^= x >> 32;
        x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
        x ^ (x >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        self.write_u64(xxh3::xxh3_64_with_seed(bytes, 0));
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answer of the Castagnoli polynomial (RFC 3720, B.4: 32 bytes of zeros).
    #[test]
    fn crc_is_castagnoli() {
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc_append(crc(b"ab"), b"cd"), crc(b"abcd"));
    }

    #[test]
    fn zeros_do_not_check() {
        assert_ne!(mask(crc(&[])), 0);
        assert_ne!(bind(crc(&[0; 4096]), place(TableUid::FIRST, 0, 1)), 0);
    }
}
