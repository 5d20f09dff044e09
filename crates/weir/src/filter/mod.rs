//! Blocked Bloom filter: pure functions over bytes.
//!
//! A key's bits all lie in one block of 512 bits, one cache line, so a probe costs one miss.
//! Not here: where a filter is stored (`table`), how many bits a level gets (`compaction::policy`).
//!
//! Invariants: (1) no false negative: a key whose hash was given to [`build`] may be contained;
//! (2) bytes that are not a filter of a known form never exclude a key and never panic;
//! (3) the same hashes in any order give the same bytes.
//!
//! Source: Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007);
//! probes by repeated multiplication as in RocksDB `util/bloom_impl.h`, `FastLocalBloomImpl`.
//! Format: docs/format/filter.md.

/// Bytes of a block: one cache line.
const BLOCK_BYTES: usize = 64;

/// Bytes after the blocks: form, number of probes.
const TRAILER_BYTES: usize = 2;

/// The form of filter that this version writes. 0 is invalid.
const FORM_BLOCKED_BLOOM: u8 = 1;

/// Most probes: more do not help below 30 bits a key, and the format allows no more.
const PROBES_MAX: u8 = 30;

/// The filter of the keys with these hashes (`base::checksum::hash_key`), with about `bits_per_key`
/// bits for each; may be fractional. Empty, which means "no filter", if that is too few to exclude
/// anything (below [`BITS_PER_KEY_MIN`]) or there are no keys.
pub(crate) fn build(hashes: &[u64], bits_per_key: f32) -> Vec<u8> {
    if hashes.is_empty() || !bits_per_key.is_finite() || bits_per_key < BITS_PER_KEY_MIN {
        return Vec::new();
    }
    let bits = hashes.len() as f64 * f64::from(bits_per_key);
    let blocks = ((bits / (BLOCK_BYTES * 8) as f64).ceil() as usize).max(1);
    let probes = probes_for(bits_per_key);
    let mut filter = vec![0u8; blocks * BLOCK_BYTES + TRAILER_BYTES];
    let (body, trailer) = filter.split_at_mut(blocks * BLOCK_BYTES);
    for &hash in hashes {
        let start = block_of(hash, blocks) * BLOCK_BYTES;
        let block = &mut body[start..start + BLOCK_BYTES];
        for bit in bits_of(hash, probes) {
            block[bit / 8] |= 1 << (bit % 8);
        }
    }
    trailer.copy_from_slice(&[FORM_BLOCKED_BLOOM, probes]);
    filter
}

/// Fewest bits per key for which a filter is built: at one bit a key two of three lookups pass.
pub(crate) const BITS_PER_KEY_MIN: f32 = 1.0;

/// Whether a key with this hash may be among those the filter was built from. Always true for an
/// empty filter and for bytes that are no filter of a known form.
#[inline]
pub(crate) fn may_contain(filter: &[u8], hash: u64) -> bool {
    let Some((body, &[form, probes])) = filter.split_last_chunk::<TRAILER_BYTES>() else {
        return true;
    };
    let (blocks, rest) = body.as_chunks::<BLOCK_BYTES>();
    if form != FORM_BLOCKED_BLOOM || !rest.is_empty() || probes > PROBES_MAX {
        return true;
    }
    let Some(block) = blocks.get(block_of(hash, blocks.len())) else { return true };
    bits_of(hash, probes).all(|bit| block[bit / 8] >> (bit % 8) & 1 == 1)
}

/// The block of a hash: its upper half, scaled.
#[inline]
fn block_of(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

/// The bits inside the block: from the lower half of the hash, 9 bits for each probe.
#[inline]
fn bits_of(hash: u64, probes: u8) -> impl Iterator<Item = usize> {
    // 2^32 divided by the golden ratio: successive multiples spread over the whole range.
    const STEP: u32 = 0x9e37_79b9;
    let mut h = hash as u32;
    (0..probes).map(move |_| {
        let bit = (h >> 23) as usize;
        h = h.wrapping_mul(STEP);
        bit
    })
}

/// Number of probes that excludes most for this many bits per key.
fn probes_for(bits_per_key: f32) -> u8 {
    // An unblocked filter is best at bits * ln 2; a crowded block wants somewhat fewer.
    let best = (bits_per_key * std::f32::consts::LN_2).round();
    (best as u8).clamp(1, PROBES_MAX)
}
