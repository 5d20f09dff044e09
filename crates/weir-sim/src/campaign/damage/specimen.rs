//! The store that is damaged, and all that was ever written into it.

use std::collections::BTreeMap;
use std::time::Duration;

use weir::defaults::THETA_RANGE;
use weir::sim::Prng;
use weir::{
    Compression, Db, DbOptions, DebugDbOptions, DebugOptions, Durability, LeveledOptions, Options,
    SentinelOptions, TrimOptions,
};

use super::regions::{Region, regions};
use crate::history::Content;
use crate::op::{Val, key_bytes};
use crate::world::{self, Disk, STORE_FILE, Schedule};

/// By keyspace and key: the values, `None` where it was deleted.
pub(super) type Versions = BTreeMap<(String, Vec<u8>), Vec<Option<Vec<u8>>>>;

/// The store to be damaged and what it holds.
pub(super) struct Specimen {
    pub(super) seed: u64,
    pub(super) disk: Disk,
    pub(super) content: Content,
    /// All that each key of a keyspace ever was, in order; the last is what it is.
    pub(super) versions: Versions,
    /// Keys of writes that no table holds.
    pub(super) in_log: std::collections::BTreeSet<(String, Vec<u8>)>,
    /// Logs of another store, by their names there.
    pub(super) foreign: Vec<(String, Vec<u8>)>,
    /// What another store in slots has, by its place there.
    pub(super) foreign_parts: Vec<(u64, Vec<u8>)>,
    /// What there is to damage.
    pub(super) regions: Vec<Region>,
    pub(super) shape: String,
}

pub(super) fn options() -> (DbOptions, Options) {
    let db = DbOptions::default()
        .memory_budget(1 << 20)
        .block_cache_bytes(Some(0))
        .background_threads(1)
        .log_segment_bytes(4 << 10)
        .log_area_bytes(64 << 10)
        .debug(DebugDbOptions::default().version_log_bytes(64 << 10));
    let levels = LeveledOptions::default().level_ratio(2).base_level_bytes(3 << 10).l0_trigger(2);
    let ks = Options::default()
        .write_buffer_bytes(4 << 10)
        .debug(DebugOptions::default().write_buffer_entries(40))
        .block_bytes(512)
        .table_bytes(1 << 10)
        .bloom_bits([10.0])
        .compression([Compression::None, Compression::None, Compression::Lz4])
        .compaction(levels)
        // A sentinel that is built stays, and none is built by heat.
        .sentinels(SentinelOptions::default().theta(*THETA_RANGE.end()).bytes_max(Some(u64::MAX)))
        // What is merged stays in lists: nothing is cached here, and nobody trims for that.
        .compaction_buffer(TrimOptions::default().threshold(0.0).interval(A_DAY));
    (db, ks)
}

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn open(disk: &Disk, seed: u64) -> weir::Result<Db> {
    let (db, ks) = options();
    disk.builder(seed).options(db).default_options(ks).open()
}

/// Tables that masks hide a part of.
fn masked_tables(db: &Db) -> usize {
    let keyspaces = db.describe().keyspaces;
    let runs = keyspaces.iter().flat_map(|k| &k.levels).flat_map(|level| &level.runs);
    runs.flat_map(|run| &run.tables).filter(|table| table.hidden_entries > 0).count()
}

/// A key like those of the other campaigns, but short: with their longest, of 64 KiB, which bound
/// tables and so are in every edit, the store would have ten times the bits, more than can be
/// looked at. One is longer than a block.
pub(super) fn short_key(id: u32) -> Vec<u8> {
    let mut key = key_bytes(id);
    key.truncate(if id == LONG_KEY { 700 } else { 64 });
    key
}

/// Number of the key that is long: the longest of the others.
pub(super) const LONG_KEY: u32 = 8 * 63 + 4;

/// One key in so many is asked for after each damage.
pub(super) const GETS: usize = 4;

/// What another store has, with some openings.
struct Foreign {
    /// Its logs, by name, if they are files.
    logs: Vec<(String, Vec<u8>)>,
    /// What is in its areas, by place, if it is in slots.
    parts: Vec<(u64, Vec<u8>)>,
}

impl Foreign {
    fn of(seed: u64) -> weir::Result<Self> {
        let disk = Disk::blank();
        let mut space = None;
        for round in 0..3u8 {
            let db = open(&disk, seed ^ 0xf0)?;
            db.put_with(b"foreign", [round], Durability::Sync)?;
            db.flush()?;
            space = db.slot_space();
            db.close()?;
        }
        if space.is_some() {
            let all = disk.sim.read_all(STORE_FILE).unwrap_or_default();
            let part = |region: Region| {
                let bytes = &all[region.start as usize..(region.start + region.bytes) as usize];
                (region.start, bytes.to_vec())
            };
            let parts = regions(&disk, space).into_iter().map(part).collect();
            return Ok(Self { logs: Vec::new(), parts });
        }
        let logs = disk.names().into_iter().filter(|name| name.ends_with(".log"));
        let logs = logs.filter_map(|name| disk.sim.read_all(&name).map(|bytes| (name, bytes)));
        let logs = logs.filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0)).collect();
        Ok(Self { logs, parts: Vec::new() })
    }
}

/// Whether a store has something of all that can be damaged, and what it has.
fn shape_of(db: &Db, disk: &Disk) -> (bool, String) {
    let metrics = db.metrics();
    let in_levels = || metrics.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
    let tables: u64 = in_levels().map(|level| level.tables).sum();
    let listed: u64 = in_levels().map(|level| level.buffered_tables).sum();
    let (levels, masked) = (world::levels_in_use(db), masked_tables(db));
    let by_level =
        |k: &weir::KeyspaceMetrics| k.levels.iter().map(|l| l.tables).collect::<Vec<_>>();
    let tree: Vec<Vec<u64>> = metrics.keyspaces.iter().map(by_level).collect();
    let shape = format!(
        "{levels} levels, {tables} tables {tree:?}, {listed} in lists, {masked} with masks; \
         files: {:?}",
        disk.names()
    );
    (levels >= 3 && tables >= 8 && listed >= 2 && masked > 0, shape)
}

/// Schedules that are tried: when merges run decides how many levels are left.
const SCHEDULES: u64 = 16;

/// Builds the store.
pub(super) fn specimen(seed: u64) -> Result<Specimen, String> {
    let mut shape = String::new();
    for schedule in 0..SCHEDULES {
        match build(seed, Schedule::new(seed + (schedule << 32), 16))? {
            Ok(specimen) => return Ok(specimen),
            Err(simple) => shape = simple,
        }
    }
    Err(format!("in {SCHEDULES} schedules the store is too simple, the last one: {shape}"))
}

/// Builds it under one schedule; an error in the result: its shape, which is too simple.
fn build(seed: u64, schedule: Schedule) -> Result<Result<Specimen, String>, String> {
    world::simulate(schedule, move || -> weir::Result<Result<Specimen, String>> {
        let disk = Disk::blank();
        let db = open(&disk, seed)?;
        let second = db.keyspace_with("second", options().1)?;
        let mut rng = Prng::new(seed);
        let mut content = Content::new();
        let mut model: [BTreeMap<Vec<u8>, Vec<u8>>; 2] = Default::default();
        let mut versions = Versions::new();
        let mut in_log = std::collections::BTreeSet::new();
        let mut write = |rng: &mut Prng, space: usize, id: u32, durability| -> weir::Result<()> {
            let key = short_key(rng.below([900, 60][space]) as u32);
            let handle = if space == 0 { db.default_keyspace() } else { &second };
            let entry = (["default", "second"][space].to_owned(), key.clone());
            // Only what is written last is synced.
            if durability == Durability::Sync {
                in_log.insert(entry.clone());
            }
            let versions = versions.entry(entry).or_default();
            if rng.chance(1, 6) {
                model[space].remove(&key);
                versions.push(None);
                return handle.delete_with(&key, durability);
            }
            let value = Val { id, len: rng.below(70) as u32 }.bytes();
            handle.put_with(&key, &value, durability)?;
            versions.push(Some(value.clone()));
            model[space].insert(key, value);
            Ok(())
        };
        for id in 0..900 {
            write(&mut rng, usize::from(id % 8 == 0), id, Durability::Buffered)?;
        }
        db.default_keyspace().flush()?;
        second.flush()?;
        db.wait_idle()?;
        // Between bounds that cut tables, so that these have masks.
        let hot = short_key(300)..short_key(345);
        let built = db.default_keyspace().build_sentinel(hot)?;
        // A fresh base, then edits behind it.
        drop(second.clone());
        for id in 500..530 {
            write(&mut rng, 0, id, Durability::Buffered)?;
        }
        db.default_keyspace().flush()?;
        // In the log only, and synced.
        for id in 600..608 {
            write(&mut rng, usize::from(id % 2 == 0), id, Durability::Sync)?;
        }
        let (is_rich, shape) = shape_of(&db, &disk);
        let space = db.slot_space();
        drop(second);
        db.close()?;
        let [default, second] = model;
        content.insert("default".into(), default.into_iter().collect());
        content.insert("second".into(), second.into_iter().collect());
        if !is_rich || !built {
            return Ok(Err(shape));
        }
        let Foreign { logs: foreign, parts: foreign_parts } = Foreign::of(seed)?;
        let regions = regions(&disk, space);
        Ok(Ok(Specimen {
            seed,
            disk,
            content,
            versions,
            in_log,
            foreign,
            foreign_parts,
            regions,
            shape,
        }))
    })?
    .map_err(|e| format!("building the store: {e}"))
}
