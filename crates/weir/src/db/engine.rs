//! The running store: what all handles share.
//!
//! Locks, in order: `ddl`, the commit queue's lead, `jobs`, the version set's install lock, a
//! tree's install lock, `trees`; everything in `state` is a leaf.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::key::Kind;
use crate::base::limits;
use crate::base::memory::Category;
use crate::base::sched::{self, Mutex, Thread};
use crate::cache::BlockCache;
use crate::db::jobs::{self, Jobs};
use crate::log::wal::Wal;
use crate::options::{DbOptions, Durability, Options};
use crate::state::reclaimer::Reclaimer;
use crate::state::shared::Shared;
use crate::state::tree::{Buffer, SuperVersion, Tree};
use crate::storage::Storage;
use crate::version::edit::{Flushed, KeyspaceId, VersionEdit};
use crate::version::set::VersionSet;
use crate::write::queue::{Committed, Committer, Pending, Ticket};

/// Name of the keyspace that `Db`'s own methods use.
pub(crate) const DEFAULT_KEYSPACE: &str = "default";

/// Called when a log sync that nobody waits for has ended.
pub(crate) type SyncCallback = Box<dyn FnOnce(Result<()>) + Send>;

/// A running store.
pub(crate) struct Engine {
    pub(crate) options: DbOptions,
    pub(crate) storage: Mutex<Option<Arc<dyn Storage>>>,
    pub(crate) set: Arc<VersionSet>,
    /// Absent in a store that is open for reading only.
    pub(crate) writer: Option<Writer>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) reclaimer: Reclaimer,
    pub(crate) trees: Arc<Mutex<BTreeMap<KeyspaceId, Arc<Tree>>>>,
    /// Held while a keyspace is created or dropped. Taken before everything else.
    pub(crate) ddl: Mutex<()>,
    /// A keyspace is being created: its log start is fixed, but in no root yet, so no segment of
    /// the log is let go.
    pub(crate) creating: AtomicBool,
    pub(crate) jobs: Jobs,
    pub(crate) value_bytes_max: usize,
    pub(crate) path: String,
    pub(crate) opened_nanos: u64,
}

/// What only a store that accepts writes has.
pub(crate) struct Writer {
    pub(crate) wal: Arc<Wal>,
    pub(crate) committer: Committer,
    pub(crate) sync_requests: Mutex<Vec<(u64, SyncCallback)>>,
}

/// Keeps a store open: the last handle that goes closes it.
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) workers: Mutex<Vec<Thread>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !jobs::is_worker() {
            self.close().ignore_error("who wants to know calls close");
            return;
        }
        // A callback held the last handle. Its thread cannot wait for itself to end.
        let (engine, workers) =
            (Arc::clone(&self.engine), std::mem::take(&mut *self.workers.lock()));
        let close = move || engine.close(workers).ignore_error("nobody is left to be told");
        sched::spawn("weir-close", close)
            .map_err(|e| Error::io("starting a thread", e))
            .ignore_error("without a thread the lock is held until the process ends");
    }
}

impl Handle {
    /// Ends background work, makes the log durable, releases the lock. Later calls do nothing; one
    /// at the same time waits for the end.
    ///
    /// # Errors
    /// `Poisoned` if an earlier failure left the log's state unknown; the device's;
    /// `InvalidArgument` on a background thread of a store.
    pub(crate) fn close(&self) -> Result<()> {
        if jobs::is_worker() {
            return Err(Error::invalid(
                "close waits for background threads and cannot be called in a callback that runs \
                 on one; drop the handle instead",
            ));
        }
        let mut workers = self.workers.lock();
        if self.engine.shared.health.is_closed() {
            return Ok(());
        }
        self.engine.close(std::mem::take(&mut *workers))
    }
}

thread_local! {
    /// The memory of the last single write of this thread.
    static SCRATCH: Cell<Option<Box<Pending>>> = const { Cell::new(None) };
}

/// A scratch batch that grew beyond this is not kept: 1 MiB.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

impl Engine {
    /// Closes the store; see [`Handle::close`].
    fn close(&self, workers: Vec<Thread>) -> Result<()> {
        let flushed = self.flush_unlogged();
        self.shared.health.close();
        self.jobs.stop();
        if let Some(writer) = &self.writer {
            writer.wal.close();
        }
        self.shared.wake_workers();
        self.shared.announce_progress();
        for worker in workers {
            worker.join();
        }
        // Other threads may be compacting a range, changing keyspaces or committing. They see that
        // the store is closed; nothing may be written any more when the lock is given up.
        self.jobs.wait_for_running(&self.shared);
        let ddl = self.ddl.lock();
        // What the last jobs made obsolete; nobody wakes a worker for it any more.
        self.reclaim();
        let finished = self.finish_log();
        self.set.close(crate::state::health::closed_error());
        drop(ddl);
        if let Some(storage) = self.storage.lock().take() {
            storage.unlock();
        }
        flushed.and(finished)
    }

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
        let mut pending = SCRATCH.take().unwrap_or_default();
        pending.durability = durability;
        pending.push(tree, kind, key, value);
        let outcome = writer.committer.write(&mut pending);
        pending.clear();
        if pending.bytes.capacity() <= SCRATCH_BYTES_MAX {
            SCRATCH.set(Some(pending));
        }
        outcome.map(|_| ()).map_err(|e| self.note_write_error(e))
    }

    /// Commits a batch and waits for it.
    pub(crate) fn write_batch(&self, pending: &mut Pending) -> Result<()> {
        if pending.count == 0 {
            return self.shared.health.check_writable();
        }
        let outcome = self.writer()?.committer.write(pending);
        outcome.map(|_| ()).map_err(|e| self.note_write_error(e))
    }

    /// Commits a batch without waiting for more than its turn.
    pub(crate) fn submit_batch(&self, pending: &mut Pending) -> Result<Arc<Ticket>> {
        self.writer()?.committer.submit(pending)
    }

    /// Waits for the durability that a committed batch asked for.
    pub(crate) fn make_durable(&self, committed: &Committed, durability: Durability) -> Result<()> {
        if durability != Durability::Sync {
            return Ok(());
        }
        self.sync_to(committed.lsn)
    }

    /// Makes the log durable up to `lsn`; a failure poisons the store (H43).
    pub(crate) fn sync_to(&self, lsn: u64) -> Result<()> {
        let wal = &self.writer()?.wal;
        if wal.durable_lsn() >= lsn {
            return Ok(());
        }
        self.shared.counters.log_syncs.add(1);
        wal.sync_to(lsn).inspect_err(|error| self.poison(error))
    }

    /// Refuses writes from now on, and tells who waits.
    pub(crate) fn poison(&self, error: &Error) {
        self.shared.health.poison(error);
        self.shared.announce_progress();
    }

    /// As [`sync_to`](Self::sync_to), before a position in the log is recorded in an edit.
    pub(crate) fn sync_position(&self, lsn: u64) -> Result<()> {
        self.writer()?.wal.sync_position(lsn).inspect_err(|error| self.poison(error))
    }

    /// Whether the log is durable up to `lsn`.
    pub(crate) fn wal_is_durable(&self, lsn: u64) -> bool {
        self.writer.as_ref().is_none_or(|w| w.wal.durable_lsn() >= lsn)
    }

    /// Has a background thread sync the log up to `lsn` and call back.
    pub(crate) fn sync_later(&self, lsn: u64, callback: SyncCallback) {
        if let Some(writer) = &self.writer {
            // Looked at under the lock: what is entered before the closing is answered then.
            let mut requests = writer.sync_requests.lock();
            if !self.shared.health.is_closed() {
                requests.push((lsn, callback));
                drop(requests);
                self.shared.wake_workers();
                return;
            }
        }
        callback(Err(crate::state::health::closed_error()));
    }

    /// A write failed: a sync error poisons, the others are the caller's alone.
    fn note_write_error(&self, error: Error) -> Error {
        if self.writer.as_ref().is_some_and(|w| w.wal.is_failed()) {
            self.shared.health.poison(&error);
            self.shared.announce_progress();
        }
        error
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

    /// Opens a keyspace, creating it if `create`, or if it is missing and `create` is not
    /// exclusive.
    pub(crate) fn keyspace(&self, name: &str, ask: KeyspaceAsk) -> Result<Arc<Tree>> {
        self.shared.health.check_open()?;
        check_name(name)?;
        let existing = self.trees.lock().values().find(|t| t.name == name).cloned();
        match (existing, ask) {
            (Some(_), KeyspaceAsk::Create(_)) => Err(Error::new(
                ErrorKind::Conflict,
                format!("keyspace {name:?} exists; open it, or choose another name"),
            )),
            (Some(tree), KeyspaceAsk::Open) => Ok(tree),
            (Some(tree), KeyspaceAsk::OpenOrCreate(options)) => {
                self.change_options(&tree, options)?;
                Ok(tree)
            }
            (None, KeyspaceAsk::Open) => Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no keyspace {name:?}; create it, or correct the name"),
            )),
            (None, KeyspaceAsk::Create(options) | KeyspaceAsk::OpenOrCreate(options)) => {
                self.create_keyspace(name, options)
            }
        }
    }

    fn change_options(&self, tree: &Arc<Tree>, options: Options) -> Result<()> {
        options.validate()?;
        let stored = {
            let root = self.set.current();
            root.keyspaces.get(&tree.id).map(|k| Arc::clone(&k.options))
        };
        if stored.is_some_and(|s| *s == options) || self.writer.is_none() {
            return Ok(());
        }
        self.shared.health.check_writable()?;
        let mut edit = VersionEdit::default();
        edit.keyspace(tree.id).options = Some(Arc::new(options));
        self.install_outputs(edit, &[], None).map_err(|e| self.note_install_error(e))?;
        self.shared.wake_workers();
        Ok(())
    }

    fn create_keyspace(&self, name: &str, options: Options) -> Result<Arc<Tree>> {
        options.validate()?;
        let writer = self.writer()?;
        self.shared.health.check_writable()?;
        let _ddl = self.ddl.lock();
        if let Some(tree) = self.trees.lock().values().find(|t| t.name == name) {
            return Ok(Arc::clone(tree));
        }
        if self.trees.lock().len() >= limits::KEYSPACES_MAX {
            return Err(Error::invalid(format!(
                "a store has at most {} keyspaces; drop some, or put a prefix on the keys",
                limits::KEYSPACES_MAX
            )));
        }
        self.creating.store(true, Ordering::SeqCst);
        let created = self.install_keyspace(writer, name, options);
        self.creating.store(false, Ordering::SeqCst);
        self.release_log();
        created
    }

    /// Draws a log start for a new keyspace and installs it. Requires: `creating` is set.
    fn install_keyspace(&self, writer: &Writer, name: &str, options: Options) -> Result<Arc<Tree>> {
        // No group before this position can hold an entry of the new keyspace.
        let (durable_lsn, position) = writer.committer.exclusively(|lead| lead.settle_log());
        self.sync_position(durable_lsn)?;
        let id = self.set.new_keyspace_id().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "all keyspace numbers of this store were used")
        })?;
        let mut edit = VersionEdit::default();
        let created = edit.keyspace(id);
        created.create = Some(name.to_owned());
        created.options = Some(Arc::new(options));
        created.flushed = Some(Flushed { log_start: position, flushed_seq: 0, durable_lsn });
        let installed = self.set.apply(edit).map_err(|e| self.note_install_error(e.error))?;
        let state = installed.root.keyspaces.get(&id).ok_or_else(|| {
            Error::new(ErrorKind::Corruption, "a created keyspace is missing from the root")
        })?;
        let options = self.effective(&state.options);
        let buffer = Buffer::new(options.write_buffer_bytes, position, &self.shared.accountant);
        let tree = Arc::new(Tree::new(
            id,
            name.to_owned(),
            SuperVersion {
                active: Arc::new(buffer),
                immutables: Vec::new(),
                version: Arc::clone(&state.version),
                options,
                disk_generation: 0,
            },
        ));
        self.trees.lock().insert(id, Arc::clone(&tree));
        Ok(tree)
    }

    /// Drops a keyspace with everything in it.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.shared.health.check_writable()?;
        self.writer()?;
        if name == DEFAULT_KEYSPACE {
            return Err(Error::invalid(
                "the keyspace \"default\" cannot be dropped; delete its keys",
            ));
        }
        let _ddl = self.ddl.lock();
        let tree = self.keyspace(name, KeyspaceAsk::Open)?;
        // Jobs of the keyspace end first, so that no edit names it after it is gone.
        self.jobs.close_keyspace(&self.shared, tree.id);
        let mut edit = VersionEdit::default();
        edit.keyspace(tree.id).drop = true;
        let installed = match self.set.apply(edit) {
            Ok(installed) => installed,
            Err(failed) => {
                self.jobs.reopen_keyspace(tree.id);
                self.shared.wake_workers();
                return Err(self.note_install_error(failed.error));
            }
        };
        tree.set_dropped();
        self.trees.lock().remove(&tree.id);
        for table in &installed.removed {
            self.reclaimer.retire(table);
        }
        drop(installed);
        tree.clear(&self.shared);
        self.shared.announce_progress();
        self.shared.wake_workers();
        Ok(())
    }

    /// An edit failed: unless only space was missing, what is on the device is unknown.
    pub(crate) fn note_install_error(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::NoSpace | ErrorKind::InvalidArgument | ErrorKind::Closed => {}
            _ => {
                self.shared.health.poison(&error);
                self.shared.announce_progress();
            }
        }
        error
    }

    /// On a clean close, entries that are in no log become tables.
    fn flush_unlogged(&self) -> Result<()> {
        if self.writer.is_none() || self.shared.health.check_writable().is_err() {
            return Ok(());
        }
        let trees: Vec<Arc<Tree>> = self.trees.lock().values().cloned().collect();
        let holds_unlogged = |tree: &Tree| {
            let current = tree.peek();
            std::iter::once(&current.active)
                .chain(&current.immutables)
                .any(|b| b.holds_unlogged.load(Ordering::Relaxed))
        };
        trees.iter().filter(|t| holds_unlogged(t)).try_for_each(|tree| self.flush(tree))
    }

    /// The end of the log of a clean close.
    fn finish_log(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        for (_, callback) in std::mem::take(&mut *writer.sync_requests.lock()) {
            callback(Err(crate::state::health::closed_error()));
        }
        if self.shared.health.is_poisoned() {
            return Err(Error::new(
                ErrorKind::Poisoned,
                "the store was closed after a failure; what was not acknowledged as durable before \
                 it may be missing when it is opened again",
            ));
        }
        // After the last group of those who were let in before the store was closed.
        writer.committer.exclusively(|_| writer.wal.finish())?;
        // The version log says how far the log was durable: a tail that is lost while the store is
        // closed is then told from a crash.
        let edit = VersionEdit {
            wal_durable_lsn: Some(writer.wal.durable_lsn()),
            ..VersionEdit::default()
        };
        self.set.apply(edit).map(|_| ()).map_err(Error::from)
    }

    /// Bytes of the memory budget that the block cache may use now.
    pub(crate) fn cache_share(&self) -> u64 {
        if let Some(bytes) = self.options.block_cache_bytes {
            return bytes;
        }
        let accountant = &self.shared.accountant;
        let budget = self.options.common_budget();
        let trees: Vec<Arc<Tree>> = self.trees.lock().values().cloned().collect();
        // What memtables may grow to before writers wait, not what they hold at this moment.
        let wanted = |tree: &Arc<Tree>| {
            let options = &tree.peek().options;
            options.write_buffer_bytes * (options.immutables_max as u64 + 1)
        };
        let memtables = trees.iter().map(wanted).sum::<u64>().min(memtable_bytes_max(budget));
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

/// How a keyspace is asked for.
pub(crate) enum KeyspaceAsk {
    Open,
    Create(Options),
    OpenOrCreate(Options),
}

/// A name that people can read and that fits its length field.
fn check_name(name: &str) -> Result<()> {
    let max = limits::KEYSPACE_NAME_BYTES_MAX;
    if name.is_empty() || name.len() > max || name.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "{name:?} cannot name a keyspace; use 1 to {max} bytes without control characters"
        )));
    }
    Ok(())
}

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
