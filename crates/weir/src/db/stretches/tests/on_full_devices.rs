//! Merges in stretches on full devices, against a model: what is written is found, whoever reads,
//! cuts the power or fails in between; and the space of what was used up comes back.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::base::error::Result;
use crate::base::prng::Prng;
use crate::options::{LeveledOptions, Options, PartsOptions, RunsOptions};
use crate::sim::{
    CrashPolicy, Effect, ErrorCode, Fault, FaultyDir, FileClass, OpKind, SimDisk, SimOptions,
    Times, format_in,
};
use crate::{Db, DbOptions, DebugDbOptions, FormatOptions, Snapshot};

const STORE: &str = "store.weir";
const MIB: u64 = 1 << 20;

/// What a reader at some time sees.
type Model = BTreeMap<u32, Vec<u8>>;

fn options(compaction: CompactionPolicy, table_bytes: u64) -> Options {
    Options::default()
        .compaction(compaction)
        .write_buffer_bytes(table_bytes)
        .table_bytes(table_bytes)
        .compression([crate::Compression::None])
}

fn all_policies() -> [CompactionPolicy; 7] {
    let runs = RunsOptions::default().runs_per_level(4);
    let levels = LeveledOptions::default().base_level_bytes(MIB).l0_trigger(2);
    let parts =
        PartsOptions::default().base_level_bytes(MIB).expected_bytes(64 * MIB).l0_trigger(1);
    [
        CompactionPolicy::Leveled(levels),
        CompactionPolicy::Tiered(runs),
        CompactionPolicy::LazyLeveled(runs),
        CompactionPolicy::SizeTiered(runs),
        CompactionPolicy::SteppedMerge(runs),
        CompactionPolicy::Gear(parts),
        CompactionPolicy::TwoPhase(parts),
    ]
}

/// A store in slots of a file of so many bytes, or in a directory.
fn open_with(dir: Arc<dyn crate::device::Dir>, in_slots: bool, options: Options) -> Result<Db> {
    open_debug(dir, in_slots, options, DebugDbOptions::default())
}

fn open_debug(
    dir: Arc<dyn crate::device::Dir>,
    in_slots: bool,
    options: Options,
    debug: DebugDbOptions,
) -> Result<Db> {
    // Else most of what a small store takes may be its version log, which shrinks.
    let debug = debug.version_log_bytes(16 << 10);
    let builder = Db::builder("sim")
        .options(DbOptions::default().debug(debug))
        .default_options(options)
        .memory_budget(8 * MIB)
        .background_threads(1)
        .seed(1)
        .device(dir);
    let builder = match in_slots {
        true => builder.device_file(STORE),
        false => builder.log_segment_bytes(64 << 10).log_area_bytes(MIB),
    };
    builder.open()
}

fn open(disk: &SimDisk, in_slots: bool, compaction: CompactionPolicy) -> Db {
    // Slots have 64 KiB at least.
    let table_bytes = if in_slots { 512 << 10 } else { 16 << 10 };
    open_with(disk.dir(), in_slots, options(compaction, table_bytes)).expect("it opens")
}

/// Opens a store in a directory whose merges are cut wherever they can be, also while there is
/// room: that of files which are deleted in a moment is nobody's to foresee.
fn open_cut(disk: &SimDisk) -> Db {
    let debug = DebugDbOptions::default().stretch_bytes(32 << 10);
    let options = options(building_policy(), 16 << 10);
    open_debug(disk.dir(), false, options, debug).expect("it opens")
}

fn format(disk: &SimDisk, bytes: u64) {
    let mut options = FormatOptions::new();
    (options.slot_bytes, options.log_bytes) = (Some(64 << 10), Some(2 * MIB));
    format_in(&disk.dir(), STORE, bytes, &options).expect("it is formatted");
}

fn key(number: u32) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

fn assert_is(db: &Db, model: &Model, what: &str) {
    let found: Vec<(Vec<u8>, Vec<u8>)> =
        db.iter().map(|entry| entry.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    let expected: Vec<(Vec<u8>, Vec<u8>)> =
        model.iter().map(|(&k, v)| (key(k), v.clone())).collect();
    let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
    assert!(found == expected, "{what}: {} of {}, {differs:?}", found.len(), expected.len());
    for number in (0..8000).step_by(17) {
        let value = db.get(key(number)).unwrap().map(|value| value.to_vec());
        assert_eq!(value.as_ref(), model.get(&number), "{what}: key {number}");
    }
}

fn assert_snapshot(db: &Db, snapshot: &Snapshot, model: &Model, what: &str) {
    let keyspace = db.default_keyspace();
    let found: Vec<Vec<u8>> =
        snapshot.iter(keyspace).map(|entry| entry.unwrap().1.to_vec()).collect();
    assert!(found.iter().eq(model.values()), "{what}: {} entries", found.len());
}

fn no_space(error: &Error) -> bool {
    error.kind() == ErrorKind::NoSpace
}

/// Writes until the device is full; what was refused last is in the model if it is in the
/// store.
fn fill(db: &Db, model: &mut Model, prng: &mut Prng, keys: u64, writes: usize) -> bool {
    for _ in 0..writes {
        let number = prng.below(keys) as u32;
        let value = vec![prng.below(256) as u8; 2000 + prng.below(4000) as usize];
        let delete = prng.chance(1, 8);
        let done = if delete { db.delete(key(number)) } else { db.put(key(number), &value) };
        match done {
            Ok(()) if delete => drop(model.remove(&number)),
            Ok(()) => drop(model.insert(number, value)),
            Err(error) => {
                assert!(no_space(&error), "{error}");
                match db.get(key(number)).unwrap() {
                    Some(found) => drop(model.insert(number, found.to_vec())),
                    None => drop(model.remove(&number)),
                }
                return true;
            }
        }
    }
    false
}

/// Goal: every policy fills a device, and what was written is found then, by snapshots too, and
/// after an opening; it comes to an end, and goes on when there is room. Method: random writes
/// with overwrites and deletes; half of the time few keys, so that merges make room.
#[test]
fn every_policy_fills_a_device() {
    let mut stretches = BTreeMap::new();
    for (seed, policy) in (0..1).flat_map(|seed| all_policies().map(|policy| (seed, policy))) {
        println!("seed {seed}, {policy}");
        let disk = SimDisk::new(SimOptions::default());
        format(&disk, 64 * MIB);
        let mut db = open(&disk, true, policy);
        let (mut prng, mut model) = (Prng::new(seed), Model::new());
        for round in 0..3 {
            let keys = if (seed + round) % 2 == 0 { 20_000 } else { 1_000_000 };
            let full = fill(&db, &mut model, &mut prng, keys, 60_000);
            if round == 0 {
                let space = db.slot_space().unwrap();
                let kept = db.kept_back_bytes().unwrap() / space.slot_bytes;
                println!("  full {full}: {} of {} slots, {kept} kept", space.owned, space.slots);
                println!("{}", db.property("weir.levels").unwrap());
            }
            for done in [db.flush(), db.wait_idle()] {
                assert!(done.is_ok() || done.is_err_and(|e| no_space(&e)), "{policy}");
            }
            assert_is(&db, &model, "when it is full");
            let count = db.metrics().stretches;
            *stretches.entry(policy.name()).or_insert(0) += count;
            println!("  {count} stretches, {} merges", db.metrics().compactions_in_stretches);
            db.close().unwrap();
            db = open(&disk, true, policy);
            assert_is(&db, &model, "after an opening");
            for number in model.keys().copied().filter(|n| n % 3 != 0).collect::<Vec<_>>() {
                if db.delete(key(number)).is_err() {
                    break;
                }
                model.remove(&number);
            }
            if let Err(error) = db.compact_range(..) {
                assert!(no_space(&error), "{policy}: {error}");
            }
        }
        assert_is(&db, &model, "at the end");
        db.close().unwrap();
    }
    println!("{stretches:?}");
    // Which merges have to be cut depends on how far they have come.
    assert!(stretches.values().sum::<u64>() > 100, "{stretches:?}");
}

/// Goal: who compacts and deletes gets out of a store that small memtables have filled, in
/// which no merge fits in one piece, and none of all runs of level 0 in stretches: they lie
/// over all that is below. Method: keys that are all different, until it is full; then in turn
/// compactions and deletes, and writes again.
#[test]
fn a_full_store_can_be_compacted() {
    for (seed, mib, l0_trigger) in [(1, 48, 4), (2, 64, 4), (3, 96, 4), (4, 48, 12)] {
        let levels = LeveledOptions::default().base_level_bytes(MIB).l0_trigger(l0_trigger);
        get_out_of_a_full_store(seed, mib, CompactionPolicy::Leveled(levels));
    }
}

/// Goal: the same with every policy, where levels collect runs, too, of which a merge of all
/// does not fit.
#[test]
fn every_full_store_can_be_compacted() {
    for policy in all_policies() {
        (5..7).for_each(|seed| get_out_of_a_full_store(seed, 64, policy));
    }
}

fn get_out_of_a_full_store(seed: u64, mib: u64, policy: CompactionPolicy) {
    let disk = SimDisk::new(SimOptions::default());
    format(&disk, mib * MIB);
    let options = options(policy, 256 << 10);
    let db = open_with(disk.dir(), true, options).expect("it opens");
    let (mut prng, mut model) = (Prng::new(seed), Model::new());
    assert!(fill(&db, &mut model, &mut prng, 1_000_000, 200_000), "it is never full");
    let _ = db.wait_idle();
    println!("{policy}, seed {seed}: {}", db.property("weir.levels").unwrap());
    let slots = |db: &Db| db.slot_space().unwrap().owned;
    let full = slots(&db);
    db.compact_range(..).expect("a full store is compacted");
    assert_is(&db, &model, "compacted");
    let keys: Vec<u32> = model.keys().copied().filter(|n| n % 4 == 0).collect();
    for (at, number) in keys.into_iter().enumerate() {
        if let Err(error) = db.delete(key(number)) {
            assert!(no_space(&error) && at > 100, "{at} deletes: {error}");
            break;
        }
        model.remove(&number);
    }
    db.compact_range(..).expect("deletes are merged");
    assert!(slots(&db) < full, "{} slots of {full}", slots(&db));
    assert_is(&db, &model, "deletes are merged");
    db.put(key(7), [7; 100]).expect("there is room");
    model.insert(7, vec![7; 100]);
    db.close().unwrap();
}

/// Goal: two compactions that users ask for at once, of different keyspaces, end as they would
/// one after the other, though each of them takes what the other's next stretch needs. Method:
/// a full store of two keyspaces, by two threads; repeated, since it is chance.
#[test]
fn a_full_store_can_be_compacted_by_two() {
    for (seed, mib) in (1..=12).zip([48, 64, 96].into_iter().cycle()) {
        let disk = SimDisk::new(SimOptions::default());
        format(&disk, mib * MIB);
        let levels = LeveledOptions::default().base_level_bytes(MIB).l0_trigger(4);
        let options = options(CompactionPolicy::Leveled(levels), 256 << 10);
        let db = open_with(disk.dir(), true, options.clone()).expect("it opens");
        let other = db.keyspace_with("other", options).expect("created");
        let mut prng = Prng::new(seed);
        let mut written = 0;
        while let Ok(()) = {
            let value = vec![prng.below(256) as u8; 2000 + prng.below(4000) as usize];
            let number = key(prng.below(1_000_000) as u32);
            if prng.chance(1, 2) { db.put(number, &value) } else { other.put(number, &value) }
        } {
            written += 1;
            assert!(written < 200_000, "it is never full");
        }
        let _ = db.wait_idle();
        let count = db.iter().count() + other.iter().count();
        std::thread::scope(|scope| {
            let lower = scope.spawn(|| db.compact_range(..));
            let upper = other.compact_range(..);
            upper.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            lower.join().unwrap().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        });
        assert_eq!(db.iter().count() + other.iter().count(), count);
        db.close().unwrap();
    }
}

/// Goal: runs of level 0 that do not fit into a merge together go down in several. Method: the
/// least room in which eight runs over all keys are merged with what is below, by trial, is
/// less than they have together, which one merge would take until its end.
#[test]
fn runs_of_level_0_go_down_in_several_merges() {
    let disk = SimDisk::new(SimOptions::default());
    let levels = LeveledOptions::default().base_level_bytes(MIB).l0_trigger(100);
    let policy = CompactionPolicy::Leveled(levels);
    let open = |disk: &SimDisk| {
        let options = options(policy, 16 << 10).write_buffer_bytes(512 << 10);
        open_with(disk.dir(), false, options).expect("it opens")
    };
    let db = open(&disk);
    let (mut prng, mut model) = (Prng::new(5), Model::new());
    overwrite(&db, &mut model, &mut prng, (8000, 16_000));
    db.compact_range(..).unwrap();
    for _ in 0..8 {
        overwrite(&db, &mut model, &mut prng, (8000, 600));
    }
    let runs = db.metrics().keyspaces[0].levels[0].bytes;
    println!("{}", db.property("weir.levels").unwrap());
    db.close().unwrap();
    let fits = |room: &u64| {
        let disk = disk.copy();
        let db = open(&disk);
        disk.set_capacity(Some(disk.used_bytes() + room));
        let merged = db.compact_range(..);
        assert_is(&db, &model, "merged or not");
        db.close().unwrap();
        merged.inspect_err(|error| assert!(no_space(error), "{error}")).is_ok()
    };
    let room = (64 << 10..4 * MIB).step_by(32 << 10).find(fits).expect("it fits somewhere");
    println!("room for {room} bytes, level 0 has {runs}");
    assert!(room < runs, "{room} bytes for {runs} in level 0");
    // Nor is one that is due left undone.
    let disk = disk.copy();
    let db = open(&disk);
    disk.set_capacity(Some(disk.used_bytes() + room + (256 << 10)));
    let due = LeveledOptions::default().base_level_bytes(MIB).l0_trigger(2);
    let options = db.default_keyspace().options();
    db.default_keyspace().set_options(options.compaction(CompactionPolicy::Leveled(due))).unwrap();
    let _ = db.wait_idle();
    let left = db.metrics().keyspaces[0].levels[0].bytes;
    println!("{}", db.property("weir.levels").unwrap());
    assert!(left < runs, "{left} of {runs} are left");
    assert_is(&db, &model, "merged in the background");
    db.close().unwrap();
}

/// What merges in stretches are tried on: runs over the same keys, of overwrites and deletes,
/// in a directory of a disk with too little room to merge them in one piece.
struct Scene {
    disk: SimDisk,
    policy: CompactionPolicy,
    model: Model,
    /// Free bytes of the disk.
    room: u64,
}

/// Runs are not merged before they are so many.
fn idle_policy() -> CompactionPolicy {
    CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(40))
}

/// Makes runs of many tables: four of a level are merged.
fn building_policy() -> CompactionPolicy {
    CompactionPolicy::Tiered(RunsOptions::default().runs_per_level(4))
}

/// Writes and deletes keys at random, so many times, and flushes.
fn overwrite(db: &Db, model: &mut Model, prng: &mut Prng, (keys, times): (u64, u64)) {
    for _ in 0..times {
        let number = prng.below(keys) as u32;
        let value = vec![prng.below(256) as u8; 100 + prng.below(300) as usize];
        if prng.chance(1, 5) {
            db.delete(key(number)).unwrap();
            model.remove(&number);
        } else {
            db.put(key(number), &value).unwrap();
            model.insert(number, value);
        }
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
}

impl Scene {
    /// How far merges have come is chance: a tree that has one run only is made again. The
    /// least room in which all is merged is found by trial, on copies of the disk.
    fn new(seed: u64, keys: u64) -> Self {
        let mut made = (0..20).map(|_| Self::made(seed, keys));
        let mut scene = made.find_map(|made| made).expect("trees of several runs");
        scene.room = scene.least_room();
        scene
    }

    fn made(seed: u64, keys: u64) -> Option<Self> {
        let disk = SimDisk::new(SimOptions::default());
        let db = open(&disk, false, building_policy());
        let (mut prng, mut model) = (Prng::new(seed), Model::new());
        overwrite(&db, &mut model, &mut prng, (keys, keys * 3));
        db.close().unwrap();
        // Merges of these are not begun.
        let db = open(&disk, false, idle_policy());
        overwrite(&db, &mut model, &mut prng, (keys, keys / 4));
        println!("{}", db.property("weir.levels").unwrap_or_default());
        let runs: u64 = db.metrics().keyspaces[0].levels.iter().map(|level| level.runs).sum();
        db.close().unwrap();
        (runs > 1).then(|| Self { disk, policy: idle_policy(), model, room: 0 })
    }

    fn least_room(&self) -> u64 {
        for room in (32 << 10..4 * MIB).step_by(8 << 10) {
            let disk = self.disk.copy();
            let db = open(&disk, false, self.policy);
            disk.set_capacity(Some(disk.used_bytes() + room));
            let merged = db.compact_range(..);
            let metrics = db.metrics();
            db.close().unwrap();
            if merged.is_ok() {
                let (merges, count) = (metrics.compactions_in_stretches, metrics.stretches);
                println!("room for {room} bytes: {merges} merges in {count} stretches");
                assert!(count > 3, "{count} stretches in {room} bytes");
                return room;
            }
        }
        panic!("it does not fit at all")
    }
}

/// Goal: after a power cut anywhere in a merge in stretches all is there, and it can be merged.
#[test]
fn power_cut_anywhere() {
    let scene = Scene::new(1, 2000);
    let disk = scene.disk.recorded();
    let db = open(&disk, false, scene.policy);
    disk.set_capacity(Some(disk.used_bytes() + scene.room));
    let mut replayer = disk.replayer();
    let begin = replayer.len();
    db.compact_range(..).unwrap();
    assert!(db.metrics().stretches > 3);
    db.close().unwrap();
    replayer = disk.replayer();
    println!("{begin} to {} boundaries", replayer.len());
    for boundary in begin..=replayer.len() {
        replayer.go_to(boundary);
        for (i, policy) in (0u64..).zip(CrashPolicy::ALL) {
            let image = replayer.image(policy, boundary as u64 ^ (i << 32));
            let db = open(&image, false, scene.policy);
            let what = format!("boundary {boundary}, {policy:?}");
            assert_is(&db, &scene.model, &what);
            if i == 0 {
                db.compact_range(..).unwrap();
                assert_is(&db, &scene.model, &what);
            }
            db.close().unwrap();
        }
    }
}

/// Goal: a merge that fails in the middle leaves what it installed, and is done when it is
/// repeated. Method: every write and sync of tables and of the version log fails once.
#[test]
fn a_failure_in_the_middle() {
    let scene = Scene::new(2, 2000);
    let classes = [FileClass::Table, FileClass::Versions];
    for (class, op) in classes.map(|c| [(c, OpKind::Write), (c, OpKind::Sync)]).concat() {
        let (mut failed, mut after) = (0, 0);
        loop {
            let disk = scene.disk.copy();
            let dir = FaultyDir::over_disk(&disk);
            let faults = dir.faults();
            let db = open_with(Arc::new(dir), false, options(scene.policy, 16 << 10)).unwrap();
            disk.set_capacity(Some(disk.used_bytes() + scene.room));
            let (op, class, times) = (Some(op), Some(class), Times::Once);
            let effect = Effect::Fail(ErrorCode::Eio);
            faults.arm(Fault { op, class, after, times, effect });
            let merged = db.compact_range(..);
            let what = format!("{class:?}, {op:?} {after}: {:?}", merged.as_ref().err());
            assert_is(&db, &scene.model, &what);
            let hit = faults.injected_total() > 0;
            faults.heal();
            let poisoned = db.put("other", "1").is_err();
            if poisoned {
                db.close().ok();
            } else {
                db.delete("other").unwrap();
                // What was flushed needs more than the least room.
                disk.set_capacity(None);
                db.compact_range(..).unwrap();
                assert_is(&db, &scene.model, &what);
                db.close().unwrap();
            }
            let db = open(&disk, false, scene.policy);
            disk.set_capacity(None);
            db.delete("other").unwrap();
            assert_is(&db, &scene.model, &what);
            db.close().unwrap();
            if !hit {
                break;
            }
            failed += 1;
            after += if after < 4 { 1 } else { 3 };
        }
        println!("{class:?}, {op:?}: {failed} failures");
        assert!(failed > 2, "{class:?}, {op:?}");
    }
}

/// Goal: while a cursor holds the inputs nothing comes back: the merge ends in the middle with
/// `NoSpace`, not on a device that has nothing left for flushes; the cursor and a snapshot see
/// what they saw, and when the cursor is gone the merge is done.
#[test]
fn who_reads_holds_the_space() {
    for seed in 3..6 {
        let scene = Scene::new(seed, 8000);
        let disk = scene.disk.copy();
        let db = open(&disk, false, scene.policy);
        disk.set_capacity(Some(disk.used_bytes() + scene.room));
        let (snapshot, mut cursor) = (db.snapshot(), db.iter());
        cursor.next().unwrap().unwrap();
        let refused = db.compact_range(..).expect_err("its inputs are held");
        assert!(no_space(&refused), "{refused}");
        let stretches = db.metrics().stretches;
        println!("seed {seed}: {stretches} stretches beside a cursor; {refused}");
        assert!(stretches > 0 && db.metrics().compactions_in_stretches == 0);
        assert_is(&db, &scene.model, "beside a cursor");
        assert_snapshot(&db, &snapshot, &scene.model, "beside a cursor");
        let mut model = scene.model.clone();
        db.delete(key(0)).unwrap();
        model.remove(&0);
        assert_eq!(cursor.count() + 1, scene.model.len());
        // What was flushed needs more than the least room; workers see it when they look again.
        disk.set_capacity(None);
        let again = (0..200).any(|_| {
            sched::delay(Duration::from_millis(20));
            db.compact_range(..).is_ok()
        });
        assert!(again, "it is not done when there is room");
        assert_is(&db, &model, "after the cursor");
        assert_snapshot(&db, &snapshot, &scene.model, "after the cursor");
        drop(snapshot);
        db.close().unwrap();
        assert_is(&open(&disk, false, scene.policy), &model, "after an opening");
    }
}

/// Goal (H9): a delete is dropped only where no older run has its key, whatever was consumed of
/// an older one. Method: the newer runs alone are merged, by the policy; the oldest has the
/// keys that they delete; then all are.
#[test]
fn deletes_hide_what_is_older() {
    for seed in 0..4 {
        let disk = SimDisk::new(SimOptions::default());
        let db = open_cut(&disk);
        for number in 0..4000 {
            db.put(key(number), vec![7; 300]).unwrap();
        }
        db.flush().unwrap();
        db.compact_range(..).unwrap();
        let (mut prng, mut model) = (Prng::new(seed), Model::new());
        (0..4000).for_each(|number| drop(model.insert(number, vec![7; 300])));
        let mut snapshots = Vec::new();
        for round in 0..4_u8 {
            overwrite_half(&db, &mut model, &mut prng, (4000, 2, round));
            db.flush().unwrap();
            snapshots.push((db.snapshot(), model.clone()));
        }
        db.wait_idle().unwrap();
        for room in (32 << 10..2 * MIB).step_by(8 << 10) {
            disk.set_capacity(Some(disk.used_bytes() + room));
            let merged = db.compact_range(..);
            assert_is(&db, &model, "with snapshots");
            for (snapshot, model) in &snapshots {
                assert_snapshot(&db, snapshot, model, "a snapshot");
            }
            if merged.is_ok() {
                break;
            }
        }
        println!("seed {seed}: {} stretches", db.metrics().stretches);
        assert!(db.metrics().stretches > 0);
        snapshots.clear();
        disk.set_capacity(None);
        db.compact_range(..).unwrap();
        assert_is(&db, &model, "without snapshots");
        db.close().unwrap();
    }
}

/// Writes half of so many keys anew, or deletes one in so many of these.
fn overwrite_half(
    db: &Db,
    model: &mut Model,
    prng: &mut Prng,
    (keys, deletes_one_in, round): (u32, u64, u8),
) {
    for number in (0..keys).filter(|_| prng.chance(1, 2)).collect::<Vec<_>>() {
        if prng.chance(1, deletes_one_in) {
            db.delete(key(number)).unwrap();
            model.remove(&number);
        } else {
            db.put(key(number), vec![round; 300]).unwrap();
            model.insert(number, vec![round; 300]);
        }
    }
}

/// Goal (H23, H24): a merge in stretches takes along what it passes of sentinels, and ends
/// their claims; a sentinel above stays. Method: sentinels of some ranges between flushes.
#[test]
fn sentinels_above_and_below() {
    for seed in 0..4 {
        let disk = SimDisk::new(SimOptions::default());
        let db = open_cut(&disk);
        let (mut prng, mut model) = (Prng::new(seed), Model::new());
        for round in 0..5_u8 {
            overwrite_half(&db, &mut model, &mut prng, (6000, 4, round));
            db.flush().unwrap();
            db.wait_idle().unwrap();
            let from = prng.below(4000) as u32;
            let range = key(from)..key(from + 1000);
            assert!(db.default_keyspace().build_sentinel(range).unwrap());
            assert_is(&db, &model, "with a sentinel");
        }
        for room in (32 << 10..4 * MIB).step_by(8 << 10) {
            disk.set_capacity(Some(disk.used_bytes() + room));
            let merged = db.compact_range(..);
            assert_is(&db, &model, "between stretches");
            if merged.is_ok() {
                break;
            }
        }
        println!("seed {seed}: {} stretches", db.metrics().stretches);
        assert!(db.metrics().stretches > 0);
        db.close().unwrap();
        disk.set_capacity(None);
        let db = open(&disk, false, building_policy());
        assert_is(&db, &model, "after an opening");
        db.close().unwrap();
    }
}
