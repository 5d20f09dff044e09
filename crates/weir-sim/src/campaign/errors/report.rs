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
    /// Only the scenario of this name.
    pub only: Option<String>,
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
