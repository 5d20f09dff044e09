//! Traces of block caches: how they are recorded, and their file.
//!
//! A file is a sequence of calls, each [`CALL_BYTES`] bytes: what is asked for (1), the table's uid
//! (8), the block's number (4), bytes of the block's memory (4), little-endian. It is for races on
//! one machine, and has no checksum.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use weir::sim::{CacheCall, CacheObserver, CacheOp};

use crate::settings::Settings;

/// Bytes of a call in a file.
const CALL_BYTES: usize = 17;

const OPS: [CacheOp; 6] = [
    CacheOp::Get,
    CacheOp::Peek,
    CacheOp::Insert,
    CacheOp::HandOver,
    CacheOp::Erase,
    CacheOp::EraseTable,
];

fn encode(call: CacheCall) -> [u8; CALL_BYTES] {
    let mut bytes = [0; CALL_BYTES];
    let op = OPS.iter().position(|op| *op == call.op).unwrap_or(0);
    bytes[0] = u8::try_from(op).unwrap_or(0);
    bytes[1..9].copy_from_slice(&call.uid.to_le_bytes());
    bytes[9..13].copy_from_slice(&call.ordinal.to_le_bytes());
    bytes[13..].copy_from_slice(&call.bytes.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; CALL_BYTES]) -> Option<CacheCall> {
    let op = *OPS.get(usize::from(bytes[0]))?;
    let number = |at: usize| {
        let mut part = [0; 4];
        part.copy_from_slice(&bytes[at..at + 4]);
        u32::from_le_bytes(part)
    };
    let uid = u64::from(number(1)) | (u64::from(number(5)) << 32);
    Some(CacheCall { op, uid, ordinal: number(9), bytes: number(13) })
}

/// Reads a trace.
///
/// # Errors
/// What is wrong with the file, as a text for people.
#[expect(clippy::disallowed_methods, reason = "a file of the laboratory, not a store's")]
pub fn read(path: &Path) -> Result<Vec<CacheCall>, String> {
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let mut file = BufReader::new(File::open(path).map_err(|e| named(&e))?);
    let (mut calls, mut bytes) = (Vec::new(), [0; CALL_BYTES]);
    loop {
        match file.read_exact(&mut bytes) {
            Ok(()) => calls.push(decode(&bytes).ok_or_else(|| named(&"no trace of a cache"))?),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(calls),
            Err(e) => return Err(named(&e)),
        }
    }
}

/// What writes a trace; it ends after its last call.
///
/// # Errors
/// If the file cannot be made, as a text for people.
#[expect(clippy::disallowed_methods, reason = "a file of the laboratory, not a store's")]
pub fn observer(path: &Path, calls_max: u64) -> Result<CacheObserver, String> {
    let file = File::create(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let file = Mutex::new(BufWriter::with_capacity(1 << 20, file));
    let calls = AtomicU64::new(0);
    Ok(Arc::new(move |call| {
        if calls.fetch_add(1, Ordering::Relaxed) < calls_max {
            let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // A trace that the disk has no room for ends here.
            let _full = file.write_all(&encode(call));
        }
    }))
}

/// Where the stores of this process leave their traces.
struct Recording {
    folder: PathBuf,
    calls_max: u64,
    stores: AtomicU64,
}

static RECORDING: OnceLock<Recording> = OnceLock::new();

/// From now on every store with a block cache that the laboratory opens leaves a trace in `folder`,
/// of its first `calls_max` calls.
///
/// # Errors
/// If it is called twice.
pub fn record_into(folder: &Path, calls_max: u64) -> Result<(), String> {
    let recording = Recording { folder: folder.to_owned(), calls_max, stores: AtomicU64::new(0) };
    RECORDING.set(recording).map_err(|_| "traces are recorded already".to_owned())
}

/// The observer of the next store's cache; `None` unless traces are recorded.
///
/// # Errors
/// As [`observer`].
pub fn next_observer(settings: &Settings) -> Result<Option<CacheObserver>, String> {
    let Some(recording) = RECORDING.get() else { return Ok(None) };
    let number = recording.stores.fetch_add(1, Ordering::Relaxed);
    let name = format!("{number:02}-{}", name(settings));
    let path = recording.folder.join(file_name(&name, settings.store.block_cache_bytes));
    observer(&path, recording.calls_max).map(Some)
}

/// What tells the stores of an experiment apart.
fn name(settings: &Settings) -> String {
    let store = &settings.store;
    let words = format!("{:?}-{:?}-{:?}", store.policy, store.warm_up, store.compaction_buffer);
    words.to_lowercase()
}

/// The name of a trace's file: it ends with the size of the cache.
#[must_use]
pub fn file_name(name: &str, cache_bytes: u64) -> String {
    format!("{name}-{}mib.trace", cache_bytes >> 20)
}

/// The size of the cache of a trace, by its name.
#[must_use]
pub fn capacity_bytes(name: &str) -> Option<u64> {
    let mib: u64 = name.rsplit('-').next()?.strip_suffix("mib")?.parse().ok()?;
    Some(mib << 20)
}
