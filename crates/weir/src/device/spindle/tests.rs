//! The timed directory on the simulated scheduler: waiting times of actors, and counters.

use super::*;
use crate::base::sched::sim::Simulation;
use crate::device::sim::{SimDisk, SimOptions, Timing};

/// A simulated disk whose requests cost nothing.
fn free_disk() -> SimDisk {
    let timing = Timing {
        call_nanos: 0,
        read_nanos: 0,
        write_nanos: 0,
        sync_nanos: 0,
        page_nanos: 0,
        waits: false,
    };
    SimDisk::new(SimOptions { timing, ..SimOptions::default() })
}

fn timed(page_cache_bytes: u64, indexes_resident: bool) -> TimedDir {
    charging(1, page_cache_bytes, indexes_resident)
}

fn charging(charge: u64, page_cache_bytes: u64, indexes_resident: bool) -> TimedDir {
    let model = DiskModel::HDD_15K_X2;
    let options =
        TimedOptions { charge, page_cache_bytes, indexes_resident, ..TimedOptions::new(model) };
    TimedDir::new(free_disk().dir(), |_| FileClass::Table, options).expect("an empty directory")
}

/// A table of `stripes` stripes, created without cost.
fn table(dir: &TimedDir, name: &str, stripes: u64) -> Arc<dyn File> {
    let file = dir.create(name, FileClass::Table).expect("create");
    file.set_len(stripes * DiskModel::HDD_15K_X2.stripe_bytes).expect("set_len");
    file
}

fn read(file: &Arc<dyn File>, offset: u64, bytes: usize) {
    file.read_exact_at(&mut vec![0; bytes], offset).expect("read");
}

/// Virtual time that `body` takes.
fn timing(simulation: &Simulation, body: impl FnOnce()) -> u64 {
    let start = simulation.now_nanos();
    body();
    simulation.now_nanos() - start
}

fn transfer(bytes: u64) -> u64 {
    bytes * 1_000_000_000 / DiskModel::HDD_15K_X2.bytes_per_second
}

/// Positioning for a neighbouring track: that of files of some megabytes.
const SEEK: u64 = DiskModel::HDD_15K_X2.seek_min_nanos
    + DiskModel::HDD_15K_X2.rotation_nanos / 2
    + DiskModel::HDD_15K_X2.request_nanos;

/// Whether `took` is `expected`, but for what seeks over some megabytes take longer.
fn is_about(took: u64, expected: u64) -> bool {
    (expected..expected + 100_000).contains(&took)
}

/// Goal: a reader waits for a seek, a sequential read costs the transfer only, and an actor waits
/// for its processor time at the next request.
#[test]
fn a_reader_waits() {
    Simulation::run(1, |simulation| {
        this_actor_reads();
        let dir = timed(0, false);
        let file = table(&dir, "000001.tbl", 8);
        let far = timing(simulation, || read(&file, 3 << 20, 4096));
        assert!(is_about(far, SEEK + transfer(4096)), "{far}");
        let next = (3 << 20) + 4096;
        assert_eq!(timing(simulation, || read(&file, next, 8192)), transfer(8192));
        let thinking = timing(simulation, || work(1000));
        assert_eq!(thinking, 0, "the actor is ahead of the clock");
        let back = timing(simulation, || read(&file, 0, 4096));
        assert!(is_about(back, 1000 + SEEK + transfer(4096)), "{back}");
        assert_eq!(timing(simulation, || work(AHEAD_MAX_NANOS)), AHEAD_MAX_NANOS);
        assert_eq!(dir.counters().user_reads, 3);
    });
}

/// Goal: readers of one spindle wait for each other, those of two do not. Method: two actors that
/// start at the same time.
#[test]
fn readers_queue() {
    for (other_stripe, rounds) in [(1, 1), (2, 2)] {
        let took = Simulation::run(2, move |simulation| {
            let dir = timed(0, false);
            let file = table(&dir, "000001.tbl", 64);
            let start = simulation.now_nanos();
            let actors: Vec<_> = [20, 20 + other_stripe]
                .into_iter()
                .map(|stripe| {
                    let file = Arc::clone(&file);
                    let body = move || {
                        this_actor_reads();
                        read(&file, stripe * DiskModel::HDD_15K_X2.stripe_bytes, 4096);
                    };
                    simulation.spawn("reader", body).expect("spawn")
                })
                .collect();
            for actor in actors {
                actor.join();
            }
            simulation.now_nanos() - start
        });
        assert!(is_about(took, rounds * (SEEK + transfer(4096))), "{took} with {rounds} rounds");
    }
}

/// Goal: readers that wait are served in the order of their places, each wakes the next, and a
/// request over two spindles waits for both. Method: the order in which actors that came at once
/// get their answers.
#[test]
fn the_elevator() {
    let order = Simulation::run(7, |simulation| {
        let dir = timed(0, false);
        let file = table(&dir, "000001.tbl", 64);
        let answers = Arc::new(Mutex::new(Vec::new()));
        let stripe_bytes = DiskModel::HDD_15K_X2.stripe_bytes;
        let reader = |stripe: u64, bytes: usize, after_nanos: u64| {
            let (file, answers) = (Arc::clone(&file), Arc::clone(&answers));
            let body = move || {
                this_actor_reads();
                sched::delay(Duration::from_nanos(after_nanos));
                read(&file, stripe * stripe_bytes, bytes);
                answers.lock().push(stripe);
            };
            simulation.spawn("reader", body).expect("spawn")
        };
        let both = stripe_bytes as usize + 4096;
        let actors =
            [reader(20, 4096, 0), reader(60, 4096, 10), reader(4, 4096, 20), reader(30, both, 30)];
        for actor in actors {
            actor.join();
        }
        let answers = answers.lock();
        answers.clone()
    });
    assert_eq!(order, [20, 30, 60, 4]);
}

/// Goal: a reader that continues after others have moved the head positions once, and then reads
/// what was read ahead.
#[test]
fn reading_ahead() {
    Simulation::run(8, |simulation| {
        this_actor_reads();
        let dir = timed(0, false);
        let (file, other) = (table(&dir, "000001.tbl", 4), table(&dir, "000002.tbl", 4));
        let block = |i: u64| {
            read(&other, i * 8192, 4096);
            timing(simulation, || read(&file, i * 4096, 4096))
        };
        let took: Vec<u64> = (0..8).map(block).collect();
        assert!(took[..2].iter().all(|&nanos| is_about(nanos, SEEK + transfer(4096))), "{took:?}");
        assert!(took[2..].iter().all(|&nanos| nanos == transfer(4096)), "{took:?}");
    });
}

/// Goal: files take the lowest free stripes and give them back.
#[test]
fn stripes_are_used_again() {
    let dir = timed(0, false);
    let stripes = |name: &str| {
        let state = dir.shared.state.lock();
        state.files[&state.names[name]].stripes.clone()
    };
    let first = table(&dir, "000001.tbl", 3);
    let second = table(&dir, "000002.tbl", 1);
    first.set_len(1).expect("set_len");
    let third = table(&dir, "000003.tbl", 3);
    assert_eq!(stripes("000003.tbl"), [1, 2, 4]);
    drop(second);
    dir.unlink("000002.tbl", FileClass::Table).expect("unlink");
    third.set_len(4 * DiskModel::HDD_15K_X2.stripe_bytes).expect("set_len");
    assert_eq!(stripes("000003.tbl"), [1, 2, 4, 3]);
}

/// Goal: a write does not wait, a sync does, and readers wait for queued writes.
#[test]
fn writes_occupy_the_spindle() {
    Simulation::run(3, |simulation| {
        this_actor_reads();
        let dir = timed(0, false);
        let old = table(&dir, "000001.tbl", 2);
        let new = dir.create("000002.tbl", FileClass::Table).expect("create");
        let bytes = DiskModel::HDD_15K_X2.stripe_bytes;
        let data = vec![7; bytes as usize];
        assert_eq!(timing(simulation, || new.write_at(&data, 0).expect("write")), 0);
        let busy = dir.counters().busy_nanos;
        assert!(is_about(busy, SEEK + transfer(bytes)), "{busy}");
        // The new file's stripe is the third: on the same spindle as the old one's first.
        let waited = timing(simulation, || read(&old, 0, 4096));
        assert!(waited >= busy + transfer(4096), "{waited} behind {busy}");
        let flush = DiskModel::HDD_15K_X2.flush_nanos;
        let synced = timing(simulation, || new.sync().expect("sync"));
        assert_eq!(synced, flush, "it is written by now");
        new.write_at(&data, bytes).expect("write");
        assert!(timing(simulation, || new.sync().expect("sync")) > transfer(bytes));
        assert_eq!(dir.counters().written_bytes, 2 * bytes);
        assert_eq!(dir.counters().table_bytes, 4 * bytes);
        drop(new);
        dir.unlink("000002.tbl", FileClass::Table).expect("unlink");
        assert_eq!(dir.counters().table_bytes, 2 * bytes);
        dir.unlink("000001.tbl", FileClass::Table).expect("unlink");
        assert_eq!(dir.counters().table_bytes, 2 * bytes, "still open");
        drop(old);
        assert_eq!(dir.counters().table_bytes, 0);
    });
}

/// Goal: all reads and writes fill the page cache, only users' reads count as hits and misses, and
/// the least recently used pages are evicted.
#[test]
fn the_page_cache() {
    Simulation::run(4, |simulation| {
        let dir = timed(8 * 4096, false);
        let file = table(&dir, "000001.tbl", 4);
        read(&file, 0, 2 * 4096);
        let new = dir.create("000002.tbl", FileClass::Table).expect("create");
        new.write_at(&[1; 4096], 0).expect("write");
        assert_eq!(dir.counters().page_hits + dir.counters().page_misses, 0);
        this_actor_reads();
        assert_eq!(timing(simulation, || read(&file, 4096, 4096)), 0, "a merge read it");
        assert_eq!(timing(simulation, || read(&new, 0, 4096)), 0, "it was written just now");
        assert!(timing(simulation, || read(&file, 3 * 4096, 2 * 4096)) > 0);
        let counters = dir.counters();
        assert_eq!((counters.page_hits, counters.page_misses), (2, 2));
        for page in 10..18 {
            read(&file, page * 4096, 4096);
        }
        assert!(timing(simulation, || read(&new, 0, 4096)) > 0, "eight others were used since");
    });
}

/// Goal: a read of a resident index costs nothing, one of a block does. Method: the end of a table
/// and an offset before it.
#[test]
fn resident_indexes() {
    Simulation::run(5, |simulation| {
        this_actor_reads();
        let dir = timed(0, true);
        let file = table(&dir, "000001.tbl", 1);
        let end = DiskModel::HDD_15K_X2.stripe_bytes;
        assert_eq!(timing(simulation, || read(&file, end - 9000, 9000)), 0);
        assert!(timing(simulation, || read(&file, end - 9000, 4096)) > 0);
        let log = dir.create("wal-000001.log", FileClass::Wal).expect("create");
        log.write_at(&[0; 4096], 0).expect("write");
        log.sync().expect("sync");
        assert!(timing(simulation, || read(&log, 0, 4096)) > 0, "a log has no index");
        read(&file, end - 9000, 4096);
        log.write_at(&[0; 100], 4096).expect("write");
        let synced = timing(simulation, || log.sync().expect("sync"));
        assert!(synced > 1_000_000, "{synced}: its place has to come round");
    });
}

/// Goal: a reader that alternates between files reads ahead in each, unless they are more than its
/// segments. Method: three rounds over as many files as there are segments, then one more.
#[test]
fn segments() {
    for (files, seeks) in [(SEGMENTS, false), (SEGMENTS + 1, true)] {
        Simulation::run(6, move |simulation| {
            this_actor_reads();
            let dir = timed(0, false);
            let name = |i: usize| format!("{i:06}.tbl");
            let files: Vec<_> = (0..files).map(|i| table(&dir, &name(i), 4)).collect();
            files.iter().for_each(|file| read(file, 0, 4096));
            files.iter().for_each(|file| read(file, 4096, 4096));
            let took = timing(simulation, || files.iter().for_each(|f| read(f, 8192, 4096)));
            let transfers = transfer(4096) * files.len() as u64;
            assert_eq!(took > transfers, seeks, "{} files", files.len());
        });
    }
}

/// Goal: a lock is exclusive, within its directory only.
#[test]
fn locks() {
    let (dir, other) = (timed(0, false), timed(0, false));
    let held = dir.lock("LOCK").expect("free");
    let again = dir.lock("LOCK").err().expect("held");
    assert_eq!(again.kind(), ErrorKind::Locked);
    assert!(other.lock("LOCK").is_ok());
    drop(held);
    assert!(dir.lock("LOCK").is_ok());
}

/// Goal: a rename keeps the file, and outside a simulation no request costs time.
#[test]
fn names_and_no_simulation() {
    let dir = timed(0, false);
    let file = dir.create("a", FileClass::Other).expect("create");
    file.write_at(b"hello", 0).expect("write");
    file.allocate(100).expect("allocate");
    dir.rename("a", "b", FileClass::Other).expect("rename");
    assert_eq!(dir.list().expect("list"), ["b"]);
    let again = dir.open("b", FileClass::Other, Mode::Read).expect("open");
    let mut buf = [0; 5];
    again.read_exact_at(&mut buf, 0).expect("read");
    assert_eq!(&buf, b"hello");
    assert_eq!(again.len().expect("len"), 100);
    file.sync().expect("sync");
    assert_eq!(dir.counters().busy_nanos, 0);
    assert_eq!(now_nanos(), 0);
}

/// Goal: bytes that stand for several cost as much as these would. Method: the same table, reads,
/// writes and syncs with each byte as one and as sixteen.
#[test]
fn small_entries_cost_as_large_ones() {
    let cost = |charge: u64| {
        Simulation::run(7, move |simulation| {
            let dir = charging(charge, 1 << 20, true);
            let file = dir.create("table", FileClass::Table).expect("create");
            let part = |bytes: u64| vec![1; (bytes / charge) as usize];
            let mut times = Vec::new();
            times.push(timing(simulation, || {
                (0..40).for_each(|i| {
                    file.write_at(&part(256 << 10), i * (256 << 10) / charge).expect("written");
                });
                file.sync().expect("synced");
            }));
            this_actor_reads();
            for at in [5 << 20, 1 << 20, (1 << 20) + 4096, 9 << 20, 1 << 20] {
                let mut block = part(4096);
                times.push(timing(simulation, || {
                    file.read_exact_at(&mut block, at / charge).expect("read");
                }));
            }
            (times, dir.counters())
        })
    };
    let (times, counters) = cost(1);
    assert_eq!((times, counters), cost(16));
    assert_eq!(counters.table_bytes, 10 << 20);
}

/// Goal: with the write cache a sync waits for what others have sent to the disk, and then for the
/// command that empties the cache; without it for its own writes, and each append for a rotation.
/// Method: a large write on one spindle, a small one on the other; then appends, one after another.
#[test]
fn the_write_cache() {
    for write_cache in [true, false] {
        Simulation::run(9, move |simulation| {
            let model = DiskModel::HDD_15K_X2;
            let options = TimedOptions { write_cache, ..TimedOptions::new(model.clone()) };
            let dir = TimedDir::new(free_disk().dir(), |_| FileClass::Table, options);
            let dir = dir.expect("an empty directory");
            let _before = table(&dir, "000000.tbl", 2);
            let (large, small) = (table(&dir, "000001.tbl", 1), table(&dir, "000002.tbl", 1));
            let bytes = model.stripe_bytes;
            large.write_at(&vec![1; bytes as usize], 0).expect("write");
            small.write_at(&[2; 4096], 0).expect("write");
            let synced = timing(simulation, || small.sync().expect("sync"));
            let (of, flush) = if write_cache { (bytes, model.flush_nanos) } else { (4096, 0) };
            assert!(is_about(synced, SEEK + transfer(of) + flush), "{synced}");
            simulation.delay(Duration::from_secs(1));
            assert_eq!(dir.counters().flushes, u64::from(write_cache));
            let append = |i: u64| {
                small.write_at(&[3; 4096], i * 4096).expect("write");
                timing(simulation, || small.sync().expect("sync"))
            };
            append(1);
            let took: Vec<u64> = (2..6).map(append).collect();
            let one = model.rotation_nanos + model.request_nanos + transfer(4096);
            assert!(took.iter().all(|&nanos| nanos == one), "{took:?} of {one}");
        });
    }
}

/// Goal: a full disk refuses what does not fit and changes nothing, and what is removed or cut off
/// fits again. Method: a disk of four pages.
#[test]
fn the_capacity() {
    let model = DiskModel::HDD_15K_X2;
    let options = TimedOptions { capacity_bytes: 4 * PAGE_BYTES, ..TimedOptions::new(model) };
    let dir = TimedDir::new(free_disk().dir(), |_| FileClass::Other, options).expect("empty");
    let free = || dir.dir().free_bytes().expect("known").expect("limited") / PAGE_BYTES;
    let kind = |result: Result<()>| result.err().map(|error| error.kind());
    let (a, b) = (
        dir.create("a", FileClass::Other).expect("create"),
        dir.create("b", FileClass::Other).expect("create"),
    );
    a.write_at(&[1; 4097], 0).expect("two pages");
    b.allocate(4096).expect("one page");
    assert_eq!(free(), 1);
    let full = Some(ErrorKind::NoSpace);
    assert_eq!(kind(b.write_at(&[1; 1], 3 * 4096)), full);
    assert_eq!(kind(b.write_parts_at(&[&[1; 4096], &[1; 4097]], 4096)), full);
    assert_eq!((kind(b.allocate(4 * 4096)), kind(b.set_len(4 * 4096))), (full, full));
    assert_eq!((b.len().expect("len"), free()), (4096, 1));
    b.write_at(&[1; 4096], 4096).expect("the last page");
    b.write_at(&[2; 8192], 0).expect("it has these");
    assert_eq!(free(), 0);
    a.set_len(4096).expect("cut off");
    assert_eq!(free(), 1);
    dir.unlink("b", FileClass::Other).expect("unlink");
    assert_eq!(free(), 1, "it is open still");
    drop(b);
    assert_eq!(free(), 3);
}

/// Milliseconds of a synced overwrite of a page in a file that has its space, the pages after one
/// another, on LDS's disk; and the counters of ten of them.
fn overwrites(file_system: FileSystem) -> (f64, TimedCounters) {
    Simulation::run(10, move |simulation| {
        let model = DiskModel::HDD_7200;
        let options = TimedOptions { write_cache: false, file_system, ..TimedOptions::new(model) };
        let dir = TimedDir::new(free_disk().dir(), |_| FileClass::Other, options).expect("empty");
        let log = dir.create("log", FileClass::Other).expect("create");
        log.allocate(1 << 20).expect("allocate");
        let write = |page: u64| {
            log.write_at(&[1; 4096], page * 4096).expect("write");
            log.sync().expect("sync");
        };
        // The first commits the file's creation, the second comes back from there.
        (0..2).for_each(write);
        let before = dir.counters();
        let nanos = timing(simulation, || (2..12).for_each(write));
        let after = dir.counters();
        let counters = TimedCounters {
            metadata_writes: after.metadata_writes - before.metadata_writes,
            metadata_bytes: after.metadata_bytes - before.metadata_bytes,
            data_page_bytes: after.data_page_bytes - before.data_page_bytes,
            ..after
        };
        (nanos as f64 / 1e7, counters)
    })
}

/// Goal: a log in a file that has its space costs as much as on the raw disk under `ext4`, 1.4
/// times as much under `f2fs` and 2.5 times under `btrfs`, as LDS section 4.7 says; 30 % are
/// accepted, for the paper's values are of a whole system. Method: synced overwrites in order.
#[test]
fn logs_in_files_that_have_their_space() {
    let (raw, counters) = overwrites(FileSystem::None);
    assert_eq!((counters.metadata_writes, counters.data_page_bytes), (0, 10 * 4096));
    for (kind, paper) in [
        (FileSystem::Ext4, 1.0),
        (FileSystem::Xfs, 1.0),
        (FileSystem::F2fs, 1.4),
        (FileSystem::Btrfs, 2.5),
    ] {
        let (milliseconds, counters) = overwrites(kind);
        let (ratio, free) = (milliseconds / raw, paper == 1.0);
        let accepted = if free { 0.99..=1.01 } else { paper * 0.7..=paper * 1.3 };
        assert!(accepted.contains(&ratio), "{kind:?}: {milliseconds} of {raw} ms");
        assert_eq!(counters.metadata_bytes == 0, free, "{kind:?}: {counters:?}");
    }
}

/// Goal: a new file's sync waits for the journal, with flushes around its end, a directory's for
/// what is left, and what is committed goes to its place later. Method: `ext4` with a write cache.
#[test]
fn a_journal_is_committed() {
    Simulation::run(11, |simulation| {
        let model = DiskModel::HDD_15K_X2;
        let file_system = FileSystem::Ext4;
        let options = TimedOptions { file_system, ..TimedOptions::new(model.clone()) };
        let dir = TimedDir::new(free_disk().dir(), |_| FileClass::Table, options).expect("empty");
        let file = dir.create("000001.tbl", FileClass::Table).expect("create");
        file.write_at(&[1; 4096], 0).expect("write");
        let took = timing(simulation, || file.sync().expect("sync"));
        // The data, a seek to the middle of the disk, and the commit block a rotation later.
        let seek = 4_400_000 + model.rotation_nanos / 2;
        let least = SEEK + seek + model.rotation_nanos + 2 * model.flush_nanos;
        assert!((least..least + 1_000_000).contains(&took), "{took}, at least {least}");
        let counters = dir.counters();
        assert_eq!((counters.metadata_writes, counters.flushes), (2, 2));
        assert_eq!(counters.metadata_bytes, (1 + 5 + 1) * 4096);
        assert_eq!(timing(simulation, || dir.sync().expect("sync")), 0, "all is committed");
        dir.unlink("000001.tbl", FileClass::Table).expect("unlink");
        assert!(timing(simulation, || dir.sync().expect("sync")) > model.rotation_nanos);
        assert_eq!(dir.counters().flushes, 4);
        simulation.delay(Duration::from_secs(31));
        let before = dir.counters().metadata_writes;
        dir.sync().expect("sync");
        assert!(dir.counters().metadata_writes > before, "blocks go to their places");
    });
}
