//! The heat of ranges in a running store: which trees have it, and when its buckets are cut anew.
//!
//! A keyspace has heat while its option `sentinels` is on: with its super-version, so that who
//! reads or writes finds it there. It is made when the option is set or the store is opened, with
//! nothing counted, and its buckets are cut anew by an installed edit after which they are
//! outgrown, and by a look at them that finds them uneven (`heat::buckets`). Not here: who counts
//! (`read::sampled`, `write`).

use std::sync::Arc;

use crate::base::clock;
use crate::base::memory::Accountant;
use crate::heat::RangeHeat;
use crate::heat::buckets::TableSpan;
use crate::options::{BucketRanges, Options, SentinelOptions, Sentinels};
use crate::state::tree::SuperVersion;
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
    let tables = spans(version, how);
    let place = (Some(accountant), clock::now_nanos());
    Some(Arc::new(match before {
        Some(heat) => heat.cut_anew(how, &tables, window, place),
        None => RangeHeat::new(how, &tables, window, place),
    }))
}

/// The heat of a tree with buckets that are cut anew, if one of them has far more entries than the
/// others by now.
pub(super) fn evened(
    accountant: &Arc<Accountant>,
    current: &SuperVersion,
) -> Option<Arc<RangeHeat>> {
    let Sentinels::On(SentinelOptions { buckets, window, .. }) = current.options.sentinels else {
        return None;
    };
    let (heat, tables) = (current.heat.as_ref()?, spans(&current.version, buckets));
    let uneven = heat.buckets().are_uneven(&tables);
    let place = (Some(accountant), clock::now_nanos());
    uneven.then(|| Arc::new(heat.cut_anew(buckets, &tables, window, place)))
}

/// The tables that buckets are cut by.
fn spans(version: &Version, how: BucketRanges) -> Vec<TableSpan<'_>> {
    let runs = || version.runs_newest_first();
    let all: usize = runs().map(|run| run.tables.len()).sum();
    let step = all / (how.count() as usize * TABLES_PER_BUCKET) + 1;
    let tables = runs().flat_map(|run| run.tables.iter().step_by(step));
    tables
        .map(|(meta, _)| TableSpan {
            smallest: &meta.smallest,
            largest: &meta.largest,
            entries: meta.visible().entries * step as u64,
        })
        .collect()
}

#[cfg(test)]
mod tests;
