//! The log against a plain list of payloads: what was appended, how far it was synced, and what a
//! replay may say about it after tearing, flipping, recycling, sealing and crashing.

use std::sync::Arc;

use super::group::{
    GROUP_HEADER_BYTES_MAX, GROUP_HEADER_BYTES_MIN, Header, PAGE_BYTES, SegmentStart,
};
use super::replay::WINDOW_BYTES;
use super::test_storage::{Effect, Fault, MemStorage};
use super::*;
use crate::base::checksum::{crc_append, mask};
use crate::base::error::{ErrorKind, Result};
use crate::base::ids::{Lineage, Lsn, Nonce, lsn, segment};
use crate::base::prng::Prng;
use crate::storage::{LogKind, Object, Storage};

const LINEAGE: Lineage = Lineage::new(0x1122_3344_5566_7788);
/// Bytes of a header whose numbers are all below 128.
const HEADER_BYTES: usize = GROUP_HEADER_BYTES_MIN;
const START_BYTES: usize = HEADER_BYTES + SegmentStart::BYTES;

fn identity(number: u64, opening: u32) -> SegmentIdentity {
    let (kind, segment, lineage) = (LogKind::Wal, segment(number), LINEAGE);
    SegmentIdentity { kind, segment, lineage, opening, nonce: Nonce::NONE }
}

fn start_segment(
    storage: &MemStorage,
    number: u64,
    opening: u32,
    bytes: u64,
    prev: GroupLink,
) -> SegmentWriter {
    let file = storage.create_log(LogKind::Wal, segment(number), bytes).unwrap();
    SegmentWriter::start(file, identity(number, opening), prev, Lsn::ZERO).unwrap()
}

/// Payloads and end of a replay from `start`.
fn read_from(
    storage: &MemStorage,
    start: LogPosition,
    known: u64,
) -> Result<(Vec<Vec<u8>>, ReplayEnd)> {
    let mut payloads = Vec::new();
    let mut next = start.lsn;
    let durable_lsn = lsn(known);
    let source =
        LogSource { kind: LogKind::Wal, start, durable_lsn, lineage: LINEAGE, nonce: Nonce::NONE };
    let end = replay(storage, source, &mut |group| {
        assert!(group.lsn >= next, "LSNs rise; a batch that was given up leaves a gap");
        next = group.lsn.next();
        payloads.push(group.payload.to_vec());
        Ok(())
    })?;
    Ok((payloads, end))
}

fn read(storage: &MemStorage, known: u64) -> Result<(Vec<Vec<u8>>, ReplayEnd)> {
    read_from(storage, LogPosition::ORIGIN, known)
}

fn payload(i: u64, len: usize) -> Vec<u8> {
    let mut prng = Prng::new(i);
    (0..len).map(|_| prng.next_u64() as u8).collect()
}

/// A few groups in one segment; their payloads and the durable LSN that the last one states.
fn small_log(storage: &MemStorage, durable: &[u64]) -> (Vec<Vec<u8>>, SegmentWriter) {
    let mut writer = start_segment(storage, 1, 1, 0, GroupLink::ORIGIN);
    let mut payloads = Vec::new();
    for (i, &durable_lsn) in (0u64..).zip(durable) {
        let bytes = payload(i, 10 + 7 * i as usize);
        writer
            .append(GroupType::Full, &[&bytes[..4], &bytes[4..]], 2, false, lsn(durable_lsn))
            .unwrap();
        payloads.push(bytes);
    }
    (payloads, writer)
}

/// Goal: order, counts, positions. Method: write over three segments, replay from every position.
#[test]
fn replay_gives_back_what_was_appended_from_every_position() {
    let storage = MemStorage::default();
    let mut positions = vec![LogPosition::ORIGIN];
    let mut payloads = Vec::new();
    let mut prev = GroupLink::ORIGIN;
    for number in 1..=3 {
        let mut writer = start_segment(&storage, number, 1, 64 << 10, prev);
        for i in 0..5 {
            let bytes = payload(number * 10 + i, (i * 37) as usize);
            let position = writer.position();
            let lsn =
                writer.append(GroupType::Full, &[&bytes], i as u32, i % 2 == 0, Lsn::ZERO).unwrap();
            assert_eq!(lsn, position.lsn);
            payloads.push(bytes);
            positions.push(writer.position());
        }
        prev = writer.chain();
    }
    for (i, position) in positions.iter().enumerate() {
        let mut encoded = Vec::new();
        position.encode(&mut encoded);
        assert_eq!(encoded.len(), 8 + 8 + 8 + 4 + 4);
        let decoded = LogPosition::decode(&mut crate::base::coding::Reader::new(&encoded)).unwrap();
        let (got, end) = read_from(&storage, decoded, 15).unwrap();
        assert_eq!(got, payloads[i..], "from group {i}");
        assert_eq!((end.chain, end.next), (prev, positions[15]));
    }
    // Positions keep working when the segments before are gone.
    storage.remove_log(LogKind::Wal, segment(1)).unwrap();
    assert_eq!(read_from(&storage, positions[5], 15).unwrap().0, payloads[5..]);
    assert_eq!(read(&storage, 1).unwrap_err().kind(), ErrorKind::Corruption);
}

/// The worked example of the format page is what the code writes and reads.
#[test]
fn worked_example() {
    let page = include_str!("../../../../docs/format/log.md");
    let (_, text) = page.split_once("## Example").unwrap();
    let block = text.split("```").nth(1).unwrap();
    let digits = block.lines().skip(1).flat_map(|line| {
        line.split("  ").next().unwrap_or("").split_whitespace().collect::<Vec<_>>()
    });
    let bytes: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    let storage = MemStorage::default();
    let file = storage.create_log(LogKind::Wal, segment(7), 0).unwrap();
    let prev = GroupLink { segment: segment(6), lsn: lsn(41), crc: 0xaabb_ccdd };
    let mut writer = SegmentWriter::start(file, identity(7, 3), prev, lsn(41)).unwrap();
    let start = LogPosition { offset: 0, ..writer.position() };
    let start = LogPosition { prev_crc: prev.crc, ..start };
    writer.append(GroupType::Full, &[b"abc"], 1, true, lsn(41)).unwrap();
    let written = storage.bytes(LogKind::Wal, segment(7));
    assert_eq!(written.len(), 4096);
    assert_eq!(written[..bytes.len()], bytes);
    storage.set_bytes(LogKind::Wal, segment(7), bytes);
    assert_eq!(read_from(&storage, start, 42).unwrap().0, [b"abc"]);
}

#[test]
fn synced_groups_end_their_sector() {
    let storage = MemStorage::default();
    let mut writer = start_segment(&storage, 1, 1, 0, GroupLink::ORIGIN);
    writer.append(GroupType::Full, &[b"a"], 1, true, Lsn::ZERO).unwrap();
    assert_eq!(writer.position().offset, PAGE_BYTES);
    writer.append(GroupType::Full, &[b"b"], 1, false, lsn(1)).unwrap();
    writer.append(GroupType::Full, &[], 0, true, lsn(1)).unwrap();
    assert_eq!(writer.position().offset, 2 * PAGE_BYTES);
    let (got, end) = read(&storage, 3).unwrap();
    assert_eq!(got, [b"a".to_vec(), b"b".to_vec(), vec![]]);
    assert_eq!((end.next, end.durable_lsn), (writer.position(), lsn(3)));
}

/// Goal: a log cut anywhere is a prefix, and an error where the cut takes a durable group. Method:
/// every length, every known durable LSN.
#[test]
fn torn_at_every_byte() {
    let full = MemStorage::default();
    let (payloads, _) = small_log(&full, &[0, 0, 1, 1, 1]);
    let bytes = full.bytes(LogKind::Wal, segment(1));
    let mut ends = vec![START_BYTES];
    for payload in &payloads {
        ends.push(ends.last().unwrap() + HEADER_BYTES + payload.len());
    }
    for len in 0..=bytes.len() {
        let whole = ends.iter().filter(|&&end| end <= len).count().saturating_sub(1);
        // The durable LSN in the groups that are left: the third (lsn 3) states 1.
        let stated = u64::from(whole >= 3);
        for known in 0..=5 {
            let torn = MemStorage::default();
            torn.set_bytes(LogKind::Wal, segment(1), bytes[..len].to_vec());
            let result = read(&torn, known);
            if whole as u64 >= known.max(stated) {
                let (got, end) = result.unwrap();
                assert_eq!(got, payloads[..whole], "cut at {len}");
                assert_eq!(end.chain.lsn, lsn(whole as u64));
            } else {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption, "cut at {len}, known {known}");
                assert!(error.damage().is_some());
            }
        }
    }
}

/// Goal: never a wrong payload; a flip at or below the durable LSN is an error. Method: every bit
/// of a log whose last group states that group 3 was durable.
#[test]
fn flipped_at_every_bit() {
    let full = MemStorage::default();
    let (payloads, _) = small_log(&full, &[0, 0, 0, 0, 3]);
    let bytes = full.bytes(LogKind::Wal, segment(1));
    let (mut errors, mut prefixes) = (0, 0);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let storage = MemStorage::default();
        storage.set_bytes(LogKind::Wal, segment(1), flipped);
        match read(&storage, 0) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "bit {bit}: {error}");
                errors += 1;
            }
            Ok((got, _)) => {
                // Only the undurable groups 4 and 5 may be missing.
                assert!(got.len() >= 3 && got[..] == payloads[..got.len()], "bit {bit}");
                assert!(got.len() < 5, "bit {bit} was not noticed");
                prefixes += 1;
            }
        }
    }
    assert!(errors > 0 && prefixes > 0, "{errors} {prefixes}");
}

/// A torn group followed by groups that say it was durable is damage; by groups that do not, the
/// end.
#[test]
fn evidence_behind_a_break_decides() {
    for (states, kind) in [(0, None), (1, None), (2, Some(ErrorKind::Corruption))] {
        let storage = MemStorage::default();
        let (_, mut writer) = small_log(&storage, &[0]);
        let hole = writer.position();
        writer.append(GroupType::Full, &[b"lost"], 1, false, Lsn::ZERO).unwrap();
        let end = writer.position().offset;
        let prev = writer.chain();
        // Far behind, in a later segment, so that the scan crosses windows and files.
        let mut later = start_segment(&storage, 2, 1, 0, prev);
        later.append(GroupType::Full, &[&vec![0x9d; 300_000]], 1, false, lsn(states)).unwrap();
        let mut bytes = storage.bytes(LogKind::Wal, segment(1));
        bytes[hole.offset as usize..end as usize].fill(0);
        storage.set_bytes(LogKind::Wal, segment(1), bytes);
        let result = read(&storage, 0);
        assert_eq!(result.as_ref().err().map(|e| e.kind()), kind, "durable LSN {states}");
        if let Ok((got, end)) = result {
            assert_eq!((got.len(), end.next), (1, hole));
        }
    }
}

/// Goal: no header is overlooked behind a break because the window that is scanned ends in it, or
/// the file does. Method: evidence at every offset around the end of the first window.
#[test]
fn evidence_across_the_end_of_a_window() {
    for distance in 0..2 * GROUP_HEADER_BYTES_MAX {
        for trailing in [0, 1, 300] {
            let storage = MemStorage::default();
            let (_, mut writer) = small_log(&storage, &[0]);
            let hole = writer.position().offset as usize;
            // The lost group ends `distance` bytes before the end of the window at `hole`.
            let len = WINDOW_BYTES as usize - distance - HEADER_BYTES - 2;
            writer.append(GroupType::Full, &[&payload(1, len)], 1, false, Lsn::ZERO).unwrap();
            let end = writer.position().offset as usize;
            assert_eq!(end, hole + WINDOW_BYTES as usize - distance);
            writer.append(GroupType::Full, &[], 0, false, lsn(2)).unwrap();
            let mut bytes = storage.bytes(LogKind::Wal, segment(1));
            bytes[hole..end].fill(0);
            bytes.resize(bytes.len() + trailing, 0);
            storage.set_bytes(LogKind::Wal, segment(1), bytes);
            let error = read(&storage, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{distance} {trailing}");
        }
    }
}

/// A missing segment in the middle is the end of the log unless something proves durability.
#[test]
fn missing_middle_segment() {
    for durable in [0, 3] {
        let storage = MemStorage::default();
        let mut prev = GroupLink::ORIGIN;
        for number in 1..=3 {
            let mut writer = start_segment(&storage, number, 1, 4096, prev);
            for _ in 0..2 {
                let stated = if number == 3 { durable } else { 0 };
                writer.append(GroupType::Full, &[b"x"], 1, false, lsn(stated)).unwrap();
            }
            prev = writer.chain();
        }
        storage.remove_log(LogKind::Wal, segment(2)).unwrap();
        match (durable, read(&storage, 0)) {
            (0, Ok((got, _))) => assert_eq!(got.len(), 2),
            (_, Err(error)) if durable > 0 => assert_eq!(error.kind(), ErrorKind::Corruption),
            (_, other) => panic!("{durable}: {other:?}"),
        }
    }
}

/// Goal: what a recycled segment still holds never comes back (bug 20). Method: recycle a full
/// segment and stop after every group, with payloads of equal length so that old groups lie at the
/// offsets where new ones would; with and without zeros up to the end of the page.
#[test]
fn stale_tail_of_a_recycled_segment_is_harmless() {
    for (stop, recycled) in (0..6).flat_map(|stop| [(stop, false), (stop, true)]) {
        let storage = MemStorage::default();
        storage.conceal_stale(!recycled);
        let mut writer = start_segment(&storage, 1, 1, 4096, GroupLink::ORIGIN);
        for i in 0..6 {
            writer.append(GroupType::Full, &[&payload(i, 50)], 1, false, lsn(i)).unwrap();
        }
        let mut second = start_segment(&storage, 2, 1, 4096, writer.chain());
        second.append(GroupType::Full, &[b"second"], 1, false, lsn(6)).unwrap();
        let start = second.position();
        let file = storage.recycle_log(LogKind::Wal, segment(1), segment(3)).unwrap();
        let mut third =
            SegmentWriter::start(file, identity(3, 1), second.chain(), Lsn::ZERO).unwrap();
        let mut expected = Vec::new();
        for i in 0..stop {
            let bytes = payload(100 + i, 50);
            third.append(GroupType::Full, &[&bytes], 1, false, Lsn::ZERO).unwrap();
            expected.push(bytes);
        }
        let (got, end) = read_from(&storage, start, 7).unwrap();
        assert_eq!(got, expected, "stopped after {stop}");
        assert_eq!(end.next, third.position());
        // A recycled segment that was never started is no part of the log and no damage.
        storage.recycle_log(LogKind::Wal, segment(3), segment(4)).unwrap();
        assert_eq!(read_from(&storage, start, 7).unwrap().0, Vec::<Vec<u8>>::new());
    }
}

/// Goal: the first write into a page of a recycled segment covers the page, and no other page is
/// touched, also if groups were held before. Method: groups of random sizes into a file of ones;
/// what lies behind each write.
#[test]
fn a_recycled_segment_is_written_in_whole_pages() {
    let storage = MemStorage::default();
    let file = storage.create_log(LogKind::Wal, segment(1), 40_000).unwrap();
    file.write_at(&[&[0xff; 40_000]], 0).unwrap();
    let file = storage.recycle_log(LogKind::Wal, segment(1), segment(2)).unwrap();
    let prev = GroupLink::ORIGIN;
    let mut writer =
        SegmentWriter::start(Arc::clone(&file), identity(2, 1), prev, Lsn::ZERO).unwrap();
    let mut prng = Prng::new(1);
    loop {
        let mut rest = vec![0; 40_000];
        assert_eq!(file.read_at(&mut rest, 0).unwrap(), rest.len());
        let end = writer.position().offset as usize - writer.held_bytes();
        let page_end = end.next_multiple_of(4096).min(rest.len());
        assert!(rest[end..page_end].iter().all(|&byte| byte == 0), "up to the page's end at {end}");
        assert!(rest[page_end..].iter().all(|&byte| byte == 0xff), "behind the page of {end}");
        let bytes = payload(prng.next_u64(), prng.below(6000) as usize);
        if bytes.len() as u64 > writer.room() {
            assert!(end > 30_000);
            return;
        }
        match prng.below(4) {
            0 | 1 => drop(writer.hold(&[&bytes], 1, Lsn::ZERO).unwrap()),
            2 => writer.write_out().unwrap(),
            _ => {
                let pad = prng.chance(1, 3);
                writer.append(GroupType::Full, &[&bytes], 1, pad, Lsn::ZERO).unwrap();
            }
        }
    }
}

/// Goal: a group of one small put costs at most 24 bytes of header in a store of any common size.
/// Method: encode, against the sum on the format page.
#[test]
fn headers_of_small_groups_are_small() {
    let mut header = Header {
        ty: GroupType::Full,
        pad_after: false,
        opening: 100,
        lsn: lsn(1_000_000),
        durable_lsn: lsn(1),
        count: 1,
        payload_len: 116 + 4 + 3,
        payload_crc: 0,
    };
    assert_eq!(header.header_bytes(), 19);
    header = Header { lsn: lsn((1 << 28) - 1), payload_len: 1000, ..header };
    assert_eq!(header.header_bytes(), 22);
    header = Header { lsn: lsn(u64::MAX), opening: u32::MAX, count: u32::MAX, ..header };
    header.payload_len = 1 << 30;
    assert_eq!(header.header_bytes(), GROUP_HEADER_BYTES_MAX as u64);
}

/// Goal: exactly what `encode` makes is a header. Method: random headers come back; with one bit
/// flipped, cut short, under another seed, or with a number in a longer form, they do not.
#[test]
fn headers_round_trip_and_nothing_else_is_one() {
    let mut prng = Prng::new(7);
    for _ in 0..300 {
        let random = |prng: &mut Prng| {
            let bits = prng.below(64);
            prng.next_u64() >> bits
        };
        let number = random(&mut prng) >> 8;
        let header = Header {
            ty: [GroupType::Full, GroupType::First, GroupType::Last][prng.below(3) as usize],
            pad_after: prng.chance(1, 2),
            opening: random(&mut prng) as u32,
            lsn: lsn(number),
            durable_lsn: lsn(number - random(&mut prng).min(number)),
            count: random(&mut prng) as u32,
            payload_len: random(&mut prng) as u32 & ((1 << 30) - 1),
            payload_crc: prng.next_u64() as u32,
        };
        let mut bytes = Vec::new();
        let checksum = header.encode(5, &mut bytes);
        assert_eq!(Header::decode(5, &bytes), Some((header, checksum)));
        assert_eq!(Header::decode(6, &bytes), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(5, &flipped), None, "{header:?}, bit {bit}");
            assert_eq!(Header::decode(5, &bytes[..bit / 8]), None, "{header:?}, bit {bit}");
        }
        // The opening as two bytes where one would do, with a checksum to match.
        if header.opening < 128 {
            bytes.truncate(bytes.len() - 4);
            bytes[2] |= 0x80;
            bytes.insert(3, 0);
            let checksum = mask(crc_append(5, &bytes));
            bytes.extend_from_slice(&checksum.to_le_bytes());
            assert_eq!(Header::decode(5, &bytes), None, "{header:?}");
        }
    }
}

/// H34: a record of an earlier life at the right offset, with the right LSN and opening, is not
/// accepted, because it names another group before it.
#[test]
fn a_group_of_another_life_does_not_chain() {
    let two_groups = |first: &[u8], second: &[u8]| {
        let storage = MemStorage::default();
        let mut writer = start_segment(&storage, 1, 1, 0, GroupLink::ORIGIN);
        writer.append(GroupType::Full, &[first], 1, false, Lsn::ZERO).unwrap();
        let at = writer.position().offset as usize;
        writer.append(GroupType::Full, &[second], 1, false, Lsn::ZERO).unwrap();
        (storage, at)
    };
    // An empty payload proves its predecessor too.
    for payload in [&b"second"[..], b""] {
        let (storage, second) = two_groups(b"life 1", payload);
        let (earlier, _) = two_groups(b"life 0", payload);
        let mut bytes = storage.bytes(LogKind::Wal, segment(1));
        bytes.truncate(second);
        bytes.extend_from_slice(&earlier.bytes(LogKind::Wal, segment(1))[second..]);
        storage.set_bytes(LogKind::Wal, segment(1), bytes);
        assert_eq!(read(&storage, 1).unwrap().0, [b"life 1"]);
        assert_eq!(read(&storage, 2).unwrap_err().kind(), ErrorKind::Corruption);
    }
}

/// H34: behind unfinished fragments, a group of the segment's previous use does not end the batch
/// as if its writer had abandoned it.
#[test]
fn a_group_of_another_life_does_not_end_a_series() {
    let life = |first: &[u8]| {
        let storage = MemStorage::default();
        let mut writer = start_segment(&storage, 1, 1, 0, GroupLink::ORIGIN);
        let start = writer.position();
        writer.append(GroupType::First, &[first], 0, false, Lsn::ZERO).unwrap();
        let second = writer.position().offset as usize;
        writer.append(GroupType::Full, &[b"second"], 1, false, Lsn::ZERO).unwrap();
        (storage, start, second)
    };
    let (storage, start, second) = life(b"life 1");
    let (earlier, ..) = life(b"life 0");
    let mut bytes = storage.bytes(LogKind::Wal, segment(1));
    bytes.truncate(second);
    bytes.extend_from_slice(&earlier.bytes(LogKind::Wal, segment(1))[second..]);
    storage.set_bytes(LogKind::Wal, segment(1), bytes);
    let (got, end) = read(&storage, 0).unwrap();
    assert_eq!((got.len(), end.next), (0, start));
    assert_eq!(read(&storage, 1).unwrap_err().kind(), ErrorKind::Corruption);
}

/// Goal: nothing acknowledged is lost behind a group whose write failed, whatever of it reached the
/// disk (bugs 29, 31). Method: fail one write in three ways, go on in a successor.
#[test]
fn sealed_segment_ends_where_its_successor_says() {
    for effect in [Effect::Nothing, Effect::Half, Effect::All] {
        for kind in [ErrorKind::Io, ErrorKind::NoSpace] {
            let storage = MemStorage::default();
            let (mut payloads, mut writer) = small_log(&storage, &[0, 0]);
            storage.set_fault(Some(Fault { at: storage.calls(), times: 1, kind, effect }));
            let error =
                writer.append(GroupType::Full, &[b"failed"], 1, false, Lsn::ZERO).unwrap_err();
            assert_eq!(error.kind(), kind);
            assert_eq!(writer.room(), 0);
            assert!(writer.append(GroupType::Full, &[b"no"], 1, false, Lsn::ZERO).is_err());
            if effect == Effect::All {
                // As long as no successor says otherwise, the group counts: it may have been
                // synced.
                assert_eq!(read(&storage, 0).unwrap().0.len(), 3);
            }
            let mut next = start_segment(&storage, 2, 1, 0, writer.chain());
            next.append(GroupType::Full, &[b"acknowledged"], 1, false, lsn(2)).unwrap();
            payloads.push(b"acknowledged".to_vec());
            let (got, end) = read(&storage, 3).unwrap();
            assert_eq!((got, end.chain), (payloads, next.chain()), "{effect:?}");
            assert_eq!(end.segments_seen, [segment(1), segment(2)]);
        }
    }
}

/// A segment whose start failed is passed over, although it is on disk.
#[test]
fn failed_start_is_tried_again_under_a_new_number() {
    let storage = MemStorage::default();
    let (payloads, writer) = small_log(&storage, &[0]);
    let file = storage.create_log(LogKind::Wal, segment(2), 0).unwrap();
    let fault =
        Fault { at: storage.calls(), times: 1, kind: ErrorKind::NoSpace, effect: Effect::All };
    storage.set_fault(Some(fault));
    assert!(SegmentWriter::start(file, identity(2, 1), writer.chain(), Lsn::ZERO).is_err());
    let mut third = start_segment(&storage, 3, 1, 0, writer.chain());
    third.append(GroupType::Full, &[b"x"], 1, false, Lsn::ZERO).unwrap();
    let (got, end) = read(&storage, 0).unwrap();
    assert_eq!((got.len(), end.segments_seen), (payloads.len() + 1, vec![segment(1), segment(3)]));
}

/// Goal: a log that lacks its end is told by a file and an offset that are known: no file is named
/// that may never have been. Method: a segment of two that is removed; one cut before the start of
/// the replay, or between two groups; one between two that is removed.
#[test]
fn what_lacks_its_end_is_named() {
    let told = |storage: &MemStorage, start, part: &str| {
        let error = read_from(storage, start, 9).unwrap_err();
        assert!(error.to_string().contains(part), "no {part:?} in {error}");
        let damage = error.damage().unwrap();
        (damage.file.clone(), damage.offset)
    };
    let storage = MemStorage::default();
    let (_, first) = small_log(&storage, &[0, 0]);
    let at = first.position();
    let name = |number: u64| format!("Wal-{number}");
    let mut second = start_segment(&storage, 2, 1, 0, first.chain());
    for _ in 0..3 {
        second.append(GroupType::Full, &[&[1; 3000]], 1, false, Lsn::ZERO).unwrap();
    }
    let start = second.position();
    let last = "missing where the log ends, in its last file";
    assert_eq!(told(&storage, start, last), (name(2), start.offset));
    let whole = storage.bytes(LogKind::Wal, segment(2));
    storage.set_bytes(LogKind::Wal, segment(2), whole[..5000].to_vec());
    assert_eq!(told(&storage, start, "a file that is cut off"), (name(2), 5000));
    assert_eq!(told(&storage, at, "missing or broken").0, name(2));
    let third = start_segment(&storage, 3, 1, 0, second.chain());
    assert_eq!(told(&storage, LogPosition::ORIGIN, "missing or broken").0, name(2));
    storage.remove_log(LogKind::Wal, segment(2)).unwrap();
    let whole = storage.name_of(Object::Log(LogKind::Wal, segment(2)));
    assert_eq!(told(&storage, at, "with the file that seems to have held it"), (whole, 0));
    storage.remove_log(LogKind::Wal, third.segment()).unwrap();
    assert_eq!(told(&storage, at, last), (name(1), at.offset));
}

#[test]
fn rollback_leaves_nothing_of_a_failed_group() {
    for effect in [Effect::Nothing, Effect::Half, Effect::All] {
        let storage = MemStorage::default();
        let (payloads, mut writer) = small_log(&storage, &[0, 0]);
        let before = writer.position();
        let kind = ErrorKind::NoSpace;
        storage.set_fault(Some(Fault { at: storage.calls(), times: 1, kind, effect }));
        writer.append(GroupType::Full, &[b"failed"], 1, false, Lsn::ZERO).unwrap_err();
        writer.rollback().unwrap();
        assert_eq!((read(&storage, 0).unwrap().0, writer.position()), (payloads, before));
        writer.append(GroupType::Full, &[b"again"], 1, false, Lsn::ZERO).unwrap();
        assert_eq!(read(&storage, 3).unwrap().0.last().unwrap(), b"again");
    }
}

/// Writes `batch` as fragments over as many small segments as it takes.
fn append_fragmented(
    storage: &MemStorage,
    mut writer: SegmentWriter,
    batch: &[u8],
    stop_after: usize,
) -> SegmentWriter {
    let mut rest = batch;
    let mut ty = GroupType::First;
    for _ in 0..stop_after {
        if writer.room() == 0 {
            let number = writer.segment().get() + 1;
            writer = start_segment(storage, number, 1, 512, writer.chain());
        }
        let (head, tail) = rest.split_at(rest.len().min(writer.room() as usize));
        if tail.is_empty() {
            ty = GroupType::Last;
        }
        writer.append(ty, &[head], 1, false, Lsn::ZERO).unwrap();
        (rest, ty) = (tail, GroupType::Middle);
        if rest.is_empty() {
            break;
        }
    }
    writer
}

/// Goal: a batch larger than a segment is whole or absent. Method: stop after every fragment, and
/// append another batch behind the abandoned fragments.
#[test]
fn fragmented_batches_are_whole_or_absent() {
    let batch = payload(9, 3000);
    for stop_after in 1..20 {
        let storage = MemStorage::default();
        let mut writer = start_segment(&storage, 1, 1, 512, GroupLink::ORIGIN);
        writer.append(GroupType::Full, &[b"before"], 1, false, Lsn::ZERO).unwrap();
        let first = writer.position();
        let writer = append_fragmented(&storage, writer, &batch, stop_after);
        let (got, end) = read(&storage, 0).unwrap();
        let whole = got.len() == 2;
        if whole {
            assert_eq!(got[1], batch);
        } else {
            assert_eq!((got.len(), end.next), (1, first));
            assert_eq!(read(&storage, 2).unwrap_err().kind(), ErrorKind::Corruption);
        }
        // A segment of 512 bytes has room for 408 besides its start (59) and the largest header.
        assert_eq!(whole, stop_after >= 8, "{stop_after}");
        // The same opening continues: the abandoned batch stays absent.
        let mut next = start_segment(&storage, writer.segment().get() + 1, 1, 512, writer.chain());
        next.append(GroupType::Full, &[b"after"], 1, false, Lsn::ZERO).unwrap();
        let (got, _) = read(&storage, 3).unwrap();
        assert_eq!(got.last().unwrap(), b"after");
        assert_eq!(got.len(), if whole { 3 } else { 2 });
    }
}

/// The next opening goes on where replay ended, also in the middle of a series.
#[test]
fn a_new_epoch_goes_on_from_the_end() {
    for stop_after in [1, 3, 20] {
        let storage = MemStorage::default();
        let writer = start_segment(&storage, 1, 1, 512, GroupLink::ORIGIN);
        append_fragmented(&storage, writer, &payload(9, 3000), stop_after);
        let (before, end) = read(&storage, 0).unwrap();
        let mut next = start_segment(&storage, 100, end.next.opening + 1, 512, end.chain);
        let lsn = next.append(GroupType::Full, &[b"new"], 1, false, Lsn::ZERO).unwrap();
        assert_eq!(lsn, end.next.lsn);
        let (after, end) = read(&storage, lsn.get()).unwrap();
        assert_eq!((after.len(), after.last().unwrap()), (before.len() + 1, &b"new".to_vec()));
        assert_eq!(end.next.opening, 2);
    }
}

#[test]
fn foreign_and_newer_logs_and_failing_reads_are_errors() {
    let storage = MemStorage::default();
    small_log(&storage, &[0]);
    let other = |group: GroupView<'_>| panic!("{group:?}");
    let source = LogSource {
        kind: LogKind::Wal,
        start: LogPosition::ORIGIN,
        durable_lsn: Lsn::ZERO,
        lineage: Lineage::new(7),
        nonce: Nonce::NONE,
    };
    let error = replay(&storage, source, &mut { other }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("another store"), "{error}");
    storage.fail_reads(true);
    assert_eq!(read(&storage, 0).unwrap_err().kind(), ErrorKind::Io);
    let newer = MemStorage::default();
    let file = newer.create_log(LogKind::Wal, segment(1), 0).unwrap();
    let start = SegmentStart {
        format: 3,
        kind: LogKind::Wal as u8,
        segment: segment(1),
        lineage: LINEAGE,
        prev: GroupLink::ORIGIN,
        nonce: Nonce::NONE,
    };
    let payload = start.encode();
    let header = Header {
        ty: GroupType::SegmentStart,
        pad_after: false,
        opening: 1,
        count: 0,
        payload_len: payload.len() as u32,
        payload_crc: super::group::payload_crc(0, &[&payload]),
        lsn: Lsn::ZERO,
        durable_lsn: Lsn::ZERO,
    };
    let mut bytes = Vec::new();
    header.encode(super::group::seed(LINEAGE, LogKind::Wal, segment(1), Nonce::NONE), &mut bytes);
    bytes.extend_from_slice(&payload);
    file.write_at(&[&bytes], 0).unwrap();
    assert_eq!(read(&newer, 0).unwrap_err().kind(), ErrorKind::Unsupported);
}

/// Goal: hostile bytes end in an error or an empty log, quickly and without large allocations.
#[test]
fn random_bytes_are_no_log() {
    let mut prng = Prng::new(1);
    for round in 0..200 {
        let storage = MemStorage::default();
        small_log(&storage, &[0, 0, 0]);
        let mut bytes = storage.bytes(LogKind::Wal, segment(1));
        for _ in 0..=round % 7 {
            let at = prng.below(bytes.len() as u64) as usize;
            let end = (at + prng.below(20) as usize).min(bytes.len());
            bytes[at..end].iter_mut().for_each(|b| *b = prng.next_u64() as u8);
        }
        storage.set_bytes(LogKind::Wal, segment(1), bytes);
        if let Err(error) = read(&storage, 0) {
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
    }
}

/// Goal: after a power cut at any call, with any unsynced sectors kept, replay gives a prefix that
/// holds every synced group, and so on through several openings. Method: seeded runs with recycled
/// segments, random sizes and syncs, a crash per opening; the oracle is the list of payloads.
#[test]
fn power_cuts_leave_a_prefix_that_holds_all_synced_groups() {
    for seed in 0..150 {
        let mut prng = Prng::new(seed);
        let storage = MemStorage::default();
        let mut log: Vec<Vec<u8>> = Vec::new();
        let mut durable = 0;
        let mut spare: Option<u64> = None;
        let mut number = 0;
        let bytes_max = if seed % 3 == 0 { 10_000 } else { 2048 };
        for opening in 1..=4 {
            let (got, end) = read(&storage, durable).unwrap_or_else(|error| {
                panic!("seed {seed}, opening {opening}, durable {durable}: {error}")
            });
            assert!(got.len() as u64 >= durable, "seed {seed}: a synced group was lost");
            assert!(log.starts_with(&got), "seed {seed}, opening {opening}: not a prefix");
            log = got;
            // What was recovered is made durable before the new opening says anything about it.
            for &seen in &end.segments_seen {
                storage.open_log(LogKind::Wal, seen).unwrap().sync().unwrap();
            }
            durable = log.len() as u64;
            let mut prev = end.chain;
            storage.crash_at(storage.calls() + prng.below(60));
            'run: loop {
                number += 1;
                let recycled = spare.is_some() && prng.chance(1, 2);
                let file = match spare.take() {
                    Some(old) => storage.recycle_log(LogKind::Wal, segment(old), segment(number)),
                    None => storage.create_log(LogKind::Wal, segment(number), bytes_max),
                };
                let Ok(file) = file else { break };
                storage.conceal_stale(!recycled);
                let started =
                    SegmentWriter::start(file, identity(number, opening), prev, lsn(durable));
                let Ok(mut writer) = started else { break };
                loop {
                    let bytes = payload(prng.next_u64(), prng.below(300) as usize);
                    if writer.room() == 0 || bytes.len() as u64 > writer.room() {
                        break;
                    }
                    let synced = prng.chance(1, 3);
                    log.push(bytes.clone());
                    if writer.append(GroupType::Full, &[&bytes], 1, synced, lsn(durable)).is_err() {
                        break 'run;
                    }
                    if synced {
                        if writer.region().sync().is_err() {
                            break 'run;
                        }
                        durable = log.len() as u64;
                    }
                }
                // A segment is left only when it is durable.
                if writer.region().sync().is_err() {
                    break;
                }
                durable = log.len() as u64;
                prev = writer.chain();
            }
            assert!(storage.has_crashed());
            storage.restart(&mut prng.fork(), opening as u64 % 5);
        }
    }
}

#[test]
fn arcs_are_shared() {
    let storage = MemStorage::default();
    let (_, writer) = small_log(&storage, &[0]);
    let region: &Arc<dyn crate::storage::LogRegion> = writer.region();
    assert_eq!(region.capacity().unwrap(), writer.bytes());
}
