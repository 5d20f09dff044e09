//! Hand-off beside the compaction buffer: a block goes into the cache where its entries will be
//! read, in the list or in the run, and nowhere else.

use std::time::Duration;

use weir::{CompactionBuffer, CompactionPolicy, Db, Options, PartsOptions, TrimOptions, WarmUp};

const KEYS: u32 = 20_000;

/// Of so many keys one is written anew in each round: a merge then rewrites all blocks of a run.
const STEP: u32 = 40;

/// Blocks of the entries of one round, without the last of a table.
const ROUND_BLOCKS: u64 = (KEYS / STEP * 104 / 4096) as u64;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

fn value(i: u32, round: u32) -> Vec<u8> {
    format!("{round:04}{i:092}").into_bytes()
}

/// Lists that keep everything.
fn buffer() -> CompactionBuffer {
    let day = Duration::from_secs(24 * 60 * 60);
    TrimOptions::default().threshold(0.0).interval(day).into()
}

fn options(buffer: CompactionBuffer, write_buffer_bytes: u64) -> Options {
    let levels = PartsOptions::default().level_ratio(4).base_level_bytes(256 << 10).l0_trigger(1);
    Options::default()
        .compaction(CompactionPolicy::Gear(levels.expected_bytes(2 << 20)))
        .write_buffer_bytes(write_buffer_bytes)
        .table_bytes(64 << 10)
        .warm_up(WarmUp::HandOff)
        .compaction_buffer(buffer)
}

fn open(path: &std::path::Path, options: Options) -> Db {
    let builder = Db::builder(path).memory_budget(128 << 20).block_cache_bytes(16 << 20);
    builder.default_options(options).open().expect("open")
}

/// Writes these keys, waits until they are merged, and returns the number of blocks handed over.
fn write(db: &Db, keys: impl Iterator<Item = u32>, round: u32) -> u64 {
    let before = db.metrics().blocks_handed_over;
    keys.for_each(|i| db.put(key(i), value(i, round)).expect("put"));
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    db.metrics().blocks_handed_over - before
}

/// Reads these keys, and returns the number of blocks that were not cached.
fn read(db: &Db, keys: impl Iterator<Item = u32>, round: u32) -> u64 {
    let before = db.metrics().cache_foreground.misses;
    for i in keys {
        let found = db.get(key(i)).expect("get");
        assert_eq!(found.as_deref(), Some(&value(i, round)[..]), "key {i} of round {round}");
    }
    db.metrics().cache_foreground.misses - before
}

/// The keys of a round.
fn of_round(round: u32) -> impl Iterator<Item = u32> {
    (round..KEYS).step_by(STEP as usize)
}

/// Of each run: its level, the tables of each buffered run of its list, and all holes.
fn lists(db: &Db) -> Vec<(usize, Vec<usize>, usize)> {
    let levels = db.describe().keyspaces.into_iter().flat_map(|keyspace| keyspace.levels);
    let runs =
        levels.enumerate().flat_map(|(n, level)| level.runs.into_iter().map(move |r| (n, r)));
    let list = |(level, run): (usize, weir::RunDescription)| {
        let list = run.buffer.map(|buffer| buffer.runs).unwrap_or_default();
        let tables = list.iter().map(|run| run.tables.len()).collect();
        (level, tables, list.iter().map(|run| run.holes.len()).sum())
    };
    runs.map(list).collect()
}

/// Goal: what the list of the output run serves after a merge is not handed over with the outputs,
/// whatever was read, and stays cached. Method: a run that its list has as a whole is read, and
/// rewritten by a merge.
#[test]
fn what_a_list_serves_is_not_handed_over() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = open(dir.path(), options(buffer(), 64 << 20));
    write(&db, 0..KEYS, 0);
    read(&db, 0..KEYS, 0);
    let handed = write(&db, of_round(1), 1);
    let lists = lists(&db);
    let complete = lists.iter().any(|(_, tables, holes)| tables.len() == 2 && *holes == 0);
    assert!(lists.len() == 1 && complete, "{lists:?}");
    // Those of the flush, whose range is cached.
    assert!((ROUND_BLOCKS..=ROUND_BLOCKS + 2).contains(&handed), "{handed} of {ROUND_BLOCKS}");
    // A filter of the newest table may be wrong now and then, but its blocks are cached too.
    assert_eq!(read(&db, (0..KEYS).filter(|i| i % STEP != 1), 0), 0);
    assert_eq!(read(&db, of_round(1), 1), 0, "the flushed table is in the list");
}

/// Goal: what was never in the list is handed over with the outputs, and what goes into the list is
/// not. Method: a run that was there before its list is read in places and rewritten by merges.
#[test]
fn what_lies_under_the_foot_is_handed_over() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = open(dir.path(), options(CompactionBuffer::Off, 64 << 20));
    write(&db, 0..KEYS, 0);
    // One key of every fourth block or so.
    let scattered = || (0..KEYS / 2).step_by(4 * STEP as usize);
    read(&db, scattered(), 0);
    let listing = options(buffer(), 64 << 20);
    db.default_keyspace().set_options(listing).expect("options");
    for round in 1..3 {
        let handed = write(&db, of_round(round), round);
        let tables = vec![1; round as usize];
        let foot = |(_, of_list, holes): &(usize, Vec<usize>, usize)| {
            of_list[..round as usize] == tables && *holes > 0
        };
        assert!(lists(&db).iter().any(foot), "{:?}", lists(&db));
        assert_eq!(handed, scattered().count() as u64, "round {round}");
        // A filter of the list may be wrong now and then.
        assert!(read(&db, scattered(), 0) <= 3, "round {round}");
        // Read in the list: warm there, and nothing to hand over in the next round.
        assert!(read(&db, of_round(round), round) >= ROUND_BLOCKS);
    }
    assert_eq!(read(&db, of_round(1), 1), 0);
}

/// Goal: H5. What was read through a list that ends stays cached: the blocks of the run that goes
/// over into another list come in in their place, as far as they were read. Method: a run of level
/// 5 whose list serves all reads is merged into level 6, with a list that has everything.
#[test]
fn the_heat_of_a_list_goes_to_the_blocks_that_take_its_place() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = open(dir.path(), options(buffer(), 256 << 10));
    write(&db, 0..KEYS, 0);
    db.compact_range(..).expect("compact_range");
    for round in 1..4 {
        write(&db, of_round(round), round);
    }
    assert_eq!(lists(&db), [(5, vec![1; 3], 0), (6, vec![34], 0)]);
    let hot = |round: u32| of_round(round).filter(|i| *i < KEYS / 2);
    let below = || (0..KEYS / 2).filter(|i| !(1..4).contains(&(i % STEP)));
    (1..4).for_each(|round| assert!(read(&db, hot(round), round) > 0));
    assert!(read(&db, below(), 0) > 0);
    let before = db.metrics().blocks_handed_over;
    db.compact_range(..).expect("compact_range");
    assert_eq!(lists(&db), [(6, vec![4, 34], 0)]);
    let handed = db.metrics().blocks_handed_over - before;
    let blocks = 3 * ROUND_BLOCKS / 2;
    assert!((blocks..=blocks + 4).contains(&handed), "{handed} of {blocks}");
    assert_eq!((1..4).map(|round| read(&db, hot(round), round)).sum::<u64>(), 0);
    assert_eq!(read(&db, below(), 0), 0);
    assert!(read(&db, of_round(1).filter(|i| *i > KEYS * 3 / 4), 1) > 0, "nobody had read those");
}
