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
//! the straddlers: at most one table of each input run, which is freed when it is read to its end.
//! Behind the cut it has written one stretch: [`Stretch::bytes`], and the table that was open then;
//! or where the output run has inputs itself, in which no cut may lie, twice these bytes, and up to
//! the end of one of these inputs and of what lies over it.
//!
//! Not here: when the tree wants a merge (`compaction::policy`), whether there is room
//! (`space_checks`).
//!
//! Invariants: (1) nothing of a job but its cursors pins inputs that have left, and these let go of
//! them before they count as free; (2) tables that somebody else holds count as taken: if they are
//! so many that the next stretch, the next flush and other merges do not fit, the job ends with
//! `NoSpace`, and what it installed stays.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{DataEpoch, Level, TableUid};
use crate::base::key;
use crate::base::sched;
use crate::base::table_meta::TableMeta;
use crate::compaction::execute::{CompactionJob, Finished, Job};
use crate::compaction::policy_of;
use crate::compaction::task::{MergeTask, Reason, Task};
use crate::db::compactions::Reservation;
use crate::db::engine::Engine;
use crate::db::job_table::RETRY_NANOS;
use crate::db::space::{
    BASE_BYTES_PER_TABLE, Cost, EDIT_BYTES, EDIT_BYTES_PER_NAME, Space, Stretch, need_of,
};
use crate::db::space_checks::{Counted, DeviceSpace};
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
    let runs: Vec<(RunId, Vec<&TableMeta>)> = merge
        .inputs
        .iter()
        .map(|slice| {
            let uids: BTreeSet<TableUid> = slice.uids.iter().copied().collect();
            let runs = shape.levels[slice.run.level].runs();
            let tables = runs.flat_map(|(_, run)| run.tables.iter()).map(|(table, ())| &**table);
            (slice.run, tables.filter(|table| uids.contains(&table.uid)).collect())
        })
        .collect();
    let table_bytes = policy_of(shape.options.compaction).plan(shape, merge).table_bytes;
    let bytes = table_bytes.max(whole.tables / STRETCHES_MAX);
    let largest = |tables: &Vec<&TableMeta>| tables.iter().map(|table| table.bytes).max();
    let straddlers: u64 = runs.iter().filter_map(|(_, tables)| largest(tables)).sum();
    let uncut = uncut_bytes(&runs, merge);
    // Where places are few, a table that is small is not ended for the sake of a cut.
    let late = if uncut > 0 { bytes } else { table_bytes };
    let stretch = bytes.saturating_add(late).saturating_add(uncut);
    let tables = stretch.saturating_add(straddlers);
    if tables >= whole.tables {
        return None;
    }
    let count = whole.tables / bytes.max(1) + 1;
    // Each may end a table early, and describes the straddlers anew.
    let straddler = EDIT_BYTES_PER_NAME + 2 * BASE_BYTES_PER_TABLE;
    let edit = EDIT_BYTES.saturating_add(straddler.saturating_mul(runs.len() as u64));
    let versions = whole.versions.saturating_add(edit.saturating_mul(count));
    let files = whole.files.saturating_add(count);
    let need = Space { tables, versions, files, ..Space::default() };
    let of_one = stretch.div_ceil(table_bytes.max(1)).saturating_add(1);
    let space = Space { tables: stretch, versions: edit, files: of_one, ..Space::default() };
    Some(Cost { need, stretch: Some(Stretch { bytes, space }) })
}

/// What a merge in stretches takes that is not picked yet, of `level_0` bytes of level 0 and what
/// lies below them, `all` together, in tables of `table_bytes`. An estimate from above: each table
/// of level 0 is kept to the end, and all of them may lie over one below, which is not cut.
pub(super) fn level_0_in_stretches(level_0: u64, all: u64, table_bytes: u64) -> u64 {
    let bytes = table_bytes.max(all / STRETCHES_MAX);
    // One that is open at the end of a stretch, one below that is kept, and one that is not cut.
    let tables = table_bytes.saturating_mul(3).saturating_add(bytes);
    level_0.saturating_mul(2).saturating_add(tables)
}

/// Most bytes that a merge writes before it comes to a place for a cut: of an input that is in the
/// output run, and what lies over it. An estimate from above.
fn uncut_bytes(runs: &[(RunId, Vec<&TableMeta>)], merge: &MergeTask) -> u64 {
    let of_output = runs.iter().filter(|(run, _)| *run == merge.output);
    let uncut = of_output.flat_map(|(_, tables)| tables).map(|table| {
        let others = runs.iter().filter(|(run, _)| *run != merge.output);
        let over = others.flat_map(|(_, tables)| tables).filter(|other| {
            key::compare(&other.smallest, &table.largest).is_le()
                && key::compare(&table.smallest, &other.largest).is_le()
        });
        over.map(|other| other.bytes).fold(table.bytes, u64::saturating_add)
    });
    uncut.max().unwrap_or(0)
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
        let installed = self.install_outputs(stretch.edit, &stretch.outputs, None);
        let goes_on = installed.and_then(|()| {
            let counters = &self.shared.counters;
            counters.stretches.add(1);
            reserved.spending.note_edit();
            self.give_back(|| job.let_go());
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
        for _ in 0..PATIENCE {
            if self.shortage_of_stretch(reserved).is_none() || self.jobs.is_closed(reserved.tree.id)
            {
                return Ok(());
            }
            // Cursors that go on can do so without it.
            self.shared.call_for_release();
            sched::delay(Duration::from_nanos(RETRY_NANOS / PATIENCE));
            self.give_back(|| ());
        }
        let why = self.shortage_of_stretch(reserved);
        why.map_or(Ok(()), |why| Err(Error::new(ErrorKind::NoSpace, why)))
    }

    /// Why the next stretch does not fit, if it does not.
    fn shortage_of_stretch(&self, reserved: &Reservation) -> Option<String> {
        let spending = &reserved.spending;
        let next = spending.stretch.map_or(Space::default(), |stretch| stretch.space);
        let device = DeviceSpace::default();
        let Counted { beside, free, .. } = self.count(&device);
        let state = self.jobs.state.lock();
        let left = state.spending().iter().map(|merge| match std::ptr::eq(&**merge, &**spending) {
            true => merge.left().max(next),
            false => merge.left(),
        });
        let needed = left.fold(beside, Space::plus);
        let what = "the next stretch of a compaction, whose inputs somebody still reads,";
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
