//! Memory for the bytes of blocks, for all threads.
//!
//! Merges bring blocks and readers drop them, each a little larger or smaller than the one before.
//! An allocator keeps memory for the thread that asked for it, and between blocks of other sizes:
//! glibc held 204 MiB for a cache of 154. Here memory of about one size lies together, and what one
//! thread frees another takes.
//!
//! ```text
//! region, 2 MiB (aligned; one huge page)   slab | slab | ... 16 slabs
//! slab, 128 KiB                            slot | slot | ... slots of one size | rest
//! ```
//!
//! A slab has a size as long as one of its slots is in use. Its slots are as many as one of
//! [`COUNTS`] says, so that a slot exceeds its block by 2 % on average, and 8 % at most, between
//! 1 KiB and 8 KiB. Slabs and regions with the lowest address are used first, so that those
//! with high ones become free; all free regions but one go back to the system.
//!
//! Not here: handles and reuse by a thread (`buf`), larger mappings (`pages`).
//!
//! Invariants: (1) a slab is either among the free ones, or has a size and 1 or more slots in use;
//! with all in use it is not among those of its size with free ones; (2) `used` slots are the clear
//! bits of `free` below `count`; (3) what is given out is initialised memory: a region is zeros at
//! first, and blocks of the allocator are allocated as zeros.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

use crate::base::atomic::LeafMutex;
use crate::base::pages;

/// Bytes and alignment of what is taken from the system: a huge page.
const REGION_BYTES: usize = 2 << 20;
/// Regions of a process whose pages are small: one with little memory uses no more than it fills.
const HUGE_FROM: usize = 8;
/// Bytes and alignment of a slab.
const SLAB_BYTES: usize = 128 << 10;
/// Sizes of slots are multiples of this: a cache line.
const STEP_BYTES: usize = 64;
/// Smaller blocks are left to the allocator, which is fast for them.
pub(crate) const SLOT_BYTES_MIN: usize = 1 << 10;
/// Larger blocks are left to the allocator, which maps most of them.
pub(crate) const SLOT_BYTES_MAX: usize = SLAB_BYTES / 4;

/// Numbers of slots of a slab, descending; as many sizes.
const COUNTS: [u8; SIZES] = counts();
const SIZES: usize = 16 + 16 + 29;

/// Every fourth number from 128, every second from 64, every one from 32 to 4.
const fn counts() -> [u8; SIZES] {
    let mut counts = [0; SIZES];
    let (mut i, mut count) = (0, 128_u8);
    while i < SIZES {
        counts[i] = count;
        count -= match count {
            65.. => 4,
            33..=64 => 2,
            _ => 1,
        };
        i += 1;
    }
    counts
}

const _: () = assert!(COUNTS[0] == 128 && COUNTS[SIZES - 1] == 4);

/// Bytes of a slot of size number `size`.
const fn slot_bytes(size: usize) -> usize {
    SLAB_BYTES / COUNTS[size] as usize / STEP_BYTES * STEP_BYTES
}

/// The size number for blocks of up to `n` steps, for every `n`.
static SIZE_OF_STEPS: [u8; SLOT_BYTES_MAX / STEP_BYTES + 1] = size_of_steps();

const fn size_of_steps() -> [u8; SLOT_BYTES_MAX / STEP_BYTES + 1] {
    let mut sizes = [0; SLOT_BYTES_MAX / STEP_BYTES + 1];
    let (mut steps, mut size) = (0, 0);
    while steps < sizes.len() {
        while slot_bytes(size) < steps * STEP_BYTES {
            size += 1;
        }
        sizes[steps] = size as u8;
        steps += 1;
    }
    sizes
}

/// The size number for a block of `len` bytes; `None` if it gets no slot.
fn size_for(len: usize) -> Option<usize> {
    let steps = len.div_ceil(STEP_BYTES);
    let has_slot = (SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&len);
    has_slot.then(|| SIZE_OF_STEPS.get(steps).map(|&size| usize::from(size))).flatten()
}

/// Bytes of the memory of a block of `len` bytes.
pub(crate) fn capacity_for(len: usize) -> usize {
    size_for(len).map_or(len, slot_bytes)
}

/// A piece of memory, initialised. Its owner gives it back with [`give_back`]: dropping it loses
/// the memory.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Dangling if there are no bytes.
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its bytes, as a `Vec` does.
unsafe impl Send for Piece {}
// SAFETY: shared access only reads.
unsafe impl Sync for Piece {}

impl Piece {
    /// Where it is.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes it has: [`capacity_for`] the length that it was taken for.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is a slot.
    pub(crate) fn is_slot(&self) -> bool {
        size_for(self.bytes).is_some()
    }

    /// All of it, for writing.
    #[inline]
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: `bytes` initialised bytes (invariant 3) of one owner.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// The piece that [`Piece::start`] and [`Piece::bytes`] described.
    ///
    /// # Safety
    /// They are those of a piece that was forgotten, and this is its only owner.
    pub(crate) unsafe fn from_parts(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }
}

impl Default for Piece {
    fn default() -> Self {
        Self { start: NonNull::dangling(), bytes: 0 }
    }
}

/// One slab that has a size.
#[derive(Clone, Copy, Debug)]
struct Slab {
    size: u8,
    /// A bit for each free slot.
    free: u128,
}

/// All regions, of the whole process.
#[derive(Debug, Default)]
struct Slabs {
    /// Slabs in use, by address.
    used: BTreeMap<usize, Slab>,
    /// For each size, the slabs in use that have free slots.
    open: Vec<BTreeSet<usize>>,
    /// Slabs without a size.
    free: BTreeSet<usize>,
    /// Regions, and how many of their slabs are in use.
    regions: BTreeMap<usize, usize>,
    /// Bytes of slots in use.
    slot_bytes: usize,
}

/// A leaf.
static SLABS: LeafMutex<Slabs> = LeafMutex::new(Slabs::new());

impl Slabs {
    const fn new() -> Self {
        Self {
            used: BTreeMap::new(),
            open: Vec::new(),
            free: BTreeSet::new(),
            regions: BTreeMap::new(),
            slot_bytes: 0,
        }
    }

    /// A slot of a size. `None` if the system has no memory.
    fn take(&mut self, size: usize) -> Option<NonNull<u8>> {
        if self.open.is_empty() {
            self.open.resize_with(SIZES, BTreeSet::new);
        }
        let open = self.open.get(size).and_then(|open| open.first().copied());
        let place = match open {
            Some(place) => place,
            None => self.open_slab(size)?,
        };
        let slab = self.used.get_mut(&place)?;
        let slot = slab.free.trailing_zeros() as usize;
        slab.free &= slab.free - 1;
        if slab.free == 0
            && let Some(open) = self.open.get_mut(size)
        {
            open.remove(&place);
        }
        self.slot_bytes += slot_bytes(size);
        NonNull::new(std::ptr::with_exposed_provenance_mut(place + slot * slot_bytes(size)))
    }

    /// Gives a free slab a size.
    #[cold]
    fn open_slab(&mut self, size: usize) -> Option<usize> {
        if self.free.is_empty() {
            self.add_region()?;
        }
        let place = self.free.pop_first()?;
        let count = u32::from(COUNTS[size]);
        let free = u128::MAX >> (u128::BITS - count);
        self.used.insert(place, Slab { size: size as u8, free });
        self.open.get_mut(size)?.insert(place);
        *self.regions.entry(place & !(REGION_BYTES - 1)).or_default() += 1;
        Some(place)
    }

    fn add_region(&mut self) -> Option<()> {
        let region = pages::take(REGION_BYTES, REGION_BYTES)?;
        if cfg!(any(miri, not(target_os = "linux"))) {
            // SAFETY: a new allocation of that size.
            unsafe { region.as_ptr().write_bytes(0, REGION_BYTES) };
        }
        if self.regions.len() >= HUGE_FROM {
            pages::prefer_huge(region, REGION_BYTES);
        }
        let start = region.as_ptr().expose_provenance();
        self.regions.insert(start, 0);
        self.free.extend((0..REGION_BYTES / SLAB_BYTES).map(|i| start + i * SLAB_BYTES));
        Some(())
    }

    /// Takes a slot back.
    fn give_back(&mut self, slot: usize) {
        let place = slot & !(SLAB_BYTES - 1);
        let Some(slab) = self.used.get_mut(&place) else {
            panic!("memory at {slot:#x} is of no slab");
        };
        let size = usize::from(slab.size);
        let bit = 1_u128 << ((slot - place) / slot_bytes(size));
        assert!(slab.free & bit == 0, "the slot at {slot:#x} is free already");
        slab.free |= bit;
        self.slot_bytes -= slot_bytes(size);
        let is_unused = slab.free.count_ones() == u32::from(COUNTS[size]);
        let Some(open) = self.open.get_mut(size) else { return };
        if !is_unused {
            open.insert(place);
            return;
        }
        open.remove(&place);
        self.used.remove(&place);
        self.free.insert(place);
        let region = place & !(REGION_BYTES - 1);
        if let Some(used) = self.regions.get_mut(&region) {
            *used -= 1;
            if *used == 0 {
                self.shrink();
            }
        }
    }

    /// Gives all regions without a slab in use but the first of them back to the system.
    #[cold]
    fn shrink(&mut self) {
        let unused = self.regions.iter().filter(|&(_, &used)| used == 0);
        let unused: Vec<usize> = unused.map(|(&start, _)| start).skip(1).collect();
        for start in unused {
            self.regions.remove(&start);
            (0..REGION_BYTES / SLAB_BYTES).for_each(|i| {
                self.free.remove(&(start + i * SLAB_BYTES));
            });
            let region = NonNull::new(std::ptr::with_exposed_provenance_mut(start));
            if let Some(region) = region {
                // SAFETY: `add_region` took it with this size and alignment, and none of its slabs
                // has a slot in use.
                unsafe { pages::give_back(region, REGION_BYTES, REGION_BYTES) };
            }
        }
    }

    fn use_now(&self) -> Use {
        Use { mapped: self.regions.len() * REGION_BYTES, slots: self.slot_bytes }
    }
}

/// How much memory there is for slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    /// Bytes of all regions.
    pub(crate) mapped: usize,
    /// Bytes of slots in use, those included that threads keep.
    pub(crate) slots: usize,
}

/// The memory of the process's slots.
pub(crate) fn use_now() -> Use {
    SLABS.lock().use_now()
}

/// Memory for some blocks of `len` bytes, `count` if that is a size with slots and else one.
///
/// # Panics
/// As an allocation does, if there is no memory.
pub(crate) fn take(len: usize, count: usize, out: &mut Vec<Piece>) {
    let bytes = capacity_for(len);
    match size_for(len) {
        None => out.push(allocate(bytes)),
        Some(size) => {
            let mut slabs = SLABS.lock();
            for _ in 0..count {
                let Some(start) = slabs.take(size) else {
                    handle_alloc_error(Layout::new::<[u8; REGION_BYTES]>())
                };
                out.push(Piece { start, bytes });
            }
        }
    }
}

/// Gives pieces back.
pub(crate) fn give_back(pieces: impl Iterator<Item = Piece>) {
    let mut slabs = None;
    for Piece { start, bytes } in pieces {
        if size_for(bytes).is_some() {
            slabs.get_or_insert_with(|| SLABS.lock()).give_back(start.as_ptr().addr());
        } else if bytes > 0 {
            // SAFETY: `allocate` made it with this layout.
            unsafe { dealloc(start.as_ptr(), layout(bytes)) };
        }
    }
}

fn layout(bytes: usize) -> Layout {
    #[expect(clippy::expect_used, reason = "a block is below 4 GiB")]
    Layout::array::<u8>(bytes).expect("a size of memory")
}

/// Memory of the allocator.
fn allocate(bytes: usize) -> Piece {
    if bytes == 0 {
        return Piece::default();
    }
    // SAFETY: the layout's size is not zero.
    let start = NonNull::new(unsafe { alloc_zeroed(layout(bytes)) });
    Piece { start: start.unwrap_or_else(|| handle_alloc_error(layout(bytes))), bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every length has a slot that holds it and is not much larger.
    #[test]
    fn slots_fit_their_blocks() {
        for len in SLOT_BYTES_MIN..=SLOT_BYTES_MAX {
            let bytes = capacity_for(len);
            assert!(bytes >= len && bytes.is_multiple_of(STEP_BYTES));
            assert_eq!(size_for(bytes), size_for(len), "a slot of {bytes} is found by its size");
            let most = if len <= 8 << 10 { len + len / 12 } else { len + len / 3 };
            assert!(bytes <= most, "{bytes} for {len}");
        }
        assert_eq!((capacity_for(0), capacity_for(1023)), (0, 1023));
        assert_eq!(capacity_for(SLOT_BYTES_MAX + 1), SLOT_BYTES_MAX + 1);
    }

    /// Goal: slots do not overlap, what is used is counted, and memory goes back to the system when
    /// blocks have gone. Method: random taking and giving back, with a pattern in each slot.
    #[test]
    fn slots_are_apart_and_regions_go_back() {
        let mut slabs = Slabs::new();
        let mut held: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let rounds = if cfg!(miri) { 300 } else { 20_000 };
        for round in 0..rounds {
            let grows = round < rounds / 2;
            if held.is_empty() || random(8) < if grows { 6 } else { 2 } {
                let len = SLOT_BYTES_MIN + random(7 << 10);
                let size = size_for(len).unwrap();
                let slot = slabs.take(size).unwrap();
                let mark = round as u8;
                // SAFETY: a slot of the size, which is this test's alone.
                unsafe { slot.as_ptr().write_bytes(mark, slot_bytes(size)) };
                held.push((slot, size, mark));
            } else {
                let (slot, size, mark) = held.swap_remove(random(held.len()));
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts(slot.as_ptr(), slot_bytes(size)) };
                assert!(bytes.iter().all(|&byte| byte == mark), "another block wrote here");
                slabs.give_back(slot.as_ptr().addr());
            }
            let in_use: usize = held.iter().map(|&(_, size, _)| slot_bytes(size)).sum();
            assert_eq!(slabs.use_now().slots, in_use);
        }
        let most = slabs.use_now().mapped;
        held.drain(..).for_each(|(slot, ..)| slabs.give_back(slot.as_ptr().addr()));
        assert!(slabs.use_now().mapped <= REGION_BYTES && most > REGION_BYTES);
        assert!(slabs.used.is_empty() && slabs.open.iter().all(BTreeSet::is_empty));
        assert_eq!(slabs.free.len() * SLAB_BYTES, slabs.use_now().mapped);
        let region = slabs.regions.first_key_value().map(|(&start, _)| start);
        let region = region.and_then(|r| NonNull::new(std::ptr::with_exposed_provenance_mut(r)));
        // SAFETY: the last region, without a slot in use; the slabs are not used any more.
        unsafe { pages::give_back(region.unwrap(), REGION_BYTES, REGION_BYTES) };
    }

    /// Goal: what was given back is taken before anything else, whoever asks.
    #[test]
    fn memory_goes_from_block_to_block() {
        let mut slabs = Slabs::new();
        let size = size_for(20_000).unwrap();
        let places = |slabs: &mut Slabs, count: usize| -> BTreeSet<usize> {
            (0..count).map(|_| slabs.take(size).unwrap().as_ptr().addr()).collect()
        };
        let (kept, freed) = (places(&mut slabs, 30), places(&mut slabs, 30));
        freed.iter().for_each(|&slot| slabs.give_back(slot));
        let taken = places(&mut slabs, 30);
        assert!(taken == freed && taken.is_disjoint(&kept));
        kept.iter().chain(&taken).for_each(|&slot| slabs.give_back(slot));
        assert_eq!(slabs.use_now().slots, 0);
    }

    /// Goal: a slab whose blocks have gone serves another size.
    #[test]
    fn a_slab_changes_its_size() {
        let mut pieces = Vec::new();
        take(2000, 100, &mut pieces);
        let places: BTreeSet<usize> =
            pieces.iter().map(|p| p.start.as_ptr().addr() & !(REGION_BYTES - 1)).collect();
        assert!(pieces.iter().all(|p| p.bytes == capacity_for(2000)) && places.len() <= 2);
        give_back(pieces.drain(..));
        for len in [0, 10, 40 << 10] {
            take(len, 3, &mut pieces);
            assert_eq!(pieces.iter_mut().map(|p| p.as_mut().len()).sum::<usize>(), len);
            give_back(pieces.drain(..));
        }
    }
}
