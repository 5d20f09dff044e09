//! Jobs: one flush or one compaction, executed in bounded steps, ending in one edit.
//!
//! The executor makes no decisions: the policy chooses inputs and cuts (`task`, `policy`), the
//! compaction iterator drops entries (`merge::Retain`); a job writes outputs and counts. Not here:
//! scheduling (`db`), applying the edit (`version::set`), freeing the inputs (the reclaimer).
//!
//! ```text
//! flush:  memtable -> Retain(keep deletes) -> Outputs -> edit: add tables
//! merge:  runs -> MergingCursor -> Retain(base test) -> Outputs -> edit: remove, add
//!         in stretches: the same, and an edit after each of them (`stretch`)
//! move:   no job: `move_edit` is the edit
//! rotate: no job: `rotate_edit` is the edit
//! ```
//!
//! Invariants: (1) the conservation law: entries read = entries in the inputs' descriptions, and
//! entries read = written + shadowed + deletes dropped, each by count and by sum of entry hashes;
//! the written entries are hashed from the encoded blocks. A job that breaks it fails with
//! `Corruption`. (2) A job that fails or is abandoned removes every table it wrote that is in no
//! edit of its. (3) After `Done` the tables belong to the edit: its caller may remove them only if
//! the edit cannot have become durable (bug 32). (4) A delete is dropped only where no table
//! outside the inputs can hold an older entry of its key (H9).
//!
//! Source: LevelDB `DoCompactionWork`; the conservation law is ARCHITECTURE §3 (bug 39).

use std::sync::Arc;

use crate::base::clock;
use crate::base::error::{Error, Result};
use crate::base::ids::{KeyspaceId, TableUid};
use crate::base::memory::Accountant;
use crate::base::table_meta::TableMeta;
use crate::cache::BlockCache;
use crate::compaction::task::{CursorMove, MoveTask, PartName, RotateTask};
use crate::merge::{RetainCounts, Tally};
use crate::storage::Storage;
use crate::table::{Table, TableMemory};
use crate::version::edit::{AddedTable, Rotation, VersionEdit};
use crate::version::run::Version;
use crate::version::shape::{PartKind, RunId};

mod flush;
mod handoff;
mod input;
mod merge;
mod odd_chunk;
mod outputs;
mod stats;
mod stretch;
#[cfg(test)]
mod tests;

pub(crate) use flush::{FlushJob, FlushSpec};
pub(crate) use input::entries_of;
pub(crate) use merge::{CompactionJob, MergeSpec};
pub(crate) use stats::JobStats;

/// Bytes of keys and values that one step writes: some milliseconds of work, so that a worker can
/// switch to a more urgent job, or a simulation to another actor, between two steps.
const STEP_BYTES: u64 = 1 << 20;

/// Draws the uid of a new table, never the same one twice; fails if no more can be recorded.
pub(crate) type NewUid = Arc<dyn Fn() -> Result<TableUid> + Send + Sync>;

/// The dependencies that all jobs of a store share.
#[derive(Clone)]
pub(crate) struct JobContext {
    /// Where tables are written.
    pub(crate) storage: Arc<dyn Storage>,
    /// The cache that output blocks are handed over to.
    pub(crate) cache: Option<Arc<BlockCache>>,
    /// Bytes of the entries of all tables of the store, where nothing below the cache has them.
    pub(crate) contents_bytes: Option<u64>,
    /// Charged for the memory of open tables and of the jobs themselves.
    pub(crate) accountant: Option<Arc<Accountant>>,
    /// The store's seed of the key hashes in filters.
    pub(crate) hash_seed: u64,
    /// Whether every output is read back and compared with its description.
    pub(crate) verify_outputs: bool,
    /// Most bytes of one read of a merge; `None`: by the memory budget.
    pub(crate) merge_read_bytes: Option<u64>,
    /// Whether flushes hand blocks over to the cache, as merges do.
    pub(crate) hand_over_flushes: bool,
    /// The source of uids.
    pub(crate) new_uid: NewUid,
    /// Called with the uid of an obsolete output whose removal failed, for a later retry.
    pub(crate) note_orphan: Arc<dyn Fn(TableUid) + Send + Sync>,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The job needs more steps.
    Continue,
    /// The job is finished, or a stretch of it.
    Done(Box<Finished>),
}

/// The results of a finished job, or of a stretch of one.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The edit of the keyspace's tree, to be applied unchanged (for a flush, `db` adds the log
    /// position from which replay starts).
    pub(crate) edit: VersionEdit,
    /// The tables written, in key order.
    pub(crate) outputs: Vec<Arc<TableMeta>>,
    /// Its counters.
    pub(crate) stats: JobStats,
    /// These are of a stretch: the job needs more steps. Before the next one the edit has to be
    /// applied, or the job abandoned.
    pub(crate) goes_on: bool,
}

impl Progress {
    /// `self` with the time of all steps in the stats.
    fn with_nanos(mut self, nanos: u64) -> Self {
        if let Self::Done(finished) = &mut self {
            finished.stats.nanos = nanos;
        }
        self
    }
}

/// A flush or a compaction.
pub(crate) trait Job: Send {
    /// Runs one step without counting its time.
    ///
    /// # Errors
    /// As [`step`](Self::step), but the outputs stay.
    fn advance(&mut self) -> Result<Progress>;
    /// Ends the job and removes its outputs.
    fn abandon(&mut self);
    /// Its counters so far.
    fn stats(&mut self) -> &mut JobStats;

    /// Runs one step, of some milliseconds.
    ///
    /// # Errors
    /// The inputs', the device's, or `Corruption` if entries were lost or changed. The outputs are
    /// then removed, the tree is as its last edit left it, and the job has ended.
    fn step(&mut self) -> Result<Progress> {
        let begin = clock::now_nanos();
        let result = self.advance();
        let stats = self.stats();
        stats.nanos += clock::now_nanos().saturating_sub(begin);
        let nanos = stats.nanos;
        if result.is_err() {
            self.abandon();
        }
        result.map(|progress| progress.with_nanos(nanos))
    }
}

/// Runs a job to completion. Requires: it is not cut into stretches.
///
/// # Errors
/// The failing step's.
pub(crate) fn run(job: &mut dyn Job) -> Result<Finished> {
    loop {
        if let Progress::Done(finished) = job.step()? {
            assert!(!finished.goes_on, "a job in stretches is run as if it were in one piece");
            return Ok(*finished);
        }
    }
}

/// The edit of a move: the tables change their part or level, no byte is rewritten.
///
/// # Errors
/// `Conflict` if a table is not in the task's run.
pub(crate) fn move_edit(
    keyspace: KeyspaceId,
    version: &Version,
    task: &MoveTask,
) -> Result<VersionEdit> {
    assert!(task.output != task.input.run, "a move from {:?} to itself", task.output);
    let tables = input::tables_of(version, &task.input)?;
    let mut edit = VersionEdit::default();
    let changes = edit.keyspace(keyspace);
    for (meta, _) in tables {
        changes.remove_table_from(task.input.run.level, task.input.run.part, meta.uid);
        changes.added.push(AddedTable { run: task.output, meta });
    }
    set_cursor(&mut edit, keyspace, task.cursor.as_ref());
    Ok(edit)
}

/// The edit of a rotation.
///
/// # Errors
/// `Conflict` if a table is not in the task's run.
pub(crate) fn rotate_edit(
    keyspace: KeyspaceId,
    version: &Version,
    task: &RotateTask,
) -> Result<VersionEdit> {
    let mut rotation = Rotation::default();
    for slice in &task.inputs {
        let RunId { level, part, .. } = slice.run;
        assert!(
            level == task.level && part == PartKind::Filling,
            "a rotation of level {} takes tables of {}",
            task.level,
            PartName(level, part)
        );
        for (meta, _) in input::tables_of(version, slice)? {
            rotation.bytes += meta.visible_bytes();
            rotation.entries += meta.visible().entries;
        }
    }
    let mut edit = VersionEdit::default();
    edit.keyspace(keyspace).rotate(task.level, rotation);
    Ok(edit)
}

fn set_cursor(edit: &mut VersionEdit, keyspace: KeyspaceId, cursor: Option<&CursorMove>) {
    if let Some(CursorMove { level, key }) = cursor {
        edit.keyspace(keyspace).set_cursor(*level, Some(key.clone()));
    }
}

/// Entries of a set of tables that no mask hides, from their descriptions.
fn tally_of<'a>(tables: impl IntoIterator<Item = &'a TableMeta>) -> Tally {
    tables.into_iter().fold(Tally::default(), |sum, table| {
        let visible = table.visible();
        sum.plus(Tally { entries: visible.entries, hash: visible.hash })
    })
}

/// Checks invariant (1). `promised` is the tally in the inputs' descriptions, if there are any.
fn check_conservation(
    job: &str,
    promised: Option<Tally>,
    counts: &RetainCounts,
    written: Tally,
) -> Result<()> {
    let broken = |what: &str, expected: Tally, got: Tally| {
        Error::corruption_found(
            job,
            format_args!(
                "entries were lost or changed {what} ({} expected with hash {:016x}, {} found with \
                 hash {:016x}); it was not installed",
                expected.entries, expected.hash, got.entries, got.hash
            ),
        )
    };
    if let Some(promised) = promised
        && promised != counts.read
    {
        return Err(broken("while the inputs were read", promised, counts.read));
    }
    let accounted = written.plus(counts.dropped());
    if accounted != counts.read {
        return Err(broken("between inputs and outputs", counts.read, accounted));
    }
    Ok(())
}

/// Reads back a table just written and compares it with its description.
fn verify(context: &JobContext, meta: &TableMeta) -> Result<()> {
    let storage = Arc::clone(&context.storage);
    let memory = TableMemory { accountant: context.accountant.clone(), ..TableMemory::default() };
    let table = Table::new(storage, meta.clone(), context.hash_seed, memory);
    table.verify().map(|_| ())
}
