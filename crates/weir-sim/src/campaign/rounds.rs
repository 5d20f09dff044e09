//! The rounds of `gear`: a tree that only grows is looked at whenever it is at rest.
//!
//! What must hold (H49), by an oracle that shares no code with the policy and sees what `describe`
//! says: a part that began to drain was full, so its bytes when it was rotated are at least a unit
//! (the larger of a write buffer and a batch of level 0), and each level has given as much of its
//! draining part, in bytes, as it has received of its target, to within what one job takes.

use std::collections::BTreeSet;

use weir::sim::Prng;
use weir::{
    CompactionPolicy, DbOptions, DebugOptions, Durability, LevelDescription, Options, PartsOptions,
};

use crate::world::{self, Disk, Schedule};

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Entries written.
    pub puts: u64,
    /// Times that the tree was at rest.
    pub rests: u64,
    /// Rounds that were seen to drain.
    pub rounds: u64,
}

/// Entries of a memtable: tables are flushed by count, far below the write buffer's bytes.
const MEMTABLE_ENTRIES: u64 = 20;

fn sizes() -> PartsOptions {
    PartsOptions::default().base_level_bytes(16 << 10).level_ratio(3).l0_trigger(2)
}

fn options() -> Options {
    Options::default()
        .compaction(CompactionPolicy::Gear(sizes()))
        .write_buffer_bytes(4 << 10)
        .debug(DebugOptions::default().write_buffer_entries(MEMTABLE_ENTRIES))
        .block_bytes(512)
        .table_bytes(1 << 10)
}

fn bytes(level: &LevelDescription, draining: bool) -> u64 {
    let runs = level.runs.iter().filter(|run| run.draining == draining);
    runs.flat_map(|run| &run.tables).map(|table| table.bytes).sum()
}

/// What is wrong with a tree of `options` at rest; adds the rounds that it sees to `rounds`.
fn violation(
    options: &Options,
    levels: &[LevelDescription],
    rounds: &mut BTreeSet<(usize, u64)>,
) -> Option<String> {
    let sizes = sizes();
    let unit = options.write_buffer_bytes.max(sizes.base_level_bytes / sizes.l0_trigger as u64);
    let largest = levels.iter().skip(1).map(|l| bytes(l, false) + bytes(l, true)).max()?;
    let mut target = largest;
    for (number, level) in levels.iter().enumerate().skip(1).rev().skip(1) {
        target = (target / u64::from(sizes.level_ratio)).max(unit);
        let Some(epoch) = level.runs.iter().filter(|run| run.draining).map(|run| run.epoch).max()
        else {
            continue;
        };
        rounds.insert((number, epoch));
        let (rotated, left) = (level.rotated_bytes, bytes(level, true));
        if rotated < unit {
            return Some(format!(
                "level {number} began a round with {rotated} bytes, a full part has at least {unit}"
            ));
        }
        let due = (bytes(level, false) as f64 / target as f64 * rotated as f64) as u64;
        let late = due.min(rotated).saturating_sub(rotated - left);
        let job = (rotated / 8).max(options.table_bytes) + options.table_bytes;
        if late > job {
            return Some(format!(
                "level {number} is {late} bytes behind its gear, one job takes {job}: {rotated} \
                 bytes began to drain, {left} are left, {} of {target} were received",
                bytes(level, false)
            ));
        }
    }
    None
}

/// Grows a tree by `puts` entries.
///
/// # Errors
/// The first violation, with the number of entries before it.
pub fn run(seed: u64, puts: u64) -> Result<Report, String> {
    let schedule = Schedule::new(seed, 64);
    world::simulate(schedule, move || {
        let disk = Disk::new();
        let text = |error: weir::Error| error.to_string();
        let store = DbOptions::default().memory_budget(1 << 20).background_threads(1);
        let builder = disk.builder(seed).options(store);
        let db = builder.default_options(options()).open().map_err(text)?;
        let mut prng = Prng::new(seed);
        let (mut report, mut rounds) = (Report::default(), BTreeSet::new());
        while report.puts < puts {
            for _ in 0..MEMTABLE_ENTRIES {
                let key = prng.next_u64().to_be_bytes();
                let value = vec![report.puts as u8; prng.below(60) as usize];
                db.put_with(key, value, Durability::Buffered).map_err(text)?;
                report.puts += 1;
            }
            db.wait_idle().map_err(text)?;
            report.rests += 1;
            let described = db.describe();
            let levels = described.keyspaces.first().ok_or("a store has a keyspace")?;
            if let Some(what) = violation(&options(), &levels.levels, &mut rounds) {
                return Err(format!("after {} entries: {what}", report.puts));
            }
        }
        report.rounds = rounds.len() as u64;
        db.close().map_err(text)?;
        Ok(report)
    })?
}
