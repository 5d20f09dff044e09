//! How much there is between two keys, without reading it.
//!
//! What is known is where tables begin and end, how many entries they have, where a key lies in
//! them, and what masks hide; of memtables, how many entries they have. Nothing is known of which
//! entries hide which.

use std::ops::Bound;
use std::sync::Arc;

use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::interval::Interval;
use crate::base::key::{Kind, SEQ_MAX};
use crate::base::table_meta::{Content, Mask, TableMeta};
use crate::memtable::Memtable;
use crate::state::tree::Tree;
use crate::table::Table;

/// Steps through a memtable that an exact number of its entries is worth.
const STEPS_MAX: u64 = 1000;

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

fn borrowed<'a>(lower: &'a Bound<Vec<u8>>, upper: &'a Bound<Vec<u8>>) -> Bounds<'a> {
    (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice))
}

/// Bytes on disk between two bounds, but for what masks hide.
pub(super) fn size(tree: &Tree, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> Result<u64> {
    let range = Interval::of_bounds((lower.clone(), upper.clone()));
    let (lower, upper) = borrowed(lower, upper);
    let current = tree.pin();
    let mut bytes = 0;
    for run in current.version.runs_newest_first() {
        for (meta, table) in run.overlapping(lower, upper) {
            let mut shown = part_of(table, lower, upper, meta.bytes)?;
            for (_, common) in masks_in(meta, &range) {
                let (from, to) = common.bounds();
                shown = shown.saturating_sub(part_of(table, from, to, meta.bytes)?);
            }
            bytes += shown;
        }
    }
    Ok(bytes)
}

/// The masks that hide something of a range, each with what they have in common.
fn masks_in<'a>(
    meta: &'a TableMeta,
    range: &'a Interval,
) -> impl Iterator<Item = (&'a Mask, Interval)> {
    let common = meta.masks.iter().map(|mask| (mask, mask.interval.common(range)));
    common.filter(|(_, common)| !common.is_empty())
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

/// All puts of a table that no mask hides within the bounds; of one that they cut, the share of its
/// blocks, and one block for each end. What a mask hides is known; of one that they cut, a share.
fn count_in_table(
    meta: &TableMeta,
    table: &Table,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> Result<u64> {
    let puts_of = |content: Content| content.entries.saturating_sub(content.deletes);
    let (visible, puts) = (puts_of(meta.visible()), puts_of(meta.content()));
    let (cut_below, cut_above) =
        (!is_above(&meta.smallest, lower), !is_below(&meta.largest, upper));
    if !cut_below && !cut_above {
        return Ok(visible);
    }
    let data_bytes = (meta.bytes - meta.tail_bytes).max(1);
    let share = |puts: u64, part: u64, whole: u64| {
        let share = u128::from(puts) * u128::from(part) / u128::from(whole.max(1));
        u64::try_from(share).unwrap_or(puts).min(puts)
    };
    let block = puts.div_ceil(u64::from(meta.blocks).max(1));
    let ends = (u64::from(cut_below) + u64::from(cut_above)) * block;
    let mut shown = share(puts, part_of(table, lower, upper, data_bytes)?, data_bytes) + ends;
    let range = Interval::of_bounds((lower.map(<[u8]>::to_vec), upper.map(<[u8]>::to_vec)));
    for (mask, common) in masks_in(meta, &range) {
        let hidden = puts_of(mask.hidden);
        let hidden = if common == mask.interval {
            hidden
        } else {
            let ((from, to), (first, last)) = (common.bounds(), mask.interval.bounds());
            let whole = part_of(table, first, last, data_bytes)?;
            share(hidden, part_of(table, from, to, data_bytes)?, whole).saturating_sub(block)
        };
        shown = shown.saturating_sub(hidden);
    }
    Ok(shown.min(visible))
}

#[cfg(test)]
mod tests {
    use crate::{CompactionPolicy, Db, Options};

    /// Goal: what a sentinel hides below it is not counted twice, and what it leaves there is. It
    /// was taken as spread over all of the table. Method: one table, a sentinel over a half, a
    /// quarter and over what two bounds cut.
    #[test]
    fn masks_are_where_they_are() {
        for part in [5000..10_000, 2500..5000, 0..2500_u32] {
            let dir = tempfile::tempdir().unwrap();
            let options = Options::default().compaction(CompactionPolicy::tiered());
            let db = Db::builder(dir.path()).default_options(options).open().unwrap();
            let key = |number: u32| format!("{number:06}").into_bytes();
            for number in 0..10_000 {
                db.put(key(number), [7; 100]).unwrap();
            }
            db.flush().unwrap();
            db.compact_range(..).unwrap();
            let before = db.approximate_size(..).unwrap();
            let range = key(part.start)..key(part.end);
            assert!(db.default_keyspace().build_sentinel(range).unwrap());
            for asked in [0..2500, 2500..5000, 5000..10_000, 4000..6000, 1000..9000, 0..10_000] {
                let count = db.approximate_count(key(asked.start)..key(asked.end)).unwrap();
                let exact = u64::from(asked.end - asked.start);
                assert!((exact..exact + 250).contains(&count), "{part:?} {asked:?}: {count}");
                let bytes = db.approximate_size(key(asked.start)..key(asked.end)).unwrap();
                let expected = before * exact / 10_000;
                let off = bytes.abs_diff(expected);
                assert!(off < before / 20, "{part:?} {asked:?}: {bytes}, {expected} before");
            }
            db.close().unwrap();
        }
    }
}
