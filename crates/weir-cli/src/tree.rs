//! Options of the tree that several commands take: its shape, and what its filters get.
//!
//! They are stored in a store. One that is there keeps those that it has, but for what the command
//! line names: that is set, and said.

use crate::failure::{Result, parse};
use clap::Args;
use std::fmt::Display;
use std::io::Write;
use weir::{CompactionPolicy, Filters, Options};

/// The shape of the tree.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TreeArgs {
    /// Shape of the tree: leveled, tiered, lazy_leveled, size_tiered, stepped_merge, gear or
    /// two_phase
    #[arg(long, value_name = "NAME", value_parser = parse::<CompactionPolicy>)]
    compaction: Option<CompactionPolicy>,
    /// Runs that make a level full, where levels hold several runs
    #[arg(long, value_name = "RUNS")]
    runs_per_level: Option<usize>,
    /// How filter bits are divided over the runs: uniform or monkey
    #[arg(long, value_name = "NAME", value_parser = parse::<Filters>)]
    filters: Option<Filters>,
    /// Entries of one write buffer; unset: bytes alone decide
    #[arg(long, value_name = "ENTRIES")]
    write_buffer_entries: Option<u64>,
}

impl TreeArgs {
    /// What was given, as it is typed.
    pub(crate) fn given(&self) -> Vec<String> {
        let flags = [
            flag("--compaction", self.compaction),
            flag("--runs-per-level", self.runs_per_level),
            flag("--filters", self.filters),
            flag("--write-buffer-entries", self.write_buffer_entries),
        ];
        flags.into_iter().flatten().collect()
    }

    /// Sets what was given.
    pub(crate) fn apply(&self, options: &mut Options) {
        if let Some(compaction) = self.compaction {
            options.compaction = compaction;
        }
        if let Some(runs) = self.runs_per_level {
            options.runs_per_level = runs;
        }
        if let Some(filters) = self.filters {
            options.filters = filters;
        }
        if self.write_buffer_entries.is_some() {
            options.debug.write_buffer_entries = self.write_buffer_entries;
        }
    }
}

/// An option of the command line with its value, if it was given.
pub(crate) fn flag(name: &str, value: Option<impl Display>) -> Option<String> {
    value.map(|value| format!("{name} {value}"))
}

/// Says that a store that was there was given other options: in the output, or on stderr if the
/// output is for programs.
pub(crate) fn say_set(given: &[String], json: bool, out: &mut dyn Write) -> Result<()> {
    let what = format!("set in the store, where it stays: {}", given.join(" "));
    if json {
        eprintln!("weir: {what}");
    } else {
        writeln!(out, "note      {what}")?;
    }
    Ok(())
}
