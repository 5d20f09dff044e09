//! The disk's volatile write cache, and what a sync waits for: data, then what the file system
//! writes beside it (`file_system`).
//!
//! On: a write is done when it is in the cache, which costs nobody time, and goes on to the medium
//! in the order of the queue. A sync sends the command that empties the cache of the whole disk: it
//! waits for every write that was sent before, whoever sent it, and then for the command itself
//! ([`DiskModel::flush_nanos`]). Off: a write is done when it is on the medium; a sync waits for
//! its file's own writes and sends no command, because nothing is volatile.
//!
//! What has not been sent yet is the operating system's, not the disk's: a sync sends what its own
//! file has, and leaves that of others where it is.
//!
//! Simplifications, with the direction of their error: the cache is as large as it has to be (too
//! fast for bursts beyond 16 to 64 MB, but only readers ever wait for writes here); what is in it
//! is not put into the order of its places (too slow for scattered writes).
//!
//! Invariant: a sync waits for no write that was sent after it.

use std::ops::Range;

use super::file_system::{Metadata, Step, Write};
use super::model::Access;
use super::{Poll, Shared, State, TimedOptions, now_nanos, wait_until};
use crate::base::sched::MutexGuard;

/// The file of writes that are the file system's.
const METADATA: u64 = u64::MAX;

impl TimedOptions {
    /// The metadata of an empty file system over all of the disk.
    pub(super) fn metadata(&self) -> Metadata {
        let disk = self.model.capacity_bytes.saturating_mul(self.model.spindles as u64);
        let volume = match self.capacity_bytes {
            0 => disk / self.scale.max(1),
            bytes => bytes,
        };
        let rotates = self.model.rotation_nanos > 0;
        Metadata::new(self.file_system, volume, self.scale, rotates)
    }
}

impl State {
    /// Notes that write `number` reaches the medium at `done_nanos`, and forgets those that have by
    /// `now`.
    pub(super) fn note_written(&mut self, now: u64, number: u64, done_nanos: u64) {
        self.reaching_medium.retain(|_, done| *done > now);
        if done_nanos > now {
            self.reaching_medium.insert(number, done_nanos);
        }
    }

    /// When all writes with `numbers` are on the medium, or else when to ask again.
    fn drained(&mut self, numbers: Range<u64>) -> Poll {
        let is_write = |number: u64| {
            numbers.contains(&number)
                && self.requests.get(&number).is_some_and(|r| r.written.is_some())
        };
        match self.spindles.next_decision(is_write) {
            Some(when) => Poll::AskAt(when),
            None => {
                let reaching = self.reaching_medium.range(numbers.clone());
                Poll::Done(reaching.map(|(_, &done)| done).max().unwrap_or(0))
            }
        }
    }
}

impl State {
    /// Queues writes of metadata; their numbers.
    fn queue_metadata(&mut self, writes: &[Write]) -> Range<u64> {
        let first = self.requests_made;
        for write in writes {
            let stripe_bytes = self.spindles.model().stripe_bytes.max(1);
            let (stripe, inside) = (write.at / stripe_bytes, write.at % stripe_bytes);
            let stripes = (inside + write.bytes).div_ceil(stripe_bytes);
            let stripes: Vec<u64> = (stripe..stripe + stripes).collect();
            let pieces = self.spindles.pieces(&stripes, inside, write.bytes).collect();
            self.request_pieces(pieces, Access::StreamWrite, Some(METADATA));
            self.counters.metadata_writes += 1;
            self.counters.metadata_bytes += write.bytes;
        }
        first..self.requests_made
    }
}

impl Shared {
    /// Waits until `poll` knows a time, and then until that.
    pub(super) fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        poll: impl Fn(&mut State) -> Poll,
    ) {
        loop {
            let answer = poll(&mut state);
            drop(state);
            match answer {
                Poll::Done(done) => return wait_until(done),
                Poll::AskAt(when) => wait_until(when),
            }
            state = self.state.lock();
            state.advance(now_nanos());
        }
    }

    /// Does what a sync has to, one step after the other; then sends what is due.
    pub(super) fn follow(&self, steps: Vec<Step>) {
        for Step { writes, flush } in steps {
            let mut state = self.state.lock();
            let numbers = state.queue_metadata(&writes);
            if !self.options.write_cache {
                self.wait(state, |state| state.drained(numbers.clone()));
            } else if flush {
                let sent = 0..state.requests_made;
                state.counters.flushes += 1;
                self.wait(state, |state| state.drained(sent.clone()));
                wait_until(now_nanos() + self.options.model.flush_nanos);
            }
        }
        let mut state = self.state.lock();
        let due = state.metadata.take_due(now_nanos());
        state.queue_metadata(&due);
    }
}
