//! Locks between format pages and code: a page cannot change alone.
//!
//! The module that owns a format starts with `// FORMAT: docs/format/x.md sha=` and the first
//! twelve hex digits of the page's SHA-256. Changing the page breaks the lock; who mends it (with
//! `cargo xtask tidy --fix-hashes`) has the code in front of him. Every page has at least one lock.
//! That the code does not change alone either is the work of `numbers`.

use std::collections::BTreeSet;

use super::Violation;
use crate::sha256;
use crate::tree::Tree;

const PAGES: &str = "docs/format/";
const MARK: &str = "// FORMAT: ";
/// Hex digits of a lock: 48 bits are enough against accidents, which is all it guards against.
const DIGITS: usize = 12;

/// A lock line split into the page and the hash that it names.
fn parse(line: &str) -> Option<(&str, &str)> {
    let (page, sha) = line.strip_prefix(MARK)?.split_once(" sha=")?;
    Some((page.trim(), sha.trim()))
}

fn hash(text: &str) -> String {
    sha256::hex(text.as_bytes())[..DIGITS].to_owned()
}

/// The locks: path of a Rust file, and the page that it is locked to.
pub fn locks(tree: &Tree) -> Vec<(&str, &str)> {
    let locks_of = |(path, text)| {
        let lines = str::lines(text).filter_map(parse);
        lines.map(move |(page, _)| (path, page))
    };
    tree.files_ending(".rs").flat_map(locks_of).collect()
}

/// Checks that every lock names a page as it is, and that every page has a lock.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut locked = BTreeSet::new();
    for (path, text) in tree.files_ending(".rs") {
        for (i, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with(MARK)) {
            let wrong = |what: String| Violation::new(path, i + 1, what);
            let Some((page, sha)) = parse(line) else {
                violations.push(wrong(format!("a lock reads `{MARK}PAGE sha=HEX`")));
                continue;
            };
            locked.insert(page);
            match tree.text(page) {
                None => violations.push(wrong(format!("there is no page {page}"))),
                Some(text) if hash(text) != sha => violations.push(wrong(format!(
                    "{page} has changed: read it against this code, then run \
                     `cargo xtask tidy --fix-hashes`"
                ))),
                Some(_) => {}
            }
        }
    }
    for (path, _) in tree.files_ending(".md").filter(|(path, _)| path.starts_with(PAGES)) {
        if !locked.contains(path) && path != "docs/format/README.md" {
            violations.push(Violation::new(path, 0, "no module is locked to this page"));
        }
    }
    violations
}

/// The files whose locks must change, with their new text.
pub fn fix(tree: &Tree) -> Vec<(String, String)> {
    let mut fixed = Vec::new();
    for (path, text) in tree.files_ending(".rs") {
        let lines: Vec<String> = text
            .split('\n')
            .map(|line| match parse(line).and_then(|(page, _)| Some((page, tree.text(page)?))) {
                Some((page, text)) => format!("{MARK}{page} sha={}", hash(text)),
                None => line.to_owned(),
            })
            .collect();
        let new = lines.join("\n");
        if new != text {
            fixed.push((path.to_owned(), new));
        }
    }
    fixed
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    /// The first digits of the hash of "abc".
    const ABC: &str = "ba7816bf8f01";

    fn tree(page: &str, lock: &str) -> Tree {
        let module = format!("{lock}\n//! Log.\n");
        Tree::of(&[("docs/format/log.md", page), ("crates/weir/src/log/mod.rs", &module)])
    }

    /// Goal: a true lock passes; a changed page, a missing page and a bad line are named.
    #[test]
    fn locks_hold() {
        let lock = format!("{MARK}docs/format/log.md sha={ABC}");
        assert_eq!(said(&check(&tree("abc", &lock))), [""; 0]);
        let changed = said(&check(&tree("abd", &lock)));
        assert!(changed[0].contains("log/mod.rs:1: docs/format/log.md has changed"), "{changed:?}");
        let missing = format!("{MARK}docs/format/gone.md sha={ABC}");
        assert_eq!(check(&tree("abc", &missing)).len(), 2, "page without lock, lock without page");
        assert_eq!(check(&tree("abc", "// FORMAT: docs/format/log.md")).len(), 2);
    }

    /// Goal: fixing changes the hash and nothing else, and then nothing is left to fix.
    #[test]
    fn fixing_heals() {
        let broken = tree("abc", &format!("{MARK}docs/format/log.md sha=0"));
        let fixed = fix(&broken);
        let text = format!("{MARK}docs/format/log.md sha={ABC}\n//! Log.\n");
        assert_eq!(fixed, [("crates/weir/src/log/mod.rs".to_owned(), text.clone())]);
        let healed =
            Tree::of(&[("docs/format/log.md", "abc"), ("crates/weir/src/log/mod.rs", &text)]);
        assert!(fix(&healed).is_empty() && check(&healed).is_empty());
    }
}
