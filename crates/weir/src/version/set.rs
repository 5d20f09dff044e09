//! The version set: the current root, the version log, which makes edits durable, and the root
//! record, which names the log.
//!
//! Not here: applying edits (`root`), the rules of the tree (`check`), freeing tables (`state`).
//!
//! Invariants: (1) one edit at a time, under the install lock: applied, checked, logged, synced,
//! and only then published; (2) `current` never waits for I/O; (3) the version log starts with a
//! base that describes a whole root; the root record names a log only when its base is durable, and
//! older logs are removed only after the record is durable (bugs 30, 34, 35); (4) log numbers are
//! never reused: a new one is above all that exist and above the record's (bug 33), and where
//! an interrupted opening has left nothing to be seen, nonces differ (H71); (5)
//! every opening for writing starts a new log, so it never appends behind a torn edit; (6) after a
//! failed sync, or a failed append that cannot be rolled back, the set is poisoned: no edit is
//! installed (H43), and the tables of an edit that may be persisted must not be deleted (bug 32);
//! (7) a uid is drawn only below the mark that the durable root records, and every opening starts
//! at the mark: a uid may be spent although nothing durable shows it (H70).
//!
//! Locks: install, then current. The second is held for a pointer copy only.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::base_log::{self, BaseLog};
use super::buffer_effects::effects;
use super::check;
use super::edit::{KeyspaceEdit, VersionEdit};
use super::record::RootRecord;
use super::root::{Places, Root};
use super::salvage::went_on;
use crate::base::clock;
use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::ids::{DataEpoch, KeyspaceId, Lineage, Nonce, SegmentNumber, TableUid};
use crate::base::memory::Accountant;
use crate::base::prng::Prng;
use crate::base::sched::{self, Mutex};
use crate::base::table_meta::TableMeta;
use crate::cache::BlockCache;
use crate::log::{GroupType, SegmentWriter};
use crate::storage::{LiveTable, LogKind, Object, Storage, check_ahead};
use crate::table::{Table, TableCache, TableMemory};

/// Why a failed removal of an old version log does not matter.
const OBSOLETE_LOG: &str = "the next opening removes version logs that the root does not name";

/// How far the recorded mark of uids is above those drawn, after each edit and each base: 4,096
/// tables are written before one more edit is needed for a mark, and so many uids are skipped by an
/// opening.
pub(crate) const UIDS_AHEAD: u64 = 1 << 12;

/// Bytes that a log of fixed capacity has room for behind each base: an edit of a few tables, and
/// its start.
const NEXT_EDIT_BYTES: u64 = 8 << 10;

/// The components that a version set and the tables of its versions use.
#[derive(Clone)]
pub(crate) struct Context {
    /// The store's storage.
    pub(crate) storage: Arc<dyn Storage>,
    /// The cache that tables read through.
    pub(crate) cache: Option<Arc<BlockCache>>,
    /// The accountant of the tables' memory.
    pub(crate) accountant: Option<Arc<Accountant>>,
    /// Bytes of the version log after which a new base is written.
    pub(crate) version_log_bytes: u64,
    /// Bounds the number of open tables.
    pub(crate) tables: Option<Arc<TableCache>>,
    /// What nonces of version logs are drawn from, with the time.
    pub(crate) seed: u64,
}

impl Context {
    /// The nonce of version log `number`: another one each time that it is begun.
    fn new_nonce(&self, number: SegmentNumber) -> Nonce {
        let drawn = self.seed ^ clock::unix_nanos() ^ number.get().rotate_left(48);
        Nonce::new(Prng::new(drawn).next_u64().max(1))
    }

    pub(super) fn open(&self, meta: &Arc<TableMeta>, hash_seed: u64) -> Arc<Table> {
        let memory = TableMemory {
            cache: self.cache.clone(),
            accountant: self.accountant.clone(),
            tables: self.tables.clone(),
        };
        // A view belongs to a run, not to the reader of the file.
        let meta = match meta.masks.is_empty() {
            true => Arc::clone(meta),
            false => Arc::new(meta.of_file()),
        };
        Table::new(Arc::clone(&self.storage), meta, hash_seed, memory)
    }
}

/// An edit that was installed.
#[derive(Debug)]
pub(crate) struct Installed {
    /// The root after it, which is current.
    pub(crate) root: Arc<Root>,
    /// Tables that the root no longer names, for the reclaimer. The edit that removed them is
    /// durable.
    pub(crate) removed: Vec<Arc<Table>>,
    /// The error of every later edit, if none can be installed after this one.
    pub(crate) last: Option<Error>,
}

impl Installed {
    /// The files of removed tables are deleted: none may have a place in the root.
    fn assert_removed(&self, places: &Places) {
        for table in &self.removed {
            let named = places.contains(table.meta().uid);
            assert!(!named, "a removed table is still in the tree or in a list: {table:?}");
        }
        debug_assert_eq!(places.len(), self.root.all_tables().count(), "places and tables differ");
    }
}

/// An edit that was not installed.
#[derive(Clone, Debug)]
pub(crate) struct ApplyError {
    /// Why. `NoSpace`: may be retried. `Poisoned`: the store must be reopened.
    pub(crate) error: Error,
    /// Whether the edit may still be on disk and be recovered by the next opening: then neither the
    /// tables that it adds may be deleted (bug 32), nor those that it removes.
    pub(crate) maybe_persisted: bool,
}

impl From<ApplyError> for Error {
    fn from(failed: ApplyError) -> Self {
        failed.error
    }
}

impl From<Error> for ApplyError {
    fn from(error: Error) -> Self {
        Self { error, maybe_persisted: false }
    }
}

/// All keyspaces' versions, and the only way to change them.
pub(crate) struct VersionSet {
    context: Context,
    current: RwLock<Arc<Root>>,
    /// The next uid to draw. The mark is `next_uid` of the current root.
    next_uid: AtomicU64,
    next_epoch: AtomicU64,
    next_keyspace: AtomicU64,
    log_bytes_written: AtomicU64,
    install: Mutex<Install>,
    #[cfg(test)]
    pub(crate) refusals: Refusals,
}

/// Lets a test refuse edits that replace tables.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Refusals {
    /// Edits to refuse from now on.
    pub(crate) left: AtomicU64,
    /// 0: as an edit that does not fit; 1: as damage.
    pub(crate) kind: AtomicU64,
}

#[cfg(test)]
impl Refusals {
    fn check(&self, edit: &VersionEdit) -> Result<()> {
        let replaces = edit.keyspaces.values().any(|changes| !changes.removed.is_empty());
        let left = self.left.load(Ordering::Relaxed);
        if !replaces || left == 0 {
            return Ok(());
        }
        self.left.store(left - 1, Ordering::Relaxed);
        Err(match self.kind.load(Ordering::Relaxed) {
            0 => Error::new(ErrorKind::Conflict, "a test refuses this edit"),
            _ => Error::corruption("a test", 0, "an edit"),
        })
    }
}

/// The state that the install lock protects.
struct Install {
    places: Places,
    /// `None` if the store was opened for reading only.
    log: Option<VersionLog>,
    /// The error of every edit from now on.
    poison: Option<Error>,
}

struct VersionLog {
    writer: SegmentWriter,
    /// Bytes of the log's base.
    base_bytes: u64,
    /// Size of the log at which the next base is written.
    rewrite_bytes: u64,
    buf: Vec<u8>,
}

impl VersionSet {
    /// Creates the version set of a new store: a first base of the changes of `initial`, and the
    /// root record.
    ///
    /// # Errors
    /// `Conflict` if there is a root record; `Corruption` if there is none but there are tables or
    /// a write-ahead log, so that a lost root record is not taken for an empty store; the device's.
    pub(crate) fn create(
        context: Context,
        lineage: Lineage,
        hash_seed: u64,
        initial: &VersionEdit,
    ) -> Result<Self> {
        let storage = &*context.storage;
        if storage.read_root_record()?.is_some() {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("there is already a store in {}", storage.path()),
            ));
        }
        if !storage.list_tables()?.is_empty() || !storage.list_logs(LogKind::Wal)?.is_empty() {
            return Err(Error::corruption(
                storage.path(),
                0,
                "the root record is missing, but there are tables or a write-ahead log",
            ));
        }
        let mut root = Root::empty(lineage, hash_seed);
        adopt(storage, &root)?;
        root.opening = 1;
        let places = Places::default();
        let open = |meta: &Arc<TableMeta>| context.open(meta, hash_seed);
        let (root, changes) = root.apply(initial, &places, &open)?;
        check::check_tables(&root, &changes)?;
        let mut places = places;
        changes.install(&mut places);
        Self::start(context, root, places, SegmentNumber::ZERO)
    }

    /// Makes the root that is there, changed by `change` and then by `edit`, the store's,
    /// unchecked: what a hostile program can write.
    #[cfg(all(test, feature = "sim"))]
    pub(crate) fn forge(
        context: Context,
        change: &dyn Fn(&mut Root),
        edit: &VersionEdit,
    ) -> Result<()> {
        let (record, mut root, places) = Self::read(&context)?;
        change(&mut root);
        let open = |meta: &Arc<TableMeta>| context.open(meta, root.hash_seed);
        let (root, _) = root.apply(edit, &places, &open)?;
        let number = record.version_log.next();
        let base = base_log::write(&*context.storage, &root, number, context.new_nonce(number))?;
        context.storage.write_root_record(&base.record.encode(), number)
    }

    /// Starts a new log with the root that is there and writes `edits` behind it, unchecked; as
    /// edits of its base, if `in_base`.
    #[cfg(all(test, feature = "sim"))]
    pub(crate) fn forge_edits(
        context: Context,
        edits: &[VersionEdit],
        in_base: bool,
    ) -> Result<()> {
        let (record, root, _) = Self::read(&context)?;
        let storage = &*context.storage;
        let number = record.version_log.next();
        let mut base = base_log::write(storage, &root, number, context.new_nonce(number))?;
        for edit in edits {
            let mut buf = Vec::new();
            edit.encode(&mut buf);
            let durable = base.writer.chain().lsn;
            let lsn = base.writer.append(GroupType::Full, &[&buf], 1, true, durable)?;
            if in_base {
                base.record.base_lsn = lsn;
            }
        }
        base.writer.region().sync()?;
        storage.write_root_record(&base.record.encode(), base.record.version_log)
    }

    /// Reads the root record and the version log that it names, and starts a new log.
    ///
    /// # Errors
    /// `NotFound` if there is no store; `Corruption`, `Unsupported`, or the device's.
    pub(crate) fn recover(context: Context) -> Result<Self> {
        let (record, mut root, places) = Self::read(&context)?;
        let last = record.opening.max(root.opening);
        root.opening =
            last.checked_add(1).ok_or_else(|| Error::used_up("the numbers of openings"))?;
        // Versions that recorded no mark show by the files alone which uids are spent.
        if let Some(&uid) = context.storage.list_tables()?.last() {
            check_ahead(&*context.storage, Object::Table(uid), root.next_uid.get())?;
            root.next_uid = root.next_uid.max(uid.next());
        }
        if let Some(&number) = context.storage.list_logs(LogKind::Versions)?.last() {
            let log = Object::Log(LogKind::Versions, number);
            check_ahead(&*context.storage, log, record.version_log.get())?;
        }
        Self::start(context, root, places, record.version_log)
    }

    /// Starts a new log after a repair: `root`, changed by `changes`, becomes the first base.
    /// `last_log` is the greatest number that a version log is known to have had.
    ///
    /// # Errors
    /// `Conflict` if `changes` do not fit; the device's. The root record is switched last.
    pub(crate) fn restart(
        context: Context,
        root: Root,
        changes: &VersionEdit,
        last_log: SegmentNumber,
    ) -> Result<Self> {
        let open = |meta: &Arc<TableMeta>| context.open(meta, root.hash_seed);
        // Lists are copies: nobody misses them, and nobody need trust them after a repair.
        let root = root.without_lists();
        let mut places = root.places();
        let (next, changed) = root.apply(changes, &places, &open)?;
        check::check_tables(&next, &changed)?;
        changed.install(&mut places);
        Self::start(context, next, places, last_log)
    }

    /// Reads the root and writes nothing: every edit is refused with `ReadOnly`.
    ///
    /// # Errors
    /// As [`VersionSet::recover`].
    pub(crate) fn open_read_only(context: Context) -> Result<Self> {
        let (_, root, places) = Self::read(&context)?;
        let first_uid = root.next_uid;
        Ok(Self::new(context, root, first_uid, Install { places, log: None, poison: None }))
    }

    fn read(context: &Context) -> Result<(RootRecord, Root, Places)> {
        let storage = &*context.storage;
        let Some(bytes) = storage.read_root_record()? else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no store in {}", storage.path()),
            ));
        };
        let file = storage.name_of(Object::Root);
        let record = RootRecord::decode(&bytes, &file)?;
        // To start a new log would end the one that counts.
        if let Some(why) = went_on(context, record.version_log, record.lineage)? {
            return Err(Error::corruption(file, 0, format_args!("{why};")));
        }
        let open = |meta: &Arc<TableMeta>, hash_seed| context.open(meta, hash_seed);
        let (root, places) = base_log::read(storage, &record, &open)?;
        adopt(storage, &root)?;
        Ok((record, root, places))
    }

    /// Writes `root` as the base of a new log above `last_log`, switches the root record to it and
    /// removes older logs.
    fn start(
        context: Context,
        mut root: Root,
        places: Places,
        last_log: SegmentNumber,
    ) -> Result<Self> {
        let first_uid = root.next_uid;
        root.next_uid = mark_above(first_uid);
        check::check_base(&root)?;
        let storage = &*context.storage;
        let existing = storage.list_logs(LogKind::Versions)?;
        let number = existing.last().map_or(last_log, |&last| last.max(last_log)).next();
        let base = base_log::write(storage, &root, number, context.new_nonce(number))?;
        storage.write_root_record(&base.record.encode(), number)?;
        for number in existing {
            storage.remove_log(LogKind::Versions, number).ignore_error(OBSOLETE_LOG);
        }
        let bytes = base.writer.bytes();
        let log = VersionLog::new(base, context.version_log_bytes);
        let install = Install { places, log: Some(log), poison: None };
        let set = Self::new(context, root, first_uid, install);
        set.log_bytes_written.store(bytes, Ordering::Relaxed);
        Ok(set)
    }

    fn new(context: Context, root: Root, first_uid: TableUid, install: Install) -> Self {
        Self {
            context,
            next_uid: AtomicU64::new(first_uid.get()),
            next_epoch: AtomicU64::new(root.next_epoch.get()),
            next_keyspace: AtomicU64::new(u64::from(root.next_keyspace)),
            log_bytes_written: AtomicU64::new(0),
            current: RwLock::new(Arc::new(root)),
            install: Mutex::new(install),
            #[cfg(test)]
            refusals: Refusals::default(),
        }
    }

    /// The current root. Never waits for I/O.
    #[inline]
    pub(crate) fn current(&self) -> Arc<Root> {
        sched::switch_point();
        let root = Arc::clone(&self.current.read());
        sched::pause_point();
        root
    }

    /// A table uid that was never assigned before, in this or an earlier opening. Waits for the
    /// device if more were drawn since the last edit than its mark allows.
    ///
    /// Locks: install.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(crate) fn new_uid(&self) -> Result<TableUid> {
        let uid = TableUid::new(self.next_uid.fetch_add(1, Ordering::Relaxed));
        if uid >= self.uid_mark() {
            // Any edit raises the mark above all that are drawn.
            self.apply(VersionEdit::default())?;
        }
        let mark = self.uid_mark();
        assert!(uid < mark, "uid {uid} is drawn, and uids below {mark} are recorded as used");
        Ok(uid)
    }

    /// Uids below may be in use, as a durable edit or base records.
    fn uid_mark(&self) -> TableUid {
        self.current.read().next_uid
    }

    /// A data epoch above all drawn before, and above one more, which nobody else gets: that of the
    /// sentinels that are built of what is older (H22). Drawn when a run's content is fixed.
    pub(crate) fn new_epoch(&self) -> DataEpoch {
        DataEpoch::new(self.next_epoch.fetch_add(2, Ordering::Relaxed) + 1)
    }

    /// The epoch below that of the next run whose content will be fixed, and above all others.
    pub(crate) fn epoch_below_next(&self) -> DataEpoch {
        DataEpoch::new(self.next_epoch.load(Ordering::Relaxed))
    }

    /// A keyspace id that was never assigned before; `None` if all are used.
    pub(crate) fn new_keyspace_id(&self) -> Option<KeyspaceId> {
        KeyspaceId::try_from(self.next_keyspace.fetch_add(1, Ordering::Relaxed)).ok()
    }

    /// Bytes written to version logs since the opening.
    pub(crate) fn log_bytes_written(&self) -> u64 {
        self.log_bytes_written.load(Ordering::Relaxed)
    }

    /// Uids of the tables that the newest root names. At opening every other table is an orphan;
    /// later it may belong to a job or to a reader of an older version.
    #[cfg(test)]
    pub(crate) fn live_tables(&self) -> std::collections::BTreeSet<TableUid> {
        let install = self.install.lock();
        let Places { tables, listed } = &install.places;
        tables.keys().chain(listed.keys()).copied().collect()
    }

    /// Number of the version log in use; `None` if the store was opened for reading only.
    pub(crate) fn version_log(&self) -> Option<SegmentNumber> {
        self.install.lock().log.as_ref().map(|log| log.writer.segment())
    }

    /// The error of every edit from now on, if the set is poisoned.
    #[cfg(test)]
    pub(crate) fn poison(&self) -> Option<Error> {
        self.install.lock().poison.clone()
    }

    /// Refuses every edit from now on with `why`, after a running one: another process may own the
    /// files then.
    pub(crate) fn close(&self, why: Error) {
        self.install.lock().poison.get_or_insert(why);
    }

    /// Makes `edit` durable and its root current.
    ///
    /// Locks: install. Waits for the device.
    ///
    /// # Errors
    /// Nothing is changed then. `Closed` for a keyspace that was dropped meanwhile; `Conflict` for
    /// an edit that does not fit; `NoSpace` if the log cannot grow: the log is as before and the
    /// edit may be tried again; `Poisoned` after a failed sync or a panic; `ReadOnly`. See
    /// [`ApplyError`].
    pub(crate) fn apply(&self, edit: VersionEdit) -> Result<Installed, ApplyError> {
        let mut install = self.install.lock();
        let install = &mut *install;
        let apply = || Ok(self.apply_locked(install, edit));
        let panicked = match sched::catch_panic("a change of the tree", apply) {
            Ok(outcome) => return outcome,
            Err(panicked) => poisoned(&panicked),
        };
        // The panic may have followed the write to the device: without the edit the state in memory
        // must not be used.
        install.poison.get_or_insert_with(|| panicked.clone());
        Err(ApplyError { error: panicked, maybe_persisted: true })
    }

    fn apply_locked(
        &self,
        install: &mut Install,
        mut edit: VersionEdit,
    ) -> Result<Installed, ApplyError> {
        if let Some(poison) = &install.poison {
            return Err(ApplyError::from(poison.clone()));
        }
        if install.log.is_none() {
            return Err(ApplyError::from(read_only()));
        }
        self.pass_added(&edit);
        edit.next_uid = Some(mark_above(TableUid::new(self.next_uid.load(Ordering::Relaxed))));
        edit.next_epoch = Some(DataEpoch::new(self.next_epoch.load(Ordering::Relaxed)));
        edit.next_keyspace = KeyspaceId::try_from(self.next_keyspace.load(Ordering::Relaxed)).ok();
        let old = self.current();
        decide_lists(&old, &mut edit, &install.places);
        let open = |meta: &Arc<TableMeta>| self.context.open(meta, old.hash_seed);
        let (root, changes) = old.apply(&edit, &install.places, &open)?;
        check::check(&old, &root, &edit, &install.places, &changes)?;
        if let Some(log) = &install.log {
            log.check_next_base(&old, &root)?;
        }
        #[cfg(test)]
        self.refusals.check(&edit)?;
        self.make_room(install, &old, &edit);
        if let Some(poison) = &install.poison {
            return Err(ApplyError::from(poison.clone()));
        }
        let Some(log) = &mut install.log else { return Err(ApplyError::from(read_only())) };
        let before = log.writer.bytes();
        if let Err(mut failed) = log.append(&edit) {
            if failed.maybe_persisted {
                failed.error = poisoned(&failed.error);
                install.poison = Some(failed.error.clone());
            }
            return Err(failed);
        }
        let bytes = log.writer.bytes();
        assert!(bytes > before, "an edit was appended, but the log went from {before} to {bytes}");
        self.log_bytes_written.fetch_add(bytes - before, Ordering::Relaxed);
        let removed = changes.install(&mut install.places);
        let mut installed = self.publish(root, removed);
        installed.assert_removed(&install.places);
        if log.is_due() {
            self.rewrite(install, &installed.root);
            installed.last = install.poison.clone();
        }
        Ok(installed)
    }

    /// Rewrites a log of fixed capacity that has no room for `edit`, if that gives it any.
    fn make_room(&self, install: &mut Install, root: &Root, edit: &VersionEdit) {
        let Some(log) = &mut install.log else { return };
        if !log.writer.grows() && log.has_edits() && !log.has_room_for(edit) {
            self.rewrite(install, root);
        }
    }

    /// Draws no uid at or below those of the tables of `edit`, whoever chose them.
    fn pass_added(&self, edit: &VersionEdit) {
        let added = edit.keyspaces.values().flat_map(|changes| &changes.added);
        let greatest = added.map(|table| table.meta.uid.next()).max().unwrap_or_default();
        self.next_uid.fetch_max(greatest.get(), Ordering::Relaxed);
    }

    fn publish(&self, root: Root, removed: Vec<Arc<Table>>) -> Installed {
        self.next_epoch.fetch_max(root.next_epoch.get(), Ordering::Relaxed);
        self.next_keyspace.fetch_max(u64::from(root.next_keyspace), Ordering::Relaxed);
        let root = Arc::new(root);
        sched::switch_point();
        let old = std::mem::replace(&mut *self.current.write(), Arc::clone(&root));
        let counters = |root: &Root| (root.next_uid, root.next_epoch, root.last_seq);
        let (before, after) = (counters(&old), counters(&root));
        assert!(
            before.0 <= after.0 && before.1 <= after.1 && before.2 <= after.2,
            "the root goes back from {before:?} to {after:?} (uid, epoch, sequence)"
        );
        // Not under the lock: this may free a version.
        drop(old);
        Installed { root, removed, last: None }
    }

    /// Replaces the log by a new one that starts with `root`. The edits so far are safe in the old
    /// log: a failure that leaves nothing unknown, such as a full disk, only delays the rewrite;
    /// any other failure poisons the set.
    fn rewrite(&self, install: &mut Install, root: &Root) {
        let Some(log) = &mut install.log else { return };
        let old = log.writer.segment();
        match self.switch(old, root) {
            Ok(base) => {
                self.log_bytes_written.fetch_add(base.writer.bytes(), Ordering::Relaxed);
                *log = VersionLog::new(base, self.context.version_log_bytes);
                self.context.storage.remove_log(LogKind::Versions, old).ignore_error(OBSOLETE_LOG);
            }
            Err(error) if !error.leaves_unknown() => {
                log.rewrite_bytes = log.writer.bytes() + self.context.version_log_bytes;
            }
            Err(error) => install.poison = Some(poisoned(&error)),
        }
    }

    fn switch(&self, old: SegmentNumber, root: &Root) -> Result<BaseLog> {
        let storage = &*self.context.storage;
        let existing = storage.list_logs(LogKind::Versions)?;
        let number = existing.last().map_or(old, |&last| last.max(old)).next();
        let nonce = self.context.new_nonce(number);
        let base = base_log::write(storage, root, number, nonce).inspect_err(|_| {
            storage.remove_log(LogKind::Versions, number).ignore_error(OBSOLETE_LOG);
        })?;
        let record = base.record.encode();
        let Err(error) = storage.write_root_record(&record, number) else { return Ok(base) };
        // Which record would a crash leave? The old log may be continued only if the old record is
        // certainly still there. A full device may report so after the record was replaced.
        let is_old = match error.kind() {
            ErrorKind::NoSpace => {
                storage.read_root_record().is_ok_and(|r| r.is_some_and(|r| r != record))
            }
            _ => !error.leaves_unknown(),
        };
        if is_old {
            storage.remove_log(LogKind::Versions, number).ignore_error(OBSOLETE_LOG);
            return Err(error);
        }
        Err(Error::with_source(
            ErrorKind::Io,
            "the root record could not be replaced; reopen the store",
            error,
        ))
    }
}

/// Tells storage which tables `root` names.
///
/// # Errors
/// As [`Storage::adopt`].
pub(crate) fn adopt(storage: &dyn Storage, root: &Root) -> Result<()> {
    let metas = root.all_tables().map(|table| table.meta());
    let mut live =
        metas.map(|meta| LiveTable { uid: meta.uid, place: &meta.place, bytes: meta.bytes });
    storage.adopt(&mut live)
}

/// Adds to `edit` what it does to buffer lists.
fn decide_lists(old: &Root, edit: &mut VersionEdit, places: &Places) {
    for (&id, changes) in &mut edit.keyspaces {
        let requests = std::mem::take(&mut changes.requests);
        let Some(keyspace) = old.keyspaces.get(id).filter(|_| !changes.drop) else { continue };
        let asked = KeyspaceEdit { requests, ..changes.clone() };
        changes.lists = effects(keyspace, &asked, places);
    }
}

/// The mark that is recorded while uids from `next` on are free.
fn mark_above(next: TableUid) -> TableUid {
    TableUid::new(next.get().saturating_add(UIDS_AHEAD))
}

fn read_only() -> Error {
    Error::new(ErrorKind::ReadOnly, "the store was opened for reading only")
}

fn poisoned(cause: &Error) -> Error {
    Error::with_source(
        ErrorKind::Poisoned,
        format!("no change of the tree is accepted until the store is reopened, because: {cause}"),
        cause.clone(),
    )
}

impl VersionLog {
    fn new(base: BaseLog, version_log_bytes: u64) -> Self {
        let base_bytes = base.writer.bytes();
        // At least as many bytes of edits as of base, so that bases are at most half of the bytes
        // written.
        let rewrite_bytes = version_log_bytes.max(2 * base_bytes);
        Self { writer: base.writer, base_bytes, rewrite_bytes, buf: Vec::new() }
    }

    fn is_due(&self) -> bool {
        self.writer.bytes() >= self.rewrite_bytes && self.has_edits()
    }

    /// Whether it holds more than its base.
    fn has_edits(&self) -> bool {
        self.writer.bytes() > self.base_bytes
    }

    fn has_room_for(&mut self, edit: &VersionEdit) -> bool {
        self.buf.clear();
        edit.encode(&mut self.buf);
        self.buf.len() as u64 <= self.writer.room()
    }

    /// Refuses an edit from `old` to `new` behind which no base fits a log of fixed capacity: the
    /// next opening writes one.
    ///
    /// # Errors
    /// `NoSpace`. Edits that make the base no larger are never refused.
    fn check_next_base(&self, old: &Root, new: &Root) -> Result<()> {
        if self.writer.grows() {
            return Ok(());
        }
        let bytes = new.base_bytes() + NEXT_EDIT_BYTES;
        let room = self.writer.region().capacity()?;
        if bytes <= room || new.base_bytes() <= old.base_bytes() {
            return Ok(());
        }
        let what = format!(
            "the version log has room for {room} bytes and the description of the tree would need \
             {bytes}; drop keyspaces or choose a larger area for it"
        );
        Err(Error::new(ErrorKind::NoSpace, what))
    }

    /// Why the edit in `buf` does not fit.
    fn refusal(&self) -> Error {
        let (bytes, room) = (self.buf.len(), self.writer.room());
        if self.writer.grows() {
            let what =
                format!("a version edit of {bytes} bytes is too large; the largest has {room}");
            return Error::invalid(what);
        }
        let what = format!(
            "the version log has room for {room} bytes behind its base and an edit needs {bytes}; \
             drop keyspaces or choose a larger area for it"
        );
        Error::new(ErrorKind::NoSpace, what)
    }

    /// Appends `edit` and makes it durable. On an error it is rolled back, or `maybe_persisted` is
    /// set.
    fn append(&mut self, edit: &VersionEdit) -> Result<(), ApplyError> {
        self.buf.clear();
        edit.encode(&mut self.buf);
        let decoded = VersionEdit::decode(&self.buf, "the encoded edit", 0);
        assert!(
            decoded.as_ref().is_ok_and(|decoded| decoded == edit),
            "an edit is decoded as another one: {edit:?} as {decoded:?}"
        );
        if self.buf.len() as u64 > self.writer.room() {
            return Err(ApplyError::from(self.refusal()));
        }
        let durable_lsn = self.writer.chain().lsn;
        let appended = self.writer.append(GroupType::Full, &[&self.buf], 1, true, durable_lsn);
        match appended {
            Ok(lsn) => assert_eq!(lsn, durable_lsn.next(), "an edit is one group"),
            Err(error) => {
                return match self.writer.rollback() {
                    Ok(()) => Err(ApplyError::from(error)),
                    Err(_) => Err(ApplyError { error, maybe_persisted: true }),
                };
            }
        }
        // After a failed sync the content of the disk is unknown: no retry (H43).
        self.writer.region().sync().map_err(|error| ApplyError { error, maybe_persisted: true })
    }
}
