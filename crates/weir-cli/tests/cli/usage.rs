//! Wrong command lines: they end with exit code 2, say what is wrong in the words of the command
//! line, and do nothing.

use crate::{entries, temporary, weir, weir_with};

/// Words of the library's interface, which a command line does not have.
const LIBRARY: [&str; 6] =
    ["_bytes", "memory_budget", "immutables_max", "bloom_bits", "invalid argument", "Durability"];

/// A command line, and what its refusal names.
type Case = (&'static [&'static str], &'static [&'static str]);

#[rustfmt::skip]
const CASES: [Case; 81] = [
    // No command, or none that there is.
    (&[], &["Usage: weir <COMMAND>"]),
    (&["nonsense"], &["nonsense"]),
    (&["--nonsense"], &["--nonsense"]),
    (&["bench", "fillseq", "--nonsense"], &["--nonsense"]),
    // What is missing, empty or too much.
    (&["shell"], &["<DIR>"]),
    (&["inspect"], &["<DIR>"]),
    (&["options"], &["<DIR>"]),
    (&["options", "store", "--compaction", "none"], &["--compaction", "none"]),
    (&["verify"], &["<DIR>"]),
    (&["repair"], &["<DIR>"]),
    (&["replay"], &["<FILE>"]),
    (&["bench"], &["<WORKLOAD>"]),
    (&["shell", ""], &["<DIR>"]),
    (&["inspect", ""], &["<DIR>"]),
    (&["verify", ""], &["<DIR>"]),
    (&["repair", ""], &["<DIR>"]),
    (&["replay", ""], &["<FILE>"]),
    (&["demo", "--dir", ""], &["--dir"]),
    (&["bench", "fillseq", "--dir", ""], &["--dir"]),
    (&["generate", "--output", ""], &["--output"]),
    (&["verify", "a", "b"], &["'b'"]),
    // What excludes each other, or needs another.
    (&["shell", "store", "--create", "--read-only"], &["--create", "--read-only"]),
    (&["replay", "file", "--tiny", "--write-buffer", "1m"], &["--tiny", "--write-buffer"]),
    (&["bench", "fillseq", "--defaults", "--cache", "1m"], &["--defaults", "--cache"]),
    (&["bench", "fillseq", "--defaults", "--immutables", "2"], &["--defaults", "--immutables"]),
    (&["bench", "fillseq", "--reuse"], &["--dir"]),
    (&["bench", "fillseq", "--defaults", "--l0-trigger", "2"], &["--defaults", "--l0-trigger"]),
    // Options of another policy.
    (&["bench", "fillseq", "--runs-per-level", "3"],
     &["weir: --runs-per-level is an option of tiered, lazy_leveled, size_tiered, stepped_merge, \
        not of leveled; choose one of those with --compaction\n"]),
    (&["bench", "fillseq", "--reuse", "--dir", "store", "--runs-per-level", "3"],
     &["weir: --runs-per-level is an option of tiered,", "not of leveled"]),
    (&["bench", "readrandom", "--compaction", "tiered", "--level-ratio", "8"],
     &["weir: --level-ratio is an option of leveled, gear, two_phase, not of tiered"]),
    (&["bench", "fillseq", "--compaction", "size_tiered", "--base-level-bytes", "1m"],
     &["weir: --base-level-bytes is an option of leveled,", "not of size_tiered"]),
    (&["bench", "fillseq", "--compaction", "stepped_merge", "--l0-trigger", "2"],
     &["weir: --l0-trigger is an option of leveled,", "not of stepped_merge"]),
    (&["bench", "fillseq", "--level-ratio", "8", "--runs-per-level", "3"],
     &["weir: --runs-per-level is an option of tiered,", "not of leveled"]),
    (&["replay", "file", "--runs-per-level", "3"],
     &["weir: --runs-per-level is an option of tiered,", "not of leveled"]),
    (&["replay", "file", "--compaction", "gear", "--runs-per-level", "3"],
     &["weir: --runs-per-level is an option of tiered,", "not of gear"]),
    (&["replay", "file", "--compaction", "lazy_leveled", "--expected-bytes", "1g"],
     &["weir: --expected-bytes is an option of leveled,", "not of lazy_leveled"]),
    // Names.
    (&["bench", "fillsequ"], &["\"fillsequ\"", "fillseq", "all"]),
    (&["bench", "fillseq", "all", "x"], &["\"x\"", "readrandom"]),
    (&["bench", "fillseq", "--durability", "x"], &["--durability", "\"x\"", "buffered"]),
    (&["bench", "fillseq", "--compaction", "x"], &["--compaction", "\"x\"", "two_phase"]),
    (&["bench", "fillseq", "--filters", "x"], &["--filters", "\"x\"", "monkey"]),
    (&["bench", "fillseq", "--keys", "x"], &["--keys", "\"x\"", "decimal"]),
    (&["replay", "file", "--compaction", "x"], &["--compaction", "\"x\"", "gear"]),
    // Numbers.
    (&["demo", "--seconds", "0"], &["--seconds", "1..=86400"]),
    (&["demo", "--keys", "0"], &["--keys", "1..="]),
    (&["demo", "--keys", "many"], &["--keys", "many"]),
    (&["generate", "--keys", "0"], &["--keys", "1..="]),
    (&["generate", "--ranges", "26"], &["--ranges", "0..=25"]),
    (&["bench", "fillseq", "--num", "0"], &["weir: --num is 0; choose 1 to 2^36"]),
    (&["bench", "fillseq", "--num", "x"], &["--num", "x"]),
    (&["bench", "fillseq", "--threads", "257"], &["weir: --threads is 257; choose 1 to 256"]),
    (&["bench", "fillseq", "--key-size", "7"], &["weir: --key-size is 7; choose 8 to 1024"]),
    (&["bench", "fillseq", "--key-size", "8", "--keys", "decimal"],
     &["weir: --key-size is 8; choose 16 to 1024"]),
    (&["bench", "fillseq", "--value-size", "17m"], &["weir: --value-size is 17825792; choose"]),
    (&["bench", "fillseq", "--value-size", "x"], &["--value-size", "\"x\" is no size"]),
    (&["bench", "fillseq", "--compressibility", "2"],
     &["weir: --compressibility is 2; choose 0 to 1"]),
    (&["bench", "fillseq", "--batch", "0"], &["weir: --batch is 0; choose 1 to 100000"]),
    (&["bench", "fillseq", "--batch", "1000", "--value-size", "2m"],
     &["weir: --batch is 1000; choose 1 to 511 for entries of 2097168 bytes"]),
    (&["bench", "fillseq", "--seconds", "0"], &["weir: --seconds is 0; choose a number above 0"]),
    (&["bench", "fillseq", "--seconds", "nan"], &["weir: --seconds is NaN; choose"]),
    (&["bench", "fillseq", "--cache", "99999999999g"], &["--cache", "does not fit 64 bits"]),
    (&["bench", "fillseq", "--cache", "1048577g"],
     &["weir: the memory of --cache and --write-buffer is 1125901249019904; choose a value from"]),
    (&["bench", "fillseq", "--write-buffer", "1"], &["weir: --write-buffer is 1; choose", "4096"]),
    (&["bench", "fillseq", "--write-buffer", "2g"],
     &["weir: --write-buffer is 2147483648; choose"]),
    (&["bench", "fillseq", "--write-buffer-entries", "0"],
     &["weir: --write-buffer-entries is 0; choose a value from 1"]),
    (&["bench", "fillseq", "--compaction", "tiered", "--odd-chunk", "upper"],
     &["weir: --odd-chunk is upper, which needs levels of one run", "choose leveled, or plain"]),
    (&["bench", "fillseq", "--bloom-bits", "1000"], &["weir: --bloom-bits is 1000; choose", "32"]),
    (&["bench", "fillseq", "--background-threads", "0"],
     &["weir: --background-threads is 0; choose a value from 1 to 64"]),
    (&["bench", "fillseq", "--immutables", "0"],
     &["weir: --immutables is 0; choose a value from 1 to 64"]),
    (&["bench", "fillseq", "--compaction", "tiered", "--runs-per-level", "0"],
     &["weir: --runs-per-level is 0; choose a value from 2 to 100"]),
    (&["bench", "fillseq", "--level-ratio", "1"],
     &["weir: --level-ratio is 1; choose a value from 2 to 100"]),
    (&["bench", "fillseq", "--l0-trigger", "0"], &["weir: --l0-trigger is 0; choose"]),
    (&["bench", "fillseq", "--base-level-bytes", "1"], &["weir: --base-level-bytes is 1; choose"]),
    (&["bench", "readrandom", "--reuse", "--dir", "store", "--immutables", "65"],
     &["weir: --immutables is 65; choose a value from 1 to 64"]),
    (&["replay", "file", "--write-buffer", "3"], &["weir: --write-buffer is 3; choose"]),
    (&["replay", "file", "--bloom-bits", "33"], &["weir: --bloom-bits is 33; choose", "32"]),
    (&["replay", "file", "--compaction", "tiered", "--runs-per-level", "101"],
     &["weir: --runs-per-level is 101; choose"]),
    (&["replay", "file", "--write-buffer-entries", "0"], &["weir: --write-buffer-entries is 0"]),
    (&["replay", "file", "--dir", "store", "--write-buffer", "1"], &["weir: --write-buffer is 1"]),
    (&["replay", "file", "--write-buffer", "-1"], &["-1"]),
    (&["replay", "file", "--bloom-bits", "many"], &["--bloom-bits", "many"]),
];

/// Goal: a wrong command line is refused with exit code 2 before anything is done, in the words of
/// the command line and not of the library. Method: the table above.
#[test]
fn wrong_command_lines() {
    let dir = temporary();
    for (args, parts) in CASES {
        let ran = weir(dir.path(), args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {}", ran.err);
        for part in parts {
            assert!(ran.err.contains(part), "{args:?}: {part:?} is not in {}", ran.err);
        }
        for word in LIBRARY {
            assert!(!ran.err.contains(word), "{args:?}: {word:?} is in {}", ran.err);
        }
    }
    assert_eq!(entries(dir.path()), 0, "something was made");
}

/// Goal: what depends on the disk is no wrong command line. Method: what is not there, or is
/// something else.
#[test]
fn what_is_not_there_is_an_error() {
    let dir = temporary();
    weir_with(dir.path(), &["shell", "--create", "store"], b"put a 1\n").ok();
    let cases: [&[&str]; 7] = [
        &["shell", "missing"],
        &["inspect", "missing"],
        &["verify", "store/ROOT"],
        &["replay", "missing"],
        &["replay", "store"],
        &["bench", "fillseq", "--dir", "store"],
        &["bench", "readrandom", "--reuse", "--dir", "store"],
    ];
    for args in cases {
        weir(dir.path(), args).fails(1, &[]);
    }
}

/// Goal: what `format` refuses can be answered with the options that it has.
#[test]
#[expect(clippy::disallowed_methods, reason = "a file that is not the engine's")]
fn format_speaks_of_its_options() {
    let dir = temporary();
    weir(dir.path(), &["format", "store"]).fails(2, &["--size"]);
    std::fs::write(dir.path().join("notes"), b"something that is no store").expect("a file");
    let ran = weir(dir.path(), &["format", "notes", "--size", "64m"]);
    ran.fails(1, &["--force"]);
    assert!(!ran.err.contains('`'), "{}", ran.err);
    weir(dir.path(), &["format", "notes", "--size", "64m", "--force"]).ok();
}
