//! `weir replay` and `weir generate`.

use crate::{temporary, weir, weir_with};
use serde_json::Value;
use std::path::Path;

#[expect(clippy::disallowed_methods, reason = "a file of the user's, not of a store")]
fn write(dir: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(dir.join(name), bytes).expect("a temporary file can be written");
}

/// The JSON summary of a replay that verified and found no difference.
#[track_caller]
fn replay(dir: &Path, args: &[&str]) -> Value {
    replay_setting(dir, "", args)
}

/// The same of one that set these options in a store that was there.
#[track_caller]
fn replay_setting(dir: &Path, set: &str, args: &[&str]) -> Value {
    let ran = weir(dir, &[&["replay", "--json", "--verify"], args].concat());
    let note = match set {
        "" => String::new(),
        _ => format!("weir: set in the store, where it stays: {set}\n"),
    };
    assert_eq!((ran.code, ran.err.as_str()), (0, note.as_str()));
    let value: Value = serde_json::from_str(&ran.out).expect("the output is JSON");
    assert_eq!(value["verified"], true);
    assert_eq!(value["differences"], 0);
    value
}

/// Goal: every operation is applied and counted. Method: a small file whose answers are known.
#[test]
fn a_small_file() {
    let dir = temporary();
    write(
        dir.path(),
        "ops.csv",
        b"i,1,10\ni,-2,20\nu,1,11\ni,3,30\nd,3\ng,1\ng,3\ng,9\nr,-2,1\nr,1,-2\nr,2,9\n",
    );
    let summary = replay(dir.path(), &["ops.csv"]);
    for (name, value) in [
        ("lines", 11),
        ("inserts_and_updates", 4),
        ("deletes", 1),
        ("gets", 3),
        ("found", 1),
        ("missing", 2),
        ("ranges", 3),
        ("range_pairs", 2),
        ("pairs", 2),
    ] {
        assert_eq!(summary[name], value, "{name} in {summary}");
    }
    let text = weir(dir.path(), &["replay", "ops.csv"]);
    let out = text.ok();
    for part in
        ["writes", "4 inserts and updates, 1 delete", "1 found, 2 missing", "2 pairs returned"]
    {
        assert!(out.contains(part), "{part:?} is not in {out}");
    }
    assert!(!out.contains("verified"), "{out}");
}

/// Goal: generated files are what was asked for, fixed by their seed, and any store answers them
/// right, also one of several levels. Method: generated twice, counted, replayed with a tiny write
/// buffer into a store that stays, and replayed again over it.
#[test]
fn a_generated_file() {
    let dir = temporary();
    let generate = |output: &str, seed: &str| {
        weir(
            dir.path(),
            &["generate", "--lines", "20000", "--keys", "3000", "--seed", seed, "-o", output],
        )
    };
    generate("a.csv", "1").ok();
    generate("b.csv", "1").ok();
    generate("c.csv", "2").ok();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("it was written");
    let text = read("a.csv");
    assert_eq!(text, read("b.csv"));
    assert_ne!(text, read("c.csv"));
    assert_eq!(text.lines().count(), 20_000);
    for operation in ["i,", "u,", "d,", "g,", "r,"] {
        assert!(text.lines().filter(|line| line.starts_with(operation)).count() > 500);
    }
    generate("a.csv", "1").fails(1, &["a.csv", "exists"]);
    let summary = replay(dir.path(), &["--tiny", "--dir", "store", "a.csv"]);
    assert!(summary["range_pairs"].as_u64() > Some(1000), "{summary}");
    replay(dir.path(), &["--tiny", "--dir", "store", "c.csv"]);
    weir(dir.path(), &["verify", "store"]).ok();
}

/// Goal: every shape of tree answers a file right, and a store goes from one shape to the next.
/// Method: one store that stays, replayed over with each policy in turn.
#[test]
fn every_shape_of_tree() {
    let dir = temporary();
    let policies =
        ["tiered", "lazy_leveled", "size_tiered", "stepped_merge", "gear", "two_phase", "leveled"];
    for (seed, policy) in policies.into_iter().enumerate() {
        let (seed, file) = (seed.to_string(), format!("{policy}.csv"));
        let args = ["generate", "--lines", "4000", "--keys", "800", "--seed", &seed, "-o", &file];
        weir(dir.path(), &args).ok();
        let of_policy = match policy {
            "leveled" | "gear" | "two_phase" => ["--level-ratio", "3"],
            _ => ["--runs-per-level", "2"],
        };
        let others = ["--filters", "monkey", "--write-buffer-entries", "100"];
        let args = [&["--compaction", policy], &of_policy[..], &others].concat();
        // The first one makes the store.
        let set = if seed == "0" { String::new() } else { args.join(" ") };
        replay_setting(dir.path(), &set, &[&args[..], &["--dir", "store", &file]].concat());
        weir(dir.path(), &["verify", "store"]).ok();
    }
    let inspected = weir(dir.path(), &["inspect", "store"]);
    assert!(inspected.ok().contains("ratio 3, filters monkey"), "{}", inspected.out);
    // An option of another policy than the store's is refused.
    let misplaced = ["replay", "--runs-per-level", "3", "--dir", "store", "tiered.csv"];
    weir(dir.path(), &misplaced)
        .fails(2, &["--runs-per-level is an option of tiered,", "not of leveled"]);
    weir(dir.path(), &["replay", "--runs-per-level", "3", "--dir", "new", "tiered.csv"])
        .fails(2, &["--runs-per-level is an option of tiered,", "not of leveled"]);
    assert!(!dir.path().join("new").exists());
    // A replay that names no option leaves the store those that it has.
    let three = ["--level-ratio", "4", "--dir", "store", "tiered.csv"];
    replay_setting(dir.path(), "--level-ratio 4", &three);
    replay(dir.path(), &three);
    replay(dir.path(), &["--dir", "store", "tiered.csv"]);
    let text = weir(dir.path(), &["replay", "--bloom-bits", "5", "--dir", "store", "tiered.csv"]);
    let note = "note      set in the store, where it stays: --bloom-bits 5\n";
    assert!(text.ok().starts_with(note), "{}", text.out);
    let inspected = weir(dir.path(), &["inspect", "store"]);
    assert!(inspected.ok().contains("ratio 4, filters monkey"), "{}", inspected.out);
}

/// Goal: the older form of remove is understood where it cannot be a range. Method: a file of it.
#[test]
fn the_older_form_of_remove() {
    let dir = temporary();
    write(dir.path(), "old.csv", b"i,1,2\nr,1\ng,1\n");
    assert_eq!(replay(dir.path(), &["old.csv"])["deletes"], 1);
    let ran = weir(dir.path(), &["replay", "old.csv"]);
    assert!(ran.ok().contains("r,key lines were read as removes"), "{}", ran.out);
    write(dir.path(), "mixed.csv", b"i,1,2\nr,0,5\nr,1\n");
    weir(dir.path(), &["replay", "mixed.csv"]).fails(1, &["line 3", "d,key"]);
}

/// Goal: a bad line is reported with number and reason, and what came before it stays. Method:
/// hostile files into a store that stays.
#[test]
fn hostile_files() {
    let dir = temporary();
    let endless = vec![b'7'; 3 << 20];
    let zeros = vec![0; 1 << 16];
    let wrong: [(&[u8], &str); 9] = [
        (b"x,1", "is no operation"),
        (b"i,1", "write it as i,key,value"),
        (b"r", "write it as r,low,high"),
        (b"g,one", "is no decimal number"),
        (b"i,1,2,3", "more than three fields"),
        (b"g,92233720368547758070", "does not fit 64 bits"),
        (b"\xff\xfe\x00\x01,\xc3\x28", "is no operation"),
        (&endless, "longer than"),
        (&zeros, "longer than"),
    ];
    for (i, (line, part)) in wrong.iter().enumerate() {
        let file = [format!("i,{i},1\ng,{i}\n").as_bytes(), line, b"\ni,1000,1\n"].concat();
        write(dir.path(), "bad.csv", &file);
        for args in [
            &["replay", "--dir", "store", "bad.csv"][..],
            &["replay", "--verify", "--dir", "store", "bad.csv"],
        ] {
            let ran = weir(dir.path(), args);
            ran.fails(1, &["line 3: ", part, "(2 lines applied before it)"]);
            assert!(!ran.out.contains("verified"), "{}", ran.out);
            assert!(ran.out.contains("1 found"), "{}", ran.out);
        }
    }
    let applied = weir_with(dir.path(), &["shell", "store"], b"count\n");
    assert_eq!(applied.ok(), format!("{}\n", wrong.len()));
    for (bytes, lines) in [(&b""[..], 0), (b"\n\n\r\n", 3), (b"g,1", 1), (b"\r\ng,1\r\n", 2)] {
        write(dir.path(), "fine.csv", bytes);
        assert_eq!(replay(dir.path(), &["fine.csv"])["lines"], lines);
    }
}

/// Goal: what is no file is told from what is a bad one. Method: a missing file, a directory,
/// stdin.
#[test]
fn other_inputs() {
    let dir = temporary();
    weir(dir.path(), &["replay", "missing.csv"]).fails(1, &["missing.csv", "No such file"]);
    weir(dir.path(), &["replay", "."]).fails(1, &[". is a directory"]);
    let ran = weir_with(dir.path(), &["replay", "--verify", "-"], b"i,1,2\ng,1\n");
    assert!(ran.ok().contains("no difference"), "{}", ran.out);
    // A store of something else than numbers is part of the model.
    weir_with(dir.path(), &["shell", "--create", "words"], b"put apple 1\nput \"\" 2\n").ok();
    write(dir.path(), "all.csv", b"r,-9223372036854775808,9223372036854775807\ni,1,1\n");
    assert_eq!(replay(dir.path(), &["--dir", "words", "all.csv"])["pairs"], 3);
}
