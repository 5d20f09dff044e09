//! Files of another store, and what is no file, among a store's logs: an opening refuses them by
//! name, a repair renames them and costs nothing else.

#![expect(
    clippy::disallowed_methods,
    reason = "tests change the directory behind the store's back"
)]

mod repaired;

use std::path::{Path, PathBuf};

use weir::{CompactionPolicy, Durability, ErrorKind, Options, RepairReport};

use repaired::{builder, open};

fn options() -> Options {
    Options::default().compaction(CompactionPolicy::tiered())
}

/// A store with two keyspaces, two openings, keys in tables and in the log, and a deleted key.
fn make(path: &Path) {
    let db = open(path);
    let two = db.keyspace_with("two", options()).expect("a keyspace");
    for key in [b"a", b"b", b"c"] {
        db.put(key, b"first").expect("put");
        two.put(key, b"of two").expect("put");
    }
    db.flush().expect("flushed");
    db.delete(b"b").expect("deleted");
    db.compact_range(..).expect("compacted");
    db.put_with(b"a", b"second", Durability::Sync).expect("put");
    db.close().expect("closed");
    let db = open(path);
    db.put_with(b"c", b"third", Durability::Sync).expect("put");
    db.close().expect("closed");
}

/// Everything that [`make`] has put is there, and nothing else.
fn check(path: &Path, what: &str) {
    let db = open(path);
    let pairs = |space: &weir::Keyspace| -> Vec<(Vec<u8>, Vec<u8>)> {
        let pairs = space.iter().map(|pair| pair.expect("read"));
        pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    };
    let pair = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    let expected = [pair(b"a", b"second"), pair(b"c", b"third")];
    assert_eq!(pairs(db.default_keyspace()), expected, "{what}");
    let two = db.open_keyspace("two").expect("not renamed");
    assert_eq!(pairs(&two), [b"a", b"b", b"c"].map(|key| pair(key, b"of two")), "{what}");
    assert_eq!(two.options().compaction, CompactionPolicy::tiered(), "{what}");
    db.close().expect("closed");
}

/// Another store, with a few openings, so that it has logs with some numbers.
fn make_other(path: &Path) {
    for _ in 0..3 {
        let db = open(path);
        db.put_with(b"a", b"foreign", Durability::Sync).expect("put");
        db.close().expect("closed");
    }
}

fn logs(path: &Path, kind: &str) -> Vec<PathBuf> {
    let list = std::fs::read_dir(path).expect("listed").map(|entry| entry.expect("an entry"));
    let mut logs: Vec<PathBuf> = list.map(|entry| entry.path()).collect();
    logs.retain(|file| file.file_name().is_some_and(|n| n.to_string_lossy().starts_with(kind)));
    // Prepared segments are blank.
    logs.retain(|file| std::fs::read(file).is_ok_and(|bytes| bytes.iter().any(|&b| b != 0)));
    // By number: longer ones are greater.
    logs.sort_by_key(|file| (file.as_os_str().len(), file.clone()));
    logs
}

/// What comes among the logs.
#[derive(Clone, Copy, Debug)]
enum Stranger {
    /// The newest log of another store.
    Log,
    Pipe,
    Directory,
}

fn put(stranger: Stranger, other: &Path, kind: &str, file: &Path) {
    match stranger {
        Stranger::Log => {
            let log = logs(other, kind).pop().expect("a log");
            std::fs::copy(log, file).map(drop).expect("copied");
        }
        Stranger::Pipe => {
            let made = std::process::Command::new("mkfifo").arg(file).status();
            assert!(made.expect("mkfifo is there").success());
        }
        Stranger::Directory => std::fs::create_dir(file).expect("created"),
    }
}

/// Further ahead than a segment can be.
const FAR: u64 = 20_000;

/// A stranger under a number so far ahead of those of the store.
fn with_stranger(stranger: Stranger, kind: &str, ahead: u64, root: bool) -> (RepairReport, String) {
    let what = format!("{stranger:?} among {kind}, {ahead} ahead, ROOT {root}");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, other) = (dir.path().join("db"), dir.path().join("other"));
    make(&path);
    make_other(&other);
    let last = logs(&path, kind).pop().expect("a log");
    let number = last.file_stem().and_then(|stem| stem.to_str()?.strip_prefix(kind));
    let last: u64 = number.and_then(|number| number.parse().ok()).expect("a number");
    let name = format!("{kind}{:06}.log", last + ahead);
    if path.join(&name).exists() {
        std::fs::remove_file(path.join(&name)).expect("a prepared segment");
    }
    put(stranger, &other, kind, &path.join(&name));
    if !root {
        std::fs::remove_file(path.join("ROOT")).expect("removed");
    }
    let error = builder(&path).open().expect_err(&what);
    assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
    assert!(!root || error.to_string().contains(&name), "{what}: {error}");
    let report = builder(&path).repair().expect(&what);
    let kept = format!("lost-{name}");
    assert!(!report.healthy && report.kept_files.contains(&kept), "{what}: {report}");
    assert!(path.join(&kept).exists(), "{what}");
    assert!(!report.rebuilt && report.renamed_keyspaces.is_empty(), "{what}: {report}");
    check(&path, &what);
    let again = builder(&path).repair().expect("repaired");
    assert!(again.healthy, "{what}: {again}");
    (report, what)
}

/// Goal: a stranger that cannot have taken the place of a segment costs nothing, and the report
/// says so; one that may have is told of by name.
#[test]
fn strangers_among_the_write_ahead_log() {
    for stranger in [Stranger::Log, Stranger::Pipe, Stranger::Directory] {
        for ahead in [1, 2, 40, FAR] {
            let (report, what) = with_stranger(stranger, "wal-", ahead, true);
            assert_eq!(report.lost_data(), ahead < FAR, "{what}: {report}");
            assert_eq!(report.strangers.len(), 1, "{what}: {report}");
            assert!(report.strangers[0].to_string().contains("/wal-"), "{what}: {report}");
            assert!(report.structure.is_empty(), "{what}: {report}");
        }
    }
}

/// Goal: a stranger among the version logs costs nothing: the tree is the one that the store's own
/// log tells of, also without a root record.
#[test]
fn strangers_among_the_version_logs() {
    for stranger in [Stranger::Log, Stranger::Pipe, Stranger::Directory] {
        for (ahead, root) in [(FAR, true), (1, true), (FAR, false), (1, false)] {
            let (report, what) = with_stranger(stranger, "versions-", ahead, root);
            assert!(!report.lost_data(), "{what}: {report}");
            assert_eq!(report.structure.is_empty(), root, "{what}: {report}");
        }
    }
}

/// A store, and another one with logs of greater numbers and more of them.
fn two_stores() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, other) = (dir.path().join("db"), dir.path().join("other"));
    make(&path);
    for _ in 0..4 {
        make_other(&other);
    }
    (dir, path, other)
}

/// Goal: without a root record, logs of another store under their own numbers, which are greater
/// than those of the store's own, and more, are not taken for them: the tables tell.
#[test]
fn tables_tell_which_store_it_is() {
    let (_dir, path, other) = two_stores();
    for kind in ["versions-", "wal-"] {
        for log in logs(&other, kind) {
            let name = log.file_name().expect("a name");
            if kind == "versions-" {
                assert!(logs(&path, kind).last().and_then(|own| own.file_name()) < Some(name));
            }
            if !path.join(name).exists() {
                std::fs::copy(&log, path.join(name)).expect("copied");
            }
        }
    }
    std::fs::remove_file(path.join("ROOT")).expect("removed");
    let report = builder(&path).repair().expect("repaired");
    assert!(!report.rebuilt, "{report}");
    check(&path, "own number");
}

/// Goal: a root record of another store, alone, is like none: nothing is lost, and what is replaced
/// is kept.
#[test]
fn a_root_record_of_another_store_is_none() {
    let (_dir, path, other) = two_stores();
    std::fs::copy(other.join("ROOT"), path.join("ROOT")).expect("copied");
    builder(&path).open().expect_err("refused");
    let report = builder(&path).repair().expect("repaired");
    assert!(!report.rebuilt && !report.lost_data(), "{report}");
    assert!(report.to_string().contains("another store's"), "{report}");
    assert!(report.kept_files.iter().any(|name| name == "lost-ROOT"), "{report}");
    check(&path, "a foreign ROOT");
}

/// Goal: names with numbers near the end of all do not become the store's where its own are not
/// known: what is repaired opens, and takes writes that stay.
#[test]
fn a_rebuild_does_not_count_on_from_strange_numbers() {
    for strange in ["versions-72057594037927935.log", "wal-72057594037927935.log"] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path();
        make(path);
        for log in logs(path, "versions-") {
            std::fs::write(log, [0xa5; 100]).expect("written");
        }
        std::fs::write(path.join(strange), b"").expect("written");
        let report = builder(path).repair().expect("repaired");
        assert!(report.rebuilt, "{strange}: {report}");
        assert!(report.kept_files.contains(&format!("lost-{strange}")), "{strange}: {report}");
        for round in 0..3u8 {
            let db = open(path);
            let found = db.get(b"round").expect("got");
            let before = found.as_deref().map(|value| value[0]);
            assert_eq!(before, round.checked_sub(1), "{strange}");
            db.put_with(b"round", [round], Durability::Sync).expect("put");
            db.close().expect("closed");
        }
    }
}

/// Goal: a copy of a segment of this store that nothing needs any more is no damage.
#[test]
fn an_obsolete_segment_under_an_old_number_is_no_damage() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path();
    let mut kept = None;
    for round in 0..6u8 {
        let db = open(path);
        db.put_with([round], [7; 100], Durability::Sync).expect("put");
        let log = logs(path, "wal-").pop().expect("a log");
        if round == 2 {
            kept = Some(std::fs::read(log).expect("read"));
        }
        db.flush().expect("flushed");
        db.close().expect("closed");
    }
    let old = path.join("wal-000001.log");
    assert!(!old.exists(), "it is not needed any more");
    std::fs::write(old, kept.expect("a round")).expect("written");
    open(path).close().expect("closed");
    let report = builder(path).repair().expect("repaired");
    assert!(report.healthy, "{report}");
}
