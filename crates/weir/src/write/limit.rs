//! What the memtables of all keyspaces hold together, and what follows from it.
//!
//! A memtable is frozen when it is full, but many keyspaces with half-full memtables can hold more
//! than all memtables may. Then the largest ones are frozen: they free the most for one table in
//! level 0. Memtables that only cursors still hold do not count here: nothing that writers do
//! frees them.
//!
//! Not here: freezing and waiting (`queue`). Pure but for a look at the trees, by the leader of the
//! commit queue.

use std::sync::Arc;

use crate::state::tree::Tree;

/// The part of the limit that is frozen at once: an eighth. A look at all keyspaces then serves
/// many writes, where thousands of small memtables make up the whole; one of a few large ones is
/// more than that by itself.
const FREEZE_SHARE: u64 = 8;

/// Bytes of the memtables of all keyspaces.
pub(super) struct MemtableBytes {
    active: u64,
    /// Waiting for their flush.
    frozen: u64,
}

impl MemtableBytes {
    /// What these keyspaces hold now.
    pub(super) fn of(trees: &[Arc<Tree>]) -> Self {
        let mut sum = Self { active: 0, frozen: 0 };
        for tree in trees {
            let (active, frozen) = tree.memtable_bytes();
            sum.active += active;
            sum.frozen += frozen;
        }
        sum
    }

    /// Whether memtables are to be frozen although they are not full. Not while more waits for its
    /// flush than is active: that will do, and would end in many small tables otherwise.
    pub(super) fn calls_for_freeze(&self, bytes_max: u64) -> bool {
        self.active + self.frozen > bytes_max && self.active > self.frozen
    }

    /// Whether writers wait for a flush: a quarter above the limit, so that they go on while one
    /// runs.
    pub(super) fn must_wait(&self, bytes_max: u64) -> bool {
        self.frozen > 0 && self.active + self.frozen > bytes_max + bytes_max / 4
    }
}

/// The keyspaces with the largest active memtables, as many as make up [`FREEZE_SHARE`] of the
/// limit; at least one, unless all are empty.
pub(super) fn largest(trees: &[Arc<Tree>], bytes_max: u64) -> Vec<Arc<Tree>> {
    let sizes = trees.iter().map(|tree| (tree.memtable_bytes().0, tree));
    let mut sizes: Vec<_> = sizes.filter(|(bytes, _)| *bytes > 0).collect();
    // Of equal ones the older keyspace: the order is the same in every run.
    sizes.sort_by_key(|(bytes, tree)| (std::cmp::Reverse(*bytes), tree.id));
    let mut taken = 0;
    let take = sizes.iter().take_while(|(bytes, _)| {
        let goes_on = taken < bytes_max / FREEZE_SHARE;
        taken += bytes;
        goes_on
    });
    take.map(|(_, tree)| Arc::clone(tree)).collect()
}
