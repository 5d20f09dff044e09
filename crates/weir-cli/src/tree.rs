//! Options of the tree that several commands take: its shape, and what its filters get.

use clap::Args;
use weir::{CompactionPolicy, Filters, Options};

/// The shape of the tree.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TreeArgs {
    /// Shape of the tree: leveled, tiered, lazy_leveled, size_tiered, stepped_merge, gear or
    /// two_phase
    #[arg(long, value_name = "NAME")]
    compaction: Option<CompactionPolicy>,
    /// Runs that make a level full, where levels hold several runs
    #[arg(long, value_name = "RUNS")]
    runs_per_level: Option<usize>,
    /// How filter bits are divided over the runs: uniform or monkey
    #[arg(long, value_name = "NAME")]
    filters: Option<Filters>,
    /// Entries of one write buffer; unset: bytes alone decide
    #[arg(long, value_name = "ENTRIES")]
    write_buffer_entries: Option<u64>,
}

impl TreeArgs {
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
            options.write_buffer_entries = self.write_buffer_entries;
        }
    }
}
