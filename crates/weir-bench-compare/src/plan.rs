//! Which engine runs which workload when.
//!
//! Engines take turns within a workload, and who goes first moves on by one with every workload and
//! every round: a machine that slows down, or a disk that fills up, meets all of them alike.

use crate::task::Row;
use weir_bench::Workload;

/// One measurement that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub row: Row,
    pub round: usize,
    pub workload: Workload,
    /// Index into the list of engines.
    pub engine: usize,
    /// Whether this is the first step of its row and round for this engine.
    pub starts_round: bool,
}

/// The engines of a turn, in their order: in `engines` turns after each other (twice as many, if
/// their number is odd) everyone is first equally often, and within them runs behind everyone else
/// equally often. What ran before matters: a reader behind one with a cache of the same size finds
/// memory that the host has given out already, and was up to a quarter faster than behind another.
///
/// Source: Williams, "Experimental designs balanced for the estimation of residual effects of
/// treatments" (1949).
fn turn(number: usize, engines: usize) -> Vec<usize> {
    // 0, 1, n - 1, 2, n - 2, ...: neighbours differ by each number once.
    let zigzag = |at: usize| match at {
        0 => 0,
        at if at % 2 == 1 => at.div_ceil(2),
        at => engines - at / 2,
    };
    let mut order: Vec<usize> = (0..engines).map(|at| (zigzag(at) + number) % engines).collect();
    if engines % 2 == 1 && number / engines % 2 == 1 {
        order.reverse();
    }
    order
}

/// Every measurement, in order.
pub fn steps(rows: &[Row], rounds: usize, workloads: &[Workload], engines: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    for &row in rows {
        for round in 0..rounds {
            for (i, &workload) in workloads.iter().enumerate() {
                for engine in turn(round + i, engines) {
                    steps.push(Step { row, round, workload, engine, starts_round: i == 0 });
                }
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: everyone runs behind everyone else equally often.
    #[test]
    fn nobody_has_one_predecessor() {
        for engines in 2..=7 {
            let mut behind = vec![vec![0; engines]; engines];
            let turns = engines * (1 + engines % 2);
            for order in (0..turns).map(|number| turn(number, engines)) {
                order.windows(2).for_each(|pair| behind[pair[1]][pair[0]] += 1);
            }
            for (engine, before) in behind.iter().enumerate() {
                let others = before.iter().enumerate().filter(|&(other, _)| other != engine);
                let counts: Vec<_> = others.map(|(_, count)| *count).collect();
                assert!(counts.iter().all(|&n| n == turns / engines), "{engines}: {counts:?}");
            }
        }
    }

    /// Goal: everyone runs everything once per round, and everyone is first equally often.
    #[test]
    fn turns_are_fair() {
        let workloads = [Workload::FillRandom, Workload::ReadRandom];
        let steps = steps(&[Row::Equal], 4, &workloads, 4);
        assert_eq!(steps.len(), 4 * 2 * 4);
        for engine in 0..4 {
            let first =
                steps.chunks(4).filter(|turns| turns.first().is_some_and(|s| s.engine == engine));
            assert_eq!(first.count(), 2, "engine {engine} is first in two of eight turns");
            assert_eq!(steps.iter().filter(|step| step.engine == engine).count(), 8);
        }
        assert!(steps.iter().all(|s| s.starts_round == (s.workload == Workload::FillRandom)));
    }
}
