//! Space that is kept back, so that a full device is noticed while something is prepared and never
//! in the middle of it.
//!
//! A log segment is only prepared if what it will carry can become tables, these can be compacted
//! with what is due already, and all edits can be recorded; a compaction only starts if its outputs
//! fit beside the next flush. So writes end with `NoSpace` while there is still room to get out:
//! flushes and compactions go on, and a keyspace can be dropped. Files are counted as bytes are:
//! a file system may run out of inodes first.
//!
//! Tables that a merge reads are there until it has ended, so that one of whole runs may need as
//! much room as all of them have. One that does not leave as much to writers as it takes itself is
//! done *in stretches* (`stretches`): each brings a part of the outputs into the tree and frees
//! inputs. What it needs is bounded by tables, not by runs, and that is what is kept back for it.
//! One that does not even fit so, because level 0 has more runs than it had when its segment was
//! admitted, goes on with fewer of these; and what a user asks for on a store that is full goes as
//! far as it comes, at last with the two oldest runs. Writers leave what these take, now and once
//! more is flushed, so that who compacts and deletes gets out of a full store.
//!
//! Nothing is reserved on the device: others can take the space. Then the job that finds none fails
//! with `NoSpace`, removes what it wrote, and is repeated (`retries`): later, but as safe. A device
//! that does not know what it has left is taken as having enough.
//!
//! Invariants: (1) what is kept back for a log segment is at least what the most urgent compaction
//! of every keyspace needs, and the least that a user may ask for, as the tree is when the segment
//! is prepared (what becomes due behind it may seldom need some segments more, and waits then until
//! what its error names is free); (2) a refusal names what both the refused work and the next log
//! segment need: once so much is free, writes go on; (3) while a merge writes its outputs, what the
//! next log segment needs falls by as much, so that it is refused only if it was before (but for
//! what goes as it comes: its next stretch is kept back anew when one is installed); (4) what moves
//! while it is counted is counted twice, not left out: memtables, then tables, then what is free;
//! (5) a merge in stretches takes at any time at most: a stretch ([`Stretch::space`]: its bytes,
//! and the table that is open at its end; where the output run has inputs, in which no cut lies,
//! twice its bytes, one of these and what lies over it), the tables of all input runs but that of
//! its output that lie over one key (with what lies over one of the output's, no more than the run
//! has), the rounding of all its outputs to whole units, and an edit for each stretch, which
//! describes anew one table of each run; and a base of the version log has room beside it, as
//! beside every merge (`stretches` says why), but for what masks add to that base, some tens of
//! bytes for each of these tables: where a directory has just so much, the job ends with `NoSpace`
//! after a stretch, and is repeated.
//!
//! Source: ARCHITECTURE §8.

use std::cell::OnceCell;
use std::ops::Bound;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::Level;
use crate::base::memory::Category;
use crate::compaction::policy::RangePick;
use crate::compaction::policy::fewer_runs::of_fewer_runs;
use crate::compaction::policy_of;
use crate::compaction::task::Task;
use crate::db::engine::Engine;
use crate::db::job_table::{JobTable, Reserved};
use crate::db::space::{
    BASE_BYTES_PER_TABLE, Cost, EDIT_BYTES, EDIT_BYTES_PER_NAME, Fit, Free, Space, Spending,
    Stretch, edit_bytes, need_of, outputs_of, whole,
};
use crate::db::stretches::{
    can_be_cut, cost_as_it_goes, cost_in_stretches, level_0_in_stretches, next_as_it_goes,
};
use crate::options::Options;
use crate::version::keyspaces::KeyspaceVersion;
use crate::version::root::Root;
use crate::version::shape::Shape;

/// Bytes of the version log that the next edits of flushes, of options and of lists may take, and
/// those of small merges; those of large ones count with the merge
/// ([`edit_bytes`](crate::db::space::edit_bytes)).
pub(super) const EDITS_BYTES: u64 = 32 << 10;

/// What a table takes besides its blocks: filter, index, properties and footer of a small one. An
/// estimate from above.
const TABLE_BYTES: u64 = 1 << 10;

/// Bytes per hole of a buffer list in a base of the version log, which is two keys. An estimate
/// from above for keys of up to 100 bytes.
const BASE_BYTES_PER_HOLE: u64 = 256;

/// Files that a new base of the version log takes: the log, and the root before it replaces the old
/// one.
const BASE_FILES: u64 = 2;

/// Bytes of a full level 0, and of its merge in a small tree: with the smallest base level, or
/// where levels collect runs, with as much again, because what lies below comes along if it is
/// smaller.
fn full_level_0_bytes(options: &Options) -> (u64, u64) {
    let (runs, below) = match options.compaction.sizes_if_any() {
        Some(sizes) => (sizes.l0_trigger, Some(sizes.base_level_bytes)),
        None => (options.compaction.runs().runs_per_level, None),
    };
    let batch = options.write_buffer_bytes.saturating_mul(runs as u64);
    (batch, batch.saturating_add(below.unwrap_or(batch)))
}

/// Who wants a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Nobody, but reads would gain by it.
    Spare,
    /// The policy: the tree is not in shape without.
    Due,
    /// A user asked for it.
    Asked,
}

/// What the refusal of a log segment is about.
const SEGMENT: &str = "the next log segment, its flush and the compaction that is due";

/// What the refusal of a compaction is about.
const COMPACTION: &str = "a compaction, the next flush and the next log segment";

/// What comes with the next log segment.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    own_bytes: u64,
    /// The tables of all memtables and of what the segment carries.
    flush: Space,
}

/// What a device has left for compactions: counted when it is first asked for, which takes a look
/// at all memtables and tables, and then the same for all keyspaces.
#[derive(Default)]
pub(super) struct DeviceSpace {
    counted: OnceCell<Counted>,
}

/// What has to fit beside a compaction, and what is free.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// A flush of all memtables, and the version log.
    pub(super) beside: Space,
    /// With what the next log segment needs besides compactions that are due.
    pub(super) beside_segment: Space,
    pub(super) free: Free,
}

/// What a task needs at least: in stretches, if that is less.
fn least_need_of(shape: &Shape, task: &Task) -> Space {
    cost_in_stretches(shape, task).map_or_else(|| need_of(shape, task), |cost| cost.need)
}

/// What a compaction of all needs that a user asks for, in the form that needs least, or the next
/// one: where writers leave so much, a full store can get out of being full. Nothing where no part
/// of it can be installed before its end.
pub(super) fn least_asked_of(shape: &Shape) -> Space {
    if shape.options.slot_room().is_some() {
        return Space::default();
    }
    let all = Bound::Unbounded;
    let picked = policy_of(shape.options.compaction).pick_range(shape, all, all);
    let least = match picked {
        RangePick::Task(task) => of_fewer_runs(shape, &task).pop().unwrap_or(task),
        RangePick::Wait | RangePick::Done => return next_as_it_goes(shape),
    };
    let need = cost_as_it_goes(shape, &least).map(|cost| cost.need);
    let whole =
        || if can_be_cut(shape, &least) { need_of(shape, &least) } else { Space::default() };
    need.unwrap_or_else(whole).max(next_as_it_goes(shape))
}

/// Whether a task has outputs.
fn writes_tables(task: &Task) -> bool {
    !matches!(task, Task::Move(_) | Task::Rotate(_))
}

impl Engine {
    /// What the device has left.
    pub(super) fn free_space(&self) -> Free {
        // A device that cannot say is treated as one that does not know: the write will tell.
        let Ok(storage) = self.storage() else { return Free::default() };
        let space = storage.free_space();
        // What comes is like what is there.
        let mean = |keyspace: &KeyspaceVersion| {
            let tables = (keyspace.version.table_count() + keyspace.version.list_counts().0) as u64;
            keyspace.version.description_bytes().div_ceil(tables.max(1))
        };
        let root = self.set.current();
        let means = root.keyspaces.iter().filter(|_| space.areas.is_some()).map(|k| mean(k));
        let description_bytes = means.max().unwrap_or(0).max(BASE_BYTES_PER_TABLE);
        Free { space, description_bytes }
    }

    /// What the version log may need: the next edits, which may trim every table of a list, and a
    /// base beside the old log. That names every place of a table, in the tree and in a list, and
    /// every hole.
    pub(super) fn versions_need(root: &Root) -> Space {
        let (mut tables, mut in_lists, mut holes, mut described) = (0, 0, 0, 0);
        for version in root.keyspaces.iter().map(|keyspace| &keyspace.version) {
            let (listed, of_lists) = version.list_counts();
            tables += version.table_count() + listed;
            in_lists += listed;
            holes += of_lists;
            described += version.description_bytes();
        }
        // More where keys are long.
        let described = described.max(BASE_BYTES_PER_TABLE * tables as u64);
        let base = described + BASE_BYTES_PER_HOLE * holes as u64;
        let trims = EDIT_BYTES_PER_NAME * in_lists as u64;
        let versions = EDITS_BYTES + trims + base;
        // Where it has an area, that is compared with what an edit has to leave room for.
        let base = base.max(root.base_bytes());
        Space { versions, base, files: BASE_FILES, ..Space::default() }
    }

    /// What flushing all memtables would write, if `carried_bytes` more came to them. An estimate
    /// from above: memtables are larger than their tables.
    fn flush_need(&self, carried_bytes: u64) -> Space {
        let bytes = self.shared.accountant.used(Category::Memtables).saturating_add(carried_bytes);
        let (mut memtables, mut memtable_bytes, mut table_bytes) = (0, u64::MAX, u64::MAX);
        // What comes is like what is there, or would fill all memtables evenly.
        let mut shares = Vec::new();
        for tree in self.all_trees() {
            let active = tree.memtable_bytes().0;
            let current = tree.peek();
            let options = &current.options;
            memtables += current.immutables.len() as u64 + 1;
            memtable_bytes = memtable_bytes.min(options.write_buffer_bytes);
            shares.push((active + options.write_buffer_bytes, options.write_buffer_bytes.max(1)));
            // No policy cuts a flush into smaller tables.
            table_bytes = table_bytes.min(options.table_bytes);
        }
        // Where a table takes whole units, the worst case, all of it in the smallest memtables,
        // would ask for more units than there are bytes to come. A flush that finds none after all
        // waits for merges.
        let in_units = self.storage().is_ok_and(|storage| storage.log_bytes().is_some());
        memtables += if in_units {
            let all: u64 = shares.iter().map(|(share, _)| share).sum();
            let part = |&(share, buffer): &(u64, u64)| {
                (u128::from(carried_bytes) * u128::from(share) / u128::from(all.max(1))) as u64
                    / buffer
            };
            shares.iter().map(part).sum()
        } else {
            carried_bytes / memtable_bytes.max(1)
        };
        let files = memtables + bytes / table_bytes.max(1);
        let tables = bytes.saturating_add(files.saturating_mul(TABLE_BYTES));
        Space { tables, files, ..Space::default() }
    }

    /// What the next log segment takes and what comes to tables with it. To be asked for before the
    /// root: a flush that ends between the two is counted twice then, and not left out.
    fn arriving(&self) -> Arriving {
        let segment =
            self.writer.as_ref().map(|writer| writer.wal.next_segment_need()).unwrap_or_default();
        Arriving { own_bytes: segment.own_bytes, flush: self.flush_need(segment.carried_bytes) }
    }

    /// Bytes that the next log segment takes of the log's area.
    pub(super) fn arriving_log_bytes(&self) -> u64 {
        let need = self.writer.as_ref().map(|writer| writer.wal.next_segment_need());
        need.unwrap_or_default().own_bytes
    }

    /// Gives the space of lists back if a flush would leave none for the edit that does so.
    pub(super) fn drop_lists_for_flush(&self) {
        if self.jobs.state.lock().lists.is_empty() {
            return;
        }
        let needed = self.flush_need(0).plus(Self::versions_need(&self.set.current()));
        if !self.free_space().covers(needed) {
            self.delete_spares();
        }
    }

    /// What the next log segment needs besides the compactions that are due: itself, the tables of
    /// what it carries and of all memtables, a compaction of these tables, and the edits.
    fn segment_base_need(&self, arriving: Arriving, root: &Root) -> Space {
        let Arriving { own_bytes, flush } = arriving;
        let cache_bytes = self.cache_bytes_of_jobs;
        let options = || root.keyspaces.iter().map(|keyspace| &keyspace.options);
        let table_bytes = options().map(|options| options.table_bytes_beside(cache_bytes));
        let fit = options().all(|options| options.slot_room().is_some());
        let compacted = outputs_of(flush.tables, table_bytes.min().unwrap_or(u64::MAX), fit);
        // Edits of these flushes, and of the merges that each of them may make due, come before
        // that of the compaction, and their tables into a base.
        let versions = flush.files.saturating_mul(2 * EDIT_BYTES + BASE_BYTES_PER_TABLE);
        Space { log: own_bytes, versions, files: 1, ..Space::default() }
            .plus(flush)
            .plus(compacted)
            .plus(Self::versions_need(root))
    }

    /// What the compaction that is due in a keyspace needs, or the next one of level 0, or one of a
    /// full level 0 into the smallest base level: whichever needs most.
    fn due_need_of(&self, state: &mut JobTable, root: &Root, keyspace: &KeyspaceVersion) -> Space {
        let options = &keyspace.options;
        let of_bytes = |level_0: u64, all: u64| {
            let table_bytes = options.table_bytes_beside(self.cache_bytes_of_jobs);
            let fit = options.slot_room().is_some();
            let outputs = outputs_of(all, table_bytes, fit);
            // Tables that fill their slots are not cut.
            let tables = match fit {
                true => all,
                false => all.min(level_0_in_stretches(options, level_0, all)),
            };
            let versions = edit_bytes(outputs.files, outputs.files);
            Space { tables, versions, ..outputs }
        };
        let (batch, with_below) = full_level_0_bytes(options);
        let full_level_0 = of_bytes(batch, with_below);
        if state.quarantine.blocked_reason(keyspace).is_some() {
            return full_level_0;
        }
        // Also what runs: it is due, and what it has taken already is known.
        let damaged = state.quarantine.damaged();
        let reserved = Reserved { busy: damaged.clone(), damaged, jobs: Vec::new() };
        let Some(shape) = self.shape_of(root, keyspace.id, reserved) else { return full_level_0 };
        let policy = policy_of(options.compaction);
        let picked = policy.pick(&shape);
        let due = picked.iter().find(|task| writes_tables(task));
        let due = due.map(|task| least_need_of(&shape, task));
        let all = policy.level_0_merge_bytes(&shape);
        let level_0 = of_bytes(shape.levels[Level::ZERO].bytes().min(all), all);
        let asked = least_asked_of(&shape);
        full_level_0.max(level_0).max(due.unwrap_or_default()).max(asked)
    }

    /// What the next log segment needs.
    fn segment_need(&self, state: &mut JobTable, arriving: Arriving, root: &Root) -> Space {
        let mut due = Space::default();
        for keyspace in root.keyspaces.iter() {
            let most = whole(keyspace, self.cache_bytes_of_jobs);
            if due.max(most) != due {
                due = due.max(self.due_need_of(state, root, keyspace).min(most));
            }
        }
        let sum = |of: fn(&Spending) -> Space| {
            state.spending().iter().map(|merge| of(merge)).fold(Space::default(), Space::plus)
        };
        let (running, owed) = (sum(|merge| merge.need), sum(Spending::owed));
        // A merge that runs is among what is due, and has taken a part already.
        self.segment_base_need(arriving, root).plus(due.max(running).minus(running.minus(owed)))
    }

    /// Refuses a log segment whose entries might find no space.
    ///
    /// Locks: space, jobs.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn check_space_for_segment(&self) -> Result<()> {
        self.shortage().map_or(Ok(()), |why| Err(Error::new(ErrorKind::NoSpace, why)))
    }

    /// Bytes of tables that the next log segment needs, one of `segment_bytes`: it is refused while
    /// less is free.
    ///
    /// Locks: jobs.
    pub(super) fn kept_back_bytes(&self, segment_bytes: u64) -> u64 {
        let (mut arriving, root) = (self.arriving(), self.set.current());
        if self.writer.is_none() {
            // Who opens the store to write finds a segment that is begun, and needs the next.
            arriving.flush = self.flush_need(2 * segment_bytes);
        }
        let needed = self.segment_need(&mut self.jobs.state.lock(), arriving, &root);
        needed.tables.saturating_add(self.free_space().rounding(needed))
    }

    /// Why the next log segment is refused, if it is.
    ///
    /// Locks: space, jobs.
    fn shortage(&self) -> Option<String> {
        let (arriving, root) = (self.arriving(), self.set.current());
        // Most of the time there is much more than anything could need.
        let most = root.keyspaces.iter().map(|keyspace| whole(keyspace, self.cache_bytes_of_jobs));
        let most = most.fold(Space::default(), Space::plus);
        let most = self.segment_base_need(arriving, &root).plus(most);
        if self.free_space().covers(most) {
            return None;
        }
        // No merge gives back what it took between the two.
        let _space = self.jobs.space_lock.lock();
        let (arriving, root) = (self.arriving(), self.set.current());
        let needed = self.segment_need(&mut self.jobs.state.lock(), arriving, &root);
        let free = self.free_space();
        (!free.covers(needed)).then(|| free.refusal(needed, SEGMENT, &self.path))
    }

    /// The error of some work that found no space, for writers who have to wait for that: one that
    /// names what they need, if that is more than there is.
    pub(super) fn naming_need(&self, error: &Error) -> Error {
        match self.shortage() {
            Some(why) => Error::with_source(ErrorKind::NoSpace, why, error.clone()),
            None => error.clone(),
        }
    }

    pub(super) fn count(&self, device: &DeviceSpace) -> Counted {
        *device.counted.get_or_init(|| {
            if self.free_space().is_unlimited() {
                return Counted::default();
            }
            let (arriving, flush) = (self.arriving(), self.flush_need(0));
            let root = self.set.current();
            let beside = flush.plus(Self::versions_need(&root));
            let beside_segment = self.segment_base_need(arriving, &root).max(beside);
            Counted { beside, beside_segment, free: self.free_space() }
        })
    }

    /// Whether the outputs of a task fit beside the next flush and what running merges have still
    /// to write: in one piece, if writers may go on meanwhile, or else in stretches.
    pub(super) fn fit(
        &self,
        state: &JobTable,
        device: &DeviceSpace,
        shape: &Shape,
        task: &Task,
    ) -> Fit {
        if !writes_tables(task) {
            return Fit::Fits(Cost::default());
        }
        let Counted { beside_segment, free, .. } = self.count(device);
        let stretch = self.options.debug.stretch_bytes.filter(|_| state.lists.is_empty());
        let stretch = stretch.filter(|_| can_be_cut(shape, task));
        let stretch = stretch.map(|bytes| Stretch { bytes, ..Stretch::default() });
        if free.is_unlimited() {
            return Fit::Fits(Cost { need: Space::default(), stretch });
        }
        let left = state.spending().iter().map(|merge| merge.left());
        let left = left.fold(Space::default(), Space::plus);
        let fit = |cost: Cost| Self::fit_of(state, self.count(device), cost);
        let whole = Cost { need: need_of(shape, task), stretch };
        // Lists go first: there may be room for all of it then. And until it has ended writers may
        // bring as much as it takes.
        let at_ease = whole.need.plus(whole.need).plus(beside_segment).plus(left);
        if !state.lists.is_empty() || free.covers(at_ease) {
            return fit(whole);
        }
        fit(cost_in_stretches(shape, task).unwrap_or(whole))
    }

    /// Whether a task at this cost fits beside the next flush and what running merges have still to
    /// write.
    fn fit_of(state: &JobTable, Counted { beside, free, .. }: Counted, cost: Cost) -> Fit {
        let left = state.spending().iter().map(|merge| merge.left());
        let left = left.fold(Space::default(), Space::plus);
        let alone = cost.need.plus(beside);
        if free.covers(alone.plus(left)) {
            Fit::Fits(cost)
        } else if state.spending().is_empty() || !free.covers(alone) {
            Fit::Short(alone)
        } else {
            Fit::Waits
        }
    }

    /// The same of a task in the first form that fits: as it is; out of fewer runs of level 0,
    /// which takes less (`fewer_runs`), unless nobody needs it; and if a user asked for it, as it
    /// goes. With it the task in that form; of one that is short, the least that it may need.
    pub(super) fn fit_in_some_form(
        &self,
        state: &JobTable,
        device: &DeviceSpace,
        shape: &Shape,
        task: Task,
        wanted: Wanted,
    ) -> (Task, Fit) {
        let mut least = match self.fit(state, device, shape, &task) {
            Fit::Short(needed) => needed,
            fit => return (task, fit),
        };
        // Lists go first.
        if wanted == Wanted::Spare || !state.lists.is_empty() {
            return (task, Fit::Short(least));
        }
        let mut forms = vec![task];
        forms.extend(of_fewer_runs(shape, &forms[0]));
        let in_stretches = forms.iter().skip(1).map(|form| (form, None));
        let as_it_goes = forms.iter().map(|form| (form, cost_as_it_goes(shape, form)));
        let as_it_goes = as_it_goes.filter(|(_, cost)| wanted == Wanted::Asked && cost.is_some());
        for (form, cost) in in_stretches.chain(as_it_goes) {
            let fit = match cost {
                None => self.fit(state, device, shape, form),
                Some(cost) => Self::fit_of(state, self.count(device), cost),
            };
            match fit {
                Fit::Short(needed) => least = self.count(device).free.lesser(least, needed),
                fit => return (form.clone(), fit),
            }
        }
        (forms.swap_remove(0), Fit::Short(least))
    }

    /// The error of a task that is [short](Fit::Short) of space, because it needs so much.
    pub(super) fn does_not_fit(
        &self,
        state: &mut JobTable,
        device: &DeviceSpace,
        needed: Space,
    ) -> Error {
        let free = self.count(device).free;
        let (arriving, root) = (self.arriving(), self.set.current());
        let needed = needed.max(self.segment_need(state, arriving, &root));
        Error::new(ErrorKind::NoSpace, free.refusal(needed, COMPACTION, &self.path))
    }
}
