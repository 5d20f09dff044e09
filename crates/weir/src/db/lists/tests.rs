//! When lists are looked after, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::base::cursor::Cursor;
use crate::base::ids::KeyspaceId;
use crate::base::key::SEQ_MAX;
use crate::base::sched::sim::Simulation;
use crate::cache::Purpose;
use crate::db::engine::Engine;
use crate::db::lists::{METADATA_DIVISOR, look};
use crate::db::space::EDIT_BYTES_PER_NAME;
use crate::db::space_checks::EDITS_BYTES;
use crate::device::sim::{SimDisk, SimOptions};
use crate::device::site::OpKind;
use crate::device::{FileClass, Mode};
use crate::read::buffered::bare;
use crate::table::{CursorOptions, ReadAhead, Table};
use crate::version::keyspaces::KeyspaceVersion;
use crate::{
    CompactionBuffer, CompactionPolicy, Db, Keyspace, Options, PartsOptions, TrimOptions, Value,
    WarmUp,
};

const BUDGET_BYTES: u64 = 2 << 20;

fn options(buffer: impl Into<CompactionBuffer>) -> Options {
    let levels = PartsOptions::default().base_level_bytes(64 << 10).l0_trigger(1);
    Options::default()
        .write_buffer_bytes(32 << 10)
        .table_bytes(16 << 10)
        .compaction(CompactionPolicy::Gear(levels.expected_bytes(8 << 20)))
        .warm_up(WarmUp::None)
        .compaction_buffer(buffer)
}

fn open(disk: &SimDisk, buffer: impl Into<CompactionBuffer>) -> Db {
    open_cached(disk, buffer, BUDGET_BYTES / 4)
}

fn open_cached(disk: &SimDisk, buffer: impl Into<CompactionBuffer>, cache_bytes: u64) -> Db {
    open_sized(disk, buffer, (BUDGET_BYTES, cache_bytes))
}

fn open_sized(
    disk: &SimDisk,
    buffer: impl Into<CompactionBuffer>,
    (budget_bytes, cache_bytes): (u64, u64),
) -> Db {
    let builder = Db::builder("sim").default_options(options(buffer)).seed(1);
    let builder = builder.memory_budget(budget_bytes).block_cache_bytes(cache_bytes);
    builder.background_threads(1).device(Arc::new(disk.clone())).open().unwrap()
}

/// Bytes of indexes and filters that only lists need, of a keyspace or of all.
fn metadata_bytes(db: &Db, of: Option<&Keyspace>) -> u64 {
    let root = db.handle.engine.set.current();
    let is_meant = |id| of.is_none_or(|keyspace| keyspace.tree.id == id);
    let versions = root.keyspaces.iter().filter(|keyspace| is_meant(keyspace.id));
    let only_listed = versions
        .flat_map(|keyspace| keyspace.version.all_tables().skip(keyspace.version.tables().count()));
    only_listed.map(|table| table.meta().tail_bytes).sum()
}

/// Goal: indexes and filters of all lists together keep to their part of the memory budget, soon
/// after they have outgrown it: not each keyspace's to all of it, and not when residency is looked
/// at next. Method: two keyspaces whose lists keep everything, each for just a part of it.
#[test]
fn the_memory_of_all_lists_is_bounded() {
    Simulation::run(1, |sim| {
        let disk = SimDisk::new(SimOptions::default());
        let budget_bytes = 1 << 20;
        let db = open_sized(&disk, CompactionBuffer::Cascade, (budget_bytes, 0));
        let most = budget_bytes / METADATA_DIVISOR;
        let spaces = ["a", "b"]
            .map(|name| db.keyspace_with(name, options(CompactionBuffer::Cascade)).unwrap());
        let mut most_seen = 0;
        let from = sim.now_nanos();
        for n in 0..60_000_u32 {
            for space in &spaces {
                space.put((n.wrapping_mul(7919) % 60_000).to_be_bytes(), [1; 24]).unwrap();
            }
            if n % 1000 == 999 {
                db.wait_idle().unwrap();
                let each = spaces.each_ref().map(|space| metadata_bytes(&db, Some(space)));
                assert!(each.iter().all(|&bytes| bytes <= most), "{each:?} of {most} bytes");
                most_seen = most_seen.max(each.iter().sum());
            }
            if n % 10_000 == 9999 {
                sim.delay(Duration::from_secs(2));
                let bytes = metadata_bytes(&db, None);
                assert!(bytes <= most, "{bytes} bytes of indexes and filters, not {most}");
            }
        }
        let passed = Duration::from_nanos(sim.now_nanos() - from);
        assert!(passed < Duration::from_secs(25), "{passed:?}: residency was looked at");
        assert!(most_seen > most, "{most_seen} bytes were never more than {most}");
        assert!(metadata_bytes(&db, None) > most / 2, "more was trimmed than was to be");
        db.close().unwrap();
    });
}

/// Goal: a table of a list that is known to be damaged is not read again by every lookup until it
/// is trimmed. Method: without a cache, all that only lists have is overwritten; the first look at
/// a key finds that out, and the second reads what it reads without lists.
#[test]
fn known_damage_is_not_read_again() {
    Simulation::run(1, |_| {
        let disk = SimDisk::new(SimOptions::default());
        let db = open_cached(&disk, CompactionBuffer::Cascade, 0);
        (0..3000_u32).for_each(|n| {
            db.put((n * 7919 % 3000).to_be_bytes(), [n as u8; 100]).unwrap();
        });
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let root = db.handle.engine.set.current();
        let only_listed = root.all_tables().skip(root.tables().count());
        let damaged: Vec<_> = only_listed.map(|table| table.meta().clone()).collect();
        drop(root);
        assert!(damaged.len() > 3, "{} tables in lists", damaged.len());
        for meta in &damaged {
            let name = format!("{:06}.tbl", meta.uid);
            let file = disk.dir().open(&name, FileClass::Table, Mode::ReadWrite).unwrap();
            let data = usize::try_from(meta.bytes - meta.tail_bytes).unwrap();
            file.write_at(&vec![0xa5; data], 0).unwrap();
        }
        let reads = || disk.counters().get(OpKind::Read, FileClass::Table).calls;
        let look = |n: u32| {
            let before = reads();
            let found = db.get(n.to_be_bytes()).unwrap();
            (found.map(|value| value.to_vec()), reads() - before)
        };
        let mut found_out = 0;
        for n in 0..3000 {
            let (first, at_first) = look(n);
            let (second, then) = look(n);
            let (bare, without_lists) = bare::without_lists(|| look(n));
            assert_eq!((&first, &second), (&bare, &bare), "key {n}");
            assert_eq!(then, without_lists, "reads of key {n}, {at_first} at first");
            found_out += at_first - then;
        }
        assert!(found_out > 0, "no damage was met");
        db.close().unwrap();
    });
}

/// A store whose lists keep everything, at rest, with nothing cached.
fn listed_store(disk: &SimDisk) -> Db {
    let db = open(disk, CompactionBuffer::Cascade);
    (0..4000_u32).for_each(|n| db.put((n * 7919 % 4000).to_be_bytes(), value(n)).unwrap());
    db.flush().unwrap();
    db.wait_idle().unwrap();
    cool(&db);
    db
}

fn value(n: u32) -> [u8; 100] {
    let mut value = [0; 100];
    value.iter_mut().zip(0_u32..).for_each(|(byte, i)| *byte = (n * 31 + i * i * 7) as u8);
    value
}

/// The state of the default keyspace.
fn state(db: &Db) -> Arc<KeyspaceVersion> {
    let root = db.handle.engine.set.current();
    Arc::clone(root.keyspaces.get(KeyspaceId::DEFAULT).unwrap())
}

/// Throws all blocks out of the cache.
fn cool(db: &Db) {
    let engine = &db.handle.engine;
    for table in engine.set.current().all_tables() {
        engine.cache.erase_table(table.meta().uid, table.meta().blocks);
    }
}

/// Brings the blocks of a table from this key on into the cache.
fn warm(table: &Arc<Table>, from: &[u8]) {
    let (purpose, readahead) = (Purpose::Foreground, ReadAhead::Scan);
    let mut cursor = table.cursor(CursorOptions { purpose, fill_cache: true, readahead });
    cursor.seek(from, SEQ_MAX);
    while cursor.valid() {
        cursor.next();
    }
    cursor.status().unwrap();
}

/// Goal: a scan goes through a list only where that is known to be warmer than the base, or was
/// not looked at and is kept for its cached blocks; its answer is the same. Method: bytes that a
/// scan reads from the device, with the cache empty but for the lists' tables.
#[test]
fn scans_take_a_list_where_it_is_warmer() {
    Simulation::run(1, |_| {
        let disk = SimDisk::new(SimOptions::default());
        let db = listed_store(&disk);
        let listed: Vec<_> = state(&db).version.listed_tables().cloned().collect();
        let bytes = || disk.counters().get(OpKind::Read, FileClass::Table).bytes;
        let scan = |db: &Db, is_warm: bool| {
            cool(db);
            if is_warm {
                listed.iter().for_each(|table| warm(table, &[]));
            }
            let before = bytes();
            let pair = |pair: crate::Result<(Value, Value)>| {
                let (key, value) = pair.unwrap();
                (key.to_vec(), value.to_vec())
            };
            let found: Vec<_> = db.iter().map(pair).collect();
            assert_eq!(found.len(), 4000);
            (found, bytes() - before)
        };
        // Also opens all tables.
        let (expected, _) = bare::without_lists(|| scan(&db, false));
        let (_, of_base) = bare::without_lists(|| scan(&db, false));
        let read = |db: &Db, is_warm| {
            let (found, bytes) = scan(db, is_warm);
            assert!(found == expected, "a scan differs");
            bytes
        };
        assert_eq!(read(&db, false), of_base, "of lists of which nothing is known");
        cool(&db);
        assert_eq!(look(&state(&db).version, 0, u32::MAX), None);
        assert_eq!(read(&db, false), of_base, "of cold lists");
        cool(&db);
        listed.iter().for_each(|table| warm(table, &[]));
        assert_eq!(look(&state(&db).version, 0, u32::MAX), None);
        let of_warm = read(&db, true);
        assert!(of_warm < of_base / 2, "{of_warm} of {of_base} bytes through warm lists");
        db.close().unwrap();
        let trim = TrimOptions::default().threshold(0.0);
        let db = open(&disk, CompactionBuffer::Cascade);
        db.default_keyspace().set_options(options(trim)).unwrap();
        let _ = (read(&db, false), read(&db, false));
        assert!(read(&db, false) > of_base, "lists that are trimmed are taken to be warm");
        db.close().unwrap();
    });
}

/// Goal: what is known of a listed table is of the part that readers come to: not below the first
/// table of a run that drains, nor under holes. Method: only that part is cached.
#[test]
fn residency_is_that_of_what_is_served() {
    Simulation::run(1, |_| {
        let disk = SimDisk::new(SimOptions::default());
        let db = listed_store(&disk);
        let mut cut = 0;
        for n in 0..4000_u32 {
            db.put((n * 7919 % 4000).to_be_bytes(), value(n + 1)).unwrap();
            if n % 100 != 0 {
                continue;
            }
            db.wait_idle().unwrap();
            let state = state(&db);
            for (_, run, list) in state.version.lists() {
                let edge = &run.tables.get(0).unwrap().0.smallest;
                let mut tables = list.runs().iter().flat_map(|run| run.tables.iter());
                let Some((meta, table)) = tables.find(|(meta, _)| {
                    meta.blocks > 2 && meta.smallest < *edge && *edge < meta.largest
                }) else {
                    continue;
                };
                cool(&db);
                warm(table, edge);
                assert_eq!(look(&state.version, 0, u32::MAX), None);
                let age = list.runs().iter().position(|run| run.tables.find(edge).is_some());
                if list.served(age.unwrap(), edge, &meta.largest).len() != 1 {
                    continue;
                }
                assert_eq!(table.known_residency(), Some(1.0), "of {meta:?} from {edge:?} on");
                cut += 1;
            }
        }
        assert!(cut > 0, "no table was cut by the edge of a run that drains");
        db.close().unwrap();
    });
}

/// Goal: one call looks at some tables only, and the next goes on there; tables leave when all
/// were looked at. Method: the smallest calls, over cold tables that are all to leave.
#[test]
fn a_look_is_made_in_parts() {
    Simulation::run(1, |sim| {
        let disk = SimDisk::new(SimOptions::default());
        let db = listed_store(&disk);
        let trim = TrimOptions::default().threshold(1.0).interval(Duration::from_secs(3600));
        db.default_keyspace().set_options(options(trim)).unwrap();
        let engine = &db.handle.engine;
        let trimmed = || db.metrics().tables_trimmed;
        let known = || {
            let state = state(&db);
            let tables = state.version.listed_tables();
            tables.filter(|table| table.known_residency().is_some()).count()
        };
        let tables = state(&db).version.listed_tables().count();
        let before = (known(), trimmed());
        assert_eq!(before, (0, 0), "nobody has looked");
        let is_due = |now| engine.jobs.state.lock().lists[&KeyspaceId::DEFAULT].at <= now;
        let mut calls = 0;
        sim.delay(Duration::from_secs(1));
        let now = sim.now_nanos();
        engine.jobs.state.lock().lists.get_mut(&KeyspaceId::DEFAULT).unwrap().at = now;
        while is_due(now) {
            assert_eq!(trimmed(), 0, "tables leave in the middle of a look");
            let before = known();
            engine.look_at_lists(KeyspaceId::DEFAULT, now, 1);
            calls += 1;
            assert!(trimmed() > 0 || known() <= before + 1, "two tables in one call");
        }
        assert!(calls > tables, "{calls} calls for {tables} tables");
        assert!(trimmed() > 0, "no table has left");
        db.close().unwrap();
    });
}

/// Goal: what is kept back for the version log covers a base of it, which names a table of the tree
/// and of a list twice. Method: long ascending keys, whose tables move down as they are; an opening
/// writes a base.
#[test]
fn room_is_kept_for_all_that_a_base_names() {
    Simulation::run(1, |_| {
        let disk = SimDisk::new(SimOptions::default());
        let all_stay = TrimOptions::default().threshold(0.0);
        let db = open(&disk, all_stay);
        for n in 0..20_000_u32 {
            db.put([&[b'k'; 96][..], &n.to_be_bytes()].concat(), value(n)).unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        db.close().unwrap();
        let db = open(&disk, all_stay);
        let root = db.handle.engine.set.current();
        let name = disk.dir().list().unwrap().into_iter().find(|name| name.contains("versions-"));
        let file = disk.dir().open(&name.unwrap(), FileClass::Versions, Mode::Read).unwrap();
        let base = file.len().unwrap();
        let (tables, all) = (root.tables().count(), root.all_tables().count());
        let (listed, holes) = state(&db).version.list_counts();
        let edits = EDITS_BYTES + EDIT_BYTES_PER_NAME * listed as u64;
        let kept = Engine::versions_need(&root).versions - edits;
        assert!(tables + listed > all * 3 / 2, "{tables} and {listed} of {all}, {holes} holes");
        assert!(kept >= base, "{kept} bytes for {base}: {tables} and {listed} of {all} tables");
        db.close().unwrap();
    });
}

/// Goal: a store that was just opened, whose cache is empty, keeps its lists for an interval, in
/// which they may warm up (H16); then what nobody has read goes. Method: lists that were not
/// looked at yet, because they began less than an interval before the store was closed.
#[test]
fn nothing_is_trimmed_in_the_first_interval_after_an_opening() {
    Simulation::run(1, |sim| {
        let disk = SimDisk::new(SimOptions::default());
        let trimmed = TrimOptions::default().interval(Duration::from_secs(100));
        let db = open(&disk, trimmed);
        for round in 0..2_u32 {
            (0..4000_u32).for_each(|n| {
                db.put((n * 7919 % 4000).to_be_bytes(), value(n + round)).unwrap();
            });
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let listed = |db: &Db| state(db).version.listed_tables().count();
        let before = listed(&db);
        assert!(before > 4, "{before} tables in lists");
        sim.delay(Duration::from_secs(50));
        db.close().unwrap();
        let db = open(&disk, trimmed);
        sim.delay(Duration::from_secs(95));
        assert_eq!(listed(&db), before, "trimmed {} s after the opening", 95);
        sim.delay(Duration::from_secs(10));
        assert!(listed(&db) < before, "cold tables are kept");
        db.close().unwrap();
    });
}
