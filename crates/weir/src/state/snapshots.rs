//! The list of live snapshots: the sequence numbers at which the store is still read.
//!
//! Invariant: a snapshot's sequence number is read under the list's lock, so that a job which reads
//! the list after it pinned a version sees every snapshot that may need that version's entries
//! (H47).

use crate::base::atomic::{AtomicU64, Ordering};
use crate::base::key::Seq;
use crate::base::sched::Mutex;

/// A state that is read, and by how many.
#[derive(Clone, Copy)]
struct Held {
    seq: Seq,
    holders: u64,
}

/// Live snapshots by sequence number, counted.
#[derive(Default)]
pub(crate) struct SnapshotList {
    /// Ascending. Nearly all come and go at its end: no cursor allocates or searches for its own.
    live: Mutex<Vec<Held>>,
}

/// The place of the state at `seq`, which is live.
fn find(live: &[Held], seq: Seq) -> Option<usize> {
    match live.last() {
        Some(newest) if newest.seq == seq => Some(live.len() - 1),
        _ => live.binary_search_by_key(&seq, |held| held.seq).ok(),
    }
}

impl SnapshotList {
    /// Enters a snapshot of the state that is visible now and returns its sequence number.
    pub(crate) fn take(&self, visible: &AtomicU64) -> Seq {
        let mut live = self.live.lock();
        let seq = visible.load(Ordering::Acquire);
        match live.last_mut().filter(|newest| newest.seq == seq) {
            Some(newest) => newest.holders += 1,
            None => {
                let newest = live.last().map_or(0, |held| held.seq);
                assert!(seq >= newest, "a snapshot at {seq} is taken after one at {newest}");
                live.push(Held { seq, holders: 1 });
            }
        }
        seq
    }

    /// Enters another holder of the state at `seq`, which must be live.
    pub(crate) fn retain(&self, seq: Seq) {
        let mut live = self.live.lock();
        let held = find(&live, seq).and_then(|at| live.get_mut(at));
        assert!(held.is_some(), "snapshot {seq} was not live: its entries may be dropped");
        held.into_iter().for_each(|held| held.holders += 1);
    }

    /// Removes one holder of the state at `seq`.
    pub(crate) fn release(&self, seq: Seq) {
        let mut live = self.live.lock();
        let at = find(&live, seq);
        debug_assert!(at.is_some(), "snapshot {seq} is released, but not live");
        let Some(at) = at else { return };
        live[at].holders -= 1;
        if live[at].holders == 0 {
            live.remove(at);
        }
    }

    /// Sequence numbers of the live snapshots, ascending.
    pub(crate) fn live(&self) -> Vec<Seq> {
        self.live.lock().iter().map(|held| held.seq).collect()
    }

    /// Number of distinct live snapshots and the oldest one's sequence number.
    pub(crate) fn summary(&self) -> (usize, Option<Seq>) {
        let live = self.live.lock();
        (live.len(), live.first().map(|held| held.seq))
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
