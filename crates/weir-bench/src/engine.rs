//! What a store must offer to be measured, and how one is opened.
//!
//! An adapter does nothing but translate: no retries, no caching, no batching of its own. Values
//! and entries are shown to a visitor in place, so that no engine pays for a copy that it would not
//! otherwise make.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// The result of an engine's operation.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// An engine's error as a sentence for people: a benchmark can only stop and show it.
#[derive(Clone, Debug)]
pub struct EngineError {
    message: String,
    weir: Option<weir::Error>,
}

impl EngineError {
    /// An error that reads `message`.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), weir: None }
    }

    /// Weir's own error, if it was that.
    #[must_use]
    pub fn weir(&self) -> Option<&weir::Error> {
        self.weir.as_ref()
    }
}

impl From<weir::Error> for EngineError {
    fn from(error: weir::Error) -> Self {
        Self { message: error.to_string(), weir: Some(error) }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for EngineError {}

impl From<std::io::Error> for EngineError {
    fn from(error: std::io::Error) -> Self {
        Self::new(error)
    }
}

/// Settings that every engine is given alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Leave every setting of the engine at its own default; the fields below are then ignored.
    pub engine_defaults: bool,
    /// Bytes of one write buffer (memtable).
    pub write_buffer_bytes: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Bytes of memory that the process may have, page cache included, where that is limited.
    pub memory_bytes: Option<u64>,
    /// Bytes of a data block.
    pub block_bytes: u32,
    /// Bits per key of the Bloom filter; 0 means none.
    pub bloom_bits: u32,
    /// Threads for flushes and compactions.
    pub background_threads: usize,
    /// Let an engine count hits of its cache that does so only if asked, which costs it time.
    pub counts_hits: bool,
}

impl Default for Settings {
    /// The comparison's equal settings: 64 MiB write buffer, 256 MiB cache, 4 KiB blocks, 10 Bloom
    /// bits, 2 background threads; no compression and a write-ahead log in any case.
    fn default() -> Self {
        Self {
            engine_defaults: false,
            write_buffer_bytes: 64 << 20,
            cache_bytes: 256 << 20,
            memory_bytes: None,
            block_bytes: 4096,
            bloom_bits: 10,
            background_threads: 2,
            counts_hits: false,
        }
    }
}

/// Requests of an engine to its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Reads.
    pub reads: u64,
    /// Bytes that they gave.
    pub bytes_read: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs of files.
    pub syncs: u64,
}

impl Requests {
    /// What came since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            writes: self.writes.saturating_sub(earlier.writes),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            syncs: self.syncs.saturating_sub(earlier.syncs),
        }
    }
}

/// What an engine says about itself, counted since it was opened. `None`: it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that the engine wrote to its files, for every cause together.
    pub bytes_written: Option<u64>,
    /// The same, by cause, such as `log`, `flush`, `compaction`.
    pub written_by_cause: Vec<(String, u64)>,
    /// Requests to its files, by cause.
    pub io_by_cause: Vec<(String, Requests)>,
    /// Block reads by users that the cache answered.
    pub cache_hits: Option<u64>,
    /// Block reads by users that it did not.
    pub cache_misses: Option<u64>,
    /// What else an engine did for reads, by name, such as `blocks handed over`.
    pub of_reads: Vec<(&'static str, u64)>,
    /// Bytes that the store takes of its file or device now, if it is in no directory.
    pub disk_bytes: Option<u64>,
}

/// Several writes that are applied as one.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Batch {
    /// Adds one put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// The puts, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, end)| {
            let pair = (&self.bytes[start..key_end], &self.bytes[key_end..end]);
            start = end;
            pair
        })
    }

    /// Number of puts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes every put and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// A store that is open. Every method may be called by several threads at once.
///
/// A write that is not `_sync` is acknowledged when it would survive the kill of the process: it is
/// in the write-ahead log, in the operating system's hands.
pub trait Engine: Send + Sync {
    /// Stores `value` under `key`.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Stores `value` under `key` and returns when it would survive a power loss.
    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Stores every put of `batch` as one write.
    fn put_batch(&self, batch: &Batch) -> Result<()>;

    /// Deletes `key`, whether it exists or not.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Shows the value of `key` to `visit`, in place where the engine can; false if there is none.
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Shows up to `count` entries from the first key at or after `start` on, in key order, with
    /// their values; returns how many there were.
    fn scan(&self, start: &[u8], count: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Writes what is in memory to tables and waits for it.
    fn flush(&self) -> Result<()>;

    /// Waits until no flush or compaction is due: the writes are drained.
    fn wait_idle(&self) -> Result<()>;

    /// What the engine counted since it was opened.
    fn counters(&self) -> Counters;

    /// Closes the store; everything acknowledged can be read after the next open.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A way to open one kind of store.
pub trait EngineKind: Send + Sync {
    /// The name shown in results, such as `weir` or `rocksdb`.
    fn name(&self) -> &str;

    /// Opens the store in `dir`, creating it if there is none.
    fn open(&self, dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>>;

    /// Removes a store from `dir` whatever its state; `dir` may not exist. Default: removes the
    /// directory.
    fn destroy(&self, dir: &Path) -> Result<()> {
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(EngineError::new(format!("cannot remove {}: {error}", dir.display())))
            }
            _ => Ok(()),
        }
    }
}
