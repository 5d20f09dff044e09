//! Nothing in the tree belongs to one machine: no absolute paths of somebody's disk, no registry
//! hosts.
//!
//! System paths that are the same everywhere (`/proc`, `/sys`, `/dev`, `/usr`) may stand.

use super::Violation;
use crate::tree::Tree;

/// Starts of paths that exist on one machine only. Split, so that this file does not hold them.
const MACHINE: [&str; 6] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Use", "rs/"),
    concat!("/wo", "rk/"),
    concat!("/tm", "p/"),
    concat!("C:", "\\\\"),
];

/// Signs of a registry or mirror other than cargo's own default.
const REGISTRY: [&str; 6] = [
    concat!("sparse", "+http"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("replace", "-with"),
    concat!("[regis", "tries"),
    concat!("[sour", "ce."),
];

/// The one source that `Cargo.lock` may name.
const DEFAULT_SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks every text file.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.files() {
        for (i, line) in text.lines().enumerate() {
            let mut wrong = |what: String| violations.push(Violation::new(path, i + 1, what));
            for start in MACHINE {
                if line.match_indices(start).any(|(at, _)| is_absolute(line, at)) {
                    wrong(format!("`{start}` is a path of one machine"));
                }
            }
            for sign in REGISTRY.iter().filter(|sign| line.contains(**sign)) {
                wrong(format!("`{sign}` names a registry; cargo's default is enough"));
            }
            let source = line.strip_prefix("source = \"").and_then(|s| s.strip_suffix('"'));
            if path.ends_with("Cargo.lock") && source.is_some_and(|source| source != DEFAULT_SOURCE)
            {
                wrong("a dependency does not come from crates.io".to_owned());
            }
        }
    }
    violations
}

/// Whether the path that starts at `at` is not the tail of a longer one such as `docs/home/x`.
fn is_absolute(line: &str, at: usize) -> bool {
    let before = line[..at].chars().next_back();
    before.is_none_or(|c| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '}' | '/')))
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    /// Goal: an absolute path is found in any file; a relative one with the same folder is not.
    #[test]
    fn machine_paths_are_found() {
        for start in MACHINE {
            let text = format!("fine\nlet p = \"{start}me/x\";\n");
            assert_eq!(
                said(&check(&Tree::of(&[("docs/x.md", &text)]))),
                [format!("docs/x.md:2: `{start}` is a path of one machine")]
            );
        }
        let tree =
            Tree::of(&[("a.md", concat!("see docs/wo", "rk/x and $HOME and /proc/self/io"))]);
        assert_eq!(said(&check(&tree)), [""; 0]);
    }

    /// Goal: a mirror in a cargo setting, and a dependency from elsewhere, are found.
    #[test]
    fn registries_are_found() {
        for sign in REGISTRY {
            assert_eq!(check(&Tree::of(&[(".cargo/config.toml", sign)])).len(), 1, "{sign}");
        }
        let lock = format!("source = \"{DEFAULT_SOURCE}\"\nsource = \"git+https://x.example/y\"\n");
        assert_eq!(
            said(&check(&Tree::of(&[("Cargo.lock", &lock)]))),
            ["Cargo.lock:2: a dependency does not come from crates.io"]
        );
    }
}
