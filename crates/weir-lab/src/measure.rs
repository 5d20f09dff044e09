//! What is derived from a run: series over time, and numbers.
//!
//! A measure has a name. `hit_ratio`, `qps` and the like are values per window; with `_mean`,
//! `_deviation`, `_low`, `_high`, `_spread` (highest over lowest), `_amplitude`, `_period` or
//! `_strength` behind it, one number over all windows; with `_overall`, the value of the whole
//! measured part as one window: hits over lookups, where the mean weighs a window with few lookups
//! like one with many. The others are numbers over the whole measured part.
//!
//! A window holds 500 lookups in the block cache on average, if there are that many: those of the
//! samples are joined until it does. Fewer would show single hits.
//!
//! All ratios are plain numbers, 0 to 1. Times are virtual seconds of the run; whoever shows them
//! multiplies by the scale.

use weir::defaults::LEVELS;

use crate::record::{Record, Sample};

/// Lookups that a window holds on average at least.
const LOOKUPS_MIN: f64 = 500.0;

/// Windows that are left at least, however few lookups they hold.
const WINDOWS_MIN: usize = 20;

/// A measure per window.
struct PerWindow {
    name: &'static str,
    unit: &'static str,
    of: fn(&Record, &Sample, &Sample) -> f64,
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Growth of a counter.
fn grown(before: u64, after: u64) -> f64 {
    after.saturating_sub(before) as f64
}

fn hits_of(hits: f64, misses: f64) -> f64 {
    ratio(hits, hits + misses)
}

const PER_WINDOW: [PerWindow; 10] = [
    PerWindow {
        name: "hit_ratio",
        unit: "",
        of: |_, a, b| hits_of(grown(a.hits, b.hits), grown(a.misses, b.misses)),
    },
    PerWindow {
        name: "page_hit_ratio",
        unit: "",
        of: |_, a, b| {
            let hits = grown(a.disk.page_hits, b.disk.page_hits);
            hits_of(hits, grown(a.disk.page_misses, b.disk.page_misses))
        },
    },
    PerWindow {
        name: "qps",
        unit: "1/s",
        of: |_, a, b| ratio(grown(a.reads, b.reads), b.seconds - a.seconds),
    },
    PerWindow {
        name: "latency_ms",
        unit: "ms",
        of: |_, a, b| ratio(grown(a.read_nanos, b.read_nanos) / 1e6, grown(a.reads, b.reads)),
    },
    PerWindow {
        name: "writes_per_second",
        unit: "1/s",
        of: |_, a, b| ratio(grown(a.writes, b.writes), b.seconds - a.seconds),
    },
    PerWindow {
        name: "database_over_data",
        unit: "",
        of: |record, _, b| ratio(b.disk.table_bytes as f64, record.loaded_bytes as f64),
    },
    PerWindow {
        name: "cache_used",
        unit: "",
        of: |_, _, b| ratio(b.cache_bytes as f64, b.cache_capacity as f64),
    },
    PerWindow {
        name: "disk_busy",
        unit: "",
        of: |record, a, b| {
            let busy = grown(a.disk.busy_nanos, b.disk.busy_nanos) / 1e9;
            ratio(busy, (b.seconds - a.seconds) * record.spindles as f64)
        },
    },
    PerWindow {
        name: "disk_reads_per_read",
        unit: "",
        of: |_, a, b| ratio(grown(a.disk.user_reads, b.disk.user_reads), grown(a.reads, b.reads)),
    },
    PerWindow {
        name: "merged_mb_per_second",
        unit: "MB/s",
        of: |_, a, b| ratio(grown(a.merged_bytes, b.merged_bytes) / 1e6, b.seconds - a.seconds),
    },
];

/// A number over the whole measured part.
type Whole = (&'static str, &'static str, fn(&Sample, &Sample) -> f64);

const WHOLE: [Whole; 11] = [
    // Per byte that was flushed: what waits in memtables was not written yet.
    ("write_amplification", "", |a, b| {
        let flushed = grown(a.flushed_bytes, b.flushed_bytes);
        ratio(flushed + grown(a.merged_bytes, b.merged_bytes), flushed)
    }),
    ("merge_io_per_flushed_byte", "", |a, b| {
        let merged = grown(a.merged_bytes, b.merged_bytes);
        let read = grown(a.merge_read_bytes, b.merge_read_bytes);
        ratio(merged + read, grown(a.flushed_bytes, b.flushed_bytes))
    }),
    ("merged_per_flushed_byte", "", |a, b| {
        ratio(grown(a.merged_bytes, b.merged_bytes), grown(a.flushed_bytes, b.flushed_bytes))
    }),
    ("blocks_per_read", "", |a, b| {
        let blocks = grown(a.hits, b.hits) + grown(a.misses, b.misses);
        ratio(blocks, grown(a.reads, b.reads))
    }),
    ("disk_reads_per_miss", "", |a, b| {
        ratio(grown(a.disk.user_reads, b.disk.user_reads), grown(a.misses, b.misses))
    }),
    ("write_seconds", "s", |a, b| b.write_seconds - a.write_seconds),
    ("read_seconds", "s", |a, b| b.read_seconds - a.read_seconds),
    ("reads", "", |a, b| grown(a.reads, b.reads)),
    ("writes", "", |a, b| grown(a.writes, b.writes)),
    ("stalled", "", |a, b| ratio(b.stalled_seconds - a.stalled_seconds, b.seconds - a.seconds)),
    ("user_mb_per_second", "MB/s", |a, b| {
        ratio(grown(a.user_bytes, b.user_bytes) / 1e6, b.seconds - a.seconds)
    }),
];

/// Levels of the tree below level 0, counted from the first one that ever held anything.
#[must_use]
pub fn levels(record: &Record) -> usize {
    let used = |level: usize| record.samples.iter().any(|s| s.levels[level][0] > 0);
    (1..LEVELS).find(|&level| used(level)).map_or(0, |first| LEVELS - first)
}

/// `level_write_rate_N`: bytes a second that merges wrote into the N-th level, over the bytes a
/// second that were flushed; `level_update_rate_N`: the part of the level that they replaced per
/// virtual second; `level_update_ratio_N`: that of the N-th level over that of the next.
/// `level_write_rate_inner` is the mean of the write rates of all levels but the last,
/// `level_start_bytes_N` what the N-th level held at the start.
fn level_number(record: &Record, base: &str, number: usize) -> Option<f64> {
    let level = LEVELS.checked_sub(levels(record))? + number.checked_sub(1)?;
    let (first, last) = record.samples.first().zip(record.samples.last())?;
    let [_, before] = first.levels.get(level)?;
    let [_, after] = last.levels.get(level)?;
    let held: u64 = record.samples.iter().map(|s| s.levels[level][0]).sum();
    let held = held as f64 / record.samples.len() as f64;
    match base {
        "level_start_bytes" => first.levels.get(level).map(|[bytes, _]| *bytes as f64),
        "level_write_rate" => {
            Some(ratio(grown(*before, *after), grown(first.flushed_bytes, last.flushed_bytes)))
        }
        "level_update_rate" => {
            Some(ratio(ratio(grown(*before, *after), held), last.seconds - first.seconds))
        }
        "level_update_ratio" => {
            let rate = |number| level_number(record, "level_update_rate", number);
            Some(ratio(rate(number)?, rate(number + 1)?))
        }
        _ => None,
    }
}

/// The samples at the ends of the windows.
fn windows(record: &Record) -> Vec<&Sample> {
    let samples = &record.samples;
    let all = samples.len().saturating_sub(1);
    let Some((first, last)) = samples.first().zip(samples.last()) else { return Vec::new() };
    let lookups = grown(first.hits, last.hits) + grown(first.misses, last.misses);
    let joined = match ratio(lookups, all as f64) {
        none if none <= 0.0 => 1,
        held => (LOOKUPS_MIN / held).ceil() as usize,
    };
    samples.iter().step_by(joined.min(all / WINDOWS_MIN).max(1)).collect()
}

/// The values of the measure `name` per window, at the ends of the windows; `None` if it is no such
/// measure.
#[must_use]
pub fn series(record: &Record, name: &str) -> Option<Vec<[f64; 2]>> {
    let measure = PER_WINDOW.iter().find(|m| m.name == name)?;
    let samples = windows(record);
    let pairs = samples.windows(2).filter_map(|pair| match pair {
        [a, b] => Some([b.seconds, (measure.of)(record, a, b)]),
        _ => None,
    });
    Some(pairs.collect())
}

/// The unit of a measure; empty for a plain number.
#[must_use]
pub fn unit(name: &str) -> &'static str {
    if let Some((_, unit, _)) = WHOLE.iter().find(|(n, ..)| *n == name) {
        return unit;
    }
    if name.starts_with("level_update_rate") {
        return "1/s";
    }
    let longest = |m: &&PerWindow| name.strip_prefix(m.name).is_some();
    match PER_WINDOW.iter().filter(longest).max_by_key(|m| m.name.len()) {
        Some(_) if name.ends_with("_period") => "s",
        Some(_) if name.ends_with("_strength") || name.ends_with("_spread") => "",
        Some(measure) => measure.unit,
        None => "",
    }
}

/// What people call measures: the beginning of a name, and its words.
const WORDS: [(&str, &str); 25] = [
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
    ("write_seconds", "time of the writes"),
    ("read_seconds", "time of the queries"),
    ("reads", "queries"),
    ("writes", "writes"),
    ("stalled", "part of the time that writes are stalled"),
    ("user_mb_per_second", "written by users"),
    ("level_write_rate", "write rate"),
    ("level_update_rate", "update rate"),
    ("level_update_ratio", "update rate over that of the next level"),
    ("level_start_bytes", "bytes at the start"),
];

/// Statistics over windows, and their words.
const STATISTICS: [(&str, &str); 9] = [
    ("mean", "mean of windows"),
    ("deviation", "standard deviation of windows"),
    ("low", "5th percentile of windows"),
    ("high", "95th percentile of windows"),
    ("spread", "95th over 5th percentile of windows"),
    ("amplitude", "95th less 5th percentile of windows"),
    ("period", "period"),
    ("strength", "autocorrelation at its period"),
    ("overall", "whole measured part"),
];

/// A measure, and a statistic of it if the name has one.
fn parts(name: &str) -> (&str, Option<&'static str>) {
    let statistic = name.rsplit_once('_').and_then(|(base, last)| {
        let found = STATISTICS.iter().find(|(short, _)| *short == last)?;
        WORDS.iter().any(|(measure, _)| *measure == base).then_some((base, found.1))
    });
    statistic.map_or((name, None), |(base, words)| (base, Some(words)))
}

/// What people call the measure `name`, without its statistic; `name` itself if it is no measure.
#[must_use]
pub fn words(name: &str) -> &str {
    let (base, _) = parts(name);
    WORDS.iter().find(|(measure, _)| *measure == base).map_or(name, |(_, words)| words)
}

/// How the number `name` is made of windows: `mean of windows`; empty if it is not.
#[must_use]
pub fn statistic(name: &str) -> &'static str {
    parts(name).1.unwrap_or_default()
}

/// Whether the number `name` is a time, which whoever shows it multiplies by the scale.
#[must_use]
pub fn is_time(name: &str) -> bool {
    name.ends_with("_period") || name == "write_seconds" || name == "read_seconds"
}

/// The part of a run from second `from` to second `to`.
#[must_use]
pub fn within(record: &Record, [from, to]: [f64; 2]) -> Record {
    // A sample at an end is in, whatever its seconds were rounded to.
    let slack = (to - from) * 1e-6;
    let mut part = record.clone();
    part.samples.retain(|sample| (from - slack..=to + slack).contains(&sample.seconds));
    part
}

/// The number `name` of a run.
///
/// # Errors
/// If there is no such measure.
pub fn number(record: &Record, name: &str) -> Result<f64, String> {
    let unknown = || format!("there is no measure {name:?}");
    if let Some((.., of)) = WHOLE.iter().find(|(n, ..)| *n == name) {
        let ends = record.samples.first().zip(record.samples.last());
        return Ok(ends.map_or(0.0, |(a, b)| of(a, b)));
    }
    let (base, statistic) = name.rsplit_once('_').ok_or_else(unknown)?;
    if name == "level_write_rate_inner" {
        let rate = |level| level_number(record, "level_write_rate", level);
        let rates: Option<Vec<f64>> = (1..levels(record)).map(rate).collect();
        return rates.map(|rates| mean(&rates)).ok_or_else(unknown);
    }
    if statistic == "overall"
        && let Some(measure) = PER_WINDOW.iter().find(|m| m.name == base)
    {
        let ends = record.samples.first().zip(record.samples.last());
        return Ok(ends.map_or(0.0, |(a, b)| (measure.of)(record, a, b)));
    }
    if let Ok(level) = statistic.parse() {
        return level_number(record, base, level).ok_or_else(unknown);
    }
    let points = series(record, base).ok_or_else(unknown)?;
    let values: Vec<f64> = points.iter().map(|p| p[1]).collect();
    let window = match points.as_slice() {
        [a, b, ..] => b[0] - a[0],
        _ => 0.0,
    };
    match statistic {
        "mean" => Ok(mean(&values)),
        "deviation" => Ok(deviation(&values)),
        "low" => Ok(percentile(&values, 0.05)),
        "high" => Ok(percentile(&values, 0.95)),
        "spread" => Ok(ratio(percentile(&values, 0.95), percentile(&values, 0.05))),
        "amplitude" => Ok(percentile(&values, 0.95) - percentile(&values, 0.05)),
        "period" => Ok(period(&values).map_or(0.0, |(lag, _)| lag as f64 * window)),
        "strength" => Ok(period(&values).map_or(0.0, |(_, strength)| strength)),
        _ => Err(unknown()),
    }
}

fn mean(values: &[f64]) -> f64 {
    ratio(values.iter().sum(), values.len() as f64)
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    ratio(squares, values.len() as f64).sqrt()
}

fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (part * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

/// A series without its slow changes: less the mean over an eighth of it around each value.
fn without_trend(values: &[f64]) -> Vec<f64> {
    let half = (values.len() / 16).max(1);
    let around = |i: usize| {
        let end = (i + half + 1).min(values.len());
        mean(values.get(i.saturating_sub(half)..end).unwrap_or(&[]))
    };
    values.iter().enumerate().map(|(i, value)| value - around(i)).collect()
}

/// How often a series repeats itself, in windows, and how much like itself it is then: the
/// autocorrelation without the trend, from the first lag on at which it is negative, up to a third
/// of the series, so that three periods are seen. Multiples of a period are about as good as the
/// period; so the first stretch of lags counts that comes within a tenth of the greatest value.
fn period(values: &[f64]) -> Option<(usize, f64)> {
    let values = without_trend(values);
    let power: f64 = values.iter().map(|v| v * v).sum();
    if power <= 0.0 {
        return None;
    }
    let like_itself = |lag: usize| -> f64 {
        let pairs = values.iter().zip(&values[lag.min(values.len())..]);
        // Divided by the number of pairs, so that long lags are not punished.
        let overlap = (values.len() - lag) as f64 / values.len() as f64;
        pairs.map(|(a, b)| a * b).sum::<f64>() / power / overlap
    };
    let last = values.len() / 3;
    let first = (1..=last).find(|&lag| like_itself(lag) < 0.0)?;
    let likeness: Vec<(usize, f64)> = (first..=last).map(|lag| (lag, like_itself(lag))).collect();
    let greatest = likeness.iter().map(|(_, v)| *v).max_by(f64::total_cmp)?;
    let near = likeness.iter().skip_while(|(_, v)| *v < 0.9 * greatest);
    let stretch = near.take_while(|(_, v)| *v >= 0.9 * greatest);
    stretch.copied().max_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record whose hit ratio per window is `ratios`.
    fn record(ratios: &[f64]) -> Record {
        let mut sample = Sample::default();
        let mut record = Record { samples: vec![sample], ..Record::default() };
        for ratio in ratios {
            sample.seconds += 0.5;
            sample.hits += (ratio * 1000.0).round() as u64;
            sample.misses += ((1.0 - ratio) * 1000.0).round() as u64;
            record.samples.push(sample);
        }
        record
    }

    fn number_of(record: &Record, name: &str) -> f64 {
        number(record, name).expect(name)
    }

    /// Goal: a period is found under a trend that is larger than it. Method: teeth of 20 windows
    /// that grow, on a slope down and up again.
    #[test]
    fn sawtooth_on_a_slope() {
        let slope = |i: f64| 0.9 - 0.5 * (1.0 - (i / 200.0 - 1.0).abs());
        let tooth = |i: f64| (0.02 + i / 4000.0) * (i % 20.0) / 20.0;
        let values: Vec<f64> = (0..400).map(|i| slope(i.into()) + tooth(i.into())).collect();
        let record = record(&values);
        assert!((number_of(&record, "hit_ratio_period") - 10.0).abs() <= 0.5);
        assert!(number_of(&record, "hit_ratio_strength") > 0.3);
    }

    /// Goal: a sawtooth's period, amplitude and mean are found. Method: 16 windows a tooth, by
    /// hand.
    #[test]
    fn sawtooth() {
        let teeth: Vec<f64> = (0..200).map(|i| 0.2 + 0.04 * f64::from(i % 16)).collect();
        let record = record(&teeth);
        assert!((number_of(&record, "hit_ratio_period") - 8.0).abs() < 1e-9);
        assert!(number_of(&record, "hit_ratio_strength") > 0.9);
        assert!((number_of(&record, "hit_ratio_amplitude") - 0.6).abs() < 0.05);
        assert!((number_of(&record, "hit_ratio_mean") - 0.5).abs() < 0.01);
        assert_eq!(unit("hit_ratio_period"), "s");
        assert_eq!(unit("qps_mean"), "1/s");
    }

    /// Goal: a constant has no period and no spread, an empty run no numbers that are not finite.
    #[test]
    fn flat_and_empty() {
        let flat = record(&[0.75; 50]);
        assert!(number_of(&flat, "hit_ratio_deviation") < 1e-9);
        assert!(number_of(&flat, "hit_ratio_period").abs() < 1e-9);
        for record in [Record::default(), record(&[])] {
            for measure in PER_WINDOW {
                let statistics =
                    ["mean", "deviation", "low", "high", "spread", "period", "strength", "overall"];
                for statistic in statistics {
                    let name = format!("{}_{statistic}", measure.name);
                    assert!(number_of(&record, &name).is_finite(), "{name}");
                }
            }
            for (name, ..) in WHOLE {
                assert!(number_of(&record, name).is_finite(), "{name}");
            }
        }
    }

    /// Goal: the write rate of a level is per byte flushed, and the mean is over all levels but the
    /// last. Method: three levels that get 3, 5 and 100 bytes for each byte.
    #[test]
    fn write_rates_of_levels() {
        let mut record = Record { samples: vec![Sample::default(); 2], ..Record::default() };
        record.samples[1].flushed_bytes = 1000;
        for (level, written) in [(LEVELS - 3, 3000), (LEVELS - 2, 5000), (LEVELS - 1, 100_000)] {
            record.samples[1].levels[level] = [10, written];
        }
        for (name, rate) in [("1", 3.0), ("2", 5.0), ("3", 100.0), ("inner", 4.0)] {
            let name = format!("level_write_rate_{name}");
            assert!((number_of(&record, &name) - rate).abs() < 1e-9, "{name}");
        }
    }

    /// Goal: hits over lookups are not the mean of the windows' ratios, and windows of few lookups
    /// are joined. Method: a long window with many hits and short ones without; 400 windows of 100
    /// lookups, of which every other hits.
    #[test]
    fn overall_and_joined_windows() {
        let mut record = record(&[0.0, 0.0, 0.0]);
        let mut last = record.samples[3];
        (last.seconds, last.hits) = (last.seconds + 0.5, last.hits + 9_000);
        record.samples.push(last);
        assert!((number_of(&record, "hit_ratio_mean") - 0.25).abs() < 1e-9);
        assert!((number_of(&record, "hit_ratio_overall") - 0.75).abs() < 1e-9);
        let mut sparse = Record { samples: vec![Sample::default()], ..Record::default() };
        for window in 0..400u64 {
            let mut sample = sparse.samples[window as usize];
            sample.seconds += 1.0;
            (sample.hits, sample.misses) =
                (sample.hits + 100 * (window % 2), sample.misses + 100 * (1 - window % 2));
            sparse.samples.push(sample);
        }
        let joined = series(&sparse, "hit_ratio").expect("a measure");
        assert_eq!((joined.len(), joined[0][0]), (80, 5.0));
        assert!(joined.iter().all(|[_, ratio]| (0.4..=0.6).contains(ratio)));
        assert!((number_of(&sparse, "hit_ratio_spread") - 1.5).abs() < 1e-9);
    }

    /// Goal: a part of a run has the windows between its ends and no other.
    #[test]
    fn parts_of_a_run() {
        let record = record(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]);
        let mean = |span| number_of(&within(&record, span), "hit_ratio_mean");
        assert!((mean([0.0, 1.0]) - 0.15).abs() < 1e-9);
        assert!((mean([1.0, 2.5]) - 0.4).abs() < 1e-9);
        assert!((mean([0.0, 3.0]) - 0.35).abs() < 1e-9);
    }

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
        assert_eq!((words("qps_mean"), statistic("qps_mean")), ("queries", "mean of windows"));
        assert_eq!((words("bLSM"), statistic("write_amplification")), ("bLSM", ""));
    }

    #[test]
    fn unknown_names() {
        for name in ["", "hit_ratio", "hit_ratio_mode", "luck_mean"] {
            assert!(number(&record(&[0.5]), name).is_err(), "{name}");
        }
        assert!(series(&record(&[0.5]), "luck").is_none());
    }
}
