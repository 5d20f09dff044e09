//! Tables in slots: writing one, and reading one.
//!
//! The bytes of a table fill its extents in order; each extent ends in a page that says whose it is
//! (`page::Trailer`), which is written last. Not here: which slots are free (`map`), what is in a
//! table.
//!
//! Invariants: (1) nothing inside an extent is written twice, and its trailer is its last write, so
//! that slots may be zones of a device one day; (2) all writes are whole pages at page boundaries;
//! (3) slots are given out again only when nobody has the table open (H30); (4) no read, no
//! discard and no end of a table is in flight when the device is given up, and none begins
//! afterwards (H73).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::clock;
use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::ids::TableUid;
use crate::base::pages::PageVec;
use crate::base::place::{Extent, Place};
use crate::base::sched::{self, Condvar, Mutex};
use crate::device::{Advice, File};
use crate::storage::slots::ahead::{Ahead, Windows};
use crate::storage::slots::behind::{self, Behind, Handed};
use crate::storage::slots::discards::{self, Discards};
use crate::storage::slots::map::{Counts, SlotMap, slots_of};
use crate::storage::slots::page::{PAGE_BYTES, Trailer, Uuid};
use crate::storage::{LiveTable, TableSource, TableWriter, WrittenTable};

/// Write buffer of a table: as in a directory.
const TABLE_BUFFER_BYTES: usize = 512 << 10;
const PAGE: u64 = PAGE_BYTES as u64;
/// Slots that a table begins with, if it is expected to need so many.
const FIRST_SLOTS: u64 = 4;

/// The slots of a device, and who has them.
pub(super) struct Space {
    file: Arc<dyn File>,
    uuid: Uuid,
    slot_bytes: u64,
    path: String,
    /// The generation that a repair found, while it writes; else 0.
    pub(super) repairs: AtomicU64,
    state: Mutex<State>,
    /// What was in flight has ended.
    quiet: Condvar,
    ahead: Arc<Ahead>,
    behind: Arc<Behind>,
    discards: Arc<Discards>,
}

struct State {
    map: SlotMap,
    /// Removed tables that nobody reads, to be discarded.
    leaving: VecDeque<(TableUid, Place)>,
    /// Tables that are being discarded.
    discarding: u64,
    /// Slots of both: free as soon as somebody needs them.
    yielding: u64,
    /// Whether the device is told of free slots.
    discards: bool,
    /// Reads, discards and ends of tables in flight.
    in_flight: u64,
    closed: bool,
}

impl Space {
    /// The slots in `file`, all free.
    pub(super) fn new(
        file: Arc<dyn File>,
        uuid: Uuid,
        slot_bytes: u64,
        discards: bool,
        path: String,
    ) -> Result<Arc<Self>> {
        let state = State {
            map: SlotMap::new(0, file.len()? / slot_bytes),
            leaving: VecDeque::new(),
            discarding: 0,
            yielding: 0,
            discards,
            in_flight: 0,
            closed: false,
        };
        Ok(Arc::new(Self {
            file,
            uuid,
            slot_bytes,
            path,
            repairs: AtomicU64::new(0),
            state: Mutex::new(state),
            quiet: Condvar::new(),
            ahead: Arc::default(),
            behind: Arc::default(),
            discards: Arc::default(),
        }))
    }

    pub(super) fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    pub(super) fn name_of(&self, uid: TableUid) -> String {
        format!("{}: table {uid}", self.path)
    }

    /// Takes over what versions say, in place of what was known. Tables that are open stay where
    /// they are.
    pub(super) fn adopt(&self, tables: &mut dyn Iterator<Item = LiveTable<'_>>) -> Result<()> {
        let mut state = self.state.lock();
        let mut map = SlotMap::new(0, state.map.counts().all);
        for LiveTable { uid, place, bytes } in tables {
            let name = self.name_of(uid);
            if bytes > self.capacity(place) {
                let what = format_args!("its {bytes} bytes do not fit its slots");
                return Err(Error::corruption(name, 0, what));
            }
            map.adopt(uid, place, bytes, &name)?;
        }
        assert_eq!(state.map.readers(), 0, "tables are open while others are adopted");
        state.map = map;
        Ok(())
    }

    /// Bytes of tables that a place has room for.
    fn capacity(&self, place: &Place) -> u64 {
        place.extents().iter().map(|extent| self.room(extent)).sum()
    }

    /// Bytes of a table that an extent has room for.
    pub(super) fn room(&self, extent: &Extent) -> u64 {
        extent.slots.saturating_mul(self.slot_bytes).saturating_sub(PAGE)
    }

    fn offset(&self, slot: u64) -> u64 {
        slot * self.slot_bytes
    }

    /// Slots that a table of `bytes` bytes in one extent needs.
    fn slots_for(&self, bytes: u64) -> u64 {
        (bytes + PAGE).div_ceil(self.slot_bytes)
    }

    /// The parts of the device that `bytes` bytes at `offset` of a table are in.
    fn ranges(&self, place: &Place, offset: u64, bytes: u64) -> Vec<(u64, u64)> {
        let (mut ranges, mut before, mut at, end) = (Vec::new(), 0, offset, offset + bytes);
        for extent in place.extents() {
            let until = before + self.room(extent);
            if at < until && at < end {
                let taken = until.min(end) - at;
                ranges.push((self.offset(extent.slot) + (at - before), taken));
                at += taken;
            }
            before = until;
        }
        ranges
    }

    pub(super) fn create(self: &Arc<Self>, uid: TableUid, hint: u64) -> Result<SlotWriter> {
        self.state.lock().map.begin(uid)?;
        // A hint is an upper bound: of a flush it is what two write buffers hold.
        let reserved = self.reserve(uid, 1, self.slots_for(hint).min(FIRST_SLOTS));
        // From here on an error gives it up.
        let buffer = PageVec::with_capacity(TABLE_BUFFER_BYTES + PAGE_BYTES);
        let (space, handed, place) = (Arc::clone(self), Handed::default(), Place::default());
        let (written, sealed, ended) = (0, 0, false);
        let mut writer = SlotWriter { space, uid, place, buffer, handed, written, sealed, ended };
        writer.place = reserved?;
        Ok(writer)
    }

    /// Gives `wanted` more slots to a table that is being written, fewer if no more are free, but
    /// `needed` if they can be had by discarding what leaves; its place then.
    fn reserve(&self, uid: TableUid, needed: u64, wanted: u64) -> Result<Place> {
        let is_short = {
            let state = self.state.lock();
            state.map.counts().free < needed && state.yielding > 0
        };
        if is_short {
            self.discard_leaving(needed);
        }
        let mut state = self.state.lock();
        let free = state.map.counts().free;
        state.map.reserve(uid, wanted.max(needed).min(free.max(1)))
    }

    pub(super) fn open(self: &Arc<Self>, uid: TableUid) -> Result<SlotTable> {
        let pinned = self.state.lock().map.pin(uid);
        let Some((place, bytes)) = pinned else {
            let none =
                Error::new(ErrorKind::NotFound, format!("no slots of {} have it", self.path));
            return Err(Error::missing_table(self.name_of(uid), none));
        };
        let windows = Windows::default();
        Ok(SlotTable { space: Arc::clone(self), uid, place, bytes, windows })
    }

    pub(super) fn remove(self: &Arc<Self>, uid: TableUid) -> Result<()> {
        let place = self.state.lock().map.remove(uid)?;
        self.leave(uid, place);
        Ok(())
    }

    /// Frees what nobody reads any more, at once or after its discard.
    fn leave(self: &Arc<Self>, uid: TableUid, place: Option<Place>) {
        let Some(place) = place else { return };
        {
            let mut state = self.state.lock();
            if !state.discards || state.closed {
                return state.map.discarded(uid);
            }
            state.yielding += slots_of(&place);
            state.leaving.push_back((uid, place));
        }
        if !self.discards.wake(self) {
            self.discard_leaving(u64::MAX);
        }
    }

    /// Discards the slots of removed tables and frees them, now, until so many are free or none
    /// leaves, those included that the thread is at.
    pub(super) fn discard_leaving(&self, needed: u64) {
        let _hurry = self.discards.hurry();
        let is_short = |state: &State| state.map.counts().free < needed;
        while is_short(&self.state.lock()) && self.discard_next(&|_| ()) {}
        let mut state = self.state.lock();
        while state.discarding > 0 && is_short(&state) && !state.closed {
            self.quiet.wait(&mut state);
        }
    }

    /// Discards the slots of one removed table and frees them; after each request it calls `pause`
    /// with the nanoseconds that it took. Whether there was one. A device that cannot is not asked
    /// again (H77). None begins once the device is given up: who opens it next may have written
    /// there.
    pub(super) fn discard_next(&self, pause: &dyn Fn(u64)) -> bool {
        let (uid, place) = {
            let mut state = self.state.lock();
            if state.closed {
                return false;
            }
            let Some(next) = state.leaving.pop_front() else { return false };
            state.discarding += 1;
            next
        };
        let _ended = Discarded { space: self, uid, slots: slots_of(&place) };
        for extent in place.extents() {
            let (mut at, end) = (self.offset(extent.slot), self.offset(extent.end()));
            while at < end {
                let bytes = discards::BYTES_MAX.min(end - at);
                let Some(nanos) = self.discard(at, bytes) else { return true };
                pause(nanos);
                at += bytes;
            }
        }
        true
    }

    /// Discards a part of the device; the nanoseconds that it took. `None` if the device cannot, or
    /// is given up.
    fn discard(&self, at: u64, bytes: u64) -> Option<u64> {
        {
            let mut state = self.state.lock();
            if state.closed || !state.discards {
                return None;
            }
            state.in_flight += 1;
        }
        let _discarding = InFlight(self);
        let begin = clock::now_nanos();
        let discarded = sched::catch_panic("a discard", || self.file.discard(at, bytes));
        if discarded.is_err() {
            self.state.lock().discards = false;
            return None;
        }
        Some(clock::now_nanos() - begin)
    }

    pub(super) fn uids(&self) -> Vec<TableUid> {
        self.state.lock().map.uids().collect()
    }

    pub(super) fn counts(&self) -> Counts {
        self.state.lock().map.counts()
    }

    /// The trailers that lie at the ends of slots, and the extents that they are the ends of. They
    /// say what was written, not what lives (H72).
    ///
    /// # Errors
    /// The device's: what it does not read may be the end of a table that lives, and would be
    /// taken for free. What was cut off is nothing's end any more.
    pub(super) fn trailers(&self) -> Result<Vec<(Extent, Trailer)>> {
        let mut found = Vec::new();
        let mut page = [0; PAGE_BYTES];
        for slot in 0..self.counts().all {
            let read = self.file.read_at(&mut page, self.offset(slot + 1) - PAGE);
            let read = read.map_err(|error| {
                let what = format!(
                    "the end of slot {slot} of {} cannot be read, and nothing was changed: copy \
                     what can be read to another place, by a tool that leaves zeros for the rest \
                     (ddrescue), and repair the copy",
                    self.path
                );
                Error::with_source(error.kind(), what, error)
            })?;
            if read < page.len() {
                continue;
            }
            let Some(trailer) = Trailer::decode(&page, &self.uuid) else { continue };
            let slots = trailer.slots;
            if let Some(first) = (slot + 1).checked_sub(slots) {
                found.push((Extent { space: 0, slot: first, slots }, trailer));
            }
        }
        Ok(found)
    }

    /// Slots in the largest free run, and extents of all tables.
    pub(super) fn fragments(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.map.largest_run(), state.map.extents())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    /// Bytes of slots that a table can have now.
    pub(super) fn free_bytes(&self) -> u64 {
        let state = self.state.lock();
        (state.map.counts().free + state.yielding) * self.slot_bytes
    }

    pub(super) fn ahead(&self) -> &Arc<Ahead> {
        &self.ahead
    }

    /// Fills `buf` with these parts of the device, one after the other.
    ///
    /// # Errors
    /// `Closed`; the device's.
    pub(super) fn read_ranges(&self, ranges: &[(u64, u64)], buf: &mut [u8]) -> Result<()> {
        let _reading = self.begin_request()?;
        let mut rest = buf;
        for &(at, bytes) in ranges {
            let (piece, tail) = rest.split_at_mut(bytes as usize);
            self.file.read_exact_at(piece, at)?;
            rest = tail;
        }
        Ok(())
    }

    /// Waits for what is in flight; later requests are refused.
    pub(super) fn close(&self) {
        self.ahead.close();
        self.behind.close();
        let mut state = self.state.lock();
        state.closed = true;
        while state.in_flight > 0 {
            self.quiet.wait(&mut state);
        }
        drop(state);
        self.discards.close();
    }

    fn begin_request(&self) -> Result<InFlight<'_>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::new(
                ErrorKind::Closed,
                format!("the store {} was closed", self.path),
            ));
        }
        state.in_flight += 1;
        Ok(InFlight(self))
    }
}

/// A request in flight, until it is dropped: also by a panic.
struct InFlight<'a>(&'a Space);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.in_flight -= 1;
        if state.in_flight == 0 && state.closed {
            self.0.quiet.notify_all();
        }
    }
}

/// A table whose slots are being discarded, until it is dropped: also by a panic. Then they are
/// free.
struct Discarded<'a> {
    space: &'a Space,
    uid: TableUid,
    slots: u64,
}

impl Drop for Discarded<'_> {
    fn drop(&mut self) {
        let mut state = self.space.state.lock();
        state.map.discarded(self.uid);
        state.discarding -= 1;
        state.yielding -= self.slots;
        drop(state);
        self.space.quiet.notify_all();
    }
}

/// A table being written. Its slots are given back if it is dropped before its end.
pub(super) struct SlotWriter {
    space: Arc<Space>,
    uid: TableUid,
    place: Place,
    buffer: PageVec<u8>,
    /// What is written behind.
    handed: Handed,
    /// Bytes written to the device or handed over, whole pages; `buffer` follows them.
    written: u64,
    /// Extents that have their trailers.
    sealed: usize,
    ended: bool,
}

impl SlotWriter {
    /// Makes room for `bytes` bytes in all.
    fn make_room(&mut self, bytes: u64) -> Result<()> {
        while self.space.capacity(&self.place) < bytes {
            let missing = bytes - self.space.capacity(&self.place);
            // Steps that double it, so that it has few extents, whoever else is writing. What is
            // left over at the end is given back.
            let needed = self.space.slots_for(missing);
            self.place = self.space.reserve(self.uid, needed, slots_of(&self.place))?;
        }
        Ok(())
    }

    /// Has the buffer, which has whole pages, followed by the trailers of the extents behind which
    /// the table goes on with it. One that is just full may be its last. The parts of the device
    /// that all of it goes to.
    fn with_trailers(&mut self) -> Result<Vec<(u64, u64)>> {
        let bytes = self.buffer.len() as u64;
        assert!(bytes.is_multiple_of(PAGE), "{bytes} bytes of table {} are no pages", self.uid);
        self.make_room(self.written + bytes)?;
        let mut ranges = self.space.ranges(&self.place, self.written, bytes);
        self.written += bytes;
        let extents = self.place.extents();
        let room = |extent: &Extent| self.space.room(extent);
        let mut reach: u64 = extents[..=self.sealed].iter().map(room).sum();
        while reach < self.written {
            let (at, page) = self.trailer(self.sealed, false);
            self.buffer.extend_from_slice(&page);
            ranges.push((at, PAGE));
            self.sealed += 1;
            reach += room(&extents[self.sealed]);
        }
        Ok(ranges)
    }

    /// The trailer of an extent, and where it goes.
    fn trailer(&self, part: usize, last: bool) -> (u64, Vec<u8>) {
        let extents = self.place.extents();
        let extent = extents[part];
        let before: u64 = extents[..part].iter().map(|extent| self.space.room(extent)).sum();
        let bytes = if last { self.len() } else { before + self.space.room(&extent) };
        let (uid, slots) = (self.uid, extent.slots);
        let repairs = self.space.repairs.load(Ordering::Relaxed);
        let trailer = Trailer { uid, part: part as u32, slots, bytes, last, repairs };
        (self.space.offset(extent.end()) - PAGE, trailer.encode(&self.space.uuid))
    }

    /// Has the buffer written, behind what was handed over before.
    fn write_behind(&mut self) -> Result<()> {
        let ranges = self.with_trailers()?;
        let (space, bytes) = (&self.space, std::mem::take(&mut self.buffer));
        self.buffer = self.handed.hand_over(&space.behind, &space.file, bytes, ranges)?;
        Ok(())
    }

    fn finish(&mut self) -> Result<Place> {
        let bytes = self.len();
        let padding = (self.buffer.len() as u64).next_multiple_of(PAGE) - self.buffer.len() as u64;
        self.buffer.extend_from_slice(&[0; PAGE_BYTES][..padding as usize]);
        let ranges = self.with_trailers()?;
        let space = Arc::clone(&self.space);
        let _writing = space.begin_request()?;
        // Nobody writes anything beside it, and a table of one buffer needs no other thread.
        self.handed.wait()?;
        behind::write(&self.space.file, &self.buffer, &ranges)?;
        self.buffer.clear();
        self.written = bytes;
        // The fewest slots from the front that have room for all.
        let mut slots = 0;
        let mut room = 0;
        for extent in self.place.extents() {
            let left = bytes.saturating_sub(room);
            if slots > 0 && left == 0 {
                break;
            }
            slots += self.space.slots_for(left).min(extent.slots);
            room += self.space.room(extent);
        }
        self.place = self.space.state.lock().map.forfeit(self.uid, slots);
        let (at, page) = self.trailer(self.place.extents().len() - 1, true);
        behind::write(&self.space.file, &page, &[(at, PAGE)])?;
        self.space.state.lock().map.acquire(self.uid, bytes);
        self.ended = true;
        Ok(self.place.clone())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // The last holder may be one of the threads itself.
        let _threads = [self.ahead.end(), self.behind.end(), self.discards.end()];
    }
}

impl Drop for SlotWriter {
    fn drop(&mut self) {
        if !self.ended {
            // What is in flight would be written over what others put there (H30).
            self.handed.wait().ignore_error("the table is given up");
            let removed = self.space.remove(self.uid);
            removed.ignore_error("only a table that was begun has a writer");
        }
    }
}

impl TableWriter for SlotWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = TABLE_BUFFER_BYTES - self.buffer.len();
            let (head, tail) = rest.split_at(room.min(rest.len()));
            self.buffer.extend_from_slice(head);
            rest = tail;
            if self.buffer.len() == TABLE_BUFFER_BYTES {
                self.write_behind()?;
            }
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn end(mut self: Box<Self>) -> Result<Box<dyn WrittenTable>> {
        let place = self.finish()?;
        Ok(Box::new(WrittenSlots { space: Arc::clone(&self.space), place }))
    }

    fn abandon(self: Box<Self>) {}
}

/// A table of which all bytes are written.
struct WrittenSlots {
    space: Arc<Space>,
    place: Place,
}

impl WrittenTable for WrittenSlots {
    fn place(&self) -> Place {
        self.place.clone()
    }
    fn sync(self: Box<Self>) -> Result<()> {
        self.space.sync()
    }
}

/// A finished table. Its slots are not given out before it is dropped.
pub(super) struct SlotTable {
    space: Arc<Space>,
    uid: TableUid,
    place: Place,
    bytes: u64,
    /// What is read ahead of it.
    windows: Windows,
}

impl SlotTable {
    fn read(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let wanted = buf.len() as u64;
        if offset.checked_add(wanted).is_none_or(|end| end > self.bytes) {
            let what = format_args!("{wanted} bytes are behind its end, {} bytes", self.bytes);
            return Err(Error::corruption(self.path(), offset, what));
        }
        if self.windows.take(buf, offset) {
            return Ok(());
        }
        self.space.read_ranges(&self.space.ranges(&self.place, offset, wanted), buf)
    }
}

impl TableSource for SlotTable {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let read = self.read(buf, offset).map_err(|error| match error.kind() {
            ErrorKind::Corruption => {
                Error::corruption(self.path(), offset, "the file was cut off before the end")
            }
            _ => error,
        });
        read.map_err(Error::leaving_nothing_unknown)
    }

    fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        let left = self.bytes.saturating_sub(offset);
        let bytes = if bytes == 0 { left } else { bytes.min(left) };
        let ranges = self.space.ranges(&self.place, offset, bytes);
        if advice == Advice::WillNeed {
            return self.windows.hint(&self.space, (offset, bytes), ranges);
        }
        for (at, bytes) in ranges {
            self.space.file.advise(at, bytes, advice);
        }
    }

    fn len(&self) -> u64 {
        self.bytes
    }

    fn place(&self) -> Place {
        self.place.clone()
    }

    fn path(&self) -> String {
        self.space.name_of(self.uid)
    }
}

impl Drop for SlotTable {
    fn drop(&mut self) {
        let place = self.space.state.lock().map.unpin(self.uid);
        self.space.leave(self.uid, place);
    }
}
