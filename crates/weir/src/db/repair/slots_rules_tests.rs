//! Rules of repairs in slots that show only where something else goes wrong as well: a disk that is
//! cut off and full, or a second repair after the first.

use std::sync::Arc;

use super::slots_space_tests::full_for;
use super::slots_tests::{
    HALF, HALVES, NAME, PAGE, builder, contents, formatted, from_trailers, into, lose_versions,
    overwrite, store,
};
use crate::base::error::ErrorKind;
use crate::base::ids::segment;
use crate::db::repair::RepairReport;
use crate::db::{Builder, Db};
use crate::device::faulty::{Effect, ErrorCode, Fault, FaultyDir, Times};
use crate::device::sim::SimDisk;
use crate::device::sim::crash::CrashPolicy;
use crate::device::site::OpKind;
use crate::device::{FileClass, Mode};
use crate::options::{Compression, Options, SentinelOptions};
use crate::storage::io::IoCounters;
use crate::storage::open::Location;
use crate::storage::{LogKind, OpenOptions};

const BYTES: u64 = 32 << 20;
/// Where the write-ahead log begins in a file of so many bytes, and the slots.
const LOG: u64 = HALVES[1] + HALF;
const SLOTS: u64 = 6 << 20;
const SLOT: u64 = 64 << 10;

fn file_of(disk: &SimDisk) -> Arc<dyn crate::device::File> {
    disk.dir().open(NAME, FileClass::Other, Mode::ReadWrite).expect("there")
}

/// Cuts some of the last slot off, in which there is nothing.
fn cut_off(disk: &SimDisk) -> u64 {
    file_of(disk).set_len(BYTES - 100).expect("cut off");
    BYTES - 100
}

/// A builder of the store over a disk with a fault.
fn over(disk: &SimDisk, fault: Fault) -> Builder {
    let faulty = FaultyDir::over_disk(disk);
    faulty.faults().arm(fault);
    Db::builder("simulated").device(Arc::new(faulty)).device_file(NAME).seed(7)
}

/// Loses both superblocks.
fn lose_superblocks(disk: &SimDisk) {
    for at in [0, 1 << 20] {
        overwrite(disk, at, &[0; PAGE as usize]);
    }
}

/// Where the slots begin that have been written to.
fn written_slots(disk: &SimDisk) -> Vec<u64> {
    let bytes = disk.read_all(NAME).expect("read");
    let is_written = |at: &u64| bytes[*at as usize..][..64].iter().any(|&byte| byte != 0);
    (SLOTS..bytes.len() as u64).step_by(SLOT as usize).filter(is_written).collect()
}

/// Damages the first block of each slot that has been written to.
fn damage_tables(disk: &SimDisk) {
    for slot in written_slots(disk) {
        overwrite(disk, slot + 30, &[0xff; 8]);
    }
}

/// A closed store of keyspaces of 200 values of so many bytes, which have a table each.
fn tables_of(keyspaces: &[(&str, usize)]) -> SimDisk {
    let disk = formatted(BYTES);
    let db = builder(&disk).open().expect("opens");
    for &(name, bytes) in keyspaces {
        let options = Options { block_bytes: 512, ..Options::default() };
        let options = options.compression([Compression::None]);
        let keyspace = db.keyspace_with(name, options).expect("created");
        for i in 0..200u32 {
            keyspace.put(i.to_be_bytes(), vec![1; bytes]).expect("put");
        }
        // One after the other, so that tables lie in this order.
        keyspace.flush().expect("flushed");
    }
    db.close().expect("closed");
    disk
}

/// A store of two tables, with the first block of each damaged.
fn two_damaged() -> SimDisk {
    let disk = tables_of(&[("one", 100), ("two", 100)]);
    damage_tables(&disk);
    disk
}

/// Goal: a write-ahead log that a later opening has begun tells that its version log is lost, where
/// no table does. Method: two openings, the second one without a flush; its half filled with zeros,
/// as if it had never been used.
#[test]
fn the_log_tells_of_a_later_opening() {
    let disk = formatted(BYTES);
    let db = builder(&disk).open().expect("opens");
    db.put("a", "value").expect("put");
    db.close().expect("closed");
    let db = builder(&disk).open().expect("opens");
    db.put("b", "value").expect("put");
    let killed = disk.copy();
    db.close().expect("closed");
    assert_eq!(contents(&killed.copy()).len(), 2);
    lose_superblocks(&killed);
    overwrite(&killed, HALVES[1], &vec![0; HALF as usize]);
    let refused = builder(&killed).repair().expect_err("its log is not the newest one");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("later opening"), "{refused}");
}

/// Goal: what a repair wrote that came to its end is a part of the store for the next one, also if
/// both superblocks are lost in between: the head of the version log tells of the generation at
/// which that repair began. Method: a repair by trailers, and another one after that loss, when all
/// that the first one was made of is blank.
#[test]
fn tables_of_a_repair_outlive_superblocks() {
    let disk = store();
    lose_versions(&disk);
    let of_store = written_slots(&disk);
    from_trailers(&disk).expect("asked for");
    let repaired = contents(&disk.copy());
    for slot in of_store {
        overwrite(&disk, slot, &[0; SLOT as usize]);
    }
    overwrite(&disk, LOG, &vec![0; (SLOTS - LOG) as usize]);
    lose_superblocks(&disk);
    for half in HALVES {
        overwrite(&disk, half + PAGE, &vec![0xff; (HALF - PAGE) as usize]);
    }
    let report = from_trailers(&disk).expect("asked for");
    assert!(report.lost_tables.is_empty(), "{report}");
    assert_eq!(contents(&disk), repaired);
}

/// Goal: a repair that refuses leaves a file that was cut off as short as it was, so that the next
/// one knows, whichever step refuses. Method: a version log and tables that are damaged, and a
/// directory without room for copies; reads that fail; slots without room.
#[test]
fn a_refused_repair_shortens_again() {
    let mut refused = [0; 3];
    let mut refuses = |step: usize, disk: &SimDisk, cut: u64, builder: Builder| {
        let Err(error) = builder.repair() else { return };
        assert_eq!(file_of(disk).len().expect("asked"), cut, "step {step}: {error}");
        refused[step] += 1;
    };
    let sound = store();
    for page in 2..8 {
        let disk = sound.copy();
        overwrite(&disk, HALVES[1] + page * PAGE, &[0xff; 40]);
        let cut = cut_off(&disk);
        refuses(0, &disk, cut, full_for(&disk, FileClass::Other, 0));
    }
    for after in 0..1200 {
        let disk = sound.copy();
        let cut = cut_off(&disk);
        let (op, class) = (Some(OpKind::Read), Some(FileClass::Table));
        let effect = Effect::Fail(ErrorCode::Eio);
        refuses(1, &disk, cut, over(&disk, Fault { op, class, after, times: Times::Once, effect }));
    }
    let disk = two_damaged();
    let cut = cut_off(&disk);
    refuses(2, &disk, cut, full_for(&disk, FileClass::Table, 0));
    assert!(refused.iter().all(|&count| count > 0), "{refused:?}");
}

/// Goal: a file that a file system has made longer before it found no room is as short as it was.
#[test]
fn a_file_that_cannot_be_lengthened_stays_as_it_was() {
    let disk = store();
    let cut = cut_off(&disk);
    let (op, class) = (Some(OpKind::Allocate), None);
    let effect = Effect::FailButDone(ErrorCode::Enospc);
    let fault = Fault { op, class, after: 0, times: Times::Once, effect };
    let refused = over(&disk, fault).repair().expect_err("no room");
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    assert_eq!(file_of(&disk).len().expect("asked"), cut);
    assert_eq!(builder(&disk).repair().expect("repaired").lengthened_bytes, 100);
}

/// Goal: once a part of a repair counts, the file keeps its length: its tables may lie there.
/// Method: damaged tables and a cut file, on a device that is full after each write.
#[test]
fn a_repair_in_part_leaves_the_file_whole() {
    let mut in_part = 0;
    let damaged = two_damaged();
    for after in 0..8 {
        let disk = damaged.copy();
        let cut = cut_off(&disk);
        let repaired = full_for(&disk, FileClass::Table, after).repair();
        let bytes = file_of(&disk).len().expect("asked");
        match repaired {
            Ok(report) => {
                in_part += usize::from(report.unfinished.is_some());
                assert_eq!(bytes, BYTES, "{report}");
            }
            Err(error) => assert_eq!(bytes, cut, "{error}"),
        }
    }
    assert!(in_part > 0, "every repair was whole, or refused");
}

/// Goal: a store that is only read for a tree elsewhere keeps what lies in it, also what a repair
/// in its place would set aside, and its length. Method: a segment under a number that the store
/// cannot have reached, and a cut file.
#[test]
fn a_tree_elsewhere_changes_nothing_here() {
    let disk = store();
    let options = OpenOptions { create: false, read_only: false };
    let place = Location::File(disk.dir(), NAME.into());
    let storage = place.open(options, false, &Arc::new(IoCounters::default())).expect("opens");
    let log = storage.create_log(LogKind::Wal, segment(1 << 50), 0).expect("created");
    log.write_at(&[b"something"], 0).expect("written");
    log.sync().expect("synced");
    storage.unlock();
    cut_off(&disk);
    lose_versions(&disk);
    let before = disk.read_all(NAME);
    let elsewhere = SimDisk::default();
    let report = into(&disk, Location::Dir(elsewhere.dir())).expect("asked for");
    assert!(report.rebuilt_into.is_some() && report.kept_files.is_empty(), "{report}");
    assert!(disk.read_all(NAME) == before, "it was changed");
    let here = from_trailers(&disk).expect("asked for");
    assert!(here.lengthened_bytes == 100 && !here.kept_files.is_empty(), "{here}");
}

/// How many parts of tables lie in the slots that belong to none, or say that they are one that is
/// there.
fn fragments(disk: &SimDisk) -> u64 {
    let damaged = Location::File(disk.dir(), NAME.into()).open_damaged(None).expect("opens");
    let written = damaged.written_tables().expect("read");
    damaged.unlock();
    written.fragments
}

/// A repair that is told once that there is no room, at its `after`th write of a table.
fn hindered(disk: &SimDisk, after: u64) -> RepairReport {
    let (op, class) = (Some(OpKind::Write), Some(FileClass::Table));
    let effect = Effect::Fail(ErrorCode::Enospc);
    let fault = Fault { op, class, after, times: Times::Once, effect };
    match over(disk, fault).repair() {
        Ok(report) if report.unfinished.is_none() => report,
        _ => builder(disk).repair().expect("there is room"),
    }
}

/// Goal: what a repair in several steps has written that came to nothing keeps its uids: no other
/// table gets one, by which trailers would tell of two. Method: a table of which several are made,
/// since it was written before tables were to be small, and a write of each of them that finds no
/// room, after one that was replaced.
#[test]
fn a_repair_gives_no_uid_twice() {
    let disk = formatted(BYTES);
    let fill = |options: Options, keyspace: &str, disk: &SimDisk| {
        let db = builder(disk).open().expect("opens");
        let keyspace = db.keyspace_with(keyspace, options.clone()).expect("created");
        keyspace.set_options(options).expect("set");
        if keyspace.iter().next().is_none() {
            for i in 0..400u32 {
                keyspace.put(i.to_be_bytes(), vec![i as u8; 1000]).expect("put");
            }
        }
        db.flush().expect("flushed");
        db.close().expect("closed");
    };
    let of = |table_bytes| Options { table_bytes, ..Options::default() };
    fill(of(64 << 10), "before", &disk);
    fill(of(4 << 20), "large", &disk);
    fill(of(64 << 10), "large", &disk);
    damage_tables(&disk);
    assert_eq!(fragments(&disk), 0);
    for after in 0..40 {
        let disk = disk.copy();
        hindered(&disk, after);
        assert_eq!(fragments(&disk), 0, "after {after}");
        contents(&disk);
    }
}

/// Goal: uids of a repair that was cut off are not given out again either (H70): what it wrote is
/// told by trailers alone. Method: a power cut at each change of a repair that keeps the structure;
/// then the first table, which is large, is sound again, as from a backup: the next repair writes
/// the others to where that one was copied, and its end stays. No two ends of tables say the same.
#[test]
fn a_repair_after_one_that_was_cut_off_gives_other_uids() {
    let sound = tables_of(&[("one", 800), ("two", 100), ("three", 100)]);
    let (bytes, slots) = (sound.read_all(NAME).expect("read"), written_slots(&sound));
    let disk = sound.copy();
    damage_tables(&disk);
    let disk = disk.recorded();
    builder(&disk).repair().expect("repaired");
    let mut replayer = disk.replayer();
    for boundary in 0..=replayer.len() {
        replayer.go_to(boundary);
        for healed in [&slots[..slots.len() - 2], &[]] {
            let image = replayer.image(CrashPolicy::All, boundary as u64);
            for &slot in healed {
                overwrite(&image, slot + 30, &bytes[slot as usize + 30..][..8]);
            }
            builder(&image).repair().expect("repaired");
            assert_eq!(fragments(&image), 0, "{healed:?}, {}", replayer.describe(6, 3));
            let db = builder(&image).open().expect("opens");
            for name in ["one", "two", "three"] {
                let keyspace = db.keyspace(name).expect("there");
                assert!(keyspace.iter().all(|entry| entry.is_ok()), "{name}");
            }
            db.close().expect("closed");
        }
    }
}

/// Goal: a table of a sentinel is replaced before the tables that hide what it has lost, which
/// replaces them without that. Method: both damaged; a write that finds no room, so that they are
/// replaced one after the other.
#[test]
fn a_sentinel_is_replaced_before_what_it_hides() {
    let disk = formatted(BYTES);
    let db = builder(&disk).open().expect("opens");
    let keyspace = db.default_keyspace();
    let mut on = keyspace.options().sentinels(SentinelOptions::default());
    on.block_bytes = 512;
    keyspace.set_options(on).expect("set");
    let key = |i: u32| format!("key {i:04}");
    for i in 0..1000u32 {
        keyspace.put(key(i), format!("old {i}")).expect("put");
    }
    db.flush().expect("flushed");
    db.compact_range(..).expect("merged");
    for i in (0..1000u32).step_by(3) {
        keyspace.put(key(i), format!("new {i}")).expect("put");
    }
    db.flush().expect("flushed");
    let range = b"key 0200".to_vec()..b"key 0240".to_vec();
    assert!(keyspace.build_sentinel(range.clone()).expect("built"));
    db.close().expect("closed");
    let hidden = |disk: &SimDisk| {
        let all = contents(&disk.copy()).into_iter();
        all.filter(|(key, _)| range.contains(key)).collect::<Vec<_>>()
    };
    let before = hidden(&disk);
    assert_eq!(before.len(), 40);
    damage_tables(&disk);
    for after in 0..12 {
        let disk = disk.copy();
        let report = hindered(&disk, after);
        assert!(hidden(&disk) == before, "after {after}: {report}");
    }
}

/// Copies the superblocks of one disk over those of another.
fn copy_superblocks(from: &SimDisk, to: &SimDisk, places: &[u64]) {
    let bytes = from.read_all(NAME).expect("read");
    for &at in places {
        overwrite(to, at, &bytes[at as usize..][..PAGE as usize]);
    }
}

const SUPERBLOCKS: [u64; 2] = [0, 1 << 20];

/// Goal: superblocks of another store of the same geometry, of which a part was copied over them,
/// are none: the version log counts, not an older one that lies where they say. Method: both, after
/// which an opening and a repair without a wish for it change nothing but what the repair tells.
#[test]
fn another_store_s_superblocks_are_none() {
    let (disk, alien) = (store(), formatted(BYTES));
    builder(&alien).open().and_then(|db| db.close()).expect("opened once");
    let all = contents(&disk.copy());
    copy_superblocks(&alien, &disk, &SUPERBLOCKS);
    let before = disk.read_all(NAME);
    let refused = builder(&disk).open().map(drop).expect_err("another store's");
    assert_eq!(refused.kind(), ErrorKind::Corruption, "{refused}");
    assert!(refused.to_string().contains("weir repair"), "{refused}");
    assert!(disk.read_all(NAME) == before, "a refused opening has written");
    let report = builder(&disk).repair().expect("repaired");
    assert!(report.unnamed && report.lost_data() && report.lost_tables.is_empty(), "{report}");
    assert!(contents(&disk) == all, "{report}");
}

/// Goal: one superblock of another store costs nothing: the heads of the version log tell which one
/// is the store's. An opening refuses, and says that a repair helps. Method: each of the two.
#[test]
fn one_superblock_of_another_store_costs_nothing() {
    let alien = formatted(BYTES);
    builder(&alien).open().and_then(|db| db.close()).expect("opened once");
    for place in SUPERBLOCKS {
        let disk = store();
        let all = contents(&disk.copy());
        copy_superblocks(&alien, &disk, &[place]);
        let refused = builder(&disk).open().map(drop).expect_err("two stores");
        assert_eq!(refused.kind(), ErrorKind::Corruption, "{refused}");
        let report = builder(&disk).repair().expect("repaired");
        assert!(report.superblock_restored && !report.lost_data(), "{report}");
        assert!(builder(&disk).repair().expect("sound").healthy);
        assert!(contents(&disk) == all, "{report}");
    }
}

/// Goal: a damaged superblock is told by whoever looks, and a repair makes it whole. Method: each.
#[test]
fn a_damaged_superblock_is_told_and_restored() {
    for place in SUPERBLOCKS {
        let disk = store();
        overwrite(&disk, place, &[0; PAGE as usize]);
        let db = builder(&disk).read_only(true).open().expect("opens");
        assert_eq!(db.slot_space().expect("in slots").superblocks, 1);
        db.close().expect("closed");
        let report = builder(&disk).repair().expect("repaired");
        assert!(report.superblock_restored && !report.healthy && !report.lost_data(), "{report}");
        assert!(builder(&disk).repair().expect("sound").healthy);
        let db = builder(&disk).read_only(true).open().expect("opens");
        assert_eq!(db.slot_space().expect("in slots").superblocks, 2);
        db.close().expect("closed");
    }
}

/// Goal: superblocks that are older than the version log, as half a backup leaves them, take
/// nothing back: an opening refuses them and changes nothing, and a repair takes the newer log.
/// Method: those of an opening before, of one that has flushed, and of a file that was formatted.
#[test]
fn superblocks_of_an_earlier_opening_take_nothing_back() {
    let disk = formatted(BYTES);
    let mut earlier = vec![disk.copy()];
    for round in 0..3u8 {
        let db = builder(&disk).open().expect("opens");
        for i in 0..200u32 {
            db.put(i.to_be_bytes(), [round; 100]).expect("put");
        }
        db.flush().expect("flushed");
        db.delete(u32::from(round).to_be_bytes()).expect("deleted");
        db.close().expect("closed");
        earlier.push(disk.copy());
    }
    earlier.pop();
    let all = contents(&disk.copy());
    for (age, old) in earlier.iter().enumerate() {
        let disk = disk.copy();
        copy_superblocks(old, &disk, &SUPERBLOCKS);
        let before = disk.read_all(NAME);
        let refused = builder(&disk).open().map(drop).expect_err("older than the log");
        assert_eq!(refused.kind(), ErrorKind::Corruption, "{age}: {refused}");
        assert!(disk.read_all(NAME) == before, "{age}: a refused opening has written");
        let report = builder(&disk).repair().expect("repaired");
        assert!(report.unnamed && report.lost_tables.is_empty(), "{age}: {report}");
        assert!(contents(&disk) == all, "{age}: {report}");
    }
}

/// Goal: a store that was formatted and never opened has nothing to repair, and says so.
#[test]
fn what_was_never_opened_is_not_repaired() {
    let disk = formatted(BYTES);
    for repaired in [builder(&disk).repair(), from_trailers(&disk)] {
        let refused = repaired.expect_err("nothing to repair");
        assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
        assert!(refused.to_string().contains("never opened"), "{refused}");
    }
}
