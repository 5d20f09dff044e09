//! How much there is between two keys, without reading it.
//!
//! What is known is where tables begin and end, how many entries they have, and where a key lies in
//! them; of memtables, how many entries they have. Nothing is known of which entries hide which.

use std::ops::Bound;
use std::sync::Arc;

use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::key::{Kind, SEQ_MAX};
use crate::base::table_meta::TableMeta;
use crate::memtable::Memtable;
use crate::state::tree::Tree;
use crate::table::Table;

/// Steps through a memtable that an exact number of its entries is worth.
const STEPS_MAX: u64 = 1000;

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

fn borrowed<'a>(lower: &'a Bound<Vec<u8>>, upper: &'a Bound<Vec<u8>>) -> Bounds<'a> {
    (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice))
}

/// Bytes on disk between two bounds.
pub(super) fn size(tree: &Tree, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> Result<u64> {
    let (lower, upper) = borrowed(lower, upper);
    let current = tree.pin();
    let mut bytes = 0;
    for run in current.version.runs_newest_first() {
        for (meta, table) in run.overlapping(lower, upper) {
            let part = part_of(table, lower, upper, meta.bytes)?;
            bytes += shown_share(part, meta.visible_bytes(), meta.bytes);
        }
    }
    Ok(bytes)
}

/// The share of `part` of a table that no mask hides, as if it were the same everywhere.
fn shown_share(part: u64, visible: u64, all: u64) -> u64 {
    if visible >= all {
        return part;
    }
    u64::try_from(u128::from(part) * u128::from(visible) / u128::from(all)).unwrap_or(part)
}

/// Bytes of a table between two bounds, of its first `bytes`.
fn part_of(table: &Table, lower: Bound<&[u8]>, upper: Bound<&[u8]>, bytes: u64) -> Result<u64> {
    let offset = |bound: Bound<&[u8]>, open: u64| match bound {
        Bound::Included(key) | Bound::Excluded(key) => table.approximate_offset(key),
        Bound::Unbounded => Ok(open),
    };
    let start = offset(lower, 0)?.min(bytes);
    let end = offset(upper, bytes)?.min(bytes);
    Ok(end.saturating_sub(start))
}

/// Entries between two bounds that are no deletes. From above, but for tables that a bound cuts.
pub(super) fn count(tree: &Tree, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> Result<u64> {
    let (lower, upper) = borrowed(lower, upper);
    if is_empty(lower, upper) {
        return Ok(0);
    }
    let current = tree.pin();
    let mut entries: u64 = std::iter::once(&current.active)
        .chain(&current.immutables)
        .map(|buffer| count_in_memtable(&buffer.memtable, lower, upper))
        .sum();
    for run in current.version.runs_newest_first() {
        for (meta, table) in run.overlapping(lower, upper) {
            entries += count_in_table(meta, table, lower, upper)?;
        }
    }
    Ok(entries)
}

/// Whether no key is between the bounds.
fn is_empty(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
    }
}

fn is_below(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(upper) => key <= upper,
        Bound::Excluded(upper) => key < upper,
    }
}

fn is_above(key: &[u8], lower: Bound<&[u8]>) -> bool {
    match lower {
        Bound::Unbounded => true,
        Bound::Included(lower) => key >= lower,
        Bound::Excluded(lower) => key > lower,
    }
}

/// Exact, if the range has few entries; else all of the memtable's.
fn count_in_memtable(memtable: &Arc<Memtable>, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> u64 {
    let all = memtable.entries();
    if all == 0 || (lower, upper) == (Bound::Unbounded, Bound::Unbounded) {
        return all;
    }
    let mut cursor = memtable.cursor();
    match lower {
        Bound::Unbounded => cursor.seek_to_first(),
        Bound::Included(key) => cursor.seek(key, SEQ_MAX),
        Bound::Excluded(key) => cursor.seek(key, 0),
    }
    let (mut steps, mut puts) = (0, 0);
    while cursor.valid() && is_below(cursor.key(), upper) {
        if steps == STEPS_MAX {
            return all;
        }
        steps += 1;
        puts += u64::from(cursor.kind() == Kind::Put && is_above(cursor.key(), lower));
        cursor.next();
    }
    puts
}

/// All puts of a table within the bounds; of one that they cut, the share of its blocks, and one
/// block for each end.
fn count_in_table(
    meta: &TableMeta,
    table: &Table,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> Result<u64> {
    let visible = meta.visible();
    let puts = visible.entries.saturating_sub(visible.deletes);
    let (cut_below, cut_above) =
        (!is_above(&meta.smallest, lower), !is_below(&meta.largest, upper));
    if !cut_below && !cut_above {
        return Ok(puts);
    }
    let data_bytes = (meta.bytes - meta.tail_bytes).max(1);
    let part_bytes = part_of(table, lower, upper, data_bytes)?;
    let share = u128::from(puts) * u128::from(part_bytes) / u128::from(data_bytes);
    let share = u64::try_from(share).unwrap_or(puts);
    let blocks = u64::from(cut_below) + u64::from(cut_above);
    Ok((share + blocks * puts.div_ceil(u64::from(meta.blocks).max(1))).min(puts))
}
