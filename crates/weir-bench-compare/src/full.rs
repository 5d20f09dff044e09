//! `weir-bench-compare full`: how many pairs LevelDB takes until its file system is full (LDS §4.5,
//! Fig. 18), beside `weir-lab requests --full`, which fills Weir's stores with the same pairs on
//! devices of the same size.
//!
//! Blocks of 4 KiB, filters of 10 bits per key, tables and write buffers of 4 MiB and no
//! compression, as there. Writes end with the first that fails. What is found then is counted in a
//! store that was opened again: in its place, or where that finds no space to recover its log, in a
//! copy. Loop devices and mounts are taken down when this ends, by an error or a panic too.

use crate::{engines, forms};
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_bench::loop_device::{Loop, Mounted, unique};
use weir_bench::{EngineKind, Pairs, Settings, Stopwatch};

/// How to call it.
pub const USAGE: &str = "\
weir-bench-compare full: pairs until LevelDB's file system is full (Linux, root)

usage: weir-bench-compare full [options]

  --forms LIST          comma-separated, from ext4,xfs,btrfs                 (all)
  --device-mib N        MiB of each file system's loop device                (2048)
  --value-size BYTES    bytes of a value; keys have 16                       (100)
  --dir DIR             where images, mounts and copies are  (weir-bench-compare.data)";

/// Bytes of write buffers and tables, as in the paper.
const TABLE_BYTES: u64 = 4 << 20;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Args {
    forms: Vec<String>,
    device_bytes: u64,
    value_bytes: usize,
    dir: PathBuf,
}

impl Args {
    /// Reads the words after `full`; `None` if help is wanted.
    ///
    /// # Errors
    /// A sentence about the first word that is wrong.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut args = Self {
            forms: forms::all(),
            device_bytes: 2 << 30,
            value_bytes: 100,
            dir: PathBuf::from("weir-bench-compare.data"),
        };
        while let Some(word) = words.next() {
            if matches!(word.as_str(), "--help" | "-h" | "help") {
                return Ok(None);
            }
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word}: {value:?}"));
            match word.as_str() {
                "--forms" => args.forms = forms::named(&value)?,
                "--device-mib" => args.device_bytes = number()? << 20,
                "--value-size" => args.value_bytes = number()? as usize,
                "--dir" => args.dir = PathBuf::from(value),
                _ => return Err(format!("{word}: no such option; see full --help")),
            }
        }
        if !(64 << 20..1 << 50).contains(&args.device_bytes) {
            return Err("--device-mib: from 64 to 2^30".to_owned());
        }
        Ok(Some(args))
    }
}

/// Fills a file system of each form.
///
/// # Errors
/// What failed; without root nothing is done, which is said.
pub fn run(args: &Args) -> Result<(), String> {
    if !forms::are_possible() {
        return Ok(());
    }
    std::fs::create_dir_all(&args.dir).map_err(|e| format!("{}: {e}", args.dir.display()))?;
    // One that cannot be made here keeps nobody from the others.
    let filled = args
        .forms
        .iter()
        .map(|form| fill(args, form).map_err(|error| format!("LevelDB on {form}: {error}")));
    let failed: Vec<String> = filled.filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn fill(args: &Args, form: &str) -> Result<(), String> {
    // Written in full: as `weir-lab` has it. The mount goes before the device.
    let (device, _) = Loop::written(&args.dir, args.device_bytes, 0)?;
    let mounted = Mounted::new(&device, form, &args.dir)?;
    let store = mounted.path().join("store");
    let kind = engines::leveldb(TABLE_BYTES);
    let settings = Settings { write_buffer_bytes: TABLE_BYTES, ..Settings::default() };
    let mut all = Pairs::for_device(args.device_bytes, args.value_bytes);
    let (watch, mut pairs, mut refusal) = (Stopwatch::start(), 0_u64, None);
    let db = kind.open(&store, &settings).map_err(|error| error.to_string())?;
    while let Some((key, value)) = all.next_pair() {
        match db.put(key, value) {
            Ok(()) => pairs += 1,
            Err(error) => {
                refusal = Some(error.to_string());
                break;
            }
        }
    }
    let seconds = watch.nanos() as f64 / 1e9;
    drop(db);
    let refusal = refusal.ok_or("it took all pairs, more than the device has bytes for")?;
    let (found, place) = count(args, &*kind, &settings, &store)?;
    let share = (found * (Pairs::KEY_BYTES + args.value_bytes) as u64) as f64;
    let share = share / args.device_bytes as f64;
    println!(
        "leveldb on {form}: {found} pairs found {place}, {share:.3} of the device; {pairs} \
         acknowledged in {seconds:.0} s, until: {refusal}"
    );
    // What LevelDB acknowledged last it may have lost: its log is not synced.
    if found > pairs + 1 {
        Err(format!("more than the {pairs} pairs that it took"))
    } else {
        Ok(())
    }
}

/// The pairs that a store has when it is opened, and where that was.
fn count(
    args: &Args,
    kind: &dyn EngineKind,
    settings: &Settings,
    store: &Path,
) -> Result<(u64, &'static str), String> {
    let open = |at: &Path| kind.open(at, settings).map_err(|error| error.to_string());
    let all = |at: &Path| open(at)?.scan(&[], u64::MAX, &mut |_, _| {}).map_err(|e| e.to_string());
    if let Ok(found) = all(store) {
        return Ok((found, "in its place"));
    }
    let copy = Copied { at: unique(&args.dir, "copy") };
    let copied = Command::new("cp").arg("-r").arg(store).arg(&copy.at).status();
    match copied {
        Ok(status) if status.success() => Ok((all(&copy.at)?, "in a copy with more space")),
        other => Err(format!("copying the store failed: {other:?}")),
    }
}

/// A copy of a store, removed when dropped.
struct Copied {
    at: PathBuf,
}

impl Drop for Copied {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.at) {
            eprintln!("removing {}: {error}", self.at.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Option<Args>, String> {
        Args::parse(words.iter().map(|&word| word.to_owned()))
    }

    /// Goal: options reach their places, and a wrong one is named.
    #[test]
    fn options_are_read() {
        let args = parse(&["--forms", "xfs", "--device-mib", "256"]).expect("valid");
        let args = args.expect("no help");
        assert_eq!((args.forms, args.device_bytes), (vec!["xfs".to_owned()], 256 << 20));
        assert_eq!(parse(&["--help"]), Ok(None));
        for (words, part) in
            [(["--forms", "zfs"], "zfs"), (["--device-mib", "1"], "64"), (["--fast", "1"], "fast")]
        {
            assert!(parse(&words).expect_err("refused").contains(part), "{words:?}");
        }
    }
}
