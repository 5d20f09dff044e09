// FORMAT: docs/format/slots.md sha=19adb194e2d9
//! Pages of 4 KiB that storage writes beside objects: the heads of logs and the trailers of tables.
//!
//! Both say whose they are (H78): the uuid of the formatted device, drawn when it was formatted.
//! Not here: the superblock, which is a page too.
//!
//! Invariants, which `decode` checks: (1) the last four bytes are a masked CRC-32C of all before;
//! (2) a page of another life of the device, or of another kind, is none.
//!
//! Source: LDS §3.2 and §3.4. We differ: an extent of a table ends in a trailer, where the paper
//! aligns the table's own end.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::checksum::{crc, mask};
use crate::base::coding::{Reader, put_u32, put_u64};
use crate::base::ids::{SegmentNumber, TableUid};
use crate::storage::LogKind;

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES as u64 == crate::base::place::TRAILER_BYTES, "a trailer");
/// First bytes of the head of a log.
pub(super) const HEAD_MAGIC: [u8; 8] = *b"WEIRCELL";
/// First bytes of the trailer of a table.
const TRAILER_MAGIC: [u8; 8] = *b"WEIRTAIL";
/// Format of both. 1: the first.
const PAGE_FORMAT: u32 = 1;
const CRC_BYTES: usize = 4;
/// Most bytes of the copy of a superblock's fields in a head, the root record not counted.
pub(super) const LAYOUT_BYTES_MAX: usize = 1024;
/// Turns of heads are smaller: no device gets there.
const TURNS_END: u64 = 1 << 63;

/// Identity of a formatted device.
pub(super) type Uuid = [u8; 16];

/// Which log a cell, or a half of the version log's area, holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogHead {
    pub(super) kind: LogKind,
    pub(super) number: SegmentNumber,
    /// Rises with each head that is written to the device: of two that claim one log, the later one
    /// is right.
    pub(super) turn: u64,
}

/// What an extent of a table ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) uid: TableUid,
    /// Number of the extent in its table, from 0 on.
    pub(super) part: u32,
    /// How many slots the extent has, this one included.
    pub(super) slots: u64,
    /// Bytes of the table up to the end of this extent; of all of it, in the last.
    pub(super) bytes: u64,
    /// Whether the table ends here.
    pub(super) last: bool,
    /// The generation of the superblock that a repair found by which the table was written, while
    /// that superblock holds: the table is the repair's own until then. 0: it is of no repair.
    pub(super) repairs: u64,
}

fn sealed(magic: [u8; 8], uuid: &Uuid, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut page = Vec::with_capacity(PAGE_BYTES);
    page.extend_from_slice(&magic);
    put_u32(&mut page, PAGE_FORMAT);
    page.extend_from_slice(uuid);
    fill(&mut page);
    page.resize(PAGE_BYTES - CRC_BYTES, 0);
    let checksum = mask(crc(&page));
    put_u32(&mut page, checksum);
    page
}

/// The uuid of a page, and its content behind it; `None` if it is none of this kind.
fn opened<'a>(page: &'a [u8], magic: &[u8]) -> Option<(Uuid, Reader<'a>)> {
    let (covered, stored) = page.split_at_checked(PAGE_BYTES - CRC_BYTES)?;
    let mut reader = Reader::new(covered);
    let sound = reader.take(magic.len())? == magic
        && Reader::new(stored).u32()? == mask(crc(covered))
        && reader.u32()? == PAGE_FORMAT;
    let uuid = reader.take(size_of::<Uuid>())?.try_into().ok()?;
    sound.then_some((uuid, reader))
}

/// As [`opened`], of this device.
fn opened_of<'a>(page: &'a [u8], magic: &[u8], uuid: &Uuid) -> Option<Reader<'a>> {
    opened(page, magic).filter(|(found, _)| found == uuid).map(|(_, reader)| reader)
}

impl LogHead {
    /// The page, with a copy of what the superblock says of the device, or nothing.
    pub(super) fn encode(&self, uuid: &Uuid, layout: &[u8]) -> Vec<u8> {
        assert!(layout.len() <= LAYOUT_BYTES_MAX, "a layout of {} bytes", layout.len());
        let page = sealed(HEAD_MAGIC, uuid, |page| {
            put_u32(page, self.kind as u32);
            put_u64(page, self.number.get());
            put_u64(page, self.turn);
            put_u32(page, layout.len().try_into().unwrap_or(0));
            page.extend_from_slice(layout);
        });
        debug_assert_eq!(Self::decode(&page, uuid), Some(*self));
        page
    }

    /// The uuid and the [layout](Self::encode) in a page whose device is not known; `None` if there
    /// is no head, or none with a layout.
    pub(super) fn layout(page: &[u8]) -> Option<(Uuid, &[u8])> {
        let (uuid, mut reader) = opened(page, &HEAD_MAGIC)?;
        Self::decode(page, &uuid)?;
        // Kind, number and turn.
        reader.take(4 + 8 + 8)?;
        let bytes = reader.u32()?;
        let layout = reader.take(bytes as usize)?;
        (!layout.is_empty()).then_some((uuid, layout))
    }

    /// The head in a page; `None` if there is none.
    pub(super) fn decode(page: &[u8], uuid: &Uuid) -> Option<Self> {
        let mut reader = opened_of(page, &HEAD_MAGIC, uuid)?;
        let kind = reader.u32()?;
        let kind =
            [LogKind::Wal, LogKind::Versions].into_iter().find(|&known| known as u32 == kind)?;
        let number = SegmentNumber::stored(reader.u64()?)?;
        let head = Self { kind, number, turn: reader.u64()? };
        Some(head).filter(|head| head.number.get() > 0 && head.turn < TURNS_END)
    }
}

impl Trailer {
    /// The page.
    pub(super) fn encode(&self, uuid: &Uuid) -> Vec<u8> {
        let page = sealed(TRAILER_MAGIC, uuid, |page| {
            put_u64(page, self.uid.get());
            put_u32(page, self.part);
            put_u64(page, self.slots);
            put_u64(page, self.bytes);
            put_u32(page, u32::from(self.last));
            put_u64(page, self.repairs);
        });
        debug_assert_eq!(Self::decode(&page, uuid), Some(*self));
        page
    }

    /// The trailer in a page; `None` if there is none.
    pub(super) fn decode(page: &[u8], uuid: &Uuid) -> Option<Self> {
        let mut reader = opened_of(page, &TRAILER_MAGIC, uuid)?;
        let uid = TableUid::stored(reader.u64()?)?;
        let (part, slots, bytes) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let last = match reader.u32()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let repairs = reader.u64()?;
        let trailer = Self { uid, part, slots, bytes, last, repairs };
        (uid > TableUid::NONE && slots > 0).then_some(trailer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{segment, uid};

    const UUID: Uuid = *b"0123456789abcdef";

    /// Goal: a damaged page, one of another device or of another kind is none (P6, H78). Method:
    /// every bit flipped; another uuid; each taken for the other.
    #[test]
    fn only_its_own_pages_are_read() {
        let head = LogHead { kind: LogKind::Versions, number: segment(7), turn: 9 };
        let trailer =
            Trailer { uid: uid(5), part: 1, slots: 3, bytes: 1 << 33, last: true, repairs: 7 };
        let pages = [head.encode(&UUID, b"a layout"), trailer.encode(&UUID)];
        assert_eq!(LogHead::layout(&pages[0]), Some((UUID, &b"a layout"[..])));
        assert_eq!(LogHead::layout(&head.encode(&UUID, &[])), None);
        assert_eq!(LogHead::layout(&pages[1]), None);
        assert_eq!(LogHead::decode(&pages[0], &UUID), Some(head));
        assert_eq!(Trailer::decode(&pages[1], &UUID), Some(trailer));
        let any = |page: &[u8], uuid: &Uuid| {
            LogHead::layout(page).is_some_and(|(found, _)| found == *uuid)
                || LogHead::decode(page, uuid).is_some()
                || Trailer::decode(page, uuid).is_some()
        };
        assert!(LogHead::decode(&pages[1], &UUID).is_none());
        assert!(Trailer::decode(&pages[0], &UUID).is_none());
        for page in pages {
            assert!(any(&page, &UUID) && !any(&page, &[0; 16]) && !any(&page[..4095], &UUID));
            for bit in 0..page.len() * 8 {
                let mut bad = page.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(!any(&bad, &UUID), "bit {bit}");
            }
        }
    }

    /// Goal: a head after whose turn there is none is none: the next one would overflow.
    #[test]
    fn turns_have_an_end() {
        let head = |turn: u64| {
            let page = sealed(HEAD_MAGIC, &UUID, |page| {
                put_u32(page, LogKind::Wal as u32);
                put_u64(page, 7);
                put_u64(page, turn);
            });
            LogHead::decode(&page, &UUID)
        };
        assert_eq!(head(TURNS_END - 1).map(|head| head.turn), Some(TURNS_END - 1));
        assert_eq!(head(TURNS_END), None);
        assert_eq!(head(u64::MAX), None);
    }
}
