//! The location of a store, and the choice of its storage's form: a directory (`files`),
//! or a file or block device (`slots`).
//!
//! Not here: recovery of what the storage holds (`db::open`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
#[cfg(feature = "sim")]
use crate::device::FileClass;
use crate::device::real::RealDir;
use crate::device::real::ground::{self, PathKind};
use crate::device::{Dir, File, Mode};
use crate::storage::files::Files;
use crate::storage::io::{CountedDir, IoCounters, counted_file};
use crate::storage::slots::{self, Aside, FormatOptions, Ground, Slots};
use crate::storage::{OpenOptions, RepairStorage, Storage};

/// Makes the file or block device at `path` an empty store; a file that does not exist is created
/// with its size allocated. [`Db::open`](crate::Db::open) on the path then just works. Superblocks
/// and logs are written with zeros, the rest when it is first used ([`FormatOptions::zero`]).
///
/// # Errors
/// `InvalidArgument` if an option does not fit or the path is a directory; `Conflict` if it holds
/// something and [`FormatOptions::force`] is not set: the error says what; `Locked` if it is a
/// store that is open, a device that is mounted or in use, or a file behind a loop device;
/// `NoSpace`; `Io`. What was there is as it was then, but for an error of the device in the
/// middle: it is no store then, and a file that was created is removed.
pub fn format(path: impl AsRef<Path>, options: &FormatOptions) -> Result<()> {
    let path = path.as_ref();
    match ground::kind_of(path) {
        PathKind::Nothing => create_file(path, options),
        PathKind::File | PathKind::BlockDevice => {
            let ground::Ground { file, direct, is_cached, lock } =
                ground::open(path, Mode::ReadWrite, false)?;
            refuse_content(&file, options)?;
            let ground = Ground { file, slots: direct, is_cached, lock, aside: None };
            let size = options.size.unwrap_or(0);
            let has = ground.file.len()?;
            let is_file = ground::kind_of(path) == PathKind::File;
            if size > 0 && size != has && !(is_file && size > has) {
                return Err(Error::invalid(format!(
                    "{} has {has} bytes, not {size}; leave the size out, or choose another path",
                    path.display()
                )));
            }
            // Before the file is changed.
            Slots::check_options(options, size.max(has))?;
            if is_file {
                // Also where it has its length already: it may have holes.
                ground.file.reserve(size.max(has))?;
            }
            Slots::format(&ground, options)
        }
        PathKind::Other => Err(Error::invalid(format!(
            "{} is a directory or the like; a store in a directory needs no formatting, and one in \
             a file a path that is free",
            path.display()
        ))),
    }
}

/// Refuses a file or device that holds something, unless that may be lost.
fn refuse_content(file: &Arc<dyn File>, options: &FormatOptions) -> Result<()> {
    let (Some(found), false) = (slots::format::content_of(file)?, options.force) else {
        return Ok(());
    };
    let what = format!(
        "{} holds {found}; nothing was changed: choose another path, or lose that by `force`",
        file.path()
    );
    Err(Error::new(ErrorKind::Conflict, what))
}

fn create_file(path: &Path, options: &FormatOptions) -> Result<()> {
    let Some(size) = options.size else {
        return Err(Error::invalid(format!(
            "there is no {}; say how large the file shall be (`size`)",
            path.display()
        )));
    };
    Slots::check_options(options, size)?;
    let ground::Ground { file, direct, is_cached, lock } =
        ground::open(path, Mode::ReadWrite, true)?;
    let ground = Ground { file, slots: direct, is_cached, lock, aside: None };
    // What was there, or has come meanwhile, is not this call's to remove.
    format_new(path, size, &ground, options).inspect_err(|_| ground::remove(path))
}

/// Makes a file that was just created, and is empty, a store.
fn format_new(path: &Path, size: u64, ground: &Ground, options: &FormatOptions) -> Result<()> {
    ground::write_in_place(path);
    ground.file.reserve(size)?;
    ground.file.sync()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    RealDir::open(parent.unwrap_or(Path::new(".")), false)?.sync()?;
    Slots::format(ground, options)
}

/// Makes the file `name` of `dir`, which may be there, an empty store of `bytes` bytes. For
/// simulations.
///
/// # Errors
/// As [`format()`].
#[cfg(feature = "sim")]
pub fn format_in(
    dir: &Arc<dyn Dir>,
    name: &str,
    bytes: u64,
    options: &FormatOptions,
) -> Result<()> {
    let is_there = dir.list()?.iter().any(|there| there == name);
    let file = match is_there {
        true => {
            let file = dir.open(name, FileClass::Other, Mode::ReadWrite)?;
            refuse_content(&file, options)?;
            file
        }
        false => dir.create(name, FileClass::Other)?,
    };
    if file.len()? != bytes {
        file.set_len(bytes)?;
    }
    file.sync()?;
    dir.sync()?;
    let lock = dir.lock(name)?;
    let ground = Ground { slots: Arc::clone(&file), file, is_cached: false, lock, aside: None };
    Slots::format(&ground, options)
}

/// Where a repair of a store in a file keeps copies: beside the file. A device has no such place.
fn aside_of(path: &Path) -> Option<Aside> {
    if ground::kind_of(path) != PathKind::File {
        return None;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let dir = RealDir::open(parent.unwrap_or(Path::new(".")), false).ok()?;
    let prefix = path.file_name()?.to_str()?.to_owned();
    Some(Aside { dir, prefix })
}

/// Where a store is.
#[derive(Clone)]
pub(crate) enum Location {
    /// A path of the operating system.
    Path(PathBuf),
    /// A directory that is already open: a simulated one, or one with faults.
    Dir(Arc<dyn Dir>),
    /// A file of such a directory.
    #[cfg(feature = "sim")]
    File(Arc<dyn Dir>, String),
}

impl Location {
    /// Whether the other one is the same path, or leads to the same place.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Path(a), Self::Path(b)) if ground::are_same(a, b))
    }

    /// The file or device that the store is in; `None`: it is in a directory.
    fn ground(&self, mode: Mode) -> Result<Option<Ground>> {
        match self {
            Self::Path(path) => match ground::kind_of(path) {
                PathKind::File | PathKind::BlockDevice => {
                    let ground::Ground { file, direct, is_cached, lock } =
                        ground::open(path, mode, false)?;
                    Ok(Some(Ground { file, slots: direct, is_cached, lock, aside: aside_of(path) }))
                }
                PathKind::Nothing | PathKind::Other => Ok(None),
            },
            Self::Dir(_) => Ok(None),
            #[cfg(feature = "sim")]
            Self::File(dir, name) => {
                let lock = dir.lock(name)?;
                let file = dir.open(name, FileClass::Other, mode)?;
                let aside = Some(Aside { dir: Arc::clone(dir), prefix: name.clone() });
                Ok(Some(Ground { slots: Arc::clone(&file), file, is_cached: false, lock, aside }))
            }
        }
    }

    /// Copies of what is damaged in a file or a device go to `dir`, and are called after it.
    fn aside_in(&self, dir: &Path) -> Result<Aside> {
        let prefix = match self {
            Self::Path(path) => path.file_name().and_then(|name| name.to_str()).map(str::to_owned),
            Self::Dir(_) => None,
            #[cfg(feature = "sim")]
            Self::File(_, name) => Some(name.clone()),
        };
        let dir = RealDir::open(dir, false).map_err(|error| {
            let what = format!(
                "the directory {}, in which damaged parts are to be kept, cannot be opened; create \
                 it or name another one",
                dir.display()
            );
            Error::with_source(error.kind(), what, error)
        })?;
        Ok(Aside { dir, prefix: prefix.unwrap_or_else(|| "store".to_owned()) })
    }

    /// Opens or creates the store and locks it; its requests are counted in `io`. `discards`: a
    /// device is told of space that becomes free.
    ///
    /// # Errors
    /// `NotFound` if there is no store and none may be created; `InvalidArgument` if the directory
    /// holds foreign files, `Locked`, `Corruption` if there are tables or logs but no root, the
    /// device's.
    pub(crate) fn open(
        self,
        options: OpenOptions,
        discards: bool,
        io: &Arc<IoCounters>,
    ) -> Result<Arc<dyn Storage>> {
        let mode = if options.read_only { Mode::Read } else { Mode::ReadWrite };
        if let Some(ground) = self.ground(mode)? {
            self.keep_allocated(&ground, mode)?;
            let (file, slots) = (counted_file(ground.file, io), counted_file(ground.slots, io));
            let ground = Ground { file, slots, ..ground };
            let slots = Slots::open(ground, options.read_only, discards)?;
            if options.read_only && slots.read_root_record()?.is_none() {
                let what = format!(
                    "the store in {} was formatted and never opened; open it once for writing",
                    slots.path()
                );
                return Err(Error::new(ErrorKind::NotFound, what));
            }
            return Ok(Arc::new(slots));
        }
        let dir = match self {
            Self::Dir(dir) => dir,
            #[cfg(feature = "sim")]
            Self::File(dir, _) => dir,
            Self::Path(path) => RealDir::open(&path, options.create).map_err(|error| {
                if error.kind() != ErrorKind::NotFound {
                    return error;
                }
                let advice = options.absent_advice();
                let what = format!("there is no store in {}; {advice}", path.display());
                Error::with_source(ErrorKind::NotFound, what, error)
            })?,
        };
        let dir = CountedDir::over(dir, Arc::clone(io));
        Ok(Arc::new(Files::open(dir, options)?))
    }

    /// Gives a store's file the space of its holes, which a copy may have: its slots are its own,
    /// and nobody else fills them (H36).
    ///
    /// # Errors
    /// `NoSpace` if the file system has too little for that; the device's.
    fn keep_allocated(&self, ground: &Ground, mode: Mode) -> Result<()> {
        let is_file = matches!(self, Self::Path(path) if ground::kind_of(path) == PathKind::File);
        let bytes = ground.file.len()?;
        if mode == Mode::Read || !is_file || !Slots::is_store(ground)? {
            return Ok(());
        }
        ground.file.reserve(bytes).map_err(|error| {
            if error.kind() != ErrorKind::NoSpace {
                return error;
            }
            let path = ground.file.path();
            let what = format!(
                "{path} has holes, as copies have, and its file system has no room for all of its \
                 {bytes} bytes; free space there, or open the store with `read_only`"
            );
            Error::with_source(ErrorKind::NoSpace, what, error)
        })
    }

    /// Opens a damaged store for a repair, with or without a root, and locks it. `keep_in`: the
    /// directory for copies of what is damaged, of a store in slots.
    ///
    /// # Errors
    /// `NotFound` if there are no files of a store, or no `keep_in`; `InvalidArgument` if the
    /// directory holds foreign files, or has copies in it; `Locked`, the device's. Nothing is
    /// changed then.
    pub(crate) fn open_damaged(self, keep_in: Option<&Path>) -> Result<Arc<dyn RepairStorage>> {
        if let Some(mut ground) = self.ground(Mode::ReadWrite)? {
            if let Some(dir) = keep_in {
                ground.aside = Some(self.aside_in(dir)?);
            }
            return Ok(Arc::new(Slots::open_damaged(ground)?));
        }
        if keep_in.is_some() {
            let what = "a store in a directory keeps what is damaged there itself; leave out the \
                        directory for it";
            return Err(Error::invalid(what));
        }
        let dir = match self {
            Self::Dir(dir) => dir,
            #[cfg(feature = "sim")]
            Self::File(dir, _) => dir,
            Self::Path(path) => RealDir::open(&path, false).map_err(|error| {
                if error.kind() != ErrorKind::NotFound {
                    return error;
                }
                let what = format!(
                    "there is no store in {}: the directory does not exist; correct the path",
                    path.display()
                );
                Error::with_source(ErrorKind::NotFound, what, error)
            })?,
        };
        Ok(Arc::new(Files::open_damaged(dir)?))
    }

    /// Removes the store; a store that does not exist is no error.
    ///
    /// # Errors
    /// `InvalidArgument` if the directory holds foreign files, `Locked`, the device's.
    pub(crate) fn destroy(self) -> Result<()> {
        if let Some(ground) = self.ground(Mode::ReadWrite)? {
            return Slots::destroy(&ground);
        }
        let destroyed = match self {
            Self::Dir(dir) => Files::destroy(&*dir),
            #[cfg(feature = "sim")]
            Self::File(dir, _) => Files::destroy(&*dir),
            Self::Path(path) => RealDir::open(&path, false).and_then(|dir| Files::destroy(&*dir)),
        };
        match destroyed {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            destroyed => destroyed,
        }
    }
}
