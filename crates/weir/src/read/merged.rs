//! The merge over a super-version that a cursor reads through, and how it goes from one cursor to
//! the next.
//!
//! A merge waits for the next cursor of its thread (`state::idle`) if the super-version is still
//! the newest. What it holds meanwhile is the super-version, and the index of the tables that it
//! stood in; no block.
//!
//! Not here: movements, and what is checked at each (`cursor`).
//!
//! Invariants of a merge that waits: (1) it has a source for each run, whatever the bounds of the
//! reader were that made it; (2) a memtable that was empty then has none: it is of no use if that
//! memtable has entries now; (3) it does not depend on what one reader chose: no buffer lists; (4)
//! no slots were cleared since it was made: it holds no index of a table that was closed
//! (`state::idle`).

use std::ops::Bound;
use std::sync::Arc;

use crate::base::cursor::{Approach, Cursor, shows_entry_of};
use crate::base::error::Result;
use crate::base::key::{Kind, Seq};
use crate::base::table_meta::TableMeta;
use crate::cache::Purpose;
use crate::memtable::MemtableCursor;
use crate::merge::{Limits, MergingCursor, Visible, Without};
use crate::read::buffered::{self, BufferedCursor, Scan, list_of};
use crate::state::tree::{SuperVersion, Tree};
use crate::table::{CursorOptions, ReadAhead, TableCursor};
use crate::version::run::Run;
use crate::version::run_cursor::RunCursor;

/// Most sources of a merge that waits: the more there are, the more it holds, and the less of a
/// scan is their making.
const WAITING_SOURCES_MAX: usize = 64;

/// Longest bound of its last reader that a merge keeps while it waits, in bytes.
const BOUND_BYTES_AT_REST_MAX: usize = 4 << 10;

/// The bounds of a reader.
pub(super) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);
type BoundsRef<'a> = (&'a Bound<Vec<u8>>, &'a Bound<Vec<u8>>);

/// One source of a merge. An enum, so that the inner loop has no dynamic dispatch.
pub(crate) enum Source {
    Memtable(MemtableCursor),
    Table(OneTable),
    Run(RunCursor),
    Buffered(Box<BufferedCursor>),
    /// One of these, of whose entries some are hidden.
    Without(Box<Without<Source>>),
}

impl Source {
    /// Whether it is a run and stands on an entry, of which a block was read.
    pub(super) fn is_open_run(&self) -> bool {
        !matches!(self, Self::Memtable(_)) && self.valid() && !self.is_ahead()
    }

    /// Whether it is a run with a buffer list.
    pub(super) fn has_list(&self) -> bool {
        match self {
            Self::Buffered(_) => true,
            Self::Without(c) => c.inner().has_list(),
            Self::Memtable(_) | Self::Run(_) | Self::Table(_) => false,
        }
    }

    /// For a reader within `bounds`. Requires: it is at rest.
    fn set_bounds(&mut self, bounds: BoundsRef<'_>, limits: &mut Option<Arc<Limits>>) {
        match self {
            Self::Table(c) => c.set_bounds(bounds),
            Self::Without(c) => {
                c.inner_mut().set_bounds(bounds, limits);
                let limits = limits.get_or_insert_with(|| limits_of(bounds));
                c.set_limits(Arc::clone(limits));
            }
            Self::Memtable(_) | Self::Run(_) | Self::Buffered(_) => {}
        }
    }

    /// Whether it may wait for another reader: what a list's cursor reads is chosen for one.
    fn may_wait(&self) -> bool {
        match self {
            Self::Memtable(_) | Self::Table(_) | Self::Run(_) => true,
            Self::Buffered(_) => false,
            Self::Without(c) => c.inner().may_wait(),
        }
    }
}

/// The cursor of a run of one table, which rests while a reader is elsewhere. Level 0's runs and
/// sentinels are such: most readers of a few keys are outside of most of them.
pub(crate) struct OneTable {
    cursor: TableCursor,
    /// Whether the table has no key within the reader's bounds: then it shows nothing.
    is_outside: bool,
}

impl OneTable {
    /// For a reader within `bounds`. Requires: it is at rest.
    fn set_bounds(&mut self, bounds: BoundsRef<'_>) {
        self.is_outside = !is_within(self.cursor.meta(), bounds);
        if self.is_outside {
            // A reader who stays would hold the index of a table that it does not read.
            self.cursor.forget_index();
        }
    }
}

impl Cursor for OneTable {
    shows_entry_of!(cursor);

    fn approach(&mut self, key: &[u8], seq: Seq, step: Approach) {
        if !self.is_outside {
            self.cursor.approach(key, seq, step);
        }
    }
    fn rest(&mut self) {
        self.cursor.rest();
    }
    fn seek(&mut self, key: &[u8], seq: Seq) {
        if !self.is_outside {
            self.cursor.seek(key, seq);
        }
    }
    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        if !self.is_outside {
            self.cursor.seek_for_prev(key, seq);
        }
    }
    fn seek_to_first(&mut self) {
        if !self.is_outside {
            self.cursor.seek_to_first();
        }
    }
    fn seek_to_last(&mut self) {
        if !self.is_outside {
            self.cursor.seek_to_last();
        }
    }
    #[inline]
    fn next(&mut self) {
        self.cursor.next();
    }
    #[inline]
    fn prev(&mut self) {
        self.cursor.prev();
    }
    fn status(&self) -> Result<()> {
        self.cursor.status()
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
    fn rest(&mut self) {
        each!(self, c => c.rest());
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

/// What a merge over a super-version is made of.
struct Over {
    /// Newest first.
    sources: Vec<Source>,
    /// Whether no run is left out.
    is_whole: bool,
    /// Whether the active memtable is, being empty.
    lacks_active: bool,
}

impl Over {
    /// With `keeps_all`, runs that the bounds exclude are kept, if the merge may wait for a reader
    /// of others.
    fn of(current: &SuperVersion, bounds: BoundsRef<'_>, keeps_all: bool) -> Self {
        let options = CursorOptions {
            purpose: Purpose::Foreground,
            fill_cache: true,
            readahead: ReadAhead::Scan,
        };
        let scan = Scan { options, takes_unknown: current.options.compaction_buffer.trims() };
        let runs = current.version.runs_newest_first().len();
        let mut sources = Vec::with_capacity(1 + current.immutables.len() + runs);
        for flushable in std::iter::once(&current.active).chain(&current.immutables) {
            if !flushable.memtable.is_empty() {
                sources.push(Source::Memtable(flushable.memtable.cursor()));
            }
        }
        let memtables = sources.len();
        let keeps_all = keeps_all
            && memtables + runs <= WAITING_SOURCES_MAX
            && !current.version.has_lists()
            && buffered::reads_as_is_best();
        // The active one's, if it is there, is the first.
        let lacks_active = memtables <= current.immutables.len();
        let mut limits = None;
        for (run, passed_over) in current.version.runs_for_scans() {
            let source = source_of(run, (options, scan), bounds);
            if !keeps_all && matches!(&source, Source::Table(c) if c.is_outside) {
                continue;
            }
            match passed_over.map(|all| buffered::shown(run, all)) {
                None => sources.push(source),
                Some(hidden) => {
                    let limits = limits.get_or_insert_with(|| limits_of(bounds));
                    let without = Without::within(source, hidden, Arc::clone(limits));
                    sources.push(Source::Without(Box::new(without)));
                }
            }
        }
        let is_whole = sources.len() - memtables == runs;
        Self { sources, is_whole, lacks_active }
    }
}

/// The source of a run.
fn source_of(
    run: &Arc<Run>,
    (options, scan): (CursorOptions, Scan),
    bounds: BoundsRef<'_>,
) -> Source {
    if list_of(run).is_some() {
        let cursor = BufferedCursor::through_list(Arc::clone(run), scan);
        return Source::Buffered(Box::new(cursor));
    }
    let (1, Some((meta, table))) = (run.tables.len(), run.tables.get(0)) else {
        return Source::Run(run.cursor(options));
    };
    let is_outside = !is_within(meta, bounds);
    Source::Table(OneTable { cursor: table.cursor(options), is_outside })
}

/// The limits of sources for a reader within `bounds`.
fn limits_of((lower, upper): BoundsRef<'_>) -> Arc<Limits> {
    Arc::new((lower.clone(), upper.clone()))
}

/// Whether a table may have keys within the bounds.
fn is_within(meta: &TableMeta, (lower, upper): BoundsRef<'_>) -> bool {
    let below = match upper {
        Bound::Included(key) => meta.smallest > *key,
        Bound::Excluded(key) => meta.smallest >= *key,
        Bound::Unbounded => false,
    };
    let above = match lower {
        Bound::Included(key) | Bound::Excluded(key) => meta.largest < *key,
        Bound::Unbounded => false,
    };
    !below && !above
}

/// One merge of all sources, as a reader sees it.
pub(super) type View = Visible<MergingCursor<Source>>;

/// A merge over a super-version.
pub(super) struct Merged {
    pub(super) view: View,
    /// What it reads; keeps memtables and tables alive.
    pub(super) of: Arc<SuperVersion>,
    /// Whether it has a source for each run.
    is_whole: bool,
    /// Whether the active memtable was empty, and has no source.
    lacks_active: bool,
    /// How often the keyspace's slots had been cleared before it was made.
    times_cleared: u64,
}

/// What a reader of the newest state gets.
pub(super) struct Newest {
    pub(super) merged: Box<Merged>,
    /// Whether one that had waited was of no use any more: what it held may be free now.
    pub(super) has_discarded: bool,
}

impl Merged {
    /// The merge over `of`, a state of `tree`, for a reader at `seq`. Not positioned. Of runs that
    /// the bounds exclude it has a source only with `keeps_all`: for the next reader.
    pub(super) fn new(
        tree: &Tree,
        of: Arc<SuperVersion>,
        (seq, (lower, upper)): (Seq, Bounds),
        keeps_all: bool,
    ) -> Self {
        // Before any of its tables is opened.
        let times_cleared = tree.idle.times_cleared();
        let Over { sources, is_whole, lacks_active } = Over::of(&of, (&lower, &upper), keeps_all);
        let view = Visible::new(MergingCursor::new(sources), seq, lower, upper);
        Self { view, of, is_whole, lacks_active, times_cleared }
    }

    /// Moves to a newer super-version of `tree`, at the same position.
    pub(super) fn move_to(&mut self, tree: &Tree, newer: Arc<SuperVersion>) {
        self.times_cleared = tree.idle.times_cleared();
        let key = self.view.valid().then(|| self.view.key().to_vec());
        let over = Over::of(&newer, self.view.bounds(), self.is_whole);
        self.view.set_inner(MergingCursor::new(over.sources));
        (self.is_whole, self.lacks_active) = (over.is_whole, over.lacks_active);
        self.of = newer;
        if let Some(key) = key {
            self.view.seek(&key, None);
        }
    }

    /// The merge over the newest super-version of `tree`: one that waits, or a new one.
    ///
    /// Requires: `seq` was entered in the snapshot list before: the newest super-version has all
    /// that it can see.
    pub(super) fn newest(tree: &Tree, seq: Seq, bounds: Bounds) -> Newest {
        let waited = Self::waiting(tree);
        let has_discarded = matches!(waited, Waited::Discarded);
        let merged = match waited {
            Waited::Found(mut merged) => {
                merged.set_reader(seq, bounds);
                merged
            }
            Waited::Discarded | Waited::Nothing => {
                Box::new(Self::new(tree, tree.pin(), (seq, bounds), true))
            }
        };
        Newest { merged, has_discarded }
    }

    /// Whether it holds the newest state and nothing that was closed.
    fn is_fresh(&self, tree: &Tree) -> bool {
        tree.idle.times_cleared() == self.times_cleared && tree.is_newest(self.of.number())
    }

    /// The one that waits, if it is of use.
    fn waiting(tree: &Tree) -> Waited {
        if !buffered::reads_as_is_best() {
            return Waited::Nothing;
        }
        let waited = tree.idle.take().map(|idle| idle.downcast::<Self>());
        let Some(Ok(merged)) = waited else { return Waited::Nothing };
        let lacks_some = merged.lacks_active && !merged.of.active.memtable.is_empty();
        if lacks_some || !merged.is_fresh(tree) {
            return Waited::Discarded;
        }
        Waited::Found(merged)
    }

    /// Gives it to another reader.
    fn set_reader(&mut self, seq: Seq, (lower, upper): Bounds) {
        let mut limits = None;
        for source in self.view.inner_mut().sources_mut() {
            source.set_bounds((&lower, &upper), &mut limits);
        }
        self.view.set_reader(seq, lower, upper);
    }

    /// Leaves it for the next cursor, if that may find it of use.
    pub(super) fn leave(mut self: Box<Self>, tree: &Tree) {
        let sources = self.view.inner().sources();
        let may_wait = self.is_whole
            && sources.len() <= WAITING_SOURCES_MAX
            && sources.iter().all(Source::may_wait)
            && buffered::reads_as_is_best();
        if !may_wait || !self.is_fresh(tree) {
            return;
        }
        let is_long = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len() > BOUND_BYTES_AT_REST_MAX,
            Bound::Unbounded => false,
        };
        self.view.rest();
        let (lower, upper) = self.view.bounds();
        if is_long(lower) || is_long(upper) {
            self.set_reader(0, (Bound::Unbounded, Bound::Unbounded));
        }
        self.put_back(tree);
    }

    /// Puts one that is at rest into its slot.
    fn put_back(self: Box<Self>, tree: &Tree) {
        let (of, times_cleared) = (self.of.number(), self.times_cleared);
        let before = tree.idle.leave(self);
        if tree.idle.times_cleared() != times_cleared || !tree.is_newest(of) {
            // Who cleared the slots may have looked before.
            drop(tree.idle.take());
        }
        drop(before);
    }
}

/// Whether what waits holds the newest state and nothing that was closed.
#[cfg(all(test, feature = "schedules"))]
pub(crate) fn is_fresh(idle: &(dyn std::any::Any + Send + Sync), tree: &Tree) -> bool {
    let merged = idle.downcast_ref::<Merged>();
    merged.is_some_and(|m| {
        tree.idle.times_cleared() == m.times_cleared && tree.is_newest(m.of.number())
    })
}

/// What waited for a reader.
enum Waited {
    Found(Box<Merged>),
    /// It was of no use any more.
    Discarded,
    /// Nothing that is of use to it.
    Nothing,
}

#[cfg(test)]
mod tests;
