//! A ticket of the commit queue: what a writer waits on, for its outcome or for the lead (`Writer`
//! in LevelDB).
//!
//! Not here: the order in which tickets are served (`wait_list`), committing (`queue`).
//!
//! Invariants: (1) a ticket has one outcome, set once; (2) there is one [`Lead`] in a queue: in its
//! wait list while the queue is idle, else with the leader, or in the ticket of the next leader
//! until that takes it; (3) a callback is called once, by a thread that does not lead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::base::error::{Error, Result};
use crate::base::ids::Lsn;
use crate::base::key::Seq;
use crate::base::sched::{self, Condvar, Mutex};
use crate::state::calls::{Calls, Owed};
use crate::write::pending::PendingBatch;

/// The result of a commit.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    /// Log sequence number of its group, 0 if it was not logged.
    pub(crate) lsn: Lsn,
}

pub(crate) type Callback = Box<dyn FnOnce(&Result<Committed>) + Send>;

/// A callback whose batch is still in the queue.
pub(crate) struct OwedCallback {
    owed: Owed,
    callback: Callback,
}

impl OwedCallback {
    pub(crate) fn new(calls: &Arc<Calls>, callback: Callback) -> Self {
        Self { owed: calls.owe(), callback }
    }
}

/// A callback whose batch has left the queue.
pub(super) struct DueCallback {
    callback: OwedCallback,
    outcome: Result<Committed>,
}

/// Runs callbacks. Requires: the caller does not lead.
pub(super) fn run_callbacks(due: Vec<DueCallback>) {
    for DueCallback { callback: OwedCallback { owed, callback }, outcome } in due {
        owed.call(|| callback(&outcome));
    }
}

/// The token of leadership, with the state that leaders pass on. One for each queue.
pub(super) struct Lead {
    /// The last sequence number that was assigned.
    pub(super) last_seq: Seq,
    /// Delay due for bytes already written, not yet slept.
    pub(super) delay_due_nanos: u64,
    /// Bytes of all groups committed so far.
    pub(super) served_bytes: u64,
    /// Whether other tickets may have been waiting when the current leader got it.
    pub(super) maybe_waiting: bool,
}

impl Lead {
    /// The lead of a queue that assigns sequence numbers after `last_seq`.
    pub(super) fn after(last_seq: Seq) -> Self {
        Self { last_seq, delay_due_nanos: 0, served_bytes: 0, maybe_waiting: false }
    }
}

/// What ended a ticket's wait.
pub(super) enum Turn {
    Committed(Result<Committed>),
    Leads(Lead),
}

/// A batch that waits in the queue.
pub(crate) struct Ticket {
    /// Whether a thread blocks on this ticket, so that it can take the lead.
    pub(super) blocking: bool,
    /// Bytes of memory of the ticket and its batch; 0 without a batch. An estimate from above.
    pub(super) bytes: usize,
    pub(super) state: Mutex<TicketState>,
    changed: Condvar,
    /// Whether the outcome or the lead has arrived; a hint for spinning without the lock.
    answered: AtomicBool,
    /// Whether the blocking thread is still spinning, not asleep; a hint.
    pub(super) awake: AtomicBool,
}

/// Adaptive spinning: whether a waiting thread spins before it sleeps, by how recent spins ended.
#[derive(Default)]
pub(super) struct SpinPolicy {
    possible: bool,
    waits: AtomicU32,
    /// How many of the recent spins, `counted`, ended asleep. Both are halved at
    /// [`SPINS_REMEMBERED`].
    slept: AtomicU32,
    counted: AtomicU32,
}

/// Recent spins that the decision is based on.
const SPINS_REMEMBERED: u32 = 64;

/// Where most spins fail, one wait in so many still spins, to notice a change.
const SPIN_AT_LEAST_EVERY: u32 = 64;

impl SpinPolicy {
    /// `possible`: whether another thread can run while one spins.
    pub(super) fn new(possible: bool) -> Self {
        Self { possible, ..Self::default() }
    }

    /// Spins for a moment, if `done` is likely to become true meanwhile.
    fn spin(&self, done: impl Fn() -> bool) {
        if !self.possible {
            return;
        }
        // Concurrent updates may be lost: the counts are a heuristic.
        let (slept, counted) =
            (self.slept.load(Ordering::Relaxed), self.counted.load(Ordering::Relaxed));
        let waits = self.waits.load(Ordering::Relaxed).wrapping_add(1);
        self.waits.store(waits, Ordering::Relaxed);
        // A failed spin costs about what a successful one saves.
        if slept > counted / 2 && !waits.is_multiple_of(SPIN_AT_LEAST_EVERY) {
            return;
        }
        let slept = slept + u32::from(!sched::wait_awake(done));
        let halve = u32::from(counted + 1 >= SPINS_REMEMBERED);
        self.slept.store(slept >> halve, Ordering::Relaxed);
        self.counted.store((counted + 1) >> halve, Ordering::Relaxed);
    }
}

pub(super) struct TicketState {
    /// Taken by the leader that commits it, and returned if a thread blocks on the ticket. `None`
    /// also for a ticket that waits for the lead alone.
    pub(super) pending: Option<PendingBatch>,
    lead: Option<Lead>,
    outcome: Option<Result<Committed>>,
    callback: Option<OwedCallback>,
}

impl Ticket {
    pub(super) fn new(pending: Option<PendingBatch>, blocking: bool) -> Arc<Self> {
        Arc::new(Self {
            blocking,
            bytes: pending.as_ref().map_or(0, PendingBatch::waiting_bytes),
            state: Mutex::new(TicketState { pending, lead: None, outcome: None, callback: None }),
            changed: Condvar::new(),
            answered: AtomicBool::new(false),
            awake: AtomicBool::new(blocking),
        })
    }

    /// A ticket that no thread blocks on; `then` is called with the outcome unless
    /// [`on_outcome`](Self::on_outcome) replaces it.
    pub(super) fn unattended(
        pending: Option<PendingBatch>,
        then: Option<OwedCallback>,
    ) -> Arc<Self> {
        let ticket = Self::new(pending, false);
        ticket.state.lock().callback = then;
        ticket
    }

    /// A ticket of a batch that was refused with `error`.
    pub(crate) fn failed(error: Error) -> Arc<Self> {
        Self::ended(Err(error))
    }

    /// A ticket whose outcome is known.
    pub(crate) fn ended(outcome: Result<Committed>) -> Arc<Self> {
        let ticket = Self::new(None, false);
        ticket.state.lock().outcome = Some(outcome);
        ticket
    }

    /// Waits for the outcome or the lead; spins first, if that pays.
    pub(super) fn wait(&self, spin_policy: &SpinPolicy) -> Turn {
        spin_policy.spin(|| self.answered.load(Ordering::Acquire));
        // The simulation chooses whether the lead arrives while this thread spins.
        sched::switch_point();
        self.awake.store(false, Ordering::Relaxed);
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return Turn::Committed(outcome.clone());
            }
            if let Some(lead) = state.lead.take() {
                return Turn::Leads(lead);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Sets the outcome and wakes waiting threads. The caller runs the returned callback after it
    /// has handed the lead over.
    #[must_use]
    pub(super) fn finish(&self, outcome: Result<Committed>) -> Option<DueCallback> {
        self.finish_with(None, outcome)
    }

    /// As [`finish`](Self::finish), and returns the batch to the thread that blocks on the ticket.
    #[must_use]
    pub(super) fn give_back(
        &self,
        pending: PendingBatch,
        outcome: Result<Committed>,
    ) -> Option<DueCallback> {
        self.finish_with(self.blocking.then_some(pending), outcome)
    }

    fn finish_with(
        &self,
        pending: Option<PendingBatch>,
        outcome: Result<Committed>,
    ) -> Option<DueCallback> {
        let callback = {
            let mut state = self.state.lock();
            // Invariant 1.
            assert!(state.outcome.is_none(), "a ticket has two outcomes");
            assert!(state.lead.is_none(), "a ticket with the lead is committed by another leader");
            state.pending = pending;
            state.outcome = Some(outcome.clone());
            state.callback.take()
        };
        self.answered.store(true, Ordering::Release);
        self.changed.notify_all();
        callback.map(|callback| DueCallback { callback, outcome })
    }

    /// Whether it waits for the lead without a batch, to run something between two groups. Also
    /// after a leader has taken the batch, a ticket with one is not.
    pub(super) fn waits_for_lead_alone(&self) -> bool {
        self.bytes == 0
    }

    pub(super) fn give_lead(&self, lead: Lead) {
        assert!(self.blocking, "the lead goes to a ticket that no thread blocks on");
        let before = self.state.lock().lead.replace(lead);
        assert!(before.is_none(), "a ticket gets the lead twice");
        self.answered.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// The outcome; `None` while the batch is in the queue.
    pub(crate) fn outcome(&self) -> Option<Result<Committed>> {
        self.state.lock().outcome.clone()
    }

    /// Waits until the batch has left the queue.
    pub(crate) fn wait_outcome(&self) -> Result<Committed> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            self.changed.wait(&mut state);
        }
    }

    /// Calls `callback` with the outcome, now or when the batch leaves the queue.
    pub(crate) fn on_outcome(&self, callback: OwedCallback) {
        let mut state = self.state.lock();
        let Some(outcome) = state.outcome.clone() else {
            let replaced = state.callback.replace(callback);
            drop(state);
            return drop(replaced);
        };
        drop(state);
        run_callbacks(vec![DueCallback { callback, outcome }]);
    }
}
