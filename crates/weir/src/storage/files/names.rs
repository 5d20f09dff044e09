// FORMAT: docs/format/directory.md sha=ffaefc8b305b
//! The names of a store's files in its directory, and the class of file that each stands for.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use crate::base::ids::{NUMBERS_END, SegmentNumber, TableUid};
use crate::device::FileClass;
use crate::storage::{LogKind, Object};

pub(super) const LOCK: &str = "LOCK";
pub(super) const ROOT: &str = "ROOT";
pub(super) const ROOT_TMP: &str = "ROOT.tmp";

/// Made by `mkfs` at the top of a file system; not a reason to refuse the directory.
pub(super) const LOST_AND_FOUND: &str = "lost+found/";

/// Fewest digits of a number in a name, so that lists sort by number for the first million files.
const DIGITS_MIN: usize = 6;

/// A name in the directory, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Lock,
    Root,
    RootTmp,
    Table(TableUid),
    Log(LogKind, SegmentNumber),
    Lost(Object),
}

/// The name of an object in the directory.
pub(super) fn file_name(object: Object) -> String {
    match object {
        Object::Root => ROOT.to_owned(),
        Object::Table(uid) => table_name(uid),
        Object::Log(kind, number) => log_name(kind, number),
    }
}

/// Prefix of the names of files that a repair sets aside.
pub(super) const LOST_PREFIX: &str = "lost-";

/// The file of table `uid`.
pub(super) fn table_name(uid: TableUid) -> String {
    format!("{uid:06}.tbl")
}

/// Prefix of the names of logs of `kind`.
pub(super) fn log_prefix(kind: LogKind) -> &'static str {
    match kind {
        LogKind::Wal => "wal-",
        LogKind::Versions => "versions-",
    }
}

/// The file of a log.
pub(super) fn log_name(kind: LogKind, number: SegmentNumber) -> String {
    format!("{}{number:06}.log", log_prefix(kind))
}

/// The number in its one spelling: at least [`DIGITS_MIN`] digits, zeros in front only up to there.
fn parse_number(digits: &str) -> Option<u64> {
    let plain = digits.len() >= DIGITS_MIN && digits.bytes().all(|b| b.is_ascii_digit());
    if !plain || (digits.len() > DIGITS_MIN && digits.starts_with('0')) {
        return None;
    }
    digits.parse().ok().filter(|&number| number < NUMBERS_END)
}

/// The object in `lost-NAME` or `lost-NAME.N`, given what follows the prefix.
fn parse_lost(rest: &str) -> Option<Object> {
    let object = |name: &str| match parse_name(name)? {
        Name::Root => Some(Object::Root),
        Name::Table(uid) => Some(Object::Table(uid)),
        Name::Log(kind, number) => Some(Object::Log(kind, number)),
        Name::Lock | Name::RootTmp | Name::Lost(_) => None,
    };
    object(rest).or_else(|| {
        let (name, count) = rest.rsplit_once('.')?;
        let plain = !count.starts_with('0') && count.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| count.parse::<u32>().ok()).flatten()?;
        object(name)
    })
}

/// Parses `name`; `None` for a foreign file's.
pub(super) fn parse_name(name: &str) -> Option<Name> {
    if let Some(rest) = name.strip_prefix(LOST_PREFIX) {
        return parse_lost(rest).map(Name::Lost);
    }
    match name {
        LOCK => return Some(Name::Lock),
        ROOT => return Some(Name::Root),
        ROOT_TMP => return Some(Name::RootTmp),
        _ => {}
    }
    if let Some(digits) = name.strip_suffix(".tbl") {
        return parse_number(digits).map(|uid| Name::Table(TableUid::new(uid)));
    }
    let stem = name.strip_suffix(".log")?;
    [LogKind::Wal, LogKind::Versions].into_iter().find_map(|kind| {
        let digits = stem.strip_prefix(log_prefix(kind))?;
        parse_number(digits).map(|number| Name::Log(kind, SegmentNumber::new(number)))
    })
}

/// The class of the file `name`.
#[must_use]
pub fn class_of(name: &str) -> FileClass {
    match parse_name(name) {
        Some(Name::Lock) => FileClass::Lock,
        Some(Name::Root | Name::RootTmp) => FileClass::Root,
        Some(Name::Table(_)) => FileClass::Table,
        Some(Name::Log(LogKind::Wal, _)) => FileClass::Wal,
        Some(Name::Log(LogKind::Versions, _)) => FileClass::Versions,
        Some(Name::Lost(_)) | None => FileClass::Other,
    }
}

/// `plain`, or with the least number behind it that is not among `names`.
pub(crate) fn free_name(plain: &str, names: &[String]) -> String {
    let numbered = (2..).map(|number: u64| format!("{plain}.{number}"));
    let mut all = std::iter::once(plain.to_owned()).chain(numbered);
    all.find(|name| !names.contains(name)).unwrap_or_else(|| plain.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        use FileClass::{Lock, Other, Root, Table, Versions, Wal};
        let names = [
            ("wal-000001.log", Wal),
            ("versions-000001.log", Versions),
            ("000001.tbl", Table),
            ("ROOT", Root),
            ("ROOT.tmp", Root),
            ("LOCK", Lock),
            ("lost-000001.tbl", Other),
            ("x", Other),
        ];
        assert!(names.into_iter().all(|(name, class)| class_of(name) == class));
    }
}
