//! Background work: which job runs next, on which thread.
//!
//! Jobs are steps, so that a long compaction lets urgent work pass between two of them: log
//! segments first, then flushes, then compactions.
//!
//! Not here: the jobs themselves (`flushes`, `compactions`), how their results are shown
//! (`install`).
//!
//! Invariant: a table is input of one job at most (`busy`), and no two jobs of a keyspace conflict
//! (`compacting`; `JobFootprint::conflicts_with`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::key::Seq;
use crate::base::sched::{self, Mutex};
use crate::compaction;
use crate::compaction::execute::{Finished, Job, JobContext, Progress};
use crate::compaction::pacing::{self, Memory};
use crate::compaction::task::Task;
use crate::db::compactions::Due;
use crate::db::engine::{Engine, Writer};
use crate::db::quarantine::Quarantine;
use crate::db::retries::{Retries, Work};
use crate::db::space::{Room, Spending};
use crate::log::Wanted;
use crate::state::shared::Shared;
use crate::state::tree::{DELAY_UNITS_PER_NANO, Tree};
use crate::version::edit::KeyspaceId;
use crate::version::shape::JobFootprint;

/// How long jobs rest after one found no space, before they try again.
const RETRY_NANOS: u64 = 200_000_000;

/// The job table, and what is weighed beside it.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(super) state: Mutex<JobTable>,
    /// Held while a merge gives back what it took of the device and stops to count as running, and
    /// while that is weighed against what is free. Taken before `state`.
    pub(super) settling: Mutex<()>,
    /// How many keyspaces have stalled writers. An estimate from above.
    stalled: AtomicUsize,
    /// How often deciders were shown a tree.
    #[cfg(test)]
    pub(super) shapes: AtomicUsize,
}

/// Running jobs, the tables they hold, and what is to be done next.
#[derive(Default)]
pub(super) struct JobTable {
    stopping: bool,
    /// Inputs of running compactions.
    busy: BTreeSet<u64>,
    /// What running compactions may do where: one each, but for rotations.
    compacting: Vec<(KeyspaceId, JobFootprint)>,
    /// Keyspaces whose oldest memtable is being flushed.
    pub(super) flushing: BTreeSet<KeyspaceId>,
    /// The oldest frozen memtables of keyspaces, by where they begin in the log and their epoch.
    /// Some may be flushed already.
    pub(super) frozen: BTreeSet<(u64, u64, KeyspaceId)>,
    /// What running compactions take of the device.
    pub(super) spending: Vec<Arc<Spending>>,
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
    segment_refused: Option<Error>,
    /// What failed and is tried again.
    pub(super) retries: Retries,
    /// A job found no space, or the store is poisoned: jobs rest until then.
    pub(super) rest_until: Option<u64>,
}

/// What running jobs hold of a keyspace.
#[derive(Default)]
pub(super) struct Reserved {
    /// Tables that no new job may take, of any keyspace, and those of them that are damaged.
    pub(super) busy: BTreeSet<u64>,
    pub(super) damaged: BTreeSet<u64>,
    pub(super) jobs: Vec<JobFootprint>,
}

impl Jobs {
    /// Lets no new job start, and running ones give up at their next step.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
    }

    fn stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Lets no new job of a keyspace start, and waits for the running ones.
    pub(crate) fn close_keyspace(&self, shared: &Shared, id: KeyspaceId) {
        self.state.lock().closed.insert(id);
        shared.wait_until(|| (!self.state.lock().running.contains_key(&id)).then_some(()));
        // After the jobs that ran: they may have been set back while they were waited for.
        let mut state = self.state.lock();
        state.quarantine.forget(id);
        state.retries.forget(id);
    }

    /// Waits until no job runs. Requires: stopped.
    pub(crate) fn wait_for_running(&self, shared: &Shared) {
        shared.wait_until(|| self.state.lock().running.is_empty().then_some(()));
    }

    /// Takes [`close_keyspace`](Self::close_keyspace) back.
    pub(crate) fn reopen_keyspace(&self, id: KeyspaceId) {
        self.state.lock().closed.remove(&id);
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
    pub(crate) fn release_table(&self, uid: u64) -> bool {
        self.state.lock().quarantine.release(uid)
    }

    /// How long a thread waits at most that found nothing to do when it looked, at `looked_at`:
    /// until the first rest ends that lasted then. It may have ended meanwhile.
    pub(super) fn pause(&self, looked_at: u64) -> Option<Duration> {
        let short = self.short_of_space().is_some();
        let (rest, retry) = {
            let state = self.state.lock();
            (state.rest_until.filter(|&until| until > looked_at), state.retries.next(looked_at))
        };
        let now = clock::now_nanos();
        let left = |until: u64| Duration::from_nanos(until.saturating_sub(now));
        let short = short.then_some(Duration::from_nanos(RETRY_NANOS));
        [rest.map(left), retry.map(left), short].into_iter().flatten().min()
    }

    /// How long jobs still have to rest.
    fn rest(&self) -> Option<Duration> {
        let until = self.state.lock().rest_until?;
        let now = clock::now_nanos();
        (until > now).then(|| Duration::from_nanos(until - now))
    }
}

impl JobTable {
    /// What no new job of a keyspace may take.
    pub(super) fn reserved(&self, id: KeyspaceId) -> Reserved {
        let damaged = self.quarantine.damaged();
        let busy = self.busy.union(&damaged).copied().collect();
        let jobs = self.compacting.iter().filter(|(of, _)| *of == id).map(|(_, job)| job.clone());
        Reserved { busy, damaged, jobs: jobs.collect() }
    }

    /// Reserves the inputs of a task and the keys that it may write as `job`.
    pub(super) fn take(&mut self, id: KeyspaceId, task: &Task, job: Option<&JobFootprint>) {
        self.busy.extend(task.input_uids());
        self.compacting.extend(job.map(|job| (id, job.clone())));
    }

    /// Takes [`take`](Self::take) back.
    pub(super) fn give_back(&mut self, id: KeyspaceId, task: &Task, job: Option<&JobFootprint>) {
        for uid in task.input_uids() {
            self.busy.remove(&uid);
        }
        // Of two that are equal, one is as good as the other.
        let is_it = |(of, running): &(KeyspaceId, JobFootprint)| *of == id && Some(running) == job;
        if let Some(at) = self.compacting.iter().position(is_it) {
            self.compacting.swap_remove(at);
        }
    }

    /// Whether a job of the keyspace runs.
    pub(super) fn runs(&self, id: KeyspaceId) -> bool {
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
        if let Some(n) = self.running.get_mut(&id) {
            *n -= 1;
            if *n == 0 {
                self.running.remove(&id);
            }
        }
    }
}

/// Whether what failed may succeed when it is tried again, as things are.
fn is_passing(error: &Error) -> bool {
    let waits = matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Closed);
    !waits && !error.leaves_unknown()
}

/// A background thread. It runs no code of the user's (`syncs` has a thread for that), so nobody
/// closes the store on it or waits there for what it has to do.
pub(crate) fn work(engine: &Arc<Engine>) {
    loop {
        let (seen, looked_at) = (engine.shared.work_generation(), clock::now_nanos());
        if engine.jobs.stopping() {
            return;
        }
        let ran = sched::catch_panic("a background thread", || Ok(engine.run_one()));
        let ran = ran.unwrap_or_else(|panicked| {
            engine.note_job(Err(panicked));
            true
        });
        if !ran {
            engine.shared.wait_for_work(seen, engine.jobs.pause(looked_at));
        }
    }
}

impl Engine {
    /// Runs the most urgent job, if there is one.
    fn run_one(&self) -> bool {
        let Some(writer) = &self.writer else { return false };
        self.reclaim();
        if self.jobs.rest().is_some() {
            return false;
        }
        if self.jobs.short_of_space().is_some() {
            self.settle_removals();
        }
        // Also in a poisoned store: a writer may be waiting for the segment.
        let mut no_segment = None;
        if let Some(wanted) = self.segment_to_prepare(writer) {
            match self.prepare_segment(writer, wanted) {
                // What is flushed gives its segments back: that goes on.
                Err(error) if error.kind() == ErrorKind::NoSpace => no_segment = Some(error),
                // Not any more, or not the same: that says nothing about the device.
                Ok(false) => return true,
                prepared => {
                    self.note_job(prepared.map(|_| ()));
                    return true;
                }
            }
        }
        if self.shared.health.is_poisoned() {
            return false;
        }
        let flushed = self.flush_one();
        if flushed.as_ref().is_ok_and(|done| *done) {
            self.note_job(Ok(()));
            return true;
        }
        if let Err(error) = flushed {
            self.note_job(Err(error));
            return true;
        }
        self.shorten_log();
        match self.compact_one() {
            Ok(false) => match no_segment {
                Some(error) => {
                    self.note_job(Err(error));
                    true
                }
                None => {
                    // The job that found no space was not one that is tried again.
                    self.shared.health.clear_full();
                    false
                }
            },
            Ok(true) => {
                self.note_job(Ok(()));
                true
            }
            Err(error) => {
                self.note_job(Err(error));
                true
            }
        }
    }

    /// What must not wait for a compaction to end: called between its steps.
    fn run_urgent(&self) {
        let Some(writer) = &self.writer else { return };
        if self.jobs.rest().is_some() || self.shared.health.is_poisoned() {
            return;
        }
        if let Some(wanted) = self.segment_to_prepare(writer) {
            match self.prepare_segment(writer, wanted) {
                Ok(false) => {}
                prepared => self.note_job(prepared.map(|_| ())),
            }
        }
        match self.flush_one() {
            Ok(false) => {}
            flushed => self.note_job(flushed.map(|_| ())),
        }
    }

    /// The log segment that is to be prepared, and can be as far as anybody knows. While the
    /// preparation rests after a failure, who waits for the segment is told why.
    fn segment_to_prepare(&self, writer: &Writer) -> Option<Wanted> {
        let wanted = writer.wal.wanted_segment()?;
        let resting =
            self.jobs.state.lock().retries.rests(Work::Segment, clock::now_nanos()).cloned();
        match resting {
            Some(error) => {
                writer.wal.refuse_segment(wanted, &error);
                None
            }
            None => self.has_room_for_segment(writer, wanted).then_some(wanted),
        }
    }

    /// Prepares a log segment; false if somebody else did or it needs something else by now, which
    /// ends no rest.
    fn prepare_segment(&self, writer: &Writer, wanted: Wanted) -> Result<bool> {
        let prepared = writer.wal.prepare(wanted);
        self.note_prepared(writer, prepared)
    }

    /// Notes how the preparation of a log segment ended, and passes that on. A failure counts only
    /// while the segment is lacking: one that somebody else has prepared since, or prepares, has
    /// not to be tried again, and nobody rests or is refused for it.
    pub(super) fn note_prepared(&self, writer: &Writer, prepared: Result<bool>) -> Result<bool> {
        let unknown = match &prepared {
            Ok(false) => return prepared,
            Ok(true) => {
                let mut state = self.jobs.state.lock();
                state.retries.done(Work::Segment);
                state.segment_refused = None;
                return prepared;
            }
            Err(error) => error.leaves_unknown(),
        };
        // Under the lock of the retries: who prepares it after this look says later that it is
        // done.
        let lacking = || writer.wal.lacking_segment().is_some();
        let prepared = self.noting_failures(Work::Segment, prepared, &lacking);
        if unknown || lacking() { prepared } else { Ok(false) }
    }

    /// Passes the result of some work on; if it failed and may be tried again, it will be.
    pub(super) fn noting_retries<T>(&self, work: Work, result: Result<T>) -> Result<T> {
        if result.is_ok() {
            self.jobs.state.lock().retries.done(work);
        }
        self.noting_failures(work, result, &|| true)
    }

    /// Passes the result of some work on; if it failed, may be tried again, and is `due` still, it
    /// will be.
    fn noting_failures<T>(
        &self,
        work: Work,
        result: Result<T>,
        due: &dyn Fn() -> bool,
    ) -> Result<T> {
        if let Err(error) = &result
            && is_passing(error)
        {
            self.shared.counters.jobs_failed.add(1);
            if error.is_too_many_open_files() {
                self.tables.shed();
            }
            let (error, now) = (error.clone(), clock::now_nanos());
            let mut state = self.jobs.state.lock();
            if due() {
                state.retries.failed(work, error, now);
            }
        }
        result
    }

    /// Whether the device has room for the log segment and what comes with it. If not, the appender
    /// waiting for the segment gets the error; flushes and compactions continue.
    fn has_room_for_segment(&self, writer: &Writer, wanted: Wanted) -> bool {
        let mut refused = self.check_space_for_segment().err();
        if refused.is_some() {
            // What a merge has just removed counts, too.
            if !self.give_up_spares() {
                self.settle_removals();
            }
            refused = self.check_space_for_segment().err();
        }
        let mut state = self.jobs.state.lock();
        let Some(error) = refused else {
            state.segment_refused = None;
            return true;
        };
        // Under the lock: who prepares it meanwhile says after this that nothing is refused.
        if writer.wal.refuse_segment(wanted, &error) {
            state.segment_refused = Some(error);
        }
        false
    }

    /// Gives log segments back that are kept to be recycled, before work is refused for want of
    /// space; whether there were some.
    pub(super) fn give_up_spares(&self) -> bool {
        let given = self.writer.as_ref().is_some_and(|writer| writer.wal.give_up_spares());
        if given {
            self.settle_removals();
        }
        given
    }

    /// Has the device free what was removed.
    fn settle_removals(&self) {
        let settled = self.storage().and_then(|storage| storage.settle_removals());
        if let Err(error) = settled
            // Flushes go on: they give log segments back.
            && error.kind() != ErrorKind::NoSpace
        {
            self.note_job(Err(error));
        }
    }

    /// Draws the consequences of how a job ended.
    pub(super) fn note_job(&self, result: Result<()>) {
        match result {
            Ok(()) => {
                self.shared.health.clear_full();
                let rested = self.jobs.state.lock().rest_until.take();
                if rested.is_some() {
                    // Who rests, or is about to, has something to do from now on.
                    self.shared.wake_workers();
                }
            }
            Err(error) => {
                match error.kind() {
                    ErrorKind::Closed => return self.shared.announce_progress(),
                    // Once more, with the space of these.
                    ErrorKind::NoSpace if self.give_up_spares() => {
                        self.shared.wake_workers();
                        return self.shared.announce_progress();
                    }
                    ErrorKind::NoSpace => self.shared.health.set_full(&self.naming_need(&error)),
                    _ if error.leaves_unknown() => self.shared.health.poison(&error),
                    // This work alone rests: `noting_retries`.
                    _ => {}
                }
                if !is_passing(&error) {
                    // Not at once again: that would only keep the device and a processor busy.
                    self.jobs.state.lock().rest_until = Some(clock::now_nanos() + RETRY_NANOS);
                }
                // Who waits without a limit waits for the end of the rest from now on.
                self.shared.wake_workers();
            }
        }
        self.shared.announce_progress();
    }

    /// Frees tables that nobody holds any more.
    pub(crate) fn reclaim(&self) {
        if self.reclaimer.waiting() == 0 {
            return;
        }
        let Ok(storage) = self.storage() else { return };
        // What cannot be removed now is tried again, at the latest when the store is opened.
        let freed = self.reclaimer.run(&*storage, &self.cache);
        self.shared.counters.tables_freed.add(freed);
    }

    pub(super) fn all_trees(&self) -> Vec<Arc<Tree>> {
        self.trees.lock().values().cloned().collect()
    }

    /// What every job of this store needs.
    pub(super) fn job_context(&self) -> Result<JobContext> {
        let (set, reclaimer) = (Arc::clone(&self.set), Arc::clone(&self.reclaimer));
        Ok(JobContext {
            storage: self.storage()?,
            cache: Some(Arc::clone(&self.cache)),
            accountant: Some(Arc::clone(&self.shared.accountant)),
            hash_seed: self.shared.hash_seed,
            verify_outputs: self.options.verify_outputs,
            new_uid: Arc::new(move || set.new_uid()),
            left: Arc::new(move |uid| reclaimer.take_orphan(uid)),
        })
    }

    /// Runs a job to its end, letting urgent work pass between two steps of a merge.
    pub(super) fn run_job(
        &self,
        job: &mut dyn Job,
        spending: Option<&Spending>,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Finished> {
        let is_merge = job.stats().tables_read > 0;
        loop {
            let progress = job.step()?;
            spending.iter().for_each(|spending| spending.note(&job.stats()));
            match progress {
                Progress::Done(finished) => return Ok(*finished),
                Progress::Continue if give_up() => {
                    job.abandon();
                    return Err(crate::state::health::closed_error());
                }
                Progress::Continue if is_merge => self.run_urgent(),
                Progress::Continue => {}
            }
            sched::switch_point();
        }
    }

    /// Sets the delay of writers by the state of all trees.
    pub(crate) fn update_pressure(&self) {
        self.all_trees().iter().for_each(|tree| self.set_pressure(tree));
    }

    /// Sets the delay of a keyspace's writers after a job of it has ended. Where writers of other
    /// keyspaces are stalled, that may have made room for them.
    pub(super) fn update_pressure_of(&self, tree: &Arc<Tree>) {
        self.set_pressure(tree);
        if self.jobs.stalled.load(Ordering::Acquire) == 0 {
            return;
        }
        let is_stalled = |t: &&Arc<Tree>| t.stalled.load(Ordering::Acquire) && t.id != tree.id;
        for other in self.all_trees().iter().filter(is_stalled) {
            self.set_pressure(other);
        }
    }

    /// Locks: `pressing` of the tree.
    fn set_pressure(&self, tree: &Arc<Tree>) {
        // Before the root is read: else what an older one calls for would be set after what the
        // newest one does, and writers would wait for room that has been made.
        let _pressing = tree.pressing.lock();
        let root = &*self.set.current();
        let Some(shape) = self.shape_of(root, tree.id, Reserved::default()) else { return };
        let policy = compaction::policy_of(shape.options.compaction);
        let pressure = policy.pressure(&shape);
        let current = tree.peek();
        let memory = Memory {
            immutables: current.immutables.len(),
            immutables_max: current.options.immutables_max,
            active_fill: current.active.memtable.bytes() as f64
                / current.options.write_buffer_bytes as f64,
        };
        let nanos = pacing::delay_nanos_per_byte(&pressure, &memory);
        // In 1/1024 ns, so that the gentlest delays are not lost.
        let fixed = (nanos * DELAY_UNITS_PER_NANO as f64) as u64;
        tree.delay_per_byte.store(fixed, Ordering::Relaxed);
        let full = pacing::tightest(&pressure, &Memory::default()) >= pacing::SPRING_FULL;
        // Before writers are stalled: who waits already looks again after this job.
        let flush = self.jobs.state.lock().retries.lasting(Work::Flush(tree.id));
        tree.set_stall_blocked_by(match flush {
            None if full => self.compaction_blocked_by(root, tree),
            flush => flush,
        });
        self.set_stalled(tree, full);
    }

    /// Lets the writers of a keyspace go on that was dropped: they find that out.
    ///
    /// Requires: no root names it any more.
    pub(super) fn release_writers(&self, dropped: &Tree) {
        let _pressing = dropped.pressing.lock();
        self.set_stalled(dropped, false);
    }

    /// Stops a keyspace's writers, or lets them go on.
    ///
    /// Requires: its `pressing` is held.
    fn set_stalled(&self, tree: &Tree, stalled: bool) {
        match (tree.stalled.swap(stalled, Ordering::AcqRel), stalled) {
            (false, true) => self.jobs.stalled.fetch_add(1, Ordering::AcqRel),
            (true, false) => self.jobs.stalled.fetch_sub(1, Ordering::AcqRel),
            _ => 0,
        };
    }

    /// Why a caller who waits for background work would wait for ever.
    pub(super) fn cannot_go_on(&self) -> Option<Error> {
        self.shared.health.check_writable().err().or_else(|| self.shared.health.full())
    }

    /// As [`cannot_go_on`](Self::cannot_go_on), for a caller who waits for some work and has
    /// hurried it on.
    pub(super) fn cannot_go_on_since(
        &self,
        failures: u64,
        wanted: impl Fn(Work) -> bool,
    ) -> Option<Error> {
        let failed = || self.jobs.state.lock().retries.failed_since(failures, wanted);
        self.cannot_go_on().or_else(failed)
    }

    /// Has work begin that somebody waits for, also what rests; the number of failures so far.
    pub(super) fn hurry(&self, wanted: impl Fn(Work) -> bool) -> u64 {
        let failures = self.jobs.state.lock().retries.hurry(wanted);
        self.shared.wake_workers();
        failures
    }

    /// Waits until no job is due or running.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.shared.health.check_open()?;
        if self.writer.is_none() {
            return Ok(());
        }
        let failures = self.hurry(|_| true);
        let is_idle = || match self.is_idle() {
            Err(error) if error.kind() == ErrorKind::NoSpace && self.give_up_spares() => {
                self.is_idle()
            }
            known => known,
        };
        self.shared.wait_until(|| match is_idle() {
            Ok(true) => Some(Ok(())),
            Ok(false) => self.cannot_go_on_since(failures, |_| true).map(Err),
            Err(error) => Some(Err(error)),
        })
    }

    /// Whether nothing is due or running; the error if something is due and finds no space.
    fn is_idle(&self) -> Result<bool> {
        let room = Room::default();
        self.look_at_snapshots();
        let mut state = self.jobs.state.lock();
        if !state.running.is_empty() {
            return Ok(false);
        }
        if self.all_trees().iter().any(|tree| !tree.peek().immutables.is_empty()) {
            return Ok(false);
        }
        let root = self.set.current();
        // After it is known that no job runs: one that has just ended says here what it changed.
        for id in state.to_look_at.clone() {
            match self.due(&mut state, &root, id, &room) {
                Due::Nothing => {}
                Due::Task(_) | Due::Waits => return Ok(false),
                Due::Short(needed) => return Err(self.does_not_fit(&mut state, &room, needed)),
            }
        }
        Ok(true)
    }
}
