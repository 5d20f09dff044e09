//! Least recently used blocks go first: the cache of LevelDB, which the papers measure.
//!
//! For experiments only: one list under one lock, and every hit writes to it. A block weighs its
//! bytes and nothing else, as LevelDB charges it. We differ: one list instead of 16 shards, and
//! blocks of a removed table leave at once instead of when they are the oldest.
//!
//! Invariants: (1) the blocks in the list and in the map are the same; (2) `bytes` is the sum of
//! their weights and at most `capacity` between two calls.

use crate::base::buf::Buf;
use crate::base::checksum::FixedState;

#[expect(clippy::disallowed_types, reason = "it is never iterated, and its hash function is fixed")]
type Places<K> = std::collections::HashMap<K, usize, FixedState>;

/// No entry.
const NONE: usize = usize::MAX;

struct Entry<K> {
    key: K,
    buf: Buf,
    newer: usize,
    older: usize,
}

/// Blocks in the order of their last use.
pub(super) struct Lru<K> {
    entries: Vec<Entry<K>>,
    free: Vec<usize>,
    places: Places<K>,
    newest: usize,
    oldest: usize,
    bytes: u64,
    capacity: u64,
    /// Blocks that were handed over and left unread.
    unread: u64,
}

fn weight(buf: &Buf) -> u64 {
    buf.bytes().len() as u64
}

impl<K: Copy + Eq + std::hash::Hash> Lru<K> {
    pub(super) fn new(capacity: u64) -> Self {
        let (entries, free, places) = (Vec::new(), Vec::new(), Places::default());
        Self { entries, free, places, newest: NONE, oldest: NONE, bytes: 0, capacity, unread: 0 }
    }

    /// The block, which is the most recently used one then.
    pub(super) fn get(&mut self, key: &K) -> Option<Buf> {
        let place = *self.places.get(key)?;
        self.unlink(place);
        self.link_newest(place);
        self.entries.get(place).map(|entry| entry.buf.clone())
    }

    /// The block; its place in the order stays.
    pub(super) fn peek(&self, key: &K) -> Option<Buf> {
        let entry = self.entries.get(*self.places.get(key)?)?;
        Some(entry.buf.clone())
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.places.contains_key(key)
    }

    /// Inserts a block as the most recently used one, and evicts the oldest for it. A block that is
    /// larger than the capacity is not kept.
    pub(super) fn insert(&mut self, key: K, buf: Buf) {
        self.remove(&key);
        self.bytes += weight(&buf);
        let entry = Entry { key, buf, newer: NONE, older: NONE };
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.places.insert(key, place);
        self.link_newest(place);
        self.evict();
    }

    pub(super) fn remove(&mut self, key: &K) {
        let Some(place) = self.places.remove(key) else { return };
        self.unlink(place);
        let buf = std::mem::take(&mut self.entries[place].buf);
        debug_assert!(self.bytes >= weight(&buf), "{} bytes of all blocks", self.bytes);
        self.bytes -= weight(&buf);
        self.unread += u64::from(buf.is_unread());
        self.free.push(place);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.evict();
    }

    fn evict(&mut self) {
        while self.bytes > self.capacity {
            let oldest = self.entries.get(self.oldest).map(|entry| entry.key);
            assert!(oldest.is_some(), "{} bytes of no block", self.bytes);
            oldest.iter().for_each(|key| self.remove(key));
        }
    }

    fn unlink(&mut self, place: usize) {
        let Entry { newer, older, .. } = self.entries[place];
        match self.entries.get_mut(newer) {
            Some(neighbour) => neighbour.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older) {
            Some(neighbour) => neighbour.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, place: usize) {
        let before = self.newest;
        let entry = &mut self.entries[place];
        (entry.newer, entry.older) = (NONE, before);
        match self.entries.get_mut(before) {
            Some(neighbour) => neighbour.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::prng::Prng;

    /// Goal: it is an LRU by bytes. Method: random calls, against a list that is searched linearly.
    #[test]
    fn against_a_list() {
        let seed = 0x1a0_0001;
        println!("seed {seed:#x}");
        let mut prng = Prng::new(seed);
        for capacity in [0, 50, 1_000, 20_000] {
            let mut cache = Lru::new(capacity);
            // Oldest first.
            let mut list: Vec<(u64, usize)> = Vec::new();
            for _ in 0..20_000 {
                let key = prng.below(60);
                let at = list.iter().position(|(held, _)| *held == key);
                assert_eq!(cache.contains(&key), at.is_some());
                match prng.below(20) {
                    0 => {
                        cache.remove(&key);
                        list.retain(|(held, _)| *held != key);
                    }
                    1..6 => {
                        let bytes = 1 + prng.below(600) as usize;
                        cache.insert(key, Buf::unfilled(bytes));
                        list.retain(|(held, _)| *held != key);
                        list.push((key, bytes));
                        let sum =
                            |list: &[(u64, usize)]| list.iter().map(|(_, b)| b).sum::<usize>();
                        while sum(&list) > capacity as usize {
                            list.remove(0);
                        }
                    }
                    6 => assert_eq!(cache.peek(&key).is_some(), at.is_some()),
                    _ => {
                        let found = cache.get(&key).map(|buf| buf.bytes().len());
                        assert_eq!(found, at.map(|at| list[at].1));
                        if let Some(at) = at {
                            let held = list.remove(at);
                            list.push(held);
                        }
                    }
                }
                let bytes: usize = list.iter().map(|(_, bytes)| bytes).sum();
                assert_eq!((cache.bytes(), cache.places.len()), (bytes as u64, list.len()));
            }
            cache.set_capacity(capacity / 2);
            assert!(cache.bytes() <= capacity / 2 && cache.capacity() == capacity / 2);
        }
    }
}
