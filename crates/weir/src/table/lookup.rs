//! Point lookups in one table: probe, then fetch, for one key or for many in ascending order.
//!
//! A probe looks the key up in filter and index, which are in memory; only if they find a block is
//! it fetched. In a batch, neighbours in one block share its fetch.
//!
//! What a user's lookup finds it marks as read, in the block (`base::heat`); a delete too.
//!
//! Not here: the source of blocks (`fetch`), the order of runs in a search (`read`).
//!
//! Source: Merfeld, "Future work": queries in batches that share loaded pages.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::heat::mark;
use crate::base::ids::TableUid;
use crate::base::key::Seq;
use crate::base::value::Value;
use crate::cache::Purpose;
use crate::table::TableHit;
use crate::table::block::Row;
use crate::table::fetch::{Block, FetchFor};
use crate::table::reader::{Opened, Table};
use crate::table::table_cache::Gate;
use crate::table::touched::touch;

/// A key and its hash (`checksum::hash_key` under the store's seed).
pub(crate) type HashedKey<'a> = (&'a [u8], u64);

/// The result of filter and index for a key.
pub(super) enum Probe {
    /// The table does not hold it.
    No,
    /// If the table holds it, its newest entry is in this block, or in the next one if that is
    /// continued with the key.
    Block(usize),
}

impl Opened {
    /// Whether and where the table may hold `key` at `snapshot`. Reads nothing.
    #[inline(always)]
    pub(super) fn probe(&self, (key, key_hash): HashedKey<'_>, snapshot: Seq) -> Probe {
        if !self.may_contain(key_hash) {
            return Probe::No;
        }
        self.index.find(key, snapshot).map_or(Probe::No, Probe::Block)
    }
}

/// The result of the search for a key in one block.
enum Search {
    /// The row and its number.
    Row(Row, usize),
    /// The block holds an entry after the target, so no block holds the target.
    Absent,
    /// Every entry of the block is before the target.
    PastEnd,
}

impl Block {
    #[inline(always)]
    fn search(&self, key: &[u8], snapshot: Seq) -> Search {
        let found = self.layout.search(self.bytes(), key, snapshot);
        if found.index >= self.layout.count() {
            return Search::PastEnd;
        }
        if !found.same_key {
            return Search::Absent;
        }
        let row = self.layout.row(self.bytes(), found.index);
        debug_assert!(row.seq <= snapshot, "an entry of {} at the snapshot {snapshot}", row.seq);
        Search::Row(row, found.index)
    }

    /// The entry of a row, whose value keeps the block.
    #[inline(always)]
    fn into_hit(self, row: &Row) -> TableHit {
        let len = row.value_end - row.value_start;
        let value = Value::shared(self.buf, row.value_start, len);
        TableHit { seq: row.seq, kind: row.kind, value }
    }

    /// The entry of a row, whose value shares the block.
    fn hit(&self, row: &Row) -> TableHit {
        Self { buf: self.buf.clone(), layout: self.layout }.into_hit(row)
    }
}

/// The end of a lookup's walk: the last block that it fetched, and the row, if there is one.
struct Walk {
    last: Option<(usize, Block)>,
    row: Option<(Row, usize)>,
}

/// Searches the newest entry of `key` at `snapshot`, in blocks that `fetch` returns.
///
/// The versions of a key that precede `(key, snapshot)` may end with the probed block; older ones
/// follow only if the next block is continued with the key, and then its first one is the answer.
#[inline(always)]
fn walk(
    opened: &Opened,
    key: HashedKey<'_>,
    snapshot: Seq,
    mut fetch: impl FnMut(usize) -> Result<Block>,
) -> Result<Walk> {
    let Probe::Block(mut number) = opened.probe(key, snapshot) else {
        return Ok(Walk { last: None, row: None });
    };
    touch();
    loop {
        let block = fetch(number)?;
        let row = match block.search(key.0, snapshot) {
            Search::PastEnd if opened.index.continues(number + 1, key.0) => {
                number += 1;
                continue;
            }
            Search::PastEnd | Search::Absent => None,
            Search::Row(row, index) => Some((row, index)),
        };
        return Ok(Walk { last: Some((number, block)), row });
    }
}

impl Table {
    /// The newest entry of `key` with a sequence number of at most `snapshot`, a delete included.
    ///
    /// # Errors
    /// `Corruption` if the block that must hold it is damaged, `Io` if it cannot be read.
    #[inline]
    pub(crate) fn get_at(
        &self,
        gate: Gate<'_>,
        key: HashedKey<'_>,
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Option<TableHit>> {
        if snapshot < self.meta().seq_min {
            return Ok(None);
        }
        match self.slot().get(gate) {
            Some(opened) => {
                self.slot().note_use();
                let found = self.get_in(opened, key, snapshot, purpose);
                self.slot().end_lookup(opened);
                found
            }
            None => self.get_in_closed(key, snapshot, purpose),
        }
    }

    /// Whether filter and index say that the table may hold `key` at `snapshot`. Reads no block.
    ///
    /// # Errors
    /// If the table cannot be opened.
    #[inline]
    pub(crate) fn may_hold_at(
        &self,
        gate: Gate<'_>,
        key: HashedKey<'_>,
        snapshot: Seq,
    ) -> Result<bool> {
        if snapshot < self.meta().seq_min {
            return Ok(false);
        }
        let says = |opened: &Opened| matches!(opened.probe(key, snapshot), Probe::Block(_));
        match self.slot().get(gate) {
            Some(opened) => {
                self.slot().note_use();
                let may = says(opened);
                self.slot().end_lookup(opened);
                Ok(may)
            }
            None => Ok(says(&*self.open()?)),
        }
    }

    /// As [`get_at`](Self::get_at), for a caller without a gate.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn get(
        &self,
        key: &[u8],
        key_hash: u64,
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Option<TableHit>> {
        if snapshot < self.meta().seq_min {
            return Ok(None);
        }
        let pinned = self.pin()?;
        self.get_in(&pinned, (key, key_hash), snapshot, purpose)
    }

    #[cold]
    fn get_in_closed(
        &self,
        key: HashedKey<'_>,
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Option<TableHit>> {
        // Shared: the table may be closed again before a lookup through the gate.
        self.get_in(&*self.open()?, key, snapshot, purpose)
    }

    #[inline(always)]
    fn get_in(
        &self,
        opened: &Opened,
        key: HashedKey<'_>,
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Option<TableHit>> {
        let how = FetchFor { purpose, fill_cache: true };
        let found = walk(opened, key, snapshot, |block| self.fetch(opened, block, how))?;
        let (Some((_, block)), Some((row, index))) = (found.last, found.row) else {
            return Ok(None);
        };
        if purpose == Purpose::Foreground {
            self.touch(&block.buf, mark(index, block.layout.count()));
        }
        Ok(Some(block.into_hit(&row)))
    }
}

/// The table and the block of the last lookup of a batch: one of each at most.
#[derive(Default)]
pub(crate) struct HeldBlock {
    uid: TableUid,
    /// The block and its number.
    block: Option<(usize, Block)>,
    /// Index and filter of table `uid`.
    opened: Option<Arc<Opened>>,
}

impl Table {
    /// Index and filter, held in `held`, and the block that is held there if it is this table's.
    fn hold<'a>(
        &self,
        held: &'a mut HeldBlock,
    ) -> Result<(&'a Opened, &'a mut Option<(usize, Block)>)> {
        let HeldBlock { uid, block, opened } = held;
        let is_same = *uid == self.meta().uid;
        let opened = match opened.take().filter(|_| is_same) {
            Some(open) => &*opened.insert(open),
            None => {
                *block = None;
                &*opened.insert(self.pin()?)
            }
        };
        *uid = self.meta().uid;
        Ok((opened, block))
    }

    /// As [`Table::may_hold_at`]; index and filter are held.
    ///
    /// # Errors
    /// As [`Table::may_hold_at`].
    pub(crate) fn may_hold_in_batch(
        &self,
        held: &mut HeldBlock,
        key: HashedKey<'_>,
        snapshot: Seq,
    ) -> Result<bool> {
        if snapshot < self.meta().seq_min {
            return Ok(false);
        }
        let (opened, _) = self.hold(held)?;
        Ok(matches!(opened.probe(key, snapshot), Probe::Block(_)))
    }

    /// As [`Table::get_at`]. The block is taken from `held` if it is there; otherwise it is fetched
    /// and held.
    ///
    /// # Errors
    /// As [`Table::get_at`]; nothing is held then.
    pub(crate) fn get_in_batch(
        &self,
        held: &mut HeldBlock,
        key: HashedKey<'_>,
        snapshot: Seq,
        purpose: Purpose,
    ) -> Result<Option<TableHit>> {
        if snapshot < self.meta().seq_min {
            return Ok(None);
        }
        let (opened, held_block) = self.hold(held)?;
        let how = FetchFor { purpose, fill_cache: true };
        let found = walk(opened, key, snapshot, |number| {
            match held_block.take().filter(|(held, _)| *held == number) {
                Some((_, block)) => Ok(block),
                None => self.fetch(opened, number, how),
            }
        })?;
        if found.last.is_some() {
            *held_block = found.last;
        }
        let (Some((_, block)), Some((row, index))) = (held_block, found.row) else {
            return Ok(None);
        };
        if purpose == Purpose::Foreground {
            self.touch(&block.buf, mark(index, block.layout.count()));
        }
        Ok(Some(block.hit(&row)))
    }
}
