//! The running store: what all handles share.
//!
//! Not here: how keyspaces begin and end (`keyspaces`), how a store is closed (`closing`),
//! background work (`scheduler`, `segments`, `flushes`, `compactions`, `install`, `log_start`).
//!
//! Locks: their order is at the end of ARCHITECTURE.md.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{KeyspaceId, Lsn};
use crate::base::key::Kind;
use crate::base::limits;
use crate::base::memory::Category;
use crate::base::sched::{self, Mutex};
use crate::cache::BlockCache;
use crate::db::job_table::Jobs;
use crate::db::log_pins::LogPins;
use crate::db::sync_queue::SyncQueue;
use crate::log::wal::Wal;
use crate::options::{DbOptions, Durability, Options};
use crate::state::reclaimer::Reclaimer;
use crate::state::shared::Shared;
use crate::state::tree::Tree;
use crate::storage::Storage;
use crate::storage::io::IoCounters;
use crate::table::TableCache;
use crate::version::set::VersionSet;
use crate::write::queue::{Committed, Committer, OwedCallback, PendingBatch, Ticket};

/// Name of the keyspace that `Db`'s own methods use.
pub(crate) const DEFAULT_KEYSPACE: &str = "default";

/// A running store.
pub(crate) struct Engine {
    pub(crate) options: DbOptions,
    pub(crate) storage: Mutex<Option<Arc<dyn Storage>>>,
    /// What `storage` asked of the device.
    pub(crate) io: Arc<IoCounters>,
    pub(crate) set: Arc<VersionSet>,
    /// Absent in a store that is open for reading only.
    pub(crate) writer: Option<Writer>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) tables: Arc<TableCache>,
    pub(crate) reclaimer: Arc<Reclaimer>,
    pub(crate) trees: Arc<Mutex<BTreeMap<KeyspaceId, Arc<Tree>>>>,
    /// Held while a keyspace is created or dropped. Taken before everything else.
    pub(crate) ddl: Mutex<()>,
    /// What of the log is kept for keyspaces that are being created.
    pub(crate) log_pins: LogPins,
    pub(crate) jobs: Jobs,
    pub(crate) value_bytes_max: usize,
    /// Bytes of the block cache as jobs see it (`open::cache_bytes_of_jobs`): constant, so that
    /// what is planned fits what was kept back for it.
    pub(crate) cache_bytes_of_jobs: u64,
    /// A table takes a multiple of so many bytes of the device.
    pub(crate) table_unit: u64,
    pub(crate) path: String,
    pub(crate) opened_nanos: u64,
}

/// What only a store that accepts writes has.
pub(crate) struct Writer {
    pub(crate) wal: Arc<Wal>,
    pub(crate) committer: Committer,
    pub(crate) syncs: SyncQueue,
}

thread_local! {
    /// The memory of the last single write of this thread.
    static SCRATCH: Cell<Option<Box<PendingBatch>>> = const { Cell::new(None) };
}

/// A scratch batch that grew beyond this is not kept: 1 MiB.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

impl Engine {
    /// The storage, while the store is open.
    pub(crate) fn storage(&self) -> Result<Arc<dyn Storage>> {
        self.storage.lock().clone().ok_or_else(crate::state::health::closed_error)
    }

    /// The writing half, or `ReadOnly`.
    #[inline]
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or_else(|| {
            Error::new(
                ErrorKind::ReadOnly,
                "the store was opened for reading only; open it without read_only to write",
            )
        })
    }

    /// Refuses keys and values over their limits.
    #[inline]
    pub(crate) fn check_sizes(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if key.len() > limits::KEY_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a key of {} bytes is too long; the limit is {} bytes",
                key.len(),
                limits::KEY_BYTES_MAX
            )));
        }
        if value.len() > self.value_bytes_max {
            return Err(Error::invalid(format!(
                "a value of {} bytes is too long; this store takes up to {} bytes (the least of 1 \
                 GiB, memory_budget / 8 and log_area_bytes / 4)",
                value.len(),
                self.value_bytes_max
            )));
        }
        Ok(())
    }

    /// Commits one put or delete.
    pub(crate) fn write_one(
        &self,
        tree: &Arc<Tree>,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<()> {
        let writer = self.writer()?;
        // In the destructor of another thread-local the scratch buffer may be destroyed already.
        let mut pending = SCRATCH.try_with(Cell::take).ok().flatten().unwrap_or_default();
        debug_assert_eq!(pending.count, 0, "records of a former write");
        pending.durability = durability;
        pending.push(tree, kind, key, value);
        let outcome = writer.committer.write(&mut pending);
        pending.clear();
        if pending.bytes.capacity() <= SCRATCH_BYTES_MAX {
            // Without a scratch it is freed.
            let _ = SCRATCH.try_with(|scratch| scratch.set(Some(pending)));
        }
        outcome.map(|_| ()).map_err(|e| self.note_write_error(e))
    }

    /// Commits a batch and waits for it.
    pub(crate) fn write_batch(&self, pending: &mut PendingBatch) -> Result<()> {
        let writer = self.writer()?;
        if pending.count == 0 {
            return match pending.durability {
                Durability::Sync => self.sync(),
                _ => self.shared.health.check_writable(),
            };
        }
        let outcome = writer.committer.write(pending);
        outcome.map(|_| ()).map_err(|e| self.note_write_error(e))
    }

    /// Commits a batch without waiting for more than its turn.
    pub(crate) fn submit_batch(
        self: &Arc<Self>,
        pending: &mut PendingBatch,
    ) -> Result<Arc<Ticket>> {
        let committer = &self.writer()?.committer;
        if pending.durability != Durability::Sync {
            return committer.submit(pending, None);
        }
        if pending.count == 0 {
            self.shared.health.check_writable()?;
            let (lsn, _) = committer.exclusively(|lead| lead.settle_log())??;
            self.sync_later(lsn, None);
            return Ok(Ticket::ended(Ok(Committed { lsn })));
        }
        // The sync is made even if no thread waits for it.
        let engine = Arc::clone(self);
        let then = move |outcome: &Result<Committed>| {
            if let Ok(committed) = outcome {
                engine.sync_later(committed.lsn, None);
            }
        };
        let then = OwedCallback::new(&self.shared.calls, Box::new(then));
        committer.submit(pending, Some(then))
    }

    /// Makes every write that has returned so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.shared.health.check_writable()?;
        let (last, _) = self.writer()?.committer.exclusively(|lead| lead.settle_log())??;
        self.sync_to(last)
    }

    /// Waits for the durability that a committed batch asked for.
    pub(crate) fn make_durable(&self, committed: &Committed, durability: Durability) -> Result<()> {
        if durability != Durability::Sync {
            return Ok(());
        }
        self.sync_to(committed.lsn)
    }

    /// Makes the log durable up to `lsn`; a failure poisons the store (H43).
    pub(crate) fn sync_to(&self, lsn: Lsn) -> Result<()> {
        let wal = &self.writer()?.wal;
        if wal.durable_lsn() >= lsn {
            return Ok(());
        }
        wal.sync_to(lsn).inspect_err(|error| self.shared.poison(error))
    }

    /// As [`sync_to`](Self::sync_to), before a position in the log is recorded in an edit.
    pub(crate) fn sync_position(&self, lsn: Lsn) -> Result<()> {
        self.writer()?.wal.sync_position(lsn).inspect_err(|error| self.shared.poison(error))
    }

    /// A write failed: a sync error poisons, the others are the caller's alone.
    fn note_write_error(&self, error: Error) -> Error {
        if self.writer.as_ref().is_some_and(|w| w.wal.is_failed()) {
            self.shared.poison(&error);
        }
        error
    }

    /// Runs what changes the store on a user's thread. A panic poisons it, as one in the background
    /// does: how much of the change was made is unknown.
    ///
    /// # Errors
    /// Those of `body`; `Poisoned` after a panic.
    pub(super) fn guarded<T>(&self, what: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
        sched::catch_panic(what, body).inspect_err(|error| {
            if error.kind() == ErrorKind::Poisoned {
                self.shared.poison(error);
            }
        })
    }

    /// Frees obsolete tables soon, if some wait.
    pub(crate) fn reclaim_soon(&self) {
        if self.reclaimer.waiting() > 0 {
            self.shared.wake_workers();
        }
    }

    /// Options as the engine uses them: the write buffer bounded by the memory budget.
    pub(crate) fn effective(&self, options: &Arc<Options>) -> Arc<Options> {
        effective_options(&self.options, options)
    }

    /// Bytes of the memory budget that the block cache may use now.
    pub(crate) fn cache_share(&self) -> u64 {
        if let Some(bytes) = self.options.block_cache_bytes {
            return bytes;
        }
        let accountant = &self.shared.accountant;
        let budget = self.options.common_budget();
        // What memtables may grow to before writers wait, not what they hold at this moment.
        let memtables_max = memtable_bytes_max(budget);
        let mut memtables = 0;
        // A few keyspaces make up the whole.
        for tree in self.trees.lock().values() {
            if memtables >= memtables_max {
                break;
            }
            let options = &tree.peek().options;
            memtables += options.write_buffer_bytes * (options.immutables_max as u64 + 1);
        }
        let memtables = memtables.min(memtables_max);
        let others: u64 = [Category::TableMetadata, Category::Jobs, Category::Pinned]
            .map(|category| accountant.used(category))
            .iter()
            .sum();
        // What the cache gives up later stays with the allocator: it does not grow into what
        // tables and readers are going to need anyway.
        let others = others.max(budget / OTHERS_SHARE);
        budget.saturating_sub(memtables + others).max(budget / 4)
    }
}

/// The part of the budget that is kept for indexes, filters, jobs and readers: a sixth, what the
/// indexes and filters of about eight budgets of data take.
const OTHERS_SHARE: u64 = 6;

/// Bytes of all memtables above which writers wait for flushes: half of the budget, which is
/// [`DbOptions::common_budget`].
pub(crate) fn memtable_bytes_max(budget: u64) -> u64 {
    budget / 2
}

/// The write buffer that the budget allows: with a second one being flushed, memtables stay within
/// half of the budget, and the cache keeps at least a quarter.
pub(crate) fn effective_options(db: &DbOptions, options: &Arc<Options>) -> Arc<Options> {
    let allowed = (db.common_budget() / 4).max(4 << 10);
    if options.write_buffer_bytes <= allowed {
        return Arc::clone(options);
    }
    let mut bounded = (**options).clone();
    bounded.write_buffer_bytes = allowed;
    Arc::new(bounded)
}
