//! A hit of the block cache allocates nothing and frees nothing.
#![cfg(feature = "sim")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use weir::sim::{Eviction, RacedCache};

/// The system's allocator; counts the calls of each thread.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // Without a counter the thread is at its end.
    let _ended = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: as the system's allocator, which is called with what came in.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count();
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_hit_allocates_nothing() {
    let cache = RacedCache::new(8 << 20, Eviction::default());
    let table = cache.table(1);
    (0..1000).for_each(|ordinal| table.insert(ordinal, 4000));
    assert!(table.get(0), "the thread's group of counters is made by its first lookup");
    let before = CALLS.get();
    let hits = (0..10_000).filter(|i| table.get(i % 1000)).count();
    let misses = (0..10_000).filter(|i| !table.get(1000 + i)).count();
    assert_eq!((hits, misses), (10_000, 10_000));
    assert_eq!(CALLS.get() - before, 0);
    table.insert(1000, 4000);
    assert!(CALLS.get() > before, "the counter counts");
}
