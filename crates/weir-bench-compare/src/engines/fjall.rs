//! fjall through its own crate.

use super::wait_until_idle;
use ::fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
};
use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;
use weir_bench::{Batch, Counters, Engine, EngineError, EngineKind, Result, Settings};

/// How to open fjall.
pub struct Kind;

struct Fjall {
    db: Database,
    keyspace: Keyspace,
}

impl EngineKind for Kind {
    fn name(&self) -> &str {
        "fjall"
    }

    fn open(&self, dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
        let mut builder = Database::builder(dir);
        let mut options = KeyspaceCreateOptions::default();
        if !settings.engine_defaults {
            builder = builder
                .cache_size(settings.cache_bytes)
                .worker_threads(settings.background_threads);
            let bits = BloomConstructionPolicy::BitsPerKey(settings.bloom_bits as f32);
            let filter = match settings.bloom_bits {
                0 => FilterPolicy::disabled(),
                _ => FilterPolicy::all(FilterPolicyEntry::Bloom(bits)),
            };
            options = options
                .max_memtable_size(settings.write_buffer_bytes)
                .data_block_size_policy(BlockSizePolicy::all(settings.block_bytes))
                .data_block_compression_policy(CompressionPolicy::disabled())
                .filter_policy(filter);
        }
        let db = builder.open().map_err(EngineError::new)?;
        let keyspace = db.keyspace("default", || options).map_err(EngineError::new)?;
        Ok(Box::new(Fjall { db, keyspace }))
    }
}

impl Engine for Fjall {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value).map_err(EngineError::new)
    }

    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(key, value)?;
        self.db.persist(PersistMode::SyncData).map_err(EngineError::new)
    }

    fn put_batch(&self, batch: &Batch) -> Result<()> {
        let mut writes = self.db.batch();
        for (key, value) in batch.iter() {
            writes.insert(&self.keyspace, key, value);
        }
        writes.commit().map_err(EngineError::new)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key).map_err(EngineError::new)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.keyspace.get(key).map_err(EngineError::new)?;
        if let Some(value) = &found {
            visit(value);
        }
        Ok(found.is_some())
    }

    fn scan(&self, start: &[u8], count: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut seen = 0;
        if count == 0 {
            return Ok(0);
        }
        for entry in self.keyspace.range(start..) {
            let (key, value) = entry.into_inner().map_err(EngineError::new)?;
            visit(&key, &value);
            seen += 1;
            if seen == count {
                break;
            }
        }
        Ok(seen)
    }

    fn flush(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait().map_err(EngineError::new)
    }

    fn wait_idle(&self) -> Result<()> {
        let mut completed = None;
        wait_until_idle(|| {
            let now = self.db.compactions_completed();
            let unchanged = completed.replace(now) == Some(now);
            let none_active = self.db.outstanding_flushes() == 0
                && self.keyspace.sealed_memtable_count() == 0
                && self.db.active_compactions() == 0;
            unchanged && none_active
        });
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}
