//! Whether the store accepts writes, and why not.
//!
//! Invariants: (1) a poisoned store stays poisoned until it is reopened (H43): after a failed sync
//! or log write nobody knows what is on the device, so nothing may be acknowledged on top of it;
//! (2) a full device is not poison: it is a state that ends when space returns; (3) reads go on.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sched::Mutex;

/// The health of a store. Locks: `reasons` is a leaf.
#[derive(Default)]
pub(crate) struct Health {
    poisoned: AtomicBool,
    closed: AtomicBool,
    full: AtomicBool,
    reasons: Mutex<Reasons>,
}

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
        self.reasons.lock().full = Some(cause.clone());
        self.full.store(true, Ordering::Release);
    }

    /// Notes that background work found space again.
    pub(crate) fn clear_full(&self) {
        if self.full.load(Ordering::Acquire) {
            self.full.store(false, Ordering::Release);
            self.reasons.lock().full = None;
        }
    }

    /// The error of the last job that found no space, while that state lasts.
    pub(crate) fn full(&self) -> Option<Error> {
        if !self.full.load(Ordering::Acquire) {
            return None;
        }
        self.reasons.lock().full.clone()
    }

    /// Refuses everything from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether the store was closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// `Closed` if the store was closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed_error()) } else { Ok(()) }
    }

    /// `Closed` or `Poisoned` if the store accepts no writes.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
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
        assert_eq!(health.check_writable().unwrap_err().kind(), ErrorKind::Closed);
    }
}
