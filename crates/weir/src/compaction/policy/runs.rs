//! What the policies that merge whole runs share: `tiered`, `lazy_leveled`, `size_tiered` and
//! `stepped_merge`.
//!
//! Such a policy looks at the tree as a list of runs, newest first, and merges neighbours in that
//! list. Not here: which ones (one file per policy), levels of one run (`leveled`).
//!
//! Sentinel runs are not in that list: a merge takes what it passes of them (`sentinels`).
//!
//! Invariants: (1) inputs are whole runs without a busy table, and neighbours in age (H23, H48);
//! (2) the output stands in the list where its inputs stood: in the level of its oldest input, or
//! deeper as long as no other run lies between (runs that a job has taken count, so what the job
//! writes cannot be passed); (3) in its level it is newer than every run that stays there (H22);
//! (4) every merge leaves fewer runs or deeper ones, so a tree without writes comes to rest; (5) no
//! two jobs conflict (`conflicts`): where nobody builds a sentinel, idle neighbours are enough.

use std::ops::Bound;

use crate::base::ids::{DataEpoch, Level, TableUid};
use crate::base::table_meta::TableMeta;
use crate::compaction::policy::conflicts::Picks;
use crate::compaction::policy::deletes::{deletes_hide_nothing, rewrite, rewrite_deletes};
use crate::compaction::policy::filters::{TreeForm, filter_bits};
use crate::compaction::policy::geometry::{
    Chosen, KeyBounds, Placed, filling_runs, level_bytes, newest_epoch, placed, placed_data,
};
use crate::compaction::policy::merge_back::{merge_back_first, merge_parts_back};
use crate::compaction::policy::{Plan, Policy, Pressure, RangePick, plan, sentinels};
use crate::compaction::task::{MergeTask, MoveTask, Reason, RunSlice, Task};
use crate::version::shape::{RunId, Shape};

/// A run is as large as others if it has at least this part of their bytes: 3/4. Merges that drop
/// overwritten entries make runs of one level differ by less.
const ALIKE_NUMERATOR: u64 = 3;
const ALIKE_DENOMINATOR: u64 = 4;

/// What is a policy's own, of those that merge whole runs.
pub(super) trait RunsPolicy: Send + Sync {
    /// Adds the merges that are due, most urgent first. No level has a draining part.
    fn pick_runs(&self, shape: &Shape, picker: &mut Picker<'_>);

    /// The tree that the policy makes, for the filters: `t` runs make a level full, and are as much
    /// larger than those of the level above. As it stands a level at rest has one less.
    fn form(&self, t: f64) -> TreeForm {
        TreeForm { ratio: t, above: t - 1.0, last: t - 1.0 }
    }

    /// The runs that count as load, and how many start a compaction. As it stands the level with
    /// the most runs pulls the spring that level 0 pulls in a leveled tree.
    fn load(&self, shape: &Shape) -> Pressure {
        let most = Level::all().map(|level| count_runs(shape, level)).max().unwrap_or(0);
        Pressure { l0_runs: most, l0_trigger: runs_max(shape), ..Pressure::default() }
    }

    /// As [`Policy::level_0_merge_bytes`].
    fn level_0_merge_bytes(&self, shape: &Shape) -> u64 {
        shape.levels[Level::ZERO].bytes()
    }

    /// What is wrong with the form of a tree at rest; one sentence each.
    fn check_form(&self, shape: &Shape) -> Vec<String>;
}

/// A policy that merges whole runs, with all that such policies do alike.
pub(crate) struct OfRuns<P>(pub(crate) P);

impl<P: RunsPolicy> Policy for OfRuns<P> {
    fn pick(&self, shape: &Shape) -> Vec<Task> {
        if let Some(tasks) = merge_parts_back(shape) {
            return tasks;
        }
        let mut picker = Picker { shape, picks: Picks::new(shape) };
        self.0.pick_runs(shape, &mut picker);
        picker.pick_sentinels();
        picker.finish()
    }

    fn pick_range(&self, shape: &Shape, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> RangePick {
        merge_back_first(shape).unwrap_or_else(|| pick_range(shape, lower, upper))
    }

    fn plan(&self, shape: &Shape, merge: &MergeTask) -> Plan {
        plan::by_size(shape, merge)
    }

    fn level_0_merge_bytes(&self, shape: &Shape) -> u64 {
        self.0.level_0_merge_bytes(shape)
    }

    fn filter_bits(&self, shape: &Shape, level: Level, entries: u64) -> f32 {
        filter_bits(shape, level, entries, self.0.form(runs_max(shape) as f64))
    }

    /// Debt, the bytes of all full levels (each is written once), does not slow writers: it comes
    /// in bursts as large as the level that is merged, and the runs that wait for such a merge show
    /// it in time.
    fn pressure(&self, shape: &Shape) -> Pressure {
        let full = Level::all().filter(|&level| is_full(shape, level));
        let debt_bytes = full.map(|level| level_bytes(shape, level)).fold(0, u64::saturating_add);
        Pressure { debt_bytes, ..self.0.load(shape) }
    }

    fn check(&self, shape: &Shape) -> Vec<String> {
        let mut violations = check_order(shape);
        violations.extend(sentinels::check(shape));
        violations.extend(self.0.check_form(shape));
        violations
    }
}

/// All runs from a level down but sentinels, newest first: the order of reading.
pub(super) fn runs_from(shape: &Shape, level: Level) -> Vec<Placed<'_>> {
    level.to_last().flat_map(|level| placed_data(shape, level)).collect()
}

/// The deepest level with a run.
pub(super) fn deepest_in_use(shape: &Shape) -> Option<Level> {
    Level::all().rev().find(|&level| !filling_runs(shape, level).is_empty())
}

/// How many runs a level has, as far as they count as load.
pub(super) fn count_runs(shape: &Shape, level: Level) -> usize {
    if level == Level::ZERO { shape.l0_flushed_runs() } else { filling_runs(shape, level).len() }
}

/// The same of the whole tree.
pub(super) fn count_all(shape: &Shape) -> usize {
    Level::all().map(|level| count_runs(shape, level)).sum()
}

/// How many runs make a level full.
pub(super) fn runs_max(shape: &Shape) -> usize {
    shape.options.compaction.runs().runs_per_level.max(2)
}

/// Whether a level has as many runs as it may, or more.
pub(super) fn is_full(shape: &Shape, level: Level) -> bool {
    count_runs(shape, level) >= runs_max(shape)
}

/// The full levels, most urgent first: by how full they are; of equal ones the upper goes first.
pub(super) fn full_levels(shape: &Shape) -> Vec<Level> {
    let mut levels: Vec<Level> = Level::all().filter(|&level| is_full(shape, level)).collect();
    levels.sort_by_key(|&level| std::cmp::Reverse(count_runs(shape, level)));
    levels
}

/// Whether `bytes` are at least about as many as `others`.
pub(super) fn is_as_large(bytes: u64, others: u64) -> bool {
    bytes.saturating_mul(ALIKE_DENOMINATOR) >= others.saturating_mul(ALIKE_NUMERATOR)
}

/// Rule: where the output of a whole level goes, below which nothing is taken along: to the next
/// level; past empty ones to the first with runs, if it is as large as the smallest run there. So a
/// tree with a gap (left by a policy that fills levels from below) becomes one without.
pub(super) fn append_level(shape: &Shape, level: Level) -> Level {
    let batch = level_bytes(shape, level);
    let next = level.next().unwrap_or(Level::LAST);
    let Some(first) = next.to_last().find(|&l| !filling_runs(shape, l).is_empty()) else {
        return next;
    };
    let smallest = placed(shape, first).map(|run| run.bytes()).min().unwrap_or(0);
    if is_as_large(batch, smallest) { first } else { next }
}

/// The state of one `pick`.
pub(super) struct Picker<'a> {
    shape: &'a Shape,
    picks: Picks<'a>,
}

impl Picker<'_> {
    /// Adds a merge of these runs, which are neighbours in age, with what they pass of sentinels,
    /// if none is busy. Whether it did.
    pub(super) fn merge(
        &mut self,
        runs: &[Placed<'_>],
        output_level: Level,
        reason: Reason,
    ) -> bool {
        let (inputs, output_level) = inputs_of(self.shape, runs, output_level);
        self.merge_chosen(&inputs, output_level, reason)
    }

    /// Adds a merge of these tables, newest first, if none is busy and nothing is in the way.
    fn merge_chosen(&mut self, inputs: &[Chosen<'_>], level: Level, reason: Reason) -> bool {
        if inputs.is_empty() || self.picks.any_busy(inputs) {
            return false;
        }
        let merge = merge_of(self.shape, inputs, level, reason);
        let may = !self.picks.conflicts(inputs, merge.output);
        if may {
            self.accept(Task::Merge(merge));
        }
        may
    }

    /// Adds a move of a run, the oldest of its level, to a deeper one above all that is older, if
    /// it is idle and passes no sentinel. Whether it did.
    pub(super) fn move_to(&mut self, run: Placed<'_>, level: Level, reason: Reason) -> bool {
        let (shape, chosen) = (self.shape, [run.whole()]);
        if sentinels::any(shape) || self.picks.any_busy(&chosen) {
            return false;
        }
        let input = run.whole().slice();
        let epoch = epoch_in(shape, level, std::slice::from_ref(&input));
        let output = RunId::filling(level, epoch);
        let may = !self.picks.conflicts(&chosen, output);
        if may {
            self.accept(Task::Move(MoveTask { input, output, cursor: None, reason }));
        }
        may
    }

    /// Rule: beyond their cap sentinels go too, one run at a time and as a run of level 1, while no
    /// job takes from level 0.
    fn pick_sentinels(&mut self) {
        let shape = self.shape;
        if shape.sentinel_bytes() <= shape.sentinel_bytes_max {
            return;
        }
        let mut tables = placed(shape, Level::ZERO).flat_map(|place| place.tables());
        if tables.any(|table| self.picks.is_taken(table.uid)) {
            return;
        }
        if let Some(inputs) = sentinels::run_beyond_cap(shape, self.picks.busy()) {
            self.merge_chosen(&inputs, Level::ONE, Reason::LevelBytes);
        }
    }

    /// Whether no job, also none of this pick, has a table of these runs.
    pub(super) fn are_idle(&self, runs: &[Placed<'_>]) -> bool {
        runs.iter().all(|run| run.is_idle(self.picks.busy()))
    }

    /// Adds a task.
    pub(super) fn accept(&mut self, task: Task) {
        self.picks.accept(task);
    }

    /// Whether there is no task yet.
    pub(super) fn is_empty(&self) -> bool {
        self.picks.is_empty()
    }

    /// The tasks; if there are none and nothing runs, a rewrite of what is mostly deletes.
    fn finish(self) -> Vec<Task> {
        let shape = self.shape;
        self.picks.finish(|| rewrite_deletes(shape, runs_from(shape, Level::ZERO).pop()?))
    }
}

/// The tables of these runs and those of sentinels that they pass, newest first, and the level they
/// go to. Rule: nothing of a sentinel comes into a run of level 0 (`sentinels`), so a merge there
/// that passes one takes all older runs of level 0 along, and goes to level 1.
fn inputs_of<'a>(
    shape: &'a Shape,
    runs: &[Placed<'a>],
    output_level: Level,
) -> (Vec<Chosen<'a>>, Level) {
    let mut inputs: Vec<Chosen<'a>> = runs.iter().map(|run| run.whole()).collect();
    if !sentinels::any(shape) {
        return (inputs, output_level);
    }
    let passed = sentinels::passed_by(shape, runs, output_level);
    if let Some(newest) = runs.first()
        && output_level == Level::ZERO
        && !passed.is_empty()
    {
        let older = placed_data(shape, Level::ZERO).skip_while(|place| place.id() != newest.id());
        return inputs_of(shape, &older.collect::<Vec<_>>(), Level::ONE);
    }
    inputs.extend(passed);
    inputs.sort_by_key(|chosen| chosen.place.id());
    (inputs, output_level)
}

/// A merge of whole runs, and tables of sentinel runs, newest first, into one.
fn merge_of(
    shape: &Shape,
    inputs: &[Chosen<'_>],
    output_level: Level,
    reason: Reason,
) -> MergeTask {
    let inputs: Vec<RunSlice> = inputs.iter().map(Chosen::slice).collect();
    let output = RunId::filling(output_level, epoch_in(shape, output_level, &inputs));
    MergeTask { inputs, output, cursor: None, reason }
}

/// Rule: the output has the epoch of its newest input, raised above those of the runs of its level
/// that are older but have a larger number (a leveled run keeps the epoch of its first table,
/// whatever came to it later). Runs of the output level that are no inputs are older than all
/// inputs, unless the inputs are of that level only: then their epochs are in order already.
pub(super) fn epoch_in(shape: &Shape, output_level: Level, inputs: &[RunSlice]) -> DataEpoch {
    let newest = newest_epoch(inputs);
    if inputs.iter().all(|slice| slice.run.level == output_level) {
        return newest;
    }
    let stays = |epoch| !inputs.iter().any(|s| s.run == RunId::filling(output_level, epoch));
    let staying = placed(shape, output_level).map(|p| p.run.epoch).filter(|&epoch| stays(epoch));
    staying.max().map_or(newest, |staying| newest.max(staying.next()))
}

/// Rule: a range that a user asks for is merged as whole runs, from the newest that has keys in it
/// to the oldest, with all between, into the place of the oldest. Whole runs, because what a
/// running job writes may span any gap between its inputs, and must not be passed (H23). Once one
/// run is left, its tables in the range are rewritten for the deletes that hide nothing: one
/// stretch of neighbours at a time, because an output may span what lies between two of its inputs.
/// Sentinels are runs like any other, but what is merged with them leaves level 0 (`sentinels`).
fn pick_range(shape: &Shape, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> RangePick {
    let runs: Vec<Placed<'_>> = Level::all().flat_map(|level| placed(shape, level)).collect();
    let in_range = |place: &Placed<'_>| !place.in_range(lower, upper).span.is_empty();
    let Some(newest) = runs.iter().position(in_range) else { return RangePick::Done };
    let mut oldest = runs.iter().rposition(in_range).unwrap_or(newest);
    let mut chosen = runs.get(newest..=oldest).unwrap_or_default();
    let Some(place) = chosen.last() else { return RangePick::Done };
    let mut output_level = place.level;
    if place.level == Level::ZERO && chosen.iter().any(Placed::is_sentinel) {
        oldest = runs.iter().rposition(|run| run.level == Level::ZERO).unwrap_or(oldest);
        chosen = runs.get(newest..=oldest).unwrap_or_default();
        output_level = Level::ONE;
    }
    let inputs: Vec<Chosen<'_>> = chosen.iter().map(|run| run.whole()).collect();
    let picks = Picks::new(shape);
    if picks.any_busy(&inputs) {
        return RangePick::Wait;
    }
    if chosen.len() > 1 || output_level != place.level {
        let merge = merge_of(shape, &inputs, output_level, Reason::Manual);
        if picks.conflicts(&inputs, merge.output) {
            return RangePick::Wait;
        }
        return RangePick::Task(Task::Merge(merge));
    }
    let older = runs.get(oldest + 1..).unwrap_or_default();
    let is_base = |table: &TableMeta| {
        older.iter().all(|place| place.over(KeyBounds::of(table)).span.is_empty())
    };
    let is_useless = |table: &&TableMeta| deletes_hide_nothing(shape, table) && is_base(table);
    let in_range = place.in_range(lower, upper);
    let from_first = in_range.tables().skip_while(|table| !is_useless(table));
    let uids: Vec<TableUid> = from_first.take_while(is_useless).map(|table| table.uid).collect();
    if uids.is_empty() {
        return RangePick::Done;
    }
    RangePick::Task(Task::Merge(rewrite(*place, uids, Reason::Manual)))
}

/// What holds for every tree: runs newest first.
fn check_order(shape: &Shape) -> Vec<String> {
    let mut violations = Vec::new();
    for level in Level::all() {
        let runs = filling_runs(shape, level).iter();
        let epochs: Vec<DataEpoch> = runs.map(|run| run.epoch).collect();
        if !epochs.is_sorted_by(|newer, older| newer > older) {
            violations.push(format!("the runs of level {level} are not newest first: {epochs:?}"));
        }
    }
    violations
}

/// What holds for levels that collect runs: fewer than make a level full.
pub(super) fn check_counts(shape: &Shape, levels: impl Iterator<Item = Level>) -> Vec<String> {
    let full = levels.filter(|&level| is_full(shape, level));
    full.map(|level| {
        let (count, max) = (count_runs(shape, level), runs_max(shape));
        format!("level {level} has {count} runs and is full with {max}")
    })
    .collect()
}
