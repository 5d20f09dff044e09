//! Case 2 of a repair, the tables: what can still be had of one that is damaged or missing takes
//! its place.
//!
//! Three sources: the blocks that are sound; for what is in none, outputs of unfinished jobs that
//! hold entries of it; and for a table of a sentinel what masks hide in older tables, of which it
//! was made, until these are rewritten. An entry of an output is only taken if no table holds its
//! key with the same or a newer sequence number, so it is the newest that is left, wherever it is
//! put: the table that it was in is among those whose place it takes. What a mask hides of a key is
//! older than all that is shown above the sentinel, and nothing below shows it; of that the newest
//! is taken, if the sentinel can have had it by its sequence number.
//!
//! Where there is no room for what is left of all of them beside the tables themselves, some are
//! replaced first, which frees the place of these, and then others: the newest first, so that those
//! of sentinels come before the tables whose masks may hide what they have lost.
//!
//! A delete may be lost, and then what it hid comes to light: the report says between which keys.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{BadTable, LostTable, Output, Repair, damage, sound_table};
use crate::base::cursor::Cursor;
use crate::base::error::{ErrorKind, Result};
use crate::base::ids::TableUid;
use crate::base::key::{Kind, SEQ_MAX, Seq, compare};
use crate::base::table_meta::{Mask, TableMeta};
use crate::cache::Purpose;
use crate::compaction::execute::NewUid;
use crate::memtable::Memtable;
use crate::storage::Object;
use crate::table::{CursorOptions, KeyRanges, ReadAhead, Table};
use crate::version::edit::{AddedTable, VersionEdit};
use crate::version::keyspaces::KeyspaceVersion;
use crate::version::root::Root;
use crate::version::shape::{RunId, RunKind};

const CURSOR_OPTIONS: CursorOptions =
    CursorOptions { purpose: Purpose::Background, fill_cache: false, readahead: ReadAhead::Scan };

/// What is left of a table.
struct Remains {
    tables: Vec<AddedTable>,
    entries: u64,
    /// Keys between which entries may be missing.
    lost: KeyRanges,
}

impl Repair {
    /// Replaces `bad` tables, of each keyspace the newest first, in `edit` by what is left of them,
    /// and keeps copies of their files: as many as there is room for, and at least one. The others
    /// stay in `bad`. What is given up with them, for when the edit counts.
    ///
    /// # Errors
    /// `NoSpace` if there is no room for any; the device's.
    pub(super) fn replace(
        &mut self,
        root: &Root,
        listed_only: &BTreeSet<TableUid>,
        bad: &mut Vec<BadTable>,
        new_uid: &NewUid,
        edit: &mut VersionEdit,
    ) -> Result<Vec<LostTable>> {
        let orphans = if bad.is_empty() { Vec::new() } else { self.orphans(root, listed_only)? };
        let mut remains = Vec::new();
        for table in &*bad {
            match self.remains(root, table, &orphans, new_uid) {
                Err(error) if error.kind() == ErrorKind::NoSpace && !remains.is_empty() => break,
                left => remains.push(left.map_err(|error| self.no_room_in_place(error))?),
            }
        }
        let mut given_up = Vec::new();
        for (bad, remains) in bad.drain(..remains.len()).zip(remains) {
            let meta = bad.table.meta();
            let kept_as = self.copy_aside(Object::Table(meta.uid))?;
            let keyspace = root.keyspaces.get(bad.keyspace).map(|state| state.name.to_string());
            // What masks hide is not lost with the table.
            let entries = match remains.lost.is_empty() {
                true => remains.entries,
                false => bad.meta.visible().entries.max(remains.entries),
            };
            let changes = edit.keyspace(bad.keyspace);
            changes.remove_table_from(bad.level, bad.part, meta.uid);
            changes.added.extend(remains.tables);
            given_up.push(LostTable {
                uid: meta.uid.get(),
                keyspace,
                entries: Some(entries),
                entries_kept: remains.entries,
                lost_ranges: remains.lost,
                why: bad.why,
                kept_as,
            });
        }
        Ok(given_up)
    }

    /// The sound tables that `root` does not name, nor a buffer list: those of lists hold what has
    /// been merged since.
    fn orphans(&self, root: &Root, listed_only: &BTreeSet<TableUid>) -> Result<Vec<Arc<Table>>> {
        let in_tree: BTreeSet<TableUid> = root.tables().map(|table| table.meta().uid).collect();
        let is_named = |uid: &TableUid| in_tree.contains(uid) || listed_only.contains(uid);
        let mut orphans = Vec::new();
        for uid in self.aside.find_tables()?.into_iter().filter(|uid| !is_named(uid)) {
            match sound_table(&self.storage, uid) {
                Ok(table) => orphans.push(table),
                Err(error) => drop(damage(error)?),
            }
        }
        Ok(orphans)
    }

    fn remains(
        &self,
        root: &Root,
        bad: &BadTable,
        orphans: &[Arc<Table>],
        new_uid: &NewUid,
    ) -> Result<Remains> {
        let meta = bad.table.meta();
        let (memtable, lost) = read_blocks(&bad.table, &bad.meta.masks)?;
        let Some(keyspace) = root.keyspaces.get(bad.keyspace) else {
            return Ok(Remains { tables: Vec::new(), entries: 0, lost });
        };
        for orphan in orphans.iter().filter(|orphan| may_share(orphan.meta(), meta)) {
            for range in &lost {
                take_from(orphan, &bad.meta, range, keyspace, &memtable)?;
            }
        }
        if !lost.is_empty() {
            take_masked(keyspace, bad, &lost, &memtable)?;
        }
        let entries = memtable.entries();
        if entries == 0 {
            return Ok(Remains { tables: Vec::new(), entries, lost });
        }
        let output = Output {
            keyspace: bad.keyspace,
            options: &keyspace.options,
            run: run_of(bad),
            hash_seed: root.hash_seed,
            new_uid: Arc::clone(new_uid),
        };
        let tables = self.write(output, entries, Box::new(memtable.cursor()))?;
        Ok(Remains { tables, entries, lost })
    }
}

fn run_of(bad: &BadTable) -> RunId {
    RunId { level: bad.level, part: bad.part, epoch: bad.epoch }
}

/// The tables with masks below a table of a sentinel; none below another one, which may have taken
/// in deletes of what is hidden.
fn masked_below<'a>(
    keyspace: &'a KeyspaceVersion,
    bad: &BadTable,
) -> impl Iterator<Item = (&'a Arc<TableMeta>, &'a Arc<Table>)> {
    let id = run_of(bad);
    let run = keyspace.version.run(id);
    let is_sentinel = run.is_some_and(|run| run.kind == RunKind::Sentinel);
    let runs = keyspace.version.runs_by_id().filter(move |(older, _)| is_sentinel && *older > id);
    let tables = runs.flat_map(|(_, run)| run.tables.iter());
    tables.filter(|(view, _)| !view.masks.is_empty())
}

/// Takes over what masks hide of the keys that a table of a sentinel has lost.
fn take_masked(
    keyspace: &KeyspaceVersion,
    bad: &BadTable,
    lost: &KeyRanges,
    memtable: &Memtable,
) -> Result<()> {
    let is_lost = |key: &[u8]| {
        let mut ranges = lost.iter();
        ranges.any(|(first, last)| compare(first, key).is_le() && compare(key, last).is_le())
    };
    let mut newest: BTreeMap<Vec<u8>, (Seq, Kind, Vec<u8>)> = BTreeMap::new();
    for (view, table) in masked_below(keyspace, bad) {
        let read = table.read_remains(&mut |key, seq, kind, value| {
            // What the sentinel itself no longer showed is of no use.
            let known = newest.get(key).is_some_and(|(newer, ..)| *newer >= seq);
            if !known && is_lost(key) && is_masked(view, key) && !is_masked(&bad.meta, key) {
                newest.insert(key.to_vec(), (seq, kind, value.to_vec()));
            }
        });
        if let Err(error) = read {
            damage(error)?;
        }
    }
    for (key, (seq, kind, value)) in newest {
        // Deletes ended in the sentinel. One that is newer than all of it says that it had nothing.
        let was_there = (bad.meta.seq_min..=bad.meta.seq_max).contains(&seq) && kind == Kind::Put;
        let known = memtable.get(&key, SEQ_MAX).is_some_and(|found| found.seq >= seq);
        if was_there && !known {
            memtable.insert(&key, seq, kind, &value);
        }
    }
    Ok(())
}

fn is_masked(view: &TableMeta, key: &[u8]) -> bool {
    view.masks.iter().any(|mask| mask.interval.contains(key))
}

/// The entries of all blocks of a table that are sound and under none of the masks, and between
/// which keys the others are. All of a table are gone if its tail is.
pub(super) fn read_blocks(table: &Table, masks: &[Mask]) -> Result<(Arc<Memtable>, KeyRanges)> {
    const HINT_BYTES: usize = 1 << 20;
    let memtable = Arc::new(Memtable::new(HINT_BYTES));
    let read = table.read_remains(&mut |key, seq, kind, value| {
        if !masks.iter().any(|mask| mask.interval.contains(key)) {
            memtable.insert(key, seq, kind, value);
        }
    });
    let lost = match read {
        Ok(lost) => lost,
        Err(error) => {
            damage(error)?;
            vec![(table.meta().smallest.clone(), table.meta().largest.clone())]
        }
    };
    Ok((memtable, lost))
}

/// Whether an entry of the one table may be in the other too.
fn may_share(a: &TableMeta, b: &TableMeta) -> bool {
    a.seq_min <= b.seq_max && b.seq_min <= a.seq_max && keys_overlap(a, b)
}

/// Whether a key of the one table may be in the other too.
pub(super) fn keys_overlap(a: &TableMeta, b: &TableMeta) -> bool {
    a.keyspace == b.keyspace
        && compare(&a.smallest, &b.largest).is_le()
        && compare(&b.smallest, &a.largest).is_le()
}

/// Takes over the entries of `orphan` that `lost` may have held between these keys and of which
/// nothing newer is left.
fn take_from(
    orphan: &Arc<Table>,
    lost: &TableMeta,
    (first, last): &(Vec<u8>, Vec<u8>),
    keyspace: &KeyspaceVersion,
    memtable: &Memtable,
) -> Result<()> {
    let mut cursor = orphan.cursor(CURSOR_OPTIONS);
    cursor.seek(first, SEQ_MAX);
    while cursor.valid() && compare(cursor.key(), last).is_le() {
        let (key, seq) = (cursor.key(), cursor.seq());
        let known = memtable.get(key, SEQ_MAX).is_some_and(|found| found.seq >= seq);
        let was_there = (lost.seq_min..=lost.seq_max).contains(&seq) && !is_masked(lost, key);
        if was_there && !known && !is_shown(keyspace, key, seq)? {
            memtable.insert(key, seq, cursor.kind(), cursor.value());
        }
        cursor.next();
    }
    cursor.status()
}

/// Whether a table that can be read holds `key` with this sequence number or a newer one.
fn is_shown(keyspace: &KeyspaceVersion, key: &[u8], seq: Seq) -> Result<bool> {
    let tables = keyspace.version.runs_newest_first().flat_map(|run| run.tables.iter());
    for (meta, table) in tables {
        let outside = compare(key, &meta.smallest).is_lt() || compare(key, &meta.largest).is_gt();
        if outside || meta.seq_max < seq {
            continue;
        }
        let mut cursor = table.cursor(CURSOR_OPTIONS);
        cursor.seek(key, SEQ_MAX);
        match cursor.status() {
            Ok(()) if cursor.valid() && cursor.key() == key && cursor.seq() >= seq => {
                // Of what is hidden only something newer tells that this one was replaced.
                if cursor.seq() > seq || !is_masked(meta, key) {
                    return Ok(true);
                }
            }
            Ok(()) => {}
            Err(error) => drop(damage(error)?),
        }
    }
    Ok(false)
}
