//! The public batch and the handle of a commit.

use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::key::Kind;
use crate::base::limits;
use crate::db::closing::Handle;
use crate::db::keyspace::Keyspace;
use crate::options::Durability;
use crate::write::batch::Records;
use crate::write::queue::{Committed, OwedCallback, PendingBatch, Ticket};

/// Writes that happen together or not at all, also over several keyspaces of one store.
///
/// The records are kept in the byte form of `docs/format/batch.md`. A batch is applied in order: a
/// later record for the same key wins.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = weir::Db::open(dir.path().join("db"))?;
/// let users = db.keyspace("users")?;
/// let names = db.keyspace("names")?;
/// let mut batch = weir::WriteBatch::new();
/// batch.put(&users, b"7", b"ada");
/// batch.put(&names, b"ada", b"7");
/// db.write(batch, weir::Durability::Sync)?;
/// # Ok::<(), weir::Error>(())
/// ```
#[derive(Default)]
pub struct WriteBatch {
    pub(crate) pending: PendingBatch,
    pub(crate) handle: Option<Arc<Handle>>,
    /// The first thing wrong with a record; reported when the batch is written.
    pub(crate) invalid: Option<Error>,
}

/// One record of a [`WriteBatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchRecord<'a> {
    /// The key gets this value.
    Put {
        /// Name of the keyspace.
        keyspace: &'a str,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// The key loses its value.
    Delete {
        /// Name of the keyspace.
        keyspace: &'a str,
        /// The key.
        key: &'a [u8],
    },
}

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put. A key or value over its limit is reported when the batch is written, and nothing
    /// of the batch is written then.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(keyspace, Kind::Put, key.as_ref(), value.as_ref());
    }

    /// Adds a delete.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.push(keyspace, Kind::Delete, key.as_ref(), &[]);
    }

    fn push(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
        if self.invalid.is_some() {
            return;
        }
        let same = self.handle.as_ref().is_none_or(|h| Arc::ptr_eq(h, &keyspace.handle));
        let checked = if same {
            keyspace.handle.engine.check_sizes(key, value)
        } else {
            Err(Error::invalid(
                "the batch holds records for another store; use one batch per store",
            ))
        };
        let room = u64::from(self.pending.count) < u64::from(u32::MAX);
        match checked {
            Ok(()) if room && self.pending.bytes.len() < limits::VALUE_BYTES_MAX * 2 => {
                self.handle.get_or_insert_with(|| Arc::clone(&keyspace.handle));
                self.pending.push(&keyspace.tree, kind, key, value);
            }
            Ok(()) => {
                self.invalid = Some(Error::invalid(
                    "the batch is larger than 2 GiB; split it into smaller ones",
                ));
            }
            Err(error) => self.invalid = Some(error),
        }
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.count as usize
    }

    /// Whether it holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.count == 0
    }

    /// Removes all records, keeping the memory.
    pub fn clear(&mut self) {
        self.pending.clear();
        self.handle = None;
        self.invalid = None;
    }

    /// Size of the encoded records, in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.pending.bytes.len()
    }

    /// The encoded records (`docs/format/batch.md`).
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.pending.bytes
    }

    /// The records in order.
    pub fn iter(&self) -> impl Iterator<Item = BatchRecord<'_>> {
        Records::new(&self.pending.bytes).map(|record| {
            let tree = self.pending.trees.iter().find(|t| t.id == record.keyspace);
            let keyspace = tree.map_or("", |t| t.name.as_str());
            match record.kind {
                Kind::Put => BatchRecord::Put { keyspace, key: record.key, value: record.value },
                Kind::Delete => BatchRecord::Delete { keyspace, key: record.key },
            }
        })
    }
}

/// A batch on its way: wait for it, ask whether it is done, or be called back.
///
/// With [`Durability::Sync`] it is done when the log is on stable storage. The store brings that
/// about by itself, also for a handle that was dropped.
#[must_use = "a commit that nobody waits for may fail unseen"]
pub struct Commit {
    pub(crate) handle: Arc<Handle>,
    pub(crate) ticket: Arc<Ticket>,
    pub(crate) durability: Durability,
}

impl Commit {
    /// Waits until the batch is as durable as it asked for.
    ///
    /// # Errors
    /// As [`Db::write`](crate::Db::write).
    pub fn wait(self) -> Result<()> {
        let committed = self.ticket.wait_outcome()?;
        self.handle.engine.make_durable(&committed, self.durability)
    }

    /// Whether [`wait`](Self::wait) would return without waiting.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self.ticket.outcome() {
            None => false,
            Some(Err(_)) => true,
            Some(Ok(committed)) => {
                self.durability != Durability::Sync
                    || self.handle.engine.sync_is_settled(committed.lsn)
            }
        }
    }

    /// Calls `callback` with what became of the batch, once, at the latest when the store is
    /// closed: after a clean close a [`Durability::Sync`] batch is on stable storage.
    ///
    /// It is called on this thread if the batch is done, else on the thread that finishes it:
    /// another writer, who waits for it meanwhile; for a `Sync` batch a thread of the store that
    /// makes one sync after the other, or the one that closes it. The callback may write, close the
    /// store or drop its last handle; keep it short. A panic in it ends there. It must not wait for
    /// another thread that closes the store: that one waits for the callback.
    pub fn on_done(self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        // This one goes at the end, where a close that it means waits for all callbacks.
        let handle = Arc::clone(&self.handle);
        let sync = self.durability == Durability::Sync;
        let calls = Arc::clone(&handle.engine.shared.calls);
        // The sync comes after the callback of the commit has returned.
        let owed = sync.then(|| calls.owe());
        let then = move |outcome: &Result<Committed>| match (outcome, owed) {
            (Ok(committed), Some(owed)) => {
                handle.engine.sync_later(committed.lsn, Some((owed, Box::new(callback))));
            }
            (Ok(_), None) => callback(Ok(())),
            (Err(error), _) => callback(Err(error.clone())),
        };
        self.ticket.on_outcome(OwedCallback::new(&calls, Box::new(then)));
    }
}
