// FORMAT: docs/format/slots.md sha=19adb194e2d9
//! A store in one pre-allocated file or on a block device: no file system knows its objects.
//!
//! Two superblocks say what the areas are and hold the root record; the version log has two halves,
//! the write-ahead log has cells, tables have slots. Not here: the choice of uids and numbers, the
//! bytes of objects.
//!
//! Invariants: (1) nothing but a version makes a slot live (H72): which slots are free is known
//! when the versions' tables were adopted, and no table is created before; (2) a slot is given out
//! again after the edit that frees it is durable, when nobody reads it (H30, H73), and after its
//! discard (H77); (3) a version log goes to the half that the root record does not name, also when
//! an opening failed before (H35), unless a repair found that one unusable and the other not; (4)
//! what is durable is durable by a sync of the device, which has no names.
//!
//! Source: LDS §3.1 to §3.4. We differ: a table is a list of extents of slots; the chain of the log
//! replaces the wrapping objects; two superblocks.
//!
//! Thread-safety: any thread may call any method.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{SegmentNumber, TableUid};
use crate::base::sched::Mutex;
use crate::device::part::Part;
use crate::device::{File, FileClass, Lock};
use crate::storage::slots::cells::{Cell, CellLog, Cells};
use crate::storage::slots::flush::Flushed;
use crate::storage::slots::page::PAGE_BYTES;
use crate::storage::slots::superblock::{Area, AreaKind, RootCopy, Superblock, Superblocks};
use crate::storage::slots::table::Space;
use crate::storage::{
    FreeAreas, FreeSpace, LOG_UNIT_BYTES, LiveTable, LogBytes, LogKind, LogRegion, Object, Storage,
    TableSource, TableWriter, WrittenTable,
};

mod ahead;
mod behind;
mod cells;
mod discards;
mod flush;
pub mod format;
mod lost;
mod map;
mod page;
mod repair;
mod superblock;
mod table;
#[cfg(all(test, feature = "sim"))]
mod tests;
mod trailers;

pub use format::FormatOptions;
pub(crate) use repair::Aside;

/// How many segments a log can have: two that are written in turn, and what is looked at when a
/// store is opened.
const CELLS_MIN: u64 = 4;
const CELLS_MAX: u64 = 65_536;

/// A file or a device that a store is in, and its lock.
pub(crate) struct Ground {
    /// For superblocks and logs.
    pub(crate) file: Arc<dyn File>,
    /// For slots, and pages of logs that are about to be synced: the same bytes, by requests that
    /// the page cache does not see where that is possible.
    pub(crate) slots: Arc<dyn File>,
    /// It is not possible: the page cache sees them, too.
    pub(crate) is_cached: bool,
    pub(crate) lock: Box<dyn Lock>,
    /// Where a repair keeps what it replaces.
    pub(crate) aside: Option<Aside>,
}

/// The superblocks of a device, if there are any, and what tells of them where both are lost.
type Opened = (Option<Superblocks>, Option<lost::Found>);

/// How a store is opened.
#[derive(Clone, Copy)]
struct Mode {
    read_only: bool,
    /// The device is told of slots that become free.
    discards: bool,
    /// It is opened for a repair: whatever can be read of it.
    repairs: bool,
}

/// What the slots and areas of a store in a file or on a device hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotSpace {
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// All slots: free, reserved, owned and leaving ones.
    pub slots: u64,
    /// Slots that hold nothing that is needed.
    pub free: u64,
    /// Slots of tables that are being written.
    pub reserved: u64,
    /// Slots of tables.
    pub owned: u64,
    /// Slots of removed tables that somebody still reads, or that are being discarded.
    pub leaving: u64,
    /// Slots in the largest free run.
    pub largest_free_run: u64,
    /// Extents that all tables together have: as many as tables, if none is in pieces.
    pub extents: u64,
    /// Tables that have slots.
    pub tables: u64,
    /// Places for segments of the write-ahead log.
    pub log_segments: u64,
    /// Those that hold nothing that is needed.
    pub log_segments_free: u64,
    /// Bytes that a segment of the write-ahead log has.
    pub log_segment_bytes: u64,
    /// What synced groups of the write-ahead log are padded to, in bytes.
    pub log_unit_bytes: u64,
    /// Bytes that a version log has: one half of its area.
    pub version_log_bytes: u64,
    /// Bytes that the file lacked at its end when it was opened: it was cut off. A repair makes it
    /// as long again.
    pub cut_off_bytes: u64,
    /// How many of the two superblocks are sound. With one nothing is lost yet; an opening that
    /// writes, or a repair, makes both whole again.
    pub superblocks: u32,
}

/// A store in slots.
pub(crate) struct Slots {
    path: String,
    read_only: bool,
    superblocks: Mutex<Superblocks>,
    halves: Cells,
    cells: Cells,
    /// What synced groups of the write-ahead log are padded to, in bytes.
    log_unit: u64,
    space: Arc<Space>,
    /// Requests for slots go through the page cache.
    is_cached: bool,
    /// What the file lacked at its end.
    cut_off_bytes: u64,
    /// The whole file or device.
    whole: Arc<dyn File>,
    lock: Mutex<Option<Box<dyn Lock>>>,
    closed: Arc<AtomicBool>,
    aside: Option<Aside>,
    /// The version log that tells a repair something, if the tree is written anew; 0: none.
    told: AtomicU64,
    /// Where both superblocks were lost: the newest version log, if that is known, and the half
    /// that has the newest head.
    lost: Option<(Option<SegmentNumber>, u8)>,
}

impl Slots {
    /// Makes the store none; the file or device keeps its length.
    ///
    /// # Errors
    /// `InvalidArgument` if it holds no store; the device's.
    pub(crate) fn destroy(ground: &Ground) -> Result<()> {
        let whole = Part::of(&ground.file, 0..ground.file.len()?, FileClass::Root);
        let opened = Superblocks::open(Arc::clone(&whole));
        // Damaged ones are a store's, too.
        if opened.is_ok_and(|found| found.is_none()) && !lost::has_head(&whole) {
            let path = ground.file.path();
            let what = format!("{path} holds no Weir store; nothing was changed");
            return Err(Error::invalid(what));
        }
        Superblocks::wipe(&whole)?;
        lost::forget(&whole)?;
        // Nor is there anything that a format would have to be forced over.
        format::clear_end(&ground.file)
    }

    /// Whether there is a sound superblock.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn is_store(ground: &Ground) -> Result<bool> {
        let whole = Part::of(&ground.file, 0..ground.file.len()?, FileClass::Root);
        Ok(Superblocks::has_sound_copy(&*whole))
    }

    /// Makes a file or a device a store.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too small or an option does not fit; the device's.
    pub(crate) fn format(ground: &Ground, options: &FormatOptions) -> Result<()> {
        format::format(&ground.file, options, format::new_uuid())
    }

    /// Whether a device of `bytes` bytes can be divided so.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn check_options(options: &FormatOptions, bytes: u64) -> Result<()> {
        options.layout(bytes, [0; 16]).map(drop)
    }

    /// What is in the slots and areas.
    fn slot_space_now(&self) -> SlotSpace {
        let counts = self.space.counts();
        let (largest_free_run, extents) = self.space.fragments();
        let cells = self.cells.count() as u64;
        SlotSpace {
            slot_bytes: self.space.slot_bytes(),
            slots: counts.all,
            free: counts.free,
            reserved: counts.reserved,
            owned: counts.owned,
            leaving: counts.leaving,
            largest_free_run,
            extents,
            tables: self.space.uids().len() as u64,
            log_segments: cells,
            log_segments_free: self.cells.free() as u64,
            log_segment_bytes: self.cells.capacity().unwrap_or(0),
            log_unit_bytes: self.log_unit,
            version_log_bytes: self.halves.capacity().unwrap_or(0),
            cut_off_bytes: self.cut_off_bytes,
            superblocks: self.superblocks.lock().sound(),
        }
    }

    /// Opens the store; `discards`: the device is told of slots that become free.
    ///
    /// # Errors
    /// `InvalidArgument` if it was never formatted; `Corruption` if its superblocks are damaged or
    /// it is shorter than they say; `Unsupported` for a newer format; the device's.
    pub(crate) fn open(ground: Ground, read_only: bool, discards: bool) -> Result<Self> {
        let superblocks = |device| Ok((Superblocks::open(device)?, None));
        Self::open_with(ground, Mode { read_only, discards, repairs: false }, superblocks)
    }

    /// Opens a damaged store: one that has lost its superblocks, too, if the version log's heads
    /// tell what they said.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_damaged(ground: Ground) -> Result<Self> {
        let mode = Mode { read_only: false, discards: false, repairs: true };
        Self::open_with(ground, mode, lost::open)
    }

    fn open_with(
        ground: Ground,
        Mode { read_only, discards, repairs }: Mode,
        superblocks: impl FnOnce(Arc<dyn File>) -> Result<Opened>,
    ) -> Result<Self> {
        let flusher = Arc::default();
        let (file, slots) =
            (Flushed::over(ground.file, &flusher), Flushed::over(ground.slots, &flusher));
        let ground = Ground { file, slots, ..ground };
        let path = ground.file.path();
        let whole = Part::of(&ground.file, 0..ground.file.len()?, FileClass::Root);
        let (superblocks, found) = superblocks(Arc::clone(&whole))?;
        let Some(superblocks) = superblocks else {
            if !repairs && lost::has_head(&whole) {
                let what =
                    "both copies are lost, but not the version log, which may tell what they said,";
                return Err(Error::corruption(superblock::name_in(&path), 0, what));
            }
            return Err(no_superblock(&path));
        };
        if !repairs && lost::is_foreign(&whole, superblocks.current()) {
            let what = "both copies are another store's, of which a part was copied over them, and \
                        the version log is not,";
            return Err(Error::corruption(superblock::name_in(&path), 0, what));
        }
        let superblock = superblocks.current();
        let (uuid, log_unit) = (superblock.uuid, superblock.log_unit);
        let mode = Mode { read_only, discards, repairs };
        let cut_off_bytes = cut_off_bytes(superblock, &*ground.file, mode)?;
        let whole = Arc::clone(&ground.file);
        let versions = |area: &Area| cell_of(&ground, area, FileClass::Versions);
        let halves = [AreaKind::FirstHalf, AreaKind::SecondHalf]
            .map(|kind| area_of(superblock, kind, &path).map(|area| versions(&area)));
        let [first, second] = halves;
        let named = superblock.root.as_ref().map(|root| (usize::from(root.half), root.log));
        // Where the superblocks are lost, what is left of heads is looked at by `lost`.
        let lost = found.as_ref().map(|found| (found.log, found.half));
        let newest = lost.and_then(|(log, half)| Some((usize::from(half), log?)));
        let named = named.or(newest);
        let halves = Cells::open(LogKind::Versions, uuid, vec![first?, second?], named)?;
        let halves = halves.with_layout(found.map_or_else(|| superblock.layout(), |f| f.layout));
        let log = area_of(superblock, AreaKind::Log, &path)?;
        let cells = log.bytes / superblock.cell_bytes;
        if !(CELLS_MIN..=CELLS_MAX).contains(&cells) {
            let what = format_args!("a log of {cells} segments, which no formatting makes");
            return Err(Error::corruption(superblock::name_in(&path), log.offset, what));
        }
        let cell = |at: u64| {
            let offset = log.offset + at * superblock.cell_bytes;
            let area = Area { offset, bytes: superblock.cell_bytes, ..log };
            cell_of(&ground, &area, FileClass::Wal)
        };
        let parts = (0..cells).map(cell).collect();
        let cells = Cells::open(LogKind::Wal, uuid, parts, None)?;
        let area = area_of(superblock, AreaKind::Slots, &path)?;
        let slots = part_of(&ground.slots, &area, FileClass::Table);
        let space = Space::new(slots, uuid, superblock.slot_bytes, discards, path.clone())?;
        Ok(Self {
            path,
            read_only,
            superblocks: Mutex::new(superblocks),
            halves,
            cells,
            log_unit,
            space,
            is_cached: ground.is_cached,
            cut_off_bytes,
            whole,
            lock: Mutex::new(Some(ground.lock)),
            closed: Arc::default(),
            aside: ground.aside,
            told: AtomicU64::new(0),
            lost,
        })
    }

    /// Refuses changes of a store that was opened for reading only, or whose lock is released.
    fn writable(&self) -> Result<()> {
        if self.read_only {
            let what = format!("the store {} was opened for reading only", self.path);
            return Err(Error::new(ErrorKind::ReadOnly, what));
        }
        check_open(&self.closed, &self.path)
    }

    fn cells(&self, kind: LogKind) -> &Cells {
        match kind {
            LogKind::Wal => &self.cells,
            LogKind::Versions => &self.halves,
        }
    }

    fn region(
        &self,
        kind: LogKind,
        number: SegmentNumber,
        cell: usize,
        bytes: u64,
    ) -> Result<Arc<dyn LogRegion>> {
        let cells = self.cells(kind);
        let (closed, path, read_only) =
            (Arc::clone(&self.closed), self.path.clone(), self.read_only);
        Ok(Arc::new(CellLog {
            part: cells.part(cell).clone(),
            capacity: cells.capacity()?.min(bytes),
            unit: if kind == LogKind::Wal { self.log_unit } else { LOG_UNIT_BYTES },
            name: self.name_of(Object::Log(kind, number)),
            writable: Arc::new(move || {
                if read_only {
                    let what = format!("the store {path} was opened for reading only");
                    return Err(Error::new(ErrorKind::ReadOnly, what));
                }
                check_open(&closed, &path)
            }),
        }))
    }
}

fn check_open(closed: &AtomicBool, path: &str) -> Result<()> {
    if closed.load(Ordering::Acquire) {
        return Err(Error::new(ErrorKind::Closed, format!("the store {path} was closed")));
    }
    Ok(())
}

fn part_of(file: &Arc<dyn File>, area: &Area, class: FileClass) -> Arc<dyn File> {
    Part::of(file, area.offset..area.offset + area.bytes, class)
}

fn cell_of(ground: &Ground, area: &Area, class: FileClass) -> Cell {
    Cell { file: part_of(&ground.file, area, class), pages: part_of(&ground.slots, area, class) }
}

/// The one extent of an area.
fn area_of(superblock: &Superblock, kind: AreaKind, path: &str) -> Result<Area> {
    let mut extents = superblock.areas.iter().filter(|area| area.kind == kind);
    match (extents.next(), extents.next()) {
        (Some(area), None) if area.space == 0 => Ok(*area),
        (None, _) => Err(Error::corruption(
            superblock::name_in(path),
            0,
            format_args!("it has no area for {kind:?}"),
        )),
        _ => {
            let what = format!(
                "{path} has areas in several pieces or on other devices, which this version does \
                 not know; open the store with the version that made them"
            );
            Err(Error::new(ErrorKind::Unsupported, what))
        }
    }
}

/// The error of a file or device without a superblock, of which a repair knows more.
fn no_superblock(path: &str) -> Error {
    Error::invalid(format!(
        "{path} is not a directory, and holds no store: it has no superblock, and no version log \
         that says what one said; name another path, or make this one a new store \
         (`weir format`: what it has is lost); if it was one, restore a copy"
    ))
}

/// Bytes that a file lacks at its end.
///
/// # Errors
/// `Corruption` if it lacks any, but for slots where it is read or repaired; the device's.
fn cut_off_bytes(superblock: &Superblock, file: &dyn File, mode: Mode) -> Result<u64> {
    let (bytes, path) = (file.len()?, file.path());
    let end_of = |area: &Area| area.offset + area.bytes;
    let end = superblock.areas.iter().map(end_of).max().unwrap_or(0);
    if end <= bytes {
        return Ok(0);
    }
    let tables = superblock.areas.iter().filter(|area| area.kind == AreaKind::Slots);
    let cuts_tables_only = tables.map(|area| area.offset).min().is_some_and(|at| bytes >= at);
    if !cuts_tables_only {
        let what = format!(
            "{path} has {bytes} bytes, and its areas reach to {end}: it was cut off within its \
             logs, before all tables, so that nothing of it can be read or repaired; restore a \
             backup"
        );
        return Err(Error::hopeless(superblock::name_in(&path), bytes, what));
    }
    if !(mode.read_only || mode.repairs) {
        let what = format_args!(
            "it has {bytes} bytes, and its areas reach to {end}: it was cut off among its tables; \
             what is left can be read (`read_only`) and repaired;"
        );
        return Err(Error::corruption(superblock::name_in(&path), bytes, what));
    }
    Ok(end - bytes)
}

impl Storage for Slots {
    fn adopt(&self, tables: &mut dyn Iterator<Item = LiveTable<'_>>) -> Result<()> {
        self.space.adopt(tables)
    }

    fn create_table(&self, uid: TableUid, bytes_hint: u64) -> Result<Box<dyn TableWriter>> {
        self.writable()?;
        assert!(uid > TableUid::NONE, "table 0: uids begin with 1");
        if uid.is_used_up() {
            return Err(Error::used_up("the numbers of tables"));
        }
        Ok(Box::new(self.space.create(uid, bytes_hint)?))
    }

    fn sync_tables(&self, tables: Vec<Box<dyn WrittenTable>>) -> Result<()> {
        self.writable()?;
        // One flush of the device is of all of them.
        tables.into_iter().next().map_or(Ok(()), |table| table.sync())
    }

    fn open_table(&self, uid: TableUid) -> Result<Arc<dyn TableSource>> {
        Ok(Arc::new(self.space.open(uid)?))
    }

    fn keep_beside(&self, budget_bytes: u64) {
        self.space.ahead().keep_beside(budget_bytes);
    }

    fn is_cached_below(&self) -> bool {
        self.is_cached
    }

    fn remove_table(&self, uid: TableUid) -> Result<()> {
        self.writable()?;
        self.space.remove(uid)
    }

    fn list_tables(&self) -> Result<Vec<TableUid>> {
        Ok(self.space.uids())
    }

    fn create_log(
        &self,
        kind: LogKind,
        number: SegmentNumber,
        bytes: u64,
    ) -> Result<Arc<dyn LogRegion>> {
        self.writable()?;
        assert!(number > SegmentNumber::ZERO, "segment 0 of {kind:?}: numbers begin with 1");
        if number.is_used_up() {
            return Err(Error::used_up("the numbers of log segments"));
        }
        let cells = self.cells(kind);
        let capacity = cells.capacity()?;
        if bytes > capacity {
            let what =
                format!("a log of {bytes} bytes in {}, where each has {capacity}", self.path);
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
        let taken = match kind {
            LogKind::Wal => None,
            LogKind::Versions => {
                let superblocks = self.superblocks.lock();
                let named = superblocks.current().root.as_ref().map(|root| root.half);
                // The head that tells where everything is stays until a superblock does.
                let named = named.or(self.lost.map(|(_, half)| half)).map(usize::from);
                // A repair keeps the half that told it something until its own log counts.
                let told = SegmentNumber::new(self.told.load(Ordering::Relaxed));
                cells.find(told).or(named)
            }
        };
        // What the other half holds, or both where no root names one, is of an opening that failed,
        // was removed, or is given up.
        if kind == LogKind::Versions {
            let is_kept = |n: &SegmentNumber| taken.is_some() && cells.find(*n) == taken;
            let other = |n: &SegmentNumber| *n != number && !is_kept(n);
            for old in cells.numbers().into_iter().filter(other) {
                cells.remove(old)?;
            }
        }
        let cell = cells.create(number, |cell| Some(cell) != taken)?;
        // A writer who asks for less is held to it: no more was admitted.
        let bytes = if bytes == 0 { capacity } else { bytes.next_multiple_of(PAGE_BYTES as u64) };
        self.region(kind, number, cell, bytes)
    }

    fn recycle_log(
        &self,
        kind: LogKind,
        old: SegmentNumber,
        new: SegmentNumber,
    ) -> Result<Arc<dyn LogRegion>> {
        self.writable()?;
        assert_ne!(old, new, "a segment of {kind:?} is recycled under its own number");
        if new.is_used_up() {
            return Err(Error::used_up("the numbers of log segments"));
        }
        let cell = self.cells(kind).recycle(old, new)?;
        self.region(kind, new, cell, u64::MAX)
    }

    fn open_log(&self, kind: LogKind, number: SegmentNumber) -> Result<Arc<dyn LogRegion>> {
        let cells = self.cells(kind);
        let cell = cells.find(number).ok_or_else(|| cells.missing(number))?;
        self.region(kind, number, cell, u64::MAX)
    }

    fn remove_log(&self, kind: LogKind, number: SegmentNumber) -> Result<()> {
        self.writable()?;
        self.cells(kind).remove(number)
    }

    fn list_logs(&self, kind: LogKind) -> Result<Vec<SegmentNumber>> {
        Ok(self.cells(kind).numbers())
    }

    fn log_bytes(&self) -> Option<LogBytes> {
        let capacity = self.cells.capacity().ok()?;
        Some(LogBytes { segment: capacity, area: capacity * self.cells.count() as u64 })
    }

    fn read_root_record(&self) -> Result<Option<Vec<u8>>> {
        let superblocks = self.superblocks.lock();
        Ok(superblocks.current().root.as_ref().map(|root| root.record.clone()))
    }

    fn write_root_record(&self, root: &[u8], log: SegmentNumber) -> Result<()> {
        self.writable()?;
        let mut superblocks = self.superblocks.lock();
        let before = superblocks.current().root.as_ref().map_or(0, |root| root.half);
        let half = self.halves.find(log).map_or(before, |cell| cell as u8);
        let record = root.to_vec();
        superblocks.replace(|next| next.root = Some(RootCopy { record, log, half }))?;
        // If a repair was running, what it wrote is the store now.
        self.space.repairs.store(0, Ordering::Relaxed);
        self.told.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn remove_root_record(&self) -> Result<()> {
        self.writable()?;
        self.superblocks.lock().replace(|next| next.root = None)
    }

    fn sync_names(&self) -> Result<()> {
        self.writable()
    }

    fn slot_space(&self) -> Option<SlotSpace> {
        Some(self.slot_space_now())
    }

    fn finish_removals(&self) -> Result<()> {
        self.space.discard_leaving(u64::MAX);
        Ok(())
    }

    fn free_space(&self) -> FreeSpace {
        let capacity = self.cells.capacity().unwrap_or(0);
        let half = self.halves.capacity().unwrap_or(0);
        let areas = FreeAreas { log: capacity * self.cells.free() as u64, versions: half };
        FreeSpace {
            table_bytes: Some(self.space.free_bytes()),
            areas: Some(areas),
            files: None,
            table_unit: self.space.slot_bytes(),
        }
    }

    fn unlock(&self) {
        let lock = self.lock.lock().take();
        self.closed.store(true, Ordering::Release);
        self.space.close();
        drop(lock);
    }

    fn path(&self) -> String {
        self.path.clone()
    }

    fn name_of(&self, object: Object) -> String {
        let path = &self.path;
        match object {
            Object::Root => format!("{path}: root record"),
            Object::Table(uid) => self.space.name_of(uid),
            Object::Log(LogKind::Wal, SegmentNumber::ZERO) => format!("{path}: write-ahead log"),
            Object::Log(LogKind::Wal, n) => format!("{path}: log segment {n}"),
            Object::Log(LogKind::Versions, SegmentNumber::ZERO) => format!("{path}: version log"),
            Object::Log(LogKind::Versions, n) => format!("{path}: version log {n}"),
        }
    }
}
