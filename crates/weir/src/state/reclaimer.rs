//! The reclaimer: deletes obsolete tables.
//!
//! Invariants: (1) a table is retired only after the edit that removed it is durable, or when no
//! edit names it and none will; (2) its bytes are freed only when its last holder (version, cursor,
//! job) is gone: the reclaimer holds a weak reference; (3) a table whose removal fails stays in the
//! list, is retried, and its error is reported; an opening retires the orphans of a crash (H14,
//! H30).

use std::sync::atomic::fence;
use std::sync::{Arc, Weak};

use crate::base::atomic::{AtomicU64, Ordering};
use crate::base::error::{Error, ErrorKind};
use crate::base::ids::TableUid;
use crate::base::sched::Mutex;
use crate::cache::BlockCache;
use crate::storage::Storage;
use crate::table::Table;

/// Obsolete tables, which wait for the end of their last holder.
#[derive(Default)]
pub(crate) struct Reclaimer {
    waiting: Mutex<Vec<Waiting>>,
    /// Length of the list, for those who ask without its lock: every cursor at its end.
    count: AtomicU64,
    /// The error of the last run, if it could not remove a table.
    failed: Mutex<Option<Error>>,
}

struct Waiting {
    uid: TableUid,
    blocks: u32,
    table: Weak<Table>,
}

impl Reclaimer {
    /// Takes over a table. Requires: the edit that removes it is durable.
    pub(crate) fn retire(&self, table: &Arc<Table>) {
        let meta = table.meta();
        let mut waiting = self.waiting.lock();
        debug_assert!(
            waiting.iter().all(|waiting| waiting.uid != meta.uid),
            "table {} is retired twice",
            meta.uid
        );
        waiting.push(Waiting { uid: meta.uid, blocks: meta.blocks, table: Arc::downgrade(table) });
        self.note_count(&waiting);
    }

    /// Takes over a table that no version names and no reader has open.
    pub(crate) fn take_orphan(&self, uid: TableUid) {
        let mut waiting = self.waiting.lock();
        waiting.push(Waiting { uid, blocks: 0, table: Weak::new() });
        self.note_count(&waiting);
    }

    fn note_count(&self, waiting: &[Waiting]) {
        self.count.store(waiting.len() as u64, Ordering::Relaxed);
    }

    /// Why an obsolete table still exists, if the device failed to remove it.
    pub(crate) fn error(&self) -> Option<Error> {
        // Two concurrent runs may store their results in either order.
        let failed = self.failed.lock().clone();
        failed.filter(|_| self.waiting() > 0)
    }

    /// Number of waiting tables. Who has let a table go and sees none here: no run was before him
    /// that passed the table over for his sake.
    pub(crate) fn waiting(&self) -> usize {
        // With the fence of `run`: either that sees the table let go, or this sees it wait.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) as usize
    }

    /// Frees every table whose last holder is gone; returns their number. Those that could not be
    /// removed stay in the list.
    pub(crate) fn run(&self, storage: &dyn Storage, cache: &BlockCache) -> u64 {
        let due: Vec<Waiting> = {
            let mut waiting = self.waiting.lock();
            fence(Ordering::SeqCst);
            let (due, rest) = std::mem::take(&mut *waiting)
                .into_iter()
                .partition(|w| w.table.strong_count() == 0);
            *waiting = rest;
            self.note_count(&waiting);
            due
        };
        let mut freed = 0;
        let mut first_error = None;
        for entry in due {
            cache.erase_table(entry.uid, entry.blocks);
            match storage.remove_table(entry.uid) {
                Ok(()) => freed += 1,
                Err(e) if e.kind() == ErrorKind::NotFound => freed += 1,
                Err(e) => {
                    first_error.get_or_insert(e);
                    let mut waiting = self.waiting.lock();
                    waiting.push(entry);
                    self.note_count(&waiting);
                }
            }
        }
        *self.failed.lock() = first_error;
        freed
    }
}
