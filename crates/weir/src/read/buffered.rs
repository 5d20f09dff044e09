//! Reading through a run's buffer list: point lookups by LSbM Alg. 3, scans by Alg. 4.
//!
//! The run's own table is asked first, by index and filter alone: it says whether the run may hold
//! the key (the *gate*). Then the list answers, buffered run by buffered run, until a hole ends its
//! walk; then the run's table does. A walk that meets no hole is complete: what it does not find,
//! the run does not hold at this sequence number. A list is never read without the gate (H9): of
//! keys that left a run the list has copies still, and a run whose tables do not cover a key has
//! nothing to say about it (H5, H6).
//!
//! An entry above the snapshot is not found there: the walk goes on to older buffered runs (H2).
//!
//! A buffered table is a copy, so an error in one is none of the reader's: the base is asked, and
//! if the table is damaged it is left to be trimmed and not read again.
//!
//! Scans choose for each table of the base while they walk, because a cursor knows no end: where
//! no hole of the list overlaps the table, and more of the list's tables is cached than of it, a
//! merge of these takes its place, clipped to its bounds. One cold table is read for less than the
//! cold tables of a list.

use std::sync::Arc;

use crate::base::cursor::{Approach, Cursor};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::interval::Intervals;
use crate::base::key::{Kind, SEQ_MAX, Seq, compare};
use crate::cache::Purpose;
use crate::merge::MergingCursor;
use crate::table::{CursorOptions, Gate, HashedKey, HeldBlock, Table, TableCursor, TableHit};
use crate::version::buffer_list::BufferList;
use crate::version::run::{Run, Version};
use crate::version::run_cursor::{Ranges, RangesCursor, RunCursor};
use crate::version::tables::TableList;

#[cfg(feature = "sim")]
pub(crate) mod bare {
    //! Reads without buffer lists, claims and row cache, or through lists wherever that is
    //! possible, for tests: no answer may depend on them.

    use std::cell::Cell;

    #[derive(Clone, Copy, PartialEq)]
    enum Lists {
        AsIsBest,
        Without,
        WhereverPossible,
    }

    thread_local! {
        static LISTS: Cell<Lists> = const { Cell::new(Lists::AsIsBest) };
    }

    fn reading<T>(lists: Lists, read: impl FnOnce() -> T) -> T {
        let before = LISTS.replace(lists);
        let result = read();
        LISTS.set(before);
        result
    }

    /// Runs `read` without buffer lists, claims and row cache on this thread.
    pub fn without_lists<T>(read: impl FnOnce() -> T) -> T {
        reading(Lists::Without, read)
    }

    /// Runs `read` on this thread so that scans go through every buffer list that may stand for its
    /// base, however little of it is cached.
    pub fn through_lists<T>(read: impl FnOnce() -> T) -> T {
        reading(Lists::WhereverPossible, read)
    }

    pub(crate) fn is_on() -> bool {
        LISTS.get() == Lists::Without
    }

    pub(super) fn is_off() -> bool {
        LISTS.get() == Lists::AsIsBest
    }

    pub(super) fn goes_through_lists() -> bool {
        LISTS.get() == Lists::WhereverPossible
    }
}

/// Whether reads of this thread take the way that is best, as all do outside of tests.
#[inline]
pub(crate) fn reads_as_is_best() -> bool {
    #[cfg(feature = "sim")]
    return bare::is_off();
    #[cfg(not(feature = "sim"))]
    true
}

/// The list that serves reads of a run.
#[inline]
pub(crate) fn list_of(run: &Run) -> Option<&BufferList> {
    #[cfg(feature = "sim")]
    if bare::is_on() {
        return None;
    }
    run.list.as_deref().filter(|list| !list.runs().is_empty())
}

/// What a scan passes over in a run, if that is `all` with the claims of newer ones.
#[inline]
pub(crate) fn shown(run: &Run, all: &Arc<Intervals>) -> Arc<Intervals> {
    #[cfg(feature = "sim")]
    if bare::is_on() {
        return run.hidden.clone().unwrap_or_default();
    }
    let _ = run;
    Arc::clone(all)
}

/// The runs that a lookup of `key` asks, newest first.
#[inline]
pub(crate) fn runs_for<'a>(version: &'a Version, key: &[u8]) -> std::slice::Iter<'a, Arc<Run>> {
    #[cfg(feature = "sim")]
    if bare::is_on() {
        return version.runs_newest_first();
    }
    version.runs_for(key)
}

/// What a run claims: its lookups end there.
#[inline]
pub(crate) fn claims_of(run: &Run) -> Option<&Intervals> {
    #[cfg(feature = "sim")]
    if bare::is_on() {
        return None;
    }
    run.claims.as_deref()
}

/// What a run's list says about a key.
enum Said {
    Hit(TableHit),
    /// The run holds nothing.
    Nothing,
    /// The base must be asked.
    Hole,
}

/// Walks a list. `get` looks into a table of the buffered run with this number.
fn walk(
    list: &BufferList,
    key: &[u8],
    mut get: impl FnMut(usize, &Table) -> Result<Option<TableHit>>,
) -> Said {
    for (number, buffered) in list.runs().iter().enumerate() {
        if buffered.holes.cover(key) {
            return Said::Hole;
        }
        let Some((_, table)) = buffered.tables.find(key) else { continue };
        if table.is_distrusted() {
            // It would be read again by every lookup until it is trimmed.
            return Said::Hole;
        }
        match get(number, table) {
            Ok(Some(hit)) => return Said::Hit(hit),
            Ok(None) => {}
            Err(error) => {
                distrust(table, &error);
                return Said::Hole;
            }
        }
    }
    Said::Nothing
}

/// Leaves a damaged table of a list to be trimmed.
#[cold]
fn distrust(table: &Table, error: &Error) {
    if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound) {
        table.distrust();
    }
}

/// The newest entry of a key in a run with a list, whose `table` covers it; whether the list has
/// said so.
#[inline(never)]
pub(crate) fn get(
    list: &BufferList,
    table: &Table,
    gate: Gate<'_>,
    key: HashedKey<'_>,
    seq: Seq,
) -> Result<(Option<TableHit>, bool)> {
    if !table.may_hold_at(gate, key, seq)? {
        return Ok((None, false));
    }
    let said = walk(list, key.0, |_, listed| listed.get_at(gate, key, seq, Purpose::Foreground));
    match said {
        Said::Hit(hit) => Ok((Some(hit), true)),
        Said::Nothing => Ok((None, true)),
        Said::Hole => Ok((table.get_at(gate, key, seq, Purpose::Foreground)?, false)),
    }
}

/// The blocks that a batch holds in a run with a list.
#[derive(Default)]
pub(crate) struct HeldBlocks {
    base: HeldBlock,
    listed: Vec<HeldBlock>,
}

/// As [`get`], for a batch in key order.
pub(crate) fn get_in_batch(
    list: Option<&BufferList>,
    table: &Table,
    held: &mut HeldBlocks,
    key: HashedKey<'_>,
    seq: Seq,
) -> Result<(Option<TableHit>, bool)> {
    let HeldBlocks { base, listed } = held;
    if let Some(list) = list {
        if !table.may_hold_in_batch(base, key, seq)? {
            return Ok((None, false));
        }
        listed.resize_with(list.runs().len(), HeldBlock::default);
        let said = walk(list, key.0, |number, table| {
            table.get_in_batch(&mut listed[number], key, seq, Purpose::Foreground)
        });
        match said {
            Said::Hit(hit) => return Ok((Some(hit), true)),
            Said::Nothing => return Ok((None, true)),
            Said::Hole => {}
        }
    }
    Ok((table.get_in_batch(base, key, seq, Purpose::Foreground)?, false))
}

/// How a scan reads.
#[derive(Clone, Copy)]
pub(crate) struct Scan {
    /// In the tables.
    pub(crate) options: CursorOptions,
    /// A list stands for the base also where it is not known what is cached: its tables stay only
    /// if most of their blocks are.
    pub(crate) takes_unknown: bool,
}

/// A cursor over a run with a list: for each table of the base either a cursor of it or a merge of
/// the list's tables over its range.
///
/// Inside a table's range the entries are those of the table, and what the list holds of older
/// versions beside them.
pub(crate) type BufferedCursor = RangesCursor<BufferedRanges>;

/// A run, and how it is scanned.
pub(crate) struct BufferedRanges {
    run: Arc<Run>,
    scan: Scan,
}

impl BufferedCursor {
    /// A cursor over `run`, through its list.
    pub(crate) fn through_list(run: Arc<Run>, scan: Scan) -> Self {
        Self::new(BufferedRanges { run, scan })
    }
}

impl Ranges for BufferedRanges {
    type Cursor = RangeCursor;

    fn tables(&self) -> &TableList<Arc<Table>> {
        &self.run.tables
    }

    fn cursor(&self, table: &Arc<Table>) -> RangeCursor {
        let listed = list_of(&self.run).and_then(|list| Clipped::of(list, table, self.scan));
        let options = self.scan.options;
        let inner = listed.map_or_else(|| Inner::Base(table.cursor(options)), Inner::List);
        RangeCursor { inner, options, before: Vec::new() }
    }
}

/// A cursor over the range of one table of the base. What the list cannot read, the base does.
pub(crate) struct RangeCursor {
    inner: Inner,
    options: CursorOptions,
    /// The entry before a step, to go on from in the base if the list fails.
    before: Vec<u8>,
}

/// What stands for the table.
enum Inner {
    Base(TableCursor),
    List(Clipped),
}

/// A merge of a list's tables, within the bounds of a table of the base.
struct Clipped {
    merge: MergingCursor<RunCursor>,
    /// Tables of the list that it reads.
    tables: Vec<TableList<Arc<Table>>>,
    base: Arc<Table>,
}

/// Whether more of the list's tables is cached than of the base's; `None` if nobody has looked.
fn is_warmer(listed: &[TableList<Arc<Table>>], base: &Table) -> Option<bool> {
    #[cfg(feature = "sim")]
    if bare::goes_through_lists() {
        return Some(true);
    }
    let (mut blocks, mut cached) = (0.0, 0.0);
    for (meta, table) in listed.iter().flat_map(TableList::iter) {
        let of_table = f64::from(meta.blocks);
        blocks += of_table;
        cached += of_table * f64::from(table.known_residency()?);
    }
    Some(cached > blocks * f64::from(base.known_residency()?))
}

impl Clipped {
    /// The list in place of `base`; `None` where it does not answer for all of it, or is no better.
    fn of(list: &BufferList, base: &Arc<Table>, scan: Scan) -> Option<Self> {
        let (smallest, largest) = (&base.meta().smallest[..], &base.meta().largest[..]);
        if !list.is_complete(smallest, largest) {
            return None;
        }
        let mut tables = Vec::new();
        for buffered in list.runs() {
            use std::ops::Bound::Included;
            let range = buffered.tables.overlapping(Included(smallest), Included(largest));
            let overlapping = buffered.tables.range(range);
            let overlapping: Vec<_> =
                overlapping.map(|(meta, table)| (Arc::clone(meta), Arc::clone(table))).collect();
            if overlapping.iter().any(|(_, table)| table.is_distrusted()) {
                return None;
            }
            if !overlapping.is_empty() {
                tables.push(TableList::new(overlapping).ok()?);
            }
        }
        if tables.is_empty() || !is_warmer(&tables, base).unwrap_or(scan.takes_unknown) {
            return None;
        }
        let cursors = tables.iter().map(|tables| RunCursor::over(tables.clone(), scan.options));
        let merge = MergingCursor::new(cursors.collect());
        Some(Self { merge, tables, base: Arc::clone(base) })
    }

    fn valid(&self) -> bool {
        self.merge.valid() && {
            let (meta, key) = (self.base.meta(), self.merge.key());
            compare(key, &meta.largest).is_le() && compare(&meta.smallest, key).is_le()
        }
    }

    fn seek(&mut self, key: &[u8], seq: Seq) {
        let smallest = &self.base.meta().smallest;
        if compare(key, smallest).is_lt() {
            self.merge.seek(smallest, SEQ_MAX);
        } else {
            self.merge.seek(key, seq);
        }
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        let largest = &self.base.meta().largest;
        if compare(key, largest).is_gt() {
            self.merge.seek_for_prev(largest, 0);
        } else {
            self.merge.seek_for_prev(key, seq);
        }
    }

    /// Leaves its tables to be trimmed if one is damaged: which, a merge does not say.
    #[cold]
    fn distrust(&self, error: &Error) {
        let tables = self.tables.iter().flat_map(|tables| tables.iter());
        tables.for_each(|(_, table)| distrust(table, error));
    }
}

/// A movement within the range, to be made again in the base if the list fails.
#[derive(Clone, Copy)]
enum Motion<'a> {
    First,
    Last,
    Seek(&'a [u8], Seq),
    SeekForPrev(&'a [u8], Seq),
    /// From the entry that was left.
    Next(Seq),
    Prev(Seq),
}

/// The same of either; of a list, its merge.
macro_rules! each {
    ($inner:expr, $c:ident => $entry:expr) => {
        match $inner {
            Inner::Base($c) => $entry,
            Inner::List(Clipped { merge: $c, .. }) => $entry,
        }
    };
}

impl RangeCursor {
    fn go(&mut self, motion: Motion<'_>) {
        let listed = match &mut self.inner {
            Inner::Base(base) => match motion {
                Motion::Next(_) => return base.next(),
                Motion::Prev(_) => return base.prev(),
                _ => return Self::go_base(base, motion, &self.before),
            },
            Inner::List(listed) => listed,
        };
        match motion {
            Motion::First => listed.seek(&[], SEQ_MAX),
            Motion::Last => {
                let largest = listed.base.meta().largest.clone();
                listed.seek_for_prev(&largest, 0);
            }
            Motion::Seek(key, seq) => listed.seek(key, seq),
            Motion::SeekForPrev(key, seq) => listed.seek_for_prev(key, seq),
            Motion::Next(_) => listed.merge.next(),
            Motion::Prev(_) => listed.merge.prev(),
        }
        if let Err(error) = listed.merge.status() {
            listed.distrust(&error);
            let mut base = listed.base.cursor(self.options);
            Self::go_base(&mut base, motion, &self.before);
            self.inner = Inner::Base(base);
        }
    }

    fn go_base(base: &mut TableCursor, motion: Motion<'_>, before: &[u8]) {
        match motion {
            Motion::First => base.seek_to_first(),
            Motion::Last => base.seek_to_last(),
            Motion::Seek(key, seq) => base.seek(key, seq),
            Motion::SeekForPrev(key, seq) => base.seek_for_prev(key, seq),
            // The first entry after the one that was left: the base may not hold that one.
            Motion::Next(0) => base.seek(&[before, &[0]].concat(), SEQ_MAX),
            Motion::Next(seq) => base.seek(before, seq - 1),
            Motion::Prev(seq) => base.seek_for_prev(before, seq + 1),
        }
    }

    /// Notes where the cursor stands, if it may have to be found again.
    fn leave(&mut self) -> Seq {
        let Inner::List(listed) = &self.inner else { return 0 };
        self.before.clear();
        self.before.extend_from_slice(listed.merge.key());
        listed.merge.seq()
    }
}

impl Cursor for RangeCursor {
    #[inline]
    fn valid(&self) -> bool {
        match &self.inner {
            Inner::Base(base) => base.valid(),
            Inner::List(listed) => listed.valid(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        each!(&self.inner, c => c.key())
    }

    #[inline]
    fn seq(&self) -> Seq {
        each!(&self.inner, c => c.seq())
    }

    #[inline]
    fn kind(&self) -> Kind {
        each!(&self.inner, c => c.kind())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        each!(&self.inner, c => c.value())
    }

    fn approach(&mut self, key: &[u8], seq: Seq, step: Approach) {
        each!(&mut self.inner, c => c.approach(key, seq, step));
    }

    fn seek(&mut self, key: &[u8], seq: Seq) {
        self.go(Motion::Seek(key, seq));
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        self.go(Motion::SeekForPrev(key, seq));
    }

    fn seek_to_first(&mut self) {
        self.go(Motion::First);
    }

    fn seek_to_last(&mut self) {
        self.go(Motion::Last);
    }

    #[inline]
    fn next(&mut self) {
        let seq = self.leave();
        self.go(Motion::Next(seq));
    }

    #[inline]
    fn prev(&mut self) {
        let seq = self.leave();
        self.go(Motion::Prev(seq));
    }

    fn status(&self) -> Result<()> {
        each!(&self.inner, c => c.status())
    }
}
