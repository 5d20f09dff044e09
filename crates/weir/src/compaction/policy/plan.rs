//! How the outputs of a merge are cut: how large, and in step with what below.
//!
//! Not here: the cut itself, key by key (`cut`); which run may keep the last (`odd_chunk`).

use std::collections::BTreeSet;

use crate::base::ids::TableUid;
use crate::base::place::TRAILER_BYTES;
use crate::base::table_meta::TableMeta;
use crate::compaction::policy::geometry::{KeyBounds, Placed, in_use, placed, run_of};
use crate::compaction::policy::moves::overlap_bytes_max;
use crate::compaction::policy::odd_chunk;
use crate::compaction::task::MergeTask;
use crate::options::OddChunk;
use crate::version::shape::{PartKind, RunId, Shape};

/// A table of the level below the outputs, as far as cutting them needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Below {
    /// Smallest user key.
    pub(crate) smallest: Vec<u8>,
    /// Largest user key.
    pub(crate) largest: Vec<u8>,
    /// Length of the table.
    pub(crate) bytes: u64,
}

impl Below {
    fn of(table: &TableMeta) -> Self {
        let (smallest, largest) = (table.smallest.clone(), table.largest.clone());
        Self { smallest, largest, bytes: table.visible_bytes() }
    }
}

/// How the outputs of a merge are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// An output is closed at the first user-key change at or after this many bytes; if it `fits`,
    /// before the entry with which it would have more.
    pub(crate) table_bytes: u64,
    /// Whether outputs are made to fit slots: none that could be cut is larger than `table_bytes`,
    /// and none ends before it to be in step with what is below.
    pub(crate) fits: bool,
    /// The run in which the last output may stay.
    pub(crate) keeps: Option<RunId>,
    /// An output is closed before it overlaps more bytes than this of `below`.
    pub(crate) below_bytes_max: u64,
    /// The tables that an output will be merged with next, in key order: what an output overlaps
    /// now is what compacting it will cost.
    pub(crate) below: Vec<Below>,
}

impl Plan {
    /// Outputs that are cut by their size alone.
    pub(crate) fn of_bytes(table_bytes: u64) -> Self {
        let (fits, keeps) = (false, None);
        Self { table_bytes, fits, keeps, below_bytes_max: u64::MAX, below: Vec::new() }
    }
}

/// The input tables of a merge.
fn inputs<'a>(shape: &'a Shape, merge: &MergeTask) -> Vec<&'a TableMeta> {
    let mut inputs = Vec::new();
    for slice in &merge.inputs {
        let uids: BTreeSet<TableUid> = slice.uids.iter().copied().collect();
        let tables = run_of(shape, slice).into_iter().flat_map(|run| run.tables());
        inputs.extend(tables.filter(|table| uids.contains(&table.uid)));
    }
    inputs
}

/// Rule: outputs are cut near `table_bytes`, all of about the same size.
fn cut_evenly(inputs: &[&TableMeta], table_bytes: u64) -> u64 {
    let input_bytes: u64 = inputs.iter().map(|table| table.visible_bytes()).sum();
    let outputs = input_bytes.div_ceil(table_bytes).max(1);
    input_bytes.div_ceil(outputs).clamp(table_bytes / 2 + 1, table_bytes)
}

/// What an output leaves of the last unit that it takes of a device, besides the entry that ends
/// it: trailers of two extents, and as much as the estimate of its bytes is too low by.
const UNIT_REST_BYTES: u64 = 2 * TRAILER_BYTES + (8 << 10);

/// Rule: where tables take whole units, an output fills those that it takes: with as many units as
/// `bytes` takes, but no more bytes than `most`. Outputs of just these bytes take one more unit,
/// which is empty. As it is where a unit is no smaller, or where entries of `entry_bytes` are too
/// large for that.
fn filled(unit: u64, bytes: u64, most: u64, entry_bytes: u64) -> u64 {
    let rest = UNIT_REST_BYTES.saturating_add(entry_bytes);
    if unit / 2 <= rest || bytes < unit {
        return bytes;
    }
    let units = bytes.saturating_add(rest).div_ceil(unit);
    let filled = units.saturating_mul(unit) - rest;
    if filled <= most { filled } else { filled - unit }
}

/// Bytes of an entry of these tables, as large as most of them are.
fn entry_bytes(inputs: &[&TableMeta]) -> u64 {
    let bytes = inputs.iter().map(|table| table.bytes).fold(0, u64::saturating_add);
    let entries = inputs.iter().map(|table| table.entries).fold(0, u64::saturating_add);
    bytes / entries.max(1)
}

/// Balanced outputs may have this part more than their share: so much less is planned for a slot.
const BALANCE_DIVISOR: u64 = 64;

/// Rule: where tables are made to fit slots, outputs are as large as a slot has room for, or
/// balanced: as many as these, of about the same size. The size, and whether it is a slot's.
fn sizes(shape: &Shape, inputs: &[&TableMeta], table_bytes: u64) -> (u64, bool) {
    let Some(room) = shape.options.slot_room() else {
        let (unit, entry_bytes) = (shape.table_unit, entry_bytes(inputs));
        let table_bytes = filled(unit, table_bytes, table_bytes, entry_bytes);
        return (filled(unit, cut_evenly(inputs, table_bytes), table_bytes, entry_bytes), false);
    };
    if shape.options.debug.odd_chunk != OddChunk::Balanced {
        return (room, true);
    }
    let input_bytes: u64 = inputs.iter().map(|table| table.visible_bytes()).sum();
    let outputs = input_bytes.div_ceil((room - room / BALANCE_DIVISOR).max(1)).max(1);
    let share = input_bytes.div_ceil(outputs);
    ((share + share / BALANCE_DIVISOR + 1).min(room), true)
}

/// Rule: whole runs are merged next, so there is nothing below to align with, and no job becomes
/// smaller by smaller tables.
pub(super) fn by_size(shape: &Shape, merge: &MergeTask) -> Plan {
    let (table_bytes, fits) = sizes(shape, &inputs(shape, merge), shape.options.table_bytes.max(1));
    Plan { table_bytes, fits, ..Plan::of_bytes(table_bytes) }
}

/// Rule: single tables are merged next, so outputs are aligned with what lies below them: the
/// filling part of the next level that has tables.
pub(super) fn aligned(shape: &Shape, merge: &MergeTask) -> Plan {
    let inputs = inputs(shape, merge);
    let bounds = inputs.iter().map(|table| KeyBounds::of(table)).reduce(KeyBounds::union);
    let next = merge.output.level.deeper().find(|&level| in_use(shape, level));
    let below = match (next, bounds) {
        // Several runs there become one before they are merged with: the largest tells most.
        (Some(level), Some(bounds)) => placed(shape, level)
            .filter(|place| place.part == PartKind::Filling)
            .max_by_key(Placed::bytes)
            .into_iter()
            .flat_map(|place| place.over(bounds).tables().map(Below::of))
            .collect(),
        _ => Vec::new(),
    };
    let (table_bytes, fits) = sizes(shape, &inputs, shape.table_bytes());
    let keeps = odd_chunk::kept_by(shape, merge);
    Plan { table_bytes, fits, keeps, below_bytes_max: overlap_bytes_max(shape), below }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an output fills the units that it takes, whatever its entries, and takes no more than
    /// it may. Method: sizes about units, with entries that are small, and some that are too large.
    #[test]
    fn outputs_fill_their_units() {
        const UNIT: u64 = 64 << 10;
        for entry in [16, 1000, 5000, 10_000] {
            let rest = UNIT_REST_BYTES + entry;
            for bytes in (UNIT..40 * UNIT).step_by(999) {
                let output = filled(UNIT, bytes, bytes, entry);
                assert!(output <= bytes, "{output} of {bytes}");
                assert_eq!((output + rest) % UNIT, 0, "{output} of {bytes}, entries of {entry}");
                assert!(bytes - output < UNIT || bytes < 2 * UNIT, "{output} of {bytes}");
                // The last unit is used up to the rest, and what comes with the last entry fits.
                assert_eq!(
                    (output + entry + 2 * TRAILER_BYTES).div_ceil(UNIT),
                    (output + rest) / UNIT
                );
                // One that may be larger takes no more units.
                let larger = filled(UNIT, bytes, u64::MAX, entry);
                assert!(larger >= output && larger + rest >= bytes, "{larger} of {bytes}");
            }
        }
        for (unit, bytes, entry) in
            [(UNIT, UNIT - 1, 16), (UNIT, 9 * UNIT, 20_000), (4096, 1 << 20, 9)]
        {
            assert_eq!(filled(unit, bytes, bytes, entry), bytes);
        }
    }
}
