//! The segments of the write-ahead log: live, ready and spare ones, and the size of the next one.
//!
//! Not here: I/O (`wal`). Pure, but for the region of the ready segment.
//!
//! Sizes. A zeroed segment is written twice before it is first recycled, so little is zeroed ahead
//! of the writer: [`STEP_BYTES`] at first, later an eighth of what has been zeroed so far, at most
//! [`ZEROED_BYTES_MAX`], because the zeros compete with the writers' syncs for the device. Without
//! syncs nothing is zeroed, and a large segment costs nothing. If a group did not fit, the next new
//! segment has room for [`GROUPS_PER_SEGMENT`] of its size. Where segments have cells of one size,
//! all but the first of an opening take all of theirs; elsewhere segments are small again, down to
//! [`SHORT_BYTES`], while there is no room for what a large one would carry: a store may be as full
//! as what it keeps back for the next segment is small.
//!
//! Invariants: (1) a segment number is assigned once; (2) where writers sync, only zeroed segments
//! are recycled: all their blocks have been written, so that no later write allocates blocks or
//! changes metadata.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::ids::SegmentNumber;
use crate::log::LogPosition;
use crate::storage::LogRegion;

/// Bytes of the first segment of an opening: 128 KiB. The first writer writes and syncs its zeros,
/// and a store of a few entries is not much larger than this.
const FIRST_BYTES: u64 = 128 << 10;

/// Bytes of a zeroed segment while little has been zeroed: 512 KiB. Each one costs two syncs and
/// about ten blocks of a file system's journal; smaller ones are not kept for reuse.
const STEP_BYTES: u64 = 512 << 10;

/// Ratio of all bytes zeroed so far to those of the next zeroed segment.
const ZEROED_SHARE: u64 = 8;

/// Largest segment that is zeroed, unless a group needs a larger one: 4 MiB, some milliseconds of a
/// device's time.
const ZEROED_BYTES_MAX: u64 = 4 << 20;

/// How many groups of the largest size a new segment has room for.
const GROUPS_PER_SEGMENT: u64 = 4;

/// Smallest limit of new segments where space is short: 512 KiB, some thousands of entries. Each is
/// looked at by a background thread before it is made.
const SHORT_BYTES: u64 = 512 << 10;

/// A limit of new segments over the next smaller one.
const SHORT_STEP: u64 = 4;

/// Growth factor from one segment whose space is only reserved to the next.
const RESERVED_GROWTH: u64 = 32;

/// Largest total of obsolete segments kept for reuse, in bytes: what one flush makes obsolete
/// (`Engine::shorten_log`); no more than two of the largest segments.
const SPARE_BYTES_MAX: u64 = 32 << 20;

/// A segment: its number, size, and whether it was zeroed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentInfo {
    pub(super) number: SegmentNumber,
    /// Its capacity.
    pub(super) bytes: u64,
    /// Whether all of it was overwritten with zeros before its first group.
    pub(super) zeroed: bool,
}

/// The segment that the appender takes next.
pub(super) struct Ready {
    pub(super) info: SegmentInfo,
    pub(super) region: Arc<dyn LogRegion>,
}

/// How the next segment is prepared.
pub(super) struct Preparation {
    /// Segments to be deleted: not zeroed, and writers sync now; or too large for the space.
    pub(super) unfit: Vec<SegmentNumber>,
    /// The obsolete segment to be recycled.
    pub(super) spare: Option<SegmentInfo>,
    /// The new segment.
    pub(super) info: SegmentInfo,
}

/// Space that a segment to be prepared needs, and how many entry bytes it admits. Upper bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentNeed {
    /// Bytes that the segment allocates on the device; 0 if it is recycled.
    pub(crate) own_bytes: u64,
    /// Bytes of entries that may be logged before the segment after it is prepared.
    pub(crate) carried_bytes: u64,
}

/// A request for the next segment, with everything that its [`SegmentNeed`] depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentRequest {
    pub(super) number: SegmentNumber,
    need: SegmentNeed,
    synced: bool,
    /// The ready segment, which is deleted in favour of this one.
    replaces: Option<SegmentNumber>,
}

/// The segments of a log.
pub(super) struct Ring {
    /// Segments that a recovery would read, ascending.
    pub(super) live: VecDeque<SegmentInfo>,
    /// Obsolete segments kept to be recycled.
    spare: Vec<SegmentInfo>,
    pub(super) ready: Option<Ready>,
    next_number: SegmentNumber,
    /// Bytes of the last new segment; 0 before the first one.
    last_bytes: u64,
    /// Bytes of all segments that were zeroed so far.
    zeroed_bytes: u64,
    /// Bytes of the largest group that did not fit the active segment, and what they were before.
    group_bytes: u64,
    group_bytes_before: u64,
    segment_bytes_max: u64,
    /// Most bytes of the next segment, where they have no cells: `segment_bytes_max`, or less while
    /// space is short.
    limit: u64,
    /// Bytes of every segment but the first, where storage has cells for them.
    cell_bytes: Option<u64>,
    pub(super) preparing: bool,
    /// Why the last preparation failed.
    pub(super) failed: Option<Error>,
    /// The store is being closed: no more segments are prepared.
    pub(super) closed: bool,
}

impl Ring {
    pub(super) fn new(
        live: VecDeque<SegmentInfo>,
        next_number: SegmentNumber,
        segment_bytes_max: u64,
        cell_bytes: Option<u64>,
    ) -> Self {
        assert!(segment_bytes_max > 0, "segments of 0 bytes");
        let numbers = live.iter().map(|info| info.number);
        assert!(
            numbers.chain([next_number]).is_sorted_by(|a, b| a < b),
            "segment {next_number} after {live:?}"
        );
        Self {
            live,
            spare: Vec::new(),
            ready: None,
            next_number,
            last_bytes: 0,
            zeroed_bytes: 0,
            group_bytes: 0,
            group_bytes_before: 0,
            segment_bytes_max,
            limit: segment_bytes_max,
            cell_bytes,
            preparing: false,
            failed: None,
            closed: false,
        }
    }

    /// Whether a segment has to be prepared: none is ready or, where writers sync, no zeroed one.
    pub(super) fn lacks_ready(&self, synced: bool) -> bool {
        self.ready.as_ref().is_none_or(|ready| synced && !ready.info.zeroed)
    }

    /// Whether the appender prepares the first segment itself.
    pub(super) fn prepares_first(&self) -> bool {
        self.cell_bytes.is_none() && self.lacks_ready(false)
    }

    /// Whether a zeroed segment is ready.
    pub(super) fn has_zeroed(&self) -> bool {
        self.ready.as_ref().is_some_and(|ready| ready.info.zeroed)
    }

    /// Notes a group that does not fit the active segment.
    pub(super) fn note_group(&mut self, bytes: u64) {
        self.group_bytes_before = self.group_bytes;
        self.group_bytes = self.group_bytes.max(bytes);
    }

    /// Takes the last group that was noted back: it was given up.
    pub(super) fn forget_group(&mut self) {
        self.group_bytes = self.group_bytes_before;
    }

    /// Bytes of the next segment if it is a new one.
    fn new_bytes(&self, synced: bool) -> u64 {
        if let (1.., Some(cell_bytes)) = (self.last_bytes, self.cell_bytes) {
            return cell_bytes;
        }
        let bytes = match self.last_bytes {
            0 => FIRST_BYTES,
            last if synced => {
                let share = self.zeroed_bytes / ZEROED_SHARE / FIRST_BYTES * FIRST_BYTES;
                last.saturating_mul(2).min(share.clamp(STEP_BYTES, ZEROED_BYTES_MAX))
            }
            last => last.saturating_mul(RESERVED_GROWTH),
        };
        let groups = self.group_bytes.saturating_mul(GROUPS_PER_SEGMENT);
        bytes.max(groups.checked_next_power_of_two().unwrap_or(groups)).min(self.limit)
    }

    /// Whether a spare is recycled as the next segment.
    fn fits(&self, spare: &SegmentInfo, synced: bool) -> bool {
        (spare.zeroed || !synced) && (self.cell_bytes.is_some() || spare.bytes <= self.limit)
    }

    /// Raises the limit of the next segment by a step.
    pub(super) fn raise_limit(&mut self) {
        self.limit = self.limit.saturating_mul(SHORT_STEP).min(self.segment_bytes_max);
    }

    /// Limits the next segment to less than it would have; false if it is small already.
    pub(super) fn lower_limit(&mut self, synced: bool) -> bool {
        let bytes = self.next_need(synced).carried_bytes;
        let limit = (bytes / SHORT_STEP).max(SHORT_BYTES);
        if self.cell_bytes.is_some() || limit >= bytes {
            return false;
        }
        self.limit = limit;
        true
    }

    /// The need of the next segment.
    pub(super) fn next_need(&self, synced: bool) -> SegmentNeed {
        match self.spare.iter().rfind(|spare| self.fits(spare, synced)) {
            Some(spare) => SegmentNeed { own_bytes: 0, carried_bytes: spare.bytes },
            None => {
                let bytes = self.new_bytes(synced);
                SegmentNeed { own_bytes: bytes, carried_bytes: bytes }
            }
        }
    }

    /// The segment that has to be prepared; `None` if there is none, or a preparation is running.
    pub(super) fn missing(&self, synced: bool) -> Option<SegmentRequest> {
        let wanted = || SegmentRequest {
            number: self.next_number,
            need: self.next_need(synced),
            synced,
            replaces: self.ready.as_ref().map(|ready| ready.info.number),
        };
        (!self.preparing && self.lacks_ready(synced)).then(wanted)
    }

    /// Begins the preparation of a [missing](Self::missing) segment. `None` if the request is
    /// stale: the segment has been prepared, or its need has changed because of a larger group, a
    /// spare to recycle, the first sync, or an appender that took the segment which this one
    /// replaces.
    pub(super) fn begin(&mut self, synced: bool, wanted: SegmentRequest) -> Option<Preparation> {
        if self.missing(synced) != Some(wanted) {
            return None;
        }
        self.preparing = true;
        let number = self.next_number;
        self.next_number = number.next();
        let ready = self.ready.take().map(|ready| ready.info.number);
        let spares = std::mem::take(&mut self.spare);
        let (fit, unfit): (Vec<_>, Vec<_>) =
            spares.into_iter().partition(|spare| self.fits(spare, synced));
        self.spare = fit;
        let unfit = ready.into_iter().chain(unfit.iter().map(|spare| spare.number)).collect();
        if let Some(spare) = self.spare.pop() {
            assert!(spare.number < number, "segment {number} recycles the later {spare:?}");
            assert!(spare.zeroed || !synced, "{spare:?} is recycled for synced groups");
            return Some(Preparation {
                unfit,
                spare: Some(spare),
                info: SegmentInfo { number, ..spare },
            });
        }
        // The first one always: its zeros cost less than a sync that writes metadata.
        let zeroed = synced || self.last_bytes == 0;
        let bytes = self.new_bytes(synced);
        assert!(bytes > 0, "a new segment {number} of 0 bytes");
        self.last_bytes = bytes;
        if zeroed {
            self.zeroed_bytes += bytes;
        }
        Some(Preparation { unfit, spare: None, info: SegmentInfo { number, bytes, zeroed } })
    }

    /// Ends a preparation: the segment that is ready now, or the error of the waiting appender.
    pub(super) fn end(&mut self, made: Result<Ready, Error>) {
        assert!(self.preparing, "a preparation ends that has not begun");
        self.preparing = false;
        match made {
            Ok(ready) => {
                let (info, old) = (ready.info, self.ready.replace(ready));
                assert!(old.is_none(), "{info:?} replaces a ready segment");
                assert!(info.number < self.next_number, "{info:?} has no assigned number");
            }
            Err(error) => self.failed = Some(error),
        }
    }

    /// Makes `info`, which was ready, the active segment.
    pub(super) fn push_live(&mut self, info: SegmentInfo) {
        let last = self.live.back().map_or(SegmentNumber::ZERO, |last| last.number);
        assert!(
            last < info.number && info.number < self.next_number,
            "{info:?} follows segment {last}, the next one is {}",
            self.next_number
        );
        self.live.push_back(info);
    }

    /// Removes and returns all spares but the one that is recycled next.
    pub(super) fn surplus(&mut self, synced: bool) -> Vec<SegmentInfo> {
        let next = self.spare.iter().rposition(|spare| self.fits(spare, synced));
        let next = next.map(|at| self.spare.remove(at));
        let surplus = std::mem::take(&mut self.spare);
        self.spare.extend(next);
        surplus
    }

    /// Bytes of the live segments from `start` on, without the active one.
    pub(super) fn bytes_behind(&self, start: LogPosition) -> u64 {
        let last = self.live.back().map_or(SegmentNumber::ZERO, |info| info.number);
        let bytes = |info: &SegmentInfo| match info.number {
            number if number < start.segment || number == last => 0,
            number if number == start.segment => info.bytes.saturating_sub(start.offset),
            _ => info.bytes,
        };
        self.live.iter().map(bytes).sum()
    }

    /// Removes and returns the live segments before `segment`, without the active one.
    pub(super) fn release_before(&mut self, segment: SegmentNumber) -> Vec<SegmentInfo> {
        let last = self.live.back().map_or(SegmentNumber::ZERO, |info| info.number);
        let limit = segment.min(last);
        let mut released = Vec::new();
        while self.live.front().is_some_and(|info| info.number < limit) {
            released.extend(self.live.pop_front());
        }
        // The active segment stays: groups are appended to it.
        let active = self.live.back().map_or(SegmentNumber::ZERO, |info| info.number);
        assert_eq!(active, last, "the active segment, after {released:?} were released");
        assert!(released.is_sorted_by_key(|info| info.number), "live segments: {released:?}");
        released
    }

    /// Removes and returns the live segments behind `segment`.
    pub(super) fn take_behind(&mut self, segment: SegmentNumber) -> Vec<SegmentInfo> {
        let kept = self.live.partition_point(|info| info.number <= segment);
        self.live.split_off(kept).into()
    }

    /// Numbers of the spares and of the ready segment, ascending.
    pub(super) fn spare_numbers(&self) -> Vec<SegmentNumber> {
        let ready = self.ready.iter().map(|ready| ready.info.number);
        let mut numbers: Vec<SegmentNumber> =
            self.spare.iter().map(|info| info.number).chain(ready).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Keeps the obsolete `info` as a spare if it was zeroed, where writers sync, is not small
    /// compared to a new one, and the spares stay within their limit. Returns whether it was kept.
    pub(super) fn keep(&mut self, info: SegmentInfo, synced: bool) -> bool {
        assert!(
            info.number < self.next_number
                && !self.live.iter().chain(&self.spare).any(|other| other.number == info.number),
            "{info:?} is not obsolete, or a spare already"
        );
        let waiting: u64 = self.spare.iter().map(|spare| spare.bytes).sum();
        let waiting_max = SPARE_BYTES_MAX.min(self.segment_bytes_max.saturating_mul(2));
        let few = self.spare.is_empty() || waiting + info.bytes <= waiting_max;
        let large = match synced {
            // It is recycled with all of its cell.
            _ if self.cell_bytes.is_some_and(|bytes| info.bytes < bytes) => false,
            true => info.bytes >= STEP_BYTES.min(self.segment_bytes_max),
            false => info.bytes >= self.new_bytes(false),
        };
        let keeps = (info.zeroed || !synced) && few && large;
        if keeps {
            self.spare.push(info);
        }
        keeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::segment;
    use crate::storage::{LogKind, Storage};

    fn begin(ring: &mut Ring, synced: bool) -> Option<Preparation> {
        ring.missing(synced).and_then(|wanted| ring.begin(synced, wanted))
    }

    /// The sizes of the next `n` segments.
    fn sizes(ring: &mut Ring, synced: bool, n: usize) -> Vec<u64> {
        let size = |_| {
            let next = begin(ring, synced).expect("none is ready");
            ring.preparing = false;
            next.info.bytes >> 10
        };
        (0..n).map(size).collect()
    }

    /// Goal: where segments have cells, one is admitted for what it can carry, which is its cell.
    /// Less was counted, and the next merge found no space.
    #[test]
    fn segments_in_cells_carry_cells() {
        let cell_bytes = 4 << 20;
        for synced in [false, true] {
            let mut ring = Ring::new(VecDeque::new(), segment(1), 1 << 20, Some(cell_bytes));
            assert!(!ring.prepares_first());
            assert_eq!(ring.next_need(synced).carried_bytes, FIRST_BYTES);
            assert_eq!(sizes(&mut ring, synced, 3), [128, 4096, 4096]);
            assert_eq!(ring.next_need(synced).carried_bytes, cell_bytes);
        }
    }

    /// Goal: a segment that finds no room is made smaller, down to a limit; a larger spare is not
    /// recycled then, and the request before it is stale. Cells stay what they are.
    #[test]
    fn segments_are_small_where_space_is_short() {
        let mut ring = Ring::new(VecDeque::new(), segment(5), 64 << 20, None);
        sizes(&mut ring, false, 3);
        ring.spare.push(SegmentInfo { number: segment(1), bytes: 64 << 20, zeroed: false });
        let before = ring.missing(false).expect("none is ready");
        let mut limits = Vec::new();
        while ring.lower_limit(false) {
            limits.push(ring.next_need(false).carried_bytes >> 10);
        }
        assert_eq!(limits, [16384, 4096, 1024, 512]);
        assert!(ring.begin(false, before).is_none());
        let next = begin(&mut ring, false).expect("none is ready");
        assert!(next.spare.is_none() && next.unfit == [segment(1)]);
        assert_eq!(next.info.bytes, 512 << 10);
        ring.preparing = false;
        for limit in [2, 8, 32, 64, 64] {
            ring.raise_limit();
            assert_eq!(sizes(&mut ring, false, 2)[1], limit << 10);
        }
        let mut cells = Ring::new(VecDeque::new(), segment(1), 1 << 20, Some(8 << 20));
        sizes(&mut cells, false, 1);
        assert!(!cells.lower_limit(false));
        assert_eq!(cells.next_need(false).carried_bytes, 8 << 20);
    }

    /// Goal: segments are small at first; zeroed ones grow in small steps.
    #[test]
    fn segments_begin_small() {
        let ring = || Ring::new(VecDeque::new(), segment(1), 64 << 20, None);
        let synced = sizes(&mut ring(), true, 40);
        assert_eq!(synced[..5], [128, 256, 512, 512, 512]);
        assert!(synced.is_sorted() && synced[39] == 4096, "{synced:?}");
        let mut buffered = ring();
        assert_eq!(sizes(&mut buffered, false, 4), [128, 4096, 65536, 65536]);
        assert_eq!(sizes(&mut buffered, true, 1), [512]);
        let mut small = Ring::new(VecDeque::new(), segment(1), 8 << 10, None);
        assert_eq!(sizes(&mut small, true, 2), [8, 8]);
        let mut large = Ring { group_bytes: 300 << 10, ..ring() };
        assert_eq!(sizes(&mut large, true, 2), [2048, 2048], "groups fit");
    }

    /// Goal: the first segment is always zeroed, others only where writers sync; and a spare counts
    /// as their need only if it will be recycled.
    #[test]
    fn who_syncs_gets_zeros() {
        let mut ring = Ring::new(VecDeque::new(), segment(1), 64 << 20, None);
        let mut zeroed = |synced| {
            let next = begin(&mut ring, synced).expect("none is ready");
            ring.preparing = false;
            next.info.zeroed
        };
        assert_eq!([zeroed(false), zeroed(false), zeroed(true)], [true, false, true]);
        let spare = SegmentInfo { number: segment(1), bytes: 64 << 20, zeroed: false };
        ring.spare.push(spare);
        assert_eq!(ring.next_need(false), SegmentNeed { own_bytes: 0, carried_bytes: 64 << 20 });
        assert!(ring.next_need(true).own_bytes > 0, "it was not zeroed, and is not recycled");
    }

    /// Goal: a request becomes stale with everything that changes its need.
    #[test]
    fn a_request_whose_need_has_changed_is_stale() {
        let change_of = |change: fn(&mut Ring)| {
            let mut ring = Ring::new(VecDeque::new(), segment(2), 64 << 20, None);
            let storage = crate::log::test_storage::MemStorage::default();
            let region = storage.reserve_log(LogKind::Wal, segment(1), 4096).expect("in memory");
            let info = SegmentInfo { number: segment(1), bytes: 4096, zeroed: false };
            ring.ready = Some(Ready { info, region });
            let wanted = ring.missing(true).expect("the ready segment was not zeroed");
            change(&mut ring);
            assert!(ring.begin(true, wanted).is_none());
            assert!(begin(&mut ring, true).is_some());
        };
        change_of(|ring| ring.group_bytes = 1 << 20);
        change_of(|ring| drop(ring.ready.take()));
        change_of(|ring| {
            assert!(
                ring.keep(SegmentInfo { number: segment(0), bytes: 4 << 20, zeroed: true }, true)
            )
        });
        change_of(|ring| drop((begin(ring, true), ring.preparing = false)));
    }

    /// Goal: only segments of the current size are kept, zeroed ones where writers sync, up to the
    /// limit.
    #[test]
    fn what_is_kept_for_reuse() {
        let mut ring = Ring::new(VecDeque::new(), segment(30), 64 << 20, None);
        sizes(&mut ring, true, 6);
        let info = |number, bytes, zeroed| SegmentInfo { number, bytes, zeroed };
        assert!(!ring.keep(info(segment(3), 256 << 10, true), true));
        assert!(!ring.keep(info(segment(1), 4 << 20, false), true));
        let kept = (10..30)
            .filter(|&number| ring.keep(info(segment(number), 4 << 20, true), true))
            .count();
        assert_eq!(kept as u64, SPARE_BYTES_MAX / (4 << 20));
        let next = begin(&mut ring, true).expect("none is ready");
        assert!(
            next.spare.is_some_and(|spare| spare.number >= segment(10))
                && next.info.number == segment(36)
        );
    }

    /// Goal: spares that were not zeroed are deleted once writers sync.
    #[test]
    fn unsynced_segments_are_kept_until_writers_sync() {
        let mut ring = Ring::new(VecDeque::new(), segment(1), 64 << 20, None);
        sizes(&mut ring, false, 3);
        let info = |number, bytes| SegmentInfo { number, bytes, zeroed: false };
        assert!(!ring.keep(info(segment(1), 4 << 20), false), "small compared to a new one");
        assert!(ring.keep(info(segment(2), 64 << 20), false));
        assert!(!ring.keep(info(segment(3), 64 << 20), false), "one is enough");
        let next = begin(&mut ring, false).expect("none is ready");
        assert!(
            next.spare.is_some_and(|spare| spare.number == segment(2)) && next.unfit.is_empty()
        );
        ring.preparing = false;
        assert!(ring.keep(info(segment(3), 64 << 20), false));
        let next = begin(&mut ring, true).expect("none is ready");
        assert!(next.spare.is_none() && next.unfit == [segment(3)] && next.info.zeroed);
    }
}
