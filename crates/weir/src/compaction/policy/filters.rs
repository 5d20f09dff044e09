//! How many filter bits a run gets, by the option `filters`, and how many more where its tables
//! will be kept beside others in a buffer list.
//!
//! Source of the latter: dLSM §V-A. A filter lets f of the absent keys through at log2(1/f) / ln 2
//! bits a key. A list over a key has r tables on average, of 0 to 2 r (r: the ratio of levels), and
//! a lookup asks the filters of all: so that as few get through as through one filter, each may let
//! f / r through, which takes log2(r) / ln 2 bits more, 4.8 at r = 10. The last level, most of the
//! data, is in no list. We differ: an average that Monkey divides is divided first, and the bits of
//! lists come on top.
//!
//! Not here: the division itself (`filter::monkey`).

use crate::base::ids::Level;
use crate::base::limits::LEVELS;
use crate::compaction::policy::geometry::level_entries;
use crate::filter::monkey::{Allocation, Runs};
use crate::version::shape::{LevelShape, RunKind, Shape};

/// Most filter bits per key: as the option `bloom_bits`.
const FILTER_BITS_MAX: f64 = 32.0;

/// Filter bits per key that a moved table may have beyond those of its new level: less than one
/// level's difference at a ratio of 4 (2.9), or every move would become a rewrite.
const SPARE_BITS_MAX: f32 = 2.5;

/// What a policy makes of a tree: from the largest run down to the smallest, each level `ratio`
/// times smaller than the next, `last` runs of the largest size and `above` of every other.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeForm {
    pub(super) ratio: f64,
    pub(super) above: f64,
    pub(super) last: f64,
}

/// Rule: the filter bits of a run with `entries` entries on `level`. What is to have no filter has
/// none in a list either.
pub(super) fn filter_bits(shape: &Shape, level: Level, entries: u64, form: TreeForm) -> f32 {
    match divided_bits(shape, level, entries, form) {
        bits if bits > 0.0 => (bits + list_bits(shape, level)).min(FILTER_BITS_MAX as f32),
        none => none,
    }
}

/// Rule: filter bits that tables of `level` have beyond those of a run, for they will be in a
/// list, among as many others as a level is larger than the one above.
fn list_bits(shape: &Shape, level: Level) -> f32 {
    let options = &shape.options;
    let filled = |&below: &Level| below > level && shape.levels[below].runs().next().is_some();
    // From level 0 tables go to the first level that there is.
    let next = match level {
        Level::ZERO => Level::all().find(filled),
        level => level.next(),
    };
    match next {
        Some(next) if options.compaction_buffer.is_on(next) => {
            let ratio = options.compaction.level_sizes().level_ratio.max(1);
            (f64::from(ratio).log2() / std::f64::consts::LN_2) as f32
        }
        _ => 0.0,
    }
}

/// Rule: the bits by the option `filters` alone. Under Monkey the tree is taken for what the policy
/// makes of it.
fn divided_bits(shape: &Shape, level: Level, entries: u64, form: TreeForm) -> f32 {
    let options = &shape.options;
    let Some(average) = options.divided_bits() else { return options.bloom_bits_at(level.get()) };
    let runs_there = shape.levels.values().flat_map(LevelShape::runs).map(|(_, run)| run);
    // A sentinel is no part of the form of a tree.
    let counted = runs_there.filter(|run| run.kind == RunKind::Data);
    let sizes = counted.map(|run| run.tables.totals().entries).chain([entries]);
    let (smallest, largest) =
        sizes.fold((entries, entries), |(min, max), size| (size.min(min), size.max(max)));
    let mut model = Vec::new();
    let mut size = largest as f64;
    while model.is_empty() || (size * 2.0 > smallest as f64 && model.len() < 2 * LEVELS) {
        let count = if model.is_empty() { form.last } else { form.above };
        model.push(Runs { entries: size, count });
        size /= form.ratio;
    }
    Allocation::of(&model, f64::from(average)).bits(entries as f64).min(FILTER_BITS_MAX) as f32
}

/// Rule: where single tables are merged, what is written becomes part of a run that the level's
/// entries make. Levels have `runs` runs each on average.
pub(super) fn filter_bits_of_levels(shape: &Shape, level: Level, entries: u64, runs: f64) -> f32 {
    let run = if level == Level::ZERO { 0 } else { level_entries(shape, level) };
    let ratio = f64::from(shape.options.compaction.level_sizes().level_ratio.max(2));
    filter_bits(shape, level, entries.max(run), TreeForm { ratio, above: runs, last: runs })
}

/// Rule: with Monkey's division, what has far more bits per key than its new level gives is
/// rewritten rather than moved. A load of ascending keys is nothing but moves: all of it would keep
/// the bits of the small run that it once was, half as many again as were to be divided.
pub(super) fn keeps_too_many_bits(shape: &Shape, from: f32, to: f32) -> bool {
    shape.options.divided_bits().is_some() && from > to + SPARE_BITS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::DataEpoch;
    use crate::base::prng::Prng;
    use crate::compaction::policy::simulation::Tree;
    use crate::filter;
    use crate::options::{CompactionBuffer, CompactionPolicy, Filters, Options};
    use crate::version::shape::PartKind;

    /// Filter bits of a run of 8 entries in level 0, in the level above the last, and in the last.
    fn bits(options: Options, policy: &str, buffer: CompactionBuffer) -> Vec<f32> {
        let policy: CompactionPolicy = policy.parse().expect("a policy");
        let mut tree = Tree::new(options.compaction(policy).compaction_buffer(buffer));
        let above_last = Level::LAST.previous().expect("a level above the last");
        for (level, epoch) in [(Level::LAST, 1), (above_last, 2), (Level::ZERO, 3)] {
            let entries = (0..8).map(|key| (key, epoch)).collect();
            tree.add_table(level, PartKind::Filling, DataEpoch::new(epoch), entries);
        }
        tree.filters().into_iter().map(|(_, bits)| bits as f32).collect()
    }

    /// Goal: dLSM §V-A. What will be in a list has log2(r) / ln 2 bits more, and so log2(r / f) /
    /// ln 2 where a run has log2(1 / f) / ln 2: 14.4 for 1 % at a ratio of 10. Method: the bits of
    /// each level with each buffer. `cascade` has no list in the last level, so that nothing of the
    /// level above it comes into one; what has no filter gets none.
    #[test]
    fn tables_of_lists_have_as_many_more_bits_as_their_number_asks_for() {
        let f: f64 = 0.01;
        let plain = (-f.log2() / std::f64::consts::LN_2) as f32;
        let listed = ((10.0 / f).log2() / std::f64::consts::LN_2) as f32;
        assert!((plain - 9.6).abs() < 0.05 && (listed - 14.4).abs() < 0.05, "{plain}, {listed}");
        let options = || Options::default().bloom_bits([plain]);
        let (off, cascade) = (CompactionBuffer::Off, CompactionBuffer::Cascade);
        let trimmed = CompactionBuffer::trimmed();
        for (policy, buffer, expected) in [
            ("gear", off, [plain, plain, plain]),
            ("gear", cascade, [listed, plain, plain]),
            ("two_phase", cascade, [listed, plain, plain]),
            ("two_phase", trimmed, [listed, listed, plain]),
            ("leveled", trimmed, [listed, listed, plain]),
        ] {
            let found = bits(options(), policy, buffer);
            let close = found.iter().zip(expected).all(|(found, bits)| (found - bits).abs() < 1e-3);
            assert!(close, "{policy}, {buffer}: {found:?}, not {expected:?}");
        }
        assert_eq!(bits(options().bloom_bits([0.0]), "gear", trimmed), [0.0; 3]);
        assert_eq!(bits(options().bloom_bits([30.0]), "gear", trimmed), [32.0, 32.0, 30.0]);
        // On top of what Monkey divides.
        let monkey = || Options::default().filters(Filters::Monkey).bloom_bits([plain]);
        let (with, without) = (bits(monkey(), "gear", trimmed), bits(monkey(), "gear", off));
        assert!((with[1] - without[1] - (listed - plain)).abs() < 1e-3, "{with:?}, {without:?}");
    }

    /// Goal: a small sentinel run is not taken for a level of small runs, whose filters Monkey
    /// would pay with bits of all others. Method: the same tree without it, with it, and with it as
    /// data.
    #[test]
    fn a_sentinel_changes_no_filter() {
        let options = Options::default().filters(Filters::Monkey).bloom_bits([8.0]);
        let mut tree = Tree::new(options.compaction(CompactionPolicy::tiered()));
        for (level, epoch, entries) in [(Level::LAST, 1, 4000), (Level::ZERO, 2, 1000)] {
            let entries = (0..entries).map(|key| (key, epoch)).collect();
            tree.add_table(level, PartKind::Filling, DataEpoch::new(epoch), entries);
        }
        let without = tree.shape();
        tree.add_table(Level::ZERO, PartKind::Filling, DataEpoch::new(3), vec![(7, 3)]);
        let as_data = tree.shape();
        let mut with = as_data.clone();
        with.levels[Level::ZERO].filling.runs[0].kind = RunKind::Sentinel;
        let bits = |shape: &Shape| {
            let form = TreeForm { ratio: 4.0, above: 3.0, last: 3.0 };
            filter_bits(shape, Level::ZERO, 1000, form)
        };
        assert!((bits(&with) - bits(&without)).abs() < f32::EPSILON, "{}", bits(&with));
        assert!((bits(&as_data) - bits(&without)).abs() > 0.01, "{}", bits(&as_data));
    }

    /// Goal: with these bits a lookup that asks r filters passes as few in vain as one that asks
    /// one, with the filters as they are. Method: ten of a list beside one of a run, absent keys.
    /// Blocks of one cache line cost more where a filter has more bits: up to 1.6 times.
    #[test]
    fn a_list_passes_what_a_run_passes() {
        let (ratio, f) = (10, 0.01f64);
        let bits = |f: f64| (-f.log2() / std::f64::consts::LN_2) as f32;
        let mut prng = Prng::new(0xd15a);
        let mut rate = |bits: f32| {
            let hashes: Vec<u64> = (0..10_000).map(|_| prng.next_u64()).collect();
            let bytes = filter::build(&hashes, bits);
            let passed = (0..200_000).filter(|_| filter::may_contain(&bytes, prng.next_u64()));
            passed.count() as f64 / 200_000.0
        };
        let run = rate(bits(f));
        let list: f64 = (0..ratio).map(|_| rate(bits(f / f64::from(ratio)))).sum();
        let as_a_run: f64 = (0..ratio).map(|_| rate(bits(f))).sum();
        println!("a run {run:.4}, a list {list:.4}, with the bits of a run {as_a_run:.4}");
        assert!(list < 1.6 * run && as_a_run > 8.0 * run, "{run}, {list}, {as_a_run}");
    }
}
