//! Buffer lists in a running store: when they are trimmed, and when they go.
//!
//! Not here: which tables leave (`compaction::buffer`), what lists are (`version::buffer_list`).
//!
//! A list is looked at every trim interval, between jobs and between the steps of long ones, but
//! not in the first interval after the store was opened or the list began: nothing is cached then
//! (H16). What indexes and filters of all lists take of the memory is looked at soon after any has
//! changed. Where space is short lists are the first to go (H18).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::clock;
use crate::base::ids::{KeyspaceId, TableUid};
use crate::compaction::buffer::{self, ListedTable};
use crate::db::engine::Engine;
use crate::options::defaults::DEFAULT_TRIM_INTERVAL;
use crate::options::{CompactionBuffer, Options};
use crate::table::Table;
use crate::version::edit::{ListRequests, VersionEdit};
use crate::version::keyspaces::KeyspaceVersion;
use crate::version::shape::PartKind;

/// The part of the memory budget that indexes and filters of all listed tables may take together.
const METADATA_DIVISOR: u64 = 16;

/// Time from a change of a list to the look at that. Lists grow by what is merged meanwhile.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);

/// The trim interval; damage and memory are looked after in lists that are not trimmed too.
fn interval(options: &Options) -> Duration {
    match options.compaction_buffer {
        CompactionBuffer::Trimmed(trim) => trim.interval,
        _ => DEFAULT_TRIM_INTERVAL,
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The tables that are in lists of a keyspace, with their residency as `residency` knows it.
fn listed_tables(
    keyspace: &KeyspaceVersion,
    residency: impl Fn(&Table) -> Option<f32>,
) -> Vec<ListedTable> {
    let version = &keyspace.version;
    let in_tree: BTreeSet<TableUid> = version.tables().map(|table| table.meta().uid).collect();
    let mut tables = Vec::new();
    for (id, _, list) in version.lists() {
        for (age, buffered) in list.runs().iter().enumerate() {
            let is_appended_to = age == 0 && id.part == PartKind::Filling;
            for (meta, table) in buffered.tables.iter() {
                // Its metadata is there for the tree.
                let shared = in_tree.contains(&meta.uid);
                tables.push(ListedTable {
                    keyspace: keyspace.id,
                    uid: meta.uid,
                    residency: residency(table),
                    data_bytes: meta.bytes - meta.tail_bytes,
                    metadata_bytes: if shared { 0 } else { meta.tail_bytes },
                    is_appended_to,
                    is_damaged: table.is_distrusted(),
                });
            }
        }
    }
    tables
}

impl Engine {
    /// Notes which of these keyspaces have lists to look after.
    pub(super) fn note_lists(&self, ids: &BTreeSet<KeyspaceId>) {
        let root = self.set.current();
        let now = clock::now_nanos();
        let (mut earlier, mut changed) = (false, false);
        {
            let mut state = self.jobs.state.lock();
            for &id in ids {
                let keyspace = root.keyspaces.get(id);
                match keyspace.filter(|keyspace| keyspace.version.has_lists()) {
                    None => drop(state.lists.remove(&id)),
                    Some(keyspace) => {
                        changed = true;
                        let first = now.saturating_add(nanos(interval(&keyspace.options)));
                        let next = state.lists.entry(id).or_insert_with(|| {
                            earlier = true;
                            first
                        });
                        // The interval may have become shorter.
                        *next = first.min(*next);
                    }
                }
            }
            if changed && state.list_memory_at.is_none() {
                state.list_memory_at = Some(now.saturating_add(nanos(MEMORY_INTERVAL)));
                earlier = true;
            }
        }
        if earlier {
            // Who waits does so until the next look at most.
            self.shared.wake_workers();
        }
    }

    /// Notes which keyspaces have lists to look after.
    pub(super) fn note_all_lists(&self) {
        let ids = self.trees.lock().keys().copied().collect();
        self.note_lists(&ids);
    }

    /// Looks after the lists that it is time for.
    pub(super) fn tend_lists(&self) {
        let now = clock::now_nanos();
        self.bound_list_memory(now);
        let due: Vec<KeyspaceId> = {
            let state = self.jobs.state.lock();
            let due = state.lists.iter().filter(|&(_, &at)| at <= now);
            due.map(|(&id, _)| id).collect()
        };
        for id in due {
            let root = self.set.current();
            let Some(keyspace) = root.keyspaces.get(id) else {
                self.jobs.state.lock().lists.remove(&id);
                continue;
            };
            {
                let mut state = self.jobs.state.lock();
                let next = now.saturating_add(nanos(interval(&keyspace.options)));
                match state.lists.get_mut(&id) {
                    // Not one that another thread has turned to meanwhile.
                    Some(at) if *at <= now => *at = next,
                    _ => continue,
                }
            }
            let threshold = match keyspace.options.compaction_buffer {
                CompactionBuffer::Trimmed(trim) => Some(trim.threshold),
                _ => None,
            };
            let tables = listed_tables(keyspace, |table| Some(table.residency()));
            let trim = buffer::trim(&tables, threshold);
            drop(root);
            self.trim_lists(id, trim);
        }
    }

    /// Trims tables if indexes and filters of all lists, those of all keyspaces, take more memory
    /// than they may together.
    fn bound_list_memory(&self, now: u64) {
        {
            let mut state = self.jobs.state.lock();
            if state.list_memory_at.is_none_or(|at| at > now) {
                return;
            }
            state.list_memory_at = None;
        }
        let bytes_max = self.options.common_budget() / METADATA_DIVISOR;
        let root = self.set.current();
        // From above: of those that are in the tree too it is there anyway.
        let listed = root.keyspaces.iter().flat_map(|keyspace| keyspace.version.listed_tables());
        if listed.map(|table| table.meta().tail_bytes).sum::<u64>() <= bytes_max {
            return;
        }
        let known = |keyspace| listed_tables(keyspace, Table::known_residency);
        let listed = root.keyspaces.iter().filter(|keyspace| keyspace.version.has_lists());
        let tables: Vec<_> = listed.flat_map(|keyspace| known(keyspace)).collect();
        drop(root);
        for (id, trim) in buffer::over_memory(&tables, bytes_max) {
            self.trim_lists(id, trim);
        }
    }

    fn trim_lists(&self, id: KeyspaceId, trim: BTreeSet<TableUid>) {
        let trimmed = trim.len() as u64;
        if trimmed == 0 {
            return;
        }
        if self.change_lists(id, ListRequests { trim, ..ListRequests::default() }) {
            self.shared.counters.tables_trimmed.add(trimmed);
        } else {
            let mut state = self.jobs.state.lock();
            let again = clock::now_nanos().saturating_add(nanos(MEMORY_INTERVAL));
            state.list_memory_at.get_or_insert(again);
        }
    }

    /// Changes the lists of a keyspace; whether that was done. What fails is tried again when it is
    /// looked at again.
    fn change_lists(&self, id: KeyspaceId, requests: ListRequests) -> bool {
        // As a job: nothing changes in a keyspace that is being dropped.
        if !self.jobs.state.lock().begin(id) {
            return false;
        }
        let mut edit = VersionEdit::default();
        edit.keyspace(id).requests = requests;
        let changed = self.install_outputs(edit, &[], None);
        let changed = changed.map_err(|error| self.note_install_error(error)).is_ok();
        self.jobs.state.lock().end(id);
        self.reclaim();
        self.shared.announce_progress();
        changed
    }

    /// Gives the space of all lists back, before work is refused for lack of it; whether there was
    /// any.
    pub(super) fn drop_lists(&self) -> bool {
        let listed: Vec<KeyspaceId> = self.jobs.state.lock().lists.keys().copied().collect();
        let mut dropped = false;
        for id in listed {
            if self.change_lists(id, ListRequests { drop: true, ..ListRequests::default() }) {
                dropped = true;
                self.shared.counters.lists_dropped.add(1);
            }
        }
        if dropped {
            // Cursors may hold what has left the lists.
            self.shared.call_for_release();
        }
        dropped
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests;
