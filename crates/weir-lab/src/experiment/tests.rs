//! Experiments that are sound, and what is said about those that are not.

use super::*;
use crate::document::{Files, Set, Source};
use crate::policies::Policy;
use crate::settings::Eviction;

const TEXT: &str = r#"
paper = "LSbM"
figure = "0"
title = "a test"
notes = []
paper_lines = []
[settings]
crash_at_end = false
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
eviction = "lru"
row_cache_bytes = 0
warm_up = "none"
compaction_buffer = "off"
trim_threshold = 0.8
trim_interval_seconds = 30.0
sentinels = "off"
sentinel_bucket_keys = 2000
sentinel_scans = 16
sentinel_ranges = "quantile"
sentinel_theta = 1.0
sentinel_window_seconds = 30.0
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
spread = "even"
order = "random"
updates = 0
[settings.disk]
preset = "hdd-15k-x2"
page_cache_bytes = 0
indexes_resident = true
write_cache = true
capacity_bytes = 0
file_system = "none"
speed = 1.0
[settings.readers.main]
threads = 8
loop = "closed"
per_second = 0.0
kind = "get"
choice = "range_hot"
recent_keys = 0
zipf_theta = 0.999
hot_keys = 0.15
hot_reads = 0.98
hot_moves_seconds = 0.0
scan_bytes = 0
scan_scaled = false
cpu_nanos = 20000
entry_cpu_nanos = 1000
[settings.writers.main]
threads = 1
loop = "open"
per_second = 1000.0
kind = "update"
choice = "uniform"
zipf_theta = 0.999
cpu_nanos = 20_000
[settings.time]
window_seconds = 10.0
[[settings.phases]]
name = "main"
seconds = 20000.0
readers = ["main"]
writers = ["main"]
compaction = "normal"
measured = true
[settings.replay]
file = ""
writes = 0
updates = 0.0
deletes = 0.0
gets = 0
absent = 0.0
write_cpu_nanos = 1_000
read_cpu_nanos = 1_000
entry_cpu_nanos = 0
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
set = { "writers.main.threads" = 0 }
[[numbers]]
name = "n"
measure = "hit_ratio_mean"
run = "a"
over = "b"
note = ""
"#;

fn parse(text: &str) -> Result<Experiment, String> {
    parse_with(text, &[])
}

/// With options that are set from outside.
fn parse_with(text: &str, sets: &[&str]) -> Result<Experiment, String> {
    let source = Source { name: "x.toml".into(), text: text.into() };
    let sets: Result<Vec<Set>, String> = sets.iter().map(|set| set.parse()).collect();
    let files = Files::read(source, &|_, _| Err("there are none".into()))?;
    Experiment::parse("x", &files.with(&sets?)?)
}

/// Goal: what is set from outside holds for every run, also for one that has its own value, and is
/// told apart from what the experiment says.
#[test]
fn options_are_set_from_outside() {
    let sets = ["writers.main.threads=7", "store.eviction=s3_fifo", "store.bloom_bits = 1"];
    let experiment = parse_with(TEXT, &sets).expect("parses");
    for run in &experiment.runs {
        assert_eq!(run.settings.writers["main"].threads, 7, "{}", run.name);
        assert_eq!(run.settings.store.eviction, Eviction::S3Fifo);
        assert!((run.settings.store.bloom_bits - 1.0).abs() < 1e-6);
        assert!(run.set.is_empty(), "{:?}", run.set);
    }
    assert_eq!(experiment.options["store.eviction"], "s3_fifo");
    assert_eq!(experiment.set["store.eviction"], "s3_fifo");
    assert_eq!(experiment.set.len(), 3);
    // What is shown of it is the experiment with them.
    let shown = parse(&experiment.to_toml().expect("written")).expect("sound");
    assert_eq!(format!("{:?}", shown.runs), format!("{:?}", experiment.runs));
    assert!(parse(TEXT).expect("parses").set.is_empty());
}

/// Goal: what is set from outside is refused by its name if there is no such option, or its value
/// is of a wrong type, does not fit the rest or would have no effect.
#[test]
fn options_from_outside_are_refused() {
    for (set, error) in [
        ("store.evict=lru", "--set store.evict=lru: there is no option \"store.evict\" in "),
        ("store=lru", "--set store=lru: there is no option \"store\""),
        ("store.xyz=1", "; [settings.store] has background_threads, block_bytes, "),
        ("stor.policy=gear", "; [settings] has crash_at_end, disk, load, phases, "),
        ("readers.maim.threads=1", "; [settings.readers] has main"),
        (
            "store.eviction=fifo",
            "--set store.eviction=fifo: unknown variant `fifo`, expected `lru`",
        ),
        ("load.updates=many", "--set load.updates=many: invalid type: string \"many\""),
        ("load.updates=-1", "--set load.updates=-1: invalid value"),
        ("load.merged=1", "--set load.merged=1: invalid type: integer"),
        ("store.policy=gear", "x.toml: there is no [settings.policies.gear]"),
        (
            "policies.tiered.runs_per_level=2",
            "--set policies.tiered.runs_per_level=2: the policy tiered is not used",
        ),
        ("readers.main.choice=latest_uniform", "readers.main: recent_keys is 0"),
        ("store.eviction", "this is no OPTION=VALUE"),
        ("=lru", "the option or its value is missing"),
    ] {
        let message = parse_with(TEXT, &[set]).expect_err(set);
        assert!(message.contains(error), "{error} in {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    let twice = parse_with(TEXT, &["load.updates=1", "load.updates=2"]).expect_err("twice");
    assert_eq!(twice, "--set load.updates=2: load.updates is set twice");
}

/// Goal: options are taken from the file, and a run's own options hold for that run alone.
#[test]
fn runs_differ_where_they_say_so() {
    let experiment = parse(TEXT).expect("parses");
    let [a, b] = [0, 1].map(|i| &experiment.runs[i].settings);
    assert_eq!((a.writers["main"].threads, b.writers["main"].threads), (1, 0));
    assert!((b.writers["main"].per_second - 1000.0).abs() < 1e-9);
    assert_eq!((b.load.keys, b.store.policy), (20_971_520, Policy::Leveled));
    assert_eq!(experiment.runs[1].set["writers.main.threads"], "0");
    assert_eq!(experiment.options["readers.main.choice"], "range_hot");
    // What `tiered` would be told is no option of this experiment.
    assert_eq!(experiment.options.len(), 81);
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

/// Goal: a number may be about a part of the run, which lies in it. Method: parts that do and that
/// do not, of 20,000 s.
#[test]
fn spans_lie_in_the_run() {
    let with = |span: &str| parse(&TEXT.replacen("over = \"b\"", span, 1));
    let sound = with("span = [10000.0, 20000.0]\nover_span = [0.0, 10000.0]").expect("parses");
    assert_eq!(sound.numbers[0].over_span, Some([0.0, 10_000.0]));
    for span in ["span = [10000.0, 20001.0]", "over_span = [5.0, 5.0]", "span = [-1.0, 5.0]"] {
        assert!(with(span).is_err_and(|e| e.contains("is not in the run")), "{span}");
    }
}

/// Goal: nothing is taken silently. Method: an unknown key, a missing one, an unknown option in
/// a run and a number of an unknown run are each refused by name.
#[test]
fn what_is_wrong_is_named() {
    for (from, to, named) in [
        ("[settings.disk]", "[settings.disk]\nheads = 1", "line 51: unknown field `heads`"),
        ("bloom_bits = 15.0\n", "", "missing field `bloom_bits`"),
        ("writers.main.threads", "writers.main.hours", "no option \"writers.main.hours\""),
        ("\"writers.main.threads\"", "\"writers.main\"", "no option \"writers.main\""),
        ("\"writers.main.threads\"", "writers", "no option \"writers\""),
        (
            "[settings.policies.tiered]",
            "[settings.policies.tiered]\nlevel_ratio = 4",
            "line 40: unknown field `level_ratio`, expected `runs_per_level`, in \
             `policies.tiered`",
        ),
        (
            "\"writers.main.threads\" = 0",
            "\"store.policy\" = \"gear\"",
            "there is no [settings.policies.gear], of the run \"b\"",
        ),
        (
            "\"writers.main.threads\" = 0",
            "\"policies.tiered.runs_per_level\" = 2",
            "line 110: the policy tiered is not used, of the run \"b\"",
        ),
        (
            "\"writers.main.threads\" = 0",
            "\"policies.tiered.level_ratio\" = 2",
            "no option \"policies.tiered.level_ratio\"",
        ),
        (
            "\"writers.main.threads\" = 0",
            "\"readers.main.choice\" = \"latest_zipfian\", \"readers.main.recent_keys\" = 1",
            "readers.main: recent_keys is 1, and load.updates and the writers \"main\" write 0",
        ),
        ("speed = 1.0", "speed = 0.0", "disk.speed is 0: choose"),
        ("run = \"a\"", "run = \"c\"", "\"c\""),
        ("title =", "titel =", "line 4: unknown field `titel`"),
        ("title =", "title", "line 4: "),
        ("[settings", "[options", "there is no [settings]"),
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
        ("store.compaction_buffer", "off", "`trimmed`"),
        ("store.sentinels", "off", "`corrected`"),
        ("store.durability", "buffered", "`sync`"),
        ("load.policy", "leveled", "`gear`"),
        ("load.order", "random", "`sequential`"),
        ("disk.preset", "hdd-15k-x2", "`sata-ssd`"),
        ("disk.file_system", "none", "`btrfs`"),
        ("readers.main.kind", "get", "`ycsb_f`"),
        ("readers.main.loop", "closed", "`open`"),
        ("readers.main.choice", "range_hot", "`latest_range_hot`"),
        ("writers.main.choice", "uniform", "`oldest`"),
        ("writers.main.kind", "update", "`insert`"),
    ] {
        let (table, key) = option.rsplit_once('.').expect("a full name");
        let (before, behind) = TEXT.split_at(TEXT.find(&format!("[settings.{table}]")).unwrap());
        let stated = behind.replacen(&format!("\n{key} = \"{name}\""), "\nKEY = \"nmae\"", 1);
        let stated = format!("{before}{}", stated.replace("KEY", key));
        let set = TEXT.replacen("\"writers.main.threads\" = 0", "\"OPTION\" = \"nmae\"", 1);
        for text in [stated, set.replace("OPTION", option)] {
            let error = parse(&text).expect_err(option);
            let line = line_of(&text, "\"nmae\"");
            let start = format!("x.toml: line {line}: unknown variant `nmae`, expected ");
            assert!(error.starts_with(&start), "{error}");
            assert!(error.contains(known) && error.contains(option), "{error}");
        }
    }
}

/// Goal: what no run can do, or what would have no effect, is refused by its name and range where
/// the file is read. Method: each in turn.
#[test]
fn options_have_ranges() {
    for (from, to, named) in [
        ("window_seconds = 10.0", "window_seconds = 0.0", "time.window_seconds is 0: choose"),
        ("window_seconds = 10.0", "window_seconds = -1.0", "time.window_seconds is -1: choose"),
        ("window_seconds = 10.0", "window_seconds = inf", "time.window_seconds is inf: choose"),
        ("window_seconds = 10.0", "window_seconds = 1e-6", "choose at least 0.02"),
        ("seconds = 20000.0", "seconds = inf", "the phase \"main\" has inf seconds"),
        ("threads = 8", "threads = 100000", "have 100001 threads together: choose at most 1000"),
        ("\nthreads = 1\n", "\nthreads = 100000\n", "have 100008 threads together"),
        ("keys = 20971520", "keys = 100000000000", "load.keys is 100000000000: choose"),
        ("key_bytes = 16", "key_bytes = 1", "load.key_bytes is 1: choose a number from 16 to 1024"),
        ("value_bytes = 1008", "value_bytes = 100000000", "from 0 to 16777216"),
        ("zipf_theta = 0.999", "zipf_theta = 1.0", "readers.main: zipf_theta is 1: choose"),
        ("zipf_theta = 0.999", "zipf_theta = 0.0", "readers.main: zipf_theta is 0: choose"),
        ("hot_keys = 0.15", "hot_keys = 0.0", "readers.main: hot_keys is 0: choose"),
        ("hot_keys = 0.15", "hot_keys = 1.5", "readers.main: hot_keys is 1.5: choose"),
        ("hot_reads = 0.98", "hot_reads = 98.0", "hot_reads is 98: choose a number from 0 to 1"),
        ("hot_moves_seconds = 0.0", "hot_moves_seconds = -1.0", "hot_moves_seconds is -1"),
        ("per_second = 1000.0", "per_second = inf", "writers.main: per_second is inf"),
        ("note = \"\"", "low = nan\nnote = \"\"", "number \"n\": low is NaN"),
        ("note = \"\"", "high = inf\nnote = \"\"", "number \"n\": high is inf"),
        ("name = \"b\"", "name = \"a\"", "two runs are called \"a\""),
        (
            "[[numbers]]",
            "[[numbers]]\nname = \"n\"\nmeasure = \"reads\"\nrun = \"a\"\nnote = \"\"\n[[numbers]]",
            "two numbers are called \"n\"",
        ),
        ("gets = 0", "gets = 5", "replay.gets is 5 and replay.writes is 0"),
        ("writes = 0", "writes = 5", "instead of readers, writers and phases"),
        ("writes = 0", "writes = 9223372036854775807", "instead of readers, writers and phases"),
        ("file = \"\"\nwrites = 0", "file = \"x\"\nwrites = 5", "say 0 for both"),
        ("file = \"\"", "file = \"x\"", "instead of readers, writers and phases"),
        (
            "table_bytes = 20971520",
            "table_bytes = 5",
            "the engine refuses an option: table_bytes is 5;",
        ),
        ("write_buffer_bytes = 104857600", "write_buffer_bytes = 5", "write_buffer_bytes is 5; "),
        ("background_threads = 1\n", "background_threads = 0\n", "background_threads is 0; "),
        ("l0_trigger = 4", "l0_trigger = 0", "l0_trigger is 0; choose a value from 1 to"),
        ("block_cache_bytes = 6442450944", "block_cache_bytes = 9223372036854775807", "from 0 to"),
    ] {
        assert!(TEXT.contains(from), "{from}");
        let error = parse(&TEXT.replacen(from, to, 1)).expect_err(named);
        assert!(error.starts_with("x.toml: ") && error.contains(named), "{named} in {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// Goal: a measure that there is not, or that a plot or a number cannot have, is refused where the
/// file is read.
#[test]
fn measures_are_known() {
    let kind = |kind: &str, measures: &str| {
        TEXT.replacen("kind = \"time\"", &format!("kind = {kind:?}"), 1).replacen(
            "measures = [\"hit_ratio\"]",
            &format!("measures = [{measures}]"),
            1,
        )
    };
    for (text, named) in [
        (kind("time", "\"hit_rato\""), "x.toml: plot: there is no measure per window \"hit_rato\""),
        (kind("time", "\"hit_ratio_mean\""), "there is no measure per window \"hit_ratio_mean\""),
        (kind("bars", "\"hit_ratio\""), "one of hit_ratio_mean, "),
        (kind("bars", ""), "there are no measures to draw"),
        (kind("scatter", "\"reads\""), "shows two measures"),
        (kind("lines", "\"reads\""), "no run has a point"),
        (
            TEXT.replacen("hit_ratio_mean", "hit_rato_mean", 1),
            "x.toml: number \"n\": there is no measure \"hit_rato_mean\"",
        ),
    ] {
        let error = parse(&text).expect_err(named);
        assert!(error.contains(named), "{named} in {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    parse(&kind("lines", "\"level_write_rate_by_level\"")).expect("needs no points");
}

/// Goal: a run may have another length of a phase, by the phase's name, and no phase that there is
/// not.
#[test]
fn runs_set_phases_by_name() {
    let own = |option: &str| TEXT.replacen("\"writers.main.threads\" = 0", option, 1);
    let experiment = parse(&own("\"phases.main.seconds\" = 7.0")).expect("parses");
    let seconds = |run: &Run| run.settings.phases[0].seconds;
    assert_eq!(experiment.runs.iter().map(seconds).collect::<Vec<_>>(), [20_000.0, 7.0]);
    assert_eq!(experiment.runs[1].set["phases.main.seconds"], "7");
    let error = parse(&own("\"phases.mian.seconds\" = 7.0")).expect_err("no such phase");
    assert!(error.contains("there is no option \"phases.mian.seconds\""), "{error}");
}

/// Goal: the short form has the runs that are not long, and the numbers that need no other. Method:
/// either run of the two, and both.
#[test]
fn short_forms_leave_out_what_needs_long_runs() {
    let own =
        "[[numbers]]\nname = \"own\"\nmeasure = \"hit_ratio_mean\"\nrun = \"b\"\nnote = \"\"\n";
    let long = |runs: &[&str]| {
        let mark = |text: String, run: &&str| {
            let name = format!("[[runs]]\nname = \"{run}\"");
            text.replace(&name, &format!("{name}\nlong = true"))
        };
        parse(&runs.iter().fold(format!("{TEXT}{own}"), mark)).expect("parses").shortened()
    };
    let numbers = |experiment: &Experiment| {
        experiment.numbers.iter().map(|number| number.name.clone()).collect::<Vec<_>>()
    };
    let whole = long(&[]).expect("a form");
    assert!(!whole.short && whole.runs.len() == 2);
    let short = long(&["a"]).expect("a form");
    assert!(short.short && short.runs.len() == 1);
    assert_eq!(numbers(&short), ["own"]);
    assert!(numbers(&long(&["b"]).expect("a form")).is_empty());
    assert!(long(&["a", "b"]).is_none());
}
