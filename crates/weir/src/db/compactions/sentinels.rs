//! Moving hot ranges: when the heat of a keyspace is looked at, when a sentinel may begin, and
//! below which memtables its data lies.
//!
//! A worker that finds nothing else to do looks at what was read, several times a window: hot
//! ranges are moved behind all work that is due. Not here: which range is worth it
//! (`compaction::sentinel`), which tables a sentinel takes (`policy::sentinel_task`), the merge
//! (`compaction::execute`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Ended, Reservation};
use crate::base::clock;
use crate::base::error::{ErrorKind, Result};
use crate::base::ids::{DataEpoch, KeyspaceId};
use crate::base::interval::Interval;
use crate::base::memory::Accountant;
use crate::compaction::policy::sentinel_task;
use crate::compaction::policy_of;
use crate::compaction::sentinel::{Down, Situation, Way, Why, decide};
use crate::compaction::task::Task;
use crate::db::engine::Engine;
use crate::db::heat::evened;
use crate::db::job_table::{HeatLook, JobTable};
use crate::db::space::Fit;
use crate::db::space_checks::DeviceSpace;
use crate::heat::RangeHeat;
use crate::heat::moved::MovedRange;
use crate::options::{Options, Sentinels};
use crate::state::tree::Tree;
use crate::version::root::Root;
use crate::version::shape::Shape;

/// Looks at the heat of a keyspace within one window of its counters.
const LOOKS_PER_WINDOW: u32 = 8;

/// Fewest runs that a sentinel is built of: one run is one already.
const RUNS_MIN: usize = 2;

/// After a range was not moved the next look rests for so long, and twice as long each time.
const REST_NANOS_MIN: u64 = 100_000_000;
const REST_NANOS_MAX: u64 = 60_000_000_000;

/// How long until the next look.
fn look_nanos(options: &Options) -> Option<u64> {
    let Sentinels::On(sentinels) = options.sentinels else { return None };
    let nanos = (sentinels.window / LOOKS_PER_WINDOW).as_nanos();
    Some(u64::try_from(nanos).unwrap_or(u64::MAX).max(1))
}

/// A hot range that is going to be moved.
struct Moving {
    reserved: Reservation,
    range: MovedRange,
    /// Bytes that are written for it, an estimate.
    spent: u64,
}

/// Decisions in a row that may be overtaken by what begins or ends in the keyspace meanwhile.
const DECISIONS_MAX: usize = 3;

/// What became of a decision.
enum Decided {
    /// It is going to be done.
    Move(Box<Moving>),
    /// Nothing is worth it, or possible.
    Nothing,
    /// Something else in the keyspace began or ended meanwhile.
    Overtaken,
}

impl Engine {
    /// A root, and an epoch below those of all memtables that are not flushed in it, and of those
    /// that will be frozen: what is older in the root is data that a sentinel of that epoch may
    /// hide (H22).
    pub(super) fn below_memtables(&self, tree: &Tree) -> (DataEpoch, Arc<Root>) {
        // No epoch of this tree is drawn between the two: what was frozen before is among the
        // memtables or flushed, what is frozen after gets a higher epoch than the next.
        let (current, next) = tree.pin_with(|| self.set.epoch_below_next());
        // After them: what was flushed meanwhile is known to be newer by its epoch.
        let root = self.set.current();
        let oldest = current.immutables.iter().map(|flushable| flushable.epoch()).min();
        (oldest.and_then(DataEpoch::previous).unwrap_or(next), root)
    }

    /// Reserves a task of hot ranges that was picked from `root`; `None` if it does not fit the
    /// device, or the keyspace is closed.
    pub(super) fn reserve(
        &self,
        state: &mut JobTable,
        tree: &Arc<Tree>,
        root: &Root,
        task: Task,
    ) -> Option<Reservation> {
        let shape = self.shape_of(root, tree.id, state.reserved(tree.id))?;
        let keyspace = root.keyspaces.get(tree.id)?;
        let Fit::Fits(cost) = self.fit(state, &DeviceSpace::default(), &shape, &task) else {
            return None;
        };
        if state.quarantine.blocked_reason(keyspace).is_some() || !state.begin(tree.id) {
            return None;
        }
        Some(Reservation::new(state, Arc::clone(tree), (shape, task, cost), keyspace, false))
    }

    /// Builds a sentinel of `interval` whatever it is worth, if nothing is in the way; whether it
    /// did.
    ///
    /// # Errors
    /// Those of a compaction.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn build_sentinel(&self, tree: &Arc<Tree>, interval: Interval) -> Result<bool> {
        let reserved = {
            let mut state = self.jobs.state.lock();
            let (epoch, root) = self.below_memtables(tree);
            let shape = self.shape_of(&root, tree.id, state.reserved(tree.id));
            let task = shape.and_then(|shape| sentinel_task::build(&shape, interval, epoch, 1));
            task.and_then(|task| self.reserve(&mut state, tree, &root, task))
        };
        let Some(reserved) = reserved else { return Ok(false) };
        match self.run_reserved(reserved, |ended| ended) {
            Ok(Ended::Done) => Ok(true),
            Ok(Ended::Quarantined(error)) => Err(error),
            // It gave way to writers that wait.
            Err(error) if error.kind() == ErrorKind::Closed && !self.shared.health.is_closed() => {
                Ok(false)
            }
            Err(error) => {
                self.note_job(Err(error.clone()));
                Err(error)
            }
        }
    }

    /// Has the heat of these keyspaces looked at, if they count it.
    pub(in crate::db) fn note_heat(&self, ids: &BTreeSet<KeyspaceId>) {
        let (root, now) = (self.set.current(), clock::now_nanos());
        let mut state = self.jobs.state.lock();
        for &id in ids {
            let nanos = root.keyspaces.get(id).and_then(|keyspace| look_nanos(&keyspace.options));
            match nanos {
                None => drop(state.heat_looks.remove(&id)),
                Some(nanos) => {
                    let latest = HeatLook { at: now.saturating_add(nanos), failures: 0 };
                    let look = state.heat_looks.entry(id).or_insert(latest);
                    // The window may have become shorter.
                    if look.failures == 0 {
                        look.at = look.at.min(latest.at);
                    }
                }
            }
        }
    }

    /// Looks at the heat of keyspaces whose time has come, and moves a range if that is worth it;
    /// whether it did.
    pub(in crate::db) fn move_hot_range(&self) -> bool {
        let now = clock::now_nanos();
        let due: Vec<KeyspaceId> = {
            let state = self.jobs.state.lock();
            let due = state.heat_looks.iter().filter(|(_, look)| look.at <= now);
            let mut due: Vec<(u64, KeyspaceId)> = due.map(|(&id, look)| (look.at, id)).collect();
            // Who has waited longest comes first.
            due.sort_unstable();
            due.into_iter().map(|(_, id)| id).collect()
        };
        for id in due {
            let Some(tree) = self.trees.lock().get(&id).cloned() else {
                self.jobs.state.lock().heat_looks.remove(&id);
                continue;
            };
            let Some(moving) = self.reserve_hot(&tree, now) else { continue };
            let Moving { reserved, range, spent } = moving;
            let ended = self.run_reserved(reserved, |ended| ended);
            self.note_moving(&tree, (range, spent), ended);
            return true;
        }
        false
    }

    /// Draws the consequences of how the move of a range ended, on which so many bytes were spent.
    pub(super) fn note_moving(
        &self,
        tree: &Tree,
        (range, spent): (MovedRange, u64),
        ended: Result<Ended>,
    ) {
        let (id, current) = (tree.id, tree.pin());
        if let Some(heat) = &current.heat {
            match &ended {
                Ok(Ended::Done) => heat.note_moved(&range.from, range.to.as_deref()),
                _ => heat.take_back(spent),
            }
        }
        match ended {
            Ok(Ended::Done) => {
                let now = clock::now_nanos();
                let look = HeatLook { at: now, failures: 0 };
                self.jobs.state.lock().heat_looks.insert(id, look);
                let down = u64::from(!range.up);
                self.shared.counters.hot_merges.add(down);
                tree.note_moved(range);
                self.note_job(Ok(()));
            }
            Ok(Ended::Quarantined(_)) => self.rest_from_moving(id),
            // It gave way to writers that wait, or the keyspace closes: nothing has failed.
            Err(error) if error.kind() == ErrorKind::Closed => {
                let nanos = look_nanos(&current.options).unwrap_or(REST_NANOS_MIN);
                self.look_later(id, clock::now_nanos().saturating_add(nanos));
            }
            // What nobody asked for costs nobody anything, unless it left the store unknown.
            Err(error) if error.leaves_unknown() => self.note_job(Err(error)),
            Err(_) => {
                self.shared.counters.jobs_failed.add(1);
                self.rest_from_moving(id);
            }
        }
    }

    /// Puts the next look off until `at`.
    fn look_later(&self, id: KeyspaceId, at: u64) {
        let mut state = self.jobs.state.lock();
        let look = state.heat_looks.entry(id).or_insert(HeatLook { at, failures: 0 });
        // Another worker's attempt may have failed meanwhile: its rest stays.
        look.at = look.at.max(at);
    }

    /// Puts the next look off, for longer each time, after a range was not moved.
    fn rest_from_moving(&self, id: KeyspaceId) {
        let now = clock::now_nanos();
        let mut state = self.jobs.state.lock();
        let failures = state.heat_looks.get(&id).map_or(0, |look| look.failures) + 1;
        let rest = REST_NANOS_MIN.saturating_mul(1 << (failures - 1).min(32));
        let at = now.saturating_add(rest.min(REST_NANOS_MAX));
        state.heat_looks.insert(id, HeatLook { at, failures });
    }

    /// Decides what is worth moving in a keyspace, and reserves it; else it is looked at again
    /// later.
    fn reserve_hot(&self, tree: &Arc<Tree>, now: u64) -> Option<Moving> {
        let before = tree.pin();
        if let Some(evened) = evened(&self.shared.accountant, &before) {
            tree.update(|current| {
                // Options may have changed meanwhile, and the heat with them.
                let heats = current.heat.as_ref().zip(before.heat.as_ref());
                match heats.is_some_and(|(now, then)| Arc::ptr_eq(now, then)) {
                    true => current.clone().with_heat(Some(evened)),
                    false => current.clone(),
                }
            });
        }
        let current = tree.pin();
        let (Some(heat), Some(nanos)) = (current.heat.clone(), look_nanos(&current.options)) else {
            self.jobs.state.lock().heat_looks.remove(&tree.id);
            return None;
        };
        for _ in 0..DECISIONS_MAX {
            match self.reserve_hottest(tree, &heat, now) {
                Decided::Move(moving) => return Some(*moving),
                Decided::Nothing => break,
                Decided::Overtaken => {}
            }
        }
        self.look_later(tree.id, now.saturating_add(nanos));
        None
    }

    /// The decision is made without the lock of jobs, over which nobody else could begin or end
    /// one, and is good only if nothing has begun or changed in the keyspace meanwhile.
    fn reserve_hottest(&self, tree: &Arc<Tree>, heat: &RangeHeat, now: u64) -> Decided {
        let (reserved, is_short_of_space) = {
            let state = self.jobs.state.lock();
            (state.reserved(tree.id), state.short_of_space.is_some())
        };
        let (epoch, root) = self.below_memtables(tree);
        let shape = self.shape_of(&root, tree.id, reserved.clone());
        let decided = shape.and_then(|shape| {
            let writers_wait = self.jobs.stalled.load(Ordering::Relaxed) > 0;
            let short = (writers_wait, is_short_of_space);
            decide_for(tree, &shape, (heat, now), &self.shared.accountant, short)
                .and_then(|way| task_of(&shape, way, epoch))
        });
        let Some((task, range, spent)) = decided else { return Decided::Nothing };
        let mut state = self.jobs.state.lock();
        let (newest, taken) = (self.set.current(), state.reserved(tree.id));
        let version_in = |root: &Root| Some(Arc::clone(&root.keyspaces.get(tree.id)?.version));
        let is_same = version_in(&root)
            .zip(version_in(&newest))
            .is_some_and(|(then, now)| Arc::ptr_eq(&then, &now));
        let is_free = task.input_uids().all(|uid| !taken.busy.contains(&uid));
        let is_new = |job| !reserved.jobs.contains(job);
        if !is_same || !is_free || taken.jobs.iter().any(is_new) {
            return Decided::Overtaken;
        }
        match self.reserve(&mut state, tree, &root, task) {
            Some(reserved) => {
                // Now, so that who decides beside this job knows of it.
                heat.spend(spent);
                Decided::Move(Box::new(Moving { reserved, range, spent }))
            }
            None => Decided::Nothing,
        }
    }
}

/// What is most worth moving in a tree of this shape.
fn decide_for(
    tree: &Tree,
    shape: &Shape,
    (heat, now): (&RangeHeat, u64),
    memory: &Accountant,
    (writers_wait, is_short_of_space): (bool, bool),
) -> Option<Way> {
    let current = tree.pin();
    let Sentinels::On(options) = current.options.sentinels else { return None };
    let used = current.active.memtable.bytes();
    let situation = Situation {
        shape,
        heat: &heat.shape(now),
        memtable_left: current.options.write_buffer_bytes.saturating_sub(used),
        sentinel_bytes: shape.sentinel_bytes(),
        is_pressed: writers_wait || tree.delay_per_byte.load(Ordering::Relaxed) > 0,
        is_short_of_space,
        is_short_of_memory: memory.used_total() > memory.budget_bytes(),
    };
    decide(&situation, policy_of(shape.options.compaction), &options)
}

/// The task of a way that was chosen, what it moves, and the bytes that it writes.
fn task_of(shape: &Shape, way: Way, epoch: DataEpoch) -> Option<(Task, MovedRange, u64)> {
    match way {
        Way::Up(hot) => {
            let interval = Interval::new(&hot.from, hot.to.as_deref());
            let task = sentinel_task::build(shape, interval, epoch, RUNS_MIN)?;
            Some((task, moved(hot.from, hot.to, hot.why, true), hot.why.bytes))
        }
        Way::Down(Down { from, to, task, why, bytes }) => {
            Some((task, moved(from, to, why, false), bytes))
        }
    }
}

fn moved(from: Vec<u8>, to: Option<Vec<u8>>, why: Why, up: bool) -> MovedRange {
    let Why { benefit, cost, runs, bytes, theta: _ } = why;
    MovedRange { from, to, up, benefit, cost, runs, bytes }
}
