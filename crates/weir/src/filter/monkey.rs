//! Monkey: the division of filter bits among the runs of a tree that gives the fewest false
//! positives.
//!
//! Source: Monkey (Dayan, Athanassoulis and Idreos, SIGMOD 2017), §4.1 and appendix B. A lookup of
//! an absent key probes the filter of every run once; run i of n_i entries has a false positive
//! with probability p_i, for n_i ln(1/p_i) / ln² 2 bits. For a given sum of bits the sum of the p_i
//! is least where every bit saves equally much, that is where p_i is proportional to n_i:
//!
//! ```text
//! p_i = min(1, lambda n_i)        bits_i = max(0, -ln(lambda n_i)) / ln² 2
//! ```
//!
//! with lambda such that the bits add up. So a run a T-th as large gets ln T / ln² 2 bits per key
//! more (4.8 at T = 10), runs of one level get the same, and their number (one or two a level in a
//! leveled or gear tree, up to T in a tiered one) only changes lambda. Where the budget is small
//! the largest runs get no filter at all.
//!
//! The shapes, from the largest run of N entries down, ratio T: a leveled tree has one run each of
//! N, N/T, N/T^2, ..; tiered, size-tiered and stepped-merge trees k each (at most T - 1 at rest; k
//! is in all terms and cancels); a tree with parts 1.5 each (dLSM §IV-C); a lazy-leveled one has
//! one of N and (T - 1)/2 each, on average, of N/T, N/T^2, ..
//!
//! We differ: the allocation holds for any sizes of runs, not only for levels of a fixed ratio. The
//! paper assumes plain Bloom filters; those of `filter` have somewhat more false positives: with
//! Monkey, three runs of ratio 10 have 1.02 times the theory's sum at 5 bits, 1.09 at 8, 1.19 at 10
//! (a test measures it).
//!
//! Pure arithmetic. Not here: the runs that a tree will have (`compaction::policy`).
//!
//! Invariants: (1) the bits of all runs together are the average times the number of entries;
//! (2) no other division of as many bits has a smaller sum of p_i; (3) larger runs never get more
//! bits per key.

/// ln² 2: ln(1/p) divided by this are the bits per key of a Bloom filter.
const LN2_SQUARED: f64 = std::f64::consts::LN_2 * std::f64::consts::LN_2;

/// Runs of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Runs {
    /// Entries of each.
    pub(crate) entries: f64,
    /// Their number, which need not be whole.
    pub(crate) count: f64,
}

/// The best division of filter bits over some runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Allocation {
    /// ln of lambda. Infinite if there are no bits to divide.
    ln_lambda: f64,
}

impl Allocation {
    /// The division of `average_bits` per entry over these runs.
    pub(crate) fn of(runs: &[Runs], average_bits: f64) -> Self {
        let mut runs: Vec<Runs> =
            runs.iter().copied().filter(|r| r.entries >= 1.0 && r.count > 0.0).collect();
        runs.sort_by(|a, b| a.entries.total_cmp(&b.entries));
        let total: f64 = runs.iter().map(|r| r.entries * r.count).sum();
        let budget = total * average_bits.max(0.0) * LN2_SQUARED;
        if budget <= 0.0 {
            return Self { ln_lambda: f64::INFINITY };
        }
        // The largest runs get no filter until no run's share is negative.
        while let Some(largest) = runs.last().copied() {
            let entries: f64 = runs.iter().map(|r| r.entries * r.count).sum();
            let weighted: f64 = runs.iter().map(|r| r.entries * r.count * r.entries.ln()).sum();
            let ln_lambda = -(budget + weighted) / entries;
            if ln_lambda + largest.entries.ln() <= 0.0 {
                return Self { ln_lambda };
            }
            runs.pop();
        }
        Self { ln_lambda: f64::INFINITY }
    }

    /// Bits per key of a run of `entries`.
    pub(crate) fn bits(&self, entries: f64) -> f64 {
        (-(self.ln_lambda + entries.max(1.0).ln()) / LN2_SQUARED).max(0.0)
    }
}

/// False positive rate of a plain Bloom filter of `bits` per key.
#[cfg(test)]
pub(crate) fn false_positives(bits: f64) -> f64 {
    (-bits.max(0.0) * LN2_SQUARED).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::prng::Prng;
    use crate::filter;

    fn cost(runs: &[Runs], bits: impl Fn(f64) -> f64) -> (f64, f64) {
        let memory = runs.iter().map(|r| r.entries * r.count * bits(r.entries)).sum();
        let passes = runs.iter().map(|r| r.count * false_positives(bits(r.entries))).sum();
        (memory, passes)
    }

    fn random_runs(prng: &mut Prng) -> Vec<Runs> {
        let ratio = 2.0 + prng.below(9) as f64;
        let count = 1.0 + prng.below(10) as f64;
        let levels = 1 + prng.below(7) as i32;
        let mut runs: Vec<Runs> =
            (0..levels).map(|i| Runs { entries: 1000.0 * ratio.powi(i), count }).collect();
        for _ in 0..prng.below(4) {
            runs.push(Runs { entries: (1 + prng.below(10_000_000)) as f64, count: 1.0 });
        }
        runs
    }

    /// Goal: invariants 1 to 3. Method: random trees and budgets; the sum of bits is compared with
    /// the budget, the sum of false positives with that of a uniform division, and with that after
    /// some bits were moved from one run to another.
    #[test]
    fn no_division_of_the_same_bits_lets_fewer_pass() {
        let seed = 0x3041;
        println!("seed {seed:#x}");
        let mut prng = Prng::new(seed);
        for _ in 0..5000 {
            let runs = random_runs(&mut prng);
            let average = prng.below(200) as f64 / 10.0;
            let allocation = Allocation::of(&runs, average);
            let (memory, passes) = cost(&runs, |n| allocation.bits(n));
            let (uniform_memory, uniform_passes) = cost(&runs, |_| average);
            let off = (memory - uniform_memory).abs() / uniform_memory.max(1.0);
            assert!(off < 1e-9, "{memory} of {uniform_memory} bits for {runs:?}");
            assert!(passes <= uniform_passes + 1e-12, "{passes} over {uniform_passes}: {runs:?}");
            let (a, b) = (prng.below(runs.len() as u64), prng.below(runs.len() as u64));
            let (from, to) = (runs[a as usize], runs[b as usize]);
            if from.entries != to.entries {
                let moved = allocation.bits(from.entries).min(0.5);
                let gained = moved * from.entries * from.count / (to.entries * to.count);
                let (_, after) = cost(&runs, |n| {
                    let bits = allocation.bits(n);
                    if n == from.entries {
                        bits - moved
                    } else if n == to.entries {
                        bits + gained
                    } else {
                        bits
                    }
                });
                assert!(after >= passes - 1e-12, "moving {moved} from {from:?} to {to:?} helps");
            }
        }
    }

    /// Goal: the paper's closed form (§4.1): with a ratio T, the sum of false positives of a
    /// leveled tree does not depend on the number of levels: T^(T/(T-1)) / (T-1) e^(-b ln² 2).
    /// Method: deep trees, where the form is exact.
    #[test]
    fn the_sum_is_that_of_the_paper() {
        for ratio in [2.0f64, 4.0, 10.0] {
            for average in [5.0, 10.0] {
                let runs: Vec<Runs> =
                    (0..24).map(|i| Runs { entries: ratio.powi(i) * 100.0, count: 1.0 }).collect();
                let allocation = Allocation::of(&runs, average);
                let (_, passes) = cost(&runs, |n| allocation.bits(n));
                let form = ratio.powf(ratio / (ratio - 1.0)) / (ratio - 1.0)
                    * (-average * LN2_SQUARED).exp();
                assert!((passes / form - 1.0).abs() < 0.01, "T {ratio}: {passes} of {form}");
            }
        }
    }

    /// Goal: the filters' real false positives are what the arithmetic promises, within the cost of
    /// blocks of one cache line. Method: a tree of three runs, a million absent keys; the measured
    /// sums with Monkey and without, beside the theory of plain Bloom filters.
    #[test]
    fn real_filters_pass_what_theory_says() {
        let runs = [1000.0, 10_000.0, 100_000.0].map(|entries| Runs { entries, count: 1.0 });
        let mut prng = Prng::new(0xb100);
        for average in [5.0, 8.0, 10.0] {
            let allocation = Allocation::of(&runs, average);
            let mut sums = Vec::new();
            for monkey in [false, true] {
                let (mut measured, mut theory) = (0.0, 0.0);
                for run in runs {
                    let bits = if monkey { allocation.bits(run.entries) } else { average };
                    let hashes: Vec<u64> =
                        (0..run.entries as u64).map(|_| prng.next_u64()).collect();
                    let bytes = filter::build(&hashes, bits as f32);
                    let asked = 1_000_000;
                    let passed =
                        (0..asked).filter(|_| filter::may_contain(&bytes, prng.next_u64()));
                    measured += passed.count() as f64 / f64::from(asked);
                    theory += false_positives(bits);
                }
                println!("{average} bits, monkey {monkey}: {measured:.5} measured, {theory:.5}");
                assert!(measured <= theory * 1.35 && measured >= theory * 0.9);
                sums.push(measured);
            }
            assert!(sums[1] < 0.7 * sums[0], "monkey {} of uniform {}", sums[1], sums[0]);
        }
    }
}
