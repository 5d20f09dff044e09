//! The write-ahead log of a running store: a ring of segments with one appender.
//!
//! The first group of an opening makes the first segment, a small one: an opening that nothing is
//! written to leaves the log as it found it. The next segments are created off the write path by
//! [`Wal::prepare`], each a step larger (`ring`); the appender only takes the one that is ready.
//!
//! Where writers sync, segments are files of their own zeros, synced before they are taken: a sync
//! then finds nothing but the blocks of its groups and is one flush of the device (H36). Where
//! nobody syncs, space is only reserved. Obsolete segments are recycled: their pages are in the
//! page cache already, and a write finds them in half the time that a new one takes. Not here:
//! framing (`writer`), replay (`replay`).
//!
//! Invariants:
//! 1. One caller appends at a time (the leader of the commit queue).
//! 2. A sync makes every older segment durable before it acknowledges anything in a younger one
//!    (docs/hazards.md, bug 23).
//! 3. A failed sync is final: every later sync fails with the same error (H43).
//! 4. A failed write seals its segment at the last good group; the next segment names that group as
//!    its predecessor, so that whatever the device kept of the failed one is never replayed.
//! 5. A segment number is never used twice; a segment is reused, under a new number, only when the
//!    durable log start of every keyspace has passed it (H35).
//! 6. Only a *settled* group is called durable: one whose last 4 KiB unit is not written again,
//!    since a write into a unit may tear what it held (H37). A position that is recorded elsewhere
//!    is one behind a settled group ([`Wal::settle`]), so that what a flush relies on (H52) stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::ids::{Lineage, Lsn, SegmentNumber};
use crate::base::sched::{self, Condvar, Mutex};
use crate::log::ring::{Area, Preparation, Ready, Ring, SegmentNeed, Wanted};
use crate::log::{GroupLink, GroupType, LogPosition, Room, SegmentIdentity, SegmentWriter};
use crate::storage::{LogKind, LogRegion, Storage};

/// How the log is laid out.
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
        }
    }
}

/// Called when the appender needs a segment that is not ready.
pub(crate) type WantSegment = Box<dyn Fn() + Send + Sync>;

/// The error of a leader for what would poison the store in a background thread: a failed sync.
fn as_verdict(error: Error) -> Error {
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
    /// Largest LSN that was written to a segment.
    written_lsn: AtomicU64,
    /// Largest LSN whose unit of 4 KiB is not written again; at most `written_lsn`.
    settled_lsn: AtomicU64,
    /// Largest LSN that is known to be durable; at most `settled_lsn`.
    durable_lsn: AtomicU64,
    appended_bytes: AtomicU64,
    /// Bytes that fit the active segment yet. A copy for those who may not wait for `active`, which
    /// is held while somebody waits for a segment.
    room: AtomicU64,
    /// Whether the next segment should be prepared by now.
    wanted: AtomicBool,
    /// Whether a writer has asked for a sync: segments are zeroed from then on, and of the recycled
    /// ones only those that were.
    synced_once: AtomicBool,
    want_segment: WantSegment,
}

/// Where the next group goes.
struct Active {
    /// Where the log ended when it was opened.
    found: LogPosition,
    /// `None` before the first group of this opening.
    writer: Option<SegmentWriter>,
    /// Whether the writer's segment was zeroed.
    zeroed: bool,
}

impl Active {
    /// As [`SegmentWriter::room`].
    fn room(&self) -> u64 {
        self.writer.as_ref().map_or(0, SegmentWriter::room)
    }

    fn chain(&self) -> GroupLink {
        self.writer.as_ref().map_or(self.found.chain(), SegmentWriter::chain)
    }

    /// Where the next group starts, or the segment that it starts in is found from.
    fn position(&self) -> LogPosition {
        self.writer.as_ref().map_or(self.found, SegmentWriter::position)
    }

    /// As [`SegmentWriter::is_settled`]. What an opening found is not written to again.
    fn is_settled(&self) -> bool {
        self.writer.as_ref().is_none_or(SegmentWriter::is_settled)
    }

    /// The segment and the unit in it that the next group starts in.
    fn unit(&self) -> (SegmentNumber, u64) {
        self.writer
            .as_ref()
            .map_or((SegmentNumber::ZERO, 0), |writer| (writer.segment(), writer.unit()))
    }

    /// Whether the next segment should be prepared: from a quarter of a segment on, so that a store
    /// which is opened for a few writes prepares none.
    fn is_filling(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.room() < 3 * writer.bytes())
    }

    fn take_appended_bytes(&mut self) -> u64 {
        self.writer.as_mut().map_or(0, SegmentWriter::take_appended_bytes)
    }
}

#[derive(Default)]
struct SyncState {
    running: bool,
    /// Segments with groups that were not synced since, oldest first; the last is active.
    dirty: Vec<(SegmentNumber, Arc<dyn LogRegion>)>,
    /// Segments started so far, and how many of their starts are durable.
    started: u64,
    starts_synced: u64,
    failed: Option<Error>,
}

impl Wal {
    /// Starts the log of an opened store behind `found`, where its replay ended. `live` are the
    /// segments that the keyspaces still need; `next_number` is above every number ever used.
    /// Writes nothing.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn start(
        storage: Arc<dyn Storage>,
        options: WalOptions,
        live: &[SegmentNumber],
        next_number: SegmentNumber,
        found: LogPosition,
        want_segment: WantSegment,
    ) -> Result<Self> {
        let area = |&number: &SegmentNumber| -> Result<Area> {
            let bytes = storage.open_log(LogKind::Wal, number)?.capacity()?;
            // Nobody knows how it was made.
            Ok(Area { number, bytes, zeroed: false })
        };
        let live = live.iter().map(area).collect::<Result<_>>()?;
        // What was replayed was synced before the log was started; nobody writes there again.
        let last_lsn = found.chain().lsn.get();
        Ok(Self {
            storage,
            options,
            active: Mutex::new(Active { found, writer: None, zeroed: false }),
            ring: Mutex::new(Ring::new(live, next_number, options.segment_bytes)),
            ring_changed: Condvar::new(),
            sync: Mutex::default(),
            synced: Condvar::new(),
            written_lsn: AtomicU64::new(last_lsn),
            settled_lsn: AtomicU64::new(last_lsn),
            durable_lsn: AtomicU64::new(last_lsn),
            appended_bytes: AtomicU64::new(0),
            room: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            synced_once: AtomicBool::new(false),
            want_segment,
        })
    }

    /// Appends one group; its log sequence number. `sync`: it will be synced, so the next group
    /// starts on a fresh 4 KiB unit (H37).
    ///
    /// Requires: the caller leads the commit queue.
    ///
    /// # Errors
    /// The device's; the group is not in the log then, whatever the device kept of it. `NoSpace` if
    /// no segment could be prepared.
    pub(crate) fn append(&self, parts: &[&[u8]], count: u32, sync: bool) -> Result<Lsn> {
        if sync && !self.synced_once.load(Ordering::Relaxed) {
            self.synced_once.store(true, Ordering::Relaxed);
            // What is ready may not be what is wanted now.
            self.wanted.store(false, Ordering::Relaxed);
        }
        self.append_group(parts, count, sync)
    }

    fn append_group(&self, parts: &[&[u8]], count: u32, pad: bool) -> Result<Lsn> {
        let bytes: usize = parts.iter().map(|p| p.len()).sum();
        let mut active = self.active.lock();
        let before = active.unit();
        let room = active.room();
        let synced = pad && self.synced_once.load(Ordering::Relaxed);
        // A sync in a segment that is not zeroed needs metadata: it is left as soon as possible.
        let leaves = synced && !active.zeroed && self.ring.lock().has_zeroed();
        let lsn = match &mut active.writer {
            Some(writer) if room > 0 && room >= bytes as u64 && !leaves => {
                writer.append(GroupType::Full, parts, count, pad, self.durable_lsn())?
            }
            _ => self.append_in_next(&mut active, parts, bytes as u64, count, pad)?,
        };
        let previous = self.written_lsn.load(Ordering::Relaxed);
        self.written_lsn.store(lsn.get(), Ordering::Release);
        if active.is_settled() {
            self.settled_lsn.store(lsn.get(), Ordering::Release);
        } else if active.unit() != before {
            // The groups before this one end where it started, or in an earlier segment.
            self.settled_lsn.store(previous, Ordering::Release);
        }
        self.room.store(active.room(), Ordering::Relaxed);
        let due = active.is_filling() || synced && !active.zeroed;
        if due && !self.wanted.swap(true, Ordering::Relaxed) {
            (self.want_segment)();
        }
        // Under the lock of the active segment, as all that is stored here.
        let appended = self.appended_bytes.load(Ordering::Relaxed) + active.take_appended_bytes();
        self.appended_bytes.store(appended, Ordering::Relaxed);
        Ok(lsn)
    }

    /// Appends a group that does not fit the active segment: in the next one or, if it is larger
    /// than a segment, in fragments over several.
    fn append_in_next(
        &self,
        active: &mut Active,
        parts: &[&[u8]],
        bytes: u64,
        count: u32,
        pad: bool,
    ) -> Result<Lsn> {
        let durable = self.durable_lsn();
        {
            let mut ring = self.ring.lock();
            ring.group_bytes = ring.group_bytes.max(bytes);
        }
        // Nothing more goes there.
        self.room.store(0, Ordering::Relaxed);
        let writer = self.next_segment(active)?;
        if bytes <= writer.room() {
            return writer.append(GroupType::Full, parts, count, pad, durable);
        }
        let whole: Vec<u8> = parts.concat();
        let mut rest = whole.as_slice();
        let mut lsn = Lsn::ZERO;
        let mut ty = GroupType::First;
        while !rest.is_empty() {
            let writer = match &mut active.writer {
                Some(writer) if ty == GroupType::First => writer,
                _ => self.next_segment(active)?,
            };
            let (piece, tail) = rest.split_at(rest.len().min(writer.room() as usize));
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

    /// Makes the prepared segment the active one; waits for it if need be. The first one of an
    /// opening is prepared here.
    fn next_segment<'a>(&self, active: &'a mut Active) -> Result<&'a mut SegmentWriter> {
        if active.writer.is_none() && self.ring.lock().lacks_ready(false) {
            self.prepare_lacking().map_err(as_verdict)?;
        }
        let Ready { area, recycled, region } = self.take_ready()?;
        self.wanted.store(false, Ordering::Relaxed);
        let next = SegmentWriter::start(
            Arc::clone(&region),
            self.options.identity(area.number),
            Room { bytes: area.bytes, recycled },
            active.chain(),
            self.durable_lsn(),
        );
        self.ring.lock().live.push_back(area);
        let next = match next {
            Ok(next) => next,
            Err(error) => {
                // The segment holds an unknown piece of its first group: it is not used again. If
                // all of it is there, it ends the active segment here: a group that still fits
                // there would be lost at replay.
                active.writer.iter_mut().for_each(SegmentWriter::seal);
                return Err(error);
            }
        };
        let mut sync = self.sync.lock();
        sync.dirty.push((area.number, region));
        sync.started += 1;
        drop(sync);
        self.appended_bytes.fetch_add(active.take_appended_bytes(), Ordering::Relaxed);
        active.zeroed = area.zeroed;
        Ok(active.writer.insert(next))
    }

    /// The prepared segment; waits for it if need be.
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
            self.wanted.store(true, Ordering::Relaxed);
            (self.want_segment)();
            self.ring_changed.wait(&mut ring);
        }
    }

    /// The segment that should be prepared, if one should.
    pub(crate) fn wanted_segment(&self) -> Option<Wanted> {
        if !self.wanted.load(Ordering::Relaxed) {
            return None;
        }
        self.lacking_segment()
    }

    /// The same, whether or not an appender has asked for it.
    pub(crate) fn lacking_segment(&self) -> Option<Wanted> {
        self.ring.lock().lacking(self.synced_once.load(Ordering::Relaxed))
    }

    /// Prepares the next segment if it is not, whether or not an appender has asked for it.
    pub(super) fn prepare_lacking(&self) -> Result<()> {
        while let Some(wanted) = self.lacking_segment() {
            if self.prepare(wanted)? {
                break;
            }
        }
        Ok(())
    }

    /// What the next segment takes, and what it and the rest of the active one bring.
    pub(crate) fn next_segment_need(&self) -> SegmentNeed {
        let need = self.ring.lock().next_need(self.synced_once.load(Ordering::Relaxed));
        let rest = self.room.load(Ordering::Relaxed);
        SegmentNeed { carried_bytes: need.carried_bytes.saturating_add(rest), ..need }
    }

    /// Prepares a segment that was [wanted](Self::wanted_segment), unless somebody else did:
    /// recycles an obsolete one or creates one. Called off the write path. Who weighs what it needs
    /// may be late, and must prepare neither the one after it nor one that needs more. Whether
    /// there was something to do.
    ///
    /// # Errors
    /// The device's; a waiting appender gets the same error.
    pub(crate) fn prepare(&self, wanted: Wanted) -> Result<bool> {
        let synced = self.synced_once.load(Ordering::Relaxed);
        let Some(Preparation { unfit, spare, area }) = self.ring.lock().begin(synced, wanted)
        else {
            return Ok(false);
        };
        let make = || {
            unfit.into_iter().for_each(|number| self.delete(number));
            let Area { number, bytes, zeroed } = area;
            if let Some(old) = spare {
                return self.recycle(old.number, number).map(|region| (area, region));
            }
            let region = match zeroed {
                true => self.storage.create_log(LogKind::Wal, number, bytes)?,
                false => self.storage.reserve_log(LogKind::Wal, number, bytes)?,
            };
            Ok((Area { bytes: region.capacity()?, ..area }, region))
        };
        let made = sched::catch_panic("the preparation of a log segment", make);
        let mut ring = self.ring.lock();
        ring.preparing = false;
        let result = match made {
            Ok((area, region)) => {
                ring.ready = Some(Ready { area, recycled: spare.is_some(), region });
                Ok(true)
            }
            Err(error) => {
                ring.failed = Some(error.clone());
                Err(error)
            }
        };
        drop(ring);
        self.ring_changed.notify_all();
        result
    }

    /// Removes the obsolete segments that are not recycled next, where space is short; whether
    /// there were some.
    pub(crate) fn give_up_spares(&self) -> bool {
        let synced = self.synced_once.load(Ordering::Relaxed);
        let surplus = self.ring.lock().surplus(synced);
        surplus.iter().for_each(|area| self.delete(area.number));
        !surplus.is_empty()
    }

    /// Deletes a segment that nothing needs, best effort.
    fn delete(&self, number: SegmentNumber) {
        let reason = "recovery removes logs that no keyspace needs";
        self.storage.remove_log(LogKind::Wal, number).ignore_error(reason);
    }

    /// Gives the obsolete segment `old` the number `number`. On an error the segment is deleted
    /// (best effort), so that it does not leak space.
    fn recycle(&self, old: SegmentNumber, number: SegmentNumber) -> Result<Arc<dyn LogRegion>> {
        let recycled = self.storage.recycle_log(LogKind::Wal, old, number);
        // It has one of the two numbers.
        recycled.inspect_err(|_| [old, number].into_iter().for_each(|gone| self.delete(gone)))
    }

    /// Tells an appender that waits for a segment that it will not be prepared now. Whether that
    /// was in time: not if somebody prepares it, or has.
    pub(crate) fn refuse_segment(&self, wanted: Wanted, error: &Error) -> bool {
        let mut ring = self.ring.lock();
        let in_time = ring.lacking(self.synced_once.load(Ordering::Relaxed)) == Some(wanted);
        if in_time {
            ring.failed = Some(error.clone());
        }
        drop(ring);
        self.ring_changed.notify_all();
        in_time
    }

    /// Starts the next group on a fresh 4 KiB unit whatever the last one was, because what is
    /// written now is about to be synced (H37). The LSN to be synced up to, and the position of the
    /// next group: it may be recorded once that is durable.
    ///
    /// Requires: the caller leads the commit queue.
    pub(crate) fn settle(&self) -> (Lsn, LogPosition) {
        let settled = self.active.lock().is_settled();
        if !settled {
            // A write that fails seals its segment: nothing is written to the unit then either.
            self.append_group(&[&[]], 0, true)
                .map(|_| ())
                .ignore_error("the next group goes to another segment, or reports it");
        }
        let active = self.active.lock();
        let lsn = self.written_lsn();
        self.settled_lsn.store(lsn.get(), Ordering::Release);
        (lsn, active.position())
    }

    /// Makes the log durable up to `lsn`.
    ///
    /// Requires: `lsn` is settled: its group was appended to be synced, or by
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

    /// Makes the log durable up to `lsn`, and the starts of all segments with it, so that a
    /// position in the log may be recorded elsewhere: a segment that holds nothing but its start
    /// has no LSN of its own, and a recovery that does not find it goes on without it.
    ///
    /// # Errors
    /// As [`sync_to`](Self::sync_to).
    pub(crate) fn sync_position(&self, lsn: Lsn) -> Result<()> {
        self.sync_until(lsn, true)
    }

    fn sync_until(&self, lsn: Lsn, starts: bool) -> Result<()> {
        let mut state = self.sync.lock();
        let starts_wanted = if starts { state.started } else { 0 };
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if self.durable_lsn() >= lsn && state.starts_synced >= starts_wanted {
                return Ok(());
            }
            if !state.running {
                break;
            }
            self.synced.wait(&mut state);
        }
        // Everything up to here was written to a segment that is in the list by now.
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
        let sync_all = || dirty.iter().try_for_each(|(_, region)| region.sync());
        // Others wait for the end of this sync, whatever it is.
        let result = sched::catch_panic("a sync of the log", sync_all);
        let mut state = self.sync.lock();
        state.running = false;
        match &result {
            Ok(()) => {
                // The newest of the synced segments may have been appended to since: it stays.
                let newest = dirty.last().map_or(SegmentNumber::ZERO, |(number, _)| *number);
                state.dirty.retain(|(number, _)| *number >= newest);
                state.starts_synced = state.starts_synced.max(started);
                self.durable_lsn.fetch_max(target.get(), Ordering::AcqRel);
            }
            Err(error) => state.failed = Some(error.clone()),
        }
        drop(state);
        self.synced.notify_all();
        result
    }

    /// Largest LSN that was written.
    pub(crate) fn written_lsn(&self) -> Lsn {
        Lsn::new(self.written_lsn.load(Ordering::Acquire))
    }

    /// Largest LSN that a sync can make durable (invariant 6): at least that of every position
    /// taken so far.
    pub(crate) fn settled_lsn(&self) -> Lsn {
        Lsn::new(self.settled_lsn.load(Ordering::Acquire))
    }

    /// Largest LSN that is known to be durable.
    pub(crate) fn durable_lsn(&self) -> Lsn {
        Lsn::new(self.durable_lsn.load(Ordering::Acquire))
    }

    /// Makes segments before `segment` reusable: the durable log start of every keyspace is there
    /// or later.
    pub(crate) fn release_before(&self, segment: SegmentNumber) {
        let released = self.ring.lock().release_before(segment);
        if released.is_empty() {
            return;
        }
        // What they held is in durable tables: nobody waits for their sync any more.
        let last = released.last().map_or(SegmentNumber::ZERO, |area| area.number);
        self.sync.lock().dirty.retain(|&(number, _)| number > last);
        let synced = self.synced_once.load(Ordering::Relaxed);
        for area in released {
            if !self.ring.lock().keep(area, synced) {
                self.delete(area.number);
            }
        }
    }

    /// Ends the waiting for segments: nobody prepares them any more.
    pub(crate) fn close(&self) {
        self.ring.lock().closed = true;
        self.ring_changed.notify_all();
    }

    /// Whether a sync has failed: nothing will be durable any more (invariant 3).
    pub(crate) fn is_failed(&self) -> bool {
        self.sync.lock().failed.is_some()
    }

    /// Bytes appended since the start, padding not counted.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended_bytes.load(Ordering::Relaxed)
    }

    /// Live segments, ascending; the last is active, if this opening has written anything.
    pub(crate) fn live_segments(&self) -> Vec<SegmentNumber> {
        self.ring.lock().live.iter().map(|area| area.number).collect()
    }

    /// Segments that hold nothing: ready for the appender, or kept to be recycled; ascending.
    pub(crate) fn spare_segments(&self) -> Vec<SegmentNumber> {
        self.ring.lock().spare_numbers()
    }

    /// Bytes that the live segments take on the device.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.ring.lock().live.iter().map(|area| area.bytes).sum()
    }

    /// Bytes of the segments from `start` on that are no longer written to.
    pub(crate) fn bytes_behind(&self, start: LogPosition) -> u64 {
        self.ring.lock().bytes_behind(start)
    }

    /// Ends the log of a store that is being closed: a last, empty group carries the durable LSN,
    /// so that damage to any earlier group is told from the end of the log. Nothing is added to a
    /// log that this opening has not written to.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn finish(&self) -> Result<()> {
        if self.active.lock().writer.is_none() {
            return Ok(());
        }
        self.sync_to(self.settle().0)?;
        if self.active.lock().room() == 0 {
            self.prepare_lacking()?;
        }
        let lsn = self.append(&[&[]], 0, true)?;
        self.sync_to(lsn)
    }
}
