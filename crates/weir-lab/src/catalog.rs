//! All experiments: the files in `experiments/`, built in, and those in files of one's own.

use std::path::Path;

use crate::document::{Files, Set, Source};
use crate::experiment::Experiment;

/// Names and texts, in the order of the papers; then those about what no paper has.
const ALL: [(&str, &str); 40] = [
    ("lsbm-fig03", include_str!("../experiments/lsbm-fig03.toml")),
    ("lsbm-fig11a", include_str!("../experiments/lsbm-fig11a.toml")),
    ("lsbm-fig11b", include_str!("../experiments/lsbm-fig11b.toml")),
    ("lsbm-fig11c", include_str!("../experiments/lsbm-fig11c.toml")),
    ("lsbm-fig11d", include_str!("../experiments/lsbm-fig11d.toml")),
    ("lsbm-fig12", include_str!("../experiments/lsbm-fig12.toml")),
    ("lsbm-fig13", include_str!("../experiments/lsbm-fig13.toml")),
    ("lsbm-fig14", include_str!("../experiments/lsbm-fig14.toml")),
    ("lsbm-fig15", include_str!("../experiments/lsbm-fig15.toml")),
    ("lsbm-fig16", include_str!("../experiments/lsbm-fig16.toml")),
    ("lsbm-fig17", include_str!("../experiments/lsbm-fig17.toml")),
    ("lsbm-fig18", include_str!("../experiments/lsbm-fig18.toml")),
    ("lsbm-no-writes", include_str!("../experiments/lsbm-no-writes.toml")),
    ("lsbm-frozen", include_str!("../experiments/lsbm-frozen.toml")),
    ("dlsm-fig02", include_str!("../experiments/dlsm-fig02.toml")),
    ("dlsm-fig04", include_str!("../experiments/dlsm-fig04.toml")),
    ("dlsm-fig09", include_str!("../experiments/dlsm-fig09.toml")),
    ("dlsm-fig10", include_str!("../experiments/dlsm-fig10.toml")),
    ("dlsm-fig11", include_str!("../experiments/dlsm-fig11.toml")),
    ("dlsm-fig12a", include_str!("../experiments/dlsm-fig12a.toml")),
    ("dlsm-fig12bc", include_str!("../experiments/dlsm-fig12bc.toml")),
    ("dlsm-fig13", include_str!("../experiments/dlsm-fig13.toml")),
    ("dlsm-fig14", include_str!("../experiments/dlsm-fig14.toml")),
    ("dlsm-s4c", include_str!("../experiments/dlsm-s4c.toml")),
    ("bilsm-table1", include_str!("../experiments/bilsm-table1.toml")),
    ("bilsm-table1-4k", include_str!("../experiments/bilsm-table1-4k.toml")),
    ("bilsm-queue", include_str!("../experiments/bilsm-queue.toml")),
    ("bilsm-window", include_str!("../experiments/bilsm-window.toml")),
    ("bilsm-hot", include_str!("../experiments/bilsm-hot.toml")),
    ("bilsm-fig-buckets", include_str!("../experiments/bilsm-fig-buckets.toml")),
    ("bilsm-compose", include_str!("../experiments/bilsm-compose.toml")),
    ("merfeld-fig1", include_str!("../experiments/merfeld-fig1.toml")),
    ("merfeld-fig2", include_str!("../experiments/merfeld-fig2.toml")),
    ("beyond-sizes", include_str!("../experiments/beyond-sizes.toml")),
    ("beyond-entries", include_str!("../experiments/beyond-entries.toml")),
    ("beyond-shift", include_str!("../experiments/beyond-shift.toml")),
    ("beyond-scans", include_str!("../experiments/beyond-scans.toml")),
    ("beyond-flush", include_str!("../experiments/beyond-flush.toml")),
    ("beyond-buffer-policies", include_str!("../experiments/beyond-buffer-policies.toml")),
    ("cost-cold", include_str!("../experiments/cost-cold.toml")),
];

/// Names and texts of what experiments share.
const BASES: [(&str, &str); 6] = [
    ("lsbm-6.1", include_str!("../experiments/bases/lsbm-6.1.toml")),
    ("lsbm-scans", include_str!("../experiments/bases/lsbm-scans.toml")),
    ("dlsm-7a", include_str!("../experiments/bases/dlsm-7a.toml")),
    ("bilsm-4", include_str!("../experiments/bases/bilsm-4.toml")),
    ("bilsm-time", include_str!("../experiments/bases/bilsm-time.toml")),
    ("merfeld-4", include_str!("../experiments/bases/merfeld-4.toml")),
];

/// The names of all experiments.
#[must_use]
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|(name, _)| *name).collect()
}

/// All experiments.
///
/// # Errors
/// What is wrong with one of them: a mistake in a file that is built in.
pub fn all() -> Result<Vec<Experiment>, String> {
    ALL.iter().map(|(name, text)| built_in(name, text, &[])).collect()
}

fn built_in(name: &str, text: &str, sets: &[Set]) -> Result<Experiment, String> {
    let source = Source { name: format!("{name}.toml"), text: text.to_owned() };
    Experiment::parse(name, &Files::read(source, &base)?.with(sets)?)
}

/// The base called `name` in the file `from`: one that is built in, or the path of a file, seen
/// from there.
fn base(name: &str, from: &str) -> Result<Source, String> {
    if name.ends_with(".toml") {
        return source(&Path::new(from).with_file_name(name));
    }
    let found = BASES.iter().find(|(known, _)| *known == name);
    let (name, text) = found.ok_or_else(|| {
        let names: Vec<&str> = BASES.iter().map(|(name, _)| *name).collect();
        format!("there is no base {name:?}; there are: {}, and files *.toml", names.join(", "))
    })?;
    Ok(Source { name: format!("bases/{name}.toml"), text: (*text).to_owned() })
}

fn source(path: &Path) -> Result<Source, String> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {name}: {e}"))?;
    Ok(Source { name, text })
}

/// The experiment in the file `path`, with `sets` for every run.
///
/// # Errors
/// A file that cannot be read, or what is wrong with it or with what is set, and where.
pub fn in_file(path: &Path, sets: &[Set]) -> Result<Experiment, String> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut experiment = Experiment::parse(&stem, &Files::read(source(path)?, &base)?.with(sets)?)?;
    experiment.source = path.display().to_string();
    Ok(experiment)
}

/// The experiment called `name`.
///
/// # Errors
/// If there is none, with the names that there are.
pub fn named(name: &str) -> Result<Experiment, String> {
    named_with(name, &[])
}

/// The experiment called `name`, with `sets` for every run.
///
/// # Errors
/// If there is none, with the names that there are; what is wrong with what is set.
pub fn named_with(name: &str, sets: &[Set]) -> Result<Experiment, String> {
    let found = ALL.iter().find(|(known, _)| *known == name);
    let (name, text) = found.ok_or_else(|| {
        format!("there is no experiment {name:?}; there are: {}", names().join(", "))
    })?;
    built_in(name, text, sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files in a folder under `experiments`, without what is no file.
    fn files(folder: &str) -> Vec<String> {
        let path = format!("{}/experiments/{folder}", env!("CARGO_MANIFEST_DIR"));
        let dir = weir::sim::RealDir::open(path, false).expect("the folder");
        let mut files = dir.list().expect("its list");
        files.retain(|name| name.ends_with(".toml"));
        files.sort();
        files
    }

    /// Goal: every file is sound, every file of the folders is built in, and every base is used.
    #[test]
    fn every_file_parses() {
        let all = all().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(all.len(), ALL.len());
        for (texts, folder) in [(&ALL[..], ""), (&BASES, "bases")] {
            let mut built_in: Vec<_> = texts.iter().map(|(n, _)| format!("{n}.toml")).collect();
            built_in.sort();
            assert_eq!(files(folder), built_in);
        }
        for (base, _) in BASES {
            let named = format!("base = \"{base}\"\n");
            assert!(ALL.iter().chain(&BASES).any(|(_, text)| text.contains(&named)), "{base}");
        }
        assert!(named("nothing").is_err());
        let error = built_in("x", "base = \"nothing\"", &[]).expect_err("no such base");
        assert!(error.contains("x.toml: line 1: base: ") && error.contains("lsbm-6.1"), "{error}");
    }

    /// Goal: what is shown of an experiment is all of it. Method: each one written as one file and
    /// read again, with no base to be found.
    #[test]
    fn experiments_are_shown_whole() {
        for experiment in all().expect("sound files") {
            let text = experiment.to_toml().expect("written");
            let source = Source { name: "x.toml".into(), text };
            let files = Files::read(source, &|_, _| Err("a base".into())).expect("no base");
            let again = Experiment::parse(&experiment.name, &files).expect("sound");
            assert_eq!(format!("{again:?}"), format!("{experiment:?}"));
        }
    }
}
