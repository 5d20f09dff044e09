//! `weir lab` hands over to another program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a shell script in `dir`. A file that this process wrote itself could not be executed while
/// a child of another test has inherited its descriptor ("text file busy").
fn sh(dir: &Path, script: &str) {
    let status = Command::new("sh").args(["-c", script]).current_dir(dir).status();
    assert!(status.expect("a shell").success(), "{script}");
}

/// A copy of `weir` in `dir`, alone there.
fn lonely_weir(dir: &Path) -> PathBuf {
    sh(dir, concat!("cp '", env!("CARGO_BIN_EXE_weir"), "' weir"));
    dir.join("weir")
}

fn lab(weir: &Path, args: &[&str]) -> Output {
    // Nothing is found in an empty PATH.
    let mut command = Command::new(weir);
    command.arg("lab").args(args).env("PATH", "").output().expect("the program can be started")
}

/// Goal: a missing laboratory is named, with what to do. Method: a copy of the program with no
/// other beside it.
#[test]
fn a_missing_laboratory_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = lab(&lonely_weir(dir.path()), &["list"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.starts_with("weir: ")
            && error.contains("cargo install --locked --path crates/weir-lab")
    );
    assert_eq!(error.lines().count(), 1, "{error}");
}

/// Goal: arguments arrive as they are, options and `--help` included, and output and exit code come
/// back. Method: a stand-in beside the program.
#[test]
fn arguments_and_exit_code_pass_through() {
    let dir = tempfile::tempdir().expect("a directory");
    let weir = lonely_weir(dir.path());
    let stand_in = r#"#!/bin/sh
for a in "$@"; do echo "<$a>"; done
exit 7"#;
    sh(dir.path(), &format!("echo '{stand_in}' > weir-lab && chmod +x weir-lab"));
    for (args, out) in [
        (vec!["run", "a b", "--scale", "8", "--", "-x"], "<run>\n<a b>\n<--scale>\n<8>\n<--"),
        (vec!["--help"], "<--help>\n"),
        (vec!["run", "--help"], "<run>\n<--help>\n"),
        (vec![], "<--help>\n"),
    ] {
        let output = lab(&weir, &args);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with(out), "{output:?}");
    }
}
