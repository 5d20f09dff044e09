//! Requests to the device, told apart by their cause.

use weir::{Db, Durability, IoMetrics, LeveledOptions, Options};

const KEYS: u32 = 20_000;

fn open(path: &std::path::Path) -> Db {
    // No cache, so that every block that is looked at is a request.
    let builder = Db::builder(path).memory_budget(64 << 20).block_cache_bytes(0);
    builder
        .default_options(Options::default().compaction(LeveledOptions::default().l0_trigger(8)))
        .open()
        .expect("open")
}

fn fill(db: &Db, round: u8) {
    (0..KEYS).for_each(|i| db.put(i.to_be_bytes(), [round; 100]).expect("put"));
}

fn tables_bytes(db: &Db) -> u64 {
    db.metrics().keyspaces[0].levels.iter().map(|level| level.bytes).sum()
}

/// Goal: each thing that a store does counts under its own cause and no other, and the bytes are
/// those that it must have moved. Method: one after the other, with nothing else going on.
#[test]
fn each_request_has_its_cause() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let db = open(&path);
    let none = IoMetrics::default();
    let io = || db.metrics().io;
    let opened = io();
    assert!(opened.open.writes > 0 && opened.open.syncs > 0, "{opened:?}");
    assert_eq!((opened.users, opened.flush, opened.compaction), (none, none, none));

    fill(&db, 1);
    let written = io();
    let user_bytes = u64::from(KEYS) * 104;
    assert!(written.log.bytes_written >= user_bytes, "{written:?}");
    assert!(written.log.writes >= u64::from(KEYS), "a write for each put: {written:?}");
    assert_eq!((written.flush, written.users, written.open), (none, none, opened.open));
    let log_syncs = db.metrics().log_syncs;
    db.put_with(b"k", b"v", Durability::Sync).expect("put");
    assert_eq!(db.metrics().log_syncs, log_syncs + 1);
    // One for the put; segments that are prepared meanwhile have their own.
    assert!(io().log.syncs > written.log.syncs);

    db.flush().expect("flush");
    let flushed = io();
    let level_0 = tables_bytes(&db);
    assert_eq!((flushed.flush.bytes_written, flushed.flush.reads), (level_0, 0));
    assert!(flushed.versions.writes > written.versions.writes && flushed.versions.syncs > 0);
    assert_eq!((flushed.users, flushed.compaction), (none, none));

    fill(&db, 2);
    db.flush().expect("flush");
    let inputs = tables_bytes(&db);
    let before = io();
    db.compact_range(..).expect("compact_range");
    let merged = io();
    assert_eq!(merged.compaction.bytes_written, tables_bytes(&db));
    let read = merged.compaction.bytes_read;
    assert!((inputs * 9 / 10..=inputs).contains(&read), "{read} of {inputs} bytes");
    assert!(merged.compaction.reads <= 4 + inputs.div_ceil(1 << 20), "{merged:?}");
    assert_eq!((merged.flush, merged.users), (before.flush, none));

    assert!(db.get(7u32.to_be_bytes()).expect("get").is_some());
    let got = io().users;
    assert_eq!((got.reads, got.writes), (2, 0), "the table's tail and a block: {got:?}");
    assert_eq!(db.iter().count(), KEYS as usize + 1);
    assert!(io().users.bytes_read >= user_bytes);
    assert_eq!(io().compaction, merged.compaction);
    let users = io().users;
    assert!(db.verify().expect("verify").damages.is_empty());
    assert!(io().verify.bytes_read >= tables_bytes(&db));
    assert_eq!(io().users, users);

    let metrics = db.metrics();
    let total = metrics.io.total();
    assert_eq!(total.reads, metrics.io.named().iter().map(|(_, io)| io.reads).sum::<u64>());
    let property = db.property("weir.io").expect("a property");
    assert!(property.lines().any(|line| line.starts_with("compaction ")), "{property}");
    let line = format!("weir_io_read_bytes_total{{cause=\"compaction\"}} {read}");
    assert!(metrics.prometheus().lines().any(|l| l == line), "{line}");
    drop(db);

    let db = open(&path);
    let io = db.metrics().io;
    assert!(io.open.reads > 0 && io.users == none && io.log.reads == 0, "{io:?}");
}

/// Goal: in slots too, where other threads read ahead and write behind for who works. Method: a
/// flush and a merge of several buffers and windows, with nothing else going on.
#[test]
fn each_request_to_slots_has_its_cause() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let mut options = weir::FormatOptions::new();
    options.size = Some(256 << 20);
    weir::format(&path, &options).expect("formatted");
    let db = open(&path);
    let io = || db.metrics().io;
    for round in 1..3 {
        fill(&db, round);
        db.flush().expect("flush");
    }
    let (flushed, tables) = (io(), tables_bytes(&db));
    assert!(tables > 4 << 20, "{tables} bytes are no several buffers");
    assert!(flushed.flush.bytes_written >= tables, "{flushed:?}");
    assert_eq!((flushed.users, flushed.compaction), (IoMetrics::default(), IoMetrics::default()));
    db.compact_range(..).expect("compact_range");
    let merged = io();
    assert!(merged.compaction.bytes_written >= tables_bytes(&db), "{merged:?}");
    assert!(merged.compaction.bytes_read >= tables * 9 / 10, "{merged:?}");
    assert_eq!((merged.users, merged.flush), (flushed.users, flushed.flush));
}
