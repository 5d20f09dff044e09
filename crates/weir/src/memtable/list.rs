//! The sorted list of a memtable: a linked list, which is authoritative, and an index of hints into
//! it.
//!
//! Not here: what a reader may see (`merge::Visible`), when a memtable is full (`state`).
//!
//! ```text
//! first -> entry -> entry -> entry -> ...      `entry`: order and content; read without locks
//!            ^        ^        ^
//! pages of the index (`index`)                 hints into the list; one writer at a time
//! ```
//!
//! Invariants:
//! (1) following `next` from `first` gives all entries in order (key ascending, sequence number
//!     descending); nothing is removed, and a link only ever changes to a smaller entry;
//! (2) an entry is linked by a Release store after it is complete, and links are read with Acquire;
//! (3) a search starts at an entry that was compared and found to be before the target, and ends at
//!     the first one that is not, following links only: so a reader sees every entry whose insert
//!     happened before its search, in any state of the index;
//! (4) inserts are done one at a time under `writer`; key and value are copied before the lock is
//!     taken. A reader takes the lock only after the index misled it [`TRIES_MAX`] times in a row,
//!     each time because a page was being split during its search.
//!
//! (5) a filter, if there is one, has the key of every entry that is linked (`filter`).
//!
//! The shape depends on the order of inserts alone.
//!
//! Why not a skiplist: at 0.5 M entries of 16 + 100 bytes in random order, one with 16 bytes of key
//! in its nodes visits about 30 nodes an insert, a dozen of them outside the CPU's cache (1.0 to
//! 1.3 us on a busy 2-core EPYC); the index visits four pages, one of them outside it (0.4 to 0.6
//! us there). A get takes 0.65 us instead of 1.7. Both need the same memory.

use std::ptr;
use std::sync::{Arc, OnceLock};

use crate::base::atomic::{AtomicBool, AtomicPtr, AtomicU64, LeafMutex, Ordering};
#[cfg(test)]
use crate::base::key::compare;
use crate::base::key::{self, Kind, Seq};
use crate::base::prefetch::prefetch;
use crate::memtable::arena::Arena;
use crate::memtable::entry::{ENTRY_ALIGN, Entry, EntryRef, Target, is_before, new_entry, read};
use crate::memtable::filter::{EXPECTED_PER_ENTRY_MAX, FILTER_ENTRIES, MemtableFilter, hash_of};
use crate::memtable::index::{Index, Page, PageRef, Place};
use crate::memtable::pool::ChunkPool;

/// Searches that the index may mislead before a reader waits for the writer.
const TRIES_MAX: usize = 4;

/// Links that a search follows before it gives up on a hint: a good hint is at most a few entries
/// off, one from a page that is being split half a page.
const STEPS_MAX: usize = 64;

/// State of the last insert, under the writer's lock.
struct Writer {
    last: *const Entry,
    page: *const Page,
    slot: usize,
    /// The last insert went right behind the one before it: the next one probably will too.
    ascending: bool,
}

pub(super) struct List {
    first: AtomicPtr<Entry>,
    count: AtomicU64,
    seq_min: AtomicU64,
    seq_max: AtomicU64,
    writer: LeafMutex<Writer>,
    index: Index,
    entries: Arena<ENTRY_ALIGN>,
    /// Bytes of entries that are expected.
    bytes_hint: u64,
    filter: OnceLock<MemtableFilter>,
    /// Whether somebody searched for a key.
    is_sought: AtomicBool,
}

// SAFETY: all pointers point into the list's own arenas, which are freed with it; their targets are
// shared as invariants 1 to 4 say, by atomics or under the mutex.
unsafe impl Send for List {}
// SAFETY: as for Send.
unsafe impl Sync for List {}

impl List {
    /// An empty list that expects about `bytes_hint` bytes of entries.
    pub(super) fn new(bytes_hint: usize, pool: Option<&Arc<ChunkPool>>) -> Self {
        let (last, page) = (ptr::null(), ptr::null());
        Self {
            first: AtomicPtr::new(ptr::null_mut()),
            count: AtomicU64::new(0),
            seq_min: AtomicU64::new(u64::MAX),
            seq_max: AtomicU64::new(0),
            writer: LeafMutex::new(Writer { last, page, slot: 0, ascending: false }),
            index: Index::new(bytes_hint, pool.cloned()),
            entries: Arena::new(bytes_hint, pool.cloned()),
            bytes_hint: bytes_hint as u64,
            filter: OnceLock::new(),
            is_sought: AtomicBool::new(false),
        }
    }

    /// Entries inserted.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Smallest and largest sequence number inserted.
    pub(super) fn seq_range(&self) -> Option<(Seq, Seq)> {
        let min = self.seq_min.load(Ordering::Relaxed);
        let max = self.seq_max.load(Ordering::Relaxed);
        (min <= max).then_some((min, max))
    }

    /// Bytes of entries and index.
    #[inline]
    pub(super) fn used_bytes(&self) -> u64 {
        self.entries.used_bytes() + self.index.used_bytes()
    }

    /// Bytes that arenas and filter took from the system's allocator.
    pub(super) fn reserved_bytes(&self) -> u64 {
        let filter = self.filter.get().map_or(0, MemtableFilter::bytes);
        self.entries.reserved_bytes() + self.index.reserved_bytes() + filter
    }

    /// Adds an entry. Any thread may call it at any time. Requires: no entry with this key and
    /// sequence number is in the list.
    pub(super) fn insert(&self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
        let packed = key::pack(seq, kind);
        let entry = new_entry(&self.entries, packed, key, value);
        let target = Target { key, packed };
        if let Some(filter) = self.filter.get() {
            filter.prefetch(hash_of(key));
        }
        let mut writer = self.writer.lock();
        // Before the entry is linked, and under the lock: a filter is made under it.
        if let Some(filter) = self.filter.get() {
            filter.add(hash_of(key));
        }
        let place = match self.place_after_last(&writer, &target) {
            Some(place) => {
                self.link(writer.last, ptr::null(), entry);
                self.index.put(place, entry);
                place
            }
            None => self.insert_by_search(&mut writer, &target, entry),
        };
        writer.last = entry;
        writer.page = place.page.as_ptr();
        writer.slot = place.slot;
        let count = self.count.load(Ordering::Relaxed) + 1;
        self.count.store(count, Ordering::Relaxed);
        if count.is_power_of_two() && FILTER_ENTRIES.contains(&count) {
            self.make_filter();
        }
        if seq < self.seq_min.load(Ordering::Relaxed) {
            self.seq_min.store(seq, Ordering::Relaxed);
        }
        if seq > self.seq_max.load(Ordering::Relaxed) {
            self.seq_max.store(seq, Ordering::Relaxed);
        }
    }

    /// Makes the filter, if gets have use for one, for all that the list is going to hold if it
    /// goes on as it began. Requires: the caller is the writer.
    #[cold]
    fn make_filter(&self) {
        if !self.is_sought.load(Ordering::Relaxed) || self.filter.get().is_some() {
            return;
        }
        let count = self.count();
        let expected = self.bytes_hint / (self.used_bytes() / count).max(1);
        let most = count * EXPECTED_PER_ENTRY_MAX;
        if expected > most && count < *FILTER_ENTRIES.end() {
            return;
        }
        let filter = MemtableFilter::new(expected.clamp(count, most));
        let mut at = self.first();
        while !at.is_null() {
            // SAFETY: a link leads to a complete entry of this list.
            filter.add(hash_of(unsafe { read(at) }.key));
            at = self.next_of(at);
        }
        // There is none: only a writer makes one.
        let _ = self.filter.set(filter);
    }

    /// The place behind the last insert, if inserts are ascending, the target belongs there, and
    /// the page has room.
    #[inline]
    fn place_after_last(&self, writer: &Writer, target: &Target<'_>) -> Option<Place<'_>> {
        if !writer.ascending {
            return None;
        }
        // SAFETY: `ascending` is set by an insert only, which sets `page` too: a page of our index.
        let page = unsafe { PageRef::new(writer.page) };
        // SAFETY: `last` is a complete entry, for the same reason.
        if page.is_full() || !unsafe { is_before(writer.last, target) } {
            return None;
        }
        let next = self.next_of(writer.last);
        // SAFETY: a link leads to a complete entry or is null.
        let fits = next.is_null() || !unsafe { is_before(next, target) };
        fits.then_some(Place { page, slot: writer.slot + 1 })
    }

    #[inline]
    fn insert_by_search<'a>(
        &'a self,
        writer: &mut Writer,
        target: &Target<'_>,
        entry: *const Entry,
    ) -> Place<'a> {
        let Some(path) = self.index.find_path(target) else {
            self.link(ptr::null(), ptr::null(), entry);
            return self.index.start(entry);
        };
        let before = path.place.before();
        self.link(before, path.place.after(), entry);
        writer.ascending = !before.is_null() && before == writer.last;
        self.index.insert(&path, entry, writer.ascending)
    }

    /// Links `entry` behind `before` (null: as the first one); `after` is the entry that follows,
    /// if it is known. Requires: the caller is the writer.
    #[inline]
    fn link(&self, before: *const Entry, after: *const Entry, entry: *const Entry) {
        let after = if after.is_null() { self.next_of(before) } else { after };
        // SAFETY: `entry` is complete, and no other thread knows it yet.
        unsafe { &(*entry).next }.store(after.cast_mut(), Ordering::Relaxed);
        self.link_of(before).store(entry.cast_mut(), Ordering::Release);
    }

    /// The link behind `entry`; behind null, the one to the first entry.
    #[inline(always)]
    fn link_of(&self, entry: *const Entry) -> &AtomicPtr<Entry> {
        if entry.is_null() {
            return &self.first;
        }
        // SAFETY: the entries that this module handles are the list's own, alive as long as it.
        unsafe { &(*entry).next }
    }

    #[inline(always)]
    fn next_of(&self, entry: *const Entry) -> *const Entry {
        self.link_of(entry).load(Ordering::Acquire)
    }

    /// The last entry before the target and the first one at or after it; null where there is none.
    #[inline]
    fn find(&self, target: &Target<'_>) -> (*const Entry, *const Entry) {
        if let Some(found) = self.try_find(target, STEPS_MAX) {
            return found;
        }
        self.find_again(target)
    }

    #[cold]
    fn find_again(&self, target: &Target<'_>) -> (*const Entry, *const Entry) {
        for _ in 1..TRIES_MAX {
            if let Some(found) = self.try_find(target, STEPS_MAX) {
                return found;
            }
        }
        let _writer = self.writer.lock();
        self.try_find(target, usize::MAX).expect("the index is exact while nobody inserts")
    }

    /// One search; `None` if the index misled it.
    #[inline(always)]
    fn try_find(
        &self,
        target: &Target<'_>,
        steps_max: usize,
    ) -> Option<(*const Entry, *const Entry)> {
        let mut before = ptr::null();
        if let Some(place) = self.index.find(target) {
            prefetch(place.after());
            before = place.before();
            // SAFETY: the index holds complete entries of this list only.
            if !before.is_null() && !unsafe { is_before(before, target) } {
                return None;
            }
        }
        let mut steps = 0;
        loop {
            let next = self.next_of(before);
            // SAFETY: a link leads to a complete entry or is null.
            if next.is_null() || !unsafe { is_before(next, target) } {
                return Some((before, next));
            }
            before = next;
            steps += 1;
            if steps > steps_max {
                return None;
            }
        }
    }

    /// The first entry at or after `(key, seq)`, or null.
    #[inline]
    pub(super) fn seek(&self, key: &[u8], seq: Seq) -> *const Entry {
        self.find(&Target { key, packed: seq << 8 | 0xff }).1
    }

    /// The last entry at or before `(key, seq)`, or null.
    pub(super) fn seek_for_prev(&self, key: &[u8], seq: Seq) -> *const Entry {
        self.find(&Target { key, packed: seq << 8 }).0
    }

    /// The first entry, or null.
    pub(super) fn first(&self) -> *const Entry {
        self.next_of(ptr::null())
    }

    /// The last entry, or null.
    pub(super) fn last(&self) -> *const Entry {
        let mut last = self.index.last();
        for _ in 0..STEPS_MAX {
            let next = self.next_of(last);
            if next.is_null() {
                return last;
            }
            last = next;
        }
        let _writer = self.writer.lock();
        let mut last = self.index.last();
        loop {
            let next = self.next_of(last);
            if next.is_null() {
                return last;
            }
            last = next;
        }
    }

    /// The entry after `entry`, or null.
    ///
    /// # Safety
    /// `entry` is an entry of this list.
    #[inline]
    pub(super) unsafe fn next(&self, entry: *const Entry) -> *const Entry {
        self.next_of(entry)
    }

    /// Prefetches the entries from `entry` on that lie in its page; returns their number.
    ///
    /// # Safety
    /// `entry` is an entry of this list.
    pub(super) unsafe fn prefetch_from(&self, entry: *const Entry) -> usize {
        // SAFETY: by contract.
        let EntryRef { key, packed, .. } = unsafe { read(entry) };
        self.index.find(&Target { key, packed }).map_or(0, |place| place.prefetch_from())
    }

    /// Fills `back` with entries before `entry`, in list order, the nearest last: at least one if
    /// there is one, half a page on average.
    ///
    /// # Safety
    /// `entry` is an entry of this list.
    pub(super) unsafe fn gather_before(&self, entry: *const Entry, back: &mut Vec<*const Entry>) {
        for _ in 0..TRIES_MAX {
            // SAFETY: by contract.
            if unsafe { self.try_gather(entry, STEPS_MAX, back) } {
                return;
            }
        }
        let _writer = self.writer.lock();
        // SAFETY: by contract.
        let done = unsafe { self.try_gather(entry, usize::MAX, back) };
        assert!(done, "the index is exact while nobody inserts");
    }

    /// One try of [`List::gather_before`]; false if the index misled it.
    ///
    /// # Safety
    /// `entry` is an entry of this list.
    unsafe fn try_gather(
        &self,
        entry: *const Entry,
        steps_max: usize,
        back: &mut Vec<*const Entry>,
    ) -> bool {
        back.clear();
        // SAFETY: by contract.
        let EntryRef { key, packed, .. } = unsafe { read(entry) };
        let target = Target { key, packed };
        let Some(place) = self.index.find(&target) else { return false };
        place.prefetch_before();
        let start = place.first_of_page();
        // SAFETY: the index holds complete entries of this list only.
        let good = !start.is_null() && unsafe { is_before(start, &target) };
        // In the first page there may be nothing before the entry.
        let mut at = if good { start } else { self.first() };
        while at != entry {
            if at.is_null() || back.len() >= steps_max {
                return false;
            }
            back.push(at);
            at = self.next_of(at);
        }
        true
    }

    /// The fields of `entry`.
    ///
    /// # Safety
    /// `entry` is an entry of this list.
    #[inline]
    pub(super) unsafe fn entry(&self, entry: *const Entry) -> EntryRef<'_> {
        // SAFETY: an entry of the list is complete and lives as long as the list.
        unsafe { read(entry) }
    }

    /// The newest entry of `key` whose sequence number is at most `snapshot`.
    #[inline]
    pub(super) fn get(&self, key: &[u8], snapshot: Seq) -> Option<EntryRef<'_>> {
        match self.filter.get() {
            Some(filter) if !filter.may_contain(hash_of(key)) => return None,
            None if !self.is_sought.load(Ordering::Relaxed) => {
                self.is_sought.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        let found = self.seek(key, snapshot);
        if found.is_null() {
            return None;
        }
        // SAFETY: the search gave an entry of this list.
        let entry = unsafe { self.entry(found) };
        (entry.key == key).then_some(entry)
    }
}

#[cfg(test)]
impl List {
    pub(super) fn has_filter(&self) -> bool {
        self.filter.get().is_some()
    }

    /// Checks that the index holds exactly the entries of the list, in order. Requires: no
    /// concurrent insert.
    pub(super) fn check(&self) {
        let mut at = self.first();
        for entry in self.index.check() {
            assert_eq!(entry, at, "index and list differ");
            let next = self.next_of(at);
            if !next.is_null() {
                // SAFETY: links lead to complete entries.
                let (a, b) = unsafe { (read(at), read(next)) };
                let order = compare(a.key, b.key).then(b.packed.cmp(&a.packed));
                assert!(order.is_lt(), "{a:?} before {b:?}");
            }
            at = next;
        }
        assert!(at.is_null(), "an entry is not in the index");
    }
}
