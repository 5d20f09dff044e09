//! Asking for memory before it is needed, so that several cache misses are waited for at once.
//!
//! A hint: without it everything gives the same answers, more slowly. A prefetch of an address that
//! is no memory does nothing.

/// Bytes of a cache line on the machines that the hints are meant for.
pub(crate) const LINE_BYTES: usize = 64;

/// Brings the line at `place` into the cache, if it is memory.
#[inline(always)]
pub(crate) fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address has no effect but on the cache.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

/// Brings `lines` cache lines from `start` on into the cache, as far as they are memory.
#[inline(always)]
pub(crate) fn prefetch_lines(start: *const u8, lines: usize) {
    for line in 0..lines {
        prefetch(start.wrapping_add(line * LINE_BYTES));
    }
}
