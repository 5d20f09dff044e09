//! What errors tell people to do: something that helps where they are, once.

#![expect(
    clippy::disallowed_methods,
    reason = "tests change the directory behind the store's back"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use weir::{Db, Error, ErrorKind, WriteBatch};

/// That `error` is of `kind` and says every one of `parts`.
#[track_caller]
fn says(error: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "no {part:?} in {error}");
    }
}

/// A store of one table.
fn make(path: &Path) {
    let db = Db::open(path).expect("opened");
    db.put("a", "1").expect("put");
    db.flush().expect("flushed");
    db.close().expect("closed");
}

/// Goal: a path that leads to no store is told from a store that fails, also where a part of it is
/// a file, at which an opening failed with `Io`.
#[test]
fn paths_that_lead_nowhere() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (absent, file) = (dir.path().join("absent"), dir.path().join("file"));
    let error = Db::repair(&absent).expect_err("refused");
    says(&error, ErrorKind::NotFound, &["there is no store in", "absent", "correct the path"]);
    std::fs::write(&file, b"mine").expect("written");
    let named = format!("{} is not a directory", file.display());
    for path in [file.clone(), file.join("x"), file.join("x/y")] {
        let error = Db::open(&path).expect_err("refused");
        says(&error, ErrorKind::InvalidArgument, &[&named]);
        let error = Db::builder(&path).create_if_missing(false).open().expect_err("refused");
        says(&error, ErrorKind::InvalidArgument, &[&named]);
        let error = Db::repair(&path).expect_err("refused");
        says(&error, ErrorKind::InvalidArgument, &[&named]);
    }
    let empty = "or an empty one for a new store";
    says(&Db::open(dir.path()).expect_err("refused"), ErrorKind::InvalidArgument, &[empty]);
    let error = Db::builder(dir.path()).create_if_missing(false).open().expect_err("refused");
    assert!(!error.to_string().contains(empty), "none would be made there: {error}");
}

/// Goal: who may not read and write a store is told what is needed. Nothing is forbidden to root.
#[test]
fn what_is_not_permitted() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    make(dir.path());
    let permit = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(dir.path(), mode).expect("permissions can be changed");
    };
    permit(0o500);
    if let Err(error) = Db::open(dir.path()) {
        let parts = ["permission denied", "read and write the store's directory", "`read_only`"];
        says(&error, ErrorKind::Io, &parts);
        let db = Db::builder(dir.path()).read_only(true).open().expect("opened for reading");
        db.close().expect("closed");
    }
    permit(0o700);
}

/// Goal: a missing table is told with one piece of advice, which names the store and can be left
/// out; a repair does not advise a repair.
#[test]
fn a_missing_table() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    make(dir.path());
    std::fs::remove_file(dir.path().join("000001.tbl")).expect("removed");
    let repair = format!("`weir repair {}`", dir.path().display());
    let db = Db::builder(dir.path()).read_only(true).open().expect("opened");
    let error = db.get("a").expect_err("the table is missing");
    says(&error, ErrorKind::NotFound, &["000001.tbl is missing", "from a backup", &repair]);
    assert_eq!(error.to_string().matches("repair").count(), 1, "{error}");
    assert!(!format!("{error:#}").contains("repair"), "{error:#}");
    assert!(error.damage().is_some_and(|damage| damage.file.ends_with("000001.tbl")), "{error}");
    db.close().expect("closed");
    let report = Db::repair(dir.path()).expect("repaired").to_string();
    assert!(report.contains("000001.tbl is missing"), "{report}");
    assert!(!report.contains("weir repair") && !report.contains("backup"), "{report}");
}

/// Goal: the commands that an error advises can be copied: they name the store.
#[test]
fn advice_names_the_store() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    make(dir.path());
    std::fs::write(dir.path().join("ROOT"), b"something else").expect("written");
    let error = Db::open(dir.path()).expect_err("refused");
    let path = dir.path().display();
    let commands = [format!("`weir verify {path}`"), format!("`weir repair {path}`")];
    says(&error, ErrorKind::Corruption, &commands.each_ref().map(String::as_str));
}

/// Goal: refused arguments say what limits them, or what to do instead.
#[test]
fn arguments() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let builder = Db::builder(dir.path().join("a")).memory_budget(16 << 20);
    let error = builder.block_cache_bytes(1 << 30).open().expect_err("refused");
    says(
        &error,
        ErrorKind::InvalidArgument,
        &["block_cache_bytes is", "what memory_budget leaves"],
    );
    let open = |name: &str| {
        Db::builder(dir.path().join(name)).memory_budget(16 << 20).open().expect("opened")
    };
    let (one, other) = (open("a"), open("b"));
    let mut batch = WriteBatch::new();
    batch.put(other.default_keyspace(), "a", "1");
    let error = one.write(batch, Default::default()).expect_err("refused");
    says(&error, ErrorKind::InvalidArgument, &["another store", "with that store's `Db`"]);
}
