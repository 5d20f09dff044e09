//! Files of another store, and what is no file, among a store's logs: an opening refuses them by
//! name, a repair renames them and costs nothing else.

#![expect(
    clippy::disallowed_methods,
    reason = "tests change the directory behind the store's back"
)]

use std::path::{Path, PathBuf};

use weir::{Builder, CompactionPolicy, Db, Durability, ErrorKind, Options, RepairReport};

fn builder(path: &Path) -> Builder {
    Db::builder(path).memory_budget(8 << 20).log_segment_bytes(4 << 10).log_area_bytes(1 << 20)
}

fn open(path: &Path) -> Db {
    builder(path).open().expect("opened")
}

fn options() -> Options {
    Options { compaction: CompactionPolicy::Tiered, ..Options::default() }
}

/// A store with two keyspaces, two openings, keys in tables and in the log, and a deleted key.
fn make(path: &Path) {
    let db = open(path);
    let two = db.keyspace("two", options()).expect("a keyspace");
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
    assert_eq!(two.options().compaction, CompactionPolicy::Tiered, "{what}");
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
    logs.sort();
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

/// A stranger under a number far above those of the store, or the next one.
fn with_stranger(stranger: Stranger, kind: &str, far: bool, root: bool) -> (RepairReport, String) {
    let what = format!("{stranger:?} among {kind}, far {far}, ROOT {root}");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, other) = (dir.path().join("db"), dir.path().join("other"));
    make(&path);
    make_other(&other);
    let last = logs(&path, kind).pop().expect("a log");
    let number: String = last.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let last: u64 = number[number.len() - 6..].parse().expect("a number");
    let name = format!("{kind}{:06}.log", if far { last + 40 } else { last + 1 });
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
        for far in [true, false] {
            let (report, what) = with_stranger(stranger, "wal-", far, true);
            assert_eq!(report.lost_data(), !far, "{what}: {report}");
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
        for (far, root) in [(true, true), (false, true), (true, false), (false, false)] {
            let (report, what) = with_stranger(stranger, "versions-", far, root);
            assert!(!report.lost_data(), "{what}: {report}");
            assert_eq!(report.structure.is_empty(), root, "{what}: {report}");
        }
    }
}

/// Goal: without a root record, a version log of another store under its own number, which is
/// greater than that of the store's own, is not taken for it.
#[test]
fn most_logs_tell_which_store_it_is() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, other) = (dir.path().join("db"), dir.path().join("other"));
    make(&path);
    for _ in 0..4 {
        make_other(&other);
    }
    let log = logs(&other, "versions-").pop().expect("a log");
    let name = log.file_name().expect("a name");
    assert!(logs(&path, "versions-").last().and_then(|own| own.file_name()) < Some(name));
    std::fs::copy(&log, path.join(name)).expect("copied");
    std::fs::remove_file(path.join("ROOT")).expect("removed");
    let report = builder(&path).repair().expect("repaired");
    assert!(!report.rebuilt && !report.lost_data(), "{report}");
    check(&path, "own number");
}
