//! The program `weir-sim` as its users call it.

use std::process::Command;

/// Goal: a wrong command line ends with 2, before anything runs, and help with 0.
#[test]
fn wrong_command_lines_end_with_2() {
    let run = |words: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_weir-sim"));
        let output = program.args(words.split_whitespace()).output().expect("started");
        let said = output.stdout.iter().chain(&output.stderr).copied().collect();
        (output.status.code(), String::from_utf8(said).expect("text"))
    };
    for words in ["", "nosuch", "m --images 5", "m --ops many", "c --stride 0", "museum --sink"] {
        let (code, said) = run(words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains("--help") || said.contains("Usage"), "{words:?}: {said}");
    }
    for words in ["--help", "help", "m --help", "--version"] {
        assert_eq!(run(words).0, Some(0), "{words}");
    }
    let (code, said) = run("rounds --ops 1_000 --seed 3");
    assert_eq!(code, Some(0), "{said}");
}
