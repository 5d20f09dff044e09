//! Power cuts during a repair, at every change of the disk; log groups that no writer has written.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::coding::put_varint;
use crate::base::error::Result;
use crate::base::ids::{KeyspaceId, Lsn, Nonce, SegmentNumber};
use crate::base::key::{Kind, SEQ_MAX};
use crate::base::limits::KEY_BYTES_MAX;
use crate::db::Db;
use crate::device::Dir;
use crate::device::FileClass;
use crate::device::faulty::{Effect, ErrorCode, Fault, FaultyDir, Times};
use crate::device::sim::crash::CrashPolicy;
use crate::device::sim::{SimDisk, SimOptions};
use crate::device::site::OpKind;
use crate::log::{GroupType, LogSource, SegmentIdentity, SegmentWriter, replay};
use crate::options::SentinelOptions;
use crate::options::{Durability, Options};
use crate::storage::files::Files;
use crate::storage::files::names::class_of;
use crate::storage::{LogKind, OpenOptions, Storage};
use crate::version::set::{Context, VersionSet};
use crate::write::batch::{Record, encode};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn try_open(disk: &SimDisk) -> Result<Db> {
    Db::builder("simulated")
        .device(disk.dir())
        .seed(7)
        .memory_budget(8 << 20)
        .log_segment_bytes(8 << 10)
        .log_area_bytes(1 << 20)
        .open()
}

fn open(disk: &SimDisk) -> Db {
    try_open(disk).expect("opened")
}

/// A closed store of two keyspaces with tables and log groups that are in no table.
fn store() -> SimDisk {
    let disk = SimDisk::new(SimOptions::default());
    let db = open(&disk);
    let tiny = Options { table_bytes: 2 << 10, block_bytes: 512, ..Options::default() };
    let other = db.keyspace_with("other", tiny).expect("created");
    for round in 0..4u32 {
        for i in 0..60u32 {
            let key = format!("key {:04}", (i * 7 + round * 13) % 150);
            let keyspace = if i % 2 == 0 { &other } else { db.default_keyspace() };
            keyspace.put(key, format!("value {round} {i}")).expect("put");
        }
        if round < 3 {
            db.flush().expect("flushed");
        }
    }
    db.put_with(b"last", b"one", Durability::Sync).expect("put");
    db.close().expect("closed");
    disk
}

/// A disk with the files of `disk`, changed by `damage`, which records what happens from then on;
/// and where in its record that begins.
fn damaged(disk: &SimDisk, damage: impl Fn(&str, Vec<u8>) -> Option<Vec<u8>>) -> (SimDisk, usize) {
    let copy = SimDisk::new(SimOptions { record: true, ..SimOptions::default() });
    let dir: Arc<dyn Dir> = copy.dir();
    for name in disk.dir().list().expect("listed") {
        let bytes = disk.read_all(&name).expect("a file");
        let Some(bytes) = damage(&name, bytes) else { continue };
        let file = dir.create(&name, class_of(&name)).expect("created");
        file.write_at(&bytes, 0).expect("written");
        file.sync().expect("synced");
    }
    dir.sync().expect("synced");
    let start = copy.trace_len();
    (copy, start)
}

/// All pairs of all keyspaces, which must verify.
fn contents(disk: &SimDisk) -> BTreeMap<String, Pairs> {
    let db = open(disk);
    assert!(db.verify().expect("verified").damages.is_empty());
    let mut all = BTreeMap::new();
    for name in db.keyspaces() {
        let keyspace = db.open_keyspace(&name).expect("opened");
        let pairs = keyspace.iter().map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())));
        all.insert(name, pairs.collect::<Result<Pairs>>().expect("pairs"));
    }
    db.close().expect("closed");
    all
}

/// Repairs `disk`, then a copy of it after a power cut at every change that the repair made, under
/// several ideas of what survives: each time what the undisturbed repair gave must be there, also
/// if somebody has opened the store before it is repaired again. How many changes there were, and
/// how often it could be opened.
fn cut_at_every_change(disk: &SimDisk, start: usize, what: &str) -> (usize, usize) {
    let builder = |disk: &SimDisk| Db::builder("simulated").device(disk.dir()).seed(9);
    let report = builder(disk).repair().expect("repaired");
    assert!(!report.healthy, "{what}: {report}");
    let mut replayer = disk.replayer();
    let end = replayer.len();
    let expected = contents(&disk.copy());
    let mut opened = 0;
    for boundary in start..=end {
        replayer.go_to(boundary);
        for policy in [CrashPolicy::Nothing, CrashPolicy::All, CrashPolicy::Random(4)] {
            for open_between in [false, true] {
                let image = replayer.image(policy, boundary as u64);
                if open_between {
                    let Ok(db) = try_open(&image) else { continue };
                    drop(db);
                    opened += 1;
                }
                let again = builder(&image).repair();
                let place =
                    || format!("{what}, {policy:?}, {open_between}\n{}", replayer.describe(6, 3));
                let again = again.unwrap_or_else(|e| panic!("{e}: {}", place()));
                assert!(contents(&image) == expected, "{again}\n{}", place());
            }
        }
    }
    (end - start, opened)
}

/// Goal: a repair that keeps the structure can be cut off anywhere. Method: a table and the log
/// damaged, a power cut at every change.
#[test]
fn repair_that_keeps_the_structure_survives_power_cuts() {
    let disk = store();
    let names = disk.dir().list().expect("listed");
    let table = names.iter().find(|name| name.ends_with(".tbl")).expect("a table");
    let (disk, start) = damaged(&disk, |name, mut bytes| {
        if name == table {
            bytes[30] ^= 1;
        } else if name.starts_with("wal-") && bytes.iter().filter(|&&b| b != 0).count() > 1000 {
            // Behind what the flushes made obsolete, and not in the padding of a group.
            let written: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
            bytes[written[written.len() * 9 / 10]] ^= 1;
        }
        Some(bytes)
    });
    let (changes, _) = cut_at_every_change(&disk, start, "kept");
    assert!(changes > 20, "{changes} changes");
}

/// Goal: a store that can be opened with a damaged table loses nothing of that table's sound blocks
/// if its repair is cut off and it is opened then. The story: the table had another name before the
/// version that does without it was durable, and the opening removed what was to take its place.
#[test]
fn an_opening_after_a_repair_that_was_cut_off_costs_nothing() {
    let disk = store();
    let names = disk.dir().list().expect("listed");
    let tables = names.iter().filter(|name| name.ends_with(".tbl"));
    let largest = tables.max_by_key(|name| disk.read_all(name).map_or(0, |bytes| bytes.len()));
    let largest = largest.expect("a table");
    let (disk, start) = damaged(&disk, |name, mut bytes| {
        if name == largest {
            bytes[30] ^= 1;
        }
        Some(bytes)
    });
    let (changes, opened) = cut_at_every_change(&disk, start, "a table");
    assert!(changes > 10 && opened > changes, "{changes} changes, opened {opened} times");
}

/// Goal: what cannot be copied aside, for want of space or because it cannot be read, does not keep
/// a store from being repaired: it is moved. Method: the end of a table is damaged, so that nothing
/// of it is kept and nothing else is written for it; its copy cannot be made.
#[test]
fn what_cannot_be_copied_is_moved() {
    let disk = store();
    let names = disk.dir().list().expect("listed");
    let table = names.iter().find(|name| name.ends_with(".tbl")).expect("a table");
    for code in [ErrorCode::Enospc, ErrorCode::Eio] {
        let (disk, _) = damaged(&disk, |name, mut bytes| {
            if name == table {
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
            }
            Some(bytes)
        });
        let faulty = FaultyDir::over_disk(&disk);
        let (op, class) = (Some(OpKind::Create), Some(FileClass::Table));
        let effect = Effect::Fail(code);
        faulty.faults().arm(Fault { op, class, after: 0, times: Times::Once, effect });
        let builder = Db::builder("simulated").device(Arc::new(faulty)).seed(9);
        let report = builder.repair().expect("repaired");
        let kept = report.lost_tables[0].kept_as.clone().expect("it is there");
        let names = disk.dir().list().expect("listed");
        assert!(names.contains(&kept) && !names.contains(table), "{names:?}: {report}");
        drop(open(&disk));
    }
}

/// Goal: a rebuild can be cut off anywhere. Method: root record and version log gone, a power cut
/// at every change.
#[test]
fn repair_that_rebuilds_survives_power_cuts() {
    let lost = |name: &str| name == "ROOT" || name.starts_with("versions-");
    let (disk, start) = damaged(&store(), |name, bytes| (!lost(name)).then_some(bytes));
    let (changes, _) = cut_at_every_change(&disk, start, "rebuilt");
    assert!(changes > 20, "{changes} changes");
}

/// Appends a log group with a right checksum to a closed store.
fn append_group(disk: &SimDisk, first: u64, key: &[u8]) {
    let files = Files::open(disk.dir(), OpenOptions { create: false, read_only: false });
    let storage: Arc<dyn Storage> = Arc::new(files.expect("opened"));
    let context = Context {
        storage: Arc::clone(&storage),
        cache: None,
        accountant: None,
        version_log_bytes: 1 << 20,
        tables: None,
        seed: 1,
    };
    let root = VersionSet::open_read_only(context).expect("read").current();
    let start = root.replay_start().expect("a keyspace");
    let (durable_lsn, lineage) = (root.wal_durable_lsn, root.lineage);
    let log = LogSource { kind: LogKind::Wal, start, durable_lsn, lineage, nonce: Nonce::NONE };
    let end = replay(&*storage, log, &mut |_| Ok(()));
    let end = end.expect("replayed");
    let existing = storage.list_logs(LogKind::Wal).expect("listed");
    let segment = existing.last().map_or(SegmentNumber::FIRST, |last| last.next());
    let file = storage.create_log(LogKind::Wal, segment, 0).expect("created");
    let opening = root.opening.max(end.next.opening);
    let identity =
        SegmentIdentity { kind: LogKind::Wal, segment, lineage, opening, nonce: Nonce::NONE };
    let mut writer = SegmentWriter::start(file, identity, end.chain, Lsn::ZERO).expect("started");
    let mut payload = Vec::new();
    put_varint(&mut payload, first);
    encode(
        &mut payload,
        Record { kind: Kind::Put, keyspace: KeyspaceId::DEFAULT, key, value: b"v" },
    );
    writer.append(GroupType::Full, &[&payload], 1, true, Lsn::ZERO).expect("appended");
    writer.region().sync().expect("synced");
}

/// Goal: a log group with a right checksum that no writer has written is refused, with file and
/// offset, by opening and repair alike. The story: with a first sequence number at the end of all
/// numbers the next write counted from 0 and was lost; with a key that is too long every flush
/// poisoned the store, at every opening.
#[test]
fn impossible_log_groups_are_refused_by_name() {
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    for (first, key) in [(u64::MAX, &b"k"[..]), (SEQ_MAX + 1, b"k"), (100_000, &long)] {
        let disk = store();
        let before = contents(&disk.copy());
        append_group(&disk, first, key);
        let builder = || Db::builder("simulated").device(disk.dir()).seed(7);
        let error = builder().open().expect_err("refused");
        let damage = error.damage().unwrap_or_else(|| panic!("{error}"));
        assert!(damage.file.contains("/wal-0") && damage.offset > 0, "{error}");
        let report = builder().repair().expect("repaired");
        let lost = report.lost_log.first().unwrap_or_else(|| panic!("{report}"));
        assert_eq!(lost.why.damage(), Some(damage), "{report}");
        assert!(contents(&disk) == before, "{report}");
    }
}

/// Goal: a damaged table of a sentinel costs nothing while the tables that it was made of are
/// there: their masks hide all that it has. Method: a sentinel over the middle of two runs, one
/// with overwritten and deleted keys; a flip in its table; the repaired store holds what it held.
#[test]
fn a_damaged_sentinel_is_had_again_from_what_it_hides() {
    let disk = SimDisk::new(SimOptions::default());
    let db = open(&disk);
    let keyspace = db.default_keyspace();
    // So that it has a small share of the tree, and is not merged before the store is closed.
    let on = keyspace.options().sentinels(SentinelOptions::default());
    keyspace.set_options(on).expect("set");
    for i in 0..1000u32 {
        keyspace.put(format!("key {i:04}"), format!("old {i}")).expect("put");
    }
    db.flush().expect("flushed");
    db.compact_range(..).expect("merged");
    for i in (0..1000u32).step_by(3) {
        match i % 2 {
            0 => keyspace.put(format!("key {i:04}"), format!("new {i}")).expect("put"),
            _ => keyspace.delete(format!("key {i:04}")).expect("deleted"),
        }
    }
    db.flush().expect("flushed");
    let range = b"key 0200".to_vec()..b"key 0240".to_vec();
    assert!(keyspace.build_sentinel(range).expect("built"));
    db.close().expect("closed");
    let before = contents(&disk.copy());
    let names = disk.dir().list().expect("listed");
    let sentinel = names.iter().filter(|name| name.ends_with(".tbl")).max().expect("a table");
    let (disk, _) = damaged(&disk, |name, mut bytes| {
        if name == sentinel {
            bytes[30] ^= 1;
        }
        Some(bytes)
    });
    let report = Db::builder("simulated").device(disk.dir()).seed(9).repair().expect("repaired");
    let lost = &report.lost_tables[0];
    assert!(lost.entries.is_some_and(|entries| lost.entries_kept >= entries), "{report}");
    assert!(contents(&disk) == before, "{report}");
}
