//! What compaction could not do, and leaves alone until something changes.
//!
//! A task that fails for a reason that stays would be picked again at once, for ever. It is set
//! aside instead: other tasks go on, and who would wait for it in vain gets its error.
//!
//! Not here: failures of the device, which rest and are repeated or poison the store (`jobs`).
//!
//! Invariants: (1) nothing here is on disk: an opening tries everything again; (2) a keyspace whose
//! task was refused is not picked from until its tables or its options have changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::error::Error;
use crate::options::Options;
use crate::version::edit::KeyspaceId;
use crate::version::root::KeyspaceVersion;
use crate::version::run::Version;

/// What was set aside. Protected by the lock of `jobs`.
#[derive(Default)]
pub(super) struct Setbacks {
    refused: BTreeMap<KeyspaceId, Refused>,
}

/// A task that the version set refused, or that did not fit its version.
struct Refused {
    /// What it was picked from. Kept alive, so that its address is not used again.
    version: Arc<Version>,
    options: Arc<Options>,
    error: Error,
}

impl Setbacks {
    /// Notes that a task picked from `state` was refused.
    pub(super) fn refuse(&mut self, state: &KeyspaceVersion, error: Error) {
        let (version, options) = (Arc::clone(&state.version), Arc::clone(&state.options));
        self.refused.insert(state.id, Refused { version, options, error });
    }

    /// Why nothing is picked from `state`: what was picked from it before was refused.
    pub(super) fn refusal(&mut self, state: &KeyspaceVersion) -> Option<Error> {
        let refused = self.refused.get(&state.id)?;
        let same = Arc::ptr_eq(&refused.version, &state.version)
            && Arc::ptr_eq(&refused.options, &state.options);
        if !same {
            self.refused.remove(&state.id);
            return None;
        }
        Some(refused.error.clone())
    }

    /// Why compaction of some keyspace does not go on.
    pub(super) fn first_error(&self) -> Option<Error> {
        self.refused.values().next().map(|refused| refused.error.clone())
    }
}
