//! Does the memory budget hold? Loads data, then reads and writes at once with many open cursors,
//! and compares the process's anonymous memory with the budget and with the engine's own account.
//!
//! `cargo run --release -p weir-db-bench --example memory_budget -- [MiB of data] [seconds] [DIR]`
//! (2,048 MiB and 600 s by default). Exits with 1 if the peak is above 1.10 x budget + 32 MiB, or
//! if the account is off by more than 10 %. Linux only: it reads `/proc/self/status`.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the real clock and /proc")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BUDGET: u64 = 256 << 20;
const CURSORS: usize = 32;
const VALUE_BYTES: usize = 100;
const MIB: f64 = (1 << 20) as f64;

/// Anonymous memory of this process, in bytes.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|n| n.parse().ok());
    kib.unwrap_or(0) * 1024
}

fn mix(i: u64) -> u64 {
    let z = (i.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (i >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ (z >> 31)
}

fn key(i: u64, keys: u64) -> String {
    format!("{:016}", mix(i) % keys)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The account of the engine against what the process holds.
#[derive(Default)]
struct Account {
    samples: u64,
    samples_off: u64,
    /// The largest difference as a part of what was held, and what was accounted and held then.
    off: f64,
    memory: weir::MemoryMetrics,
    held: u64,
}

impl Account {
    fn compare(&mut self, memory: weir::MemoryMetrics, held: u64) {
        let off = (memory.total() as f64 - held as f64) / held.max(1) as f64;
        self.samples += 1;
        self.samples_off += u64::from(off.abs() > 0.10);
        if off.abs() > self.off.abs() {
            (self.off, self.memory, self.held) = (off, memory, held);
        }
    }

    fn print(&self) {
        println!(
            "largest difference of the account {:+.1} % ({:.1} MiB accounted, {:.1} MiB held); \
             above 10 % in {} of {} samples; at the largest: {:?}",
            100.0 * self.off,
            self.memory.total() as f64 / MIB,
            self.held as f64 / MIB,
            self.samples_off,
            self.samples,
            self.memory
        );
    }
}

/// Moves the cursor on by 200 entries.
fn scan_on(cursor: &mut weir::Cursor) -> Result<(), weir::Error> {
    for _ in 0..200 {
        cursor.next();
    }
    cursor.status()
}

/// Ends the other threads, however this one ends.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` with `start` and the numbers after it, until told to stop or it fails.
fn until_stopped(
    stop: &AtomicBool,
    start: u64,
    mut work: impl FnMut(u64) -> Result<(), weir::Error>,
) {
    for i in start.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = work(i) {
            eprintln!("{error}");
            return;
        }
    }
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mib: u64 = args.next().map_or(Ok(2048), |word| word.parse())?;
    let seconds: u64 = args.next().map_or(Ok(600), |word| word.parse())?;
    let own_dir = tempfile::tempdir()?;
    let dir = args.next().map_or(own_dir.path().join("db"), Into::into);
    let keys = (mib << 20) / (16 + VALUE_BYTES as u64);
    let db = weir::Db::builder(&dir).memory_budget(BUDGET).open()?;
    let before = anonymous_bytes();
    for i in 0..keys {
        db.put(format!("{i:016}"), [i as u8; VALUE_BYTES])?;
    }
    println!("loaded {keys} keys of 16 + {VALUE_BYTES} bytes");
    let stop = AtomicBool::new(false);
    let (reads, writes) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut peak = 0;
    let mut account = Account::default();
    std::thread::scope(|scope| -> Result<(), weir::Error> {
        let _stop = StopOnDrop(&stop);
        for seed in 0..2u64 {
            let (db, stop, reads, writes) = (&db, &stop, &reads, &writes);
            scope.spawn(move || {
                let mut buf = Vec::new();
                until_stopped(stop, seed << 40, |i| {
                    if seed == 0 {
                        writes.fetch_add(1, Ordering::Relaxed);
                        db.put(key(i, keys), [i as u8; VALUE_BYTES])
                    } else {
                        reads.fetch_add(1, Ordering::Relaxed);
                        db.get_into(key(i, keys), &mut buf).map(|_| ())
                    }
                });
            });
        }
        let mut cursors: Vec<weir::Cursor> = Vec::new();
        let started = Instant::now();
        let mut round = 0u64;
        while started.elapsed() < Duration::from_secs(seconds) {
            // Cursors stay open for 32 rounds and keep scanning: each holds the state it began
            // with.
            if cursors.len() == CURSORS {
                cursors.remove(0);
            }
            cursors.push(db.cursor());
            for (n, cursor) in cursors.iter_mut().enumerate() {
                if round == 0 || !cursor.valid() {
                    cursor.seek(key(round + n as u64, keys));
                }
                scan_on(cursor)?;
            }
            round += 1;
            let anonymous = anonymous_bytes() - before.min(anonymous_bytes());
            peak = peak.max(anonymous);
            account.compare(db.metrics().memory, anonymous);
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    })?;
    let limit = BUDGET as f64 * 1.10 + 32.0 * MIB;
    println!("{}", db.property("weir.stats").unwrap_or_default());
    println!(
        "{} reads, {} writes in {seconds} s with {CURSORS} cursors open",
        reads.load(Ordering::Relaxed),
        writes.load(Ordering::Relaxed)
    );
    println!(
        "peak of anonymous memory {:.1} MiB, limit {:.1} MiB (budget {:.0} MiB)",
        peak as f64 / MIB,
        limit / MIB,
        BUDGET as f64 / MIB
    );
    account.print();
    Ok(peak as f64 <= limit && account.off.abs() <= 0.10)
}
