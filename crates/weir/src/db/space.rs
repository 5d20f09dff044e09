//! Space: bytes and files, what a merge takes of them, and what a storage has left.
//!
//! Pure: estimates from descriptions. Not here: when work is refused for want of it
//! (`space_checks`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::base::ids::TableUid;
use crate::base::interval::Interval;
use crate::base::key_scale::KeyScale;
use crate::base::table_meta::TableMeta;
use crate::compaction::execute::JobStats;
use crate::compaction::policy_of;
use crate::compaction::task::{MergeTask, SentinelTask, Task};
use crate::storage::FreeSpace;
use crate::table::Table;
use crate::version::keyspaces::KeyspaceVersion;
use crate::version::shape::Shape;

/// Bytes by use, and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Space {
    /// Bytes of tables.
    pub(super) tables: u64,
    /// Bytes of the write-ahead log.
    pub(super) log: u64,
    /// Bytes of the version log.
    pub(super) versions: u64,
    /// Bytes that a base of the version log has for what is there; for what comes, see
    /// [`Free::shortages`].
    pub(super) base: u64,
    pub(super) files: u64,
    /// Those of them that are tables made to fit the units that they take: they fill them.
    pub(super) full: u64,
}

impl Space {
    fn each(self, other: Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            tables: of(self.tables, other.tables),
            log: of(self.log, other.log),
            versions: of(self.versions, other.versions),
            base: of(self.base, other.base),
            files: of(self.files, other.files),
            full: of(self.full, other.full),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    pub(super) fn minus(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    /// The larger of each; fewer tables that are full may take more.
    pub(super) fn max(self, other: Self) -> Self {
        Self { full: self.full.min(other.full), ..self.each(other, u64::max) }
    }

    /// The smaller of each.
    pub(super) fn min(self, other: Self) -> Self {
        self.each(other, u64::min)
    }

    /// Bytes of all uses.
    pub(super) fn bytes(self) -> u64 {
        self.tables.saturating_add(self.log).saturating_add(self.versions)
    }
}

/// What a storage has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) space: FreeSpace,
    /// Bytes that the description of a table to come takes in a base of the version log.
    pub(super) description_bytes: u64,
}

impl Default for Free {
    fn default() -> Self {
        Self { space: FreeSpace::UNLIMITED, description_bytes: BASE_BYTES_PER_TABLE }
    }
}

/// What a table that is made to fit its unit leaves of it: a trailer, the next entry, and what the
/// estimate of its bytes is too high by. An estimate from above for entries of up to 200 KiB.
const FULL_ROUNDING_BYTES: u64 = 256 << 10;

/// A part of the space that is too small.
struct Short {
    what: &'static str,
    needed: u64,
    free: u64,
    advice: &'static str,
}

const SHORT_OF_BYTES: &str = "free space, drop a keyspace, or choose smaller log_segment_bytes and \
                              write_buffer_bytes";
const SHORT_OF_SLOTS: &str = "compact, delete keys and compact again, drop a keyspace, or choose \
                              smaller write_buffer_bytes";
const SHORT_OF_FILES: &str = "remove files, drop a keyspace, or choose larger table_bytes";
const SHORT_OF_LOG: &str = "flush, or choose smaller log_segment_bytes or a larger area";
const SHORT_OF_VERSIONS: &str = "drop a keyspace, or choose larger table_bytes or a larger area";

impl Free {
    pub(super) fn is_unlimited(self) -> bool {
        let FreeSpace { table_bytes, areas, files, .. } = self.space;
        table_bytes.is_none() && areas.is_none() && files.is_none()
    }

    /// Whether the log's own area, if it has one, has room for so many bytes.
    pub(super) fn has_log_for(self, bytes: u64) -> bool {
        self.space.areas.is_none_or(|areas| areas.log >= bytes)
    }

    /// What tables may take more than their bytes, because they take whole units.
    pub(super) fn rounding(self, needed: Space) -> u64 {
        let most = self.space.table_unit.saturating_sub(1);
        let full = needed.full.min(needed.files);
        let of_others = (needed.files - full).saturating_mul(most);
        of_others.saturating_add(full.saturating_mul(most.min(FULL_ROUNDING_BYTES)))
    }

    /// Which of two needs takes less, with what tables take in whole units.
    pub(super) fn lesser(self, a: Space, b: Space) -> Space {
        let taken = |needed: Space| needed.tables.saturating_add(self.rounding(needed));
        if taken(b) < taken(a) { b } else { a }
    }

    pub(super) fn covers(self, needed: Space) -> bool {
        self.shortages(needed).next().is_none()
    }

    /// What is too small. An upper bound where tables take whole units: each file counts as one
    /// that fills its last unit least. An area of the version log has to have room for a base with
    /// all files that come, up to three quarters of it: edits behind it that find none begin the
    /// next one.
    fn shortages(self, needed: Space) -> impl Iterator<Item = Short> {
        let FreeSpace { table_bytes, areas, files, .. } = self.space;
        let rounding = self.rounding(needed);
        let bytes = match areas {
            None => needed.bytes(),
            Some(_) => needed.tables,
        };
        let part = |what, free: Option<u64>, needed, advice| {
            let free = free.filter(|&free| free < needed)?;
            Some(Short { what, needed, free, advice })
        };
        // In a file or on a device nobody else has the space.
        let (what, advice) = match areas {
            Some(_) => ("bytes of tables", SHORT_OF_SLOTS),
            None => ("bytes", SHORT_OF_BYTES),
        };
        let (log, versions) = (areas.map(|areas| areas.log), areas.map(|areas| areas.versions));
        let coming = needed.files.saturating_mul(self.description_bytes);
        // Small memtables with long keys might bring more than any area has, one after the other:
        // writers wait for merges long before. Behind a base of a quarter there is room for the
        // edit of a merge that describes everything anew.
        let coming = versions.map_or(coming, |area| coming.min(area / 4 * 3));
        let base = needed.base.saturating_add(coming).saturating_add(EDIT_BYTES);
        let parts = [
            part(what, table_bytes, bytes.saturating_add(rounding), advice),
            part("bytes of the log's area", log, needed.log, SHORT_OF_LOG),
            part("bytes of the version log's area", versions, base, SHORT_OF_VERSIONS),
            part("files (inodes)", files, needed.files, SHORT_OF_FILES),
        ];
        parts.into_iter().flatten()
    }

    /// Why work is refused that does not fit. Requires: `needed` is not covered.
    pub(super) fn refusal(self, needed: Space, what: &str, path: &str) -> String {
        assert!(!self.covers(needed), "{what} is refused {needed:?} of {self:?}");
        let line = |short: Short| {
            let Short { what: of, needed, free, advice } = short;
            format!(
                "{what} may need {needed} {of} and {path} has {free} left; reads go on: {advice}"
            )
        };
        let lines: Vec<String> = self.shortages(needed).map(line).collect();
        lines.join("; besides, ")
    }
}

/// What a task takes of a device at most, and how it is done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) need: Space,
    /// In stretches of so much; `None`: in one piece.
    pub(super) stretch: Option<Stretch>,
}

/// A stretch of a merge.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    /// It ends at the first place behind so many bytes of outputs.
    pub(super) bytes: u64,
    /// What it takes until inputs leave.
    pub(super) space: Space,
    /// Bytes of all outputs, where room is looked for as the merge goes on: that tables take whole
    /// units is kept back for the next stretch only.
    pub(super) as_it_goes: Option<u64>,
}

/// Whether a task fits a device.
pub(super) enum Fit {
    /// It does, at this cost.
    Fits(Cost),
    /// Not beside the merges that run: it has to wait for them.
    Waits,
    /// It needs so much, and there is less.
    Short(Space),
}

/// A merge that runs: what it may need in all, and what it has taken of that.
pub(super) struct Spending {
    pub(super) need: Space,
    pub(super) stretch: Option<Stretch>,
    bytes: AtomicU64,
    files: AtomicU64,
    /// Edits of stretches that were installed.
    edits: AtomicU64,
    /// What was written when the last of them was.
    bytes_at_edit: AtomicU64,
    files_at_edit: AtomicU64,
    /// The inputs of a merge in stretches, and their bytes: it gives back those that nobody holds.
    inputs: BTreeMap<TableUid, (Weak<Table>, u64)>,
    /// Those that have left the tree, whoever holds them, and their bytes.
    gone_files: AtomicU64,
    gone_bytes: AtomicU64,
}

impl Spending {
    /// A merge of tables of `keyspace` that begins.
    pub(super) fn new(cost: Cost, task: &Task, keyspace: &KeyspaceVersion) -> Arc<Self> {
        let uids: BTreeSet<TableUid> =
            cost.stretch.iter().flat_map(|_| task.input_uids()).collect();
        let tables = keyspace.version.tables().filter(|table| uids.contains(&table.meta().uid));
        let input = |table: &Arc<Table>| (Arc::downgrade(table), table.meta().bytes);
        let inputs = tables.map(|table| (table.meta().uid, input(table))).collect();
        Arc::new(Self::of(cost, inputs))
    }

    fn of(Cost { need, stretch }: Cost, inputs: BTreeMap<TableUid, (Weak<Table>, u64)>) -> Self {
        Self {
            need,
            stretch,
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            edits: AtomicU64::new(0),
            bytes_at_edit: AtomicU64::new(0),
            files_at_edit: AtomicU64::new(0),
            inputs,
            gone_files: AtomicU64::new(0),
            gone_bytes: AtomicU64::new(0),
        }
    }

    /// Notes what the merge has cost so far.
    pub(super) fn note(&self, stats: &JobStats) {
        self.bytes.store(stats.bytes_written, Ordering::Relaxed);
        self.files.store(stats.tables_written, Ordering::Relaxed);
    }

    /// Notes that a stretch is installed, with which these left the tree.
    pub(super) fn note_edit(&self, gone: &BTreeSet<TableUid>) {
        self.edits.fetch_add(1, Ordering::Relaxed);
        self.bytes_at_edit.store(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.files_at_edit.store(self.files.load(Ordering::Relaxed), Ordering::Relaxed);
        let bytes = gone.iter().filter_map(|uid| self.inputs.get(uid)).map(|(_, bytes)| bytes);
        self.gone_bytes.fetch_add(bytes.sum(), Ordering::Relaxed);
        self.gone_files.fetch_add(gone.len() as u64, Ordering::Relaxed);
    }

    /// What it has written.
    fn written(&self) -> Space {
        let (bytes, files) =
            (self.bytes.load(Ordering::Relaxed), self.files.load(Ordering::Relaxed));
        let edit = self.stretch.map_or(0, |stretch| stretch.space.versions);
        let versions = self.edits.load(Ordering::Relaxed).saturating_mul(edit);
        // A merge fills one after the other.
        Space { tables: bytes, files, full: files, versions, ..Space::default() }
    }

    /// What a stretch, which takes `space`, has still to write.
    fn rest_of(&self, space: Space) -> Space {
        let since = |now: &AtomicU64, at_edit: &AtomicU64| {
            now.load(Ordering::Relaxed).saturating_sub(at_edit.load(Ordering::Relaxed))
        };
        let files = since(&self.files, &self.files_at_edit);
        let tables = since(&self.bytes, &self.bytes_at_edit);
        space.minus(Space { tables, files, full: files, ..Space::default() })
    }

    /// What writers have to leave to it: what was kept back for it less what it has taken and not
    /// given back; and the next stretch also where somebody who reads has all of the former.
    pub(super) fn owed(&self) -> Space {
        let owed = self.need.minus(self.taken());
        match self.stretch {
            Some(stretch) => owed.max(self.left().min(self.rest_of(stretch.space))),
            None => owed,
        }
    }

    /// What it has taken and not given back: no more than what was kept back for it.
    fn taken(&self) -> Space {
        let gone = self.inputs.values().filter(|(table, _)| table.strong_count() == 0);
        let back = gone.fold(Space::default(), |sum, (_, bytes)| {
            sum.plus(Space { tables: *bytes, files: 1, ..Space::default() })
        });
        self.written().minus(back).min(self.need)
    }

    /// What it may still take. What has left the tree and somebody holds has been taken by that
    /// one.
    pub(super) fn left(&self) -> Space {
        let tables = self.gone_bytes.load(Ordering::Relaxed);
        let files = self.gone_files.load(Ordering::Relaxed);
        let gone = Space { tables, files, ..Space::default() };
        let written = self.written();
        match self.stretch {
            Some(Stretch { space, as_it_goes: Some(all), .. }) => {
                let rest = self.rest_of(space);
                let tables = rest.tables.min(all.saturating_sub(written.tables));
                Space { tables, ..rest }
            }
            _ => self.need.minus(written.minus(gone)),
        }
    }

    /// Whether the merge ends early where what its inputs leave does not suffice for the rest.
    pub(super) fn goes_as_it_can(&self) -> bool {
        self.stretch.is_some_and(|stretch| stretch.as_it_goes.is_some())
    }
}

/// Tables that `bytes` may be cut into: `tables` by their size, and a quarter more because a table
/// may end a fifth before it, to end with one of the level below. An estimate from above.
pub(super) fn tables_of(bytes: u64, table_bytes: u64) -> u64 {
    let tables = bytes.div_ceil(table_bytes.max(1));
    tables.saturating_add(tables / 4).saturating_add(1)
}

/// What a merge that writes `bytes` takes for its tables: where they are made to `fit` units that
/// have room for `table_bytes`, all but the last of them are full, and a few in sixteen are not
/// because of entries that do not fit.
pub(super) fn outputs_of(bytes: u64, table_bytes: u64, fit: bool) -> Space {
    let full = if fit { bytes / table_bytes.max(1) } else { 0 };
    let files = if fit { full + full / 16 + 2 } else { tables_of(bytes, table_bytes) };
    Space { tables: bytes, files, full, ..Space::default() }
}

/// How many times what evenly spread keys would have is kept for an interval of a table. One that
/// has more is written all the same; what the next log segment needs is then short of that.
const UNEVEN_FACTOR: f64 = 2.0;

/// Bytes of the version log that the edit of one flush takes, or of a merge of few tables: a page.
pub(super) const EDIT_BYTES: u64 = 4 << 10;

/// Bytes per table of the tree or of a list in a base of the version log, and per table that an
/// edit adds. An estimate from above for keys of up to 100 bytes.
pub(super) const BASE_BYTES_PER_TABLE: u64 = 400;

/// Bytes per table that an edit removes and appends to a list, or trims: two places of a uid.
pub(super) const EDIT_BYTES_PER_NAME: u64 = 64;

/// Bytes of the version log that a merge takes: its edit, which describes the outputs, removes the
/// inputs and may append each to a list; and the outputs once more, in a base that is written while
/// the old log is there. What it trims is in `Engine::versions_need`.
pub(super) fn edit_bytes(inputs: u64, outputs: u64) -> u64 {
    let added = outputs.saturating_mul(2 * BASE_BYTES_PER_TABLE);
    EDIT_BYTES.saturating_add(inputs.saturating_mul(EDIT_BYTES_PER_NAME)).saturating_add(added)
}

/// What a merge of all tables of a keyspace would write: no compaction of it writes more.
pub(super) fn whole(keyspace: &KeyspaceVersion, cache_bytes: u64) -> Space {
    let runs = keyspace.version.levels().values().flat_map(|level| level.runs());
    let bytes: u64 = runs.map(|(_, run)| run.tables.totals().bytes).sum();
    let options = &keyspace.options;
    let table_bytes = options.table_bytes_beside(cache_bytes);
    let outputs = outputs_of(bytes, table_bytes, options.slot_room().is_some());
    // Once more for outputs that end because they overlap many tables below.
    let files = outputs.files.saturating_mul(2);
    let versions = edit_bytes(keyspace.version.table_count() as u64, files);
    Space { versions, files, ..outputs }
}

/// What a task writes to tables, and its edit; of one that writes none, nothing.
pub(super) fn need_of(shape: &Shape, task: &Task) -> Space {
    match task {
        Task::Merge(merge) => merge_need(shape, merge, None),
        Task::Sentinel(SentinelTask { merge, interval }) => {
            merge_need(shape, merge, Some(interval))
        }
        Task::Move(_) | Task::Rotate(_) => Space::default(),
    }
}

/// Bytes of a table that a merge may write: all, or `within` an interval twice what it would have
/// if keys were spread evenly.
fn bytes_within(table: &TableMeta, within: Option<&Interval>) -> u64 {
    let Some(Interval { from, to }) = within else { return table.bytes };
    let scale = KeyScale::new(&table.smallest, &table.largest);
    let inside = table.bytes as f64 * scale.part_inside(from, to.as_deref());
    ((inside * UNEVEN_FACTOR).ceil() as u64).min(table.bytes)
}

/// What a merge writes: no more than it reads, and its edit.
fn merge_need(shape: &Shape, merge: &MergeTask, within: Option<&Interval>) -> Space {
    let inputs = merge.inputs.iter().map(|slice| {
        let uids: BTreeSet<TableUid> = slice.uids.iter().copied().collect();
        let runs = shape.levels[slice.run.level].runs();
        let tables = runs.flat_map(|(_, run)| run.tables.iter());
        let taken = tables.filter(|(table, ())| uids.contains(&table.uid));
        taken.map(|(table, ())| bytes_within(table, within)).sum::<u64>()
    });
    let bytes = inputs.sum();
    let plan = policy_of(shape.options.compaction).plan(shape, merge);
    let below: u64 = plan.below.iter().map(|table| table.bytes).sum();
    let room = shape.options.slot_room().unwrap_or(plan.table_bytes);
    let outputs = outputs_of(bytes, room, plan.fits);
    let files = outputs.files + below / plan.below_bytes_max.max(1);
    let inputs = merge.inputs.iter().map(|slice| slice.uids.len() as u64).sum();
    // A sentinel masks its inputs, and describes them anew.
    let described = if within.is_some() { files.saturating_add(inputs) } else { files };
    let versions = edit_bytes(inputs, described);
    Space { versions, files, ..outputs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{DataEpoch, KeyspaceId, Level, uid};
    use crate::base::place::Place;
    use crate::compaction::policy::cases::shape_of;
    use crate::compaction::policy::sentinel_task;
    use crate::db::space_checks::EDITS_BYTES;
    use crate::options::CompactionPolicy;
    use crate::storage::FreeAreas;
    use crate::version::edit::{ListChange, VersionEdit};
    use crate::version::shape::{PartKind, RunId};

    /// Bytes of the edit of a merge of `inputs` tables into `outputs`, all of which a list takes
    /// over, and which trims as many. With the largest numbers, and keys of 100 bytes.
    fn bytes_of_merge(inputs: u64, outputs: u64) -> (u64, u64) {
        let run = RunId::filling(Level::LAST, DataEpoch::MAX);
        let mut edit = VersionEdit::default();
        let part = edit.keyspace(KeyspaceId::new(u32::MAX));
        let of = |number: u64| uid(u64::MAX - number);
        for number in 0..inputs {
            part.remove_table_from(Level::LAST, PartKind::Draining, of(number));
            part.lists.push(ListChange::Append {
                run,
                uid: of(number),
                begins_run: true,
                meta: None,
            });
        }
        for number in 0..outputs {
            let meta = TableMeta {
                uid: of(number),
                check_uid: of(number),
                bytes: u64::MAX,
                tail_bytes: u64::MAX,
                tail_checksum: u32::MAX,
                raw_bytes: u64::MAX,
                entries: u64::MAX,
                deletes: u64::MAX,
                blocks: u32::MAX,
                seq_min: u64::MAX,
                seq_max: u64::MAX,
                smallest: vec![1; 100],
                largest: vec![2; 100],
                entry_hash: u64::MAX,
                keyspace: KeyspaceId::new(u32::MAX),
                masks: Vec::new(),
                place: Place::default(),
            };
            part.add_table(Level::LAST, DataEpoch::MAX, Arc::new(meta));
        }
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        let merged = bytes.len() as u64;
        let part = edit.keyspace(KeyspaceId::new(u32::MAX));
        let trims = (0..inputs).map(|number| ListChange::Trim { run, uid: of(number) });
        part.lists.extend(trims);
        bytes.clear();
        edit.encode(&mut bytes);
        (merged, bytes.len() as u64 - merged)
    }

    /// Goal: uses that share the space are counted together, areas by themselves, and tables in
    /// whole units. Method: what is just covered, and one byte less of each.
    #[test]
    fn free_space_is_counted_by_use() {
        let needed = Space { tables: 1000, log: 200, versions: 30, base: 50, files: 4, full: 0 };
        // A base has what is there, four descriptions more, and an edit.
        const BASE: u64 = 50 + 4 * BASE_BYTES_PER_TABLE + EDIT_BYTES;
        let free = |table_bytes, areas: Option<(u64, u64)>, files, table_unit| {
            let areas = areas.map(|(log, versions)| FreeAreas { log, versions });
            let space = FreeSpace { table_bytes, areas, files, table_unit };
            Free { space, ..Free::default() }
        };
        let enough = [
            Free::default(),
            free(Some(1230), None, Some(4), 1),
            free(Some(1000), Some((200, BASE)), None, 1),
            free(Some(1000 + 4 * 511), Some((200, BASE)), None, 512),
        ];
        assert!(enough.into_iter().all(|free| free.covers(needed)));
        // More descriptions than three quarters of the area hold do not come at once.
        let many = Space { files: 1 << 20, tables: 1 << 20, ..needed };
        let area = free(Some(1 << 20), Some((200, 4 * (50 + EDIT_BYTES))), None, 1);
        assert!(area.covers(many));
        let short = [
            (free(Some(1229), None, None, 1), "1230 bytes and"),
            (free(None, None, Some(3), 1), "4 files (inodes) and"),
            (free(Some(999), Some((200, BASE)), None, 1), "1000 bytes of tables and"),
            (free(Some(1 << 20), Some((199, BASE)), None, 1), "200 bytes of the log's area and"),
            (
                free(Some(1 << 20), Some((200, BASE - 1)), None, 1),
                "5746 bytes of the version log's area",
            ),
            (free(Some(999 + 4 * 511), Some((200, BASE)), None, 512), "3044 bytes of tables and"),
        ];
        for (free, part) in short {
            assert!(!free.covers(needed), "{free:?}");
            let refusal = free.refusal(needed, "a merge", "the store");
            assert!(refusal.contains(&format!("a merge may need {part}")), "{refusal}");
            assert!(!refusal.contains("besides"), "{refusal}");
        }
    }

    /// Goal: tables that fill their units are not counted as ones that leave them empty, and of two
    /// needs the one with fewer of these is the larger. Method: sizes about a unit's room.
    #[test]
    fn full_tables_take_their_units() {
        const UNIT: u64 = 4 << 20;
        let room = UNIT - 4096;
        let space = FreeSpace { table_unit: UNIT, ..FreeSpace::UNLIMITED };
        let free = Free { space, ..Free::default() };
        let units = |need: Space| (need.tables + free.rounding(need)).div_ceil(UNIT);
        for (bytes, most) in [(1, 3), (room, 4), (room + 1, 4), (40 * room, 48), (400 * room, 480)]
        {
            let fit = outputs_of(bytes, room, true);
            let least = bytes.div_ceil(room);
            assert!((least..=most).contains(&units(fit)), "{bytes}: {}", units(fit));
            let off = outputs_of(bytes, UNIT, false);
            assert!(units(off) >= 2 * bytes / UNIT, "{bytes}");
            for both in [fit.max(off), off.max(fit)] {
                assert!(units(both) >= units(fit).max(units(off)), "{bytes}");
            }
            // While it writes, what it has still to write falls by no more than a unit a table.
            let files = bytes / room;
            let taken = Space { tables: files * room, files, full: files, ..Space::default() };
            assert!(units(fit.minus(taken.min(fit))) + files >= least, "{bytes}");
        }
    }

    /// Goal: of two needs the one is named that takes less, in whole units. Method: few bytes in
    /// many tables, and more in one.
    #[test]
    fn what_takes_less_is_counted_in_units() {
        let (many, one) = (
            Space { tables: 100, files: 9, ..Space::default() },
            Space { tables: 900, files: 1, ..Space::default() },
        );
        for (table_unit, lesser) in [(1, many), (512, one)] {
            let space = FreeSpace { table_unit, ..FreeSpace::UNLIMITED };
            let free = Free { space, ..Free::default() };
            assert_eq!((free.lesser(many, one), free.lesser(one, many)), (lesser, lesser));
        }
    }

    /// Goal: what a merge in stretches has written of one is not asked for once more, whether it
    /// goes as it comes or not; the next one is. Method: a stretch of 300 bytes in three tables, of
    /// a merge that needs 1000, which frees nothing.
    #[test]
    fn what_a_stretch_has_written_is_not_owed_again() {
        let space = Space { tables: 300, files: 3, ..Space::default() };
        for as_it_goes in [None, Some(1000)] {
            let need = Space { tables: as_it_goes.map_or(1000, |_| 300), files: 9, ..space };
            let stretch = Some(Stretch { bytes: 100, space, as_it_goes });
            let spending = Spending::of(Cost { need, stretch }, BTreeMap::new());
            let note = |bytes_written, tables_written| {
                spending.note(&JobStats { bytes_written, tables_written, ..JobStats::default() });
            };
            let of_next = || {
                let left = spending.left().min(spending.rest_of(space));
                assert!(spending.owed().tables >= left.tables, "{as_it_goes:?}");
                (left.tables, left.files)
            };
            assert_eq!(of_next(), (300, 3));
            note(200, 2);
            assert_eq!(of_next(), (100, 1), "{as_it_goes:?}");
            spending.note_edit(&BTreeSet::new());
            assert_eq!(of_next(), (300, 3), "{as_it_goes:?}");
            if as_it_goes.is_some() {
                note(950, 3);
                assert_eq!(of_next().0, 0, "it is nearly through");
            }
        }
    }

    /// Goal: a sentinel of a small part of large tables asks for room for that part, not for the
    /// tables.
    #[test]
    fn a_sentinel_needs_what_its_interval_has() {
        let tree = "L0 9: 9[a-z]*1000000\n L6 1: 5[a-z]*100000000";
        let shape = shape_of(CompactionPolicy::leveled(), tree);
        let need = |from: &[u8], to: &[u8]| {
            let interval = Interval::new(from, Some(to));
            let task = sentinel_task::build(&shape, interval, DataEpoch::new(10), 2).unwrap();
            need_of(&shape, &task).tables
        };
        // A 25th of 101,000,000, twice.
        assert!((8_080_000..8_200_000).contains(&need(b"c", b"d")), "{}", need(b"c", b"d"));
        assert_eq!(need(b"a", b"zz"), 101_000_000);
    }

    /// Goal: the edit of a merge fits what is kept back for it, however many tables it has. It was
    /// the same for all: too little for a hundred.
    #[test]
    fn edits_take_no_more_than_is_kept_for_them() {
        for (inputs, outputs) in [(1, 1), (2, 10), (100, 100), (1000, 10), (3000, 3000)] {
            let (merge, trims) = bytes_of_merge(inputs, outputs);
            // The other half is for the base.
            let kept = edit_bytes(inputs, outputs) - outputs * BASE_BYTES_PER_TABLE;
            assert!(merge <= kept, "{merge} bytes of {kept} for {inputs} into {outputs} tables");
            let kept = EDIT_BYTES_PER_NAME * inputs;
            assert!(trims <= kept, "{trims} bytes of {kept} to trim {inputs} tables");
        }
        assert!(bytes_of_merge(100, 100).0 > EDITS_BYTES);
    }
}
