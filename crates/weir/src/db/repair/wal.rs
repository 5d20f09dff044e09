//! The write-ahead log as a repair reads it: whole groups up to the first damage, into memtables.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::{KeyspaceId, Lineage, SegmentNumber};
use crate::base::key::Seq;
use crate::log::{GroupView, LogPosition, LogSource, Peek, is_blank, peek, replay};
use crate::memtable::Memtable;
use crate::storage::{LogKind, Object, Storage};
use crate::write::batch::{Record, Records, open_group, record_fault};

/// How far a log could be read.
#[derive(Clone, Debug)]
pub(super) struct LogEnd {
    /// The first group that was not read.
    pub(super) next: LogPosition,
    /// Groups that were read.
    pub(super) groups: u64,
    /// Largest sequence number in them; 0 if there is none.
    pub(super) last_seq: Seq,
    /// Keyspaces that their records name.
    pub(super) keyspaces: BTreeSet<KeyspaceId>,
    /// What the reading stopped at; `None` if that is the end of the log.
    pub(super) damage: Option<Error>,
}

/// Reads the log and hands every group to `on_group`, with the sequence number of its first record
/// and its records, which were checked.
///
/// # Errors
/// `Unsupported`, the device's, and those of `on_group`. Damage is in the result.
pub(super) fn read_log(
    storage: &dyn Storage,
    source: LogSource,
    on_group: &mut dyn FnMut(&GroupView<'_>, Seq, Records<'_>) -> Result<()>,
) -> Result<LogEnd> {
    let mut end = LogEnd {
        next: source.start,
        groups: 0,
        last_seq: 0,
        keyspaces: BTreeSet::new(),
        damage: None,
    };
    let mut failed = None;
    let result = replay(storage, source, &mut |group| {
        let (first, records) = check_group(storage, &group, &mut end.keyspaces)?;
        if group.count > 0 {
            end.last_seq = end.last_seq.max(first + group.count - 1);
            // Not for replay to return: what fails here is not the log.
            on_group(&group, first, records).inspect_err(|error| failed = Some(error.clone()))?;
        }
        end.groups += 1;
        end.next = group.next;
        Ok(())
    });
    match (failed, result) {
        (Some(error), _) => Err(error),
        (None, Ok(replayed)) => Ok(LogEnd { next: replayed.next, ..end }),
        (None, Err(error)) if error.kind() == ErrorKind::Corruption => {
            Ok(LogEnd { damage: Some(error), ..end })
        }
        (None, Err(error)) => Err(error),
    }
}

/// The first sequence number and the records of a group, all of which are whole.
fn check_group<'a>(
    storage: &dyn Storage,
    group: &GroupView<'a>,
    keyspaces: &mut BTreeSet<KeyspaceId>,
) -> Result<(Seq, Records<'a>)> {
    if group.count == 0 {
        return Ok((0, Records::new(&[])));
    }
    let damaged = |what: &str| damaged_group(storage, group, what);
    let (first, mut records) = open_group(group.payload, group.count).map_err(damaged)?;
    let (mut count, mut fault) = (0, None);
    for record in records.by_ref() {
        keyspaces.insert(record.keyspace);
        fault = fault.or_else(|| record_fault(&record));
        count += 1;
    }
    if records.damaged() || count != group.count {
        fault = Some(NO_BATCH);
    }
    match fault {
        Some(what) => Err(damaged(what)),
        None => open_group(group.payload, group.count)
            .map(|(_, records)| (first, records))
            .map_err(damaged),
    }
}

/// What is wrong with a group that cannot be split into records.
pub(crate) const NO_BATCH: &str = "holds something that is not a batch of this version";

/// The error for a group whose checksum is right and whose content is not.
pub(crate) fn damaged_group(storage: &dyn Storage, group: &GroupView<'_>, what: &str) -> Error {
    Error::corruption(
        storage.name_of(Object::Log(LogKind::Wal, group.position.segment)),
        group.position.offset,
        format_args!("log group {} {what}", group.lsn),
    )
}

/// Memtables by keyspace.
#[derive(Default)]
pub(super) struct Memtables {
    tables: BTreeMap<KeyspaceId, Arc<Memtable>>,
}

impl Memtables {
    /// Adds a record. One that is there already (a group that two segments hold) is skipped.
    pub(super) fn insert(&mut self, record: &Record<'_>, seq: Seq) {
        const HINT_BYTES: usize = 1 << 20;
        let fresh = || Arc::new(Memtable::new(HINT_BYTES));
        let memtable = self.tables.entry(record.keyspace).or_insert_with(fresh);
        if memtable.get(record.key, seq).is_none_or(|found| found.seq != seq) {
            memtable.insert(record.key, seq, record.kind, record.value);
        }
    }

    /// With the one memtable of a keyspace.
    pub(super) fn of(keyspace: KeyspaceId, memtable: Arc<Memtable>) -> Self {
        Self { tables: BTreeMap::from([(keyspace, memtable)]) }
    }

    /// Bytes of all.
    pub(super) fn bytes(&self) -> u64 {
        self.tables.values().map(|memtable| memtable.bytes()).sum()
    }

    /// Hands over what was collected.
    pub(super) fn take(&mut self) -> BTreeMap<KeyspaceId, Arc<Memtable>> {
        std::mem::take(&mut self.tables)
    }
}

/// The segments of the write-ahead log, by what their first groups say.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// Those that can be read, of whatever store.
    pub(super) readable: BTreeMap<SegmentNumber, Peek>,
    /// Those that stand under another number than they were started with, and their lineage.
    renamed: BTreeMap<SegmentNumber, Peek>,
    /// Those that hold something but cannot be read from the start.
    unreadable: Vec<SegmentNumber>,
    /// What is no file.
    no_files: Vec<SegmentNumber>,
}

impl Segments {
    /// Looks at all segments.
    ///
    /// # Errors
    /// `Unsupported`, the device's.
    pub(super) fn read(storage: &dyn Storage) -> Result<Self> {
        let mut segments = Self::default();
        for number in storage.list_logs(LogKind::Wal)? {
            match storage.open_log(LogKind::Wal, number) {
                Ok(_) => {}
                // A pipe or the like.
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    segments.no_files.push(number);
                    continue;
                }
                Err(error) => return Err(error),
            }
            match peek(storage, LogKind::Wal, number)? {
                Some(peeked) if peeked.stated == number => {
                    segments.readable.insert(number, peeked);
                }
                Some(peeked) => drop(segments.renamed.insert(number, peeked)),
                None if is_blank(storage, LogKind::Wal, number)? => {}
                None => segments.unreadable.push(number),
            }
        }
        Ok(segments)
    }

    /// The lineage of most segments, of the newest of them if several have as many.
    pub(super) fn lineage(&self) -> Option<Lineage> {
        let mut votes: BTreeMap<Lineage, (usize, SegmentNumber)> = BTreeMap::new();
        for (&number, peeked) in &self.readable {
            let vote = votes.entry(peeked.lineage).or_default();
            *vote = (vote.0 + 1, number);
        }
        votes.into_iter().max_by_key(|&(_, vote)| vote).map(|(lineage, _)| lineage)
    }

    /// Segments of another store, or of this one under a smaller number than theirs, and what is no
    /// file.
    pub(super) fn foreign(&self, lineage: Lineage) -> Vec<SegmentNumber> {
        let all = self.readable.iter().chain(&self.renamed);
        let foreign = all.filter(|(_, peeked)| peeked.lineage != lineage);
        let foreign = foreign.map(|(&number, _)| number);
        let misplaced = self.misplaced(lineage, SegmentNumber::ZERO);
        foreign.chain(misplaced).chain(self.no_files.iter().copied()).collect()
    }

    /// Segments of this store under a smaller number than theirs, which is `from` or greater and
    /// which nothing has: they may hold what was acknowledged. Under a greater one stands what was
    /// to be recycled.
    pub(super) fn misplaced(
        &self,
        lineage: Lineage,
        from: SegmentNumber,
    ) -> impl Iterator<Item = SegmentNumber> {
        let ours = self.renamed.iter().filter(move |(_, peeked)| peeked.lineage == lineage);
        let smaller = ours.filter(move |(number, p)| p.stated > **number && p.stated >= from);
        let alone = smaller.filter(move |(_, peeked)| {
            self.readable.get(&peeked.stated).is_none_or(|other| other.lineage != lineage)
        });
        alone.map(|(&number, _)| number)
    }

    /// Segments, of whatever store as it seems, that hold something and cannot be read from the
    /// start, and those that were to be recycled.
    pub(super) fn unreadable(&self, lineage: Lineage) -> Vec<SegmentNumber> {
        let ours = self.renamed.iter().filter(|(_, peeked)| peeked.lineage == lineage);
        let recycled = ours.filter(|(number, peeked)| peeked.stated < **number);
        self.unreadable.iter().copied().chain(recycled.map(|(&number, _)| number)).collect()
    }

    /// The segments of `lineage` as chains: each begins where the segment before is not there, and
    /// holds all segments that go on from one in it.
    pub(super) fn chains(&self, lineage: Lineage) -> Vec<Vec<SegmentNumber>> {
        let mut chains: Vec<Vec<SegmentNumber>> = Vec::new();
        for (&number, peeked) in self.readable.iter().filter(|(_, p)| p.lineage == lineage) {
            let of_chain = |chain: &&mut Vec<SegmentNumber>| chain.contains(&peeked.prev.segment);
            match chains.iter_mut().find(of_chain) {
                Some(chain) => chain.push(number),
                None => chains.push(vec![number]),
            }
        }
        chains
    }

    /// The greatest opening of any segment of `lineage`.
    pub(super) fn last_opening(&self, lineage: Lineage) -> u32 {
        let ours = self.readable.values().filter(|peeked| peeked.lineage == lineage);
        ours.map(|peeked| peeked.opening).max().unwrap_or(0)
    }
}
