//! What every form of storage must do: one set of tests, run on each of them.
//!
//! Goal: the promises in `storage`. Method: each form gives a way to open a fresh store on the same
//! device again; the tests use the trait only.

use crate::base::error::{ErrorKind, Result};
use crate::base::ids::{segment, segments, uid};
use crate::base::prng::Prng;
use crate::device::Advice;
use crate::storage::{LogKind, Storage};

/// Opens the store, creating it if there is none. The one before must have been dropped.
type Open<'a> = &'a dyn Fn() -> Result<Box<dyn Storage>>;

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

/// All tests, for the store that `open` opens; it must be empty.
pub(super) fn check(open: Open<'_>) {
    root(open);
    tables(open);
    logs(open);
    read_errors(open);
}

fn root(open: Open<'_>) {
    let store = open().expect("opens");
    assert_eq!(store.read_root_record().expect("readable"), None);
    assert!(!store.path().is_empty());
    let roots: [&[u8]; 4] = [b"", b"one", &[0xab; 70_000], b"two"];
    for root in roots {
        store.write_root_record(root).expect("written");
        assert_eq!(store.read_root_record().expect("readable").as_deref(), Some(root));
    }
    assert_eq!(kind(open()), Some(ErrorKind::Locked), "one handle only");
    store.unlock();
    assert_eq!(kind(store.write_root_record(b"late")), Some(ErrorKind::Closed));
    assert_eq!(kind(store.create_table(uid(1), 0)), Some(ErrorKind::Closed));
    let next = open().expect("opens again");
    assert_eq!(
        store.read_root_record().expect("what is open reads on").as_deref(),
        Some(&b"two"[..])
    );
    drop((store, next));
    let store = open().expect("opens again");
    assert_eq!(store.read_root_record().expect("readable").as_deref(), Some(&b"two"[..]));
}

/// Tables read back what was appended in pieces of any size; uids are exclusive; lists are sorted.
fn tables(open: Open<'_>) {
    let store = open().expect("opens");
    let mut prng = Prng::new(11);
    let mut written = Vec::new();
    for uid in [3, 1_000_000, 2].map(uid) {
        let mut writer = store.create_table(uid, 0).expect("created");
        let mut bytes = Vec::new();
        for _ in 0..40 {
            let n = prng.below(100_000) as usize;
            let piece = vec![prng.next_u64() as u8; n];
            writer.append(&piece).expect("appended");
            bytes.extend_from_slice(&piece);
            assert_eq!(writer.len(), bytes.len() as u64);
        }
        assert_eq!(kind(store.create_table(uid, 0)), Some(ErrorKind::Conflict));
        store.sync_tables(vec![writer.end().expect("written")]).expect("durable");
        assert_eq!(kind(store.create_table(uid, 0)), Some(ErrorKind::Conflict));
        written.push((uid, bytes));
    }
    store.create_table(uid(4), 0).expect("created").abandon();
    let mut unfinished = store.create_table(uid(5), 1 << 20).expect("created");
    unfinished.append(b"x").expect("appended");
    drop(unfinished);
    let empty = store.create_table(uid(6), 0).expect("created").end();
    store.sync_tables(vec![empty.expect("written")]).expect("an empty one is one too");
    assert_eq!(store.list_tables().expect("list"), [2, 3, 5, 6, 1_000_000].map(uid));
    for (uid, bytes) in &written {
        let table = store.open_table(*uid).expect("opened");
        assert_eq!(table.len(), bytes.len() as u64);
        table.advise(0, 0, Advice::Random);
        for _ in 0..50 {
            let offset = prng.below(bytes.len() as u64) as usize;
            let n = prng.below((bytes.len() - offset) as u64 + 1) as usize;
            let mut buf = vec![0; n];
            table.read_exact_at(&mut buf, offset as u64).expect("inside");
            assert!(buf == bytes[offset..offset + n], "table {uid}, {n} bytes at {offset}");
        }
        let beyond = table.read_exact_at(&mut [0; 2], table.len() - 1);
        assert_eq!(kind(beyond), Some(ErrorKind::Corruption));
    }
    // Who has it open goes on reading after it was removed.
    let table = store.open_table(uid(3)).expect("opened");
    for uid in store.list_tables().expect("list") {
        store.remove_table(uid).expect("removed");
    }
    store.sync_names().expect("synced");
    let mut byte = [0];
    table.read_exact_at(&mut byte, 0).expect("still there");
    assert_eq!(byte[0], written[0].1[0]);
    assert_eq!(store.list_tables().expect("list"), []);
    assert_eq!(kind(store.open_table(uid(3))), Some(ErrorKind::NotFound));
    assert_eq!(kind(store.remove_table(uid(3))), Some(ErrorKind::NotFound));
}

/// Logs are allocated zeroed, found by kind and number, and recycled with their bytes.
fn logs(open: Open<'_>) {
    let store = open().expect("opens");
    let wal = store.create_log(LogKind::Wal, segment(7), 100_000).expect("created");
    assert_eq!(wal.capacity().expect("known"), 100_000);
    let mut bytes = vec![1; 100_001];
    assert_eq!(wal.read_at(&mut bytes, 0).expect("inside"), 100_000);
    assert_eq!(bytes.pop(), Some(1));
    assert!(bytes.iter().all(|&b| b == 0));
    wal.write_at(&[b"gro", b"up"], 50).expect("written");
    wal.sync().expect("synced");
    assert_eq!(kind(store.create_log(LogKind::Wal, segment(7), 0)), Some(ErrorKind::Conflict));
    let versions = store.create_log(LogKind::Versions, segment(7), 0).expect("another kind");
    assert_eq!(versions.capacity().expect("known"), 0);
    versions.write_at(&[b"edit", b"torn"], 0).expect("grows");
    versions.cut(4).expect("cut");
    assert_eq!(versions.capacity().expect("known"), 4);
    assert_eq!(kind(wal.cut(55)), Some(ErrorKind::Unsupported), "its size is fixed");
    store.create_log(LogKind::Wal, segment(1_234_567), 0).expect("created");
    drop((store, wal, versions));

    let store = open().expect("opens");
    assert_eq!(store.list_logs(LogKind::Wal).expect("list"), segments([7, 1_234_567]));
    assert_eq!(store.list_logs(LogKind::Versions).expect("list"), segments([7]));
    assert_eq!(
        kind(store.recycle_log(LogKind::Wal, segment(7), segment(1_234_567))),
        Some(ErrorKind::Conflict)
    );
    assert_eq!(
        kind(store.recycle_log(LogKind::Wal, segment(8), segment(9))),
        Some(ErrorKind::NotFound)
    );
    let recycled = store.recycle_log(LogKind::Wal, segment(7), segment(8)).expect("recycled");
    let mut group = [0; 5];
    assert_eq!(recycled.read_at(&mut group, 50).expect("inside"), 5);
    assert_eq!(&group, b"group");
    recycled.write_at(&[b"GROUP"], 50).expect("written");
    let opened = store.open_log(LogKind::Wal, segment(8)).expect("opened");
    assert_eq!(opened.read_at(&mut group, 50).expect("inside"), 5);
    assert_eq!(&group, b"GROUP");
    opened.write_at(&[b"!"], 55).expect("open for writing");
    assert_eq!(store.list_logs(LogKind::Wal).expect("list"), segments([8, 1_234_567]));
    for number in segments([8, 1_234_567]) {
        store.remove_log(LogKind::Wal, number).expect("removed");
    }
    store.remove_log(LogKind::Versions, segment(7)).expect("removed");
    store.sync_names().expect("synced");
    assert_eq!(store.list_logs(LogKind::Wal).expect("list"), segments([]));
}

fn read_errors(open: Open<'_>) {
    let store = open().expect("opens");
    assert_eq!(kind(store.open_table(uid(99))), Some(ErrorKind::NotFound));
    assert_eq!(kind(store.open_log(LogKind::Wal, segment(99))), Some(ErrorKind::NotFound));
    assert_eq!(kind(store.remove_log(LogKind::Wal, segment(99))), Some(ErrorKind::NotFound));
}

mod forms {
    use super::*;
    use crate::device::real::RealDir;
    use crate::storage::OpenOptions;
    use crate::storage::files::Files;

    const CREATE: OpenOptions = OpenOptions { create: true, read_only: false };

    #[test]
    fn files_in_a_real_directory() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("store");
        check(&|| Ok(Box::new(Files::open(RealDir::open(&path, true)?, CREATE)?)));
    }

    #[cfg(feature = "sim")]
    mod simulated {
        use std::sync::Arc;

        use super::*;
        use crate::base::sched::sim::Simulation;
        use crate::device::faulty::{Effect, ErrorCode, Fault, FaultyDir, Times};
        use crate::device::sim::crash::CrashPolicy;
        use crate::device::sim::{SimDisk, SimOptions};

        #[test]
        fn files_on_a_simulated_disk() {
            let disk = SimDisk::default();
            check(&|| Ok(Box::new(Files::open(disk.dir(), CREATE)?)));
        }

        #[test]
        fn files_in_a_simulation() {
            Simulation::run(1, |_| {
                let disk = SimDisk::default();
                check(&|| Ok(Box::new(Files::open(disk.dir(), CREATE)?)));
            });
        }

        /// What has been made durable, in order; marked in the trace when the call returned.
        const ROOT_ONE: u64 = 1;
        const TABLE: u64 = 2;
        const LOG: u64 = 3;
        const RECYCLED: u64 = 4;
        const ROOT_TWO: u64 = 5;

        fn run(disk: &SimDisk) -> Result<()> {
            let store = Files::open(disk.dir(), CREATE)?;
            store.write_root_record(b"one")?;
            disk.mark(ROOT_ONE);
            let mut writer = store.create_table(uid(1), 0)?;
            writer.append(&[7; 3000])?;
            store.sync_tables(vec![writer.end()?])?;
            disk.mark(TABLE);
            store.create_log(LogKind::Wal, segment(1), 5000)?;
            disk.mark(LOG);
            store.recycle_log(LogKind::Wal, segment(1), segment(2))?;
            disk.mark(RECYCLED);
            store.write_root_record(b"two")?;
            disk.mark(ROOT_TWO);
            Ok(())
        }

        /// Goal: what a call made durable survives every power cut after it, and the root is always
        /// the old or the new one (bug 30). Method: every boundary of a short run, every policy,
        /// some seeds.
        #[test]
        fn durable_means_durable() {
            let disk = SimDisk::new(SimOptions { record: true, ..SimOptions::default() });
            run(&disk).expect("runs");
            let mut replayer = disk.replayer();
            for boundary in 0..=replayer.len() {
                replayer.go_to(boundary);
                let done = replayer.marks().last().copied().unwrap_or(0);
                for (policy, seed) in CrashPolicy::ALL.into_iter().zip(0..).cycle().take(64) {
                    let place = format!("{policy:?} {seed} at\n{}", replayer.describe(5, 3));
                    let image = replayer.image(policy, seed + boundary as u64);
                    let store = Files::open(image.dir(), CREATE).expect(&place);
                    let root = store.read_root_record().expect(&place);
                    match root.as_deref() {
                        Some(b"one") => assert!(done < ROOT_TWO, "{place}"),
                        Some(b"two") => assert!(done >= RECYCLED, "{place}"),
                        Some(_) => panic!("a root that never was: {place}"),
                        None => assert!(done < ROOT_ONE, "{place}"),
                    }
                    if done >= TABLE {
                        let table = store.open_table(uid(1)).expect(&place);
                        let mut bytes = [0; 3000];
                        table.read_exact_at(&mut bytes, 0).expect(&place);
                        assert!(bytes == [7; 3000] && table.len() == 3000, "{place}");
                    }
                    if done >= LOG {
                        let logs = store.list_logs(LogKind::Wal).expect(&place);
                        assert!(logs == segments([1]) || logs == segments([2]), "{logs:?} {place}");
                        assert!(done < RECYCLED || logs == segments([2]), "{place}");
                        let log = store.open_log(LogKind::Wal, logs[0]).expect(&place);
                        assert_eq!(log.capacity().expect(&place), 5000, "{place}");
                    }
                }
            }
        }

        /// Goal: no failed call leaves the store unusable, and a root that was written is not lost.
        /// Method: fail every call of the run, once, with every kind of effect; heal, cut the
        /// power, open again, run again on fresh numbers.
        #[test]
        fn every_call_may_fail() {
            let effects = [
                Effect::Fail(ErrorCode::Eio),
                Effect::Fail(ErrorCode::Enospc),
                Effect::FailButDone(ErrorCode::Eio),
                Effect::ShortWrite(ErrorCode::Enospc, 4),
                Effect::LoseDirty(true),
            ];
            let run = |dir: &Arc<FaultyDir>, n: u64| -> Result<()> {
                let store = Files::open(Arc::<FaultyDir>::clone(dir), CREATE)?;
                store.write_root_record(&[n as u8])?;
                let mut writer = store.create_table(uid(n), 0)?;
                writer.append(&[7; 3000])?;
                store.sync_tables(vec![writer.end()?])?;
                let log = segment(2 * n);
                store.create_log(LogKind::Wal, log, 100)?;
                store.recycle_log(LogKind::Wal, log, log.next())?;
                store.write_root_record(&[n as u8 + 100])
            };
            for effect in effects {
                for after in 0.. {
                    let disk = SimDisk::default();
                    let dir = Arc::new(FaultyDir::over_disk(&disk));
                    let faults = dir.faults();
                    let times = Times::Once;
                    faults.arm(Fault { op: None, class: None, after, times, effect });
                    let result = run(&dir, 1);
                    if faults.injected_total() == 0 {
                        assert!(result.is_ok() && after > 20);
                        break;
                    }
                    assert!(result.is_err(), "call {after} failed unseen: {effect:?}");
                    faults.heal();
                    let disk = disk.crash(CrashPolicy::All, after);
                    let dir = Arc::new(FaultyDir::over_disk(&disk));
                    let store = Files::open(disk.dir(), CREATE).expect("opens");
                    let root = store.read_root_record().expect("sound");
                    assert!(root.is_none_or(|r| r == [1] || r == [101]));
                    drop(store);
                    run(&dir, 2).expect("healed");
                }
            }
        }
    }
}
