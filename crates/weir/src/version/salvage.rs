//! What can still be known of the tree when the root record or the version log is damaged: for
//! `repair`.
//!
//! Reads only. Not here: whether what was found may be used (`db::repair` compares it with the
//! tables and the write-ahead log), starting a new log with it (`set`).
//!
//! Without a root record, the log in use is found by its number and content: the greatest number
//! whose log has a whole base, but one that has only its base may belong to a rewrite that never
//! ended, so the log before it is preferred if that is sound: at that moment both said the same,
//! and the older one may have gone on.

use std::sync::Arc;

use super::base_log::{Prefix, Source, read_prefix};
use super::record::RootRecord;
use super::root::Root;
use super::set::Context;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::table_meta::TableMeta;
use crate::log::peek;
use crate::storage::LogKind;

/// What is known of the tree.
pub(crate) struct Salvage {
    /// The root after the last sound edit; without keyspaces if there is none.
    pub(crate) root: Root,
    /// Identity of the store, if anything says it.
    pub(crate) lineage: Option<u64>,
    /// Whether `root.hash_seed` is the store's.
    pub(crate) seed_known: bool,
    /// Whether a whole base was read: `root` is one that the store once had.
    pub(crate) whole: bool,
    /// Number of the log that `root` is from; 0 if there is none.
    pub(crate) log: u64,
    /// What is wrong with the root record.
    pub(crate) root_fault: Option<Error>,
    /// What is wrong with the version log, at the first place.
    pub(crate) log_fault: Option<Error>,
}

/// Reads root record and version log as far as they are sound.
///
/// # Errors
/// `Unsupported` for what a newer version wrote; the device's. Damage is in the result.
pub(crate) fn salvage(context: &Context) -> Result<Salvage> {
    let storage = &*context.storage;
    let file = format!("{}/ROOT", storage.path());
    let record = match storage.read_root() {
        Ok(Some(bytes)) => RootRecord::decode(&bytes, &file),
        Ok(None) => Err(Error::corruption(&file, 0, "the root record is missing")),
        Err(error) => Err(error),
    };
    let (source, root_fault) = match record {
        Ok(record) => {
            let source = Source {
                number: record.version_log,
                lineage: record.lineage,
                epoch: record.log_epoch,
                base_lsn: Some(record.base_lsn),
            };
            (Some(source), None)
        }
        Err(error) if error.kind() == ErrorKind::Corruption => (None, Some(error)),
        Err(error) => return Err(error),
    };
    let found = match source {
        Some(source) => Some((source, read(context, source)?)),
        None => find(context)?,
    };
    let Some((source, prefix)) = found else {
        return Ok(Salvage {
            root: Root::empty(0, 0),
            lineage: None,
            seed_known: false,
            whole: false,
            log: 0,
            root_fault,
            log_fault: None,
        });
    };
    Ok(Salvage {
        root: prefix.root,
        lineage: Some(source.lineage),
        seed_known: prefix.started,
        whole: prefix.whole_base,
        log: source.number,
        root_fault,
        log_fault: prefix.damage,
    })
}

fn read(context: &Context, source: Source) -> Result<Prefix> {
    let open = |meta: &Arc<TableMeta>, hash_seed| context.open(meta, hash_seed);
    read_prefix(&*context.storage, source, &open)
}

/// The log in use, as the module's header says; the best there is if none is sound.
fn find(context: &Context) -> Result<Option<(Source, Prefix)>> {
    let storage = &*context.storage;
    let mut best: Option<(Source, Prefix)> = None;
    for number in storage.list_logs(LogKind::Versions)?.into_iter().rev() {
        let Some(peeked) = peek(storage, LogKind::Versions, number)? else { continue };
        let (lineage, epoch) = (peeked.lineage, peeked.epoch);
        let source = Source { number, lineage, epoch, base_lsn: None };
        let prefix = read(context, source)?;
        let better = best.as_ref().is_none_or(|(_, best)| {
            let sound = prefix.whole_base && prefix.damage.is_none();
            sound || (prefix.whole_base && !best.whole_base)
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
