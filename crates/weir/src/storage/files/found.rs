//! Whether a directory is a store, vacant, or somebody else's.

use crate::base::error::{Error, Result};
use crate::device::Dir;
use crate::storage::LogKind;
use crate::storage::files::{LOST_AND_FOUND, Name, ROOT, parse_name};

/// What a directory looks like before it is opened.
pub(super) enum Found {
    /// It has a root.
    Store,
    /// Nothing, or what a creation that crashed leaves behind.
    Vacant(Vec<String>),
}

pub(super) fn inspect(dir: &dyn Dir) -> Result<Found> {
    let names = dir.list()?;
    if names.iter().any(|n| n == ROOT) {
        return Ok(Found::Store);
    }
    let mut ours = Vec::new();
    let mut data = None;
    for name in names {
        match parse_name(&name) {
            None if name == LOST_AND_FOUND => {}
            None => {
                return Err(Error::invalid(format!(
                    "the directory {} is not a Weir store: it has no ROOT and holds \"{name}\"; it \
                     was left untouched; name a store's directory, or an empty one for a new store",
                    dir.path()
                )));
            }
            // The root is durable before the first table or write-ahead log exists.
            Some(Name::Table(_) | Name::Log(LogKind::Wal, _) | Name::Lost(_)) => data = Some(name),
            Some(_) => ours.push(name),
        }
    }
    match data {
        None => Ok(Found::Vacant(ours)),
        Some(name) => Err(Error::corruption(
            format!("{}/{ROOT}", dir.path()),
            0,
            format_args!("the root is missing although there is data (\"{name}\")"),
        )),
    }
}
