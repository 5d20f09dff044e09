//! Repair after power cuts, on a simulated disk: what unfinished jobs leave behind is no damage.
#![cfg(feature = "sim")]

use std::collections::BTreeMap;

use weir::sim::{CrashPolicy, SimDisk, SimOptions, Simulation};
use weir::{Builder, Db, Durability, LeveledOptions, Options, RepairReport};

const POLICIES: [CrashPolicy; 3] = [CrashPolicy::Nothing, CrashPolicy::All, CrashPolicy::Random(3)];

fn builder(disk: &SimDisk) -> Builder {
    let options = Options::default()
        .write_buffer_bytes(4 << 10)
        .table_bytes(2 << 10)
        .block_bytes(512)
        .compaction(LeveledOptions::default().l0_trigger(2));
    Db::builder("sim")
        .device(disk.dir())
        .default_options(options)
        .memory_budget(8 << 20)
        .log_segment_bytes(8 << 10)
        .log_area_bytes(1 << 20)
        .background_threads(1)
        .seed(1)
}

fn recorded(work: impl FnOnce(&SimDisk) + Send + 'static) -> SimDisk {
    let disk = SimDisk::new(SimOptions { record: true, ..SimOptions::default() });
    let same = disk.clone();
    Simulation::run(1, move |_| work(&same));
    disk
}

fn files(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let names = disk.dir().list().expect("listed");
    names.into_iter().filter_map(|name| disk.read_all(&name).map(|bytes| (name, bytes))).collect()
}

fn repair(disk: &SimDisk, what: &str) -> RepairReport {
    builder(disk).repair().unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// Cuts the power at every boundary of what `disk` recorded and repairs what opens: nothing may
/// change. How many images opened, and in how many of them a table was in no version.
fn repair_every_image(disk: &SimDisk) -> (usize, usize) {
    let mut replayer = disk.replayer();
    let (mut opened, mut with_orphans) = (0, 0);
    for boundary in 0..=replayer.len() {
        replayer.go_to(boundary);
        for policy in POLICIES {
            let image = replayer.image(policy, boundary as u64);
            let what = format!("{policy:?} at {boundary}\n{}", replayer.describe(6, 3));
            let Ok(db) = builder(&image.fork()).read_only(true).open() else { continue };
            let tables = db
                .describe()
                .keyspaces
                .iter()
                .flat_map(|k| &k.levels)
                .fold(0, |n, l| n + l.runs.iter().map(|r| r.tables.len()).sum::<usize>());
            drop(db);
            opened += 1;
            // The lock file is there as soon as anybody has opened the store.
            drop(image.dir().lock("LOCK").expect("locked"));
            let before = files(&image);
            with_orphans +=
                usize::from(before.keys().filter(|n| n.ends_with(".tbl")).count() > tables);
            let report = repair(&image, &what);
            assert!(report.healthy && !report.rebuilt, "{report}\n{what}");
            assert!(files(&image) == before, "{report} changed something: {what}");
        }
    }
    (opened, with_orphans)
}

/// Goal: a store that opens after a power cut is left as it is, to the byte. The story: the flush
/// of a store with one keyspace leaves the log unsynced, so a table that was not installed may hold
/// more than the log does; that was taken for lost edits, and the tree was built again.
#[test]
fn a_flush_that_was_not_installed_is_no_damage() {
    let disk = recorded(|disk| {
        let db = builder(disk).open().expect("opened");
        for round in 0..4u32 {
            for i in 0..30u32 {
                let key = format!("key {:04}", (i * 7 + round * 13) % 60);
                match i % 5 {
                    4 => db.delete(key).expect("deleted"),
                    _ => db.put(key, [round as u8; 60]).expect("put"),
                }
            }
            db.flush().expect("flushed");
        }
        db.compact_range(..).expect("compacted");
        db.close().expect("closed");
    });
    let (opened, with_orphans) = repair_every_image(&disk);
    assert!(opened > 100 && with_orphans > 20, "{opened} opened, {with_orphans} with orphans");
}

/// Goal: the same for writes that are in no log at all, in two keyspaces.
#[test]
fn unlogged_writes_that_were_being_flushed_are_no_damage() {
    let disk = recorded(|disk| {
        let db = builder(disk).open().expect("opened");
        let other = db.create_keyspace("other", Options::default()).expect("created");
        for round in 0..3u32 {
            for i in 0..30u32 {
                let keyspace = if i % 3 == 0 { &other } else { db.default_keyspace() };
                let key = format!("key {:04}", (i * 7 + round * 13) % 60);
                keyspace.put_with(key, [round as u8; 60], Durability::None).expect("put");
            }
            db.flush().expect("flushed");
            db.put_with(b"logged", [round as u8], Durability::Sync).expect("put");
        }
        drop(other);
        db.close().expect("closed");
    });
    let (opened, with_orphans) = repair_every_image(&disk);
    assert!(opened > 100 && with_orphans > 10, "{opened} opened, {with_orphans} with orphans");
}

/// Goal: a key that was deleted durably does not come back by a repair "to be sure".
/// Method: the put is in an old part of the log, the delete is compacted away, then the power fails
/// during the next flush.
#[test]
fn a_deleted_key_stays_deleted() {
    let disk = recorded(|disk| {
        let db = builder(disk).open().expect("opened");
        db.put_with(b"secret", b"old", Durability::Sync).expect("put");
        db.delete_with(b"secret", Durability::Sync).expect("deleted");
        db.flush().expect("flushed");
        db.compact_range(..).expect("compacted");
        db.put(b"new", b"1").expect("put");
        db.flush().expect("flushed");
    });
    let mut replayer = disk.replayer();
    let mut checked = 0;
    for boundary in 0..=replayer.len() {
        replayer.go_to(boundary);
        let image = replayer.image(CrashPolicy::Nothing, 1);
        let Ok(db) = builder(&image.fork()).read_only(true).open() else { continue };
        let before = db.get(b"secret").expect("got");
        drop(db);
        repair(&image, "repaired");
        let db = builder(&image).open().expect("opened");
        assert_eq!(db.get(b"secret").expect("got"), before, "at {boundary}");
        checked += 1;
    }
    assert!(checked > 30, "{checked} images opened");
}

/// Goal: a table file that is gone costs its own entries at most, not the structure of the tree,
/// although unfinished jobs have left tables that no version names.
/// Method: power cuts during merges; in every image that holds such tables one is removed that a
/// version names. Keys outside of it are as before, and what a merge had copied of it is kept.
#[test]
fn a_removed_table_does_not_cost_the_structure() {
    let disk = recorded(|disk| {
        let db = builder(disk).open().expect("opened");
        let other = db.create_keyspace("other", Options::default()).expect("created");
        other.put_with(b"k", b"v", Durability::Sync).expect("put");
        drop(other);
        for round in 0..5u32 {
            for i in 0..40u32 {
                let key = format!("key {:04}", (i * 7 + round * 13) % 100);
                match (i + round) % 6 {
                    5 => db.delete(key).expect("deleted"),
                    _ => db.put(key, format!("{round} {i} {}", "x".repeat(50))).expect("put"),
                }
            }
            db.flush().expect("flushed");
        }
        db.compact_range(..).expect("compacted");
        db.close().expect("closed");
    });
    let mut replayer = disk.replayer();
    let (mut removed, mut kept) = (0, 0);
    for boundary in (0..=replayer.len()).step_by(2) {
        replayer.go_to(boundary);
        let image = replayer.image(CrashPolicy::All, boundary as u64);
        let Ok(db) = builder(&image.fork()).read_only(true).open() else { continue };
        let described = db.describe();
        let levels = described.keyspaces.iter().flat_map(|k| &k.levels);
        let tables: Vec<_> = levels.flat_map(|l| &l.runs).flat_map(|r| r.tables.clone()).collect();
        let there = files(&image).keys().filter(|n| n.ends_with(".tbl")).count();
        if there <= tables.len() || tables.is_empty() {
            continue;
        }
        let before: Vec<_> = db.iter().map(|pair| pair.expect("a pair")).collect();
        drop(db);
        let victim = &tables[boundary % tables.len()];
        assert!(image.delete(&format!("{:06}.tbl", victim.uid)));
        let what = format!("at {boundary}\n{}", replayer.describe(6, 3));
        let report = repair(&image, &what);
        assert!(!report.rebuilt && report.renamed_keyspaces.is_empty(), "{report}\n{what}");
        assert_eq!(report.lost_tables.len(), 1, "{report}\n{what}");
        kept += report.lost_tables[0].entries_kept;
        let db = builder(&image).open().unwrap_or_else(|e| panic!("{e}: {report}\n{what}"));
        assert_eq!(db.keyspaces(), ["default", "other"], "{report}\n{what}");
        let after: BTreeMap<_, _> = db
            .iter()
            .map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())).expect("a pair"))
            .collect();
        let inside = |key: &[u8]| *victim.smallest <= *key && *key <= *victim.largest;
        for (key, value) in before.iter().filter(|(key, _)| !inside(key)) {
            let same = after.get(&key[..]).is_some_and(|v| v[..] == value[..]);
            assert!(same, "{key:?} is outside of the table: {report}\n{what}");
        }
        let inside_before = before.iter().filter(|(key, _)| inside(key)).count();
        let inside_after = after.keys().filter(|key| inside(key)).count();
        assert_eq!(before.len() - inside_before, after.len() - inside_after, "{report}\n{what}");
        removed += 1;
    }
    assert!(removed > 10 && kept > 0, "{removed} tables removed, {kept} entries kept");
}
