//! Writes replay files: writes of every kind, point reads and range reads, fixed by a seed.

use crate::failure::{Failure, Result};
use clap::{Args, value_parser};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use weir_bench::Prng;

/// Options of `weir generate`.
#[derive(Args, Debug)]
pub(crate) struct GenerateArgs {
    /// Number of lines
    #[arg(long, default_value_t = 200_000)]
    lines: u64,
    /// Keys lie within this distance from 0, on both sides
    #[arg(long, default_value_t = 100_000, value_parser = value_parser!(i64).range(1..=1 << 60))]
    keys: i64,
    /// Per cent of the lines that read a range; as many again read a point three times over
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(0..=25))]
    ranges: u64,
    /// Fixes every line
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// File to write; must not exist yet. Default: stdout
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// Runs `weir generate`.
pub(crate) fn run(args: &GenerateArgs, out: &mut dyn Write) -> Result<()> {
    let Some(path) = &args.output else {
        write_lines(args, &mut BufWriter::new(out))?;
        return Ok(());
    };
    let fail = |e: std::io::Error| {
        let advice = match e.kind() {
            std::io::ErrorKind::AlreadyExists => "; name a file that does not exist yet",
            _ => "",
        };
        Failure::new(format_args!("cannot write {}: {e}{advice}", path.display()))
    };
    #[expect(clippy::disallowed_methods, reason = "a file of the user's, not of a store")]
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path).map_err(fail)?;
    write_lines(args, &mut BufWriter::new(file)).map_err(fail)?;
    Ok(())
}

fn write_lines(args: &GenerateArgs, out: &mut dyn Write) -> std::io::Result<()> {
    let mut prng = Prng::new(args.seed, 0);
    // Keys that were written lately are read, updated and deleted more often than others.
    let mut recent = [0i64; 1024];
    for line in 0..args.lines {
        let fresh = prng.below(2 * args.keys as u64 + 1) as i64 - args.keys;
        let known = recent[prng.below(1024.min(line + 1)) as usize];
        let key = if prng.below(2) == 0 { known } else { fresh };
        let value = prng.next_u64() as i64 >> prng.below(64);
        let choice = prng.below(100);
        if choice < args.ranges {
            let (low, high) = range(&mut prng, args.keys, key);
            writeln!(out, "r,{low},{high}")?;
        } else if choice < 4 * args.ranges {
            writeln!(out, "g,{key}")?;
        } else {
            recent[(line % 1024) as usize] = fresh;
            match prng.below(10) {
                0..7 => writeln!(out, "i,{fresh},{value}")?,
                7 => writeln!(out, "u,{known},{value}")?,
                8 => writeln!(out, "d,{known}")?,
                _ => writeln!(out, "d,{fresh}")?,
            }
        }
    }
    out.flush()
}

/// Mostly short ranges; sometimes one key, an empty range, a range without an end on one side, or
/// everything.
fn range(prng: &mut Prng, keys: i64, key: i64) -> (i64, i64) {
    let width = 1 + prng.below((keys as u64 / 500).max(1)) as i64;
    match prng.below(1000) {
        0..20 => (key, key),
        20..40 => (key, key - width),
        40..42 => (i64::MIN, key),
        42..44 => (key, i64::MAX),
        44 => (i64::MIN, i64::MAX),
        _ => (key, key + width),
    }
}
