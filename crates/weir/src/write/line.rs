//! Who waits for the commit queue, and in which order they are served.
//!
//! Not here: committing (`queue`).
//!
//! Invariants:
//! 1. While the lead is held exclusively, no ticket in the line is without a thread that blocks on
//!    it. Whoever holds the lead that way may be a background thread or hold locks, and must not
//!    have to commit for others: a commit may wait for a flush.
//! 2. Batches of one thread are committed in the order in which it brought them: unattended tickets
//!    are served in the order of the line, and all of them before a batch that a thread waits for.
//! 3. The lead goes to the oldest who waits, or to one behind it who is awake and needs no waking:
//!    at most [`PASSED_OVER_MAX`] times in a row, and never past one who brought no batch.
//! 4. There is one [`Lead`]: in the line while nobody leads, and nobody waits then.
//! 5. The line holds a bounded number of bytes that nobody waits for ([`Line::may_wait_alone`]),
//!    and a leader does a bounded amount of others' work ([`SHARE_BYTES`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::base::error::{Error, Result};
use crate::base::key::{Kind, Seq};
use crate::base::sched::{self, Condvar, Mutex};
use crate::options::Durability;
use crate::state::calls::{Calls, Owed};
use crate::state::tree::Tree;

/// Bytes of others' batches after which a leader hands over to the first thread that can lead: as
/// much as its own group may hold.
pub(super) const SHARE_BYTES: u64 = 1 << 20;

/// What a group costs a leader besides its bytes, in bytes: at 1 GB/s the few microseconds that a
/// small group takes.
pub(super) const GROUP_COST_BYTES: u64 = 4 << 10;

/// How often in a row somebody who is awake gets the lead before the oldest, who sleeps. A group
/// takes what waits in front anyway; only what does not fit into it waits longer.
const PASSED_OVER_MAX: u32 = 8;

/// How many of the oldest are asked whether they are awake: more than there are processors that
/// could keep them so, on most machines.
const ASKED_MAX: usize = 16;

/// What a waiting batch costs besides its records: the ticket and its place in the line.
const TICKET_BYTES: usize = 256;

/// A batch on its way through the queue.
#[derive(Default)]
pub(crate) struct Pending {
    /// The records (`write::batch`).
    pub(crate) bytes: Vec<u8>,
    /// Number of records.
    pub(crate) count: u32,
    /// Of these, deletes.
    pub(crate) deletes: u32,
    /// The keyspaces that the records name, without repetition.
    pub(crate) trees: Vec<Arc<Tree>>,
    pub(crate) durability: Durability,
}

/// What became of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    /// Log sequence number of its group, 0 if it is in no log.
    pub(crate) lsn: u64,
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
    bytes: usize,
    pub(super) state: Mutex<TicketState>,
    changed: Condvar,
    /// Whether the state has what is waited for; a hint for those who look without the lock.
    answered: AtomicBool,
    /// Whether the thread that blocks on it has not gone to sleep; a hint.
    awake: AtomicBool,
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
    /// Taken by the leader that commits it. `None` also for a ticket that only wants the lead.
    pub(super) pending: Option<Pending>,
    lead: Option<Lead>,
    outcome: Option<Result<Committed>>,
    callback: Option<OwedCallback>,
}

impl Ticket {
    pub(super) fn new(pending: Option<Pending>, blocking: bool) -> Arc<Self> {
        Arc::new(Self {
            blocking,
            bytes: pending.as_ref().map_or(0, Pending::waiting_bytes),
            state: Mutex::new(TicketState { pending, lead: None, outcome: None, callback: None }),
            changed: Condvar::new(),
            answered: AtomicBool::new(false),
            awake: AtomicBool::new(blocking),
        })
    }

    /// A ticket that no thread blocks on; `then` is told the outcome unless
    /// [`on_outcome`](Self::on_outcome) names somebody else.
    pub(super) fn unattended(pending: Option<Pending>, then: Option<OwedCallback>) -> Arc<Self> {
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
        let callback = {
            let mut state = self.state.lock();
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

/// The tickets that wait, in the order in which they came.
pub(super) struct Line {
    /// Here while nobody leads.
    lead: Option<Lead>,
    /// The leader runs something between two groups and commits nothing.
    exclusive: bool,
    waiting: VecDeque<Arc<Ticket>>,
    /// Tickets in the line that no thread blocks on, and their bytes.
    unattended: usize,
    unattended_bytes: usize,
    /// Tickets in the line that want the lead for something else than a batch.
    wanting_lead: usize,
    /// A leader has done its share: until another one has caught up, nobody joins unattended.
    weary: bool,
    /// How often in a row the lead has passed the oldest who waits.
    passed_over: u32,
}

/// What a leader does after its own group.
pub(super) enum Next {
    /// Nobody waits: the lead is free.
    Rest,
    /// Commit this one, which cannot lead.
    Serve(Arc<Ticket>, Lead),
    /// Give this one the lead.
    Lead(Arc<Ticket>, Lead),
}

impl Line {
    /// An empty line with the lead.
    pub(super) fn new(lead: Lead) -> Self {
        Self {
            lead: Some(lead),
            exclusive: false,
            waiting: VecDeque::new(),
            unattended: 0,
            unattended_bytes: 0,
            wanting_lead: 0,
            weary: false,
            passed_over: 0,
        }
    }

    /// The lead, if nobody has it. Nobody waits then.
    #[inline]
    pub(super) fn take_lead(&mut self) -> Option<Lead> {
        let mut lead = self.lead.take()?;
        lead.has_company = false;
        Some(lead)
    }

    /// The lead for something else than a batch, if nobody has it.
    pub(super) fn take_lead_exclusively(&mut self) -> Option<Lead> {
        let lead = self.take_lead()?;
        self.exclusive = true;
        Some(lead)
    }

    /// Whether a batch may wait without a thread that blocks on it, while at most `bytes_max` bytes
    /// of such batches wait. Somebody leads then, and will serve it.
    pub(super) fn may_wait_alone(&self, pending: &Pending, bytes_max: usize) -> bool {
        self.lead.is_none()
            && !self.exclusive
            && !self.weary
            && self.wanting_lead == 0
            && self.unattended_bytes + pending.waiting_bytes() <= bytes_max
    }

    /// Puts a ticket at the end.
    pub(super) fn join(&mut self, ticket: &Arc<Ticket>) {
        if !ticket.blocking {
            self.unattended += 1;
            self.unattended_bytes += ticket.bytes;
        } else if ticket.wants_only_the_lead() {
            self.wanting_lead += 1;
        }
        self.waiting.push_back(Arc::clone(ticket));
    }

    /// Tickets that wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn remove(&mut self, at: usize) -> Option<Arc<Ticket>> {
        let ticket = self.waiting.remove(at)?;
        if !ticket.blocking {
            self.unattended -= 1;
            self.unattended_bytes -= ticket.bytes;
        } else if ticket.wants_only_the_lead() {
            self.wanting_lead -= 1;
        }
        Some(ticket)
    }

    /// The oldest ticket's batch, if it is taken by `fits`.
    #[inline]
    pub(super) fn take_oldest(
        &mut self,
        fits: impl FnOnce(&Pending) -> bool,
    ) -> Option<(Arc<Ticket>, Pending)> {
        let oldest = self.waiting.front()?;
        let pending = {
            let mut state = oldest.state.lock();
            state.pending.as_ref().is_some_and(fits).then(|| state.pending.take())??
        };
        Some((self.remove(0)?, pending))
    }

    /// The oldest ticket that nobody blocks on.
    pub(super) fn next_unattended(&mut self) -> Option<Arc<Ticket>> {
        if self.unattended == 0 {
            // Who took over from a weary leader has caught up.
            self.weary = false;
            return None;
        }
        let at = self.waiting.iter().position(|t| !t.blocking)?;
        self.remove(at)
    }

    /// The place of the one who leads next: the first who is awake, or the oldest (invariant 3).
    ///
    /// Requires: a thread blocks on every ticket.
    fn successor(&self) -> usize {
        if self.passed_over >= PASSED_OVER_MAX {
            return 0;
        }
        let asked = self.waiting.iter().take(ASKED_MAX);
        let brings = asked.take_while(|t| !t.wants_only_the_lead());
        let mut awake = brings.map(|t| t.awake.load(Ordering::Relaxed));
        awake.position(|awake| awake).unwrap_or(0)
    }

    /// Who is next: those that cannot lead themselves, then one that can
    /// ([`successor`](Self::successor)). A leader that has
    /// done its share gives the lead to the oldest that brings a batch; that one goes on with
    /// [`next_unattended`](Self::next_unattended) before its own batch.
    #[inline]
    pub(super) fn next(&mut self, mut lead: Lead, share_done: bool) -> Next {
        lead.has_company = true;
        self.weary |= share_done && self.unattended > 0;
        let relief = |t: &Arc<Ticket>| t.blocking && !t.wants_only_the_lead();
        let successor = if self.weary { self.waiting.iter().position(relief) } else { None };
        if let Some(at) = successor
            && let Some(ticket) = self.remove(at)
        {
            self.exclusive = false;
            return Next::Lead(ticket, lead);
        }
        if let Some(ticket) = self.next_unattended() {
            return Next::Serve(ticket, lead);
        }
        let at = self.successor();
        self.passed_over = if at == 0 { 0 } else { self.passed_over + 1 };
        let Some(ticket) = self.remove(at) else {
            self.lead = Some(lead);
            self.exclusive = false;
            return Next::Rest;
        };
        self.exclusive = ticket.wants_only_the_lead();
        Next::Lead(ticket, lead)
    }
}

impl Pending {
    /// Appends a record for `tree`.
    pub(crate) fn push(&mut self, tree: &Arc<Tree>, kind: Kind, key: &[u8], value: &[u8]) {
        if !self.trees.iter().any(|t| Arc::ptr_eq(t, tree)) {
            self.trees.push(Arc::clone(tree));
        }
        let record = crate::write::batch::Record { kind, keyspace: tree.id, key, value };
        crate::write::batch::encode(&mut self.bytes, record);
        self.count += 1;
        self.deletes += u32::from(kind == Kind::Delete);
    }

    /// What it costs to let it wait. At least 1.
    fn waiting_bytes(&self) -> usize {
        self.bytes.len() + TICKET_BYTES
    }

    /// Empties the batch, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.trees.clear();
        self.count = 0;
        self.deletes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(awake: bool) -> Arc<Ticket> {
        let ticket = Ticket::new(Some(Pending::default()), true);
        ticket.awake.store(awake, Ordering::Relaxed);
        ticket
    }

    /// A line whose leader is at work.
    fn led() -> Line {
        let mut line = Line::new(Lead::after(0));
        assert!(line.take_lead().is_some());
        line
    }

    #[track_caller]
    fn leads(line: &mut Line, expected: &Arc<Ticket>) {
        let Next::Lead(next, _) = line.next(Lead::after(0), false) else { panic!("nobody leads") };
        assert!(Arc::ptr_eq(&next, expected), "another one leads");
    }

    /// Goal: the lead goes to who is awake, but the oldest gets it after a bounded number of turns.
    #[test]
    fn the_lead_passes_sleepers_a_bounded_number_of_times() {
        let mut line = led();
        let oldest = waiting(false);
        line.join(&oldest);
        for _ in 0..PASSED_OVER_MAX {
            let awake = waiting(true);
            line.join(&awake);
            leads(&mut line, &awake);
        }
        line.join(&waiting(true));
        leads(&mut line, &oldest);
        assert_eq!(line.passed_over, 0);
    }

    /// Goal: who wants the lead for something else than a batch keeps its place.
    #[test]
    fn nobody_passes_who_wants_only_the_lead() {
        let mut line = led();
        let alone = Ticket::new(None, true);
        alone.awake.store(false, Ordering::Relaxed);
        line.join(&alone);
        line.join(&waiting(true));
        leads(&mut line, &alone);
        assert!(line.exclusive);
    }
}
