//! Goal: power cuts keep synced changes, and of the others exactly what the fault model allows.

use std::collections::BTreeMap;

use super::crash::{SECTOR_BYTES, Torn};
use super::*;
use crate::base::prng::Prng;
use crate::storage::files::names::class_of;

const SECTOR: usize = SECTOR_BYTES as usize;

fn recording() -> SimDisk {
    SimDisk::new(SimOptions { record: true, ..SimOptions::default() })
}

fn file(disk: &SimDisk, name: &str) -> Arc<dyn File> {
    disk.create(name, class_of(name)).expect("created")
}

/// All states of each sector of a file since its last sync, and all lengths.
#[derive(Clone, Default)]
struct History {
    sectors: BTreeMap<usize, Vec<Vec<u8>>>,
    lens: Vec<u64>,
}

fn sector(bytes: &[u8], index: usize) -> Vec<u8> {
    let mut sector = vec![0; SECTOR];
    let start = (index * SECTOR).min(bytes.len());
    let end = (start + SECTOR).min(bytes.len());
    sector[..end - start].copy_from_slice(&bytes[start..end]);
    sector
}

impl History {
    fn at_rest(bytes: &[u8]) -> Self {
        let mut history = Self::default();
        history.add(bytes, 0..bytes.len().div_ceil(SECTOR));
        history
    }

    fn add(&mut self, bytes: &[u8], sectors: std::ops::Range<usize>) {
        for index in sectors {
            let states = self.sectors.entry(index).or_insert_with(|| vec![vec![0; SECTOR]]);
            states.push(sector(bytes, index));
        }
        self.lens.push(bytes.len() as u64);
    }

    /// Whether the fault model allows this image of the file.
    fn allows(&self, image: &[u8]) -> bool {
        self.lens.contains(&(image.len() as u64))
            && (0..image.len().div_ceil(SECTOR)).all(|index| {
                let got = sector(image, index);
                let inside = (image.len() - index * SECTOR).min(SECTOR);
                self.sectors.get(&index).map_or(got.iter().all(|b| *b == 0), |states| {
                    states.iter().any(|state| state[..inside] == got[..inside])
                })
            })
    }
}

/// Goal: for every policy, a surviving sector or length has one of its states since the last sync.
/// Method: random writes, syncs and extensions of two files against the set of these states.
#[test]
fn images_are_allowed_by_the_model() {
    for seed in 0..60 {
        let mut prng = Prng::new(seed);
        let disk = recording();
        let names = ["wal-000001.log", "000002.tbl"];
        let files = names.map(|name| file(&disk, name));
        disk.sync().expect("synced");
        let mut bytes = [Vec::new(), Vec::new()];
        let mut histories = [History::at_rest(&[]), History::at_rest(&[])];
        for step in 0..25 {
            let i = prng.below(2) as usize;
            match prng.below(6) {
                0 => {
                    files[i].sync().expect("synced");
                    histories[i] = History::at_rest(&bytes[i]);
                }
                1 => {
                    let len = bytes[i].len() + prng.below(2000) as usize;
                    files[i].allocate(len as u64).expect("allocated");
                    bytes[i].resize(len, 0);
                    histories[i].add(&bytes[i], 0..0);
                }
                _ => {
                    let offset = prng.below(4000) as usize;
                    let data: Vec<u8> =
                        (0..1 + prng.below(3000)).map(|_| prng.next_u64() as u8).collect();
                    files[i].write_at(&data, offset as u64).expect("written");
                    let end = offset + data.len();
                    if bytes[i].len() < end {
                        bytes[i].resize(end, 0);
                    }
                    bytes[i][offset..end].copy_from_slice(&data);
                    histories[i].add(&bytes[i], offset / SECTOR..end.div_ceil(SECTOR));
                }
            }
            for policy in CrashPolicy::ALL {
                let invents = [Torn::Zero, Torn::Garbage, Torn::Page].map(CrashPolicy::TornLast);
                if invents.contains(&policy)
                    || matches!(policy, CrashPolicy::TornPages(_) | CrashPolicy::TornBlock)
                {
                    continue;
                }
                let image = disk.crash(policy, seed * 1000 + step);
                for (name, history) in names.iter().zip(&histories) {
                    let got = image.read_all(name).expect("its name is durable");
                    // A torn write truncates the file at the tear: a length that it never had.
                    let torn = matches!(policy, CrashPolicy::TornLast(_));
                    let mut history = history.clone();
                    if torn {
                        history.lens.push(got.len() as u64);
                    }
                    assert!(history.allows(&got), "seed {seed} step {step} {policy:?} {name}");
                }
            }
            let all = disk.crash(CrashPolicy::All, 1);
            assert!(all.read_all(names[i]).as_ref() == Some(&bytes[i]), "seed {seed} step {step}");
        }
    }
}

/// Goal: a device that tears more than it says takes what is durable beside a superblock along, and
/// nothing else. Method: an aligned and an unaligned write where superblocks lie, then one behind.
#[test]
fn a_torn_block_is_one_of_a_superblock() {
    const KIB: usize = 1024;
    let disk = recording();
    let store = file(&disk, "store");
    store.write_at(&vec![1; 3 << 20], 0).expect("written");
    store.sync().expect("synced");
    disk.sync().expect("synced");
    for (at, torn) in [
        (1024 * KIB, Some(1024 * KIB..1040 * KIB)),
        (20 * KIB, Some(16 * KIB..32 * KIB)),
        (2500 * KIB, None),
    ] {
        store.write_at(&[2; 4096], at as u64).expect("written");
        let image = disk.crash(CrashPolicy::TornBlock, 7).read_all("store").expect("durable");
        let whole = disk.crash(CrashPolicy::All, 7).read_all("store").expect("durable");
        let differs = (0..image.len()).filter(|&n| image[n] != whole[n]);
        let torn = torn.unwrap_or(0..0);
        let (inside, outside): (Vec<usize>, Vec<usize>) = differs.partition(|n| torn.contains(n));
        assert!(outside.is_empty() && inside.len() * 10 >= torn.len() * 9, "at {at}");
    }
}

/// Goal: each policy yields its documented state. Method: a synced file that is overwritten and
/// extended, and a new file, both un-synced.
#[test]
fn policies_do_what_they_say() {
    let disk = recording();
    let old = file(&disk, "old");
    old.write_at(&[1; 1024], 0).expect("written");
    old.sync().expect("synced");
    disk.sync().expect("synced");
    old.write_at(&[2; 2048], 0).expect("written");
    let new = file(&disk, "new");
    new.write_at(&[3; 1000], 0).expect("written");
    let [ones, twos, zeros] = [1, 2, 0].map(|byte| move |n: usize| vec![byte; n]);
    let look = |policy| {
        let image = disk.crash(policy, 7);
        (image.read_all("old").expect("durable"), image.read_all("new"))
    };
    assert_eq!(look(CrashPolicy::Nothing), (ones(1024), None));
    assert_eq!(look(CrashPolicy::All), (twos(2048), Some(vec![3; 1000])));
    let grown = [ones(1024), zeros(1024)].concat();
    assert_eq!(look(CrashPolicy::MetadataFirst), (grown, Some(zeros(1000))));
    assert_eq!(look(CrashPolicy::DataFirst), (twos(1024), None));
    assert_eq!(look(CrashPolicy::NamesWithoutData), (ones(1024), Some(vec![])));
    assert_eq!(look(CrashPolicy::NewestOnly), (ones(1024), None));
    let torn = |torn, n| look(CrashPolicy::TornAt(torn, n));
    assert_eq!(torn(Torn::Old, 1), (twos(2048), Some(vec![3; 512])));
    assert_eq!(torn(Torn::Zero, 1), (twos(2048), Some([vec![3; 512], zeros(488)].concat())));
    assert_eq!(torn(Torn::NewBehindOld, 1).1, Some([zeros(512), vec![3; 488]].concat()));
    let garbage = torn(Torn::Garbage, 1).1.expect("there");
    assert!(garbage[..512] == [3; 512] && garbage[512..] != [3; 488] && garbage.len() == 1000);
    assert_eq!(disk.replayer().torn_sectors(), 0, "the replayer begins before everything");
    let mut replayer = disk.replayer();
    replayer.go_to(replayer.len());
    assert_eq!(replayer.torn_sectors(), 2);
    let dropped = (0..20).map(|seed| disk.crash(CrashPolicy::DropEntries, seed));
    assert!(dropped.filter(|image| image.read_all("new").is_none()).count() > 10);
}

/// Goal: directory operations survive in any subset while un-synced, and a rename is atomic.
/// Method: replace a root, check images of every policy with many seeds.
#[test]
fn rename_is_atomic() {
    let disk = recording();
    for (generation, content) in [b"first", b"other"].into_iter().enumerate() {
        let tmp = file(&disk, "ROOT.tmp");
        tmp.write_at(content, 0).expect("written");
        tmp.sync().expect("synced");
        disk.rename("ROOT.tmp", "ROOT", FileClass::Root).expect("renamed");
        if generation == 0 {
            disk.sync().expect("synced");
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    for policy in CrashPolicy::ALL {
        for seed in 0..20 {
            let root = disk.crash(policy, seed).read_all("ROOT").expect("never without a root");
            assert!(root == b"first" || root == b"other");
            seen.insert(root);
        }
    }
    assert_eq!(seen.len(), 2);
}

/// Goal: the replayer reproduces the states of the disk, forwards and backwards, and the marks
/// before a boundary; an image can record for a second crash.
#[test]
fn replay_equals_the_run() {
    let disk = recording();
    let mut states = vec![disk.copy()];
    let keep = |states: &mut Vec<SimDisk>| {
        while states.len() <= disk.trace_len() {
            states.push(disk.crash(CrashPolicy::Random(4), 5));
        }
    };
    let log = file(&disk, "wal-000001.log");
    keep(&mut states);
    for i in 0..20u64 {
        log.write_at(&[i as u8; 700], i * 300).expect("written");
        keep(&mut states);
        if i % 3 == 0 {
            log.sync().expect("synced");
            keep(&mut states);
            disk.mark(i);
            keep(&mut states);
        }
        if i == 7 {
            disk.sync().expect("synced");
            keep(&mut states);
        }
    }
    let mut replayer = disk.replayer();
    assert_eq!(replayer.len() + 1, states.len());
    for boundary in (1..states.len()).chain([3, 9, 1]) {
        replayer.go_to(boundary);
        let image = replayer.image(CrashPolicy::Random(4), 5);
        let (got, expected) = (image.read_all("wal-000001.log"), &states[boundary]);
        assert!(got == expected.read_all("wal-000001.log"), "boundary {boundary}");
    }
    replayer.go_to(usize::MAX);
    assert_eq!(replayer.marks(), [0, 3, 6, 9, 12, 15, 18]);
    assert_eq!(replayer.next_site(), None);
    replayer.go_to(1);
    assert_eq!(replayer.next_site().expect("a write").to_string(), "Write x Wal");
    assert!(replayer.describe(1, 2).contains("--- power cut ---"));

    let again = replayer.recording_image(CrashPolicy::All, 0);
    file(&again, "x");
    assert_eq!((again.trace_len(), again.replayer().len()), (1, 1));
}

/// Goal: the fsync-gate: after a failed sync the dirty data is lost, although a later sync
/// succeeds; until the power cut it is readable or not, by `revert`.
#[test]
fn lost_dirty_data_stays_lost() {
    for revert in [false, true] {
        let disk = SimDisk::default();
        let log = file(&disk, "log");
        log.write_at(&[1; 512], 0).expect("written");
        log.sync().expect("synced");
        disk.sync().expect("synced");
        log.write_at(&[2; 512], 512).expect("written");
        disk.lose_dirty("log", revert);
        assert_eq!(log.len().expect("length"), if revert { 512 } else { 1024 });
        log.write_at(&[3; 512], 1024).expect("written");
        log.sync().expect("it says so");
        let image = disk.crash(CrashPolicy::All, 0).read_all("log").expect("durable");
        assert!(image == [[1; 512], [0; 512], [3; 512]].concat(), "revert {revert}");
    }
}

/// A disk with a limit of files: creating one more fails, and a removed file counts until its
/// removal is durable and no handle is open.
#[test]
fn files_run_out() {
    let disk = SimDisk::new(SimOptions { files_max: Some(2), ..SimOptions::default() });
    let a = file(&disk, "a");
    file(&disk, "b");
    assert_eq!((disk.used_files(), disk.free_files().ok()), (2, Some(Some(0))));
    assert_eq!(
        disk.create("c", FileClass::Other).map(|_| ()).map_err(|e| e.kind()),
        Err(ErrorKind::NoSpace)
    );
    assert_eq!(disk.lock("l").map(|_| ()).map_err(|e| e.kind()), Err(ErrorKind::NoSpace));
    disk.unlink("a", FileClass::Other).expect("removed");
    disk.sync().expect("synced");
    assert_eq!(disk.used_files(), 2, "it is open");
    drop(a);
    disk.sync().expect("synced");
    drop(disk.lock("l").expect("there is a place for the lock file now"));
    disk.set_files_max(None);
    file(&disk, "c");
    assert_eq!(disk.free_files().ok(), Some(None));
}

/// Goal: open files outlive their names; a full disk is `NoSpace`; locks are exclusive; each kind
/// of damage has its effect.
#[test]
fn the_rest_of_a_disk() {
    let options = SimOptions { capacity_bytes: Some(1000), ..SimOptions::default() };
    let disk = SimDisk::new(options);
    let a = file(&disk, "a");
    a.write_at(&[7; 600], 0).expect("written");
    disk.unlink("a", FileClass::Other).expect("removed");
    disk.sync().expect("synced");
    let mut byte = [0];
    a.read_exact_at(&mut byte, 599).expect("still readable");
    assert_eq!(
        file(&disk, "b").write_at(&[0; 500], 0).map_err(|e| e.kind()),
        Err(ErrorKind::NoSpace)
    );
    assert_eq!(disk.open_files(), 1);
    drop(a);
    disk.sync().expect("synced");
    disk.open("b", FileClass::Other, Mode::ReadWrite)
        .expect("opened")
        .write_at(&[0; 500], 0)
        .expect("room again");
    let read_only = disk.open("b", FileClass::Other, Mode::Read).expect("opened");
    assert!(read_only.write_at(&[1], 0).is_err() && disk.create("b", FileClass::Other).is_err());

    let held = disk.lock("LOCK").expect("free");
    assert_eq!(disk.lock("LOCK").err().map(|e| e.kind()), Some(ErrorKind::Locked));
    drop(held);
    disk.lock("LOCK").expect("free");

    assert!(disk.flip_bit("b", 3, 1) && !disk.flip_bit("b", 500, 1) && !disk.flip_bit("x", 0, 0));
    assert_eq!(disk.read_all("b").expect("there")[..5], [0, 0, 0, 2, 0]);
    assert!(disk.copy_sector("b", 0, 0) && disk.zero_sector("b", 3));
    assert!(disk.append_garbage("b", b"xyz") && disk.truncate("b", 502));
    assert!(disk.read_all("b").expect("there").ends_with(&[0, b'x', b'y']));
    disk.sync().expect("synced");
    disk.write_all("c", b"c");
    assert!(disk.swap_files("b", "c") && disk.read_all("b").expect("there") == b"c");
    assert!(disk.delete("b") && !disk.delete("b"));
    assert_eq!(disk.crash(CrashPolicy::Nothing, 0).list().expect("list"), ["LOCK", "c"]);
}

/// Goal: what a discarded range holds is old, zeros or garbage, and nothing else changes (H77).
/// Method: discards of single pages of a file with known bytes, then images.
#[test]
fn discards_leave_anything() {
    const PAGES: usize = 60;
    let disk = recording();
    let table = file(&disk, "000002.tbl");
    disk.dir().sync().expect("named");
    table.write_at(&[7; PAGES * 4096], 0).expect("written");
    table.sync().expect("synced");
    for page in (0..PAGES).step_by(2) {
        table.discard(page as u64 * 4096, 4096).expect("discarded");
    }
    let read = |disk: &SimDisk| disk.read_all("000002.tbl").expect("there");
    let (mut old, mut zeros, mut garbage) = (0, 0, 0);
    let now = read(&disk);
    for (page, bytes) in now.chunks(4096).enumerate() {
        match bytes {
            _ if bytes.iter().all(|&byte| byte == 7) => old += usize::from(page % 2 == 0),
            _ if page % 2 == 1 => panic!("page {page} was not discarded"),
            _ if bytes.iter().all(|&byte| byte == 0) => zeros += 1,
            _ => garbage += 1,
        }
    }
    assert!(old > 3 && zeros > 3 && garbage > 3, "{old} old, {zeros} zeros, {garbage} garbage");
    assert!(read(&disk.crash(CrashPolicy::Nothing, 0)) == vec![7; PAGES * 4096]);
    assert!(read(&disk.crash(CrashPolicy::All, 0)) == now);
    table.write_at(&[8; 4096], 0).expect("written");
    table.sync().expect("synced");
    assert!(read(&disk.crash(CrashPolicy::Nothing, 0))[..4096] == [8; 4096]);
}

/// Goal: a durable write makes its own bytes durable and no others. Method: an un-synced write
/// beside it and one below it, then images.
#[test]
fn durable_writes_are_of_their_own_bytes() {
    let disk = recording();
    let log = file(&disk, "wal-000001.log");
    disk.dir().sync().expect("named");
    log.write_at(&[1; 16_384], 0).expect("written");
    log.sync().expect("synced");
    log.write_at(&[2; 4096], 0).expect("written");
    log.write_at(&[3; 4096], 8192).expect("written");
    log.write_durable(&[4; 512], 8192).expect("durable");
    let expected = |first: u8| {
        let mut bytes = vec![1; 16_384];
        bytes[..4096].fill(first);
        bytes[8192..12_288].fill(3);
        bytes[8192..8704].fill(4);
        bytes
    };
    let read = |disk: &SimDisk| disk.read_all("wal-000001.log").expect("there");
    assert!(read(&disk) == expected(2));
    assert!(read(&disk.crash(CrashPolicy::Nothing, 0)) == expected(1), "the first page is not");
    assert!(read(&disk.crash(CrashPolicy::All, 0)) == expected(2));
    log.write_durable(&[5; 100], 16_384).expect("the file grows");
    let image = read(&disk.crash(CrashPolicy::Nothing, 0));
    assert!(image.len() == 16_484 && image[16_384..] == [5; 100]);
    let mut replayer = disk.replayer();
    replayer.go_to(replayer.len());
    assert!(read(&replayer.image(CrashPolicy::Nothing, 0)) == image, "replayed alike");
}
