//! Sums of edits: they read what reading one by one reads, errors and their places too.

use std::sync::Arc;

use super::{HASH_SEED, context, dump, meta, random_edit, set};
use crate::base::clock;
use crate::base::ids::{DataEpoch, KeyspaceId, Lsn, Nonce, TableUid, level, lsn, segment, uid};
use crate::base::interval::Interval;
use crate::base::prng::Prng;
use crate::base::table_meta::TableMeta;
use crate::device::real::RealDir;
use crate::log::test_storage::MemStorage;
use crate::log::{GroupType, LogPosition};
use crate::options::Options;
use crate::storage::files::Files;
use crate::storage::{LogKind, Object, OpenOptions, Storage};
use crate::table::Table;
use crate::version::base_log::{self, Prefix, Source, read_with};
use crate::version::edit::{Claim, Flushed, KeyspaceEdit, VersionEdit};
use crate::version::record::RootRecord;
use crate::version::root::Root;
use crate::version::set::VersionSet;
use crate::version::shape::{PartKind, RunId};

/// The log that the root record names, and the makings of a reader of it.
fn source(storage: &dyn Storage) -> Source {
    let bytes = storage.read_root_record().unwrap().unwrap();
    let record = RootRecord::decode(&bytes, &storage.name_of(Object::Root)).unwrap();
    Source {
        number: record.version_log,
        lineage: record.lineage,
        opening: record.opening,
        base_lsn: Some(record.base_lsn),
        nonce: record.nonce,
    }
}

/// Reads the log of `storage` in sums or one by one.
fn read(storage: &MemStorage, sums: bool) -> Option<Prefix> {
    read_from(&(Arc::new(storage.clone()) as Arc<dyn Storage>), sums)
}

fn read_from(storage: &Arc<dyn Storage>, sums: bool) -> Option<Prefix> {
    let context = context(Arc::clone(storage), 1 << 30);
    let open = |meta: &Arc<TableMeta>, seed| -> Arc<Table> { context.open(meta, seed) };
    read_with(&**storage, source(&**storage), &open, sums).unwrap()
}

/// All that a prefix says, as text.
fn said(prefix: &Prefix) -> String {
    let numbers = (prefix.root.next_uid, prefix.root.next_epoch, prefix.edits, prefix.places.len());
    let faults = (&prefix.damage, &prefix.list_fault, &prefix.unlisted, prefix.whole_base);
    let cursors = prefix.root.keyspaces.iter().map(|k| k.version.table_count());
    let tables: Vec<usize> = cursors.collect();
    format!("{numbers:?} {faults:?} {tables:?}\n{}", dump(&prefix.root))
}

/// Goal: a sum of edits leads to the root that the edits lead to one by one. Method: logs of
/// random edits, with lists and sentinels or (odd seeds) without, so that sums are long; both
/// readers after every tenth edit.
#[test]
fn sums_lead_to_the_same_root() {
    for seed in 1..=8 {
        let mut prng = Prng::new(seed);
        let (set, storage) = set::fresh(1 << 30);
        for step in 0..200 {
            let mut edit = random_edit(&set, &mut prng);
            let plain = |edit: &mut KeyspaceEdit| {
                let of_lists = edit.options.is_some() || !edit.claims.is_empty();
                (of_lists && edit.create.is_none()) || edit.drop
            };
            if seed % 2 == 1 {
                if edit.keyspaces.values_mut().any(plain) {
                    continue;
                }
                for part in edit.keyspaces.values_mut().filter(|part| part.create.is_some()) {
                    part.options = Some(Arc::new(Options::default()));
                }
            }
            set.apply(edit).unwrap();
            if step % 10 == 9 {
                let sums = read(&storage, true).expect("edits that were checked fit");
                let each = read(&storage, false).unwrap();
                assert_eq!(said(&sums), said(&each), "seed {seed}, step {step}");
                assert_eq!(dump(&sums.root), dump(&set.current()), "seed {seed}, step {step}");
            }
        }
    }
}

/// A store of one keyspace with `small` tables in level 1 and ten times as many in level 2.
fn two_levels(small: u64) -> (VersionSet, MemStorage) {
    let (set, storage) = set::fresh(1 << 30);
    let mut edit = VersionEdit::default();
    let part = edit.keyspace(KeyspaceId::DEFAULT);
    part.create = Some("a".into());
    part.options = Some(Arc::new(Options::default()));
    set.apply(edit).unwrap();
    let mut edit = VersionEdit::default();
    let part = edit.keyspace(KeyspaceId::DEFAULT);
    for at in 0..small {
        part.add_table(level(1), DataEpoch::new(3), table(&set, at * 10, at * 10 + 9));
        for at in at * 10..at * 10 + 10 {
            part.add_table(level(2), DataEpoch::new(2), table(&set, at, at));
        }
    }
    set.apply(edit).unwrap();
    (set, storage)
}

fn table(set: &VersionSet, from: u64, to: u64) -> Arc<TableMeta> {
    let uid = set.new_uid().unwrap().get();
    meta(uid, &format!("key{from:013}"), &format!("key{to:013}z"), (1, 9))
}

/// Merges one table of level 1 with the ten below it: eleven tables go, eleven come.
fn merge(set: &VersionSet, root: &Root, at: u64) -> VersionEdit {
    let keyspace = root.keyspaces.get(KeyspaceId::DEFAULT).unwrap();
    let mut edit = VersionEdit::default();
    let part = edit.keyspace(KeyspaceId::DEFAULT);
    let tables = |level_index: usize, at: u64| -> TableUid {
        let run = &keyspace.version.levels()[level(level_index)].filling.runs[0];
        run.tables.get(at as usize).unwrap().0.uid
    };
    part.remove_table(level(1), tables(1, at));
    part.add_table(level(1), DataEpoch::new(3), table(set, at * 10, at * 10 + 9));
    for at in at * 10..at * 10 + 10 {
        part.remove_table(level(2), tables(2, at));
        part.add_table(level(2), DataEpoch::new(2), table(set, at, at));
    }
    edit
}

/// Makes something of an edit that no store would write.
type Spoil = fn(&mut KeyspaceEdit);

/// What is wrong with edits, and how.
const SPOILS: [(&str, Spoil); 14] = [
    ("a table that is not there", |e| e.removed[3].uid = uid(1 << 40)),
    ("a table of another level", |e| e.removed[0].level = level(2)),
    ("a table twice", |e| e.removed[3] = e.removed[4]),
    ("a table given twice", |e| e.added[3] = e.added[4].clone()),
    ("a table given twice, differently", |e| {
        let mut meta = (*e.added[4].meta).clone();
        (meta.uid, meta.check_uid) = (e.added[3].meta.uid, e.added[3].meta.uid);
        e.added[4].meta = Arc::new(meta);
    }),
    ("a table that stays as another one", |e| {
        e.added[0].run = RunId::filling(level(1), DataEpoch::new(3));
        let uid = e.removed[0].uid;
        let was = Arc::clone(&e.added[0].meta);
        let stays = TableMeta { uid, check_uid: uid, entry_hash: 1, ..(*was).clone() };
        e.added[0].meta = Arc::new(stays);
    }),
    ("another part", |e| e.removed[3].part = PartKind::Draining),
    ("no entries", |e| Arc::make_mut(&mut e.added[3].meta).entries = 0),
    ("another keyspace", |e| Arc::make_mut(&mut e.added[3].meta).keyspace = KeyspaceId::new(7)),
    ("keys the wrong way round", |e| Arc::make_mut(&mut e.added[3].meta).largest.clear()),
    ("an overlap", |e| Arc::make_mut(&mut e.added[3].meta).largest = b"z".to_vec()),
    ("what passes a run", |e| {
        // Level 3 gets what level 2 has older versions of.
        e.removed.truncate(1);
        e.added.truncate(1);
        e.added[0].run.level = level(3);
    }),
    ("a flush that goes back", |e| {
        let flushed_seq = 5;
        let log_start = LogPosition { segment: segment(1), ..LogPosition::ORIGIN };
        *e = KeyspaceEdit {
            flushed: Some(Flushed { log_start, flushed_seq, durable_lsn: lsn(0) }),
            ..KeyspaceEdit::default()
        };
        e.add_table(level(0), DataEpoch::new(1), meta(1 << 30, "a", "b", (7, 8)));
    }),
    ("level 0 out of order", |e| {
        *e = KeyspaceEdit::default();
        e.add_table(level(0), DataEpoch::new(1 << 30), meta(1 << 30, "a", "b", (7, 8)));
        e.add_table(level(0), DataEpoch::new(1 << 31), meta(1 << 31, "a", "b", (8, 9)));
    }),
];

/// Goal: an edit that does not fit is found where it is, after the same edits, in sums too. Method:
/// logs of merges with one that is spoilt in each way, first, in the middle or last, written
/// unchecked; both readers.
#[test]
fn what_does_not_fit_is_found_in_sums_too() {
    for (name, spoil) in SPOILS {
        for at in [0, 5, 9] {
            let (set, storage) = two_levels(4);
            let number = set.version_log().unwrap();
            for _ in 0..at {
                set.apply(merge(&set, &set.current(), 1)).unwrap();
            }
            let mut bad = merge(&set, &set.current(), 2);
            spoil(bad.keyspace(KeyspaceId::DEFAULT));
            append_unchecked(&storage, &set, &bad);
            assert_eq!(set.version_log(), Some(number));
            let each = read(&storage, false).unwrap();
            let damage = each.damage.as_ref().or(each.list_fault.as_ref());
            assert!(damage.is_some(), "{name} is noticed");
            let prefix = base_log::read_prefix(&storage, source(&storage), &|meta, seed| {
                context(Arc::new(storage.clone()), 1 << 30).open(meta, seed)
            });
            assert_eq!(said(&prefix.unwrap()), said(&each), "{name}, after {at} edits");
        }
    }
}

/// Writes the root of `set` as the base of a new log, and two good edits around `edit` behind it.
fn append_unchecked(storage: &MemStorage, set: &VersionSet, edit: &VersionEdit) {
    let root = set.current();
    let number = set.version_log().unwrap().next();
    let nonce = source(storage).nonce;
    let mut base = base_log::write(storage, &root, number, nonce).unwrap();
    for edit in [&merge(set, &root, 1), edit, &merge(set, &root, 3)] {
        let mut buf = Vec::new();
        edit.encode(&mut buf);
        let durable: Lsn = base.writer.chain().lsn;
        base.writer.append(GroupType::Full, &[&buf], 1, true, durable).unwrap();
    }
    base.writer.region().sync().unwrap();
    storage.write_root_record(&base.record.encode(), number).unwrap();
    storage.remove_log(LogKind::Versions, set.version_log().unwrap()).unwrap();
}

/// Goal: a sum knows nothing of a root that is gone. The story: an edit that is not plain had a sum
/// look at its keyspace, and the next sum went on from there: it saw no sentinel, and a flush that
/// passed the claim did not clip it. Method: a sentinel, then a flush into a gap of it that is
/// merged alone to below it.
#[test]
fn a_sum_begins_with_the_root_that_is_there() {
    let (set, storage) = two_levels(4);
    let root = set.current();
    let keyspace = root.keyspaces.get(KeyspaceId::DEFAULT).unwrap();
    let run = RunId::filling(level(0), set.epoch_below_next());
    let mut edit = VersionEdit::default();
    let part = edit.keyspace(KeyspaceId::DEFAULT);
    let (from, to) = (format!("key{:013}", 0), format!("key{:013}zz", 9));
    let interval = Interval::new(from.as_bytes(), Some(to.as_bytes()));
    for (id, older) in keyspace.version.runs_by_id() {
        let (lower, upper) = interval.bounds();
        for (meta, _) in older.overlapping(lower, upper) {
            part.remove_table_from(id.level, id.part, meta.uid);
        }
    }
    part.add_table(level(0), run.epoch, table(&set, 1, 2));
    part.claims.push(Claim { run, interval: Some(interval.clone()) });
    part.requests.taken = Some((run, interval));
    set.apply(edit).unwrap();
    let flushed = |set: &VersionSet| {
        let table = table(set, 5, 6);
        Arc::new(TableMeta { seq_min: 10, seq_max: 12, ..(*table).clone() })
    };
    let (flush, merged) = (flushed(&set), flushed(&set));
    let uid = flush.uid;
    let mut edit = VersionEdit::default();
    let part = edit.keyspace(KeyspaceId::DEFAULT);
    part.add_table(level(0), set.new_epoch(), flush);
    let log_start = LogPosition { segment: segment(1), lsn: lsn(9), ..LogPosition::ORIGIN };
    part.flushed = Some(Flushed { log_start, flushed_seq: 12, durable_lsn: lsn(8) });
    set.apply(edit).unwrap();
    let mut edit = VersionEdit::default();
    let part = edit.keyspace(KeyspaceId::DEFAULT);
    part.remove_table(level(0), uid);
    part.add_table(level(1), DataEpoch::new(3), merged);
    set.apply(edit).unwrap();
    let sums = read(&storage, true).expect("edits that were checked fit");
    assert_eq!(dump(&sums.root), dump(&set.current()));
    assert_eq!(said(&sums), said(&read(&storage, false).unwrap()));
}

/// Goal: a log of merges leads to the tree that they lead to, at a cost that is shown: the curve of
/// LDS Fig. 17. Method: merges of eleven tables each over trees of 3,003 and 29,997 tables, both
/// readers; a few, or as many as `WEIR_EDITS` says, to measure:
/// `WEIR_EDITS=33000 cargo test --release -p weir-db --features sim --lib many_edits --
/// --nocapture`.
#[test]
fn recovery_of_many_edits() {
    let asked = std::env::var("WEIR_EDITS").ok().and_then(|edits| edits.parse().ok());
    let all: u64 = asked.unwrap_or(100);
    for small in [273, 2727] {
        let (set, _) = two_levels(small);
        let dir = tempfile::tempdir().unwrap();
        let real = RealDir::open(dir.path(), true).unwrap();
        let options = OpenOptions { create: true, read_only: false };
        let storage: Arc<dyn Storage> = Arc::new(Files::open(real, options).unwrap());
        let mut root = (*set.current()).clone();
        let mut places = root.places();
        let number = segment(1);
        let mut base = base_log::write(&*storage, &root, number, Nonce::NONE).unwrap();
        storage.write_root_record(&base.record.encode(), number).unwrap();
        let in_memory: Arc<dyn Storage> = Arc::new(MemStorage::default());
        let context = context(Arc::clone(&in_memory), 1 << 30);
        let mut prng = Prng::new(1);
        for edits in 1..=all {
            let edit = merge(&set, &root, prng.below(small));
            let mut buf = Vec::new();
            edit.encode(&mut buf);
            let durable: Lsn = base.writer.chain().lsn;
            base.writer.append(GroupType::Full, &[&buf], 1, true, durable).unwrap();
            let open = |meta: &Arc<TableMeta>| context.open(meta, HASH_SEED);
            let (next, changes) = root.apply(&edit, &places, &open).unwrap();
            changes.install(&mut places);
            root = next;
            if ![all / 33, all / 10, all / 3, all].contains(&edits) {
                continue;
            }
            let mut took = [Vec::new(), Vec::new()];
            for round in 0..6 {
                let began = clock::now_nanos();
                let prefix = read_from(&storage, round % 2 == 0).unwrap();
                took[round % 2].push((clock::now_nanos() - began) / 1000);
                assert_eq!(prefix.places.len() as u64, small * 11);
            }
            took.iter_mut().for_each(|took| took.sort_unstable());
            let found = read_from(&storage, true).unwrap();
            assert_eq!(dump(&found.root), dump(&root), "{edits} edits");
            println!(
                "{} tables, {edits} edits, a log of {} MiB: {} us in sums, {} us one by one \
                 (medians of 3)",
                small * 11,
                base.writer.bytes() >> 20,
                took[0][1],
                took[1][1]
            );
        }
    }
}
