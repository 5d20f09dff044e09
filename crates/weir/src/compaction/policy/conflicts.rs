//! What running jobs hold, and what may therefore not be picked beside them.
//!
//! A job holds its inputs, and the keys and runs that its outputs may occupy: its *footprint*
//! ([`JobFootprint`]), which is wider than its inputs. Not here: why a task is picked (the
//! policies).
//!
//! Invariants: (1) the tasks of one [`Picks`] share no table with each other nor with a job;
//! (2) where a policy asks [`Picks::conflicts`], no two of them conflict either. A job that builds
//! a sentinel takes no table of the runs that its range passes between tables, so that also those
//! who merge whole idle runs have to ask.

use std::collections::BTreeSet;

use crate::base::ids::{Level, TableUid};
use crate::base::interval::Interval;
use crate::compaction::policy::geometry::{Chosen, KeyBounds, bounds_over, placed, run_of};
use crate::compaction::policy::odd_chunk;
use crate::compaction::task::{MergeTask, RunSlice, SentinelTask, Task};
use crate::version::shape::{JobFootprint, RunId, Shape};

/// What a task of a shape is to others while it runs. A rotation is nothing to them: it moves no
/// key, and nothing may come to its level meanwhile, wherever it is.
pub(crate) fn running_job(shape: &Shape, task: &Task) -> Option<JobFootprint> {
    let output = task.output()?;
    let slice_bounds = |slice: &RunSlice| {
        let place = run_of(shape, slice)?;
        let (first, last) = (slice.uids.first()?, slice.uids.last()?);
        let mut tables = place.tables().skip_while(|table| table.uid != *first);
        let first = KeyBounds::of(tables.next()?);
        let last = tables.find(|table| table.uid == *last);
        Some(last.map_or(first, |last| first.union(KeyBounds::of(last))))
    };
    let bounds = task.inputs().iter().filter_map(slice_bounds).reduce(KeyBounds::union)?;
    // An output of another job may lie over a gap of what a sentinel claims.
    let bounds = match task {
        Task::Sentinel(SentinelTask { interval: Interval { from, to }, .. }) => {
            let largest = to.as_deref().unwrap_or(bounds.largest).max(from);
            bounds.union(KeyBounds { smallest: from, largest })
        }
        _ => bounds,
    };
    let runs = || task.inputs().iter().map(|slice| slice.run);
    let keeps = odd_chunk::run_of(shape, runs(), output);
    let job = JobFootprint { keeps, ..job_of(bounds, runs(), output) };
    // A claim hides all that is older, so nothing may come below it meanwhile, also where the run
    // of its oldest input or a deeper one has a gap.
    let oldest = if matches!(task, Task::Sentinel(_)) { RunId::OLDEST } else { job.oldest };
    Some(JobFootprint { oldest, ..job })
}

/// A job with inputs in `bounds`, of these runs.
fn job_of(
    bounds: KeyBounds<'_>,
    inputs: impl Iterator<Item = RunId>,
    output: RunId,
) -> JobFootprint {
    let (newest, oldest) =
        inputs.fold((output, output), |(newest, oldest), run| (newest.min(run), oldest.max(run)));
    let (smallest, largest) = (bounds.smallest.to_vec(), bounds.largest.to_vec());
    JobFootprint { smallest, largest, newest, oldest, output, keeps: None }
}

/// Whether a job has taken a table of this tree.
pub(super) fn any_taken(shape: &Shape) -> bool {
    let taken = |uid: TableUid| shape.busy.contains(&uid) && !shape.damaged.contains(&uid);
    let mut runs = Level::all().flat_map(|level| placed(shape, level));
    !shape.busy.is_empty() && runs.any(|place| place.tables().any(|table| taken(table.uid)))
}

/// The tasks of one pick, and what they and the running jobs hold.
pub(super) struct Picks<'a> {
    shape: &'a Shape,
    /// Tables that no job may read: inputs of jobs, and damaged ones.
    busy: BTreeSet<TableUid>,
    /// The running jobs and those of this pick.
    jobs: Vec<JobFootprint>,
    tasks: Vec<Task>,
}

impl<'a> Picks<'a> {
    /// No task, beside what runs.
    pub(super) fn new(shape: &'a Shape) -> Self {
        Self { shape, busy: shape.busy.clone(), jobs: shape.jobs.clone(), tasks: Vec::new() }
    }

    /// The tables that no job may read.
    pub(super) fn busy(&self) -> &BTreeSet<TableUid> {
        &self.busy
    }

    /// Whether a job, or a task of this pick, has this table as input. Damaged tables have no job.
    pub(super) fn is_taken(&self, uid: TableUid) -> bool {
        self.busy.contains(&uid) && !self.shape.damaged.contains(&uid)
    }

    /// Whether one of these tables may not be read.
    pub(super) fn any_busy(&self, chosen: &[Chosen<'_>]) -> bool {
        let mut tables = chosen.iter().flat_map(Chosen::tables);
        !self.busy.is_empty() && tables.any(|table| self.busy.contains(&table.uid))
    }

    /// Whether a merge of these tables would conflict with a job.
    pub(super) fn conflicts(&self, chosen: &[Chosen<'_>], output: RunId) -> bool {
        let bounds = bounds_over(chosen).filter(|_| !self.jobs.is_empty());
        let Some(bounds) = bounds else { return false };
        let runs = || chosen.iter().map(|chosen| chosen.place.id());
        let keeps = odd_chunk::run_of(self.shape, runs(), output);
        let job = JobFootprint { keeps, ..job_of(bounds, runs(), output) };
        self.jobs.iter().any(|other| other.conflicts_with(&job))
    }

    /// Adds a task.
    pub(super) fn accept(&mut self, task: Task) {
        self.busy.extend(task.input_uids());
        self.jobs.extend(running_job(self.shape, &task));
        self.tasks.push(task);
    }

    /// How many tasks there are.
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there is no task.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The tasks; `spare` if there are none and nothing runs.
    pub(super) fn finish(mut self, spare: impl FnOnce() -> Option<MergeTask>) -> Vec<Task> {
        if self.tasks.is_empty() && self.busy.is_empty() {
            self.tasks.extend(spare().map(Task::Merge));
        }
        self.tasks
    }
}
