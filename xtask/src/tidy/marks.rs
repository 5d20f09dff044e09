//! Words that may not stand in the tree, or only where a list allows them.
//!
//! * `unsafe` stands only in the files of `xtask/unsafe.allow`, each of them needs it, and behind
//!   each stands the reason: `PATH # reason`.
//! * Unfinished code does not merge: no stub macros, no ignored tests, no fix-me notes; a to-do
//!   note names its issue, as in `TO`+`DO(#12)`.

use std::collections::BTreeMap;

use super::Violation;
use crate::list;
use crate::source::{Source, Token, tokens};
use crate::tree::Tree;

const UNSAFE: &str = "xtask/unsafe.allow";

/// Checks every Rust file.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut allowed: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
    for entry in list::entries(tree.text(UNSAFE).unwrap_or_default()) {
        if entry.comment.is_empty() {
            violations.push(Violation::new(UNSAFE, entry.line, "no reason: `PATH # reason`"));
        }
        for path in &entry.words {
            allowed.insert(path, (entry.line, false));
        }
    }
    for (path, text) in tree.files_ending(".rs") {
        let source = Source::of(text);
        let tokens = tokens(&source.code);
        if let Some(token) = tokens.iter().find(|token| token.text == "unsafe") {
            match allowed.get_mut(path) {
                Some((_, used)) => *used = true,
                None => {
                    let what = format!("`unsafe` in a file that {UNSAFE} does not list");
                    violations.push(Violation::new(path, token.line, what));
                }
            }
        }
        violations.extend(unfinished_code(path, &tokens));
        violations.extend(unfinished_notes(path, &source.comments));
    }
    for (path, (line, used)) in allowed {
        if !used {
            let what = format!("{path} has no `unsafe` (any more): remove it here");
            violations.push(Violation::new(UNSAFE, line, what));
        }
    }
    violations
}

/// Stub macros and ignored tests.
fn unfinished_code(path: &str, tokens: &[Token<'_>]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for pair in tokens.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        if second.text == "!" && matches!(first.text, "todo" | "unimplemented") {
            let what = format!("`{}!`: unfinished code does not merge", first.text);
            violations.push(Violation::new(path, first.line, what));
        }
        if first.text == "[" && second.text == "ignore" {
            violations.push(Violation::new(path, first.line, "an ignored test tests nothing"));
        }
    }
    violations
}

/// Notes about what is not done.
fn unfinished_notes(path: &str, comments: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (i, line) in comments.lines().enumerate() {
        let words = line.split(|c: char| !c.is_alphanumeric());
        let mut rest = line;
        for word in words {
            let at = rest.find(word).map_or(rest.len(), |at| at + word.len());
            rest = &rest[at..];
            if word == concat!("FIX", "ME") || word == concat!("XX", "X") {
                let what = format!("{word}: mend it, or open an issue");
                violations.push(Violation::new(path, i + 1, what));
            }
            let numbered = rest
                .strip_prefix("(#")
                .is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()));
            if word == concat!("TO", "DO") && !numbered {
                violations.push(Violation::new(path, i + 1, format!("a {word} names its issue")));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    /// Goal: `unsafe` is found as a keyword only, and only outside the list; the list stays true.
    #[test]
    fn unsafe_stands_where_the_list_says() {
        let text = "// unsafe\nfn f() { \"unsafe\"; unsafe { g() } }\n#![deny(unsafe_code)]";
        let outside = Tree::of(&[("a.rs", text)]);
        assert_eq!(
            said(&check(&outside)),
            ["a.rs:2: `unsafe` in a file that xtask/unsafe.allow does not list"]
        );
        assert!(check(&Tree::of(&[("a.rs", text), (UNSAFE, "a.rs # why\n")])).is_empty());
        let stale = Tree::of(&[("a.rs", "fn f() {}"), (UNSAFE, "# list\na.rs # why\n")]);
        assert_eq!(
            said(&check(&stale)),
            ["xtask/unsafe.allow:2: a.rs has no `unsafe` (any more): remove it here"]
        );
        let silent = Tree::of(&[("a.rs", text), (UNSAFE, "# why\na.rs #\n")]);
        assert_eq!(said(&check(&silent)), ["xtask/unsafe.allow:2: no reason: `PATH # reason`"]);
    }

    /// Goal: each form of unfinished code is found, and the same words in strings are not.
    #[test]
    fn unfinished_code_is_found() {
        let text = "fn f() { todo!() }\nfn g() { unimplemented!(\"x\") }\n#[ignore = \"slow\"]\n\
                    fn h() { \"todo!()\"; }\n";
        let lines: Vec<usize> =
            check(&Tree::of(&[("a.rs", text)])).iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [1, 2, 3]);
    }

    /// Goal: a note without an issue is found, one with an issue passes.
    #[test]
    fn notes_need_an_issue() {
        let (todo, fixme) = (concat!("TO", "DO"), concat!("FIX", "ME"));
        let text = format!("// {todo}: later\n// {todo}(#12): later\n/* {fixme} */ fn f() {{}}\n");
        let lines: Vec<usize> =
            check(&Tree::of(&[("a.rs", &text)])).iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [1, 3]);
    }
}
