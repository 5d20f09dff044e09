// FORMAT: docs/format/log.md sha=a735f702c580
//! Commit groups in numbered segments: the framing that the write-ahead log and the version log
//! share.
//!
//! Not here: what a payload means (`write`, `version::edit`), when a segment is synced, created,
//! recycled or deleted (the caller and `storage`).
//!
//! Invariants: (1) every group's checksum continues that of the group before it, across segments
//! too, so the log is one chain from a [`LogPosition`] to its end; (2) a group's checksum is seeded
//! with lineage, log kind and segment number, so groups that a recycled segment still holds from
//! its previous use do not verify; (3) a successor takes precedence over whatever follows the group
//! that it names as its predecessor: a segment that was sealed after a failed write ends where the
//! next one says it does, whatever reached the disk; (4) LSNs count commit groups and rise by
//! exactly one, a `SegmentStart` carries the LSN before it, the fragments of one batch share
//! theirs; (5) replay returns a prefix of the chain; it ends without an error only where nothing
//! proves that the next group was durable.
//!
//! Source: LDS §3.6 (backup log) with hazards H34 to H38. We differ: segments are recycled under
//! new numbers (`recycle_log_file_num` in RocksDB), and each group carries the durable LSN known
//! when it was written, so that corruption in the middle is distinguished from a torn tail.
//!
//! Single writer; the caller serialises the appends.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

// Not `expect`: in tests the two lints are off, as said above.
#[cfg(feature = "fuzz")]
#[allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "it makes its input, and a panic is what it looks for"
)]
pub(crate) mod fuzz;
mod group;
mod replay;
mod ring;
pub(crate) mod wal;
mod writer;

#[cfg(all(test, feature = "sim"))]
mod held_tests;
#[cfg(test)]
pub(crate) mod test_storage;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wal_tests;

pub(crate) use group::GroupType;
pub(crate) use replay::{
    Behind, GroupView, LogSource, Peek, ReplayEnd, check_ours, groups_behind, is_blank, peek,
    replay,
};
pub(crate) use ring::SegmentRequest;
pub(crate) use writer::{SegmentIdentity, SegmentWriter};

use crate::base::coding::{Reader, put_u32, put_u64};
use crate::base::ids::{Lsn, SegmentNumber};

/// Where a group is when its writers are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AckedWhen {
    /// In memory, in its place in the log.
    Held,
    /// In the hands of the operating system.
    Written,
    /// On stable storage: the caller will sync it.
    Synced,
}

/// The last group of a log so far: what the next group follows and the next segment names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupLink {
    /// Number of the segment that holds the group; 0 before the first segment of a log.
    pub(crate) segment: SegmentNumber,
    /// LSN of the group; 0 before the first group of a log.
    pub(crate) lsn: Lsn,
    /// Header checksum of the group; 0 before the first group of a log.
    pub(crate) crc: u32,
}

impl GroupLink {
    /// What the first segment of a log names as its predecessor.
    pub(crate) const ORIGIN: Self = Self { segment: SegmentNumber::ZERO, lsn: Lsn::ZERO, crc: 0 };
}

/// Where a group starts, with what is needed to verify it from there: recorded by flush edits for
/// the first group that they do *not* cover (H38).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    /// Number of the segment; 0 before the first segment of a log.
    pub(crate) segment: SegmentNumber,
    /// Offset in the segment, in bytes. If no group starts there, the log continues in the segment
    /// that names the preceding group as its predecessor.
    pub(crate) offset: u64,
    /// LSN of the group.
    pub(crate) lsn: Lsn,
    /// Opening of the preceding group; that of the group itself is no smaller.
    pub(crate) opening: u32,
    /// Header checksum of the preceding group.
    pub(crate) prev_crc: u32,
}

impl LogPosition {
    /// The start of a log that has no segment yet.
    pub(crate) const ORIGIN: Self =
        Self { segment: SegmentNumber::ZERO, offset: 0, lsn: Lsn::FIRST, opening: 0, prev_crc: 0 };

    /// Appends the position, for [`decode`](Self::decode).
    pub(crate) fn encode(&self, buf: &mut Vec<u8>) {
        assert!(self.lsn > Lsn::ZERO, "a position without a group is recorded: {self:?}");
        put_u64(buf, self.segment.get());
        put_u64(buf, self.offset);
        put_u64(buf, self.lsn.get());
        put_u32(buf, self.opening);
        put_u32(buf, self.prev_crc);
    }

    /// Decodes a position from the front of `reader`; `None` if it is truncated, has LSN 0, or
    /// a number that no store gets to.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let position = Self {
            segment: SegmentNumber::stored(reader.u64()?)?,
            offset: reader.u64()?,
            lsn: Lsn::stored(reader.u64()?)?,
            opening: reader.u32()?,
            prev_crc: reader.u32()?,
        };
        (position.lsn > Lsn::ZERO).then_some(position)
    }

    /// The group that precedes this position.
    pub(crate) fn chain(&self) -> GroupLink {
        debug_assert!(self.lsn > Lsn::ZERO, "a position before the first group: {self:?}");
        GroupLink { segment: self.segment, lsn: self.lsn.previous(), crc: self.prev_crc }
    }
}
