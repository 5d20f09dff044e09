//! The directory of a table: which of its blocks are cached, and where.
//!
//! ```text
//! directory ─► segment ─► page of 8 links ─► frame: count, marks, place of the bytes
//! ```
//!
//! A block's number is its place: nothing is hashed, compared or locked to find it. Segments are
//! made when a block of theirs comes in and stay as long as the directory, one to four bytes per
//! block of the table. Pages are given out by the shard that has the blocks (`shard`) and go
//! back to it with their last link, so that a large table of which little is cached costs little.
//!
//! Invariants: (1) a page belongs to one cache until that cache is dropped, and pages are never
//! freed: a reader that follows an old pointer to one finds links of other blocks of the same
//! cache; (2) so a block that a link names is taken only if its frame says that it is the one, and
//! the link names it still (`frame`, 2); (3) pages and links change under the lock of their shard,
//! which is the same for all blocks of a page.

use std::sync::{Arc, OnceLock, Weak};

use super::registry::Registry;
use crate::base::atomic::{AtomicU64, LeafMutex, Ordering};
use crate::base::frame::{Handle, Link};
use crate::base::ids::TableUid;
use crate::base::memory::Charge;
use crate::base::pointer::Pointer;
use crate::base::prefetch::prefetch;

/// Links of a page: one cache line. A page is charged to the cache as long as one of its blocks is
/// there; with 16 links reads of scattered blocks lose 1 % of the capacity to empty ones.
pub(super) const PAGE_LINKS: usize = 8;

/// Eight neighbouring blocks of a table, as far as they are cached.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Page([Link; PAGE_LINKS]);

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = size_of::<Page>() as u64;

impl Page {
    /// Whether no block of it is cached. Requires: the shard's lock.
    pub(super) fn is_empty(&self) -> bool {
        !self.0.iter().any(Link::is_set)
    }

    #[inline]
    pub(super) fn link(&self, ordinal: u32) -> &Link {
        &self.0[ordinal as usize % PAGE_LINKS]
    }
}

/// The first segment has so many pages, each further one three times what is before it.
const FIRST_PAGES: u32 = 16;

/// Segments for all numbers of blocks of 32 bits: 4 * 4^14 pages.
const SEGMENTS: usize = 14;

const _: () = assert!((4u64 << (2 * SEGMENTS)) * PAGE_LINKS as u64 > u32::MAX as u64);

type Segment = Box<[Pointer<Page>]>;

/// The segment of a page, and its place there: pages 0 to 15, 16 to 63, 64 to 255, ..
#[inline]
fn place_of(ordinal: u32) -> (usize, usize) {
    let page = ordinal / PAGE_LINKS as u32;
    let segment = ((page | (FIRST_PAGES / 2)).ilog2() >> 1) - 1;
    let start = if segment == 0 { 0 } else { 4 << (2 * segment) };
    (segment as usize, (page - start) as usize)
}

fn pages_of(segment: usize) -> usize {
    if segment == 0 { FIRST_PAGES as usize } else { 12 << (2 * segment) }
}

/// See the module.
pub(super) struct Directory {
    pub(super) uid: TableUid,
    segments: [OnceLock<Segment>; SEGMENTS],
    /// Blocks that are cached.
    cached: AtomicU64,
    registry: Weak<Registry>,
    /// Memory of its segments.
    charge: LeafMutex<Option<Charge>>,
}

impl Directory {
    pub(super) fn new(uid: TableUid, registry: &Arc<Registry>, charge: Option<Charge>) -> Self {
        let segments = Default::default();
        let registry = Arc::downgrade(registry);
        let charge = LeafMutex::new(charge);
        Self { uid, segments, cached: AtomicU64::new(0), registry, charge }
    }

    /// The block, if it is cached. Prefetches `lines` of it.
    #[inline]
    pub(super) fn take(&self, ordinal: u32, lines: usize) -> Option<Handle> {
        self.page(ordinal)?.link(ordinal).take(self.uid.get(), ordinal, lines)
    }

    /// Whether the block is cached.
    pub(super) fn contains(&self, ordinal: u32) -> bool {
        let page = self.page(ordinal);
        page.is_some_and(|page| page.link(ordinal).is_of(self.uid.get(), ordinal))
    }

    /// The page of a block, if any of its blocks is cached.
    #[inline]
    pub(super) fn page(&self, ordinal: u32) -> Option<&'static Page> {
        let (segment, page) = place_of(ordinal);
        self.segments[segment].get()?.get(page)?.get()
    }

    /// Where the page of a block is named; makes its segment.
    pub(super) fn page_slot(&self, ordinal: u32) -> &Pointer<Page> {
        let (segment, page) = place_of(ordinal);
        let pages = self.segments[segment].get_or_init(|| {
            let pages: Segment = (0..pages_of(segment)).map(|_| Pointer::default()).collect();
            if let Some(charge) = &mut *self.charge.lock() {
                charge.resize(charge.bytes() + size_of_val(&*pages) as u64);
            }
            pages
        });
        &pages[page]
    }

    /// Requests the memory that names the page of a block.
    #[inline]
    pub(super) fn request_page(&self, ordinal: u32) {
        let (segment, page) = place_of(ordinal);
        if let Some(place) = self.segments[segment].get().and_then(|pages| pages.get(page)) {
            prefetch(place);
        }
    }

    /// Requests the memory of a block's link.
    #[inline]
    pub(super) fn request_link(&self, ordinal: u32) {
        if let Some(page) = self.page(ordinal) {
            prefetch::<Page>(page);
        }
    }

    /// Requests the memory of a block's frame, if it is cached.
    #[inline]
    pub(super) fn request_frame(&self, ordinal: u32) {
        if let Some(page) = self.page(ordinal) {
            page.link(ordinal).request();
        }
    }

    /// Blocks that are cached now.
    pub(super) fn cached(&self) -> u64 {
        self.cached.load(Ordering::Relaxed)
    }

    pub(super) fn count_in(&self) {
        self.cached.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_out(&self) {
        let before = self.cached.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a block of table {} leaves that never came", self.uid);
    }

    /// Numbers of the first block of each page with a cached block.
    pub(super) fn pages(&self, blocks: u32) -> impl Iterator<Item = u32> + '_ {
        (0..blocks).step_by(PAGE_LINKS).filter(|&ordinal| self.page(ordinal).is_some())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.forget(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every block has a place of its own, in a segment that exists, and neighbours of a page
    /// share it. Method: where a segment ends and begins, and the last number.
    #[test]
    fn every_block_has_its_place() {
        let (mut before, mut at) = ((0, 0), 0);
        let mut pages = 0;
        while at <= 70_000 {
            let place = place_of(at);
            let next = (before.0, before.1 + 1);
            let begins = before.0 + 1 == place.0 && place.1 == 0;
            assert!(at == 0 || place == next || begins, "{at}: {place:?} after {before:?}");
            assert!(place.1 < pages_of(place.0), "{at}: {place:?}");
            assert!(!begins || next.1 == pages_of(before.0), "segment {} is not full", before.0);
            assert_eq!(place_of(at + PAGE_LINKS as u32 - 1), place);
            (before, at, pages) = (place, at + PAGE_LINKS as u32, pages + 1);
        }
        let (segment, page) = place_of(u32::MAX);
        assert!(segment < SEGMENTS && page < pages_of(segment), "{segment} {page}");
    }
}
