//! All experiments: the files in `experiments/`, built in.

use crate::document::Source;
use crate::experiment::Experiment;

/// Names and texts, in the order of the papers.
const ALL: [(&str, &str); 22] = [
    ("lsbm-fig03", include_str!("../experiments/lsbm-fig03.toml")),
    ("lsbm-fig11a", include_str!("../experiments/lsbm-fig11a.toml")),
    ("lsbm-fig11b", include_str!("../experiments/lsbm-fig11b.toml")),
    ("lsbm-fig11c", include_str!("../experiments/lsbm-fig11c.toml")),
    ("lsbm-fig12", include_str!("../experiments/lsbm-fig12.toml")),
    ("lsbm-fig13", include_str!("../experiments/lsbm-fig13.toml")),
    ("lsbm-fig14", include_str!("../experiments/lsbm-fig14.toml")),
    ("lsbm-fig14-later", include_str!("../experiments/lsbm-fig14-later.toml")),
    ("lsbm-fig15", include_str!("../experiments/lsbm-fig15.toml")),
    ("lsbm-fig16", include_str!("../experiments/lsbm-fig16.toml")),
    ("lsbm-fig17", include_str!("../experiments/lsbm-fig17.toml")),
    ("lsbm-fig18", include_str!("../experiments/lsbm-fig18.toml")),
    ("lsbm-no-writes", include_str!("../experiments/lsbm-no-writes.toml")),
    ("dlsm-fig02", include_str!("../experiments/dlsm-fig02.toml")),
    ("dlsm-fig04", include_str!("../experiments/dlsm-fig04.toml")),
    ("dlsm-fig10", include_str!("../experiments/dlsm-fig10.toml")),
    ("dlsm-fig11", include_str!("../experiments/dlsm-fig11.toml")),
    ("dlsm-fig12a", include_str!("../experiments/dlsm-fig12a.toml")),
    ("dlsm-fig12bc", include_str!("../experiments/dlsm-fig12bc.toml")),
    ("dlsm-s4c", include_str!("../experiments/dlsm-s4c.toml")),
    ("merfeld-fig1", include_str!("../experiments/merfeld-fig1.toml")),
    ("merfeld-fig2", include_str!("../experiments/merfeld-fig2.toml")),
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
    ALL.iter().map(|(name, text)| built_in(name, text)).collect()
}

fn built_in(name: &str, text: &str) -> Result<Experiment, String> {
    Experiment::parse(name, &Source { name: format!("{name}.toml"), text: text.to_owned() })
}

/// The experiment called `name`.
///
/// # Errors
/// If there is none, with the names that there are.
pub fn named(name: &str) -> Result<Experiment, String> {
    let found = ALL.iter().find(|(known, _)| *known == name);
    let (name, text) = found.ok_or_else(|| {
        format!("there is no experiment {name:?}; there are: {}", names().join(", "))
    })?;
    built_in(name, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every file is sound, and every file of the folder is built in.
    #[test]
    fn every_file_parses() {
        let all = all().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(all.len(), ALL.len());
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments");
        let folder = weir::sim::RealDir::open(folder, false).expect("the folder");
        let mut files = folder.list().expect("its list");
        files.sort();
        let mut built_in: Vec<String> = names().iter().map(|n| format!("{n}.toml")).collect();
        built_in.sort();
        assert_eq!(files, built_in);
        assert!(named("nothing").is_err());
    }
}
