//! The folder of results. A result is three files there: `NAME-sSCALE.json`, `.svg` and `.png`,
//! with the seed in the name if it is not the usual one. The JSON file is the result; the others
//! are drawn from it.

use std::path::{Path, PathBuf};

use weir_lab::plot;
use weir_lab::result::Result as Outcome;

use super::{Failure, Result};

/// Where results lie by default.
pub(crate) const DEFAULT: &str = "weir-lab";

/// The seed of results whose names do not tell it.
pub(crate) const SEED: u64 = 1;

/// Draws `result` and writes its files.
pub(crate) fn write_result(folder: &Path, result: &Outcome) -> Result<()> {
    let seed = if result.seed == SEED { String::new() } else { format!("-seed{}", result.seed) };
    let stem = format!("{}-s{}{seed}", result.experiment, result.scale);
    write(&folder.join(format!("{stem}.json")), result.to_json()?.as_bytes())?;
    write(&folder.join(format!("{stem}.svg")), plot::svg(result)?.as_bytes())?;
    write(&folder.join(format!("{stem}.png")), &plot::png(result)?)
}

/// Every result in `folder`, by file name.
///
/// # Errors
/// A folder or file that cannot be read; a JSON file that is no result; no result at all.
pub(crate) fn read_results(folder: &Path) -> Result<Vec<Outcome>> {
    let shown = folder.display();
    let hint = "run experiments first, such as `weir lab run --all`, or name their folder with \
                --results";
    let paths = json_files(folder)
        .map_err(|e| Failure::new(format_args!("cannot list {shown}: {e}; {hint}")))?;
    if paths.is_empty() {
        return Err(Failure::new(format_args!("{shown} has no results; {hint}")));
    }
    let read = |path: &PathBuf| {
        let wrong = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
        Outcome::from_json(&text).map_err(|e| wrong(&e))
    };
    paths.iter().map(read).collect()
}

#[expect(clippy::disallowed_methods, reason = "results are no store's files; sorted here")]
fn json_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Writes a file atomically, and creates its folder.
#[expect(clippy::disallowed_methods, reason = "results are no store's files")]
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let wrong = |e| Failure::new(format_args!("cannot write {}: {e}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(wrong)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.draft", std::process::id()));
    std::fs::write(&draft, bytes).map_err(wrong)?;
    std::fs::rename(&draft, path).map_err(wrong)
}
