//! Skewed choice of keys.
//!
//! Source: Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994, as in
//! YCSB's `ZipfianGenerator`, `ScrambledZipfianGenerator` and `SkewedLatestGenerator`.

use crate::prng::Prng;

/// YCSB's skew.
const THETA: f64 = 0.99;

/// The sum of `1 / i^theta` for i in 1..=n: exact for the first terms, then the integral with the
/// trapezoid correction, whose error is below 1e-9 from 10,000 terms on.
fn zeta(n: u64, theta: f64) -> f64 {
    const EXACT: u64 = 10_000;
    let exact: f64 = (1..=n.min(EXACT)).map(|i| (i as f64).powf(-theta)).sum();
    if n <= EXACT {
        return exact;
    }
    let (a, b) = (EXACT as f64, n as f64);
    let integral = (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta);
    exact + integral + (b.powf(-theta) - a.powf(-theta)) / 2.0
}

/// Ranks 0..n, rank r with a probability proportional to `1 / (r + 1)^theta`.
#[derive(Clone, Debug)]
pub struct Zipfian {
    n: u64,
    theta: f64,
    alpha: f64,
    zeta_n: f64,
    eta: f64,
}

impl Zipfian {
    /// Ranks below `n`, which must not be 0, with YCSB's skew of 0.99.
    #[must_use]
    pub fn new(n: u64) -> Self {
        Self::with_theta(n, THETA)
    }

    /// Ranks below `n`, which must not be 0, with a skew above 0 and below 1.
    #[must_use]
    pub fn with_theta(n: u64, theta: f64) -> Self {
        assert!(n > 0, "a choice out of nothing does not exist");
        assert!(theta > 0.0 && theta < 1.0, "a skew of {theta} is not between 0 and 1");
        let zeta_n = zeta(n, theta);
        let eta =
            (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - zeta(2.min(n), theta) / zeta_n);
        Self { n, theta, alpha: 1.0 / (1.0 - theta), zeta_n, eta }
    }

    /// The next rank.
    pub fn next(&self, prng: &mut Prng) -> u64 {
        let u = prng.unit();
        let uz = u * self.zeta_n;
        if uz < 1.0 || self.n == 1 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let rank = self.n as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.n - 1)
    }
}

/// Zipfian popularity scattered over `n` items: the popular ones do not lie together.
#[derive(Clone, Debug)]
pub struct ScrambledZipfian {
    n: u64,
    ranks: Zipfian,
}

impl ScrambledZipfian {
    /// Items below `n`, which must not be 0.
    #[must_use]
    pub fn new(n: u64) -> Self {
        assert!(n > 0, "a choice out of nothing does not exist");
        // YCSB draws ranks from ten billion items whatever `n` is, so that the skew does not depend
        // on the size of the store.
        Self { n, ranks: Zipfian::new(10_000_000_000) }
    }

    /// The next item.
    pub fn next(&self, prng: &mut Prng) -> u64 {
        fnv64(self.ranks.next(prng)) % self.n
    }
}

/// YCSB's hash of a rank: FNV-1a over its eight bytes.
fn fnv64(value: u64) -> u64 {
    value.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Items that were inserted last are the most popular.
#[derive(Clone, Debug)]
pub struct Latest {
    ranks: Zipfian,
}

impl Latest {
    /// For a store that holds about `n` items; it may grow meanwhile.
    #[must_use]
    pub fn new(n: u64) -> Self {
        Self { ranks: Zipfian::new(n) }
    }

    /// The next item out of those below `count`, which must not be 0.
    pub fn next(&self, prng: &mut Prng, count: u64) -> u64 {
        assert!(count > 0, "a choice out of nothing does not exist");
        count - 1 - self.ranks.next(prng).min(count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the approximated zeta is right. Method: against the exact sum at a size past the
    /// switch.
    #[test]
    fn zeta_agrees_with_the_sum() {
        let exact: f64 = (1..=200_000u64).map(|i| (i as f64).powf(-THETA)).sum();
        assert!((zeta(200_000, THETA) - exact).abs() < 1e-6);
        // YCSB's constant for ten billion items.
        assert!((zeta(10_000_000_000, THETA) - 26.469_028_201_783_02).abs() < 1e-4);
    }

    /// Goal: the skew is Zipf's. Method: the two most popular ranks' frequencies against
    /// `1 / zeta(n)` and half of it to the power of the skew; the tail is reached.
    #[test]
    fn zipfian_frequencies() {
        for theta in [0.5, THETA, 0.999] {
            let zipf = Zipfian::with_theta(1000, theta);
            let mut prng = Prng::new(1, 0);
            let draws = 200_000;
            let mut counts = vec![0u64; 1000];
            for _ in 0..draws {
                counts[zipf.next(&mut prng) as usize] += 1;
            }
            let first = 1.0 / zeta(1000, theta);
            assert!((counts[0] as f64 / draws as f64 - first).abs() < 0.01);
            let second = first * 0.5f64.powf(theta);
            assert!((counts[1] as f64 / draws as f64 - second).abs() < 0.01);
            assert!(counts[900..].iter().sum::<u64>() > 0, "the tail is reached");
        }
    }

    /// Goal: small and growing stores work. Method: one item, and counts below the planned size.
    #[test]
    fn edges() {
        let mut prng = Prng::new(2, 0);
        for _ in 0..1000 {
            assert_eq!(Zipfian::new(1).next(&mut prng), 0);
            assert!(Zipfian::new(2).next(&mut prng) < 2);
            assert_eq!(ScrambledZipfian::new(1).next(&mut prng), 0);
            assert!(Latest::new(100).next(&mut prng, 7) < 7);
        }
    }
}
