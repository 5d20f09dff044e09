//! Prefetch hints: memory is requested before it is needed, so that several cache misses overlap.
//!
//! Without them every answer is the same, only later. A prefetch of an unmapped address does
//! nothing.

/// Bytes of a cache line on the machines that the hints are for.
pub(crate) const LINE_BYTES: usize = 64;

/// Brings the line at `place` into the cache, if it is mapped.
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

/// Brings `lines` cache lines from `start` on into the cache, as far as they are mapped.
#[inline(always)]
pub(crate) fn prefetch_lines(start: *const u8, lines: usize) {
    for line in 0..lines {
        prefetch(start.wrapping_add(line * LINE_BYTES));
    }
}
