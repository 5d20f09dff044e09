//! The one door to time.
//!
//! Durations are measured on a monotonic clock in nanoseconds. In simulation time is virtual: it
//! moves only when the scheduler moves it.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since an arbitrary start; never goes backwards. Virtual inside a simulation.
#[inline]
pub(crate) fn now_nanos() -> u64 {
    if let Some(virtual_now) = crate::base::sched::virtual_nanos() {
        return virtual_now;
    }
    static START: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "this is the door to the monotonic clock")]
    let now = Instant::now();
    now.duration_since(*START.get_or_init(|| now)).as_nanos() as u64
}

/// Nanoseconds since 1970 by the wall clock, 0 if it is set earlier. Only for people to read;
/// nothing in the engine relies on it being monotonic.
pub(crate) fn unix_nanos() -> u64 {
    if let Some(virtual_now) = crate::base::sched::virtual_nanos() {
        return virtual_now;
    }
    #[expect(clippy::disallowed_methods, reason = "this is the door to the wall clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}
