//! Retries of background work with exponential backoff: a failed read, open, creation or table
//! write leaves nothing unknown (`Error::leaves_unknown`), so that the same work may succeed later.
//!
//! Each piece of work backs off by itself: an unreadable table delays the compactions of its
//! keyspace, not its flushes, nor other keyspaces. The pause doubles with each failure. A caller
//! that waits for the work ends its backoff and gets the error of the next attempt.
//!
//! Work that finds no space does not back off by itself: all jobs rest for a moment (`scheduler`).
//! What is kept here is which flushes were tried, for who waits for one and not for a merge, which
//! may need more.
//!
//! Not here: permanent failures (`quarantine`), a full device (`space_checks`), failures that
//! poison the store (`state::health`).
//!
//! Invariants: (1) time is the engine's clock, so that simulations are deterministic; (2) work that
//! backs off has failed and has not succeeded since.

use std::collections::BTreeMap;

use crate::base::error::Error;
use crate::base::ids::KeyspaceId;

/// The first pause: 25 ms, in which another process may have closed a descriptor.
const PAUSE_NANOS_MIN: u64 = 25_000_000;

/// The longest pause: 3.2 s, seven doublings of the first.
const PAUSE_NANOS_MAX: u64 = PAUSE_NANOS_MIN << 7;

/// Failures in a row after which writers that wait for the work get its error: four, 175 ms after
/// the first.
const PATIENCE: u32 = 4;

/// A piece of background work that is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Preparing the next segment of the log.
    Segment,
    /// Flushing the oldest memtable of a keyspace.
    Flush(KeyspaceId),
    /// Compacting a keyspace.
    Compaction(KeyspaceId),
}

/// Failed work that waits to be retried. Protected by the lock of `jobs`.
#[derive(Default)]
pub(super) struct Retries {
    waiting: BTreeMap<Work, Retry>,
    /// Keyspaces whose flush found no space when it was last tried, with the number of that
    /// failure.
    short_flushes: BTreeMap<KeyspaceId, u64>,
    /// Failures so far.
    failures: u64,
}

struct Retry {
    error: Error,
    until: u64,
    /// Failures in a row.
    in_a_row: u32,
    /// Value of `failures` at its last failure.
    number: u64,
}

impl Retries {
    /// Records that work failed at `now`, and starts or extends its backoff.
    pub(super) fn failed(&mut self, work: Work, error: Error, now: u64) {
        self.failures += 1;
        let in_a_row = self.waiting.get(&work).map_or(0, |retry| retry.in_a_row) + 1;
        let pause = PAUSE_NANOS_MIN.checked_shl(in_a_row - 1).unwrap_or(PAUSE_NANOS_MAX);
        let until = now.saturating_add(pause.min(PAUSE_NANOS_MAX));
        self.waiting.insert(work, Retry { error, until, in_a_row, number: self.failures });
    }

    /// Records that work found no space.
    pub(super) fn found_no_space(&mut self, work: Work) {
        self.failures += 1;
        if let Work::Flush(id) = work {
            self.short_flushes.insert(id, self.failures);
        }
    }

    /// Whether a flush has found no space after the first `failures` failures, and not succeeded
    /// since. Any: they are tried in one order, so that none is before the one that finds none.
    pub(super) fn flush_is_short_since(&self, failures: u64) -> bool {
        self.short_flushes.values().any(|&number| number > failures)
    }

    /// Records that work has succeeded, or that there is none.
    pub(super) fn done(&mut self, work: Work) {
        self.waiting.remove(&work);
        if let Work::Flush(id) = work {
            self.short_flushes.remove(&id);
        }
    }

    /// Forgets a keyspace that is dropped.
    pub(super) fn forget(&mut self, id: KeyspaceId) {
        self.done(Work::Flush(id));
        self.done(Work::Compaction(id));
    }

    /// The error of work that backs off at `now`.
    pub(super) fn rests(&self, work: Work, now: u64) -> Option<&Error> {
        self.waiting.get(&work).filter(|retry| retry.until > now).map(|retry| &retry.error)
    }

    /// Whether some work failed when it was last tried, whether it backs off or is to be tried
    /// again.
    pub(super) fn any_failed(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When the next backoff ends, of those that last at `now`.
    pub(super) fn next(&self, now: u64) -> Option<u64> {
        self.waiting.values().map(|retry| retry.until).filter(|&until| until > now).min()
    }

    /// Ends the backoff of the `wanted` work, because a caller waits for it. Returns the number of
    /// failures so far.
    pub(super) fn hurry(&mut self, wanted: impl Fn(Work) -> bool) -> u64 {
        for (_, retry) in self.waiting.iter_mut().filter(|(work, _)| wanted(**work)) {
            retry.until = 0;
        }
        self.failures
    }

    /// The error of work that has failed after the first `failures` failures, and not succeeded
    /// since.
    pub(super) fn failed_since(
        &self,
        failures: u64,
        wanted: impl Fn(Work) -> bool,
    ) -> Option<Error> {
        let mut failed = self.waiting.iter().filter(|(work, _)| wanted(**work));
        failed.find(|(_, retry)| retry.number > failures).map(|(_, retry)| retry.error.clone())
    }

    /// The error of work that has failed so often that callers should stop waiting for it.
    pub(super) fn lasting(&self, work: Work) -> Option<Error> {
        let retry = self.waiting.get(&work).filter(|retry| retry.in_a_row >= PATIENCE);
        retry.map(|retry| retry.error.clone())
    }

    /// The error of some work that waits to be retried.
    pub(super) fn first_error(&self) -> Option<Error> {
        self.waiting.values().next().map(|retry| retry.error.clone())
    }

    /// Number of pieces of work that wait to be retried.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    /// Goal: pauses double up to their limit, for each piece of work separately; success resets
    /// them.
    #[test]
    fn pauses_grow() {
        let mut retries = Retries::default();
        let error = || Error::new(ErrorKind::Io, "a test").leaving_nothing_unknown();
        let (flush, merge) =
            (Work::Flush(KeyspaceId::new(1)), Work::Compaction(KeyspaceId::new(1)));
        let mut now = 0;
        for n in 0..40 {
            assert_eq!(retries.lasting(flush).is_some(), n >= 4, "after {n} failures");
            retries.failed(flush, error(), now);
            let pause = PAUSE_NANOS_MIN << n.min(7);
            assert!(retries.rests(flush, now + pause - 1).is_some());
            assert_eq!(retries.next(now), Some(now + pause));
            assert!(retries.rests(merge, now).is_none());
            now += pause;
            assert!(retries.rests(flush, now).is_none());
        }
        retries.done(flush);
        retries.failed(flush, error(), now);
        assert_eq!(retries.next(now), Some(now + PAUSE_NANOS_MIN));
    }

    /// Goal: a caller gets only the errors of failures after its call, and ends the backoff of the
    /// work that it waits for.
    #[test]
    fn callers_get_the_error_of_their_own_attempt() {
        let mut retries = Retries::default();
        let error = Error::new(ErrorKind::Io, "a test");
        retries.failed(Work::Flush(KeyspaceId::new(1)), error.clone(), 0);
        retries.failed(Work::Flush(KeyspaceId::new(2)), error.clone(), 0);
        let mine = |work| work == Work::Flush(KeyspaceId::new(1));
        let seen = retries.hurry(mine);
        assert!(retries.rests(Work::Flush(KeyspaceId::new(1)), 0).is_none());
        assert!(retries.rests(Work::Flush(KeyspaceId::new(2)), 0).is_some());
        assert!(retries.failed_since(seen, mine).is_none());
        retries.failed(Work::Flush(KeyspaceId::new(2)), error.clone(), 0);
        assert!(retries.failed_since(seen, mine).is_none());
        retries.failed(Work::Flush(KeyspaceId::new(1)), error, 0);
        assert!(retries.failed_since(seen, mine).is_some());
        retries.forget(KeyspaceId::new(1));
        assert_eq!(retries.len(), 1);
    }

    /// Goal: who waits for a flush is told of any flush that has found no space since, and of no
    /// other work: while one finds none, no other is tried.
    #[test]
    fn flushes_without_space_are_told_apart() {
        let mut retries = Retries::default();
        let of = KeyspaceId::new;
        retries.found_no_space(Work::Flush(of(1)));
        let seen = retries.hurry(|_| true);
        assert!(!retries.flush_is_short_since(seen), "an earlier one");
        retries.found_no_space(Work::Compaction(of(1)));
        retries.found_no_space(Work::Segment);
        assert!(!retries.flush_is_short_since(seen), "no flush");
        retries.found_no_space(Work::Flush(of(2)));
        assert!(retries.flush_is_short_since(seen));
        retries.done(Work::Flush(of(2)));
        assert!(!retries.flush_is_short_since(seen), "it has found some");
    }
}
