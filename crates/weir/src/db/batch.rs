//! The public batch and the handle of a commit.

use std::collections::BTreeSet;
use std::iter::FusedIterator;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::KeyspaceId;
use crate::base::key::Kind;
use crate::base::limits;
use crate::db::Db;
use crate::db::closing::Handle;
use crate::db::keyspace::Keyspace;
use crate::options::Durability;
use crate::state::tree::Tree;
use crate::write::batch::Records;
use crate::write::queue::{Committed, OwedCallback, PendingBatch, Ticket};

/// Records of one batch may begin up to here: 2 GiB.
const BATCH_BYTES_MAX: usize = limits::VALUE_BYTES_MAX * 2;

/// Writes that happen together or not at all, also over several keyspaces of one store.
///
/// A batch is applied in order: a later record for the same key wins. Writing one does not change
/// it: it may be written again, after an error for example, or [cleared](Self::clear) and filled
/// again, which allocates nothing once it has the size that it needs.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = weir::Db::open(dir.path().join("db"))?;
/// let users = db.keyspace("users")?;
/// let names = db.keyspace("names")?;
/// let mut batch = weir::WriteBatch::new();
/// for (number, name) in [("7", "ada"), ("8", "grace")] {
///     batch.clear();
///     batch.put(&users, number, name);
///     batch.put(&names, name, number);
///     db.write(&mut batch, weir::Durability::Sync)?;
/// }
/// # Ok::<(), weir::Error>(())
/// ```
///
/// The records are kept in the form that the log has them in, [`as_bytes`](Self::as_bytes), and a
/// batch can be made of these bytes: [`from_bytes`](Self::from_bytes).
#[derive(Clone, Default)]
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
    /// Version of the bytes that [`as_bytes`](Self::as_bytes) gives. They do not carry it: who
    /// keeps them for another version of the program keeps it beside them.
    pub const BYTES_VERSION: u32 = 1;

    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A batch of the records in `bytes`, which [`as_bytes`](Self::as_bytes) of a batch of the same
    /// store gave.
    ///
    /// The bytes name keyspaces by their numbers ([`KeyspaceDescription::id`]), which mean nothing
    /// in another store. Each keyspace must exist now, and must still exist when the batch is
    /// written. The bytes have no checksum of their own: a change of them that leaves them well
    /// formed is not noticed.
    ///
    /// [`KeyspaceDescription::id`]: crate::KeyspaceDescription::id
    ///
    /// # Errors
    /// `InvalidArgument` with the offset if the bytes are no records, or if a key or value is over
    /// its limit; `NotFound` if there is no keyspace of a number, because it was dropped or because
    /// the bytes are of another store; `Closed`.
    pub fn from_bytes(db: &Db, bytes: &[u8]) -> Result<Self> {
        let engine = &db.handle.engine;
        engine.shared.health.check_open()?;
        let mut batch = Self::new();
        let mut named = BTreeSet::new();
        let mut records = Records::new(bytes);
        loop {
            let offset = records.position();
            let Some(record) = records.next() else {
                if records.damaged() {
                    return Err(Error::invalid(format!(
                        "the bytes are no batch: no record begins at offset {offset} of {}",
                        bytes.len()
                    )));
                }
                break;
            };
            engine.check_sizes(record.key, record.value).map_err(|error| {
                Error::invalid(format!("the record at offset {offset}: {}", error.message()))
            })?;
            if offset >= BATCH_BYTES_MAX || batch.pending.count == u32::MAX {
                return Err(too_large());
            }
            if named.insert(record.keyspace) {
                let tree = engine.trees.lock().get(&record.keyspace).cloned();
                let tree = tree.ok_or_else(|| no_keyspace(record.keyspace, offset))?;
                batch.pending.trees.push(tree);
            }
            batch.pending.count += 1;
            batch.pending.deletes += u32::from(record.kind == Kind::Delete);
        }
        if batch.pending.count > 0 {
            batch.pending.bytes = bytes.to_vec();
            batch.handle = Some(Arc::clone(&db.handle));
        }
        Ok(batch)
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

    /// Adds all records of `other`, behind those that are there. What would be reported when
    /// `other` is written is reported when this batch is.
    pub fn append(&mut self, other: &Self) {
        if self.invalid.is_some() {
            return;
        }
        if other.invalid.is_some() {
            self.invalid.clone_from(&other.invalid);
            return;
        }
        let Some(handle) = &other.handle else { return };
        if !self.takes_from(handle) {
            self.invalid = Some(of_another_store());
            return;
        }
        let bytes = self.pending.bytes.len() + other.pending.bytes.len();
        let count = self.pending.count.checked_add(other.pending.count);
        if bytes > BATCH_BYTES_MAX || count.is_none() {
            self.invalid = Some(too_large());
            return;
        }
        self.handle.get_or_insert_with(|| Arc::clone(handle));
        self.pending.append(&other.pending);
    }

    /// Whether records for the store of `handle` may go into this batch.
    fn takes_from(&self, handle: &Arc<Handle>) -> bool {
        self.handle.as_ref().is_none_or(|h| Arc::ptr_eq(h, handle))
    }

    fn push(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
        if self.invalid.is_some() {
            return;
        }
        let checked = if self.takes_from(&keyspace.handle) {
            keyspace.handle.engine.check_sizes(key, value)
        } else {
            Err(of_another_store())
        };
        let room = u64::from(self.pending.count) < u64::from(u32::MAX);
        match checked {
            Ok(()) if room && self.pending.bytes.len() < BATCH_BYTES_MAX => {
                self.handle.get_or_insert_with(|| Arc::clone(&keyspace.handle));
                self.pending.push(&keyspace.tree, kind, key, value);
            }
            Ok(()) => self.invalid = Some(too_large()),
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

    /// Removes all records, and what was wrong with one, keeping the memory. An empty batch does
    /// not keep the store open.
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

    /// The encoded records, as the log has them (`docs/format/batch.md`, version
    /// [`BYTES_VERSION`](Self::BYTES_VERSION)). Records that were refused are not among them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.pending.bytes
    }

    /// The records in order.
    #[must_use]
    pub fn iter(&self) -> BatchIter<'_> {
        BatchIter { records: Records::new(&self.pending.bytes), trees: &self.pending.trees }
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteBatch")
            .field("len", &self.len())
            .field("byte_len", &self.byte_len())
            .field("invalid", &self.invalid)
            .finish_non_exhaustive()
    }
}

impl<'a> IntoIterator for &'a WriteBatch {
    type Item = BatchRecord<'a>;
    type IntoIter = BatchIter<'a>;

    fn into_iter(self) -> BatchIter<'a> {
        self.iter()
    }
}

/// The records of a [`WriteBatch`], in order.
#[derive(Clone)]
pub struct BatchIter<'a> {
    records: Records<'a>,
    trees: &'a [Arc<Tree>],
}

impl<'a> Iterator for BatchIter<'a> {
    type Item = BatchRecord<'a>;

    fn next(&mut self) -> Option<BatchRecord<'a>> {
        let record = self.records.next()?;
        let tree = self.trees.iter().find(|t| t.id == record.keyspace);
        let keyspace = tree.map_or("", |t| t.name.as_str());
        Some(match record.kind {
            Kind::Put => BatchRecord::Put { keyspace, key: record.key, value: record.value },
            Kind::Delete => BatchRecord::Delete { keyspace, key: record.key },
        })
    }
}

impl FusedIterator for BatchIter<'_> {}

impl std::fmt::Debug for BatchIter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

pub(super) fn of_another_store() -> Error {
    Error::invalid(
        "the batch holds records for another store; write it with that store's `Db`, and use one \
         batch per store",
    )
}

fn too_large() -> Error {
    Error::invalid("the batch is larger than 2 GiB; split it into smaller ones")
}

fn no_keyspace(number: KeyspaceId, offset: usize) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!(
            "the record at offset {offset} is for keyspace number {number}, and there is none: it \
             was dropped, or the bytes are of another store"
        ),
    )
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
                    || self.handle.engine.sync_is_decided(committed.lsn)
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

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commit")
            .field("durability", &self.durability)
            .field("is_done", &self.is_done())
            .finish_non_exhaustive()
    }
}
