//! `weir shell`, piped.

use crate::{Ran, temporary, weir, weir_with};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Pipes `input` into a shell at a store that is made if it is not there.
fn shell(dir: &Path, input: &[u8]) -> Ran {
    weir_with(dir, &["shell", "--create", "store"], input)
}

/// Every command of the help.
const SESSION: &[u8] = br#"
# people
put a 1
put b "two words"
put "" empty-key
put c ""
put -s "d\x00\xff" "quote \" and \\ and \n end"
get a
get b
get ""
get c
get nothing
scan
scan b
scan a c
scan -r -n 2
scan -k -p d
count
count b d
snapshot
put a 10
del b
get a @1
get b @1
get b
count @1
count
snapshots
release 1
keyspaces
create users
put a user-a
get a
keyspaces
use default
get a
drop users
keyspaces
flush
compact
sync
get a
exit
get unreachable
"#;

/// What they answer, with the sequence numbers left out.
const ANSWERS: &str = r#""1"
"two words"
"empty-key"
""
(none)
"" "empty-key"
"a" "1"
"b" "two words"
"c" ""
"d\x00\xff" "quote \" and \\ and \n end"
"b" "two words"
"c" ""
"d\x00\xff" "quote \" and \\ and \n end"
"a" "1"
"b" "two words"
"d\x00\xff" "quote \" and \\ and \n end"
"c" ""
"d\x00\xff"
5
2
@1 at sequence SEQUENCE
"1"
"two words"
(none)
5
4
@1 at sequence SEQUENCE
"default" (here)
"user-a"
"default"
"users" (here)
"10"
"default" (here)
"10"
"#;

/// Goal: every command answers as the help says. Method: a session as a snapshot.
#[test]
fn a_session() {
    let dir = temporary();
    let ran = shell(dir.path(), SESSION);
    let out = ran.ok();
    let masked: String = out
        .lines()
        .map(|line| match line.split_once("at sequence ") {
            Some((head, _)) => format!("{head}at sequence SEQUENCE\n"),
            None => format!("{line}\n"),
        })
        .collect();
    assert_eq!(masked, ANSWERS);
    // What was written is there in the next session.
    assert_eq!(shell(dir.path(), b"get a\ncount\n").ok(), "\"10\"\n4\n");
}

/// Goal: a batch is all or nothing. Method: one that ends, one that is forgotten, one with a wrong
/// line, one that the input does not end.
#[test]
fn batches() {
    let dir = temporary();
    assert_eq!(
        shell(dir.path(), b"batch\nput a 1\nput b 2\ndel a\nend\nscan\n").ok(),
        "3 writes applied\n\"b\" \"2\"\n"
    );
    assert_eq!(shell(dir.path(), b"batch\nput x 1\nabort\ncount\n").ok(), "1 write forgotten\n1\n");
    let ran = shell(dir.path(), b"batch\nput x 1\nput y\nput z 1\nend\ncount\n");
    assert_eq!((ran.code, ran.out.as_str()), (1, "1\n"), "{}", ran.err);
    assert!(
        ran.err.contains("line 3: ") && ran.err.contains("line 5: the batch has 1 refused line;")
    );
    let ran = shell(dir.path(), b"batch\nput x 1\n");
    ran.fails(1, &["line 2", "no end", "not applied (1 write)"]);
    let ran = shell(dir.path(), b"batch\nget x\nabort\n");
    ran.fails(1, &["line 2", "does not go into a batch"]);
    assert_eq!(shell(dir.path(), b"count\n").ok(), "1\n");
    // Across keyspaces.
    let input = b"create one\nbatch\nput k 1\nuse default\nput k 2\nend\nget k\nuse one\nget k\n";
    assert_eq!(shell(dir.path(), input).ok(), "2 writes applied\n\"2\"\n\"1\"\n");
}

/// Goal: a wrong line is reported with its number, the others still run, the exit code says so.
/// Method: each wrong line between two good ones.
#[test]
fn wrong_lines() {
    let dir = temporary();
    let wrong: [(&[u8], &str); 26] = [
        (b"frobnicate", "is no command"),
        (b"\"put\" a b", "is no command"),
        (b"\xff\xfe", "is no command"),
        (b"put a", "a word is missing; write put"),
        (b"put a b c", "one word too many"),
        (b"put \"a b", "a quote is not closed"),
        (b"put a\\", "ends in a backslash"),
        (b"put a \\x4", "two hexadecimal digits"),
        (b"get", "a word is missing; write get"),
        (b"get a @7", "there is no snapshot @7"),
        (b"get a @x", "is no snapshot number"),
        (b"release", "a word is missing"),
        (b"release x", "is no number"),
        (b"release 9", "there is no snapshot @9"),
        (b"scan -n", "a word is missing"),
        (b"scan -n x", "is no number"),
        (b"scan a b c", "one word too many"),
        (b"scan -p a b", "a prefix or a range"),
        (b"put -x a b", "-x is no option here; write put"),
        (b"get -a", "is no option here"),
        (b"del -r a", "is no option here"),
        (b"count -v", "is no option here"),
        (b"end", "no batch was begun"),
        (b"use nowhere", "nowhere"),
        (b"create \"\\xff\"", "is no UTF-8"),
        (b"exit now", "one word too many"),
    ];
    for (line, part) in wrong {
        let input = [b"put before 1\n", line, b"\nget before\n"].concat();
        let ran = shell(dir.path(), &input);
        ran.fails(1, &["line 2: ", part]);
        assert_eq!(ran.out, "\"1\"\n", "{part}");
    }
    // Negative numbers are keys, and so is what is quoted.
    let ran = shell(dir.path(), b"put -5 a\nput \"-x\" -y\nget -5\nget \"-x\"\n");
    assert_eq!(ran.ok(), "\"a\"\n\"-y\"\n");
}

/// Goal: what is bad for a store's interface is refused by it, not by a crash. Method: keys at and
/// over the limit, a range the wrong way round, a store that is opened for reading.
#[test]
fn limits() {
    let dir = temporary();
    let largest = [b"put ", [b'k'; 65_535].as_slice(), b" v\ncount\n"].concat();
    assert_eq!(shell(dir.path(), &largest).ok(), "1\n");
    let larger = [b"put ", [b'k'; 65_536].as_slice(), b" v\n"].concat();
    shell(dir.path(), &larger).fails(1, &["line 1: ", "65"]);
    assert_eq!(shell(dir.path(), b"scan z a\ncount z a\nscan -r z a\n").ok(), "0\n");
    let ran = weir_with(dir.path(), &["shell", "--read-only", "store"], b"count\nput a b\n");
    ran.fails(1, &["line 2: ", "read"]);
    assert_eq!(ran.out, "1\n");
}

/// Goal: a program at the other end of the pipes gets each answer before it asks again. Method: a
/// question, its answer, and only then the next.
#[test]
fn answers_do_not_wait_for_the_end() {
    let dir = temporary();
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["shell", "--create", "store"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut ask = child.stdin.take().expect("stdin is piped");
    let mut answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
    for i in 0..10 {
        write!(ask, "put k{i} v{i}\nget k{i}\n").expect("the shell reads");
        let mut answer = String::new();
        answers.read_line(&mut answer).expect("the shell answers");
        assert_eq!(answer, format!("\"v{i}\"\n"));
    }
    // Meanwhile the store is locked, and the error says by what and what to do.
    for args in [&["shell", "store"][..], &["verify", "store"], &["inspect", "store"]] {
        weir(dir.path(), args).fails(1, &["locked", "store"]);
    }
    drop(ask);
    assert!(child.wait().expect("the program ends").success());
    assert_eq!(shell(dir.path(), b"count\n").ok(), "10\n");
}

/// Goal: the statistics name what they count. Method: after a few writes, in both forms.
#[test]
fn statistics() {
    let dir = temporary();
    let ran = shell(dir.path(), b"put a 1\nget a\nflush\nstats\n");
    for part in ["1 puts", "1 gets", "hit ratio", "written by", "compaction", "level"] {
        assert!(ran.ok().contains(part), "{part:?} is not in {}", ran.out);
    }
    let ran = shell(dir.path(), b"stats -p\n");
    assert!(ran.ok().contains("# TYPE weir_"), "{}", ran.out);
}

/// Goal: a store that refuses a million lines says so once, and how many they were.
#[test]
fn the_same_words_are_said_once() {
    let dir = temporary();
    assert_eq!(shell(dir.path(), b"put a 1\n").ok(), "");
    let input = b"put b 1\nput c 1\nput d 1\nget a\nput e 1\nfrob\nput f 1\n";
    let ran = weir_with(dir.path(), &["shell", "--read-only", "store"], input);
    assert_eq!((ran.code, ran.out.as_str()), (1, "\"1\"\n"));
    let said: Vec<&str> = ran.err.lines().collect();
    let begins = [
        "weir: line 1: read only: ",
        "weir: line 5: the same, as in 3 more lines up to here",
        "weir: line 6: ",
        "weir: line 7: read only: ",
    ];
    assert_eq!(said.len(), begins.len(), "{}", ran.err);
    for (line, begin) in said.iter().zip(begins) {
        assert!(line.starts_with(begin), "{}", ran.err);
    }
}
