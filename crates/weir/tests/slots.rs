//! A store in one pre-allocated file: it is a store like any other.

#![expect(clippy::disallowed_methods, reason = "a foreign file is written and read")]

use std::collections::BTreeMap;
use std::path::Path;

use weir::{Db, Durability, ErrorKind, FormatOptions, Result, format};

const MIB: u64 = 1 << 20;

fn formatted(path: &Path, size: u64) -> Result<()> {
    let mut options = FormatOptions::new();
    options.size = Some(size);
    format(path, &options)
}

/// Bytes that do not compress.
fn hash(n: u64) -> u8 {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        >> 56) as u8
}

fn key(n: u64) -> Vec<u8> {
    format!("key{:08}", n.wrapping_mul(0x9e37_79b9) % 20_000).into_bytes()
}

/// Goal: what is written is there after each opening, with flushes, merges and both logs in their
/// areas. Method: three rounds of writes against a map, synced ones among them, a reopening after
/// each, verification at the end.
#[test]
fn a_store_in_a_file_is_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    formatted(&path, 256 * MIB).unwrap();
    let mut model = BTreeMap::new();
    let mut options = weir::Options::default();
    options.write_buffer_bytes = 1 << 20;
    for round in 0..3u64 {
        let db = Db::builder(&path).default_options(options.clone()).open().unwrap();
        for n in 0..40_000 {
            let value = format!("{round}-{n}").repeat(10).into_bytes();
            let durability = if n % 5000 == 0 { Durability::Sync } else { Durability::Buffered };
            db.put_with(key(n), &value, durability).unwrap();
            model.insert(key(n), value);
        }
        let all: BTreeMap<Vec<u8>, Vec<u8>> =
            db.iter().map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
        assert!(all == model, "round {round}");
        let space = db.slot_space().expect("it is in slots");
        assert_eq!(space.free + space.reserved + space.owned + space.leaving, space.slots);
        db.close().unwrap();
    }
    let db = Db::open(&path).unwrap();
    assert!(db.verify().unwrap().damages.is_empty());
    assert_eq!(db.iter().count(), model.len());
    db.wait_idle().unwrap();
    assert!(db.slot_space().unwrap().owned > 0);
    let locked = Db::open(&path).expect_err("it is open");
    assert_eq!(locked.kind(), ErrorKind::Locked);
    db.close().unwrap();
    Db::destroy(&path).unwrap();
    assert_eq!(Db::open(&path).expect_err("it is none").kind(), ErrorKind::InvalidArgument);
}

/// Goal: a store that is smaller than what two write buffers may hold is flushed: a flush takes the
/// slots that it needs, not those that it might.
#[test]
fn a_small_store_has_default_buffers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    formatted(&path, 64 * MIB).unwrap();
    let db = Db::open(&path).unwrap();
    db.put(b"a", b"1").unwrap();
    db.flush().unwrap();
    let space = db.slot_space().unwrap();
    assert_eq!((space.owned, space.reserved, space.tables), (1, 0, 1));
}

/// Goal: a format that does not fit, or would lose something, is refused with advice, and changes
/// nothing.
#[test]
fn what_cannot_be_formatted_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    let refused = |result: Result<()>, says: &str| {
        let error = result.expect_err(says);
        let holds = error.to_string().contains(" holds ");
        let kind = if holds { ErrorKind::Conflict } else { ErrorKind::InvalidArgument };
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    refused(format(&path, &FormatOptions::new()), "size");
    refused(formatted(&path, MIB), "8 MiB");
    refused(formatted(dir.path(), 64 * MIB), "directory");
    assert!(!path.exists());
    formatted(&path, 16 * MIB).unwrap();
    refused(formatted(&path, 16 * MIB), "a Weir store");
    Db::open(&path).unwrap().put(b"k", b"v").unwrap();
    assert_eq!(Db::open(&path).unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    let mut force = FormatOptions::new();
    force.force = true;
    format(&path, &force).unwrap();
    assert_eq!(Db::open(&path).unwrap().get(b"k").unwrap(), None);
    // Its superblocks are lost, and there is something behind them.
    let lost = dir.path().join("lost.weir");
    formatted(&lost, 16 * MIB).unwrap();
    Db::open(&lost).unwrap().put(b"k", b"v").unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&lost).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; 2 * MIB as usize], 0).unwrap();
    refused(format(&lost, &FormatOptions::new()), "superblocks are lost");
    let damaged = Db::open(&lost).expect_err("both superblocks are lost");
    assert_eq!(damaged.kind(), ErrorKind::Corruption, "{damaged}");
    assert!(damaged.to_string().contains("weir repair"), "{damaged}");
    let text = dir.path().join("letter.txt");
    std::fs::write(&text, "dear reader".repeat(100_000)).unwrap();
    refused(format(&text, &FormatOptions::new()), "not all zeros");
    assert!(std::fs::read(&text).unwrap().starts_with(b"dear"));
    let plain = Db::open(&text).expect_err("no store");
    assert_eq!(plain.kind(), ErrorKind::InvalidArgument);
    assert!(plain.to_string().contains("weir format"), "{plain}");
}

/// Goal: a format that fails removes nothing that it has not created. Method: a symbolic link that
/// leads nowhere, which is no file yet and is not created without a size.
#[test]
fn a_failed_format_removes_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("store.weir");
    std::os::unix::fs::symlink(dir.path().join("nowhere"), &link).unwrap();
    for options in [FormatOptions::new(), {
        let mut sized = FormatOptions::new();
        sized.size = Some(16 * MIB);
        sized
    }] {
        format(&link, &options).expect_err("it is not there, and it is there");
        assert!(link.symlink_metadata().is_ok(), "the link is gone");
    }
    let mut options = FormatOptions::new();
    (options.size, options.log_bytes) = (Some(16 * MIB), Some(16 * MIB));
    let path = dir.path().join("new.weir");
    format(&path, &options).expect_err("it does not fit");
    assert!(!path.exists());
}

/// Goal: a file that is there is checked before it is changed, and has all of its space afterwards,
/// also if it was sparse.
#[test]
fn a_file_that_is_there_gets_all_of_its_space() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    let bytes = || {
        let found = std::fs::metadata(&path).unwrap();
        (found.len(), found.blocks() * 512)
    };
    std::fs::File::create(&path).unwrap().set_len(32 * MIB).unwrap();
    for (size, log) in [(64 * MIB, 64 * MIB), (u64::MAX, MIB), (64 * MIB, u64::MAX)] {
        let mut options = FormatOptions::new();
        (options.size, options.log_bytes) = (Some(size), Some(log));
        let error = format(&path, &options).expect_err("it does not fit");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(bytes().0, 32 * MIB, "it was grown");
    }
    format(&path, &FormatOptions::new()).unwrap();
    assert!(bytes().1 >= 32 * MIB, "{} bytes are allocated", bytes().1);
    Db::open(&path).unwrap().put(b"k", b"v").unwrap();
}

/// Goal: a store that is full refuses writes with `NoSpace` and goes on being read; what was
/// acknowledged is there, and deleting makes room again.
#[test]
fn a_full_store_is_read_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    formatted(&path, 32 * MIB).unwrap();
    let mut options = weir::Options::default();
    options.write_buffer_bytes = 256 << 10;
    options.table_bytes = 1 << 20;
    let db = Db::builder(&path).default_options(options).open().unwrap();
    let mut written = 0;
    let refused = loop {
        let value: Vec<u8> = (0..2000u64).map(|n| hash(written as u64 * 2000 + n)).collect();
        match db.put(format!("{written:08}").as_bytes(), &value) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100_000, "32 MiB are not full");
    };
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    assert!(refused.to_string().contains("reads go on"), "{refused}");
    assert_eq!(db.iter().count(), written);
    drop(db);
    let db = Db::open(&path).unwrap();
    assert_eq!(db.iter().count(), written);
    assert!(written > 5_000, "only {written} pairs of 2 kB in 32 MiB");
}

/// Goal: a store that is full stays one that opens, however often somebody opens it, writes until
/// it refuses and goes away. The first log segment of each opening was made without a look at the
/// space, a whole cell of the log, and what it carried took the room of the next merge; in the end
/// no flush found a slot, segments piled up, and the opening that had to flush them failed.
/// Method: new keys only, so that no merge frees anything; half of the rounds end without closing.
#[test]
fn a_full_store_is_opened_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    let mut shape = FormatOptions::new();
    (shape.size, shape.log_bytes) = (Some(64 * MIB), Some(16 * MIB));
    format(&path, &shape).unwrap();
    let mut options = weir::Options::default();
    options.write_buffer_bytes = 512 << 10;
    options.table_bytes = 1 << 20;
    let mut written = 0u64;
    let pair = |n: u64| {
        let value: Vec<u8> = (0..1000).map(|at| hash(n * 1000 + at)).collect();
        (format!("{n:08}").into_bytes(), value)
    };
    let open = || Db::builder(&path).default_options(options.clone()).open();
    for round in 0..30 {
        let db = open().unwrap_or_else(|error| panic!("round {round}, {written}: {error}"));
        let refused = loop {
            let (key, value) = pair(written);
            match db.put(&key, &value) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        if round % 2 == 0 {
            db.close().unwrap();
        }
    }
    let db = open().unwrap();
    assert_eq!(db.iter().count() as u64, written);
    // What is flushed can be merged still: the room for that was not given away.
    db.compact_range(..).unwrap();
    assert_eq!(db.iter().count() as u64, written);
    db.close().unwrap();
}

/// Goal: writers who fill a small log before a flush ends wait for that, and are not refused while
/// there is room for tables. Method: a log of 1 MiB, and some 40 times as much.
#[test]
fn a_small_log_makes_writers_wait() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    let mut shape = FormatOptions::new();
    (shape.size, shape.log_bytes) = (Some(256 * MIB), Some(MIB));
    format(&path, &shape).unwrap();
    let db = Db::open(&path).unwrap();
    for n in 0..40_000u64 {
        let put = db.put(format!("{n:08}").as_bytes(), [hash(n); 1000]);
        put.unwrap_or_else(|error| panic!("put {n}: {error}"));
    }
    assert_eq!(db.iter().count(), 40_000);
    db.close().unwrap();
}

/// Goal: with keys of kilobytes the version log may be full before the slots are: writes are
/// refused then, and the tree stays one that can be flushed and opened. Room was counted as for
/// short keys, so that edits were refused, and in the end an opening, whose base did not fit.
#[test]
fn long_keys_do_not_fill_the_version_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    formatted(&path, 192 * MIB).unwrap();
    let mut options = weir::Options::default();
    options.write_buffer_bytes = 256 << 10;
    options.table_bytes = 64 << 10;
    let open = || Db::builder(&path).default_options(options.clone()).open();
    // They share nothing, and do not compress.
    let long = |n: u64| (0..4000).map(|at| hash(n * 4000 + at)).collect::<Vec<u8>>();
    let mut written = 0u64;
    for round in 0..4 {
        let db = open().unwrap_or_else(|error| panic!("round {round}, {written}: {error}"));
        let refused = loop {
            match db.put(long(written), [hash(written); 10]) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        db.flush().unwrap();
        db.close().unwrap();
    }
    assert!(written > 1000, "{written}");
    let db = open().unwrap();
    assert_eq!(db.iter().count() as u64, written);
    db.close().unwrap();
}

/// Goal: a smaller unit of the log is taken only where the device is said to write it wholly; then
/// a segment holds more synced commits, and all of them are found again. Method: a hundred synced
/// puts of some 60 bytes with each unit, the segments that the log has then, a copy that is opened
/// as after a kill.
#[test]
fn the_unit_of_the_log_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    let sized = FormatOptions::new().size(16 * MIB).force(true);
    for (options, says) in [
        (sized.log_unit(512), "atomic_bytes"),
        (sized.log_unit(8).atomic_bytes(512), "acknowledged"),
        (sized.log_unit(1024).atomic_bytes(512), "choose 4096"),
        (sized.atomic_bytes(4), "a power of two"),
    ] {
        let error = format(&path, &options).expect_err(says);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    let mut held = Vec::new();
    for unit in [4096, 512, 8] {
        format(&path, &sized.log_unit(unit).atomic_bytes(8)).unwrap();
        let db = Db::open(&path).unwrap();
        assert_eq!(db.slot_space().unwrap().log_unit_bytes, unit);
        for n in 0..100 {
            db.put_with(key(n), [b'v'; 60], Durability::Sync).unwrap();
        }
        held.push(db.metrics().log_bytes_live);
        // As after a kill: the memtable is lost.
        let copy = dir.path().join("copy.weir");
        std::fs::copy(&path, &copy).unwrap();
        db.close().unwrap();
        let db = Db::open(&copy).unwrap();
        assert_eq!(db.iter().count(), 100, "unit {unit}");
        db.close().unwrap();
    }
    assert!(held[0] >= 5 * held[1] && held[1] >= held[2], "{held:?}");
}

/// A store of some tables in a file of `size` bytes; its keys.
fn filled(path: &Path, size: u64) -> u64 {
    formatted(path, size).unwrap();
    let db = Db::open(path).unwrap();
    for n in 0..5000 {
        db.put(n.to_string(), vec![hash(n); 300]).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    db.close().unwrap();
    5000
}

/// Goal: advice about damage names the store, whose path is a file's. Method: the checksums of both
/// superblocks; then one bit of a table.
#[test]
fn advice_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    filled(&path, 64 * MIB);
    let sound = std::fs::read(&path).unwrap();
    let advice = format!("`weir repair {}`", path.display());
    let mut damaged = sound.clone();
    for at in [100, (1 << 20) + 100] {
        damaged[at] ^= 1;
    }
    std::fs::write(&path, &damaged).unwrap();
    let refused = Db::open(&path).expect_err("both superblocks are damaged");
    assert_eq!(refused.kind(), ErrorKind::Corruption, "{refused}");
    assert!(refused.to_string().contains(&advice), "{refused}");
    let report = Db::repair(&path).unwrap();
    assert!(report.unnamed && report.lost_tables.is_empty(), "{report}");
    std::fs::write(&path, &sound).unwrap();
    let db = Db::open(&path).unwrap();
    let description = db.describe();
    let mut runs = description.keyspaces[0].levels.iter().flat_map(|level| &level.runs);
    let table = &runs.next().unwrap().tables[0];
    let (uid, bytes) = (table.uid, table.bytes);
    db.close().unwrap();
    // Somewhere in its only extent.
    let at = sound.windows(8).rposition(|bytes| bytes == b"WEIRTAIL").unwrap() as u64 - bytes / 2;
    let mut damaged = sound.clone();
    damaged[at as usize] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    let db = Db::builder(&path).read_only(true).open().unwrap();
    let found = db.verify().unwrap();
    let damage = found.damages.first().unwrap_or_else(|| panic!("table {uid} seems sound"));
    assert!(damage.to_string().contains(&advice), "{damage}");
}

/// Goal: a repair that is refused leaves a file that was cut off as it was, and one that goes into
/// another place takes what is left. Method: a free slot cut off, and the version log spoilt.
#[test]
fn a_file_that_was_cut_off_and_spoilt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    let keys = filled(&path, 64 * MIB);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(64 * MIB - 100_000).unwrap();
    let space = Db::builder(&path).read_only(true).open().unwrap().slot_space().unwrap();
    // Both halves lie behind the superblocks.
    let halves = vec![0xaa; 2 * space.version_log_bytes as usize];
    std::os::unix::fs::FileExt::write_all_at(&file, &halves, 2 * MIB).unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = Db::repair(&path).expect_err("nothing says what lives");
    assert!(refused.to_string().contains("nothing was changed"), "{refused}");
    assert!(std::fs::read(&path).unwrap() == before, "it was changed");
    // A formatted file that nobody has opened is as good a place as a new directory.
    let (new, file) = (dir.path().join("new"), dir.path().join("file"));
    formatted(&file, 64 * MIB).unwrap();
    let into = |place: &Path| {
        let how = weir::RepairOptions::default().from_trailers(true).rebuild_into(place);
        Db::builder(&path).repair_with(how)
    };
    let refused = into(&path).expect_err("that is the damaged one");
    assert!(refused.to_string().contains("name another place"), "{refused}");
    for place in [new, file] {
        let report = into(&place).unwrap();
        assert!(report.rebuilt && report.lengthened_bytes == 0, "{report}");
        assert!(report.cut_off_bytes == 100_000 && !report.log_missing, "{report}");
        assert!(report.to_string().contains("lacks 100000 bytes"), "{report}");
        assert!(std::fs::read(&path).unwrap() == before, "it was changed");
        let db = Db::open(&place).unwrap();
        assert_eq!(db.iter().count() as u64, keys);
        db.close().unwrap();
    }
}

/// Goal: both logs of a new file are written, not only allocated: the first sync of an unwritten
/// extent writes the file system's metadata, too (H36). Method: where its file system sees the
/// first hole, which an unwritten extent is.
#[test]
fn logs_of_a_new_file_are_written() {
    use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    formatted(&path, 64 * MIB).unwrap();
    let space = Db::open(&path).unwrap().slot_space().unwrap();
    let end = 2 * MIB + 2 * space.version_log_bytes + space.log_segments * space.log_segment_bytes;
    let file = std::fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    let hole = seek(&file, SeekFrom::Hole(2 * MIB)).unwrap();
    assert!(hole >= end, "the first hole is at {hole} of {end} bytes");
    let empty = std::fs::File::create(dir.path().join("empty")).unwrap();
    fallocate(&empty, FallocateFlags::empty(), 0, MIB).unwrap();
    if seek(&empty, SeekFrom::Hole(0)) != Ok(0) {
        println!("skipped: this file system shows no unwritten extents");
    }
}

/// Goal: a file that was cut off behind its logs is read, and a repair makes it as long again; one
/// that was cut off before is neither. Method: free slots cut off; then those of tables.
#[test]
fn a_file_that_was_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    let keys = filled(&path, 64 * MIB);
    let cut = |bytes: u64| {
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(bytes).unwrap();
    };
    cut(64 * MIB - 1);
    let refused = Db::open(&path).expect_err("it was cut off");
    assert_eq!(refused.kind(), ErrorKind::Corruption, "{refused}");
    assert!(refused.to_string().contains("cut off"), "{refused}");
    let db = Db::builder(&path).read_only(true).open().unwrap();
    assert_eq!(db.iter().count() as u64, keys);
    assert_eq!(db.slot_space().unwrap().cut_off_bytes, 1);
    db.close().unwrap();
    let report = Db::repair(&path).unwrap();
    assert!(!report.healthy && !report.lost_data() && report.lengthened_bytes == 1, "{report}");
    assert!(report.to_string().contains("lacked 1 byte"), "{report}");
    let db = Db::open(&path).unwrap();
    assert_eq!(db.iter().count() as u64, keys);
    assert_eq!(db.slot_space().unwrap().cut_off_bytes, 0);
    db.close().unwrap();
    assert!(Db::repair(&path).unwrap().healthy);
    // Into the first table.
    let space = Db::builder(&path).read_only(true).open().unwrap().slot_space().unwrap();
    cut(64 * MIB - (space.slots - 2) * space.slot_bytes);
    let db = Db::builder(&path).read_only(true).open().unwrap();
    let damages = db.verify().unwrap().damages;
    assert!(!damages.is_empty());
    assert!(damages.iter().all(|damage| damage.to_string().contains(": table ")), "{damages:?}");
    db.close().unwrap();
    let report = Db::repair(&path).unwrap();
    assert!(report.lost_data() && !report.lost_tables.is_empty(), "{report}");
    let db = Db::open(&path).unwrap();
    assert!(db.verify().unwrap().damages.is_empty());
    db.close().unwrap();
    cut(3 * MIB);
    let refused = Db::builder(&path).read_only(true).open().expect_err("its logs are gone");
    let advice = refused.to_string();
    assert!(advice.contains("cut off") && advice.contains("restore a backup"), "{refused}");
    assert!(!advice.contains("weir repair") && refused.damage().is_some(), "{refused}");
    Db::repair(&path).expect_err("its logs are gone");
}

/// Goal: a store that was removed leaves a file that is formatted like any, and nothing that a
/// repair brings back.
#[test]
fn what_was_destroyed_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.weir");
    filled(&path, 64 * MIB);
    // As if its last slot had been used.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], 64 * MIB - 4096).unwrap();
    Db::destroy(&path).unwrap();
    Db::repair(&path).expect_err("there is nothing to repair");
    format(&path, &FormatOptions::new()).unwrap();
    // One that a repair would find again.
    Db::open(&path).unwrap().put(b"k", b"v").unwrap();
    for at in [0, MIB] {
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], at).unwrap();
    }
    Db::destroy(&path).unwrap();
    let repaired = Db::repair(&path).expect_err("there is nothing to repair");
    assert_eq!(repaired.kind(), ErrorKind::InvalidArgument, "{repaired}");
    assert_eq!(Db::destroy(&path).unwrap_err().kind(), ErrorKind::InvalidArgument);
    format(&path, &FormatOptions::new()).unwrap();
    let db = Db::open(&path).unwrap();
    assert!(db.is_empty().unwrap());
    db.close().unwrap();
}

/// Goal: the space of a copy's holes is the store's from its first opening on.
#[test]
fn holes_of_a_copy_are_filled() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("store.weir"), dir.path().join("copy.weir"));
    let keys = filled(&path, 64 * MIB);
    let bytes = std::fs::read(&path).unwrap();
    let file = std::fs::File::create(&copy).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (at, piece) in bytes.chunks(4096).enumerate().filter(|(_, p)| p.iter().any(|&b| b != 0)) {
        file.write_all_at(piece, at as u64 * 4096).unwrap();
    }
    let taken = || std::fs::metadata(&copy).unwrap().blocks() * 512;
    if taken() >= bytes.len() as u64 {
        println!("skipped: the file system of the temporary directory makes no holes");
        return;
    }
    let db = Db::builder(&copy).read_only(true).open().unwrap();
    db.close().unwrap();
    assert!(taken() < bytes.len() as u64, "an opening for reading changes nothing");
    let db = Db::open(&copy).unwrap();
    assert!(taken() >= bytes.len() as u64, "{} of {}", taken(), bytes.len());
    assert_eq!(db.iter().count() as u64, keys);
    db.close().unwrap();
}
