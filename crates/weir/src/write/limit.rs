//! What the memtables of all keyspaces hold together, and what follows from it.
//!
//! A memtable is frozen when it is full, but many keyspaces with half-full memtables can hold more
//! than all memtables may. Then the largest is frozen: it frees the most for one table in level 0.
//! Memtables that only cursors hold any more do not count here, because nothing that writers do
//! gives them back.
//!
//! Not here: freezing and waiting (`queue`). Pure but for a look at the trees, by the leader of the
//! commit queue.

use std::sync::Arc;

use crate::state::tree::Tree;

/// Bytes of the memtables of all keyspaces.
pub(super) struct MemtableBytes<'a> {
    active: u64,
    /// Waiting for their flush.
    frozen: u64,
    /// Whose active memtable is the largest.
    pub(super) largest: Option<&'a Tree>,
}

impl<'a> MemtableBytes<'a> {
    /// What these keyspaces hold now.
    pub(super) fn of(trees: &'a [Arc<Tree>]) -> Self {
        let mut sum = Self { active: 0, frozen: 0, largest: None };
        let mut most = 0;
        for tree in trees {
            let (active, frozen) = tree.memtable_bytes();
            sum.active += active;
            sum.frozen += frozen;
            if active > most {
                most = active;
                sum.largest = Some(tree);
            }
        }
        sum
    }

    /// Whether a memtable is to be frozen although it is not full. Not while more waits for its
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
