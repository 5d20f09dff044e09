//! Calls that an injected panic may come out of.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir::ErrorKind;
use weir::sim::PlannedPanic;

/// A violation is a sentence.
pub(super) type Outcome<T = ()> = Result<T, String>;

/// Never held across a call that may panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a call ended.
pub(super) enum Caught<T> {
    Returned(weir::Result<T>),
    /// With an injected panic.
    Panic,
}

impl<T> Caught<T> {
    pub(super) fn is_ok(&self) -> bool {
        matches!(self, Self::Returned(Ok(_)))
    }
}

/// Runs `call`; a panic that was not injected goes on.
pub(super) fn caught<T>(call: impl FnOnce() -> weir::Result<T>) -> Caught<T> {
    survived(call).map_or(Caught::Panic, Caught::Returned)
}

/// What `call` returns; `None` if an injected panic comes out of it.
pub(super) fn survived<T>(call: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<PlannedPanic>() => None,
        Err(bug) => resume_unwind(bug),
    }
}

/// A store that was poisoned by a panic says so.
pub(super) fn check_reason(panics: usize, error: &weir::Error) -> Outcome {
    let sources = std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source());
    let tells = sources.map(ToString::to_string).any(|text| text.contains("injected"));
    if panics > 0 && error.kind() == ErrorKind::Poisoned && !tells {
        return Err(format!("the store is poisoned by a panic and does not tell of it: {error}"));
    }
    Ok(())
}
