//! `weir format`: makes a file or a block device a store.

use crate::failure::{Failure, Result};
use crate::inspect::open_read_only;
use crate::show::{Bytes, Plural, parse_size};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use weir::{Db, FormatOptions};

/// Options of `weir format`.
#[derive(Args, Debug)]
pub(crate) struct FormatArgs {
    /// A file, created with --size if it does not exist, or a block device
    path: PathBuf,
    /// Bytes of the file, such as 20g, at least 8m; of a device, and of a file that exists, all by
    /// default
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,
    /// Bytes of a slot, the unit in which tables take space: a power of two, 64k to 1g [default:
    /// 1m, and less for a size below 16g]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    slot_size: Option<u64>,
    /// Bytes of the write-ahead log's area, at least 1m [default: a sixteenth, at most 256m]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    log_size: Option<u64>,
    /// What a synced commit is padded to in the write-ahead log: 4k, 512 or 8 bytes, at least
    /// --atomic-bytes [default: 4k]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    log_unit: Option<u64>,
    /// What the device writes wholly or not at all, also when power fails, as its maker promises:
    /// 8 bytes to 4k [default: 4k, whatever it says of its sectors]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    atomic_bytes: Option<u64>,
    /// Format it although it holds something, which is lost
    #[arg(long)]
    force: bool,
    /// Write zeros to all of it, as long as that takes, so that later writes cost no metadata
    #[arg(long)]
    zero: bool,
    /// Leave it without the first opening, which makes a store of it: for `weir repair --into`
    #[arg(long)]
    unopened: bool,
}

/// Runs `weir format`.
pub(crate) fn run(args: &FormatArgs, out: &mut dyn Write) -> Result<()> {
    if args.path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(Failure::usage(format_args!(
            "{} ends as the path of a directory does, and a store in one file has another one; \
             leave out the slash",
            args.path.display()
        )));
    }
    let mut options = FormatOptions::new();
    options.size = args.size;
    options.slot_bytes = args.slot_size;
    options.log_bytes = args.log_size;
    (options.log_unit, options.atomic_bytes) = (args.log_unit, args.atomic_bytes);
    (options.force, options.zero) = (args.force, args.zero);
    weir::format(&args.path, &options).map_err(|error| Failure::of_arguments(&error))?;
    if args.unopened {
        let path = args.path.display();
        writeln!(out, "{path} is formatted: `weir repair --into` takes it, or any first opening")?;
        return Ok(());
    }
    // The first opening makes it a whole store, which commands that only read can open.
    Db::open(&args.path)?.close()?;
    let db = open_read_only(&args.path)?;
    let path = args.path.display();
    if let Some(space) = db.slot_space() {
        writeln!(
            out,
            "{path} is a store: {} of {}, {} of write-ahead log",
            Plural(space.slots, "slot"),
            Bytes(space.slot_bytes),
            Bytes(space.log_segments * space.log_segment_bytes)
        )?;
    }
    writeln!(out, "open it as any store, by this path; `weir df {path}` shows what is used")?;
    Ok(())
}
