//! What a store costs of which little is asked: bytes on disk, and syncs that its writers wait for.
#![expect(clippy::disallowed_methods, reason = "it looks at the files themselves")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use weir::{Db, Durability};

/// Bytes that a store of one pair takes at most, in lengths of files and in allocated blocks.
const ONE_PAIR_BYTES_MAX: u64 = 300 << 10;

/// The lengths of a directory's files, and the bytes that are allocated for them.
fn lengths_and_allocated(path: &Path) -> (u64, u64) {
    let files = std::fs::read_dir(path).unwrap().map(|file| file.unwrap().metadata().unwrap());
    files.fold((0, 0), |sum, file| (sum.0 + file.len(), sum.1 + file.blocks() * 512))
}

/// Bytes that one flush adds to it at most: a table of one pair, and an edit that is padded to
/// 4 KiB.
const FLUSH_BYTES_MAX: u64 = 8 << 10;

/// Goal: a store of one pair is small, and opening it again and again adds nothing to it but, once,
/// the flush that an opening may start and not finish before it is closed.
#[test]
fn one_pair_takes_little() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    db.put_with(b"key", b"value", Durability::Sync).unwrap();
    db.close().unwrap();
    let (lengths, allocated) = lengths_and_allocated(dir.path());
    assert!(lengths < ONE_PAIR_BYTES_MAX, "{lengths} bytes");
    assert!(allocated < ONE_PAIR_BYTES_MAX, "{allocated} bytes are allocated");
    // More often than an old log may stay.
    for opening in 1..=6 {
        let db = Db::open(dir.path()).unwrap();
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]), "opening {opening}");
        db.close().unwrap();
        let found = lengths_and_allocated(dir.path());
        let most = lengths + FLUSH_BYTES_MAX;
        assert!(found.0 <= most, "{} > {most} bytes after opening {opening}", found.0);
        // A file system may allocate late.
        assert!(found.1 < ONE_PAIR_BYTES_MAX, "{} bytes after opening {opening}", found.1);
    }
}

/// Goal: a synced write pays one sync of the log and no other, from the first of an opening on,
/// which pays for the zeros of its segment too. Method: fewer writes than make the next segment
/// due.
#[cfg(feature = "sim")]
#[test]
fn a_synced_put_is_one_sync() {
    use weir::sim::{FileClass, OpKind, SimDisk};

    let disk = SimDisk::default();
    // Syncs of the log, of the directory, of everything else.
    let syncs = || {
        let calls = |op, class| disk.counters().get(op, class).calls;
        let files = FileClass::ALL.map(|class| calls(OpKind::Sync, class)).iter().sum::<u64>();
        let log = calls(OpKind::Sync, FileClass::Wal);
        [log, calls(OpKind::SyncDir, FileClass::Directory), files - log]
    };
    for opening in 0..3 {
        let db = Db::builder("sim").device(disk.dir()).seed(1).open().unwrap();
        // What an opening makes of the log of the last one.
        db.wait_idle().unwrap();
        for n in 0..7_u32 {
            let before = syncs();
            db.put_with(n.to_be_bytes(), b"value", Durability::Sync).unwrap();
            let after = syncs();
            let paid = [0, 1, 2].map(|i| after[i] - before[i]);
            let expected = if n == 0 { [2, 1, 0] } else { [1, 0, 0] };
            assert_eq!(paid, expected, "put {n} after opening {opening}");
        }
        db.close().unwrap();
    }
}
