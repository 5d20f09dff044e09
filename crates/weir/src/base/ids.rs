//! Identifiers as types: code that swaps two of them does not compile.
//!
//! Numbers of durable things (data epochs, tables, log groups) have 64 bits and are never reused;
//! codecs store what `get` returns.

/// The age of a run's content: drawn when the content is fixed, at a memtable's freeze or when a
/// merge pins its inputs (ARCHITECTURE §3, H22). A greater one is newer. 0 is older than all.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DataEpoch(u64);

impl DataEpoch {
    /// Older than all that are drawn.
    pub(crate) const ZERO: Self = Self(0);
    /// Newer than all that are drawn.
    pub(crate) const MAX: Self = Self(u64::MAX);

    /// The epoch with this number.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// The next newer one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The next older one; `None` for zero.
    pub(crate) fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

impl std::fmt::Display for DataEpoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Debug for DataEpoch {
    /// The number alone: messages show lists of them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A keyspace's number, never used twice in a store.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyspaceId(u32);

impl KeyspaceId {
    /// The default keyspace, which every store has.
    pub(crate) const DEFAULT: Self = Self(0);

    /// The keyspace with this number.
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub(crate) const fn get(self) -> u32 {
        self.0
    }

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

impl std::fmt::Display for KeyspaceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Debug for KeyspaceId {
    /// The number alone: messages show lists of them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Identity of the store that a log belongs to: drawn at creation, stored in every segment of its
/// logs and part of their checksums' seed, so that another store's groups are not taken for its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lineage(u64);

impl Lineage {
    /// Of a log whose lineage is not known yet.
    pub(crate) const UNKNOWN: Self = Self(0);

    /// The lineage with this number.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::LowerHex for Lineage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An epoch, for tests.
#[cfg(test)]
pub(crate) const fn epoch(number: u64) -> DataEpoch {
    DataEpoch::new(number)
}
