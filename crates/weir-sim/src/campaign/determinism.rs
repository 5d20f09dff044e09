//! The same seed, run twice, takes the same decisions and leaves the same bytes on the disk.
//!
//! What all episodes leave is folded into two numbers, so that two builds can be compared: a change
//! that is meant to change no behaviour leaves both as they are.

use crate::campaign::metamorphic;

/// What a run of the campaign has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations of all episodes, each counted once.
    pub ops: u64,
    /// A digest of the bytes on the disks of all episodes.
    pub bytes: u64,
    /// A digest of the decisions of their schedules.
    pub decisions: u64,
}

/// Runs this many episodes twice each.
///
/// # Errors
/// The first seed whose runs differ, or a violation in a run.
pub fn run(seed: u64, episodes: u64) -> Result<Report, String> {
    let mut report = Report::default();
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
        let (disk, count, hash) = first.1;
        report.ops += first.0.ops;
        report.bytes = fold(report.bytes, disk);
        report.decisions = fold(fold(report.decisions, count), hash);
    }
    Ok(report)
}

/// `digest` with one more number, in order.
fn fold(digest: u64, number: u64) -> u64 {
    (digest.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
