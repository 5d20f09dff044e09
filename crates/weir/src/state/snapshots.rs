//! The list of live snapshots: the sequence numbers at which the store is still read.
//!
//! Each thread enters its own in a list of its stripe: cursors come and go with every scan, and two
//! threads that wait for one list scan no faster than one.
//!
//! Invariants: (1) a snapshot's sequence number is read under its list's lock, so that a job which
//! reads all lists after it pinned a version sees every snapshot that may need that version's
//! entries (H47): one that enters a list behind it reads a number from after the pin. (2) A further
//! holder of a snapshot enters the list that it is in: a job that looks into one list after the
//! other would miss one that goes to a list behind it while the first holder leaves.

use crate::base::atomic::{AtomicU64, Ordering};
use crate::base::key::Seq;
use crate::base::sched::Mutex;
use crate::base::stripe::{STRIPES, stripe};

/// A state that is read, and by how many.
#[derive(Clone, Copy)]
struct Held {
    seq: Seq,
    holders: u64,
}

/// The snapshots that threads of one stripe took, ascending. Nearly all come and go at the end: no
/// cursor allocates or searches for its own.
#[derive(Default)]
#[repr(align(64))]
struct Live(Mutex<Vec<Held>>);

/// Live snapshots by sequence number, counted.
#[derive(Default)]
pub(crate) struct SnapshotList {
    stripes: [Live; STRIPES],
}

/// A holder of a live snapshot, to be released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) seq: Seq,
    stripe: usize,
}

/// The place of the state at `seq`, which is live.
fn find(live: &[Held], seq: Seq) -> Option<usize> {
    match live.last() {
        Some(newest) if newest.seq == seq => Some(live.len() - 1),
        _ => live.binary_search_by_key(&seq, |held| held.seq).ok(),
    }
}

impl SnapshotList {
    /// Enters a snapshot of the state that is visible now.
    pub(crate) fn take(&self, visible: &AtomicU64) -> Hold {
        let stripe = stripe();
        let mut live = self.stripes[stripe].0.lock();
        let seq = visible.load(Ordering::Acquire);
        match live.last_mut().filter(|newest| newest.seq == seq) {
            Some(newest) => newest.holders += 1,
            None => {
                let newest = live.last().map_or(0, |held| held.seq);
                assert!(seq >= newest, "a snapshot at {seq} is taken after one at {newest}");
                live.push(Held { seq, holders: 1 });
            }
        }
        Hold { seq, stripe }
    }

    /// Enters another holder of a snapshot, which must be live.
    pub(crate) fn retain(&self, hold: Hold) -> Hold {
        let Hold { seq, stripe } = hold;
        let mut live = self.stripes[stripe].0.lock();
        let held = find(&live, seq).and_then(|at| live.get_mut(at));
        assert!(held.is_some(), "snapshot {seq} was not live: its entries may be dropped");
        held.into_iter().for_each(|held| held.holders += 1);
        hold
    }

    /// Removes one holder of a snapshot.
    pub(crate) fn release(&self, Hold { seq, stripe }: Hold) {
        let mut live = self.stripes[stripe].0.lock();
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
        let mut all = Vec::new();
        for stripe in &self.stripes {
            all.extend(stripe.0.lock().iter().map(|held| held.seq));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Number of distinct live snapshots and the oldest one's sequence number.
    pub(crate) fn summary(&self) -> (usize, Option<Seq>) {
        let live = self.live();
        (live.len(), live.first().copied())
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
        let d = list.retain(c);
        assert_eq!((a.seq, b.seq, c.seq, d.seq), (7, 7, 9, 9));
        list.release(a);
        list.release(c);
        assert_eq!(list.live(), [7, 9]);
        list.release(b);
        assert_eq!(list.summary(), (1, Some(9)));
        list.release(d);
        assert!(list.live().is_empty());
    }

    /// Goal: snapshots of all threads are seen, each once, and one that goes to another thread
    /// leaves the list that it is in.
    #[test]
    fn snapshots_of_several_threads_are_one_list() {
        let list = SnapshotList::default();
        let visible = AtomicU64::new(5);
        let here = list.take(&visible);
        let there = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..2 * STRIPES).map(|_| scope.spawn(|| list.take(&visible))).collect();
            threads.into_iter().map(|t| t.join().expect("takes one")).collect::<Vec<_>>()
        });
        visible.store(8, Ordering::Release);
        let newer = list.take(&visible);
        assert_eq!(list.live(), [5, 8]);
        let again = list.retain(there[3]);
        there.into_iter().chain([here]).for_each(|hold| list.release(hold));
        assert_eq!(list.summary(), (2, Some(5)));
        list.release(again);
        assert_eq!(list.live(), [8]);
        list.release(newer);
        assert_eq!(list.summary(), (0, None));
    }
}
