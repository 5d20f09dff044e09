//! The tables of one run as a persistent sequence: in key order, cut into chunks that consecutive
//! versions share.
//!
//! Pure metadata plus one attachment per table (`()` for policies, an open table for readers), so
//! that one piece of code searches and edits both. Not here: runs (`shape`, `run`).
//!
//! Invariants: (1) tables are in key order and share no user key: the largest key of one is below
//! the smallest of the next (H40); (2) a chunk holds 1 to [`CHUNK_TABLES_MAX`] tables; (3) an edit
//! copies the chunks that it touches and one pointer per other chunk: at 100,000 tables about 1,600
//! pointers and fences, in some tens of microseconds.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::ops::{Bound, Range};
use std::sync::Arc;

use crate::base::interval::Intervals;
use crate::base::key::{SEQ_MAX, Seq, compare, prefix};
use crate::base::table_meta::TableMeta;

/// Most tables of a chunk. Smaller chunks are cheaper to copy, but are more pointers; at 100,000
/// tables both cost about the same in an edit.
pub(crate) const CHUNK_TABLES_MAX: usize = 128;
/// A rebuilt chunk with fewer tables than this is merged with its neighbour.
const CHUNK_TABLES_MIN: usize = CHUNK_TABLES_MAX / 4;

/// Sums over tables, of what no mask hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Number of tables.
    pub(crate) tables: usize,
    /// Number of those with masks.
    pub(crate) masked: usize,
    /// Bytes of their files; of those with masks in proportion.
    pub(crate) bytes: u64,
    /// Bytes of their descriptions in a base of the version log, from above.
    pub(crate) description_bytes: u64,
    /// Bytes of their keys and values.
    pub(crate) raw_bytes: u64,
    /// Entries.
    pub(crate) entries: u64,
    /// Entries that are deletes.
    pub(crate) deletes: u64,
    /// Smallest sequence number; `SEQ_MAX` if there is no table.
    pub(crate) seq_min: Seq,
    /// Largest sequence number; 0 if there is no table.
    pub(crate) seq_max: Seq,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            tables: 0,
            masked: 0,
            bytes: 0,
            description_bytes: 0,
            raw_bytes: 0,
            entries: 0,
            deletes: 0,
            seq_min: SEQ_MAX,
            seq_max: 0,
        }
    }
}

impl Totals {
    fn of(meta: &TableMeta) -> Self {
        let visible = meta.visible();
        Self {
            tables: 1,
            masked: usize::from(!meta.masks.is_empty()),
            bytes: meta.visible_bytes(),
            description_bytes: meta.description_bytes(),
            raw_bytes: visible.raw_bytes,
            entries: visible.entries,
            deletes: visible.deletes,
            seq_min: meta.seq_min,
            seq_max: meta.seq_max,
        }
    }

    /// The sums over both.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            tables: self.tables + other.tables,
            masked: self.masked + other.masked,
            bytes: self.bytes.saturating_add(other.bytes),
            description_bytes: self.description_bytes.saturating_add(other.description_bytes),
            raw_bytes: self.raw_bytes.saturating_add(other.raw_bytes),
            entries: self.entries.saturating_add(other.entries),
            deletes: self.deletes.saturating_add(other.deletes),
            seq_min: self.seq_min.min(other.seq_min),
            seq_max: self.seq_max.max(other.seq_max),
        }
    }
}

/// Two tables that cannot be in one run, in key order.
#[derive(Clone, Debug)]
pub(crate) struct Overlap(pub(crate) Arc<TableMeta>, pub(crate) Arc<TableMeta>);

/// The tables of a run with an attachment each. A clone shares everything.
#[derive(Debug)]
pub(crate) struct TableList<T>(Arc<Inner<T>>);

impl<T> Clone for TableList<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<T> {
    chunks: Box<[Arc<Chunk<T>>]>,
    /// 8-byte prefix of the largest key of every chunk.
    fences: Box<[u64]>,
    /// Index of the first table of every chunk.
    starts: Box<[usize]>,
    totals: Totals,
}

#[derive(Debug)]
struct Chunk<T> {
    metas: Arc<[Arc<TableMeta>]>,
    attached: Box<[T]>,
    /// 8-byte prefix of the largest key of every table.
    fences: Arc<[u64]>,
    totals: Totals,
}

impl<T> Chunk<T> {
    fn new(tables: Vec<(Arc<TableMeta>, T)>) -> Self {
        assert!(
            (1..=CHUNK_TABLES_MAX).contains(&tables.len()),
            "a chunk of {} tables; it has 1 to {CHUNK_TABLES_MAX}",
            tables.len()
        );
        let totals = tables.iter().fold(Totals::default(), |t, (m, _)| t.plus(Totals::of(m)));
        let fences = tables.iter().map(|(m, _)| prefix(&m.largest)).collect();
        let (metas, attached): (Vec<_>, Vec<_>) = tables.into_iter().unzip();
        Self { metas: metas.into(), attached: attached.into(), fences, totals }
    }

    fn pairs(&self) -> impl DoubleEndedIterator<Item = (&Arc<TableMeta>, &T)> {
        self.metas.iter().zip(self.attached.iter())
    }
}

/// The first index whose largest key is at or above `key`; the prefixes decide all but ties.
fn lower_bound<'a>(
    fences: &[u64],
    key: &[u8],
    largest: impl Fn(usize) -> Option<&'a [u8]>,
) -> usize {
    let wanted = prefix(key);
    let mut low = fences.partition_point(|&fence| fence < wanted);
    let mut high = low + fences.get(low..).map_or(0, |f| f.partition_point(|&x| x == wanted));
    while low < high {
        let middle = low.midpoint(high);
        if largest(middle).is_some_and(|largest| compare(largest, key).is_lt()) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl<T> TableList<T> {
    /// The tables, which must be in key order, with their attachments.
    ///
    /// # Errors
    /// The first two neighbours that share a user key or are out of order.
    pub(crate) fn new(tables: Vec<(Arc<TableMeta>, T)>) -> Result<Self, Overlap> {
        for pair in tables.windows(2) {
            if let [(a, _), (b, _)] = pair {
                check_neighbours(a, b)?;
            }
        }
        let mut chunks = Vec::new();
        split(tables, &mut chunks);
        Ok(Self::from_chunks(chunks))
    }

    fn from_chunks(chunks: Vec<Arc<Chunk<T>>>) -> Self {
        let mut totals = Totals::default();
        let mut starts = Vec::with_capacity(chunks.len());
        let mut fences = Vec::with_capacity(chunks.len());
        for chunk in &chunks {
            starts.push(totals.tables);
            fences.push(chunk.fences.last().copied().unwrap_or(0));
            totals = totals.plus(chunk.totals);
        }
        assert!(fences.is_sorted(), "chunks out of order, by the fences {fences:?}");
        Self(Arc::new(Inner {
            chunks: chunks.into(),
            fences: fences.into(),
            starts: starts.into(),
            totals,
        }))
    }

    /// Number of tables.
    pub(crate) fn len(&self) -> usize {
        self.0.totals.tables
    }

    /// Whether there is no table.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sums over all tables.
    pub(crate) fn totals(&self) -> &Totals {
        &self.0.totals
    }

    /// The table at `index`.
    pub(crate) fn get(&self, index: usize) -> Option<(&Arc<TableMeta>, &T)> {
        let chunk_index = self.0.starts.partition_point(|&start| start <= index).checked_sub(1)?;
        let chunk = self.0.chunks.get(chunk_index)?;
        let at = index - self.0.starts.get(chunk_index)?;
        Some((chunk.metas.get(at)?, chunk.attached.get(at)?))
    }

    /// Index of the first table whose largest key is at or above `key`; `len()` if there is none.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        let inner = &*self.0;
        let chunk_index = lower_bound(&inner.fences, key, |i| {
            Some(inner.chunks.get(i)?.metas.last()?.largest.as_slice())
        });
        let Some(chunk) = inner.chunks.get(chunk_index) else { return self.len() };
        let at = lower_bound(&chunk.fences, key, |i| Some(chunk.metas.get(i)?.largest.as_slice()));
        inner.starts.get(chunk_index).map_or(self.len(), |start| start + at)
    }

    /// The only table that may hold `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Option<(&Arc<TableMeta>, &T)> {
        let (meta, table) = self.get(self.lower_bound(key))?;
        debug_assert!(compare(key, &meta.largest).is_le(), "{key:?} is above {:?}", meta.largest);
        compare(&meta.smallest, key).is_le().then_some((meta, table))
    }

    /// Indices of the tables that may hold a key between the bounds.
    pub(crate) fn overlapping(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Range<usize> {
        let from = match lower {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.lower_bound(key),
            Bound::Excluded(key) => {
                let at = self.lower_bound(key);
                at + usize::from(self.get(at).is_some_and(|(m, _)| m.largest == key))
            }
        };
        let to = match upper {
            Bound::Unbounded => self.len(),
            Bound::Included(key) => {
                let at = self.lower_bound(key);
                at + usize::from(self.get(at).is_some_and(|(m, _)| m.smallest.as_slice() <= key))
            }
            Bound::Excluded(key) => {
                let at = self.lower_bound(key);
                at + usize::from(self.get(at).is_some_and(|(m, _)| m.smallest.as_slice() < key))
            }
        };
        from..to.max(from)
    }

    /// The tables with these indices, in key order.
    pub(crate) fn range(
        &self,
        range: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = (&Arc<TableMeta>, &T)> {
        let range = range.start..range.end.min(self.len());
        range.filter_map(|index| self.get(index))
    }

    /// All tables, in key order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Arc<TableMeta>, &T)> {
        self.0.chunks.iter().flat_map(|chunk| chunk.pairs())
    }

    /// What masks hide of the tables. Costs nothing where there is none.
    pub(crate) fn hidden(&self) -> Intervals {
        let mut hidden = Intervals::default();
        for chunk in self.0.chunks.iter().filter(|chunk| chunk.totals.masked > 0) {
            let masks = chunk.metas.iter().flat_map(|meta| &meta.masks);
            masks.for_each(|mask| hidden.add(mask.interval.clone()));
        }
        hidden
    }

    /// The same tables without their attachments. Costs one small allocation per chunk.
    pub(crate) fn metas(&self) -> TableList<()> {
        let inner = &*self.0;
        let chunks = inner.chunks.iter().map(|chunk| {
            Arc::new(Chunk {
                metas: Arc::clone(&chunk.metas),
                attached: vec![(); chunk.metas.len()].into(),
                fences: Arc::clone(&chunk.fences),
                totals: chunk.totals,
            })
        });
        TableList(Arc::new(Inner {
            chunks: chunks.collect(),
            fences: inner.fences.clone(),
            starts: inner.starts.clone(),
            totals: inner.totals,
        }))
    }
}

#[cfg(test)]
impl<T> TableList<T> {
    /// Number of chunks shared with `other`, and of all chunks.
    pub(crate) fn shared_chunks(&self, other: &Self) -> (usize, usize) {
        let theirs: std::collections::BTreeSet<_> =
            other.0.chunks.iter().map(Arc::as_ptr).collect();
        let shared = self.0.chunks.iter().filter(|c| theirs.contains(&Arc::as_ptr(c))).count();
        (shared, self.0.chunks.len())
    }
}

impl<T> Default for TableList<T> {
    fn default() -> Self {
        Self::from_chunks(Vec::new())
    }
}

fn check_neighbours(a: &Arc<TableMeta>, b: &Arc<TableMeta>) -> Result<(), Overlap> {
    if compare(&a.largest, &b.smallest).is_lt() {
        return Ok(());
    }
    Err(Overlap(Arc::clone(a), Arc::clone(b)))
}

/// Cuts `tables` into chunks of about equal size and appends them.
fn split<T>(tables: Vec<(Arc<TableMeta>, T)>, chunks: &mut Vec<Arc<Chunk<T>>>) {
    let parts = tables.len().div_ceil(CHUNK_TABLES_MAX);
    let mut left = tables.len();
    let mut tables = tables.into_iter();
    for part in (1..=parts).rev() {
        let take = left.div_ceil(part);
        left -= take;
        chunks.push(Arc::new(Chunk::new(tables.by_ref().take(take).collect())));
    }
    assert_eq!(tables.len(), 0, "tables that {parts} chunks left out");
}

impl<T: Clone> TableList<T> {
    /// The list without the tables at the indices `removed` and with `added`. Both must be in
    /// ascending order. Copies the touched chunks only.
    ///
    /// # Errors
    /// Two tables of the result that would share a user key.
    pub(crate) fn edit(
        &self,
        removed: &[usize],
        added: Vec<(Arc<TableMeta>, T)>,
    ) -> Result<Self, Overlap> {
        assert!(
            removed.is_sorted_by(|a, b| a < b) && removed.last().is_none_or(|&at| at < self.len()),
            "indices {removed:?} of a list of {} tables",
            self.len()
        );
        assert!(added.is_sorted_by(|(a, _), (b, _)| a.smallest <= b.smallest), "unsorted tables");
        let expected = self.len() - removed.len() + added.len();
        let inner = &*self.0;
        if inner.chunks.is_empty() {
            return Self::new(added);
        }
        let mut chunks: Vec<Arc<Chunk<T>>> = Vec::with_capacity(inner.chunks.len() + 1);
        let mut removed = removed.iter().copied().peekable();
        let mut added = added.into_iter().peekable();
        // Tables of rebuilt chunks that are not in a chunk yet.
        let mut pending: Vec<(Arc<TableMeta>, T)> = Vec::new();
        let last = inner.chunks.len() - 1;
        for (index, (chunk, &start)) in inner.chunks.iter().zip(&inner.starts).enumerate() {
            let end = start + chunk.metas.len();
            let in_chunk = |meta: &TableMeta| {
                let largest = chunk.metas.last().map_or(&[][..], |m| m.largest.as_slice());
                index == last || compare(&meta.smallest, largest).is_le()
            };
            let touched = removed.peek().is_some_and(|&at| at < end)
                || added.peek().is_some_and(|(meta, _)| in_chunk(meta));
            if !touched && (pending.is_empty() || pending.len() >= CHUNK_TABLES_MIN) {
                flush(&mut pending, &mut chunks)?;
                check_boundary(&chunks, chunk)?;
                chunks.push(Arc::clone(chunk));
                continue;
            }
            for (at, (meta, attached)) in (start..).zip(chunk.pairs()) {
                if removed.next_if_eq(&at).is_some() {
                    continue;
                }
                while let Some(table) = added.next_if(|(new, _)| new.smallest < meta.smallest) {
                    pending.push(table);
                }
                pending.push((Arc::clone(meta), attached.clone()));
            }
            while let Some(table) = added.next_if(|(new, _)| in_chunk(new)) {
                pending.push(table);
            }
        }
        flush(&mut pending, &mut chunks)?;
        let edited = Self::from_chunks(chunks);
        assert_eq!(edited.len(), expected, "tables were lost or kept by an edit");
        Ok(edited)
    }
}

/// Turns the pending tables into chunks, checked against each other and the chunk before.
fn flush<T>(
    pending: &mut Vec<(Arc<TableMeta>, T)>,
    chunks: &mut Vec<Arc<Chunk<T>>>,
) -> Result<(), Overlap> {
    let before = chunks.last().and_then(|chunk| chunk.metas.last());
    if let (Some(before), Some((first, _))) = (before, pending.first()) {
        check_neighbours(before, first)?;
    }
    for pair in pending.windows(2) {
        if let [(a, _), (b, _)] = pair {
            check_neighbours(a, b)?;
        }
    }
    split(std::mem::take(pending), chunks);
    Ok(())
}

fn check_boundary<T>(chunks: &[Arc<Chunk<T>>], next: &Chunk<T>) -> Result<(), Overlap> {
    match (chunks.last().and_then(|chunk| chunk.metas.last()), next.metas.first()) {
        (Some(a), Some(b)) => check_neighbours(a, b),
        _ => Ok(()),
    }
}
