//! The write-ahead log of a running store: a ring of segments with one appender.
//!
//! The first append of an opening creates the first segment, a small one: an opening without writes
//! leaves the log unchanged. Later segments are created off the write path by [`Wal::prepare`],
//! each a step larger (`ring`); the appender only takes the ready one. Where segments have cells,
//! the first one comes in this way, too: it is not small beside what is kept back.
//!
//! Where writers sync, segments are filled with zeros and synced before they are used: a sync then
//! writes only the blocks of its groups, without file system metadata, and is one flush of the
//! device (H36). Without syncs, space is only reserved. Obsolete segments are recycled: their pages
//! are in the page cache already, so that a write takes half the time of one to a new segment. Not
//! here: framing (`writer`), replay (`replay`).
//!
//! Invariants:
//! 1. One caller appends at a time (the leader of the commit queue).
//! 2. A sync makes every older segment durable before it acknowledges anything in a younger one
//!    (docs/hazards.md, bug 23).
//! 3. A failed sync is final: every later sync fails with the same error (H43).
//! 4. A failed write seals its segment behind the last whole group; the next segment names that
//!    group as its predecessor, so that no part of the failed group is replayed once there is one.
//! 5. A segment number is never used twice; a segment is reused, under a new number, only when the
//!    durable log start of every keyspace is beyond it (H35).
//! 6. Only a *settled* group counts as durable: one whose last 4 KiB unit will not be written
//!    again, since a torn write of a unit may destroy what it held (H37). A position that is
//!    recorded in an edit follows a settled group ([`Wal::settle`]), so that the groups that a
//!    flush relies on (H52) stay intact.
//! 7. The log ends behind the last *whole* batch. A batch of several fragments that is given up is
//!    taken out of it at once: its segments are spares, and the next one names the group before it.
//!    Replay ends there, too, so that no position is recorded beside the log that it leads to.
//! 8. Deferred groups are held in memory: never beside a younger group that is written, a segment
//!    that is started, or a position that is recorded, at most [`HELD_BYTES_MAX`] and one group
//!    more. Their writers have been acknowledged: if they cannot be written, nothing becomes
//!    durable any more, as after a failed sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::base::coding::to_usize;
use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::ids::{Lineage, Lsn, Nonce, SegmentNumber};
use crate::base::sched::{self, Condvar, Mutex};
use crate::log::ring::{Preparation, Ready, Ring, SegmentInfo, SegmentNeed, SegmentRequest};
use crate::log::{AckedWhen, GroupLink, GroupType, LogPosition, SegmentIdentity, SegmentWriter};
use crate::storage::{LogKind, LogRegion, Storage};

mod held;

use held::HELD_BYTES_MAX;

/// Identity of the log and size of its segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalOptions {
    pub(crate) lineage: Lineage,
    pub(crate) opening: u32,
    pub(crate) segment_bytes: u64,
}

impl WalOptions {
    fn identity(&self, segment: SegmentNumber) -> SegmentIdentity {
        SegmentIdentity {
            kind: LogKind::Wal,
            segment,
            lineage: self.lineage,
            opening: self.opening,
            nonce: Nonce::NONE,
        }
    }
}

/// Called when a segment has to be prepared; wakes a background thread.
pub(crate) type RequestSegment = Box<dyn Fn() + Send + Sync>;

/// The error of a preparation on the leader's thread. Where a background thread would poison the
/// store, `Poisoned`.
fn poisoning(error: Error) -> Error {
    if !error.leaves_unknown() {
        return error;
    }
    let what = format!("the first log segment of this opening could not be made ({error})");
    Error::with_source(ErrorKind::Poisoned, what, error)
}

/// The write-ahead log. Locks, in order: `active`, `ring`, `sync`.
pub(crate) struct Wal {
    storage: Arc<dyn Storage>,
    options: WalOptions,
    active: Mutex<Active>,
    ring: Mutex<Ring>,
    ring_changed: Condvar,
    sync: Mutex<SyncState>,
    synced: Condvar,
    /// Largest LSN that was written to a segment or is held.
    written_lsn: AtomicU64,
    /// Largest settled LSN (invariant 6); at most `written_lsn`.
    settled_lsn: AtomicU64,
    /// Largest LSN that is known to be durable; at most `settled_lsn`.
    durable_lsn: AtomicU64,
    appended_bytes: AtomicU64,
    /// Syncs begun.
    syncs: AtomicU64,
    /// Payload bytes that the active segment has room for. A copy for readers that must not block
    /// on `active`, which is held while the appender waits for a segment.
    room: AtomicU64,
    /// Whether the preparation of the next segment has been requested.
    requested: AtomicBool,
    /// Whether the last append failed, so that its group, which is not part of the log, may be
    /// found by a replay as long as no other one follows.
    tail_unknown: AtomicBool,
    /// When the oldest of the groups that are held was appended; 0 if none is.
    held_since: AtomicU64,
    /// Whether a background thread looks at what is held, again and again until nothing is.
    held_watched: AtomicBool,
    /// Whether any write was synchronous: from then on new segments are zeroed, and only zeroed
    /// ones are recycled.
    synced_once: AtomicBool,
    request_segment: RequestSegment,
}

/// Where the next group goes.
struct Active {
    /// Where the log ends while there is no writer: where replay ended, or before a batch that was
    /// given up.
    end: LogPosition,
    /// `None` before the first group of this opening, and after a batch that was given up.
    writer: Option<SegmentWriter>,
    /// Whether this opening has started a segment.
    begun: bool,
    /// Whether the writer's segment was zeroed.
    zeroed: bool,
}

impl Active {
    /// As [`SegmentWriter::room`].
    fn room(&self) -> u64 {
        self.writer.as_ref().map_or(0, SegmentWriter::room)
    }

    fn chain(&self) -> GroupLink {
        self.writer.as_ref().map_or(self.end.chain(), SegmentWriter::chain)
    }

    /// Where the next group starts; replay finds it from here also if it starts in the next
    /// segment.
    fn position(&self) -> LogPosition {
        self.writer.as_ref().map_or(self.end, SegmentWriter::position)
    }

    /// As [`SegmentWriter::is_settled`]. Segments without a writer are not written to again.
    fn is_settled(&self) -> bool {
        self.writer.as_ref().is_none_or(SegmentWriter::is_settled)
    }

    /// The segment and the 4 KiB unit that the next group starts in.
    fn unit(&self) -> (SegmentNumber, u64) {
        self.writer
            .as_ref()
            .map_or((SegmentNumber::ZERO, 0), |writer| (writer.segment(), writer.unit()))
    }

    /// Whether the next segment should be prepared: once a quarter of the active one is written, so
    /// that a store which is opened for a few writes prepares none.
    fn is_filling(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.room() < 3 * writer.bytes())
    }

    /// As [`SegmentWriter::write_out`].
    fn write_out(&mut self) -> Result<()> {
        self.writer.iter_mut().try_for_each(SegmentWriter::write_out)
    }

    /// As [`SegmentWriter::has_lost_groups`].
    fn has_lost_groups(&self) -> bool {
        self.writer.as_ref().is_some_and(SegmentWriter::has_lost_groups)
    }

    /// As [`SegmentWriter::held_bytes`].
    fn held_bytes(&self) -> usize {
        self.writer.as_ref().map_or(0, SegmentWriter::held_bytes)
    }

    fn take_appended_bytes(&mut self) -> u64 {
        self.writer.as_mut().map_or(0, SegmentWriter::take_appended_bytes)
    }
}

#[derive(Default)]
struct SyncState {
    running: bool,
    /// Segments with groups that may not be durable, oldest first; the last one is active.
    dirty: Vec<(SegmentNumber, Arc<dyn LogRegion>)>,
    /// Segments started so far, and how many of their starts are durable.
    started: u64,
    starts_synced: u64,
    failed: Option<Error>,
}

/// What an opening found of the log.
pub(crate) struct FoundLog {
    /// The segments that keyspaces still need, ascending.
    pub(crate) live: Vec<SegmentNumber>,
    /// Above every segment number ever used.
    pub(crate) next_number: SegmentNumber,
    /// Where the replay ended.
    pub(crate) end: LogPosition,
}

impl Wal {
    /// Starts the log of an opened store where its replay ended. Writes nothing.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn start(
        storage: Arc<dyn Storage>,
        options: WalOptions,
        FoundLog { live, next_number, end }: FoundLog,
        request_segment: RequestSegment,
    ) -> Result<Self> {
        let info = |&number: &SegmentNumber| -> Result<SegmentInfo> {
            let bytes = storage.open_log(LogKind::Wal, number)?.capacity()?;
            // How it was created is not recorded.
            Ok(SegmentInfo { number, bytes, zeroed: false })
        };
        let live = live.iter().map(info).collect::<Result<_>>()?;
        let cell_bytes = storage.log_bytes().map(|bytes| bytes.segment);
        // Replayed segments were synced before the log is started, and are not written to again.
        let last_lsn = end.chain().lsn.get();
        Ok(Self {
            storage,
            options,
            active: Mutex::new(Active { end, writer: None, begun: false, zeroed: false }),
            ring: Mutex::new(Ring::new(live, next_number, options.segment_bytes, cell_bytes)),
            ring_changed: Condvar::new(),
            sync: Mutex::default(),
            synced: Condvar::new(),
            written_lsn: AtomicU64::new(last_lsn),
            settled_lsn: AtomicU64::new(last_lsn),
            durable_lsn: AtomicU64::new(last_lsn),
            appended_bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            room: AtomicU64::new(0),
            requested: AtomicBool::new(false),
            tail_unknown: AtomicBool::new(false),
            held_since: AtomicU64::new(0),
            held_watched: AtomicBool::new(false),
            synced_once: AtomicBool::new(false),
            request_segment,
        })
    }

    /// Appends one group; returns its LSN. Behind one that the caller will sync the next one starts
    /// in a new 4 KiB unit (H37).
    ///
    /// Requires: the caller leads the commit queue.
    ///
    /// # Errors
    /// The device's: the group is not part of the log then, even if parts of it are on disk.
    /// `NoSpace` if no segment could be prepared. `Poisoned` if deferred groups before it are not
    /// part of the log either (invariant 8).
    pub(crate) fn append(&self, parts: &[&[u8]], count: u32, acked: AckedWhen) -> Result<Lsn> {
        if acked == AckedWhen::Synced && !self.synced_once.load(Ordering::Relaxed) {
            self.synced_once.store(true, Ordering::Relaxed);
            // The ready segment may not be zeroed: the next append requests one that is.
            self.requested.store(false, Ordering::Relaxed);
        }
        let appended = self.append_group(parts, count, acked);
        if appended.is_err() != self.tail_unknown.load(Ordering::Relaxed) {
            self.tail_unknown.store(appended.is_err(), Ordering::Relaxed);
        }
        appended
    }

    /// Ends what a failed append may have left: an empty group takes its place in the log. Before a
    /// batch that is not logged: a flush covers its sequence number, and with it those of the
    /// failed group, which a replay would then give to other keyspaces only.
    ///
    /// Requires: the caller leads the commit queue.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub(crate) fn end_unknown_tail(&self) -> Result<()> {
        if !self.tail_unknown.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.append(&[&[]], 0, AckedWhen::Written).map(|_| ())
    }

    fn append_group(&self, parts: &[&[u8]], count: u32, acked: AckedWhen) -> Result<Lsn> {
        let mut active = self.active.lock();
        let appended = self.append_locked(&mut active, parts, count, acked);
        self.end_holding(&active, appended)
    }

    fn append_locked(
        &self,
        active: &mut Active,
        parts: &[&[u8]],
        count: u32,
        acked: AckedWhen,
    ) -> Result<Lsn> {
        let pad = acked == AckedWhen::Synced;
        let bytes: usize = parts.iter().map(|p| p.len()).sum();
        let before = active.unit();
        let room = active.room();
        let synced = pad && self.synced_once.load(Ordering::Relaxed);
        // A sync of a segment that is not zeroed writes metadata, so it is left as soon as
        // possible.
        let leaves = synced && !active.zeroed && self.ring.lock().has_zeroed();
        let lsn = match &mut active.writer {
            Some(writer) if room > 0 && room >= bytes as u64 && !leaves => match acked {
                AckedWhen::Held if bytes <= HELD_BYTES_MAX => {
                    writer.hold(parts, count, self.durable_lsn())?
                }
                _ => writer.append(GroupType::Full, parts, count, pad, self.durable_lsn())?,
            },
            _ => self.append_in_next(active, parts, bytes as u64, count, pad)?,
        };
        if active.held_bytes() > 0 && (active.held_bytes() > HELD_BYTES_MAX || self.is_held_due()) {
            active.write_out()?;
        }
        let previous = self.written_lsn.load(Ordering::Relaxed);
        assert!(lsn.get() > previous, "group {lsn} is written after group {previous}");
        self.written_lsn.store(lsn.get(), Ordering::Release);
        if active.is_settled() {
            self.set_settled(lsn.get());
        } else if active.unit() != before && active.held_bytes() == 0 {
            // The preceding groups end where this one starts, or in an earlier segment.
            self.set_settled(previous);
        }
        self.room.store(active.room(), Ordering::Relaxed);
        let due = active.is_filling() || synced && !active.zeroed;
        if due && !self.requested.swap(true, Ordering::Relaxed) {
            (self.request_segment)();
        }
        // No lost update: all stores in here are under the lock of the active segment.
        let appended = self.appended_bytes.load(Ordering::Relaxed) + active.take_appended_bytes();
        self.appended_bytes.store(appended, Ordering::Relaxed);
        Ok(lsn)
    }

    /// Requires: `active` is held.
    fn set_settled(&self, lsn: u64) {
        let (settled, written) = (self.settled_lsn(), self.written_lsn());
        let fits = settled.get() <= lsn && lsn <= written.get();
        assert!(fits, "group {lsn} is settled after {settled}, and {written} is written");
        self.settled_lsn.store(lsn, Ordering::Release);
    }

    /// Appends a group that does not fit the active segment: to the next one or, if it is larger
    /// than a segment, as fragments to several.
    fn append_in_next(
        &self,
        active: &mut Active,
        parts: &[&[u8]],
        bytes: u64,
        count: u32,
        pad: bool,
    ) -> Result<Lsn> {
        // The next segment names the last group as its predecessor.
        active.write_out()?;
        let (end, durable) = (active.position(), self.durable_lsn());
        self.ring.lock().note_group(bytes);
        // The active segment gets no further groups.
        self.room.store(0, Ordering::Relaxed);
        let writer = self.next_segment(active)?;
        if bytes <= writer.room() {
            return writer.append(GroupType::Full, parts, count, pad, durable);
        }
        let appended = self.append_fragments(active, &parts.concat(), count, pad);
        appended.inspect_err(|_| self.give_up(active, end))
    }

    /// Appends a group as fragments to a segment that was just started, and to those after it.
    fn append_fragments(
        &self,
        active: &mut Active,
        whole: &[u8],
        count: u32,
        pad: bool,
    ) -> Result<Lsn> {
        let durable = self.durable_lsn();
        let mut rest = whole;
        let mut lsn = Lsn::ZERO;
        let mut ty = GroupType::First;
        while !rest.is_empty() {
            let writer = match &mut active.writer {
                Some(writer) if ty == GroupType::First => writer,
                _ => self.next_segment(active)?,
            };
            let (piece, tail) = rest.split_at(rest.len().min(to_usize(writer.room())));
            rest = tail;
            if rest.is_empty() {
                ty = GroupType::Last;
            }
            // The entries are counted once, in the last fragment.
            let (count, pad) = if rest.is_empty() { (count, pad) } else { (0, false) };
            lsn = writer.append(ty, &[piece], count, pad, durable)?;
            ty = GroupType::Middle;
        }
        Ok(lsn)
    }

    /// Takes the fragments of a batch out of the log, which ends at `end` again. All segments
    /// behind that hold nothing else: they are obsolete at once, which matters on a full device.
    fn give_up(&self, active: &mut Active, end: LogPosition) {
        assert!(end.lsn > self.written_lsn(), "{end:?} is before a group that was written");
        (active.writer, active.end) = (None, end);
        let synced = self.synced_once.load(Ordering::Relaxed);
        let dead = {
            let mut ring = self.ring.lock();
            // A smaller group may find room where this one did not.
            ring.forget_group();
            ring.take_behind(end.segment)
        };
        // What a sync that runs now has of them does no harm.
        self.sync.lock().dirty.retain(|&(number, _)| number <= end.segment);
        for info in dead {
            if !self.ring.lock().keep(info, synced) {
                self.delete(info.number);
            }
        }
    }

    /// Makes the ready segment the active one, waiting until there is one. The first segment of an
    /// opening is prepared here, without a look at the space, unless it takes a cell.
    fn next_segment<'a>(&self, active: &'a mut Active) -> Result<&'a mut SegmentWriter> {
        if !active.begun && self.ring.lock().prepares_first() {
            match self.prepare_missing() {
                // A worker gives back what can be given before anything is refused (H18).
                Err(error) if error.kind() == ErrorKind::NoSpace => {}
                prepared => prepared.map_err(poisoning)?,
            }
        }
        let Ready { info, region } = self.take_ready()?;
        self.requested.store(false, Ordering::Relaxed);
        let next = SegmentWriter::start(
            Arc::clone(&region),
            self.options.identity(info.number),
            active.chain(),
            self.durable_lsn(),
        );
        self.ring.lock().push_live(info);
        let next = match next {
            Ok(next) => next,
            Err(error) => {
                // An unknown part of the `SegmentStart` is on disk, so the new segment is not used.
                // If all of it is, replay leaves the active segment here: a later group in there
                // would be lost.
                active.writer.iter_mut().for_each(SegmentWriter::seal);
                return Err(error);
            }
        };
        let mut sync = self.sync.lock();
        let newest = sync.dirty.last().map_or(SegmentNumber::ZERO, |(number, _)| *number);
        assert!(newest < info.number, "segment {} is synced before {newest}", info.number);
        sync.dirty.push((info.number, region));
        sync.started += 1;
        drop(sync);
        self.appended_bytes.fetch_add(active.take_appended_bytes(), Ordering::Relaxed);
        (active.begun, active.zeroed) = (true, info.zeroed);
        Ok(active.writer.insert(next))
    }

    /// Takes the ready segment, waiting until there is one.
    fn take_ready(&self) -> Result<Ready> {
        let mut ring = self.ring.lock();
        ring.failed = None;
        loop {
            if let Some(ready) = ring.ready.take() {
                return Ok(ready);
            }
            if let Some(error) = ring.failed.take() {
                return Err(error);
            }
            if ring.closed {
                return Err(Error::new(ErrorKind::Closed, "the store is being closed"));
            }
            self.requested.store(true, Ordering::Relaxed);
            (self.request_segment)();
            self.ring_changed.wait(&mut ring);
        }
    }

    /// The segment that the appender has requested and that is still missing.
    pub(crate) fn requested_segment(&self) -> Option<SegmentRequest> {
        if !self.requested.load(Ordering::Relaxed) {
            return None;
        }
        self.missing_segment()
    }

    /// The missing segment, whether or not the appender has requested it.
    pub(crate) fn missing_segment(&self) -> Option<SegmentRequest> {
        self.ring.lock().missing(self.synced_once.load(Ordering::Relaxed))
    }

    /// Prepares the next segment if it is missing, whether or not the appender has requested it.
    pub(super) fn prepare_missing(&self) -> Result<()> {
        while let Some(request) = self.missing_segment() {
            if self.prepare(request)? {
                break;
            }
        }
        Ok(())
    }

    /// Lets the next segment be a step larger than the last one had to be.
    pub(crate) fn raise_limit(&self) {
        self.ring.lock().raise_limit();
    }

    /// Makes the next segment smaller than it would be, where space is short; false if it is small
    /// already.
    pub(crate) fn lower_limit(&self) -> bool {
        self.ring.lock().lower_limit(self.synced_once.load(Ordering::Relaxed))
    }

    /// The need of the next segment; its `carried_bytes` include the room of the active one.
    pub(crate) fn next_segment_need(&self) -> SegmentNeed {
        let need = self.ring.lock().next_need(self.synced_once.load(Ordering::Relaxed));
        let rest = self.room.load(Ordering::Relaxed);
        SegmentNeed { carried_bytes: need.carried_bytes.saturating_add(rest), ..need }
    }

    /// Prepares the [requested](Self::requested_segment) segment: recycles an obsolete one or
    /// creates one. Called off the write path. `false`, and nothing is prepared, if the request has
    /// become stale since its space was checked.
    ///
    /// # Errors
    /// The device's; a waiting appender gets the same error.
    pub(crate) fn prepare(&self, request: SegmentRequest) -> Result<bool> {
        let synced = self.synced_once.load(Ordering::Relaxed);
        let Some(Preparation { unfit, spare, info }) = self.ring.lock().begin(synced, request)
        else {
            return Ok(false);
        };
        let make = || {
            unfit.into_iter().for_each(|number| self.delete(number));
            let SegmentInfo { number, bytes, zeroed } = info;
            if let Some(old) = spare {
                return self.recycle(old.number, number).map(|region| (info, region));
            }
            let region = match zeroed {
                true => self.storage.create_log(LogKind::Wal, number, bytes)?,
                false => self.storage.reserve_log(LogKind::Wal, number, bytes)?,
            };
            Ok((SegmentInfo { bytes: region.capacity()?, ..info }, region))
        };
        let made = sched::catch_panic("the preparation of a log segment", make);
        let mut ring = self.ring.lock();
        let ready = made.map(|(info, region)| Ready { info, region });
        let result = ready.as_ref().map(|_| true).map_err(Error::clone);
        ring.end(ready);
        drop(ring);
        self.ring_changed.notify_all();
        result
    }

    /// Deletes the spares but the one that is recycled next, where space is short; whether there
    /// were any.
    pub(crate) fn delete_spares(&self) -> bool {
        let synced = self.synced_once.load(Ordering::Relaxed);
        let surplus = self.ring.lock().surplus(synced);
        surplus.iter().for_each(|info| self.delete(info.number));
        !surplus.is_empty()
    }

    /// Deletes an obsolete segment, best effort.
    fn delete(&self, number: SegmentNumber) {
        let reason = "recovery removes logs that no keyspace needs";
        self.storage.remove_log(LogKind::Wal, number).ignore_error(reason);
    }

    /// Renames the obsolete segment `old` to `number`. On an error the segment is deleted (best
    /// effort), so that it does not leak space.
    fn recycle(&self, old: SegmentNumber, number: SegmentNumber) -> Result<Arc<dyn LogRegion>> {
        assert!(old < number, "segment {old} is recycled as {number}");
        let recycled = self.storage.recycle_log(LogKind::Wal, old, number);
        // It has either of the two numbers.
        recycled.inspect_err(|_| [old, number].into_iter().for_each(|gone| self.delete(gone)))
    }

    /// Fails the appender that waits for the requested segment with `error`. `false`, and the
    /// appender goes on, if the request is stale: the segment is being prepared, or has been.
    pub(crate) fn refuse_segment(&self, request: SegmentRequest, error: &Error) -> bool {
        let mut ring = self.ring.lock();
        let in_time = ring.missing(self.synced_once.load(Ordering::Relaxed)) == Some(request);
        if in_time {
            ring.failed = Some(error.clone());
        }
        drop(ring);
        self.ring_changed.notify_all();
        in_time
    }

    /// Settles everything written so far, because it is about to be synced: the next group starts
    /// in a new 4 KiB unit (H37). Returns the LSN to sync up to, and the position of the next
    /// group, which may be recorded once that LSN is durable.
    ///
    /// Requires: the caller leads the commit queue.
    ///
    /// # Errors
    /// `Poisoned` if groups that were held could not be written; final.
    pub(crate) fn settle(&self) -> Result<(Lsn, LogPosition)> {
        let (settled, full) = {
            let active = self.active.lock();
            (active.is_settled(), active.room() == 0)
        };
        if !settled && full {
            self.write_out()?;
        } else if !settled {
            let padded = self.append_group(&[&[]], 0, AckedWhen::Synced).map(|_| ());
            // Unless it was to take held groups along, the segment is sealed then, which settles
            // its groups too: nothing is written to the unit any more.
            if let Err(error) = padded
                && self.active.lock().has_lost_groups()
            {
                return Err(error);
            }
        }
        let active = self.active.lock();
        let lsn = self.written_lsn();
        self.set_settled(lsn.get());
        let position = active.position();
        assert!(position.lsn > lsn, "group {lsn} is written, the next one is {}", position.lsn);
        Ok((lsn, position))
    }

    /// Makes the log durable up to `lsn`.
    ///
    /// Requires: `lsn` is settled: its group was appended with `sync`, or by
    /// [`settle`](Self::settle).
    ///
    /// # Errors
    /// The device's, or `Poisoned` if `lsn` is not settled; final (invariant 3): the caller poisons
    /// the store.
    pub(crate) fn sync_to(&self, lsn: Lsn) -> Result<()> {
        if self.durable_lsn() >= lsn {
            return Ok(());
        }
        self.sync_until(lsn, false)
    }

    /// Makes the log durable up to `lsn` and the starts of all segments, so that a position in the
    /// log may be recorded in an edit: a segment without groups has no LSN of its own, so
    /// recovery could not tell that its start is missing.
    ///
    /// # Errors
    /// As [`sync_to`](Self::sync_to).
    pub(crate) fn sync_position(&self, lsn: Lsn) -> Result<()> {
        self.sync_until(lsn, true)
    }

    fn sync_until(&self, lsn: Lsn, starts: bool) -> Result<()> {
        let mut state = self.sync.lock();
        let starts_needed = if starts { state.started } else { 0 };
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if self.durable_lsn() >= lsn && state.starts_synced >= starts_needed {
                return Ok(());
            }
            if !state.running {
                break;
            }
            self.synced.wait(&mut state);
        }
        // Every group up to the target is in a segment that is in `dirty` by now.
        let target = self.settled_lsn();
        if target < lsn {
            let what = format!("group {lsn} is to be durable, but only {target} is settled: a bug");
            let error = Error::new(ErrorKind::Poisoned, what);
            state.failed = Some(error.clone());
            return Err(error);
        }
        state.running = true;
        let dirty = state.dirty.clone();
        let started = state.started;
        drop(state);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let sync_all = || dirty.iter().try_for_each(|(_, region)| region.sync());
        // Other threads wait for the end of this sync, so a panic must not skip it.
        let result = sched::catch_panic("a sync of the log", sync_all);
        let mut state = self.sync.lock();
        assert!(state.running, "a sync ends that has not begun");
        state.running = false;
        match &result {
            Ok(()) => {
                // The newest of the synced segments may have grown since: it stays.
                let newest = dirty.last().map_or(SegmentNumber::ZERO, |(number, _)| *number);
                state.dirty.retain(|(number, _)| *number >= newest);
                state.starts_synced = state.starts_synced.max(started);
                let durable = self.durable_lsn();
                assert!(durable <= target, "group {durable} is durable, only {target} is settled");
                self.durable_lsn.fetch_max(target.get(), Ordering::AcqRel);
            }
            Err(error) => state.failed = Some(error.clone()),
        }
        drop(state);
        self.synced.notify_all();
        result
    }

    /// Largest LSN that was written or is held.
    pub(crate) fn written_lsn(&self) -> Lsn {
        Lsn::new(self.written_lsn.load(Ordering::Acquire))
    }

    /// Largest LSN that a sync can make durable (invariant 6): at least that of every position that
    /// [`settle`](Self::settle) has returned.
    pub(crate) fn settled_lsn(&self) -> Lsn {
        Lsn::new(self.settled_lsn.load(Ordering::Acquire))
    }

    /// Largest LSN that is known to be durable.
    pub(crate) fn durable_lsn(&self) -> Lsn {
        Lsn::new(self.durable_lsn.load(Ordering::Acquire))
    }

    /// Makes the segments before `segment` reusable.
    ///
    /// Requires: the durable log start of every keyspace is in `segment` or later.
    pub(crate) fn release_before(&self, segment: SegmentNumber) {
        let released = self.ring.lock().release_before(segment);
        if released.is_empty() {
            return;
        }
        // Their entries are in durable tables: they need no sync.
        let last = released.last().map_or(SegmentNumber::ZERO, |info| info.number);
        assert!(last < segment, "segment {last} is released, the log starts in {segment}");
        self.sync.lock().dirty.retain(|&(number, _)| number > last);
        let synced = self.synced_once.load(Ordering::Relaxed);
        for info in released {
            if !self.ring.lock().keep(info, synced) {
                self.delete(info.number);
            }
        }
    }

    /// Fails appenders that wait for a segment: no more segments are prepared.
    pub(crate) fn close(&self) {
        self.ring.lock().closed = true;
        self.ring_changed.notify_all();
    }

    /// Whether a sync has failed: nothing becomes durable afterwards (invariant 3).
    pub(crate) fn is_failed(&self) -> bool {
        self.sync.lock().failed.is_some()
    }

    /// Bytes appended since the start, padding not counted.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended_bytes.load(Ordering::Relaxed)
    }

    /// How often the log was synced since the start.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Live segments, ascending; the last one is active, if this opening has written anything.
    pub(crate) fn live_segments(&self) -> Vec<SegmentNumber> {
        self.ring.lock().live.iter().map(|info| info.number).collect()
    }

    /// Segments without live groups: the ready one and the spares; ascending.
    pub(crate) fn spare_segments(&self) -> Vec<SegmentNumber> {
        self.ring.lock().spare_numbers()
    }

    /// Bytes of the live segments on the device.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.ring.lock().live.iter().map(|info| info.bytes).sum()
    }

    /// Bytes of the live segments from `start` on, without the active one.
    pub(crate) fn bytes_behind(&self, start: LogPosition) -> u64 {
        self.ring.lock().bytes_behind(start)
    }

    /// Ends the log of a store that is being closed: a last, empty group carries the durable LSN,
    /// so that damage to an earlier one is not taken for the log's end. Appends nothing if this
    /// opening has not written to the log, or its area is full.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn finish(&self) -> Result<()> {
        if !self.active.lock().begun {
            return Ok(());
        }
        self.sync_to(self.settle()?.0)?;
        let is_full = self.active.lock().room() == 0;
        match if is_full { self.prepare_missing() } else { Ok(()) } {
            Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(()),
            prepared => prepared?,
        }
        let lsn = self.append(&[&[]], 0, AckedWhen::Synced)?;
        self.sync_to(lsn)
    }
}
