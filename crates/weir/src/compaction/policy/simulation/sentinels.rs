//! The dry run with sentinel runs: built in the background from all that lies below them, of random
//! ranges, while the policies work.
//!
//! The model of a sentinel: the newest entry of every key of its range, out of all that is on disk,
//! becomes a table of the sentinel run that is newer than the newest flush and older than the next.
//! What it was made of is hidden from then on: the tables keep their bounds, without the entries.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::super::sentinels::check;
use super::{Entry, InFlight, Job, SimTable, Tree, Writes};
use crate::base::ids::{Level, TableUid};
use crate::base::prng::Prng;
use crate::compaction::policy::RangePick;
use crate::compaction::task::RunSlice;
use crate::options::CompactionPolicy;
use crate::version::shape::{JobFootprint, PartKind, RunId};

/// A sentinel that is being built.
pub(super) struct Build {
    /// The first and the last key.
    range: (u64, u64),
    inputs: BTreeSet<TableUid>,
    run: RunId,
}

impl Tree {
    /// Begins to build a sentinel of these keys, unless a job is in the way. With `deletes` those
    /// stay that hide nothing. Whether it did.
    fn start_sentinel(&mut self, range: (u64, u64), deletes: bool) -> bool {
        let Some(between) = self.next_epoch.previous() else { return false };
        let run = RunId::filling(Level::ZERO, between);
        let inputs: Vec<(RunId, SimTable)> = self
            .ranked_runs()
            .flat_map(|(id, run)| run.values().map(move |table| (id, table.clone())))
            .filter(|(_, table)| table.overlaps(range))
            .collect();
        let again = inputs.iter().any(|(id, _)| *id == run);
        let busy = inputs.iter().any(|(_, table)| self.busy.contains(&table.meta.uid));
        let Some((oldest, _)) = inputs.last().filter(|_| !again && !busy) else { return false };
        let hull = inputs.iter().map(|(_, table)| &table.meta);
        let footprint = JobFootprint {
            smallest: hull.clone().map(|meta| meta.smallest.clone()).min().expect("inputs"),
            largest: hull.map(|meta| meta.largest.clone()).max().expect("inputs"),
            newest: run,
            oldest: *oldest,
            output: run,
            keeps: None,
        };
        let mut jobs = self.in_flight.iter().filter_map(|job| job.shape.as_ref());
        if jobs.any(|job| job.conflicts_with(&footprint)) {
            return false;
        }
        let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
        for &(key, seq) in inputs.iter().flat_map(|(_, table)| table.entries.iter()) {
            if (range.0..=range.1).contains(&key) {
                newest.entry(key).or_insert(seq);
            }
        }
        newest.retain(|_, &mut seq| deletes || !self.is_delete(seq));
        let per_table = (self.options.table_bytes / super::ENTRY_BYTES).max(1) as usize;
        let entries: Vec<Entry> = newest.into_iter().collect();
        let outputs = entries.chunks(per_table).map(|part| self.make_table(part.to_vec()));
        let outputs = outputs.collect();
        let inputs: BTreeSet<TableUid> = inputs.iter().map(|(_, table)| table.meta.uid).collect();
        self.busy.extend(&inputs);
        let job = Job::Build(Build { range, inputs, run });
        self.in_flight.push(InFlight { job, shape: Some(footprint), outputs });
        true
    }

    /// Shows a sentinel, and hides what it was made of.
    pub(super) fn install_sentinel(&mut self, build: Build, outputs: Vec<SimTable>) {
        let Build { range, inputs, run } = build;
        inputs.iter().for_each(|uid| assert!(self.busy.remove(uid)));
        for runs in self.levels.values_mut().flatten() {
            for table in runs.values_mut().flat_map(BTreeMap::values_mut) {
                if inputs.contains(&table.meta.uid) {
                    let mut entries = (*table.entries).clone();
                    entries.retain(|(key, _)| !(range.0..=range.1).contains(key));
                    table.entries = Arc::new(entries);
                }
            }
            runs.values_mut().for_each(|run| run.retain(|_, table| !table.entries.is_empty()));
            runs.retain(|_, run| !run.is_empty());
        }
        for table in outputs {
            self.sentinels.insert(run.epoch);
            self.insert(run.level, run.part, run.epoch, table);
        }
    }

    fn is_sentinel(&self, run: RunId) -> bool {
        let filling = run.level == Level::ZERO && run.part == PartKind::Filling;
        filling && self.sentinels.contains(&run.epoch)
    }

    /// What was in a sentinel leaves level 0 or stays in its run.
    pub(super) fn check_sentinels(&self, inputs: &[RunSlice], output: RunId) {
        let mut from = inputs.iter().map(|slice| slice.run).filter(|&run| self.is_sentinel(run));
        let into_level_0 = output.level == Level::ZERO && from.any(|run| run != output);
        assert!(!into_level_0, "{inputs:?} into {output:?}");
        assert!(!self.is_sentinel(output) || inputs.iter().all(|slice| slice.run == output));
    }

    /// What leaves level 0 leaves nothing older there. The inputs are gone.
    pub(super) fn check_nothing_older_above(&self, from: RunId, left: &SimTable, to: RunId) {
        if from.level > Level::ZERO || to.level == Level::ZERO {
            return;
        }
        let older = self.ranked_runs().filter(|(id, _)| id.level == Level::ZERO && *id > from);
        for (id, run) in older {
            let above = run.values().find(|table| table.overlaps(left.bounds()));
            let above = above.map(|table| &table.meta);
            assert!(above.is_none(), "{:?} of {from:?} leaves {above:?} of {id:?}", left.meta);
        }
    }
}

/// One dry run with sentinels.
struct Mixed {
    prng: Prng,
    tree: Tree,
    oracle: BTreeMap<u64, u64>,
    writes: Writes,
    keys: u64,
    seq: u64,
    built: u64,
}

impl Mixed {
    fn new(seed: u64, writes: Writes, compaction: CompactionPolicy) -> Self {
        let mut prng = Prng::new(seed);
        let mut tree = writes.tree(compaction, &mut prng);
        tree.sentinel_bytes_max = match prng.below(4) {
            0 => 0,
            1 => super::ENTRY_BYTES * prng.below(100),
            _ => u64::MAX,
        };
        let keys = 50 + prng.below(400);
        Self { prng, tree, oracle: BTreeMap::new(), writes, keys, seq: 0, built: 0 }
    }

    fn flush(&mut self) {
        let mut entries = BTreeMap::new();
        let (start, width) = self.writes.keys(self.keys, &mut self.prng);
        for _ in 0..=self.prng.below(12) {
            self.seq += 1;
            entries.insert((start + self.prng.below(width)) % self.keys, self.seq);
        }
        self.oracle.extend(&entries);
        self.tree.flush(entries);
    }

    /// A range, mostly narrow: hot.
    fn range(&mut self) -> (u64, u64) {
        let widest = if self.prng.chance(1, 4) { self.keys } else { 1 + self.keys / 10 };
        let first = self.prng.below(self.keys);
        (first, first + self.prng.below(widest))
    }

    fn start_tasks(&mut self) {
        let shape = self.tree.shape();
        let tasks = self.tree.policy.pick(&shape);
        let take = self.prng.below(tasks.len() as u64 + 1) as usize;
        tasks.into_iter().take(take).for_each(|task| self.tree.start(&shape, task));
    }

    fn start_range(&mut self) {
        let (first, last) = self.range();
        let (first, last) = (first.to_be_bytes(), last.to_be_bytes());
        let (lower, upper) = (Bound::Included(&first[..]), Bound::Included(&last[..]));
        let shape = self.tree.shape();
        if let RangePick::Task(task) = self.tree.policy.pick_range(&shape, lower, upper) {
            self.tree.start(&shape, task);
        }
    }

    fn install(&mut self) {
        if !self.tree.in_flight.is_empty() {
            let index = self.prng.below(self.tree.in_flight.len() as u64) as usize;
            self.tree.install(index);
            self.check();
        }
    }

    fn check(&self) {
        self.tree.check();
        assert_eq!(self.tree.content(), self.tree.live(&self.oracle));
    }

    /// All of level 0 and of jobs comes to rest, in form.
    fn settle(&mut self) {
        while !self.tree.in_flight.is_empty() {
            self.install();
        }
        self.tree.settle();
        self.check();
        self.tree.assert_in_form();
        assert_eq!(check(&self.tree.shape()), None);
    }

    fn run(mut self, steps: u64) -> u64 {
        for _ in 0..steps {
            match self.prng.below(16) {
                0..=3 => self.flush(),
                4..=7 => self.start_tasks(),
                8 | 9 => {
                    let (range, deletes) = (self.range(), self.prng.chance(1, 2));
                    self.built += u64::from(self.tree.start_sentinel(range, deletes));
                }
                10 if self.prng.chance(1, 3) => self.start_range(),
                11 if self.prng.chance(1, 10) => self.change_policy(),
                _ => self.install(),
            }
        }
        self.settle();
        self.built
    }

    /// Another policy takes the tree over, with its sentinels. At times it settles first.
    fn change_policy(&mut self) {
        while !self.tree.in_flight.is_empty() {
            self.install();
        }
        let policies = CompactionPolicy::ALL;
        let next = policies[self.prng.below(policies.len() as u64) as usize];
        let options = (*self.writes.tree(next, &mut self.prng).options).clone();
        self.tree.set_options(options);
        if self.prng.chance(1, 2) {
            self.settle();
        }
    }
}

/// Goal: sentinels of all sizes, built at any time beside jobs of every policy, ranges asked for by
/// users and changes of policy, are never passed: no entry lies below an older one, nothing that
/// leaves level 0 leaves anything older there, nothing of a sentinel stays in level 0 as something
/// else, and the policy comes to rest with no more sentinels than there may be. Method: random
/// trees against a map, every state checked; 140 of each kind, or as many as WEIR_DRY_RUNS says.
#[test]
fn nothing_passes_a_sentinel() {
    let seeds = std::env::var("WEIR_DRY_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(140);
    let mut built = 0;
    for seed in 0..seeds {
        let compaction = CompactionPolicy::ALL[seed as usize % CompactionPolicy::ALL.len()];
        for writes in [Writes::Wide, Writes::Narrow] {
            println!("seed {seed}, {compaction}, {writes:?}");
            built += Mixed::new(seed, writes, compaction).run(400);
        }
    }
    println!("{built} sentinels");
    assert!(built > seeds * 4, "{built} sentinels");
}

/// Goal: a sentinel is no work: a tree at rest stays at rest and slows writers as much as before
/// when some are built, below their cap. Method: every policy, trees at rest, wide flushes only.
#[test]
fn a_sentinel_causes_no_work() {
    for seed in 0..70 {
        let compaction = CompactionPolicy::ALL[seed as usize % CompactionPolicy::ALL.len()];
        println!("seed {seed}, {compaction}");
        let mut mixed = Mixed::new(seed, Writes::Wide, compaction);
        mixed.tree.sentinel_bytes_max = u64::MAX;
        (0..30).for_each(|_| mixed.flush());
        mixed.settle();
        let before = mixed.tree.shape();
        let pressure = mixed.tree.policy.pressure(&before);
        for _ in 0..5 {
            let range = mixed.range();
            if !mixed.tree.start_sentinel(range, true) {
                continue;
            }
            mixed.tree.install(0);
            let mut after = mixed.tree.shape();
            let tables = |shape: &crate::version::shape::Shape| shape.levels.clone();
            // What the sentinel has hidden altogether makes levels smaller, which may be work.
            for (level, before) in tables(&before).iter().filter(|(level, _)| *level > Level::ZERO)
            {
                after.levels[level] = before.clone();
            }
            let sentinels = after.levels[Level::ZERO].filling.runs.clone();
            let sentinels = sentinels
                .into_iter()
                .filter(|run| run.kind == crate::version::shape::RunKind::Sentinel);
            let flushed = before.levels[Level::ZERO].filling.runs.clone();
            let runs = sentinels.chain(flushed).collect();
            after.levels[Level::ZERO].filling.runs = runs;
            assert_eq!(mixed.tree.policy.pick(&after), Vec::new());
            assert_eq!(mixed.tree.policy.pressure(&after), pressure);
            assert_eq!(mixed.tree.policy.check(&after), Vec::<String>::new());
        }
    }
}
