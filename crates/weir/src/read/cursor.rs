//! The engine's cursor: the user's view of one merge over memtables and runs.
//!
//! The public cursor and iterator wrap [`TreeCursor`], which pins a super-version and a sequence
//! number and checks at every step that the store is still open.
//!
//! Not here: the merge, and where it comes from (`merged`).

use std::ops::Bound;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::key::Seq;
use crate::gaps::Leaps;
use crate::read::merged::{Bounds, Merged, Newest, View};
use crate::read::sampled::{SampledScan, Start};
use crate::state::health;
use crate::state::shared::Shared;
use crate::state::tree::{SuperVersion, Tree};

/// The state that a cursor reads.
pub(crate) struct Scanned {
    /// The keyspace.
    pub(crate) tree: Arc<Tree>,
    /// Its super-version, pinned *after* the sequence number was entered in the snapshot list:
    /// neither it nor a later one lacks an entry that the cursor can see. An error: why there is
    /// nothing to read.
    pub(crate) pinned: Result<Arc<SuperVersion>>,
    /// A live snapshot's sequence number.
    pub(crate) seq: Seq,
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

/// The gaps that a scan of a keyspace may leap over.
#[inline]
fn leaps<'a>(tree: &'a Tree, shared: &'a Shared) -> Option<Leaps<'a>> {
    let (gaps, commits, entries) = (&tree.gaps, &shared.commits, shared.gap_entries);
    Some(Leaps { gaps, commits, entries })
}

/// A cursor over the visible entries of one keyspace within bounds.
///
/// When memory runs short it releases the memtables that it holds: it moves to the keyspace's
/// newest super-version, in which its snapshot protects everything that it can see.
pub(crate) struct TreeCursor {
    /// `None` if there is nothing to read.
    merged: Option<Box<Merged>>,
    /// Why there is nothing to read.
    nothing: Option<Error>,
    shared: Arc<Shared>,
    tree: Arc<Tree>,
    /// The last call for release that it has followed.
    release_seen: u64,
    closed: bool,
    /// The scan since the last seek, if it is counted.
    sampled: Option<SampledScan>,
    /// Entries passed since then, and whether backwards at last.
    passed: u64,
    is_backwards: bool,
}

impl TreeCursor {
    /// A cursor over this state. Not positioned. Without a super-version its status is the reason.
    pub(crate) fn new(shared: &Arc<Shared>, scanned: Scanned) -> Self {
        let Scanned { tree, pinned, seq, lower, upper } = scanned;
        let reader = (seq, (lower, upper));
        let merged = pinned.map(|of| Box::new(Merged::new(&tree, of, reader, false)));
        Self::over(shared, tree, merged)
    }

    /// A cursor over the newest super-version of `tree`, at a live snapshot's sequence number that
    /// was taken for it. Not positioned. Its status is `dropped` if the keyspace was dropped. Also
    /// whether something was released on the way.
    pub(crate) fn newest(
        shared: &Arc<Shared>,
        tree: &Arc<Tree>,
        (seq, bounds): (Seq, Bounds),
        dropped: impl FnOnce() -> Error,
    ) -> (Self, bool) {
        let Newest { merged, has_discarded } = Merged::newest(tree, seq, bounds);
        // A drop marks the tree before it empties it: what was the newest before the mark is whole.
        let merged = if tree.is_dropped() { Err(dropped()) } else { Ok(merged) };
        (Self::over(shared, Arc::clone(tree), merged), has_discarded)
    }

    fn over(shared: &Arc<Shared>, tree: Arc<Tree>, merged: Result<Box<Merged>>) -> Self {
        let (merged, nothing) = match merged {
            Ok(merged) => (Some(merged), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            merged,
            nothing,
            release_seen: shared.release_calls(),
            shared: Arc::clone(shared),
            tree,
            closed: false,
            sampled: None,
            passed: 0,
            is_backwards: false,
        }
    }

    /// The merge of a cursor that stands on an entry.
    #[inline]
    fn merged(&self) -> &Merged {
        self.merged.as_ref().expect("the cursor does not stand on an entry")
    }

    /// Whether the store is open; remembers when it is not. Follows a call for release.
    #[inline]
    fn check_open(&mut self) -> bool {
        self.closed = self.shared.health.is_closed();
        if self.closed || self.merged.is_none() {
            return false;
        }
        if self.shared.release_calls() != self.release_seen {
            self.move_to_newest();
        }
        true
    }

    /// Moves to the newest super-version, at the same position.
    #[cold]
    fn move_to_newest(&mut self) {
        self.release_seen = self.shared.release_calls();
        let newest = self.tree.pin();
        let Some(merged) = &mut self.merged else { return };
        // A dropped keyspace is emptied after it is marked: the cursor then keeps what it has
        // pinned. An error stays until the next seek.
        let same = Arc::ptr_eq(&merged.of, &newest);
        if !same && !self.tree.is_dropped() && merged.view.status().is_ok() {
            merged.move_to(&self.tree, newest);
        }
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        !self.closed && self.merged.as_ref().is_some_and(|merged| merged.view.valid())
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.merged().view.key()
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.merged().view.value()
    }

    /// Positions the cursor by `seek`, which is about `start`: a new scan.
    #[inline]
    fn position(&mut self, start: Start<'_>, seek: impl FnOnce(&mut View, Option<Leaps<'_>>)) {
        if !self.check_open() {
            return;
        }
        self.end_scan();
        let Some(merged) = &mut self.merged else { return };
        self.shared.counters.seeks.add(1);
        seek(&mut merged.view, leaps(&self.tree, &self.shared));
        (self.passed, self.is_backwards) = (0, false);
        if let Some(heat) = SampledScan::begin(&merged.of) {
            let sources = merged.view.inner().sources();
            // What a list serves is cached there, and what takes its place would not be.
            let counts_lists = merged.of.hands_over();
            let runs = sources.iter().filter(|source| counts_lists || !source.has_list());
            let runs = runs.filter(|source| source.is_open_run()).count();
            self.sampled = Some(SampledScan::at(
                (heat, &merged.of.version),
                start,
                merged.view.bounds(),
                runs,
            ));
        }
    }

    /// Counts the scan that ends here, if it is one that is counted.
    #[inline]
    fn end_scan(&mut self) {
        if let Some(scan) = self.sampled.take()
            && let Some(Merged { view, .. }) = self.merged.as_deref()
        {
            let key = view.valid().then(|| view.key());
            scan.end(key, view.bounds(), (self.passed, self.is_backwards));
        }
    }

    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.position(Start::Key(key), |view, leaps| view.seek(key, leaps));
    }

    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) {
        self.position(Start::Key(key), |view, leaps| view.seek_for_prev(key, leaps));
    }

    pub(crate) fn seek_to_first(&mut self) {
        self.position(Start::First, View::seek_to_first);
    }

    pub(crate) fn seek_to_last(&mut self) {
        self.position(Start::Last, View::seek_to_last);
    }

    #[inline]
    pub(crate) fn next(&mut self) {
        if self.check_open()
            && let Some(Merged { view, .. }) = self.merged.as_deref_mut()
            && view.valid()
        {
            self.passed += 1;
            view.next(leaps(&self.tree, &self.shared));
        }
    }

    #[inline]
    pub(crate) fn prev(&mut self) {
        if self.check_open()
            && let Some(Merged { view, .. }) = self.merged.as_deref_mut()
            && view.valid()
        {
            (self.passed, self.is_backwards) = (self.passed + 1, true);
            view.prev(leaps(&self.tree, &self.shared));
        }
    }

    pub(crate) fn status(&self) -> Result<()> {
        if self.closed {
            return Err(health::closed_error());
        }
        match (&self.merged, &self.nothing) {
            (Some(merged), _) => merged.view.status().map_err(|e| self.shared.health.or_closed(e)),
            (None, nothing) => nothing.clone().map_or(Ok(()), Err),
        }
    }
}

impl Drop for TreeCursor {
    fn drop(&mut self) {
        self.end_scan();
        // What a movement that unwinds leaves behind is not used again.
        if let Some(merged) = self.merged.take()
            && !self.shared.health.is_closed()
            && !std::thread::panicking()
        {
            merged.leave(&self.tree);
        }
    }
}
