//! Scans and writes that are counted instead of timed: the eight workloads of BiLSM's Table 1.
//!
//! Source: BiLSM section 4.1. Hot scans lie in ranges of hot buckets, anywhere in them with the
//! same chance; cold ones have no common key with one another and come once each. Writes lie
//! evenly among the scans, by their number. What the paper does not say (where hot buckets lie, how
//! many) is an option.
//!
//! Cold scans that are more than the keys hold (row h: 23,000 of 120 keys do not fit 10^6) go over
//! all keys again, at other places: those of one pass have no key in common, those of two have.
//!
//! Not here: what a scan or write is to a store, and what is counted (`count`).

use serde::Deserialize;
use weir_bench::{Permutation, Prng};

/// The stream of the scans, of the places of hot ranges, and of the writes.
const SCAN_STREAM: u64 = 1 << 48;
const PLACE_STREAM: u64 = 1 << 49;
const WRITE_STREAM: u64 = 1 << 50;

/// Scans and writes at most: their products are 64 bits long.
const STEPS_MAX: u64 = 1 << 31;

/// What is done, by one client.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Scans. Not scaled: a smaller tree has fewer levels to save.
    pub scans: u64,
    /// Keys of a scan.
    pub scan_keys: u64,
    /// Where they lie.
    pub queries: Queries,
    /// The part of the buckets that is hot, for hot scans.
    pub hot_part: f64,
    /// Hot buckets that lie side by side.
    pub hot_buckets: u64,
    /// Writes. Not scaled.
    pub writes: u64,
    /// The part of them that updates a key that was loaded; the others insert one.
    pub updates: f64,
    /// Virtual seconds between two steps.
    pub step_seconds: f64,
}

/// Where scans lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queries {
    /// In hot buckets.
    Hot,
    /// Anywhere, with no common key.
    Cold,
}

/// One step. Keys are numbers in key order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads the keys from this number on, up to this one, which is not of it.
    Scan(u64, u64),
    /// Writes the loaded key of this number.
    Update(u64),
    /// Writes a new key.
    Insert,
}

impl Counted {
    /// That there is something to do, and room for it in `keys` keys in buckets of `bucket_keys`.
    ///
    /// # Errors
    /// What does not fit together, as a sentence.
    pub fn check(&self, keys: u64, bucket_keys: u64) -> Result<(), String> {
        let Self { scans, scan_keys, hot_part, hot_buckets, writes, updates, .. } = *self;
        if keys == 0 {
            return Err("counted: load.keys is 0: there is nothing to read".into());
        }
        if scans == 0 || scans > STEPS_MAX || writes > STEPS_MAX {
            return Err(format!(
                "counted.scans is {scans} and counted.writes {writes}: choose 1 to {STEPS_MAX} \
                 scans, and writes up to as many"
            ));
        }
        if scan_keys == 0 || scan_keys > keys {
            return Err(format!("counted.scan_keys is {scan_keys}: choose 1 to {keys}, all keys"));
        }
        for (name, part) in [("hot_part", hot_part), ("updates", updates)] {
            if !(0.0..=1.0).contains(&part) {
                return Err(format!("counted.{name} is {part}, and a part is 0 to 1"));
            }
        }
        if !(0.0..=1.0).contains(&self.step_seconds) {
            let seconds = self.step_seconds;
            return Err(format!("counted.step_seconds is {seconds}: choose 0 to 1"));
        }
        let range = hot_buckets.saturating_mul(bucket_keys).min(keys);
        if self.queries == Queries::Hot && range < scan_keys {
            return Err(format!(
                "a scan has {scan_keys} keys and a hot range {range}: choose more \
                 counted.hot_buckets or store.sentinel_bucket_keys"
            ));
        }
        Ok(())
    }
}

/// The steps, in their order.
pub struct Steps {
    counted: Counted,
    keys: u64,
    seed: u64,
    /// First keys of the hot ranges, and how many keys each has.
    hot: (Vec<u64>, u64),
    scans: Prng,
    writes: Prng,
    /// Steps and scans done.
    done: u64,
    scanned: u64,
}

impl Steps {
    /// Those of `counted`, over `keys` keys in buckets of `bucket_keys`.
    #[must_use]
    pub fn new(counted: Counted, keys: u64, bucket_keys: u64, seed: u64) -> Self {
        Self {
            counted,
            keys,
            seed,
            hot: hot_ranges(&counted, keys, bucket_keys, seed),
            scans: Prng::new(seed, SCAN_STREAM),
            writes: Prng::new(seed, WRITE_STREAM),
            done: 0,
            scanned: 0,
        }
    }

    fn scan(&mut self) -> Step {
        let length = self.counted.scan_keys;
        let first = match self.counted.queries {
            Queries::Hot => {
                let (starts, range) = &self.hot;
                let start = starts.get(self.scans.below(starts.len() as u64) as usize);
                start.copied().unwrap_or(0) + self.scans.below(range - length + 1)
            }
            Queries::Cold => {
                let slots = self.keys / length;
                let (pass, place) = (self.scanned / slots, self.scanned % slots);
                // The keys that are left over are another place for each pass.
                let left = self.keys - slots * length + 1;
                let shift = (pass * length.div_ceil(3)) % left.max(1);
                Permutation::new(slots, self.seed.wrapping_add(pass)).at(place) * length + shift
            }
        };
        self.scanned += 1;
        Step::Scan(first, first + length)
    }

    fn write(&mut self) -> Step {
        if self.writes.unit() < self.counted.updates {
            return Step::Update(self.writes.below(self.keys));
        }
        Step::Insert
    }
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (writes, all) = (self.counted.writes, self.counted.scans + self.counted.writes);
        if self.done >= all {
            return None;
        }
        let before = |step: u64| u128::from(step) * u128::from(writes) / u128::from(all);
        let writes_now = before(self.done + 1) > before(self.done);
        self.done += 1;
        Some(if writes_now { self.write() } else { self.scan() })
    }
}

/// The first keys of the hot ranges, and how many keys each has: one range of `hot_buckets` in each
/// of as many equal parts of the keys as there are ranges, at a place of its own there.
fn hot_ranges(counted: &Counted, keys: u64, bucket_keys: u64, seed: u64) -> (Vec<u64>, u64) {
    let buckets = (keys / bucket_keys).max(1);
    let side_by_side = counted.hot_buckets.clamp(1, buckets);
    let hot = (buckets as f64 * counted.hot_part).round() as u64;
    let ranges = (hot / side_by_side).max(1);
    let part = buckets / ranges;
    let place = |range: u64| {
        let free = part.saturating_sub(side_by_side) + 1;
        (range * part + Prng::new(seed, PLACE_STREAM + range).below(free)) * bucket_keys
    };
    ((0..ranges).map(place).collect(), (side_by_side * bucket_keys).min(keys))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const KEYS: u64 = 1_000_000;

    fn counted(queries: Queries, scans: u64, scan_keys: u64) -> Counted {
        Counted {
            scans,
            scan_keys,
            queries,
            hot_part: 0.1,
            hot_buckets: 4,
            writes: 0,
            updates: 0.0,
            step_seconds: 0.0,
        }
    }

    fn scans(counted: Counted) -> Vec<(u64, u64)> {
        counted.check(KEYS, 2000).expect("sound");
        let steps = Steps::new(counted, KEYS, 2000, 7).map(|step| match step {
            Step::Scan(from, to) => (from, to),
            other => panic!("{other:?}"),
        });
        steps.collect()
    }

    /// Goal: hot scans lie in a tenth of the buckets, all of them are read, and none outside.
    #[test]
    fn hot_scans_lie_in_a_tenth() {
        let all = scans(counted(Queries::Hot, 20_000, 6000));
        assert_eq!(all.len(), 20_000);
        let buckets: BTreeSet<u64> =
            all.iter().flat_map(|(from, to)| from / 2000..=(to - 1) / 2000).collect();
        // 12 ranges of 4 buckets, of 50 that a tenth of 500 are.
        assert_eq!(buckets.len(), 48);
        assert!(all.iter().all(|(from, to)| to - from == 6000 && *to <= KEYS));
    }

    /// Goal: cold scans have no common key, as long as there are keys (rows c, d), and the 23,000
    /// of rows g and h none within a pass, at other places in each.
    #[test]
    fn cold_scans_have_no_common_key() {
        for (number, length, passes) in [(5_000, 200, 1), (23_000, 120, 3)] {
            let all = scans(counted(Queries::Cold, number, length));
            let slots = (KEYS / length) as usize;
            assert_eq!(all.chunks(slots).count(), passes);
            for pass in all.chunks(slots) {
                let mut sorted = pass.to_vec();
                sorted.sort_unstable();
                assert!(sorted.windows(2).all(|pair| pair[0].1 <= pair[1].0));
                assert!(sorted.last().is_some_and(|last| last.1 <= KEYS));
                assert_ne!(sorted, pass, "in another order than that of the keys");
            }
            let distinct: BTreeSet<_> = all.iter().collect();
            assert_eq!(distinct.len(), all.len(), "each appears once");
        }
    }

    /// Goal: writes lie evenly among scans, and nine tenths of them update.
    #[test]
    fn writes_lie_among_scans() {
        let mixed = Counted { writes: 1000, updates: 0.9, ..counted(Queries::Hot, 9000, 6000) };
        let steps: Vec<Step> = Steps::new(mixed, KEYS, 2000, 7).collect();
        assert_eq!(steps.len(), 10_000);
        for ten in steps.chunks(10) {
            let writes = ten.iter().filter(|step| !matches!(step, Step::Scan(..))).count();
            assert_eq!(writes, 1);
        }
        let updates = steps.iter().filter(|step| matches!(step, Step::Update(_))).count();
        assert!((850..950).contains(&updates), "{updates}");
        let again: Vec<Step> = Steps::new(mixed, KEYS, 2000, 7).collect();
        assert_eq!(steps, again);
    }

    /// Goal: what cannot be done is refused with what can.
    #[test]
    fn what_is_wrong_is_named() {
        let sound = counted(Queries::Hot, 10, 6000);
        for (wrong, keys, named) in [
            (sound, 0, "load.keys is 0"),
            (Counted { scans: 0, ..sound }, KEYS, "counted.scans is 0"),
            (Counted { scan_keys: KEYS + 1, ..sound }, KEYS, "choose 1 to 1000000"),
            (Counted { updates: 1.5, ..sound }, KEYS, "counted.updates is 1.5"),
            (Counted { hot_buckets: 2, ..sound }, KEYS, "a hot range 4000"),
        ] {
            let error = wrong.check(keys, 2000).expect_err(named);
            assert!(error.contains(named), "{error}");
        }
    }
}
