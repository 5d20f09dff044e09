//! The layer law: a module of the engine imports only what `xtask/layers.toml` allows it.
//!
//! Rust does not forbid cycles between the modules of a crate; this does. A path counts wherever it
//! stands (`use`, expression, type, visibility excepted) and however it starts (`crate::`,
//! `super::`, `self::`, groups). Code under `#[cfg(test)]` is free, so that a module can be tested
//! on the real lower layers. The entry with the longest matching name holds for a module, alone.
//! The law lists no module that does not exist, and allows no import that nobody makes.

use std::collections::BTreeSet;

use super::Violation;
use crate::list;
use crate::source::{Source, Token, after_braces, tokens, without_tests};
use crate::tree::Tree;

const LAW: &str = "xtask/layers.toml";
const ENGINE: &str = "crates/weir/src/";
/// Crates beside the engine that may use its feature `sim`.
const SIM_USERS: [&str; 2] = ["crates/weir-sim/", "crates/weir-lab/"];

/// A module's name and the modules that it may import.
type Law = Vec<(String, Vec<String>)>;

/// A path to a module or item of the same crate.
#[derive(Debug, PartialEq, Eq)]
struct Import {
    path: Vec<String>,
    line: usize,
}

/// Checks every file of the engine against the law, and who uses the feature `sim`.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = sim_users(tree);
    let law = match list::tables(tree.text(LAW).unwrap_or_default()) {
        Ok(law) => law,
        Err(line) => {
            violations.push(Violation::new(LAW, line, "not of the form `name = [\"a\", \"b\"]`"));
            return violations;
        }
    };
    let mut used = BTreeSet::new();
    for (path, text) in tree.files_ending(".rs") {
        let Some(inside) = path.strip_prefix(ENGINE) else { continue };
        let module = module_of(inside);
        let tests = module.iter().any(|name| name == "tests");
        if tests || is_test_only(tree, inside) {
            continue;
        }
        let Some(top) = module.first() else {
            continue; // lib.rs only re-exports
        };
        let Some(allowed) = allowed(&law, &module) else {
            violations.push(Violation::new(path, 0, format!("module `{top}` is not in {LAW}")));
            continue;
        };
        used.insert((allowed.0.to_owned(), None));
        for import in imports(text, &module) {
            let names = allowed.1.iter().filter(|name| is_in(&import.path, name));
            used.extend(names.map(|name| (allowed.0.to_owned(), Some(name.clone()))));
            if let Some(what) = judge(&law, &module, allowed, &import.path) {
                violations.push(Violation::new(path, import.line, what));
            }
        }
    }
    let unused = unused(&law, &used).into_iter();
    violations.extend(unused.map(|what| Violation::new(LAW, 0, what)));
    violations
}

/// A module of the law that has files, and a module that the law allows it and that it imports.
type Used = BTreeSet<(String, Option<String>)>;

/// What of the law is about nothing.
fn unused(law: &Law, used: &Used) -> Vec<String> {
    let is_used = |name: &String, target| used.contains(&(name.clone(), target));
    let mut found = Vec::new();
    for (name, allowed) in law {
        if !is_used(name, None) {
            found.push(format!("there is no module `{name}`: remove it here"));
            continue;
        }
        let dead = allowed.iter().filter(|target| *target != "*");
        let dead = dead.filter(|target| !is_used(name, Some((*target).clone())));
        found.extend(dead.map(|target| format!("`{name}` imports nothing of `{target}`")));
    }
    found
}

/// `table/block.rs` is module `table::block`, `lib.rs` the root.
fn module_of(inside: &str) -> Vec<String> {
    let path = inside.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

/// Whether the parent declares this file under `#[cfg(test)]` only.
fn is_test_only(tree: &Tree, inside: &str) -> bool {
    let module = module_of(inside);
    let Some((name, parent)) = module.split_last() else { return false };
    let parent = parent.join("/");
    let candidates = if parent.is_empty() {
        vec![format!("{ENGINE}lib.rs")]
    } else {
        vec![format!("{ENGINE}{parent}/mod.rs"), format!("{ENGINE}{parent}.rs")]
    };
    candidates.iter().filter_map(|path| tree.text(path)).any(|text| {
        let source = Source::of(text);
        let all = tokens(&source.code);
        declares(&all, name) && !declares(&without_tests(&all), name)
    })
}

fn declares(tokens: &[Token<'_>], name: &str) -> bool {
    tokens.windows(3).any(|w| w[0].text == "mod" && w[1].text == name && w[2].text == ";")
}

/// Whether `path` lies in the module named `name`.
fn is_in(path: &[String], name: &str) -> bool {
    let mut parts = path.iter();
    name.split("::").all(|part| parts.next().is_some_and(|p| p == part))
}

/// What `module` may import; `None` if no entry holds for it.
fn allowed<'a>(law: &'a Law, module: &[String]) -> Option<(&'a str, &'a [String])> {
    law.iter()
        .filter(|(name, _)| is_in(module, name))
        .max_by_key(|(name, _)| name.len())
        .map(|(name, allowed)| (name.as_str(), allowed.as_slice()))
}

/// What is wrong with `module` importing `path`, if anything is.
fn judge(
    law: &Law,
    module: &[String],
    (own, allowed): (&str, &[String]),
    path: &[String],
) -> Option<String> {
    let everything = allowed.iter().any(|name| name == "*");
    if everything || is_in(path, own) || allowed.iter().any(|name| is_in(path, name)) {
        return None;
    }
    let (module, target) = (module.join("::"), path.join("::"));
    if law.iter().any(|(name, _)| path.first().is_some_and(|p| name.split("::").next() == Some(p)))
    {
        let may = if allowed.is_empty() { "nothing else".to_owned() } else { allowed.join(", ") };
        Some(format!("`{module}` may not import `{target}`; `{own}` may import {may} ({LAW})"))
    } else {
        Some(format!("`{module}` imports `{target}` through the crate root; name its module"))
    }
}

/// Every path of the file that leads to the crate's own modules.
fn imports(text: &str, module: &[String]) -> Vec<Import> {
    let source = Source::of(text);
    let tokens = without_tests(&tokens(&source.code));
    let mut found = Vec::new();
    // Inline modules around the current token: name and where they end.
    let mut inline: Vec<(String, usize)> = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        while inline.last().is_some_and(|&(_, end)| i >= end) {
            inline.pop();
        }
        let text_at = |i: usize| tokens.get(i).map_or("", |token| token.text);
        if token.text == "mod" && text_at(i + 2) == "{" {
            inline.push((text_at(i + 1).to_owned(), after_braces(&tokens, i + 2)));
        }
        let starts = matches!(token.text, "crate" | "super" | "self") && text_at(i + 1) == "::";
        let before = i.checked_sub(1).map_or("", text_at);
        if !starts || before == "::" || before == "in" {
            continue;
        }
        let mut base = Vec::new();
        if token.text != "crate" {
            base.extend_from_slice(module);
            base.extend(inline.iter().map(|(name, _)| name.clone()));
        }
        if token.text == "super" {
            base.pop();
        }
        collect(&tokens, i + 2, &base, &mut found);
    }
    found
}

/// Reads a path or group that starts at `at` below `base`; returns the index after it.
fn collect(tokens: &[Token<'_>], at: usize, base: &[String], found: &mut Vec<Import>) -> usize {
    let mut path = base.to_vec();
    let mut i = at;
    let line = tokens.get(at).map_or(0, |token| token.line);
    loop {
        let text = tokens.get(i).map_or("", |token| token.text);
        match text {
            "{" => {
                i += 1;
                while i < tokens.len() && tokens[i].text != "}" {
                    i = match tokens[i].text {
                        "," => i + 1,
                        _ => collect(tokens, i, &path, found),
                    };
                }
                return i + 1;
            }
            "super" => {
                path.pop();
            }
            "self" => {}
            _ if text.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                path.push(text.to_owned());
            }
            _ => {}
        }
        i += 1;
        if tokens.get(i).is_none_or(|token| token.text != "::") {
            break;
        }
        i += 1;
    }
    found.push(Import { path, line });
    // `as name` ends with the next comma, brace or semicolon; the caller skips what it does not
    // know.
    if tokens.get(i).is_some_and(|token| token.text == "as") { i + 2 } else { i.max(at + 1) }
}

/// Only the simulation may switch the feature `sim` on: programs see the public API.
fn sim_users(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.files_ending("/Cargo.toml") {
        if !path.starts_with("crates/") || SIM_USERS.iter().any(|user| path.starts_with(user)) {
            continue;
        }
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with("weir ") && line.contains("\"sim\"") {
                let what = "only weir-sim and weir-lab use the engine's feature `sim`";
                violations.push(Violation::new(path, i + 1, what));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    const SAMPLE_LAW: &str = "base = []\ntable = [\"base\"]\nversion = [\"base\", \"table\"]\n\
                              \"version::shape\" = [\"base\"]\ndb = [\"*\"]\n";

    /// What is said of one file; of a law, most of which is unused, nothing.
    fn said_of(path: &str, text: &str) -> Vec<String> {
        said_of_files(&[(LAW, SAMPLE_LAW), (path, text)])
    }

    fn said_of_files(files: &[(&str, &str)]) -> Vec<String> {
        let mut violations = check(&Tree::of(files));
        violations.retain(|violation| violation.path != LAW);
        said(&violations)
    }

    /// Goal: what the law allows passes, in every form a path can have.
    #[test]
    fn lower_layers_may_be_imported() {
        let text = "use crate::base::{key::{self, Seq}, error};\nuse super::meta;\n\
                    pub(in crate::db) fn f(x: crate::base::Key) {}\n// crate::db::x\n\
                    #[cfg(test)] mod tests { use crate::db::Db; }\n";
        assert_eq!(said_of("crates/weir/src/table/block.rs", text), [""; 0]);
        assert_eq!(said_of("crates/weir/src/db/mod.rs", "use crate::version::set;"), [""; 0]);
    }

    /// Goal: an upward import is named with its line in `use`, in an expression, in a group,
    /// through `super`, and in an inline module.
    #[test]
    fn upward_imports_are_found() {
        for text in [
            "\nuse crate::version::Run;",
            "\nfn f() { crate::version::g() }",
            "\nuse crate::{base, version::{self as v, set}};",
            "\nuse super::super::version::Run;",
            "\nmod inner { use super::super::super::version::x; }",
        ] {
            let said = said_of("crates/weir/src/table/block.rs", text);
            assert!(!said.is_empty(), "not found in {text}");
            let start = "crates/weir/src/table/block.rs:2: `table::block` may not import `version";
            assert!(said.iter().all(|s| s.starts_with(start)), "{said:?}");
        }
    }

    /// Goal: a finer entry replaces the wider one: `version::shape` may not even import its parent.
    #[test]
    fn the_longest_entry_holds_alone() {
        assert_eq!(
            said_of("crates/weir/src/version/shape.rs", "use crate::version::set::Set;"),
            ["crates/weir/src/version/shape.rs:1: `version::shape` may not import \
              `version::set::Set`; `version::shape` may import base (xtask/layers.toml)"]
        );
        assert_eq!(said_of("crates/weir/src/version/run.rs", "use super::shape::S;"), [""; 0]);
    }

    /// Goal: the crate root is no way around the law, and a new module must be entered in it.
    #[test]
    fn root_and_unknown_modules_are_refused() {
        let said = said_of("crates/weir/src/table/mod.rs", "use crate::Error;");
        assert!(said[0].contains("through the crate root"), "{said:?}");
        let said = said_of("crates/weir/src/misc.rs", "");
        assert!(said[0].contains("`misc` is not in"), "{said:?}");
    }

    /// Goal: a file that its parent declares for tests only is free.
    #[test]
    fn test_files_are_free() {
        let said = said_of_files(&[
            (LAW, SAMPLE_LAW),
            ("crates/weir/src/table/mod.rs", "#[cfg(test)]\nmod oracle;\nmod block;\n"),
            ("crates/weir/src/table/oracle.rs", "use crate::db::Db;"),
            ("crates/weir/src/table/tests.rs", "use crate::db::Db;"),
        ]);
        assert_eq!(said, [""; 0]);
    }

    /// Goal: the law stays as small as the code: an entry for a module that does not exist, and one
    /// that allows what no file outside tests imports, are named.
    #[test]
    fn entries_about_nothing_are_found() {
        let tree = Tree::of(&[
            (LAW, "base = []\nheat = [\"base\"]\ntable = [\"base\", \"device\"]\ndb = [\"*\"]\n"),
            ("crates/weir/src/base/key.rs", ""),
            (
                "crates/weir/src/table/mod.rs",
                "use crate::base::key;\n#[cfg(test)] mod tests { use crate::device::Dir; }",
            ),
            ("crates/weir/src/db/mod.rs", ""),
        ]);
        assert_eq!(
            said(&check(&tree)),
            [
                "xtask/layers.toml: there is no module `heat`: remove it here",
                "xtask/layers.toml: `table` imports nothing of `device`",
            ]
        );
    }

    /// Goal: a program that switches the simulation on is named.
    #[test]
    fn sim_is_for_the_simulation() {
        let line = "weir = { path = \"../weir\", features = [\"sim\"] }\n";
        let said = said_of("crates/weir-cli/Cargo.toml", line);
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!(said_of("crates/weir-sim/Cargo.toml", line), [""; 0]);
    }
}
