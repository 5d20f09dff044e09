//! The version set against simple oracles. Here: random edits of a plausible tree, and a dump of a
//! root that two equal roots share.

mod buffer;
mod bulk;
mod check;
mod claims;
mod codec;
#[cfg(feature = "sim")]
mod crash;
mod cursor;
mod foreseen;
mod parts;
mod set;
mod tables;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use super::buffer_list::{BufferList, ListCounts};
use super::edit::{AddedTable, Claim, Flushed, KeyspaceEdit, ListRequests, Rotation, VersionEdit};
use super::keyspaces::KeyspaceVersion;
use super::root::Root;
use super::set::{Context, VersionSet};
use super::shape::{PartKind, RunId};
use crate::base::ids::{KeyspaceId, Level, Lineage, TableUid, level, lsn, segment, uid};
use crate::base::interval::Interval;
use crate::base::key::KeyRange;
use crate::base::place::Place;
use crate::base::prng::Prng;
use crate::base::table_meta::{Content, TableMeta};
use crate::log::LogPosition;
use crate::options::{CompactionBuffer, LeveledOptions, Options};
use crate::storage::Storage;

const LINEAGE: Lineage = Lineage::new(0xabcd);
const HASH_SEED: u64 = 0x5eed;

fn context(storage: Arc<dyn Storage>, version_log_bytes: u64) -> Context {
    Context { storage, cache: None, accountant: None, version_log_bytes, tables: None, seed: 1 }
}

/// A table that holds keys from `smallest` to `largest` and sequences from `seqs.0` to `seqs.1`.
fn meta(number: u64, smallest: &str, largest: &str, seqs: (u64, u64)) -> Arc<TableMeta> {
    Arc::new(TableMeta {
        uid: uid(number),
        check_uid: uid(number),
        bytes: 1000 + number,
        tail_bytes: 100,
        tail_checksum: number as u32,
        raw_bytes: 800,
        entries: 10,
        deletes: 1,
        blocks: 1,
        seq_min: seqs.0,
        seq_max: seqs.1,
        smallest: smallest.as_bytes().to_vec(),
        largest: largest.as_bytes().to_vec(),
        entry_hash: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        keyspace: KeyspaceId::DEFAULT,
        masks: Vec::new(),
        place: Place::default(),
    })
}

fn key(number: u64) -> String {
    format!("{number:04}")
}

/// Everything about a root that an edit sets, as text: equal for equal roots.
fn dump(root: &Root) -> String {
    let mut text = format!(
        "lineage {:x} seed {:x} last_seq {} wal {} next_keyspace {}\n",
        root.lineage, root.hash_seed, root.last_seq, root.wal_durable_lsn, root.next_keyspace
    );
    for keyspace in root.keyspaces.iter() {
        let id = keyspace.id;
        writeln!(
            text,
            "keyspace {id} {:?} trigger {} log_start {:?} flushed {}",
            keyspace.name,
            keyspace.options.compaction.level_sizes().l0_trigger,
            keyspace.log_start,
            keyspace.flushed_seq
        )
        .unwrap();
        for (number, level) in keyspace.version.levels().iter() {
            if let Some(cursor) = &level.cursor {
                writeln!(text, " cursor {number} {cursor:?}").unwrap();
            }
            if let Some(part) = &level.draining {
                let rotated = (part.rotated_bytes, part.rotated_entries);
                writeln!(text, " level {number} rotated {rotated:?}").unwrap();
            }
            for (part, run) in level.runs() {
                let metas: Vec<_> = run.tables.iter().map(|(m, _)| (**m).clone()).collect();
                let name = format!("{:?} {part:?} epoch {}", run.kind, run.epoch);
                writeln!(text, " level {number} {name} {metas:?}").unwrap();
                if let Some(claims) = &run.claims {
                    writeln!(text, "  claims {claims:?}").unwrap();
                }
                if let Some(list) = &run.list {
                    writeln!(text, "  list {}", dump_list(list)).unwrap();
                }
            }
        }
    }
    text
}

/// Checks invariants 2 to 4 of a buffer list.
fn check_list(list: &BufferList) {
    let mut hidden: Vec<KeyRange> = Vec::new();
    for (age, run) in list.runs().iter().enumerate() {
        let holes: Vec<&KeyRange> = run.holes.iter().collect();
        assert!(holes.iter().all(|(from, to)| from <= to), "{holes:?}");
        assert!(holes.is_sorted_by(|(_, to), (from, _)| to < from), "{holes:?}");
        hidden.extend(run.holes.iter().cloned());
        hidden.sort();
        hidden.dedup_by(|(from, to), (_, before)| {
            let joins = *from <= *before;
            if joins {
                *before = Arc::clone(before).max(Arc::clone(to));
            }
            joins
        });
        for (meta, _) in run.tables.iter() {
            let hides =
                |(from, to): &&KeyRange| **from <= meta.smallest[..] && meta.largest[..] <= **to;
            let hole = hidden.iter().find(hides);
            assert!(hole.is_none(), "table {} is under the hole {hole:?}", meta.uid);
        }
        let is_oldest = age + 1 == list.runs().len();
        assert!(is_oldest || !run.tables.is_empty(), "an empty run that is not the oldest");
    }
}

/// A buffer list as text, newest buffered run first: tables with their keys, then holes.
fn dump_list(list: &BufferList) -> String {
    check_list(list);
    let utf8 = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let ListCounts { appended, shadowed, quiet } = list.counts();
    let mut text = format!("{shadowed}/{appended}{}", if quiet { " quiet" } else { "" });
    for run in list.runs() {
        text.push_str(" |");
        for (meta, _) in run.tables.iter() {
            let (from, to) = (utf8(&meta.smallest), utf8(&meta.largest));
            write!(text, " {} {from}-{to}", meta.uid).unwrap();
        }
        for (from, to) in run.holes.iter() {
            write!(text, " ~{}-{}", utf8(from), utf8(to)).unwrap();
        }
    }
    text
}

/// Disjoint tables that span `range`, in key order.
fn outputs(
    set: &VersionSet,
    prng: &mut Prng,
    range: (u64, u64),
    seqs: (u64, u64),
) -> Vec<Arc<TableMeta>> {
    let mut tables = Vec::new();
    let mut low = range.0;
    while low <= range.1 && (tables.is_empty() || prng.chance(3, 4)) {
        let high = (low + prng.below(60)).min(range.1);
        tables.push(meta(set.new_uid().unwrap().get(), &key(low), &key(high), seqs));
        low = high + 1 + prng.below(20);
    }
    tables
}

fn number_of(key: &[u8]) -> u64 {
    std::str::from_utf8(key).unwrap().parse().unwrap()
}

/// Merges some tables of `level`, of its draining part if it has one, and all of the next level's
/// filling part that they overlap; or rotates the level.
fn compaction(
    set: &VersionSet,
    prng: &mut Prng,
    keyspace: &KeyspaceVersion,
    level: Level,
) -> KeyspaceEdit {
    let mut edit = KeyspaceEdit::default();
    let levels = keyspace.version.levels();
    let draining = levels[level].draining.as_ref();
    if draining.is_none() && !levels[level].filling.runs.is_empty() && prng.chance(1, 4) {
        let totals = levels[level].totals();
        edit.rotate(level, Rotation { bytes: totals.bytes, entries: totals.entries });
        return edit;
    }
    let (part, source) = match draining {
        Some(part) => (PartKind::Draining, part),
        None => (PartKind::Filling, &levels[level].filling),
    };
    let mut range = (u64::MAX, 0);
    let mut seqs = (u64::MAX, 0);
    let mut take = |edit: &mut KeyspaceEdit, level: Level, part: PartKind, table: &TableMeta| {
        edit.remove_table_from(level, part, table.uid);
        range.0 = range.0.min(number_of(&table.smallest));
        range.1 = range.1.max(number_of(&table.largest));
        seqs.0 = seqs.0.min(table.seq_min);
        seqs.1 = seqs.1.max(table.seq_max);
        range
    };
    let mut inputs = (u64::MAX, 0);
    if level == Level::ZERO {
        for (table, _) in source.runs.iter().flat_map(|run| run.tables.iter()) {
            inputs = take(&mut edit, level, part, table);
        }
    } else if let Some(run) = source.runs.last() {
        let (table, _) = run.tables.get(prng.below(run.tables.len() as u64) as usize).unwrap();
        inputs = take(&mut edit, level, part, table);
        edit.set_cursor(level, Some(table.largest.clone()));
    }
    if edit.removed.is_empty() {
        return edit;
    }
    let (low, high) = (key(inputs.0), key(inputs.1));
    let newest = source.runs[0].epoch;
    let next = level.next().unwrap();
    let target = levels[next].filling.runs.first();
    let epoch = target.map_or(newest, |run| run.epoch);
    if let Some(run) = target {
        let lower = std::ops::Bound::Included(low.as_bytes());
        let upper = std::ops::Bound::Included(high.as_bytes());
        for (_, table) in run.overlapping(lower, upper) {
            take(&mut edit, next, PartKind::Filling, table.meta());
        }
    }
    if edit.removed.len() == 1 && prng.chance(1, 2) {
        let uid = edit.removed[0].uid;
        edit.add_table(next, epoch, described(keyspace, uid));
        return edit;
    }
    for table in outputs(set, prng, range, seqs) {
        edit.add_table(next, epoch, table);
    }
    edit
}

/// A table of the tree, with its view.
fn described(keyspace: &KeyspaceVersion, uid: TableUid) -> Arc<TableMeta> {
    let mut runs = keyspace.version.runs_newest_first().flat_map(|run| run.tables.iter());
    Arc::clone(runs.find(|(meta, _)| meta.uid == uid).unwrap().0)
}

/// A sentinel over a range, of everything that is there; nothing if there is nothing.
fn sentinel(set: &VersionSet, prng: &mut Prng, keyspace: &KeyspaceVersion) -> KeyspaceEdit {
    let (low, length) = (prng.below(900), 1 + prng.below(150));
    let interval = Interval::new(key(low).as_bytes(), Some(key(low + length).as_bytes()));
    let run = RunId::filling(level(0), set.epoch_below_next());
    let mut edit = KeyspaceEdit::default();
    let (mut seqs, mut hidden) = ((u64::MAX, 0), 0);
    for (id, older) in keyspace.version.runs_by_id() {
        let (lower, upper) = interval.bounds();
        for (meta, _) in older.overlapping(lower, upper) {
            seqs = (seqs.0.min(meta.seq_min), seqs.1.max(meta.seq_max));
            let visible = meta.visible();
            let is_whole = interval.covers(&meta.smallest, &meta.largest);
            let entries = if is_whole { visible.entries } else { prng.below(visible.entries) };
            let content = Content { entries, raw_bytes: 0, deletes: 0, hash: prng.next_u64() };
            hidden += entries;
            edit.remove_table_from(id.level, id.part, meta.uid);
            if let Some(masked) = meta.masked(&interval, content).filter(|_| !is_whole) {
                edit.added.push(AddedTable { run: id, meta: Arc::new(masked) });
            }
        }
    }
    if hidden > 0 {
        let uid = set.new_uid().unwrap().get();
        let (from, to) = (key(low), key(low + prng.below(length)));
        let mut table = (*meta(uid, &from, &to, seqs)).clone();
        (table.entries, table.deletes) = (hidden.min(table.entries), 0);
        edit.add_table(level(0), run.epoch, Arc::new(table));
        edit.claims.push(Claim { run, interval: Some(interval.clone()) });
    }
    edit.requests.taken = Some((run, interval));
    edit
}

/// A flush of one table, as the next memtable's would be.
fn flush(
    set: &VersionSet,
    prng: &mut Prng,
    root: &Root,
    keyspace: &KeyspaceVersion,
) -> KeyspaceEdit {
    let low = prng.below(900);
    let seqs = (root.last_seq + 1, root.last_seq + 1 + prng.below(10));
    let table = meta(set.new_uid().unwrap().get(), &key(low), &key(low + prng.below(99)), seqs);
    let mut edit = KeyspaceEdit::default();
    edit.add_table(level(0), set.new_epoch(), table);
    let number = keyspace.log_start.lsn.get() + prng.below(5);
    let (segment, lsn) = (segment(1 + number / 10), lsn(number));
    let log_start = LogPosition { segment, offset: number * 100, lsn, ..LogPosition::ORIGIN };
    edit.flushed = Some(Flushed { log_start, flushed_seq: seqs.1, durable_lsn: lsn.previous() });
    edit
}

fn options(prng: &mut Prng) -> Options {
    let sizes = LeveledOptions::default().l0_trigger(1 + prng.below(50) as usize);
    let sizes = sizes.level_ratio(2 + prng.below(4) as u32);
    let buffer = match prng.below(3) {
        0 => CompactionBuffer::Off,
        _ => CompactionBuffer::trimmed(),
    };
    Options::default().compaction(sizes).compaction_buffer(buffer)
}

/// Some tables of lists, to be trimmed, or all lists, to be dropped.
fn list_requests(prng: &mut Prng, keyspace: &KeyspaceVersion) -> ListRequests {
    let mut trim = BTreeSet::new();
    for table in keyspace.version.listed_tables() {
        if prng.chance(1, 3) {
            trim.insert(table.meta().uid);
        }
    }
    ListRequests { trim, drop: prng.chance(1, 8), ..ListRequests::default() }
}

/// An edit that a running store might make of the current root.
fn random_edit(set: &VersionSet, prng: &mut Prng) -> VersionEdit {
    let root = set.current();
    let mut edit = VersionEdit::default();
    let ids: Vec<KeyspaceId> = root.keyspaces.iter().map(|keyspace| keyspace.id).collect();
    let choice = prng.below(20);
    if ids.is_empty() || (choice == 0 && ids.len() < 4) {
        let id = set.new_keyspace_id().unwrap();
        let options = options(prng);
        let part = edit.keyspace(id);
        part.create = Some(format!("keyspace {id}"));
        part.options = Some(Arc::new(options));
        return edit;
    }
    let id = ids[prng.below(ids.len() as u64) as usize];
    let keyspace = &root.keyspaces.get(id).unwrap();
    let part = match choice {
        1 => KeyspaceEdit { drop: ids.len() > 1, ..KeyspaceEdit::default() },
        2 => {
            let options = options(prng);
            KeyspaceEdit { options: Some(Arc::new(options)), ..KeyspaceEdit::default() }
        }
        3..9 => {
            let level = level(prng.below(3) as usize);
            let mut part = compaction(set, prng, keyspace, level);
            part.requests.shadowed = prng.below(6);
            part
        }
        10 => sentinel(set, prng, keyspace),
        9 => {
            let requests = list_requests(prng, keyspace);
            KeyspaceEdit { requests, ..KeyspaceEdit::default() }
        }
        _ => flush(set, prng, &root, keyspace),
    };
    edit.keyspaces.insert(id, part);
    if choice == 15 && ids.len() > 1 {
        // One atomic change of two keyspaces.
        let other = ids[(ids.iter().position(|&i| i == id).unwrap() + 1) % ids.len()];
        edit.keyspaces
            .insert(other, compaction(set, prng, root.keyspaces.get(other).unwrap(), level(0)));
    }
    for (&id, part) in &mut edit.keyspaces {
        for table in &mut part.added {
            Arc::make_mut(&mut table.meta).keyspace = id;
        }
    }
    edit
}
