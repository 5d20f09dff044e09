//! Repair of stores in slots, where nothing but the version log tells which tables live.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::error::{ErrorKind, Result};
use crate::base::prng::Prng;
use crate::db::repair::{RepairOptions, RepairReport, repair_found};
use crate::db::{Builder, Db};
use crate::device::faulty::{Effect, ErrorCode, Fault, FaultyDir, Times};
use crate::device::sim::SimDisk;
use crate::device::sim::crash::CrashPolicy;
use crate::device::site::OpKind;
use crate::device::{FileClass, Mode};
use crate::options::{DbOptions, DebugDbOptions};
use crate::storage::open::{Location, format_in};
use crate::storage::slots::FormatOptions;

pub(super) const NAME: &str = "store.weir";
/// Where the halves of the version log begin in a file of 32 MiB.
pub(super) const HALVES: [u64; 2] = [2 << 20, 3 << 20];
pub(super) const PAGE: u64 = 4096;

pub(super) fn builder(disk: &SimDisk) -> Builder {
    Db::builder("simulated").device(disk.dir()).device_file(NAME).seed(7)
}

pub(super) fn contents(disk: &SimDisk) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let db = builder(disk).open().expect("opens");
    assert!(db.verify().expect("verified").damages.is_empty());
    let pairs = db.iter().map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())).expect("a pair"));
    let pairs = pairs.collect();
    db.close().expect("closed");
    pairs
}

/// A closed store of two openings and two keyspaces: keys, and the deletes of every second one,
/// merged with them. Its version log is in the second half, that of the first opening in the first
/// one.
pub(super) fn store() -> SimDisk {
    let disk = SimDisk::default();
    let options = FormatOptions { slot_bytes: Some(64 << 10), ..FormatOptions::default() };
    format_in(&disk.dir(), NAME, 32 << 20, &options).expect("formatted");
    let db = builder(&disk).open().expect("opens");
    for i in 0..200u32 {
        db.put(i.to_be_bytes(), [1; 100]).expect("put");
    }
    let other = db.keyspace("other").expect("created");
    other.put("a key", "of another keyspace").expect("put");
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

pub(super) fn overwrite(disk: &SimDisk, at: u64, bytes: &[u8]) {
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

/// Goal: a store that lost both superblocks is found again by the heads of its version log, and
/// says that it was; an opening refuses it, and so does formatting. Method: copies overwritten with
/// zeros and with garbage; one head lost as well, the one in use and the other one, or all of a
/// half.
#[test]
fn both_superblocks_are_found_again() {
    let all = contents(&store());
    for fill in [0, 0xff] {
        let disk = store();
        overwrite(&disk, 0, &[fill; PAGE as usize]);
        overwrite(&disk, 1 << 20, &[fill; PAGE as usize]);
        let opened = builder(&disk).open().map(drop).expect_err("it has no superblock");
        let kinds = [ErrorKind::InvalidArgument, ErrorKind::Corruption];
        assert!(kinds.contains(&opened.kind()), "{opened}");
        assert!(opened.to_string().contains("repair"), "{opened}");
        let formatted = format_in(&disk.dir(), NAME, 32 << 20, &FormatOptions::default());
        formatted.expect_err("it may be repaired");
        let report = builder(&disk).repair().expect("repaired");
        assert!(report.unnamed && report.lost_data() && !report.rebuilt, "{report}");
        assert!(report.lost_tables.is_empty() && report.lost_log.is_empty(), "{report}");
        assert!(contents(&disk) == all, "fill {fill}");
        assert!(builder(&disk).repair().expect("sound").healthy);
    }
    // Zeros are no proof that a half was never used.
    let losses = [(PAGE, 0xff), (PAGE, 0), (HALF, 0)];
    for (half, (bytes, fill)) in HALVES.into_iter().flat_map(|h| losses.map(|loss| (h, loss))) {
        let disk = store();
        for (at, bytes) in [(0, PAGE), (1 << 20, PAGE), (half, bytes)] {
            overwrite(&disk, at, &vec![fill; bytes as usize]);
        }
        let before = disk.read_all(NAME).expect("read");
        let refused = builder(&disk).repair().expect_err("its log may be the one in use");
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        let said = refused.to_string();
        let is_told = said.contains("the head of a half") || said.contains("later opening");
        assert!(is_told && said.contains("--into"), "{said}");
        assert!(disk.read_all(NAME).expect("read") == before, "a refused repair has written");
        let elsewhere = SimDisk::default();
        into(&disk, Location::Dir(elsewhere.dir())).expect("into another place");
        assert!(disk.read_all(NAME).expect("read") == before, "the damaged store was changed");
        let report = from_trailers(&disk).expect("from trailers");
        assert!(report.from_trailers, "{report}");
        assert!(contents(&disk).len() >= all.len(), "half {half}");
    }
}

/// Goal: where superblocks are lost, what tables tell counts against the version log that is left:
/// in one opening, in which its log was written anew, nothing else does. Method: a store of one
/// opening, and the same after more flushes than a mark of uids is ahead, with the first log as it
/// was and the second one filled with zeros.
#[test]
fn tables_tell_of_a_later_version_log() {
    let disk = formatted(32 << 20);
    let db = builder(&disk).open().expect("opens");
    db.put("a", "value").expect("put");
    db.flush().expect("flushed");
    let lost = |disk: &SimDisk| {
        let disk = disk.copy();
        overwrite(&disk, 0, &[0; PAGE as usize]);
        overwrite(&disk, 1 << 20, &[0; PAGE as usize]);
        disk
    };
    let once = lost(&disk);
    let report = builder(&once).repair().expect("its only log is sound");
    assert!(report.unnamed && !report.rebuilt, "{report}");
    assert_eq!(contents(&once).len(), 1);
    let first = disk.read_all(NAME).expect("read")[HALVES[0] as usize..][..HALF as usize].to_vec();
    for i in 0..5000u32 {
        db.put(i.to_be_bytes(), b"value").expect("put");
        db.flush().expect("flushed");
    }
    let disk = lost(&disk);
    overwrite(&disk, HALVES[0], &first);
    overwrite(&disk, HALVES[1], &vec![0; HALF as usize]);
    let refused = builder(&disk).repair().expect_err("a table tells of another log");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("tables that came after it"), "{refused}");
}

/// Goal: a repair of such a store that is cut off can be repeated. Method: power cuts at each
/// change of it, of which the disk keeps what was synced, and all.
#[test]
fn a_repair_of_lost_superblocks_can_be_cut_off() {
    let all = contents(&store());
    let disk = store();
    overwrite(&disk, 0, &[0; PAGE as usize]);
    overwrite(&disk, 1 << 20, &[0; PAGE as usize]);
    let disk = disk.recorded();
    builder(&disk).repair().expect("repaired");
    let mut replayer = disk.replayer();
    for boundary in 0..=replayer.len() {
        replayer.go_to(boundary);
        for policy in CrashPolicy::ALL {
            let image = replayer.image(policy, boundary as u64);
            let report = builder(&image).repair();
            let report = report.unwrap_or_else(|e| panic!("{boundary}, {policy:?}: {e}"));
            assert!(report.lost_tables.is_empty(), "{boundary}, {policy:?}: {report}");
            assert!(contents(&image) == all, "{boundary}, {policy:?}");
        }
    }
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

/// Goal: a repair that keeps the structure and is cut off can be run again, and finds the same: the
/// base that it left is not taken for the version log. Method: a version log that has lost its end;
/// a power cut at every change, under several ideas of what survives.
#[test]
fn a_repair_that_keeps_the_structure_survives_power_cuts() {
    let mut cut = 0;
    for page in 2..8 {
        let lost = store();
        overwrite(&lost, HALVES[1] + page * PAGE, &[0xff; 40]);
        let disk = lost.recorded();
        let Ok(report) = builder(&disk).repair() else { continue };
        if report.healthy {
            continue;
        }
        let mut replayer = disk.replayer();
        let expected = contents(&disk.copy());
        for boundary in 0..=replayer.len() {
            replayer.go_to(boundary);
            for policy in [CrashPolicy::Nothing, CrashPolicy::All, CrashPolicy::Random(4)] {
                let image = replayer.image(policy, boundary as u64);
                let again = builder(&image).repair();
                let place = || format!("page {page}, {policy:?}\n{}", replayer.describe(6, 3));
                let again = again.unwrap_or_else(|error| panic!("{error}: {}", place()));
                assert!(contents(&image) == expected, "{again}\n{}", place());
                cut += 1;
            }
        }
    }
    assert!(cut > 0, "every repair was refused, or had nothing to do");
}

/// Bytes of a half of the version log, and where the slots begin, in a file of 32 MiB.
pub(super) const HALF: u64 = 1 << 20;

pub(super) fn from_trailers(disk: &SimDisk) -> Result<RepairReport> {
    builder(disk).repair_with(RepairOptions::default().from_trailers(true))
}

/// Damages the bases of both halves of the version log.
pub(super) fn lose_versions(disk: &SimDisk) {
    for half in HALVES {
        overwrite(disk, half, &vec![0xff; HALF as usize]);
    }
}

/// Damages the base of the version log that the superblock names.
fn lose_newer_half(disk: &SimDisk) {
    overwrite(disk, HALVES[1] + PAGE + 100, &[0xff; 1000]);
}

/// Goal: a wish for what a store need not be asked, or does not have, is refused, not overheard.
#[test]
fn options_that_do_not_fit_are_refused() {
    let disk = SimDisk::default();
    let builder = || Db::builder("simulated").device(disk.dir()).seed(7);
    builder().open().and_then(|db| db.close()).expect("a store in a directory");
    for options in
        [RepairOptions::default().from_trailers(true), RepairOptions::default().keep_in("/tmp")]
    {
        let error = builder().repair_with(options).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    let slots = store();
    let nowhere = RepairOptions::default().keep_in("/nowhere/at/all");
    let error = self::builder(&slots).repair_with(nowhere).expect_err("no such directory");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("create"), "{error}");
}

/// Goal: the wish changes nothing where a version tells which tables live.
#[test]
fn a_version_comes_before_trailers() {
    let disk = store();
    let report = from_trailers(&disk).expect("sound");
    assert!(report.healthy && !report.from_trailers, "{report}");
    assert_eq!(contents(&disk).len(), 100);
}

/// Goal: if the log of the opening before is sound, names are its, and what came after it is there.
/// Method: the newer log is lost, in whose time half of the keys were deleted.
#[test]
fn an_earlier_version_log_says_the_names() {
    let disk = store();
    lose_newer_half(&disk);
    let report = from_trailers(&disk).expect("asked for");
    assert!(report.rebuilt && report.from_trailers, "{report}");
    assert!(report.renamed_keyspaces.is_empty(), "{report}");
    let found = contents(&disk);
    // Those with even numbers were deleted; the table that held them may still be there.
    for i in (1..200u32).step_by(2) {
        assert_eq!(found.get(&i.to_be_bytes()[..]).map(Vec::len), Some(100), "key {i}");
    }
}

/// Goal: where nothing but tables is left, every key comes back with its newest value, whatever
/// obsolete tables lie around, and what comes back is at least what lived. Method: a model; keys of
/// two keyspaces written, deleted and merged over several openings in a store that is written over
/// again and again; then both halves are lost.
#[test]
fn every_live_key_comes_back() {
    let mut left_out = 0;
    for seed in 0..12 {
        let disk = SimDisk::default();
        let options = FormatOptions { slot_bytes: Some(64 << 10), ..FormatOptions::default() };
        format_in(&disk.dir(), NAME, 32 << 20, &options).expect("formatted");
        let mut prng = Prng::new(seed);
        let mut model: BTreeMap<(bool, u64), (u64, usize)> = BTreeMap::new();
        let mut version = 0u64;
        for _ in 0..4 {
            let db = builder(&disk).open().expect("opens");
            let spaces = [db.keyspace("default"), db.keyspace("other")].map(|s| s.expect("opens"));
            for _ in 0..6 {
                for _ in 0..400 {
                    version += 1;
                    let (other, key) = (prng.chance(1, 4), prng.below(1500));
                    let space = &spaces[usize::from(other)];
                    if prng.chance(1, 5) {
                        space.delete(key.to_be_bytes()).expect("deleted");
                        model.remove(&(other, key));
                    } else {
                        let bytes = 8 + prng.below(1200) as usize;
                        let mut value = vec![7; bytes];
                        value[..8].copy_from_slice(&version.to_be_bytes());
                        space.put(key.to_be_bytes(), value).expect("put");
                        model.insert((other, key), (version, bytes));
                    }
                }
                db.flush().expect("flushed");
                if prng.chance(1, 3) {
                    db.compact_range(..).expect("compacted");
                }
            }
            db.close().expect("closed");
        }
        lose_versions(&disk);
        let refused = builder(&disk).repair().expect_err("nothing tells what lives");
        assert!(refused.to_string().contains("--from-trailers"), "{refused}");
        let report = from_trailers(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(report.rebuilt && report.from_trailers, "{report}");
        assert_eq!(report.renamed_keyspaces.len(), 1, "{report}");
        left_out += report.left_out;
        let db = builder(&disk).open().expect("opens");
        assert!(db.verify().expect("verified").damages.is_empty());
        let name = &report.renamed_keyspaces[0].1;
        let spaces = [db.keyspace("default"), db.keyspace(name)].map(|space| space.expect("opens"));
        for (&(other, key), &(version, bytes)) in &model {
            let value = spaces[usize::from(other)].get(key.to_be_bytes()).expect("read");
            let value = value.unwrap_or_else(|| panic!("seed {seed}: key {key} is gone"));
            let found = u64::from_be_bytes(value[..8].try_into().expect("eight bytes"));
            assert_eq!((found, value.len()), (version, bytes), "seed {seed}, key {key}");
        }
        db.close().expect("closed");
    }
    assert!(left_out > 0, "nothing was ever written over");
}

/// Goal: a repair by trailers that is cut off can be run again, and finds the same. Method: a power
/// cut at every change that it makes, under several ideas of what survives.
#[test]
fn a_repair_by_trailers_survives_power_cuts() {
    let lost = store();
    lose_versions(&lost);
    cut_everywhere(&lost);
}

/// Goal: names that only an older version log tells are there after a repair that was cut off, too:
/// the new log goes over the one that is lost. Method: as before; one half is lost.
#[test]
fn names_of_an_older_version_log_survive_power_cuts() {
    let lost = store();
    lose_newer_half(&lost);
    cut_everywhere(&lost);
}

/// Cuts a repair by trailers off at every change. What earlier ones wrote is no table of the next.
fn cut_everywhere(lost: &SimDisk) {
    let disk = lost.recorded();
    let report = from_trailers(&disk).expect("asked for");
    assert!(report.from_trailers, "{report}");
    let mut replayer = disk.replayer();
    let expected = contents(&disk.copy());
    assert!(expected.len() >= 100, "{} keys", expected.len());
    for boundary in 0..=replayer.len() {
        replayer.go_to(boundary);
        for policy in [CrashPolicy::Nothing, CrashPolicy::All, CrashPolicy::Random(4)] {
            let image = replayer.image(policy, boundary as u64);
            let place = || format!("{policy:?}\n{}", replayer.describe(6, 3));
            let again = from_trailers(&image);
            let again = again.unwrap_or_else(|error| panic!("{error}: {}", place()));
            // The cut one's own log may be whole and tell its names; its tables do not count.
            let renamed = [&again, &report].map(|report| report.renamed_keyspaces.len());
            let same = renamed[0] <= renamed[1] && again.tables_sound == report.tables_sound;
            assert!(same || again.healthy, "{again}\n{}", place());
            assert!(again.lost_tables.is_empty(), "{again}\n{}", place());
            assert!(contents(&image) == expected, "{again}\n{}", place());
        }
    }
}

/// Goal: where the device does not read the end of a slot, what is there is unknown, and may live:
/// nothing is changed, and the error says what to do. Method: one such read, of a free slot.
#[test]
fn what_the_device_does_not_read_is_told() {
    let disk = store();
    lose_versions(&disk);
    let before = disk.read_all(NAME);
    let (faulty, op) = (FaultyDir::over_disk(&disk), Some(OpKind::Read));
    let (class, effect) = (Some(FileClass::Table), Effect::Fail(ErrorCode::Eio));
    faulty.faults().arm(Fault { op, class, after: 200, times: Times::Once, effect });
    let builder = Db::builder("simulated").device(Arc::new(faulty)).device_file(NAME).seed(7);
    let repaired = builder.repair_with(RepairOptions::default().from_trailers(true));
    let error = repaired.expect_err("the end of slot 200 is unknown");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("slot 200") && error.to_string().contains("ddrescue"));
    assert!(disk.read_all(NAME) == before, "something was changed");
    from_trailers(&disk).expect("asked for, and read");
    assert!(contents(&disk).len() >= 100);
}

pub(super) fn into(disk: &SimDisk, place: Location) -> Result<RepairReport> {
    repair_found(builder(disk), RepairOptions::default().from_trailers(true), Some(place))
}

pub(super) fn formatted(bytes: u64) -> SimDisk {
    let disk = SimDisk::default();
    let options = FormatOptions { slot_bytes: Some(64 << 10), ..FormatOptions::default() };
    format_in(&disk.dir(), NAME, bytes, &options).expect("formatted");
    disk
}

/// Goal: a tree that is built elsewhere has what one built in its place has, and can be written to
/// and closed and opened; what is damaged stays as it is, and nothing is kept of it beside it.
/// Method: into a directory, and into a file that was formatted.
#[test]
fn a_tree_can_be_built_elsewhere() {
    let disk = store();
    lose_versions(&disk);
    let before = disk.read_all(NAME);
    let in_place = disk.copy();
    from_trailers(&in_place).expect("asked for");
    let expected = contents(&in_place);
    let (dir, file) = (SimDisk::default(), formatted(16 << 20));
    let open_dir = || Db::builder("elsewhere").device(dir.dir()).seed(7).open().expect("opens");
    let report = into(&disk, Location::Dir(dir.dir())).expect("asked for");
    assert!(report.rebuilt_into.is_some() && report.to_string().contains("as it was"), "{report}");
    let db = open_dir();
    assert!(db.verify().expect("verified").damages.is_empty());
    assert_eq!(db.iter().count(), expected.len());
    db.put("new", "value").expect("put");
    db.close().expect("closed");
    let db = open_dir();
    assert_eq!(db.get("new").expect("read").expect("there"), *b"value");
    assert_eq!(db.iter().count(), expected.len() + 1);
    db.close().expect("closed");
    let report = into(&disk, Location::File(file.dir(), NAME.into())).expect("asked for");
    assert!(report.kept_files.is_empty(), "{report}");
    assert_eq!(contents(&file), expected);
    assert_eq!(contents(&file), expected);
    assert!(disk.read_all(NAME) == before, "the damaged store was changed");
    assert_eq!(disk.dir().list().expect("listed").len(), 1, "something lies beside it");
}

/// Goal: a place that holds something is refused, and so is the wish without trailers; a store
/// whose version log is sound can be built elsewhere, too.
#[test]
fn a_place_elsewhere_must_be_empty() {
    let (disk, other) = (store(), store());
    let dir = SimDisk::default();
    let report = into(&disk, Location::Dir(dir.dir())).expect("asked for");
    assert!(report.from_trailers && report.rebuilt_into.is_some(), "{report}");
    let dir = SimDisk::default();
    lose_versions(&disk);
    let refused = into(&disk, Location::File(other.dir(), NAME.into())).expect_err("a store");
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(contents(&other).len(), 100);
    let options = RepairOptions::default();
    let refused = repair_found(builder(&disk), options, Some(Location::Dir(dir.dir())));
    assert_eq!(refused.expect_err("not asked for").kind(), ErrorKind::InvalidArgument);
}

/// Goal: what a rebuild elsewhere wrote that was cut off is no store: neither an opening nor a
/// repair takes the part for the whole, and both say what to do. Method: power cuts after each
/// change of the place, a directory and a file; some of them have the whole store already.
#[test]
fn a_part_of_a_tree_elsewhere_is_no_store() {
    let disk = store();
    lose_versions(&disk);
    for in_file in [false, true] {
        let place = if in_file { formatted(16 << 20) } else { SimDisk::default() };
        let place = place.recorded();
        let location = |disk: &SimDisk| match in_file {
            true => Location::File(disk.dir(), NAME.into()),
            false => Location::Dir(disk.dir()),
        };
        into(&disk, location(&place)).expect("asked for");
        let mut replayer = place.replayer();
        let (mut parts, mut wholes) = (0, 0);
        for changes in 0..=replayer.len() {
            replayer.go_to(changes);
            let cut = replayer.image(CrashPolicy::All, 1);
            let builder = |disk: &SimDisk| match in_file {
                true => builder(disk),
                false => Db::builder("elsewhere").device(disk.dir()).seed(7),
            };
            let options = RepairOptions::default().from_trailers(in_file);
            let repaired = repair_found(builder(&cut.copy()), options, None);
            match builder(&cut).open() {
                Ok(db) => {
                    let entries = db.iter().count();
                    assert!(entries == 0 || entries >= 100, "{entries} entries, {changes} changes");
                    wholes += usize::from(entries > 0);
                    db.close().expect("closed");
                }
                Err(error) => {
                    assert!(error.to_string().contains("weir destroy"), "{error}");
                    let refused = repaired.expect_err("a part of a store was repaired");
                    assert!(refused.to_string().contains("weir destroy"), "{refused}");
                    parts += 1;
                }
            }
        }
        assert!(parts > 5 && wholes > 0, "{parts} parts, {wholes} whole ones");
    }
}

/// Goal: a store whose slots are all written, which leaves no room for a rebuild, is built
/// elsewhere with everything that lived. Method: writes over and over, then a repair in its place.
#[test]
fn a_store_in_use_is_built_elsewhere() {
    let disk = formatted(24 << 20);
    let db = builder(&disk).open().expect("opens");
    let mut prng = Prng::new(3);
    let mut model = BTreeMap::new();
    for round in 0..30u64 {
        for _ in 0..400 {
            let (key, mut value) = (prng.below(7000), vec![0; 1000]);
            value.iter_mut().for_each(|byte| *byte = prng.below(256) as u8);
            value[..8].copy_from_slice(&round.to_be_bytes());
            db.put(key.to_be_bytes(), &value).expect("put");
            model.insert(key.to_be_bytes().to_vec(), value);
        }
        db.flush().expect("flushed");
        db.compact_range(..).expect("compacted");
    }
    db.close().expect("closed");
    lose_versions(&disk);
    let full = from_trailers(&disk.copy()).expect_err("no room for all tables once more");
    assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
    assert!(full.to_string().contains("--into"), "{full}");
    let small = formatted(8 << 20);
    let error = into(&disk, Location::File(small.dir(), NAME.into())).expect_err("too small");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(!error.to_string().contains("--into"), "{error}");
    // Trailers of it lie there: it is no store until it is formatted again.
    let refused = builder(&small).open().expect_err("a part of one");
    assert!(refused.to_string().contains("weir format --force"), "{refused}");
    let file = formatted(32 << 20);
    into(&disk, Location::File(file.dir(), NAME.into())).expect("room enough");
    assert!(contents(&file) == model, "something is missing or old");
}

/// A store of one opening whose version log was begun anew, and has gone on with deletes. The half
/// that is in use.
fn rewritten() -> (SimDisk, u64) {
    let disk = formatted(32 << 20);
    let debug = DebugDbOptions::default().version_log_bytes(64 << 10);
    let options = DbOptions::default().debug(debug);
    let db = builder(&disk).options(options).open().expect("opens");
    for i in 0..200u32 {
        db.put(i.to_be_bytes(), [1; 100]).expect("put");
    }
    let head = |half: u64| {
        let bytes = disk.read_all(NAME).expect("read");
        bytes[half as usize..][..PAGE as usize].to_vec()
    };
    let first = HALVES.map(head);
    let mut rounds = 0u32;
    while HALVES.map(head) == first {
        db.put([9], rounds.to_be_bytes()).expect("put");
        db.flush().expect("flushed");
        rounds += 1;
    }
    let half = if head(HALVES[0]) == first[0] { HALVES[1] } else { HALVES[0] };
    for i in 0..100u32 {
        db.delete(i.to_be_bytes()).expect("deleted");
        if i % 25 == 24 {
            db.put([8], vec![3; 200_000]).expect("put");
            db.flush().expect("flushed");
            db.compact_range(..).expect("compacted");
        }
    }
    db.close().expect("closed");
    (disk, half)
}

/// Goal: where superblocks are lost, the log before the newest one does not count if that is
/// damaged: it may have been in use. Method: a base that is damaged, of a log that was begun anew
/// in one opening and went on with deletes.
#[test]
fn a_damaged_newest_log_is_not_passed_over() {
    let (disk, half) = rewritten();
    for at in [0, 1 << 20] {
        overwrite(&disk, at, &[0; PAGE as usize]);
    }
    let sound = disk.copy();
    overwrite(&disk, half + PAGE + 100, &[0xff; 1000]);
    let before = disk.read_all(NAME);
    let refused = builder(&disk).repair().expect_err("the newest log is damaged");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(disk.read_all(NAME) == before, "a refused repair has written");
    let report = builder(&sound).repair().expect("the newest log is sound");
    assert!(report.unnamed, "{report}");
    assert_eq!(contents(&sound).len(), 102);
}

/// Goal: a version log that has lost its end without a trace is not called sound where tables show
/// that it went on. Method: flushes that use the log up more than once, a copy as after a kill,
/// with zeros behind the base.
#[test]
fn newer_tables_are_told() {
    let disk = formatted(32 << 20);
    let db = builder(&disk).open().expect("opens");
    for round in 0..4u8 {
        for i in 0..200u32 {
            db.put(i.to_be_bytes(), vec![round; 4000]).expect("put");
        }
        db.flush().expect("flushed");
    }
    let killed = disk.copy();
    let all = contents(&killed.copy());
    let half = killed.read_all(NAME).expect("read")[HALVES[0] as usize..][..HALF as usize].to_vec();
    let end = half.iter().rposition(|&byte| byte != 0).expect("a log") as u64;
    overwrite(&killed, HALVES[0] + 2 * PAGE, &vec![0; (end / PAGE) as usize * PAGE as usize]);
    let before = killed.read_all(NAME);
    match builder(&killed.copy()).repair() {
        Ok(report) => {
            assert!(report.newer_tables > 0 && report.lost_data() && !report.healthy, "{report}");
            assert!(report.to_string().contains("--from-trailers"), "{report}");
        }
        Err(refused) => assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}"),
    }
    let elsewhere = formatted(32 << 20);
    into(&killed, Location::File(elsewhere.dir(), NAME.into())).expect("built");
    assert!(contents(&elsewhere) == all);
    assert!(killed.read_all(NAME) == before, "it was changed");
    db.close().expect("closed");
    let report = builder(&disk).repair().expect("sound");
    assert!(report.healthy && report.newer_tables == 0, "{report}");
}

/// Goal: what is written after such a repair is newer than all that it may have left out, so that
/// another one finds it. Method: the sequence number after it.
#[test]
fn what_comes_after_a_repair_is_newer() {
    let disk = store();
    lose_versions(&disk);
    from_trailers(&disk).expect("asked for");
    let db = builder(&disk).open().expect("opens");
    assert!(db.snapshot().sequence() >= 1 << 40, "{}", db.snapshot().sequence());
    db.put(7u32.to_be_bytes(), "newest").expect("put");
    db.flush().expect("flushed");
    db.close().expect("closed");
    lose_versions(&disk);
    from_trailers(&disk).expect("asked for");
    assert_eq!(contents(&disk)[&7u32.to_be_bytes()[..]], b"newest");
}
