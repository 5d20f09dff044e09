//! Where a store is, and the form that its storage has there: the one place that chooses it.
//!
//! Today every store is in a directory (`files`). Not here: what is in it (`db::open`).

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

/// What to do where no store is and none may be made.
pub(super) fn absent_advice(options: OpenOptions) -> &'static str {
    if options.read_only {
        "an opening for reading only makes none; correct the path"
    } else {
        "allow its creation (`create_if_missing`) or correct the path"
    }
}

impl Location {
    /// Opens or creates the store and locks it; its requests are counted in `io`.
    ///
    /// # Errors
    /// `NotFound` if there is no store and none may be made; `InvalidArgument` if the place is
    /// taken by something else, `Locked`, `Corruption` if there is a part of a store only, the
    /// device's.
    pub(crate) fn open(
        self,
        options: OpenOptions,
        io: &Arc<IoCounters>,
    ) -> Result<Arc<dyn Storage>> {
        let dir = match self {
            Self::Dir(dir) => dir,
            Self::Path(path) => RealDir::open(&path, options.create).map_err(|error| {
                // Where it may be made, the error says why it cannot be.
                if error.kind() != ErrorKind::NotFound || options.create {
                    return error;
                }
                let advice = absent_advice(options);
                let what = format!("there is no store in {}; {advice}", path.display());
                Error::with_source(ErrorKind::NotFound, what, error)
            })?,
        };
        let dir = CountedDir::over(dir, Arc::clone(io));
        Ok(Arc::new(Files::open(dir, options)?))
    }

    /// Opens what is left of a store and locks it.
    ///
    /// # Errors
    /// `NotFound` if there is nothing of a store, `InvalidArgument` if the place is taken by
    /// something else, `Locked`, the device's. Nothing is changed then.
    pub(crate) fn open_damaged(self) -> Result<Arc<dyn RepairStorage>> {
        let dir = match self {
            Self::Dir(dir) => dir,
            Self::Path(path) => RealDir::open(&path, false)?,
        };
        Ok(Arc::new(Files::open_damaged(dir)?))
    }

    /// Removes the store. That there is none is no error.
    ///
    /// # Errors
    /// `InvalidArgument` if the place is taken by something else, `Locked`, the device's.
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
