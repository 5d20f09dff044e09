//! The bytes of one block, behind a counted handle.
//!
//! Beside the count lie the marks of the entries that were read (`heat`).
//!
//! Not here: the count (`frame`), where memory comes from (`slabs`), the meaning of the bytes, and
//! references into them (`value`). Invariants: (1) the bytes behind a [`Buf`] never change once a
//! second handle exists; (2) a thread keeps at most [`SPARE_BYTES_MAX`] bytes of freed blocks'
//! memory, for its next blocks; (3) reused memory has no marks; (4) the memory of a block depends
//! on its length alone, so that a cache holds the same blocks in every run.
//!
//! Why memory is kept: a full cache evicts a block for each one it admits. The thread that evicts
//! is mostly the one that admits, and the memory is still in its CPU's cache.

use std::cell::RefCell;

use crate::base::frame::Handle;
use crate::base::heat::{Heat, HeatCell};
use crate::base::slabs::{self, Piece, SLOT_BYTES_MAX, SLOT_BYTES_MIN, capacity_for};

/// Largest block, in bytes: its length fits 32 bits. Decoders refuse what says that it is larger;
/// the engine writes values of up to 1 GiB.
pub(crate) const BLOCK_BYTES_MAX: usize = u32::MAX as usize - 64;

/// Most bytes that a thread keeps: eight blocks of 4 KiB.
const SPARE_BYTES_MAX: usize = 36 << 10;
/// Blocks' memory that a thread gets at a time.
const BATCH: usize = 4;

/// The uncompressed bytes of one block, as the block cache holds them. Cloning it clones a handle.
///
/// The reference count does not lie beside the bytes: cloning a handle does not miss the CPU's
/// cache on the block, so that the misses of several blocks can overlap.
#[derive(Clone, Default)]
pub(crate) struct Buf(Option<Handle>);

/// Memory of freed blocks, kept for the next ones.
struct Spares {
    kept: Vec<Piece>,
    bytes: usize,
}

thread_local! {
    static SPARES: RefCell<Spares> = const { RefCell::new(Spares { kept: Vec::new(), bytes: 0 }) };
}

impl Spares {
    /// Memory for `len` bytes, the most recently kept first: it is still in the CPU's cache.
    fn take(&mut self, len: usize) -> Option<Piece> {
        let bytes = capacity_for(len);
        let at = self.kept.iter().rposition(|spare| spare.bytes() == bytes)?;
        self.bytes -= bytes;
        Some(self.kept.remove(at))
    }

    /// Keeps `memory`, in place of the oldest spares, which may fit no block: those are for all.
    fn keep(&mut self, memory: Piece) {
        self.bytes += memory.bytes();
        self.kept.push(memory);
        if self.bytes > SPARE_BYTES_MAX {
            let mut over = self.bytes - SPARE_BYTES_MAX;
            let count = self.kept.iter().take_while(|spare| {
                let is_over = over > 0;
                over = over.saturating_sub(spare.bytes());
                is_over
            });
            let count = count.count().max(BATCH.min(self.kept.len() / 2));
            let oldest = self.kept.drain(..count);
            slabs::give_back(oldest.inspect(|spare| self.bytes -= spare.bytes()));
        }
    }

    /// Memory for `len` bytes, and some more of it for the next blocks.
    fn take_more(&mut self, len: usize) -> Option<Piece> {
        slabs::take(len, BATCH, &mut self.kept);
        let first = self.kept.pop()?;
        self.bytes = self.kept.iter().map(Piece::bytes).sum();
        Some(first)
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        slabs::give_back(self.kept.drain(..));
    }
}

/// Memory for `len` bytes, with any content.
fn memory_for(len: usize) -> Piece {
    let has_slot = (SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&len);
    let take = |spares: &mut Spares| spares.take(len).or_else(|| spares.take_more(len));
    // In the destructor of another thread-local the spares may be gone already.
    let kept = has_slot.then(|| SPARES.try_with(|spares| take(&mut spares.borrow_mut())).ok());
    kept.flatten().flatten().unwrap_or_else(|| {
        let mut pieces = Vec::new();
        slabs::take(len, 1, &mut pieces);
        pieces.pop().unwrap_or_default()
    })
}

/// Memory with `content`.
pub(super) fn filled(content: &[u8]) -> (Piece, usize) {
    let mut memory = memory_for(content.len());
    memory.as_mut()[..content.len()].copy_from_slice(content);
    (memory, content.len())
}

/// Keeps the memory of a block that is no more among the thread's spares.
pub(super) fn recycle(memory: Piece) {
    let mut memory = Some(memory);
    if memory.as_ref().is_some_and(Piece::is_slot) {
        // Without spares it goes back at once.
        let _ = SPARES.try_with(|spares| {
            if let Some(memory) = memory.take() {
                spares.borrow_mut().keep(memory);
            }
        });
    }
    slabs::give_back(memory.into_iter());
}

impl Buf {
    fn holding(memory: (Piece, usize), heat: HeatCell) -> Self {
        Self(Some(Handle::new(memory, heat)))
    }

    /// A block with `content` that a merge hands over in `period` of the cache.
    pub(crate) fn handed_over(content: &[u8], heat: Heat, period: u64) -> Self {
        Self::holding(filled(content), HeatCell::handed(heat, period))
    }

    /// A block with `content` that nobody has asked for.
    pub(crate) fn unasked(content: &[u8]) -> Self {
        Self::holding(filled(content), HeatCell::unasked())
    }

    /// The block as one that nobody has asked for. Requires: it is not cached.
    pub(crate) fn into_unasked(self) -> Self {
        if let Some(block) = &self.0 {
            block.heat().set(&HeatCell::unasked());
        }
        self
    }

    /// Whether nobody has asked for it yet.
    pub(crate) fn is_unasked(&self) -> bool {
        self.0.as_ref().is_some_and(|block| block.heat().is_unasked())
    }

    /// A block of `len` bytes, all of which `fill` writes.
    ///
    /// # Errors
    /// That of `fill`.
    pub(crate) fn written<E>(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut memory = memory_for(len);
        if let Err(error) = fill(&mut memory.as_mut()[..len]) {
            recycle(memory);
            return Err(error);
        }
        Ok(Self::holding((memory, len), HeatCell::default()))
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
        let fit = |capacity| capacity == capacity_for(content.len());
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
    use super::*;

    fn spare_bytes() -> usize {
        SPARES.with(|spares| {
            let spares = spares.borrow();
            assert_eq!(spares.bytes, spares.kept.iter().map(Piece::bytes).sum());
            spares.bytes
        })
    }

    /// Goal: a freed block's memory is reused by every constructor, never shows its old content,
    /// and a thread keeps a bounded amount of it.
    #[test]
    fn memory_goes_from_block_to_block() {
        let first = Buf::from(&[1; 4000][..]);
        let (place, bytes) = (first.bytes().as_ptr(), first.memory_bytes());
        assert_eq!(bytes, capacity_for(4000));
        drop(first);
        let spares = spare_bytes();
        assert!(spares.is_multiple_of(bytes) && spares > bytes, "some came with the first");
        let second = Buf::from(&[2; 3990][..]);
        assert_eq!((second.bytes().as_ptr(), spare_bytes()), (place, spares - bytes));
        assert!(second.bytes().iter().all(|&b| b == 2) && second.bytes().len() == 3990);
        drop(second);
        let second = Buf::handed_over(&[2; 3990], Heat::default(), 5);
        assert!(second.bytes().as_ptr() == place && second.is_unread());
        second.touch(1, 5);
        assert_eq!((second.heat(5).marks(), second.is_unread()), (1, false));
        drop(second);
        assert_eq!(Buf::written(4020, |_| Err(7)).err(), Some(7), "its memory is kept too");
        let written: Result<_, ()> = Buf::written(4020, |bytes| {
            bytes.fill(3);
            Ok(())
        });
        let mut third = written.unwrap();
        assert_eq!(third.heat(5), Heat::COLD);
        assert_eq!((third.bytes().as_ptr(), third.bytes().len()), (place, 4020));
        let fourth = third.refill(&[4; 3990]);
        assert!(fourth.bytes().as_ptr() == place && fourth.bytes() == [4; 3990]);
        let fifth = third.refill(&[5; 3990]);
        assert!(fifth.bytes().as_ptr() != place && fourth.bytes() == [4; 3990]);
        drop((third, fourth, fifth));
        let blocks: Vec<Buf> = (0..100).map(|i| Buf::unfilled(1000 + 100 * i)).collect();
        drop(blocks);
        assert!((16 << 10..=SPARE_BYTES_MAX).contains(&spare_bytes()));
        drop([Buf::unfilled(20_000), Buf::unfilled(20_000), Buf::unfilled(4096)]);
        let last = Buf::unfilled(4096);
        assert!(spare_bytes() < 36 << 10, "the last block's memory was kept, and was used");
        drop(last);
        assert!(Buf::unfilled(100_000).memory_bytes() >= 100_000);
        assert_eq!(Buf::unfilled(10).memory_bytes(), 10);
        assert_eq!(Buf::from(&[][..]).bytes(), []);
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
