//! What an experiment states: one TOML file per figure, and the bases that it shares with others.
//!
//! `[settings]` has every option of the store, its load, the disk, the readers, the writer and the
//! clock, at scale 1; each `[[runs]]` may set some of them anew, by their full names. No option has
//! a default: a file and its bases say all that is needed, and a key that this module does not know
//! is refused by its name.
//!
//! Not here: the options themselves (`settings`), and how a file is read (`document`).

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::{Document, Files, Table, take};
use crate::policies::Policy;
use crate::result::{Axis, Differs, Kind};
use crate::settings::Settings;

/// One figure or table of a paper.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The file's name without its ending.
    pub name: String,
    /// What one types to run it: the name, or the path of its file.
    pub source: String,
    /// Short name of the paper, as in docs/papers.md.
    pub paper: String,
    /// The figure, table or section there.
    pub figure: String,
    /// One line for people.
    pub title: String,
    /// What a reader of the result must know.
    pub notes: Vec<String>,
    /// Every option as text, at scale 1, by its full name.
    pub options: BTreeMap<String, String>,
    /// What is run, one after the other.
    pub runs: Vec<Run>,
    /// What is drawn.
    pub plot: Plot,
    /// The paper's curves, where it gives them.
    pub paper_lines: Vec<PaperLine>,
    /// What is derived.
    pub numbers: Vec<Wanted>,
    /// All that its files state together.
    whole: toml::Table,
}

/// One run of a store.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name: of the line in a plot over time, of the bar in a bar chart.
    pub name: String,
    /// The line it belongs to in a plot over a parameter, and its place on the horizontal axis.
    pub point: Option<Point>,
    /// The options that differ from `[settings]` as text, at scale 1, by their full names.
    pub set: BTreeMap<String, String>,
    /// Every option of this run as its files state them.
    stated: toml::Table,
    /// Every option of this run, at scale 1.
    pub settings: Settings,
}

/// What a file has beside `settings` and what its runs set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    paper: String,
    figure: String,
    title: String,
    notes: Vec<String>,
    runs: Vec<StatedRun>,
    plot: Plot,
    paper_lines: Vec<PaperLine>,
    numbers: Vec<Wanted>,
}

/// What a run has beside what it sets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatedRun {
    name: String,
    point: Option<Point>,
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
    /// That its runs exist, that the bounds can be met, and that a difference has bounds to differ
    /// from and a reason.
    fn check(&self, runs: &[Run]) -> Result<(), String> {
        let named = [Some(&self.run), self.over.as_ref(), self.less.as_ref()];
        for name in named.into_iter().flatten() {
            if !runs.iter().any(|run| run.name == *name) {
                return Err(format!("there is no run {name:?}"));
            }
        }
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

impl Run {
    /// `[settings]` as they hold for this run, as TOML.
    ///
    /// # Errors
    /// The encoder's, as text.
    pub fn to_toml(&self) -> Result<String, String> {
        let settings = toml::Value::Table(self.stated.clone());
        let table = toml::Table::from_iter([("settings".to_owned(), settings)]);
        toml::to_string(&table).map_err(|e| e.to_string())
    }
}

impl Experiment {
    /// All that its files state together, as one TOML file that needs no base.
    ///
    /// # Errors
    /// The encoder's, as text.
    pub fn to_toml(&self) -> Result<String, String> {
        toml::to_string(&self.whole).map_err(|e| e.to_string())
    }

    /// The experiment in `files`, which is called `name`.
    ///
    /// # Errors
    /// The key that is missing, unknown or wrong, with the file and the line.
    pub fn parse(name: &str, files: &Files) -> Result<Self, String> {
        let mut document = Document::parse(files)?;
        let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", files.name());
        let whole = document.typed(document.table.clone())?;
        let table = document.table.get_mut();
        let settings = take(table, "settings").ok_or_else(|| wrong(&"there is no [settings]"))?;
        let sets = take_sets(table);
        let stated: Stated = document.typed(document.table.clone())?;
        // What is wrong here is wrong even if every run sets it anew.
        let _: Settings = document.typed(settings.clone())?;
        let mut runs = Vec::new();
        for (StatedRun { name, point }, set) in stated.runs.into_iter().zip(sets) {
            let named = |e: String| format!("{e}, of the run {name:?}");
            let own = with_set(&document, &settings, &set).map_err(named)?;
            let mut stated: toml::Table = document.typed(own.clone())?;
            let typed: Settings = document.typed(own).map_err(named)?;
            let used = typed.policies_used();
            without_unused_policies(&mut stated, &used);
            refuse_unused_policies(&document, &set, &used).map_err(named)?;
            let settings = typed.without_unused_policies().map_err(|e| wrong(&named(e)))?;
            let set = by_full_name(&document.typed(Spanned::new(0..0, set))?);
            runs.push(Run { name, point, set, stated, settings });
        }
        for number in &stated.numbers {
            number.check(&runs).map_err(|e| wrong(&format!("number {:?}: {e}", number.name)))?;
        }
        let mut options: toml::Table = document.typed(settings)?;
        let used: Vec<Policy> = runs.iter().flat_map(|run| run.settings.policies_used()).collect();
        without_unused_policies(&mut options, &used);
        Ok(Self {
            name: name.to_owned(),
            source: name.to_owned(),
            paper: stated.paper,
            figure: stated.figure,
            title: stated.title,
            notes: stated.notes,
            options: by_full_name(&options),
            whole,
            runs,
            plot: stated.plot,
            paper_lines: stated.paper_lines,
            numbers: stated.numbers,
        })
    }
}

/// Takes what each run sets out of `[[runs]]`; nothing where a run sets nothing.
fn take_sets<'t>(table: &mut DeTable<'t>) -> Vec<DeTable<'t>> {
    let runs = table.get_mut("runs").map(Spanned::get_mut);
    let Some(DeValue::Array(runs)) = runs else { return Vec::new() };
    let set = |run: &mut Spanned<DeValue<'t>>| match run.get_mut() {
        DeValue::Table(run) => take(run, "set").map(Spanned::into_inner).unwrap_or_default(),
        _ => DeTable::new(),
    };
    runs.iter_mut().map(set).collect()
}

/// `settings` with the options that a run sets in their place.
fn with_set<'t>(
    document: &Document<'t>,
    settings: &Table<'t>,
    set: &DeTable<'t>,
) -> Result<Table<'t>, String> {
    let mut tree = settings.clone();
    for (option, value) in set {
        let name = option.get_ref().as_ref();
        let mut keys = name.split('.');
        let first = keys.next().and_then(|key| tree.get_mut().get_mut(key));
        let place = keys.try_fold(first, |place, key| match place?.get_mut() {
            DeValue::Table(table) => Some(table.get_mut(key)),
            _ => None,
        });
        match place.flatten() {
            Some(place) if !matches!(place.get_ref(), DeValue::Table(_)) => *place = value.clone(),
            _ => {
                let message = format_args!("there is no option {name:?} in [settings]");
                return Err(document.wrong(option, message));
            }
        }
    }
    Ok(tree)
}

/// That a run sets no option of a policy that it does not use.
fn refuse_unused_policies(
    document: &Document<'_>,
    set: &DeTable<'_>,
    used: &[Policy],
) -> Result<(), String> {
    for option in set.keys() {
        let mut keys = option.get_ref().split('.');
        if keys.next() == Some("policies")
            && let Some(name) = keys.next()
            && !used.iter().any(|policy| policy.name() == name)
        {
            return Err(document.wrong(option, format_args!("the policy {name} is not used")));
        }
    }
    Ok(())
}

/// Drops the options of all policies but `used` from settings.
fn without_unused_policies(settings: &mut toml::Table, used: &[Policy]) {
    if let Some(policies) = settings.get_mut("policies").and_then(toml::Value::as_table_mut) {
        policies.retain(|name, _| used.iter().any(|policy| policy.name() == name));
    }
}

/// The options of a table and of the tables in it as text, by their full names.
fn by_full_name(table: &toml::Table) -> BTreeMap<String, String> {
    fn collect(prefix: &str, table: &toml::Table, all: &mut BTreeMap<String, String>) {
        for (key, value) in table {
            match value {
                toml::Value::Table(inner) => collect(&format!("{prefix}{key}."), inner, all),
                value => {
                    all.insert(format!("{prefix}{key}"), shown(value));
                }
            }
        }
    }
    let mut all = BTreeMap::new();
    collect("", table, &mut all);
    all
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
    use crate::document::Source;

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
[settings.policies.leveled]
level_ratio = 10
base_level_bytes = 1073741824
expected_bytes = 0
l0_trigger = 4
[settings.policies.tiered]
runs_per_level = 10
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

    fn parse(text: &str) -> Result<Experiment, String> {
        let source = Source { name: "x.toml".into(), text: text.into() };
        Experiment::parse("x", &Files::read(source, &|_, _| Err("there are none".into()))?)
    }

    /// Goal: options are taken from the file, and a run's own options hold for that run alone.
    #[test]
    fn runs_differ_where_they_say_so() {
        let experiment = parse(TEXT).expect("parses");
        let [a, b] = [0, 1].map(|i| &experiment.runs[i].settings);
        assert!((a.writes.per_second - 1000.0).abs() < 1e-9);
        assert!(b.writes.per_second.abs() < 1e-9);
        assert_eq!((b.load.keys, b.store.policy), (20_971_520, Policy::Leveled));
        assert_eq!(experiment.runs[1].set["writes.per_second"], "0");
        assert_eq!(experiment.options["reads.choice"], "range_hot");
        // What `tiered` would be told is no option of this experiment.
        assert_eq!(experiment.options.len(), 51);
        assert!(!experiment.options.contains_key("policies.tiered.runs_per_level"));
    }

    /// Goal: who says that a number differs says from what, how far and why. Method: each of them
    /// left out in turn.
    #[test]
    fn differences_have_reasons() {
        let with = |bounds: &str, differs: &str| {
            let number = format!("over = \"b\"\n{bounds}\ndiffers = {{ {differs} }}\nnote");
            parse(&TEXT.replacen("over = \"b\"\nnote", &number, 1))
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
            ("[settings.disk]", "[settings.disk]\nspeed = 1", "line 37: unknown field `speed`"),
            ("bloom_bits = 15.0\n", "", "missing field `bloom_bits`"),
            ("writes.per_second", "writes.per_hour", "no option \"writes.per_hour\""),
            ("\"writes.per_second\"", "\"writes\"", "no option \"writes\""),
            ("\"writes.per_second\"", "writes", "no option \"writes\""),
            (
                "[settings.policies.tiered]",
                "[settings.policies.tiered]\nlevel_ratio = 4",
                "line 28: unknown field `level_ratio`, expected `runs_per_level`, in \
                 `policies.tiered`",
            ),
            (
                "\"writes.per_second\" = 0.0",
                "\"store.policy\" = \"gear\"",
                "there is no [settings.policies.gear], of the run \"b\"",
            ),
            (
                "\"writes.per_second\" = 0.0",
                "\"policies.tiered.runs_per_level\" = 2",
                "line 78: the policy tiered is not used, of the run \"b\"",
            ),
            (
                "\"writes.per_second\" = 0.0",
                "\"policies.tiered.level_ratio\" = 2",
                "no option \"policies.tiered.level_ratio\"",
            ),
            ("run = \"a\"", "run = \"c\"", "\"c\""),
            ("title =", "titel =", "line 4: unknown field `titel`"),
            ("title =", "title", "line 4: "),
            ("[settings.", "[options.", "there is no [settings]"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = parse(&TEXT.replace(from, to)).expect_err(named);
            assert!(error.starts_with("x.toml: ") && error.contains(named), "{named} in {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    /// Goal: a name that is misspelt is refused where the file is read, with the line and the names
    /// that there are, in `[settings]` and in a run. Method: every option that is a name in turn.
    #[test]
    fn misspelt_names_are_refused() {
        let line_of = |text: &str, part: &str| {
            let at = text.find(part).expect("is there");
            text[..at].matches('\n').count() + 1
        };
        for (option, name, known) in [
            ("store.policy", "leveled", "`stepped_merge`"),
            ("store.filters", "uniform", "`monkey`"),
            ("store.compression", "none", "`none`"),
            ("store.warm_up", "none", "`incremental`"),
            ("store.durability", "buffered", "`sync`"),
            ("load.policy", "leveled", "`gear`"),
            ("load.order", "random", "`sequential`"),
            ("disk.preset", "hdd-15k-x2", "`sata-ssd`"),
            ("reads.kind", "get", "`ycsb_f`"),
            ("reads.choice", "range_hot", "`latest_range_hot`"),
            ("writes.choice", "uniform", "`uniform`"),
        ] {
            let (table, key) = option.split_once('.').expect("a full name");
            let (before, behind) =
                TEXT.split_at(TEXT.find(&format!("[settings.{table}]")).unwrap());
            let stated = behind.replacen(&format!("\n{key} = \"{name}\""), "\nKEY = \"nmae\"", 1);
            let stated = format!("{before}{}", stated.replace("KEY", key));
            let set = TEXT.replacen("\"writes.per_second\" = 0.0", "\"OPTION\" = \"nmae\"", 1);
            for text in [stated, set.replace("OPTION", option)] {
                let error = parse(&text).expect_err(option);
                let line = line_of(&text, "\"nmae\"");
                let start = format!("x.toml: line {line}: unknown variant `nmae`, expected ");
                assert!(error.starts_with(&start), "{error}");
                assert!(error.contains(known) && error.contains(option), "{error}");
            }
        }
    }
}
