//! Repair through the public interface: every kind of file damaged in every way, on real files.

#![expect(
    clippy::disallowed_methods,
    reason = "tests damage the directory behind the store's back"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use weir::{Db, Durability, ErrorKind, LeveledOptions, Options, RepairReport};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
/// All values that each key ever had, and whether it was ever deleted.
type History = BTreeMap<Vec<u8>, BTreeSet<Option<Vec<u8>>>>;

/// Options that give a small store many tables in three levels.
fn tiny() -> Options {
    Options::default().write_buffer_bytes(4 << 10).table_bytes(4 << 10).block_bytes(512).compaction(
        LeveledOptions::default().base_level_bytes(8 << 10).level_ratio(3).l0_trigger(2),
    )
}

fn open(path: &Path) -> weir::Result<Db> {
    Db::builder(path)
        .memory_budget(64 << 20)
        .log_segment_bytes(32 << 10)
        .log_area_bytes(8 << 20)
        .open()
}

/// A closed store and what it holds, by keyspace.
struct Store {
    dir: tempfile::TempDir,
    models: BTreeMap<String, Model>,
    histories: BTreeMap<String, History>,
    /// Pairs that are in the write-ahead log only.
    unflushed: u64,
}

impl Store {
    /// Two keyspaces with tables in at least three levels, then a log of several segments.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut store =
            Self { dir, models: BTreeMap::new(), histories: BTreeMap::new(), unflushed: 0 };
        let db = Db::builder(store.path())
            .default_options(tiny())
            .memory_budget(64 << 20)
            .log_segment_bytes(32 << 10)
            .log_area_bytes(8 << 20)
            .open()
            .expect("created");
        let users = db.keyspace_with("users", tiny()).expect("created");
        for i in 0..24_000u64 {
            let number = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 6007;
            let (name, keyspace) =
                if i % 3 == 0 { ("users", &users) } else { ("default", db.default_keyspace()) };
            let key = format!("{name} {number:06}").into_bytes();
            if i % 11 == 5 {
                keyspace.delete(&key).expect("deleted");
                store.note(name, key, None);
            } else {
                let value = format!("value {i} of {name}").into_bytes();
                keyspace.put(&key, &value).expect("put");
                store.note(name, key, Some(value));
            }
        }
        db.flush().expect("flushed");
        db.wait_idle().expect("idle");
        // One more run in level 0.
        for i in 0..20u64 {
            let (key, value) = (format!("default late {i}").into_bytes(), b"late".to_vec());
            db.put(&key, &value).expect("put");
            store.note("default", key, Some(value));
        }
        db.flush().expect("flushed");
        let used = |levels: &[weir::LevelDescription]| {
            levels.iter().filter(|level| !level.runs.is_empty()).count()
        };
        let levels: Vec<usize> = db.describe().keyspaces.iter().map(|k| used(&k.levels)).collect();
        assert!(levels.len() == 2 && levels.iter().any(|&used| used >= 3), "levels {levels:?}");
        // Large write buffers: what follows stays in the log.
        let calm = tiny().write_buffer_bytes(1 << 20);
        users.set_options(calm.clone()).expect("changed");
        db.default_keyspace().set_options(calm).expect("changed");
        for i in 0..1500u64 {
            let (name, keyspace) =
                if i % 2 == 0 { ("users", &users) } else { ("default", db.default_keyspace()) };
            let key = format!("{name} log {i:06}").into_bytes();
            let value = format!("logged {i} {}", "x".repeat(30)).into_bytes();
            keyspace.put_with(&key, &value, Durability::Buffered).expect("put");
            store.note(name, key, Some(value));
            store.unflushed += 1;
        }
        db.close().expect("closed");
        store
    }

    fn note(&mut self, name: &str, key: Vec<u8>, value: Option<Vec<u8>>) {
        let history = self.histories.entry(name.to_owned()).or_default();
        history.entry(key.clone()).or_insert_with(|| [None].into()).insert(value.clone());
        let model = self.models.entry(name.to_owned()).or_default();
        match value {
            Some(value) => model.insert(key, value),
            None => model.remove(&key),
        };
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A copy of the store, to be damaged.
    fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().expect("a temporary directory");
        for file in files(self.path()) {
            std::fs::copy(&file, copy.path().join(file.file_name().expect("a name")))
                .expect("copy");
        }
        copy
    }

    fn pairs(&self) -> u64 {
        self.models.values().map(|model| model.len() as u64).sum()
    }

    /// Opens the store at `path` and compares: how many pairs are as they should be. Every other
    /// answer must be one that was right once.
    fn compare(&self, path: &Path, names: &[(&str, &str)], what: &str) -> u64 {
        let db = open(path).unwrap_or_else(|e| panic!("{what}: {e}"));
        let report = db.verify().expect("verified");
        assert!(report.damages.is_empty(), "{what}: {:?}", report.damages);
        let mut right = 0;
        for (name, called) in names {
            let (model, history) = (&self.models[*name], &self.histories[*name]);
            let keyspace = match db.open_keyspace(called) {
                Ok(keyspace) => keyspace,
                Err(e) => panic!("{what}: {e}; there are {:?}", db.keyspaces()),
            };
            let scanned: Model = keyspace
                .iter()
                .map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())).expect("a pair"))
                .collect();
            for (key, value) in &scanned {
                let known = history.get(key).is_some_and(|h| h.contains(&Some(value.clone())));
                assert!(known, "{what}: {key:?} = {value:?} was never written");
            }
            for key in history.keys() {
                let got = keyspace.get(key).expect("got").map(|v| v.to_vec());
                assert_eq!(got.as_ref(), scanned.get(key), "{what}: get and scan of {key:?}");
                right += u64::from(got.is_some() && got.as_ref() == model.get(key));
            }
        }
        // It is a store like any other: it takes writes and opens again.
        db.put(b"after", b"repair").expect("put");
        db.flush().expect("flushed");
        db.close().expect("closed");
        let db = open(path).expect("opened again");
        assert_eq!(db.get(b"after").expect("got").as_deref(), Some(&b"repair"[..]));
        db.close().expect("closed");
        let again = Db::repair(path).expect("repaired");
        assert!(again.healthy, "{what}: after all that: {again}");
        right
    }
}

fn files(path: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_dir(path).expect("list");
    let mut files: Vec<PathBuf> = list.map(|entry| entry.expect("entry").path()).collect();
    files.sort();
    files
}

fn files_like(path: &Path, start: &str, end: &str) -> Vec<PathBuf> {
    let mut files = files(path);
    files.retain(|file| {
        let name = file.file_name().and_then(|n| n.to_str()).expect("a name");
        name.starts_with(start) && name.ends_with(end)
    });
    files
}

fn flip(file: &Path, offset: usize) {
    let mut bytes = std::fs::read(file).expect("read");
    bytes[offset] ^= 0x10;
    std::fs::write(file, bytes).expect("written");
}

fn truncate(file: &Path, len: usize) {
    let bytes = std::fs::read(file).expect("read");
    std::fs::write(file, &bytes[..len]).expect("written");
}

fn len(file: &Path) -> usize {
    std::fs::metadata(file).expect("metadata").len() as usize
}

fn swap(a: &Path, b: &Path) {
    let (left, right) = (std::fs::read(a).expect("read"), std::fs::read(b).expect("read"));
    std::fs::write(a, right).expect("written");
    std::fs::write(b, left).expect("written");
}

fn repair(path: &Path, what: &str) -> RepairReport {
    let report = Db::repair(path).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(!report.healthy, "{what}: {report}");
    let text = report.to_string();
    assert!(text.contains("repaired"), "{text}");
    for name in &report.kept_files {
        assert!(path.join(name).exists(), "{what}: {name} of {report}");
    }
    report
}

const SAME: [(&str, &str); 2] = [("default", "default"), ("users", "users")];

/// Goal: a store without damage is left as it is, to the byte.
#[test]
fn repair_leaves_a_healthy_store_alone() {
    let store = Store::new();
    let contents = || -> Vec<(PathBuf, Vec<u8>)> {
        files(store.path())
            .into_iter()
            .map(|f| (f.clone(), std::fs::read(f).expect("read")))
            .collect()
    };
    let before = contents();
    let report = Db::repair(store.path()).expect("repaired");
    assert!(report.healthy && !report.rebuilt && !report.lost_data(), "{report}");
    assert!(report.tables_sound > 10 && report.groups_sound >= store.unflushed, "{report}");
    assert!(contents() == before, "a healthy store was changed");
    assert_eq!(store.compare(store.path(), &SAME, "healthy"), store.pairs());
}

/// Goal: what is not a store is refused and left as it is; an open store is not touched.
#[test]
fn repair_refuses_what_is_not_a_closed_store() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let kind = |path: &Path| Db::repair(path).expect_err("refused").kind();
    assert_eq!(kind(&dir.path().join("absent")), ErrorKind::NotFound);
    assert_eq!(kind(dir.path()), ErrorKind::NotFound);
    std::fs::write(dir.path().join("notes.txt"), b"mine").expect("written");
    assert_eq!(kind(dir.path()), ErrorKind::InvalidArgument);
    std::fs::write(dir.path().join("ROOT"), b"of something else").expect("written");
    assert_eq!(kind(dir.path()), ErrorKind::InvalidArgument);
    assert_eq!(std::fs::read(dir.path().join("ROOT")).expect("read"), b"of something else");
    let db_dir = tempfile::tempdir().expect("a temporary directory");
    let db = open(db_dir.path()).expect("opened");
    assert_eq!(kind(db_dir.path()), ErrorKind::Locked);
    db.close().expect("closed");
    assert!(Db::repair(db_dir.path()).expect("repaired").healthy);
}

/// Goal: a damaged table costs its own pairs and nothing else. Method: tables of all levels, each
/// flipped in a block, in the tail, cut, emptied, removed, or exchanged with another.
#[test]
fn repair_gives_up_damaged_tables_only() {
    let store = Store::new();
    let tables = files_like(store.path(), "0", ".tbl");
    assert!(tables.len() > 8, "{tables:?}");
    for way in 0..6 {
        let copy = store.copy();
        let here = |i: usize| copy.path().join(tables[i % tables.len()].file_name().expect("name"));
        let (a, b) = (here(way * 3), here(way * 3 + 1));
        let what = format!("way {way} of {a:?}");
        let mut hit = 1;
        match way {
            0 => flip(&a, 20),
            1 => flip(&a, len(&a) - 30),
            2 => truncate(&a, len(&a) / 2),
            3 => truncate(&a, 0),
            4 => std::fs::remove_file(&a).expect("removed"),
            _ => {
                swap(&a, &b);
                hit = 2;
            }
        }
        let report = repair(copy.path(), &what);
        assert_eq!(report.lost_tables.len(), hit, "{what}: {report}");
        assert!(!report.rebuilt && report.lost_log.is_empty(), "{what}: {report}");
        let lost: u64 = report.lost_tables.iter().filter_map(|table| table.entries).sum();
        assert_eq!(report.kept_files.len(), if way == 4 { 0 } else { hit }, "{what}: {report}");
        let right = store.compare(copy.path(), &SAME, &what);
        assert!(right + lost >= store.pairs(), "{what}: {right} + {lost} of {}", store.pairs());
    }
}

/// Goal: a damaged filter costs nothing: the blocks are found without it. Method: a byte of every
/// table's filter is inverted, which lies before the last few hundred bytes of the file.
#[test]
fn repair_does_without_a_damaged_filter() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let db = Db::builder(&path).open().expect("created");
    (0..20_000_u32).try_for_each(|i| db.put(i.to_be_bytes(), [7; 20])).expect("put");
    db.flush().expect("flushed");
    db.close().expect("closed");
    for table in files_like(&path, "0", ".tbl") {
        flip(&table, len(&table) - 5000);
    }
    let refused = Db::open(&path).and_then(|db| db.get(7_u32.to_be_bytes()).map(drop));
    let refused = refused.expect_err("the filter is damaged");
    assert!(refused.to_string().contains("filter"), "{refused}");
    let report = repair(&path, "a damaged filter");
    assert!(!report.lost_data(), "{report}");
    assert!(report.to_string().contains("written again: table"), "{report}");
    let db = Db::open(&path).expect("opened");
    assert!((0..20_000_u32).all(|i| db.get(i.to_be_bytes()).is_ok_and(|found| found.is_some())));
    assert!(db.verify().expect("read").damages.is_empty());
}

/// Goal: the log counts up to its first damage, and what is behind is named, not silently dropped.
/// Method: each segment flipped at several places, cut, removed, or exchanged with another.
#[test]
fn repair_keeps_the_log_up_to_its_damage() {
    let store = Store::new();
    let segments = files_like(store.path(), "wal-", ".log");
    let live: Vec<&PathBuf> = segments
        .iter()
        .filter(|f| std::fs::read(f).expect("read").iter().any(|&b| b != 0))
        .collect();
    assert!(live.len() >= 3, "{segments:?}");
    let groups = Db::repair(store.path()).expect("repaired").groups_sound;
    let (mut damaged, mut kept_some) = (0, false);
    for (number, segment) in live.iter().enumerate() {
        for way in 0..5 {
            let copy = store.copy();
            let a = copy.path().join(segment.file_name().expect("name"));
            let b = copy.path().join(live[(number + 1) % live.len()].file_name().expect("name"));
            let what = format!("way {way} of {a:?}");
            match way {
                0 => flip(&a, 60),
                1 => flip(&a, len(&a) / 3),
                2 => truncate(&a, len(&a) / 4),
                3 => std::fs::remove_file(&a).expect("removed"),
                _ => swap(&a, &b),
            }
            // A segment that is not needed any more, or padding, may have been hit.
            let report = Db::repair(copy.path()).unwrap_or_else(|e| panic!("{what}: {e}"));
            let lost = groups - report.groups_sound;
            if report.healthy {
                // The last segment without its end looks like the log after a crash.
                assert!(lost == 0 || number + 1 == live.len(), "{what}: {report}");
                let right = store.compare(copy.path(), &SAME, &what);
                assert!(right + lost >= store.pairs(), "{what}: {right} + {lost}: {report}");
                continue;
            }
            damaged += 1;
            assert!(report.lost_tables.is_empty() && !report.rebuilt, "{what}: {report}");
            assert_eq!(report.lost_log.len(), 1, "{what}: {report}");
            let right = store.compare(copy.path(), &SAME, &what);
            kept_some |= right > store.pairs() - store.unflushed;
            assert!(right + lost >= store.pairs(), "{what}: {right} + {lost}: {report}");
        }
    }
    assert!(damaged >= 8 && kept_some, "{damaged} damages were noticed");
}

/// Goal: with the root record damaged or gone, the version log still tells everything.
#[test]
fn repair_needs_no_root_record() {
    let store = Store::new();
    for way in 0..4 {
        let copy = store.copy();
        let root = copy.path().join("ROOT");
        let log = files_like(copy.path(), "versions-", ".log").remove(0);
        let what = format!("way {way} of ROOT");
        match way {
            0 => flip(&root, 20),
            1 => truncate(&root, 10),
            2 => std::fs::remove_file(&root).expect("removed"),
            _ => std::fs::write(&root, std::fs::read(&log).expect("read")).expect("written"),
        }
        let report = repair(copy.path(), &what);
        assert!(!report.lost_data() && !report.rebuilt, "{what}: {report}");
        assert_eq!(store.compare(copy.path(), &SAME, &what), store.pairs(), "{what}: {report}");
    }
}

/// Goal: without a version log no live pair is lost. Method: the log cut and flipped at many
/// places, removed, or replaced by another file, with the root record and without; deleted keys may
/// be back if the tree had to be rebuilt.
#[test]
fn repair_rebuilds_from_tables_and_log() {
    let store = Store::new();
    let (mut rebuilt, mut renamed) = (0, 0);
    for way in 0..9 {
        for with_root in [true, false] {
            let copy = store.copy();
            let log = files_like(copy.path(), "versions-", ".log").remove(0);
            let table = files_like(copy.path(), "0", ".tbl").remove(0);
            let what = format!("way {way} of {log:?}, root {with_root}");
            match way {
                0 => std::fs::remove_file(&log).expect("removed"),
                1..5 => flip(&log, way * (len(&log) - 1) / 4),
                5 => truncate(&log, 0),
                6 => truncate(&log, len(&log) / 2),
                7 => truncate(&log, len(&log) - 1),
                _ => std::fs::write(&log, std::fs::read(&table).expect("read")).expect("written"),
            }
            if !with_root {
                std::fs::remove_file(copy.path().join("ROOT")).expect("removed");
            }
            let report = Db::repair(copy.path()).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(!report.lost_data(), "{what}: {report}");
            rebuilt += u32::from(report.rebuilt);
            let mut names = SAME;
            if let Some((_, name)) = report.renamed_keyspaces.first() {
                renamed += 1;
                assert_eq!(name, "recovered-1");
                names[1].1 = name;
            }
            assert_eq!(
                store.compare(copy.path(), &names, &what),
                store.pairs(),
                "{what}: {report}"
            );
        }
    }
    assert!(rebuilt >= 8 && renamed >= 4, "{rebuilt} rebuilt, {renamed} renamed");
}

/// Goal: damage of several kinds at once. Method: no version log, a damaged table, a damaged log.
#[test]
fn repair_copes_with_damage_everywhere() {
    let store = Store::new();
    let copy = store.copy();
    std::fs::remove_file(files_like(copy.path(), "versions-", ".log").remove(0)).expect("removed");
    let table = files_like(copy.path(), "0", ".tbl").remove(2);
    flip(&table, 40);
    let segments = files_like(copy.path(), "wal-", ".log");
    let last = segments.iter().rfind(|f| std::fs::read(f).expect("read").iter().any(|&b| b != 0));
    flip(last.expect("a log"), 5000);
    let report = repair(copy.path(), "all at once");
    assert!(report.rebuilt && report.lost_tables.len() == 1, "{report}");
    assert!(report.lost_tables[0].kept_as.is_some(), "{report}");
    let names = [SAME[0], ("users", "recovered-1")];
    let right = store.compare(copy.path(), &names, "all at once");
    assert!(right > store.pairs() / 2, "{right} of {}: {report}", store.pairs());
    Db::destroy(copy.path()).expect("destroyed");
    assert_eq!(files(copy.path()), Vec::<PathBuf>::new());
}
