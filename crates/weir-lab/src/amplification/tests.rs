//! Small stores of every policy, and what a verdict says.

use weir::CompactionPolicy;
use weir::sim::{SimDisk, SimOptions};

use super::*;

/// Entries of a write buffer here.
const ENTRIES: u64 = 250;

fn measured(case: &Case) -> Measured {
    // In memory: thousands of small tables, and each is synced.
    let disk = SimDisk::new(SimOptions::default());
    measure(Db::builder("store").device(disk.dir()), case, ENTRIES, 1, &|| {}).expect("measured")
}

/// Goal: no policy's writes, runs or space are off without a reason that was counted. Method: small
/// stores of all of them, filled and overwritten.
#[test]
fn every_policy_is_near_its_formulas_or_explained() {
    for policy in CompactionPolicy::ALL {
        let case = Case { policy, t: 4, buffers: 64, overwrites: 64 };
        for row in rows(&case, &measured(&case)) {
            println!("{}: {} of {:?}, {:?}", row.name(), row.measured, row.formula, row.counted);
            assert_ne!(row.verdict(), Verdict::Outside, "{}: {}", row.name(), row.measured);
        }
    }
}

/// Goal: a seed fixes every number, independent of the schedule of threads.
#[test]
fn the_same_seed_counts_the_same() {
    for policy in [CompactionPolicy::leveled(), CompactionPolicy::gear()] {
        let case = Case { policy, t: 3, buffers: 20, overwrites: 20 };
        assert_eq!(measured(&case), measured(&case));
    }
}

/// Goal: reads are counted run by run. Method: what gets and seeks look into against the tree's own
/// description, in a tree of whole runs.
#[test]
fn reads_see_the_runs_that_are_there() {
    let policy = CompactionPolicy::tiered();
    let fill = measured(&Case { policy, t: 4, buffers: 63, overwrites: 0 }).fill;
    assert_eq!(fill.runs.max, 9.0);
    // A key may lie between two tables of a run, or behind the last key of a block.
    assert!((fill.absent_get.max / 9.0 - 1.0).abs() < 0.05, "{:?}", fill.absent_get);
    assert!((fill.seek.max / 9.0 - 1.0).abs() < 0.1, "{:?}", fill.seek);
    assert!(fill.present_get.mean() < fill.absent_get.mean());
}

/// Goal: a verdict says what is wrong. Method: a formula that is a range, with and without counts.
#[test]
fn verdicts() {
    let row = |measured, counted: Option<(f64, f64)>| Row {
        case: Case { policy: CompactionPolicy::tiered(), t: 4, buffers: 64, overwrites: 0 },
        part: Part::Fill,
        what: Quantity::Writes,
        measured,
        formula: (10.0, 20.0),
        counted: counted.map(|range| (range, "why".to_owned())),
    };
    for (measured, counted, verdict) in [
        (10.0, None, Verdict::Within),
        (15.0, None, Verdict::Within),
        (8.6, None, Verdict::Within),
        (22.9, None, Verdict::Within),
        (8.4, None, Verdict::Outside),
        (23.1, Some((1.0, 2.0)), Verdict::Outside),
        (8.4, Some((7.4, 7.4)), Verdict::Explained),
        (23.1, Some((25.0, 30.0)), Verdict::Explained),
    ] {
        assert_eq!(row(measured, counted).verdict(), verdict, "{measured}");
    }
    let explained = number(&row(8.4, Some((8.0, 9.0))));
    assert_eq!(explained.verdict(), crate::result::Verdict::Differs);
    assert_eq!(explained.paper, Some(10.0));
    assert_eq!(explained.differs.map(|differs| differs.because), Some("why".to_owned()));
    let outside = number(&row(8.4, None));
    assert_eq!(outside.verdict(), crate::result::Verdict::Fails);
}
