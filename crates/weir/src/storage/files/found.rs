//! Whether a directory holds a store, nothing, or foreign files.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::error::{Error, Result};
use crate::device::Dir;
use crate::storage::LogKind;
use crate::storage::files::names::{LOST_AND_FOUND, Name, ROOT, ROOT_TMP, parse_name};

/// The state of a directory before it is opened.
pub(super) enum Found {
    /// It has a root.
    Store,
    /// It has no root and no data: the names of files that a crashed creation has left.
    Vacant(Vec<String>),
}

/// Inspects `dir` without changing it; `may_create`: a store could be created there.
///
/// # Errors
/// `InvalidArgument` if it holds foreign files and no root, `Corruption` if it holds data but no
/// root, the device's.
pub(super) fn inspect(dir: &dyn Dir, may_create: bool) -> Result<Found> {
    let names = dir.list()?;
    if names.iter().any(|n| n == ROOT) {
        return Ok(Found::Store);
    }
    let mut ours = Vec::new();
    let mut data = None;
    let mut misplaced = Vec::new();
    let foreign = |name: &str| {
        Err(Error::invalid(format!(
            "the directory {} is not a Weir store: it has no ROOT and holds \"{name}\"; it was \
             left untouched; name a store's directory{}",
            dir.path(),
            if may_create { ", or an empty one for a new store" } else { "" }
        )))
    };
    for name in names {
        match parse_name(&name) {
            None if name == LOST_AND_FOUND => {}
            None if name.strip_suffix('/').and_then(parse_name).is_some() => misplaced.push(name),
            None => return foreign(&name),
            // The root is durable before the first table or write-ahead log exists.
            Some(Name::Table(_) | Name::Log(LogKind::Wal, _) | Name::Lost(_)) => data = Some(name),
            Some(_) => ours.push(name),
        }
    }
    match data {
        None => misplaced.first().map_or(Ok(Found::Vacant(ours)), |name| foreign(name)),
        Some(_) if has_dir(&misplaced, ROOT) => Err(in_the_way(dir, ROOT)),
        Some(name) => Err(Error::corruption(
            format!("{}/{ROOT}", dir.path()),
            0,
            format_args!("the root is missing although there is data (\"{name}\")"),
        )),
    }
}

fn has_dir(names: &[String], name: &str) -> bool {
    names.iter().any(|n| n.strip_suffix('/') == Some(name))
}

fn in_the_way(dir: &dyn Dir, name: &str) -> Error {
    Error::misplaced(format!("{}/{name}", dir.path()), "a directory")
}

/// Refuses a subdirectory called `ROOT.tmp`: no root could be written, and the files in it are not
/// the store's to remove.
///
/// # Errors
/// `Corruption` that names it; the device's.
pub(super) fn check_root_tmp(dir: &dyn Dir) -> Result<()> {
    if has_dir(&dir.list()?, ROOT_TMP) { Err(in_the_way(dir, ROOT_TMP)) } else { Ok(()) }
}
