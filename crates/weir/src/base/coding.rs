//! Little-endian numbers and LEB128 varints in byte buffers.
//!
//! Writing appends to a `Vec<u8>`; reading goes through [`Reader`], which never panics on any
//! bytes: a read past the end is `None`, and the caller names file and offset in the error.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

/// Appends `value` as 2 little-endian bytes.
pub(crate) fn put_u16(buf: &mut Vec<u8>, value: u16) {
    buf.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value` as 4 little-endian bytes.
pub(crate) fn put_u32(buf: &mut Vec<u8>, value: u32) {
    buf.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value` as 8 little-endian bytes.
pub(crate) fn put_u64(buf: &mut Vec<u8>, value: u64) {
    buf.extend_from_slice(&value.to_le_bytes());
}

/// `number` as a length or an offset in memory. The engine is for 64-bit targets only (`lib.rs`),
/// so nothing is cut off.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits")]
pub(crate) const fn to_usize(number: u64) -> usize {
    number as usize
}

/// Appends `value` as an unsigned LEB128 varint of 1 to 10 bytes.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
pub(crate) fn put_varint(buf: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buf.push(value as u8 | 0x80);
        value >>= 7;
    }
    buf.push(value as u8);
}

/// Most bytes of a varint.
pub(crate) const VARINT_BYTES_MAX: usize = 10;

/// The bytes that [`put_varint`] appends, and their number, for a caller without a buffer.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
pub(crate) fn varint(mut value: u64) -> ([u8; VARINT_BYTES_MAX], usize) {
    let mut bytes = [0; VARINT_BYTES_MAX];
    let mut len = 0;
    for byte in &mut bytes {
        len += 1;
        *byte = value as u8 & 0x7f;
        value >>= 7;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    (bytes, len)
}

/// Number of bytes that [`put_varint`] appends for `value`.
#[inline]
pub(crate) fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a varint length and then the bytes.
#[inline]
pub(crate) fn put_bytes(buf: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(buf, bytes.len() as u64);
    buf.extend_from_slice(bytes);
}

/// Reads a varint at the start of `bytes`: the value and how many bytes it took. `None` if it is
/// cut off, longer than 10 bytes, or does not fit 64 bits.
#[inline]
pub(crate) fn get_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut value = u64::from(first & 0x7f);
    for (i, &byte) in bytes.iter().enumerate().skip(1).take(9) {
        if i == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Some((value, i + 1));
        }
    }
    None
}

/// Takes numbers and byte strings off the front of a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    consumed: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, consumed: 0 }
    }

    /// How many bytes have been taken.
    pub(crate) fn position(&self) -> usize {
        self.consumed
    }

    /// The bytes not taken yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether everything has been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(n)?;
        self.rest = tail;
        self.consumed += n;
        Some(head)
    }

    /// The next byte.
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// The next 2 bytes as a little-endian number.
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    /// The next 4 bytes as a little-endian number.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// The next 8 bytes as a little-endian number.
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// The next varint.
    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let (value, n) = get_varint(self.rest)?;
        self.take(n)?;
        Some(value)
    }

    /// The next byte string written by [`put_bytes`].
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_boundary() {
        for bits in 0..=64u32 {
            for delta in [-1i64, 0, 1] {
                let base = if bits == 64 { u64::MAX } else { 1u64 << bits };
                let value = base.wrapping_add_signed(delta);
                let mut buf = Vec::new();
                put_varint(&mut buf, value);
                assert_eq!(buf.len(), varint_len(value), "{value}");
                assert_eq!(get_varint(&buf), Some((value, buf.len())));
                assert_eq!(get_varint(&buf[..buf.len() - 1]), None);
            }
        }
        assert_eq!(get_varint(&[0xff; 11]), None);
    }

    #[test]
    fn reader_stops_at_the_end() {
        let mut buf = Vec::new();
        put_u16(&mut buf, 7);
        put_bytes(&mut buf, b"abc");
        put_u64(&mut buf, 9);
        let mut r = Reader::new(&buf);
        assert_eq!(
            (r.u16(), r.bytes(), r.u64(), r.u8()),
            (Some(7), Some(&b"abc"[..]), Some(9), None)
        );
        assert!(r.is_empty());
        assert_eq!(Reader::new(&[200, 1]).bytes(), None);
    }
}
