// FORMAT: docs/format/edit.md sha=47035008c005
//! Version edits: the only way to change a version, and their bytes in the version log.
//!
//! One edit is one atomic change, possibly over several keyspaces (H4). Replaying all edits from
//! the base on gives the same root. Not here: applying an edit (`root`), checking it (`check`),
//! making it durable (`set`).
//!
//! Invariants: (1) every field is tagged, even tags are critical (`base::tagged`); (2) within a
//! keyspace rotations are applied first, then removals, then additions, so a table that moves is
//! both removed and added; (3) an added table joins the run with its epoch in its part of its
//! level, or starts that run.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::buffer_list::ListCounts;
use super::options::{decode_options, encode_options};
use super::shape::{PartKind, RunId};
use crate::base::coding::Reader;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{DataEpoch, KeyspaceId, Level, Lsn, TableUid};
use crate::base::interval::Interval;
use crate::base::key::{SEQ_MAX, Seq};
use crate::base::limits::{KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX};
use crate::base::table_meta::TableMeta;
use crate::base::tagged::{next_field, number, put_field, put_number, unknown};
use crate::log::LogPosition;
use crate::options::Options;

/// The only key order; its name is stored with every keyspace.
pub(crate) const KEY_ORDER: &str = "bytewise";

/// One atomic change of the root.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VersionEdit {
    /// The changes of each keyspace.
    pub(crate) keyspaces: BTreeMap<KeyspaceId, KeyspaceEdit>,
    /// Uids below are used or reserved. Filled in by `VersionSet::apply`.
    pub(crate) next_uid: Option<TableUid>,
    /// Data epochs below are used or reserved. Filled in by `VersionSet::apply`.
    pub(crate) next_epoch: Option<DataEpoch>,
    /// Keyspace ids below are used. Filled in by `VersionSet::apply`.
    pub(crate) next_keyspace: Option<KeyspaceId>,
    /// Sequence numbers up to here are used. Applying the edit raises it to those of added tables.
    pub(crate) last_seq: Option<Seq>,
    /// The write-ahead log was durable up to this LSN. Applying the edit raises it to those of
    /// flushes.
    pub(crate) wal_durable_lsn: Option<Lsn>,
    /// Number of this opening of the store.
    pub(crate) opening: Option<u32>,
    /// Seed of the key hash; set once, in the first base.
    pub(crate) hash_seed: Option<u64>,
}

/// The changes of one keyspace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KeyspaceEdit {
    /// Creates the keyspace under this name. Without `flushed` it needs the write-ahead log from
    /// the latest log start of the others on.
    pub(crate) create: Option<String>,
    /// Drops the keyspace; its id is never reused. Nothing else may be set.
    pub(crate) drop: bool,
    /// Its options from now on. Required with `create`.
    pub(crate) options: Option<Arc<Options>>,
    /// Levels whose filling part becomes the draining part, before anything else changes.
    pub(crate) rotated: BTreeMap<Level, Rotation>,
    /// Tables removed.
    pub(crate) removed: Vec<RemovedTable>,
    /// Tables added.
    pub(crate) added: Vec<AddedTable>,
    /// Levels whose round-robin cursor changes.
    pub(crate) cursors: BTreeMap<Level, Option<Vec<u8>>>,
    /// This keyspace needs the write-ahead log from here on only.
    pub(crate) flushed: Option<Flushed>,
    /// New claims of sentinel runs. What the edit's moves take away of older ones is not stored:
    /// it follows from the root that the edit meets (`claims`).
    pub(crate) claims: Vec<Claim>,
    /// Changes of buffer lists, in this order, after all of the above. Filled in by
    /// `VersionSet::apply`, except in a base.
    pub(crate) lists: Vec<ListChange>,
    /// What `VersionSet::apply` is to consider for `lists`. Not stored.
    pub(crate) requests: ListRequests,
}

/// A run of level 0 is a sentinel, and has all that its keyspace's older runs hold of an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The run.
    pub(crate) run: RunId,
    /// The interval; `None` if the sentinel claims nothing any more.
    pub(crate) interval: Option<Interval>,
}

/// A change of a run's buffer list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListChange {
    /// The table, which is in the tree or in a list or is described here, joins the newest buffered
    /// run, or begins a new one.
    Append { run: RunId, uid: TableUid, begins_run: bool, meta: Option<Arc<TableMeta>> },
    /// A hole in the newest buffered run.
    Hole { run: RunId, smallest: Vec<u8>, largest: Vec<u8> },
    /// The table leaves its buffered run, and leaves a hole.
    Trim { run: RunId, uid: TableUid },
    /// The list's counters.
    Count { run: RunId, counts: ListCounts },
    /// Everything leaves the list.
    Drop { run: RunId },
}

impl ListChange {
    /// The run whose list changes.
    pub(crate) fn run(&self) -> RunId {
        match self {
            Self::Append { run, .. }
            | Self::Hole { run, .. }
            | Self::Trim { run, .. }
            | Self::Count { run, .. }
            | Self::Drop { run } => *run,
        }
    }
}

/// What a job says or asks about buffer lists; what becomes of it depends on the root that its edit
/// meets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListRequests {
    /// Entries that the merge found shadowed.
    pub(crate) shadowed: u64,
    /// Tables that should leave their lists, if they are in one still.
    pub(crate) trim: BTreeSet<TableUid>,
    /// Whether all lists should be dropped.
    pub(crate) drop: bool,
    /// What a sentinel of this run took out of all older ones, also if it holds nothing.
    pub(crate) taken: Option<(RunId, Interval)>,
}

impl KeyspaceEdit {
    /// Whether the tree or its options change, not just the log start.
    pub(crate) fn changes_tree(&self) -> bool {
        let Self { create, drop, options, rotated, removed, added, cursors, .. } = self;
        let fate = create.is_some() || *drop || options.is_some();
        let tables = !rotated.is_empty() || !removed.is_empty() || !added.is_empty();
        let tables = tables || !self.claims.is_empty();
        let requests = self.requests != ListRequests::default();
        fate || tables || !cursors.is_empty() || !self.lists.is_empty() || requests
    }
}

/// A table that is removed from a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemovedTable {
    /// Its level.
    pub(crate) level: Level,
    /// The part of the level.
    pub(crate) part: PartKind,
    /// The table.
    pub(crate) uid: TableUid,
}

/// A table that is added to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddedTable {
    /// The run that it joins or starts. Only a rotation starts a draining part.
    pub(crate) run: RunId,
    /// The table.
    pub(crate) meta: Arc<TableMeta>,
}

/// Size of a filling part when it becomes a draining one: fixed then, to measure the progress of
/// draining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// Bytes of its tables.
    pub(crate) bytes: u64,
    /// Their entries.
    pub(crate) entries: u64,
}

/// How much of the write-ahead log a keyspace no longer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flushed {
    /// The first log group that the keyspace's tables do not cover.
    pub(crate) log_start: LogPosition,
    /// Sequence numbers up to here are in tables: replay skips them for this keyspace.
    pub(crate) flushed_seq: Seq,
    /// The log is durable up to this LSN; if other keyspaces need the log before `log_start`, at
    /// least to the group before it (H52).
    pub(crate) durable_lsn: Lsn,
}

impl VersionEdit {
    /// The change of one keyspace; an empty one is inserted if there is none yet.
    pub(crate) fn keyspace(&mut self, id: KeyspaceId) -> &mut KeyspaceEdit {
        self.keyspaces.entry(id).or_default()
    }
}

impl KeyspaceEdit {
    /// Adds a table to the run with data epoch `epoch` in the filling part of `level`.
    pub(crate) fn add_table(&mut self, level: Level, epoch: DataEpoch, meta: Arc<TableMeta>) {
        self.added.push(AddedTable { run: RunId::filling(level, epoch), meta });
    }

    /// Removes a table from the filling part of `level`.
    #[cfg(test)]
    pub(crate) fn remove_table(&mut self, level: Level, uid: TableUid) {
        self.remove_table_from(level, PartKind::Filling, uid);
    }

    /// Removes a table from a part of `level`.
    pub(crate) fn remove_table_from(&mut self, level: Level, part: PartKind, uid: TableUid) {
        self.removed.push(RemovedTable { level, part, uid });
    }

    /// Turns the filling part of `level`, of the size `rotation`, into its draining part.
    pub(crate) fn rotate(&mut self, level: Level, rotation: Rotation) {
        self.rotated.insert(level, rotation);
    }

    /// Sets the round-robin cursor of `level`.
    pub(crate) fn set_cursor(&mut self, level: Level, key: Option<Vec<u8>>) {
        self.cursors.insert(level, key);
    }
}

// Tags of an edit. 0 is invalid.
const TAG_NEXT_UID: u64 = 2;
const TAG_NEXT_EPOCH: u64 = 4;
const TAG_NEXT_KEYSPACE: u64 = 6;
const TAG_LAST_SEQ: u64 = 8;
const TAG_WAL_DURABLE_LSN: u64 = 10;
const TAG_OPENING: u64 = 12;
const TAG_HASH_SEED: u64 = 14;
const TAG_KEYSPACE: u64 = 16;
// Reserved: 18 space {device, offset, slots}, 20 slot bytes.

// Tags of a keyspace's part.
const TAG_ID: u64 = 2;
const TAG_CREATE: u64 = 4;
const TAG_DROP: u64 = 6;
const TAG_OPTIONS: u64 = 8;
const TAG_REMOVED: u64 = 10;
const TAG_ADDED: u64 = 12;
const TAG_CURSOR: u64 = 14;
const TAG_FLUSHED: u64 = 16;
const TAG_KEY_ORDER: u64 = 18;
const TAG_ROTATE: u64 = 24;
const TAG_LIST_APPEND: u64 = 26;
const TAG_LIST_HOLE: u64 = 28;
const TAG_LIST_COUNTS: u64 = 32;
const TAG_LIST_DROP: u64 = 34;
const TAG_CLAIM: u64 = 36;
// Reserved: 20 timestamp length, 22 merge operator name; for good: 30 floor, 38 mask.

// Tags of a removed table.
const TAG_REMOVED_LEVEL: u64 = 2;
const TAG_REMOVED_UID: u64 = 4;
const TAG_REMOVED_PART: u64 = 6;

// Tags of an added table.
const TAG_ADDED_LEVEL: u64 = 2;
const TAG_ADDED_EPOCH: u64 = 4;
const TAG_ADDED_META: u64 = 6;
const TAG_ADDED_PART: u64 = 8;
// Reserved for good: 10 kind of run.

// The draining part; the filling part has no field.
const PART_DRAINING: u64 = 1;

// Tags of a rotation.
const TAG_ROTATE_LEVEL: u64 = 2;
const TAG_ROTATE_BYTES: u64 = 4;
const TAG_ROTATE_ENTRIES: u64 = 6;

// Tags of a cursor.
const TAG_CURSOR_LEVEL: u64 = 2;
const TAG_CURSOR_KEY: u64 = 4;

// Tags of a flush.
const TAG_FLUSHED_LOG_START: u64 = 2;
const TAG_FLUSHED_SEQ: u64 = 4;
const TAG_FLUSHED_DURABLE_LSN: u64 = 6;

// Tags of a claim.
const TAG_CLAIM_EPOCH: u64 = 2;
const TAG_CLAIM_FROM: u64 = 4;
const TAG_CLAIM_TO: u64 = 6;

// Tags of all changes of a buffer list.
const TAG_LIST_LEVEL: u64 = 2;
const TAG_LIST_PART: u64 = 4;
const TAG_LIST_EPOCH: u64 = 6;
// Tags of an append, and of the hole of a trimmed table.
const TAG_LIST_UID: u64 = 8;
const TAG_LIST_BEGINS_RUN: u64 = 10;
const TAG_LIST_META: u64 = 12;
// Tags of any other hole.
const TAG_LIST_SMALLEST: u64 = 14;
const TAG_LIST_LARGEST: u64 = 16;
// Tags of counters.
const TAG_LIST_APPENDED: u64 = 18;
const TAG_LIST_SHADOWED: u64 = 20;
const TAG_LIST_QUIET: u64 = 22;

const RECORD: &str = "version edit";

impl VersionEdit {
    /// Appends the tagged form.
    pub(crate) fn encode(&self, buf: &mut Vec<u8>) {
        let numbers = [
            (TAG_NEXT_UID, self.next_uid.map(TableUid::get)),
            (TAG_NEXT_EPOCH, self.next_epoch.map(DataEpoch::get)),
            (TAG_NEXT_KEYSPACE, self.next_keyspace.map(u64::from)),
            (TAG_LAST_SEQ, self.last_seq),
            (TAG_WAL_DURABLE_LSN, self.wal_durable_lsn.map(Lsn::get)),
            (TAG_OPENING, self.opening.map(u64::from)),
            (TAG_HASH_SEED, self.hash_seed),
        ];
        for (tag, value) in numbers {
            if let Some(value) = value {
                put_number(buf, tag, value);
            }
        }
        let mut part = Vec::new();
        for (&id, keyspace) in &self.keyspaces {
            part.clear();
            keyspace.encode(id, &mut part);
            put_field(buf, TAG_KEYSPACE, &part);
        }
    }

    /// Decodes the tagged form: all of `bytes`, which lie at `offset` of `file`.
    ///
    /// # Errors
    /// `Corruption` naming `file` and `offset`; `Unsupported` for an unknown critical field.
    pub(crate) fn decode(bytes: &[u8], file: &str, offset: u64) -> Result<Self> {
        Self::decode_by(&Decoder { file, offset, leave_lists: false }, bytes)
    }

    /// The same, without changes of buffer lists that cannot be decoded.
    ///
    /// # Errors
    /// As [`VersionEdit::decode`].
    pub(super) fn decode_but_lists(bytes: &[u8], file: &str, offset: u64) -> Result<Self> {
        Self::decode_by(&Decoder { file, offset, leave_lists: true }, bytes)
    }

    fn decode_by(decoder: &Decoder<'_>, bytes: &[u8]) -> Result<Self> {
        let mut edit = Self::default();
        let mut reader = Reader::new(bytes);
        while let Some((tag, content)) = decoder.field(&mut reader)? {
            match tag {
                TAG_NEXT_UID => edit.next_uid = Some(decoder.uid(content)?),
                TAG_NEXT_EPOCH => edit.next_epoch = Some(decoder.epoch(content)?),
                TAG_NEXT_KEYSPACE => {
                    edit.next_keyspace = Some(KeyspaceId::new(decoder.small(content)?))
                }
                TAG_LAST_SEQ => edit.last_seq = Some(decoder.seq(content)?),
                TAG_WAL_DURABLE_LSN => edit.wal_durable_lsn = Some(decoder.lsn(content)?),
                TAG_OPENING => edit.opening = Some(decoder.small(content)?),
                TAG_HASH_SEED => edit.hash_seed = Some(decoder.number(content)?),
                TAG_KEYSPACE => {
                    let (id, keyspace) = decoder.keyspace(content)?;
                    if edit.keyspaces.insert(id, keyspace).is_some() {
                        return Err(decoder.damaged("names a keyspace twice"));
                    }
                }
                _ => unknown(RECORD, tag)?,
            }
        }
        Ok(edit)
    }
}

impl KeyspaceEdit {
    fn encode(&self, id: KeyspaceId, buf: &mut Vec<u8>) {
        put_number(buf, TAG_ID, u64::from(id));
        if let Some(name) = &self.create {
            assert!(name.len() <= KEYSPACE_NAME_BYTES_MAX, "a name of {} bytes", name.len());
            put_field(buf, TAG_CREATE, name.as_bytes());
            put_field(buf, TAG_KEY_ORDER, KEY_ORDER.as_bytes());
        }
        if self.drop {
            put_field(buf, TAG_DROP, &[]);
        }
        let mut part = Vec::new();
        if let Some(options) = &self.options {
            encode_options(options, &mut part);
            put_field(buf, TAG_OPTIONS, &part);
        }
        for (&level, rotation) in &self.rotated {
            part.clear();
            put_level(&mut part, TAG_ROTATE_LEVEL, level);
            put_number(&mut part, TAG_ROTATE_BYTES, rotation.bytes);
            put_number(&mut part, TAG_ROTATE_ENTRIES, rotation.entries);
            put_field(buf, TAG_ROTATE, &part);
        }
        for table in &self.removed {
            part.clear();
            put_level(&mut part, TAG_REMOVED_LEVEL, table.level);
            put_number(&mut part, TAG_REMOVED_UID, table.uid.get());
            put_part(&mut part, TAG_REMOVED_PART, table.part);
            put_field(buf, TAG_REMOVED, &part);
        }
        let mut meta = Vec::new();
        for table in &self.added {
            part.clear();
            meta.clear();
            table.meta.encode(&mut meta);
            put_level(&mut part, TAG_ADDED_LEVEL, table.run.level);
            put_number(&mut part, TAG_ADDED_EPOCH, table.run.epoch.get());
            put_field(&mut part, TAG_ADDED_META, &meta);
            put_part(&mut part, TAG_ADDED_PART, table.run.part);
            put_field(buf, TAG_ADDED, &part);
        }
        for (&level, key) in &self.cursors {
            part.clear();
            put_level(&mut part, TAG_CURSOR_LEVEL, level);
            if let Some(key) = key {
                assert!(key.len() <= KEY_BYTES_MAX, "a cursor of {} bytes", key.len());
                put_field(&mut part, TAG_CURSOR_KEY, key);
            }
            put_field(buf, TAG_CURSOR, &part);
        }
        if let Some(flushed) = &self.flushed {
            part.clear();
            meta.clear();
            flushed.log_start.encode(&mut meta);
            put_field(&mut part, TAG_FLUSHED_LOG_START, &meta);
            put_number(&mut part, TAG_FLUSHED_SEQ, flushed.flushed_seq);
            put_number(&mut part, TAG_FLUSHED_DURABLE_LSN, flushed.durable_lsn.get());
            put_field(buf, TAG_FLUSHED, &part);
        }
        for claim in &self.claims {
            part.clear();
            claim.encode(&mut part);
            put_field(buf, TAG_CLAIM, &part);
        }
        for change in &self.lists {
            part.clear();
            let tag = change.encode(&mut part);
            put_field(buf, tag, &part);
        }
    }
}

impl Claim {
    fn encode(&self, buf: &mut Vec<u8>) {
        put_number(buf, TAG_CLAIM_EPOCH, self.run.epoch.get());
        if let Some(Interval { from, to }) = &self.interval {
            put_field(buf, TAG_CLAIM_FROM, from);
            to.iter().for_each(|to| put_field(buf, TAG_CLAIM_TO, to));
        }
    }
}

impl ListChange {
    /// Appends the record; returns its tag in the keyspace.
    fn encode(&self, buf: &mut Vec<u8>) -> u64 {
        let run = self.run();
        put_level(buf, TAG_LIST_LEVEL, run.level);
        put_part(buf, TAG_LIST_PART, run.part);
        put_number(buf, TAG_LIST_EPOCH, run.epoch.get());
        match self {
            Self::Append { run: _, uid, begins_run, meta } => {
                put_number(buf, TAG_LIST_UID, uid.get());
                if *begins_run {
                    put_field(buf, TAG_LIST_BEGINS_RUN, &[]);
                }
                if let Some(meta) = meta {
                    let mut bytes = Vec::new();
                    meta.encode(&mut bytes);
                    put_field(buf, TAG_LIST_META, &bytes);
                }
                TAG_LIST_APPEND
            }
            Self::Hole { run: _, smallest, largest } => {
                put_field(buf, TAG_LIST_SMALLEST, smallest);
                put_field(buf, TAG_LIST_LARGEST, largest);
                TAG_LIST_HOLE
            }
            Self::Trim { run: _, uid } => {
                put_number(buf, TAG_LIST_UID, uid.get());
                TAG_LIST_HOLE
            }
            Self::Count { run: _, counts: ListCounts { appended, shadowed, quiet } } => {
                put_number(buf, TAG_LIST_APPENDED, *appended);
                put_number(buf, TAG_LIST_SHADOWED, *shadowed);
                if *quiet {
                    put_field(buf, TAG_LIST_QUIET, &[]);
                }
                TAG_LIST_COUNTS
            }
            Self::Drop { run: _ } => TAG_LIST_DROP,
        }
    }
}

fn put_level(buf: &mut Vec<u8>, tag: u64, level: Level) {
    put_number(buf, tag, level.get() as u64);
}

fn put_part(buf: &mut Vec<u8>, tag: u64, part: PartKind) {
    match part {
        PartKind::Filling => {}
        PartKind::Draining => put_number(buf, tag, PART_DRAINING),
    }
}

/// Decodes fields; file and offset are for messages.
struct Decoder<'a> {
    file: &'a str,
    offset: u64,
    /// Whether damaged changes of buffer lists are left out.
    leave_lists: bool,
}

impl Decoder<'_> {
    fn damaged(&self, what: &str) -> Error {
        Error::corruption(self.file, self.offset, format_args!("a {RECORD} {what}"))
    }

    fn field<'b>(&self, reader: &mut Reader<'b>) -> Result<Option<(u64, &'b [u8])>> {
        if reader.is_empty() {
            return Ok(None);
        }
        next_field(reader).map(Some).ok_or_else(|| self.damaged("is cut off"))
    }

    fn number(&self, content: &[u8]) -> Result<u64> {
        number(content).ok_or_else(|| self.damaged("has a malformed number"))
    }

    fn beyond(&self) -> Error {
        self.damaged("has a number that no store gets to")
    }

    fn epoch(&self, content: &[u8]) -> Result<DataEpoch> {
        DataEpoch::stored(self.number(content)?).ok_or_else(|| self.beyond())
    }

    fn uid(&self, content: &[u8]) -> Result<TableUid> {
        TableUid::stored(self.number(content)?).ok_or_else(|| self.beyond())
    }

    fn lsn(&self, content: &[u8]) -> Result<Lsn> {
        Lsn::stored(self.number(content)?).ok_or_else(|| self.beyond())
    }

    fn seq(&self, content: &[u8]) -> Result<Seq> {
        let seq = self.number(content)?;
        (seq <= SEQ_MAX).then_some(seq).ok_or_else(|| self.beyond())
    }

    fn small(&self, content: &[u8]) -> Result<u32> {
        let wide = self.number(content)?;
        u32::try_from(wide).map_err(|_| self.damaged("has a number above 32 bits"))
    }

    fn level(&self, content: &[u8]) -> Result<Level> {
        let level = self.number(content)?;
        usize::try_from(level)
            .ok()
            .and_then(Level::new)
            .ok_or_else(|| self.damaged("names a level that does not exist"))
    }

    fn part(&self, content: &[u8]) -> Result<PartKind> {
        match self.number(content)? {
            PART_DRAINING => Ok(PartKind::Draining),
            _ => Err(self.damaged("names a part of a level that does not exist")),
        }
    }

    fn keyspace(&self, bytes: &[u8]) -> Result<(KeyspaceId, KeyspaceEdit)> {
        let mut id = None;
        let mut edit = KeyspaceEdit::default();
        let mut reader = Reader::new(bytes);
        while let Some((tag, content)) = self.field(&mut reader)? {
            match tag {
                TAG_ID => id = Some(self.small(content)?),
                TAG_CREATE => edit.create = Some(self.name(content)?),
                TAG_DROP => edit.drop = true,
                TAG_OPTIONS => {
                    let options = decode_options(content, self.file, self.offset)?;
                    edit.options = Some(Arc::new(options));
                }
                TAG_ROTATE => {
                    let (level, rotation) = self.rotation(content)?;
                    if edit.rotated.insert(level, rotation).is_some() {
                        return Err(self.damaged("rotates a level twice"));
                    }
                }
                TAG_REMOVED => edit.removed.push(self.removed(content)?),
                TAG_ADDED => edit.added.push(self.added(content)?),
                TAG_CURSOR => {
                    let (level, key) = self.cursor(content)?;
                    edit.cursors.insert(level, key);
                }
                TAG_FLUSHED => edit.flushed = Some(self.flushed(content)?),
                TAG_KEY_ORDER => self.key_order(content)?,
                TAG_CLAIM => edit.claims.push(self.claim(content)?),
                TAG_LIST_APPEND | TAG_LIST_HOLE | TAG_LIST_COUNTS | TAG_LIST_DROP => {
                    match self.list_change(tag, content) {
                        Err(error) if self.leave_lists && error.kind() == ErrorKind::Corruption => {
                        }
                        change => edit.lists.push(change?),
                    }
                }
                _ => unknown(RECORD, tag)?,
            }
        }
        let id = id.ok_or_else(|| self.damaged("changes a keyspace without naming it"))?;
        Ok((KeyspaceId::new(id), edit))
    }

    fn name(&self, content: &[u8]) -> Result<String> {
        let name = std::str::from_utf8(content).ok();
        name.filter(|name| name.len() <= KEYSPACE_NAME_BYTES_MAX)
            .map(str::to_owned)
            .ok_or_else(|| self.damaged("has an invalid keyspace name"))
    }

    fn key_order(&self, content: &[u8]) -> Result<()> {
        if content == KEY_ORDER.as_bytes() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "a keyspace has the key order {}, this version knows {KEY_ORDER:?} only; use the \
                 version that wrote it",
                crate::base::key::Printable(content)
            ),
        ))
    }

    fn removed(&self, bytes: &[u8]) -> Result<RemovedTable> {
        let (mut level, mut uid, mut part) = (None, None, PartKind::Filling);
        let mut reader = Reader::new(bytes);
        while let Some((tag, content)) = self.field(&mut reader)? {
            match tag {
                TAG_REMOVED_LEVEL => level = Some(self.level(content)?),
                TAG_REMOVED_UID => uid = Some(self.uid(content)?),
                TAG_REMOVED_PART => part = self.part(content)?,
                _ => unknown(RECORD, tag)?,
            }
        }
        let table = level.zip(uid).map(|(level, uid)| RemovedTable { level, part, uid });
        table.ok_or_else(|| self.damaged("removes a table without naming it"))
    }

    fn added(&self, bytes: &[u8]) -> Result<AddedTable> {
        let (mut level, mut epoch, mut meta) = (None, None, None);
        let mut part = PartKind::Filling;
        let mut reader = Reader::new(bytes);
        while let Some((tag, content)) = self.field(&mut reader)? {
            match tag {
                TAG_ADDED_LEVEL => level = Some(self.level(content)?),
                TAG_ADDED_EPOCH => epoch = Some(self.epoch(content)?),
                TAG_ADDED_META => {
                    meta = Some(Arc::new(TableMeta::decode(content, self.file, self.offset)?));
                }
                TAG_ADDED_PART => part = self.part(content)?,
                _ => unknown(RECORD, tag)?,
            }
        }
        match (level, epoch, meta) {
            (Some(level), Some(epoch), Some(meta)) => {
                Ok(AddedTable { run: RunId { level, part, epoch }, meta })
            }
            _ => Err(self.damaged("adds a table without level, epoch or description")),
        }
    }

    fn claim(&self, bytes: &[u8]) -> Result<Claim> {
        let (mut epoch, mut from, mut to) = (None, None, None);
        let mut reader = Reader::new(bytes);
        while let Some((tag, content)) = self.field(&mut reader)? {
            match tag {
                TAG_CLAIM_EPOCH => epoch = Some(self.epoch(content)?),
                TAG_CLAIM_FROM if content.len() <= KEY_BYTES_MAX + 1 => from = Some(content),
                TAG_CLAIM_TO if content.len() <= KEY_BYTES_MAX + 1 => to = Some(content),
                _ => unknown(RECORD, tag)?,
            }
        }
        let run = epoch.map(|epoch| RunId::filling(Level::ZERO, epoch));
        let run = run.ok_or_else(|| self.damaged("has a claim without naming its run"))?;
        let interval = from.map(|from| Interval::new(from, to));
        if interval.as_ref().is_some_and(Interval::is_empty) || (from.is_none() && to.is_some()) {
            return Err(self.damaged("has a claim of no key"));
        }
        Ok(Claim { run, interval })
    }

    fn list_change(&self, change: u64, bytes: &[u8]) -> Result<ListChange> {
        let (mut level, mut part, mut epoch) = (None, PartKind::Filling, None);
        let (mut uid, mut begins_run, mut meta) = (None, false, None);
        let (mut smallest, mut largest) = (None, None);
        let (mut appended, mut shadowed, mut quiet) = (None, None, false);
        let mut reader = Reader::new(bytes);
        while let Some((tag, content)) = self.field(&mut reader)? {
            match tag {
                TAG_LIST_LEVEL => level = Some(self.level(content)?),
                TAG_LIST_PART => part = self.part(content)?,
                TAG_LIST_EPOCH => epoch = Some(self.epoch(content)?),
                TAG_LIST_UID => uid = Some(self.uid(content)?),
                TAG_LIST_BEGINS_RUN => begins_run = true,
                TAG_LIST_META => {
                    meta = Some(Arc::new(TableMeta::decode(content, self.file, self.offset)?));
                }
                TAG_LIST_SMALLEST => smallest = Some(self.key(content)?),
                TAG_LIST_LARGEST => largest = Some(self.key(content)?),
                TAG_LIST_APPENDED => appended = Some(self.number(content)?),
                TAG_LIST_SHADOWED => shadowed = Some(self.number(content)?),
                TAG_LIST_QUIET => quiet = true,
                _ => unknown(RECORD, tag)?,
            }
        }
        let run = level.zip(epoch).map(|(level, epoch)| RunId { level, part, epoch });
        let run =
            run.ok_or_else(|| self.damaged("changes a buffer list without naming its run"))?;
        let counts = appended.zip(shadowed);
        let counts = counts.map(|(appended, shadowed)| ListCounts { appended, shadowed, quiet });
        let changed = match change {
            TAG_LIST_APPEND => uid.map(|uid| ListChange::Append { run, uid, begins_run, meta }),
            TAG_LIST_HOLE => match (uid, smallest.zip(largest)) {
                (Some(uid), None) => Some(ListChange::Trim { run, uid }),
                (None, Some((smallest, largest))) => {
                    Some(ListChange::Hole { run, smallest, largest })
                }
                _ => None,
            },
            TAG_LIST_COUNTS => counts.map(|counts| ListChange::Count { run, counts }),
            _ => Some(ListChange::Drop { run }),
        };
        changed.ok_or_else(|| self.damaged("changes a buffer list without saying how"))
    }

    fn key(&self, content: &[u8]) -> Result<Vec<u8>> {
        let fits = content.len() <= KEY_BYTES_MAX;
        fits.then(|| content.to_vec()).ok_or_else(|| self.damaged("has a key too long"))
    }

    fn rotation(&self, bytes: &[u8]) -> Result<(Level, Rotation)> {
        let (mut level, mut size, mut entries) = (None, None, None);
        let mut reader = Reader::new(bytes);
        while let Some((tag, content)) = self.field(&mut reader)? {
            match tag {
                TAG_ROTATE_LEVEL => level = Some(self.level(content)?),
                TAG_ROTATE_BYTES => size = Some(self.number(content)?),
                TAG_ROTATE_ENTRIES => entries = Some(self.number(content)?),
                _ => unknown(RECORD, tag)?,
            }
        }
        match (level, size, entries) {
            (Some(level), Some(bytes), Some(entries)) => Ok((level, Rotation { bytes, entries })),
            _ => Err(self.damaged("rotates a level without level, bytes or entries")),
        }
    }

    fn cursor(&self, bytes: &[u8]) -> Result<(Level, Option<Vec<u8>>)> {
        let (mut level, mut key) = (None, None);
        let mut reader = Reader::new(bytes);
        while let Some((tag, content)) = self.field(&mut reader)? {
            match tag {
                TAG_CURSOR_LEVEL => level = Some(self.level(content)?),
                TAG_CURSOR_KEY if content.len() <= KEY_BYTES_MAX => key = Some(content.to_vec()),
                TAG_CURSOR_KEY => return Err(self.damaged("has a cursor longer than a key may be")),
                _ => unknown(RECORD, tag)?,
            }
        }
        let level = level.ok_or_else(|| self.damaged("sets a cursor without naming its level"))?;
        Ok((level, key))
    }

    fn flushed(&self, bytes: &[u8]) -> Result<Flushed> {
        let (mut log_start, mut flushed_seq, mut durable_lsn) = (None, None, None);
        let mut reader = Reader::new(bytes);
        while let Some((tag, content)) = self.field(&mut reader)? {
            match tag {
                TAG_FLUSHED_LOG_START => {
                    let mut position = Reader::new(content);
                    log_start = LogPosition::decode(&mut position).filter(|_| position.is_empty());
                }
                TAG_FLUSHED_SEQ => flushed_seq = Some(self.seq(content)?),
                TAG_FLUSHED_DURABLE_LSN => durable_lsn = Some(self.lsn(content)?),
                _ => unknown(RECORD, tag)?,
            }
        }
        match (log_start, flushed_seq, durable_lsn) {
            (Some(log_start), Some(flushed_seq), Some(durable_lsn)) => {
                Ok(Flushed { log_start, flushed_seq, durable_lsn })
            }
            _ => Err(self.damaged("has a flush without log start, sequence or durable LSN")),
        }
    }
}
