//! The compaction buffer on real files: what it serves, what it survives, and when it goes. Which
//! answers are right with it is campaign M's question.

#![expect(clippy::disallowed_methods, reason = "real files are damaged, and real time passes")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir::{
    CompactionBuffer, CompactionPolicy, Db, Options, PartsOptions, TableDescription, TrimOptions,
    WarmUp,
};

const KEYS: u32 = 20_000;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

fn value(i: u32, round: u32) -> Vec<u8> {
    format!("{round:06}{i:0140}").into_bytes()
}

fn options(buffer: impl Into<CompactionBuffer>) -> Options {
    let levels = PartsOptions::default().level_ratio(4).base_level_bytes(256 << 10).l0_trigger(1);
    Options::default()
        .compaction(CompactionPolicy::Gear(levels))
        .write_buffer_bytes(64 << 10)
        .table_bytes(8 << 10)
        .warm_up(WarmUp::None)
        .compaction_buffer(buffer)
}

fn open(path: &std::path::Path, options: Options) -> Db {
    let builder = Db::builder(path).memory_budget(64 << 20).block_cache_bytes(8 << 20);
    let db = builder.default_options(options.clone()).open().expect("open");
    db.default_keyspace().set_options(options).expect("options");
    db
}

/// Writes keys of all ranges, reads those of a hot tenth in between, and compares.
fn work(db: &Db, model: &mut BTreeMap<u32, u32>, rounds: std::ops::Range<u32>) {
    for round in rounds {
        for n in 0..2_000_u32 {
            let i = (n * 7919 + round * 104_729) % KEYS;
            db.put(key(i), value(i, round)).expect("put");
            model.insert(i, round);
            let hot = (n * 31 + round) % (KEYS / 10);
            let found = db.get(key(hot)).expect("get");
            let expected = model.get(&hot).map(|&round| value(hot, round));
            assert_eq!(found.as_deref(), expected.as_deref(), "key {hot} in round {round}");
        }
    }
}

/// What is in a store with lists that was closed at rest.
fn worked(path: &std::path::Path) -> BTreeMap<u32, u32> {
    let mut model = BTreeMap::new();
    let db = open(path, options(CompactionBuffer::Cascade));
    work(&db, &mut model, 0..20);
    db.wait_idle().expect("idle");
    db.close().expect("close");
    model
}

/// Everything is there, in both directions.
fn check(db: &Db, model: &BTreeMap<u32, u32>) {
    let pairs: Vec<_> =
        model.iter().map(|(&i, &round)| (key(i).to_vec(), value(i, round))).collect();
    let own = |pair: weir::Result<(weir::Value, weir::Value)>| {
        let (key, value) = pair.expect("a pair");
        (key.to_vec(), value.to_vec())
    };
    assert!(db.iter().map(own).eq(pairs.iter().cloned()), "a scan differs");
    assert!(db.iter().rev().map(own).eq(pairs.iter().rev().cloned()), "a scan back differs");
    for (&i, &round) in model {
        assert_eq!(db.get(key(i)).expect("get").as_deref(), Some(&value(i, round)[..]), "key {i}");
    }
}

/// The tables that only lists have.
fn listed(db: &Db) -> Vec<TableDescription> {
    let levels: Vec<_> = db.describe().keyspaces.into_iter().flat_map(|k| k.levels).collect();
    let runs = || levels.iter().flat_map(|level| &level.runs);
    let tree: Vec<u64> = runs().flat_map(|run| &run.tables).map(|table| table.uid).collect();
    let lists = runs().filter_map(|run| run.buffer.as_ref());
    let tables = lists.flat_map(|list| &list.runs).flat_map(|run| &run.tables);
    tables.filter(|table| !tree.contains(&table.uid)).cloned().collect()
}

/// Holes and frozen lists, of the metrics and of the description.
fn holes_and_frozen(db: &Db) -> [(u64, u64); 2] {
    let (metrics, description) = (db.metrics(), db.describe());
    let counted = metrics.keyspaces.iter().flat_map(|k| &k.levels);
    let levels = description.keyspaces.iter().flat_map(|k| &k.levels);
    let lists = levels.flat_map(|l| &l.runs).filter_map(|run| run.buffer.as_ref());
    let add = |sum: (u64, u64), (holes, frozen)| (sum.0 + holes, sum.1 + frozen);
    [
        counted.map(|l| (l.buffered_holes, l.frozen_lists)).fold((0, 0), add),
        lists
            .map(|list| {
                let holes = list.runs.iter().map(|run| run.holes.len() as u64).sum();
                (holes, u64::from(list.quiet))
            })
            .fold((0, 0), add),
    ]
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Goal: tables of a hot range stay in lists and serve its reads, cold ones go; lists survive a
/// reopening, and go with the option. Method: updates of all keys beside reads of a tenth.
#[test]
fn a_hot_range_stays_in_the_list() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let trim = TrimOptions::default().threshold(0.5).interval(Duration::from_millis(20));
    let mut model = BTreeMap::new();
    let db = open(dir.path(), options(trim));
    work(&db, &mut model, 0..20);
    let metrics = db.metrics();
    assert!(metrics.gets_of_lists > 1_000, "{} answers of lists", metrics.gets_of_lists);
    assert!(metrics.tables_trimmed > 20, "{} tables trimmed", metrics.tables_trimmed);
    assert!(metrics.keyspaces[0].levels.iter().any(|level| level.buffered_residency > 0.0));
    assert!(metrics.prometheus().contains("weir_level_buffered_bytes{"), "in the exposition");
    db.wait_idle().expect("idle");
    check(&db, &model);
    db.close().expect("close");

    // Nobody looks at them again here.
    let day = TrimOptions::default().interval(Duration::from_secs(24 * 60 * 60));
    let db = open(dir.path(), options(day));
    let kept = listed(&db);
    assert!(!kept.is_empty(), "no list survived");
    let [counted, described] = holes_and_frozen(&db);
    assert_eq!(counted, described);
    assert!(counted.0 > 0, "trimming leaves holes");
    check(&db, &model);
    let report = db.verify().expect("verify");
    assert!(report.damages.is_empty(), "{:?}", report.damages);
    db.default_keyspace().set_options(options(CompactionBuffer::Off)).expect("options");
    assert!(listed(&db).is_empty());
    db.wait_idle().expect("idle");
    check(&db, &model);
    let files = |db: &Db| {
        let tables = db.property("weir.num-tables").expect("a property");
        let names = std::fs::read_dir(dir.path()).expect("the directory");
        let is_table = |name: &str| name.ends_with(".tbl");
        let names = names.map(|entry| entry.expect("an entry").file_name());
        (tables.parse(), names.filter(|name| is_table(&name.to_string_lossy())).count())
    };
    wait_until("files of dropped lists stay", || {
        let (tables, files) = files(&db);
        tables == Ok(files)
    });
}

/// Goal: it is known where keys are cached that a run has twice. Method: a store that is opened has
/// none; gets, which lists answer, bring those of the lists in.
#[test]
fn where_copies_are_cached_is_known() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let model = worked(dir.path());
    let db = open(dir.path(), options(CompactionBuffer::Cascade));
    // Of the level whose lists have the most tables.
    let cached = || {
        let levels = db.metrics().keyspaces.remove(0).levels;
        let level = levels.iter().max_by_key(|level| level.buffered_tables).expect("levels");
        assert!(level.buffered_tables > 3, "{} tables in lists", level.buffered_tables);
        level.buffered_copies
    };
    let none = cached();
    assert_eq!((none.list, none.run, none.both), (0.0, 0.0, 0.0));
    for i in model.keys() {
        db.get(key(*i)).expect("get");
    }
    let read = cached();
    assert!(read.list + read.both > 0.9 && read.run < 0.1, "{read:?}");
    let ratio = "weir_level_buffered_copies_ratio{keyspace=\"default\",level=\"1\",copy=\"run\"}";
    assert!(db.metrics().prometheus().contains(ratio), "in the exposition");
}

/// Overwrites the data of these tables, and deletes the first.
fn damage(path: &std::path::Path, tables: &[TableDescription]) {
    for (n, table) in tables.iter().enumerate() {
        let path = path.join(format!("{:06}.tbl", table.uid));
        if n == 0 {
            std::fs::remove_file(&path).expect("a table");
            continue;
        }
        let mut bytes = std::fs::read(&path).expect("a table");
        let data = bytes.len() / 2;
        bytes[..data].fill(0xa5);
        std::fs::write(&path, bytes).expect("damaged");
    }
}

/// Goal: a repair looks at tables that only lists have too, as a verification does, and empties the
/// lists if one is damaged, at no cost. It called such a store sound.
#[test]
fn a_repair_empties_damaged_lists() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut model = BTreeMap::new();
    let db = open(dir.path(), options(CompactionBuffer::Cascade));
    work(&db, &mut model, 0..20);
    db.wait_idle().expect("idle");
    let damaged = listed(&db);
    db.close().expect("close");
    assert!(damaged.len() > 3, "{} tables in lists", damaged.len());
    assert!(Db::repair(dir.path()).expect("nothing to repair").healthy);
    damage(dir.path(), &damaged);
    let report = Db::repair(dir.path()).expect("repaired");
    assert!(!report.healthy && !report.lost_data(), "{report}");
    assert_eq!(report.lists.len(), damaged.len(), "{report}");
    assert!(report.to_string().contains("compaction buffer"), "{report}");
    let db = open(dir.path(), options(CompactionBuffer::Cascade));
    assert!(listed(&db).is_empty());
    let report = db.verify().expect("verify");
    assert!(report.damages.is_empty(), "{:?}", report.damages);
    check(&db, &model);
    db.close().expect("close");
}

/// Goal: a damaged or missing table of a list costs no answer, and leaves its list. Method:
/// overwrite all that only lists have, delete one; read everything.
#[test]
fn damage_in_a_list_costs_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut model = worked(dir.path());

    let trim = TrimOptions::default().threshold(0.0).interval(Duration::from_millis(50));
    let damaged = {
        let db = open(dir.path(), options(trim));
        let damaged = listed(&db);
        db.close().expect("close");
        damaged
    };
    assert!(damaged.len() > 3, "{} tables in lists", damaged.len());
    damage(dir.path(), &damaged);
    let db = open(dir.path(), options(trim));
    check(&db, &model);
    let left = || {
        let left = listed(&db);
        damaged.iter().filter(|table| left.contains(table)).count()
    };
    check(&db, &model);
    wait_until("no damaged table leaves its list", || left() < damaged.len());
    // What no reader needs, because newer tables answer first, a look at everything finds.
    let report = db.verify().expect("verify");
    assert!(report.damages.len() <= damaged.len(), "{:?}", report.damages);
    wait_until("damaged tables stay in lists", || left() == 0);
    check(&db, &model);
    let report = db.verify().expect("verify");
    assert!(report.damages.is_empty(), "{:?}", report.damages);
    assert_eq!(db.property("weir.quarantine").as_deref().unwrap_or_default().lines().count(), 0);
    work(&db, &mut model, 20..22);
    db.wait_idle().expect("idle");
    check(&db, &model);
}

/// Goal: a trim interval that is no number of microseconds is taken in as one, wherever options
/// enter, and is the same after a reopening. (It was stored as another one, which the version log
/// took for a bug: the store was poisoned.)
#[test]
fn a_trim_interval_is_kept_in_whole_microseconds() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let third = TrimOptions::default().interval(Duration::from_secs(1) / 3);
    let kept = options(third.interval(Duration::from_micros(333_333)));
    let is_kept = |keyspace: &weir::Keyspace| assert_eq!(keyspace.options(), kept);
    let db = open(&dir.path().join("set"), options(third));
    is_kept(db.default_keyspace());
    is_kept(&db.create_keyspace("new", options(third)).expect("created"));
    is_kept(&db.keyspace_with("other", options(third)).expect("created"));
    db.put(b"a", b"1").expect("not poisoned");
    db.close().expect("closed");
    let db = Db::builder(dir.path().join("set")).open().expect("opened");
    for name in ["default", "new", "other"] {
        is_kept(&db.open_keyspace(name).expect("there"));
    }
    let builder = Db::builder(dir.path().join("new")).default_options(options(third));
    is_kept(builder.open().expect("created").default_keyspace());
}
