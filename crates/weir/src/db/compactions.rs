//! Compactions: which one runs next, and what becomes of it.
//!
//! Not here: what is worth merging (`compaction::policy`), how (`compaction::execute`), when a
//! thread turns to it (`scheduler`), what failed for good (`quarantine`).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{KeyspaceId, Level, TableUid};
use crate::base::sched;
use crate::compaction;
use crate::compaction::execute::{self, CompactionJob, Job, JobStats, MergeSpec};
use crate::compaction::policy::{RangePick, running_job};
use crate::compaction::task::{Reason, SentinelTask, Task};
use crate::db::engine::Engine;
use crate::db::job_table::{JobTable, Reserved};
use crate::db::quarantine::PickedFrom;
use crate::db::retries::Work;
use crate::db::space::{Cost, Fit, Space, Spending};
use crate::db::space_checks::{DeviceSpace, Wanted};
use crate::db::stretches::apart;
use crate::options::{CompactionPolicy, Options};
use crate::state::tree::{SuperVersion, Tree};
use crate::storage::io::{Cause, on_behalf_of};
use crate::table::TableOptions;
use crate::version::foreseen::Foreseen;
use crate::version::keyspaces::KeyspaceVersion;
use crate::version::root::Root;
use crate::version::shape::{JobFootprint, Shape};

#[cfg(test)]
mod sentinel_stories;
#[cfg(test)]
mod sentinel_tests;
mod sentinels;

/// A task that was picked, whose inputs no other job can take.
pub(super) struct Reservation {
    pub(super) tree: Arc<Tree>,
    task: Task,
    /// What other jobs must keep out of.
    job: Option<JobFootprint>,
    shape: Shape,
    /// The keyspace without its buffer lists, whose tables may go while the task runs (H18). `None`
    /// of a merge in stretches that has begun: its inputs go too.
    keyspace: Option<KeyspaceVersion>,
    /// What a merge in stretches has installed.
    pub(super) outputs: Vec<TableUid>,
    /// What it was picked from.
    pub(super) from: PickedFrom,
    /// What it takes of the device.
    pub(super) spending: Arc<Spending>,
    /// Picked because writers rest.
    is_at_rest: bool,
}

/// A task that fits the device, with what it was picked from and what it costs.
type Fitting = (Shape, Task, Cost);

/// What is due in a keyspace.
pub(super) enum Due {
    /// Nothing, or nothing that may begin while other jobs have its inputs.
    Nothing,
    /// This.
    Task(Box<Fitting>),
    /// Something that has to wait for merges that take the space it needs.
    Waits,
    /// Something that needs so much space, and there is less.
    Short(Space),
}

impl Reservation {
    /// Reserves the inputs of a task. Requires: `state` has not changed since it was picked.
    fn new(
        state: &mut JobTable,
        tree: Arc<Tree>,
        (shape, task, cost): Fitting,
        keyspace: &KeyspaceVersion,
        is_at_rest: bool,
    ) -> Self {
        assert_eq!(tree.id, keyspace.id, "a task is reserved in another keyspace");
        let task = match task {
            Task::Merge(merge) if cost.stretch.is_some() => Task::Merge(apart(&shape, &merge)),
            task => task,
        };
        let job = running_job(&shape, &task);
        let spending = Spending::new(cost, &task, keyspace);
        state.take(tree.id, &task, job.as_ref(), &spending);
        let from = PickedFrom::of(keyspace);
        let (keyspace, outputs) = (Some(keyspace.without_lists()), Vec::new());
        state.merges_at_rest += usize::from(is_at_rest);
        Self { tree, task, job, shape, keyspace, outputs, from, spending, is_at_rest }
    }
}

/// Whether nobody asked for a task, and nothing is due that needs it.
fn is_spare(task: &Task) -> bool {
    task.reason() == Reason::Reads
}

/// How a reserved task ended.
enum Ended {
    Done,
    /// It failed permanently, and is not picked again before something changes; what nobody asked
    /// for rests, and is decided anew.
    Quarantined(Error),
}

impl Engine {
    /// Runs the most urgent compaction of some keyspace; false if none is due.
    pub(super) fn compact_one(&self) -> Result<bool> {
        let Some(reserved) = self.reserve_compaction() else { return Ok(false) };
        let work = Work::Compaction(reserved.tree.id);
        self.run_reserved(reserved, |ended| self.noting_retries(work, ended)).map(|_| true)
    }

    /// The shape of a keyspace as deciders see it, with what running jobs hold of it.
    pub(super) fn shape_of(
        &self,
        root: &Root,
        id: KeyspaceId,
        reserved: Reserved,
    ) -> Option<Shape> {
        #[cfg(test)]
        self.jobs.shapes.fetch_add(1, Ordering::Relaxed);
        let state = root.keyspaces.get(id)?;
        let Reserved { mut busy, mut damaged, jobs } = reserved;
        if !busy.is_empty() {
            // Tables of other keyspaces do not concern this tree: its deciders ask whether anything
            // of it is busy or damaged at all.
            let taken = |uid: &TableUid| busy.contains(uid) || damaged.contains(uid);
            let own: BTreeSet<TableUid> =
                state.version.tables().map(|table| table.meta().uid).filter(taken).collect();
            busy.retain(|uid| own.contains(uid));
            damaged.retain(|uid| own.contains(uid));
        }
        // After the version is pinned: H47. No policy asks for the free space yet.
        let shape = state.shape(busy, self.shared.snapshots.live());
        let (cache_bytes, table_unit) = (self.cache_bytes_of_jobs, self.table_unit);
        Some(Shape { damaged, jobs, cache_bytes, table_unit, ..shape })
    }

    /// The most urgent task of a keyspace that can be done now, with so much room on the device.
    pub(super) fn due(
        &self,
        state: &mut JobTable,
        root: &Root,
        id: KeyspaceId,
        device: &DeviceSpace,
    ) -> Due {
        self.due_by(state, root, id, device, |options| options.compaction)
    }

    /// What is due in a keyspace only because its writers rest: all of it belongs into the last
    /// level.
    fn due_at_rest(
        &self,
        state: &mut JobTable,
        root: &Root,
        (id, current): (KeyspaceId, &SuperVersion),
        device: &DeviceSpace,
    ) -> Due {
        // They may have come back since the last look.
        if !state.rests.get_mut(&id).is_some_and(|watch| watch.rests(current)) {
            return Due::Nothing;
        }
        match self.due_by(state, root, id, device, |options| options.compaction.with_one_level()) {
            // Nobody needs it.
            Due::Short(_) => Due::Nothing,
            Due::Task(due) if due.2.stretch.is_some() => Due::Nothing,
            due => due,
        }
    }

    /// What is due in a keyspace by a policy.
    fn due_by(
        &self,
        state: &mut JobTable,
        root: &Root,
        id: KeyspaceId,
        device: &DeviceSpace,
        policy: impl Fn(&Options) -> CompactionPolicy,
    ) -> Due {
        let Some(keyspace) = root.keyspaces.get(id) else { return Due::Nothing };
        if state.quarantine.blocked_reason(keyspace).is_some() {
            return Due::Nothing;
        }
        let Some(shape) = self.shape_of(root, id, state.reserved(id)) else { return Due::Nothing };
        // It may have come since the last look at the snapshots, and go before the next one.
        state.oldest_snapshot = state.oldest_snapshot.or(shape.snapshots.first().copied());
        let mut due = Due::Nothing;
        let compaction = policy(&shape.options);
        let options = Options { compaction, ..(*shape.options).clone() };
        let by_policy = Shape { options: Arc::new(options), ..shape.clone() };
        for task in compaction::policy_of(compaction).pick(&by_policy) {
            let wanted = match compaction == shape.options.compaction && !is_spare(&task) {
                true => Wanted::Due,
                false => Wanted::Spare,
            };
            match self.fit_in_some_form(state, device, &shape, task, wanted) {
                (task, Fit::Fits(cost)) => return Due::Task(Box::new((shape, task, cost))),
                (_, Fit::Waits) => due = Due::Waits,
                (_, Fit::Short(needed)) if matches!(due, Due::Nothing) => due = Due::Short(needed),
                (_, Fit::Short(_)) => {}
            }
        }
        due
    }

    /// Whether something is due in a keyspace that only its own running jobs keep back.
    pub(super) fn is_due_behind_jobs(
        &self,
        state: &mut JobTable,
        root: &Root,
        id: KeyspaceId,
    ) -> bool {
        let Some(keyspace) = root.keyspaces.get(id) else { return false };
        if state.quarantine.blocked_reason(keyspace).is_some() {
            return false;
        }
        self.shape_of(root, id, state.reserved_by_damage()).is_some_and(|shape| {
            let tasks = compaction::policy_of(shape.options.compaction).pick(&shape);
            tasks.iter().any(|task| !is_spare(task))
        })
    }

    /// Why no compaction can relieve the stall of a keyspace's writers.
    pub(super) fn compaction_blocked_by(&self, root: &Root, tree: &Tree) -> Option<Error> {
        let keyspace = root.keyspaces.get(tree.id)?;
        let device = DeviceSpace::default();
        let mut state = self.jobs.state.lock();
        if state.has_running_job(tree.id) {
            return None;
        }
        let failing = state.retries.lasting(Work::Compaction(tree.id));
        match self.due(&mut state, root, tree.id, &device) {
            Due::Task(_) | Due::Waits => return failing,
            Due::Nothing => {}
            // The worker that looks next drops the lists; then it knows.
            Due::Short(_) if !state.lists.is_empty() && state.short_of_space.is_none() => {
                return None;
            }
            Due::Short(needed) => return Some(self.does_not_fit(&mut state, &device, needed)),
        }
        state.quarantine.blocked_reason(keyspace).or_else(|| state.quarantine.damage_in(tree.id))
    }

    /// The keyspaces in which something may be due: what was picked from the others last was
    /// nothing, and they have not changed since. Every one gets its turn: those after the one that
    /// was served last come first. Beside them, how often space was found short so far.
    fn candidates(&self) -> (Vec<KeyspaceId>, u64) {
        self.look_at_snapshots();
        let state = self.jobs.state.lock();
        let last = state.last_compacted;
        let mut ids: Vec<KeyspaceId> = state.to_look_at.iter().copied().collect();
        let first = ids.partition_point(|&id| Some(id) <= last);
        ids.rotate_left(first);
        (ids, state.shortages)
    }

    /// Schedules all keyspaces for another pick if the oldest snapshot was released: deletes become
    /// due when no snapshot protects them, in any keyspace. The release itself wakes no worker; the
    /// first one that notices it wakes the others.
    pub(super) fn look_at_snapshots(&self) {
        {
            let mut state = self.jobs.state.lock();
            let (_, oldest_snapshot) = self.shared.snapshots.summary();
            if state.oldest_snapshot == oldest_snapshot {
                return;
            }
            state.oldest_snapshot = oldest_snapshot;
            let ids: Vec<KeyspaceId> = self.trees.lock().keys().copied().collect();
            state.to_look_at.extend(ids);
        }
        self.shared.wake_workers();
    }

    /// Has all keyspaces looked at again for compactions that are due.
    pub(crate) fn look_at_all(&self) {
        let ids: BTreeSet<KeyspaceId> = self.trees.lock().keys().copied().collect();
        self.jobs.look_at(ids);
    }

    /// Picks a task and reserves its inputs.
    fn reserve_compaction(&self) -> Option<Reservation> {
        let (candidates, shortages) = self.candidates();
        if candidates.is_empty() {
            self.note_space(shortages, None);
            return None;
        }
        let device = DeviceSpace::default();
        let mut short_of_space = None;
        for id in candidates {
            let work = Work::Compaction(id);
            let tree = self.trees.lock().get(&id).cloned();
            // Let go after the lock: it may be the last to hold it.
            let current = tree.as_ref().map(|tree| tree.pin());
            let mut state = self.jobs.state.lock();
            let (Some(tree), Some(current)) = (tree, &current) else {
                state.to_look_at.remove(&id);
                continue;
            };
            if state.retries.rests(work, clock::now_nanos()).is_some() {
                continue;
            }
            // Under the lock: an edit is current before its keyspace is to be looked at again.
            let root = self.set.current();
            let mut due = self.due(&mut state, &root, id, &device);
            let is_at_rest = matches!(due, Due::Nothing);
            if is_at_rest {
                due = self.due_at_rest(&mut state, &root, (id, current), &device);
            }
            let due = match due {
                Due::Task(due) => *due,
                Due::Nothing => {
                    state.to_look_at.remove(&id);
                    if !state.has_running_job(id) {
                        state.retries.done(work);
                    }
                    continue;
                }
                Due::Waits => continue,
                Due::Short(needed) => {
                    // Once for all: it asks every keyspace what the next log segment needs.
                    if short_of_space.is_none() {
                        short_of_space = Some(self.does_not_fit(&mut state, &device, needed));
                    }
                    continue;
                }
            };
            let Some(keyspace) = root.keyspaces.get(id) else { continue };
            if !state.begin(id) {
                continue;
            }
            state.last_compacted = Some(id);
            return Some(Reservation::new(&mut state, tree, due, keyspace, is_at_rest));
        }
        if short_of_space.is_some() && self.delete_spares() {
            // At once again, not after the pause, and nobody is refused before that (H18).
            self.shared.wake_workers();
            return None;
        }
        self.note_space(shortages, short_of_space);
        None
    }

    /// Records whether a compaction waits for space, as found by a search that began after
    /// `shortages`: a concurrent search may have found one that this one did not see. Stalled
    /// writers are woken if that changed.
    fn note_space(&self, shortages: u64, short: Option<Error>) {
        let now = short.is_some();
        let before = {
            let mut state = self.jobs.state.lock();
            if !now && state.shortages != shortages {
                return;
            }
            state.shortages += u64::from(now);
            std::mem::replace(&mut state.short_of_space, short)
        };
        if before.is_some() != now {
            self.update_pressure();
            self.shared.announce_progress();
        }
    }

    /// Runs a reserved task and releases its inputs. `note` gets the outcome before stalled writers
    /// are woken to see it.
    fn run_reserved(
        &self,
        mut reserved: Reservation,
        note: impl FnOnce(Result<Ended>) -> Result<Ended>,
    ) -> Result<Ended> {
        let _cause = on_behalf_of(match reserved.task {
            Task::Sentinel(_) => Cause::Sentinels,
            _ => Cause::Compaction,
        });
        // There may be more to do beside this task.
        self.shared.wake_workers();
        let result = match sched::catch_panic("a compaction", || self.execute(&mut reserved)) {
            Ok(()) => Ok(Ended::Done),
            Err(error) => sched::catch_panic("a look at what a compaction met", || {
                self.quarantine_cause(&reserved, error)
            }),
        };
        let result = note(result);
        let Reservation { tree, task, job, keyspace, outputs, spending, is_at_rest, .. } = reserved;
        // Its inputs give back what it took: from here on that is free, and no longer taken.
        let space = self.jobs.space_lock.lock();
        drop(keyspace);
        let reclaimed = sched::catch_panic("the removal of a compaction's inputs", || {
            self.reclaim();
            Ok(())
        });
        {
            let mut state = self.jobs.state.lock();
            state.give_back(tree.id, &task, &outputs, job.as_ref(), &spending);
            state.end(tree.id);
            assert!(state.merges_at_rest >= usize::from(is_at_rest), "it was counted");
            state.merges_at_rest -= usize::from(is_at_rest);
            state.to_look_at.insert(tree.id);
        }
        drop(space);
        self.update_pressure_of(&tree);
        self.shared.announce_progress();
        self.shared.wake_workers();
        reclaimed.and(result)
    }

    /// Quarantines what made a task fail with `error`, if a retry could not help.
    ///
    /// # Errors
    /// `error`, if that is for the store to bear.
    fn quarantine_cause(&self, reserved: &Reservation, error: Error) -> Result<Ended> {
        match error.kind() {
            // Nobody waits for it, and what is due goes on: it is no error of the store's.
            ErrorKind::Conflict if is_spare(&reserved.task) => {
                self.shared.counters.compactions_refused.add(1);
                Ok(Ended::Quarantined(error))
            }
            ErrorKind::Conflict => Ok(self.quarantine_refused(reserved, error)),
            ErrorKind::Corruption | ErrorKind::NotFound => self.quarantine_damaged(reserved, error),
            _ => Err(error),
        }
    }

    /// Reads the inputs of a task that failed with `error`, and puts those into quarantine that
    /// are damaged or missing.
    ///
    /// # Errors
    /// `error`, if all inputs are sound: then something else is wrong. The device's, if it fails
    /// to read one, which says nothing about the table.
    fn quarantine_damaged(&self, reserved: &Reservation, error: Error) -> Result<Ended> {
        let id = reserved.tree.id;
        let inputs: BTreeSet<TableUid> = reserved.task.input_uids().collect();
        let mut first = None;
        // Nobody but the task has taken any of them away.
        let root = self.set.current();
        let Some(keyspace) = root.keyspaces.get(id) else { return Err(error) };
        for table in keyspace.version.tables().filter(|t| inputs.contains(&t.meta().uid)) {
            if self.jobs.is_closed(id) {
                return Err(crate::state::health::closed_error());
            }
            match table.verify() {
                Ok(_) => {}
                Err(damage)
                    if matches!(damage.kind(), ErrorKind::Corruption | ErrorKind::NotFound) =>
                {
                    let mut state = self.jobs.state.lock();
                    state.quarantine.add_table(id, table.meta().uid, damage.clone());
                    first.get_or_insert(damage);
                }
                Err(failed) => return Err(failed),
            }
        }
        first.map(Ended::Quarantined).ok_or(error)
    }

    fn quarantine_refused(&self, reserved: &Reservation, error: Error) -> Ended {
        self.shared.counters.compactions_refused.add(1);
        let refused = Error::with_source(
            ErrorKind::Conflict,
            format!(
                "keyspace {:?} is not compacted until its tables or options change, because a \
                 compaction was refused ({error}); {}: report it, and try compact_range",
                reserved.tree.name,
                match reserved.outputs.is_empty() {
                    true => "nothing was changed",
                    false => "what it had installed by then stays",
                }
            ),
            error,
        );
        let from = reserved.from.clone();
        self.jobs.state.lock().quarantine.refuse(reserved.tree.id, from, refused.clone());
        Ended::Quarantined(refused)
    }

    fn execute(&self, reserved: &mut Reservation) -> Result<()> {
        let id = reserved.tree.id;
        let Some(state) = &reserved.keyspace else { return Ok(()) };
        let counters = &self.shared.counters;
        let merge = match &reserved.task {
            Task::Move(task) => {
                let edit = execute::move_edit(id, &state.version, task)?;
                self.install_outputs(edit, &[], None)?;
                counters.trivial_moves.add(1);
                return Ok(());
            }
            Task::Rotate(task) => {
                let edit = execute::rotate_edit(id, &state.version, task)?;
                return self.install_outputs(edit, &[], None);
            }
            Task::Merge(merge) | Task::Sentinel(SentinelTask { merge, .. }) => merge,
        };
        let claim = match &reserved.task {
            Task::Sentinel(sentinel) => Some(sentinel.interval.clone()),
            _ => None,
        };
        let stretch = reserved.spending.stretch;
        let policy = compaction::policy_of(reserved.shape.options.compaction);
        let level = merge.output.level;
        let entries = execute::entries_of(&state.version, merge, claim.as_ref())?;
        let mut table = TableOptions::of_level(id, &state.options, level, self.shared.hash_seed);
        table.bloom_bits = policy.filter_bits(&reserved.shape, level, entries);
        let spec = MergeSpec {
            keyspace: id,
            task: merge.clone(),
            plan: policy.plan(&reserved.shape, merge),
            snapshots: reserved.shape.snapshots.clone(),
            table,
            warm_up: state.options.warm_up,
            // Between stretches there are none.
            lists: if stretch.is_none() { self.foresee(id, merge) } else { Foreseen::default() },
            stretch_bytes: stretch.map(|stretch| stretch.bytes),
            claim,
        };
        let job = CompactionJob::new(self.job_context()?, &state.version, spec)?;
        if stretch.is_some() {
            reserved.keyspace = None;
        }
        self.execute_merge(reserved, job, level)
    }

    /// Runs a merge into `level`, and installs it.
    fn execute_merge(
        &self,
        reserved: &mut Reservation,
        mut job: CompactionJob,
        level: Level,
    ) -> Result<()> {
        let (id, gives_way) = (reserved.tree.id, is_spare(&reserved.task));
        let counters = &self.shared.counters;
        // What nobody asked for gives way to writers that wait, of any keyspace.
        let gives_up = || {
            self.jobs.is_closed(id) || gives_way && self.jobs.stalled.load(Ordering::Relaxed) > 0
        };
        let mut told = JobStats::default();
        let finished = loop {
            let finished = self.run_job(&mut job, Some(&reserved.spending), &gives_up)?;
            if !finished.goes_on {
                break finished;
            }
            let stats = finished.stats;
            self.install_stretch(reserved, &mut job, finished)?;
            self.count_merge(reserved, level, &mut told, stats);
            // Stretches may be as short as steps.
            if gives_up() {
                job.abandon();
                return Err(crate::state::health::closed_error());
            }
            self.run_urgent();
        };
        let stats = finished.stats;
        self.install_outputs(finished.edit, &finished.outputs, None)?;
        if reserved.spending.stretch.is_some() {
            self.give_back(|| drop(job));
        }
        counters.compactions.add(1);
        self.count_stretches(reserved);
        if matches!(reserved.task, Task::Sentinel(_)) {
            counters.sentinels.add(1);
            counters.sentinel_bytes.add(stats.bytes_written);
        }
        self.count_merge(reserved, level, &mut told, stats);
        Ok(())
    }

    /// Counts what a merge into `level` has installed since it `told` of it.
    fn count_merge(
        &self,
        reserved: &Reservation,
        level: Level,
        told: &mut JobStats,
        stats: JobStats,
    ) {
        let (counters, more) = (&self.shared.counters, stats.since(told));
        counters.compaction_bytes.add(more.bytes_written);
        counters.compaction_bytes_read.add(more.bytes_read);
        reserved.tree.compacted[level].fetch_add(more.bytes_written, Ordering::Relaxed);
        reserved.tree.shadowed[level].fetch_add(more.entries_shadowed, Ordering::Relaxed);
        counters.blocks_handed_over.add(more.blocks_handed_over);
        counters.blocks_unasked.add(more.blocks_unasked);
        counters.compaction_nanos.add(more.nanos);
        counters.entries_dropped.add(more.entries_shadowed + more.deletes_dropped);
        counters.masked_bytes_dropped.add(more.masked_bytes_dropped);
        *told = stats;
    }

    /// Brings a key range of a keyspace down to one run.
    pub(crate) fn compact_range(
        &self,
        tree: &Arc<Tree>,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> Result<()> {
        self.flush(tree)?;
        let lower = lower.as_ref().map(Vec::as_slice);
        let upper = upper.as_ref().map(Vec::as_slice);
        let (mut alone, mut in_vain) = (false, 0);
        loop {
            let seen = self.shared.progress_generation();
            // Not that other work found no space: this may need less, and its own failure ends it.
            self.shared.health.check_writable()?;
            let reserved = match self.next_in_range(tree, (lower, upper), alone)? {
                RangeStep::Done => return Ok(()),
                RangeStep::Again => continue,
                RangeStep::Wait => {
                    self.shared.wait_for_progress(seen);
                    continue;
                }
                RangeStep::Short(error) => {
                    in_vain += 1;
                    if in_vain > PATIENCE {
                        return Err(error);
                    }
                    self.shared.wait_for_progress(seen);
                    continue;
                }
                RangeStep::Run(reserved) => reserved,
            };
            let has_company = || self.jobs.state.lock().spending().len() > 1;
            let had_company = has_company();
            match self.run_reserved(*reserved, |ended| ended) {
                Ok(Ended::Done) => self.note_job(Ok(())),
                Ok(Ended::Quarantined(error)) => return Err(error),
                Err(error) if error.kind() == ErrorKind::NoSpace && self.delete_spares() => {}
                // Of two that go as they come each may have what the other needs.
                Err(error)
                    if error.kind() == ErrorKind::NoSpace
                        && in_vain < PATIENCE
                        && (had_company || !self.jobs.state.lock().spending().is_empty()) =>
                {
                    (alone, in_vain) = (true, in_vain + 1);
                }
                Err(error) => {
                    self.note_job(Err(error.clone()));
                    return Err(error);
                }
            }
        }
    }

    /// Picks and reserves the next step of a compaction that a user asked for; `alone`: while no
    /// other merge runs.
    fn next_in_range(
        &self,
        tree: &Arc<Tree>,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        alone: bool,
    ) -> Result<RangeStep> {
        let device = DeviceSpace::default();
        let mut state = self.jobs.state.lock();
        let root = self.set.current();
        let reserved = state.reserved(tree.id);
        let Some(keyspace) = root.keyspaces.get(tree.id) else { return Ok(RangeStep::Done) };
        let Some(shape) = self.shape_of(&root, tree.id, reserved) else {
            return Ok(RangeStep::Done);
        };
        let policy = compaction::policy_of(shape.options.compaction);
        let task = match policy.pick_range(&shape, lower, upper) {
            RangePick::Done => return Ok(RangeStep::Done),
            RangePick::Wait => {
                let damage = state.quarantine.damage_in(tree.id);
                let damage = damage.filter(|_| !state.has_running_job(tree.id));
                return damage.map_or(Ok(RangeStep::Wait), Err);
            }
            RangePick::Task(task) => task,
        };
        let has_company = !state.spending().is_empty();
        if alone && has_company {
            return Ok(RangeStep::Wait);
        }
        match self.fit_in_some_form(&state, &device, &shape, task, Wanted::Asked) {
            (_, Fit::Short(needed)) => {
                let error = self.does_not_fit(&mut state, &device, needed);
                drop(state);
                // What other merges end with is known when they have.
                match (self.delete_spares(), has_company) {
                    (true, _) => Ok(RangeStep::Again),
                    (false, true) => Ok(RangeStep::Short(error)),
                    (false, false) => Err(error),
                }
            }
            (_, Fit::Waits) => Ok(RangeStep::Wait),
            (task, Fit::Fits(cost)) => {
                if !state.begin(tree.id) {
                    return Err(crate::state::health::closed_error());
                }
                let (due, tree) = ((shape, task, cost), Arc::clone(tree));
                let reserved = Reservation::new(&mut state, tree, due, keyspace, false);
                Ok(RangeStep::Run(Box::new(reserved)))
            }
        }
    }
}

/// How often a compaction that a user asked for tries again because others took the space.
const PATIENCE: u32 = 64;

/// A step of a compaction that a user asked for.
enum RangeStep {
    Done,
    /// Something has changed: look again.
    Again,
    /// For another job.
    Wait,
    /// The same, but there may be no room then either.
    Short(Error),
    Run(Box<Reservation>),
}

#[cfg(test)]
mod tests;
