//! The program as its users see it: what it prints, what it complains about, how it exits.

use std::path::Path;
use std::process::Command;

use weir_lab::result::Result as Outcome;

/// Exit code, output and errors of `weir-lab`.
fn lab(args: &[&str], dir: &Path) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-lab"));
    let output = command.args(args).current_dir(dir).output().expect("the program can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// That it fails with `code` and one sentence that contains every one of `parts`.
#[track_caller]
fn fails(args: &[&str], dir: &Path, code: i32, parts: &[&str]) {
    let (found, out, err) = lab(args, dir);
    assert_eq!(found, code, "output: {out}\nerrors: {err}");
    assert_eq!(err.lines().count(), 1, "one sentence, not: {err}");
    assert!(err.starts_with("weir-lab: ") && !err.contains("panicked"), "{err}");
    for part in parts {
        assert!(err.contains(part), "{part:?} is not in {err:?}");
    }
}

/// A result with one number that is `ours`, and must be 1 to 3.
fn result(name: &str, scale: u32, ours: f64) -> String {
    let text = r#"{
        "experiment": "NAME", "paper": "LSbM", "figure": "12", "title": "made up",
        "scale": SCALE, "seed": 1, "command": "weir lab run NAME", "settings": {},
        "kind": "bars", "x": {"label": "", "unit": ""}, "y": {"label": "gain", "unit": ""},
        "series": [{"name": "gain", "unit": "", "points": [[0, OURS]], "labels": ["LSbM"]}],
        "paper_lines": [], "virtual_seconds": 1.0, "real_seconds": 1.0, "notes": [],
        "numbers": [{"name": "gain", "unit": "", "ours": OURS, "paper": 2.0, "low": 1.0,
                     "high": 3.0, "note": "half and twice"}]
    }"#;
    let text = text.replace("NAME", name).replace("SCALE", &scale.to_string());
    let text = text.replace("OURS", &ours.to_string());
    Outcome::from_json(&text).expect("a result");
    text
}

fn put(dir: &Path, file: &str, text: &str) {
    std::fs::create_dir_all(dir.join("weir-lab")).expect("a folder");
    #[expect(clippy::disallowed_methods, reason = "the test's own file")]
    std::fs::write(dir.join("weir-lab").join(file), text).expect("written");
}

/// Goal: results are checked and reported from their files alone. Method: made-up results, good
/// ones and one outside its bounds at another scale.
#[test]
fn results_are_checked_and_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    put(dir.path(), "a-s64.json", &result("a", 64, 2.0));
    put(dir.path(), "b-s64.json", &result("b", 64, 1.0));
    put(dir.path(), "a-s64.svg", "not looked at");
    let (code, out, err) = lab(&["check"], dir.path());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(out.lines().count(), 3, "{out}");
    assert!(out.contains("1 to 3") && out.contains("holds"), "{out}");
    put(dir.path(), "c-s8.json", &result("c", 8, 3.5));
    fails(&["check"], dir.path(), 3, &["one number is outside", "c: \"gain\""]);
    assert_eq!(lab(&["check", "--scale", "64"], dir.path()).0, 0);
    // Outside of the paper's bounds for a stated reason: passes, and says so; elsewhere it fails.
    let stated = "\"differs\": {\"low\": 3.2, \"high\": 4.0, \"because\": \"it rains\"}, \"note\"";
    put(dir.path(), "d-s32.json", &result("d", 32, 3.5).replace("\"note\"", stated));
    let (code, out, err) = lab(&["check", "--scale", "32"], dir.path());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for part in ["1 to 3; here 3.2 to 4", "DIFFERS", "d: \"gain\" differs: it rains"] {
        assert!(out.contains(part), "{part:?} is not in {out}");
    }
    put(dir.path(), "d-s32.json", &result("d", 32, 4.5).replace("\"note\"", stated));
    fails(&["check", "--scale", "32"], dir.path(), 3, &["d: \"gain\""]);
    fails(&["check", "--scale", "7"], dir.path(), 1, &["scale 7", "weir-lab run"]);
    let (code, out, err) = lab(&["report"], dir.path());
    assert_eq!((code, out.as_str(), err.as_str()), (0, "weir-lab/report.html\n", ""));
    let page = std::fs::read_to_string(dir.path().join("weir-lab/report.html")).expect("a page");
    assert!(page.contains("<svg") && page.contains("✗ outside"));
    let (code, out, _) = lab(&["report", "--out", "new/page.html"], dir.path());
    assert_eq!((code, out.as_str()), (0, "new/page.html\n"));
}

/// Goal: seeds stand beside one another in the table, with the worst verdict and what counts.
/// Method: made-up results of two seeds, one outside, and one of another scale.
#[test]
fn seeds_are_tabled() {
    let dir = tempfile::tempdir().expect("a directory");
    let seed = |seed: u64, ours: f64| {
        result("a", 64, ours).replace("\"seed\": 1", &format!("\"seed\": {seed}"))
    };
    put(dir.path(), "a-s64.json", &seed(1, 2.0));
    put(dir.path(), "a-s64-seed2.json", &seed(2, 3.5));
    put(dir.path(), "b-s8.json", &result("b", 8, 1.5));
    let (code, out, err) = lab(&["table", "--markdown"], dir.path());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for line in [
        "| experiment | scale | number | kind | paper | accepted | seed 1 | seed 2 | range | \
         verdict | where the bounds come from |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        "| a | 1/64 | gain | reproduction | 2 | 1 to 3 | 2 | 3.5 | 2 to 3.5 | OUTSIDE | half and \
         twice |",
        "2 reproductions: 1 holds in all seeds, 1 outside, 0 differ, 0 open; 0 guards, 0 of them \
         outside",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}\nis not in\n{out}");
    }
    let (code, out, _) = lab(&["table", "--scale", "8"], dir.path());
    assert_eq!(code, 0);
    assert!(out.starts_with("experiment  scale") && !out.contains("range"), "{out}");
    fails(&["table", "--scale", "7"], dir.path(), 1, &["scale 7"]);
    for wrong in [&["--seeds", "0"][..], &["--seeds", "1,1"], &["--seeds", "2", "--seed", "1"]] {
        assert_eq!(lab(&[&["run", "lsbm-fig13"], wrong].concat(), dir.path()).0, 2, "{wrong:?}");
    }
}

/// A list of operations in one tree, which takes a moment.
const SHORT_LIST: &str = r#"
base = "merfeld-4"
paper = "Merfeld"
figure = "(test)"
title = "a short list"
notes = []
paper_lines = []
[settings.replay]
writes = 20_000
gets = 2_000
[plot]
kind = "bars"
x = { label = "tree", unit = "" }
y = { label = "blocks per read", unit = "" }
measures = ["blocks_per_read"]
[[runs]]
name = "tiered"
set = { "store.write_buffer_entries" = 1000 }
[[numbers]]
name = "blocks per read"
measure = "blocks_per_read"
run = "tiered"
low = 0.4
high = 2.0
note = ""
"#;

/// Goal: a result whose options were set from outside is never taken for the experiment's: its file
/// has a name of its own and says what was set, and it is neither checked nor reported. Method: a
/// short list of operations as it is and without filters.
#[test]
fn what_is_set_is_no_result_of_the_experiment() {
    let dir = tempfile::tempdir().expect("a directory");
    put(dir.path(), "list.toml", SHORT_LIST);
    let run = ["run", "weir-lab/list.toml", "--scale", "1"];
    let set = ["--set", "store.bloom_bits=1"];
    let (code, out, err) = lab(&[&run[..], &set].concat(), dir.path());
    assert_eq!(code, 0, "{out}{err}");
    fails(&["check"], dir.path(), 1, &["no results but such as --set made others"]);
    let (code, out, err) = lab(&[&run[..], &["--seeds", "2"]].concat(), dir.path());
    assert_eq!(code, 0, "{out}{err}");
    assert!(dir.path().join("weir-lab/list-s1-seed2.json").is_file());
    let file = |name: &str| {
        let text = std::fs::read_to_string(dir.path().join("weir-lab").join(name)).expect(name);
        Outcome::from_json(&text).expect("a result")
    };
    let (real, other) = (file("list-s1.json"), file("list-s1-set-store.bloom_bits-1.json"));
    assert!(real.set.is_empty() && !real.settings.contains_key("--set store.bloom_bits"));
    for settings in [&other.set["store.bloom_bits"], &other.settings["--set store.bloom_bits"]] {
        assert_eq!(settings, "1");
    }
    assert!(other.command.ends_with("--seed 1 --set store.bloom_bits=1"), "{}", other.command);
    assert!(other.notes[0].starts_with("this is not the experiment list"), "{}", other.notes[0]);
    assert!(other.numbers[0].ours > real.numbers[0].ours);
    let (_, out, _) = lab(&["check"], dir.path());
    assert!(out.contains("left out: one result of no experiment as it is"), "{out}");
    assert_eq!(out.matches("blocks per read").count(), 2, "{out}");
    let (code, out, err) = lab(&["report"], dir.path());
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("left out: one result"), "{out}");
    let page = std::fs::read_to_string(dir.path().join("weir-lab/report.html")).expect("a page");
    assert_eq!(page.matches("<article").count(), 1);
    let wrong = ["--set", "store.bloom_bytes=1"];
    let parts = ["--set store.bloom_bytes=1: there is no option \"store.bloom_bytes\""];
    fails(&[&run[..], &wrong].concat(), dir.path(), 1, &parts);
    fails(&["run", "--all", wrong[0], wrong[1]], dir.path(), 2, &parts);
    assert_eq!(lab(&[&run[..], &set, &["--check"]].concat(), dir.path()).0, 2);
}

/// Goal: what cannot be run at a scale, or whose results could not be kept, is refused before
/// anything is measured.
#[test]
fn what_cannot_be_done_is_not_begun() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = ["run", "lsbm-fig11b", "--scale"];
    let parts = ["lsbm-fig11b: run \"leveled\": at scale 1000000000 nothing is left of load.keys"];
    fails(&[&run[..], &["1000000000"]].concat(), dir.path(), 1, &parts);
    assert!(!dir.path().join("weir-lab").exists());
    put(dir.path(), "taken", "");
    let parts = ["results cannot be kept in weir-lab/taken: ", "--out"];
    fails(&[&run[..], &["64", "--out", "weir-lab/taken"]].concat(), dir.path(), 1, &parts);
    fails(&["errors", "--out", "weir-lab/taken"], dir.path(), 1, &parts);
    fails(&["amplification", "--out", "weir-lab/taken"], dir.path(), 1, &parts);
}

/// Goal: whatever is wrong is named in one sentence that says what to do.
#[test]
fn errors_are_sentences() {
    let dir = tempfile::tempdir().expect("a directory");
    fails(&["report"], dir.path(), 1, &["cannot list weir-lab", "run experiments first"]);
    fails(&["check", "--results", "."], dir.path(), 1, &[". has no results"]);
    put(dir.path(), "x.json", "{\"experiment\": 1}");
    fails(&["report"], dir.path(), 1, &["weir-lab/x.json", "no result of an experiment"]);
    for wrong in [vec![], vec!["nonsense"], vec!["run"], vec!["run", "--scale", "0", "--all"]] {
        let (code, _, err) = lab(&wrong, dir.path());
        assert_eq!(code, 2, "{wrong:?}: {err}");
    }
}

/// A short run of every policy that figures use, one that warms up and one that loads itself.
fn short_runs() -> String {
    let mut text = r#"
base = "lsbm-6.1"
paper = "LSbM"
figure = "(test)"
title = "short runs"
notes = []
paper_lines = []
numbers = []
[settings.store]
# Files take longer than what is in them.
table_bytes = 335_544_320
[settings.policies.two_phase]
level_ratio = 10
base_level_bytes = 1_073_741_824
expected_bytes = 107_374_182_400
l0_trigger = 2
[settings.policies.tiered]
runs_per_level = 10
[settings.time]
window_seconds = 10.0

[[settings.phases]]
name = "warm-up"
seconds = 300.0
readers = ["main"]
writers = []
compaction = "normal"
measured = false

[[settings.phases]]
name = "main"
seconds = 3_000.0
readers = ["main"]
writers = ["main"]
compaction = "normal"
measured = true
[plot]
kind = "time"
x = { label = "time", unit = "s" }
y = { label = "hit ratio", unit = "" }
measures = ["hit_ratio", "qps", "database_over_data"]
"#
    .to_owned();
    for policy in ["leveled", "gear", "two_phase", "stepped_merge", "tiered"] {
        let own = match policy {
            "leveled" => r#""policies.leveled.l0_trigger" = 4, "store.warm_up" = "incremental""#,
            "gear" | "two_phase" => r#""store.filters" = "monkey""#,
            _ => r#""load.merged" = false, "load.order" = "random", "load.policy" = "tiered""#,
        };
        text += &format!(
            "[[runs]]\nname = {policy:?}\nset = {{ \"store.policy\" = {policy:?}, {own} }}\n"
        );
    }
    text
}

/// Goal: a result depends on experiment, scale and seed alone, and a folder that has it gives it
/// back. Method: a short run of each policy, twice from nothing and once more, against another
/// seed; all but the real time must be the same bytes.
#[test]
fn the_same_seed_gives_the_same_json() {
    let dir = tempfile::tempdir().expect("a directory");
    put(dir.path(), "short.toml", &short_runs());
    let run = |seed: &str, out: &str| {
        let args = ["run", "weir-lab/short.toml", "--scale", "2048", "--seed", seed, "--out", out];
        let (code, text, err) = lab(&args, dir.path());
        assert_eq!(code, 0, "{text}{err}");
        let path = dir.path().join(out).join(format!("short-s2048-seed{seed}.json"));
        let text = std::fs::read_to_string(path).expect("a result");
        assert!(text.contains("\"real_seconds\""));
        let lines = text.lines().filter(|line| !line.contains("\"real_seconds\""));
        lines.collect::<Vec<_>>().join("\n")
    };
    let first = run("7", "a");
    assert_eq!(run("7", "b"), first);
    assert_eq!(run("7", "a"), first, "from the cache");
    assert_ne!(run("8", "c"), first);
}

/// That images which are damaged are said to be a cache, and made again if that is wanted.
fn images_are_a_cache(dir: &Path) {
    let run = ["run", "weir-lab/mine.toml", "--scale", "4096"];
    let images = weir::sim::RealDir::open(dir.join("weir-lab/cache/images"), false).expect("there");
    let names = images.list().expect("listed");
    let names: Vec<&str> = names.iter().map(|name| name.trim_end_matches('/')).collect();
    assert!(names.len() > 2 && names.contains(&"work"), "{names:?}");
    for name in names.into_iter().filter(|name| *name != "work") {
        let image = dir.join("weir-lab/cache/images").join(name);
        std::fs::remove_dir_all(&image).expect("removed");
        std::fs::create_dir(&image).expect("made");
    }
    std::fs::remove_dir_all(dir.join("weir-lab/cache/runs")).expect("removed");
    let parts = ["mine: no writes: the image weir-lab/cache/images/", "remove this directory"];
    fails(&run, dir, 1, &parts);
    let (code, out, err) = lab(&[&run[..], &["--fresh"]].concat(), dir);
    assert_eq!(code, 0, "{out}{err}");
}

/// Goal: an experiment may lie in a file of one's own.
#[test]
fn experiments_from_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = include_str!("../experiments/lsbm-no-writes.toml");
    put(dir.path(), "mine.toml", text);
    let (code, out, err) = lab(&["run", "weir-lab/mine.toml", "--scale", "4096"], dir.path());
    assert_eq!(code, 0, "{out}{err}");
    assert!(dir.path().join("weir-lab/mine-s4096.svg").is_file());
    images_are_a_cache(dir.path());
    fails(&["run", "missing.toml"], dir.path(), 1, &["cannot read missing.toml"]);
    put(dir.path(), "bad.toml", &text.replacen("title", "titel", 1));
    fails(&["run", "weir-lab/bad.toml"], dir.path(), 1, &["weir-lab/bad.toml: line 4", "titel"]);
}

/// Goal: a file of operations is a workload. Method: Figure 1's settings over a made-up file; its
/// writes and reads are counted, and a wrong line is named.
#[test]
fn operations_from_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut lines = String::new();
    for i in 0..3000_i64 {
        let key = i * 7919 % 1000;
        lines += &format!("i,{key},{i}\n");
        lines += &match i % 10 {
            0 => format!("d,{key}\n"),
            1 => format!("r,{},{key}\n", key - 20),
            _ => format!("g,{}\n", key + 1),
        };
    }
    put(dir.path(), "operations.csv", &lines);
    let text = r#"
base = "merfeld-4"
paper = "Merfeld"
figure = "(test)"
title = "operations of a file"
notes = []
paper_lines = []
[settings.replay]
file = "weir-lab/operations.csv"
writes = 0
gets = 0
[plot]
kind = "bars"
x = { label = "tree", unit = "" }
y = { label = "blocks per read", unit = "" }
measures = ["blocks_per_read"]
[[runs]]
name = "tiered"
set = { "store.write_buffer_entries" = 200 }
[[numbers]]
name = "writes"
measure = "writes"
run = "tiered"
low = 3300.0
high = 3300.0
note = "as many as the file has"
[[numbers]]
name = "reads, in hundreds"
measure = "reads"
run = "tiered"
over_value = 100.0
low = 27.0
high = 27.0
note = "as many as the file has"
"#;
    put(dir.path(), "csv.toml", text);
    let run = ["run", "weir-lab/csv.toml", "--scale", "1", "--check"];
    let (code, out, err) = lab(&run, dir.path());
    assert_eq!(code, 0, "{out}{err}");
    put(dir.path(), "operations.csv", &format!("{lines}x,1\n"));
    fails(&run, dir.path(), 1, &["line 6001", "no operation"]);
    std::fs::remove_dir_all(dir.path().join("weir-lab/cache")).expect("removed");
    put(dir.path(), "csv.toml", &text.replace("operations.csv", "missing.csv"));
    let parts = ["replay.file: cannot read /", "weir-lab/missing.csv: No such file"];
    fails(&run, dir.path(), 1, &parts);
    assert!(!dir.path().join("weir-lab/cache").exists(), "nothing was run");
}

/// Goal: no file takes the place of an experiment that is built in, nor two of one name that of
/// each other; one that says the same may have its name. Method: a built-in one as it is shown, and
/// with another title.
#[test]
fn names_of_experiments_are_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = lab(&["show", "lsbm-fig11b"], dir.path()).1;
    put(dir.path(), "lsbm-fig11b.toml", &text);
    let own = "weir-lab/lsbm-fig11b.toml";
    let (code, shown, err) = lab(&["show", own], dir.path());
    assert_eq!((code, err.as_str(), shown == text), (0, "", true));
    let parts = ["lsbm-fig11b and weir-lab/lsbm-fig11b.toml are both called lsbm-fig11b"];
    fails(&["run", "lsbm-fig11b", own], dir.path(), 1, &parts);
    put(dir.path(), "lsbm-fig11b.toml", &text.replacen("LevelDB", "Weir", 1));
    let parts = ["lsbm-fig11b.toml: lsbm-fig11b is the name of an experiment that is built in"];
    fails(&["run", own], dir.path(), 1, &parts);
}

/// Goal: the file that docs/laboratory.md gives as complete is so.
#[test]
fn the_documented_file_is_complete() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = include_str!("../../../docs/laboratory.md");
    let file = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    put(dir.path(), "mine.toml", file.expect("a file"));
    let (code, _, err) = lab(&["show", "weir-lab/mine.toml"], dir.path());
    assert_eq!((code, err.as_str()), (0, ""));
}

/// Goal: an experiment may share what is in a file of one's own, and what is shown is all of it and
/// can be run. Method: two files, shown, and the shown one against them.
#[test]
fn experiments_share_and_are_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let shared = "base = \"lsbm-6.1\"\n[settings.readers.main]\nthreads = 3\nkind = \"scan\"\n";
    put(dir.path(), "shared.toml", shared);
    let text = include_str!("../experiments/lsbm-no-writes.toml");
    put(dir.path(), "mine.toml", &text.replacen("lsbm-6.1", "shared.toml", 1));
    let show = |file: &str, more: &[&str]| {
        let (code, out, err) = lab(&[&["show", file], more].concat(), dir.path());
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        out
    };
    let whole = show("weir-lab/mine.toml", &[]);
    assert!(!whole.contains("base =") && whole.contains("threads = 3"), "{whole}");
    put(dir.path(), "whole.toml", &whole);
    assert_eq!(show("weir-lab/whole.toml", &[]), whole);
    let run = show("weir-lab/mine.toml", &["--run", "no writes"]);
    for part in ["[settings.store]", "threads = 0", "kind = \"scan\"", "theta = 0.999"] {
        assert!(run.contains(part), "{part:?} is not in {run}");
    }
    let no_run = ["show", "lsbm-fig14", "--run", "SM-tree"];
    fails(&no_run, dir.path(), 1, &["no run \"SM-tree\"", "\"key-value cache\""]);
    put(dir.path(), "shared.toml", &shared.replacen("scan", "skip", 1));
    let parts = ["weir-lab/shared.toml: line 4: unknown variant `skip`", "`ycsb_a`"];
    fails(&["run", "weir-lab/mine.toml"], dir.path(), 1, &parts);
    put(dir.path(), "shared.toml", "base = \"shared.toml\"");
    let parts = ["weir-lab/shared.toml: line 1: base: a file builds on itself"];
    fails(&["show", "weir-lab/mine.toml"], dir.path(), 1, &parts);
}

/// Goal: every experiment is listed and documented, and unknown names are refused before anything
/// is run. Method: the program's list against the table in docs/papers.md.
#[test]
fn experiments_are_listed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, out, err) = lab(&["list"], dir.path());
    assert_eq!((code, err.as_str()), (0, ""));
    let papers = include_str!("../../../docs/papers.md");
    for experiment in weir_lab::catalog::all().expect("sound files") {
        let name = &experiment.name;
        let line = out.lines().find(|line| line.split_whitespace().next() == Some(name));
        assert!(line.is_some_and(|line| line.ends_with(&experiment.title)), "{name} in {out}");
        assert!(papers.contains(&format!("`{name}`")), "docs/papers.md does not name {name}");
    }
    fails(&["run", "no-such"], dir.path(), 2, &["no experiment \"no-such\"", "lsbm-fig"]);
    assert!(!dir.path().join("weir-lab").exists());
}

/// Goal: a disk is measured and judged, and a name that is no disk's is refused with those that
/// are.
#[test]
fn disks_are_measured() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, out, err) = lab(&["disk", "--model", "hdd-15k-x2", "--check"], dir.path());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for part in ["1/100", "synced append, 64 KiB (ms)", "holds    manual: one rotation"] {
        assert!(out.contains(part), "{part:?} is not in {out}");
    }
    let (code, _, err) = lab(&["disk", "--model", "tape"], dir.path());
    assert!(code == 2 && err.contains("hdd-7200"), "{code}: {err}");
}
