//! Which key is read or written next.
//!
//! Keys are numbers below the number of loaded keys, in key order. Writes are numbered; the key of
//! write `i` is a function of the seed and `i`, so that a reader can choose among the keys that
//! were written last without a list of them. Numbers below 0 are the updates of the load.
//!
//! `latest` means the keys that were written last before the measured part, and their popularity
//! does not change when other keys are written later. The paper (dLSM, section VII-A) says "the
//! most recently inserted"; its writes are updates, and its hit ratios of 0.65 to 0.96 need keys
//! that stay popular over many reads, which popularity by the last update does not give: at 1,000
//! writes and 400 reads a second no key would be read twice.
//!
//! Which keys are popular, and where the hot range is, depends on the run's seed alone: all groups
//! agree on it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_bench::{Permutation, Prng, Zipfian};

use crate::clients::{ReadChoice, Reads};
use crate::phases::nanos;

/// The stream of the keys that are written.
const WRITE_STREAM: u64 = 1 << 40;

/// The stream of the places of the hot range.
const HOT_STREAM: u64 = 1 << 46;

/// The key of write number `write`: uniform over `keys`.
#[must_use]
pub fn written_key(seed: u64, write: i64, keys: u64) -> u64 {
    Prng::new(seed, WRITE_STREAM.wrapping_add_signed(write)).below(keys)
}

/// How the readers of a group choose.
#[derive(Debug)]
pub struct Choice {
    seed: u64,
    keys: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Uniform,
    Front,
    Back,
    /// The next key.
    Sequential(AtomicU64),
    /// The popular keys do not lie together.
    Zipfian(Zipfian, Permutation),
    RangeHot(Hot, f64),
    Latest(Recent, Ranks),
}

/// A hot range, which may move.
#[derive(Clone, Copy, Debug)]
struct Hot {
    keys: u64,
    /// Nanoseconds from one move to the next; 0: it stays in the middle.
    moves_nanos: u64,
}

impl Hot {
    /// Its first key at so many nanoseconds since the run began, of `keys` keys: in the middle
    /// until it moves for the first time.
    fn start(self, seed: u64, keys: u64, since: u64) -> u64 {
        let room = keys - self.keys;
        match since.checked_div(self.moves_nanos) {
            None | Some(0) => room / 2,
            Some(moves) => Prng::new(seed, HOT_STREAM.wrapping_add(moves)).below(room + 1),
        }
    }
}

/// The writes that count as recent.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// The number of the first write that is too late.
    end: i64,
    count: u64,
}

/// Which of the recent keys.
#[derive(Clone, Debug)]
enum Ranks {
    Uniform,
    /// The latest is the most popular.
    Zipfian(Zipfian),
    /// Those in a range.
    Hot(Hot),
}

/// Recent keys that are drawn until one is in the hot range: a hundredth of the keys is missed once
/// in 20,000 times.
const TRIES_MAX: usize = 1000;

impl Choice {
    /// The choice that `reads` names, over `keys` keys. `measured_from` is the number of the first
    /// write of the measured part.
    #[must_use]
    pub fn new(reads: &Reads, keys: u64, seed: u64, measured_from: u64) -> Self {
        let hot = ((keys as f64 * reads.hot_keys) as u64).clamp(1, keys);
        let hot = Hot { keys: hot, moves_nanos: nanos(reads.hot_moves_seconds) };
        let count = reads.recent_keys.max(1);
        let recent = Recent { end: i64::try_from(measured_from).unwrap_or(i64::MAX), count };
        let zipfian = |keys: u64| Zipfian::with_theta(keys, reads.zipf_theta);
        let kind = match reads.choice {
            ReadChoice::Uniform => Kind::Uniform,
            ReadChoice::Front => Kind::Front,
            ReadChoice::Back => Kind::Back,
            ReadChoice::Sequential => Kind::Sequential(AtomicU64::new(0)),
            ReadChoice::Zipfian => Kind::Zipfian(zipfian(keys), Permutation::new(keys, seed)),
            ReadChoice::RangeHot => Kind::RangeHot(hot, reads.hot_reads),
            ReadChoice::LatestUniform => Kind::Latest(recent, Ranks::Uniform),
            ReadChoice::LatestZipfian => Kind::Latest(recent, Ranks::Zipfian(zipfian(count))),
            ReadChoice::LatestRangeHot => Kind::Latest(recent, Ranks::Hot(hot)),
        };
        Self { seed, keys, kind }
    }

    /// The key of the next operation, which begins `since` nanoseconds after the run and passes
    /// about so many `entries`; of the keys `there` that are not deleted.
    pub fn next(&self, prng: &mut Prng, since: u64, entries: u64, there: Range<u64>) -> u64 {
        match &self.kind {
            Kind::Front => there.start,
            Kind::Back => there.end.saturating_sub(entries).max(there.start),
            Kind::Uniform => prng.below(self.keys),
            Kind::Sequential(next) => next.fetch_add(entries, Ordering::Relaxed) % self.keys,
            Kind::Zipfian(ranks, order) => order.at(ranks.next(prng)),
            Kind::RangeHot(hot, hot_reads) => {
                if prng.unit() < *hot_reads {
                    hot.start(self.seed, self.keys, since) + prng.below(hot.keys)
                } else {
                    prng.below(self.keys)
                }
            }
            Kind::Latest(recent, ranks) => self.latest(*recent, ranks, prng, since),
        }
    }

    /// One of the recent keys.
    fn latest(&self, recent: Recent, ranks: &Ranks, prng: &mut Prng, since: u64) -> u64 {
        let back = |rank: u64| written_key(self.seed, recent.end - 1 - rank as i64, self.keys);
        match ranks {
            Ranks::Uniform => back(prng.below(recent.count)),
            Ranks::Zipfian(ranks) => back(ranks.next(prng)),
            Ranks::Hot(hot) => {
                let start = hot.start(self.seed, self.keys, since);
                let range = start..start + hot.keys;
                let mut keys = (0..TRIES_MAX).map(|_| back(prng.below(recent.count)));
                let found = keys.find(|key| range.contains(key));
                // None of the recent writes may have gone there: then any key of the range.
                found.unwrap_or_else(|| start + prng.below(hot.keys))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Loop, ReadKind};

    fn reads(choice: ReadChoice) -> Reads {
        Reads {
            threads: 1,
            pace: Loop::Closed,
            per_second: 0.0,
            kind: ReadKind::Get,
            choice,
            recent_keys: 50,
            zipf_theta: 0.999,
            hot_keys: 0.15,
            hot_reads: 0.98,
            hot_moves_seconds: 0.0,
            scan_bytes: 0,
            scan_scaled: false,
            cpu_nanos: 0,
            entry_cpu_nanos: 0,
        }
    }

    const KEYS: u64 = 10_000;

    fn draw(choice: ReadChoice, measured_from: u64) -> Vec<u64> {
        let choice = Choice::new(&reads(choice), KEYS, 7, measured_from);
        let mut prng = Prng::new(1, 1);
        (0..20_000).map(|_| choice.next(&mut prng, 0, 1, 0..KEYS)).collect()
    }

    /// Goal: every key is in range.
    #[test]
    fn in_range() {
        use ReadChoice::{LatestUniform, LatestZipfian, RangeHot, Sequential, Uniform, Zipfian};
        for choice in [Uniform, Sequential, Zipfian, RangeHot, LatestUniform, LatestZipfian] {
            assert!(draw(choice, 3).iter().all(|&key| key < KEYS), "{choice:?}");
        }
    }

    /// Goal: the hot range gets its share: 98 % and what the cold reads add.
    #[test]
    fn hot_range() {
        let keys = draw(ReadChoice::RangeHot, 0);
        let hot = keys.iter().filter(|&&k| (4250..5750).contains(&k)).count() as f64 / 20_000.0;
        assert!((hot - (0.98 + 0.02 * 0.15)).abs() < 0.005, "{hot}");
    }

    /// Goal: a hot range that moves is at one place until it moves, and somewhere else then, as the
    /// seed says; keys in order begin anew behind the last one.
    #[test]
    fn ranges_that_move_and_keys_in_order() {
        let moving =
            Reads { hot_reads: 1.0, hot_moves_seconds: 2.0, ..reads(ReadChoice::RangeHot) };
        let choice = Choice::new(&moving, KEYS, 7, 0);
        let mut prng = Prng::new(1, 1);
        let range = |seconds: u64| {
            let keys: Vec<u64> = (0..2000)
                .map(|_| choice.next(&mut prng, seconds * 1_000_000_000, 1, 0..KEYS))
                .collect();
            (*keys.iter().min().expect("some"), *keys.iter().max().expect("some"))
        };
        let places = [0, 1, 2, 3, 4].map(range);
        assert!(places.iter().all(|(low, high)| high - low < 1500 && *high < KEYS), "{places:?}");
        let near = |a: usize, b: usize| places[a].0.abs_diff(places[b].0) < 50;
        assert!(places[0].0.abs_diff(4250) < 50 && near(0, 1) && near(2, 3), "{places:?}");
        assert!(!near(1, 2) && !near(3, 4), "{places:?}");
        let choice = Choice::new(&reads(ReadChoice::Sequential), 10, 7, 0);
        let keys = [4, 4, 4, 1].map(|entries| choice.next(&mut prng, 0, entries, 0..10));
        assert_eq!(keys, [0, 4, 8, 2]);
        for (end, key) in [(ReadChoice::Front, 30), (ReadChoice::Back, 45)] {
            let choice = Choice::new(&reads(end), 10, 7, 0);
            assert_eq!(choice.next(&mut prng, 0, 5, 30..50), key, "{end:?}");
            assert_eq!(choice.next(&mut prng, 0, 50, 30..50), 30, "{end:?}");
        }
    }

    /// Goal: `latest` reads what was written last before the measured part and nothing else, also
    /// if only the load wrote. Method: the set of the last 50 writes' keys, from the same function
    /// as the writer's.
    #[test]
    fn latest() {
        let of_load: Vec<u64> = (-50..0).map(|i| written_key(7, i, KEYS)).collect();
        for choice in [ReadChoice::LatestUniform, ReadChoice::LatestZipfian] {
            assert!(draw(choice, 0).iter().all(|k| of_load.contains(k)), "{choice:?}");
        }
        let recent: Vec<u64> = (950..1000).map(|i| written_key(7, i, KEYS)).collect();
        assert!(draw(ReadChoice::LatestUniform, 1000).iter().all(|k| recent.contains(k)));
        let hot: Vec<u64> = recent.into_iter().filter(|k| (4250..5750).contains(k)).collect();
        assert!(draw(ReadChoice::LatestRangeHot, 1000).iter().all(|k| hot.contains(k)));
        // A hot range that no recent write has met.
        let narrow = Reads { hot_keys: 1e-4, ..reads(ReadChoice::LatestRangeHot) };
        let narrow = Choice::new(&narrow, KEYS, 7, 1000);
        let mut prng = Prng::new(1, 1);
        assert!((0..10).all(|_| narrow.next(&mut prng, 0, 1, 0..KEYS) == 4999));
        let newest = written_key(7, 999, KEYS);
        let zipfian = draw(ReadChoice::LatestZipfian, 1000);
        assert!(zipfian.iter().filter(|&&k| k == newest).count() > 1000);
    }
}
