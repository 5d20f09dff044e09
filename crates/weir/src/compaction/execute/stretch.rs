//! Stretches: a merge that does not fit into free space is installed piece by piece, and each piece
//! frees the inputs that it has used up.
//!
//! ```text
//! newer   |---1---|---2---|---3---|        stretch: outputs a, b; tables 1 and 4 leave, 2 and 5
//! older   |--4--|----5----|--6--|          are masked up to the cut
//! output  |--a--|--b--|                    the job goes on behind the cut
//!                     ^ cut: the first key that is not in the outputs
//! ```
//!
//! The merge reads its inputs once, in key order, as it would without. When the outputs since the
//! last cut have enough bytes, an edit brings them into the output run; an input table that lies
//! before the cut leaves with it, and one that reaches beyond it, a *straddler*, is masked up to
//! the cut, with the tally of what was read of it there, as the inputs of a sentinel are. Between
//! two edits the tree is as valid as before and after: below the cut the outputs answer, from it on
//! the inputs. A job that ends early, by a crash, an error or for want of space, leaves such a
//! tree, and the policy goes on with what it finds.
//!
//! Not here: which merges are cut, how long a stretch is, and what has to be free for it
//! (`db::stretches`).
//!
//! Invariants: (1) a cut lies between two user keys (H40), and where it is within an input table of
//! the output run nothing of that was written: its rest and the outputs would overlap otherwise. So
//! there is a place for a cut wherever one of these tables begins, whatever becomes of its first
//! keys; (2) of what is read up to a cut every entry was written,
//! shadowed or dropped, and no other one left its table: the conservation law holds at every cut;
//! (3) a delete is dropped by the rule of the whole merge, which has all inputs at hand whatever
//! was masked in them (H9).
//!
//! Source: Weir's own, for LDS §4.5 (how full a device becomes). That a level gives its data in key
//! order while the rest of it is read where it was is bLSM's; there it is what runs are made for,
//! here it lasts as long as one job.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::interval::Interval;
use crate::base::key;
use crate::base::table_meta::{Content, TableMeta};
use crate::merge::Tally;
use crate::version::edit::{AddedTable, KeyspaceEdit};
use crate::version::shape::RunId;

/// Where a merge may be cut.
pub(super) struct Cuts {
    /// A stretch ends at the first place behind so many bytes of outputs.
    bytes: u64,
    /// The bounds of the inputs that are in the output run, in key order.
    within: Vec<(Vec<u8>, Vec<u8>)>,
    /// Index of the first that does not end before the last key asked for.
    at: usize,
    /// The same of the key before that; `None`: that came too early for an end.
    before: Option<usize>,
}

impl Cuts {
    /// Stretches of `bytes`, cut in no table of `within`, which are in key order.
    pub(super) fn new<'a>(bytes: u64, within: impl Iterator<Item = &'a TableMeta>) -> Self {
        let bounds = |meta: &TableMeta| (meta.smallest.clone(), meta.largest.clone());
        let within: Vec<(Vec<u8>, Vec<u8>)> = within.map(bounds).collect();
        assert!(within.is_sorted_by(|(_, a), (b, _)| a < b), "tables of a run overlap");
        Self { bytes, within, at: 0, before: None }
    }

    /// Whether most keys are no place for a cut.
    pub(super) fn has_few_places(&self) -> bool {
        !self.within.is_empty()
    }

    /// Whether a stretch of `bytes` may end before `key`. Requires: it is asked for each key that
    /// is written, once its bytes suffice for an end, and keys do not descend.
    pub(super) fn may_end_before(&mut self, key: &[u8], bytes: u64) -> bool {
        if bytes < self.bytes {
            self.before = None;
            return false;
        }
        while self.within.get(self.at).is_some_and(|(_, last)| key::compare(last, key).is_lt()) {
            self.at += 1;
        }
        let is_inside =
            self.within.get(self.at).is_some_and(|(first, _)| key::compare(first, key).is_lt());
        // The key before lies in an earlier one, or before that: nothing of this one was written.
        let begins = self.before.is_some_and(|before| before < self.at);
        self.before = Some(self.at);
        !is_inside || begins
    }
}

/// What has become of an input table.
enum State {
    /// It is in the tree as this.
    There(Arc<TableMeta>),
    /// An edit removed it.
    Gone,
}

/// A run and its tables, in key order: as the merge found them, and what has become of them.
type InputRun = (RunId, Vec<(Arc<TableMeta>, State)>);

/// The inputs of a merge in stretches, as the tree has them.
pub(super) struct Left {
    runs: Vec<InputRun>,
}

impl Left {
    /// All inputs, run by run, in key order.
    pub(super) fn of(runs: Vec<(RunId, Vec<Arc<TableMeta>>)>) -> Self {
        let there = |meta: Arc<TableMeta>| (Arc::clone(&meta), State::There(meta));
        let runs =
            runs.into_iter().map(|(run, metas)| (run, metas.into_iter().map(there).collect()));
        Self { runs: runs.collect() }
    }

    /// Takes away what was read of the inputs before `cut`; `read` says what that is of each, run
    /// by run. Returns how much it is in all, since the merge began.
    ///
    /// # Errors
    /// `Corruption` if an input is not what its description says.
    pub(super) fn cut(
        &mut self,
        name: &str,
        cut: &[u8],
        read: impl Iterator<Item = Vec<(Arc<TableMeta>, Content)>>,
        changes: &mut KeyspaceEdit,
    ) -> Result<Tally> {
        let mut sum = Tally::default();
        for ((run, tables), read) in self.runs.iter_mut().zip(read) {
            for ((meta, state), (read_of, content)) in tables.iter_mut().zip(read) {
                assert_eq!(meta.uid, read_of.uid, "the inputs of {name} are out of step");
                sum = sum.plus(Tally { entries: content.entries, hash: content.hash });
                let State::There(now) = state else { continue };
                if key::compare(&meta.smallest, cut).is_ge() {
                    continue;
                }
                let next = rest_of(name, meta, cut, content)?.map(Arc::new);
                if next.as_ref() == Some(now) {
                    continue;
                }
                changes.remove_table_from(run.level, run.part, meta.uid);
                *state = match next {
                    Some(meta) => {
                        changes.added.push(AddedTable { run: *run, meta: Arc::clone(&meta) });
                        State::There(meta)
                    }
                    None => State::Gone,
                };
            }
        }
        Ok(sum)
    }

    /// Removes what is left of the inputs.
    pub(super) fn remove(&self, changes: &mut KeyspaceEdit) {
        for (run, tables) in &self.runs {
            for (meta, _) in tables.iter().filter(|(_, state)| matches!(state, State::There(_))) {
                changes.remove_table_from(run.level, run.part, meta.uid);
            }
        }
    }
}

/// What is left of a table from `cut` on, if `read` was visible of it before; `None`: nothing.
///
/// # Errors
/// `Corruption` if that contradicts its description.
fn rest_of(name: &str, meta: &TableMeta, cut: &[u8], read: Content) -> Result<Option<TableMeta>> {
    let is_whole = key::compare(&meta.largest, cut).is_lt();
    let rest = if is_whole { None } else { meta.masked(&Interval::new(&[], Some(cut)), read) };
    let fits = match &rest {
        Some(rest) => rest.check().is_ok(),
        None => meta.visible() == read,
    };
    if fits {
        return Ok(rest);
    }
    let what = format_args!(
        "table {} has {} entries, {} were read of it; that was not installed",
        meta.uid,
        meta.visible().entries,
        read.entries
    );
    Err(Error::corruption_found(name, what))
}
