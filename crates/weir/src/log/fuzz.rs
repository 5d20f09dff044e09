//! Fuzzing of logs: the input becomes segments with valid checksums; see `crate::fuzz`.

use super::group::{GroupType, Header, SegmentStart, payload_crc, seed};
use super::{GroupLink, LogPosition, LogSource, groups_behind, is_blank, peek, replay};
use crate::base::coding::Reader;
use crate::base::ids::{Lineage, Lsn, Nonce, SegmentNumber};
use crate::device::sim::{SimDisk, SimOptions};
use crate::storage::files::Files;
use crate::storage::{LOG_UNIT_BYTES, LogKind};

/// Lineage of the fuzzed store.
const LINEAGE: Lineage = Lineage::new(7);
/// Segments that the bytes are divided into, at most.
const SEGMENTS_MAX: usize = 3;

/// The bytes of a segment with a start and two groups, to begin with.
#[must_use]
pub fn sealed_segment(payload: &[u8]) -> Vec<u8> {
    let (segment, prev) = (SegmentNumber::FIRST, GroupLink::ORIGIN);
    let nonce = Nonce::NONE;
    let start = SegmentStart { format: 1, kind: 1, segment, lineage: LINEAGE, prev, nonce };
    let (first, second) = (Lsn::FIRST, Lsn::FIRST.next());
    let mut bytes = Vec::new();
    for (ty, lsn, pad_after, payload) in [
        (GroupType::SegmentStart, Lsn::ZERO, false, &start.encode()[..]),
        (GroupType::Full, first, false, payload),
        (GroupType::First, second, false, payload),
        (GroupType::Last, second, true, payload),
    ] {
        let header = Header {
            ty,
            pad_after,
            opening: 1,
            lsn,
            durable_lsn: Lsn::ZERO,
            count: 1,
            payload_len: payload.len() as u32,
            payload_crc: 0,
        };
        header.encode(0, &mut bytes);
        bytes.extend_from_slice(payload);
    }
    seal(&mut bytes, LogKind::Wal, segment, 0);
    bytes
}

/// Corrects the checksums of everything that decodes as a group and follows another one without a
/// gap; returns that of the last header.
fn seal(bytes: &mut [u8], kind: LogKind, number: SegmentNumber, prev_crc: u32) -> u32 {
    let stated = Header::decode_unverified(bytes)
        .and_then(|(header, _)| bytes.get(header.header_bytes() as usize..))
        .and_then(SegmentStart::decode);
    let nonce = stated.map_or(Nonce::NONE, |start| start.nonce);
    let (seed, mut prev_crc) = (seed(LINEAGE, kind, number, nonce), prev_crc);
    let mut offset = 0u64;
    while let Some((mut header, _)) =
        bytes.get(offset as usize..).and_then(Header::decode_unverified)
    {
        let (start, end) =
            (offset + header.header_bytes(), offset.saturating_add(header.group_bytes()));
        let Some(payload) = bytes.get(start as usize..end as usize) else { break };
        header.payload_crc = payload_crc(prev_crc, &[payload]);
        let mut encoded = Vec::new();
        prev_crc = header.encode(seed, &mut encoded);
        bytes[offset as usize..start as usize].copy_from_slice(&encoded);
        offset = header.next_offset(offset, LOG_UNIT_BYTES);
    }
    prev_crc
}

/// A log of up to three segments: the first byte says of which kind, each segment has its length
/// before it (two bytes).
///
/// # Panics
/// If replay returns groups out of order.
pub fn log_segments(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    let kind = if first & 1 == 0 { LogKind::Wal } else { LogKind::Versions };
    let name = if first & 1 == 0 { "wal" } else { "versions" };
    let disk = SimDisk::new(SimOptions::default());
    let mut reader = Reader::new(data);
    let (mut numbers, mut prev_crc) = (Vec::new(), 0);
    while let Some(len) = reader.u16().filter(|_| numbers.len() < SEGMENTS_MAX) {
        let rest = data.len() - reader.position();
        let Some(segment) = reader.take(usize::from(len).min(rest)) else { break };
        let number = numbers.last().copied().unwrap_or(SegmentNumber::ZERO).next();
        numbers.push(number);
        let mut bytes = segment.to_vec();
        prev_crc = seal(&mut bytes, kind, number, prev_crc);
        disk.write_all(&format!("{name}-{number:06}.log"), &bytes);
    }
    let Ok(storage) = Files::open_damaged(disk.dir()) else { return };
    let mut lsn = Lsn::ZERO;
    let (start, durable_lsn) = (LogPosition::ORIGIN, Lsn::ZERO);
    let source = LogSource { kind, start, durable_lsn, lineage: LINEAGE, nonce: Nonce::NONE };
    let end = replay(&storage, source, &mut |group| {
        // A batch whose fragments are unfinished has used up its LSN.
        assert!(group.lsn > lsn, "groups follow each other");
        lsn = group.lsn;
        match kind {
            LogKind::Wal => crate::fuzz::batch(group.payload),
            LogKind::Versions => crate::fuzz::edit(group.payload),
        }
        Ok(())
    });
    if let Ok(end) = end {
        assert!(end.next.lsn > lsn);
    }
    for &segment in &numbers {
        let _ = is_blank(&storage, kind, segment);
        if let Ok(Some(peek)) = peek(&storage, kind, segment) {
            let (start, lineage, nonce) = (peek.start, peek.lineage, peek.nonce);
            let source = LogSource { start, lineage, nonce, ..source };
            let _ = replay(&storage, source, &mut |_| Ok(()));
        }
    }
    let _ = groups_behind(&storage, kind, LINEAGE, LogPosition::ORIGIN, &numbers);
}
