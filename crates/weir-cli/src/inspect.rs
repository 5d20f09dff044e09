//! `weir inspect`: what a store consists of, without changing it.

use crate::failure::{Failure, Result};
use crate::show::{Bytes, Count, Entries, Plural, table};
use crate::words::{Escaped, Quoted};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use weir::{
    BufferDescription, CompactionBuffer, CompactionPolicy, Db, Description, ErrorKind,
    KeyspaceDescription, OddChunk, Options, RunDescription, SentinelOptions, Sentinels,
    TableDescription, TrimOptions,
};

/// Options of `weir inspect`.
#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// The store: a directory, or a file or device that `weir format` made one
    dir: PathBuf,
    /// List every table with its keys
    #[arg(long)]
    tables: bool,
    /// Print one JSON object with everything instead of text
    #[arg(long)]
    json: bool,
}

/// Opens a store that must exist, for reading only.
pub(crate) fn open_read_only(dir: &Path) -> Result<Db> {
    Db::builder(dir).create_if_missing(false).read_only(true).open().map_err(|e| explain(dir, e))
}

/// A store that is not there, or that damage keeps from opening: what to do about it.
pub(crate) fn explain(dir: &Path, error: weir::Error) -> Failure {
    if error.kind() == ErrorKind::Corruption && error.may_be_salvaged() {
        return Failure::difference(format_args!(
            "{error:#}; the store cannot be opened: restore a backup, or salvage what can be read \
             with `weir repair {}`",
            dir.display()
        ));
    }
    explain_missing(dir, error)
}

/// A store that is not there: what to do about it.
pub(crate) fn explain_missing(dir: &Path, error: weir::Error) -> Failure {
    if error.kind() == ErrorKind::NotFound && !dir.exists() {
        return Failure::new(format_args!(
            "there is no store in {}: it does not exist; name the directory or the file of a store \
             (`weir demo` makes one in ./weir-demo, `weir format` one in a file)",
            dir.display()
        ));
    }
    error.into()
}

/// Runs `weir inspect`.
pub(crate) fn run(args: &InspectArgs, out: &mut dyn Write) -> Result<()> {
    let db = open_read_only(&args.dir)?;
    let description = db.describe();
    db.close()?;
    let logs = logs(&args.dir)?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &to_json(&description, &logs))?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(out, "store in {}", args.dir.display())?;
    writeln!(
        out,
        "lineage {:016x}, last sequence {}",
        description.lineage, description.last_sequence
    )?;
    for keyspace in &description.keyspaces {
        print_keyspace(keyspace, args.tables, out)?;
    }
    writeln!(out, "\nlogs")?;
    if !args.dir.is_dir() {
        writeln!(out, "in areas of the file or device: `weir df {}`", args.dir.display())?;
        return Ok(());
    }
    let rows: Vec<_> =
        logs.iter().map(|(name, n)| vec![name.clone(), Bytes(*n).to_string()]).collect();
    table(out, &["file", "bytes"], &rows)?;
    Ok(())
}

/// The log files of a store with their bytes, sorted by name; none of one in slots. Opened for
/// reading only, a store does not hold them itself.
pub(crate) fn logs(dir: &Path) -> Result<Vec<(String, u64)>> {
    let fail = |e: std::io::Error| Failure::new(format_args!("cannot list {}: {e}", dir.display()));
    let mut logs = Vec::new();
    if !dir.is_dir() {
        return Ok(logs);
    }
    #[expect(clippy::disallowed_methods, reason = "sorted below")]
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".log") {
            logs.push((name, entry.metadata().map_err(fail)?.len()));
        }
    }
    logs.sort();
    Ok(logs)
}

/// Options of a trimmed compaction buffer.
fn trim(options: &Options) -> Option<TrimOptions> {
    match options.compaction_buffer {
        CompactionBuffer::Trimmed(trim) => Some(trim),
        _ => None,
    }
}

/// Options of sentinels, where they are on.
fn sentinels(options: &Options) -> Option<SentinelOptions> {
    match options.sentinels {
        Sentinels::On(sentinels) => Some(sentinels),
        _ => None,
    }
}

/// Sentinels, for programs.
fn sentinels_json(sentinels: SentinelOptions) -> Value {
    json!({
        "theta": sentinels.theta,
        "cost": sentinels.cost.name(),
        "buckets": sentinels.buckets.to_string(),
        "window_seconds": sentinels.window.as_secs_f64(),
        "ways": sentinels.ways.name(),
        "bytes_max": sentinels.bytes_max,
    })
}

/// Sentinels, for people; nothing where they are off.
fn sentinel_options(options: &Options) -> String {
    sentinels(options).map_or(
        String::new(),
        |SentinelOptions { theta, cost, buckets, window, ways, bytes_max, .. }| {
            let most =
                bytes_max.map_or(String::new(), |bytes| format!(", at most {}", Bytes(bytes)));
            format!(", sentinels {ways} above {theta} ({cost}, {buckets}, {window:?}{most})")
        },
    )
}

/// A compaction buffer, for people.
fn buffer_options(buffer: CompactionBuffer) -> String {
    match buffer {
        CompactionBuffer::Trimmed(trim) => {
            format!("{buffer} below {} % cached, every {:?}", trim.threshold * 100.0, trim.interval)
        }
        _ => buffer.to_string(),
    }
}

/// How tables fit slots, for people, if they are made to.
fn odd_chunk_option(options: &Options) -> String {
    match options.debug.odd_chunk {
        OddChunk::Off => String::new(),
        odd_chunk => format!(", tables that fill slots (odd chunk {odd_chunk})"),
    }
}

/// The options that a policy has, for people, with a comma behind each.
fn policy_options(policy: CompactionPolicy) -> String {
    let mut text = String::new();
    if let (Some(ratio), Some(bytes)) = (policy.level_ratio(), policy.base_level_bytes()) {
        text = format!("level 1 of {}, ratio {ratio}, ", Bytes(bytes));
    }
    if let Some(runs) = policy.runs_per_level() {
        text = format!("{runs} runs a level, ");
    }
    text
}

/// Options of a keyspace, for people.
pub(crate) fn options_line(o: &Options) -> String {
    format!(
        "{}, write buffer {}, tables of at most {}, {}filters {}, warm-up {}, \
         compaction buffer {}{}{}{}",
        o.compaction,
        Bytes(o.write_buffer_bytes),
        Bytes(o.table_bytes),
        policy_options(o.compaction),
        o.filters,
        o.warm_up,
        buffer_options(o.compaction_buffer),
        sentinel_options(o),
        o.idle_compaction.map_or(String::new(), |rest| format!(", merged down after {rest:?}")),
        odd_chunk_option(o)
    )
}

fn print_keyspace(keyspace: &KeyspaceDescription, tables: bool, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "\nkeyspace {} (number {})", Quoted(keyspace.name.as_bytes()), keyspace.id)?;
    writeln!(out, "  {}", options_line(&keyspace.options))?;
    writeln!(
        out,
        "  in tables up to sequence {}; the log is needed from segment {} on; {} in memory",
        keyspace.flushed_sequence,
        keyspace.log_start_segment,
        Bytes(keyspace.memtable_bytes)
    )?;
    let mut rows = Vec::new();
    for (number, level) in keyspace.levels.iter().enumerate() {
        for run in &level.runs {
            let sum = |figure: fn(&TableDescription) -> u64| run.tables.iter().map(figure).sum();
            rows.push(vec![
                format!("  {number}{}", kind_of(run)),
                run.epoch.to_string(),
                Count(run.tables.len() as u64).to_string(),
                Count(sum(|t| t.entries)).to_string(),
                Count(sum(|t| t.deletes)).to_string(),
                Bytes(sum(|t| t.bytes)).to_string(),
            ]);
        }
    }
    if rows.is_empty() {
        writeln!(out, "  no tables")?;
        return Ok(());
    }
    table(out, &["  level", "run epoch", "tables", "entries", "deletes", "bytes"], &rows)?;
    for (number, level) in keyspace.levels.iter().enumerate() {
        if level.runs.iter().any(|run| run.draining) {
            let left = level.runs.iter().filter(|run| run.draining).flat_map(|run| &run.tables);
            writeln!(
                out,
                "  level {number} drains: {} of {} left ({} then)",
                Bytes(left.map(|table| table.bytes).sum()),
                Bytes(level.rotated_bytes),
                Entries(level.rotated_entries)
            )?;
        }
    }
    print_claims(keyspace, out)?;
    for (number, level) in keyspace.levels.iter().enumerate() {
        for run in &level.runs {
            let Some(buffer) = &run.buffer else { continue };
            let tables = buffer.runs.iter().flat_map(|run| &run.tables);
            let holes = buffer.runs.iter().map(|run| run.holes.len() as u64).sum();
            writeln!(
                out,
                "  level {number}{} keeps {} of {} in {}, with {}; {} of {} appended hide one{}",
                if run.draining { " draining" } else { "" },
                Plural(tables.clone().count() as u64, "table"),
                Bytes(tables.map(|table| table.bytes).sum()),
                Plural(buffer.runs.len() as u64, "buffered run"),
                Plural(holes, "hole"),
                Count(buffer.shadowed),
                Entries(buffer.appended),
                if buffer.quiet { ", too many to keep any" } else { "" }
            )?;
        }
    }
    if tables {
        print_tables(keyspace, out)?;
    }
    Ok(())
}

/// What sentinels claim, and how much is hidden for them.
fn print_claims(keyspace: &KeyspaceDescription, out: &mut dyn Write) -> Result<()> {
    for run in keyspace.levels.iter().flat_map(|level| &level.runs) {
        for (from, to) in &run.claims {
            let end = to.as_ref().map_or("the end".into(), |to| Quoted(to).to_string());
            writeln!(
                out,
                "  run {} answers alone from {} to below {end}",
                run.epoch,
                Quoted(from)
            )?;
        }
    }
    let hidden = keyspace.levels.iter().flat_map(|level| &level.runs).flat_map(|run| &run.tables);
    let hidden: u64 = hidden.map(|table| table.hidden_entries).sum();
    if hidden > 0 {
        writeln!(out, "  {} hidden, which sentinels had: merges leave them out", Entries(hidden))?;
    }
    Ok(())
}

/// What the level of a run does not say.
fn kind_of(run: &RunDescription) -> &'static str {
    match (run.draining, run.sentinel) {
        (true, _) => " draining",
        (false, true) => " sentinel",
        (false, false) => "",
    }
}

fn print_tables(keyspace: &KeyspaceDescription, out: &mut dyn Write) -> Result<()> {
    for (number, level) in keyspace.levels.iter().enumerate() {
        for table in level.runs.iter().flat_map(|run| &run.tables) {
            writeln!(
                out,
                "  table {:06} in level {number}: {} in {}, sequences {} to {}, \
                 keys {} to {}",
                table.uid,
                Bytes(table.bytes),
                Plural(u64::from(table.blocks), "block"),
                table.sequences.0,
                table.sequences.1,
                Quoted(&table.smallest),
                Quoted(&table.largest)
            )?;
        }
    }
    Ok(())
}

fn hole((from, to): &(Vec<u8>, Vec<u8>)) -> Value {
    json!([Escaped(from).to_string(), Escaped(to).to_string()])
}

fn claim((from, to): &(Vec<u8>, Option<Vec<u8>>)) -> Value {
    let to = to.as_ref().map(|to| Escaped(to).to_string());
    json!([Escaped(from).to_string(), to])
}

/// Everything, for programs. Keys are text with `\xNN` for what is not.
fn to_json(description: &Description, logs: &[(String, u64)]) -> Value {
    let table = |t: &TableDescription| {
        json!({
            "uid": t.uid,
            "bytes": t.bytes,
            "slots": t.slots,
            "entries": t.entries,
            "deletes": t.deletes,
            "blocks": t.blocks,
            "smallest": Escaped(&t.smallest).to_string(),
            "largest": Escaped(&t.largest).to_string(),
            "sequences": [t.sequences.0, t.sequences.1],
            "hidden_entries": t.hidden_entries,
        })
    };
    let buffer = |b: &BufferDescription| {
        let runs = b.runs.iter().map(|run| {
            json!({
                "tables": run.tables.iter().map(table).collect::<Vec<_>>(),
                "holes": run.holes.iter().map(hole).collect::<Vec<_>>(),
            })
        });
        json!({
            "runs": runs.collect::<Vec<_>>(),
            "entries_appended": b.appended,
            "entries_shadowed": b.shadowed,
            "quiet": b.quiet,
        })
    };
    let keyspace = |k: &KeyspaceDescription| {
        let levels = k.levels.iter().map(|level| {
            let runs = level.runs.iter().map(|run| {
                json!({
                    "epoch": run.epoch,
                    "draining": run.draining,
                    "tables": run.tables.iter().map(table).collect::<Vec<_>>(),
                    "buffer": run.buffer.as_ref().map(buffer),
                    "sentinel": run.sentinel,
                    "claims": run.claims.iter().map(claim).collect::<Vec<_>>(),
                })
            });
            json!({
                "runs": runs.collect::<Vec<_>>(),
                "rotated_bytes": level.rotated_bytes,
                "rotated_entries": level.rotated_entries,
            })
        });
        json!({
            "number": k.id,
            "name": k.name,
            "policy": k.options.compaction.name(),
            "write_buffer_bytes": k.options.write_buffer_bytes,
            "table_bytes": k.options.table_bytes,
            "base_level_bytes": k.options.compaction.base_level_bytes(),
            "expected_bytes": k.options.compaction.expected_bytes(),
            "level_ratio": k.options.compaction.level_ratio(),
            "l0_trigger": k.options.compaction.l0_trigger(),
            "runs_per_level": k.options.compaction.runs_per_level(),
            "filters": k.options.filters.name(),
            "warm_up": k.options.warm_up.name(),
            "compaction_buffer": k.options.compaction_buffer.name(),
            "trim_threshold": trim(&k.options).map(|trim| trim.threshold),
            "trim_interval_seconds": trim(&k.options).map(|trim| trim.interval.as_secs_f64()),
            "sentinels": sentinels(&k.options).map(sentinels_json),
            "idle_compaction_seconds": k.options.idle_compaction.map(|rest| rest.as_secs_f64()),
            "odd_chunk": k.options.debug.odd_chunk.name(),
            "flushed_sequence": k.flushed_sequence,
            "log_start_segment": k.log_start_segment,
            "memtable_bytes": k.memtable_bytes,
            "levels": levels.collect::<Vec<_>>(),
        })
    };
    json!({
        "lineage": format!("{:016x}", description.lineage),
        "last_sequence": description.last_sequence,
        "keyspaces": description.keyspaces.iter().map(keyspace).collect::<Vec<_>>(),
        "logs": logs
            .iter()
            .map(|(name, bytes)| json!({ "file": name, "bytes": bytes }))
            .collect::<Vec<_>>(),
    })
}
