//! The input tables of a job and the cursors over them.
//!
//! Where a run has a buffer list, users read its entries there, and mark the blocks of the list's
//! tables. The heat comes to the merge by a second cursor, over the marked entries of these blocks
//! (`version::list_heat`). What becomes of it depends on where the entry will be read: where the
//! input goes over into the list of the output run, the block that was just read takes the place of
//! the list's in the cache (H5); elsewhere it is the heat of the entry, and goes to the output.

use std::sync::Arc;

use crate::base::buf::Buf;
use crate::base::checksum::hash_entry;
use crate::base::cursor::{Approach, Cursor, shows_entry_of};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::heat::{Heat, Warmth};
use crate::base::ids::TableUid;
use crate::base::interval::Interval;
use crate::base::key::{Kind, Seq, compare};
use crate::base::table_meta::{Content, TableMeta};
use crate::cache::Purpose;
use crate::compaction::execute::handoff::HandOff;
use crate::compaction::task::{MergeTask, PartName, RunSlice};
use crate::merge::Without;
use crate::table::{CursorOptions, ReadAhead, Table};
use crate::version::foreseen::InputLists;
use crate::version::list_heat::ListHeat;
use crate::version::run::Version;
use crate::version::run_cursor::RunCursor;
use crate::version::tables::TableList;

/// A table as its run describes it: its view is the run's, not the file's.
pub(super) type Described = (Arc<TableMeta>, Arc<Table>);

/// The open tables of a slice, in key order.
///
/// # Errors
/// `Conflict` if a table is not in the slice's run.
pub(super) fn tables_of(version: &Version, slice: &RunSlice) -> Result<Vec<Described>> {
    debug_assert!(!slice.uids.is_empty(), "a slice of {:?} without tables", slice.run);
    let run = version.run(slice.run);
    // Both are in key order.
    let mut wanted = slice.uids.iter().peekable();
    let tables: Vec<Described> = run
        .into_iter()
        .flat_map(|run| run.tables.iter())
        .filter(|(meta, _)| wanted.next_if_eq(&&meta.uid).is_some())
        .map(|(meta, table)| (Arc::clone(meta), Arc::clone(table)))
        .collect();
    if tables.len() == slice.uids.len() {
        return Ok(tables);
    }
    Err(Error::new(
        ErrorKind::Conflict,
        format!(
            "a compaction was picked for tables {:?} of {}, run {}, which has only {} of them; \
             nothing was changed",
            slice.uids,
            PartName(slice.run.level, slice.run.part),
            slice.run.epoch,
            tables.len()
        ),
    ))
}

/// Entries of the inputs of a merge that no mask hides; of those of a sentinel only what lies
/// `within` its interval, an estimate.
///
/// # Errors
/// As [`tables_of`].
pub(crate) fn entries_of(
    version: &Version,
    task: &MergeTask,
    within: Option<&Interval>,
) -> Result<u64> {
    let of_table = |meta: &TableMeta| {
        let all = meta.visible().entries;
        let Some(within) = within else { return all };
        (all as f64 * meta.shown_part(within)).ceil() as u64
    };
    let entries = |slice: &RunSlice| -> Result<u64> {
        Ok(tables_of(version, slice)?.iter().map(|(meta, _)| of_table(meta)).sum())
    };
    task.inputs.iter().map(entries).sum()
}

/// A cursor over what no mask hides of `tables` of one run, in key order, and only `within`.
/// Compactions use cached blocks but insert none into the cache.
///
/// # Errors
/// `Corruption` if they overlap, which `version::check` excludes.
pub(super) fn cursor_over(
    slice: &RunSlice,
    tables: &[Described],
    readahead: ReadAhead,
    within: Option<&Interval>,
) -> Result<Without<RunCursor>> {
    let tables = TableList::new(tables.to_vec()).map_err(|overlap| {
        Error::corruption(
            format!("{}, run {}", PartName(slice.run.level, slice.run.part), slice.run.epoch),
            0,
            format_args!("tables {} and {} overlap", overlap.0.uid, overlap.1.uid),
        )
    })?;
    let options = CursorOptions { purpose: Purpose::Background, fill_cache: false, readahead };
    let mut hidden = tables.hidden();
    if let Some(Interval { from, to }) = within {
        hidden.add(Interval { from: Arc::from(&[][..]), to: Some(Arc::clone(from)) });
        to.iter().for_each(|to| hidden.add(Interval { from: Arc::clone(to), to: None }));
    }
    let hidden = Arc::new(hidden);
    Ok(Without::new(RunCursor::over(tables, options), hidden))
}

/// A cursor over an input, with what users read of it through a buffer list.
pub(super) struct Input {
    cursor: Without<RunCursor>,
    /// Its tables go over into the list of the output run.
    stays: bool,
    heat: Option<ListHeat>,
    /// How lately the current entry was read through the list.
    listed: Warmth,
    hand_off: Option<Arc<HandOff>>,
    lent: Option<Lent>,
    /// What was read of each table; only for a sentinel, and of a merge in stretches.
    contents: Option<Contents>,
}

/// What was read of each table of an input, in key order.
struct Contents {
    tables: Vec<(Arc<TableMeta>, Content)>,
    /// The table of the current entry.
    at: usize,
}

impl Contents {
    fn note(&mut self, cursor: &impl Cursor) {
        let ends_before = |meta: &TableMeta| compare(&meta.largest, cursor.key()).is_lt();
        while self.tables.get(self.at).is_some_and(|(meta, _)| ends_before(meta)) {
            self.at += 1;
        }
        let Some((_, content)) = self.tables.get_mut(self.at) else { return };
        *content = content.plus(content_of(cursor));
    }
}

/// The current entry of a cursor.
fn content_of(cursor: &impl Cursor) -> Content {
    let (key, seq, kind, value) = (cursor.key(), cursor.seq(), cursor.kind(), cursor.value());
    Content {
        entries: 1,
        deletes: u64::from(kind == Kind::Delete),
        raw_bytes: (key.len() + value.len()) as u64,
        hash: hash_entry(key, seq, kind, value),
    }
}

/// A block of an input that takes the place of the list's in the cache.
struct Lent {
    uid: TableUid,
    ordinal: u32,
    /// `None` if it is cached.
    content: Option<Buf>,
    heat: Heat,
}

impl Input {
    /// A cursor over a slice; `lists` says what was read of it, and where it will be.
    pub(super) fn new(
        cursor: Without<RunCursor>,
        lists: InputLists,
        hand_off: Option<Arc<HandOff>>,
    ) -> Self {
        let InputLists { stays, heat } = lists;
        let (listed, lent, contents) = (Warmth::Cold, None, None);
        Self { cursor, stays, heat, listed, hand_off, lent, contents }
    }

    /// The same, which counts what it reads of each of its `tables`.
    pub(super) fn counting(self, tables: &[Described]) -> Self {
        let tables = tables.iter().map(|(meta, _)| (Arc::clone(meta), Content::default()));
        Self { contents: Some(Contents { tables: tables.collect(), at: 0 }), ..self }
    }

    /// What was read of each table.
    pub(super) fn contents(&self) -> &[(Arc<TableMeta>, Content)] {
        self.contents.as_ref().map_or(&[], |contents| &contents.tables)
    }

    /// The same without the current entry, which is not consumed.
    pub(super) fn consumed(&self) -> Vec<(Arc<TableMeta>, Content)> {
        let mut consumed = self.contents().to_vec();
        let is_on_entry = self.cursor.valid() && !self.cursor.is_ahead();
        if let Some(contents) = self.contents.as_ref().filter(|_| is_on_entry)
            && let Some((_, content)) = consumed.get_mut(contents.at)
        {
            *content = content.minus(content_of(&self.cursor));
        }
        consumed
    }

    /// Lets go of the tables behind the cursor.
    pub(super) fn let_go(&mut self) {
        self.cursor.inner_mut().let_go();
    }

    /// Notes the current entry after a step: its heat, and that it was read.
    #[inline]
    fn note(&mut self) {
        if let Some(contents) = &mut self.contents
            && !self.cursor.is_ahead()
            && self.cursor.valid()
        {
            contents.note(&self.cursor);
        }
        let Some(heat) = &mut self.heat else { return };
        if self.cursor.is_ahead() {
            return;
        }
        if !self.cursor.valid() {
            self.hand_over();
            return;
        }
        self.listed = heat.of_key(self.cursor.key());
        if self.stays && self.listed != Warmth::Cold {
            self.lend();
        }
    }

    /// Marks the current entry in its block, which goes into the cache.
    fn lend(&mut self) {
        let Some(block) = self.cursor.inner().block() else { return };
        let (uid, ordinal) = (block.uid, block.ordinal);
        if self.lent.as_ref().is_none_or(|lent| (lent.uid, lent.ordinal) != (uid, ordinal)) {
            let content = (!block.is_cached()).then(|| Buf::from(block.content));
            let (row, rows) = (block.row, block.rows);
            self.hand_over();
            let mut lent = Lent { uid, ordinal, content, heat: Heat::COLD };
            lent.heat.add(row, rows, self.listed);
            self.lent = Some(lent);
        } else if let Some(lent) = &mut self.lent {
            lent.heat.add(block.row, block.rows, self.listed);
        }
    }

    /// Hands the last block over.
    fn hand_over(&mut self) {
        if let (Some(lent), Some(hand_off)) = (self.lent.take(), &self.hand_off)
            && let Some(content) = lent.content
        {
            hand_off.offer_input((lent.uid, lent.ordinal), content.bytes(), lent.heat);
        }
    }
}

impl Cursor for Input {
    shows_entry_of!(cursor);

    #[inline]
    fn warmth(&self) -> Warmth {
        self.cursor.warmth().max(self.listed)
    }

    #[inline]
    fn stays(&self) -> bool {
        self.stays
    }

    fn cached_bytes(&self) -> u64 {
        // A sentinel's inputs stay too, but what it reads of them is hidden: nobody will use it.
        let own = if self.stays { 0 } else { self.cursor.cached_bytes() };
        own + self.heat.as_ref().map_or(0, ListHeat::cached_bytes)
    }

    #[inline]
    fn may_be_ahead(&self) -> bool {
        self.cursor.may_be_ahead()
    }

    #[inline]
    fn is_ahead(&self) -> bool {
        self.cursor.is_ahead()
    }

    fn arrive(&mut self) {
        self.cursor.arrive();
        self.note();
    }

    fn approach(&mut self, key: &[u8], seq: Seq, step: Approach) {
        self.cursor.approach(key, seq, step);
    }

    fn seek(&mut self, key: &[u8], seq: Seq) {
        self.cursor.seek(key, seq);
        self.note();
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: Seq) {
        self.cursor.seek_for_prev(key, seq);
        self.note();
    }

    fn seek_to_first(&mut self) {
        self.cursor.seek_to_first();
        self.note();
    }

    fn seek_to_last(&mut self) {
        self.cursor.seek_to_last();
        self.note();
    }

    #[inline]
    fn next(&mut self) {
        self.cursor.next();
        self.note();
    }

    #[inline]
    fn prev(&mut self) {
        self.cursor.prev();
        self.note();
    }

    fn status(&self) -> Result<()> {
        self.cursor.status()
    }
}
