//! Which hot range is moved, and where: up, where all its runs become one sentinel in level 0, or
//! down, where its uppermost runs become one with what lies below them. Pure.
//!
//! A read of a range that lies in `r` runs opens `r`, and would open one: what could be saved is
//! what reads opened beyond one, counted bucket by bucket (`heat`). A range is moved if
//!
//! ```text
//! benefit > theta * cost                   both in blocks
//!           paper, formula (1)             corrected (H28)
//! benefit   scans * (L - 1) / OW * FW      opened beyond one * reach
//! cost      bytes / block                  (bytes + p * way down) / block
//! ```
//!
//! `OW`, `FW`: blocks written in the last windows, and those that fit into the memtable before its
//! flush; `OW` is 1 at least, where the paper divides by zero if nothing is written. `L`: levels.
//!
//! Opened beyond one are not the runs that buffer lists serve where nothing is handed over: what
//! they have is cached, and what was built in their place would be read from the disk, once where
//! it was built and again where it sinks.
//!
//! *Reach* is how long the range stays as it was moved, in the time that the counters stand for.
//! The next flush that brings a key of the range puts a run on top of a sentinel, and the next
//! compaction of level 0 takes both down: the flush is that of the present memtable if the range is
//! written to often, and later the more seldom it is. A range of which no write was counted is
//! given its part of what those probably have of which none was (Good and Turing: as much as those
//! have of which one was). Never is more than [`REACH_MAX`] foreseen: what is hot now may be cold
//! then.
//! *p* is the part of the way down that will be paid within that time. The *way down* writes the
//! bytes once into every level, with the rest of the tables that they meet in the first, and with
//! as much more as each deeper level is larger than the one above.
//!
//! A way down of one level saves one run of those beyond one where it makes one run of several,
//! stays until as much has been written to the range as the upper runs have of it, and has no way
//! down left to pay.
//!
//! Not here: what is counted (`heat`), how a sentinel is built and claims its range (`execute`),
//! which tables go down (`policy`, `pick_hot`).
//!
//! Invariants: (1) what lies in one run is never moved; (2) nothing is moved up of which a job has
//! a table, or over which one writes (H26); (3) nothing is moved while writers are held back, or
//! space or memory is short, nor faster than [`MOVED_SHARE`] allows; (4) sentinels have at most
//! [`SENTINEL_SHARE`] of the tree, at most the bytes that the options allow, and are in at most
//! [`SENTINEL_RUNS_MAX`] runs.
//!
//! Source: BiLSM §3.1; we differ as said above. Down: read-triggered compaction as RocksDB and
//! Pebble have it, decided by what reads opened.

use std::cmp::Reverse;
use std::ops::Bound;

use crate::base::ids::Level;
use crate::base::interval::Interval;
use crate::base::key;
use crate::base::table_meta::TableMeta;
use crate::compaction::policy::Policy;
use crate::compaction::task::{RunSlice, Task};
use crate::heat::shape::{BucketHeat, HeatShape, SAMPLE};
use crate::options::sentinels::{CostModel, HotRanges, SentinelOptions};
use crate::version::shape::{RunKind, RunShape, Shape};

/// How much farther than the time that the counters stand for anything is foreseen: BiLSM takes the
/// load for similar "within several adjacent time windows".
const REACH_MAX: f64 = 4.0;

/// Fewer reads of a bucket tell nothing: those of 4 samples.
const READS_MIN: u64 = 4 * SAMPLE;

/// Sentinels have at most this part of the tree: a little more than the tenth that is above the
/// last level anyway, and than what is hot in BiLSM's experiment.
const SENTINEL_SHARE: u64 = 8;

/// At most this part of the tree is written to move hot ranges in the time that the counters stand
/// for.
const MOVED_SHARE: u64 = 8;

/// In more runs nothing is built: each is asked by every read of what it does not claim.
const SENTINEL_RUNS_MAX: usize = 16;

/// A sentinel has at most the bytes of so many tables of `table_bytes`: level 0 waits for it. Where
/// a bucket is larger, there should be more of them.
const JOB_TABLES_MAX: u64 = 16;

/// The hottest ranges for which a task down is looked for.
const TRIED_MAX: usize = 8;

/// What a decision depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    /// The tree.
    pub(crate) shape: &'a Shape,
    /// Where it is read and written.
    pub(crate) heat: &'a HeatShape,
    /// Bytes that may be written before the active memtable is frozen.
    pub(crate) memtable_left: u64,
    /// Bytes of the sentinels that there are.
    pub(crate) sentinel_bytes: u64,
    /// Writers of this keyspace are slowed, or writers of any wait.
    pub(crate) is_pressed: bool,
    /// The device has no room for more than what must be done.
    pub(crate) is_short_of_space: bool,
    /// Memory is above its budget.
    pub(crate) is_short_of_memory: bool,
}

/// Why a range is moved, in blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Why {
    /// Blocks that reads will save.
    pub(crate) benefit: f64,
    /// Blocks that are written for it.
    pub(crate) cost: f64,
    /// What the cost was multiplied with.
    pub(crate) theta: f32,
    /// Runs that have tables over the range.
    pub(crate) runs: usize,
    /// Bytes of the range in all of them, an estimate.
    pub(crate) bytes: u64,
}

/// A range that becomes a sentinel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hot {
    /// Its first key.
    pub(crate) from: Vec<u8>,
    /// The first key behind it; `None`: there is none.
    pub(crate) to: Option<Vec<u8>>,
    pub(crate) why: Why,
}

/// A hot range, and the task by which its uppermost runs go down.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Down {
    /// The first key of the ranges that the task takes as wholes: their reads before are settled
    /// by it.
    pub(crate) from: Vec<u8>,
    /// The first key behind them, if there is one.
    pub(crate) to: Option<Vec<u8>>,
    /// The merge.
    pub(crate) task: Task,
    pub(crate) why: Why,
    /// Bytes of all that it takes, which it writes: more than the range has.
    pub(crate) bytes: u64,
}

/// What to do about hot ranges.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Way {
    /// Build a sentinel.
    Up(Hot),
    /// Merge down by a level.
    Down(Down),
}

/// What is most worth moving now, if anything is.
pub(crate) fn decide(
    situation: &Situation<'_>,
    policy: &dyn Policy,
    options: &SentinelOptions,
) -> Option<Way> {
    let goes = |way| options.ways == way || options.ways == HotRanges::Cheaper;
    let up = goes(HotRanges::Up).then(|| pick(situation, options)).flatten();
    let down = goes(HotRanges::Down).then(|| pick_down(situation, policy, options)).flatten();
    match (up, down) {
        (Some(up), Some(down)) if down.why.gain() >= up.why.gain() => Some(Way::Down(down)),
        (Some(up), _) => Some(Way::Up(up)),
        (None, down) => down.map(Way::Down),
    }
}

/// The range that is most worth a sentinel, if one is worth it.
pub(crate) fn pick(situation: &Situation<'_>, options: &SentinelOptions) -> Option<Hot> {
    let shape = situation.shape;
    let limit = (tree_bytes(shape) / SENTINEL_SHARE).min(options.bytes_max_in(&shape.options));
    let bytes_max = shape.options.table_bytes.saturating_mul(JOB_TABLES_MAX);
    let runs = shape.levels[Level::ZERO].runs();
    if runs.filter(|(_, run)| run.kind == RunKind::Sentinel).count() >= SENTINEL_RUNS_MAX {
        return None;
    }
    let totals = Totals::of(situation.heat);
    let hot = read_buckets(situation, options).filter_map(|bucket| {
        let range = Measured::of(shape, bucket);
        let bytes = range.bytes() as u64;
        let fits = situation.sentinel_bytes.saturating_add(bytes) <= limit && bytes <= bytes_max;
        if range.runs.len() < 2 || !fits || range.is_held(shape) {
            return None;
        }
        let why = range.why_up(situation, options, &totals);
        why.is_worth_it().then(|| Hot { from: bucket.from.clone(), to: bucket.to.clone(), why })
    });
    let most = limit.saturating_sub(situation.sentinel_bytes).min(shape.options.table_bytes);
    with_neighbours(hot.collect(), most)
}

/// Rule: the best range with its neighbours that are worth it too, as long as together they are no
/// larger than `bytes_max`: one job, one edit and one claim for what is read together.
fn with_neighbours(hot: Vec<Hot>, bytes_max: u64) -> Option<Hot> {
    let best = best(hot.iter().enumerate(), |(_, hot)| &hot.why)?.0;
    let (mut first, mut last) = (best, best);
    let mut why = hot.get(best)?.why;
    loop {
        let (lowest, highest) = (hot.get(first)?, hot.get(last)?);
        let below = first.checked_sub(1).and_then(|at| hot.get(at));
        let below = below.filter(|below| below.to.as_deref() == Some(&lowest.from[..]));
        let above = hot.get(last + 1);
        let above = above.filter(|above| highest.to.as_deref() == Some(&above.from[..]));
        let next = match (below, above) {
            (Some(below), Some(above)) if above.why.gain() > below.why.gain() => Some(above),
            (Some(below), _) => Some(below),
            (None, above) => above,
        };
        let Some(next) = next.filter(|next| why.bytes + next.why.bytes <= bytes_max) else {
            return Some(Hot { from: lowest.from.clone(), to: highest.to.clone(), why });
        };
        if next.from < lowest.from {
            first -= 1;
        } else {
            last += 1;
        }
        why = why.with(next.why);
    }
}

/// The task down that is most worth it, if one is.
pub(crate) fn pick_down(
    situation: &Situation<'_>,
    policy: &dyn Policy,
    options: &SentinelOptions,
) -> Option<Down> {
    let (shape, totals) = (situation.shape, Totals::of(situation.heat));
    let mut hottest: Vec<&BucketHeat> = read_buckets(situation, options).collect();
    hottest.sort_by_key(|bucket| Reverse((bucket.opened_beyond, bucket.scans)));
    let measured = hottest.into_iter().map(|bucket| Measured::of(shape, bucket));
    let down = measured.filter(|range| range.runs.len() > 1).take(TRIED_MAX).filter_map(|range| {
        let (lower, upper) = bounds_of(range.heat);
        let task = policy.pick_hot(shape, lower, upper)?;
        let bytes = bytes_written(shape, &task);
        let why = range.why_down(situation, options, &totals, (&task, bytes));
        let mut moved = heats_over(situation, &task);
        let first = moved.next().unwrap_or(range.heat);
        let last = moved.last().unwrap_or(first);
        let (from, to) = (first.from.clone(), last.to.clone());
        why.is_worth_it().then_some(Down { from, to, task, why, bytes })
    });
    best(down, |down| &down.why)
}

/// Rule: the most blocks saved for each that is written; of equals the first.
fn best<T>(candidates: impl Iterator<Item = T>, why: impl Fn(&T) -> &Why) -> Option<T> {
    candidates.reduce(|best, next| if why(&next).gain() > why(&best).gain() { next } else { best })
}

impl Why {
    /// Of both ranges together.
    fn with(self, other: Self) -> Self {
        Self {
            benefit: self.benefit + other.benefit,
            cost: self.cost + other.cost,
            theta: self.theta,
            runs: self.runs.max(other.runs),
            bytes: self.bytes + other.bytes,
        }
    }

    fn is_worth_it(&self) -> bool {
        self.benefit > f64::from(self.theta) * self.cost
    }

    fn gain(&self) -> f64 {
        self.benefit / self.cost
    }
}

/// Rule: buckets that were read often enough to tell, if anything may be moved at all.
fn read_buckets<'a>(
    situation: &Situation<'a>,
    options: &SentinelOptions,
) -> impl Iterator<Item = &'a BucketHeat> + use<'a> {
    let Situation { shape, heat, is_pressed, is_short_of_space, is_short_of_memory, .. } =
        *situation;
    let is_moving_fast = heat.moved_bytes > tree_bytes(shape) / MOVED_SHARE;
    let may_move = !is_pressed && !is_short_of_space && !is_short_of_memory && !is_moving_fast;
    let cost = options.cost;
    let buckets = if may_move { &*heat.buckets } else { &[] };
    buckets.iter().filter(move |bucket| match cost {
        CostModel::Paper => bucket.scans >= READS_MIN,
        CostModel::Corrected => bucket.scans + bucket.gets >= READS_MIN && bucket.opened_beyond > 0,
    })
}

/// Bytes of all tables.
fn tree_bytes(shape: &Shape) -> u64 {
    Level::all().map(|level| shape.levels[level].bytes()).sum()
}

/// Some neighbouring tables of a run.
fn tables_of<'a>(
    shape: &'a Shape,
    slice: &'a RunSlice,
) -> impl Iterator<Item = &'a TableMeta> + use<'a> {
    let mut runs = shape.levels[slice.run.level].runs();
    let run = runs.find(|(part, run)| (*part, run.epoch) == (slice.run.part, slice.run.epoch));
    let tables = run.into_iter().flat_map(|(_, run)| run.tables.iter().map(|(table, ())| &**table));
    let from_first = tables.skip_while(|table| slice.uids.first() != Some(&table.uid));
    from_first.take(slice.uids.len())
}

/// Bytes that a task writes, at most.
fn bytes_written(shape: &Shape, task: &Task) -> u64 {
    match task {
        Task::Merge(merge) => {
            let tables = merge.inputs.iter().flat_map(|slice| tables_of(shape, slice));
            tables.map(TableMeta::visible_bytes).sum()
        }
        Task::Move(_) | Task::Rotate(_) | Task::Sentinel(_) => 0,
    }
}

/// Rule: a way down saves a run of a bucket only if it makes one of several that have something of
/// it. What moves to where nothing of it lies is one run more below, and still as many.
fn joins_runs(shape: &Shape, task: &Task, bucket: &BucketHeat) -> bool {
    let has_it = |slice: &&RunSlice| tables_of(shape, slice).any(|table| shows(table, bucket));
    task.inputs().iter().filter(has_it).nth(1).is_some()
}

/// The buckets over what a task takes.
fn heats_over<'a>(
    situation: &Situation<'a>,
    task: &Task,
) -> impl Iterator<Item = &'a BucketHeat> + use<'a> {
    let shape = situation.shape;
    let mut hull: Option<Interval> = None;
    for slice in task.inputs() {
        for table in tables_of(shape, slice) {
            let keys = Interval::closed(&table.smallest, &table.largest);
            hull = Some(hull.map_or_else(|| keys.clone(), |hull| hull.around(&keys)));
        }
    }
    situation.heat.buckets.iter().filter(move |bucket| {
        let keys = Interval::new(&bucket.from, bucket.to.as_deref());
        hull.as_ref().is_some_and(|hull| !hull.common(&keys).is_empty())
    })
}

fn bounds_of(bucket: &BucketHeat) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let upper = bucket.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(&bucket.from), upper)
}

/// What a run has of a range.
struct RunPart<'a> {
    level: Level,
    tables: Vec<&'a TableMeta>,
    /// Estimates of the bytes of the range, and of what else the same tables have.
    inside: f64,
    outside: f64,
}

impl<'a> RunPart<'a> {
    fn of(level: Level, run: &'a RunShape, bucket: &BucketHeat) -> Option<Self> {
        let (lower, upper) = bounds_of(bucket);
        let span = run.tables.overlapping(lower, upper);
        let tables = run.tables.range(span).map(|(table, ())| &**table);
        let tables: Vec<&TableMeta> = tables.filter(|table| shows(table, bucket)).collect();
        let inside = tables
            .iter()
            .map(|table| table.visible_bytes() as f64 * part_inside(table, bucket))
            .sum();
        let all: f64 = tables.iter().map(|table| table.visible_bytes() as f64).sum();
        (!tables.is_empty()).then_some(Self { level, tables, inside, outside: all - inside })
    }
}

/// Whether a table has something of a bucket that no mask hides.
fn shows(table: &TableMeta, BucketHeat { from, to, .. }: &BucketHeat) -> bool {
    let all = Interval::closed(&table.smallest, &table.largest);
    let keys = Interval::new(from, to.as_deref()).common(&all);
    !keys.is_empty() && !table.masks.iter().any(|mask| mask.interval.includes(&keys))
}

/// The part that a bucket has of what a table shows, an estimate.
fn part_inside(table: &TableMeta, bucket: &BucketHeat) -> f64 {
    table.shown_part(&Interval::new(&bucket.from, bucket.to.as_deref()))
}

/// A range, measured in the tree.
struct Measured<'a> {
    heat: &'a BucketHeat,
    /// The runs that have tables over it, newest first.
    runs: Vec<RunPart<'a>>,
}

impl<'a> Measured<'a> {
    fn of(shape: &'a Shape, heat: &'a BucketHeat) -> Self {
        let runs = Level::all().flat_map(|level| {
            let runs = shape.levels[level].runs();
            runs.filter_map(move |(_, run)| RunPart::of(level, run, heat))
        });
        Self { heat, runs: runs.collect() }
    }

    fn bytes(&self) -> f64 {
        self.runs.iter().map(|run| run.inside).sum()
    }

    /// Rule: H26. Whether a job has a table of the range, or may write over it.
    fn is_held(&self, shape: &Shape) -> bool {
        let mut tables = self.runs.iter().flat_map(|run| &run.tables);
        let BucketHeat { from, to, .. } = self.heat;
        let is_over = |smallest: &[u8], largest: &[u8]| {
            key::compare(largest, from).is_ge()
                && to.as_deref().is_none_or(|to| key::compare(smallest, to).is_lt())
        };
        tables.any(|table| shape.busy.contains(&table.uid))
            || shape.jobs.iter().any(|job| is_over(&job.smallest, &job.largest))
    }

    /// Why the range would go up.
    fn why_up(&self, situation: &Situation<'_>, options: &SentinelOptions, totals: &Totals) -> Why {
        let block = f64::from(situation.shape.options.block_bytes.max(1));
        let (benefit, bytes) = match options.cost {
            CostModel::Paper => (self.published_benefit(situation, totals, block), self.bytes()),
            CostModel::Corrected => {
                let stay = Stay::of_sentinel(situation, totals, self.heat);
                let benefit = self.heat.opened_beyond as f64 * stay.reach;
                (benefit, self.bytes() + stay.ends * self.way_down(situation.shape))
            }
        };
        self.why(options, benefit, bytes / block)
    }

    /// Formula (1) of BiLSM.
    fn published_benefit(&self, situation: &Situation<'_>, totals: &Totals, block: f64) -> f64 {
        let Situation { shape, memtable_left, .. } = *situation;
        let levels = Level::all().filter(|&level| !shape.levels[level].is_empty()).count();
        let saved = self.heat.scans as f64 * levels.saturating_sub(1) as f64;
        saved / (totals.written_bytes / block).max(1.0) * (memtable_left as f64 / block)
    }

    /// Why its uppermost runs would go down by `task`, which writes so many bytes.
    fn why_down(
        &self,
        situation: &Situation<'_>,
        options: &SentinelOptions,
        totals: &Totals,
        (task, bytes): (&Task, u64),
    ) -> Why {
        let shape = situation.shape;
        let block = f64::from(shape.options.block_bytes.max(1));
        let of_one = 1.0 / (self.runs.len() - 1) as f64;
        let benefit = match options.cost {
            CostModel::Paper if joins_runs(shape, task, self.heat) => {
                self.published_benefit(situation, totals, block)
            }
            CostModel::Paper => 0.0,
            CostModel::Corrected => {
                // The job moves what it takes as wholes: all that is read of that gains.
                let upper = self.runs.first().map_or(0.0, |run| run.inside);
                let moved = heats_over(situation, task);
                let moved = moved.filter(|heat| joins_runs(shape, task, heat));
                let saves = |heat: &BucketHeat| {
                    heat.opened_beyond as f64 * Stay::until_written(heat, upper).reach
                };
                moved.map(saves).sum()
            }
        };
        self.why(options, benefit * of_one, bytes as f64 / block)
    }

    /// Bytes that are written until what was moved up is in the last level again, at most.
    fn way_down(&self, shape: &Shape) -> f64 {
        let ratio = f64::from(shape.options.compaction.level_sizes().level_ratio);
        let (bytes, mut above) = (self.bytes(), None::<u64>);
        let mut written = 0.0;
        for level in Level::ONE.to_last().filter(|&level| !shape.levels[level].is_empty()) {
            let level_bytes = shape.levels[level].bytes();
            let meets = match above.replace(level_bytes) {
                None => {
                    let parts = self.runs.iter().filter(|run| run.level == level);
                    parts.map(|run| run.outside).sum()
                }
                Some(above) => bytes * (level_bytes as f64 / above.max(1) as f64).min(ratio),
            };
            written += bytes + meets;
        }
        written
    }

    fn why(&self, options: &SentinelOptions, benefit: f64, cost: f64) -> Why {
        let (theta, runs) = (options.theta, self.runs.len());
        // One block at least: the edit.
        Why { benefit, cost: cost.max(1.0), theta, runs, bytes: self.bytes() as u64 }
    }
}

/// What the buckets have together.
struct Totals {
    written_bytes: f64,
    /// Writes that a bucket probably has of which none was counted.
    writes_unseen: f64,
}

impl Totals {
    fn of(heat: &HeatShape) -> Self {
        let mut totals = Self { written_bytes: 0.0, writes_unseen: 0.0 };
        let (mut writes, mut once, mut never) = (0, 0, 0);
        for bucket in &heat.buckets {
            totals.written_bytes += bucket.written_bytes as f64;
            writes += bucket.writes;
            once += u64::from((1..=SAMPLE).contains(&bucket.writes));
            never += u64::from(bucket.writes == 0);
        }
        // One more than were seen once: what was never seen is not impossible.
        let unseen = ((once + 1) * SAMPLE).min(writes);
        totals.writes_unseen = unseen as f64 / (never.max(1)) as f64;
        totals
    }

    /// Writes of a bucket, in the time that the counters stand for.
    fn writes_of(&self, bucket: &BucketHeat) -> f64 {
        if bucket.writes > 0 { bucket.writes as f64 } else { self.writes_unseen }
    }
}

/// How long a range stays as it was moved.
struct Stay {
    /// In the time that the counters stand for, at most [`REACH_MAX`].
    reach: f64,
    /// The part of its end that lies within [`REACH_MAX`].
    ends: f64,
}

impl Stay {
    /// For so many bytes, of which `written` are written in the time of the counters.
    fn for_bytes(bytes: f64, written: f64) -> Self {
        if written <= 0.0 {
            return Self { reach: REACH_MAX, ends: 0.0 };
        }
        let stay = bytes / written;
        Self { reach: stay.min(REACH_MAX), ends: (REACH_MAX / stay).min(1.0) }
    }

    /// Of a sentinel: until a flush brings a key of its range, and then until level 0 is compacted.
    fn of_sentinel(situation: &Situation<'_>, totals: &Totals, range: &BucketHeat) -> Self {
        let bytes = totals.written_bytes;
        // Bytes of the keyspace's writes until one is of this range.
        let until_first = bytes / totals.writes_of(range).max(f64::MIN_POSITIVE);
        let present = situation.memtable_left as f64;
        let options = &situation.shape.options;
        let due = options.compaction.batch_runs();
        let runs = situation.shape.levels[Level::ZERO].runs();
        let flushed = runs.filter(|(_, run)| run.kind == RunKind::Data).count();
        // Flushes after that one. Where it is far off, nobody knows how many were before it.
        let more = match until_first <= present {
            true => due.saturating_sub(flushed + 1) as f64,
            false => (due - 1) as f64 / 2.0,
        };
        let stay = until_first.max(present) + more * options.write_buffer_bytes as f64;
        Self::for_bytes(stay, bytes)
    }

    /// Of a range of a level: until as many bytes are written to it.
    fn until_written(range: &BucketHeat, bytes: f64) -> Self {
        Self::for_bytes(bytes, range.written_bytes as f64)
    }
}

#[cfg(test)]
mod tests;
