//! Documents name code that exists: every `path/to/file.rs` and `path/to/file.rs::name` in a code
//! span of a Markdown file, and every module of the engine stands in ARCHITECTURE.md.
//!
//! A promise whose test was renamed would otherwise go on looking kept. CHANGELOG.md is about the
//! past and is left alone.

use super::Violation;
use super::links::prose;
use crate::source::{Source, tokens};
use crate::tree::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Checks every Markdown file.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = missing_modules(tree);
    for (path, text) in tree.files_ending(".md").filter(|(path, _)| *path != "CHANGELOG.md") {
        for (line, text) in prose(text) {
            for span in text.split('`').skip(1).step_by(2) {
                if let Some(what) = judge(tree, span) {
                    violations.push(Violation::new(path, line, what));
                }
            }
        }
    }
    violations
}

/// What is wrong with the code span, if it names code.
fn judge(tree: &Tree, span: &str) -> Option<String> {
    let (file, name) = match span.split_once(".rs::") {
        Some((stem, name)) => (format!("{stem}.rs"), Some(name)),
        None => (span.to_owned(), None),
    };
    let is_path = file.contains('/') && file.ends_with(".rs");
    if !is_path || file.contains(|c: char| c.is_whitespace() || "*{}<>".contains(c)) {
        return None;
    }
    let Some(text) = tree.text(&file) else { return Some(format!("there is no file `{file}`")) };
    let name = name?.rsplit("::").next()?;
    let source = Source::of(text);
    let exists = tokens(&source.code).windows(2).any(|pair| {
        pair[1].text == name
            && matches!(pair[0].text, "fn" | "struct" | "enum" | "trait" | "mod" | "const" | "type")
    });
    (!exists).then(|| format!("`{file}` has no `{name}`"))
}

/// Modules of the engine that ARCHITECTURE.md does not mention.
fn missing_modules(tree: &Tree) -> Vec<Violation> {
    let Some(architecture) = tree.text(ARCHITECTURE) else { return Vec::new() };
    let lib = Source::of(tree.text("crates/weir/src/lib.rs").unwrap_or_default());
    let tokens = tokens(&lib.code);
    tokens
        .windows(3)
        .filter(|w| w[0].text == "mod" && w[2].text == ";")
        .map(|w| w[1].text)
        .filter(|module| !architecture.contains(&format!("`{module}`")))
        .map(|module| Violation::new(ARCHITECTURE, 0, format!("says nothing about `{module}`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    /// Goal: a document that names a file or a test that is gone is found; prose is left alone.
    #[test]
    fn named_code_exists() {
        let text = "`src/a.rs` `src/a.rs::keeps` `src/a.rs::tests::keeps` `x.rs` `a/*.rs` a/b.rs\n\
                    `src/a.rs::lost`\n`src/b.rs`\n";
        let tree = Tree::of(&[("docs/p.md", text), ("src/a.rs", "mod tests { fn keeps() {} }")]);
        assert_eq!(
            said(&check(&tree)),
            ["docs/p.md:2: `src/a.rs` has no `lost`", "docs/p.md:3: there is no file `src/b.rs`"]
        );
    }

    /// Goal: a module that the architecture does not mention is found.
    #[test]
    fn the_architecture_is_complete() {
        let tree = Tree::of(&[
            (ARCHITECTURE, "| `base` | words |\n"),
            ("crates/weir/src/lib.rs", "pub(crate) mod base;\npub(crate) mod heat;\n"),
        ]);
        assert_eq!(said(&check(&tree)), ["ARCHITECTURE.md: says nothing about `heat`"]);
    }
}
