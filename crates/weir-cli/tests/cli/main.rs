//! The program as its users see it: what it prints, what it complains about, how it exits.

mod bench;
mod demo;
mod lab;
mod replay;
mod shell;
mod stores;
mod usage;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What one run of the program did.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    /// That it succeeded and complained about nothing; its output.
    #[track_caller]
    fn ok(&self) -> &str {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "output: {}", self.out);
        &self.out
    }

    /// That it failed with `code` and one sentence that contains every one of `parts`.
    #[track_caller]
    fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "output: {}\nerrors: {}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "one sentence, not: {}", self.err);
        assert!(self.err.starts_with("weir: "), "{}", self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in {:?}", self.err);
        }
    }
}

/// Runs `weir` in `dir` with `input` on stdin.
fn weir_with(dir: &Path, args: &[&str], input: &[u8]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    // The program may end before it read everything, and may answer before it did.
    let writer = std::thread::Builder::new()
        .spawn(move || drop(stdin.write_all(&input)))
        .expect("a thread can be started");
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("the writer does not panic");
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("the output is UTF-8"),
        err: String::from_utf8(output.stderr).expect("the errors are UTF-8"),
    }
}

/// Runs `weir` in `dir` with nothing on stdin.
fn weir(dir: &Path, args: &[&str]) -> Ran {
    weir_with(dir, args, b"")
}

/// Number of names in a directory.
#[expect(clippy::disallowed_methods, reason = "a number does not depend on the order of the list")]
fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).expect("the directory can be listed").count()
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}

/// Goal: the command line explains itself. Method: help of every command.
#[test]
fn help() {
    let dir = temporary();
    let help = weir(dir.path(), &["--help"]);
    assert_eq!(help.code, 0);
    let commands = ["demo", "shell", "replay", "generate", "inspect", "verify", "bench"];
    for command in commands {
        assert!(help.out.contains(&format!("\n  {command} ")), "{}", help.out);
        let one = weir(dir.path(), &[command, "--help"]);
        assert_eq!(one.code, 0, "{command}");
        assert!(one.out.contains("Exit codes:"), "{command}: {}", one.out);
    }
    assert!(weir(dir.path(), &["--version"]).ok().starts_with("weir 0."));
    let replay = weir(dir.path(), &["replay", "--help"]);
    assert!(replay.out.contains("decimal") && replay.out.contains("64 bits"), "{}", replay.out);
}

/// Goal: a command that is interrupted closes its store, removes what is temporary and says so.
/// Method: SIGINT to an endless benchmark and to a replay of a pipe, then a look at what is left.
#[test]
fn interrupts_close_cleanly() {
    let dir = temporary();
    let bench = &["bench", "readrandom", "--num", "1000", "--reads", "1000000000000"][..];
    let cases = [
        ("-INT", bench),
        ("-TERM", bench),
        ("-HUP", bench),
        ("-QUIT", bench),
        ("-INT", &["replay", "--dir", "store", "-"]),
    ];
    for (signal, args) in cases {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(args)
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let taken = Arc::new(AtomicU64::new(0));
        let fed = Arc::clone(&taken);
        let line = b"i,1,2\n".repeat(100);
        let feeder = std::thread::Builder::new()
            .spawn(move || {
                while stdin.write_all(&line).is_ok() {
                    fed.fetch_add(line.len() as u64, Relaxed);
                }
            })
            .expect("a thread can be started");
        // Until the command is at work: its store is there, and what it reads was read further than
        // a pipe and a buffer can hold.
        let reads_input = args.contains(&"replay");
        let at_work = || match reads_input {
            true => taken.load(Relaxed) > 1 << 20,
            false => entries(dir.path()) > 0,
        };
        while !at_work() {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        std::thread::park_timeout(std::time::Duration::from_millis(300));
        let kill = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(kill.expect("kill can be run").success());
        let output = child.wait_with_output().expect("the program ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{signal} {args:?}: {errors}");
        assert!(errors.contains("closed cleanly"), "{signal} {args:?}: {errors}");
        if !reads_input {
            let out = String::from_utf8_lossy(&output.stdout);
            assert_eq!(out, "", "{signal}: tables without rows");
        }
        feeder.join().expect("the feeder does not panic");
    }
    let left = entries(dir.path());
    assert_eq!(left, 1, "the benchmark left something");
    assert_eq!(weir_with(dir.path(), &["shell", "store"], b"count\n").ok(), "1\n");
}
