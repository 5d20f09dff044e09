//! A ticket of the commit queue: what a writer waits on, for its outcome or for the lead.
//!
//! Not here: the order in which tickets are served (`wait_list`), committing (`queue`).
//!
//! Invariants: (1) a ticket has one outcome, set once; (2) there is one [`Lead`] in a queue: in its
//! wait list while nobody leads, else with the leader or on its way to the next one, in the ticket
//! that was given it; (3) a callback is called once, by a thread that does not lead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::base::error::{Error, Result};
use crate::base::ids::Lsn;
use crate::base::key::Seq;
use crate::base::sched::{self, Condvar, Mutex};
use crate::state::calls::{Calls, Owed};
use crate::write::pending::PendingBatch;

/// What became of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    /// Log sequence number of its group, 0 if it is in no log.
    pub(crate) lsn: Lsn,
}

pub(crate) type Callback = Box<dyn FnOnce(&Result<Committed>) + Send>;

/// A callback that waits for its batch to leave the queue.
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

/// The right to do what only the leader may do, with what leaders pass on. One for each queue.
pub(super) struct Lead {
    /// The last sequence number handed out.
    pub(super) last_seq: Seq,
    /// Delay that writers owe for their bytes and have not slept off.
    pub(super) owed_nanos: u64,
    /// Bytes of all groups so far.
    pub(super) served_bytes: u64,
    /// Somebody may have waited when it was given to who has it.
    pub(super) has_company: bool,
}

impl Lead {
    /// The lead of a queue that hands out sequence numbers after `last_seq`.
    pub(super) fn after(last_seq: Seq) -> Self {
        Self { last_seq, owed_nanos: 0, served_bytes: 0, has_company: false }
    }
}

/// What a ticket's thread has waited for.
pub(super) enum Turn {
    Committed(Result<Committed>),
    Leads(Lead),
}

/// A batch that waits in the queue.
pub(crate) struct Ticket {
    /// Whether a thread blocks on this ticket and can take the lead.
    pub(super) blocking: bool,
    /// Bytes that it keeps in memory. An estimate from above.
    pub(super) bytes: usize,
    pub(super) state: Mutex<TicketState>,
    changed: Condvar,
    /// Whether the state has what is waited for; a hint for those who look without the lock.
    answered: AtomicBool,
    /// Whether the thread that blocks on it has not gone to sleep; a hint.
    pub(super) awake: AtomicBool,
}

/// Whether it pays to wait awake: learned from how such waits ended.
#[derive(Default)]
pub(super) struct Patience {
    possible: bool,
    waits: AtomicU32,
    /// Of the last waits, counted down to a half when they are [`PATIENCE_WAITS`], how many slept.
    slept: AtomicU32,
    counted: AtomicU32,
}

/// Waits that are remembered.
const PATIENCE_WAITS: u32 = 64;

/// Where most waits end asleep, one in so many is tried awake all the same.
const TRY_EVERY: u32 = 64;

impl Patience {
    /// `possible`: whether anybody else can run while a thread waits awake.
    pub(super) fn new(possible: bool) -> Self {
        Self { possible, ..Self::default() }
    }

    /// Waits awake for a moment, if that is likely to be enough.
    fn wait_awake(&self, done: impl Fn() -> bool) {
        if !self.possible {
            return;
        }
        // Counts of several threads may be lost: they only decide how to wait.
        let (slept, counted) =
            (self.slept.load(Ordering::Relaxed), self.counted.load(Ordering::Relaxed));
        let waits = self.waits.load(Ordering::Relaxed).wrapping_add(1);
        self.waits.store(waits, Ordering::Relaxed);
        // A wait awake that was in vain costs about what one saves that was not.
        if slept > counted / 2 && !waits.is_multiple_of(TRY_EVERY) {
            return;
        }
        let slept = slept + u32::from(!sched::wait_awake(done));
        let halve = u32::from(counted + 1 >= PATIENCE_WAITS);
        self.slept.store(slept >> halve, Ordering::Relaxed);
        self.counted.store((counted + 1) >> halve, Ordering::Relaxed);
    }
}

pub(super) struct TicketState {
    /// Taken by the leader that commits it, and given back if a thread blocks on the ticket. `None`
    /// also for a ticket that only wants the lead.
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

    /// A ticket that no thread blocks on; `then` is told the outcome unless
    /// [`on_outcome`](Self::on_outcome) names somebody else.
    pub(super) fn unattended(
        pending: Option<PendingBatch>,
        then: Option<OwedCallback>,
    ) -> Arc<Self> {
        let ticket = Self::new(pending, false);
        ticket.state.lock().callback = then;
        ticket
    }

    /// A ticket of a batch that was refused.
    pub(crate) fn failed(error: Error) -> Arc<Self> {
        Self::ended(Err(error))
    }

    /// A ticket whose outcome is known.
    pub(crate) fn ended(outcome: Result<Committed>) -> Arc<Self> {
        let ticket = Self::new(None, false);
        ticket.state.lock().outcome = Some(outcome);
        ticket
    }

    /// Waits for the outcome, or for the lead; awake at first, if that pays.
    pub(super) fn wait(&self, patience: &Patience) -> Turn {
        patience.wait_awake(|| self.answered.load(Ordering::Acquire));
        // Whether the lead comes while this thread is still awake is the simulation's choice.
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

    /// Sets the outcome and wakes who waits. The callback, if there is one, is the caller's to run,
    /// after it has given the lead away.
    #[must_use]
    pub(super) fn finish(&self, outcome: Result<Committed>) -> Option<DueCallback> {
        self.finish_with(None, outcome)
    }

    /// As [`finish`](Self::finish), and gives its batch back to the thread that blocks on it.
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
            state.pending = pending;
            state.outcome = Some(outcome.clone());
            state.callback.take()
        };
        self.answered.store(true, Ordering::Release);
        self.changed.notify_all();
        callback.map(|callback| DueCallback { callback, outcome })
    }

    /// Whether it brought no batch. A batch that a leader has taken still counts as brought.
    pub(super) fn wants_only_the_lead(&self) -> bool {
        self.bytes == 0
    }

    pub(super) fn give_lead(&self, lead: Lead) {
        self.state.lock().lead = Some(lead);
        self.answered.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// The outcome, if the batch has left the queue.
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
