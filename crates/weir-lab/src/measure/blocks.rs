//! Blocks that the engine reads and writes, by cause, in bytes of a block; what the page cache
//! answers is read too. In all, scans are counted by the block that they enter, however short it
//! is.

use super::{grown, ratio};
use crate::record::{CAUSES, Record};

/// All that is read and written of tables while a store is at work: what BiLSM's Table 1 counts.
pub(super) const IN_ALL: &str = "blocks_in_all";

/// The causes that are counted there beside users.
const OF_TABLES: [&str; 3] = ["flush", "compaction", "sentinels"];

/// `read_blocks_CAUSE` and `written_blocks_CAUSE` for one of [`CAUSES`], and [`IN_ALL`]; `None` if
/// `name` is none of these.
pub(super) fn number(record: &Record, name: &str) -> Option<f64> {
    if name == IN_ALL {
        let both = |cause| [0, 1].map(|side| of(record, cause, side).unwrap_or(0.0)).iter().sum();
        let ends = record.samples.first().zip(record.samples.last());
        let users = ends.map_or(0.0, |(a, b)| grown(a.blocks, b.blocks));
        return Some(users + OF_TABLES.iter().map(|cause| -> f64 { both(cause) }).sum::<f64>());
    }
    match name.strip_prefix("read_blocks_") {
        Some(cause) => of(record, cause, 0),
        None => of(record, name.strip_prefix("written_blocks_")?, 1),
    }
}

/// Blocks read (side 0) or written (side 1) for `cause`.
fn of(record: &Record, cause: &str, side: usize) -> Option<f64> {
    let cause = CAUSES.iter().position(|known| *known == cause)?;
    let Some((first, last)) = record.samples.first().zip(record.samples.last()) else {
        return Some(0.0);
    };
    let bytes = grown(first.io[cause][side], last.io[cause][side]);
    Some(ratio(bytes, record.block_bytes as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Sample;

    /// Goal: all that tables cost is counted once, and what the log does is not.
    #[test]
    fn all_causes_of_tables_are_counted() {
        let mut last = Sample::default();
        for (cause, sides) in last.io.iter_mut().enumerate() {
            *sides = [10 << cause, 1000 << cause];
        }
        last.blocks = 7;
        let samples = vec![Sample::default(), last];
        let record = Record { samples, block_bytes: 10, ..Record::default() };
        let of = |name: &str| number(&record, name).expect(name);
        assert!((of(IN_ALL) - 101.0 * f64::from(2 + 4 + 64) - 7.0).abs() < 1e-9);
        assert!((of("written_blocks_sentinels") - 6400.0).abs() < 1e-9);
        assert!(number(&record, "written_blocks_nobody").is_none());
    }
}
