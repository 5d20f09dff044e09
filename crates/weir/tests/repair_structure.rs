//! Repair where root record, version log and table files do not belong together: as half a backup
//! or a removed file leaves them.

#![expect(
    clippy::disallowed_methods,
    reason = "tests change the directory behind the store's back"
)]

use std::path::{Path, PathBuf};

use weir::{Db, Durability, RepairReport};

fn open(path: &Path) -> Db {
    Db::builder(path).memory_budget(8 << 20).open().expect("opened")
}

fn versions(path: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_dir(path).expect("listed");
    let mut files: Vec<PathBuf> = list.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with("versions-")));
    files.sort();
    files
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
        assert!(report.kept_files.iter().any(|name| name == "lost-ROOT"), "{text}");
        check(path, &format!("with the old log: {with_log}: {text}"));
    }
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
