//! Snapshots that go from thread to thread, beside jobs that read the list.

use std::sync::Arc;

use super::{actor, explore};
use crate::base::atomic::{AtomicU64, Ordering};
use crate::base::sched::Mutex;
use crate::state::snapshots::SnapshotList;

/// Holders of each state, one after the other.
const HOLDERS: u64 = 6;

/// Goal (H47): a state that somebody holds is in the list whenever a job reads it, though holders
/// in different threads come and go meanwhile. Method: holders relay one state, each entering
/// before the one before it leaves; jobs read all stripes in turn, with switches between them.
#[test]
fn a_relayed_snapshot_is_always_in_the_list() {
    explore(|_| {
        let list = Arc::new(SnapshotList::default());
        let hold = list.take(&AtomicU64::new(7));
        let (held, left) = (Arc::new(Mutex::new(hold)), Arc::new(AtomicU64::new(HOLDERS)));
        let mut actors = Vec::new();
        for _ in 0..HOLDERS {
            let (list, held, left) = (Arc::clone(&list), Arc::clone(&held), Arc::clone(&left));
            actors.push(actor("holder", move || {
                let mut held = held.lock();
                let mine = list.retain(*held);
                let before = std::mem::replace(&mut *held, mine);
                list.release(before);
                drop(held);
                left.fetch_add(u64::MAX, Ordering::AcqRel);
            }));
        }
        for _ in 0..2 {
            let (list, left) = (Arc::clone(&list), Arc::clone(&left));
            actors.push(actor("job", move || {
                while left.load(Ordering::Acquire) > 0 {
                    assert_eq!(list.live(), [7]);
                }
            }));
        }
        actors.into_iter().for_each(|actor| assert!(actor.join(), "an actor failed"));
    });
}
