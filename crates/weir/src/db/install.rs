//! Installing the result of a job: its edit is applied, then published to readers.
//!
//! Invariants: (1) the outputs of a job whose edit may have reached the device are never deleted
//! (docs/hazards.md, bug 32); (2) installing costs what the edit changes: keyspaces that it does
//! not touch are not visited, however many there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::ids::KeyspaceId;
use crate::base::memory::Category;
use crate::base::table_meta::TableMeta;
use crate::db::engine::{Engine, memtable_bytes_max};
use crate::db::heat::heat_for;
use crate::state::tree::{Flushable, Tree};
use crate::version::edit::VersionEdit;
use crate::version::set::{ApplyError, Installed};

impl Engine {
    /// Applies the edit of a job and publishes it. If it certainly did not reach the device, the
    /// job's outputs are deleted; otherwise they stay (bug 32).
    ///
    /// # Errors
    /// Those of [`VersionSet::apply`](crate::version::set::VersionSet::apply): the tree is
    /// unchanged.
    pub(crate) fn install_outputs(
        &self,
        edit: VersionEdit,
        outputs: &[Arc<TableMeta>],
        flushed: Option<(&Arc<Tree>, &Arc<Flushable>)>,
    ) -> Result<()> {
        let touched = touched_by(&edit);
        debug_assert!(
            outputs.iter().all(|table| adds(&edit, table)),
            "an output of a job is not in its edit"
        );
        match self.set.apply(edit) {
            Ok(installed) => {
                self.publish(installed, &touched, flushed);
                Ok(())
            }
            Err(failed) => Err(self.not_installed(failed, outputs)),
        }
    }

    /// Deletes the outputs of a job unless its edit may have reached the device (bug 32); returns
    /// the error.
    pub(super) fn not_installed(&self, failed: ApplyError, outputs: &[Arc<TableMeta>]) -> Error {
        if !failed.maybe_persisted
            && let Ok(storage) = self.storage()
        {
            for table in outputs {
                if storage.remove_table(table.uid).is_err() {
                    self.reclaimer.take_orphan(table.uid);
                }
                // Nobody could read them: they are not left unread.
                (0..table.blocks).for_each(|ordinal| self.cache.erase(table.uid, ordinal));
            }
        }
        failed.error
    }

    /// Publishes the new super-versions of the `touched` keyspaces after their edit, and retires
    /// the tables that it removed.
    pub(super) fn publish(
        &self,
        installed: Installed,
        touched: &BTreeSet<KeyspaceId>,
        flushed: Option<(&Arc<Tree>, &Arc<Flushable>)>,
    ) {
        // Before the memtable goes: from then on the row cache answers for its keys (H53).
        let flushed = flushed.map(|(of, flushable)| {
            let generation = of.forget_rows(&self.shared, flushable);
            (of, flushable, generation)
        });
        let of_flush = flushed.map(|(of, ..)| of.id);
        let ids: BTreeSet<KeyspaceId> = touched.iter().copied().chain(of_flush).collect();
        let changed: Vec<Arc<Tree>> = {
            let trees = self.trees.lock();
            ids.iter().filter_map(|id| trees.get(id)).cloned().collect()
        };
        for tree in changed {
            tree.update(|current| {
                let newest = self.set.current();
                let Some(state) = newest.keyspaces.get(tree.id) else { return current.clone() };
                let next = current.clone().with_version(Arc::clone(&state.version));
                let next = next.with_options(self.effective(&state.options));
                let accountant = &self.shared.accountant;
                let heat = heat_for(accountant, &next.options, &next.version, next.heat.as_ref());
                let next = next.with_heat(heat);
                match flushed {
                    Some((of, flushable, generation)) if Arc::ptr_eq(of, &tree) => {
                        next.without_memtable(flushable, generation)
                    }
                    _ => next,
                }
            });
        }
        self.note_lists(&ids);
        self.note_rests(&ids);
        self.note_heat(&ids);
        self.jobs.look_at(ids);
        for table in &installed.removed {
            // New readers do not look for them, and their room is their successors'. A reader of an
            // older version may bring some back: the reclaimer erases those.
            self.cache.erase_table(table.meta().uid, table.meta().blocks);
            self.reclaimer.retire(table);
        }
        if let Some(error) = &installed.last {
            self.shared.poison(error);
        }
        drop(installed);
        self.cache.set_capacity(self.cache_share());
        // Cursors may pin flushed memtables, and indexes and filters of removed tables.
        let accountant = &self.shared.accountant;
        let held = accountant.used(Category::Memtables);
        let many = flushed.is_some() && held > memtable_bytes_max(self.options.common_budget()) / 2;
        if many || accountant.used_total() > accountant.budget_bytes() {
            self.shared.call_for_release();
        }
    }

    /// Poisons the store if an edit failed so that the version log's content is unknown.
    pub(crate) fn note_install_error(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::InvalidArgument && error.leaves_unknown() {
            self.shared.poison(&error);
        }
        error
    }
}

fn adds(edit: &VersionEdit, table: &TableMeta) -> bool {
    let added = edit.keyspaces.values().flat_map(|keyspace| &keyspace.added);
    added.into_iter().any(|added| added.meta.uid == table.uid)
}

/// The keyspaces whose version or options an edit changes.
pub(super) fn touched_by(edit: &VersionEdit) -> BTreeSet<KeyspaceId> {
    let touched = edit.keyspaces.iter().filter(|(_, keyspace)| keyspace.changes_tree());
    touched.map(|(&id, _)| id).collect()
}

#[cfg(test)]
mod tests;
