//! Reading a log back, from a recorded position to its end.
//!
//! Replay stops where no group continues the chain. Whether that is the end of the log or
//! corruption is decided by comparing LSNs: it is corruption if the missing group's LSN is at most
//! the greatest durable LSN that the caller passes or that any intact header of this log carries,
//! also after the break (PROMISES.md, P7). A header proves that even if its payload is torn,
//! because it has a checksum of its own; so the search is one pass over the rest of the log.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::BTreeMap;
use std::sync::Arc;

use super::group::{
    GROUP_HEADER_BYTES_MAX, GROUP_HEADER_BYTES_MIN, GroupType, Header, LATEST, MAGIC, PAGE_BYTES,
    SegmentStart, payload_crc, seed,
};
use super::{GroupLink, LogPosition};
use crate::base::checksum::{crc_append, mask};
use crate::base::coding::to_usize;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{Lineage, Lsn, Nonce, SegmentNumber};
use crate::storage::{LOG_UNIT_BYTES, LogKind, LogRegion, Object, Storage};

/// Bytes of one read: 256 KiB; larger sequential reads are not cheaper per byte.
pub(super) const WINDOW_BYTES: u64 = 256 << 10;

/// Upper bound of the bytes of a `SegmentStart` group, in later formats too.
const START_BYTES_MAX: u64 = 4096;

/// A group as replay returns it: a whole one, or a batch assembled from its fragments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupView<'a> {
    /// LSN of the group.
    pub(crate) lsn: Lsn,
    /// Entries in the payload, over all fragments.
    pub(crate) count: u64,
    /// The payload, over all fragments.
    pub(crate) payload: &'a [u8],
    /// Where the group, or its first fragment, starts.
    pub(crate) position: LogPosition,
    /// Where the group after it starts.
    pub(crate) next: LogPosition,
}

/// How a replay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplayEnd {
    /// Where the next group would start: that of the first group that was not returned.
    pub(crate) next: LogPosition,
    /// The last group that was returned: what a new segment names as its predecessor.
    pub(crate) chain: GroupLink,
    /// The greatest durable LSN known: the argument's or a group's.
    pub(crate) durable_lsn: Lsn,
    /// Segments that groups were read from, in order.
    pub(crate) segments_seen: Vec<SegmentNumber>,
}

/// A log, and where its replay begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSource {
    /// The log's kind.
    pub(crate) kind: LogKind,
    /// The end of what need not be read.
    pub(crate) start: LogPosition,
    /// The log was durable up to this group at least, as another record says.
    pub(crate) durable_lsn: Lsn,
    /// The store's.
    pub(crate) lineage: Lineage,
    /// That of its segments.
    pub(crate) nonce: Nonce,
}

/// Reads a log from its start on and passes every whole group to `on_group`, in order.
///
/// # Errors
/// `Corruption` with file and offset if a group that was durable, as another record proves, is
/// missing or broken, or if the log belongs to another store; `Unsupported` for a newer log format;
/// the device's for a failed read, which is never taken for the end of the log (bug 26); those of
/// `on_group`.
pub(crate) fn replay(
    storage: &dyn Storage,
    source: LogSource,
    on_group: &mut dyn FnMut(GroupView<'_>) -> Result<()>,
) -> Result<ReplayEnd> {
    let LogSource { kind, start, durable_lsn, lineage, nonce } = source;
    let mut numbers = storage.list_logs(kind)?;
    // A version log is one segment, without a successor.
    let last = if kind == LogKind::Wal { SegmentNumber::MAX } else { start.segment };
    assert!(numbers.is_sorted(), "segments in the order {numbers:?}");
    numbers.retain(|number| (start.segment.max(SegmentNumber::FIRST)..=last).contains(number));
    let mut replay = Replay {
        storage,
        kind,
        lineage,
        nonce,
        numbers,
        successors: BTreeMap::new(),
        current: None,
        chain: start.chain(),
        opening: start.opening,
        offset: start.offset,
        durable_lsn,
        fragments: None,
        segments_seen: Vec::new(),
    };
    replay.find_successors(start.segment)?;
    if replay.numbers.first() == Some(&start.segment) {
        replay.open(start.segment)?;
    }
    replay.run(on_group)
}

/// A segment being read, through one window.
struct Segment {
    number: SegmentNumber,
    nonce: Nonce,
    seed: u32,
    region: Arc<dyn LogRegion>,
    len: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl Segment {
    fn open(
        storage: &dyn Storage,
        kind: LogKind,
        lineage: Lineage,
        (number, nonce): (SegmentNumber, Nonce),
    ) -> Result<Self> {
        let region = storage.open_log(kind, number)?;
        let len = region.capacity()?;
        Ok(Self {
            number,
            nonce,
            seed: seed(lineage, kind, number, nonce),
            region,
            len,
            window: Vec::new(),
            window_start: 0,
        })
    }

    /// Up to `n` bytes at `offset`, fewer only at the end of the segment.
    ///
    /// Requires: `n` is at most [`WINDOW_BYTES`].
    fn bytes(&mut self, offset: u64, n: u64) -> Result<&[u8]> {
        debug_assert!(n <= WINDOW_BYTES);
        let end = offset.saturating_add(n).min(self.len);
        if offset >= end {
            return Ok(&[]);
        }
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || end > window_end {
            let wanted = to_usize(WINDOW_BYTES.min(self.len - offset));
            self.window.clear();
            self.window.resize(wanted, 0);
            let got = self.region.read_at(&mut self.window, offset)?;
            self.window.truncate(got);
            self.window_start = offset;
        }
        let from = to_usize(offset - self.window_start);
        let to = to_usize(end - self.window_start).min(self.window.len());
        Ok(self.window.get(from..to).unwrap_or(&[]))
    }

    fn header(&mut self, offset: u64) -> Result<Option<(Header, u32)>> {
        let seed = self.seed;
        Ok(Header::decode(seed, self.bytes(offset, GROUP_HEADER_BYTES_MAX as u64)?))
    }

    /// Appends the payload of the group at `offset` to `payload`, if it is complete and verifies
    /// after the group with header checksum `prev_crc`. Allocates for the bytes that are read, not
    /// for the length in the header.
    fn payload(
        &mut self,
        offset: u64,
        header: &Header,
        prev_crc: u32,
        payload: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = payload.len();
        let mut at = offset + header.header_bytes();
        let mut left = u64::from(header.payload_len);
        let mut crc = prev_crc;
        while left > 0 {
            let piece = self.bytes(at, left.min(WINDOW_BYTES))?;
            if piece.is_empty() {
                break;
            }
            crc = crc_append(crc, piece);
            payload.extend_from_slice(piece);
            at += piece.len() as u64;
            left -= piece.len() as u64;
        }
        let whole = left == 0 && mask(crc) == header.payload_crc;
        if !whole {
            payload.truncate(start);
        }
        Ok(whole)
    }

    /// The `SegmentStart` of this segment, if it verifies.
    fn segment_start(&mut self, kind: LogKind, lineage: Lineage) -> Result<Option<Start>> {
        let path = self.region.name();
        let (number, nonce, own_seed) = (self.number, self.nonce, self.seed);
        let bytes = self.bytes(0, START_BYTES_MAX)?;
        let Some(start) = stated_start(bytes) else { return Ok(None) };
        let Some((header, crc)) = Header::decode(own_seed, bytes) else {
            return foreign(bytes, &start, kind, lineage, &path).map_or(Ok(None), Err);
        };
        let payload = bytes.get(to_usize(header.header_bytes())..to_usize(header.group_bytes()));
        let whole =
            payload.is_some_and(|p| header.payload_crc == payload_crc(start.prev.crc, &[p]));
        if header.ty != GroupType::SegmentStart || !whole {
            return Ok(None);
        }
        if start.format > LATEST {
            return Err(newer_format(&path, start.format));
        }
        let sound = header.payload_len as usize == SegmentStart::bytes_of(start.format)
            && start.format != 0
            && (start.segment, start.lineage, start.kind) == (number, lineage, kind as u8)
            && start.nonce == nonce
            && header.lsn == start.prev.lsn;
        Ok(sound.then_some(Start { header, crc, prev: start.prev }))
    }
}

/// The `SegmentStart` at the start of `bytes`, not verified.
fn stated_start(bytes: &[u8]) -> Option<SegmentStart> {
    let (header, _) = Header::decode_unverified(bytes)?;
    bytes.get(to_usize(header.header_bytes())..).and_then(SegmentStart::decode)
}

fn newer_format(path: &str, format: u32) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{path} has log format {format}, this version knows up to {LATEST}; open the store \
             with the version that wrote it"
        ),
    )
}

/// The error for a segment that verifies as one of another store. A segment of this store that was
/// started under a smaller number is a recycled one that has not been started yet: no error.
fn foreign(
    bytes: &[u8],
    start: &SegmentStart,
    kind: LogKind,
    lineage: Lineage,
    path: &str,
) -> Option<Error> {
    if start.lineage == lineage || start.kind != kind as u8 {
        return None;
    }
    Header::decode(seed(start.lineage, kind, start.segment, start.nonce), bytes)?;
    Some(Error::corruption(
        path,
        0,
        format_args!(
            "a log of another store (lineage {:016x}, here {lineage:016x})",
            start.lineage
        ),
    ))
}

/// A verified `SegmentStart`.
#[derive(Clone, Copy)]
struct Start {
    header: Header,
    crc: u32,
    prev: GroupLink,
}

/// A batch that is being assembled from its fragments.
struct Fragments {
    payload: Vec<u8>,
    count: u64,
    position: LogPosition,
    opening: u32,
}

struct Replay<'a> {
    storage: &'a dyn Storage,
    kind: LogKind,
    lineage: Lineage,
    nonce: Nonce,
    /// Segments from the start on, ascending.
    numbers: Vec<SegmentNumber>,
    /// The segment that continues the log after a group: by predecessor, its (opening, number). If
    /// several segments name one predecessor, the greatest counts: the start of an earlier one
    /// failed, or was not durable when the next recovery looked.
    successors: BTreeMap<GroupLink, (u32, SegmentNumber)>,
    current: Option<Segment>,
    chain: GroupLink,
    opening: u32,
    offset: u64,
    durable_lsn: Lsn,
    fragments: Option<Fragments>,
    segments_seen: Vec<SegmentNumber>,
}

/// What the replay found at its current offset.
enum Step {
    Group,
    Break,
}

impl Replay<'_> {
    /// Reads the first group of every segment after `segment`.
    fn find_successors(&mut self, segment: SegmentNumber) -> Result<()> {
        for &number in self.numbers.iter().filter(|&&number| number > segment) {
            let mut candidate = self.segment(number)?;
            candidate.region.will_be_read();
            let Some(start) = candidate.segment_start(self.kind, self.lineage)? else { continue };
            self.durable_lsn = self.durable_lsn.max(start.header.durable_lsn);
            let rank = (start.header.opening, number);
            let best = self.successors.entry(start.prev).or_insert(rank);
            *best = rank.max(*best);
        }
        Ok(())
    }

    /// What its groups are padded to.
    fn unit(&self) -> u64 {
        self.current.as_ref().map_or(LOG_UNIT_BYTES, |segment| segment.region.unit())
    }

    /// A segment of this log.
    fn segment(&self, number: SegmentNumber) -> Result<Segment> {
        Segment::open(self.storage, self.kind, self.lineage, (number, self.nonce))
    }

    fn open(&mut self, number: SegmentNumber) -> Result<()> {
        let last = self.segments_seen.last();
        assert!(last.is_none_or(|&last| last < number), "segment {number} follows {last:?}");
        self.current = Some(self.segment(number)?);
        self.segments_seen.push(number);
        Ok(())
    }

    fn run(mut self, on_group: &mut dyn FnMut(GroupView<'_>) -> Result<()>) -> Result<ReplayEnd> {
        loop {
            // INVARIANT 3 of the module: a successor of this group takes precedence.
            if let Some(&(opening, number)) = self.successors.get(&self.chain)
                && number > self.chain.segment
                && opening >= self.opening
            {
                self.enter(number)?;
                continue;
            }
            match self.step(on_group)? {
                Step::Group => {}
                Step::Break => return self.end(),
            }
        }
    }

    /// Continues in the segment that names the current group as its predecessor.
    fn enter(&mut self, number: SegmentNumber) -> Result<()> {
        self.open(number)?;
        let (kind, lineage) = (self.kind, self.lineage);
        let start = match self.current.as_mut() {
            Some(segment) => segment.segment_start(kind, lineage)?,
            None => None,
        };
        let Some(start) = start.filter(|start| start.prev == self.chain) else {
            // It verified in `find_successors`: the device returned other bytes now.
            return Err(Error::corruption(self.path(), 0, "a log segment that changed while read"));
        };
        self.accept(0, &start.header, start.crc);
        Ok(())
    }

    /// Appends a verified group to the chain.
    fn accept(&mut self, offset: u64, header: &Header, crc: u32) {
        let segment = self.current.as_ref().map_or(SegmentNumber::ZERO, |s| s.number);
        if header.opening != self.opening {
            // The writer of unfinished fragments is gone with its opening.
            self.fragments = None;
        }
        self.opening = header.opening;
        self.offset = header.next_offset(offset, self.unit());
        self.chain = GroupLink { segment, lsn: header.lsn, crc };
        self.durable_lsn = self.durable_lsn.max(header.durable_lsn);
    }

    /// Where the next group would start.
    fn position(&self) -> LogPosition {
        LogPosition {
            segment: self.chain.segment,
            offset: self.offset,
            lsn: self.chain.lsn.next(),
            opening: self.opening,
            prev_crc: self.chain.crc,
        }
    }

    /// Reads the group at the current offset.
    fn step(&mut self, on_group: &mut dyn FnMut(GroupView<'_>) -> Result<()>) -> Result<Step> {
        let offset = self.offset;
        let position = self.position();
        let Some(segment) = self.current.as_mut() else { return Ok(Step::Break) };
        let Some((header, crc)) = segment.header(offset)? else { return Ok(Step::Break) };
        let follows =
            header.lsn == header.ty.lsn_after(self.chain.lsn) && header.opening >= self.opening;
        if !follows {
            return Ok(Step::Break);
        }
        let fragment = matches!(header.ty, GroupType::Middle | GroupType::Last);
        if fragment && self.fragments.as_ref().is_none_or(|s| s.opening != header.opening) {
            return Ok(Step::Break);
        }
        if header.ty == GroupType::SegmentStart {
            // Only the segment of the start position is entered this way.
            let start = segment.segment_start(self.kind, self.lineage)?;
            if offset != 0 || start.is_none_or(|s| s.prev.crc != self.chain.crc) {
                return Ok(Step::Break);
            }
            self.accept(offset, &header, crc);
            return Ok(Step::Group);
        }
        // A new batch begins: its writer has abandoned unfinished fragments.
        let abandoned = if fragment { None } else { self.fragments.take() };
        let new = || Fragments { payload: Vec::new(), count: 0, position, opening: header.opening };
        let mut fragments = self.fragments.take().unwrap_or_else(new);
        if !segment.payload(offset, &header, self.chain.crc, &mut fragments.payload)? {
            // This group does not follow: the fragments stay unfinished.
            self.fragments = if fragment { Some(fragments) } else { abandoned };
            return Ok(Step::Break);
        }
        fragments.count += u64::from(header.count);
        self.accept(offset, &header, crc);
        if matches!(header.ty, GroupType::First | GroupType::Middle) {
            self.fragments = Some(fragments);
            return Ok(Step::Group);
        }
        on_group(GroupView {
            lsn: header.lsn,
            count: fragments.count,
            payload: &fragments.payload,
            position: fragments.position,
            next: self.position(),
        })?;
        Ok(Step::Group)
    }

    /// Name of segment `number`, for messages.
    fn name_of(&self, number: SegmentNumber) -> String {
        self.storage.name_of(Object::Log(self.kind, number))
    }

    fn path(&self) -> String {
        self.current
            .as_ref()
            .map_or_else(|| self.name_of(self.chain.segment), |segment| segment.region.name())
    }

    /// No group follows: the end of the log, or damage.
    fn end(mut self) -> Result<ReplayEnd> {
        let missing = match self.fragments {
            Some(_) => self.chain.lsn,
            None => self.chain.lsn.next(),
        };
        let proof = if missing <= self.durable_lsn {
            Some("as the root, a flush or an earlier group records".to_owned())
        } else {
            self.evidence(missing)?
        };
        if let Some(proof) = proof {
            let (file, offset, how) = match self.breaks_at()? {
                Some((file, offset, how)) => (file, offset, how),
                None => (self.path(), self.offset, "missing or broken"),
            };
            return Err(Error::corruption(
                file,
                offset,
                format_args!("log group {missing} is {how}, but it was durable, {proof};"),
            ));
        }
        // An unfinished batch was never acknowledged: the log ends before it.
        let next = self.fragments.as_ref().map_or_else(|| self.position(), |s| s.position);
        let (lsn, durable_lsn) = (next.lsn, self.durable_lsn);
        assert_eq!(lsn, missing, "the group that the replay ends before");
        assert!(lsn > durable_lsn, "replay ends before {lsn}, up to {durable_lsn} is durable");
        let chain = next.chain();
        Ok(ReplayEnd {
            next,
            chain,
            durable_lsn: self.durable_lsn,
            segments_seen: self.segments_seen,
        })
    }

    /// The place where the log breaks off if that is not a group of the current segment, and how:
    /// the start segment is missing; or nothing follows in the current segment, and the start of a
    /// later one cannot be read, this one has lost its end, or the next one is missing. Where no
    /// later segment is left, nothing tells which of the last two it is.
    fn breaks_at(&mut self) -> Result<Option<(String, u64, &'static str)>> {
        const MISSING: &str = "missing, with the file that seems to have held it";
        const BROKEN: &str = "missing or broken, with the start of a later file";
        const SHORT: &str = "missing, with the end of a file that is cut off";
        const LAST: &str = "missing where the log ends, in its last file";
        let Some(segment) = &mut self.current else {
            let first = self.chain.segment.max(SegmentNumber::FIRST);
            return Ok(Some((self.name_of(first), 0, MISSING)));
        };
        let ends = segment.bytes(self.offset, 16)?.iter().all(|&byte| byte == 0);
        if self.kind != LogKind::Wal || !ends {
            return Ok(None);
        }
        let (next, len) = (segment.number.next(), segment.len);
        for &number in self.numbers.iter().filter(|&&number| number >= next) {
            if peek(self.storage, self.kind, number)?.is_none()
                && !is_blank(self.storage, self.kind, number)?
            {
                return Ok(Some((self.name_of(number), 0, BROKEN)));
            }
        }
        // The page that the group before ends in need not be whole.
        if len.checked_next_multiple_of(PAGE_BYTES).is_some_and(|end| end < self.offset) {
            return Ok(Some((self.path(), len, SHORT)));
        }
        if self.numbers.contains(&next) {
            return Ok(None);
        }
        if self.numbers.iter().all(|&number| number < next) {
            return Ok(Some((self.path(), self.offset.min(len), LAST)));
        }
        Ok(Some((self.name_of(next), 0, MISSING)))
    }

    /// Searches the bytes after the break, in the current segment and the later ones, for a header
    /// which states that group `missing` was durable; describes where it is.
    fn evidence(&mut self, missing: Lsn) -> Result<Option<String>> {
        let here = self.current.take();
        let current = here.as_ref().map_or(self.chain.segment, |s| s.number);
        let later = self.numbers.iter().copied().filter(|&number| number > current);
        // A file may have the name of another segment: headers of every segment from here on count.
        let seeds: Vec<u32> = std::iter::once(current)
            .chain(later.clone())
            .map(|number| seed(self.lineage, self.kind, number, self.nonce))
            .collect();
        let mut found = None;
        if let Some(mut segment) = here {
            found = scan(&mut segment, &seeds, self.offset, missing, self.opening)?;
            self.current = Some(segment);
        }
        for number in later {
            if found.is_some() {
                break;
            }
            let mut segment = self.segment(number)?;
            found = scan(&mut segment, &seeds, 0, missing, self.opening)?;
        }
        Ok(found)
    }
}

/// Searches `segment` from offset `from` on for a header with a durable LSN of at least `missing`
/// that verifies under one of `seeds`.
fn scan(
    segment: &mut Segment,
    seeds: &[u32],
    from: u64,
    missing: Lsn,
    opening: u32,
) -> Result<Option<String>> {
    let path = segment.region.name();
    let mut found = None;
    scan_headers(segment, seeds, from, &mut |header, offset| {
        if header.opening >= opening && header.durable_lsn >= missing {
            found = Some(format!("as group {} at offset {offset} of {path} states", header.lsn));
        }
        found.is_some()
    })?;
    Ok(found)
}

/// Calls `stop` with every header from offset `from` on that verifies under one of `seeds`, and its
/// offset, until it returns true.
fn scan_headers(
    segment: &mut Segment,
    seeds: &[u32],
    from: u64,
    stop: &mut dyn FnMut(&Header, u64) -> bool,
) -> Result<()> {
    let mut offset = from;
    while offset < segment.len {
        // A hole of the file contains no header.
        offset = offset.max(segment.region.next_data(offset)?);
        let window = segment.bytes(offset, WINDOW_BYTES)?;
        // A header that the window cuts off is found in the next window; the last one has all.
        let whole = (window.len() as u64) < WINDOW_BYTES;
        let margin = if whole { GROUP_HEADER_BYTES_MIN } else { GROUP_HEADER_BYTES_MAX };
        let Some(last) = window.len().checked_sub(margin) else { break };
        let heads = window.get(..=last).unwrap_or(&[]);
        for (at, _) in heads.iter().enumerate().filter(|&(_, &byte)| byte == MAGIC) {
            let bytes = window.get(at..).unwrap_or(&[]);
            let mut headers = seeds.iter().filter_map(|&seed| Header::decode(seed, bytes));
            let Some((header, _)) = headers.next() else { continue };
            if stop(&header, offset + at as u64) {
                return Ok(());
            }
        }
        offset += last as u64 + 1;
    }
    Ok(())
}

/// The first group of a segment, for callers that do not know where the log starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peek {
    /// The store that the segment belongs to.
    pub(crate) lineage: Lineage,
    /// The number that it was started with: greater than that of its name if it was renamed by
    /// mistake, smaller if it was recycled and not started again, or is another store's.
    pub(crate) stated: SegmentNumber,
    /// The opening that started it.
    pub(crate) opening: u32,
    /// What tells it from other segments of that number.
    pub(crate) nonce: Nonce,
    /// The preceding group.
    pub(crate) prev: GroupLink,
    /// Position of the segment's first group: a replay from here reads all of it.
    pub(crate) start: LogPosition,
}

/// Reads the first group of segment `number`, also of another store's; `None` if it is missing or
/// corrupt.
///
/// # Errors
/// `Unsupported` for a newer log format; the device's.
pub(crate) fn peek(
    storage: &dyn Storage,
    kind: LogKind,
    number: SegmentNumber,
) -> Result<Option<Peek>> {
    let mut segment = match Segment::open(storage, kind, Lineage::UNKNOWN, (number, Nonce::NONE)) {
        // Not a regular file.
        Err(error) if error.kind() == ErrorKind::Corruption => return Ok(None),
        opened => opened?,
    };
    let bytes = segment.bytes(0, START_BYTES_MAX)?;
    let Some(stated) = stated_start(bytes) else { return Ok(None) };
    let SegmentStart { lineage, segment: stated, nonce, .. } = stated;
    (segment.number, segment.nonce) = (stated, nonce);
    segment.seed = seed(lineage, kind, stated, nonce);
    let Some(Start { header, prev, .. }) = segment.segment_start(kind, lineage)? else {
        return Ok(None);
    };
    let start = LogPosition {
        segment: number,
        offset: 0,
        lsn: prev.lsn.next(),
        opening: header.opening,
        prev_crc: prev.crc,
    };
    Ok(Some(Peek { lineage, stated, opening: header.opening, nonce, prev, start }))
}

/// Fails if `number` names another store's segment, or something that is not a regular file. A
/// corrupt segment is not an error, nor is a version log of this store, whatever its nonce.
///
/// # Errors
/// `Corruption` that names the file; `Unsupported` for a newer log format; the device's.
pub(crate) fn check_ours(
    storage: &dyn Storage,
    kind: LogKind,
    lineage: Lineage,
    number: SegmentNumber,
) -> Result<()> {
    let mut segment = Segment::open(storage, kind, lineage, (number, Nonce::NONE))?;
    segment.segment_start(kind, lineage).map(drop)
}

/// Intact groups that a replay does not reach because the log is corrupt before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Batches. A lower bound: those with a corrupt header are not found.
    pub(crate) groups: u64,
    /// Entries in these batches.
    pub(crate) entries: u64,
    /// The greatest LSN of any header in the searched segments.
    pub(crate) last_lsn: Lsn,
    /// The greatest opening of any of these headers.
    pub(crate) last_opening: u32,
}

/// Counts the intact groups of `segments`, of the write-ahead log, at or after `position`, to
/// report what is lost.
///
/// # Errors
/// The device's.
pub(crate) fn groups_behind(
    storage: &dyn Storage,
    kind: LogKind,
    lineage: Lineage,
    position: LogPosition,
    segments: &[SegmentNumber],
) -> Result<Behind> {
    let mut behind = Behind::default();
    for &number in segments {
        let mut segment = Segment::open(storage, kind, lineage, (number, Nonce::NONE))?;
        let seeds = [segment.seed];
        scan_headers(&mut segment, &seeds, 0, &mut |header, offset| {
            behind.last_lsn = behind.last_lsn.max(header.lsn);
            behind.last_opening = behind.last_opening.max(header.opening);
            let after = number != position.segment || offset >= position.offset;
            if after && header.lsn >= position.lsn && header.ty != GroupType::SegmentStart {
                behind.groups += u64::from(header.ty.advances());
                behind.entries += u64::from(header.count);
            }
            false
        })?;
    }
    Ok(behind)
}

/// Whether all bytes of a segment are zero: no group was ever written to it.
///
/// # Errors
/// The device's.
pub(crate) fn is_blank(
    storage: &dyn Storage,
    kind: LogKind,
    number: SegmentNumber,
) -> Result<bool> {
    let mut segment = match Segment::open(storage, kind, Lineage::UNKNOWN, (number, Nonce::NONE)) {
        Err(error) if error.kind() == ErrorKind::Corruption => return Ok(false),
        opened => opened?,
    };
    let mut offset = 0;
    loop {
        offset = segment.region.next_data(offset)?;
        let bytes = segment.bytes(offset, WINDOW_BYTES)?;
        if bytes.is_empty() {
            return Ok(true);
        }
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        offset += bytes.len() as u64;
    }
}

const _: () = assert!(PAGE_BYTES > GROUP_HEADER_BYTES_MAX as u64);
const _: () = assert!(WINDOW_BYTES > START_BYTES_MAX);
const _: () =
    assert!(to_usize(START_BYTES_MAX) >= GROUP_HEADER_BYTES_MAX + SegmentStart::BYTES_MAX);
