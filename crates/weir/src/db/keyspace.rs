//! Handles of keyspaces.
//!
//! Not here: keyspaces as snapshots see them (`snapshot`), their beginning and end (`keyspaces`).

use std::ops::Bound;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
#[cfg(any(test, feature = "sim"))]
use crate::base::interval::Interval;
use crate::base::key::Kind;
use crate::base::value::Value;
use crate::db::closing::Handle;
use crate::db::estimates;
use crate::db::iter::{Cursor, Iter, Keys, Scan, SnapshotRef};
use crate::db::range::{KeyRange, OwnedBounds};
use crate::options::{Durability, Options};
use crate::read::get;
use crate::state::tree::Tree;

/// A named, ordered map of byte strings inside a store (a *column family*, in the words of other
/// engines). Cheap to clone; every clone is the same keyspace.
///
/// All keyspaces of a store share one log, one cache and one memory budget; each has a tree and
/// options of its own. A [`WriteBatch`](crate::WriteBatch) over several is atomic.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) handle: Arc<Handle>,
    pub(crate) tree: Arc<Tree>,
}

/// The bounds of all keys that begin with `prefix`.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut end = prefix.to_vec();
    // The smallest key above all keys with the prefix: drop trailing 0xff, then add one.
    while end.last() == Some(&0xff) {
        end.pop();
    }
    let upper = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), upper)
}

/// Whether one of several keys has no value.
pub(super) fn lacks_some(answers: &[Option<Value>]) -> bool {
    answers.iter().any(Option::is_none)
}

impl Keyspace {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.tree.name
    }

    /// Its options as of now, as they were given: where the memory budget allows less than
    /// [`Options::write_buffer_bytes`], less is used, but this is what is stored.
    #[must_use]
    pub fn options(&self) -> Options {
        let root = self.handle.engine.set.current();
        match root.keyspaces.get(self.tree.id) {
            Some(stored) => (*stored.options).clone(),
            // It was dropped.
            None => (*self.tree.peek().options).clone(),
        }
    }

    /// Replaces the keyspace's options, durably: they hold from now on, and at every later opening.
    /// Options that are stored already are left alone, at no cost.
    ///
    /// What holds from when on:
    /// * **at once**, for writers and for what background work is chosen next: the limits of a
    ///   memtable (`write_buffer_bytes`, `write_buffer_entries`; one that is beyond the new limit
    ///   is frozen by the next write), `immutables_max`, the shape of the tree (`compaction` with
    ///   the policy's options), `compaction_buffer` (lists that the new options do not allow go),
    ///   `sentinels` and `idle_compaction`;
    /// * **for tables that a flush or compaction writes that begins later**: `block_bytes`,
    ///   `table_bytes`, `odd_chunk`, `bloom_bits`, `filters`, `compression`. A table that is there
    ///   keeps its form until a compaction rewrites it;
    /// * **with the next compaction**: `warm_up`.
    ///
    /// It costs a write and a sync of the version log, behind flushes and compactions that are just
    /// being recorded. Later it costs the compactions that the new options make due: another shape
    /// may have the whole keyspace rewritten, in the background.
    ///
    /// # Errors
    /// `InvalidArgument` for an option outside its range, `Unsupported` for a compression that was
    /// not built in, `ReadOnly` in a store that is open for reading only, `Closed`, `Poisoned`,
    /// `NoSpace`: nothing was changed. `Io`: the store is `Poisoned` if the version log may hold
    /// the new options.
    pub fn set_options(&self, options: Options) -> Result<()> {
        self.check()?;
        let engine = &self.handle.engine;
        engine.guarded("a change of options", || engine.set_options(&self.tree, options))
    }

    pub(super) fn check(&self) -> Result<()> {
        self.handle.engine.shared.health.check_open()?;
        if !self.tree.is_dropped() {
            return Ok(());
        }
        Err(self.dropped())
    }

    #[cold]
    fn dropped(&self) -> Error {
        Error::new(
            ErrorKind::Closed,
            format!("keyspace {:?} was dropped; create it again to use the name", self.tree.name),
        )
    }

    /// The answer of a point lookup. One that `lacks` a value is looked at again: a drop marks the
    /// tree before it empties it, so what is missing may be missing because of a drop.
    #[inline]
    pub(super) fn answer<T>(&self, found: Result<T>, lacks: impl FnOnce(&T) -> bool) -> Result<T> {
        match found {
            Ok(answer) if lacks(&answer) && self.tree.is_dropped() => Err(self.dropped()),
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.handle.engine.shared.health.or_closed(error)),
        }
    }

    /// Gives `key` a value; it survives a crash of the process ([`Durability::Buffered`]).
    ///
    /// # Errors
    /// `InvalidArgument` if key or value exceed their [limits](crate#limits), `NoSpace` if the
    /// device is full, `Poisoned` after an earlier failed sync, `Io`, `Closed`, `ReadOnly`; and if
    /// the write has to wait for a flush or a compaction that cannot be done, the error of that,
    /// such as `Corruption`. Nothing is visible then. After `Io` it is open whether the write will
    /// be there after a crash, until a later write has succeeded.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, Durability::Buffered)
    }

    /// Gives `key` a value that is as durable as asked for when the call returns.
    ///
    /// # Errors
    /// As [`put`](Self::put). With [`Durability::Sync`], an error of the sync leaves it open
    /// whether the write will be there after a crash.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.write_one(Kind::Put, key.as_ref(), value.as_ref(), durability)
    }

    /// Takes the value of `key` away, if it has one.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, Durability::Buffered)
    }

    /// As [`delete`](Self::delete), as durable as asked for.
    ///
    /// # Errors
    /// As [`put_with`](Self::put_with).
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.write_one(Kind::Delete, key.as_ref(), &[], durability)
    }

    fn write_one(
        &self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<()> {
        self.check()?;
        self.handle.engine.check_sizes(key, value)?;
        self.handle.engine.write_one(&self.tree, kind, key, value, durability)
    }

    /// The value of `key`, if it has one. The bytes may share a cached block: they stay valid for
    /// as long as the value lives.
    ///
    /// # Errors
    /// `Corruption` with file, offset and key range if the block that should hold it is damaged;
    /// `Io`; `Closed`.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.check()?;
        let shared = &self.handle.engine.shared;
        self.answer(get::get(shared, &self.tree, key.as_ref(), None), Option::is_none)
    }

    /// Copies the value of `key` into `buf` (cleared first); false if it has none.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
        self.check()?;
        let shared = &self.handle.engine.shared;
        self.answer(get::get_into(shared, &self.tree, key.as_ref(), None, buf), |found| !found)
    }

    /// Whether `key` has a value. Costs what [`get`](Self::get) does, but for the copy of the
    /// value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check()?;
        let shared = &self.handle.engine.shared;
        self.answer(get::contains(shared, &self.tree, key.as_ref(), None), |found| !found)
    }

    /// The values of several keys, all in the same state of the store, in the order asked.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.check()?;
        let shared = &self.handle.engine.shared;
        self.answer(get::multi_get(shared, &self.tree, keys, None), |found| lacks_some(found))
    }

    /// The entry with the smallest key. Costs a seek, and a step for each delete before that key
    /// that compactions have not dropped yet.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn first(&self) -> Result<Option<(Value, Value)>> {
        self.iter().next().transpose()
    }

    /// The entry with the largest key. Costs what [`first`](Self::first) does.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn last(&self) -> Result<Option<(Value, Value)>> {
        self.iter().next_back().transpose()
    }

    /// Whether no key has a value. Costs what [`first`](Self::first) does.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn is_empty(&self) -> Result<bool> {
        self.cursor().finds_nothing()
    }

    /// All keys in order, without their values. Those of a range or prefix: [`Iter::keys`].
    #[must_use]
    pub fn keys(&self) -> Keys {
        self.iter().keys()
    }

    /// All entries in key order.
    #[must_use]
    pub fn iter(&self) -> Iter {
        Iter::new(self.scan(None, (Bound::Unbounded, Bound::Unbounded)))
    }

    /// The entries whose keys lie in `range`.
    pub fn range(&self, range: impl KeyRange) -> Iter {
        Iter::new(self.scan(None, range.into_bounds()))
    }

    /// The entries whose keys begin with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::new(self.scan(None, prefix_bounds(prefix.as_ref())))
    }

    /// A cursor over all entries, not positioned.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.cursor_over((Bound::Unbounded, Bound::Unbounded))
    }

    /// A cursor over the entries in `range`, not positioned.
    pub fn cursor_range(&self, range: impl KeyRange) -> Cursor {
        self.cursor_over(range.into_bounds())
    }

    fn cursor_over(&self, bounds: OwnedBounds) -> Cursor {
        Cursor::newest(&self.handle, &self.tree, bounds, || self.dropped())
    }

    pub(super) fn scan(
        &self,
        snapshot: Option<SnapshotRef>,
        (lower, upper): (Bound<Vec<u8>>, Bound<Vec<u8>>),
    ) -> Scan {
        // First the snapshot, then the super-version: it has everything that the snapshot can see.
        let snapshot = snapshot.unwrap_or_else(|| SnapshotRef::take(&self.handle));
        // A drop marks the tree before it empties it: what was pinned before the mark is whole.
        let pinned = self.tree.pin();
        Scan {
            tree: Arc::clone(&self.tree),
            pinned: if self.tree.is_dropped() { Err(self.dropped()) } else { Ok(pinned) },
            snapshot,
            lower,
            upper,
        }
    }

    /// Writes the memtable out as a table and waits until that is durable. Durable afterwards: this
    /// keyspace as of the call, and every write to other keyspaces that was committed before its
    /// last one. [`Db::sync`](crate::Db::sync) makes everything durable.
    ///
    /// # Errors
    /// `NoSpace` where a flush finds none, `Poisoned`, `Io`, `Closed`.
    pub fn flush(&self) -> Result<()> {
        self.check()?;
        let engine = &self.handle.engine;
        engine.guarded("a flush", || engine.flush(&self.tree))
    }

    /// Merges everything in `range` down to one level and waits for it. Frees the space of deleted
    /// and overwritten entries that no snapshot needs. Cost: reads and writes every table that
    /// overlaps the range once, and the device needs space for all of them; policies that merge
    /// whole runs take all runs from the newest to the oldest that has keys in the range.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); `Corruption` if an input is damaged; `Conflict` if compactions
    /// that are picked meanwhile are in its way each time.
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.check()?;
        let (lower, upper) = range.into_bounds();
        let engine = &self.handle.engine;
        let compact = || engine.compact_range(&self.tree, lower, upper);
        engine.guarded("a compaction", compact)
    }

    /// Merges what all runs hold of `range` to the top, if no other job is in the way; whether it
    /// did. For simulations.
    ///
    /// # Errors
    /// As [`compact_range`](Self::compact_range).
    #[cfg(any(test, feature = "sim"))]
    pub fn build_sentinel(&self, range: impl KeyRange) -> Result<bool> {
        self.check()?;
        let interval = Interval::of_bounds(range.into_bounds());
        let engine = &self.handle.engine;
        engine.guarded("a sentinel", || engine.build_sentinel(&self.tree, interval))
    }

    /// Bytes on disk of the entries in `range`: an estimate from the tables' block indexes, off by
    /// up to a block per table, without what is still in memtables. Costs a look at the index of
    /// each table that an end of the range cuts.
    ///
    /// # Errors
    /// `Corruption` or `Io` if a table cannot be opened, `Closed`.
    pub fn approximate_size(&self, range: impl KeyRange) -> Result<u64> {
        self.check()?;
        let (lower, upper) = range.into_bounds();
        self.estimated(estimates::size(&self.tree, &lower, &upper))
    }

    /// Number of entries in `range`: an estimate from above. An overwritten or deleted key is
    /// counted once for each version that compactions have not dropped yet. Of a table that an end
    /// of the range cuts, a share is counted, which is off by some blocks' entries if these are of
    /// very different sizes.
    ///
    /// Costs what [`approximate_size`](Self::approximate_size) does, and up to some thousand steps
    /// through memtables; of memtables with more in the range all entries are counted. To count
    /// exactly, count [`keys`](Self::keys).
    ///
    /// # Errors
    /// As [`approximate_size`](Self::approximate_size).
    pub fn approximate_count(&self, range: impl KeyRange) -> Result<u64> {
        self.check()?;
        let (lower, upper) = range.into_bounds();
        self.estimated(estimates::count(&self.tree, &lower, &upper))
    }

    fn estimated(&self, estimate: Result<u64>) -> Result<u64> {
        estimate.map_err(|e| self.handle.engine.shared.health.or_closed(e))
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.tree.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_bounds_end_right_after_the_prefix() {
        let upper = |p: &[u8]| prefix_bounds(p).1;
        assert_eq!(upper(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(upper(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(upper(b"\xff\xff"), Bound::Unbounded);
        assert_eq!(upper(b""), Bound::Unbounded);
    }
}
