//! A compaction: input tables of several runs are merged into tables of one level.
//!
//! The job pins its inputs by their `Arc`s: they stay readable while other edits are installed. The
//! snapshots must be read after the version was pinned (H47): a snapshot taken later has a sequence
//! number above every entry of the inputs.

use std::collections::BTreeSet;
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::ids::{DataEpoch, KeyspaceId, Level, TableUid};
use crate::base::interval::Interval;
use crate::base::key::{self, Printable, Seq};
use crate::base::sched::Mutex;
use crate::base::table_meta::TableMeta;
use crate::compaction::execute::handoff::{HandOff, Rule};
use crate::compaction::execute::input::{Described, Input, cursor_over, tables_of};
use crate::compaction::execute::odd_chunk::OddChunk;
use crate::compaction::execute::outputs::{Outputs, Taken};
use crate::compaction::execute::stretch::{Cuts, Left};
use crate::compaction::execute::{
    Finished, Job, JobContext, JobStats, Progress, check_conservation, set_cursor, tally_of,
};
use crate::compaction::policy::Plan;
use crate::compaction::task::{MergeTask, Task};
use crate::merge::{MergingCursor, Retain, Tally};
use crate::options::WarmUp;
use crate::table::{ReadAhead, Table, TableOptions};
use crate::version::edit::{AddedTable, Claim, KeyspaceEdit, VersionEdit};
use crate::version::foreseen::Foreseen;
use crate::version::run::Version;
use crate::version::shape::RunId;

/// The parameters of a compaction besides its context.
pub(crate) struct MergeSpec {
    /// The keyspace of the tree.
    pub(crate) keyspace: KeyspaceId,
    /// The inputs and the output run.
    pub(crate) task: MergeTask,
    /// Where the outputs are cut, chosen by the policy.
    pub(crate) plan: Plan,
    /// Live snapshots, ascending, read after the version was pinned (H47).
    pub(crate) snapshots: Vec<Seq>,
    /// The table options of the output level.
    pub(crate) table: TableOptions,
    /// Which output blocks are inserted into the cache.
    pub(crate) warm_up: WarmUp,
    /// What becomes of the runs' buffer lists, for `WarmUp::HandOff`.
    pub(crate) lists: Foreseen,
    /// Bytes of outputs after which the merge is cut: it is installed in stretches. `None`: in one
    /// piece.
    pub(crate) stretch_bytes: Option<u64>,
    /// Only this interval is merged, and its output, a sentinel, claims it: the inputs are masked
    /// there, and all tables of older runs that overlap it are inputs.
    pub(crate) claim: Option<Interval>,
}

/// Decides whether a delete may be dropped: for ascending keys, whether no table outside the inputs
/// may hold an older entry (H9).
struct BaseTest {
    /// The smallest and the largest key of the inputs. Of keys beyond them, which inputs hold that
    /// have others than they state, nothing is known.
    bounds: Option<(Vec<u8>, Vec<u8>)>,
    /// For the newest input's run and each older one: its tables that are no inputs, between the
    /// bounds, in key order.
    older: Vec<OlderRun>,
}

struct OlderRun {
    tables: Vec<Arc<TableMeta>>,
    /// Index of the first table whose largest key is not below the last key tested.
    at: usize,
}

impl BaseTest {
    /// The runs of `version`, of both parts, from the newest input's on to older ones, without the
    /// inputs, which have keys between `bounds`. Costs nothing for the tables elsewhere: a store
    /// of small ones has many.
    fn new(version: &Version, task: &MergeTask, bounds: Option<(Vec<u8>, Vec<u8>)>) -> Self {
        let (lower, upper) = bounds.as_ref().map_or((Unbounded, Unbounded), |(first, last)| {
            (Included(first.as_slice()), Included(last.as_slice()))
        });
        let inputs = task.inputs.iter().map(|slice| slice.run);
        let newest = inputs.min().unwrap_or(RunId::filling(Level::ZERO, DataEpoch::MAX));
        let mut taken = BTreeSet::new();
        for slice in &task.inputs {
            taken.extend(slice.uids.iter().map(|&uid| (slice.run.level, uid)));
        }
        let is_input = |level: Level, uid: TableUid| taken.contains(&(level, uid));
        let mut older = Vec::new();
        for (level, parts) in version.levels().iter().skip(newest.level.get()) {
            for (part, run) in parts.runs() {
                if (RunId { level, part, epoch: run.epoch }) < newest {
                    continue;
                }
                let tables = run.tables.range(run.tables.overlapping(lower, upper));
                let tables: Vec<Arc<TableMeta>> = tables
                    .filter(|(meta, _)| !is_input(level, meta.uid))
                    .map(|(meta, _)| Arc::clone(meta))
                    .collect();
                if !tables.is_empty() {
                    older.push(OlderRun { tables, at: 0 });
                }
            }
        }
        Self { bounds, older }
    }

    /// Whether no table outside the inputs may hold an older entry of `key`. Requires: keys do not
    /// descend.
    fn is_base(&mut self, key: &[u8]) -> bool {
        let is_known = |(smallest, largest): &(Vec<u8>, Vec<u8>)| {
            key::compare(smallest, key).is_le() && key::compare(key, largest).is_le()
        };
        self.bounds.as_ref().is_none_or(is_known)
            && self.older.iter_mut().all(|run| !run.may_hold(key))
    }
}

impl OlderRun {
    fn may_hold(&mut self, key: &[u8]) -> bool {
        let passed = self.at.checked_sub(1).and_then(|i| self.tables.get(i));
        if passed.is_some_and(|table| key::compare(&table.largest, key).is_ge()) {
            // Keys descend in tables that hold others than they state: this one keeps its delete,
            // and the builder refuses it.
            return true;
        }
        while let Some(table) = self.tables.get(self.at) {
            if key::compare(&table.largest, key).is_ge() {
                return key::compare(&table.smallest, key).is_le();
            }
            self.at += 1;
        }
        false
    }
}

type DropDeletes = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// A compaction in steps.
pub(crate) struct CompactionJob {
    name: String,
    keyspace: KeyspaceId,
    task: MergeTask,
    promised: Option<Tally>,
    claim: Option<Interval>,
    /// The smallest and the largest key of the inputs.
    bounds: Option<(Vec<u8>, Vec<u8>)>,
    /// The run that may keep the last output.
    odd_chunk: Option<OddChunk>,
    retain: Retain<MergingCursor<Input>, DropDeletes>,
    outputs: Outputs,
    started: bool,
    stats: JobStats,
    /// Of a merge in stretches.
    stretches: Option<Stretches>,
}

/// How far a merge in stretches is installed.
struct Stretches {
    /// The inputs, as the tree has them.
    left: Left,
    /// What is installed of the outputs.
    written: Tally,
    /// The first key behind it.
    cut: Vec<u8>,
}

impl CompactionJob {
    /// A compaction of tables of `version`.
    ///
    /// # Errors
    /// `Conflict` if an input is not in `version`.
    pub(crate) fn new(context: JobContext, version: &Version, spec: MergeSpec) -> Result<Self> {
        let MergeSpec { keyspace, task, plan, snapshots, table, warm_up, lists, claim, .. } = spec;
        assert_inputs(&task, claim.is_some());
        let stretch_bytes = spec.stretch_bytes;
        assert!(stretch_bytes.is_none() || claim.is_none(), "a sentinel in stretches: {task:?}");
        let mut inputs: Vec<Vec<Described>> = Vec::with_capacity(task.inputs.len());
        for slice in &task.inputs {
            inputs.push(tables_of(version, slice)?);
        }
        let metas: Vec<&TableMeta> = inputs.iter().flatten().map(|(meta, _)| &**meta).collect();
        // What a sentinel reads of its inputs is known when it has been read.
        let promised = claim.is_none().then(|| tally_of(metas.iter().copied()));
        let stats = JobStats {
            bytes_read: metas.iter().map(|meta| meta.visible_bytes()).sum(),
            tables_read: metas.len() as u64,
            // A sentinel leaves most of its inputs where they are.
            masked_bytes_dropped: match claim {
                None => metas.iter().map(|meta| meta.hidden().raw_bytes).sum(),
                Some(_) => 0,
            },
            ..JobStats::default()
        };
        let bounds = bounds_of(metas.iter().copied());
        let odd_chunk = OddChunk::of(version, &task, plan.keeps, bounds.as_ref());
        let mut base = BaseTest::new(version, &task, bounds.clone());
        let drop_deletes: DropDeletes = Box::new(move |key| base.is_base(key));
        let slices = task.inputs.iter().zip(&inputs);
        let readahead = match context.merge_read_bytes {
            // A little of large tables, which hot scans have left in the cache.
            _ if claim.is_some() => ReadAhead::Scan,
            Some(window_bytes) => ReadAhead::Windows { window_bytes },
            None => ReadAhead::for_merge(inputs.len(), context.accountant.as_ref()),
        };
        let cursors =
            slices.map(|(slice, tables)| cursor_over(slice, tables, readahead, claim.as_ref()));
        let cursors: Result<Vec<_>> = cursors.collect();
        let counts = claim.is_some() || stretch_bytes.is_some();
        let counted = if counts { inputs.clone() } else { Vec::new() };
        let mut outputs = Outputs::new(context.clone(), table, plan);
        let stretches = stretch_bytes.map(|bytes| {
            outputs.cut_by(Cuts::new(bytes, of_output_run(&task, &inputs)));
            Stretches::of(&task, &inputs)
        });
        let rule = match warm_up {
            WarmUp::None => None,
            WarmUp::Incremental => Some(Rule::Overlap(Mutex::new(opened(inputs)))),
            WarmUp::HandOff => Some(Rule::Heat(lists.served)),
        };
        let hand_off = rule.zip(context.cache.clone());
        let hand_off = hand_off.map(|(rule, cache)| {
            HandOff::new(cache, rule, context.contents_bytes, context.accountant.clone())
        });
        let mut lists_of = lists.inputs.into_iter();
        let mut counted = counted.iter();
        let cursors = cursors?.into_iter().map(|cursor| {
            let lists = lists_of.next().unwrap_or_default();
            let input = Input::new(cursor, lists, hand_off.clone());
            match counted.next() {
                Some(tables) => input.counting(tables),
                None => input,
            }
        });
        let merge = MergingCursor::new(cursors.collect());
        if let Some(hand_off) = hand_off {
            outputs.hand_over(hand_off);
        }
        Ok(Self {
            name: format!(
                "{} of keyspace {keyspace} in {}",
                Task::Merge(task.clone()),
                context.storage.path()
            ),
            keyspace,
            task,
            promised,
            claim,
            bounds,
            odd_chunk,
            retain: Retain::new(merge, snapshots, drop_deletes),
            outputs,
            started: false,
            stats,
            stretches,
        })
    }

    /// Lets go of the inputs that an edit has removed. Requires: the edit of the last stretch was
    /// applied.
    pub(crate) fn let_go(&mut self) {
        self.retain.inner_mut().each_source(Input::let_go);
        if let Some(stretches) = &self.stretches {
            self.outputs.let_go_before(&stretches.cut);
        }
    }

    /// That the outputs are inside the footprint of the job, and that none has the uid of an input,
    /// whose file the edit frees.
    ///
    /// # Errors
    /// `Corruption` if an input has keys outside the bounds that its description states.
    fn check_outputs(&self) -> Result<()> {
        let outputs = self.outputs.finished();
        for output in outputs {
            let uid = output.uid;
            let mut slices = self.task.inputs.iter();
            let input = slices.find(|slice| slice.uids.contains(&uid));
            assert!(input.is_none(), "output {uid} is an input too, of {input:?}");
        }
        if let (Some((smallest, largest)), Some(first), Some(last)) =
            (&self.bounds, outputs.first(), outputs.last())
        {
            let inside = key::compare(smallest, &first.smallest).is_le()
                && key::compare(&last.largest, largest).is_le();
            if !inside {
                let (first, last) = (Printable(&first.smallest), Printable(&last.largest));
                let (from, to) = (Printable(smallest), Printable(largest));
                let what = format_args!(
                    "keys from {first} to {last} in tables that state keys from {from} to {to}; \
                     it was not installed"
                );
                return Err(Error::corruption_found(&self.name, what));
            }
        }
        Ok(())
    }

    /// Installs what was written since the last cut.
    fn end_stretch(&mut self) -> Result<Progress> {
        let counts = self.retain.counts_before();
        let cut = self.retain.key().to_vec();
        self.check_outputs()?;
        let last = self.outputs.finished().last().map(|output| &output.largest);
        if last.is_none_or(|last| *last >= cut) {
            let what = "keys that are out of order in its inputs; that was not installed";
            return Err(Error::corruption_found(&self.name, what));
        }
        let mut edit = VersionEdit::default();
        let changes = edit.keyspace(self.keyspace);
        let Some(stretches) = &mut self.stretches else {
            return Ok(Progress::Continue);
        };
        let written = tally_of(self.outputs.finished().iter().map(|table| &**table));
        stretches.written = stretches.written.plus(written);
        let read = self.retain.inner().sources().iter().map(Input::consumed);
        let read = stretches.left.cut(&self.name, &cut, read, changes)?;
        check_conservation(&self.name, Some(read), &counts, stretches.written)?;
        stretches.cut = cut;
        changes.added.extend(added_to(self.task.output, self.outputs.finished()));
        // Lists keep what is merged, for its cached blocks; here it has to go.
        changes.requests.drop = true;
        self.stats.finish(&counts, self.outputs.so_far());
        let (outputs, stats) = (self.outputs.take_stretch(), self.stats);
        Ok(Progress::Done(Box::new(Finished { edit, outputs, stats, goes_on: true })))
    }

    /// What a sentinel has read.
    fn read(&self) -> Tally {
        let contents = self.retain.inner().sources().iter().flat_map(Input::contents);
        contents.fold(Tally::default(), |sum, (_, content)| {
            sum.plus(Tally { entries: content.entries, hash: content.hash })
        })
    }

    /// Puts the inputs of a sentinel back in their places, without what it has read of them. Bytes
    /// that were hidden already in those of which nothing is left.
    ///
    /// # Errors
    /// `Corruption` if an input that was read whole is not what its description says.
    fn mask(&self, interval: &Interval, changes: &mut KeyspaceEdit) -> Result<u64> {
        let mut dropped = 0;
        for (slice, input) in self.task.inputs.iter().zip(self.retain.inner().sources()) {
            for (meta, content) in input.contents() {
                let is_whole = interval.covers(&meta.smallest, &meta.largest);
                if is_whole && meta.visible() != *content {
                    let what = format_args!(
                        "table {} has {} entries, {} were read; it was not installed",
                        meta.uid,
                        meta.visible().entries,
                        content.entries
                    );
                    return Err(Error::corruption_found(&self.name, what));
                }
                if let Some(masked) = meta.masked(interval, *content) {
                    changes.added.push(AddedTable { run: slice.run, meta: Arc::new(masked) });
                } else {
                    dropped += meta.hidden().raw_bytes;
                }
            }
        }
        Ok(dropped)
    }

    fn finish(&mut self) -> Result<Progress> {
        let counts = self.retain.counts();
        let written = tally_of(self.outputs.finished().iter().map(|table| &**table));
        let before = self.stretches.as_ref().map(|stretches| stretches.written);
        let written = written.plus(before.unwrap_or_default());
        let promised = self.promised.unwrap_or_else(|| self.read());
        check_conservation(&self.name, Some(promised), &counts, written)?;
        self.check_outputs()?;
        let mut edit = VersionEdit::default();
        let changes = edit.keyspace(self.keyspace);
        if let Some(stretches) = &self.stretches {
            stretches.left.remove(changes);
            changes.requests.drop = true;
        } else {
            for slice in &self.task.inputs {
                let RunId { level, part, .. } = slice.run;
                slice.uids.iter().for_each(|&uid| changes.remove_table_from(level, part, uid));
            }
        }
        if let Some(interval) = self.claim.clone() {
            self.stats.masked_bytes_dropped = self.mask(&interval, changes)?;
            changes.requests.taken = Some((self.task.output, interval.clone()));
            if !self.outputs.finished().is_empty() {
                changes.claims.push(Claim { run: self.task.output, interval: Some(interval) });
            }
        }
        changes.added.extend(added_to(self.task.output, self.outputs.finished()));
        if let Some(odd_chunk) = &self.odd_chunk {
            odd_chunk.keep(&mut changes.added, &mut self.task.cursor);
        }
        changes.requests.shadowed = counts.shadowed.entries;
        set_cursor(&mut edit, self.keyspace, self.task.cursor.as_ref());
        if self.claim.is_some() {
            let contents = self.retain.inner().sources().iter().flat_map(Input::contents);
            self.stats.bytes_read = contents.map(|(_, content)| content.raw_bytes).sum();
        }
        self.stats.finish(&counts, self.outputs.so_far());
        self.stats.blocks_handed_over = self.outputs.blocks_handed_over();
        self.stats.blocks_unasked = self.outputs.blocks_unasked();
        Ok(Progress::Done(Box::new(Finished {
            edit,
            outputs: self.outputs.take(),
            stats: self.stats,
            goes_on: false,
        })))
    }
}

impl Stretches {
    /// Before the first cut.
    fn of(task: &MergeTask, inputs: &[Vec<Described>]) -> Self {
        let metas = |tables: &Vec<Described>| tables.iter().map(|(meta, _)| meta.clone()).collect();
        let runs = task.inputs.iter().map(|slice| slice.run).zip(inputs.iter().map(metas));
        Self { left: Left::of(runs.collect()), written: Tally::default(), cut: Vec::new() }
    }
}

/// The inputs that are in the output run, in key order.
fn of_output_run<'a>(
    task: &'a MergeTask,
    inputs: &'a [Vec<Described>],
) -> impl Iterator<Item = &'a TableMeta> {
    let slices = task.inputs.iter().zip(inputs);
    let slices = slices.filter(|(slice, _)| slice.run == task.output);
    slices.flat_map(|(_, tables)| tables).map(|(meta, _)| &**meta)
}

/// Outputs, as an edit adds them.
fn added_to(run: RunId, outputs: &[Arc<TableMeta>]) -> impl Iterator<Item = AddedTable> + '_ {
    outputs.iter().map(move |meta| AddedTable { run, meta: Arc::clone(meta) })
}

fn opened(inputs: Vec<Vec<Described>>) -> Vec<Vec<Arc<Table>>> {
    let tables = |slice: Vec<Described>| slice.into_iter().map(|(_, table)| table).collect();
    inputs.into_iter().map(tables).collect()
}

/// That the inputs are distinct runs, newest first, and not below the output; or for a sentinel all
/// below it.
fn assert_inputs(task: &MergeTask, is_sentinel: bool) {
    assert!(task.inputs.is_sorted_by(|newer, older| newer.run < older.run), "inputs of {task:?}");
    if is_sentinel {
        let mut inputs = task.inputs.iter();
        assert!(inputs.all(|slice| slice.run > task.output), "a sentinel among {task:?}");
        return;
    }
    let lowest = task.inputs.iter().map(|slice| slice.run.level).max();
    let level = task.output.level;
    assert!(lowest <= Some(level), "a merge from level {lowest:?} up to level {level}");
}

/// The smallest and the largest key of some tables; `None` without tables.
fn bounds_of<'a>(tables: impl Iterator<Item = &'a TableMeta>) -> Option<(Vec<u8>, Vec<u8>)> {
    let bounds = tables.map(|meta| (&meta.smallest[..], &meta.largest[..]));
    let (smallest, largest) = bounds.reduce(|(smallest, largest), (first, last)| {
        let smallest = if key::compare(first, smallest).is_lt() { first } else { smallest };
        let largest = if key::compare(last, largest).is_gt() { last } else { largest };
        (smallest, largest)
    })?;
    Some((smallest.to_vec(), largest.to_vec()))
}

impl Job for CompactionJob {
    fn advance(&mut self) -> Result<Progress> {
        match self.outputs.take_from(&mut self.retain, &mut self.started)? {
            Taken::All => return self.finish(),
            Taken::Stretch => return self.end_stretch(),
            Taken::More => {}
        }
        (self.stats.bytes_written, self.stats.tables_written) = self.outputs.so_far();
        Ok(Progress::Continue)
    }

    fn abandon(&mut self) {
        self.outputs.abandon();
    }

    fn stats(&mut self) -> &mut JobStats {
        &mut self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of keys beyond the bounds that the inputs state, which older tables were not looked at
    /// for, no delete is dropped. Method: without an older table, inside and outside.
    #[test]
    fn deletes_beyond_the_bounds_stay() {
        let bounds = Some((b"b".to_vec(), b"m".to_vec()));
        let mut base = BaseTest { bounds, older: Vec::new() };
        let is_base = [b"a", b"b", b"c", b"m", b"n"].map(|key| base.is_base(key));
        assert_eq!(is_base, [false, true, true, true, false]);
    }
}
