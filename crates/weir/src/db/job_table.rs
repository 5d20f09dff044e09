//! The job table: running jobs, the tables they hold, and what is to be done next.
//!
//! Data with its rules, no work: `scheduler` decides which job runs, `flushes` and `compactions`
//! run it.
//!
//! Invariant: a table is input of one job at most, or an output of one that goes on (`busy`), and
//! no two jobs of a keyspace conflict (`compacting`; `JobFootprint::conflicts_with`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::{DataEpoch, KeyspaceId, Lsn, TableUid};
use crate::base::key::Seq;
use crate::base::sched::Mutex;
use crate::compaction::task::Task;
use crate::db::quarantine::Quarantine;
use crate::db::rests::Watch;
use crate::db::retries::{Retries, Work};
use crate::db::space::Spending;
use crate::state::shared::Shared;
use crate::version::shape::JobFootprint;

/// How long jobs rest after one found no space, before they try again.
pub(super) const RETRY_NANOS: u64 = 200_000_000;

/// The job table, and what is weighed beside it.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(super) state: Mutex<JobTable>,
    /// Held while a merge gives back what it took of the device and stops to count as running, and
    /// while that is weighed against what is free. Taken before `state`.
    pub(super) space_lock: Mutex<()>,
    /// How many keyspaces have stalled writers. An estimate from above.
    pub(super) stalled: AtomicUsize,
    /// For experiments.
    #[cfg(feature = "sim")]
    pub(super) pause_of_work: crate::db::pause::Pause,
    /// How often deciders were shown a tree.
    #[cfg(test)]
    pub(super) shapes: AtomicUsize,
}

/// Running jobs, the tables they hold, and what is to be done next.
#[derive(Default)]
pub(super) struct JobTable {
    stopping: bool,
    /// Inputs of running compactions, and what those in stretches have installed.
    busy: BTreeSet<TableUid>,
    /// What running compactions may do where: one each, but for rotations.
    compacting: Vec<(KeyspaceId, JobFootprint)>,
    /// Keyspaces whose oldest memtable is being flushed.
    flushing: BTreeSet<KeyspaceId>,
    /// The oldest frozen memtables of keyspaces, by where they begin in the log and their epoch.
    /// Some may be flushed already.
    pub(super) frozen: BTreeSet<(Lsn, DataEpoch, KeyspaceId)>,
    /// What running compactions take of the device.
    spending: Vec<Arc<Spending>>,
    /// Running jobs per keyspace.
    running: BTreeMap<KeyspaceId, usize>,
    /// Keyspaces that are being dropped: no new jobs.
    closed: BTreeSet<KeyspaceId>,
    /// The keyspace whose compaction was reserved last.
    pub(super) last_compacted: Option<KeyspaceId>,
    /// Keyspaces that have changed since nothing was due in them.
    pub(super) to_look_at: BTreeSet<KeyspaceId>,
    /// The oldest snapshot when they were looked at.
    pub(super) oldest_snapshot: Option<Seq>,
    /// What compaction could not do.
    pub(super) quarantine: Quarantine,
    /// Why a compaction that is due does not start. Looked at again every [`RETRY_NANOS`].
    pub(super) short_of_space: Option<Error>,
    /// How often that was found.
    pub(super) shortages: u64,
    /// Why the next log segment is not prepared.
    pub(super) segment_refused: Option<Error>,
    /// Keyspaces with buffer lists, and when those are looked at next.
    pub(super) lists: BTreeMap<KeyspaceId, ListLook>,
    /// When the memory that all lists take is looked at, if one has changed since it was last.
    pub(super) list_memory_at: Option<u64>,
    /// Keyspaces that are watched for rests of their writers.
    pub(super) rests: BTreeMap<KeyspaceId, Watch>,
    /// Keyspaces that count where they are read, and when that is looked at next.
    pub(super) heat_looks: BTreeMap<KeyspaceId, HeatLook>,
    /// Running compactions that began because writers rest: nobody waits for them.
    pub(super) merges_at_rest: usize,
    /// What failed and is tried again.
    pub(super) retries: Retries,
    /// A job found no space, or the store is poisoned: jobs rest until then.
    pub(super) rest_until: Option<u64>,
}

/// A look at the lists of a keyspace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListLook {
    /// When it begins, or goes on.
    pub(super) at: u64,
    /// How many tables it has come past. Where lists change meanwhile it may meet some twice, or
    /// pass some by until the next one.
    pub(super) done: usize,
}

/// A look at the heat of a keyspace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeatLook {
    /// When it is due.
    pub(super) at: u64,
    /// How often in a row a range that was to be moved was not.
    pub(super) failures: u32,
}

/// What running jobs hold of a keyspace.
#[derive(Clone, Default)]
pub(super) struct Reserved {
    /// Tables that no new job may take, of any keyspace, and those of them that are damaged.
    pub(super) busy: BTreeSet<TableUid>,
    pub(super) damaged: BTreeSet<TableUid>,
    pub(super) jobs: Vec<JobFootprint>,
}

impl Jobs {
    /// Whether no flush and no compaction may begin: only ever in an experiment.
    pub(super) fn paused(&self) -> bool {
        #[cfg(feature = "sim")]
        return self.pause_of_work.is_on();
        #[cfg(not(feature = "sim"))]
        false
    }

    /// Lets no new job start, and running ones give up at their next step.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
    }

    pub(super) fn stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Lets no new job of a keyspace start, and waits for the running ones.
    pub(crate) fn close_keyspace(&self, shared: &Shared, id: KeyspaceId) {
        {
            let mut state = self.state.lock();
            let fresh = state.closed.insert(id);
            assert!(fresh, "keyspace {id} is dropped twice");
        }
        shared.wait_until(|| (!self.state.lock().running.contains_key(&id)).then_some(()));
        // After the jobs that ran: they may have been set back while they were waited for.
        let mut state = self.state.lock();
        let is_idle =
            !state.flushing.contains(&id) && state.compacting.iter().all(|(of, _)| *of != id);
        assert!(is_idle && !state.has_running_job(id), "keyspace {id} ends with jobs running");
        state.quarantine.forget(id);
        state.retries.forget(id);
    }

    /// Waits until no job runs. Requires: stopped.
    pub(crate) fn wait_for_running(&self, shared: &Shared) {
        shared.wait_until(|| {
            let state = self.state.lock();
            assert!(state.stopping, "jobs are waited for that may begin at any time");
            state.running.is_empty().then(|| state.assert_idle())
        });
    }

    /// Takes [`close_keyspace`](Self::close_keyspace) back.
    pub(crate) fn reopen_keyspace(&self, id: KeyspaceId) {
        let was_closed = self.state.lock().closed.remove(&id);
        assert!(was_closed, "keyspace {id} is reopened, not closed");
    }

    /// Has keyspaces looked at again for compactions that are due.
    pub(super) fn look_at(&self, ids: BTreeSet<KeyspaceId>) {
        self.state.lock().to_look_at.extend(ids);
    }

    pub(super) fn is_closed(&self, id: KeyspaceId) -> bool {
        let state = self.state.lock();
        state.stopping || state.closed.contains(&id)
    }

    /// Why compaction of some keyspace does not go on.
    pub(crate) fn first_quarantined(&self) -> Option<Error> {
        self.state.lock().quarantine.first_error()
    }

    /// Why a compaction that is due does not start, or no log segment is prepared.
    pub(crate) fn short_of_space(&self) -> Option<Error> {
        let state = self.state.lock();
        state.short_of_space.clone().or_else(|| state.segment_refused.clone())
    }

    /// Why some work waits to be tried again.
    pub(crate) fn first_retry(&self) -> Option<Error> {
        self.state.lock().retries.first_error()
    }

    /// Why the flush of a keyspace has failed again and again.
    pub(super) fn lasting_flush_error(&self, id: KeyspaceId) -> Option<Error> {
        self.state.lock().retries.lasting(Work::Flush(id))
    }

    /// How much work waits to be tried again.
    pub(crate) fn retries_waiting(&self) -> usize {
        self.state.lock().retries.len()
    }

    /// What is wrong with the tables in quarantine.
    pub(crate) fn damages(&self) -> Vec<Error> {
        self.state.lock().quarantine.damages()
    }

    /// How many tables running compactions have taken.
    pub(crate) fn busy_tables(&self) -> usize {
        self.state.lock().busy.len()
    }

    /// Ends the quarantine of a table that was found sound; whether it was in quarantine.
    pub(crate) fn release_table(&self, uid: TableUid) -> bool {
        self.state.lock().quarantine.release(uid)
    }

    /// How long a thread waits at most that found nothing to do when it looked, at `looked_at`:
    /// until the first rest ends that lasted then. It may have ended meanwhile.
    pub(super) fn pause(&self, looked_at: u64) -> Option<Duration> {
        let short = self.short_of_space().is_some();
        let (rest, retry, look) = {
            let state = self.state.lock();
            let rest = state.rest_until.filter(|&until| until > looked_at);
            (rest, state.retries.next(looked_at), state.next_look(looked_at))
        };
        let now = clock::now_nanos();
        let left = |until: u64| Duration::from_nanos(until.saturating_sub(now));
        let short = short.then_some(Duration::from_nanos(RETRY_NANOS));
        [rest.map(left), retry.map(left), look.map(left), short].into_iter().flatten().min()
    }

    /// How long jobs still have to rest.
    pub(super) fn rest(&self) -> Option<Duration> {
        let until = self.state.lock().rest_until?;
        let now = clock::now_nanos();
        (until > now).then(|| Duration::from_nanos(until - now))
    }
}

impl JobTable {
    /// When lists, or writers, are looked at that were not to be at `looked_at`.
    fn next_look(&self, looked_at: u64) -> Option<u64> {
        let rests = self.rests.values().filter_map(Watch::due_at);
        let heat = self.heat_looks.values().map(|look| look.at);
        let looks = self.lists.values().map(|look| look.at).chain(self.list_memory_at).chain(rests);
        let looks = looks.chain(heat);
        looks.filter(|&at| at > looked_at).min()
    }

    /// What no new job of a keyspace may take.
    pub(super) fn reserved(&self, id: KeyspaceId) -> Reserved {
        let damaged = self.quarantine.damaged();
        let busy = self.busy.union(&damaged).copied().collect();
        let jobs = self.compacting.iter().filter(|(of, _)| *of == id).map(|(_, job)| job.clone());
        Reserved { busy, damaged, jobs: jobs.collect() }
    }

    /// The same as if no job ran.
    pub(super) fn reserved_by_damage(&self) -> Reserved {
        let damaged = self.quarantine.damaged();
        Reserved { busy: damaged.clone(), damaged, jobs: Vec::new() }
    }

    /// The keyspaces with a running job.
    pub(super) fn with_jobs(&self) -> impl Iterator<Item = KeyspaceId> {
        self.running.keys().copied()
    }

    /// Reserves the inputs of a task, the keys that it may write as `job`, and what it takes of the
    /// device. Requires: a job of the keyspace has begun.
    pub(super) fn take(
        &mut self,
        id: KeyspaceId,
        task: &Task,
        job: Option<&JobFootprint>,
        spending: &Arc<Spending>,
    ) {
        assert!(
            self.has_running_job(id),
            "inputs are reserved in keyspace {id}, where no job runs"
        );
        self.spending.push(Arc::clone(spending));
        for uid in task.input_uids() {
            let free = self.busy.insert(uid);
            assert!(free, "table {uid} of keyspace {id} is input of two jobs");
        }
        // Not that it conflicts with no other: one that is installed and not given back yet no
        // longer moves any key, and its outputs may be inputs.
        self.compacting.extend(job.map(|job| (id, job.clone())));
    }

    /// Reserves outputs of a job that goes on: nobody else takes a part of what it writes.
    pub(super) fn take_outputs(&mut self, id: KeyspaceId, uids: impl Iterator<Item = TableUid>) {
        assert!(self.has_running_job(id), "outputs in keyspace {id}, where no job runs");
        for uid in uids {
            let is_new = self.busy.insert(uid);
            assert!(is_new, "output {uid} of keyspace {id} is input of a job");
        }
    }

    /// Takes [`take`](Self::take) back, and [`take_outputs`](Self::take_outputs) of these.
    pub(super) fn give_back(
        &mut self,
        id: KeyspaceId,
        task: &Task,
        outputs: &[TableUid],
        job: Option<&JobFootprint>,
        spending: &Arc<Spending>,
    ) {
        let at = self.spending.iter().position(|merge| Arc::ptr_eq(merge, spending));
        assert!(at.is_some(), "space is given back in keyspace {id}, not taken");
        if let Some(at) = at {
            self.spending.remove(at);
        }
        for uid in task.input_uids().chain(outputs.iter().copied()) {
            let was_busy = self.busy.remove(&uid);
            assert!(was_busy, "table {uid} of keyspace {id} is given back, not reserved");
        }
        // Of two that are equal, one is as good as the other.
        let is_it = |(of, running): &(KeyspaceId, JobFootprint)| *of == id && Some(running) == job;
        let at = self.compacting.iter().position(is_it);
        assert_eq!(at.is_some(), job.is_some(), "{job:?} of keyspace {id} is given back");
        if let Some(at) = at {
            self.compacting.swap_remove(at);
        }
    }

    /// What running compactions take of the device.
    pub(super) fn spending(&self) -> &[Arc<Spending>] {
        &self.spending
    }

    /// Begins a flush, which is a job of the keyspace; false if one runs, or none may begin.
    pub(super) fn begin_flush(&mut self, id: KeyspaceId) -> bool {
        if self.flushing.contains(&id) || !self.begin(id) {
            return false;
        }
        self.flushing.insert(id)
    }

    /// Ends it.
    pub(super) fn end_flush(&mut self, id: KeyspaceId) {
        let was_flushing = self.flushing.remove(&id);
        assert!(was_flushing, "a flush of keyspace {id} ends that has not begun");
        self.end(id);
    }

    /// The keyspaces with a running flush.
    pub(super) fn flushing(&self) -> &BTreeSet<KeyspaceId> {
        &self.flushing
    }

    /// Whether a job runs that somebody may wait for.
    pub(super) fn any_runs(&self) -> bool {
        self.running.values().sum::<usize>() > self.merges_at_rest
    }

    /// Whether a job of the keyspace runs.
    pub(super) fn has_running_job(&self, id: KeyspaceId) -> bool {
        self.running.contains_key(&id)
    }

    pub(super) fn begin(&mut self, id: KeyspaceId) -> bool {
        if self.stopping || self.closed.contains(&id) {
            return false;
        }
        *self.running.entry(id).or_insert(0) += 1;
        true
    }

    pub(super) fn end(&mut self, id: KeyspaceId) {
        let running = self.running.get_mut(&id);
        assert!(running.is_some(), "a job of keyspace {id} ends that has not begun");
        if let Some(n) = running {
            assert!(*n > 0, "keyspace {id} is listed with no running jobs");
            *n -= 1;
            if *n == 0 {
                self.running.remove(&id);
            }
        }
    }

    /// That nothing is reserved for jobs. Requires: no job runs.
    fn assert_idle(&self) {
        let (busy, compacting) = (&self.busy, &self.compacting);
        assert!(busy.is_empty() && compacting.is_empty(), "{busy:?} and {compacting:?} reserved");
        assert!(self.flushing.is_empty(), "{:?} flushing", self.flushing);
        assert_eq!(self.merges_at_rest, 0, "merges at rest are counted that do not run");
        assert!(self.spending.is_empty(), "space is reserved for {} jobs", self.spending.len());
    }
}
