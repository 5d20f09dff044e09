//! LMDB through the crate `heed`: a B+tree in a mapped file, which is compared only if it is named.
//!
//! It has no log, no cache and no background threads: of the equal settings none means anything to
//! it. A write is a transaction of its own, handed to the operating system and not synced, which a
//! killed process does not lose either; a batch is one transaction.

use ::heed::types::Bytes;
use ::heed::{Database, Env, EnvFlags, EnvOpenOptions};
use std::path::Path;
use weir_bench::{Batch, Counters, Engine, EngineError, EngineKind, Result, Settings};

/// Address space of a store: more than any comparison fills.
const MAP_BYTES: usize = 256 << 30;

/// The library's version.
pub fn version() -> String {
    let version = ::heed::lmdb_version();
    format!("{}.{}.{}", version.major, version.minor, version.patch)
}

/// How to open LMDB.
pub struct Kind;

struct Lmdb {
    env: Env,
    entries: Database<Bytes, Bytes>,
}

impl EngineKind for Kind {
    fn name(&self) -> &str {
        "lmdb"
    }

    fn open(&self, dir: &Path, _settings: &Settings) -> Result<Box<dyn Engine>> {
        std::fs::create_dir_all(dir)?;
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        // SAFETY: the store is written without syncs, so a power cut may break it, as the module
        // says; the file is opened by nobody else, once at a time, and nobody changes it under the
        // map.
        let env = unsafe {
            options.flags(EnvFlags::NO_SYNC);
            options.open(dir).map_err(EngineError::new)?
        };
        let mut write = env.write_txn().map_err(EngineError::new)?;
        let entries = env.create_database(&mut write, None).map_err(EngineError::new)?;
        write.commit().map_err(EngineError::new)?;
        Ok(Box::new(Lmdb { env, entries }))
    }
}

impl Engine for Lmdb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut write = self.env.write_txn().map_err(EngineError::new)?;
        self.entries.put(&mut write, key, value).map_err(EngineError::new)?;
        write.commit().map_err(EngineError::new)
    }

    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(key, value)?;
        self.env.force_sync().map_err(EngineError::new)
    }

    fn put_batch(&self, batch: &Batch) -> Result<()> {
        let mut write = self.env.write_txn().map_err(EngineError::new)?;
        for (key, value) in batch.iter() {
            self.entries.put(&mut write, key, value).map_err(EngineError::new)?;
        }
        write.commit().map_err(EngineError::new)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut write = self.env.write_txn().map_err(EngineError::new)?;
        self.entries.delete(&mut write, key).map_err(EngineError::new)?;
        write.commit().map_err(EngineError::new)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let read = self.env.read_txn().map_err(EngineError::new)?;
        let found = self.entries.get(&read, key).map_err(EngineError::new)?;
        if let Some(value) = found {
            visit(value);
        }
        Ok(found.is_some())
    }

    fn scan(&self, start: &[u8], count: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let read = self.env.read_txn().map_err(EngineError::new)?;
        // It has no empty keys, and takes none as a bound.
        let start = if start.is_empty() { &[0][..] } else { start };
        let range = (std::ops::Bound::Included(start), std::ops::Bound::Unbounded);
        let mut entries = self.entries.range(&read, &range).map_err(EngineError::new)?;
        let mut seen = 0;
        while seen < count {
            let Some(entry) = entries.next() else { break };
            let (key, value) = entry.map_err(EngineError::new)?;
            visit(key, value);
            seen += 1;
        }
        Ok(seen)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { env, .. } = *self;
        env.prepare_for_closing().wait();
        Ok(())
    }
}
