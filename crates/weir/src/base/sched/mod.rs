//! The one door to waiting: mutexes, condition variables, threads and delays.
//!
//! On a real machine these are the operating system's. In simulation (feature `sim`, module `sim`)
//! exactly one actor runs at a time, every lock, wait and simulated device request is a switch
//! point, at which the seed chooses the next actor, and delays move the virtual clock. Callers see
//! no difference: a thread-local says whether the calling thread is an actor. Without the feature
//! this is a thin layer that the compiler removes.
//!
//! INVARIANT: code that runs in a simulation waits through this module only. An actor that waits on
//! anything else (a `OnceLock` whose initialiser does I/O, a channel, a foreign mutex held across a
//! switch point) keeps the baton and stops the simulation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};

#[cfg(feature = "sim")]
pub mod sim;

/// The virtual time of the simulation that the calling thread is an actor of; `None` on a real
/// machine.
#[inline]
pub(crate) fn virtual_nanos() -> Option<u64> {
    #[cfg(feature = "sim")]
    return sim::now_nanos();
    #[cfg(not(feature = "sim"))]
    None
}

/// The next number in place of the operating system's entropy in the simulation that the calling
/// thread is an actor of; `None` on a real machine.
pub(crate) fn virtual_entropy() -> Option<u64> {
    #[cfg(feature = "sim")]
    return sim::entropy();
    #[cfg(not(feature = "sim"))]
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
    #[cfg_attr(feature = "sim", track_caller)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(feature = "sim")]
        sim::before_lock(&self.real);
        MutexGuard { real: self.real.lock() }
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

#[cfg(feature = "sim")]
impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        // The mutex is released right after this, and no other actor runs in between.
        sim::before_unlock(parking_lot::MutexGuard::mutex(&self.real));
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
    #[cfg_attr(feature = "sim", track_caller)]
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        #[cfg(feature = "sim")]
        if sim::wait(self, &mut guard.real, None).is_some() {
            return;
        }
        self.real.wait(&mut guard.real);
    }

    /// As [`wait`](Self::wait), for at most `timeout`. True if the time ran out.
    #[cfg_attr(feature = "sim", track_caller)]
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        #[cfg(feature = "sim")]
        if let Some(timed_out) = sim::wait(self, &mut guard.real, Some(timeout)) {
            return timed_out;
        }
        self.real.wait_for(&mut guard.real, timeout).timed_out()
    }

    /// Wakes every waiter.
    pub(crate) fn notify_all(&self) {
        #[cfg(feature = "sim")]
        if sim::notify(self, true) {
            return;
        }
        self.real.notify_all();
    }
}

/// A running thread (or simulated actor) that can be waited for. Dropping it lets it run on.
pub(crate) struct Thread {
    handle: Handle,
}

enum Handle {
    Real(std::thread::JoinHandle<()>),
    #[cfg(feature = "sim")]
    Actor(sim::ActorHandle),
}

impl Thread {
    /// Waits until it has ended. True if it ended without a panic.
    #[cfg_attr(feature = "sim", track_caller)]
    pub(crate) fn join(self) -> bool {
        match self.handle {
            Handle::Real(real) => real.join().is_ok(),
            #[cfg(feature = "sim")]
            Handle::Actor(actor) => actor.join(),
        }
    }
}

/// Starts a thread (or a simulated actor, if the caller is one).
///
/// # Errors
/// The operating system's error if it has no thread to give.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<Thread> {
    #[cfg(feature = "sim")]
    if sim::is_actor() {
        return Ok(Thread { handle: Handle::Actor(sim::spawn(name, body)?) });
    }
    let real = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
    Ok(Thread { handle: Handle::Real(real) })
}

/// Runs `body`; a panic in it becomes an error, so that no thread waits forever for one that has
/// panicked. In a simulation an unplanned panic propagates and ends the run, so that no campaign
/// misses it.
///
/// # Errors
/// What `body` returns; `Poisoned` with the panic's text.
pub(crate) fn catch_panic<T>(what: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let payload = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => return result,
        Err(payload) => payload,
    };
    #[cfg(feature = "sim")]
    let payload = sim::only_planned(payload);
    let text = payload.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
    Err(Error::new(ErrorKind::Poisoned, format!("{what} panicked, which is a bug: {text}")))
}

/// Sleeps for `duration` (of virtual time, in simulation).
#[cfg_attr(feature = "sim", track_caller)]
pub(crate) fn delay(duration: Duration) {
    #[cfg(feature = "sim")]
    if sim::delay(duration) {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "this is the door to sleeping")]
    std::thread::sleep(duration);
}

/// Whether spinning can be shorter than sleeping: another thread can run meanwhile. Never in a
/// simulation, where none can.
pub(crate) fn can_wait_awake() -> bool {
    #[expect(clippy::disallowed_methods, reason = "it decides how to wait, and starts no threads")]
    let processors = std::thread::available_parallelism();
    virtual_nanos().is_none() && processors.is_ok_and(|n| n.get() > 1)
}

/// Spins, then yields, until `done`, for about as long as a wake-up takes. False if that was not
/// long enough, or if other threads want the processor.
///
/// Source: RocksDB's `WriteThread::AwaitState`, which spins, then yields while yielding is fast.
pub(crate) fn wait_awake(done: impl Fn() -> bool) -> bool {
    /// About 2 µs, in which two threads pass a cache line back and forth some ten times: less than
    /// one sleep and wake-up.
    const SPINS: u32 = 50;
    /// Twice what a sleeper needed to run again (20 to 30 µs on virtual machines of 2 cores).
    const NANOS_MAX: u64 = 50_000;
    /// A yield that takes longer let another thread run; one that did not takes 0.3 to 0.5 µs.
    const SLOW_YIELD_NANOS: u64 = 3_000;
    const SLOW_YIELDS_MAX: u32 = 3;
    if virtual_nanos().is_some() {
        return false;
    }
    for _ in 0..SPINS {
        if done() {
            return true;
        }
        std::hint::spin_loop();
    }
    let started = crate::base::clock::now_nanos();
    let (mut now, mut slow) = (started, 0);
    while now - started < NANOS_MAX && slow < SLOW_YIELDS_MAX {
        std::thread::yield_now();
        if done() {
            return true;
        }
        let before = std::mem::replace(&mut now, crate::base::clock::now_nanos());
        slow += u32::from(now - before > SLOW_YIELD_NANOS);
    }
    false
}

/// A place where a simulation may let another actor run. Free on a real machine.
///
/// It stands before every load and store of an atomic or a pointer that is part of a lock-free
/// protocol: without it a simulation cannot run another actor between two of them, and never finds
/// the bugs there. Not to be called under a lock other than this module's [`Mutex`].
#[inline]
pub(crate) fn switch_point() {
    #[cfg(feature = "sim")]
    sim::switch_point();
}

/// Runs `f` without a switch to another actor: it calls into a library that holds a lock of its own
/// while it clones, compares or drops what is ours. Nothing on a real machine.
#[inline]
pub(crate) fn without_switches<T>(f: impl FnOnce() -> T) -> T {
    #[cfg(feature = "sim")]
    return sim::without_switches(f);
    #[cfg(not(feature = "sim"))]
    f()
}

/// A place behind such a load and before the use of its result, which may be stale by then. Only a
/// simulation that pauses actors (`sim::Settings::pause_one_in`) switches here.
#[inline]
pub(crate) fn pause_point() {
    #[cfg(feature = "sim")]
    sim::pause_point();
}
