//! The one door to waiting: mutexes, condition variables, threads and delays.
//!
//! On a real machine these are the operating system's. In simulation (feature `sim`) exactly one
//! actor runs at a time, every wait and every simulated device request is a switch point chosen by
//! the seed, and delays move the virtual clock. The code above cannot tell the difference.

use std::time::Duration;

/// The virtual time of the simulation that the calling thread is an actor of; `None` on a real
/// machine.
#[inline]
pub(crate) fn virtual_nanos() -> Option<u64> {
    None
}

/// Mutual exclusion. Not re-entrant, never poisoned: a panicking holder releases it.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    real: parking_lot::Mutex<T>,
}

/// Exclusive access to what a [`Mutex`] protects.
pub(crate) struct MutexGuard<'a, T> {
    real: parking_lot::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub(crate) const fn new(value: T) -> Self {
        Self { real: parking_lot::Mutex::new(value) }
    }

    /// Waits until the mutex is free and takes it.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { real: self.real.lock() }
    }

    /// Takes the mutex if it is free.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.real.try_lock().map(|real| MutexGuard { real })
    }
}

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.real
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.real
    }
}

/// Waiting for a change of what a [`Mutex`] protects.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    real: parking_lot::Condvar,
}

impl Condvar {
    /// A condition variable.
    pub(crate) const fn new() -> Self {
        Self { real: parking_lot::Condvar::new() }
    }

    /// Releases the mutex, waits for a notification, takes the mutex again. May wake without one:
    /// call it in a loop over the condition.
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.real.wait(&mut guard.real);
    }

    /// As [`wait`](Self::wait), for at most `timeout`. True if the time ran out.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        self.real.wait_for(&mut guard.real, timeout).timed_out()
    }

    /// Wakes one waiter.
    pub(crate) fn notify_one(&self) {
        self.real.notify_one();
    }

    /// Wakes every waiter.
    pub(crate) fn notify_all(&self) {
        self.real.notify_all();
    }
}

/// A running thread (or simulated actor) that can be waited for.
pub(crate) struct Thread {
    real: std::thread::JoinHandle<()>,
}

impl Thread {
    /// Waits until it has ended. True if it ended without a panic.
    pub(crate) fn join(self) -> bool {
        self.real.join().is_ok()
    }
}

/// Starts a thread (or a simulated actor, if the caller is one).
///
/// # Errors
/// The operating system's error if it has no thread to give.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<Thread> {
    let real = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
    Ok(Thread { real })
}

/// Does nothing for `duration` (of virtual time, in simulation).
pub(crate) fn delay(duration: Duration) {
    #[expect(clippy::disallowed_methods, reason = "this is the door to sleeping")]
    std::thread::sleep(duration);
}

/// A place where a simulation may let another actor run. Free on a real machine.
#[inline]
pub(crate) fn switch_point() {}
