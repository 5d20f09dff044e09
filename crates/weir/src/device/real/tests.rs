//! Goal: real files obey the contract of `device`. Method: a temporary directory.

use super::*;

fn temp() -> (tempfile::TempDir, Arc<dyn Dir>) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let dir = RealDir::open(temp.path(), false).expect("it opens");
    (temp, dir)
}

/// Goal: bytes and lengths are right after a vectored write. Method: write in parts (more than the
/// maximum of one call, some of them empty), read back in one piece and past the end.
#[test]
fn writes_read_back() {
    let (_temp, dir) = temp();
    let file = dir.create("a", FileClass::Other).expect("created");
    let owned: Vec<Vec<u8>> = (0..3000u32).map(|i| vec![i as u8; (i % 7) as usize]).collect();
    let parts: Vec<&[u8]> = owned.iter().map(Vec::as_slice).collect();
    file.write_parts_at(&parts, 5).expect("written");
    let expected: Vec<u8> = [0; 5].into_iter().chain(owned.concat()).collect();
    assert_eq!(file.len().expect("length"), expected.len() as u64);
    let mut got = vec![0xff; expected.len() + 100];
    assert_eq!(file.read_at(&mut got, 0).expect("read"), expected.len());
    assert_eq!(got[..expected.len()], expected);
    assert_eq!(file.read_at(&mut got, 1 << 40).expect("read"), 0);
    file.write_parts_at(&[&[], &[]], 0).expect("nothing to write");
    file.write_back(0, 1000).expect("hint");
    file.sync().expect("synced");
    let error = file.read_exact_at(&mut [0; 2], expected.len() as u64 - 1).expect_err("too short");
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

/// Goal: allocated space is zeros without holes, and written bytes are kept. Method: allocate after
/// some bytes, compare content and the number of blocks of the file.
#[test]
fn allocated_space_is_zero_and_owned() {
    let (temp, dir) = temp();
    let file = dir.create("log", FileClass::Other).expect("created");
    file.write_at(b"head", 0).expect("written");
    let bytes = (2 << 20) + 123;
    file.allocate(bytes).expect("allocated");
    file.allocate(10).expect("a smaller size changes nothing");
    file.sync().expect("synced");
    assert_eq!(file.len().expect("length"), bytes);
    let mut got = vec![1; bytes as usize];
    file.read_exact_at(&mut got, 0).expect("read");
    assert_eq!(got[..4], *b"head");
    assert!(got[4..].iter().all(|&b| b == 0));
    let stat = fs::stat(temp.path().join("log")).expect("stat");
    assert!(stat.st_blocks as u64 * 512 >= bytes - 4096);
    file.set_len(4).expect("cut");
    assert_eq!(file.len().expect("length"), 4);
}

/// Goal: a synced write of one page into allocated space dirties that page only. (After zeros in
/// pieces of 16 KiB, which the page cache keeps as folios, each write dirties 16 KiB.) Method: the
/// kernel's count of bytes dirtied by this thread; always 0 on a file system in memory.
#[test]
fn a_page_of_allocated_space_is_dirtied_alone() {
    let (_temp, dir) = temp();
    let file = dir.create("log", FileClass::Other).expect("created");
    file.write_at(b"head", 0).expect("written");
    file.allocate(1 << 20).expect("allocated");
    file.sync().expect("synced");
    let dirtied = || {
        let io = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse::<u64>().ok())
    };
    let Some(before) = dirtied() else { return };
    for page in 1..9_u64 {
        file.write_at(&[1; 4096], page << 12).expect("written");
        file.sync().expect("synced");
    }
    let bytes = dirtied().expect("it was there before") - before;
    assert!(bytes <= 8 << 12, "{bytes} bytes dirtied for 8 pages");
}

/// Goal: exclusive creation, replacement by rename, sorted lists, errors by kind.
#[test]
fn names() {
    let (temp, dir) = temp();
    dir.create("b", FileClass::Other).expect("created").write_at(b"b", 0).expect("written");
    dir.create("a", FileClass::Other).expect("created").write_at(b"a", 0).expect("written");
    std::fs::create_dir(temp.path().join("sub")).expect("made");
    assert_eq!(dir.list().expect("list"), ["a", "b", "sub/"]);
    let kind = |r: Result<Arc<dyn File>>| r.err().map(|e| e.kind());
    assert_eq!(kind(dir.create("a", FileClass::Other)), Some(ErrorKind::Conflict));
    assert_eq!(kind(dir.open("x", FileClass::Other, Mode::Read)), Some(ErrorKind::NotFound));
    let reader = dir.open("b", FileClass::Other, Mode::Read).expect("opened");
    dir.rename("a", "b", FileClass::Other).expect("renamed");
    dir.sync().expect("synced");
    let mut byte = [0];
    reader.read_exact_at(&mut byte, 0).expect("an open file stays readable");
    assert_eq!(byte, *b"b");
    assert_eq!(dir.list().expect("list"), ["b", "sub/"]);
    dir.unlink("b", FileClass::Other).expect("removed");
    assert_eq!(dir.unlink("b", FileClass::Other).map_err(|e| e.kind()), Err(ErrorKind::NotFound));
    let reason = RealDir::open(temp.path().join("none"), false).err().expect("missing");
    assert_eq!(reason.kind(), ErrorKind::NotFound);
    RealDir::open(temp.path().join("deep/er"), true).expect("made with its parents");
}

/// Goal: one holder only, through any path (P11). Method: take the lock again through a second
/// handle, a symbolic link, a directory of hard links, and after the lock file was removed.
#[test]
fn second_lock_is_refused() {
    let (temp, dir) = temp();
    let refused = |dir: &Arc<dyn Dir>| {
        let error = dir.lock("LOCK").err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert!(error.to_string().contains(&dir.path()), "{error}");
    };
    let held = dir.lock("LOCK").expect("free");
    refused(&dir);
    let link = temp.path().join("../link-to-store").join(temp.path().file_name().expect("name"));
    std::fs::create_dir_all(link.parent().expect("parent")).expect("made");
    std::os::unix::fs::symlink(temp.path(), &link).expect("linked");
    refused(&RealDir::open(&link, false).expect("opened"));
    std::fs::remove_dir_all(link.parent().expect("parent")).expect("tidied");

    let copy = tempfile::tempdir().expect("a temporary directory");
    std::fs::hard_link(temp.path().join("LOCK"), copy.path().join("LOCK")).expect("linked");
    refused(&RealDir::open(copy.path(), false).expect("opened"));

    dir.unlink("LOCK", FileClass::Lock).expect("removed");
    refused(&RealDir::open(temp.path(), false).expect("opened"));
    drop(held);
    drop(dir.lock("LOCK").expect("free again"));
    drop(dir.lock("LOCK").expect("free again"));
}

/// Goal: another process excludes this one. Method: `flock(1)` holds the lock file meanwhile.
#[test]
fn other_process_is_refused() {
    let (temp, dir) = temp();
    let path = temp.path().join("LOCK");
    let Ok(mut holder) = std::process::Command::new("flock")
        .arg(&path)
        .args(["sh", "-c", "echo held; read line"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
    else {
        return; // No flock(1) on this machine.
    };
    let mut line = String::new();
    let mut out = std::io::BufReader::new(holder.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut out, &mut line).expect("it says so");
    assert_eq!(line, "held\n");
    assert_eq!(dir.lock("LOCK").err().map(|e| e.kind()), Some(ErrorKind::Locked));
    drop(holder.stdin.take());
    holder.wait().expect("ended");
    dir.lock("LOCK").expect("free");
}

/// Goal: a durable write is complete, also where the file grows, and a discarded range reads as
/// bytes of some kind, with its neighbours as they were. Method: a file of ones.
#[test]
fn durable_writes_and_discards() {
    let (_temp, dir) = temp();
    let file = dir.create("device", FileClass::Other).expect("created");
    file.write_at(&[1; 64 << 10], 0).expect("written");
    file.write_durable(&[2; 8192], 4096).expect("durable");
    file.write_durable(&[3; 100], 64 << 10).expect("the file grows");
    file.write_durable(&[], 1 << 20).expect("nothing to write");
    let mut bytes = vec![0; (64 << 10) + 101];
    assert_eq!(file.read_at(&mut bytes, 0).expect("read"), (64 << 10) + 100);
    assert!(bytes[..4096] == [1; 4096] && bytes[4096..12_288] == [2; 8192]);
    assert!(bytes[12_288..64 << 10].iter().all(|&byte| byte == 1));
    assert!(bytes[64 << 10..(64 << 10) + 100] == [3; 100]);
    match file.discard(16 << 10, 16 << 10) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
    }
    let before = bytes.clone();
    assert_eq!(file.read_at(&mut bytes, 0).expect("read"), (64 << 10) + 100);
    assert!(bytes[..16 << 10] == before[..16 << 10] && bytes[32 << 10..] == before[32 << 10..]);
}
