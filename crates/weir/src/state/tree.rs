//! One open keyspace: its memtables and its version, published together as a super-version.
//!
//! Invariants:
//! 1. Memtables are ordered newest first and are newer than everything in the version.
//! 2. A memtable is frozen between two commit groups: all its sequence numbers are below those of
//!    its successor. It gets its data epoch at that moment (ARCHITECTURE §3, H22).
//! 3. The super-version is changed under `install`, with the version taken from the version set
//!    under it, so that an older version never replaces a newer one.
//! 4. `log_start` of a memtable is the position of the first log group that can hold its entries;
//!    the keyspace's log start on disk never passes that of its oldest memtable (H38).
//! 5. A publication of a super-version keeps its successor, so that what is given to it lives until
//!    every lookup has ended that loaded it or an earlier one (`table::table_cache`). Lookups hold
//!    it for a short time: a pinned super-version does not hold the publication.
//! 6. What cursors have left for the next one holds the newest super-version (`state::idle`).
//! 7. The keys of a flushed memtable are erased from the row cache before the memtable is removed
//!    from the super-version (H53).

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use crate::base::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::checksum::hash_key;
use crate::base::cursor::Cursor;
use crate::base::error::Error;
use crate::base::ids::{DataEpoch, KeyspaceId, PerLevel};
use crate::base::key::Seq;
use crate::base::memory::{Category, Charge};
use crate::base::sched::{self, Mutex};
use crate::cache::row::RowKey;
use crate::gaps::Gaps;
use crate::heat::RangeHeat;
use crate::heat::moved::{MovedRange, MovedRanges};
use crate::log::LogPosition;
use crate::memtable::{ChunkPool, Memtable};
use crate::options::{Options, WarmUp};
use crate::state::idle::IdleSlots;
use crate::state::shared::Shared;
use crate::table::{Closed, Gate, Gates};
use crate::version::run::Version;

/// A memtable with what its flush needs: the start of its entries in the log, its data epoch, and
/// its charge.
pub(crate) struct Flushable {
    /// Dropped first: memory must not be charged any longer when the pool keeps it for the next
    /// memtable.
    charge: Mutex<Charge>,
    /// The entries.
    pub(crate) memtable: Arc<Memtable>,
    /// First log group that can hold its entries. It advances while the memtable is empty.
    log_start: Mutex<LogPosition>,
    /// Whether it holds entries that are in no log.
    pub(crate) holds_unlogged: AtomicBool,
    /// Data epoch; 0 until it is frozen.
    epoch: AtomicU64,
    charged: AtomicU64,
}

impl Flushable {
    /// An empty, active memtable.
    pub(crate) fn new(hint: u64, log_start: LogPosition, pool: &Arc<ChunkPool>) -> Self {
        Self {
            charge: Mutex::new(pool.accountant().charge(Category::Memtables, 0)),
            memtable: Arc::new(Memtable::in_pool(hint as usize, pool)),
            log_start: Mutex::new(log_start),
            holds_unlogged: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            charged: AtomicU64::new(0),
        }
    }

    /// First log group that can hold its entries.
    pub(crate) fn log_start(&self) -> LogPosition {
        *self.log_start.lock()
    }

    /// Its data epoch, drawn when it was frozen.
    pub(crate) fn epoch(&self) -> DataEpoch {
        DataEpoch::new(self.epoch.load(Ordering::Acquire))
    }

    /// Charges the memtable's memory to the accountant, exactly. It changes seldom: with the number
    /// of chunks, which double.
    #[inline]
    pub(crate) fn update_charge(&self) {
        let bytes = self.memtable.reserved_bytes();
        if bytes != self.charged.load(Ordering::Relaxed) {
            self.charged.store(bytes, Ordering::Relaxed);
            self.charge.lock().resize(bytes);
        }
    }
}

/// The state that a reader needs, at one moment.
#[derive(Clone)]
pub(crate) struct SuperVersion {
    /// How many the keyspace had before. What another one left at an address says nothing, not
    /// even the same thing in two runs of a simulation; a number does.
    number: u64,
    /// Takes the writes.
    pub(crate) active: Arc<Flushable>,
    /// Frozen, waiting for their flush, newest first.
    pub(crate) immutables: Vec<Arc<Flushable>>,
    /// The tables.
    pub(crate) version: Arc<Version>,
    /// Options of the keyspace as of this version.
    pub(crate) options: Arc<Options>,
    /// Generation of the disk part, for the row cache; always 0 in a store without one.
    pub(crate) disk_generation: u64,
    /// Where reads and writes of this state are counted by range, if anybody asks for it.
    pub(crate) heat: Option<Arc<RangeHeat>>,
}

impl SuperVersion {
    /// Of a keyspace that is opened: nothing waits for a flush.
    pub(crate) fn new(active: Flushable, version: Arc<Version>, options: Arc<Options>) -> Self {
        let active = Arc::new(active);
        let immutables = Vec::new();
        Self { number: 0, active, immutables, version, options, disk_generation: 0, heat: None }
    }

    /// What [`Tree::is_newest`] knows it by.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// With `fresh` for the writes to come: the memtable that took them until now is frozen.
    fn with_memtable(self, fresh: Flushable) -> Self {
        let mut immutables = Vec::with_capacity(self.immutables.len() + 1);
        immutables.push(self.active);
        immutables.extend(self.immutables);
        Self { active: Arc::new(fresh), immutables, ..self }
    }

    /// With the tables of a newer version.
    pub(crate) fn with_version(self, version: Arc<Version>) -> Self {
        Self { version, ..self }
    }

    /// With new options.
    pub(crate) fn with_options(self, options: Arc<Options>) -> Self {
        Self { options, ..self }
    }

    /// Whether compactions hand over cached blocks to what they build.
    pub(crate) fn hands_over(&self) -> bool {
        self.options.warm_up == WarmUp::HandOff
    }

    /// With reads and writes counted there.
    pub(crate) fn with_heat(self, heat: Option<Arc<RangeHeat>>) -> Self {
        Self { heat, ..self }
    }

    /// Without the frozen memtable `flushed`, which the version has as tables. `generation` is that
    /// of the disk part from now on (H53).
    pub(crate) fn without_memtable(mut self, flushed: &Arc<Flushable>, generation: u64) -> Self {
        self.immutables.retain(|frozen| !Arc::ptr_eq(frozen, flushed));
        Self { disk_generation: generation, ..self }
    }

    /// That this one may replace `older`: memtables newest first, and no row of an older generation
    /// becomes valid again (H53).
    fn assert_follows(&self, older: &Self) {
        let epochs = || self.immutables.iter().map(|flushable| flushable.epoch());
        assert!(
            epochs().is_sorted_by(|newer, older| newer > older),
            "immutable memtables are not newest first: {:?}",
            epochs().collect::<Vec<_>>()
        );
        assert!(
            self.disk_generation >= older.disk_generation,
            "the disk part goes back from generation {} to {}",
            older.disk_generation,
            self.disk_generation
        );
    }
}

/// A publication of a super-version, and tables closed while it was the newest one
/// (`table::table_cache`).
struct Publication {
    current: Arc<SuperVersion>,
    /// Index and filter of tables that were closed while this was the newest publication.
    closed: Mutex<Vec<Closed>>,
    /// The publication that replaced it.
    next: OnceLock<Arc<Publication>>,
}

impl Publication {
    fn new(current: Arc<SuperVersion>) -> Arc<Self> {
        Arc::new(Self { current, closed: Mutex::default(), next: OnceLock::new() })
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        // In a loop: a lookup may have kept a long list.
        let mut next = self.next.take();
        while let Some(mut publication) = next.and_then(Arc::into_inner) {
            next = publication.next.take();
        }
    }
}

/// A short borrow of the newest super-version.
pub(crate) struct Peek(arc_swap::Guard<Arc<Publication>>);

impl Peek {
    /// A gate for lookups in the tables of this super-version.
    #[inline]
    pub(crate) fn gate(&self) -> Gate<'_> {
        // SAFETY: what is given to `Tree::keep` from now on is held by this publication or by a
        // later one, which this one keeps, and this one lives as long as the guard.
        unsafe { Gate::new() }
    }
}

impl Deref for Peek {
    type Target = SuperVersion;

    #[inline]
    fn deref(&self) -> &SuperVersion {
        &self.0.current
    }
}

/// Units of [`Tree::delay_per_byte`] in a nanosecond.
pub(crate) const DELAY_UNITS_PER_NANO: u64 = 1024;

/// An open keyspace.
pub(crate) struct Tree {
    /// Id of the keyspace, never reused.
    pub(crate) id: KeyspaceId,
    /// Name of the keyspace.
    pub(crate) name: String,
    published: ArcSwap<Publication>,
    install: Mutex<()>,
    dropped: AtomicBool,
    /// Generation of the disk part; a super-version of it may not be published yet (`cache::row`).
    disk_generation: AtomicU64,
    /// Held while `delay_per_byte`, `stalled` and `stall_blocked_by` are updated together.
    pub(crate) pressing: Mutex<()>,
    /// Delay that writers owe per byte, in units of 1 / [`DELAY_UNITS_PER_NANO`] nanoseconds; set
    /// after every install.
    pub(crate) delay_per_byte: AtomicU64,
    /// Bytes that compactions wrote into each level since the keyspace was opened.
    pub(crate) compacted: PerLevel<AtomicU64>,
    /// Entries that compactions into each level dropped because newer ones hid them.
    pub(crate) shadowed: PerLevel<AtomicU64>,
    /// Whether writers must wait for a flush or a compaction.
    pub(crate) stalled: AtomicBool,
    /// Why stalled writers cannot make progress.
    stall_blocked_by: Mutex<Option<Error>>,
    /// Ranges of keys that show nothing.
    pub(crate) gaps: Gaps,
    /// What cursors have left for the next one.
    pub(crate) idle: IdleSlots,
    /// The hot ranges that were moved last.
    moved: Mutex<MovedRanges>,
}

impl Tree {
    /// An open keyspace in this state.
    pub(crate) fn new(id: KeyspaceId, name: String, first: SuperVersion) -> Self {
        Self {
            id,
            name,
            published: ArcSwap::new(Publication::new(Arc::new(first))),
            install: Mutex::new(()),
            dropped: AtomicBool::new(false),
            disk_generation: AtomicU64::new(0),
            pressing: Mutex::new(()),
            delay_per_byte: AtomicU64::new(0),
            compacted: Default::default(),
            shadowed: Default::default(),
            stalled: AtomicBool::new(false),
            stall_blocked_by: Mutex::new(None),
            gaps: Gaps::default(),
            idle: IdleSlots::default(),
            moved: Mutex::new(MovedRanges::default()),
        }
    }

    /// Remembers a hot range that was moved.
    pub(crate) fn note_moved(&self, range: MovedRange) {
        self.moved.lock().add(range);
    }

    /// The hot ranges that were moved last, the newest last.
    pub(crate) fn moved(&self) -> Vec<MovedRange> {
        self.moved.lock().iter().cloned().collect()
    }

    /// Borrows the current super-version for a short time (a point lookup).
    #[inline]
    pub(crate) fn peek(&self) -> Peek {
        sched::switch_point();
        Peek(self.published.load())
    }

    /// Shares the current super-version, to keep.
    pub(crate) fn pin(&self) -> Arc<SuperVersion> {
        sched::switch_point();
        Arc::clone(&self.published.load().current)
    }

    /// Whether the super-version with this number is the newest one.
    #[inline]
    pub(crate) fn is_newest(&self, number: u64) -> bool {
        sched::switch_point();
        self.published.load().current.number == number
    }

    /// Bytes of the active memtable, and of those that wait for their flush, as the accountant
    /// counts them.
    pub(crate) fn memtable_bytes(&self) -> (u64, u64) {
        let current = self.peek();
        let frozen = current.immutables.iter().map(|b| b.memtable.reserved_bytes()).sum();
        (current.active.memtable.reserved_bytes(), frozen)
    }

    /// Replaces the super-version by `change` of the current one. Locks: `install`.
    pub(crate) fn update(&self, change: impl FnOnce(&SuperVersion) -> SuperVersion) {
        let guard = self.install.lock();
        let current = self.peek();
        let next = SuperVersion { number: current.number + 1, ..change(&current) };
        next.assert_follows(&current);
        drop(current);
        let old = self.publish(Arc::new(next), Vec::new());
        drop(guard);
        // Not under the lock: this may free a version.
        self.idle.clear();
        drop(old);
    }

    /// Publishes `current`; the publication that it replaces keeps `closed`.
    ///
    /// Requires: `install` is held.
    fn publish(&self, current: Arc<SuperVersion>, closed: Vec<Closed>) -> Arc<Publication> {
        let fresh = Publication::new(current);
        sched::switch_point();
        let old = self.published.swap(Arc::clone(&fresh));
        old.closed.lock().extend(closed);
        // Only here, once for every publication.
        assert!(old.next.set(fresh).is_ok(), "a publication of {} is replaced twice", self.name);
        old
    }

    /// The current super-version, and what `look` says while no other is published.
    pub(crate) fn pin_with<T>(&self, look: impl FnOnce() -> T) -> (Arc<SuperVersion>, T) {
        let _publishing = self.install.lock();
        (self.pin(), look())
    }

    /// Freezes the active memtable under a new epoch and replaces it by an empty one, whose entries
    /// will be at or after `log_start`. The epoch is drawn under the lock of publications, so that
    /// [`Tree::pin_with`] never meets one that is drawn and not published.
    ///
    /// Requires: no commit group is being inserted (the caller leads the commit queue).
    pub(crate) fn freeze(
        &self,
        new_epoch: impl FnOnce() -> DataEpoch,
        log_start: LogPosition,
        hint: u64,
        pool: &Arc<ChunkPool>,
    ) {
        let fresh = Flushable::new(hint, log_start, pool);
        self.update(|current| {
            let (active, epoch) = (&current.active, new_epoch());
            assert_eq!(active.epoch(), DataEpoch::ZERO, "frozen again under epoch {epoch}");
            if let (Some(older), Some((first, _))) =
                (current.immutables.first(), active.memtable.seq_range())
            {
                let last = last_seq(older);
                assert!(last < first, "a memtable from {first} follows one up to {last}");
            }
            active.epoch.store(epoch.get(), Ordering::Release);
            current.active.update_charge();
            current.clone().with_memtable(fresh)
        });
        self.gaps.age();
    }

    /// Advances the active memtable's log start to `log_start` if it is empty: it needs nothing of
    /// the log before.
    ///
    /// Requires: no commit group is being inserted (the caller leads the commit queue).
    pub(crate) fn restart_log_if_empty(&self, log_start: LogPosition) {
        let current = self.peek();
        if current.active.memtable.is_empty() {
            *current.active.log_start.lock() = log_start;
        }
    }

    /// First log group that a memtable of this keyspace may still need.
    pub(crate) fn oldest_log_start(&self) -> LogPosition {
        let current = self.peek();
        current.immutables.last().unwrap_or(&current.active).log_start()
    }

    /// First log group that may hold an entry of a memtable of this keyspace; `None` if all are
    /// empty.
    pub(crate) fn needs_log_from(&self) -> Option<LogPosition> {
        let current = self.peek();
        let active = (!current.active.memtable.is_empty()).then_some(&current.active);
        current.immutables.last().or(active).map(|flushable| flushable.log_start())
    }

    /// Releases all memtables, tables and rows, after a drop. Cursors keep what they pinned.
    pub(crate) fn clear(&self, shared: &Shared) {
        let generation = shared.rows.as_ref().map_or(0, |rows| {
            let generation = self.raise_generation();
            rows.erase_keyspace(self.id);
            generation
        });
        self.update(|current| {
            let empty = Flushable::new(0, current.active.log_start(), &shared.memtable_memory);
            let options = Arc::clone(&current.options);
            let cleared = SuperVersion::new(empty, Arc::default(), options);
            SuperVersion { disk_generation: generation, ..cleared }
        });
    }

    /// The newest generation of the disk part, which an insertion into the row cache checks.
    pub(crate) fn newest_generation(&self) -> &AtomicU64 {
        &self.disk_generation
    }

    /// Raises the generation: from now on no row of an older super-version is inserted.
    fn raise_generation(&self) -> u64 {
        self.disk_generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Erases the keys of a flushed memtable from the row cache. Returns the generation of the
    /// super-version without that memtable, which must be published *after* this (H53).
    ///
    /// Requires: one flush of the keyspace at a time.
    pub(crate) fn forget_rows(&self, shared: &Shared, flushed: &Flushable) -> u64 {
        assert_ne!(flushed.epoch(), DataEpoch::ZERO, "a memtable is flushed before it is frozen");
        let Some(rows) = &shared.rows else { return 0 };
        let generation = self.raise_generation();
        rows.begin_erasing();
        let mut entries = flushed.memtable.cursor();
        entries.seek_to_first();
        while entries.valid() {
            let (key, hash) = (entries.key(), hash_key(entries.key(), shared.hash_seed));
            rows.erase(RowKey { keyspace: self.id, hash, key });
            entries.next();
        }
        rows.end_erasing();
        generation
    }

    /// Why stalled writers cannot make progress: no flush or compaction can relieve the stall.
    pub(crate) fn stall_blocked_by(&self) -> Option<Error> {
        self.stall_blocked_by.lock().clone()
    }

    /// Sets [`stall_blocked_by`](Self::stall_blocked_by).
    pub(crate) fn set_stall_blocked_by(&self, error: Option<Error>) {
        *self.stall_blocked_by.lock() = error;
    }

    /// Whether the keyspace was dropped.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        sched::switch_point();
        self.dropped.load(Ordering::Acquire)
    }

    /// Marks the keyspace as dropped.
    pub(crate) fn set_dropped(&self) {
        sched::switch_point();
        self.dropped.store(true, Ordering::Release);
    }
}

impl Gates for Tree {
    /// Locks: `install`.
    fn keep(&self, closed: Vec<Closed>) {
        let guard = self.install.lock();
        let old = self.publish(self.pin(), closed);
        drop(guard);
        // What waits may hold index and filter of a table that is closed.
        self.idle.clear();
        drop(old);
    }
}

/// Largest sequence number in a memtable, 0 if it is empty.
pub(crate) fn last_seq(flushable: &Flushable) -> Seq {
    flushable.memtable.seq_range().map_or(0, |(_, last)| last)
}
