//! What an actor does at the doors that wait: mutexes, condition variables, locks of others.

use std::panic::Location;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Wait, with_actor};
use crate::base::sched::Condvar;

/// Runs `f` without a switch to another actor.
pub(in crate::base::sched) fn without_switches<T>(f: impl FnOnce() -> T) -> T {
    struct Still;
    impl Drop for Still {
        fn drop(&mut self) {
            with_actor(|me| me.still.set(me.still.get() - 1));
        }
    }
    let still = with_actor(|me| me.still.set(me.still.get() + 1)).map(|()| Still);
    let result = f();
    drop(still);
    result
}

fn address<T>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

/// A switch point, then a wait until `mutex` is free. No other actor runs before the caller takes
/// it.
#[inline]
#[track_caller]
pub(in crate::base::sched) fn before_lock<T>(mutex: &parking_lot::Mutex<T>) {
    let location = Location::caller();
    with_actor(|me| {
        me.pass();
        while mutex.is_locked() {
            me.block(Wait::Mutex(address(mutex)), None, location);
        }
    });
}

/// Lets one of the actors that wait for `mutex` try again.
#[inline]
pub(in crate::base::sched) fn before_unlock<T>(mutex: &parking_lot::Mutex<T>) {
    with_actor(|me| {
        if me.shared.waiting_for_mutex.load(Ordering::Relaxed) > 0 {
            me.shared.state.lock().wake(Wait::Mutex(address(mutex)), false);
        }
    });
}

/// Waits on a condition variable; `None` if the caller is no actor, else whether the time ran out.
#[track_caller]
pub(in crate::base::sched) fn wait<T>(
    condvar: &Condvar,
    guard: &mut parking_lot::MutexGuard<'_, T>,
    timeout: Option<Duration>,
) -> Option<bool> {
    let location = Location::caller();
    with_actor(|me| {
        let mutex = parking_lot::MutexGuard::mutex(guard);
        before_unlock(mutex);
        let deadline = timeout.map(|timeout| me.deadline(timeout));
        parking_lot::MutexGuard::unlocked(guard, || {
            let timed_out = me.block(Wait::Condvar(address(condvar)), deadline, location);
            while mutex.is_locked() {
                me.block(Wait::Mutex(address(mutex)), None, location);
            }
            timed_out
        })
    })
}

/// Wakes waiters; false if the caller is no actor.
pub(in crate::base::sched) fn notify(condvar: &Condvar, all: bool) -> bool {
    with_actor(|me| me.shared.state.lock().wake(Wait::Condvar(address(condvar)), all)).is_some()
}
