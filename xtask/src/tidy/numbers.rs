//! The numbers of format pages and those of the code are the same: neither changes alone.
//!
//! A table on a page of `docs/format` with a column `constant` states values: each row's first cell
//! is the value of the constants that the row names, of the modules that are locked to the page
//! (`formats`). `NAME` is unique among them; `file::NAME` names one of several. The other way
//! round, whatever such a module numbers for the disk (tags, kinds, magic values, versions,
//! offsets) is named on a page that it is locked to. A number stands for one thing: in a table of
//! tags no value comes twice, reserved and retired ones too.

use std::collections::{BTreeMap, BTreeSet};

use super::{Violation, formats};
use crate::constants::{self, Constant, Value};
use crate::tree::Tree;

/// Heads of the columns whose numbers may repeat: sizes and the like, and places in several
/// records.
const REPEATING: [&str; 2] = ["value", "offset"];

/// A row of a page's table that names constants.
#[derive(Debug)]
struct Row<'a> {
    line: usize,
    /// The head of its first column.
    head: &'a str,
    /// Its first cell.
    value: &'a str,
    /// What stands in the column `constant`.
    constants: Vec<&'a str>,
}

/// Whether the constant of this name is a number on disk by its name: it must be on a page.
fn is_of_the_format(name: &str) -> bool {
    let begins = ["TAG_", "KIND_", "PART_", "FORM_", "COMPRESSION_"];
    let contains = ["MAGIC", "LATEST", "VERSION"];
    name.contains("::")
        || begins.iter().any(|part| name.starts_with(part))
        || contains.iter().any(|part| name.contains(part))
        || name.ends_with("_AT")
}

/// Compares every page with the modules that are locked to it.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let locks = formats::locks(tree);
    let paths: BTreeSet<&str> = locks.iter().map(|&(path, _)| path).collect();
    let modules: BTreeMap<&str, BTreeMap<String, Constant>> = paths
        .into_iter()
        .map(|path| (path, constants::of(tree.text(path).unwrap_or_default())))
        .collect();
    let mut named: BTreeSet<(&str, &str)> = BTreeSet::new();
    let pages: BTreeSet<&str> = locks.iter().map(|&(_, page)| page).collect();
    for page in pages {
        let text = tree.text(page).unwrap_or_default();
        let rows = rows(text);
        violations.extend(repeated(page, text));
        for (row, name) in rows.iter().flat_map(|row| row.constants.iter().map(move |&n| (row, n)))
        {
            let wrong = |what: String| Violation::new(page, row.line, what);
            let paths = locks.iter().filter(|lock| lock.1 == page).map(|&(path, _)| path);
            match find(paths, &modules, name).as_slice() {
                [] => violations.push(wrong(format!(
                    "no module that is locked to this page has a constant `{name}`"
                ))),
                [(path, constant)] => {
                    named.insert((path, plain(name)));
                    violations.extend(differs(row, name, path, constant).map(wrong));
                }
                [_, _, ..] => violations.push(wrong(format!(
                    "several modules have a constant `{name}`: write `file::{name}`"
                ))),
            }
        }
    }
    for (path, constants) in &modules {
        for (name, constant) in constants {
            if is_of_the_format(name) && !named.contains(&(*path, name.as_str())) {
                violations.push(Violation::new(
                    path,
                    constant.line,
                    format!("`{name}` is on none of the format pages that this file is locked to"),
                ));
            }
        }
    }
    violations
}

/// What is wrong with a row that names `constant` of the file at `path`.
fn differs(row: &Row<'_>, name: &str, path: &str, constant: &Constant) -> Option<String> {
    let Some(value) = &constant.value else {
        return Some(format!("the value of `{name}` in {path} cannot be read; write it plainly"));
    };
    (parse(row.value).as_ref() != Some(value)).then(|| {
        let value = match value {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => format!("`{text}`"),
        };
        format!("the page says {}, `{name}` in {path}:{} is {value}", row.value, constant.line)
    })
}

/// `name` without the file before it; `Enum::Variant` stays whole.
fn plain(name: &str) -> &str {
    let is_file = |part: &str| part.starts_with(|c: char| c.is_lowercase());
    name.split_once("::").filter(|(head, _)| is_file(head)).map_or(name, |(_, rest)| rest)
}

/// The constants that `name` may mean.
fn find<'a>(
    paths: impl Iterator<Item = &'a str>,
    modules: &'a BTreeMap<&str, BTreeMap<String, Constant>>,
    name: &str,
) -> Vec<(&'a str, &'a Constant)> {
    let file = name.strip_suffix(plain(name)).map(|file| file.trim_end_matches(':'));
    paths
        .filter(|path| file.is_none_or(|file| file.is_empty() || stem(path) == file))
        .filter_map(|path| Some((path, modules[path].get(plain(name))?)))
        .collect()
}

/// The module's last name: the file's, or the folder's of a `mod.rs`.
fn stem(path: &str) -> &str {
    let path = path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
    path.rsplit('/').next().unwrap_or(path)
}

/// A cell as a value: a number (`4,096`, `0x9d`, `2^56 - 1`, `1 MiB`) or a text in backticks.
fn parse(cell: &str) -> Option<Value> {
    if let Some(text) = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')) {
        return Some(Value::Text(text.to_owned()));
    }
    let (cell, less) = cell.strip_suffix(" - 1").map_or((cell, 0), |cell| (cell, 1));
    let units = [(" KiB", 10), (" MiB", 20), (" GiB", 30)];
    let unit = units.iter().find_map(|&(unit, shift)| Some((cell.strip_suffix(unit)?, shift)));
    let (cell, shift) = unit.unwrap_or((cell, 0));
    let number = match cell.strip_prefix("2^") {
        Some(power) => 1i128.checked_shl(power.parse().ok()?)?,
        None => constants::number(&cell.replace(',', ""))?,
    };
    Some(Value::Number((number << shift) - less))
}

/// The cells of a table's line; `None` if the line is none.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// The rows of all tables with a column `constant`.
fn rows(text: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    // The head of the first column, and which column names constants.
    let mut table: Option<(&str, usize)> = None;
    let mut inside = false;
    for (i, line) in text.lines().enumerate() {
        let Some(cells) = cells(line) else {
            (table, inside) = (None, false);
            continue;
        };
        if !inside {
            let column = cells.iter().position(|&cell| cell == "constant");
            table = column.map(|column| (cells[0], column));
            inside = true;
        } else if let Some((head, column)) = table
            && !cells[0].starts_with("---")
        {
            let names = cells.get(column).map_or("", |cell| cell).split(", ");
            let constants = names.map(|name| name.trim_matches('`')).filter(|n| !n.is_empty());
            let constants = constants.collect();
            rows.push(Row { line: i + 1, head, value: cells[0], constants });
        }
    }
    rows
}

/// Values that stand for two things in one table.
fn repeated(page: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut seen: Vec<Value> = Vec::new();
    let mut line_before = 0;
    for row in rows(text) {
        if row.line != line_before + 1 {
            seen.clear();
        }
        line_before = row.line;
        let Some(value) = parse(row.value).filter(|_| !REPEATING.contains(&row.head)) else {
            continue;
        };
        if seen.contains(&value) {
            let what = format!("{} {} stands for two things", row.head, row.value);
            violations.push(Violation::new(page, row.line, what));
        }
        seen.push(value);
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    const LOCK: &str = "// FORMAT: docs/format/log.md sha=0\n";
    const PAGE: &str = "| tag | field | constant |\n|---|---|---|\n\
                        | 2 | id | `TAG_ID` |\n| 4 | reserved | |\n";

    fn complaints(page: &str, code: &str) -> Vec<String> {
        let code = format!("{LOCK}{code}");
        let tree = Tree::of(&[("docs/format/log.md", page), ("crates/weir/src/log/mod.rs", &code)]);
        said(&check(&tree))
    }

    /// Goal: a number that changes on one side alone is named, whichever side it is.
    #[test]
    fn neither_side_changes_alone() {
        assert_eq!(complaints(PAGE, "const TAG_ID: u64 = 2;"), [""; 0]);
        let code = complaints(PAGE, "const TAG_ID: u64 = 6;");
        assert_eq!(code.len(), 1);
        assert!(code[0].contains("log.md:3: the page says 2, `TAG_ID`"), "{code:?}");
        let page = complaints(&PAGE.replace("| 2 |", "| 8 |"), "const TAG_ID: u64 = 2;");
        assert!(page[0].contains("the page says 8"), "{page:?}");
    }

    /// Goal: a number that one side has and the other does not is named.
    #[test]
    fn nothing_is_on_one_side_only() {
        let gone = complaints(PAGE, "");
        assert!(gone[0].contains("has a constant `TAG_ID`"), "{gone:?}");
        let new = complaints(PAGE, "const TAG_ID: u64 = 2;\nconst TAG_NEW: u64 = 6;");
        assert!(new[0].contains("log/mod.rs:3: `TAG_NEW` is on none"), "{new:?}");
        let variant = complaints(PAGE, "const TAG_ID: u64 = 2;\nenum Kind { Put = 1 }");
        assert!(variant[0].contains("`Kind::Put` is on none"), "{variant:?}");
        let sizes = complaints(PAGE, "const TAG_ID: u64 = 2;\nconst BUFFER_BYTES: usize = 9;");
        assert_eq!(sizes, [""; 0], "what is not on disk need not be on the page");
    }

    /// Goal: a reserved number is not given out again, and a value may repeat where it is a size.
    #[test]
    fn numbers_stand_for_one_thing() {
        let taken = format!("{PAGE}| 4 | new | `TAG_NEW` |\n");
        let code = "const TAG_ID: u64 = 2;\nconst TAG_NEW: u64 = 4;";
        let said = complaints(&taken, code);
        assert!(said[0].contains("tag 4 stands for two things"), "{said:?}");
        let sizes = "| value | constant |\n|---|---|\n| 4 | `A` |\n| 4 | `B` |\n";
        assert_eq!(complaints(sizes, "const A: u8 = 4; const B: u8 = 4;"), [""; 0]);
    }

    /// Goal: a name that two locked files have is asked for with its file.
    #[test]
    fn names_are_unique_or_say_where() {
        let tree = |name: &str| {
            let page = format!("| value | constant |\n|---|---|\n| 24 | `{name}` |\n");
            let files = [("a.rs", 24), ("b.rs", 8)]
                .map(|(path, n)| (path, format!("{LOCK}const HEADER_BYTES: usize = {n};\n")));
            Tree::of(&[
                ("docs/format/log.md", &page),
                (files[0].0, &files[0].1),
                (files[1].0, &files[1].1),
            ])
        };
        let both = said(&check(&tree("HEADER_BYTES")));
        assert!(both[0].contains("several modules"), "{both:?}");
        assert_eq!(said(&check(&tree("a::HEADER_BYTES"))), [""; 0]);
        assert!(said(&check(&tree("b::HEADER_BYTES")))[0].contains("is 8"));
    }

    /// Goal: the ways in which pages write values are read.
    #[test]
    fn cells_are_values() {
        let number = |n| Some(Value::Number(n));
        assert_eq!(parse("65,535"), number(65_535));
        assert_eq!(parse("0x9d"), number(0x9d));
        assert_eq!(parse("2^56 - 1"), number((1 << 56) - 1));
        assert_eq!(parse("1 MiB"), number(1 << 20));
        assert_eq!(parse("`WEIRROOT`"), Some(Value::Text("WEIRROOT".to_owned())));
        assert_eq!(parse("26 to 34"), None);
    }
}
