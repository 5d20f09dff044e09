//! Salvage of the tree from a damaged root record or version log, for `repair`.
//!
//! Reads only. Not here: the comparison of the result with the tables and the write-ahead log
//! (`db::repair`), starting a new log with it (`set`).
//!
//! The root record is distrusted if the log that it names is absent or damaged, or if edits follow
//! the base of a newer log: those are only written once the record names that log. Then, and
//! without a record, the log in use is found by its number and content: the greatest number whose
//! log has a whole base. A log with only a base may belong to an unfinished rewrite, so an older
//! log of the same opening is preferred if it is sound: both held the same root then, and the older
//! one may have more edits. Logs of earlier openings are contained in the newer base.
//!
//! Where nothing but a version tells which tables live, no log is used that the record does not
//! name, and so a base that an unfinished rewrite or repair left does not take the place of the
//! named log, if that has a whole base.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::base_log::{Prefix, Source, read_prefix};
use super::record::RootRecord;
use super::root::Root;
use super::set::Context;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{Lineage, SegmentNumber, TableUid};
use crate::base::table_meta::TableMeta;
use crate::log::peek;
use crate::storage::{LogKind, Object, Storage};
use crate::table::{Table, read_meta};

/// The salvaged state of the tree.
pub(crate) struct Salvage {
    /// The root after the last sound edit; without keyspaces if there is none.
    pub(crate) root: Root,
    /// Identity of the store, if it was found.
    pub(crate) lineage: Option<Lineage>,
    /// Whether `root.hash_seed` is the store's.
    pub(crate) seed_known: bool,
    /// Whether a whole base was read, so that `root` is one that the store once had.
    pub(crate) whole: bool,
    /// Number of the log of `root`; 0 if there is none.
    pub(crate) log: SegmentNumber,
    /// The root record that names the log of `root`, if that has a whole base.
    pub(crate) record: Option<RootRecord>,
    /// Number of the log that the root record names; 0 if that is lost.
    pub(crate) named: SegmentNumber,
    /// The fault of the root record, if any.
    pub(crate) root_fault: Option<Error>,
    /// The first fault of the version log, if any: edits behind it are lost.
    pub(crate) log_fault: Option<Error>,
    /// The first fault of buffer lists, if any: nothing but lists is lost, and `root` has none.
    pub(crate) list_fault: Option<Error>,
    /// Tables that were in lists alone: what they hold was merged into tables of the trees.
    pub(crate) listed_only: BTreeSet<TableUid>,
}

/// Reads root record and version log as far as they are sound. `finds_all_tables`: something else
/// than a version tells which tables there are.
///
/// # Errors
/// `Unsupported` for what a newer version wrote; the device's. Damage is in the result.
pub(crate) fn salvage(context: &Context, finds_all_tables: bool) -> Result<Salvage> {
    let storage = &*context.storage;
    let file = storage.name_of(Object::Root);
    let record = match storage.read_root_record() {
        Ok(Some(bytes)) => RootRecord::decode(&bytes, &file),
        Ok(None) => Err(Error::corruption(&file, 0, "the root record is missing")),
        Err(error) => Err(error),
    };
    let (source, mut root_fault) = match record {
        Ok(record) => (Some(Source::named_by(&record)), None),
        Err(error) if error.kind() == ErrorKind::Corruption => (None, Some(error)),
        Err(error) => return Err(error),
    };
    let number_named = source.map_or(SegmentNumber::ZERO, |source| source.number);
    let named = source.map(|source| read(context, source).map(|prefix| (source, prefix)));
    let mut found = named.transpose()?;
    let doubt = match &found {
        Some(named) => doubt(context, named)?,
        None => Some(String::new()),
    };
    if let Some(mut why) = doubt {
        let mut known = lineages(storage, LogKind::Versions)?;
        known.append(&mut lineages(storage, LogKind::Wal)?);
        let named = source.map(|source| source.lineage);
        let best = match named.filter(|named| known.is_empty() || known.contains_key(named)) {
            Some(lineage) => find(context, lineage)?,
            None => find_any(context)?,
        };
        if named.is_some_and(|named| !known.is_empty() && !known.contains_key(&named)) {
            // The record alone was copied here.
            why = "the root record is another store's: no log is of the store that it names".into();
            root_fault = Some(Error::corruption(&file, 0, &why));
            found = None;
        }
        // A log that is no better than the record's does not replace it.
        let best = best.filter(|(best, prefix)| {
            found.as_ref().is_none_or(|(named, of_named)| {
                let replaces = finds_all_tables || prefix.edits > 0;
                let newer = best.number > named.number && replaces;
                prefix.whole_base && (!of_named.whole_base || newer)
            })
        });
        if let Some(best) = best {
            root_fault = root_fault.or_else(|| Some(Error::corruption(&file, 0, why)));
            found = Some(best);
        }
    }
    let Some((source, prefix)) = found else {
        return Ok(Salvage {
            root: Root::empty(Lineage::UNKNOWN, 0),
            lineage: None,
            seed_known: false,
            whole: false,
            log: SegmentNumber::ZERO,
            record: None,
            named: number_named,
            root_fault,
            log_fault: None,
            list_fault: None,
            listed_only: BTreeSet::new(),
        });
    };
    let mut listed_only = prefix.unlisted;
    listed_only.append(&mut prefix.root.listed_only());
    for table in prefix.root.tables() {
        listed_only.remove(&table.meta().uid);
    }
    let Source { number: version_log, lineage, opening, nonce, .. } = source;
    let record = RootRecord { lineage, version_log, opening, base_lsn: prefix.base_lsn, nonce };
    Ok(Salvage {
        root: prefix.root,
        lineage: Some(source.lineage),
        seed_known: prefix.started,
        whole: prefix.whole_base,
        log: source.number,
        record: Some(record).filter(|_| prefix.whole_base),
        named: number_named,
        root_fault,
        log_fault: prefix.damage,
        list_fault: prefix.list_fault,
        listed_only,
    })
}

fn read(context: &Context, source: Source) -> Result<Prefix> {
    let open = |meta: &Arc<TableMeta>, hash_seed| context.open(meta, hash_seed);
    read_prefix(&*context.storage, source, &open)
}

/// Why the root record that names this log is distrusted, if it is.
fn doubt(context: &Context, named: &(Source, Prefix)) -> Result<Option<String>> {
    let storage = &*context.storage;
    let (source, prefix) = named;
    let log = log_file(storage, source.number);
    let numbers = storage.list_logs(LogKind::Versions)?;
    if !numbers.contains(&source.number) {
        return Ok(Some(format!("the root record names {log}, which is not there")));
    }
    if prefix.damage.is_some() {
        return Ok(Some(format!("the root record names {log}, which is damaged")));
    }
    went_on(context, source.number, source.lineage)
}

/// Says so if a log that is newer than the one that the root record names went on: then the record
/// is older than the version log, as half a backup leaves it.
///
/// # Errors
/// As [`salvage`].
pub(crate) fn went_on(
    context: &Context,
    named: SegmentNumber,
    lineage: Lineage,
) -> Result<Option<String>> {
    let storage = &*context.storage;
    let numbers = storage.list_logs(LogKind::Versions)?;
    for number in numbers.into_iter().filter(|&number| number > named) {
        let newer = candidate(context, number, lineage)?;
        if newer.is_some_and(|(_, prefix)| prefix.whole_base && prefix.edits > 0) {
            let (log, newer) = (log_file(storage, named), log_file(storage, number));
            return Ok(Some(format!("the root record names {log}, but {newer} went on after it")));
        }
    }
    Ok(None)
}

fn log_file(storage: &dyn Storage, number: SegmentNumber) -> String {
    storage.name_of(Object::Log(LogKind::Versions, number))
}

/// The readable prefix of a log that no record names; `None` if its start is unreadable or it is
/// another store's.
fn candidate(
    context: &Context,
    number: SegmentNumber,
    lineage: Lineage,
) -> Result<Option<(Source, Prefix)>> {
    let Some(peeked) = peek(&*context.storage, LogKind::Versions, number)? else { return Ok(None) };
    if (peeked.stated, peeked.lineage) != (number, lineage) {
        return Ok(None);
    }
    let opening = peeked.opening;
    let source = Source { number, lineage, opening, base_lsn: None, nonce: peeked.nonce };
    Ok(Some((source, read(context, source)?)))
}

/// Whether a log has a whole base, and no fault to its end.
///
/// # Errors
/// As [`salvage`].
pub(crate) fn is_sound(context: &Context, number: SegmentNumber, lineage: Lineage) -> Result<bool> {
    let found = candidate(context, number, lineage)?;
    Ok(found.is_some_and(|(_, prefix)| prefix.whole_base && prefix.damage.is_none()))
}

/// The lineages of all logs of a kind that are stored under their own number, each with the number
/// of its logs.
fn lineages(storage: &dyn Storage, kind: LogKind) -> Result<BTreeMap<Lineage, usize>> {
    let mut found: BTreeMap<Lineage, usize> = BTreeMap::new();
    for number in storage.list_logs(kind)? {
        let peeked = peek(storage, kind, number)?.filter(|peeked| peeked.stated == number);
        peeked.into_iter().for_each(|peeked| *found.entry(peeked.lineage).or_default() += 1);
    }
    Ok(found)
}

/// Number of a root's tables that exist.
fn existing_tables(storage: &dyn Storage, root: &Root) -> usize {
    let exists = |table: &&Arc<Table>| {
        let meta = table.meta();
        let file = storage.open_table(meta.uid).and_then(|file| read_meta(&*file, meta.uid));
        file.is_ok_and(|file| (file.seq_max, &file.smallest) == (meta.seq_max, &meta.smallest))
    };
    root.tables().filter(exists).count()
}

/// The log in use if the lineage is unknown: logs of another store may be among them. Of the logs
/// that each lineage would use, the one with the most existing tables; of equal ones that with more
/// write-ahead log segments, then that with the greatest number.
fn find_any(context: &Context) -> Result<Option<(Source, Prefix)>> {
    let storage = &*context.storage;
    let segments = lineages(storage, LogKind::Wal)?;
    let mut best = None;
    for lineage in lineages(storage, LogKind::Versions)?.into_keys() {
        let Some((source, prefix)) = find(context, lineage)? else { continue };
        let tables = existing_tables(storage, &prefix.root);
        let segments = segments.get(&lineage).copied().unwrap_or(0);
        let rank = (prefix.whole_base, tables, segments, source.number);
        if best.as_ref().is_none_or(|(of_best, _)| rank > *of_best) {
            best = Some((rank, (source, prefix)));
        }
    }
    Ok(best.map(|(_, found)| found))
}

/// The log in use of a lineage, as the module's header says; the best one if none is sound.
fn find(context: &Context, lineage: Lineage) -> Result<Option<(Source, Prefix)>> {
    let mut best: Option<(Source, Prefix)> = None;
    for number in context.storage.list_logs(LogKind::Versions)?.into_iter().rev() {
        let Some((source, prefix)) = candidate(context, number, lineage)? else { continue };
        let better = best.as_ref().is_none_or(|(newer, best)| {
            let sound = prefix.whole_base && prefix.damage.is_none();
            if best.whole_base {
                sound && newer.opening == source.opening
            } else {
                prefix.whole_base
            }
        });
        if better {
            best = Some((source, prefix));
        }
        if best.as_ref().is_some_and(|(_, best)| best.whole_base && best.edits > 0) {
            break;
        }
    }
    Ok(best)
}
