//! Opening a store: creation, or recovery of what is there (ARCHITECTURE §8, hazards H34, H38,
//! H52).
//!
//! Steps of a recovery, each harmless to repeat after a crash in the middle:
//! (a) the version set recovers and starts a fresh version log as a new opening;
//! (b) every log segment that may be needed is synced, so that nothing which is shown to readers
//! now
//!     can be lost by the next power cut;
//! (c) the log is replayed from the earliest log start; each keyspace skips what its tables cover;
//!     memtables that grow beyond the write buffer become tables on the way;
//!     and if the log has piled up, all of them do; without space they stay in memory, and the
//!     background work of the open store tries again;
//! (d) the log is started behind its last good group: with the first write, in a fresh segment that
//!     names that group as its predecessor;
//! (e) what no keyspace needs is removed: tables of unfinished jobs, old logs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::clock;
use crate::base::error::{Error, ErrorKind, IgnoreError, Result};
use crate::base::ids::{KeyspaceId, Lineage, Lsn, Nonce, SegmentNumber, TableUid};
use crate::base::key::Seq;
use crate::base::limits;
use crate::base::memory::Accountant;
use crate::base::prng::Prng;
use crate::base::sched::{self, Mutex};
use crate::cache::BlockCache;
use crate::compaction::execute::{self, JobContext};
use crate::db::closing::Handle;
use crate::db::engine::{DEFAULT_KEYSPACE, Engine, Writer, effective_options, memtable_bytes_max};
use crate::db::heat::heat_for;
use crate::db::job_table::Jobs;
use crate::db::keyspace::Keyspace;
use crate::db::log_pins::LogPins;
use crate::db::log_start::check_log_starts;
use crate::db::repair::{NO_BATCH, damaged_group};
use crate::db::sync_queue::SyncQueue;
use crate::db::{Builder, Db};
use crate::db::{flushes, scheduler};
use crate::log::wal::{FoundLog, Wal, WalOptions};
use crate::log::{GroupView, LogPosition, LogSource, ReplayEnd, replay};
use crate::memtable::ChunkPool;
use crate::options::DbOptions;
use crate::options::defaults::CACHE_TABLES;
use crate::state::shared::{Opened, Shared};
use crate::state::tree::{Flushable, SuperVersion, Tree};

use crate::storage::io::{Cause, IoCounters, on_behalf_of};
use crate::storage::{LogBytes, LogKind, Object, OpenOptions, Storage, check_ahead};
use crate::table::{Gates, TableCache};
use crate::version::edit::{Flushed, VersionEdit};
use crate::version::set::{Context, VersionSet};
use crate::write::batch::{open_group, record_fault};
use crate::write::queue::{Committer, FreezeSource, Limits};

/// If recovery finds at least this many WAL segments, `open` flushes every memtable, so that all of
/// them can be deleted. Each opening begins a segment, and the store may be closed again before the
/// first flush of background work, which would delete older ones.
const RECOVERY_SEGMENTS_MAX: usize = 4;

/// Opens the store that `builder` describes. A panic on the way is an error: what is read there may
/// be hostile.
pub(crate) fn open(builder: Builder) -> Result<Db> {
    sched::catch_panic("opening a store", || open_found(builder))
}

fn open_found(builder: Builder) -> Result<Db> {
    let _cause = on_behalf_of(Cause::Open);
    let mut options = builder.options.clone();
    options.validate()?;
    let location = builder.location();
    let default_options = builder.default_options.taken_in()?;
    let path = builder.path.display().to_string();
    let io = Arc::new(IoCounters::default());
    let create = options.create_if_missing && !options.read_only;
    let opening = OpenOptions { create, read_only: options.read_only };
    let storage = location.open(opening, options.discard, &io)?;
    storage.keep_beside(options.memory_budget);
    let mut given_up = GivenUp(Some(Arc::clone(&storage)));
    if let Some(LogBytes { segment, area }) = storage.log_bytes() {
        options.log_segment_bytes = options.log_segment_bytes.min(segment);
        options.log_area_bytes = options.log_area_bytes.min(area);
    }
    let root = storage.read_root_record()?;
    if root.is_some() && options.error_if_exists {
        return Err(Error::new(
            ErrorKind::Conflict,
            format!("there is a store in {path}; open it without error_if_exists, or destroy it"),
        ));
    }
    let accountant = Accountant::new(options.memory_budget);
    let cache_bytes = options.block_cache_bytes.unwrap_or(options.common_budget() / 2);
    let cache = BlockCache::with_accountant(cache_bytes, builder.eviction, Arc::clone(&accountant));
    #[cfg(feature = "sim")]
    let cache = cache.observed_by(builder.cache_observer.clone());
    let cache = Arc::new(cache);
    let tables_max = options.open_files_max.or_else(|| storage.open_tables_max());
    let tables = TableCache::new(tables_max.unwrap_or(usize::MAX));
    let seed = builder.seed.unwrap_or_else(Prng::entropy);
    let context = Context {
        tables: Some(Arc::clone(&tables)),
        storage: Arc::clone(&storage),
        cache: Some(Arc::clone(&cache)),
        accountant: Some(Arc::clone(&accountant)),
        version_log_bytes: options.debug.version_log_bytes,
        seed,
    };
    let set = match (root.is_some(), options.read_only) {
        (true, true) => VersionSet::open_read_only(context)?,
        (true, false) => VersionSet::recover(context)?,
        (false, _) => {
            let mut prng = Prng::new(seed);
            let mut initial = VersionEdit::default();
            let default = initial.keyspace(KeyspaceId::DEFAULT);
            default.create = Some(DEFAULT_KEYSPACE.to_owned());
            default.options = Some(Arc::new(default_options));
            VersionSet::create(context, Lineage::new(prng.next_u64()), prng.next_u64(), &initial)?
        }
    };
    let set = Arc::new(set);
    let memtables_max = memtable_bytes_max(options.common_budget());
    let memtable_memory = ChunkPool::new(Arc::clone(&accountant), memtables_max);
    let opening =
        Opening { options, storage, io, accountant, memtable_memory, cache, tables, set, path };
    let db = opening.run()?;
    given_up.0 = None;
    Ok(db)
}

/// Gives the storage up if its opening fails, also by a panic: what goes on behind it, as discards
/// do, ends before somebody else can open the store (H73).
struct GivenUp(Option<Arc<dyn Storage>>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        let unlocked = sched::catch_panic("giving a store up", || {
            self.0.iter().for_each(|storage| storage.unlock());
            Ok(())
        });
        unlocked.ignore_error("the error of the opening says more");
    }
}

/// A store between its version set and its first reader.
struct Opening {
    options: DbOptions,
    storage: Arc<dyn Storage>,
    io: Arc<IoCounters>,
    accountant: Arc<Accountant>,
    memtable_memory: Arc<ChunkPool>,
    cache: Arc<BlockCache>,
    tables: Arc<TableCache>,
    set: Arc<VersionSet>,
    path: String,
}

impl Opening {
    fn run(self) -> Result<Db> {
        let trees = self.make_trees();
        let replayed = self.replay(&trees)?;
        let waiting = charge(&trees);
        let trees = Arc::new(Mutex::new(trees));
        // Weak: tables of these trees hold what holds this.
        let gates_of = Arc::downgrade(&trees);
        self.tables.set_gates(Box::new(move |id| {
            let trees = gates_of.upgrade()?;
            let tree = trees.lock().get(&id).cloned();
            tree.map(|tree| tree as Arc<dyn Gates>)
        }));
        let root = self.set.current();
        let last_seq = root.last_seq.max(replayed.last_seq);
        let memory = Arc::clone(&self.memtable_memory);
        let row_cache_bytes = self.options.row_cache_bytes;
        let gap_entries = self.options.debug.gap_entries;
        let opened = Opened { last_seq, hash_seed: root.hash_seed, row_cache_bytes, gap_entries };
        let shared = Arc::new(Shared::new(memory, opened));
        waiting.into_iter().for_each(|id| shared.note_frozen(id));
        let writer = if self.options.read_only {
            None
        } else {
            Some(self.start_log(&shared, &trees, &replayed.end, last_seq)?)
        };
        let value_bytes_max = (limits::VALUE_BYTES_MAX as u64)
            .min(self.options.memory_budget / 8)
            .min(self.options.log_area_bytes / 4);
        let cache_bytes_of_jobs = cache_bytes_of_jobs(&self.options, &*self.storage);
        let table_unit = self.storage.free_space().table_unit;
        let engine = Arc::new(Engine {
            storage: Mutex::new(Some(self.storage)),
            io: self.io,
            set: self.set,
            writer,
            shared,
            cache: self.cache,
            tables: self.tables,
            reclaimer: Arc::default(),
            trees,
            ddl: Mutex::new(()),
            log_pins: LogPins::default(),
            jobs: Jobs::default(),
            value_bytes_max: value_bytes_max as usize,
            cache_bytes_of_jobs,
            table_unit,
            path: self.path,
            opened_nanos: clock::now_nanos(),
            options: self.options,
        });
        engine.remove_orphans()?;
        engine.freeze_replayed()?;
        engine.look_at_all();
        engine.note_all_lists();
        let all: BTreeSet<KeyspaceId> = engine.trees.lock().keys().copied().collect();
        engine.note_rests(&all);
        engine.note_heat(&all);
        engine.update_pressure();
        // Half of the budget was a guess. A store that is only read has no edit that would set it.
        engine.cache.set_capacity(engine.cache_share());
        let default = engine.trees.lock().values().find(|t| t.name == DEFAULT_KEYSPACE).cloned();
        let default = default.ok_or_else(|| {
            let path = &engine.path;
            let what = format!("the store {path} has no default keyspace; repair it");
            Error::new(ErrorKind::NotFound, what)
        })?;
        let handle = Arc::new(Handle { engine: Arc::clone(&engine), workers: Mutex::default() });
        if engine.writer.is_some() {
            for number in 0..engine.options.background_threads {
                let engine = Arc::clone(&engine);
                let worker = sched::spawn(&format!("weir-worker-{number}"), move || {
                    scheduler::work(&engine)
                })
                .map_err(|e| Error::io("starting a background thread", e))?;
                handle.workers.lock().push(worker);
            }
        }
        Ok(Db { default: Keyspace { handle: Arc::clone(&handle), tree: default }, handle })
    }

    /// One tree per keyspace, with empty memtables.
    fn make_trees(&self) -> BTreeMap<KeyspaceId, Arc<Tree>> {
        let root = self.set.current();
        let tree = |state: &Arc<crate::version::keyspaces::KeyspaceVersion>| {
            let options = effective_options(&self.options, &state.options);
            let active =
                Flushable::new(options.write_buffer_bytes, state.log_start, &self.memtable_memory);
            let heat = heat_for(&self.accountant, &options, &state.version, None);
            let first = SuperVersion::new(active, Arc::clone(&state.version), options);
            let first = first.with_heat(heat);
            Arc::new(Tree::new(state.id, state.name.to_string(), first))
        };
        root.keyspaces.iter().map(|state| (state.id, tree(state))).collect()
    }

    /// Replays the write-ahead log into the memtables.
    fn replay(&self, trees: &BTreeMap<KeyspaceId, Arc<Tree>>) -> Result<Replayed> {
        let root = self.set.current();
        let start = root.replay_start().unwrap_or(LogPosition::ORIGIN);
        if !self.options.read_only {
            for number in self.storage.list_logs(LogKind::Wal)? {
                if number >= start.segment {
                    self.storage.open_log(LogKind::Wal, number)?.sync()?;
                }
            }
        }
        let mut last_seq = root.last_seq;
        let flushed: BTreeMap<KeyspaceId, Seq> =
            root.keyspaces.iter().map(|k| (k.id, k.flushed_seq)).collect();
        let mut on_group = |group: GroupView<'_>| {
            last_seq = last_seq.max(self.replay_group(trees, &flushed, &group)?);
            Ok(())
        };
        let source = LogSource {
            kind: LogKind::Wal,
            start,
            durable_lsn: root.wal_durable_lsn,
            lineage: root.lineage,
            nonce: Nonce::NONE,
        };
        let end = replay(&*self.storage, source, &mut on_group)?;
        check_log_starts(&*self.storage, &root, end.next)?;
        if !self.options.read_only && end.segments_seen.len() >= RECOVERY_SEGMENTS_MAX {
            self.leave_log_behind(trees, &end)?;
        }
        Ok(Replayed { end, last_seq })
    }

    /// Makes tables of what the log gave and lets every keyspace need it from its end on only.
    ///
    /// Requires: the log is durable up to there (H52).
    fn leave_log_behind(
        &self,
        trees: &BTreeMap<KeyspaceId, Arc<Tree>>,
        end: &ReplayEnd,
    ) -> Result<()> {
        let (next, lsn) = (end.next, end.chain.lsn);
        let mut edit = VersionEdit::default();
        for tree in trees.values() {
            if !tree.peek().active.memtable.is_empty() {
                self.flush_replayed(tree, next, lsn)?;
                continue;
            }
            if !tree.peek().immutables.is_empty() {
                continue;
            }
            tree.restart_log_if_empty(next);
            let root = self.set.current();
            let Some(state) = root.keyspaces.get(tree.id) else { continue };
            if state.log_start.segment < next.segment {
                let flushed_seq = state.flushed_seq;
                edit.keyspace(tree.id).flushed =
                    Some(Flushed { log_start: next, flushed_seq, durable_lsn: lsn });
            }
        }
        if !edit.keyspaces.is_empty() {
            let root = self.set.apply(edit)?.root;
            let start = root.replay_start().map_or(next.segment, |start| start.segment);
            let waiting = trees.values().any(|tree| !tree.peek().immutables.is_empty());
            assert!(
                start >= next.segment || waiting,
                "the log starts in {start}, not behind its end {next:?}"
            );
        }
        Ok(())
    }

    /// Inserts the records of one group; the last sequence number in it.
    fn replay_group(
        &self,
        trees: &BTreeMap<KeyspaceId, Arc<Tree>>,
        flushed: &BTreeMap<KeyspaceId, Seq>,
        group: &GroupView<'_>,
    ) -> Result<Seq> {
        if group.count == 0 {
            return Ok(0);
        }
        let damaged = |what: &str| damaged_group(&*self.storage, group, what);
        let (first, mut records) = open_group(group.payload, group.count).map_err(damaged)?;
        let mut seq = first;
        let mut full = BTreeSet::new();
        for record in records.by_ref() {
            if let Some(what) = record_fault(&record) {
                return Err(damaged(what));
            }
            // Keyspaces that were dropped since are skipped: their ids are never used again (H38).
            if let Some(tree) = trees.get(&record.keyspace)
                && seq > flushed.get(&record.keyspace).copied().unwrap_or(0)
            {
                let current = tree.peek();
                current.active.memtable.insert(record.key, seq, record.kind, record.value);
                if current.active.memtable.bytes() >= current.options.write_buffer_bytes {
                    full.insert(record.keyspace);
                }
            }
            seq += 1;
        }
        if records.damaged() || seq - first != group.count {
            return Err(damaged(NO_BATCH));
        }
        if !self.options.read_only {
            for tree in full.iter().filter_map(|id| trees.get(id)) {
                self.flush_replayed(tree, group.next, group.lsn)?;
            }
        }
        Ok(seq - 1)
    }

    /// Turns a memtable into a table, which covers the log up to group `lsn`; the group behind it
    /// is at `next`. Without space it stays, immutable, and so do all that follow it in its
    /// keyspace: the oldest is flushed first. A store that is full can be opened and given space.
    fn flush_replayed(&self, tree: &Arc<Tree>, next: LogPosition, lsn: Lsn) -> Result<()> {
        assert!(lsn < next.lsn, "a flush up to group {lsn}, and the log start {next:?}");
        let flushable = Arc::clone(&tree.peek().active);
        assert!(!flushable.memtable.is_empty(), "an empty memtable of {:?}", tree.name);
        let waits = !tree.peek().immutables.is_empty();
        let limit = tree.peek().options.write_buffer_bytes;
        let epoch = self.set.new_epoch();
        tree.freeze(|| epoch, next, limit, &self.memtable_memory);
        if waits {
            return Ok(());
        }
        let flushed = self.flush_frozen(tree, &flushable, next, lsn);
        flushed.or_else(|error| match error.kind() {
            ErrorKind::NoSpace => Ok(()),
            _ => Err(error),
        })
    }

    fn flush_frozen(
        &self,
        tree: &Arc<Tree>,
        flushable: &Arc<Flushable>,
        next: LogPosition,
        lsn: Lsn,
    ) -> Result<()> {
        let set = Arc::clone(&self.set);
        let context = JobContext {
            storage: Arc::clone(&self.storage),
            cache: Some(Arc::clone(&self.cache)),
            contents_bytes: None,
            accountant: Some(Arc::clone(&self.accountant)),
            hash_seed: self.set.current().hash_seed,
            verify_outputs: self.options.debug.verify_outputs,
            merge_read_bytes: self.options.debug.merge_read_bytes,
            hand_over_flushes: self.options.debug.hand_over_flushes,
            new_uid: Arc::new(move || set.new_uid()),
            // This opening removes it with all that no version names, or the next one does.
            note_orphan: Arc::new(|_| {}),
        };
        let mut job = flushes::flush_job(context, &self.set, tree, flushable, Vec::new());
        let mut edit = execute::run(&mut job)?.edit;
        edit.keyspace(tree.id).flushed = Some(Flushed {
            log_start: next,
            flushed_seq: crate::state::tree::last_seq(flushable),
            durable_lsn: lsn,
        });
        let root = self.set.apply(edit)?.root;
        let Some(state) = root.keyspaces.get(tree.id) else { return Ok(()) };
        tree.update(|current| {
            let next = current.clone().with_version(Arc::clone(&state.version));
            next.without_memtable(flushable, current.disk_generation)
        });
        Ok(())
    }

    /// Starts the log of this opening and the commit queue on top of it.
    fn start_log(
        &self,
        shared: &Arc<Shared>,
        trees: &Arc<Mutex<BTreeMap<KeyspaceId, Arc<Tree>>>>,
        end: &ReplayEnd,
        last_seq: Seq,
    ) -> Result<Writer> {
        let root = self.set.current();
        let start = root.replay_start().map_or(SegmentNumber::ZERO, |s| s.segment);
        let existing = self.storage.list_logs(LogKind::Wal)?;
        // Segments behind the end of the log hold nothing; their numbers are not used again.
        let live: BTreeSet<SegmentNumber> =
            end.segments_seen.iter().copied().filter(|&n| n >= start).collect();
        let first = SegmentNumber::first_of(root.opening);
        let known = end.chain.segment.max(start).max(first);
        if let Some(&last) = existing.last() {
            check_ahead(&*self.storage, Object::Log(LogKind::Wal, last), known.get())?;
        }
        let used = end.chain.segment.max(start);
        let used = existing.last().map_or(used, |&last| last.max(used));
        let next_number = used.next().max(first);
        let segment_bytes = self.options.log_segment_bytes.min(self.options.log_area_bytes / 4);
        let wal_options = WalOptions {
            lineage: root.lineage,
            opening: root.opening,
            segment_bytes: segment_bytes.max(4 << 10),
        };
        let waker = Arc::downgrade(shared);
        let request_segment = Box::new(move || {
            if let Some(shared) = waker.upgrade() {
                shared.wake_workers();
            }
        });
        let wal = Arc::new(Wal::start(
            Arc::clone(&self.storage),
            wal_options,
            FoundLog { live: live.iter().copied().collect(), next_number, end: end.next },
            request_segment,
        )?);
        for number in existing {
            if !live.contains(&number) {
                self.storage
                    .remove_log(LogKind::Wal, number)
                    .ignore_error("the next opening removes it");
            }
        }
        let set = Arc::clone(&self.set);
        let trees = Arc::clone(trees);
        let source = FreezeSource {
            next_epoch: Box::new(move || set.new_epoch()),
            all_trees: Box::new(move || trees.lock().values().cloned().collect()),
        };
        let limits =
            Limits { memtable_bytes_max: memtable_bytes_max(self.options.common_budget()) };
        let committer =
            Committer::new(Arc::clone(&wal), Arc::clone(shared), source, limits, last_seq);
        Ok(Writer { wal, committer, syncs: SyncQueue::default() })
    }
}

/// Counts the memtables that the log has filled. The keyspaces of which some are immutable still,
/// because they found no space.
fn charge(trees: &BTreeMap<KeyspaceId, Arc<Tree>>) -> Vec<KeyspaceId> {
    let waits = |tree: &Arc<Tree>| {
        let current = tree.peek();
        current.active.update_charge();
        !current.immutables.is_empty()
    };
    trees.values().filter(|tree| waits(tree)).map(|tree| tree.id).collect()
}

/// What the log gave.
struct Replayed {
    end: ReplayEnd,
    last_seq: Seq,
}

/// The bytes of the block cache beside which merges are kept small: what was set, or a third of the
/// budget, about what the cache has once memtables and tables have theirs. Where tables take units
/// of a device, they have eight units at least, of which one is half empty on average.
fn cache_bytes_of_jobs(options: &DbOptions, storage: &dyn Storage) -> u64 {
    const UNITS_MIN: u64 = 8;
    let bytes = options.block_cache_bytes.unwrap_or(options.common_budget() / 3);
    match storage.free_space().table_unit {
        0 | 1 => bytes,
        _ if bytes == 0 => 0,
        unit => bytes.max(CACHE_TABLES.saturating_mul(UNITS_MIN).saturating_mul(unit)),
    }
}

impl Engine {
    /// Freezes the memtables that replay has filled: once they are tables, the segments of earlier
    /// openings, which would pile up otherwise, can be deleted.
    fn freeze_replayed(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let trees: Vec<Arc<Tree>> = self.trees.lock().values().cloned().collect();
        writer.committer.exclusively(|lead| lead.freeze_all(&trees))
    }

    /// Removes tables that no version names: outputs of jobs that a crash interrupted. A removal
    /// that the device refuses does no harm: the reclaimer tries again.
    fn remove_orphans(&self) -> Result<()> {
        if self.writer.is_none() {
            return Ok(());
        }
        let storage = self.storage()?;
        let root = self.set.current();
        let named: BTreeSet<TableUid> = root.all_tables().map(|t| t.meta().uid).collect();
        for uid in storage.list_tables()? {
            if !named.contains(&uid) {
                self.reclaimer.take_orphan(uid);
            }
        }
        self.reclaim();
        Ok(())
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests;
