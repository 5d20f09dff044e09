//! The commit queue: group commit with one leader at a time.
//!
//! Invariants:
//! 1. At most one thread leads. Only the leader appends to the log, inserts into memtables, freezes
//!    them, and publishes sequence numbers.
//! 2. Sequence numbers are assigned in log order and published after the inserts (H46). A group
//!    whose log write failed is not inserted and not published; its numbers are not used again.
//! 3. A batch with [`Durability::None`] takes sequence numbers but is not logged.
//! 4. A `Sync` writer is acknowledged only after the log is durable up to its group; the sync runs
//!    outside the lead, so that the next group is written meanwhile.
//! 5. Nothing under the lead creates or syncs a file, but for the first segment of an opening
//!    (ARCHITECTURE §9).
//! 6. A panic under the lead poisons the store, and the lead is handed over: no ticket waits for a
//!    thread that has ended.
//!
//! Source: group commit as in LevelDB. We differ: each writer encodes its own batch, and the sync
//! is outside the lead.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock;
use crate::base::coding::varint;
use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::ids::{DataEpoch, Lsn};
use crate::base::key::{Kind, SEQ_MAX, Seq};
use crate::base::memory::Category;
use crate::base::sched::{self, Mutex};
use crate::heat::counters::is_sampled;
use crate::log::wal::Wal;
use crate::log::{AckedWhen, LogPosition};
use crate::options::Durability;
use crate::state::shared::Shared;
use crate::state::tree::{DELAY_UNITS_PER_NANO, Flushable, SuperVersion, Tree};
use crate::write::batch::{Record, Records};
use crate::write::limit::{self, MemtableBytes};
pub(crate) use crate::write::pending::PendingBatch;
pub(crate) use crate::write::ticket::{Committed, OwedCallback, Ticket};
use crate::write::ticket::{DueCallback, Lead, SpinPolicy, Turn, run_callbacks};
use crate::write::wait_list::{GROUP_COST_BYTES, LEAD_QUOTA_BYTES, Next, WaitList};

/// Bytes of batches that a leader takes into one group: 1 MiB, enough to amortise the write of a
/// group, little enough that the first writer in it does not wait for long.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Shortest sleep of a write delay: 0.5 ms. Less is carried over to the next group: shorter sleeps
/// cost more in wake-ups than they delay.
const DELAY_NANOS_MIN: u64 = 500_000;

/// Longest sleep of one group: 50 ms. Back-pressure is spread over many groups, never a long stop.
const DELAY_NANOS_MAX: u64 = 50_000_000;

/// What the layers above provide for freezing a memtable.
pub(crate) struct FreezeSource {
    /// Draws the data epoch of a frozen memtable.
    pub(crate) next_epoch: Box<dyn Fn() -> DataEpoch + Send + Sync>,
    /// All open keyspaces.
    pub(crate) all_trees: Box<dyn Fn() -> Vec<Arc<Tree>> + Send + Sync>,
}

/// The commit queue of a store. Locks: `waiting` before a ticket's state; otherwise both are
/// leaves.
pub(crate) struct CommitQueue {
    waiting: Mutex<WaitList>,
    wal: Arc<Wal>,
    shared: Arc<Shared>,
    source: FreezeSource,
    limits: Limits,
    freeze_requests: Mutex<Vec<Arc<Tree>>>,
    freeze_requested: AtomicBool,
    /// The log segment to which the log starts of empty memtables were last advanced.
    starts_advanced_in: AtomicU64,
}

/// Limits of writers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of all memtables above which memtables are frozen early and writers stall for flushes.
    pub(crate) memtable_bytes_max: u64,
}

/// The queue, and how threads wait in it.
pub(crate) struct Committer {
    queue: CommitQueue,
    spin_policy: SpinPolicy,
}

impl Committer {
    /// A queue that assigns sequence numbers after `last_seq`.
    pub(crate) fn new(
        wal: Arc<Wal>,
        shared: Arc<Shared>,
        source: FreezeSource,
        limits: Limits,
        last_seq: Seq,
    ) -> Self {
        Self {
            queue: CommitQueue {
                waiting: Mutex::new(WaitList::new(Lead::after(last_seq))),
                wal,
                shared,
                source,
                limits,
                freeze_requests: Mutex::default(),
                freeze_requested: AtomicBool::new(false),
                starts_advanced_in: AtomicU64::new(u64::MAX),
            },
            spin_policy: SpinPolicy::new(sched::can_wait_awake()),
        }
    }

    /// Commits one batch and waits until it is as durable as its `durability` says. Afterwards the
    /// batch has its records again, committed or not, and may be reused.
    pub(crate) fn write(&self, pending: &mut PendingBatch) -> Result<Committed> {
        self.queue.admit(pending)?;
        let sync = pending.durability == Durability::Sync;
        let committed = self.commit_attended(pending)?;
        if sync {
            self.queue.wal.sync_to(committed.lsn)?;
        }
        Ok(committed)
    }

    /// Enqueues a batch without waiting for its commit if there is a leader; leads otherwise.
    /// `then` is called with the outcome, unless [`Ticket::on_outcome`] replaces it before.
    pub(crate) fn submit(
        &self,
        pending: &mut PendingBatch,
        then: Option<OwedCallback>,
    ) -> Result<Arc<Ticket>> {
        self.queue.admit(pending)?;
        if let Some(lead) = self.try_lead() {
            let ticket = Ticket::unattended(None, then);
            let outcome = self.lead_with(lead, pending, Vec::new());
            run_callbacks(ticket.finish(outcome).into_iter().collect());
            return Ok(ticket);
        }
        let bytes_max = waiting_bytes_max(pending);
        {
            let mut waiting = self.queue.waiting.lock();
            if waiting.admits_unattended(pending, bytes_max) {
                let ticket = Ticket::unattended(Some(std::mem::take(pending)), then);
                waiting.join(&ticket);
                return Ok(ticket);
            }
        }
        // The queue is idle, led exclusively, or over its limits: this thread waits for its turn.
        let ticket = Ticket::unattended(None, then);
        let outcome = self.commit_attended(pending);
        run_callbacks(ticket.finish(outcome).into_iter().collect());
        Ok(ticket)
    }

    /// Commits one batch, as leader or follower. The leader takes the batch and returns it.
    #[inline]
    fn commit_attended(&self, pending: &mut PendingBatch) -> Result<Committed> {
        if let Some(lead) = self.try_lead() {
            return self.lead_with(lead, pending, Vec::new());
        }
        let ticket = Ticket::new(Some(std::mem::take(pending)), true);
        let turn = self.enqueue_and_wait(&ticket);
        *pending = ticket.state.lock().pending.take().unwrap_or_default();
        match turn {
            Turn::Committed(outcome) => outcome,
            Turn::Leads(mut lead) => {
                // The lead of an idle queue came from an empty wait list.
                let due = if lead.maybe_waiting { self.catch_up(&mut lead) } else { Vec::new() };
                self.lead_with(lead, pending, due)
            }
        }
    }

    /// Number of waiting tickets.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.queue.waiting.lock().len()
    }

    /// Runs `body` between two commit groups if the queue is idle; `None` otherwise.
    ///
    /// # Errors
    /// As [`exclusively`](Self::exclusively).
    pub(crate) fn try_exclusively<T>(
        &self,
        body: impl FnOnce(&LeadAccess<'_>) -> T,
    ) -> Option<Result<T>> {
        let lead = self.queue.waiting.lock().take_lead_exclusively()?;
        Some(self.between_groups(lead, body))
    }

    /// Requests that the keyspace's memtable is frozen before the next commit group; does not wait.
    pub(crate) fn request_freeze(&self, tree: &Arc<Tree>) {
        {
            let mut requests = self.queue.freeze_requests.lock();
            if !requests.iter().any(|t| t.id == tree.id) {
                requests.push(Arc::clone(tree));
            }
        }
        sched::switch_point();
        self.queue.freeze_requested.store(true, Ordering::Release);
        sched::switch_point();
        if let Some(frozen) = self.try_exclusively(|lead| lead.queue.freeze_as_requested()) {
            frozen.ignore_error("it has poisoned the store, and no caller waits for the freeze");
        }
    }

    /// Waits for the lead and runs `body` between two commit groups. Not for background threads:
    /// the leader may be stalled until they make progress.
    ///
    /// # Errors
    /// `Poisoned` if the store is, or if `body` panics.
    pub(crate) fn exclusively<T>(&self, body: impl FnOnce(&LeadAccess<'_>) -> T) -> Result<T> {
        let lead = self.wait_for_lead();
        self.between_groups(lead, body)
    }

    /// Writes what the log holds, in a poisoned store too: it was acknowledged before. Waits for
    /// the lead, or does nothing if it is not free. Not to wait for in background threads.
    ///
    /// # Errors
    /// As [`Wal::write_out`]; the store is poisoned then.
    pub(crate) fn write_out_log(&self, waits: bool) -> Result<()> {
        let taken = self.queue.waiting.lock().take_lead_exclusively();
        let lead = match taken {
            Some(lead) => lead,
            None if waits => self.wait_for_lead(),
            None => return Ok(()),
        };
        let written = sched::catch_panic("writing the log", || self.queue.wal.write_out());
        if let Err(error) = &written {
            self.queue.shared.poison(error);
        }
        self.hand_over_alone(lead);
        written
    }

    /// The lead, for an exclusive use.
    fn wait_for_lead(&self) -> Lead {
        let ticket = Ticket::new(None, true);
        let taken = {
            let mut waiting = self.queue.waiting.lock();
            let taken = waiting.take_lead_exclusively();
            if taken.is_none() {
                waiting.join(&ticket);
            }
            taken
        };
        taken.unwrap_or_else(|| match ticket.wait(&SpinPolicy::default()) {
            Turn::Leads(lead) => lead,
            Turn::Committed(_) => unreachable!("a ticket without a batch can only get the lead"),
        })
    }

    /// Runs `body`, then hands over, also after an error or a panic.
    ///
    /// Requires: the caller leads exclusively.
    fn between_groups<T>(&self, lead: Lead, body: impl FnOnce(&LeadAccess<'_>) -> T) -> Result<T> {
        let shared = &self.queue.shared;
        let access = LeadAccess { queue: &self.queue };
        let run = || shared.health.check_sound().map(|()| body(&access));
        let result = sched::catch_panic("what ran between two commits", run);
        if let Err(error) = &result {
            shared.poison(error);
        }
        self.hand_over_alone(lead);
        result
    }

    /// Takes the lead of an idle queue.
    #[inline]
    fn try_lead(&self) -> Option<Lead> {
        self.queue.waiting.lock().take_lead()
    }

    /// Joins the wait list and waits; takes the lead if the queue has become idle.
    fn enqueue_and_wait(&self, ticket: &Arc<Ticket>) -> Turn {
        {
            let mut waiting = self.queue.waiting.lock();
            if let Some(lead) = waiting.take_lead() {
                return Turn::Leads(lead);
            }
            waiting.join(ticket);
        }
        ticket.wait(&self.spin_policy)
    }

    /// Commits all unattended tickets: a new leader does that before its own batch, so that batches
    /// of one thread keep their order.
    fn catch_up(&self, lead: &mut Lead) -> Vec<DueCallback> {
        let mut due = Vec::new();
        loop {
            let left = self.queue.waiting.lock().next_unattended();
            let Some(ticket) = left else { return due };
            self.serve(lead, &ticket, &mut due);
        }
    }

    /// Leads one group that begins with `own`, hands over, and runs the callbacks that became due,
    /// and those of `due`.
    ///
    /// Requires: all unattended tickets that were in the list before `own` have been served.
    fn lead_with(
        &self,
        mut lead: Lead,
        own: &mut PendingBatch,
        mut due: Vec<DueCallback>,
    ) -> Result<Committed> {
        let outcome = self.queue.commit_group(&mut lead, own, &mut due);
        self.hand_over(lead, &mut due);
        run_callbacks(due);
        outcome
    }

    /// Commits the batch of an unattended ticket; returns its cost in bytes.
    fn serve(&self, lead: &mut Lead, ticket: &Ticket, due: &mut Vec<DueCallback>) -> u64 {
        let own = ticket.state.lock().pending.take();
        let before = lead.served_bytes;
        let outcome = self.queue.commit_group(lead, &mut own.unwrap_or_default(), due);
        let cost = lead.served_bytes - before + GROUP_COST_BYTES;
        due.extend(ticket.finish(outcome));
        cost
    }

    /// Hands over after an exclusive lead.
    fn hand_over_alone(&self, lead: Lead) {
        let mut due = Vec::new();
        self.hand_over(lead, &mut due);
        run_callbacks(due);
    }

    /// Serves unattended tickets, then hands the lead over; once this thread's quota is spent, it
    /// hands over to the first ticket that can lead. The caller runs the callbacks added to `due`.
    fn hand_over(&self, mut lead: Lead, due: &mut Vec<DueCallback>) {
        let mut served = 0;
        loop {
            let next = self.queue.waiting.lock().next(lead, served >= LEAD_QUOTA_BYTES);
            match next {
                Next::Rest => return,
                Next::Lead(ticket, lead) => return ticket.give_lead(lead),
                Next::Serve(ticket, kept) => {
                    lead = kept;
                    served += self.serve(&mut lead, &ticket, due);
                }
            }
        }
    }
}

/// Bytes of unattended batches from which on `commit` blocks: one write buffer, the largest of the
/// keyspaces that `pending` writes to.
fn waiting_bytes_max(pending: &PendingBatch) -> usize {
    let buffers = pending.trees.iter().map(|tree| tree.peek().options.write_buffer_bytes);
    usize::try_from(buffers.max().unwrap_or(0)).unwrap_or(usize::MAX)
}

/// Operations of an exclusive leader, between two commit groups.
pub(crate) struct LeadAccess<'a> {
    queue: &'a CommitQueue,
}

impl LeadAccess<'_> {
    /// Freezes the keyspace's active memtable unless it is empty.
    pub(crate) fn freeze(&self, tree: &Tree) {
        self.queue.freeze(&[tree]);
    }

    /// Freezes the keyspaces' active memtables, except empty ones.
    pub(crate) fn freeze_all(&self, trees: &[Arc<Tree>]) {
        self.queue.freeze_all(trees);
    }

    /// As [`Wal::settle`]: the LSN to sync up to before the position of the next group, returned
    /// beside it, may be recorded.
    ///
    /// # Errors
    /// As there; the store is poisoned then.
    pub(crate) fn settle_log(&self) -> Result<(Lsn, LogPosition)> {
        self.queue.wal.settle().inspect_err(|error| self.queue.shared.poison(error))
    }
}

impl CommitQueue {
    /// Refuses a batch that cannot be committed, before it joins the queue.
    #[inline]
    fn admit(&self, pending: &PendingBatch) -> Result<()> {
        self.shared.health.check_writable()?;
        if pending.trees.iter().any(|t| t.is_dropped()) {
            return Err(Error::new(
                ErrorKind::Closed,
                "a keyspace of this batch was dropped; nothing of the batch was written",
            ));
        }
        if pending.durability == Durability::None && pending.trees.len() > 1 {
            return Err(Error::invalid(
                "a batch over several keyspaces cannot be written with Durability::None: a crash \
                 could keep half of it; use Buffered, or one batch per keyspace",
            ));
        }
        Ok(())
    }

    /// Commits `own` and batches from the head of the wait list as one group.
    fn commit_group(
        &self,
        lead: &mut Lead,
        own: &mut PendingBatch,
        due: &mut Vec<DueCallback>,
    ) -> Result<Committed> {
        let mut followers: Vec<(Arc<Ticket>, PendingBatch)> = Vec::new();
        let commit = || {
            if lead.maybe_waiting && own.bytes.len() < GROUP_BYTES_MAX {
                self.collect(own, &mut followers);
            }
            let bytes: usize = followers.iter().map(|(_, p)| p.bytes.len()).sum();
            lead.served_bytes += (own.bytes.len() + bytes) as u64;
            if followers.is_empty() {
                return self.commit_batches(lead, &[own]);
            }
            let mut batches: Vec<&PendingBatch> = Vec::with_capacity(followers.len() + 1);
            batches.push(own);
            batches.extend(followers.iter().map(|(_, pending)| pending));
            self.commit_batches(lead, &batches)
        };
        let outcome = sched::catch_panic("a commit", commit).inspect_err(|error| {
            if error.kind() == ErrorKind::Poisoned {
                self.shared.poison(error);
            }
        });
        for (ticket, pending) in followers {
            due.extend(ticket.give_back(pending, outcome.clone()));
        }
        outcome
    }

    /// Moves batches from the head of the wait list into the group. Stops at a ticket that waits
    /// for the lead alone, and at a logged batch behind an unlogged one: in a group the logged
    /// batches come first, and no batch may overtake an earlier one. A batch of a keyspace whose
    /// writers are stalled is a group of its own, so that its error fails no other batch.
    #[inline]
    fn collect(&self, own: &PendingBatch, followers: &mut Vec<(Arc<Ticket>, PendingBatch)>) {
        let is_logged = |p: &PendingBatch| p.durability != Durability::None;
        let is_stalled =
            |p: &PendingBatch| p.trees.iter().any(|t| t.stalled.load(Ordering::Acquire));
        if is_stalled(own) {
            return;
        }
        let mut bytes = own.bytes.len();
        let mut all_logged = is_logged(own);
        let mut waiting = self.waiting.lock();
        while let Some((ticket, pending)) = waiting.take_oldest(|p| {
            let fits = bytes + p.bytes.len() <= GROUP_BYTES_MAX;
            fits && (all_logged || !is_logged(p)) && !is_stalled(p)
        }) {
            bytes += pending.bytes.len();
            all_logged &= is_logged(&pending);
            followers.push((ticket, pending));
        }
    }

    /// Commits a group; again, as often as there are memtables, while its log segment is refused
    /// and some are to be frozen: that gives a full area its room back.
    #[inline]
    fn commit_batches(&self, lead: &mut Lead, batches: &[&PendingBatch]) -> Result<Committed> {
        let mut tries = 0;
        loop {
            let done = self.commit_once(lead, batches);
            let is_full = done.as_ref().is_err_and(|e| e.kind() == ErrorKind::NoSpace);
            let helps = is_full && self.freeze_requested.load(Ordering::Acquire);
            if !helps || tries == (self.source.all_trees)().len() {
                return done;
            }
            tries += 1;
        }
    }

    /// Appends a group to the log, inserts it into the memtables, and publishes it.
    fn commit_once(&self, lead: &mut Lead, batches: &[&PendingBatch]) -> Result<Committed> {
        self.shared.health.check_committable()?;
        self.bound_memtables()?;
        sched::switch_point();
        if self.freeze_requested.load(Ordering::Acquire) {
            self.freeze_as_requested();
        }
        let bytes: usize = batches.iter().map(|b| b.bytes.len()).sum();
        for batch in batches {
            for tree in &batch.trees {
                self.make_room(tree)?;
            }
        }
        self.delay_writers(lead, batches, bytes as u64);

        // (a) Logged batches come first, so that their sequence numbers are consecutive in the log.
        let first_seq = lead.last_seq + 1;
        let logged = |b: &&&PendingBatch| b.durability != Durability::None;
        let logged_count: u32 = batches.iter().filter(logged).map(|b| b.count).sum();
        let total: u64 = batches.iter().map(|b| u64::from(b.count)).sum();
        assert!(u64::from(logged_count) <= total, "{logged_count} of {total} records are logged");
        if first_seq + total > SEQ_MAX {
            return Err(Error::new(ErrorKind::Unsupported, "the sequence numbers are used up"));
        }
        // (b) The numbers are used up even if the log write fails: a group that reached the disk
        // despite the error must never share numbers with another one.
        lead.last_seq += total;
        let lsn = self.append(batches, first_seq, logged_count)?;
        assert_eq!(lsn == Lsn::ZERO, logged_count == 0, "LSN {lsn} of {logged_count} records");

        self.begin_inserts(batches);
        // (c) Into the memtables, logged batches first as in (a).
        let mut seq = first_seq;
        for batch in batches.iter().filter(logged) {
            seq = insert(batch, seq);
        }
        for batch in batches.iter().filter(|b| !logged(b)) {
            seq = insert(batch, seq);
        }
        // Else the group's count in the log is wrong, and a replay numbers later entries wrongly.
        assert_eq!(seq, lead.last_seq + 1, "entries of a group from {first_seq} on");
        // (d) All entries up to `last_seq` are in memtables.
        self.shared.publish(lead.last_seq);
        self.shared.commits.end(lead.last_seq);
        self.count(batches, total, bytes as u64);
        Ok(Committed { lsn })
    }

    /// Ends the gaps that the batches put keys into, before these become visible (`gaps`).
    fn begin_inserts(&self, batches: &[&PendingBatch]) {
        self.shared.commits.begin();
        for batch in batches {
            for tree in batch.trees.iter().filter(|tree| tree.gaps.are_any()) {
                let puts = Records::new(&batch.bytes)
                    .filter(|record| record.kind == Kind::Put && record.keyspace == tree.id);
                tree.gaps.cut(puts.map(|record| record.key));
            }
        }
    }

    /// Appends the logged batches as one group; its LSN, or 0 if there is none.
    fn append(&self, batches: &[&PendingBatch], first_seq: Seq, logged_count: u32) -> Result<Lsn> {
        if logged_count == 0 {
            if self.wal.is_held_due() {
                self.wal.write_out()?;
            }
            return self.wal.end_unknown_tail().map(|()| Lsn::ZERO);
        }
        let acked = match batches.iter().map(|b| b.durability).max().unwrap_or_default() {
            Durability::None | Durability::Deferred => AckedWhen::Held,
            Durability::Buffered => AckedWhen::Written,
            Durability::Sync => AckedWhen::Synced,
        };
        let (head, head_bytes) = varint(first_seq);
        let head = &head[..head_bytes];
        if let [only] = batches {
            return self.wal.append(&[head, &only.bytes], logged_count, acked);
        }
        let mut parts: Vec<&[u8]> = Vec::with_capacity(batches.len() + 1);
        parts.push(head);
        let logged = batches.iter().filter(|b| b.durability != Durability::None);
        parts.extend(logged.map(|b| b.bytes.as_slice()));
        self.wal.append(&parts, logged_count, acked)
    }

    fn count(&self, batches: &[&PendingBatch], total: u64, bytes: u64) {
        let deletes: u64 = batches.iter().map(|b| u64::from(b.deletes)).sum();
        let counters = &self.shared.counters;
        counters.puts.add_alone(total - deletes);
        counters.deletes.add_alone(deletes);
        counters.user_bytes_written.add_alone(bytes);
        counters.batches.add_alone(batches.len() as u64);
        counters.groups.add_alone(1);
    }

    /// Freezes the active memtable if it is full; stalls while too many immutable ones wait for
    /// their flush, or while compaction is too far behind.
    fn make_room(&self, tree: &Tree) -> Result<()> {
        let (full, must_stall) = self.room(tree);
        if !full && !must_stall {
            return Ok(());
        }
        if must_stall {
            self.stall_while(&[tree], || !tree.is_dropped() && self.room(tree).1)?;
        }
        if self.room(tree).0 {
            self.freeze(&[tree]);
            self.shared.wake_workers();
        }
        Ok(())
    }

    /// Keeps the memtables of all keyspaces together within their part of the memory budget:
    /// freezes the largest ones, also if they are not full, and stalls if flushes do not keep up.
    #[inline]
    fn bound_memtables(&self) -> Result<()> {
        let max = self.limits.memtable_bytes_max;
        if self.shared.memtable_memory.bytes() <= max {
            return Ok(());
        }
        self.shared.memtable_memory.shrink();
        if self.shared.accountant.used(Category::Memtables) <= max {
            return Ok(());
        }
        let trees = (self.source.all_trees)();
        if MemtableBytes::of(&trees).should_freeze(max)
            && self.freeze_all(&limit::largest(&trees, max)) > 0
        {
            self.shared.wake_workers();
        }
        if MemtableBytes::of(&trees).should_stall(max) {
            self.stall_while(&trees, || MemtableBytes::of(&trees).should_stall(max))?;
        }
        Ok(())
    }

    /// Whether the active memtable is full, and whether the writer must stall first.
    #[inline]
    fn room(&self, tree: &Tree) -> (bool, bool) {
        let current = tree.peek();
        let options = &current.options;
        let memtable = &current.active.memtable;
        let full = memtable.bytes() >= options.write_buffer_bytes
            || options.debug.write_buffer_entries.is_some_and(|max| memtable.entries() >= max);
        let crowded = full
            && (current.immutables.len() >= options.immutables_max
                || self.shared.accountant.used(Category::Memtables) + options.write_buffer_bytes
                    > self.limits.memtable_bytes_max
                    && !current.immutables.is_empty());
        (full, crowded || tree.stalled.load(Ordering::Acquire))
    }

    /// Stalls the leader while `must_stall`, until flushes or compactions relieve it. Fails if the
    /// device is full, or if background work of one of `trees` is blocked.
    fn stall_while<T: Borrow<Tree>>(
        &self,
        trees: &[T],
        must_stall: impl Fn() -> bool,
    ) -> Result<()> {
        // It may take long, and nobody else can.
        self.wal.write_out()?;
        let started = clock::now_nanos();
        self.shared.wake_workers();
        let result = self.shared.wait_until(|| {
            if let Err(error) = self.shared.health.check_writable() {
                return Some(Err(error));
            }
            if !must_stall() {
                return Some(Ok(()));
            }
            let blocked_by = || trees.iter().find_map(|tree| tree.borrow().stall_blocked_by());
            self.shared.health.full().or_else(blocked_by).map(Err)
        });
        let counters = &self.shared.counters;
        counters.stalls.add(1);
        counters.stall_nanos.add(clock::now_nanos() - started);
        result
    }

    /// Write slowdown: sleeps for the group's bytes at the rate that `compaction::pacing` sets.
    fn delay_writers(&self, lead: &mut Lead, batches: &[&PendingBatch], bytes: u64) {
        let rate = batches
            .iter()
            .flat_map(|b| &b.trees)
            .map(|t| t.delay_per_byte.load(Ordering::Relaxed))
            .max()
            .unwrap_or(0);
        if rate == 0 {
            lead.delay_due_nanos = 0;
            return;
        }
        let due = rate.saturating_mul(bytes) / DELAY_UNITS_PER_NANO;
        lead.delay_due_nanos = lead.delay_due_nanos.saturating_add(due);
        if lead.delay_due_nanos < DELAY_NANOS_MIN {
            return;
        }
        let nanos = lead.delay_due_nanos.min(DELAY_NANOS_MAX);
        let started = clock::now_nanos();
        sched::delay(Duration::from_nanos(nanos));
        let slept = clock::now_nanos() - started;
        // Oversleeping is credited, so that the average rate is the configured one.
        lead.delay_due_nanos = lead.delay_due_nanos.min(DELAY_NANOS_MAX).saturating_sub(slept);
        self.shared.counters.delays.add(1);
        self.shared.counters.delay_nanos.add(slept);
    }

    /// Freezes the memtables that background threads have requested.
    ///
    /// Requires: the caller leads.
    fn freeze_as_requested(&self) {
        self.freeze_requested.store(false, Ordering::Release);
        sched::switch_point();
        let requests = std::mem::take(&mut *self.freeze_requests.lock());
        if self.freeze_all(&requests) > 0 {
            self.shared.wake_workers();
        }
    }

    fn freeze_all(&self, trees: &[Arc<Tree>]) -> usize {
        let trees: Vec<&Tree> = trees.iter().map(|tree| &**tree).collect();
        self.freeze(&trees)
    }

    /// Freezes active memtables unless they are empty; returns how many. If one holds unlogged
    /// entries, the memtables of all keyspaces are frozen with it: they share its sequence range
    /// (H52).
    ///
    /// Requires: the caller leads.
    fn freeze(&self, trees: &[&Tree]) -> usize {
        let unlogged = trees.iter().any(|t| t.peek().active.holds_unlogged.load(Ordering::Relaxed));
        if !unlogged && trees.iter().all(|tree| tree.peek().active.memtable.is_empty()) {
            return 0;
        }
        // The flush edit will record the log as durable up to here.
        let position = match self.wal.settle() {
            Ok((_, position)) => position,
            Err(error) => {
                self.shared.poison(&error);
                return 0;
            }
        };
        let frozen = trees.iter().filter(|tree| self.freeze_one(tree, position)).count();
        // A keyspace without entries needs no group before this position (H38). Only whole segments
        // are released, so one pass per segment is enough.
        let advanced = self.starts_advanced_in.load(Ordering::Relaxed);
        let segment = position.segment.get();
        assert!(advanced <= segment || advanced == u64::MAX, "the log goes back to {segment}");
        let is_new = advanced != segment;
        if unlogged || (frozen > 0 && is_new) {
            for sibling in (self.source.all_trees)() {
                if unlogged {
                    self.freeze_one(&sibling, position);
                }
                sibling.restart_log_if_empty(position);
            }
            self.starts_advanced_in.store(segment, Ordering::Relaxed);
        }
        frozen
    }

    fn freeze_one(&self, tree: &Tree, position: LogPosition) -> bool {
        let (hint, empty) = {
            let current = tree.peek();
            (current.options.write_buffer_bytes, current.active.memtable.is_empty())
        };
        if empty {
            return false;
        }
        tree.freeze(|| (self.source.next_epoch)(), position, hint, &self.shared.memtable_memory);
        self.shared.note_frozen(tree.id);
        true
    }
}

/// Inserts the records of a batch from sequence number `seq` on; returns the next free number.
fn insert(batch: &PendingBatch, mut seq: Seq) -> Seq {
    let begin = |active: &Flushable| {
        if batch.durability == Durability::None {
            active.holds_unlogged.store(true, Ordering::Relaxed);
        }
    };
    if let [tree] = batch.trees.as_slice() {
        let current = tree.peek();
        begin(&current.active);
        for record in Records::new(&batch.bytes) {
            current.active.memtable.insert(record.key, seq, record.kind, record.value);
            count_write(&current, &record);
            seq += 1;
        }
        current.active.update_charge();
        return seq;
    }
    for tree in &batch.trees {
        begin(&tree.peek().active);
    }
    for record in Records::new(&batch.bytes) {
        let tree = batch.trees.iter().find(|t| t.id == record.keyspace);
        debug_assert!(tree.is_some(), "a record of keyspace {}, not named", record.keyspace);
        if let Some(tree) = tree {
            let current = tree.peek();
            current.active.memtable.insert(record.key, seq, record.kind, record.value);
            count_write(&current, &record);
        }
        seq += 1;
    }
    for tree in &batch.trees {
        tree.peek().active.update_charge();
    }
    seq
}

/// Counts a write for the heat of ranges, if the keyspace has it and the write is one of those that
/// are counted.
#[inline]
fn count_write(current: &SuperVersion, record: &Record<'_>) {
    if let Some(heat) = &current.heat
        && is_sampled()
    {
        heat.note_write(record.key, record.key.len() + record.value.len());
    }
}
