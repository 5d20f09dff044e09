//! A batch on its way through the commit queue.
//!
//! Not here: the encoding of its records (`batch`), waiting for its commit (`ticket`).

use std::sync::Arc;

use crate::base::key::Kind;
use crate::options::Durability;
use crate::state::tree::Tree;
use crate::write::batch::{self, Record};

/// Bytes of a waiting batch besides its records: the ticket and its entry in the wait list. An
/// estimate from above.
const TICKET_BYTES: usize = 256;

/// A batch on its way through the queue.
#[derive(Clone, Default)]
pub(crate) struct PendingBatch {
    /// The records (`write::batch`).
    pub(crate) bytes: Vec<u8>,
    /// Number of records.
    pub(crate) count: u32,
    /// Of these, deletes.
    pub(crate) deletes: u32,
    /// The keyspaces that the records name, without repetition.
    pub(crate) trees: Vec<Arc<Tree>>,
    pub(crate) durability: Durability,
}

impl PendingBatch {
    /// Appends a record for `tree`.
    pub(crate) fn push(&mut self, tree: &Arc<Tree>, kind: Kind, key: &[u8], value: &[u8]) {
        self.name(tree);
        batch::encode(&mut self.bytes, Record { kind, keyspace: tree.id, key, value });
        self.count += 1;
        self.deletes += u32::from(kind == Kind::Delete);
    }

    /// Adds `tree` to the keyspaces that the records name.
    #[inline]
    pub(crate) fn name(&mut self, tree: &Arc<Tree>) {
        if !self.trees.iter().any(|t| Arc::ptr_eq(t, tree)) {
            self.trees.push(Arc::clone(tree));
        }
    }

    /// Appends all records of another batch of the same store.
    pub(crate) fn append(&mut self, other: &Self) {
        other.trees.iter().for_each(|tree| self.name(tree));
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
        self.deletes += other.deletes;
        assert!(self.deletes <= self.count, "{} deletes of {} records", self.deletes, self.count);
    }

    /// Bytes of memory that the batch takes while it waits. At least 1.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.len() + TICKET_BYTES
    }

    /// Empties the batch, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.trees.clear();
        self.count = 0;
        self.deletes = 0;
    }
}
