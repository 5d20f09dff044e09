//! What sentinels must not do to those who did not ask for one: bring deleted keys back, keep
//! space, disturb merges, or fail for others.
#![expect(clippy::disallowed_methods, reason = "damages a file behind the engine's back")]

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
#[cfg(feature = "sim")]
use std::time::Duration;

use crate::base::clock;
use crate::base::ids::Level;
use crate::base::interval::Interval;
use crate::compaction::policy::sentinel_task;
use crate::compaction::policy_of;
use crate::db::compactions::{Ended, Reservation};
use crate::state::tree::Tree;
#[cfg(feature = "sim")]
use crate::{CompactionBuffer, HotRanges, TrimOptions};
use crate::{CompactionPolicy, Db, ErrorKind, Filters, LeveledOptions, Options, SentinelOptions};

fn open(dir: &Path, options: Options) -> Db {
    Db::builder(dir.join("db")).default_options(options).open().unwrap()
}

fn leveled() -> Options {
    Options::default().compaction(CompactionPolicy::leveled())
}

/// Lists that nothing is trimmed from.
#[cfg(feature = "sim")]
fn with_lists() -> Options {
    let hour = Duration::from_secs(3600);
    leveled().compaction_buffer(CompactionBuffer::Trimmed(TrimOptions::default().interval(hour)))
}

/// Brings level 0 down, by as many flushes as it takes.
#[cfg(feature = "sim")]
fn go_down(db: &Db, round: u32) {
    for number in 0..4 {
        db.put(format!("b{round}{number}"), "1").unwrap();
        db.put(format!("y{round}{number}"), "1").unwrap();
        db.flush().unwrap();
    }
    db.wait_idle().unwrap();
}

#[cfg(feature = "sim")]
fn assert_without_m(db: &Db) {
    let count = || db.range("m"..="m").count();
    assert_eq!(crate::sim::without_lists(count), 0);
    assert_eq!(crate::sim::through_lists(count), 0);
    assert_eq!(db.get("m").unwrap().map(|value| value.len()), None);
}

/// Goal (H10): a sentinel that finds an interval empty leaves no copy of it in the lists below.
/// Method: a delete meets its key in a sentinel without output; then the run is rewritten.
#[cfg(feature = "sim")]
#[test]
fn an_empty_sentinel_hides_what_lists_have() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), with_lists());
    for key in ["a", "m", "z"] {
        db.put(key, "1").unwrap();
    }
    db.flush().unwrap();
    go_down(&db, 0);
    db.delete("m").unwrap();
    db.flush().unwrap();
    assert!(db.default_keyspace().build_sentinel("l".."n").unwrap());
    assert_without_m(&db);
    go_down(&db, 1);
    assert_without_m(&db);
    db.close().unwrap();
}

/// Goal (H10): a masked table comes into a list with holes under its masks.
#[cfg(feature = "sim")]
#[test]
fn a_masked_table_hides_its_part_of_a_list() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), with_lists());
    for key in ["a", "m", "n", "z"] {
        db.put(key, "1").unwrap();
    }
    db.flush().unwrap();
    db.delete("m").unwrap();
    db.flush().unwrap();
    assert!(db.default_keyspace().build_sentinel("l".."o").unwrap());
    go_down(&db, 0);
    assert_without_m(&db);
    assert_eq!(db.range(..).count(), 3 + 8);
    db.close().unwrap();
}

/// Goal (H10): a mask that grows over an older one needs no hole over both, only over what is new.
/// Method: between two sentinels side by side the list of the run begins another buffered run,
/// which has no hole of the first sentinel's; the masked table stays as it is.
#[cfg(feature = "sim")]
#[test]
fn a_mask_grows_beside_a_list() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = CompactionPolicy::Leveled(LeveledOptions::default().l0_trigger(1));
    let stays = SentinelOptions::default().window(Duration::from_secs(3600));
    let db = open(dir.path(), with_lists().compaction(sizes).sentinels(stays));
    let write = |keys: std::ops::RangeInclusive<u8>, end: &str| {
        for key in keys {
            // The sentinels are far less than a quarter of the tree.
            let value = vec![b'1'; if key < b'f' { 1 } else { 2000 }];
            db.put([&[key], end.as_bytes()].concat(), value).unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
    };
    write(b'a'..=b'k', "");
    let keyspace = db.default_keyspace();
    assert!(keyspace.build_sentinel("a".."c").unwrap());
    write(b'm'..=b'z', "");
    write(b'm'..=b'z', "1");
    let masks = || {
        let described = db.describe();
        let runs = described.keyspaces[0].levels.iter().flat_map(|level| &level.runs);
        runs.flat_map(|run| &run.tables).map(|table| table.hidden_entries).max()
    };
    assert_eq!(masks(), Some(2), "the table of the first sentinel's keys was rewritten");
    assert!(db.metrics().keyspaces[0].levels.iter().any(|level| level.buffered_tables > 1));
    assert!(keyspace.build_sentinel("c".."f").unwrap());
    assert_eq!(masks(), Some(5));
    for count in [crate::sim::without_lists(|| db.range(..).count()), db.range(..).count()] {
        assert_eq!(count, 11 + 14 + 14);
    }
    db.close().unwrap();
}

/// A store with 10,000 keys in level 0 and in the last level, and a task that takes them down
/// because they are read.
fn going_down(dir: &Path) -> (Db, Arc<Tree>, Reservation) {
    let sizes = LeveledOptions::default().l0_trigger(8);
    let db = open(dir, Options::default().compaction(sizes));
    for round in 0..2 {
        for key in 0..10_000 {
            db.put(format!("{key:05}"), [round; 200]).unwrap();
        }
        db.flush().unwrap();
        if round == 0 {
            db.compact_range(..).unwrap();
        }
    }
    db.wait_idle().unwrap();
    let engine = &db.handle.engine;
    let tree = engine.trees.lock().values().next().cloned().unwrap();
    let reserved = {
        let mut state = engine.jobs.state.lock();
        let root = engine.set.current();
        let shape = engine.shape_of(&root, tree.id, state.reserved(tree.id)).unwrap();
        let policy = policy_of(shape.options.compaction);
        let task = policy.pick_hot(&shape, Bound::Unbounded, Bound::Unbounded).unwrap();
        engine.reserve(&mut state, &tree, &root, task).unwrap()
    };
    (db, tree, reserved)
}

/// Goal: what goes down for the sake of reads gives way to writers that wait, as a sentinel does:
/// also to those of another keyspace, whose compactions may lack the worker.
#[test]
fn a_way_down_gives_way() {
    let dir = tempfile::tempdir().unwrap();
    let (db, _, reserved) = going_down(dir.path());
    // As if they did, until the job has ended: the keyspace itself is not stalled.
    let engine = &db.handle.engine;
    engine.jobs.stalled.fetch_add(1, Ordering::Relaxed);
    let ended = engine.run_reserved(reserved, |ended| ended);
    assert_eq!(ended.err().map(|error| error.kind()), Some(ErrorKind::Closed));
    db.put("a", "1").unwrap();
    db.close().unwrap();
}

/// Goal: a way down that is refused stops no compaction that is due.
#[test]
fn a_refused_way_down_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (db, _, reserved) = going_down(dir.path());
    let engine = &db.handle.engine;
    engine.set.refusals.left.store(1, Ordering::Relaxed);
    let ended = engine.run_reserved(reserved, |ended| ended);
    assert!(matches!(ended, Ok(Ended::Quarantined(_))));
    assert_eq!(db.metrics().compactions_refused, 1);
    assert_eq!(db.property("weir.background-error").as_deref(), Some(""));
    for round in 0..8 {
        db.put("a", [round]).unwrap();
        db.flush().unwrap();
    }
    db.wait_idle().unwrap();
    assert!(db.describe().keyspaces[0].levels[0].runs.len() < 8, "level 0 is not merged");
    db.close().unwrap();
}

/// Goal (H27): what masks hide is given back: by a range compaction, and where it is much by
/// itself.
#[test]
fn masked_space_comes_back() {
    for asks in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), leveled());
        for key in 0..3000 {
            db.put(format!("{key:05}"), [7; 100]).unwrap();
        }
        db.flush().unwrap();
        db.compact_range(..).unwrap();
        let last = if asks { 10 } else { 2999 };
        for key in 1..last {
            db.delete(format!("{key:05}")).unwrap();
        }
        db.flush().unwrap();
        let range = "00001".to_owned()..format!("{last:05}");
        assert!(db.default_keyspace().build_sentinel(range).unwrap());
        if asks {
            db.compact_range(..).unwrap();
        }
        db.wait_idle().unwrap();
        // Keys of 5 bytes, values of 100.
        assert_eq!(db.metrics().masked_bytes_dropped, (last as u64 - 1) * 105, "asked for: {asks}");
        let described = db.describe();
        let runs = described.keyspaces[0].levels.iter().flat_map(|level| &level.runs);
        let hidden: u64 = runs.flat_map(|run| &run.tables).map(|table| table.hidden_entries).sum();
        assert_eq!(hidden, 0, "asked for: {asks}");
        assert_eq!(db.range(..).count(), 3000 - (last - 1));
        db.close().unwrap();
    }
}

/// Goal (H24): a repair that keeps the structure keeps what masks hide hidden. Method: another
/// block of the masked table is damaged.
#[test]
fn a_repair_keeps_what_is_hidden() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = open(dir.path(), leveled());
    for key in 0..1000 {
        db.put(format!("{key:05}"), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    db.delete("00500").unwrap();
    db.flush().unwrap();
    assert!(db.default_keyspace().build_sentinel("00500".."00501").unwrap());
    db.close().unwrap();
    let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let tables = entries.filter(|path| path.extension().is_some_and(|end| end == "tbl"));
    let table = tables.max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let report = Db::builder(&path).repair().unwrap();
    assert_eq!(report.lost_tables.len(), 1);
    let db = Db::builder(&path).open().unwrap();
    assert!(db.range(..).count() > 900);
    assert_eq!(db.get("00500").unwrap().map(|value| value.len()), None, "it was deleted");
    db.close().unwrap();
}

/// Goal: a sentinel that fails, for lack of space too, is tried again after pauses that grow, and
/// costs nobody else anything.
#[cfg(feature = "sim")]
#[test]
fn a_sentinel_that_fails_rests() {
    use crate::sim::{Effect, ErrorCode, Fault, FaultyDir, FileClass, OpKind, SimDisk, Times};
    for code in [ErrorCode::Eio, ErrorCode::Enospc] {
        let dir = FaultyDir::over_disk(&SimDisk::default());
        let faults = dir.faults();
        let sentinels = SentinelOptions::default().window(Duration::from_millis(200));
        let options = Options::default()
            .compaction(LeveledOptions::default().l0_trigger(8))
            .sentinels(sentinels.ways(HotRanges::Up));
        let builder = Db::builder("sim").default_options(options);
        let db = builder.device(std::sync::Arc::new(dir)).open().unwrap();
        for round in 0..4_u32 {
            for key in 0..3000_u32 {
                db.put(format!("{key:05}"), [round as u8; 200]).unwrap();
            }
            db.flush().unwrap();
        }
        db.wait_idle().unwrap();
        faults.arm(Fault {
            op: Some(OpKind::Write),
            class: Some(FileClass::Table),
            after: 0,
            times: Times::Forever,
            effect: Effect::Fail(code),
        });
        let until = clock::now_nanos() + 3_000_000_000;
        while clock::now_nanos() < until {
            assert_eq!(db.range("01000".."01300").count(), 300);
            db.put("other", "1").unwrap();
        }
        let metrics = db.metrics();
        assert!((1..10).contains(&metrics.jobs_failed), "{} in 3 s", metrics.jobs_failed);
        assert_eq!(db.property("weir.background-error").as_deref(), Some(""));
        faults.heal();
        db.flush().unwrap();
        db.close().unwrap();
    }
}

/// Goal: a sentinel of a little reads a little, and says so.
#[test]
fn a_small_sentinel_reads_little() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), leveled());
    for key in 0..10_000 {
        db.put(format!("{key:05}"), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    let before = db.metrics().compaction_bytes_read;
    assert!(db.default_keyspace().build_sentinel("00500".."00510").unwrap());
    let metrics = db.metrics();
    let said = metrics.compaction_bytes_read - before;
    assert!(said < 10_000, "{said} bytes for 10 entries");
    assert!(metrics.io.sentinels.bytes_read < 200_000, "{:?}", metrics.io.sentinels);
    db.close().unwrap();
}

/// Goal: the filter of a sentinel is as large as its entries need: a policy that gives small runs
/// more bits an entry (Monkey) is asked for what is built, not for the tables that it is taken of.
/// Method: a hundredth of a table; the filter is most of what follows the data in a small one.
#[test]
fn a_sentinel_has_the_filter_of_its_entries() {
    let dir = tempfile::tempdir().unwrap();
    let options = leveled().sentinels(SentinelOptions::default()).filters(Filters::Monkey);
    let db = open(dir.path(), options);
    for key in 0..100_000 {
        db.put(format!("{key:05}"), "1").unwrap();
    }
    db.flush().unwrap();
    let engine = &db.handle.engine;
    let tree = engine.trees.lock().values().next().cloned().unwrap();
    let reserved = engine.jobs.state.lock().reserved(tree.id);
    let shape = engine.shape_of(&engine.set.current(), tree.id, reserved).unwrap();
    let policy = policy_of(shape.options.compaction);
    let bits = |entries| f64::from(policy.filter_bits(&shape, Level::ZERO, entries));
    assert!(bits(1000) > bits(100_000) + 5.0, "{} and {}", bits(1000), bits(100_000));
    assert!(db.default_keyspace().build_sentinel("02000".."03000").unwrap());
    let root = engine.set.current();
    let version = &root.keyspaces.get(tree.id).unwrap().version;
    let (_, sentinel) = version.sentinels().next().unwrap();
    let tail_bytes: u64 = sentinel.tables.iter().map(|(meta, _)| meta.tail_bytes).sum();
    let needed = 1000.0 * bits(1000) / 8.0;
    assert!(tail_bytes as f64 > needed * 0.9, "{tail_bytes} bytes, {needed} are needed");
    db.close().unwrap();
}

/// Goal (H26): what is written behind all keys of a claim without an end while its sentinel is
/// built is no obstacle to it. Method: a merge of larger keys between the reservation and the job.
#[test]
fn a_claim_without_an_end_meets_no_merge() {
    let dir = tempfile::tempdir().unwrap();
    let db =
        open(dir.path(), Options::default().compaction(LeveledOptions::default().l0_trigger(1)));
    for key in 0..1000 {
        db.put(format!("{key:07}"), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    let engine = &db.handle.engine;
    let tree = engine.trees.lock().values().next().cloned().unwrap();
    let reserved = {
        let mut state = engine.jobs.state.lock();
        let (epoch, root) = engine.below_memtables(&tree);
        let shape = engine.shape_of(&root, tree.id, state.reserved(tree.id)).unwrap();
        let interval = Interval::new(b"0000100", None);
        let task = sentinel_task::build(&shape, interval, epoch, 1).unwrap();
        engine.reserve(&mut state, &tree, &root, task).unwrap()
    };
    db.put("1000000", "1").unwrap();
    db.flush().unwrap();
    let until = clock::now_nanos() + 5_000_000_000;
    let waits = || db.describe().keyspaces[0].levels[0].runs.iter().any(|run| !run.sentinel);
    while waits() && clock::now_nanos() < until {
        std::thread::yield_now();
    }
    assert!(matches!(engine.run_reserved(reserved, |ended| ended), Ok(Ended::Done)));
    let all = (Bound::Included("0000100"), Bound::<&str>::Unbounded);
    assert_eq!(db.range(all).count(), 901);
    db.close().unwrap();
}
