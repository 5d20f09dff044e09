//! `weir-bench-compare synced`: how long a synced insert takes on slots, in files and in LevelDB,
//! on several file systems (LDS §4.3, Fig. 13).
//!
//! Each has a loop device whose image is written in full: slots one of their own, and both stores
//! of a file system share its. For each size of values everyone in turn inserts the same keys,
//! round after round, so that what disturbs the machine disturbs all. `weir-lab requests --latency`
//! has a probe of the bare device, and inserts beside compactions and beside a neighbour. Loop
//! devices and mounts are taken down when this ends, by an error or a panic too.

use std::path::PathBuf;

use weir_bench::loop_device::{Loop, Mounted};
use weir_bench::{Engine, EngineKind, Prng, Settings, Stopwatch, WeirKind};

use crate::{engines, forms};

/// How to call it.
pub const USAGE: &str = "\
weir-bench-compare synced: microseconds of a synced insert on slots, in files and in LevelDB
(Linux, root)

usage: weir-bench-compare synced [options]

  --forms LIST          file systems, comma-separated, from ext4,xfs,btrfs   (all)
  --values LIST         bytes of values, comma-separated; keys have 16
                                                     (128,1024,4096,16384,65536)
  --num N               inserts of each store, size of values and round      (300)
  --rounds N            everyone in turn, so many times                      (5)
  --device-mib N        MiB of each loop device                              (1024)
  --dir DIR             where images and mounts are    (weir-bench-compare.data)";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Args {
    forms: Vec<String>,
    values: Vec<usize>,
    inserts: u64,
    rounds: usize,
    device_bytes: u64,
    dir: PathBuf,
}

impl Args {
    /// Reads the words after `synced`; `None` if help is wanted.
    ///
    /// # Errors
    /// A sentence about the first word that is wrong.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut args = Self {
            forms: forms::all(),
            values: vec![128, 1024, 4096, 16_384, 65_536],
            inserts: 300,
            rounds: 5,
            device_bytes: 1 << 30,
            dir: PathBuf::from("weir-bench-compare.data"),
        };
        while let Some(word) = words.next() {
            if matches!(word.as_str(), "--help" | "-h" | "help") {
                return Ok(None);
            }
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            let number = |text: &str| match text.parse::<u64>() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(format!("{word}: {text:?} is no number above 0")),
            };
            match word.as_str() {
                "--forms" => args.forms = forms::named(&value)?,
                "--values" => {
                    let all = value.split(',').map(|text| number(text).map(|n| n as usize));
                    args.values = all.collect::<Result<_, _>>()?;
                }
                "--num" => args.inserts = number(&value)?,
                "--rounds" => args.rounds = number(&value)? as usize,
                "--device-mib" => args.device_bytes = number(&value)? << 20,
                "--dir" => args.dir = PathBuf::from(value),
                _ => return Err(format!("{word}: no such option; see synced --help")),
            }
        }
        if !(384 << 20..1 << 50).contains(&args.device_bytes) {
            return Err("--device-mib: from 384 (XFS needs 300) to 2^30".to_owned());
        }
        Ok(Some(args))
    }
}

/// A store that takes its turn. The store goes before its mount, and that before its device.
struct Turn {
    name: String,
    engine: Box<dyn Engine>,
}

/// Measures everyone.
///
/// # Errors
/// What failed; without root nothing is done, which is said.
pub fn run(args: &Args) -> Result<(), String> {
    if !forms::are_possible() {
        return Ok(());
    }
    std::fs::create_dir_all(&args.dir).map_err(|e| format!("{}: {e}", args.dir.display()))?;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (weir, leveldb) = (WeirKind::default(), engines::named("leveldb"));
    let leveldb = leveldb.ok_or("LevelDB is no engine of this build")?;
    let settings = Settings::default();
    let device = |bytes| Loop::written(&args.dir, bytes, 0).map(|(device, _)| device);
    // In this order: what is declared last goes first.
    let of_slots = device(args.device_bytes)?;
    let devices = args.forms.iter().map(|_| device(args.device_bytes));
    let devices: Vec<Loop> = devices.collect::<Result<_, _>>()?;
    let mounts = devices.iter().zip(&args.forms);
    let mounts = mounts.map(|(device, form)| Mounted::new(device, form, &args.dir));
    let mounts: Vec<Mounted> = mounts.collect::<Result<_, _>>()?;
    weir::format(of_slots.path(), &weir::FormatOptions::new()).map_err(|e| text(&e))?;
    let slots = weir.open(of_slots.path(), &settings).map_err(|e| text(&e))?;
    let mut turns = vec![Turn { name: "weir, slots".to_owned(), engine: slots }];
    for (mount, form) in mounts.iter().zip(&args.forms) {
        for kind in [&weir as &dyn EngineKind, &*leveldb] {
            let at = mount.path().join(kind.name());
            let engine = kind.open(&at, &settings).map_err(|e| text(&e))?;
            turns.push(Turn { name: format!("{}, {form}", kind.name()), engine });
        }
    }
    println!("| value | store | us | least to most | over slots | least to most |");
    println!("|--:|---|--:|--:|--:|--:|");
    for &bytes in &args.values {
        measure(args, &turns, bytes)?;
    }
    turns.into_iter().try_for_each(|turn| turn.engine.close().map_err(|e| text(&e)))
}

/// Prints a line for each store: medians of the rounds' medians.
fn measure(args: &Args, turns: &[Turn], bytes: usize) -> Result<(), String> {
    let mut medians = vec![Vec::new(); turns.len()];
    let value = vec![b'v'; bytes];
    for round in 0..args.rounds {
        // Nobody is always the first behind the same other one.
        for turn in (0..turns.len()).map(|at| (at + round) % turns.len()) {
            let mut keys = Prng::new(bytes as u64, round as u64);
            let mut nanos = Vec::new();
            for _ in 0..args.inserts {
                let key = format!("{:016x}", keys.next_u64());
                let watch = Stopwatch::start();
                let put = turns[turn].engine.put_sync(key.as_bytes(), &value);
                put.map_err(|error| format!("{}: {error}", turns[turn].name))?;
                nanos.push(watch.nanos() as f64);
            }
            medians[turn].push(middle(&nanos).0 / 1e3);
        }
    }
    for (turn, own) in turns.iter().zip(&medians) {
        let ratios: Vec<f64> =
            own.iter().zip(&medians[0]).map(|(own, slots)| own / slots).collect();
        let ((us, us_least, us_most), (ratio, least, most)) = (middle(own), middle(&ratios));
        println!(
            "| {bytes} | {} | {us:.0} | {us_least:.0} to {us_most:.0} | {ratio:.2} | \
             {least:.2} to {most:.2} |",
            turn.name
        );
    }
    Ok(())
}

/// The median, the least and the most of some numbers.
fn middle(numbers: &[f64]) -> (f64, f64, f64) {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    (at(sorted.len() / 2), at(0), at(sorted.len().saturating_sub(1)))
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
        let args = parse(&["--values", "8,70000", "--num", "7", "--forms", "xfs"]).expect("valid");
        let args = args.expect("no help");
        assert_eq!(
            (args.values, args.inserts, args.forms),
            (vec![8, 70_000], 7, vec!["xfs".into()])
        );
        assert_eq!(parse(&["--help"]), Ok(None));
        for (words, part) in [
            (["--forms", "zfs"], "zfs"),
            (["--values", "1,x"], "\"x\""),
            (["--rounds", "0"], "--rounds"),
            (["--device-mib", "1"], "384"),
            (["--fast", "1"], "fast"),
        ] {
            assert!(parse(&words).expect_err("refused").contains(part), "{words:?}");
        }
    }

    /// Goal: medians and ranges are those of the numbers, whatever their order.
    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(middle(&[3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
        assert!(middle(&[]).0.is_nan());
    }
}
