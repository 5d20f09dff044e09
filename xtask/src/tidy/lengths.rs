//! Lengths: a file has at most 800 lines, a line at most 100 columns.
//!
//! Known sinners stand in `xtask/tidy.allow` as `PATH lines=N` or `PATH columns=N` with the length
//! that they have. The list may only shrink: an entry that is larger than the truth fails, and so
//! does one entry more than [`ALLOWED_MAX`]. Functions are clippy's (`too_many_lines`).

use std::collections::BTreeMap;

use super::Violation;
use crate::list;
use crate::tree::Tree;

const ALLOW: &str = "xtask/tidy.allow";
/// Entries that the allow list may have. Lower it whenever one goes; it never grows.
const ALLOWED_MAX: usize = 0;
const LINES_MAX: usize = 800;
const COLUMNS_MAX: usize = 100;

/// Checks every Rust file.
pub fn check(tree: &Tree) -> Vec<Violation> {
    check_with(tree, ALLOWED_MAX)
}

fn check_with(tree: &Tree, allowed_max: usize) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut allowed = BTreeMap::new();
    for entry in list::entries(tree.text(ALLOW).unwrap_or_default()) {
        match entry.words.as_slice() {
            [path, limit] => {
                allowed.insert((*path, *limit), entry.line);
            }
            _ => violations.push(Violation::new(ALLOW, entry.line, "an entry is `PATH lines=N`")),
        }
    }
    if allowed.len() > allowed_max {
        let what = format!("{} entries, at most {allowed_max}: shorten the file", allowed.len());
        violations.push(Violation::new(ALLOW, 0, what));
    }
    for (path, text) in tree.files_ending(".rs") {
        let lines = text.lines().count();
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let excused = |limit: String| allowed.contains_key(&(path, limit.as_str()));
        if lines > LINES_MAX && !excused(format!("lines={lines}")) {
            let what = format!("{lines} lines, at most {LINES_MAX}: split the file");
            violations.push(Violation::new(path, 0, what));
        }
        if widest > COLUMNS_MAX && !excused(format!("columns={widest}")) {
            for (i, line) in text.lines().enumerate() {
                let columns = line.chars().count();
                if columns > COLUMNS_MAX {
                    let what = format!("{columns} columns, at most {COLUMNS_MAX}");
                    violations.push(Violation::new(path, i + 1, what));
                }
            }
        }
    }
    for (&(path, limit), &line) in &allowed {
        if !is_needed(tree, path, limit) {
            let what = format!("`{path} {limit}` is not what the file has: correct or remove it");
            violations.push(Violation::new(ALLOW, line, what));
        }
    }
    violations
}

/// Whether `limit` is the file's length and beyond what needs no entry.
fn is_needed(tree: &Tree, path: &str, limit: &str) -> bool {
    let Some(text) = tree.text(path) else { return false };
    let number = |prefix| limit.strip_prefix(prefix).and_then(|n: &str| n.parse::<usize>().ok());
    match (number("lines="), number("columns=")) {
        (Some(n), _) => n > LINES_MAX && n == text.lines().count(),
        (_, Some(n)) => n > COLUMNS_MAX && Some(n) == text.lines().map(|l| l.chars().count()).max(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    /// Goal: the limits themselves pass, one more does not.
    #[test]
    fn limits_are_inclusive() {
        let (line, lines) = ("x".repeat(100), "x\n".repeat(800));
        assert_eq!(said(&check(&Tree::of(&[("a.rs", &line), ("b.rs", &lines)]))), [""; 0]);
        let (line, lines) = (format!("\n{line}x"), format!("{lines}x\n"));
        assert_eq!(
            said(&check(&Tree::of(&[("a.rs", &line), ("b.rs", &lines)]))),
            ["a.rs:2: 101 columns, at most 100", "b.rs: 801 lines, at most 800: split the file"]
        );
    }

    /// Goal: a known sinner passes at its exact length; the list cannot grow, and cannot keep an
    /// entry that is too generous or about nothing.
    #[test]
    fn the_allow_list_only_shrinks() {
        let sinner = "x\n".repeat(900);
        let with = |allow: &str, max| {
            check_with(&Tree::of(&[("a.rs", &sinner), (ALLOW, allow)]), max).len()
        };
        assert_eq!(with("a.rs lines=900 # why\n", 1), 0);
        assert_eq!(with("a.rs lines=900\n", 0), 1, "one entry too many");
        assert_eq!(with("a.rs lines=950\n", 1), 2, "too generous, and the file is not excused");
        assert_eq!(with("a.rs lines=900\nb.rs lines=900\n", 2), 1, "about nothing");
    }
}
