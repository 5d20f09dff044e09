//! The commit queue: writers join, one leads, all leave with the same sequence of events.
//!
//! Invariants:
//! 1. At most one thread leads. Only the leader appends to the log, inserts into memtables, freezes
//!    them, and publishes sequence numbers.
//! 2. Sequence numbers are handed out in log order and published after the inserts (H46). A group
//!    whose log write failed is not inserted and not published; its numbers are not used again.
//! 3. A batch with [`Durability::None`] takes sequence numbers but no place in the log.
//! 4. A `Sync` writer is acknowledged only after the log is durable up to its group; the sync runs
//!    outside the lead, so that the next group is written meanwhile.
//! 5. Nothing under the lead creates or syncs a file (ARCHITECTURE §9).
//!
//! Source: group commit as in LevelDB; the pieces that differ are the encoding by each writer and
//! the sync outside the lead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::clock;
use crate::base::coding::varint;
use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::key::{Kind, SEQ_MAX, Seq};
use crate::base::memory::Category;
use crate::base::sched::{self, Condvar, Mutex};
use crate::log::LogPosition;
use crate::log::wal::Wal;
use crate::options::Durability;
use crate::state::shared::Shared;
use crate::state::tree::{DELAY_UNITS_PER_NANO, Tree};
use crate::write::batch::Records;

/// Bytes of batches that a leader takes into one group: enough to amortise the write of a group,
/// little enough that the first writer in it does not wait for long.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Owed delay that is slept off at once; below, it is carried over: shorter sleeps cost more in
/// wake-ups than they slow anybody down.
const DELAY_NANOS_MIN: u64 = 500_000;

/// Longest delay of one group. Back-pressure is spread over many writers, never a long stop.
const DELAY_NANOS_MAX: u64 = 50_000_000;

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

type Callback = Box<dyn FnOnce(&Result<Committed>) + Send>;

/// A callback whose batch has left the queue.
struct DueCallback {
    callback: Callback,
    outcome: Result<Committed>,
}

/// Runs callbacks. Requires: the caller does not lead.
fn run_callbacks(due: Vec<DueCallback>) {
    for DueCallback { callback, outcome } in due {
        let called = || {
            callback(&outcome);
            Ok(())
        };
        sched::catch_panic("a callback", called)
            .ignore_error("the panic was reported; it is not for this writer");
    }
}

/// A batch that waits in the queue.
pub(crate) struct Ticket {
    /// Whether a thread blocks on this ticket and can take the lead.
    blocking: bool,
    state: Mutex<TicketState>,
    changed: Condvar,
}

struct TicketState {
    /// Taken by the leader that commits it. `None` also for a ticket that only wants the lead.
    pending: Option<Pending>,
    leads: bool,
    outcome: Option<Result<Committed>>,
    callback: Option<Callback>,
}

impl Ticket {
    fn new(pending: Option<Pending>, blocking: bool) -> Arc<Self> {
        Arc::new(Self {
            blocking,
            state: Mutex::new(TicketState { pending, leads: false, outcome: None, callback: None }),
            changed: Condvar::new(),
        })
    }

    /// A ticket of a batch that was refused.
    pub(crate) fn failed(error: Error) -> Arc<Self> {
        let ticket = Self::new(None, false);
        ticket.state.lock().outcome = Some(Err(error));
        ticket
    }

    /// Waits for the outcome, or for the lead (`None`).
    fn wait(&self) -> Option<Result<Committed>> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return Some(outcome.clone());
            }
            if state.leads {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Sets the outcome and wakes who waits. The callback, if there is one, is the caller's to run,
    /// after it has given the lead away.
    #[must_use]
    fn finish(&self, outcome: Result<Committed>) -> Option<DueCallback> {
        let callback = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome.clone());
            state.callback.take()
        };
        self.changed.notify_all();
        callback.map(|callback| DueCallback { callback, outcome })
    }

    fn give_lead(&self) {
        self.state.lock().leads = true;
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
    pub(crate) fn on_outcome(&self, callback: Callback) {
        let outcome = {
            let mut state = self.state.lock();
            match &state.outcome {
                Some(outcome) => outcome.clone(),
                None => {
                    state.callback = Some(callback);
                    return;
                }
            }
        };
        callback(&outcome);
    }
}

/// What the queue needs of the layers above to freeze a memtable.
pub(crate) struct FreezeSource {
    /// Draws the data epoch of a frozen memtable.
    pub(crate) next_epoch: Box<dyn Fn() -> u64 + Send + Sync>,
    /// All open keyspaces.
    pub(crate) all_trees: Box<dyn Fn() -> Vec<Arc<Tree>> + Send + Sync>,
}

/// The commit queue of a store. Locks: `line` before a ticket's state; both are leaves otherwise.
pub(crate) struct CommitQueue {
    line: Mutex<Line>,
    wal: Arc<Wal>,
    shared: Arc<Shared>,
    source: FreezeSource,
    limits: Limits,
    freeze_requests: Mutex<Vec<Arc<Tree>>>,
    freeze_requested: AtomicBool,
}

/// What bounds the memory of writers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of all memtables above which writers wait for flushes.
    pub(crate) memtable_bytes_max: u64,
}

/// INVARIANT: while the lead is held exclusively, no ticket in the line is without a thread that
/// blocks on it. Whoever holds the lead that way may be a background thread or hold locks, and must
/// not have to commit for others: a commit may wait for a flush.
#[derive(Default)]
struct Line {
    leading: bool,
    /// The leader runs something between two groups and commits nothing.
    exclusive: bool,
    waiting: VecDeque<Arc<Ticket>>,
    /// Tickets in the line that no thread blocks on.
    unattended: usize,
}

impl Line {
    /// The ticket that is served next: one that cannot lead itself first, else the oldest.
    fn pop_next(&mut self) -> Option<Arc<Ticket>> {
        if self.unattended == 0 {
            return self.waiting.pop_front();
        }
        self.unattended -= 1;
        let at = self.waiting.iter().position(|t| !t.blocking)?;
        self.waiting.remove(at)
    }
}

/// The right to do what only the leader may do. Holds the last sequence number handed out.
pub(crate) struct Lead {
    last_seq: Seq,
    owed_nanos: u64,
}

/// The leader's private state between two leaders.
type LeadCell = Mutex<Option<Lead>>;

/// The queue with the leader's state.
pub(crate) struct Committer {
    queue: CommitQueue,
    lead: LeadCell,
}

impl Committer {
    /// A queue that hands out sequence numbers after `last_seq`.
    pub(crate) fn new(
        wal: Arc<Wal>,
        shared: Arc<Shared>,
        source: FreezeSource,
        limits: Limits,
        last_seq: Seq,
    ) -> Self {
        Self {
            queue: CommitQueue {
                line: Mutex::default(),
                wal,
                shared,
                source,
                limits,
                freeze_requests: Mutex::default(),
                freeze_requested: AtomicBool::new(false),
            },
            lead: Mutex::new(Some(Lead { last_seq, owed_nanos: 0 })),
        }
    }

    /// Commits one batch and waits until it is as durable as it asks for.
    pub(crate) fn write(&self, pending: &mut Pending) -> Result<Committed> {
        self.queue.admit(pending)?;
        let sync = pending.durability == Durability::Sync;
        let committed = self.commit_attended(pending)?;
        if sync {
            self.queue.wal.sync_to(committed.lsn)?;
        }
        Ok(committed)
    }

    /// Enters a batch without waiting for its commit if somebody else leads; leads otherwise.
    pub(crate) fn submit(&self, pending: &mut Pending) -> Result<Arc<Ticket>> {
        self.queue.admit(pending)?;
        if self.try_lead() {
            let ticket = Ticket::new(None, false);
            let outcome = self.lead_with(pending);
            run_callbacks(ticket.finish(outcome).into_iter().collect());
            return Ok(ticket);
        }
        let ticket = Ticket::new(Some(std::mem::take(pending)), false);
        let mut line = self.queue.line.lock();
        if line.leading && !line.exclusive {
            line.waiting.push_back(Arc::clone(&ticket));
            line.unattended += 1;
            return Ok(ticket);
        }
        drop(line);
        // Nobody leads, or only for a moment: this thread waits for its turn.
        let mut own = ticket.state.lock().pending.take().unwrap_or_default();
        let outcome = self.commit_attended(&mut own);
        run_callbacks(ticket.finish(outcome).into_iter().collect());
        Ok(ticket)
    }

    /// Commits one batch, leading or waiting for the one who does.
    #[inline]
    fn commit_attended(&self, pending: &mut Pending) -> Result<Committed> {
        if self.try_lead() {
            return self.lead_with(pending);
        }
        let ticket = Ticket::new(Some(std::mem::take(pending)), true);
        match self.enqueue_and_wait(&ticket) {
            Some(outcome) => outcome,
            None => {
                let own = ticket.state.lock().pending.take();
                self.lead_with(&mut own.unwrap_or_default())
            }
        }
    }

    /// Runs `body` between two commit groups if nobody leads now.
    pub(crate) fn try_exclusively<T>(&self, body: impl FnOnce(&LeadAccess<'_>) -> T) -> Option<T> {
        {
            let mut line = self.queue.line.lock();
            if line.leading {
                return None;
            }
            line.leading = true;
            line.exclusive = true;
        }
        let result = body(&LeadAccess { queue: &self.queue });
        run_callbacks(self.hand_over());
        Some(result)
    }

    /// Has the keyspace's memtable frozen before the next commit group, without waiting for it.
    pub(crate) fn request_freeze(&self, tree: &Arc<Tree>) {
        {
            let mut requests = self.queue.freeze_requests.lock();
            if !requests.iter().any(|t| t.id == tree.id) {
                requests.push(Arc::clone(tree));
            }
        }
        self.queue.freeze_requested.store(true, Ordering::Release);
        self.try_exclusively(|lead| lead.queue.freeze_as_requested());
    }

    /// Runs `body` between two commit groups, after waiting for the lead. Not for background
    /// threads: the leader may be waiting for them.
    pub(crate) fn exclusively<T>(&self, body: impl FnOnce(&LeadAccess<'_>) -> T) -> T {
        let ticket = Ticket::new(None, true);
        let given = {
            let mut line = self.queue.line.lock();
            if line.leading {
                line.waiting.push_back(Arc::clone(&ticket));
                false
            } else {
                line.leading = true;
                line.exclusive = true;
                true
            }
        };
        if !given {
            let outcome = ticket.wait();
            debug_assert!(outcome.is_none(), "a ticket without a batch can only get the lead");
        }
        let result = body(&LeadAccess { queue: &self.queue });
        run_callbacks(self.hand_over());
        result
    }

    /// Takes the lead of an idle queue.
    #[inline]
    fn try_lead(&self) -> bool {
        let mut line = self.queue.line.lock();
        !std::mem::replace(&mut line.leading, true)
    }

    /// Joins the line; the outcome, or `None` with the lead.
    fn enqueue_and_wait(&self, ticket: &Arc<Ticket>) -> Option<Result<Committed>> {
        {
            let mut line = self.queue.line.lock();
            if !line.leading {
                line.leading = true;
                return None;
            }
            line.waiting.push_back(Arc::clone(ticket));
        }
        ticket.wait()
    }

    /// Leads one group that begins with `own`.
    ///
    /// Requires: the caller leads.
    fn lead_with(&self, own: &mut Pending) -> Result<Committed> {
        let mut lead = self.take_lead();
        let mut due = Vec::new();
        let outcome = self.queue.commit_group(&mut lead, own, &mut due);
        self.give_back(lead);
        due.extend(self.hand_over());
        run_callbacks(due);
        outcome
    }

    fn take_lead(&self) -> Lead {
        let lead = self.lead.lock().take();
        lead.unwrap_or_else(|| unreachable!("two threads lead the commit queue"))
    }

    fn give_back(&self, lead: Lead) {
        *self.lead.lock() = Some(lead);
    }

    /// Commits for those who cannot lead, then gives the lead to the first who can. The callbacks
    /// that became due are the caller's to run.
    fn hand_over(&self) -> Vec<DueCallback> {
        let mut due = Vec::new();
        loop {
            let next = {
                let mut line = self.queue.line.lock();
                let Some(ticket) = line.pop_next() else {
                    line.leading = false;
                    line.exclusive = false;
                    return due;
                };
                if ticket.blocking {
                    line.exclusive = ticket.state.lock().pending.is_none();
                }
                ticket
            };
            if next.blocking {
                next.give_lead();
                return due;
            }
            let own = next.state.lock().pending.take();
            let mut lead = self.take_lead();
            let outcome =
                self.queue.commit_group(&mut lead, &mut own.unwrap_or_default(), &mut due);
            self.give_back(lead);
            due.extend(next.finish(outcome));
        }
    }
}

/// What may be done between two commit groups.
pub(crate) struct LeadAccess<'a> {
    queue: &'a CommitQueue,
}

impl LeadAccess<'_> {
    /// Freezes the keyspace's active memtable if it holds anything.
    pub(crate) fn freeze(&self, tree: &Tree) -> bool {
        self.queue.freeze(tree)
    }

    /// Position of the next log group.
    pub(crate) fn log_position(&self) -> LogPosition {
        self.queue.wal.position()
    }
}

impl CommitQueue {
    /// Refuses what cannot be committed, before it joins.
    #[inline]
    fn admit(&self, pending: &Pending) -> Result<()> {
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

    /// Commits `own` and whatever else waits at the head of the line as one group.
    ///
    /// Requires: the caller leads.
    fn commit_group(
        &self,
        lead: &mut Lead,
        own: &mut Pending,
        due: &mut Vec<DueCallback>,
    ) -> Result<Committed> {
        let mut followers: Vec<(Arc<Ticket>, Pending)> = Vec::new();
        if own.bytes.len() < GROUP_BYTES_MAX {
            self.collect(own, &mut followers);
        }
        let commit = || {
            if followers.is_empty() {
                return self.commit_batches(lead, &[own]);
            }
            let mut batches: Vec<&Pending> = Vec::with_capacity(followers.len() + 1);
            batches.push(own);
            batches.extend(followers.iter().map(|(_, pending)| pending));
            self.commit_batches(lead, &batches)
        };
        let outcome = sched::catch_panic("a commit", commit).inspect_err(|error| {
            if error.kind() == ErrorKind::Poisoned {
                self.shared.health.poison(error);
            }
        });
        for (ticket, _) in followers {
            due.extend(ticket.finish(outcome.clone()));
        }
        outcome
    }

    /// Moves batches from the head of the line into the group. Stops at a ticket that wants the
    /// lead.
    fn collect(&self, own: &Pending, followers: &mut Vec<(Arc<Ticket>, Pending)>) {
        let mut bytes = own.bytes.len();
        let mut line = self.line.lock();
        while let Some(head) = line.waiting.front() {
            let mut state = head.state.lock();
            let fits = |p: &Pending| bytes + p.bytes.len() <= GROUP_BYTES_MAX;
            if !state.pending.as_ref().is_some_and(fits) {
                break;
            }
            let Some(pending) = state.pending.take() else { break };
            drop(state);
            bytes += pending.bytes.len();
            if let Some(ticket) = line.waiting.pop_front() {
                line.unattended -= usize::from(!ticket.blocking);
                followers.push((ticket, pending));
            }
        }
    }

    /// Log, memtables, publication.
    fn commit_batches(&self, lead: &mut Lead, batches: &[&Pending]) -> Result<Committed> {
        self.shared.health.check_writable()?;
        if self.freeze_requested.load(Ordering::Acquire) {
            self.freeze_as_requested();
        }
        let bytes: usize = batches.iter().map(|b| b.bytes.len()).sum();
        for batch in batches {
            for tree in &batch.trees {
                self.make_room(tree)?;
            }
        }
        self.slow_down(lead, batches, bytes as u64);

        // (a) Logged batches come first, so that their sequence numbers are consecutive in the log.
        let first_seq = lead.last_seq + 1;
        let logged = |b: &&&Pending| b.durability != Durability::None;
        let logged_count: u32 = batches.iter().filter(logged).map(|b| b.count).sum();
        let total: u64 = batches.iter().map(|b| u64::from(b.count)).sum();
        if first_seq + total > SEQ_MAX {
            return Err(Error::new(ErrorKind::Unsupported, "the sequence numbers are used up"));
        }
        // (b) Numbers are used up even if the log write fails: a group that the device kept
        // although it reported an error must never share numbers with another one.
        lead.last_seq += total;
        let lsn = self.append(batches, first_seq, logged_count)?;

        // (c) Into the memtables, logged batches first as in (a).
        let mut seq = first_seq;
        for batch in batches.iter().filter(logged) {
            seq = insert(batch, seq);
        }
        for batch in batches.iter().filter(|b| !logged(b)) {
            seq = insert(batch, seq);
            for tree in &batch.trees {
                tree.peek().active.holds_unlogged.store(true, Ordering::Relaxed);
            }
        }
        // (d) Everything up to here is in a memtable.
        self.shared.publish(lead.last_seq);
        self.count(batches, total, bytes as u64);
        Ok(Committed { lsn })
    }

    /// One log group for all logged batches; its log sequence number.
    fn append(&self, batches: &[&Pending], first_seq: Seq, logged_count: u32) -> Result<u64> {
        if logged_count == 0 {
            return Ok(0);
        }
        let sync = batches.iter().any(|b| b.durability == Durability::Sync);
        let (head, head_bytes) = varint(first_seq);
        let head = &head[..head_bytes];
        if let [only] = batches {
            return self.wal.append(&[head, &only.bytes], logged_count, sync);
        }
        let mut parts: Vec<&[u8]> = Vec::with_capacity(batches.len() + 1);
        parts.push(head);
        let logged = batches.iter().filter(|b| b.durability != Durability::None);
        parts.extend(logged.map(|b| b.bytes.as_slice()));
        self.wal.append(&parts, logged_count, sync)
    }

    fn count(&self, batches: &[&Pending], total: u64, bytes: u64) {
        let deletes: u64 = batches.iter().map(|b| u64::from(b.deletes)).sum();
        let counters = &self.shared.counters;
        counters.puts.add(total - deletes);
        if deletes > 0 {
            counters.deletes.add(deletes);
        }
        counters.user_bytes_written.add(bytes);
        counters.batches.add(batches.len() as u64);
        counters.groups.add(1);
    }

    /// Freezes a full memtable; waits while too many wait for their flush or level 0 is too deep.
    fn make_room(&self, tree: &Tree) -> Result<()> {
        let (full, must_stop) = self.room(tree);
        if !full && !must_stop {
            return Ok(());
        }
        if must_stop {
            self.stop_until_room(tree)?;
        }
        if self.room(tree).0 {
            self.freeze(tree);
            self.shared.wake_workers();
        }
        Ok(())
    }

    /// Whether the active memtable is full, and whether the writer must wait first.
    #[inline]
    fn room(&self, tree: &Tree) -> (bool, bool) {
        let current = tree.peek();
        let options = &current.options;
        let memtable = &current.active.memtable;
        let full = memtable.bytes() >= options.write_buffer_bytes
            || options.write_buffer_entries.is_some_and(|max| memtable.entries() >= max);
        let crowded = full
            && (current.immutables.len() >= options.immutables_max
                || self.shared.accountant.used(Category::Memtables) + options.write_buffer_bytes
                    > self.limits.memtable_bytes_max
                    && !current.immutables.is_empty());
        (full, crowded || tree.stopped.load(Ordering::Acquire))
    }

    /// Waits until a flush or a compaction makes room. A full device ends the wait with its error.
    fn stop_until_room(&self, tree: &Tree) -> Result<()> {
        let started = clock::now_nanos();
        self.shared.wake_workers();
        let result = self.shared.wait_until(|| {
            if let Err(error) = self.shared.health.check_writable() {
                return Some(Err(error));
            }
            if tree.is_dropped() || !self.room(tree).1 {
                return Some(Ok(()));
            }
            self.shared.health.full().map(Err)
        });
        let counters = &self.shared.counters;
        counters.stalls.add(1);
        counters.stall_nanos.add(clock::now_nanos() - started);
        result
    }

    /// Sleeps off what the group owes for its bytes (smooth back-pressure; `compaction::pacing`
    /// sets the rate).
    fn slow_down(&self, lead: &mut Lead, batches: &[&Pending], bytes: u64) {
        let rate = batches
            .iter()
            .flat_map(|b| &b.trees)
            .map(|t| t.delay_per_byte.load(Ordering::Relaxed))
            .max()
            .unwrap_or(0);
        if rate == 0 {
            lead.owed_nanos = 0;
            return;
        }
        let owed = rate.saturating_mul(bytes) / DELAY_UNITS_PER_NANO;
        lead.owed_nanos = lead.owed_nanos.saturating_add(owed);
        if lead.owed_nanos < DELAY_NANOS_MIN {
            return;
        }
        let nanos = lead.owed_nanos.min(DELAY_NANOS_MAX);
        let started = clock::now_nanos();
        sched::delay(Duration::from_nanos(nanos));
        let slept = clock::now_nanos() - started;
        // Oversleeping is credited, so that the average rate is what was asked for.
        lead.owed_nanos = lead.owed_nanos.min(DELAY_NANOS_MAX).saturating_sub(slept);
        self.shared.counters.delays.add(1);
        self.shared.counters.delay_nanos.add(slept);
    }

    /// Freezes what background threads have asked for.
    ///
    /// Requires: the caller leads.
    fn freeze_as_requested(&self) {
        self.freeze_requested.store(false, Ordering::Release);
        let requests = std::mem::take(&mut *self.freeze_requests.lock());
        let frozen = requests.iter().filter(|tree| self.freeze(tree)).count();
        if frozen > 0 {
            self.shared.wake_workers();
        }
    }

    /// Freezes the active memtable unless it is empty. If it holds entries that are in no log, the
    /// other keyspaces' memtables are frozen with it: they share its sequence range (H52).
    ///
    /// Requires: the caller leads.
    fn freeze(&self, tree: &Tree) -> bool {
        let unlogged = tree.peek().active.holds_unlogged.load(Ordering::Relaxed);
        let position = self.wal.position();
        let frozen = self.freeze_one(tree, position);
        if unlogged || frozen {
            for sibling in (self.source.all_trees)().iter().filter(|t| t.id != tree.id) {
                if unlogged {
                    self.freeze_one(sibling, position);
                }
                // A keyspace that nothing was written to needs nothing of the log so far (H38).
                sibling.restart_log_if_empty(position);
            }
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
        tree.freeze((self.source.next_epoch)(), position, hint, &self.shared.accountant);
        true
    }
}

/// Inserts the records of a batch from sequence number `seq` on; the next free number.
fn insert(batch: &Pending, mut seq: Seq) -> Seq {
    if let [tree] = batch.trees.as_slice() {
        let current = tree.peek();
        for record in Records::new(&batch.bytes) {
            current.active.memtable.insert(record.key, seq, record.kind, record.value);
            seq += 1;
        }
        current.active.update_charge();
        return seq;
    }
    for record in Records::new(&batch.bytes) {
        if let Some(tree) = batch.trees.iter().find(|t| t.id == record.keyspace) {
            tree.peek().active.memtable.insert(record.key, seq, record.kind, record.value);
        }
        seq += 1;
    }
    for tree in &batch.trees {
        tree.peek().active.update_charge();
    }
    seq
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

    /// Empties the batch, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.trees.clear();
        self.count = 0;
        self.deletes = 0;
    }
}
