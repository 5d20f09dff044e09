//! Each rule of `check`, and each refusal of `root`, with the story that it prevents.

use std::sync::Arc;

use super::{meta, set};
use crate::base::error::ErrorKind;
use crate::base::ids::{KeyspaceId, epoch, level, lsn, segment, uid};
use crate::base::table_meta::TableMeta;
use crate::log::LogPosition;
use crate::options::Options;
use crate::version::edit::{Flushed, KeyspaceEdit, VersionEdit};
use crate::version::set::{ApplyError, Installed, VersionSet};

/// A keyspace with runs of epochs 30 (uid 3) and 20 (uid 2) in level 0, and tables 10 [a, f] and 11
/// [m, p] in level 1.
pub(super) fn tree() -> VersionSet {
    let (set, _) = set::fresh(1 << 20);
    apply(&set, |part| {
        part.create = Some("default".into());
        part.options = Some(Arc::new(Options::default()));
        part.add_table(level(0), epoch(30), meta(3, "a", "h", (200, 300)));
        part.add_table(level(0), epoch(20), meta(2, "e", "z", (100, 199)));
        part.add_table(level(1), epoch(10), meta(10, "a", "f", (1, 50)));
        part.add_table(level(1), epoch(10), meta(11, "m", "p", (1, 99)));
        part.flushed = Some(flushed(5, 300));
    })
    .unwrap();
    set
}

pub(super) fn flushed(group: u64, flushed_seq: u64) -> Flushed {
    let log_start = LogPosition {
        segment: segment(1),
        offset: group * 100,
        lsn: lsn(group),
        ..LogPosition::ORIGIN
    };
    Flushed { log_start, flushed_seq, durable_lsn: lsn(group - 1) }
}

pub(super) fn apply(
    set: &VersionSet,
    change: impl FnOnce(&mut KeyspaceEdit),
) -> Result<Installed, ApplyError> {
    let mut edit = VersionEdit::default();
    change(edit.keyspace(KeyspaceId::new(0)));
    set.apply(edit)
}

fn refused(change: impl FnOnce(&mut KeyspaceEdit), why: &str) {
    refused_of(&tree(), change, why);
}

pub(super) fn refused_of(set: &VersionSet, change: impl FnOnce(&mut KeyspaceEdit), why: &str) {
    let failed = apply(set, change).unwrap_err();
    assert_eq!((failed.error.kind(), failed.maybe_persisted), (ErrorKind::Conflict, false));
    let text = failed.error.to_string();
    assert!(text.contains(why), "{text} does not say {why:?}");
}

#[test]
fn sound_edits_pass() {
    // Level 0 to level 1, all of it.
    apply(&tree(), |part| {
        part.remove_table(level(0), uid(3));
        part.remove_table(level(0), uid(2));
        part.remove_table(level(1), uid(10));
        part.remove_table(level(1), uid(11));
        part.add_table(level(1), epoch(10), meta(40, "a", "g", (1, 300)));
        part.add_table(level(1), epoch(10), meta(41, "h", "z", (1, 300)));
    })
    .unwrap();
    // The oldest run of level 0 alone.
    apply(&tree(), |part| {
        part.remove_table(level(0), uid(2));
        part.remove_table(level(1), uid(10));
        part.remove_table(level(1), uid(11));
        part.add_table(level(1), epoch(10), meta(40, "a", "z", (1, 199)));
    })
    .unwrap();
    // A table moves down and passes no other.
    let set = tree();
    let before = Arc::clone(
        set.current().keyspaces.get(KeyspaceId::new(0)).unwrap().version.levels()[level(1)]
            .filling
            .runs[0]
            .find(b"n")
            .unwrap(),
    );
    let moved = meta(11, "m", "p", (1, 99));
    let installed = apply(&set, |part| {
        part.remove_table(level(1), uid(11));
        part.add_table(level(2), epoch(10), moved);
    })
    .unwrap();
    assert!(installed.removed.is_empty());
    let after = installed.root.keyspaces.get(KeyspaceId::new(0)).unwrap().version.levels()
        [level(2)]
    .filling
    .runs[0]
        .find(b"n")
        .cloned();
    assert!(Arc::ptr_eq(&before, &after.unwrap()), "a moved table keeps its reader");
    // The next flush.
    apply(&tree(), |part| {
        part.add_table(level(0), epoch(31), meta(50, "a", "z", (301, 310)));
        part.flushed = Some(flushed(9, 310));
    })
    .unwrap();
}

#[test]
fn tables_must_make_sense() {
    refused(|p| p.add_table(level(2), epoch(9), meta(60, "b", "a", (1, 1))), "smallest key above");
    refused(|p| p.add_table(level(2), epoch(9), meta(60, "a", "b", (9, 1))), "sequence");
    refused(|p| p.add_table(level(2), epoch(9), meta(0, "a", "b", (1, 1))), "never assigned");
    refused(
        |p| {
            let mut table = (*meta(60, "a", "b", (1, 1))).clone();
            table.entries = 0;
            p.add_table(level(2), epoch(9), Arc::new(table));
        },
        "counts",
    );
}

#[test]
fn tables_are_in_one_place() {
    refused(|p| p.add_table(level(2), epoch(9), meta(3, "a", "b", (1, 1))), "in use");
    refused(|p| p.remove_table(level(1), uid(3)), "not in level 1");
    refused(|p| p.remove_table(level(0), uid(77)), "not in level 0");
    refused(
        |p| {
            p.remove_table(level(0), uid(3));
            p.remove_table(level(0), uid(3));
        },
        "twice",
    );
    refused(
        |p| {
            p.add_table(level(2), epoch(9), meta(60, "a", "b", (1, 1)));
            p.add_table(level(3), epoch(9), meta(60, "a", "b", (1, 1)));
        },
        "twice",
    );
    // A table that moves must stay what it is.
    refused(
        |p| {
            p.remove_table(level(1), uid(11));
            p.add_table(level(2), epoch(10), meta(11, "m", "q", (1, 99)));
        },
        "in use",
    );
}

/// LevelDB #320: two versions of one user key in two tables of a level.
#[test]
fn a_run_does_not_split_a_user_key() {
    refused(|p| p.add_table(level(1), epoch(10), meta(60, "f", "g", (1, 60))), "overlap");
    refused(|p| p.add_table(level(1), epoch(10), meta(60, "k", "m", (1, 60))), "overlap");
}

/// RocksDB #5913: level 0 must be newest first, by epoch and by sequence.
#[test]
fn level_0_is_newest_first() {
    refused(|p| p.add_table(level(0), epoch(40), meta(60, "x", "z", (250, 260))), "newest first");
    refused(|p| p.add_table(level(0), epoch(5), meta(60, "x", "z", (301, 310))), "newest first");
}

#[test]
fn flushes_install_oldest_first() {
    let flush = |number, seqs: (u64, u64), lsn, flushed_seq| {
        move |p: &mut KeyspaceEdit| {
            p.add_table(level(0), epoch(number), meta(60, "a", "b", seqs));
            p.flushed = Some(flushed(lsn, flushed_seq));
        }
    };
    refused(flush(25, (301, 310), 9, 310), "newest first");
    refused(flush(40, (300, 310), 9, 310), "newest first");
    refused(flush(40, (301, 311), 9, 310), "not within");
    refused(flush(40, (301, 310), 4, 310), "goes back");
    refused(|p| p.flushed = Some(flushed(9, 299)), "goes back");
}

/// H23, H48: an older run stays while newer data for its keys moves below it.
#[test]
fn data_does_not_overtake_older_data() {
    // The newer run of level 0 goes down and leaves the older one above its data.
    refused(
        |p| {
            p.remove_table(level(0), uid(3));
            p.remove_table(level(1), uid(10));
            p.add_table(level(1), epoch(10), meta(60, "a", "h", (1, 300)));
        },
        "would pass table 2",
    );
    // The oldest run goes to level 2, past level 1.
    refused(
        |p| {
            p.remove_table(level(0), uid(2));
            p.add_table(level(2), epoch(9), meta(60, "e", "z", (100, 199)));
        },
        "would pass table 10",
    );
    // A table moves past another level.
    refused(
        |p| {
            p.remove_table(level(0), uid(2));
            p.add_table(level(2), epoch(20), meta(2, "e", "z", (100, 199)));
        },
        "would pass table 10",
    );
    // Old data moves up past newer data.
    refused(
        |p| {
            p.remove_table(level(1), uid(10));
            p.add_table(level(0), epoch(31), meta(60, "a", "f", (301, 302)));
        },
        "would pass table 3",
    );
}

fn create(id: KeyspaceId, name: &str) -> VersionEdit {
    let mut edit = VersionEdit::default();
    edit.keyspace(id).create = Some(name.into());
    edit.keyspace(id).options = Some(Arc::default());
    edit
}

#[test]
fn keyspaces_begin_and_end_once() {
    let set = tree();
    assert_eq!(
        set.apply(create(KeyspaceId::new(1), "default")).unwrap_err().error.kind(),
        ErrorKind::Conflict
    );
    assert_eq!(
        set.apply(create(KeyspaceId::new(0), "other")).unwrap_err().error.kind(),
        ErrorKind::Conflict
    );
    let mut without_options = create(KeyspaceId::new(1), "other");
    without_options.keyspace(KeyspaceId::new(1)).options = None;
    assert_eq!(set.apply(without_options).unwrap_err().error.kind(), ErrorKind::Conflict);
    let mut drop_and_change = VersionEdit::default();
    drop_and_change.keyspace(KeyspaceId::new(0)).drop = true;
    drop_and_change.keyspace(KeyspaceId::new(0)).remove_table(level(0), uid(3));
    assert_eq!(set.apply(drop_and_change).unwrap_err().error.kind(), ErrorKind::Conflict);
    assert_eq!(apply(&set, |p| p.drop = true).unwrap().removed.len(), 4);
    assert_eq!(apply(&set, |p| p.drop = true).unwrap_err().error.kind(), ErrorKind::Closed);
}

/// Goal: one edit cannot give a uid to two tables, in two keyspaces neither: when one of them is
/// removed, the file of both is deleted.
#[test]
fn a_uid_is_added_to_one_keyspace() {
    let set = tree();
    set.apply(create(KeyspaceId::new(1), "other")).unwrap();
    let mut edit = VersionEdit::default();
    for id in [KeyspaceId::new(0), KeyspaceId::new(1)] {
        let table = TableMeta { keyspace: id, ..(*meta(70, "a", "b", (1, 1))).clone() };
        edit.keyspace(id).add_table(level(2), epoch(5), Arc::new(table));
    }
    let failed = set.apply(edit).unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Conflict);
    assert!(failed.error.to_string().contains("table 70 is added twice"), "{}", failed.error);
}

/// An edit over two keyspaces changes both or none.
#[test]
fn edits_over_keyspaces_are_atomic() {
    let set = tree();
    let before = set.current();
    let mut edit = VersionEdit::default();
    edit.keyspace(KeyspaceId::new(0)).remove_table(level(0), uid(3));
    edit.keyspace(KeyspaceId::new(1)).add_table(level(0), epoch(1), meta(70, "a", "b", (1, 1)));
    assert_eq!(set.apply(edit).unwrap_err().error.kind(), ErrorKind::Closed);
    assert!(Arc::ptr_eq(&before, &set.current()));
    assert!(set.live_tables().contains(&uid(3)));
}
