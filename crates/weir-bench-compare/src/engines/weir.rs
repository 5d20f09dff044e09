//! Weir itself, through its public interface like every other user.

use ::weir::{BytesWritten, Db, DbOptions, Durability, Options, WriteBatch};
use std::path::Path;
use weir_bench::{Batch, Counters, Engine, EngineError, EngineKind, Result, Settings};

/// How to open Weir.
pub struct Kind;

struct Weir {
    db: Db,
}

/// Memory beside write buffers and block cache: indexes, filters, and the buffers of jobs.
const REST_BYTES: u64 = 128 << 20;

impl EngineKind for Kind {
    fn name(&self) -> &str {
        super::OWN
    }

    fn open(&self, dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
        let mut builder = Db::builder(dir);
        if !settings.engine_defaults {
            // One memtable waits beside the active one, as in RocksDB's and LevelDB's defaults.
            let options = Options {
                write_buffer_bytes: settings.write_buffer_bytes,
                immutables_max: 1,
                block_bytes: settings.block_bytes,
                bloom_bits: vec![settings.bloom_bits as f32],
                ..Options::default()
            };
            let store = DbOptions {
                memory_budget: settings.cache_bytes + 2 * settings.write_buffer_bytes + REST_BYTES,
                block_cache_bytes: Some(settings.cache_bytes),
                background_threads: settings.background_threads,
                ..DbOptions::default()
            };
            builder = builder.options(store).default_options(options);
        }
        let db = builder.open().map_err(EngineError::new)?;
        Ok(Box::new(Weir { db }))
    }
}

impl Engine for Weir {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put(key, value).map_err(EngineError::new)
    }

    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put_with(key, value, Durability::Sync).map_err(EngineError::new)
    }

    fn put_batch(&self, batch: &Batch) -> Result<()> {
        let keyspace = self.db.default_keyspace();
        let mut writes = WriteBatch::new();
        for (key, value) in batch.iter() {
            writes.put(keyspace, key, value);
        }
        self.db.write(writes, Durability::Buffered).map_err(EngineError::new)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.db.delete(key).map_err(EngineError::new)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.db.get(key).map_err(EngineError::new)?;
        if let Some(value) = &found {
            visit(value);
        }
        Ok(found.is_some())
    }

    fn scan(&self, start: &[u8], count: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut cursor = self.db.cursor();
        cursor.seek(start);
        let mut seen = 0;
        while seen < count && cursor.valid() {
            visit(cursor.key(), cursor.value());
            seen += 1;
            cursor.next();
        }
        cursor.status().map_err(EngineError::new)?;
        Ok(seen)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush().map_err(EngineError::new)
    }

    fn wait_idle(&self) -> Result<()> {
        self.db.wait_idle().map_err(EngineError::new)
    }

    fn counters(&self) -> Counters {
        let metrics = self.db.metrics();
        let BytesWritten { log, flush, compaction, versions, .. } = metrics.bytes_written;
        let by_cause = [("log", log), ("flush", flush), ("compaction", compaction)];
        let by_cause = by_cause.into_iter().chain([("versions", versions)]);
        Counters {
            bytes_written: Some(metrics.bytes_written.total()),
            written_by_cause: by_cause.map(|(cause, bytes)| (cause.to_owned(), bytes)).collect(),
            cache_hits: Some(metrics.cache_foreground.hits),
            cache_misses: Some(metrics.cache_foreground.misses),
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.close().map_err(EngineError::new)
    }
}
