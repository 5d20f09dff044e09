//! Medians, ranges and ratios of samples.
//!
//! A ratio is formed within a round, between runs that were neighbours in time; the median is taken
//! over the rounds' ratios, never over unrelated numbers.

use crate::engines::OWN;
use crate::task::{Answer, Row};
use serde::{Deserialize, Serialize};

/// One step's outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub row: Row,
    pub round: usize,
    pub workload: String,
    pub engine: String,
    /// `None` if the child failed.
    pub answer: Option<Answer>,
    /// The most memory that the child's cgroup held, page cache included.
    pub cgroup_peak_bytes: Option<u64>,
}

/// Median, smallest and largest of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of `numbers`; `None` if there are none. The median of an even count is the mean of the two
    /// in the middle.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.into_iter().filter(|n| n.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = &sorted[(sorted.len() - 1) / 2..=sorted.len() / 2];
        let median = middle.iter().sum::<f64>() / middle.len() as f64;
        Some(Self { median, min, max })
    }
}

/// The samples of one workload in one row.
pub struct Cell<'a> {
    pub row: Row,
    pub workload: &'a str,
    samples: Vec<&'a Sample>,
}

/// What a number is taken from.
pub type Metric = fn(&Answer) -> Option<f64>;

/// Operations per second to the last acknowledgement.
pub fn acknowledged(answer: &Answer) -> Option<f64> {
    Some(answer.measurement.ops_per_second)
}

/// Operations per second until flushes and compactions were done.
pub fn drained(answer: &Answer) -> Option<f64> {
    Some(answer.measurement.ops_per_second_drained)
}

impl<'a> Cell<'a> {
    /// The samples of `workload` in `row`.
    pub fn of(samples: &'a [Sample], row: Row, workload: &'a str) -> Self {
        let samples = samples.iter().filter(|s| s.row == row && s.workload == workload).collect();
        Self { row, workload, samples }
    }

    /// Answers of `engine`, by round.
    pub fn answers(&self, engine: &str) -> impl Iterator<Item = (usize, &'a Answer)> {
        self.samples
            .iter()
            .filter(move |sample| sample.engine == engine)
            .filter_map(|sample| Some((sample.round, sample.answer.as_ref()?)))
    }

    /// The largest cgroup peak of `engine`.
    pub fn cgroup_peak(&self, engine: &str) -> Option<u64> {
        let own = self.samples.iter().filter(|sample| sample.engine == engine);
        own.filter_map(|sample| sample.cgroup_peak_bytes).max()
    }

    /// The spread of `metric` over `engine`'s rounds.
    pub fn spread(&self, engine: &str, metric: impl Fn(&Answer) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.answers(engine).filter_map(|(_, answer)| metric(answer)))
    }

    /// Weir over `peer`, round by round.
    pub fn ratio(&self, peer: &str, metric: Metric) -> Option<Spread> {
        self.ratio_to(|round| self.in_round(peer, round, metric), metric)
    }

    /// Weir over whichever of `peers` was best in that round.
    pub fn ratio_to_best(&self, peers: &[&str], metric: Metric) -> Option<Spread> {
        let best = |round| {
            peers
                .iter()
                .filter_map(|peer| self.in_round(peer, round, metric))
                .max_by(f64::total_cmp)
        };
        self.ratio_to(best, metric)
    }

    fn ratio_to(&self, other: impl Fn(usize) -> Option<f64>, metric: Metric) -> Option<Spread> {
        Spread::of(self.answers(OWN).filter_map(|(round, answer)| {
            Some(metric(answer)? / other(round).filter(|&other| other > 0.0)?)
        }))
    }

    fn in_round(&self, engine: &str, round: usize, metric: Metric) -> Option<f64> {
        self.answers(engine).find(|&(r, _)| r == round).and_then(|(_, answer)| metric(answer))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use weir_bench::Measurement;

    /// A sample of `engine` with so many operations per second.
    pub fn sample(engine: &str, round: usize, ops_per_second: f64) -> Sample {
        let measurement = Measurement {
            workload: "readrandom".to_owned(),
            engine: engine.to_owned(),
            engine_defaults: false,
            num: 1,
            key_bytes: 16,
            value_bytes: 100,
            threads: 1,
            seed: 1,
            ops: 1,
            background_ops: 0,
            warm_seconds: 0.0,
            seconds: 1.0,
            ops_per_second,
            background_ops_per_second: 0.0,
            seconds_drained: 1.0,
            ops_per_second_drained: ops_per_second,
            found: 1,
            missing: 0,
            scanned: 0,
            latency: std::iter::empty().collect(),
            user_bytes: 0,
            engine_bytes: None,
            engine_bytes_by_cause: std::iter::empty().collect(),
            io_by_cause: std::iter::empty().collect(),
            process_bytes: None,
            engine_write_ratio: None,
            process_write_ratio: None,
            hit_ratio: None,
            of_reads: std::collections::BTreeMap::default(),
            directory_bytes: 0,
            anonymous_bytes: None,
            windows: Vec::new(),
        };
        let answer = Some(Answer {
            measurement,
            peak_anonymous_bytes: None,
            device_read_bytes: None,
            device_reads: None,
            device_write_bytes: None,
        });
        Sample {
            row: Row::Equal,
            round,
            workload: "readrandom".to_owned(),
            engine: engine.to_owned(),
            answer,
            cgroup_peak_bytes: None,
        }
    }

    /// Goal: medians of odd and even counts, and nothing of nothing.
    #[test]
    fn spreads() {
        assert_eq!(Spread::of([]), None);
        let of = |numbers: &[f64]| Spread::of(numbers.iter().copied()).map(|s| s.median);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(of(&[7.0]), Some(7.0));
    }

    /// Goal: ratios are formed within rounds. Method: both engines slow down to a tenth in round 2;
    /// the ratio of medians would be off, that of the rounds is not. A failed peer leaves its round
    /// out; the best peer may change from round to round.
    #[test]
    fn ratios_are_formed_within_rounds() {
        let mut samples = vec![
            sample(OWN, 0, 200.0),
            sample("a", 0, 100.0),
            sample("b", 0, 50.0),
            sample(OWN, 1, 20.0),
            sample("a", 1, 10.0),
            sample("b", 1, 25.0),
        ];
        samples.push(Sample { answer: None, ..sample("a", 2, 1.0) });
        samples.push(sample(OWN, 2, 100.0));
        let cell = Cell::of(&samples, Row::Equal, "readrandom");
        let to_a = cell.ratio("a", acknowledged);
        assert_eq!(to_a, Some(Spread { median: 2.0, min: 2.0, max: 2.0 }));
        let to_best = cell.ratio_to_best(&["a", "b"], acknowledged);
        assert_eq!(to_best, Some(Spread { median: 1.4, min: 0.8, max: 2.0 }));
    }
}
