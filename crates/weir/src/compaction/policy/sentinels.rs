//! Sentinel runs in level 0: what takes them along, and when they go by themselves.
//!
//! A sentinel run holds what of all older runs was read often. It counts for no trigger and no
//! load, so nothing happens because it is there. But it is data, and older than the flushes that
//! came after it: what leaves level 0 from above it would lie below older entries (H23).
//!
//! Source: BiLSM. We differ: a sentinel is not dropped with the next flush, it goes where the data
//! that overlaps it goes.
//!
//! Not here: where single tables are not merged but whole runs (`runs`), ranges that users ask for.
//!
//! Invariants: (1) what a task takes out of level 0 overlaps no table of an older run that stays
//! there; (2) nothing of a sentinel run comes into a run of level 0: it may hold the oldest
//! sequence numbers, and the other runs of level 0 are newest first by them (rule 2 of
//! `version::check`); (3) sentinels go by themselves beyond their cap only, the oldest run first.

use std::collections::BTreeSet;

use crate::base::ids::{DataEpoch, Level, TableUid};
use crate::compaction::policy::geometry::{Chosen, KeyBounds, Placed, bytes_of, placed};
use crate::compaction::policy::moves::{take, widen_bytes_max};
use crate::version::shape::{RunId, RunKind, Shape};

/// Whether there is a sentinel run. All that concerns them begins with this question.
pub(super) fn any(shape: &Shape) -> bool {
    shape.levels[Level::ZERO].runs().any(|(_, run)| run.kind == RunKind::Sentinel)
}

/// Rule: what leaves level 0 takes along, of every older run there, what `part` says of the keys
/// that it and what comes along already span. Newest first, without `source`.
fn older_than<'a>(
    shape: &'a Shape,
    source: &Chosen<'a>,
    part: impl Fn(Placed<'a>, KeyBounds<'a>) -> Chosen<'a>,
) -> Vec<Chosen<'a>> {
    let mut along = Vec::new();
    let leaves = source.place.level == Level::ZERO && any(shape);
    let Some(mut hull) = source.bounds().filter(|_| leaves) else { return along };
    let from = source.place.id();
    for place in placed(shape, Level::ZERO).filter(|place| place.id() > from) {
        let chosen = part(place, hull);
        if let Some(bounds) = chosen.bounds() {
            hull = hull.union(bounds);
            along.push(chosen);
        }
    }
    along
}

/// The tables of older runs of level 0 that have to go with `source`; none of a source elsewhere.
pub(super) fn along<'a>(shape: &'a Shape, source: &Chosen<'a>) -> Vec<Chosen<'a>> {
    older_than(shape, source, Placed::over)
}

/// Rule: `source` with what has to go along. What comes along may be much more than the source:
/// then as few tables go as keep the job bounded, but at least one.
pub(super) fn with_older<'a>(shape: &'a Shape, mut source: Chosen<'a>) -> Vec<Chosen<'a>> {
    let mut older = along(shape, &source);
    while !older.is_empty()
        && source.span.len() > 1
        && source.bytes() + bytes_of(&older) > widen_bytes_max(shape)
    {
        source.span.end = source.span.start + source.span.len() / 2;
        older = along(shape, &source);
    }
    std::iter::once(source).chain(older).collect()
}

/// By how many bytes the sentinel runs exceed their cap, if they do.
fn excess(shape: &Shape) -> Option<u64> {
    shape.sentinel_bytes().checked_sub(shape.sentinel_bytes_max).filter(|&excess| excess > 0)
}

/// The sentinel runs, oldest first.
fn oldest_first(shape: &Shape) -> Vec<Placed<'_>> {
    let mut runs: Vec<_> = placed(shape, Level::ZERO).filter(Placed::is_sentinel).collect();
    runs.reverse();
    runs
}

/// Whether there are tables, and all of them may be read.
fn are_idle(chosen: &[Chosen<'_>], busy: &BTreeSet<TableUid>) -> bool {
    let mut tables = chosen.iter().flat_map(Chosen::tables);
    chosen.iter().all(|chosen| !chosen.span.is_empty())
        && tables.all(|table| !busy.contains(&table.uid))
}

/// Rule: beyond the cap the oldest sentinel run gives its first tables, about as many bytes as
/// there are too many, with what has to go along. Those that need a busy table are passed over.
pub(super) fn tables_beyond_cap<'a>(
    shape: &'a Shape,
    busy: &BTreeSet<TableUid>,
) -> Option<Vec<Chosen<'a>>> {
    let excess = excess(shape)?;
    let starts = oldest_first(shape).into_iter().flat_map(|run| {
        let count = run.run.tables.len();
        (0..count).map(move |first| (run, first..count))
    });
    let mut picks =
        starts.map(|(run, within)| with_older(shape, take(shape, run, within, excess, busy)));
    picks.find(|pick| are_idle(pick, busy))
}

/// The same where whole runs are merged: all of the oldest sentinel run, with every older run that
/// overlaps it.
pub(super) fn run_beyond_cap<'a>(
    shape: &'a Shape,
    busy: &BTreeSet<TableUid>,
) -> Option<Vec<Chosen<'a>>> {
    excess(shape)?;
    let whole_if_met = |place: Placed<'a>, hull: KeyBounds<'_>| {
        let met = !place.over(hull).span.is_empty();
        place.chosen(0..if met { place.run.tables.len() } else { 0 })
    };
    let mut picks = oldest_first(shape).into_iter().map(|run| {
        let older = older_than(shape, &run.whole(), whole_if_met);
        std::iter::once(run.whole()).chain(older).collect::<Vec<_>>()
    });
    picks.find(|pick| are_idle(pick, busy))
}

/// Rule: a merge of whole runs takes, of every sentinel run that its inputs pass, the tables that
/// overlap what is merged of level 0, and those that overlap these. It passes those older than its
/// newest input; if it stays in level 0, where its output is as new as that, only those newer than
/// its oldest. Newest first.
pub(super) fn passed_by<'a>(
    shape: &'a Shape,
    runs: &[Placed<'a>],
    output_level: Level,
) -> Vec<Chosen<'a>> {
    let ids = || runs.iter().map(Placed::id);
    let leave = runs.iter().filter(|run| run.level == Level::ZERO);
    let whole = leave.filter_map(|run| run.whole().bounds());
    let (Some(newest), Some(oldest), Some(mut hull)) =
        (ids().min(), ids().max(), whole.reduce(KeyBounds::union))
    else {
        return Vec::new();
    };
    // Older than all of level 0.
    let end = RunId::filling(Level::ONE, DataEpoch::MAX);
    let last = if output_level == Level::ZERO { oldest } else { end };
    let is_passed =
        |place: &Placed<'_>| place.is_sentinel() && place.id() > newest && place.id() < last;
    loop {
        let met: Vec<Chosen<'a>> = placed(shape, Level::ZERO)
            .filter(is_passed)
            .map(|place| place.over(hull))
            .filter(|chosen| !chosen.span.is_empty())
            .collect();
        let wider = met.iter().filter_map(Chosen::bounds).fold(hull, KeyBounds::union);
        if wider == hull {
            return met;
        }
        hull = wider;
    }
}

/// What a tree at rest promises about sentinels: no more bytes than their cap.
pub(super) fn check(shape: &Shape) -> Option<String> {
    let excess = excess(shape)?;
    Some(format!("the sentinel runs have {excess} bytes more than they may"))
}
