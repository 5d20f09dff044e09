//! The list of live snapshots: the sequence numbers at which the store is still read.
//!
//! Invariant: a snapshot's sequence number is read under the list's lock, so that a job which reads
//! the list after it pinned a version sees every snapshot that may need that version's entries
//! (H47).

use std::collections::BTreeMap;

use crate::base::atomic::{AtomicU64, Ordering};
use crate::base::key::Seq;
use crate::base::sched::Mutex;

/// Live snapshots by sequence number, counted.
#[derive(Default)]
pub(crate) struct SnapshotList {
    live: Mutex<BTreeMap<Seq, u64>>,
}

impl SnapshotList {
    /// Enters a snapshot of the state that is visible now and returns its sequence number.
    pub(crate) fn take(&self, visible: &AtomicU64) -> Seq {
        let mut live = self.live.lock();
        let seq = visible.load(Ordering::Acquire);
        let newest = live.keys().next_back().copied().unwrap_or(0);
        assert!(seq >= newest, "a snapshot at {seq} is taken after one at {newest}");
        *live.entry(seq).or_insert(0) += 1;
        seq
    }

    /// Enters another holder of the state at `seq`, which must be live.
    pub(crate) fn retain(&self, seq: Seq) {
        let mut live = self.live.lock();
        let holders = live.entry(seq).or_insert(0);
        assert!(*holders > 0, "snapshot {seq} was not live: its entries may be dropped");
        *holders += 1;
    }

    /// Removes one holder of the state at `seq`.
    pub(crate) fn release(&self, seq: Seq) {
        let mut live = self.live.lock();
        debug_assert!(live.contains_key(&seq), "snapshot {seq} is released, but not live");
        if let Some(holders) = live.get_mut(&seq) {
            *holders -= 1;
            if *holders == 0 {
                live.remove(&seq);
            }
        }
    }

    /// Sequence numbers of the live snapshots, ascending.
    pub(crate) fn live(&self) -> Vec<Seq> {
        self.live.lock().keys().copied().collect()
    }

    /// Number of distinct live snapshots and the oldest one's sequence number.
    pub(crate) fn summary(&self) -> (usize, Option<Seq>) {
        let live = self.live.lock();
        (live.len(), live.keys().next().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_live_until_its_last_holder_goes() {
        let list = SnapshotList::default();
        let visible = AtomicU64::new(7);
        let a = list.take(&visible);
        let b = list.take(&visible);
        visible.store(9, Ordering::Release);
        let c = list.take(&visible);
        list.retain(c);
        assert_eq!((a, b, c), (7, 7, 9));
        list.release(a);
        list.release(c);
        assert_eq!(list.live(), [7, 9]);
        list.release(b);
        assert_eq!(list.summary(), (1, Some(9)));
        list.release(c);
        assert!(list.live().is_empty());
    }
}
