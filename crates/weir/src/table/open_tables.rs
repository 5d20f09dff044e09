//! How many tables are open: a bound on descriptors, and on the memory of indexes and filters.
//!
//! A table is opened when it is first used and closed again when too many are open: the one that
//! was used least lately, as a clock sees it.
//!
//! Not here: what is read of a table when it is opened (`reader`).
//!
//! What is open of a table are two things, which end differently.
//!
//! * Its *file* is closed at once. Nobody keeps it but who reads from it, for that one read: a
//!   cursor or a lookup that goes on reading in a table that was closed meanwhile opens the file
//!   again. So nobody who is slow or stands in a table for long takes descriptors from others.
//! * Its *index and filter* go when their last reader is gone. A cursor *pins* them
//!   ([`Slot::pin`]): it shares them and keeps them for as long as it stands in the table. A point
//!   lookup does not count anything: it holds a [`Gate`], and what is closed is handed to the gates
//!   of the table's keyspace ([`Gates`]), which keep it until every lookup is over that may have
//!   seen it. So the path of a lookup that finds its table open is one load, as if tables were
//!   never closed.
//!
//! A process may have no descriptor left all the same, as it opens other files too. Who opens a
//! table then closes others and waits for a moment ([`OpenTables::opening`]). It holds no file that
//! others may wait for: that of a table is held for one read only.
//!
//! Invariants: (1) a slot's pointers change under its lock alone; (2) a pointer that was taken out
//! of a slot is handed to the gates *after* that, so that a lookup which passes a later gate does
//! not see it; (3) no lock of a slot is held while another table is opened or closed; (4) every
//! open file of a table has a place, which it gives back after it was closed.
//!
//! Source: the closing is a clock, as in `cache`; the gates are the grace periods of read-copy-
//! update (McKenney, Slingwine: "Read-copy update", 1998), for which the publication of
//! super-versions is used (`state::tree`).

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

/// Tables that one opening closes at most, so that nobody pays for all that others have opened.
const CLOSED_AT_ONCE_MAX: usize = 4;

/// How long an opening waits for descriptors before it says that there is none: many times what a
/// read takes, for which alone others keep theirs.
const WAIT_NANOS_MAX: u64 = 1_000_000_000;

/// How often it looks again meanwhile: not only tables give descriptors back.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Entries of the clock that are gone or closed and stay, before all are looked at.
const CLOCK_SLACK: usize = 64;

/// Proof that what is closed from now on stays as long as this lives.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'a>(PhantomData<&'a ()>);

impl Gate<'_> {
    /// # Safety
    /// As long as the gate lives, nothing goes that was or will be handed, after the gate was made,
    /// to the [`Gates`] of the keyspace whose tables are asked with it.
    #[inline]
    pub(crate) unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// Index and filter of a table that was closed.
pub(crate) struct Closed(#[expect(dead_code, reason = "it is kept, and dropped")] Arc<Opened>);

/// The gates of a keyspace.
pub(crate) trait Gates {
    /// Keeps what was closed until nobody is left who passed a gate before this call.
    fn keep(&self, closed: Vec<Closed>);
}

/// Finds the gates of a keyspace by its number; `None` if it is being dropped.
pub(crate) type FindGates = Box<dyn Fn(KeyspaceId) -> Option<Arc<dyn Gates>> + Send + Sync>;

/// A table's file. Dropping it closes the file.
pub(super) struct OpenFile {
    source: Arc<dyn TableSource>,
    /// Given back after the file is closed: fields are dropped in this order.
    _place: Option<Place>,
}

impl OpenFile {
    pub(super) fn new(source: Arc<dyn TableSource>, place: Option<Place>) -> Self {
        Self { source, _place: place }
    }

    pub(super) fn source(&self) -> &dyn TableSource {
        &*self.source
    }
}

/// Where a table keeps what it has open.
pub(super) struct Slot {
    /// Index and filter: from `Arc::into_raw`, or null.
    current: AtomicPtr<Opened>,
    /// Whether the table was used since the clock looked last.
    used: AtomicBool,
    file: ArcSwapOption<OpenFile>,
    lock: Mutex<()>,
    /// All that `current` ever was. Their places are not used again: weak references keep those.
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
        // SAFETY: a pointer in the slot is that of a shared object. It may be taken out after this
        // load, but goes to the gates then, which keep it as long as `_gate` lives (see there), and
        // the slot's table lives as long as `self` is borrowed.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Says that a lookup is over which looks at `opened`, of [`get`](Self::get). `schedules` sees
    /// here whether the gate has kept it: who looks at what is gone finds it as it was, mostly.
    #[inline]
    pub(super) fn end_look(&self, opened: &Opened) {
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

    /// Takes note of a use. A store only if nobody has: the line is shared.
    #[inline]
    pub(super) fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the table was used since this was asked last.
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
        // SAFETY: the pointer came from `Arc::into_raw`, and the slot's own share is there as long
        // as the lock is held (invariant 1).
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

    /// Puts a file that was opened into the slot, which has none.
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

    /// Takes out the file.
    fn take_file(&self) -> Option<Arc<OpenFile>> {
        switch_point();
        self.slot.file.swap(None)
    }

    /// Takes out index and filter.
    fn take(&self) -> Option<Arc<Opened>> {
        let current = self.slot.current.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the pointer came from `Arc::into_raw` and is taken out once.
        (!current.is_null()).then(|| unsafe { Arc::from_raw(current) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Nobody looks any more: lookups hold the table, through its version.
        let slot = self.lock();
        let _open = (slot.take_file(), slot.take());
    }
}

/// The open tables of a store. Locks: `clock` and `closing` are leaves.
pub(crate) struct OpenTables {
    max: usize,
    /// Places that are taken: files that are open or being opened.
    taken: AtomicU64,
    /// Tables by the time of their opening, or of their second chance; some are closed or gone.
    clock: Mutex<VecDeque<Weak<Table>>>,
    gates: OnceLock<FindGates>,
    /// Openings that wait for a descriptor.
    waiting: AtomicU64,
    closing: Mutex<()>,
    closed: Condvar,
}

/// The right to one open file, in the count.
pub(super) struct Place(Arc<OpenTables>);

impl Drop for Place {
    fn drop(&mut self) {
        let tables = &self.0;
        tables.taken.fetch_sub(1, Ordering::Relaxed);
        // Who begins to wait right now looks again soon.
        if tables.waiting.load(Ordering::Relaxed) > 0 {
            drop(tables.closing.lock());
            tables.closed.notify_all();
        }
    }
}

impl OpenTables {
    /// At most `max` open tables, besides those that are being read at this moment.
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

    /// From now on tables are closed: it is known where their lookups are.
    pub(crate) fn set_gates(&self, gates: FindGates) {
        // A second call would change nothing: there is one engine for each.
        let _ = self.gates.set(gates);
    }

    /// Tables that are open now.
    pub(crate) fn open(&self) -> usize {
        self.taken.load(Ordering::Relaxed) as usize
    }

    /// What `attempt` gives, which opens a file in the place that it is given. Others are closed
    /// for it. While the process has no descriptor it is made again, for a while.
    ///
    /// Requires: the caller holds no file of a table and no slot's lock.
    pub(super) fn opening<T>(
        self: &Arc<Self>,
        mut attempt: impl FnMut(Place) -> Result<T>,
    ) -> Result<T> {
        match attempt(self.take_place()) {
            Err(error) if error.is_too_many_open_files() => self.wait_and_open(error, &mut attempt),
            done => done,
        }
    }

    #[cold]
    fn wait_and_open<T>(
        self: &Arc<Self>,
        first: Error,
        attempt: &mut dyn FnMut(Place) -> Result<T>,
    ) -> Result<T> {
        let deadline = now_nanos() + WAIT_NANOS_MAX;
        let mut outcome = Err(first);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while outcome.as_ref().is_err_and(Error::is_too_many_open_files) {
            self.shed();
            outcome = attempt(self.take_place());
            if outcome.is_ok() || now_nanos() >= deadline {
                break;
            }
            self.closed.wait_for(&mut self.closing.lock(), LOOK_AGAIN);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    /// A place for one more file, for which others are closed.
    fn take_place(self: &Arc<Self>) -> Place {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        let place = Place(Arc::clone(self));
        let excess = (taken as usize).saturating_sub(self.max);
        if excess > 0 {
            self.close(excess.min(CLOSED_AT_ONCE_MAX));
        }
        place
    }

    /// Closes half of what is open: the process has no descriptor left.
    pub(crate) fn shed(&self) {
        self.close(self.open().div_ceil(2));
    }

    /// Takes note of a table whose file was opened.
    pub(super) fn opened(&self, table: Weak<Table>) {
        let mut clock = self.clock.lock();
        // Those that are gone or closed pass by only while tables are closed.
        if clock.len() > 2 * self.open() + CLOCK_SLACK {
            clock.retain(|table| table.upgrade().is_some_and(|table| table.slot().is_open()));
        }
        clock.push_back(table);
    }

    /// Closes up to `count` tables.
    fn close(&self, count: usize) {
        let Some(find_gates) = self.gates.get() else { return };
        let mut left = count;
        // Each has one second chance at most.
        let mut looks = 2 * self.clock.lock().len();
        while left > 0 && looks > 0 {
            looks -= 1;
            let Some(weak) = self.clock.lock().pop_front() else { return };
            let Some(table) = weak.upgrade() else { continue };
            if table.slot().take_used() {
                self.clock.lock().push_back(weak);
                continue;
            }
            let gates = find_gates(table.meta().keyspace);
            let (file, opened) = {
                let slot = table.slot().lock();
                // Without gates the keyspace is being dropped: the rest goes with the table.
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
