//! Rests of writers: when a keyspace counts as at rest, so that its levels are merged down.
//!
//! Source: dLSM §VI: when writes rest, compaction goes on until scans find one run. Not here: what
//! is picked then (`compactions`), the option (`Options::idle_compaction`).
//!
//! A keyspace rests if nothing was written to it for as long as its option says. No writer counts
//! anything for it: a worker that looks compares the newest sequence number and the newest flush
//! with those of its last look. So a rest begins late by up to one look, never early.
//!
//! Invariant: what is not at rest has a time at which it is looked at again.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::clock;
use crate::base::ids::{DataEpoch, KeyspaceId, Level};
use crate::base::key::Seq;
use crate::db::engine::Engine;
use crate::state::tree::{SuperVersion, last_seq};
use crate::version::shape::RunKind;

/// A keyspace that is watched for rests.
#[derive(Debug)]
pub(super) struct Watch {
    newest: Newest,
    /// When it was seen to have changed last, or is watched from.
    since: u64,
    /// How long nothing must have changed, in nanoseconds.
    rest: u64,
    /// Whether it rests: it need not be looked at again before it changes.
    is_at_rest: bool,
}

/// The newest that was seen of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Newest {
    seq: Seq,
    flush: DataEpoch,
}

impl Newest {
    /// What `state` shows, and no less than `self`: what was flushed is in no memtable, what was
    /// merged is in no run of level 0.
    fn with(self, state: &SuperVersion) -> Self {
        let memtables = std::iter::once(&state.active).chain(&state.immutables);
        let seqs = memtables.filter(|m| !m.memtable.is_empty()).map(|m| last_seq(m));
        let runs = &state.version.levels()[Level::ZERO].filling.runs;
        let runs = runs.iter().find(|run| run.kind == RunKind::Data);
        Self {
            seq: seqs.fold(self.seq, Seq::max),
            flush: runs.map_or(self.flush, |run| run.epoch.max(self.flush)),
        }
    }
}

impl Watch {
    fn new(rest: Duration, now: u64) -> Self {
        let rest = u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX);
        Self { newest: Newest::default(), since: now, rest, is_at_rest: false }
    }

    /// When it may be at rest, if it is not.
    pub(super) fn due_at(&self) -> Option<u64> {
        (!self.is_at_rest).then(|| self.since.saturating_add(self.rest))
    }

    /// Whether it rests still.
    pub(super) fn rests(&mut self, state: &SuperVersion) -> bool {
        if self.is_at_rest {
            self.look(state, clock::now_nanos());
        }
        self.is_at_rest
    }

    /// Looks at it; whether a rest has begun.
    fn look(&mut self, state: &SuperVersion, now: u64) -> bool {
        let newest = self.newest.with(state);
        if newest != self.newest {
            (self.newest, self.since, self.is_at_rest) = (newest, now, false);
            return false;
        }
        let begins = self.due_at().is_some_and(|at| at <= now);
        self.is_at_rest |= begins;
        begins
    }
}

impl Engine {
    /// Watches those of these keyspaces whose option says so.
    pub(super) fn note_rests(&self, ids: &BTreeSet<KeyspaceId>) {
        let (root, now) = (self.set.current(), clock::now_nanos());
        let mut state = self.jobs.state.lock();
        for &id in ids {
            let rest = root.keyspaces.get(id).and_then(|k| k.options.idle_compaction);
            match rest {
                None => drop(state.rests.remove(&id)),
                Some(rest) => {
                    let fresh = Watch::new(rest, now);
                    let watch = state.rests.entry(id).or_insert_with(|| Watch::new(rest, now));
                    if watch.rest != fresh.rest {
                        *watch = fresh;
                    }
                }
            }
        }
    }

    /// Looks at every keyspace that is watched: has those looked at for compactions that have come
    /// to rest.
    pub(super) fn look_at_rests(&self) {
        let watched: Vec<KeyspaceId> = self.jobs.state.lock().rests.keys().copied().collect();
        for id in watched {
            let Some(tree) = self.trees.lock().get(&id).cloned() else { continue };
            let current = tree.pin();
            let mut state = self.jobs.state.lock();
            let now = clock::now_nanos();
            if state.rests.get_mut(&id).is_some_and(|watch| watch.look(&current, now)) {
                state.to_look_at.insert(id);
            }
        }
    }
}
