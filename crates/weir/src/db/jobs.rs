//! Background work: which job runs next, and how its result is shown to readers.
//!
//! Jobs are steps, so that a long compaction lets urgent work pass between two of them: log
//! segments first, then flushes, then compactions.
//!
//! Invariants: (1) a table is input of one job at most (`busy`), and no two jobs of a keyspace
//! cross (`compacting`; `JobShape::crosses`); (2) one flush per keyspace at a time, oldest
//! memtable first (ARCHITECTURE §3); (3) before a flush edit is issued, the log is durable up to
//! the last sequence number of its memtable (H52), unless the keyspace is the only one; (4) the
//! outputs of a job whose edit may have reached the device are never deleted (docs/hazards.md, bug
//! 32).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::clock;
use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::key::Seq;
use crate::base::memory::Category;
use crate::base::sched::{self, Mutex};
use crate::base::table_meta::TableMeta;
use crate::compaction;
use crate::compaction::execute::{Finished, FlushJob, FlushSpec, Job, JobContext, Progress};
use crate::compaction::pacing::{self, Memory};
use crate::compaction::policy::Placement;
use crate::compaction::task::Task;
use crate::db::engine::{Engine, Writer, memtable_bytes_max};
use crate::db::setbacks::Setbacks;
use crate::memtable::MemtableCursor;
use crate::state::shared::Shared;
use crate::state::tree::{Buffer, DELAY_UNITS_PER_NANO, SuperVersion, Tree, last_seq};
use crate::version::edit::{Flushed, KeyspaceId, VersionEdit};
use crate::version::set::{ApplyError, Installed, VersionSet};
use crate::version::shape::JobShape;

/// How long jobs rest after one failed, before they try again.
const RETRY_NANOS: u64 = 200_000_000;

/// Who is working on what.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    stopping: bool,
    /// Inputs of running compactions.
    busy: BTreeSet<u64>,
    /// What running compactions may do where: one each, but for rotations.
    compacting: Vec<(KeyspaceId, JobShape)>,
    /// Keyspaces whose oldest memtable is being flushed.
    flushing: BTreeSet<KeyspaceId>,
    /// Running jobs per keyspace.
    running: BTreeMap<KeyspaceId, usize>,
    /// Keyspaces that are being dropped: no new jobs.
    closed: BTreeSet<KeyspaceId>,
    /// The keyspace whose compaction was claimed last.
    pub(super) last_compacted: Option<KeyspaceId>,
    /// What compaction could not do.
    pub(super) setbacks: Setbacks,
    /// Why a compaction that is due does not start. Looked at again every [`RETRY_NANOS`].
    pub(super) short_of_space: Option<Error>,
    /// Why the next log segment is not prepared.
    segment_refused: Option<Error>,
    /// A job failed: jobs rest until then.
    rest_until: Option<u64>,
}

/// What running jobs have of a keyspace.
#[derive(Default)]
pub(super) struct Taken {
    /// Tables that no new job may take, of any keyspace, and those of them that are damaged.
    pub(super) busy: BTreeSet<u64>,
    pub(super) damaged: BTreeSet<u64>,
    pub(super) jobs: Vec<JobShape>,
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
        self.state.lock().setbacks.forget(id);
    }

    /// Waits until no job runs. Requires: stopped.
    pub(crate) fn wait_for_running(&self, shared: &Shared) {
        shared.wait_until(|| self.state.lock().running.is_empty().then_some(()));
    }

    /// Takes [`close_keyspace`](Self::close_keyspace) back.
    pub(crate) fn reopen_keyspace(&self, id: KeyspaceId) {
        self.state.lock().closed.remove(&id);
    }

    pub(super) fn is_closed(&self, id: KeyspaceId) -> bool {
        let state = self.state.lock();
        state.stopping || state.closed.contains(&id)
    }

    /// Why compaction of some keyspace does not go on.
    pub(crate) fn first_setback(&self) -> Option<Error> {
        self.state.lock().setbacks.first_error()
    }

    /// Why a compaction that is due does not start, or no log segment is prepared.
    pub(crate) fn short_of_space(&self) -> Option<Error> {
        let state = self.state.lock();
        state.short_of_space.clone().or_else(|| state.segment_refused.clone())
    }

    /// What is wrong with the tables in quarantine.
    pub(crate) fn damages(&self) -> Vec<Error> {
        self.state.lock().setbacks.damages()
    }

    /// How many tables running compactions have taken.
    pub(crate) fn busy_tables(&self) -> usize {
        self.state.lock().busy.len()
    }

    /// Ends the quarantine of a table that was found sound; whether it was in quarantine.
    pub(crate) fn release_table(&self, uid: u64) -> bool {
        self.state.lock().setbacks.release(uid)
    }

    /// How long a thread without work waits at most.
    fn pause(&self) -> Option<Duration> {
        let short = self.short_of_space().is_some();
        self.rest().or(short.then_some(Duration::from_nanos(RETRY_NANOS)))
    }

    /// How long jobs still have to rest.
    fn rest(&self) -> Option<Duration> {
        let until = self.state.lock().rest_until?;
        let now = clock::now_nanos();
        (until > now).then(|| Duration::from_nanos(until - now))
    }
}

impl State {
    /// What no new job of a keyspace may take.
    pub(super) fn taken(&self, id: KeyspaceId) -> Taken {
        let damaged = self.setbacks.damaged();
        let busy = self.busy.union(&damaged).copied().collect();
        let jobs = self.compacting.iter().filter(|(of, _)| *of == id).map(|(_, job)| job.clone());
        Taken { busy, damaged, jobs: jobs.collect() }
    }

    /// Reserves the inputs of a task and the keys that it may write as `job`.
    pub(super) fn take(&mut self, id: KeyspaceId, task: &Task, job: Option<&JobShape>) {
        self.busy.extend(task.input_uids());
        self.compacting.extend(job.map(|job| (id, job.clone())));
    }

    /// Takes [`take`](Self::take) back.
    pub(super) fn give_back(&mut self, id: KeyspaceId, task: &Task, job: Option<&JobShape>) {
        for uid in task.input_uids() {
            self.busy.remove(&uid);
        }
        // Of two that are equal, one is as good as the other.
        let is_it = |(of, running): &(KeyspaceId, JobShape)| *of == id && Some(running) == job;
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

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a background thread, which must not wait for background threads.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// A background thread.
pub(crate) fn work(engine: &Arc<Engine>) {
    IS_WORKER.set(true);
    loop {
        let seen = engine.shared.work_generation();
        if engine.jobs.stopping() {
            return;
        }
        let ran = sched::catch_panic("a background thread", || Ok(engine.run_one()));
        let ran = ran.unwrap_or_else(|panicked| {
            engine.note_job(Err(panicked));
            true
        });
        if !ran {
            engine.shared.wait_for_work(seen, engine.jobs.pause());
        }
    }
}

/// The job that makes tables of a frozen memtable.
pub(crate) fn flush_job(
    context: JobContext,
    set: &VersionSet,
    tree: &Tree,
    buffer: &Buffer,
    snapshots: Vec<Seq>,
) -> FlushJob<MemtableCursor> {
    let current = tree.peek();
    let root = set.current();
    let shape = root.keyspaces.get(&tree.id).map(|s| s.shape(BTreeSet::new(), Vec::new()));
    let policy = compaction::policy_of(current.options.compaction);
    let placement = shape.as_ref().map_or(Placement { level: 0 }, |s| policy.place_flush(s));
    let level = placement.level;
    let entries = buffer.memtable.entries();
    let mut table = FlushSpec::table_options(tree.id, &current.options, level, context.hash_seed);
    if let Some(shape) = &shape {
        table.bloom_bits = policy.filter_bits(shape, level, entries);
    }
    let spec = FlushSpec {
        keyspace: tree.id,
        placement,
        epoch: buffer.epoch(),
        entries,
        snapshots,
        table_bytes: shape
            .as_ref()
            .map_or(current.options.table_bytes, |shape| policy.flush_table_bytes(shape)),
        table,
    };
    FlushJob::new(context, spec, buffer.memtable.cursor())
}

impl Engine {
    /// Runs the most urgent job, if there is one.
    fn run_one(&self) -> bool {
        let Some(writer) = &self.writer else { return false };
        if self.run_syncs() {
            return true;
        }
        self.reclaim();
        if self.jobs.rest().is_some() {
            return false;
        }
        // Also in a poisoned store: a writer may be waiting for the segment.
        let mut no_segment = None;
        if writer.wal.wants_segment() && self.has_room_for_segment(writer) {
            match writer.wal.prepare() {
                // What is flushed gives its segments back: that goes on.
                Err(error) if error.kind() == ErrorKind::NoSpace => no_segment = Some(error),
                prepared => {
                    self.note_job(prepared);
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
        self.run_syncs();
        if self.jobs.rest().is_some() || self.shared.health.is_poisoned() {
            return;
        }
        if writer.wal.wants_segment() && self.has_room_for_segment(writer) {
            let prepared = writer.wal.prepare();
            self.note_job(prepared);
        }
        match self.flush_one() {
            Ok(_) => {}
            Err(error) => self.note_job(Err(error)),
        }
    }

    /// Whether the device has room for the next log segment and what comes with it. If not, who
    /// waits for the segment is told; flushes and compactions go on.
    fn has_room_for_segment(&self, writer: &Writer) -> bool {
        let refused = self.check_space_for_segment().err();
        if let Some(error) = &refused {
            writer.wal.refuse_segment(error);
        }
        let has_room = refused.is_none();
        self.jobs.state.lock().segment_refused = refused;
        has_room
    }

    /// Draws the consequences of how a job ended.
    pub(super) fn note_job(&self, result: Result<()>) {
        match result {
            Ok(()) => {
                self.shared.health.clear_full();
                self.jobs.state.lock().rest_until = None;
            }
            Err(error) => match error.kind() {
                ErrorKind::Closed => {}
                kind => {
                    if kind == ErrorKind::NoSpace {
                        self.shared.health.set_full(&error);
                    } else {
                        self.shared.health.poison(&error);
                    }
                    // Not at once again: that would only keep the device and a processor busy.
                    self.jobs.state.lock().rest_until = Some(clock::now_nanos() + RETRY_NANOS);
                    // Who waits without a limit waits for the end of the rest from now on.
                    self.shared.wake_workers();
                }
            },
        }
        self.shared.announce_progress();
    }

    /// Syncs the log for commits that nobody waits for.
    fn run_syncs(&self) -> bool {
        let Some(writer) = &self.writer else { return false };
        let requests = std::mem::take(&mut *writer.sync_requests.lock());
        let Some(last) = requests.iter().map(|(lsn, _)| *lsn).max() else { return false };
        let result = self.sync_to(last);
        for (_, callback) in requests {
            let called = || {
                callback(result.clone());
                Ok(())
            };
            sched::catch_panic("a callback", called)
                .ignore_error("the panic was reported; the store goes on without the user's code");
        }
        true
    }

    /// Frees tables that nobody holds any more.
    pub(crate) fn reclaim(&self) {
        if self.reclaimer.waiting() == 0 {
            return;
        }
        let Ok(storage) = self.storage() else { return };
        // What cannot be removed now is tried again, at the latest when the store is opened.
        if let Ok(freed) = self.reclaimer.run(&*storage, &self.cache) {
            self.shared.counters.tables_freed.add(freed);
        }
    }

    pub(super) fn all_trees(&self) -> Vec<Arc<Tree>> {
        self.trees.lock().values().cloned().collect()
    }

    /// Flushes the oldest memtable of some keyspace; false if none waits.
    fn flush_one(&self) -> Result<bool> {
        for tree in self.all_trees() {
            let Some(buffer) = tree.peek().immutables.last().cloned() else { continue };
            {
                let mut state = self.jobs.state.lock();
                if state.flushing.contains(&tree.id) || !state.begin(tree.id) {
                    continue;
                }
                state.flushing.insert(tree.id);
            }
            // Another thread may have flushed it before the claim.
            let current = tree.peek().immutables.last().cloned();
            let result = match current {
                Some(current) if Arc::ptr_eq(&current, &buffer) => {
                    sched::catch_panic("a flush", || self.flush_buffer(&tree, &buffer))
                        .map(|()| true)
                }
                _ => Ok(true),
            };
            {
                let mut state = self.jobs.state.lock();
                state.flushing.remove(&tree.id);
                state.end(tree.id);
            }
            self.update_pressure();
            self.shared.announce_progress();
            // More memtables may wait, and a new table may make a compaction due.
            self.shared.wake_workers();
            return result;
        }
        Ok(false)
    }

    /// Makes a table of a frozen memtable and installs it.
    fn flush_buffer(&self, tree: &Arc<Tree>, buffer: &Arc<Buffer>) -> Result<()> {
        let started = clock::now_nanos();
        let writer = self.writer()?;
        // (a) The keyspace needs the log from its next younger memtable on.
        let log_start = {
            let current = tree.peek();
            let at = current.immutables.iter().position(|b| Arc::ptr_eq(b, buffer));
            match at {
                Some(0) | None => current.active.log_start(),
                Some(at) => current.immutables[at - 1].log_start(),
            }
        };
        let others = self.other_log_starts(tree);
        // (b) H52; and the positions that the edit names, chosen before, must be found again.
        if !self.is_log_of(tree) {
            self.sync_position(writer.wal.settled_lsn())?;
        }
        let durable = writer.wal.durable_lsn();
        let mut job = {
            // Read after the freeze: H47.
            let snapshots = self.shared.snapshots.live();
            flush_job(self.job_context()?, &self.set, tree, buffer, snapshots)
        };
        let mut finished = self.run_job(&mut job, &|| false)?;
        finished.edit.keyspace(tree.id).flushed =
            Some(Flushed { log_start, flushed_seq: last_seq(buffer), durable_lsn: durable });
        let flushed = Some((tree, buffer));
        let alone = finished.edit.clone();
        for (id, flushed) in others {
            let flushed = Flushed { durable_lsn: durable, ..flushed };
            finished.edit.keyspace(id).flushed = Some(flushed);
        }
        match self.set.apply(finished.edit) {
            Ok(installed) => self.show(installed, flushed),
            // Another keyspace was dropped or flushed meanwhile: its log start is not needed.
            Err(failed)
                if matches!(failed.error.kind(), ErrorKind::Conflict | ErrorKind::Closed) =>
            {
                self.install_outputs(alone, &finished.outputs, flushed)?;
            }
            Err(failed) => return Err(self.not_installed(failed, &finished.outputs)),
        }
        let counters = &self.shared.counters;
        counters.flushes.add(1);
        counters.flush_bytes.add(finished.stats.bytes_written);
        counters.flush_nanos.add(clock::now_nanos() - started);
        self.release_log();
        Ok(())
    }

    /// Whether the log before the memtables of `tree` is needed for nothing once they are tables,
    /// durable or not: no other keyspace has entries there, and replay starts at the position that
    /// the flush records. A log that nobody asks to sync then never reaches the device.
    ///
    /// A keyspace that is created later has a later log start, made durable with all before it.
    fn is_log_of(&self, tree: &Tree) -> bool {
        // In this order: a creation puts its tree in place before it clears the flag.
        let creating = self.creating.load(Ordering::SeqCst);
        !creating && self.trees.lock().keys().all(|&id| id == tree.id)
    }

    /// Log starts of the keyspaces but `besides` that have moved on to a later segment since they
    /// were recorded: those of keyspaces that nothing was written to (`write::queue` moves them at
    /// every freeze). Without them a keyspace that is never flushed would pin the log.
    fn other_log_starts(&self, besides: &Tree) -> Vec<(KeyspaceId, Flushed)> {
        let mut starts = Vec::new();
        for tree in self.all_trees().iter().filter(|t| t.id != besides.id) {
            let log_start = tree.oldest_log_start();
            // After the look at the memtables: what was flushed before it is in this root.
            let root = self.set.current();
            let Some(state) = root.keyspaces.get(&tree.id) else { continue };
            if state.log_start.segment < log_start.segment {
                let flushed = Flushed { log_start, flushed_seq: state.flushed_seq, durable_lsn: 0 };
                starts.push((tree.id, flushed));
            }
        }
        starts
    }

    /// Applies the edit of a job. If it certainly did not reach the device, the job's outputs are
    /// removed; otherwise they stay (bug 32).
    pub(crate) fn install_outputs(
        &self,
        edit: VersionEdit,
        outputs: &[Arc<TableMeta>],
        flushed: Option<(&Arc<Tree>, &Arc<Buffer>)>,
    ) -> Result<()> {
        match self.set.apply(edit) {
            Ok(installed) => {
                self.show(installed, flushed);
                Ok(())
            }
            Err(failed) => Err(self.not_installed(failed, outputs)),
        }
    }

    /// Removes the outputs of a job whose edit certainly did not reach the device (bug 32).
    fn not_installed(&self, failed: ApplyError, outputs: &[Arc<TableMeta>]) -> Error {
        if !failed.maybe_persisted
            && let Ok(storage) = self.storage()
        {
            for table in outputs {
                let reason = "recovery removes tables that no version names";
                storage.remove_table(table.uid).ignore_error(reason);
                self.cache.erase_table(table.uid, table.blocks);
            }
        }
        failed.error
    }

    /// Shows an installed edit to readers and retires the tables that it removed.
    fn show(&self, installed: Installed, flushed: Option<(&Arc<Tree>, &Arc<Buffer>)>) {
        // Before the memtable goes: from then on the row cache answers for its keys (H53).
        let generation = flushed.map(|(of, buffer)| of.forget_rows(&self.shared, buffer));
        for tree in self.all_trees() {
            tree.update(|current| {
                let newest = self.set.current();
                let Some(state) = newest.keyspaces.get(&tree.id) else { return current.clone() };
                let mut immutables = current.immutables.clone();
                let mut disk_generation = current.disk_generation;
                if let Some((of, buffer)) = flushed
                    && Arc::ptr_eq(of, &tree)
                {
                    immutables.retain(|b| !Arc::ptr_eq(b, buffer));
                    disk_generation = generation.unwrap_or(disk_generation);
                }
                SuperVersion {
                    active: Arc::clone(&current.active),
                    immutables,
                    version: Arc::clone(&state.version),
                    options: self.effective(&state.options),
                    disk_generation,
                }
            });
        }
        for table in &installed.removed {
            self.reclaimer.retire(table);
        }
        drop(installed);
        self.cache.set_capacity(self.cache_share());
        // Memtables beyond what the trees themselves hold are held by cursors; indexes and filters
        // of tables that were replaced are, too.
        let accountant = &self.shared.accountant;
        let held = accountant.used(Category::Memtables);
        let many = flushed.is_some() && held > memtable_bytes_max(self.options.common_budget()) / 2;
        if many || accountant.used_total() > accountant.budget_bytes() {
            self.shared.call_for_release();
        }
    }

    /// Lets go of log segments that no keyspace needs.
    pub(crate) fn release_log(&self) {
        let Some(writer) = &self.writer else { return };
        let start = self.set.current().wal_start();
        // Looked at after the root: a creation that begins later starts behind `start`.
        if self.creating.load(Ordering::SeqCst) {
            return;
        }
        if let Some(start) = start {
            writer.wal.release_before(start.segment);
        }
    }

    /// Freezes the keyspaces that pin the tail of a log that has grown beyond half its area (H38).
    fn shorten_log(&self) {
        let Some(writer) = &self.writer else { return };
        if writer.wal.live_bytes() <= self.options.log_area_bytes / 2 {
            return;
        }
        let root = self.set.current();
        let Some(oldest) = root.wal_start() else { return };
        let pinning = root.keyspaces.values().filter(|k| k.log_start.segment == oldest.segment);
        let ids: BTreeSet<KeyspaceId> = pinning.map(|k| k.id).collect();
        for tree in self.all_trees().into_iter().filter(|t| ids.contains(&t.id)) {
            writer.committer.request_freeze(&tree);
        }
    }

    /// What every job of this store needs.
    pub(super) fn job_context(&self) -> Result<JobContext> {
        let set = Arc::clone(&self.set);
        Ok(JobContext {
            storage: self.storage()?,
            cache: Some(Arc::clone(&self.cache)),
            accountant: Some(Arc::clone(&self.shared.accountant)),
            hash_seed: self.shared.hash_seed,
            verify_outputs: self.options.verify_outputs,
            new_uid: Arc::new(move || set.new_uid()),
        })
    }

    /// Runs a job to its end, letting urgent work pass between two steps of a merge.
    pub(super) fn run_job(
        &self,
        job: &mut dyn Job,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Finished> {
        let is_merge = job.stats().tables_read > 0;
        loop {
            match job.step()? {
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

    /// Sets the delay of writers by the state of the trees.
    pub(crate) fn update_pressure(&self) {
        let root = self.set.current();
        for tree in self.all_trees() {
            let Some(shape) = self.shape_of(&root, tree.id, Taken::default()) else { continue };
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
            // Before writers are stopped: who waits already looks again after this job.
            tree.set_obstacle(if full { self.obstacle(&root, &tree) } else { None });
            tree.stopped.store(full, Ordering::Release);
        }
    }

    /// Freezes the memtable of a keyspace and waits until it is a table.
    pub(crate) fn flush(&self, tree: &Arc<Tree>) -> Result<()> {
        self.shared.health.check_writable()?;
        let writer = self.writer()?;
        writer.committer.exclusively(|lead| lead.freeze(tree));
        let Some(newest) = tree.peek().immutables.first().map(|b| b.epoch()) else {
            return Ok(());
        };
        self.shared.wake_workers();
        self.shared.wait_until(|| {
            let oldest = tree.peek().immutables.last().map(|b| b.epoch());
            if oldest.is_none_or(|oldest| oldest > newest) {
                return Some(Ok(()));
            }
            self.cannot_go_on().map(Err)
        })
    }

    /// Why a caller who waits for background work would wait for ever.
    pub(super) fn cannot_go_on(&self) -> Option<Error> {
        self.shared.health.check_writable().err().or_else(|| self.shared.health.full())
    }

    /// Waits until no job is due or running.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.shared.health.check_open()?;
        if self.writer.is_none() {
            return Ok(());
        }
        self.shared.wake_workers();
        self.shared.wait_until(|| match self.is_idle() {
            Ok(true) => Some(Ok(())),
            Ok(false) => self.cannot_go_on().map(Err),
            Err(error) => Some(Err(error)),
        })
    }

    /// Whether nothing is due or running; the error if something is due and finds no space.
    fn is_idle(&self) -> Result<bool> {
        let free = self.free_bytes();
        let mut state = self.jobs.state.lock();
        if !state.running.is_empty() {
            return Ok(false);
        }
        let root = self.set.current();
        for tree in self.all_trees() {
            let due = !tree.peek().immutables.is_empty()
                || self.due(&mut state, &root, tree.id, free)?.is_some();
            if due {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
