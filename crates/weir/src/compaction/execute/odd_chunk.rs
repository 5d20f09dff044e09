//! Whether the last output of a merge stays in the level that it came from: the odd chunk, which
//! would waste most of its slot in the next level too.
//!
//! ```text
//! level n     |---T---|   |--X--|         T and W are merged. The last chunk U has what W has
//! level n+1       |-----W-----|           behind T, also between T and X or over X: that goes to
//!             |---|----|---U--|           level n+1, where nothing else is.
//! ```
//!
//! Source: LDS §3.4, which keeps it always, because it "does not overlap with any chunks in Ln"
//! and Ln+1. We differ: it may overlap what level n has beside the inputs (H39).
//!
//! Invariants: (1) it stays only where it has no key in common with another table of its run, its
//! two bounds included, so that no user key's versions are split (H40), and nothing lies between
//! that run and the run of the other outputs; (2) what is beside it then is beside it when the edit
//! is applied: jobs that write into that run keep out of the keys of this one
//! (`JobFootprint::keeps`); (3) the job leaves at most half of what it took, so that the level
//! becomes smaller; (4) the cursor of the level does not pass it: the next job there takes it
//! along.

use std::ops::Bound::Included;
use std::sync::Arc;

use crate::base::key;
use crate::base::table_meta::TableMeta;
use crate::compaction::task::{CursorMove, MergeTask};
use crate::version::edit::AddedTable;
use crate::version::run::Version;
use crate::version::shape::RunId;

/// A run that may keep the last output of a merge.
pub(super) struct OddChunk {
    run: RunId,
    /// Its other tables between the bounds of the merge.
    beside: Vec<Arc<TableMeta>>,
    /// What the merge takes from it.
    taken_bytes: u64,
}

impl OddChunk {
    /// That of a merge of keys between `bounds`, if its plan lets the run `keeps` have it.
    pub(super) fn of(
        version: &Version,
        task: &MergeTask,
        keeps: Option<RunId>,
        bounds: Option<&(Vec<u8>, Vec<u8>)>,
    ) -> Option<Self> {
        let (run, (smallest, largest)) = (keeps?, bounds?);
        let slice = task.inputs.iter().find(|slice| slice.run == run)?;
        let (lower, upper) = (Included(&smallest[..]), Included(&largest[..]));
        let mut between = version.runs_by_id().filter(|(id, _)| *id > run && *id < task.output);
        if between.any(|(_, other)| other.overlapping(lower, upper).next().is_some()) {
            return None;
        }
        let (mut beside, mut taken_bytes) = (Vec::new(), 0);
        for (meta, _) in version.run(run)?.overlapping(lower, upper) {
            if slice.uids.contains(&meta.uid) {
                taken_bytes += meta.visible_bytes();
            } else {
                beside.push(Arc::clone(meta));
            }
        }
        Some(Self { run, beside, taken_bytes })
    }

    /// Leaves the last of the outputs, which are in key order, in its run, if it may stay there,
    /// and sets the cursor of a task that has one so that the level goes on with it.
    pub(super) fn keep(&self, outputs: &mut [AddedTable], cursor: &mut Option<CursorMove>) {
        // The only output is no rest.
        let [.., before, last] = outputs else { return };
        let AddedTable { run, meta } = last;
        if meta.bytes.saturating_mul(2) > self.taken_bytes || !self.is_alone(meta) {
            return;
        }
        *run = self.run;
        if let Some(cursor) = cursor
            && key::compare(&before.meta.largest, &cursor.key).is_lt()
        {
            cursor.key.clone_from(&before.meta.largest);
        }
    }

    /// Whether no other table of the run has keys in its range.
    fn is_alone(&self, chunk: &TableMeta) -> bool {
        self.beside.iter().all(|table| {
            key::compare(&table.largest, &chunk.smallest).is_lt()
                || key::compare(&chunk.largest, &table.smallest).is_lt()
        })
    }
}
