//! What every form of storage must do: one set of tests, run on each of them.
//!
//! Goal: the promises in `storage`. Method: each form gives a way to open a store, a new one or the
//! same again; the tests use the trait only. They begin logs as `log` does, because a form without
//! names finds one by its first group. On a simulated disk the power is cut at every request, and
//! every call fails once.

use std::sync::Arc;

use crate::base::error::{ErrorKind, Result};
use crate::base::ids::{Lineage, Lsn, Nonce, SegmentNumber, TableUid, segment, segments, uid};
use crate::base::place::Place;
use crate::base::prng::Prng;
use crate::device::Advice;
use crate::log::{GroupLink, SegmentIdentity, SegmentWriter};
use crate::storage::{LiveTable, LogKind, LogRegion, ROOT_RECORD_BYTES_MAX, Storage};

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

/// A table as its writer left it.
struct Written {
    uid: TableUid,
    place: Place,
    bytes: Vec<u8>,
}

/// Writes a table.
fn write(store: &dyn Storage, uid: TableUid, pieces: &[&[u8]]) -> Result<Written> {
    let mut writer = store.create_table(uid, 0)?;
    let mut bytes = Vec::new();
    for piece in pieces {
        writer.append(piece)?;
        bytes.extend_from_slice(piece);
        assert_eq!(writer.len(), bytes.len() as u64);
    }
    let written = writer.end()?;
    let place = written.place();
    store.sync_tables(vec![written])?;
    Ok(Written { uid, place, bytes })
}

/// Tells the store that these tables live.
fn adopt(store: &dyn Storage, tables: &[Written]) -> Result<()> {
    let live = |table: &Written| (table.uid, table.place.clone(), table.bytes.len() as u64);
    let live: Vec<_> = tables.iter().map(live).collect();
    let live = live.iter().map(|(uid, place, bytes)| LiveTable { uid: *uid, place, bytes: *bytes });
    store.adopt(&mut live.into_iter())
}

/// Begins a log that was created or recycled, durably.
fn start(region: &Arc<dyn LogRegion>, kind: LogKind, number: SegmentNumber) -> Result<u64> {
    let lineage = Lineage::new(7);
    let identity =
        SegmentIdentity { kind, segment: number, lineage, opening: 1, nonce: Nonce::NONE };
    let origin = GroupLink::ORIGIN;
    let writer = SegmentWriter::start(Arc::clone(region), identity, origin, Lsn::ZERO)?;
    region.sync()?;
    Ok(writer.position().offset)
}

fn root(open: Open<'_>) {
    let log = segment(1);
    let store = open().expect("opens");
    assert_eq!(store.read_root_record().expect("readable"), None);
    assert!(!store.path().is_empty());
    let roots: [&[u8]; 4] = [b"", b"one", &[0xab; ROOT_RECORD_BYTES_MAX], b"two"];
    for root in roots {
        store.write_root_record(root, log).expect("written");
        assert_eq!(store.read_root_record().expect("readable").as_deref(), Some(root));
    }
    assert_eq!(kind(open()), Some(ErrorKind::Locked), "one handle only");
    store.unlock();
    assert_eq!(kind(store.write_root_record(b"late", log)), Some(ErrorKind::Closed));
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

/// Tables read back what was appended in pieces of any size, also after they were adopted by the
/// next opening; uids are exclusive; lists are sorted.
fn tables(open: Open<'_>) {
    let store = open().expect("opens");
    adopt(&*store, &[]).expect("none");
    let mut prng = Prng::new(11);
    let mut written = Vec::new();
    for uid in [3, 1_000_000, 2].map(uid) {
        let mut piece = |_| vec![prng.next_u64() as u8; prng.below(100_000) as usize];
        let pieces: Vec<Vec<u8>> = (0..40).map(&mut piece).collect();
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        written.push(write(&*store, uid, &pieces).expect("written"));
        assert_eq!(kind(store.create_table(uid, 0)), Some(ErrorKind::Conflict));
    }
    written.push(write(&*store, uid(6), &[]).expect("an empty one is one too"));
    store.create_table(uid(4), 0).expect("created").abandon();
    let mut unfinished = store.create_table(uid(5), 1 << 20).expect("created");
    assert_eq!(kind(store.create_table(uid(5), 0)), Some(ErrorKind::Conflict));
    unfinished.append(b"x").expect("appended");
    drop(unfinished);
    // Whether one that was dropped is there is the form's affair.
    let listed = |store: &dyn Storage| {
        let mut uids = store.list_tables().expect("list");
        uids.retain(|&listed| listed != uid(5));
        uids
    };
    for _ in 0..2 {
        assert_eq!(listed(&*store), [2, 3, 6, 1_000_000].map(uid));
        written.iter().for_each(|table| read_back(&*store, table, &mut prng));
    }
    drop(store);
    let store = open().expect("opens again");
    adopt(&*store, &written).expect("all of them");
    assert_eq!(listed(&*store), [2, 3, 6, 1_000_000].map(uid));
    written.iter().for_each(|table| read_back(&*store, table, &mut prng));
    write(&*store, uid(1_000_001), &[&[1; 5000]]).expect("there is room beside them");
    written.iter().for_each(|table| read_back(&*store, table, &mut prng));
    // Who has it open goes on reading after it was removed.
    let table = store.open_table(uid(3)).expect("opened");
    for uid in store.list_tables().expect("list") {
        store.remove_table(uid).expect("removed");
    }
    store.sync_names().expect("synced");
    let mut byte = [0];
    table.read_exact_at(&mut byte, 0).expect("still there");
    assert_eq!(byte[0], written[0].bytes[0]);
    assert_eq!(store.list_tables().expect("list"), []);
    assert_eq!(kind(store.open_table(uid(3))), Some(ErrorKind::NotFound));
    assert_eq!(kind(store.remove_table(uid(3))), Some(ErrorKind::NotFound));
}

/// Reads parts of a table, and beyond its end.
fn read_back(store: &dyn Storage, written: &Written, prng: &mut Prng) {
    let Written { uid, place, bytes } = written;
    let table = store.open_table(*uid).expect("opened");
    assert_eq!((table.len(), table.place()), (bytes.len() as u64, place.clone()));
    table.advise(0, 0, Advice::Random);
    for _ in 0..50 {
        let offset = prng.below(bytes.len() as u64 + 1) as usize;
        let n = prng.below((bytes.len() - offset) as u64 + 1) as usize;
        let mut buf = vec![0; n];
        table.read_exact_at(&mut buf, offset as u64).expect("inside");
        assert!(buf == bytes[offset..offset + n], "table {uid}, {n} bytes at {offset}");
    }
    let beyond = table.read_exact_at(&mut [0; 2], table.len().saturating_sub(1));
    assert_eq!(kind(beyond), Some(ErrorKind::Corruption));
}

/// Logs have the room that was asked for, are found by kind and number once they have begun, and
/// are recycled with their bytes.
fn logs(open: Open<'_>) {
    let store = open().expect("opens");
    let wal = store.create_log(LogKind::Wal, segment(7), 100_000).expect("created");
    let capacity = wal.capacity().expect("known");
    assert!(capacity >= 100_000 && !wal.grows(), "a log of {capacity} bytes");
    let mut bytes = vec![1; capacity as usize + 1];
    assert_eq!(wal.read_at(&mut bytes, 0).expect("inside") as u64, capacity);
    assert_eq!(bytes.pop(), Some(1));
    assert!(wal.is_stale() || bytes.iter().all(|&b| b == 0));
    start(&wal, LogKind::Wal, segment(7)).expect("started");
    wal.write_at(&[b"gro", b"up"], 5000).expect("written");
    wal.sync().expect("synced");
    assert_eq!(kind(store.create_log(LogKind::Wal, segment(7), 0)), Some(ErrorKind::Conflict));
    assert_eq!(kind(wal.cut(5003)), Some(ErrorKind::Unsupported), "its size is fixed");
    let versions = store.create_log(LogKind::Versions, segment(7), 0).expect("another kind");
    let end = start(&versions, LogKind::Versions, segment(7)).expect("started");
    versions.write_at(&[b"edit", b"torn"], end).expect("there is room");
    if versions.grows() {
        assert_eq!(versions.capacity().expect("known"), end + 8);
        versions.cut(end + 4).expect("cut");
        assert_eq!(versions.capacity().expect("known"), end + 4);
    } else {
        assert_eq!(kind(versions.cut(end + 4)), Some(ErrorKind::Unsupported));
    }
    let other = store.create_log(LogKind::Wal, segment(1_234_567), 4096).expect("created");
    start(&other, LogKind::Wal, segment(1_234_567)).expect("started");
    store.write_root_record(b"root", segment(7)).expect("written");
    drop((store, wal, versions, other));

    let store = open().expect("opens");
    assert_eq!(store.list_logs(LogKind::Wal).expect("list"), segments([7, 1_234_567]));
    assert_eq!(store.list_logs(LogKind::Versions).expect("list"), segments([7]));
    let recycle = |old, new| store.recycle_log(LogKind::Wal, segment(old), segment(new));
    assert_eq!(kind(recycle(7, 1_234_567)), Some(ErrorKind::Conflict));
    assert_eq!(kind(recycle(8, 9)), Some(ErrorKind::NotFound));
    let recycled = recycle(7, 8).expect("recycled");
    assert!(recycled.is_stale() && !recycled.grows());
    assert!(recycled.capacity().expect("known") >= capacity);
    let mut group = [0; 5];
    assert_eq!(recycled.read_at(&mut group, 5000).expect("inside"), 5);
    assert_eq!(&group, b"group");
    start(&recycled, LogKind::Wal, segment(8)).expect("started");
    recycled.write_at(&[b"GROUP"], 5000).expect("written");
    let opened = store.open_log(LogKind::Wal, segment(8)).expect("opened");
    assert_eq!(opened.read_at(&mut group, 5000).expect("inside"), 5);
    assert_eq!(&group, b"GROUP");
    opened.write_at(&[b"!"], 5005).expect("open for writing");
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
    adopt(&*store, &[]).expect("none");
    assert_eq!(kind(store.open_table(uid(99))), Some(ErrorKind::NotFound));
    assert_eq!(kind(store.open_log(LogKind::Wal, segment(99))), Some(ErrorKind::NotFound));
    assert_eq!(kind(store.remove_log(LogKind::Wal, segment(99))), Some(ErrorKind::NotFound));
}

/// What a form does when the power is cut and when calls fail.
#[cfg(feature = "sim")]
mod adverse {
    use super::*;
    use crate::device::Dir;
    use crate::device::faulty::{Effect, ErrorCode, Fault, FaultyDir, Times};
    use crate::device::sim::crash::CrashPolicy;
    use crate::device::sim::{SimDisk, SimOptions};
    use crate::device::site::OpKind;

    /// Opens the store in a directory, creating it if there is none.
    pub(super) type OpenIn = fn(Arc<dyn Dir>) -> Result<Box<dyn Storage>>;

    /// What has been made durable, in order; marked in the trace when the call returned, but for
    /// `RECYCLING`, which begins.
    const ROOT_ONE: u64 = 1;
    const TABLE: u64 = 2;
    const LOG: u64 = 3;
    const RECYCLING: u64 = 4;
    const RECYCLED: u64 = 5;
    const ROOT_TWO: u64 = 6;

    fn run(open: OpenIn, disk: &SimDisk) -> Result<Written> {
        let store = open(disk.dir())?;
        adopt(&*store, &[])?;
        store.write_root_record(b"one", segment(1))?;
        disk.mark(ROOT_ONE);
        let table = write(&*store, uid(1), &[&[7; 3000]])?;
        disk.mark(TABLE);
        let log = store.create_log(LogKind::Wal, segment(1), 5000)?;
        start(&log, LogKind::Wal, segment(1))?;
        disk.mark(LOG);
        disk.mark(RECYCLING);
        let log = store.recycle_log(LogKind::Wal, segment(1), segment(2))?;
        start(&log, LogKind::Wal, segment(2))?;
        disk.mark(RECYCLED);
        store.write_root_record(b"two", segment(1))?;
        disk.mark(ROOT_TWO);
        Ok(table)
    }

    /// Goal: what a call made durable survives every power cut after it, and the root is always the
    /// old or the new one (bug 30). Method: every boundary of a short run, every policy, some
    /// seeds.
    pub(super) fn durable_means_durable(open: OpenIn) {
        let disk = SimDisk::new(SimOptions { record: true, ..SimOptions::default() });
        let tables = [run(open, &disk).expect("runs")];
        let mut replayer = disk.replayer();
        // The zeros of a form that is formatted are thousands of writes: few of them will do.
        let dense = replayer.len().saturating_sub(300);
        for boundary in (0..dense).step_by(512).chain(dense..=replayer.len()) {
            replayer.go_to(boundary);
            let done = replayer.marks().last().copied().unwrap_or(0);
            let images = if boundary < dense { 18 } else { 64 };
            for (policy, seed) in CrashPolicy::ALL.into_iter().zip(0..).cycle().take(images) {
                let place = format!("{policy:?} {seed} at\n{}", replayer.describe(5, 3));
                let image = replayer.image(policy, seed + boundary as u64);
                let store = open(image.dir()).expect(&place);
                let root = store.read_root_record().expect(&place);
                match root.as_deref() {
                    Some(b"one") => assert!(done < ROOT_TWO, "{place}"),
                    Some(b"two") => assert!(done >= RECYCLED, "{place}"),
                    Some(_) => panic!("a root that never was: {place}"),
                    None => assert!(done < ROOT_ONE, "{place}"),
                }
                let live = if done >= TABLE { &tables[..] } else { &[] };
                adopt(&*store, live).expect(&place);
                for Written { uid, bytes, .. } in live {
                    let table = store.open_table(*uid).expect(&place);
                    let mut read = vec![0; bytes.len()];
                    table.read_exact_at(&mut read, 0).expect(&place);
                    assert!(read == *bytes && table.len() == bytes.len() as u64, "{place}");
                }
                let logs = store.list_logs(LogKind::Wal).expect(&place);
                assert!(logs.iter().all(|&n| n == segment(1) || n == segment(2)), "{place}");
                assert!(done != LOG || logs == segments([1]), "{logs:?} {place}");
                assert!(done < RECYCLED || logs == segments([2]), "{logs:?} {place}");
                for &number in &logs {
                    let log = store.open_log(LogKind::Wal, number).expect(&place);
                    let bytes = log.capacity().expect(&place);
                    assert!(done < LOG || bytes >= 5000, "{bytes} bytes {place}");
                }
            }
        }
    }

    fn run_beside_faults(open: OpenIn, dir: &Arc<FaultyDir>, n: u64) -> Result<()> {
        let store = open(Arc::<FaultyDir>::clone(dir))?;
        adopt(&*store, &[])?;
        store.write_root_record(&[n as u8], segment(n))?;
        write(&*store, uid(n), &[&[7; 3000]])?;
        let number = segment(2 * n);
        let log = store.create_log(LogKind::Wal, number, 5000)?;
        start(&log, LogKind::Wal, number)?;
        let log = store.recycle_log(LogKind::Wal, number, number.next())?;
        start(&log, LogKind::Wal, number.next())?;
        store.write_root_record(&[n as u8 + 100], segment(n))
    }

    /// Goal: no failed call leaves the store unusable, and a root that was written is not lost.
    /// Method: fail every call of the run, once, with every kind of effect; heal, cut the power,
    /// open again, run again on fresh numbers.
    pub(super) fn every_call_may_fail(open: OpenIn) {
        let effects = [
            Effect::Fail(ErrorCode::Eio),
            Effect::Fail(ErrorCode::Enospc),
            Effect::FailButDone(ErrorCode::Eio),
            Effect::ShortWrite(ErrorCode::Enospc, 4),
            Effect::LoseDirty(true),
        ];
        for effect in effects {
            for after in 0.. {
                let disk = SimDisk::default();
                let dir = Arc::new(FaultyDir::over_disk(&disk));
                let faults = dir.faults();
                let times = Times::Once;
                faults.arm(Fault { op: None, class: None, after, times, effect });
                let result = run_beside_faults(open, &dir, 1);
                if faults.injected_total() == 0 {
                    assert!(result.is_ok() && after > 10);
                    break;
                }
                // Another page may say what one that cannot be read does.
                let reads = faults.injected().iter().all(|(site, ..)| site.op == OpKind::Read);
                assert!(result.is_err() || reads, "call {after} failed unseen: {effect:?}");
                faults.heal();
                let disk = disk.crash(CrashPolicy::All, after);
                let dir = Arc::new(FaultyDir::over_disk(&disk));
                let store = open(disk.dir()).expect("opens");
                let root = store.read_root_record().expect("sound");
                assert!(root.is_none_or(|r| r == [1] || r == [101]));
                drop(store);
                run_beside_faults(open, &dir, 2).expect("healed");
            }
        }
    }
}

mod forms {
    use super::*;
    use crate::device::Dir;
    use crate::device::real::RealDir;
    use crate::device::{FileClass, Mode};
    use crate::storage::OpenOptions;
    use crate::storage::files::Files;
    use crate::storage::slots::{FormatOptions, Ground, Slots};

    /// A store in a file of its own, formatted if it is not yet.
    fn slots(dir: Arc<dyn Dir>) -> Result<Box<dyn Storage>> {
        const NAME: &str = "store.weir";
        let ground = || -> Result<Ground> {
            let lock = dir.lock(NAME)?;
            let file = dir.open(NAME, FileClass::Other, Mode::ReadWrite)?;
            Ok(Ground { slots: Arc::clone(&file), file, is_cached: false, lock, aside: None })
        };
        let exists = dir.list()?.iter().any(|name| name == NAME);
        let open = || dir.open(NAME, FileClass::Other, Mode::Read)?.len();
        if exists && open()? == SLOTS_DEVICE_BYTES {
            match Slots::open(ground()?, false, true) {
                // Its formatting was cut off.
                Err(error)
                    if [ErrorKind::InvalidArgument, ErrorKind::Corruption]
                        .contains(&error.kind()) => {}
                opened => return Ok(Box::new(opened?)),
            }
        }
        if exists {
            dir.unlink(NAME, FileClass::Other)?;
        }
        let file = dir.create(NAME, FileClass::Other)?;
        file.set_len(SLOTS_DEVICE_BYTES)?;
        file.sync()?;
        dir.sync()?;
        drop(file);
        let options = FormatOptions { slot_bytes: Some(64 << 10), ..FormatOptions::new() };
        Slots::format(&ground()?, &options)?;
        Ok(Box::new(Slots::open(ground()?, false, true)?))
    }

    const SLOTS_DEVICE_BYTES: u64 = 32 << 20;

    fn files(dir: Arc<dyn Dir>) -> Result<Box<dyn Storage>> {
        Ok(Box::new(Files::open(dir, OpenOptions { create: true, read_only: false })?))
    }

    #[test]
    fn files_in_a_real_directory() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("store");
        check(&|| files(RealDir::open(&path, true)?));
    }

    #[test]
    fn slots_in_a_real_file() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("store");
        check(&|| slots(RealDir::open(&path, true)?));
    }

    #[cfg(feature = "sim")]
    mod simulated {
        use std::time::Duration;

        use super::*;
        use crate::base::sched::{self, sim::Simulation};
        use crate::device::sim::SimDisk;
        use crate::storage::contract::adverse::{
            OpenIn, durable_means_durable, every_call_may_fail,
        };

        /// Every form on a simulated disk.
        const FORMS: [OpenIn; 2] = [files, slots];

        #[test]
        fn on_a_simulated_disk() {
            for form in FORMS {
                let disk = SimDisk::default();
                check(&|| form(disk.dir()));
            }
        }

        #[test]
        fn in_a_simulation() {
            for form in FORMS {
                Simulation::run(1, move |_| {
                    let disk = SimDisk::default();
                    check(&|| form(disk.dir()));
                    // Threads of stores that were dropped end by themselves.
                    sched::delay(Duration::from_secs(10));
                });
            }
        }

        #[test]
        fn power_cuts() {
            FORMS.into_iter().for_each(durable_means_durable);
        }

        #[test]
        fn failing_calls() {
            FORMS.into_iter().for_each(every_call_may_fail);
        }
    }
}
