//! The folder of results. A result is three files there: `NAME-sSCALE.json`, `.svg` and `.png`,
//! with the seed in the name if it is not the usual one, and with what `--shrink`, `--first`,
//! `--short` and `--set` made of it. The JSON file
//! is the result; the others are drawn from it.

use std::io::Write;
use std::path::{Path, PathBuf};

use weir_lab::plot;
use weir_lab::result::Result as Outcome;

use super::{Failure, Result, called};

/// Where results lie by default.
pub(crate) const DEFAULT: &str = "weir-lab";

/// The seed of results whose names do not tell it.
pub(crate) const SEED: u64 = 1;

/// Makes the folder of results and writes into it, before anything is measured that could not be
/// kept.
///
/// # Errors
/// Why it cannot be made or written.
pub(crate) fn prepare(folder: &Path) -> Result<()> {
    let failed = |error| {
        Failure::new(format_args!(
            "results cannot be kept in {}: {error}; name a folder that can be written with --out",
            folder.display()
        ))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let tried = folder.join(format!(".{}.tried", std::process::id()));
    #[expect(clippy::disallowed_methods, reason = "results are no store's files")]
    std::fs::write(&tried, b"").and_then(|()| std::fs::remove_file(&tried)).map_err(failed)
}

/// Draws `result` and writes its files.
pub(crate) fn write_result(folder: &Path, result: &Outcome) -> Result<()> {
    let stem = stem(result);
    write(&folder.join(format!("{stem}.json")), result.to_json()?.as_bytes())?;
    write(&folder.join(format!("{stem}.svg")), plot::svg(result)?.as_bytes())?;
    write(&folder.join(format!("{stem}.png")), &plot::png(result)?)
}

/// The name of `result`'s files without their endings.
fn stem(result: &Outcome) -> String {
    let seed = if result.seed == SEED { String::new() } else { format!("-seed{}", result.seed) };
    let mut stem = format!("{}-s{}", result.experiment, result.scale);
    if let Some(shrink) = result.shrink {
        stem += &format!("-shrink{shrink}");
    }
    if let Some(seconds) = result.first {
        stem += &format!("-first{seconds}");
    }
    if result.short {
        stem += "-short";
    }
    stem += &seed;
    for (option, value) in &result.set {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
        let value: String = value.chars().map(|c| if plain(c) { c } else { '_' }).collect();
        stem += &format!("-set-{option}-{value}");
    }
    stem
}

/// Every result of an experiment as it is in `folder`, by file name, and how many there are of
/// experiments that `--set` made others.
///
/// # Errors
/// A folder or file that cannot be read; a JSON file that is no result; no result at all.
pub(crate) fn read_results(folder: &Path) -> Result<(Vec<Outcome>, usize)> {
    let shown = folder.display();
    let called = called();
    let hint = format!(
        "run experiments first, such as `{called} run --all`, or name their folder with --results"
    );
    let paths = json_files(folder)
        .map_err(|e| Failure::new(format_args!("cannot list {shown}: {e}; {hint}")))?;
    let read = |path: &PathBuf| {
        let wrong = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
        Outcome::from_json(&text).map_err(|e| wrong(&e))
    };
    let mut results: Vec<Outcome> = paths.iter().map(read).collect::<Result<_>>()?;
    results.retain(|result| result.set.is_empty());
    let others = paths.len() - results.len();
    if results.is_empty() {
        let but = if others == 0 { "" } else { " but such as --set made others" };
        return Err(Failure::new(format_args!("{shown} has no results{but}; {hint}")));
    }
    Ok((results, others))
}

/// Says how many results were left out.
pub(crate) fn print_left_out(out: &mut dyn Write, others: usize) -> Result<()> {
    if others > 0 {
        let results = if others == 1 { "one result" } else { &format!("{others} results") };
        writeln!(out, "left out: {results} of no experiment as it is (--set, --first, --shrink)")?;
    }
    Ok(())
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
