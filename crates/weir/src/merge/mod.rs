//! Merging cursors: k sorted sources in, one sorted sequence out; then what a reader may see of it,
//! and what a compaction must keep of it.
//!
//! Not here: where entries come from. Only `base` is imported, so that everything here is tested on
//! vectors.

mod losers;
mod retain;
#[cfg(test)]
mod tests;
mod visible;

pub(crate) use losers::MergingCursor;
pub(crate) use retain::{Retain, RetainCounts, Tally};
pub(crate) use visible::Visible;
