//! Reads that are counted for the heat of ranges (`heat`): some of them, if the keyspace has heat.
//!
//! A get counts the tables that it looked into: those that fence and filter let it through to, of
//! buffer lists too; none if a memtable or the row cache answered. A scan counts when it ends or
//! seeks anew: from where it was positioned to where it stands, with the runs that had an entry for
//! it, each of which it read a block of. What fails is not counted.
//!
//! Not here: what is a sample (`heat::counters`).

use std::ops::Bound;
use std::sync::Arc;

use crate::heat::RangeHeat;
use crate::heat::counters::{ScanSeen, is_sampled};
use crate::state::tree::SuperVersion;
use crate::table::tables_touched;
use crate::version::run::Version;

/// A lookup that is counted: of one key, or of some together.
pub(super) struct SampledGet<'a> {
    heat: &'a RangeHeat,
    version: &'a Version,
    /// Tables that this thread had looked into before.
    touched: u64,
}

impl<'a> SampledGet<'a> {
    /// At the beginning of a lookup, which is counted or not.
    #[inline]
    pub(super) fn begin(current: &'a SuperVersion) -> Option<Self> {
        let heat = current.heat.as_deref()?;
        is_sampled().then(|| Self { heat, version: &current.version, touched: tables_touched() })
    }

    /// At the beginning of a lookup of several keys.
    pub(super) fn begin_batch(current: &'a SuperVersion) -> Option<Self> {
        let (heat, version) = (current.heat.as_deref()?, &*current.version);
        Some(Self { heat, version, touched: tables_touched() })
    }

    /// At the end of the lookup of `key`.
    #[inline]
    pub(super) fn end(sampled: Option<Self>, key: &[u8]) {
        if let Some(Self { heat, version, touched }) = sampled {
            let tables = tables_touched() - touched;
            heat.note_get(key, tables);
            if tables > 0 {
                note_spared(heat, version, key);
            }
        }
    }

    /// At the end of the lookup of `keys`, some of which are counted: with the mean of what they
    /// looked into.
    pub(super) fn end_batch<K: AsRef<[u8]>>(sampled: Option<Self>, keys: &[K]) {
        let Some(Self { heat, version, touched }) = sampled else { return };
        let (tables, count) = (tables_touched() - touched, keys.len().max(1) as u64);
        for key in keys.iter().filter(|_| is_sampled()) {
            heat.note_get(key.as_ref(), (tables + count / 2) / count);
            if tables > 0 {
                note_spared(heat, version, key.as_ref());
            }
        }
    }
}

/// Where a cursor was positioned.
#[derive(Clone, Copy)]
pub(super) enum Start<'a> {
    /// At this key.
    Key(&'a [u8]),
    /// At its first key.
    First,
    /// At its last key.
    Last,
}

/// A scan that is counted.
pub(super) struct SampledScan {
    heat: Arc<RangeHeat>,
    /// The bucket of its first position.
    from: usize,
    /// The runs that it opened.
    runs: u64,
}

impl SampledScan {
    /// At the beginning of a scan, which is counted or not.
    #[inline]
    pub(super) fn begin(current: &SuperVersion) -> Option<&Arc<RangeHeat>> {
        current.heat.as_ref().filter(|_| is_sampled())
    }

    /// When it is positioned, within bounds, and has opened so many runs of a version.
    pub(super) fn at(
        (heat, version): (&Arc<RangeHeat>, &Version),
        start: Start<'_>,
        bounds: (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
        runs: usize,
    ) -> Self {
        let buckets = heat.buckets();
        let key = match start {
            Start::Key(key) => Some(key),
            Start::First => bound_key(bounds.0),
            Start::Last => bound_key(bounds.1),
        };
        let end = if matches!(start, Start::Last) { buckets.len() - 1 } else { 0 };
        let from = key.map_or(end, |key| buckets.find(key));
        if let Some(key) = key.filter(|_| runs > 0) {
            note_spared(heat, version, key);
        }
        Self { heat: Arc::clone(heat), from, runs: runs as u64 }
    }

    /// When it has passed so many entries and stands at `key`, or at its end in this direction.
    #[cold]
    pub(super) fn end(
        self,
        key: Option<&[u8]>,
        bounds: (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
        (entries, is_backwards): (u64, bool),
    ) {
        let buckets = self.heat.buckets();
        let to = match key {
            Some(key) => buckets.find(key),
            None if entries == 0 => self.from,
            None if is_backwards => bound_key(bounds.0).map_or(0, |key| buckets.find(key)),
            None => bound_key(bounds.1).map_or(buckets.len() - 1, |key| buckets.find(key)),
        };
        self.heat.note_scan(ScanSeen { buckets: (self.from, to), entries, runs: self.runs });
    }
}

/// Counts what a read of `key`, or a scan from there, was spared by a sentinel.
fn note_spared(heat: &RangeHeat, version: &Version, key: &[u8]) {
    if let Some(runs) = version.runs_spared(key) {
        heat.note_spared(runs);
    }
}

fn bound_key(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

#[cfg(test)]
mod tests;
