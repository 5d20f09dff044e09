//! Buffer lists in a running store: when they are trimmed, and when they go.
//!
//! Not here: which tables leave (`compaction::buffer`), what lists are (`version::buffer_list`).
//!
//! A list is looked at every trim interval, between jobs and between the steps of long ones, some
//! tables at a time and those of the run that it may stand for too (`read::buffered`), but not in
//! the first interval after the store was opened or the first list of a keyspace began: nothing is
//! cached then (H16). What indexes and filters of all lists take of the memory is looked at soon
//! after any has changed. Where space is short lists are the first to go (H18).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock;
use crate::base::ids::{KeyspaceId, TableUid};
use crate::base::key::KeyRange;
use crate::base::table_meta::TableMeta;
use crate::compaction::buffer::{self, ListedTable};
use crate::compaction::task::MergeTask;
use crate::db::engine::Engine;
use crate::db::job_table::ListLook;
use crate::options::defaults::DEFAULT_TRIM_INTERVAL;
use crate::options::{CompactionBuffer, Options, WarmUp};
use crate::version::buffer_list::BufferList;
use crate::version::edit::{ListRequests, VersionEdit};
use crate::version::foreseen::Foreseen;
use crate::version::keyspaces::KeyspaceVersion;
use crate::version::run::{Run, Version};
use crate::version::shape::PartKind;

/// The part of the memory budget that indexes and filters of all listed tables may take together.
const METADATA_DIVISOR: u64 = 16;

/// Blocks of a listed table whose presence in the cache is asked for: the share is known to within
/// 4 points of 100 (two standard deviations at 0.8).
const LISTED_SAMPLE: u32 = 512;

/// And of a table of the run beside it, of which there are more: to within 12 points.
const BASE_SAMPLE: u32 = 64;

/// Blocks and tables that one call asks for: in between, merges and flushes take their steps. About
/// half a millisecond.
const ASKED_MAX: u32 = 16 * LISTED_SAMPLE;

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

/// Learns how much is cached of the listed tables of a version, and of the tables of their runs
/// that a list may stand for, from this one on; the one to go on from, if not all were looked at.
fn look(version: &Version, from: usize, asked_max: u32) -> Option<usize> {
    let (mut number, mut asked) = (0, 0);
    for (_, run, list) in version.lists() {
        let of_list = list.runs().iter().enumerate();
        let of_list = of_list.map(|(age, buffered)| (Some(age), &buffered.tables));
        for (age, tables) in of_list.chain([(None, &run.tables)]) {
            for index in from.saturating_sub(number)..tables.len() {
                if asked >= asked_max {
                    return Some(number + index);
                }
                let Some((meta, table)) = tables.get(index) else { continue };
                let sample = match age {
                    Some(age) => {
                        table.residency(&served(run, list, age, meta), LISTED_SAMPLE);
                        LISTED_SAMPLE
                    }
                    None if list.may_stand_for(&meta.smallest, &meta.largest) => {
                        table.residency(&[bounds(meta)], BASE_SAMPLE);
                        BASE_SAMPLE
                    }
                    None => 0,
                };
                asked += 1 + meta.blocks.min(sample);
            }
            number += tables.len();
        }
    }
    None
}

fn bounds(meta: &TableMeta) -> KeyRange {
    (Arc::from(&*meta.smallest), Arc::from(&*meta.largest))
}

/// What readers come to of a table of a run's list: nothing below or above the run's own tables,
/// which have left it, and nothing under a hole.
fn served(run: &Run, list: &BufferList, age: usize, meta: &TableMeta) -> Vec<KeyRange> {
    let (mut smallest, mut largest) = (&*meta.smallest, &*meta.largest);
    let last = run.tables.len().checked_sub(1).and_then(|last| run.tables.get(last));
    if let (Some((first, _)), Some((last, _))) = (run.tables.get(0), last) {
        smallest = smallest.max(&first.smallest);
        largest = largest.min(&last.largest);
    }
    if smallest > largest { Vec::new() } else { list.served(age, smallest, largest) }
}

/// The tables that are in lists of a keyspace, with what is known of their residency.
fn listed_tables(keyspace: &KeyspaceVersion) -> Vec<ListedTable> {
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
                    residency: table.known_residency(),
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
                        let look = state.lists.entry(id).or_insert_with(|| {
                            earlier = true;
                            ListLook { at: first, done: 0 }
                        });
                        // The interval may have become shorter.
                        look.at = first.min(look.at);
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

    /// Looks after the lists that it is time for, so far as that goes in one call; whether there is
    /// more to look at.
    pub(super) fn tend_lists(&self) -> bool {
        let now = clock::now_nanos();
        self.bound_list_memory(now);
        let due: Option<KeyspaceId> = {
            let state = self.jobs.state.lock();
            let due = state.lists.iter().filter(|(_, look)| look.at <= now);
            // In turn: with short intervals the first would always be due.
            due.min_by_key(|(_, look)| look.at).map(|(&id, _)| id)
        };
        due.is_some_and(|id| self.look_at_lists(id, now, ASKED_MAX))
    }

    /// Goes on with the look at a keyspace's lists that is due; whether one may be due still.
    fn look_at_lists(&self, id: KeyspaceId, now: u64, asked_max: u32) -> bool {
        let root = self.set.current();
        let Some(keyspace) = root.keyspaces.get(id) else {
            self.jobs.state.lock().lists.remove(&id);
            return true;
        };
        let next = now.saturating_add(nanos(interval(&keyspace.options)));
        let done = match self.jobs.state.lock().lists.get_mut(&id) {
            // Not one that another thread has turned to meanwhile.
            Some(look) if look.at <= now => {
                look.at = next;
                std::mem::take(&mut look.done)
            }
            _ => return true,
        };
        if let Some(done) = look(&keyspace.version, done, asked_max) {
            if let Some(look) = self.jobs.state.lock().lists.get_mut(&id) {
                *look = ListLook { at: now, done };
            }
            return true;
        }
        let threshold = match keyspace.options.compaction_buffer {
            CompactionBuffer::Trimmed(trim) => Some(trim.threshold),
            _ => None,
        };
        let trim = buffer::trim(&listed_tables(keyspace), threshold);
        drop(root);
        self.trim_lists(id, trim);
        true
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
        let listed = root.keyspaces.iter().filter(|keyspace| keyspace.version.has_lists());
        let tables: Vec<_> = listed.flat_map(|keyspace| listed_tables(keyspace)).collect();
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

    /// What a merge that begins now will make of buffer lists, so far as hand-off wants to know.
    pub(super) fn foresee(&self, id: KeyspaceId, merge: &MergeTask) -> Foreseen {
        let root = self.set.current();
        let keyspace = root.keyspaces.get(id);
        let keyspace = keyspace.filter(|keyspace| keyspace.options.warm_up == WarmUp::HandOff);
        let inputs = merge.inputs.iter().map(|slice| (slice.run, &slice.uids[..]));
        keyspace.map_or_else(Foreseen::default, |keyspace| {
            Foreseen::of(keyspace, &inputs.collect::<Vec<_>>(), merge.output)
        })
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
