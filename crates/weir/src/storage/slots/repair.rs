//! What a repair needs of a store in slots.
//!
//! There are no names to keep a damaged object under: copies go to files beside the store's own
//! file, or in the directory that was chosen for a device. The object's place is then free.
//!
//! Not here: what is repaired, and how (`db::repair`).
//!
//! Invariant: a trailer proves that a table was once written, not that it lives (H72): only tables
//! that a version names, or a repair that was asked for it, are found here. What trailers tell is
//! given under another name, and nothing but such a repair asks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::ids::{SegmentNumber, TableUid};
use crate::device::{Dir, File, FileClass, Mode};
use crate::storage::files::names::free_name;
use crate::storage::slots::{Slots, superblock, trailers};
use crate::storage::{LogKind, Object, RepairStorage, Storage, WrittenTables};

/// Where copies of damaged objects go.
pub(crate) struct Aside {
    pub(crate) dir: Arc<dyn Dir>,
    /// What their names begin with: that of the store's file.
    pub(crate) prefix: String,
}

/// Bytes that are copied at once.
const COPY_BYTES: u64 = 1 << 20;

fn plain_name(object: Object) -> String {
    match object {
        Object::Root => "root".to_owned(),
        Object::Table(uid) => format!("{:06}.tbl", uid.get()),
        Object::Log(LogKind::Wal, number) => format!("wal-{:06}.log", number.get()),
        Object::Log(LogKind::Versions, number) => format!("versions-{:06}.log", number.get()),
    }
}

fn parse_name(name: &str) -> Option<Object> {
    let number = |text: &str, after: &str| text.strip_suffix(after)?.parse::<u64>().ok();
    let log =
        |kind, text: &str| number(text, ".log").map(|n| Object::Log(kind, SegmentNumber::new(n)));
    if name == "root" {
        return Some(Object::Root);
    }
    if let Some(rest) = name.strip_prefix("wal-") {
        return log(LogKind::Wal, rest);
    }
    if let Some(rest) = name.strip_prefix("versions-") {
        return log(LogKind::Versions, rest);
    }
    number(name, ".tbl").map(|uid| Object::Table(TableUid::new(uid)))
}

impl Slots {
    fn aside(&self) -> Result<&Aside> {
        self.aside.as_ref().ok_or_else(|| {
            let what = format!(
                "damaged parts of {} are to be kept, and a device has no place beside it; name a \
                 directory for them (`--keep-in`)",
                self.path
            );
            Error::invalid(what)
        })
    }

    /// Copies an object into a new file, durably; its name. `None` if there is no such object.
    fn copy(&self, object: Object) -> Result<Option<String>> {
        let Some((bytes, mut read)) = self.content(object)? else { return Ok(None) };
        let name = self.free_lost_name(object)?;
        let Aside { dir, .. } = self.aside()?;
        let file = dir.create(&name, FileClass::Other)?;
        let copied = copy_into(&*file, bytes, &mut read).and_then(|()| file.sync());
        if copied.is_err() {
            let _ = dir.unlink(&name, FileClass::Other);
        }
        copied.and_then(|()| dir.sync()).map_err(|error| match error.kind() {
            ErrorKind::NoSpace => {
                let what = format!(
                    "there is no room for {name}, a copy of {bytes} bytes of {}: name a directory \
                     that has it (`--keep-in`)",
                    self.path
                );
                Error::with_source(ErrorKind::NoSpace, what, error)
            }
            _ => error,
        })?;
        Ok(Some(name))
    }

    /// An object's length, and a function that reads of it.
    fn content(&self, object: Object) -> Result<Option<(u64, ReadAt<'_>)>> {
        match object {
            Object::Root => {
                let record = self.read_root_record()?;
                Ok(record.map(|record| -> (u64, ReadAt<'_>) {
                    let read = move |buf: &mut [u8], at: u64| {
                        buf.copy_from_slice(&record[at as usize..at as usize + buf.len()]);
                        Ok(())
                    };
                    (self.root_bytes(), Box::new(read))
                }))
            }
            Object::Table(uid) => match self.open_table(uid) {
                Ok(table) => {
                    let bytes = table.len();
                    Ok(Some((bytes, Box::new(move |buf, at| table.read_exact_at(buf, at)))))
                }
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
            Object::Log(kind, number) => match self.open_log(kind, number) {
                Ok(log) => {
                    let bytes = log.capacity()?;
                    let read = move |buf: &mut [u8], at: u64| log.read_at(buf, at).map(|_| ());
                    Ok(Some((bytes, Box::new(read))))
                }
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    fn root_bytes(&self) -> u64 {
        let superblocks = self.superblocks.lock();
        superblocks.current().root.as_ref().map_or(0, |root| root.record.len() as u64)
    }
}

type ReadAt<'a> = Box<dyn FnMut(&mut [u8], u64) -> Result<()> + 'a>;

fn copy_into(file: &dyn File, bytes: u64, read: &mut ReadAt<'_>) -> Result<()> {
    let mut at = 0;
    while at < bytes {
        let mut piece = vec![0; COPY_BYTES.min(bytes - at) as usize];
        read(&mut piece, at)?;
        file.write_at(&piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

impl RepairStorage for Slots {
    fn cut_off_bytes(&self) -> u64 {
        self.cut_off_bytes
    }

    fn lengthen(&self) -> Result<()> {
        if self.cut_off_bytes == 0 {
            return Ok(());
        }
        let bytes = self.whole.len()?;
        let end = bytes + self.cut_off_bytes;
        self.whole.reserve(end).map_err(|error| {
            // A file system may have made it longer before it found no room.
            let shortened = self.whole.set_len(bytes);
            shortened.ignore_error("the zeros at its end hold nothing");
            let what = format!(
                "{} was cut off at {bytes} of {end} bytes, and cannot be made longer again for a \
                 repair ({error}); copy it to a file or a device that has room for that, and \
                 repair the copy",
                self.path
            );
            Error::with_source(error.kind(), what, error)
        })
    }

    fn shorten(&self) -> Result<()> {
        if self.cut_off_bytes == 0 {
            return Ok(());
        }
        self.whole.set_len(self.whole.len()? - self.cut_off_bytes)
    }

    fn find_tables(&self) -> Result<Vec<TableUid>> {
        self.list_tables()
    }

    fn finds_all_tables(&self) -> bool {
        false
    }

    fn written_tables(&self) -> Result<WrittenTables> {
        let (space, generation) = (&self.space, self.superblocks.lock().current().generation);
        Ok(trailers::assemble(space.trailers()?, |extent| space.room(extent), generation))
    }

    fn begin_rebuild(&self, told: Option<SegmentNumber>) {
        let generation = self.superblocks.lock().current().generation;
        self.space.repairs.store(generation, Ordering::Relaxed);
        self.told.store(told.map_or(0, SegmentNumber::get), Ordering::Relaxed);
    }

    fn unnamed_log(&self) -> Option<SegmentNumber> {
        self.lost.and_then(|(log, _)| log)
    }

    fn lost_root(&self) -> Option<Error> {
        self.lost.map(|(log, _)| {
            let what = match log {
                Some(_) => "both copies are lost",
                None => {
                    "both copies are lost, and so is the head of a half of the version log, which \
                     may have been the half in use"
                }
            };
            Error::corruption(superblock::name_in(&self.path), 0, what)
        })
    }

    fn restore_copies(&self) -> Result<bool> {
        let mut superblocks = self.superblocks.lock();
        let was_damaged = superblocks.sound() == 1;
        if was_damaged {
            superblocks.replace(|_| {})?;
        }
        Ok(was_damaged)
    }

    fn set_aside(&self, object: Object) -> Result<Option<String>> {
        let name = self.copy_aside(object)?;
        match object {
            _ if name.is_none() => {}
            Object::Root => {}
            Object::Table(uid) => self.remove_table(uid)?,
            Object::Log(kind, number) => self.remove_log(kind, number)?,
        }
        Ok(name)
    }

    fn copy_aside(&self, object: Object) -> Result<Option<String>> {
        let Some((bytes, mut read)) = self.content(object)? else { return Ok(None) };
        let Aside { dir, .. } = self.aside()?;
        for (name, _) in self.list_lost()?.into_iter().filter(|(_, lost)| *lost == object) {
            let copy = dir.open(&name, FileClass::Other, Mode::Read)?;
            if copy.len()? == bytes && same_bytes(&*copy, bytes, &mut read)? {
                return Ok(Some(name));
            }
        }
        self.copy(object)
    }

    fn free_lost_name(&self, object: Object) -> Result<String> {
        let Aside { dir, prefix } = self.aside()?;
        let names = dir.list()?;
        let plain = format!("{prefix}.lost-{}", plain_name(object));
        Ok(free_name(&plain, &names))
    }

    fn list_lost(&self) -> Result<Vec<(String, Object)>> {
        let Some(Aside { dir, prefix }) = &self.aside else { return Ok(Vec::new()) };
        let start = format!("{prefix}.lost-");
        let mut lost = Vec::new();
        for name in dir.list()? {
            let Some(rest) = name.strip_prefix(&start) else { continue };
            let plain = |rest: &str| parse_name(rest);
            // A counter may follow.
            let object = plain(rest).or_else(|| plain(rest.rsplit_once('.')?.0));
            lost.extend(object.map(|object| (name.clone(), object)));
        }
        lost.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(lost)
    }
}

fn same_bytes(file: &dyn File, bytes: u64, read: &mut ReadAt<'_>) -> Result<bool> {
    let mut at = 0;
    while at < bytes {
        let piece = COPY_BYTES.min(bytes - at) as usize;
        let (mut ours, mut theirs) = (vec![0; piece], vec![0; piece]);
        read(&mut ours, at)?;
        if file.read_at(&mut theirs, at)? < piece || ours != theirs {
            return Ok(false);
        }
        at += piece as u64;
    }
    Ok(true)
}
