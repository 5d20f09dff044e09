//! What people call measures and statistics: no name of a measure is shown.

use std::borrow::Cow;

/// What people call measures: the beginning of a name, and its words.
const WORDS: [(&str, &str); 58] = [
    ("page_hit_ratio", "hit ratio of the page cache"),
    ("hit_ratio", "hit ratio"),
    ("qps", "queries"),
    ("latency_ms", "latency"),
    ("writes_per_second", "writes"),
    ("database_over_data", "size over data"),
    ("cache_used", "part of the cache in use"),
    ("disk_busy", "part of the time that disks work"),
    ("disk_reads_per_read", "disk reads per query"),
    ("disk_reads_per_miss", "disk reads per miss"),
    ("merged_mb_per_second", "merged"),
    ("write_amplification", "write amplification"),
    ("merge_io_per_flushed_byte", "bytes that merges read and write per flushed byte"),
    ("merged_per_flushed_byte", "merged bytes per flushed byte"),
    ("blocks_per_read", "blocks per query"),
    ("blocks_per_scan", "blocks that a query enters"),
    ("runs_per_scan", "runs that a query opens"),
    ("blocks_in_all", "blocks read and written"),
    ("sentinels", "sentinels built"),
    ("sentinels_unpaid", "sentinels that never paid"),
    ("merged_down", "hot ranges merged down"),
    ("write_seconds", "time of the writes"),
    ("read_seconds", "time of the queries"),
    ("reads", "queries"),
    ("writes", "writes"),
    ("stalled", "part of the time that writes are stalled"),
    ("user_mb_per_second", "written by users"),
    ("hits_over_reads", "1 less disk reads per query"),
    ("answered_by_memtables", "part answered by memtables"),
    ("answered_by_row_cache", "part answered by the row cache"),
    ("answered_at_once", "part of the queries that wait for no disk"),
    ("answered_by_lists", "answers of lists per query"),
    ("cached_in_list", "part of the keys of lists that is cached in these alone"),
    ("cached_in_run", "part of the keys of lists that is cached in runs alone"),
    ("cached_in_both", "part of the keys of lists that is cached twice"),
    ("tables_per_read", "tables per query"),
    ("tables_per_lookup", "tables per query that looks into any"),
    ("obsolete_share", "part of the entries that is obsolete"),
    ("disk_written_mb_per_second", "written to the disk"),
    ("latency_p50_ms", "median latency"),
    ("latency_p99_ms", "99th percentile of the latency"),
    ("latency_p999_ms", "99.9th percentile of the latency"),
    ("latency_max_ms", "longest latency"),
    ("write_latency_p50_ms", "median latency of writes"),
    ("write_latency_p99_ms", "99th percentile of the latency of writes"),
    ("write_latency_p999_ms", "99.9th percentile of the latency of writes"),
    ("write_latency_max_ms", "longest latency of a write"),
    ("open_seconds", "time of an opening after a crash"),
    ("open_log_bytes", "log bytes at the crash"),
    ("read_blocks", "blocks read"),
    ("written_blocks", "blocks written"),
    ("level_bytes", "bytes of level"),
    ("level_runs", "runs of level"),
    ("level_entries", "entries of level"),
    ("level_write_rate", "write rate"),
    ("level_update_rate", "update rate"),
    ("level_update_ratio", "update rate over that of the next level"),
    ("level_start_bytes", "bytes at the start"),
];

/// Statistics over windows, and their words.
const STATISTICS: [(&str, &str); 9] = [
    ("mean", "mean of windows"),
    ("deviation", "standard deviation of windows"),
    ("low", "5th percentile of the time"),
    ("high", "95th percentile of the time"),
    ("spread", "95th over 5th percentile of the time"),
    ("amplitude", "95th less 5th percentile of the time"),
    ("period", "period"),
    ("strength", "autocorrelation at its period"),
    ("overall", "whole measured part"),
];

/// The words of a measure, of a level by its number if need be; `None` if it is none.
fn words_of(measure: &str) -> Option<Cow<'static, str>> {
    let of = |name| WORDS.iter().find(|(measure, _)| *measure == name).map(|(_, words)| *words);
    if let Some(words) = of(measure) {
        return Some(words.into());
    }
    let (base, level) = measure.rsplit_once('_')?;
    level.parse::<usize>().ok()?;
    Some(format!("{} {level}", of(base)?).into())
}

/// A measure, and the words of a statistic of it if the name has one.
fn parts(name: &str) -> (&str, Option<&'static str>) {
    let statistic = name.rsplit_once('_').and_then(|(base, last)| {
        let found = STATISTICS.iter().find(|(short, _)| *short == last)?;
        words_of(base).map(|_| (base, found.1))
    });
    statistic.map_or((name, None), |(base, words)| (base, Some(words)))
}

/// What people call the measure `name`, without its statistic; `name` itself if it is no measure.
#[must_use]
pub fn words(name: &str) -> Cow<'_, str> {
    words_of(parts(name).0).unwrap_or(name.into())
}

/// How the number `name` is made of windows: `mean of windows`; empty if it is not.
#[must_use]
pub fn statistic(name: &str) -> &'static str {
    parts(name).1.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{PER_WINDOW, WHOLE};

    /// Goal: every measure has words, and no name of one is shown.
    #[test]
    fn measures_have_words() {
        let per_window = PER_WINDOW.iter().map(|measure| measure.name);
        for name in per_window.chain(WHOLE.iter().map(|(name, ..)| *name)) {
            assert!(WORDS.iter().any(|(measure, _)| *measure == name), "{name}");
            assert!(!words(name).contains('_') && !words(name).is_empty(), "{name}");
            for (statistic_name, statistic_words) in STATISTICS {
                let number = format!("{name}_{statistic_name}");
                assert_eq!((words(&number), statistic(&number)), (words(name), statistic_words));
            }
        }
        assert_eq!((&*words("qps_mean"), statistic("qps_mean")), ("queries", "mean of windows"));
        assert_eq!(words("level_bytes_2_mean"), "bytes of level 2");
        assert_eq!((&*words("bLSM"), statistic("write_amplification")), ("bLSM", ""));
    }
}
