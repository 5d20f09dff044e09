//! The block cache for races between rules of eviction, outside of a store. Under `sim` only.

use std::fmt;
use std::sync::Arc;

use super::{BlockCache, Eviction, Purpose, TableBlocks};
use crate::base::buf::Buf;
use crate::base::ids::TableUid;
use crate::base::memory::Accountant;

/// A block cache.
pub struct RacedCache(Arc<BlockCache>);

/// The blocks of one table in it.
pub struct RacedTable {
    blocks: TableBlocks,
    uid: TableUid,
}

impl fmt::Debug for RacedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RacedCache").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl fmt::Debug for RacedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RacedTable").field("uid", &self.uid).finish_non_exhaustive()
    }
}

fn block(bytes: usize) -> Option<Buf> {
    let written: Result<_, ()> = Buf::written(bytes, |_| Ok(()));
    written.ok()
}

impl RacedCache {
    /// For `capacity_bytes`, by this rule.
    #[must_use]
    pub fn new(capacity_bytes: u64, eviction: Eviction) -> Self {
        let accountant = Accountant::new(capacity_bytes);
        Self(Arc::new(BlockCache::with_accountant(capacity_bytes, eviction, accountant)))
    }

    /// The blocks of a table.
    #[must_use]
    pub fn table(&self, uid: u64) -> RacedTable {
        let uid = TableUid::new(uid);
        RacedTable { blocks: self.0.table(uid), uid }
    }

    /// Bytes held now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

impl RacedTable {
    /// Looks a block up, for a user, and takes a handle of it.
    #[inline]
    #[must_use]
    pub fn get(&self, ordinal: u32) -> bool {
        let found = self.blocks.get(ordinal, Purpose::Foreground);
        std::hint::black_box(&found).is_some()
    }

    /// Whether a block is cached.
    #[must_use]
    pub fn contains(&self, ordinal: u32) -> bool {
        self.blocks.contains(ordinal)
    }

    /// Inserts a block of `bytes`.
    pub fn insert(&self, ordinal: u32, bytes: usize) {
        block(bytes).into_iter().for_each(|buf| self.blocks.insert(ordinal, buf));
    }

    /// Inserts a block of `bytes` that a merge wrote.
    pub fn hand_over(&self, ordinal: u32, bytes: usize) {
        let cache = self.blocks.cache();
        if let Some(buf) = block(bytes) {
            cache.hand_over(self.uid, ordinal, buf);
        }
    }

    /// Erases a block.
    pub fn erase(&self, ordinal: u32) {
        self.blocks.cache().erase(self.uid, ordinal);
    }

    /// Erases all blocks of the table, which has `blocks`.
    pub fn erase_all(&self, blocks: u32) {
        self.blocks.cache().erase_table(self.uid, blocks);
    }
}
