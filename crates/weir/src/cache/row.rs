//! The row cache: the answer of a keyspace's tables for a key, a value or known absence.
//!
//! Not here: memtables, which are newer and are searched first (`read`); blocks (`cache`).
//!
//! A row answers for the *disk part* of a keyspace and for the newest sequence number only. Merges
//! and moves do not change that answer; the flush of a memtable does, for the keys in it. So the
//! disk part has a *generation*, which is raised before a flushed memtable is removed, and a
//! super-version carries the generation of its own disk part.
//!
//! Invariants (H53):
//! 1. A row is true of the disk part of its generation, and of every later one as long as it is
//!    cached: after a raise of the generation the keys whose answer changes are erased
//!    ([`RowCache::erase`]) before a super-version of the new generation is published.
//! 2. A reader uses a row only if the row's generation is at most its super-version's.
//! 3. A row is inserted only while its generation is the keyspace's newest. This is checked under a
//!    gate that every erasure passes after the generation was raised: an insertion is either
//!    refused, or complete before the erasure looks for it.
//!
//! Locks: a gate is a leaf. Source: LSbM §2.3, "Key-Value store cache", and the row caches of
//! Cassandra and RocksDB. We differ: theirs lie above the memtables, and every write must
//! invalidate its row; ours is invalidated by flushes only, and caches known absence too.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{Equivalent, Weighter};

use crate::base::atomic::{AtomicU64, Ordering};
use crate::base::buf::Buf;
use crate::base::checksum::FixedState;
use crate::base::frame::FRAME_BYTES;
use crate::base::ids::KeyspaceId;
use crate::base::memory::{Accountant, Category};
use crate::base::sched::{self, Mutex};
use crate::cache::Purpose;
use crate::cache::counters::LookupCounters;
use crate::cache::shards::{ACCOUNT_EVERY, LINK_BYTES, options_for};

/// A row's key: borrowed, for a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowKey<'a> {
    /// Id of the keyspace, never reused after a drop.
    pub(crate) keyspace: KeyspaceId,
    /// `checksum::hash_key` of the key under the store's seed.
    pub(crate) hash: u64,
    /// The user key.
    pub(crate) key: &'a [u8],
}

impl Hash for RowKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash ^ u64::from(self.keyspace));
    }
}

/// As [`RowKey`], owned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnedKey {
    keyspace: KeyspaceId,
    hash: u64,
    key: Box<[u8]>,
}

impl Hash for OwnedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        RowKey { keyspace: self.keyspace, hash: self.hash, key: &self.key }.hash(state);
    }
}

impl Equivalent<OwnedKey> for RowKey<'_> {
    fn equivalent(&self, other: &OwnedKey) -> bool {
        self.hash == other.hash && self.keyspace == other.keyspace && *self.key == *other.key
    }
}

#[derive(Clone)]
struct Row {
    generation: u64,
    /// `None`: the tables have no value for the key.
    value: Option<Buf>,
}

/// Memory of a row besides its key and value: the slot, half of it again for the slack of a growing
/// table (72 * 1.5), its share of the hash table and of the ghosts (21 * 1.5), rounded up; and the
/// headers of two allocations (2 * 16). A value's frame comes on top.
const ROW_OVERHEAD_BYTES: u64 = 176;

const _: () = assert!(size_of::<OwnedKey>() + size_of::<Row>() + LINK_BYTES <= 72);

#[derive(Clone)]
struct ByBytes;

fn weight(key_bytes: usize, value_bytes: Option<usize>) -> u64 {
    let value_bytes = value_bytes.map_or(0, |bytes| bytes + FRAME_BYTES);
    (key_bytes + value_bytes) as u64 + ROW_OVERHEAD_BYTES
}

impl Weighter<OwnedKey, Row> for ByBytes {
    fn weight(&self, key: &OwnedKey, row: &Row) -> u64 {
        weight(key.key.len(), row.value.as_ref().map(Buf::memory_bytes))
    }
}

/// Gates of insertions: enough that two threads rarely contend, few enough for an erasure to pass
/// all.
const GATES: usize = 8;

/// Counters of the row cache since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowCounters {
    /// Lookups that were answered, with a value or with known absence.
    pub(crate) hits: u64,
    /// Lookups that had to search the tables.
    pub(crate) misses: u64,
    /// Rows that were not inserted because a flush had changed the disk part meanwhile.
    pub(crate) refused: u64,
}

/// Caches rows up to a number of bytes. Shared between all keyspaces of a store.
pub(crate) struct RowCache {
    rows: Cache<OwnedKey, Row, ByBytes, FixedState, DefaultLifecycle<OwnedKey, Row>>,
    gates: [Mutex<()>; GATES],
    lookups: LookupCounters,
    inserts: AtomicU64,
    refused: AtomicU64,
    accountant: Arc<Accountant>,
}

impl RowCache {
    /// A cache for `capacity_bytes` of rows, overhead included. Reports its size to `accountant` as
    /// `Category::RowCache`.
    pub(crate) fn new(capacity_bytes: u64, accountant: Arc<Accountant>) -> Self {
        /// A short key with a value of some hundred bytes.
        const ROW_BYTES_GUESS: u64 = 512;
        let options = options_for(capacity_bytes, ROW_BYTES_GUESS);
        Self {
            rows: Cache::with_options(options, ByBytes, FixedState, DefaultLifecycle::default()),
            gates: Default::default(),
            lookups: LookupCounters::default(),
            inserts: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            accountant,
        }
    }

    /// The cached answer of the tables for `key` in a super-version of `generation`; `Some(None)`
    /// is known absence. Counts a hit or a miss.
    #[inline]
    pub(crate) fn get(&self, key: RowKey<'_>, generation: u64) -> Option<Option<Buf>> {
        let row = sched::without_switches(|| self.rows.get(&key));
        let row = row.filter(|row| row.generation <= generation);
        self.lookups.count(Purpose::Foreground, row.is_some());
        row.map(|row| row.value)
    }

    /// Offers the answer of the tables of `generation` for `key`. Refused unless `newest`, the
    /// generation of the keyspace, is still the same.
    pub(crate) fn insert(
        &self,
        key: RowKey<'_>,
        value: Option<&[u8]>,
        generation: u64,
        newest: &AtomicU64,
    ) {
        if weight(key.key.len(), value.map(<[u8]>::len)) > self.rows.shard_capacity() {
            return;
        }
        let row = Row { generation, value: value.map(Buf::from) };
        let owned = OwnedKey { keyspace: key.keyspace, hash: key.hash, key: key.key.into() };
        let gate = self.gates[(key.hash >> 32) as usize % GATES].lock();
        let current = newest.load(Ordering::Acquire);
        debug_assert!(generation <= current, "a row of generation {generation} above {current}");
        if current != generation {
            drop(gate);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        sched::without_switches(|| self.rows.insert(owned, row));
        drop(gate);
        if (self.inserts.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(ACCOUNT_EVERY) {
            self.account();
        }
    }

    /// Waits for running insertions; later ones are refused.
    ///
    /// Requires: the generation has been raised, and no super-version of the new one is published
    /// yet (invariants 3 and 1).
    pub(crate) fn begin_erasing(&self) {
        for gate in &self.gates {
            drop(gate.lock());
        }
    }

    /// Erases the row of a key whose answer changes. Requires:
    /// [`begin_erasing`](Self::begin_erasing) was called. A read lock rules out most keys before
    /// the write lock is taken.
    pub(crate) fn erase(&self, key: RowKey<'_>) {
        if self.rows.contains_key(&key) {
            sched::without_switches(|| self.rows.remove(&key));
        }
    }

    /// Ends an erasure that [`begin_erasing`](Self::begin_erasing) began.
    pub(crate) fn end_erasing(&self) {
        self.account();
    }

    /// Erases all rows of a keyspace. O(rows). Requires: its generation has been raised.
    pub(crate) fn erase_keyspace(&self, keyspace: KeyspaceId) {
        self.begin_erasing();
        sched::without_switches(|| self.rows.retain(|key, _| key.keyspace != keyspace));
        self.end_erasing();
    }

    /// Bytes held now, overhead included.
    pub(crate) fn bytes(&self) -> u64 {
        self.rows.weight()
    }

    /// Bytes that may be held.
    pub(crate) fn capacity(&self) -> u64 {
        self.rows.capacity()
    }

    /// The counters, summed over all threads. No snapshot: they are read one after the other.
    pub(crate) fn counters(&self) -> RowCounters {
        RowCounters {
            hits: self.lookups.hits()[Purpose::Foreground as usize],
            misses: self.lookups.misses()[Purpose::Foreground as usize],
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    fn account(&self) {
        self.accountant.set(Category::RowCache, self.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(keyspace: u32, key: &[u8]) -> RowKey<'_> {
        let keyspace = KeyspaceId::new(keyspace);
        RowKey { keyspace, hash: crate::base::checksum::hash_key(key, 7), key }
    }

    fn cache(capacity_bytes: u64) -> (RowCache, Arc<Accountant>) {
        let accountant = Accountant::new(1 << 30);
        (RowCache::new(capacity_bytes, Arc::clone(&accountant)), accountant)
    }

    fn value(rows: &RowCache, row: RowKey<'_>, generation: u64) -> Option<Option<Vec<u8>>> {
        rows.get(row, generation).map(|value| value.map(|buf| buf.bytes().to_vec()))
    }

    /// H53: goal: a row of an older generation is not inserted, one of a newer generation not
    /// returned.
    #[test]
    fn generations_decide_what_goes_in_and_comes_out() {
        let (rows, _) = cache(1 << 20);
        let newest = AtomicU64::new(5);
        rows.insert(key(1, b"a"), Some(b"old"), 4, &newest);
        assert_eq!(value(&rows, key(1, b"a"), 5), None, "the lookup began before a flush");
        rows.insert(key(1, b"a"), Some(b"new"), 5, &newest);
        rows.insert(key(1, b"b"), None, 5, &newest);
        rows.insert(key(1, b"c"), Some(b""), 5, &newest);
        assert_eq!(value(&rows, key(1, b"a"), 4), None, "too young for this super-version");
        assert_eq!(value(&rows, key(1, b"a"), 5), Some(Some(b"new".to_vec())));
        assert_eq!(value(&rows, key(1, b"a"), 9), Some(Some(b"new".to_vec())));
        assert_eq!(value(&rows, key(1, b"b"), 5), Some(None), "known absence");
        assert_eq!(value(&rows, key(1, b"c"), 5), Some(Some(Vec::new())));
        assert_eq!(value(&rows, key(2, b"a"), 5), None, "another keyspace");
        assert_eq!(rows.counters(), RowCounters { hits: 4, misses: 3, refused: 1 });
    }

    /// Erasing a key or a keyspace keeps all others.
    #[test]
    fn erasing_takes_what_it_names() {
        let (rows, accountant) = cache(1 << 20);
        let newest = AtomicU64::new(0);
        for keyspace in 1..=2 {
            for i in 0..100u32 {
                rows.insert(key(keyspace, &i.to_be_bytes()), Some(b"v"), 0, &newest);
            }
        }
        rows.begin_erasing();
        (0..50u32).for_each(|i| rows.erase(key(1, &i.to_be_bytes())));
        rows.end_erasing();
        let left = |keyspace| {
            let found = |i: &u32| rows.get(key(keyspace, &i.to_be_bytes()), 0).is_some();
            (0..100u32).filter(found).count()
        };
        assert_eq!((left(1), left(2)), (50, 100));
        rows.erase_keyspace(KeyspaceId::new(2));
        assert_eq!((left(1), left(2)), (50, 0));
        assert_eq!(accountant.used(Category::RowCache), rows.bytes());
    }

    /// The cache stays within its capacity, and a row that could never fit is not copied.
    #[test]
    fn capacity_holds() {
        let (rows, accountant) = cache(64 << 10);
        let newest = AtomicU64::new(0);
        for i in 0..2000u32 {
            rows.insert(key(1, &i.to_be_bytes()), Some(&[1; 500]), 0, &newest);
            assert!(rows.bytes() <= 64 << 10);
        }
        assert!(rows.bytes() > 32 << 10, "the cache must not evict what fits");
        rows.insert(key(1, b"huge"), Some(&[1; 65 << 10]), 0, &newest);
        assert_eq!(value(&rows, key(1, b"huge"), 0), None);
        assert_eq!(accountant.used(Category::RowCache).div_ceil(8 << 10), 8);
        assert_eq!(rows.capacity(), 64 << 10);
    }
}
