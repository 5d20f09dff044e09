//! State that every part of a running store can reach, and the signals that wake background work
//! and waiting writers.

use std::sync::Arc;

use crate::base::atomic::{AtomicU64, Ordering};
use crate::base::error::Error;
use crate::base::ids::KeyspaceId;
use crate::base::key::{SEQ_MAX, Seq};
use crate::base::memory::Accountant;
use crate::base::sched::{self, Condvar, Mutex};
use crate::cache::row::RowCache;
use crate::gaps::Commits;
use crate::memtable::ChunkPool;
use crate::state::calls::Calls;
use crate::state::counters::Counters;
use crate::state::health::Health;
use crate::state::snapshots::SnapshotList;

/// Shared state of a store. Locks: `signal` is a leaf.
pub(crate) struct Shared {
    /// Largest sequence number that readers may see.
    visible: AtomicU64,
    /// Whether a commit is under way, for scans that remember gaps.
    pub(crate) commits: Commits,
    /// Hidden entries in a row after which a scan notes their range.
    pub(crate) gap_entries: usize,
    /// Live snapshots.
    pub(crate) snapshots: SnapshotList,
    /// Whether writes are accepted.
    pub(crate) health: Health,
    /// Counters of work done.
    pub(crate) counters: Counters,
    /// Callbacks of commits.
    pub(crate) calls: Arc<Calls>,
    /// The memory accountant.
    pub(crate) accountant: Arc<Accountant>,
    /// The pool of memtable memory.
    pub(crate) memtable_memory: Arc<ChunkPool>,
    /// Seed of key hashes in filters and in the row cache.
    pub(crate) hash_seed: u64,
    /// The row cache, if the store has one.
    pub(crate) rows: Option<RowCache>,
    /// How often readers were asked to release memtables that the tree no longer has.
    release_calls: AtomicU64,
    /// Keyspaces whose oldest frozen memtable may have changed.
    frozen: Mutex<Vec<KeyspaceId>>,
    work: Signal,
    progress: Signal,
}

/// What a store's shared state begins with.
pub(crate) struct Opened {
    /// Sequence number of its last entry.
    pub(crate) last_seq: Seq,
    /// Seed of its key hashes.
    pub(crate) hash_seed: u64,
    /// Bytes of its row cache; 0: none.
    pub(crate) row_cache_bytes: u64,
    /// Hidden entries in a row after which a scan notes their range.
    pub(crate) gap_entries: usize,
}

/// A generation counter with a condition variable.
#[derive(Default)]
struct Signal {
    generation: Mutex<u64>,
    changed: Condvar,
}

impl Signal {
    fn raise(&self) {
        *self.generation.lock() += 1;
        self.changed.notify_all();
    }
}

impl Shared {
    /// Shared state of a store that has just been opened.
    pub(crate) fn new(memtable_memory: Arc<ChunkPool>, opened: Opened) -> Self {
        let Opened { last_seq, hash_seed, row_cache_bytes, gap_entries } = opened;
        let accountant = Arc::clone(memtable_memory.accountant());
        let rows =
            (row_cache_bytes > 0).then(|| RowCache::new(row_cache_bytes, Arc::clone(&accountant)));
        Self {
            rows,
            visible: AtomicU64::new(last_seq),
            commits: Commits::after(last_seq),
            gap_entries,
            snapshots: SnapshotList::default(),
            health: Health::default(),
            counters: Counters::default(),
            calls: Arc::default(),
            accountant,
            memtable_memory,
            hash_seed,
            release_calls: AtomicU64::new(0),
            frozen: Mutex::default(),
            work: Signal::default(),
            progress: Signal::default(),
        }
    }

    /// Largest sequence number that readers may see. Read it *after* taking a super-version (H45).
    #[inline]
    pub(crate) fn visible(&self) -> u64 {
        sched::switch_point();
        self.visible.load(Ordering::Acquire)
    }

    /// The cell behind [`visible`](Self::visible), for the snapshot list.
    pub(crate) fn visible_cell(&self) -> &AtomicU64 {
        &self.visible
    }

    /// Makes all entries up to `seq` visible to readers.
    ///
    /// Requires: every entry up to `seq` is in a memtable (H46); one caller at a time.
    #[inline]
    pub(crate) fn publish(&self, seq: u64) {
        let visible = self.visible();
        assert!(seq >= visible, "the visible sequence would go back from {visible} to {seq}");
        assert!(seq <= SEQ_MAX, "the visible sequence {seq} exceeds {SEQ_MAX}");
        self.visible.store(seq, Ordering::Release);
    }

    /// Refuses writes from now on, and wakes all waiters for progress.
    pub(crate) fn poison(&self, cause: &Error) {
        self.health.poison(cause);
        self.announce_progress();
        // A writer may be waiting for a segment, which is refused now.
        self.wake_workers();
    }

    /// Asks open cursors to release old super-versions at their next step.
    pub(crate) fn call_for_release(&self) {
        self.release_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// How often [`call_for_release`](Self::call_for_release) was called.
    #[inline]
    pub(crate) fn release_calls(&self) -> u64 {
        self.release_calls.load(Ordering::Relaxed)
    }

    /// Notes that a memtable of a keyspace was frozen, or that the flush of one has ended. To be
    /// called before the background threads are woken for it.
    pub(crate) fn note_frozen(&self, id: KeyspaceId) {
        self.frozen.lock().push(id);
    }

    /// Takes the keyspaces noted since the last call.
    pub(crate) fn take_frozen(&self) -> Vec<KeyspaceId> {
        std::mem::take(&mut *self.frozen.lock())
    }

    /// Wakes the background threads: there may be work.
    pub(crate) fn wake_workers(&self) {
        self.work.raise();
    }

    /// Generation of the work signal, for [`wait_for_work`](Self::wait_for_work).
    pub(crate) fn work_generation(&self) -> u64 {
        *self.work.generation.lock()
    }

    /// Waits until the work signal was raised after `seen`, for at most `timeout` if one is given.
    pub(crate) fn wait_for_work(&self, seen: u64, timeout: Option<std::time::Duration>) {
        let mut generation = self.work.generation.lock();
        if *generation != seen {
            return;
        }
        match timeout {
            Some(timeout) => {
                self.work.changed.wait_for(&mut generation, timeout);
            }
            None => self.work.changed.wait(&mut generation),
        }
    }

    /// Wakes waiting writers and flush callers: a job has ended or the health has changed.
    pub(crate) fn announce_progress(&self) {
        self.progress.raise();
    }

    /// Waits until `done` gives a result; it is called again after every announced progress.
    pub(crate) fn wait_until<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        loop {
            let seen = self.progress_generation();
            if let Some(result) = done() {
                return result;
            }
            self.wait_for_progress(seen);
        }
    }

    /// Generation of the progress signal, for [`wait_for_progress`](Self::wait_for_progress).
    pub(crate) fn progress_generation(&self) -> u64 {
        *self.progress.generation.lock()
    }

    /// Waits until progress was announced after `seen`.
    pub(crate) fn wait_for_progress(&self, seen: u64) {
        let mut generation = self.progress.generation.lock();
        while *generation == seen {
            self.progress.changed.wait(&mut generation);
        }
    }
}
