//! How the campaign is set up and what it found.

use std::collections::BTreeMap;

use weir::sim::{Effect, Site};

use super::panics::Panics;

/// How a run of the campaign is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The root seed.
    pub seed: u64,
    /// At most so many calls per site and scenario are made to fail, evenly spread; `None`: all.
    pub calls_max: Option<u64>,
    /// Threads.
    pub jobs: usize,
    /// Only the scenarios whose name contains this.
    pub only: Option<String>,
}

impl Settings {
    /// Whether the scenario of this name is run.
    pub(super) fn names(&self, scenario: &str) -> bool {
        self.only.as_ref().is_none_or(|only| scenario.contains(only.as_str()))
    }
}

/// What the campaign did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Runs with a fault.
    pub runs: u64,
    /// Faults that hit, by site, effect and whether permanent.
    pub hits: BTreeMap<(Site, Effect, bool), u64>,
    /// Runs that left the store poisoned.
    pub poisoned: u64,
    /// Calls without faults, by scenario.
    pub calls: BTreeMap<&'static str, u64>,
    /// Writes that a full device refused.
    pub full_refused: u64,
    /// Where panics were injected, and what became of them.
    pub panics: Panics,
    /// Callbacks that got a success, and a failure.
    pub callbacks: (u64, u64),
    /// Violations; the campaign goes on after them.
    pub violations: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a part of a name names scenarios, as the help says. It had to be all of it, and a part
    /// ran nothing and found nothing.
    #[test]
    fn a_part_of_a_name_names_scenarios() {
        let settings = |only: Option<&str>| Settings {
            seed: 1,
            calls_max: None,
            jobs: 1,
            only: only.map(str::to_owned),
        };
        assert!(settings(None).names("flush"));
        assert!(settings(Some("buffer lists")).names("trim buffer lists"));
        assert!(!settings(Some("trim")).names("append to buffer lists"));
    }
}
