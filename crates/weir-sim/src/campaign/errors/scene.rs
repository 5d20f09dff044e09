//! One run of a scenario: the store, the device that fails, and the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir::sim::{Faults, FaultyDir};
use weir::{
    Db, DbOptions, DebugDbOptions, DebugOptions, Durability, ErrorKind, Keyspace, LeveledOptions,
    Options, WriteBatch,
};

use super::beside::{Beside, Known};
use super::caught::{Caught, Outcome, caught, check_reason, survived};
use crate::history::{Content, read_all};
use crate::ledger::{Entry, Item, Ledger};
use crate::op::{Val, key_bytes};
use crate::world::Disk;

/// The options of the stores.
pub(super) fn options() -> (DbOptions, Options) {
    let db = DbOptions::default()
        .memory_budget(1 << 20)
        .block_cache_bytes(Some(0))
        .background_threads(1)
        .log_segment_bytes(4 << 10)
        .log_area_bytes(128 << 10)
        .debug(DebugDbOptions::default().version_log_bytes(4 << 10).verify_outputs(true));
    let ks = Options::default()
        .write_buffer_bytes(4 << 10)
        .debug(DebugOptions::default().write_buffer_entries(30))
        .block_bytes(512)
        .table_bytes(2 << 10)
        .compaction(levels(2));
    (db, ks)
}

/// The levels of the keyspaces, each `ratio` times larger than the one above.
pub(super) fn levels(ratio: u32) -> LeveledOptions {
    LeveledOptions::default().base_level_bytes(4 << 10).level_ratio(ratio).l0_trigger(2)
}

/// A run: the store, the device and the ledger.
pub(super) struct Scene {
    pub(super) disk: Disk,
    pub(super) dir: Arc<FaultyDir>,
    pub(super) ledger: Ledger,
    pub(super) db: Option<Db>,
    pub(super) values: u32,
    /// Set when a call said that the store is poisoned.
    pub(super) poisoned: bool,
    /// `Db::sync` failed: nothing may be acknowledged from then on (H43).
    pub(super) sync_failed: bool,
    pub(super) read_only: bool,
    /// The disk is full: `NoSpace` needs no fault.
    pub(super) full: bool,
    /// What other actors do beside the action, if they do.
    pub(super) beside: Option<Arc<Beside>>,
    /// The call that a panic came out of.
    pub(super) panicked_in: Option<&'static str>,
    /// Callbacks that got a success, and a failure.
    pub(super) callbacks: (u64, u64),
    /// What the last write said that was refused on a full disk.
    pub(super) refusal: String,
}

impl Scene {
    /// A closed store on this disk.
    pub(super) fn new(disk: Disk, ledger: Ledger) -> Self {
        let dir = Arc::new(FaultyDir::over_disk(&disk.sim));
        let values = 1000 * ledger.entries.len() as u32;
        Self {
            disk,
            dir,
            ledger,
            db: None,
            values,
            poisoned: false,
            sync_failed: false,
            read_only: false,
            full: false,
            beside: None,
            panicked_in: None,
            callbacks: (0, 0),
            refusal: String::new(),
        }
    }

    /// The faults of the device.
    pub(super) fn faults(&self) -> Faults {
        self.dir.faults()
    }

    /// Opens the store.
    pub(super) fn open(&mut self) -> weir::Result<()> {
        let (mut db, ks) = options();
        db.read_only = self.read_only;
        let dir = Arc::clone(&self.dir) as Arc<dyn weir::sim::Dir>;
        let builder = self.disk.builder_in(dir, 7);
        let opened = builder.options(db).default_options(ks).open()?;
        self.ledger.spaces.insert("default");
        self.db = Some(opened);
        Ok(())
    }

    /// The open store.
    pub(super) fn db(&self) -> Outcome<Db> {
        self.db.clone().ok_or_else(|| "the store is not open".to_owned())
    }

    /// A call that may fail because of the fault, but only as such a call may.
    pub(super) fn tolerate<T>(
        &mut self,
        what: &'static str,
        result: Caught<T>,
    ) -> Outcome<Option<T>> {
        match result {
            Caught::Panic => {
                self.panicked_in = Some(what);
                Ok(None)
            }
            Caught::Returned(Ok(value)) => Ok(Some(value)),
            Caught::Returned(Err(error)) => {
                self.poisoned |= error.kind() == ErrorKind::Poisoned;
                check_reason(self.faults().panicked().len(), &error)?;
                if self.full && error.kind() == ErrorKind::NoSpace {
                    self.refusal = error.to_string();
                    return Ok(None);
                }
                if self.faults().injected_total() == 0 {
                    return Err(format!("{what} fails without a fault: {error}"));
                }
                match error.kind() {
                    ErrorKind::Io
                    | ErrorKind::NoSpace
                    | ErrorKind::Poisoned
                    | ErrorKind::NotFound
                    | ErrorKind::Locked
                    | ErrorKind::Conflict
                    | ErrorKind::Closed => Ok(None),
                    _ => Err(format!("{what} gives a misleading error: {error}")),
                }
            }
        }
    }

    /// Writes a batch; whether it was acknowledged.
    pub(super) fn write(&mut self, items: Vec<Item>, durability: Durability) -> Outcome<bool> {
        let db = self.db()?;
        let mut batch = WriteBatch::new();
        let mut handles: BTreeMap<&str, Keyspace> = BTreeMap::new();
        for (space, key, value) in &items {
            if !handles.contains_key(space) {
                let handle = if *space == "default" {
                    Ok(db.default_keyspace().clone())
                } else {
                    db.open_keyspace(space)
                };
                handles.insert(space, handle.map_err(|e| format!("open {space}: {e}"))?);
            }
            match value {
                Some(v) => batch.put(&handles[space], key, v),
                None => batch.delete(&handles[space], key),
            }
        }
        let refused_before = self.poisoned || self.sync_failed;
        let result = caught(|| db.write(batch, durability));
        let acknowledged = result.is_ok();
        if acknowledged && refused_before {
            return Err("a write was acknowledged after a failed log sync".into());
        }
        self.ledger.entries.push(Entry {
            items,
            acknowledged,
            durable: acknowledged && durability == Durability::Sync,
            unlogged: durability == Durability::None,
            deferred: durability == Durability::Deferred,
            void: durability != Durability::Sync,
        });
        self.tolerate("write", result)?;
        Ok(acknowledged)
    }

    /// Puts and deletes that were not written before.
    pub(super) fn some_items(
        &mut self,
        count: u32,
        len: u32,
        spaces: &[&'static str],
    ) -> Vec<Item> {
        let mut items = Vec::new();
        for _ in 0..count {
            self.values += 1;
            let n = self.values;
            let key = key_bytes(n.wrapping_mul(2_654_435_761) >> 8 & 63);
            let value = (!n.is_multiple_of(7)).then(|| Val { id: n, len: 8 + n % len }.bytes());
            items.push((spaces[n as usize % spaces.len()], key, value));
        }
        items
    }

    /// Writes so many batches.
    pub(super) fn writes(&mut self, count: u32, durability: Durability) -> Outcome {
        for n in 0..count {
            let batch = if n % 5 == 0 { 3 } else { 1 };
            let items = self.some_items(batch, 300, &["default", "second"]);
            self.write(items, durability)?;
        }
        Ok(())
    }

    /// The store as far as it can be read. An error of a faulty device is tolerated.
    pub(super) fn look(&mut self) -> Outcome {
        let db = self.db()?;
        let known = self.known(false);
        let Some(read) = survived(|| read_all(&db)) else {
            self.panicked_in = Some("reading");
            return Ok(());
        };
        match read {
            Ok(content) => self.check_live(&known, content),
            Err(_) if self.faults().injected_total() > 0 => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// Closes the store, if it is open.
    pub(super) fn close(&mut self) -> Outcome {
        if let Some(db) = self.db.take() {
            let result = caught(|| db.close());
            if self.tolerate("close", result)?.is_some() {
                self.ledger.closed();
            }
        }
        Ok(())
    }

    /// The call that a panic came out of.
    pub(super) fn came_out_of(&self) -> Option<&'static str> {
        self.panicked_in.or_else(|| self.beside.as_ref()?.came_out_of())
    }

    /// The acknowledgements so far of the actors beside the action.
    pub(super) fn known(&self, power_loss: bool) -> Known {
        self.beside.as_ref().map_or_else(Known::default, |beside| beside.known(power_loss))
    }

    /// Compares what an open store showed after `known`.
    pub(super) fn check_live(&self, known: &Known, mut content: Content) -> Outcome {
        if let Some(beside) = &self.beside {
            beside.check(known, &mut content)?;
        }
        self.ledger.check_live(&content)
    }
}
