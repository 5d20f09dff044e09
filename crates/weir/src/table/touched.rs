//! How many tables the calling thread has looked into: for experiments, which count the files that
//! a query touches. Without the feature `sim` nothing is counted.
//!
//! A lookup looks into a table if fence and filter let it through, a cursor when it enters one.

#[cfg(feature = "sim")]
thread_local! {
    static TOUCHED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a table that the calling thread looks into.
#[inline(always)]
pub(crate) fn touch() {
    #[cfg(feature = "sim")]
    TOUCHED.set(TOUCHED.get() + 1);
}

/// Tables that the calling thread has looked into so far.
#[cfg(feature = "sim")]
#[must_use]
pub fn tables_touched() -> u64 {
    TOUCHED.get()
}
