//! Case 2 of a repair, the tables: what can still be had of one that is damaged or missing takes
//! its place.
//!
//! Two sources: the blocks that are sound; and, for what is in none, outputs of unfinished jobs
//! that hold entries of it. Such an entry is only taken if no table that is there holds its key
//! with the same or a newer sequence number, so it is the newest that is left, wherever it is put:
//! the table that it was in is among those whose place it takes.
//!
//! A delete may be lost, and then what it hid comes to light: the report says between which keys.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{BadTable, LostTable, Output, Repair, damage, sound_table};
use crate::base::cursor::Cursor;
use crate::base::error::Result;
use crate::base::ids::TableUid;
use crate::base::key::{SEQ_MAX, Seq, compare};
use crate::base::table_meta::{Mask, TableMeta};
use crate::cache::Purpose;
use crate::memtable::Memtable;
use crate::storage::Object;
use crate::table::{CursorOptions, KeyRanges, ReadAhead, Table};
use crate::version::edit::{AddedTable, VersionEdit};
use crate::version::keyspaces::KeyspaceVersion;
use crate::version::root::Root;
use crate::version::shape::RunId;

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
    /// Replaces `bad` tables in `edit` by what is left of them, and keeps copies of their files.
    pub(super) fn replace(
        &mut self,
        root: &Root,
        listed_only: &BTreeSet<TableUid>,
        bad: Vec<BadTable>,
        uids: &Arc<AtomicU64>,
        edit: &mut VersionEdit,
    ) -> Result<()> {
        let orphans = if bad.is_empty() { Vec::new() } else { self.orphans(root, listed_only)? };
        let mut remains = Vec::new();
        for table in &bad {
            remains.push(self.remains(root, table, &orphans, uids)?);
        }
        for (bad, remains) in bad.into_iter().zip(remains) {
            let meta = bad.table.meta();
            let kept_as = self.copy_aside(Object::Table(meta.uid))?;
            let keyspace = root.keyspaces.get(bad.keyspace).map(|state| state.name.to_string());
            let changes = edit.keyspace(bad.keyspace);
            changes.remove_table_from(bad.level, bad.part, meta.uid);
            changes.added.extend(remains.tables);
            self.report.lost_tables.push(LostTable {
                uid: meta.uid.get(),
                keyspace,
                entries: Some(meta.entries),
                entries_kept: remains.entries,
                lost_ranges: remains.lost,
                why: bad.why,
                kept_as,
            });
        }
        Ok(())
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
        uids: &Arc<AtomicU64>,
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
        let entries = memtable.entries();
        if entries == 0 {
            return Ok(Remains { tables: Vec::new(), entries, lost });
        }
        let uids = Arc::clone(uids);
        let output = Output {
            keyspace: bad.keyspace,
            options: &keyspace.options,
            run: RunId { level: bad.level, part: bad.part, epoch: bad.epoch },
            hash_seed: root.hash_seed,
            new_uid: Arc::new(move || Ok(TableUid::new(uids.fetch_add(1, Ordering::Relaxed)))),
        };
        let tables = self.write(output, entries, Box::new(memtable.cursor()))?;
        Ok(Remains { tables, entries, lost })
    }
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
        let is_masked = lost.masks.iter().any(|mask| mask.interval.contains(key));
        let was_there = (lost.seq_min..=lost.seq_max).contains(&seq) && !is_masked;
        if was_there && !known && !is_shown(keyspace, key, seq)? {
            memtable.insert(key, seq, cursor.kind(), cursor.value());
        }
        cursor.next();
    }
    cursor.status()
}

/// Whether a table that can be read holds `key` with this sequence number or a newer one.
fn is_shown(keyspace: &KeyspaceVersion, key: &[u8], seq: Seq) -> Result<bool> {
    for table in keyspace.version.tables() {
        let meta = table.meta();
        let outside = compare(key, &meta.smallest).is_lt() || compare(key, &meta.largest).is_gt();
        if outside || meta.seq_max < seq {
            continue;
        }
        let mut cursor = table.cursor(CURSOR_OPTIONS);
        cursor.seek(key, SEQ_MAX);
        match cursor.status() {
            Ok(()) if cursor.valid() && cursor.key() == key && cursor.seq() >= seq => {
                return Ok(true);
            }
            Ok(()) => {}
            Err(error) => drop(damage(error)?),
        }
    }
    Ok(false)
}
