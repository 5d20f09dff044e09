//! A fork of the process that has a store open changes nothing in it, and keeps no lock.

use std::io::Write;
use std::os::fd::AsRawFd;

use weir::{Db, Durability, Error, ErrorKind};

unsafe extern "C" {
    fn fork() -> i32;
    fn read(fd: i32, buf: *mut u8, bytes: usize) -> isize;
    fn _exit(code: i32) -> !;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
}

/// Goal: in a fork every change of the store and its close are refused, and nothing of them reaches
/// its files; the lock goes when the parent closes the store, though the fork lives on.
/// Method: the child reports by its exit code, after the parent has let it go.
#[test]
fn a_fork_changes_nothing_and_keeps_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    db.put_with(b"before", b"1", Durability::Sync).unwrap();
    let (wait, mut go) = std::io::pipe().unwrap();
    let refused = |result: Result<(), Error>| {
        result.is_err_and(|e| e.kind() == ErrorKind::Closed && e.to_string().contains("fork"))
    };
    // SAFETY: the child takes no lock that another thread of this process may hold: it gets errors
    // from the store, waits in the kernel and ends without running anything else.
    let child = unsafe { fork() };
    if child == 0 {
        let is_refused = refused(db.put(b"child", b"1"))
            && refused(db.put_with(b"child", b"1", Durability::Sync))
            && refused(db.flush())
            && refused(db.sync())
            && refused(db.clone().close());
        let mut byte = 0;
        // SAFETY: one byte of this stack frame, and a descriptor that stays open.
        let got = unsafe { read(wait.as_raw_fd(), &raw mut byte, 1) };
        let code = if !is_refused { 1 } else { i32::from(got != 1) * 2 };
        // SAFETY: ends the child, whatever it holds.
        unsafe { _exit(code) };
    }
    assert!(child > 0, "there is no process for the test");
    db.put_with(b"parent", b"1", Durability::Sync).unwrap();
    db.close().unwrap();
    // The child lives, and has all descriptors.
    let again = Db::open(dir.path().join("db"));
    go.write_all(b"!").unwrap();
    let mut status = -1;
    // SAFETY: `status` outlives the call.
    let ended = unsafe { waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "the child was not refused, or did not end");
    let db = again.expect("the lock goes with the close");
    for key in [&b"before"[..], b"parent"] {
        assert!(db.get(key).unwrap().is_some());
    }
    assert_eq!(db.get(b"child").unwrap(), None);
    db.close().unwrap();
}
