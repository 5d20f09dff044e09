//! Policies of small stores, by chance.

use weir::sim::Prng;
use weir::{CompactionPolicy, LeveledOptions, PartsOptions, RunsOptions};

const MIB: u64 = 1 << 20;

/// The policy of this number, modulo all of them, with options by chance.
pub fn policy(prng: &mut Prng, which: u64) -> CompactionPolicy {
    let runs = RunsOptions::default().runs_per_level(2 + prng.below(6) as usize);
    let levels = LeveledOptions::default().base_level_bytes(MIB);
    let levels = levels.l0_trigger(1 + prng.below(5) as usize);
    let parts = PartsOptions::default().base_level_bytes(MIB).expected_bytes(64 * MIB);
    let parts = parts.l0_trigger(1 + prng.below(2) as usize);
    match which % 7 {
        0 => CompactionPolicy::Leveled(levels),
        1 => CompactionPolicy::Tiered(runs),
        2 => CompactionPolicy::LazyLeveled(runs),
        3 => CompactionPolicy::SizeTiered(runs),
        4 => CompactionPolicy::SteppedMerge(runs),
        5 => CompactionPolicy::Gear(parts),
        _ => CompactionPolicy::TwoPhase(parts),
    }
}
