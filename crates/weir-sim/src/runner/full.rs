//! Devices that get full: which calls may be refused then, and when they no longer may.
//!
//! A write that is refused with `NoSpace` has no effect, not even later: the oracle does not know
//! it. Who asks for tables, or waits for what is due, may be told that they do not fit. Options,
//! keyspaces made and dropped, and openings are never refused: they have room that is kept for them
//! (PROMISES.md, P9). And a store is full only while something fills it: once nobody reads old
//! versions any more and the tree has been compacted, a store whose entries are a small part of the
//! device takes writes.
//!
//! On devices without a limit nothing of this happens.

use std::time::Duration;

use weir::ErrorKind;

use super::{Checked, Runner};
use crate::op::Op;
use crate::world;

/// Entries that take at most this part of the device must fit on it: a table of a slot and a bit
/// takes two, a merge needs room for what it writes before its inputs go, and a quarter of a small
/// device is logs and superblocks.
const FITS: u64 = 16;

/// How often a full store is asked again, with a second in between.
const TRIES: u32 = 30;

impl Runner {
    /// Whether `result` is a refusal for want of space, where there may be one.
    pub(super) fn no_space<T>(&mut self, result: &weir::Result<T>) -> bool {
        let full = world::device_bytes().is_some()
            && result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace);
        self.counters.full += u64::from(full);
        full
    }

    /// What `result` gave, if it was not refused for want of space.
    pub(super) fn unless_full<T>(
        &mut self,
        result: weir::Result<T>,
        what: &str,
    ) -> Checked<Option<T>> {
        if self.no_space(&result) {
            return Ok(None);
        }
        result.map(Some).map_err(|e| format!("{what}: {e}"))
    }

    /// `op` was just refused for want of space: releases what may fill the store. If what is left
    /// is little, it must take `op` now.
    pub(super) fn make_room(&mut self, op: &Op) -> Checked {
        self.iters.iter_mut().for_each(|i| *i = None);
        self.snaps.iter_mut().for_each(|s| *s = None);
        let (Some(device), false) = (world::device_bytes(), matches!(op, Op::Commits { .. }))
        else {
            return Ok(());
        };
        if self.entry_bytes() > device / FITS {
            return self.drop_most();
        }
        let mut why = String::new();
        for n in 0..TRIES {
            let before = self.counters.full;
            self.once(op)?;
            if self.counters.full == before {
                self.counters.resumed += 1;
                return Ok(());
            }
            if n == 0 {
                why = self.why_full();
                self.compact_all()?;
            }
            world::delay_millis(Duration::from_secs(1).as_millis() as u64);
        }
        let bytes = self.entry_bytes();
        Err(format!("{bytes} bytes of entries fill {device}: refused at first with {why}"))
    }

    /// Keys and values that the oracle knows, of all keyspaces.
    fn entry_bytes(&self) -> u64 {
        let bytes = |model: usize| self.models[model].bytes(self.last);
        self.spaces.iter().flatten().map(|space| bytes(space.model)).sum()
    }

    /// Drops all keyspaces but the first: that is always possible.
    fn drop_most(&mut self) -> Checked {
        (1..self.spaces.len() as u8)
            .filter(|&ks| self.spaces[usize::from(ks)].is_some())
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|ks| self.drop_keyspace(ks))
    }

    /// Leaves of every keyspace what a compaction of all of it leaves, as far as there is room.
    fn compact_all(&mut self) -> Checked {
        for space in self.spaces.clone().iter().flatten() {
            self.unless_full(space.handle.compact_range(..), "compact")?;
        }
        self.measure()
    }

    /// What the store says of its space.
    fn why_full(&self) -> String {
        let Some(db) = &self.db else { return String::new() };
        let said = |name| db.property(name).unwrap_or_default();
        format!("{}; {}", said("weir.background-error"), said("weir.stats"))
    }
}
