//! The methods of a store that are about single keys and ranges: those of its keyspace `default`.
//!
//! Not here: what they do (`keyspace`). `flush` is not among them: that of a store is of all
//! keyspaces.

use crate::base::error::Result;
use crate::base::value::Value;
use crate::db::Db;
use crate::db::iter::{Cursor, Iter, Keys};
use crate::db::range::KeyRange;
use crate::options::Durability;

/// The methods of the default keyspace.
impl Db {
    /// See [`Keyspace::put`](crate::Keyspace::put).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// See [`Keyspace::put_with`](crate::Keyspace::put_with).
    ///
    /// # Errors
    /// As there.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.default.put_with(key, value, durability)
    }

    /// See [`Keyspace::delete`](crate::Keyspace::delete).
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }

    /// See [`Keyspace::delete_with`](crate::Keyspace::delete_with).
    ///
    /// # Errors
    /// As there.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.default.delete_with(key, durability)
    }

    /// See [`Keyspace::get`](crate::Keyspace::get).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default.get(key)
    }

    /// See [`Keyspace::get_into`](crate::Keyspace::get_into).
    ///
    /// # Errors
    /// As there.
    pub fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
        self.default.get_into(key, buf)
    }

    /// See [`Keyspace::contains_key`](crate::Keyspace::contains_key).
    ///
    /// # Errors
    /// As there.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.contains_key(key)
    }

    /// See [`Keyspace::multi_get`](crate::Keyspace::multi_get).
    ///
    /// # Errors
    /// As there.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.default.multi_get(keys)
    }

    /// See [`Keyspace::first`](crate::Keyspace::first).
    ///
    /// # Errors
    /// As there.
    pub fn first(&self) -> Result<Option<(Value, Value)>> {
        self.default.first()
    }

    /// See [`Keyspace::last`](crate::Keyspace::last).
    ///
    /// # Errors
    /// As there.
    pub fn last(&self) -> Result<Option<(Value, Value)>> {
        self.default.last()
    }

    /// Whether no key *of the keyspace `default`* has a value: see
    /// [`Keyspace::is_empty`](crate::Keyspace::is_empty).
    ///
    /// # Errors
    /// As there.
    pub fn is_empty(&self) -> Result<bool> {
        self.default.is_empty()
    }

    /// See [`Keyspace::keys`](crate::Keyspace::keys).
    #[must_use]
    pub fn keys(&self) -> Keys {
        self.default.keys()
    }

    /// See [`Keyspace::iter`](crate::Keyspace::iter).
    #[must_use]
    pub fn iter(&self) -> Iter {
        self.default.iter()
    }

    /// See [`Keyspace::range`](crate::Keyspace::range).
    pub fn range(&self, range: impl KeyRange) -> Iter {
        self.default.range(range)
    }

    /// See [`Keyspace::prefix`](crate::Keyspace::prefix).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.default.prefix(prefix)
    }

    /// See [`Keyspace::cursor`](crate::Keyspace::cursor).
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.default.cursor()
    }

    /// See [`Keyspace::cursor_range`](crate::Keyspace::cursor_range).
    pub fn cursor_range(&self, range: impl KeyRange) -> Cursor {
        self.default.cursor_range(range)
    }

    /// See [`Keyspace::compact_range`](crate::Keyspace::compact_range).
    ///
    /// # Errors
    /// As there.
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.default.compact_range(range)
    }

    /// See [`Keyspace::approximate_size`](crate::Keyspace::approximate_size).
    ///
    /// # Errors
    /// As there.
    pub fn approximate_size(&self, range: impl KeyRange) -> Result<u64> {
        self.default.approximate_size(range)
    }

    /// See [`Keyspace::approximate_count`](crate::Keyspace::approximate_count).
    ///
    /// # Errors
    /// As there.
    pub fn approximate_count(&self, range: impl KeyRange) -> Result<u64> {
        self.default.approximate_count(range)
    }
}
