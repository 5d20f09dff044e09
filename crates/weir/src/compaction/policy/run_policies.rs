//! Dry runs of the policies that keep several runs a level: what they promise, on any tree, and
//! what they cost.

use std::collections::BTreeMap;

use super::simulation::{ENTRY_BYTES, Tree, with_options};
use crate::base::ids::{DataEpoch, Level};
use crate::base::prng::Prng;
use crate::filter::monkey::false_positives;
use crate::options::{CompactionPolicy, Filters, LeveledOptions, Options, RunsOptions};
use crate::version::shape::PartKind;

/// A tree of random runs in random levels and parts: runs over parts of the key space, gaps
/// between levels, epochs that are in order within a part only. Every run is newer in all its
/// sequence numbers than the next, as `version::check` wants it of level 0 and flushes make it.
fn random_tree(prng: &mut Prng, options: Options) -> Tree {
    let mut tree = Tree::new(options);
    let keys = 20 + prng.below(400);
    let mut seq = 1_000_000;
    let parts =
        Level::all().flat_map(|level| [PartKind::Filling, PartKind::Draining].map(|h| (level, h)));
    for (level, part) in parts {
        if prng.chance(1, if part == PartKind::Filling { 3 } else { 2 }) {
            continue;
        }
        // Also those of the other part of the level.
        let mut epoch = 1000 + prng.below(100);
        for _ in 0..prng.below(7) {
            let (start, width) = (prng.below(keys), 1 + prng.below(keys));
            let count = 1 + prng.below(width);
            let content: BTreeMap<u64, u64> = (0..count)
                .map(|_| ((start + prng.below(width)) % keys, seq - prng.below(1000)))
                .collect();
            seq -= 1000;
            let entries: Vec<(u64, u64)> = content.into_iter().collect();
            let mut rest = &entries[..];
            while !rest.is_empty() {
                let (table, later) = rest.split_at(1 + prng.below(rest.len() as u64) as usize);
                tree.add_table(level, part, DataEpoch::new(epoch), table.to_vec());
                rest = later;
            }
            epoch -= 1 + prng.below(20);
        }
        tree.rotated[level] = prng.below(3) * tree.level_bytes(level);
    }
    tree.next_epoch = DataEpoch::new(10_000);
    tree
}

fn random_options(prng: &mut Prng, compaction: CompactionPolicy) -> Options {
    let table_bytes = ENTRY_BYTES * (1 + prng.below(8));
    let sizes = LeveledOptions::default()
        .base_level_bytes(ENTRY_BYTES * (4 + prng.below(40)))
        .level_ratio(2 + prng.below(4) as u32)
        .l0_trigger(1 + prng.below(4) as usize);
    let runs = RunsOptions::default().runs_per_level(2 + prng.below(5) as usize);
    Options::default()
        .compaction(with_options(compaction, sizes, runs))
        .write_buffer_bytes(1)
        .table_bytes(table_bytes)
}

/// Goal: every policy takes over every valid tree: it comes to rest in finitely many picks, loses
/// nothing, lets nothing pass anything, and the tree is in form then. Method: 200 random trees per
/// policy, settled, flushed into, and settled again by another policy.
#[test]
fn every_policy_brings_every_tree_into_form() {
    for seed in 0..200 {
        for compaction in CompactionPolicy::ALL {
            println!("seed {seed}, {compaction}");
            let mut prng = Prng::new(seed);
            let options = random_options(&mut prng, compaction);
            let mut tree = random_tree(&mut prng, options);
            let mut content = tree.content();
            tree.check();
            tree.settle();
            tree.assert_in_form();
            assert_eq!(tree.content(), content);
            for flush in 0..10u64 {
                let entries: BTreeMap<u64, u64> =
                    (0..9).map(|i| (prng.below(300), 2_000_000 + flush * 10 + i)).collect();
                content.extend(&entries);
                tree.flush(entries);
                tree.settle();
            }
            let next =
                CompactionPolicy::ALL[prng.below(CompactionPolicy::ALL.len() as u64) as usize];
            tree.set_options(random_options(&mut prng, next));
            tree.settle();
            tree.assert_in_form();
            assert_eq!(tree.content(), content, "after {next}");
        }
    }
}

/// What a fill with unique uniform keys costs.
struct Cost {
    /// Merge bytes per flushed byte.
    writes: f64,
    /// Most runs that a read had to look at.
    runs_most: usize,
    /// Most bytes, divided by those of the live entries.
    space_most: f64,
}

fn fill(compaction: CompactionPolicy, runs_per_level: usize, flushes: u64, keys: u64) -> Cost {
    let runs = RunsOptions::default().runs_per_level(runs_per_level);
    let options = Options::default()
        .compaction(with_options(compaction, LeveledOptions::default(), runs))
        .write_buffer_bytes(64 * ENTRY_BYTES)
        .table_bytes(32 * ENTRY_BYTES);
    let mut prng = Prng::new(0x7153);
    let mut tree = Tree::new(options);
    let mut cost = Cost { writes: 0.0, runs_most: 0, space_most: 0.0 };
    let mut seq = 0;
    for flush in 0..flushes {
        let mut entries = BTreeMap::new();
        while entries.len() < 64 {
            seq += 1;
            entries.insert(prng.below(keys), seq);
        }
        tree.flush(entries);
        tree.settle();
        cost.runs_most = cost.runs_most.max(tree.run_count());
        // No multiple of a batch: else it would see trees after their merges only.
        if flush >= flushes / 2 && flush % 13 == 0 {
            let live = tree.content().len() as f64 * ENTRY_BYTES as f64;
            let bytes: u64 = Level::all().map(|level| tree.level_bytes(level)).sum();
            cost.space_most = cost.space_most.max(bytes as f64 / live);
        }
    }
    tree.check();
    cost.writes = tree.merged_bytes as f64 / tree.flushed_bytes as f64;
    println!(
        "{compaction} T {runs_per_level}, {flushes} flushes: {:.2} written per byte, {} runs, \
         space {:.2}; {}",
        cost.writes,
        cost.runs_most,
        cost.space_most,
        tree.describe()
    );
    cost
}

/// Goal: a fill with unique keys costs what the formulas say, N bytes, M bytes a flush, T runs a
/// level, L = ceil(log_T(N/M)): tiered, stepped merge and size-tiered write each byte once per
/// level and have up to T runs on each; lazy leveling writes it L - 1 times and (T + 1)/2 to T
/// times more into the last level. Method: dry runs, allowing 15 % over the formula; at least what
/// one level less would cost, since a fill begins with an empty tree.
#[test]
fn unique_keys_cost_what_the_formulas_say() {
    for (runs_per_level, flushes) in [(4, 1024), (4, 600), (2, 300), (10, 1000), (8, 512)] {
        let (t, n) = (runs_per_level as f64, flushes as f64);
        let levels = (n.ln() / t.ln() - 1e-9).ceil();
        for compaction in [
            CompactionPolicy::tiered(),
            CompactionPolicy::stepped_merge(),
            CompactionPolicy::size_tiered(),
            CompactionPolicy::lazy_leveled(),
        ] {
            let cost = fill(compaction, runs_per_level, flushes, u64::MAX);
            let (least, most) = match compaction {
                CompactionPolicy::LazyLeveled(_) => (levels - 1.0, levels - 1.0 + t),
                _ => (levels - 1.0, levels),
            };
            println!("formula {least:.2} to {most:.2}");
            assert!(cost.writes <= most * 1.15, "{compaction} {} over {most}", cost.writes);
            assert!(cost.writes >= least * 0.85, "{compaction} {} under {least}", cost.writes);
            let runs_most = runs_per_level * levels as usize + 1;
            assert!(cost.runs_most <= runs_most, "{compaction}: {} runs", cost.runs_most);
        }
    }
}

/// Goal: with Monkey, the trees that the policies really make have about as many filter bits as
/// with uniform filters (within a fifth, because a run is given its bits before the tree knows how
/// many runs its level will have), and lookups of absent keys pass fewer filters. Method: fills; at
/// rest the bits of every run as the policy would choose them now, against a uniform division of
/// the same sum.
#[test]
fn monkey_beats_uniform_filters_in_every_tree() {
    for compaction in CompactionPolicy::ALL {
        for (flushes, t) in
            [37, 150, 333, 800].into_iter().flat_map(|f| [2, 4, 8, 10].map(|t| (f, t)))
        {
            let sizes = LeveledOptions::default().base_level_bytes(256 * ENTRY_BYTES);
            let runs = RunsOptions::default().runs_per_level(t as usize);
            let options = Options::default()
                .compaction(with_options(compaction, sizes.level_ratio(t), runs))
                .filters(Filters::Monkey)
                .bloom_bits([8.0])
                .write_buffer_bytes(64 * ENTRY_BYTES)
                .table_bytes(32 * ENTRY_BYTES);
            let mut tree = Tree::new(options);
            let mut prng = Prng::new(flushes);
            for flush in 0..flushes {
                let keys = (0..64).map(|i| (prng.next_u64(), flush * 64 + i));
                tree.flush(keys.collect());
                tree.settle();
            }
            let runs = tree.filters();
            let entries: f64 = runs.iter().map(|(n, _)| n).sum();
            let average = runs.iter().map(|(n, bits)| n * bits).sum::<f64>() / entries;
            let passes: f64 = runs.iter().map(|(_, bits)| false_positives(*bits)).sum();
            let uniform = runs.len() as f64 * false_positives(average);
            println!(
                "{compaction} T {t}, {flushes} flushes, {} runs: {average:.2} bits, \
                 {passes:.4} pass, uniform {uniform:.4}",
                runs.len()
            );
            assert!((average - 8.0).abs() < 1.6, "{compaction}: {average} bits of 8");
            let alike = runs.iter().all(|(_, bits)| (bits - average).abs() < 1e-6);
            assert!(alike || passes < uniform, "{compaction}: {passes} of {uniform}");
        }
    }
}

/// Goal: a store that is overwritten in place does not grow with the number of writes: space stays
/// within what T runs a level may hold, and in lazy leveling within 15 % of 1 + 1/T. Method: 1,500
/// flushes over 4,000 keys, 62 flushes' worth: a batch of 16 flushes that overwrite each other is a
/// little less than a quarter of them.
#[test]
fn overwriting_keeps_space_bounded() {
    for (compaction, space, writes) in [
        (CompactionPolicy::tiered(), 6.0, 5.0),
        (CompactionPolicy::stepped_merge(), 6.0, 5.0),
        (CompactionPolicy::size_tiered(), 6.0, 5.0),
        (CompactionPolicy::lazy_leveled(), 1.25 * 1.15, 6.0 * 1.15),
    ] {
        let cost = fill(compaction, 4, 1500, 4000);
        assert!(cost.space_most <= space, "{compaction}: space {:.2}", cost.space_most);
        assert!(cost.writes <= writes, "{compaction}: {:.2} written per byte", cost.writes);
    }
}
