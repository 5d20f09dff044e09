//! Buffer lists in a running store: when they are trimmed, and when they go.
//!
//! Not here: which tables leave (`compaction::buffer`), what lists are (`version::buffer_list`).
//!
//! A list is looked at every trim interval, between jobs and between the steps of long ones, but
//! not in the first interval after the store was opened or the list began: nothing is cached then
//! (H16). Where space is short lists are the first to go (H18).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::clock;
use crate::base::ids::{KeyspaceId, TableUid};
use crate::compaction::buffer::{self, ListedTable};
use crate::db::engine::Engine;
use crate::options::defaults::DEFAULT_TRIM_INTERVAL;
use crate::options::{CompactionBuffer, Options};
use crate::version::edit::{ListRequests, VersionEdit};
use crate::version::run::Version;
use crate::version::shape::PartKind;

/// The part of the memory budget that indexes and filters of listed tables may take.
const METADATA_DIVISOR: u64 = 16;

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

/// The tables that are in lists and not in the tree.
fn listed_tables(version: &Version) -> Vec<ListedTable> {
    let in_tree: BTreeSet<TableUid> = version.tables().map(|table| table.meta().uid).collect();
    let mut tables = Vec::new();
    for (id, _, list) in version.lists() {
        for (age, buffered) in list.runs().iter().enumerate() {
            let is_appended_to = age == 0 && id.part == PartKind::Filling;
            for (meta, table) in buffered.tables.iter() {
                // Its metadata is there for the tree.
                let shared = in_tree.contains(&meta.uid);
                tables.push(ListedTable {
                    uid: meta.uid,
                    residency: table.residency(),
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
        let mut earlier = false;
        {
            let mut state = self.jobs.state.lock();
            for &id in ids {
                let keyspace = root.keyspaces.get(id);
                match keyspace.filter(|keyspace| keyspace.version.has_lists()) {
                    None => drop(state.lists.remove(&id)),
                    Some(keyspace) => {
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
            let most = self.options.common_budget() / METADATA_DIVISOR;
            let trim = buffer::trim(&listed_tables(&keyspace.version), threshold, most);
            drop(root);
            if !trim.is_empty() {
                let trimmed = trim.len() as u64;
                if self.change_lists(id, ListRequests { trim, ..ListRequests::default() }) {
                    self.shared.counters.tables_trimmed.add(trimmed);
                }
            }
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
