//! Names and bytes in a store's directory that no store has written: refused by name, or left
//! alone; no panic, no hang, nothing spoiled.

#![expect(
    clippy::disallowed_methods,
    reason = "tests change the directory behind the store's back"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use weir::{Db, Durability, Error, ErrorKind, Result};

/// A hole that takes minutes to read.
const GIANT_BYTES: u64 = 1 << 40;

fn open(path: &Path) -> Result<Db> {
    Db::builder(path).memory_budget(8 << 20).open()
}

/// A store with a table, and a write in the log.
fn store() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = open(dir.path()).expect("opened");
    db.put(b"a", b"1").expect("put");
    db.flush().expect("flushed");
    db.put_with(b"b", b"2", Durability::Sync).expect("put");
    db.close().expect("closed");
    dir
}

fn find(path: &Path, start: &str) -> PathBuf {
    let list = std::fs::read_dir(path).expect("listed");
    let mut files: Vec<PathBuf> = list.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with(start)));
    files.sort();
    files.pop().expect("a file of that name")
}

fn name(file: &Path) -> String {
    file.file_name().expect("a name").to_string_lossy().into_owned()
}

/// The store is as it was, takes writes, and gives its tables small numbers.
fn check(path: &Path, what: &str) {
    for round in 0..2u8 {
        let db = open(path).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(db.get(b"a").expect("got").as_deref(), Some(&b"1"[..]), "{what}");
        assert_eq!(db.get(b"b").expect("got").as_deref(), Some(&b"2"[..]), "{what}");
        db.put_with(b"c", [round], Durability::Sync).expect("put");
        db.flush().expect("flushed");
        let described = db.describe();
        let levels = described.keyspaces.iter().flat_map(|k| &k.levels);
        let tables = levels.flat_map(|l| &l.runs).flat_map(|r| &r.tables);
        // An opening skips some thousand uids.
        tables.for_each(|t| assert!(t.uid < 1 << 16, "{what}: table {}", t.uid));
        db.close().expect("closed");
    }
}

/// Goal: a number in a file's name that the store cannot have reached neither ends in a panic nor
/// becomes the number that the store counts on from. The story: each of these was one empty file.
#[test]
fn numbers_out_of_reach_spoil_nothing() {
    for form in ["wal-N.log", "versions-N.log", "N.tbl"] {
        for number in [u64::MAX, 1 << 56, (1 << 56) - 1, 1 << 40] {
            let dir = store();
            let file = dir.path().join(form.replace('N', &number.to_string()));
            std::fs::write(&file, b"").expect("written");
            let what = name(&file);
            if number >= 1 << 56 {
                check(dir.path(), &what);
                assert!(file.exists(), "{what} is not ours and was removed");
                continue;
            }
            let error = open(dir.path()).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
            assert!(error.to_string().contains(&what), "{what}: {error}");
            let report = Db::repair(dir.path()).expect("repaired");
            assert!(!report.healthy && !report.lost_data() && !report.rebuilt, "{what}: {report}");
            assert!(report.to_string().contains(&what), "{what}: {report}");
            assert_eq!(report.kept_files, [format!("lost-{what}")], "{what}: {report}");
            check(dir.path(), &what);
        }
    }
}

fn is_told(error: &Error, file: &Path, what: &str) {
    let named = error.damage().map(|damage| damage.file.clone()).unwrap_or_default();
    assert!(named.ends_with(&name(file)), "{what}: {named:?} in {error}");
    assert!(error.to_string().contains(&name(file)), "{what}: {error}");
}

/// What is put in the place of a file, and what a refusal has to call it.
type Way = (fn(&Path), &'static str);

const WAYS: [Way; 2] = [
    (
        |path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe"),
        "a pipe",
    ),
    (
        |path| {
            std::fs::create_dir(path).expect("made");
            std::fs::write(path.join("notes"), b"mine").expect("written");
        },
        "a directory",
    ),
];

fn is_refused(error: &Error, file: &Path, found: &str) {
    let what = format!("{found} as {}", name(file));
    assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
    is_told(error, file, &what);
    for part in [found, "no regular file", "move it away", "open the store again"] {
        assert!(error.to_string().contains(part), "{what}: no \"{part}\" in {error}");
    }
}

/// Goal: a pipe or a directory in the place of a store's file is refused, by name, at once, with
/// what to do; a repair moves it aside, with what is in it. A pipe waited for its other end, and no
/// signal ended that; a directory was taken for a file that is missing.
#[test]
fn pipes_and_directories_are_refused_by_name() {
    for start in ["ROOT", "versions-", "wal-", "0"] {
        for (put, found) in WAYS {
            let dir = store();
            let file = find(dir.path(), start);
            std::fs::remove_file(&file).expect("removed");
            put(&file);
            for read_only in [true, false] {
                let builder = Db::builder(dir.path()).memory_budget(8 << 20);
                match builder.read_only(read_only).open() {
                    Err(error) => is_refused(&error, &file, found),
                    Ok(db) => is_refused(&db.get(b"a").expect_err("refused"), &file, found),
                }
            }
            let report = Db::repair(dir.path()).expect("repaired");
            let lost = find(dir.path(), "lost-");
            assert!(!report.healthy && !lost.is_file(), "{found} as {start}: {report}");
            assert_eq!(lost.is_dir(), found == "a directory", "{start}: {report}");
            assert_eq!(lost.join("notes").exists(), lost.is_dir(), "{start}: what was in it");
            open(dir.path()).expect("opened").close().expect("closed");
        }
    }
}

/// Goal: what is in the way of the lock or of the next root is refused by openings and by repair
/// alike, and stays. A pipe for the next root goes as any file there does, and readers need none.
#[test]
fn what_is_in_the_way_is_refused_by_name() {
    for start in ["LOCK", "ROOT.tmp"] {
        for (put, found) in WAYS {
            let dir = store();
            let file = dir.path().join(start);
            if start == "LOCK" {
                std::fs::remove_file(&file).expect("removed");
            }
            put(&file);
            let builder = || Db::builder(dir.path()).memory_budget(8 << 20);
            match builder().read_only(true).open() {
                Ok(db) if start == "ROOT.tmp" => db.close().expect("closed"),
                opened => is_refused(&opened.expect_err("refused"), &file, found),
            }
            if (start, found) != ("ROOT.tmp", "a pipe") {
                is_refused(&Db::repair(dir.path()).expect_err("refused"), &file, found);
                is_refused(&open(dir.path()).expect_err("refused"), &file, found);
                assert_eq!(file.join("notes").exists(), found == "a directory", "it stays");
                std::fs::rename(&file, dir.path().join("elsewhere")).expect("moved away");
            }
            check(dir.path(), start);
        }
    }
}

/// Goal: a directory under the number that a file gets next is in nobody's way, or refused by name.
/// One for the next table poisoned the store, one for the next version log kept it from opening.
#[test]
fn directories_take_numbers() {
    for next in ["000002.tbl", "000003.tbl", "000004.tbl"] {
        let dir = store();
        let path = dir.path().join(next);
        std::fs::create_dir(&path).expect("made");
        check(dir.path(), next);
        assert!(path.exists(), "{next}");
    }
    for next in ["versions-000002.log", "versions-000777.log", "wal-000002.log", "wal-000777.log"] {
        let dir = store();
        let path = dir.path().join(next);
        std::fs::create_dir(&path).expect("made");
        is_refused(&open(dir.path()).expect_err("refused"), &path, "a directory");
        std::fs::remove_dir(&path).expect("moved away");
        check(dir.path(), next);
    }
}

/// Goal: a refusal says which file is missing.
#[test]
fn missing_logs_are_named() {
    let dir = store();
    let file = find(dir.path(), "versions-");
    std::fs::remove_file(&file).expect("removed");
    is_told(&open(dir.path()).expect_err("refused"), &file, "the version log");
    // Each segment of a log in turn; nothing was flushed, so all of them are needed.
    for which in 0..4 {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let open = || Db::builder(dir.path()).log_segment_bytes(16 << 10).open();
        let db = open().expect("opened");
        for i in 0..60u32 {
            db.put_with(i.to_be_bytes(), [7; 1000], Durability::Sync).expect("put");
        }
        // Not closed: a clean end flushes.
        let copy = tempfile::tempdir().expect("a temporary directory");
        for entry in std::fs::read_dir(dir.path()).expect("listed") {
            let file = entry.expect("an entry").path();
            std::fs::copy(&file, copy.path().join(name(&file))).expect("copied");
        }
        db.close().expect("closed");
        let file = copy.path().join(format!("wal-{:06}.log", which + 1));
        let bytes = std::fs::read(&file).expect("there are five segments");
        // Where the first one cannot be read, nothing tells what comes behind it.
        if which > 0 {
            let damaged: Vec<u8> =
                bytes.iter().enumerate().map(|(i, b)| b ^ u8::from(i == 2)).collect();
            std::fs::write(&file, damaged).expect("damaged");
            is_told(&Db::open(copy.path()).expect_err("refused"), &file, "a damaged segment");
        }
        std::fs::remove_file(&file).expect("removed");
        let error = Db::open(copy.path()).expect_err("refused");
        is_told(&error, &file, "a segment");
        let report = Db::repair(copy.path()).expect("repaired");
        assert!(report.lost_data() && report.to_string().contains(&name(&file)), "{report}");
    }
}

/// Goal: a log that was cut off in a part that is in tables is told by where it ends, not by a file
/// that never was.
#[test]
fn a_log_that_is_cut_off_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = open(dir.path()).expect("opened");
    for i in 0..50u32 {
        db.put_with(i.to_be_bytes(), [7; 1000], Durability::Sync).expect("put");
    }
    db.flush().expect("flushed");
    db.put_with(b"z", b"1", Durability::Sync).expect("put");
    db.close().expect("closed");
    let mut segments: Vec<PathBuf> = (1..9)
        .map(|number| dir.path().join(format!("wal-{number:06}.log")))
        .filter(|file| file.exists())
        .collect();
    segments.retain(|file| std::fs::read(file).expect("read").iter().any(|&byte| byte != 0));
    let last = segments.pop().expect("a segment");
    let file = std::fs::OpenOptions::new().write(true).open(&last).expect("opened");
    file.set_len(5000).expect("cut");
    let error = open(dir.path()).expect_err("refused");
    is_told(&error, &last, "the segment that was cut");
    assert_eq!(error.damage().map(|damage| damage.offset), Some(5000), "{error}");
}

/// Goal: a file of a terabyte that is one hole costs neither memory nor time.
#[test]
fn holes_are_skipped() {
    let begun = Instant::now();
    for start in ["versions-", "wal-", "ROOT"] {
        for gone in [false, true] {
            let dir = store();
            let file = std::fs::OpenOptions::new().write(true).open(find(dir.path(), start));
            let file = file.expect("opened");
            if gone {
                file.set_len(0).expect("emptied");
            }
            file.set_len(GIANT_BYTES).expect("extended");
            let opened = open(dir.path()).map(|db| db.close().expect("closed"));
            if start == "ROOT" {
                opened.expect_err("refused");
            }
            let report = Db::repair(dir.path()).expect("repaired");
            let kept = report.kept_files.iter().map(|name| dir.path().join(name));
            kept.for_each(|name| assert!(name.exists(), "{name:?}"));
            open(dir.path()).expect("opened").close().expect("closed");
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn a_path_with_a_zero_byte_is_no_path() {
    let error = open(Path::new("a\0b")).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

/// Goal: a table that nobody needs and that cannot be removed harms nobody; it is shown, and goes
/// as soon as the device lets go of it.
#[cfg(feature = "sim")]
#[test]
fn an_orphan_that_stays_harms_nobody() {
    use weir::sim::{Effect, ErrorCode, Fault, FaultyDir, FileClass, OpKind, SimDisk};
    use weir::sim::{SimOptions, Times};
    let disk = SimDisk::new(SimOptions::default());
    let builder = || Db::builder("sim").memory_budget(8 << 20).seed(1);
    let db = builder().device(disk.dir()).open().expect("opened");
    db.put(b"a", b"1").expect("put");
    db.close().expect("closed");
    disk.write_all("000777.tbl", b"half a table");
    let faulty = FaultyDir::over_disk(&disk);
    let faults = faulty.faults();
    faults.arm(Fault {
        op: Some(OpKind::Unlink),
        class: Some(FileClass::Table),
        after: 0,
        times: Times::Forever,
        effect: Effect::Fail(ErrorCode::Eio),
    });
    let db = builder().device(std::sync::Arc::new(faulty)).open().expect("opened");
    db.put(b"b", b"2").expect("put");
    db.flush().expect("flushed");
    // Background threads try to remove it, and note what they met. While one tries, it does not
    // wait.
    let shown = || db.property("weir.background-error").expect("a property");
    let begun = std::time::Instant::now();
    while !shown().contains("000777.tbl") || db.metrics().tables_waiting != 1 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", shown());
        std::thread::sleep(Duration::from_millis(1));
    }
    faults.heal();
    db.put(b"c", b"3").expect("put");
    db.flush().expect("flushed");
    db.close().expect("closed");
    assert_eq!(disk.read_all("000777.tbl"), None, "it was tried again");
    let db = builder().device(disk.dir()).open().expect("opened");
    assert_eq!(db.property("weir.background-error").as_deref(), Some(""));
    assert_eq!(db.get(b"a").expect("got").as_deref(), Some(&b"1"[..]));
    assert_eq!(db.get(b"b").expect("got").as_deref(), Some(&b"2"[..]));
}
