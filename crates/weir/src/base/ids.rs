//! Identities as types: two of them that change places do not compile.
//!
//! Numbers of what lasts (data epochs, tables, log groups) are stored in 64 bits and never used
//! again; what they are stored as is the codecs' business, which take them apart with `get`.

/// The age of a run's content: drawn when that is fixed, at a memtable's freeze or when a merge
/// pins its inputs (ARCHITECTURE §3, H22). A greater one is newer. 0 is before all.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DataEpoch(u64);

impl DataEpoch {
    /// Before all that are drawn.
    pub(crate) const ZERO: Self = Self(0);
    /// After all that are drawn.
    pub(crate) const MAX: Self = Self(u64::MAX);

    /// The epoch with this number.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// The one just newer.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The one just older; `None` if there is none.
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
    /// Of the keyspace that every store has.
    pub(crate) const DEFAULT: Self = Self(0);

    /// The keyspace with this number.
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    /// The one that is given out after it.
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

/// Which store a log belongs to: drawn when the store is created, in every segment of its logs and
/// in the seed of their checksums, so that what another store wrote is not taken for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lineage(u64);

impl Lineage {
    /// Of a log that has not said yet whose it is.
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
