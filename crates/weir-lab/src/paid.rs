//! Whether the engine's sentinels pay: what scans save by each, beside what was written for it.
//!
//! A scan of a range that lay in `r` runs saves `r - 1` blocks in a sentinel of it, and of a scan
//! that is partly in it that part. A sentinel ends when its range is claimed no longer, when
//! another one takes its place, or with the run. It has paid when that is no less than the blocks
//! that it was built of. What it costs on its way down is not counted, nor what it still saves when
//! it has sunk.
//!
//! Not here: what is scanned (`count`), which range is moved (the engine).

use std::ops::Range;

use weir::Db;
use weir_bench::KeySpace;

use crate::sentinels::Sentinels;
use crate::settings::Settings;
use crate::store;

/// A sentinel that is there.
#[derive(Clone, Debug)]
struct Standing {
    /// Its keys, by number.
    keys: Range<u64>,
    runs: u64,
    blocks: f64,
    saved: f64,
}

/// The sentinels of a store, and how many ended without having paid.
pub struct Paid {
    space: KeySpace,
    block_bytes: f64,
    standing: Vec<Standing>,
    unpaid: u64,
    /// Sentinels, and changes of the tree, that are known.
    built: u64,
    changes: u64,
}

impl Paid {
    /// Of a store whose engine builds sentinels by itself.
    #[must_use]
    pub fn of(settings: &Settings) -> Option<Self> {
        let builds = matches!(settings.store.sentinels, Sentinels::Paper | Sentinels::Corrected);
        builds.then(|| Self {
            space: store::keys(settings),
            block_bytes: f64::from(settings.store.block_bytes.max(1)),
            standing: Vec::new(),
            unpaid: 0,
            built: 0,
            changes: 0,
        })
    }

    /// Looks at what was built and what ended since it looked last.
    pub fn look(&mut self, db: &Db) {
        let metrics = db.metrics();
        let changes = metrics.flushes + metrics.compactions + metrics.trivial_moves;
        let built = metrics.sentinels_built;
        if (built, changes) == (self.built, self.changes) {
            return;
        }
        let new = usize::try_from(built - self.built).unwrap_or(usize::MAX);
        (self.built, self.changes) = (built, changes);
        for keyspace in db.describe().keyspaces {
            let sentinels = keyspace.levels.iter().flat_map(|level| &level.runs);
            let claims = sentinels.filter(|run| run.sentinel).flat_map(|run| &run.claims);
            let claims: Vec<Range<u64>> =
                claims.map(|(from, to)| self.numbers(from, to.as_deref())).collect();
            self.end(|standing| !claims.iter().any(|claim| meet(claim, &standing.keys)));
            let up = keyspace.moved_ranges.iter().rev().filter(|range| range.up).take(new);
            for range in up.collect::<Vec<_>>().into_iter().rev() {
                let keys = self.numbers(&range.from, range.to.as_deref());
                self.end(|standing| meet(&keys, &standing.keys));
                let blocks = range.bytes as f64 / self.block_bytes;
                self.standing.push(Standing { keys, runs: range.runs as u64, blocks, saved: 0.0 });
            }
        }
    }

    /// Notes a scan of the keys from number `from` on, up to `to`, which is not of it.
    pub fn scanned(&mut self, from: u64, to: u64) {
        for standing in &mut self.standing {
            let inside = standing.keys.end.min(to).saturating_sub(standing.keys.start.max(from));
            let part = inside as f64 / (to - from).max(1) as f64;
            standing.saved += part * standing.runs.saturating_sub(1) as f64;
        }
    }

    /// Sentinels that had not paid when they, or the run, ended.
    #[must_use]
    pub fn unpaid(mut self) -> u64 {
        self.end(|_| true);
        self.unpaid
    }

    /// Those that `has_ended` says of have ended.
    fn end(&mut self, has_ended: impl Fn(&Standing) -> bool) {
        let unpaid = &mut self.unpaid;
        self.standing.retain(|standing| {
            let ended = has_ended(standing);
            *unpaid += u64::from(ended && standing.saved < standing.blocks);
            !ended
        });
    }

    /// The numbers of the loaded keys from `from` on, up to below `to`.
    fn numbers(&self, from: &[u8], to: Option<&[u8]>) -> Range<u64> {
        let first = |key: &[u8]| self.first_from(key);
        first(from)..to.map_or(self.space.len(), first)
    }

    /// The number of the first loaded key that is not below `key`.
    fn first_from(&self, key: &[u8]) -> u64 {
        let (mut low, mut high, mut at) = (0, self.space.len(), Vec::new());
        while low < high {
            let middle = low + (high - low) / 2;
            self.space.existing(middle, &mut at);
            if at.as_slice() < key { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// Whether there is a key in both.
fn meet(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    fn paid(sentinels: Sentinels) -> Option<Paid> {
        let experiment = catalog::named("bilsm-table1").expect("built in");
        let mut settings = experiment.runs[0].settings.clone();
        settings.store.sentinels = sentinels;
        Paid::of(&settings)
    }

    /// Goal: a sentinel has paid when scans of its keys saved as much as it was built of, by the
    /// part of each that is in it; and nobody counts where the engine builds none.
    #[test]
    fn what_is_saved_pays() {
        assert!(paid(Sentinels::Forced).is_none() && paid(Sentinels::Down).is_none());
        let with = |scans: &[(u64, u64)]| {
            let mut paid = paid(Sentinels::Corrected).expect("it counts");
            let keys = 1000..3000;
            paid.standing.push(Standing { keys, runs: 5, blocks: 8.0, saved: 0.0 });
            scans.iter().for_each(|&(from, to)| paid.scanned(from, to));
            paid.unpaid()
        };
        assert_eq!(with(&[]), 1);
        assert_eq!(with(&[(1000, 3000), (1500, 1600)]), 0, "four blocks twice");
        assert_eq!(with(&[(1000, 3000), (2000, 4000)]), 1, "four and two");
        assert_eq!(with(&[(3000, 4000), (0, 1000), (1, 2)]), 1);
    }

    /// Goal: keys are found by their numbers, and what ends is no longer there.
    #[test]
    fn bounds_are_numbers() {
        let mut paid = paid(Sentinels::Paper).expect("it counts");
        let mut key = Vec::new();
        paid.space.existing(77, &mut key);
        assert_eq!(paid.numbers(&key, None), 77..paid.space.len());
        assert_eq!(paid.numbers(b"", Some(&key)), 0..77);
        paid.standing.push(Standing { keys: 5..9, runs: 2, blocks: 0.0, saved: 0.0 });
        paid.end(|standing| meet(&(8..12), &standing.keys));
        assert!(paid.standing.is_empty() && paid.unpaid() == 0);
        assert!(!meet(&(1..5), &(5..9)));
    }
}
