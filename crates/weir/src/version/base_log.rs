//! Version logs: writes a whole root as the base of one (the snapshot at the start of a MANIFEST),
//! and reads one back.
//!
//! Edits behind the base are read in sums where they are plain (`bulk`).
//!
//! A version log is one segment, which starts a chain of its own. It grows where storage lets it;
//! otherwise a new one begins when it is full. The base is a sequence of
//! ordinary edits to an empty root; the root record names the last of them, so that a log which
//! ends inside its base counts as damaged, not as short.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::bulk::Sum;
use super::check;
use super::edit::{Claim, Flushed, KeyspaceEdit, ListChange, Rotation, VersionEdit};
use super::keyspaces::KeyspaceVersion;
use super::record::RootRecord;
use super::root::{Places, Root, refused};
use super::run::{Part, Run};
use super::shape::{RunId, RunKind};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{KeyspaceId, Level, Lineage, Lsn, Nonce, SegmentNumber, TableUid};
use crate::base::table_meta::TableMeta;
use crate::log::{
    GroupLink, GroupType, GroupView, LogPosition, LogSource, SegmentIdentity, SegmentWriter,
    check_ours, replay,
};
use crate::storage::{LogKind, Object, Storage};
use crate::table::Table;

/// Most tables in one edit of a base: some 100 KiB at common key lengths, at most 130 MiB.
const BASE_EDIT_TABLES: usize = 1000;

/// A log that starts with a durable base, and the record that names it.
pub(super) struct BaseLog {
    pub(super) writer: SegmentWriter,
    pub(super) record: RootRecord,
}

/// Writes `root` as the base of version log `number`, durably. The root record is not touched.
///
/// # Errors
/// The device's. Then neither the log nor its number may be used.
pub(super) fn write(
    storage: &dyn Storage,
    root: &Root,
    number: SegmentNumber,
    nonce: Nonce,
) -> Result<BaseLog> {
    let (lineage, opening) = (root.lineage, root.opening);
    let kind = LogKind::Versions;
    let identity = SegmentIdentity { kind, segment: number, lineage, opening, nonce };
    let region = storage.create_log(LogKind::Versions, number, 0)?;
    let (origin, durable) = (GroupLink::ORIGIN, Lsn::ZERO);
    let mut writer = SegmentWriter::start(region, identity, origin, durable)?;
    let mut buf = Vec::new();
    let (mut edits, mut tables) = (0, 0);
    let mut append = |edit: &VersionEdit, last: bool| {
        edits += 1;
        tables += edit.keyspaces.values().map(|keyspace| keyspace.added.len()).sum::<usize>();
        buf.clear();
        edit.encode(&mut buf);
        if buf.len() as u64 > writer.room() {
            let what = format!(
                "{} has no room for the description of the whole tree; drop keyspaces or choose a \
                 larger area for it",
                writer.region().name()
            );
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
        writer.append(GroupType::Full, &[&buf], 1, last, durable)
    };
    // First, because opening tables needs it.
    append(&VersionEdit { hash_seed: Some(root.hash_seed), ..VersionEdit::default() }, false)?;
    for keyspace in root.keyspaces.iter() {
        append(&keyspace_edit(keyspace), false)?;
        for (level_index, level) in keyspace.version.levels().iter() {
            // A draining part is built by filling and rotating it, as in a running store.
            if let Some(draining) = &level.draining {
                append_part(keyspace.id, level_index, draining, &mut append)?;
                let mut edit = VersionEdit::default();
                let rotation =
                    Rotation { bytes: draining.rotated_bytes, entries: draining.rotated_entries };
                edit.keyspace(keyspace.id).rotate(level_index, rotation);
                append(&edit, false)?;
            }
            append_part(keyspace.id, level_index, &level.filling, &mut append)?;
        }
    }
    let base_lsn = append(&counters_edit(root), true)?;
    // The root record names the last group; tables that are missing here would be orphans.
    assert_eq!(base_lsn.get(), edits, "each edit of a base is one group");
    assert_eq!(tables, root.tables().count(), "tables in a base and in its root");
    writer.region().sync()?;
    let record = RootRecord { lineage, version_log: number, opening, base_lsn, nonce };
    Ok(BaseLog { writer, record })
}

/// Adds the tables of `part` to the filling part of a level.
fn append_part(
    keyspace: KeyspaceId,
    level: Level,
    part: &Part,
    append: &mut dyn FnMut(&VersionEdit, bool) -> Result<Lsn>,
) -> Result<()> {
    let mut edit = VersionEdit::default();
    for run in &part.runs {
        for (meta, _) in run.tables.iter() {
            let changes = edit.keyspace(keyspace);
            changes.add_table(level, run.epoch, Arc::clone(meta));
            if changes.added.len() == BASE_EDIT_TABLES {
                append(&std::mem::take(&mut edit), false)?;
            }
        }
    }
    if !edit.keyspaces.is_empty() {
        append(&edit, false)?;
    }
    let claims: Vec<Claim> = part.runs.iter().flat_map(|run| claims_of(level, run)).collect();
    for claims in claims.chunks(BASE_EDIT_TABLES) {
        let mut edit = VersionEdit::default();
        edit.keyspace(keyspace).claims = claims.to_vec();
        append(&edit, false)?;
    }
    // The lists in edits of their own: they name tables of runs that are there by then.
    for run in &part.runs {
        let changes = list_changes(RunId::filling(level, run.epoch), run);
        for lists in changes.chunks(BASE_EDIT_TABLES) {
            let mut edit = VersionEdit::default();
            edit.keyspace(keyspace).lists = lists.to_vec();
            append(&edit, false)?;
        }
    }
    Ok(())
}

/// What makes a sentinel of a run.
fn claims_of(level: Level, run: &Run) -> Vec<Claim> {
    if run.kind != RunKind::Sentinel {
        return Vec::new();
    }
    let id = RunId::filling(level, run.epoch);
    let claims = run.claims.iter().flat_map(|claims| claims.iter());
    let claims = claims.map(|interval| Claim { run: id, interval: Some(interval.clone()) });
    std::iter::once(Claim { run: id, interval: None }).chain(claims).collect()
}

/// The changes that make the buffer list of `run` out of none: oldest buffered run first, and in
/// each the tables before the holes, which may overlap them.
fn list_changes(id: RunId, run: &Run) -> Vec<ListChange> {
    let Some(list) = &run.list else { return Vec::new() };
    let mut changes = vec![ListChange::Count { run: id, counts: list.counts() }];
    for buffered in list.runs().iter().rev() {
        for (at, (meta, _)) in buffered.tables.iter().enumerate() {
            let (uid, begins_run, meta) = (meta.uid, at == 0, Some(Arc::clone(meta)));
            changes.push(ListChange::Append { run: id, uid, begins_run, meta });
        }
        let holes = buffered.holes.iter().map(|(smallest, largest)| {
            let (smallest, largest) = (smallest.to_vec(), largest.to_vec());
            ListChange::Hole { run: id, smallest, largest }
        });
        changes.extend(holes);
    }
    changes
}

fn counters_edit(root: &Root) -> VersionEdit {
    VersionEdit {
        keyspaces: BTreeMap::new(),
        next_uid: Some(root.next_uid),
        next_epoch: Some(root.next_epoch),
        next_keyspace: Some(root.next_keyspace),
        last_seq: Some(root.last_seq),
        wal_durable_lsn: Some(root.wal_durable_lsn),
        opening: Some(root.opening),
        hash_seed: None,
    }
}

/// A keyspace without its tables.
fn keyspace_edit(keyspace: &KeyspaceVersion) -> VersionEdit {
    let levels = keyspace.version.levels().iter();
    let cursors = levels
        .filter_map(|(index, level)| level.cursor.as_ref().map(|key| (index, Some(key.to_vec()))));
    let part = KeyspaceEdit {
        create: Some(keyspace.name.to_string()),
        options: Some(Arc::clone(&keyspace.options)),
        cursors: cursors.collect(),
        flushed: Some(Flushed {
            log_start: keyspace.log_start,
            flushed_seq: keyspace.flushed_seq,
            durable_lsn: Lsn::ZERO,
        }),
        ..KeyspaceEdit::default()
    };
    VersionEdit { keyspaces: BTreeMap::from([(keyspace.id, part)]), ..VersionEdit::default() }
}

/// Reads the log that `record` names: the root after its last edit, and the place of every table.
///
/// # Errors
/// `Corruption` if the log is damaged at or below the base or a durable edit, an edit does not fit,
/// or a log with a greater number is another store's or no regular file: the next log would
/// overwrite it; `Unsupported` if a newer version wrote it; the device's.
pub(super) fn read(
    storage: &dyn Storage,
    record: &RootRecord,
    open: &Open<'_>,
) -> Result<(Root, Places)> {
    let prefix = read_prefix(storage, Source::named_by(record), open)?;
    if let Some(damage) = prefix.list_fault.or(prefix.damage) {
        return Err(damage);
    }
    for number in storage.list_logs(LogKind::Versions)? {
        if number > record.version_log {
            check_ours(storage, LogKind::Versions, record.lineage, number)?;
        }
    }
    Ok((prefix.root, prefix.places))
}

/// A log to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) number: SegmentNumber,
    pub(super) lineage: Lineage,
    pub(super) opening: u32,
    /// LSN of the last group of the base. `None` if the root record is lost: then the edit that
    /// sets `opening` ends the base.
    pub(super) base_lsn: Option<Lsn>,
    pub(super) nonce: Nonce,
}

impl Source {
    /// The log that a root record names.
    pub(super) fn named_by(record: &RootRecord) -> Self {
        Self {
            number: record.version_log,
            lineage: record.lineage,
            opening: record.opening,
            base_lsn: Some(record.base_lsn),
            nonce: record.nonce,
        }
    }
}

/// Makes the reader of a table, with the seed of the key hash.
type Open<'a> = dyn Fn(&Arc<TableMeta>, u64) -> Arc<Table> + 'a;

/// The longest sound prefix of a log.
#[derive(Clone)]
pub(super) struct Prefix {
    pub(super) root: Root,
    pub(super) places: Places,
    /// Whether it holds the edit that begins a base, which has the hash seed.
    pub(super) started: bool,
    /// Whether it holds the whole base.
    pub(super) whole_base: bool,
    /// The last group of the base, if it does.
    pub(super) base_lsn: Lsn,
    /// Edits after the base.
    pub(super) edits: u64,
    /// What ends it; `None` if it is the whole log.
    pub(super) damage: Option<Error>,
    /// What is wrong with buffer lists: `root` has none then. They are copies, and the trees are
    /// whole without them (H16).
    pub(super) list_fault: Option<Error>,
    /// Tables of lists that were left out.
    pub(super) unlisted: BTreeSet<TableUid>,
}

impl Prefix {
    /// Applies an edit; without its changes of lists if they are all that is wrong, or lists were
    /// wrong before.
    fn take(&mut self, group: &GroupView<'_>, file: &str, open: &Open<'_>) -> Result<()> {
        let offset = group.position.offset;
        if self.list_fault.is_some() {
            let mut edit = VersionEdit::decode_but_lists(group.payload, file, offset)?;
            self.unlisted.extend(strip(&mut edit));
            return self.apply(&edit, open).map_err(|error| unfit(file, offset, error));
        }
        let edit = VersionEdit::decode(group.payload, file, offset);
        self.take_decoded(edit, group, file, open)
    }

    /// The same for the edit of `group` that was read already, while lists are sound.
    fn take_decoded(
        &mut self,
        edit: Result<VersionEdit>,
        group: &GroupView<'_>,
        file: &str,
        open: &Open<'_>,
    ) -> Result<()> {
        let at = |error| unfit(file, group.position.offset, error);
        match edit.and_then(|edit| self.apply(&edit, open).map_err(at)) {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                let mut bare = self.clone();
                bare.drop_lists(error.clone());
                bare.take(group, file, open).map_err(|_| error)?;
                *self = bare;
                Ok(())
            }
            applied => applied,
        }
    }

    /// Applies an edit. In the base the rules of changes do not hold, because its edits build a
    /// tree and do not change one.
    fn apply(&mut self, edit: &VersionEdit, open: &Open<'_>) -> Result<()> {
        if !self.started && edit.hash_seed.is_none() {
            return Err(refused("a base that does not begin as one"));
        }
        self.started = true;
        let Self { root, places, .. } = self;
        let open = |meta: &Arc<TableMeta>| open(meta, root.hash_seed);
        let (next, changes) = root.apply(edit, places, &open)?;
        if self.whole_base {
            check::check(root, &next, edit, places, &changes)?;
        }
        changes.install(places);
        self.root = next;
        Ok(())
    }

    fn drop_lists(&mut self, fault: Error) {
        self.unlisted.append(&mut self.root.listed_only());
        self.root = self.root.without_lists();
        self.places = self.root.places();
        self.list_fault = Some(fault);
    }
}

/// Takes the changes of lists out of an edit; the tables that they bring.
fn strip(edit: &mut VersionEdit) -> Vec<TableUid> {
    let lists = edit.keyspaces.values_mut().flat_map(|changes| std::mem::take(&mut changes.lists));
    let uid = |change| match change {
        ListChange::Append { uid, .. } => Some(uid),
        _ => None,
    };
    lists.filter_map(uid).collect()
}

/// Reads a log: plain edits in sums, if it may, all others one by one.
struct Reader<'a> {
    prefix: Prefix,
    /// The edits that are not in `prefix` yet.
    sum: Sum,
    sums: bool,
    /// A sum did not fit: some edit of it is to blame.
    is_unfit: bool,
    file: String,
    open: &'a Open<'a>,
}

impl Reader<'_> {
    fn take(&mut self, group: &GroupView<'_>) -> Result<()> {
        let Prefix { root, places, whole_base, list_fault, .. } = &self.prefix;
        if !self.sums || !whole_base || list_fault.is_some() {
            return self.prefix.take(group, &self.file, self.open);
        }
        let edit = VersionEdit::decode(group.payload, &self.file, group.position.offset);
        let edit = match edit.map(|edit| self.sum.add(edit, root, places)) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(edit)) => Ok(edit),
            Err(error) => Err(error),
        };
        self.apply_sum()?;
        self.prefix.take_decoded(edit, group, &self.file, self.open)
    }

    /// Brings the prefix up to the last edit that was taken.
    fn apply_sum(&mut self) -> Result<()> {
        // Also one that took nothing in: what it knows of the root is about to change.
        let sum = std::mem::take(&mut self.sum);
        if sum.is_empty() {
            return Ok(());
        }
        let edit = sum.into_edit();
        let Prefix { root, places, .. } = &mut self.prefix;
        let open = |meta: &Arc<TableMeta>| (self.open)(meta, root.hash_seed);
        let applied = root.apply(&edit, places, &open).and_then(|(next, changes)| {
            check::check_sum(&next, &edit, &changes)?;
            Ok((next, changes))
        });
        self.is_unfit = applied.is_err();
        let (next, changes) = applied.map_err(|error| unfit(&self.file, 0, error))?;
        changes.install(places);
        self.prefix.root = next;
        Ok(())
    }
}

/// Reads the sound prefix of a log.
///
/// # Errors
/// `Unsupported` for what a newer version wrote; the device's. Damage is in the result.
pub(super) fn read_prefix(
    storage: &dyn Storage,
    source: Source,
    open: &Open<'_>,
) -> Result<Prefix> {
    match read_with(storage, source, open, true)? {
        Some(prefix) => Ok(prefix),
        // One by one, to find the edit.
        None => Ok(read_with(storage, source, open, false)?.expect("without sums none is unfit")),
    }
}

/// Reads the sound prefix of a log; `None` if a sum of edits does not fit.
pub(super) fn read_with(
    storage: &dyn Storage,
    source: Source,
    open: &Open<'_>,
    sums: bool,
) -> Result<Option<Prefix>> {
    let Source { number, lineage, opening, base_lsn, nonce } = source;
    let start = LogPosition { segment: number, opening, ..LogPosition::ORIGIN };
    let file = storage.name_of(Object::Log(LogKind::Versions, number));
    let prefix = Prefix {
        root: Root::empty(lineage, 0),
        places: Places::default(),
        started: false,
        whole_base: false,
        base_lsn: Lsn::ZERO,
        edits: 0,
        damage: None,
        list_fault: None,
        unlisted: BTreeSet::new(),
    };
    let mut reader =
        Reader { prefix, sum: Sum::default(), sums, is_unfit: false, file: file.clone(), open };
    let durable_lsn = base_lsn.unwrap_or(Lsn::FIRST);
    let log = LogSource { kind: LogKind::Versions, start, durable_lsn, lineage, nonce };
    let end = replay(storage, log, &mut |group| {
        reader.take(&group)?;
        let prefix = &mut reader.prefix;
        prefix.edits += u64::from(prefix.whole_base);
        let ends_base = match base_lsn {
            Some(lsn) => group.lsn >= lsn,
            None => prefix.root.opening > 0,
        };
        if ends_base && !prefix.whole_base {
            (prefix.whole_base, prefix.base_lsn) = (true, group.lsn);
        }
        Ok(())
    });
    let summed = if reader.is_unfit { Ok(()) } else { reader.apply_sum() };
    if reader.is_unfit {
        return Ok(None);
    }
    let mut prefix = reader.prefix;
    let end = end.and(summed).and_then(|_| {
        let Err(error) = check::check_root(&prefix.root) else { return Ok(()) };
        let error = unfit(&file, 0, error);
        prefix.drop_lists(error.clone());
        check::check_root(&prefix.root).map_err(|_| {
            // It is unknown which edit is wrong.
            prefix.whole_base = false;
            error
        })
    });
    match end {
        Err(error) if error.kind() != ErrorKind::Corruption => Err(error),
        end => Ok(Some(Prefix { damage: end.err(), ..prefix })),
    }
}

/// Turns the refusal of an edit from disk into damage: it is not a caller's mistake.
fn unfit(file: &str, offset: u64, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Conflict | ErrorKind::Closed | ErrorKind::InvalidArgument => {
            Error::corruption(file, offset, format_args!("an edit that does not fit ({error})"))
        }
        _ => error,
    }
}
