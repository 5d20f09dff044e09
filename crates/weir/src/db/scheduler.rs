//! Background work: which job runs next, on which thread, and what becomes of one that fails.
//!
//! Jobs are steps, so that a long compaction lets urgent work pass between two of them: log
//! segments first, then flushes, then compactions.
//!
//! Not here: which jobs run (`job_table`), the jobs themselves (`segments`, `flushes`,
//! `compactions`), how their results become the tree (`install`).

use std::sync::Arc;

use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::KeyspaceId;
use crate::base::sched;
use crate::compaction::execute::{Finished, Job, JobContext, Progress};
use crate::db::compactions::Due;
use crate::db::engine::Engine;
use crate::db::job_table::RETRY_NANOS;
use crate::db::retries::Work;
use crate::db::space::Spending;
use crate::db::space_checks::DeviceSpace;
use crate::state::tree::Tree;

/// Whether what failed may succeed when it is tried again, as things are.
fn is_passing(error: &Error) -> bool {
    let waits = matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Closed);
    !waits && !error.leaves_unknown()
}

/// A background thread. It runs no code of the user's (`syncs` has a thread for that), so no
/// callback closes the store on it or waits there for its own work.
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
            let pauses = [engine.jobs.pause(looked_at), engine.pause_of_deferred(looked_at)];
            engine.shared.wait_for_work(seen, pauses.into_iter().flatten().min());
        }
    }
}

impl Engine {
    /// Runs the most urgent job, if there is one.
    fn run_one(&self) -> bool {
        let Some(writer) = &self.writer else { return false };
        self.write_out_deferred(writer);
        self.reclaim();
        if self.jobs.rest().is_some() {
            return false;
        }
        if self.jobs.short_of_space().is_some() {
            self.finish_removals();
        }
        // Also in a poisoned store: a writer may be waiting for the segment.
        let mut no_segment = None;
        if let Some(wanted) = self.segment_to_prepare(writer) {
            match self.prepare_segment(writer, wanted) {
                // What is flushed gives its segments back: that goes on.
                Err(error) if error.kind() == ErrorKind::NoSpace => no_segment = Some(error),
                // Already prepared, or another one wanted by now: no fault of the device.
                Ok(false) => return true,
                prepared => {
                    self.note_job(prepared.map(|_| ()));
                    return true;
                }
            }
        }
        if self.shared.health.is_poisoned() || self.jobs.paused() {
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
        let looks_at_lists = self.tend_lists();
        self.look_at_rests();
        match self.compact_one() {
            Ok(false) => match no_segment {
                Some(error) => {
                    self.note_job(Err(error));
                    true
                }
                None => {
                    // The job that found no space was not one that is tried again.
                    self.shared.health.clear_full();
                    self.move_hot_range() || looks_at_lists
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
    pub(super) fn run_urgent(&self) {
        let Some(writer) = &self.writer else { return };
        self.write_out_deferred(writer);
        if self.jobs.rest().is_some() || self.shared.health.is_poisoned() {
            return;
        }
        if let Some(wanted) = self.segment_to_prepare(writer) {
            match self.prepare_segment(writer, wanted) {
                Ok(false) => {}
                prepared => self.note_job(prepared.map(|_| ())),
            }
        }
        if self.jobs.paused() {
            return;
        }
        match self.flush_one() {
            Ok(false) => {}
            flushed => self.note_job(flushed.map(|_| ())),
        }
        // What is trimmed in the meantime must not wait for a long merge, nor what was removed.
        self.tend_lists();
        self.reclaim();
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
    pub(super) fn noting_failures<T>(
        &self,
        work: Work,
        result: Result<T>,
        due: &dyn Fn() -> bool,
    ) -> Result<T> {
        if let Err(error) = &result
            && error.kind() == ErrorKind::NoSpace
        {
            self.jobs.state.lock().retries.found_no_space(work);
        }
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
                    ErrorKind::NoSpace if self.delete_spares() => {
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

    /// Frees obsolete tables that no reader pins.
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
        let storage = self.storage()?;
        // In the cache it is not compressed.
        let contents_bytes = (!storage.is_cached_below()).then(|| {
            let root = self.set.current();
            root.all_tables().map(|table| table.meta().bytes.max(table.meta().raw_bytes)).sum()
        });
        Ok(JobContext {
            storage,
            cache: Some(Arc::clone(&self.cache)),
            contents_bytes,
            accountant: Some(Arc::clone(&self.shared.accountant)),
            hash_seed: self.shared.hash_seed,
            verify_outputs: self.options.debug.verify_outputs,
            merge_read_bytes: self.options.debug.merge_read_bytes,
            hand_over_flushes: self.options.debug.hand_over_flushes,
            new_uid: Arc::new(move || set.new_uid()),
            note_orphan: Arc::new(move |uid| reclaimer.take_orphan(uid)),
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
            spending.iter().for_each(|spending| spending.note(job.stats()));
            #[cfg(feature = "sim")]
            self.wait_while_paused(give_up);
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

    /// Why a thread should not wait for the flush of a keyspace any longer, after so many failures
    /// when it began to.
    pub(super) fn cannot_flush_since(&self, failures: u64, id: KeyspaceId) -> Option<Error> {
        let mine = |work| work == Work::Flush(id);
        let failed = || self.jobs.state.lock().retries.failed_since(failures, mine);
        let full = || self.no_space_for_flushes(failures);
        self.shared.health.check_writable().err().or_else(full).or_else(failed)
    }

    /// That a flush has found no space after so many failures. Not that other work has: a merge may
    /// need more than there is while a flush finds what was kept back for it.
    pub(super) fn no_space_for_flushes(&self, failures: u64) -> Option<Error> {
        let error = self.shared.health.full()?;
        self.jobs.state.lock().retries.flush_is_short_since(failures).then_some(error)
    }

    /// Starts work that a thread waits for, ending its backoff; the number of failures so far.
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
        let is_idle = || {
            loop {
                match self.is_idle() {
                    Err(error) if error.kind() == ErrorKind::NoSpace && self.delete_spares() => {}
                    known => break known,
                }
            }
        };
        self.shared.wait_until(|| match is_idle() {
            Ok(true) => Some(Ok(())),
            Ok(false) => self.cannot_go_on_since(failures, |_| true).map(Err),
            Err(error) => Some(Err(error)),
        })
    }

    /// Whether nothing is due or running; the error if something is due and finds no space.
    fn is_idle(&self) -> Result<bool> {
        let device = DeviceSpace::default();
        self.look_at_snapshots();
        let mut state = self.jobs.state.lock();
        if state.any_runs() {
            return Ok(false);
        }
        if self.all_trees().iter().any(|tree| !tree.peek().immutables.is_empty()) {
            return Ok(false);
        }
        let root = self.set.current();
        // After it is known that no job runs: one that has just ended says here what it changed.
        for id in state.to_look_at.clone() {
            match self.due(&mut state, &root, id, &device) {
                Due::Nothing => {}
                Due::Task(_) | Due::Waits => return Ok(false),
                Due::Short(needed) => return Err(self.does_not_fit(&mut state, &device, needed)),
            }
        }
        // Nobody waits for a merge that runs because writers rest, but for what it keeps back:
        // after a change of the policy all of the tree may be due.
        let with_jobs: Vec<KeyspaceId> = state.with_jobs().collect();
        Ok(!with_jobs.into_iter().any(|id| self.is_due_behind_jobs(&mut state, &root, id)))
    }
}
