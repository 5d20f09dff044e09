//! The store as its users see it: opening, keyspaces, batches, snapshots, maintenance.
//!
//! Not here: how anything works. `engine` ties the layers together, `open` recovers, `scheduler`
//! runs what is done in the background.

use std::borrow::BorrowMut;
use std::path::Path;
use std::sync::Arc;

use crate::base::error::Result;
use crate::options::{DbOptions, DebugDbOptions, Durability, Options};
use crate::storage::open::Location;

pub(crate) mod batch;
pub(crate) mod closing;
pub(crate) mod compactions;
pub(crate) mod copies;
mod default;
mod deferred;
pub(crate) mod engine;
mod estimates;
pub(crate) mod flushes;
mod heat;
#[cfg(all(test, feature = "sim"))]
mod hostile_tests;
pub(crate) mod inspect;
mod install;
pub(crate) mod iter;
mod job_table;
pub(crate) mod keyspace;
pub(crate) mod keyspaces;
mod lists;
mod log_pins;
mod log_start;
pub(crate) mod metrics;
pub(crate) mod open;
#[cfg(feature = "sim")]
mod pause;
mod pressure;
mod quarantine;
pub(crate) mod range;
pub(crate) mod repair;
mod rests;
mod retries;
mod scheduler;
mod segments;
pub(crate) mod snapshot;
mod space;
mod space_checks;
mod stretches;
mod sync_queue;
mod syncs;

use batch::{Commit, WriteBatch};
use closing::Handle;
use inspect::{Description, VerifyReport};
use iter::SnapshotRef;
use keyspace::Keyspace;
use keyspaces::KeyspaceAsk;
use metrics::Metrics;
use repair::{RepairOptions, RepairReport};
use snapshot::Snapshot;

/// An open store. Cheap to clone and to share between threads.
///
/// It is closed by [`close`](Self::close), or when the last handle of any kind is dropped: clones,
/// [`Keyspace`]s, [`Snapshot`]s, [`Cursor`](crate::Cursor)s, [`Iter`](crate::Iter)s,
/// [`WriteBatch`]es with records and [`Commit`]s each keep it open and locked. After `close` they
/// answer `Closed`.
///
/// The methods for single keys and ranges work on the keyspace `default`.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// let db = weir::Db::open(&path)?;
/// db.put(b"key", b"value")?;
/// assert_eq!(db.get(b"key")?.as_deref(), Some(&b"value"[..]));
/// for entry in db.range(b"a"..b"z") {
///     let (key, value) = entry?;
///     println!("{key:?} = {value:?}");
/// }
/// db.close()?;
/// # Ok::<(), weir::Error>(())
/// ```
#[derive(Clone)]
pub struct Db {
    pub(crate) handle: Arc<Handle>,
    pub(crate) default: Keyspace,
}

/// Opens a store with options of its own.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// let db = weir::Db::builder(&path).memory_budget(64 << 20).background_threads(1).open()?;
/// # Ok::<(), weir::Error>(())
/// ```
#[must_use = "a builder does nothing until `open`"]
pub struct Builder {
    pub(crate) path: std::path::PathBuf,
    pub(crate) options: DbOptions,
    pub(crate) default_options: Options,
    pub(crate) device: Option<Arc<dyn crate::device::Dir>>,
    #[cfg(feature = "sim")]
    pub(crate) device_file: Option<String>,
    pub(crate) seed: Option<u64>,
    pub(crate) eviction: crate::cache::Eviction,
    #[cfg(feature = "sim")]
    pub(crate) cache_observer: Option<crate::cache::CacheObserver>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $ty:ty,)*) => {
        $($(#[$doc])*
        pub fn $name(mut self, $name: $ty) -> Self {
            self.options.$name = $name;
            self
        })*
    };
}

impl Builder {
    setters! {
        /// Sets [`DbOptions::create_if_missing`].
        create_if_missing: bool,
        /// Sets [`DbOptions::error_if_exists`].
        error_if_exists: bool,
        /// Sets [`DbOptions::read_only`].
        read_only: bool,
        /// Sets [`DbOptions::memory_budget`], in bytes.
        memory_budget: u64,
        /// Sets [`DbOptions::background_threads`].
        background_threads: usize,
        /// Sets [`DbOptions::log_segment_bytes`].
        log_segment_bytes: u64,
        /// Sets [`DbOptions::log_area_bytes`].
        log_area_bytes: u64,
        /// Sets [`DbOptions::discard`].
        discard: bool,
        /// Sets [`DbOptions::debug`], for tests and experiments.
        debug: DebugDbOptions,
    }

    /// Sets [`DbOptions::block_cache_bytes`].
    pub fn block_cache_bytes(mut self, bytes: u64) -> Self {
        self.options.block_cache_bytes = Some(bytes);
        self
    }

    /// Sets [`DbOptions::row_cache_bytes`].
    pub fn row_cache_bytes(mut self, bytes: u64) -> Self {
        self.options.row_cache_bytes = bytes;
        self
    }

    /// Sets [`DbOptions::open_files_max`].
    pub fn open_files_max(mut self, files: usize) -> Self {
        self.options.open_files_max = Some(files);
        self
    }

    /// Sets all options of the store at once.
    pub fn options(mut self, options: DbOptions) -> Self {
        self.options = options;
        self
    }

    /// Options of the keyspace `default` if the store is created. A store that exists keeps those
    /// that it has: see [`Keyspace::set_options`].
    pub fn default_options(mut self, options: Options) -> Self {
        self.default_options = options;
        self
    }

    /// Puts the store on this device instead of the directory at the path. For simulations.
    #[cfg(feature = "sim")]
    pub fn device(mut self, device: Arc<dyn crate::device::Dir>) -> Self {
        self.device = Some(device);
        self
    }

    /// Puts the store into this file of the [device](Self::device), which was formatted before. For
    /// simulations.
    #[cfg(feature = "sim")]
    pub fn device_file(mut self, name: impl Into<String>) -> Self {
        self.device_file = Some(name.into());
        self
    }

    /// Where the store is.
    pub(crate) fn location(&self) -> Location {
        match &self.device {
            None => Location::Path(self.path.clone()),
            Some(dir) => {
                #[cfg(feature = "sim")]
                if let Some(name) = &self.device_file {
                    return Location::File(Arc::clone(dir), name.clone());
                }
                Location::Dir(Arc::clone(dir))
            }
        }
    }

    /// Fixes what is otherwise drawn by chance for a new store: its lineage and hash seed. For
    /// simulations.
    #[cfg(feature = "sim")]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Which block leaves the full block cache. For experiments.
    #[cfg(feature = "sim")]
    pub fn eviction(mut self, eviction: crate::cache::Eviction) -> Self {
        self.eviction = eviction;
        self
    }

    /// Tells `observer` of every call of the block cache. For experiments.
    #[cfg(feature = "sim")]
    pub fn cache_observer(mut self, observer: crate::cache::CacheObserver) -> Self {
        self.cache_observer = Some(observer);
        self
    }

    /// Opens the store: creates it or recovers it, and starts its background threads.
    ///
    /// # Errors
    /// `InvalidArgument` for an option outside its range or a directory that holds other files;
    /// `NotFound`, `Conflict` as `create_if_missing` and `error_if_exists` ask for; `Locked` if it
    /// is open elsewhere; `Corruption` if the log or the version log is damaged below what was
    /// durable; `Unsupported` if a newer version wrote it; `NoSpace`, `Io`. What is there is left
    /// as it is.
    pub fn open(self) -> Result<Db> {
        open::open(self)
    }

    /// Repairs the store instead of opening it: see [`Db::repair`]. Of the options only
    /// `memory_budget` (a quarter of it bounds what is read of the log at once) and, of those for
    /// tests, [`DebugDbOptions::version_log_bytes`] matter.
    ///
    /// # Errors
    /// As [`Db::repair`].
    pub fn repair(self) -> Result<RepairReport> {
        self.repair_with(RepairOptions::default())
    }

    /// As [`repair`](Self::repair), with options.
    ///
    /// # Errors
    /// As [`Db::repair`]; `NotFound` if there is no [`RepairOptions::keep_in`], `InvalidArgument`
    /// for an option that is for stores in a file or on a device only.
    pub fn repair_with(self, options: RepairOptions) -> Result<RepairReport> {
        repair::repair(self, options)
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("path", &self.path)
            .field("options", &self.options)
            .field("default_options", &self.default_options)
            .finish_non_exhaustive()
    }
}

impl Db {
    /// Opens the store in the directory `path` with default options, creating it if there is none.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    /// A builder for the store in the directory `path`.
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder {
            path: path.as_ref().to_owned(),
            options: DbOptions::default(),
            default_options: Options::default(),
            device: None,
            #[cfg(feature = "sim")]
            device_file: None,
            seed: None,
            eviction: crate::cache::Eviction::default(),
            #[cfg(feature = "sim")]
            cache_observer: None,
        }
    }

    /// Removes the store in the directory `path`, and only what is its own. The directory stays,
    /// also if it is empty then: it may have been there before the store, or be a mount point.
    ///
    /// # Errors
    /// `Locked` if it is open, `InvalidArgument` if the directory is not a store's, `Io`. No store:
    /// nothing happens.
    pub fn destroy(path: impl AsRef<Path>) -> Result<()> {
        Location::Path(path.as_ref().to_owned()).destroy()
    }

    /// Makes the damaged store in the directory `path` openable again, and keeps all of it that can
    /// be read. Costs one read of the whole store; a store without damage is left as it is.
    ///
    /// What cannot be read is not removed but kept as `lost-NAME`. Of a damaged table the sound
    /// blocks are kept: older versions of the keys that are lost, and keys whose deletes were
    /// there, can come to light again. The write-ahead log counts up to its first damaged place,
    /// and behind it for keyspaces whose tables hold all that is before. Files of another store
    /// among the logs are renamed and cost nothing. If the root record and the version log cannot
    /// be used, the tree is built again from its tables: keyspaces whose names are lost are called
    /// `recovered-N`, and tables that were obsolete but not removed yet can bring deleted keys
    /// back. A repair that was interrupted can be run again. In a file or on a device nothing but
    /// the version log tells which tables are obsolete: without it the repair is refused, unless
    /// [`RepairOptions::from_trailers`] asks for it.
    ///
    /// # Errors
    /// `NotFound` if there is no store, `InvalidArgument` if the directory holds other files,
    /// `Locked` if the store is open, `Unsupported` if a newer version wrote it, `NoSpace`; `Io` if
    /// the device fails: copy what can be read of it to a sound one first.
    pub fn repair(path: impl AsRef<Path>) -> Result<RepairReport> {
        Self::builder(path).repair()
    }

    /// Opens the keyspace `name`, with the options that are stored with it; creates it with default
    /// options if there is none.
    ///
    /// Threads that ask for one name at once get one keyspace. Beside a drop of that name the
    /// keyspace may be the one that is going.
    ///
    /// # Errors
    /// `InvalidArgument` for a name outside its [limits](crate#limits), `Closed`; if it has to be
    /// created, those of a write, and `ReadOnly`.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.keyspace_with(name, Options::default())
    }

    /// Opens the keyspace `name`, with the options that are stored with it; creates it with
    /// `options` if there is none. Of threads that create one name at once with different options,
    /// one has its way.
    ///
    /// What an existing keyspace was given before, by this program or another one, is never changed
    /// by opening it. To see whether it has other options, compare; to change them, say so:
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = weir::Db::open(dir.path().join("db"))?;
    /// let wanted = weir::Options::default().write_buffer_bytes(16 << 20);
    /// let users = db.keyspace_with("users", wanted.clone())?;
    /// if users.options() != wanted {
    ///     users.set_options(wanted)?;
    /// }
    /// # Ok::<(), weir::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`keyspace`](Self::keyspace); `InvalidArgument` for an option outside its range and
    /// `Unsupported` for a compression that was not built in, also if the keyspace exists.
    pub fn keyspace_with(&self, name: &str, options: Options) -> Result<Keyspace> {
        self.ask(name, KeyspaceAsk::OpenOrCreate(options))
    }

    /// Creates the keyspace `name`. Of threads that create one name at once, one succeeds.
    ///
    /// # Errors
    /// As [`keyspace_with`](Self::keyspace_with); `Conflict` if it exists.
    pub fn create_keyspace(&self, name: &str, options: Options) -> Result<Keyspace> {
        self.ask(name, KeyspaceAsk::Create(options))
    }

    /// Opens the keyspace `name`, and creates none: a wrong name is an error.
    ///
    /// # Errors
    /// `NotFound` if it does not exist, `InvalidArgument` for a name outside its limits, `Closed`.
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.ask(name, KeyspaceAsk::Open)
    }

    fn ask(&self, name: &str, ask: KeyspaceAsk) -> Result<Keyspace> {
        let engine = &self.handle.engine;
        let tree = engine.guarded("a change of the keyspaces", || engine.keyspace(name, ask))?;
        Ok(Keyspace { handle: Arc::clone(&self.handle), tree })
    }

    /// Drops the keyspace `name` with everything in it. Handles of it answer `Closed` from then on;
    /// cursors that are open keep what they see.
    ///
    /// Durable when it returns, and with it every write that was acknowledged before it was called
    /// (those with [`Durability::None`] apart): it syncs the log.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` for `default`, and those of a write.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let engine = &self.handle.engine;
        engine.guarded("a change of the keyspaces", || engine.drop_keyspace(name))
    }

    /// Names of all keyspaces, in order.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.handle.engine.trees.lock().values().map(|t| t.name.clone()).collect();
        names.sort();
        names
    }

    /// The keyspace `default`, which always exists.
    #[must_use]
    pub fn default_keyspace(&self) -> &Keyspace {
        &self.default
    }

    /// Writes a batch, given away or lent (`&mut batch`): all of it or nothing, as durable as asked
    /// for when the call returns. An empty batch with [`Durability::Sync`] does what
    /// [`sync`](Self::sync) does.
    ///
    /// A batch that was lent has its records afterwards, written or not: write it again after an
    /// error, or [clear](WriteBatch::clear) it and use its memory again.
    ///
    /// # Errors
    /// As [`Keyspace::put_with`]; `InvalidArgument` also for a batch over several keyspaces with
    /// [`Durability::None`], and for records of another store.
    pub fn write(
        &self,
        mut batch: impl BorrowMut<WriteBatch>,
        durability: Durability,
    ) -> Result<()> {
        let batch = batch.borrow_mut();
        self.admit(batch, durability)?;
        self.handle.engine.write_batch(&mut batch.pending)
    }

    /// Starts writing a batch and returns a handle to wait for it.
    ///
    /// Usually returns at once. It waits for its turn while batches of one write buffer
    /// ([`Options::write_buffer_bytes`], the largest of the batch's keyspaces) wait to be written,
    /// so that a slow device or a stalled store cannot pile them up; and where it is this thread
    /// that has to write what others left waiting, up to 1 MiB beyond that.
    pub fn commit(&self, mut batch: WriteBatch, durability: Durability) -> Commit {
        let ticket = self
            .admit(&mut batch, durability)
            .and_then(|()| self.handle.engine.submit_batch(&mut batch.pending))
            .unwrap_or_else(crate::write::queue::Ticket::failed);
        Commit { handle: Arc::clone(&self.handle), ticket, durability }
    }

    fn admit(&self, batch: &mut WriteBatch, durability: Durability) -> Result<()> {
        if let Some(error) = &batch.invalid {
            return Err(error.clone());
        }
        if batch.handle.as_ref().is_some_and(|h| !Arc::ptr_eq(h, &self.handle)) {
            return Err(batch::of_another_store());
        }
        batch.pending.durability = durability;
        Ok(())
    }

    /// Makes every write that has returned so far durable (except those with [`Durability::None`]).
    ///
    /// # Errors
    /// `Poisoned`, `Io`, `ReadOnly`, `Closed`.
    pub fn sync(&self) -> Result<()> {
        self.handle.engine.sync()
    }

    /// A snapshot of the whole store as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { inner: SnapshotRef::take(&self.handle), handle: Arc::clone(&self.handle) }
    }

    /// Writes the memtables of all keyspaces out and waits until that is durable.
    ///
    /// # Errors
    /// As [`Keyspace::flush`].
    pub fn flush(&self) -> Result<()> {
        let engine = &self.handle.engine;
        engine.guarded("a flush", || engine.flush_all())
    }

    /// What the slots of a store in a file or on a device hold; `None` of one in a directory, and
    /// of one that was closed.
    #[must_use]
    pub fn slot_space(&self) -> Option<crate::SlotSpace> {
        self.handle.engine.storage().ok()?.slot_space()
    }

    /// Bytes of what is free of a store in a file or on a device that are kept back for flushes and
    /// compactions, as of now: writes that need a new segment of the log are refused while less is
    /// free. An estimate from above. `None` as for [`slot_space`](Self::slot_space). Looks at all
    /// tables, some milliseconds where there are many.
    #[must_use]
    pub fn kept_back_bytes(&self) -> Option<u64> {
        let space = self.slot_space()?;
        Some(self.handle.engine.kept_back_bytes(space.log_segment_bytes))
    }

    /// Waits until no flush and no compaction is due or running.
    ///
    /// # Errors
    /// `Poisoned`, `NoSpace`, `Closed`: the background work cannot go on.
    pub fn wait_idle(&self) -> Result<()> {
        let engine = &self.handle.engine;
        engine.guarded("what makes room for background work", || engine.wait_idle())
    }

    /// Counters and sizes as of now.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let metrics = metrics::collect(&self.handle.engine);
        // Tables that were removed meanwhile were held by it.
        self.handle.engine.reclaim_soon();
        metrics
    }

    /// A property as text; `None` if there is none of that name. See [`Description`] for the
    /// structured form. Names: `weir.stats`, `weir.io`, `weir.levels`, `weir.num-tables`,
    /// `weir.num-busy-tables` (inputs of running compactions), `weir.num-keyspaces`,
    /// `weir.num-snapshots`, `weir.oldest-snapshot`, `weir.last-sequence`, `weir.memory-usage`,
    /// `weir.block-cache-usage`, `weir.background-error`, `weir.quarantine`, `weir.prometheus`.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<String> {
        inspect::property(&self.handle.engine, name)
    }

    /// What the store consists of: keyspaces, levels, runs, tables, logs.
    #[must_use]
    pub fn describe(&self) -> Description {
        inspect::describe(&self.handle.engine)
    }

    /// Reads every table of every keyspace and checks all checksums and invariants. Costs one read
    /// of the whole store; runs beside other work.
    ///
    /// # Errors
    /// `Closed`. Damage and missing tables are no error of the call: they are in the report. If
    /// nothing is damaged but a table could not be read, which says nothing about its bytes, the
    /// error of that: `Io` (no permission, too many open files, the device), `Unsupported`. The
    /// other tables were read nevertheless; beside damage, such errors are in the report too.
    pub fn verify(&self) -> Result<VerifyReport> {
        let report = inspect::verify(&self.handle.engine);
        // It has held tables that merges have removed meanwhile.
        self.handle.engine.reclaim_soon();
        report
    }

    /// The path it was opened with.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.handle.engine.path
    }

    /// Ends background work, makes the log durable and releases the lock. Other clones of this
    /// handle, its keyspaces, snapshots and cursors answer `Closed` from then on.
    ///
    /// What was acknowledged before it returns is there when the store is opened again, whatever
    /// its durability; writes beside it are acknowledged or `Closed`. Callbacks of commits have
    /// been called when it returns, unless it is called in a callback itself, of this store or of
    /// another one. May be called in any thread; called twice, the second call waits for the first
    /// and is `Ok`.
    ///
    /// # Errors
    /// `Poisoned` if an earlier failure left the log's state unknown; `NoSpace`, `Io`:
    /// writes with [`Durability::None`] or [`Durability::Deferred`] may be lost then. The store is
    /// closed in any case.
    pub fn close(self) -> Result<()> {
        self.handle.close()
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("path", &self.path()).finish_non_exhaustive()
    }
}
