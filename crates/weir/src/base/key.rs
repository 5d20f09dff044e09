// FORMAT: docs/format/block.md sha=f047b166d6fe
//! Internal keys: a user key, a sequence number and a kind.
//!
//! Order: user key ascending (bytewise), then sequence number descending, so that the newest entry
//! of a key comes first. Two entries never share both user key and sequence number. All comparisons
//! of keys go through this module; 8-byte prefixes are valid for the bytewise order only, which is
//! the only one.
//!
//! Reserved entry kinds (docs/format/block.md): 0 invalid, 3 range_delete, 4 merge,
//! 5 value_pointer, 6 put_with_expiry, 7 single_delete (refused for good: H11).

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A sequence number: the position of an entry in the commit order. 0 is older than every entry.
pub(crate) type Seq = u64;

/// The largest sequence number: 56 bits, so that sequence and kind pack into 8 bytes.
pub(crate) const SEQ_MAX: Seq = (1 << 56) - 1;

/// A closed range of user keys.
pub(crate) type KeyRange = (Arc<[u8]>, Arc<[u8]>);

/// What an entry does to its key. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The key has this value.
    Put = 1,
    /// The key has no value: a tombstone.
    Delete = 2,
}

impl Kind {
    /// The kind with this number on disk; `None` if this version does not know it.
    pub(crate) fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Put),
            2 => Some(Self::Delete),
            _ => None,
        }
    }
}

/// Packs sequence number and kind into 8 bytes: `seq << 8 | kind`.
pub(crate) fn pack(seq: Seq, kind: Kind) -> u64 {
    debug_assert!(seq <= SEQ_MAX, "sequence number {seq} exceeds {SEQ_MAX}");
    seq << 8 | kind as u64
}

/// The reverse of [`pack`]; `None` for a kind that this version does not know.
pub(crate) fn unpack(packed: u64) -> Option<(Seq, Kind)> {
    Kind::from_u8((packed & 0xff) as u8).map(|kind| (packed >> 8, kind))
}

/// The first 8 bytes of a key as a big-endian number, short keys padded with zeros: `prefix(a) <
/// prefix(b)` implies `a < b`; equal prefixes imply nothing.
#[inline]
pub(crate) fn prefix(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    short_prefix(key)
}

/// [`prefix`] of a key of less than 8 bytes, from a few overlapping loads: copying a variable
/// number of bytes costs more than the rest of a search.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a length of less than 8")]
fn short_prefix(key: &[u8]) -> u64 {
    let len = key.len() as u32;
    if let (Some(head), Some(tail)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        let (head, tail) = (u32::from_be_bytes(*head), u32::from_be_bytes(*tail));
        return u64::from(head) << 32 | u64::from(tail) << (8 * (8 - len));
    }
    let (Some(&first), Some(&last)) = (key.first(), key.last()) else { return 0 };
    let middle = key.get(key.len() / 2).copied().unwrap_or(0);
    let at = |byte: u8, i: u32| u64::from(byte) << (56 - 8 * i);
    at(first, 0) | at(middle, len / 2) | at(last, len - 1)
}

/// The first 16 bytes of a key as a big-endian number, short keys padded with zeros: like
/// [`prefix`], for keys whose first 8 bytes are often the same.
#[inline]
pub(crate) fn head(key: &[u8]) -> u128 {
    if let Some(head) = key.first_chunk::<16>() {
        return u128::from_be_bytes(*head);
    }
    let mut bytes = [0u8; 16];
    bytes.split_at_mut(key.len()).0.copy_from_slice(key);
    u128::from_be_bytes(bytes)
}

/// Order of two user keys.
#[inline]
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    a.cmp(b)
}

/// Order of two entries: user key ascending, sequence number descending.
#[inline]
pub(crate) fn compare_entries(a: (&[u8], Seq), b: (&[u8], Seq)) -> Ordering {
    compare(a.0, b.0).then_with(|| b.1.cmp(&a.1))
}

/// A key shown to people: printable ASCII as it is, the rest as `\xNN`, cut after 64 bytes.
pub(crate) struct Printable<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 64;
        f.write_str("\"")?;
        for &byte in self.0.iter().take(SHOWN_MAX) {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", byte as char)?,
                0x20..=0x7e => write!(f, "{}", byte as char)?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_str("\"")?;
        if self.0.len() > SHOWN_MAX {
            write!(f, "... ({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The prefix must never contradict the bytewise order: checked on all pairs of short keys.
    #[test]
    fn prefix_agrees_with_order() {
        let mut keys: Vec<Vec<u8>> = vec![vec![]];
        for a in [0u8, 1, 0x7f, 0x80, 0xff] {
            for n in 1..20 {
                keys.push(vec![a; n]);
                let mut k = vec![a; n];
                k[n - 1] = k[n - 1].wrapping_add(1);
                keys.push(k);
            }
        }
        for a in &keys {
            for b in &keys {
                if prefix(a) < prefix(b) {
                    assert!(a < b, "{a:?} {b:?}");
                }
                if head(a) < head(b) {
                    assert!(a < b, "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn short_prefixes_are_padded_with_zeros() {
        let bytes = [1u8, 2, 3, 4, 5, 6, 7];
        for len in 0..=bytes.len() {
            let mut padded = [0; 8];
            padded[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(prefix(&bytes[..len]), u64::from_be_bytes(padded), "{len}");
        }
    }

    #[test]
    fn newest_entry_of_a_key_comes_first() {
        assert_eq!(compare_entries((b"a", 9), (b"a", 3)), Ordering::Less);
        assert_eq!(compare_entries((b"a", 1), (b"b", 9)), Ordering::Less);
        assert_eq!(unpack(pack(77, Kind::Delete)), Some((77, Kind::Delete)));
        assert_eq!(unpack(5), None);
    }
}
