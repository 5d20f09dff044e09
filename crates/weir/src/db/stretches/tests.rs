//! What merges in stretches need: bounds against a model of them.

use super::*;
use crate::compaction::policy::cases::shape_of;
use crate::db::space_checks::least_asked_of;
use crate::options::CompactionPolicy;

/// Goal: a merge of whole runs into one of them gets an epoch between theirs; no other one does.
#[test]
fn whole_runs_merge_into_a_run_of_their_own() {
    let apart_in = |tree: &str, inputs: &[(u64, &[u64])], output: u64| {
        let shape = shape_of(CompactionPolicy::stepped_merge(), tree);
        let run = |epoch| RunId::filling(crate::base::ids::level(5), DataEpoch::new(epoch));
        let slice = |&(epoch, uids): &(u64, &[u64])| crate::compaction::task::RunSlice {
            run: run(epoch),
            uids: uids.iter().map(|&number| crate::base::ids::uid(number)).collect(),
        };
        let inputs = inputs.iter().map(slice).collect();
        let merge = MergeTask { inputs, output: run(output), cursor: None, reason: Reason::Manual };
        apart(&shape, &merge).output.epoch.get()
    };
    let tree = "L5 9: 1[a-f] 2[g-m]\n L5 8: 3[a-m]\n L5 4: 4[a-m]";
    assert_eq!(apart_in(tree, &[(9, &[1, 2]), (8, &[3])], 9), 7, "8 is taken");
    assert_eq!(apart_in(tree, &[(8, &[3]), (4, &[4])], 8), 7);
    assert_eq!(apart_in(tree, &[(9, &[1]), (8, &[3])], 9), 9, "a part of a run stays in it");
    assert_eq!(apart_in(tree, &[(8, &[3]), (4, &[4])], 20), 20, "a new run");
}

/// Goal: the need of a merge in stretches is a stretch and a table of each run, and no merge is cut
/// that needs no less then.
#[test]
fn stretches_need_a_table_of_each_run() {
    const MIB: u64 = 1_000_000;
    let cost = |tree: &str, policy| {
        let shape = shape_of(policy, tree);
        let tasks = policy_of(shape.options.compaction).pick(&shape);
        let task = tasks.first().expect("a merge is due").clone();
        (need_of(&shape, &task).tables, cost_in_stretches(&shape, &task))
    };
    let run = |at: u64, tables: u64| {
        let table = |nr: u64| {
            let (uid, from) = (at * tables + nr + 1, nr * 10 + 100);
            format!("{uid}[k{from}-k{}]*{MIB}", from + 9)
        };
        format!("L5 {}: {}", 100 - at * 2, (0..tables).map(table).collect::<Vec<_>>().join(" "))
    };
    let level =
        |runs: u64, tables: u64| (0..runs).map(|at| run(at, tables)).collect::<Vec<_>>().join("\n");
    let (whole, cut) = cost(&level(10, 20), CompactionPolicy::tiered());
    assert_eq!(whole, 200 * MIB);
    let cut = cut.expect("it is cut");
    let stretch = cut.stretch.expect("in stretches");
    assert_eq!(cut.need.tables - stretch.space.tables, 10 * MIB, "a table of each run");
    assert!(stretch.space.tables < 8 * MIB && stretch.bytes >= 200 * MIB / 64, "{stretch:?}");
    let (whole, cut) = cost(&level(10, 1), CompactionPolicy::tiered());
    assert!(cut.is_none(), "{cut:?}, and {whole} bytes in one piece");
}

/// Goal: inputs lie over a cut together only where their keys do, and those that share a key do.
/// Method: runs of one table, one behind the other or not, and one of them that is the output's.
#[test]
fn straddlers_lie_over_one_key() {
    let most = |tree: &str, output: u64| {
        let shape = shape_of(CompactionPolicy::stepped_merge(), tree);
        let level = crate::base::ids::level(5);
        let run = |epoch: DataEpoch| RunId::filling(level, epoch);
        let mut runs: Vec<(RunId, Vec<&TableMeta>)> = Vec::new();
        for (_, placed) in shape.levels[level].runs() {
            let tables = placed.tables.iter().map(|(table, ())| &**table);
            runs.push((run(placed.epoch), tables.collect()));
        }
        straddlers(&runs, run(DataEpoch::new(output)), |table| table.bytes)
    };
    assert_eq!(most("L5 9: 1[a-c]*100\n L5 8: 2[d-f]*20\n L5 7: 3[g-i]*3", 0), 100);
    assert_eq!(most("L5 9: 1[a-c]*100\n L5 8: 2[c-f]*20\n L5 7: 3[g-i]*3", 0), 120);
    assert_eq!(most("L5 9: 1[a-c]*100 5[d-e]*7\n L5 8: 2[d-f]*20\n L5 7: 3[b-i]*3", 0), 103);
    assert_eq!(most("L5 9: 1[a-c]*100\n L5 8: 2[c-f]*20\n L5 7: 3[g-i]*3", 9), 20);
}

/// Goal: a merge that goes as it comes does so table by table where edits have an area of their
/// own, and elsewhere if they take less than that saves. Writers leave what its last form takes,
/// and what is flushed next and all that is there. Method: runs of many tables, large and small
/// ones, one run, and two large tables.
#[test]
fn writers_leave_what_a_user_may_ask_for() {
    const MB: u64 = 1_000_000;
    let table = |nr: u64| format!("{}[k{}-k{}]*{MB}", nr + 1, nr * 10 + 1000, nr * 10 + 1009);
    let tables = |from: u64| (from..from + 200).map(table).collect::<Vec<_>>().join(" ");
    let tree = format!("L5 9: {}\n L5 8: {}", tables(0), tables(100));
    let of = |tree: &str, table_unit| {
        let shape = shape_of(CompactionPolicy::stepped_merge(), tree);
        let options = crate::Options::clone(&shape.options).table_bytes(MB).write_buffer_bytes(MB);
        Shape { options: std::sync::Arc::new(options), table_unit, ..shape }
    };
    let asked = |shape: &Shape| {
        let all = std::ops::Bound::Unbounded;
        let picked = policy_of(shape.options.compaction).pick_range(shape, all, all);
        let crate::compaction::policy::RangePick::Task(task) = picked else { panic!("done") };
        cost_as_it_goes(shape, &task).and_then(|cost| cost.stretch).expect("in stretches").bytes
    };
    let small = tree.replace(&format!("*{MB}"), "*2000");
    let with_small = |table_unit| {
        let shape = of(&small, table_unit);
        let options = crate::Options::clone(&shape.options).table_bytes(2000);
        Shape { options: std::sync::Arc::new(options), ..shape }
    };
    let in_slots = of(&tree, 64 << 10);
    assert!(asked(&in_slots) <= MB && asked(&of(&tree, 1)) <= MB);
    assert!(asked(&with_small(64 << 10)) <= 2000 && asked(&with_small(1)) > 10_000);
    let next = next_as_it_goes(&in_slots);
    assert_eq!((next.tables, next.files), (4 * MB, 7));
    let one_run = of(&format!("L6 9: {}", tables(0)), 64 << 10);
    assert_eq!(least_asked_of(&one_run), next);
    let large = of("L5 9: 1[a-z]*90000000 2[za-zz]*9\n L5 8: 3[a-z]*90000000 4[za-zz]*9", 64 << 10);
    assert!(least_asked_of(&large).tables > 180 * MB, "{:?}", least_asked_of(&large));
}

/// A run of a simulated merge: whether it is the output's, and the first and the last key and the
/// bytes of its tables.
type SimulatedRun = (bool, Vec<(u64, u64, u64)>);

/// Entries of a table of a simulated merge.
const ENTRIES: u64 = 64;

/// Most bytes that a merge of these runs has written and not freed, in stretches of `bytes`. Where
/// a cut may lie anywhere it is `late` by so much; of the entries one in `drops` is dropped.
fn simulated_peak(
    runs: &[SimulatedRun],
    (bytes, late): (u64, u64),
    prng: &mut crate::base::prng::Prng,
    drops: u64,
) -> u64 {
    let tables =
        || runs.iter().flat_map(|(is_output, tables)| tables.iter().map(|t| (*is_output, *t)));
    let mut entries: Vec<(u64, u64)> = tables()
        .flat_map(|(_, (first, last, bytes))| {
            let at = move |i| first + (last - first) * i / (ENTRIES - 1);
            (0..ENTRIES).map(move |i| (at(i), bytes / ENTRIES))
        })
        .collect();
    entries.sort_unstable();
    let few_places = tables().any(|(is_output, _)| is_output);
    let late = if few_places { bytes } else { late };
    let (mut written, mut freed, mut since, mut peak, mut before) = (0, 0, 0, 0, None);
    for (key, size) in entries {
        if prng.chance(1, drops) {
            continue;
        }
        let over = tables()
            .find(|(is_output, (first, last, _))| *is_output && *first < key && key <= *last);
        let is_new = before != Some(key);
        let begins = before.is_none_or(|before| over.is_none_or(|(_, (first, ..))| before < first));
        let is_due = since >= bytes && (since >= bytes + late || prng.chance(1, 8));
        if is_new && begins && is_due {
            let gone = tables().filter(|(_, (_, last, _))| *last < key);
            (freed, since) = (gone.map(|(_, (_, _, bytes))| bytes).sum(), 0);
        }
        written += size;
        since += size;
        peak = peak.max(written.saturating_sub(freed));
        before = Some(key);
    }
    peak
}

/// Goal: a merge in stretches takes no more than is kept back for it, whatever its inputs are.
/// Method: random runs, of one table or many, over all or a part of the keys, merged in a model
/// that cuts where the engine may; with drops, which leave tables of the output run without their
/// first keys.
#[test]
fn no_merge_takes_more_than_its_bound() {
    let mut fullest = 0.0_f64;
    for seed in 0..400 {
        let mut prng = crate::base::prng::Prng::new(seed);
        let into_own = prng.chance(1, 2);
        let mut runs: Vec<SimulatedRun> = Vec::new();
        let (mut text, mut uid) = (String::new(), 0);
        let mut slices = Vec::new();
        let count = 2 + prng.below(5);
        for run in 0..count {
            let is_output = into_own && run == count - 1;
            let tables = if prng.chance(1, 2) && !is_output { 1 } else { 1 + prng.below(30) };
            let (mut from, mut list, mut uids) = (prng.below(1 << 16), Vec::new(), Vec::new());
            text += &format!("{} {}:", if is_output { "L6" } else { "L5" }, 100 - run * 2);
            for _ in 0..tables {
                let last = from + ENTRIES + prng.below(if tables == 1 { 1 << 20 } else { 1 << 16 });
                let bytes = (1 + prng.below(32)) * (1 << 20);
                uid += 1;
                text += &format!(" {uid}[k{from:08}-k{last:08}]*{bytes}");
                list.push((from, last, bytes));
                uids.push(crate::base::ids::uid(uid));
                from = last + 1 + prng.below(100);
            }
            text.push('\n');
            let level = crate::base::ids::level(if is_output { 6 } else { 5 });
            let run = RunId::filling(level, DataEpoch::new(100 - run * 2));
            slices.push(crate::compaction::task::RunSlice { run, uids });
            runs.push((is_output, list));
        }
        let shape = shape_of(CompactionPolicy::tiered(), &text);
        let level = crate::base::ids::level(6);
        let output = match into_own {
            true => slices.last().expect("some").run,
            false => RunId::filling(level, DataEpoch::new(100)),
        };
        let merge = MergeTask { inputs: slices, output, cursor: None, reason: Reason::Manual };
        // Not `apart`: what is measured is a merge that goes on into a run of its inputs.
        let whole = need_of(&shape, &Task::Merge(merge.clone()));
        let plan = policy_of(shape.options.compaction).plan(&shape, &merge);
        let bound = bound_of(&shape, &merge, whole);
        let peak = simulated_peak(&runs, (bound.bytes, plan.table_bytes), &mut prng, 2 + seed % 9);
        assert!(peak <= bound.tables, "seed {seed}: {peak} of {}\n{text}", bound.tables);
        fullest = fullest.max(peak as f64 / bound.tables as f64);
    }
    assert!(fullest > 0.7, "the bound is {fullest} used at most");
}

#[cfg(feature = "sim")]
mod on_full_devices;
