//! Identifiers as types: code that swaps two of them does not compile.
//!
//! Numbers of durable things (data epochs, tables, log groups) have 64 bits and are never reused;
//! codecs store what `get` returns.

use crate::base::limits::LEVELS;

/// Numbers of tables, segments, log groups and data epochs are smaller: a store that draws a
/// million a second gets here after 2,000 years. What states a greater one is damaged, or hostile;
/// that it is refused where it is read lets the rest of the engine add to such numbers without a
/// check.
pub(crate) const NUMBERS_END: u64 = 1 << 56;

/// A number as a type of its own.
macro_rules! number {
    ($(#[$doc:meta])* $visibility:vis struct $name:ident($number:ty);) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility struct $name($number);

        impl $name {
            /// The one with this number.
            pub(crate) const fn new(number: $number) -> Self {
                Self(number)
            }

            /// Its number.
            pub(crate) const fn get(self) -> $number {
                self.0
            }
        }
    };
}

number! {
    /// The age of a run's content, which orders the runs of one part of one level: a greater one is
    /// newer, 0 is older than all (ARCHITECTURE §3, H22). Drawn at a memtable's freeze; a merge
    /// draws none. Into an existing run it keeps that run's, a new run gets its newest input's,
    /// raised above older runs of its level, and a run moved back may get a smaller one. Between
    /// levels it means nothing.
    pub(crate) struct DataEpoch(u64);
}

impl DataEpoch {
    /// Older than all that are drawn.
    pub(crate) const ZERO: Self = Self(0);
    /// Newer than all that are drawn.
    pub(crate) const MAX: Self = Self(u64::MAX);

    /// The next newer one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The next older one; `None` for zero.
    pub(crate) fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

number! {
    /// A keyspace's number, never used twice in a store.
    pub(crate) struct KeyspaceId(u32);
}

impl KeyspaceId {
    /// The default keyspace, which every store has.
    pub(crate) const DEFAULT: Self = Self(0);

    /// The next one to be assigned.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl TryFrom<u64> for KeyspaceId {
    type Error = std::num::TryFromIntError;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        u32::try_from(number).map(Self)
    }
}

impl From<KeyspaceId> for u64 {
    fn from(id: KeyspaceId) -> Self {
        Self::from(id.0)
    }
}

number! {
    /// Log sequence number: a commit group's place in its log. The first group has 1, each next one
    /// the next number; the fragments of one batch share theirs.
    pub(crate) struct Lsn(u64);
}

impl Lsn {
    /// Before the first group of a log.
    pub(crate) const ZERO: Self = Self(0);
    /// The first group of a log.
    pub(crate) const FIRST: Self = Self(1);

    /// That of the group after it.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// That of the group before it; zero for the first.
    pub(crate) const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

number! {
    /// A table's number, never used twice in a store.
    pub struct TableUid(u64);
}

impl TableUid {
    /// Of no table.
    pub(crate) const NONE: Self = Self(0);
    /// The first table of a store.
    pub(crate) const FIRST: Self = Self(1);

    /// The next one to be assigned.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

number! {
    /// Number of a segment of the write-ahead log, or of a version log, which is one segment. Each
    /// kind counts by itself; a number is never used twice.
    pub struct SegmentNumber(u64);
}

impl SegmentNumber {
    /// Of no segment: before the first one.
    pub(crate) const ZERO: Self = Self(0);
    /// The first segment of a log.
    pub(crate) const FIRST: Self = Self(1);
    /// Greater than that of any segment.
    pub(crate) const MAX: Self = Self(u64::MAX);

    /// The number after it.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Openings that have numbers of segments of their own; a later one counts on from the greatest
/// number that it finds. An opening every second gets here after half a year.
const OPENINGS_APART: u64 = 1 << 24;

/// Numbers of segments of one opening: with segments of 1 MiB, 4 PiB are logged before they are
/// used up, and the numbers of the next opening come.
const SEGMENTS_PER_OPENING: u64 = 1 << 32;
const _: () = assert!(OPENINGS_APART * SEGMENTS_PER_OPENING <= NUMBERS_END);

impl SegmentNumber {
    /// The first number of a segment that opening `opening` of the store starts in the write-ahead
    /// log: above those of all earlier openings, also if nothing shows any more that these had some
    /// (H71).
    pub(crate) fn first_of(opening: u32) -> Self {
        let before = u64::from(opening).saturating_sub(1).min(OPENINGS_APART - 1);
        Self(before * SEGMENTS_PER_OPENING + 1)
    }
}

number! {
    /// Drawn for each version log, and part of what its checksums start from: two attempts to write
    /// the log of one number differ by it (H71).
    pub(crate) struct Nonce(u64);
}

impl Nonce {
    /// Of segments of the write-ahead log, whose numbers differ; and of version logs that have
    /// none, because an earlier version wrote them.
    pub(crate) const NONE: Self = Self(0);
}

/// What numbers that a store counts up have in common.
macro_rules! counted {
    ($($name:ident),*) => {$(
        impl $name {
            /// The one with a number that was read from a device; `None` if no store gets there.
            pub(crate) fn stored(number: u64) -> Option<Self> {
                (number < NUMBERS_END).then_some(Self(number))
            }

            /// Whether it must not be recorded, because it would be refused when it is read.
            pub(crate) const fn is_used_up(self) -> bool {
                self.0 >= NUMBERS_END
            }
        }
    )*};
}

counted!(DataEpoch, Lsn, SegmentNumber, TableUid);

number! {
    /// Identity of the store that a log belongs to: drawn at creation, stored in every segment of
    /// its logs and part of their checksums' seed, so that another store's groups are not taken for
    /// its own.
    pub(crate) struct Lineage(u64);
}

impl Lineage {
    /// Of a log whose lineage is not known yet.
    pub(crate) const UNKNOWN: Self = Self(0);
}

impl std::fmt::LowerHex for Lineage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A level of a tree: level 0, where flushes go, to [`Level::LAST`]. A greater one is deeper, and
/// holds older data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Level(u8);

impl Level {
    /// Where flushes go.
    pub(crate) const ZERO: Self = Self(0);
    /// The uppermost level that merges write to.
    pub(crate) const ONE: Self = Self(1);
    /// Where everything ends up.
    pub(crate) const LAST: Self = Self(LEVELS as u8 - 1);

    /// The level with this number, if there is one.
    pub(crate) fn new(number: usize) -> Option<Self> {
        u8::try_from(number).ok().map(Self).filter(|&level| level <= Self::LAST)
    }

    /// Its number.
    pub(crate) const fn get(self) -> usize {
        self.0 as usize
    }

    /// The next deeper one; none for the last.
    pub(crate) fn next(self) -> Option<Self> {
        (self < Self::LAST).then_some(Self(self.0 + 1))
    }

    /// The one above it; none for level 0.
    pub(crate) fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// All levels, level 0 first.
    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Self> {
        Self::ZERO.to_last()
    }

    /// The levels between level 0 and the last.
    pub(crate) fn inner() -> impl DoubleEndedIterator<Item = Self> {
        (1..Self::LAST.0).map(Self)
    }

    /// It and all deeper ones.
    pub(crate) fn to_last(self) -> impl DoubleEndedIterator<Item = Self> {
        (self.0..=Self::LAST.0).map(Self)
    }

    /// All deeper ones, the next one first.
    pub(crate) fn deeper(self) -> impl DoubleEndedIterator<Item = Self> {
        (self.0 + 1..=Self::LAST.0).map(Self)
    }
}

/// One value for each level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PerLevel<T>([T; LEVELS]);

impl<T> PerLevel<T> {
    /// The values with their levels, level 0 first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (Level, &T)> {
        self.0.iter().enumerate().map(|(at, value)| (Level(at as u8), value))
    }

    /// The values, that of level 0 first.
    pub(crate) fn values(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// The values, that of level 0 first.
    pub(crate) fn values_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }

    /// What `change` makes of each value.
    pub(crate) fn each<'a, U>(&'a self, change: impl FnMut(&'a T) -> U) -> PerLevel<U> {
        PerLevel(self.0.each_ref().map(change))
    }
}

impl<T> std::ops::Index<Level> for PerLevel<T> {
    type Output = T;

    fn index(&self, level: Level) -> &T {
        &self.0[level.get()]
    }
}

impl<T> std::ops::IndexMut<Level> for PerLevel<T> {
    fn index_mut(&mut self, level: Level) -> &mut T {
        &mut self.0[level.get()]
    }
}

/// Shows identifiers as their numbers alone, also in `Debug`: messages show lists of them.
macro_rules! shown_as_number {
    ($($name:ident),*) => {$(
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

shown_as_number!(DataEpoch, KeyspaceId, Level, Lineage, Lsn, Nonce, SegmentNumber, TableUid);

/// An LSN, for tests.
#[cfg(test)]
pub(crate) const fn lsn(number: u64) -> Lsn {
    Lsn::new(number)
}

/// A segment's number, for tests.
#[cfg(test)]
pub(crate) const fn segment(number: u64) -> SegmentNumber {
    SegmentNumber::new(number)
}

/// A level, for tests.
#[cfg(test)]
pub(crate) fn level(number: usize) -> Level {
    Level::new(number).unwrap_or_else(|| panic!("level {number} does not exist"))
}

/// Numbers of segments, for tests.
#[cfg(test)]
pub(crate) fn segments<const N: usize>(numbers: [u64; N]) -> [SegmentNumber; N] {
    numbers.map(SegmentNumber::new)
}

/// An epoch, for tests.
#[cfg(test)]
pub(crate) const fn epoch(number: u64) -> DataEpoch {
    DataEpoch::new(number)
}

/// A table's uid, for tests.
#[cfg(test)]
pub(crate) const fn uid(number: u64) -> TableUid {
    TableUid::new(number)
}
