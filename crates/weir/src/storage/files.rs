// FORMAT: docs/format/directory.md sha=ffaefc8b305b
//! A store in a directory: one file per table and per log, one root file, one lock file.
//!
//! Not here: what the bytes of tables, logs and the root mean; the choice of uids and numbers.
//!
//! | name | holds |
//! |---|---|
//! | `LOCK` | nothing; locked while the store is open |
//! | `ROOT` | the root, framed with magic and checksum (LevelDB's `CURRENT`) |
//! | `ROOT.tmp` | a root being written; ignored after a crash |
//! | `000123.tbl` | table 123 |
//! | `wal-000123.log`, `versions-000123.log` | logs by number |
//! | `lost-NAME`, `lost-NAME.2` | a file that a repair could not read; only `destroy` removes it |
//!
//! Invariants: (1) every file is created exclusively, and no uid or number is used twice; (2) when
//! `create_log`, `recycle_log`, `finish` or `write_root_record` returns, bytes *and* name are
//! durable; (3) the root is replaced by rename of a synced file, so that it is the old or the new
//! one, and its checksum turns anything else into `Corruption`; (4) a directory with foreign files
//! and no root is left untouched.
//!
//! Thread-safety: any thread may call any method; calls of `write_root_record` are serialized.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::ids::{SegmentNumber, TableUid};
use crate::base::pages::PageVec;
use crate::base::place::Place;
use crate::base::sched::Mutex;
use crate::base::{checksum, coding};
use crate::device::{Advice, Dir, File, FileClass, Lock, Mode};
use crate::storage::files::found::{Found, check_root_tmp, inspect};
use crate::storage::files::names::{
    LOCK, LOST_AND_FOUND, LOST_PREFIX, Name, ROOT, ROOT_TMP, class_of, file_name, free_name,
    log_name, log_prefix, parse_name, table_name,
};
use crate::storage::files::pieces::{each_piece, same_bytes};
use crate::storage::files::removals::Removals;
use crate::storage::{
    FreeSpace, LiveTable, LogKind, LogRegion, Object, OpenOptions, ROOT_RECORD_BYTES_MAX,
    RepairStorage, Storage, TableSource, TableWriter, WrittenTable,
};

/// First bytes of the root file.
const ROOT_MAGIC: [u8; 8] = *b"WEIRROOT";
/// Version of the frame, not of the root in it.
const ROOT_FRAME_VERSION: u32 = 1;
const ROOT_HEADER_BYTES: usize = ROOT_MAGIC.len() + 4 + 4;
const ROOT_CRC_BYTES: usize = 4;
/// Most bytes of a root record: what every form has room for.
const ROOT_BYTES_MAX: usize = 3 << 10;
const _: () = assert!(ROOT_BYTES_MAX == ROOT_RECORD_BYTES_MAX);
/// The largest file that a root can be in: a larger one is damage, and is not read into memory.
const ROOT_FILE_BYTES_MAX: u64 = (ROOT_BYTES_MAX + ROOT_HEADER_BYTES + ROOT_CRC_BYTES) as u64;

/// Write buffer of a table writer: with one request per 512 KiB the system calls take about 1 % of
/// the time of the copy, and a job with two open writers holds 1 MiB.
const TABLE_BUFFER_BYTES: usize = 512 << 10;
/// Bytes after which write-back is started, so that little is left for the sync at the end.
const WRITE_BACK_BYTES: u64 = 1 << 20;

/// Tables that may always be open at once, however few file descriptors there are.
const OPEN_TABLES_MIN: usize = 4;

/// A store in a directory.
pub struct Files {
    dir: Arc<dyn Dir>,
    read_only: bool,
    root_in_work: Mutex<()>,
    lock: Mutex<Option<Box<dyn Lock>>>,
    removals: Arc<Removals>,
}

impl Files {
    /// Opens or creates the store in `dir` and locks it.
    ///
    /// # Errors
    /// `InvalidArgument` if the directory holds foreign files, `NotFound` if there is no store and
    /// none may be created, `Locked`, `Corruption` if there are tables but no root, `Io`.
    pub fn open(dir: Arc<dyn Dir>, options: OpenOptions) -> Result<Self> {
        let absent = |dir: &dyn Dir| {
            Error::new(
                ErrorKind::NotFound,
                format!("there is no store in {}; {}", dir.path(), options.absent_advice()),
            )
        };
        let may_create = options.create && !options.read_only;
        // Before the lock file is created: a foreign directory is left untouched.
        if matches!(inspect(&*dir, may_create)?, Found::Vacant(_)) && !may_create {
            return Err(absent(&*dir));
        }
        if !options.read_only {
            check_root_tmp(&*dir)?;
        }
        let lock = dir.lock(LOCK)?;
        // Again, now that the lock is held.
        match inspect(&*dir, may_create)? {
            Found::Store => {}
            Found::Vacant(_) if !may_create => return Err(absent(&*dir)),
            Found::Vacant(leftovers) => {
                for name in leftovers.iter().filter(|n| *n != LOCK) {
                    dir.unlink(name, class_of(name))?;
                }
                dir.sync()?;
            }
        }
        Ok(Self::holding(dir, options.read_only, lock))
    }

    fn holding(dir: Arc<dyn Dir>, read_only: bool, lock: Box<dyn Lock>) -> Self {
        let (root_in_work, removals) = (Mutex::new(()), Arc::default());
        Self { dir, read_only, root_in_work, lock: Mutex::new(Some(lock)), removals }
    }

    /// Opens a damaged store in `dir`, with or without a root, and locks it.
    ///
    /// # Errors
    /// `InvalidArgument` if the directory holds foreign files, `NotFound` if it holds no files of a
    /// store, `Locked`, `Io`. Nothing is changed then.
    pub(crate) fn open_damaged(dir: Arc<dyn Dir>) -> Result<Self> {
        let is_log = |name: &String| matches!(parse_name(name), Some(Name::Log(..)));
        match inspect(&*dir, false) {
            Ok(Found::Vacant(ours)) if !ours.iter().any(is_log) => {
                let what = format!("there is no store in {}; correct the path", dir.path());
                return Err(Error::new(ErrorKind::NotFound, what));
            }
            Err(error) if error.kind() != ErrorKind::Corruption => return Err(error),
            _ => {}
        }
        check_root_tmp(&*dir)?;
        let lock = dir.lock(LOCK)?;
        Ok(Self::holding(dir, false, lock))
    }

    /// The names in use, those of subdirectories included.
    fn names(&self) -> Result<Vec<String>> {
        let bare = |name: String| name.strip_suffix('/').map(str::to_owned).unwrap_or(name);
        Ok(self.dir.list()?.into_iter().map(bare).collect())
    }

    /// Removes the store in `dir`, damaged or not: every file with a name of a store's, and no
    /// other.
    ///
    /// The root is removed first, so that a crash in between leaves a store that is refused, not
    /// one that lacks tables.
    ///
    /// # Errors
    /// `NotFound` if the directory is empty, `InvalidArgument` if it holds foreign files only,
    /// `Locked` if the store is open, `Io`.
    pub fn destroy(dir: &dyn Dir) -> Result<()> {
        let ours = |names: Vec<String>| names.into_iter().filter(|n| parse_name(n).is_some());
        let names = dir.list()?;
        let foreign = names.iter().find(|n| parse_name(n).is_none() && *n != LOST_AND_FOUND);
        // A LOCK alone proves nothing: other programs have files of that name.
        if ours(names.clone()).all(|name| name == LOCK) {
            if let Some(name) = foreign {
                return Err(Error::invalid(format!(
                    "the directory {} is not a Weir store: it has no ROOT and holds \"{name}\"; \
                     nothing was removed; name a store's directory",
                    dir.path()
                )));
            }
            if names.is_empty() {
                let what = format!("there is no store in {}; nothing was removed", dir.path());
                return Err(Error::new(ErrorKind::NotFound, what));
            }
        }
        let _lock = dir.lock(LOCK)?;
        let names: Vec<String> = ours(dir.list()?).filter(|n| n != LOCK).collect();
        if names.iter().any(|n| n == ROOT) {
            dir.unlink(ROOT, FileClass::Root)?;
            dir.sync()?;
        }
        for name in names.iter().filter(|n| *n != ROOT) {
            dir.unlink(name, class_of(name))?;
        }
        dir.unlink(LOCK, FileClass::Lock)?;
        dir.sync()
    }

    /// Refuses changes of a store that was opened for reading only, or whose lock is released.
    fn writable(&self) -> Result<()> {
        let (kind, why) = if self.read_only {
            (ErrorKind::ReadOnly, "was opened for reading only")
        } else if self.lock.lock().is_none() {
            (ErrorKind::Closed, "was closed")
        } else {
            return Ok(());
        };
        Err(Error::new(kind, format!("the store {} {why}", self.dir.path())))
    }

    /// The objects that `pick` selects, ascending. Subdirectories with such names count: opening
    /// one fails, as opening a pipe does, and no new file gets its number.
    fn list_names<T: Ord>(&self, pick: impl Fn(Name) -> Option<T>) -> Result<Vec<T>> {
        let names = self.names().map_err(Error::leaving_nothing_unknown)?;
        let mut found: Vec<T> =
            names.iter().filter_map(|n| parse_name(n)).filter_map(pick).collect();
        found.sort_unstable();
        debug_assert!(found.is_sorted_by(|a, b| a < b), "a directory lists a name twice");
        Ok(found)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.writable()?;
        self.removals.remove(&*self.dir, name)
    }

    fn open_file(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        self.dir.open(name, class_of(name), mode)
    }

    /// Creates a file, and removes it again if the device created it but reports an error.
    fn create_new(&self, name: &str) -> Result<Arc<dyn File>> {
        self.removals.give_name(name);
        self.dir.create(name, class_of(name)).map_err(|error| {
            if error.kind() != ErrorKind::Conflict {
                self.give_up(name);
            }
            error.leaving_nothing_unknown()
        })
    }

    /// Fills the new file `name`; removes it on an error.
    fn fill_new(&self, name: &str, fill: impl FnOnce() -> Result<()>) -> Result<()> {
        fill().inspect_err(|_| self.give_up(name))
    }

    /// Removes the file that an error has left under `name`, if there is one.
    fn give_up(&self, name: &str) {
        let removed = self.removals.remove(&*self.dir, name);
        removed.ignore_error("the first error is reported, and the removal is retried");
    }
}

/// The file's content for a root record.
fn encode_root(root: &[u8]) -> Vec<u8> {
    let len = u32::try_from(root.len()).ok().filter(|_| root.len() <= ROOT_BYTES_MAX);
    let len = len.unwrap_or_else(|| panic!("a root of {} > {ROOT_BYTES_MAX} bytes", root.len()));
    let bytes = ROOT_HEADER_BYTES + root.len() + ROOT_CRC_BYTES;
    let mut frame = Vec::with_capacity(bytes);
    frame.extend_from_slice(&ROOT_MAGIC);
    coding::put_u32(&mut frame, ROOT_FRAME_VERSION);
    coding::put_u32(&mut frame, len);
    frame.extend_from_slice(root);
    let crc = checksum::mask(checksum::crc(&frame));
    coding::put_u32(&mut frame, crc);
    assert_eq!(frame.len(), bytes, "bytes of a root's frame and of its layout");
    frame
}

/// The root record in the file's content. Errors name `path`.
fn decode_root(path: &str, frame: &[u8]) -> Result<Vec<u8>> {
    let bad = |what: &str| Error::corruption(path, 0, what);
    let mut reader = coding::Reader::new(frame);
    if reader.take(ROOT_MAGIC.len()) != Some(&ROOT_MAGIC[..]) {
        return Err(bad("no root's magic number"));
    }
    let version = reader.u32().ok_or_else(|| bad("a root cut off in its header"))?;
    let bytes = reader.u32().ok_or_else(|| bad("a root cut off in its header"))? as usize;
    let root = reader.take(bytes).ok_or_else(|| bad("a root shorter than it says"))?;
    let covered = reader.position();
    let stored = reader.u32().ok_or_else(|| bad("a root without its checksum"))?;
    let computed = checksum::mask(checksum::crc(frame.get(..covered).unwrap_or_default()));
    if stored != computed {
        return Err(bad("a root with a wrong checksum"));
    }
    if !reader.is_empty() {
        return Err(bad("bytes behind the root"));
    }
    // After the checksum: a damaged version number is damage, not a newer version.
    if version != ROOT_FRAME_VERSION {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{path} has frame version {version}, this program knows {ROOT_FRAME_VERSION}; use \
                 a newer Weir"
            ),
        ));
    }
    Ok(root.to_vec())
}

impl Files {
    /// Creates a log of `bytes` bytes, which `fill` allocates; durable under its name before this
    /// returns.
    fn make_log(
        &self,
        kind: LogKind,
        number: SegmentNumber,
        bytes: u64,
        fill: impl FnOnce(&Arc<dyn File>) -> Result<()>,
    ) -> Result<Arc<dyn LogRegion>> {
        self.writable()?;
        assert!(number > SegmentNumber::ZERO, "segment 0 of {kind:?}: numbers begin with 1");
        if number.is_used_up() {
            return Err(Error::used_up("the numbers of log segments"));
        }
        let name = log_name(kind, number);
        let file = self.create_new(&name)?;
        self.fill_new(&name, || {
            fill(&file).map_err(Error::leaving_nothing_unknown)?;
            file.sync()?;
            self.dir.sync()
        })?;
        let size = if bytes > 0 { LogSize::Fixed(bytes) } else { LogSize::Grows };
        Ok(Arc::new(FileLog { file, size }))
    }
}

impl Storage for Files {
    fn adopt(&self, tables: &mut dyn Iterator<Item = LiveTable<'_>>) -> Result<()> {
        // The names tell where tables are, and nothing else may.
        let mut placed = tables.filter(|table| !table.place.extents().is_empty());
        let Some(LiveTable { uid, bytes, .. }) = placed.next() else {
            return Ok(());
        };
        let what =
            format_args!("its {bytes} bytes are said to lie in slots, which a directory has not");
        Err(Error::corruption(self.name_of(Object::Table(uid)), 0, what))
    }

    fn create_table(&self, uid: TableUid, bytes_hint: u64) -> Result<Box<dyn TableWriter>> {
        // File systems allocate at write-back, when the size is known: the hint adds nothing.
        let _ = bytes_hint;
        self.writable()?;
        assert!(uid > TableUid::NONE, "table 0: uids begin with 1");
        if uid.is_used_up() {
            return Err(Error::used_up("the numbers of tables"));
        }
        let name = table_name(uid);
        let file = self.create_new(&name)?;
        Ok(Box::new(FileTableWriter {
            dir: Arc::clone(&self.dir),
            removals: Arc::clone(&self.removals),
            file,
            name,
            buffer: PageVec::with_capacity(TABLE_BUFFER_BYTES),
            written: 0,
            handed_to_device: 0,
        }))
    }

    fn open_table(&self, uid: TableUid) -> Result<Arc<dyn TableSource>> {
        let opened = self.dir.open(&table_name(uid), FileClass::Table, Mode::Read);
        let file = opened.map_err(|error| {
            if error.kind() != ErrorKind::NotFound {
                return error.leaving_nothing_unknown();
            }
            Error::missing_table(self.name_of(Object::Table(uid)), error)
        })?;
        let bytes = file.len().map_err(Error::leaving_nothing_unknown)?;
        Ok(Arc::new(FileTable { file, bytes }))
    }

    fn remove_table(&self, uid: TableUid) -> Result<()> {
        self.remove(&table_name(uid))
    }

    fn list_tables(&self) -> Result<Vec<TableUid>> {
        self.list_names(|name| if let Name::Table(uid) = name { Some(uid) } else { None })
    }

    fn create_log(
        &self,
        kind: LogKind,
        number: SegmentNumber,
        bytes: u64,
    ) -> Result<Arc<dyn LogRegion>> {
        let fill = |file: &Arc<dyn File>| if bytes > 0 { file.allocate(bytes) } else { Ok(()) };
        self.make_log(kind, number, bytes, fill)
    }

    fn reserve_log(
        &self,
        kind: LogKind,
        number: SegmentNumber,
        bytes: u64,
    ) -> Result<Arc<dyn LogRegion>> {
        self.make_log(kind, number, bytes, |file| file.reserve(bytes))
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
        let (from, to) = (log_name(kind, old), log_name(kind, new));
        // A rename would replace it silently. The store is locked: it cannot be created in between.
        if self.list_logs(kind)?.contains(&new) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("cannot recycle {from} as {to} in {}: the name is taken", self.dir.path()),
            ));
        }
        self.removals.give_name(&to);
        self.dir.rename(&from, &to, class_of(&to))?;
        self.dir.sync()?;
        let file = self.open_file(&to, Mode::ReadWrite).map_err(Error::leaving_nothing_unknown)?;
        Ok(Arc::new(FileLog { file, size: LogSize::Found }))
    }

    fn open_log(&self, kind: LogKind, number: SegmentNumber) -> Result<Arc<dyn LogRegion>> {
        let mode = if self.read_only { Mode::Read } else { Mode::ReadWrite };
        let file = self.open_file(&log_name(kind, number), mode)?;
        Ok(Arc::new(FileLog { file, size: LogSize::Found }))
    }

    fn remove_log(&self, kind: LogKind, number: SegmentNumber) -> Result<()> {
        self.remove(&log_name(kind, number))
    }

    fn list_logs(&self, kind: LogKind) -> Result<Vec<SegmentNumber>> {
        self.list_names(|name| match name {
            Name::Log(k, number) if k == kind => Some(number),
            _ => None,
        })
    }

    fn read_root_record(&self) -> Result<Option<Vec<u8>>> {
        let file = match self.dir.open(ROOT, FileClass::Root, Mode::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let bytes = file.len()?;
        if bytes > ROOT_FILE_BYTES_MAX {
            return Err(Error::corruption(file.path(), 0, "a root larger than any root"));
        }
        let mut frame = vec![0; coding::to_usize(bytes)];
        file.read_exact_at(&mut frame, 0)?;
        decode_root(&file.path(), &frame).map(Some)
    }

    fn write_root_record(&self, root: &[u8], _: SegmentNumber) -> Result<()> {
        self.writable()?;
        let _one_at_a_time = self.root_in_work.lock();
        let file = match self.create_new(ROOT_TMP) {
            // A crash or a failed write has left it.
            Err(e) if e.kind() == ErrorKind::Conflict => {
                let removed = self.removals.remove(&*self.dir, ROOT_TMP);
                removed.map_err(Error::leaving_nothing_unknown)?;
                self.create_new(ROOT_TMP)?
            }
            other => other?,
        };
        self.fill_new(ROOT_TMP, || {
            file.write_at(&encode_root(root), 0)?;
            file.sync()
        })?;
        self.dir.rename(ROOT_TMP, ROOT, FileClass::Root).inspect_err(|_| self.give_up(ROOT_TMP))?;
        self.dir.sync()
    }

    fn remove_root_record(&self) -> Result<()> {
        self.writable()?;
        self.removals.remove(&*self.dir, ROOT)?;
        self.dir.sync()
    }

    fn sync_names(&self) -> Result<()> {
        self.writable()?;
        self.dir.sync()
    }

    fn finish_removals(&self) -> Result<()> {
        self.removals.settle(&*self.dir)
    }

    fn free_space(&self) -> FreeSpace {
        FreeSpace {
            table_bytes: self.dir.free_bytes().ok().flatten(),
            files: self.dir.free_files().ok().flatten(),
            ..FreeSpace::UNLIMITED
        }
    }

    fn open_tables_max(&self) -> Option<usize> {
        // The other half is for logs, for tables that jobs write, for those that are read while
        // they are being closed, and for the rest of the process.
        self.dir.open_files_max().map(|files| (files / 2).max(OPEN_TABLES_MIN))
    }

    fn unlock(&self) {
        // Dropped at the end, also if the device panics.
        let lock = self.lock.lock().take();
        self.removals.end(&*self.dir);
        drop(lock);
    }

    fn path(&self) -> String {
        self.dir.path()
    }

    fn name_of(&self, object: Object) -> String {
        match object {
            Object::Log(kind, SegmentNumber::ZERO) => {
                format!("{}/{}*.log", self.dir.path(), log_prefix(kind))
            }
            _ => format!("{}/{}", self.dir.path(), file_name(object)),
        }
    }
}

impl RepairStorage for Files {
    fn find_tables(&self) -> Result<Vec<TableUid>> {
        self.list_tables()
    }

    fn free_lost_name(&self, object: Object) -> Result<String> {
        let names = self.names()?;
        let plain = format!("{LOST_PREFIX}{}", file_name(object));
        Ok(free_name(&plain, &names))
    }

    fn set_aside(&self, object: Object) -> Result<Option<String>> {
        self.writable()?;
        let from = file_name(object);
        if !self.names()?.contains(&from) {
            return Ok(None);
        }
        let to = self.free_lost_name(object)?;
        self.dir.rename(&from, &to, class_of(&to))?;
        self.dir.sync()?;
        Ok(Some(to))
    }

    fn copy_aside(&self, object: Object) -> Result<Option<String>> {
        self.writable()?;
        let names = self.names()?;
        let from = file_name(object);
        if !names.contains(&from) {
            return Ok(None);
        }
        let source = match self.open_file(&from, Mode::Read) {
            // A pipe, a directory or the like: it cannot be copied.
            Err(error) if error.kind() == ErrorKind::Corruption => return self.set_aside(object),
            opened => opened?,
        };
        if object == Object::Root && source.len()? > ROOT_FILE_BYTES_MAX {
            return self.set_aside(object);
        }
        for name in names.iter().filter(|n| parse_name(n) == Some(Name::Lost(object))) {
            if self.open_file(name, Mode::Read).is_ok_and(|copy| same_bytes(&copy, &source)) {
                return Ok(Some(name.clone()));
            }
        }
        let to = self.free_lost_name(object)?;
        let file = self.dir.create(&to, class_of(&to))?;
        self.fill_new(&to, || {
            file.set_len(source.len()?)?;
            each_piece(&source, |offset, piece| file.write_at(piece, offset))?;
            file.sync()
        })?;
        self.dir.sync()?;
        Ok(Some(to))
    }

    fn list_lost(&self) -> Result<Vec<(String, Object)>> {
        let mut names = self.names()?;
        names.sort();
        let lost = names.into_iter().filter_map(|name| match parse_name(&name)? {
            Name::Lost(object) => Some((name, object)),
            _ => None,
        });
        Ok(lost.collect())
    }
}

/// A log in a file of its own.
struct FileLog {
    file: Arc<dyn File>,
    size: LogSize,
}

/// The length of a log's file.
#[derive(Clone, Copy)]
enum LogSize {
    /// That of what has been written.
    Grows,
    /// As allocated when it was created.
    Fixed(u64),
    /// The device knows it: the file was there before.
    Found,
}

impl LogRegion for FileLog {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        match parts {
            [one] => self.file.write_at(one, offset),
            several => self.file.write_parts_at(several, offset),
        }
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    fn capacity(&self) -> Result<u64> {
        if let LogSize::Fixed(bytes) = self.size { Ok(bytes) } else { self.file.len() }
    }

    fn grows(&self) -> bool {
        matches!(self.size, LogSize::Grows)
    }

    fn is_stale(&self) -> bool {
        matches!(self.size, LogSize::Found)
    }

    fn cut(&self, end: u64) -> Result<()> {
        if !self.grows() {
            let what = format!("{} has a fixed size and cannot be truncated", self.file.path());
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        self.file.set_len(end)
    }

    fn next_data(&self, offset: u64) -> Result<u64> {
        self.file.next_data(offset)
    }

    fn will_be_read(&self) {
        self.file.advise(0, 0, Advice::Sequential);
    }

    fn name(&self) -> String {
        self.file.path()
    }
}

/// A table file being written.
struct FileTableWriter {
    dir: Arc<dyn Dir>,
    removals: Arc<Removals>,
    file: Arc<dyn File>,
    name: String,
    buffer: PageVec<u8>,
    /// Bytes written to the file; `buffer` follows them.
    written: u64,
    /// Bytes whose write-back was started.
    handed_to_device: u64,
}

impl FileTableWriter {
    fn write_out(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        debug_assert!(self.handed_to_device <= self.written, "write-back ahead of the writes");
        let known = Error::leaving_nothing_unknown;
        self.file.write_at(&self.buffer, self.written).map_err(known)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        let waiting = self.written - self.handed_to_device;
        if waiting >= WRITE_BACK_BYTES {
            self.file.write_back(self.handed_to_device, waiting).map_err(known)?;
            self.handed_to_device = self.written;
        }
        Ok(())
    }
}

impl TableWriter for FileTableWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            debug_assert!(self.buffer.len() < TABLE_BUFFER_BYTES, "a full buffer was kept");
            let room = TABLE_BUFFER_BYTES - self.buffer.len();
            let (head, tail) = rest.split_at(room.min(rest.len()));
            self.buffer.extend_from_slice(head);
            rest = tail;
            if self.buffer.len() == TABLE_BUFFER_BYTES {
                self.write_out()?;
            }
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn end(mut self: Box<Self>) -> Result<Box<dyn WrittenTable>> {
        self.write_out()?;
        assert!(self.buffer.is_empty(), "{} ends before all of it is written", self.name);
        Ok(Box::new(WrittenFile(Arc::clone(&self.file))))
    }

    fn abandon(self: Box<Self>) {
        let removed = self.removals.remove(&*self.dir, &self.name);
        removed.ignore_error("it is retried; no version refers to the table");
    }
}

/// A table file of which all bytes are written.
struct WrittenFile(Arc<dyn File>);

impl WrittenTable for WrittenFile {
    fn place(&self) -> Place {
        Place::default()
    }

    fn sync(self: Box<Self>) -> Result<()> {
        self.0.sync()
    }
}

/// A finished table file.
struct FileTable {
    file: Arc<dyn File>,
    bytes: u64,
}

impl TableSource for FileTable {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(Error::leaving_nothing_unknown)
    }

    fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        self.file.advise(offset, bytes, advice);
    }

    fn len(&self) -> u64 {
        self.bytes
    }

    fn place(&self) -> Place {
        Place::default()
    }

    fn path(&self) -> String {
        self.file.path()
    }
}

mod found;
pub(crate) mod names;
mod pieces;
pub(super) mod removals;
#[cfg(test)]
mod tests;
