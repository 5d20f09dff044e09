//! Whether the engine takes a run's options: asked before anything is measured, of the engine.
//!
//! Its ranges are its own, and its errors say them: an empty store is opened in memory, as runs
//! open theirs (`store`). Not here: ranges of what is the laboratory's (`settings`).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use weir::sim::MemDir;

use crate::settings::{CompactionBuffer, Settings};
use crate::store;

/// That the store can be opened with `settings`, and by the policy of its load.
///
/// # Errors
/// The option that the engine refuses, and its range.
pub fn check(settings: &Settings) -> Result<(), String> {
    // What was taken once is taken again: runs differ in other options most of the time.
    static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut tried = settings.clone();
    // The budget of memory follows both, so that none is too large; they take time to be made.
    (tried.store.block_cache_bytes, tried.store.row_cache_bytes) = (0, 0);
    for policy in settings.policies_used() {
        tried.store.policy = policy;
        // A load by another policy has no compaction buffer (`store::load`).
        tried.store.compaction_buffer = match policy == settings.store.policy {
            true => settings.store.compaction_buffer,
            false => CompactionBuffer::Off,
        };
        let stated = format!("{:?} {:?} {}", tried.store, tried.policies, tried.disk.charge);
        if TAKEN.lock().unwrap_or_else(PoisonError::into_inner).contains(&stated) {
            continue;
        }
        let refused = |error: String| {
            let error = error.trim_start_matches("opening the store: ");
            let error = error.trim_start_matches("invalid argument: ");
            format!("the engine refuses an option: {error}")
        };
        let db = store::open(MemDir::new("a store that is tried").dir(), &tried, 1);
        db.map_err(refused)?.close().map_err(|e| e.to_string())?;
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(stated);
    }
    Ok(())
}
