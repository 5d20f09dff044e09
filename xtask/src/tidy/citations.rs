//! What comments cite exists: rules (`H` and a number) and stories (`bug` and a number) of
//! docs/hazards.md, sections of ARCHITECTURE.md, and pages (`*.md`) by a path from the root.

use std::collections::BTreeSet;

use super::Violation;
use crate::source::Source;
use crate::tree::Tree;

const HAZARDS: &str = "docs/hazards.md";
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Checks the comments of every Rust file outside this tool.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let (Some(hazards), Some(architecture)) = (tree.text(HAZARDS), tree.text(ARCHITECTURE)) else {
        return Vec::new();
    };
    let mut known = BTreeSet::new();
    for row in hazards.lines().filter_map(|line| line.strip_prefix("| ")) {
        let names = row.split(" |").next().unwrap_or_default();
        known.extend(names.split(", ").map(str::to_owned));
    }
    for heading in architecture.lines().filter_map(|line| line.strip_prefix("## ")) {
        if let Some((number, _)) = heading.split_once(". ") {
            known.insert(format!("ARCHITECTURE §{number}"));
        }
    }
    let mut violations = Vec::new();
    for (path, text) in tree.files_ending(".rs").filter(|(path, _)| !path.starts_with("xtask/")) {
        let comments = Source::of(text).comments;
        for (i, line) in comments.lines().enumerate() {
            for cited in citations(line) {
                if !known.contains(&cited) {
                    let what = format!("cites `{cited}`, which {HAZARDS} and {ARCHITECTURE} lack");
                    violations.push(Violation::new(path, i + 1, what));
                }
            }
            for page in pages(line).filter(|page| !tree.has(page)) {
                let what = format!("cites `{page}`, which does not exist; name it from the root");
                violations.push(Violation::new(path, i + 1, what));
            }
        }
    }
    violations
}

/// The pages that a line of comment cites.
fn pages(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || "/_-.".contains(c)))
        .map(|word| word.trim_matches('.'))
        .filter(|word| word.ends_with(".md") && word.len() > 3)
}

/// The rules, stories and sections that a line of comment cites.
fn citations(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let words: Vec<&str> = line
        .split(|c: char| !(c.is_alphanumeric() || c == '§'))
        .filter(|word| !word.is_empty())
        .collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    for (i, word) in words.iter().enumerate() {
        let next = words.get(i + 1).copied().unwrap_or_default();
        if let Some(number) = word.strip_prefix('H')
            && number.len() <= 2
            && is_number(number)
        {
            found.push((*word).to_owned());
        }
        if *word == "bug" && is_number(next) {
            found.push(format!("bug {next}"));
        }
        if *word == "ARCHITECTURE" && next.starts_with('§') {
            found.push(format!("ARCHITECTURE {next}"));
        }
    }
    for (at, plural) in line.match_indices("bugs ") {
        let list = line[at + plural.len()..].split([')', ';', ':', '.']).next().unwrap_or_default();
        let numbers = list.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and");
        found.extend(numbers.take_while(|w| is_number(w)).map(|number| format!("bug {number}")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    /// Goal: citations are found in every form, and nothing else is taken for one.
    #[test]
    fn citations_are_found() {
        assert_eq!(citations("(H34, H4): see bug 26; H264 and Hx"), ["H34", "H4", "bug 26"]);
        assert_eq!(citations("(bugs 30, 34 and 35); (4)"), ["bug 30", "bug 34", "bug 35"]);
        assert_eq!(citations("ARCHITECTURE §5, a bug of 3"), ["ARCHITECTURE §5"]);
    }

    /// Goal: pages are found in sentences, with and without folders.
    #[test]
    fn pages_are_found() {
        let found: Vec<&str> = pages("(docs/format/x.md), and A.md. Not .md, nor x.mdx").collect();
        assert_eq!(found, ["docs/format/x.md", "A.md"]);
    }

    /// Goal: a citation of what no document has is named; code and strings cite nothing.
    #[test]
    fn dead_citations_are_found() {
        let text = "// H34 H99 bug 26\n// bug 7, ARCHITECTURE §2 §9, ARCHITECTURE §9\n\
                    let H98 = 1;\n// docs/hazards.md, docs/none.md\n";
        let tree = Tree::of(&[
            (HAZARDS, "| H17, H34 | rule |\n| bug 26 | story |\n"),
            (ARCHITECTURE, "## 2. Layers\n"),
            ("a.rs", text),
        ]);
        let cited: Vec<String> = said(&check(&tree))
            .iter()
            .filter_map(|said| said.split('`').nth(1).map(str::to_owned))
            .collect();
        assert_eq!(cited, ["H99", "bug 7", "ARCHITECTURE §9", "docs/none.md"]);
    }
}
