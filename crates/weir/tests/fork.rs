//! A fork of the process that has a store open changes nothing in it, and keeps no lock of a store
//! that was closed.

#![expect(clippy::disallowed_methods, reason = "tests wait for processes in real time")]

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use weir::{Db, Durability, Error, ErrorKind, Result};

unsafe extern "C" {
    fn fork() -> i32;
    fn read(fd: i32, buf: *mut u8, bytes: usize) -> isize;
    fn _exit(code: i32) -> !;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
    fn kill(process: i32, signal: i32) -> i32;
}

/// Lets one test run at a time: a fork of one must not have the locks that another's threads hold.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a fork: its process, or `None` in it. It ends after a minute if nothing else ends it.
///
/// The caller has no thread that does anything but wait, so that the fork inherits no held lock.
fn forked() -> Option<i32> {
    // SAFETY: as said above, the child may do what the calling thread may.
    let process = unsafe { fork() };
    assert!(process >= 0, "there is no process for the test");
    if process > 0 {
        return Some(process);
    }
    // SAFETY: no memory is involved.
    unsafe { alarm(60) };
    None
}

fn end(code: i32) -> ! {
    // SAFETY: ends the fork, whatever it holds, and runs nothing of the test's.
    unsafe { _exit(code) }
}

/// How the fork `process` ended.
fn ending(process: i32) -> i32 {
    let mut status = -1;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { waitpid(process, &raw mut status, 0) }, process);
    status
}

/// Reads the one byte that says that the other side is there.
fn wait_for(mut pipe: &std::io::PipeReader) -> bool {
    pipe.read_exact(&mut [0]).is_ok()
}

fn tell(mut pipe: &std::io::PipeWriter) {
    pipe.write_all(b"!").unwrap();
}

/// `Locked`, in words that tell of forks and name the lock.
fn is_locked(opened: Result<Db>) -> bool {
    opened.is_err_and(|e| {
        let said = e.to_string();
        e.kind() == ErrorKind::Locked && said.contains("fork") && said.contains("/LOCK")
    })
}

/// Whether the kernel has a lock on the store at `path`, whatever this process notes about it.
fn has_lock(path: &Path) -> bool {
    [path.join("LOCK"), path.to_owned()].iter().all(|path| {
        let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
    })
}

/// Goal: in a fork every change of the store and its close are refused, and nothing of them reaches
/// its files; the lock goes when the parent closes the store, though the fork lives on.
/// Method: the child reports by its exit code, after the parent has let it go.
#[test]
fn a_fork_changes_nothing_and_keeps_no_lock() {
    let _alone = alone();
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

/// Goal: the advice that a fork gets is true: it may open the store once its parent has closed it,
/// and is refused before, without harm to the parent's lock. What the parent had noted about its
/// own lock kept the fork out for ever. Method: the parent has it open for reading, and so has no
/// threads: one that took a lock at the moment of the fork would leave it to the fork for ever.
#[test]
fn a_fork_opens_what_its_parent_has_closed() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    db.put_with(b"before", b"1", Durability::Sync).unwrap();
    db.close().unwrap();
    let db = Db::builder(&path).read_only(true).open().unwrap();
    let ((wait, go), (hear, said)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let Some(child) = forked() else {
        // Twice: a refusal leaves nothing behind.
        let is_refused = is_locked(Db::open(&path)) && is_locked(Db::open(&path));
        tell(&said);
        if !wait_for(&wait) || !is_refused {
            end(1);
        }
        // The parent's handle stays, and what was noted with it.
        let Ok(db) = Db::open(&path) else { end(2) };
        // What is noted of its own lock counts.
        let own = Db::open(&path).is_err_and(|e| e.to_string().contains("this process already"));
        let before = db.get(b"before").is_ok_and(|value| value.is_some());
        let put = db.put_with(b"child", b"1", Durability::Sync).and_then(|()| db.close());
        let again = Db::open(&path).and_then(Db::close);
        end(if own && before && put.is_ok() && again.is_ok() { 0 } else { 3 });
    };
    assert!(wait_for(&hear), "the child is gone");
    assert!(has_lock(&path), "the child has given up its parent's lock");
    assert!(db.get(b"before").unwrap().is_some());
    db.close().unwrap();
    assert!(!has_lock(&path));
    tell(&go);
    assert_eq!(ending(child), 0, "1: not refused, 2: not let in, 3: not as in any other process");
    let db = Db::open(&path).unwrap();
    for key in [&b"before"[..], b"child"] {
        assert!(db.get(key).unwrap().is_some());
    }
    db.close().unwrap();
}

/// Goal: a fork that drops its handles of a store leaves its parent's lock alone. Method: a store
/// opened for reading, whose handles are all that keeps it: no thread of it is missing in a fork.
#[test]
fn a_fork_gives_up_no_lock_of_its_parent() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    Db::open(dir.path()).unwrap().close().unwrap();
    let db = Db::builder(dir.path()).read_only(true).open().unwrap();
    let Some(child) = forked() else {
        drop(db);
        end(i32::from(!is_locked(Db::open(dir.path()))));
    };
    assert_eq!(ending(child), 0, "the child was let in");
    assert!(has_lock(dir.path()), "the child has given up its parent's lock");
    let error = Db::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("this process already"), "{error}");
    db.close().unwrap();
    assert!(!has_lock(dir.path()));
}

/// Goal: what is said of a process that is killed: its forks keep the lock until they end, and the
/// refusal says so, in them and elsewhere.
#[test]
fn forks_of_a_killed_process_keep_its_lock() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let ((wait, go), (mut hear, said)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let Some(parent) = forked() else {
        let written = Db::open(&path).and_then(|db| {
            db.put_with(b"a", b"1", Durability::Sync)?;
            db.close()
        });
        // For reading: without threads, whose locks the fork could inherit.
        let opened = written.and_then(|()| Db::builder(&path).read_only(true).open());
        let Ok(_db) = opened else { end(1) };
        if forked().is_none() {
            if wait_for(&wait) && is_locked(Db::open(&path)) {
                tell(&said);
            }
            wait_for(&wait);
            end(0);
        }
        tell(&said);
        std::thread::sleep(Duration::from_secs(60));
        end(3);
    };
    assert!(wait_for(&hear));
    drop(said);
    const SIGKILL: i32 = 9;
    // SAFETY: a process of this test, which has not been waited for yet.
    assert_eq!(unsafe { kill(parent, SIGKILL) }, 0);
    assert_eq!(ending(parent), SIGKILL);
    assert!(is_locked(Db::open(&path)), "the fork has the lock");
    tell(&go);
    assert!(wait_for(&hear), "the fork was let in, or not told why");
    assert!(is_locked(Db::open(&path)), "the fork has the lock");
    tell(&go);
    // It is nobody's child here: its end shows in what it had open.
    assert_eq!(hear.read_to_end(&mut Vec::new()).unwrap(), 0);
    let begun = Instant::now();
    let db = loop {
        match Db::open(&path) {
            Ok(db) => break db,
            Err(e) => assert!(begun.elapsed() < Duration::from_secs(10), "{e}"),
        }
    };
    assert!(db.get(b"a").unwrap().is_some());
    db.close().unwrap();
}
