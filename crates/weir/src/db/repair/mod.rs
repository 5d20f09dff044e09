//! Repair: makes a damaged store openable again and keeps all that can be read of it.
//!
//! Not here: finding damage while the store is open (`inspect::verify`); what is left of root
//! record and version log (`version::salvage`).
//!
//! 1. A store that opens and whose tables are sound is left as it is, whatever unfinished jobs have
//!    left in the directory.
//! 2. If the tree's structure can be known, it is kept: damaged and missing tables leave it, and
//!    what can be had of their entries takes their place (`remains`); the write-ahead log is read
//!    into tables, up to its first damage and for keyspaces that begin behind it from there on
//!    (`log`); a fresh log starts. Buffer lists go, and a fault in them is none of the structure.
//! 3. If edits at the end of the version log are lost, the part before them counts, but only if its
//!    tables and the write-ahead log together hold all that the tables of the directory hold.
//! 4. Otherwise the tree is rebuilt (`rebuild`): the sound tables of each keyspace are merged into
//!    one run. Sequence numbers decide between versions of a key, so the order of runs need not be
//!    known. A table that was obsolete but not removed yet can bring deleted keys back here; those
//!    that lists alone name are left out if the tables that they were merged into are all sound.
//!
//! Where only a version tells which tables live, nothing shows which edits are lost. No log counts
//! there but the one that the root record names (or where both superblocks are lost the newest,
//! which the report tells), which stays in place until the new one is there;
//! and if it lost its end that is a loss, whatever else is sound. Case 4 is refused there, unless
//! it is asked for (`written`): it takes every table that was not written over (H72). Where an
//! older version log tells names and options, the new one goes over the one that cannot be used, of
//! which a copy is kept: the one exception from invariant 2.
//!
//! Such a rebuild may go into another place (`elsewhere`): the new tree is written there, beside no
//! obsolete table, and what is damaged is only read; so it is done whatever the version log says.
//!
//! Invariants: (1) nothing that cannot be read is removed: it is copied to `lost-NAME` before, or
//! renamed if nothing of it is needed; (2) the root record is switched after everything that it
//! names is durable, and what it no longer names is removed after that. Until then all that was
//! there is there under its name: a repair that fails or is cut off at any point leaves a store
//! that can be repaired again, also if it is opened in between, which removes what no version
//! names. Only what is no part of the store (`clear_the_way`) is renamed at once; (3) only damage
//! counts as damage: a read that fails, or a format that is too new, ends the repair.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

mod elsewhere;
mod log;
mod named;
mod rebuild;
mod remains;
mod report;
#[cfg(all(test, feature = "sim"))]
mod slots_rules_tests;
#[cfg(all(test, feature = "sim"))]
mod slots_space_tests;
#[cfg(all(test, feature = "sim"))]
mod slots_tests;
#[cfg(all(test, feature = "sim"))]
mod tests;
mod wal;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use report::{LostLog, LostTable, RepairReport};
pub(crate) use wal::{NO_BATCH, damaged_group};

use crate::base::cursor::Cursor;
use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::ids::{DataEpoch, KeyspaceId, Level, Nonce, SegmentNumber, TableUid};
use crate::base::key::Seq;
use crate::base::prng::Prng;
use crate::base::sched;
use crate::base::table_meta::TableMeta;
use crate::compaction::execute::{self, FlushJob, FlushSpec, JobContext, NewUid};
use crate::compaction::policy::Placement;
use crate::db::Builder;
use crate::db::log_start::check_log_starts;
use crate::log::{LogPosition, LogSource, check_ours, is_blank};
use crate::options::{DbOptions, Options};
use crate::storage::open::Location;
use crate::storage::{LogKind, Object, RepairStorage, Storage, check_ahead};
use crate::table::{Table, TableOptions, read_meta};
use crate::version::edit::{AddedTable, VersionEdit};
use crate::version::root::Root;
use crate::version::salvage::{Salvage, salvage};
use crate::version::set::{Context, VersionSet, adopt};
use crate::version::shape::{PartKind, RunId};
use elsewhere::Elsewhere;
use wal::{LogEnd, Segments, read_log};

/// How a store is repaired. The default asks for nothing.
///
/// ```
/// let options = weir::RepairOptions::default().from_trailers(true).keep_in("/var/tmp");
/// assert!(options.from_trailers);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairOptions {
    /// Of a store in a file or on a device whose version log cannot be used, or with `rebuild_into`
    /// whatever it says: build the tree again
    /// from every table that still lies in its slots, where the repair is otherwise refused. Tables
    /// that were merged away long ago are among them, until their slots are written again, so keys
    /// that were deleted and keyspaces that were dropped can come back; the newest version of a key
    /// that is found counts. Default: false. Costs a read of all of them, and as much free space as
    /// they have.
    pub from_trailers: bool,
    /// Of a store in a file or on a device: the directory for copies of what is damaged. Default:
    /// beside the file; a device has no such place, and a repair of one that finds damage needs it.
    pub keep_in: Option<PathBuf>,
    /// With `from_trailers`: the new tree goes into a store of its own here, which must not be
    /// there yet, or be a file or a device that was formatted and never opened, with room for what
    /// the tables that are found come to without their older versions. The damaged one is only
    /// read, so that it needs no room and no copies. Default: `None`, in its own place.
    pub rebuild_into: Option<PathBuf>,
}

impl RepairOptions {
    /// Sets [`RepairOptions::from_trailers`].
    #[must_use]
    pub fn from_trailers(mut self, yes: bool) -> Self {
        self.from_trailers = yes;
        self
    }

    /// Sets [`RepairOptions::keep_in`].
    #[must_use]
    pub fn keep_in(mut self, dir: impl Into<PathBuf>) -> Self {
        self.keep_in = Some(dir.into());
        self
    }

    /// Sets [`RepairOptions::rebuild_into`].
    #[must_use]
    pub fn rebuild_into(mut self, path: impl Into<PathBuf>) -> Self {
        self.rebuild_into = Some(path.into());
        self
    }
}

/// Repairs the store that `builder` describes.
pub(crate) fn repair(builder: Builder, how: RepairOptions) -> Result<RepairReport> {
    let into = how.rebuild_into.clone().map(Location::Path);
    sched::catch_panic("repairing a store", || repair_found(builder, how, into))
}

fn repair_found(
    builder: Builder,
    how: RepairOptions,
    into: Option<Location>,
) -> Result<RepairReport> {
    builder.options.validate()?;
    if into.is_some() && !how.from_trailers {
        let what = "only a store that is built again from trailers can go into another place; ask \
                    for that, too (`--from-trailers`), or repair it where it is";
        return Err(Error::invalid(what));
    }
    let location = builder.location();
    if into.as_ref().is_some_and(|into| into.is_same(&location)) {
        let what = "the new store cannot be where the damaged one is; name another place, or leave \
                    it out to build the tree again where it is";
        return Err(Error::invalid(what));
    }
    let aside = location.open_damaged(how.keep_in.as_deref())?;
    if how.from_trailers && aside.finds_all_tables() {
        let what = "a store in a directory is built again from its tables without being asked; \
                    leave out the wish for trailers";
        return Err(Error::invalid(what));
    }
    let storage: Arc<dyn Storage> = Arc::<dyn RepairStorage>::clone(&aside);
    let seed = builder.seed.unwrap_or_else(Prng::entropy);
    let mut repair = Repair {
        aside,
        storage,
        options: builder.options,
        prng: Prng::new(seed),
        seed,
        from_trailers: how.from_trailers,
        elsewhere: into.map(Elsewhere::Place),
        unnamed: None,
        written: Vec::new(),
        unfinished: Vec::new(),
        report: RepairReport::default(),
        replaced: Vec::new(),
    };
    let ran = repair.look_at_target().and_then(|()| repair.run());
    repair.storage.unlock();
    repair.leave_target(ran.is_ok());
    ran.map(|()| repair.report)
}

struct Repair {
    storage: Arc<dyn Storage>,
    /// The same, for keeping what is given up.
    aside: Arc<dyn RepairStorage>,
    options: DbOptions,
    prng: Prng,
    /// What `prng` began with.
    seed: u64,
    /// Whether tables that no version names may be taken for live where there is no version.
    from_trailers: bool,
    /// Where the new tree goes, if not into the same store.
    elsewhere: Option<Elsewhere>,
    /// The root record of a store that lost both superblocks, and the log that it names.
    unnamed: Option<(Vec<u8>, SegmentNumber)>,
    /// The uids that trailers have, of tables that are not there any more, too.
    written: Vec<TableUid>,
    /// Those of them that a repair wrote that was cut off.
    unfinished: Vec<TableUid>,
    report: RepairReport,
    /// What is removed once the root record no longer names it, and whether it was copied.
    replaced: Vec<(Object, bool)>,
}

/// A table of the tree that is damaged or missing.
struct BadTable {
    keyspace: KeyspaceId,
    level: Level,
    part: PartKind,
    epoch: DataEpoch,
    /// As its run describes it, with its masks.
    meta: Arc<TableMeta>,
    table: Arc<Table>,
    why: Error,
}

/// How many numbers between two segments of a log may have nothing: those of spares, which are at
/// most 32 MiB in segments of 4 KiB at least, and twice that.
const SKIPPED_MAX: u64 = 1 << 14;

/// How far a store may have come, where nothing tells.
const REACHED: u64 = 1 << 40;

/// The greatest numbers that a store is known to have given out.
struct Reached {
    uid: TableUid,
    version_log: SegmentNumber,
    segment: SegmentNumber,
}

/// The error if it tells of damage; otherwise the repair ends with it.
fn damage(error: Error) -> Result<Error> {
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::NotFound => Ok(error),
        _ => Err(error),
    }
}

impl Repair {
    fn run(&mut self) -> Result<()> {
        self.check_opened()?;
        let lost = self.aside.list_lost()?;
        self.report.kept_before = lost.into_iter().map(|(name, _)| name).collect();
        let salvage = salvage(&self.context(), self.aside.finds_all_tables())?;
        adopt(&*self.storage, &salvage.root)?;
        let lost_root = self.aside.lost_root();
        let root_fault = lost_root.as_ref().or(salvage.root_fault.as_ref());
        let faults = root_fault.into_iter().chain(&salvage.log_fault).chain(&salvage.list_fault);
        self.report.structure = faults.cloned().collect();
        let all_are_found = self.aside.finds_all_tables();
        let named = self.named_log(&salvage)?;
        let is_unsafe = !salvage.whole || (!all_are_found && salvage.log != named);
        if is_unsafe || self.elsewhere.is_some() {
            return self.rebuild(salvage);
        }
        self.report.rolled_back = !all_are_found && salvage.log_fault.is_some();
        let newer = if all_are_found { Vec::new() } else { self.newer_tables(&salvage)? };
        let strangers = self.clear_the_way(&salvage)?;
        let segments = Segments::read(&*self.storage)?;
        let log = self.survey(&salvage.root, &segments)?;
        self.clear_unreached(Reached {
            uid: salvage.root.next_uid,
            version_log: salvage.log,
            segment: log.next.segment.max(SegmentNumber::first_of(salvage.root.opening)),
        })?;
        if log.damage.is_none() {
            self.note_replaced(&salvage.root, strangers)?;
        }
        if let Some(fault) = self.outdated(&salvage, &log, &newer)? {
            self.report.structure.push(fault);
            return self.rebuild(salvage);
        }
        self.lengthen()?;
        let checked = self.check_tables(&salvage.root);
        let checked = checked.and_then(|bad| self.check_lists(&salvage.root).map(|()| bad));
        let bad = checked.inspect_err(|_| self.shorten())?;
        self.report.groups_sound = log.groups;
        let newer = newer.iter().filter(|meta| meta.seq_max > log.last_seq);
        self.report.newer_tables = newer.count() as u64;
        let is_sound = self.report.structure.is_empty() && self.report.lists.is_empty();
        if is_sound && bad.is_empty() && log.damage.is_none() {
            let was_whole = self.report.lengthened_bytes == 0;
            let is_all = was_whole && self.report.newer_tables == 0;
            self.report.superblock_restored = self.aside.restore_copies()?;
            let is_same = self.report.strangers.is_empty() && !self.report.superblock_restored;
            self.report.healthy = is_all && is_same;
            return Ok(());
        }
        self.keep(salvage, bad, &log, &segments)
    }

    /// Gives a file that was cut off its length again, unless the tree goes into another place.
    /// What refuses a repair refuses it before.
    pub(super) fn lengthen(&mut self) -> Result<()> {
        self.report.cut_off_bytes = self.aside.cut_off_bytes();
        if self.elsewhere.is_none() {
            self.aside.lengthen()?;
            self.report.lengthened_bytes = self.report.cut_off_bytes;
        }
        Ok(())
    }

    /// Undoes that: what was written since is of no use, and another repair shall say what this one
    /// would have said.
    fn shorten(&self) {
        if self.elsewhere.is_none() {
            self.aside.shorten().ignore_error("the zeros at its end hold nothing");
        }
    }

    fn context(&self) -> Context {
        Context {
            tables: None,
            storage: Arc::clone(self.target()),
            cache: None,
            accountant: None,
            version_log_bytes: self.options.debug.version_log_bytes,
            seed: self.seed,
        }
    }

    /// Sets aside what keeps a store from being opened without being a part of it: logs of another
    /// store, and what is no file, under numbers behind the first log in use. What has an earlier
    /// number is never read. The segments among them, and what they are.
    fn clear_the_way(&mut self, salvage: &Salvage) -> Result<Vec<(SegmentNumber, Error)>> {
        let (root, mut segments) = (&salvage.root, Vec::new());
        let first_segment = log_source(root).start.segment;
        for (kind, first) in [(LogKind::Versions, salvage.log), (LogKind::Wal, first_segment)] {
            for number in self.storage.list_logs(kind)?.into_iter().filter(|&n| n > first) {
                let Err(why) = check_ours(&*self.storage, kind, root.lineage, number) else {
                    continue;
                };
                let why = damage(why)?;
                self.set_aside(Object::Log(kind, number))?;
                self.report.strangers.push(why.clone());
                if kind == LogKind::Wal {
                    segments.push((number, why));
                }
            }
        }
        Ok(segments)
    }

    /// Sets aside files under numbers that the store has not reached, which an opening refuses: it
    /// counts on from the greatest one.
    fn clear_unreached(&mut self, reached: Reached) -> Result<()> {
        let mut objects = Vec::new();
        for uid in self.aside.find_tables()? {
            objects.push((Object::Table(uid), reached.uid.get()));
        }
        let logs = [(LogKind::Versions, reached.version_log), (LogKind::Wal, reached.segment)];
        for (kind, known) in logs {
            for number in self.storage.list_logs(kind)? {
                objects.push((Object::Log(kind, number), known.get()));
            }
        }
        for (object, known) in objects {
            if let Err(why) = check_ahead(&*self.storage, object, known) {
                self.set_aside(object)?;
                self.report.strangers.push(why);
            }
        }
        Ok(())
    }

    /// Tells of strangers that may have been put in the place of a segment, in a log that is sound
    /// without them: not those that lie further behind what is there than segments can.
    fn note_replaced(&mut self, root: &Root, strangers: Vec<(SegmentNumber, Error)>) -> Result<()> {
        let start = log_source(root).start.segment;
        let existing = self.storage.list_logs(LogKind::Wal)?;
        let last = existing.last().map_or(start, |&last| last.max(start));
        let last = SegmentNumber::new(last.get() + SKIPPED_MAX);
        for (_, why) in strangers.into_iter().filter(|&(number, _)| number <= last) {
            self.report.lost_log.push(LostLog { why, groups: 0, entries: 0 });
        }
        Ok(())
    }

    /// Reads the write-ahead log without keeping anything of it.
    fn survey(&self, root: &Root, segments: &Segments) -> Result<LogEnd> {
        let source = log_source(root);
        if let Some(number) = segments.misplaced(root.lineage, source.start.segment).next() {
            let file = self.storage.name_of(Object::Log(LogKind::Wal, number));
            return Ok(LogEnd {
                next: source.start,
                groups: 0,
                last_seq: 0,
                keyspaces: BTreeSet::new(),
                damage: Some(Error::corruption(file, 0, "a segment under a wrong number")),
            });
        }
        let end = read_log(&*self.storage, source, &mut |_, _, _| Ok(()))?;
        let starts = check_log_starts(&*self.storage, root, end.next);
        let damage = end.damage.clone().or(starts.err());
        Ok(LogEnd { damage, ..end })
    }

    /// What tells that the structure which was found must not be used: edits at its end are lost,
    /// and the write-ahead log does not make up for them.
    ///
    /// A version log that was cut between two edits looks whole, so this is asked of every store.
    fn outdated(
        &self,
        salvage: &Salvage,
        log: &LogEnd,
        newer: &[TableMeta],
    ) -> Result<Option<Error>> {
        let root = &salvage.root;
        let lost = |what: &str| {
            let file = self.storage.name_of(Object::Log(LogKind::Versions, salvage.log));
            Some(Error::corruption(file, 0, format_args!("edits are lost: {what}")))
        };
        if log.keyspaces.iter().any(|&id| id >= root.next_keyspace) {
            return Ok(lost("the write-ahead log names a keyspace that is not in it"));
        }
        if salvage.log_fault.is_some() && log.damage.is_some() {
            return Ok(lost("the write-ahead log does not hold what they told"));
        }
        let present: BTreeSet<TableUid> = self.aside.find_tables()?.into_iter().collect();
        let in_tree = root.tables().map(|table| table.meta().uid);
        let named: BTreeSet<TableUid> =
            in_tree.chain(salvage.listed_only.iter().copied()).collect();
        // A table that is only in a buffer list is not needed.
        let missing = root.tables().any(|table| !present.contains(&table.meta().uid));
        let faulty = salvage.root_fault.is_some() || salvage.log_fault.is_some();
        if missing && faulty {
            return Ok(lost("it names tables that are not there"));
        }
        if !missing && !faulty && log.damage.is_none() {
            // It opens, and an opening takes no notice of tables that no version names.
            return Ok(None);
        }
        if newer.iter().any(|meta| tells_of_lost_edits(meta, salvage, log) == Some(true)) {
            return Ok(lost("there are tables that came after it"));
        }
        let mut flushed = Vec::new();
        for &uid in present.difference(&named) {
            match sound_meta(&*self.storage, uid) {
                Ok(meta) => match tells_of_lost_edits(&meta, salvage, log) {
                    Some(true) => return Ok(lost("there are tables that it does not name")),
                    Some(false) => {}
                    None => flushed.push(meta),
                },
                Err(error) => drop(damage(error)?),
            }
        }
        if self.log_holds(root, flushed)? {
            return Ok(None);
        }
        Ok(lost("there are tables that it does not name, and the write-ahead log lacks entries"))
    }

    /// Whether the write-ahead log holds every entry of `tables`, which were flushed after what
    /// `root` says: not if the entries were written without the log.
    fn log_holds(&self, root: &Root, tables: Vec<TableMeta>) -> Result<bool> {
        if tables.is_empty() {
            return Ok(true);
        }
        // The log is bounded, tables are not: what it holds is remembered, neighbours together.
        let mut logged: BTreeMap<KeyspaceId, Vec<RangeInclusive<Seq>>> = BTreeMap::new();
        read_log(&*self.storage, log_source(root), &mut |_, first, records| {
            for (seq, record) in (first..).zip(records) {
                let ranges = logged.entry(record.keyspace).or_default();
                match ranges.last_mut() {
                    Some(last) if last.end() + 1 == seq => *last = *last.start()..=seq,
                    _ => ranges.push(seq..=seq),
                }
            }
            Ok(())
        })?;
        for meta in tables {
            let ranges = logged.get(&meta.keyspace).map_or(&[][..], Vec::as_slice);
            let table = Table::without_seed(Arc::clone(&self.storage), Arc::new(meta));
            let mut all = true;
            let read = table.read_remains(&mut |_, seq, _, _| {
                let before = ranges.partition_point(|range| *range.end() < seq);
                all &= ranges.get(before).is_some_and(|range| range.contains(&seq));
            });
            if let Err(error) = read {
                damage(error)?;
            }
            if !all {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads every table that `root` names; those that are not sound, of each keyspace those with
    /// the newest data first.
    fn check_tables(&mut self, root: &Root) -> Result<Vec<BadTable>> {
        let mut bad = Vec::new();
        for state in root.keyspaces.iter() {
            let keyspace = state.id;
            for (level, runs) in state.version.levels().iter() {
                let tables = runs.runs().flat_map(|(part, run)| {
                    run.tables.iter().map(move |(meta, t)| (part, run.epoch, meta, t))
                });
                for (part, epoch, meta, table) in tables {
                    match table.verify() {
                        Ok(stats) => {
                            self.report.tables_sound += 1;
                            self.report.entries_sound += stats.entries;
                        }
                        Err(error) => {
                            let (why, table) = (damage(error)?, Arc::clone(table));
                            let meta = Arc::clone(meta);
                            bad.push(BadTable { keyspace, level, part, epoch, meta, table, why });
                        }
                    }
                }
            }
        }
        Ok(bad)
    }

    /// Reads every table that only buffer lists of `root` name. If one is damaged, all lists go
    /// with the new version log: they are copies.
    fn check_lists(&mut self, root: &Root) -> Result<()> {
        let versions = root.keyspaces.iter().map(|keyspace| &keyspace.version);
        for table in versions.flat_map(|version| version.all_tables().skip(version.table_count())) {
            if let Err(error) = table.verify() {
                self.report.lists.push(damage(error)?);
            }
        }
        Ok(())
    }

    /// Cases 2 and 3 of the module's header.
    fn keep(
        &mut self,
        salvage: Salvage,
        mut bad: Vec<BadTable>,
        log: &LogEnd,
        segments: &Segments,
    ) -> Result<()> {
        self.copy_structure(&salvage).inspect_err(|_| self.shorten())?;
        let Salvage { mut root, listed_only, .. } = salvage;
        let uids = Arc::new(AtomicU64::new(self.next_uid(root.next_uid)?.get()));
        let next = Arc::clone(&uids);
        let new_uid: NewUid =
            Arc::new(move || Ok(TableUid::new(next.fetch_add(1, Ordering::Relaxed))));
        let mut edit = VersionEdit::default();
        self.aside.begin_rebuild(Some(salvage.log));
        let replaced = self.replace(&root, &listed_only, &mut bad, &new_uid, &mut edit);
        // No record names what was written.
        let given_up = replaced.inspect_err(|_| self.shorten())?;
        self.name_log()?;
        root.next_uid = TableUid::new(uids.load(Ordering::Relaxed));
        root.opening = self.next_opening(root.opening, segments.last_opening(root.lineage))?;
        let set = Arc::new(VersionSet::restart(self.context(), root, &edit, salvage.log)?);
        self.report.lost_tables.extend(given_up);
        self.remove_replaced()?;
        let uids = Arc::clone(&set);
        let new_uid: NewUid = Arc::new(move || uids.new_uid());
        while !bad.is_empty() {
            // The tables that were replaced have made room.
            let (root, mut edit) = (set.current(), VersionEdit::default());
            let replaced = self.replace(&root, &listed_only, &mut bad, &new_uid, &mut edit);
            let installed = replaced.and_then(|given_up| {
                set.apply(edit)?;
                Ok(given_up)
            });
            let removed = installed.and_then(|given_up| {
                self.report.lost_tables.extend(given_up);
                self.remove_replaced()
            });
            if let Err(error) = removed {
                // What was given up so far is told.
                self.report.unfinished = Some(error);
                return Ok(());
            }
        }
        if let Some(fault) = &log.damage {
            self.salvage_log(&set, segments, fault)?;
        }
        Ok(())
    }

    /// Copies what is damaged of root record and version log, and version logs that were not used:
    /// all of them are about to be replaced.
    fn copy_structure(&mut self, salvage: &Salvage) -> Result<()> {
        let mut objects = Vec::new();
        let rebuilt = self.report.rebuilt;
        if salvage.root_fault.is_some() {
            objects.push(Object::Root);
        }
        // A base that no root names may be all that is left of what the named log has lost.
        let goes_over = salvage.log_fault.is_some() && !self.aside.finds_all_tables();
        if salvage.root_fault.is_some() || rebuilt || goes_over {
            for number in self.storage.list_logs(LogKind::Versions)? {
                // Sound or not: it goes when the new one is there.
                let unused = number != salvage.log || rebuilt;
                if unused && !is_blank(&*self.storage, LogKind::Versions, number)? {
                    objects.push(Object::Log(LogKind::Versions, number));
                }
            }
        }
        let log = Object::Log(LogKind::Versions, salvage.log);
        let faulty = salvage.log_fault.is_some() || salvage.list_fault.is_some();
        if faulty && !objects.contains(&log) {
            objects.push(log);
        }
        for object in objects {
            self.keep_copy(object)?;
        }
        Ok(())
    }

    /// Keeps a copy, but of what stays as it is.
    fn keep_copy(&mut self, object: Object) -> Result<()> {
        if self.elsewhere.is_none() {
            let copy = self.aside.copy_aside(object)?;
            self.report.kept_files.extend(copy);
        }
        Ok(())
    }

    fn set_aside(&mut self, object: Object) -> Result<Option<String>> {
        if self.elsewhere.is_some() {
            return Ok(None);
        }
        let name = self.aside.set_aside(object)?;
        self.report.kept_files.extend(name.clone());
        Ok(name)
    }

    /// Keeps a copy of what the root record names, or an opening may read, until it is switched:
    /// then [`remove_replaced`](Self::remove_replaced) removes it. What cannot be copied, because
    /// it cannot be read or there is no room, is moved then; in slots, where nothing can be moved,
    /// nothing is kept of what cannot be read.
    ///
    /// # Errors
    /// `NoSpace` in slots, if there is no room for the copy.
    fn copy_aside(&mut self, object: Object) -> Result<Option<String>> {
        if self.elsewhere.is_some() {
            return Ok(None);
        }
        let (name, copied) = match self.aside.copy_aside(object) {
            Ok(name) => (name, true),
            Err(error) => match (error.kind(), self.aside.finds_all_tables()) {
                (ErrorKind::Io | ErrorKind::NoSpace, true) => {
                    (Some(self.aside.free_lost_name(object)?), false)
                }
                (ErrorKind::Io, false) => {
                    self.replaced.push((object, true));
                    return Ok(None);
                }
                _ => return Err(error),
            },
        };
        if name.is_some() {
            self.replaced.push((object, copied));
        }
        self.report.kept_files.extend(name.clone());
        Ok(name)
    }

    /// Removes what was copied, and moves what was not, now that the root record no longer names
    /// it.
    fn remove_replaced(&mut self) -> Result<()> {
        for (object, copied) in std::mem::take(&mut self.replaced) {
            let removed = match object {
                _ if !copied => self.aside.set_aside(object).map(drop),
                Object::Table(uid) => self.storage.remove_table(uid),
                Object::Log(kind, number) => self.storage.remove_log(kind, number),
                Object::Root => Ok(()),
            };
            removed.ignore_error("an opening takes no notice of it and removes it");
        }
        self.storage.sync_names()
    }

    /// Writes the newest version of every key of `entries`, deletes included, into tables.
    fn write(
        &self,
        output: Output<'_>,
        entries: u64,
        cursor: Box<dyn Cursor + Send>,
    ) -> Result<Vec<AddedTable>> {
        let Output { keyspace, options, run, hash_seed, new_uid } = output;
        let RunId { level, epoch, .. } = run;
        let context = JobContext {
            storage: Arc::clone(self.target()),
            cache: None,
            contents_bytes: None,
            accountant: None,
            hash_seed,
            verify_outputs: true,
            merge_read_bytes: None,
            hand_over_flushes: true,
            new_uid,
            // The next opening removes it.
            note_orphan: Arc::new(|_| {}),
        };
        let spec = FlushSpec {
            keyspace,
            placement: Placement { level },
            epoch,
            entries,
            snapshots: Vec::new(),
            table_bytes: options.table_bytes,
            table: TableOptions::of_level(keyspace, options, level, hash_seed),
            oldest: None,
        };
        let mut job = FlushJob::new(context, spec, cursor);
        let finished = execute::run(&mut job)?;
        let tables = finished.outputs.into_iter();
        Ok(tables.map(|meta| AddedTable { run, meta }).collect())
    }

    /// A uid above all that files have, or had before they were moved aside, and at least `known`.
    /// A file whose number is out of reach does not count.
    fn next_uid(&self, known: TableUid) -> Result<TableUid> {
        // Without a version log the newest uid is unknown.
        let reached = known.get().max(REACHED);
        let lost = self.aside.list_lost()?.into_iter().filter_map(|(_, object)| match object {
            Object::Table(uid) => Some(uid),
            _ => None,
        });
        let all = self.aside.find_tables()?.into_iter().chain(lost);
        let all = all.chain(self.written.iter().copied());
        let near =
            all.filter(|&uid| check_ahead(&*self.storage, Object::Table(uid), reached).is_ok());
        Ok(near.max().map_or(known, |last| known.max(last.next())))
    }

    /// The number of this opening, above all that are known.
    fn next_opening(&self, known: u32, seen: u32) -> Result<u32> {
        known.max(seen).checked_add(1).ok_or_else(|| Error::used_up("the numbers of openings"))
    }
}

/// Whether a table that no version names shows that edits at the end of the version log are lost.
///
/// A crash leaves outputs of unfinished jobs. Those of a compaction hold nothing above what their
/// keyspace has flushed. Those of a flush hold nothing below it: they may hold more than the
/// write-ahead log does, which is not synced for every flush, but that was not durable then. With a
/// sound version log and a sound write-ahead log they prove nothing. `None`: it is one of a flush,
/// whose edit may be among those that are lost, unless the write-ahead log makes up for it.
fn tells_of_lost_edits(meta: &TableMeta, salvage: &Salvage, log: &LogEnd) -> Option<bool> {
    let root = &salvage.root;
    let Some(keyspace) = root.keyspaces.get(meta.keyspace) else {
        return Some(meta.keyspace >= root.next_keyspace);
    };
    if meta.seq_max <= keyspace.flushed_seq {
        return Some(false);
    }
    let merged = meta.seq_min <= keyspace.flushed_seq;
    let logs_sound = salvage.log_fault.is_none() && log.damage.is_none();
    if merged || (!logs_sound && meta.seq_max > root.last_seq.max(log.last_seq)) {
        return Some(true);
    }
    let faulty = salvage.log_fault.is_some() || salvage.root_fault.is_some();
    if faulty { None } else { Some(false) }
}

/// Where tables go and how they are written.
struct Output<'a> {
    keyspace: KeyspaceId,
    options: &'a Options,
    run: RunId,
    hash_seed: u64,
    new_uid: NewUid,
}

fn log_source(root: &Root) -> LogSource {
    LogSource {
        kind: LogKind::Wal,
        start: root.replay_start().unwrap_or(LogPosition::ORIGIN),
        durable_lsn: root.wal_durable_lsn,
        lineage: root.lineage,
        nonce: Nonce::NONE,
    }
}

/// The description of a table by its file alone, whose data blocks are not looked at.
fn sound_meta(storage: &dyn Storage, uid: TableUid) -> Result<TableMeta> {
    read_meta(&*storage.open_table(uid)?, uid)
}

/// The table in a file, if all of it is sound.
fn sound_table(storage: &Arc<dyn Storage>, uid: TableUid) -> Result<Arc<Table>> {
    let meta = sound_meta(&**storage, uid)?;
    let table = Table::without_seed(Arc::clone(storage), Arc::new(meta));
    table.verify()?;
    Ok(table)
}
