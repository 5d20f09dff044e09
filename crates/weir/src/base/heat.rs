//! Heat: which entries of a cached block were read lately, so that what a merge makes of them can
//! take their place in the cache.
//!
//! A block has 64 marks: one for each entry or, in a block of more, for each 64th part of them. A
//! reader that found an entry sets its mark, in the allocation that holds the block's reference
//! count, which the reader has just written: no lock, no other cache line.
//!
//! Marks fade. Time is counted in *periods* of the cache, in each of which it takes in as many
//! bytes as it holds, some times over: an entry is warm in the period of its last read and in the
//! next one. Time stands still in a cache that takes in nothing: there nothing is displaced either.
//!
//! Not here: what a merge makes of it (`compaction::execute::handoff`), periods (`cache`).
//!
//! Marks are hints. Two readers that mark at once may lose one mark, and so may a reader beside the
//! change of a period; nothing but the choice of cached blocks depends on them.
//!
//! Source: Weir's own; docs/papers.md says what it is measured against.

use crate::base::atomic::{AtomicU64, Ordering};

/// Marks of a block.
const MARKS: usize = u64::BITS as usize;

/// The mark of entry `row` of a block of `count` entries. Requires: `row < count`.
#[inline]
pub(crate) fn mark(row: usize, count: usize) -> u64 {
    debug_assert!(row < count, "row {row} of {count}");
    let bit = if count <= MARKS { row } else { row * MARKS / count };
    1 << (bit % MARKS)
}

/// The marks of entries `first` to `last` of a block of `count` entries. Requires:
/// `first <= last < count`.
pub(crate) fn marks(first: usize, last: usize, count: usize) -> u64 {
    let (low, high) = (mark(first, count), mark(last, count));
    // All bits from the lower one to the higher one, both included.
    (high | (high - 1)) & !(low - 1)
}

/// How lately an entry was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Warmth {
    /// Neither in this period nor in the one before.
    #[default]
    Cold,
    /// In the period before.
    Fading,
    /// In this period.
    Hot,
}

/// The marks of a block at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heat {
    /// Set in this period.
    now: u64,
    /// Set in the period before.
    before: u64,
}

impl Heat {
    /// Of a block that nobody reads.
    pub(crate) const COLD: Self = Self { now: 0, before: 0 };

    /// Of a block all of whose entries count as read in the period before.
    pub(crate) const ALL_FADING: Self = Self { now: 0, before: u64::MAX };

    /// Of entry `row` of a block of `count` entries. Requires: `row < count`.
    #[inline]
    pub(crate) fn of(self, row: usize, count: usize) -> Warmth {
        if self == Self::COLD {
            return Warmth::Cold;
        }
        let mark = mark(row, count);
        if self.now & mark != 0 {
            Warmth::Hot
        } else if self.before & mark != 0 {
            Warmth::Fading
        } else {
            Warmth::Cold
        }
    }

    /// Sets the mark of an entry.
    pub(crate) fn add(&mut self, row: usize, count: usize, warmth: Warmth) {
        match warmth {
            Warmth::Cold => {}
            Warmth::Fading => self.before |= mark(row, count),
            Warmth::Hot => self.now |= mark(row, count),
        }
    }

    /// Number of marks: of the entries that were read, or of parts with one.
    pub(crate) fn marks(self) -> u32 {
        (self.now | self.before).count_ones()
    }
}

/// No period comes so late.
const UNASKED: u64 = u64::MAX;

/// The marks of a block in memory.
#[derive(Debug, Default)]
pub(crate) struct HeatCell {
    /// Twice the period of `now`, and one more as long as nobody has read a block that was handed
    /// over; [`UNASKED`] as long as nobody has read one that nobody had asked for.
    stamp: AtomicU64,
    /// Set in the period of the stamp, and in the one before.
    now: AtomicU64,
    before: AtomicU64,
}

impl HeatCell {
    /// Of a block handed over in `period`.
    pub(crate) fn handed(heat: Heat, period: u64) -> Self {
        Self {
            stamp: AtomicU64::new(period * 2 + 1),
            now: AtomicU64::new(heat.now),
            before: AtomicU64::new(heat.before),
        }
    }

    /// Of a block that nobody has asked for.
    pub(crate) fn unasked() -> Self {
        Self { stamp: AtomicU64::new(UNASKED), ..Self::default() }
    }

    /// Makes the marks those of `other`.
    pub(crate) fn set(&self, other: &Self) {
        self.stamp.store(other.stamp.load(Ordering::Relaxed), Ordering::Relaxed);
        self.now.store(other.now.load(Ordering::Relaxed), Ordering::Relaxed);
        self.before.store(other.before.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Sets `marks`, in `period`.
    #[inline]
    pub(crate) fn touch(&self, marks: u64, period: u64) {
        if self.stamp.load(Ordering::Relaxed) != period * 2 {
            self.age(period);
        }
        let now = self.now.load(Ordering::Relaxed);
        if now & marks != marks {
            self.now.store(now | marks, Ordering::Relaxed);
        }
    }

    /// Moves on to `period`; a read ends the time of a block that nobody has read.
    #[cold]
    fn age(&self, period: u64) {
        let was = self.stamp.load(Ordering::Relaxed) / 2;
        self.stamp.store(period * 2, Ordering::Relaxed);
        if was == period {
            return;
        }
        let now = self.now.load(Ordering::Relaxed);
        self.before.store(if was + 1 == period { now } else { 0 }, Ordering::Relaxed);
        self.now.store(0, Ordering::Relaxed);
    }

    /// The marks as they are in `period`.
    pub(crate) fn get(&self, period: u64) -> Heat {
        let was = self.stamp.load(Ordering::Relaxed) / 2;
        let now = self.now.load(Ordering::Relaxed);
        match period.checked_sub(was) {
            Some(0) => Heat { now, before: self.before.load(Ordering::Relaxed) },
            Some(1) => Heat { now: 0, before: now },
            // Of a later period: a reader was faster.
            None => Heat { now, before: 0 },
            Some(_) => Heat::COLD,
        }
    }

    /// Whether the block was handed over and nobody has read it since.
    pub(crate) fn is_unread(&self) -> bool {
        let stamp = self.stamp.load(Ordering::Relaxed);
        stamp % 2 == 1 && stamp != UNASKED
    }

    /// Whether nobody has asked for the block yet: it lies in the cache because that had room.
    pub(crate) fn is_unasked(&self) -> bool {
        self.stamp.load(Ordering::Relaxed) == UNASKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each entry of a small block has a mark of its own, each mark of a large one belongs to
    /// as many neighbours, and a range has the marks of its entries.
    #[test]
    fn marks_follow_the_order_of_entries() {
        for count in [1, 2, 35, 63, 64, 65, 100, 128, 5000] {
            let of = |row: usize| mark(row, count);
            assert!((1..count).all(|row| of(row - 1) <= of(row)), "{count}");
            assert_eq!((of(0), of(count - 1).trailing_zeros() as usize), (1, count.min(64) - 1));
            for (first, last) in [(0, count - 1), (count / 3, count / 2), (count - 1, count - 1)] {
                let each = (first..=last).fold(0, |marks, row| marks | of(row));
                assert_eq!(marks(first, last, count), each, "{first} to {last} of {count}");
            }
        }
    }

    /// Goal: an entry is warm in the period of its last read and in the next, whatever is read
    /// beside it, and an heir's marks fade as if it were its source.
    #[test]
    fn marks_fade() {
        let cell = HeatCell::default();
        cell.touch(mark(3, 10), 7);
        assert_eq!(cell.get(7).of(3, 10), Warmth::Hot);
        assert_eq!(cell.get(7).of(4, 10), Warmth::Cold);
        assert_eq!(cell.get(8).of(3, 10), Warmth::Fading);
        assert_eq!(cell.get(9), Heat::COLD);
        cell.touch(mark(4, 10), 8);
        let heat = cell.get(8);
        assert_eq!((heat.of(3, 10), heat.of(4, 10)), (Warmth::Fading, Warmth::Hot));
        assert_eq!(heat.marks(), 2);
        assert_eq!(cell.get(9).of(4, 10), Warmth::Fading);
        assert_eq!(cell.get(9).of(3, 10), Warmth::Cold);
        let heir = HeatCell::handed(heat, 8);
        assert!(heir.is_unread() && heir.get(8) == heat);
        assert_eq!(heir.get(9), cell.get(9));
        heir.touch(mark(9, 10), 9);
        assert!(!heir.is_unread());
        assert_eq!(heir.get(9).of(4, 10), Warmth::Fading);
        assert_eq!(heir.get(9).of(9, 10), Warmth::Hot);
        cell.touch(mark(0, 10), 20);
        assert_eq!(cell.get(20).marks(), 1);
        // A reader of the period before comes late.
        assert_eq!(cell.get(19).of(0, 10), Warmth::Hot);
    }

    /// Goal: a block that nobody asked for is cold in every period until it is read, and then one
    /// like any other.
    #[test]
    fn what_nobody_asked_for_is_cold() {
        let cell = HeatCell::unasked();
        assert!(cell.is_unasked() && !cell.is_unread());
        assert!([0, 1, 9, u64::MAX / 4].iter().all(|&period| cell.get(period) == Heat::COLD));
        cell.touch(mark(2, 10), 9);
        assert!(!cell.is_unasked() && !cell.is_unread());
        assert_eq!((cell.get(9).of(2, 10), cell.get(9).marks()), (Warmth::Hot, 1));
        assert_eq!(cell.get(10).of(2, 10), Warmth::Fading);
    }

    /// Goal: the heat of a block is put together entry by entry.
    #[test]
    fn heat_is_collected_by_entry() {
        let mut heat = Heat::default();
        heat.add(0, 3, Warmth::Cold);
        assert_eq!(heat, Heat::COLD);
        heat.add(1, 3, Warmth::Fading);
        heat.add(2, 3, Warmth::Hot);
        let of = [0, 1, 2].map(|row| heat.of(row, 3));
        assert_eq!(of, [Warmth::Cold, Warmth::Fading, Warmth::Hot]);
    }
}
