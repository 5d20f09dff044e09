//! `weir df`: how much of a store's space is used, and by what.

use crate::failure::Result;
use crate::inspect::open_read_only;
use crate::show::{Bytes, Count, table};
use clap::Args;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir::{Description, SlotSpace, TableDescription};

/// Options of `weir df`.
#[derive(Args, Debug)]
pub(crate) struct DfArgs {
    /// The store: a directory, a file or a block device
    path: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Tables, their bytes, and the slots that these have.
#[derive(Clone, Copy, Default)]
struct Taken {
    tables: u64,
    bytes: u64,
    slots: u64,
}

impl Taken {
    fn add(&mut self, table: &TableDescription) {
        self.tables += 1;
        self.bytes += table.bytes;
        self.slots += table.slots;
    }

    fn json(&self) -> serde_json::Value {
        json!({"tables": self.tables, "bytes": self.bytes, "slots": self.slots})
    }
}

/// By level.
type Levels = BTreeMap<usize, Taken>;

fn levels_of(description: &Description) -> Levels {
    let mut levels = Levels::new();
    for keyspace in &description.keyspaces {
        for (number, level) in keyspace.levels.iter().enumerate() {
            let taken = levels.entry(number).or_default();
            level.runs.iter().flat_map(|run| &run.tables).for_each(|table| taken.add(table));
        }
    }
    levels.retain(|_, taken| taken.tables > 0);
    levels
}

/// What buffer lists alone have.
fn listed_only(description: &Description) -> Taken {
    let runs = description.keyspaces.iter().flat_map(|k| &k.levels).flat_map(|l| &l.runs);
    let in_tree: BTreeSet<u64> = runs.clone().flat_map(|r| &r.tables).map(|t| t.uid).collect();
    let lists = runs.filter_map(|run| run.buffer.as_ref());
    let tables = lists.flat_map(|list| &list.runs).flat_map(|run| &run.tables);
    let only: BTreeMap<u64, &TableDescription> =
        tables.filter(|t| !in_tree.contains(&t.uid)).map(|t| (t.uid, t)).collect();
    let mut taken = Taken::default();
    only.values().for_each(|table| taken.add(table));
    taken
}

/// Files of a store in a directory that are no tables, and the space that they take: the
/// write-ahead log's, the version log's.
fn logs_in(dir: &Path) -> Option<[(u64, u64); 2]> {
    let mut logs = [(0, 0); 2];
    #[expect(clippy::disallowed_methods, reason = "the space of files, in whatever order")]
    let files = std::fs::read_dir(dir).ok()?;
    for entry in files.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.ends_with(".log")) else { continue };
        let of = ["wal-", "versions-"].iter().position(|start| name.starts_with(start));
        if let (Some(of), Ok(meta)) = (of, entry.metadata()) {
            logs[of].0 += 1;
            // Segments are allocated ahead, and what is allocated is taken.
            logs[of].1 += meta.st_blocks() * 512;
        }
    }
    Some(logs)
}

/// What the kernel says of the device that a store is on: whether its write cache keeps what was
/// written, and whether it can write past it (FUA).
struct Cache {
    write_cache: Option<String>,
    fua: Option<bool>,
}

fn cache_of(path: &Path) -> Cache {
    let read = |name: &str| -> Option<String> {
        let meta = std::fs::metadata(path).ok()?;
        let dev = if meta.st_rdev() != 0 { meta.st_rdev() } else { meta.st_dev() };
        let major = (dev >> 8 & 0xfff) | (dev >> 32 & !0xfff);
        let minor = (dev & 0xff) | (dev >> 12 & !0xff);
        let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        // A partition's queue is its disk's.
        let queue = [device.join("queue"), device.join("../queue")];
        let text = queue.iter().find_map(|dir| std::fs::read_to_string(dir.join(name)).ok())?;
        Some(text.trim().to_owned())
    };
    Cache { write_cache: read("write_cache"), fua: read("fua").map(|fua| fua == "1") }
}

/// Runs `weir df`.
pub(crate) fn run(args: &DfArgs, out: &mut dyn Write) -> Result<()> {
    let db = open_read_only(&args.path)?;
    let description = db.describe();
    let (levels, lists) = (levels_of(&description), listed_only(&description));
    let space = db.slot_space().zip(db.kept_back_bytes());
    let cache = cache_of(&args.path);
    let logs = if space.is_none() { logs_in(&args.path) } else { None };
    db.close()?;
    if args.json {
        let levels: Vec<_> = levels
            .iter()
            .map(|(level, taken)| {
                let mut json = taken.json();
                json["level"] = (*level).into();
                json
            })
            .collect();
        let slots = space.map(|(space, kept_back)| slots_json(&space, kept_back));
        let logs = logs.map(|[wal, versions]| {
            json!({
                "files": wal.0, "bytes": wal.1,
                "version_files": versions.0, "version_bytes": versions.1,
            })
        });
        let all = json!({
            "levels": levels, "lists": lists.json(), "logs": logs,
            "slots": slots, "write_cache": cache.write_cache, "fua": cache.fua,
        });
        writeln!(out, "{all}")?;
        return Ok(());
    }
    let slot_bytes = space.as_ref().map(|(space, _)| space.slot_bytes);
    let row = |name: String, taken: &Taken| {
        let Taken { tables, bytes, slots } = *taken;
        let mut row = vec![name, Count(tables).to_string(), Bytes(bytes).to_string()];
        if let Some(slot_bytes) = slot_bytes {
            let fill = share(bytes, slots * slot_bytes);
            row.extend([Count(slots).to_string(), format!("{fill:.1} %")]);
        }
        row
    };
    let rows = levels.iter().map(|(level, taken)| row(format!("level {level}"), taken));
    let mut rows: Vec<Vec<String>> = rows.collect();
    if lists.tables > 0 {
        rows.push(row("compaction buffer".to_owned(), &lists));
    }
    let columns = ["", "tables", "bytes", "slots", "filled"];
    table(out, &columns[..if slot_bytes.is_some() { 5 } else { 3 }], &rows)?;
    match space {
        Some((space, kept_back)) => {
            let bytes = levels.values().map(|taken| taken.bytes).sum::<u64>() + lists.bytes;
            show_slots(&space, kept_back, bytes, out)?;
        }
        None => show_logs(logs, out)?,
    }
    let known = |text: Option<String>| text.unwrap_or_else(|| "not known".to_owned());
    let fua = cache.fua.map(|fua| if fua { "yes" } else { "no" }.to_owned());
    writeln!(out, "device's write cache: {}; FUA: {}", known(cache.write_cache), known(fua))?;
    Ok(())
}

/// Per cent.
fn share(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn show_logs(logs: Option<[(u64, u64); 2]>, out: &mut dyn Write) -> Result<()> {
    let Some(logs) = logs else {
        writeln!(out, "a store in a directory, whose files cannot be listed: logs not known")?;
        return Ok(());
    };
    for (name, (files, bytes)) in ["write-ahead log", "version log"].iter().zip(logs) {
        let files =
            if files == 1 { "1 file".to_owned() } else { format!("{} files", Count(files)) };
        writeln!(out, "{name}: {files}, {}", Bytes(bytes))?;
    }
    writeln!(out, "a store in a directory: the file system says what is free")?;
    Ok(())
}

fn slots_json(space: &SlotSpace, kept_back_bytes: u64) -> serde_json::Value {
    json!({
        "slot_bytes": space.slot_bytes, "slots": space.slots, "free": space.free,
        "kept_back_bytes": kept_back_bytes,
        "reserved": space.reserved, "owned": space.owned, "leaving": space.leaving,
        "largest_free_run": space.largest_free_run, "tables": space.tables,
        "extents": space.extents, "log_segments": space.log_segments,
        "log_segments_free": space.log_segments_free, "log_segment_bytes": space.log_segment_bytes,
        "log_unit_bytes": space.log_unit_bytes,
        "version_log_bytes": space.version_log_bytes, "cut_off_bytes": space.cut_off_bytes,
        "superblocks": space.superblocks,
    })
}

fn show_slots(
    space: &SlotSpace,
    kept_back_bytes: u64,
    table_bytes: u64,
    out: &mut dyn Write,
) -> Result<()> {
    let row = |name: &str, slots: u64| {
        vec![name.to_owned(), Count(slots).to_string(), Bytes(slots * space.slot_bytes).to_string()]
    };
    let rows = [
        row("slots", space.slots),
        row("  free", space.free),
        row("  of tables", space.owned),
        row("  being written", space.reserved),
        row("  leaving", space.leaving),
        row("largest free run", space.largest_free_run),
    ];
    table(out, &["", "slots", "bytes"], &rows)?;
    writeln!(
        out,
        "of what is free, {} are kept back for flushes and compactions: writes are refused when \
         less is free",
        Bytes(kept_back_bytes)
    )?;
    let owned = space.owned * space.slot_bytes;
    writeln!(out, "tables fill {:.1} % of their slots", share(table_bytes.min(owned), owned))?;
    writeln!(
        out,
        "{} extents of {} tables; {} of {} segments of the log are free, {} each",
        Count(space.extents),
        Count(space.tables),
        Count(space.log_segments_free),
        Count(space.log_segments),
        Bytes(space.log_segment_bytes)
    )?;
    if space.superblocks < 2 {
        writeln!(out, "one of the two superblocks is damaged; `weir repair` makes it whole")?;
    }
    if space.cut_off_bytes > 0 {
        writeln!(
            out,
            "it was cut off, and lacks {} at its end; `weir repair` makes a file as long again",
            Bytes(space.cut_off_bytes)
        )?;
    }
    Ok(())
}
