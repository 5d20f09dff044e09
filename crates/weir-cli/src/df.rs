//! `weir df`: how much of a store's space is used, and by what.

use crate::failure::Result;
use crate::inspect::open_read_only;
use crate::show::{Bytes, Count, table};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir::{Description, SlotSpace};

/// Options of `weir df`.
#[derive(Args, Debug)]
pub(crate) struct DfArgs {
    /// The store: a directory, a file or a block device
    path: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Tables of a level, and their bytes.
type Levels = BTreeMap<usize, (u64, u64)>;

fn levels_of(description: &Description) -> Levels {
    let mut levels = Levels::new();
    for keyspace in &description.keyspaces {
        for (number, level) in keyspace.levels.iter().enumerate() {
            let (tables, bytes) = levels.entry(number).or_default();
            for run in &level.runs {
                *tables += run.tables.len() as u64;
                *bytes += run.tables.iter().map(|table| table.bytes).sum::<u64>();
            }
        }
    }
    levels.retain(|_, (tables, _)| *tables > 0);
    levels
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
    let levels = levels_of(&db.describe());
    let space = db.slot_space().zip(db.kept_back_bytes());
    let cache = cache_of(&args.path);
    db.close()?;
    if args.json {
        let levels: Vec<_> = levels
            .iter()
            .map(|(level, (tables, bytes))| {
                json!({"level": level, "tables": tables, "bytes": bytes})
            })
            .collect();
        let slots = space.map(|(space, kept_back)| slots_json(&space, kept_back));
        let all = json!({
            "levels": levels, "slots": slots, "write_cache": cache.write_cache, "fua": cache.fua,
        });
        writeln!(out, "{all}")?;
        return Ok(());
    }
    let of_slots = |bytes: u64| match &space {
        Some((space, _)) => Count(bytes.div_ceil(space.slot_bytes)).to_string(),
        None => "-".to_owned(),
    };
    let rows: Vec<Vec<String>> = levels
        .iter()
        .map(|(level, (tables, bytes))| {
            vec![
                format!("level {level}"),
                Count(*tables).to_string(),
                Bytes(*bytes).to_string(),
                of_slots(*bytes),
            ]
        })
        .collect();
    table(out, &["", "tables", "bytes", "slots' worth"], &rows)?;
    match space {
        Some((space, kept_back)) => show_slots(&space, kept_back, &levels, out)?,
        None => writeln!(out, "a store in a directory: the file system says what is free")?,
    }
    let known = |text: Option<String>| text.unwrap_or_else(|| "not known".to_owned());
    let fua = cache.fua.map(|fua| if fua { "yes" } else { "no" }.to_owned());
    writeln!(out, "device's write cache: {}; FUA: {}", known(cache.write_cache), known(fua))?;
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
        "version_log_bytes": space.version_log_bytes,
    })
}

fn show_slots(
    space: &SlotSpace,
    kept_back_bytes: u64,
    levels: &Levels,
    out: &mut dyn Write,
) -> Result<()> {
    let bytes: u64 = levels.values().map(|(_, bytes)| bytes).sum();
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
    let share = |part: u64, whole: u64| 100.0 * part as f64 / (whole.max(1)) as f64;
    let owned = space.owned * space.slot_bytes;
    writeln!(out, "tables fill {:.1} % of their slots", share(bytes.min(owned), owned))?;
    writeln!(
        out,
        "{} extents of {} tables; {} of {} segments of the log are free, {} each",
        Count(space.extents),
        Count(space.tables),
        Count(space.log_segments_free),
        Count(space.log_segments),
        Bytes(space.log_segment_bytes)
    )?;
    Ok(())
}
