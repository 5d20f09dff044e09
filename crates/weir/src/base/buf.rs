//! The bytes of one block, behind a counted handle.
//!
//! Beside the count lie the marks of the entries that were read (`heat`).
//!
//! Not here: the count (`frame`), the meaning of the bytes, and references into them (`value`).
//! Invariants: (1) the bytes behind a [`Buf`] never change once a second handle exists; (2) a thread keeps at most
//! [`SPARE_BYTES_MAX`] bytes of freed blocks' memory, for its next blocks; (3) reused memory has no
//! marks; (4) the pool, where threads leave what they do not keep, holds at most what the block
//! caches have room for and held once: they say how much ([`Room`]).
//!
//! Why memory is kept: a full cache evicts a block for each one it admits, and blocks differ
//! slightly in size, so that the allocator coalesces and splits chunks for each of them: 13 % of
//! the time of scans that miss the cache (glibc 2.41, blocks of 4 KiB). And an allocator keeps
//! memory by the thread that allocated it: blocks that merges bring and readers drop, and the other
//! way round, would take up to twice the cache. So what is freed in a cache's room is for all
//! threads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::base::atomic::LeafMutex;
use crate::base::frame::Handle;
use crate::base::heat::{Heat, HeatCell};

/// Largest block, in bytes: its length and that of its memory fit 32 bits. Decoders refuse what
/// says that it is larger; the engine writes values of up to 1 GiB.
pub(crate) const BLOCK_BYTES_MAX: usize = u32::MAX as usize - STEP_BYTES;

/// Smaller blocks are left to the allocator, which is fast for them.
const SPARE_BYTES_MIN: usize = 1 << 10;
/// Capacities are rounded up to a multiple of this, so that blocks of about the same size can reuse
/// each other's memory: half a step is lost on average, less than 1 % of 4 KiB.
const STEP_BYTES: usize = 64;
/// Most bytes that a thread keeps: eight blocks of 4 KiB.
const SPARE_BYTES_MAX: usize = 32 << 10;
/// Blocks' memory that moves between a thread and the pool at a time.
const BATCH: usize = 4;
/// Reused memory may exceed the block that gets it by the block's length divided by this.
const SLACK_DIVISOR: usize = 32;

/// The uncompressed bytes of one block, as the block cache holds them. Cloning it clones a handle.
///
/// The reference count does not lie beside the bytes: cloning a handle does not miss the CPU's
/// cache on the block, so that the misses of several blocks can overlap.
#[derive(Clone, Default)]
pub(crate) struct Buf(Option<Handle>);

/// Most bytes of memory for a block of `len`.
fn capacity_max(len: usize) -> usize {
    len + (len / SLACK_DIVISOR).max(STEP_BYTES)
}

/// Whether memory of `capacity` bytes may hold a block of `len`.
fn fits(capacity: usize, len: usize) -> bool {
    capacities(len).contains(&capacity)
}

/// What memory for a block of `len` may have. In a simulation, that of new memory alone: what a
/// cache holds, and with it what leaves a buffer list, must not depend on what other threads of the
/// process have freed.
fn capacities(len: usize) -> RangeInclusive<usize> {
    #[cfg(feature = "sim")]
    if crate::base::sched::sim::is_actor() {
        return capacity_for(len)..=capacity_for(len);
    }
    len..=capacity_max(len)
}

/// Memory of freed blocks, kept for the next ones.
struct Spares {
    kept: Vec<Vec<u8>>,
    bytes: usize,
}

thread_local! {
    static SPARES: RefCell<Spares> = const { RefCell::new(Spares { kept: Vec::new(), bytes: 0 }) };
}

impl Spares {
    /// Memory for `len` bytes, the most recently kept first: it is still in the CPU's cache.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let at = self.kept.iter().rposition(|spare| fits(spare.capacity(), len))?;
        let spare = self.kept.remove(at);
        self.bytes -= spare.capacity();
        Some(spare)
    }

    /// Keeps `memory`, in place of the oldest spares, which may fit no block: those are the pool's.
    fn keep(&mut self, memory: Vec<u8>) {
        self.bytes += memory.capacity();
        self.kept.push(memory);
        if self.bytes > SPARE_BYTES_MAX {
            let mut over = self.bytes - SPARE_BYTES_MAX;
            let count = self.kept.iter().take_while(|spare| {
                let is_over = over > 0;
                over = over.saturating_sub(spare.capacity());
                is_over
            });
            let count = count.count().max(BATCH.min(self.kept.len() / 2));
            let oldest = self.kept.drain(..count);
            POOL.lock().put(oldest.inspect(|spare| self.bytes -= spare.capacity()));
        }
    }

    /// Memory for `len` bytes out of the pool, and some more of it for the next blocks.
    fn take_from_pool(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut taken = POOL.lock().take(len);
        let first = taken.pop()?;
        self.bytes += taken.iter().map(Vec::capacity).sum::<usize>();
        self.kept.append(&mut taken);
        Some(first)
    }
}

/// Memory of freed blocks for the blocks of all threads, by capacity.
struct Pool {
    kept: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
    /// Bytes that it may hold: the room of all caches.
    bytes_max: usize,
}

/// Locks: a leaf.
static POOL: LeafMutex<Pool> =
    LeafMutex::new(Pool { kept: BTreeMap::new(), bytes: 0, bytes_max: 0 });

impl Pool {
    /// Keeps what there is room for; the rest is freed.
    fn put(&mut self, memory: impl Iterator<Item = Vec<u8>>) {
        for memory in memory {
            let bytes = memory.capacity();
            if self.bytes + bytes <= self.bytes_max {
                self.bytes += bytes;
                self.kept.entry(bytes).or_default().push(memory);
            }
        }
    }

    /// Memory for some blocks of `len` bytes. If there is none, as much of other sizes is freed:
    /// blocks have got another size.
    fn take(&mut self, len: usize) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        while taken.len() < BATCH {
            let fitting = self.kept.range_mut(capacities(len)).next();
            let Some((&bytes, kept)) = fitting else { break };
            taken.extend(kept.pop());
            self.bytes -= bytes;
            if kept.is_empty() {
                self.kept.remove(&bytes);
            }
        }
        if taken.is_empty() {
            self.free_down_to(self.bytes.saturating_sub(len));
        }
        taken
    }

    /// Frees memory of the sizes of which there is the most, until `bytes_max` are left.
    fn free_down_to(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let most = self.kept.iter().max_by_key(|(bytes, kept)| *bytes * kept.len());
            let Some((&bytes, _)) = most else { return };
            let mut kept = self.kept.remove(&bytes).unwrap_or_default();
            while self.bytes > bytes_max && kept.pop().is_some() {
                self.bytes -= bytes;
            }
            if !kept.is_empty() {
                self.kept.insert(bytes, kept);
            }
        }
    }
}

/// The room of one cache: bytes that it has held and now has not.
#[derive(Debug, Default)]
pub(crate) struct Room(LeafMutex<usize>);

impl Room {
    /// The pool may keep so many bytes for this cache from now on.
    pub(crate) fn set(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut held = self.0.lock();
        let mut pool = POOL.lock();
        pool.bytes_max = pool.bytes_max.saturating_sub(*held).saturating_add(bytes);
        *held = bytes;
        let bytes_max = pool.bytes_max;
        pool.free_down_to(bytes_max);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A spare that fits `len` bytes, if there is one.
fn spare_for(len: usize) -> Option<Vec<u8>> {
    if len < SPARE_BYTES_MIN {
        return None;
    }
    // In the destructor of another thread-local the spares may be gone already.
    let take = |spares: &mut Spares| spares.take(len).or_else(|| spares.take_from_pool(len));
    SPARES.try_with(|spares| take(&mut spares.borrow_mut())).ok().flatten()
}

/// Memory with `content`.
fn filled(content: &[u8]) -> Vec<u8> {
    let len = content.len();
    let mut memory = spare_for(len).unwrap_or_else(|| Vec::with_capacity(capacity_for(len)));
    memory.clear();
    memory.extend_from_slice(content);
    memory
}

/// The capacity of new memory for `len` bytes.
fn capacity_for(len: usize) -> usize {
    if len < SPARE_BYTES_MIN { len } else { len.next_multiple_of(STEP_BYTES) }
}

/// Keeps the memory of a block that is no more among the thread's spares.
pub(super) fn recycle(memory: Vec<u8>) {
    if (SPARE_BYTES_MIN..=SPARE_BYTES_MAX).contains(&memory.capacity()) {
        // Without spares it is freed.
        let _ = SPARES.try_with(|spares| spares.borrow_mut().keep(memory));
    }
}

impl Buf {
    fn holding(bytes: Vec<u8>, heat: HeatCell) -> Self {
        Self(Some(Handle::new(bytes, heat)))
    }

    /// A block with `content` that a merge hands over in `period` of the cache.
    pub(crate) fn handed_over(content: &[u8], heat: Heat, period: u64) -> Self {
        Self::holding(filled(content), HeatCell::handed(heat, period))
    }

    /// A block of `len` bytes, all of which `fill` writes.
    ///
    /// # Errors
    /// That of `fill`.
    pub(crate) fn written<E>(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        // Where the allocator maps new memory, the system has zeroed it.
        let mut memory = spare_for(len).unwrap_or_else(|| vec![0; capacity_for(len)]);
        memory.resize(len, 0);
        fill(&mut memory)?;
        Ok(Self::holding(memory, HeatCell::default()))
    }

    /// A block of `len` unspecified bytes.
    #[cfg(test)]
    pub(crate) fn unfilled(len: usize) -> Self {
        let written: Result<_, std::convert::Infallible> = Self::written(len, |_| Ok(()));
        written.unwrap_or_default()
    }

    /// The block behind `handle`.
    #[inline]
    pub(crate) fn from_handle(handle: Handle) -> Self {
        Self(Some(handle))
    }

    /// Its handle; `None` if it holds nothing.
    pub(crate) fn into_handle(self) -> Option<Handle> {
        self.0
    }

    /// Marks entries as read in `period` of the cache; see [`heat::mark`](super::heat::mark).
    #[inline]
    pub(crate) fn touch(&self, marks: u64, period: u64) {
        if let Some(block) = &self.0 {
            block.heat().touch(marks, period);
        }
    }

    /// The marks of its entries in `period` of the cache.
    pub(crate) fn heat(&self, period: u64) -> Heat {
        self.0.as_ref().map_or(Heat::COLD, |block| block.heat().get(period))
    }

    /// Whether it was handed over and no entry of it was read since.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn is_unread(&self) -> bool {
        self.0.as_ref().is_some_and(|block| block.heat().is_unread())
    }

    /// A buffer with `content`: in this one's memory if this is its only handle and the size fits,
    /// in other memory otherwise.
    pub(crate) fn refill(&mut self, content: &[u8]) -> Self {
        let fit = |capacity| fits(capacity, content.len());
        match self.0.as_mut().is_some_and(|block| block.refill(content, fit)) {
            true => self.clone(),
            false => Self::from(content),
        }
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], Handle::bytes)
    }

    /// Bytes of memory it occupies, the handle not included.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Handle::memory_bytes)
    }
}

impl From<&[u8]> for Buf {
    fn from(bytes: &[u8]) -> Self {
        Self::holding(filled(bytes), HeatCell::default())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;

    fn spare_bytes() -> usize {
        SPARES.with(|spares| {
            let spares = spares.borrow();
            assert_eq!(spares.bytes, spares.kept.iter().map(Vec::capacity).sum());
            spares.bytes
        })
    }

    /// Goal: a freed block's memory is reused by every constructor, never shows its old content,
    /// and a thread keeps a bounded amount of it.
    #[test]
    fn memory_goes_from_block_to_block() {
        let first = Buf::from(&[1; 4000][..]);
        let place = first.bytes().as_ptr();
        assert_eq!(first.memory_bytes(), 4032);
        drop(first);
        assert_eq!(spare_bytes(), 4032);
        let second = Buf::from(&[2; 3950][..]);
        assert_eq!((second.bytes().as_ptr(), spare_bytes()), (place, 0));
        assert!(second.bytes().iter().all(|&b| b == 2) && second.bytes().len() == 3950);
        drop(second);
        let second = Buf::handed_over(&[2; 3950], Heat::default(), 5);
        assert!(second.bytes().as_ptr() == place && second.is_unread());
        second.touch(1, 5);
        assert_eq!((second.heat(5).marks(), second.is_unread()), (1, false));
        drop(second);
        let written: Result<_, ()> = Buf::written(4020, |bytes| {
            bytes.fill(3);
            Ok(())
        });
        let mut third = written.unwrap();
        assert_eq!(third.heat(5), Heat::COLD);
        assert_eq!((third.bytes().as_ptr(), third.bytes().len()), (place, 4020));
        let fourth = third.refill(&[4; 3950]);
        assert!(fourth.bytes().as_ptr() == place && fourth.bytes() == [4; 3950]);
        let fifth = third.refill(&[5; 3950]);
        assert!(fifth.bytes().as_ptr() != place && fourth.bytes() == [4; 3950]);
        drop((third, fourth, fifth));
        let blocks: Vec<Buf> = (0..100).map(|i| Buf::unfilled(1000 + 100 * i)).collect();
        drop(blocks);
        assert!((16 << 10..=SPARE_BYTES_MAX).contains(&spare_bytes()));
        drop([Buf::unfilled(20_000), Buf::unfilled(20_000), Buf::unfilled(4096)]);
        let last = Buf::unfilled(4096);
        assert!(spare_bytes() < 24 << 10, "the last block's memory was kept, and was used");
        drop(last);
        assert!(Buf::unfilled(100_000).memory_bytes() >= 100_000);
        assert_eq!(Buf::unfilled(10).memory_bytes(), 10);
    }

    /// Goal: what one thread frees serves another. The pool is the whole process's, and other tests
    /// take from it meanwhile: so it is enough that it works once in some attempts.
    #[test]
    fn memory_goes_from_thread_to_thread() {
        const LEN: usize = 20_000;
        let room = Room::default();
        room.set(100 << 20);
        let is_reused = || {
            let freed = Arc::new(LeafMutex::new(BTreeSet::new()));
            let places = Arc::clone(&freed);
            let body = move || {
                let blocks: Vec<Buf> = (0..50).map(|_| Buf::unfilled(LEN)).collect();
                *places.lock() = blocks.iter().map(|block| block.bytes().as_ptr().addr()).collect();
            };
            assert!(crate::base::sched::spawn("other", body).unwrap().join());
            let taken: Vec<Buf> = (0..20).map(|_| Buf::unfilled(LEN)).collect();
            let freed = freed.lock();
            taken.iter().all(|block| freed.contains(&block.bytes().as_ptr().addr()))
        };
        assert!((0..100).any(|_| is_reused()));
    }

    /// Goal: a pool keeps what it has room for, gives what fits, and lets go of other sizes for
    /// those that are asked for and when its room shrinks.
    #[test]
    fn a_pool_keeps_to_its_room() {
        const LEN: usize = 20_000;
        let mut pool = Pool { kept: BTreeMap::new(), bytes: 0, bytes_max: 50 * LEN };
        let held = |pool: &Pool| {
            let each = pool.kept.iter().map(|(bytes, kept)| bytes * kept.len());
            assert_eq!(each.sum::<usize>(), pool.bytes);
            pool.bytes
        };
        pool.put((0..60).map(|_| Vec::with_capacity(LEN)));
        assert_eq!(held(&pool), 50 * LEN);
        assert_eq!(pool.take(LEN).len(), BATCH);
        assert_eq!(pool.take(LEN - LEN / 64).len(), BATCH, "a little larger is no matter");
        assert_eq!(held(&pool), 42 * LEN);
        assert!(pool.take(2 * LEN).is_empty());
        assert_eq!(held(&pool), 40 * LEN, "as much as was asked for");
        pool.free_down_to(10 * LEN + 1);
        assert_eq!(held(&pool), 10 * LEN);
        pool.free_down_to(0);
        assert_eq!(held(&pool), 0);
    }

    /// Goal: dropping a block while another thread-local is destroyed does not panic.
    #[test]
    fn blocks_in_thread_locals_are_freed() {
        thread_local! {
            static HELD: RefCell<Option<Buf>> = const { RefCell::new(None) };
        }
        let body = || {
            HELD.with(|held| *held.borrow_mut() = Some(Buf::unfilled(4096)));
            drop(Buf::unfilled(4096));
        };
        let thread = crate::base::sched::spawn("holder", body).unwrap();
        assert!(thread.join());
    }
}
