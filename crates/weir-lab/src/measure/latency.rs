//! What the latencies of operations say: their quantiles, and how many of them waited for nothing.

use std::collections::BTreeMap;

use super::ratio;
use crate::record::Record;

/// The part of the readers' operations between two samples that took at most half as long again as
/// the shortest of their group: all but those that waited for a disk, if any did not.
pub(super) fn at_once(record: &Record, (from, to): (usize, usize)) -> f64 {
    let readers = record.clients.iter().filter(|(name, _)| name.starts_with("readers."));
    let (mut all, mut quick) = (0, 0);
    for (_, windows) in readers {
        let shortest = windows.iter().filter_map(|window| window.latencies.first()).min();
        let longest = shortest.map_or(0, |(nanos, _)| nanos + nanos / 2);
        let counted = windows.get(from + 1..=to).unwrap_or_default();
        for (nanos, count) in counted.iter().flat_map(|window| &window.latencies) {
            all += count;
            quick += if *nanos <= longest { *count } else { 0 };
        }
    }
    ratio(quick as f64, all as f64)
}

/// The latency in nanoseconds that `part` of the operations between two samples did not exceed.
pub(super) fn quantile(
    record: &Record,
    (from, to): (usize, usize),
    groups: &str,
    part: f64,
) -> f64 {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (_, windows) in record.clients.iter().filter(|(name, _)| name.starts_with(groups)) {
        for window in windows.get(from + 1..=to).unwrap_or_default() {
            for (nanos, count) in &window.latencies {
                *counts.entry(*nanos).or_default() += count;
            }
        }
    }
    let wanted = (counts.values().sum::<u64>() as f64 * part).ceil().max(1.0) as u64;
    let mut passed = 0;
    let found = counts.iter().find(|(_, count)| {
        passed += **count;
        passed >= wanted
    });
    found.map_or(0.0, |(nanos, _)| *nanos as f64)
}
