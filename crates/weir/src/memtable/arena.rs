//! Bump allocation in chunks: many threads allocate, and all memory is freed at once.
//!
//! Not here: the content of the bytes (`list`), reuse of a single allocation.
//!
//! Invariants: (1) an allocation is aligned to the arena's `ALIGN` and never moves or overlaps
//! another one; (2) memory is freed only when the arena is dropped, so a pointer into it is valid
//! as long as the arena lives; (3) an allocation above a quarter of the largest chunk has a chunk
//! of its own, so that a value of 1 GiB wastes nothing and a chunk's unused end is below a quarter
//! of it. Chunks double from [`CHUNK_BYTES_MIN`], so that an almost empty memtable stays small; the
//! largest go to the store's [`ChunkPool`] when the arena is dropped.
//!
//! Source: LevelDB's `util/arena.h`; concurrent bump as in RocksDB's `ConcurrentArena`, with one
//! atomic add instead of per-core shards.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::pages::{self, MAPPED_BYTES_MIN, PAGE_BYTES};
use crate::memtable::pool::{CHUNK_BYTES_MAX, ChunkPool};

/// Size of the first chunk, in bytes: one page.
const CHUNK_BYTES_MIN: usize = 4096;

/// Alignment of chunks, in bytes: a cache line.
const CHUNK_ALIGN: usize = 64;

struct Chunk {
    base: NonNull<u8>,
    bytes: usize,
    /// Bytes allocated; runs past `bytes` when an allocation does not fit.
    used: AtomicUsize,
}

impl Chunk {
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, Self::align(bytes))
            .expect("chunk sizes are far below isize::MAX")
    }

    /// Alignment of a chunk of `bytes`.
    fn align(bytes: usize) -> usize {
        match bytes {
            CHUNK_BYTES_MAX.. => CHUNK_BYTES_MAX,
            MAPPED_BYTES_MIN.. => PAGE_BYTES,
            _ => CHUNK_ALIGN,
        }
    }

    /// A chunk of `bytes` uninitialised bytes, of which the first `used` are allocated already.
    fn new(bytes: usize, used: usize, pool: Option<&ChunkPool>) -> NonNull<Self> {
        assert!(bytes > 0 && used <= bytes, "chunk of {bytes} bytes with {used} in use");
        let spare = pool.filter(|_| bytes == CHUNK_BYTES_MAX).and_then(ChunkPool::take);
        let base = spare.unwrap_or_else(|| Self::memory(bytes));
        let chunk = Box::new(Self { base, bytes, used: AtomicUsize::new(used) });
        NonNull::from(Box::leak(chunk))
    }

    /// Memory for a chunk of `bytes`, with any content.
    fn memory(bytes: usize) -> NonNull<u8> {
        let layout = Self::layout(bytes);
        if bytes >= MAPPED_BYTES_MIN {
            // Most of it is unmapped when the memtable has been flushed.
            let base = pages::take(bytes, Self::align(bytes));
            let base = base.unwrap_or_else(|| handle_alloc_error(layout));
            if bytes == CHUNK_BYTES_MAX {
                advise_huge_page(base, bytes);
            }
            return base;
        }
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc(layout) };
        NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// Frees the chunk and its memory; `keep` may take the memory of one of [`CHUNK_BYTES_MAX`].
    ///
    /// # Safety
    /// `chunk` came from [`Chunk::new`], is not freed twice, and neither it nor its memory is used
    /// afterwards.
    unsafe fn free(chunk: NonNull<Self>, keep: impl FnOnce(NonNull<u8>) -> bool) {
        // SAFETY: by contract the pointer is the leaked box of `new` and is given up here.
        let chunk = unsafe { Box::from_raw(chunk.as_ptr()) };
        if chunk.bytes == CHUNK_BYTES_MAX && keep(chunk.base) {
            return;
        }
        if chunk.bytes >= MAPPED_BYTES_MIN {
            // SAFETY: `base` was taken in `new` for the same number of bytes.
            unsafe { pages::give_back(chunk.base, chunk.bytes, Self::align(chunk.bytes)) };
        } else {
            // SAFETY: `base` was allocated in `new` with the layout of the same size.
            unsafe { dealloc(chunk.base.as_ptr(), Self::layout(chunk.bytes)) };
        }
    }
}

/// Asks for a huge page: a search jumps about in tens of MiB, far more than the TLB covers with
/// small pages. Only advice: a refusal costs speed.
fn advise_huge_page(base: NonNull<u8>, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the range is one live allocation, and the advice does not change its contents.
    let advised = unsafe {
        rustix::mm::madvise(base.as_ptr().cast(), bytes, rustix::mm::Advice::LinuxHugepage)
    };
    #[cfg(all(target_os = "linux", not(miri)))]
    let _ = advised;
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (base, bytes);
}

/// All chunks, and the size of the next one.
struct Chunks {
    all: Vec<NonNull<Chunk>>,
    next_bytes: usize,
}

/// Allocates in multiples of `ALIGN` and frees everything at once. Any thread may allocate.
pub(super) struct Arena<const ALIGN: usize> {
    /// The chunk that allocations are taken from; null before the first one.
    current: AtomicPtr<Chunk>,
    chunks: Mutex<Chunks>,
    chunk_bytes_max: usize,
    /// Expected bytes of use: so much memory may be kept for the next arena.
    bytes_hint: usize,
    pool: Option<Arc<ChunkPool>>,
    /// Bytes allocated in chunks other than `current`.
    retired_bytes: AtomicU64,
    reserved_bytes: AtomicU64,
}

// SAFETY: the chunks are owned by the arena alone; `current` and `used` are atomic, the list of
// chunks is behind a mutex, and allocations are disjoint (invariant 1).
unsafe impl<const ALIGN: usize> Send for Arena<ALIGN> {}
// SAFETY: as for Send: every shared field is atomic or behind the mutex.
unsafe impl<const ALIGN: usize> Sync for Arena<ALIGN> {}

impl<const ALIGN: usize> Arena<ALIGN> {
    const ALIGN_FITS: () = assert!(ALIGN.is_power_of_two() && ALIGN <= CHUNK_ALIGN);

    /// An arena that expects about `bytes_hint` bytes of use; it allocates nothing yet. Large
    /// chunks come from `pool` and return to it.
    pub(super) fn new(bytes_hint: usize, pool: Option<Arc<ChunkPool>>) -> Self {
        const { Self::ALIGN_FITS };
        // A sixteenth keeps the unused end of the last chunk small against the whole.
        let chunk_bytes_max =
            (bytes_hint / 16).next_power_of_two().clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        Self {
            current: AtomicPtr::new(null_mut()),
            chunks: Mutex::new(Chunks { all: Vec::new(), next_bytes: CHUNK_BYTES_MIN }),
            chunk_bytes_max,
            bytes_hint,
            pool,
            retired_bytes: AtomicU64::new(0),
            reserved_bytes: AtomicU64::new(0),
        }
    }

    /// `bytes` uninitialised bytes, aligned to `ALIGN`, valid until the arena is dropped.
    #[inline]
    pub(super) fn allocate(&self, bytes: usize) -> NonNull<u8> {
        let bytes = bytes.next_multiple_of(ALIGN);
        let current = self.current.load(Ordering::Acquire);
        if !current.is_null() && bytes <= self.chunk_bytes_max / 4 {
            // SAFETY: a chunk once published in `current` lives as long as the arena.
            if let Some(place) = unsafe { Self::bump(current, bytes) } {
                return place;
            }
        }
        self.allocate_slow(bytes)
    }

    /// Takes `bytes` from `chunk`, if they fit.
    ///
    /// # Safety
    /// `chunk` points to a live chunk.
    #[inline]
    unsafe fn bump(chunk: *mut Chunk, bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: live by contract; shared access only.
        let chunk = unsafe { &*chunk };
        let start = chunk.used.fetch_add(bytes, Ordering::Relaxed);
        if start + bytes > chunk.bytes {
            return None;
        }
        // SAFETY: start + bytes is within the chunk's allocation, checked just above.
        Some(unsafe { chunk.base.add(start) })
    }

    #[cold]
    fn allocate_slow(&self, bytes: usize) -> NonNull<u8> {
        let mut chunks = self.chunks.lock();
        if bytes > self.chunk_bytes_max / 4 {
            let own = Chunk::new(bytes, bytes, None);
            chunks.all.push(own);
            self.retired_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            self.reserved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            // SAFETY: `own` was made just above and is freed on drop of the arena only.
            return unsafe { own.as_ref() }.base;
        }
        let current = self.current.load(Ordering::Acquire);
        if !current.is_null() {
            // Another thread may have made a new chunk while this one waited for the lock. SAFETY:
            // a chunk once published in `current` lives as long as the arena.
            if let Some(place) = unsafe { Self::bump(current, bytes) } {
                return place;
            }
            // SAFETY: as above.
            let full = unsafe { &*current };
            self.retired_bytes.fetch_add(full.bytes as u64, Ordering::Relaxed);
        }
        let size = chunks.next_bytes.max(bytes.next_power_of_two() * 4).min(self.chunk_bytes_max);
        chunks.next_bytes = (size * 2).min(self.chunk_bytes_max);
        let chunk = Chunk::new(size, bytes, self.pool.as_deref());
        chunks.all.push(chunk);
        self.reserved_bytes.fetch_add(size as u64, Ordering::Relaxed);
        self.current.store(chunk.as_ptr(), Ordering::Release);
        // SAFETY: `chunk` was made just above and is freed on drop of the arena only.
        unsafe { chunk.as_ref() }.base
    }

    /// Bytes allocated. Upper bound: the unused ends of full chunks count as used.
    #[inline]
    pub(super) fn used_bytes(&self) -> u64 {
        let current = self.current.load(Ordering::Acquire);
        let mut used = self.retired_bytes.load(Ordering::Relaxed);
        if !current.is_null() {
            // SAFETY: a chunk once published in `current` lives as long as the arena.
            let chunk = unsafe { &*current };
            used += chunk.used.load(Ordering::Relaxed).min(chunk.bytes) as u64;
        }
        used
    }

    /// Bytes taken from the system's allocator.
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes.load(Ordering::Relaxed)
    }
}

impl<const ALIGN: usize> Drop for Arena<ALIGN> {
    fn drop(&mut self) {
        let (pool, kept_max) = (self.pool.as_deref(), self.bytes_hint as u64);
        for chunk in self.chunks.get_mut().all.drain(..) {
            let keep = |base| pool.is_some_and(|pool| pool.keep(base, kept_max));
            // SAFETY: each chunk is in the list once, and `&mut self` means that the arena's memory
            // is no longer used (invariant 2).
            unsafe { Chunk::free(chunk, keep) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: allocations of all sizes are aligned, disjoint and stay intact. Method: fill each with
    /// its own byte and read all back at the end.
    #[test]
    fn allocations_do_not_overlap() {
        let arena = Arena::<8>::new(1 << 16, None);
        let mut places = Vec::new();
        for i in 0..if cfg!(miri) { 60 } else { 2000usize } {
            let bytes = 1 + (i * 37) % 200 + if i % 50 == 0 { 10_000 } else { 0 };
            let place = arena.allocate(bytes);
            assert_eq!(place.as_ptr() as usize % 8, 0);
            // SAFETY: `bytes` bytes were just allocated at `place`.
            unsafe { place.as_ptr().write_bytes(i as u8, bytes) };
            places.push((place, bytes));
        }
        let asked: usize = places.iter().map(|p| p.1).sum();
        assert!(arena.used_bytes() >= asked as u64);
        assert!(arena.used_bytes() <= arena.reserved_bytes());
        for (i, (place, bytes)) in places.into_iter().enumerate() {
            // SAFETY: written above, and the arena is alive.
            let slice = unsafe { std::slice::from_raw_parts(place.as_ptr(), bytes) };
            assert!(slice.iter().all(|&b| b == i as u8), "allocation {i} was overwritten");
        }
    }

    #[test]
    fn a_new_arena_holds_nothing() {
        let arena = Arena::<64>::new(64 << 20, None);
        assert_eq!((arena.used_bytes(), arena.reserved_bytes()), (0, 0));
    }
}
