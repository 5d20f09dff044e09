//! The write-ahead log of a running store: a ring of segments with one appender.
//!
//! Segments are created off the write path by [`Wal::prepare`]; the appender only takes the one
//! that is ready. Where writers sync they are zeroed, and recycled when they are obsolete (H36).
//! Where nobody does, an obsolete segment is removed and the next one is a new file: a small write
//! into a page of a recycled file that the page cache has dropped reads the page first. Not here:
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

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::sched::{self, Condvar, Mutex};
use crate::device::File;
use crate::log::{Chain, GroupType, LogPosition, SegmentIdentity, SegmentWriter};
use crate::storage::{LogKind, Storage};

/// Obsolete segments kept for reuse: one ready and one in hand cover a steady stream of writes.
const SPARE_MAX: usize = 2;

/// Bytes of the segment that an opening starts with, at most: it is zeroed and synced before the
/// first write can be taken, so it is small; the next ones are prepared in the background.
const FIRST_SEGMENT_BYTES_MAX: u64 = 4 << 20;

/// How the log is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalOptions {
    pub(crate) lineage: u64,
    pub(crate) epoch: u32,
    pub(crate) segment_bytes: u64,
}

impl WalOptions {
    fn identity(&self, segment: u64) -> SegmentIdentity {
        SegmentIdentity { kind: LogKind::Wal, segment, lineage: self.lineage, epoch: self.epoch }
    }
}

/// Called when the appender needs a segment that is not ready.
pub(crate) type WantSegment = Box<dyn Fn() + Send + Sync>;

/// The write-ahead log. Locks, in order: `active`, `ring`, `sync`.
pub(crate) struct Wal {
    storage: Arc<dyn Storage>,
    options: WalOptions,
    active: Mutex<SegmentWriter>,
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
    /// Whether the next segment should be prepared by now.
    wanted: AtomicBool,
    /// Whether a writer has asked for a sync: segments are zeroed and recycled from then on.
    synced_once: AtomicBool,
    want_segment: WantSegment,
}

struct Ring {
    /// Segments that a recovery would read, ascending; the last is active.
    live: VecDeque<u64>,
    /// Obsolete segments, to be recycled.
    spare: Vec<u64>,
    ready: Option<(u64, Arc<dyn File>)>,
    next_number: u64,
    preparing: bool,
    /// Why the last preparation failed.
    failed: Option<Error>,
    /// Nobody prepares segments any more.
    closed: bool,
}

#[derive(Default)]
struct SyncState {
    running: bool,
    /// Segments with groups that were not synced since, oldest first; the last is active.
    dirty: Vec<(u64, Arc<dyn File>)>,
    /// Segments started so far, and how many of their starts are durable.
    started: u64,
    starts_synced: u64,
    failed: Option<Error>,
}

impl Wal {
    /// Starts the log of an opened store after `chain`, in a fresh segment. `live` are the segments
    /// that the keyspaces still need; `next_number` is above every number ever used.
    ///
    /// # Errors
    /// The device's, with nothing appended.
    pub(crate) fn start(
        storage: Arc<dyn Storage>,
        options: WalOptions,
        live: Vec<u64>,
        next_number: u64,
        chain: Chain,
        want_segment: WantSegment,
    ) -> Result<Self> {
        let first_bytes = options.segment_bytes.min(FIRST_SEGMENT_BYTES_MAX);
        let file = storage.reserve_log(LogKind::Wal, next_number, first_bytes)?;
        let writer = SegmentWriter::start(
            Arc::clone(&file),
            options.identity(next_number),
            first_bytes,
            chain,
            chain.lsn,
        )?;
        let last_lsn = writer.chain().lsn;
        let mut live: VecDeque<u64> = live.into();
        live.push_back(next_number);
        Ok(Self {
            storage,
            options,
            active: Mutex::new(writer),
            ring: Mutex::new(Ring {
                live,
                spare: Vec::new(),
                ready: None,
                next_number: next_number + 1,
                preparing: false,
                failed: None,
                closed: false,
            }),
            ring_changed: Condvar::new(),
            sync: Mutex::new(SyncState {
                running: false,
                dirty: vec![(next_number, file)],
                started: 1,
                starts_synced: 0,
                failed: None,
            }),
            synced: Condvar::new(),
            written_lsn: AtomicU64::new(last_lsn),
            // What was replayed was synced before the log was started; nobody writes there again.
            settled_lsn: AtomicU64::new(chain.lsn),
            durable_lsn: AtomicU64::new(chain.lsn),
            appended_bytes: AtomicU64::new(0),
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
    pub(crate) fn append(&self, parts: &[&[u8]], count: u32, sync: bool) -> Result<u64> {
        if sync && !self.synced_once.load(Ordering::Relaxed) {
            self.synced_once.store(true, Ordering::Relaxed);
        }
        self.append_group(parts, count, sync)
    }

    fn append_group(&self, parts: &[&[u8]], count: u32, pad: bool) -> Result<u64> {
        let bytes: usize = parts.iter().map(|p| p.len()).sum();
        let mut active = self.active.lock();
        let before = (active.segment(), active.unit());
        let room = active.room();
        let lsn = if room == 0 || room < bytes as u64 {
            self.append_in_next(&mut active, parts, bytes as u64, count, pad)?
        } else {
            active.append(GroupType::Full, parts, count, pad, self.durable_lsn())?
        };
        let previous = self.written_lsn.swap(lsn, Ordering::AcqRel);
        if active.is_settled() {
            self.settled_lsn.store(lsn, Ordering::Release);
        } else if (active.segment(), active.unit()) != before {
            // The groups before this one end where it started, or in an earlier segment.
            self.settled_lsn.store(previous, Ordering::Release);
        }
        // From a quarter of a segment on, the next one is prepared: a store that is opened for a
        // few writes prepares none.
        if active.room() < 3 * active.bytes() && !self.wanted.swap(true, Ordering::Relaxed) {
            (self.want_segment)();
        }
        self.appended_bytes.fetch_add(active.take_appended_bytes(), Ordering::Relaxed);
        Ok(lsn)
    }

    /// Appends a group that does not fit the active segment: in the next one or, if it is larger
    /// than a segment, in fragments over several.
    fn append_in_next(
        &self,
        active: &mut SegmentWriter,
        parts: &[&[u8]],
        bytes: u64,
        count: u32,
        pad: bool,
    ) -> Result<u64> {
        self.next_segment(active)?;
        let durable = self.durable_lsn();
        if bytes <= active.room() {
            return active.append(GroupType::Full, parts, count, pad, durable);
        }
        let whole: Vec<u8> = parts.concat();
        let mut rest = whole.as_slice();
        let mut lsn = 0;
        let mut ty = GroupType::First;
        while !rest.is_empty() {
            if ty != GroupType::First {
                self.next_segment(active)?;
            }
            let (piece, tail) = rest.split_at(rest.len().min(active.room() as usize));
            rest = tail;
            if rest.is_empty() {
                ty = GroupType::Last;
            }
            // The entries are counted once, in the last fragment.
            let (count, pad) = if rest.is_empty() { (count, pad) } else { (0, false) };
            lsn = active.append(ty, &[piece], count, pad, durable)?;
            ty = GroupType::Middle;
        }
        Ok(lsn)
    }

    /// Makes the prepared segment the active one; waits for it if need be.
    fn next_segment(&self, active: &mut SegmentWriter) -> Result<()> {
        let (number, file) = {
            let mut ring = self.ring.lock();
            ring.failed = None;
            loop {
                if let Some(ready) = ring.ready.take() {
                    break ready;
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
        };
        self.wanted.store(false, Ordering::Relaxed);
        let next = SegmentWriter::start(
            Arc::clone(&file),
            self.options.identity(number),
            self.options.segment_bytes,
            active.chain(),
            self.durable_lsn(),
        );
        let next = match next {
            Ok(next) => next,
            Err(error) => {
                // The segment holds an unknown piece of its first group: it is not used again. If
                // all of it is there, it ends the active segment here: a group that still fits
                // there would be lost at replay.
                active.seal();
                self.ring.lock().live.push_back(number);
                return Err(error);
            }
        };
        self.ring.lock().live.push_back(number);
        let mut sync = self.sync.lock();
        sync.dirty.push((number, file));
        sync.started += 1;
        drop(sync);
        self.appended_bytes.fetch_add(active.take_appended_bytes(), Ordering::Relaxed);
        *active = next;
        Ok(())
    }

    /// Whether a segment should be prepared.
    pub(crate) fn wants_segment(&self) -> bool {
        if !self.wanted.load(Ordering::Relaxed) {
            return false;
        }
        let ring = self.ring.lock();
        ring.ready.is_none() && !ring.preparing
    }

    /// Prepares the next segment: recycles an obsolete one or creates one. Called off the write
    /// path.
    ///
    /// # Errors
    /// The device's; a waiting appender gets the same error.
    pub(crate) fn prepare(&self) -> Result<()> {
        let (number, spare) = {
            let mut ring = self.ring.lock();
            if ring.ready.is_some() || ring.preparing {
                return Ok(());
            }
            ring.preparing = true;
            ring.next_number += 1;
            (ring.next_number - 1, ring.spare.pop())
        };
        let make = || match spare {
            Some(old) => self.recycle(old, number),
            // Zeros cost a write of the whole segment and save metadata at every sync (H36).
            None if self.synced_once.load(Ordering::Relaxed) => {
                self.storage.create_log(LogKind::Wal, number, self.options.segment_bytes)
            }
            None => self.storage.reserve_log(LogKind::Wal, number, self.options.segment_bytes),
        };
        let made = sched::catch_panic("the preparation of a log segment", make);
        let mut ring = self.ring.lock();
        ring.preparing = false;
        let result = match made {
            Ok(file) => {
                ring.ready = Some((number, file));
                Ok(())
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

    /// Gives the obsolete segment `old` the number `number` and its full size. On an error it does
    /// not stay and take space, as far as the device lets go of it.
    fn recycle(&self, old: u64, number: u64) -> Result<Arc<dyn File>> {
        let let_go = |gone: u64| {
            let reason = "the next opening removes it";
            self.storage.remove_log(LogKind::Wal, gone).ignore_error(reason);
        };
        let recycled = self.storage.recycle_log(LogKind::Wal, old, number);
        // It has one of the two numbers.
        let file = recycled.inspect_err(|_| [old, number].into_iter().for_each(let_go))?;
        // A segment of another size, such as the first one of an opening, is extended.
        let extend = || -> Result<()> {
            let known = Error::leaving_nothing_unknown;
            if file.len().map_err(known)? < self.options.segment_bytes {
                file.allocate(self.options.segment_bytes).map_err(known)?;
                file.sync()?;
            }
            Ok(())
        };
        extend().inspect_err(|_| let_go(number))?;
        Ok(file)
    }

    /// Tells an appender that waits for a segment that none will be prepared now.
    pub(crate) fn refuse_segment(&self, error: &Error) {
        self.ring.lock().failed = Some(error.clone());
        self.ring_changed.notify_all();
    }

    /// Starts the next group on a fresh 4 KiB unit whatever the last one was, because what is
    /// written now is about to be synced (H37). The LSN to be synced up to, and the position of the
    /// next group: it may be recorded once that is durable.
    ///
    /// Requires: the caller leads the commit queue.
    pub(crate) fn settle(&self) -> (u64, LogPosition) {
        let settled = self.active.lock().is_settled();
        if !settled {
            // A write that fails seals its segment: nothing is written to the unit then either.
            self.append_group(&[&[]], 0, true)
                .map(|_| ())
                .ignore_error("the next group goes to another segment, or reports it");
        }
        let active = self.active.lock();
        let lsn = self.written_lsn();
        self.settled_lsn.store(lsn, Ordering::Release);
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
    pub(crate) fn sync_to(&self, lsn: u64) -> Result<()> {
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
    pub(crate) fn sync_position(&self, lsn: u64) -> Result<()> {
        self.sync_until(lsn, true)
    }

    fn sync_until(&self, lsn: u64, starts: bool) -> Result<()> {
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
        let target = self.settled_lsn.load(Ordering::Acquire);
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
        let sync_all = || dirty.iter().try_for_each(|(_, file)| file.sync());
        // Others wait for the end of this sync, whatever it is.
        let result = sched::catch_panic("a sync of the log", sync_all);
        let mut state = self.sync.lock();
        state.running = false;
        match &result {
            Ok(()) => {
                // The newest of the synced segments may have been appended to since: it stays.
                let newest = dirty.last().map_or(0, |(number, _)| *number);
                state.dirty.retain(|(number, _)| *number >= newest);
                state.starts_synced = state.starts_synced.max(started);
                self.durable_lsn.fetch_max(target, Ordering::AcqRel);
            }
            Err(error) => state.failed = Some(error.clone()),
        }
        drop(state);
        self.synced.notify_all();
        result
    }

    /// Largest LSN that was written.
    pub(crate) fn written_lsn(&self) -> u64 {
        self.written_lsn.load(Ordering::Acquire)
    }

    /// Largest LSN that a sync can make durable (invariant 6): at least that of every position
    /// taken so far.
    pub(crate) fn settled_lsn(&self) -> u64 {
        self.settled_lsn.load(Ordering::Acquire)
    }

    /// Largest LSN that is known to be durable.
    pub(crate) fn durable_lsn(&self) -> u64 {
        self.durable_lsn.load(Ordering::Acquire)
    }

    /// Makes segments before `segment` reusable: the durable log start of every keyspace is there
    /// or later.
    pub(crate) fn release_before(&self, segment: u64) {
        let released: Vec<u64> = {
            let mut ring = self.ring.lock();
            let active = ring.live.back().copied().unwrap_or(0);
            let mut released = Vec::new();
            while ring.live.front().is_some_and(|&n| n < segment && n < active) {
                released.extend(ring.live.pop_front());
            }
            released
        };
        if released.is_empty() {
            return;
        }
        // What they held is in durable tables: nobody waits for their sync any more.
        self.sync.lock().dirty.retain(|(number, _)| !released.contains(number));
        let recycles = self.synced_once.load(Ordering::Relaxed);
        for number in released {
            let keep = {
                let mut ring = self.ring.lock();
                let keep = recycles && ring.spare.len() < SPARE_MAX;
                if keep {
                    ring.spare.push(number);
                }
                keep
            };
            if !keep {
                let reason = "recovery removes logs that no keyspace needs";
                self.storage.remove_log(LogKind::Wal, number).ignore_error(reason);
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

    /// Live segments, ascending; the last is active.
    pub(crate) fn live_segments(&self) -> Vec<u64> {
        self.ring.lock().live.iter().copied().collect()
    }

    /// Bytes that the live segments take on the device. An upper bound.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.ring.lock().live.len() as u64 * self.options.segment_bytes
    }

    /// Ends the log of a store that is being closed: a last, empty group carries the durable LSN,
    /// so that damage to any earlier group is told from the end of the log.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn finish(&self) -> Result<()> {
        self.sync_to(self.settle().0)?;
        if self.active.lock().room() == 0 {
            self.prepare()?;
        }
        let lsn = self.append(&[&[]], 0, true)?;
        self.sync_to(lsn)
    }
}
