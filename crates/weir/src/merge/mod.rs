//! The merging cursor, from k sorted sources to one sequence, and two filters over it: the entries
//! that a reader sees, and those that a compaction keeps.
//!
//! Not here: the sources. Only `base` is imported, so that everything here is tested on vectors.

mod losers;
mod retain;
#[cfg(test)]
mod tests;
mod visible;
mod without;

pub(crate) use losers::MergingCursor;
pub(crate) use retain::{Retain, RetainCounts, Tally};
pub(crate) use visible::Visible;
pub(crate) use without::{Limits, Without};
