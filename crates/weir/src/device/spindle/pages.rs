//! A page cache as of an operating system: one LRU list for all files and readers.
//!
//! Not here: content; it tracks only which pages are in memory.
//!
//! Invariants: (1) at most `capacity` pages are cached; (2) a page of a file is cached once;
//! (3) `slots[slot]` and `files[file][page]` refer to each other.

use std::collections::BTreeMap;

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = 4096;

/// No slot.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    file: u64,
    page: u32,
    newer: u32,
    older: u32,
}

/// Pages in the order of their last use.
#[derive(Debug)]
pub(super) struct PageCache {
    slots: Vec<Slot>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    capacity: usize,
    files: BTreeMap<u64, Vec<u32>>,
}

impl PageCache {
    pub(super) fn new(bytes: u64) -> Self {
        let capacity = usize::try_from(bytes / PAGE_BYTES).unwrap_or(usize::MAX);
        let (slots, free, files) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { slots, free, newest: NONE, oldest: NONE, capacity, files }
    }

    /// Caches a page as the most recently used one. Returns whether it was cached before.
    pub(super) fn touch(&mut self, file: u64, page: u64) -> bool {
        let (Ok(number), true) = (u32::try_from(page), self.capacity > 0) else { return false };
        let pages = self.files.entry(file).or_default();
        if pages.len() <= number as usize {
            pages.resize(number as usize + 1, NONE);
        }
        let held = pages.get(number as usize).copied().filter(|&slot| slot != NONE);
        if let Some(slot) = held {
            let of = self.get(slot).map(|slot| (slot.file, slot.page));
            debug_assert_eq!(of, Some((file, number)), "page in slot {slot}");
            self.unlink(slot);
            self.link_newest(slot);
            return true;
        }
        let slot = self.free_slot();
        self.put(slot, Slot { file, page: number, newer: NONE, older: NONE });
        self.set_place(file, number, slot);
        self.link_newest(slot);
        false
    }

    /// Drops a file's pages from byte `from` on.
    pub(super) fn forget(&mut self, file: u64, from: u64) {
        let first = usize::try_from(from.div_ceil(PAGE_BYTES)).unwrap_or(usize::MAX);
        let Some(pages) = self.files.get_mut(&file) else { return };
        let gone = pages.split_off(first.min(pages.len()));
        if pages.is_empty() {
            self.files.remove(&file);
        }
        for slot in gone.into_iter().filter(|&slot| slot != NONE) {
            self.unlink(slot);
            self.free.push(slot);
        }
    }

    fn free_slot(&mut self) -> u32 {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        if self.slots.len() < self.capacity && self.slots.len() < NONE as usize {
            let empty = Slot { file: 0, page: 0, newer: NONE, older: NONE };
            self.slots.push(empty);
            return (self.slots.len() - 1) as u32;
        }
        let slot = self.oldest;
        assert!(slot != NONE, "no page to evict from {} slots", self.slots.len());
        self.unlink(slot);
        if let Some(Slot { file, page, .. }) = self.get(slot) {
            self.set_place(file, page, NONE);
        }
        slot
    }

    fn get(&self, slot: u32) -> Option<Slot> {
        self.slots.get(slot as usize).copied()
    }

    fn put(&mut self, slot: u32, content: Slot) {
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = content;
        }
    }

    fn set_place(&mut self, file: u64, page: u32, slot: u32) {
        if let Some(place) = self.files.get_mut(&file).and_then(|p| p.get_mut(page as usize)) {
            *place = slot;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Some(Slot { newer, older, .. }) = self.get(slot) else { return };
        match self.slots.get_mut(newer as usize) {
            Some(neighbour) => neighbour.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let before = self.newest;
        if let Some(content) = self.slots.get_mut(slot as usize) {
            (content.newer, content.older) = (NONE, before);
        }
        match self.slots.get_mut(before as usize) {
            Some(neighbour) => neighbour.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::prng::Prng;

    /// Goal: it is an LRU cache. Method: random uses and removals of files, against a list that is
    /// searched linearly.
    #[test]
    fn against_a_list() {
        let seed = 0x9a6e_0001;
        println!("seed {seed:#x}");
        let mut prng = Prng::new(seed);
        for capacity in [0, 1, 2, 7, 64] {
            let mut cache = PageCache::new(capacity * PAGE_BYTES + 100);
            let mut list: Vec<(u64, u64)> = Vec::new();
            for _ in 0..20_000 {
                let (file, page) = (prng.below(5), prng.below(30));
                if prng.below(50) == 0 {
                    cache.forget(file, page * PAGE_BYTES);
                    list.retain(|&(f, p)| f != file || p < page);
                    continue;
                }
                let at = list.iter().position(|&held| held == (file, page));
                assert_eq!(cache.touch(file, page), at.is_some());
                if let Some(at) = at {
                    list.remove(at);
                }
                list.push((file, page));
                if list.len() > capacity as usize {
                    list.remove(0);
                }
            }
        }
    }
}
