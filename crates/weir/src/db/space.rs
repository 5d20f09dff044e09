//! Space that is kept back, so that a full device is noticed while something is prepared and never
//! in the middle of it.
//!
//! A log segment is only prepared if what it will carry can become a table, that table can be
//! compacted once, and both edits can be recorded; a compaction only starts if its outputs fit
//! beside that flush. So writes end with `NoSpace` while there is still room to get out: flushes
//! and compactions go on, and a keyspace can be dropped.
//!
//! Nothing is reserved on the device: others can take the space. Then the job that finds none fails
//! with `NoSpace`, removes what it wrote, and is repeated (`jobs`): later, but as safe. A device
//! that does not know its free space is taken as having enough.
//!
//! Source: ARCHITECTURE §8.

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::memory::Category;
use crate::compaction::task::Task;
use crate::db::engine::Engine;
use crate::version::root::Root;
use crate::version::shape::Shape;

/// Bytes of the version log that the next edits may take: a flush and a compaction have edits of
/// some hundred bytes per table.
const EDITS_BYTES: u64 = 32 << 10;

/// Bytes per table in a base of the version log. An estimate from above for keys of up to 100
/// bytes.
const BASE_BYTES_PER_TABLE: u64 = 400;

impl Engine {
    /// Bytes that the device has left; `None` if nobody knows.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        // A device that cannot say is treated as one that does not know: the write will tell.
        self.storage().and_then(|storage| storage.free_bytes()).ok().flatten()
    }

    /// What the version log may need: the next edits, and a base beside the old log.
    fn versions_reserve(root: &Root) -> u64 {
        EDITS_BYTES + BASE_BYTES_PER_TABLE * root.tables().count() as u64
    }

    /// What flushing all memtables would write. An estimate from above: memtables are larger than
    /// their tables.
    fn flush_reserve(&self) -> u64 {
        self.shared.accountant.used(Category::Memtables)
    }

    /// What one merge of level 0 into a base level that is in shape would write, in the keyspace
    /// where that is most.
    fn merge_reserve(root: &Root) -> u64 {
        let of = |keyspace: &std::sync::Arc<crate::version::root::KeyspaceVersion>| {
            let runs = keyspace.version.levels().iter().flat_map(|level| level.runs());
            let bytes: u64 = runs.map(|(_, run)| run.tables.totals().bytes).sum();
            let options = &keyspace.options;
            let batch = options.write_buffer_bytes.saturating_mul(options.l0_trigger as u64);
            bytes.min(batch.saturating_add(options.base_level_bytes))
        };
        root.keyspaces.iter().map(of).max().unwrap_or(0)
    }

    /// Refuses a log segment whose entries might find no space.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn check_space_for_segment(&self) -> Result<()> {
        let Some(free) = self.free_bytes() else { return Ok(()) };
        let root = self.set.current();
        // The segment, and the table of what it carries.
        let segment = self.writer.as_ref().map_or(0, |w| w.wal.next_segment_reserve());
        let needed = segment
            .saturating_add(self.flush_reserve())
            .saturating_add(Self::merge_reserve(&root))
            .saturating_add(Self::versions_reserve(&root));
        enough(free, needed, "the next log segment, its flush and one compaction", &self.path)
    }

    /// Refuses a task whose outputs might not fit beside the next flush.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn check_space_for_task(
        &self,
        free: Option<u64>,
        root: &Root,
        shape: &Shape,
        task: &Task,
    ) -> Result<()> {
        let (Some(free), Task::Merge(merge)) = (free, task) else { return Ok(()) };
        let inputs = merge.inputs.iter().map(|slice| {
            let level = shape.levels.get(slice.level);
            let runs = level.into_iter().flat_map(|l| l.runs());
            let tables = runs.flat_map(|(_, run)| run.tables.iter());
            let taken = tables.filter(|(table, ())| slice.uids.contains(&table.uid));
            taken.map(|(table, ())| table.bytes).sum::<u64>()
        });
        let needed = inputs
            .sum::<u64>()
            .saturating_add(self.flush_reserve())
            .saturating_add(Self::versions_reserve(root));
        enough(free, needed, "a compaction and the next flush", &self.path)
    }
}

fn enough(free: u64, needed: u64, what: &str, path: &str) -> Result<()> {
    if free >= needed {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoSpace,
        format!(
            "{what} may need {needed} bytes and {path} has {free} left; reads go on: free space, \
             drop a keyspace, or choose smaller log_segment_bytes and write_buffer_bytes"
        ),
    ))
}
