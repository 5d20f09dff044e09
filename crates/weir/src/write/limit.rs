//! The memory of all keyspaces' memtables together: when to freeze some, and when writers stall.
//!
//! A memtable is frozen when it is full, but the half-full memtables of many keyspaces can exceed
//! the limit for all memtables. Then the largest ones are frozen: they free the most memory per
//! table in level 0. Memtables that only cursors still pin do not count here: no flush frees them.
//!
//! Not here: freezing and stalling (`queue`). Pure but for reading the trees' sizes, by the leader
//! of the commit queue. RocksDB: `WriteBufferManager`.

use std::sync::Arc;

use crate::state::tree::Tree;

/// The fraction of the limit that is frozen at once: an eighth. With thousands of small memtables,
/// one scan of all keyspaces then serves many writes; a large memtable exceeds that alone.
const FREEZE_SHARE: u64 = 8;

/// Bytes of the memtables of all keyspaces.
pub(super) struct MemtableBytes {
    active: u64,
    /// Immutable, waiting for their flush.
    frozen: u64,
}

impl MemtableBytes {
    /// The bytes in the memtables of `trees` now.
    pub(super) fn of(trees: &[Arc<Tree>]) -> Self {
        let mut sum = Self { active: 0, frozen: 0 };
        for tree in trees {
            let (active, frozen) = tree.memtable_bytes();
            sum.active += active;
            sum.frozen += frozen;
        }
        sum
    }

    /// Whether memtables have to be frozen although they are not full. Not while the immutable ones
    /// hold more than the active ones: flushing those is enough, and further freezes would make
    /// many small tables.
    pub(super) fn should_freeze(&self, bytes_max: u64) -> bool {
        self.active + self.frozen > bytes_max && self.active > self.frozen
    }

    /// Whether writers stall until a flush frees memory: from a quarter above the limit on, so that
    /// they proceed during an ordinary flush.
    pub(super) fn should_stall(&self, bytes_max: u64) -> bool {
        self.frozen > 0 && self.active + self.frozen > bytes_max + bytes_max / 4
    }
}

/// The keyspaces with the largest active memtables, as many as hold the fraction [`FREEZE_SHARE`]
/// of the limit together; at least one, unless all are empty.
pub(super) fn largest(trees: &[Arc<Tree>], bytes_max: u64) -> Vec<Arc<Tree>> {
    let sizes = trees.iter().map(|tree| (tree.memtable_bytes().0, tree));
    let mut sizes: Vec<_> = sizes.filter(|(bytes, _)| *bytes > 0).collect();
    // Ties go to the smaller id, so that the order is deterministic.
    sizes.sort_by_key(|(bytes, tree)| (std::cmp::Reverse(*bytes), tree.id));
    let mut taken = 0;
    let take = sizes.iter().take_while(|(bytes, _)| {
        let goes_on = taken < bytes_max / FREEZE_SHARE;
        taken += bytes;
        goes_on
    });
    take.map(|(_, tree)| Arc::clone(tree)).collect()
}
