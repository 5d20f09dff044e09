//! Weir as an engine to be measured.

use crate::engine::{Batch, Counters, Engine, EngineError, EngineKind, Result, Settings};
use std::path::Path;
use weir::{Db, Durability, ErrorKind, Options, WriteBatch};

/// Memory beside write buffers and block cache: indexes, filters, and the buffers of jobs.
const REST_BYTES: u64 = 128 << 20;

/// Opens Weir stores.
#[derive(Clone, Debug, Default)]
pub struct WeirKind {
    /// Options of the tree; the common settings replace those that they are about.
    pub tree: Options,
}

struct Weir(Db);

impl From<weir::Error> for EngineError {
    fn from(error: weir::Error) -> Self {
        Self::new(error)
    }
}

impl EngineKind for WeirKind {
    fn name(&self) -> &'static str {
        "weir"
    }

    /// The common settings as Weir's. Its one memory number is the cache, two write buffers and
    /// `REST_BYTES`, which the peers do not count.
    fn open(&self, dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
        let mut builder = Db::builder(dir);
        if !settings.engine_defaults {
            // One memtable waits beside the active one, as in RocksDB's and LevelDB's defaults.
            let options = Options {
                write_buffer_bytes: settings.write_buffer_bytes,
                immutables_max: 1,
                block_bytes: settings.block_bytes,
                bloom_bits: vec![settings.bloom_bits as f32],
                ..self.tree.clone()
            };
            let budget = settings
                .cache_bytes
                .saturating_add(settings.write_buffer_bytes.saturating_mul(2))
                .saturating_add(REST_BYTES);
            builder = builder
                .memory_budget(budget)
                .block_cache_bytes(settings.cache_bytes)
                .background_threads(settings.background_threads)
                .default_options(options);
        }
        Ok(Box::new(Weir(builder.open()?)))
    }

    fn destroy(&self, dir: &Path) -> Result<()> {
        match Db::destroy(dir) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Engine for Weir {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put_with(key, value, Durability::Sync)?)
    }

    fn put_batch(&self, batch: &Batch) -> Result<()> {
        let mut writes = WriteBatch::new();
        for (key, value) in batch.iter() {
            writes.put(self.0.default_keyspace(), key, value);
        }
        Ok(self.0.write(writes, Durability::Buffered)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.0.delete(key)?)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.0.get(key)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn scan(&self, start: &[u8], count: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut cursor = self.0.cursor();
        let mut seen = 0;
        cursor.seek(start);
        while cursor.valid() && seen < count {
            visit(cursor.key(), cursor.value());
            seen += 1;
            if seen < count {
                cursor.next();
            }
        }
        cursor.status()?;
        Ok(seen)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.0.flush()?)
    }

    fn wait_idle(&self) -> Result<()> {
        Ok(self.0.wait_idle()?)
    }

    fn counters(&self) -> Counters {
        let metrics = self.0.metrics();
        let written = &metrics.bytes_written;
        let by_cause = [
            ("log", written.log),
            ("flush", written.flush),
            ("compaction", written.compaction),
            ("versions", written.versions),
        ];
        Counters {
            bytes_written: Some(written.total()),
            written_by_cause: by_cause.iter().map(|&(name, n)| (name.to_owned(), n)).collect(),
            cache_hits: Some(metrics.cache_foreground.hits),
            cache_misses: Some(metrics.cache_foreground.misses),
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}
