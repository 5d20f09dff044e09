//! The table cache: bounds the open tables, and so descriptors and the memory of indexes and
//! filters.
//!
//! A table is opened on first use and closed again when too many are open; a clock chooses which.
//!
//! Not here: the parts of a table that opening reads (`reader`).
//!
//! An open table has two parts, with different lifetimes.
//!
//! * Its *file* is closed at once. A reader holds it for one read only: a cursor or a lookup that
//!   reads on in a table that was closed meanwhile reopens the file. So a slow reader, or a cursor
//!   that stays in a table for long, holds no descriptor.
//! * Its *index and filter* are freed when their last reader has finished. A cursor *pins* them
//!   ([`Slot::pin`]): it shares them for as long as it stays in the table. A point lookup touches
//!   no reference count: it holds a [`Gate`], a read-side critical section; a closed table's index
//!   and filter are passed to the gates of its keyspace ([`Gates`]), which keep them until every
//!   lookup has ended that may have seen them. So a lookup in an open table does one load, as if
//!   tables were never closed.
//!
//! The process may still run out of descriptors, as it opens other files too. Opening a table then
//! closes others and waits for a moment ([`TableCache::opening`]). The waiter holds no file that
//! others may wait for: a table's file is held for one read only.
//!
//! Invariants: (1) a slot's pointers change under its lock only; (2) a pointer is passed to the
//! gates *after* it was removed from its slot, so that a lookup which passes a later gate does not
//! see it; (3) no lock of a slot is held while another table is opened or closed; (4) every open
//! file of a table has a permit, which is released after the file is closed.
//!
//! Source: eviction by a clock, as in `cache`; the gates implement the grace periods of
//! read-copy-update (McKenney, Slingwine: "Read-copy update", 1998) by the publication of
//! super-versions (`state::tree`).

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};

use crate::base::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use crate::base::clock::now_nanos;
use crate::base::error::{Error, Result};
use crate::base::ids::KeyspaceId;
use crate::base::sched::{Condvar, Mutex, MutexGuard, switch_point};
use crate::storage::TableSource;
use crate::table::reader::{Opened, Table};

/// Most tables that one opening closes, so that no caller pays for all that others have opened.
const CLOSED_AT_ONCE_MAX: usize = 4;

/// How long an opening waits for descriptors before it fails: many times the duration of a read,
/// for which alone others hold theirs.
const WAIT_NANOS_MAX: u64 = 1_000_000_000;

/// How often it retries meanwhile: not only tables release descriptors.
const RETRY_EVERY: Duration = Duration::from_millis(10);

/// Stale entries (of dropped or closed tables) that the clock may hold before it is swept.
const CLOCK_SLACK: usize = 64;

/// A read-side critical section: index and filter of tables that are closed from now on stay as
/// long as this lives.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'a>(PhantomData<&'a ()>);

impl Gate<'_> {
    /// # Safety
    /// As long as the gate lives, nothing is freed that was or will be passed, after the gate was
    /// made, to the [`Gates`] of the keyspace whose tables are searched with it.
    #[inline]
    pub(crate) unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// Index and filter of a closed table.
pub(crate) struct Closed(#[expect(dead_code, reason = "it is kept, and dropped")] Arc<Opened>);

/// The gates of a keyspace.
pub(crate) trait Gates {
    /// Keeps `closed` until every lookup that passed a gate before this call has ended.
    fn keep(&self, closed: Vec<Closed>);
}

/// Finds the gates of a keyspace by its id; `None` if it is being dropped.
pub(crate) type FindGates = Box<dyn Fn(KeyspaceId) -> Option<Arc<dyn Gates>> + Send + Sync>;

/// A table's file. Dropping it closes the file.
pub(super) struct OpenFile {
    source: Arc<dyn TableSource>,
    /// Released after the file is closed: fields are dropped in this order.
    _permit: Option<Permit>,
}

impl OpenFile {
    pub(super) fn new(source: Arc<dyn TableSource>, permit: Option<Permit>) -> Self {
        Self { source, _permit: permit }
    }

    pub(super) fn source(&self) -> &dyn TableSource {
        &*self.source
    }
}

/// A table's file, index and filter, as far as they are open.
pub(super) struct Slot {
    /// Index and filter: from `Arc::into_raw`, or null.
    current: AtomicPtr<Opened>,
    /// Whether the table was used since the clock's last visit.
    used: AtomicBool,
    file: ArcSwapOption<OpenFile>,
    lock: Mutex<()>,
    /// All values that `current` ever had. Their addresses are not reused while weak references
    /// exist.
    #[cfg(feature = "schedules")]
    ever_open: Mutex<Vec<Weak<Opened>>>,
}

/// A slot whose pointers do not change.
pub(super) struct LockedSlot<'a> {
    slot: &'a Slot,
    _guard: MutexGuard<'a, ()>,
}

impl Slot {
    pub(super) fn empty() -> Self {
        Self {
            current: AtomicPtr::new(ptr::null_mut()),
            used: AtomicBool::new(false),
            file: ArcSwapOption::empty(),
            lock: Mutex::new(()),
            #[cfg(feature = "schedules")]
            ever_open: Mutex::default(),
        }
    }

    /// Index and filter, for as long as the gate lives.
    #[inline]
    pub(super) fn get<'a>(&'a self, _gate: Gate<'a>) -> Option<&'a Opened> {
        // SAFETY: a pointer in the slot is that of a shared object. It may be removed after this
        // load, but is then passed to the gates, which keep it as long as `_gate` lives (see
        // there), and the slot's table lives as long as `self` is borrowed.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Ends a lookup in `opened`, of [`get`](Self::get). `schedules` checks here that the gate has
    /// kept it: a use after free would mostly find the old content.
    #[inline]
    pub(super) fn end_lookup(&self, opened: &Opened) {
        #[cfg(feature = "schedules")]
        {
            let is_kept = |o: &Weak<_>| ptr::eq(o.as_ptr(), opened) && o.strong_count() > 0;
            let kept = self.ever_open.lock().iter().any(is_kept);
            assert!(kept, "what a table had open went while a lookup looked at it");
        }
        #[cfg(not(feature = "schedules"))]
        let _ = opened;
    }

    /// Index and filter, shared.
    pub(super) fn pin(&self) -> Option<Arc<Opened>> {
        self.lock().get()
    }

    /// The file, for one read.
    pub(super) fn file(&self) -> Guard<Option<Arc<OpenFile>>> {
        switch_point();
        self.file.load()
    }

    /// Marks the table as used. Stores only if it is not marked yet: the cache line is shared.
    #[inline]
    pub(super) fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the table was used since the last call; clears the mark.
    fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Whether anything is open.
    fn is_open(&self) -> bool {
        switch_point();
        self.file.load().is_some() || !self.current.load(Ordering::Acquire).is_null()
    }

    pub(super) fn lock(&self) -> LockedSlot<'_> {
        LockedSlot { slot: self, _guard: self.lock.lock() }
    }
}

impl LockedSlot<'_> {
    /// Index and filter.
    pub(super) fn get(&self) -> Option<Arc<Opened>> {
        let current = self.slot.current.load(Ordering::Acquire);
        if current.is_null() {
            return None;
        }
        // SAFETY: the pointer came from `Arc::into_raw`, and the slot's own reference exists as
        // long as the lock is held (invariant 1).
        Some(unsafe {
            Arc::increment_strong_count(current);
            Arc::from_raw(current)
        })
    }

    /// The file.
    pub(super) fn file(&self) -> Option<Arc<OpenFile>> {
        switch_point();
        self.slot.file.load_full()
    }

    /// Puts an opened file into the slot, which has none.
    pub(super) fn put_file(&self, file: &Arc<OpenFile>) {
        switch_point();
        let before = self.slot.file.swap(Some(Arc::clone(file)));
        assert!(before.is_none(), "a table's file is opened twice");
        self.slot.note_use();
    }

    /// Puts index and filter into the slot, which has none.
    pub(super) fn put(&self, opened: &Arc<Opened>) {
        #[cfg(feature = "schedules")]
        self.slot.ever_open.lock().push(Arc::downgrade(opened));
        let fresh = Arc::into_raw(Arc::clone(opened)).cast_mut();
        let before = self.slot.current.swap(fresh, Ordering::AcqRel);
        assert!(before.is_null(), "a table is opened twice");
    }

    /// Removes the file from the slot.
    fn take_file(&self) -> Option<Arc<OpenFile>> {
        switch_point();
        self.slot.file.swap(None)
    }

    /// Removes index and filter from the slot.
    fn take(&self) -> Option<Arc<Opened>> {
        let current = self.slot.current.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the pointer came from `Arc::into_raw` and is removed once.
        (!current.is_null()).then(|| unsafe { Arc::from_raw(current) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // No lookup runs: lookups hold the table, through its version.
        let slot = self.lock();
        let _open = (slot.take_file(), slot.take());
    }
}

/// The open tables of a store. Locks: `clock` and `closing` are leaves.
pub(crate) struct TableCache {
    max: usize,
    /// Permits in use: files that are open or being opened.
    taken: AtomicU64,
    /// Tables by the time of their opening, or of their second chance; some are closed or dropped.
    clock: Mutex<VecDeque<Weak<Table>>>,
    gates: OnceLock<FindGates>,
    /// Openings that wait for a descriptor.
    waiting: AtomicU64,
    closing: Mutex<()>,
    closed: Condvar,
}

/// A permit for one open file.
pub(super) struct Permit(Arc<TableCache>);

impl Drop for Permit {
    fn drop(&mut self) {
        let tables = &self.0;
        let taken = tables.taken.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(taken > 0, "a permit is released that was not taken");
        // A caller that begins to wait right now retries soon.
        if tables.waiting.load(Ordering::Relaxed) > 0 {
            drop(tables.closing.lock());
            tables.closed.notify_all();
        }
    }
}

impl TableCache {
    /// At most `max` open tables, besides those being read at this moment.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            taken: AtomicU64::new(0),
            clock: Mutex::new(VecDeque::new()),
            gates: OnceLock::new(),
            waiting: AtomicU64::new(0),
            closing: Mutex::new(()),
            closed: Condvar::new(),
        })
    }

    /// Sets the gates of lookups. From now on tables are closed.
    pub(crate) fn set_gates(&self, gates: FindGates) {
        // There is one engine for each, so a second call would change nothing.
        let _ = self.gates.set(gates);
    }

    /// Tables that are open now.
    pub(crate) fn open(&self) -> usize {
        self.taken.load(Ordering::Relaxed) as usize
    }

    /// Runs `attempt`, which opens a file under the permit it is given, and closes other tables for
    /// it. While the process has no descriptor left it is retried, for a while.
    ///
    /// Requires: the caller holds no file of a table and no slot's lock.
    pub(super) fn opening<T>(
        self: &Arc<Self>,
        mut attempt: impl FnMut(Permit) -> Result<T>,
    ) -> Result<T> {
        match attempt(self.take_permit()) {
            Err(error) if error.is_too_many_open_files() => self.wait_and_open(error, &mut attempt),
            done => done,
        }
    }

    #[cold]
    fn wait_and_open<T>(
        self: &Arc<Self>,
        first: Error,
        attempt: &mut dyn FnMut(Permit) -> Result<T>,
    ) -> Result<T> {
        let deadline = now_nanos() + WAIT_NANOS_MAX;
        let mut outcome = Err(first);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while outcome.as_ref().is_err_and(Error::is_too_many_open_files) {
            self.shed();
            outcome = attempt(self.take_permit());
            if outcome.is_ok() || now_nanos() >= deadline {
                break;
            }
            self.closed.wait_for(&mut self.closing.lock(), RETRY_EVERY);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    /// A permit for one more file, for which other tables are closed.
    fn take_permit(self: &Arc<Self>) -> Permit {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        let permit = Permit(Arc::clone(self));
        let excess = (taken as usize).saturating_sub(self.max);
        if excess > 0 {
            self.close(excess.min(CLOSED_AT_ONCE_MAX));
        }
        permit
    }

    /// Closes half of the open tables: the process has no descriptor left.
    pub(crate) fn shed(&self) {
        self.close(self.open().div_ceil(2));
    }

    /// Adds a table whose file was opened to the clock.
    pub(super) fn opened(&self, table: Weak<Table>) {
        let mut clock = self.clock.lock();
        // Stale entries are otherwise removed only when tables are closed.
        if clock.len() > 2 * self.open() + CLOCK_SLACK {
            clock.retain(|table| table.upgrade().is_some_and(|table| table.slot().is_open()));
        }
        clock.push_back(table);
    }

    /// Closes up to `count` tables.
    fn close(&self, count: usize) {
        let Some(find_gates) = self.gates.get() else { return };
        let mut left = count;
        // Each table has at most one second chance.
        let mut visits = 2 * self.clock.lock().len();
        while left > 0 && visits > 0 {
            visits -= 1;
            let Some(weak) = self.clock.lock().pop_front() else { return };
            let Some(table) = weak.upgrade() else { continue };
            if table.slot().take_used() {
                self.clock.lock().push_back(weak);
                continue;
            }
            let gates = find_gates(table.meta().keyspace);
            let (file, opened) = {
                let slot = table.slot().lock();
                // Without gates the keyspace is being dropped: index and filter are freed with the
                // table.
                (slot.take_file(), gates.as_ref().and_then(|_| slot.take()))
            };
            if file.is_some() {
                left -= 1;
            }
            drop(file);
            if let (Some(gates), Some(opened)) = (gates, opened) {
                gates.keep(vec![Closed(opened)]);
            }
        }
    }
}
