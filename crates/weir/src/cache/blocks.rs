//! The blocks of a cache under their rule of eviction.
//!
//! The product's are the own cache's, in shards ([`shard`](super::shard)); in experiments there is
//! an LRU too ([`lru`](super::lru)). Without the feature `sim` there is one rule, and no branch.

use std::sync::Arc;

use super::directory::Directory;
#[cfg(feature = "sim")]
use super::lru::Lru;
use super::shard::{Arrival, End, Shard, USES_MAX};
use crate::base::atomic::{AtomicU64, LeafMutex, Ordering};
use crate::base::buf::Buf;
use crate::base::ids::TableUid;

/// Which block leaves a full cache. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// As the product does it: S3-FIFO, and a block weighs its memory.
    #[default]
    S3Fifo,
    /// The least recently used one, and a block weighs its bytes: LevelDB's, which the papers
    /// measure.
    #[cfg(feature = "sim")]
    Lru,
}

/// A block of the LRU.
#[cfg(feature = "sim")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockKey {
    uid: TableUid,
    ordinal: u32,
}

/// Cache lines at the beginning of a block that every hit prefetches: header and columns of a block
/// of 4 KiB with about 35 entries (docs/format/block.md). A search reads them first, one after the
/// other; in longer columns it touches few lines.
const HEAD_LINES: usize = 9;

/// Most shards: enough that two threads rarely contend for one.
const SHARDS_MAX: u64 = 16;
/// A shard is not made smaller than this: it cannot hold a block larger than itself, and a small
/// one knows little of what is used.
const SHARD_BYTES_MIN: u64 = 4 << 20;
const _: () = assert!(SHARDS_MAX.is_power_of_two());

/// The shards of a cache, and its capacity.
pub(super) struct Shards {
    shards: Box<[Shard]>,
    capacity: AtomicU64,
    /// Held by who changes the capacity. Locks: before those of the shards.
    changing: LeafMutex<()>,
}

impl Shards {
    fn new(capacity_bytes: u64) -> Self {
        let count = 1u64 << (capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX).ilog2();
        let shards = (0..count).map(|_| Shard::new(capacity_bytes / count)).collect();
        let capacity = AtomicU64::new(capacity_bytes);
        Self { shards, capacity, changing: LeafMutex::new(()) }
    }

    /// The shard of a block. Neighbours in a page share one, and pages take turns, so that a range
    /// of hot blocks is divided evenly.
    fn of(&self, uid: TableUid, ordinal: u32) -> &Shard {
        let page = u64::from(ordinal) / super::directory::PAGE_LINKS as u64;
        let first = uid.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[(first + page) as usize & (self.shards.len() - 1)]
    }
}

/// Blocks by their table and number, up to a number of bytes.
pub(super) enum Blocks {
    Own(Shards),
    #[cfg(feature = "sim")]
    Lru(parking_lot::Mutex<Lru<BlockKey>>),
}

impl Blocks {
    pub(super) fn new(capacity_bytes: u64, eviction: Eviction) -> Self {
        match eviction {
            Eviction::S3Fifo => Self::Own(Shards::new(capacity_bytes)),
            #[cfg(feature = "sim")]
            Eviction::Lru => Self::Lru(parking_lot::Mutex::new(Lru::new(capacity_bytes))),
        }
    }

    /// The block, which is hotter then.
    #[inline]
    pub(super) fn get(&self, directory: &Directory, ordinal: u32) -> Option<Buf> {
        match self {
            Self::Own(_) => {
                let handle = directory.take(ordinal, HEAD_LINES)?;
                let frame = handle.frame();
                let uses = frame.uses();
                if uses < USES_MAX {
                    frame.set_uses(uses + 1);
                }
                Some(Buf::from_handle(handle))
            }
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().get(&BlockKey { uid: directory.uid, ordinal }),
        }
    }

    /// The block, which is as hot as before.
    #[inline]
    pub(super) fn peek(&self, directory: &Directory, ordinal: u32) -> Option<Buf> {
        match self {
            Self::Own(_) => directory.take(ordinal, HEAD_LINES).map(Buf::from_handle),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().peek(&BlockKey { uid: directory.uid, ordinal }),
        }
    }

    pub(super) fn contains(&self, directory: &Directory, ordinal: u32) -> bool {
        match self {
            Self::Own(_) => directory.contains(ordinal),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().contains(&BlockKey { uid: directory.uid, ordinal }),
        }
    }

    /// Cached blocks of a table, if they are counted.
    pub(super) fn count(&self, directory: &Directory) -> Option<u64> {
        match self {
            Self::Own(_) => Some(directory.cached()),
            #[cfg(feature = "sim")]
            Self::Lru(_) => None,
        }
    }

    /// Inserts a block. False if it is not kept, or was there already.
    pub(super) fn insert(
        &self,
        directory: &Arc<Directory>,
        ordinal: u32,
        buf: Buf,
        arrival: Arrival,
    ) -> bool {
        match self {
            Self::Own(shards) => {
                let shard = shards.of(directory.uid, ordinal);
                let handle = buf.into_handle();
                handle.is_some_and(|handle| shard.insert(directory, ordinal, handle, arrival))
            }
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => {
                let mut blocks = blocks.lock();
                let has_room = blocks.bytes() + buf.memory_bytes() as u64 <= blocks.capacity();
                if arrival == Arrival::IntoRoom && !has_room {
                    return false;
                }
                blocks.insert(BlockKey { uid: directory.uid, ordinal }, buf);
                true
            }
        }
    }

    /// Whether a block of so many bytes would displace no other.
    pub(super) fn has_room(&self, uid: TableUid, ordinal: u32, memory_bytes: usize) -> bool {
        match self {
            Self::Own(shards) => shards.of(uid, ordinal).has_room(memory_bytes),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => {
                let blocks = blocks.lock();
                blocks.bytes() + memory_bytes as u64 <= blocks.capacity()
            }
        }
    }

    /// Erases a block that nobody could read.
    pub(super) fn erase(&self, directory: &Directory, ordinal: u32) {
        match self {
            Self::Own(shards) => {
                shards.of(directory.uid, ordinal).erase(directory, ordinal, End::TakenBack);
            }
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().remove(&BlockKey { uid: directory.uid, ordinal }),
        }
    }

    /// Erases all blocks of a table that has `blocks` blocks.
    pub(super) fn erase_table(&self, directory: &Directory, blocks: u32) {
        match self {
            Self::Own(shards) => {
                for first in directory.pages(blocks) {
                    let end = first.saturating_add(super::directory::PAGE_LINKS as u32);
                    let shard = shards.of(directory.uid, first);
                    (first..end).for_each(|ordinal| shard.erase(directory, ordinal, End::Left));
                }
            }
            #[cfg(feature = "sim")]
            Self::Lru(_) => (0..blocks).for_each(|ordinal| self.erase(directory, ordinal)),
        }
    }

    /// Bytes held now, overhead included where the rule counts it.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Own(shards) => shards.shards.iter().map(Shard::bytes).sum(),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().bytes(),
        }
    }

    /// Blocks that were handed over and left before anybody had read them.
    pub(super) fn unread(&self) -> u64 {
        match self {
            Self::Own(shards) => shards.shards.iter().map(Shard::unread).sum(),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().unread(),
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        match self {
            Self::Own(shards) => shards.capacity.load(Ordering::Relaxed),
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().capacity(),
        }
    }

    pub(super) fn set_capacity(&self, capacity_bytes: u64) {
        match self {
            Self::Own(shards) => {
                // Of two calls at once the shards would get a part of each.
                let _changing = shards.changing.lock();
                shards.capacity.store(capacity_bytes, Ordering::Relaxed);
                let each = capacity_bytes / shards.shards.len() as u64;
                shards.shards.iter().for_each(|shard| shard.set_capacity(each));
            }
            #[cfg(feature = "sim")]
            Self::Lru(blocks) => blocks.lock().set_capacity(capacity_bytes),
        }
    }
}
