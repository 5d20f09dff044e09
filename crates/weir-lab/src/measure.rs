//! What is derived from a run: series over time, and numbers.
//!
//! A measure has a name. `hit_ratio`, `qps` and the like are values per window; with `_mean`,
//! `_deviation`, `_low`, `_high`, `_spread` (highest over lowest), `_amplitude`, `_period` or
//! `_strength` behind it, one number over all windows; with `_overall`, the value of the whole
//! measured part as one window: hits over lookups, where the mean weighs a window with few lookups
//! like one with many. The others are numbers over the whole measured part.
//!
//! A window holds 500 lookups in the block cache on average, if there are that many for twenty
//! windows: those of the samples are joined until it does. Fewer would show single hits. Extremes
//! (`_low`, `_high`, `_spread`, `_amplitude`) are of windows that hold 500 each, which are longer
//! where reads are slow and count by their length; means and periods are of windows of one length.
//!
//! `hit_ratio` is of lookups in the block cache: how many of the blocks that reads needed it had.
//! `hits_over_reads` is of reads, 1 less the disk reads of a read: what memtables and the row cache
//! answered is a hit there, and a scan may read the disk many times. Latencies have percentiles,
//! to two digits, `latency_p99_ms` of reads and `write_latency_p99_ms` of writes: per window with
//! the statistics above, and with `_overall` over all operations. `level_bytes_N` and the like are
//! of the N-th level below level 0, as series too.
//!
//! All ratios are plain numbers, 0 to 1. Times are virtual seconds of the run; whoever shows them
//! multiplies by the scale.

mod blocks;
mod latency;
pub mod names;
mod words;

use weir::defaults::LEVELS;

use crate::record::{LevelSample, Measured, Record, Sample};
pub use words::{statistic, words};

/// Lookups that a window holds on average at least.
const LOOKUPS_MIN: f64 = 500.0;

/// Windows that are left at least, however few lookups they hold.
const WINDOWS_MIN: usize = 20;

/// A measure per window.
struct PerWindow {
    name: &'static str,
    unit: &'static str,
    of: Of,
}

type OfSamples = fn(&Record, &Sample, &Sample) -> f64;

/// From where a measure comes.
enum Of {
    /// The samples at both ends of the window.
    Samples(OfSamples),
    /// The operations in it of all groups whose names begin so: the latency below which this part
    /// of them is.
    Latency(&'static str, f64),
    /// The operations in it of all groups of readers: the part that waited for nothing.
    AtOnce,
}

impl PerWindow {
    /// The value between the samples at two places.
    fn value(&self, record: &Record, (from, to): (usize, usize)) -> f64 {
        match self.of {
            Of::Samples(of) => {
                let ends = record.samples.get(from).zip(record.samples.get(to));
                ends.map_or(0.0, |(a, b)| of(record, a, b))
            }
            Of::Latency(groups, part) => latency::quantile(record, (from, to), groups, part) / 1e6,
            Of::AtOnce => latency::at_once(record, (from, to)),
        }
    }
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

const PER_WINDOW: [PerWindow; 31] = [
    PerWindow {
        name: "hit_ratio",
        unit: "",
        of: Of::Samples(|_, a, b| hits_of(grown(a.hits, b.hits), grown(a.misses, b.misses))),
    },
    PerWindow {
        name: "page_hit_ratio",
        unit: "",
        of: Of::Samples(|_, a, b| {
            let hits = grown(a.disk.page_hits, b.disk.page_hits);
            hits_of(hits, grown(a.disk.page_misses, b.disk.page_misses))
        }),
    },
    PerWindow {
        name: "qps",
        unit: "1/s",
        of: Of::Samples(|_, a, b| ratio(grown(a.reads, b.reads), b.seconds - a.seconds)),
    },
    PerWindow {
        name: "latency_ms",
        unit: "ms",
        of: Of::Samples(|_, a, b| {
            ratio(grown(a.read_nanos, b.read_nanos) / 1e6, grown(a.reads, b.reads))
        }),
    },
    PerWindow {
        name: "writes_per_second",
        unit: "1/s",
        of: Of::Samples(|_, a, b| ratio(grown(a.writes, b.writes), b.seconds - a.seconds)),
    },
    PerWindow {
        name: "database_over_data",
        unit: "",
        of: Of::Samples(|record, _, b| {
            ratio(b.disk.table_bytes as f64, record.loaded_bytes as f64)
        }),
    },
    PerWindow {
        name: "cache_used",
        unit: "",
        of: Of::Samples(|_, _, b| ratio(b.cache_bytes as f64, b.cache_capacity as f64)),
    },
    PerWindow {
        name: "disk_busy",
        unit: "",
        of: Of::Samples(|record, a, b| {
            let busy = grown(a.disk.busy_nanos, b.disk.busy_nanos) / 1e9;
            ratio(busy, (b.seconds - a.seconds) * record.spindles as f64)
        }),
    },
    PerWindow {
        name: "disk_reads_per_read",
        unit: "",
        of: Of::Samples(|_, a, b| {
            ratio(grown(a.disk.user_reads, b.disk.user_reads), grown(a.reads, b.reads))
        }),
    },
    PerWindow {
        name: "merged_mb_per_second",
        unit: "MB/s",
        of: Of::Samples(|_, a, b| {
            ratio(grown(a.merged_bytes, b.merged_bytes) / 1e6, b.seconds - a.seconds)
        }),
    },
    PerWindow {
        name: "hits_over_reads",
        unit: "",
        of: Of::Samples(|_, a, b| {
            let reads = grown(a.reads, b.reads);
            ratio(reads - grown(a.disk.user_reads, b.disk.user_reads), reads)
        }),
    },
    PerWindow {
        name: "answered_by_memtables",
        unit: "",
        of: Of::Samples(|_, a, b| {
            let alone = grown(a.reads_without_tables, b.reads_without_tables);
            ratio(alone - grown(a.row_hits, b.row_hits), grown(a.reads, b.reads))
        }),
    },
    PerWindow {
        name: "answered_by_row_cache",
        unit: "",
        of: Of::Samples(|_, a, b| ratio(grown(a.row_hits, b.row_hits), grown(a.reads, b.reads))),
    },
    PerWindow {
        name: "answered_by_lists",
        unit: "",
        of: Of::Samples(|_, a, b| ratio(grown(a.list_hits, b.list_hits), grown(a.reads, b.reads))),
    },
    PerWindow { name: "cached_in_list", unit: "", of: Of::Samples(|_, _, b| b.copies[0]) },
    PerWindow { name: "cached_in_run", unit: "", of: Of::Samples(|_, _, b| b.copies[1]) },
    PerWindow { name: "cached_in_both", unit: "", of: Of::Samples(|_, _, b| b.copies[2]) },
    PerWindow {
        name: "tables_per_read",
        unit: "",
        of: Of::Samples(|_, a, b| ratio(grown(a.tables, b.tables), grown(a.reads, b.reads))),
    },
    PerWindow {
        name: "obsolete_share",
        unit: "",
        of: Of::Samples(|record, _, b| {
            let entries: u64 = b.levels.iter().map(|level| level.entries).sum();
            1.0 - ratio(record.loaded_keys.min(entries) as f64, entries as f64)
        }),
    },
    PerWindow {
        name: "disk_written_mb_per_second",
        unit: "MB/s",
        of: Of::Samples(|_, a, b| {
            let bytes = grown(a.disk.written_bytes, b.disk.written_bytes);
            ratio(bytes / 1e6, b.seconds - a.seconds)
        }),
    },
    PerWindow {
        name: "blocks_per_scan",
        unit: "",
        of: Of::Samples(|_, a, b| ratio(grown(a.blocks, b.blocks), grown(a.reads, b.reads))),
    },
    PerWindow {
        name: "runs_per_scan",
        unit: "",
        of: Of::Samples(|_, a, b| ratio(grown(a.runs, b.runs), grown(a.reads, b.reads))),
    },
    PerWindow { name: "answered_at_once", unit: "", of: Of::AtOnce },
    PerWindow { name: "latency_p50_ms", unit: "ms", of: Of::Latency("readers.", 0.5) },
    PerWindow { name: "latency_p99_ms", unit: "ms", of: Of::Latency("readers.", 0.99) },
    PerWindow { name: "latency_p999_ms", unit: "ms", of: Of::Latency("readers.", 0.999) },
    PerWindow { name: "latency_max_ms", unit: "ms", of: Of::Latency("readers.", 1.0) },
    PerWindow { name: "write_latency_p50_ms", unit: "ms", of: Of::Latency("writers.", 0.5) },
    PerWindow { name: "write_latency_p99_ms", unit: "ms", of: Of::Latency("writers.", 0.99) },
    PerWindow { name: "write_latency_p999_ms", unit: "ms", of: Of::Latency("writers.", 0.999) },
    PerWindow { name: "write_latency_max_ms", unit: "ms", of: Of::Latency("writers.", 1.0) },
];

/// A number over the whole measured part.
type Whole = (&'static str, &'static str, fn(&Sample, &Sample) -> f64);

const WHOLE: [Whole; 15] = [
    ("tables_per_lookup", "", |a, b| {
        let searched =
            grown(a.reads, b.reads) - grown(a.reads_without_tables, b.reads_without_tables);
        ratio(grown(a.tables, b.tables), searched)
    }),
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
    ("sentinels", "", |a, b| grown(a.sentinels, b.sentinels)),
    ("sentinels_unpaid", "", |a, b| {
        ratio(grown(a.sentinels_unpaid, b.sentinels_unpaid), grown(a.sentinels, b.sentinels))
    }),
    ("merged_down", "", |a, b| grown(a.merged_down, b.merged_down)),
    ("stalled", "", |a, b| ratio(b.stalled_seconds - a.stalled_seconds, b.seconds - a.seconds)),
    ("user_mb_per_second", "MB/s", |a, b| {
        ratio(grown(a.user_bytes, b.user_bytes) / 1e6, b.seconds - a.seconds)
    }),
];

/// Levels of the tree below level 0, counted from the first one that ever held anything.
#[must_use]
pub fn levels(record: &Record) -> usize {
    let used = |level: usize| record.samples.iter().any(|s| s.levels[level].bytes > 0);
    (1..LEVELS).find(|&level| used(level)).map_or(0, |first| LEVELS - first)
}

/// The place in a sample of the N-th level.
fn level_of(record: &Record, number: usize) -> Option<usize> {
    let level = LEVELS.checked_sub(levels(record))? + number.checked_sub(1)?;
    (level < LEVELS).then_some(level)
}

/// `level_write_rate_N`: bytes a second that merges wrote into the N-th level, over the bytes a
/// second that were flushed; `level_update_rate_N`: the part of the level that they replaced per
/// virtual second; `level_update_ratio_N`: that of the N-th level over that of the next.
/// `level_write_rate_inner` is the mean of the write rates of all levels but the last,
/// `level_start_bytes_N` what the N-th level held at the start, `level_end_bytes_N` at the end;
/// `level_shadowed_N`: entries that merges into the level dropped for newer ones.
fn level_number(record: &Record, base: &str, number: usize) -> Option<f64> {
    let level = level_of(record, number)?;
    let (first, last) = record.samples.first().zip(record.samples.last())?;
    let (before, after) = (first.levels[level], last.levels[level]);
    let held: u64 = record.samples.iter().map(|s| s.levels[level].bytes).sum();
    let held = held as f64 / record.samples.len() as f64;
    let written = grown(before.compacted, after.compacted);
    match base {
        "level_start_bytes" => Some(before.bytes as f64),
        "level_end_bytes" => Some(after.bytes as f64),
        "level_shadowed" => Some(grown(before.shadowed, after.shadowed)),
        "level_write_rate" => Some(ratio(written, grown(first.flushed_bytes, last.flushed_bytes))),
        "level_update_rate" => Some(ratio(ratio(written, held), last.seconds - first.seconds)),
        "level_update_ratio" => {
            let rate = |number| level_number(record, "level_update_rate", number);
            Some(ratio(rate(number)?, rate(number + 1)?))
        }
        _ => None,
    }
}

/// `level_bytes_N`, `level_runs_N` and `level_entries_N` of a sample.
fn level_size(record: &Record, name: &str) -> Option<impl Fn(&Sample) -> f64 + use<>> {
    let (base, number) = name.rsplit_once('_')?;
    let level = level_of(record, number.parse().ok()?)?;
    let of: fn(&LevelSample) -> u64 = match base {
        "level_bytes" => |level| level.bytes,
        "level_runs" => |level| level.runs,
        "level_entries" => |level| level.entries,
        _ => return None,
    };
    Some(move |sample: &Sample| of(&sample.levels[level]) as f64)
}

/// The places of the samples at the beginning and at the end of each window. No window is in two
/// phases.
fn windows(record: &Record) -> Vec<(usize, usize)> {
    windows_joined(record, |lookups, all| {
        let joined = match ratio(lookups, all as f64) {
            none if none <= 0.0 => 1,
            held => (LOOKUPS_MIN / held).ceil() as usize,
        };
        joined.min(all / WINDOWS_MIN).max(1)
    })
}

/// Windows of so many samples as `joined` says of a phase's lookups and samples.
fn windows_joined(record: &Record, joined: impl Fn(f64, usize) -> usize) -> Vec<(usize, usize)> {
    let last = record.samples.len().saturating_sub(1);
    let whole = [Measured { name: String::new(), first: 0, last }];
    let phases = if record.phases.is_empty() { &whole[..] } else { &record.phases };
    phases.iter().flat_map(|phase| windows_of(record, phase, &joined)).collect()
}

/// The same of one phase.
fn windows_of(
    record: &Record,
    phase: &Measured,
    joined: impl Fn(f64, usize) -> usize,
) -> Vec<(usize, usize)> {
    let places = phase.first..=phase.last;
    let samples = record.samples.get(places.clone()).unwrap_or_default();
    let all = samples.len().saturating_sub(1);
    let Some((first, last)) = samples.first().zip(samples.last()) else { return Vec::new() };
    let lookups = grown(first.hits, last.hits) + grown(first.misses, last.misses);
    let ends = places.step_by(joined(lookups, all));
    let mut windows: Vec<(usize, usize)> = ends.clone().zip(ends.skip(1)).collect();
    // What is left is no window of its own.
    if let Some((_, end)) = windows.last_mut() {
        *end = phase.last;
    }
    windows
}

/// The places of the samples at both ends of windows that hold so many lookups each that single
/// hits do not show, if there are that many: of different lengths. No window is in two phases.
fn full_windows(record: &Record) -> Vec<(usize, usize)> {
    let place = |place: usize| record.samples.get(place).copied().unwrap_or_default();
    let mut full: Vec<(usize, usize)> = Vec::new();
    let mut begun: Option<usize> = None;
    let all = windows_joined(record, |_, _| 1);
    for (number, &(from, to)) in all.iter().enumerate() {
        let start = begun.unwrap_or(from);
        let (a, b) = (place(start), place(to));
        let lookups = grown(a.hits, b.hits) + grown(a.misses, b.misses);
        let ends_phase = all.get(number + 1).is_none_or(|next| next.0 != to);
        match full.last_mut() {
            _ if lookups >= LOOKUPS_MIN => full.push((start, to)),
            // What is left of a phase belongs to its last window.
            Some(last) if ends_phase && last.1 == start => last.1 = to,
            _ if ends_phase => full.push((start, to)),
            _ => {
                begun = Some(start);
                continue;
            }
        }
        begun = None;
    }
    full
}

/// The values of the measure `name` per window, at the ends of the windows; `None` if it is no such
/// measure.
#[must_use]
pub fn series(record: &Record, name: &str) -> Option<Vec<[f64; 2]>> {
    series_over(record, name, windows(record))
}

fn series_over(record: &Record, name: &str, windows: Vec<(usize, usize)>) -> Option<Vec<[f64; 2]>> {
    let seconds = |place: usize| record.samples.get(place).map_or(0.0, |sample| sample.seconds);
    if let Some(size) = level_size(record, name) {
        let size = |place: usize| record.samples.get(place).map_or(0.0, &size);
        return Some(windows.into_iter().map(|(_, to)| [seconds(to), size(to)]).collect());
    }
    let measure = PER_WINDOW.iter().find(|m| m.name == name)?;
    let value = |ends: (usize, usize)| [seconds(ends.1), measure.value(record, ends)];
    Some(windows.into_iter().map(value).collect())
}

/// The unit of a measure; empty for a plain number.
#[must_use]
pub fn unit(name: &str) -> &'static str {
    if let Some((_, unit, _)) = WHOLE.iter().find(|(n, ..)| *n == name) {
        return unit;
    }
    match name {
        "open_seconds" => return "s",
        "open_log_bytes" => return "B",
        _ if name.starts_with("level_update_rate") => return "1/s",
        _ if name.starts_with("level_") && name.contains("_bytes") => return "B",
        _ => {}
    }
    let longest = |m: &&PerWindow| name.strip_prefix(m.name).is_some();
    match PER_WINDOW.iter().filter(longest).max_by_key(|m| m.name.len()) {
        Some(_) if name.ends_with("_period") => "s",
        Some(_) if name.ends_with("_strength") || name.ends_with("_spread") => "",
        Some(measure) => measure.unit,
        None => "",
    }
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
    let is_before = |end: f64| move |sample: &Sample| sample.seconds < end;
    let first = record.samples.partition_point(is_before(from - slack));
    let end = record.samples.partition_point(is_before(to + slack));
    record.cut("span", first..end).unwrap_or_default()
}

/// Whether the number `name`, or the series, is a size, which whoever shows it multiplies by the
/// scale.
#[must_use]
pub fn is_size(name: &str) -> bool {
    let ratio = ["_period", "_strength", "_spread"].iter().any(|end| name.ends_with(end));
    let sizes = ["level_bytes", "level_start_bytes", "level_end_bytes", "open_log_bytes"];
    !ratio && sizes.iter().any(|size| name.starts_with(size))
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
    match name {
        "open_seconds" => return Ok(record.open_seconds),
        "open_log_bytes" => return Ok(record.open_log_bytes as f64),
        _ => {}
    }
    if let Some(blocks) = blocks::number(record, name) {
        return Ok(blocks);
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
        return Ok(measure.value(record, (0, record.samples.len().saturating_sub(1))));
    }
    if let Ok(level) = statistic.parse() {
        return level_number(record, base, level).ok_or_else(unknown);
    }
    if ["low", "high", "spread", "amplitude"].contains(&statistic) {
        let (low, high) = extremes(record, base).ok_or_else(unknown)?;
        return Ok(match statistic {
            "low" => low,
            "high" => high,
            "spread" => ratio(high, low),
            _ => high - low,
        });
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

/// The values of the measure `name` that a twentieth of the time, and all but a twentieth, does not
/// exceed, of full windows.
fn extremes(record: &Record, name: &str) -> Option<(f64, f64)> {
    let windows = full_windows(record);
    let seconds = |place: usize| record.samples.get(place).map_or(0.0, |sample| sample.seconds);
    let lengths = windows.iter().map(|&(from, to)| seconds(to) - seconds(from));
    let lengths: Vec<f64> = lengths.collect();
    let points = series_over(record, name, windows)?;
    let mut sorted: Vec<(f64, f64)> = points.iter().map(|point| point[1]).zip(lengths).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = sorted.iter().map(|(_, length)| length).sum();
    let at = |part: f64| {
        let mut passed = 0.0;
        let found = sorted.iter().find(|(_, length)| {
            passed += length;
            passed > part * all
        });
        found.or(sorted.last()).map_or(0.0, |(value, _)| *value)
    };
    Some((at(0.05), at(0.95)))
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
    use crate::record::Work;

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
            record.samples[1].levels[level] =
                LevelSample { bytes: 10, compacted: written, ..LevelSample::default() };
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

    /// Goal: percentiles are of all operations of a window, whatever group did them, and a number
    /// may be of one group. Method: 99 reads of 1 ms and one of 100 ms by one group in two windows,
    /// one of 10 ms by another; writes of 5 ms.
    #[test]
    fn latencies() {
        let mut record = record(&[0.5, 0.5]);
        let work = |latencies: &[(u64, u64)]| Work {
            operations: latencies.iter().map(|(_, count)| count).sum(),
            nanos: latencies.iter().map(|(nanos, count)| nanos * count).sum(),
            latencies: latencies.to_vec(),
        };
        let (ms, none) = (1_000_000, Work::default());
        let main = vec![none.clone(), work(&[(ms, 49), (100 * ms, 1)]), work(&[(ms, 50)])];
        let scans = vec![none.clone(), none.clone(), work(&[(10 * ms, 1)])];
        let writes = vec![none.clone(), work(&[(5 * ms, 3)]), none];
        for (name, windows) in
            [("readers.main", main), ("readers.scans", scans), ("writers.main", writes)]
        {
            record.clients.insert(name.into(), windows);
        }
        let near = |of: f64, wanted: f64| assert!((of - wanted).abs() < 1e-9, "{of} of {wanted}");
        near(number_of(&record, "latency_p50_ms_overall"), 1.0);
        near(number_of(&record, "latency_p99_ms_overall"), 10.0);
        near(number_of(&record, "latency_max_ms_overall"), 100.0);
        near(number_of(&record, "latency_max_ms_mean"), 55.0);
        near(number_of(&record, "answered_at_once_overall"), 100.0 / 101.0);
        near(number_of(&record, "write_latency_p999_ms_overall"), 5.0);
        let scans = record.of_clients("readers.scans").expect("a group");
        near(number_of(&scans, "latency_p50_ms_overall"), 10.0);
        near(number_of(&scans, "reads"), 1.0);
        near(number_of(&scans, "qps_overall"), 1.0);
        let writes = record.of_clients("writers.main").expect("a group");
        near(number_of(&writes, "writes"), 3.0);
        near(number_of(&writes, "latency_p50_ms_overall"), 0.0);
    }

    /// Goal: sizes of levels are series, what is obsolete is told from what is not, and blocks are
    /// counted by cause. Method: two levels by hand.
    #[test]
    fn levels_and_causes() {
        let mut record = record(&[0.5, 0.5]);
        (record.loaded_keys, record.block_bytes) = (75, 4096);
        for (place, sample) in record.samples.iter_mut().enumerate() {
            let (runs, bytes) = (place as u64, 100 * place as u64);
            let level = LevelSample { runs, bytes, entries: 20, ..LevelSample::default() };
            sample.levels[LEVELS - 2] = level;
            sample.levels[LEVELS - 1] = LevelSample { bytes: 7, entries: 80, ..level };
            sample.io[2] = [8192 * place as u64, 4096 * place as u64];
        }
        assert_eq!(series(&record, "level_runs_1"), Some(vec![[0.5, 1.0], [1.0, 2.0]]));
        assert_eq!(series(&record, "level_bytes_2"), Some(vec![[0.5, 7.0], [1.0, 7.0]]));
        assert!((number_of(&record, "level_bytes_1_mean") - 150.0).abs() < 1e-9);
        assert!((number_of(&record, "obsolete_share_overall") - 0.25).abs() < 1e-9);
        assert!((number_of(&record, "read_blocks_compaction") - 4.0).abs() < 1e-9);
        assert!((number_of(&record, "written_blocks_compaction") - 2.0).abs() < 1e-9);
        assert!(
            number(&record, "read_blocks_luck").is_err()
                && series(&record, "level_bytes_9").is_none()
        );
    }

    /// Goal: extremes are of windows that hold 500 lookups each, however slow reads were, and what
    /// is left of a phase is in its last window. Method: 20 fast samples of 1,000 hits, then 25 of
    /// 100 lookups, of which every fifth sample hits: single ones would have extremes of 0 and 1.
    #[test]
    fn extremes_are_of_full_windows() {
        let mut sample = Sample::default();
        let mut record = Record { samples: vec![sample], ..Record::default() };
        for number in 0..45 {
            sample.seconds += 1.0;
            match number {
                0..20 => sample.hits += 1000,
                _ if number % 5 == 0 => sample.hits += 100,
                _ => sample.misses += 100,
            }
            record.samples.push(sample);
        }
        let full = full_windows(&record);
        assert_eq!((full.len(), full[19], full[20], full[24]), (25, (19, 20), (20, 25), (40, 45)));
        assert!((number_of(&record, "hit_ratio_low") - 0.2).abs() < 1e-9);
        assert!((number_of(&record, "hit_ratio_amplitude") - 0.8).abs() < 1e-9);
        // By time, not by windows: here one window of 21 is slow, and a fifth of the time.
        let mut slow = record.clone();
        slow.samples.truncate(26);
        assert_eq!(full_windows(&slow).len(), 21);
        assert!((number_of(&slow, "hit_ratio_low") - 0.2).abs() < 1e-9);
        record.samples.truncate(44);
        assert_eq!(full_windows(&record).last(), Some(&(35, 43)));
        record.samples.truncate(3);
        record.samples.iter_mut().for_each(|sample| sample.hits = 0);
        assert_eq!(full_windows(&record), [(0, 2)]);
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

    #[test]
    fn unknown_names() {
        for name in ["", "hit_ratio", "hit_ratio_mode", "luck_mean"] {
            assert!(number(&record(&[0.5]), name).is_err(), "{name}");
        }
        assert!(series(&record(&[0.5]), "luck").is_none());
    }
}
