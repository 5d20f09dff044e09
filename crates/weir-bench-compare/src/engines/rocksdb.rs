//! RocksDB through the crate `rocksdb`, built from source with snappy.

use ::rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, FlushOptions, Options, ReadOptions,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};
use std::path::Path;
use weir_bench::{Batch, Counters, Engine, EngineError, EngineKind, Result, Settings};

/// How to open RocksDB.
pub struct Kind;

struct RocksDb {
    db: DB,
    buffered: WriteOptions,
    synced: WriteOptions,
}

impl EngineKind for Kind {
    fn name(&self) -> &str {
        "rocksdb"
    }

    fn open(&self, dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
        let mut options = Options::default();
        options.create_if_missing(true);
        if !settings.engine_defaults {
            let mut table = BlockBasedOptions::default();
            // RocksDB advises HyperClock over LRU; 0 lets it estimate the entry size.
            let cache = Cache::new_hyper_clock_cache(to_usize(settings.cache_bytes), 0);
            table.set_block_cache(&cache);
            table.set_block_size(settings.block_bytes as usize);
            if settings.bloom_bits > 0 {
                table.set_bloom_filter(f64::from(settings.bloom_bits), false);
            }
            options.set_block_based_table_factory(&table);
            options.set_write_buffer_size(to_usize(settings.write_buffer_bytes));
            options.set_compression_type(DBCompressionType::None);
            let jobs = i32::try_from(settings.background_threads).map_err(EngineError::new)?;
            options.set_max_background_jobs(jobs);
        }
        let db = DB::open(&options, dir).map_err(EngineError::new)?;
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        Ok(Box::new(RocksDb { db, buffered: WriteOptions::default(), synced }))
    }
}

/// A size on the machine that the comparison runs on.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl Engine for RocksDb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put_opt(key, value, &self.buffered).map_err(EngineError::new)
    }

    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put_opt(key, value, &self.synced).map_err(EngineError::new)
    }

    fn put_batch(&self, batch: &Batch) -> Result<()> {
        let mut writes = WriteBatch::default();
        for (key, value) in batch.iter() {
            writes.put(key, value);
        }
        self.db.write_opt(writes, &self.buffered).map_err(EngineError::new)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.db.delete_opt(key, &self.buffered).map_err(EngineError::new)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.db.get_pinned(key).map_err(EngineError::new)?;
        if let Some(value) = &found {
            visit(value);
        }
        Ok(found.is_some())
    }

    fn scan(&self, start: &[u8], count: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut iterator = self.db.raw_iterator_opt(ReadOptions::default());
        iterator.seek(start);
        let mut seen = 0;
        while seen < count
            && let Some((key, value)) = iterator.item()
        {
            visit(key, value);
            seen += 1;
            iterator.next();
        }
        iterator.status().map_err(EngineError::new)?;
        Ok(seen)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush_opt(&FlushOptions::default()).map_err(EngineError::new)
    }

    fn wait_idle(&self) -> Result<()> {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(EngineError::new)
    }

    fn counters(&self) -> Counters {
        // Statistics cost RocksDB time; the bytes are taken from the process instead.
        Counters::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}
