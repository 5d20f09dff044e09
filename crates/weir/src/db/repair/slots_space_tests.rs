//! Repair of stores in slots that have little room, for what they write or for copies.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::slots_tests::{
    HALVES, NAME, PAGE, builder, contents, formatted, from_trailers, lose_versions, overwrite,
    store,
};
use crate::base::error::ErrorKind;
use crate::base::prng::Prng;
use crate::db::repair::{RepairOptions, RepairReport};
use crate::db::{Builder, Db};
use crate::device::faulty::{Effect, ErrorCode, Fault, FaultyDir, Times};
use crate::device::sim::SimDisk;
use crate::device::site::OpKind;
use crate::device::{FileClass, Mode};
use crate::options::{CompactionPolicy, LeveledOptions, Options};

/// A builder of the store whose disk has no room for writes of a class, but for the first `after`.
pub(super) fn full_for(disk: &SimDisk, class: FileClass, after: u64) -> Builder {
    let faulty = FaultyDir::over_disk(disk);
    let (op, class) = (Some(OpKind::Write), Some(class));
    let effect = Effect::Fail(ErrorCode::Enospc);
    faulty.faults().arm(Fault { op, class, after, times: Times::Forever, effect });
    Db::builder("simulated").device(Arc::new(faulty)).device_file(NAME).seed(7)
}

/// A store that is nearly full of random values, its keys, and how many slots are free; a block is
/// damaged of each slot that was written to.
fn full_and_damaged() -> (SimDisk, Vec<Vec<u8>>, u64) {
    const SLOTS: u64 = 6 << 20;
    let disk = formatted(32 << 20);
    let mut options = Options::default();
    (options.write_buffer_bytes, options.table_bytes) = (128 << 10, 64 << 10);
    let levels = LeveledOptions::default().base_level_bytes(1 << 20);
    options.compaction = CompactionPolicy::Leveled(levels);
    let db = builder(&disk).default_options(options).open().expect("opens");
    let (mut prng, mut keys) = (Prng::new(5), Vec::new());
    let refused = loop {
        let mut value = vec![0; 1000];
        value.iter_mut().for_each(|byte| *byte = prng.below(256) as u8);
        let key = (keys.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        match db.put(key, &value) {
            Ok(_) => keys.push(key.to_vec()),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    db.flush().expect("flushed");
    let free = db.slot_space().expect("in slots").free;
    db.close().expect("closed");
    let file = disk.read_all(NAME).expect("read");
    for slot in (SLOTS..file.len() as u64).step_by(64 << 10) {
        if file[slot as usize..][..64].iter().any(|&byte| byte != 0) {
            overwrite(&disk, slot + 5000, &[0xff; 8]);
        }
    }
    (disk, keys, free)
}

/// Goal: a store that is nearly full, and has more damaged tables than free slots, is repaired,
/// with all that can be read of them. Method: every key is there, or between two of which a report
/// says that something is lost.
#[test]
fn a_full_store_is_repaired_table_by_table() {
    let (disk, keys, free) = full_and_damaged();
    let report = builder(&disk).repair().expect("repaired");
    assert!(report.unfinished.is_none(), "{report}");
    assert!(report.lost_tables.len() as u64 > free, "{free} slots were free: {report}");
    let ranges = || report.lost_tables.iter().flat_map(|table| &table.lost_ranges);
    let found = contents(&disk);
    for key in keys.iter().filter(|key| !found.contains_key(*key)) {
        assert!(ranges().any(|(first, last)| first <= key && key <= last), "{key:?}");
    }
    assert!(found.len() > keys.len() / 2, "{} of {}", found.len(), keys.len());
    assert!(builder(&disk).repair().expect("sound").lost_tables.is_empty());
}

/// Goal: where a later step finds no room, what was given up before it is told, and another repair
/// goes on. Method: a device that is full after some tables.
#[test]
fn a_repair_in_part_tells_what_it_did() {
    let (disk, keys, _) = full_and_damaged();
    let faulty = full_for(&disk, FileClass::Table, 100);
    let first = faulty.repair().expect("a part is done");
    assert!(first.unfinished.is_some() && first.lost_data(), "{first}");
    assert!(!first.lost_tables.is_empty() && first.to_string().contains("in part"), "{first}");
    let second = builder(&disk).repair().expect("there is room");
    assert!(second.unfinished.is_none() && !second.lost_tables.is_empty(), "{second}");
    let ranges: Vec<_> = [&first, &second]
        .into_iter()
        .flat_map(|report| report.lost_tables.iter().flat_map(|table| &table.lost_ranges))
        .collect();
    let found = contents(&disk);
    for key in keys.iter().filter(|key| !found.contains_key(*key)) {
        assert!(ranges.iter().any(|(first, last)| first <= key && key <= last), "{key:?}");
    }
}

/// Goal: a repair of lost superblocks that ends with an error changes nothing, so that the next one
/// tells of the loss, too. Method: no room for copies.
#[test]
fn a_refused_repair_of_lost_superblocks_leaves_them_lost() {
    let disk = store();
    for at in [0, 1 << 20] {
        overwrite(&disk, at, &[0; PAGE as usize]);
    }
    let before = disk.read_all(NAME);
    let faulty = full_for(&disk, FileClass::Other, 0);
    let refused = faulty.repair().expect_err("no room for copies");
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    assert!(disk.read_all(NAME) == before, "a refused repair has written");
    let report = builder(&disk).repair().expect("repaired");
    assert!(report.unnamed && report.lost_data(), "{report}");
}

/// Goal: a rebuild that finds no room leaves a file that was cut off as short as it was, so that
/// the next one knows that it was, and says what copies it has made. Method: the end of a free
/// slot, and a device that is full after some writes.
#[test]
fn a_rebuild_without_room_shortens_again() {
    let disk = store();
    lose_versions(&disk);
    let cut = (32 << 20) - 100;
    let file = disk.dir().open(NAME, FileClass::Other, Mode::ReadWrite).expect("there");
    file.set_len(cut).expect("cut off");
    let builder = full_for(&disk, FileClass::Table, 1);
    let repaired = builder.repair_with(RepairOptions::default().from_trailers(true));
    let error = repaired.expect_err("the device is full");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let names = disk.dir().list().expect("listed");
    let copies: Vec<&String> = names.iter().filter(|name| *name != NAME).collect();
    assert!(!copies.is_empty(), "{names:?}");
    for copy in copies {
        assert!(error.to_string().contains(copy), "{copy} is left, and not in: {error}");
    }
    assert_eq!(file.len().expect("asked"), cut, "it was left longer");
    let report = from_trailers(&disk).expect("there is room");
    assert_eq!(report.lengthened_bytes, 100, "{report}");
    assert!(contents(&disk).len() >= 100);
}

/// Goal: a repair whose copies find no room ends before it gives up what they would keep, and says
/// where there is a place for them; once there is room it goes on. Method: damaged tables, and each
/// page of a version log, with a directory that is full from the start or after some writes.
#[test]
fn a_repair_whose_copies_find_no_room_ends() {
    const SLOTS: u64 = 6 << 20;
    let (mut refused, all) = (0, store().read_all(NAME).expect("read"));
    for (page, after) in (0..8).flat_map(|page| [(page, 0), (page, 1)]) {
        let disk = store();
        match page {
            0 | 1 => {
                for slot in (SLOTS..all.len() as u64).step_by(64 << 10) {
                    overwrite(&disk, slot + 3000, &[0xff; 40]);
                }
            }
            _ => overwrite(&disk, HALVES[1] + page * PAGE, &[0xff; 40]),
        }
        let faulty = full_for(&disk, FileClass::Other, after);
        let ended = faulty.repair();
        let names = disk.dir().list().expect("listed");
        match ended {
            Ok(report) => assert!(report.kept_files.len() < names.len(), "{page}: {report}"),
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                assert!(error.to_string().contains("--keep-in"), "{page}: {error}");
                refused += 1;
                let report = builder(&disk).repair().expect("there is room");
                assert!(!report.kept_files.is_empty(), "{page}: {report}");
                contents(&disk);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{page}: {error}"),
        }
    }
    assert!(refused > 3, "{refused} repairs found no room");
}

/// Goal: each table that is given up is told by one report: a step that fails has given up none.
/// Method: a repair of many steps whose copies find no room after some writes, and another one.
#[test]
fn a_table_is_given_up_once() {
    let (damaged, _, _) = full_and_damaged();
    let mut in_part = 0;
    for after in [80, 110, 150, 200] {
        let disk = damaged.copy();
        let Ok(first) = full_for(&disk, FileClass::Other, after).repair() else { continue };
        in_part += usize::from(first.unfinished.is_some() && !first.lost_tables.is_empty());
        let second = builder(&disk).repair().expect("there is room");
        let uids = |report: &RepairReport| -> BTreeSet<u64> {
            report.lost_tables.iter().map(|table| table.uid).collect()
        };
        let both: Vec<u64> = uids(&first).intersection(&uids(&second)).copied().collect();
        assert!(both.is_empty(), "after {after}: {both:?}");
    }
    assert!(in_part > 0, "no repair was done in part");
}
