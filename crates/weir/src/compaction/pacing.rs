//! Back-pressure on writers: a smooth delay per written byte, never a switch.
//!
//! Source: bLSM (Sears and Ramakrishnan, SIGMOD 2012), section 4.3, the spring: the fuller the pool
//! above, the stronger it pushes back, so that writers settle at the speed of the merges instead of
//! running into a wall. We differ: three springs (memtables waiting for their flush, level-0 runs,
//! bytes of compaction debt) instead of the fill of one memtable, and the tightest one counts.
//!
//! Pure functions. Not here: waiting (`write` adds the delays up and waits once per commit group)
//! and the wall itself (`write` blocks at `SPRING_FULL`).
//!
//! Invariants: (1) the delay is 0 while every spring is slack; (2) it never falls when any part of
//! the load grows; (3) it is at most [`DELAY_MAX`].

use crate::compaction::policy::{L0_SLACK, Pressure};

/// The extension of a spring at which writers have to wait for background work: the wall.
pub(crate) const SPRING_FULL: f64 = 1.0;

/// Delay at half extension, in nanoseconds per byte: 10 ns/B lets 100 MB/s through, which is what
/// one core flushes and merges at a write amplification of about 5 (at 0.7 GB/s of merging).
const DELAY_HALF: f64 = 10.0;

/// Largest delay, in nanoseconds per byte: lets 1 MB/s through.
pub(crate) const DELAY_MAX: f64 = 1000.0;

/// Level-0 runs, in multiples of the trigger, at which the spring is full.
const L0_FULL: f64 = 9.0;

/// Compaction debt, in multiples of what one round of level-0 compaction costs, at which the spring
/// begins to pull and is full.
const DEBT_SLACK: f64 = 4.0;
const DEBT_FULL: f64 = 64.0;

/// Memtables of one keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// Memtables that wait for their flush.
    pub(crate) immutables: usize,
    /// Memtables that may wait before writers have to; at least 1.
    pub(crate) immutables_max: usize,
    /// How full the active memtable is, 0 to 1.
    pub(crate) active_fill: f64,
}

/// How far a value has pulled its spring: 0 at `slack`, 1 at `full`, linear between and beyond.
fn extension(value: f64, slack: f64, full: f64) -> f64 {
    debug_assert!(slack < full, "a spring from {slack} to {full} has no length");
    ((value - slack) / (full - slack)).max(0.0)
}

/// Extension of the level-0 spring.
pub(crate) fn level0_spring(pressure: &Pressure) -> f64 {
    extension(pressure.l0_runs as f64 / pressure.l0_trigger.max(1) as f64, L0_SLACK as f64, L0_FULL)
}

/// Extension of the debt spring.
pub(crate) fn debt_spring(pressure: &Pressure) -> f64 {
    if pressure.debt_unit_bytes == 0 {
        return 0.0;
    }
    let rounds = pressure.debt_bytes as f64 / pressure.debt_unit_bytes as f64;
    // Debt alone never stops writers: it is an estimate, and level 0 shows it soon enough.
    extension(rounds, DEBT_SLACK, DEBT_FULL).min(0.99 * SPRING_FULL)
}

/// Extension of the memtable spring: slack while at most half of the memtables wait, full when the
/// last one that may is about to.
pub(crate) fn memtable_spring(memory: &Memory) -> f64 {
    let max = memory.immutables_max.max(1) as f64;
    let waiting = memory.immutables as f64 + memory.active_fill.clamp(0.0, 1.0);
    extension(waiting, 1.0 + max / 2.0, 1.0 + max)
}

/// The tightest spring. Writers must wait at [`SPRING_FULL`] and beyond.
pub(crate) fn tightest(pressure: &Pressure, memory: &Memory) -> f64 {
    level0_spring(pressure).max(debt_spring(pressure)).max(memtable_spring(memory))
}

/// Delay in nanoseconds per byte for a spring pulled to `extension`: x/(1-x), so that it starts
/// from nothing without a step and grows without bound towards the wall, cut at [`DELAY_MAX`].
pub(crate) fn spring_delay(extension: f64) -> f64 {
    if extension <= 0.0 {
        return 0.0;
    }
    if extension >= SPRING_FULL {
        return DELAY_MAX;
    }
    (DELAY_HALF * extension / (SPRING_FULL - extension)).min(DELAY_MAX)
}

/// The delay that writers owe per byte, in nanoseconds.
pub(crate) fn delay_nanos_per_byte(pressure: &Pressure, memory: &Memory) -> f64 {
    spring_delay(tightest(pressure, memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::prng::Prng;

    fn load(prng: &mut Prng) -> (Pressure, Memory) {
        let l0_trigger = 1 + prng.below(8) as usize;
        let immutables_max = 1 + prng.below(8) as usize;
        (
            Pressure {
                l0_runs: prng.below(6 * l0_trigger as u64 + 1) as usize,
                l0_trigger,
                debt_bytes: prng.below(100 << 30),
                debt_unit_bytes: prng.below(4) << 28,
            },
            Memory {
                immutables: prng.below(immutables_max as u64 + 2) as usize,
                immutables_max,
                active_fill: prng.below(101) as f64 / 100.0,
            },
        )
    }

    /// Goal: a tree in shape costs writers nothing. Method: every state up to the slack of each
    /// spring, with the default options.
    #[test]
    fn a_healthy_tree_does_not_delay() {
        for l0_runs in 0..=8 {
            for immutables in 0..=2 {
                let pressure = Pressure {
                    l0_runs,
                    l0_trigger: 4,
                    debt_bytes: 4 << 30,
                    debt_unit_bytes: 1 << 30,
                };
                let memory = Memory { immutables, immutables_max: 4, active_fill: 1.0 };
                assert_eq!(delay_nanos_per_byte(&pressure, &memory), 0.0);
            }
        }
    }

    /// Goal: more load never means less delay, and the delay is bounded. Method: random loads, each
    /// compared with a copy in which one part is larger.
    #[test]
    fn delay_is_monotone_and_bounded() {
        let seed = 0x5eed_0001;
        println!("seed {seed:#x}");
        let mut prng = Prng::new(seed);
        for _ in 0..20_000 {
            let (pressure, memory) = load(&mut prng);
            let delay = delay_nanos_per_byte(&pressure, &memory);
            assert!((0.0..=DELAY_MAX).contains(&delay), "{delay} for {pressure:?} {memory:?}");
            let (mut more, mut fuller) = (pressure, memory);
            match prng.below(4) {
                0 => more.l0_runs += 1 + prng.below(10) as usize,
                1 => more.debt_bytes += prng.below(10 << 30),
                2 => fuller.immutables += 1,
                _ => fuller.active_fill = (fuller.active_fill + 0.1).min(1.0),
            }
            let then = delay_nanos_per_byte(&more, &fuller);
            assert!(then >= delay, "{delay} fell to {then}: {more:?} {fuller:?}");
        }
    }

    /// Goal: no step at which throughput falls off a cliff. Method: walk a spring in steps of 0.1 %
    /// of its length; below 90 % each step changes the writers' speed by less than 2 % of 100 MB/s
    /// on top of a base cost of 10 ns per byte.
    #[test]
    fn delay_is_smooth() {
        let speed = |x: f64| 1e9 / (10.0 + spring_delay(x));
        let mut before = speed(0.0);
        for i in 1..=1100 {
            let now = speed(f64::from(i) / 1000.0);
            assert!(now <= before && before - now < 2e6, "step {i}: {before} to {now}");
            before = now;
        }
    }

    #[test]
    fn walls() {
        let full = |l0_runs| Pressure { l0_runs, l0_trigger: 4, ..Pressure::default() };
        let calm = Memory { immutables: 0, immutables_max: 4, active_fill: 0.0 };
        assert!(tightest(&full(35), &calm) < SPRING_FULL);
        assert!(tightest(&full(36), &calm) >= SPRING_FULL);
        let memory =
            |immutables, active_fill| Memory { immutables, immutables_max: 4, active_fill };
        assert!(tightest(&full(0), &memory(4, 0.99)) < SPRING_FULL);
        assert!(tightest(&full(0), &memory(4, 1.0)) >= SPRING_FULL);
        let debt = Pressure { debt_bytes: u64::MAX, debt_unit_bytes: 1, ..full(0) };
        assert!(tightest(&debt, &calm) < SPRING_FULL);
    }
}
