//! The files of the repository, read once.
//!
//! What git tracks or would add counts; without git, every file outside `target` does. Checks work
//! on this value only, so that their tests hand them a tree made of strings.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Path in the repository, with `/`, to the file's text.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the tree at `root`. Files that are not UTF-8 are listed with an empty text.
    pub fn load(root: &Path) -> Result<Self, String> {
        let paths = match git_paths(root) {
            Some(paths) => paths,
            None => walk(root)?,
        };
        let mut tree = Self::default();
        for path in paths {
            let file = root.join(&path);
            // Deleted but still in the index, or a link to a directory: nothing to check.
            if !file.is_file() {
                continue;
            }
            let text = std::fs::read_to_string(&file);
            let text = match text {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => String::new(),
                Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
            };
            tree.files.insert(path, text);
        }
        Ok(tree)
    }

    /// A tree of the given files.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect();
        Self { files }
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is a file at `path`.
    pub fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Whether there is a folder at `path`.
    pub fn has_folder(&self, path: &str) -> bool {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        self.files.range(prefix.clone()..).next().is_some_and(|(p, _)| p.starts_with(&prefix))
    }

    /// The text of the file at `path`.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// All files in order of their paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// All files whose name ends in `suffix`.
    pub fn files_ending(&self, suffix: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(move |(path, _)| path.ends_with(suffix))
    }
}

/// Replaces the file at `path`.
pub fn write(root: &Path, path: &str, text: &str) -> Result<(), String> {
    let file = root.join(path);
    #[expect(clippy::disallowed_methods, reason = "the tool edits source files, not a store")]
    std::fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// What git tracks or would add; `None` if this is no git checkout or git is not installed.
fn git_paths(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// Every file below `root` outside `.git` and folders named `target`.
fn walk(root: &Path) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let full = root.join(&folder);
        #[expect(clippy::disallowed_methods, reason = "the tool lists source files, not a store")]
        let entries = std::fs::read_dir(&full);
        let entries =
            entries.map_err(|error| format!("cannot list {}: {error}", full.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if entry.path().is_dir() {
                if name != ".git" && name != "target" {
                    folders.push(path);
                }
            } else {
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: without git the walk finds the same Rust files as git does.
    #[test]
    fn walk_agrees_with_git() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sources = |mut paths: Vec<String>| {
            paths.retain(|path| path.ends_with(".rs"));
            paths.sort();
            paths
        };
        let walked = sources(walk(root).expect("the folder can be read"));
        assert!(walked.contains(&"src/main.rs".to_owned()), "{walked:?}");
        if let Some(listed) = git_paths(root) {
            assert_eq!(walked, sources(listed));
        }
    }
}
