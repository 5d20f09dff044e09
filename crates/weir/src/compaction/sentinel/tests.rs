//! Each rule of the cost models with numbers that can be checked by hand.

use std::sync::Arc;

use super::*;
use crate::compaction::policy::cases::shape_of;
use crate::compaction::policy_of;
use crate::options::{CompactionPolicy, Options};

const BLOCK: u64 = 4096;

/// The range from c to e lies in three runs and has 1 + 10 + 100 blocks; the tree has 1,221.
const TREE: &str = "options base_level_bytes=100000
    L0 9: 9[c-d]*4096
    L5 2: 2[a-b]*40960 3[c-d]*40960
    L6 1: 4[a-b]*409600 5[c-d]*409600 6[e-f]*4096000";

/// Memtables have 128 blocks, and level 0 is compacted after each flush.
fn shape(text: &str) -> Shape {
    shape_with(text, 1)
}

fn shape_with(text: &str, l0_trigger: usize) -> Shape {
    let shape = shape_of(CompactionPolicy::leveled(), text);
    let mut options = Options { table_bytes: 1 << 20, ..(*shape.options).clone() };
    options.write_buffer_bytes = 128 * BLOCK;
    if let CompactionPolicy::Leveled(leveled) = options.compaction {
        options.compaction = CompactionPolicy::Leveled(leveled.l0_trigger(l0_trigger));
    }
    Shape { options: Arc::new(options), ..shape }
}

/// Reads and writes of the range from c to e, and `others` of it elsewhere.
fn heat(hot: &BucketHeat, others: &BucketHeat) -> HeatShape {
    let range = |from: &str, to: Option<&str>, heat: &BucketHeat| BucketHeat {
        from: from.into(),
        to: to.map(Into::into),
        ..heat.clone()
    };
    let buckets = vec![
        range("", Some("c"), &BucketHeat::default()),
        range("c", Some("e"), hot),
        range("e", None, others),
    ];
    HeatShape { buckets, moved_bytes: 0 }
}

fn opened(opened_beyond: u64) -> BucketHeat {
    BucketHeat { gets: 1000, scans: 1000, opened_beyond, ..BucketHeat::default() }
}

fn written(blocks: u64) -> BucketHeat {
    BucketHeat { writes: blocks * 40, written_bytes: blocks * BLOCK, ..BucketHeat::default() }
}

fn situation<'a>(shape: &'a Shape, heat: &'a HeatShape) -> Situation<'a> {
    Situation {
        shape,
        heat,
        memtable_left: 128 * BLOCK,
        sentinel_bytes: 0,
        is_pressed: false,
        is_short_of_space: false,
        is_short_of_memory: false,
    }
}

fn corrected() -> SentinelOptions {
    SentinelOptions { ways: HotRanges::Up, ..SentinelOptions::default() }
}

fn paper() -> SentinelOptions {
    SentinelOptions { cost: CostModel::Paper, ..corrected() }
}

fn picked(heat: &HeatShape, options: &SentinelOptions) -> Option<Hot> {
    let shape = shape(TREE);
    pick(&situation(&shape, heat), options)
}

/// Goal: without writes a sentinel stays: what was opened counts four times, and only its own
/// blocks cost. Method: both sides of the threshold.
#[test]
fn a_range_is_hot_if_it_saves_more_than_it_costs() {
    let none = BucketHeat::default();
    assert_eq!(picked(&heat(&opened(27), &none), &corrected()), None);
    let hot = picked(&heat(&opened(28), &none), &corrected()).unwrap();
    assert_eq!((&*hot.from, hot.to.as_deref()), (&b"c"[..], Some(&b"e"[..])));
    let why = Why { benefit: 112.0, cost: 111.0, theta: 1.0, runs: 3, bytes: 111 * BLOCK };
    assert_eq!(hot.why, why);
    let theta = |theta| SentinelOptions { theta, ..corrected() };
    assert!(picked(&heat(&opened(27), &none), &theta(0.5)).is_some());
    assert!(picked(&heat(&opened(55), &none), &theta(2.0)).is_none());
    assert!(picked(&heat(&opened(56), &none), &theta(2.0)).is_some());
}

/// Goal: where the range is written to, a sentinel lasts until the next flush and goes all the way
/// down again: 111 blocks once into level 5, and with ten times as much into level 6. Where others
/// are written, it lasts as long as it is not.
#[test]
fn writes_end_a_sentinel() {
    let none = BucketHeat::default();
    let hot =
        |opened_beyond, blocks| BucketHeat { opened_beyond, ..both(opened(0), written(blocks)) };
    // 256 blocks in the time of the counters, 128 until the flush.
    assert_eq!(picked(&heat(&hot(2886, 256), &none), &corrected()), None);
    let why = picked(&heat(&hot(2888, 256), &none), &corrected()).unwrap().why;
    assert_eq!((why.benefit, why.cost), (1444.0, 111.0 + 111.0 + 111.0 + 1110.0));
    // Others are written: of these 10,240 writes the range, of which none was counted, is given 8,
    // so that the first one that it has comes before the flush.
    let why = picked(&heat(&opened(2888), &written(256)), &corrected()).unwrap().why;
    assert_eq!(why.benefit, 2888.0 / 2.0);
    let far = picked(&heat(&opened(2888), &written(25_600)), &corrected());
    assert_eq!(far, None, "far more is written in that time than a memtable takes");
    let seldom = BucketHeat { writes: 16 * 40, written_bytes: 16 * BLOCK, ..BucketHeat::default() };
    let why = picked(&heat(&opened(2888), &seldom), &corrected()).unwrap().why;
    assert_eq!(why.benefit, 2888.0 * REACH_MAX);
    // Half of the time is up when the range goes down.
    assert_eq!(why.cost, 111.0 + 1332.0 / 2.0);
}

/// Goal: a sentinel that a flush has covered stays until level 0 is compacted. Method: compaction
/// after four flushes, of which there is one; the one that covers it is the second. Where the first
/// write of the range is far off, half of the other three are taken to follow it.
#[test]
fn a_covered_sentinel_stays_until_level_0_is_compacted() {
    let (tree, none) = (shape_with(TREE, 4), BucketHeat::default());
    let benefit = |heat: &HeatShape| {
        let options = SentinelOptions { theta: 0.0, ..corrected() };
        pick(&situation(&tree, heat), &options).unwrap().why.benefit
    };
    let hot = BucketHeat { opened_beyond: 1000, ..both(opened(0), written(512)) };
    assert_eq!(benefit(&heat(&hot, &none)), 1000.0 * (128.0 + 2.0 * 128.0) / 512.0);
    // A write of it comes with each eighth of all, so after 256 blocks.
    assert_eq!(
        benefit(&heat(&opened(1000), &written(2048))),
        1000.0 * (256.0 + 1.5 * 128.0) / 2048.0
    );
}

/// Goal: a range that is never written keeps its sentinel, however much is written elsewhere, if
/// all of that is counted where it is; and does not, if as many writes are counted once as there
/// are ranges. Method: 1,002 ranges, of which one is read, and one or a thousand are written.
#[test]
fn what_is_not_written_stays() {
    let tree = shape(TREE);
    let benefit = |others: BucketHeat, written_ranges: usize| {
        let mut heat = heat(&opened(1000), &BucketHeat::default());
        let number = |n: usize| format!("e{n:04}").into_bytes();
        heat.buckets.pop();
        heat.buckets.extend((0..1000).map(|n| BucketHeat {
            from: number(n),
            to: Some(number(n + 1)),
            ..if n < written_ranges { others.clone() } else { BucketHeat::default() }
        }));
        let options = SentinelOptions { theta: 0.0, ..corrected() };
        pick(&situation(&tree, &heat), &options).unwrap().why.benefit
    };
    assert_eq!(benefit(written(1000), 1), 1000.0 * REACH_MAX);
    let once = BucketHeat { writes: 16, written_bytes: BLOCK, ..BucketHeat::default() };
    // Memtables with 128 of the 1,000 blocks.
    assert_eq!(benefit(once, 1000), 128.0);
}

/// Goal: invariant (4): no more bytes than the options allow, and no run without end.
#[test]
fn sentinels_are_bounded() {
    let (tree, heat) = (shape(TREE), heat(&opened(1 << 20), &BucketHeat::default()));
    let allowed = |bytes| {
        let options = SentinelOptions { bytes_max: Some(bytes), ..corrected() };
        pick(&situation(&tree, &heat), &options).is_some()
    };
    assert!(allowed(111 * BLOCK) && !allowed(111 * BLOCK - 1));
    let runs = |count: usize| {
        let runs: String =
            (0..count).map(|n| format!("\n L0 {}s: {}[a-b]*1", 99 - n, 99 - n)).collect();
        pick(&situation(&shape(&format!("{TREE}{runs}")), &heat), &corrected()).is_some()
    };
    assert!(runs(SENTINEL_RUNS_MAX - 1) && !runs(SENTINEL_RUNS_MAX));
}

fn both(reads: BucketHeat, writes: BucketHeat) -> BucketHeat {
    let BucketHeat { writes, written_bytes, .. } = writes;
    BucketHeat { writes, written_bytes, ..reads }
}

/// Goal: formula (1) as published, and no division by zero where nothing is written.
#[test]
fn the_published_model_is_as_published() {
    let scans = |scans| BucketHeat { scans, gets: 1 << 40, ..BucketHeat::default() };
    // Three levels: two blocks a scan, of which half come before the flush.
    assert_eq!(picked(&heat(&scans(111), &written(256)), &paper()), None);
    let why = picked(&heat(&scans(112), &written(256)), &paper()).unwrap().why;
    assert_eq!((why.benefit, why.cost), (112.0, 111.0));
    // Nothing is written: one block is.
    let why = picked(&heat(&scans(64), &BucketHeat::default()), &paper()).unwrap().why;
    assert_eq!(why.benefit, 64.0 * 2.0 * 128.0);
    assert!(picked(&heat(&scans(63), &BucketHeat::default()), &paper()).is_none());
}

/// Goal: invariant (1): what lies in one run has nothing to gain, whatever the counters say; nor
/// has what reads opened one run of, with the corrected model.
#[test]
fn one_run_has_nothing_to_gain() {
    let (hot, none) = (opened(1 << 30), BucketHeat::default());
    let heat_of = heat(&hot, &none);
    let one = shape("L5 2: 2[a-b]*40960\n L6 1: 5[c-d]*409600 6[e-f]*4096000");
    for options in [paper(), corrected()] {
        assert_eq!(pick(&situation(&one, &heat_of), &options), None);
    }
    let leveled = policy_of(CompactionPolicy::leveled());
    assert_eq!(pick_down(&situation(&one, &heat_of), leveled, &corrected()), None);
    assert_eq!(
        picked(&heat(&opened(0), &none), &SentinelOptions { theta: 0.0, ..corrected() }),
        None
    );
}

/// Goal: fewer reads than those of 4 samples tell nothing.
#[test]
fn some_reads_are_needed() {
    let none = BucketHeat::default();
    let read = |gets| BucketHeat { gets, opened_beyond: 1 << 20, ..BucketHeat::default() };
    assert!(picked(&heat(&read(63), &none), &corrected()).is_none());
    assert!(picked(&heat(&read(64), &none), &corrected()).is_some());
}

/// Goal: invariants (2) and (3): nothing is moved of which a job has something, nor under pressure,
/// nor without end.
#[test]
fn what_must_be_done_goes_first() {
    let (hot, none) = (opened(1 << 20), BucketHeat::default());
    let heat_of = heat(&hot, &none);
    let free = shape(TREE);
    let is_picked = |situation: &Situation<'_>| {
        let ways = [HotRanges::Up, HotRanges::Down];
        let leveled = policy_of(CompactionPolicy::leveled());
        ways.map(|ways| {
            let options = SentinelOptions { ways, ..corrected() };
            decide(situation, leveled, &options).is_some()
        })
    };
    let now = situation(&free, &heat_of);
    assert_eq!(is_picked(&now), [true, true]);
    assert_eq!(is_picked(&Situation { is_pressed: true, ..now }), [false, false]);
    assert_eq!(is_picked(&Situation { is_short_of_space: true, ..now }), [false, false]);
    assert_eq!(is_picked(&Situation { is_short_of_memory: true, ..now }), [false, false]);
    let moved = |moved_bytes| HeatShape { moved_bytes, ..heat_of.clone() };
    let (at, above) = (moved(tree_bytes(&free) / 8), moved(tree_bytes(&free) / 8 + 1));
    assert_eq!(is_picked(&Situation { heat: &at, ..now }), [true, true]);
    assert_eq!(is_picked(&Situation { heat: &above, ..now }), [false, false]);
    let busy = shape(&format!("{TREE}\n busy 5"));
    assert!(!is_picked(&Situation { shape: &busy, ..now })[0]);
    let elsewhere = shape(&format!("{TREE}\n busy 6"));
    assert!(is_picked(&Situation { shape: &elsewhere, ..now })[0]);
    for (keys, is_free) in [("d-f", false), ("a-c", false), ("a-b", true), ("e-f", true)] {
        let job = shape(&format!("{TREE}\n job L5 2 L6 1 {keys}"));
        assert_eq!(is_picked(&Situation { shape: &job, ..now })[0], is_free, "{keys}");
    }
}

/// Goal: invariant (4): sentinels have an eighth of the tree at most, also together.
#[test]
fn sentinels_are_a_small_part_of_the_tree() {
    let (hot, none) = (opened(1 << 20), BucketHeat::default());
    let heat_of = heat(&hot, &none);
    let (small, tree) =
        (shape("L5 2: 3[c-d]*40960\n L6 1: 5[c-d]*409600 6[e-f]*819200"), shape(TREE));
    assert_eq!(pick(&situation(&small, &heat_of), &corrected()), None);
    let left = tree_bytes(&tree) / 8 - 111 * BLOCK;
    let with = |sentinel_bytes| Situation { sentinel_bytes, ..situation(&tree, &heat_of) };
    assert!(pick(&with(left), &corrected()).is_some());
    assert!(pick(&with(left + 1), &corrected()).is_none());
}

/// Goal: the rival: the uppermost run goes down by a level, for the run that it saves of those that
/// were opened; only under a policy that can.
#[test]
fn a_hot_range_goes_down_by_a_level() {
    let (tree, none) = (shape(TREE), BucketHeat::default());
    let down = |opened_beyond, policy| {
        let heat = heat(&opened(opened_beyond), &none);
        pick_down(&situation(&tree, &heat), policy_of(policy), &corrected())
    };
    // Half of four times what was opened, for 1 + 10 blocks.
    assert_eq!(down(5, CompactionPolicy::leveled()), None);
    let Down { from, task, why, .. } = down(6, CompactionPolicy::leveled()).unwrap();
    assert_eq!(task.to_string(), "merge L0/9:{9} L5/2:{3} -> L5 (reads)");
    assert_eq!((&*from, why.benefit, why.cost), (&b"c"[..], 12.0, 11.0));
    assert_eq!(down(1 << 20, CompactionPolicy::tiered()), None);
}

/// Goal: a way down saves a run only where it makes one of several: what moves to a level that has
/// nothing of the range is one run more below. Several runs of level 0 become one.
#[test]
fn a_move_to_an_empty_place_saves_nothing() {
    let leveled = policy_of(CompactionPolicy::leveled());
    let heat = heat(&opened(1 << 20), &BucketHeat::default());
    let down = |options: SentinelOptions, upper: &str| {
        let below = "L5 2: 2[a-b]*40960\n L6 1: 5[c-d]*409600 6[e-f]*4096000";
        let tree = shape(&format!("options base_level_bytes=10000\n {upper}\n {below}"));
        pick_down(&situation(&tree, &heat), leveled, &options).map(|down| down.task.to_string())
    };
    for options in [corrected(), paper()] {
        assert_eq!(down(options, "L4 7: 7[c-d]*4096"), None);
    }
    let merged = down(corrected(), "L0 9: 9[c-d]*4096\n L0 8: 8[c-d]*4096");
    assert!(merged.is_some_and(|task| task.starts_with("merge L0/9:{9} L0/8:{8} ->")));
}

/// Goal: invariant (3): a way down counts with all that it writes, not with what the range has of
/// that.
#[test]
fn a_way_down_spends_what_it_writes() {
    let tree = shape(
        "options base_level_bytes=100000\n L0 9: 9[a-d]*4096\n L5 2: 3[a-d]*40960
        L6 1: 6[e-f]*4096000",
    );
    let heat = heat(&opened(1 << 20), &BucketHeat::default());
    let leveled = policy_of(CompactionPolicy::leveled());
    let down = pick_down(&situation(&tree, &heat), leveled, &corrected()).unwrap();
    assert_eq!(down.task.to_string(), "merge L0/9:{9} L5/2:{3} -> L5 (reads)");
    assert_eq!(down.bytes, 11 * BLOCK);
    assert!(down.why.bytes < 6 * BLOCK, "{} bytes of the range", down.why.bytes);
}

/// Goal: the cheaper way is taken: down where little lies above the last level, up where a way down
/// rewrites far more than the range.
#[test]
fn the_cheaper_way_is_taken() {
    let (hot, none) = (opened(1 << 20), BucketHeat::default());
    let heat_of = heat(&hot, &none);
    let leveled = policy_of(CompactionPolicy::leveled());
    let way = |tree: &Shape, ways| {
        decide(&situation(tree, &heat_of), leveled, &SentinelOptions { ways, ..corrected() })
    };
    let tree = shape(TREE);
    assert!(matches!(way(&tree, HotRanges::Cheaper), Some(Way::Down(_))));
    assert!(matches!(way(&tree, HotRanges::Up), Some(Way::Up(_))));
    // The range is a small part of large tables.
    let wide = shape("L5 2: 3[a-d]*4096000\n L6 1: 5[b-d]*40960 6[e-f]*40960000");
    let narrow = HeatShape {
        buckets: vec![BucketHeat { from: "cw".into(), to: Some("d".into()), ..opened(1 << 20) }],
        ..HeatShape::default()
    };
    let cheaper = SentinelOptions { ways: HotRanges::Cheaper, ..corrected() };
    let way = decide(&situation(&wide, &narrow), leveled, &cheaper);
    assert!(matches!(way, Some(Way::Up(_))), "{way:?}");
}

/// Goal: of several the one is taken that saves most for what it costs.
#[test]
fn the_best_range_is_taken() {
    let tree = shape(&format!("{TREE}\n L4 7: 7[a-b]*4096 8[e-f]*4096"));
    let mut heat = heat(&opened(1000), &opened(1000));
    assert_eq!(pick(&situation(&tree, &heat), &corrected()).unwrap().from, b"c");
    heat.buckets[0] = BucketHeat { to: Some("c".into()), ..opened(1000) };
    // 111 blocks each, and the first of equals; then more is opened in one.
    assert_eq!(pick(&situation(&tree, &heat), &corrected()).unwrap().from, b"");
    heat.buckets[1].opened_beyond += 1;
    assert_eq!(pick(&situation(&tree, &heat), &corrected()).unwrap().from, b"c");
}

/// Goal: a sentinel is no larger than some tables, since level 0 waits for it.
#[test]
fn a_sentinel_is_a_few_tables() {
    let (tree, hot) = (shape(TREE), heat(&opened(100_000), &BucketHeat::default()));
    assert!(pick(&situation(&tree, &hot), &corrected()).is_some());
    let options = Options { table_bytes: BLOCK, ..(*tree.options).clone() };
    let small = Shape { options: Arc::new(options), ..tree };
    assert!(pick(&situation(&small, &hot), &corrected()).is_none());
}
