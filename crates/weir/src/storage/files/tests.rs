//! Names, the root's frame, and which directories are opened.

use super::*;
use crate::base::ids::NUMBERS_END;
use crate::base::ids::{segment, uid};
use crate::device::real::RealDir;

const CREATE: OpenOptions = OpenOptions { create: true, read_only: false };

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

#[test]
fn names_have_one_spelling() {
    for number in [0, 7, 999_999, 1_000_000, NUMBERS_END - 1] {
        let (table, log) = (uid(number), segment(number));
        assert_eq!(parse_name(&table_name(table)), Some(Name::Table(table)));
        for kind in [LogKind::Wal, LogKind::Versions] {
            assert_eq!(parse_name(&log_name(kind, log)), Some(Name::Log(kind, log)));
        }
    }
    for name in [
        "7.tbl",
        "0000007.tbl",
        "00000x.tbl",
        "+00007.tbl",
        "wal-.log",
        "000001.log",
        "18446744073709551615.tbl",
        "18446744073709551616.tbl",
        "72057594037927936.tbl",
        "wal-72057594037927936.log",
        "ROOT2",
        "",
        "wal-000001.tbl",
        "lost-LOCK",
        "lost-notes.txt",
        "lost-000001.tbl.02",
        "lost-000001.tbl.",
        "lost-lost-ROOT",
    ] {
        assert_eq!(parse_name(name), None, "{name}");
    }
    for object in
        [Object::Root, Object::Table(uid(7)), Object::Log(LogKind::Wal, segment(1_000_000))]
    {
        for suffix in ["", ".2", ".10"] {
            let name = format!("lost-{}{suffix}", file_name(object));
            assert_eq!(parse_name(&name), Some(Name::Lost(object)), "{name}");
        }
    }
}

/// Goal: a damaged root is an error, never another root (P6). Method: every bit flipped, every
/// length cut, one byte more.
#[test]
fn damaged_roots_are_refused() {
    let frame = encode_root(b"the root's payload");
    assert_eq!(decode_root("ROOT", &frame).expect("sound"), b"the root's payload");
    for bit in 0..frame.len() * 8 {
        let mut bad = frame.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(kind(decode_root("ROOT", &bad)), Some(ErrorKind::Corruption), "bit {bit}");
    }
    for len in 0..frame.len() {
        assert_eq!(kind(decode_root("ROOT", &frame[..len])), Some(ErrorKind::Corruption));
    }
    let longer = [&frame[..], &[0]].concat();
    assert_eq!(kind(decode_root("ROOT", &longer)), Some(ErrorKind::Corruption));
}

/// Goal: the worked example in docs/format/directory.md is what the code writes.
#[test]
fn worked_example() {
    let hex: String = encode_root(b"abc").iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "57454952524f4f540100000003000000616263f0a30b67");
}

/// Goal: a newer frame is refused by name, not called damage (P12).
#[test]
fn newer_frame_is_unsupported() {
    let mut frame = encode_root(b"x");
    frame[8] = 2;
    let end = frame.len() - ROOT_CRC_BYTES;
    let crc = checksum::mask(checksum::crc(&frame[..end]));
    frame[end..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(kind(decode_root("ROOT", &frame)), Some(ErrorKind::Unsupported));
}

/// Goal: somebody else's directory, a store whose root was lost, and the absence of a store are
/// told apart, and none of them is changed. Method: open each, compare the names before and
/// after.
#[test]
fn what_is_not_a_store_is_left_alone() {
    let cases: [(&[&str], bool, ErrorKind); 5] = [
        (&["holiday.jpg"], true, ErrorKind::InvalidArgument),
        (&["000001.tbl", "notes.txt"], true, ErrorKind::InvalidArgument),
        (&["000001.tbl", "LOCK", "versions-000001.log"], true, ErrorKind::Corruption),
        (&["wal-000001.log"], true, ErrorKind::Corruption),
        (&["LOCK", "ROOT.tmp"], false, ErrorKind::NotFound),
    ];
    for (names, create, expected) in cases {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = RealDir::open(temp.path(), false).expect("opened");
        for name in names {
            dir.create(name, class_of(name)).expect("created");
        }
        let options = OpenOptions { create, read_only: false };
        assert_eq!(kind(Files::open(Arc::clone(&dir), options)), Some(expected), "{names:?}");
        assert_eq!(dir.list().expect("list"), names.to_vec());
    }
}

/// Goal: destroying takes our files and leaves the others; an open store is not destroyed.
#[test]
fn destroy_takes_only_ours() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let dir = RealDir::open(temp.path(), false).expect("opened");
    assert_eq!(kind(Files::destroy(&*dir)), Some(ErrorKind::NotFound));
    let files = Files::open(Arc::clone(&dir), CREATE).expect("opened");
    files.write_root_record(b"r", segment(1)).expect("written");
    let table = files.create_table(uid(3), 0).expect("created").end().expect("written");
    files.sync_tables(vec![table]).expect("durable");
    assert_eq!(kind(Files::destroy(&*dir)), Some(ErrorKind::Locked));
    drop(files);
    dir.create("notes.txt", FileClass::Other).expect("created");
    Files::destroy(&*dir).expect("destroyed");
    assert_eq!(dir.list().expect("list"), ["notes.txt"]);
    // A directory of somebody else's, who may have a lock of that name too.
    for name in ["notes.txt", "LOCK"] {
        drop(dir.create(name, class_of(name)));
        assert_eq!(kind(Files::destroy(&*dir)), Some(ErrorKind::InvalidArgument));
        assert!(dir.list().expect("list").iter().any(|n| n == name));
    }
}

/// Goal: what a crashed creation leaves does not stand in the way of the next one.
#[test]
fn crashed_creation_is_cleared() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let dir = RealDir::open(temp.path(), false).expect("opened");
    for name in ["LOCK", "ROOT.tmp", "versions-000001.log"] {
        dir.create(name, class_of(name)).expect("created");
    }
    std::fs::create_dir(temp.path().join("lost+found")).expect("made");
    let files = Files::open(Arc::clone(&dir), CREATE).expect("opened");
    assert_eq!(dir.list().expect("list"), ["LOCK", "lost+found/"]);
    files.create_log(LogKind::Versions, segment(1), 0).expect("the number is free");
    files.write_root_record(b"r", segment(1)).expect("written");
    assert_eq!(kind(Files::open(Arc::clone(&dir), CREATE)), Some(ErrorKind::Locked));
    drop(files);

    let reader = Files::open(dir, OpenOptions { create: true, read_only: true }).expect("opened");
    assert_eq!(reader.read_root_record().expect("sound"), Some(b"r".to_vec()));
    assert_eq!(kind(reader.write_root_record(b"s", segment(1))), Some(ErrorKind::ReadOnly));
    assert_eq!(kind(reader.create_table(uid(1), 0)), Some(ErrorKind::ReadOnly));
    assert_eq!(kind(reader.remove_log(LogKind::Versions, segment(1))), Some(ErrorKind::ReadOnly));
}
