//! Where keys that a run has twice are cached: in the tables that its buffer list keeps, in its
//! own, or in both.
//!
//! A lookup of a key that a list answers for reads the list's copy, although the run's block may be
//! the one that is in the cache: a scan brought it there, a lookup of a key beside it that the list
//! does not answer for, or the compaction that wrote it. dLSM §V-B leaves open who should answer.
//! How much there is to be won is what this tells.
//!
//! Not here: what is trimmed for being cold (`lists`), which counts blocks of single tables.

use crate::base::ids::TableUid;
use crate::version::buffer_list::BufferList;
use crate::version::run::{LevelRuns, Run};

/// Keys that are looked at for each level: shares are known to within 4 points of 100 (two standard
/// deviations at a half). About a millisecond.
const KEYS_MAX: usize = 512;

/// Of keys for which a level's buffer lists answer, those at equal distances in the blocks of the
/// lists: the shares that are in the block cache, by where. What is left of 1 is in neither. Tables
/// of lists that nothing has been read of since the store was opened are not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CopiesCached {
    /// In the list's table alone: lookups find it.
    pub list: f64,
    /// In the run's own table alone: lookups miss it, and read the list's copy.
    pub run: f64,
    /// In both: the cache has it twice.
    pub both: f64,
}

impl CopiesCached {
    /// The shares with the names that people see.
    pub(crate) fn named(self) -> [(&'static str, f64); 3] {
        [("list", self.list), ("run", self.run), ("both", self.both)]
    }
}

/// Where the keys of a level's lists are cached; nothing without lists, or without a cache.
pub(super) fn cached(level: &LevelRuns) -> CopiesCached {
    let lists: Vec<_> =
        level.runs().filter_map(|(_, run)| Some((&**run, run.list.as_deref()?))).collect();
    let tables: usize = lists.iter().map(|(_, list)| list.tables().count()).sum();
    let mut found = [[0_u32; 2]; 2];
    // Of every so manieth table, so that large lists cost no more.
    let (step, samples) = (tables.div_ceil(KEYS_MAX).max(1), KEYS_MAX / tables.max(1));
    let mut number = 0;
    for (run, list) in lists {
        for (age, buffered) in list.runs().iter().enumerate() {
            for (meta, table) in buffered.tables.iter() {
                number += 1;
                if number % step != 0 {
                    continue;
                }
                for (key, in_list) in table.sample_keys(samples.max(1)) {
                    if let Some((uid, in_run)) = is_cached_in(run, list, age, &key) {
                        // A table that is in both is no second copy.
                        let in_run = in_run && uid != meta.uid;
                        found[usize::from(in_list)][usize::from(in_run)] += 1;
                    }
                }
            }
        }
    }
    shares(found)
}

/// The shares of what was counted, by whether it is cached in the list and in the run.
fn shares(found: [[u32; 2]; 2]) -> CopiesCached {
    let all = f64::from(found.iter().flatten().sum::<u32>().max(1));
    let share = |list: usize, run: usize| f64::from(found[list][run]) / all;
    CopiesCached { list: share(1, 0), run: share(0, 1), both: share(1, 1) }
}

/// The run's own table that may hold `key`, and whether the block is cached; `None` if readers do
/// not come to it in the buffered run `age`: a hole is above it, or the run has no table there.
fn is_cached_in(run: &Run, list: &BufferList, age: usize, key: &[u8]) -> Option<(TableUid, bool)> {
    let hidden = list.runs().iter().take(age + 1).any(|buffered| buffered.holes.cover(key));
    let (meta, table) = run.tables.find(key).filter(|_| !hidden)?;
    Some((meta.uid, table.is_key_cached(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each of what was counted has its share, and what is in neither counts for the whole.
    #[test]
    fn shares_are_of_all_keys() {
        let CopiesCached { list, run, both } = shares([[4, 1], [2, 3]]);
        assert_eq!((list, run, both), (0.2, 0.1, 0.3));
        assert_eq!(shares([[0, 0], [0, 0]]), CopiesCached::default());
    }
}
