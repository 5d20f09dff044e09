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

/// Every measurement, in order.
pub fn steps(rows: &[Row], rounds: usize, workloads: &[Workload], engines: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    for &row in rows {
        for round in 0..rounds {
            for (i, &workload) in workloads.iter().enumerate() {
                for turn in 0..engines {
                    let engine = (round + i + turn) % engines;
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
