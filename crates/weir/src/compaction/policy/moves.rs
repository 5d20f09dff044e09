//! How much one job takes, and what is moved rather than rewritten, where single tables are merged
//! into the run of the next level.
//!
//! Source: LevelDB (`db/version_set.cc`: `IsTrivialMove`, `SetupOtherInputs`). Not here: where a
//! pick begins (each policy), merges of whole runs (`runs`).

use std::collections::BTreeSet;

use crate::base::ids::{Level, TableUid};
use crate::compaction::policy::filters::keeps_too_many_bits;
use crate::compaction::policy::geometry::{
    Chosen, KeyBounds, Placed, Span, bytes_below, filling_runs, newest_epoch,
};
use crate::compaction::policy::odd_chunk;
use crate::compaction::task::{MergeTask, MoveTask, Reason, RunSlice, Task};
use crate::options::CompactionBuffer;
use crate::options::defaults::CACHE_TABLE_BYTES_MIN;
use crate::version::shape::{RunId, Shape};

/// Most tables that one job takes from a level below 0: what they overlap in the next level is only
/// half covered at the two ends, which is paid for once per job.
const TAKE_TABLES: u64 = 4;

/// Where more tables come free, because what they overlap below is an input already, a job takes at
/// most this many times as much.
const WIDEN_MULTIPLE: u64 = 2;

/// A job whose cached blocks are handed over takes no more than this part of the block cache, with
/// what it should meet in the next level, unless a single table is more (`Shape::table_bytes`), or
/// the tables that are taken as one beside a buffer: until it ends, the cache holds the warm blocks
/// of its inputs and of its outputs. Jobs of level 0 have no such bound.
const CACHE_DIVISOR: u64 = 4;

/// Most bytes of small tables that a job takes as one.
const SUPER_TABLE_BYTES_MAX: u64 = 32 << 20;

/// A table may overlap this many times `table_bytes` in the level below its own: what its own
/// compaction will have to read (LevelDB's grandparent limit).
const OVERLAP_TABLES: u64 = 10;

/// Tables that are smaller for the cache's sake may overlap as much as if they had so many bytes:
/// where a level is sparse they would become tiny.
const OVERLAP_TABLE_BYTES_MIN: u64 = 8 << 20;

/// A table below `table_bytes` divided by this is small, and merged with a neighbour: many small
/// flushes must not become many small tables.
const SMALL_TABLE_DIVISOR: u64 = 4;

/// A table is rewritten rather than moved to where its deletes hide nothing, if at least one entry
/// in this many is a delete.
const MOVE_DELETES_DIVISOR: u64 = 8;

/// Bytes of the tables that a job takes as one: of one table, or where runs keep tables for their
/// cached blocks, and these are small so that little that is cold is kept with what is not, of so
/// many neighbours as a level is larger than the one above (the super-file of LSbM §4.3).
fn unit_bytes(shape: &Shape) -> u64 {
    let table = shape.table_bytes();
    if shape.options.compaction_buffer == CompactionBuffer::Off {
        return table;
    }
    let ratio = u64::from(shape.options.compaction.level_sizes().level_ratio);
    table.saturating_mul(ratio).min(SUPER_TABLE_BYTES_MAX).max(table)
}

/// Most bytes that one job takes from a level below 0.
pub(super) fn take_bytes_max(shape: &Shape) -> u64 {
    let unit = unit_bytes(shape);
    TAKE_TABLES.saturating_mul(unit).min(beside_cache(shape)).max(unit)
}

/// Most bytes of several tables that one job takes where the cache is to survive it.
fn beside_cache(shape: &Shape) -> u64 {
    let ratio = u64::from(shape.options.compaction.level_sizes().level_ratio);
    let divisor = ratio.saturating_add(1).saturating_mul(CACHE_DIVISOR);
    shape.options.share_of_cache(shape.endangered_cache_bytes(), divisor).max(CACHE_TABLE_BYTES_MIN)
}

/// Most bytes taken when more come free.
pub(super) fn widen_bytes_max(shape: &Shape) -> u64 {
    WIDEN_MULTIPLE.saturating_mul(take_bytes_max(shape))
}

/// Most bytes that a table may overlap in the level below its own.
pub(super) fn overlap_bytes_max(shape: &Shape) -> u64 {
    let table = shape.table_bytes().max(shape.options.table_bytes.min(OVERLAP_TABLE_BYTES_MIN));
    OVERLAP_TABLES.saturating_mul(table)
}

/// Fewer bytes than these are a small table.
pub(super) fn small_bytes(shape: &Shape) -> u64 {
    shape.table_bytes() / SMALL_TABLE_DIVISOR
}

/// Rule: how many neighbours one job takes of the tables of `within`, from the first on: about
/// `bytes`, at least one table, no more than a job may take, up to one that is busy. Where they are
/// small on purpose, because runs keep them, a job takes some as one, whatever the cache has.
pub(super) fn take<'a>(
    shape: &Shape,
    place: Placed<'a>,
    within: Span,
    bytes: u64,
    busy: &BTreeSet<TableUid>,
) -> Chosen<'a> {
    // An odd chunk goes with the table behind it.
    let least = odd_chunk::bytes_max(shape) + 1;
    let limit = bytes.clamp(least, take_bytes_max(shape).max(least));
    let are_one = unit_bytes(shape) > shape.table_bytes();
    let most = if are_one { limit } else { beside_cache(shape) };
    let (mut end, mut taken) = (within.start, 0);
    while end < within.end && taken < limit {
        let Some(table) = place.table(end).filter(|table| !busy.contains(&table.uid)) else {
            break;
        };
        if end > within.start && taken >= least && taken + table.visible_bytes() > most {
            break;
        }
        taken += table.visible_bytes();
        end += 1;
    }
    place.chosen(within.start..end)
}

/// Rule: tables that overlap nothing in the output level are moved, not rewritten, unless they are
/// to be compressed differently or to have far smaller filters, overlap too much below it, or are
/// full of deletes that a rewrite would drop. `filter_bits` gives those of a run, by level and
/// entries.
pub(super) fn may_move(
    shape: &Shape,
    source: &Chosen<'_>,
    output_level: Level,
    filter_bits: impl Fn(Level, u64) -> f32,
) -> bool {
    let (options, source_level) = (&shape.options, source.place.level);
    if options.compression_at(source_level.get()) != options.compression_at(output_level.get()) {
        return false;
    }
    let entries = source.tables().map(|table| table.visible().entries).sum();
    let bits = |level| filter_bits(level, entries);
    if keeps_too_many_bits(shape, bits(source_level), bits(output_level)) {
        return false;
    }
    source.tables().all(|table| {
        let below = bytes_below(shape, output_level, KeyBounds::of(table));
        let visible = table.visible();
        let deletes_end_here =
            visible.deletes > 0 && visible.deletes >= visible.entries / MOVE_DELETES_DIVISOR;
        below <= overlap_bytes_max(shape) && (below > 0 || !deletes_end_here)
    })
}

/// The merge of all chosen tables into one level. Rule: outputs join the one run of their level;
/// where there is none, they found it with the epoch of their newest input.
pub(super) fn merge_of(
    shape: &Shape,
    chosen: &[Chosen<'_>],
    output_level: Level,
    reason: Reason,
) -> MergeTask {
    let inputs: Vec<RunSlice> = chosen.iter().map(Chosen::slice).collect();
    let joined = filling_runs(shape, output_level).first().map(|run| run.epoch);
    let output = RunId::filling(output_level, joined.unwrap_or_else(|| newest_epoch(&inputs)));
    MergeTask { inputs, output, cursor: None, reason }
}

/// A merge as it is, or as the move of its only input.
pub(super) fn move_or_merge(mut merge: MergeTask, moves: bool) -> Task {
    match (moves, merge.inputs.pop()) {
        (true, Some(input)) if merge.inputs.is_empty() => {
            let MergeTask { output, cursor, reason, .. } = merge;
            Task::Move(MoveTask { input, output, cursor, reason })
        }
        (_, last) => {
            merge.inputs.extend(last);
            Task::Merge(merge)
        }
    }
}
