//! How many tables the calling thread has looked into: for the heat of ranges, and for experiments,
//! which count the files that a query touches.
//!
//! A lookup looks into a table if fence and filter let it through, a cursor when it enters one of a
//! run of several. Counting is one instruction on thread-local memory.

thread_local! {
    static TOUCHED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a table that the calling thread looks into.
#[inline(always)]
pub(crate) fn touch() {
    TOUCHED.set(TOUCHED.get() + 1);
}

/// Tables that the calling thread has looked into so far.
#[inline]
#[must_use]
pub fn tables_touched() -> u64 {
    TOUCHED.get()
}
