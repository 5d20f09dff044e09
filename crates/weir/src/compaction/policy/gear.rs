//! `gear`: every level fills at the pace at which it drains, byte for byte.
//!
//! Source: bLSM (Sears and Ramakrishnan, SIGMOD 2012), generalised to every level by LSbM §4.1:
//! |C_i| + |C'_i| is constant, so that when the filling part C_i is full the draining part C'_i is
//! empty, and the two change roles. Merges are driven by the merges above them, in the end by the
//! writer, who finds level 0 drained in bounded time whatever happens below. We differ:
//! * Levels are numbered from the bottom (`targets`); when the last level outgrows its ratio to the
//!   one above, a new level begins above all others instead of below.
//! * The pace is kept to within a *quantum* (at most what one job takes), because what a job
//!   overlaps in the next level is only half covered at the two ends.
//! * Level 0 drains as soon as there is a run: the next memtable fills in the meantime. LSbM merges
//!   from C'_0 while it is in memory; here it is the oldest flushed run (`parts`).
//!
//! Not here: tables and runs (`parts`), the delay of writers (`pacing`).
//!
//! Invariants: those of `parts`, and (1) pace counts bytes, never tables (H49); (2) a round begins
//! with a full filling part only, never with what happens to be there when the draining part is
//! empty (H49); (3) nothing comes into a full level that has not been rotated yet, except where
//! another policy left a tree out of form and writers would have to wait for it.

use crate::base::ids::Level;
use crate::compaction::policy::geometry::{draining_bytes, filling_bytes, in_use};
use crate::compaction::policy::moves::take_bytes_max;
use crate::compaction::policy::parts::{self, PartsPolicy, Picker};
use crate::compaction::policy::targets::Targets;
use crate::compaction::task::Reason;
use crate::version::shape::Shape;

/// A quantum is at most this part of what the draining part began with, but never less than a
/// table: small levels keep pace in small steps.
const QUANTUM_DIVISOR: u64 = 8;

/// Runs in level 0, in multiples of the trigger, from which on it does not wait for a tree that
/// another policy left: half of what slows writers (`pacing`), so that they seldom are.
const PATIENCE: usize = 2;

/// The gear policy.
pub(crate) struct Gear;

impl PartsPolicy for Gear {
    /// The rules, the deepest level first: what is behind its gear below holds up what comes from
    /// above, and each level can only be a quantum behind.
    fn pick_parts(&self, picker: &mut Picker<'_>) {
        let mut receivers = Receivers::of(picker.shape);
        receivers.bottom &= !picker.unstack_bottom();
        for level in Level::inner().rev() {
            pick_level(picker, &receivers, level);
        }
        pick_level_0(picker, &receivers);
    }

    fn bytes_late(&self, shape: &Shape, targets: &Targets, level: Level) -> u64 {
        behind(shape, targets, level)
    }

    /// What gear promises at rest: nothing but sentinels in level 0, and no level full or more than
    /// a quantum behind.
    fn check_pace(&self, shape: &Shape, targets: &Targets) -> Vec<String> {
        let mut violations = Vec::new();
        if shape.l0_flushed_runs() > 0 {
            violations.push(format!("level 0 has {} runs", shape.l0_flushed_runs()));
        }
        for level in Level::inner() {
            let late = behind(shape, targets, level);
            let rotated = draining_bytes(shape, level).map_or(0, |(_, rotated)| rotated);
            if is_full(shape, targets, level) || late >= quantum(shape, rotated) {
                violations.push(format!("level {level} is {late} bytes behind its gear"));
            }
        }
        violations
    }
}

/// Bytes that a level may be behind its gear.
fn quantum(shape: &Shape, rotated: u64) -> u64 {
    let most = take_bytes_max(shape);
    (rotated / QUANTUM_DIVISOR).clamp(shape.table_bytes().min(most), most)
}

/// Whether a level has received what it should before it is rotated. Above the base level, and
/// where another policy left several runs in a part, that is anything.
fn is_full(shape: &Shape, targets: &Targets, level: Level) -> bool {
    let bytes = filling_bytes(shape, level);
    bytes > 0 && (parts::has_several(shape, level) || bytes >= targets.bytes[level])
}

/// Whether all that a level drains has to go at once: it is full, should be empty, or another
/// policy left several runs there.
fn is_overdue(shape: &Shape, targets: &Targets, level: Level) -> bool {
    let out_of_form = targets.bytes[level] == 0 || parts::has_several(shape, level);
    out_of_form || is_full(shape, targets, level)
}

/// Rule: the gear. The part of the draining run that has been given is at least the part of the
/// level's target that has been received. Bytes that are missing to that.
fn behind(shape: &Shape, targets: &Targets, level: Level) -> u64 {
    let Some((left, rotated)) = draining_bytes(shape, level) else {
        // Nothing is late as long as the level is not full; a full one is rotated at once.
        let over = is_full(shape, targets, level) && targets.bytes[level] == 0;
        return if over { filling_bytes(shape, level) } else { 0 };
    };
    if is_overdue(shape, targets, level) {
        return left;
    }
    let received = filling_bytes(shape, level) as f64 / targets.bytes[level] as f64;
    let due = (received * rotated as f64) as u64;
    due.saturating_sub(rotated - left).min(left)
}

/// Which levels may receive.
struct Receivers {
    /// The last level is one run.
    bottom: bool,
    /// Level 0 has too many runs to wait for the form of the tree.
    urgent: bool,
}

impl Receivers {
    fn of(shape: &Shape) -> Self {
        let patience =
            PATIENCE.saturating_mul(shape.options.compaction.level_sizes().l0_trigger.max(1));
        Self { bottom: true, urgent: shape.l0_flushed_runs() >= patience }
    }

    /// Rule: a full level receives nothing before it is rotated, a level above the base is emptied
    /// first, and the last level gets its one run first. The latter two wait for no writer.
    fn may_receive(&self, shape: &Shape, targets: &Targets, level: Level) -> bool {
        if level == Level::LAST {
            return self.bottom || self.urgent;
        }
        if targets.bytes[level] == 0 {
            return self.urgent || !in_use(shape, level);
        }
        !is_full(shape, targets, level)
    }
}

/// Rule: a level that is a quantum behind its gear, or full, drains; an empty draining part and a
/// full filling part change roles.
fn pick_level(picker: &mut Picker<'_>, receivers: &Receivers, level: Level) {
    let shape = picker.shape;
    let full = is_full(shape, &picker.targets, level);
    let above_base = picker.targets.bytes[level] == 0;
    let reason = if above_base { Reason::Drain } else { Reason::LevelBytes };
    let Some((_, rotated)) = draining_bytes(shape, level) else {
        if full {
            picker.rotate(level, reason);
        }
        return;
    };
    let late = behind(shape, &picker.targets, level);
    let overdue = late > 0 && is_overdue(shape, &picker.targets, level);
    let due = overdue || late >= quantum(shape, rotated);
    let next = picker.next_level(level);
    if due && (above_base || receivers.may_receive(shape, &picker.targets, next)) {
        picker.drain(level, late, reason);
    }
}

/// Rule: level 0 drains as long as it has a run. Sentinels beyond their cap, which are older than
/// most of it, go before it unless writers may have to wait.
fn pick_level_0(picker: &mut Picker<'_>, receivers: &Receivers) {
    let shape = picker.shape;
    let next = picker.next_level(Level::ZERO);
    if !receivers.may_receive(shape, &picker.targets, next) {
        return;
    }
    if receivers.urgent || !picker.drain_sentinels() {
        picker.drain(Level::ZERO, take_bytes_max(shape), Reason::RunCount);
    }
}
