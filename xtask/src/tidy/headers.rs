//! Every Rust file says at its start what it is: a `//!` header.
//!
//! Before it may stand only plain comments (a format lock), blank lines and inner attributes.

use super::Violation;
use crate::tree::Tree;

/// Checks every Rust file.
pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.files_ending(".rs")
        .filter(|(_, text)| !has_header(text))
        .map(|(path, _)| Violation::new(path, 1, "no `//!` header that says what this file is"))
        .collect()
}

fn has_header(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| {
        let before =
            line.starts_with("#![") || (line.starts_with("//") && !line.starts_with("//!"));
        !line.is_empty() && !before
    });
    first.is_some_and(|line| line.strip_prefix("//!").is_some_and(|rest| rest.trim().len() > 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a header is found behind a lock and an attribute; code first, or an empty header,
    /// fails.
    #[test]
    fn headers_are_required() {
        assert!(has_header("// FORMAT: docs/format/x.md sha=1\n\n#![cfg(unix)]\n//! The log.\n"));
        assert!(!has_header("use std::fmt;\n//! Late.\n"));
        assert!(!has_header("//!\n"));
        let tree = Tree::of(&[("a.rs", "fn main() {}"), ("b.rs", "//! Fine.")]);
        assert_eq!(
            super::super::said(&check(&tree)),
            ["a.rs:1: no `//!` header that says what this file is"]
        );
    }
}
