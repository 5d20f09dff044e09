//! When lists are looked after, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::base::sched::sim::Simulation;
use crate::db::lists::METADATA_DIVISOR;
use crate::device::sim::{SimDisk, SimOptions};
use crate::device::site::OpKind;
use crate::device::{FileClass, Mode};
use crate::read::buffered::bare;
use crate::{CompactionBuffer, CompactionPolicy, Db, Keyspace, Options, PartsOptions, WarmUp};

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
