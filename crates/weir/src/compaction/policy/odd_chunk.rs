//! The odd chunk: the last output of a merge, which leaves most of its slot empty where slots are
//! as large as tables, and the run that may keep it.
//!
//! Source: LDS §3.4: of a merge from level n into level n+1 it stays in level n, where it goes on
//! with its neighbour, so that each level has one at most. We differ: the paper says that it
//! overlaps nothing there, which is wrong (H39), so it stays only if it does not
//! (`compaction::execute::odd_chunk`, which sees its keys).
//!
//! Not here: how large outputs are (`plan`).
//!
//! Invariants: (1) a job that may leave it in a run writes into that run as far as others are
//! concerned (`JobFootprint::keeps`); (2) each merge takes more out of a level than it leaves
//! there, so that a level above its target comes down to it.

use crate::base::ids::Level;
use crate::compaction::task::{MergeTask, Reason};
use crate::options::OddChunk;
use crate::version::shape::{PartKind, RunId, Shape};

/// The run in which a merge of tables of `inputs` into `output` may leave its last output, for one
/// reason or another: the only one of its level.
pub(super) fn run_of(
    shape: &Shape,
    inputs: impl Iterator<Item = RunId>,
    output: RunId,
) -> Option<RunId> {
    if shape.options.debug.odd_chunk != OddChunk::Upper {
        return None;
    }
    let newest = inputs.min()?;
    let parts = newest.part == PartKind::Filling && output.part == PartKind::Filling;
    let is_only = shape.levels[newest.level].runs().count() == 1;
    let goes_down = newest.level > Level::ZERO && newest.level < output.level;
    (parts && is_only && goes_down).then_some(newest)
}

/// Rule: only what a level has too much of leaves its odd chunk there. Whoever asked for the last
/// level, or for fewer runs, gets it, and a level that should be empty becomes so.
pub(super) fn kept_by(shape: &Shape, merge: &MergeTask) -> Option<RunId> {
    let inputs = merge.inputs.iter().map(|slice| slice.run);
    run_of(shape, inputs, merge.output).filter(|_| merge.reason == Reason::LevelBytes)
}

/// Rule: a table of no more bytes than this may be an odd chunk, and a job does not take it alone.
/// 0 where none is kept.
pub(super) fn bytes_max(shape: &Shape) -> u64 {
    let is_kept = shape.options.debug.odd_chunk == OddChunk::Upper;
    if is_kept { shape.table_bytes() - 1 } else { 0 }
}
