//! A store on a real block device: a loop device, which needs root.

#![expect(clippy::disallowed_methods, reason = "a loop device is made and taken down")]

use std::path::{Path, PathBuf};
use std::process::Command;

use weir::{Db, Durability, ErrorKind, FormatOptions, format};

/// A loop device over a file, taken down when it is dropped, in a panic too.
struct Loop {
    device: PathBuf,
    image: PathBuf,
    _dir: tempfile::TempDir,
}

impl Loop {
    /// `None`, and why is printed, where there are none.
    fn of(bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
        match output {
            Ok(output) if output.status.success() => {
                let device = String::from_utf8(output.stdout).unwrap().trim().into();
                Some(Self { device, image, _dir: dir })
            }
            other => {
                println!("skipped: a loop device needs root and losetup: {other:?}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The next image that the device is given would be protected, too.
        let _ = Command::new("blockdev").arg("--setrw").arg(&self.device).status();
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

fn refused(path: &Path) -> ErrorKind {
    Db::open(path).expect_err("it is refused").kind()
}

/// Goal: a block device is formatted, written, closed, opened and read as a store in a file; who
/// has it open has it alone, by whatever door.
#[test]
fn a_store_on_a_block_device() {
    let Some(disk) = Loop::of(96 << 20) else { return };
    assert_eq!(refused(&disk.device), ErrorKind::InvalidArgument, "it was never formatted");
    format(&disk.device, &FormatOptions::new()).unwrap();
    let options = weir::Options::default().write_buffer_bytes(1 << 20);
    let db = Db::builder(&disk.device).default_options(options).open().unwrap();
    for n in 0..30_000u32 {
        let durability = if n % 100 == 0 { Durability::Sync } else { Durability::Buffered };
        db.put_with(n.to_be_bytes(), [n as u8; 200], durability).unwrap();
    }
    assert_eq!(refused(&disk.device), ErrorKind::Locked);
    assert_eq!(refused(&disk.image), ErrorKind::Locked, "the file behind it");
    let linked = disk._dir.path().join("a-hard-link");
    std::fs::hard_link(&disk.image, &linked).unwrap();
    assert_eq!(refused(&linked), ErrorKind::Locked, "the file behind it, by another name");
    let again = disk._dir.path().join("another-name");
    std::os::unix::fs::symlink(&disk.device, &again).unwrap();
    assert_eq!(refused(&again), ErrorKind::Locked);
    db.close().unwrap();
    let db = Db::open(&disk.device).unwrap();
    assert!(db.verify().unwrap().damages.is_empty());
    assert_eq!(db.iter().count(), 30_000);
    db.wait_idle().unwrap();
    assert!(db.slot_space().unwrap().owned > 0);
    // Closing gives the device back, whoever has a handle still.
    let (clone, snapshot, cursor) = (db.clone(), db.snapshot(), db.cursor());
    db.close().unwrap();
    let db = Db::open(&disk.device).expect("it was closed");
    assert_eq!(clone.get(b"k").expect_err("closed").kind(), ErrorKind::Closed);
    drop((db, clone, snapshot, cursor));
    let formatted = format(&disk.device, &FormatOptions::new()).expect_err("it holds a store");
    assert!(formatted.to_string().contains("a Weir store"), "{formatted}");
}

/// Goal: who writes to a device that is protected from writes is told how to see that, and can read
/// what is there.
#[test]
fn a_device_that_is_protected_from_writes() {
    let Some(disk) = Loop::of(64 << 20) else { return };
    format(&disk.device, &FormatOptions::new()).unwrap();
    let db = Db::open(&disk.device).unwrap();
    db.put_with(b"k", b"v", Durability::Sync).unwrap();
    db.close().unwrap();
    match Command::new("blockdev").arg("--setro").arg(&disk.device).status() {
        Ok(status) if status.success() => {}
        other => return println!("skipped: no blockdev: {other:?}"),
    }
    for error in [
        Db::open(&disk.device).and_then(|db| db.put(b"k", b"w")).expect_err("it is protected"),
        format(&disk.device, &FormatOptions::new().force(true)).expect_err("it is protected"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains("blockdev --getro"), "{error}");
    }
    let db = Db::builder(&disk.device).read_only(true).open().unwrap();
    assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// Goal: what is on a device is not lost by a slip: a file system, mounted or not.
#[test]
fn a_file_system_is_not_formatted_over() {
    let Some(disk) = Loop::of(32 << 20) else { return };
    match Command::new("mkfs.ext4").arg("-q").arg(&disk.device).status() {
        Ok(status) if status.success() => {}
        other => return println!("skipped: no mkfs.ext4: {other:?}"),
    }
    let error = format(&disk.device, &FormatOptions::new()).expect_err("it holds something");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("ext4"), "{error}");
    let at = disk._dir.path().join("at");
    std::fs::create_dir(&at).unwrap();
    match Command::new("mount").arg(&disk.device).arg(&at).status() {
        Ok(status) if status.success() => {}
        other => return println!("skipped: it cannot be mounted: {other:?}"),
    }
    let mut options = FormatOptions::new();
    options.force = true;
    let mounted = format(&disk.device, &options).map_err(|e| e.kind());
    Command::new("umount").arg(&at).status().unwrap();
    assert_eq!(mounted, Err(ErrorKind::Locked), "not even by force");
}
