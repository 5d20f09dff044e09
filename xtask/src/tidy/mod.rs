//! The checks: each takes the tree and returns what is wrong with it.
//!
//! A check is a pure function over [`Tree`], in a file of its own, with a test that shows a
//! violating sample. To add one: write it, add it to [`check`], and name it in CONTRIBUTING.md.

mod citations;
pub mod formats;
mod headers;
mod layers;
mod lengths;
mod links;
mod marks;
mod numbers;
mod paths;
mod promises;
mod reach;

use std::fmt;

use crate::tree::Tree;

/// One thing that is wrong: where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    path: String,
    line: usize,
    what: String,
}

impl Violation {
    /// Something wrong at `line` of `path`; line 0 is the file as a whole.
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Everything that is wrong with `tree`, in order of files and lines.
pub fn check(tree: &Tree) -> Vec<Violation> {
    const CHECKS: [fn(&Tree) -> Vec<Violation>; 11] = [
        layers::check,
        formats::check,
        numbers::check,
        lengths::check,
        marks::check,
        reach::check,
        paths::check,
        headers::check,
        links::check,
        promises::check,
        citations::check,
    ];
    let mut violations: Vec<Violation> = CHECKS.iter().flat_map(|check| check(tree)).collect();
    violations.sort();
    violations
}

/// What the violations of a test's tree say, for comparing.
#[cfg(test)]
fn said(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(ToString::to_string).collect()
}
