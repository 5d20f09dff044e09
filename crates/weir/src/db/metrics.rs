//! What the engine did and holds, as a struct and as Prometheus text.

use std::collections::BTreeSet;
use std::fmt::Write as _;
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
use crate::storage::io::{IoByCause, IoMetrics};
use crate::version::buffer_list::BufferList;
use crate::version::run::LevelRuns;

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
    /// Bytes of the tables.
    pub bytes: u64,
    /// Entries in the tables, deletes included.
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
        jobs_failed: c.jobs_failed.get(),
        jobs_waiting: engine.jobs.retries_waiting() as u64,
        compactions_refused: c.compactions_refused.get(),
        sentinels_built: c.sentinels.get(),
        sentinel_bytes_written: c.sentinel_bytes.get(),
        hot_ranges_merged_down: c.hot_merges.get(),
        blocks_handed_over: c.blocks_handed_over.get(),
        blocks_handed_over_unread: cache.unread,
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
        KeyspaceMetrics {
            name: tree.name.clone(),
            memtable_bytes: current.active.memtable.bytes(),
            immutable_memtables: current.immutables.len() as u64,
            delay_nanos_per_byte: tree.delay_per_byte.load(Ordering::Relaxed) as f64
                / DELAY_UNITS_PER_NANO as f64,
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

/// Writes one metric in Prometheus text form.
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (i, (label, content)) in labels.iter().enumerate() {
            self.0.push(if i == 0 { '{' } else { ',' });
            let escaped = content.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{label}=\"{escaped}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    /// Counters with their names and what they are.
    fn counters(&mut self, counters: &[(&str, &str, f64)]) {
        counters.iter().for_each(|&(name, help, value)| self.counter(name, help, value));
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }
}

impl Metrics {
    /// The metrics in the Prometheus text exposition format, version 0.0.4.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut out = Exposition(String::new());
        self.expose_counters(&mut out);
        self.expose_lists(&mut out);
        self.expose_labelled(&mut out);
        self.expose_keyspaces(&mut out);
        out.0
    }

    /// What buffer lists did.
    fn expose_lists(&self, out: &mut Exposition) {
        let counters = [
            (
                "weir_gets_of_lists_total",
                "Lookups in a run that its buffer list answered.",
                self.gets_of_lists as f64,
            ),
            (
                "weir_tables_trimmed_total",
                "Tables trimmed from buffer lists.",
                self.tables_trimmed as f64,
            ),
            (
                "weir_lists_dropped_total",
                "Keyspaces whose buffer lists were dropped for space.",
                self.lists_dropped as f64,
            ),
        ];
        out.counters(&counters);
    }

    fn expose_counters(&self, out: &mut Exposition) {
        let counters = [
            ("weir_puts_total", "Entries written.", self.puts as f64),
            ("weir_deletes_total", "Deletes written.", self.deletes as f64),
            (
                "weir_user_bytes_written_total",
                "Bytes of written batches.",
                self.user_bytes_written as f64,
            ),
            ("weir_batches_total", "Batches committed.", self.batches as f64),
            ("weir_commit_groups_total", "Commit groups.", self.commit_groups as f64),
            ("weir_gets_total", "Point lookups.", self.gets as f64),
            ("weir_gets_found_total", "Point lookups that found a value.", self.gets_found as f64),
            ("weir_bytes_found_total", "Bytes of values found.", self.bytes_found as f64),
            ("weir_seeks_total", "Cursor positionings.", self.seeks as f64),
            (
                "weir_compaction_bytes_read_total",
                "Bytes that compactions read.",
                self.compaction_bytes_read as f64,
            ),
            ("weir_log_syncs_total", "Syncs of the log.", self.log_syncs as f64),
            ("weir_flushes_total", "Flushes installed.", self.flushes as f64),
            ("weir_compactions_total", "Compactions installed.", self.compactions as f64),
            ("weir_trivial_moves_total", "Tables moved unchanged.", self.trivial_moves as f64),
            (
                "weir_jobs_failed_total",
                "Jobs that failed and are retried.",
                self.jobs_failed as f64,
            ),
            (
                "weir_compactions_refused_total",
                "Compactions refused by the tree's checks.",
                self.compactions_refused as f64,
            ),
            (
                "weir_block_reads_shared_total",
                "Misses of users that waited for another's read.",
                self.block_reads_shared as f64,
            ),
            (
                "weir_blocks_handed_over_total",
                "Blocks that compactions put into the cache.",
                self.blocks_handed_over as f64,
            ),
            (
                "weir_blocks_handed_over_unread_total",
                "Blocks handed over that left the cache unread.",
                self.blocks_handed_over_unread as f64,
            ),
            ("weir_entries_dropped_total", "Entries dropped.", self.entries_dropped as f64),
            ("weir_flush_seconds_total", "Time in flushes.", self.flush_seconds),
            ("weir_compaction_seconds_total", "Time in compactions.", self.compaction_seconds),
            ("weir_write_delays_total", "Smooth delays of writers.", self.write_delays as f64),
            ("weir_write_delay_seconds_total", "Time in smooth delays.", self.write_delay_seconds),
            ("weir_write_stalls_total", "Full stops of writers.", self.write_stalls as f64),
            ("weir_write_stall_seconds_total", "Time in full stops.", self.write_stall_seconds),
            ("weir_tables_freed_total", "Tables freed.", self.tables_freed as f64),
        ];
        out.counters(&counters);
        out.gauge("weir_uptime_seconds", "Time since the store was opened.", self.uptime_seconds);
        out.gauge("weir_cache_bytes", "Bytes in the block cache.", self.cache_bytes as f64);
        out.gauge("weir_cache_capacity_bytes", "Most of it.", self.cache_capacity as f64);
        let rows = &self.row_cache;
        out.counter("weir_row_cache_refused_total", "Answers not kept.", rows.refused as f64);
        out.gauge("weir_row_cache_bytes", "Bytes in the row cache.", rows.bytes as f64);
        out.gauge("weir_row_cache_capacity_bytes", "Most of it.", rows.capacity as f64);
        out.gauge("weir_log_live_bytes", "Bytes of live log segments.", self.log_bytes_live as f64);
        out.gauge("weir_snapshots", "Live snapshots.", self.snapshots as f64);
        out.gauge("weir_tables_open", "Tables that are open.", self.tables_open as f64);
        out.gauge("weir_tables_waiting", "Tables still held.", self.tables_waiting as f64);
        out.gauge("weir_jobs_waiting", "Failed jobs to be retried.", self.jobs_waiting as f64);
        let quarantined = self.tables_quarantined as f64;
        out.gauge("weir_tables_quarantined", "Tables left alone as damaged.", quarantined);
        out.gauge("weir_memory_budget_bytes", "The memory budget.", self.memory.budget as f64);
    }

    fn expose_hot_ranges(&self, out: &mut Exposition) {
        let counters = [
            (
                "weir_sentinels_built_total",
                "Hot ranges moved up into a sentinel.",
                self.sentinels_built as f64,
            ),
            (
                "weir_sentinel_written_bytes_total",
                "Bytes written for sentinels.",
                self.sentinel_bytes_written as f64,
            ),
            (
                "weir_hot_ranges_merged_down_total",
                "Hot ranges merged down by a level.",
                self.hot_ranges_merged_down as f64,
            ),
        ];
        out.counters(&counters);
    }

    fn expose_io(&self, out: &mut Exposition) {
        type Figure = fn(&IoMetrics) -> u64;
        let families: [(&str, &str, Figure); 5] = [
            ("weir_io_reads_total", "Reads of files, by cause.", |io| io.reads),
            ("weir_io_read_bytes_total", "Bytes read from files, by cause.", |io| io.bytes_read),
            ("weir_io_writes_total", "Writes to files, by cause.", |io| io.writes),
            ("weir_io_written_bytes_total", "Bytes written to files, by cause.", |io| {
                io.bytes_written
            }),
            ("weir_io_syncs_total", "Syncs of files, by cause.", |io| io.syncs),
        ];
        for (name, help, figure) in families {
            out.family(name, "counter", help);
            for (cause, io) in self.io.named() {
                out.sample(name, &[("cause", cause)], figure(&io) as f64);
            }
        }
    }

    fn expose_labelled(&self, out: &mut Exposition) {
        let name = "weir_bytes_written_total";
        out.family(name, "counter", "Bytes written to the device, by cause.");
        let written = &self.bytes_written;
        for (cause, bytes) in [
            ("log", written.log),
            ("flush", written.flush),
            ("compaction", written.compaction),
            ("versions", written.versions),
        ] {
            out.sample(name, &[("cause", cause)], bytes as f64);
        }
        self.expose_hot_ranges(out);
        self.expose_io(out);
        let name = "weir_cache_lookups_total";
        out.family(name, "counter", "Block cache lookups, by who asked and what became of it.");
        for (who, cache) in
            [("foreground", &self.cache_foreground), ("background", &self.cache_background)]
        {
            out.sample(name, &[("purpose", who), ("result", "hit")], cache.hits as f64);
            out.sample(name, &[("purpose", who), ("result", "miss")], cache.misses as f64);
        }
        let name = "weir_row_cache_lookups_total";
        out.family(name, "counter", "Row cache lookups, by what became of them.");
        out.sample(name, &[("result", "hit")], self.row_cache.hits as f64);
        out.sample(name, &[("result", "miss")], self.row_cache.misses as f64);
        let name = "weir_memory_bytes";
        out.family(name, "gauge", "Memory held, by holder.");
        let memory = &self.memory;
        for (holder, bytes) in [
            ("memtables", memory.memtables),
            ("spare_memtables", memory.spare_memtables),
            ("block_cache", memory.block_cache),
            ("table_metadata", memory.table_metadata),
            ("jobs", memory.jobs),
            ("pinned", memory.pinned),
            ("row_cache", memory.row_cache),
            ("retained", memory.retained),
        ] {
            out.sample(name, &[("holder", holder)], bytes as f64);
        }
    }

    fn expose_keyspaces(&self, out: &mut Exposition) {
        type Figure = fn(&LevelMetrics) -> f64;
        let families: [(&str, &str, &str, Figure); 11] = [
            ("weir_level_runs", "gauge", "Runs, by keyspace and level.", |l| l.runs as f64),
            ("weir_level_tables", "gauge", "Tables, by keyspace and level.", |l| l.tables as f64),
            ("weir_level_bytes", "gauge", "Bytes, by keyspace and level.", |l| l.bytes as f64),
            ("weir_level_entries", "gauge", "Entries, by keyspace and level.", |l| {
                l.entries as f64
            }),
            (
                "weir_level_compacted_bytes_total",
                "counter",
                "Bytes that compactions wrote, by keyspace and level.",
                |l| l.compacted_bytes as f64,
            ),
            (
                "weir_level_entries_shadowed_total",
                "counter",
                "Entries that compactions dropped for newer ones, by keyspace and level.",
                |l| l.entries_shadowed as f64,
            ),
            (
                "weir_level_buffered_tables",
                "gauge",
                "Tables in buffer lists, by keyspace and level.",
                |l| l.buffered_tables as f64,
            ),
            (
                "weir_level_buffered_bytes",
                "gauge",
                "Bytes that buffer lists take beside the tree, by keyspace and level.",
                |l| l.buffered_bytes as f64,
            ),
            (
                "weir_level_buffered_residency_ratio",
                "gauge",
                "Part of the blocks of buffer lists that is cached, by keyspace and level.",
                |l| l.buffered_residency,
            ),
            (
                "weir_level_buffered_holes",
                "gauge",
                "Ranges for which buffer lists ask their runs, by keyspace and level.",
                |l| l.buffered_holes as f64,
            ),
            (
                "weir_level_frozen_lists",
                "gauge",
                "Buffer lists that keep nothing, because merges hide much of it.",
                |l| l.frozen_lists as f64,
            ),
        ];
        for (name, kind, help, figure) in families {
            out.family(name, kind, help);
            for keyspace in &self.keyspaces {
                for (level, metrics) in keyspace.levels.iter().enumerate() {
                    let level = level.to_string();
                    let labels = [("keyspace", keyspace.name.as_str()), ("level", &level)];
                    out.sample(name, &labels, figure(metrics));
                }
            }
        }
        let name = "weir_level_buffered_copies_ratio";
        let help = "Part of the keys that buffer lists answer for that is cached, by where.";
        out.family(name, "gauge", help);
        for keyspace in &self.keyspaces {
            for (level, metrics) in keyspace.levels.iter().enumerate() {
                for (copy, part) in metrics.buffered_copies.named() {
                    let (keyspace, level) = (keyspace.name.as_str(), level.to_string());
                    let labels = [("keyspace", keyspace), ("level", &level), ("copy", copy)];
                    out.sample(name, &labels, part);
                }
            }
        }
        self.expose_numbers_of_keyspaces(out);
    }

    fn expose_numbers_of_keyspaces(&self, out: &mut Exposition) {
        type Figure = fn(&KeyspaceMetrics) -> f64;
        let families: [(&str, &str, &str, Figure); 2] = [
            (
                "weir_scan_leaps_total",
                "counter",
                "Seeks over ranges without a visible entry, by keyspace.",
                |k| k.scan_leaps as f64,
            ),
            ("weir_memtable_bytes", "gauge", "Bytes in the active memtable, by keyspace.", |k| {
                k.memtable_bytes as f64
            }),
        ];
        for (name, kind, help, figure) in families {
            out.family(name, kind, help);
            for keyspace in &self.keyspaces {
                out.sample(name, &[("keyspace", &keyspace.name)], figure(keyspace));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line is a comment or `name{labels} number`, and hostile names are escaped.
    #[test]
    fn exposition_is_well_formed() {
        let metrics = Metrics {
            keyspaces: vec![KeyspaceMetrics {
                name: "a\"b\\c\nd".into(),
                levels: vec![LevelMetrics::default(); 2],
                ..Default::default()
            }],
            ..Default::default()
        };
        let text = metrics.prometheus();
        assert!(text.contains(r#"keyspace="a\"b\\c\nd",level="1"} 0"#), "{text}");
        for line in text.lines() {
            let sample = line.rsplit_once(' ').is_some_and(|(_, v)| v.parse::<f64>().is_ok());
            assert!(line.starts_with("# ") || sample, "{line}");
        }
    }
}
