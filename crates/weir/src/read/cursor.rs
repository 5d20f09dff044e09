//! The engine's cursor: the user's view of one merge over memtables and runs.
//!
//! The public cursor and iterator wrap [`TreeCursor`], which pins a super-version and a sequence
//! number and checks at every step that the store is still open.

use std::ops::Bound;
use std::sync::Arc;

use crate::base::cursor::{Approach, Cursor};
use crate::base::error::Result;
use crate::base::key::{Kind, Seq};
use crate::cache::Purpose;
use crate::gaps::Leaps;
use crate::memtable::MemtableCursor;
use crate::merge::{MergingCursor, Visible, Without};
use crate::read::buffered::{self, BufferedCursor, Scan, list_of};
use crate::read::sampled::{SampledScan, Start};
use crate::state::health;
use crate::state::shared::Shared;
use crate::state::tree::{SuperVersion, Tree};
use crate::table::{CursorOptions, ReadAhead, TableCursor};
use crate::version::run::Run;
use crate::version::run_cursor::RunCursor;

/// One source of a merge. An enum, so that the inner loop has no dynamic dispatch.
pub(crate) enum Source {
    Memtable(MemtableCursor),
    Table(TableCursor),
    Run(RunCursor),
    Buffered(Box<BufferedCursor>),
    /// One of these, of whose entries some are hidden.
    Without(Box<Without<Source>>),
}

impl Source {
    /// Whether it is a run and stands on an entry, of which a block was read.
    fn is_open_run(&self) -> bool {
        !matches!(self, Self::Memtable(_)) && self.valid() && !self.is_ahead()
    }
}

macro_rules! each {
    ($self:expr, $c:ident => $body:expr) => {
        match $self {
            Source::Memtable($c) => $body,
            Source::Table($c) => $body,
            Source::Run($c) => $body,
            Source::Buffered($c) => $body,
            Source::Without($c) => $body,
        }
    };
}

impl Cursor for Source {
    #[inline]
    fn valid(&self) -> bool {
        each!(self, c => c.valid())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, c => c.key())
    }
    #[inline]
    fn seq(&self) -> Seq {
        each!(self, c => c.seq())
    }
    #[inline]
    fn kind(&self) -> Kind {
        each!(self, c => c.kind())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        each!(self, c => c.value())
    }
    fn may_be_ahead(&self) -> bool {
        matches!(self, Self::Without(_))
    }
    #[inline]
    fn is_ahead(&self) -> bool {
        match self {
            Self::Without(c) => c.is_ahead(),
            _ => false,
        }
    }
    fn arrive(&mut self) {
        if let Self::Without(c) = self {
            c.arrive();
        }
    }
    fn approach(&mut self, key: &[u8], seq: Seq, step: Approach) {
        each!(self, c => c.approach(key, seq, step));
    }
    fn seek(&mut self, key: &[u8], seq: Seq) {
        each!(self, c => c.seek(key, seq));
    }
    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        each!(self, c => c.seek_for_prev(key, seq));
    }
    fn seek_to_first(&mut self) {
        each!(self, c => c.seek_to_first());
    }
    fn seek_to_last(&mut self) {
        each!(self, c => c.seek_to_last());
    }
    #[inline]
    fn next(&mut self) {
        each!(self, c => c.next());
    }
    #[inline]
    fn prev(&mut self) {
        each!(self, c => c.prev());
    }
    fn status(&self) -> Result<()> {
        each!(self, c => c.status())
    }
}

/// The sources of a super-version, newest first, without runs of one table outside the bounds.
fn sources(current: &SuperVersion, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> Vec<Source> {
    let options = CursorOptions {
        purpose: Purpose::Foreground,
        fill_cache: true,
        readahead: ReadAhead::Scan,
    };
    let scan = Scan { options, takes_unknown: current.options.compaction_buffer.trims() };
    let runs = current.version.runs_newest_first().count();
    let mut sources = Vec::with_capacity(1 + current.immutables.len() + runs);
    for flushable in std::iter::once(&current.active).chain(&current.immutables) {
        if !flushable.memtable.is_empty() {
            sources.push(Source::Memtable(flushable.memtable.cursor()));
        }
    }
    let mut limits = None;
    for (run, passed_over) in current.version.runs_for_scans() {
        let Some(source) = source_of(run, (options, scan), lower, upper) else { continue };
        match passed_over.map(|all| buffered::shown(run, all)) {
            None => sources.push(source),
            Some(hidden) => {
                let limits = limits.get_or_insert_with(|| Arc::new((lower.clone(), upper.clone())));
                let without = Without::within(source, hidden, Arc::clone(limits));
                sources.push(Source::Without(Box::new(without)));
            }
        }
    }
    sources
}

/// The source of a run; `None` if its one table is outside the bounds.
fn source_of(
    run: &Arc<Run>,
    (options, scan): (CursorOptions, Scan),
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
) -> Option<Source> {
    if list_of(run).is_some() {
        let cursor = BufferedCursor::through_list(Arc::clone(run), scan);
        return Some(Source::Buffered(Box::new(cursor)));
    }
    let (1, Some((meta, table))) = (run.tables.len(), run.tables.get(0)) else {
        return Some(Source::Run(run.cursor(options)));
    };
    let below = match upper {
        Bound::Included(key) => meta.smallest > *key,
        Bound::Excluded(key) => meta.smallest >= *key,
        Bound::Unbounded => false,
    };
    let above = match lower {
        Bound::Included(key) | Bound::Excluded(key) => meta.largest < *key,
        Bound::Unbounded => false,
    };
    (!below && !above).then(|| Source::Table(table.cursor(options)))
}

/// The state that a cursor reads.
pub(crate) struct View {
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

/// One merge of all sources, as a reader sees it.
type Merged = Visible<MergingCursor<Source>>;

/// A cursor over the visible entries of one keyspace within bounds.
///
/// When memory runs short it releases the memtables that it holds: it moves to the keyspace's
/// newest super-version, in which its snapshot protects everything that it can see.
pub(crate) struct TreeCursor {
    inner: Merged,
    shared: Arc<Shared>,
    tree: Arc<Tree>,
    /// The last call for release that it has followed.
    release_seen: u64,
    /// Keeps memtables and tables alive; the inner cursors hold their own parts too.
    pinned: Result<Arc<SuperVersion>>,
    closed: bool,
    /// The scan since the last seek, if it is counted.
    sampled: Option<SampledScan>,
    /// Entries passed since then, and whether backwards at last.
    passed: u64,
    is_backwards: bool,
}

impl TreeCursor {
    /// A cursor over `view`. Not positioned. Without a super-version its status is the reason.
    pub(crate) fn new(shared: &Arc<Shared>, view: View) -> Self {
        let View { tree, pinned, seq, lower, upper } = view;
        let sources = pinned.as_ref().map_or_else(|_| Vec::new(), |p| sources(p, &lower, &upper));
        Self {
            inner: Visible::new(MergingCursor::new(sources), seq, lower, upper),
            release_seen: shared.release_calls(),
            shared: Arc::clone(shared),
            tree,
            pinned,
            closed: false,
            sampled: None,
            passed: 0,
            is_backwards: false,
        }
    }

    /// Whether the store is open; remembers when it is not. Follows a call for release.
    #[inline]
    fn check_open(&mut self) -> bool {
        self.closed = self.shared.health.is_closed();
        if self.closed || self.pinned.is_err() {
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
        // A dropped keyspace is emptied after it is marked: the cursor then keeps what it has
        // pinned. An error stays until the next seek.
        let same = self.pinned.as_ref().is_ok_and(|pinned| Arc::ptr_eq(pinned, &newest));
        if same || self.tree.is_dropped() || self.inner.status().is_err() {
            return;
        }
        let key = self.inner.valid().then(|| self.inner.key().to_vec());
        let (lower, upper) = self.inner.bounds();
        let merge = MergingCursor::new(sources(&newest, lower, upper));
        self.inner.set_inner(merge);
        self.pinned = Ok(newest);
        if let Some(key) = key {
            self.inner.seek(&key, None);
        }
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        !self.closed && self.inner.valid()
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.inner.key()
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.inner.value()
    }

    /// Positions the cursor by `seek`, which is about `start`: a new scan.
    #[inline]
    fn position(&mut self, start: Start<'_>, seek: impl FnOnce(&mut Merged, Option<Leaps<'_>>)) {
        if self.check_open() {
            self.end_scan();
            self.shared.counters.seeks.add(1);
            seek(&mut self.inner, leaps(&self.tree, &self.shared));
            (self.passed, self.is_backwards) = (0, false);
            if let Ok(pinned) = &self.pinned
                && let Some(heat) = SampledScan::begin(pinned)
            {
                let runs = self.inner.inner().sources().iter().filter(|s| s.is_open_run()).count();
                let bounds = self.inner.bounds();
                self.sampled = Some(SampledScan::at(heat, start, bounds, runs));
            }
        }
    }

    /// Counts the scan that ends here, if it is one that is counted.
    #[inline]
    fn end_scan(&mut self) {
        if let Some(scan) = self.sampled.take() {
            let key = self.inner.valid().then(|| self.inner.key());
            scan.end(key, self.inner.bounds(), (self.passed, self.is_backwards));
        }
    }

    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.position(Start::Key(key), |inner, leaps| inner.seek(key, leaps));
    }

    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) {
        self.position(Start::Key(key), |inner, leaps| inner.seek_for_prev(key, leaps));
    }

    pub(crate) fn seek_to_first(&mut self) {
        self.position(Start::First, Merged::seek_to_first);
    }

    pub(crate) fn seek_to_last(&mut self) {
        self.position(Start::Last, Merged::seek_to_last);
    }

    #[inline]
    pub(crate) fn next(&mut self) {
        if self.check_open() && self.inner.valid() {
            self.passed += 1;
            self.inner.next(leaps(&self.tree, &self.shared));
        }
    }

    #[inline]
    pub(crate) fn prev(&mut self) {
        if self.check_open() && self.inner.valid() {
            (self.passed, self.is_backwards) = (self.passed + 1, true);
            self.inner.prev(leaps(&self.tree, &self.shared));
        }
    }

    pub(crate) fn status(&self) -> Result<()> {
        if self.closed {
            return Err(health::closed_error());
        }
        if let Err(error) = &self.pinned {
            return Err(error.clone());
        }
        self.inner.status().map_err(|e| self.shared.health.or_closed(e))
    }
}

impl Drop for TreeCursor {
    fn drop(&mut self) {
        self.end_scan();
    }
}
