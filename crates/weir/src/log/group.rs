// FORMAT: docs/format/log.md sha=a735f702c580
//! The bytes of one commit group: header, payload, and the payload of a `SegmentStart`.
//!
//! Pure functions over byte slices. Sizes and offsets are those of docs/format/log.md.
//!
//! A put of its own is a group of its own, so the header is small: numbers are varints, the durable
//! LSN is a distance from the group's own, and the checksum of the group before is not stored but
//! is the seed of the payload's checksum. The guarantees are those of a large header: (1) the
//! header has a checksum of its own, seeded with lineage, kind and segment, so that a header alone,
//! also after a break and before a torn payload, proves its opening, LSN and durable LSN; (2) the
//! payload's checksum verifies only after the group that it was written behind, for an empty
//! payload too; (3) the header's checksum covers the payload's, so it identifies the whole group in
//! the next link.
//!
//! The price is a short magic: a header is recognised by 8 bits of magic, 10 tags of 256 and 32
//! bits of checksum. In 64 MiB of random bytes 2^26 / (2^8 x 2^4.7 x 2^32) = 2^-18.7 headers are
//! found by chance. Such a false positive that also states a plausible durable LSN makes the end of
//! a log look like corruption: an error, never a wrong group.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::checksum::{crc, crc_append, mask};
use crate::base::coding::{Reader, put_u32, put_u64, put_varint, to_usize, varint_len};
use crate::base::ids::{Lineage, Lsn, Nonce, SegmentNumber};
use crate::log::GroupLink;
use crate::storage::LogKind;

/// First byte of every group: rare in text and in small numbers, so that scanning for a header is
/// cheap.
pub(super) const MAGIC: u8 = 0x9d;

/// Bytes of a header besides its varints: magic 1, tag 1, payload checksum 4, header checksum 4.
const FIXED_BYTES: usize = 1 + 1 + 4 + 4;

/// Bytes of the smallest group header: five varints of a byte.
pub(super) const GROUP_HEADER_BYTES_MIN: usize = FIXED_BYTES + 5;

/// Bytes of the largest group header: opening 5, LSN 10, lag 10, count 5, payload length 5.
pub(crate) const GROUP_HEADER_BYTES_MAX: usize = FIXED_BYTES + 5 + 10 + 10 + 5 + 5;

/// Largest payload of one group, in bytes: 1 GiB, the largest segment. A larger batch is
/// fragmented.
pub(crate) const GROUP_PAYLOAD_MAX: u64 = 1 << 30;

/// A page: the unit of the page cache.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Flag in the tag: the next group starts at the next multiple of the log's unit
/// ([`LogRegion::unit`](crate::storage::LogRegion::unit)), so that no later write touches a sector
/// which holds acknowledged groups (H37). The type is in the four bits below.
const PAD_AFTER: u8 = 1 << 4;

/// Newest format version of a log, stored in every `SegmentStart`. 1: the first; 2: with a nonce,
/// which a version log has.
pub(super) const LATEST: u32 = 2;
const FORMAT_WITHOUT_NONCE: u32 = 1;
const FORMAT_WITH_NONCE: u32 = 2;

/// What a group is. The numbers are on disk; 0 is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum GroupType {
    /// First group of a segment; names the segment's predecessor. Carries no entries.
    SegmentStart = 1,
    /// A whole batch or several.
    Full = 2,
    /// The first fragment of a batch that is larger than what one group may hold.
    First = 3,
    /// A further fragment.
    Middle = 4,
    /// The last fragment.
    Last = 5,
}

impl GroupType {
    fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::SegmentStart),
            2 => Some(Self::Full),
            3 => Some(Self::First),
            4 => Some(Self::Middle),
            5 => Some(Self::Last),
            _ => None,
        }
    }

    /// Whether the group is assigned a new LSN; the others carry that of the preceding group.
    pub(super) fn advances(self) -> bool {
        matches!(self, Self::Full | Self::First)
    }

    /// LSN of the group if that of the preceding group is `previous`.
    pub(super) fn lsn_after(self, previous: Lsn) -> Lsn {
        if self.advances() { previous.next() } else { previous }
    }
}

/// A group header. Fields that are in the bytes but not here (magic, checksum) are written by
/// `encode` and verified by `decode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) ty: GroupType,
    pub(super) pad_after: bool,
    pub(super) opening: u32,
    pub(super) lsn: Lsn,
    /// Never above `lsn`.
    pub(super) durable_lsn: Lsn,
    pub(super) count: u32,
    pub(super) payload_len: u32,
    /// See [`payload_crc`].
    pub(super) payload_crc: u32,
}

/// Checksum of a payload in `parts` that follows the group with header checksum `prev_crc`.
pub(super) fn payload_crc(prev_crc: u32, parts: &[&[u8]]) -> u32 {
    mask(parts.iter().fold(prev_crc, |crc, part| crc_append(crc, part)))
}

/// The seed of the header checksums of one segment.
pub(super) fn seed(lineage: Lineage, kind: LogKind, segment: SegmentNumber, nonce: Nonce) -> u32 {
    let mut bytes = [0u8; 17];
    bytes[..8].copy_from_slice(&lineage.get().to_le_bytes());
    bytes[8] = kind as u8;
    bytes[9..].copy_from_slice(&segment.get().to_le_bytes());
    match nonce {
        Nonce::NONE => crc(&bytes),
        nonce => crc_append(crc(&bytes), &nonce.get().to_le_bytes()),
    }
}

impl Header {
    /// Appends the header to `buf`; returns its checksum, which the next group's payload checksum
    /// starts from.
    pub(super) fn encode(&self, seed: u32, buf: &mut Vec<u8>) -> u32 {
        let (lsn, durable_lsn) = (self.lsn, self.durable_lsn);
        assert!(durable_lsn <= lsn, "group {lsn} carries the later durable LSN {durable_lsn}");
        let payload_len = u64::from(self.payload_len);
        assert!(payload_len <= GROUP_PAYLOAD_MAX, "a payload of {payload_len} bytes");
        let start = buf.len();
        buf.extend_from_slice(&[MAGIC, self.ty as u8 | if self.pad_after { PAD_AFTER } else { 0 }]);
        self.varints().iter().for_each(|&number| put_varint(buf, number));
        put_u32(buf, self.payload_crc);
        let (_, header) = buf.split_at(start);
        let checksum = mask(crc_append(seed, header));
        put_u32(buf, checksum);
        debug_assert_eq!((buf.len() - start) as u64, self.header_bytes());
        checksum
    }

    /// Opening, LSN, durable lag, count, payload length.
    fn varints(&self) -> [u64; 5] {
        let (lsn, lag) = (self.lsn.get(), self.lsn.get() - self.durable_lsn.get());
        [u64::from(self.opening), lsn, lag, u64::from(self.count), u64::from(self.payload_len)]
    }

    /// The header at the start of `bytes` and its checksum, if there is one and it verifies.
    pub(super) fn decode(seed: u32, bytes: &[u8]) -> Option<(Self, u32)> {
        let (header, checksum) = Self::decode_unverified(bytes)?;
        let covered = bytes.get(..to_usize(header.header_bytes()) - 4)?;
        (checksum == mask(crc_append(seed, covered))).then_some((header, checksum))
    }

    /// What looks like a header at the start of `bytes`, and the checksum that it carries.
    pub(super) fn decode_unverified(bytes: &[u8]) -> Option<(Self, u32)> {
        let mut r = Reader::new(bytes);
        if r.u8()? != MAGIC {
            return None;
        }
        let tag = r.u8()?;
        let pad_after = tag & PAD_AFTER != 0;
        let ty = GroupType::from_u8(tag & !PAD_AFTER)?;
        let opening = u32::try_from(r.varint()?).ok()?;
        let lsn = r.varint()?;
        let durable_lsn = Lsn::stored(lsn.checked_sub(r.varint()?)?)?;
        // The next one is stored, too, in positions behind this group.
        let lsn = Lsn::stored(lsn.checked_add(1)?)?.previous();
        let count = u32::try_from(r.varint()?).ok()?;
        let payload_len = u32::try_from(r.varint()?).ok()?;
        let payload_crc = r.u32()?;
        let checksum = r.u32()?;
        let header =
            Self { ty, pad_after, opening, lsn, durable_lsn, count, payload_len, payload_crc };
        // `encode` writes every varint in its shortest form.
        let canonical = r.position() as u64 == header.header_bytes();
        (canonical && u64::from(payload_len) <= GROUP_PAYLOAD_MAX).then_some((header, checksum))
    }

    /// Bytes of the header itself.
    pub(super) fn header_bytes(&self) -> u64 {
        (FIXED_BYTES + self.varints().iter().map(|&n| varint_len(n)).sum::<usize>()) as u64
    }

    /// Bytes from the start of the group to the end of its payload.
    pub(super) fn group_bytes(&self) -> u64 {
        self.header_bytes() + u64::from(self.payload_len)
    }

    /// Where the next group starts if this one starts at `offset` of a log with this unit.
    pub(super) fn next_offset(&self, offset: u64, unit: u64) -> u64 {
        let end = offset + self.group_bytes();
        if self.pad_after { end.next_multiple_of(unit) } else { end }
    }
}

/// The payload of the first group of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentStart {
    pub(super) format: u32,
    pub(super) kind: u8,
    pub(super) segment: SegmentNumber,
    pub(super) lineage: Lineage,
    pub(super) prev: GroupLink,
    /// Has a place in the bytes from format 2 on.
    pub(super) nonce: Nonce,
}

impl SegmentStart {
    /// Bytes of the payload: format 4, kind 1, zero 3, segment 8, lineage 8, predecessor's number
    /// 8, its last LSN 8, its last checksum 4.
    pub(super) const BYTES: usize = 4 + 1 + 3 + 8 + 8 + 8 + 8 + 4;

    /// Bytes of the payload with a nonce, which is the last 8.
    pub(super) const BYTES_MAX: usize = Self::BYTES + 8;

    /// Bytes of the payload in a known format.
    pub(super) fn bytes_of(format: u32) -> usize {
        if format < FORMAT_WITH_NONCE { Self::BYTES } else { Self::BYTES_MAX }
    }

    /// The format of a segment with this nonce.
    pub(super) fn format_of(nonce: Nonce) -> u32 {
        if nonce == Nonce::NONE { FORMAT_WITHOUT_NONCE } else { FORMAT_WITH_NONCE }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut buf = Vec::with_capacity(Self::BYTES_MAX);
        put_u32(&mut buf, self.format);
        buf.extend_from_slice(&[self.kind, 0, 0, 0]);
        put_u64(&mut buf, self.segment.get());
        put_u64(&mut buf, self.lineage.get());
        put_u64(&mut buf, self.prev.segment.get());
        put_u64(&mut buf, self.prev.lsn.get());
        put_u32(&mut buf, self.prev.crc);
        if self.format >= FORMAT_WITH_NONCE {
            put_u64(&mut buf, self.nonce.get());
        }
        assert_eq!(buf.len(), Self::bytes_of(self.format), "bytes of a segment start");
        buf
    }

    /// The fields; only `format` is meaningful if this version does not support it.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut r = Reader::new(payload);
        let format = r.u32()?;
        let kind = r.u8()?;
        r.take(3)?;
        let mut start = Self {
            format,
            kind,
            segment: SegmentNumber::stored(r.u64()?)?,
            lineage: Lineage::new(r.u64()?),
            prev: GroupLink {
                segment: SegmentNumber::stored(r.u64()?)?,
                lsn: Lsn::stored(r.u64()?)?,
                crc: r.u32()?,
            },
            nonce: Nonce::NONE,
        };
        if format >= FORMAT_WITH_NONCE {
            start.nonce = Nonce::new(r.u64()?);
        }
        Some(start)
    }
}
