//! Repair of stores in slots, where nothing but the version log tells which tables live.

use std::collections::BTreeMap;

use crate::base::error::ErrorKind;
use crate::db::{Builder, Db};
use crate::device::sim::SimDisk;
use crate::device::{FileClass, Mode};
use crate::storage::open::format_in;
use crate::storage::slots::FormatOptions;

const NAME: &str = "store.weir";
/// Where the halves of the version log begin in a file of 32 MiB.
const HALVES: [u64; 2] = [2 << 20, 3 << 20];
const PAGE: u64 = 4096;

fn builder(disk: &SimDisk) -> Builder {
    Db::builder("simulated").device(disk.dir()).device_file(NAME).seed(7)
}

fn contents(disk: &SimDisk) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let db = builder(disk).open().expect("opens");
    assert!(db.verify().expect("verified").damages.is_empty());
    let pairs = db.iter().map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())).expect("a pair"));
    let pairs = pairs.collect();
    db.close().expect("closed");
    pairs
}

/// A closed store of two openings: keys, and the deletes of every second one, merged with them. Its
/// version log is in the second half, that of the first opening in the first one.
fn store() -> SimDisk {
    let disk = SimDisk::default();
    let options = FormatOptions { slot_bytes: Some(64 << 10), ..FormatOptions::default() };
    format_in(&disk.dir(), NAME, 32 << 20, &options).expect("formatted");
    let db = builder(&disk).open().expect("opens");
    for i in 0..200u32 {
        db.put(i.to_be_bytes(), [1; 100]).expect("put");
    }
    db.flush().expect("flushed");
    db.close().expect("closed");
    let db = builder(&disk).open().expect("opens");
    for i in (0..200u32).step_by(2) {
        db.delete(i.to_be_bytes()).expect("deleted");
    }
    db.flush().expect("flushed");
    db.compact_range(..).expect("compacted");
    db.close().expect("closed");
    disk
}

fn overwrite(disk: &SimDisk, at: u64, bytes: &[u8]) {
    let file = disk.dir().open(NAME, FileClass::Other, Mode::ReadWrite).expect("there");
    file.write_at(bytes, at).expect("written");
    file.sync().expect("synced");
}

/// Goal: a store whose version log is lost is not taken back, silently, to that of the opening
/// before, which lies in the other half: its tables may all be sound still. The repair is refused,
/// and changes nothing. Method: the base is damaged, where deletes came after the first opening.
#[test]
fn an_older_version_log_is_not_used() {
    let disk = store();
    overwrite(&disk, HALVES[1] + PAGE + 100, &[0xff; 1000]);
    let before = disk.read_all(NAME).expect("read");
    let opened = builder(&disk).open().map(drop).expect_err("damaged");
    assert_eq!(opened.kind(), ErrorKind::Corruption, "{opened}");
    let refused = builder(&disk).repair().expect_err("only the older log is sound");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("restore a copy"), "{refused}");
    assert!(disk.read_all(NAME).expect("read") == before, "a refused repair has written");
}

/// Goal: the head of the half in use is not needed: the superblock says which log is there.
#[test]
fn a_damaged_head_of_the_version_log_costs_nothing() {
    let disk = store();
    overwrite(&disk, HALVES[1], &[0xff; PAGE as usize]);
    assert_eq!(contents(&disk).len(), 100);
    // That has begun a log in the other half.
    overwrite(&disk, HALVES[0], &[0xff; PAGE as usize]);
    let report = builder(&disk).repair().expect("sound");
    assert!(report.healthy, "{report}");
    assert_eq!(contents(&disk).len(), 100);
}

/// Goal: a version log that has lost its end makes a loss of what comes of the repair, also where
/// all tables of the rest are sound. Method: each page of edits is damaged that is not the last.
#[test]
fn lost_edits_are_a_loss() {
    let (mut repaired, sound) = (0, store());
    let all = sound.read_all(NAME).expect("read");
    let half = &all[HALVES[1] as usize..(HALVES[1] + (1 << 20)) as usize];
    let end = half.iter().rposition(|&byte| byte != 0).expect("a log") as u64;
    for page in 2..end / PAGE {
        let disk = store();
        overwrite(&disk, HALVES[1] + page * PAGE, &[0xff; 40]);
        match builder(&disk).repair() {
            Ok(report) => {
                assert!(report.rolled_back && report.lost_data(), "page {page}: {report}");
                assert!(report.to_string().contains("an earlier one"), "{report}");
                contents(&disk);
                repaired += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "page {page}: {error}"),
        }
    }
    assert!(repaired > 0, "every repair was refused");
}
