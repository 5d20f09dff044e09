//! RocksDB through the crate `rocksdb`, built from source with snappy.

use ::rocksdb::statistics::{StatsLevel, Ticker};
use ::rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, FlushOptions, Options, ReadOptions,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};
use std::path::Path;
use weir_bench::{Batch, Counters, Engine, EngineError, EngineKind, Result, Settings};

/// Which blocks RocksDB puts into its cache when it writes them (`prepopulate_block_cache`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Warms {
    /// None: its default.
    #[default]
    Nothing,
    /// Those of flushes.
    Flushes,
    /// Those of flushes and compactions.
    All,
}

/// How to open RocksDB.
pub struct Kind {
    pub warms: Warms,
    /// The block cache, in percent of the common setting.
    pub cache_percent: u64,
    /// Whether tables that are read much are merged into the next level: `READ_TRIGGERED`.
    pub read_triggered: bool,
}

/// Read-triggered compaction as its documentation advises to begin with, 0.01 reads a byte of a
/// table; looked at every ten seconds, where without writes it is looked at twice a day.
const READ_TRIGGERED: &str =
    "read_triggered_compaction_threshold=0.01;max_compaction_trigger_wakeup_seconds=10";

impl Default for Kind {
    fn default() -> Self {
        Self { warms: Warms::Nothing, cache_percent: 100, read_triggered: false }
    }
}

struct RocksDb {
    db: DB,
    /// With the statistics, if they were asked for.
    counting: Option<Options>,
    buffered: WriteOptions,
    synced: WriteOptions,
}

impl EngineKind for Kind {
    fn name(&self) -> &str {
        match (self.warms, self.cache_percent) {
            _ if self.read_triggered => "rocksdb-read-triggered",
            (Warms::Flushes, _) => "rocksdb-warm-flush",
            (Warms::All, _) => "rocksdb-warm-all",
            (Warms::Nothing, 100) => "rocksdb",
            (Warms::Nothing, _) => "rocksdb-larger",
        }
    }

    fn open(&self, dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
        let mut options = Options::default();
        options.create_if_missing(true);
        if !settings.engine_defaults {
            let mut table = BlockBasedOptions::default();
            // RocksDB advises HyperClock over LRU; 0 lets it estimate the entry size.
            let cache = Cache::new_hyper_clock_cache(
                to_usize(settings.cache_bytes / 100 * self.cache_percent),
                0,
            );
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
        if settings.counts_hits {
            options.enable_statistics();
            options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        }
        // The crate has no setter for it; the rest of the table's options stay as they are.
        let warms = match self.warms {
            Warms::Nothing => None,
            Warms::Flushes => Some("kFlushOnly"),
            Warms::All => Some("kFlushAndCompaction"),
        };
        if let Some(warms) = warms {
            let text = format!("block_based_table_factory={{prepopulate_block_cache={warms};}}");
            options = options.get_options_from_string(text).map_err(EngineError::new)?;
        }
        if self.read_triggered {
            options = options.get_options_from_string(READ_TRIGGERED).map_err(EngineError::new)?;
        }
        let db = DB::open(&options, dir).map_err(EngineError::new)?;
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        let counting = settings.counts_hits.then_some(options);
        Ok(Box::new(RocksDb { db, counting, buffered: WriteOptions::default(), synced }))
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
        let count = |ticker| self.counting.as_ref().map(|options| options.get_ticker_count(ticker));
        Counters {
            cache_hits: count(Ticker::BlockCacheDataHit),
            cache_misses: count(Ticker::BlockCacheDataMiss),
            ..Counters::default()
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}
