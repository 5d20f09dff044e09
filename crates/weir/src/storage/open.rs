//! The location of a store, and the choice of its storage's form: a directory (`files`).
//!
//! Not here: recovery of what the storage holds (`db::open`).

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::device::Dir;
use crate::device::real::RealDir;
use crate::storage::files::Files;
use crate::storage::io::{CountedDir, IoCounters};
use crate::storage::{OpenOptions, RepairStorage, Storage};

/// Where a store is.
pub(crate) enum Location {
    /// A path of the operating system.
    Path(PathBuf),
    /// A directory that is already open: a simulated one, or one with faults.
    Dir(Arc<dyn Dir>),
}

impl Location {
    /// Opens or creates the store and locks it; its requests are counted in `io`.
    ///
    /// # Errors
    /// `NotFound` if there is no store and none may be created; `InvalidArgument` if the directory
    /// holds foreign files, `Locked`, `Corruption` if there are tables or logs but no root, the
    /// device's.
    pub(crate) fn open(
        self,
        options: OpenOptions,
        io: &Arc<IoCounters>,
    ) -> Result<Arc<dyn Storage>> {
        let dir = match self {
            Self::Dir(dir) => dir,
            Self::Path(path) => RealDir::open(&path, options.create).map_err(|error| {
                // If it may be created, the error says why that failed.
                if error.kind() != ErrorKind::NotFound || options.create {
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

    /// Opens a damaged store for a repair, with or without a root, and locks it.
    ///
    /// # Errors
    /// `NotFound` if there are no files of a store, `InvalidArgument` if the directory holds
    /// foreign files, `Locked`, the device's. Nothing is changed then.
    pub(crate) fn open_damaged(self) -> Result<Arc<dyn RepairStorage>> {
        let dir = match self {
            Self::Dir(dir) => dir,
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
        let destroyed = match self {
            Self::Dir(dir) => Files::destroy(&*dir),
            Self::Path(path) => RealDir::open(&path, false).and_then(|dir| Files::destroy(&*dir)),
        };
        match destroyed {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            destroyed => destroyed,
        }
    }
}
