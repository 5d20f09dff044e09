//! The museum: historical bugs of other engines, put back into Weir one at a time, to grade the
//! tests.
//!
//! Each `museum/*.patch` begins with lines `bug:`, `story:`, `run:` (the campaigns to try, in
//! order, as arguments of this program) and `test:` (tests to try after them, as arguments of
//! `cargo test`), followed by a diff against the engine. The runner applies it to a copy of the
//! tree, builds, runs the campaigns and tests until one fails, and reports which and after how
//! long. A bug that nothing catches is a hole in the tests; a campaign that refuses its command
//! line has caught nothing, and is an error.
//!
//! Source: docs/hazards.md, "bugs that other engines had". docs/campaigns.md has the results.

#![expect(clippy::disallowed_methods, reason = "it builds and runs programs on the real machine")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Exit code of the program, and of cargo's argument parser, for a wrong command line.
const WRONG_COMMAND_LINE: i32 = 2;

/// How the museum is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Only the patches whose file name contains this.
    pub only: Option<String>,
    /// Seconds that one bug may take in all its campaigns and tests.
    pub seconds_max: u64,
    /// The root of the repository.
    pub root: PathBuf,
    /// Where the copy of the tree goes.
    pub work: PathBuf,
}

/// One bug.
#[derive(Clone, Debug)]
pub struct Exhibit {
    /// The file's name without its ending.
    pub name: String,
    /// Which bug of docs/hazards.md, or another name for it.
    pub bug: String,
    /// What it is.
    pub story: String,
    /// The campaigns to try, in order.
    pub runs: Vec<String>,
    /// The tests to try after them.
    pub tests: Vec<String>,
    /// The file.
    pub path: PathBuf,
}

/// What became of a bug.
#[derive(Clone, Debug)]
pub struct Row {
    /// The bug.
    pub exhibit: Exhibit,
    /// The campaign that failed, if one did.
    pub caught_by: Option<String>,
    /// Seconds of that campaign, or of all.
    pub seconds: f64,
    /// What the campaign said first.
    pub said: String,
}

/// Reads the head of a patch.
///
/// # Errors
/// If a line is missing.
pub fn parse(path: &Path, text: &str) -> Result<Exhibit, String> {
    let lines = |key: &str| -> Vec<String> {
        let head = text.lines().take_while(|l| !l.starts_with("diff ") && !l.starts_with("--- "));
        head.filter_map(|l| l.strip_prefix(key)).map(|l| l.trim().to_owned()).collect()
    };
    let first = |key: &str| {
        lines(key).into_iter().next().ok_or_else(|| format!("{}: no `{key}`", path.display()))
    };
    let (runs, tests) = (lines("run:"), lines("test:"));
    if runs.is_empty() && tests.is_empty() {
        return Err(format!("{}: no `run:` and no `test:`", path.display()));
    }
    Ok(Exhibit {
        name: path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned()),
        bug: first("bug:")?,
        story: lines("story:").join(" "),
        runs,
        tests,
        path: path.to_owned(),
    })
}

/// All bugs, by name.
///
/// # Errors
/// If the directory cannot be read or a patch has no proper head.
pub fn exhibits(root: &Path) -> Result<Vec<Exhibit>, String> {
    let dir = root.join("crates/weir-sim/museum");
    let entries = std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "patch"))
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
            parse(&std::path::absolute(path).map_err(|e| e.to_string())?, &text)
        })
        .collect()
}

fn command(program: &str, args: &[&str], dir: &Path) -> Result<(bool, String), String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(dir)
        // Where the programs are looked for, whatever this process was built in.
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), text))
}

fn require(program: &str, args: &[&str], dir: &Path) -> Result<String, String> {
    match command(program, args, dir)? {
        (true, text) => Ok(text),
        (false, text) => Err(format!("{program} {} failed:\n{text}", args.join(" "))),
    }
}

/// Runs one campaign or test; `None` if it finds nothing, else what it says first.
fn attempt(
    program: &Path,
    words: &str,
    dir: &Path,
    limit: Duration,
) -> Result<Option<String>, String> {
    let log = std::env::temp_dir().join(format!("weir-museum-{}.log", std::process::id()));
    let file = std::fs::File::create(&log).map_err(|e| e.to_string())?;
    let also = file.try_clone().map_err(|e| e.to_string())?;
    let mut child = Command::new(program)
        .args(words.split_whitespace())
        .current_dir(dir)
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(also)
        .spawn()
        .map_err(|e| e.to_string())?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break Some(status);
        }
        if started.elapsed() > limit {
            child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let _ = std::fs::remove_file(&log);
    match status {
        Some(status) if status.code() == Some(WRONG_COMMAND_LINE) => {
            Err(format!("`{words}` is refused: {text}"))
        }
        Some(status) if !status.success() => {
            let line = text
                .lines()
                .find(|l| {
                    let starts = ["BAD", "VIOLATION", "seed "];
                    l.contains("FAILED after") || starts.iter().any(|start| l.starts_with(start))
                })
                .or_else(|| text.lines().last());
            Ok(Some(line.unwrap_or("(nothing)").chars().take(300).collect()))
        }
        _ => Ok(None),
    }
}

/// Makes a copy of the tree as it is committed, with its own build directory that is kept.
fn copy_tree(settings: &Settings) -> Result<PathBuf, String> {
    let copy = settings.work.join("weir-museum-tree");
    let root = std::path::absolute(&settings.root).map_err(|e| e.to_string())?;
    if copy.exists() {
        require("git", &["checkout", "--quiet", "--force", "--detach"], &copy)?;
        let head = require("git", &["rev-parse", "HEAD"], &root)?;
        require("git", &["fetch", "--quiet", &root.to_string_lossy(), head.trim()], &copy)?;
        require("git", &["checkout", "--quiet", "--force", head.trim()], &copy)?;
    } else {
        let target = copy.to_string_lossy().into_owned();
        let from = root.to_string_lossy().into_owned();
        require("git", &["clone", "--quiet", "--no-hardlinks", &from, &target], &root)?;
        let head = require("git", &["rev-parse", "HEAD"], &root)?;
        require("git", &["checkout", "--quiet", "--force", head.trim()], &copy)?;
    }
    Ok(copy)
}

/// Runs the museum.
///
/// # Errors
/// If a patch does not apply or build. Bugs that are not caught are rows, not errors.
pub fn run(settings: &Settings) -> Result<Vec<Row>, String> {
    let copy = copy_tree(settings)?;
    let mut rows = Vec::new();
    for exhibit in exhibits(&settings.root)? {
        if settings.only.as_ref().is_some_and(|only| !exhibit.name.contains(only.as_str())) {
            continue;
        }
        let patch = exhibit.path.to_string_lossy().into_owned();
        require("git", &["apply", "--whitespace=nowarn", &patch], &copy)?;
        let built = build(&exhibit, &copy);
        let row = built.and_then(|()| exhibit_row(settings, exhibit, &copy));
        require("git", &["checkout", "--quiet", "--force", "."], &copy)?;
        let row = row?;
        println!(
            "{:<28} {} {:.1} s: {}",
            row.exhibit.name,
            row.caught_by.as_deref().unwrap_or("NOT CAUGHT"),
            row.seconds,
            row.said
        );
        rows.push(row);
    }
    Ok(rows)
}

/// Checks every patch without running anything: that it applies and compiles, and that its
/// campaigns are commands, as `is_command` says. How many there are. Patches that apply on top of
/// one another are compiled together, and one by one only if that fails: to find which it is.
///
/// # Errors
/// The first patch that is not so.
pub fn check(
    settings: &Settings,
    is_command: &dyn Fn(&str) -> Result<(), String>,
) -> Result<usize, String> {
    let copy = copy_tree(settings)?;
    let exhibits = exhibits(&settings.root)?;
    for exhibit in &exhibits {
        let at = |why: String| format!("{}: {why}", exhibit.name);
        exhibit.runs.iter().try_for_each(|words| is_command(words)).map_err(at)?;
        apply(exhibit, "--check", &copy).map_err(at)?;
    }
    let mut left: Vec<&Exhibit> = exhibits.iter().collect();
    while !left.is_empty() {
        let (together, others): (Vec<&Exhibit>, Vec<&Exhibit>) =
            left.into_iter().partition(|exhibit| apply(exhibit, "--apply", &copy).is_ok());
        if compile(&copy).is_err() {
            for exhibit in &together {
                let at = |why: String| format!("{}: {why}", exhibit.name);
                apply(exhibit, "--apply", &copy).map_err(at)?;
                compile(&copy).map_err(at)?;
            }
        }
        left = others;
    }
    Ok(exhibits.len())
}

/// Applies the patch of an exhibit to the tree in `copy`, or only looks whether it applies.
fn apply(exhibit: &Exhibit, how: &str, copy: &Path) -> Result<(), String> {
    let patch = exhibit.path.to_string_lossy();
    require("git", &["apply", how, "--whitespace=nowarn", &patch], copy).map(|_| ())
}

/// Whether the tree in `copy` compiles, which is then as it was committed.
fn compile(copy: &Path) -> Result<(), String> {
    let compiled = require("cargo", &["check", "--quiet", "-p", "weir-db-sim"], copy);
    require("git", &["checkout", "--quiet", "--force", "."], copy)?;
    compiled.map(|_| ())
}

/// Builds what the bug's campaigns and tests need: a patch that does not build is not caught.
fn build(exhibit: &Exhibit, copy: &Path) -> Result<(), String> {
    if !exhibit.runs.is_empty() {
        require("cargo", &["build", "--quiet", "-p", "weir-db-sim"], copy)?;
    }
    for words in &exhibit.tests {
        let all = format!("test --quiet --no-run {words}");
        require("cargo", &all.split_whitespace().collect::<Vec<_>>(), copy)?;
    }
    Ok(())
}

fn exhibit_row(settings: &Settings, exhibit: Exhibit, copy: &Path) -> Result<Row, String> {
    let program = copy.join("target/debug/weir-sim");
    let program = std::path::absolute(program).map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let campaigns = exhibit.runs.iter().map(|words| (program.clone(), words.clone()));
    let tests = exhibit.tests.iter().map(|words| ("cargo".into(), format!("test -q {words}")));
    let attempts: Vec<(PathBuf, String)> = campaigns.chain(tests).collect();
    for (at, (program, words)) in attempts.iter().enumerate() {
        let started = Instant::now();
        // Its share of what is left: those behind it have their turn, too.
        let left = Duration::from_secs(settings.seconds_max).saturating_sub(begun.elapsed());
        let left = left / (attempts.len() - at) as u32;
        if let Some(said) = attempt(program, words, copy, left)? {
            let seconds = started.elapsed().as_secs_f64();
            return Ok(Row { exhibit, caught_by: Some(words.clone()), seconds, said });
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Row { exhibit, caught_by: None, seconds, said: String::new() })
}

/// The result as a table in Markdown.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from("| bug | what | caught by | after |\n|---|---|---|---|\n");
    for row in rows {
        let by = row.caught_by.as_ref().map_or("**nothing**".to_owned(), |by| format!("`{by}`"));
        let (bug, story) = (&row.exhibit.bug, &row.exhibit.story);
        text.push_str(&format!("| {bug} | {story} | {by} | {:.1} s |\n", row.seconds));
    }
    text
}
