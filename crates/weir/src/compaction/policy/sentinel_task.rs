//! The task that builds a sentinel: which tables it takes, and where it goes.
//!
//! Not here: which interval is worth one (`compaction::sentinel`), whose tables it takes along when
//! it sinks (every policy, by `geometry`).
//!
//! Invariants: (1) the sentinel is older than every memtable and than what is flushed from now on,
//! and newer than all that it is made of (H22): its epoch lies below those of the memtables, and
//! its inputs are all tables of older runs that overlap the interval (H21, H25); (2) none of them
//! is another job's, and no job writes where one of them passes, so nothing crosses it (H26); (3)
//! sentinels of one generation share a run, if their intervals have no common key.

use crate::base::ids::{DataEpoch, Level};
use crate::base::interval::Interval;
use crate::compaction::policy::conflicts::running_job;
use crate::compaction::policy::geometry::{Chosen, KeyBounds, Placed, filling_runs, placed};
use crate::compaction::task::{MergeTask, Reason, SentinelTask, Task};
use crate::version::shape::{RunId, RunKind, Shape};

/// The task that builds a sentinel of `interval` below all memtables, whose epochs are above
/// `epoch`, which no run of data has. `None` if fewer than `runs_min` runs have something of the
/// interval, or what is needed is taken.
pub(crate) fn build(
    shape: &Shape,
    interval: Interval,
    epoch: DataEpoch,
    runs_min: usize,
) -> Option<Task> {
    if interval.is_empty() {
        return None;
    }
    let output = output(shape, &interval, epoch)?;
    let (lower, upper) = interval.bounds();
    let runs = Level::all().flat_map(|level| placed(shape, level));
    let older = runs.filter(|place| place.id() > output);
    let inputs: Vec<Chosen<'_>> = older
        .map(|place: Placed<'_>| place.in_range(lower, upper))
        .filter(|chosen| !chosen.span.is_empty())
        .collect();
    let is_busy = |chosen: &Chosen<'_>| chosen.tables().any(|t| shape.busy.contains(&t.uid));
    if inputs.len() < runs_min.max(1) || inputs.iter().any(is_busy) {
        return None;
    }
    let interval = with_end(interval, &inputs);
    let inputs = inputs.iter().map(Chosen::slice).collect();
    let merge = MergeTask { inputs, output, cursor: None, reason: Reason::Reads };
    let task = Task::Sentinel(SentinelTask { merge, interval });
    let job = running_job(shape, &task)?;
    let crosses = shape.jobs.iter().any(|other| other.conflicts_with(&job));
    (!crosses).then_some(task)
}

/// The interval with an end: no older run has a key behind those of the inputs, so nothing is lost,
/// and what is written there meanwhile does not meet the claim.
fn with_end(interval: Interval, inputs: &[Chosen<'_>]) -> Interval {
    let bounds = inputs.iter().filter_map(Chosen::bounds).reduce(KeyBounds::union);
    match (&interval.to, bounds) {
        (None, Some(bounds)) if bounds.largest >= &interval.from[..] => {
            Interval::closed(&interval.from, bounds.largest)
        }
        _ => interval,
    }
}

/// The run of the sentinel: the newest of those below the memtables, if it is one of sentinels that
/// has nothing of the interval, or a new one.
fn output(shape: &Shape, interval: &Interval, epoch: DataEpoch) -> Option<RunId> {
    let newest = filling_runs(shape, Level::ZERO).iter().find(|run| run.epoch <= epoch);
    let (lower, upper) = interval.bounds();
    match newest {
        Some(run) if run.kind == RunKind::Sentinel => {
            let is_apart = run.tables.overlapping(lower, upper).is_empty()
                && !run.claims.iter().any(|claims| claims.overlap_with(interval));
            match is_apart {
                true => Some(RunId::filling(Level::ZERO, run.epoch)),
                false if run.epoch < epoch => Some(RunId::filling(Level::ZERO, epoch)),
                false => None,
            }
        }
        Some(run) if run.epoch == epoch => None,
        _ => Some(RunId::filling(Level::ZERO, epoch)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::policy::cases::shape_of;
    use crate::options::{CompactionPolicy, LeveledOptions};
    use crate::version::shape::JobFootprint;

    /// Goal: while a sentinel is built, nothing is written below its claim, in any run (H26).
    /// Method: jobs beside it whose outputs may span the interval, into the run of its oldest input
    /// and into deeper ones; none of them has an input in the interval.
    #[test]
    fn nothing_comes_below_a_claim() {
        let policy = CompactionPolicy::Leveled(LeveledOptions::default());
        let shape = shape_of(policy, "L0 9: 11[a-b] 12[x-z]\nL5 3: 5[c-d]\nL6 1: 7[k-l]");
        let interval = Interval::closed(b"c", b"d");
        let run = |level, epoch| RunId::filling(Level::new(level).unwrap(), DataEpoch::new(epoch));
        let beside = |output| {
            let (smallest, largest) = (b"a".to_vec(), b"z".to_vec());
            let (newest, oldest) = (run(0, 9), output);
            JobFootprint { smallest, largest, newest, oldest, output, keeps: None }
        };
        let builds = |jobs: Vec<JobFootprint>| {
            let shape = Shape { jobs, ..shape.clone() };
            build(&shape, interval.clone(), DataEpoch::new(10), 1).is_some()
        };
        assert!(builds(vec![]));
        for output in [run(4, 9), run(5, 3), run(6, 1)] {
            assert!(!builds(vec![beside(output)]), "{output:?}");
        }
        let apart = JobFootprint { smallest: b"x".to_vec(), ..beside(run(5, 3)) };
        assert!(builds(vec![apart]));
    }
}
