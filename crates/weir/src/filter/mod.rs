// FORMAT: docs/format/filter.md sha=246f99e5d287
//! Blocked Bloom filter: pure functions over bytes.
//!
//! A key's bits all lie in one block of 512 bits, one cache line, so a probe costs one miss (two,
//! if the caller's buffer is not aligned to 64 bytes).
//! Not here: where a filter is stored (`table`), how many bits a level gets (`compaction::policy`).
//!
//! Invariants: (1) no false negative: a key whose hash was given to [`build`] may be contained;
//! (2) bytes that are not a filter of a known form never exclude a key and never panic;
//! (3) the same hashes in any order give the same bytes.
//!
//! False positives in percent, measured with 200,000 keys and 2 M absent ones
//! (`false_positives_are_as_few_as_theory_says` holds them to theory). Blocks fill unevenly, which
//! costs little at 10 bits and more at 20; the unblocked column is 0.6185^bits.
//!
//! | bits per key | probes | measured | blocked, theory | unblocked, theory |
//! |---|---|---|---|---|
//! | 2 | 1 | 39.4 | 39.3 | 38.3 |
//! | 4 | 3 | 14.8 | 14.8 | 14.6 |
//! | 6 | 4 | 5.74 | 5.75 | 5.60 |
//! | 8 | 5 | 2.33 | 2.31 | 2.14 |
//! | 10 | 7 | 0.971 | 0.957 | 0.819 |
//! | 12 | 8 | 0.418 | 0.407 | 0.313 |
//! | 16 | 10 | 0.0833 | 0.0825 | 0.0459 |
//! | 20 | 11 | 0.0209 | 0.0192 | 0.0067 |
//!
//! Source: Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007),
//! section 3; probes by repeated multiplication as in RocksDB `util/bloom_impl.h`,
//! `FastLocalBloomImpl`.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

pub(crate) mod monkey;
#[cfg(test)]
mod tests;

use crate::base::coding::to_usize;
use crate::base::pages::PageVec;

/// Bytes of a block: one cache line.
const BLOCK_BYTES: usize = 64;

/// Bits of a block.
const BLOCK_BITS: u32 = 512;
const _: () = assert!(BLOCK_BITS as usize == 8 * BLOCK_BYTES);

/// Bytes after the blocks: form, number of probes.
const TRAILER_BYTES: usize = 2;

/// The form of filter that this version writes. 0 is invalid; 2 ribbon and 3 binary fuse are
/// reserved.
const FORM_BLOCKED_BLOOM: u8 = 1;

/// Most probes that a reader accepts. [`build`] uses at most one more than [`PROBE_BITS`] has rows.
const PROBES_MAX: u8 = 30;

/// Fewest bits per key for which a filter is built: with fewer, two of three absent keys pass.
pub(crate) const BITS_PER_KEY_MIN: f32 = 1.0;

/// Where one probe more begins to pay, in bits per key: the crossing points of
/// `fp(bits, k) = sum over n of Poisson(512 / bits; n) * (1 - (1 - 1/512)^(k n))^k` for successive
/// k (the formula of Putze et al. for blocked filters).
const PROBE_BITS: [f32; 14] =
    [2.08, 3.58, 5.09, 6.65, 8.27, 9.99, 11.83, 13.8, 15.94, 18.29, 20.87, 23.74, 26.92, 30.5];

/// The filter of the keys with these hashes (`base::checksum::hash_key`), with `bits_per_key` bits
/// for each; may be fractional; the whole is rounded up to blocks. Empty, which means "no filter",
/// if there are no keys or less than [`BITS_PER_KEY_MIN`]. Costs about 10 ns a key.
#[expect(clippy::cast_possible_truncation, reason = "a number of blocks, from one of hashes")]
#[expect(clippy::indexing_slicing, reason = "block_of and bits_of stay below their bounds")]
pub(crate) fn build(hashes: &[u64], bits_per_key: f32) -> PageVec<u8> {
    if hashes.is_empty() || !bits_per_key.is_finite() || bits_per_key < BITS_PER_KEY_MIN {
        return PageVec::new();
    }
    let bits = hashes.len() as f64 * f64::from(bits_per_key);
    let blocks = (bits / f64::from(BLOCK_BITS)).ceil().max(1.0) as usize;
    let probes = probes_for(bits_per_key);
    let mut filter = PageVec::filled(blocks * BLOCK_BYTES + TRAILER_BYTES, 0u8);
    let (body, trailer) = filter.split_at_mut(blocks * BLOCK_BYTES);
    let (body, _) = body.as_chunks_mut::<BLOCK_BYTES>();
    for &hash in hashes {
        let block = &mut body[block_of(hash, blocks)];
        for bit in bits_of(hash, probes) {
            block[bit / 8] |= 1 << (bit % 8);
        }
    }
    trailer.copy_from_slice(&[FORM_BLOCKED_BLOOM, probes]);
    filter
}

/// Whether a key with this hash may be among those the filter was built from. Always true for an
/// empty filter and for bytes that are no filter of a known form.
#[inline]
#[expect(clippy::indexing_slicing, reason = "bits_of stays below 512")]
pub(crate) fn may_contain(filter: &[u8], hash: u64) -> bool {
    let Some((body, &[form, probes])) = filter.split_last_chunk::<TRAILER_BYTES>() else {
        return true;
    };
    let (blocks, rest) = body.as_chunks::<BLOCK_BYTES>();
    if form != FORM_BLOCKED_BLOOM || !rest.is_empty() || !(1..=PROBES_MAX).contains(&probes) {
        return true;
    }
    let Some(block) = blocks.get(block_of(hash, blocks.len())) else { return true };
    bits_of(hash, probes).all(|bit| block[bit / 8] >> (bit % 8) & 1 == 1)
}

/// The block of a hash: its upper half, scaled.
#[inline]
fn block_of(hash: u64, blocks: usize) -> usize {
    to_usize(((hash >> 32) * blocks as u64) >> 32)
}

/// The bits inside the block: from the lower half of the hash, 9 bits for each probe.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half of the hash is meant")]
fn bits_of(hash: u64, probes: u8) -> impl Iterator<Item = usize> {
    // 2^32 divided by the golden ratio: its successive multiples spread over the whole range.
    const STEP: u32 = 0x9e37_79b9;
    const SHIFT: u32 = u32::BITS - BLOCK_BITS.ilog2();
    let mut h = hash as u32;
    (0..probes).map(move |_| {
        let bit = (h >> SHIFT) as usize;
        h = h.wrapping_mul(STEP);
        bit
    })
}

/// Number of probes that lets the fewest absent keys pass.
fn probes_for(bits_per_key: f32) -> u8 {
    PROBE_BITS.iter().fold(1, |probes, &bits| probes + u8::from(bits <= bits_per_key))
}
