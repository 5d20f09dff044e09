//! The store through its public interface, on real files.

#![expect(
    clippy::disallowed_methods,
    reason = "tests look at the directory behind the store's back"
)]

mod tiny;

use std::collections::BTreeMap;

use weir::{Db, DebugDbOptions, Durability, ErrorKind, Options, WriteBatch};

use tiny::tiny;

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn tiny_db(path: &std::path::Path) -> Db {
    Db::builder(path)
        .default_options(tiny())
        .memory_budget(8 << 20)
        .log_segment_bytes(32 << 10)
        .log_area_bytes(256 << 10)
        .debug(DebugDbOptions::default().verify_outputs(true))
        .open()
        .expect("open")
}

type Pair = (Vec<u8>, Vec<u8>);

fn collect(iter: impl Iterator<Item = weir::Result<(weir::Value, weir::Value)>>) -> Vec<Pair> {
    iter.map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).expect("entry")).collect()
}

#[test]
fn puts_gets_deletes_and_reopens() {
    let dir = dir();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    db.put(b"a", b"1").unwrap();
    db.put(b"b", b"").unwrap();
    db.put(b"", b"empty key").unwrap();
    db.delete(b"a").unwrap();
    assert_eq!(db.get(b"a").unwrap(), None);
    assert_eq!(db.get(b"b").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(db.get(b"").unwrap().as_deref(), Some(&b"empty key"[..]));
    db.close().unwrap();
    let db = Db::open(&path).unwrap();
    assert_eq!(db.get(b"a").unwrap(), None);
    assert_eq!(db.get(b"b").unwrap().as_deref(), Some(&b""[..]));
    let mut buf = vec![9];
    assert!(db.get_into(b"", &mut buf).unwrap());
    assert_eq!(buf, b"empty key");
    assert!(!db.get_into(b"a", &mut buf).unwrap() && buf.is_empty());
    drop(db);
    Db::open(&path).unwrap().close().unwrap();
}

/// Museum bug 40 (lsm-tree #230): inserts lost around memtable rotation. A soak of 60,000 inserts
/// and overwrites with 4 KiB memtables, read back by every way of reading, before and after reopen.
#[test]
fn soak_with_tiny_memtables_loses_nothing() {
    let dir = dir();
    let path = dir.path().join("db");
    let mut model = BTreeMap::new();
    let db = tiny_db(&path);
    for i in 0..60_000u64 {
        let key = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 20_011).to_be_bytes();
        if i % 7 == 3 {
            db.delete(key).unwrap();
            model.remove(key.as_slice());
        } else {
            let value = format!("value {i}");
            db.put(key, &value).unwrap();
            model.insert(key.to_vec(), value.into_bytes());
        }
    }
    let check = |db: &Db| {
        let expected: Vec<Pair> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(collect(db.iter()), expected);
        let mut backward = collect(db.iter().rev());
        backward.reverse();
        assert_eq!(backward, expected);
        for i in 0..20_011u64 {
            let key = i.to_be_bytes();
            assert_eq!(
                db.get(key).unwrap().map(|v| v.to_vec()),
                model.get(key.as_slice()).cloned()
            );
        }
    };
    check(&db);
    db.wait_idle().unwrap();
    check(&db);
    let metrics = db.metrics();
    assert!(metrics.flushes > 100 && metrics.compactions > 50, "{metrics:?}");
    assert!(db.verify().unwrap().damages.is_empty());
    db.close().unwrap();
    let db = tiny_db(&path);
    check(&db);
    db.compact_range(..).unwrap();
    check(&db);
    assert!(db.verify().unwrap().damages.is_empty());
}

#[test]
fn batches_are_atomic_over_keyspaces_and_survive_reopen() {
    let dir = dir();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    let users = db.keyspace("users").unwrap();
    let names = db.create_keyspace("names", Options::default()).unwrap();
    assert_eq!(
        db.create_keyspace("names", Options::default()).unwrap_err().kind(),
        ErrorKind::Conflict
    );
    assert_eq!(db.open_keyspace("nobody").unwrap_err().kind(), ErrorKind::NotFound);
    let mut batch = WriteBatch::new();
    batch.put(&users, b"1", b"ada");
    batch.put(&names, b"ada", b"1");
    batch.delete(&users, b"2");
    assert_eq!((batch.len(), batch.iter().count()), (3, 3));
    db.write(batch, Durability::Sync).unwrap();
    let mut none = WriteBatch::new();
    none.put(&users, b"x", b"y");
    none.put(&names, b"x", b"y");
    assert_eq!(db.write(none, Durability::None).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(db.keyspaces(), ["default", "names", "users"]);
    db.drop_keyspace("names").unwrap();
    assert_eq!(names.get(b"ada").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(names.put(b"ada", b"2").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.drop_keyspace("default").unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.close().unwrap();
    let db = Db::open(&path).unwrap();
    assert_eq!(db.keyspaces(), ["default", "users"]);
    let users = db.open_keyspace("users").unwrap();
    assert_eq!(users.get(b"1").unwrap().as_deref(), Some(&b"ada"[..]));
    let names = db.create_keyspace("names", Options::default()).unwrap();
    assert_eq!(names.get(b"ada").unwrap(), None, "a new keyspace under an old name is empty");
}

#[test]
fn snapshots_do_not_change() {
    let dir = dir();
    let db = tiny_db(&dir.path().join("db"));
    let key = |i: u32| format!("key {i:05}");
    for i in 0..500 {
        db.put(key(i), b"old").unwrap();
    }
    let snapshot = db.snapshot();
    for round in 0..5 {
        for i in 0..500 {
            if i % 3 == 0 {
                db.delete(key(i)).unwrap();
            } else {
                db.put(key(i), format!("new {round}")).unwrap();
            }
        }
    }
    db.wait_idle().unwrap();
    db.compact_range(..).unwrap();
    let ks = db.default_keyspace();
    assert_eq!(snapshot.iter(ks).count(), 500);
    assert!(collect(snapshot.iter(ks)).iter().all(|(_, v)| v == b"old"));
    assert!(collect(snapshot.iter(ks).rev()).iter().all(|(_, v)| v == b"old"));
    assert_eq!(snapshot.get(ks, key(0)).unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(db.get(key(0)).unwrap(), None);
    let some = snapshot.multi_get(ks, &[key(3), key(1), "none".into()]).unwrap();
    assert!(some[0].is_some() && some[1].is_some() && some[2].is_none());
    assert_eq!(db.iter().count(), 500 - 167);
}

#[test]
fn ranges_prefixes_and_cursors_meet_their_bounds() {
    let dir = dir();
    let db = tiny_db(&dir.path().join("db"));
    let mut model = BTreeMap::new();
    for i in 0..2000u32 {
        let key = format!("{:03}/{:04}", i % 40, i).into_bytes();
        db.put(&key, i.to_le_bytes()).unwrap();
        model.insert(key, i.to_le_bytes().to_vec());
    }
    let owned = |(k, v): (&Vec<u8>, &Vec<u8>)| (k.clone(), v.clone());
    let (low, high) = (b"010/".to_vec(), b"020/0500".to_vec());
    let expected: Vec<Pair> = model.range(low.clone()..high.clone()).map(owned).collect();
    assert_eq!(collect(db.range(low.clone()..high.clone())), expected);
    let expected: Vec<Pair> = model.range(low.clone()..=high.clone()).rev().map(owned).collect();
    assert_eq!(collect(db.range(low..=high).rev()), expected);
    let in_prefix = |k: &[u8]| k.starts_with(b"007/");
    let expected: Vec<Pair> = model.iter().filter(|(k, _)| in_prefix(k)).map(owned).collect();
    assert_eq!(collect(db.prefix(b"007/")), expected);
    // From both ends at once: every entry exactly once.
    let mut iter = db.prefix(b"007/");
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let Some(entry) = iter.next() else { break };
        front.push(entry.unwrap().0.to_vec());
        let Some(entry) = iter.next_back() else { break };
        back.push(entry.unwrap().0.to_vec());
    }
    back.reverse();
    front.extend(back);
    assert_eq!(front, expected.iter().map(|(k, _)| k.clone()).collect::<Vec<_>>());
    // A cursor goes back and forth and reads one state, whatever is written meanwhile.
    let mut cursor = db.cursor();
    db.put(b"000/zzzz", b"later").unwrap();
    cursor.seek(b"001/");
    let at = model.range(b"001/".to_vec()..).next().unwrap().0;
    assert_eq!(cursor.key(), at);
    cursor.prev();
    assert_eq!(cursor.key(), model.range(..b"001/".to_vec()).next_back().unwrap().0);
    cursor.next();
    assert_eq!(cursor.key(), at);
    cursor.seek_for_prev(b"0001");
    assert!(!cursor.valid() || cursor.key() <= &b"0001"[..]);
    cursor.seek_to_last();
    cursor.next();
    assert!(!cursor.valid());
    cursor.status().unwrap();
}

#[test]
fn close_fails_what_is_left_and_releases_the_lock() {
    let dir = dir();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    db.put(b"a", b"1").unwrap();
    assert_eq!(Db::open(&path).unwrap_err().kind(), ErrorKind::Locked);
    let mut cursor = db.cursor();
    cursor.seek_to_first();
    let clone = db.clone();
    db.close().unwrap();
    cursor.next();
    assert!(!cursor.valid());
    assert_eq!(cursor.status().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(clone.get(b"a").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(clone.put(b"a", b"2").unwrap_err().kind(), ErrorKind::Closed);
    let again = Db::open(&path).unwrap();
    assert_eq!(again.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn bad_requests_get_clear_errors_and_change_nothing() {
    let dir = dir();
    let path = dir.path().join("db");
    let kind = |r: weir::Result<Db>| r.map(|_| ()).unwrap_err().kind();
    assert_eq!(kind(Db::builder(&path).create_if_missing(false).open()), ErrorKind::NotFound);
    assert!(!path.exists(), "a refused open must not create anything");
    assert_eq!(kind(Db::builder(&path).background_threads(0).open()), ErrorKind::InvalidArgument);
    let foreign = dir.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("thesis.txt"), "years of work").unwrap();
    assert_eq!(kind(Db::open(&foreign)), ErrorKind::InvalidArgument);
    let names: Vec<_> =
        std::fs::read_dir(&foreign).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["thesis.txt"]);
    assert_eq!(Db::destroy(&foreign).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(foreign.join("thesis.txt").exists());
    let missing = Db::builder(&path).read_only(true).open().map(|_| ()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let text = missing.to_string();
    assert!(text.contains("there is no store in") && !text.contains("allow"), "{text}");
    // Where a store may be made, the file system's reason is what helps.
    let below_a_file = foreign.join("thesis.txt").join("db");
    let text = Db::open(&below_a_file).unwrap_err().to_string();
    assert!(text.contains("thesis.txt") && !text.contains("allow"), "{text}");
    let text = Db::open("").unwrap_err().to_string();
    assert!(text.contains("an empty path"), "{text}");
    Db::destroy(&path).unwrap();
    let db = Db::open(&path).unwrap();
    assert_eq!(db.put(vec![0; 70_000], b"").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let huge = vec![0; (weir::DbOptions::default().memory_budget / 8 + 1) as usize];
    let error = db.put(b"k", &huge).unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("up to"),
        "{error}"
    );
    db.close().unwrap();
    assert_eq!(kind(Db::builder(&path).error_if_exists(true).open()), ErrorKind::Conflict);
    let reader = Db::builder(&path).read_only(true).open().unwrap();
    assert_eq!(reader.put(b"k", b"v").unwrap_err().kind(), ErrorKind::ReadOnly);
    drop(reader);
    Db::destroy(&path).unwrap();
    assert_eq!(kind(Db::builder(&path).create_if_missing(false).open()), ErrorKind::NotFound);
}

/// Writes without a log are there after a clean close, as users expect of one.
#[test]
fn unlogged_writes_survive_a_clean_close() {
    let dir = dir();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    db.put_with(b"a", b"1", Durability::None).unwrap();
    db.put_with(b"b", b"2", Durability::Sync).unwrap();
    db.close().unwrap();
    let db = Db::open(&path).unwrap();
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(db.get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
}

/// A value larger than a log segment is fragmented over several and comes back whole.
#[test]
fn values_larger_than_a_segment_are_kept() {
    let dir = dir();
    let path = dir.path().join("db");
    let open =
        || Db::builder(&path).log_segment_bytes(16 << 10).memory_budget(64 << 20).open().unwrap();
    let big: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let db = open();
    db.put(b"before", b"1").unwrap();
    db.put_with(b"big", &big, Durability::Sync).unwrap();
    db.put(b"after", b"2").unwrap();
    drop(db);
    let db = open();
    assert_eq!(db.get(b"big").unwrap().as_deref(), Some(&big[..]));
    assert_eq!(db.get(b"before").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(db.get(b"after").unwrap().as_deref(), Some(&b"2"[..]));
    db.flush().unwrap();
    assert_eq!(db.get(b"big").unwrap().as_deref(), Some(&big[..]));
}

/// Many writers at once: every acknowledged write is there, and commits do not wait for each other.
#[test]
fn concurrent_writers_and_commits() {
    let dir = dir();
    let path = dir.path().join("db");
    let db = tiny_db(&path);
    let done = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    std::thread::scope(|scope| {
        for t in 0..4u32 {
            let (db, done) = (db.clone(), std::sync::Arc::clone(&done));
            scope.spawn(move || {
                for i in 0..2000u32 {
                    let key = format!("{t}/{i:06}");
                    if i % 100 == 0 {
                        let mut batch = WriteBatch::new();
                        batch.put(db.default_keyspace(), &key, key.as_bytes());
                        let commit = db.commit(batch, Durability::Sync);
                        let done = std::sync::Arc::clone(&done);
                        commit.on_done(move |result| {
                            result.unwrap();
                            done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        });
                    } else {
                        db.put(&key, key.as_bytes()).unwrap();
                    }
                }
            });
        }
    });
    db.sync().unwrap();
    db.wait_idle().unwrap();
    for t in 0..4u32 {
        for i in 0..2000u32 {
            let key = format!("{t}/{i:06}");
            assert_eq!(db.get(&key).unwrap().as_deref(), Some(key.as_bytes()), "{key}");
        }
    }
    db.close().unwrap();
    assert_eq!(done.load(std::sync::atomic::Ordering::SeqCst), 80);
    assert_eq!(tiny_db(&path).iter().count(), 8000);
}

/// After a clean close the version log knows how far the log was durable: a log that lost its end
/// while the store was closed is damage, not a crash.
#[test]
fn a_log_cut_while_closed_is_damage() {
    let dir = dir();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    db.put_with(b"a", b"1", Durability::Sync).unwrap();
    db.put_with(b"b", b"2", Durability::Sync).unwrap();
    db.close().unwrap();
    let log = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("wal-"))
        .expect("a log segment");
    let bytes = std::fs::read(&log).unwrap();
    std::fs::write(&log, &bytes[..4096]).unwrap();
    let error = Db::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
}

/// Goal: a keyspace's options are those that were given, also where the memory budget allows less:
/// giving them again changes nothing.
#[test]
fn options_are_what_was_given() {
    let temp = dir();
    let open =
        |budget: u64| Db::builder(temp.path().join("db")).memory_budget(budget).open().unwrap();
    let given = Options::default().write_buffer_bytes(64 << 20);
    let db = open(16 << 20);
    let keyspace = db.keyspace_with("k", given.clone()).unwrap();
    assert_eq!(keyspace.options(), given);
    let same = db.keyspace_with("k", keyspace.options()).unwrap();
    assert_eq!(same.options(), given);
    db.drop_keyspace("k").unwrap();
    assert!(keyspace.options().write_buffer_bytes > 0, "a dropped one still answers");
    db.keyspace_with("k", given.clone()).unwrap();
    db.close().unwrap();
    let db = open(1 << 30);
    assert_eq!(db.open_keyspace("k").unwrap().options(), given);
    db.close().unwrap();
}
