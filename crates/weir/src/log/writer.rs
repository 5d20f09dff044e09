//! Appending groups to one segment.
//!
//! A partial write to a page that is not in the page cache reads the page first. In a recycled
//! segment that may be any page, so the first write to each page covers all of it: zeros follow the
//! group, and the next group overwrites them.
//!
//! Groups may be *held*: they are numbered, and have their place, but wait in memory for the next
//! group that is written, or for `write_out`, and go with it in one write.
//!
//! Invariants: (1) a write has whole groups; (2) after a failed write nothing is appended to the
//! segment, unless `rollback` has truncated it; (3) `chain` is always the last group that is held
//! or whose write succeeded; (4) what is held ends at `offset`, and nothing behind it is written.

use std::sync::Arc;

use super::group::{
    GROUP_HEADER_BYTES_MAX, GROUP_PAYLOAD_MAX, GroupType, Header, PAGE_BYTES, SegmentStart,
    payload_crc, seed,
};
use super::{GroupLink, LogPosition};
use crate::base::coding::to_usize;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{Lineage, Lsn, Nonce, SegmentNumber};
use crate::storage::{LogKind, LogRegion};

/// Payloads up to this size are copied behind their header, so that a group is one plain write; the
/// parts of larger ones are written in place, by one vectored write. 1 MiB: about where the copy
/// costs as much as the bookkeeping of the parts.
const COPIED_PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Identity of a segment that is about to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentIdentity {
    /// Which log the segment belongs to.
    pub(crate) kind: LogKind,
    /// The segment's number, at least 1 and never used before.
    pub(crate) segment: SegmentNumber,
    /// The store that the log belongs to.
    pub(crate) lineage: Lineage,
    /// Number of this opening of the store.
    pub(crate) opening: u32,
    /// What tells it from other segments of its number; none in the write-ahead log.
    pub(crate) nonce: Nonce,
}

/// What becomes of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// It waits in memory.
    Hold,
    Write,
    /// The next one starts in a new unit.
    WriteAndPad,
}

/// Appends groups to one segment of a log.
pub(crate) struct SegmentWriter {
    region: Arc<dyn LogRegion>,
    identity: SegmentIdentity,
    /// Capacity of the region in bytes; 0: it grows as it is written.
    capacity: u64,
    /// Whether the first write to each page covers all of it: the region holds groups of an
    /// obsolete segment.
    stale: bool,
    /// What a group is padded to that will be synced, in bytes.
    unit_bytes: u64,
    seed: u32,
    offset: u64,
    appended_bytes: u64,
    chain: GroupLink,
    sealed: bool,
    /// What is written next. It begins with the groups that are held.
    buf: Vec<u8>,
    /// Bytes of the groups that are held.
    held: usize,
}

impl SegmentWriter {
    /// Starts a segment: writes its `SegmentStart`, naming `prev` as the group before;
    /// `durable_lsn` as in [`append`](Self::append).
    ///
    /// On an error the segment's number must not be used again: the next attempt takes a new number
    /// and the same `prev`. Nothing may be appended to the segment of `prev` afterwards: the start
    /// may have reached the disk despite the error, and then it ends that segment.
    ///
    /// # Errors
    /// The device's; `InvalidArgument` if the region's capacity is too small for a `SegmentStart`
    /// and a header; `Unsupported` if the numbers are used up.
    pub(crate) fn start(
        region: Arc<dyn LogRegion>,
        identity: SegmentIdentity,
        prev: GroupLink,
        durable_lsn: Lsn,
    ) -> Result<Self> {
        let capacity = if region.grows() { 0 } else { region.capacity()? };
        if identity.segment.is_used_up() {
            return Err(Error::used_up("the numbers of log segments"));
        }
        assert!(identity.segment > prev.segment, "segment {identity:?} after {prev:?}");
        let smallest = (2 * GROUP_HEADER_BYTES_MAX + SegmentStart::BYTES_MAX) as u64;
        if capacity != 0 && capacity < smallest {
            return Err(Error::invalid(format!(
                "a log segment of {capacity} bytes is too small; at least {smallest} are needed"
            )));
        }
        let start = SegmentStart {
            format: SegmentStart::format_of(identity.nonce),
            kind: identity.kind as u8,
            segment: identity.segment,
            lineage: identity.lineage,
            prev,
            nonce: identity.nonce,
        };
        let mut writer = Self {
            stale: region.is_stale(),
            unit_bytes: region.unit(),
            region,
            identity,
            capacity,
            seed: seed(identity.lineage, identity.kind, identity.segment, identity.nonce),
            offset: 0,
            appended_bytes: 0,
            chain: GroupLink { segment: identity.segment, ..prev },
            sealed: false,
            buf: Vec::new(),
            held: 0,
        };
        let payload = start.encode();
        writer.write_group(GroupType::SegmentStart, &[&payload], 0, How::Write, durable_lsn)?;
        Ok(writer)
    }

    /// Payload bytes that the next group may have; 0 if nothing can be appended: the segment is
    /// full or sealed.
    pub(crate) fn room(&self) -> u64 {
        if self.sealed {
            return 0;
        }
        if self.capacity == 0 {
            return GROUP_PAYLOAD_MAX;
        }
        let left = self.capacity.saturating_sub(self.offset + GROUP_HEADER_BYTES_MAX as u64);
        left.min(GROUP_PAYLOAD_MAX)
    }

    /// Whether the segment grows as it is written.
    pub(crate) fn grows(&self) -> bool {
        self.capacity == 0
    }

    /// Where the next group of this segment starts. If it goes to the next segment instead, replay
    /// finds it from this position too.
    pub(crate) fn position(&self) -> LogPosition {
        LogPosition {
            segment: self.identity.segment,
            offset: self.offset,
            lsn: self.chain.lsn.next(),
            opening: self.identity.opening,
            prev_crc: self.chain.crc,
        }
    }

    /// The last group that is held or whose write succeeded: what the next segment names as its
    /// predecessor.
    pub(crate) fn chain(&self) -> GroupLink {
        self.chain
    }

    /// Whether no unit of the log that holds groups will be written again: the next group starts in
    /// a new unit, or the segment has no room for one.
    pub(crate) fn is_settled(&self) -> bool {
        self.held == 0 && (self.offset.is_multiple_of(self.unit_bytes) || self.room() == 0)
    }

    /// Bytes of the groups that are held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held
    }

    /// Whether groups that were held could not be written: the log lacks them for good.
    pub(crate) fn has_lost_groups(&self) -> bool {
        self.sealed && self.held > 0
    }

    /// Number of the unit of the log that the next group starts in.
    pub(crate) fn unit(&self) -> u64 {
        self.offset / self.unit_bytes
    }

    /// The segment's number.
    pub(crate) fn segment(&self) -> SegmentNumber {
        self.identity.segment
    }

    /// Bytes of the segment that are written or held, padding included.
    pub(crate) fn bytes(&self) -> u64 {
        self.offset
    }

    /// Bytes of groups written or held since the last call, padding not counted.
    pub(crate) fn take_appended_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.appended_bytes)
    }

    /// Ends the segment: later appends fail.
    pub(crate) fn seal(&mut self) {
        self.sealed = true;
    }

    /// The segment's region, which the caller syncs.
    pub(crate) fn region(&self) -> &Arc<dyn LogRegion> {
        &self.region
    }

    /// Appends one group and returns its LSN. The concatenated `parts` are the payload and must fit
    /// [`room`](Self::room), which must not be 0; `count` is the number of entries in it.
    /// `pad_after`: the caller will sync this group, so the next one starts in a new sector (H37);
    /// an empty group with `pad_after` does that for groups already written. `durable_lsn`: an LSN
    /// up to which the log is known to be durable.
    ///
    /// # Errors
    /// The device's: the segment is sealed then, and the group may or may not be on disk; replay
    /// returns it only if no later segment names the preceding group as its predecessor. `Poisoned`
    /// if the segment is sealed.
    pub(crate) fn append(
        &mut self,
        ty: GroupType,
        parts: &[&[u8]],
        count: u32,
        pad_after: bool,
        durable_lsn: Lsn,
    ) -> Result<Lsn> {
        assert!(ty != GroupType::SegmentStart, "a segment is started once");
        let how = if pad_after { How::WriteAndPad } else { How::Write };
        self.write_group(ty, parts, count, how, durable_lsn)?;
        Ok(self.chain.lsn)
    }

    /// Appends a whole batch or several as one group that is [held](self); otherwise as
    /// [`append`](Self::append).
    ///
    /// # Errors
    /// `Poisoned` if the segment is sealed.
    pub(crate) fn hold(&mut self, parts: &[&[u8]], count: u32, durable_lsn: Lsn) -> Result<Lsn> {
        self.write_group(GroupType::Full, parts, count, How::Hold, durable_lsn)?;
        Ok(self.chain.lsn)
    }

    /// Writes what is held.
    ///
    /// # Errors
    /// The device's: the segment is sealed then, and [lacks groups](Self::has_lost_groups).
    pub(crate) fn write_out(&mut self) -> Result<()> {
        if self.held == 0 {
            return Ok(());
        }
        self.check_open()?;
        let padding = self.padding(self.offset, self.offset);
        self.buf.resize(self.buf.len() + padding, 0);
        let written = self.region.write_at(&[&self.buf], self.offset - self.held as u64);
        self.note_written(written)
    }

    /// Ends a write of all that is held.
    fn note_written(&mut self, written: Result<()>) -> Result<()> {
        match &written {
            Ok(()) => self.held = 0,
            Err(_) => self.sealed = true,
        }
        written
    }

    fn check_open(&self) -> Result<()> {
        if !self.sealed {
            return Ok(());
        }
        let what = format!("{} was sealed after a failed write", self.region.name());
        Err(Error::new(ErrorKind::Poisoned, what))
    }

    #[expect(clippy::cast_possible_truncation, reason = "a payload has at most 1 GiB")]
    fn write_group(
        &mut self,
        ty: GroupType,
        parts: &[&[u8]],
        count: u32,
        how: How,
        durable_lsn: Lsn,
    ) -> Result<()> {
        self.check_open()?;
        assert!(
            durable_lsn <= self.chain.lsn,
            "durable LSN {durable_lsn} is ahead of the log, which ends with {}",
            self.chain.lsn
        );
        let lsn = ty.lsn_after(self.chain.lsn);
        if lsn.next().is_used_up() {
            self.sealed = true;
            return Err(Error::used_up("the numbers of log groups"));
        }
        let payload_len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let room = self.room();
        assert!(room > 0 && payload_len <= room, "{payload_len} bytes in a room of {room}");
        let header = Header {
            ty,
            pad_after: how == How::WriteAndPad,
            opening: self.identity.opening,
            lsn,
            durable_lsn,
            count,
            payload_len: payload_len as u32,
            payload_crc: payload_crc(self.chain.crc, parts),
        };
        let checksum = match how {
            How::Hold => self.hold_bytes(&header, parts),
            How::Write | How::WriteAndPad => self.write_bytes(&header, parts)?,
        };
        self.appended_bytes += header.group_bytes();
        let next_offset = header.next_offset(self.offset, self.unit_bytes);
        assert!(next_offset > self.offset, "offset {next_offset} after offset {}", self.offset);
        self.offset = next_offset;
        self.chain = GroupLink { segment: self.identity.segment, lsn: header.lsn, crc: checksum };
        Ok(())
    }

    /// Adds a group to those that are held.
    fn hold_bytes(&mut self, header: &Header, parts: &[&[u8]]) -> u32 {
        self.buf.truncate(self.held);
        let checksum = header.encode(self.seed, &mut self.buf);
        parts.iter().for_each(|part| self.buf.extend_from_slice(part));
        self.held = self.buf.len();
        checksum
    }

    /// Bytes of zeros behind a write whose last group ends at `end` and is followed by one at
    /// `next`.
    fn padding(&self, end: u64, next: u64) -> usize {
        let (from, mut to) = (self.offset - self.held as u64, next);
        if self.stale && end.next_multiple_of(PAGE_BYTES) > from.next_multiple_of(PAGE_BYTES) {
            // The write is the first to its last page.
            to = end.next_multiple_of(PAGE_BYTES);
        }
        if self.capacity != 0 {
            to = to.min(self.capacity);
            assert!(
                end <= self.capacity,
                "a group up to offset {end} in a segment of {} bytes",
                self.capacity
            );
        }
        to_usize(to - end)
    }

    /// Writes what is held, header, payload and padding in one request.
    fn write_bytes(&mut self, header: &Header, parts: &[&[u8]]) -> Result<u32> {
        const ZEROS: [u8; to_usize(PAGE_BYTES)] = [0; to_usize(PAGE_BYTES)];
        let (from, end) = (self.offset - self.held as u64, self.offset + header.group_bytes());
        let padding = self.padding(end, header.next_offset(self.offset, self.unit_bytes));
        let bytes = end + padding as u64 - from;
        let copied = to_usize(u64::from(header.payload_len)) <= COPIED_PAYLOAD_BYTES_MAX;
        let is_whole = |bytes: u64| bytes.is_multiple_of(PAGE_BYTES);
        let pages = header.pad_after && self.held == 0 && is_whole(from) && is_whole(bytes);
        self.buf.truncate(self.held);
        if copied && pages {
            // In memory as a device takes it, without another copy. It is not moved below.
            self.buf.reserve(to_usize(bytes + PAGE_BYTES));
            self.buf.resize(self.buf.as_ptr().align_offset(to_usize(PAGE_BYTES)), 0);
        }
        let skipped = self.buf.len() - self.held;
        let checksum = header.encode(self.seed, &mut self.buf);
        let (padding, _) = ZEROS.split_at(padding);
        let written = if copied {
            parts.iter().for_each(|part| self.buf.extend_from_slice(part));
            self.buf.extend_from_slice(padding);
            let (_, groups) = self.buf.split_at(skipped);
            match pages {
                true => self.region.write_pages_at(groups, from),
                false => self.region.write_at(&[groups], from),
            }
        } else {
            let mut all: Vec<&[u8]> = Vec::with_capacity(parts.len() + 2);
            all.push(&self.buf);
            all.extend_from_slice(parts);
            all.push(padding);
            self.region.write_at(&all, from)
        };
        self.note_written(written)?;
        Ok(checksum)
    }

    /// After a failed append to a log that grows: truncates it behind its last whole group,
    /// durably, and allows appends again. Nothing of the failed group is left then (bug 31).
    ///
    /// # Errors
    /// The device's, `Unsupported` for a log of fixed capacity: how much of the failed group is on
    /// disk stays unknown, and the segment sealed.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        assert_eq!(self.held, 0, "{} lacks groups that were held", self.region.name());
        assert!(self.sealed, "{} is rolled back without a failed write", self.region.name());
        self.region.cut(self.offset)?;
        self.region.sync()?;
        self.sealed = false;
        Ok(())
    }
}
