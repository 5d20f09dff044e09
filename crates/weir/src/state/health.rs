//! Whether the store accepts writes, and why not.
//!
//! Invariants: (1) a poisoned store stays poisoned until it is reopened (H43): after a failed sync
//! or log write the content of the device is unknown, so nothing may be acknowledged on top of it;
//! (2) a full device is not poison: it is a state that ends when space returns; (3) reads go on;
//! (4) a store that is being closed passes through its stages in their order, never back.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::process::ProcessMark;
use crate::base::sched::Mutex;

/// The health of a store. Locks: `reasons` is a leaf.
#[derive(Default)]
pub(crate) struct Health {
    poisoned: AtomicBool,
    /// Stage of its closing: one of the constants below.
    stage: AtomicU8,
    full: AtomicBool,
    reasons: Mutex<Reasons>,
    /// Where the store was opened.
    process: ProcessMark,
}

/// Everything is allowed.
const OPEN: u8 = 0;
/// New writes are refused; those admitted before are committed.
const REFUSING: u8 = 1;
/// Nothing is committed. Reads and background work go on.
const SEALED: u8 = 2;
/// Everything is refused.
const CLOSED: u8 = 3;

const _: () = assert!(OPEN < REFUSING && REFUSING < SEALED && SEALED < CLOSED);

#[derive(Default)]
struct Reasons {
    poison: Option<Error>,
    full: Option<Error>,
}

impl Health {
    /// Refuses every later write with `cause` in the message. The first cause is kept.
    pub(crate) fn poison(&self, cause: &Error) {
        let mut reasons = self.reasons.lock();
        if reasons.poison.is_none() {
            reasons.poison = Some(Error::with_source(
                ErrorKind::Poisoned,
                format!(
                    "an earlier failure left the state on the device unknown ({cause}); reads go \
                     on, writes are refused: check the device, then reopen the store"
                ),
                cause.clone(),
            ));
        }
        self.poisoned.store(true, Ordering::Release);
    }

    /// Whether a failure has made the store refuse writes.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Notes that background work failed for lack of space.
    pub(crate) fn set_full(&self, cause: &Error) {
        let mut reasons = self.reasons.lock();
        reasons.full = Some(cause.clone());
        // Under the lock, as in `clear_full`: "full" without a reason would be read as "not full".
        self.full.store(true, Ordering::Release);
    }

    /// Notes that background work found space again.
    pub(crate) fn clear_full(&self) {
        if self.full.load(Ordering::Acquire) {
            let mut reasons = self.reasons.lock();
            self.full.store(false, Ordering::Release);
            reasons.full = None;
        }
    }

    /// The error of the last job that found no space, while that state lasts.
    pub(crate) fn full(&self) -> Option<Error> {
        if !self.full.load(Ordering::Acquire) {
            return None;
        }
        self.reasons.lock().full.clone()
    }

    /// Refuses new writes from now on: the store is about to be closed. The caller must wake
    /// writers that wait for room.
    pub(crate) fn refuse_writes(&self) {
        self.stage.fetch_max(REFUSING, Ordering::AcqRel);
    }

    /// Commits no batch from now on.
    ///
    /// Requires: the caller leads the commit queue, so that none is being committed.
    pub(crate) fn seal(&self) {
        let stage = self.stage.fetch_max(SEALED, Ordering::AcqRel);
        debug_assert!(stage >= REFUSING, "sealed in stage {stage}, before {REFUSING}");
    }

    /// Refuses everything from now on.
    pub(crate) fn close(&self) {
        self.stage.fetch_max(CLOSED, Ordering::AcqRel);
    }

    /// Whether the store was closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.stage.load(Ordering::Acquire) >= CLOSED
    }

    /// `Closed` if the store was closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed_error()) } else { Ok(()) }
    }

    /// Whether this process opened the store and is no fork of the one that did.
    #[inline]
    pub(crate) fn is_own_process(&self) -> bool {
        self.process.is_current()
    }

    /// `Closed` in place of an error that a read met while the store was being closed: another
    /// process may own its files by then.
    #[cold]
    pub(crate) fn or_closed(&self, error: Error) -> Error {
        if self.is_closed() { closed_error() } else { error }
    }

    /// `Closed` or `Poisoned` if the store accepts no new writes.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.stage.load(Ordering::Acquire) >= REFUSING {
            return Err(closed_error());
        }
        if !self.is_own_process() {
            return Err(forked_error());
        }
        self.check_sound()
    }

    /// `Closed` or `Poisoned` if nothing is committed, not even writes admitted before.
    #[inline]
    pub(crate) fn check_committable(&self) -> Result<()> {
        if self.stage.load(Ordering::Acquire) >= SEALED {
            return Err(closed_error());
        }
        self.check_sound()
    }

    /// `Poisoned` after a failure.
    #[inline]
    pub(crate) fn check_sound(&self) -> Result<()> {
        if !self.is_poisoned() {
            return Ok(());
        }
        let reasons = self.reasons.lock();
        Err(reasons.poison.clone().unwrap_or_else(|| {
            Error::new(ErrorKind::Poisoned, "the store refuses writes; reopen it")
        }))
    }
}

/// The error of every call on a closed store.
pub(crate) fn closed_error() -> Error {
    Error::new(ErrorKind::Closed, "the store was closed; open it again to use it")
}

/// The error of every change in a fork of the process that opened the store.
pub(crate) fn forked_error() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the store belongs to the process that opened it, and this one is a fork of that: use it \
         there, or open it once it is closed there, best in a program of its own (exec)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Poison stays, keeps its first cause and its source; a full device ends.
    #[test]
    fn poison_is_final_and_full_is_not() {
        let health = Health::default();
        assert!(health.check_writable().is_ok());
        health.set_full(&Error::new(ErrorKind::NoSpace, "disk full"));
        assert_eq!(health.full().unwrap().kind(), ErrorKind::NoSpace);
        health.clear_full();
        assert!(health.full().is_none());
        health.poison(&Error::new(ErrorKind::Io, "first"));
        health.poison(&Error::new(ErrorKind::Io, "second"));
        let error = health.check_writable().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert!(error.to_string().contains("first"), "{error}");
        assert!(health.check_open().is_ok());
        health.close();
        health.seal();
        assert!(health.is_closed(), "a store that was closed is never less closed");
        assert_eq!(health.check_writable().unwrap_err().kind(), ErrorKind::Closed);
    }
}
