//! The disk's volatile write cache, and what a sync waits for.
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

use super::{Poll, State};

impl State {
    /// Notes that write `number` reaches the medium at `done_nanos`, and forgets those that have by
    /// `now`.
    pub(super) fn note_written(&mut self, now: u64, number: u64, done_nanos: u64) {
        self.reaching_medium.retain(|_, done| *done > now);
        if done_nanos > now {
            self.reaching_medium.insert(number, done_nanos);
        }
    }

    /// When all writes below `limit` are on the medium, or else when to ask again.
    pub(super) fn drained(&mut self, limit: u64) -> Poll {
        let is_write = |number: u64| {
            number < limit && self.requests.get(&number).is_some_and(|r| r.written.is_some())
        };
        match self.spindles.next_decision(is_write) {
            Some(when) => Poll::AskAt(when),
            None => {
                let reaching = self.reaching_medium.range(..limit);
                Poll::Done(reaching.map(|(_, &done)| done).max().unwrap_or(0))
            }
        }
    }
}
