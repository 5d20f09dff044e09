//! Claims: which runs answer for a key, and what a move takes away of them.
//!
//! A *sentinel* is a run of level 0 into which a job merged all that older runs held of a hot
//! interval (BiLSM §3.1). It *claims* the interval: what the sentinel does not hold of it, no older
//! run holds, so a reader that has asked the sentinel is done. What the older runs held is masked
//! in them (`base::table_meta`) for as long as their tables live; a claim may end any time.
//!
//! ```text
//! L0   flush 9          |----------------------|     newer: asked first
//!      sentinel 8             [==claim==]            a get in the claim ends here
//!      flush 6          |-----~~~~~~~~~~~------|     ~ masked: in the sentinel now
//! L1   4                |--|--~~~~~~~~~~~|-----|
//! ```
//!
//! *Clipping* (H24): a claim speaks of everything that is older than its sentinel. What an edit
//! takes from above the sentinel, or out of it, to below, ends the claim over its hull (of a table
//! that a merge in stretches masks up to a cut, over what is masked of it), also where
//! the sentinel has no table: a newer flush that has a key in a gap of the sentinel moves down
//! alone, and a reader that ended at the claim would not find it. What a newer sentinel claims, an
//! older one does not any more. One pure function of the edit and the version that it meets, so
//! replay does what was done; too much may be taken away at any time.
//!
//! A sentinel has data in narrow ranges alone, and its metadata says where: scans pass over the
//! rest of it like over what is hidden, and do not read it to learn where its next entry is.
//!
//! Not here: what is hot (`heat`), how a sentinel is built (`compaction::execute`), the rules that
//! an edit must keep (`check`).

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::BTreeMap;
use std::sync::Arc;

use super::edit::{AddedTable, KeyspaceEdit};
use super::root::Places;
use super::run::{Run, Version};
use super::shape::{RunId, RunKind};
use crate::base::interval::{Interval, Intervals};
use crate::base::key::{compare, head};
use crate::base::table_meta::TableMeta;

/// What the claims of a version mean for its readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// Disjoint and ascending: intervals that end at the run with this number, in the order of
    /// reading.
    ends: Vec<(Interval, usize)>,
    /// The head of the first key of each.
    heads: Vec<u128>,
    /// What scans pass over in each run: what masks hide in it, what newer runs claim, and in a
    /// sentinel what lies between its tables.
    passed_over: Vec<Option<Arc<Intervals>>>,
}

impl Shown {
    /// Of these runs, newest first; `None` if no run claims or hides anything.
    pub(super) fn of(order: &[Arc<Run>]) -> Option<Box<Self>> {
        if order.iter().all(|run| run.claims.is_none() && run.hidden.is_none()) {
            return None;
        }
        let mut shown = Self::default();
        // One set for all runs below the same claims: runs are many, and sentinels few.
        let mut claimed = Arc::new(Intervals::default());
        for (number, run) in order.iter().enumerate() {
            shown.passed_over.push(passed_over_in(run, &claimed));
            let Some(claims) = &run.claims else { continue };
            for claim in claims.iter() {
                let newly = claimed.without(claim);
                shown.ends.extend(newly.into_iter().map(|interval| (interval, number)));
            }
            let mut more = (*claimed).clone();
            more.add_all(claims);
            claimed = Arc::new(more);
        }
        shown.ends.sort_by(|(a, _), (b, _)| compare(&a.from, &b.from));
        shown.heads = shown.ends.iter().map(|(interval, _)| head(&interval.from)).collect();
        Some(Box::new(shown))
    }

    /// The number of runs, newest first, of which the last ends a lookup of `key`; `None`: none
    /// does.
    #[inline]
    pub(super) fn runs_asked(&self, key: &[u8]) -> Option<usize> {
        let wanted = head(key);
        let low = self.heads.partition_point(|&from| from < wanted);
        // Those with the same head may begin on either side of the key.
        let same = self.heads.get(low..).map_or(0, |h| h.partition_point(|&from| from == wanted));
        let ties = self.ends.get(low..low + same).unwrap_or(&[]);
        let after = low + ties.partition_point(|(i, _)| compare(&i.from, key).is_le());
        let (interval, number) = self.ends.get(after.checked_sub(1)?)?;
        interval.contains(key).then_some(number + 1)
    }

    /// What scans pass over in the run with this number.
    pub(super) fn passed_over(&self, number: usize) -> Option<&Arc<Intervals>> {
        self.passed_over.get(number)?.as_ref()
    }
}

/// What scans pass over in a run below these claims.
fn passed_over_in(run: &Run, claimed: &Arc<Intervals>) -> Option<Arc<Intervals>> {
    let is_sentinel = run.kind == RunKind::Sentinel;
    if claimed.is_empty() && !is_sentinel {
        return run.hidden.clone();
    }
    if run.hidden.is_none() && !is_sentinel {
        return Some(Arc::clone(claimed));
    }
    let mut all = (**claimed).clone();
    run.hidden.iter().for_each(|hidden| all.add_all(hidden));
    if is_sentinel {
        all.add_all(&between(run));
    }
    Some(Arc::new(all))
}

/// The keys of which a run's tables, by their bounds, have none.
fn between(run: &Run) -> Intervals {
    let mut gaps: Intervals = [Interval::new(&[], None)].into_iter().collect();
    for (meta, _) in run.tables.iter() {
        gaps.subtract(&Interval::closed(&meta.smallest, &meta.largest));
    }
    gaps
}

/// What an edit takes away of the claims of each sentinel run of `old`.
pub(super) fn clipped(
    old: &Version,
    edit: &KeyspaceEdit,
    places: &Places,
) -> BTreeMap<RunId, Intervals> {
    let mut clipped = BTreeMap::new();
    let sentinels = old.sentinels().filter(|(_, run)| run.claims.is_some());
    for (id, _) in sentinels {
        let gone = taken_below(id, edit, places);
        let newer = edit.claims.iter().filter(|claim| claim.run < id);
        let newer = newer.filter_map(|claim| claim.interval.clone());
        let gone: Intervals = gone.into_iter().chain(newer).collect();
        if !gone.is_empty() {
            clipped.insert(id, gone);
        }
    }
    clipped
}

/// The hull of what an edit takes out of the sentinel `id`, or from above it to below.
fn taken_below(id: RunId, edit: &KeyspaceEdit, places: &Places) -> Option<Interval> {
    let goes_below = edit.added.is_empty() || edit.added.iter().any(|added| added.run > id);
    let gone = edit.removed.iter().filter_map(|removed| {
        let place = places.get(removed.uid)?;
        let from = RunId { level: place.level, part: removed.part, epoch: place.epoch };
        let passes = from == id || (from < id && goes_below);
        passes.then(|| goes(edit, from, &place.meta)).flatten()
    });
    gone.reduce(|a, b| a.around(&b))
}

/// The hull of what an edit takes of a table out of the run `from`: all of it, or what it hides of
/// one that stays there; `None`: nothing.
pub(super) fn goes(edit: &KeyspaceEdit, from: RunId, meta: &TableMeta) -> Option<Interval> {
    let is_it = |added: &&AddedTable| added.meta.uid == meta.uid && added.run == from;
    match edit.added.iter().find(is_it) {
        Some(stays) => stays.meta.newly_hidden(meta).hull(),
        None => Some(Interval::closed(&meta.smallest, &meta.largest)),
    }
}

/// The kind of a run that an edit founds.
pub(super) fn kind_of_new(id: RunId, edit: &KeyspaceEdit) -> RunKind {
    match edit.claims.iter().any(|claim| claim.run == id) {
        true => RunKind::Sentinel,
        false => RunKind::Data,
    }
}
