//! What a repair loses, what it must not, and what its report has to say of it: cases that reading
//! has found.

#![expect(
    clippy::disallowed_methods,
    reason = "tests change the directory behind the store's back"
)]

mod repaired;

use std::path::{Path, PathBuf};

use weir::{Db, Durability, LeveledOptions, Options, RepairReport};

use repaired::{builder, open};

fn repair(path: &Path) -> RepairReport {
    builder(path).repair().expect("repaired")
}

fn named(path: &Path, start: &str, end: &str) -> Vec<PathBuf> {
    let list = std::fs::read_dir(path).expect("listed");
    let mut files: Vec<PathBuf> = list.map(|entry| entry.expect("an entry").path()).collect();
    let name = |file: &Path| file.file_name().map(|n| n.to_string_lossy().into_owned());
    files.retain(|f| name(f).is_some_and(|n| n.starts_with(start) && n.ends_with(end)));
    files.sort();
    files
}

fn tables(path: &Path) -> Vec<PathBuf> {
    named(path, "0", ".tbl")
}

fn remove_all(files: Vec<PathBuf>) {
    files.iter().for_each(|file| std::fs::remove_file(file).expect("removed"));
}

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).expect("read");
    change(&mut bytes);
    std::fs::write(file, bytes).expect("written");
}

/// Inverts a bit of the filter of a table with some ten thousand entries. A smaller one, which a
/// flush for the log's sake may have written last, is left as it is.
fn damage_filter(table: &Path) {
    change(table, |bytes| {
        // The filter of a small one is not there, and how large a memtable becomes is chance.
        if bytes.len() > 100_000 {
            let at = bytes.len() - 5000;
            bytes[at] ^= 1;
        }
    });
}

const ENTRIES: u32 = 20_000;

fn put_many(db: &Db) {
    (0..ENTRIES).try_for_each(|i| db.put(i.to_be_bytes(), [7; 20])).expect("put");
    db.flush().expect("flushed");
    db.wait_idle().expect("idle");
}

fn has_all(path: &Path, what: &str) {
    let db = open(path);
    let found = |i: &u32| db.get(i.to_be_bytes()).is_ok_and(|value| value.is_some());
    assert_eq!((0..ENTRIES).filter(found).count(), ENTRIES as usize, "{what}");
    assert!(db.verify().expect("read").damages.is_empty(), "{what}");
}

/// Goal: what was written without the log and flushed is in a table only; if the edit that says so
/// is lost, the table is not taken for one that the log makes up for. The story: it was removed,
/// and the report said "without loss".
#[test]
fn flushed_writes_without_the_log_are_kept() {
    for logged in [false, true] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path();
        let db = open(path);
        let durability = if logged { Durability::Buffered } else { Durability::None };
        db.put_with(b"a key of the flushed table", b"1", durability).expect("put");
        db.flush().expect("flushed");
        db.put_with(b"b", b"2", Durability::Sync).expect("put");
        db.close().expect("closed");
        let log = named(path, "versions-", ".log").remove(0);
        change(&log, |bytes| {
            let key = b"a key of the flushed table";
            let at = bytes.windows(key.len()).position(|window| window == key);
            bytes[at.expect("the edit names its bounds")] ^= 1;
        });
        let report = repair(path);
        assert_eq!(report.rebuilt, !logged, "where the log has it the structure counts: {report}");
        let db = open(path);
        let get = |key: &[u8]| db.get(key).expect("got").map(|value| value.to_vec());
        assert_eq!(get(b"a key of the flushed table"), Some(b"1".to_vec()), "{report}");
        assert_eq!(get(b"b"), Some(b"2".to_vec()), "{report}");
    }
}

/// Goal: a table that is not there is reported where the tree is built again, too.
#[test]
fn a_missing_table_is_reported_by_a_rebuild() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path();
    let db = open(path);
    for key in [b"a", b"b"] {
        db.put(key, key).expect("put");
        db.flush().expect("flushed");
    }
    db.close().expect("closed");
    remove_all(vec![path.join("ROOT"), tables(path).remove(0)]);
    let report = repair(path);
    assert!(report.lost_data(), "{report}");
    let lost = &report.lost_tables[0];
    assert_eq!((lost.entries, &lost.lost_ranges[0].0[..]), (Some(1), &b"a"[..]), "{report}");
    assert!(report.to_string().contains("repaired with losses"), "{report}");
}

/// Goal: a damaged filter costs nothing where the tree is built again either.
#[test]
fn a_rebuild_does_without_a_damaged_filter() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path();
    let db = open(path);
    put_many(&db);
    db.close().expect("closed");
    tables(path).iter().for_each(|table| damage_filter(table));
    remove_all(named(path, "versions-", ".log"));
    remove_all(named(path, "wal-", ".log"));
    let report = repair(path);
    assert!(report.rebuilt && !report.lost_data(), "{report}");
    has_all(path, &report.to_string());
}

/// Goal: a file that goes on behind its table costs nothing.
#[test]
fn bytes_behind_a_table_cost_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path();
    let db = open(path);
    put_many(&db);
    db.close().expect("closed");
    tables(path).iter().for_each(|table| change(table, |bytes| bytes.extend([3; 10])));
    let report = repair(path);
    assert!(!report.healthy && !report.rebuilt && !report.lost_data(), "{report}");
    has_all(path, &report.to_string());
}

/// Goal: a block that goes on with the empty key is a block like others. The story: read by itself,
/// it seemed to begin before the block before it.
#[test]
fn versions_of_the_empty_key_in_two_blocks_are_kept() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path();
    let options = Options::default().block_bytes(512);
    let db = builder(path).default_options(options).open().expect("opened");
    db.put(b"", b"old").expect("put");
    let snapshot = db.snapshot();
    db.put(b"", [1; 1000]).expect("put");
    for key in [b"a", b"b", b"c"] {
        db.put(key, key).expect("put");
    }
    db.flush().expect("flushed");
    drop(snapshot);
    db.close().expect("closed");
    // Its bounds, in the properties, which the blocks are read without.
    change(&tables(path).remove(0), |bytes| {
        let at = bytes.len() - 120;
        bytes[at] ^= 1;
    });
    let report = repair(path);
    assert!(!report.healthy && !report.lost_data(), "{report}");
    let db = open(path);
    assert_eq!(db.get(b"").expect("got").map(|value| value.len()), Some(1000), "{report}");
    for key in [b"a", b"b", b"c"] {
        assert_eq!(db.get(key).expect("got").as_deref(), Some(&key[..]), "{report}");
    }
}

/// Goal: what a rebuild cannot read of the log is reported: groups behind the damaged start of a
/// segment, and a segment that is missing between two.
#[test]
fn a_rebuild_reports_what_the_log_lacks() {
    for missing in [false, true] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path();
        let db = open(path);
        for i in 0..100u32 {
            db.put_with(format!("key {i}"), [7; 100], Durability::Sync).expect("put");
        }
        db.close().expect("closed");
        let blank = |file: &PathBuf| std::fs::read(file).is_ok_and(|b| b.iter().all(|&b| b == 0));
        let mut segments = named(path, "wal-", ".log");
        segments.retain(|file| !blank(file));
        assert!(segments.len() > 4, "{segments:?}");
        remove_all(named(path, "versions-", ".log"));
        if missing {
            std::fs::remove_file(&segments[2]).expect("removed");
        } else {
            segments[1..].iter().for_each(|file| std::fs::remove_file(file).expect("removed"));
            change(&segments[0], |bytes| bytes[20] ^= 1);
        }
        let report = repair(path);
        assert!(report.rebuilt && report.lost_data(), "missing {missing}: {report}");
        assert_eq!(report.lost_log.len(), 1, "missing {missing}: {report}");
        assert_eq!(report.lost_log[0].groups > 0, !missing, "{report}");
        drop(open(path));
    }
}

/// Goal: a table of which nothing is lost brings nothing back. Method: an input of the merge that
/// wrote it, with a key that was deleted, is put back.
#[test]
fn nothing_is_taken_for_a_table_that_is_whole() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path();
    let calm = Options::default().compaction(LeveledOptions::default().l0_trigger(100));
    let db = builder(path).default_options(calm).open().expect("opened");
    // With a sequence number between those of what stays.
    db.put(b"zz", b"stays").expect("put");
    db.put(100u32.to_be_bytes(), b"deleted later").expect("put");
    db.flush().expect("flushed");
    let input = tables(path).remove(0);
    let bytes = std::fs::read(&input).expect("read");
    put_many(&db);
    db.delete(100u32.to_be_bytes()).expect("deleted");
    db.flush().expect("flushed");
    db.compact_range(..).expect("compacted");
    db.wait_idle().expect("idle");
    db.close().expect("closed");
    let output = tables(path);
    assert_eq!(output.len(), 1);
    damage_filter(&output[0]);
    std::fs::write(input, bytes).expect("written");
    let report = repair(path);
    let [table] = &report.lost_tables[..] else { panic!("{report}") };
    assert_eq!((table.entries, table.is_whole()), (Some(table.entries_kept), true), "{report}");
    assert_eq!(open(path).get(100u32.to_be_bytes()).expect("got"), None, "{report}");
}

/// Goal: a repair says that earlier ones have kept files: one that was cut off could not report.
#[test]
fn files_of_earlier_repairs_are_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path();
    let db = open(path);
    put_many(&db);
    db.close().expect("closed");
    damage_filter(&tables(path)[0]);
    let first = repair(path);
    assert!(first.kept_before.is_empty() && first.kept_files.len() == 1, "{first}");
    let second = repair(path);
    assert!(second.healthy, "{second}");
    assert_eq!(second.kept_before, first.kept_files);
    assert!(second.to_string().contains("still there from earlier repairs: lost-"), "{second}");
}

/// Goal: a segment of another store before the log's start is in nobody's way: the store opens, so
/// a repair leaves it as it is.
#[test]
fn a_foreign_segment_before_the_log_is_no_damage() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, other) = (dir.path().join("db"), dir.path().join("other"));
    open(&other).close().expect("closed");
    for _ in 0..3 {
        let db = open(&path);
        db.put_with(b"a", [7; 100], Durability::Sync).expect("put");
        db.flush().expect("flushed");
        db.close().expect("closed");
    }
    let first = path.join("wal-000001.log");
    assert!(!first.exists(), "the log of the first opening is not needed any more");
    let db = open(&other);
    db.put_with(b"a", b"b", Durability::Sync).expect("put");
    db.close().expect("closed");
    std::fs::copy(named(&other, "wal-", ".log").remove(0), &first).expect("copied");
    let report = repair(&path);
    assert!(report.healthy, "{report}");
    drop(open(&path));
}

/// Goal: a segment of this store that stands under a number before the log's start holds what
/// was acknowledged: the store is not called sound, and the file is kept.
#[test]
fn the_last_segment_under_an_old_number_is_kept() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path();
    for _ in 0..3 {
        let db = open(path);
        db.put_with(b"a", [7; 100], Durability::Sync).expect("put");
        db.flush().expect("flushed");
        db.close().expect("closed");
    }
    let db = open(path);
    db.put_with(b"last", [7; 100], Durability::Sync).expect("put");
    db.close().expect("closed");
    let blank = |file: &PathBuf| std::fs::read(file).is_ok_and(|b| b.iter().all(|&b| b == 0));
    let mut segments = named(path, "wal-", ".log");
    segments.retain(|file| !blank(file));
    let last = segments.pop().expect("a segment");
    std::fs::rename(last, path.join("wal-000001.log")).expect("renamed");
    let report = repair(path);
    assert!(!report.healthy && report.lost_data(), "{report}");
    assert!(report.kept_files.iter().any(|name| name == "lost-wal-000001.log"), "{report}");
}
