//! Memory straight from the operating system, for buffers that are too large to leave to the
//! process's allocator.
//!
//! An allocator keeps freed memory below a threshold that it raises by itself (glibc's: up to 32
//! MiB), and can return none of it while small blocks lie in between. Filters, indexes, job buffers
//! and memtables are allocated and freed, between cached blocks, as long as the store is open: the
//! fragmentation would exceed the memory budget without being accounted. So buffers of
//! [`MAPPED_BYTES_MIN`] and above are mappings, unmapped when they are freed, but for the few MiB
//! of `kept`.
//!
//! Not here: accounting (`memory`).
//!
//! Invariants: (1) `base` is a live allocation of `capacity` elements, from the allocator if that
//! is less than [`MAPPED_BYTES_MIN`] bytes and else a mapping; dangling if `capacity` is 0; (2) the
//! first `len` elements, never more than `capacity`, are initialised. One owner; shared like a
//! `Vec`.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Buffers of at least this size are mapped: 32 KiB, where two system calls and the faults of fresh
/// pages cost little beside filling the buffer.
pub(crate) const MAPPED_BYTES_MIN: usize = 32 << 10;

/// The granule of a mapping's length: one page.
pub(crate) const PAGE_BYTES: usize = 4096;

pub(crate) use self::map::{give_back, prefer_huge, take};

#[cfg(all(target_os = "linux", not(miri)))]
mod map {
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::PAGE_BYTES;

    /// `bytes` bytes of any value at a multiple of `align`, a power of two of at least a page;
    /// `None` if there is no memory.
    pub(crate) fn take(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let len = bytes.next_multiple_of(align);
        if let Some(base) = super::kept::take(len, align) {
            return Some(base);
        }
        let slack = if align > PAGE_BYTES { align } else { 0 };
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let whole = unsafe { mmap_anonymous(null_mut(), len + slack, prot, flags) }.ok()?;
        let whole = NonNull::new(whole.cast::<u8>())?;
        if slack == 0 {
            return Some(whole);
        }
        let head = whole.as_ptr().align_offset(align);
        let tail = slack - head;
        // SAFETY: head + len is within the mapping.
        let base = unsafe { whole.add(head) };
        if head > 0 {
            // SAFETY: the first `head` bytes of the mapping, to which no reference exists.
            let _ = unsafe { munmap(whole.as_ptr().cast(), head) };
        }
        if tail > 0 {
            // SAFETY: the last `tail` bytes of the mapping, to which no reference exists.
            let _ = unsafe { munmap(base.add(len).as_ptr().cast(), tail) };
        }
        Some(base)
    }

    /// Asks for huge pages in a mapping of [`take`], so that fewer of a large memory's addresses
    /// miss the CPU's table of them. Without them everything works too.
    pub(crate) fn prefer_huge(base: NonNull<u8>, bytes: usize) {
        // SAFETY: a whole mapping; the advice changes no content.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
    }

    /// Frees memory that [`take`] returned.
    ///
    /// # Safety
    /// `base` came from [`take`] for the same `bytes` and `align`, and is not used afterwards.
    pub(crate) unsafe fn give_back(base: NonNull<u8>, bytes: usize, align: usize) {
        let len = bytes.next_multiple_of(align);
        let (base, len) = match super::kept::keep(base, len, align) {
            Some(instead) => instead,
            None => return,
        };
        // SAFETY: by contract a whole mapping of `take`; so is an earlier one that `kept` returned.
        let _ = unsafe { munmap(base.as_ptr().cast(), len) };
    }
}

/// A pool of the mappings freed last, reused before the system is asked. A fresh page costs its
/// first writer a fault (1 to 4 us), and unmapping it interrupts the other cores; job buffers and
/// the smaller chunks of memtables are allocated and freed all the time. At most
/// [`BYTES_MAX`](self::kept::BYTES_MAX) in the process, which are not accounted.
#[cfg(all(target_os = "linux", not(miri)))]
mod kept {
    use std::collections::VecDeque;
    use std::ptr::NonNull;

    /// Most bytes held: the buffers of a flush and a merge beside a small memtable.
    pub(super) const BYTES_MAX: usize = 8 << 20;

    /// Most bytes held in a simulation, which goes through as many buffers as a machine does in
    /// hours: the faults of their fresh pages took a fifth of its time.
    #[cfg(feature = "sim")]
    const SIMULATED_BYTES_MAX: usize = 64 << 20;

    /// One mapping may be at most an eighth of the bound.
    const SHARE: usize = 8;

    /// How many of the newest mappings are searched.
    const LOOK: usize = 64;

    struct Kept {
        bytes: usize,
        /// Address, length and alignment, the oldest first.
        mappings: VecDeque<(usize, usize, usize)>,
    }

    /// Not a lock of `sched`: it must not be a switch point.
    static KEPT: parking_lot::Mutex<Kept> =
        parking_lot::Mutex::new(Kept { bytes: 0, mappings: VecDeque::new() });

    fn bytes_max() -> usize {
        #[cfg(feature = "sim")]
        if crate::base::sched::sim::is_actor() {
            return SIMULATED_BYTES_MAX;
        }
        BYTES_MAX
    }

    /// A kept mapping of exactly that length and alignment, with any content.
    pub(super) fn take(len: usize, align: usize) -> Option<NonNull<u8>> {
        if len > bytes_max() / SHARE {
            return None;
        }
        let mut kept = KEPT.lock();
        let first = kept.mappings.len().saturating_sub(LOOK);
        let fits = |&(_, l, a): &(usize, usize, usize)| (l, a) == (len, align);
        let place = first + kept.mappings.range(first..).rposition(fits)?;
        let (address, ..) = kept.mappings.remove(place)?;
        kept.bytes -= len;
        NonNull::new(std::ptr::with_exposed_provenance_mut(address))
    }

    /// Keeps a mapping; returns the one to unmap instead, if any.
    pub(super) fn keep(
        base: NonNull<u8>,
        len: usize,
        align: usize,
    ) -> Option<(NonNull<u8>, usize)> {
        let bytes_max = bytes_max();
        if len > bytes_max / SHARE {
            return Some((base, len));
        }
        let mut kept = KEPT.lock();
        kept.mappings.push_back((base.as_ptr().expose_provenance(), len, align));
        kept.bytes += len;
        if kept.bytes <= bytes_max {
            return None;
        }
        let (address, len, _) = kept.mappings.pop_front()?;
        kept.bytes -= len;
        Some((NonNull::new(std::ptr::with_exposed_provenance_mut(address))?, len))
    }

    /// Bytes held.
    #[cfg(test)]
    pub(super) fn bytes() -> usize {
        KEPT.lock().bytes
    }
}

/// As on Linux, from the allocator.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod map {
    use std::alloc::{Layout, alloc, dealloc};
    use std::ptr::NonNull;

    pub(crate) fn take(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes.max(1), align).ok()?;
        // SAFETY: the layout's size is not zero.
        NonNull::new(unsafe { alloc(layout) })
    }

    pub(crate) fn prefer_huge(_base: NonNull<u8>, _bytes: usize) {}

    /// # Safety
    /// As on Linux.
    pub(crate) unsafe fn give_back(base: NonNull<u8>, bytes: usize, align: usize) {
        if let Ok(layout) = Layout::from_size_align(bytes.max(1), align) {
            // SAFETY: by contract allocated by `take` with the same layout.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}

/// A vector of plain elements whose memory, once it is large, is unmapped when it is dropped or
/// grows.
pub(crate) struct PageVec<T: Copy> {
    base: NonNull<T>,
    len: usize,
    capacity: usize,
}

// SAFETY: it owns its elements, as a `Vec` does.
unsafe impl<T: Copy + Send> Send for PageVec<T> {}
// SAFETY: shared access reads only, as for a `Vec`.
unsafe impl<T: Copy + Sync> Sync for PageVec<T> {}

impl<T: Copy> PageVec<T> {
    const SIZED: () = assert!(size_of::<T>() > 0 && align_of::<T>() <= PAGE_BYTES);

    /// An empty vector, which holds no memory.
    pub(crate) const fn new() -> Self {
        const { Self::SIZED };
        Self { base: NonNull::dangling(), len: 0, capacity: 0 }
    }

    /// An empty vector with room for `capacity` elements.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let mut vec = Self::new();
        vec.reallocate(capacity);
        vec
    }

    /// A vector of `len` times `value`.
    pub(crate) fn filled(len: usize, value: T) -> Self {
        let mut vec = Self::with_capacity(len);
        vec.resize(len, value);
        vec
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.capacity * size_of::<T>()
    }

    /// Removes the elements and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends an element.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if self.len == self.capacity {
            self.grow(1);
        }
        // SAFETY: len < capacity, so the place is in the allocation (invariant 1).
        unsafe { self.base.add(self.len).write(value) };
        self.len += 1;
    }

    /// Appends copies of `values`.
    #[inline]
    pub(crate) fn extend_from_slice(&mut self, values: &[T]) {
        if values.len() > self.capacity - self.len {
            self.grow(values.len());
        }
        // SAFETY: `values.len()` elements fit behind `len` (just ensured), and `values` cannot
        // overlap them: it is borrowed while `self` is borrowed exclusively.
        unsafe {
            self.base.add(self.len).copy_from_nonoverlapping(
                NonNull::new_unchecked(values.as_ptr().cast_mut()),
                values.len(),
            );
        }
        self.len += values.len();
    }

    /// Makes it `len` elements long; new ones are `value`.
    pub(crate) fn resize(&mut self, len: usize, value: T) {
        if len > self.capacity {
            self.grow(len - self.len);
        }
        for at in self.len..len {
            // SAFETY: at < len <= capacity.
            unsafe { self.base.add(at).write(value) };
        }
        self.len = len;
    }

    /// Makes room for `more` elements, at least doubling what there is.
    #[cold]
    fn grow(&mut self, more: usize) {
        let needed = self.len.saturating_add(more);
        self.reallocate(needed.max(self.capacity * 2));
    }

    /// Moves the elements to a new allocation of at least `capacity` elements.
    fn reallocate(&mut self, capacity: usize) {
        let mut bytes =
            Layout::array::<T>(capacity).expect("sizes are far below isize::MAX").size();
        if bytes >= MAPPED_BYTES_MIN {
            bytes = bytes.next_multiple_of(PAGE_BYTES);
        }
        let capacity = bytes / size_of::<T>();
        let base = match Self::memory(capacity) {
            Memory::None => NonNull::dangling(),
            Memory::Allocated(layout) => {
                // SAFETY: the layout's size is not zero.
                let base = unsafe { alloc(layout) };
                NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout)).cast()
            }
            Memory::Mapped(bytes) => take(bytes, PAGE_BYTES)
                .unwrap_or_else(|| handle_alloc_error(Layout::new::<[u8; PAGE_BYTES]>()))
                .cast(),
        };
        let mut new = Self { base, len: 0, capacity };
        // SAFETY: `len` elements are initialised (invariant 2) and fit the new allocation, which
        // callers make no smaller.
        unsafe { new.base.copy_from_nonoverlapping(self.base, self.len) };
        new.len = self.len;
        *self = new;
    }

    /// Where the memory of `capacity` elements comes from.
    fn memory(capacity: usize) -> Memory {
        let bytes = capacity * size_of::<T>();
        match Layout::array::<T>(capacity) {
            _ if bytes == 0 => Memory::None,
            Ok(layout) if bytes < MAPPED_BYTES_MIN => Memory::Allocated(layout),
            _ => Memory::Mapped(bytes),
        }
    }
}

enum Memory {
    None,
    Allocated(Layout),
    /// So many bytes.
    Mapped(usize),
}

impl<T: Copy> Drop for PageVec<T> {
    fn drop(&mut self) {
        match Self::memory(self.capacity) {
            Memory::None => {}
            // SAFETY: allocated in `reallocate` for the same capacity, thus with the same layout.
            Memory::Allocated(layout) => unsafe { dealloc(self.base.cast().as_ptr(), layout) },
            // SAFETY: taken in `reallocate` for the same capacity, thus the same bytes.
            Memory::Mapped(bytes) => unsafe { give_back(self.base.cast(), bytes, PAGE_BYTES) },
        }
    }
}

impl<T: Copy> Default for PageVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Deref for PageVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: invariants 1 and 2.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for PageVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: invariants 1 and 2, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl<T: Copy> From<&[T]> for PageVec<T> {
    fn from(values: &[T]) -> Self {
        let mut vec = Self::with_capacity(values.len());
        vec.extend_from_slice(values);
        vec
    }
}

impl<T: Copy> FromIterator<T> for PageVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let values = values.into_iter();
        let mut vec = Self::with_capacity(values.size_hint().0);
        values.for_each(|value| vec.push(value));
        vec
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::prng::Prng;

    /// Goal: it is a vector, on both sides of the threshold. Method: random appends, resizes and
    /// clears against a `Vec`.
    #[test]
    fn a_page_vec_is_a_vec() {
        let rounds = if cfg!(miri) { 5 } else { 200 };
        for seed in 0..rounds {
            let mut prng = Prng::new(seed);
            let (mut vec, mut oracle) = (PageVec::<u32>::new(), Vec::new());
            for _ in 0..20 {
                let values: Vec<u32> =
                    (0..prng.below(9000)).map(|_| prng.next_u64() as u32).collect();
                match prng.below(8) {
                    0 => {
                        vec.clear();
                        oracle.clear();
                    }
                    1 => {
                        let len = prng.below(30_000) as usize;
                        vec.resize(len, 7);
                        oracle.resize(len, 7);
                    }
                    2 => values.iter().take(99).for_each(|&value| {
                        vec.push(value);
                        oracle.push(value);
                    }),
                    _ => {
                        vec.extend_from_slice(&values);
                        oracle.extend_from_slice(&values);
                    }
                }
                assert_eq!(*vec, *oracle, "seed {seed}");
                assert!(vec.memory_bytes() >= 4 * oracle.len());
                assert!(vec.memory_bytes() <= 8 * oracle.capacity().max(1 << 14) + PAGE_BYTES);
            }
            assert_eq!(*PageVec::from(&oracle[..]), *oracle);
            assert_eq!(*oracle.iter().copied().collect::<PageVec<u32>>(), *oracle);
        }
    }

    /// A large buffer's memory is gone when it is dropped.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn large_memory_goes_back_at_once() {
        let mapped = |at: usize| {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| {
                let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
                let number = |digits| usize::from_str_radix(digits, 16).unwrap();
                (number(start)..number(end)).contains(&at)
            })
        };
        assert_eq!(PageVec::filled(MAPPED_BYTES_MIN - 1, 1u8).memory_bytes(), MAPPED_BYTES_MIN - 1);
        // Another thread may map the same address at once, but not every time.
        let gone = (0..100).any(|_| {
            let vec = PageVec::filled(kept::BYTES_MAX, 1u8);
            let at = vec.as_ptr().addr();
            assert_eq!((at % PAGE_BYTES, mapped(at)), (0, true));
            drop(vec);
            !mapped(at)
        });
        assert!(gone);
    }

    /// Goal: a buffer's memory is reused, and never more than the bound is held. Method: a length
    /// that no other test uses; then many times the bound.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_little_is_kept() {
        // Other tests may displace it between the two, but not every time.
        let again = (0..100).any(|_| {
            let first = PageVec::<u8>::with_capacity(77 << 12);
            let place = first.base;
            drop(first);
            let between = PageVec::<u8>::with_capacity(78 << 12);
            assert_ne!(between.base, place);
            PageVec::<u8>::with_capacity(77 << 12).base == place
        });
        assert!(again);
        let many: Vec<_> = (0..40).map(|_| PageVec::filled(1 << 20, 1u8)).collect();
        drop(many);
        assert!(kept::bytes() <= kept::BYTES_MAX.max(64 << 20));
    }
}
