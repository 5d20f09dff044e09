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
    fails(&["check", "--scale", "7"], dir.path(), 1, &["scale 7", "weir lab run"]);
    let (code, out, err) = lab(&["report"], dir.path());
    assert_eq!((code, out.as_str(), err.as_str()), (0, "weir-lab/report.html\n", ""));
    let page = std::fs::read_to_string(dir.path().join("weir-lab/report.html")).expect("a page");
    assert!(page.contains("<svg") && page.contains("✗ outside"));
    let (code, out, _) = lab(&["report", "--out", "new/page.html"], dir.path());
    assert_eq!((code, out.as_str()), (0, "new/page.html\n"));
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
    fails(&["run", "no-such"], dir.path(), 1, &["no experiment \"no-such\"", "lsbm-fig"]);
    assert!(!dir.path().join("weir-lab").exists());
}
