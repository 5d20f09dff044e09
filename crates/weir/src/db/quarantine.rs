//! Quarantine: tasks and tables that compaction skips after a permanent failure (background error
//! in RocksDB, but for one task).
//!
//! A task that fails permanently would be picked again immediately, forever. It is quarantined
//! instead: other tasks proceed, and anyone who would block on it gets its error.
//!
//! Not here: device errors, which are retried after a pause (`retries`) or poison the store.
//!
//! Invariants: (1) nothing here is persistent: the next opening tries everything again; (2) nothing
//! is picked from a keyspace whose task was refused until its version or its options change; (3) a
//! damaged table is no job's input until it is found sound again, and is never removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use crate::base::error::Error;
use crate::base::ids::{KeyspaceId, TableUid};
use crate::options::Options;
use crate::version::keyspaces::KeyspaceVersion;
use crate::version::run::Version;

/// What is quarantined. Protected by the lock of `jobs`.
#[derive(Default)]
pub(super) struct Quarantine {
    refused: BTreeMap<KeyspaceId, Refused>,
    /// Tables that no job can read, by uid.
    damaged: BTreeMap<TableUid, Damaged>,
}

/// A table that a job could not read.
struct Damaged {
    keyspace: KeyspaceId,
    /// What is wrong with it, with file, offset and keys.
    error: Error,
}

/// A task that the version set refused, or that did not fit its version.
struct Refused {
    from: PickedFrom,
    error: Error,
}

/// The state of a keyspace that a task was picked from.
#[derive(Clone)]
pub(super) struct PickedFrom {
    /// Weak: its address is not reused, but it keeps no table alive.
    version: Weak<Version>,
    options: Arc<Options>,
}

impl PickedFrom {
    /// This state.
    pub(super) fn of(state: &KeyspaceVersion) -> Self {
        Self { version: Arc::downgrade(&state.version), options: Arc::clone(&state.options) }
    }

    /// Whether nothing has changed since.
    fn is_still(&self, state: &KeyspaceVersion) -> bool {
        std::ptr::eq(self.version.as_ptr(), Arc::as_ptr(&state.version))
            && Arc::ptr_eq(&self.options, &state.options)
    }
}

impl Quarantine {
    /// Records that a task of a keyspace, picked from this state of it, was refused.
    pub(super) fn refuse(&mut self, keyspace: KeyspaceId, from: PickedFrom, error: Error) {
        self.refused.insert(keyspace, Refused { from, error });
    }

    /// Why nothing is picked from `state`: the error of the last task picked from it, if that was
    /// refused.
    pub(super) fn blocked_reason(&mut self, state: &KeyspaceVersion) -> Option<Error> {
        let refused = self.refused.get(&state.id)?;
        if !refused.from.is_still(state) {
            self.refused.remove(&state.id);
            return None;
        }
        Some(refused.error.clone())
    }

    /// Puts a damaged table into quarantine.
    pub(super) fn add_table(&mut self, keyspace: KeyspaceId, uid: TableUid, error: Error) {
        self.damaged.insert(uid, Damaged { keyspace, error });
    }

    /// Ends the quarantine of a table that was found sound; whether it was in quarantine.
    pub(super) fn release(&mut self, uid: TableUid) -> bool {
        self.damaged.remove(&uid).is_some()
    }

    /// The tables in quarantine.
    pub(super) fn damaged(&self) -> BTreeSet<TableUid> {
        self.damaged.keys().copied().collect()
    }

    /// What is wrong with the first of a keyspace's tables in quarantine.
    pub(super) fn damage_in(&self, keyspace: KeyspaceId) -> Option<Error> {
        let mut tables = self.damaged.values().filter(|damaged| damaged.keyspace == keyspace);
        tables.next().map(|damaged| damaged.error.clone())
    }

    /// What is wrong with all tables in quarantine.
    pub(super) fn damages(&self) -> Vec<Error> {
        self.damaged.values().map(|damaged| damaged.error.clone()).collect()
    }

    /// Forgets a keyspace that is dropped.
    pub(super) fn forget(&mut self, keyspace: KeyspaceId) {
        self.refused.remove(&keyspace);
        self.damaged.retain(|_, damaged| damaged.keyspace != keyspace);
    }

    /// Why compaction of some keyspace is blocked.
    pub(super) fn first_error(&self) -> Option<Error> {
        let refused = self.refused.values().map(|refused| &refused.error);
        refused.chain(self.damaged.values().map(|damaged| &damaged.error)).next().cloned()
    }
}
