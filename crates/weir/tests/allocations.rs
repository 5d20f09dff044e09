//! What reads of cached blocks allocate: nothing, but the value that a caller wants to keep.
//!
//! The allocator counts for each thread, so that flushes and merges do not disturb.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use weir::{Db, Options};

const KEYS: u32 = 20_000;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // At the end of a thread its counter may be gone.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; `System` gave the memory.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread in `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn key(i: u32) -> [u8; 4] {
    (i * 7919 % KEYS).to_be_bytes()
}

/// A store of two runs with everything in the block cache.
fn cached(path: &std::path::Path) -> Db {
    let options = Options::default().table_bytes(64 << 10);
    let builder = Db::builder(path).memory_budget(64 << 20).block_cache_bytes(16 << 20);
    let db = builder.default_options(options).open().expect("open");
    for part in [0..KEYS, 0..KEYS / 4] {
        for i in part {
            db.put(key(i), [b'v'; 100]).expect("put");
        }
        db.flush().expect("flush");
    }
    db.wait_idle().expect("idle");
    for i in 0..KEYS {
        assert!(db.get(key(i)).expect("get").is_some());
    }
    db
}

/// Goal: a lookup whose block is cached allocates nothing, found or not; a get copies its value.
#[test]
fn a_cached_get_allocates_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = cached(dir.path());
    let misses = db.metrics().cache_foreground.misses;
    let (mut bytes, mut value) = (0, Vec::with_capacity(100));
    let count = allocations(|| {
        for i in 0..KEYS {
            assert!(db.get_into(key(i), &mut value).expect("get"));
            bytes += value.len();
            assert!(db.get((i + KEYS).to_be_bytes()).expect("get").is_none());
        }
    });
    assert_eq!(allocations(|| drop(db.get(key(0)).expect("get"))), 1);
    assert_eq!(db.metrics().cache_foreground.misses, misses, "not all of it was cached");
    assert_eq!((bytes, count), (100 * KEYS as usize, 0));
}

/// Goal: a cursor that has moved once allocates nothing more while it seeks and steps through
/// cached blocks, whatever runs it merges.
#[test]
fn a_cached_cursor_allocates_nothing_more() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = cached(dir.path());
    let mut cursor = db.cursor();
    let mut steps = |keys: std::ops::Range<u32>| {
        for i in keys {
            cursor.seek(key(i));
            for _ in 0..10 {
                if cursor.valid() {
                    cursor.next();
                }
            }
            cursor.status().expect("status");
        }
    };
    steps(0..10);
    let count = allocations(|| steps(0..KEYS / 10));
    assert_eq!(count, 0);
}
