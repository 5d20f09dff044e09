//! The public cursor and iterator.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Bound;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::key::Seq;
use crate::base::value::Value;
use crate::db::closing::Handle;
use crate::db::range::OwnedBounds;
use crate::read::cursor::{Scanned, TreeCursor};
use crate::state::snapshots::Hold;
use crate::state::tree::{SuperVersion, Tree};

/// What a scan reads: a state of a keyspace and bounds. The state is pinned when the scan is asked
/// for, not when it first moves: the keyspace may be dropped in between.
#[derive(Clone)]
pub(crate) struct Scan {
    pub(crate) tree: Arc<Tree>,
    /// Pinned after the snapshot was taken. An error if there is nothing to read: the keyspace was
    /// dropped already, or is not the snapshot's.
    pub(crate) pinned: Result<Arc<SuperVersion>>,
    pub(crate) snapshot: SnapshotRef,
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

/// A live snapshot; releases it on drop.
pub(crate) struct SnapshotRef {
    handle: Arc<Handle>,
    hold: Hold,
}

impl SnapshotRef {
    /// A snapshot of what is visible now.
    pub(crate) fn take(handle: &Arc<Handle>) -> Self {
        let shared = &handle.engine.shared;
        let hold = shared.snapshots.take(shared.visible_cell());
        Self { handle: Arc::clone(handle), hold }
    }

    /// Its sequence number.
    pub(crate) fn seq(&self) -> Seq {
        self.hold.seq
    }
}

impl Clone for SnapshotRef {
    fn clone(&self) -> Self {
        let hold = self.handle.engine.shared.snapshots.retain(self.hold);
        Self { handle: Arc::clone(&self.handle), hold }
    }
}

impl Drop for SnapshotRef {
    fn drop(&mut self) {
        let engine = &self.handle.engine;
        engine.shared.snapshots.release(self.hold);
        // Tables that only the cursor of this snapshot held can be freed now.
        engine.reclaim_soon();
    }
}

/// A position in the entries of a keyspace, in key order: the form of reading without an allocation
/// per step.
///
/// It reads one state of the store, that of its creation or of its snapshot, for as long as it
/// lives; it owns what it needs and can be sent to another thread. It holds tables and memtables of
/// that state in memory and on disk: drop it when you are done.
///
/// `key` and `value` may be called while [`valid`](Self::valid) is true; [`entry`](Self::entry) may
/// always be. When the cursor is not valid, ask [`status`](Self::status): it is at the end, or an
/// error stopped it.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = weir::Db::open(dir.path().join("db"))?;
/// # db.put(b"a", b"1")?;
/// let mut cursor = db.cursor();
/// cursor.seek_to_first();
/// while cursor.valid() {
///     println!("{:?} = {:?}", cursor.key(), cursor.value());
///     cursor.next();
/// }
/// cursor.status()?;
/// # Ok::<(), weir::Error>(())
/// ```
pub struct Cursor {
    // In this order: what the cursor holds of tables goes before the reclaimer is asked.
    inner: TreeCursor,
    _snapshot: SnapshotRef,
}

impl Cursor {
    pub(crate) fn new(scan: Scan) -> Self {
        let Scan { tree, pinned, snapshot, lower, upper } = scan;
        let scanned = Scanned { tree, pinned, seq: snapshot.seq(), lower, upper };
        let inner = TreeCursor::new(&snapshot.handle.engine.shared, scanned);
        Self { inner, _snapshot: snapshot }
    }

    /// A cursor over the newest state of a keyspace, within bounds; its status is `dropped` if the
    /// keyspace was dropped.
    pub(crate) fn newest(
        handle: &Arc<Handle>,
        tree: &Arc<Tree>,
        bounds: OwnedBounds,
        dropped: impl FnOnce() -> Error,
    ) -> Self {
        // First the snapshot, then the super-version: it has everything that the snapshot can see.
        let snapshot = SnapshotRef::take(handle);
        let shared = &handle.engine.shared;
        let (inner, has_released) =
            TreeCursor::newest(shared, tree, (snapshot.seq(), bounds), dropped);
        if has_released {
            handle.engine.reclaim_soon();
        }
        Self { inner, _snapshot: snapshot }
    }

    /// Whether the cursor stands on an entry.
    #[must_use]
    #[inline]
    pub fn valid(&self) -> bool {
        self.inner.valid()
    }

    /// The key it stands on.
    ///
    /// # Panics
    /// If the cursor is not [`valid`](Self::valid).
    #[must_use]
    #[inline]
    pub fn key(&self) -> &[u8] {
        assert!(self.valid(), "key() of a cursor that is not valid");
        self.inner.key()
    }

    /// The value it stands on.
    ///
    /// # Panics
    /// If the cursor is not [`valid`](Self::valid).
    #[must_use]
    #[inline]
    pub fn value(&self) -> &[u8] {
        assert!(self.valid(), "value() of a cursor that is not valid");
        self.inner.value()
    }

    /// The entry it stands on; `None` if the cursor is not [`valid`](Self::valid).
    #[must_use]
    #[inline]
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.valid().then(|| (self.inner.key(), self.inner.value()))
    }

    /// Moves to the first entry at or after `key`.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.inner.seek(key.as_ref());
    }

    /// Moves to the last entry at or before `key`.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) {
        self.inner.seek_for_prev(key.as_ref());
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) {
        self.inner.seek_to_first();
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) {
        self.inner.seek_to_last();
    }

    /// Moves to the next entry; does nothing on a cursor that is not valid.
    #[inline]
    pub fn next(&mut self) {
        self.inner.next();
    }

    /// Moves to the previous entry; does nothing on a cursor that is not valid.
    #[inline]
    pub fn prev(&mut self) {
        self.inner.prev();
    }

    /// Why the cursor is not valid.
    ///
    /// # Errors
    /// `Corruption` or `Io` if a block could not be read, `Closed` if the store was closed or the
    /// keyspace dropped before, `InvalidArgument` for a keyspace of another store than the
    /// snapshot's. `Ok` if the cursor is valid, at an end, or not positioned.
    pub fn status(&self) -> Result<()> {
        self.inner.status()
    }
}

impl Cursor {
    /// Whether there is no entry. Moves to the first.
    pub(super) fn finds_nothing(mut self) -> Result<bool> {
        self.seek_to_first();
        if self.valid() { Ok(false) } else { self.status().map(|()| true) }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.entry().map(|(key, _)| Value::from(key));
        f.debug_struct("Cursor").field("key", &key).finish_non_exhaustive()
    }
}

/// The entries of a range, in key order, from either end.
///
/// It reads one state of the store for as long as it lives and owns what it needs. Each item is a
/// copy; use a [`Cursor`] to read without copies. After an error it ends.
pub struct Iter {
    scan: Option<Scan>,
    front: Option<Cursor>,
    back: Option<Cursor>,
    /// Keys given from the front end below this one (from the back), and the reverse.
    last_front: Option<Vec<u8>>,
    last_back: Option<Vec<u8>>,
}

impl Iter {
    pub(crate) fn new(scan: Scan) -> Self {
        Self { scan: Some(scan), front: None, back: None, last_front: None, last_back: None }
    }

    /// The keys alone, from where this iterator stands: no value is copied on the way forward.
    #[must_use]
    pub fn keys(self) -> Keys {
        Keys(self)
    }

    /// A cursor over the range; `None` after the end.
    fn make(&self) -> Option<Cursor> {
        self.scan.clone().map(Cursor::new)
    }

    /// The end, and the error that is the reason for it if there is one.
    fn finish(&mut self, status: Result<()>) -> Option<Result<()>> {
        *self = Self { scan: None, front: None, back: None, last_front: None, last_back: None };
        status.err().map(Err)
    }

    /// Moves the front cursor to the next entry.
    fn advance(&mut self) -> Option<Result<()>> {
        match &mut self.front {
            Some(cursor) => cursor.next(),
            None => {
                let mut cursor = self.make()?;
                cursor.seek_to_first();
                self.front = Some(cursor);
            }
        }
        let cursor = self.front.as_ref()?;
        if !cursor.valid() {
            let status = cursor.status();
            return self.finish(status);
        }
        if self.last_back.as_deref().is_some_and(|back| cursor.key() >= back) {
            return self.finish(Ok(()));
        }
        if self.back.is_some() {
            self.last_front = Some(cursor.key().to_vec());
        }
        Some(Ok(()))
    }

    /// Moves the back cursor to the previous entry.
    fn retreat(&mut self) -> Option<Result<()>> {
        match &mut self.back {
            Some(cursor) => cursor.prev(),
            None => {
                let mut cursor = self.make()?;
                cursor.seek_to_last();
                self.back = Some(cursor);
                // From now on the front remembers what it gave; what it gave last is still there.
                if let Some(front) = &self.front
                    && front.valid()
                {
                    self.last_front = Some(front.key().to_vec());
                }
            }
        }
        let cursor = self.back.as_ref()?;
        if !cursor.valid() {
            let status = cursor.status();
            return self.finish(status);
        }
        if self.last_front.as_deref().is_some_and(|front| cursor.key() <= front) {
            return self.finish(Ok(()));
        }
        self.last_back = Some(cursor.key().to_vec());
        Some(Ok(()))
    }
}

fn key(cursor: &Cursor) -> Value {
    Value::from(cursor.key())
}

fn entry(cursor: &Cursor) -> (Value, Value) {
    (Value::from(cursor.key()), Value::from(cursor.value()))
}

impl Iterator for Iter {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        let moved = self.advance()?;
        let front = self.front.as_ref();
        moved.map(|()| front.map(entry)).transpose()
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        let moved = self.retreat()?;
        let back = self.back.as_ref();
        moved.map(|()| back.map(entry)).transpose()
    }
}

impl FusedIterator for Iter {}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter")
            .field("ended", &self.scan.is_none())
            .field("front", &self.front)
            .field("back", &self.back)
            .finish_non_exhaustive()
    }
}

/// The keys of a range, in order, from either end: an [`Iter`] without the values.
///
/// It reads one state of the store for as long as it lives and owns what it needs. After an error
/// it ends.
#[derive(Debug)]
pub struct Keys(Iter);

impl Iterator for Keys {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        let moved = self.0.advance()?;
        let front = self.0.front.as_ref();
        moved.map(|()| front.map(key)).transpose()
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        let moved = self.0.retreat()?;
        let back = self.0.back.as_ref();
        moved.map(|()| back.map(key)).transpose()
    }
}

impl FusedIterator for Keys {}
