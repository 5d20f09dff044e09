//! Buckets: a partition of the key space into ranges, whose reads and writes are counted apart.
//!
//! Buckets are cut at quantiles of the keys, so that each has about as many entries, or into equal
//! ranges of the key space between the smallest and the largest key (BiLSM §4.1, for its
//! experiment). Both are made from the bounds of tables and their entries alone: nothing is read.
//! Inside of a table keys count as spread evenly (`base::key_scale`), so that buckets may be finer
//! than tables.
//!
//! When they are cut anew: (a) when there are twice or half as many entries as at the last cut: a
//! bucket then has at most twice what it was made for if growth is even, and cuts cost a constant
//! share of the flushes that grew the keyspace; (b) when a quantile bucket has more than four times
//! the average, and more than twice what the largest had at the last cut: growth in one place,
//! such as of a queue, would make one bucket of all that is hot. The second half of (b) stops what
//! cannot be divided from being cut again and again.
//!
//! Invariants: (1) buckets are half-open, disjoint, in key order and cover every key: the first
//! begins with the empty key, the last has no end; (2) no bucket is empty by its bounds: these
//! ascend strictly.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

use crate::base::key::{compare, prefix};
use crate::base::key_scale::KeyScale;
use crate::options::sentinels::BucketRanges;

/// Buckets are cut anew when the entries have grown or shrunk by this factor.
const ENTRIES_FACTOR: u64 = 2;
/// Or when the largest one has this many times the average ..
const UNEVEN_MAX: f64 = 4.0;
/// .. and this many times what it had at the last cut.
const UNEVEN_FACTOR: f64 = 2.0;

/// A table, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSpan<'a> {
    pub(crate) smallest: &'a [u8],
    pub(crate) largest: &'a [u8],
    pub(crate) entries: u64,
}

/// Entries that are taken to lie at one key.
pub(super) struct Point {
    pub(super) key: Vec<u8>,
    pub(super) entries: u64,
}

/// A partition of the key space.
#[derive(Debug)]
pub(crate) struct Buckets {
    /// The smallest key of each bucket but the first.
    bounds: Box<[Box<[u8]>]>,
    /// What all bounds begin with.
    common: Box<[u8]>,
    /// The 8 bytes of each bound behind it.
    fences: Box<[u64]>,
    /// How it was cut.
    how: BucketRanges,
    /// Entries then.
    entries: u64,
    /// How many times the average the largest bucket had then.
    uneven: f64,
}

impl Buckets {
    /// Cuts the key space by the tables of a tree, in any order: time for a sort of as many keys as
    /// there are tables and four times as many as buckets.
    pub(crate) fn cut(how: BucketRanges, tables: &[TableSpan<'_>]) -> Self {
        Self::of_points(how, tables, &points_of(how, tables))
    }

    /// The same, of points of these tables.
    pub(super) fn of_points(how: BucketRanges, tables: &[TableSpan<'_>], points: &[Point]) -> Self {
        let bounds = match how {
            BucketRanges::Quantile(count) => quantiles(count, points),
            BucketRanges::Equal(count) => equal_ranges(count, tables),
        };
        let mut cut = Self::at(how, bounds);
        cut.entries = points.iter().map(|point| point.entries).sum();
        cut.uneven = cut.unevenness(points);
        cut
    }

    /// Buckets with these bounds, ascending and not empty, of no entries.
    fn at(how: BucketRanges, bounds: Vec<Box<[u8]>>) -> Self {
        assert!(bounds.is_sorted_by(|a, b| a < b), "bounds of buckets do not ascend: {bounds:?}");
        let common = match (bounds.first(), bounds.last()) {
            (Some(first), Some(last)) => {
                let len = first.iter().zip(last).take_while(|(a, b)| a == b).count();
                first.iter().take(len).copied().collect()
            }
            _ => Box::default(),
        };
        let fence = |bound: &[u8]| prefix(bound.get(common.len()..).unwrap_or(&[]));
        let fences = bounds.iter().map(|bound| fence(bound)).collect();
        Self { bounds: bounds.into(), common, fences, how, entries: 0, uneven: 1.0 }
    }

    /// Number of buckets, at least 1.
    pub(crate) fn len(&self) -> usize {
        self.bounds.len() + 1
    }

    /// The bucket of a key.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        let Some(rest) = key.strip_prefix(&*self.common) else {
            // Before all bounds, or behind them.
            return if compare(key, &self.common).is_lt() { 0 } else { self.bounds.len() };
        };
        let wanted = prefix(rest);
        let low = self.fences.partition_point(|&fence| fence < wanted);
        let same = self.fences.get(low..).map_or(0, |f| f.partition_point(|&x| x == wanted));
        let ties = self.bounds.get(low..low + same).unwrap_or(&[]);
        low + ties.partition_point(|bound| compare(bound, key).is_le())
    }

    /// The first key of a bucket, and the first one behind it.
    pub(crate) fn range(&self, bucket: usize) -> (&[u8], Option<&[u8]>) {
        let from = bucket.checked_sub(1).and_then(|before| self.bounds.get(before));
        (from.map_or(&[], |from| from), self.bounds.get(bucket).map(|to| &**to))
    }

    /// How it was cut.
    pub(crate) fn how(&self) -> BucketRanges {
        self.how
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let keys: usize =
            self.bounds.iter().map(|bound| bound.len() + size_of::<Box<[u8]>>()).sum();
        (keys + self.common.len() + self.fences.len() * size_of::<u64>()) as u64
    }

    /// Rule (a): whether a tree of so many entries wants other buckets. Cheap.
    pub(crate) fn are_outgrown(&self, entries: u64) -> bool {
        entries >= self.entries.saturating_mul(ENTRIES_FACTOR).max(1)
            || entries.saturating_mul(ENTRIES_FACTOR) <= self.entries && self.entries > 0
    }

    /// Rule (b): whether one bucket has far more entries than the others. As dear as a cut.
    pub(crate) fn are_uneven(&self, tables: &[TableSpan<'_>]) -> bool {
        let BucketRanges::Quantile(_) = self.how else { return false };
        let now = self.unevenness(&points_of(self.how, tables));
        now > UNEVEN_MAX && now > self.uneven * UNEVEN_FACTOR
    }

    /// How many times the average the largest bucket has.
    fn unevenness(&self, points: &[Point]) -> f64 {
        let mut entries = vec![0u64; self.len()];
        for point in points {
            if let Some(of) = entries.get_mut(self.find(&point.key)) {
                *of += point.entries;
            }
        }
        let largest = entries.iter().max().copied().unwrap_or(0);
        let all: u64 = entries.iter().sum();
        largest as f64 * entries.len() as f64 / all.max(1) as f64
    }
}

/// The entries of all tables as points in key order, each at most a quarter of a bucket.
pub(super) fn points_of(how: BucketRanges, tables: &[TableSpan<'_>]) -> Vec<Point> {
    let all: u64 = tables.iter().map(|table| table.entries).sum();
    let most = 4 * u64::from(how.count());
    let mut points = Vec::new();
    for table in tables.iter().filter(|table| table.entries > 0) {
        let scale = KeyScale::new(table.smallest, table.largest);
        let share = u128::from(table.entries) * u128::from(most);
        let parts = u64::try_from(share.div_ceil(u128::from(all))).unwrap_or(most).clamp(1, most);
        let upto = |part| (u128::from(table.entries) * part / u128::from(parts)) as u64;
        for part in 0..parts {
            let key = scale.key_at((part as f64 + 0.5) / parts as f64);
            let entries = upto(u128::from(part) + 1) - upto(u128::from(part));
            points.push(Point { key, entries });
        }
    }
    points.sort_by(|a, b| compare(&a.key, &b.key));
    points
}

/// Bounds so that about as many entries lie between any two neighbours.
fn quantiles(count: u32, points: &[Point]) -> Vec<Box<[u8]>> {
    let all: u64 = points.iter().map(|point| point.entries).sum();
    let upto = |bucket: u64| u128::from(all) * u128::from(bucket) / u128::from(count.max(1));
    let (mut bounds, mut next, mut before) = (Vec::new(), 1, 0u64);
    for point in points {
        // A point stands for entries on both sides of its key.
        let below = u128::from(before + point.entries / 2);
        let first = next;
        while below >= upto(next) && next < u64::from(count) {
            next += 1;
        }
        if next > first {
            push_bound(&mut bounds, &point.key);
        }
        before += point.entries;
    }
    bounds
}

/// Bounds at equal distances between the smallest and the largest key.
fn equal_ranges(count: u32, tables: &[TableSpan<'_>]) -> Vec<Box<[u8]>> {
    let smallest = tables.iter().map(|table| table.smallest).min_by(|a, b| compare(a, b));
    let largest = tables.iter().map(|table| table.largest).max_by(|a, b| compare(a, b));
    let mut bounds = Vec::new();
    if let (Some(smallest), Some(largest)) = (smallest, largest) {
        let scale = KeyScale::new(smallest, largest);
        for bucket in 1..count {
            push_bound(&mut bounds, &scale.key_at(f64::from(bucket) / f64::from(count)));
        }
    }
    bounds
}

/// Adds a bound, unless it would make an empty bucket.
fn push_bound(bounds: &mut Vec<Box<[u8]>>, key: &[u8]) {
    if bounds.last().map_or(!key.is_empty(), |last| compare(last, key).is_lt()) {
        bounds.push(key.into());
    }
}

#[cfg(test)]
mod tests;
