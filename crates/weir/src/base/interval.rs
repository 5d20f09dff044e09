//! Half-open intervals of user keys, and sets of them.
//!
//! Masks and claims (ARCHITECTURE §7) cut the key space at keys that need not exist: what begins at
//! one ends the other, so the end is excluded. Not here: holes of buffer lists, whose ends are keys
//! of tables (`base::key::KeyRange`).
//!
//! Invariants of [`Intervals`]: (1) ascending; (2) none is empty; (3) between two of them lies at
//! least one key: what touches is one interval; (4) `heads` are those of their ends: a search reads
//! keys only where the heads do not decide.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::ops::{Bound, Range};
use std::sync::Arc;

use crate::base::key::{compare, head};

/// The keys from `from` on that are below `to`, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// The first key of the interval; the empty key is the first of all.
    pub(crate) from: Arc<[u8]>,
    /// The first key behind it; `None` if it has no end.
    pub(crate) to: Option<Arc<[u8]>>,
}

impl Interval {
    /// The interval from `from` to below `to`.
    pub(crate) fn new(from: &[u8], to: Option<&[u8]>) -> Self {
        Self { from: Arc::from(from), to: to.map(Arc::from) }
    }

    /// The keys from `smallest` to `largest`, both included.
    pub(crate) fn closed(smallest: &[u8], largest: &[u8]) -> Self {
        // No key lies between a key and the same with a zero behind it.
        let mut behind = Vec::with_capacity(largest.len() + 1);
        behind.extend_from_slice(largest);
        behind.push(0);
        Self::new(smallest, Some(&behind))
    }

    /// The keys between two bounds.
    pub(crate) fn of_bounds((lower, upper): (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Self {
        let behind = |mut key: Vec<u8>| {
            key.push(0);
            key
        };
        let from = match lower {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key,
            Bound::Excluded(key) => behind(key),
        };
        let to = match upper {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(key),
        };
        Self::new(&from, to.as_deref())
    }

    /// Whether it has no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| compare(to, &self.from).is_le())
    }

    /// Whether it begins at or below `key`, and whether it ends behind it.
    #[inline]
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        compare(&self.from, key).is_le() && self.ends_above(key)
    }

    /// Whether some key at or above `key` is not behind the interval.
    #[inline]
    fn ends_above(&self, key: &[u8]) -> bool {
        self.to.as_ref().is_none_or(|to| compare(key, to).is_lt())
    }

    /// Whether it has a key from `smallest` to `largest`.
    pub(crate) fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        compare(&self.from, largest).is_le() && self.ends_above(smallest)
    }

    /// Whether it has all keys from `smallest` to `largest`.
    pub(crate) fn covers(&self, smallest: &[u8], largest: &[u8]) -> bool {
        compare(&self.from, smallest).is_le() && self.ends_above(largest)
    }

    /// Whether it has all keys of `other`.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        let ends_behind = match (&self.to, &other.to) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(ours), Some(theirs)) => compare(theirs, ours).is_le(),
        };
        compare(&self.from, &other.from).is_le() && ends_behind
    }

    /// The smallest interval that has the keys of both.
    pub(crate) fn around(&self, other: &Self) -> Self {
        let from = Arc::clone(&self.from).min(Arc::clone(&other.from));
        let to = self.to.clone().zip(other.to.clone()).map(|(ours, theirs)| ours.max(theirs));
        Self { from, to }
    }

    /// The keys that both have.
    pub(crate) fn common(&self, other: &Self) -> Self {
        let from = Arc::clone(&self.from).max(Arc::clone(&other.from));
        let to = match (&self.to, &other.to) {
            (Some(ours), Some(theirs)) => Some(Arc::clone(ours.min(theirs))),
            (to, None) | (None, to) => to.clone(),
        };
        Self { from, to }
    }

    /// The bounds, as cursors and table lists take them.
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let upper = self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(&self.from), upper)
    }

    /// Whether it ends before `other` begins, with a key between.
    fn is_before(&self, other: &Self) -> bool {
        self.to.as_ref().is_some_and(|to| compare(to, &other.from).is_lt())
    }
}

/// A set of keys: disjoint intervals, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    intervals: Vec<Interval>,
    /// The head of each one's end; all ones where it has none.
    heads: Vec<u128>,
}

impl Intervals {
    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// The intervals, ascending.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Interval> {
        self.intervals.iter()
    }

    /// The smallest interval that has all of them; `None` if there is none.
    pub(crate) fn hull(&self) -> Option<Interval> {
        Some(self.intervals.first()?.around(self.intervals.last()?))
    }

    /// The interval with this number.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Interval> {
        self.intervals.get(index)
    }

    /// Number of the first interval that ends behind `key`: the one that has it, or the next.
    #[inline]
    pub(crate) fn at_or_after(&self, key: &[u8]) -> usize {
        let wanted = head(key);
        let low = self.heads.partition_point(|&end| end < wanted);
        // An end with the same head may be on either side of the key.
        let rest = self.heads.get(low..).unwrap_or(&[]);
        if rest.first() != Some(&wanted) {
            return low;
        }
        let same = rest.partition_point(|&end| end == wanted);
        let ties = self.intervals.get(low..low + same).unwrap_or(&[]);
        low + ties.partition_point(|interval| !interval.ends_above(key))
    }

    /// Number of the interval that has `key`, or else of the next one.
    #[inline]
    pub(crate) fn locate(&self, key: &[u8]) -> Result<usize, usize> {
        let at = self.at_or_after(key);
        let has = self.get(at).is_some_and(|interval| compare(&interval.from, key).is_le());
        if has { Ok(at) } else { Err(at) }
    }

    /// Whether one of them has `key`.
    #[inline]
    pub(crate) fn contain(&self, key: &[u8]) -> bool {
        self.locate(key).is_ok()
    }

    /// Whether one of them has a key of `interval`.
    pub(crate) fn overlap_with(&self, interval: &Interval) -> bool {
        let first = self.get(self.at_or_after(&interval.from));
        first.is_some_and(|first| {
            interval.to.as_ref().is_none_or(|to| compare(&first.from, to).is_lt())
        })
    }

    /// The numbers of those that share a key with `interval` or touch it.
    fn met(&self, interval: &Interval) -> Range<usize> {
        let first = self.intervals.partition_point(|earlier| earlier.is_before(interval));
        let rest = self.intervals.get(first..).unwrap_or(&[]);
        first..first + rest.partition_point(|later| !interval.is_before(later))
    }

    /// Adds the keys of an interval.
    pub(crate) fn add(&mut self, interval: Interval) {
        if interval.is_empty() {
            return;
        }
        let met = self.met(&interval);
        let Interval { mut from, mut to } = interval;
        if let (Some(first), Some(last)) = (self.get(met.start), self.intervals.get(..met.end)) {
            let last = last.last().filter(|_| !met.is_empty());
            if let Some(last) = last {
                from = from.min(Arc::clone(&first.from));
                to = to.zip(last.to.clone()).map(|(ours, theirs)| ours.max(theirs));
            }
        }
        self.replace(met, vec![Interval { from, to }]);
    }

    /// Takes the keys of an interval away.
    pub(crate) fn subtract(&mut self, interval: &Interval) {
        if interval.is_empty() {
            return;
        }
        let met = self.met(interval);
        let mut left = Vec::with_capacity(2);
        for cut in self.intervals.get(met.clone()).unwrap_or(&[]) {
            let below = Interval { from: Arc::clone(&cut.from), to: Some(interval.from.clone()) };
            let below = match &cut.to {
                Some(to) if compare(to, &interval.from).is_lt() => cut.clone(),
                _ => below,
            };
            let above = interval
                .to
                .as_ref()
                .map(|to| Interval { from: to.max(&cut.from).clone(), to: cut.to.clone() });
            left.extend([Some(below), above].into_iter().flatten().filter(|i| !i.is_empty()));
        }
        self.replace(met, left);
    }

    /// What an interval has that this set does not, ascending. Costs what of the set meets it.
    pub(crate) fn without(&self, interval: &Interval) -> Vec<Interval> {
        let mut left: Self = [interval.clone()].into_iter().collect();
        let met = self.intervals.get(self.met(interval)).unwrap_or(&[]);
        met.iter().for_each(|cut| left.subtract(cut));
        left.intervals
    }

    /// Puts others in the place of some.
    fn replace(&mut self, range: Range<usize>, others: Vec<Interval>) {
        let end = |interval: &Interval| interval.to.as_ref().map_or(u128::MAX, |to| head(to));
        self.heads.splice(range.clone(), others.iter().map(end));
        self.intervals.splice(range, others);
    }

    /// Adds all keys of another set.
    pub(crate) fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|interval| self.add(interval.clone()));
    }
}

impl FromIterator<Interval> for Intervals {
    fn from_iter<I: IntoIterator<Item = Interval>>(intervals: I) -> Self {
        let mut all = Self::default();
        intervals.into_iter().for_each(|interval| all.add(interval));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::prng::Prng;

    fn interval(from: u8, to: Option<u8>) -> Interval {
        Interval::new(&[from], to.as_ref().map(std::slice::from_ref))
    }

    /// Goal: a set of intervals is the set of keys that its adds and subtractions say. Method:
    /// random ones against a set of all 256 keys of one byte and of their successors.
    #[test]
    fn sets_are_those_of_their_keys() {
        let keys: Vec<Vec<u8>> = (0..=255u8).flat_map(|b| [vec![b], vec![b, 0]]).collect();
        for seed in 0..300 {
            let mut prng = Prng::new(seed);
            let (mut set, mut model) = (Intervals::default(), vec![false; keys.len()]);
            for _ in 0..12 {
                let (a, b) = (prng.below(256) as u8, prng.below(256) as u8);
                let one = match prng.below(4) {
                    0 => interval(a, None),
                    1 => Interval::closed(&[a.min(b)], &[a.max(b)]),
                    _ => interval(a.min(b), Some(a.max(b))),
                };
                let adds = prng.below(3) > 0;
                for (key, has) in keys.iter().zip(&mut model) {
                    if one.contains(key) {
                        *has = adds;
                    }
                }
                if adds {
                    set.add(one);
                } else {
                    set.subtract(&one);
                }
                for (key, has) in keys.iter().zip(&model) {
                    assert_eq!(set.contain(key), *has, "seed {seed}, key {key:?}, {set:?}");
                }
                let ordered = set.intervals.windows(2).all(|pair| pair[0].is_before(&pair[1]));
                assert!(ordered && set.iter().all(|i| !i.is_empty()), "seed {seed}: {set:?}");
                let (s, l) = (&keys[usize::from(a.min(b))], &keys[usize::from(a.max(b))]);
                let range = || keys.iter().zip(&model).filter(|(k, _)| *k >= s && *k <= l);
                let between = Interval::closed(s, l);
                assert_eq!(set.overlap_with(&between), range().any(|(_, has)| *has), "seed {seed}");
            }
        }
    }
}
