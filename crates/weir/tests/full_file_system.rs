//! A real file system that is full: 64 MiB of ext4 in a loop device, out of blocks or of inodes.
//!
//! Needs root, `mkfs.ext4` and loop devices; without them it says so and passes.
#![expect(clippy::disallowed_methods, reason = "makes and fills a file system, by the clock")]

mod mounted;

use std::path::Path;
use std::time::{Duration, Instant};

use mounted::Mounted;
use weir::{Db, ErrorKind, LeveledOptions, Options};

/// What a store with default options holds at least on a device of 1 GiB.
const SMALL_STORE_BYTES: u64 = 200 << 20;

/// Longer than the store takes to notice that space is back.
const LONG: Duration = Duration::from_secs(30);

/// Takes all the space that is left.
fn fill(mounted: &Mounted) {
    let mut bytes = 32 << 20;
    let mut number = 0;
    while bytes >= 1024 {
        number += 1;
        let name = mounted.at.join(format!("foreign.{number}"));
        if std::fs::write(name, vec![1; bytes]).is_err() {
            bytes /= 2;
        }
    }
}

/// Gives it back.
fn empty(mounted: &Mounted) {
    for entry in std::fs::read_dir(&mounted.at).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("foreign") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

fn open(dir: &Path) -> Db {
    let options = Options::default()
        .write_buffer_bytes(256 << 10)
        .table_bytes(256 << 10)
        .compaction(LeveledOptions::default().base_level_bytes(1 << 20));
    Db::builder(dir.join("db"))
        .default_options(options)
        .memory_budget(8 << 20)
        .log_segment_bytes(512 << 10)
        .log_area_bytes(4 << 20)
        .open()
        .unwrap()
}

fn value(key: u32) -> Vec<u8> {
    key.to_be_bytes().iter().copied().cycle().take(4000).collect()
}

/// Writes from `*next` on until a write is refused.
fn write_until_full(db: &Db, next: &mut u32) -> ErrorKind {
    loop {
        match db.put(next.to_be_bytes(), value(*next)) {
            Ok(()) => *next += 1,
            Err(error) => return error.kind(),
        }
        assert!(*next < 100_000, "400 MB in 64 MiB");
    }
}

fn check(db: &Db, below: u32) {
    for key in 0..below {
        let found = db.get(key.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&value(key)[..]), "key {key}");
    }
}

/// Goal: a full file system refuses writes, and nothing else; what was acknowledged is there; when
/// space returns, writes resume.
/// Method: the store fills it itself, beside a foreign file that is removed then; and a foreign
/// program takes everything, to the last block, in the middle of the work.
#[test]
fn a_full_file_system() {
    let mounted = match Mounted::new(64 << 20, &[]) {
        Ok(mounted) => mounted,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let resume = |db: &Db, next: &mut u32| {
        let started = Instant::now();
        while let Err(error) = db.put(next.to_be_bytes(), value(*next)) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert!(started.elapsed() < LONG, "writes do not resume: {error}");
        }
        *next += 1;
    };
    std::fs::write(mounted.at.join("foreign"), vec![1; 16 << 20]).unwrap();
    let db = open(&mounted.at);
    let mut next = 0;
    assert_eq!(write_until_full(&db, &mut next), ErrorKind::NoSpace);
    println!("{next} values of 4000 bytes beside 16 MiB");
    assert!(next > 3000, "only {next} values of 4000 bytes fitted");
    check(&db, next);
    db.flush().unwrap();
    empty(&mounted);
    resume(&db, &mut next);
    for _ in 0..500 {
        resume(&db, &mut next);
    }

    fill(&mounted);
    assert_eq!(write_until_full(&db, &mut next), ErrorKind::NoSpace);
    println!("{next} values when a foreign program took the rest");
    check(&db, next);
    empty(&mounted);
    for _ in 0..500 {
        resume(&db, &mut next);
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(db.verify().unwrap().damages.is_empty());
    db.close().unwrap();
    let db = open(&mounted.at);
    check(&db, next);
    db.close().unwrap();
}

/// Goal: a file system without inodes refuses writes as one without blocks does, in time, and says
/// how many files it lacks; when so many are free, writes resume. They did not: nothing looked at
/// inodes, so that the compaction that was due found none.
/// Method: ext4 with 160 inodes, most of them taken by foreign files, of which exactly those that
/// the refusal names are removed.
#[test]
fn a_file_system_without_inodes() {
    let mounted = match Mounted::new(64 << 20, &["-N", "160"]) {
        Ok(mounted) => mounted,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let foreign = |n: u64| mounted.at.join(format!("foreign.{n}"));
    let mut files = (0..60).inspect(|&n| std::fs::write(foreign(n), b"").unwrap()).count() as u64;
    let options = Options::default()
        .write_buffer_bytes(128 << 10)
        .table_bytes(32 << 10)
        .compaction(LeveledOptions::default().base_level_bytes(256 << 10));
    let db = Db::builder(mounted.at.join("db"))
        .default_options(options)
        .memory_budget(8 << 20)
        .log_segment_bytes(128 << 10)
        .log_area_bytes(1 << 20)
        .open()
        .unwrap();
    let mut next = 0;
    let refusal = |db: &Db, next: &mut u32| loop {
        match db.put(next.wrapping_mul(0x9E37_79B1).to_be_bytes(), value(*next)) {
            Ok(()) => *next += 1,
            Err(error) => return error,
        }
        assert!(*next < 10_000, "40 MB in tables of 32 KiB, with 160 inodes");
    };
    for _ in 0..3 {
        let first = refusal(&db, &mut next);
        assert_eq!(first.kind(), ErrorKind::NoSpace, "{first}");
        // What still fits runs first.
        std::thread::sleep(Duration::from_secs(1));
        let error = refusal(&db, &mut next);
        println!("{next} values: {error}");
        let text = error.to_string();
        let number = |text: &str| text.split(' ').next().and_then(|word| word.parse::<u64>().ok());
        let needed = text.split(" may need ").nth(1).and_then(number).unwrap();
        let left = text.split(" has ").nth(1).and_then(number).unwrap();
        assert!(text.contains("files (inodes)") && left < needed, "{text}");
        for _ in left..needed {
            files = files.checked_sub(1).expect("the store lives with 100 inodes");
            std::fs::remove_file(foreign(files)).unwrap();
        }
        let (started, before) = (Instant::now(), next);
        while next < before + 8 {
            let again = refusal(&db, &mut next);
            assert!(started.elapsed() < LONG, "freed for: {error}; but now: {again}");
        }
        if files < 20 {
            break;
        }
    }
    for key in 0..next {
        let found = db.get(key.wrapping_mul(0x9E37_79B1).to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&value(key)[..]), "key {key}");
    }
    assert!(db.verify().unwrap().damages.is_empty());
    db.close().unwrap();
}

/// Goal: what is kept back does not keep a small store from its device: with default options one
/// goes on taking writes on a device of 1 GiB until it holds a sensible share of that.
/// Method: distinct keys; a refusal counts if nothing that is due makes room.
#[test]
fn a_small_store_on_a_small_file_system() {
    let mounted = match Mounted::new(1 << 30, &[]) {
        Ok(mounted) => mounted,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let db = Db::builder(mounted.at.join("db")).open().unwrap();
    let put = |n: u32| db.put(n.wrapping_mul(0x9E37_79B1).to_be_bytes(), value(n));
    let values = (SMALL_STORE_BYTES / value(0).len() as u64) as u32;
    for n in 0..values {
        let Err(error) = put(n) else { continue };
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        std::thread::sleep(Duration::from_millis(500));
        db.wait_idle().unwrap();
        put(n).unwrap_or_else(|error| panic!("{n} of {values} values, then {error}"));
    }
    assert!(db.verify().unwrap().damages.is_empty());
    db.close().unwrap();
}
