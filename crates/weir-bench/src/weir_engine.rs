//! Weir as an engine to be measured.

use crate::engine::{Batch, Counters, Engine, EngineKind, Requests, Result, Settings};
use std::borrow::Cow;
use std::path::Path;
use weir::{Db, DbOptions, Durability, ErrorKind, FormatOptions, IoMetrics, Options, WriteBatch};

/// Memory beside write buffers and block cache: indexes, filters, and the buffers of jobs.
const REST_BYTES: u64 = 128 << 20;
/// The same where memory is limited.
const REST_BYTES_MIN: u64 = 8 << 20;

/// The empty keyspace that says that a benchmark made a store, which may be removed by the next.
const MARK: &str = "made by weir bench";

/// Opens Weir stores.
#[derive(Clone, Debug, Default)]
pub struct WeirKind {
    /// What results call it: variants beside the plain one are told apart by it.
    pub variant: Option<Cow<'static, str>>,
    /// Options of the tree; the common settings replace those that they are about.
    pub tree: Options,
    /// Memtables that may wait for their flush; unset: one, as in RocksDB's and LevelDB's defaults.
    pub immutables_max: Option<usize>,
    /// What a write must survive before it counts as done, but for those of `fillsync`.
    pub durability: Durability,
    /// Bytes of the file that the store is in; unset: it is in a directory.
    pub slots: Option<u64>,
}

struct Weir {
    db: Db,
    durability: Durability,
}

impl WeirKind {
    /// Makes a file a store, if it is none yet.
    fn format(&self, path: &Path) -> Result<()> {
        let Some(bytes) = self.slots else { return Ok(()) };
        let looked = Db::builder(path).create_if_missing(false).read_only(true).open();
        let none = [ErrorKind::NotFound, ErrorKind::InvalidArgument];
        if looked.is_err_and(|error| none.contains(&error.kind())) {
            let mut options = FormatOptions::new();
            (options.size, options.force) = (Some(bytes), true);
            weir::format(path, &options)?;
        }
        Ok(())
    }

    /// The common settings as Weir's; `None`: its defaults. Its one memory number is the cache, two
    /// write buffers and `REST_BYTES`, which the peers do not count.
    fn options(&self, settings: &Settings) -> Option<(DbOptions, Options)> {
        if settings.engine_defaults {
            return None;
        }
        let tree = self
            .tree
            .clone()
            .write_buffer_bytes(settings.write_buffer_bytes)
            .immutables_max(self.immutables_max.unwrap_or(1))
            .block_bytes(settings.block_bytes)
            .bloom_bits(vec![settings.bloom_bits as f32]);
        let named =
            settings.cache_bytes.saturating_add(settings.write_buffer_bytes.saturating_mul(2));
        let budget = named.saturating_add(REST_BYTES);
        // As its user would: what is read ahead for compactions takes a part of the budget.
        let budget = settings.memory_bytes.map_or(budget, |bytes| {
            budget.min(bytes / 4 * 3).max(named.saturating_add(REST_BYTES_MIN))
        });
        let store = DbOptions::default()
            .memory_budget(budget)
            .block_cache_bytes(Some(settings.cache_bytes))
            .background_threads(settings.background_threads);
        Some((store, tree))
    }

    /// Checks what the engine will be given against its ranges.
    ///
    /// # Errors
    /// `InvalidArgument`, which names the option of the engine, its value and its range.
    pub fn validate(&self, settings: &Settings) -> weir::Result<()> {
        let Some((store, tree)) = self.options(settings) else { return Ok(()) };
        tree.validate()?;
        store.validate()
    }

    /// The options of the store in `dir` if a benchmark made it. Looks at it without a change.
    ///
    /// # Errors
    /// There is no store, or it cannot be opened.
    pub fn made(dir: &Path) -> weir::Result<Option<Options>> {
        let db = Db::builder(dir).create_if_missing(false).read_only(true).open()?;
        let options = is_marked(&db).then(|| db.default_keyspace().options());
        db.close()?;
        Ok(options)
    }
}

fn is_marked(db: &Db) -> bool {
    db.keyspaces().iter().any(|name| name == MARK)
}

impl EngineKind for WeirKind {
    fn name(&self) -> &str {
        self.variant.as_deref().unwrap_or("weir")
    }

    fn open(&self, dir: &Path, settings: &Settings) -> Result<Box<dyn Engine>> {
        self.format(dir)?;
        let db = match self.options(settings) {
            None => Db::open(dir)?,
            Some((store, tree)) => {
                let db = Db::builder(dir).options(store).default_options(tree.clone()).open()?;
                // A store that is there is measured with these settings, too.
                db.default_keyspace().set_options(tree)?;
                db
            }
        };
        if !is_marked(&db) {
            // What its memtable may take is taken from the cache: next to nothing.
            let options = Options::default().write_buffer_bytes(4 << 10);
            db.create_keyspace(MARK, options)?;
        }
        Ok(Box::new(Weir { db, durability: self.durability }))
    }

    fn destroy(&self, dir: &Path) -> Result<()> {
        // A file stays where it was destroyed, and is no store then.
        let is_none = |kind| match self.slots {
            Some(_) => matches!(kind, ErrorKind::NotFound | ErrorKind::InvalidArgument),
            None => kind == ErrorKind::NotFound,
        };
        match Db::destroy(dir) {
            Err(error) if !is_none(error.kind()) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Engine for Weir {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_with(key, value, self.durability)?)
    }

    fn put_sync(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_with(key, value, Durability::Sync)?)
    }

    fn put_batch(&self, batch: &Batch) -> Result<()> {
        let mut writes = WriteBatch::new();
        for (key, value) in batch.iter() {
            writes.put(self.db.default_keyspace(), key, value);
        }
        Ok(self.db.write(writes, self.durability)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete_with(key, self.durability)?)
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get(key)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn scan(&self, start: &[u8], count: u64, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut cursor = self.db.cursor();
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
        Ok(self.db.flush()?)
    }

    fn wait_idle(&self) -> Result<()> {
        Ok(self.db.wait_idle()?)
    }

    fn counters(&self) -> Counters {
        let metrics = self.db.metrics();
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
            io_by_cause: metrics
                .io
                .named()
                .into_iter()
                .map(|(cause, io)| (cause.to_owned(), requests(&io)))
                .collect(),
            cache_hits: Some(metrics.cache_foreground.hits),
            cache_misses: Some(metrics.cache_foreground.misses),
            of_reads: vec![
                ("blocks handed over", metrics.blocks_handed_over),
                ("handed over, gone unread", metrics.blocks_handed_over_unread),
                ("blocks into free room", metrics.blocks_unasked),
                ("gets answered by lists", metrics.gets_of_lists),
                ("tables trimmed", metrics.tables_trimmed),
                ("sentinels built", metrics.sentinels_built),
                ("hot ranges merged down", metrics.hot_ranges_merged_down),
                (
                    "runs spared by sentinels",
                    metrics.keyspaces.iter().map(|k| k.sentinel_runs_spared).sum(),
                ),
            ],
            disk_bytes: self.db.slot_space().map(|space| {
                let slots = (space.slots - space.free) * space.slot_bytes;
                let segments = space.log_segments - space.log_segments_free;
                slots + segments * space.log_segment_bytes + 2 * space.version_log_bytes
            }),
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}

fn requests(io: &IoMetrics) -> Requests {
    Requests {
        reads: io.reads,
        bytes_read: io.bytes_read,
        writes: io.writes,
        bytes_written: io.bytes_written,
        syncs: io.syncs,
    }
}
