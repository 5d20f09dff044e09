//! Long delays of actors: in virtual time, or in turns of the others.
//!
//! Random choice alone rarely lets more than a few switches pass between two steps of an actor. A
//! bug that needs a flush or a whole merge between them is found by delaying an actor on purpose,
//! as a busy machine does. Where others spend virtual time (device requests) a *pause* does that;
//! where they touch memory only, no time passes, and a *hold* counts turns instead.
//!
//! Invariant: an actor that is held runs when no other can, so that a hold makes no deadlock.

use std::time::Duration;

use super::State;

/// Longest pause of an actor (see `pause_one_in` of the settings): 32 ms, some hundred syncs.
const PAUSE_NANOS_MAX: u64 = 1 << 25;

/// Shortest pause: 1 µs.
const PAUSE_NANOS_MIN: u64 = 1 << 10;

/// Longest hold of an actor, in decisions (see `hold_one_in` of the settings): those of a flush and
/// a compaction or two.
const HOLD_DECISIONS_MAX: u64 = 1 << 12;

/// Shortest hold: longer than random choice alone is likely to be.
const HOLD_DECISIONS_MIN: u64 = 1 << 6;

impl State {
    /// How long the actor at a switch point of a protocol is paused, if it is: every magnitude is
    /// equally likely.
    pub(super) fn draw_pause(&mut self) -> Option<Duration> {
        let one_in = self.settings.pause_one_in;
        if one_in == 0 || !self.prng.chance(1, one_in) {
            return None;
        }
        let magnitudes = u64::from((PAUSE_NANOS_MAX / PAUSE_NANOS_MIN).ilog2());
        let least = PAUSE_NANOS_MIN << self.prng.below(magnitudes);
        Some(Duration::from_nanos(least + self.prng.below(least)))
    }

    /// Which runnable actor runs next.
    pub(super) fn draw_runnable(&mut self, decisions: u64) -> usize {
        let held = self.held.filter(|&(_, until)| decisions < until).map(|(id, _)| id);
        let at_held = self.runnable.iter().position(|&id| Some(id) == held);
        let others = self.runnable.len() - usize::from(at_held.is_some());
        if others == 0 {
            return 0;
        }
        let at = self.prng.below(others as u64) as usize;
        at + usize::from(at_held.is_some_and(|held| at >= held))
    }

    /// Holds `id` from now on, if the seed says so.
    pub(super) fn maybe_hold(&mut self, id: usize, decisions: u64) {
        let one_in = self.settings.hold_one_in;
        let free = self.held.is_none_or(|(_, until)| until <= decisions);
        if one_in > 0 && free && self.prng.chance(1, one_in) {
            self.held = Some((id, decisions + self.draw_hold()));
        }
    }

    /// Length of a hold in decisions: every magnitude is equally likely.
    fn draw_hold(&mut self) -> u64 {
        let magnitudes = u64::from((HOLD_DECISIONS_MAX / HOLD_DECISIONS_MIN).ilog2());
        let least = HOLD_DECISIONS_MIN << self.prng.below(magnitudes);
        least + self.prng.below(least)
    }
}
