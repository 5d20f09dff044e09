//! Repair where root record, version log and table files do not belong together: as half a backup
//! or a removed file leaves them.

#![expect(
    clippy::disallowed_methods,
    reason = "tests change the directory behind the store's back"
)]

use std::path::{Path, PathBuf};

use weir::{Db, DbOptions, DebugDbOptions, Durability, LeveledOptions, Options, RepairReport};

fn open(path: &Path) -> Db {
    Db::builder(path).memory_budget(8 << 20).open().expect("opened")
}

fn versions(path: &Path) -> Vec<PathBuf> {
    named(path, "versions-")
}

/// A store with a keyspace, a deleted key and a few openings; root record and version log as they
/// were at an early one.
fn store(path: &Path) -> (Vec<u8>, PathBuf, Vec<u8>) {
    let db = open(path);
    let two = db.create_keyspace("two", weir::Options::default()).expect("created");
    db.put(b"gone", b"1").expect("put");
    db.put(b"a", b"1").expect("put");
    two.put(b"k", b"v").expect("put");
    db.flush().expect("flushed");
    drop(two);
    db.close().expect("closed");
    let root = std::fs::read(path.join("ROOT")).expect("read");
    let log = versions(path).remove(0);
    let bytes = std::fs::read(&log).expect("read");
    for i in 0..3u8 {
        let db = open(path);
        db.delete(b"gone").expect("deleted");
        db.put_with(b"b", [i], Durability::Sync).expect("put");
        if i < 2 {
            db.flush().expect("flushed");
            db.compact_range(..).expect("compacted");
        }
        db.close().expect("closed");
    }
    (root, log, bytes)
}

fn check(path: &Path, what: &str) {
    let db = open(path);
    assert_eq!(db.keyspaces(), ["default", "two"], "{what}");
    let two = db.open_keyspace("two").expect("opened");
    assert_eq!(two.get(b"k").expect("got").as_deref(), Some(&b"v"[..]), "{what}");
    assert_eq!(db.get(b"a").expect("got").as_deref(), Some(&b"1"[..]), "{what}");
    assert_eq!(db.get(b"b").expect("got").as_deref(), Some(&[2u8][..]), "{what}");
    assert_eq!(db.get(b"gone").expect("got"), None, "{what}");
}

fn repair(path: &Path) -> RepairReport {
    Db::repair(path).expect("repaired")
}

/// Goal: a root record that names a log which is gone, or one that others went on after, is as
/// good as none: the newest sound version log counts. The story: repair believed the record,
/// rebuilt the tree, lost the names of keyspaces, brought deleted keys back, removed the sound
/// log, and called that "without loss".
#[test]
fn an_old_root_record_is_not_believed() {
    for with_log in [false, true] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path();
        let (root, log, bytes) = store(path);
        std::fs::write(path.join("ROOT"), root).expect("written");
        if with_log {
            std::fs::write(log, bytes).expect("written");
        }
        let report = repair(path);
        let text = report.to_string();
        assert!(!report.healthy && !report.rebuilt && !report.lost_data(), "{text}");
        assert!(report.renamed_keyspaces.is_empty(), "{text}");
        assert!(text.contains("the root record names "), "{text}");
        assert!(text.ends_with("repaired without loss; the store can be opened"), "{text}");
        let keeps = |start: &str| report.kept_files.iter().any(|name| name.starts_with(start));
        assert!(keeps("lost-ROOT"), "{text}");
        assert_eq!(keeps("lost-versions-"), with_log, "a log that was not used is kept: {text}");
        check(path, &format!("with the old log: {with_log}: {text}"));
    }
}

/// Goal: without a root record, the version log of an earlier opening does not count beside a base
/// that a later one has written, though nothing follows that base. Method: the second opening ends
/// when it has just rewritten its log; the log of the first is put back.
#[test]
fn the_log_of_an_earlier_opening_is_not_believed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path();
    let open = || {
        let options =
            DbOptions::default().debug(DebugDbOptions::default().version_log_bytes(4 << 10));
        // The table of the first opening stays: its log is sound.
        let keyspace = Options::default().compaction(LeveledOptions::default().l0_trigger(100));
        let builder = Db::builder(path).options(options).default_options(keyspace);
        builder.memory_budget(8 << 20).open().expect("opened")
    };
    let db = open();
    db.put(b"a", b"1").expect("put");
    db.flush().expect("flushed");
    db.close().expect("closed");
    let log = versions(path).remove(0);
    let bytes = std::fs::read(&log).expect("read");
    let db = open();
    let begun = versions(path);
    let rewritten = (2..100u8).find(|&value| {
        db.put(b"a", [value]).expect("put");
        db.flush().expect("flushed");
        db.wait_idle().expect("idle");
        versions(path) != begun
    });
    let last = rewritten.expect("a log of 4 KiB is rewritten");
    db.close().expect("closed");
    std::fs::write(&log, bytes).expect("written");
    std::fs::remove_file(path.join("ROOT")).expect("removed");
    let report = repair(path);
    assert!(!report.rebuilt, "{report}");
    let db = open();
    assert_eq!(db.get(b"a").expect("got").as_deref(), Some(&[last][..]), "{report}");
}

/// Goal: a repair that gave keyspaces other names, or that may have brought deleted keys back, does
/// not call itself one without loss.
#[test]
fn a_rebuilt_tree_is_not_called_without_loss() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path();
    store(path);
    for log in versions(path) {
        std::fs::remove_file(log).expect("removed");
    }
    let report = repair(path);
    let text = report.to_string();
    assert!(report.rebuilt && report.renamed_keyspaces.len() == 1, "{text}");
    assert!(!text.contains("without loss"), "{text}");
    assert!(text.contains("it is not what the store was"), "{text}");
}

fn flip(file: &Path, offset: usize) {
    let mut bytes = std::fs::read(file).expect("read");
    bytes[offset] ^= 0x10;
    std::fs::write(file, bytes).expect("written");
}

fn named(path: &Path, start: &str) -> Vec<PathBuf> {
    let list = std::fs::read_dir(path).expect("listed");
    let mut files: Vec<PathBuf> = list.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with(start)));
    files.sort();
    files
}

/// Goal: two bad bytes cost the entries of two blocks. The story: they cost a table of 30,000.
/// Method: with the version log, and without it, where the tree is built again.
#[test]
fn two_bad_bytes_cost_two_blocks() {
    const ENTRIES: u32 = 5_000;
    let key = |i: u32| format!("key {i:06}").into_bytes();
    for with_log in [true, false] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path();
        let db = open(path);
        for i in 0..ENTRIES {
            db.put(key(i), format!("value {i}")).expect("put");
        }
        db.flush().expect("flushed");
        db.wait_idle().expect("idle");
        db.close().expect("closed");
        let table = named(path, "0").remove(0);
        let len = std::fs::metadata(&table).expect("metadata").len() as usize;
        flip(&table, len / 4);
        flip(&table, len / 2);
        if !with_log {
            versions(path).iter().for_each(|log| std::fs::remove_file(log).expect("removed"));
            named(path, "wal-").iter().for_each(|log| std::fs::remove_file(log).expect("removed"));
        }
        let report = repair(path);
        let text = report.to_string();
        assert_eq!((report.rebuilt, report.lost_tables.len()), (!with_log, 1), "{text}");
        let lost = &report.lost_tables[0];
        let entries = lost.entries.expect("known");
        assert_eq!((lost.lost_ranges.len(), entries), (2, u64::from(ENTRIES)), "{text}");
        assert!(lost.entries_kept < entries && lost.entries_kept > entries * 3 / 4, "{text}");
        assert!(text.contains("lost of it: entries between"), "{text}");
        assert!(text.contains("repaired with losses"), "{text}");
        let db = open(path);
        let mut found = 0;
        for i in 0..ENTRIES {
            let key = key(i);
            let inside = lost.lost_ranges.iter().any(|(a, b)| *a <= key && key <= *b);
            match db.get(&key).expect("got") {
                Some(value) => {
                    assert_eq!(&value[..], format!("value {i}").as_bytes());
                    found += 1;
                }
                None => assert!(inside, "{i} is lost: {text}"),
            }
        }
        assert_eq!(found, lost.entries_kept, "{text}");
        assert!(db.verify().expect("verified").damages.is_empty());
    }
}

/// Goal: groups behind a damaged place of the log are kept for keyspaces whose tables cover what is
/// before them. The story: a `Sync` write was thrown away, although the log behind its keyspace's
/// start was whole.
#[test]
fn groups_behind_a_gap_are_kept_for_who_needs_no_gap() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path();
    let builder = || {
        let builder = Db::builder(path).memory_budget(8 << 20).log_segment_bytes(4 << 10);
        builder.log_area_bytes(4 << 20)
    };
    let db = builder().open().expect("opened");
    let late = db.create_keyspace("late", weir::Options::default()).expect("created");
    db.put(b"first", b"1").expect("put");
    for i in 0..200u32 {
        late.put(format!("flushed {i:04}"), [7; 60]).expect("put");
    }
    late.flush().expect("flushed");
    for i in 0..100u32 {
        late.put(format!("logged {i:04}"), [8; 60]).expect("put");
    }
    db.put(b"behind", b"2").expect("put");
    late.put_with(b"last", b"3", Durability::Sync).expect("put");
    drop(late);
    db.close().expect("closed");
    let starts: Vec<u64> = {
        let db = builder().read_only(true).open().expect("opened");
        db.describe().keyspaces.iter().map(|k| k.log_start_segment).collect()
    };
    let gap = u64::midpoint(starts[0].max(1), starts[1]);
    assert!(starts[0] + 1 < gap && gap < starts[1], "{starts:?}");
    std::fs::remove_file(path.join(format!("wal-{gap:06}.log"))).expect("removed");
    builder().open().expect_err("refused");
    let report = builder().repair().expect("repaired");
    let text = report.to_string();
    assert!(!report.rebuilt && report.lost_log.len() == 1, "{text}");
    // Those before the gap and those behind the start of the other keyspace are none of them.
    assert!((1..200).contains(&report.lost_log[0].groups), "{text}");
    let db = builder().open().expect("opened");
    assert_eq!(db.get(b"first").expect("got").as_deref(), Some(&b"1"[..]), "{text}");
    assert_eq!(db.get(b"behind").expect("got"), None, "it needs what is in the gap: {text}");
    let late = db.open_keyspace("late").expect("opened");
    assert_eq!(late.iter().count(), 301, "{text}");
    assert_eq!(late.get(b"last").expect("got").as_deref(), Some(&b"3"[..]), "{text}");
}

/// Goal: of a table that is gone, only what no newer version hides is taken from files that a crash
/// has left, and counted as kept. Method: the inputs of a merge are put back and its output
/// is removed; a tenth of its keys has newer values in another table.
#[test]
fn what_is_shown_in_a_newer_version_is_not_kept_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path();
    let db = open(path);
    for half in 0..2u8 {
        for i in (0..100u8).filter(|i| i % 2 == half) {
            db.put([i], [1]).expect("put");
        }
        db.flush().expect("flushed");
    }
    let tables = |path| {
        let mut files = named(path, "");
        files.retain(|file| file.extension().is_some_and(|e| e == "tbl"));
        files
    };
    let read = |file: PathBuf| (std::fs::read(&file).expect("read"), file);
    let inputs: Vec<_> = tables(path).into_iter().map(read).collect();
    db.compact_range(..).expect("compacted");
    let output = tables(path).pop().expect("one table");
    for i in 0..10u8 {
        db.put([i], [2]).expect("put");
    }
    db.flush().expect("flushed");
    db.close().expect("closed");
    for (bytes, file) in inputs {
        std::fs::write(file, bytes).expect("written");
    }
    std::fs::remove_file(output).expect("removed");
    let report = repair(path);
    let [lost] = &report.lost_tables[..] else { panic!("one table is lost: {report:?}") };
    assert_eq!((lost.entries, lost.entries_kept), (Some(100), 90));
    let db = open(path);
    for i in 0..100u8 {
        let value = if i < 10 { 2 } else { 1 };
        assert_eq!(db.get([i]).expect("got").as_deref(), Some(&[value][..]), "{i}");
    }
}
