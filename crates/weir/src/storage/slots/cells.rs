//! The places of logs: cells of the write-ahead log, and the two halves of the version log's area.
//!
//! Each begins with a page that says which log it holds (`page`); the log's bytes follow. Not here:
//! what is in a log (`log`), which half is free (the superblock says).
//!
//! Invariants: (1) a log has one cell, and a cell holds one log; (2) which log a cell holds is
//! durable no later than the first synced byte of that log, because a sync is one of the whole
//! device; (3) a log that was removed in memory only may be found again at the next opening, and so
//! may the old number of one that was recycled; numbers are never used twice, so nobody takes it
//! for another; (4) all cells are written with zeros when the device is formatted.
//!
//! Source: LDS §3.3 and §3.6. We differ: WOL and WOR are not needed, as a segment names its
//! predecessor (`log`).

use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::SegmentNumber;
use crate::base::sched::Mutex;
use crate::device::{Advice, File};
use crate::storage::slots::page::{LogHead, PAGE_BYTES, Uuid};
use crate::storage::{LogKind, LogRegion};

/// Bytes before those of the log.
pub(super) const HEAD_BYTES: u64 = PAGE_BYTES as u64;

/// The cells of one kind of log.
pub(super) struct Cells {
    kind: LogKind,
    uuid: Uuid,
    /// What each head says of the device, besides.
    layout: Vec<u8>,
    /// The parts of the device, of equal size.
    parts: Vec<Cell>,
    state: Mutex<State>,
}

/// A part of the device.
#[derive(Clone)]
pub(super) struct Cell {
    /// Through the page cache.
    pub(super) file: Arc<dyn File>,
    /// Past it, where that is possible: for whole pages.
    pub(super) pages: Arc<dyn File>,
}

struct State {
    /// What each cell holds; `None`: it is free.
    held: Vec<Option<SegmentNumber>>,
    /// That of the last head that was written.
    turn: u64,
}

impl Cells {
    /// Finds out which logs the cells hold. `named`: a cell and its log that are known otherwise,
    /// whatever its head says or does not; then a head that cannot be read is none. Elsewhere it
    /// may be that of the end of a log, which must not be taken for shorter.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn open(
        kind: LogKind,
        uuid: Uuid,
        parts: Vec<Cell>,
        named: Option<(usize, SegmentNumber)>,
    ) -> Result<Self> {
        let mut held: Vec<Option<LogHead>> = Vec::with_capacity(parts.len());
        let mut page = [0; PAGE_BYTES];
        for part in &parts {
            let got = match part.file.read_at(&mut page, 0) {
                // The log that counts is known without it.
                Err(error) if error.kind() == ErrorKind::Io && named.is_some() => 0,
                got => got?,
            };
            let head = page.get(..got).and_then(|page| LogHead::decode(page, &uuid));
            held.push(head.filter(|head| head.kind == kind));
        }
        let turn = held.iter().flatten().map(|head| head.turn).max().unwrap_or(0);
        // An older claim to a number lost it: its cell was recycled, and the head was torn.
        let claims: Vec<LogHead> = held.iter().flatten().copied().collect();
        let lost = |head: &LogHead| {
            claims.iter().any(|other| other.number == head.number && other.turn > head.turn)
        };
        let held = held.into_iter().map(|head| head.filter(|h| !lost(h)).map(|h| h.number));
        let mut held: Vec<Option<SegmentNumber>> = held.collect();
        // A later log there shows that who names this one is older than it.
        let is_later = |&(cell, number): &(usize, SegmentNumber)| {
            held.get(cell).is_some_and(|held| held.is_some_and(|held| held > number))
        };
        if let Some((cell, number)) = named.filter(|named| !is_later(named)) {
            held.iter_mut().filter(|held| **held == Some(number)).for_each(|held| *held = None);
            held.iter_mut().skip(cell).take(1).for_each(|held| *held = Some(number));
        }
        let state = Mutex::new(State { held, turn });
        Ok(Self { kind, uuid, layout: Vec::new(), parts, state })
    }

    /// Lets heads say this of the device, too.
    pub(super) fn with_layout(self, layout: Vec<u8>) -> Self {
        Self { layout, ..self }
    }

    /// Bytes that each log has.
    pub(super) fn capacity(&self) -> Result<u64> {
        let Some(part) = self.parts.first() else { return Ok(0) };
        Ok(part.file.len()? - HEAD_BYTES)
    }

    /// How many logs there can be.
    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    /// How many cells are free.
    pub(super) fn free(&self) -> usize {
        self.state.lock().held.iter().filter(|held| held.is_none()).count()
    }

    /// The numbers of the logs, ascending.
    pub(super) fn numbers(&self) -> Vec<SegmentNumber> {
        let mut numbers: Vec<_> = self.state.lock().held.iter().flatten().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// The cell that holds a log.
    pub(super) fn find(&self, number: SegmentNumber) -> Option<usize> {
        self.state.lock().held.iter().position(|&held| held == Some(number))
    }

    /// Gives log `number` the cell that `choose` picks among the free ones, by number.
    ///
    /// # Errors
    /// `Conflict` if there is such a log; `NoSpace` if no cell is free; the device's.
    pub(super) fn create(
        &self,
        number: SegmentNumber,
        choose: impl Fn(usize) -> bool,
    ) -> Result<usize> {
        let mut state = self.state.lock();
        let what = |what: &str| format!("{:?} log {number}: {what}", self.kind);
        if state.held.contains(&Some(number)) {
            return Err(Error::new(ErrorKind::Conflict, what("there is one already")));
        }
        let free = |(cell, held): &(usize, &Option<SegmentNumber>)| held.is_none() && choose(*cell);
        let Some((cell, _)) = state.held.iter().enumerate().find(free) else {
            let text = what("all places for logs are taken");
            return Err(Error::new(ErrorKind::NoSpace, text));
        };
        self.claim(&mut state, cell, number)?;
        Ok(cell)
    }

    /// Gives the cell of log `old` to log `new`.
    ///
    /// # Errors
    /// `NotFound`, `Conflict`, the device's.
    pub(super) fn recycle(&self, old: SegmentNumber, new: SegmentNumber) -> Result<usize> {
        let mut state = self.state.lock();
        if state.held.contains(&Some(new)) {
            let what = format!("cannot recycle log {old} as {new}: there is one already");
            return Err(Error::new(ErrorKind::Conflict, what));
        }
        let cell = state.held.iter().position(|&held| held == Some(old));
        let cell = cell.ok_or_else(|| self.missing(old))?;
        self.claim(&mut state, cell, new)?;
        Ok(cell)
    }

    /// Writes the head of a cell. After an error the cell is free, and may show the new log or the
    /// old one at the next opening.
    fn claim(&self, state: &mut State, cell: usize, number: SegmentNumber) -> Result<()> {
        state.held[cell] = None;
        state.turn += 1;
        let head = LogHead { kind: self.kind, number, turn: state.turn };
        let head = head.encode(&self.uuid, &self.layout);
        self.parts[cell].file.write_at(&head, 0).map_err(Error::leaving_nothing_unknown)?;
        state.held[cell] = Some(number);
        Ok(())
    }

    /// Frees the cell of a log.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) fn remove(&self, number: SegmentNumber) -> Result<()> {
        let mut state = self.state.lock();
        let held = state.held.iter_mut().find(|held| **held == Some(number));
        *held.ok_or_else(|| self.missing(number))? = None;
        Ok(())
    }

    pub(super) fn missing(&self, number: SegmentNumber) -> Error {
        Error::new(ErrorKind::NotFound, format!("there is no {:?} log {number}", self.kind))
    }

    /// The bytes of a cell.
    pub(super) fn part(&self, cell: usize) -> &Cell {
        &self.parts[cell]
    }
}

/// The bytes of a log, behind the head of its cell.
pub(super) struct CellLog {
    pub(super) part: Cell,
    pub(super) capacity: u64,
    pub(super) unit: u64,
    pub(super) name: String,
    /// Refuses writes once the store was closed.
    pub(super) writable: Arc<dyn Fn() -> Result<()> + Send + Sync>,
}

impl LogRegion for CellLog {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let left = self.capacity.saturating_sub(offset).min(buf.len() as u64);
        self.part.file.read_at(&mut buf[..left as usize], HEAD_BYTES + offset)
    }
    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        (self.writable)()?;
        match parts {
            [one] => self.part.file.write_at(one, HEAD_BYTES + offset),
            several => self.part.file.write_parts_at(several, HEAD_BYTES + offset),
        }
    }
    fn write_pages_at(&self, pages: &[u8], offset: u64) -> Result<()> {
        (self.writable)()?;
        self.part.pages.write_at(pages, HEAD_BYTES + offset)
    }
    fn sync(&self) -> Result<()> {
        (self.writable)()?;
        self.part.file.sync()
    }
    fn capacity(&self) -> Result<u64> {
        Ok(self.capacity)
    }
    fn grows(&self) -> bool {
        false
    }
    fn unit(&self) -> u64 {
        self.unit
    }
    fn is_stale(&self) -> bool {
        true
    }
    fn cut(&self, _: u64) -> Result<()> {
        let what = format!("{} has a fixed size and cannot be truncated", self.name);
        Err(Error::new(ErrorKind::Unsupported, what))
    }
    fn will_be_read(&self) {
        self.part.file.advise(0, 0, Advice::Sequential);
    }
    fn name(&self) -> String {
        self.name.clone()
    }
}
