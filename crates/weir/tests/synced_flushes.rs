//! What a synced commit costs a real device, by the kernel's own counter (H36).
//!
//! Needs root, `mkfs.ext4` and loop devices; without them it says so and passes.

mod mounted;

use std::path::Path;

use mounted::Mounted;
use weir::{Db, Durability};

/// Enough for five segments of the log, of which the first is a small part.
const COMMITS: u64 = 400;

/// Flushes of the device that is mounted at `at`, since it was made.
fn flushes(at: &Path) -> Result<u64, String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(|e| e.to_string())?;
    let source = mounts.lines().find_map(|line| {
        let (device, rest) = line.split_once(' ')?;
        (rest.split(' ').next()? == at.to_str()?).then_some(device)
    });
    let name = source.and_then(|device| device.strip_prefix("/dev/")).ok_or("no device")?;
    // Documentation/block/stat.rst of the kernel: the 16th number, since Linux 5.5.
    let stat = std::fs::read_to_string(format!("/sys/block/{name}/stat"));
    let stat = stat.map_err(|e| format!("/sys/block/{name}/stat: {e}"))?;
    let count = stat.split_whitespace().nth(15).and_then(|number| number.parse().ok());
    count.ok_or_else(|| format!("{name} does not count flushes: {stat}"))
}

/// Goal: a synced commit is one flush of the device, from the first one of an opening on. Where a
/// segment is not written before its groups are, the file system adds a journal commit to each.
/// Method: commits one by one into a new store, and into one that was opened again, beside what the
/// preparation of segments costs: a twentieth.
#[test]
fn a_synced_commit_is_one_flush() {
    let mounted = match Mounted::new(256 << 20, &[]) {
        Ok(mounted) => mounted,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let count = || flushes(&mounted.at);
    if let Err(why) = count() {
        println!("skipped: {why}");
        return;
    }
    let count = || count().expect("counted before");
    for life in ["new", "opened again"] {
        let db = Db::builder(mounted.at.join("db")).open().expect("opens");
        for commits in [COMMITS / 10, COMMITS] {
            let before = count();
            for number in 0..commits {
                db.put_with(number.to_be_bytes(), [7; 100], Durability::Sync).expect("written");
            }
            let flushes = count() - before;
            println!("{life}: {flushes} flushes of {commits} commits");
            assert!(flushes >= commits, "{life}: commits that are not durable");
            // Two files of a log, each with a sync and a name, or one for each hundred commits.
            let besides = 16 + commits / 20;
            assert!(flushes <= commits + besides, "{life}: {flushes} flushes of {commits} commits");
        }
        db.close().expect("closes");
    }
}
