//! Relative links in Markdown lead to a file, folder or heading that exists.
//!
//! Links with a scheme are not followed. Code blocks and code spans are not links.

use super::Violation;
use crate::tree::Tree;

/// Checks every Markdown file.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.files_ending(".md") {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, target) in links(text) {
            let (file, heading) = target.split_once('#').unwrap_or((target.as_str(), ""));
            let place = if file.is_empty() { path.to_owned() } else { join(folder, file) };
            if !tree.has(&place) && !tree.has_folder(&place) && !place.is_empty() {
                violations.push(Violation::new(path, line, format!("`{target}` leads nowhere")));
            } else if !heading.is_empty()
                && !tree.text(&place).is_some_and(|text| headings(text).any(|h| h == heading))
            {
                let what = format!("`{target}`: {place} has no such heading");
                violations.push(Violation::new(path, line, what));
            }
        }
    }
    violations
}

/// `folder` followed by the relative path `file`, with `.` and `..` resolved.
pub fn join(folder: &str, file: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The lines of `text` outside code blocks, with their numbers.
pub fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return None;
        }
        (!in_code).then_some((i + 1, line))
    })
}

/// The targets of inline links without a scheme, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece between backticks is code.
        let outside: Vec<&str> = line.split('`').step_by(2).collect();
        let outside = outside.join("code");
        for (at, _) in outside.match_indices("](") {
            let Some(target) = outside[at + 2..].split([')', ' ']).next() else { continue };
            if !target.contains("://") && !target.starts_with("mailto:") && !target.is_empty() {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// The anchors of the headings of `text`: lower case, words joined by hyphens, no punctuation.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title
            .chars()
            .filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    /// Goal: links to files, folders and headings are followed from where they stand; dead ones are
    /// named with their line.
    #[test]
    fn dead_links_are_found() {
        let text = "# Title\n[a](x.md) [b](../README.md#the-two-commands) [c](format/)\n\
                    [d](#title)\n[e](gone.md)\n[f](x.md#nothing)\n`[g](code.md)`\n\
                    ```\n[h](block.md)\n```\n[i](https://example.org/x)\n";
        let tree = Tree::of(&[
            ("README.md", "## The two commands!\n"),
            ("docs/format/log.md", ""),
            ("docs/x.md", ""),
            ("docs/y.md", text),
        ]);
        assert_eq!(
            said(&check(&tree)),
            [
                "docs/y.md:4: `gone.md` leads nowhere",
                "docs/y.md:5: `x.md#nothing`: docs/x.md has no such heading"
            ]
        );
    }
}
