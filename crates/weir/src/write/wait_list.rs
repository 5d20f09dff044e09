//! The commit queue's wait list: pending tickets, and the order in which leaders serve them.
//!
//! Not here: committing (`queue`).
//!
//! Invariants:
//! 1. While the lead is held exclusively, no ticket in the list is unattended: a thread blocks on
//!    each. An exclusive leader may be a background thread or hold locks, and must not have to
//!    commit for others, because a commit may wait for a flush.
//! 2. Batches of one thread are committed in the order of submission: unattended tickets are served
//!    in the order of the list, and all of them before a batch that a thread blocks on.
//! 3. The lead goes to the oldest ticket, or to a later one whose thread is spinning and needs no
//!    wake-up: at most [`PASSED_OVER_MAX`] times in a row, and never past a ticket that waits for
//!    the lead alone.
//! 4. There is one [`Lead`]. If it is in the list, the queue is idle and the list is empty.
//! 5. The bytes of unattended tickets are bounded ([`WaitList::admits_unattended`]), and so is the
//!    work that a leader does for others ([`LEAD_QUOTA_BYTES`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::write::pending::PendingBatch;
use crate::write::ticket::{Lead, Ticket};

/// Bytes of other threads' batches after which a leader hands over to the first thread that can
/// lead: 1 MiB, as much as one group may hold.
pub(super) const LEAD_QUOTA_BYTES: u64 = 1 << 20;

/// Fixed cost of a group in bytes, added to its size: at 1 GB/s the few microseconds that a small
/// group takes.
pub(super) const GROUP_COST_BYTES: u64 = 4 << 10;

/// How often in a row a spinning thread gets the lead before the oldest ticket, whose thread
/// sleeps. A group takes the batches from the front anyway; only those that do not fit wait longer.
const PASSED_OVER_MAX: u32 = 8;

/// How many of the oldest tickets are searched for a spinning thread: more than most machines have
/// processors to spin on.
const SEARCHED_MAX: usize = 16;

/// The waiting tickets, in order of arrival.
pub(super) struct WaitList {
    /// `Some` while the queue is idle.
    lead: Option<Lead>,
    /// Whether the leader runs something between two groups, and commits nothing.
    exclusive: bool,
    waiting: VecDeque<Arc<Ticket>>,
    /// Number of unattended tickets in the list, and their bytes.
    unattended: usize,
    unattended_bytes: usize,
    /// Number of tickets in the list that wait for the lead alone.
    waiting_for_lead_alone: usize,
    /// The leader's byte quota is spent: no unattended batch may queue until the next leader has
    /// drained those waiting.
    quota_spent: bool,
    /// How often in a row the lead has passed the oldest ticket over.
    passed_over: u32,
}

/// What a leader does after its own group.
pub(super) enum Next {
    /// No ticket waits: the queue is idle.
    Rest,
    /// Commit this unattended ticket.
    Serve(Arc<Ticket>, Lead),
    /// Hand the lead to this ticket's thread.
    Lead(Arc<Ticket>, Lead),
}

impl WaitList {
    /// An empty list of an idle queue.
    pub(super) fn new(lead: Lead) -> Self {
        Self {
            lead: Some(lead),
            exclusive: false,
            waiting: VecDeque::new(),
            unattended: 0,
            unattended_bytes: 0,
            waiting_for_lead_alone: 0,
            quota_spent: false,
            passed_over: 0,
        }
    }

    /// The lead, if the queue is idle.
    #[inline]
    pub(super) fn take_lead(&mut self) -> Option<Lead> {
        let mut lead = self.lead.take()?;
        // Invariant 4.
        assert!(self.waiting.is_empty(), "{} tickets wait in an idle queue", self.waiting.len());
        assert!(!self.exclusive, "the lead is in the list of a queue that is led exclusively");
        lead.maybe_waiting = false;
        Some(lead)
    }

    /// The lead, if the queue is idle, to run something between two groups.
    pub(super) fn take_lead_exclusively(&mut self) -> Option<Lead> {
        let lead = self.take_lead()?;
        self.exclusive = true;
        Some(lead)
    }

    /// Whether `pending` may join unattended, so that at most `bytes_max` bytes are unattended.
    /// Only while there is a leader that will serve it.
    pub(super) fn admits_unattended(&self, pending: &PendingBatch, bytes_max: usize) -> bool {
        self.lead.is_none()
            && !self.exclusive
            && !self.quota_spent
            && self.waiting_for_lead_alone == 0
            && self.unattended_bytes + pending.waiting_bytes() <= bytes_max
    }

    /// Appends a ticket.
    pub(super) fn join(&mut self, ticket: &Arc<Ticket>) {
        // Invariants 4 and 1.
        assert!(self.lead.is_none(), "a ticket joins an idle queue");
        assert!(ticket.blocking || !self.exclusive, "an unattended ticket under an exclusive lead");
        if !ticket.blocking {
            self.unattended += 1;
            self.unattended_bytes += ticket.bytes;
        } else if ticket.waits_for_lead_alone() {
            self.waiting_for_lead_alone += 1;
        }
        self.waiting.push_back(Arc::clone(ticket));
    }

    /// Number of waiting tickets.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn remove(&mut self, at: usize) -> Option<Arc<Ticket>> {
        let ticket = self.waiting.remove(at)?;
        if !ticket.blocking {
            let (count, bytes) = (self.unattended, self.unattended_bytes);
            assert!(
                count > 0 && bytes >= ticket.bytes,
                "{count} unattended tickets, {bytes} bytes"
            );
            self.unattended -= 1;
            self.unattended_bytes -= ticket.bytes;
        } else if ticket.waits_for_lead_alone() {
            assert!(self.waiting_for_lead_alone > 0, "a ticket for the lead alone is not counted");
            self.waiting_for_lead_alone -= 1;
        }
        Some(ticket)
    }

    /// Removes the oldest ticket and takes its batch, if it has one and `fits` accepts that.
    #[inline]
    pub(super) fn take_oldest(
        &mut self,
        fits: impl FnOnce(&PendingBatch) -> bool,
    ) -> Option<(Arc<Ticket>, PendingBatch)> {
        let oldest = self.waiting.front()?;
        let pending = {
            let mut state = oldest.state.lock();
            state.pending.as_ref().is_some_and(fits).then(|| state.pending.take())??
        };
        Some((self.remove(0)?, pending))
    }

    /// Removes the oldest unattended ticket.
    pub(super) fn next_unattended(&mut self) -> Option<Arc<Ticket>> {
        if self.unattended == 0 {
            // The leader that took over from one over its quota has caught up.
            self.quota_spent = false;
            return None;
        }
        let at = self.waiting.iter().position(|t| !t.blocking)?;
        self.remove(at)
    }

    /// Index of the ticket that leads next: the first whose thread spins, or the oldest (invariant
    /// 3).
    ///
    /// Requires: no ticket is unattended.
    fn successor(&self) -> usize {
        if self.passed_over >= PASSED_OVER_MAX {
            return 0;
        }
        let searched = self.waiting.iter().take(SEARCHED_MAX);
        let batches = searched.take_while(|t| !t.waits_for_lead_alone());
        let mut awake = batches.map(|t| t.awake.load(Ordering::Relaxed));
        awake.position(|awake| awake).unwrap_or(0)
    }

    /// Makes the queue idle: nobody waits, so no quota is spent and nobody was passed over.
    #[inline]
    fn rest(&mut self, lead: Lead) -> Next {
        (self.quota_spent, self.passed_over, self.exclusive) = (false, 0, false);
        self.lead = Some(lead);
        Next::Rest
    }

    /// What the leader does next: it serves unattended tickets, then hands over to one whose thread
    /// can lead ([`successor`](Self::successor)). With `quota_spent` it hands over to the oldest
    /// ticket with a batch and a blocking thread, which serves
    /// [`next_unattended`](Self::next_unattended) before its own batch.
    #[inline]
    pub(super) fn next(&mut self, mut lead: Lead, quota_spent: bool) -> Next {
        assert!(self.lead.is_none(), "a queue has two leads");
        lead.maybe_waiting = true;
        if self.waiting.is_empty() {
            return self.rest(lead);
        }
        self.quota_spent |= quota_spent && self.unattended > 0;
        let can_take_over = |t: &Arc<Ticket>| t.blocking && !t.waits_for_lead_alone();
        let successor =
            if self.quota_spent { self.waiting.iter().position(can_take_over) } else { None };
        if let Some(at) = successor
            && let Some(ticket) = self.remove(at)
        {
            self.exclusive = false;
            return Next::Lead(ticket, lead);
        }
        if let Some(ticket) = self.next_unattended() {
            return Next::Serve(ticket, lead);
        }
        debug_assert!(self.waiting.iter().all(|t| t.blocking), "an unattended ticket is left");
        let at = self.successor();
        self.passed_over = if at == 0 { 0 } else { self.passed_over + 1 };
        let Some(ticket) = self.remove(at) else { return self.rest(lead) };
        assert!(ticket.blocking, "the lead goes to a ticket that no thread blocks on");
        self.exclusive = ticket.waits_for_lead_alone();
        Next::Lead(ticket, lead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(awake: bool) -> Arc<Ticket> {
        let ticket = Ticket::new(Some(PendingBatch::default()), true);
        ticket.awake.store(awake, Ordering::Relaxed);
        ticket
    }

    /// A list of a queue with a leader.
    fn led() -> WaitList {
        let mut list = WaitList::new(Lead::after(0));
        assert!(list.take_lead().is_some());
        list
    }

    #[track_caller]
    fn leads(list: &mut WaitList, expected: &Arc<Ticket>) {
        let Next::Lead(next, _) = list.next(Lead::after(0), false) else { panic!("nobody leads") };
        assert!(Arc::ptr_eq(&next, expected), "another one leads");
    }

    /// Goal: the lead goes to a spinning thread, but to the oldest ticket after a bounded number of
    /// turns.
    #[test]
    fn the_lead_passes_sleepers_a_bounded_number_of_times() {
        let mut list = led();
        let oldest = waiting(false);
        list.join(&oldest);
        for _ in 0..PASSED_OVER_MAX {
            let awake = waiting(true);
            list.join(&awake);
            leads(&mut list, &awake);
        }
        list.join(&waiting(true));
        leads(&mut list, &oldest);
        assert_eq!(list.passed_over, 0);
    }

    /// Goal: a ticket that waits for the lead alone is not passed over.
    #[test]
    fn a_ticket_for_the_lead_alone_is_not_passed_over() {
        let mut list = led();
        let alone = Ticket::new(None, true);
        alone.awake.store(false, Ordering::Relaxed);
        list.join(&alone);
        list.join(&waiting(true));
        leads(&mut list, &alone);
        assert!(list.exclusive);
    }
}
