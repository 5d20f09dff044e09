//! The end of an open store: background work ends, the log is made durable, the lock given up.
//!
//! Invariants: (1) nothing is written once the lock is given up; (2) a clean close leaves nothing
//! in memory alone: what is in no log becomes tables.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::sched::{self, Mutex, Thread};
use crate::db::engine::Engine;
use crate::db::jobs;
use crate::state::tree::Tree;
use crate::version::edit::VersionEdit;

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
}
