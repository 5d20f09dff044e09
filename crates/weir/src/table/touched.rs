//! How many tables the calling thread has looked into, for the heat of ranges and for experiments,
//! which count the files that a query touches; and with the feature `sim` how many blocks its
//! cursors have entered.
//!
//! A lookup looks into a table if fence and filter let it through, a cursor when it enters one of a
//! run of several. Counting is one instruction on thread-local memory. A block counts each time
//! that a cursor enters it, wherever it comes from; what is read ahead and never entered does not.

thread_local! {
    static TOUCHED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(feature = "sim")]
thread_local! {
    static BLOCKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a table that the calling thread looks into.
#[inline(always)]
pub(crate) fn touch() {
    TOUCHED.set(TOUCHED.get() + 1);
}

/// Counts a block that a cursor of the calling thread enters.
#[inline(always)]
pub(crate) fn touch_block() {
    #[cfg(feature = "sim")]
    BLOCKS.set(BLOCKS.get() + 1);
}

/// Blocks that cursors of the calling thread have entered so far.
#[cfg(feature = "sim")]
#[must_use]
pub fn blocks_entered() -> u64 {
    BLOCKS.get()
}

/// Tables that the calling thread has looked into so far.
#[inline]
#[must_use]
pub fn tables_touched() -> u64 {
    TOUCHED.get()
}
