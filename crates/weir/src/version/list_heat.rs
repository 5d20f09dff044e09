//! What users have read lately of a run through its buffer list: a run's list has copies of its
//! entries, and where it answers, it is their blocks that are cached and marked.
//!
//! Not here: the marked entries of tables (`table::warm`), what a merge does with it
//! (`compaction::execute`).
//!
//! An older copy of an entry counts as much as its newest: the marks of both fade.

use std::ops::Bound::Included;
use std::sync::Arc;

use super::buffer_list::BufferList;
use crate::base::heat::Warmth;
use crate::base::key::compare;
use crate::table::WarmEntries;

/// The warm keys of a list in a range, for ascending keys.
pub(crate) struct ListHeat {
    /// Of each buffered run. Those at their end are gone.
    runs: Vec<WarmEntries>,
    /// Bytes of the cached blocks that those entered.
    gone_bytes: u64,
    /// Of the run with the least key; `None` before the first.
    least: Option<usize>,
}

impl ListHeat {
    /// Of the keys from `smallest` to `largest`; keeps no table of the list alive.
    pub(crate) fn of(list: &BufferList, smallest: &[u8], largest: &[u8]) -> Self {
        let last: Arc<[u8]> = Arc::from(largest);
        let runs = list.runs().iter().map(|run| {
            let range = run.tables.overlapping(Included(smallest), Included(largest));
            let tables = run.tables.range(range).map(|(_, table)| Arc::downgrade(table));
            WarmEntries::new(tables.collect(), Arc::clone(&last))
        });
        Self { runs: runs.collect(), gone_bytes: 0, least: None }
    }

    /// How lately users read an entry of `key` in the list. Requires: keys do not descend.
    #[inline]
    pub(crate) fn of_key(&mut self, key: &[u8]) -> Warmth {
        if let Some((least, _)) = self.least.and_then(|least| self.runs.get(least)?.current())
            && compare(key, least).is_lt()
        {
            return Warmth::Cold;
        }
        self.seek(key)
    }

    fn seek(&mut self, key: &[u8]) -> Warmth {
        self.runs.iter_mut().for_each(|run| run.seek(key));
        let gone_bytes = &mut self.gone_bytes;
        self.runs.retain(|run| {
            let is_here = run.current().is_some();
            *gone_bytes += if is_here { 0 } else { run.cached_bytes() };
            is_here
        });
        let heads = self.runs.iter().enumerate();
        let heads = heads.filter_map(|(at, run)| Some((at, run.current()?)));
        let least = heads.clone().min_by(|(_, (a, _)), (_, (b, _))| compare(a, b));
        let at_key = heads.filter(|(_, (at, _))| *at == key).map(|(_, (_, warmth))| warmth);
        let warmth = at_key.max().unwrap_or_default();
        self.least = least.map(|(at, _)| at);
        warmth
    }

    /// Bytes of the cached blocks of the list that were passed so far.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.gone_bytes + self.runs.iter().map(WarmEntries::cached_bytes).sum::<u64>()
    }
}
