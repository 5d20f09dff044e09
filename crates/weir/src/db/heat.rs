//! The heat of ranges in a running store: which trees have it, and when its buckets are cut anew.
//!
//! A keyspace has heat while its option `sentinels` is on: with its super-version, so that who
//! reads or writes finds it there. It is made when the option is set or the store is opened, with
//! nothing counted, and its buckets are cut anew by an installed edit after which they are outgrown
//! (`heat::buckets`). Not here: who counts (`read::sampled`, `write`).

use std::sync::Arc;

use crate::base::clock;
use crate::base::memory::Accountant;
use crate::heat::RangeHeat;
use crate::heat::buckets::TableSpan;
use crate::options::{Options, Sentinels};
use crate::version::run::Version;

/// Where a keyspace has more tables for each bucket, every second one stands for two, and so on: a
/// cut takes some milliseconds at most, in which no memtable of the keyspace can be frozen.
const TABLES_PER_BUCKET: usize = 16;

/// The heat that a tree with these options and tables should have, after `before`: that one as long
/// as it fits. One look at each run, unless buckets are cut.
pub(super) fn heat_for(
    accountant: &Arc<Accountant>,
    options: &Options,
    version: &Version,
    before: Option<&Arc<RangeHeat>>,
) -> Option<Arc<RangeHeat>> {
    let Sentinels::On(sentinels) = options.sentinels else { return None };
    let (how, window) = (sentinels.buckets, sentinels.window);
    let runs = || version.runs_newest_first();
    let entries = runs().map(|run| run.tables.totals().entries).sum();
    let fitting = before.filter(|heat| heat.is_cut_by(how, window));
    if let Some(heat) = fitting.filter(|heat| !heat.buckets().are_outgrown(entries)) {
        return Some(Arc::clone(heat));
    }
    let all: usize = runs().map(|run| run.tables.len()).sum();
    let step = all / (how.count() as usize * TABLES_PER_BUCKET) + 1;
    let tables: Vec<TableSpan<'_>> = runs()
        .flat_map(|run| run.tables.iter().step_by(step))
        .map(|(meta, _)| TableSpan {
            smallest: &meta.smallest,
            largest: &meta.largest,
            entries: meta.entries * step as u64,
        })
        .collect();
    let place = (Some(accountant), clock::now_nanos());
    Some(Arc::new(match before {
        Some(heat) => heat.cut_anew(how, &tables, window, place),
        None => RangeHeat::new(how, &tables, window, place),
    }))
}

#[cfg(test)]
mod tests;
