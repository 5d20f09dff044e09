//! What a store did since it was opened, for people.

use crate::failure::Result;
use crate::show::{Bytes, Count, percent, table};
use std::io::Write;
use std::time::Duration;
use weir::{Db, Metrics};

/// Users' block reads that the cache answered, and those that it did not.
pub(crate) fn hits(metrics: &Metrics) -> (u64, u64) {
    (metrics.cache_foreground.hits, metrics.cache_foreground.misses)
}

/// Prints the bytes written by cause and what each is per byte that the user wrote.
pub(crate) fn print_written(metrics: &Metrics, out: &mut dyn Write) -> Result<()> {
    let written = &metrics.bytes_written;
    let user = metrics.user_bytes_written;
    let ratio = |bytes: u64| {
        if user == 0 { "-".to_owned() } else { format!("{:.2}", bytes as f64 / user as f64) }
    };
    let causes = [
        ("user", user),
        ("log", written.log),
        ("flush", written.flush),
        ("compaction", written.compaction),
        ("version log", written.versions),
        ("device in all", written.total()),
    ];
    let rows = causes.map(|(cause, n)| vec![cause.to_owned(), Bytes(n).to_string(), ratio(n)]);
    table(out, &["written by", "bytes", "per user byte"], &rows)?;
    Ok(())
}

/// Prints the requests to the device by cause.
pub(crate) fn print_requests(metrics: &Metrics, out: &mut dyn Write) -> Result<()> {
    let io = &metrics.io;
    let rows = io.named().into_iter().chain([("in all", io.total())]).map(|(cause, io)| {
        vec![
            cause.to_owned(),
            Count(io.reads).to_string(),
            Bytes(io.bytes_read).to_string(),
            Count(io.writes).to_string(),
            Bytes(io.bytes_written).to_string(),
            Count(io.syncs).to_string(),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    table(out, &["requests by", "reads", "read", "writes", "written", "syncs"], &rows)?;
    Ok(())
}

/// Prints the levels that hold anything, for each keyspace.
pub(crate) fn print_levels(metrics: &Metrics, out: &mut dyn Write) -> Result<()> {
    let mut rows = Vec::new();
    for keyspace in &metrics.keyspaces {
        for (number, level) in keyspace.levels.iter().enumerate() {
            if level.tables > 0 {
                rows.push(vec![
                    keyspace.name.clone(),
                    number.to_string(),
                    Count(level.runs).to_string(),
                    Count(level.tables).to_string(),
                    Count(level.entries).to_string(),
                    Bytes(level.bytes).to_string(),
                ]);
            }
        }
    }
    if rows.is_empty() {
        writeln!(out, "no tables yet: everything is in memory and in the log")?;
    } else {
        table(out, &["keyspace", "level", "runs", "tables", "entries", "bytes"], &rows)?;
    }
    Ok(())
}

/// A time that was measured in seconds.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

/// How long writers waited for background work, in seconds.
pub(crate) fn held_back(delayed: f64, stopped: f64) -> String {
    format!("writers delayed for {:.1?}, stopped for {:.1?}", seconds(delayed), seconds(stopped))
}

/// Prints everything.
pub(crate) fn print(db: &Db, out: &mut dyn Write) -> Result<()> {
    let m = db.metrics();
    writeln!(
        out,
        "open for {:.1?}: {} puts, {} deletes, {} gets ({} found), {} seeks",
        seconds(m.uptime_seconds),
        Count(m.puts),
        Count(m.deletes),
        Count(m.gets),
        Count(m.gets_found),
        Count(m.seeks)
    )?;
    writeln!(
        out,
        "{}; {} flushes, {} compactions, {} moves",
        held_back(m.write_delay_seconds, m.write_stall_seconds),
        Count(m.flushes),
        Count(m.compactions),
        Count(m.trivial_moves)
    )?;
    let (hits, misses) = hits(&m);
    writeln!(
        out,
        "block cache: {} hits, {} misses, {} of them shared, hit ratio {}, {} of {}",
        Count(hits),
        Count(misses),
        Count(m.block_reads_shared),
        percent(hits, hits + misses),
        Bytes(m.cache_bytes),
        Bytes(m.cache_capacity)
    )?;
    writeln!(
        out,
        "handed over to tables that flushes and compactions wrote: {} of its blocks, {} of them \
         gone again unread",
        Count(m.blocks_handed_over),
        Count(m.blocks_handed_over_unread)
    )?;
    let memory = &m.memory;
    writeln!(
        out,
        "memory: {} of {}: memtables {} and {} spare, block cache {}, indexes and filters {}, \
         jobs {}, pinned {}, row cache {}, retained {}\n",
        Bytes(memory.total()),
        Bytes(memory.budget),
        Bytes(memory.memtables),
        Bytes(memory.spare_memtables),
        Bytes(memory.block_cache),
        Bytes(memory.table_metadata),
        Bytes(memory.jobs),
        Bytes(memory.pinned),
        Bytes(memory.row_cache),
        Bytes(memory.retained)
    )?;
    print_written(&m, out)?;
    writeln!(out)?;
    print_requests(&m, out)?;
    writeln!(out)?;
    for keyspace in &m.keyspaces {
        let (name, bytes) = (&keyspace.name, Bytes(keyspace.table_bytes));
        writeln!(out, "{name}: compactions of single tables make tables of at most {bytes}")?;
    }
    print_levels(&m, out)
}
