//! What the engine did and holds, as a struct and as Prometheus text.

mod prometheus;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::clock;
use crate::base::ids::TableUid;
use crate::base::memory::Category;
use crate::cache::Purpose;
use crate::cache::row::{RowCache, RowCounters};
use crate::db::copies::{self, CopiesCached};
use crate::db::engine::Engine;
use crate::state::tree::DELAY_UNITS_PER_NANO;
use crate::storage::io::IoByCause;
use crate::version::buffer_list::BufferList;
use crate::version::run::LevelRuns;
use crate::version::shape::endangered_cache_bytes;

/// Counters since the store was opened, and sizes as of now. The figures are taken one after the
/// other: sums of them can be off by what happened meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Seconds since the store was opened.
    pub uptime_seconds: f64,
    /// Puts written by users.
    pub puts: u64,
    /// Deletes written by users.
    pub deletes: u64,
    /// Bytes of the batches that users wrote: keys, values and about 5 bytes per record.
    pub user_bytes_written: u64,
    /// Batches committed.
    pub batches: u64,
    /// Log groups that carried them.
    pub commit_groups: u64,
    /// Point lookups.
    pub gets: u64,
    /// Point lookups that found a value.
    pub gets_found: u64,
    /// Bytes of the values found.
    pub bytes_found: u64,
    /// Cursor positionings.
    pub seeks: u64,
    /// Bytes written, by cause.
    pub bytes_written: BytesWritten,
    /// Requests to the device, by cause.
    pub io: IoByCause,
    /// Bytes of tables that compactions read.
    pub compaction_bytes_read: u64,
    /// Cache lookups for users.
    pub cache_foreground: CacheMetrics,
    /// Cache lookups for flushes, compactions and verification.
    pub cache_background: CacheMetrics,
    /// Misses of users that read nothing from the device, because another user was reading the same
    /// block: they waited for it.
    pub block_reads_shared: u64,
    /// Bytes that the block cache holds.
    pub cache_bytes: u64,
    /// Bytes that the block cache may hold now.
    pub cache_capacity: u64,
    /// The row cache; all 0 in a store without one.
    pub row_cache: RowCacheMetrics,
    /// Syncs of the log, for writers, flushes and new keyspaces; callers that share one count once.
    pub log_syncs: u64,
    /// Bytes of live log segments.
    pub log_bytes_live: u64,
    /// Flushes installed.
    pub flushes: u64,
    /// Compactions installed.
    pub compactions: u64,
    /// Moves of tables to another level without rewriting them, each of one table or more.
    pub trivial_moves: u64,
    /// Compactions installed, of `compactions`, that did not fit into the free space of the device
    /// in one piece and were cut into stretches.
    pub compactions_in_stretches: u64,
    /// Stretches of compactions installed, also of such as did not come to their end.
    pub stretches: u64,
    /// Failures of background jobs that left nothing unknown, such as a read error: what failed is
    /// tried again, after a pause that grows. See the property `weir.background-error`.
    pub jobs_failed: u64,
    /// How many pieces of background work wait now to be tried again.
    pub jobs_waiting: u64,
    /// Compactions that the checks of the tree refused: each is a defect of the engine, and nothing
    /// was changed. See the property `weir.background-error`.
    pub compactions_refused: u64,
    /// Blocks that compactions and flushes put into the cache because they replaced cached ones
    /// ([`Options::warm_up`](crate::Options::warm_up)).
    pub blocks_handed_over: u64,
    /// Blocks handed over that left the cache before anybody had read an entry of them: evicted, or
    /// replaced by a later compaction. With [`WarmUp::HandOff`](crate::WarmUp::HandOff) only.
    pub blocks_handed_over_unread: u64,
    /// Blocks that compactions and flushes put into the cache because it had room, though nobody
    /// had read an entry of them: in a file or on a block device, with
    /// [`WarmUp::HandOff`](crate::WarmUp::HandOff), while users read.
    pub blocks_unasked: u64,
    /// How often a run's buffer list answered a point lookup in place of the run
    /// ([`Options::compaction_buffer`](crate::Options::compaction_buffer)).
    pub gets_of_lists: u64,
    /// Tables that were trimmed from buffer lists: cold or damaged ones, and those for whose index
    /// and filter there was no memory.
    pub tables_trimmed: u64,
    /// How often a keyspace's buffer lists were dropped for lack of space.
    pub lists_dropped: u64,
    /// Hot ranges that were moved up into a sentinel
    /// ([`Options::sentinels`](crate::Options::sentinels)).
    pub sentinels_built: u64,
    /// Bytes of the tables that were written for them.
    pub sentinel_bytes_written: u64,
    /// Hot ranges that were merged down by a level instead.
    pub hot_ranges_merged_down: u64,
    /// Bytes of keys and values that were moved into sentinels and came back as free space since,
    /// when compactions replaced the tables in which they were masked.
    pub masked_bytes_dropped: u64,
    /// Entries that compactions dropped: overwritten or deleted.
    pub entries_dropped: u64,
    /// Time spent in flushes, in seconds.
    pub flush_seconds: f64,
    /// Time spent in compactions, in seconds.
    pub compaction_seconds: f64,
    /// Smooth delays of writers.
    pub write_delays: u64,
    /// Time that they took, in seconds.
    pub write_delay_seconds: f64,
    /// Full stops of writers.
    pub write_stalls: u64,
    /// Time that they took, in seconds.
    pub write_stall_seconds: f64,
    /// Memory held, by holder.
    pub memory: MemoryMetrics,
    /// Live snapshots.
    pub snapshots: u64,
    /// Tables that are open, with their descriptor, index and filter; see
    /// [`DbOptions::open_files_max`](crate::DbOptions::open_files_max).
    pub tables_open: u64,
    /// Tables whose bytes were freed.
    pub tables_freed: u64,
    /// Obsolete tables that a reader still uses, or that could not be removed; the property
    /// `weir.background-error` says why then.
    pub tables_waiting: u64,
    /// Tables that compaction could not read and leaves alone; the property `weir.quarantine` says
    /// what is wrong with each.
    pub tables_quarantined: u64,
    /// The keyspaces, by name.
    pub keyspaces: Vec<KeyspaceMetrics>,
}

/// Bytes written by cause, without padding and zeros: see [`Metrics::io`] for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BytesWritten {
    /// Write-ahead log.
    pub log: u64,
    /// Tables written by flushes.
    pub flush: u64,
    /// Tables written by compactions.
    pub compaction: u64,
    /// Version log.
    pub versions: u64,
}

impl BytesWritten {
    /// All causes together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.log + self.flush + self.compaction + self.versions
    }
}

/// Cache lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheMetrics {
    /// Blocks found in the cache.
    pub hits: u64,
    /// Blocks not found there: read from the device, by this reader or by another one at the same
    /// time ([`Metrics::block_reads_shared`]).
    pub misses: u64,
}

impl CacheMetrics {
    /// Hits per lookup, 0 to 1; 0 without lookups.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        let lookups = self.hits + self.misses;
        if lookups == 0 { 0.0 } else { self.hits as f64 / lookups as f64 }
    }
}

/// The row cache: lookups of keys that no memtable held, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowCacheMetrics {
    /// Lookups that it answered, with a value or with known absence.
    pub hits: u64,
    /// Lookups that had to search tables.
    pub misses: u64,
    /// Answers that were not kept because a flush had changed the tables meanwhile.
    pub refused: u64,
    /// Bytes that it holds.
    pub bytes: u64,
    /// Bytes that it may hold.
    pub capacity: u64,
}

impl RowCacheMetrics {
    /// Hits per lookup, 0 to 1; 0 without lookups.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        CacheMetrics { hits: self.hits, misses: self.misses }.hit_ratio()
    }
}

/// Bytes of memory, by holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryMetrics {
    /// The budget.
    pub budget: u64,
    /// Memtables.
    pub memtables: u64,
    /// Memory of flushed memtables, kept for the next ones: at most a write buffer, and together
    /// with memtables never more than half of the budget.
    pub spare_memtables: u64,
    /// Block cache.
    pub block_cache: u64,
    /// Indexes and filters.
    pub table_metadata: u64,
    /// Buffers of jobs.
    pub jobs: u64,
    /// Blocks held outside the cache.
    pub pinned: u64,
    /// Row cache.
    pub row_cache: u64,
    /// Memory of blocks that left the cache, which the allocator keeps for the next ones. An upper
    /// bound.
    pub retained: u64,
}

impl MemoryMetrics {
    /// All holders together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.memtables
            + self.spare_memtables
            + self.block_cache
            + self.table_metadata
            + self.jobs
            + self.pinned
            + self.row_cache
            + self.retained
    }
}

/// One keyspace.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KeyspaceMetrics {
    /// Its name.
    pub name: String,
    /// Bytes in the active memtable.
    pub memtable_bytes: u64,
    /// Memtables that wait for their flush.
    pub immutable_memtables: u64,
    /// Delay that writers owe, in nanoseconds per byte.
    pub delay_nanos_per_byte: f64,
    /// Largest tables that compactions of single tables make now, in bytes:
    /// [`Options::table_bytes`], and less beside a block cache whose blocks are handed over and
    /// that does not hold the tree twice (docs/operating.md).
    ///
    /// [`Options::table_bytes`]: crate::Options::table_bytes
    pub table_bytes: u64,
    /// Reads that ended at a sentinel, scans by where they began: an estimate from samples, since
    /// sentinels were switched on.
    pub sentinel_reads: u64,
    /// Older runs with tables over the key that these did not have to ask: what sentinels saved,
    /// where [`Metrics::sentinel_bytes_written`] is what they cost.
    pub sentinel_runs_spared: u64,
    /// Seeks by which scans leapt over ranges whose entries are all deleted or overwritten.
    pub scan_leaps: u64,
    /// The levels, from 0 on.
    pub levels: Vec<LevelMetrics>,
}

/// One level of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LevelMetrics {
    /// Runs.
    pub runs: u64,
    /// Tables.
    pub tables: u64,
    /// Bytes of the tables, without what masks hide of them, in proportion: files may be larger
    /// ([`Options::sentinels`](crate::Options::sentinels)).
    pub bytes: u64,
    /// Entries in the tables that no mask hides, deletes included.
    pub entries: u64,
    /// Bytes that compactions wrote into the level since the store was opened.
    pub compacted_bytes: u64,
    /// Entries that compactions into the level dropped since then, because a newer entry of the
    /// same key hid them from every reader: the duplicates that came together there.
    pub entries_shadowed: u64,
    /// Tables in the buffer lists of the level's runs.
    pub buffered_tables: u64,
    /// Bytes of those of them that are in no run: what the lists take of the device.
    pub buffered_bytes: u64,
    /// The part of the blocks of all of them that was in the block cache when they were looked at
    /// last, 0 to 1; 0 without any. An estimate where tables have more than 512 blocks.
    pub buffered_residency: f64,
    /// Holes in them: ranges for which a list asks its run.
    pub buffered_holes: u64,
    /// Lists that are frozen now: too many of the entries appended hid others of the run, so that
    /// nothing is kept until that becomes rarer.
    pub frozen_lists: u64,
    /// Where keys are cached for which the level's buffer lists answer, as of now.
    pub buffered_copies: CopiesCached,
}

const NANOS: f64 = 1e9;

/// Takes the figures of a store.
pub(crate) fn collect(engine: &Engine) -> Metrics {
    let shared = &engine.shared;
    let c = &shared.counters;
    let cache = engine.cache.counters();
    let lookups = |purpose: Purpose| CacheMetrics {
        hits: cache.hits[purpose as usize],
        misses: cache.misses[purpose as usize],
    };
    let used = |category| shared.accountant.used(category);
    Metrics {
        uptime_seconds: (clock::now_nanos() - engine.opened_nanos) as f64 / NANOS,
        puts: c.puts.get(),
        deletes: c.deletes.get(),
        user_bytes_written: c.user_bytes_written.get(),
        batches: c.batches.get(),
        commit_groups: c.groups.get(),
        gets: c.gets.get(),
        gets_found: c.gets_found.get(),
        bytes_found: c.bytes_found.get(),
        seeks: c.seeks.get(),
        bytes_written: BytesWritten {
            log: engine.writer.as_ref().map_or(0, |w| w.wal.appended_bytes()),
            flush: c.flush_bytes.get(),
            compaction: c.compaction_bytes.get(),
            versions: engine.set.log_bytes_written(),
        },
        io: engine.io.by_cause(),
        compaction_bytes_read: c.compaction_bytes_read.get(),
        cache_foreground: lookups(Purpose::Foreground),
        cache_background: lookups(Purpose::Background),
        block_reads_shared: cache.reads_shared,
        cache_bytes: engine.cache.bytes(),
        cache_capacity: engine.cache.capacity(),
        row_cache: shared.rows.as_ref().map_or_else(RowCacheMetrics::default, row_cache),
        log_syncs: engine.writer.as_ref().map_or(0, |w| w.wal.syncs()),
        log_bytes_live: engine.writer.as_ref().map_or(0, |w| w.wal.live_bytes()),
        flushes: c.flushes.get(),
        compactions: c.compactions.get(),
        trivial_moves: c.trivial_moves.get(),
        compactions_in_stretches: c.compactions_in_stretches.get(),
        stretches: c.stretches.get(),
        jobs_failed: c.jobs_failed.get(),
        jobs_waiting: engine.jobs.retries_waiting() as u64,
        compactions_refused: c.compactions_refused.get(),
        sentinels_built: c.sentinels.get(),
        sentinel_bytes_written: c.sentinel_bytes.get(),
        hot_ranges_merged_down: c.hot_merges.get(),
        masked_bytes_dropped: c.masked_bytes_dropped.get(),
        blocks_handed_over: c.blocks_handed_over.get(),
        blocks_handed_over_unread: cache.unread,
        blocks_unasked: c.blocks_unasked.get(),
        gets_of_lists: c.gets_of_lists.get(),
        tables_trimmed: c.tables_trimmed.get(),
        lists_dropped: c.lists_dropped.get(),
        entries_dropped: c.entries_dropped.get(),
        flush_seconds: c.flush_nanos.get() as f64 / NANOS,
        compaction_seconds: c.compaction_nanos.get() as f64 / NANOS,
        write_delays: c.delays.get(),
        write_delay_seconds: c.delay_nanos.get() as f64 / NANOS,
        write_stalls: c.stalls.get(),
        write_stall_seconds: c.stall_nanos.get() as f64 / NANOS,
        memory: MemoryMetrics {
            budget: shared.accountant.budget_bytes(),
            memtables: used(Category::Memtables),
            spare_memtables: used(Category::SpareMemtables),
            block_cache: used(Category::BlockCache),
            table_metadata: used(Category::TableMetadata),
            jobs: used(Category::Jobs),
            pinned: used(Category::Pinned),
            row_cache: used(Category::RowCache),
            retained: used(Category::Retained),
        },
        snapshots: shared.snapshots.summary().0 as u64,
        tables_open: engine.tables.open() as u64,
        tables_freed: c.tables_freed.get(),
        tables_waiting: engine.reclaimer.waiting() as u64,
        tables_quarantined: engine.jobs.damages().len() as u64,
        keyspaces: keyspaces(engine),
    }
}

fn row_cache(rows: &RowCache) -> RowCacheMetrics {
    let RowCounters { hits, misses, refused } = rows.counters();
    RowCacheMetrics { hits, misses, refused, bytes: rows.bytes(), capacity: rows.capacity() }
}

fn keyspaces(engine: &Engine) -> Vec<KeyspaceMetrics> {
    let mut trees: Vec<_> = engine.trees.lock().values().cloned().collect();
    trees.sort_by(|a, b| a.name.cmp(&b.name));
    let metrics = |tree: &Arc<crate::state::tree::Tree>| {
        let current = tree.pin();
        let work = tree.compacted.values().zip(tree.shadowed.values());
        let in_tree: BTreeSet<TableUid> = match current.version.has_lists() {
            true => current.version.tables().map(|table| table.meta().uid).collect(),
            false => BTreeSet::new(),
        };
        let tree_bytes = current.version.tables().map(|table| table.meta().bytes).sum();
        let cache_bytes = endangered_cache_bytes(engine.cache_bytes_of_jobs, tree_bytes);
        let levels =
            current.version.levels().values().zip(work).map(|(level, (bytes, shadowed))| {
                let compacted_bytes = bytes.load(Ordering::Relaxed);
                let entries_shadowed = shadowed.load(Ordering::Relaxed);
                let none = LevelMetrics::default();
                let mut sum = LevelMetrics { compacted_bytes, entries_shadowed, ..none };
                for (_, run) in level.runs() {
                    sum.runs += 1;
                    let totals = run.tables.totals();
                    sum.tables += run.tables.len() as u64;
                    sum.bytes += totals.bytes;
                    sum.entries += totals.entries;
                }
                add_lists(level, &in_tree, &mut sum);
                sum.buffered_copies = copies::cached(level);
                sum
            });
        let spared = current.heat.as_ref().map_or((0, 0), |heat| heat.spared());
        KeyspaceMetrics {
            name: tree.name.clone(),
            memtable_bytes: current.active.memtable.bytes(),
            immutable_memtables: current.immutables.len() as u64,
            delay_nanos_per_byte: tree.delay_per_byte.load(Ordering::Relaxed) as f64
                / DELAY_UNITS_PER_NANO as f64,
            table_bytes: current.options.table_bytes_beside(cache_bytes),
            sentinel_reads: spared.0,
            sentinel_runs_spared: spared.1,
            scan_leaps: tree.gaps.leaps(),
            levels: levels.collect(),
        }
    };
    trees.iter().map(metrics).collect()
}

/// Adds what the buffer lists of a level hold.
fn add_lists(level: &LevelRuns, in_tree: &BTreeSet<TableUid>, sum: &mut LevelMetrics) {
    let lists = || level.runs().filter_map(|(_, run)| run.list.as_deref());
    for list in lists() {
        sum.frozen_lists += u64::from(list.counts().quiet);
        sum.buffered_holes +=
            list.runs().iter().map(|run| run.holes.iter().len() as u64).sum::<u64>();
    }
    let (mut blocks, mut cached) = (0.0, 0.0);
    for (meta, table) in lists().flat_map(BufferList::tables) {
        sum.buffered_tables += 1;
        if !in_tree.contains(&meta.uid) {
            sum.buffered_bytes += meta.bytes;
        }
        blocks += f64::from(meta.blocks);
        cached += f64::from(meta.blocks) * f64::from(table.known_residency().unwrap_or(0.0));
    }
    if blocks > 0.0 {
        sum.buffered_residency = cached / blocks;
    }
}
