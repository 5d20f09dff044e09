//! Every Rust file is compiled: it can be reached from a root of its crate by `mod` items.
//!
//! Roots are cargo's: `src/lib.rs`, `src/main.rs`, `build.rs`, every file in `src/bin`, `tests`,
//! `examples` and `benches` (or its folder's `main.rs`), and each `path = "x.rs"` of a manifest.

use std::collections::BTreeSet;

use super::Violation;
use crate::source::{Source, after_braces, tokens};
use crate::tree::Tree;

/// Checks every Rust file that lies in a crate.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut reached = BTreeSet::new();
    let mut open = roots(tree);
    let root_paths: BTreeSet<String> = open.iter().cloned().collect();
    while let Some(path) = open.pop() {
        let Some(text) = tree.text(&path) else { continue };
        if reached.insert(path.clone()) {
            open.extend(children(tree, &path, text, root_paths.contains(&path)));
        }
    }
    tree.files_ending(".rs")
        .filter(|(path, _)| !reached.contains(*path))
        .map(|(path, _)| {
            Violation::new(path, 0, "no `mod` item leads to this file: nothing builds it")
        })
        .collect()
}

/// The files that cargo hands to the compiler.
fn roots(tree: &Tree) -> Vec<String> {
    let mut roots = Vec::new();
    for (manifest, text) in tree.files_ending("Cargo.toml") {
        let folder = manifest.trim_end_matches("Cargo.toml");
        for file in ["src/lib.rs", "src/main.rs", "build.rs"] {
            roots.push(format!("{folder}{file}"));
        }
        for line in text.lines() {
            if let Some((_, value)) = line.split_once("path = \"")
                && let Some(file) = value.split('"').next().filter(|file| file.ends_with(".rs"))
            {
                roots.push(format!("{folder}{file}"));
            }
        }
        for (path, _) in tree.files_ending(".rs") {
            let Some(inside) = path.strip_prefix(folder) else { continue };
            for kind in ["src/bin/", "tests/", "examples/", "benches/", "fuzz_targets/"] {
                let Some(file) = inside.strip_prefix(kind) else { continue };
                if !file.contains('/')
                    || (file.ends_with("/main.rs") && file.matches('/').count() == 1)
                {
                    roots.push(path.to_owned());
                }
            }
        }
    }
    roots
}

/// The files that the `mod` items of `path` name.
fn children(tree: &Tree, path: &str, text: &str, is_root: bool) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').map_or(("", path), |(folder, file)| (folder, file));
    let owns_folder = is_root || file == "mod.rs";
    let base =
        if owns_folder { folder.to_owned() } else { path.trim_end_matches(".rs").to_owned() };
    let source = Source::of(text);
    let tokens = tokens(&source.code);
    let mut inline: Vec<(&str, usize)> = Vec::new();
    let mut found = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        while inline.last().is_some_and(|&(_, end)| i >= end) {
            inline.pop();
        }
        let [name, after] = [1, 2].map(|n| tokens.get(i + n).map_or("", |token| token.text));
        if token.text != "mod" {
            continue;
        }
        if after == "{" {
            inline.push((name, after_braces(&tokens, i + 2)));
        } else if after == ";" {
            let mut place = base.clone();
            for part in inline.iter().map(|&(name, _)| name).chain([name]) {
                place = if place.is_empty() { part.to_owned() } else { format!("{place}/{part}") };
            }
            let candidates = [format!("{place}.rs"), format!("{place}/mod.rs")];
            found.extend(candidates.into_iter().filter(|path| tree.has(path)));
        }
    }
    found.extend(named_files(text, folder));
    found
}

/// Files named by `#[path = "x.rs"]` or included as text.
fn named_files(text: &str, folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for mark in ["#[path = \"", "include!(\""] {
        for (_, rest) in text.match_indices(mark).map(|(at, _)| text.split_at(at + mark.len())) {
            if let Some(file) = rest.split('"').next() {
                found.push(super::links::join(folder, file));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    /// Goal: every way to be reached is known, and a file that nothing names is found.
    #[test]
    fn unreachable_files_are_found() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]"),
            ("c/Cargo.toml", "[[bin]]\npath = \"tool/run.rs\"\n"),
            ("c/build.rs", ""),
            ("c/src/lib.rs", "mod a;\nmod inner { mod b; }\n#[path = \"../odd.rs\"]\nmod odd;\n"),
            ("c/src/a.rs", "pub mod deep;"),
            ("c/src/a/deep.rs", ""),
            ("c/src/inner/b/mod.rs", "mod leaf;"),
            ("c/src/inner/b/leaf.rs", ""),
            ("c/src/orphan.rs", "mod child;"),
            ("c/src/orphan/child.rs", ""),
            ("c/odd.rs", ""),
            ("c/tests/one.rs", ""),
            ("c/tests/all/main.rs", "mod part;"),
            ("c/tests/all/part.rs", ""),
            ("c/tests/all/lost.rs", ""),
            ("c/tool/run.rs", ""),
        ]);
        let paths: Vec<String> = check(&tree).into_iter().map(|violation| violation.path).collect();
        assert_eq!(paths, ["c/src/orphan.rs", "c/src/orphan/child.rs", "c/tests/all/lost.rs"]);
    }

    /// Goal: a `mod` item in a comment reaches nothing.
    #[test]
    fn comments_reach_nothing() {
        let tree = Tree::of(&[("Cargo.toml", ""), ("src/lib.rs", "// mod a;\n"), ("src/a.rs", "")]);
        assert_eq!(
            said(&check(&tree)),
            ["src/a.rs: no `mod` item leads to this file: nothing builds it"]
        );
    }
}
