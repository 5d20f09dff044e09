//! `weir bench`.

use crate::{temporary, weir, weir_with};
use serde_json::Value;

/// Goal: every workload runs and reports. Method: all of them, small, as JSON and as a table.
#[test]
fn every_workload() {
    let dir = temporary();
    let args = [
        "bench",
        "all",
        "--num",
        "2000",
        "--cache",
        "8m",
        "--write-buffer",
        "64k",
        "--threads",
        "2",
        "--json",
    ];
    let ran = weir(dir.path(), &args);
    let results: Vec<Value> = serde_json::from_str(ran.ok()).expect("the output is JSON");
    assert_eq!(results.len(), 20);
    for result in &results {
        assert_eq!(result["engine"], "weir");
        assert!(result["ops_per_second"].as_f64() > Some(0.0), "{result}");
        assert!(result["latency"].as_object().is_some_and(|kinds| !kinds.is_empty()), "{result}");
        if result["user_bytes"].as_u64() > Some(0) {
            assert!(result["engine_write_ratio"].as_f64() >= Some(1.0), "{result}");
        }
    }
    let ran = weir(dir.path(), &["bench", "fillseq", "readrandom", "--num", "1000"]);
    let lines: Vec<&str> = ran.ok().lines().collect();
    assert!(lines[0].starts_with("1,000 keys of 16 + 100 bytes"), "{}", ran.out);
    assert!(lines[2].starts_with("fillseq") && lines[3].starts_with("readrandom"), "{}", ran.out);
    // The other table: what each workload asked of the device.
    // A workload beside which a flush was late is in it, too, and widens the first column.
    let head = lines[5].split_whitespace().take(2).collect::<Vec<_>>();
    assert!(lines[4].is_empty() && head == ["workload", "cause"], "{}", ran.out);
    let log = lines[6..].iter().find(|line| line.starts_with("fillseq") && line.contains(" log "));
    assert!(log.is_some(), "{}", ran.out);
}

/// Goal: a store stays where it was asked for and is removed only if that was said. Method: twice
/// into one directory, the second time with and without leave.
#[test]
fn stores_are_not_removed() {
    let dir = temporary();
    let base = ["bench", "--num", "1000", "--dir", "store"];
    weir(dir.path(), &[&base[..], &["fillrandom"]].concat()).ok();
    weir(dir.path(), &[&base[..], &["fillrandom"]].concat()).fails(1, &["not empty", "--reuse"]);
    let ran = weir(dir.path(), &[&base[..], &["readrandom", "--json", "--reuse"]].concat());
    let results: Vec<Value> = serde_json::from_str(ran.ok()).expect("the output is JSON");
    assert_eq!(results[0]["found"], 1000);
    assert_eq!(results[0]["missing"], 0);
    weir(dir.path(), &[&base[..], &["fillseq", "--reuse"]].concat()).ok();
}

/// Goal: a benchmark uses and removes no store that another one did not make, whatever is said.
/// Method: a store of the shell's, one that is whole and one that does not open, and a directory
/// with other files; then a store that is not there yet, which is loaded.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test moves files as a user would")]
fn only_stores_of_benchmarks_are_reused() {
    let dir = temporary();
    let base = ["bench", "--num", "1000", "--reuse", "--dir"];
    let bench = |store: &str, workload: &str| {
        weir(dir.path(), &[&base[..], &[store, workload, "--json"]].concat())
    };
    weir_with(dir.path(), &["shell", "--create", "mine"], b"put precious data\n").ok();
    for workload in ["fillrandom", "overwrite", "readrandom"] {
        bench("mine", workload).fails(1, &["mine", "did not make"]);
    }
    assert_eq!(
        weir_with(dir.path(), &["shell", "mine"], b"get precious\ncount\n").ok(),
        "\"data\"\n1\n"
    );
    std::fs::rename(dir.path().join("mine/ROOT"), dir.path().join("mine/aside"))
        .expect("a file can be moved");
    bench("mine", "fillrandom").fails(1, &["mine"]);
    assert!(dir.path().join("mine/LOCK").exists() && dir.path().join("mine/aside").exists());
    std::fs::create_dir(dir.path().join("other")).expect("a directory can be made");
    std::fs::create_dir(dir.path().join("other/letters")).expect("a directory can be made");
    bench("other", "fillrandom").fails(1, &["other"]);
    assert!(dir.path().join("other/letters").exists());
    for _ in 0..2 {
        let ran = bench("new", "readrandom");
        let results: Vec<Value> = serde_json::from_str(ran.ok()).expect("the output is JSON");
        assert_eq!(results[0]["found"], 1000);
    }
    let inspected = weir(dir.path(), &["inspect", "new"]);
    assert!(inspected.ok().contains("made by weir bench"), "{}", inspected.out);
}

/// Goal: a store that is used again keeps its options, but for those that the command line names:
/// these are set, and that is said. Method: a store of `fillseq` with options of its own, read
/// again without any, with one, and filled again.
#[test]
fn a_store_that_is_used_again_keeps_its_options() {
    let dir = temporary();
    let run = |args: &[&str]| {
        weir(dir.path(), &[&["bench", "--num", "1000", "--dir", "store"], args].concat())
    };
    let options = || weir(dir.path(), &["inspect", "store"]).ok().to_owned();
    let tiered = ["fillseq", "--compaction", "tiered", "--runs-per-level", "3"];
    let first = run(&[&tiered[..], &["--write-buffer", "64k"]].concat());
    assert!(!first.ok().contains("note"), "{}", first.out);
    let made = options();
    assert!(made.contains("tiered") && made.contains("3 runs a level"), "{made}");
    let again = run(&["readrandom", "--reuse"]);
    assert!(!again.ok().contains("note"), "{}", again.out);
    let same = run(&["readrandom", "--reuse", "--compaction", "tiered", "--write-buffer", "64k"]);
    assert!(!same.ok().contains("note"), "{}", same.out);
    let defaults = run(&["readrandom", "--reuse", "--defaults"]);
    assert!(!defaults.ok().contains("note"), "{}", defaults.out);
    assert!(options().contains("tiered") && options().contains("3 runs a level"), "{}", options());
    let note = "set in the store, where it stays: --runs-per-level 2";
    let changed = run(&["readrandom", "--reuse", "--runs-per-level", "2"]);
    assert!(changed.ok().starts_with(&format!("note      {note}\n")), "{}", changed.out);
    assert!(options().contains("tiered") && options().contains("2 runs a level"), "{}", options());
    run(&["readrandom", "--reuse", "--level-ratio", "5"])
        .fails(2, &["--level-ratio is an option of leveled, gear, two_phase, not of tiered"]);
    assert!(options().contains("2 runs a level"), "{}", options());
    let json = run(&["readrandom", "--reuse", "--immutables", "3", "--json"]);
    assert_eq!(
        (json.code, json.err.as_str()),
        (0, "weir: set in the store, where it stays: --immutables 3\n")
    );
    let new = run(&["fillseq", "--reuse"]);
    assert!(!new.ok().contains("note"), "{}", new.out);
    assert!(options().contains("leveled"), "{}", options());
    let leveled = ["--level-ratio", "5", "--base-level-bytes", "1m", "--l0-trigger", "2"];
    let changed = run(&[&["readrandom", "--reuse"], &leveled[..]].concat());
    let note = "--level-ratio 5 --base-level-bytes 1048576 --l0-trigger 2\n";
    assert!(changed.ok().contains(note), "{}", changed.out);
    assert!(options().contains("level 1 of 1.0 MiB, ratio 5"), "{}", options());
    run(&["readrandom", "--reuse", "--compaction", "gear", "--expected-bytes", "1g"]).ok();
    let made = options();
    assert!(made.contains("gear") && made.contains("ratio 5"), "kept by the new policy: {made}");
}

/// Goal: reads of a store that was filled with fewer keys, or with other ones, are not taken for
/// reads of keys that are there. Method: both, for people and for programs; a workload that reads
/// what is not there says nothing.
#[test]
fn keys_that_should_be_there() {
    let dir = temporary();
    let run = |args: &[&str]| weir(dir.path(), &[&["bench", "--dir", "store"], args].concat());
    run(&["fillseq", "--num", "1000"]).ok();
    let same = run(&["readrandom", "readmissing", "--num", "1000", "--reuse"]);
    assert!(!same.ok().contains("note"), "{}", same.out);
    let more = run(&["readrandom", "--num", "100000", "--reuse"]);
    let notes: Vec<&str> = more.ok().lines().filter(|line| line.starts_with("note")).collect();
    let [note] = notes[..] else { panic!("{}", more.out) };
    assert!(note.starts_with("note      readrandom missed 9"), "{note}");
    assert!(note.contains(" of 100,000 keys") && note.contains("--num"), "{note}");
    let other =
        run(&["readseq", "ycsb-c", "--num", "1000", "--key-size", "32", "--reuse", "--json"]);
    assert_eq!(other.code, 0, "{}", other.err);
    assert!(other.err.starts_with("weir: ycsb-c missed 1,000 of 1,000 keys"), "{}", other.err);
}

/// Goal: no table without rows. Method: reads of what is in memory ask nothing of the device.
#[test]
fn no_empty_tables() {
    let dir = temporary();
    let args = ["bench", "readrandom", "--num", "1000", "--durability", "none"];
    let ran = weir(dir.path(), &args);
    assert!(ran.ok().contains("readrandom"), "{}", ran.out);
    assert!(!ran.out.contains("cause"), "{}", ran.out);
}

/// Goal: a number of seconds is a number of seconds, however few the keys are; a store in a file
/// says what it takes of it.
#[test]
fn seconds_and_slots() {
    let dir = temporary();
    let args = ["bench", "readrandom", "--num", "1000", "--seconds", "0.5", "--json"];
    let ran = weir(dir.path(), &[&args[..], &["--slots", "64m"]].concat());
    let results: Vec<Value> = serde_json::from_str(ran.ok()).expect("the output is JSON");
    assert!(results[0]["seconds"].as_f64() >= Some(0.5), "{}", ran.out);
    assert!(results[0]["ops"].as_u64() > Some(1000), "{}", ran.out);
    let taken = results[0]["directory_bytes"].as_u64().expect("a number");
    assert!((1..64 << 20).contains(&taken), "{taken}");
}
