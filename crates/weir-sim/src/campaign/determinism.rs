//! The same seed, run twice, takes the same decisions and leaves the same bytes on the disk.

use crate::campaign::metamorphic;

/// Runs this many episodes twice each.
///
/// # Errors
/// The first seed whose runs differ, or a violation in a run.
pub fn run(seed: u64, episodes: u64) -> Result<u64, String> {
    let mut ops = 0;
    for number in 0..episodes {
        let (schedule, list) = metamorphic::episode(seed, number);
        let list = &list[..list.len().min(4_000)];
        let once = || {
            metamorphic::execute(schedule, list).map_err(|(why, at)| {
                format!("seed {seed}, episode {number}, operation {at}: {why}")
            })
        };
        let (first, second) = (once()?, once()?);
        if first.1 != second.1 {
            return Err(format!(
                "seed {seed}, episode {number}: two runs differ (disk, decisions, schedule): {:?} \
                 and {:?}",
                first.1, second.1
            ));
        }
        ops += first.0.ops;
    }
    Ok(ops)
}
