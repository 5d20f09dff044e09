//! How many tables are open: a bound on descriptors, and on the memory of indexes and filters.
//!
//! A table is opened when it is first used and closed again when too many are open: the one that
//! was used least lately, as a clock sees it. What a closed table held goes when its last reader is
//! gone, and is counted as open until then.
//!
//! Not here: what is read of a table when it is opened (`reader`).
//!
//! Readers find what is open in one of two ways. A cursor *pins* it ([`Slot::pin`]): it shares it
//! and keeps it for as long as it stands in the table. A point lookup does not count anything: it
//! holds a [`Gate`], and what is closed is handed to the gates of the table's keyspace ([`Gates`]),
//! which keep it until every lookup is over that may have seen it. So the path of a lookup that
//! finds its table open is one load, as if tables were never closed.
//!
//! A process may have no descriptor left all the same, as what is closed goes late and others open
//! files too. Who holds no gate then waits a moment and tries again ([`with_descriptors`]).
//!
//! Invariants: (1) a slot's pointer changes under its lock alone; (2) a pointer that was taken out
//! of a slot is handed to the gates *after* that, so that a lookup which passes a later gate does
//! not see it; (3) no lock of a slot is held while another table is opened or closed.
//!
//! Source: the closing is a clock, as in `cache`; the gates are the grace periods of read-copy-
//! update (McKenney, Slingwine: "Read-copy update", 1998), for which the publication of
//! super-versions is used (`state::tree`).

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::sched::{self, Mutex, MutexGuard};
use crate::table::reader::{Opened, Table};

/// Tables that one opening closes at most, so that nobody pays for what others have pinned.
const CLOSED_AT_ONCE_MAX: usize = 4;

/// Pauses while others give descriptors back, before it is said that there is none: 0.25 s in all,
/// many times what a lookup or a piece of a job takes.
const PAUSES_MS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Entries of the clock that are gone or closed and stay, before all are looked at.
const CLOCK_SLACK: usize = 64;

/// The result of `attempt`, made again after a pause for as long as the process has no descriptor.
///
/// Requires: the caller holds no gate; what is closed for the attempts would be kept by it.
#[inline]
pub(crate) fn with_descriptors<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    match attempt() {
        Err(error) if error.is_too_many_open_files() => after_pauses(error, &mut attempt),
        done => done,
    }
}

#[cold]
fn after_pauses<T>(error: Error, attempt: &mut dyn FnMut() -> Result<T>) -> Result<T> {
    let mut outcome = Err(error);
    for pause in PAUSES_MS {
        match outcome {
            Err(error) if error.is_too_many_open_files() => {}
            done => return done,
        }
        sched::delay(Duration::from_millis(pause));
        outcome = attempt();
    }
    outcome
}

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

/// What a table held that was closed. Dropping it closes the file, unless it is pinned.
pub(crate) struct Closed(#[expect(dead_code, reason = "it is kept, and dropped")] Arc<Opened>);

/// The gates of a keyspace.
pub(crate) trait Gates {
    /// Keeps what was closed until nobody is left who passed a gate before this call.
    fn keep(&self, closed: Vec<Closed>);
}

/// Finds the gates of a keyspace by its number; `None` if it is being dropped.
pub(crate) type FindGates = Box<dyn Fn(u32) -> Option<Arc<dyn Gates>> + Send + Sync>;

/// Where a table keeps what it has open.
pub(super) struct Slot {
    /// From `Arc::into_raw`, or null.
    current: AtomicPtr<Opened>,
    lock: Mutex<()>,
}

/// A slot whose pointer does not change.
pub(super) struct LockedSlot<'a> {
    slot: &'a Slot,
    _guard: MutexGuard<'a, ()>,
}

impl Slot {
    pub(super) fn empty() -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()), lock: Mutex::new(()) }
    }

    /// What is open, for as long as the gate lives.
    #[inline]
    pub(super) fn get<'a>(&'a self, _gate: Gate<'a>) -> Option<&'a Opened> {
        // SAFETY: a pointer in the slot is that of a shared object. It may be taken out after this
        // load, but goes to the gates then, which keep it as long as `_gate` lives (see there), and
        // the slot's table lives as long as `self` is borrowed.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// What is open, shared.
    pub(super) fn pin(&self) -> Option<Arc<Opened>> {
        self.lock().get()
    }

    /// Whether anything is open.
    pub(super) fn is_open(&self) -> bool {
        !self.current.load(Ordering::Acquire).is_null()
    }

    pub(super) fn lock(&self) -> LockedSlot<'_> {
        LockedSlot { slot: self, _guard: self.lock.lock() }
    }
}

impl LockedSlot<'_> {
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

    /// Puts what was opened into the slot, which is empty.
    pub(super) fn put(&self, opened: &Arc<Opened>) {
        let fresh = Arc::into_raw(Arc::clone(opened)).cast_mut();
        let before = self.slot.current.swap(fresh, Ordering::AcqRel);
        assert!(before.is_null(), "a table is opened twice");
    }

    /// Takes out what is open.
    fn take(&self) -> Option<Arc<Opened>> {
        let current = self.slot.current.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the pointer came from `Arc::into_raw` and is taken out once.
        (!current.is_null()).then(|| unsafe { Arc::from_raw(current) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Nobody looks any more: lookups hold the table, through its version.
        drop(self.lock().take());
    }
}

/// The open tables of a store. Locks: `clock` is a leaf.
pub(crate) struct OpenTables {
    max: usize,
    open: AtomicUsize,
    /// Tables by the time of their opening, or of their second chance; some are closed or gone.
    clock: Mutex<VecDeque<Weak<Table>>>,
    gates: OnceLock<FindGates>,
}

/// One open table in the count.
pub(super) struct OpenCount(Option<Arc<OpenTables>>);

impl Drop for OpenCount {
    fn drop(&mut self) {
        if let Some(tables) = &self.0 {
            tables.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl OpenCount {
    pub(super) fn new(tables: Option<&Arc<OpenTables>>) -> Self {
        if let Some(tables) = tables {
            tables.open.fetch_add(1, Ordering::Relaxed);
        }
        Self(tables.cloned())
    }
}

impl OpenTables {
    /// At most `max` open tables, besides those that readers are using.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            open: AtomicUsize::new(0),
            clock: Mutex::new(VecDeque::new()),
            gates: OnceLock::new(),
        })
    }

    /// From now on tables are closed: it is known where their lookups are.
    pub(crate) fn set_gates(&self, gates: FindGates) {
        // A second call would change nothing: there is one engine for each.
        let _ = self.gates.set(gates);
    }

    /// Tables that are open now.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Closes tables until one more may be opened.
    pub(super) fn make_room(&self) {
        let excess = (self.open() + 1).saturating_sub(self.max);
        if excess > 0 {
            self.close(excess.min(CLOSED_AT_ONCE_MAX));
        }
    }

    /// Closes half of what is open: the process has no descriptor left.
    pub(crate) fn shed(&self) {
        self.close(self.open().div_ceil(2));
    }

    /// Takes note of a table that was opened.
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
            if table.take_used() {
                self.clock.lock().push_back(weak);
                continue;
            }
            let Some(gates) = find_gates(table.meta().keyspace) else { continue };
            // Bound to a name, so that the lock is given back first.
            let taken = table.slot().lock().take();
            if let Some(opened) = taken {
                gates.keep(vec![Closed(opened)]);
                left -= 1;
            }
        }
    }
}
