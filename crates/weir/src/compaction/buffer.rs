//! Which tables leave the buffer lists (LSbM §4.2, Alg. 2). Pure.
//!
//! A table is kept for its cached blocks. One of which too few are cached leaves, except from the
//! buffered run that is being appended to, whose blocks readers are only getting to know. A damaged
//! one leaves. Where indexes and filters of the kept tables of all keyspaces take more memory than
//! they may together, those leave that serve the fewest cached bytes for it.
//!
//! Not here: what becomes of the list (`version::buffer_list`), who asks and when (`db::lists`).

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::{KeyspaceId, TableUid};

/// A table of a list, and how much of it is cached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedTable {
    /// Its keyspace.
    pub(crate) keyspace: KeyspaceId,
    /// The table.
    pub(crate) uid: TableUid,
    /// The part of its blocks that is cached, if that is known.
    pub(crate) residency: Option<f32>,
    /// Bytes of its data.
    pub(crate) data_bytes: u64,
    /// Bytes of its index and filter.
    pub(crate) metadata_bytes: u64,
    /// It is in the buffered run that is being appended to.
    pub(crate) is_appended_to: bool,
    /// A reader found it damaged.
    pub(crate) is_damaged: bool,
}

/// The tables of a keyspace that leave. Without a `threshold` none leaves for its residency.
pub(crate) fn trim(tables: &[ListedTable], threshold: Option<f32>) -> BTreeSet<TableUid> {
    let is_cold = |table: &ListedTable| {
        let below = threshold.zip(table.residency).is_some_and(|(least, has)| has < least);
        below && !table.is_appended_to
    };
    let leaving = tables.iter().filter(|table| table.is_damaged || is_cold(table));
    leaving.map(|table| table.uid).collect()
}

/// The tables that leave because indexes and filters of all, those of all keyspaces, take more than
/// `bytes_max`. A table whose residency is unknown counts as cached: it has only just come.
pub(crate) fn over_memory(
    tables: &[ListedTable],
    bytes_max: u64,
) -> BTreeMap<KeyspaceId, BTreeSet<TableUid>> {
    let mut bytes: u64 = tables.iter().map(|table| table.metadata_bytes).sum();
    let worth = |table: &ListedTable| {
        let cached_bytes = f64::from(table.residency.unwrap_or(1.0)) * table.data_bytes as f64;
        cached_bytes / table.metadata_bytes.max(1) as f64
    };
    // One without metadata of its own gives no memory back.
    let mut by_worth: Vec<&ListedTable> =
        tables.iter().filter(|table| table.metadata_bytes > 0).collect();
    by_worth.sort_by(|a, b| worth(a).total_cmp(&worth(b)).then(a.uid.cmp(&b.uid)));
    let mut leaving = BTreeMap::<_, BTreeSet<_>>::new();
    for table in by_worth {
        if bytes <= bytes_max {
            break;
        }
        bytes -= table.metadata_bytes;
        leaving.entry(table.keyspace).or_default().insert(table.uid);
    }
    leaving
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::uid;

    fn table(number: u64, residency: f32) -> ListedTable {
        ListedTable {
            keyspace: KeyspaceId::DEFAULT,
            uid: uid(number),
            residency: Some(residency),
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
        let unknown = ListedTable { residency: None, ..table(5, 0.0) };
        let tables = [table(1, 0.79), table(2, 0.8), newest, table(4, 1.0), unknown];
        assert_eq!(numbers(&trim(&tables, Some(0.8))), [1]);
        assert_eq!(numbers(&trim(&tables, Some(0.0))), [] as [u64; 0]);
        assert_eq!(numbers(&trim(&tables, None)), [] as [u64; 0]);
    }

    /// Goal: a damaged table leaves whatever else is true of it.
    #[test]
    fn damaged_tables_leave() {
        let damaged = ListedTable { is_damaged: true, is_appended_to: true, ..table(1, 1.0) };
        assert_eq!(numbers(&trim(&[damaged, table(2, 1.0)], None)), [1]);
    }

    /// Goal: memory for metadata is bounded for all keyspaces together; the least useful tables
    /// leave first.
    #[test]
    fn metadata_is_bounded() {
        let other = KeyspaceId::new(7);
        let large = ListedTable { metadata_bytes: 40, keyspace: other, ..table(4, 1.0) };
        let unknown = ListedTable { residency: None, ..table(5, 0.0) };
        let shared = ListedTable { metadata_bytes: 0, ..table(6, 0.0) };
        let tables = [table(1, 0.9), table(2, 0.2), table(3, 0.5), large, unknown, shared];
        let leaving = |bytes_max| {
            let leaving = over_memory(&tables, bytes_max);
            let of = |id| leaving.get(&id).map(numbers).unwrap_or_default();
            (of(KeyspaceId::DEFAULT), of(other))
        };
        assert_eq!(leaving(80), (vec![], vec![]));
        assert_eq!(leaving(79), (vec![2], vec![]));
        assert_eq!(leaving(30), (vec![2], vec![4]));
        assert_eq!(leaving(29), (vec![2, 3], vec![4]));
        assert_eq!(leaving(0), (vec![1, 2, 3, 5], vec![4]));
    }
}
