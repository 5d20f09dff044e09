//! Which segments of the write-ahead log there are, and how large the next one is made.
//!
//! Not here: what is done with storage (`wal`). Pure, but for the region of the segment that is
//! ready.
//!
//! Sizes. A segment of zeros is written twice before it is first recycled, so what is zeroed ahead
//! of the writer is little: steps of [`STEP_BYTES`], later an eighth of what was zeroed so far, at
//! most [`ZEROED_BYTES_MAX`]: the zeros of one segment share the device with the syncs of the
//! writers. Where nobody syncs, nothing is zeroed and a large segment costs nothing. Groups larger
//! than that get segments of [`GROUPS_PER_SEGMENT`] of them.
//!
//! Invariants: (1) a number is handed out once; (2) where writers sync, only a segment that was
//! zeroed is recycled: all its blocks have been written, so that no later write needs space or
//! metadata.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::ids::SegmentNumber;
use crate::log::LogPosition;
use crate::storage::LogRegion;

/// Bytes of the first segment of an opening: 128 KiB. Its zeros are written and synced by the first
/// writer, and a store of a few pairs is not much larger than this.
const FIRST_BYTES: u64 = 128 << 10;

/// Segments where writers sync, while little has been zeroed: 512 KiB. Each one costs two syncs and
/// about ten blocks of a file system's journal; smaller ones are not kept for reuse.
const STEP_BYTES: u64 = 512 << 10;

/// What was zeroed so far over what is zeroed next.
const ZEROED_SHARE: u64 = 8;

/// Largest segment that is zeroed on purpose: 4 MiB, some milliseconds of a device's time.
const ZEROED_BYTES_MAX: u64 = 4 << 20;

/// How many of the largest groups a segment takes.
const GROUPS_PER_SEGMENT: u64 = 4;

/// How much larger each reserved segment is than the one before.
const RESERVED_GROWTH: u64 = 32;

/// Bytes of obsolete segments kept for reuse: what one flush gives back at once
/// (`Engine::shorten_log`); no more than two of the largest segments.
const SPARE_BYTES_MAX: u64 = 32 << 20;

/// A segment's place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) number: SegmentNumber,
    /// Its length.
    pub(super) bytes: u64,
    /// Whether all of it was written with zeros before its first group.
    pub(super) zeroed: bool,
}

/// A segment that the appender may take.
pub(super) struct Ready {
    pub(super) area: Area,
    /// Whether it holds groups of an obsolete segment.
    pub(super) recycled: bool,
    pub(super) region: Arc<dyn LogRegion>,
}

/// What is to be done for the next segment.
pub(super) struct Preparation {
    /// Segments to be removed: made for writers that did not sync.
    pub(super) unfit: Vec<SegmentNumber>,
    /// The obsolete segment to be recycled.
    pub(super) spare: Option<Area>,
    /// The place of the new one.
    pub(super) area: Area,
}

/// What a segment that is prepared takes on the device, and what it brings. Estimates from above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentNeed {
    /// Bytes of the segment; 0 if it is a recycled one.
    pub(crate) own_bytes: u64,
    /// Bytes of entries that may come through the log before the segment after it is prepared.
    pub(crate) carried_bytes: u64,
}

/// A segment that is to be prepared, with all that decides what this takes and brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(super) number: SegmentNumber,
    need: SegmentNeed,
    synced: bool,
    /// The segment that is ready, and is given up for this one.
    replaces: Option<SegmentNumber>,
}

/// The segments of a log.
pub(super) struct Ring {
    /// Segments that a recovery would read, ascending.
    pub(super) live: VecDeque<Area>,
    /// Obsolete segments, to be recycled.
    spare: Vec<Area>,
    pub(super) ready: Option<Ready>,
    next_number: SegmentNumber,
    /// Bytes of the segment that was prepared last; 0 before the first one.
    last_bytes: u64,
    /// Bytes of all segments that were zeroed so far.
    zeroed_bytes: u64,
    /// Bytes of the largest group that did not fit its segment.
    pub(super) group_bytes: u64,
    segment_bytes_max: u64,
    pub(super) preparing: bool,
    /// Why the last preparation failed.
    pub(super) failed: Option<Error>,
    /// Nobody prepares segments any more.
    pub(super) closed: bool,
}

impl Ring {
    pub(super) fn new(
        live: VecDeque<Area>,
        next_number: SegmentNumber,
        segment_bytes_max: u64,
    ) -> Self {
        Self {
            live,
            spare: Vec::new(),
            ready: None,
            next_number,
            last_bytes: 0,
            zeroed_bytes: 0,
            group_bytes: 0,
            segment_bytes_max,
            preparing: false,
            failed: None,
            closed: false,
        }
    }

    /// Whether a segment is to be prepared: none is ready or, where writers sync, none that was
    /// zeroed.
    pub(super) fn lacks_ready(&self, synced: bool) -> bool {
        self.ready.as_ref().is_none_or(|ready| synced && !ready.area.zeroed)
    }

    /// Whether a zeroed segment is ready.
    pub(super) fn has_zeroed(&self) -> bool {
        self.ready.as_ref().is_some_and(|ready| ready.area.zeroed)
    }

    /// Bytes of the segment that is prepared next, if it is not a recycled one.
    fn new_bytes(&self, synced: bool) -> u64 {
        let bytes = match self.last_bytes {
            0 => FIRST_BYTES,
            last if synced => {
                let share = self.zeroed_bytes / ZEROED_SHARE / FIRST_BYTES * FIRST_BYTES;
                last.saturating_mul(2).min(share.clamp(STEP_BYTES, ZEROED_BYTES_MAX))
            }
            last => last.saturating_mul(RESERVED_GROWTH),
        };
        let groups = self.group_bytes.saturating_mul(GROUPS_PER_SEGMENT);
        bytes.max(groups.checked_next_power_of_two().unwrap_or(groups)).min(self.segment_bytes_max)
    }

    /// What the segment that is prepared next takes, and brings.
    pub(super) fn next_need(&self, synced: bool) -> SegmentNeed {
        match self.spare.iter().rfind(|spare| spare.zeroed || !synced) {
            Some(spare) => SegmentNeed { own_bytes: 0, carried_bytes: spare.bytes },
            None => {
                let bytes = self.new_bytes(synced);
                SegmentNeed { own_bytes: bytes, carried_bytes: bytes }
            }
        }
    }

    /// The segment that is to be prepared, if one is and nobody does.
    pub(super) fn lacking(&self, synced: bool) -> Option<Wanted> {
        let wanted = || Wanted {
            number: self.next_number,
            need: self.next_need(synced),
            synced,
            replaces: self.ready.as_ref().map(|ready| ready.area.number),
        };
        (!self.preparing && self.lacks_ready(synced)).then(wanted)
    }

    /// Begins to prepare the segment that was found [lacking](Self::lacking). `None` if it is not
    /// any more, or needs something else by now: a larger group came, a segment to recycle, the
    /// first sync, or an appender that took the segment which this one was to replace.
    pub(super) fn begin(&mut self, synced: bool, wanted: Wanted) -> Option<Preparation> {
        if self.lacking(synced) != Some(wanted) {
            return None;
        }
        self.preparing = true;
        let number = self.next_number;
        self.next_number = number.next();
        let ready = self.ready.take().map(|ready| ready.area.number);
        let unfit_spare = self.spare.extract_if(.., |spare| synced && !spare.zeroed);
        let unfit = ready.into_iter().chain(unfit_spare.map(|spare| spare.number)).collect();
        if let Some(spare) = self.spare.pop() {
            return Some(Preparation { unfit, spare: Some(spare), area: Area { number, ..spare } });
        }
        // The first one always: its zeros cost less than a sync that needs metadata.
        let zeroed = synced || self.last_bytes == 0;
        let bytes = self.new_bytes(synced);
        self.last_bytes = bytes;
        if zeroed {
            self.zeroed_bytes += bytes;
        }
        Some(Preparation { unfit, spare: None, area: Area { number, bytes, zeroed } })
    }

    /// Takes the obsolete segments out that are not recycled next.
    pub(super) fn surplus(&mut self, synced: bool) -> Vec<Area> {
        let fits = |spare: &Area| spare.zeroed || !synced;
        let next = self.spare.iter().rposition(fits).map(|at| self.spare.remove(at));
        let surplus = std::mem::take(&mut self.spare);
        self.spare.extend(next);
        surplus
    }

    /// Bytes of the segments from `start` on, but for the last.
    pub(super) fn bytes_behind(&self, start: LogPosition) -> u64 {
        let last = self.live.back().map_or(SegmentNumber::ZERO, |area| area.number);
        let bytes = |area: &Area| match area.number {
            number if number < start.segment || number == last => 0,
            number if number == start.segment => area.bytes.saturating_sub(start.offset),
            _ => area.bytes,
        };
        self.live.iter().map(bytes).sum()
    }

    /// Takes the live segments before `segment` out, but for the last.
    pub(super) fn release_before(&mut self, segment: SegmentNumber) -> Vec<Area> {
        let last = self.live.back().map_or(SegmentNumber::ZERO, |area| area.number);
        let limit = segment.min(last);
        let mut released = Vec::new();
        while self.live.front().is_some_and(|area| area.number < limit) {
            released.extend(self.live.pop_front());
        }
        released
    }

    /// Segments that hold nothing, ascending.
    pub(super) fn spare_numbers(&self) -> Vec<SegmentNumber> {
        let ready = self.ready.iter().map(|ready| ready.area.number);
        let mut numbers: Vec<SegmentNumber> =
            self.spare.iter().map(|area| area.number).chain(ready).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Whether the obsolete `area` is kept for reuse: if it was zeroed, should writers sync, is not
    /// small beside those that could be made, and not too many wait already.
    pub(super) fn keep(&mut self, area: Area, synced: bool) -> bool {
        let waiting: u64 = self.spare.iter().map(|spare| spare.bytes).sum();
        let waiting_max = SPARE_BYTES_MAX.min(self.segment_bytes_max.saturating_mul(2));
        let few = self.spare.is_empty() || waiting + area.bytes <= waiting_max;
        let large = match synced {
            true => area.bytes >= STEP_BYTES.min(self.segment_bytes_max),
            false => area.bytes >= self.new_bytes(false),
        };
        let keeps = (area.zeroed || !synced) && few && large;
        if keeps {
            self.spare.push(area);
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
        ring.lacking(synced).and_then(|wanted| ring.begin(synced, wanted))
    }

    /// The sizes of the next `n` segments.
    fn sizes(ring: &mut Ring, synced: bool, n: usize) -> Vec<u64> {
        let size = |_| {
            let next = begin(ring, synced).expect("none is ready");
            ring.preparing = false;
            next.area.bytes >> 10
        };
        (0..n).map(size).collect()
    }

    /// Small at first; zeros in steps that the device takes in a moment.
    #[test]
    fn segments_begin_small() {
        let ring = || Ring::new(VecDeque::new(), segment(1), 64 << 20);
        let synced = sizes(&mut ring(), true, 40);
        assert_eq!(synced[..5], [128, 256, 512, 512, 512]);
        assert!(synced.is_sorted() && synced[39] == 4096, "{synced:?}");
        let mut buffered = ring();
        assert_eq!(sizes(&mut buffered, false, 4), [128, 4096, 65536, 65536]);
        assert_eq!(sizes(&mut buffered, true, 1), [512]);
        let mut small = Ring::new(VecDeque::new(), segment(1), 8 << 10);
        assert_eq!(sizes(&mut small, true, 2), [8, 8]);
        let mut large = Ring { group_bytes: 300 << 10, ..ring() };
        assert_eq!(sizes(&mut large, true, 2), [2048, 2048], "groups fit");
    }

    /// Goal: the first segment is always written with zeros, others only where writers sync; and
    /// what is weighed for them is a spare only if it will be used.
    #[test]
    fn who_syncs_gets_zeros() {
        let mut ring = Ring::new(VecDeque::new(), segment(1), 64 << 20);
        let mut zeroed = |synced| {
            let next = begin(&mut ring, synced).expect("none is ready");
            ring.preparing = false;
            next.area.zeroed
        };
        assert_eq!([zeroed(false), zeroed(false), zeroed(true)], [true, false, true]);
        let spare = Area { number: segment(1), bytes: 64 << 20, zeroed: false };
        ring.spare.push(spare);
        assert_eq!(ring.next_need(false), SegmentNeed { own_bytes: 0, carried_bytes: 64 << 20 });
        assert!(ring.next_need(true).own_bytes > 0, "it was not zeroed, and is given up");
    }

    /// Goal: what was weighed is what is prepared, whatever changes what it takes and brings.
    #[test]
    fn a_segment_that_changed_is_weighed_again() {
        let change_of = |change: fn(&mut Ring)| {
            let mut ring = Ring::new(VecDeque::new(), segment(2), 64 << 20);
            let storage = crate::log::test_storage::MemStorage::default();
            let region = storage.reserve_log(LogKind::Wal, segment(1), 4096).expect("in memory");
            let area = Area { number: segment(1), bytes: 4096, zeroed: false };
            ring.ready = Some(Ready { area, recycled: false, region });
            let wanted = ring.lacking(true).expect("what is ready was not zeroed");
            change(&mut ring);
            assert!(ring.begin(true, wanted).is_none());
            assert!(begin(&mut ring, true).is_some());
        };
        change_of(|ring| ring.group_bytes = 1 << 20);
        change_of(|ring| drop(ring.ready.take()));
        change_of(|ring| {
            assert!(ring.keep(Area { number: segment(0), bytes: 4 << 20, zeroed: true }, true))
        });
        change_of(|ring| drop((begin(ring, true), ring.preparing = false)));
    }

    /// Only segments of today's size are kept, zeroed ones where writers sync, and not without end.
    #[test]
    fn what_is_kept_for_reuse() {
        let mut ring = Ring::new(VecDeque::new(), segment(1), 64 << 20);
        sizes(&mut ring, true, 6);
        let area = |number, bytes, zeroed| Area { number, bytes, zeroed };
        assert!(!ring.keep(area(segment(3), 256 << 10, true), true));
        assert!(!ring.keep(area(segment(1), 4 << 20, false), true));
        let kept = (10..30)
            .filter(|&number| ring.keep(area(segment(number), 4 << 20, true), true))
            .count();
        assert_eq!(kept as u64, SPARE_BYTES_MAX / (4 << 20));
        let next = begin(&mut ring, true).expect("none is ready");
        assert!(
            next.spare.is_some_and(|spare| spare.number >= segment(10))
                && next.area.number == segment(7)
        );
    }

    /// What was kept while nobody synced is no good for those who do.
    #[test]
    fn unsynced_segments_are_kept_until_writers_sync() {
        let mut ring = Ring::new(VecDeque::new(), segment(1), 64 << 20);
        sizes(&mut ring, false, 3);
        let area = |number, bytes| Area { number, bytes, zeroed: false };
        assert!(!ring.keep(area(segment(1), 4 << 20), false), "small beside what is made now");
        assert!(ring.keep(area(segment(2), 64 << 20), false));
        assert!(!ring.keep(area(segment(3), 64 << 20), false), "one is enough");
        let next = begin(&mut ring, false).expect("none is ready");
        assert!(
            next.spare.is_some_and(|spare| spare.number == segment(2)) && next.unfit.is_empty()
        );
        ring.preparing = false;
        assert!(ring.keep(area(segment(3), 64 << 20), false));
        let next = begin(&mut ring, true).expect("none is ready");
        assert!(next.spare.is_none() && next.unfit == [segment(3)] && next.area.zeroed);
    }
}
