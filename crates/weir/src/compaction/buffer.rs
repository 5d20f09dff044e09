//! Which tables leave the buffer lists (LSbM §4.2, Alg. 2). Pure.
//!
//! A table is kept for its cached blocks. One of which too few are cached leaves, except from the
//! buffered run that is being appended to, whose blocks readers are only getting to know. A damaged
//! one leaves, and where indexes and filters of kept tables take more memory than they may, those
//! that serve the fewest cached bytes for it.
//!
//! Not here: what becomes of the list (`version::buffer_list`), who asks and when (`db::lists`).

use std::collections::BTreeSet;

use crate::base::ids::TableUid;

/// A table of a list, and how much of it is cached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedTable {
    /// The table.
    pub(crate) uid: TableUid,
    /// The part of its blocks that is cached.
    pub(crate) residency: f32,
    /// Bytes of its data.
    pub(crate) data_bytes: u64,
    /// Bytes of its index and filter.
    pub(crate) metadata_bytes: u64,
    /// It is in the buffered run that is being appended to.
    pub(crate) is_appended_to: bool,
    /// A reader found it damaged.
    pub(crate) is_damaged: bool,
}

/// The tables that leave. Without a `threshold` none leaves for its residency.
pub(crate) fn trim(
    tables: &[ListedTable],
    threshold: Option<f32>,
    metadata_bytes_max: u64,
) -> BTreeSet<TableUid> {
    let is_cold = |table: &ListedTable| {
        !table.is_appended_to && threshold.is_some_and(|threshold| table.residency < threshold)
    };
    let leaves = |table: &&ListedTable| table.is_damaged || is_cold(table);
    let mut leaving: BTreeSet<TableUid> =
        tables.iter().filter(leaves).map(|table| table.uid).collect();
    let mut kept: Vec<&ListedTable> = tables.iter().filter(|table| !leaves(table)).collect();
    let mut bytes: u64 = kept.iter().map(|table| table.metadata_bytes).sum();
    let worth = |table: &ListedTable| {
        f64::from(table.residency) * table.data_bytes as f64 / table.metadata_bytes.max(1) as f64
    };
    kept.sort_by(|a, b| worth(a).total_cmp(&worth(b)).then(a.uid.cmp(&b.uid)));
    for table in kept {
        if bytes <= metadata_bytes_max {
            break;
        }
        bytes -= table.metadata_bytes;
        leaving.insert(table.uid);
    }
    leaving
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::uid;

    fn table(number: u64, residency: f32) -> ListedTable {
        ListedTable {
            uid: uid(number),
            residency,
            data_bytes: 1000,
            metadata_bytes: 10,
            is_appended_to: false,
            is_damaged: false,
        }
    }

    fn numbers(leaving: &BTreeSet<TableUid>) -> Vec<u64> {
        leaving.iter().map(|uid| uid.get()).collect()
    }

    /// Goal: LSbM Alg. 2. Method: tables on both sides of the threshold, one of them new.
    #[test]
    fn cold_tables_leave_but_not_the_newest() {
        let newest = ListedTable { is_appended_to: true, ..table(3, 0.0) };
        let tables = [table(1, 0.79), table(2, 0.8), newest, table(4, 1.0)];
        assert_eq!(numbers(&trim(&tables, Some(0.8), u64::MAX)), [1]);
        assert_eq!(numbers(&trim(&tables, Some(0.0), u64::MAX)), [] as [u64; 0]);
        assert_eq!(numbers(&trim(&tables, None, u64::MAX)), [] as [u64; 0]);
    }

    /// Goal: a damaged table leaves whatever else is true of it.
    #[test]
    fn damaged_tables_leave() {
        let damaged = ListedTable { is_damaged: true, is_appended_to: true, ..table(1, 1.0) };
        assert_eq!(numbers(&trim(&[damaged, table(2, 1.0)], None, u64::MAX)), [1]);
    }

    /// Goal: memory for metadata is bounded; the least useful tables leave first.
    #[test]
    fn metadata_is_bounded() {
        let large = ListedTable { metadata_bytes: 40, ..table(4, 1.0) };
        let tables = [table(1, 0.9), table(2, 0.2), table(3, 0.5), large];
        assert_eq!(numbers(&trim(&tables, None, 70)), [] as [u64; 0]);
        assert_eq!(numbers(&trim(&tables, None, 69)), [2]);
        assert_eq!(numbers(&trim(&tables, None, 20)), [2, 4]);
    }
}
