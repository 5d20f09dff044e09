//! Filling and draining parts of a level: rotations, moves between the parts, and their recovery.

use std::sync::Arc;

use super::{dump, meta, set};
use crate::base::error::ErrorKind;
use crate::base::ids::{KeyspaceId, Level, epoch, level, lsn, segment, uid};
use crate::log::LogPosition;
use crate::options::Options;
use crate::version::edit::{AddedTable, Flushed, KeyspaceEdit, Rotation, VersionEdit};
use crate::version::set::VersionSet;
use crate::version::shape::{PartKind, RunId};

/// Applies a change of keyspace 0.
fn apply(set: &VersionSet, change: impl FnOnce(&mut KeyspaceEdit)) -> Result<(), String> {
    let mut edit = VersionEdit::default();
    change(edit.keyspace(KeyspaceId::new(0)));
    set.apply(edit).map(|_| ()).map_err(|failed| {
        assert_eq!((failed.error.kind(), failed.maybe_persisted), (ErrorKind::Conflict, false));
        failed.error.to_string()
    })
}

fn refused(set: &VersionSet, change: impl FnOnce(&mut KeyspaceEdit), why: &str) {
    let text = apply(set, change).unwrap_err();
    assert!(text.contains(why), "{text} does not say {why:?}");
}

fn added(level: Level, part: PartKind, number: u64, table: u64, keys: (&str, &str)) -> AddedTable {
    AddedTable {
        run: RunId { level, part, epoch: epoch(number) },
        meta: meta(table, keys.0, keys.1, (1, 99)),
    }
}

/// Level 1: run 12 of tables 6 [a, e] and 7 [f, k] fills, run 10 of tables 3 [a, f] and 4 [m, p]
/// drains. Level 2: run 9 of table 2 [a, z].
fn tree(set: &VersionSet) {
    apply(set, |part| {
        part.create = Some("default".into());
        part.options = Some(Arc::new(Options::default()));
        part.add_table(level(1), epoch(10), meta(3, "a", "f", (1, 99)));
        part.add_table(level(1), epoch(10), meta(4, "m", "p", (1, 99)));
        part.add_table(level(2), epoch(9), meta(2, "a", "z", (1, 99)));
        let log_start = LogPosition { segment: segment(1), lsn: lsn(5), ..LogPosition::ORIGIN };
        part.flushed = Some(Flushed { log_start, flushed_seq: 300, durable_lsn: lsn(4) });
    })
    .unwrap();
    apply(set, |part| part.rotate(level(1), Rotation { bytes: 2007, entries: 20 })).unwrap();
    apply(set, |part| {
        part.add_table(level(1), epoch(12), meta(6, "a", "e", (100, 200)));
        part.add_table(level(1), epoch(12), meta(7, "f", "k", (100, 200)));
    })
    .unwrap();
}

fn order(set: &VersionSet) -> Vec<u64> {
    let root = set.current();
    let version = &root.keyspaces.get(KeyspaceId::new(0)).unwrap().version;
    version.tables().map(|table| table.meta().uid.get()).collect()
}

/// A rotation moves no table in the order of reading; tables added afterwards precede them.
#[test]
fn filling_is_read_before_draining() {
    let (set, _) = set::fresh(1 << 20);
    tree(&set);
    assert_eq!(order(&set), [6, 7, 3, 4, 2]);
    let root = set.current();
    let level = &root.keyspaces.get(KeyspaceId::new(0)).unwrap().version.levels()[level(1)];
    let part = level.part(PartKind::Draining).unwrap();
    assert_eq!((part.rotated_bytes, part.rotated_entries), (2007, 20));
    assert_eq!(level.part(PartKind::Filling).unwrap().runs.len(), 1);
}

#[test]
fn rotations_are_refused() {
    let (set, _) = set::fresh(1 << 20);
    tree(&set);
    refused(
        &set,
        |p| p.rotate(level(1), Rotation { bytes: 2013, entries: 20 }),
        "cannot be rotated",
    );
    refused(&set, |p| p.rotate(level(3), Rotation::default()), "cannot be rotated");
    refused(&set, |p| p.rotate(level(2), Rotation { bytes: 1003, entries: 10 }), "with 1003 bytes");
    refused(&set, |p| p.rotate(level(2), Rotation { bytes: 1002, entries: 9 }), "and 9 entries");
    // A draining part begins with a rotation.
    refused(
        &set,
        |p| p.added.push(added(level(2), PartKind::Draining, 1, 60, ("a", "b"))),
        "no draining",
    );
    refused(&set, |p| p.remove_table_from(level(2), PartKind::Draining, uid(2)), "no draining");
    // A table is where it is.
    refused(&set, |p| p.remove_table(level(1), uid(3)), "not in the run");
    refused(&set, |p| p.remove_table_from(level(1), PartKind::Draining, uid(6)), "not in the run");
}

/// Goal: no data overtakes newer or older data of the same keys, parts included (H4, H23). Method:
/// the steps of a round, each with the wrong order refused.
#[test]
fn data_keeps_its_order_through_a_round() {
    let (set, _) = set::fresh(1 << 20);
    tree(&set);
    // Filling data does not move down past draining data.
    let past = |p: &mut KeyspaceEdit| {
        p.remove_table(level(1), uid(6));
        p.remove_table(level(2), uid(2));
        p.add_table(level(2), epoch(9), meta(60, "a", "z", (1, 200)));
    };
    refused(&set, past, "would pass table 3");
    // Draining data does not move up past filling data.
    let up = |p: &mut KeyspaceEdit| {
        p.remove_table_from(level(1), PartKind::Draining, uid(3));
        p.added.push(added(level(1), PartKind::Filling, 13, 3, ("a", "f")));
    };
    refused(&set, up, "would pass table 6");
    // A draining table moves down, beside a filling one over the same keys.
    apply(&set, |p| {
        p.remove_table_from(level(1), PartKind::Draining, uid(3));
        p.remove_table(level(2), uid(2));
        p.add_table(level(2), epoch(9), meta(61, "a", "z", (1, 99)));
    })
    .unwrap();
    // The draining part is rewritten, and keeps the size that it was rotated with.
    apply(&set, |p| {
        p.remove_table_from(level(1), PartKind::Draining, uid(4));
        p.added.push(added(level(1), PartKind::Draining, 10, 62, ("m", "o")));
    })
    .unwrap();
    let draining = |set: &VersionSet| {
        let root = set.current();
        root.keyspaces.get(KeyspaceId::new(0)).unwrap().version.levels()[level(1)]
            .draining
            .as_ref()
            .map(|part| part.rotated_bytes)
    };
    assert_eq!(draining(&set), Some(2007));
    // Its last table moves back to the filling part, below the tables there: the round is over, and
    // the next may begin.
    apply(&set, |p| {
        p.remove_table_from(level(1), PartKind::Draining, uid(62));
        p.added.push(added(level(1), PartKind::Filling, 10, 62, ("m", "o")));
    })
    .unwrap();
    assert_eq!(draining(&set), None);
    assert_eq!(order(&set), [6, 7, 62, 61]);
    apply(&set, |part| part.rotate(level(1), Rotation { bytes: 1006 + 1007 + 1062, entries: 30 }))
        .unwrap();
    assert_eq!(order(&set), [6, 7, 62, 61]);
}

/// A level may be rotated and filled in one edit.
#[test]
fn rotations_come_first() {
    let (set, _) = set::fresh(1 << 20);
    tree(&set);
    apply(&set, |p| {
        p.rotate(level(2), Rotation { bytes: 1002, entries: 10 });
        p.remove_table_from(level(1), PartKind::Draining, uid(3));
        p.added.push(added(level(2), PartKind::Filling, 10, 3, ("a", "f")));
    })
    .unwrap();
    assert_eq!(order(&set), [6, 7, 4, 3, 2]);
}

/// Level 0 is newest first over both parts.
#[test]
fn level_0_has_parts_too() {
    let (set, _) = set::fresh(1 << 20);
    tree(&set);
    apply(&set, |p| {
        p.add_table(level(0), epoch(20), meta(20, "a", "c", (301, 310)));
        p.add_table(level(0), epoch(21), meta(21, "a", "c", (311, 320)));
    })
    .unwrap();
    apply(&set, |p| p.rotate(level(0), Rotation { bytes: 2041, entries: 20 })).unwrap();
    let older =
        |p: &mut KeyspaceEdit| p.add_table(level(0), epoch(22), meta(22, "x", "y", (315, 330)));
    refused(&set, older, "newest first");
    let lower_epoch =
        |p: &mut KeyspaceEdit| p.add_table(level(0), epoch(19), meta(22, "x", "y", (321, 330)));
    refused(&set, lower_epoch, "newest first");
    let to_draining = |p: &mut KeyspaceEdit| {
        let log_start = LogPosition { segment: segment(1), lsn: lsn(9), ..LogPosition::ORIGIN };
        p.flushed = Some(Flushed { log_start, flushed_seq: 330, durable_lsn: lsn(8) });
        let meta = meta(22, "x", "y", (321, 330));
        p.added.push(AddedTable {
            run: RunId { level: level(0), part: PartKind::Draining, epoch: epoch(22) },
            meta,
        });
    };
    refused(&set, to_draining, "draining part of level 0");
    apply(&set, |p| p.add_table(level(0), epoch(22), meta(22, "x", "y", (321, 330)))).unwrap();
}

/// A base restores a half-drained part with its size at the rotation.
#[test]
fn a_base_keeps_the_parts() {
    // Every edit rewrites the base.
    for version_log_bytes in [1, 1 << 20] {
        let (set, storage) = set::fresh(version_log_bytes);
        tree(&set);
        apply(&set, |p| p.remove_table_from(level(1), PartKind::Draining, uid(3))).unwrap();
        let before = dump(&set.current());
        assert!(before.contains("rotated (2007, 20)"), "{before}");
        drop(set);
        let set = VersionSet::recover(super::context(Arc::new(storage.clone()), version_log_bytes))
            .unwrap();
        assert_eq!(dump(&set.current()), before);
    }
}
