//! The commit queue's wait list: pending tickets, and the order in which leaders serve them.
//!
//! Not here: committing (`queue`).
//!
//! Invariants:
//! 1. While the lead is held exclusively, no ticket in the list is without a thread that blocks on
//!    it. Whoever holds the lead that way may be a background thread or hold locks, and must not
//!    have to commit for others: a commit may wait for a flush.
//! 2. Batches of one thread are committed in the order in which it brought them: unattended tickets
//!    are served in the order of the list, and all of them before a batch that a thread waits for.
//! 3. The lead goes to the oldest who waits, or to one behind it who is awake and needs no waking:
//!    at most [`PASSED_OVER_MAX`] times in a row, and never past one who brought no batch.
//! 4. There is one [`Lead`]: in the list while nobody leads, and nobody waits then.
//! 5. The list holds a bounded number of bytes that nobody waits for
//!    ([`WaitList::may_wait_alone`]), and a leader does a bounded amount of others' work
//!    ([`LEAD_QUOTA_BYTES`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::write::pending::PendingBatch;
use crate::write::ticket::{Lead, Ticket};

/// Bytes of others' batches after which a leader hands over to the first thread that can lead: as
/// much as its own group may hold.
pub(super) const LEAD_QUOTA_BYTES: u64 = 1 << 20;

/// What a group costs a leader besides its bytes, in bytes: at 1 GB/s the few microseconds that a
/// small group takes.
pub(super) const GROUP_COST_BYTES: u64 = 4 << 10;

/// How often in a row somebody who is awake gets the lead before the oldest, who sleeps. A group
/// takes what waits in front anyway; only what does not fit into it waits longer.
const PASSED_OVER_MAX: u32 = 8;

/// How many of the oldest are asked whether they are awake: more than there are processors that
/// could keep them so, on most machines.
const ASKED_MAX: usize = 16;

/// The tickets that wait, in the order in which they came.
pub(super) struct WaitList {
    /// Here while nobody leads.
    lead: Option<Lead>,
    /// The leader runs something between two groups and commits nothing.
    exclusive: bool,
    waiting: VecDeque<Arc<Ticket>>,
    /// Tickets in the list that no thread blocks on, and their bytes.
    unattended: usize,
    unattended_bytes: usize,
    /// Tickets in the list that want the lead for something else than a batch.
    wanting_lead: usize,
    /// The leader's byte quota is spent: no unattended batch may queue until the next leader has
    /// drained those waiting.
    quota_spent: bool,
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

impl WaitList {
    /// An empty list with the lead.
    pub(super) fn new(lead: Lead) -> Self {
        Self {
            lead: Some(lead),
            exclusive: false,
            waiting: VecDeque::new(),
            unattended: 0,
            unattended_bytes: 0,
            wanting_lead: 0,
            quota_spent: false,
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
    pub(super) fn may_wait_alone(&self, pending: &PendingBatch, bytes_max: usize) -> bool {
        self.lead.is_none()
            && !self.exclusive
            && !self.quota_spent
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
        fits: impl FnOnce(&PendingBatch) -> bool,
    ) -> Option<(Arc<Ticket>, PendingBatch)> {
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
            // Who took over from a leader over its quota has caught up.
            self.quota_spent = false;
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
    pub(super) fn next(&mut self, mut lead: Lead, quota_spent: bool) -> Next {
        lead.has_company = true;
        self.quota_spent |= quota_spent && self.unattended > 0;
        let can_take_over = |t: &Arc<Ticket>| t.blocking && !t.wants_only_the_lead();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(awake: bool) -> Arc<Ticket> {
        let ticket = Ticket::new(Some(PendingBatch::default()), true);
        ticket.awake.store(awake, Ordering::Relaxed);
        ticket
    }

    /// A list whose leader is at work.
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

    /// Goal: the lead goes to who is awake, but the oldest gets it after a bounded number of turns.
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

    /// Goal: who wants the lead for something else than a batch keeps its place.
    #[test]
    fn nobody_passes_who_wants_only_the_lead() {
        let mut list = led();
        let alone = Ticket::new(None, true);
        alone.awake.store(false, Ordering::Relaxed);
        list.join(&alone);
        list.join(&waiting(true));
        leads(&mut list, &alone);
        assert!(list.exclusive);
    }
}
