//! Handles of snapshots: the reading half of a keyspace, at a moment of the past.

use std::ops::Bound;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::value::Value;
use crate::db::closing::Handle;
use crate::db::iter::{Cursor, Iter, Keys, Scan, SnapshotRef};
use crate::db::keyspace::{Keyspace, lacks_some, prefix_bounds};
use crate::db::range::{KeyRange, OwnedBounds};
use crate::read::get;

/// A state of the whole store that does not change: everything committed before it was taken, and
/// nothing after. Cheap to take and to clone; while it lives, compaction keeps the entries that it
/// can see.
///
/// It has the reading methods of [`Keyspace`], with the keyspace that is meant as an argument.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) inner: SnapshotRef,
    pub(crate) handle: Arc<Handle>,
}

impl Snapshot {
    /// Number of the last write that it can see. Later snapshots have the same or a larger number.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.inner.seq()
    }

    /// That the keyspace is one of this store.
    fn check_store(&self, keyspace: &Keyspace) -> Result<()> {
        if Arc::ptr_eq(&self.handle, &keyspace.handle) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the snapshot belongs to another store than keyspace {:?}; use one of that store",
            keyspace.name()
        )))
    }

    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        self.check_store(keyspace)?;
        keyspace.check()
    }

    fn scan(&self, keyspace: &Keyspace, bounds: OwnedBounds) -> Scan {
        let mut scan = keyspace.scan(Some(self.inner.clone()), bounds);
        if let Err(error) = self.check_store(keyspace) {
            scan.pinned = Err(error);
        }
        scan
    }

    /// The value that `key` had.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `InvalidArgument` for a keyspace of another store.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.check(keyspace)?;
        let shared = &self.handle.engine.shared;
        let found = get::get(shared, &keyspace.tree, key.as_ref(), Some(self.inner.seq()));
        keyspace.answer(found, Option::is_none)
    }

    /// Copies the value that `key` had into `buf` (cleared first); false if it had none.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_into(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        buf: &mut Vec<u8>,
    ) -> Result<bool> {
        self.check(keyspace)?;
        let shared = &self.handle.engine.shared;
        let found =
            get::get_into(shared, &keyspace.tree, key.as_ref(), Some(self.inner.seq()), buf);
        keyspace.answer(found, |found| !found)
    }

    /// Whether `key` had a value. Costs what [`get`](Self::get) does, but for the copy of the
    /// value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains_key(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check(keyspace)?;
        let shared = &self.handle.engine.shared;
        let found = get::contains(shared, &keyspace.tree, key.as_ref(), Some(self.inner.seq()));
        keyspace.answer(found, |found| !found)
    }

    /// The values that several keys had, in the order asked.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Value>>> {
        self.check(keyspace)?;
        let shared = &self.handle.engine.shared;
        let found = get::multi_get(shared, &keyspace.tree, keys, Some(self.inner.seq()));
        keyspace.answer(found, |found| lacks_some(found))
    }

    /// The entry that had the smallest key: see [`Keyspace::first`].
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn first(&self, keyspace: &Keyspace) -> Result<Option<(Value, Value)>> {
        self.iter(keyspace).next().transpose()
    }

    /// The entry that had the largest key: see [`Keyspace::last`].
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn last(&self, keyspace: &Keyspace) -> Result<Option<(Value, Value)>> {
        self.iter(keyspace).next_back().transpose()
    }

    /// Whether no key had a value: see [`Keyspace::is_empty`].
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn is_empty(&self, keyspace: &Keyspace) -> Result<bool> {
        self.cursor(keyspace).finds_nothing()
    }

    /// All keys that had a value, in order. Those of a range or prefix: [`Iter::keys`].
    #[must_use]
    pub fn keys(&self, keyspace: &Keyspace) -> Keys {
        self.iter(keyspace).keys()
    }

    /// All entries that the keyspace had. For a keyspace of another store the iterator gives
    /// `InvalidArgument` as its first item, and so do those of `keys`, `range` and `prefix`.
    #[must_use]
    pub fn iter(&self, keyspace: &Keyspace) -> Iter {
        Iter::new(self.scan(keyspace, (Bound::Unbounded, Bound::Unbounded)))
    }

    /// The entries that the keyspace had in `range`.
    pub fn range(&self, keyspace: &Keyspace, range: impl KeyRange) -> Iter {
        Iter::new(self.scan(keyspace, range.into_bounds()))
    }

    /// The entries that the keyspace had under `prefix`.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::new(self.scan(keyspace, prefix_bounds(prefix.as_ref())))
    }

    /// A cursor over what the keyspace had, not positioned. For a keyspace of another store it is
    /// never valid, and its [`status`](Cursor::status) is `InvalidArgument`.
    #[must_use]
    pub fn cursor(&self, keyspace: &Keyspace) -> Cursor {
        Cursor::new(self.scan(keyspace, (Bound::Unbounded, Bound::Unbounded)))
    }

    /// A cursor over the entries that the keyspace had in `range`, not positioned.
    pub fn cursor_range(&self, keyspace: &Keyspace, range: impl KeyRange) -> Cursor {
        Cursor::new(self.scan(keyspace, range.into_bounds()))
    }

    /// As [`Keyspace::approximate_size`], of the keyspace as it is *now*: tables do not tell which
    /// of their entries a snapshot sees.
    ///
    /// # Errors
    /// As there; `InvalidArgument` for a keyspace of another store.
    pub fn approximate_size(&self, keyspace: &Keyspace, range: impl KeyRange) -> Result<u64> {
        self.check(keyspace)?;
        keyspace.approximate_size(range)
    }

    /// As [`Keyspace::approximate_count`], of the keyspace as it is *now*. All that the snapshot
    /// sees is counted, and what was written later too.
    ///
    /// # Errors
    /// As there; `InvalidArgument` for a keyspace of another store.
    pub fn approximate_count(&self, keyspace: &Keyspace, range: impl KeyRange) -> Result<u64> {
        self.check(keyspace)?;
        keyspace.approximate_count(range)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}
