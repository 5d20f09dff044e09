//! Small stores by chance, which get full.

use weir::sim::{Prng, SimDisk, format_in};
use weir::{
    CompactionPolicy, Compression, FormatOptions, LeveledOptions, Options, PartsOptions,
    RunsOptions,
};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// The name of a store's file, where it is in one.
pub const STORE: &str = "store.weir";

/// The shape of a store, and of what fills it.
#[derive(Debug)]
pub struct Shape {
    pub policy: CompactionPolicy,
    pub mib: u64,
    pub table_kib: u64,
    pub buffer_kib: u64,
    pub key_bytes: usize,
    /// Values have this much at most.
    pub value_bytes: u64,
    pub keys: u64,
}

impl Shape {
    pub fn options(&self) -> Options {
        Options::default()
            .compaction(self.policy)
            .write_buffer_bytes(self.buffer_kib * KIB)
            .table_bytes(self.table_kib * KIB)
            .compression([Compression::None])
    }

    /// Makes a file of it.
    pub fn format(&self, disk: &SimDisk) {
        let options = FormatOptions::new().slot_bytes(64 * KIB).log_bytes(2 * MIB);
        format_in(&disk.dir(), STORE, self.mib * MIB, &options).expect("it is formatted");
    }

    pub fn key(&self, number: u64) -> Vec<u8> {
        let mut key = format!("{number:08}").into_bytes();
        key.resize(self.key_bytes, b'x');
        key
    }
}

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
