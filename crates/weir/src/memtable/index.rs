//! The index over the list of entries: a B+-tree that is only a hint.
//!
//! Not here: the list itself, which is authoritative (`list`).
//!
//! ```text
//! page          [ count, skip, level | 31 heads of 8 bytes | 31 entries ]
//! above level 0 [ a page | 31 children ]
//! ```
//! A slot's head is the 8 bytes of its entry's key after the page's `skip` bytes, which all keys
//! between the page's fences share: so heads decide for keys with long common prefixes too, a
//! search touches four cache lines a page, and entries only where heads are equal.
//!
//! Invariants:
//! (1) one writer at a time (it holds the list's lock) sees the tree exact: slots in order, every
//!     linked entry in one slot of level 0, and an inner slot's entry the first one of its child
//!     (but for slot 0, which is never compared);
//! (2) readers take no lock and may see a page half changed. All they get is a pointer, null or to
//!     an entry of the list, because slots hold nothing else. The list compares the entry before it
//!     uses the hint, and searches again if it is wrong: a wrong hint costs time, never a wrong
//!     answer;
//! (3) pages are freed with the whole memtable only; `skip` of a page only grows, and never beyond
//!     the prefix that its fences share; the outermost pages have no fence and skip nothing.
//!
//! Source: B+-tree with a prefix per page, Bayer and Unterauer, "Prefix B-Trees" (1977), and heads
//! as in Graefe and Larson, "B-Tree Indexes and CPU Caches" (2001). We differ: hints that are
//! verified replace the latches and version counters of concurrent B-trees.

use std::hint::select_unpredictable;
use std::marker::PhantomData;
use std::mem::size_of;
use std::ptr;
use std::sync::Arc;

use crate::base::atomic::{AtomicPtr, AtomicU16, AtomicU64, Ordering};
use crate::base::prefetch::prefetch;
use crate::memtable::arena::Arena;
use crate::memtable::entry::{Entry, Target, head_after, is_before, read};
use crate::memtable::pool::ChunkPool;

/// Slots of a page: heads and header fill four cache lines, entries another four.
const SLOTS: usize = 31;

/// Most levels above level 0. A page is split at most twice per 15 slots added to it (once in half,
/// once keeping all), so each level has at least 7.5 times fewer pages: 7.5^16 = 10^14.
const DEPTH_MAX: usize = 16;

/// Further bytes that the fences must share before the heads of a page are recomputed: five bytes
/// of a head still distinguish 31 keys.
const SKIP_STEP: usize = 3;

pub(super) const PAGE_ALIGN: usize = 64;

#[repr(C, align(64))]
pub(super) struct Page {
    count: AtomicU16,
    skip: AtomicU16,
    level: u16,
    heads: [AtomicU64; SLOTS],
    entries: [AtomicPtr<Entry>; SLOTS],
}

/// A page above level 0.
#[repr(C)]
struct Inner {
    page: Page,
    children: [AtomicPtr<Page>; SLOTS],
}

const _: () = assert!(size_of::<Page>() == 512 && size_of::<Inner>() == 768);

/// A page of a live index. Copies are free; `'a` is the borrow of the index.
#[derive(Clone, Copy)]
pub(super) struct PageRef<'a> {
    /// A raw pointer, because an inner page is more than a `Page`.
    page: *const Page,
    index: PhantomData<&'a Index>,
}

/// One step of the descent: an inner page and the slot that was taken.
#[derive(Clone, Copy)]
struct Step<'a> {
    page: PageRef<'a>,
    slot: usize,
}

/// Where a target belongs: before slot `slot` of `page`, a page of level 0.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) page: PageRef<'a>,
    pub(super) slot: usize,
}

/// A place and the descent to it, for the writer.
pub(super) struct Path<'a> {
    steps: [Step<'a>; DEPTH_MAX],
    depth: usize,
    pub(super) place: Place<'a>,
}

impl<'a> PageRef<'a> {
    /// # Safety
    /// `page` was made by [`Index::new_page`] of an index that outlives `'a`, and was taken with
    /// Acquire or by the writer.
    pub(super) unsafe fn new(page: *const Page) -> Self {
        Self { page, index: PhantomData }
    }

    pub(super) fn as_ptr(self) -> *const Page {
        self.page
    }

    #[inline(always)]
    fn fixed(self) -> &'a Page {
        // SAFETY: the page is alive for `'a` (contract of `new`); it is only changed by atomics.
        unsafe { &*self.page }
    }

    #[inline(always)]
    fn children(self) -> &'a [AtomicPtr<Page>; SLOTS] {
        assert!(self.fixed().level > 0, "a page of level 0 has no children");
        // SAFETY: a page above level 0 was allocated as an Inner, and the raw pointer came from
        // that allocation, not from a reference to its first part.
        unsafe { &(*self.page.cast::<Inner>()).children }
    }

    #[inline(always)]
    fn count(self) -> usize {
        usize::from(self.fixed().count.load(Ordering::Acquire)).min(SLOTS)
    }

    pub(super) fn is_full(self) -> bool {
        self.count() == SLOTS
    }

    /// The page below slot `slot`; prefetches it.
    #[inline(always)]
    fn child(self, slot: usize) -> Self {
        let child = self.children()[slot].load(Ordering::Acquire).cast_const();
        assert!(!child.is_null(), "a slot below the count has a child");
        // Only the heads of an inner page; all of a leaf, which is rarely cached.
        let bytes = if self.fixed().level == 1 { size_of::<Page>() } else { size_of::<Page>() / 2 };
        for line in 0..bytes / 64 {
            prefetch(child.wrapping_byte_add(line * 64));
        }
        // SAFETY: children hold pages of the same index only.
        unsafe { Self::new(child) }
    }

    /// The entry in slot `slot`; null beyond the slots that were ever used.
    #[inline(always)]
    fn entry(self, slot: usize) -> *const Entry {
        self.fixed().entries.get(slot).map_or(ptr::null(), |e| e.load(Ordering::Acquire))
    }

    /// The first of the slots from `from` on whose entry is not before the target.
    #[inline(always)]
    fn rank(self, from: usize, target: &Target<'_>) -> usize {
        let page = self.fixed();
        let count = self.count();
        let head = target.head(usize::from(page.skip.load(Ordering::Relaxed)));
        let mut base = from;
        let mut len = count.saturating_sub(from);
        while len > 1 {
            let half = len / 2;
            let probe = page.heads[base + half - 1].load(Ordering::Relaxed);
            // No branch: half of them would be mispredicted.
            base += select_unpredictable(probe < head, half, 0);
            len -= half;
        }
        if base < count {
            let probe = page.heads[base].load(Ordering::Relaxed);
            base += usize::from(probe < head);
            if base < count && page.heads[base].load(Ordering::Relaxed) == head {
                return self.rank_among_equals(base, count, head, target);
            }
        }
        base
    }

    /// [`PageRef::rank`] among equal heads.
    fn rank_among_equals(self, from: usize, to: usize, head: u64, target: &Target<'_>) -> usize {
        let page = self.fixed();
        let (mut from, mut to) = (from, to);
        while from < to {
            let middle = from + (to - from) / 2;
            let probe = page.heads[middle].load(Ordering::Relaxed);
            let entry = self.entry(middle);
            // SAFETY: slots hold null or complete entries of the list (invariant 2).
            let equal_before = || !entry.is_null() && unsafe { is_before(entry, target) };
            if probe < head || (probe == head && equal_before()) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }

    /// Inserts an entry (above level 0 with its page) at slot `slot`. Requires: the caller is the
    /// writer, and the page is not full.
    fn put(self, slot: usize, entry: *const Entry, child: Option<PageRef<'a>>) {
        let page = self.fixed();
        let count = self.count();
        assert!(slot <= count && count < SLOTS, "slot {slot} of a page with {count}");
        for i in (slot..count).rev() {
            self.copy_slot(i, self, i + 1);
        }
        let skip = usize::from(page.skip.load(Ordering::Relaxed));
        // SAFETY: the writer's entries are complete.
        let key = unsafe { read(entry) }.key;
        page.heads[slot].store(head_after(key, skip), Ordering::Relaxed);
        page.entries[slot].store(entry.cast_mut(), Ordering::Release);
        if let Some(child) = child {
            self.children()[slot].store(child.page.cast_mut(), Ordering::Release);
        }
        page.count.store((count + 1) as u16, Ordering::Release);
    }

    #[inline(always)]
    fn copy_slot(self, slot: usize, to: PageRef<'a>, to_slot: usize) {
        let (page, target) = (self.fixed(), to.fixed());
        target.heads[to_slot].store(page.heads[slot].load(Ordering::Relaxed), Ordering::Relaxed);
        let entry = page.entries[slot].load(Ordering::Relaxed);
        target.entries[to_slot].store(entry, Ordering::Release);
        if page.level > 0 {
            let child = self.children()[slot].load(Ordering::Relaxed);
            to.children()[to_slot].store(child, Ordering::Release);
        }
    }

    /// Skips the bytes that the page's fences share, if that is worth recomputing all heads.
    fn set_fences(self, lower: *const Entry, upper: *const Entry) {
        let page = self.fixed();
        let shared = shared_bytes(lower, upper);
        if shared < usize::from(page.skip.load(Ordering::Relaxed)) + SKIP_STEP {
            return;
        }
        page.skip.store(shared as u16, Ordering::Relaxed);
        for slot in 0..self.count() {
            // SAFETY: slots below the count hold complete entries.
            let key = unsafe { read(self.entry(slot)) }.key;
            page.heads[slot].store(head_after(key, shared), Ordering::Relaxed);
        }
    }
}

/// Number of bytes that all keys between two entries share; 0 if one of them is null (no fence).
fn shared_bytes(lower: *const Entry, upper: *const Entry) -> usize {
    if lower.is_null() || upper.is_null() {
        return 0;
    }
    // SAFETY: fences are entries that the writer took from slots.
    let (lower, upper) = unsafe { (read(lower).key, read(upper).key) };
    lower.iter().zip(upper).take_while(|(a, b)| a == b).count().min(usize::from(u16::MAX))
}

impl<'a> Place<'a> {
    /// The entry before the place; null if there is none in the page.
    #[inline(always)]
    pub(super) fn before(self) -> *const Entry {
        if self.slot == 0 { ptr::null() } else { self.page.entry(self.slot - 1) }
    }

    /// The entry after the place; null if there is none in the page.
    #[inline(always)]
    pub(super) fn after(self) -> *const Entry {
        if self.slot < self.page.count() { self.page.entry(self.slot) } else { ptr::null() }
    }

    /// Prefetches the page's entries from the place on; returns their number.
    pub(super) fn prefetch_from(self) -> usize {
        let count = self.page.count();
        (self.slot..count).for_each(|slot| prefetch_entry(self.page.entry(slot)));
        count.saturating_sub(self.slot)
    }

    /// Prefetches the page's entries before the place.
    pub(super) fn prefetch_before(self) {
        (0..self.slot).rev().for_each(|slot| prefetch_entry(self.page.entry(slot)));
    }

    /// The page's first entry.
    pub(super) fn first_of_page(self) -> *const Entry {
        self.page.entry(0)
    }
}

/// Header, key and the start of the value: two cache lines.
fn prefetch_entry(entry: *const Entry) {
    prefetch(entry);
    prefetch(entry.wrapping_byte_add(64));
}

/// The index. Its entries belong to the list that owns it.
pub(super) struct Index {
    /// Null before the first entry.
    root: AtomicPtr<Page>,
    arena: Arena<PAGE_ALIGN>,
}

impl Index {
    pub(super) fn new(bytes_hint: usize, pool: Option<Arc<ChunkPool>>) -> Self {
        Self { root: AtomicPtr::new(ptr::null_mut()), arena: Arena::new(bytes_hint, pool) }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.arena.used_bytes()
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.arena.reserved_bytes()
    }

    #[inline(always)]
    fn root(&self) -> Option<PageRef<'_>> {
        let root = self.root.load(Ordering::Acquire).cast_const();
        // SAFETY: the root is null or a page of this index.
        (!root.is_null()).then(|| unsafe { PageRef::new(root) })
    }

    /// Where the target belongs: for a reader a hint, for the writer exact. `None` before the first
    /// entry.
    #[inline]
    pub(super) fn find(&self, target: &Target<'_>) -> Option<Place<'_>> {
        let mut page = self.root()?;
        while page.fixed().level > 0 {
            page = page.child(page.rank(1, target) - 1);
        }
        Some(Place { page, slot: page.rank(0, target) })
    }

    /// Like [`Index::find`], with the descent. Requires: the caller is the writer.
    #[inline]
    pub(super) fn find_path(&self, target: &Target<'_>) -> Option<Path<'_>> {
        let mut page = self.root()?;
        let mut steps = [Step { page, slot: 0 }; DEPTH_MAX];
        let mut depth = 0;
        while page.fixed().level > 0 {
            let slot = page.rank(1, target) - 1;
            steps[depth] = Step { page, slot };
            depth += 1;
            page = page.child(slot);
        }
        Some(Path { steps, depth, place: Place { page, slot: page.rank(0, target) } })
    }

    /// The last entry, as a hint; null before the first entry.
    pub(super) fn last(&self) -> *const Entry {
        let Some(mut page) = self.root() else { return ptr::null() };
        while page.fixed().level > 0 {
            page = page.child(page.count() - 1);
        }
        page.entry(page.count() - 1)
    }

    /// Makes the first page, with the first entry. Requires: the caller is the writer.
    pub(super) fn start(&self, entry: *const Entry) -> Place<'_> {
        assert!(self.root().is_none(), "the index has a root already");
        let page = self.new_page(0, 0);
        page.put(0, entry, None);
        self.root.store(page.page.cast_mut(), Ordering::Release);
        Place { page, slot: 0 }
    }

    /// Adds an entry at its place in a page that is not full. Requires: the caller is the writer.
    #[inline]
    pub(super) fn put<'a>(&'a self, place: Place<'a>, entry: *const Entry) {
        place.page.put(place.slot, entry, None);
    }

    /// Adds an entry at the end of a path; `ascending` says that inserts are ascending here, so
    /// that full pages should stay full. Returns where the entry is now. Requires: the caller is
    /// the writer.
    #[inline]
    pub(super) fn insert<'a>(
        &'a self,
        path: &Path<'a>,
        entry: *const Entry,
        ascending: bool,
    ) -> Place<'a> {
        let Place { page, slot } = path.place;
        if page.count() < SLOTS {
            page.put(slot, entry, None);
            return path.place;
        }
        let new = NewSlot { entry, child: None, ascending };
        self.split(&path.steps[..path.depth], page, slot, new)
    }

    fn insert_above<'a>(&'a self, steps: &[Step<'a>], left: PageRef<'a>, new: NewSlot<'a>) {
        match steps.split_last() {
            None => {
                let root = self.new_page(left.fixed().level + 1, 0);
                root.put(0, left.entry(0), Some(left));
                root.put(1, new.entry, new.child);
                self.root.store(root.page.cast_mut(), Ordering::Release);
            }
            Some((&Step { page, slot }, above)) => {
                if page.count() < SLOTS {
                    page.put(slot + 1, new.entry, new.child);
                } else {
                    self.split(above, page, slot + 1, new);
                }
            }
        }
    }

    /// Splits the full page `page` below `steps` and adds a slot at `slot`.
    #[cold]
    fn split<'a>(
        &'a self,
        steps: &[Step<'a>],
        page: PageRef<'a>,
        slot: usize,
        new: NewSlot<'a>,
    ) -> Place<'a> {
        let keeps_all = new.ascending && slot == SLOTS;
        let middle = if keeps_all { SLOTS } else { SLOTS / 2 + 1 };
        let skip = page.fixed().skip.load(Ordering::Relaxed);
        let right = self.new_page(page.fixed().level, skip);
        for i in middle..SLOTS {
            page.copy_slot(i, right, i - middle);
        }
        right.fixed().count.store((SLOTS - middle) as u16, Ordering::Release);
        if keeps_all {
            right.put(0, new.entry, new.child);
        }
        let separator = right.entry(0);
        let (lower, upper) = fences(steps);
        right.set_fences(separator, upper);
        let above = NewSlot { entry: separator, child: Some(right), ..new };
        self.insert_above(steps, page, above);
        page.fixed().count.store(middle as u16, Ordering::Release);
        page.set_fences(lower, separator);
        if keeps_all {
            Place { page: right, slot: 0 }
        } else if slot <= middle {
            page.put(slot, new.entry, new.child);
            Place { page, slot }
        } else {
            right.put(slot - middle, new.entry, new.child);
            Place { page: right, slot: slot - middle }
        }
    }

    /// An empty page, not yet reachable.
    fn new_page(&self, level: u16, skip: u16) -> PageRef<'_> {
        let bytes = if level == 0 { size_of::<Page>() } else { size_of::<Inner>() };
        let place = self.arena.allocate(bytes).as_ptr();
        let page = Page {
            count: AtomicU16::new(0),
            skip: AtomicU16::new(skip),
            level,
            heads: [const { AtomicU64::new(0) }; SLOTS],
            entries: [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS],
        };
        // SAFETY: the arena gave `bytes` bytes, aligned to PAGE_ALIGN, not shared with anyone yet.
        unsafe {
            if level == 0 {
                place.cast::<Page>().write(page);
            } else {
                let children = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];
                place.cast::<Inner>().write(Inner { page, children });
            }
            PageRef::new(place.cast())
        }
    }
}

#[cfg(test)]
impl Index {
    /// All entries in slots of level 0, after a check of invariants 1 and 3: order, heads,
    /// separators, levels, and that all keys of a page share the bytes it skips.
    pub(super) fn check(&self) -> Vec<*const Entry> {
        let mut entries = Vec::new();
        if let Some(root) = self.root() {
            root.check(&mut entries);
        }
        entries
    }
}

#[cfg(test)]
impl PageRef<'_> {
    fn check(self, entries: &mut Vec<*const Entry>) {
        let page = self.fixed();
        let skip = usize::from(page.skip.load(Ordering::Relaxed));
        assert!((1..=SLOTS).contains(&self.count()), "a page with {} slots", self.count());
        // SAFETY: slots below the count hold complete entries.
        let key = |slot: usize| unsafe { read(self.entry(slot)) }.key;
        for slot in 0..self.count() {
            let head = page.heads[slot].load(Ordering::Relaxed);
            let shared = key(slot).iter().zip(key(0)).take_while(|(a, b)| a == b).count();
            if page.level == 0 || slot > 0 {
                assert_eq!(head, head_after(key(slot), skip), "head of slot {slot}");
            }
            assert!(skip == 0 || shared >= skip, "slot {slot} does not share {skip} bytes");
            if page.level == 0 {
                entries.push(self.entry(slot));
                continue;
            }
            let child = self.child(slot);
            assert_eq!(child.fixed().level + 1, page.level);
            assert!(slot == 0 || child.entry(0) == self.entry(slot), "separator of slot {slot}");
            child.check(entries);
        }
    }
}

/// A slot to be added.
#[derive(Clone, Copy)]
struct NewSlot<'a> {
    entry: *const Entry,
    child: Option<PageRef<'a>>,
    ascending: bool,
}

/// The entries between which all keys below the last step lie; null where there is no limit.
fn fences(steps: &[Step<'_>]) -> (*const Entry, *const Entry) {
    let lower = steps.iter().rev().find(|s| s.slot > 0);
    let upper = steps.iter().rev().find(|s| s.slot + 1 < s.page.count());
    (
        lower.map_or(ptr::null(), |s| s.page.entry(s.slot)),
        upper.map_or(ptr::null(), |s| s.page.entry(s.slot + 1)),
    )
}
