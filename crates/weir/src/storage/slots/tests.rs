//! What a form without names promises beyond the contract: whose slots and halves are whose, and
//! when.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::base::clock;
use crate::base::ids::{segment, uid};
use crate::base::place::Place;
use crate::base::prng::Prng;
use crate::base::sched;
use crate::base::sched::sim::Simulation;
use crate::device::faulty::{Effect, ErrorCode, Fault, Faults, FaultyDir, Times};
use crate::device::sim::SimDisk;
use crate::device::site::OpKind;
use crate::device::{Advice, Dir};
use crate::storage::RepairStorage;

const NAME: &str = "store.weir";

fn ground(dir: &Arc<dyn Dir>) -> Ground {
    let lock = dir.lock(NAME).expect("free");
    let file = dir.open(NAME, FileClass::Other, crate::device::Mode::ReadWrite).expect("there");
    Ground { slots: Arc::clone(&file), file, is_cached: false, lock, aside: None }
}

fn formatted() -> SimDisk {
    let disk = SimDisk::default();
    let options = FormatOptions { slot_bytes: Some(64 << 10), ..FormatOptions::default() };
    crate::storage::open::format_in(&disk.dir(), NAME, 32 << 20, &options).expect("formatted");
    disk
}

fn open(disk: &SimDisk) -> Slots {
    let store = Slots::open(ground(&disk.dir()), false, false).expect("opens");
    store.adopt(&mut std::iter::empty()).expect("none");
    store
}

/// A store with a version log, which its root record names.
fn opened_once() -> SimDisk {
    let disk = formatted();
    let store = open(&disk);
    let first = store.create_log(LogKind::Versions, segment(1), 0).expect("created");
    first.sync().expect("synced");
    store.write_root_record(b"root", segment(1)).expect("written");
    disk
}

fn write(store: &Slots, number: u64, byte: u8) -> Place {
    let mut writer = store.create_table(uid(number), 0).expect("begun");
    writer.append(&[byte; 100_000]).expect("appended");
    let written = writer.end().expect("ended");
    let place = written.place();
    store.sync_tables(vec![written]).expect("durable");
    place
}

/// Goal: only a version makes a slot live (H72): a whole and durable table that none names is none,
/// and its slots are free.
#[test]
fn a_table_that_no_version_names_is_none() {
    let disk = formatted();
    let store = open(&disk);
    let place = write(&store, 1, 7);
    let before = store.space.counts().free;
    drop(store);
    let store = open(&disk);
    assert_eq!(store.list_tables().expect("known"), []);
    let slots: u64 = place.extents().iter().map(|extent| extent.slots).sum();
    assert_eq!(store.space.counts().free, before + slots);
    let live = LiveTable { uid: uid(1), place: &place, bytes: 100_000 };
    store.adopt(&mut std::iter::once(live)).expect("now one does");
    assert_eq!(store.space.counts().free, before);
    let twice = LiveTable { uid: uid(2), ..live };
    let error = store.adopt(&mut [live, twice].into_iter()).expect_err("two at one place");
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

/// Goal: the half that the root record names is left alone, also by openings that fail one after
/// the other (H35). Method: a version log that the root names, then three that it never comes to
/// name, each in an opening of its own.
#[test]
fn the_half_of_the_root_is_left_alone() {
    let disk = formatted();
    let store = open(&disk);
    let first = store.create_log(LogKind::Versions, segment(1), 0).expect("created");
    first.write_at(&[b"the base"], 0).expect("written");
    first.sync().expect("synced");
    store.write_root_record(b"root", segment(1)).expect("written");
    drop((store, first));
    for number in 2..5 {
        let store = open(&disk);
        let next = store.create_log(LogKind::Versions, segment(number), 0).expect("created");
        next.write_at(&[b"another one"], 0).expect("written");
        next.sync().expect("synced");
        let first = store.open_log(LogKind::Versions, segment(1)).expect("still there");
        let mut bytes = [0; 8];
        first.read_at(&mut bytes, 0).expect("read");
        assert_eq!(&bytes, b"the base", "after opening {number}");
    }
}

/// Goal: the half that told a repair something is kept until its own log counts, and that one then.
/// Method: the log of a repair, a root record that names it, and another one.
#[test]
fn the_half_that_told_a_repair_is_kept_until_its_log_counts() {
    let disk = formatted();
    let store = open(&disk);
    let create = |number: u64, what: &[u8]| {
        let log = store.create_log(LogKind::Versions, segment(number), 0).expect("created");
        log.write_at(&[what], 0).expect("written");
        log.sync().expect("synced");
    };
    let content = |number: u64| {
        let mut bytes = [0; 3];
        let log = store.open_log(LogKind::Versions, segment(number)).expect("there");
        log.read_at(&mut bytes, 0).expect("read");
        bytes
    };
    create(1, b"one");
    store.write_root_record(b"root", segment(1)).expect("written");
    store.begin_rebuild(Some(segment(1)));
    create(2, b"two");
    assert_eq!((&content(1), &content(2)), (b"one", b"two"));
    store.write_root_record(b"root", segment(2)).expect("written");
    create(3, b"new");
    assert_eq!((&content(2), &content(3)), (b"two", b"new"));
}

/// Goal: a half in which there is anything may have had the log that was in use; only one that is
/// blank was never used. Method: both superblocks lost, a byte behind the head of the other half.
#[test]
fn a_half_that_is_not_blank_was_in_use() {
    let disk = opened_once();
    let file = disk.dir().open(NAME, FileClass::Other, crate::device::Mode::ReadWrite);
    let file = file.expect("there");
    let found = || lost::find(&file).expect("read").expect("a head");
    assert_eq!((found().log, found().half), (Some(segment(1)), 0));
    let page = PAGE_BYTES as u64;
    for at in [0, page, 17 * page] {
        file.write_at(&[7], (3 << 20) + at).expect("written");
        assert_eq!((found().log, found().half), (None, 0), "{at}");
        file.write_at(&[0], (3 << 20) + at).expect("written");
    }
    assert_eq!(found().log, Some(segment(1)));
}

/// Goal: openings of a new store that fail before its first root record, however many, leave room
/// for the next one. The story: power cuts in the first two openings, and the third found both
/// halves taken (`weir-sim c --slots --seed 50`).
#[test]
fn first_openings_that_fail_leave_room() {
    let disk = formatted();
    for number in 1..6 {
        let store = open(&disk);
        let log = store.create_log(LogKind::Versions, segment(number), 0).expect("a half is free");
        log.write_at(&[b"a base"], 0).expect("written");
        log.sync().expect("synced");
    }
}

/// An empty store on a disk whose requests can fail or stall.
fn over_faults(discards: bool) -> (Faults, Arc<Slots>) {
    let faulty = FaultyDir::over_disk(&formatted());
    let faults = faulty.faults();
    let dir: Arc<dyn Dir> = Arc::new(faulty);
    let store = Slots::open(ground(&dir), false, discards).expect("opens");
    store.adopt(&mut std::iter::empty()).expect("none");
    (faults, Arc::new(store))
}

/// Lets the next request of a kind to a table take its time.
fn stall(faults: &Faults, op: OpKind) {
    let (op, class, effect) = (Some(op), Some(FileClass::Table), Effect::Stall(1000));
    faults.arm(Fault { op, class, after: 0, times: Times::Once, effect });
}

/// Goal: no read is in flight when the device is given up, and none begins afterwards (H73).
#[test]
fn giving_up_waits_for_reads() {
    Simulation::run(5, |_| {
        let (faults, store) = over_faults(false);
        write(&store, 1, 7);
        let table = store.open_table(uid(1)).expect("opened");
        stall(&faults, OpKind::Read);
        let ended = Arc::new(AtomicBool::new(false));
        let (table_there, ended_there) = (Arc::clone(&table), Arc::clone(&ended));
        let reader = sched::spawn("reader", move || {
            let mut byte = [0];
            let read = table_there.read_exact_at(&mut byte, 50_000);
            ended_there.store(true, Ordering::SeqCst);
            assert!(read.is_err() || byte == [7]);
        });
        hit(&faults);
        assert!(!ended.load(Ordering::SeqCst), "it is in the middle of the read");
        store.unlock();
        assert!(ended.load(Ordering::SeqCst), "the read goes on");
        let closed = table.read_exact_at(&mut [0], 0).expect_err("given up");
        assert_eq!(closed.kind(), ErrorKind::Closed);
        assert!(reader.expect("started").join(), "the reader failed");
    });
}

/// Waits until a fault was hit.
fn hit(faults: &Faults) {
    while faults.injected_total() == 0 {
        sched::delay(std::time::Duration::from_millis(1));
    }
}

fn discards(faults: &Faults) -> u64 {
    faults.counters().get(OpKind::Discard, FileClass::Table).calls
}

/// Goal: no discard is in flight when the device is given up, and none begins afterwards: whoever
/// opens it next may have a table there. Method: tables are removed while a discard stalls.
#[test]
fn giving_up_waits_for_discards() {
    Simulation::run(5, |_| {
        let (faults, store) = over_faults(true);
        for number in 1..=3 {
            write(&store, number, 7);
        }
        stall(&faults, OpKind::Discard);
        store.remove_table(uid(1)).expect("removed");
        let left_open = store.open_table(uid(2)).expect("opened");
        hit(&faults);
        for number in [2, 3] {
            store.remove_table(uid(number)).expect("removed");
        }
        let begin = clock::now_nanos();
        store.unlock();
        assert!(clock::now_nanos() - begin > 900_000_000, "the discard goes on");
        let before = discards(&faults);
        drop(left_open);
        store.space.discard_leaving(u64::MAX);
        sched::delay(std::time::Duration::from_secs(10));
        assert_eq!(discards(&faults), before, "a discard after the end");
    });
}

/// Goal: slots are given out again when their discard has ended, not before: it would destroy what
/// is written there (H77). Who releases them does not wait for that, who needs them does. Method: a
/// table is removed while its discard stalls; what is free then, and for a table that needs all.
#[test]
fn what_is_being_discarded_is_not_given_out() {
    Simulation::run(5, |_| {
        let (faults, store) = over_faults(true);
        let (all, room) = (store.space.counts().free, store.space.free_bytes());
        write(&store, 1, 7);
        stall(&faults, OpKind::Discard);
        let begin = clock::now_nanos();
        store.remove_table(uid(1)).expect("removed");
        hit(&faults);
        assert!(clock::now_nanos() - begin < 500_000_000, "the removal waits for the discard");
        let counts = store.space.counts();
        assert!(counts.free < all && counts.leaving > 0, "{counts:?} of {all}");
        assert_eq!(store.space.free_bytes(), room, "it is to be had");
        let mut writer = store.create_table(uid(2), 0).expect("begun");
        // All but the ends of a few extents.
        for _ in 0..all - 1 {
            writer.append(&[8; 64 << 10]).expect("there is room");
        }
        let written = writer.end().expect("ended");
        assert!(clock::now_nanos() - begin > 900_000_000, "given out before its discard");
        store.sync_tables(vec![written]).expect("durable");
        store.unlock();
    });
}

/// Goal: discards are paced, but for who needs the slots. Method: requests that take their time;
/// how many there are by then, alone and in a hurry.
#[test]
fn discards_pause() {
    for hurried in [false, true] {
        Simulation::run(5, move |_| {
            let (faults, store) = over_faults(true);
            for number in 1..=10 {
                write(&store, number, 7);
            }
            let (op, class) = (Some(OpKind::Discard), Some(FileClass::Table));
            let effect = Effect::Stall(100);
            faults.arm(Fault { op, class, after: 0, times: Times::Forever, effect });
            for number in 1..=10 {
                store.remove_table(uid(number)).expect("removed");
            }
            if hurried {
                store.space.discard_leaving(u64::MAX);
                assert_eq!((discards(&faults), store.space.counts().leaving), (10, 0));
            } else {
                sched::delay(std::time::Duration::from_secs(1));
                let count = discards(&faults);
                assert!((4..=6).contains(&count), "{count} in a second");
            }
            store.unlock();
        });
    }
}

/// Appends `bytes` bytes to a new table, a page of each number after the other.
fn begun(store: &Slots, number: u64, bytes: usize) -> (Box<dyn TableWriter>, Result<()>) {
    let mut writer = store.create_table(uid(number), 0).expect("begun");
    let pages = (0..bytes / PAGE_BYTES).map(|page| [page as u8 ^ number as u8; PAGE_BYTES]);
    let appended = pages.into_iter().try_for_each(|page| writer.append(&page));
    (writer, appended)
}

/// Goal: slots of a table that is given up are given out again when nothing of it is in flight, not
/// before: it would be written over another table (H30). Method: a table of several buffers is
/// given up while the first write stalls.
#[test]
fn what_is_written_behind_keeps_its_slots() {
    Simulation::run(5, |_| {
        let (faults, store) = over_faults(false);
        let all = store.space.counts().free;
        stall(&faults, OpKind::Write);
        let (writer, appended) = begun(&store, 1, 1 << 20);
        appended.expect("handed over");
        hit(&faults);
        let writes = || faults.counters().get(OpKind::Write, FileClass::Table).calls;
        writer.abandon();
        let (before, free) = (writes(), store.space.counts().free);
        sched::delay(std::time::Duration::from_secs(10));
        assert_eq!((writes(), free), (before, all), "a write after the end");
        store.unlock();
    });
}

/// Goal: a failure behind is the failure of its table, and of no other one: a later call of the
/// writer returns it. Method: each write fails in turn, of a table of several buffers and extents
/// beside another one; what ends well can be read.
#[test]
fn a_failure_behind_is_its_writer_s() {
    for failing in 0..12 {
        Simulation::run(failing, move |_| {
            let (faults, store) = over_faults(false);
            let (other, appended) = begun(&store, 1, 600 << 10);
            appended.expect("handed over");
            let (op, class) = (Some(OpKind::Write), Some(FileClass::Table));
            let effect = Effect::Fail(ErrorCode::Eio);
            // Of the other one one buffer is on its way, maybe.
            sched::delay(std::time::Duration::from_secs(1));
            faults.arm(Fault { op, class, after: failing, times: Times::Once, effect });
            let (writer, appended) = begun(&store, 2, 3 << 20);
            // Whoever goes on after an error has no table.
            let ended = writer.end();
            assert!(appended.is_ok() || ended.is_err(), "a failure is told once");
            let hit = faults.injected_total() > 0;
            assert_eq!(ended.is_err(), hit, "write {failing}");
            faults.heal();
            let sound = ended.into_iter().chain(other.end()).collect();
            store.sync_tables(sound).expect("durable");
            for (number, pages) in [(1, 150), (2, if hit { 0 } else { 768 })] {
                let table = (pages > 0).then(|| store.open_table(uid(number)).expect("opened"));
                let mut page = [0; PAGE_BYTES];
                for at in 0..pages {
                    let table = table.as_ref().expect("it has pages");
                    table.read_exact_at(&mut page, (at * PAGE_BYTES) as u64).expect("read");
                    assert_eq!(page, [at as u8 ^ number as u8; PAGE_BYTES], "{number}, page {at}");
                }
            }
            assert!(hit || failing > 6, "a table of 3 MiB has more writes");
            store.unlock();
        });
    }
}

/// Goal: a page that cannot be read fails no opening if another one says the same: one of the
/// superblocks, or the head of a half. The head of a cell of the write-ahead log may be that of its
/// end, and is missed.
#[test]
fn pages_that_cannot_be_read_give_way() {
    let disk = opened_once();
    let pages = [(FileClass::Root, 2, true), (FileClass::Versions, 2, true)];
    for (class, count, opens) in pages.into_iter().chain([(FileClass::Wal, 3, false)]) {
        for after in 0..count {
            let faulty = FaultyDir::over_disk(&disk);
            let effect = Effect::Fail(ErrorCode::Eio);
            let (op, class) = (Some(OpKind::Read), Some(class));
            faulty.faults().arm(Fault { op, class, after, times: Times::Once, effect });
            let dir: Arc<dyn Dir> = Arc::new(faulty);
            let opened = Slots::open(ground(&dir), false, false);
            let what = format!("{class:?}, page {after}: {:?}", opened.as_ref().err());
            assert_eq!(opened.is_ok(), opens, "{what}");
            let Ok(store) = opened else { continue };
            assert_eq!(store.read_root_record().expect("read").as_deref(), Some(&b"root"[..]));
            store.open_log(LogKind::Versions, segment(1)).expect("the one that is named");
        }
    }
}

/// Goal: a superblock that somebody made, with a right checksum, costs bounded memory and no panic
/// (P13): it is refused.
#[test]
fn hostile_superblocks_are_refused() {
    let hostile: [fn(&mut Superblock); 6] = [
        |s| s.cell_bytes = 64 << 20,
        |s| s.areas.retain(|area| area.kind != AreaKind::SecondHalf),
        |s| s.areas.retain(|area| area.kind != AreaKind::Slots),
        |s| s.areas.iter_mut().for_each(|area| area.space = 1),
        |s| s.areas.last_mut().expect("slots").bytes = 1 << 50,
        |s| {
            let slots = *s.areas.last().expect("slots");
            let half = slots.bytes / 2 / 4096 * 4096;
            s.areas.last_mut().expect("slots").bytes = half;
            s.areas.push(Area { offset: slots.offset + half, bytes: half, ..slots });
        },
    ];
    for (at, change) in hostile.into_iter().enumerate() {
        let disk = formatted();
        let whole = ground(&disk.dir());
        let mut superblocks =
            Superblocks::open(Arc::clone(&whole.file)).expect("sound").expect("there");
        superblocks.replace(change).expect("written");
        drop((superblocks, whole));
        let refused = Slots::open(ground(&disk.dir()), false, false).map(drop);
        let kind = refused.expect_err("refused").kind();
        let is_known = [ErrorKind::Corruption, ErrorKind::Unsupported].contains(&kind);
        assert!(is_known, "change {at}: {kind:?}");
    }
}

/// Goal: what is read ahead is what is there: whatever is hinted at, read before it, in the middle
/// of it, past it or never, by whom it was for or by another, and if reading it fails; and when the
/// device is given up nothing is read any more. Method: two tables open twice, drawn hints and
/// reads, and now and then a request that fails once, which may be one of the reads.
#[test]
fn what_is_read_ahead_is_what_is_there() {
    for seed in 0..20 {
        Simulation::run(seed, move |_| {
            let (faults, store) = over_faults(false);
            let bytes = |table: u64| -> Vec<u8> {
                (0..2u64 << 20).map(|n| (n * 31 / 7 + n / 4093 + table) as u8).collect()
            };
            let content = [bytes(1), bytes(2)];
            let tables: Vec<_> = (0..4).map(|n| n % 2).collect();
            for (number, content) in (1..).zip(&content) {
                let mut writer = store.create_table(uid(number), 0).expect("begun");
                writer.append(content).expect("appended");
                let written = writer.end().expect("ended");
                store.sync_tables(vec![written]).expect("durable");
            }
            let open = |table: usize| store.open_table(uid(table as u64 + 1)).expect("there");
            let mut sources: Vec<_> = tables.iter().map(|&table| open(table)).collect();
            let mut prng = Prng::new(seed);
            let mut hinted = vec![(0, 64 << 10); sources.len()];
            let mut failed = 0;
            for _ in 0..400 {
                let at = prng.below(sources.len() as u64) as usize;
                let size = (1 << prng.below(9)) << 12;
                match prng.below(16) {
                    0..=5 => {
                        hinted[at] = (prng.below((2 << 20) - size), size);
                        sources[at].advise(hinted[at].0, size, Advice::WillNeed);
                    }
                    6 => {
                        let (op, class) = (Some(OpKind::Read), Some(FileClass::Table));
                        let effect = Effect::Fail(ErrorCode::Eio);
                        faults.arm(Fault { op, class, after: 0, times: Times::Once, effect });
                    }
                    7 => sources[at] = open(tables[at]),
                    8..=11 => {
                        let (offset, size) = hinted[at];
                        let from = offset + prng.below(size);
                        let to = from + 1 + prng.below(size);
                        let to = to.min(2 << 20) as usize;
                        failed += check(&*sources[at], &content[tables[at]], from as usize..to);
                    }
                    _ => {
                        let (offset, size) = hinted[at];
                        let all = offset as usize..(offset + size) as usize;
                        failed += check(&*sources[at], &content[tables[at]], all);
                    }
                }
                sched::switch_point();
            }
            assert!(failed < 200, "{failed} reads failed");
            sources[0].advise(0, 1 << 20, Advice::WillNeed);
            sources[1].advise(0, 1 << 20, Advice::WillNeed);
            store.unlock();
            let mut byte = [0];
            let refused = sources[2].read_exact_at(&mut byte, 5).expect_err("it was given up");
            assert_eq!(refused.kind(), ErrorKind::Closed);
        });
    }
}

/// Reads a range and compares; 1 if the device fails.
fn check(source: &dyn TableSource, content: &[u8], range: std::ops::Range<usize>) -> usize {
    let mut got = vec![0; range.len()];
    match source.read_exact_at(&mut got, range.start as u64) {
        Ok(()) => assert!(got == content[range.clone()], "the bytes {range:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Io),
    }
    usize::from(source.read_exact_at(&mut got, range.start as u64).is_err())
}
