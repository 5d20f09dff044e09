//! Merges in stretches: which ones, what they need, and how they are installed.
//!
//! A merge whose outputs do not all fit beside its inputs is installed piece by piece, each of
//! which frees the inputs that it has used up (`compaction::execute::stretch`). It is *one* job: it
//! holds its inputs, its footprint and what is kept back for it until it is through, and its
//! outputs are busy as soon as they are in the tree, so that nobody merges with a part of the
//! output run.
//!
//! ```text
//! free space
//!   whole       |======== outputs ========|                 then all inputs leave
//!   stretches   |=a=|.=b=|.=c=|.=d=|.=e=|                   . inputs leave
//!               `----' a stretch, and one table of each input run
//! ```
//!
//! *The bound.* What a merge in stretches takes at any time is what it has written less what has
//! left. Up to a cut it has written no more than it has read, and all that it has read has left but
//! the straddlers: the inputs that lie over the cut, which are freed when they are read to their
//! end. Behind the cut it has written one stretch: [`Stretch::bytes`], and the table that was open
//! then; or where the output run has inputs itself, in which no cut may lie, twice these bytes, and
//! up to the end of one of these inputs and of what lies over it. Of no input run is there more
//! than all of it: a table of level 0 that lies over everything below is a straddler to the end,
//! and counts once. And the output run has no straddler.
//!
//! Not here: when the tree wants a merge (`compaction::policy`), whether there is room
//! (`space_checks`).
//!
//! Invariants: (1) nothing of a job but its cursors pins inputs that have left, and these let go of
//! them before they count as free; (2) tables that somebody else holds count as taken: if they are
//! so many that the next stretch, the next flush and other merges do not fit, the job ends with
//! `NoSpace`, and what it installed stays; (3) a merge that a user asked for and that fits in no
//! other way begins once its next stretch does, without what the rounding of all its outputs to
//! whole units may take in the end: before each stretch it is asked again.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{DataEpoch, Level, TableUid};
use crate::base::key;
use crate::base::sched;
use crate::base::table_meta::TableMeta;
use crate::compaction::execute::{CompactionJob, Finished, Job};
use crate::compaction::policy_of;
use crate::compaction::task::{MergeTask, Reason, RunSlice, Task};
use crate::db::compactions::Reservation;
use crate::db::engine::Engine;
use crate::db::job_table::RETRY_NANOS;
use crate::db::quarantine::PickedFrom;
use crate::db::space::{
    BASE_BYTES_PER_TABLE, Cost, EDIT_BYTES, EDIT_BYTES_PER_NAME, Space, Stretch, need_of,
};
use crate::db::space_checks::{Counted, DeviceSpace};
use crate::options::Options;
use crate::version::edit::VersionEdit;
use crate::version::shape::{RunId, Shape};

/// A merge is cut into so many stretches at most, besides one for each of its outputs. An edit
/// costs two syncs, which is little beside a table of megabytes but much beside a small one; a 64th
/// of the merge is little space beside the tables that have to stay.
const STRETCHES_MAX: u64 = 64;

/// Whether a task of a tree of this shape may be done in stretches. Level 0 is in the order of its
/// sequence numbers, of which inputs and outputs have the same; what nobody asked for has no need
/// of the last space; and a cut would leave a slot half empty where tables are to fill theirs.
pub(super) fn can_be_cut(shape: &Shape, task: &Task) -> bool {
    shape.options.slot_room().is_none()
        && matches!(task, Task::Merge(merge)
            if merge.output.level > Level::ZERO && merge.reason != Reason::Reads)
}

/// How often a merge looks, in [`RETRY_NANOS`], whether there is room for its next stretch.
const PATIENCE: u64 = 10;

/// What a task costs in stretches; `None` if it cannot be cut, or needs no less then.
pub(super) fn cost_in_stretches(shape: &Shape, task: &Task) -> Option<Cost> {
    let Task::Merge(merge) = task else { return None };
    if !can_be_cut(shape, task) {
        return None;
    }
    let merge = &apart(shape, merge);
    let whole = need_of(shape, task);
    let Bound { bytes, stretch, tables } = bound_of(shape, merge, whole);
    let runs = merge.inputs.len() as u64;
    if tables >= whole.tables {
        return None;
    }
    let count = whole.tables / bytes.max(1) + 1;
    // Each may end a table early, and describes the straddlers anew.
    let straddler = EDIT_BYTES_PER_NAME + 2 * BASE_BYTES_PER_TABLE;
    let edit = EDIT_BYTES.saturating_add(straddler.saturating_mul(runs));
    let versions = whole.versions.saturating_add(edit.saturating_mul(count));
    let files = whole.files.saturating_add(count);
    let need = Space { tables, versions, files, ..Space::default() };
    let table_bytes = policy_of(shape.options.compaction).plan(shape, merge).table_bytes;
    let of_one = stretch.div_ceil(table_bytes.max(1)).saturating_add(1);
    let space = Space { tables: stretch, versions: edit, files: of_one, ..Space::default() };
    Some(Cost { need, stretch: Some(Stretch { bytes, space, as_it_goes: None }) })
}

/// What it costs to begin, where room is looked for as it goes on: without the rounding of all
/// outputs to whole units, which inputs most often give back as it is taken; and if over each table
/// of the output run lies about as much as it has. A stretch is a table, if edits for each take
/// less than that saves. Such a merge may end early, with `NoSpace`: what it has done stays, and
/// what it had begun is removed.
pub(super) fn cost_as_it_goes(shape: &Shape, task: &Task) -> Option<Cost> {
    let Cost { need, stretch } = cost_in_stretches(shape, task)?;
    let (Task::Merge(merge), Some(stretch)) = (task, stretch) else { return None };
    let merge = &apart(shape, merge);
    let runs = input_runs(shape, merge);
    let of_output =
        runs.iter().filter(|(run, _)| *run == merge.output).flat_map(|(_, tables)| tables);
    let uncut = of_output.map(|table| table.bytes).max().unwrap_or(0).saturating_mul(2);
    let straddlers = straddlers(&runs, merge.output, TableMeta::visible_bytes);
    let table_bytes = policy_of(shape.options.compaction).plan(shape, merge).table_bytes;
    let whole_bytes = need_of(shape, task).tables;
    let edits = |bytes: u64| stretch.space.versions.saturating_mul(whole_bytes / bytes.max(1) + 1);
    // In slots they have an area of their own.
    let takes = |bytes: u64| {
        let of_edits = if shape.table_unit > 1 { 0 } else { edits(bytes) };
        bytes.saturating_mul(2).saturating_add(of_edits)
    };
    let is_finer = takes(table_bytes) < takes(stretch.bytes);
    let bytes = if is_finer { table_bytes } else { stretch.bytes };
    let versions = need.versions.saturating_sub(edits(stretch.bytes)).saturating_add(edits(bytes));
    let late = if uncut > 0 { bytes } else { table_bytes };
    let next = bytes.saturating_add(late).saturating_add(uncut);
    let files = |bytes: u64| bytes.div_ceil(table_bytes.max(1)) + 1;
    let space =
        Space { tables: next.min(stretch.space.tables), files: files(next), ..stretch.space };
    let tables = space.tables.saturating_add(straddlers);
    let files = space.files + runs.len() as u64;
    let (tables, files) = (tables.min(need.tables), files.min(need.files));
    let need = Space { tables, versions, files, ..need };
    let as_it_goes = Some(whole_bytes);
    Some(Cost { need, stretch: Some(Stretch { bytes, space, as_it_goes }) })
}

/// The inputs of a merge, in key order.
fn input_runs<'a>(shape: &'a Shape, merge: &MergeTask) -> Vec<(RunId, Vec<&'a TableMeta>)> {
    let tables_of = |slice: &RunSlice| {
        let uids: BTreeSet<TableUid> = slice.uids.iter().copied().collect();
        let runs = shape.levels[slice.run.level].runs();
        let tables = runs.flat_map(|(_, run)| run.tables.iter()).map(|(table, ())| &**table);
        (slice.run, tables.filter(|table| uids.contains(&table.uid)).collect())
    };
    merge.inputs.iter().map(tables_of).collect()
}

/// Bytes of tables that a merge in stretches takes.
struct Bound {
    /// A stretch ends at the first place behind so many.
    bytes: u64,
    /// Those that a stretch writes at most.
    stretch: u64,
    /// Those that the merge has taken at any time.
    tables: u64,
}

/// The bound that the module's header derives, of a merge that needs `whole` in one piece.
fn bound_of(shape: &Shape, merge: &MergeTask, whole: Space) -> Bound {
    let runs = input_runs(shape, merge);
    let table_bytes = policy_of(shape.options.compaction).plan(shape, merge).table_bytes;
    let bytes = table_bytes.max(whole.tables / STRETCHES_MAX);
    let Waiting { at_a_cut, uncut } = waiting(&runs, merge);
    // Where places are few, a table that is small is not ended for the sake of a cut.
    let late = if uncut > 0 { bytes } else { table_bytes };
    let part = bytes.saturating_add(late);
    Bound { bytes, stretch: part.saturating_add(uncut), tables: part.saturating_add(at_a_cut) }
}

/// What a merge in stretches takes that is not picked yet, of `level_0` bytes of level 0 and what
/// lies below them, `all` together. An estimate from above: each table of level 0 is kept to the
/// end, and one below, which is not cut, may be larger than meant; where levels have several runs,
/// some come along, and a table of each waits.
pub(super) fn level_0_in_stretches(options: &Options, level_0: u64, all: u64) -> u64 {
    let table_bytes = options.table_bytes;
    let bytes = table_bytes.max(all / STRETCHES_MAX);
    let runs = options.compaction.runs_if_any().map_or(0, |runs| runs.runs_per_level as u64);
    let below = table_bytes.saturating_mul(2 + runs);
    level_0.saturating_add(below).saturating_add(bytes.saturating_mul(2))
}

/// What it costs to begin a merge as it goes of what is flushed next and all that is there, where
/// that is one run: a stretch, and a table of each.
pub(super) fn next_as_it_goes(shape: &Shape) -> Space {
    let Options { table_bytes, write_buffer_bytes, .. } = *shape.options;
    let tables = table_bytes.saturating_mul(3).saturating_add(write_buffer_bytes);
    let files = tables.div_ceil(table_bytes.max(1)) + 3;
    Space { tables, files, ..Space::default() }
}

/// Bytes, as `bytes_of` counts them, of the tables of all runs but the output's that lie over one
/// key, where these are most: no cut has more behind it of what was read in part.
fn straddlers(
    runs: &[(RunId, Vec<&TableMeta>)],
    output: RunId,
    bytes_of: impl Fn(&TableMeta) -> u64,
) -> u64 {
    let tables: Vec<&TableMeta> = runs
        .iter()
        .filter(|(run, _)| *run != output)
        .flat_map(|(_, tables)| tables)
        .copied()
        .collect();
    let by = |key_of: fn(&TableMeta) -> &[u8]| {
        let mut sorted = tables.clone();
        sorted.sort_unstable_by(|a, b| key::compare(key_of(a), key_of(b)));
        sorted
    };
    let mut ended = by(|table| &table.largest).into_iter().peekable();
    let (mut over, mut most) = (0_u64, 0);
    for table in by(|table| &table.smallest) {
        while let Some(gone) =
            ended.next_if(|other| key::compare(&other.largest, &table.smallest).is_lt())
        {
            over -= bytes_of(gone);
        }
        over += bytes_of(table);
        most = most.max(over);
    }
    most
}

/// What waits while a merge in stretches reads on, at most.
struct Waiting {
    /// Bytes that were written and have not left: of straddlers, and where there is no place for a
    /// cut.
    at_a_cut: u64,
    /// Those that are written before there is a place.
    uncut: u64,
}

/// What waits of the inputs `runs` of a merge, whose tables are in key order. An estimate from
/// above: what lies over an input of the output run is taken as written before it ends.
fn waiting<'a>(runs: &'a [(RunId, Vec<&'a TableMeta>)], merge: &MergeTask) -> Waiting {
    let sum =
        |tables: &[&TableMeta]| tables.iter().map(|table| table.bytes).fold(0, u64::saturating_add);
    let largest = |tables: &[&TableMeta]| tables.iter().map(|table| table.bytes).max().unwrap_or(0);
    let is_output = |(run, _): &&(RunId, _)| *run == merge.output;
    let other = |tables: &'a [&'a TableMeta]| (tables, largest(tables), sum(tables));
    let others: Vec<(&[&TableMeta], u64, u64)> =
        runs.iter().filter(|run| !is_output(run)).map(|(_, tables)| other(tables)).collect();
    let straddlers = straddlers(runs, merge.output, |table| table.bytes);
    let mut most = Waiting { at_a_cut: straddlers, uncut: 0 };
    for &table in runs.iter().filter(is_output).flat_map(|(_, tables)| tables) {
        let (mut at_a_cut, mut uncut) = (table.bytes, table.bytes);
        for &(tables, largest, all) in &others {
            let ends_before =
                |other: &&TableMeta| key::compare(&other.largest, &table.smallest).is_lt();
            let begins = |other: &&TableMeta| key::compare(&other.smallest, &table.largest).is_le();
            let over = &tables[tables.partition_point(ends_before)..];
            let over = sum(&over[..over.partition_point(begins)]);
            uncut = uncut.saturating_add(over);
            let waits = largest.saturating_add(over).min(all);
            at_a_cut = at_a_cut.saturating_add(waits);
        }
        most.at_a_cut = most.at_a_cut.max(at_a_cut);
        most.uncut = most.uncut.max(uncut);
    }
    most
}

/// The same merge into a run of its own, if it is one of whole runs into one of them and an epoch
/// is free between theirs: then a cut may lie anywhere. Below a cut the inputs show nothing, so
/// that the outputs may stand in any place among them.
pub(super) fn apart(shape: &Shape, merge: &MergeTask) -> MergeTask {
    let output = merge.output;
    let level = || shape.levels[output.level].runs().filter(|(part, _)| *part == output.part);
    let is_here = |run: RunId| (run.level, run.part) == (output.level, output.part);
    let here = merge.inputs.iter().filter(|slice| is_here(slice.run));
    let tables_of = |epoch: DataEpoch| {
        level().find(|(_, run)| run.epoch == epoch).map_or(0, |(_, run)| run.tables.len())
    };
    let are_whole = here.clone().all(|slice| tables_of(slice.run.epoch) == slice.uids.len());
    let is_among = here.clone().any(|slice| slice.run == output);
    let is_free = |epoch: &DataEpoch| level().all(|(_, run)| run.epoch != *epoch);
    let below = here.filter_map(|slice| slice.run.epoch.previous());
    let epoch = below.filter(is_free).max().filter(|_| are_whole && is_among);
    let output = epoch.map_or(output, |epoch| RunId { epoch, ..output });
    MergeTask { output, ..merge.clone() }
}

/// The tables that an edit of a merge takes out of the tree: what it masks is added again.
fn gone_with(edit: &VersionEdit) -> BTreeSet<TableUid> {
    let parts = || edit.keyspaces.values();
    let removed: BTreeSet<TableUid> =
        parts().flat_map(|part| &part.removed).map(|table| table.uid).collect();
    let added = parts().flat_map(|part| &part.added).map(|table| table.meta.uid).collect();
    &removed - &added
}

impl Engine {
    /// Installs a stretch of a merge, and frees what it has used up.
    ///
    /// Locks: jobs; then space, jobs.
    ///
    /// # Errors
    /// Those of installing; `NoSpace` if there is no room for the next stretch. The job has ended
    /// then.
    pub(super) fn install_stretch(
        &self,
        reserved: &mut Reservation,
        job: &mut CompactionJob,
        stretch: Finished,
    ) -> Result<()> {
        // Before they can be seen.
        let uids = stretch.outputs.iter().map(|output| output.uid);
        self.jobs.state.lock().take_outputs(reserved.tree.id, uids.clone());
        reserved.outputs.extend(uids);
        let gone = gone_with(&stretch.edit);
        let installed = self.install_outputs(stretch.edit, &stretch.outputs, None);
        let goes_on = installed.and_then(|()| {
            let counters = &self.shared.counters;
            counters.stretches.add(1);
            self.give_back(|| {
                reserved.spending.note_edit(&gone);
                job.let_go();
            });
            // If the next one is refused, it is refused by what this one left.
            let root = self.set.current();
            if let Some(keyspace) = root.keyspaces.get(reserved.tree.id) {
                reserved.from = PickedFrom::of(keyspace);
            }
            self.update_pressure_of(&reserved.tree);
            self.shared.announce_progress();
            self.check_room_for_stretch(reserved)
        });
        goes_on.inspect_err(|_| job.abandon())
    }

    /// Lets go of used up inputs, which then count as free and no longer as taken.
    ///
    /// Locks: space.
    pub(super) fn give_back(&self, let_go: impl FnOnce()) {
        let _space = self.jobs.space_lock.lock();
        let_go();
        self.reclaim();
    }

    /// That the next stretch of a merge fits beside the next flush and what other merges have still
    /// to write. Who reads may hold what has left for a moment more: it is waited for.
    fn check_room_for_stretch(&self, reserved: &Reservation) -> Result<()> {
        let shortage = || self.shortage_of_stretch(reserved.spending.goes_as_it_can());
        for _ in 0..PATIENCE {
            if shortage().is_none() || self.jobs.is_closed(reserved.tree.id) {
                return Ok(());
            }
            // Cursors that go on can do so without it.
            self.shared.call_for_release();
            sched::delay(Duration::from_nanos(RETRY_NANOS / PATIENCE));
            self.give_back(|| ());
        }
        shortage().map_or(Ok(()), |why| Err(Error::new(ErrorKind::NoSpace, why)))
    }

    /// Why the next stretch does not fit, if it does not.
    fn shortage_of_stretch(&self, as_it_goes: bool) -> Option<String> {
        let device = DeviceSpace::default();
        let Counted { beside, free, .. } = self.count(&device);
        let state = self.jobs.state.lock();
        let left = state.spending().iter().map(|merge| merge.left());
        let needed = left.fold(beside, Space::plus);
        let what = match as_it_goes {
            true => "the next stretch of a compaction, whose inputs have left too little,",
            false => "the next stretch of a compaction, whose inputs somebody still reads,",
        };
        (!free.covers(needed)).then(|| free.refusal(needed, what, &self.path))
    }

    /// Counts a merge whose last edit was installed.
    pub(super) fn count_stretches(&self, reserved: &Reservation) {
        if reserved.spending.stretch.is_some() {
            self.shared.counters.compactions_in_stretches.add(1);
            self.shared.counters.stretches.add(1);
        }
    }
}

#[cfg(test)]
mod tests;
