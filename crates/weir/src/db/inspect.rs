//! Looking at a store: its structure, its properties, its checksums.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Weak};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::SegmentNumber;
use crate::base::interval::Interval;
use crate::base::table_meta::TableMeta;
use crate::compaction;
use crate::db::engine::Engine;
use crate::db::metrics::{self, Metrics};
use crate::heat::moved::MovedRange;
use crate::log::wal::Wal;
use crate::options::Options;
use crate::state::tree::Tree;
use crate::storage::io::{Cause, on_behalf_of};
use crate::table::Table;
use crate::version::buffer_list::{BufferList, ListCounts};
use crate::version::shape::{PartKind, RunKind};
use crate::version::tables::TableList;

/// What a store consists of.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// Identity of the store, drawn when it was created.
    pub lineage: u64,
    /// Last sequence number that readers see.
    pub last_sequence: u64,
    /// The keyspaces, by number.
    pub keyspaces: Vec<KeyspaceDescription>,
    /// Numbers of the live write-ahead log segments.
    pub log_segments: Vec<u64>,
    /// Bytes that they take.
    pub log_bytes: u64,
    /// Numbers of the segments that hold nothing: prepared for the writer, or kept to be recycled.
    pub spare_log_segments: Vec<u64>,
    /// Number of the version log; `None` in a store that is open for reading only.
    pub version_log: Option<u64>,
}

/// One keyspace of a [`Description`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeyspaceDescription {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its options.
    pub options: Options,
    /// Sequence numbers up to here are in tables.
    pub flushed_sequence: u64,
    /// First log segment that it needs.
    pub log_start_segment: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// The levels, from 0 on.
    pub levels: Vec<LevelDescription>,
    /// The hot ranges that were moved last since the store was opened, the newest last
    /// ([`Options::sentinels`]).
    pub moved_ranges: Vec<MovedRangeDescription>,
}

/// A hot range that was moved, so that reads of it open fewer runs.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MovedRangeDescription {
    /// Its first key.
    pub from: Vec<u8>,
    /// The first key behind it; `None`: it has no end.
    pub to: Option<Vec<u8>>,
    /// Whether it was moved up into a sentinel; else it was merged down by a level.
    pub up: bool,
    /// Blocks that reads were expected to save by it.
    pub benefit_blocks: f64,
    /// Blocks that it was expected to cost, the way down again included.
    pub cost_blocks: f64,
    /// Runs that had something of the range before.
    pub runs: usize,
    /// Bytes that they had of it, an estimate.
    pub bytes: u64,
}

/// One level of a keyspace: its runs, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelDescription {
    /// The runs, newest first: those of the filling part, then those of the draining part.
    pub runs: Vec<RunDescription>,
    /// Bytes that the draining part had when it began to drain; 0 without one.
    pub rotated_bytes: u64,
    /// Entries that it had then.
    pub rotated_entries: u64,
}

/// One run of a level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunDescription {
    /// Data epoch: larger is newer, within a part of a level.
    pub epoch: u64,
    /// Whether it belongs to the draining part of its level, whose tables are on their way to the
    /// next level, and not to the part that receives.
    pub draining: bool,
    /// The tables, in key order.
    pub tables: Vec<TableDescription>,
    /// Its buffer list, if it has one.
    pub buffer: Option<BufferDescription>,
    /// Whether it is a sentinel: hot ranges of all older runs, merged back to the top.
    pub sentinel: bool,
    /// Of a sentinel: intervals whose lookups end there, each from its first key to the first one
    /// behind it (`None`: without an end).
    pub claims: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// The buffer list of a run: older forms of its tables, kept for their cached blocks
/// ([`Options::compaction_buffer`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferDescription {
    /// The buffered runs, newest first.
    pub runs: Vec<BufferedRunDescription>,
    /// Entries appended to it, and how many of the run's they shadowed. Both are halved from time
    /// to time.
    pub appended: u64,
    /// See `appended`.
    pub shadowed: u64,
    /// Whether too many were, so that nothing is kept for now.
    pub quiet: bool,
}

/// A buffered run: tables that were merged into the run one after another in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferedRunDescription {
    /// The tables, in key order.
    pub tables: Vec<TableDescription>,
    /// Ranges for which the list does not answer from here on, both ends included.
    pub holes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// One table of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableDescription {
    /// Number of the table, never reused.
    pub uid: u64,
    /// Bytes on the device.
    pub bytes: u64,
    /// Slots that it has, of a store in a file or on a device; otherwise 0.
    pub slots: u64,
    /// Entries, deletes included.
    pub entries: u64,
    /// Deletes.
    pub deletes: u64,
    /// Data blocks.
    pub blocks: u32,
    /// Smallest user key.
    pub smallest: Vec<u8>,
    /// Largest user key.
    pub largest: Vec<u8>,
    /// Smallest and largest sequence number.
    pub sequences: (u64, u64),
    /// Entries that masks hide: a sentinel has them, or what a merge in stretches installed before
    /// it ended early; the next merge leaves them out.
    pub hidden_entries: u64,
}

/// What [`Db::verify`](crate::Db::verify) found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables that were read whole and are sound.
    pub tables: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Their entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is damaged or missing, one error per table or invariant: of a table the first damage
    /// in it, behind which it was not read.
    pub damages: Vec<Error>,
    /// Beside damages, the tables that could not be read, one error each: it is unknown whether
    /// they are sound. Without a damage the call gives the first of these errors instead of a
    /// report.
    pub unread: Vec<Error>,
}

/// Takes the structure of a store.
pub(crate) fn describe(engine: &Engine) -> Description {
    let root = engine.set.current();
    let trees = engine.trees.lock().clone();
    let keyspaces = root.keyspaces.iter().map(|state| {
        let memtable_bytes = trees.get(&state.id).map_or(0, |tree| {
            let current = tree.pin();
            let buffers = std::iter::once(&current.active).chain(&current.immutables);
            buffers.map(|b| b.memtable.bytes()).sum()
        });
        let moved = trees.get(&state.id).map(|tree| tree.moved()).unwrap_or_default();
        KeyspaceDescription {
            id: state.id.get(),
            name: state.name.to_string(),
            options: (*state.options).clone(),
            flushed_sequence: state.flushed_seq,
            log_start_segment: state.log_start.segment.get(),
            memtable_bytes,
            levels: state.version.levels().values().map(describe_level).collect(),
            moved_ranges: moved.iter().map(describe_moved).collect(),
        }
    });
    let numbers = |of: fn(&Wal) -> Vec<SegmentNumber>| {
        let segments = engine.writer.as_ref().map_or_else(Vec::new, |writer| of(&writer.wal));
        segments.into_iter().map(SegmentNumber::get).collect()
    };
    Description {
        lineage: root.lineage.get(),
        last_sequence: engine.shared.visible(),
        keyspaces: keyspaces.collect(),
        log_segments: numbers(|wal| wal.live_segments()),
        log_bytes: engine.writer.as_ref().map_or(0, |w| w.wal.live_bytes()),
        spare_log_segments: numbers(|wal| wal.spare_segments()),
        version_log: engine.set.version_log().map(SegmentNumber::get),
    }
}

fn describe_tables(tables: &TableList<Arc<Table>>) -> Vec<TableDescription> {
    let describe = |meta: &Arc<TableMeta>| TableDescription {
        uid: meta.uid.get(),
        bytes: meta.bytes,
        slots: meta.place.extents().iter().map(|extent| extent.slots).sum(),
        entries: meta.entries,
        deletes: meta.deletes,
        blocks: meta.blocks,
        smallest: meta.smallest.clone(),
        largest: meta.largest.clone(),
        sequences: (meta.seq_min, meta.seq_max),
        hidden_entries: meta.hidden().entries,
    };
    tables.iter().map(|(meta, _)| describe(meta)).collect()
}

fn describe_list(list: &BufferList) -> BufferDescription {
    let runs = list.runs().iter().map(|run| BufferedRunDescription {
        tables: describe_tables(&run.tables),
        holes: run.holes.iter().map(|(from, to)| (from.to_vec(), to.to_vec())).collect(),
    });
    let ListCounts { appended, shadowed, quiet } = list.counts();
    BufferDescription { runs: runs.collect(), appended, shadowed, quiet }
}

fn describe_moved(range: &MovedRange) -> MovedRangeDescription {
    let MovedRange { from, to, up, benefit, cost, runs, bytes } = range.clone();
    let (benefit_blocks, cost_blocks) = (benefit, cost);
    MovedRangeDescription { from, to, up, benefit_blocks, cost_blocks, runs, bytes }
}

fn describe_claim(Interval { from, to }: &Interval) -> (Vec<u8>, Option<Vec<u8>>) {
    (from.to_vec(), to.as_ref().map(|to| to.to_vec()))
}

fn describe_level(level: &crate::version::run::LevelRuns) -> LevelDescription {
    let run = |(part, run): (PartKind, &Arc<crate::version::run::Run>)| RunDescription {
        epoch: run.epoch.get(),
        draining: part == PartKind::Draining,
        tables: describe_tables(&run.tables),
        buffer: run.list.as_deref().map(describe_list),
        sentinel: run.kind == RunKind::Sentinel,
        claims: run.claims.iter().flat_map(|claims| claims.iter()).map(describe_claim).collect(),
    };
    let draining = level.draining.as_ref();
    LevelDescription {
        runs: level.runs().map(run).collect(),
        rotated_bytes: draining.map_or(0, |part| part.rotated_bytes),
        rotated_entries: draining.map_or(0, |part| part.rotated_entries),
    }
}

/// Reads and checks every table.
pub(crate) fn verify(engine: &Engine) -> Result<VerifyReport> {
    let _cause = on_behalf_of(Cause::Verify);
    engine.shared.health.check_open()?;
    let mut report = VerifyReport::default();
    let mut released = false;
    let trees: Vec<Arc<Tree>> = engine.trees.lock().values().cloned().collect();
    for tree in trees {
        // Those of buffer lists too: they are bytes of the store. But what leaves its list before
        // its turn is not kept: its space may be wanted (H18).
        let current = tree.pin();
        let all: Vec<Weak<Table>> = current.version.all_tables().map(Arc::downgrade).collect();
        let in_tree: Vec<Arc<Table>> = current.version.tables().cloned().collect();
        drop(current);
        for table in all.iter().filter_map(Weak::upgrade) {
            engine.shared.health.check_open()?;
            match table.verify() {
                Ok(stats) => {
                    report.tables += 1;
                    report.blocks += u64::from(table.meta().blocks);
                    report.entries += stats.entries;
                    report.bytes += table.meta().bytes;
                    released |= engine.jobs.release_table(table.meta().uid);
                }
                Err(error) => {
                    // Once the store is closed, another process may own its files.
                    engine.shared.health.check_open()?;
                    match error.kind() {
                        ErrorKind::Corruption | ErrorKind::NotFound => {
                            table.distrust();
                            report.damages.push(error);
                        }
                        _ => report.unread.push(error),
                    }
                }
            }
        }
        drop(in_tree);
        let root = engine.set.current();
        if let Some(state) = root.keyspaces.get(tree.id) {
            let shape = state.shape(BTreeSet::new(), Vec::new());
            let policy = compaction::policy_of(shape.options.compaction);
            // A tree that has work to do is on its way to its form, from another policy's perhaps.
            let at_rest = policy.pick(&shape).is_empty();
            for violation in policy.check(&shape).into_iter().filter(|_| at_rest) {
                let what = format_args!("keyspace {:?}: {violation}", tree.name);
                report.damages.push(Error::corruption_found(&engine.path, what));
            }
        }
    }
    if released {
        engine.look_at_all();
        engine.update_pressure();
        engine.shared.announce_progress();
        engine.shared.wake_workers();
    }
    match report.unread.first() {
        Some(error) if report.damages.is_empty() => Err(error.clone()),
        _ => Ok(report),
    }
}

/// A property as text.
pub(crate) fn property(engine: &Engine, name: &str) -> Option<String> {
    let name = name.strip_prefix("weir.")?;
    let snapshots = engine.shared.snapshots.summary();
    Some(match name {
        "stats" => stats(engine),
        "io" => io(engine),
        "levels" => levels(engine),
        "num-tables" => engine.set.current().tables().count().to_string(),
        "num-busy-tables" => engine.jobs.busy_tables().to_string(),
        "num-keyspaces" => engine.trees.lock().len().to_string(),
        "quarantine" => {
            engine.jobs.damages().iter().fold(String::new(), |text, e| text + &format!("{e}\n"))
        }
        "num-snapshots" => snapshots.0.to_string(),
        "oldest-snapshot" => snapshots.1.map_or_else(String::new, |s| s.to_string()),
        "last-sequence" => engine.shared.visible().to_string(),
        "memory-usage" => engine.shared.accountant.used_total().to_string(),
        "block-cache-usage" => engine.cache.bytes().to_string(),
        "background-error" => engine
            .shared
            .health
            .check_writable()
            .err()
            .or_else(|| engine.shared.health.full())
            .or_else(|| engine.jobs.short_of_space())
            .or_else(|| engine.jobs.first_retry())
            .or_else(|| engine.jobs.first_quarantined())
            .or_else(|| engine.reclaimer.error())
            .map_or_else(String::new, |e| e.to_string()),
        "prometheus" => metrics::collect(engine).prometheus(),
        _ => return None,
    })
}

const MIB: f64 = (1 << 20) as f64;

/// A table of the levels of all keyspaces.
fn levels(engine: &Engine) -> String {
    let mut text = String::from("keyspace          level   runs  tables        MiB      entries\n");
    for keyspace in metrics::collect(engine).keyspaces {
        for (level, l) in keyspace.levels.iter().enumerate().filter(|(_, l)| l.tables > 0) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<16} {level:>6} {:>6} {:>7} {:>10.1} {:>12}",
                keyspace.name,
                l.runs,
                l.tables,
                l.bytes as f64 / MIB,
                l.entries
            );
        }
    }
    text
}

/// A table of the requests to the device, by cause.
fn io(engine: &Engine) -> String {
    let mut text =
        String::from("cause         reads   read MiB     writes  written MiB      syncs\n");
    let by_cause = engine.io.by_cause();
    for (cause, io) in by_cause.named().into_iter().chain([("total", by_cause.total())]) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{cause:<10} {:>8} {:>10.1} {:>10} {:>12.1} {:>10}",
            io.reads,
            io.bytes_read as f64 / MIB,
            io.writes,
            io.bytes_written as f64 / MIB,
            io.syncs
        );
    }
    text
}

/// A page for people.
fn stats(engine: &Engine) -> String {
    let m = metrics::collect(engine);
    let mut text = levels(engine);
    let user = m.user_bytes_written.max(1) as f64;
    let lines = [
        format!("uptime {:.1} s", m.uptime_seconds),
        format!(
            "writes {} puts, {} deletes, {:.1} MiB in {} groups; delayed {:.3} s, stalled {:.3} s",
            m.puts,
            m.deletes,
            m.user_bytes_written as f64 / MIB,
            m.commit_groups,
            m.write_delay_seconds,
            m.write_stall_seconds
        ),
        format!(
            "written log {:.1}, flush {:.1}, compaction {:.1}, versions {:.1} MiB \
             ({:.2} per user byte)",
            m.bytes_written.log as f64 / MIB,
            m.bytes_written.flush as f64 / MIB,
            m.bytes_written.compaction as f64 / MIB,
            m.bytes_written.versions as f64 / MIB,
            m.bytes_written.total() as f64 / user
        ),
        format!(
            "jobs {} flushes ({:.2} s), {} compactions ({:.2} s), {} moves",
            m.flushes, m.flush_seconds, m.compactions, m.compaction_seconds, m.trivial_moves
        ),
        format!(
            "reads {} gets ({} found), {} seeks; cache hits {:.2} % of {} lookups, \
             {} reads shared",
            m.gets,
            m.gets_found,
            m.seeks,
            100.0 * m.cache_foreground.hit_ratio(),
            m.cache_foreground.hits + m.cache_foreground.misses,
            m.block_reads_shared
        ),
        format!(
            "memory {:.1} of {:.1} MiB: memtables {:.1} and {:.1} spare, cache {:.1} and \
             {:.1} retained, indexes and filters {:.1}, jobs {:.1}, pinned {:.1}",
            m.memory.total() as f64 / MIB,
            m.memory.budget as f64 / MIB,
            m.memory.memtables as f64 / MIB,
            m.memory.spare_memtables as f64 / MIB,
            m.memory.block_cache as f64 / MIB,
            m.memory.retained as f64 / MIB,
            m.memory.table_metadata as f64 / MIB,
            m.memory.jobs as f64 / MIB,
            m.memory.pinned as f64 / MIB
        ),
    ];
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text.push_str(&hot_ranges(engine, &m));
    text
}

/// So many hot ranges of a keyspace are shown, the newest of them.
const MOVED_SHOWN: usize = 8;

/// A key as people can read it: its beginning, if it is long.
fn printable(key: &[u8]) -> String {
    const SHOWN: usize = 40;
    let (shown, rest) = key.split_at(key.len().min(SHOWN));
    let dots = if rest.is_empty() { "" } else { "..." };
    format!("{}{dots}", shown.escape_ascii())
}

/// What was done about hot ranges, and why; nothing if nothing was.
fn hot_ranges(engine: &Engine, m: &Metrics) -> String {
    let mut text = String::new();
    let spared = m.keyspaces.iter().map(|k| (k.sentinel_reads, k.sentinel_runs_spared));
    let (reads, runs) = spared.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    if m.sentinels_built + m.hot_ranges_merged_down + reads == 0 {
        return text;
    }
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "hot ranges {} moved up ({:.1} MiB), {} merged down; some {reads} reads ended at a \
         sentinel and were spared {runs} older runs",
        m.sentinels_built,
        m.sentinel_bytes_written as f64 / MIB,
        m.hot_ranges_merged_down
    );
    for tree in engine.all_trees() {
        let moved = tree.moved();
        for range in moved.iter().rev().take(MOVED_SHOWN) {
            let MovedRange { from, to, up, benefit, cost, runs, bytes } = range;
            let to = to.as_deref().map_or_else(|| "the end".to_owned(), printable);
            let _ = writeln!(
                text,
                "  {} of {:?}: {} to {to}, {:.1} MiB in {runs} runs; {benefit:.0} blocks to be \
                 saved for {cost:.0}",
                if *up { "up" } else { "down" },
                tree.name,
                printable(from),
                *bytes as f64 / MIB,
            );
        }
    }
    text
}
