//! Frees the bytes of tables that nobody needs any more.
//!
//! Invariants: (1) a table is handed over only after the edit that removed it is durable; (2) its
//! bytes are freed only when its last holder (version, cursor, job) is gone: the reclaimer holds it
//! weakly and asks; (3) a table whose removal fails is kept in the list and tried again; recovery
//! removes what a crash leaves behind (H14, H30).

use std::sync::{Arc, Weak};

use crate::base::error::{ErrorKind, Result};
use crate::base::sched::Mutex;
use crate::cache::BlockCache;
use crate::storage::Storage;
use crate::table::Table;

/// Tables that were removed from the tree and wait for their last holder.
#[derive(Default)]
pub(crate) struct Reclaimer {
    waiting: Mutex<Vec<Waiting>>,
}

struct Waiting {
    uid: u64,
    blocks: u32,
    table: Weak<Table>,
}

impl Reclaimer {
    /// Takes over a table whose removing edit is durable.
    pub(crate) fn retire(&self, table: &Arc<Table>) {
        let meta = table.meta();
        self.waiting.lock().push(Waiting {
            uid: meta.uid,
            blocks: meta.blocks,
            table: Arc::downgrade(table),
        });
    }

    /// Number of tables that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Frees every table whose last holder is gone; the number freed.
    ///
    /// # Errors
    /// The first error of the device; the tables that could not be removed stay in the list.
    pub(crate) fn run(&self, storage: &dyn Storage, cache: &BlockCache) -> Result<u64> {
        let due: Vec<Waiting> = {
            let mut waiting = self.waiting.lock();
            let (due, rest) = std::mem::take(&mut *waiting)
                .into_iter()
                .partition(|w| w.table.strong_count() == 0);
            *waiting = rest;
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
                    self.waiting.lock().push(entry);
                }
            }
        }
        first_error.map_or(Ok(freed), Err)
    }
}
