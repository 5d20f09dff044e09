//! The end of an open store: background work ends, the log is made durable, the lock given up.
//!
//! Steps: (a) new writes are refused, those already admitted are committed, then nothing is; (b)
//! what is in no log becomes tables; (c) reads are refused, background threads and jobs end; (d)
//! the log gets its end; (e) the lock is given up; (f) who waited for a sync gets the outcome, and
//! other threads call the callbacks that they still owe.
//!
//! Invariants: (1) nothing is written once the lock is given up; (2) a clean close leaves nothing
//! in memory alone: whatever was acknowledged before it returns is in the log or in tables; (3) no
//! code of the user's runs before the lock is given up, nor under a lock of the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::sched::{self, Mutex, Thread};
use crate::db::engine::Engine;
use crate::state::tree::Tree;
use crate::version::edit::VersionEdit;

/// Keeps a store open: the last handle that goes closes it.
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) workers: Mutex<Vec<Thread>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nobody is left who could be closing it. What a close in a callback has left ends by
        // itself; to wait for it here could be in that callback's way.
        if self.engine.shared.health.is_closed() {
            return;
        }
        self.close().ignore_error("who wants to know calls close");
    }
}

impl Handle {
    /// Ends background work, makes the log durable, releases the lock. Later calls do nothing; one
    /// at the same time waits for the end.
    ///
    /// Requires: the caller is no background thread. (No code of the user's runs on one.)
    ///
    /// # Errors
    /// `Poisoned` if an earlier failure left the log's state unknown; the device's.
    pub(crate) fn close(&self) -> Result<()> {
        // A fork has neither the background threads nor the lock; its copy changes nothing.
        if !self.engine.shared.health.is_own_process() {
            return Err(crate::state::health::forked_error());
        }
        let mut workers = self.workers.lock();
        if self.engine.shared.health.is_closed() {
            drop(workers);
            // Who closed it may not have called all of them yet.
            self.engine.wait_for_callbacks();
            return Ok(());
        }
        let result = self.engine.close(std::mem::take(&mut *workers));
        // A callback may close the store, too: it waits for this lock.
        drop(workers);
        self.engine.end_syncs(result.clone());
        // Of other threads, too: who led calls them after the lead was given away.
        self.engine.wait_for_callbacks();
        result
    }
}

impl Engine {
    /// Closes the store; see [`Handle::close`].
    fn close(&self, workers: Vec<Thread>) -> Result<()> {
        self.end_writes();
        let flushed = sched::catch_panic("closing a store", || self.flush_unlogged());
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
        // Other threads may be compacting a range or changing keyspaces. They see that the store is
        // closed; nothing may be written after the lock is released.
        self.jobs.wait_for_running(&self.shared);
        let ddl = self.ddl.lock();
        if let Some(writer) = &self.writer {
            writer.syncs.stop();
        }
        // Cursors that end from now on leave nothing.
        let trees: Vec<Arc<Tree>> = self.trees.lock().values().cloned().collect();
        trees.iter().for_each(|tree| tree.idle.clear());
        let finished = sched::catch_panic("closing a store", || {
            // What the last jobs made obsolete; no worker is left to do it.
            self.reclaim();
            self.finish_log()
        });
        self.set.close(crate::state::health::closed_error());
        drop(ddl);
        let storage = self.storage.lock().take();
        assert!(storage.is_some(), "the lock of {} is released twice", self.path);
        let unlocked = sched::catch_panic("closing a store", || {
            storage.iter().for_each(|storage| storage.unlock());
            Ok(())
        });
        flushed.and(finished).and(unlocked)
    }

    /// Refuses writes, and waits until those admitted before are committed or refused: from then on
    /// nothing is acknowledged.
    fn end_writes(&self) {
        self.shared.health.refuse_writes();
        // Who waits for room in the lead would hold it until there is some.
        self.shared.announce_progress();
        self.shared.wake_workers();
        if let Some(writer) = &self.writer {
            let sealed = writer.committer.exclusively(|_| self.shared.health.seal());
            // A poisoned store commits nothing anyway, whoever leads.
            sealed.unwrap_or_else(|_| self.shared.health.seal());
        }
    }

    /// On a clean close, entries that are in no log become tables.
    fn flush_unlogged(&self) -> Result<()> {
        if self.writer.is_none() || self.shared.health.check_sound().is_err() {
            return Ok(());
        }
        let trees: Vec<Arc<Tree>> = self.trees.lock().values().cloned().collect();
        let holds_unlogged = |tree: &Tree| {
            let current = tree.peek();
            std::iter::once(&current.active)
                .chain(&current.immutables)
                .any(|b| b.holds_unlogged.load(Ordering::Relaxed))
        };
        let health = &self.shared.health;
        // Work that fails is tried again a few times: nothing of this is anywhere else.
        let blocked_by = |tree: &Tree, failures| {
            let failing = || self.jobs.lasting_flush_error(tree.id);
            let full = || self.no_space_for_flushes(failures);
            health.check_sound().err().or_else(full).or_else(failing)
        };
        let unlogged = trees.iter().filter(|tree| holds_unlogged(tree));
        unlogged
            .into_iter()
            .try_for_each(|tree| self.flush_unless(tree, |failures| blocked_by(tree, failures)))
    }

    /// The end of the log of a clean close.
    fn finish_log(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        if !writer.wal.is_failed() {
            // Before the check: what a log that is sound holds is not lost with the store.
            writer.committer.write_out_log(true)?;
        }
        self.shared.health.check_sound().map_err(|cause| {
            let what = format!(
                "the store was closed after a failure; what was not acknowledged as durable before \
                 it may be missing when it is opened again: {cause}"
            );
            Error::with_source(ErrorKind::Poisoned, what, cause)
        })?;
        writer.committer.exclusively(|_| writer.wal.finish())??;
        let (written, durable) = (writer.wal.written_lsn(), writer.wal.durable_lsn());
        assert_eq!(written, durable, "the last group written and durable at the end of the log");
        // The version log says how far the log was durable: a tail that is lost while the store is
        // closed is then distinguished from a crash.
        let edit = VersionEdit {
            wal_durable_lsn: Some(writer.wal.durable_lsn()),
            ..VersionEdit::default()
        };
        self.set.apply(edit).map(|_| ()).map_err(Error::from)
    }
}
