//! The bytes of one commit group: header, payload, and the payload of a `SegmentStart`.
//!
//! Pure functions over byte slices. Sizes and offsets are those of docs/format/log.md.

use crate::base::checksum::{crc, crc_append, mask};
use crate::base::coding::{Reader, put_u32, put_u64};
use crate::log::Chain;
use crate::storage::LogKind;

/// First bytes of every group. The first byte is rare in text and in small numbers, so that
/// scanning for a header is cheap.
pub(super) const MAGIC: [u8; 4] = [0x9d, b'W', b'L', b'G'];

/// Bytes of a group header: magic 4, type 1, flags 1, zero 2, epoch 4, count 4, payload length 4,
/// payload checksum 4, LSN 8, durable LSN 8, previous checksum 4, header checksum 4.
pub(crate) const GROUP_HEADER_BYTES: usize = 4 + 1 + 1 + 2 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 4;

/// Bytes of the header that its own checksum covers.
const COVERED_BYTES: usize = GROUP_HEADER_BYTES - 4;

/// Largest payload of one group, in bytes: the largest segment. A larger batch is fragmented.
pub(crate) const GROUP_PAYLOAD_MAX: u64 = 1 << 30;

/// The unit that a synced group is padded to: the largest sector of common disks, so that no later
/// write touches a sector which holds acknowledged groups (H37).
pub(super) const PAD_BYTES: u64 = 4096;

/// Flag: the next group starts at the next multiple of [`PAD_BYTES`].
pub(super) const PAD_AFTER: u8 = 1;

/// Format of the log, stated in every `SegmentStart`. 1: the first.
pub(super) const LATEST: u32 = 1;

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

    /// Whether the group takes a new LSN; the others carry that of the group before.
    pub(super) fn advances(self) -> bool {
        matches!(self, Self::Full | Self::First)
    }
}

/// A group header. Fields that are in the bytes but not here (magic, checksum) are made and checked
/// by `encode` and `decode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) ty: GroupType,
    pub(super) pad_after: bool,
    pub(super) epoch: u32,
    pub(super) count: u32,
    pub(super) payload_len: u32,
    pub(super) payload_crc: u32,
    pub(super) lsn: u64,
    pub(super) durable_lsn: u64,
    pub(super) prev_crc: u32,
}

/// The number that header checksums of one segment start from.
pub(super) fn seed(lineage: u64, kind: LogKind, segment: u64) -> u32 {
    let mut bytes = [0u8; 17];
    bytes[..8].copy_from_slice(&lineage.to_le_bytes());
    bytes[8] = kind as u8;
    bytes[9..].copy_from_slice(&segment.to_le_bytes());
    crc(&bytes)
}

impl Header {
    /// Appends the header; the checksum that it carries and that the next group names.
    pub(super) fn encode(&self, seed: u32, buf: &mut Vec<u8>) -> u32 {
        let start = buf.len();
        buf.extend_from_slice(&MAGIC);
        buf.push(self.ty as u8);
        buf.push(if self.pad_after { PAD_AFTER } else { 0 });
        buf.extend_from_slice(&[0, 0]);
        put_u32(buf, self.epoch);
        put_u32(buf, self.count);
        put_u32(buf, self.payload_len);
        put_u32(buf, self.payload_crc);
        put_u64(buf, self.lsn);
        put_u64(buf, self.durable_lsn);
        put_u32(buf, self.prev_crc);
        let checksum = mask(crc_append(seed, &buf[start..]));
        put_u32(buf, checksum);
        debug_assert_eq!(buf.len() - start, GROUP_HEADER_BYTES);
        checksum
    }

    /// The header at the start of `bytes` and its checksum, if one stands there and verifies.
    pub(super) fn decode(seed: u32, bytes: &[u8]) -> Option<(Self, u32)> {
        let covered = bytes.get(..COVERED_BYTES)?;
        if covered.get(..4)? != MAGIC {
            return None;
        }
        let mut r = Reader::new(bytes.get(4..GROUP_HEADER_BYTES)?);
        let ty = GroupType::from_u8(r.u8()?)?;
        let flags = r.u8()?;
        if flags & !PAD_AFTER != 0 || r.u16()? != 0 {
            return None;
        }
        let header = Self {
            ty,
            pad_after: flags & PAD_AFTER != 0,
            epoch: r.u32()?,
            count: r.u32()?,
            payload_len: r.u32()?,
            payload_crc: r.u32()?,
            lsn: r.u64()?,
            durable_lsn: r.u64()?,
            prev_crc: r.u32()?,
        };
        let checksum = r.u32()?;
        let plausible = u64::from(header.payload_len) <= GROUP_PAYLOAD_MAX
            && header.durable_lsn <= header.lsn
            && checksum == mask(crc_append(seed, covered));
        plausible.then_some((header, checksum))
    }

    /// Bytes from the start of the group to the end of its payload.
    pub(super) fn group_bytes(&self) -> u64 {
        GROUP_HEADER_BYTES as u64 + u64::from(self.payload_len)
    }

    /// Where the next group starts if this one starts at `offset`.
    pub(super) fn next_offset(&self, offset: u64) -> u64 {
        let end = offset + self.group_bytes();
        if self.pad_after { end.next_multiple_of(PAD_BYTES) } else { end }
    }
}

/// What the first group of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentStart {
    pub(super) format: u32,
    pub(super) kind: u8,
    pub(super) segment: u64,
    pub(super) lineage: u64,
    pub(super) prev: Chain,
}

impl SegmentStart {
    /// Bytes of the payload: format 4, kind 1, zero 3, segment 8, lineage 8, predecessor's number
    /// 8, its last LSN 8, its last checksum 4.
    pub(super) const BYTES: usize = 4 + 1 + 3 + 8 + 8 + 8 + 8 + 4;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut buf = Vec::with_capacity(Self::BYTES);
        put_u32(&mut buf, self.format);
        buf.extend_from_slice(&[self.kind, 0, 0, 0]);
        put_u64(&mut buf, self.segment);
        put_u64(&mut buf, self.lineage);
        put_u64(&mut buf, self.prev.segment);
        put_u64(&mut buf, self.prev.lsn);
        put_u32(&mut buf, self.prev.crc);
        buf
    }

    /// The fields; only `format` is meaningful if it is not one that this version knows.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let mut r = Reader::new(payload);
        let format = r.u32()?;
        let kind = r.u8()?;
        r.take(3)?;
        Some(Self {
            format,
            kind,
            segment: r.u64()?,
            lineage: r.u64()?,
            prev: Chain { segment: r.u64()?, lsn: r.u64()?, crc: r.u32()? },
        })
    }
}
