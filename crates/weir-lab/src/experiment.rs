//! What an experiment states: one TOML file per figure.
//!
//! `[settings]` has every option of the store, its load, the disk, the readers, the writer and the
//! clock, at scale 1; each `[[runs]]` may set some of them anew, by their full names. Nothing is
//! inherited from elsewhere and nothing has a default: a file says all that it needs, and a key
//! that this module does not know is refused by its name.
//!
//! Not here: how options are scaled and what is done with them.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::result::{Axis, Differs, Kind};

/// One figure or table of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The file's name without its ending; not in the file.
    #[serde(skip)]
    pub name: String,
    /// What one types to run it: the name, or the path of its file; not in the file.
    #[serde(skip)]
    pub source: String,
    /// Short name of the paper, as in docs/papers.md.
    pub paper: String,
    /// The figure, table or section there.
    pub figure: String,
    /// One line for people.
    pub title: String,
    /// What a reader of the result must know.
    pub notes: Vec<String>,
    /// Every option, as a tree; see [`Settings`].
    settings: toml::Table,
    /// What is run, one after the other.
    pub runs: Vec<Run>,
    /// What is drawn.
    pub plot: Plot,
    /// The paper's curves, where it gives them.
    pub paper_lines: Vec<PaperLine>,
    /// What is derived.
    pub numbers: Vec<Wanted>,
}

/// One run of a store.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Its name: of the line in a plot over time, of the bar in a bar chart.
    pub name: String,
    /// The line it belongs to in a plot over a parameter, and its place on the horizontal axis.
    pub point: Option<Point>,
    /// Options that differ from `[settings]`, by their full names.
    pub set: BTreeMap<String, toml::Value>,
}

/// Where one run's value is drawn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The line.
    pub series: String,
    /// The parameter's value.
    pub x: f64,
}

/// Every option of one run, at scale 1 unless it was scaled.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The engine.
    pub store: Store,
    /// What is in it at the start.
    pub load: Load,
    /// What it lies on.
    pub disk: Disk,
    /// Who reads.
    pub reads: Reads,
    /// Who writes.
    pub writes: Writes,
    /// How long.
    pub time: Time,
    /// What is done instead.
    pub replay: Replay,
}

/// Options of the engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Name of the compaction policy.
    pub policy: String,
    /// Bytes of a memtable: the paper's S0. Scaled.
    pub write_buffer_bytes: u64,
    /// Entries of a memtable; 0: no limit. Scaled.
    pub write_buffer_entries: u64,
    /// Memtables that may wait for their flush.
    pub immutables_max: usize,
    /// Size ratio of levels.
    pub level_ratio: u32,
    /// Bytes of level 1: the paper's S1. Scaled.
    pub base_level_bytes: u64,
    /// Bytes for which levels are sized; 0: what the last one holds. Scaled.
    pub expected_bytes: u64,
    /// Runs in level 0 that start a merge.
    pub l0_trigger: usize,
    /// Runs of a level, for policies that collect them.
    pub runs_per_level: usize,
    /// Bytes of a table. Scaled.
    pub table_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bits per key of the Bloom filters.
    pub bloom_bits: f32,
    /// How they are divided over the runs of the tree: `uniform` or `monkey`.
    pub filters: String,
    /// `none`, which is all there is here: values are random bytes.
    pub compression: String,
    /// Bytes of the block cache. Scaled.
    pub block_cache_bytes: u64,
    /// Bytes of the row cache above the tables; 0: none. Scaled.
    pub row_cache_bytes: u64,
    /// `none`, or `incremental`: merged blocks go into the cache where their inputs were.
    pub warm_up: String,
    /// Threads for flushes and merges.
    pub background_threads: usize,
    /// `none`: writes go to the memtable only; `buffered`: to the log, unsynced; `sync`: synced.
    pub durability: String,
}

/// What is in the store at the start.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Name of the policy that merges what is loaded; the store is opened with its own policy
    /// afterwards.
    pub policy: String,
    /// Whether all that is loaded is brought into one sorted run, which lies in the last level
    /// then; if not, it stays as the policy leaves it.
    pub merged: bool,
    /// Number of keys. Scaled.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// `sequential` or `random`.
    pub order: String,
}

/// What the store lies on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Name of the model of the disk.
    pub preset: String,
    /// Bytes of the simulated page cache of the operating system; 0: none. Scaled.
    pub page_cache_bytes: u64,
    /// Whether indexes and filters are in memory, so that reading them costs nothing.
    pub indexes_resident: bool,
}

/// Who reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reads {
    /// Number of readers, each of which asks again when it has its answer.
    pub threads: usize,
    /// `get`, `scan`, or one of YCSB's mixes: `ycsb_a` to `ycsb_f`.
    pub kind: String,
    /// Which keys: `uniform`, `zipfian`, `range_hot`, or one of them with `latest_` before it.
    pub choice: String,
    /// How many of the keys that were written last count as recent, for `latest_uniform` and
    /// `latest_range_hot`. Scaled.
    pub recent_keys: u64,
    /// The skew of `zipfian`.
    pub zipf_theta: f64,
    /// The hot range's part of all keys, for `range_hot`.
    pub hot_keys: f64,
    /// The reads' part that goes to it.
    pub hot_reads: f64,
    /// Bytes that one scan covers; divided by the scale if `scan_scaled`.
    pub scan_bytes: u64,
    /// Whether `scan_bytes` are divided by the scale.
    pub scan_scaled: bool,
    /// Virtual processor time of a read, beside what it waits for.
    pub cpu_nanos: u64,
    /// As much per entry that a scan passes.
    pub entry_cpu_nanos: u64,
}

/// Who writes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    /// Updates of existing keys per virtual second; 0: nobody writes.
    pub per_second: f64,
    /// Which keys: `uniform`.
    pub choice: String,
    /// Virtual processor time of a write.
    pub cpu_nanos: u64,
}

/// A fixed list of operations instead of readers and a writer: Merfeld's. One thread writes, waits
/// for the merges, then reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// A file of operations as `weir replay` reads them, done line by line instead of what is drawn
    /// from the options below; empty: none. Not scaled.
    pub file: String,
    /// Writes; 0: readers and a writer as above. Scaled.
    pub writes: u64,
    /// The part of them that updates a key that was written before.
    pub updates: f64,
    /// The part that deletes one.
    pub deletes: f64,
    /// Point reads after the writes. Scaled.
    pub gets: u64,
    /// The part of them whose key was never written.
    pub absent: f64,
}

/// How long.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Time {
    /// Virtual seconds before anything is counted. Scaled.
    pub warm_up_seconds: f64,
    /// Whether the writer writes meanwhile.
    pub warm_up_writes: bool,
    /// Virtual seconds that are measured. Scaled.
    pub seconds: f64,
    /// Virtual seconds of one sample. Scaled.
    pub window_seconds: f64,
}

/// What is drawn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// How.
    pub kind: Kind,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The measures that are drawn, by name: one line or set of bars each.
    pub measures: Vec<String>,
}

/// A curve of the paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperLine {
    /// Its name.
    pub name: String,
    /// Unit of its y values.
    pub unit: String,
    /// x and y, at scale 1.
    pub points: Vec<[f64; 2]>,
    /// Names of the points, for bars: those of the runs.
    pub labels: Vec<String>,
}

/// A number to derive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// What it is called in the result.
    pub name: String,
    /// Name of the measure.
    pub measure: String,
    /// The run it is taken from.
    pub run: String,
    /// The run whose value it is divided by.
    pub over: Option<String>,
    /// The run whose value is taken from it.
    pub less: Option<String>,
    /// A formula's value that it is divided by.
    pub over_value: Option<f64>,
    /// The paper's value at scale 1.
    pub paper: Option<f64>,
    /// The least that is accepted.
    pub low: Option<f64>,
    /// The most that is accepted.
    pub high: Option<f64>,
    /// What is expected instead, if the paper's bounds are not met for a reason that was tested.
    pub differs: Option<Differs>,
    /// Where the bounds come from, or why they are missing.
    pub note: String,
}

impl Wanted {
    /// That the bounds can be met, and that a difference has bounds to differ from and a reason.
    fn check(&self) -> Result<(), String> {
        if self.over_value == Some(0.0) {
            return Err("over_value is 0".into());
        }
        if self.low.zip(self.high).is_some_and(|(low, high)| low > high) {
            return Err("low is above high".into());
        }
        let Some(differs) = &self.differs else { return Ok(()) };
        if self.low.is_none() && self.high.is_none() {
            return Err("differs: there are no bounds to differ from".into());
        }
        if differs.low > differs.high {
            return Err("differs: low is above high".into());
        }
        if differs.because.trim().is_empty() {
            return Err("differs: because is empty".into());
        }
        Ok(())
    }
}

impl Settings {
    /// The same at scale `scale`: data, caches, files, levels and durations are divided by it;
    /// rates, latencies, entries, blocks and percentages are not.
    #[must_use]
    pub fn scaled(mut self, scale: u32) -> Self {
        let divide = |number: u64| number / u64::from(scale);
        let store = &mut self.store;
        store.write_buffer_bytes = divide(store.write_buffer_bytes).max(4 << 10);
        store.base_level_bytes = divide(store.base_level_bytes).max(1 << 10);
        store.expected_bytes = divide(store.expected_bytes);
        store.table_bytes = divide(store.table_bytes).max(1 << 10);
        store.block_cache_bytes = divide(store.block_cache_bytes);
        store.row_cache_bytes = divide(store.row_cache_bytes);
        store.write_buffer_entries = match store.write_buffer_entries {
            0 => 0,
            entries => divide(entries).max(1),
        };
        self.load.keys = divide(self.load.keys);
        self.replay.writes = divide(self.replay.writes);
        self.replay.gets = divide(self.replay.gets);
        self.disk.page_cache_bytes = divide(self.disk.page_cache_bytes);
        self.reads.recent_keys = divide(self.reads.recent_keys);
        if self.reads.scan_scaled {
            self.reads.scan_bytes = divide(self.reads.scan_bytes);
        }
        for seconds in
            [&mut self.time.warm_up_seconds, &mut self.time.seconds, &mut self.time.window_seconds]
        {
            *seconds /= f64::from(scale);
        }
        self
    }

    /// Bytes of all entries that are loaded.
    #[must_use]
    pub fn loaded_bytes(&self) -> u64 {
        self.load.keys * (self.load.key_bytes + self.load.value_bytes) as u64
    }
}

impl Experiment {
    /// Reads an experiment that is called `name`.
    ///
    /// # Errors
    /// The key that is missing, unknown or wrong.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("experiment {name}: {e}");
        let mut experiment: Self = toml::from_str(text).map_err(|e| wrong(&located(text, &e)))?;
        experiment.name = name.to_owned();
        experiment.source = name.to_owned();
        let names: Vec<&str> = experiment.runs.iter().map(|r| r.name.as_str()).collect();
        for wanted in &experiment.numbers {
            wanted.check().map_err(|e| wrong(&format!("number {:?}: {e}", wanted.name)))?;
            let others = [wanted.over.as_ref(), wanted.less.as_ref()];
            for run in others.into_iter().flatten().chain([&wanted.run]) {
                if !names.contains(&run.as_str()) {
                    return Err(wrong(&format!(
                        "number {:?}: there is no run {run:?}",
                        wanted.name
                    )));
                }
            }
        }
        for run in &experiment.runs {
            experiment.settings_of(run).map_err(|e| wrong(&e))?;
        }
        Ok(experiment)
    }

    /// Every option of `run`, at scale 1.
    ///
    /// # Errors
    /// The option that is missing, unknown or wrong.
    pub fn settings_of(&self, run: &Run) -> Result<Settings, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("run {:?}: {e}", run.name);
        let mut tree = self.settings.clone();
        for (option, value) in &run.set {
            let unknown = || wrong(&format!("there is no option {option:?} in [settings]"));
            let (table, key) = option.split_once('.').ok_or_else(unknown)?;
            let table = tree.get_mut(table).and_then(toml::Value::as_table_mut);
            let place = table.and_then(|t| t.get_mut(key)).ok_or_else(unknown)?;
            *place = value.clone();
        }
        Settings::deserialize(tree).map_err(|e| wrong(&e))
    }

    /// The options as text by their full names, at scale 1.
    #[must_use]
    pub fn options(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (table, options) in &self.settings {
            for (key, value) in options.as_table().into_iter().flatten() {
                all.insert(format!("{table}.{key}"), shown(value));
            }
        }
        all
    }
}

impl Experiment {
    /// The options that `run` sets anew, as text by their full names, at scale 1.
    #[must_use]
    pub fn own_options(&self, run: &Run) -> BTreeMap<String, String> {
        run.set.iter().map(|(option, value)| (option.clone(), shown(value))).collect()
    }
}

/// What is wrong with `text`, and in which line.
fn located(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map(|span| span.start);
    match start.and_then(|start| text.get(..start)) {
        Some(before) => format!("line {}: {}", before.matches('\n').count() + 1, error.message()),
        None => error.message().to_owned(),
    }
}

/// A value as people write it.
fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(yes) => yes.to_string(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
paper = "LSbM"
figure = "0"
title = "a test"
notes = []
paper_lines = []
[settings.store]
policy = "leveled"
write_buffer_bytes = 104857600
write_buffer_entries = 0
immutables_max = 4
level_ratio = 10
base_level_bytes = 1073741824
expected_bytes = 0
l0_trigger = 4
runs_per_level = 10
table_bytes = 20971520
block_bytes = 4096
bloom_bits = 15.0
filters = "uniform"
compression = "none"
block_cache_bytes = 6442450944
row_cache_bytes = 0
warm_up = "none"
background_threads = 1
durability = "buffered"
[settings.load]
policy = "leveled"
merged = true
keys = 20971520
key_bytes = 16
value_bytes = 1008
order = "random"
[settings.disk]
preset = "hdd-15k-x2"
page_cache_bytes = 0
indexes_resident = true
[settings.reads]
threads = 8
kind = "get"
choice = "range_hot"
recent_keys = 0
zipf_theta = 0.999
hot_keys = 0.15
hot_reads = 0.98
scan_bytes = 0
scan_scaled = false
cpu_nanos = 20000
entry_cpu_nanos = 1000
[settings.writes]
per_second = 1000.0
choice = "uniform"
cpu_nanos = 20000
[settings.time]
warm_up_seconds = 0.0
warm_up_writes = false
seconds = 20000.0
window_seconds = 10.0
[settings.replay]
file = ""
writes = 0
updates = 0.0
deletes = 0.0
gets = 0
absent = 0.0
[plot]
kind = "time"
x = { label = "time", unit = "s" }
y = { label = "hit ratio", unit = "" }
measures = ["hit_ratio"]
[[runs]]
name = "a"
set = {}
[[runs]]
name = "b"
set = { "writes.per_second" = 0.0 }
[[numbers]]
name = "n"
measure = "hit_ratio_mean"
run = "a"
over = "b"
note = ""
"#;

    /// Goal: options are taken from the file, and a run's own options hold for that run alone.
    #[test]
    fn runs_differ_where_they_say_so() {
        let experiment = Experiment::parse("x", TEXT).expect("parses");
        let a = experiment.settings_of(&experiment.runs[0]).expect("a");
        let b = experiment.settings_of(&experiment.runs[1]).expect("b");
        assert!((a.writes.per_second - 1000.0).abs() < 1e-9);
        assert!(b.writes.per_second.abs() < 1e-9);
        assert_eq!((b.load.keys, b.store.policy.as_str()), (20_971_520, "leveled"));
        assert_eq!(experiment.options()["reads.choice"], "range_hot");
        assert_eq!(experiment.options().len(), 52);
    }

    /// Goal: who says that a number differs says from what, how far and why. Method: each of them
    /// left out in turn.
    #[test]
    fn differences_have_reasons() {
        let with = |bounds: &str, differs: &str| {
            let number = format!("over = \"b\"\n{bounds}\ndiffers = {{ {differs} }}\nnote");
            Experiment::parse("x", &TEXT.replacen("over = \"b\"\nnote", &number, 1))
        };
        let (bounds, whole) = ("low = 1.0\nhigh = 2.0", "low = 3.0, high = 4.0, because = \"r\"");
        let experiment = with(bounds, whole).expect("parses");
        assert_eq!(experiment.numbers[0].differs.as_ref().map(|d| d.high), Some(4.0));
        for (bounds, differs, named) in [
            ("", whole, "no bounds to differ from"),
            ("low = 2.0\nhigh = 1.0", whole, "low is above high"),
            (bounds, "low = 4.0, high = 3.0, because = \"r\"", "differs: low is above high"),
            (bounds, "low = 3.0, high = 4.0, because = \" \"", "because is empty"),
            (bounds, "low = 3.0, high = 4.0", "because"),
            (bounds, "low = 3.0, because = \"r\"", "high"),
        ] {
            let error = with(bounds, differs).expect_err(named);
            assert!(error.contains(named), "{named} in {error}");
        }
    }

    /// Goal: nothing is taken silently. Method: an unknown key, a missing one, an unknown option in
    /// a run and a number of an unknown run are each refused by name.
    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, named) in [
            ("[settings.disk]", "[settings.disk]\nspeed = 1", "speed"),
            ("bloom_bits = 15.0\n", "", "bloom_bits"),
            ("writes.per_second", "writes.per_hour", "writes.per_hour"),
            ("run = \"a\"", "run = \"c\"", "\"c\""),
            ("title =", "titel =", "titel"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = Experiment::parse("x", &TEXT.replacen(from, to, 1)).expect_err(named);
            assert!(error.contains(named), "{named} in {error}");
        }
    }
}
