//! Stores that are missing, foreign, damaged or whole: `inspect`, `verify` and opening.

use crate::{temporary, weir, weir_with};
use std::path::{Path, PathBuf};

/// A store of two keyspaces with tables and a log.
fn make_store(dir: &Path) {
    let mut input = String::new();
    for i in 0..500 {
        input.push_str(&format!("put key{i:04} value-of-{i}\n"));
    }
    input.push_str("flush\ncreate users\nput ada 1\nflush\nput grace 2\n");
    weir_with(dir, &["shell", "--create", "store"], input.as_bytes()).ok();
}

/// Every file below `dir`, sorted.
#[expect(clippy::disallowed_methods, reason = "sorted before use")]
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("the directory can be listed") {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[expect(clippy::disallowed_methods, reason = "the test looks at files as a user would")]
fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("the file can be read")
}

#[expect(clippy::disallowed_methods, reason = "the test damages files as a disk would")]
fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("the file can be written");
}

/// Goal: what is not a store is left alone, and the error says what to do. Method: every command at
/// a missing directory, an empty one, one with other files, and a file.
#[test]
fn no_store() {
    let dir = temporary();
    std::fs::create_dir(dir.path().join("empty")).expect("a directory can be made");
    std::fs::create_dir(dir.path().join("other")).expect("a directory can be made");
    write(&dir.path().join("other/letter.txt"), b"dear reader");
    write(&dir.path().join("file"), b"not a directory");
    for command in ["shell", "inspect", "verify", "repair", "options"] {
        weir(dir.path(), &[command, "missing"]).fails(1, &["missing", "no store"]);
        weir(dir.path(), &[command, "empty"]).fails(1, &["empty"]);
        weir(dir.path(), &[command, "other"]).fails(1, &["other"]);
        weir(dir.path(), &[command, "file"]).fails(1, &["file"]);
    }
    for command in ["shell", "inspect", "verify", "repair", "options"] {
        let ran = weir(dir.path(), &[command, "other"]);
        assert!(!ran.err.contains("new store"), "{command} makes none: {}", ran.err);
    }
    weir(dir.path(), &["shell", "empty"]).fails(1, &["--create"]);
    weir(dir.path(), &["shell", "missing"]).fails(1, &["`weir shell --create missing`"]);
    // Why it cannot be made, not that it is missing.
    weir(dir.path(), &["shell", "--create", "file/store"])
        .fails(1, &["file/store", "ot a directory"]);
    let commands = [
        &["shell", "--create", "other"][..],
        &["demo", "--dir", "other"],
        &["bench", "fillseq", "--dir", "other"],
    ];
    for args in commands {
        weir(dir.path(), args).fails(1, &["other"]);
    }
    assert!(!dir.path().join("missing").exists());
    assert_eq!(files(&dir.path().join("empty")), Vec::<PathBuf>::new());
    assert_eq!(files(&dir.path().join("other")), [dir.path().join("other/letter.txt")]);
    assert_eq!(read(&dir.path().join("other/letter.txt")), b"dear reader");
}

/// Goal: a whole store is described and verified without a change. Method: its files before and
/// after.
#[test]
fn a_whole_store() {
    let dir = temporary();
    make_store(dir.path());
    let store = dir.path().join("store");
    let contents = || files(&store).into_iter().map(|f| (read(&f), f)).collect::<Vec<_>>();
    let before = contents();
    let verified = weir(dir.path(), &["verify", "store"]);
    assert!(verified.ok().contains("no damage"), "{}", verified.out);
    for part in ["501 entries", "log files"] {
        assert!(verified.out.contains(part), "{part:?} is not in {}", verified.out);
    }
    let text = weir(dir.path(), &["inspect", "store"]);
    for part in ["default", "users", "level", "tables"] {
        assert!(text.ok().contains(part), "{part:?} is not in {}", text.out);
    }
    let json = weir(dir.path(), &["inspect", "--json", "store"]);
    let value: serde_json::Value = serde_json::from_str(json.ok()).expect("the output is JSON");
    assert_eq!(value["keyspaces"].as_array().map(Vec::len), Some(2), "{value}");
    weir_with(dir.path(), &["shell", "--read-only", "store"], b"put a b\n")
        .fails(1, &["line 1", "without --read-only"]);
    assert_eq!(contents(), before, "reading changed the store");
}

/// Goal: damage is found, named, and told from other failures by the exit code. Method: one byte in
/// the middle of each table changed.
#[test]
fn a_damaged_store() {
    let dir = temporary();
    make_store(dir.path());
    let mut damaged = 0;
    for file in files(&dir.path().join("store")) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.ends_with(".tbl") {
            continue;
        }
        damaged += 1;
        let whole = read(&file);
        let mut bytes = whole.clone();
        bytes[whole.len() / 2] ^= 0x10;
        write(&file, &bytes);
        weir(dir.path(), &["verify", "store"]).fails(3, &[&name, "corruption"]);
        write(&file, &whole);
        weir(dir.path(), &["verify", "store"]).ok();
    }
    assert!(damaged >= 2, "no table was found among {:?}", files(&dir.path().join("store")));
}

/// Goal: what an error cut short is no answer, and a store that damage keeps from opening says how
/// to go on, which `verify` cannot; all commands have one exit code for it. Method: a count over a
/// damaged and a missing table; then every command at a store with a damaged root.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test moves files as a user would")]
fn damage_and_what_to_do() {
    let dir = temporary();
    make_store(dir.path());
    let store = dir.path().join("store");
    let table = files(&store).into_iter().find(|f| f.extension().is_some_and(|e| e == "tbl"));
    let table = table.expect("the store has a table");
    let whole = read(&table);
    let mut bytes = whole.clone();
    bytes[10] ^= 1;
    write(&table, &bytes);
    let counted = weir_with(dir.path(), &["shell", "--read-only", "store"], b"count\n");
    counted.fails(3, &["line 1", "corruption", "`weir repair store`"]);
    assert_eq!(counted.out, "");
    // The worst of several lines counts.
    let lines = weir_with(dir.path(), &["shell", "store"], b"count\nnonsense\n");
    assert_eq!(lines.code, 3, "{}", lines.err);
    let aside = dir.path().join("aside");
    std::fs::rename(&table, &aside).expect("a file can be moved");
    let counted = weir_with(dir.path(), &["shell", "store"], b"count\n");
    counted.fails(3, &["line 1", "not found", "`weir repair store`"]);
    assert_eq!(counted.err.matches("repair").count(), 1, "{}", counted.err);
    std::fs::rename(&aside, &table).expect("a file can be moved");
    write(&table, &whole);
    let root = store.join("ROOT");
    let mut bytes = read(&root);
    bytes[20] ^= 1;
    write(&root, &bytes);
    for command in ["shell", "inspect", "verify"] {
        let ran = weir(dir.path(), &[command, "store"]);
        ran.fails(3, &["ROOT", "cannot be opened", "`weir repair store`"]);
        assert!(!ran.err.contains("weir verify"), "{}", ran.err);
    }
    let bench = &["bench", "readrandom", "--num", "10", "--reuse", "--dir", "store"];
    weir(dir.path(), bench).fails(3, &["ROOT"]);
    let repaired = weir(dir.path(), &["repair", "store"]);
    assert!(repaired.ok().contains("repaired without loss"), "{}", repaired.out);
    assert_eq!(weir_with(dir.path(), &["shell", "store"], b"count\n").ok(), "500\n");
}

/// Goal: who repairs a store in a file whose version log is lost learns that nothing was changed
/// and what can be done; that is done, and is a loss. Method: both halves, by the heads of logs in
/// the file.
#[test]
fn a_lost_version_log_has_a_way_out() {
    let dir = temporary();
    weir(dir.path(), &["format", "store", "--size", "16m"]).ok();
    for _ in 0..2 {
        weir_with(dir.path(), &["shell", "store"], b"put a 1\nflush\n").ok();
    }
    let store = dir.path().join("store");
    let mut bytes = read(&store);
    let heads = bytes.chunks(4096).enumerate().filter(|(_, page)| page.starts_with(b"WEIRCELL"));
    let heads: Vec<usize> = heads.map(|(page, _)| page * 4096).take(2).collect();
    heads.iter().for_each(|at| bytes[at + 4096..at + 8192].fill(0xff));
    write(&store, &bytes);
    let refused = weir(dir.path(), &["repair", "store"]);
    refused.fails(3, &["nothing was changed", "`weir repair --from-trailers`"]);
    assert_eq!(read(&store), bytes);
    let elsewhere = weir(dir.path(), &["repair", "--from-trailers", "--into", "new", "store"]);
    assert_eq!(elsewhere.code, 3, "{}", elsewhere.err);
    assert!(elsewhere.out.contains("the damaged one is as it was"), "{}", elsewhere.out);
    assert_eq!(weir_with(dir.path(), &["shell", "new"], b"get a\n").ok(), "\"1\"\n");
    assert_eq!(read(&store), bytes);
    weir(dir.path(), &["format", "--unopened", "file", "--size", "16m"]).ok();
    let formatted = weir(dir.path(), &["repair", "--from-trailers", "--into", "file", "store"]);
    assert_eq!(formatted.code, 3, "{}", formatted.err);
    assert_eq!(weir_with(dir.path(), &["shell", "file"], b"get a\n").ok(), "\"1\"\n");
    let again = weir(dir.path(), &["repair", "--from-trailers", "--into", "new", "store"]);
    again.fails(1, &["there is a store in", "name a place where nothing is"]);
    // Nobody reads its report.
    let mut repair = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    repair.args(["repair", "--from-trailers", "store"]).current_dir(dir.path());
    let mut repair = repair.stdout(std::process::Stdio::piped()).spawn().expect("started");
    drop(repair.stdout.take());
    assert_eq!(repair.wait().expect("it ends").code(), Some(3));
    assert_eq!(weir_with(dir.path(), &["shell", "store"], b"get a\n").ok(), "\"1\"\n");
}

/// Goal: the space of a store in a directory is told with its logs, in both forms.
#[test]
fn the_space_of_a_directory_has_its_logs() {
    let dir = temporary();
    make_store(dir.path());
    let told = weir(dir.path(), &["df", "store"]).ok().to_owned();
    let all = ["level 0", "write-ahead log: ", "version log: 1 file, ", "the file system says"];
    assert!(all.iter().all(|part| told.contains(part)), "{told}");
    let json = weir(dir.path(), &["df", "--json", "store"]);
    let all: serde_json::Value = serde_json::from_str(json.ok()).expect("JSON");
    assert!(all["logs"]["bytes"].as_u64() > Some(0), "{all}");
    assert_eq!(all["lists"]["tables"].as_u64(), Some(0), "{all}");
}

/// Goal: a table that cannot be read is not called damaged, for its bytes may be sound; one that is
/// not there is. Method: tables in whose place are a link to itself, and one without permissions;
/// then one of two is missing.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test moves files as a user would")]
fn a_table_that_cannot_be_read() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = temporary();
    make_store(dir.path());
    let tables = files(&dir.path().join("store"));
    let tables = tables.iter().filter(|f| f.extension().is_some_and(|e| e == "tbl"));
    let tables: Vec<_> = tables.collect();
    let table = tables[0];
    let name = table.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let aside = dir.path().join("aside");
    std::fs::rename(table, &aside).expect("a file can be moved");
    symlink(table, table).expect("a link can be made");
    let ran = weir(dir.path(), &["verify", "store"]);
    ran.fails(1, &["i/o error", &name, "not everything could be read"]);
    assert!(!ran.out.contains("damage:") && !ran.err.contains("repair"), "{}{}", ran.out, ran.err);

    // Beside damage it is told, and the damage counts.
    let other = tables[1];
    let whole = read(other);
    write(other, &whole[..whole.len() - 1]);
    let ran = weir(dir.path(), &["verify", "store"]);
    ran.fails(3, &["1 damaged structure in", "corruption", "weir repair store"]);
    assert!(ran.out.contains("\nnot read: i/o error"), "{}", ran.out);
    assert!(ran.out.contains("found 0 tables sound"), "{}", ran.out);
    write(other, &whole);

    std::fs::remove_file(table).expect("a file can be removed");
    let ran = weir(dir.path(), &["verify", "store"]);
    ran.fails(3, &["1 damaged structure in", "not found", &name]);
    assert!(ran.out.contains("found 1 table sound"), "{}", ran.out);
    std::fs::rename(&aside, table).expect("a file can be moved");
    weir(dir.path(), &["verify", "store"]).ok();

    // Nothing is forbidden to root.
    let forbid = |path: &Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("permissions can be changed");
    };
    forbid(table, 0);
    let ran = weir(dir.path(), &["verify", "store"]);
    if ran.code != 0 {
        ran.fails(1, &["ermission denied", &name, "chmod"]);
    }
    forbid(table, 0o600);
    let store = dir.path().join("store");
    forbid(&store, 0);
    let commands = [
        &["verify"][..],
        &["inspect"],
        &["repair"],
        &["shell"],
        &["bench", "fillseq", "--num", "1", "--dir"],
        &["bench", "fillseq", "--num", "1", "--reuse", "--dir"],
        &["demo", "--seconds", "1", "--keys", "1", "--dir"],
    ];
    // Of root's bench and demo the store would be made use of.
    let root = weir(dir.path(), &["inspect", "store"]).code == 0;
    for command in commands.into_iter().filter(|_| !root) {
        let ran = weir(dir.path(), &[command, &["store"]].concat());
        ran.fails(1, &["ermission denied", "store", "chmod"]);
    }
    forbid(&store, 0o700);
}

/// Goal: the options of a store are shown, and those of one keyspace changed and kept; what does
/// not fit changes nothing, and says what to do.
#[test]
fn options_are_shown_and_set() {
    let dir = temporary();
    make_store(dir.path());
    let shown = weir(dir.path(), &["options", "store"]).ok().to_owned();
    assert_eq!(shown.lines().count(), 2, "{}", shown);
    assert!(shown.contains("\"default\": leveled"), "{}", shown);
    let set = ["options", "store", "--keyspace", "users", "--compaction", "tiered", "--wait"];
    let ran = weir(dir.path(), &set).ok().to_owned();
    assert!(ran.starts_with("set: --compaction tiered"), "{}", ran);
    assert!(weir(dir.path(), &set).ok().starts_with("nothing to change"));
    let shown = weir(dir.path(), &["options", "store"]).ok().to_owned();
    assert!(shown.contains("\"users\": tiered"), "{}", shown);
    assert!(shown.contains("\"default\": leveled"), "{}", shown);
    let wrong = ["options", "store", "--keyspace", "users", "--level-ratio", "4"];
    weir(dir.path(), &wrong).fails(2, &["--level-ratio", "tiered", "--compaction"]);
    let nobody = ["options", "store", "--keyspace", "nobody", "--bloom-bits", "9"];
    weir(dir.path(), &nobody).fails(1, &["nobody", "users"]);
    weir(dir.path(), &nobody[..4]).fails(1, &["nobody", "users"]);
    let of_users = weir(dir.path(), &["options", "store", "--keyspace", "users"]).ok().to_owned();
    assert!(of_users.starts_with("\"users\": tiered") && of_users.lines().count() == 1);
    assert_eq!(weir(dir.path(), &["options", "store"]).ok(), shown);
}

/// Goal: a store is removed when that is confirmed, and not before; what is none stays.
#[test]
fn a_store_is_removed() {
    let dir = temporary();
    make_store(dir.path());
    let before = files(dir.path());
    weir(dir.path(), &["destroy", "store"]).fails(2, &["store", "--yes"]);
    weir(dir.path(), &["destroy", "missing", "--yes"]).fails(1, &["missing", "path"]);
    assert_eq!(files(dir.path()), before);
    weir(dir.path(), &["destroy", "store", "--yes"]).ok();
    assert!(files(dir.path()).is_empty());
    weir(dir.path(), &["format", "file", "--size", "64m"]).ok();
    weir(dir.path(), &["destroy", "file", "--yes"]).ok();
    weir(dir.path(), &["inspect", "file"]).fails(1, &["no store"]);
    weir(dir.path(), &["format", "file"]).ok();
    write(&dir.path().join("letter"), b"dear reader");
    weir(dir.path(), &["destroy", "letter", "--yes"]).fails(1, &["letter"]);
    assert_eq!(read(&dir.path().join("letter")), b"dear reader");
}

/// Goal: who looks at a file that was cut off behind all that is in use learns that, and what makes
/// it whole; who repairs it learns what was done; and nobody is sent back and forth where a file is
/// no store at all.
#[test]
fn a_file_that_was_cut_off_is_told() {
    let dir = temporary();
    weir(dir.path(), &["format", "store", "--size", "16m"]).ok();
    weir_with(dir.path(), &["shell", "store"], b"put a 1\nflush\n").ok();
    let store = dir.path().join("store");
    let mut bytes = read(&store);
    bytes.truncate(bytes.len() - 4096);
    write(&store, &bytes);
    let verified = weir(dir.path(), &["verify", "store"]);
    assert!(verified.out.contains("cut off: the file lacks 4.0 KiB"), "{}", verified.out);
    verified.fails(3, &["was cut off", "weir repair"]);
    assert!(weir(dir.path(), &["df", "store"]).ok().contains("was cut off"));
    let repaired = weir(dir.path(), &["repair", "store"]);
    let told = repaired.ok();
    assert!(told.contains("lacked 4096 bytes") && told.contains("without loss"), "{told}");
    assert!(weir(dir.path(), &["verify", "store"]).ok().contains("no damage"));
    write(&dir.path().join("letter"), &[7; 1 << 20]);
    let refused = weir(dir.path(), &["repair", "letter"]);
    assert!(!refused.err.contains("weir repair"), "{}", refused.err);
    refused.fails(1, &["holds no store", "weir format"]);
    weir(dir.path(), &["bench", "fillseq", "--dir", "letter"]).fails(1, &["--slots"]);
}
