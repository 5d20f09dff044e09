//! The memory of flushed memtables, kept for the next ones of the store.
//!
//! A fresh huge page costs its first writer the clearing of 2 MiB (0.1 ms; several where a virtual
//! machine's host has to find the memory), and a busy writer takes a new one every 2,000 puts of 1
//! KiB. A memtable needs as much as the flushed one before it freed, so that is kept: never more
//! than a write buffer, and never more than memtables may hold together.
//!
//! Not here: smaller chunks (`base::pages` keeps some), allocation inside a chunk (`arena`).
//!
//! Invariants: (1) kept chunks belong to the pool alone, are charged to
//! [`Category::SpareMemtables`], and are unmapped when it is dropped; (2) kept and used memory of
//! memtables together stay within `bytes_max`, but for what memtables allocate between two calls of
//! [`ChunkPool::shrink`].

use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::memory::{Accountant, Category, Charge};
use crate::base::pages;

/// Size of the chunks that are kept, and of the largest ordinary ones of an arena, in bytes: a huge
/// page.
pub(super) const CHUNK_BYTES_MAX: usize = 2 << 20;

/// Chunks that were freed by memtables but not unmapped.
pub(crate) struct ChunkPool {
    accountant: Arc<Accountant>,
    /// Bytes that memtables and the pool may hold together.
    bytes_max: u64,
    kept: Mutex<Kept>,
}

struct Kept {
    chunks: Vec<NonNull<u8>>,
    charge: Charge,
}

// SAFETY: the pool owns the memory of its chunks: the arenas that freed them no longer use it.
unsafe impl Send for Kept {}

impl ChunkPool {
    /// An empty pool; `bytes_max` is what memtables may hold together.
    pub(crate) fn new(accountant: Arc<Accountant>, bytes_max: u64) -> Arc<Self> {
        let charge = accountant.charge(Category::SpareMemtables, 0);
        let kept = Mutex::new(Kept { chunks: Vec::new(), charge });
        Arc::new(Self { accountant, bytes_max, kept })
    }

    /// The accountant of the memtables' memory.
    pub(crate) fn accountant(&self) -> &Arc<Accountant> {
        &self.accountant
    }

    /// Bytes of memtables and of kept chunks.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        let used = |category| self.accountant.used(category);
        used(Category::Memtables) + used(Category::SpareMemtables)
    }

    /// A kept chunk, with any content.
    pub(super) fn take(&self) -> Option<NonNull<u8>> {
        let mut kept = self.kept.lock();
        let chunk = kept.chunks.pop();
        kept.recount();
        chunk
    }

    /// Keeps a freed chunk, unless `kept_max` bytes are kept already or memtables need the room.
    pub(super) fn keep(&self, base: NonNull<u8>, kept_max: u64) -> bool {
        let mut kept = self.kept.lock();
        let more = CHUNK_BYTES_MAX as u64;
        let keeps = kept.bytes() + more <= kept_max && self.bytes() + more <= self.bytes_max;
        if keeps {
            kept.chunks.push(base);
            kept.recount();
        }
        keeps
    }

    /// Unmaps kept chunks until memtables and pool are within `bytes_max`.
    #[cold]
    pub(crate) fn shrink(&self) {
        let mut kept = self.kept.lock();
        while self.bytes() > self.bytes_max && kept.give_back_one() {}
    }
}

impl Kept {
    fn bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK_BYTES_MAX) as u64
    }

    fn recount(&mut self) {
        let bytes = self.bytes();
        self.charge.resize(bytes);
    }

    fn give_back_one(&mut self) -> bool {
        let Some(base) = self.chunks.pop() else { return false };
        self.recount();
        // SAFETY: an arena took it with this length and alignment, and no longer uses it.
        unsafe { pages::give_back(base, CHUNK_BYTES_MAX, CHUNK_BYTES_MAX) };
        true
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        while self.give_back_one() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::arena::Arena;

    const MIB: usize = 1 << 20;

    /// Fills an arena of `bytes` as a memtable is filled.
    fn fill(pool: &Arc<ChunkPool>, bytes: usize) -> Arena<8> {
        let arena = Arena::new(bytes, Some(Arc::clone(pool)));
        while arena.used_bytes() < bytes as u64 {
            // SAFETY: a KiB was just allocated.
            unsafe { arena.allocate(1024).as_ptr().write_bytes(7, 1024) };
        }
        arena
    }

    /// Goal: memory that a flushed memtable frees is kept for the next one, accounted, but never
    /// more than a write buffer, nor more than memtables may have. Method: arenas filled and
    /// dropped.
    #[test]
    fn freed_chunks_are_kept_up_to_a_bound() {
        let accountant = Accountant::new(100 << 20);
        let pool = ChunkPool::new(Arc::clone(&accountant), 100 << 20);
        let kept = || accountant.used(Category::SpareMemtables) >> 20;
        let (first, second) = (fill(&pool, 32 * MIB), fill(&pool, 32 * MIB));
        assert_eq!(kept(), 0);
        drop(first);
        let one = kept();
        assert!((28..=32).contains(&one), "{one} MiB");
        drop(second);
        assert!((one..=32).contains(&kept()), "no more than a write buffer: {} MiB", kept());
        let third = fill(&pool, 32 * MIB);
        assert!(kept() < 4, "they were used: {} MiB", kept());
        drop(third);
        let charge = accountant.charge(Category::Memtables, 90 << 20);
        pool.shrink();
        assert!((8..=10).contains(&kept()), "memtables need the room: {} MiB", kept());
        drop(fill(&pool, 8 * MIB));
        assert!(kept() <= 10);
        drop(charge);
        drop(pool);
        assert_eq!(kept(), 0);
    }

    /// A memtable that outlives its store keeps the pool alive.
    #[test]
    fn an_arena_keeps_its_pool() {
        let pool = ChunkPool::new(Accountant::new(1 << 30), 1 << 30);
        let arena = fill(&pool, 32 * MIB);
        drop(pool);
        drop(arena);
    }
}
