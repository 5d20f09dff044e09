//! The blocks of a cache under their rule of eviction.
//!
//! `quick_cache` (CLOCK-Pro with ghosts), with a fixed hash function and a fixed number of shards;
//! in experiments also an LRU ([`lru`](super::lru)). Without the feature `sim` there is one rule,
//! and no branch.

use std::sync::Arc;

use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, Weighter};

#[cfg(feature = "sim")]
use super::lru::Lru;
use super::shards::options_for;
use super::{BLOCK_OVERHEAD_BYTES, BlockKey, Cached};
use crate::base::atomic::{AtomicU64, Ordering};
use crate::base::buf::Buf;
use crate::base::checksum::FixedState;

/// Which block leaves a full cache. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// As the product does it: CLOCK-Pro, and a block weighs its memory.
    #[default]
    ClockPro,
    /// The least recently used one, and a block weighs its bytes: LevelDB's, which the papers
    /// measure.
    #[cfg(feature = "sim")]
    Lru,
}

#[derive(Clone)]
pub(super) struct ByBytes;

impl Weighter<BlockKey, Cached> for ByBytes {
    fn weight(&self, _: &BlockKey, block: &Cached) -> u64 {
        block.buf.memory_bytes() as u64 + BLOCK_OVERHEAD_BYTES
    }
}

/// Counts the blocks that leave unread, and frees those that leave after the shard's lock.
#[derive(Clone, Default)]
pub(super) struct Leaving {
    unread: Arc<AtomicU64>,
}

impl Leaving {
    fn note(&self, buf: &Buf) {
        if buf.is_unread() {
            self.unread.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Lifecycle<BlockKey, Cached> for Leaving {
    /// One block comes in and one or two leave; further ones are freed under the lock.
    type RequestState = [Option<Cached>; 2];

    fn on_evict(&self, state: &mut Self::RequestState, _: BlockKey, block: Cached) {
        self.note(&block.buf);
        if let Some(place) = state.iter_mut().find(|place| place.is_none()) {
            *place = Some(block);
        }
    }
}

type ClockPro = Cache<BlockKey, Cached, ByBytes, FixedState, Leaving>;

/// Blocks by their key, up to a number of bytes.
pub(super) enum Blocks {
    ClockPro(ClockPro, Leaving),
    #[cfg(feature = "sim")]
    Lru(parking_lot::Mutex<Lru<BlockKey>>),
}

impl Blocks {
    pub(super) fn new(capacity_bytes: u64, eviction: Eviction) -> Self {
        /// Blocks are 4 KiB by default.
        const BLOCK_BYTES_GUESS: u64 = 4096;
        match eviction {
            Eviction::ClockPro => {
                let options = options_for(capacity_bytes, BLOCK_BYTES_GUESS);
                let leaving = Leaving::default();
                let cache = Cache::with_options(options, ByBytes, FixedState, leaving.clone());
                Self::ClockPro(cache, leaving)
            }
            #[cfg(feature = "sim")]
            Eviction::Lru => Self::Lru(parking_lot::Mutex::new(Lru::new(capacity_bytes))),
        }
    }

    /// The block, which is hotter then.
    #[inline]
    pub(super) fn get(&self, key: &BlockKey) -> Option<Buf> {
        match self {
            Self::ClockPro(blocks, _) => blocks.get(key).map(|block| block.buf),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().get(key),
        }
    }

    /// The block, which is as hot as before.
    #[inline]
    pub(super) fn peek(&self, key: &BlockKey) -> Option<Buf> {
        match self {
            Self::ClockPro(blocks, _) => blocks.peek(key).map(|block| block.buf),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().peek(key),
        }
    }

    pub(super) fn contains(&self, key: &BlockKey) -> bool {
        match self {
            Self::ClockPro(blocks, _) => blocks.contains_key(key),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().contains(key),
        }
    }

    pub(super) fn insert(&self, key: BlockKey, buf: Buf) {
        match self {
            Self::ClockPro(blocks, _) => blocks.insert(key, buf.into()),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().insert(key, buf),
        }
    }

    pub(super) fn remove(&self, key: &BlockKey) {
        match self {
            Self::ClockPro(blocks, leaving) => {
                if let Some((_, block)) = blocks.remove(key) {
                    leaving.note(&block.buf);
                }
            }
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().remove(key),
        }
    }

    /// Bytes held now, overhead included where the rule counts it.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::ClockPro(blocks, _) => blocks.weight(),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().bytes(),
        }
    }

    /// Blocks that were handed over and left before anybody had read them.
    pub(super) fn unread(&self) -> u64 {
        match self {
            Self::ClockPro(_, leaving) => leaving.unread.load(Ordering::Relaxed),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().unread(),
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        match self {
            Self::ClockPro(blocks, _) => blocks.capacity(),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().capacity(),
        }
    }

    pub(super) fn set_capacity(&self, capacity_bytes: u64) {
        match self {
            Self::ClockPro(blocks, _) => blocks.set_capacity(capacity_bytes),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().set_capacity(capacity_bytes),
        }
    }
}
