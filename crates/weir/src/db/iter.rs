//! The public cursor and iterator.

use std::ops::Bound;
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::key::Seq;
use crate::base::value::Value;
use crate::db::closing::Handle;
use crate::read::cursor::{TreeCursor, View};
use crate::state::tree::{SuperVersion, Tree};

/// What a scan reads: a state of a keyspace and bounds. The state is pinned when the scan is asked
/// for, not when it first moves: the keyspace may be dropped in between.
pub(crate) struct Scan {
    pub(crate) handle: Arc<Handle>,
    pub(crate) tree: Arc<Tree>,
    /// Pinned after the snapshot was taken. `None` if the keyspace was dropped already.
    pub(crate) pinned: Option<Arc<SuperVersion>>,
    pub(crate) snapshot: SnapshotRef,
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

/// A live snapshot; releases it on drop.
pub(crate) struct SnapshotRef {
    handle: Arc<Handle>,
    pub(crate) seq: Seq,
}

impl SnapshotRef {
    /// A snapshot of what is visible now.
    pub(crate) fn take(handle: &Arc<Handle>) -> Self {
        let shared = &handle.engine.shared;
        let seq = shared.snapshots.take(shared.visible_cell());
        Self { handle: Arc::clone(handle), seq }
    }
}

impl Clone for SnapshotRef {
    fn clone(&self) -> Self {
        self.handle.engine.shared.snapshots.retain(self.seq);
        Self { handle: Arc::clone(&self.handle), seq: self.seq }
    }
}

impl Drop for SnapshotRef {
    fn drop(&mut self) {
        self.handle.engine.shared.snapshots.release(self.seq);
    }
}

/// A position in the entries of a keyspace, in key order: the form of reading without an allocation
/// per step.
///
/// It reads one state of the store, that of its creation or of its snapshot, for as long as it
/// lives; it owns what it needs and can be sent to another thread. It holds tables and memtables of
/// that state in memory and on disk: drop it when you are done.
///
/// `key` and `value` may be called while [`valid`](Self::valid) is true. When it is false, ask
/// [`status`](Self::status): the cursor is at the end, or an error stopped it.
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
    _reclaim: ReclaimOnDrop,
}

/// Has tables freed that only a dropped cursor still held.
struct ReclaimOnDrop(Arc<Handle>);

impl Drop for ReclaimOnDrop {
    fn drop(&mut self) {
        self.0.engine.reclaim_soon();
    }
}

impl Cursor {
    pub(crate) fn new(scan: Scan) -> Self {
        let Scan { handle, tree, pinned, snapshot, lower, upper } = scan;
        let view = View { tree, pinned, seq: snapshot.seq, lower, upper };
        let inner = TreeCursor::new(&handle.engine.shared, view);
        Self { inner, _snapshot: snapshot, _reclaim: ReclaimOnDrop(handle) }
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
    /// `Corruption` or `Io` if a block could not be read, `Closed` if the store was closed. `Ok` if
    /// the cursor is valid, at an end, or not positioned.
    pub fn status(&self) -> Result<()> {
        self.inner.status()
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
    done: bool,
    /// Keys given from the front end below this one (from the back), and the reverse.
    last_front: Option<Vec<u8>>,
    last_back: Option<Vec<u8>>,
}

impl Iter {
    pub(crate) fn new(scan: Scan) -> Self {
        Self {
            scan: Some(scan),
            front: None,
            back: None,
            done: false,
            last_front: None,
            last_back: None,
        }
    }

    fn make(&self) -> Option<Cursor> {
        let scan = self.scan.as_ref()?;
        Some(Cursor::new(Scan {
            handle: Arc::clone(&scan.handle),
            tree: Arc::clone(&scan.tree),
            pinned: scan.pinned.clone(),
            snapshot: scan.snapshot.clone(),
            lower: scan.lower.clone(),
            upper: scan.upper.clone(),
        }))
    }

    fn finish(&mut self, status: Result<()>) -> Option<Result<(Value, Value)>> {
        self.done = true;
        self.front = None;
        self.back = None;
        self.scan = None;
        status.err().map(Err)
    }
}

impl Iterator for Iter {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
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
        let item = (Value::from(cursor.key()), Value::from(cursor.value()));
        if self.back.is_some() {
            self.last_front = Some(item.0.to_vec());
        }
        Some(Ok(item))
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
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
        let item = (Value::from(cursor.key()), Value::from(cursor.value()));
        self.last_back = Some(item.0.to_vec());
        Some(Ok(item))
    }
}
