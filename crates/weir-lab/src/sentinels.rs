//! Which hot ranges become sentinels: the engine's choices, and the laboratory's own.
//!
//! `forced` is a rule that needs no cost model: a bucket is moved when it has been scanned so many
//! times since it was moved last and lies in more than one run. That is told from what clients did:
//! it was never moved, or something of it was flushed since. It shows what sentinels can gain, not
//! what a store would do by itself.
//!
//! Not here: who builds a sentinel, and when (`count`, `simulate`).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use weir::defaults::{HEAT_WINDOW_RANGE, THETA_RANGE};
use weir::{BucketRanges, CostModel, Db, HotRanges, SentinelOptions};

use crate::settings::Store;

/// Who moves hot ranges up, and by which cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sentinels {
    /// Nobody.
    Off,
    /// The laboratory, by its own rule.
    Forced,
    /// The engine, by BiLSM's cost.
    Paper,
    /// The engine, by its own cost.
    Corrected,
    /// The engine, which merges hot ranges down instead.
    Down,
}

/// How the keys are divided into buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ranges {
    /// Into ranges of as many entries.
    Quantile,
    /// Into equal parts of the key space: BiLSM's.
    Equal,
}

/// The engine's option for what `store` says, of a store that is loaded with so many keys.
#[must_use]
pub fn option(store: &Store, keys: u64) -> weir::Sentinels {
    let buckets = keys.div_ceil(store.sentinel_bucket_keys.max(1)).max(2);
    let buckets = u32::try_from(buckets).unwrap_or(u32::MAX);
    let options = SentinelOptions::default()
        .theta(store.sentinel_theta)
        .window(Duration::from_secs_f64(store.sentinel_window_seconds))
        // BiLSM has no such bound; an eighth of the tree is left.
        .bytes_max(Some(u64::MAX))
        .buckets(match store.sentinel_ranges {
            Ranges::Quantile => BucketRanges::Quantile(buckets),
            Ranges::Equal => BucketRanges::Equal(buckets),
        });
    match store.sentinels {
        Sentinels::Off => weir::Sentinels::Off,
        // With the option off sentinels sink at once. Nothing is moved by the engine itself.
        Sentinels::Forced => {
            options.theta(*THETA_RANGE.end()).window(*HEAT_WINDOW_RANGE.end()).into()
        }
        Sentinels::Paper => options.cost(CostModel::Paper).ways(HotRanges::Up).into(),
        Sentinels::Corrected => options.ways(HotRanges::Up).into(),
        Sentinels::Down => options.ways(HotRanges::Down).into(),
    }
}

/// What is known of a bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Scans that met it since it was moved.
    scans: u64,
    moved: bool,
    /// Bytes that the store had flushed at the first and at the last write into it since it was
    /// moved.
    written: Option<(u64, u64)>,
}

impl Bucket {
    /// Whether more than one run has something of it, when so many bytes have been flushed.
    fn is_in_several_runs(&self, flushed: u64) -> bool {
        !self.moved || self.written.is_some_and(|(first, _)| first < flushed)
    }
}

/// The laboratory's rule. Buckets are those of keys by their number.
pub struct Rule {
    bucket_keys: u64,
    scans_min: u64,
    /// Whether the first bucket of a sentinel has all keys below it too: of a queue, whose deletes
    /// lie there.
    from_front: bool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    buckets: BTreeMap<u64, Bucket>,
    /// Buckets that have been scanned often enough.
    due: Vec<u64>,
    flushed: u64,
}

/// Bounds of a sentinel.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl Rule {
    /// The rule that `store` asks for, if it does.
    #[must_use]
    pub fn of(store: &Store, from_front: bool) -> Option<Self> {
        (store.sentinels == Sentinels::Forced).then(|| Self {
            bucket_keys: store.sentinel_bucket_keys.max(1),
            scans_min: store.sentinel_scans.max(1),
            from_front,
            known: Mutex::default(),
        })
    }

    /// No actor waits while this is locked.
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a scan of the keys from number `from` on, up to `to`, which is not of it.
    pub fn scanned(&self, from: u64, to: u64) {
        let mut known = self.known();
        let Known { buckets, due, flushed, .. } = &mut *known;
        let last = to.max(from + 1) - 1;
        for number in from / self.bucket_keys..=last / self.bucket_keys {
            let bucket = buckets.entry(number).or_default();
            bucket.scans += 1;
            let often = bucket.scans >= self.scans_min;
            if often && bucket.is_in_several_runs(*flushed) && !due.contains(&number) {
                due.push(number);
            }
        }
    }

    /// Notes a write of the key number `key`.
    pub fn written(&self, key: u64) {
        let mut known = self.known();
        let flushed = known.flushed;
        let bucket = known.buckets.entry(key / self.bucket_keys).or_default();
        let first = bucket.written.map_or(flushed, |(first, _)| first);
        bucket.written = Some((first, flushed));
    }

    /// Takes the buckets that are due.
    fn take_due(&self) -> Vec<u64> {
        std::mem::take(&mut self.known().due)
    }

    /// Notes that a bucket was moved.
    fn moved(&self, number: u64) {
        let mut known = self.known();
        let flushed = known.flushed;
        let bucket = known.buckets.entry(number).or_default();
        // What was written since the last flush is in a memtable, and no part of the sentinel.
        let written = bucket.written.filter(|(_, last)| *last >= flushed);
        *bucket = Bucket { scans: 0, moved: true, written: written.map(|_| (flushed, flushed)) };
    }

    /// Looks up how much has been flushed.
    pub fn look_at_flushes(&self, db: &Db) {
        let flushed = db.metrics().bytes_written.flush;
        self.known().flushed = flushed;
    }

    /// Whether a sentinel is to be built.
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.known().due.is_empty()
    }

    /// Builds what is due. `key` is the key of a number, `None` behind all keys. What is in the way
    /// of another job is due again after the next scan.
    ///
    /// # Errors
    /// The engine's, as text.
    pub fn build(&self, db: &Db, key: impl Fn(u64) -> Option<Vec<u8>>) -> Result<(), String> {
        self.look_at_flushes(db);
        for number in self.take_due() {
            let bounds = self.bounds(number, &key);
            let built = db.default_keyspace().build_sentinel(bounds);
            if built.map_err(|e| format!("building a sentinel failed: {e}"))? {
                self.moved(number);
            }
        }
        Ok(())
    }

    /// The keys of a bucket; of the first one all below its end, of the last one all above.
    fn bounds(&self, number: u64, key: &impl Fn(u64) -> Option<Vec<u8>>) -> Bounds {
        let at = |number: u64| key(number * self.bucket_keys);
        let lower = at(number).filter(|_| number > 0 && !self.from_front);
        let lower = lower.map_or(Bound::Unbounded, Bound::Included);
        (lower, at(number + 1).map_or(Bound::Unbounded, Bound::Excluded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(scans_min: u64) -> Rule {
        Rule { bucket_keys: 100, scans_min, from_front: false, known: Mutex::default() }
    }

    /// Goal: a bucket is due when it was scanned often enough and lies in several runs: it was
    /// never moved, or something of it was flushed since; and what waits in a memtable does not
    /// count.
    #[test]
    fn what_is_scanned_often_is_due() {
        let rule = rule(2);
        rule.scanned(150, 250);
        assert!(rule.take_due().is_empty(), "once");
        rule.scanned(199, 200);
        assert_eq!(rule.take_due(), [1]);
        rule.moved(1);
        let scan_twice = || {
            rule.scanned(100, 110);
            rule.scanned(100, 110);
            rule.take_due()
        };
        assert!(scan_twice().is_empty(), "it is in one run");
        rule.written(105);
        assert!(scan_twice().is_empty(), "and in a memtable");
        rule.known().flushed = 1000;
        assert_eq!(scan_twice(), [1]);
        rule.written(105);
        rule.moved(1);
        assert!(
            scan_twice().is_empty(),
            "what was flushed is in it, what was written later is not"
        );
        rule.known().flushed = 2000;
        assert_eq!(scan_twice(), [1]);
    }

    /// Goal: each name is another option of the engine, and the laboratory's own moves nothing.
    #[test]
    fn names_are_options_of_the_engine() {
        let experiment = crate::catalog::named("bilsm-table1").expect("built in");
        let store = experiment.runs[0].settings.store.clone();
        let of = |sentinels: Sentinels, sentinel_ranges: Ranges| {
            let store = Store { sentinels, sentinel_ranges, sentinel_theta: 2.5, ..store.clone() };
            format!("{:?}", option(&store, 1_000_000))
        };
        assert_eq!(of(Sentinels::Off, Ranges::Equal), format!("{:?}", weir::Sentinels::Off));
        let highest = format!("theta: {:?}", THETA_RANGE.end());
        assert!(of(Sentinels::Forced, Ranges::Quantile).contains(&highest));
        for (sentinels, ranges, parts) in [
            (Sentinels::Paper, Ranges::Equal, ["Paper", "Equal(500)", "Up", "2.5"]),
            (Sentinels::Corrected, Ranges::Quantile, ["Corrected", "Quantile(500)", "Up", "2.5"]),
            (Sentinels::Down, Ranges::Quantile, ["Corrected", "Quantile(500)", "Down", "2.5"]),
        ] {
            let option = of(sentinels, ranges);
            assert!(parts.iter().all(|part| option.contains(part)), "{option}");
        }
    }
}
